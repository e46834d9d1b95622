//! The comparisons that the study promises: of each workload's most important figure, those with the
//! baseline one family, those of the others two by two another. What is printed and what the stop rule
//! decides by are these, and no others.

use std::collections::BTreeMap;

use super::samples::Samples;
use super::slices;
use crate::plan::Plan;
use crate::record::{Record, TIME_METRIC, VALUES};
use crate::statistics::{self, ComparisonOptions, Group, OrderEffect, OrderEffects, OrderedRun};
use crate::workload::Unit;

/// The primary comparisons of one workload.
pub(super) struct Primary {
    /// What is compared, and its unit.
    pub(super) metric: (String, Unit),
    /// The costs that are compared, without what the order of the trials did to them.
    pub(super) group: Group,
    /// The comparisons, in the study's order without the baseline.
    pub(super) compared: Vec<statistics::CostEstimate>,
    /// Those that can be chosen and are not the baseline, two by two: a family of their own.
    pub(super) direct: Vec<Direct>,
    /// What the order of the trials did, which the comparisons are without.
    pub(super) effects: Vec<OrderEffect>,
    /// Of each comparison, by how much its ratios follow the ones before, where they do.
    pub(super) serial_correlation: Vec<Option<f64>>,
}

/// Two contenders, neither of them the baseline, compared in the blocks that both have.
pub(super) struct Direct {
    /// Their places, the one that stands for the baseline first.
    pub(super) places: [usize; 2],
    pub(super) compared: statistics::CostEstimate,
}

/// Places of the contenders that are compared with the baseline.
pub(super) fn others(plan: &Plan) -> Vec<usize> {
    (0..plan.study.contenders.len()).filter(|place| *place != plan.study.baseline).collect()
}

/// Of these the ones that can be chosen: nobody can choose the bare device.
fn choices(plan: &Plan) -> Vec<usize> {
    let is_choice = |place: &usize| !plan.study.contenders[*place].is_raw();
    others(plan).into_iter().filter(is_choice).collect()
}

/// The primary comparisons of every workload, from the blocks of each in `samples`.
pub(super) fn primary(
    plan: &Plan,
    records: &[Record],
    samples: &[Samples<'_>],
    options: &ComparisonOptions,
) -> Vec<Primary> {
    let before = Predecessors::of(plan, records);
    let others = others(plan);
    let choices = choices(plan);
    let compare = |groups: &[Group]| {
        statistics::compare_families(groups, options)
            .expect("costs are positive, and the margin was checked with the study")
    };
    let (mut found, mut direct) = (Vec::new(), Vec::new());
    for (workload, samples) in samples.iter().enumerate() {
        let mut metrics = samples.metrics().into_iter();
        let metric = metrics.next().unwrap_or((TIME_METRIC.into(), Unit::Nanoseconds));
        let against = |first, others| group(plan, samples, &metric, &before, first, others);
        for (place, first) in choices.iter().enumerate() {
            let rest = &choices[place + 1..];
            direct.push((workload, *first, rest, against(*first, rest).0));
        }
        let (group, effects) = against(plan.study.baseline, &others);
        found.push((metric, group, effects));
    }
    let groups: Vec<Group> = direct.iter().map(|(.., group)| group.clone()).collect();
    let mut all_direct: Vec<Vec<Direct>> = found.iter().map(|_| Vec::new()).collect();
    for ((workload, first, rest, _), compared) in direct.into_iter().zip(compare(&groups)) {
        let both = rest.iter().zip(compared);
        let both = both.map(|(other, compared)| Direct { places: [first, *other], compared });
        all_direct[workload].extend(both);
    }
    let groups: Vec<Group> = found.iter().map(|(_, group, _)| group.clone()).collect();
    let all = found.into_iter().zip(compare(&groups)).zip(all_direct);
    all.map(|(((metric, group, effects), compared), direct)| {
        let serial_correlation = |contender: &Vec<Option<f64>>| {
            let (under, over) = statistics::pairs(&group.baseline, contender);
            statistics::serial_correlation(&under, &over)
        };
        let serial_correlation = group.contenders.iter().map(serial_correlation).collect();
        Primary { metric, group, compared, direct, effects, serial_correlation }
    })
    .collect()
}

/// What the order of the trials did is taken out among so many contenders at most: it takes time of their fourth
/// power.
const ORDERED_MAX: usize = 64;

/// The costs of a figure, those of `others` against those of `baseline`, and what the order of the trials
/// did to them.
pub(super) fn group(
    plan: &Plan,
    samples: &Samples<'_>,
    (metric, unit): &(String, Unit),
    before: &Predecessors,
    baseline: usize,
    others: &[usize],
) -> (Group, Vec<OrderEffect>) {
    let contenders = plan.study.contenders.len();
    let mut costs: Vec<Vec<Option<f64>>> =
        (0..contenders).map(|contender| samples.costs(contender, metric, *unit)).collect();
    let blocks = costs.iter().map(Vec::len).max().unwrap_or(0);
    let mut turns: Vec<OrderedRun> = Vec::new();
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
                turns.push(OrderedRun { block, contender, first, previous, value: cost.ln() });
            }
        }
    }
    let order = if turns.is_empty() || contenders > ORDERED_MAX {
        OrderEffects::default()
    } else {
        statistics::order(&turns, contenders, baseline)
    };
    if !order.effects.is_empty() {
        for (turn, value) in turns.iter().zip(&order.values) {
            costs[turn.contender][turn.block] =
                Some(value.exp()).filter(|cost| VALUES.contains(cost));
        }
    }
    let of_others = |place: &usize| order.corrections.get(*place).copied().unwrap_or_default();
    let (mut slow_turns, mut runs) = (Vec::new(), Vec::new());
    for place in others {
        let turns = slices::pairs(samples, [baseline, *place], metric, *unit);
        slow_turns.push(statistics::slow_turns(&turns));
        runs.push(statistics::runs(&turns));
    }
    let group = Group {
        slow_turns,
        runs,
        corrections: others.iter().map(of_others).collect(),
        contenders: others.iter().map(|place| costs[*place].clone()).collect(),
        baseline: costs[baseline].clone(),
    };
    (group, order.effects)
}

/// Which contender's trial came before each trial, whatever its workload.
pub(super) struct Predecessors(BTreeMap<u32, usize>);

impl Predecessors {
    pub(super) fn of(plan: &Plan, records: &[Record]) -> Predecessors {
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
