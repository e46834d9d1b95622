//! Whether a contender is the best or the worst of all.

use super::{Claim, Finding, Outcome, Performance, list};
use crate::analysis::WorkloadAnalysis;
use crate::plan::Plan;

/// Whether `contender` is the best (or the worst) in every one of the workloads.
///
/// It is beyond doubt the best of a workload when its interval lies above that of each other, and
/// beyond doubt not when one lies above its own. The intervals are of ratios to the plan's
/// baseline, so contenders other than that are compared through it, which errs towards
/// "inconclusive".
pub(super) fn extreme(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    claim: &Claim,
    contender: &str,
    best: bool,
) -> Finding {
    let mut outcomes = Vec::new();
    let mut evidence = Vec::new();
    for workload in workloads {
        let others = performances(workload, plan, claim.metric.as_deref());
        let Some((_, own)) = others.iter().find(|(label, _)| *label == contender) else {
            outcomes.push(Outcome::Inconclusive);
            evidence.push(format!("{}: {contender} has no comparison", workload.workload));
            continue;
        };
        let beats = |one: &Performance, other: &Performance| match best {
            true => one.is_above(other),
            false => other.is_above(one),
        };
        let is_rival = |label: &str| {
            label != contender
                && (claim.than.is_empty() || claim.than.iter().any(|named| named == label))
        };
        let rivals: Vec<_> = others.iter().filter(|(label, _)| is_rival(label)).collect();
        let ahead: Vec<String> = rivals
            .iter()
            .filter(|(_, other)| beats(other, own))
            .map(|(label, _)| label.to_string())
            .collect();
        let open: Vec<String> = rivals
            .iter()
            .filter(|(_, other)| !beats(other, own) && !beats(own, other))
            .map(|(label, _)| label.to_string())
            .collect();
        let outcome = match (ahead.is_empty(), open.is_empty()) {
            (false, _) => Outcome::Fails,
            (true, true) if !rivals.is_empty() => Outcome::Holds,
            _ => Outcome::Inconclusive,
        };
        outcomes.push(outcome);
        evidence.push(sentence(workload, plan, &others, &ahead, &open, best));
    }
    let outcome = if outcomes.iter().all(|outcome| *outcome == Outcome::Holds) {
        Outcome::Holds
    } else if outcomes.contains(&Outcome::Fails) {
        Outcome::Fails
    } else {
        Outcome::Inconclusive
    };
    Finding::new(outcome, evidence)
}

/// Performance of every contender relative to the baseline's, by label, the best first.
fn performances<'a>(
    workload: &'a WorkloadAnalysis,
    plan: &'a Plan,
    metric: Option<&str>,
) -> Vec<(&'a str, Performance)> {
    let metric = metric.or(workload.comparisons.first().map(|first| first.metric.as_str()));
    let compared = workload
        .comparisons
        .iter()
        .filter(|comparison| metric.is_none_or(|metric| comparison.metric == metric))
        .filter_map(|comparison| {
            Some((comparison.contender.as_str(), Performance::of(comparison)?))
        });
    let mut all: Vec<_> =
        std::iter::once((plan.baseline_label(), Performance::BASELINE)).chain(compared).collect();
    all.sort_by(|one, other| other.1.ratio.total_cmp(&one.1.ratio));
    all
}

fn sentence(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    others: &[(&str, Performance)],
    ahead: &[String],
    open: &[String],
    best: bool,
) -> String {
    let shown: Vec<String> =
        others.iter().map(|(label, own)| format!("{label} {}", own.words())).collect();
    let mut text = format!(
        "{}: performance relative to {}: {}",
        workload.workload,
        plan.baseline_label(),
        shown.join(", ")
    );
    if !ahead.is_empty() {
        let word = if best { "better" } else { "worse" };
        text.push_str(&format!("; {word}: {}", list(ahead)));
    }
    if !open.is_empty() {
        text.push_str(&format!("; not told apart: {}", list(open)));
    }
    if others.iter().any(|(_, own)| own.low.is_none()) {
        text.push_str(" (fewer than three common blocks have no interval)");
    }
    text
}
