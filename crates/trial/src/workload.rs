//! The loads that are more than a command: one file each.
//!
//! Each is carried out by `kurabe load`, a process of its own, so that its CPU time, memory and
//! bytes are accounted for like those of any command, and so that a bound or a stop ends it. The
//! files here translate between the laboratory's words and the load generators' own.

mod aside;
mod bonnie;
mod dbench;
mod dbench_replay;
mod fio;
mod objects;
mod room;
mod tree;

pub use room::Room;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use lab::load::{Drift, Latency, Load, LoadReport, LoadTask, OVERALL_OPERATION, Stage};
use lab::record::TIME_METRIC;
use loads::dbench::{Cause, DriftVerdict};
use loads::durable::WholeSync;
use loads::latency::{KindSummary, Recording, Summary};
use loads::tool::Tool;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::stop::Stop;

/// Bytes of a task: of the programs and jobs in it.
const TASK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a report: of the histograms, the series and the tool's own figures in it.
const REPORT_BYTES_MAX: u64 = 256 << 20;

/// The two ends of a talk with `kurabe load`: the task is its standard input, the report its
/// standard output. Both are memory without a name, which nobody else can put anything into.
#[derive(Debug)]
pub struct Talk {
    task: File,
    report: File,
}

impl Talk {
    /// Begins one.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn begin(task: &LoadTask) -> io::Result<Talk> {
        let memory =
            |name| Ok::<_, io::Error>(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?));
        let mut file = memory("kurabe-task")?;
        file.write_all(&serde_json::to_vec(task).expect("a task has a JSON form"))?;
        file.rewind()?;
        Ok(Talk { task: file, report: memory("kurabe-report")? })
    }

    /// Standard input and output of the load's process.
    ///
    /// # Errors
    ///
    /// There is no free descriptor.
    pub fn streams(&self) -> io::Result<(Stdio, Stdio)> {
        Ok((self.task.try_clone()?.into(), self.report.try_clone()?.into()))
    }

    /// What the load has reported.
    ///
    /// # Errors
    ///
    /// Nothing that could be understood, or more than a report has.
    pub fn report(mut self) -> Result<LoadReport, String> {
        let text = self
            .report
            .rewind()
            .and_then(|()| read_below(&self.report, REPORT_BYTES_MAX))
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

fn read_below(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads the files that a load names (programs, jobs) into it. Touches nothing.
///
/// # Errors
///
/// A file that cannot be read or understood; the text points at the place.
pub fn read_files(load: &mut Load) -> Result<(), String> {
    match load {
        Load::DbenchReplay(load) => dbench_replay::parse(&load.load_file).map(drop),
        Load::Objects(load) => objects::read(load),
        Load::Fio(load) => fio::read(load),
        Load::Tree(load) => tree::read(load),
        _ => Ok(()),
    }
}

/// Refuses a load that cannot run here: a tool that is missing, more data than there is room for.
/// Touches nothing. Its files must have been read.
///
/// # Errors
///
/// What is missing, with the package; or both sizes.
pub fn check(load: &Load, room: Option<&Room>) -> Result<(), String> {
    match load {
        Load::Dbench(load) => dbench::check(load, room),
        Load::DbenchReplay(load) => dbench_replay::check(load, room),
        Load::Objects(load) => objects::check(load, room),
        Load::Tree(load) => tree::check(load, room),
        Load::Fio(load) => fio::check(load, room),
        Load::FioMatrix(load) => fio::check_matrix(load, room),
        Load::Bonnie(load) => bonnie::check(load, room),
        Load::Command { .. } => Ok(()),
    }
}

/// Refuses options that the installed tool does not take, of a load whose files were read or that
/// has none. Nothing is refused where the tool is missing.
///
/// # Errors
///
/// The option and its value, with the tool's words and the next step.
pub fn check_options(load: &Load) -> Result<(), String> {
    match load {
        Load::Fio(load) => fio::check_options(load),
        _ => Ok(()),
    }
}

/// What this machine lacks for a load, a line each with the next step; empty when nothing. A
/// command's program is the caller's business.
pub fn missing(load: &Load) -> Vec<String> {
    let tools: &[Tool] = match load {
        Load::Command { .. } | Load::Objects(_) => &[],
        Load::Tree(_) => &tree::TOOLS,
        Load::Fio(_) | Load::FioMatrix(_) => &[Tool::Fio],
        Load::Dbench(_) => &[Tool::Dbench],
        Load::DbenchReplay(load) => {
            return match load.load_file.is_file() {
                true => Vec::new(),
                false => vec![format!(
                    "the load file {} is not there; Debian's is in the package {1}: apt install {1}",
                    load.load_file.display(),
                    Tool::Dbench.package()
                )],
            };
        }
        Load::Bonnie(_) => &[Tool::Bonnie],
    };
    tools
        .iter()
        .filter(|tool| tool.locate().is_err())
        .map(|tool| {
            format!(
                "'{}' is not installed; it is in the package {1}: apt install {1}",
                tool.program(),
                tool.package()
            )
        })
        .collect()
}

/// The names of the figures that a load can report, the most important first; of a load whose
/// file was read (see [`read_files`]).
pub fn metric_names(load: &Load) -> Vec<String> {
    match load {
        Load::Command { .. } => vec![TIME_METRIC.into()],
        Load::Objects(_) => objects::metric_names(),
        Load::Tree(_) => tree::metric_names(),
        Load::Fio(_) => fio::metric_names(),
        Load::FioMatrix(load) => fio::matrix_metric_names(load),
        Load::Dbench(_) | Load::DbenchReplay(_) => {
            dbench::metrics(0.0, 0.0).into_iter().map(|metric| metric.name).collect()
        }
        Load::Bonnie(_) => bonnie::metric_names(),
    }
}

/// The kinds of operation of which a load can report latencies.
pub fn operation_names(load: &Load) -> Vec<String> {
    let mut names = match load {
        Load::Command { .. } | Load::Bonnie(_) => return Vec::new(),
        Load::FioMatrix(load) => return fio::matrix_operation_names(load),
        Load::Dbench(_) | Load::DbenchReplay(_) => dbench::operation_names(),
        Load::Objects(load) => objects::operation_names(load),
        Load::Tree(_) => tree::operation_names(),
        Load::Fio(_) => fio::operation_names(),
    };
    names.push(OVERALL_OPERATION.into());
    names
}

/// Whether a load lays something out before it is measured.
pub fn has_setup(load: &Load) -> bool {
    matches!(load, Load::Tree(_) | Load::Fio(_) | Load::FioMatrix(_))
}

/// What a load is going to do, in words, and whether it fits; its files must have been read.
///
/// # Errors
///
/// A program or job that cannot be understood.
pub fn plan_text(load: &Load, room: Option<&Room>) -> Result<String, String> {
    Ok(match load {
        Load::Command { command } => {
            room::lines(&[("command", command.to_string())])
                + "what it writes cannot be told in advance\n"
        }
        Load::Objects(load) => objects::plan_text(load, room)?,
        Load::Tree(load) => tree::plan_text(load, room),
        Load::Fio(load) => fio::plan_text(load, room)?,
        Load::FioMatrix(load) => fio::plan_text_of_matrix(load, room)?,
        Load::Dbench(load) => dbench::plan_text(load, room),
        Load::DbenchReplay(load) => dbench_replay::plan_text(load, room)?,
        Load::Bonnie(load) => bonnie::plan_text(load, room),
    })
}

/// `kurabe load`: carries one part of a load out. The task is its standard input, the report its
/// standard output.
pub fn main() -> ExitCode {
    match perform() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn perform() -> Result<(), String> {
    let place = |error: &dyn std::fmt::Display| {
        format!("the task on standard input: {error}; 'kurabe trial' writes one")
    };
    let text = read_below(io::stdin(), TASK_BYTES_MAX).map_err(|error| place(&error))?;
    let task: LoadTask = serde_json::from_slice(&text).map_err(|error| place(&error))?;
    // Nothing that a tool of the load prints gets into the report.
    let mut output = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|output| {
            Ok(rustix::stdio::dup2_stdout(io::stderr()).map(|()| File::from(output))?)
        })
        .map_err(|error| format!("taking standard output for the report: {error}"))?;
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let report = match (&task.load, task.stage) {
        (Load::Dbench(load), Stage::Run) => dbench::run(load, &task.target, &stop)?,
        (Load::DbenchReplay(load), Stage::Run) => dbench_replay::run(load, &task, &stop)?,
        (Load::Objects(load), Stage::Run) => objects::run(load, &task, &stop)?,
        (Load::Tree(load), Stage::Setup) => tree::set_up(load, &task)?,
        (Load::Tree(load), Stage::Run) => tree::run(load, &task, &stop)?,
        (Load::Fio(load), Stage::Setup) => fio::set_up(load, &task, &stop)?,
        (Load::FioMatrix(load), Stage::Setup) => fio::set_up_matrix(load, &task, &stop)?,
        (Load::Fio(load), Stage::Run) => fio::run(load, &task, &stop)?,
        (Load::Bonnie(load), Stage::Run) => bonnie::run(load, &task.target, &stop)?,
        (Load::FioMatrix(load), Stage::Run) => fio::run_matrix(load, &task, &stop)?,
        (load, stage) => {
            return Err(format!("a {} load has no part '{stage:?}'", load.kind()));
        }
    };
    let json = serde_json::to_vec(&report).expect("a report has a JSON form");
    output.write_all(&json).map_err(|error| format!("writing the report: {error}"))
}

/// The latencies of a recording, by kind, the overall ones last.
fn latencies(summary: &Summary) -> Vec<Latency> {
    let mut all: Vec<Latency> = summary.kinds.iter().map(latency).collect();
    all.push(Latency { operation: OVERALL_OPERATION.into(), ..latency(&summary.overall) });
    all
}

fn latency(kind: &KindSummary) -> Latency {
    Latency {
        operation: kind.kind.clone(),
        count: kind.count,
        bytes: kind.bytes,
        total_ns: kind.total_ns,
        p5_ns: kind.p5_ns,
        p50_ns: kind.p50_ns,
        p90_ns: kind.p90_ns,
        p95_ns: kind.p95_ns,
        p99_ns: kind.p99_ns,
        p99_9_ns: kind.p99_9_ns,
        p99_99_ns: kind.p99_99_ns,
        max_ns: kind.max_ns,
    }
}

/// The recording's histograms in HdrHistogram's log format.
fn histogram_log(recording: &Recording, elapsed_ns: u64) -> Result<String, String> {
    let mut log = Vec::new();
    recording
        .write_log(&mut log, std::time::SystemTime::now(), elapsed_ns)
        .map_err(|error| format!("writing the histograms: {error}"))?;
    String::from_utf8(log).map_err(|error| format!("writing the histograms: {error}"))
}

/// The directory of a target; loads that need files are never given a device.
fn directory_of(target: &lab::load::Target) -> Result<&Path, String> {
    match target {
        lab::load::Target::Directory(directory) => Ok(directory),
        lab::load::Target::Device(device) | lab::load::Target::Minfs(device) => {
            Err(format!("this load needs files, and {} is a device", device.display()))
        }
    }
}

/// What makes everything on the target durable.
fn whole_sync(task: &lab::load::LoadTask) -> WholeSync {
    task.sync_command.clone().map_or(WholeSync::Call, WholeSync::Command)
}

/// Bytes in a MiB.
const MEBIBYTE: f64 = 1_048_576.0;

/// What a verdict on drift comes to, and the findings for a reader: when, how much and why, and
/// the figures behind that. A steady or a short series has none.
///
/// `counted_from_ns`: where the series that is kept begins, which a warm-up comes before.
fn drift_of(verdict: &DriftVerdict, counted_from_ns: u64) -> (Drift, Vec<String>) {
    let drift = match verdict {
        DriftVerdict::TooShort { .. } => return (Drift::TooShort, Vec::new()),
        DriftVerdict::Steady { .. } => return (Drift::NoneCertain, Vec::new()),
        DriftVerdict::Drifted(drift) => drift,
    };
    let cause = match drift.cause {
        Cause::CacheFilling => "the filling of the page cache accounts for it",
        Cause::Space => "the file system ran short of space",
        Cause::Device => "the device did the same work more slowly",
        Cause::MoreDeviceWork => "the file system made the device move more for the same work",
        Cause::AboveDevice => "the device was busy for less of the time: the cause lies above it",
        Cause::Unexplained => "the counters do not account for it",
    };
    let words = format!(
        "throughput {} by {:.0} % after {:.0} s ({:.1} to {:.1} MiB/s): {cause}",
        if drift.change < 0.0 { "sank" } else { "rose" },
        drift.change.abs() * 100.0,
        drift.changed_at_ns as f64 / 1e9,
        drift.early_bytes_per_second / MEBIBYTE,
        drift.late_bytes_per_second / MEBIBYTE,
    );
    let findings = std::iter::once(words.clone()).chain(drift.evidence.iter().cloned()).collect();
    let at_ns = drift.changed_at_ns.checked_sub(counted_from_ns);
    (Drift::Changed { words, at_ns }, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_a_steady_series_and_a_short_one_are_three_things() {
        assert_eq!(drift_of(&DriftVerdict::TooShort { intervals: 4 }, 0).0, Drift::TooShort);
        let steady = DriftVerdict::Steady { change: 0.02, statistic: 1.0 };
        assert_eq!(drift_of(&steady, 0), (Drift::NoneCertain, Vec::new()));
        let drifted = serde_json::json!({
            "verdict": "drifted", "changed_at_ns": 30_000_000_000_u64, "shape": "step",
            "early_bytes_per_second": 100e6, "late_bytes_per_second": 69e6, "change": -0.31,
            "statistic": 50.0, "cause": "device", "shares": null, "evidence": ["figures"],
        });
        let drifted: DriftVerdict = serde_json::from_value(drifted).unwrap();
        let (drift, findings) = drift_of(&drifted, 6_000_000_000);
        let words = "throughput sank by 31 % after 30 s (95.4 to 65.8 MiB/s): the device did the same work more slowly";
        let at_ns = Some(24_000_000_000);
        assert_eq!(drift, Drift::Changed { words: words.into(), at_ns });
        // Within a warm-up, of which no series is kept.
        let (Drift::Changed { at_ns, .. }, _) = drift_of(&drifted, 31_000_000_000) else {
            panic!()
        };
        assert_eq!(at_ns, None);
        assert_eq!(findings, [words, "figures"]);
    }
}
