//! The answer of a workload in words: who wins, by how much, how sure. The same for the terminal,
//! Markdown and the page.

use lab::analysis::{Comparison, ContenderAnalysis, WorkloadAnalysis};
use lab::plan::Plan;
use lab::statistics::{BLOCKS_MIN_FOR_INTERVAL, Verdict};
use lab::words::{TOO_WIDE, is_telling};

use crate::tables::{device_text, has_no_figure, primary_comparisons, verdict_text};
use crate::text;

/// Who wins, by how much, how sure.
pub fn sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    let baseline = plan.baseline_label();
    let measured = workload.contenders.iter().filter(|c| !c.metrics.is_empty()).count();
    if measured == 0 {
        return "No contender completed a trial, so nothing can be said.".into();
    }
    if workload.contenders.len() == 1 {
        return format!("{baseline} stands alone; name a second contender to compare it with.");
    }
    if has_no_figure(workload, baseline) {
        let has_failed =
            |contender: &ContenderAnalysis| contender.label == baseline && contender.failed > 0;
        let advice = match workload.contenders.iter().any(has_failed) {
            true => "; choose another with --baseline",
            false => "",
        };
        return format!(
            "{baseline}, the baseline, completed no trial, so nothing can be compared{advice}."
        );
    }
    let compared = || primary_comparisons(workload).map(|c| c.blocks).filter(|blocks| *blocks > 0);
    let of = |wanted: fn(&Verdict) -> bool| -> Vec<&Comparison> {
        primary_comparisons(workload)
            .filter(|comparison| {
                wanted(&comparison.verdict) && !has_no_figure(workload, &comparison.contender)
            })
            .collect()
    };
    let mut parts = Vec::new();
    for (verdict, comparisons) in [
        ("faster", of(|verdict| matches!(verdict, Verdict::Faster))),
        ("slower", of(|verdict| matches!(verdict, Verdict::Slower))),
    ] {
        for comparison in comparisons {
            parts.push(decided(comparison, verdict));
        }
    }
    for comparison in of(|verdict| matches!(verdict, Verdict::Same { .. })) {
        parts.push(format!(
            "{} is as fast as {baseline} ({})",
            comparison.contender,
            verdict_text(&comparison.verdict)
        ));
    }
    let is_bounded = |verdict: &Verdict| {
        matches!(verdict, Verdict::AtMostSlower { .. } | Verdict::AtMostFaster { .. })
    };
    for comparison in of(is_bounded) {
        let verdict = verdict_text(&comparison.verdict);
        parts.push(format!("{} is {verdict} than {baseline}", comparison.contender));
    }
    for comparison in of(|verdict| matches!(verdict, Verdict::Inconclusive)) {
        parts.push(undecided(comparison));
    }
    for contender in workload.contenders.iter().filter(|contender| contender.metrics.is_empty()) {
        parts.push(match contender.failed {
            0 => format!("{} was not tried", contender.label),
            _ => format!("{} failed whenever it was tried", contender.label),
        });
    }
    match compared().min().zip(compared().max()) {
        None => format!("{}.", text::list(&parts)),
        Some(blocks) => {
            format!("{}. {}", text::list(&parts), certainty(blocks, workload.blocks, plan))
        }
    }
}

/// What must be known before contenders are compared by the most important figure, each once, with
/// the contenders whom it concerns where it is not all.
pub fn caveats(workload: &WorkloadAnalysis) -> Vec<String> {
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for contender in &workload.contenders {
        for caveat in &contender.caveats {
            match told.iter_mut().find(|(known, _)| known == caveat) {
                Some((_, labels)) => labels.push(contender.label.clone()),
                None => told.push((caveat, vec![contender.label.clone()])),
            }
        }
    }
    let has_figure = |contender: &&ContenderAnalysis| !contender.metrics.is_empty();
    let all = workload.contenders.iter().filter(has_figure).count();
    told.into_iter()
        .map(|(caveat, labels)| match labels.len() == all {
            true => caveat.to_string(),
            false => format!("{}: {caveat}", text::list(&labels)),
        })
        .collect()
}

/// The statement of a decided comparison: its ratio and interval as in the table.
fn decided(comparison: &Comparison, verdict: &str) -> String {
    let Comparison { contender, baseline, ratio, low, high, .. } = comparison;
    let (Some(ratio), Some(low), Some(high)) = (ratio, low, high) else {
        return format!("{contender} is {verdict} than {baseline}");
    };
    let (verb, words) = match comparison.unit.more_is_better() {
        true => ("has", format!("times the {} of", comparison.metric)),
        false => ("takes", "times as long as".to_string()),
    };
    format!(
        "{contender} {verb} {} {words} {baseline} ({} to {})",
        text::ratio(*ratio),
        text::ratio(*low),
        text::ratio(*high)
    )
}

fn undecided(comparison: &Comparison) -> String {
    let Comparison { contender, baseline, low, high, blocks, .. } = comparison;
    match (low, high) {
        (Some(low), Some(high)) if is_telling(*low, *high) => format!(
            "{contender} against {baseline} is inconclusive (the ratio lies between {} and {})",
            text::ratio(*low),
            text::ratio(*high)
        ),
        (Some(_), Some(_)) => {
            format!("{contender} against {baseline} is inconclusive (its interval is {TOO_WIDE})")
        }
        _ => format!(
            "{contender} against {baseline} is inconclusive (no interval: {} with a completed trial of both, {BLOCKS_MIN_FOR_INTERVAL} are needed)",
            text::counted(*blocks, "block")
        ),
    }
}

/// What the intervals are and from how many blocks. `least` and `most`: blocks in which both of a
/// pair completed a trial, which are fewer than were begun where a trial failed or time ran out.
fn certainty((least, most): (usize, usize), begun: u32, plan: &Plan) -> String {
    let blocks = match least == most {
        true => text::counted(most, "interleaved block"),
        false => format!("{least} to {most} interleaved blocks"),
    };
    let of = match least < begun as usize {
        true => format!(" (of {begun} that were begun)"),
        false => String::new(),
    };
    let device = device_text(plan);
    match most < BLOCKS_MIN_FOR_INTERVAL {
        true => format!("That is of only {blocks}{of} on {device}."),
        false => format!("Intervals of {}, from {blocks}{of} on {device}.", confidence(plan)),
    }
}

/// How sure the intervals of ratios are. What holds for all contenders together is that none
/// differs by chance, not that all intervals are right at once.
pub fn confidence(plan: &Plan) -> &'static str {
    match plan.study.contenders.len() {
        ..=2 => "95 %",
        _ => {
            "at least 95 % each, wide enough that any false difference among the contenders has a chance of at most 5 %"
        }
    }
}
