//! How long a session will take, from a dry run, from the filling of the device and from earlier sessions; and whether
//! a budget is too short for an answer, while nothing has been measured yet.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::plan::Plan;
use lab::quantity::about_text;
use lab::record::Record;
use trial::device::FillProgress;
use vocabulary::words::counted;

use crate::environment::dry_run::DryRunReport;
use crate::runner::{self, FEWEST_ROUNDS};
use crate::terminal::rough;

/// A dry run is a little faster than a round: nothing is dropped from caches, and nothing waits for a disk.
const SAFETY: f64 = 1.15;

/// What a filling takes is known after so long.
const FILLING_SEEN: Duration = Duration::from_secs(1);

/// A filling that takes longer is announced.
const FILLING_LONG: Duration = Duration::from_secs(5);
/// A filling that would take longer is nothing that anybody waits for; what another machine says may be anything.
const FILLING_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What is known so far.
pub struct TimeForecast<'a> {
    plan: &'a Plan,
    records: &'a [Record],
    budget: Option<Duration>,
    /// What a dry run found.
    pub tried: Option<DryRunReport>,
    /// When the filling began, and what is left of it.
    filling: Option<(Duration, Option<Duration>)>,
}

impl<'a> TimeForecast<'a> {
    /// Nothing is known but what earlier sessions recorded.
    pub fn new(
        plan: &'a Plan,
        records: &'a [Record],
        budget: Option<Duration>,
    ) -> TimeForecast<'a> {
        TimeForecast { plan, records, budget, tried: None, filling: None }
    }

    /// Takes in how far the filling is; says once how long it will take, where that is long.
    pub fn filling(&mut self, fill: FillProgress, elapsed: Duration) -> Option<String> {
        let (begun, left) = *self.filling.get_or_insert((elapsed, None));
        let took = elapsed.saturating_sub(begun);
        let is_done = fill.done_bytes >= fill.total_bytes;
        if fill.done_bytes == 0 || (took < FILLING_SEEN && !is_done) {
            return None;
        }
        let open = fill.total_bytes.saturating_sub(fill.done_bytes) as f64;
        let rest = took.as_secs_f64() * open / fill.done_bytes as f64;
        let rest = Duration::try_from_secs_f64(rest).ok().filter(|rest| *rest < FILLING_MAX)?;
        self.filling = Some((begun, Some(rest)));
        (left.is_none() && took + rest >= FILLING_LONG).then(|| {
            let device = &self.plan.study.device;
            let mut words = format!(
                "filling {device} ({}) with random data takes about {}; a smaller --device takes less",
                about_text(fill.total_bytes),
                rough(took + rest)
            );
            if let Some(study) = self.study(rest) {
                words.push_str(&format!("; all of it takes about {study}"));
            }
            words
        })
    }

    /// What is still to come, in words, once that is known.
    fn study(&self, rest: Duration) -> Option<String> {
        let study = &self.plan.study;
        let (least, most) = match (self.round(), runner::time_left(self.plan, self.records)) {
            (_, Some(known)) => known,
            (Some(round), None) => (round * study.blocks_min, round * study.blocks_max),
            (None, None) => return None,
        };
        let bounded = |time: Duration| {
            let time = time + rest;
            rough(self.budget.map_or(time, |budget| time.min(budget)))
        };
        let (least, most) = (bounded(least), bounded(most));
        Some(if least == most { least } else { format!("{least} to {most}") })
    }

    /// What a round of every workload takes at least.
    fn round(&self) -> Option<Duration> {
        let tried = self.tried.as_ref().filter(|tried| !tried.runs.is_empty())?;
        let study = &self.plan.study;
        let contenders = study.contenders.len() as u32;
        let runs = study.runs_of_block(0).unwrap_or(1);
        let of = |name: &String| {
            let run = tried.runs.get(name).map_or(Duration::ZERO, |run| run.time);
            tried.around + run * contenders * runs
        };
        Some(study.workloads.iter().map(|workload| of(&workload.name)).sum())
    }

    /// Why the budget gives no answer, once that is certain.
    pub fn too_short(&self, elapsed: Duration) -> Option<String> {
        let (budget, round) = (self.budget?, self.round()?.mul_f64(SAFETY));
        let study = &self.plan.study;
        let done = self.records.iter().filter(|record| !record.warmup && record.has_ended());
        let done = done.map(|record| record.block + 1).max().unwrap_or(0);
        let open = |rounds: u32| rounds.min(study.blocks_max).saturating_sub(done);
        let rest = self.filling.and_then(|(_, rest)| rest).unwrap_or_default();
        let needed = elapsed + rest + round * (open(FEWEST_ROUNDS) + study.warmup_blocks);
        if needed <= budget {
            return None;
        }
        let good = elapsed + rest + round * (open(study.blocks_min) + study.warmup_blocks);
        let at_least = match &self.tried {
            Some(tried) if tried.runs.values().any(|run| !run.ended) => "at least",
            _ => "about",
        };
        // In steps that a person would choose.
        let step = if good < Duration::from_secs(60) { 5.0 } else { 20.0 };
        let allow = (good.as_secs_f64() / step).ceil() * step;
        let (mut filling, mut next) = (String::new(), "give the command less to do");
        if rest >= FILLING_SEEN {
            filling = format!(", and filling {} takes {} more", study.device, rough(rest));
            next = "take a smaller --device";
        }
        Some(format!(
            "--budget: {} is too short: a round of {} takes {at_least} {}, an interval needs {}{filling}; allow {at_least} {allow}s, or {next}",
            rough(budget),
            counted(study.contenders.len(), "contender"),
            rough(round.max(Duration::from_secs(1))),
            counted(FEWEST_ROUNDS.min(study.blocks_max) as usize, "round"),
        ))
    }

    /// What one run takes on one contender at least, by the name of its workload.
    pub fn run_times(self) -> BTreeMap<String, Duration> {
        let runs = self.tried.unwrap_or_default().runs.into_iter();
        let runs = runs.map(|(name, run)| (name, run.time));
        runs.filter(|(_, time)| !time.is_zero()).collect()
    }
}
