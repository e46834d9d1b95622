//! Throughput and latency within the trials, over time: where they settle, and where they drift.

use lab::load::{Series as Measured, Unit};
use lab::record::Record;
use lab::statistics::steady_state;

use super::{View, better, figure, scale_of};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::table::{Cell, Table};
use crate::text;

/// One chart for each series that the load reports.
pub fn charts(view: &View<'_>) -> Vec<Chart> {
    let records = view.source.completed(&view.analysis.workload);
    let mut names: Vec<(&str, Unit)> = Vec::new();
    for series in records.iter().flatten().flat_map(|record| series_of(record)) {
        if !names.iter().any(|(name, _)| *name == series.name) {
            names.push((&series.name, series.unit));
        }
    }
    let charts = names.iter().enumerate();
    charts.filter_map(|(place, (name, unit))| chart(view, &records, name, *unit, place)).collect()
}

fn series_of(record: &Record) -> &[Measured] {
    record.load.as_ref().map_or(&[], |load| &load.series)
}

/// A series of the median trial: at each time the median over the trials that lasted so long.
struct Middle {
    /// Seconds at the end of each interval, and the value.
    points: Vec<(f64, f64)>,
}

fn middle_of(trials: &[&Measured]) -> Middle {
    let length = trials.iter().map(|series| series.values.len()).max().unwrap_or(0);
    let interval = trials.first().map_or(1.0, |series| series.interval_ns as f64 / 1e9);
    let points = (0..length).filter_map(|index| {
        let mut values: Vec<f64> = trials
            .iter()
            .filter_map(|series| series.values.get(index).copied())
            .filter(|value| value.is_finite())
            .collect();
        // Where most of the trials are over, the rest is not the middle of anything.
        if values.len() * 2 < trials.len() || values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(((index + 1) as f64 * interval, median))
    });
    Middle { points: points.collect() }
}

fn chart(
    view: &View<'_>,
    records: &[Vec<&Record>],
    name: &str,
    unit: Unit,
    place: usize,
) -> Option<Chart> {
    let trials: Vec<Vec<&Measured>> = records
        .iter()
        .map(|records| {
            let all = records.iter().flat_map(|record| series_of(record));
            all.filter(|series| series.name == name && series.interval_ns > 0).collect()
        })
        .collect();
    let longest = trials.iter().flatten().map(|series| series.values.len()).max()?;
    if longest < 3 {
        return None;
    }
    let all = || trials.iter().flatten().flat_map(|series| &series.values).copied();
    let largest = all().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let (unit_name, size) = scale_of(unit, largest);
    let mut series = Vec::new();
    let mut rings = Vec::new();
    let mut said = Vec::new();
    let mut numbers = Table::new(&[
        "contender",
        "trials",
        "intervals",
        "median at the start",
        "median at the end",
        "change",
        "steady from",
    ]);
    for (key, trials) in trials.iter().enumerate().filter(|(_, trials)| !trials.is_empty()) {
        let label = &view.analysis.contenders[key].label;
        for (trial, measured) in trials.iter().enumerate().filter(|_| trials.len() > 1) {
            let interval = measured.interval_ns as f64 / 1e9;
            let points = measured.values.iter().enumerate().map(|(index, value)| {
                let words = format!("{label}, trial {}: {}", trial + 1, figure(*value, unit));
                Point::at((index + 1) as f64 * interval, value / size, words)
            });
            series.push(Series { key, mark: Mark::Faint, points: points.collect() });
        }
        let middle = middle_of(trials);
        let points = middle.points.iter().map(|(seconds, value)| {
            let words = format!("{label}, median after {seconds:.0} s: {}", figure(*value, unit));
            Point::at(*seconds, value / size, words)
        });
        series.push(Series { key, mark: Mark::Line, points: points.collect() });
        let values: Vec<f64> = middle.points.iter().map(|(_, value)| *value).collect();
        let state = steady_state(&values).ok();
        let reached = state.and_then(|state| state.kept_from);
        if let Some((seconds, value)) = reached.and_then(|round| middle.points.get(round)) {
            let words =
                format!("{label}: steady from {seconds:.0} s on (SNIA's rule on the median)");
            rings.push(Series {
                key,
                mark: Mark::Ring,
                points: vec![Point::at(*seconds, value / size, words)],
            });
        }
        let change = drift_of(&values);
        if let Some(change) = change {
            said.push(format!("{label} {change:+.0} %"));
        }
        numbers.rows.push(number_row(
            label,
            trials.len(),
            &values,
            change,
            unit,
            reached.and_then(|round| middle.points.get(round)).map(|point| point.0),
        ));
    }
    series.extend(rings);
    let drift = match said.is_empty() {
        true => String::new(),
        false => format!(" From the first fifth to the last: {}.", text::list(&said)),
    };
    let last = series.iter().flat_map(|s| &s.points).map(|point| point.x).fold(0.0, f64::max);
    Some(Chart {
        id: view.id(&format!("series-{place}")),
        title: format!("Over time: {name}"),
        says: format!(
            "The thick line is the median of the trials, the thin ones are the trials; a ring marks where the median came to a steady state that it kept to the end (SNIA: five intervals within 20 %, slope within 10 %).{drift}"
        ),
        x: Axis::from_zero("time in the run, s", std::iter::once(last)),
        y: Axis::from_zero(
            format!("{name}, {unit_name} ({})", better(unit)),
            all().map(|value| value / size),
        ),
        height: 320,
        keys: view.keys(),
        legend: true,
        folded: false,
        series,
        guides: Vec::new(),
        numbers,
    })
}

fn number_row(
    label: &str,
    trials: usize,
    values: &[f64],
    change: Option<f64>,
    unit: Unit,
    steady_seconds: Option<f64>,
) -> Vec<Cell> {
    let value = |value: Option<&f64>| match value {
        Some(value) => Cell::number(*value, figure(*value, unit)),
        None => "-".into(),
    };
    vec![
        label.into(),
        Cell::number(trials as f64, trials.to_string()),
        Cell::number(values.len() as f64, values.len().to_string()),
        value(values.first()),
        value(values.last()),
        change.map_or("-".into(), |change| Cell::number(change, format!("{change:+.0} %"))),
        steady_seconds.map_or("not steady".into(), |seconds| {
            Cell::number(seconds, format!("{seconds:.0} s"))
        }),
    ]
}

/// Change in percent from the mean of the first fifth to that of the last; None for a series too
/// short to have fifths.
fn drift_of(values: &[f64]) -> Option<f64> {
    let fifth = values.len() / 5;
    if fifth == 0 {
        return None;
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&values[..fifth]), mean(&values[values.len() - fifth..]));
    (first > 0.0).then(|| (last / first - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[f64]) -> Measured {
        Measured {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: values.into(),
        }
    }

    #[test]
    fn the_middle_ends_where_most_trials_end() {
        let trials = [[1.0, 2.0, 3.0].as_slice(), &[3.0, 4.0], &[5.0, 9.0]].map(measured);
        let middle = middle_of(&trials.iter().collect::<Vec<_>>());
        assert_eq!(middle.points, [(1.0, 3.0), (2.0, 4.0)]);
    }

    #[test]
    fn a_drift_is_the_change_between_the_outer_fifths() {
        assert_eq!(drift_of(&[100.0, 1.0, 1.0, 1.0, 150.0]), Some(50.0));
        assert_eq!(drift_of(&[100.0; 4]), None);
        assert_eq!(drift_of(&[0.0; 5]), None);
    }
}
