//! What a number that was scanned does to the figures: operations a second and their 99th percentile over the queue
//! depth of a fio job, the time over the jobs of make.

use std::collections::BTreeMap;

use lab::analysis::ContenderAnalysis;
use lab::workload::{OVERALL_OPERATION, Unit};

use super::runs::LINEAR_SPREAD_MAX;
use super::{WorkloadView, better, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle, Tick, extremes};
use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::{quotient, tables, text};

/// From this ratio of the largest to the smallest value on, equal distances are equal factors.
const FACTOR_MIN: f64 = 8.0;
/// Kinds of operation whose percentiles are drawn; of more those of all together.
const KINDS_MAX: usize = 3;
/// Values whose marks have labels.
const LABELS_MAX: usize = 16;

/// Workloads that differ in one number alone, by it.
struct Scan<'a> {
    parameter: &'a str,
    /// The other parameters, which are the same in all of them.
    fixed: BTreeMap<&'a str, &'a str>,
    points: Vec<(f64, &'a WorkloadView<'a>)>,
}

/// What is drawn: a metric, or the 99th percentile of a kind of operation.
enum Figure<'a> {
    Metric(&'a str, Unit),
    P99(&'a str),
}

/// A value with the ends of its interval, where it has one.
type Value = (f64, Option<(f64, f64)>);

/// The curves of a result: for each number that was scanned, and each figure.
pub fn charts(source: &ResultSource) -> Vec<Chart> {
    let views = WorkloadView::all(source);
    let scans = scans(&views);
    let drawn = scans.iter().flat_map(|scan| figures(scan).into_iter().map(move |one| (scan, one)));
    let drawn = drawn.enumerate();
    drawn.filter_map(|(place, (scan, figure))| draw(scan, &figure, place)).collect()
}

fn scans<'a>(views: &'a [WorkloadView<'a>]) -> Vec<Scan<'a>> {
    let mut scans: Vec<Scan<'a>> = Vec::new();
    for view in views {
        let parameters = &view.source.plan.study.workloads[view.index].parameters;
        for (parameter, value) in parameters {
            let Some(value) = value.parse().ok().filter(|value: &f64| value.is_finite()) else {
                continue;
            };
            let others = parameters.iter().filter(|(name, _)| *name != parameter);
            let fixed = others.map(|(name, value)| (name.as_str(), value.as_str())).collect();
            // Workloads that are written one after another may have the same parameters.
            let is_same = |scan: &&mut Scan<'_>| {
                scan.parameter == parameter
                    && scan.fixed == fixed
                    && scan.points.iter().all(|(known, _)| *known != value)
            };
            match scans.iter_mut().rev().find(is_same) {
                Some(scan) => scan.points.push((value, view)),
                None => scans.push(Scan { parameter, fixed, points: vec![(value, view)] }),
            }
        }
    }
    scans.retain(|scan| scan.points.len() > 1);
    for scan in &mut scans {
        scan.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    scans
}

fn figures<'a>(scan: &Scan<'a>) -> Vec<Figure<'a>> {
    let Some((_, view)) = scan.points.first() else { return Vec::new() };
    let of_metrics = view.primary().into_iter().flat_map(|(primary, unit)| {
        let others = tables::other_operations(view.analysis).into_iter();
        std::iter::once(primary).chain(others).map(move |name| Figure::Metric(name, unit))
    });
    let all = view.analysis.contenders.iter().flat_map(|contender| &contender.latencies);
    let all = all.filter(|one| !one.quantiles_ns.is_empty());
    let kinds = text::distinct(all.map(|one| one.operation.as_str()));
    let (overall, mut kinds): (Vec<_>, Vec<_>) =
        kinds.into_iter().partition(|kind| *kind == OVERALL_OPERATION);
    if kinds.len() > KINDS_MAX {
        kinds = overall;
    }
    of_metrics.chain(kinds.into_iter().map(Figure::P99)).collect()
}

impl Figure<'_> {
    fn name(&self) -> String {
        match self {
            Figure::Metric(name, _) => name.to_string(),
            Figure::P99(OVERALL_OPERATION) => "p99 of all operations".into(),
            Figure::P99(kind) => format!("p99 of {kind}"),
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Figure::Metric(_, unit) => *unit,
            Figure::P99(_) => Unit::Nanoseconds,
        }
    }

    fn of(&self, contender: &ContenderAnalysis) -> Option<Value> {
        match self {
            Figure::Metric(name, _) => {
                let found = contender.metrics.iter().find(|one| one.name == *name)?;
                let ends = found.summary.median_interval;
                Some((found.summary.median, ends.map(|ends| (ends.low, ends.high))))
            }
            Figure::P99(kind) => {
                let mut all = contender.latencies.iter();
                let found =
                    all.find(|one| one.operation == *kind && !one.quantiles_ns.is_empty())?;
                Some((found.at(0.99) as f64, None))
            }
        }
    }
}

fn draw(scan: &Scan<'_>, figure: &Figure<'_>, place: usize) -> Option<Chart> {
    let (_, first) = scan.points.first()?;
    let (least, most) = (scan.points.first()?.0, scan.points.last()?.0);
    let is_of_factors = least > 0.0 && most / least >= FACTOR_MIN;
    let at = |value: f64| if is_of_factors { value.log2() } else { value };
    let (parameter, name, unit) = (scan.parameter, figure.name(), figure.unit());
    let mut numbers =
        Table::new(&[parameter, "contender", &name, "from", "to", "cost (95 % confidence)"]);
    let (mut series, mut said) = (Vec::new(), Vec::new());
    for (key, contender) in first.analysis.contenders.iter().enumerate() {
        let label = &contender.label;
        let mut points = Vec::new();
        for (number, view) in &scan.points {
            let Some((value, ends)) = view.analysis.contender(label).and_then(|one| figure.of(one))
            else {
                continue;
            };
            let words = format!("{parameter} {}", text::plain(*number));
            let value_words = text::figure(value, unit);
            numbers.rows.push(row(&words, view, label, figure, (value, ends)));
            let words = format!("{label}, {words}: {value_words}");
            points.push(Point::at(at(*number), value, words));
        }
        if let [one, .., other] = points.as_slice() {
            said.push(format!("{}; {}", one.text, other.text));
        }
        series.push(ChartSeries { key, mark: SeriesStyle::Steps, points });
    }
    let values = || series.iter().flat_map(|one| &one.points).map(|point| point.y);
    let (smallest, largest) = extremes(values())?;
    let (unit_name, size) = scale_of(unit, largest);
    let title = format!("{name}, {unit_name} ({})", better(unit));
    let shown = || values().map(|value| value / size);
    let is_wide = smallest > 0.0 && largest > smallest * LINEAR_SPREAD_MAX;
    let y = Axis::logarithmic(&*title, shown(), text::plain).filter(|_| is_wide);
    let y = y.unwrap_or_else(|| Axis::from_zero(title, shown()));
    for point in series.iter_mut().flat_map(|one| &mut one.points) {
        point.y /= size;
    }
    let room = (at(most) - at(least)) * 0.05;
    let step = scan.points.len().div_ceil(LABELS_MAX);
    let ticks = scan.points.iter().step_by(step);
    let ticks = ticks.map(|(value, _)| Tick { at: at(*value), text: text::plain(*value) });
    let x = Axis::named(parameter, (at(least) - room, at(most) + room), ticks.collect());
    let fixed = scan.fixed.iter().map(|(name, value)| format!("{name} {value}"));
    let fixed = match scan.fixed.len() {
        0 => String::new(),
        _ => format!(", {}", fixed.collect::<Vec<_>>().join(", ")),
    };
    Some(Chart {
        says: format!("Medians of the runs. {}.", said.join(". ")),
        keys: first.keys(),
        series,
        numbers,
        ..Chart::new(format!("scan-{}", place + 1), format!("{name} over {parameter}{fixed}"), x, y)
    })
}

/// A row of the numbers: the value with its interval, and the cost, where it was compared.
fn row(
    at: &str,
    view: &WorkloadView<'_>,
    label: &str,
    figure: &Figure<'_>,
    (value, ends): Value,
) -> Vec<Cell> {
    let unit = figure.unit();
    let end =
        |of: fn((f64, f64)) -> f64| Cell::maybe(ends.map(of), |value| text::figure(value, unit));
    let compared = match figure {
        Figure::Metric(name, _) => view
            .analysis
            .comparisons
            .iter()
            .find(|one| one.metric == *name && one.contender == label),
        Figure::P99(_) => None,
    };
    let cost = compared.and_then(|one| Some((one.cost(), quotient::cost_text(one)?)));
    let (cost, words) = cost.map_or((None, "-".into()), |(cost, words)| (cost, words));
    vec![
        at.into(),
        label.into(),
        Cell::number(value, text::figure(value, unit)),
        end(|ends| ends.0),
        end(|ends| ends.1),
        Cell::from(words).valued(cost),
    ]
}
