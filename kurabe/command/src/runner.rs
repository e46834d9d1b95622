//! The trial loop: carries a plan out in its order, writes every record, and stops when the stop
//! rule, the budget or the user says so.
//!
//! It decides order and end only; where and how a trial runs is the [`Executor`]'s business, and
//! what the user sees the [`Observer`]'s. Both have stand-ins in the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use lab::analysis::{Analysis, NextStep, around_trials, next_step};
use lab::event::Event;
use lab::judgement::analyse;
use lab::plan::{Plan, PlannedBlock, PlannedTrial};
use lab::record::{Outcome, Phase, Record};
use lab::result::{COMPARISONS_FILE, ResultError, ResultWriter};
use lab::spec::{Device, TrialSpec};

mod budget;
pub mod schedule;

use budget::TimeLeft;
pub use budget::{FEWEST_ROUNDS, long_runs, rounds_to_interval};
pub use schedule::{BudgetShare, Length, Schedule, Terms};

/// Carries trials out, somewhere.
pub trait Executor {
    /// Runs trials and yields a record for each, in their order: a trial that died is a record of its
    /// death. With a schedule they live at the same time and take the turns that it gives.
    fn run(
        &mut self,
        specs: &[TrialSpec],
        schedule: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record>;

    fn execute(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        let mut records = self.run(std::slice::from_ref(spec), None, on_event);
        records.pop().expect("one run yields one record")
    }
}

/// Sees what happens.
pub trait Observer {
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
    pub spec: &'a TrialSpec,
    /// Trials that ended so far, in this session and before.
    pub trials_done: usize,
    /// Trials until the least number of blocks; later, until the end of the current block.
    pub trials_expected: usize,
    /// Trials until the greatest number of blocks.
    pub trials_max: usize,
    /// Rounds besides those that warm up: the least number, or until the end of the current one; and the
    /// greatest.
    pub rounds: (usize, usize),
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

fn rounds(plan: &Plan, trials_expected: usize) -> (usize, usize) {
    let warmup = plan.blocks.iter().filter(|block| block.warmup).count();
    let of_round = plan.blocks.first().map_or(1, |block| block.trials.len()).max(1);
    let least = (trials_expected / of_round).saturating_sub(warmup).max(1);
    (least, wanted(plan).count() - warmup)
}

/// The blocks until the greatest number of them: an earlier session may have planned more.
fn wanted(plan: &Plan) -> impl Iterator<Item = &PlannedBlock> {
    plan.blocks.iter().filter(|block| block.warmup || block.block < plan.study.blocks_max)
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StudyEnd {
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
pub struct RunnerContext<'a> {
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
    /// What one run takes on one contender at least, where a dry run told, by the name of its workload.
    pub run_times: BTreeMap<String, Duration>,
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
    context: &RunnerContext<'_>,
    executor: &mut dyn Executor,
    writer: &mut ResultWriter,
    observer: &mut dyn Observer,
) -> Result<StudyEnd, ResultError> {
    let session = context.session;
    let mut end = StudyEnd::Complete;
    let mut is_first = true;
    let mut told = BTreeSet::new();
    for block in &plan.blocks {
        let step = SoFar { plan, records, session }.step_of(block);
        let mut tried = false;
        for unit in block.trials.chunk_by(|one, other| one.workload == other.workload) {
            let so_far = SoFar { plan, records, session };
            let again = so_far.is_half_done(&step, unit);
            let is_wanted = |trial: &&PlannedTrial| so_far.wants(&step, trial);
            let block_trials = unit.iter().filter(is_wanted).count() as u32;
            let since = if again { session } else { 0 };
            let mut open = Vec::new();
            for trial in unit {
                if so_far.fails_throughout(block, trial) {
                    end = StudyEnd::Failing;
                } else if !so_far.is_done(trial, since) && so_far.wants(&step, trial) {
                    open.push(*trial);
                }
            }
            while !open.is_empty() {
                let so_far = SoFar { plan, records, session };
                let is_together = so_far.take_turns(unit[0].workload);
                let together = open.drain(..if is_together { open.len() } else { 1 });
                // Failures of the trials before may have left nothing to do.
                let together: Vec<PlannedTrial> =
                    together.filter(|trial| so_far.wants(&step, trial)).collect();
                if together.is_empty() {
                    continue;
                }
                if (context.stopped)() {
                    return Ok(StudyEnd::Stopped);
                }
                // The executor says where a trial has its files.
                let mut specs: Vec<TrialSpec> = together
                    .iter()
                    .map(|trial| {
                        let mut spec =
                            plan.spec(block, *trial, context.device.as_ref(), PathBuf::new());
                        spec.side_by_side = spec.side_by_side.filter(|_| is_together);
                        spec
                    })
                    .collect();
                // Kept open until the trials have ended, which reach them by their number.
                let traces = begin_traces(&mut specs, writer)?;
                let Some(left) = so_far.time_left((context.elapsed)(), &together) else {
                    return Ok(StudyEnd::Budget);
                };
                specs.iter_mut().for_each(|spec| left.bound(spec));
                if again {
                    let of_unit = |record: &Record| unit.iter().any(|t| t.trial == record.trial);
                    records.retain(|record| record.session >= session || !of_unit(record));
                }
                let so_far = SoFar { plan, records, session };
                so_far.announce(block, &specs, left.study, observer);
                let terms = is_together.then(|| so_far.terms(block, &specs, left, context));
                let mut schedule = terms.map(|terms| Schedule::new(terms, context.elapsed));
                let on_event = &mut |event: &Event| observer.event(event);
                let mut carried = executor.run(&specs, schedule.as_mut(), on_event);
                for (record, spec) in carried.iter_mut().zip(&specs) {
                    if traces.contains_key(&spec.trial)
                        && record.trace.as_ref().is_none_or(|trace| trace.kept == 0)
                    {
                        writer.drop_trace(spec.trial)?;
                    }
                    record.session = session;
                    // One that the budget cut short is interrupted, not failed.
                    if let Outcome::TimedOut { phase, .. } = record.outcome
                        && spec.timeout_ns != plan.study.timeout_ns
                    {
                        record.outcome = Outcome::Interrupted { phase };
                    }
                }
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
                let outlook = SoFar { plan, records, session }.outlook((context.elapsed)());
                if let Some((_, words)) = outlook.filter(|(outlook, _)| told.insert(*outlook)) {
                    observer.note(&words);
                }
                if interrupted {
                    let cut_by_budget = is_together || specs[0].timeout_ns != plan.study.timeout_ns;
                    return Ok(if cut_by_budget && !(context.stopped)() {
                        StudyEnd::Budget
                    } else {
                        StudyEnd::Stopped
                    });
                }
            }
        }
        if tried {
            let analysis = analyse(plan, records, context.memory_bytes);
            writer.write_json(COMPARISONS_FILE, &analysis.rows())?;
            observer.block_ended(records, &analysis);
            let spent = (context.elapsed)();
            let so_far = SoFar { plan, records, session };
            if let Some(words) = so_far.short_budget(block, spent).filter(|_| is_first) {
                observer.note(&words);
            }
            is_first = false;
        }
    }
    Ok(end)
}

/// Files for the traces of the trials that run here, by their numbers.
fn begin_traces(
    specs: &mut [TrialSpec],
    writer: &ResultWriter,
) -> Result<BTreeMap<u32, File>, ResultError> {
    let mut files = BTreeMap::new();
    for spec in specs {
        let is_here = spec.contender.environment.is_this_machine();
        if let (Some(trace), true) = (&mut spec.trace, is_here && spec.contender.needs_device()) {
            let file = writer.begin_trace(spec.trial)?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            trace.file = Some(path.into());
            files.insert(spec.trial, file);
        }
    }
    Ok(files)
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
        "{workload}: a part of the device is too small for {}, so contenders come one at a time from here on; with a larger --device they alternate",
        labels.join(", ")
    )
}

/// What is still to come, until the least number of blocks and until the greatest; None before a whole block told how
/// long one takes.
pub fn time_left(plan: &Plan, records: &[Record]) -> Option<(Duration, Duration)> {
    let time = SoFar::before_the_next_session(plan, records).trial_time()?;
    let ended = records.iter().filter(|record| record.has_ended()).count();
    let all = |blocks: u32| {
        let due = plan.blocks.iter().filter(|block| block.warmup || block.block < blocks);
        due.map(|block| block.trials.len()).sum::<usize>().saturating_sub(ended) as u32
    };
    Some((time * all(plan.study.blocks_min), time * all(plan.study.blocks_max)))
}

/// Whether every trial that is wanted was carried out, so that [`run`] would do nothing.
pub fn is_complete(plan: &Plan, records: &[Record]) -> bool {
    SoFar::before_the_next_session(plan, records).next_trial().is_none()
}

/// The next trial, on a device that is not filled yet; absent when none is wanted.
pub fn next_spec(plan: &Plan, records: &[Record], device: &Device) -> Option<TrialSpec> {
    let trial = SoFar::before_the_next_session(plan, records).next_trial()?;
    let block = plan.blocks.iter().find(|block| block.trials.contains(&trial))?;
    Some(plan.spec(block, trial, Some(device), PathBuf::new()))
}

/// Whether the budget leaves time for the next trial that is wanted, once `elapsed` of it is spent.
pub fn next_fits(plan: &Plan, records: &[Record], elapsed: Duration) -> bool {
    let so_far = SoFar::before_the_next_session(plan, records);
    let Some(trial) = so_far.next_trial() else { return true };
    let block = plan.blocks.iter().find(|block| block.trials.contains(&trial));
    let is_with = |other: &&PlannedTrial| {
        let is_of_workload = other.workload == trial.workload;
        **other == trial || (is_of_workload && so_far.take_turns(trial.workload))
    };
    let trials = block.into_iter().flat_map(|block| &block.trials);
    let together: Vec<PlannedTrial> = trials.filter(is_with).copied().collect();
    so_far.time_left(elapsed, &together).is_some()
}

/// How far a study is, seen from a session of it.
#[derive(Clone, Copy)]
struct SoFar<'a> {
    plan: &'a Plan,
    records: &'a [Record],
    session: u32,
}

impl<'a> SoFar<'a> {
    fn before_the_next_session(plan: &'a Plan, records: &'a [Record]) -> SoFar<'a> {
        let session = records.iter().map(|record| record.session).max().unwrap_or(0) + 1;
        SoFar { plan, records, session }
    }

    /// Tells the observer of trials that begin.
    fn announce(
        &self,
        block: &PlannedBlock,
        specs: &[TrialSpec],
        budget_left: Option<Duration>,
        observer: &mut dyn Observer,
    ) {
        let ended = self.records.iter().filter(|record| record.has_ended()).count();
        let trials_expected = trials_expected(self.plan, block);
        for (number, spec) in specs.iter().enumerate() {
            observer.trial_begins(&Position {
                spec,
                trials_done: ended + number,
                trials_expected,
                rounds: rounds(self.plan, trials_expected),
                trials_max: wanted(self.plan).map(|block| block.trials.len()).sum(),
                budget_left,
                trial_time: self.trial_time(),
            });
        }
    }

    /// On which terms trials take turns.
    fn terms(
        &self,
        block: &PlannedBlock,
        specs: &[TrialSpec],
        left: TimeLeft,
        context: &RunnerContext<'_>,
    ) -> Terms {
        let workload = &specs[0].workload;
        let dry_run = context.run_times.get(&workload.name).map(|run| *run * specs.len() as u32);
        let parts = workload.load.parsed().parts();
        let known = self.round(&workload.name).map(|round| round * parts);
        let length =
            Length { round: known.or(dry_run), ..self.length(&workload.name, block, left) };
        Terms { seed: specs[0].order_seed, length, parts }
    }

    /// The record of a trial that was carried out, in the session `since` or later.
    fn done(&self, trial: &PlannedTrial, since: u32) -> Option<&'a Record> {
        self.records.iter().find(|record| {
            record.trial == trial.trial && record.has_ended() && record.session >= since
        })
    }

    fn is_done(&self, trial: &PlannedTrial, since: u32) -> bool {
        self.done(trial, since).is_some()
    }

    /// Which trials a block needs; None for a warm-up block, which needs all.
    fn step_of(&self, block: &PlannedBlock) -> Option<NextStep> {
        (!block.warmup).then(|| next_step(self.plan, self.records, block.block))
    }

    /// Whether the trial is still wanted: its comparison is still open, and its contender does not
    /// fail whenever it is tried. When everything failed under the workload in the sessions
    /// before, the user was told to mend the cause and to go on: their failures say nothing of this one.
    fn wants(&self, step: &Option<NextStep>, trial: &PlannedTrial) -> bool {
        let study = &self.plan.study;
        let workload = &study.workloads[trial.workload].name;
        let label = &study.contenders[trial.contender].label;
        let of_workload = || self.records.iter().filter(|record| record.workload == *workload);
        let all_failed = !of_workload()
            .any(|record| record.session < self.session && record.outcome == Outcome::Completed);
        let mut own = of_workload().filter(|record| {
            record.contender.label == *label
                && record.has_ended()
                && (record.session >= self.session || !all_failed)
        });
        let tries = own.clone().count();
        if tries >= FAILURES_MAX && own.all(|record| record.outcome != Outcome::Completed) {
            return false;
        }
        // A block that has begun is finished: the decision is taken on whole blocks only.
        step.as_ref().is_none_or(|step| step.wants(trial.workload, trial.contender))
    }

    /// The first trial that is wanted and was not carried out.
    fn next_trial(&self) -> Option<PlannedTrial> {
        self.plan.blocks.iter().find_map(|block| {
            let step = self.step_of(block);
            let is_open =
                |trial: &&PlannedTrial| !self.is_done(trial, 0) && self.wants(&step, trial);
            block.trials.iter().find(is_open).copied()
        })
    }

    /// Whether earlier sessions carried out some of these trials of one block and workload, and left
    /// others that are still wanted. Then all of them are carried out again: what is compared with
    /// each other has to stand on one filling of the device.
    fn is_half_done(&self, step: &Option<NextStep>, unit: &[PlannedTrial]) -> bool {
        let is_of_earlier = |trial: &PlannedTrial| {
            self.done(trial, 0).is_some_and(|record| record.session < self.session)
        };
        unit.iter().any(is_of_earlier)
            && unit.iter().any(|trial| !self.is_done(trial, 0) && self.wants(step, trial))
    }

    /// Whether every trial of the workload failed in each of the last blocks that this session tried
    /// before this one.
    fn fails_throughout(&self, block: &PlannedBlock, trial: &PlannedTrial) -> bool {
        let workload = &self.plan.study.workloads[trial.workload].name;
        let mut blocks: BTreeMap<u32, bool> = BTreeMap::new();
        let of_session = self.records.iter().filter(|record| {
            !record.warmup && record.workload == *workload && record.session == self.session
        });
        for record in of_session.filter(|record| record.block < block.block) {
            *blocks.entry(record.block).or_default() |= record.outcome == Outcome::Completed;
        }
        !block.warmup
            && blocks.len() >= FAILED_BLOCKS_MAX
            && blocks.values().rev().take(FAILED_BLOCKS_MAX).all(|any_completed| !any_completed)
    }

    /// Whether the contenders of a block take turns under a workload. Nobody asked for that by
    /// default, so that it ends where a part of the device turned out to be too small.
    fn take_turns(&self, workload: usize) -> bool {
        let study = &self.plan.study;
        let name = &study.workloads[workload].name;
        let was_full = |record: &Record| record.part_full && record.workload == *name;
        self.plan.takes_turns(workload)
            && (study.side_by_side.is_some() || !self.records.iter().any(was_full))
    }

    /// How long a block of trials that take turns goes on. What the budget leaves is shared by the
    /// blocks until the least number of them and until twice that, this one included.
    fn length(&self, workload: &str, block: &PlannedBlock, left: TimeLeft) -> Length {
        let study = &self.plan.study;
        let units = |block: &PlannedBlock| {
            let units = block.trials.chunk_by(|one, other| one.workload == other.workload);
            units.filter(|unit| !self.is_done(&unit[0], 0)).count() as u32
        };
        let due = |blocks: u32| -> u32 {
            let is_due = |other: &&PlannedBlock| other.warmup || other.block < blocks;
            let due = self.plan.blocks.iter().filter(is_due).map(units).sum();
            let own = if block.warmup || block.block < blocks { 1 } else { units(block) };
            u32::max(due, own).max(1)
        };
        Length {
            runs: study.runs_of_block(block.block),
            rounds: study.block_time_ns.map(Duration::from_nanos),
            share: left.budget.map_or_else(
                || self.length_before(workload),
                |left| {
                    Some(BudgetShare {
                        least: left / due(study.blocks_min),
                        twice: left / due(2 * study.blocks_min),
                    })
                },
            ),
            limit: left.limit,
            round: None,
        }
    }

    /// What a round of the workload took in the last block.
    fn round(&self, workload: &str) -> Option<Duration> {
        let is_of =
            |record: &&&Record| record.workload == workload && record.outcome == Outcome::Completed;
        let last = self.records.iter().rev().find(|record| is_of(&record))?;
        let of_block = self.records.iter().filter(|record| {
            (&record.workload, record.block, record.warmup)
                == (&last.workload, last.block, last.warmup)
        });
        let times_ns = of_block.filter_map(|record| {
            let sum_ns: u64 = record.slices.iter().map(lab::slice::RunRecord::time_ns).sum();
            sum_ns.checked_div(record.slices.len() as u64)
        });
        Some(Duration::from_nanos(times_ns.sum())).filter(|round| !round.is_zero())
    }

    /// Mean time of the trials so far, once there are as many as a block has.
    fn trial_time(&self) -> Option<Duration> {
        let per_block = self.plan.study.workloads.len() * self.plan.study.contenders.len();
        if self.records.len() < per_block {
            return None;
        }
        let total_ns: u128 =
            self.records.iter().map(|record| u128::from(record.own_elapsed_ns())).sum();
        let mean = Duration::from_nanos((total_ns / self.records.len() as u128) as u64);
        Some(mean.mul_f64(around_trials(self.records)))
    }
}

/// Trials up to the least number of blocks; up to the end of the current block after that.
fn trials_expected(plan: &Plan, current: &PlannedBlock) -> usize {
    let is_expected = |block: &&PlannedBlock| {
        block.warmup
            || block.block < plan.study.blocks_min
            || (!current.warmup && block.block <= current.block)
    };
    plan.blocks.iter().filter(is_expected).map(|block| block.trials.len()).sum()
}

#[cfg(test)]
mod tests;
