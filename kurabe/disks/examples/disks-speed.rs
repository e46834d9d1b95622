//! How many requests per second of one processor a trace takes and a replay carries out
//! (docs/reference/disk-models.md):
//!
//!     cargo run --release -p disks --example disks-speed

use std::hint::black_box;

use disks::random::Random;
use disks::replay::replay;
use disks::trace::{Trace, TraceEntry, TraceRecorder};
use disks::virtual_host::VirtualHost;
use disks::{DiskKind, DiskProfile, ModelRequest};
use rustix::time::{ClockId, clock_gettime};

const COUNT: usize = 1_000_000;
const DEVICE_BYTES: u64 = 8 << 30;

/// A trace of a disk that answers at once: `depth` threads, in order or anywhere, of which every `flushes`th request is
/// a flush.
fn recorded(depth: usize, in_order: bool, writes: u64, flushes: usize) -> Trace {
    let mut host = VirtualHost::new(DiskKind::Cloud, "unlimited", DEVICE_BYTES);
    let mut random = Random::new(1);
    let blocks = DEVICE_BYTES / 4096;
    let mut one = |at: usize| {
        let block = if in_order { at as u64 % blocks } else { random.below(blocks) };
        if flushes > 0 && at % flushes == flushes - 1 {
            ModelRequest::flush()
        } else if random.below(100) < writes {
            ModelRequest::write(block * 4096, 4096)
        } else {
            ModelRequest::read(block * 4096, 4096)
        }
    };
    let requests: Vec<ModelRequest> = (0..COUNT).map(&mut one).collect();
    let times = host.run(depth, 5000, requests.clone());
    let entry = |(times, request): (&std::ops::Range<u64>, ModelRequest)| TraceEntry {
        arrived_ns: times.start,
        replied_ns: times.end,
        request,
        metadata: false,
    };
    let mut entries: Vec<TraceEntry> = times.iter().zip(requests).map(entry).collect();
    entries.sort_by_key(|entry| (entry.arrived_ns, entry.replied_ns));
    Trace { device_bytes: DEVICE_BYTES, entries }
}

/// Seconds of the processor that this thread has had: what other programs take does not count.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn per_second(begun: f64) -> f64 {
    COUNT as f64 / (seconds() - begun)
}

fn main() {
    let traces = [
        ("4 KiB reads anywhere, one thread", recorded(1, false, 0, 0)),
        ("4 KiB reads anywhere, 32 threads", recorded(32, false, 0, 0)),
        ("4 KiB reads in order, one thread", recorded(1, true, 0, 0)),
        ("4 KiB writes anywhere, a flush after every 15", recorded(1, false, 100, 16)),
        ("4 KiB reads and writes anywhere, 32 threads", recorded(32, false, 50, 0)),
    ];
    for (name, trace) in &traces {
        let begun = seconds();
        let mut recorder = TraceRecorder::new(DEVICE_BYTES);
        recorder.keep();
        trace.entries.iter().for_each(|entry| recorder.record(*entry));
        black_box(recorder.picture());
        println!("{name}: {:.0} recorded per second", per_second(begun));
        for (kind, words) in
            [(DiskKind::Hard, "st1000dm003"), (DiskKind::Flash, "nvme"), (DiskKind::Cloud, "gp3")]
        {
            let profile = DiskProfile::read(kind, words).expect("a bundled profile");
            let begun = seconds();
            let replayed = replay(trace, &profile).expect("it fits");
            let rate = per_second(begun);
            println!("  {words}: {rate:.0} replayed per second ({} ns)", replayed.replayed_ns);
        }
    }
}
