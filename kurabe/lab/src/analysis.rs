//! From records to what can be said: per contender a summary, per pair with the baseline a
//! comparison, and the warnings. Pure: the same plan and records always give the same analysis.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with_macros::skip_serializing_none;

use crate::condition::Gate;
use crate::contender::Contender;
use crate::plan::Plan;
use crate::record::{DeviceDelta, Phase, Record};
use crate::statistics::{self, ComparisonOptions, STEADY_ROUNDS, SampleSummary, Slow, Verdict};
use crate::warning::Warning;
use crate::watched::Disturbed;
use crate::words::{distinct, grouped};
use crate::workload::{Axes, DEPTH_AXIS, Latency, Metric, QUANTILES, Unit};

mod checks;
mod control;
mod cost;
mod disturbed;
mod exploratory;
mod overall;
mod primary;
mod samples;
mod slices;
mod spread;
mod step;
mod stores;
mod warnings;
mod zero;

pub use checks::{CheckAnalysis, CheckRow, violation_words};
pub use control::control_words;
pub use cost::{AmplificationBasis, ResourceUse};
use cost::{amplification_basis, cost};
pub use exploratory::{COUNTED, COUNTED_PER_WORK};
use primary::{Primary, others, primary};
pub use samples::{Costs, completed_trials, costs};
use samples::{Samples, blocks_reached, reached};
pub use step::{EffortForecast, NextStep, around_trials, ended_by_budget, next_step};
pub use stores::{Pair, store_pairs};

/// Everything that the records say.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// One entry a workload, in the study's order.
    pub workloads: Vec<WorkloadAnalysis>,
    /// Of several workloads what each contender costs under all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Comparison>,
    /// Of several workloads what each store costs relative to the first one, over all stacks that have both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<Comparison>,
    /// What becomes of the gates, in the study's order; [`crate::judgement::analyse`] puts them here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// How much is open, and how much longer it may take; none where nothing is compared.
    pub forecast: Option<EffortForecast>,
}

impl Analysis {
    /// Every comparison, as `comparisons.json` has them: each workload's figures, then what the
    /// records tell besides, then all workloads together; last the checks.
    pub fn rows(&self) -> Vec<ComparisonRow<'_>> {
        let mut rows = Vec::new();
        for workload in &self.workloads {
            rows.extend(workload.comparisons.iter().map(ComparisonRow::Comparison));
            rows.extend(workload.direct.iter().map(ComparisonRow::Comparison));
            rows.extend(workload.exploratory.iter().map(ComparisonRow::Comparison));
        }
        rows.extend(self.overall.iter().chain(&self.stores).map(ComparisonRow::Comparison));
        rows.extend(checks::rows(&self.workloads).map(ComparisonRow::Check));
        rows
    }

    /// What the records say of the workload of this name.
    pub fn workload(&self, name: &str) -> Option<&WorkloadAnalysis> {
        self.workloads.iter().find(|workload| workload.workload == name)
    }
}

/// An element of `comparisons.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ComparisonRow<'a> {
    /// A contender against the baseline.
    Comparison(&'a Comparison),
    Check(CheckRow<'a>),
}

/// What the records say of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadAnalysis {
    pub workload: String,
    /// Counted blocks of which at least one trial ended.
    pub blocks: u32,
    /// Of these, the ones of which the trials of all contenders ended.
    #[serde(default)]
    pub blocks_whole: u32,
    /// The contenders, in the study's order.
    pub contenders: Vec<ContenderAnalysis>,
    /// The comparisons with the baseline, in the study's order.
    pub comparisons: Vec<Comparison>,
    /// Of the first figure those of the others that can be chosen, two by two: a family of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<Comparison>,
    /// Bytes, flushes, CPU time, space and percentiles against the baseline, where the records have
    /// them: exploratory, in the order of the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exploratory: Vec<Comparison>,
    /// Of a fio matrix with the bare device among the contenders: the cells of the others against its
    /// own, by contender. Each cell is a family of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<Comparison>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

impl WorkloadAnalysis {
    /// What the records say of the contender with this label.
    pub fn contender(&self, label: &str) -> Option<&ContenderAnalysis> {
        self.contenders.iter().find(|contender| contender.label == label)
    }

    /// Where a figure lies among those of the workload; none for a figure without axes.
    pub fn axes(&self, metric: &str) -> Option<&Axes> {
        let mut metrics = self.contenders.iter().flat_map(|contender| &contender.metrics);
        metrics.find(|one| one.name == metric).map(|one| &one.axes)
    }
}

/// What the records say of one contender under one workload.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContenderAnalysis {
    pub label: String,
    /// Counted trials that ended by themselves, without those of a block that was not finished.
    pub trials: usize,
    /// Of these, the ones that failed or took too long.
    pub failed: usize,
    /// The figures that are compared, the most important first; none when no trial was completed.
    pub metrics: Vec<MetricAnalysis>,
    /// Run and sync together in ns; absent when no trial was completed.
    pub time: Option<SampleSummary>,
    /// Median of every phase's time, in ns.
    pub phases: Vec<(Phase, f64)>,
    /// What the device did in every phase in which it was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_devices: Vec<PhaseDevice>,
    /// Latencies by kind of operation: counts, bytes, sums and the maximum of all trials together;
    /// for each percentile the median of the runs', until a reader of the histograms beside the
    /// records puts the merged ones in their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
    /// What was checked in its trials, where anything was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckAnalysis>,
    /// What the workload found in its trials, each finding once with the number of trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// What must be known of its trials before contenders are compared by the first figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What must be told next to its figures: what was changed in the workload, which part of it ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// How many of its runs the machine disturbed, where it did.
    pub disturbed: Option<Disturbed>,
    /// Medians of what the run and its sync cost.
    pub cost: ResourceUse,
}

/// What the trials of one contender say of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricAnalysis {
    pub name: String,
    pub unit: Unit,
    /// Where it lies among the workload's figures.
    #[serde(default, skip_serializing_if = "Axes::is_empty")]
    pub axes: Axes,
    pub summary: SampleSummary,
}

/// What the device did in one phase, medians over the completed trials.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseDevice {
    pub phase: Phase,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Flush requests; absent where the kernel counts none.
    pub flushes: Option<f64>,
}

/// What the statistics say of a contender and the baseline. The element of `comparisons.json`, where its cost
/// stands next to its ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Comparison {
    pub workload: String,
    pub contender: String,
    pub baseline: String,
    /// What is compared: `time`, or a figure of the workload.
    pub metric: String,
    pub unit: Unit,
    /// Whether it is one of those for which the study's error rate is promised, all of them
    /// together. The others are exploratory: each workload's have a correction of their own.
    #[serde(default)]
    pub primary: bool,
    /// Blocks in which both have a completed trial.
    pub blocks: usize,
    /// The contender's value over the baseline's, paired over blocks; absent without pairs, and
    /// where fewer than three of them leave out other trials. For a time less is better, for a
    /// throughput more; the verdict says which is meant.
    pub ratio: Option<f64>,
    /// Lower end of the interval, corrected for the number of contenders.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// The contender's arithmetic mean over the baseline's, in the same blocks: slow trials count in
    /// it in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
    /// The contender's trials that are far slower than its others, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<Slow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_slow: Option<Slow>,
    /// How many of the smallest and of the largest ratios were set aside for the ratio.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trimmed_per_side: usize,
    /// Confidence of this interval; above that of the whole family, by Holm's correction.
    pub confidence: f64,
    /// p value of "the ratio is 1", adjusted by Holm over the contenders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
}

/// Every JSON has the numbers that the screens show.
impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WithCost<'a> {
            #[serde(flatten, serialize_with = "Comparison::serialize")]
            own: &'a Comparison,
            cost: Option<f64>,
            cost_low: Option<f64>,
            cost_high: Option<f64>,
        }
        let (cost_low, cost_high) = self.cost_ends().unzip();
        WithCost { own: self, cost: self.cost(), cost_low, cost_high }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Comparison {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Comparison, D::Error> {
        Comparison::deserialize(deserializer)
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl ContenderAnalysis {
    /// Whether its metrics are not compared, since a check of it was violated; in words why.
    pub fn violation(&self) -> Option<String> {
        violation_words(&self.checks)
    }
}

impl Comparison {
    /// A comparison of costs, turned round for figures of which more is better.
    fn of(
        plan: &Plan,
        workload: usize,
        [baseline, contender]: [usize; 2],
        (metric, unit): &(String, Unit),
        compared: &statistics::CostEstimate,
        primary: bool,
    ) -> Comparison {
        let turn = |value: f64| if unit.more_is_better() { value.recip() } else { value };
        let ends = compared.interval.map(|interval| {
            let (one, other) = (turn(interval.low), turn(interval.high));
            (one.min(other), one.max(other))
        });
        let slow = |slow: Slow| Some(slow).filter(|slow| slow.trials > 0);
        Comparison {
            workload: plan.study.workloads[workload].name.clone(),
            contender: plan.study.contenders[contender].label.clone(),
            baseline: plan.study.contenders[baseline].label.clone(),
            metric: metric.clone(),
            unit: *unit,
            primary,
            blocks: compared.pairs,
            ratio: compared.ratio.map(turn),
            low: ends.map(|(low, _)| low),
            high: ends.map(|(_, high)| high),
            mean_ratio: compared.mean_ratio.map(turn),
            slow: slow(compared.slow[1]),
            baseline_slow: slow(compared.slow[0]),
            trimmed_per_side: compared.trimmed_per_side,
            confidence: compared
                .interval
                .map_or(ComparisonOptions::default().confidence, |interval| interval.confidence),
            p_adjusted: compared.p_adjusted,
            verdict: compared.verdict,
        }
    }
}

impl Comparison {
    /// A ratio of its values as a cost: above 1 is worse, whether less of the metric is better or more.
    pub fn cost_of(&self, ratio: f64) -> f64 {
        if self.unit.more_is_better() { ratio.recip() } else { ratio }
    }

    /// The cost relative to the baseline: the one number that the terminal, the page, every export and every
    /// gate show.
    pub fn cost(&self) -> Option<f64> {
        self.ratio.map(|ratio| self.cost_of(ratio))
    }

    /// The ends of the cost's interval, as wide as the verdict needs: where single runs were slow, what it
    /// says is wider than the interval of the ratio.
    pub fn cost_ends(&self) -> Option<(f64, f64)> {
        let (one, other) = self.low.zip(self.high)?;
        let (one, other) = (self.cost_of(one), self.cost_of(other));
        let (low, high) = (one.min(other), one.max(other));
        Some(match self.verdict {
            Verdict::AtMost { slower, faster } => (
                faster.map_or(low, |faster| low.min((1.0 + faster).recip())),
                slower.map_or(high, |slower| high.max(1.0 + slower)),
            ),
            _ => (low, high),
        })
    }
}

/// How sure the study's comparisons have to be, at the looks that were taken until the last record.
pub fn options(plan: &Plan, records: &[Record]) -> ComparisonOptions {
    let looks = plan.stop_rule.looks(reached(plan, records), |blocks| {
        let budget_ns = plan.stop_rule.budget_ns.or(plan.study.budget_ns)?;
        let until = records.iter().filter(|record| record.warmup || record.block < blocks);
        let spent_ns: u64 = until.map(Record::own_elapsed_ns).sum();
        Some(spent_ns as f64 / budget_ns.max(1) as f64)
    });
    ComparisonOptions { same_within: plan.study.same_within, looks, ..Default::default() }
}

/// Analyses the records of a plan. It judges nothing: what the gates make of it is
/// [`crate::judgement`]'s.
pub fn analyse(plan: &Plan, records: &[Record], memory_bytes: Option<u64>) -> Analysis {
    let samples: Vec<Samples<'_>> = (0..plan.study.workloads.len())
        .map(|workload| {
            Samples::new(plan, records, workload, blocks_reached(plan, records, workload))
        })
        .collect();
    let options = options(plan, records);
    let primary = primary(plan, records, &samples, &options);
    let mut workloads: Vec<WorkloadAnalysis> = samples
        .iter()
        .zip(&primary)
        .enumerate()
        .map(|(workload, (samples, primary))| {
            analyse_workload(plan, samples, primary, workload, &options, memory_bytes)
        })
        .collect();
    disturbed::tell(plan, records, (&primary, &options), &mut workloads);
    let overall = overall::overall(plan, &primary, &options);
    let stores = stores::compare(plan, records, &samples, &primary, &options);
    Analysis {
        workloads,
        overall,
        stores,
        gates: Vec::new(),
        forecast: EffortForecast::of(plan, records),
    }
}

fn analyse_workload(
    plan: &Plan,
    samples: &Samples<'_>,
    primary: &Primary,
    workload: usize,
    options: &ComparisonOptions,
    memory_bytes: Option<u64>,
) -> WorkloadAnalysis {
    let basis = amplification_basis(samples, plan.study.contenders.len());
    let mut contenders: Vec<ContenderAnalysis> = (0..plan.study.contenders.len())
        .map(|contender| summarise(plan, samples, contender, basis))
        .collect();
    let comparisons = compare(plan, samples, primary, workload, options);
    for (place, contender) in contenders.iter_mut().enumerate() {
        let completed: Vec<&Record> = samples.completed(place).collect();
        contender.notes = notes(&completed, &comparisons);
    }
    let direct = primary.direct.iter().filter(|one| one.compared.pairs > 0).map(|one| {
        Comparison::of(plan, workload, one.places, &primary.metric, &one.compared, false)
    });
    let overhead = overhead(plan, samples, workload, options);
    let mut warnings = warnings::collect(plan, samples, &contenders, memory_bytes);
    warnings::of_comparisons(plan, primary, &comparisons, &mut warnings);
    WorkloadAnalysis {
        workload: plan.study.workloads[workload].name.clone(),
        blocks: samples.blocks() as u32,
        blocks_whole: samples.whole_blocks() as u32,
        contenders,
        comparisons,
        direct: direct.collect(),
        exploratory: exploratory::compare(plan, samples, workload, options),
        overhead,
        warnings,
    }
}

/// The primary figure's comparisons, then those of the workload's other figures, which are a family
/// of their own.
fn compare(
    plan: &Plan,
    samples: &Samples<'_>,
    primary: &Primary,
    workload: usize,
    options: &ComparisonOptions,
) -> Vec<Comparison> {
    let others = others(plan);
    // What is checked and not timed has no ratios.
    if samples.metrics().is_empty() && samples.checked.iter().any(|trials| !trials.is_empty()) {
        return Vec::new();
    }
    let rest: Vec<(String, Unit)> =
        samples.metrics().into_iter().filter(|metric| *metric != primary.metric).collect();
    let groups: Vec<statistics::Group> = rest
        .iter()
        .map(|(metric, unit)| statistics::Group {
            baseline: samples.costs(plan.study.baseline, metric, *unit),
            contenders: others.iter().map(|other| samples.costs(*other, metric, *unit)).collect(),
            ..statistics::Group::default()
        })
        .collect();
    let explored = statistics::compare_families(&groups, options)
        .expect("costs are positive, and the margin was checked with the study");
    let all = [(&primary.metric, &primary.compared, true)].into_iter();
    let all = all.chain(rest.iter().zip(&explored).map(|(metric, found)| (metric, found, false)));
    all.flat_map(|(metric, compared, is_primary)| {
        let both = others.iter().zip(compared);
        both.map(move |(other, compared)| {
            let places = [plan.study.baseline, *other];
            let compared =
                zero::compared(samples, places, metric, plan.study.same_within, *compared);
            Comparison::of(plan, workload, places, metric, &compared, is_primary)
        })
    })
    .collect()
}

/// The figures that are cells of a fio matrix.
fn cells(samples: &Samples<'_>) -> impl Iterator<Item = Metric> {
    samples.figures().into_iter().filter(|metric| metric.axes.contains_key(DEPTH_AXIS))
}

/// The cells of each contender against those of the bare device, where it is one of them.
fn overhead(
    plan: &Plan,
    samples: &Samples<'_>,
    workload: usize,
    options: &ComparisonOptions,
) -> Vec<Comparison> {
    let contenders = &plan.study.contenders;
    let Some(raw) = contenders.iter().position(Contender::is_raw) else { return Vec::new() };
    let others: Vec<usize> = (0..contenders.len()).filter(|other| *other != raw).collect();
    let mut found = Vec::new();
    for cell in cells(samples) {
        let metric = (cell.name, cell.unit);
        let costs = |place: usize| samples.costs(place, &metric.0, metric.1);
        let of_others: Vec<_> = others.iter().map(|other| costs(*other)).collect();
        let compared = statistics::compare_family(&costs(raw), &of_others, options)
            .expect("costs are positive, and the margin was checked with the study");
        let both = others.iter().zip(compared).filter(|(_, compared)| compared.pairs > 0);
        found.extend(both.map(|(other, compared)| {
            let places = [raw, *other];
            (*other, Comparison::of(plan, workload, places, &metric, &compared, false))
        }));
    }
    found.sort_by_key(|(contender, _)| *contender);
    found.into_iter().map(|(_, comparison)| comparison).collect()
}

/// [`WorkloadAnalysis::overhead`] with intervals that are corrected for the number of cells as well
/// (Bonferroni): for whoever picks one cell out of all.
pub fn overhead_among(plan: &Plan, records: &[Record], workload: &str) -> Vec<Comparison> {
    let place = plan.study.workloads.iter().position(|entry| entry.name == workload);
    let Some(place) = place else { return Vec::new() };
    let samples = Samples::new(plan, records, place, blocks_reached(plan, records, place));
    let plain = options(plan, records);
    let confidence = 1.0 - (1.0 - plain.confidence) / cells(&samples).count().max(1) as f64;
    overhead(plan, &samples, place, &ComparisonOptions { confidence, ..plain })
}

fn summarise(
    plan: &Plan,
    samples: &Samples<'_>,
    contender: usize,
    basis: Option<AmplificationBasis>,
) -> ContenderAnalysis {
    let completed: Vec<&Record> = samples.completed(contender).collect();
    let trials = samples.records[contender].iter().flatten().count();
    let times: Vec<f64> =
        completed.iter().filter_map(|record| record.time_ns()).map(|ns| ns as f64).collect();
    let mut phases: Vec<(Phase, f64)> = Vec::new();
    for phase in Phase::ALL {
        let times = completed
            .iter()
            .filter_map(|record| record.phase(*phase))
            .map(|entry| entry.elapsed_ns as f64);
        if let Some(median) = median(times) {
            phases.push((*phase, median));
        }
    }
    ContenderAnalysis {
        label: plan.study.contenders[contender].label.clone(),
        trials,
        failed: trials - completed.len(),
        metrics: samples
            .figures()
            .into_iter()
            .filter_map(|Metric { name, unit, axes, .. }| {
                let values: Vec<f64> =
                    samples.values(contender, &name).into_iter().flatten().collect();
                let summary = statistics::summarize(&values).ok()?;
                Some(MetricAnalysis { name, unit, axes, summary })
            })
            .collect(),
        time: statistics::summarize(&times).ok(),
        phases,
        phase_devices: phase_devices(&completed),
        latencies: latencies(&completed),
        checks: checks::checks(samples, contender),
        findings: findings(&completed),
        notes: Vec::new(),
        remarks: remarks(&completed),
        disturbed: None,
        cost: cost(&completed, basis),
    }
}

fn phase_devices(records: &[&Record]) -> Vec<PhaseDevice> {
    let of_phase = |phase: Phase| {
        let of =
            |figure: fn(&Record, DeviceDelta) -> Option<u64>| {
                median(records.iter().filter_map(|record| {
                    Some(figure(record, record.phase(phase)?.device?)? as f64)
                }))
            };
        Some(PhaseDevice {
            phase,
            read_bytes: of(|_, device| Some(device.read_bytes))?,
            written_bytes: of(|_, device| Some(device.written_bytes))?,
            flushes: of(|record, device| (!record.flushes_uncounted).then_some(device.flushes)),
        })
    };
    Phase::ALL.iter().filter_map(|phase| of_phase(*phase)).collect()
}

/// The kinds of the first trial. Counts, bytes and sums are of all trials, the maximum is that of
/// all, and each percentile is the (lower) median of the runs' percentiles, where they have any.
fn latencies(records: &[&Record]) -> Vec<Latency> {
    let of = |record: &Record| record.load.as_ref().map(|load| load.latencies.clone());
    let all: Vec<Vec<Latency>> = records.iter().filter_map(|record| of(record)).collect();
    let kinds = all.first().cloned().unwrap_or_default();
    kinds
        .into_iter()
        .map(|kind| {
            let same: Vec<&Latency> =
                all.iter().flatten().filter(|other| other.operation == kind.operation).collect();
            let middle = |quantile: f64| {
                let mut figures: Vec<u64> =
                    same.iter().map(|latency| latency.at(quantile)).collect();
                figures.sort_unstable();
                figures[(figures.len() - 1) / 2]
            };
            let sum = |figure: fn(&Latency) -> u64| {
                same.iter().map(|l| figure(l)).fold(0, u64::saturating_add)
            };
            Latency {
                count: sum(|latency| latency.count),
                bytes: sum(|latency| latency.bytes),
                total_ns: sum(|latency| latency.total_ns),
                quantiles_ns: if kind.quantiles_ns.is_empty() {
                    Vec::new()
                } else {
                    QUANTILES.map(|quantile| (quantile, middle(quantile))).into()
                },
                max_ns: same.iter().map(|latency| latency.max_ns).max().unwrap_or(0),
                operation: kind.operation,
            }
        })
        .collect()
}

/// Every finding once, in the order of the trials; how many trials had it, when not all did.
fn findings(records: &[&Record]) -> Vec<String> {
    let all = records.iter().filter_map(|r| r.load.as_ref()).flat_map(|load| &load.findings);
    let mut findings: Vec<String> = grouped(all.map(|finding| (finding, ())))
        .into_iter()
        .map(|(finding, found)| {
            if found.len() == records.len() {
                finding.clone()
            } else {
                format!("{finding} (in {} of {} rounds)", found.len(), records.len())
            }
        })
        .collect();
    findings.extend(steady_words(records));
    findings
}

/// Every remark once, in the order of the trials.
fn remarks(records: &[&Record]) -> Vec<String> {
    let loads = records.iter().filter_map(|record| record.load.as_ref());
    distinct(loads.flat_map(|load| load.remarks.clone()))
}

/// Every note once, in the order of the trials, without those that change nothing: all that the first
/// figure decides is so by the figure that they are checked by.
fn notes(records: &[&Record], comparisons: &[Comparison]) -> Vec<String> {
    let verdict = |one: &Comparison| std::mem::discriminant(&one.verdict);
    let agrees = |metric: &str, one: &Comparison| {
        let is_of =
            |other: &&Comparison| other.metric == metric && other.contender == one.contender;
        let by = comparisons.iter().find(is_of);
        !one.verdict.is_decided() || by.is_some_and(|by| verdict(by) == verdict(one))
    };
    let is_moot =
        |metric: &str| comparisons.iter().filter(|one| one.primary).all(|one| agrees(metric, one));
    let loads = records.iter().filter_map(|record| record.load.as_ref());
    let told = loads.filter(|load| !load.note_checked_by.as_deref().is_some_and(is_moot));
    let cautions = records.iter().filter_map(|record| record.caution.clone());
    distinct(told.filter_map(|load| load.note.clone()).chain(cautions))
}

/// In how many trials the series of the workload's throughput came to SNIA's steady state.
fn steady_words(records: &[&Record]) -> Option<String> {
    let series = records
        .iter()
        .filter_map(|record| record.load.as_ref())
        .filter_map(|load| load.series.iter().find(|series| series.name.starts_with("throughput")))
        .filter(|series| series.values.len() >= STEADY_ROUNDS)
        .collect::<Vec<_>>();
    let steady =
        series.iter().filter(|series| statistics::steady_from(&series.values).is_some()).count();
    (!series.is_empty()).then(|| {
        format!(
            "throughput in a steady state at the end (SNIA: last 5 intervals within 20 %, slope within 10 %) in {steady} of {} rounds",
            series.len()
        )
    })
}

/// The median of some numbers, if there is one.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests;
