//! The installed dbench: its throughput is compared, its own table and output are kept.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, Form, Generator, Key, KeyError, Keys, Kind, Written, directory_of, options_without,
};
use vocabulary::load::LoadTask;
use vocabulary::report::{Latency, LoadReport, Metric, OVERALL_OPERATION, Unit};
use vocabulary::words::{counted, thousands};

use super::{missing_tools, programs_of, throughput_over_time};
use crate::dbench::drift::drift_of;
use crate::dbench::real::{Dbench, DbenchReport, dbench, packaged_load};
use crate::dbench::{Kind as Operation, LoadFile, PACKAGED_LOAD_FILE, warmup_seconds};
use crate::tool::Tool;

pub(super) const KIND: Kind = Kind::of::<DbenchLoad>(
    "dbench",
    &[
        Key::load(
            "dbench",
            Form::Whole("CLIENTS"),
            "Run the installed dbench with so many clients.",
        ),
        TIME,
    ],
    &[],
)
.enclosed();

/// The key of what dbench and its replay count.
pub(super) const TIME: Key =
    Key::option("time", Form::Text("TIME"), "Time that is counted [default: 60s].");

/// A dbench run.
#[derive(Serialize, Deserialize)]
struct DbenchLoad {
    /// Clients.
    clients: u32,
    /// Seconds that are counted, after dbench's own warm-up.
    seconds: u32,
}

impl Generator for DbenchLoad {
    fn parse(written: &Written<'_>) -> Result<DbenchLoad, KeyError> {
        let count = written.whole("dbench").unwrap_or_default();
        Ok(DbenchLoad { clients: clients("dbench", count)?, seconds: seconds(written)? })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        scale_seconds(keys, factor)
    }

    fn amounts(&self) -> Vec<Amount> {
        vec![counted_time(self.seconds)]
    }

    fn settings(&self) -> Value {
        options_without(self, &["seconds"])
    }

    fn amount(&self) -> Option<String> {
        Some(clients_words(self.clients, self.seconds))
    }

    fn missing(&self) -> Vec<String> {
        missing_tools(&[Tool::Dbench])
    }

    fn programs(&self) -> Vec<PathBuf> {
        programs_of(&[Tool::Dbench])
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        Tool::Dbench.locate()?;
        match packaged_load() {
            Some(file) => check_clients(&file, self.clients, capacity),
            None => Ok(()),
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let path = Path::new(PACKAGED_LOAD_FILE);
        Ok(clients_text(packaged_load().as_ref(), path, self.clients, self.seconds, capacity))
    }

    fn metrics(&self) -> Vec<String> {
        metric_names()
    }

    fn operations(&self) -> Vec<String> {
        operation_names()
    }

    fn lasts_long(&self) -> bool {
        true
    }

    fn run(&self, task: &LoadTask, stop: &AtomicBool) -> Result<LoadReport, String> {
        let plan = Dbench {
            directory: directory_of(&task.target)?,
            clients: self.clients,
            execute_seconds: self.seconds,
        };
        let report = dbench(&plan, stop)?;
        if report.counted_bytes_per_second() <= 0.0 {
            return Err("dbench counted nothing; give it more time by --time".into());
        }
        let mut translated = translate(&report);
        translated.note = packaged_load()
            .filter(|file| report.lines_max() < file.operations.len() as u64)
            .map(|file| partial_pass(&file));
        Ok(translated)
    }
}

/// Seconds that dbench counts by default; the publication's were 600.
const SECONDS_DEFAULT: &str = "60s";

/// As many clients as can be run.
pub(super) fn clients(key: &str, count: u32) -> Result<u32, KeyError> {
    match count {
        1..=10_000 => Ok(count),
        _ => Err(KeyError::new(key, format!("{count} clients cannot be run; give 1 to 10000"))),
    }
}

/// The seconds under the key [`TIME`].
pub(super) fn seconds(written: &Written<'_>) -> Result<u32, KeyError> {
    let duration = written.duration("time", SECONDS_DEFAULT)?;
    match duration.as_secs() {
        seconds @ 1..=1_000_000 if duration.subsec_nanos() == 0 => Ok(seconds as u32),
        _ => {
            let text = written.text("time").unwrap_or(SECONDS_DEFAULT);
            let problem = format!("'{text}' must be whole seconds, as dbench counts them");
            Err(KeyError::new("time", problem))
        }
    }
}

/// Multiplies the seconds under the key [`TIME`].
pub(super) fn scale_seconds(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
    let time = Written { keys, name: None }.duration("time", SECONDS_DEFAULT)?;
    let seconds = ((time.as_secs_f64() * factor).round() as u64).max(1);
    keys.insert("time".into(), format!("{seconds}s").into());
    Ok(())
}

pub(super) fn counted_time(seconds: u32) -> Amount {
    Amount::new("the counted time", seconds.into(), format!("{seconds} s"))
}

pub(super) fn clients_words(clients: u32, seconds: u32) -> String {
    format!("{}, {seconds} s counted", counted(clients as usize, "client"))
}

/// Refuses more clients than there is capacity for.
pub(super) fn check_clients(
    file: &LoadFile,
    clients: u32,
    capacity: Option<&Capacity>,
) -> Result<(), String> {
    let needer = format!("the files of {clients} clients take");
    let needed_bytes = file.peak_bytes().saturating_mul(clients.into());
    capacity::check(&needer, needed_bytes, capacity, "take fewer clients, or a larger device")
}

/// The plan of dbench and of its replay.
pub(super) fn clients_text(
    file: Option<&LoadFile>,
    path: &Path,
    clients: u32,
    seconds: u32,
    capacity: Option<&Capacity>,
) -> String {
    let mut entries = vec![
        ("clients", clients.to_string()),
        ("load file", path.display().to_string()),
        ("warm-up", format!("{} s", warmup_seconds(seconds))),
        ("counted", format!("{seconds} s, over and over the load file")),
    ];
    let Some(file) = file else {
        return capacity::lines(&entries) + "what its files take cannot be told in advance\n";
    };
    entries.push(("operations of a pass", file.operations.len().to_string()));
    entries.push((
        "files of a client",
        format!("at most {}", capacity::bytes_text(file.peak_bytes())),
    ));
    let needed_bytes = file.peak_bytes().saturating_mul(clients.into());
    capacity::lines(&entries) + &capacity::verdict(needed_bytes, capacity)
}

/// The figures that are compared, of dbench and of its replay: the bytes and the operations of the
/// whole counted time.
pub(super) fn metrics(bytes_per_second: f64, operations_per_second: f64) -> Vec<Metric> {
    let figure = |name: &str, value, unit| Metric { name: name.into(), value, unit };
    vec![
        figure("throughput", bytes_per_second, Unit::BytesPerSecond),
        figure("operations", operations_per_second, Unit::OperationsPerSecond),
    ]
}

/// What a reader of the throughputs must know when no client came once through the load file: the
/// same words for all contenders, so that they are said once.
pub(super) fn partial_pass(file: &LoadFile) -> String {
    format!(
        "no client came once through the load file's {} operations, so a fast contender did other operations than a slow one; compare the metric 'operations' too",
        thousands(file.operations.len() as u64)
    )
}

/// Their names.
pub(super) fn metric_names() -> Vec<String> {
    metrics(0.0, 0.0).into_iter().map(|metric| metric.name).collect()
}

/// The operations of dbench's table, of which the replay has the latencies too.
pub(super) fn operation_names() -> Vec<String> {
    let names = Operation::counted().map(|operation| operation.to_string());
    names.chain([OVERALL_OPERATION.into()]).collect()
}

/// dbench prints milliseconds.
fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// dbench's table, and last what it says of all operations together.
fn latencies(report: &DbenchReport) -> Vec<Latency> {
    let lines = report.operations.iter().map(|line| Latency {
        operation: line.operation.clone(),
        count: line.count,
        total_ns: nanoseconds(line.average_ms).saturating_mul(line.count),
        max_ns: nanoseconds(line.maximum_ms),
        ..Latency::default()
    });
    let mut latencies: Vec<Latency> = lines.collect();
    latencies.push(Latency {
        operation: OVERALL_OPERATION.into(),
        count: latencies.iter().map(|line| line.count).sum(),
        total_ns: latencies.iter().map(|line| line.total_ns).sum(),
        // The longest time from one operation of a client to its next, which is what dbench
        // calls max_latency.
        max_ns: nanoseconds(report.longest_wait_ms()),
        ..Latency::default()
    });
    latencies
}

fn translate(report: &DbenchReport) -> LoadReport {
    // As of the replay: the warm-up is no part of what is judged as the run's beginning.
    let drift = drift_of(&report.series(), &[]);
    let (series, mut findings) = throughput_over_time(&report.counted_series(), drift.as_ref());
    findings.extend(report.stall_after_last_line());
    findings.extend(report.complaints.first().map(|complaint| {
        format!("{} complaints, the first: {complaint}", report.complaints.len())
    }));
    LoadReport {
        metrics: metrics(report.counted_bytes_per_second(), report.counted_operations_per_second()),
        latencies: latencies(report),
        series,
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines of progress in 3 s, and in the third hardly anything but one long Flush.
    fn stalled() -> DbenchReport {
        let line = |seconds: u64, lines: u64| {
            serde_json::json!({
                "phase": "execute", "clients": 4, "lines": lines, "seconds": seconds,
                "throughput_mb_per_second": 100.0, "latency_ms": 41.3,
            })
        };
        let operation = |name: &str, count: u64, longest: f64| {
            serde_json::json!({
                "operation": name, "count": count, "average_ms": 0.014, "maximum_ms": longest,
            })
        };
        serde_json::from_value(serde_json::json!({
            "version": "4.00", "throughput_mb_per_second": 100.0, "clients": 4,
            "latency_max_ms": 41.3, "counted_seconds": 3,
            "client_results": vec![serde_json::json!({ "lines": 2010, "bytes": 51_000_000 }); 4],
            "operations": [operation("WriteX", 8000, 30.0), operation("Flush", 40, 957.3)],
            "progress": [line(1, 1000), line(2, 2000)], "complaints": [],
            "finished": {
                "program": "dbench", "command": [], "exit_code": 0, "signal": null,
                "elapsed_ns": 1, "stdout": "", "stderr": "",
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_second_after_the_last_line_counts_everywhere() {
        let load = translate(&stalled());
        let metrics: Vec<(&str, f64)> =
            load.metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
        assert_eq!(metrics, [("throughput", 204e6 / 3.0), ("operations", 2680.0)]);
        assert_eq!(load.series[0].values, [100e6, 100e6, 4e6]);
        assert!(load.findings[0].contains("40 of 8040 operations"), "{:?}", load.findings);
        let all = load.latencies.last().unwrap();
        assert_eq!((all.operation.as_str(), all.max_ns), (OVERALL_OPERATION, 957_300_000));
        assert_eq!((all.count, all.total_ns), (8040, 8040 * 14_000));
    }

    #[test]
    fn what_is_less_than_a_pass_is_told_with_the_length_of_one() {
        let file = LoadFile::parse("Mkdir \"\\a\" NT_STATUS_OK\n".repeat(1234).as_bytes()).unwrap();
        assert!(partial_pass(&file).contains("the load file's 1,234 operations"));
    }
}
