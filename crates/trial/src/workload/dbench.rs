//! The installed dbench: its throughput is compared, its own table and output are kept.

use std::path::Path;

use lab::load::{
    AverageLatency, DbenchLoad, LoadReport, Metric, OVERALL_OPERATION, Pace, Series, Target, Unit,
};
use loads::dbench::drift::Interval;
use loads::dbench::real::{Dbench, DbenchReport, dbench};
use loads::dbench::{Kind, LoadFile, PACKAGED_LOAD_FILE, verdict, warmup_seconds};
use loads::tool::Tool;

use super::room::{self, Room};
use super::{directory_of, drift_of};
use crate::stop::Stop;

/// The load file that dbench takes, as far as it can be read here.
fn load_file(load: &DbenchLoad) -> Option<LoadFile> {
    let path = load.load_file.as_deref().unwrap_or(Path::new(PACKAGED_LOAD_FILE));
    LoadFile::parse(&std::fs::read(path).ok()?).ok()
}

/// Whether dbench is there, and whether its clients fit.
pub(super) fn check(load: &DbenchLoad, room: Option<&Room>) -> Result<(), String> {
    Tool::Dbench.locate().map_err(|error| error.to_string())?;
    if let Some(path) = load.load_file.as_ref().filter(|path| !path.is_file()) {
        return Err(format!("load file {}: not found", path.display()));
    }
    match load_file(load) {
        Some(file) => check_clients(&file, load.clients, room),
        None => Ok(()),
    }
}

/// Refuses more clients than there is room for.
pub(super) fn check_clients(
    file: &LoadFile,
    clients: u32,
    room: Option<&Room>,
) -> Result<(), String> {
    let needer = format!("the files of {clients} clients take");
    let needed_bytes = file.peak_bytes().saturating_mul(clients.into());
    room::check(&needer, needed_bytes, room, "take fewer clients, or a larger device")
}

/// What it will do, and whether it fits.
pub(super) fn plan_text(load: &DbenchLoad, room: Option<&Room>) -> String {
    let path = load.load_file.as_deref().unwrap_or(Path::new(PACKAGED_LOAD_FILE));
    clients_text(load_file(load).as_ref(), path, load.clients, load.seconds, room)
}

/// The plan of dbench and of its replay.
pub(super) fn clients_text(
    file: Option<&LoadFile>,
    path: &Path,
    clients: u32,
    seconds: u32,
    room: Option<&Room>,
) -> String {
    let mut entries = vec![
        ("clients", clients.to_string()),
        ("load file", path.display().to_string()),
        ("warm-up", format!("{} s", warmup_seconds(seconds))),
        ("counted", format!("{seconds} s, over and over the load file")),
    ];
    let Some(file) = file else {
        return room::lines(&entries) + "what its files take cannot be told in advance\n";
    };
    entries.push(("operations of a pass", file.operations.len().to_string()));
    entries.push(("files of a client", format!("at most {}", room::bytes_text(file.peak_bytes()))));
    let needed_bytes = file.peak_bytes().saturating_mul(clients.into());
    room::lines(&entries) + &room::verdict(needed_bytes, room)
}

pub(super) fn run(load: &DbenchLoad, target: &Target, stop: &Stop) -> Result<LoadReport, String> {
    let plan = Dbench {
        directory: directory_of(target)?,
        clients: load.clients,
        execute_seconds: load.seconds,
        load_file: load.load_file.as_deref().map(Path::new),
        options: &[],
    };
    let report = dbench(&plan, stop.flag(), &mut |_| ()).map_err(|error| error.to_string())?;
    if report.throughput_mb_per_second <= 0.0 {
        return Err("dbench counted nothing; give it more time by --time".into());
    }
    Ok(translate(&report))
}

/// The figure that is compared, of dbench and of its replay.
pub(super) const METRIC: &str = "throughput";

/// The operations of dbench's table, of which the replay has the latencies too.
pub(super) fn operation_names() -> Vec<String> {
    Kind::ALL.iter().map(|kind| kind.name().to_string()).collect()
}

/// dbench prints milliseconds.
fn nanoseconds(ms: f64) -> f64 {
    ms * 1e6
}

/// dbench's table, and last what it says of all operations together.
fn averages(report: &DbenchReport) -> Vec<AverageLatency> {
    let mut averages: Vec<AverageLatency> = report
        .operations
        .iter()
        .map(|line| AverageLatency {
            operation: line.operation.clone(),
            count: line.count,
            average_ns: nanoseconds(line.average_ms),
            max_ns: nanoseconds(line.maximum_ms),
        })
        .collect();
    let count: u64 = averages.iter().map(|line| line.count).sum();
    let total_ns: f64 = averages.iter().map(|line| line.average_ns * line.count as f64).sum();
    averages.push(AverageLatency {
        operation: OVERALL_OPERATION.into(),
        count,
        average_ns: if count > 0 { total_ns / count as f64 } else { 0.0 },
        // The longest pause between two operations of a client, which is what dbench compares.
        max_ns: nanoseconds(report.latency_max_ms),
    });
    averages
}

/// What was done in an interval, of dbench and of its replay.
pub(super) fn pace_of(interval: Interval, operations: u64) -> Pace {
    Pace { duration_ns: interval.duration_ns, bytes: interval.bytes, operations }
}

fn translate(report: &DbenchReport) -> LoadReport {
    // As of the replay: the warm-up is no part of what is judged as the run's beginning.
    let rates = report
        .counted_series()
        .iter()
        .map(|interval| interval.bytes as f64 * 1e9 / interval.duration_ns as f64)
        .collect();
    let counted_from_ns = report.counted_series().first().map_or(0, |interval| interval.start_ns);
    let (drift, mut findings) = drift_of(&verdict(&report.series(), &[]), counted_from_ns);
    findings.extend(report.complaints.first().map(|complaint| {
        format!("{} complaints, the first: {complaint}", report.complaints.len())
    }));
    let pace = report.pace().into_iter();
    LoadReport {
        pace: pace.map(|(interval, operations)| pace_of(interval, operations)).collect(),
        metrics: vec![Metric {
            name: METRIC.into(),
            value: report.throughput_mb_per_second * 1e6,
            unit: Unit::BytesPerSecond,
        }],
        averages: averages(report),
        series: vec![Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: rates,
        }],
        drift: Some(drift),
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    }
}
