//! What the profile st1000dm003 gives, in virtual time, against what was measured on the disk or is
//! published of it. Several parameters were fitted to these same figures, so this shows a fit, and no
//! validation. `cargo test -p disks --test calibration -- --nocapture` prints every figure.

use disks::virtual_host::{VirtualHost, mean, quantile, scattered};
use disks::{DiskKind, ModelRequest};

const WHOLE: u64 = 1_000_204_886_016 / (1 << 20) * (1 << 20);
const MIB: u64 = 1 << 20;

fn disk(length: u64) -> VirtualHost {
    VirtualHost::new(DiskKind::Hard, "st1000dm003", length)
}

#[track_caller]
fn assert_near(what: &str, value: f64, published: f64, percent: f64) {
    let off = (value / published - 1.0) * 100.0;
    eprintln!("{what}: {value:.2}, published {published} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{what}: {value} is {off:.1} % off {published}");
}

fn rate(host: &mut VirtualHost, from: u64, depth: usize) -> f64 {
    const COUNT: u64 = 2000;
    let began = host.now_ns;
    host.run(depth, 10_000, (0..COUNT).map(|at| ModelRequest::read(from + at * MIB, MIB)));
    (COUNT * MIB) as f64 * 1e3 / (host.now_ns - began) as f64
}

#[test]
fn sequential_reads() {
    for depth in [1, 4] {
        let outer = rate(&mut disk(WHOLE), 0, depth);
        assert_near(&format!("outer rate in MB/s at depth {depth}"), outer, 210.0, 3.0);
        let inner = rate(&mut disk(WHOLE), WHOLE - 2001 * MIB, depth);
        assert_near(&format!("inner rate in MB/s at depth {depth}"), inner, 102.0, 3.0);
    }
}

#[test]
fn random_reads() {
    let reads = |seed| {
        scattered(seed, 4000, WHOLE, 4096).into_iter().map(|at| ModelRequest::read(at, 4096))
    };
    let mut host = disk(WHOLE);
    let one = mean(&host.run(1, 10_000, reads(1)));
    assert_near("random 4K read in ms", one, 12.7, 5.0);
    let before = host.now_ns;
    host.run(32, 10_000, reads(2));
    let deep = (host.now_ns - before) as f64 / 4e3 / 1e6;
    eprintln!("at depth 32 in ms each: {deep:.2}, {:.2} times as many", one / deep);
    assert!(one / deep > 1.5);
}

/// Writes anywhere, and a flush.
fn flush_after(count: usize) -> f64 {
    let mut host = disk(WHOLE);
    let flushes = (1..=40).map(|seed| {
        let places = scattered(seed, count, WHOLE, 4096);
        host.run(1, 10_000, places.into_iter().map(|at| ModelRequest::write(at, 4096)));
        let times = host.run(1, 0, [ModelRequest::flush()]);
        disks::virtual_host::ms(&times[0])
    });
    flushes.sum::<f64>() / 40.0
}

#[test]
fn flushes() {
    assert_near("flush after 8 scattered writes in ms", flush_after(8), 127.0, 20.0);
    assert_near("flush after 64 scattered writes in ms", flush_after(64), 630.0, 20.0);
}

/// What the host needs for a put or a get besides the disk.
const HOST_NS: u64 = 40_000;

#[test]
fn puts() {
    let mut host = disk(8 << 30);
    let writes = (0..8000).map(|at| ModelRequest::write(at * 256 * 1024, 256 * 1024));
    let times = host.run(1, HOST_NS, writes);
    assert_near("put of 256 KiB in ms, median", quantile(&times, 0.5), 1.06, 10.0);
    eprintln!(
        "  mean {:.2} ms, {:.0} MB/s",
        mean(&times),
        256.0 * 1.024 / mean(&times) / 1e3 * 1e3
    );
    let mut host = disk(8 << 30);
    // Its four requests of 1 MiB arrive together.
    let puts: Vec<_> = (0..500_u64)
        .map(|put| {
            let requests = (0..4).map(|part| ModelRequest::write((put * 4 + part) * MIB, MIB));
            let times = host.run(4, 0, requests);
            host.now_ns += HOST_NS;
            times[0].start..times.iter().map(|one| one.end).max().unwrap()
        })
        .collect();
    assert_near("put of 4 MiB in ms, median", quantile(&puts, 0.5), 23.4, 10.0);
}

#[test]
fn gets() {
    let mut host = disk(8 << 30);
    let reads = scattered(3, 4000, 8 << 30, MIB).into_iter().map(|at| ModelRequest::read(at, MIB));
    let times = host.run(1, HOST_NS, reads);
    assert_near("get of 1 MiB in ms, median", quantile(&times, 0.5), 12.5, 10.0);
    assert_near("get of 1 MiB in ms, p90", quantile(&times, 0.9), 17.6, 10.0);
}
