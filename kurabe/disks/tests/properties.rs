//! What holds for every profile and any requests.

use disks::random::Random;
use disks::virtual_host::{RequestTimes, VirtualHost, mean};
use disks::{DiskKind, DiskOperation, DiskProfile, ModelRequest, profile};

const LENGTH: u64 = 1 << 30;

fn any(seed: u64, count: usize) -> Vec<ModelRequest> {
    let mut random = Random::new(seed);
    let mut at = 0;
    (0..count + 8)
        .map(|_| {
            let length = [512, 4096, 65_536, 1 << 20][random.below(4) as usize];
            if random.below(3) > 0 {
                at = random.below((LENGTH - length) / 512) * 512;
            }
            let offset = at.min(LENGTH - length);
            at = offset + length;
            match random.below(16) {
                0 => ModelRequest::flush(),
                1 => ModelRequest::discard(offset, length),
                2..8 => ModelRequest::read(offset, length),
                _ => ModelRequest::write(offset, length),
            }
        })
        .skip(8)
        .collect()
}

fn run(profile: &DiskProfile, seed: u64, depth: usize) -> (Vec<RequestTimes>, VirtualHost) {
    let words = format!("{},seed={seed}", profile.name);
    let mut host = VirtualHost::new(profile.kind, &words, LENGTH);
    let times = host.run(depth, 20_000, any(seed, 3000));
    (times, host)
}

#[test]
fn every_request_is_answered_after_it_came_and_the_same_again() {
    for profile in profile::bundled() {
        for (seed, depth) in [(1, 1), (2, 4), (3, 40)] {
            let (times, mut host) = run(&profile, seed, depth);
            assert_eq!(times.len(), 3000);
            assert!(times.iter().all(|one| one.end >= one.start && one.end < u64::MAX));
            assert_eq!(run(&profile, seed, depth).0, times, "{} seed {seed}", profile.name);
            // After a flush nothing would be lost with the power.
            host.run(1, 0, [ModelRequest::flush()]);
            host.disk.advance(host.now_ns);
            assert_eq!(host.disk.volatile_bytes(), 0, "{} seed {seed}", profile.name);
        }
    }
}

/// The canary: with another seed a disk that has something random differs.
#[test]
fn another_seed_gives_other_times() {
    let run = |seed| {
        let mut host = VirtualHost::new(DiskKind::Cloud, &format!("gp3,seed={seed}"), LENGTH);
        host.run(1, 0, any(1, 100))
    };
    assert_ne!(run(1), run(2));
}

#[test]
fn no_more_passes_the_interface_than_it_can() {
    for profile in profile::bundled().filter(|profile| profile.kind != DiskKind::Cloud) {
        let requests = any(5, 3000);
        let mut host = VirtualHost::new(profile.kind, &profile.name, LENGTH);
        host.run(32, 0, requests.clone());
        let moves = |one: &&ModelRequest| {
            matches!(one.operation, DiskOperation::Read | DiskOperation::Write)
        };
        let bytes: u64 = requests.iter().filter(moves).map(|one| one.length).sum();
        let rate = bytes as f64 * 1e3 / host.now_ns as f64;
        let limit = profile.parameters.get("interface_mb_s");
        assert!(rate <= limit * 1.001, "{}: {rate} MB/s of {limit}", profile.name);
    }
}

#[test]
fn without_a_cache_each_write_waits_for_the_platter() {
    let writes =
        || (0..200).map(|at| ModelRequest::write(at * 7_340_032 % LENGTH / 4096 * 4096, 4096));
    let mut cached = VirtualHost::new(DiskKind::Hard, "7200rpm", LENGTH);
    let mut plain = VirtualHost::new(DiskKind::Hard, "7200rpm,write_cache_mib=0", LENGTH);
    assert!(mean(&cached.run(1, 0, writes())) < 1.0);
    assert!(mean(&plain.run(1, 0, writes())) > 3.0);
    assert_eq!(plain.disk.volatile_bytes(), 0);
}

/// A write of a part of a physical sector costs a revolution more: it is read first.
#[test]
fn parts_of_sectors_are_read_before_they_are_written() {
    let durable = |length: u64| {
        let mut host = VirtualHost::new(DiskKind::Hard, "7200rpm", LENGTH);
        let mut all = 0.0;
        for at in 0..100_u64 {
            let offset = at * 9_437_184 % (LENGTH - 4096) / 4096 * 4096;
            let begin = host.now_ns;
            host.run(1, 0, [ModelRequest::write(offset, length), ModelRequest::flush()]);
            all += (host.now_ns - begin) as f64 / 1e6 / 100.0;
        }
        all
    };
    let (whole, part) = (durable(4096), durable(512));
    let revolution = 60e3 / 7200.0;
    assert!(part > whole + 0.5 * revolution, "{whole} {part}");
}

#[test]
fn a_shingled_disk_slows_down_when_its_cache_is_full() {
    let words = "shingled,shingle_cache_gib=0.0625,shingle_band_mib=16,destage_idle_ms=60000";
    let mut host = VirtualHost::new(DiskKind::Hard, words, LENGTH);
    let mut random = Random::new(9);
    let mut write = |host: &mut VirtualHost| {
        let writes = (0..150)
            .map(|_| ModelRequest::write(random.below(LENGTH / 131_072) * 131_072, 131_072));
        let times = host.run(1, 0, writes.collect::<Vec<_>>());
        (times[149].end - times[0].start) as f64 / 150e6
    };
    let fresh = write(&mut host);
    let full: f64 = (0..12).map(|_| write(&mut host)).fold(0.0, f64::max);
    assert!(full > 4.0 * fresh, "{fresh} ms, then {full} ms");
    // In order it needs no cleaning.
    let mut host = VirtualHost::new(DiskKind::Hard, words, LENGTH);
    let times = host.run(1, 0, (0..1000).map(|at| ModelRequest::write(at << 20, 1 << 20)));
    let cleaned = host.disk.counters().into_iter().find(|(name, _)| *name == "bands cleaned");
    assert_eq!(cleaned, Some(("bands cleaned", 0)));
    assert!(mean(&times) < 10.0);
}

#[test]
fn flash_slows_down_when_the_quick_part_is_used_up_and_when_it_must_clean() {
    let words = "sata,fast_mib=256,spare=0.07";
    let mut host = VirtualHost::new(DiskKind::Flash, words, LENGTH);
    let mut rate = |requests: Vec<ModelRequest>| {
        let began = host.now_ns;
        let bytes: u64 = requests.iter().map(|one| one.length).sum();
        host.run(8, 0, requests);
        bytes as f64 * 1e3 / (host.now_ns - began) as f64
    };
    let part =
        |from: u64, to: u64| (from..to).map(|at| ModelRequest::write(at << 20, 1 << 20)).collect();
    let quick = rate(part(0, 200));
    let slow = rate(part(300, 900));
    assert!(quick > 1.05 * slow, "{quick} {slow}");
    let mut random = Random::new(5);
    let random: Vec<_> = (0..400_000)
        .map(|_| ModelRequest::write(random.below(LENGTH / 4096) * 4096, 4096))
        .collect();
    let cleaning = rate(random);
    assert!(cleaning < 0.7 * slow, "{slow} {cleaning}");
    let counters: std::collections::BTreeMap<_, _> = host.disk.counters().into_iter().collect();
    let (host_units, copied) =
        (counters["units written by the host"], counters["units copied by cleaning"]);
    let amplification = (host_units + copied) as f64 / host_units as f64;
    eprintln!(
        "quick {quick:.0}, slow {slow:.0}, cleaning {cleaning:.0} MB/s, amplification {amplification:.2}"
    );
    assert!(amplification > 1.5);
    // What was discarded need not be copied.
    host.run(1, 0, [ModelRequest::discard(0, LENGTH)]);
    let before = host.disk.counters()[2].1;
    host.run(8, 0, (0..1000).map(|at| ModelRequest::write(at << 20, 1 << 20)));
    assert!(host.disk.counters()[2].1 - before < copied / 20);
}

#[test]
fn a_volume_bursts_until_its_credits_are_gone() {
    let mut host =
        VirtualHost::new(DiskKind::Cloud, "gp2,iops_credits=3000,latency_spread=0", LENGTH);
    let reads = |count| (0..count).map(|at| ModelRequest::read(at * 4096 % LENGTH, 4096));
    let mut rate = |count: u64| {
        let began = host.now_ns;
        host.run(32, 0, reads(count));
        count as f64 * 1e9 / (host.now_ns - began) as f64
    };
    let (burst, after) = (rate(2000), (rate(1500), rate(1000)).1);
    assert!((2800.0..3100.0).contains(&burst), "{burst}");
    assert!((95.0..110.0).contains(&after), "{after}");
}

/// A flush of a hard disk waits for all that came before it, and what comes after it waits for the flush.
#[test]
fn a_flush_divides_what_came_before_it_from_what_comes_after() {
    let mut host = VirtualHost::new(DiskKind::Hard, "7200rpm", LENGTH);
    let mut random = Random::new(3);
    let requests: Vec<_> = (0..400)
        .map(|number| match (number % 20, random.below(LENGTH / 4096) * 4096) {
            (19, _) => ModelRequest::flush(),
            (0..10, at) => ModelRequest::write(at, 4096),
            (_, at) => ModelRequest::read(at, 4096),
        })
        .collect();
    let times = host.run(16, 0, requests.clone());
    for (at, flush) in times.iter().enumerate().filter(|(at, _)| at % 20 == 19) {
        assert!(times[..at].iter().all(|one| one.end <= flush.end), "{at}");
        assert!(times[at + 1..].iter().all(|one| one.end >= flush.end), "{at}");
    }
}

/// The head prefers what is near, but not for longer than the age limit.
#[test]
fn a_far_request_waits_for_the_age_limit_and_not_much_longer() {
    let waited_ms = |age_limit_ms: u32| {
        let words = format!("7200rpm,age_limit_ms={age_limit_ms},read_ahead_mib=0,extent=100%");
        let mut host = VirtualHost::new(DiskKind::Hard, &words, LENGTH);
        let mut random = Random::new(4);
        let mut near = |_| ModelRequest::read(random.below(2048) * 4096, 4096);
        let mut all: Vec<_> = (0..600).map(&mut near).collect();
        all[20] = ModelRequest::read(LENGTH - 4096, 4096);
        let times = host.run(16, 0, all);
        (times[20].end - times[20].start) as f64 / 1e6
    };
    let (limited, free) = (waited_ms(100), waited_ms(10_000));
    assert!((50.0..160.0).contains(&limited), "{limited} ms");
    assert!(free > 2.0 * limited, "{limited} ms, {free} ms without a limit");
}

/// Sixteen earlier ranges are read again without the head, and a seventeenth takes the place of the first.
#[test]
fn as_many_earlier_ranges_stay_readable_as_documented() {
    let again_ms = |ranges: u64| {
        let mut host = VirtualHost::new(DiskKind::Hard, "7200rpm,read_ahead_mib=0", LENGTH);
        let read = |at: u64| ModelRequest::read(at * (40 << 20), 4096);
        // The last one is what the disk is still reading on from.
        host.run(1, 0, (0..=ranges).map(read));
        mean(&host.run(1, 0, [read(0)]))
    };
    let (kept, lost) = (again_ms(16), again_ms(17));
    assert!(kept < 0.5 && lost > 1.0, "{kept} ms, {lost} ms");
}

#[test]
fn a_volume_has_the_bytes_per_second_and_the_size_of_an_operation_that_it_pays_for() {
    let rate = |words: &str, length: u64, count: u64| {
        let mut host = VirtualHost::new(DiskKind::Cloud, words, LENGTH);
        host.run(32, 0, (0..count).map(|at| ModelRequest::read(at * length % LENGTH, length)));
        let began = host.now_ns;
        host.run(32, 0, (0..count).map(|at| ModelRequest::read(at * length % LENGTH, length)));
        (count * length) as f64 * 1e3 / (host.now_ns - began) as f64
    };
    let gp3 = rate("gp3", 1 << 20, 1000);
    assert!((127.0..133.0).contains(&gp3), "{gp3} MB/s of 131.1");
    // 100 operations per second of 256 KiB each, without credits; of 4 KiB as many.
    let large = rate("gp2,iops_credits=1,iops_burst=100", 1 << 20, 200);
    let small = rate("gp2,iops_credits=1,iops_burst=100", 4096, 500);
    assert!((25.0..27.5).contains(&large), "{large} MB/s of 26.2");
    assert!((0.39..0.43).contains(&small), "{small} MB/s of 0.41");
}

#[test]
fn a_protected_buffer_need_not_be_waited_for() {
    let flush_ms = |words: &str| {
        let mut host = VirtualHost::new(DiskKind::Flash, words, LENGTH);
        host.run(1, 0, (0..64).map(|at| ModelRequest::write(at << 20, 4096)));
        let volatile = host.disk.volatile_bytes();
        (mean(&host.run(1, 0, [ModelRequest::flush()])), volatile > 0)
    };
    let (protected, has_lost) = flush_ms("nvme,power_loss_protection=1");
    assert!((protected - 0.3).abs() < 0.001 && !has_lost, "{protected} ms");
    let (plain, has_lost) = flush_ms("nvme");
    assert!(plain > 0.9 && has_lost, "{plain} ms");
}

/// What the sources in the profiles of flash say that they are fitted to.
#[test]
fn flash_has_the_rates_of_its_data_sheets() {
    let run = |words: &str, depth: usize, requests: Vec<ModelRequest>| {
        let mut host = VirtualHost::new(DiskKind::Flash, words, LENGTH);
        let bytes: u64 = requests.iter().map(|one| one.length).sum();
        let times = host.run(depth, 0, requests);
        (bytes as f64 * 1e3 / host.now_ns as f64, mean(&times))
    };
    let mut random = Random::new(6);
    let mut at = || random.below(LENGTH / 4096) * 4096;
    let reads: Vec<_> = (0..2000).map(|_| ModelRequest::read(at(), 4096)).collect();
    let writes: Vec<_> = (0..2000).map(|_| ModelRequest::write(at(), 4096)).collect();
    let all = |write| {
        let one = if write { ModelRequest::write } else { ModelRequest::read };
        (0..1000).map(|at| one(at << 20, 1 << 20)).collect::<Vec<_>>()
    };
    for (words, read_ms, write_ms, read_mb_s, write_mb_s, later_mb_s) in [
        ("nvme", 0.06, 0.015, 7000.0, 5500.0, Some(2000.0)),
        ("sata", 0.1, 0.03, 560.0, 560.0, None),
    ] {
        let mut wrong = Vec::new();
        let mut near = |what: &str, found: f64, published: f64| {
            if (found / published - 1.0).abs() > 0.1 {
                wrong.push(format!("{words}, {what}: {found:.4}, published {published}"));
            }
        };
        near("4K read in ms", run(words, 1, reads.clone()).1, read_ms);
        near("4K write in ms", run(words, 1, writes.clone()).1, write_ms);
        near("read in MB/s", run(words, 8, all(false)).0, read_mb_s);
        near("write in MB/s", run(words, 8, all(true)).0, write_mb_s);
        if let Some(later) = later_mb_s {
            near("later write in MB/s", run(&format!("{words},fast_mib=0"), 8, all(true)).0, later);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
