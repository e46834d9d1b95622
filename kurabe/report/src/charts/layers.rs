//! Where the bytes went: what each layer of a stack was asked to write, as bars from the workload down to the device.

use lab::workload::Unit;

use super::{WorkloadView, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle};
use crate::{layers, text};

/// A bar for each step of each contender; absent where no contender has block layers.
pub fn bytes(view: &WorkloadView<'_>) -> Option<Chart> {
    let records = view.source.completed(&view.analysis.workload);
    records.iter().flatten().find(|record| !record.layers.is_empty())?;
    let steps = view.ranked().into_iter().flat_map(|place| {
        let own = view.analysis.contenders[place].cost.command_written_bytes;
        let steps = layers::steps(own, &records[place]).into_iter();
        steps.filter_map(move |step| Some((place, step.to, step.written?)))
    });
    let steps: Vec<(usize, String, f64)> = steps.collect();
    let largest = steps.iter().map(|(.., written)| *written).fold(0.0, f64::max);
    let (name, size) = scale_of(Unit::Bytes, largest);
    let label = |place: usize| &view.analysis.contenders[place].label;
    let rows: Vec<String> =
        steps.iter().map(|(place, to, _)| format!("{}: {to}", label(*place))).collect();
    let keys = view.keys();
    let of_contender = |key: usize| {
        let own = steps.iter().zip(&rows).enumerate().filter(|(_, ((place, ..), _))| *place == key);
        let points = own.map(|(row, ((.., written), says))| Point {
            low: Some(0.0),
            ..Point::at(written / size, row as f64, format!("{says}: {}", text::bytes(*written)))
        });
        ChartSeries { key, mark: SeriesStyle::Bars, points: points.collect() }
    };
    Some(Chart {
        says: "What each step of a stack was asked to write during the run and its sync, medians of the runs: the workload's own bytes come first, the device's last. Where a bar is longer than the one above it, that layer wrote more than it was given.".into(),
        height: 84 + 24 * rows.len() as u32,
        series: (0..keys.len()).map(of_contender).collect(),
        keys,
        ..Chart::new(
            view.id("layers"),
            "Where the bytes went".into(),
            Axis::from_zero(format!("written, {name}"), steps.iter().map(|(.., bytes)| bytes / size)),
            Axis::rows(rows.iter().map(String::as_str)),
        )
    })
}
