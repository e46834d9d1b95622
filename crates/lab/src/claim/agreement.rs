//! Whether the contenders' ratios to the baseline are the same under two workloads that do the same
//! work in two ways, such as dbench and its replay.

use super::{Claim, Finding, Outcome, Ratio, all_labels, of_all};
use crate::analysis::{self, WorkloadAnalysis};
use crate::load::Unit;
use crate::plan::Plan;
use crate::record::Record;
use crate::words::{interval, ratio, ratio_with_interval};

/// A contender's performance by block; none where a trial yielded nothing.
type Values = Vec<Option<f64>>;

/// The figure of one workload, by contender.
struct Figures<'a> {
    workload: &'a WorkloadAnalysis,
    metric: String,
    /// In the study's order.
    of: Vec<Values>,
}

impl<'a> Figures<'a> {
    fn new(
        workload: &'a WorkloadAnalysis,
        plan: &Plan,
        records: &[Record],
        claim: &Claim,
    ) -> Figures<'a> {
        let costs = analysis::costs(plan, records, &workload.workload, claim.metric.as_deref());
        let (metric, unit) = costs.metric;
        let value = |cost: f64| if Unit::more_is_better(unit) { cost.recip() } else { cost };
        let values = |costs: Values| costs.into_iter().map(|cost| cost.map(value)).collect();
        Figures { workload, metric, of: costs.values.into_iter().map(values).collect() }
    }

    /// The contender's ratio to the baseline in a block.
    fn ratio(&self, contender: usize, baseline: usize, block: usize) -> Option<f64> {
        let of = |place: usize| *self.of.get(place)?.get(block)?;
        Some(of(contender)? / of(baseline)?)
    }

    fn blocks(&self) -> usize {
        self.of.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The ratio as the ranking has it: `1.025 [0.783, 1.343] under dbench`. Where the ranking
    /// withholds it, that it does.
    fn in_ranking(&self, label: &str) -> (Option<f64>, String) {
        let mut all = self.workload.comparisons.iter();
        let found = all.find(|entry| entry.contender == label && entry.metric == self.metric);
        let ratio = found.and_then(|found| found.ratio);
        let told = match found.zip(ratio) {
            Some((found, ratio)) => ratio_with_interval(ratio, found.low.zip(found.high)),
            None => "withheld in the ranking".into(),
        };
        (ratio, format!("{told} under {}", self.workload.workload))
    }
}

/// "The two agree": every contender's ratio to the baseline under the second workload is, block by
/// block, that under the first, within the claim's margin. Holds when that is beyond doubt of each;
/// fails when beyond doubt one is apart by more, also by the interval that is corrected for the
/// number of contenders.
pub(super) fn agree(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
    claim: &Claim,
) -> Finding {
    let [one, other] = workloads else {
        return Finding::untested("it compares two workloads");
    };
    let one = Figures::new(one, plan, records, claim);
    let other = Figures::new(other, plan, records, claim);
    let baseline = plan.baseline_label();
    let contenders = &plan.study.contenders;
    let place = |label: &str| contenders.iter().position(|entry| entry.label == label);
    let labels: Vec<&str> =
        all_labels(plan).into_iter().filter(|label| *label != baseline).collect();
    let samples: Vec<(Vec<f64>, Vec<f64>)> = labels
        .iter()
        .map(|label| {
            let Some(pair) = place(label).zip(place(baseline)) else { return Default::default() };
            let in_block = |block: usize| {
                let of = |figures: &Figures<'_>| figures.ratio(pair.0, pair.1, block);
                of(&one).zip(of(&other))
            };
            (0..one.blocks().min(other.blocks())).filter_map(in_block).unzip()
        })
        .collect();
    let bar = 1.0 + claim.by.unwrap_or(0.0);
    let (mut outcomes, mut evidence, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for (label, found) in labels.iter().zip(Ratio::of_each(&samples)) {
        let Some(found) = found else {
            absent.push(label.to_string());
            continue;
        };
        let outcome = apart(&found, bar);
        let (first, second) = (one.in_ranking(label), other.in_ranking(label));
        let opposite =
            first.0.zip(second.0).is_some_and(|(first, second)| (first > 1.0) != (second > 1.0));
        evidence.push(format!(
            "{label} to {baseline}: {} {}, {}; block by block the second is {} times the first: {}",
            one.metric,
            first.1,
            second.1,
            ratio_with_interval(found.ratio, found.alone),
            verdict(&found, outcome, opposite, bar, labels.len())
        ));
        outcomes.push(outcome);
    }
    let outcome = of_all(&outcomes);
    if outcome != Outcome::Holds && !outcomes.is_empty() {
        evidence.extend(widest(&[&one, &other], plan));
    }
    Finding::new(outcome, evidence).without(&absent)
}

/// What becomes of "it is within `bar` of 1".
fn apart(found: &Ratio, bar: f64) -> Outcome {
    match (found.below(bar), found.above(bar.recip())) {
        (Outcome::Holds, Outcome::Holds) => Outcome::Holds,
        (Outcome::Fails, _) | (_, Outcome::Fails) => Outcome::Fails,
        _ => Outcome::Inconclusive,
    }
}

fn verdict(found: &Ratio, outcome: Outcome, opposite: bool, bar: f64, count: usize) -> String {
    let margin = match bar > 1.0 {
        true => format!("{:.0} %", (bar - 1.0) * 100.0),
        false => "nothing".to_string(),
    };
    let mut text = match outcome {
        Outcome::Holds => format!("the same within {margin}"),
        Outcome::Fails => {
            format!("surely apart by more than {margin}: the two contradict each other")
        }
        _ => match found.alone {
            None => {
                "too few common blocks for an interval, so that noise explains it as well".into()
            }
            Some((low, high)) if low <= 1.0 && high >= 1.0 => {
                "not told from noise, as the interval has 1 in it".into()
            }
            Some(_) => format!("apart, but not surely by more than {margin}"),
        },
    };
    let alone_contradicts = found.contradicts_below(bar) || found.contradicts_above(bar.recip());
    if let Some(wider) = found.among_all.filter(|_| alone_contradicts)
        && outcome == Outcome::Inconclusive
    {
        text.push_str(&format!(
            " (wider, {}, because {count} such ratios decide together)",
            interval(wider)
        ));
    }
    match opposite && outcome != Outcome::Holds {
        true => format!("they point in opposite directions; {text}"),
        false => text,
    }
}

/// How far apart the trials of a single contender are at most: what a ratio has to be told from.
fn widest(both: &[&Figures<'_>], plan: &Plan) -> Option<String> {
    let mut spreads: Vec<(f64, &str, &str, usize)> = Vec::new();
    for figures in both {
        for (entry, values) in plan.study.contenders.iter().zip(&figures.of) {
            let known: Vec<f64> = values.iter().flatten().copied().collect();
            let least = known.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = known.iter().copied().fold(0.0, f64::max);
            if known.len() > 1 {
                let workload = figures.workload.workload.as_str();
                spreads.push((greatest / least, &entry.label, workload, known.len()));
            }
        }
    }
    let (factor, label, workload, trials) =
        spreads.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "trials of one and the same contender differ by a factor of up to {} ({label} under {workload}, {trials} trials): what is not told apart needs more blocks, or a disk that nothing else uses",
        ratio(factor)
    ))
}
