//! How the contenders stand to the baseline: every trial a point, the estimate with its interval.

use std::collections::BTreeMap;

use lab::analysis::Comparison;
use lab::contender::Contender;
use lab::record::Record;

use super::{WorkloadView, scale_of};
use crate::chart::{
    Axis, Chart, ChartSeries, Guide, LegendEntry, Point, SeriesStyle, Sign, row_offset,
};
use crate::source::{ResultSource, value_of};
use crate::table::{Cell, Table, Tone};
use crate::{quotient, tables, text};

/// Most metrics that are shown in one chart.
const METRICS_MAX: usize = 14;

/// The paired ratios of the most important figure.
pub fn against_baseline(view: &WorkloadView<'_>) -> Option<Chart> {
    let study = &view.source.plan.study;
    let baseline = study.contenders[study.baseline].label.as_str();
    let (metric, unit) = view.primary()?;
    let records = view.source.completed(&view.analysis.workload);
    let mut rows: Vec<usize> = view.ranked();
    rows.retain(|contender| *contender != study.baseline && !records[*contender].is_empty());
    if rows.is_empty() {
        return None;
    }
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "cost", "from", "to", "verdict", "rounds"]);
    let mut said = Vec::new();
    for (row, contender) in rows.iter().enumerate() {
        let label = view.analysis.contenders[*contender].label.as_str();
        let found = view
            .analysis
            .comparisons
            .iter()
            .find(|comparison| comparison.contender == label && comparison.metric == metric);
        // A ratio that is withheld is not shown as a dot either.
        if found.is_some_and(|comparison| comparison.ratio.is_none()) {
            said.push(format!("{label}: {}", quotient::WITHHELD));
            continue;
        }
        let pairs = paired(&records[study.baseline], &records[*contender], metric);
        let dots = pairs.iter().enumerate().map(|(place, (block, ratio))| {
            let cost = if unit.more_is_better() { ratio.recip() } else { *ratio };
            let text = format!("{label}, round {}: {}", block + 1, text::ratio(cost));
            Point::at(cost, row as f64 + row_offset(place) + 0.2, text)
        });
        series.push(ChartSeries {
            key: *contender,
            mark: SeriesStyle::Dots,
            points: dots.collect(),
        });
        if let Some(comparison) = found
            && let Some(cost) = comparison.cost()
        {
            let words = format!("{label}: {}", estimate_text(comparison));
            let point =
                Point::at(cost, row as f64 - 0.14, words.clone()).between(comparison.cost_ends());
            series.push(ChartSeries {
                key: *contender,
                mark: SeriesStyle::Interval,
                points: vec![point],
            });
            said.push(words);
            numbers.rows.push(comparison_row(label, comparison));
        }
    }
    let x = Axis::of_ratios(format!("cost relative to {baseline}, by {metric}"), &series)?;
    let y = Axis::rows(rows.iter().map(|row| view.analysis.contenders[*row].label.as_str()));
    Some(Chart {
        says: format!(
            "{}. Each dot is one round: the contender's run against {baseline}'s. The large symbol is the estimate with its interval; the band is the margin of {} % within which two count as the same.",
            said.join("; "),
            text::plain(study.same_within * 100.0)
        ),
        height: 84 + 52 * rows.len() as u32,
        keys: view.keys(),
        legend: rows.len() > 2,
        series,
        guides: Guide::of_ratios(baseline, study.same_within),
        numbers,
        ..Chart::new(view.id("ratio"), format!("Cost relative to {baseline}"), x, y)
    })
}

/// All workloads in one picture: the primary metric of each.
pub fn overview(source: &ResultSource) -> Option<Chart> {
    let rows = source.analysis.workloads.iter().map(|workload| {
        let compared = tables::primary_comparisons(workload).collect();
        (workload.workload.as_str(), compared)
    });
    cost_chart(source, "overview".into(), "workload", rows.collect())
}

/// The metrics of a workload that has several.
pub fn every_metric(view: &WorkloadView<'_>) -> Option<Chart> {
    let known = view.analysis.comparisons.iter().filter(|one| one.ratio.is_some());
    let known = known.filter(|one| !tables::is_said(view.analysis, &one.metric));
    let names = text::distinct(known.map(|one| one.metric.as_str()));
    // One alone is in the chart of the ranking, and a matrix has maps of its own.
    if names.len() < 2 || names.len() > METRICS_MAX || !view.analysis.overhead.is_empty() {
        return None;
    }
    let all = &view.analysis.comparisons;
    let of = |name| all.iter().filter(|one| one.metric == name).collect();
    let rows = names.into_iter().map(|name| (name, of(name))).collect();
    cost_chart(view.source, view.id("metrics"), "metric", rows)
}

/// The cost of each contender relative to the baseline, with its interval: a row for each workload
/// or metric, whether of it less is better or more.
fn cost_chart(
    source: &ResultSource,
    id: String,
    what: &str,
    rows: Vec<(&str, Vec<&Comparison>)>,
) -> Option<Chart> {
    let study = &source.plan.study;
    let baseline = study.contenders[study.baseline].label.as_str();
    let others = study.contenders.len().saturating_sub(1).max(1);
    let mut series: Vec<ChartSeries> = Vec::new();
    let mut numbers = Table::new(&[what, "contender", "cost", "from", "to", "verdict", "rounds"]);
    for (row, (name, compared)) in rows.iter().enumerate() {
        for (place, comparison) in compared.iter().enumerate() {
            let Some(cost) = comparison.cost() else { continue };
            let is_it = |contender: &Contender| contender.label == comparison.contender;
            let Some(key) = study.contenders.iter().position(is_it) else { continue };
            let row_offset = (place as f64 + 0.5) / others as f64 - 0.5;
            let words = format!("{name}, {}: {}", comparison.contender, estimate_text(comparison));
            let ends = comparison.cost_ends();
            let point = Point::at(cost, row as f64 + row_offset * 0.7, words).between(ends);
            let mark = match tables::tone_of(&comparison.verdict) {
                Tone::Uncertain => SeriesStyle::Hollow,
                _ => SeriesStyle::Interval,
            };
            let is_like = |one: &ChartSeries| {
                let has_ends = one.points.iter().any(|point| point.low.is_some());
                one.key == key && one.mark == mark && has_ends == ends.is_some()
            };
            match series.iter_mut().find(|one| is_like(one)) {
                Some(series) => series.points.push(point),
                None => series.push(ChartSeries { key, mark, points: vec![point] }),
            }
            let mut cells = vec![Cell::from(*name)];
            cells.extend(comparison_row(&comparison.contender, comparison));
            numbers.rows.push(cells);
        }
    }
    let x = Axis::of_ratios(format!("cost relative to {baseline}"), &series)?;
    let is_open = series.iter().any(|one| one.mark == SeriesStyle::Hollow);
    let keys = study.contenders.iter().enumerate();
    Some(Chart {
        says: "To the right: slower. The lines are the intervals; an arrow means that one goes on."
            .into(),
        height: 84 + rows.len() as u32 * (18 + 13 * others as u32),
        keys: keys
            .map(|(style, contender)| LegendEntry::contender(&contender.label, style))
            .collect(),
        series,
        guides: Guide::of_ratios(baseline, study.same_within),
        signs: if is_open {
            vec![Sign { mark: SeriesStyle::Hollow, text: "in outline: inconclusive".into() }]
        } else {
            Vec::new()
        },
        numbers,
        ..Chart::new(
            id,
            format!("Every {what}: cost relative to {baseline}"),
            x,
            Axis::rows(rows.iter().map(|(name, _)| *name)),
        )
    })
}

/// The most important figure in the order of the blocks, where a drift of the machine shows.
pub fn over_blocks(view: &WorkloadView<'_>) -> Option<Chart> {
    let (metric, unit) = view.primary()?;
    let records = view.source.completed(&view.analysis.workload);
    let values = |records: &[&Record]| -> Vec<(u32, u32, f64)> {
        let values = records
            .iter()
            .filter_map(|record| Some((record.block, record.trial, value_of(record, metric)?)));
        values.collect()
    };
    let by_contender: Vec<Vec<(u32, u32, f64)>> = records.iter().map(|r| values(r)).collect();
    let all = || by_contender.iter().flatten();
    let last = all().map(|(block, ..)| *block).max()?;
    if last == 0 {
        return None;
    }
    let largest = all().map(|(.., value)| *value).fold(0.0, f64::max);
    let (name, size) = scale_of(unit, largest);
    let mut series = Vec::new();
    for (key, values) in by_contender.iter().enumerate() {
        let label = &view.analysis.contenders[key].label;
        let points = values.iter().map(|(block, trial, value)| {
            let words = format!(
                "{label}, round {}, run {trial}: {}",
                block + 1,
                text::figure(*value, unit)
            );
            Point::at(f64::from(block + 1), value / size, words)
        });
        series.push(ChartSeries { key, mark: SeriesStyle::Steps, points: points.collect() });
    }
    let mut x = Axis::linear("round", 0.7, f64::from(last) + 1.3);
    x.ticks.retain(|tick| tick.at.fract() == 0.0);
    for tick in &mut x.ticks {
        tick.text = format!("{:.0}", tick.at);
    }
    x.fixed = true;
    Some(Chart {
        says: format!(
            "{metric} of each of the {} runs that are compared. Lines that rise or fall together show that the machine drifted; costs are computed within each round, which removes that.",
            all().count()
        ),
        height: 320,
        keys: view.keys(),
        series,
        ..Chart::new(
            view.id("rounds"),
            "Every run, in the order of the rounds".into(),
            x,
            Axis::from_zero(format!("{metric}, {name}"), all().map(|(.., value)| value / size)),
        )
    })
}

/// Blocks in which both have a value, with the ratio.
fn paired(baseline: &[&Record], contender: &[&Record], metric: &str) -> Vec<(u32, f64)> {
    let by_block: BTreeMap<u32, &Record> =
        baseline.iter().rev().map(|record| (record.block, *record)).collect();
    let of = |record: &Record| {
        let partner = *by_block.get(&record.block)?;
        let value = |record| value_of(record, metric).filter(|value| *value > 0.0);
        Some((record.block, value(record)? / value(partner)?))
    };
    contender.iter().filter_map(|record| of(record)).collect()
}

/// `1.18, between 0.84 and 1.65: inconclusive`.
fn estimate_text(comparison: &Comparison) -> String {
    let ratio = comparison.cost().map_or("-".into(), text::ratio);
    let verdict = tables::verdict_text(&comparison.verdict);
    match comparison.cost_ends() {
        Some((low, high)) => {
            format!("{ratio}, between {} and {}: {verdict}", text::ratio(low), text::ratio(high))
        }
        None => format!("{ratio}, without an interval: {verdict}"),
    }
}

fn comparison_row(label: &str, comparison: &Comparison) -> Vec<Cell> {
    let number = |value: Option<f64>| Cell::maybe(value, text::ratio);
    let ends = comparison.cost_ends();
    let tone = tables::tone_of(&comparison.verdict);
    vec![
        label.into(),
        number(comparison.cost()),
        number(ends.map(|ends| ends.0)),
        number(ends.map(|ends| ends.1)),
        Cell::toned(tables::verdict_text(&comparison.verdict), tone),
        Cell::whole(comparison.blocks as u64),
    ]
}
