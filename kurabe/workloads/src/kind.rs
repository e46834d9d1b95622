//! The kinds of workload: one file each, which implements the parts of [`Generator`], and one line in [`KINDS`].
//!
//! A file here says what a kind is called, what can be written of it, what it needs and reports, and
//! hands the work to the module beside it that does it.

mod bonnie;
mod coherence;
mod database;
mod dbench;
mod fio;
mod fio_matrix;
mod merged;
mod objects;
mod pgbench;
mod redis;
mod rocksdb;
mod sqlite;
mod sysbench;
mod tree;

pub use coherence::late_metric;
pub use merged::merged;

use std::time::SystemTime;

#[cfg(doc)]
use vocabulary::kind::Generator;
use vocabulary::kind::{COMMAND, Needs, WorkloadKinds};
use vocabulary::report::{Latency, Series, SeriesMark, Unit};
use vocabulary::workload::WorkloadTask;

use crate::dbench::drift::{Drift, IntervalBytes};
use crate::tool::WorkloadTool;
use measure::durable::WholeSync;
use measure::latency::{LatencyRecording, LatencySummary};

/// All kinds, in the order of the documentation.
pub static KINDS: WorkloadKinds = WorkloadKinds(&[
    COMMAND,
    objects::KIND,
    tree::KIND,
    fio::KIND,
    fio_matrix::KIND,
    dbench::KIND,
    dbench::REPLAY,
    bonnie::KIND,
    sqlite::KIND,
    pgbench::KIND,
    sysbench::KIND,
    redis::KIND,
    rocksdb::KIND,
    coherence::KIND,
]);

/// What a workload needs that runs these tools: those that are missing, each with its package.
fn tools(tools: &[WorkloadTool]) -> Needs {
    let mut needs = Needs::default();
    for tool in tools {
        match tool.locate() {
            Ok(found) => needs.programs.push(found.path().into()),
            Err(missing) => needs.missing.push(missing.into()),
        }
    }
    needs
}

/// The latencies of a recording, by kind, the overall ones last; none of a recording without any.
fn latencies(summary: &LatencySummary) -> Vec<Latency> {
    let overall = Some(&summary.overall).filter(|overall| overall.count > 0);
    summary.kinds.iter().chain(overall).cloned().collect()
}

/// The recording's histograms in HdrHistogram's log format.
fn histogram_log(recording: &LatencyRecording, elapsed_ns: u64) -> Result<String, String> {
    let mut log = Vec::new();
    recording
        .write_log(&mut log, SystemTime::now(), elapsed_ns)
        .map_err(|error| format!("writing the histograms: {error}"))?;
    String::from_utf8(log).map_err(|error| format!("writing the histograms: {error}"))
}

/// What makes everything on the target durable.
fn whole_sync(task: &WorkloadTask) -> WholeSync {
    task.sync_command.clone().map_or(WholeSync::Call, WholeSync::Command)
}

/// The throughput of each of these intervals, about a second long, with a mark where it drifted; and
/// the findings for a reader: when, how much and why, and the figures behind that. A drift within
/// the warm-up before the intervals has no mark.
fn throughput_over_time(
    intervals: &[IntervalBytes],
    drift: Option<&Drift>,
) -> (Vec<Series>, Vec<String>) {
    let words = drift.map(Drift::words);
    let counted_from_ns = intervals.first().map_or(0, |interval| interval.start_ns);
    let at_ns = drift.and_then(|drift| drift.changed_at_ns.checked_sub(counted_from_ns));
    let series = Series {
        name: "throughput".into(),
        unit: Unit::BytesPerSecond,
        interval_ns: 1_000_000_000,
        values: intervals.iter().map(IntervalBytes::rate).collect(),
        marks: at_ns
            .zip(words.clone())
            .map(|(at_ns, words)| SeriesMark { at_ns, words })
            .into_iter()
            .collect(),
    };
    let evidence = drift.iter().flat_map(|drift| &drift.evidence).cloned();
    (vec![series], words.into_iter().chain(evidence).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use vocabulary::kind::{KeyRole, Keys, WorkloadSpec, Written};

    use super::*;
    use crate::dbench::drift::DriftCause;

    /// Loads as plans have them that were stored before the kinds had a table.
    #[test]
    fn workloads_of_stored_plans_open_and_keep_their_form() {
        let stored = serde_json::json!([
            { "kind": "command", "command": ["tar", "xf", "x.tar"] },
            { "kind": "command", "command": { "shell": ["sh"], "line": "true" } },
            {
                "kind": "objects", "path": "a.obj", "program": "Command { 2.times { New(4K); }; }",
                "store": "files", "scale": 0.5, "verify": true, "block_size_bytes": 4096,
                "sync_puts": false,
            },
            { "kind": "tree", "source": { "tarball": "/linux.tar" } },
            {
                "kind": "tree", "source": { "synthetic": { "files": 9, "seed": 0 } },
                "facts": {
                    "archive_bytes": 1, "files": 9, "others": 1, "file_bytes": 1, "block_bytes": 1,
                },
            },
            { "kind": "fio", "text": "rw=read size=1M" },
            {
                "kind": "fio-matrix", "size_bytes": 1 << 30, "cell_ns": 3_000_000_000_u64,
                "block_sizes_bytes": [4096], "engines": ["libaio", "io_uring"],
            },
            { "kind": "dbench", "clients": 4, "seconds": 60 },
            { "kind": "dbench-replay", "clients": 4, "seconds": 60, "load_file": "client.txt" },
            { "kind": "bonnie", "size_bytes": 1 << 30, "files": 16 },
        ]);
        let mut loads: Vec<WorkloadSpec> = serde_json::from_value(stored.clone()).unwrap();
        for load in &mut loads {
            KINDS.parse(load).unwrap();
            assert!(!load.parsed().description().metrics.is_empty(), "{load:?}");
            assert_eq!(load.kind == "command", load.command().is_some(), "{load:?}");
        }
        assert_eq!(loads[7].counted_seconds(), Some(60.0));
        assert_eq!(serde_json::to_value(&loads).unwrap(), stored);
        let refused = |stored: serde_json::Value| {
            KINDS.parse(&mut serde_json::from_value(stored).unwrap()).unwrap_err()
        };
        let error = refused(serde_json::json!({ "kind": "nap" }));
        assert!(error.contains("'nap'") && error.contains("dbench-replay"), "{error}");
        let error = refused(serde_json::json!({ "kind": "dbench", "clients": "all" }));
        assert!(error.starts_with("the options of the workload dbench: "), "{error}");
    }

    /// A workload's process has another working directory than the user, and resumed studies too.
    #[test]
    fn no_kind_keeps_a_relative_path() {
        let texts = |value: &serde_json::Value| -> Vec<String> {
            let mut found = Vec::new();
            let mut left = vec![value.clone()];
            while let Some(value) = left.pop() {
                match value {
                    serde_json::Value::String(text) => found.push(text),
                    serde_json::Value::Array(list) => left.extend(list),
                    serde_json::Value::Object(map) => left.extend(map.into_iter().map(|(_, v)| v)),
                    _ => {}
                }
            }
            found
        };
        let here = std::env::current_dir().unwrap().join("some/file");
        let mut kinds_with_a_path = 0;
        for kind in KINDS.0 {
            for key in kind.keys.iter().filter(|key| key.role == KeyRole::Load) {
                for typed in ["some/file", "1:some/file"] {
                    let keys = Keys::from([(key.name.to_string(), typed.into())]);
                    let parsed = kind.parse(&Written { keys: &keys, name: None });
                    let Ok(load) = parsed else { continue };
                    let texts = texts(&serde_json::to_value(&load).unwrap());
                    assert!(
                        !texts.iter().any(|text| text == "some/file"),
                        "{}: {texts:?}",
                        kind.name
                    );
                    kinds_with_a_path +=
                        usize::from(texts.iter().any(|text| Path::new(text) == here));
                }
            }
        }
        assert_eq!(kinds_with_a_path, 4, "objects, tree, fio and dbench-replay name files");
    }

    #[test]
    fn a_drift_has_its_mark_and_its_words() {
        let counted = [6, 7].map(|second| IntervalBytes {
            start_ns: second * 1_000_000_000,
            duration_ns: 1_000_000_000,
            bytes: 100 + second,
        });
        let (series, findings) = throughput_over_time(&counted, None);
        assert_eq!((series[0].values.as_slice(), series[0].marks.len()), (&[106.0, 107.0][..], 0));
        assert!(findings.is_empty());
        let drift = Drift {
            changed_at_ns: 30_000_000_000,
            early_bytes_per_second: 100e6,
            late_bytes_per_second: 69e6,
            change: -0.31,
            cause: DriftCause::Device,
            evidence: vec!["figures".into()],
        };
        let words = "throughput sank by 31 % after 30 s (95.4 to 65.8 MiB/s): the device did the same work more slowly";
        let (series, findings) = throughput_over_time(&counted, Some(&drift));
        assert_eq!(series[0].marks, [SeriesMark { at_ns: 24_000_000_000, words: words.into() }]);
        assert_eq!(findings, [words, "figures"]);
        // Within a warm-up, of which no series is kept.
        let late =
            counted.map(|one| IntervalBytes { start_ns: one.start_ns + 31_000_000_000, ..one });
        assert!(throughput_over_time(&late, Some(&drift)).0[0].marks.is_empty());
    }
}
