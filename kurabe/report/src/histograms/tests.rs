//! Result directories made by hand: what is merged, and what damage comes to.

use std::fs;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use lab::analysis::analyse;
use lab::contender::Known;
use lab::record::{Outcome, Phase, PhaseRecord};
use lab::study::{CommandText, StudyText, WorkloadText};
use lab::workload::{QUANTILES, WorkloadReport};

use super::*;

fn plan(runs: u32) -> Plan {
    let text = StudyText {
        contenders: vec!["ext4".into(), "xfs".into()],
        runs: Some(runs),
        workloads: vec![WorkloadText {
            name: Some("w".into()),
            command: Some(CommandText::Line("true".into())),
            ..Default::default()
        }],
        ..Default::default()
    };
    Plan::new(text.resolve(&Known::named(["ext4", "xfs"])).unwrap(), 7)
}

fn empty() -> Histogram<u64> {
    Histogram::new(3).unwrap()
}

fn latency(operation: &str, samples: &[u64]) -> Latency {
    let mut histogram = empty();
    samples.iter().for_each(|sample| histogram.record(*sample).unwrap());
    let at = |quantile| histogram.value_at_quantile(quantile);
    Latency {
        operation: operation.into(),
        count: samples.len() as u64,
        bytes: 0,
        total_ns: samples.iter().sum(),
        quantiles_ns: QUANTILES.map(|quantile| (quantile, at(quantile))).into(),
        max_ns: samples.iter().copied().max().unwrap_or(0),
    }
}

/// A log of these samples by kind, each kind in two intervals.
fn log(kinds: &[(&str, &[u64])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("made by hand")
        .with_base_time(SystemTime::UNIX_EPOCH)
        .begin_log_with(&mut bytes, &mut serializer)
        .unwrap();
    for (kind, samples) in kinds {
        let halves = samples.split_at(samples.len() / 2);
        for (second, half) in [halves.0, halves.1].into_iter().enumerate() {
            let mut histogram = empty();
            half.iter().for_each(|sample| histogram.record(*sample).unwrap());
            let start = Duration::from_secs(second as u64);
            log.write_histogram(&histogram, start, Duration::from_secs(1), Tag::new(kind)).unwrap();
        }
    }
    bytes
}

/// A result of one contender's trials; every trial has puts of the given samples and one get of
/// 7 ns.
struct Stored {
    directory: tempfile::TempDir,
    plan: Plan,
    records: Vec<Record>,
}

const GETS: &[u64] = &[7];

fn stored(trials: &[(&str, &[u64])]) -> Stored {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("histograms")).unwrap();
    let plan = plan(trials.len() as u32);
    let mut records = Vec::new();
    for (label, puts) in trials {
        let block = records.iter().filter(|r: &&Record| r.contender.label == *label).count();
        let block = &plan.blocks[block];
        let contender = plan.study.contenders.iter().position(|c| c.label == *label).unwrap();
        let trial = *block.trials.iter().find(|trial| trial.contender == contender).unwrap();
        let spec = plan.spec(block, trial, None, "/nowhere".into());
        let mut record = Record::begun(&spec, 0);
        record.phases = [Phase::Run, Phase::Sync]
            .map(|phase| PhaseRecord { phase, elapsed_ns: 1, device: None, machine_cpu_ns: None })
            .into();
        let all: Vec<u64> = puts.iter().chain(GETS).copied().collect();
        record.load = Some(WorkloadReport {
            latencies: vec![
                latency("put", puts),
                latency("get", GETS),
                latency(OVERALL_OPERATION, &all),
            ],
            ..Default::default()
        });
        let path = histogram_path(directory.path(), record.trial);
        fs::write(path, log(&[("put", puts), ("get", GETS)])).unwrap();
        records.push(record);
    }
    Stored { directory, plan, records }
}

fn histogram_path(directory: &std::path::Path, trial: u32) -> std::path::PathBuf {
    directory.join(HISTOGRAMS_DIRECTORY).join(histogram_file(trial))
}

impl Stored {
    fn read(&self) -> Histograms {
        Histograms::read(
            &Directory::open(self.directory.path()).unwrap(),
            &self.plan,
            &self.records,
        )
    }

    fn path(&self, index: usize) -> std::path::PathBuf {
        histogram_path(self.directory.path(), self.records[index].trial)
    }
}

/// 1, 2, ... times 100 µs.
fn rising(count: u64) -> Vec<u64> {
    (1..=count).map(|number| number * 100_000).collect()
}

#[test]
fn trials_are_merged_and_no_percentile_is_averaged() {
    // The median of the medians would be 50; of all samples together it is 1000.
    let (few, many) = ([50_u64; 3], [1000_u64; 100]);
    let stored = stored(&[("ext4", &few), ("ext4", &few), ("ext4", &many), ("xfs", &few)]);
    let found = stored.read();
    assert_eq!(found.damage(), []);
    let put = found.get("w", "ext4", "put").unwrap();
    assert_eq!((put.count(), put.trials, put.max_ns), (106, 3, 1000));
    assert_eq!((put.value_at(0.05), put.value_at(0.5)), (50, 1000));
    let overall = found.get("w", "ext4", OVERALL_OPERATION).unwrap();
    assert_eq!((overall.count(), overall.trials, overall.value_at(0.0)), (109, 3, 7));
    assert_eq!(found.get("w", "xfs", "put").unwrap().count(), 3);
    assert!(found.get("w", "xfs", "delete").is_none());
    let mut analysis = analyse(&stored.plan, &stored.records, None);
    let median = |analysis: &Analysis| analysis.workloads[0].contenders[0].latencies[0].at(0.5);
    assert_eq!(median(&analysis), 50);
    found.put_into(&mut analysis);
    assert_eq!(median(&analysis), 1000);
    assert!(analysis.workloads[0].contenders.iter().all(|c| c.findings.is_empty()));
}

#[test]
fn what_does_not_count_is_not_merged() {
    let samples = rising(10);
    let mut stored = stored(&[("ext4", &samples), ("ext4", &samples), ("ext4", &samples)]);
    stored.records[0].warmup = true;
    stored.records[1].outcome =
        Outcome::Failed { phase: Phase::Run, message: "it broke".into(), output: String::new() };
    assert_eq!(stored.read().get("w", "ext4", "put").unwrap().count(), 10);
}

#[test]
fn the_percentiles_rise_to_the_maximum_and_the_buckets_hold_everything() {
    let stored = stored(&[("ext4", &rising(1000))]);
    let found = stored.read();
    let put = found.get("w", "ext4", "put").unwrap();
    assert_eq!(put.value_at(1.0), 100_000_000);
    for step in 1..=1000 {
        // Of 1000 evenly rising samples the quantile is the value; a bucket is 0.1 % wide.
        let (found_ns, exact_ns) = (put.value_at(f64::from(step) / 1000.0), f64::from(step) * 1e5);
        assert!((found_ns as f64 / exact_ns - 1.0).abs() < 0.0021, "{found_ns} {exact_ns}");
    }
    let buckets: Vec<Bucket> = put.buckets().collect();
    assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1000);
    assert!(buckets.is_sorted_by(|one, two| one.high_ns < two.low_ns));
    assert!(buckets[0].low_ns <= 100_000 && 100_000 <= buckets[0].high_ns);
}

#[test]
fn damage_is_named_and_costs_only_its_trial() {
    let samples = rising(1000);
    let stored = stored(&[("ext4", &samples), ("ext4", &[5; 9]), ("ext4", &samples)]);
    fs::remove_file(stored.path(0)).unwrap();
    // Cut off behind a whole line: only the counts tell.
    let whole = fs::read_to_string(stored.path(2)).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(stored.path(2), lines[..lines.len() - 2].join("\n") + "\n").unwrap();
    let found = stored.read();
    let problems: Vec<String> = found.damage().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let name = format!("trial-{}.hlog: No such file", stored.records[0].trial);
    assert!(problems[0].contains(&name), "{problems:?}");
    assert!(problems[1].contains("0 operations of 'get', and the record 1"), "{problems:?}");
    assert_eq!(found.get("w", "ext4", "put").unwrap().count(), 9);
    let mut analysis = analyse(&stored.plan, &stored.records, None);
    found.put_into(&mut analysis);
    let ext4 = &analysis.workloads[0].contenders[0];
    assert_eq!(ext4.latencies[0].at(0.99), 5);
    assert_eq!(ext4.findings.len(), 1);
    assert!(ext4.findings[0].contains("leave it out"), "{:?}", ext4.findings);
}

#[test]
fn what_is_no_file_is_an_error_at_once() {
    let stored = stored(&[("ext4", &[5, 6]), ("ext4", &[5; 9]), ("ext4", &[5; 9])]);
    for (index, what) in [(0, "/dev/zero"), (1, "a FIFO")] {
        fs::remove_file(stored.path(index)).unwrap();
        match what {
            "a FIFO" => {
                let made = std::process::Command::new("mkfifo").arg(stored.path(index)).status();
                assert!(made.unwrap().success());
            }
            target => std::os::unix::fs::symlink(target, stored.path(index)).unwrap(),
        }
    }
    fs::File::create(stored.path(2)).unwrap().set_len(1 << 40).unwrap();
    let found = stored.read();
    let problems: Vec<String> = found.damage().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].contains("a regular file is needed"), "{problems:?}");
    assert!(problems[1].contains("a regular file is needed"), "{problems:?}");
    assert!(problems[2].contains("bytes"), "{problems:?}");
}

#[test]
fn without_any_histogram_the_medians_stay_and_it_is_said() {
    let stored = stored(&[("ext4", &[5, 6])]);
    fs::write(stored.path(0), "nonsense\n").unwrap();
    let mut analysis = analyse(&stored.plan, &stored.records, None);
    let before = analysis.workloads[0].contenders[0].latencies.clone();
    stored.read().put_into(&mut analysis);
    let ext4 = &analysis.workloads[0].contenders[0];
    assert_eq!(ext4.latencies, before);
    assert!(ext4.findings[0].contains("median of the runs' own"), "{:?}", ext4.findings);
}

/// Numbers that look random: SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Latencies of all magnitudes up to a random one, some of them often.
fn random_samples(state: &mut u64) -> Vec<u64> {
    let magnitude = 1 + random(state) % 40;
    let mut samples = Vec::new();
    for _ in 0..1 + random(state) % 3000 {
        let value = random(state) & ((1 << (1 + random(state) % magnitude)) - 1);
        let times = if random(state).is_multiple_of(50) { 300 } else { 1 };
        samples.extend(std::iter::repeat_n(value, times));
    }
    samples
}

/// A whole result is read as the library reads it, histogram by histogram.
#[test]
fn merged_histograms_are_those_of_the_library() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut state = seed;
        let samples: Vec<Vec<u64>> = (0..10).map(|_| random_samples(&mut state)).collect();
        let labels = ["ext4", "xfs", "ext4", "ext4", "xfs", "xfs", "ext4", "xfs", "ext4", "xfs"];
        let trials: Vec<(&str, &[u64])> =
            labels.into_iter().zip(samples.iter().map(Vec::as_slice)).collect();
        let stored = stored(&trials);
        let found = stored.read();
        assert_eq!(found.damage(), []);
        for contender in ["ext4", "xfs"] {
            let (mut put, mut get) = (empty(), empty());
            let of = stored.records.iter().filter(|record| record.contender.label == contender);
            for record in of.clone() {
                let log = fs::read(histogram_path(stored.directory.path(), record.trial)).unwrap();
                for entry in IntervalLogIterator::new(&log) {
                    let LogEntry::Interval(interval) = entry.unwrap() else { continue };
                    let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
                    let one: Histogram<u64> =
                        Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                    let is_put = interval.tag().unwrap().as_str() == "put";
                    *(if is_put { &mut put } else { &mut get }) += one;
                }
            }
            let mut all = put.clone();
            all += &get;
            for (operation, expected) in [("put", put), ("get", get), (OVERALL_OPERATION, all)] {
                let merged = found.get("w", contender, operation).unwrap();
                assert_eq!(merged.trials, of.clone().count());
                assert_eq!(merged.histogram, expected, "{contender} {operation}");
                assert_eq!(merged.histogram.max(), expected.max());
                for share in [0.0, 0.05, 0.5, 0.9, 0.99, 0.999, 1.0] {
                    let of_the_library = expected.value_at_quantile(share).min(merged.max_ns);
                    assert_eq!(merged.value_at(share), of_the_library, "{operation} {share}");
                }
            }
        }
    }
}
