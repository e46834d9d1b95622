//! What a budget leaves: when the next trials have to end, and whether there will be rounds enough for an interval.
//!
//! A budget ends the study, but for one case: where it ends before the fewest rounds that give an interval, and these
//! end soon after it, the study goes on until then, since otherwise all of its time would have been for nothing.
//! Pure but for the time that it is given.

use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;

use super::*;
use crate::terminal::rough;

/// Fewer rounds give no interval.
pub const FEWEST_ROUNDS: u32 = BLOCKS_MIN_FOR_INTERVAL as u32;

/// How many times its budget a study may take for these rounds.
pub const OVERRUN_MAX: f64 = 1.5;

/// Fewer rounds know their own scatter badly.
const GOOD_ROUNDS: u32 = 8;

/// Estimates that exceed what the budget leaves by less than this are taken for chance.
const SHORT_BUDGET_MIN: f64 = 1.25;

/// Time that is left for the next trials; none where nothing bounds it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeLeft {
    /// What is left of the budget, which the rounds to come share.
    pub budget: Option<Duration>,
    /// What the study may still take.
    pub study: Option<Duration>,
    /// After which the trials are broken off.
    pub limit: Option<Duration>,
}

impl TimeLeft {
    /// Shortens the bound of a trial. Trials that take turns are bounded together, by their schedule.
    pub fn bound(&self, spec: &mut TrialSpec) {
        let Some(limit_ns) = self.limit.map(|limit| limit.as_nanos() as u64) else { return };
        let is_shorter = spec.timeout_ns.is_none_or(|timeout_ns| limit_ns < timeout_ns);
        if spec.side_by_side.is_none() && is_shorter {
            spec.timeout_ns = Some(limit_ns);
        }
    }
}

/// What becomes of a budget that ends before there is an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outlook {
    /// The study takes longer than its budget.
    Late,
    /// It ends without an interval.
    Vain,
}

/// How many of the fewest rounds that give an interval are not whole.
pub fn rounds_to_interval(plan: &Plan, records: &[Record]) -> u32 {
    let so_far = SoFar::before_the_next_session(plan, records);
    let is_due = |block: &&PlannedBlock| !block.warmup && block.block < so_far.fewest();
    let is_open = |block: &&PlannedBlock| block.trials.iter().any(|trial| so_far.is_open(trial));
    plan.blocks.iter().filter(is_due).filter(is_open).count() as u32
}

/// What a run took in the last round, where such runs are most of what a round takes and left time for few rounds.
pub fn long_runs(plan: &Plan, records: &[Record]) -> Option<Duration> {
    let so_far = SoFar::before_the_next_session(plan, records);
    let last = so_far.completed().find(|record| !record.warmup)?;
    let is_of_last = |one: &&Record| (one.warmup, one.block) == (last.warmup, last.block);
    let of_round: Vec<&Record> = so_far.completed().filter(is_of_last).collect();
    let run = of_round.iter().filter_map(|one| one.time_ns()).map(Duration::from_nanos);
    let run = run.sum::<Duration>() / of_round.len() as u32;
    let whole: Duration = of_round.iter().map(|record| so_far.least(record)).sum();
    let is_long = run * 2 * of_round.len() as u32 >= whole;
    (is_long && last.block + 1 < GOOD_ROUNDS).then_some(run)
}

impl SoFar<'_> {
    fn budget(&self) -> Option<Duration> {
        self.plan.study.budget_ns.map(Duration::from_nanos)
    }

    fn fewest(&self) -> u32 {
        FEWEST_ROUNDS.min(self.plan.study.blocks_max)
    }

    fn is_open(&self, trial: &PlannedTrial) -> bool {
        !self.is_done(trial, 0) && self.wants(&None, trial)
    }

    /// What is left for these trials, which begin together; None when they would not end in time.
    pub(super) fn time_left(&self, elapsed: Duration, trials: &[PlannedTrial]) -> Option<TimeLeft> {
        let Some(budget) = self.budget() else { return Some(TimeLeft::default()) };
        let left = budget.saturating_sub(elapsed);
        let most = budget.mul_f64(OVERRUN_MAX);
        let needed = self.time_until(self.fewest()).filter(|needed| elapsed + *needed <= most);
        if let Some(needed) = needed {
            let (study, limit) = (left.max(needed), most.saturating_sub(elapsed));
            return Some(TimeLeft { budget: Some(left), study: Some(study), limit: Some(limit) });
        }
        let longest = trials.iter().map(|trial| self.took(trial).into_iter().max());
        let longest: Duration = longest.flatten().sum();
        let left = Some(left).filter(|left| !left.is_zero() && *left >= longest)?;
        Some(TimeLeft { budget: Some(left), study: Some(left), limit: Some(left) })
    }

    /// What the trials take at least that are open until so many rounds are done, as far as those so far tell; None
    /// where none is open, and where nothing is known of any.
    pub(super) fn time_until(&self, rounds: u32) -> Option<Duration> {
        let is_due = |block: &&PlannedBlock| block.warmup || block.block < rounds;
        let due = self.plan.blocks.iter().filter(is_due).flat_map(|block| &block.trials);
        let times = due.filter(|trial| self.is_open(trial)).filter_map(|trial| {
            let own = self.took(trial).first().copied();
            own.or_else(|| {
                let name = &self.plan.study.workloads[trial.workload].name;
                self.completed().find(|one| one.workload == *name).map(|one| self.least(one))
            })
        });
        times.reduce(|sum, time| sum + time)
    }

    /// The records of trials that came to their end, the last one first.
    fn completed(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().rev().filter(|record| record.outcome == Outcome::Completed)
    }

    /// Blocks that follow on those of a budget are as long as these were, so that what they take can be told.
    pub(super) fn length_before(&self, workload: &str) -> Option<BudgetShare> {
        self.plan.stop_rule.budget_ns?;
        let is_alike =
            |one: &&Record| one.workload == workload && one.side_by_side.is_some() && !one.warmup;
        let times: Vec<u64> =
            self.completed().filter(is_alike).map(|record| record.elapsed_ns).collect();
        let mean_ns = times.iter().sum::<u64>().checked_div(times.len() as u64)?;
        let mean = Duration::from_nanos(mean_ns);
        Some(BudgetShare { least: mean, twice: mean })
    }

    /// What the trials of a contender under a workload took at least, the last one first.
    fn took(&self, trial: &PlannedTrial) -> Vec<Duration> {
        let study = &self.plan.study;
        let workload = &study.workloads[trial.workload].name;
        let contender = &study.contenders[trial.contender];
        let is_own = |one: &&Record| one.workload == *workload && one.contender == *contender;
        self.completed().filter(is_own).map(|record| self.least(record)).collect()
    }

    /// What a trial would have taken with a single run; of those that take turns, its share of what all took.
    fn least(&self, record: &Record) -> Duration {
        if record.side_by_side.is_none() {
            return Duration::from_nanos(record.elapsed_ns);
        }
        let of = |one: &Record| (one.workload.clone(), one.block, one.warmup, one.session);
        let together: Vec<&Record> = self.completed().filter(|one| of(one) == of(record)).collect();
        let begun = together.iter().map(|one| one.started_unix_ns).min().unwrap_or_default();
        let ended = together.iter().map(|one| one.started_unix_ns.saturating_add(one.elapsed_ns));
        let of_workload = |one: &&lab::spec::Workload| one.name == record.workload;
        let workload = self.plan.study.workloads.iter().find(of_workload);
        let parts = workload.map_or(1, |workload| workload.load.parsed().parts());
        let runs = together.iter().flat_map(|one| &one.slices);
        let repeated = runs.filter(|run| run.round >= parts).map(lab::slice::RunRecord::time_ns);
        let ns = ended.max().unwrap_or_default().saturating_sub(begun);
        let ns = ns.saturating_sub(repeated.fold(0, u64::saturating_add));
        Duration::from_nanos(ns / together.len().max(1) as u64)
    }

    /// What the user must know of a budget that ends before there is an interval, as soon as it is clear.
    pub(super) fn outlook(&self, elapsed: Duration) -> Option<(Outlook, String)> {
        let (budget, needed) = (self.budget()?, self.time_until(self.fewest())?);
        let end = elapsed + needed;
        let (budget_words, fewest) = (rough(budget), self.fewest());
        if end <= budget {
            None
        } else if end <= budget.mul_f64(OVERRUN_MAX) {
            let words = format!(
                "the budget of {budget_words} ends before round {fewest}, and fewer rounds give no interval; going on until about {}",
                rough(end)
            );
            Some((Outlook::Late, words))
        } else {
            let words = format!(
                "warning: the budget of {budget_words} is too short: {fewest} rounds, the fewest that give an interval, end after about {}; give the workload less to do, or go on later with 'kurabe resume'",
                rough(end)
            );
            Some((Outlook::Vain, words))
        }
    }

    /// What the user must know once a session's first block told how long one takes: that the budget
    /// ends before the least number of blocks.
    pub(super) fn short_budget(&self, current: &PlannedBlock, spent: Duration) -> Option<String> {
        let left = self.budget()?.saturating_sub(spent).as_secs_f64();
        let blocks_min = self.plan.study.blocks_min;
        let is_due = |block: &&PlannedBlock| {
            let is_later = current.warmup || block.block > current.block;
            !block.warmup && block.block < blocks_min && is_later
        };
        let due = self.plan.blocks.iter().filter(is_due).count() as u32;
        let needed = self.time_until(blocks_min)?.as_secs_f64();
        let fits = (blocks_min - due) + (left / needed * f64::from(due)) as u32;
        // Fewer have words of their own.
        (needed > left * SHORT_BUDGET_MIN && fits >= self.fewest()).then(|| {
            let enough = (spent.as_secs_f64() + needed * SHORT_BUDGET_MIN).ceil();
            format!(
                "warning: the budget leaves time for about {fits} of at least {blocks_min} rounds; raise --budget to {enough}s, or lower --min-rounds"
            )
        })
    }
}
