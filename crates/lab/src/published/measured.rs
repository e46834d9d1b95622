//! What was measured in the place of a published number.

use serde::Serialize;
use serde_json::Value;

use super::{Figure, PublishedUnit, Reference, Statistic};
use crate::analysis::{
    Analysis, Comparison, ContenderAnalysis, MetricAnalysis, WorkloadAnalysis, options,
};
use crate::load::{AverageLatency, Latency, Unit};
use crate::plan::Plan;
use crate::record::{Phase, Record, counted_trials};
use crate::statistics::{BLOCKS_MIN_FOR_INTERVAL, compare_family, summarize};
use crate::words;

/// A measured figure, with its interval where the statistics give one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The figure.
    pub value: f64,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// What it is.
    pub quantity: Quantity,
    /// The step in which the tool that measured it prints it, below which digits say nothing.
    pub step: Option<f64>,
}

/// What a measured figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A figure in the load's own unit.
    Of(Unit),
    /// A ratio.
    Ratio,
    /// Percent.
    Percent,
    /// A number of operations.
    Count,
    /// A number in the unit that the load's own report has, or operations a second.
    Plain,
}

impl Measured {
    fn plain(value: f64, quantity: Quantity) -> Measured {
        Measured { value, low: None, high: None, quantity, step: None }
    }

    fn nanoseconds(value: f64) -> Measured {
        Measured::plain(value, Quantity::Of(Unit::Nanoseconds))
    }

    /// Whether its interval says anything; true without one, and of a figure that is no comparison.
    pub fn is_telling(&self) -> bool {
        match (self.low.zip(self.high), self.quantity) {
            (Some((low, high)), Quantity::Ratio) => words::is_telling(low, high),
            (Some((low, high)), Quantity::Percent) => words::is_telling_loss(low, high),
            _ => true,
        }
    }

    /// Whether its interval leaves no doubt that there is a difference; true of a figure that is no
    /// comparison.
    pub fn is_decided(&self) -> bool {
        let none = match self.quantity {
            Quantity::Ratio => 1.0,
            Quantity::Percent => 0.0,
            _ => return true,
        };
        self.low.zip(self.high).is_some_and(|(low, high)| low > none || high < none)
    }

    /// The figure in the unit of the published one; as it is where the two do not go together.
    pub fn in_unit(self, unit: Option<PublishedUnit>) -> Option<Measured> {
        let divisor = match (self.quantity, unit?) {
            (Quantity::Of(Unit::Nanoseconds), PublishedUnit::Seconds) => 1e9,
            (Quantity::Of(Unit::Nanoseconds), PublishedUnit::Milliseconds) => 1e6,
            (Quantity::Of(Unit::Nanoseconds), PublishedUnit::Microseconds) => 1e3,
            (Quantity::Of(Unit::BytesPerSecond), PublishedUnit::MegabytesPerSecond) => 1e6,
            (Quantity::Of(Unit::BytesPerSecond), PublishedUnit::MebibytesPerSecond) => 1_048_576.0,
            (Quantity::Of(Unit::OperationsPerSecond), PublishedUnit::PerSecond) => 1.0,
            (Quantity::Percent, PublishedUnit::Percent) => 1.0,
            _ => return None,
        };
        Some(Measured {
            value: self.value / divisor,
            low: self.low.map(|low| low / divisor),
            high: self.high.map(|high| high / divisor),
            quantity: self.quantity,
            step: self.step.map(|step| step / divisor),
        })
    }
}

/// What was measured for a reference; nothing where no trial yielded it.
pub fn measure(
    plan: &Plan,
    records: &[Record],
    analysis: &Analysis,
    reference: &Reference,
) -> Option<Measured> {
    let workload = analysis.workloads.iter().find(|entry| entry.workload == reference.workload)?;
    let contender = workload.contenders.iter().find(|entry| entry.label == reference.contender)?;
    match (&reference.figure, reference.statistic) {
        (Figure::Metric(name), Statistic::Value) => {
            let metric = contender.metrics.iter().find(|metric| metric.name == *name)?;
            let interval = metric.summary.median_interval;
            Some(Measured {
                value: metric.summary.median,
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                quantity: Quantity::Of(metric.unit),
                step: None,
            })
        }
        (Figure::Metric(name), Statistic::Loss) => {
            let compared = ratio(plan, workload, contender, name, reference)?;
            let (ratio, unit) = (compared.ratio, compared.unit);
            (compared.blocks >= BLOCKS_MIN_FOR_INTERVAL).then(|| loss(ratio, unit))
        }
        (Figure::Metric(name), _) => {
            ratio(plan, workload, contender, name, reference).map(|compared| compared.ratio)
        }
        (Figure::Phase(phase), Statistic::Ratio) => phase_ratio(plan, records, reference, *phase),
        (Figure::Phase(phase), _) => {
            let times: Vec<f64> = phase_times(plan, records, reference, *phase, &contender.label)
                .into_iter()
                .flatten()
                .collect();
            of_trials(&times, Quantity::Of(Unit::Nanoseconds))
        }
        (Figure::Operation(name), statistic) => {
            let measured =
                |statistic| match contender.latencies.iter().find(|entry| entry.operation == *name)
                {
                    Some(latency) => of_latency(latency, contender, statistic),
                    None => of_averages(&averages(records, reference, name), statistic),
                };
            match statistic {
                Statistic::Rate => {
                    let rate =
                        measured(Statistic::Count)?.value / counted_seconds(plan, reference)?;
                    Some(Measured::plain(rate, Quantity::Plain))
                }
                other => measured(other),
            }
        }
        (Figure::Detail(place), _) => {
            let trials = counted_trials(records, &reference.workload, &reference.contender);
            let reports = trials.filter_map(|record| Some(&record.load.as_ref()?.details));
            let values: Vec<f64> =
                reports.filter_map(|report| detail(report, place)?.as_f64()).collect();
            of_trials(&values, Quantity::Plain)
        }
    }
}

/// The times of a phase in ns, a place for each block; of mkfs those of the blocks of all workloads,
/// since it comes before a trial's workload is begun and knows nothing of it.
fn phase_times(
    plan: &Plan,
    records: &[Record],
    reference: &Reference,
    phase: Phase,
    label: &str,
) -> Vec<Option<f64>> {
    let mut times = Vec::new();
    for workload in &plan.study.workloads {
        if phase != Phase::Mkfs && workload.name != reference.workload {
            continue;
        }
        let begin = times.len();
        times.resize(begin + plan.blocks.len(), None);
        for record in counted_trials(records, &workload.name, label) {
            let time = record.phase(phase).map(|entry| entry.elapsed_ns as f64);
            if let Some(place) = times.get_mut(begin + record.block as usize) {
                *place = time.filter(|ns| *ns > 0.0);
            }
        }
    }
    times
}

/// The ratio of a phase's times to the reference's baseline, block by block, as one of the family
/// of all contenders.
fn phase_ratio(
    plan: &Plan,
    records: &[Record],
    reference: &Reference,
    phase: Phase,
) -> Option<Measured> {
    let baseline = reference.baseline.as_deref().unwrap_or(plan.baseline_label());
    let times = |label: &str| phase_times(plan, records, reference, phase, label);
    if reference.contender == baseline {
        // Of what it has not done there is nothing to divide by.
        times(baseline).into_iter().flatten().next()?;
        return Some(Measured::plain(1.0, Quantity::Ratio));
    }
    let labels = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    let others: Vec<&str> = labels.filter(|label| *label != baseline).collect();
    let family: Vec<_> = others.iter().map(|label| times(label)).collect();
    let compared = compare_family(&times(baseline), &family, &options(plan)).ok()?;
    let place = others.iter().position(|label| *label == reference.contender)?;
    let interval = compared[place].interval;
    Some(Measured {
        value: compared[place].ratio?,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        quantity: Quantity::Ratio,
        step: None,
    })
}

/// The median over the trials, with its interval.
fn of_trials(values: &[f64], quantity: Quantity) -> Option<Measured> {
    let summary = summarize(values).ok()?;
    let interval = summary.median_interval;
    Some(Measured {
        value: summary.median,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        quantity,
        step: None,
    })
}

/// Whether there are the figures of both sides of a comparison, and fewer blocks than it takes.
pub fn is_withheld(
    plan: &Plan,
    records: &[Record],
    analysis: &Analysis,
    reference: &Reference,
) -> bool {
    let measured = |reference: &Reference| measure(plan, records, analysis, reference).is_some();
    let baseline = reference.baseline.as_deref().unwrap_or(plan.baseline_label());
    let value = |label: &str| Reference {
        contender: label.to_string(),
        statistic: Statistic::Value,
        ..reference.clone()
    };
    matches!(reference.statistic, Statistic::Ratio | Statistic::Loss)
        && !measured(reference)
        && measured(&value(&reference.contender))
        && measured(&value(baseline))
}

/// A ratio to a reference's baseline.
struct Compared {
    ratio: Measured,
    /// Unit of the metric.
    unit: Unit,
    /// Blocks that it is of; trials of the side that has fewer, where nothing is paired.
    blocks: usize,
}

/// The ratio to the reference's baseline.
fn ratio(
    plan: &Plan,
    workload: &WorkloadAnalysis,
    contender: &ContenderAnalysis,
    metric: &str,
    reference: &Reference,
) -> Option<Compared> {
    let baseline = reference.baseline.as_deref().unwrap_or(plan.baseline_label());
    let figures = |label: &str| {
        let entry = workload.contenders.iter().find(|entry| entry.label == label)?;
        entry.metrics.iter().find(|entry| entry.name == metric)
    };
    let MetricAnalysis { unit, summary: own, .. } = figures(&contender.label)?;
    let (unit, blocks) = (*unit, own.count);
    if contender.label == baseline {
        return Some(Compared { ratio: Measured::plain(1.0, Quantity::Ratio), unit, blocks });
    }
    let compared = |label: &str| {
        let mut all = workload.comparisons.iter();
        all.find(|entry| entry.metric == metric && entry.contender == label)
    };
    let of = |comparison: &Comparison| {
        let Comparison { ratio, low, high, blocks, .. } = *comparison;
        let ratio = Measured { low, high, ..Measured::plain(ratio?, Quantity::Ratio) };
        Some(Compared { ratio, unit, blocks })
    };
    if plan.baseline_label() == baseline {
        compared(&contender.label).and_then(of)
    } else if plan.baseline_label() == contender.label {
        // The same pair, seen from the other side.
        let other = compared(baseline).and_then(of)?;
        let Measured { value, low, high, .. } = other.ratio;
        let [low, high] = [high, low].map(|end| end.map(f64::recip));
        let ratio = Measured { value: value.recip(), low, high, ..other.ratio };
        Some(Compared { ratio, ..other })
    } else {
        // The statistics compare with one baseline only; of another pair there is no interval.
        let other = &figures(baseline)?.summary;
        let ratio = Measured::plain(own.median / other.median, Quantity::Ratio);
        Some(Compared { ratio, unit, blocks: blocks.min(other.count) })
    }
}

/// What is lost of the baseline's performance, in percent. For a time the performance is its
/// reciprocal.
fn loss(ratio: Measured, unit: Unit) -> Measured {
    let performance = |ratio: f64| if unit.more_is_better() { ratio } else { ratio.recip() };
    let lost = |ratio: f64| 100.0 * (1.0 - performance(ratio));
    let ends = [ratio.low.map(lost), ratio.high.map(lost)];
    let [low, high] = if unit.more_is_better() { [ends[1], ends[0]] } else { ends };
    Measured { value: lost(ratio.value), low, high, quantity: Quantity::Percent, step: None }
}

fn of_latency(
    latency: &Latency,
    contender: &ContenderAnalysis,
    statistic: Statistic,
) -> Option<Measured> {
    let completed = contender.trials.saturating_sub(contender.failed);
    let ns = |ns: u64| Some(Measured::nanoseconds(ns as f64));
    match statistic {
        // The count is of all trials; a publication's is of one run.
        Statistic::Count => (completed > 0)
            .then(|| Measured::plain(latency.count as f64 / completed as f64, Quantity::Count)),
        Statistic::Average => (latency.count > 0)
            .then(|| Measured::nanoseconds(latency.total_ns as f64 / latency.count as f64)),
        Statistic::P5 => ns(latency.p5_ns),
        Statistic::P50 => ns(latency.p50_ns),
        Statistic::P90 => ns(latency.p90_ns),
        Statistic::P95 => ns(latency.p95_ns),
        Statistic::P99 => ns(latency.p99_ns),
        Statistic::P999 => ns(latency.p99_9_ns),
        Statistic::P9999 => ns(latency.p99_99_ns),
        Statistic::Max => ns(latency.max_ns),
        Statistic::Value | Statistic::Ratio | Statistic::Loss | Statistic::Rate => None,
    }
}

/// Seconds over which a load counts its operations, of those that run for a time.
fn counted_seconds(plan: &Plan, reference: &Reference) -> Option<f64> {
    let mut workloads = plan.study.workloads.iter();
    workloads.find(|workload| workload.name == reference.workload)?.load.counted_seconds()
}

/// What stands at a place of a load's own report; [`super::ReferenceText::detail`] says how a
/// place is written.
fn detail<'a>(report: &'a Value, place: &str) -> Option<&'a Value> {
    let mut at = report;
    // The entries of a list that the steps so far left over.
    let mut kept: Option<Vec<&Value>> = None;
    for step in place.split('/') {
        let beyond = step.strip_suffix(':').and_then(|count| count.parse::<usize>().ok());
        if let Some(count) = beyond {
            let entries = kept.take().or_else(|| Some(at.as_array()?.iter().collect()))?;
            kept = Some(entries.into_iter().skip(count).collect());
        } else if let Some((key, wanted)) = step.split_once('=') {
            let mut entries = kept.take().or_else(|| Some(at.as_array()?.iter().collect()))?;
            entries.retain(|entry| entry.get(key).is_some_and(|found| found == wanted));
            kept = Some(entries);
        } else if let Ok(index) = step.parse::<i64>() {
            let entries = kept.take().or_else(|| Some(at.as_array()?.iter().collect()))?;
            let from = if index < 0 { entries.len() as i64 } else { 0 };
            at = entries.get(usize::try_from(from + index).ok()?)?;
        } else {
            at = at.get(step)?;
        }
    }
    kept.is_none().then_some(at)
}

/// What the tool that did the work says of an operation, trial by trial.
fn averages<'a>(
    records: &'a [Record],
    reference: &'a Reference,
    operation: &str,
) -> Vec<&'a AverageLatency> {
    counted_trials(records, &reference.workload, &reference.contender)
        .filter_map(|record| {
            let load = record.load.as_ref()?;
            load.averages.iter().find(|entry| entry.operation == operation)
        })
        .collect()
}

fn of_averages(trials: &[&AverageLatency], statistic: Statistic) -> Option<Measured> {
    let step = trials.iter().filter_map(|trial| trial.step_ns).max_by(f64::total_cmp);
    let time = |ns: f64| Measured { step, ..Measured::nanoseconds(ns) };
    let count = trials.iter().map(|trial| trial.count).fold(0, u64::saturating_add);
    match statistic {
        _ if trials.is_empty() => None,
        Statistic::Count => {
            Some(Measured::plain(count as f64 / trials.len() as f64, Quantity::Count))
        }
        Statistic::Average if count > 0 => {
            let total: f64 = trials.iter().map(|trial| trial.average_ns * trial.count as f64).sum();
            Some(time(total / count as f64))
        }
        Statistic::Max => trials.iter().map(|trial| trial.max_ns).max_by(f64::total_cmp).map(time),
        // Percentiles are what the tool does not tell.
        _ => None,
    }
}
