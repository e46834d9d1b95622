//! Cost against benefit: what the time buys, in space or in bytes written to the device.

use lab::analysis::ContenderAnalysis;
use lab::workload::Unit;

use super::{WorkloadView, better, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, Guide, Point, SeriesStyle, extremes};
use crate::costs::FEW_BYTES;
use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::{tables, text};

/// Quantities that differ by no more than this factor are no choice between contenders.
const APART: f64 = 1.1;

/// A quantity that a contender pays with besides time.
#[derive(Clone, Copy)]
struct Paid {
    name: &'static str,
    unit: Unit,
    of: fn(&ContenderAnalysis) -> Option<f64>,
}

const WRITTEN: Paid = Paid {
    name: "bytes written by the device",
    unit: Unit::Bytes,
    of: |one| one.cost.device_written_bytes,
};
const SPACE: Paid =
    Paid { name: "space taken", unit: Unit::Bytes, of: |one| one.cost.space_taken_bytes };
/// Of a workload that runs for a time, whose amount of work differs.
const AMPLIFICATION: Paid = Paid {
    name: "device bytes written for each byte that the workload wrote",
    unit: Unit::Count,
    of: |one| one.cost.write_amplification,
};

impl Paid {
    /// The values of the contenders that have one and a first metric, by their places.
    fn values(self, view: &WorkloadView<'_>) -> Vec<(usize, f64)> {
        let all = view.analysis.contenders.iter().enumerate();
        let all = all.filter(|(_, one)| !one.metrics.is_empty() && one.violation().is_none());
        all.filter_map(|(place, one)| Some((place, (self.of)(one)?))).collect()
    }

    /// How far they are apart.
    fn spread(self, view: &WorkloadView<'_>) -> f64 {
        let values = self.values(view);
        let ends = extremes(values.iter().map(|(_, value)| *value)).filter(|_| values.len() > 1);
        let few = if self.unit == Unit::Bytes { FEW_BYTES } else { 0.0 };
        match ends {
            Some((least, most)) if most > few => most / least.max(most * 1e-3),
            _ => 1.0,
        }
    }

    fn text(self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => text::bytes(value),
            _ => format!("{value:.2}"),
        }
    }
}

/// What the contenders pay differently, writing before space. None where all pay the same.
fn paid(view: &WorkloadView<'_>) -> Option<Paid> {
    let (_, unit) = view.primary()?;
    let written = if unit.more_is_better() { AMPLIFICATION } else { WRITTEN };
    [written, SPACE].into_iter().find(|paid| paid.spread(view) > APART)
}

/// The picture of a workload: a symbol for each contender.
pub fn of_workload(view: &WorkloadView<'_>) -> Option<Chart> {
    let (metric, unit) = view.primary().filter(|_| view.analysis.overhead.is_empty())?;
    let paid = paid(view)?;
    let values = paid.values(view);
    let medians: Vec<f64> = values
        .iter()
        .map(|(place, _)| view.analysis.contenders[*place].metrics[0].summary.median)
        .collect();
    let (name, size) = scale_of(unit, extremes(medians.iter().copied())?.1);
    let (paid_unit, paid_size) = match paid.unit {
        Unit::Bytes => scale_of(paid.unit, extremes(values.iter().map(|one| one.1))?.1),
        _ => ("", 1.0),
    };
    let mut numbers = Table::new(&["contender", metric, paid.name]);
    let mut series = Vec::new();
    for ((place, value), median) in values.iter().zip(&medians) {
        let contender = &view.analysis.contenders[*place];
        let ends = contender.metrics[0].summary.median_interval;
        let words = [text::figure(*median, unit), paid.text(*value)];
        let text = format!("{}: {}, {} {}", contender.label, words[0], words[1], paid.name);
        let point = Point::at(median / size, value / paid_size, text)
            .between(ends.map(|ends| (ends.low / size, ends.high / size)));
        series.push(ChartSeries { key: *place, mark: SeriesStyle::Interval, points: vec![point] });
        let [own, other] = words;
        let cells = [Cell::number(*median, own), Cell::number(*value, other)];
        numbers
            .rows
            .push([Cell::from(contender.label.as_str())].into_iter().chain(cells).collect());
    }
    let ends = || series.iter().flat_map(|one| &one.points).flat_map(|one| [Some(one.x), one.high]);
    let corner = if unit.more_is_better() { "lower right" } else { "lower left" };
    let unit_text = if paid_unit.is_empty() { String::new() } else { format!(", {paid_unit}") };
    let x = Axis::from_zero(format!("{metric}, {name} ({})", better(unit)), ends().flatten());
    let y = Axis::from_zero(
        format!("{}{unit_text} (less is better)", paid.name),
        values.iter().map(|(_, value)| value / paid_size),
    );
    Some(Chart {
        says: format!("Best is at the {corner}. Symbols are medians, lines their intervals."),
        height: 280,
        keys: view.keys(),
        series,
        numbers,
        ..Chart::new(
            view.id("benefit"),
            text::capitalised(&format!("{metric} against {}", paid.name)),
            x,
            y,
        )
    })
}

/// The picture of several workloads: a symbol for each contender under each workload, against the baseline.
pub fn of_workloads(source: &ResultSource) -> Option<Chart> {
    let study = &source.plan.study;
    let baseline = source.plan.baseline_label();
    let mut series: Vec<ChartSeries> = Vec::new();
    let mut numbers = Table::new(&["workload", "contender", "time", "written or taken"]);
    for view in WorkloadView::all(source).iter().filter(|view| view.analysis.overhead.is_empty()) {
        let Some(paid) = paid(view) else { continue };
        let values = paid.values(view);
        let of_baseline = values.iter().find(|(place, _)| *place == study.baseline);
        let Some((_, under)) = of_baseline.filter(|(_, value)| *value > 0.0) else { continue };
        for one in tables::primary_comparisons(view.analysis) {
            let place = study.contenders.iter().position(|other| other.label == one.contender);
            let Some(key) = place else { continue };
            let over = values.iter().find(|(place, _)| *place == key).map(|(_, value)| *value);
            let Some((ratio, over)) = one.ratio.zip(over.filter(|over| *over > 0.0)) else {
                continue;
            };
            let (time, much) = (one.cost_of(ratio), over / under);
            let load = &view.analysis.workload;
            let words = format!(
                "{load}, {}: {} times the time, {} times the {}",
                one.contender,
                text::ratio(time),
                text::ratio(much),
                paid.name
            );
            let point = Point::at(time, much, words);
            match series.iter_mut().find(|one| one.key == key) {
                Some(series) => series.points.push(point),
                None => {
                    series.push(ChartSeries { key, mark: SeriesStyle::Dots, points: vec![point] })
                }
            }
            let number = |value: f64| Cell::number(value, text::ratio(value));
            let [load, contender] = [load, &one.contender].map(|name| Cell::from(name.as_str()));
            numbers.rows.push(vec![load, contender, number(time), number(much)]);
        }
    }
    let points = || series.iter().flat_map(|one| &one.points);
    let axis = |title: String, of: fn(&Point) -> f64| {
        Axis::logarithmic(title, points().map(of).chain([1.0]), text::plain)
    };
    // A single workload is in its own picture.
    if points().count() < 3 {
        return None;
    }
    let x = axis(format!("time for the same work, as a multiple of {baseline}'s"), |one| one.x)?;
    let y = axis(format!("bytes written or space, as a multiple of {baseline}'s"), |one| one.y)?;
    let keys = study.contenders.iter().enumerate();
    let guides =
        vec![Guide::Line { x: 1.0, text: format!("{baseline} = 1") }, Guide::Level { y: 1.0 }];
    Some(Chart {
        says: "Each symbol is one workload. Best is at the lower left. Upwards: bytes written by the device, or space taken where these do not differ.".into(),
        height: 320,
        keys: keys.map(|(style, one)| crate::chart::LegendEntry::contender(&one.label, style)).collect(),
        series,
        guides,
        numbers,
        ..Chart::new("benefit".into(), "Time against bytes written or space".into(), x, y)
    })
}
