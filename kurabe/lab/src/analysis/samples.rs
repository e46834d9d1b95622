//! The records of a workload by contender and block, and their figures as values and as costs. Knows
//! nothing of what the statistics make of them.

use std::collections::HashMap;

use super::exploratory::counted;
use crate::plan::Plan;
use crate::record::{Outcome, Record, TIME_METRIC, unfinished_block};
use crate::workload::{Metric, Unit};

/// The counted records of a workload, by contender and block.
pub(super) struct Samples<'a> {
    /// `[contender][block]`; without those of a block that was not finished.
    pub(super) records: Vec<Vec<Option<&'a Record>>>,
    /// By contender every trial that checked something, warm-ups too, in the order of the records.
    pub(super) checked: Vec<Vec<&'a Record>>,
    /// What a block that was not finished left: none of it is in a figure.
    pub(super) left_over: Vec<&'a Record>,
    /// Where the figures are in the lists of most records.
    places: HashMap<String, usize>,
}

impl<'a> Samples<'a> {
    pub(super) fn new(
        plan: &Plan,
        records: &'a [Record],
        workload: usize,
        blocks: usize,
    ) -> Samples<'a> {
        let name = &plan.study.workloads[workload].name;
        let unfinished = unfinished_block(records, name);
        let mut by_contender = vec![vec![None; blocks]; plan.study.contenders.len()];
        let mut checked = vec![Vec::new(); plan.study.contenders.len()];
        let mut left_over = Vec::new();
        for record in records.iter().filter(|record| record.workload == *name) {
            let contender =
                plan.study.contenders.iter().position(|c| c.label == record.contender.label);
            let is_reached = record.warmup || (record.block as usize) < blocks;
            if let Some(contender) = contender.filter(|_| is_reached && !record.checks.is_empty()) {
                checked[contender].push(record);
            }
            let counted = !record.warmup && record.has_ended();
            if let (true, Some(contender)) = (counted, contender)
                && let Some(slot) = by_contender[contender].get_mut(record.block as usize)
            {
                // A trial that only checks stands beside the one that is timed.
                if unfinished == Some(record.block) {
                    left_over.push(record);
                } else if slot.is_none() || !record.is_checked_only() {
                    *slot = Some(record);
                }
            }
        }
        let mut samples =
            Samples { records: by_contender, checked, left_over, places: HashMap::new() };
        let names = samples.metrics().into_iter().map(|(name, _)| name);
        samples.places = names.enumerate().map(|(place, name)| (name, place)).collect();
        samples
    }

    pub(super) fn blocks(&self) -> usize {
        self.records.first().map_or(0, Vec::len)
    }

    /// Number of the blocks of which the trials of all contenders ended that were to be tried.
    pub(super) fn whole_blocks(&self) -> usize {
        let is_whole = |block: &usize| {
            let mut trials = self.records.iter().filter_map(|trials| trials[*block]);
            let count = trials.clone().count();
            let expected = trials.find_map(|record| record.block_trials);
            count >= expected.map_or(self.records.len(), |expected| expected as usize)
        };
        (0..self.blocks()).filter(is_whole).count()
    }

    /// The figures that the workload's records have, as the first completed one has them.
    pub(super) fn figures(&self) -> Vec<Metric> {
        let completed = (0..self.records.len()).flat_map(|contender| self.completed(contender));
        let metrics = completed.map(Record::metrics).find(|metrics| !metrics.is_empty());
        metrics.unwrap_or_default()
    }

    /// Their names and units.
    pub(super) fn metrics(&self) -> Vec<(String, Unit)> {
        self.figures().into_iter().map(|metric| (metric.name, metric.unit)).collect()
    }

    /// The values of a figure by block.
    pub(super) fn values(&self, contender: usize, metric: &str) -> Vec<Option<f64>> {
        let place = self.places.get(metric).copied().unwrap_or_default();
        let value = |record: &Option<&Record>| {
            let value = record.and_then(|record| record.metric_near(metric, place))?;
            (value.is_finite() && value >= 0.0).then_some(value)
        };
        self.records[contender].iter().map(value).collect()
    }

    /// The values as costs, of which less is better; all of them positive. None where a check of the
    /// contender was violated, which is not compared with others, and where one of the values is
    /// zero: no ratio tells of it, and without it the others would flatter the contender.
    pub(super) fn costs(&self, contender: usize, metric: &str, unit: Unit) -> Vec<Option<f64>> {
        let mut values = self.values(contender, metric);
        if self.is_violated(contender) || values.contains(&Some(0.0)) {
            values.fill(None);
        }
        if unit.more_is_better() {
            values.iter_mut().flatten().for_each(|value| *value = value.recip());
        }
        values
    }

    /// Whether a check of the contender was violated in any trial.
    pub(super) fn is_violated(&self, contender: usize) -> bool {
        self.checked[contender].iter().any(|record| record.is_violated())
    }

    /// The completed record of a contender in a block, found by its place.
    pub(super) fn completed_in(&self, contender: usize, block: usize) -> Option<&'a Record> {
        let record = *self.records[contender].get(block)?;
        record.filter(|record| record.outcome == Outcome::Completed)
    }

    pub(super) fn completed(&self, contender: usize) -> impl Iterator<Item = &'a Record> + '_ {
        let all = self.records[contender].iter().flatten().copied();
        all.filter(|record| record.outcome == Outcome::Completed)
    }
}

/// Counted blocks that the records reach into, over one workload.
pub(super) fn blocks_reached(plan: &Plan, records: &[Record], workload: usize) -> usize {
    let name = &plan.study.workloads[workload].name;
    records
        .iter()
        .filter(|record| !record.warmup && record.workload == *name && record.has_ended())
        .map(|record| record.block as usize + 1)
        .max()
        .unwrap_or(0)
}

/// Whole counted blocks that the records reach, under the workload that has most of them.
pub(super) fn reached(plan: &Plan, records: &[Record]) -> u32 {
    let of_workload = |workload: usize| {
        let blocks = blocks_reached(plan, records, workload) as u32;
        let unfinished = unfinished_block(records, &plan.study.workloads[workload].name);
        unfinished.map_or(blocks, |block| block.min(blocks))
    };
    (0..plan.study.workloads.len()).map(of_workload).max().unwrap_or(0)
}

/// The counted, completed trials of a workload in the order of their blocks, by contender in the
/// study's order: the trials whose figures are compared. Those of a block that was not finished are
/// not among them.
pub fn completed_trials<'a>(
    plan: &Plan,
    records: &'a [Record],
    workload: usize,
) -> Vec<Vec<&'a Record>> {
    let blocks = blocks_reached(plan, records, workload);
    let samples = Samples::new(plan, records, workload, blocks);
    (0..plan.study.contenders.len())
        .map(|contender| samples.completed(contender).collect())
        .collect()
}

/// A figure as a cost (less is better).
pub struct Costs {
    /// Its name and its unit.
    pub metric: (String, Unit),
    /// By contender in the study's order and by block.
    pub values: Vec<Vec<Option<f64>>>,
}

/// A figure as a cost: `metric`, or the workload's most important figure; or what its records tell besides. Without
/// values for a workload or a figure that there is not.
pub fn costs(plan: &Plan, records: &[Record], workload: &str, metric: Option<&str>) -> Costs {
    let nothing = || Costs {
        metric: (metric.unwrap_or(TIME_METRIC).to_string(), Unit::Nanoseconds),
        values: Vec::new(),
    };
    let Some(place) = plan.study.workloads.iter().position(|entry| entry.name == workload) else {
        return nothing();
    };
    let samples = Samples::new(plan, records, place, blocks_reached(plan, records, place));
    let mut metrics = samples.metrics().into_iter();
    match metrics.find(|(name, _)| metric.is_none_or(|metric| metric == name)) {
        Some((name, unit)) => Costs {
            values: (0..plan.study.contenders.len())
                .map(|contender| samples.costs(contender, &name, unit))
                .collect(),
            metric: (name, unit),
        },
        None => metric.and_then(|name| counted(plan, &samples, name)).unwrap_or_else(nothing),
    }
}
