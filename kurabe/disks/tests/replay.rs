//! A recorded trace on other disks.

use disks::random::Random;
use disks::trace::{Trace, TraceEntry};
use disks::virtual_host::VirtualHost;
use disks::{DiskKind, DiskProfile, ModelRequest, replay::replay};

const LENGTH: u64 = 1 << 30;

/// A trace of `depth` threads on a disk.
fn recorded(kind: DiskKind, words: &str, depth: usize, count: usize, flushes: bool) -> Trace {
    let mut host = VirtualHost::new(kind, words, LENGTH);
    let mut random = Random::new(11);
    let requests: Vec<_> = (0..count)
        .map(|at| match at % 3 {
            2 if flushes => ModelRequest::flush(),
            0 => ModelRequest::read(random.below(LENGTH / 4096) * 4096, 4096),
            _ => ModelRequest::write(random.below(LENGTH / 4096) * 4096, 4096),
        })
        .collect();
    let times = host.run(depth, 50_000, requests.clone());
    let entries = times.iter().zip(requests).map(|(times, request)| TraceEntry {
        arrived_ns: times.start,
        replied_ns: times.end,
        request,
        metadata: false,
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.arrived_ns);
    Trace { device_bytes: LENGTH, entries }
}

fn on(words: &str) -> DiskProfile {
    DiskProfile::read(DiskKind::Hard, words).unwrap()
}

#[test]
fn replay_is_the_same_every_time_and_ends_where_the_recording_did() {
    let trace = recorded(DiskKind::Hard, "7200rpm", 1, 3000, true);
    let once = replay(&trace, &on("7200rpm")).unwrap();
    assert_eq!(once.entries, replay(&trace, &on("7200rpm")).unwrap().entries);
    // On the disk it was recorded on it takes as long as it did.
    let ratio = once.replayed_ns as f64 / once.recorded_ns as f64;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
}

/// What runs on the slow disk, and what was recorded on a quick one and replayed, take equally long.
#[test]
fn a_single_thread_takes_as_long_as_on_the_disk_itself() {
    let quick = recorded(DiskKind::Cloud, "unlimited", 1, 3000, true);
    let slow = recorded(DiskKind::Hard, "st1000dm003", 1, 3000, true);
    let took = slow.entries.iter().map(|entry| entry.replied_ns).max().unwrap();
    let replayed = replay(&quick, &on("st1000dm003")).unwrap();
    let ratio = replayed.replayed_ns as f64 / took as f64;
    eprintln!("replayed {ratio:.3} times as long");
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
    assert_eq!(replayed.validity.doubt(), None);
}

#[test]
fn flushes_of_many_threads_are_doubted() {
    let trace = recorded(DiskKind::Hard, "7200rpm", 16, 3000, true);
    let replayed = replay(&trace, &on("5400rpm")).unwrap();
    assert!(replayed.validity.doubt().is_some_and(|doubt| doubt.contains("emulated disk instead")));
    assert_eq!(replayed.validity.depth_max, 16);
}

#[test]
fn a_device_that_does_not_fit_is_refused() {
    let mut trace = recorded(DiskKind::Hard, "7200rpm", 1, 10, false);
    trace.device_bytes = 2 << 40;
    assert!(replay(&trace, &on("st1000dm003")).is_err());
}
