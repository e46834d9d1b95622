//! Results of strangers: a small result with a bit of everything, changed as an input says, and all
//! that is made of a result. The fuzz target `result` uses it too.
#![allow(dead_code, reason = "every test program uses another part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use lab::record::{Check, Outcome, Phase, Record};
use lab::study::{StudyText, WorkloadText};
use lab::study_file;
use lab::workload::{Metric, SeriesMark, Unit};
use report::across::{self, Across};
use report::source::ResultSource;
use report::{answer, details, document, export, page};
use serde_json::{Value, json};

use super::{Made, complete, make, study, time_ns, workload_report};

/// The bytes of a result's files by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

const STUDY: &str = r#"
name = "small"
why = "because"
source = "A publication"
differs = ["another disk"]
contenders = ["ext4", "xfs"]
device = "mem:1G"
runs = 3
gate = ["xfs <= 40", "ext4: durable"]
[[workload]]
name = "load"
why = "it is there"
command = "true"
"#;

/// A histogram of one kind of operation, as loads write it: values from 1 to `count` µs.
fn log(kind: &str, count: u64) -> String {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    (1..=count).for_each(|value| histogram.record(value * 1000).unwrap());
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let builder = IntervalLogWriterBuilder::new();
    let mut writer = builder.begin_log_with(&mut bytes, &mut serializer).unwrap();
    let second = Duration::from_secs(1);
    writer.write_histogram(&histogram, Duration::ZERO, second, Tag::new(kind)).unwrap();
    String::from_utf8(bytes).unwrap()
}

pub fn fill(record: &mut Record) -> bool {
    complete(record, time_ns(record, &["ext4", "xfs", "raw"]));
    let mut load = workload_report(1e8 + f64::from(record.trial) * 1e5);
    load.series[0].marks = vec![SeriesMark { at_ns: 2_000_000_000, words: "sank".into() }];
    load.latencies.truncate(1);
    load.latencies[0].count = 50;
    load.histogram_log = Some(log("Put", 50));
    (load.note, load.proof) = (Some("beware".into()), Some("0123".into()));
    record.load = Some(load);
    record.notes = vec!["a note".into()];
    record.checks = vec![
        Check { tried: 50, evidence: Some("/a/path".into()), ..Check::new("contents") },
        Check { tried: 9, violated: 1, first: Some("gone".into()), ..Check::new("durability") },
    ];
    if record.contender.label == "ext4" {
        record.checks[1] = Check::not_tried("durability", "no control");
    }
    record.daemon_cpu_ns = Some(1_000_000);
    if record.trial == 5 {
        let (message, output) = ("it broke".into(), "its\nlast lines".into());
        record.outcome = Outcome::Failed { phase: Phase::Run, message, output };
    }
    true
}

/// A result with a gate, a failure, latencies and a series.
pub fn rich() -> Made {
    let text: StudyText = study_file::parse(Path::new("s"), STUDY).unwrap();
    let made = make(&text, fill);
    let analysis = ResultSource::read(&made.directory()).unwrap().analysis;
    let comparisons: Vec<_> = analysis.workloads.iter().flat_map(|one| &one.comparisons).collect();
    fs::write(made.path("comparisons.json"), json!(comparisons).to_string()).unwrap();
    fs::copy(made.path("facts.json"), made.path("facts-1.json")).unwrap();
    made
}

/// A matrix of two cells against the bare device.
pub fn matrix() -> Made {
    let mut text = study(&["raw", "xfs"], &[], 3);
    text.baseline = Some("raw".into());
    text.workloads = vec![WorkloadText {
        name: Some("fio-matrix".into()),
        command: Some(lab::study::CommandText::Line("true".into())),
        ..Default::default()
    }];
    make(&text, |record| {
        fill(record);
        let cells = ["randread-psync-1-4k", "randread-psync-1-64k"].map(|name| {
            Metric::new(name, 1000.0 + f64::from(record.trial), Unit::OperationsPerSecond)
        });
        record.load.as_mut().unwrap().metrics = cells.into();
        true
    })
}

/// The files of a result.
pub fn files(made: &Made) -> Files {
    let mut files = Files::new();
    for directory in ["", "histograms"] {
        for entry in fs::read_dir(made.path(directory)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = Path::new(directory).join(entry.file_name()).display().to_string();
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

/// Writes the files of a result.
pub fn write(directory: &Path, files: &Files) {
    fs::create_dir_all(directory.join("histograms")).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(directory.join(name), bytes).unwrap());
}

/// Decisions, taken from an input; without end, since nothing follows as noughts.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn below(&mut self, bound: usize) -> usize {
        let (taken, rest) = self.0.split_at(self.0.len().min(2));
        self.0 = rest;
        taken.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) % bound.max(1)
    }
}

/// Changes some files as the input says: values of their JSON, or bytes.
pub fn mutate(files: &mut Files, input: &[u8]) {
    let mut choices = Choices(input);
    for _ in 0..=choices.below(4) {
        let name = files.keys().nth(choices.below(files.len())).unwrap().clone();
        let bytes = files.get_mut(&name).unwrap();
        if name.contains(".json") && choices.below(8) > 0 {
            let mut lines: Vec<Vec<u8>> = if name.ends_with('l') {
                bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
            } else {
                vec![bytes.clone()]
            };
            let place = choices.below(lines.len());
            if let Some(line) = lines.get_mut(place)
                && let Ok(mut value) = serde_json::from_slice::<Value>(line)
            {
                (0..=choices.below(3)).for_each(|_| mutate_value(&mut value, &mut choices));
                *line = format!("{value}\n").into_bytes();
            }
            *bytes = lines.concat();
        } else if !bytes.is_empty() {
            let at = choices.below(bytes.len());
            let end = (at + choices.below(64)).min(bytes.len());
            match choices.below(4) {
                0 => bytes[at] = choices.below(256) as u8,
                1 => bytes.truncate(at),
                2 => drop(bytes.drain(at..end)),
                _ => bytes.extend_from_within(at..end),
            }
        }
    }
}

/// Changes a value somewhere in a value.
fn mutate_value(value: &mut Value, choices: &mut Choices<'_>) {
    let goes_in = choices.below(8) > 0;
    match value {
        Value::Array(items) if goes_in && !items.is_empty() => {
            let place = choices.below(items.len());
            match choices.below(12) {
                0 => drop(items.remove(place)),
                1 => items.push(items[place].clone()),
                2 => items.swap(0, place),
                3 => *items = items.iter().cycle().take(items.len() * 40).cloned().collect(),
                _ => mutate_value(&mut items[place], choices),
            }
        }
        Value::Object(fields) if goes_in && !fields.is_empty() => {
            let key = fields.keys().nth(choices.below(fields.len())).unwrap().clone();
            match choices.below(12) {
                0 => drop(fields.remove(&key)),
                _ => mutate_value(&mut fields[&key], choices),
            }
        }
        _ => {
            let extremes = [
                json!(null),
                json!(true),
                json!(0),
                json!(1),
                json!(-1),
                json!(u32::MAX),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(1u64 << 53),
                json!(1e308),
                json!(-1e308),
                json!(5e-324),
                json!(-0.0),
                json!(1e19),
                json!(""),
                json!("é\u{202e}\u{1b}\n<b>|*`"),
                json!("x".repeat(70_000)),
                json!([]),
                json!({}),
                json!([[[[]]]]),
            ];
            *value = extremes[choices.below(extremes.len())].clone();
        }
    }
}

/// Reads a result and makes all of it that there is; None where it is refused.
pub fn exercise(directory: &Path) -> Option<usize> {
    let source = ResultSource::read(directory).ok()?;
    let ResultSource { plan, records, analysis, .. } = &source;
    let facts = source.facts.clone().unwrap_or_default();
    let mut made = page::page(&source, &[]).len();
    made += page::pictures(&source, &[]).iter().map(|(_, picture)| picture.len()).sum::<usize>();
    made += export::markdown(&source).len();
    made += export::csv(records).len();
    made += export::latencies_csv(analysis).map_or(0, |text| text.len());
    made += export::overhead_csv(analysis).map_or(0, |text| text.len());
    made += export::json(plan, records, analysis, &facts).to_string().len();
    made += document::terminal(&answer::answer(&source), true).len();
    made += document::terminal(&details::details(&source), true).len();
    let sources = [ResultSource::read(directory).ok()?, source];
    let across = Across::new(&sources);
    made += document::terminal(&across::document(&across), true).len();
    made += across::page(&across).len();
    Some(made + across::pictures(&across).iter().map(|(_, picture)| picture.len()).sum::<usize>())
}
