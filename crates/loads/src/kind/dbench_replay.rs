//! kurabe's replay of a dbench load file: throughput and the latency of every operation.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::capacity::Capacity;
use vocabulary::kind::{
    Amount, Form, Generator, Key, KeyError, Keys, Kind, Written, directory_of, options_without,
};
use vocabulary::load::{LoadTask, Loss};
use vocabulary::report::LoadReport;

use super::{dbench, histogram_log, latencies, throughput_over_time};
use crate::acknowledge::Acknowledger;
use crate::dbench::drift::Interval;
use crate::dbench::durable;
use crate::dbench::replay::Second;
use crate::dbench::{
    LoadFile, PACKAGED_LOAD_FILE, Phase, Replay, ReplayReport, replay, warmup_seconds,
};
use crate::latency::Recording;
use crate::tool::Tool;

pub(super) const KIND: Kind = Kind::of::<DbenchReplayLoad>(
    "dbench-replay",
    &[
        Key::load(
            "dbench-replay",
            Form::Text("CLIENTS[:LOADFILE]"),
            "Replay a dbench load file, with percentiles (docs/dbench-replay.md).",
        ),
        dbench::TIME,
    ],
    &[],
);

/// A replay of a dbench load file.
#[derive(Serialize, Deserialize)]
struct DbenchReplayLoad {
    /// Clients.
    clients: u32,
    /// Seconds that are counted, after a warm-up as long as dbench's own.
    seconds: u32,
    /// The load file.
    load_file: PathBuf,
}

impl Generator for DbenchReplayLoad {
    fn parse(written: &Written<'_>) -> Result<DbenchReplayLoad, KeyError> {
        let error = |problem: String| KeyError::new("dbench-replay", problem);
        let text = written.text("dbench-replay").unwrap_or_default();
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
        Ok(DbenchReplayLoad {
            clients: dbench::clients("dbench-replay", count)?,
            seconds: dbench::seconds(written)?,
            load_file: load_file.into(),
        })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        dbench::scale_seconds(keys, factor)
    }

    fn amounts(&self) -> Vec<Amount> {
        vec![dbench::counted_time(self.seconds)]
    }

    fn settings(&self) -> Value {
        options_without(self, &["seconds"])
    }

    fn amount(&self) -> Option<String> {
        Some(dbench::clients_words(self.clients, self.seconds))
    }

    fn read(&mut self) -> Result<(), String> {
        parse(&self.load_file).map(drop)
    }

    fn missing(&self) -> Vec<String> {
        match self.load_file.is_file() {
            true => Vec::new(),
            false => vec![format!(
                "the load file {} is not there; Debian's is in the package {1}: apt install {1}",
                self.load_file.display(),
                Tool::Dbench.package()
            )],
        }
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        dbench::check_clients(&parse(&self.load_file)?, self.clients, capacity)
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let file = parse(&self.load_file)?;
        let (clients, seconds) = (self.clients, self.seconds);
        Ok(dbench::clients_text(Some(&file), &self.load_file, clients, seconds, capacity))
    }

    fn metrics(&self) -> Vec<String> {
        dbench::metric_names()
    }

    fn operations(&self) -> Vec<String> {
        dbench::operation_names()
    }

    fn lasts_long(&self) -> bool {
        true
    }

    fn run(&self, task: &LoadTask, stop: &AtomicBool) -> Result<LoadReport, String> {
        let directory = directory_of(&task.target)?;
        let load_file = parse(&self.load_file)?;
        let mut plan = replay_of(self, &load_file, directory, task.device.as_deref());
        plan.acknowledger = Acknowledger::of(task)?;
        let (report, latencies) = replay(&plan, stop)?;
        let note = (report.passes == 0).then(|| dbench::partial_pass(&load_file));
        Ok(LoadReport { note, ..translate(&report, &latencies)? })
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn find_loss(&self, task: &LoadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        Ok(durable::find_loss(directory_of(&task.target)?, acknowledged))
    }
}

/// Reads a load file; the error has its name and line.
fn parse(path: &Path) -> Result<LoadFile, String> {
    let text = trust::file::read(path, trust::file::TEXT_BYTES_MAX)
        .map_err(|refused| format!("load file {refused}; Debian's is in the package dbench"))?;
    LoadFile::parse(&text)
        .map_err(|error| format!("load file {}:{}: {}", path.display(), error.line, error.reason))
}

/// The replay that is to dbench's own run what the load asks for: as long a warm-up, as many
/// clients, as long a count.
fn replay_of<'a>(
    load: &DbenchReplayLoad,
    load_file: &'a LoadFile,
    directory: &'a Path,
    device: Option<&'a Path>,
) -> Replay<'a> {
    Replay {
        load: load_file,
        directory,
        device,
        clients: load.clients,
        warmup: Duration::from_secs(warmup_seconds(load.seconds).into()),
        execute: Duration::from_secs(load.seconds.into()),
        acknowledger: None,
    }
}

fn translate(report: &ReplayReport, recording: &Recording) -> Result<LoadReport, String> {
    let length_ns = report.length_ns(Phase::Execute);
    let seconds = || report.seconds_of(Phase::Execute);
    let per_second = |figure: fn(&Second) -> u64| {
        seconds().map(figure).sum::<u64>() as f64 * 1e9 / length_ns.max(1) as f64
    };
    let intervals: Vec<Interval> = seconds().map(Interval::from).collect();
    let (series, mut findings) = throughput_over_time(&intervals, report.drift.as_ref());
    if report.opened_unexpectedly + report.reads_short > 0 {
        findings.push(format!(
            "{} opens that were to fail did not, {} reads were short",
            report.opened_unexpectedly, report.reads_short
        ));
    }
    Ok(LoadReport {
        metrics: dbench::metrics(
            per_second(|second| second.bytes),
            per_second(|second| second.operations),
        ),
        latencies: latencies(&recording.summary()),
        series,
        findings,
        histogram_log: Some(histogram_log(recording, length_ns)?),
        details: serde_json::to_value(report).expect("a report has a JSON form"),
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
            let replay = replay_of(&load, &file, Path::new("/nowhere"), None);
            assert_eq!(replay.warmup.as_secs(), warmup, "{seconds} s");
            assert_eq!(replay.execute.as_secs(), u64::from(seconds));
        }
    }
}
