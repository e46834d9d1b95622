//! What the device did for each thing that was asked: amplification and flushes.

use super::WorkloadView;
use crate::chart::{Axis, Chart, ChartSeries, Guide, Point, SeriesStyle};
use crate::costs::flushes_per_operation;
use crate::text;

/// Device bytes written for each byte that the workload wrote.
pub fn amplification(view: &WorkloadView<'_>) -> Option<Chart> {
    let value = |contender: usize| view.analysis.contenders[contender].cost.write_amplification;
    let mut chart = bars(
        view,
        "amplification",
        &value,
        |value| format!("{value:.2}"),
        "device bytes written for each byte that the workload wrote",
    )?;
    chart.title = "Write amplification".into();
    chart.guides.push(Guide::Line { x: 1.0, text: "as much as asked".into() });
    Some(chart)
}

/// Flushes of the device, for each operation where the workload counts operations.
pub fn flushes(view: &WorkloadView<'_>) -> Option<Chart> {
    let records = view.source.completed(&view.analysis.workload);
    let per_operation = |contender: usize| flushes_per_operation(&records[contender]);
    let contenders = 0..view.analysis.contenders.len();
    let mut chart = if contenders.clone().any(|contender| per_operation(contender).is_some()) {
        bars(
            view,
            "flushes",
            &per_operation,
            text::small,
            "flushes of the device for each operation",
        )?
    } else {
        let flushes = |contender: usize| view.analysis.contenders[contender].cost.device_flushes;
        bars(view, "flushes", &flushes, text::count, "flushes of the device in run and sync")?
    };
    chart.title = "Flushes".into();
    Some(chart)
}

/// One bar a contender, whose numbers are in the table of costs; none where nothing was measured, or the same of
/// all.
fn bars(
    view: &WorkloadView<'_>,
    id: &str,
    value: &dyn Fn(usize) -> Option<f64>,
    label: fn(f64) -> String,
    title: &str,
) -> Option<Chart> {
    let rows: Vec<(usize, f64)> =
        view.ranked().into_iter().filter_map(|row| Some((row, value(row)?))).collect();
    if rows.iter().all(|(_, value)| label(*value) == label(rows[0].1)) {
        return None;
    }
    let name = |contender: usize| view.analysis.contenders[contender].label.as_str();
    let mut series = Vec::new();
    for (row, (contender, value)) in rows.iter().enumerate() {
        let words = format!("{}: {}", name(*contender), label(*value));
        let point = Point { low: Some(0.0), ..Point::at(*value, row as f64, words) };
        series.push(ChartSeries { key: *contender, mark: SeriesStyle::Bars, points: vec![point] });
    }
    let said: Vec<String> =
        rows.iter().map(|(row, value)| format!("{} {}", name(*row), label(*value))).collect();
    Some(Chart {
        says: format!("Medians of {title}: {}.", text::list(&said)),
        height: 84 + 32 * rows.len() as u32,
        keys: view.keys(),
        legend: false,
        series,
        ..Chart::new(
            view.id(id),
            title.into(),
            Axis::from_zero(title, rows.iter().map(|(_, value)| *value)),
            Axis::rows(rows.iter().map(|(row, _)| name(*row))),
        )
    })
}
