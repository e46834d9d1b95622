//! dbench and its replay: the throughput is compared. Of the installed dbench its own table and output
//! are kept, of the replay the latency of every operation.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, Describe, Description, Durability, Form, FromKeys, KeyError, Keys, Needs, Preflight,
    Run, WorkloadKey, WorkloadKind, Written, directory_of, options_without,
};
use vocabulary::path::UserPath;
use vocabulary::report::{
    Latency, Metric, OVERALL_OPERATION, Unit, WorkloadReport, operations_without_syncs,
};
use vocabulary::words::{counted, thousands};
use vocabulary::workload::{Loss, WorkloadTask};

use super::{histogram_log, throughput_over_time, tools};
use crate::dbench::drift::{IntervalBytes, drift_of};
use crate::dbench::durable;
use crate::dbench::real::{Dbench, DbenchReport, dbench, packaged_load};
use crate::dbench::replay::Second;
use crate::dbench::{
    DbenchReplay, LoadFile, OperationKind, PACKAGED_LOAD_FILE, ReplayPhase, ReplayReport, replay,
    warmup_seconds,
};
use crate::tool::WorkloadTool;
use measure::acknowledge::Acknowledger;
use measure::latency::LatencyRecording;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<DbenchWorkload>(
    "dbench",
    &[
        WorkloadKey::load(
            "dbench",
            Form::Whole("CLIENTS"),
            "Run the installed dbench with this number of clients.",
        ),
        TIME,
    ],
    &[],
)
.enclosed();

/// Of its replay, which is kurabe's own.
pub(super) const REPLAY: WorkloadKind = WorkloadKind::of::<DbenchWorkload>(
    "dbench-replay",
    &[
        WorkloadKey::load(
            REPLAY_KEY,
            Form::Text("CLIENTS[:LOADFILE]"),
            "Replay a dbench load file, with percentiles (docs/reference/dbench-replay.md).",
        ),
        TIME,
    ],
    &[],
);

const REPLAY_KEY: &str = "dbench-replay";

/// The key of what dbench and its replay count.
const TIME: WorkloadKey =
    WorkloadKey::option("time", Form::Text("TIME"), "Time that is counted [default: 60s].");

/// A run of dbench or of its replay.
#[derive(Serialize, Deserialize)]
struct DbenchWorkload {
    clients: u32,
    /// Seconds that are counted, after dbench's own warm-up or one as long.
    seconds: u32,
    /// The load file of a replay; the installed dbench takes its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    load_file: Option<UserPath>,
}

impl FromKeys for DbenchWorkload {
    fn parse(written: &Written<'_>) -> Result<DbenchWorkload, KeyError> {
        let seconds = seconds(written)?;
        let Some(text) = written.text(REPLAY_KEY) else {
            let clients = clients("dbench", written.whole("dbench").unwrap_or_default())?;
            return Ok(DbenchWorkload { clients, seconds, load_file: None });
        };
        let error = |problem: String| KeyError::new(REPLAY_KEY, problem);
        let (count, load_file) = match text.split_once(':') {
            Some((count, file)) if !file.is_empty() => (count, file),
            Some(_) => {
                let problem = "names no load file after ':'; leave ':' out for dbench's own";
                return Err(error(problem.into()));
            }
            None => (text, PACKAGED_LOAD_FILE),
        };
        let count = count.parse().map_err(|_| {
            error(format!("'{count}' is no number of clients; write CLIENTS[:LOADFILE]"))
        })?;
        let clients = clients(REPLAY_KEY, count)?;
        Ok(DbenchWorkload { clients, seconds, load_file: Some(UserPath::typed(load_file)) })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let time = Written { keys, name: None }.duration("time", SECONDS_DEFAULT)?;
        let seconds = ((time.as_secs_f64() * factor).round() as u64).max(1);
        keys.insert("time".into(), format!("{seconds}s").into());
        Ok(())
    }
}

impl Describe for DbenchWorkload {
    fn description(&self) -> Description {
        let (clients, seconds) = (counted(self.clients as usize, "client"), self.seconds);
        // The operations of dbench's table, of which the replay has the latencies too.
        let operations = OperationKind::counted().map(|operation| operation.to_string());
        Description {
            metrics: metrics(0.0, 0.0).into_iter().map(|metric| metric.name).collect(),
            operations: operations.chain([OVERALL_OPERATION.into()]).collect(),
            amounts: vec![Amount::new("the counted time", seconds.into(), format!("{seconds} s"))],
            amount: Some(format!("{clients}, {seconds} s counted")),
            settings: options_without(self, &["seconds"]),
            lasts_long: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let path = self.load_file.as_deref().unwrap_or(Path::new(PACKAGED_LOAD_FILE));
        let mut entries = vec![
            ("clients", self.clients.to_string()),
            ("load file", path.display().to_string()),
            ("warm-up", format!("{} s", warmup_seconds(self.seconds))),
            ("counted", format!("{} s, over and over the load file", self.seconds)),
        ];
        let Some(file) = self.file()? else {
            let unknown = "the size of its files is not known in advance\n";
            return Ok(capacity::lines(&entries) + unknown);
        };
        entries.push(("operations of a pass", file.operations.len().to_string()));
        let most = format!("at most {}", capacity::bytes_text(file.peak_bytes()));
        entries.push(("files of a client", most));
        Ok(capacity::lines(&entries) + &capacity::verdict(self.needed_bytes(&file), capacity))
    }
}

impl Preflight for DbenchWorkload {
    fn read(&mut self) -> Result<(), String> {
        self.load_file.as_deref().map_or(Ok(()), |path| parse(path).map(drop))
    }

    fn needs(&self) -> Needs {
        let Some(path) = &self.load_file else { return tools(&[WorkloadTool::Dbench]) };
        let mut needs = Needs { inputs: vec![path.to_path_buf()], ..Needs::default() };
        if !path.is_file() {
            needs.missing.push(format!(
                "the load file {} is not there; dbench brings one; {}",
                path.display(),
                trust::program::how_to_install(&[WorkloadTool::Dbench.package()])
            ));
        }
        needs
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        let Some(file) = self.file()? else { return Ok(()) };
        let needer = format!("the files of {} clients take", self.clients);
        let remedy = "take fewer clients, or a larger device";
        capacity::check(&needer, self.needed_bytes(&file), capacity, remedy)
    }
}

impl Run for DbenchWorkload {
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let directory = directory_of(&task.target)?;
        if let Some(path) = &self.load_file {
            let load_file = parse(path)?;
            let mut plan = self.replay_of(&load_file, directory, task.device.as_deref());
            plan.acknowledger = Acknowledger::of(task)?;
            let (report, latencies) = replay(&plan, stop)?;
            let note = (report.passes == 0).then(|| partial_pass(&load_file));
            let note_checked_by = Some(OPERATIONS.into());
            return Ok(WorkloadReport { note, note_checked_by, ..of_replay(&report, &latencies)? });
        }
        let (clients, execute_seconds) = (self.clients, self.seconds);
        let report = dbench(&Dbench { directory, clients, execute_seconds }, stop)?;
        if report.counted_bytes_per_second() <= 0.0 {
            return Err("dbench counted nothing; give it more time by --time".into());
        }
        let mut translated = translate(&report);
        translated.note_checked_by = Some(OPERATIONS.into());
        translated.note = packaged_load()
            .filter(|file| report.lines_max() < file.operations.len() as u64)
            .map(|file| partial_pass(&file));
        Ok(translated)
    }

    /// The installed dbench says nothing of its syncs.
    fn durability(&self) -> Option<&dyn Durability> {
        self.load_file.is_some().then_some(self as &dyn Durability)
    }
}

impl Durability for DbenchWorkload {
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        Ok(durable::find_loss(directory_of(&task.target)?, acknowledged))
    }
}

impl DbenchWorkload {
    /// The load file; none where dbench's own cannot be read here.
    fn file(&self) -> Result<Option<LoadFile>, String> {
        match &self.load_file {
            Some(path) => parse(path).map(Some),
            None => Ok(packaged_load()),
        }
    }

    fn needed_bytes(&self, file: &LoadFile) -> u64 {
        file.peak_bytes().saturating_mul(self.clients.into())
    }

    /// The replay that is to dbench's own run what the workload asks for: as long a warm-up, as many
    /// clients, as long a count.
    fn replay_of<'a>(
        &self,
        load: &'a LoadFile,
        directory: &'a Path,
        device: Option<&'a Path>,
    ) -> DbenchReplay<'a> {
        DbenchReplay {
            load,
            directory,
            device,
            clients: self.clients,
            warmup: Duration::from_secs(warmup_seconds(self.seconds).into()),
            execute: Duration::from_secs(self.seconds.into()),
            acknowledger: None,
        }
    }
}

/// Reads a load file; the error has its name and line.
fn parse(path: &Path) -> Result<LoadFile, String> {
    let text = trust::file::read(path, trust::file::TEXT_BYTES_MAX)
        .map_err(|refused| format!("load file {refused}; Debian's is in the package dbench"))?;
    LoadFile::parse(&text)
        .map_err(|error| format!("load file {}:{}: {}", path.display(), error.line, error.reason))
}

/// Seconds that dbench counts by default; the publication's were 600.
const SECONDS_DEFAULT: &str = "60s";

/// As many clients as can be run.
fn clients(key: &str, count: u32) -> Result<u32, KeyError> {
    match count {
        1..=10_000 => Ok(count),
        _ => Err(KeyError::new(key, format!("{count} clients cannot be run; give 1 to 10000"))),
    }
}

/// The seconds under the key [`TIME`].
fn seconds(written: &Written<'_>) -> Result<u32, KeyError> {
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

/// Name of the figure that counts operations, and not their bytes.
const OPERATIONS: &str = "operations";

/// The figures that are compared, of dbench and of its replay: the bytes and the operations of the
/// whole counted time.
fn metrics(bytes_per_second: f64, operations_per_second: f64) -> Vec<Metric> {
    let figure = |name: &str, value, unit| Metric::new(name, value, unit);
    vec![
        figure("throughput", bytes_per_second, Unit::BytesPerSecond),
        figure(OPERATIONS, operations_per_second, Unit::OperationsPerSecond),
    ]
}

/// What a reader of the throughputs must know when no client came once through the load file: the
/// same words for all contenders, so that they are said once.
fn partial_pass(file: &LoadFile) -> String {
    format!(
        "no client finished the load file's {} operations once, so a fast contender did other operations than a slow one; by '{OPERATIONS}' the verdicts differ (--verbose)",
        thousands(file.operations.len() as u64)
    )
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

fn translate(report: &DbenchReport) -> WorkloadReport {
    // As of the replay: the warm-up is no part of what is judged as the run's beginning.
    let drift = drift_of(&report.series(), &[]);
    let (series, mut findings) = throughput_over_time(&report.counted_series(), drift.as_ref());
    findings.extend(report.stall_after_last_line());
    findings.extend(report.complaints.first().map(|complaint| {
        format!("{} complaints, the first: {complaint}", report.complaints.len())
    }));
    let latencies = latencies(report);
    WorkloadReport {
        operations: Some(operations_without_syncs(&latencies)),
        metrics: metrics(report.counted_bytes_per_second(), report.counted_operations_per_second()),
        latencies,
        series,
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..WorkloadReport::default()
    }
}

fn of_replay(
    report: &ReplayReport,
    recording: &LatencyRecording,
) -> Result<WorkloadReport, String> {
    let length_ns = report.length_ns(ReplayPhase::Execute);
    let seconds = || report.seconds_of(ReplayPhase::Execute);
    let per_second = |figure: fn(&Second) -> u64| {
        seconds().map(figure).sum::<u64>() as f64 * 1e9 / length_ns.max(1) as f64
    };
    let intervals: Vec<IntervalBytes> = seconds().map(IntervalBytes::from).collect();
    let (series, mut findings) = throughput_over_time(&intervals, report.drift.as_ref());
    if report.opened_unexpectedly + report.reads_short > 0 {
        findings.push(format!(
            "{} opens that were to fail did not, {} reads were short",
            report.opened_unexpectedly, report.reads_short
        ));
    }
    let latencies = super::latencies(&recording.summary());
    Ok(WorkloadReport {
        operations: Some(operations_without_syncs(&latencies)),
        metrics: metrics(per_second(|second| second.bytes), per_second(|second| second.operations)),
        latencies,
        series,
        findings,
        written_bytes: Some(report.written_bytes),
        histogram_log: Some(histogram_log(recording, length_ns)?),
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..WorkloadReport::default()
    })
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

    #[test]
    fn the_replay_warms_up_as_long_as_dbench_says_that_it_does() {
        let file = LoadFile::parse(b"Mkdir \"\\clients\" NT_STATUS_OK\n").unwrap();
        // Of runs of dbench 4.0: "Running for 600 seconds ... and minimum warmup 120 secs".
        for (seconds, warmup) in [(600, 120), (9, 1), (3, 0)] {
            let load = DbenchWorkload {
                load_file: Some(UserPath::typed("client.txt")),
                clients: 4,
                seconds,
            };
            let replay = load.replay_of(&file, Path::new("/nowhere"), None);
            assert_eq!(replay.warmup.as_secs(), warmup, "{seconds} s");
            assert_eq!(replay.execute.as_secs(), u64::from(seconds));
        }
    }
}
