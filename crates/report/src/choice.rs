//! Which contender to choose under which load, in sentences: who is fastest as far as the intervals
//! tell, who is surely slower, and of whom nothing is known.
//!
//! The baseline is told apart from another by the verdict on the two. Two others are told apart where
//! their intervals do not touch: all intervals of a study hold together, so this errs no more often.

use lab::analysis::{Comparison, Cost, WorkloadAnalysis};
use lab::plan::Plan;
use lab::statistics::{BLOCKS_MIN_FOR_INTERVAL, BOUND_MAX, Verdict};
use lab::words::{TOO_WIDE, is_telling, percent};

use crate::quotient::{ends_text, speed_of, speeds};
use crate::tables::{has_no_figure, primary_comparisons, verdict_mark, verdict_text};
use crate::{checks, text};

/// What to choose: a sentence for each load, loads of which the same is said together; of one load
/// with two contenders by how much.
pub fn sentences(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    if let [workload] = workloads {
        return vec![sentence(workload, plan)];
    }
    let said = workloads.iter().map(|one| (said_of(one, plan), one.workload.clone()));
    let said = text::grouped(said).into_iter();
    said.map(|(said, names)| format!("{}: {said}", text::list(&names))).collect()
}

/// What the counts of each load say, which an emulated processor does not change: who writes least and
/// most, and flushes least and most.
pub fn of_counts(workloads: &[WorkloadAnalysis]) -> Vec<String> {
    let said = |workload: &WorkloadAnalysis| {
        let written = ends(workload, |cost| cost.device_written_bytes, text::bytes);
        let flushes = ends(workload, |cost| cost.device_flushes, text::count);
        let parts = [("written", written), ("flushes", flushes)].into_iter();
        let parts = parts.filter_map(|(what, ends)| Some(format!("{what}: {}", ends?)));
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| (parts.join("; "), workload.workload.clone()))
    };
    let said = text::grouped(workloads.iter().filter_map(said)).into_iter();
    let of_one = workloads.len() == 1;
    said.map(|(said, names)| match of_one {
        true => format!("{said}."),
        false => format!("{}: {said}.", text::list(&names)),
    })
    .collect()
}

/// `least xfs and ext4 (16 MiB), most zfs (42 MiB)`; none where all read alike.
fn ends(
    workload: &WorkloadAnalysis,
    of: impl Fn(&Cost) -> Option<f64>,
    words: impl Fn(f64) -> String,
) -> Option<String> {
    let known = workload.contenders.iter().filter_map(|one| Some((of(&one.cost)?, &one.label)));
    let mut known: Vec<(f64, &String)> = known.collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let said = known.into_iter().map(|(value, label)| (words(value), label.clone()));
    match text::grouped(said).as_slice() {
        [(least, few), .., (most, many)] => {
            Some(format!("least {} ({least}), most {} ({most})", text::list(few), text::list(many)))
        }
        _ => None,
    }
}

/// Whether any two contenders are told apart, or surely the same, under any load.
pub fn is_decided(workloads: &[WorkloadAnalysis]) -> bool {
    workloads.iter().flat_map(primary_comparisons).any(|one| one.verdict.is_decided())
}

/// Who wins under one load: of two contenders by how much.
pub fn sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    match primary_comparisons(workload).collect::<Vec<_>>().as_slice() {
        [one] => with_checks(workload, plan, || match has_no_figure(workload, &one.contender) {
            true => Vec::new(),
            false => vec![against(one)],
        }),
        _ => with_checks(workload, plan, || standings(workload, plan).said(true)),
    }
}

/// Who is fastest under a load, who is slower, and what is not known.
fn said_of(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    with_checks(workload, plan, || standings(workload, plan).said(false))
}

/// Who lost data is said first: whoever is fast without keeping what was written has won nothing. Then
/// the parts of the sentence, and last who completed no trial.
fn with_checks(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    parts: impl Fn() -> Vec<String>,
) -> String {
    let mut sentences = checks::lost(workload);
    if let Some(why) = nothing_to_compare(workload, plan) {
        sentences.extend(why);
        return sentences.join(" ");
    }
    let parts: Vec<String> = parts().into_iter().chain(without_figure(workload)).collect();
    sentences.extend((!parts.is_empty()).then(|| format!("{}.", parts.join("; "))));
    sentences.join(" ")
}

/// Where contenders stand under a load.
struct Standings {
    ranked: Vec<Standing>,
    /// Labels of those whose interval tells nothing.
    unknown: Vec<String>,
    same_within: f64,
}

/// One whose interval tells something.
struct Standing {
    label: String,
    /// Ends of the interval of its speed over the baseline's; 1 and 1 for the baseline itself.
    speed: (f64, f64),
    /// None for the baseline.
    verdict: Option<Verdict>,
}

fn standings(workload: &WorkloadAnalysis, plan: &Plan) -> Standings {
    let baseline = plan.baseline_label();
    let mut ranked = vec![Standing { label: baseline.into(), speed: (1.0, 1.0), verdict: None }];
    let mut unknown = Vec::new();
    for one in primary_comparisons(workload).filter(|one| !has_no_figure(workload, &one.contender))
    {
        let (label, verdict) = (one.contender.clone(), Some(one.verdict));
        match speeds(one) {
            Some(speed) if is_telling(speed.0, speed.1) => {
                ranked.push(Standing { label, speed, verdict });
            }
            _ => unknown.push(label),
        }
    }
    let middle = |one: &Standing| one.speed.0 * one.speed.1;
    ranked.sort_by(|one, other| middle(other).total_cmp(&middle(one)));
    Standings { ranked, unknown, same_within: plan.study.same_within }
}

impl Standing {
    /// `3 to 78 % `: how much less it does than the baseline, rounded outwards.
    fn loss(&self) -> String {
        let (least, most) = (1.0 - self.speed.1, 1.0 - self.speed.0);
        let digits = if least < 0.01 { 10.0 } else { 1.0 };
        let least = (least * 100.0 * digits).floor() / digits;
        format!("{least} to {:.0} % ", (most * 100.0).ceil())
    }
}

impl Standings {
    /// Whether the first is surely faster than the second, by more than the margin.
    fn beats(&self, one: &Standing, other: &Standing) -> bool {
        match (one.verdict, other.verdict) {
            (None, Some(verdict)) => verdict == Verdict::Slower,
            (Some(verdict), None) => verdict == Verdict::Faster,
            _ => {
                let margin = 1.0 + self.same_within;
                one.speed.0 > other.speed.1 && one.speed.1 > other.speed.0 * margin
            }
        }
    }

    /// The parts of a sentence. `how_much`: by how much, of those whom the baseline beats.
    fn said(&self, how_much: bool) -> Vec<String> {
        let is_beaten = |one: &&Standing| self.ranked.iter().any(|other| self.beats(other, one));
        let (beaten, leaders): (Vec<_>, Vec<_>) = self.ranked.iter().partition(is_beaten);
        let mut parts: Vec<String> = Vec::new();
        let mut open = self.unknown.clone();
        if beaten.is_empty() {
            parts.extend((leaders.len() > 1).then(|| self.level(&leaders)));
            let is_open =
                |one: &&Standing| one.verdict.is_some_and(|verdict| verdict_mark(&verdict) == "?");
            open.extend(leaders.iter().copied().filter(is_open).map(|one| one.label.clone()));
        } else {
            let names: Vec<&str> = leaders.iter().map(|one| one.label.as_str()).collect();
            parts.push(format!("{} is fastest", text::either(&names)));
        }
        let slower = beaten.iter().map(|one| {
            let loss = (how_much && one.verdict == Some(Verdict::Slower)).then(|| one.loss());
            (format!("{}slower{}", loss.unwrap_or_default(), self.than(one, &leaders)), one)
        });
        for (slower, all) in text::grouped(slower) {
            let labels: Vec<String> = all.iter().map(|one| one.label.clone()).collect();
            parts.push(format!("{} {} {slower}", text::list(&labels), verb(&labels)));
        }
        parts.extend((!open.is_empty()).then(|| format!("inconclusive: {}", text::list(&open))));
        parts
    }

    /// What is said where nobody is surely slower: the same, or by how much they may differ.
    fn level(&self, leaders: &[&Standing]) -> String {
        let others = || leaders.iter().filter_map(|one| one.verdict);
        let names: Vec<String> = leaders.iter().map(|one| one.label.clone()).collect();
        if others().all(|verdict| matches!(verdict, Verdict::Same { .. })) {
            return format!(
                "{} are the same within {}",
                text::list(&names),
                percent(self.same_within)
            );
        }
        match self.unknown.is_empty() && others().all(|verdict| verdict_mark(&verdict) != "?") {
            true => format!("no difference above {}", percent(BOUND_MAX)),
            false => "no difference shown".into(),
        }
    }

    /// Than whom it is surely slower: nothing where than each of the fastest.
    fn than(&self, one: &Standing, leaders: &[&Standing]) -> String {
        let faster = leaders.iter().filter(|leader| self.beats(leader, one));
        let faster: Vec<String> = faster.map(|leader| leader.label.clone()).collect();
        match faster.len() == leaders.len() || faster.is_empty() {
            true => String::new(),
            false => format!(" than {}", text::list(&faster)),
        }
    }
}

fn verb(labels: &[String]) -> &'static str {
    if labels.len() == 1 { "is" } else { "are" }
}

/// Why there is no comparison, which may have been said; None where there is one.
fn nothing_to_compare(workload: &WorkloadAnalysis, plan: &Plan) -> Option<Option<String>> {
    let baseline = plan.baseline_label();
    if workload.contenders.iter().all(|contender| contender.metrics.is_empty()) {
        return Some(match checks::any(workload) {
            true => checks::sentence(workload),
            false => Some("No contender completed a trial.".into()),
        });
    }
    if workload.contenders.len() > 1
        && workload.contender(baseline).is_some_and(|c| c.violation().is_some())
    {
        let next = format!("{baseline} is the baseline: choose another with --baseline.");
        return Some(Some(next));
    }
    if workload.contenders.len() == 1 {
        return Some(Some(format!(
            "{baseline} is alone: name a second contender to compare it with."
        )));
    }
    if !has_no_figure(workload, baseline) {
        return None;
    }
    let advice = match workload.contender(baseline).is_some_and(|one| one.failed > 0) {
        true => ": choose another with --baseline",
        false => "",
    };
    Some(Some(format!("{baseline}, the baseline, completed no trial{advice}.")))
}

/// What is said of the contenders that completed no trial.
fn without_figure(workload: &WorkloadAnalysis) -> Vec<String> {
    let of = workload.contenders.iter().filter(|contender| contender.metrics.is_empty());
    of.filter(|contender| contender.checks.is_empty() || contender.failed > 0)
        .map(|contender| match contender.failed {
            0 => format!("{} was not tried", contender.label),
            _ => format!("{} failed in every trial", contender.label),
        })
        .collect()
}

/// What is said of one contender against the baseline: its ratio and interval as in the table.
fn against(comparison: &Comparison) -> String {
    let Comparison { contender, baseline, ratio, blocks, .. } = comparison;
    let verdict = verdict_text(&comparison.verdict);
    match (&comparison.verdict, ratio, speeds(comparison)) {
        (Verdict::Faster | Verdict::Slower, Some(ratio), Some((low, high))) => format!(
            "{contender} is {verdict}: {} times as fast as {baseline} ({})",
            text::ratio(speed_of(comparison, *ratio)),
            ends_text(low, high)
        ),
        (Verdict::Same { .. }, ..) => format!("{contender} and {baseline} are the {verdict}"),
        (Verdict::AtMost { .. }, ..) => format!("{contender} is {verdict} than {baseline}"),
        (_, _, Some((low, high))) if is_telling(low, high) => format!(
            "{contender} against {baseline}: {verdict} ({} times as fast)",
            ends_text(low, high)
        ),
        (_, _, Some(_)) => {
            format!("{contender} against {baseline}: {verdict} (interval {TOO_WIDE})")
        }
        _ => format!(
            "{contender} against {baseline}: {verdict} (both completed {}, {BLOCKS_MIN_FOR_INTERVAL} are needed)",
            text::counted(*blocks, "block")
        ),
    }
}
