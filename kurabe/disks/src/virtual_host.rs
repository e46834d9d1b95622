//! A host in virtual time: so many threads, each of which waits for its reply and asks again.

use std::collections::BinaryHeap;
use std::{cmp::Reverse, ops::Range};

use crate::profile::Placed;
use crate::random::Random;
use crate::{DiskKind, DiskModel, DiskProfile, DiskReply, ModelRequest, ProfileError};

/// A disk and the time.
pub struct VirtualHost {
    pub disk: Box<dyn DiskModel>,
    placed: Placed,
    pub now_ns: u64,
    next_id: u64,
}

/// Arrival and reply.
pub type RequestTimes = Range<u64>;

/// How long it took, in ms.
pub fn ms(times: &RequestTimes) -> f64 {
    (times.end - times.start) as f64 / 1e6
}

/// So many of all took no longer, in ms.
pub fn quantile(times: &[RequestTimes], share: f64) -> f64 {
    let mut all: Vec<f64> = times.iter().map(ms).collect();
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * share).round() as usize]
}

/// The mean, in ms.
pub fn mean(times: &[RequestTimes]) -> f64 {
    times.iter().map(ms).sum::<f64>() / times.len() as f64
}

impl VirtualHost {
    /// With a slice of a bundled profile's disk. Panics where there is none.
    pub fn new(kind: DiskKind, words: &str, length: u64) -> VirtualHost {
        let profile = DiskProfile::read(kind, words).expect("a profile");
        VirtualHost::of(&profile, length).expect("it fits")
    }

    /// With a slice of a profile's disk.
    ///
    /// Errors: the slice is larger than the disk.
    pub fn of(profile: &DiskProfile, length: u64) -> Result<VirtualHost, ProfileError> {
        let (disk, placed) = profile.disk(length)?;
        Ok(VirtualHost { disk, placed, now_ns: 0, next_id: 0 })
    }

    /// Carries requests out, `depth` at a time, with so much time of the host between a reply and
    /// the next request.
    pub fn run(
        &mut self,
        depth: usize,
        think_ns: u64,
        requests: impl IntoIterator<Item = ModelRequest>,
    ) -> Vec<RequestTimes> {
        let (mut requests, mut free) = (requests.into_iter(), BinaryHeap::new());
        let first = self.next_id;
        let mut times: Vec<RequestTimes> = Vec::new();
        for _ in 0..depth {
            free.push(Reverse(self.now_ns + think_ns));
        }
        let (mut outstanding, mut is_over) = (0, false);
        loop {
            while let Some(DiskReply { id, at_ns }) = self.disk.reply() {
                let one: &mut RequestTimes = &mut times[(id - first) as usize];
                assert!(at_ns >= one.start, "a reply before its request");
                one.end = at_ns;
                outstanding -= 1;
                free.push(Reverse(at_ns + think_ns));
            }
            let next = if is_over { None } else { free.peek().map(|at| at.0) };
            match (next, self.disk.next_event()) {
                (Some(at), due) if due.is_none_or(|due| due >= at) => {
                    free.pop();
                    let Some(request) = requests.next() else {
                        is_over = true;
                        continue;
                    };
                    times.push(at..u64::MAX);
                    self.disk.arrive(at, self.next_id, self.placed.place(request));
                    self.next_id += 1;
                    outstanding += 1;
                }
                (None, _) if outstanding == 0 => break,
                (_, Some(due)) => self.disk.advance(due),
                (_, None) => panic!("the disk owes {outstanding} replies"),
            }
        }
        self.now_ns = times.iter().map(|one| one.end).max().unwrap_or(self.now_ns);
        times
    }
}

/// `count` places of `length` bytes on a device, anywhere.
pub fn scattered(seed: u64, count: usize, size: u64, length: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.below(size / length) * length).collect()
}
