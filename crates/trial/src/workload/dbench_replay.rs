//! kurabe's replay of a dbench load file: throughput and the latency of every operation.

use std::path::Path;
use std::time::Duration;

use lab::load::{DbenchReplayLoad, LoadReport, LoadTask, Series, Unit};
use loads::dbench::{
    LoadFile, Phase, Replay, ReplayOutcome, Semantics, SystemCounters, replay, warmup_seconds,
};

use super::room::Room;
use super::{dbench, directory_of, drift_of, histogram_log, latencies};
use crate::stop::Stop;

/// Reads a load file; the error has its name and line.
pub(super) fn parse(path: &Path) -> Result<LoadFile, String> {
    let text = trust::file::read(path, trust::file::TEXT_BYTES_MAX)
        .map_err(|refused| format!("load file {refused}; Debian's is in the package dbench"))?;
    LoadFile::parse(&text)
        .map_err(|error| format!("load file {}:{}: {}", path.display(), error.line, error.reason))
}

/// Whether the clients fit.
pub(super) fn check(load: &DbenchReplayLoad, room: Option<&Room>) -> Result<(), String> {
    dbench::check_clients(&parse(&load.load_file)?, load.clients, room)
}

/// What it will do, and whether it fits.
pub(super) fn plan_text(load: &DbenchReplayLoad, room: Option<&Room>) -> Result<String, String> {
    let file = parse(&load.load_file)?;
    Ok(dbench::clients_text(Some(&file), &load.load_file, load.clients, load.seconds, room))
}

pub(super) fn run(
    load: &DbenchReplayLoad,
    task: &LoadTask,
    stop: &Stop,
) -> Result<LoadReport, String> {
    let directory = directory_of(&task.target)?;
    let load_file = parse(&load.load_file)?;
    let plan = replay_of(load, &load_file, directory);
    let mut counters = match &task.device {
        Some(device) => SystemCounters::with_device(directory, device),
        None => SystemCounters::new(directory),
    };
    let outcome = replay(&plan, &mut counters, stop.flag(), &mut |_| ())
        .map_err(|error| error.to_string())?;
    let has_passed = outcome.report.passes > 0;
    let mut translated = translate(outcome)?;
    translated.caveat = (!has_passed).then(|| dbench::partial_pass(&load_file));
    Ok(translated)
}

/// The replay that is to dbench's own run what the load asks for: as long a warm-up, as many
/// clients, as long a count.
fn replay_of<'a>(
    load: &DbenchReplayLoad,
    load_file: &'a LoadFile,
    directory: &'a Path,
) -> Replay<'a> {
    Replay {
        load: load_file,
        directory,
        clients: load.clients,
        warmup: Duration::from_secs(warmup_seconds(load.seconds).into()),
        execute: Duration::from_secs(load.seconds.into()),
        semantics: Semantics::default(),
        rate_bytes_per_second: None,
    }
}

fn translate(outcome: ReplayOutcome) -> Result<LoadReport, String> {
    let report = outcome.report;
    let throughput = report
        .seconds
        .iter()
        .filter(|second| second.phase == Phase::Execute)
        .map(|second| second.bytes as f64 * 1e9 / second.duration_ns.max(1) as f64)
        .collect();
    let counted = report.seconds.iter().find(|second| second.phase == Phase::Execute);
    let in_count = report.seconds.iter().filter(|second| second.phase == Phase::Execute);
    let operations: u64 = in_count.map(|second| second.operations).sum();
    let counted_from_ns = counted.map_or(0, |second| second.start_ns);
    let (drift, mut findings) = drift_of(&report.drift, counted_from_ns);
    if report.opened_unexpectedly + report.reads_short > 0 {
        findings.push(format!(
            "{} opens that were to fail did not, {} reads were short",
            report.opened_unexpectedly, report.reads_short
        ));
    }
    let pace = report.seconds.iter();
    Ok(LoadReport {
        pace: pace.map(|second| dbench::pace_of(second.into(), second.operations)).collect(),
        metrics: dbench::metrics(
            report.throughput_bytes_per_second,
            operations as f64 * 1e9 / report.execute_ns.max(1) as f64,
        ),
        latencies: latencies(&report.latencies),
        series: vec![Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: throughput,
        }],
        drift: Some(drift),
        findings,
        histogram_log: Some(histogram_log(&outcome.execute, report.execute_ns)?),
        details: serde_json::to_value(&report).expect("a report has a JSON form"),
        ..LoadReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replay_warms_up_as_long_as_dbench_says_that_it_does() {
        let file = LoadFile::parse(b"Mkdir \"\\clients\" NT_STATUS_OK\n").unwrap();
        // Of runs of dbench 4.0: "Running for 600 seconds ... and minimum warmup 120 secs".
        for (seconds, warmup) in [(600, 120), (9, 1), (3, 0)] {
            let load = DbenchReplayLoad { load_file: "client.txt".into(), clients: 4, seconds };
            let replay = replay_of(&load, &file, Path::new("/nowhere"));
            assert_eq!(replay.warmup.as_secs(), warmup, "{seconds} s");
            assert_eq!(replay.execute.as_secs(), u64::from(seconds));
        }
    }
}
