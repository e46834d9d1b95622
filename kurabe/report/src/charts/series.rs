//! Throughput and latency within the trials, over time: where they settle, and where they drift.

use lab::analysis::median;
use lab::record::Record;
use lab::statistics::steady_from;
use lab::workload::{Series as Measured, Unit};

use super::{WorkloadView, better, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle, Sign};
use crate::table::{Cell, Table};
use crate::text;

/// Columns of the numbers behind a chart.
const COLUMNS: [&str; 9] = [
    "contender",
    "runs",
    "intervals",
    "median at the start",
    "median at the end",
    "change",
    "median steady from",
    "runs steady",
    "runs with a change",
];

/// One chart for each series that the workload reports.
pub fn charts(view: &WorkloadView<'_>) -> Vec<Chart> {
    let records = view.source.completed(&view.analysis.workload);
    let all = records.iter().flatten().flat_map(|record| series_of(record));
    let names = text::distinct(all.map(|series| (series.name.as_str(), series.unit)));
    let charts = names.iter().enumerate();
    charts.filter_map(|(place, (name, unit))| chart(view, &records, name, *unit, place)).collect()
}

fn series_of(record: &Record) -> &[Measured] {
    record.load.as_ref().map_or(&[], |load| &load.series)
}

/// A trial's series.
struct Trial<'a> {
    number: u32,
    measured: &'a Measured,
}

impl Trial<'_> {
    fn seconds(&self, index: usize) -> f64 {
        (index + 1) as f64 * self.measured.interval_ns as f64 / 1e9
    }

    /// Seconds and value where it came to a steady state that it kept to the end.
    fn steady(&self) -> Option<(f64, f64)> {
        let round = steady_from(&self.measured.values)?;
        Some((self.seconds(round), self.measured.values[round]))
    }

    /// Seconds and value where the workload has something to say, and its words.
    fn marked(&self) -> impl Iterator<Item = (f64, f64, &str)> {
        let values = &self.measured.values;
        self.measured.marks.iter().filter_map(|mark| {
            // An interval is drawn at its end, and a change lies at the end of the last before it.
            let interval = (mark.at_ns / self.measured.interval_ns).saturating_sub(1) as usize;
            let place = interval.min(values.len().checked_sub(1)?);
            Some((self.seconds(place), values[place], mark.words.as_str()))
        })
    }
}

/// The median trial: seconds at the end of each interval, and the median over the trials that lasted
/// so long.
fn middle_of(trials: &[Trial<'_>]) -> Vec<(f64, f64)> {
    let length = trials.iter().map(|trial| trial.measured.values.len()).max().unwrap_or(0);
    let interval = trials.first().map_or(1.0, |trial| trial.measured.interval_ns as f64 / 1e9);
    let points = (0..length).filter_map(|index| {
        let values = trials.iter().filter_map(|trial| trial.measured.values.get(index).copied());
        let values = values.filter(|value| value.is_finite());
        // Where most of the trials are over, the rest is not the middle of anything.
        let is_told = values.clone().count() * 2 >= trials.len();
        Some(((index + 1) as f64 * interval, median(values).filter(|_| is_told)?))
    });
    points.collect()
}

/// Shorter series are no course over time.
pub const INTERVALS_MIN: usize = 3;

fn chart(
    view: &WorkloadView<'_>,
    records: &[Vec<&Record>],
    name: &str,
    unit: Unit,
    place: usize,
) -> Option<Chart> {
    let trials: Vec<Vec<Trial<'_>>> = records.iter().map(|r| trials_of(r, name)).collect();
    let longest = trials.iter().flatten().map(|trial| trial.measured.values.len()).max()?;
    if longest < INTERVALS_MIN {
        return None;
    }
    let all = || trials.iter().flatten().flat_map(|trial| &trial.measured.values).copied();
    let largest = all().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let (unit_name, size) = scale_of(unit, largest);
    let mut series = Vec::new();
    let mut marks: Vec<ChartSeries> = Vec::new();
    let mut said = Vec::new();
    let mut numbers = Table::new(&COLUMNS);
    let ranked = view.ranked().into_iter().map(|key| (key, &trials[key]));
    for (key, trials) in ranked.filter(|(_, trials)| !trials.is_empty()) {
        let label = &view.analysis.contenders[key].label;
        let middle = middle_of(trials);
        series.extend(lines_of(key, label, trials, &middle, (unit, size)));
        marks.extend(marks_of(key, label, trials, size));
        let values: Vec<f64> = middle.iter().map(|(_, value)| *value).collect();
        let steady = steady_from(&values).and_then(|round| middle.get(round));
        if let Some((seconds, value)) = steady {
            let words =
                format!("{label}: steady from {seconds:.0} s on (SNIA's rule on the median)");
            let points = vec![Point::at(*seconds, value / size, words)];
            marks.push(ChartSeries { key, mark: SeriesStyle::Ring, points });
        }
        let change = drift_of(&values);
        if let Some(change) = change {
            said.push(format!("{label} {change:+.0} %"));
        }
        let steady_seconds = steady.map(|point| point.0);
        numbers.rows.push(number_row(label, trials, &values, change, unit, steady_seconds));
    }
    let signs = signs_of(&marks);
    series.extend(marks);
    let drift = if said.is_empty() {
        String::new()
    } else {
        format!(" From the first fifth to the last: {}.", text::list(&said))
    };
    let last = series.iter().flat_map(|s| &s.points).map(|point| point.x).fold(0.0, f64::max);
    Some(Chart {
        says: format!(
            "The thick line is the median, the thin lines are the runs. A ring marks where a run reached a steady state and kept it to the end (SNIA: five intervals within 20 %, slope within 10 %).{drift}"
        ),
        height: 320,
        keys: view.keys(),
        series,
        signs,
        numbers,
        ..Chart::new(
            view.id(&format!("series-{place}")),
            format!("Over time: {name}"),
            Axis::from_zero("time in the run, s", std::iter::once(last)),
            Axis::from_zero(
                format!("{name}, {unit_name} ({})", better(unit)),
                all().map(|value| value / size),
            ),
        )
    })
}

/// A contender's trials as thin lines where there are several, and their median as a thick one.
fn lines_of(
    key: usize,
    label: &str,
    trials: &[Trial<'_>],
    middle: &[(f64, f64)],
    (unit, size): (Unit, f64),
) -> Vec<ChartSeries> {
    let thin = trials.iter().filter(|_| trials.len() > 1).map(|trial| {
        let points = trial.measured.values.iter().enumerate().map(|(index, value)| {
            let words = format!("{label}, run {}: {}", trial.number, text::figure(*value, unit));
            Point::at(trial.seconds(index), value / size, words)
        });
        ChartSeries { key, mark: SeriesStyle::Faint, points: points.collect() }
    });
    let points = middle.iter().map(|(seconds, value)| {
        let words = format!("{label}, median after {seconds:.0} s: {}", text::figure(*value, unit));
        Point::at(*seconds, value / size, words)
    });
    let thick = ChartSeries { key, mark: SeriesStyle::Line, points: points.collect() };
    thin.chain([thick]).collect()
}

fn trials_of<'a>(records: &[&'a Record], name: &str) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    for record in records {
        let named = series_of(record).iter().filter(|s| s.name == name && s.interval_ns > 0);
        trials.extend(named.map(|measured| Trial { number: record.trial, measured }));
    }
    trials
}

/// Where each trial came to a steady state, and where its workload has something to say.
fn marks_of(key: usize, label: &str, trials: &[Trial<'_>], size: f64) -> [ChartSeries; 2] {
    let steady = trials.iter().filter(|_| trials.len() > 1).filter_map(|trial| {
        let (seconds, value) = trial.steady()?;
        let words = format!("{label}, run {}: steady from {seconds:.0} s on", trial.number);
        Some(Point::at(seconds, value / size, words))
    });
    let marked = trials.iter().flat_map(|trial| {
        trial.marked().map(|(seconds, value, words)| {
            Point::at(seconds, value / size, format!("{label}, run {}: {words}", trial.number))
        })
    });
    [(SeriesStyle::SmallRing, steady.collect()), (SeriesStyle::CrossedRing, marked.collect())]
        .map(|(mark, points)| ChartSeries { key, mark, points })
}

/// What the legend says of the marks that are there.
fn signs_of(marks: &[ChartSeries]) -> Vec<Sign> {
    let signs = [
        (SeriesStyle::Ring, "the median is steady from here"),
        (SeriesStyle::SmallRing, "steady from here"),
        (SeriesStyle::CrossedRing, "this run changed here"),
    ];
    let is_there = |mark| marks.iter().any(|s| s.mark == mark && !s.points.is_empty());
    let signs = signs.into_iter().filter(|(mark, _)| is_there(*mark));
    signs.map(|(mark, text)| Sign { mark, text: text.into() }).collect()
}

fn number_row(
    label: &str,
    trials: &[Trial<'_>],
    values: &[f64],
    change: Option<f64>,
    unit: Unit,
    steady_seconds: Option<f64>,
) -> Vec<Cell> {
    let value =
        |value: Option<&f64>| Cell::maybe(value.copied(), |value| text::figure(value, unit));
    vec![
        label.into(),
        Cell::whole(trials.len() as u64),
        Cell::whole(values.len() as u64),
        value(values.first()),
        value(values.last()),
        Cell::maybe(change, |change| format!("{change:+.0} %")),
        steady_seconds.map_or("not steady".into(), |seconds| {
            Cell::number(seconds, format!("{seconds:.0} s"))
        }),
        format!("{} of {}", trials.iter().filter_map(Trial::steady).count(), trials.len()).into(),
        match trials.iter().filter(|trial| !trial.measured.marks.is_empty()).count() {
            0 => "-".into(),
            changed => format!("{changed} of {}", trials.len()).into(),
        },
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
            marks: Vec::new(),
        }
    }

    fn trial(measured: &Measured) -> Trial<'_> {
        Trial { number: 1, measured }
    }

    #[test]
    fn the_middle_ends_where_most_trials_end() {
        let trials = [[1.0, 2.0, 3.0].as_slice(), &[3.0, 4.0], &[5.0, 9.0]].map(measured);
        let middle = middle_of(&trials.each_ref().map(trial));
        assert_eq!(middle, [(1.0, 3.0), (2.0, 4.0)]);
    }

    #[test]
    fn every_trial_has_marks_of_its_own() {
        let [calm, mut wild] =
            [&[9.0, 5.0, 5.0, 5.0, 5.0, 5.0][..], &[1.0, 9.0, 1.0, 9.0, 1.0, 9.0]].map(measured);
        // Beyond the series it is at its end.
        wild.marks = [3_000_000_000, 60_000_000_000]
            .map(|at_ns| lab::workload::SeriesMark { at_ns, words: "throughput sank".into() })
            .into();
        let trials = [trial(&calm), trial(&wild)];
        let marks = marks_of(2, "xfs", &trials, 1.0);
        let places = marks
            .each_ref()
            .map(|series| series.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>());
        assert_eq!(places, [vec![(6.0, 5.0)], vec![(3.0, 1.0), (6.0, 9.0)]]);
        assert!(marks[1].points[0].text.contains("throughput sank"));
        let signs: Vec<SeriesStyle> = signs_of(&marks).iter().map(|sign| sign.mark).collect();
        assert_eq!(signs, [SeriesStyle::SmallRing, SeriesStyle::CrossedRing]);
        // The median's mark alone where there is one trial.
        assert!(
            marks_of(2, "xfs", &trials[..1], 1.0).iter().all(|series| series.points.is_empty())
        );
    }

    #[test]
    fn a_drift_is_the_change_between_the_outer_fifths() {
        assert_eq!(drift_of(&[100.0, 1.0, 1.0, 1.0, 150.0]), Some(50.0));
        assert_eq!(drift_of(&[100.0; 4]), None);
        assert_eq!(drift_of(&[0.0; 5]), None);
    }
}
