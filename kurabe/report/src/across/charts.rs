//! The charts of several results beside each other.

use super::{Across, AcrossMetric, AcrossWorkload, ratio_text};
use crate::chart::{Axis, Chart, ChartSeries, Guide, LegendEntry, Point, SeriesStyle, row_offset};
use crate::charts::{better, scale_of};
use crate::html::slug;
use crate::table::{Cell, Table};
use crate::text;

/// Most metrics of a workload that have charts of their own.
const METRICS_WITH_CHARTS_MAX: usize = 4;

pub(super) fn charts(across: &Across<'_>, workload: &AcrossWorkload, index: usize) -> Vec<Chart> {
    let mut charts = Vec::new();
    let metrics = workload.metrics.iter().take(METRICS_WITH_CHARTS_MAX);
    for (place, metric) in metrics.enumerate() {
        let id = |what: &str| {
            format!("a{}-{}-{what}-{place}", index + 1, slug(&workload.name)).replace("--", "-")
        };
        charts.extend(ratios(across, metric, id("ratio")));
        charts.extend(trials(across, metric, id("runs")));
    }
    charts
}

fn keys(across: &Across<'_>) -> Vec<LegendEntry> {
    let names = across.names.iter().enumerate();
    names.map(|(style, name)| LegendEntry { name: name.clone(), style, group: "result" }).collect()
}

fn ratios(across: &Across<'_>, metric: &AcrossMetric, id: String) -> Option<Chart> {
    let mut rows: Vec<String> = Vec::new();
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "result", "cost", "from", "to"]);
    for contender in &metric.contenders {
        for (place, comparison) in contender.comparisons.iter().enumerate() {
            let Some(ratio) = comparison.ratio else { continue };
            let name = &across.names[place + 1];
            let ends = comparison.interval.map(|interval| (interval.low, interval.high));
            let words = format!("{} in {name}: {}", contender.label, ratio_text(comparison));
            let point = Point::at(ratio, rows.len() as f64, words).between(ends);
            series.push(ChartSeries {
                key: place + 1,
                mark: SeriesStyle::Interval,
                points: vec![point],
            });
            rows.push(match across.names.len() {
                2 => contender.label.clone(),
                _ => format!("{} · {name}", contender.label),
            });
            let number = |value: Option<f64>| Cell::maybe(value, text::ratio);
            numbers.rows.push(vec![
                contender.label.as_str().into(),
                name.as_str().into(),
                number(Some(ratio)),
                number(ends.map(|ends| ends.0)),
                number(ends.map(|ends| ends.1)),
            ]);
        }
    }
    let before = &across.names[0];
    let title = format!("cost relative to {before}, by {}", metric.name);
    let x = Axis::of_ratios(title, &series)?;
    let y = Axis::rows(rows.iter().map(String::as_str));
    Some(Chart {
        says: format!(
            "Each contender against itself in {before}, with its interval; not interleaved, so a change of the machine is in it."
        ),
        height: 84 + 34 * rows.len() as u32,
        keys: keys(across),
        legend: across.names.len() > 2,
        series,
        guides: Guide::of_ratios(before, across.sources[0].plan.study.same_within),
        numbers,
        ..Chart::new(id, format!("{}: cost relative to {before}", metric.name), x, y)
    })
}

fn trials(across: &Across<'_>, metric: &AcrossMetric, id: String) -> Option<Chart> {
    let all = metric.contenders.iter().flat_map(|c| c.samples.iter().flatten()).copied();
    let (unit_name, size) = scale_of(metric.unit, all.clone().fold(0.0, f64::max));
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "result", "run", &metric.name]);
    for contender in &metric.contenders {
        for (key, samples) in contender.samples.iter().enumerate() {
            let name = &across.names[key];
            let row = rows.len() as f64;
            rows.push(format!("{} · {name}", contender.label));
            let mut points = Vec::new();
            for (place, value) in samples.iter().enumerate() {
                let words = text::figure(*value, metric.unit);
                points.push(Point::at(
                    value / size,
                    row + row_offset(place) + 0.15,
                    format!("{} in {name}: {words}", contender.label),
                ));
                numbers.rows.push(vec![
                    contender.label.as_str().into(),
                    name.as_str().into(),
                    Cell::whole(place as u64 + 1),
                    Cell::number(*value, words),
                ]);
            }
            series.push(ChartSeries { key, mark: SeriesStyle::Dots, points });
            if let Some(summary) = &contender.summaries[key] {
                let ends = summary.median_interval.map(|ends| (ends.low / size, ends.high / size));
                let median = text::figure(summary.median, metric.unit);
                let words = format!("{} in {name}: median {median}", contender.label);
                let point = Point::at(summary.median / size, row - 0.15, words).between(ends);
                series.push(ChartSeries { key, mark: SeriesStyle::Interval, points: vec![point] });
            }
        }
    }
    (!rows.is_empty()).then(|| Chart {
        says: "Each dot is a completed run; the line is the median with its interval.".into(),
        height: 84 + 40 * rows.len() as u32,
        keys: keys(across),
        series,
        numbers,
        ..Chart::new(
            id,
            format!("{}: every run", metric.name),
            Axis::from_zero(
                format!("{}, {unit_name} ({})", metric.name, better(metric.unit)),
                all.map(|value| value / size),
            ),
            Axis::rows(rows.iter().map(String::as_str)),
        )
    })
}
