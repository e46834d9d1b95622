//! Where the time goes: the phases as stacked bars.

use lab::record::Phase;
use lab::workload::Unit;

use super::{WorkloadView, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, LegendEntry, Point, SeriesStyle};
use crate::text;

/// The medians of the phases, one bar a contender.
pub fn stacked(view: &WorkloadView<'_>) -> Option<Chart> {
    let rows: Vec<usize> = view
        .ranked()
        .into_iter()
        .filter(|contender| !view.analysis.contenders[*contender].phases.is_empty())
        .collect();
    let phases_of = |contender: usize| &view.analysis.contenders[contender].phases;
    let present: Vec<Phase> = Phase::ALL
        .iter()
        .copied()
        // The wait for an idle device is no work of the file system.
        .filter(|phase| *phase != Phase::Settle)
        .filter(|phase| rows.iter().any(|row| phases_of(*row).iter().any(|(p, _)| p == phase)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let total_of = |contender: usize| -> f64 {
        let shown = phases_of(contender).iter().filter(|(phase, _)| present.contains(phase));
        shown.map(|(_, ns)| ns).sum()
    };
    let largest = rows.iter().map(|row| total_of(*row)).fold(0.0, f64::max);
    let (name, size) = scale_of(Unit::Nanoseconds, largest);
    let mut starts = vec![0.0; rows.len()];
    let mut series = Vec::new();
    for (key, phase) in present.iter().enumerate() {
        let mut points = Vec::new();
        for (row, contender) in rows.iter().enumerate() {
            let found = phases_of(*contender).iter().find(|(entry, _)| entry == phase);
            let Some((_, ns)) = found else { continue };
            let label = &view.analysis.contenders[*contender].label;
            let low = starts[row];
            starts[row] += ns / size;
            points.push(Point {
                low: Some(low),
                ..Point::at(
                    low + ns / size,
                    row as f64,
                    format!("{label}, {}: {}", phase.name(), text::time(*ns)),
                )
            });
        }
        series.push(ChartSeries { key, mark: SeriesStyle::Bars, points });
    }
    let labels = rows.iter().map(|row| view.analysis.contenders[*row].label.as_str());
    let keys = present.iter().map(|phase| LegendEntry {
        name: phase.name().into(),
        style: style_of(*phase),
        group: "phase",
    });
    Some(Chart {
        says: "Medians of the phases, in the order in which they happen. Run and sync are compared; the wait for an idle device (settle) is left out.".into(),
        height: 84 + 36 * rows.len() as u32,
        keys: keys.collect(),
        series,
        ..Chart::new(view.id("phases"), "Where the time goes".into(), Axis::from_zero(
            format!("time, {name}"),
            rows.iter().map(|row| total_of(*row) / size),
        ), Axis::rows(labels))
    })
}

/// Run and sync, which are compared, stand out from what comes before and after.
fn style_of(phase: Phase) -> usize {
    match phase {
        Phase::Run => 0,
        Phase::Sync => 5,
        Phase::Mkfs | Phase::Restore | Phase::Layers | Phase::Resync => 4,
        Phase::Mount => 6,
        Phase::Setup | Phase::Prepare | Phase::Start => 3,
        Phase::Layout | Phase::Create | Phase::Load => 2,
        Phase::Unmount | Phase::Shutdown => 1,
        Phase::Check | Phase::Verify => 7,
        Phase::Settle | Phase::Cleanup | Phase::Checkpoint => 6,
    }
}
