//! What was measured in the place of a published number.

use lab::analysis::{ContenderAnalysis, WorkloadAnalysis};
use lab::judgement::Measurements;
use lab::record::{Phase, counted_trials};
use lab::statistics::{self, ComparisonOptions};
use lab::words;
use lab::workload::{Latency, Unit};
use serde_json::Value;

use crate::table::{Figure, PublishedUnit, Reference, Statistic};

/// A measured figure, with its interval where the statistics give one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredFigure {
    pub value: f64,
    pub ends: Option<(f64, f64)>,
    pub quantity: Quantity,
}

/// What a measured figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A figure in the workload's own unit.
    Of(Unit),
    Ratio,
    /// A number of operations.
    Count,
    /// A number in the unit that the workload's own report has.
    Plain,
}

const TIME: Quantity = Quantity::Of(Unit::Nanoseconds);

impl MeasuredFigure {
    fn plain(value: f64, quantity: Quantity) -> MeasuredFigure {
        MeasuredFigure { value, ends: None, quantity }
    }

    /// A ratio the other way round.
    fn turned(self) -> MeasuredFigure {
        let ends = self.ends.map(|(low, high)| (high.recip(), low.recip()));
        MeasuredFigure { value: self.value.recip(), ends, ..self }
    }

    /// The figure in the unit of the published one; as it is where the two do not go together.
    pub fn in_unit(self, unit: Option<PublishedUnit>) -> Option<MeasuredFigure> {
        let unit = unit.filter(|unit| unit.of == self.quantity)?;
        Some(MeasuredFigure {
            value: self.value / unit.size,
            ends: self.ends.map(|(low, high)| (low / unit.size, high / unit.size)),
            quantity: self.quantity,
        })
    }

    /// The figure in words, in the unit of the published one where the two go together.
    pub fn words(self, unit: Option<PublishedUnit>) -> String {
        let converted = self.in_unit(unit);
        let shown = converted.unwrap_or(self);
        let number: &dyn Fn(f64) -> String = match (converted, self.quantity) {
            (None, Quantity::Of(unit)) => {
                return report::text::figure_with_interval(self.value, self.ends, unit);
            }
            (_, Quantity::Ratio) => return words::ratio_with_interval(self.value, self.ends),
            (_, Quantity::Count) => return format!("{:.0}", self.value),
            _ => &digits,
        };
        match shown.ends {
            Some((low, high)) => {
                format!("{} ({} to {})", number(shown.value), number(low), number(high))
            }
            None => number(shown.value),
        }
    }
}

/// Four significant digits, at most four behind the point.
pub fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let behind = (3.0 - magnitude).clamp(0.0, 4.0) as usize;
    format!("{value:.behind$}")
}

/// Label of the contender that a reference compares with.
pub fn baseline_of<'a>(result: Measurements<'a>, reference: &'a Reference) -> &'a str {
    reference.baseline.as_deref().unwrap_or(result.plan.baseline_label())
}

/// What was measured for a reference; nothing where no trial yielded it.
pub fn measure(result: Measurements<'_>, reference: &Reference) -> Option<MeasuredFigure> {
    let workload = result.analysis.workload(&reference.workload)?;
    let contender = workload.contender(&reference.contender)?;
    match (&reference.figure, reference.statistic) {
        (Figure::Metric(name), Statistic::Value) => {
            let metric = contender.metrics.iter().find(|metric| metric.name == *name)?;
            Some(of_summary(&metric.summary, Quantity::Of(metric.unit)))
        }
        (Figure::Metric(name), statistic) => {
            let (cost, unit) = metric_cost(result, workload, name, reference)?;
            let is_turned = statistic == Statistic::Ratio && unit.more_is_better();
            Some(if is_turned { cost.turned() } else { cost })
        }
        (Figure::Phase(phase), statistic) => {
            let own = phase_times(result, reference, *phase, &contender.label);
            if statistic == Statistic::Value {
                return of_trials(own.into_iter().flatten().collect(), TIME);
            }
            let baseline = baseline_of(result, reference);
            compared(&phase_times(result, reference, *phase, baseline), &own)
        }
        (Figure::Operation(name), Statistic::Rate) => {
            let seconds = counted_seconds(result, reference)?;
            let count = of_operation(contender, name, Statistic::Count)?;
            Some(MeasuredFigure::plain(count.value / seconds, Quantity::Plain))
        }
        (Figure::Operation(name), statistic) => of_operation(contender, name, statistic),
        (Figure::Detail(place), _) => {
            let trials = counted_trials(result.records, &reference.workload, &contender.label);
            let reports = trials.filter_map(|record| Some(&record.load.as_ref()?.details));
            let values = reports.filter_map(|report| detail(report, place)?.as_f64());
            of_trials(values.collect(), Quantity::Plain)
        }
    }
}

fn of_summary(summary: &statistics::SampleSummary, quantity: Quantity) -> MeasuredFigure {
    let ends = summary.median_interval.map(|interval| (interval.low, interval.high));
    MeasuredFigure { value: summary.median, ends, quantity }
}

/// The median over the trials, with its interval.
fn of_trials(values: Vec<f64>, quantity: Quantity) -> Option<MeasuredFigure> {
    Some(of_summary(&statistics::summarize(&values).ok()?, quantity))
}

/// The ratio of samples by block, `over` to `under`.
fn compared(under: &[Option<f64>], over: &[Option<f64>]) -> Option<MeasuredFigure> {
    let (under, over) = statistics::pairs(under, over);
    let found = statistics::compare(&under, &over, &ComparisonOptions::default()).ok()?;
    let ends = found.interval.map(|interval| (interval.low, interval.high));
    Some(MeasuredFigure { ends, ..MeasuredFigure::plain(found.ratio?, Quantity::Ratio) })
}

/// What a metric costs relative to the reference's baseline, and the unit of the metric: as the analysis has it, which
/// compares with the study's baseline; of another pair an interval of its own.
fn metric_cost(
    result: Measurements<'_>,
    workload: &WorkloadAnalysis,
    metric: &str,
    reference: &Reference,
) -> Option<(MeasuredFigure, Unit)> {
    let (label, baseline) = (reference.contender.as_str(), baseline_of(result, reference));
    let unit = workload.contender(label)?.metrics.iter().find(|entry| entry.name == metric)?.unit;
    if label == baseline {
        return Some((MeasuredFigure::plain(1.0, Quantity::Ratio), unit));
    }
    let known = workload.comparisons.iter().find(|entry| {
        let pair = (entry.contender.as_str(), entry.baseline.as_str());
        entry.metric == metric && (pair == (label, baseline) || pair == (baseline, label))
    });
    let cost = match known {
        Some(known) => {
            let ends = known.cost_ends();
            let cost =
                MeasuredFigure { ends, ..MeasuredFigure::plain(known.cost()?, Quantity::Ratio) };
            // The same pair may be seen from the other side.
            if known.contender == label { cost } else { cost.turned() }
        }
        None => {
            let (plan, records) = (result.plan, result.records);
            let costs = lab::analysis::costs(plan, records, &workload.workload, Some(metric));
            let of = |label: &str| {
                let contenders = &plan.study.contenders;
                let place = contenders.iter().position(|entry| entry.label == label)?;
                costs.values.get(place)
            };
            compared(of(baseline)?, of(label)?)?
        }
    };
    Some((cost, unit))
}

/// The times of a phase in ns, a place for each block; of mkfs those of the blocks of all workloads,
/// since it comes before a trial's workload is begun and knows nothing of it.
fn phase_times(
    result: Measurements<'_>,
    reference: &Reference,
    phase: Phase,
    label: &str,
) -> Vec<Option<f64>> {
    let mut times = Vec::new();
    for workload in &result.plan.study.workloads {
        if phase != Phase::Mkfs && workload.name != reference.workload {
            continue;
        }
        let begin = times.len();
        times.resize(begin + result.plan.blocks.len(), None);
        for record in counted_trials(result.records, &workload.name, label) {
            let time = record.phase(phase).map(|entry| entry.elapsed_ns as f64);
            if let Some(place) = times.get_mut(begin + record.block as usize) {
                *place = time.filter(|ns| *ns > 0.0);
            }
        }
    }
    times
}

/// A statistic of a kind of operation.
fn of_operation(
    contender: &ContenderAnalysis,
    name: &str,
    statistic: Statistic,
) -> Option<MeasuredFigure> {
    let latency = contender.latencies.iter().find(|entry| entry.operation == name)?;
    // The count is of all trials; a publication's is of one run.
    let completed = contender.trials.saturating_sub(contender.failed);
    match statistic {
        Statistic::Count => (completed > 0).then(|| {
            MeasuredFigure::plain(latency.count as f64 / completed as f64, Quantity::Count)
        }),
        Statistic::Average => (latency.count > 0)
            .then(|| MeasuredFigure::plain(latency.total_ns as f64 / latency.count as f64, TIME)),
        Statistic::Max => Some(MeasuredFigure::plain(latency.max_ns as f64, TIME)),
        Statistic::Percentile(quantile) => {
            Some(MeasuredFigure::plain(percentile(latency, quantile)? as f64, TIME))
        }
        _ => None,
    }
}

fn percentile(latency: &Latency, quantile: f64) -> Option<u64> {
    latency.quantiles_ns.iter().find(|(known, _)| *known == quantile).map(|(_, ns)| *ns)
}

/// Seconds over which a workload counts its operations, of those that run for a time.
fn counted_seconds(result: Measurements<'_>, reference: &Reference) -> Option<f64> {
    let mut workloads = result.plan.study.workloads.iter();
    workloads.find(|workload| workload.name == reference.workload)?.load.counted_seconds()
}

/// What stands at a place of a workload's own report, as [`Figure::Detail`] writes it.
fn detail<'a>(report: &'a Value, place: &str) -> Option<&'a Value> {
    let mut at = report;
    // The entries of a list that the steps so far left over.
    let mut kept: Option<Vec<&Value>> = None;
    for step in place.split('/') {
        let beyond = step.strip_suffix(':').and_then(|count| count.parse::<usize>().ok());
        let filter = step.split_once('=');
        let index = step.parse::<i64>().ok();
        if beyond.is_none() && filter.is_none() && index.is_none() {
            at = at.get(step)?;
            continue;
        }
        let mut entries = kept.take().or_else(|| Some(at.as_array()?.iter().collect()))?;
        if let Some(index) = index {
            let from = if index < 0 { entries.len() as i64 } else { 0 };
            at = entries.get(usize::try_from(from + index).ok()?)?;
            continue;
        }
        match (beyond, filter) {
            (Some(count), _) => drop(entries.drain(..count.min(entries.len()))),
            (_, Some((key, wanted))) => {
                entries.retain(|entry| entry.get(key).is_some_and(|found| found == wanted));
            }
            _ => {}
        }
        kept = Some(entries);
    }
    kept.is_none().then_some(at)
}
