//! The trial loop: carries a plan out in its order, writes every record, and stops when the stop
//! rule, the budget or the user says so.
//!
//! It decides order and end only; where and how a trial runs is the [`Executor`]'s business, and
//! what the user sees the [`Observer`]'s. Both have stand-ins in the tests.

use std::path::PathBuf;
use std::time::Duration;

use lab::analysis::{Analysis, analyse, workload_decision};
use lab::event::Event;
use lab::plan::{Plan, PlannedBlock, PlannedTrial};
use lab::record::{Outcome, Record};
use lab::result::{COMPARISONS_FILE, ResultError, ResultWriter};
use lab::spec::{Device, TrialSpec};
use lab::statistics::Decision;

/// Carries one trial out, somewhere.
pub trait Executor {
    /// Runs the trial and always yields a record: a trial that died is a record of its death.
    fn execute(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record;
}

/// Sees what happens.
pub trait Observer {
    /// A trial begins.
    fn trial_begins(&mut self, position: &Position<'_>);
    /// A trial said something.
    fn event(&mut self, event: &Event);
    /// A trial ended and its record is durable.
    fn trial_ended(&mut self, record: &Record);
    /// A block ended; `records` are all so far.
    fn block_ended(&mut self, records: &[Record], analysis: &Analysis);
}

/// Where in the plan a trial stands.
pub struct Position<'a> {
    /// The trial.
    pub spec: &'a TrialSpec,
    /// Trials that ended so far, in this sitting and before.
    pub trials_done: usize,
    /// Trials until the least number of blocks, at most until the greatest.
    pub trials_expected: usize,
    /// Time that the study may still take, when it is bounded.
    pub budget_left: Option<Duration>,
    /// Expected time of the remaining trials, once every contender has been seen.
    pub time_left: Option<Duration>,
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Every workload has enough blocks.
    Complete,
    /// The budget ended first.
    Budget,
    /// The user or a signal stopped it.
    Stopped,
}

/// What the loop needs besides the plan.
pub struct Surroundings<'a> {
    /// The prepared device.
    pub device: Device,
    /// Directory of kurabe's own for mount points.
    pub scratch: PathBuf,
    /// Time since the study began, earlier sittings included.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Whether the user wants to stop.
    pub stopped: &'a dyn Fn() -> bool,
    /// Memory of the machine, for the warnings.
    pub memory_bytes: Option<u64>,
}

/// A contender that failed so often in a row at the start is not tried again under that workload.
const FAILURES_MAX: usize = 2;

/// Carries the plan out. `records` are those of earlier sittings and grow as trials end.
pub fn run(
    plan: &Plan,
    records: &mut Vec<Record>,
    surroundings: &Surroundings<'_>,
    executor: &mut dyn Executor,
    writer: &mut ResultWriter,
    observer: &mut dyn Observer,
) -> Result<End, ResultError> {
    for block in &plan.blocks {
        let mut tried = false;
        for trial in &block.trials {
            if records.iter().any(|record| record.trial == trial.trial && counts_as_done(record))
                || !wanted(plan, records, block, trial)
            {
                continue;
            }
            if (surroundings.stopped)() {
                return Ok(End::Stopped);
            }
            let mut spec =
                plan.spec(block, *trial, &surroundings.device, surroundings.scratch.clone());
            let budget_left = match limit_by_budget(plan, records, surroundings, &mut spec) {
                Limit::Spent => return Ok(End::Budget),
                Limit::Left(left) => left,
            };
            observer.trial_begins(&Position {
                spec: &spec,
                trials_done: records.iter().filter(|record| counts_as_done(record)).count(),
                trials_expected: trials_expected(plan, block),
                budget_left,
                time_left: time_left(plan, records, block),
            });
            let mut record = executor.execute(&spec, &mut |event| observer.event(event));
            let cut_by_budget = spec.timeout_ns != plan.study.timeout_ns;
            if let Outcome::TimedOut { phase, .. } = record.outcome
                && cut_by_budget
            {
                record.outcome = Outcome::Interrupted { phase };
            }
            writer.append(&mut record)?;
            observer.trial_ended(&record);
            let interrupted = matches!(record.outcome, Outcome::Interrupted { .. });
            records.push(record);
            tried = true;
            if interrupted {
                return Ok(if cut_by_budget && !(surroundings.stopped)() {
                    End::Budget
                } else {
                    End::Stopped
                });
            }
        }
        if tried {
            let analysis = analyse(plan, records, surroundings.memory_bytes);
            let comparisons: Vec<_> =
                analysis.workloads.iter().flat_map(|workload| &workload.comparisons).collect();
            writer.write_json(COMPARISONS_FILE, &comparisons)?;
            observer.block_ended(records, &analysis);
        }
    }
    Ok(End::Complete)
}

/// An interrupted trial is carried out again by `resume`; a failed one is not.
fn counts_as_done(record: &Record) -> bool {
    !matches!(record.outcome, Outcome::Interrupted { .. })
}

/// Whether the trial is still wanted: its workload has not enough blocks yet, and its contender
/// does not fail whenever it is tried.
fn wanted(plan: &Plan, records: &[Record], block: &PlannedBlock, trial: &PlannedTrial) -> bool {
    let workload = &plan.study.workloads[trial.workload].name;
    let label = &plan.study.contenders[trial.contender].label;
    let own = records.iter().filter(|record| {
        record.workload == *workload && record.contender.label == *label && counts_as_done(record)
    });
    let (mut failures, mut successes) = (0, 0);
    for record in own {
        match record.outcome {
            Outcome::Completed => successes += 1,
            _ => failures += 1,
        }
    }
    if successes == 0 && failures >= FAILURES_MAX {
        return false;
    }
    // A block that has begun is finished: the decision is taken on whole blocks only.
    block.warmup
        || matches!(
            workload_decision(plan, records, trial.workload, block.block),
            Decision::Continue { .. }
        )
}

enum Limit {
    Spent,
    Left(Option<Duration>),
}

/// Shortens the trial's bound to the budget's end, or says that the budget does not suffice for
/// another trial of this kind.
fn limit_by_budget(
    plan: &Plan,
    records: &[Record],
    surroundings: &Surroundings<'_>,
    spec: &mut TrialSpec,
) -> Limit {
    let Some(budget_ns) = plan.study.budget_ns else {
        return Limit::Left(None);
    };
    let left = Duration::from_nanos(budget_ns).saturating_sub((surroundings.elapsed)());
    let longest = records
        .iter()
        .filter(|record| {
            record.workload == spec.workload.name
                && record.contender == spec.contender
                && record.outcome == Outcome::Completed
        })
        .map(|record| Duration::from_nanos(record.elapsed_ns))
        .max()
        .unwrap_or_default();
    if left.is_zero() || left < longest {
        return Limit::Spent;
    }
    let left_ns = left.as_nanos() as u64;
    if spec.timeout_ns.is_none_or(|timeout_ns| left_ns < timeout_ns) {
        spec.timeout_ns = Some(left_ns);
    }
    Limit::Left(Some(left))
}

/// Trials up to the least number of blocks; up to the end of the current block after that.
fn trials_expected(plan: &Plan, current: &PlannedBlock) -> usize {
    plan.blocks
        .iter()
        .filter(|block| {
            block.warmup
                || block.block < plan.study.blocks_min
                || (!current.warmup && block.block <= current.block)
        })
        .map(|block| block.trials.len())
        .sum()
}

/// Mean time of the trials seen so far, times the trials expected.
fn time_left(plan: &Plan, records: &[Record], current: &PlannedBlock) -> Option<Duration> {
    let per_block = plan.study.workloads.len() * plan.study.contenders.len();
    if records.len() < per_block {
        return None;
    }
    let total_ns: u64 = records.iter().map(|record| record.elapsed_ns).sum();
    let done = records.iter().filter(|record| counts_as_done(record)).count();
    let left = trials_expected(plan, current).saturating_sub(done);
    Some(Duration::from_nanos(total_ns / records.len() as u64 * left as u64))
}

#[cfg(test)]
mod tests;
