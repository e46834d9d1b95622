//! Which contender to choose under which workload, in sentences: where contenders stand, who lost data, who
//! failed; and what the counts of the device say.

use lab::analysis::{Analysis, COUNTED_PER_WORK, Comparison, ResourceUse, WorkloadAnalysis};
use lab::plan::Plan;
use lab::statistics::Verdict;
use lab::words::ratio_with_interval;
use lab::workload::ALL_CELLS;

use crate::costs::FEW_BYTES;
use crate::quotient;
use crate::standings::{CONTENDERS_TOLD, ContenderRanking, OPEN, few_rounds};
use crate::tables::{
    has_no_figure, other_operations, primary_comparisons, primary_metric, verdict_mark,
    verdict_text,
};
use crate::{checks, text};

/// What to choose: a sentence for each workload, loads of which the same is said together.
pub fn sentences(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    if let [workload] = workloads {
        let said = sentence(workload, plan);
        // Labels are as they were written.
        let begins_with_label = !said.starts_with(OPEN);
        return vec![if begins_with_label { said } else { text::capitalised(&said) }];
    }
    let mut all: Vec<Said> = Vec::new();
    for workload in workloads {
        let one = Said::of(workload, plan);
        match all.iter().enumerate().find_map(|(place, known)| Some((place, known.joined(&one)?))) {
            Some((place, joined)) => all[place] = joined,
            None => all.push(one),
        }
    }
    let name = |said: &Said| {
        let (some, of) = (said.names.len(), workloads.len());
        let others = workloads.iter().map(|one| one.workload.clone());
        let others: Vec<String> = others.filter(|name| !said.names.contains(name)).collect();
        match others.len() {
            0 if some >= COUNTED_WORKLOADS_MIN => format!("all {of} workloads"),
            1 if some >= COUNTED_WORKLOADS_MIN => format!("all workloads except {}", others[0]),
            // The others are named.
            _ if some >= COUNTED_WORKLOADS_MIN && 2 * some > of => {
                format!("{some} of {of} workloads")
            }
            _ => text::list(&said.names),
        }
    };
    all.iter().map(|said| format!("{}: {}", name(said), said.text)).collect()
}

/// What all workloads of the study say together: `Geometric mean of all 3 workloads: xfs costs 1.120 (1.050 to
/// 1.190) times as much as ext4 and btrfs 1.540 (1.400 to 1.700).` None for a single workload, and of whom it is inconclusive. Many
/// contenders have their row in the table.
pub fn overall(analysis: &Analysis, plan: &Plan) -> Option<String> {
    if plan.study.contenders.len() > CONTENDERS_TOLD {
        return None;
    }
    let known = analysis.overall.iter().filter(|one| verdict_mark(&one.verdict) != "?");
    let mut said = known
        .filter_map(|one| Some((one, ratio_with_interval(one.cost()?, Some(one.cost_ends()?)))));
    let (first, cost) = said.next()?;
    let workloads = text::counted(analysis.workloads.len(), "workload");
    let Comparison { contender, baseline, .. } = first;
    let first = format!("{contender} costs {cost} times as much as {baseline}");
    let others = said.map(|(one, cost)| format!("{} {cost}", one.contender));
    let all: Vec<String> = std::iter::once(first).chain(others).collect();
    Some(format!("Geometric mean of all {workloads}: {}.", text::list(&all)))
}

/// As many loads of which the same is said are counted, and not named.
const COUNTED_WORKLOADS_MIN: usize = 4;

/// What is said of some workloads.
struct Said {
    text: String,
    names: Vec<String>,
    /// What it follows from, where that is all.
    standings: Option<ContenderRanking>,
}

impl Said {
    fn of(workload: &WorkloadAnalysis, plan: &Plan) -> Said {
        let text = sentence(workload, plan);
        let standings =
            Some(ContenderRanking::of(workload, plan)).filter(|one| one.sentence() == text);
        Said { text, names: vec![workload.workload.clone()], standings }
    }

    /// What holds of the workloads of both, where contenders stand alike in them.
    fn joined(&self, other: &Said) -> Option<Said> {
        let names = [self.names.as_slice(), &other.names].concat();
        let standings = self.standings.as_ref().zip(other.standings.as_ref());
        match standings.and_then(|(one, other)| one.joined(other)) {
            Some(standings) => {
                Some(Said { text: standings.sentence(), names, standings: Some(standings) })
            }
            None => (self.text == other.text).then(|| Said {
                text: self.text.clone(),
                names,
                standings: None,
            }),
        }
    }
}

/// What the counts of each workload say, which an emulated processor does not change: who surely writes and
/// flushes less than the baseline, and who more.
pub fn of_counts(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    counts(workloads, plan, |_| true)
}

/// The same of workloads whose times decide nothing, where a count does.
pub fn of_sure_counts(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    counts(workloads, plan, |workload| {
        let contenders = workload.contenders.iter();
        let most = contenders.filter_map(|one| one.cost.device_written_bytes).fold(0.0, f64::max);
        // Of a few blocks of metadata there is no verdict.
        let is_told =
            |metric: &str| metric == COUNTED[1] || (metric == COUNTED[0] && most >= FEW_BYTES);
        let differs = |one: &Comparison| is_told(&one.metric) && one.verdict.is_different();
        !is_decided(workload) && workload.exploratory.iter().any(differs)
    })
}

/// The counts of the device that are told of.
const COUNTED: [&str; 2] = ["bytes written", "flushes"];

fn counts(
    workloads: &[WorkloadAnalysis],
    plan: &Plan,
    is_told: impl Fn(&WorkloadAnalysis) -> bool,
) -> Vec<String> {
    let said = |workload: &WorkloadAnalysis| {
        let [per_byte, per_mib] = COUNTED_PER_WORK;
        let amplification =
            |cost: &ResourceUse| cost.write_amplification.map(|value| format!("{value:.2}"));
        let rate = |cost: &ResourceUse| {
            let mib = cost.command_written_bytes? / (1 << 20) as f64;
            Some(text::plain(cost.device_flushes? / mib))
        };
        let mut parts = [
            (
                apart(workload, plan, per_byte, amplification),
                format!("device {per_byte} of the workload"),
            ),
            (apart(workload, plan, per_mib, rate), per_mib.to_string()),
        ];
        if parts.iter().all(|(said, _)| said.is_none()) {
            let [written, flushes] = COUNTED;
            let bytes = |cost: &ResourceUse| cost.device_written_bytes.map(text::bytes);
            let count = |cost: &ResourceUse| cost.device_flushes.map(text::count);
            parts = [
                (apart(workload, plan, written, bytes), "written".to_string()),
                (apart(workload, plan, flushes, count), flushes.to_string()),
            ];
        }
        let parts = parts.into_iter().filter_map(|(said, what)| Some((said?, what)));
        let parts = text::grouped(parts).into_iter();
        let parts: Vec<String> =
            parts.map(|(said, whats)| format!("{}: {said}", text::list(&whats))).collect();
        (!parts.is_empty()).then(|| (parts.join("; "), workload.workload.clone()))
    };
    let told = workloads.iter().filter(|one| is_told(one));
    let said = text::grouped(told.filter_map(said)).into_iter();
    let of_one = workloads.len() == 1;
    said.map(
        |(said, names)| {
            if of_one { format!("{said}.") } else { format!("{}: {said}.", text::list(&names)) }
        },
    )
    .collect()
}

/// `xfs less (4 MiB), zfs more (42 MiB) than ext4 (16 MiB)`: who surely has less or more of something than the
/// baseline. None where it was not counted.
fn apart(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    metric: &str,
    value: impl Fn(&ResourceUse) -> Option<String>,
) -> Option<String> {
    let value = |label: &str| value(&workload.contender(label)?.cost);
    let all = || workload.exploratory.iter().filter(|one| one.metric == metric);
    all().next()?;
    let with = |verdict: Verdict, how: &str| -> Vec<String> {
        let found = all().filter(|one| one.verdict == verdict);
        let found = found.filter_map(|one| Some((value(&one.contender)?, one.contender.clone())));
        let found = text::grouped(found).into_iter();
        found.map(|(value, who)| format!("{} {how} ({value})", text::list(&who))).collect()
    };
    let parts = [with(Verdict::Faster, "less"), with(Verdict::Slower, "more")].concat();
    let baseline = plan.baseline_label();
    let is_same = all().all(|one| matches!(one.verdict, Verdict::Same { .. }));
    Some(if !parts.is_empty() {
        format!("{} than {baseline} ({})", parts.join(", "), value(baseline)?)
    } else if is_same {
        "the same".into()
    } else {
        "no sure difference".into()
    })
}

/// Whether any two contenders are told apart, or surely the same, under a workload.
pub fn is_decided(workload: &WorkloadAnalysis) -> bool {
    primary_comparisons(workload).any(|one| one.verdict.is_decided())
}

/// Who is fastest under a workload, who is slower, and what is not known; of two contenders the ratio.
pub fn sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    with_checks(workload, plan, || {
        let comparisons: Vec<&Comparison> = primary_comparisons(workload).collect();
        let mut parts = match comparisons.as_slice() {
            [one] if has_no_figure(workload, &one.contender) => Vec::new(),
            [one] => vec![against(one)],
            _ => ContenderRanking::of(workload, plan).said(),
        };
        let metric = primary_metric(workload);
        let is_told = comparisons.len() > 1 && !other_operations(workload).is_empty();
        if let Some(first) = parts.first_mut() {
            match metric {
                ALL_CELLS => first.push_str(", on average over all cells"),
                _ if is_told => first.push_str(&format!(", by {metric}")),
                _ => {}
            }
        }
        parts
    })
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

/// Why there is no comparison, which may have been said; None where there is one.
fn nothing_to_compare(workload: &WorkloadAnalysis, plan: &Plan) -> Option<Option<String>> {
    let baseline = plan.baseline_label();
    if workload.contenders.iter().all(|contender| contender.metrics.is_empty()) {
        return Some(if checks::any(workload) {
            checks::sentence(workload)
        } else {
            Some("No contender completed a run.".into())
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
    let advice = if workload.contender(baseline).is_some_and(|one| one.failed > 0) {
        ": choose another with --baseline"
    } else {
        ""
    };
    Some(Some(format!("{baseline}, the baseline, completed no run{advice}.")))
}

/// What is said of the contenders that completed no trial.
fn without_figure(workload: &WorkloadAnalysis) -> Vec<String> {
    let of = workload.contenders.iter().filter(|contender| contender.metrics.is_empty());
    of.filter(|contender| contender.checks.is_empty() || contender.failed > 0)
        .map(|contender| match contender.failed {
            0 => format!("{} was not tried", contender.label),
            _ => format!("{} failed in every run", contender.label),
        })
        .collect()
}

/// What is said of one contender against the baseline: its cost as in the table, and the verdict.
fn against(comparison: &Comparison) -> String {
    let Comparison { contender, baseline, .. } = comparison;
    let Some(said) = quotient::sentence(comparison) else {
        return format!(
            "Too few rounds to compare {contender} with {baseline}: {}",
            quotient::too_few_explained()
        );
    };
    match comparison.verdict {
        Verdict::Faster | Verdict::Slower => said,
        verdict if ["=", "~"].contains(&verdict_mark(&verdict)) => {
            format!("{said} ({})", verdict_text(&verdict))
        }
        _ => {
            let few = few_rounds(comparison.blocks, "tell them apart", "No sure difference");
            format!("{few}: {said}")
        }
    }
}
