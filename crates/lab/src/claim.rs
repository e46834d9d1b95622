//! What a publication concluded or left open, and what the measurements here say of it.
//!
//! Each claim names a rule, a pure function of the records and their analysis, that says whether
//! the claim holds here, does not, or cannot be decided, with the numbers; an open question is
//! answered with numbers instead. A rule decides by intervals: where they do not exclude the
//! contrary, the outcome is *inconclusive*.

use serde::{Deserialize, Serialize};

use crate::analysis::{Analysis, Comparison, WorkloadAnalysis};
use crate::plan::Plan;
use crate::published::{Known, NamesText};
use crate::record::Record;
use crate::study::{StudyError, error};

mod access;
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
    ];

    fn needs_contender(self) -> bool {
        matches!(self, Rule::Fastest | Rule::Slowest | Rule::AlwaysLoses)
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
            if rule.needs_contender() && self.contender.is_none() {
                return Err(error(field, "has a rule that is about a contender; name it"));
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
        })
    }
}

/// What a rule found.
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
    let workloads: Vec<&WorkloadAnalysis> = claim
        .workloads
        .iter()
        .filter_map(|name| analysis.workloads.iter().find(|entry| entry.workload == *name))
        .filter(|entry| entry.contenders.iter().any(|contender| !contender.metrics.is_empty()))
        .collect();
    if workloads.is_empty() {
        return Finding::untested("what it is about was left out or yielded nothing");
    }
    let contender = claim.contender.as_deref().unwrap_or_default();
    if rule.needs_contender()
        && !workloads[0]
            .contenders
            .iter()
            .any(|entry| entry.label == contender && !entry.metrics.is_empty())
    {
        return Finding::untested(format!("{contender} was left out or yielded nothing"));
    }
    match rule {
        Rule::Fastest => order::extreme(&workloads, plan, claim, contender, true),
        Rule::Slowest => order::extreme(&workloads, plan, claim, contender, false),
        Rule::LosesHalf => matrix::loses_half(&matrix::losses(workloads[0])),
        Rule::LosesLessUnderLoad => matrix::loses_less_under_load(&matrix::losses(workloads[0])),
        Rule::VariesMostAlone => matrix::varies_most_alone(&matrix::losses(workloads[0])),
        Rule::AlwaysLoses => {
            let mut losses = matrix::losses(workloads[0]);
            losses.retain(|loss| loss.contender == contender);
            matrix::always_loses(&losses)
        }
        Rule::WhichCalls => matrix::which_calls(&matrix::losses(workloads[0])),
        Rule::Percentiles => percentiles(&workloads),
        Rule::Sinks => sinking::sinks(&workloads, plan, records, claim),
        Rule::WhySinks => sinking::why(&workloads, records),
        Rule::SameAccess => access::same_access(&workloads, plan, records),
    }
}

/// The percentiles of all operations together, by contender.
fn percentiles(workloads: &[&WorkloadAnalysis]) -> Finding {
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
                "{}: {}: 5 % {}, 50 % {}, 95 % {}, 99 % {}, maximum {}",
                workload.workload,
                contender.label,
                time(all.p5_ns),
                time(all.p50_ns),
                time(all.p95_ns),
                time(all.p99_ns),
                time(all.max_ns)
            ));
        }
    }
    match evidence.is_empty() {
        true => Finding::untested("no latencies were kept"),
        false => Finding::new(Outcome::Answered, evidence),
    }
}

/// The performance of a contender relative to the baseline, with its interval: above 1 is better,
/// whatever the unit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Performance {
    ratio: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Performance {
    const BASELINE: Performance = Performance { ratio: 1.0, low: Some(1.0), high: Some(1.0) };

    fn of(comparison: &Comparison) -> Option<Performance> {
        let ratio = comparison.ratio?;
        Some(match comparison.unit.more_is_better() {
            true => Performance { ratio, low: comparison.low, high: comparison.high },
            false => Performance {
                ratio: ratio.recip(),
                low: comparison.high.map(f64::recip),
                high: comparison.low.map(f64::recip),
            },
        })
    }

    fn is_above(&self, other: &Performance) -> bool {
        self.low.zip(other.high).is_some_and(|(low, high)| low > high)
    }

    /// `0.62 (0.58 to 0.66)`.
    fn words(&self) -> String {
        match self.low.zip(self.high) {
            Some((low, high)) if low != high => {
                format!("{:.2} ({low:.2} to {high:.2})", self.ratio)
            }
            _ => format!("{:.2}", self.ratio),
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests;
