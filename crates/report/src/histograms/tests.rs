//! Result directories made by hand: what is merged, and what damage comes to.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer, V2Serializer};
use lab::analysis::analyse;
use lab::load::LoadReport;
use lab::record::{Outcome, Phase, PhaseRecord};
use lab::spec::Device;
use lab::study::{CommandText, StudyText, WorkloadText};

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
    Plan::new(text.resolve(&["ext4", "xfs"]).unwrap(), 7)
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
        p5_ns: at(0.05),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p99_9_ns: at(0.999),
        p99_99_ns: at(0.9999),
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
        let spec = plan.spec(block, trial, &Device::None, "/nowhere".into());
        let mut record = Record::begun(&spec, 0);
        record.phases = [Phase::Run, Phase::Sync]
            .map(|phase| PhaseRecord { phase, elapsed_ns: 1, device: None, machine_cpu_ns: None })
            .into();
        let all: Vec<u64> = puts.iter().chain(GETS).copied().collect();
        record.load = Some(LoadReport {
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

impl Stored {
    fn read(&self) -> Histograms {
        Histograms::read(self.directory.path(), &self.plan, &self.records)
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
    let median = |analysis: &Analysis| analysis.workloads[0].contenders[0].latencies[0].p50_ns;
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
fn the_curve_rises_to_the_maximum_and_the_buckets_hold_everything() {
    let stored = stored(&[("ext4", &rising(1000))]);
    let found = stored.read();
    let put = found.get("w", "ext4", "put").unwrap();
    let curve = put.curve(10);
    assert!(curve.len() > 50, "{}", curve.len());
    assert!(
        curve.is_sorted_by(|one, two| one.quantile <= two.quantile && one.value_ns <= two.value_ns)
    );
    let last = curve.last().unwrap();
    assert_eq!((last.quantile, last.value_ns), (1.0, 100_000_000));
    for point in curve {
        // Of 1000 evenly rising samples the quantile is the value; a bucket is 0.1 % wide.
        let exact_ns = (point.quantile * 1000.0).ceil().max(1.0) * 100_000.0;
        assert!((point.value_ns as f64 / exact_ns - 1.0).abs() < 0.0021, "{point:?} {exact_ns}");
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
    assert_eq!(ext4.latencies[0].p99_ns, 5);
    assert_eq!(ext4.findings.len(), 1);
    assert!(ext4.findings[0].contains("leave it out"), "{:?}", ext4.findings);
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
    assert!(ext4.findings[0].contains("median of the trials' own"), "{:?}", ext4.findings);
}

#[test]
fn no_damaged_byte_panics() {
    let whole = log(&[("put", &rising(200)), ("get", GETS)]);
    assert_eq!(parse(&whole).unwrap().len(), 2);
    for length in 0..whole.len() {
        let _ = parse(&whole[..length]);
    }
    for place in 0..whole.len() {
        for mask in [0x01, 0x10, 0x80] {
            let mut damaged = whole.clone();
            damaged[place] ^= mask;
            let _ = parse(&damaged);
        }
    }
}

/// A line with a histogram that is not compressed, so that every byte of it can be chosen.
fn line(plain: &[u8]) -> String {
    format!("Tag=put,0.000,1.000,1.000,{}\n", STANDARD.encode(plain))
}

fn plain(counts: &[u8], length: u32, low: u64, high: u64) -> Vec<u8> {
    let mut plain = PLAIN_COOKIE.to_vec();
    plain.extend(length.to_be_bytes());
    plain.extend(0_u32.to_be_bytes());
    plain.extend(3_u32.to_be_bytes());
    plain.extend(low.to_be_bytes());
    plain.extend(high.to_be_bytes());
    plain.extend(1.0_f64.to_be_bytes());
    plain.extend(counts);
    plain
}

#[test]
fn lengths_and_counts_are_not_taken_at_their_word() {
    let parsed = |plain: Vec<u8>| parse(line(&plain).as_bytes());
    // A run of 10 zeroes, then a count of 1: the sound one.
    let counts = [19, 2];
    assert_eq!(
        parsed(plain(&counts, 2, 1, 4095)).unwrap()[0].1,
        [Count { value_ns: 10, count: 1 }]
    );
    let problem = parsed(plain(&counts, u32::MAX, 1, 4095)).unwrap_err();
    assert!(problem.contains("does not go with its bytes"), "{problem}");
    let problem = parsed(plain(&counts, 2, 1, u64::MAX)).unwrap_err();
    assert!(problem.contains("are none"), "{problem}");
    // The most negative number, which has no positive counterpart.
    let problem = parsed(plain(&[0xff; 9], 9, 1, 4095)).unwrap_err();
    assert!(problem.contains("beyond all measure"), "{problem}");
    // More counts than values.
    assert!(parsed(plain(&[0xff, 0xff, 0xff, 0x7f, 2], 5, 1, 4095)).is_err());
    assert!(parsed(Vec::new()).is_err());
}

/// What is read here and what the library reads are the same, over all magnitudes.
#[test]
fn counts_are_those_that_the_library_reads() {
    let mut samples: Vec<u64> = (0..52).flat_map(|bit| [1 << bit, (1 << bit) * 3 / 2]).collect();
    samples.extend((0..5000).map(|number| number * number * 37 % 90_000_000));
    let mut histogram = Histogram::<u64>::new_with_max(1 << 52, 3).unwrap();
    samples.iter().for_each(|sample| histogram.record(*sample).unwrap());
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
    let mut counts = Vec::new();
    sparse(&bytes[HEAD_BYTES..], 1 << 52, &mut counts).unwrap();
    let expected: Vec<Count> = histogram
        .iter_recorded()
        .map(|entry| Count {
            value_ns: histogram.lowest_equivalent(entry.value_iterated_to()),
            count: entry.count_at_value(),
        })
        .collect();
    assert!(expected.len() > 1000, "{}", expected.len());
    assert_eq!(counts, expected);
    // Beyond the bound, and within a number.
    assert_eq!(sparse(&bytes[HEAD_BYTES..], 1 << 40, &mut Vec::new()), None);
    assert_eq!(sparse(&[0x82], 4095, &mut Vec::new()), None);
}
