//! Where the pieces of files lie on the device: a band for each contender's files, in which the files that are read
//! first are on top. One line from left to right is one sequential read.

use lab::record::{LAYOUT_WHOLE as WHOLE, Layout};

use super::WorkloadView;
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle, Tick};

/// How some files of a contender lie.
pub struct LayoutRow<'a> {
    /// The contender's place in the study.
    pub key: usize,
    pub label: String,
    /// Whether they are those that aged it, before the run; otherwise those that the workload made, after it.
    pub is_of_age: bool,
    /// How they lie.
    pub layout: &'a Layout,
}

/// Points of a band at most: a picture with more is slow.
const POINTS_MAX: usize = 350;

/// The picture; none where no file has a place of its own.
pub fn map(view: &WorkloadView<'_>, all: &[LayoutRow<'_>]) -> Option<Chart> {
    let shown: Vec<&LayoutRow<'_>> = all.iter().filter(|one| !one.layout.map.is_empty()).collect();
    if shown.is_empty() {
        return None;
    }
    let mut series = Vec::new();
    let mut rows = Vec::new();
    for (row, one) in shown.iter().enumerate() {
        let step = one.layout.map.len().div_ceil(POINTS_MAX);
        let percent = |part: u16| f64::from(part) / f64::from(WHOLE) * 100.0;
        let points = one.layout.map.iter().step_by(step).map(|(order, at)| {
            let (order, at) = (percent(*order), percent(*at));
            let text = format!("{}: {at:.1} % of the device", one.label);
            Point::at(at, row as f64 - 0.4 + 0.8 * order / 100.0, text)
        });
        series.push(ChartSeries {
            key: one.key,
            mark: SeriesStyle::Dots,
            points: points.collect(),
        });
        let files = if one.is_of_age { "aged" } else { "new files" };
        rows.push(format!("{}: {files}", one.label));
    }
    let ticks = [0.0, 25.0, 50.0, 75.0, 100.0];
    let ticks = ticks.map(|at| Tick { at, text: format!("{at:.0}") });
    Some(Chart {
        says: "Each point is a piece of a file. In each band the files that are read first are on top: one line from left to right is a sequential read, a cloud is a search.".into(),
        height: 84 + 90 * shown.len() as u32,
        keys: view.keys(),
        legend: false,
        series,
        ..Chart::new(
            view.id("layout"),
            "Where the pieces of files are".into(),
            Axis::named("place on the device, %", (0.0, 100.0), ticks.into()),
            Axis::rows(rows.iter().map(String::as_str)),
        )
    })
}
