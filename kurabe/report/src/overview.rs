//! The table of the answer: loads down, contenders across, and below a workload its parts (the steps of a
//! tree), where somebody is surely faster or slower in one.

use lab::analysis::{Analysis, Comparison, WorkloadAnalysis};
use lab::plan::Plan;
use lab::statistics::BOUND_MAX;
use lab::workload::{GROUP_AXIS, STATISTIC_AXIS, Unit};

use crate::checks;
use crate::document::Block;
use crate::quotient::{WITHHELD, cost_text};
use crate::table::{Cell, Table, Tone};
use crate::tables::{other_operations, primary_metric, tone_of, verdict_mark};
use crate::text;

/// The overview of several workloads, and what its cells are.
pub fn of(analysis: &Analysis, plan: &Plan) -> Vec<Block> {
    let workloads = &analysis.workloads;
    let mut table = empty("workload", plan);
    for workload in workloads {
        table.rows.push(row(workload, primary_metric(workload), &workload.workload, plan));
        let parts = [other_operations(workload), parts_of(workload)].concat();
        table.rows.extend(parts.iter().map(|part| row(workload, part, &format!("· {part}"), plan)));
    }
    let has_parts = table.rows.len() > workloads.len();
    table.rows.extend(together(analysis, plan));
    vec![Block::table("Overview", table), Block::Text(legend(plan, has_parts))]
}

/// The row of all workloads together: the geometric mean of each contender's costs.
fn together(analysis: &Analysis, plan: &Plan) -> Option<Vec<Cell>> {
    if analysis.overall.is_empty() {
        return None;
    }
    let of = |label: &str| {
        let found = analysis.overall.iter().find(|one| one.contender == label);
        found.map_or_else(
            || Cell::from(if label == plan.baseline_label() { "1" } else { "-" }),
            ratio,
        )
    };
    Some(std::iter::once("geometric mean".into()).chain(labels(plan).into_iter().map(of)).collect())
}

/// The parts of the only load: its groups, or its steps where somebody is surely different in one.
pub fn parts(workload: &WorkloadAnalysis, plan: &Plan) -> Vec<Block> {
    let mut table = empty("part of the workload", plan);
    table.rows = parts_of(workload).iter().map(|part| row(workload, part, part, plan)).collect();
    if table.rows.is_empty() {
        Vec::new()
    } else {
        vec![Block::table("Its parts", table), Block::Text(legend(plan, true))]
    }
}

/// Labels, the baseline's first.
fn labels(plan: &Plan) -> Vec<&str> {
    let baseline = plan.baseline_label();
    let others = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    std::iter::once(baseline).chain(others.filter(|label| *label != baseline)).collect()
}

fn empty(first: &str, plan: &Plan) -> Table {
    let labels = labels(plan);
    let mut table = Table::new(&[first]);
    table.heads.push(format!("{} (= 1)", labels[0]));
    table.heads.extend(labels[1..].iter().map(|label| label.to_string()));
    table
}

/// Groups that are shown with the answer; all figures are among the details.
const GROUPS_MAX: usize = 16;

/// The first figure of each group that is measured apart, the ranked one left out. Else the times beside the
/// most important figure, of the steps of a tree; none where nobody is surely faster or slower in one.
fn parts_of(workload: &WorkloadAnalysis) -> Vec<&str> {
    let primary = primary_metric(workload);
    let metrics = workload.contenders.iter().flat_map(|contender| &contender.metrics);
    let groups = metrics.filter_map(|one| Some((one.axes.get(GROUP_AXIS)?, one.name.as_str())));
    let groups = text::grouped(groups).into_iter().filter_map(|(_, names)| names.first().copied());
    let groups: Vec<&str> = groups.filter(|name| *name != primary).take(GROUPS_MAX).collect();
    if !groups.is_empty() {
        return groups;
    }
    let is_extreme =
        |name: &str| workload.axes(name).is_some_and(|axes| axes.contains_key(STATISTIC_AXIS));
    let is_part = |one: &&Comparison| {
        one.metric != primary && one.unit == Unit::Nanoseconds && !is_extreme(&one.metric)
    };
    let parts = || workload.comparisons.iter().filter(is_part);
    if parts().any(|one| one.verdict.is_different()) {
        text::distinct(parts().map(|one| one.metric.as_str()))
    } else {
        Vec::new()
    }
}

/// The baseline's value of a metric, and the ratios of the others to it.
fn row(workload: &WorkloadAnalysis, metric: &str, head: &str, plan: &Plan) -> Vec<Cell> {
    let cells = labels(plan).into_iter().map(|label| cell(workload, metric, label, plan));
    std::iter::once(head.into()).chain(cells).collect()
}

/// What the cells of the overview are.
fn legend(plan: &Plan, has_parts: bool) -> String {
    let parts = "The parts of a workload share a 95 % confidence of their own.";
    format!(
        "Costs relative to {}, with their intervals: + faster, - slower, = the same within {} %, ~ at most {} % apart, ? inconclusive.{}{}",
        plan.baseline_label(),
        text::plain(plan.study.same_within * 100.0),
        text::plain(BOUND_MAX * 100.0),
        if has_parts { " " } else { "" },
        if has_parts { parts } else { "" },
    )
}

/// `- 1.190 (1.060 to 1.340)`: the sign of who is faster, the cost, and its interval.
fn cell(workload: &WorkloadAnalysis, metric: &str, label: &str, plan: &Plan) -> Cell {
    let Some(contender) = workload.contender(label).filter(|contender| contender.trials > 0) else {
        return "-".into();
    };
    if contender.violation().is_some() {
        return checks::mark(contender).unwrap_or_default();
    }
    if contender.metrics.is_empty() {
        if contender.failed == 0 {
            return checks::mark(contender).unwrap_or_else(|| "-".into());
        }
        return Cell::toned(format!("failed {}×", contender.failed), Tone::Bad);
    }
    if label == plan.baseline_label() {
        let found = contender.metrics.iter().find(|one| one.name == metric);
        return found.map_or_else(Cell::default, |one| {
            Cell::number(one.summary.median, text::figure(one.summary.median, one.unit))
        });
    }
    let mut comparisons = workload.comparisons.iter();
    match comparisons.find(|one| one.metric == metric && one.contender == label) {
        Some(comparison) => ratio(comparison),
        None => "-".into(),
    }
}

fn ratio(comparison: &Comparison) -> Cell {
    let mark = verdict_mark(&comparison.verdict);
    let words = cost_text(comparison).unwrap_or_else(|| WITHHELD.into());
    Cell::toned(format!("{mark} {words}"), tone_of(&comparison.verdict)).valued(comparison.cost())
}
