//! Percentiles, merging, series and the log, against samples that are known.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// The values 1, 2, ... as a multiplicative shuffle, so that no test depends on order.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |place| (place * 7919) % count + 1)
}

#[test]
fn percentiles_are_within_a_thousandth_of_the_sorted_samples() {
    let mut recorder = LatencyRecorder::new();
    let kind = recorder.kind("Get");
    for value in shuffled(100_000) {
        recorder.record_at(kind, 0, value * 10, 0);
    }
    let summary = recorder.finish().summary();
    let get = &summary.kinds[0];
    let near = |found: u64, exact: u64| {
        assert!(
            found >= exact && found - exact <= exact / 1000 + 1,
            "found {found}, exactly {exact}"
        );
    };
    near(get.at(0.05), 50_000);
    near(get.at(0.5), 500_000);
    near(get.at(0.9), 900_000);
    near(get.at(0.95), 950_000);
    near(get.at(0.99), 990_000);
    near(get.at(0.999), 999_000);
    near(get.at(0.9999), 999_900);
    assert_eq!(get.max_ns, 1_000_000);
    assert_eq!(get.count, 100_000);
    assert_eq!(get.total_ns, 10 * 100_000 * 100_001 / 2);
    assert_eq!(summary.overall.count, 100_000);
}

#[test]
fn many_at_once_are_as_many_one_by_one() {
    let mut at_once = LatencyRecorder::new();
    let mut one_by_one = LatencyRecorder::new();
    let (once, single) = (at_once.kind("read"), one_by_one.kind("read"));
    at_once.record_many(once, 1_500, 7, 7 * 512);
    at_once.record_many(once, 9_000, 0, 0);
    for _ in 0..7 {
        one_by_one.record_at(single, 0, 1_500, 512);
    }
    assert_eq!(at_once.finish().summary(), one_by_one.finish().summary());
}

#[test]
fn merging_threads_gives_what_one_recorder_would_have_seen() {
    let mut whole = LatencyRecorder::with_intervals(Duration::from_secs(1));
    let mut parts: Vec<LatencyRecorder> =
        (0..3).map(|_| LatencyRecorder::with_intervals(Duration::from_secs(1))).collect();
    // The threads meet the kinds in different orders: the merge goes by name.
    parts[1].kind("Delete");
    for (place, value) in shuffled(9_000).enumerate() {
        let name = ["Put(1)", "Get(1)", "Delete"][place % 3];
        let ended_ns = place as u64 * SECOND_NS / 700;
        let part = &mut parts[(value % 3) as usize];
        for recorder in [&mut whole, part] {
            let kind = recorder.kind(name);
            recorder.record_at(kind, ended_ns, value * 1000, 512);
        }
    }
    let whole = whole.finish();
    let merged = LatencyRecording::merged(parts.into_iter().map(LatencyRecorder::finish));
    let by_name = |recording: &LatencyRecording| {
        let mut kinds = recording.summary().kinds;
        kinds.sort_by(|one, other| one.operation.cmp(&other.operation));
        kinds
    };
    assert_eq!(by_name(&whole), by_name(&merged));
    assert_eq!(whole.summary().overall, merged.summary().overall);
    assert_eq!(whole.series(), merged.series());
}

#[test]
fn intervals_hold_every_sample_once_and_gaps_are_points_of_zero() {
    let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
    let kind = recorder.kind("Put(4096)");
    for tenth in (0..10).chain(35..47) {
        recorder.record_at(kind, tenth * SECOND_NS / 10, 1_000 + tenth, 4096);
    }
    let series = recorder.finish().series().unwrap();
    let counts: Vec<u64> = series.points.iter().map(|point| point.count).collect();
    assert_eq!(counts, [10, 0, 0, 5, 7]);
    assert_eq!(series.points[3].bytes, 5 * 4096);
    assert!((1_039..=1_041).contains(&series.points[3].p99_ns), "{:?}", series.points[3]);
    assert_eq!(series.points[4].duration_ns, 6 * SECOND_NS / 10);
    assert!(LatencyRecorder::new().finish().series().is_none());
}

#[test]
fn a_long_run_doubles_its_interval_and_loses_no_sample() {
    let mut long = LatencyRecorder::with_intervals(Duration::from_millis(1));
    let kind = long.kind("Get");
    let samples = 5 * INTERVALS_MAX as u64;
    for place in 0..samples {
        long.record_at(kind, place * 1_000_000, 100 + place, 1);
    }
    let mut short = LatencyRecorder::with_intervals(Duration::from_millis(1));
    let kind = short.kind("Get");
    short.record_at(kind, 3_000_000, 77, 1);

    let mut merged = short.finish();
    merged.merge(long.finish());
    let series = merged.series().unwrap();
    assert_eq!(series.interval_ns, 8_000_000);
    assert!(series.points.len() <= INTERVALS_MAX);
    let in_points: u64 = series.points.iter().map(|point| point.count).sum();
    assert_eq!(in_points, samples + 1);
    assert_eq!(merged.summary().overall.count, samples + 1);
    assert_eq!(series.points[0].count, 9);
}

#[test]
fn the_log_reads_back_as_the_recording() {
    for interval in [None, Some(Duration::from_secs(1))] {
        let mut recorder =
            interval.map_or_else(LatencyRecorder::new, LatencyRecorder::with_intervals);
        let put = recorder.kind("Put(262144)");
        let odd = recorder.kind("name, with spaces");
        for value in shuffled(5_000) {
            recorder.record_at(put, value * 1_000_000, value * 1_000, 1);
            recorder.record_at(odd, value * 1_000_000, value * 3, 1);
        }
        let recording = recorder.finish();
        let mut log = Vec::new();
        recording.write_log(&mut log, SystemTime::now(), 5 * SECOND_NS).unwrap();
        let read = LatencyRecording::read_log(std::str::from_utf8(&log).unwrap()).unwrap();
        assert_eq!(read.summary().kinds.len(), 2);
        for kind in ["Put(262144)", "name, with spaces"] {
            assert_eq!(read.histogram(kind).unwrap(), recording.histogram(kind).unwrap());
        }
    }
}

#[test]
fn extreme_latencies_are_kept_within_the_limit() {
    let mut recorder = LatencyRecorder::new();
    let kind = recorder.kind("Get");
    recorder.record_at(kind, 0, 0, 0);
    recorder.record_at(kind, 0, u64::MAX, 0);
    let summary = recorder.finish().summary();
    assert_eq!(summary.overall.count, 2);
    assert_eq!(summary.overall.max_ns, LATENCY_MAX_NS);
}

#[test]
fn renamed_kinds_keep_their_samples_and_equal_names_become_one() {
    let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
    let (read, write) = (recorder.kind("read"), recorder.kind("write"));
    recorder.record_at(read, 10, 100, 1);
    recorder.record_at(write, 20, 200, 2);
    recorder.record_at(write, 2_000_000_000, 300, 4);
    let recording = recorder.finish();
    let apart = recording.clone().renamed(|kind| format!("cell-{kind}"));
    assert_eq!(apart.histogram("cell-read").unwrap().len(), 1);
    assert_eq!(apart.histogram("cell-write").unwrap().len(), 2);
    assert_eq!(apart.summary().overall, recording.summary().overall);
    let one = recording.renamed(|_| "all".into());
    let summary = one.summary();
    assert_eq!((summary.kinds.len(), summary.kinds[0].count, summary.kinds[0].bytes), (1, 3, 7));
    let series = one.series().unwrap();
    assert_eq!((series.points[0].count, series.points[0].bytes), (2, 3));
}
