//! The process that carries a workload out: `kurabe load`.
//!
//! A workload that is more than a command is carried out by a process of its own, so that its CPU time,
//! memory and bytes are accounted for like those of any command, and so that a bound or a stop ends
//! it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::process::{ExitCode, Stdio};

use lab::spec::CommandLine;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::DumpableBehavior;
use vocabulary::kind::{Generator, LaidOut, WorkloadSpec};
use vocabulary::report::WorkloadReport;
#[cfg(doc)]
use vocabulary::workload::Loss;
use vocabulary::workload::{WorkloadStage, WorkloadTask};
use workloads::KINDS;
use workloads::enclosure::{self, Enclosure};

use crate::stop::StopFlag;
use crate::tool::StepFailure;
use crate::user::{OWN_PROGRAM, User};

/// Bytes of a task: of the programs and jobs in it.
const TASK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a report: of the histograms, the series and the tool's own figures in it.
const REPORT_BYTES_MAX: u64 = 256 << 20;

/// The two ends of a channel to `kurabe load`: the task is its standard input, the report its
/// standard output. Both are memory without a name, which nobody else can put anything into.
#[derive(Debug)]
pub struct WorkloadChannel {
    task: File,
    report: File,
    enclosure: Option<Enclosure>,
}

impl WorkloadChannel {
    pub fn begin(load: &WorkloadSpec, task: &WorkloadTask) -> io::Result<WorkloadChannel> {
        let memory =
            |name| Ok::<_, io::Error>(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?));
        let mut file = memory("kurabe-task")?;
        file.write_all(&serde_json::to_vec(&(load, task)).expect("a task has a JSON form"))?;
        file.rewind()?;
        // A user who is granted no namespaces has the workload all the same, and is told.
        let is_granted = rustix::process::geteuid().is_root() || enclosure::refusal().is_none();
        let enclosure = Enclosure::of_task(load, task).filter(|_| is_granted);
        Ok(WorkloadChannel { task: file, report: memory("kurabe-report")?, enclosure })
    }

    /// What the workload's process is kept in.
    pub fn enclosure(&self) -> Option<&Enclosure> {
        self.enclosure.as_ref()
    }

    /// Standard input and output of the workload's process.
    pub fn streams(&self) -> io::Result<(Stdio, Stdio)> {
        Ok((self.task.try_clone()?.into(), self.report.try_clone()?.into()))
    }

    /// The command that carries the workload out as `user`, or else as this process's.
    ///
    /// Errors: the user cannot execute this program.
    pub fn command(user: Option<&User>) -> Result<CommandLine, StepFailure> {
        let program = match user {
            Some(user) => user.own_program().map_err(StepFailure::of)?.display().to_string(),
            None => OWN_PROGRAM.into(),
        };
        let words = [program, "load".into()].into_iter();
        Ok(CommandLine::Words(words.chain(trust::owner::words()).collect()))
    }

    pub fn report(mut self) -> Result<WorkloadReport, String> {
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
    if bytes.len() as u64 > bytes_max {
        Err(io::Error::other(format!("it has more than {bytes_max} bytes")))
    } else {
        Ok(bytes)
    }
}

/// `kurabe load`: carries one part of a workload out. The task is its standard input, the report its
/// standard output.
pub fn main() -> ExitCode {
    perform().unwrap_or_else(|problem| {
        eprintln!("{problem}");
        ExitCode::from(NOT_LOOKED)
    })
}

/// Exit code of what failed, so that no failure is taken for a loss: those have the codes of [`Loss`].
const NOT_LOOKED: u8 = 9;

/// Looks for what a workload had acknowledged.
fn recheck(load: &dyn Generator, task: &WorkloadTask) -> Result<ExitCode, String> {
    let file = task.acknowledgements.as_deref().ok_or("nothing was acknowledged")?;
    let acknowledged = std::fs::read_to_string(file)
        .map_err(|error| format!("the file with the acknowledgements: {error}"))?;
    let durability =
        load.durability().ok_or("this workload does not know what a power failure may lose")?;
    let (words, code) = match durability.find_loss(task, &acknowledged) {
        Ok(None) => return Ok(ExitCode::SUCCESS),
        Ok(Some(loss)) => (loss.words().to_string(), loss.exit_code()),
        Err(problem) => (problem, NOT_LOOKED),
    };
    eprintln!("{words}");
    Ok(ExitCode::from(code))
}

fn perform() -> Result<ExitCode, String> {
    let place = |error: &dyn std::fmt::Display| {
        format!("the task on standard input: {error}; kurabe writes one itself")
    };
    // What this process holds, its report above all, is nothing to what it starts.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| error.to_string())?;
    let text = read_below(io::stdin(), TASK_BYTES_MAX).map_err(|error| place(&error))?;
    let (mut spec, task): (WorkloadSpec, WorkloadTask) =
        serde_json::from_slice(&text).map_err(|error| place(&error))?;
    KINDS.parse(&mut spec).map_err(|error| place(&error))?;
    // Nothing that a tool of the workload prints gets into the report.
    let mut output = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|output| {
            Ok(rustix::stdio::dup2_stdout(io::stderr()).map(|()| File::from(output))?)
        })
        .map_err(|error| format!("taking standard output for the report: {error}"))?;
    let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
    let load = spec.parsed();
    let mut report = match task.stage {
        WorkloadStage::Setup => {
            let LaidOut { prepared, excluded_phases } = load.set_up(&task, stop.flag())?;
            WorkloadReport { prepared, excluded_phases, ..WorkloadReport::default() }
        }
        WorkloadStage::Run => load.run(&task, stop.flag())?,
        WorkloadStage::Recheck => return recheck(load, &task),
    };
    if spec.of_kind().is_enclosed && !enclosure::is_inside() {
        let free = "the workload could write wherever you can";
        let reason = enclosure::refusal().unwrap_or("it was not started in an enclosure");
        report.findings.push(format!("{free}: {reason}; run kurabe by sudo to keep it in"));
    }
    let json = serde_json::to_vec(&report).expect("a report has a JSON form");
    output.write_all(&json).map_err(|error| format!("writing the report: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
