//! Power cuts: a strip of verdicts with a row for each contender, and the timeline of a trial, which has what the
//! load acknowledged, what was flushed, and the cuts after which something was lost, on the disk and on one that ignores
//! flushes.

use super::{WorkloadView, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, LegendEntry, Point, SeriesStyle, Tick};
use crate::table::{Cell, Table};
use crate::text;
use lab::record::Timeline;
use lab::workload::Unit;

/// Marks of a row that are drawn at the most: more lie on one another.
const MARKS_MAX: u64 = 300;

/// How many states after a power cut of a contender were looked at, and in how many something was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    pub label: String,
    pub tried: u64,
    /// States of those in which something was wrong.
    pub violated: u64,
    /// States that were tried on a disk that ignores flushes.
    pub control_tried: u64,
    /// States of those in which something was wrong.
    pub control_violated: u64,
}

/// Styles of the parts of a bar: green, and a red that the colour-blind tell from it.
const HELD_STYLE: usize = 2;
const LOST_STYLE: usize = 1;
/// The bars end at 100 %; beyond are the words.
const STRIP_END: f64 = 150.0;

/// The strip of verdicts: how often everything that was durable survived. None where nothing was tried.
pub fn verdicts(id: String, cuts: &[Cuts]) -> Option<Chart> {
    let cuts: Vec<&Cuts> = cuts.iter().filter(|one| one.tried > 0).collect();
    if cuts.is_empty() {
        return None;
    }
    let (mut held, mut lost, mut words) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbers = Table::new(&["contender", "states", "violated", "violated, flushes ignored"]);
    for (row, one) in cuts.iter().enumerate() {
        let (row, tried) = (row as f64, text::count(one.tried as f64));
        let violated = one.violated.min(one.tried);
        let share = (one.tried - violated) as f64 / one.tried as f64 * 100.0;
        let text = match violated {
            0 => format!("held in all {tried} states"),
            _ => format!("lost in {} of {tried} states", text::count(violated as f64)),
        };
        let bar = |from: f64, to: f64| {
            let point = Point::at(to, row, format!("{}: {text}", one.label));
            (to > from).then_some(Point { low: Some(from), ..point })
        };
        held.extend(bar(0.0, share));
        lost.extend(bar(share, 100.0));
        words.push(Point::at(100.0, row, text.clone()));
        let control = match one.control_tried {
            0 => "-".to_string(),
            tried => format!("{} of {tried}", one.control_violated),
        };
        numbers.rows.push(vec![
            one.label.as_str().into(),
            Cell::whole(one.tried),
            Cell::whole(one.violated),
            control.into(),
        ]);
    }
    let keys = [("held", HELD_STYLE), ("lost or corrupt", LOST_STYLE)];
    let x = Axis::named("states after a power cut, %", (0.0, STRIP_END), {
        [0.0, 25.0, 50.0, 75.0, 100.0].map(|at| Tick { at, text: format!("{at:.0}") }).into()
    });
    let series = [
        (0, SeriesStyle::Bars, held),
        (1, SeriesStyle::Bars, lost),
        (0, SeriesStyle::Label, words),
    ];
    let series = series.map(|(key, mark, points)| ChartSeries { key, mark, points });
    Some(Chart {
        says: "The share of the states after a power cut in which the check found everything that was acknowledged as durable.".into(),
        height: 84 + 30 * cuts.len() as u32,
        keys: keys.map(|(name, style)| LegendEntry { name: name.into(), style, group: "state" }).into(),
        series: series.into_iter().filter(|one| !one.points.is_empty()).collect(),
        numbers,
        ..Chart::new(
            id,
            "After a power cut".into(),
            x,
            Axis::rows(cuts.iter().map(|one| one.label.as_str())),
        )
    })
}

/// The strip of verdicts of a workload, from all trials whose power was cut.
pub fn of_workload(view: &WorkloadView<'_>) -> Option<Chart> {
    let of = |label: &str| {
        let is_of = |record: &&lab::record::Record| {
            record.workload == view.analysis.workload && record.contender.label == label
        };
        let timelines = view.source.records.iter().filter(is_of).filter_map(|one| one.timeline());
        timelines.fold(
            Cuts {
                label: label.into(),
                tried: 0,
                violated: 0,
                control_tried: 0,
                control_violated: 0,
            },
            |sum, one| Cuts {
                tried: sum.tried + one.tried,
                violated: sum.violated + one.violated_ns.len() as u64,
                control_tried: sum.control_tried + one.control_tried,
                control_violated: sum.control_violated + one.control_violated_ns.len() as u64,
                ..sum
            },
        )
    };
    let label = |place: usize| &view.analysis.contenders[place].label;
    let cuts: Vec<Cuts> = view.ranked().into_iter().map(|place| of(label(place))).collect();
    verdicts(view.id("power-cuts"), &cuts)
}

/// The timeline of each contender of which the power was cut.
pub fn timelines(view: &WorkloadView<'_>) -> Vec<Chart> {
    let strips = view.ranked().into_iter().filter_map(|key| {
        let contender = &view.analysis.contenders[key];
        let is_of = |record: &&lab::record::Record| {
            record.workload == view.analysis.workload && record.contender.label == contender.label
        };
        let mut records = view.source.records.iter().filter(is_of);
        let timeline = records.find_map(|record| record.timeline())?;
        (timeline.length_ns > 0).then(|| strip(view, key, &contender.label, &timeline))
    });
    strips.collect()
}

fn strip(view: &WorkloadView<'_>, key: usize, label: &str, timeline: &Timeline) -> Chart {
    let rows = [
        ("acknowledged", SeriesStyle::Dots, &timeline.acknowledged_ns),
        ("flushed", SeriesStyle::Dots, &timeline.flushed_ns),
        ("lost after a cut", SeriesStyle::CrossedRing, &timeline.violated_ns),
        ("lost, flushes ignored", SeriesStyle::SmallRing, &timeline.control_violated_ns),
    ];
    let (unit, size) = scale_of(Unit::Nanoseconds, timeline.length_ns as f64);
    let mut numbers = Table::new(&["what", "count", "first", "last"]);
    let mut series = Vec::new();
    for (row, (what, mark, times)) in rows.iter().enumerate() {
        let place = |time: Option<&u64>| match time {
            Some(time) => Cell::from(format!("{:.2} {unit}", *time as f64 / size)),
            None => "-".into(),
        };
        let (first, last) = (times.iter().min(), times.iter().max());
        let count = Cell::number(times.len() as f64, times.len().to_string());
        numbers.rows.push(vec![(*what).into(), count, place(first), place(last)]);
        let points = apart(times, timeline.length_ns / MARKS_MAX).into_iter().map(|time| {
            let at = time as f64 / size;
            Point::at(at, row as f64, format!("{label}: {what} at {at:.2} {unit}"))
        });
        series.push(ChartSeries { key, mark: *mark, points: points.collect() });
    }
    // Results of before do not say how many were tried.
    let cuts = |violated: &[u64], tried| match tried {
        0 => text::counted(violated.len(), "power cut"),
        tried => format!("{} of {}", violated.len(), text::counted(tried as usize, "power cut")),
    };
    let says = format!(
        "{}, {}. Something was lost after {}, and after {} on a disk that ignores flushes.",
        text::counted(timeline.acknowledged_ns.len(), "acknowledgement"),
        text::counted(timeline.flushed_ns.len(), "flush request"),
        cuts(&timeline.violated_ns, timeline.tried),
        cuts(&timeline.control_violated_ns, timeline.control_tried),
    );
    let end = std::iter::once(timeline.length_ns as f64 / size);
    Chart {
        says,
        height: 150,
        keys: view.keys(),
        legend: false,
        series,
        numbers,
        ..Chart::new(
            view.id(&format!("power-cuts-{}", key + 1)),
            format!("Power cuts: {label}"),
            Axis::from_zero(format!("time in the workload, {unit}"), end),
            Axis::rows(rows.map(|(what, ..)| what)),
        )
    }
}

/// The times in order, without those that lie closer than `least` to the one before.
fn apart(times: &[u64], least: u64) -> Vec<u64> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let mut kept: Vec<u64> = Vec::new();
    for time in times {
        if kept.last().is_none_or(|last| time > last + least) {
            kept.push(time);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strip_has_a_row_for_each_contender_that_was_tried() {
        let of = |label: &str, tried, violated| Cuts {
            label: label.into(),
            tried,
            violated,
            control_tried: 75,
            control_violated: 62,
        };
        let cuts = [of("ext4", 300, 0), of("nb", 300, 235), of("xfs", 0, 0)];
        let chart = verdicts("x".into(), &cuts).unwrap();
        let words: Vec<&str> =
            chart.series.last().unwrap().points.iter().map(|point| &*point.text).collect();
        assert_eq!(words, ["held in all 300 states", "lost in 235 of 300 states"]);
        let ends: Vec<(Option<f64>, f64)> =
            chart.series[1].points.iter().map(|point| (point.low, point.x)).collect();
        assert_eq!(ends.len(), 1, "what held has no part of what was lost");
        assert!((ends[0].0.unwrap() - 65.0 / 3.0).abs() < 1e-9 && ends[0].1 == 100.0, "{ends:?}");
        assert_eq!(verdicts("x".into(), &cuts[2..]).map(|chart| chart.id), None);
    }

    #[test]
    fn marks_that_would_lie_on_one_another_are_drawn_once() {
        assert_eq!(apart(&[7, 1, 1, 3, 2], 1), [1, 3, 7]);
        assert_eq!(apart(&[5, 4], 0), [4, 5]);
    }
}
