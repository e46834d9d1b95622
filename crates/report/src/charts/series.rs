//! Throughput and latency within the trials, over time: where they settle, and where they drift.

use lab::load::{Drift, Series as Measured, Unit};
use lab::record::Record;
use lab::statistics::steady_state;

use super::{View, better, figure, scale_of};
use crate::chart::{Axis, Chart, Mark, Point, Series, Sign};
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

/// A trial's series, and what the load found of its drift.
struct Trial<'a> {
    number: u32,
    measured: &'a Measured,
    drift: Option<&'a Drift>,
}

impl Trial<'_> {
    fn seconds(&self, index: usize) -> f64 {
        (index + 1) as f64 * self.measured.interval_ns as f64 / 1e9
    }

    /// Seconds and value where it came to a steady state that it kept to the end.
    fn steady(&self) -> Option<(f64, f64)> {
        let round = steady_state(&self.measured.values).ok()?.kept_from?;
        Some((self.seconds(round), self.measured.values[round]))
    }

    /// Seconds and value where throughput changed within the run, and the load's words; at the end
    /// where the instant is not known.
    fn drifted(&self) -> Option<(f64, f64, &str)> {
        let Some(Drift::Changed { words, at_ns }) = self.drift else { return None };
        // The verdict is one on throughput.
        if !self.measured.unit.more_is_better() {
            return None;
        }
        // An interval is drawn at its end, and the change lies at the end of the last early one.
        let before = |at_ns: u64| (at_ns / self.measured.interval_ns).saturating_sub(1) as usize;
        let last = self.measured.values.len().checked_sub(1)?;
        let place = at_ns.map_or(last, before).min(last);
        Some((self.seconds(place), self.measured.values[place], words.as_str()))
    }

    /// Whether it changed at an instant that nobody kept.
    fn drifted_somewhere(&self) -> bool {
        matches!(self.drift, Some(Drift::Changed { at_ns: None, .. })) && self.drifted().is_some()
    }
}

/// A series of the median trial: at each time the median over the trials that lasted so long.
struct Middle {
    /// Seconds at the end of each interval, and the value.
    points: Vec<(f64, f64)>,
}

fn middle_of(trials: &[Trial<'_>]) -> Middle {
    let length = trials.iter().map(|trial| trial.measured.values.len()).max().unwrap_or(0);
    let interval = trials.first().map_or(1.0, |trial| trial.measured.interval_ns as f64 / 1e9);
    let points = (0..length).filter_map(|index| {
        let mut values: Vec<f64> = trials
            .iter()
            .filter_map(|trial| trial.measured.values.get(index).copied())
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

/// Shorter series are no course over time.
pub const INTERVALS_MIN: usize = 3;

fn chart(
    view: &View<'_>,
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
    let mut marks: Vec<Series> = Vec::new();
    let mut said = Vec::new();
    let mut numbers = Table::new(&[
        "contender",
        "trials",
        "intervals",
        "median at the start",
        "median at the end",
        "change",
        "median steady from",
        "trials steady",
        "trials with a drift",
    ]);
    for (key, trials) in trials.iter().enumerate().filter(|(_, trials)| !trials.is_empty()) {
        let label = &view.analysis.contenders[key].label;
        for trial in trials.iter().filter(|_| trials.len() > 1) {
            let points = trial.measured.values.iter().enumerate().map(|(index, value)| {
                let words = format!("{label}, trial {}: {}", trial.number, figure(*value, unit));
                Point::at(trial.seconds(index), value / size, words)
            });
            series.push(Series { key, mark: Mark::Faint, points: points.collect() });
        }
        marks.extend(marks_of(key, label, trials, size));
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
            marks.push(Series {
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
            trials,
            &values,
            change,
            unit,
            reached.and_then(|round| middle.points.get(round)).map(|point| point.0),
        ));
    }
    let signs = signs_of(&marks, trials.iter().flatten().any(Trial::drifted_somewhere));
    series.extend(marks);
    let drift = match said.is_empty() {
        true => String::new(),
        false => format!(" From the first fifth to the last: {}.", text::list(&said)),
    };
    let last = series.iter().flat_map(|s| &s.points).map(|point| point.x).fold(0.0, f64::max);
    Some(Chart {
        id: view.id(&format!("series-{place}")),
        title: format!("Over time: {name}"),
        says: format!(
            "The thick line is the median of the trials, the thin ones are the trials. A ring marks where one came to a steady state that it kept to the end (SNIA: five intervals within 20 %, slope within 10 %).{drift}"
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
        signs,
        numbers,
    })
}

fn trials_of<'a>(records: &[&'a Record], name: &str) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    for record in records {
        let drift = record.load.as_ref().and_then(|load| load.drift.as_ref());
        let named = series_of(record).iter().filter(|s| s.name == name && s.interval_ns > 0);
        trials.extend(named.map(|measured| Trial { number: record.trial, measured, drift }));
    }
    trials
}

/// Where each trial came to a steady state, and those whose throughput changed within the run.
fn marks_of(key: usize, label: &str, trials: &[Trial<'_>], size: f64) -> [Series; 2] {
    let steady = trials.iter().filter(|_| trials.len() > 1).filter_map(|trial| {
        let (seconds, value) = trial.steady()?;
        let words = format!("{label}, trial {}: steady from {seconds:.0} s on", trial.number);
        Some(Point::at(seconds, value / size, words))
    });
    let drifted = trials.iter().filter_map(|trial| {
        let (seconds, value, words) = trial.drifted()?;
        Some(Point::at(seconds, value / size, format!("{label}, trial {}: {words}", trial.number)))
    });
    [(Mark::SmallRing, steady.collect()), (Mark::CrossedRing, drifted.collect())]
        .map(|(mark, points)| Series { key, mark, points })
}

/// What the legend says of the marks that are there; `somewhere`: whether a change has its mark at
/// the end of its trial, since its instant is not known.
fn signs_of(marks: &[Series], somewhere: bool) -> Vec<Sign> {
    let changed = match somewhere {
        true => "throughput of this trial changed here, or, at its end, somewhere before",
        false => "throughput of this trial changed here",
    };
    let signs = [
        (Mark::Ring, "the median is steady from here"),
        (Mark::SmallRing, "a trial is steady from here"),
        (Mark::CrossedRing, changed),
    ];
    let is_there = |mark| marks.iter().any(|s| s.mark == mark && !s.points.is_empty());
    let signs = signs.into_iter().filter(|(mark, _)| is_there(*mark));
    signs.map(|(mark, text)| Sign { mark, text: text.into() }).collect()
}

/// `2 of 5`; the verdicts are those of the load, where it looks for a drift.
fn drift_text(trials: &[Trial<'_>]) -> String {
    let judged = trials.iter().filter_map(|trial| trial.drift);
    let long = judged.clone().filter(|drift| **drift != Drift::TooShort).count();
    let changed = judged.clone().filter(|d| matches!(d, Drift::Changed { .. })).count();
    match (judged.count(), long) {
        (0, _) => "not looked for".into(),
        (_, 0) => "too short to tell".into(),
        _ => format!("{changed} of {long}"),
    }
}

fn number_row(
    label: &str,
    trials: &[Trial<'_>],
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
        Cell::number(trials.len() as f64, trials.len().to_string()),
        Cell::number(values.len() as f64, values.len().to_string()),
        value(values.first()),
        value(values.last()),
        change.map_or("-".into(), |change| Cell::number(change, format!("{change:+.0} %"))),
        steady_seconds.map_or("not steady".into(), |seconds| {
            Cell::number(seconds, format!("{seconds:.0} s"))
        }),
        format!("{} of {}", trials.iter().filter_map(Trial::steady).count(), trials.len()).into(),
        drift_text(trials).into(),
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
        let middle = middle_of(&trials.each_ref().map(|measured| trial(measured, None)));
        assert_eq!(middle.points, [(1.0, 3.0), (2.0, 4.0)]);
    }

    fn trial<'a>(measured: &'a Measured, drift: Option<&'a Drift>) -> Trial<'a> {
        Trial { number: 1, measured, drift }
    }

    #[test]
    fn every_trial_has_marks_of_its_own() {
        let [calm, wild] =
            [&[9.0, 5.0, 5.0, 5.0, 5.0, 5.0][..], &[1.0, 9.0, 1.0, 9.0, 1.0, 9.0]].map(measured);
        let changed =
            Drift::Changed { words: "throughput sank".into(), at_ns: Some(3_000_000_000) };
        let trials = [trial(&calm, Some(&Drift::NoneCertain)), trial(&wild, Some(&changed))];
        let marks = marks_of(2, "xfs", &trials, 1.0);
        let places = marks
            .each_ref()
            .map(|series| series.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>());
        assert_eq!(places, [vec![(6.0, 5.0)], vec![(3.0, 1.0)]]);
        assert!(marks[1].points[0].text.contains("throughput sank"));
        let signs: Vec<Mark> = signs_of(&marks, false).iter().map(|sign| sign.mark).collect();
        assert_eq!(signs, [Mark::SmallRing, Mark::CrossedRing]);
        assert_eq!(drift_text(&trials), "1 of 2");
        assert_eq!(drift_text(&[trial(&calm, Some(&Drift::TooShort))]), "too short to tell");
        assert_eq!(drift_text(&[trial(&calm, None)]), "not looked for");
        // Beyond the series it is at its end, and so it is where the instant is not known.
        for at_ns in [None, Some(60_000_000_000)] {
            let changed = Drift::Changed { words: "throughput sank".into(), at_ns };
            let trial = trial(&wild, Some(&changed));
            assert_eq!(trial.drifted().map(|(at, value, _)| (at, value)), Some((6.0, 9.0)));
            assert_eq!(trial.drifted_somewhere(), at_ns.is_none());
        }
        // The median's mark alone where there is one trial, and no verdict of throughput on a time.
        assert!(
            marks_of(2, "xfs", &trials[..1], 1.0).iter().all(|series| series.points.is_empty())
        );
        let times = Measured { unit: Unit::Nanoseconds, ..wild.clone() };
        assert!(trial(&times, Some(&changed)).drifted().is_none());
    }

    #[test]
    fn a_drift_is_the_change_between_the_outer_fifths() {
        assert_eq!(drift_of(&[100.0, 1.0, 1.0, 1.0, 150.0]), Some(50.0));
        assert_eq!(drift_of(&[100.0; 4]), None);
        assert_eq!(drift_of(&[0.0; 5]), None);
    }
}
