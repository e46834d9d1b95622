//! Whether a contender is the best or the worst of all.

use super::{Claim, Finding, Outcome, Ratio, all_labels, list, of_all};
use crate::analysis::{self, WorkloadAnalysis};
use crate::plan::Plan;
use crate::record::Record;
use crate::statistics;

/// A rival of the contender under one workload.
struct Rival<'a> {
    workload: &'a str,
    label: &'a str,
    /// The figure as a cost, of the rival and of the contender, in their common blocks: the second
    /// over the first is the rival's performance over the contender's.
    costs: (Vec<f64>, Vec<f64>),
}

/// Whether the claim's contender is the best (or the worst) in every one of the workloads, by the
/// claim's margin at least.
///
/// It is compared with each rival directly, paired over their blocks: beyond doubt ahead when the
/// interval of the rival's performance over its own lies below 1 (less the margin), and beyond
/// doubt not when the corrected interval lies above.
pub(super) fn extreme(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
    claim: &Claim,
    best: bool,
) -> Finding {
    let contender = claim.contender.as_deref().unwrap_or_default();
    let rivals: Vec<Rival<'_>> =
        workloads.iter().flat_map(|workload| rivals(workload, plan, records, claim)).collect();
    let samples: Vec<_> = rivals.iter().map(|rival| rival.costs.clone()).collect();
    let ratios = Ratio::of_each(&samples);
    let bar = 1.0 + claim.by.unwrap_or(0.0);
    let (mut outcomes, mut evidence, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads {
        let mut seen: Vec<(&str, &Ratio, Outcome)> = Vec::new();
        for (rival, ratio) in rivals.iter().zip(&ratios) {
            if rival.workload != workload.workload {
                continue;
            }
            let Some(ratio) = ratio else {
                absent.push(format!("{} beside {contender} under {}", rival.label, rival.workload));
                continue;
            };
            let outcome = if best { ratio.below(bar.recip()) } else { ratio.above(bar) };
            seen.push((rival.label, ratio, outcome));
        }
        seen.sort_by(|one, other| other.1.ratio.total_cmp(&one.1.ratio));
        outcomes.extend(seen.iter().map(|(_, _, outcome)| *outcome));
        if !seen.is_empty() {
            evidence.push(sentence(&workload.workload, contender, &seen, claim.by, best));
        }
    }
    Finding::new(of_all(&outcomes), evidence).without(&absent)
}

/// The rivals under one workload, those without a common block with empty samples.
fn rivals<'a>(
    workload: &'a WorkloadAnalysis,
    plan: &'a Plan,
    records: &[Record],
    claim: &'a Claim,
) -> Vec<Rival<'a>> {
    let metric = claim.metric.as_deref();
    let costs = analysis::costs(plan, records, &workload.workload, metric);
    let of = |label: &str| {
        let place = plan.study.contenders.iter().position(|contender| contender.label == label)?;
        costs.get(place)
    };
    let contender = claim.contender.as_deref().unwrap_or_default();
    let mut labels: Vec<&str> = match claim.than.is_empty() {
        true => all_labels(plan),
        false => claim.than.iter().map(String::as_str).collect(),
    };
    labels.retain(|label| *label != contender && !claim.except.iter().any(|named| named == label));
    let rival = |label| Rival {
        workload: &workload.workload,
        label,
        costs: of(label)
            .zip(of(contender))
            .map(|(rival, own)| statistics::pairs(rival, own))
            .unwrap_or_default(),
    };
    labels.into_iter().map(rival).collect()
}

fn sentence(
    workload: &str,
    contender: &str,
    seen: &[(&str, &Ratio, Outcome)],
    by: Option<f64>,
    best: bool,
) -> String {
    let shown: Vec<String> =
        seen.iter().map(|(label, ratio, _)| format!("{label} {}", ratio.words())).collect();
    let mut text = format!("{workload}: performance relative to {contender}: {}", shown.join(", "));
    let those = |wanted: Outcome| -> Vec<String> {
        let found = seen.iter().filter(|(_, _, outcome)| *outcome == wanted);
        found.map(|(label, _, _)| label.to_string()).collect()
    };
    let (ahead, open) = (those(Outcome::Fails), those(Outcome::Inconclusive));
    let margin = by.filter(|by| *by > 0.0).map(|by| format!("by {:.0} %", by * 100.0));
    if !ahead.is_empty() {
        let word = match (&margin, best) {
            (None, true) => "better".to_string(),
            (None, false) => "worse".to_string(),
            (Some(margin), true) => format!("surely not behind {margin}"),
            (Some(margin), false) => format!("surely not ahead {margin}"),
        };
        text.push_str(&format!("; {word}: {}", list(&ahead)));
    }
    if !open.is_empty() {
        let apart = margin.map(|margin| format!(" {margin}")).unwrap_or_default();
        text.push_str(&format!("; not told apart{apart}: {}", list(&open)));
    }
    if seen.iter().any(|(_, ratio, _)| ratio.alone.is_none()) {
        text.push_str(" (fewer than three common blocks have no interval)");
    }
    text
}
