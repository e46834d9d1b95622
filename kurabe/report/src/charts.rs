//! The charts of one workload: from the analysis and the records to [`Chart`]s.
//!
//! A contender has the same colour, dash and symbol in every chart: its place in the study. A chart
//! of which nothing was measured is not made.

use lab::analysis::WorkloadAnalysis;
use lab::workload::Unit;

use crate::chart::{Chart, LegendEntry};
use crate::html::slug;
use crate::source::ResultSource;

pub mod benefit;
pub mod cost;
pub mod latency;
pub mod layers;
pub mod layout;
pub mod matrix;
pub mod phases;
pub mod position;
pub mod power_cuts;
pub mod ratio;
pub mod runs;
pub mod scan;
pub mod series;

/// One workload of a source, and what every chart of it needs.
pub struct WorkloadView<'a> {
    pub source: &'a ResultSource,
    /// The workload's place in the study.
    pub index: usize,
    /// What the records say of it.
    pub analysis: &'a WorkloadAnalysis,
}

impl WorkloadView<'_> {
    /// The views of a source, one a workload.
    pub fn all(source: &ResultSource) -> Vec<WorkloadView<'_>> {
        let workloads = source.analysis.workloads.iter().enumerate();
        workloads.map(|(index, analysis)| WorkloadView { source, index, analysis }).collect()
    }

    /// An identifier for something of this workload, unique in a page.
    pub fn id(&self, what: &str) -> String {
        let name = slug(&self.analysis.workload);
        match name.as_str() {
            "" => format!("w{}-{what}", self.index + 1),
            name => format!("w{}-{name}-{what}", self.index + 1),
        }
    }

    /// The legend of the contenders, in the study's order.
    pub fn keys(&self) -> Vec<LegendEntry> {
        let contenders = self.analysis.contenders.iter().enumerate();
        contenders
            .map(|(style, contender)| LegendEntry::contender(&contender.label, style))
            .collect()
    }

    /// The contenders' places in the study, the best first, those without a figure last.
    pub fn ranked(&self) -> Vec<usize> {
        let labels = crate::tables::ranked(self.analysis);
        let place = |label: &str| {
            self.analysis.contenders.iter().position(|contender| contender.label == label)
        };
        labels.into_iter().filter_map(|contender| place(&contender.label)).collect()
    }

    /// Name and unit of the most important figure, when any trial was completed.
    pub fn primary(&self) -> Option<(&str, Unit)> {
        let metrics = self.analysis.contenders.iter().flat_map(|contender| &contender.metrics);
        metrics.map(|metric| (metric.name.as_str(), metric.unit)).next()
    }
}

/// The charts of a workload, in the order of the page.
pub fn of_workload(view: &WorkloadView<'_>) -> Vec<Chart> {
    let mut charts = Vec::new();
    charts.extend(runs::of_workload(view));
    charts.extend(benefit::of_workload(view));
    charts.extend(power_cuts::of_workload(view));
    charts.extend(power_cuts::timelines(view));
    charts.extend(position::charts(view));
    charts.extend(ratio::against_baseline(view));
    charts.extend(ratio::every_metric(view));
    charts.extend(ratio::over_blocks(view));
    charts.extend(phases::stacked(view));
    charts.extend(latency::charts(view));
    charts.extend(series::charts(view));
    charts.extend(matrix::curves(view));
    charts.extend(layers::bytes(view));
    charts.extend(cost::amplification(view));
    charts.extend(cost::flushes(view));
    charts
}

/// A unit that suits all values of an axis: its name, and what a value is divided by.
pub fn scale_of(unit: Unit, largest: f64) -> (&'static str, f64) {
    let steps: &[(&str, f64)] = match unit {
        Unit::Bytes => {
            &[("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1024.0), ("B", 1.0)]
        }
        Unit::Count => &[("million", 1e6), ("thousand", 1e3), ("", 1.0)],
        Unit::Nanoseconds => &[("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)],
        Unit::BytesPerSecond => {
            &[("GiB/s", 1_073_741_824.0), ("MiB/s", 1_048_576.0), ("KiB/s", 1024.0), ("B/s", 1.0)]
        }
        Unit::OperationsPerSecond => {
            &[("million operations/s", 1e6), ("thousand operations/s", 1e3), ("operations/s", 1.0)]
        }
    };
    let fits = steps.iter().find(|(_, size)| largest >= *size);
    *fits.unwrap_or(&steps[steps.len() - 1])
}

/// What is better of a unit, for the title of an axis.
pub fn better(unit: Unit) -> &'static str {
    if unit.more_is_better() { "more is better" } else { "less is better" }
}
