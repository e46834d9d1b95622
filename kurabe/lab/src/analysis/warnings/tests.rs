//! What is warned of in records made by hand.

use super::super::tests::{STEADY, analysed, is_xfs, of, only, steady};
use super::super::*;
use crate::contender::Known;
use crate::fixture::{fail, plan, records, run_of};
use crate::record::{IdleWait, Lateness, ModelledDisk, TIME_METRIC};
use crate::warning::{Warning, WarningKind};
use crate::workload::{Metric, WorkloadReport};

/// The warnings of the steady records after `change` was done to each of ext4's or xfs's.
fn warnings_after(change: impl Fn(&mut Record)) -> Vec<Warning> {
    let (plan, mut records) = steady();
    records.iter_mut().for_each(change);
    analysed(&plan, &records).warnings
}

#[test]
fn short_trials_are_warned_of() {
    let plan = plan(&["ext4", "xfs"], 3);
    let at = |time_ms: u64| {
        let times = [time_ms, time_ms + 1, time_ms + 2];
        analysed(&plan, &records(&plan, &[&[500, 501, 502], &times])).warnings
    };
    assert_eq!(at(50), []);
    one_that_says(
        &at(48),
        WarningKind::ShortTrial,
        &["xfs: ", "only 49.0 ms", "give the workload more to do"],
    );
}

#[test]
fn what_a_tool_counted_for_a_moment_only_is_warned_of() {
    let plan = plan(&["ext4", "xfs"], 3);
    let counted = |ms: u64| {
        let mut all = records(&plan, &[&[500, 501, 502], &[500, 501, 502]]);
        for record in &mut all {
            let is_xfs = record.contender.label == "xfs";
            let counted_ns = Some(if is_xfs { ms } else { 3_000 } * 1_000_000);
            record.load = Some(WorkloadReport { counted_ns, ..WorkloadReport::default() });
        }
        analysed(&plan, &all).warnings
    };
    assert_eq!(counted(200), []);
    one_that_says(&counted(12), WarningKind::ShortTrial, &["xfs: ", "only 12 ms", "at least 1 s"]);
}

#[test]
fn a_slow_first_block_is_warned_of_and_a_failed_one_is_not() {
    let plan = plan(&["ext4", "xfs"], 6);
    let slow_first: &[u64] = &[3000, 1010, 990, 1004, 1020, 985];
    let mut all = records(&plan, &[slow_first, STEADY[1]]);
    let slow = |found: &[Warning]| -> Vec<String> {
        let of_kind = found.iter().filter(|warning| warning.kind == WarningKind::SlowFirstBlock);
        of_kind.map(|warning| warning.contender.clone().unwrap()).collect()
    };
    let warnings = analysed(&plan, &all).warnings;
    assert_eq!(slow(&warnings), ["ext4"]);
    assert!(warnings.iter().any(|warning| warning.to_string().contains("--warmup 1")));
    // The slow trial is now in the second block, and the first one failed: it is no first block.
    let slow_second: &[u64] = &[1000, 3000, 1010, 990, 1004, 1020];
    all = records(&plan, &[slow_second, STEADY[1]]);
    fail(&mut all[0]);
    assert_eq!(slow(&analysed(&plan, &all).warnings), [""; 0]);
}

#[test]
fn drift_is_warned_of_in_either_direction() {
    let plan = plan(&["ext4", "xfs"], 8);
    let (rising, falling) =
        ([100, 104, 108, 112, 116, 120, 124, 128], [228, 224, 220, 216, 212, 208, 204, 200]);
    let found = analysed(&plan, &records(&plan, &[&rising, &falling])).warnings;
    let changes: Vec<(String, bool)> = found
        .iter()
        .filter(|warning| warning.kind == WarningKind::Drift)
        .map(|warning| (warning.contender.clone().unwrap(), warning.text.contains("rose by 28 %")))
        .collect();
    assert_eq!(changes, [("ext4".into(), true), ("xfs".into(), false)]);
    assert!(found.iter().any(|warning| warning.text.ends_with("and repeat")), "{found:?}");
}

/// What is said of ext4 when the compared metric had these values, next to a steady baseline.
fn texts_of(unit: Unit, values: &[f64; 8]) -> Vec<String> {
    let plan = plan(&["ext4", "xfs"], 8);
    let name = if unit == Unit::Nanoseconds { TIME_METRIC } else { "write bandwidth" };
    let mut all = records(&plan, &[&[1000; 8], &[1000; 8]]);
    for record in all.iter_mut() {
        let value = if is_xfs(record) { 1e9 } else { 1e7 * values[record.block as usize] };
        let metrics = vec![Metric::new(name, value, unit)];
        record.load = Some(WorkloadReport { metrics, ..Default::default() });
    }
    analysed(&plan, &all).warnings.iter().map(Warning::to_string).collect()
}

/// Whether some text has all of these words.
fn one_says(texts: &[String], words: &[&str]) -> bool {
    texts.iter().any(|text| words.iter().all(|word| text.contains(word)))
}

#[test]
fn warnings_know_whether_more_of_the_figure_is_better() {
    let large_first = [200.0, 100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0];
    let small_first = [50.0, 100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0];
    let (time, rate) = (Unit::Nanoseconds, Unit::BytesPerSecond);
    let rate_words = |ratio: &'static str| ["'write bandwidth'", ratio];
    for (unit, values, throughput, metric) in [
        (time, &large_first, "slower", ["time", "2.00 times"]),
        (time, &small_first, "faster", ["time", "0.50 times"]),
        (rate, &large_first, "faster", rate_words("2.00 times")),
        (rate, &small_first, "slower", rate_words("0.50 times")),
    ] {
        let texts = texts_of(unit, values);
        let first = format!("the first round was {throughput} than the others");
        assert!(one_says(&texts, &[&first, metric[0], metric[1], "--warmup 1"]), "{texts:?}");
        let outlier = format!("{} the median: {throughput}", metric[1]);
        assert!(one_says(&texts, &["outliers", metric[0], "round 1", &outlier]), "{texts:?}");
        assert_eq!(one_says(&texts, &["flash cache"]), throughput == "faster", "{texts:?}");
        assert!(!one_says(&texts, &["as long"]), "{texts:?}");
    }
    let falling = [135.0, 130.0, 125.0, 120.0, 115.0, 110.0, 105.0, 100.0];
    let mut rising = falling;
    rising.reverse();
    for (unit, values, words) in [
        (time, &falling, ["ext4: time fell by", "(faster)"]),
        (time, &rising, ["ext4: time rose by", "(slower)"]),
        (rate, &falling, ["ext4: 'write bandwidth' fell by", "(slower)"]),
        (rate, &rising, ["ext4: 'write bandwidth' rose by", "(faster)"]),
    ] {
        let texts = texts_of(unit, values);
        assert!(one_says(&texts, &words) && !one_says(&texts, &["the times"]), "{texts:?}");
    }
}

/// The number of an outlier is that of its block, also when trials before it failed.
#[test]
fn outliers_are_named_by_their_block_and_kept() {
    let plan = plan(&["ext4", "xfs"], 6);
    let mut all = records(&plan, &[&[1000, 1010, 990, 1004, 5000, 985], STEADY[1]]);
    fail(&mut all[2]);
    assert_eq!((all[2].block, is_xfs(&all[2])), (1, false));
    let found = analysed(&plan, &all);
    let of_kind = |one: &&Warning| one.kind == WarningKind::Outliers;
    let outliers: Vec<Warning> = found.warnings.iter().filter(of_kind).cloned().collect();
    let said = ["ext4: ", "in round 5 (5.00 times the median: slower);", "raise --min-rounds"];
    one_that_says(&outliers, WarningKind::Outliers, &said);
    let time = of(&found, "ext4").time.as_ref().unwrap();
    assert_eq!((time.count, time.max), (5, 5e9));
}

#[test]
fn a_shared_device_is_warned_of_and_has_no_amplification() {
    let write = |record: &mut Record| {
        record.command.as_mut().unwrap().storage_written_bytes = Some(1 << 20);
        run_of(record).device.as_mut().unwrap().written_bytes = 3 << 20;
    };
    let (plan, mut records) = steady();
    records.iter_mut().for_each(write);
    records.iter_mut().filter(|record| is_xfs(record)).for_each(|record| {
        record.device_shared = true;
    });
    let found = analysed(&plan, &records);
    one_that_says(&found.warnings, WarningKind::DeviceShared, &["xfs: ", "use --device"]);
    assert_eq!(of(&found, "ext4").cost.write_amplification, Some(3.0));
    assert_eq!(of(&found, "xfs").cost.write_amplification, None);
    assert_eq!(of(&found, "xfs").cost.device_written_bytes, Some((3 << 20) as f64));
}

#[test]
fn a_device_that_stayed_busy_is_warned_of_with_its_cause() {
    let waited = |idle: bool| {
        move |record: &mut Record| {
            if is_xfs(record) && record.block < 2 {
                let cause = Some("ext4lazyinit".into());
                record.idle_wait = Some(IdleWait { waited_ns: 1, idle, cause });
            }
        }
    };
    assert_eq!(warnings_after(waited(true)), []);
    let said = ["xfs: ", "(ext4lazyinit) when 2 of its runs began", "raise --idle-wait"];
    one_that_says(&warnings_after(waited(false)), WarningKind::DeviceBusy, &said);
}

#[test]
fn processes_that_outlived_the_command_are_warned_of() {
    let outlive = |record: &mut Record| record.outlived = !is_xfs(record) && record.block == 3;
    let said = ["ext4: ", "wait for its children"];
    one_that_says(&warnings_after(outlive), WarningKind::Outlived, &said);
}

#[test]
fn a_directory_on_fuse_is_warned_of_since_nothing_there_can_be_synced_as_a_whole() {
    let (mut plan, mut records) = steady();
    let mount = |kind: &str| Some(format!("remote /mnt {kind} rw,relatime 0 0"));
    let is_first = |record: &Record| record.contender.label == plan.study.contenders[0].label;
    let label = plan.study.contenders[0].label.clone();
    for record in records.iter_mut().filter(|record| is_first(record)) {
        record.mounted_as = mount("fuse.sshfs");
    }
    // What kurabe mounts itself is synced in a way of its own.
    assert_eq!(analysed(&plan, &records).warnings, []);
    plan.study.contenders[0].layers =
        crate::contender::Contender::parse("dir:/mnt", &Known::named(["dir"])).unwrap().layers;
    one_that_says(
        &analysed(&plan, &records).warnings,
        WarningKind::SyncUnknown,
        &[&label, "(fsync)"],
    );
    for record in &mut records {
        record.mounted_as = mount("ext4");
    }
    assert_eq!(analysed(&plan, &records).warnings, []);
}

#[test]
fn caches_that_were_kept_are_warned_of_unless_they_were_asked_for() {
    let (mut plan, mut records) = steady();
    records[3].caches_kept = Some("that needs root".into());
    let said = ["(that needs root)", "--cache warm"];
    one_that_says(&analysed(&plan, &records).warnings, WarningKind::CachesKept, &said);
    plan.study.cache = crate::spec::Cache::Warm;
    assert_eq!(analysed(&plan, &records).warnings, []);
}

#[test]
fn cold_runs_that_read_less_than_half_of_the_others_are_named() {
    let (mut plan, mut records) = steady();
    let read = |records: &mut [Record], of_block: fn(u32) -> u64| {
        for record in records.iter_mut().filter(|record| is_xfs(record)) {
            let bytes = of_block(record.block);
            run_of(record).device.as_mut().unwrap().read_bytes = bytes;
        }
    };
    // Half is not less than half, and little is nothing.
    read(&mut records, |block| if block == 1 { 350 << 10 } else { 700 << 10 });
    assert_eq!(analysed(&plan, &records).warnings, []);
    read(&mut records, |block| if block == 1 { 0 } else { 64 << 10 });
    assert_eq!(analysed(&plan, &records).warnings, []);
    read(&mut records, |block| match block {
        1 => 24 << 10,
        3 => 20 << 10,
        _ => 700 << 10,
    });
    let warnings = analysed(&plan, &records).warnings;
    assert!(warnings[0].is_grave());
    let said = ["xfs: ", "round 2, 4 read at most 24 KiB", "700 KiB", "see 'notes'"];
    one_that_says(&warnings, WarningKind::WarmRuns, &said);
    // Nothing follows from a device that others use, and warm runs may find what they like.
    records.iter_mut().for_each(|record| record.device_shared = true);
    let found = analysed(&plan, &records).warnings;
    assert!(!found.iter().any(|found| found.kind == WarningKind::WarmRuns), "{found:?}");
    records.iter_mut().for_each(|record| record.device_shared = false);
    plan.study.cache = crate::spec::Cache::Warm;
    assert_eq!(analysed(&plan, &records).warnings, []);
}

#[test]
fn a_workload_on_the_cpu_is_warned_of_by_its_smallest_share() {
    let spend = |ext4_percent: u64, xfs_percent: u64| {
        warnings_after(move |record| {
            let percent = if is_xfs(record) { xfs_percent } else { ext4_percent };
            let time_ns = record.time_ns().unwrap();
            let usage = record.command.as_mut().unwrap();
            usage.user_ns = time_ns * percent / 200;
            usage.system_ns = time_ns * percent / 200;
        })
    };
    let expect = |warnings: &[Warning], label: &str, busy: &str| {
        one_that_says(warnings, WarningKind::NotIoBound, &[label, busy, "use a workload"]);
    };
    assert_eq!(spend(95, 79), []);
    expect(&spend(95, 90), "xfs: ", "one CPU busy for 90 %");
    // More than one CPU: the share is that of each, not the sum.
    assert_eq!(spend(150, 95), []);
    expect(&spend(180, 190), "ext4: ", "2 CPUs busy for 90 %");
    expect(&spend(100, 99), "xfs: ", "one CPU busy for 99 %");
    // The daemon of a file system in user space belongs to the cost.
    let daemon = |record: &mut Record| record.daemon_cpu_ns = record.time_ns();
    expect(&warnings_after(daemon), "", "one CPU");
}

#[test]
fn data_smaller_than_memory_is_warned_of_where_it_is_read_from_a_cache() {
    let after = |memory_mib: u64, read_mib: u64, fetched_mib: u64, written_mib: u64| {
        let (plan, mut records) = steady();
        for record in &mut records {
            let usage = record.command.as_mut().unwrap();
            usage.read_call_bytes = Some(read_mib << 20);
            usage.storage_read_bytes = Some(fetched_mib << 20);
            usage.storage_written_bytes = Some(written_mib << 20);
            // What the device did may be anybody's.
            run_of(record).device.as_mut().unwrap().read_bytes = 1 << 40;
        }
        only(analyse(&plan, &records, Some(memory_mib << 20))).warnings
    };
    let said = ["(100 MiB)", "(1.0 GiB)", "of 150 MiB that it read, 30 MiB", "use more data"];
    one_that_says(&after(1024, 150, 30, 70), WarningKind::SmallData, &said);
    assert_eq!(after(100, 150, 30, 70), [], "more data than memory");
    assert_eq!(after(1024, 110, 30, 70), [], "most of it was fetched or passed on");
    assert_eq!(after(1024, 0, 0, 70), [], "it reads nothing");
    assert_eq!(after(1024, 70, 0, 0), [], "it touches no storage");
    // The kernel does not count the storage of a file system in user space.
    let (plan, mut records) = steady();
    for record in &mut records {
        record.counts_write_bytes = Some(false);
        let usage = record.command.as_mut().unwrap();
        let bytes = Some(10 << 20);
        (usage.read_call_bytes, usage.storage_read_bytes) = (Some(90 << 20), Some(0));
        usage.storage_written_bytes = bytes;
    }
    assert_eq!(only(analyse(&plan, &records, Some(1 << 30))).warnings, []);
}

#[test]
fn a_modelled_disk_is_told_from_a_measured_one_and_may_not_be_late() {
    let modelled = |record: &mut Record, p99_us: u64| {
        record.disks = vec![ModelledDisk {
            layer: "hdd".into(),
            profile: "7200rpm".into(),
            title: "a disk".into(),
            seed: 1,
            lateness: Lateness {
                replies: 100,
                p50_ns: 10_000,
                p99_ns: p99_us * 1000,
                max_ns: 900_000,
                limit_ns: 130_000,
            },
            model_ns_per_request: 900,
            counters: Default::default(),
            picture: Default::default(),
        }];
    };
    assert_eq!(warnings_after(|record| modelled(record, 130)), [], "all are modelled, and in time");
    let late = warnings_after(|record| modelled(record, if is_xfs(record) { 200 } else { 90 }));
    let said = ["xfs: in 6 of 6 runs the modelled disk (hdd:7200rpm) answered late", "than 200 µs"];
    one_that_says(&late, WarningKind::LateReplies, &said);
    let mixed = warnings_after(|record| {
        if is_xfs(record) {
            modelled(record, 90);
        }
    });
    let said =
        ["xfs: its times are those of a modelled disk (hdd:7200rpm), and those of ext4 were"];
    one_that_says(&mixed, WarningKind::Modelled, &said);
}

/// Whether there is one warning, of this kind, and it has all of these words.
fn one_that_says(warnings: &[Warning], kind: WarningKind, words: &[&str]) {
    let [Warning { kind: found, text, .. }] = warnings else { panic!("{warnings:?}") };
    assert_eq!(*found, kind);
    assert!(words.iter().all(|words| text.contains(words)), "{text}: {words:?}");
}
