//! The dry run: before a device is made and filled, every file system is made and mounted once, and every command run
//! once, on an image that takes no space. What cannot work is refused while nothing has been waited for, and what a
//! run takes is known in time to say that a budget is too short.
//!
//! It decides nothing on doubtful evidence: a command that is still running at its bound is taken to work, and so is
//! whatever fails after the run. Nothing of it is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::quantity::{about_text, size_text};
use lab::record::{Outcome, Phase, Record};
use lab::spec::{Cache, CommandLine, OutputTarget, TrialSpec, Workload};
use lab::study::Study;
use trial::device::{self, part_bytes};
use trial::filesystem;
use trial::tool::says_full;
use vocabulary::kind::WorkloadSpec;

use super::preflight::ground_of;
use super::processes::Processes;
use crate::exit::Failure;
use crate::request::from_here;
use crate::runner::Executor;

#[derive(Debug, Clone, Default)]
pub struct DryRunReport {
    /// What making, mounting and unmounting all contenders once takes.
    pub around: Duration,
    /// What one run takes, by the name of its workload.
    pub runs: BTreeMap<String, Run>,
}

#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// What it took, with its setup and its sync.
    pub time: Duration,
    /// Whether it came to its end, or was broken off.
    pub ended: bool,
}

/// How long a command may take that no budget bounds.
const COMMAND_MAX: Duration = Duration::from_secs(3);
/// How long a command may take at most.
const COMMAND_MAX_OF_BUDGET: Duration = Duration::from_secs(30);
/// How long making and mounting a file system may take.
const MAKING_MAX: Duration = Duration::from_secs(60);
/// No larger an image is made, whatever the study's device is.
const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// What a trial spends on waiting for its device and on dropping caches, which a dry run leaves out.
const SETTLING: Duration = Duration::from_millis(200);

/// Tries what the study asks for. `first` is the trial that comes first.
pub fn try_out(
    study: &Study,
    first: &TrialSpec,
    device_bytes: u64,
    processes: &mut Processes,
) -> Result<DryRunReport, Failure> {
    let dry = Dry::new(study, first, device_bytes, processes)?;
    let (mut tried, mut problems) = (DryRunReport::default(), Vec::new());
    let mut working = Vec::new();
    for (number, contender) in study.contenders.iter().enumerate() {
        let access = filesystem::by_name(contender.file_system()).map(|found| found.access);
        if !contender.needs_device() || access.is_none_or(|access| ground_of(access).is_some()) {
            continue;
        }
        let record = dry.run(processes, number, &nothing(), dry.bytes, MAKING_MAX)?;
        tried.around += Duration::from_nanos(record.elapsed_ns) + SETTLING;
        match &record.outcome {
            Outcome::Failed { phase: Phase::Mkfs | Phase::Mount, message, output } => {
                let label = &contender.label;
                problems.push(format!("contender '{label}': {message}{}", indented(output)));
            }
            // A command may read the files that have aged, and there are none yet.
            Outcome::Completed if contender.aged.is_some() => {}
            Outcome::Completed => working.push((number, record.elapsed_ns)),
            _ => {}
        }
    }
    if !problems.is_empty() && !study.leave_out_missing {
        return Err(refused(problems));
    }
    for workload in &study.workloads {
        if workload.load.command().is_none() {
            continue;
        }
        let mut failed = None;
        for (number, making_ns) in &working {
            let bound = dry.command_max() + Duration::from_nanos(2 * making_ns);
            match dry.try_command(processes, *number, workload, bound)? {
                Ok(run) => {
                    tried.runs.insert(workload.name.clone(), run);
                    failed = None;
                    break;
                }
                Err(problem) => failed = failed.or(Some(problem)),
            }
        }
        problems.extend(failed);
    }
    // A command that fails is a run that failed, not a wrong use of kurabe.
    let code = crate::exit::TRIAL_FAILED;
    if problems.is_empty() || study.leave_out_missing {
        Ok(tried)
    } else {
        Err(Failure { code, ..refused(problems) })
    }
}

fn refused(mut problems: Vec<String>) -> Failure {
    problems.push(
        "this was a dry run, nothing was filled or measured; --no-dry-run leaves it out".into(),
    );
    Failure::refused(problems.join("\nkurabe: "))
}

/// A workload that does nothing, to see whether file systems can be made and mounted.
fn nothing() -> Workload {
    Workload::of("dry run", WorkloadSpec::of_command(CommandLine::Words(vec!["true".into()])))
}

struct Dry<'a> {
    study: &'a Study,
    first: &'a TrialSpec,
    /// What a contender gets.
    bytes: u64,
    /// What there is in all; more than `bytes` where contenders stand side by side.
    whole_bytes: u64,
    /// Whether the image is smaller than what a contender gets.
    is_limited: bool,
}

impl<'a> Dry<'a> {
    fn new(
        study: &'a Study,
        first: &'a TrialSpec,
        device_bytes: u64,
        processes: &Processes,
    ) -> Result<Dry<'a>, Failure> {
        let parts = first.side_by_side.map_or(1, |together| together.contenders);
        let free = rustix::fs::fstatvfs(processes.own.descriptor())
            .map(|space| space.f_bavail.saturating_mul(space.f_frsize))
            .map_err(Failure::broken)?;
        let most = IMAGE_BYTES_MAX.min(free / 2);
        let bytes = part_bytes(device_bytes, parts);
        Ok(Dry {
            study,
            first,
            bytes: bytes.min(most),
            whole_bytes: device_bytes.min(most),
            is_limited: bytes > most,
        })
    }

    /// How long a command may take: so long that it would break any budget, or long enough to fail.
    fn command_max(&self) -> Duration {
        let budget = self.study.budget_ns.map(Duration::from_nanos).unwrap_or_default();
        (budget / (3 * self.study.contenders.len() as u32))
            .clamp(COMMAND_MAX, COMMAND_MAX_OF_BUDGET)
    }

    fn run(
        &self,
        processes: &mut Processes,
        contender: usize,
        workload: &Workload,
        bytes: u64,
        bound: Duration,
    ) -> Result<Record, Failure> {
        let contender = self.study.contenders[contender].fresh();
        let image = device::sparse(&processes.own, bytes).map_err(Failure::broken)?;
        let mut device = image.device().clone();
        device.layers = contender.below_texts();
        device.layers.extend(self.first.device.iter().flat_map(|device| {
            let own = self.first.contender.below_texts().len();
            device.layers.iter().skip(own).cloned()
        }));
        let spec = TrialSpec {
            workload: workload.on(&contender),
            contender,
            device: Some(device),
            side_by_side: None,
            node: None,
            measure_layout: false,
            power_cuts: None,
            node_death: None,
            cache: Cache::Warm,
            timeout_ns: Some(bound.as_nanos() as u64),
            idle_wait_ns_max: 0,
            // Nothing fills the holes of the image.
            discard: true,
            output: OutputTarget::Null,
            ..self.first.clone()
        };
        processes.device = Some(image);
        let record = processes.execute(&spec, &mut |_| {});
        processes.device = None;
        match record.outcome {
            Outcome::Interrupted { .. } => Err(Failure::broken("the study was stopped")),
            _ => Ok(record),
        }
    }

    /// Runs a workload's command on a contender, and says why it cannot work there.
    fn try_command(
        &self,
        processes: &mut Processes,
        contender: usize,
        workload: &Workload,
        bound: Duration,
    ) -> Result<Result<Run, String>, Failure> {
        let mut bytes = self.bytes;
        let mut record = self.run(processes, contender, workload, bytes, bound)?;
        if is_out_of_space(&record) && bytes < self.whole_bytes {
            // Then contenders come one at a time, unless the user wants them side by side.
            if self.study.side_by_side.is_none() {
                bytes = self.whole_bytes;
                record = self.run(processes, contender, workload, bytes, bound)?;
            }
        }
        let took = |phases: &[Phase]| {
            let of = record.phases.iter().filter(|entry| phases.contains(&entry.phase));
            Duration::from_nanos(of.map(|entry| entry.elapsed_ns).sum())
        };
        let label = &self.study.contenders[contender].label;
        Ok(match &record.outcome {
            Outcome::Failed { .. } if is_out_of_space(&record) && self.is_limited => {
                Ok(Run { time: Duration::ZERO, ended: false })
            }
            Outcome::Failed { phase, .. } if is_out_of_space(&record) => Err(format!(
                "workload '{}': {} fills the file system of '{label}', which has {} of --device {}; {}",
                workload.name,
                phase.name(),
                about_text(bytes),
                self.study.device,
                if bytes < self.whole_bytes {
                    format!(
                        "give a larger size, or --one-at-a-time, which gives it all {}",
                        size_text(self.whole_bytes)
                    )
                } else {
                    "give a larger size".into()
                }
            )),
            Outcome::Failed {
                phase: phase @ (Phase::Setup | Phase::Prepare | Phase::Run | Phase::Cleanup),
                message,
                output,
            } => {
                let next = workload
                    .commands()
                    .into_iter()
                    .find_map(|(_, line)| from_here::misplaced(&line));
                let next = next.map_or(String::new(), |next| format!("\n    {next}"));
                Err(format!(
                    "workload '{}': {} fails on '{label}': {message}{}{next}",
                    workload.name,
                    phase.name(),
                    indented(output)
                ))
            }
            Outcome::Completed => {
                let own = [
                    Phase::Setup,
                    Phase::Layout,
                    Phase::Prepare,
                    Phase::Run,
                    Phase::Sync,
                    Phase::Cleanup,
                ];
                Ok(Run { time: took(&own), ended: true })
            }
            _ => Ok(Run { time: self.command_max(), ended: false }),
        })
    }
}

fn is_out_of_space(record: &Record) -> bool {
    match &record.outcome {
        Outcome::Failed { message, output, .. } => says_full(message) || says_full(output),
        _ => false,
    }
}

fn indented(output: &str) -> String {
    output.lines().map(|line| format!("\n    {}", line.replace('\t', "    "))).collect()
}
