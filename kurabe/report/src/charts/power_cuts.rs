//! The timeline of a trial of power cuts: what the load acknowledged, what was flushed, and the cuts after which
//! something was lost, on the disk and on one that ignores flushes.

use super::{View, scale_of};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::table::{Cell, Table};
use crate::text;
use lab::load::Unit;
use lab::record::Timeline;

/// Marks of a row that are drawn at the most: more lie on one another.
const MARKS_MAX: u64 = 300;

/// A strip for each contender of which the power was cut.
pub fn timelines(view: &View<'_>) -> Vec<Chart> {
    let contenders = view.analysis.contenders.iter().enumerate();
    let strips = contenders.filter_map(|(key, contender)| {
        let is_of = |record: &&lab::record::Record| {
            record.workload == view.analysis.workload && record.contender.label == contender.label
        };
        let mut records = view.source.records.iter().filter(is_of);
        let timeline = records.find_map(|record| record.timeline())?;
        (timeline.length_ns > 0).then(|| strip(view, key, &contender.label, &timeline))
    });
    strips.collect()
}

fn strip(view: &View<'_>, key: usize, label: &str, timeline: &Timeline) -> Chart {
    let rows = [
        ("acknowledged", Mark::Dots, &timeline.acknowledged_ns),
        ("flushed", Mark::Dots, &timeline.flushed_ns),
        ("lost after a cut", Mark::CrossedRing, &timeline.violated_ns),
        ("lost, flushes ignored", Mark::SmallRing, &timeline.control_violated_ns),
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
        series.push(Series { key, mark: *mark, points: points.collect() });
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
            Axis::from_zero(format!("time in the load, {unit}"), end),
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
    fn marks_that_would_lie_on_one_another_are_drawn_once() {
        assert_eq!(apart(&[7, 1, 1, 3, 2], 1), [1, 3, 7]);
        assert_eq!(apart(&[5, 4], 0), [4, 5]);
    }
}
