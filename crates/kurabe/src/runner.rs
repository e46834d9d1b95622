//! The trial loop: carries a plan out in its order, writes every record, and stops when the stop
//! rule, the budget or the user says so.
//!
//! It decides order and end only; where and how a trial runs is the [`Executor`]'s business, and
//! what the user sees the [`Observer`]'s. Both have stand-ins in the tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::analysis::{Analysis, NextStep, next_step};
use lab::contender::Contender;
use lab::event::Event;
use lab::judgement::analyse;
use lab::plan::{Plan, PlannedBlock, PlannedTrial};
use lab::record::{Outcome, Phase, Record};
use lab::result::{COMPARISONS_FILE, ResultError, ResultWriter};
use lab::spec::{Device, TrialSpec};
use loads::KINDS;

mod schedule;

pub use schedule::{Length, Schedule, Share};

/// Carries trials out, somewhere.
pub trait Executor {
    /// Runs the trial and always yields a record: a trial that died is a record of its death.
    fn execute(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record;

    /// Runs trials that live at the same time and take the turns that `schedule` gives; yields a record
    /// for each, in their order.
    fn execute_together(
        &mut self,
        specs: &[TrialSpec],
        schedule: &mut Schedule<'_>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record>;
}

/// Sees what happens.
pub trait Observer {
    /// A trial begins.
    fn trial_begins(&mut self, position: &Position<'_>);
    /// A trial said something.
    fn event(&mut self, event: &Event);
    /// Something that the user must know once.
    fn note(&mut self, words: &str);
    /// A trial ended and its record is durable.
    fn trial_ended(&mut self, record: &Record);
    /// A block ended; `records` are all so far.
    fn block_ended(&mut self, records: &[Record], analysis: &Analysis);
}

/// Where in the plan a trial stands.
pub struct Position<'a> {
    /// The trial.
    pub spec: &'a TrialSpec,
    /// Trials that ended so far, in this session and before.
    pub trials_done: usize,
    /// Trials until the least number of blocks; later, until the end of the current block.
    pub trials_expected: usize,
    /// Trials until the greatest number of blocks.
    pub trials_max: usize,
    /// Time that the study may still take, when it is bounded.
    pub budget_left: Option<Duration>,
    /// Expected time of a trial, once every contender has been seen.
    pub trial_time: Option<Duration>,
}

impl Position<'_> {
    /// Expected time until the least number of blocks, and until the greatest; neither longer than
    /// the budget.
    pub fn time_left(&self) -> Option<(Duration, Duration)> {
        let left = |trials: usize| {
            let open = u32::try_from(trials.saturating_sub(self.trials_done)).unwrap_or(u32::MAX);
            let left = self.trial_time?.saturating_mul(open);
            Some(self.budget_left.map_or(left, |budget| left.min(budget)))
        };
        Some((left(self.trials_expected)?, left(self.trials_max)?))
    }
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
    /// Under some workload every trial failed, block after block.
    Failing,
}

/// What the loop needs besides the plan.
pub struct Surroundings<'a> {
    /// The prepared device, where one is needed.
    pub device: Option<Device>,
    /// Number of this session, from 1.
    pub session: u32,
    /// Time since the study began, earlier sessions included.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Whether the user wants to stop.
    pub stopped: &'a dyn Fn() -> bool,
    /// Memory of the machine, for the warnings.
    pub memory_bytes: Option<u64>,
}

/// A contender that failed so often in a row at the start is not tried again under that workload.
const FAILURES_MAX: usize = 2;

/// After so many blocks in a row in which every trial failed, a workload is given up: the device or
/// the command is broken, and not a contender.
const FAILED_BLOCKS_MAX: usize = 2;

/// Carries the plan out. `records` are those that stand of earlier sessions; they grow as trials
/// end, and lose what this session supersedes.
pub fn run(
    plan: &Plan,
    records: &mut Vec<Record>,
    surroundings: &Surroundings<'_>,
    executor: &mut dyn Executor,
    writer: &mut ResultWriter,
    observer: &mut dyn Observer,
) -> Result<End, ResultError> {
    let mut end = End::Complete;
    let mut is_first = true;
    for block in &plan.blocks {
        let step = step_of(plan, records, block);
        let mut tried = false;
        for unit in block.trials.chunk_by(|one, other| one.workload == other.workload) {
            let again = is_half_done(plan, records, surroundings, &step, unit);
            let is_wanted =
                |trial: &&PlannedTrial| wanted(plan, records, surroundings.session, &step, trial);
            let block_trials = unit.iter().filter(is_wanted).count() as u32;
            let session = if again { surroundings.session } else { 0 };
            let mut open = Vec::new();
            for trial in unit {
                if fails_throughout(plan, records, surroundings, block, trial) {
                    end = End::Failing;
                } else if !is_done(records, trial, session)
                    && wanted(plan, records, surroundings.session, &step, trial)
                {
                    open.push(*trial);
                }
            }
            while !open.is_empty() {
                let is_together = take_turns(plan, records, unit[0].workload);
                let together: Vec<PlannedTrial> =
                    open.drain(..if is_together { open.len() } else { 1 }).collect();
                // Failures of the trials before may have left nothing to do.
                let still = |trial: &&PlannedTrial| {
                    wanted(plan, records, surroundings.session, &step, trial)
                };
                let together: Vec<PlannedTrial> = together.iter().filter(still).copied().collect();
                if together.is_empty() {
                    continue;
                }
                if (surroundings.stopped)() {
                    return Ok(End::Stopped);
                }
                // The executor says where a trial has its files.
                let mut specs: Vec<TrialSpec> = together
                    .iter()
                    .map(|trial| {
                        let mut spec =
                            plan.spec(block, *trial, surroundings.device.as_ref(), PathBuf::new());
                        spec.side_by_side = spec.side_by_side.filter(|_| is_together);
                        spec
                    })
                    .collect();
                let mut budget_left = None;
                for spec in &mut specs {
                    match limit_by_budget(plan, records, surroundings, spec) {
                        Limit::Spent => return Ok(End::Budget),
                        Limit::Left(left) => budget_left = left,
                    }
                }
                if again {
                    let of_unit = |record: &Record| unit.iter().any(|t| t.trial == record.trial);
                    records.retain(|record| record.session >= session || !of_unit(record));
                }
                for (number, spec) in specs.iter().enumerate() {
                    let ended = records.iter().filter(|record| record.has_ended()).count();
                    observer.trial_begins(&Position {
                        spec,
                        trials_done: ended + number,
                        trials_expected: trials_expected(plan, block),
                        trials_max: plan.blocks.iter().map(|block| block.trials.len()).sum(),
                        budget_left,
                        trial_time: trial_time(plan, records),
                    });
                }
                let carried = match is_together {
                    false => vec![carry_out(plan, surroundings, executor, observer, &specs[0])],
                    true => {
                        let length = length(plan, records, block, budget_left);
                        let seed = specs[0].order_seed;
                        let parts =
                            KINDS.open(&specs[0].workload.load).map_or(1, |load| load.parts());
                        let mut schedule = Schedule::new(seed, length, parts, surroundings.elapsed);
                        let on_event = &mut |event: &Event| observer.event(event);
                        let mut carried =
                            executor.execute_together(&specs, &mut schedule, on_event);
                        carried.iter_mut().for_each(|r| r.session = surroundings.session);
                        carried
                    }
                };
                tried = true;
                if plan.study.side_by_side.is_none() && carried.iter().any(|one| one.part_full) {
                    let workload = &plan.study.workloads[unit[0].workload].name;
                    observer.note(&part_full_words(workload, &carried));
                    for record in carried {
                        records.push(writer.append(broken_off(record))?);
                    }
                    open = together;
                    continue;
                }
                let mut interrupted = false;
                for mut record in carried {
                    record.block_trials = Some(block_trials);
                    interrupted |= !record.has_ended();
                    records.push(writer.append(record)?);
                    observer.trial_ended(&records[records.len() - 1]);
                }
                if interrupted {
                    let cut_by_budget = is_together || specs[0].timeout_ns != plan.study.timeout_ns;
                    return Ok(if cut_by_budget && !(surroundings.stopped)() {
                        End::Budget
                    } else {
                        End::Stopped
                    });
                }
            }
        }
        if tried {
            let analysis = analyse(plan, records, surroundings.memory_bytes);
            writer.write_json(COMPARISONS_FILE, &analysis.rows())?;
            observer.block_ended(records, &analysis);
            let spent = (surroundings.elapsed)();
            if let Some(words) =
                is_first.then(|| short_budget(plan, records, block, spent)).flatten()
            {
                observer.note(&words);
            }
            is_first = false;
        }
    }
    Ok(end)
}

/// Whether the contenders of a block take turns under a workload. Nobody asked for that by default,
/// so that it ends where a part of the device turned out to be too small.
fn take_turns(plan: &Plan, records: &[Record], workload: usize) -> bool {
    let name = &plan.study.workloads[workload].name;
    let is_asked_for = plan.study.side_by_side.is_some();
    plan.takes_turns(workload)
        && (is_asked_for || !records.iter().any(|one| one.part_full && one.workload == *name))
}

/// The record of a trial that is carried out again by itself.
fn broken_off(record: Record) -> Record {
    let phase = match record.outcome {
        Outcome::Failed { phase, .. } => phase,
        _ => Phase::Run,
    };
    Record { outcome: Outcome::Interrupted { phase }, load: None, ..record }
}

fn part_full_words(workload: &str, carried: &[Record]) -> String {
    let full = carried.iter().filter(|record| record.part_full);
    let labels: Vec<&str> = full.map(|record| record.contender.label.as_str()).collect();
    format!(
        "{workload}: a part of the device is too small for {}, so contenders come one at a time from here on; a larger --device lets them stand side by side",
        labels.join(", ")
    )
}

/// Whether a trial was carried out, in this session or one since.
fn is_done(records: &[Record], trial: &PlannedTrial, session: u32) -> bool {
    records.iter().any(|record| {
        record.trial == trial.trial && record.has_ended() && record.session >= session
    })
}

/// How long a block of trials that take turns goes on. What the budget leaves is shared by the
/// blocks until the least number of them and until twice that, this one included.
fn length(
    plan: &Plan,
    records: &[Record],
    block: &PlannedBlock,
    budget_left: Option<Duration>,
) -> Length {
    let study = &plan.study;
    let units = |block: &PlannedBlock| {
        let units = block.trials.chunk_by(|one, other| one.workload == other.workload);
        units.filter(|unit| !is_done(records, &unit[0], 0)).count() as u32
    };
    let due = |blocks: u32| -> u32 {
        let is_due = |other: &&PlannedBlock| other.warmup || other.block < blocks;
        let due = plan.blocks.iter().filter(is_due).map(units).sum();
        let own = if block.warmup || block.block < blocks { 1 } else { units(block) };
        u32::max(due, own).max(1)
    };
    Length {
        rounds: study.block_time_ns.map(Duration::from_nanos),
        share: budget_left.map(|left| Share {
            least: left / due(study.blocks_min),
            twice: left / due(2 * study.blocks_min),
        }),
        limit: budget_left,
    }
}

/// Whether every trial that is wanted was carried out, so that [`run`] would do nothing.
pub fn is_complete(plan: &Plan, records: &[Record]) -> bool {
    next_trial(plan, records).is_none()
}

/// Whether the budget leaves time for the next trial that is wanted, once `elapsed` of it is spent.
pub fn next_fits(plan: &Plan, records: &[Record], elapsed: Duration) -> bool {
    let (Some(trial), Some(budget_ns)) = (next_trial(plan, records), plan.study.budget_ns) else {
        return true;
    };
    let workload = &plan.study.workloads[trial.workload].name;
    let longest = longest(records, workload, &plan.study.contenders[trial.contender]);
    let left = Duration::from_nanos(budget_ns).saturating_sub(elapsed);
    !left.is_zero() && left >= longest
}

/// The first trial that is wanted and was not carried out.
fn next_trial(plan: &Plan, records: &[Record]) -> Option<PlannedTrial> {
    let next_session = records.iter().map(|record| record.session).max().unwrap_or(0) + 1;
    plan.blocks.iter().find_map(|block| {
        let step = step_of(plan, records, block);
        let open = block.trials.iter().find(|trial| {
            let done = |record: &Record| record.trial == trial.trial && record.has_ended();
            !records.iter().any(done) && wanted(plan, records, next_session, &step, trial)
        });
        open.copied()
    })
}

/// The longest trial so far of a contender under a workload.
fn longest(records: &[Record], workload: &str, contender: &Contender) -> Duration {
    records
        .iter()
        .filter(|record| {
            record.workload == workload
                && record.contender == *contender
                && record.outcome == Outcome::Completed
        })
        .map(|record| Duration::from_nanos(record.elapsed_ns))
        .max()
        .unwrap_or_default()
}

/// Carries one trial out. One that the budget cut short is interrupted, not failed.
fn carry_out(
    plan: &Plan,
    surroundings: &Surroundings<'_>,
    executor: &mut dyn Executor,
    observer: &mut dyn Observer,
    spec: &TrialSpec,
) -> Record {
    let mut record = executor.execute(spec, &mut |event| observer.event(event));
    record.session = surroundings.session;
    let cut_by_budget = spec.timeout_ns != plan.study.timeout_ns;
    if let Outcome::TimedOut { phase, .. } = record.outcome
        && cut_by_budget
    {
        record.outcome = Outcome::Interrupted { phase };
    }
    record
}

/// Whether earlier sessions carried out some of these trials of one block and workload, and left
/// others that are still wanted. Then all of them are carried out again: what is compared with
/// each other has to stand on one filling of the device.
fn is_half_done(
    plan: &Plan,
    records: &[Record],
    surroundings: &Surroundings<'_>,
    step: &Option<NextStep>,
    unit: &[PlannedTrial],
) -> bool {
    let done = |trial: &PlannedTrial| {
        records.iter().find(|record| record.trial == trial.trial && record.has_ended())
    };
    let earlier = |trial: &PlannedTrial| {
        done(trial).is_some_and(|record| record.session < surroundings.session)
    };
    unit.iter().any(earlier)
        && unit.iter().any(|trial| {
            done(trial).is_none() && wanted(plan, records, surroundings.session, step, trial)
        })
}

/// Whether every trial of the workload failed in each of the last blocks that this session tried
/// before this one.
fn fails_throughout(
    plan: &Plan,
    records: &[Record],
    surroundings: &Surroundings<'_>,
    block: &PlannedBlock,
    trial: &PlannedTrial,
) -> bool {
    let workload = &plan.study.workloads[trial.workload].name;
    let mut blocks: BTreeMap<u32, bool> = BTreeMap::new();
    let of_session = records.iter().filter(|record| {
        !record.warmup && record.workload == *workload && record.session == surroundings.session
    });
    for record in of_session.filter(|record| record.block < block.block) {
        *blocks.entry(record.block).or_default() |= record.outcome == Outcome::Completed;
    }
    !block.warmup
        && blocks.len() >= FAILED_BLOCKS_MAX
        && blocks.values().rev().take(FAILED_BLOCKS_MAX).all(|any_completed| !any_completed)
}

/// Which trials a block needs; None for a warm-up block, which needs all.
fn step_of(plan: &Plan, records: &[Record], block: &PlannedBlock) -> Option<NextStep> {
    (!block.warmup).then(|| next_step(plan, records, block.block))
}

/// Whether the trial is still wanted: its comparison is still open, and its contender does not fail
/// whenever it is tried. When everything failed under the workload in the sessions
/// before, the user was told to mend the cause and to go on: their failures say nothing of this one.
fn wanted(
    plan: &Plan,
    records: &[Record],
    session: u32,
    step: &Option<NextStep>,
    trial: &PlannedTrial,
) -> bool {
    let workload = &plan.study.workloads[trial.workload].name;
    let label = &plan.study.contenders[trial.contender].label;
    let of_workload = || records.iter().filter(|record| record.workload == *workload);
    let all_failed = !of_workload()
        .any(|record| record.session < session && record.outcome == Outcome::Completed);
    let own = of_workload().filter(|record| {
        record.contender.label == *label
            && record.has_ended()
            && (record.session >= session || !all_failed)
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
    step.as_ref().is_none_or(|step| step.wants(trial.workload, trial.contender))
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
    if left.is_zero() || left < longest(records, &spec.workload.name, &spec.contender) {
        return Limit::Spent;
    }
    let left_ns = left.as_nanos() as u64;
    // Trials that take turns are bounded together, by their schedule.
    if spec.side_by_side.is_some() {
        return Limit::Left(Some(left));
    }
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

/// Estimates that exceed what the budget leaves by less than this are taken for chance.
const SHORT_BUDGET_MIN: f64 = 1.25;

/// What the user must know once a session's first block told how long one takes: that the budget ends
/// before the least number of blocks.
fn short_budget(
    plan: &Plan,
    records: &[Record],
    current: &PlannedBlock,
    spent: Duration,
) -> Option<String> {
    let left = Duration::from_nanos(plan.study.budget_ns?).saturating_sub(spent).as_secs_f64();
    let blocks_min = plan.study.blocks_min;
    let is_due = |block: &&PlannedBlock| {
        let is_later = current.warmup || block.block > current.block;
        !block.warmup && block.block < blocks_min && is_later
    };
    let due = plan.blocks.iter().filter(is_due).count() as u32;
    let trial_time = trial_time(plan, records)?.as_secs_f64();
    let block_time = trial_time * current.trials.len() as f64;
    let needed = block_time * f64::from(due);
    (needed > left * SHORT_BUDGET_MIN).then(|| {
        let fits = blocks_min - due + (left / block_time) as u32;
        let enough = (spent.as_secs_f64() + needed * SHORT_BUDGET_MIN).ceil();
        format!(
            "warning: the budget leaves time for about {fits} of at least {blocks_min} blocks; raise --budget to {enough}s, or lower --min-runs"
        )
    })
}

/// Mean time of the trials so far, once there are as many as a block has.
fn trial_time(plan: &Plan, records: &[Record]) -> Option<Duration> {
    let per_block = plan.study.workloads.len() * plan.study.contenders.len();
    if records.len() < per_block {
        return None;
    }
    let total_ns: u128 = records.iter().map(|record| u128::from(record.own_elapsed_ns())).sum();
    Some(Duration::from_nanos((total_ns / records.len() as u128) as u64))
}

#[cfg(test)]
mod tests;
