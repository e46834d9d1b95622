//! What a publication concluded or left open, and what the measurements here say of it.
//!
//! Each claim names a rule, a pure function of the records and their analysis, that says whether
//! the claim holds here, does not, or cannot be decided, with the numbers; an open question is
//! answered with numbers instead. A rule decides by intervals: where they do not exclude the
//! contrary, the outcome is *inconclusive*. A comparison that the analysis has is quoted from it,
//! with its interval and in its direction. A claim about many holds when it holds of each, which
//! needs no correction; it fails when one is surely otherwise, also by an interval that is
//! corrected for the number of those that were looked at, and where that one is the wider, the
//! evidence says so. Of what is absent nothing is known: a claim about it does not hold, and it is
//! named.

use serde::{Deserialize, Serialize};

use crate::analysis::{Analysis, ContenderAnalysis, WorkloadAnalysis};
use crate::plan::Plan;
use crate::published::{Known, NamesText};
use crate::record::Record;
use crate::statistics::{self, ComparisonOptions};
use crate::study::{StudyError, error};
use crate::words::{self, list};

mod access;
mod agreement;
mod beginning;
mod features;
mod matrix;
mod order;
mod sinking;

/// A claim as written in a study file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ClaimText {
    /// The conclusion or the question.
    pub text: String,
    /// Where it was published; the study's source by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What a reader must know besides; of a claim without a rule, why it is not tested here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The rule that judges it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Name of the workload, or several names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<NamesText>,
    /// Label of the contender that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contender: Option<String>,
    /// Labels of those that it is compared with; all others by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub than: Vec<String>,
    /// Labels of contenders that the claim makes an exception of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// The figure that it is about; the workload's most important one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// By how much at least the contender is ahead or behind, or by how much at most ratios may be
    /// apart: 0.1 is a tenth. 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<f64>,
}

/// A claim, validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The conclusion or the question.
    pub text: String,
    /// Where it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What a reader must know besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The rule that judges it; none for one that is not tested here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Names of the workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// Label of the contender that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contender: Option<String>,
    /// Labels of those that it is compared with; all others when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub than: Vec<String>,
    /// Labels of contenders that the claim makes an exception of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// The figure that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// By how much at least the contender is ahead or behind: 0.1 is a tenth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<f64>,
}

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The contender is the best of all, or of those that the claim names.
    Fastest,
    /// The contender is the worst of them.
    Slowest,
    /// Somewhere in the matrix a file system loses half of the baseline's performance or more.
    LosesHalf,
    /// In most cells of the matrix less is lost with a queue of 64 than one by one.
    LosesLessUnderLoad,
    /// What is lost varies more over the block sizes one by one than with a queue.
    VariesMostAlone,
    /// The contender is below the baseline in every cell of the matrix.
    AlwaysLoses,
    /// Which calls of the matrix lose most; a question.
    WhichCalls,
    /// What the percentiles of all operations are; a question.
    Percentiles,
    /// Throughput sinks towards the end of a run.
    Sinks,
    /// Why throughput changes within a run; a question.
    WhySinks,
    /// Whether the contenders made the device do the same work; a question.
    SameAccess,
    /// The ratios to the baseline are the same under two workloads.
    Agree,
    /// What the contender's mkfs turned on; a question.
    Features,
    /// How the first second differs from the rest of the run, and whether the load's own beginning
    /// accounts for it; a question.
    Beginning,
}

impl Rule {
    /// Every rule with its name in a study file.
    pub const ALL: &[(&str, Rule)] = &[
        ("fastest", Rule::Fastest),
        ("slowest", Rule::Slowest),
        ("loses-half", Rule::LosesHalf),
        ("loses-less-under-load", Rule::LosesLessUnderLoad),
        ("varies-most-alone", Rule::VariesMostAlone),
        ("always-loses", Rule::AlwaysLoses),
        ("which-calls", Rule::WhichCalls),
        ("percentiles", Rule::Percentiles),
        ("sinks", Rule::Sinks),
        ("why-sinks", Rule::WhySinks),
        ("same-access", Rule::SameAccess),
        ("agree", Rule::Agree),
        ("beginning", Rule::Beginning),
        ("features", Rule::Features),
    ];

    fn needs_contender(self) -> bool {
        matches!(self, Rule::Fastest | Rule::Slowest | Rule::AlwaysLoses | Rule::Features)
    }

    fn takes_margin(self) -> bool {
        matches!(self, Rule::Fastest | Rule::Slowest | Rule::Agree)
    }
}

/// What the measurements say of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It holds here.
    Holds,
    /// It does not.
    Fails,
    /// The measurements do not decide.
    Inconclusive,
    /// A question, answered by the evidence.
    Answered,
    /// It is not tested here, or what it is about was left out or not measured.
    Untested,
}

impl Outcome {
    /// The outcome in words.
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Holds => "holds here",
            Outcome::Fails => "does not hold here",
            Outcome::Inconclusive => "inconclusive here",
            Outcome::Answered => "answered",
            Outcome::Untested => "not tested here",
        }
    }
}

/// A claim with what the measurements say of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The claim.
    pub claim: Claim,
    /// What became of it.
    pub outcome: Outcome,
    /// The numbers, a sentence each.
    pub evidence: Vec<String>,
}

impl ClaimText {
    /// Validates the claim. `field` is its place in the study file, `source` the study's own.
    pub(crate) fn resolve(
        &self,
        field: &str,
        source: Option<&str>,
        known: &Known<'_>,
    ) -> Result<Claim, StudyError> {
        let at = |key: &str| format!("{field}.{key}");
        if self.text.trim().is_empty() {
            return Err(error(at("text"), "is missing; say what was concluded"));
        }
        let names: Vec<&str> = Rule::ALL.iter().map(|(name, _)| *name).collect();
        let rule = match &self.rule {
            None => None,
            Some(name) => {
                known.check(&at("rule"), "rule", name, &names)?;
                Rule::ALL.iter().find(|(known, _)| known == name).map(|(_, rule)| *rule)
            }
        };
        let workloads: Vec<String> =
            self.workload.iter().flat_map(NamesText::names).cloned().collect();
        for name in &workloads {
            known.check(&at("workload"), "workload", name, &known.workloads)?;
        }
        if let Some(label) = &self.contender {
            known.check(&at("contender"), "contender", label, &known.labels)?;
        }
        for (key, labels) in [("than", &self.than), ("except", &self.except)] {
            for (index, label) in labels.iter().enumerate() {
                known.check(&at(&format!("{key}[{index}]")), "contender", label, &known.labels)?;
            }
        }
        if let Some(rule) = rule {
            if workloads.is_empty() {
                return Err(error(field, "has a rule and no workload; name one"));
            }
            if rule == Rule::Agree && workloads.len() != 2 {
                return Err(error(field, "compares two workloads; name two"));
            }
            if rule.needs_contender() && self.contender.is_none() {
                return Err(error(field, "has a rule that is about a contender; name it"));
            }
        }
        let is_order = matches!(rule, Some(Rule::Fastest | Rule::Slowest));
        if !self.than.is_empty() && !is_order {
            return Err(error(at("than"), "belongs to the rules fastest and slowest alone"));
        }
        let excepts = is_order || matches!(rule, Some(Rule::Sinks | Rule::SameAccess));
        if !self.except.is_empty() && !excepts {
            let problem = "belongs to the rules fastest, slowest, sinks and same-access alone";
            return Err(error(at("except"), problem));
        }
        if let Some(by) = self.by {
            if !rule.is_some_and(Rule::takes_margin) {
                let problem = "belongs to the rules fastest, slowest and agree alone";
                return Err(error(at("by"), problem));
            }
            if !(by.is_finite() && by >= 0.0) {
                return Err(error(at("by"), "must be 0 or more, such as 0.1 for a tenth"));
            }
        }
        Ok(Claim {
            text: self.text.clone(),
            source: self.source.clone().or(source.map(str::to_string)),
            note: self.note.clone(),
            rule,
            workloads,
            contender: self.contender.clone(),
            than: self.than.clone(),
            except: self.except.clone(),
            metric: self.metric.clone(),
            by: self.by,
        })
    }
}

/// What a rule found.
#[derive(Debug)]
struct Finding {
    outcome: Outcome,
    evidence: Vec<String>,
}

impl Finding {
    fn new(outcome: Outcome, evidence: Vec<String>) -> Finding {
        Finding { outcome, evidence }
    }

    fn untested(why: impl Into<String>) -> Finding {
        Finding::new(Outcome::Untested, vec![why.into()])
    }

    /// Names what the claim is about and what was not measured. Then it is not known to hold; what
    /// was measured can still contradict it.
    fn without(mut self, absent: &[String]) -> Finding {
        if absent.is_empty() {
            return self;
        }
        if self.outcome == Outcome::Holds {
            self.outcome = Outcome::Inconclusive;
        }
        self.evidence.push(format!("left out, or yielded nothing to judge: {}", list(absent)));
        self
    }
}

/// What becomes of a claim about many from what becomes of each.
fn of_all(outcomes: &[Outcome]) -> Outcome {
    if outcomes.contains(&Outcome::Fails) {
        Outcome::Fails
    } else if !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == Outcome::Holds) {
        Outcome::Holds
    } else {
        Outcome::Inconclusive
    }
}

/// A ratio, one of several that a claim is about.
struct Ratio {
    ratio: f64,
    /// The interval that is printed, by which a claim about all of them is seen to hold: the claim
    /// needs each of them, so that a false "holds" is no likelier than for a single one.
    alone: Option<(f64, f64)>,
    /// The interval of the claim's family, by which one of them contradicts the claim: the more are
    /// looked at, the likelier one of them does by chance.
    among_all: Option<(f64, f64)>,
}

impl Ratio {
    /// Of every pair of samples the second over the first, its own interval of 95 % and the one
    /// that is corrected by Bonferroni for the number of pairs; none without a common block.
    fn of_each(samples: &[(Vec<f64>, Vec<f64>)]) -> Vec<Option<Ratio>> {
        let plain = ComparisonOptions::default();
        let count = samples.iter().filter(|(under, _)| !under.is_empty()).count().max(1);
        let confidence = 1.0 - (1.0 - plain.confidence) / count as f64;
        let corrected = ComparisonOptions { confidence, ..plain };
        let of_one = |(under, over): &(Vec<f64>, Vec<f64>)| {
            let compare = |options| statistics::compare(under, over, options).ok();
            let ends = |compared: statistics::Comparison| {
                compared.interval.map(|interval| (interval.low, interval.high))
            };
            let alone = compare(&plain)?;
            Some(Ratio {
                ratio: alone.ratio?,
                alone: ends(alone),
                among_all: compare(&corrected).and_then(ends),
            })
        };
        samples.iter().map(of_one).collect()
    }

    /// What becomes of "it is below `bar`".
    fn below(&self, bar: f64) -> Outcome {
        match (self.alone, self.among_all) {
            (Some((_, high)), _) if high < bar => Outcome::Holds,
            (Some(_), Some((low, _))) if low > bar && self.contradicts_below(bar) => Outcome::Fails,
            _ => Outcome::Inconclusive,
        }
    }

    /// What becomes of "it is above `bar`".
    fn above(&self, bar: f64) -> Outcome {
        match (self.alone, self.among_all) {
            (Some((low, _)), _) if low > bar => Outcome::Holds,
            (Some(_), Some((_, high))) if high < bar && self.contradicts_above(bar) => {
                Outcome::Fails
            }
            _ => Outcome::Inconclusive,
        }
    }

    /// Whether the printed interval says that it is not below `bar`.
    fn contradicts_below(&self, bar: f64) -> bool {
        self.alone.is_some_and(|(low, _)| low > bar)
    }

    /// Whether the printed interval says that it is not above `bar`.
    fn contradicts_above(&self, bar: f64) -> bool {
        self.alone.is_some_and(|(_, high)| high < bar)
    }
}

/// Judges every claim of the plan's study.
pub fn judge(plan: &Plan, records: &[Record], analysis: &Analysis) -> Vec<Judgement> {
    let claims = plan.study.claims.iter();
    claims
        .map(|claim| {
            let Finding { outcome, evidence } = find(claim, plan, records, analysis);
            Judgement { claim: claim.clone(), outcome, evidence }
        })
        .collect()
}

fn find(claim: &Claim, plan: &Plan, records: &[Record], analysis: &Analysis) -> Finding {
    let Some(rule) = claim.rule else {
        return Finding::new(Outcome::Untested, Vec::new());
    };
    let (mut workloads, mut absent) = (Vec::<&WorkloadAnalysis>::new(), Vec::new());
    for name in &claim.workloads {
        let found = analysis.workloads.iter().find(|entry| entry.workload == *name);
        match found.filter(|entry| entry.contenders.iter().any(|one| !one.metrics.is_empty())) {
            Some(workload) => workloads.push(workload),
            None => absent.push(format!("the workload {name}")),
        }
    }
    if workloads.is_empty() {
        return Finding::untested("what it is about was left out or yielded nothing");
    }
    let contender = claim.contender.as_deref();
    let has_figures = |label: &str| {
        let mut all = workloads.iter().flat_map(|workload| &workload.contenders);
        all.any(|entry| entry.label == label && !entry.metrics.is_empty())
    };
    if let Some(label) = contender.filter(|label| !has_figures(label)) {
        return Finding::untested(format!("{label} was left out or yielded nothing"));
    }
    let losses = || {
        let mut losses = matrix::losses(workloads[0]);
        losses.retain(|loss| contender.is_none_or(|label| loss.contender == label));
        losses
    };
    let finding = match rule {
        Rule::Fastest => order::extreme(&workloads, plan, records, claim, true),
        Rule::Slowest => order::extreme(&workloads, plan, records, claim, false),
        Rule::LosesHalf => matrix::loses_half(&losses()),
        Rule::LosesLessUnderLoad => matrix::loses_less_under_load(&losses()),
        Rule::VariesMostAlone => matrix::varies_most_alone(&losses()),
        Rule::AlwaysLoses => matrix::always_loses(&losses()),
        Rule::WhichCalls => matrix::which_calls(&losses()),
        Rule::Percentiles => percentiles(&workloads),
        Rule::Sinks => sinking::sinks(&workloads, plan, records, claim),
        Rule::WhySinks => sinking::why(&workloads, plan, records),
        Rule::SameAccess => access::same_access(&workloads, plan, records, claim),
        Rule::Agree => agreement::agree(&workloads, plan, records, claim),
        Rule::Beginning => beginning::beginning(&workloads, plan, records),
        Rule::Features => features::features(&workloads, records, claim),
    };
    finding.without(&absent)
}

/// Labels of the contenders that a claim about all is about: the study's, with those that were
/// left out because the machine lacks something.
fn all_labels(plan: &Plan) -> Vec<&str> {
    let present = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    let left_out = plan.study.left_out.iter().filter(|left| left.what == "contender");
    present.chain(left_out.map(|left| left.name.as_str())).collect()
}

/// The percentiles of all operations together, by contender.
fn percentiles(workloads: &[&WorkloadAnalysis]) -> Finding {
    let pooled = |contender: &ContenderAnalysis| contender.trials - contender.failed;
    let time = |ns: u64| match ns {
        ns if ns >= 1_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{:.1} µs", ns as f64 / 1e3),
    };
    let mut evidence = Vec::new();
    for workload in workloads {
        for contender in &workload.contenders {
            // All operations together stand last.
            let Some(all) = contender.latencies.last() else { continue };
            evidence.push(format!(
                "{}: {}: 5 % {}, 50 % {}, 95 % {}, 99 % {}, maximum {} ({} operations of {} together)",
                workload.workload,
                contender.label,
                time(all.p5_ns),
                time(all.p50_ns),
                time(all.p95_ns),
                time(all.p99_ns),
                time(all.max_ns),
                all.count,
                words::counted(pooled(contender), "trial")
            ));
        }
    }
    match evidence.is_empty() {
        true => Finding::untested("no latencies were kept"),
        false => Finding::new(Outcome::Answered, evidence),
    }
}

#[cfg(test)]
mod tests;
