//! A trace on another disk, in virtual time.
//!
//! A request waits for what it waited for when it was recorded: of the requests that had been answered
//! when it arrived, the last ones. From the last of those replies to its arrival the host was at work,
//! and it needs that time again. A request that arrived before anything was answered keeps its time.
//!
//! Not valid where the host would have asked for something else: threads that wait for one flush together
//! on a slow disk had one each on a fast one. [`Validity`] counts what speaks for that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;

use crate::profile::{DiskProfile, ProfileError};
use crate::trace::{Trace, TraceEntry};
use crate::{DiskOperation, DiskReply};

/// A longer latency counts as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Share of flushes at once from which on a replay may differ.
const CONCURRENT_MAX: f64 = 0.05;
/// The number of no request.
const NONE: u32 = u32::MAX;

/// What came out.
pub struct Replayed {
    /// When each request arrived and was answered, in the order of the trace.
    pub entries: Vec<TraceEntry>,
    /// From the first arrival to the last reply, as recorded and as replayed.
    pub recorded_ns: u64,
    /// See above.
    pub replayed_ns: u64,
    /// Latencies of reads, writes and flushes, in ns.
    pub latencies: [Histogram<u64>; 3],
    /// What the model counted.
    pub counters: Vec<(&'static str, u64)>,
    /// What can be said of its worth.
    pub validity: Validity,
}

/// What can be said of a replay's worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Validity {
    /// Flushes in the trace.
    pub flushes: u64,
    /// Those that arrived while something else had not been answered.
    pub concurrent_flushes: u64,
    /// The most requests at once.
    pub depth_max: u64,
}

impl Validity {
    /// One more request arrives, with which so many are under way.
    fn add(&mut self, operation: DiskOperation, depth: usize) {
        self.depth_max = self.depth_max.max(depth as u64);
        if operation == DiskOperation::Flush {
            self.flushes += 1;
            self.concurrent_flushes += u64::from(depth > 1);
        }
    }

    /// Why the figures may not be what the disk would give, if so.
    pub fn doubt(&self) -> Option<String> {
        let share = self.concurrent_flushes as f64 / self.flushes.max(1) as f64;
        (share > CONCURRENT_MAX).then(|| {
            format!(
                "{} of {} flushes came while other requests were under way: threads that wait for flushes \
                 share them differently on a slower disk, and the real times can differ by half. \
                 Run the workload on the emulated disk instead",
                self.concurrent_flushes, self.flushes
            )
        })
    }
}

/// Replays a trace on a profile's disk.
///
/// Errors: the traced device does not fit on the disk.
pub fn replay(trace: &Trace, profile: &DiskProfile) -> Result<Replayed, ProfileError> {
    let (mut disk, placed) = profile.disk(trace.device_bytes)?;
    let count = trace.entries.len();
    // For each request the one before whose reply it waited, and the host's time after it.
    let (waits_for, validity) = dependencies(&trace.entries);
    // Those that wait for one request: the last of them, and of each the one before it.
    let (mut last_follower, mut follower_before) = (vec![NONE; count], vec![NONE; count]);
    // Requests by the virtual time at which they arrive.
    let mut ready: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let first_ns = trace.entries.first().map_or(0, |entry| entry.arrived_ns);
    for (number, on) in waits_for.iter().enumerate() {
        match on {
            Some(before) => {
                let last = &mut last_follower[*before as usize];
                follower_before[number] = std::mem::replace(last, number as u32);
            }
            None => {
                ready.push(Reverse((trace.entries[number].arrived_ns - first_ns, number as u32)));
            }
        }
    }
    let mut entries = trace.entries.clone();
    let latency = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("sound bounds");
    let mut latencies = [latency(), latency(), latency()];
    let mut replayed_ns = 0;
    let mut done = 0;
    while done < count {
        while let Some(DiskReply { id, at_ns }) = disk.reply() {
            done += 1;
            let entry = &mut entries[id as usize];
            entry.replied_ns = at_ns;
            replayed_ns = replayed_ns.max(at_ns);
            let which = match entry.request.operation {
                DiskOperation::Read => Some(0),
                DiskOperation::Write => Some(1),
                DiskOperation::Flush => Some(2),
                DiskOperation::Discard => None,
            };
            if let Some(which) = which {
                latencies[which].saturating_record((at_ns - entry.arrived_ns).max(1));
            }
            let replied = trace.entries[id as usize].replied_ns;
            let mut follower = last_follower[id as usize];
            while follower != NONE {
                let host_ns = trace.entries[follower as usize].arrived_ns - replied;
                ready.push(Reverse((at_ns + host_ns, follower)));
                follower = follower_before[follower as usize];
            }
        }
        let arrival = ready.peek().map(|one| one.0.0);
        match (arrival, disk.next_event()) {
            (Some(arrival), due) if due.is_none_or(|due| due >= arrival) => {
                let Reverse((at_ns, number)) = ready.pop().expect("it was seen");
                entries[number as usize].arrived_ns = at_ns;
                disk.arrive(
                    at_ns,
                    u64::from(number),
                    placed.place(entries[number as usize].request),
                );
            }
            (_, Some(due)) => disk.advance(due),
            (_, None) => break,
        }
    }
    assert!(done == count, "the disk answers everything: {done} of {count}");
    let recorded_ns = trace
        .entries
        .iter()
        .map(|entry| entry.replied_ns)
        .max()
        .unwrap_or(0)
        .saturating_sub(first_ns);
    let counters = disk.counters();
    Ok(Replayed { entries, recorded_ns, replayed_ns, latencies, counters, validity })
}

/// The request whose reply was the last before each arrival. One that arrived with it or later cannot be
/// waited for, even at the same instant.
fn dependencies(entries: &[TraceEntry]) -> (Vec<Option<u32>>, Validity) {
    let mut validity = Validity::default();
    let mut unanswered = BinaryHeap::<Reverse<(u64, u32)>>::new();
    let mut last: Option<(u64, u32)> = None;
    let find = |(number, entry): (usize, &TraceEntry)| {
        while let Some(&Reverse(reply)) = unanswered.peek()
            && reply.0 <= entry.arrived_ns
        {
            unanswered.pop();
            last = last.max(Some(reply));
        }
        unanswered.push(Reverse((entry.replied_ns, number as u32)));
        validity.add(entry.request.operation, unanswered.len());
        last.map(|(_, before)| before)
    };
    let waits_for = entries.iter().enumerate().map(find).collect();
    (waits_for, validity)
}
