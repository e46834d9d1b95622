//! Every run as a dot, in the unit of what was measured, with the median and its interval.

use lab::record::{Record, TIME_METRIC};
use lab::workload::Unit;

use super::{WorkloadView, better, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle, extremes, row_offset};
use crate::source::{ResultSource, value_of};
use crate::{tables, text};

/// Dots of a contender under a workload at the most; of more runs the means of the rounds are drawn.
const DOTS_MAX: usize = 120;
/// The axis is logarithmic where the largest value is more than so many times the smallest.
pub(super) const LINEAR_SPREAD_MAX: f64 = 20.0;

/// A run: its round from 1, its place among several in the round from 1, and its value.
struct Run {
    round: u32,
    place: Option<u32>,
    value: f64,
}

/// The runs of a contender, in their order, and whether each is a round of several runs.
fn runs_of(records: &[&Record], metric: &str) -> (Vec<Run>, bool) {
    let single = |record: &&Record| {
        let value = value_of(record, metric)?;
        Some(Run { round: record.block + 1, place: None, value })
    };
    let several = |record: &&Record| {
        let round = record.block + 1;
        let values = record.slices.iter().map(move |slice| {
            let own = slice.metrics.iter().find(|own| own.name == metric).map(|own| own.value);
            let time = (metric == TIME_METRIC).then(|| slice.time_ns() as f64);
            let value = own.or(time).filter(|value| value.is_finite() && *value >= 0.0)?;
            Some(Run { round, place: Some(slice.round + 1), value })
        });
        values.collect::<Option<Vec<Run>>>().filter(|runs| !runs.is_empty())
    };
    let of_slices: Option<Vec<Vec<Run>>> = records.iter().map(several).collect();
    match of_slices {
        Some(runs) if runs.iter().map(Vec::len).sum::<usize>() <= DOTS_MAX => {
            (runs.into_iter().flatten().collect(), false)
        }
        of_slices => (records.iter().filter_map(single).collect(), of_slices.is_some()),
    }
}

/// A row of a picture: the runs of a contender under a workload.
struct Row {
    /// Whose it is, for a reader: the contender, with the workload where the picture has several.
    name: String,
    key: usize,
    /// Where it lies on the vertical axis, and how much room it has there.
    at: f64,
    room: f64,
    runs: Vec<Run>,
    /// The median and its interval.
    median: Option<(f64, Option<(f64, f64)>)>,
}

/// The pictures of a result: one for a workload; of several workloads one for all that are measured in the same unit.
pub fn every(source: &ResultSource) -> Vec<Chart> {
    let views = WorkloadView::all(source);
    if let [view] = views.as_slice() {
        return of_workload(view).into_iter().collect();
    }
    let mut groups: Vec<(Unit, Vec<&WorkloadView<'_>>)> = Vec::new();
    for view in views.iter().filter(|view| view.analysis.overhead.is_empty()) {
        let Some((_, unit)) = view.primary() else { continue };
        match groups.iter_mut().find(|group| group.0 == unit) {
            Some(group) => group.1.push(view),
            None => groups.push((unit, vec![view])),
        }
    }
    let groups = groups.iter().enumerate();
    groups.filter_map(|(place, (unit, views))| of_workloads(source, views, *unit, place)).collect()
}

/// The picture of one load: a row for each contender. None for a matrix, whose maps show more.
pub fn of_workload(view: &WorkloadView<'_>) -> Option<Chart> {
    let (metric, unit) = view.primary().filter(|_| view.analysis.overhead.is_empty())?;
    let mut means = false;
    let mut rows = Vec::new();
    for key in view.ranked() {
        let label = &view.analysis.contenders[key].label;
        let (row, are_means) = row_of(view, key, label.clone(), brackets(&[view]));
        means |= are_means;
        rows.extend(row.map(|row| Row { at: rows.len() as f64, room: 1.0, ..row }));
    }
    let labels = rows.iter().map(|row| row.name.as_str());
    let y = Axis::rows(labels);
    let height = 84 + 46 * rows.len() as u32;
    let chart = draw(view.id("runs"), &rows, (metric, unit), (means, line_of(&[view])), y, height)?;
    Some(Chart { legend: false, keys: view.keys(), ..chart })
}

/// The picture of the workloads of a unit: a row for each workload, in it a line for each contender.
fn of_workloads(
    source: &ResultSource,
    views: &[&WorkloadView<'_>],
    unit: Unit,
    place: usize,
) -> Option<Chart> {
    let contenders = source.plan.study.contenders.len().max(1);
    let (mut means, mut rows) = (false, Vec::new());
    for (load, view) in views.iter().enumerate() {
        for key in 0..view.analysis.contenders.len() {
            let label = &view.analysis.contenders[key].label;
            let (row, are_means) =
                row_of(view, key, format!("{}, {label}", view.analysis.workload), brackets(views));
            means |= are_means;
            let room = 0.8 / contenders as f64;
            let at = load as f64 + (key as f64 + 0.5) * room - 0.4;
            rows.extend(row.map(|row| Row { at, room, ..row }));
        }
    }
    let names = text::distinct(views.iter().filter_map(|view| Some(view.primary()?.0)));
    let metric = if let [name] = names[..] { name } else { "first metric of each workload" };
    let y = Axis::rows(views.iter().map(|view| view.analysis.workload.as_str()));
    let height = 84 + views.len() as u32 * (18 + 13 * contenders as u32);
    let id = if place == 0 { "runs".into() } else { format!("runs-{}", place + 1) };
    let chart = draw(id, &rows, (metric, unit), (means, line_of(views)), y, height)?;
    Some(Chart { keys: views.first()?.keys(), ..chart })
}

fn row_of(
    view: &WorkloadView<'_>,
    key: usize,
    name: String,
    brackets: &str,
) -> (Option<Row>, bool) {
    let Some((metric, _)) = view.primary() else { return (None, false) };
    let records = view.source.completed(&view.analysis.workload);
    let (runs, are_means) = runs_of(&records[key], metric);
    let metrics = &view.analysis.contenders[key].metrics;
    let found = metrics.iter().find(|one| one.name == metric).map(|one| &one.summary);
    let median = found.map(|summary| (summary.median, tables::bracketed(summary, brackets)));
    let row = Row { name, key, at: 0.0, room: 1.0, runs, median };
    (Some(row).filter(|row| !row.runs.is_empty()), are_means)
}

/// What the line through each median holds.
fn brackets(views: &[&WorkloadView<'_>]) -> &'static str {
    let contenders = views.iter().flat_map(|view| &view.analysis.contenders);
    tables::brackets(contenders.filter_map(|one| Some(&one.metrics.first()?.summary)))
}

/// What the line through a median is: as the head of the table has it.
fn line_of(views: &[&WorkloadView<'_>]) -> &'static str {
    if brackets(views) == tables::MIN_MAX {
        "goes from the minimum to the maximum"
    } else {
        "is its 95 % confidence interval"
    }
}

fn draw(
    id: String,
    rows: &[Row],
    (metric, unit): (&str, Unit),
    (means, line): (bool, &str),
    y: Axis,
    height: u32,
) -> Option<Chart> {
    let values = || rows.iter().flat_map(|row| row.runs.iter().map(|run| run.value));
    let (least, most) = extremes(values())?;
    let (unit_name, size) = scale_of(unit, most);
    let mut series = Vec::new();
    for row in rows {
        let dots = row.runs.iter().enumerate().map(|(place, run)| {
            let run_text = run.place.map_or(String::new(), |place| format!(", run {place}"));
            let value = text::figure(run.value, unit);
            let words = format!("{}, round {}{run_text}: {value}", row.name, run.round);
            Point::at(run.value / size, row.at + row.room * (0.17 + row_offset(place)), words)
        });
        series.push(ChartSeries { key: row.key, mark: SeriesStyle::Dots, points: dots.collect() });
        if let Some((median, ends)) = row.median {
            let words = text::figure_with_interval(median, ends, unit);
            let words = format!("{}: median {words}", row.name);
            let point = Point::at(median / size, row.at - row.room * 0.17, words)
                .between(ends.map(|(low, high)| (low / size, high / size)));
            series.push(ChartSeries {
                key: row.key,
                mark: SeriesStyle::Interval,
                points: vec![point],
            });
        }
    }
    let title = format!("{metric}, {unit_name} ({})", better(unit));
    let shown = || values().map(|value| value / size);
    let is_wide = least > 0.0 && most > least * LINEAR_SPREAD_MAX;
    let x = Axis::logarithmic(&*title, shown(), text::plain).filter(|_| is_wide);
    let dot = if means { "Each dot is the mean of a round's runs" } else { "Each dot is one run" };
    Some(Chart {
        says: format!("{dot}; the large symbol is the median, the line {line}."),
        height,
        series,
        ..Chart::new(
            id,
            if means { "Every round".into() } else { "Every run".into() },
            x.unwrap_or_else(|| Axis::from_zero(title, shown())),
            y,
        )
    })
}
