//! The comparisons that the study promises: of each workload's most important figure, all of them
//! one family. What is printed and what the stop rule decides by are these, and no others.

use std::collections::BTreeMap;

use super::options;
use super::samples::Samples;
use super::slices;
use crate::load::Unit;
use crate::plan::Plan;
use crate::record::{Record, TIME_METRIC};
use crate::statistics::{self, Group, Order, OrderEffect, Turn};

/// The primary comparisons of one workload.
pub(super) struct Primary {
    /// What is compared, and its unit.
    pub(super) metric: (String, Unit),
    /// The comparisons, in the study's order without the baseline.
    pub(super) compared: Vec<statistics::Comparison>,
    /// What the order of the trials did, which the comparisons are without.
    pub(super) effects: Vec<OrderEffect>,
    /// Of each comparison, by how much its ratios follow the ones before, where they do.
    pub(super) wander: Vec<Option<f64>>,
}

/// Places of the contenders that are compared with the baseline.
pub(super) fn others(plan: &Plan) -> Vec<usize> {
    (0..plan.study.contenders.len()).filter(|place| *place != plan.study.baseline).collect()
}

/// The primary comparisons of every workload, from the blocks of each in `samples`.
pub(super) fn primary(plan: &Plan, records: &[Record], samples: &[Samples<'_>]) -> Vec<Primary> {
    let before = Predecessors::of(plan, records);
    let found: Vec<_> = samples
        .iter()
        .map(|samples| {
            let mut metrics = samples.metrics().into_iter();
            let metric = metrics.next().unwrap_or((TIME_METRIC.into(), Unit::Nanoseconds));
            let (group, effects) = group(plan, samples, &metric, &before);
            (metric, group, effects)
        })
        .collect();
    let groups: Vec<Group> = found.iter().map(|(_, group, _)| group.clone()).collect();
    let compared = statistics::compare_families(&groups, &options(plan))
        .expect("costs are positive, and the margin was checked with the study");
    let both = found.into_iter().zip(compared);
    both.map(|((metric, group, effects), compared)| {
        let wander = |contender: &Vec<Option<f64>>| {
            let (under, over) = statistics::pairs(&group.baseline, contender);
            statistics::wander(&under, &over)
        };
        let wander = group.contenders.iter().map(wander).collect();
        Primary { metric, compared, effects, wander }
    })
    .collect()
}

/// The costs of a figure, and what the order of the trials did to them.
fn group(
    plan: &Plan,
    samples: &Samples<'_>,
    (metric, unit): &(String, Unit),
    before: &Predecessors,
) -> (Group, Vec<OrderEffect>) {
    let contenders = plan.study.contenders.len();
    let mut costs: Vec<Vec<Option<f64>>> =
        (0..contenders).map(|contender| samples.costs(contender, metric, *unit)).collect();
    let blocks = costs.iter().map(Vec::len).max().unwrap_or(0);
    let mut turns: Vec<Turn> = Vec::new();
    for block in 0..blocks {
        // Trials that took turns came in another order in every round: see `slices`.
        let came = |record: &&&Record| record.side_by_side.is_none();
        let numbers = |contender: &usize| {
            samples.records[*contender][block].as_ref().filter(came).map(|record| record.trial)
        };
        let first = (0..contenders).filter_map(|contender| numbers(&contender)).min();
        for (contender, costs) in costs.iter().enumerate() {
            if let Some((cost, trial)) = costs[block].zip(numbers(&contender)) {
                let previous = before.of_trial(trial);
                let first = Some(trial) == first;
                turns.push(Turn { block, contender, first, previous, value: cost.ln() });
            }
        }
    }
    let order = match turns.is_empty() {
        true => Order::default(),
        false => statistics::order(&turns, contenders, plan.study.baseline),
    };
    if !order.effects.is_empty() {
        for (turn, value) in turns.iter().zip(&order.values) {
            costs[turn.contender][turn.block] = Some(value.exp());
        }
    }
    let others = others(plan);
    let of_others = |place: &usize| order.corrections.get(*place).copied().unwrap_or_default();
    let turns = |place: &usize| slices::slow(samples, [plan.study.baseline, *place], metric, *unit);
    let group = Group {
        slow_turns: others.iter().map(turns).collect(),
        corrections: others.iter().map(of_others).collect(),
        contenders: others.iter().map(|place| costs[*place].clone()).collect(),
        baseline: costs[plan.study.baseline].clone(),
    };
    (group, order.effects)
}

/// Which contender's trial came before each trial, whatever its workload.
struct Predecessors(BTreeMap<u32, usize>);

impl Predecessors {
    fn of(plan: &Plan, records: &[Record]) -> Predecessors {
        let place = |record: &Record| {
            plan.study.contenders.iter().position(|c| c.label == record.contender.label)
        };
        let ended = records.iter().filter(|record| record.has_ended());
        Predecessors(ended.filter_map(|record| Some((record.trial, place(record)?))).collect())
    }

    fn of_trial(&self, trial: u32) -> Option<usize> {
        self.0.range(..trial).next_back().map(|(_, contender)| *contender)
    }
}
