//! What a reader came for: which contender is faster under which workload, by how much and how sure, and
//! what could change the decision. The same blocks for the terminal, Markdown and the page.

use std::collections::BTreeSet;

use lab::analysis::{
    Analysis, Comparison, ContenderAnalysis, EffortForecast, WorkloadAnalysis, control_words,
};
use lab::plan::Plan;
use lab::record::{Outcome, Record};
use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;
use lab::study::LeftOut;
use lab::warning::{Warning, WarningKind};
use lab::watched::Disturbed;

use crate::charts::{WorkloadView, benefit, matrix, power_cuts, ratio, runs, scan};
use crate::document::Block;
use crate::sessions;
use crate::source::ResultSource;
use crate::standings::ContenderRanking;
use crate::tables::{
    contenders, device_text, gate_text, other_operations, primary_comparisons, trials_text,
    unchanged, verdict_mark,
};
use crate::{age, choice, overview, profile, stores, text};

/// Most warnings that are shown unasked.
const WARNINGS_MAX: usize = 6;

pub fn answer(source: &ResultSource) -> Vec<Block> {
    let (plan, analysis) = (&source.plan, &source.analysis);
    let loads = analysis.workloads.as_slice();
    let emulated = unchanged(loads);
    let is_of_times = shows_times(loads);
    let said = match &emulated {
        None => choice::sentences(loads, plan),
        Some(_) => choice::of_counts(loads, plan),
    };
    let is_compared = loads.iter().any(|workload| !workload.comparisons.is_empty());
    let device = device_text(plan);
    // What overturns the answer comes before it.
    let (mut blocks, others) = warnings(source);
    if is_compared {
        blocks.push(Block::Text(format!("On {device}:")));
    }
    let together = choice::overall(analysis, plan).filter(|_| is_of_times);
    blocks.extend(together.into_iter().chain(said).map(Block::Answer));
    blocks.push(Block::Text(certainty(source)));
    blocks.extend(profile::line(plan).map(Block::Text));
    if emulated.is_none() {
        blocks.extend(choice::of_sure_counts(loads, plan).into_iter().map(Block::Text));
    }
    let times = "Times show no difference.";
    blocks.extend((is_compared && !is_of_times).then(|| Block::Text(times.into())));
    let caption = "What an emulated processor does not change";
    blocks.extend(emulated.map(|table| Block::table(caption, table)));
    match loads {
        _ if !is_of_times => {}
        [workload] => {
            let caption = format!("Ranking under {}", workload.workload);
            blocks.push(Block::table(caption, contenders(workload, plan)));
            blocks.extend(age::answer(workload, plan));
            blocks.extend(overview::parts(workload, plan));
        }
        _ => blocks.extend(overview::of(analysis, plan)),
    }
    blocks.extend(stores::blocks(analysis, plan));
    blocks.extend(remarks(loads).into_iter().map(Block::Note));
    blocks.extend(pictures(source));
    blocks.extend(outlook(source));
    blocks.extend(analysis.gates.iter().map(|gate| Block::Text(gate_text(gate))));
    blocks.extend(others);
    blocks.extend(left_out(plan));
    blocks.extend(control_words(analysis).into_iter().map(Block::Note));
    blocks.extend(sessions::sentence(&sessions::sessions(source)).map(Block::Note));
    blocks
}

/// Whether times are shown: not those of an emulated processor that decide nothing.
fn shows_times(loads: &[WorkloadAnalysis]) -> bool {
    unchanged(loads).is_none() || loads.iter().any(choice::is_decided)
}

/// The pictures that belong to the answer: every run, and what its time buys.
fn pictures(source: &ResultSource) -> Vec<Block> {
    match WorkloadView::all(source).as_slice() {
        [view] => pictures_of(view),
        _ => {
            let mut scans = scan::charts(source);
            let more = scans.split_off(scans.len().min(SCANS_SHOWN));
            let benefit = benefit::of_workloads(source);
            let all = scans.into_iter().chain(runs::every(source)).chain(benefit);
            let mut blocks = Block::charts(all);
            blocks.extend(
                (!more.is_empty()).then(|| Block::fold("More curves", Block::charts(more))),
            );
            let ratios = ratio::overview(source).map(|chart| vec![Block::Chart(chart)]);
            blocks.extend(ratios.map(|chart| Block::fold("Every workload in one picture", chart)));
            blocks
        }
    }
}

/// So many curves of numbers that were scanned are shown unasked.
const SCANS_SHOWN: usize = 4;

/// The pictures of a workload that belong to its ranking.
pub fn pictures_of(view: &WorkloadView<'_>) -> Vec<Block> {
    let charts = power_cuts::of_workload(view).into_iter().chain(runs::of_workload(view));
    let mut blocks = Block::charts(charts.chain(benefit::of_workload(view)));
    blocks.extend(maps(view));
    blocks
}

/// The maps of a fio matrix, with what they are.
pub fn maps(view: &WorkloadView<'_>) -> Vec<Block> {
    let maps: Vec<Block> = matrix::maps(view).into_iter().map(Block::Map).collect();
    if maps.is_empty() {
        maps
    } else {
        maps.into_iter().chain([Block::Text(matrix::explained(view.analysis))]).collect()
    }
}

/// What the confidence is of, and from how many trials: once for all workloads.
fn certainty(source: &ResultSource) -> String {
    let (plan, analysis) = (&source.plan, &source.analysis);
    let trials = trials_text(&analysis.workloads, plan, &source.records);
    let loads = || analysis.workloads.iter();
    if loads().all(|workload| workload.comparisons.is_empty()) {
        return sentences(&[format!("{trials} on {}", device_text(plan))]);
    }
    let pairs = plan.study.workloads.len() * plan.study.contenders.len().saturating_sub(1);
    let together = if pairs > 1 { ", corrected for multiple comparisons" } else { "" };
    let is_unsure =
        |one: &Warning| matches!(one.kind, WarningKind::SerialCorrelation | WarningKind::FewBlocks);
    let only_if = if loads().flat_map(|workload| &workload.warnings).any(is_unsure) {
        " Assumes that runs do not affect each other."
    } else {
        ""
    };
    format!("95 % confidence{together}; {trials}.{only_if}")
}

/// What the ratios are, and what would decide what is open.
fn outlook(source: &ResultSource) -> Vec<Block> {
    let analysis = &source.analysis;
    let mut said = Vec::new();
    // The table of one load has both the medians and the costs.
    let loads = analysis.workloads.as_slice();
    if let [workload] = loads
        && !workload.comparisons.is_empty()
        && shows_times(loads)
    {
        said.push(
            "costs are computed per round, so they can differ from the ratio of the medians".into(),
        );
        let others = other_operations(workload);
        said.extend((!others.is_empty()).then(|| {
            let names = text::list(&others.iter().map(ToString::to_string).collect::<Vec<_>>());
            format!("the costs by {names} have a 95 % confidence of their own")
        }));
    }
    let open = analysis.forecast.filter(EffortForecast::is_open);
    let open = open.map(|forecast| forecast.after(lead_ns(source)));
    said.extend(open.and_then(|_| disturbance(analysis)));
    let pairs = analysis.workloads.iter().flat_map(|workload| &workload.comparisons);
    // Who is not ranked has no interval, however many blocks there are.
    if pairs.clone().any(|one| (1..BLOCKS_MIN_FOR_INTERVAL).contains(&one.blocks)) {
        said.push(format!(
            "an interval needs {BLOCKS_MIN_FOR_INTERVAL} rounds that both completed"
        ));
    }
    let mut blocks = Vec::new();
    blocks.extend((!said.is_empty()).then(|| Block::Text(sentences(&said))));
    // How much more it takes, where that can be told, and the command.
    let is_worth =
        |forecast: &EffortForecast| forecast.blocks.is_none_or(|(_, most)| most <= BLOCKS_TOLD);
    if let Some(forecast) = open {
        let much = forecast.blocks.map_or(String::new(), |_| format!("; {forecast}"));
        let which = what_is_open(source, &forecast);
        if !is_worth(&forecast) {
            blocks.push(Block::Text(format!(
                "Open: {which}{much}. Shorter runs, or a quieter machine, decide sooner."
            )));
            return blocks;
        }
        let name = trust::words::pasted(&source.name);
        let rule = &source.plan.stop_rule;
        let rounds = pairs.map(|one| one.blocks as u32).max().unwrap_or_default();
        let more = forecast.more().unwrap_or(if rounds < BLOCKS_MIN_FOR_INTERVAL as u32 {
            rule.min_blocks.saturating_sub(rounds).max(1)
        } else {
            rule.max_blocks
        });
        // What was stopped before its fewest blocks goes on as it was planned.
        let more = if is_unfinished(source) { String::new() } else { format!(" --more {more}") };
        blocks.push(Block::Text(format!("To decide what is open ({which}{much}):")));
        blocks.push(Block::Code(format!("kurabe resume {name}{more}")));
    }
    blocks
}

/// What the last session took until its first trial began: another one takes as long.
fn lead_ns(source: &ResultSource) -> u64 {
    let begun = source.facts.as_ref().and_then(|facts| facts.get("started_unix_ns")?.as_u64());
    let last = source.records.iter().map(|record| record.session).max();
    let of_last = source.records.iter().filter(|record| Some(record.session) == last);
    let first = of_last.map(|record| record.started_unix_ns).min();
    begun.zip(first).map_or(0, |(begun, first)| first.saturating_sub(begun))
}

/// Whether a study that nothing bounds but its number of blocks has fewer than it was to have at least.
fn is_unfinished(source: &ResultSource) -> bool {
    let study = &source.plan.study;
    let measured = source.records.iter().filter(|record| !record.warmup && record.has_ended());
    let blocks: BTreeSet<u32> = measured.map(|record| record.block).collect();
    study.budget_ns.is_none() && blocks.len() < study.blocks_min as usize
}

/// Who is not told apart from the baseline yet, and who may be the fastest, each with its workload where there
/// are several; counted where these are many.
fn what_is_open(source: &ResultSource, forecast: &EffortForecast) -> String {
    let loads = source.analysis.workloads.as_slice();
    let of = |open: String, load: &WorkloadAnalysis| match loads.len() {
        1 => open,
        _ => format!("{open} under {}", load.workload),
    };
    let is_open = |one: &&Comparison| ["?", "~"].contains(&verdict_mark(&one.verdict));
    let open = |load: &WorkloadAnalysis| -> Vec<String> {
        primary_comparisons(load).filter(is_open).map(|one| one.contender.clone()).collect()
    };
    let pairs = || loads.iter().map(|load| (open(load), load)).filter(|(open, _)| !open.is_empty());
    // More blocks cannot decide all that looks open.
    let is_told = pairs().count() <= OPEN_TOLD
        && pairs().map(|(open, _)| open.len()).sum::<usize>() == forecast.open;
    let mut parts: Vec<String> = if is_told {
        pairs().map(|(open, load)| of(text::list(&open), load)).collect()
    } else {
        vec![format!("{} of {} comparisons", forecast.open, forecast.comparisons)]
    };
    let best = |load: &WorkloadAnalysis| ContenderRanking::of(load, &source.plan).rivals();
    let rivals = loads.iter().filter_map(|load| Some((best(load)?, load)));
    let rivals: Vec<String> = rivals
        .map(|(best, load)| of(format!("{} is fastest", text::any_of(&best)), load))
        .collect();
    match (forecast.rivals, rivals.len()) {
        (0, _) => {}
        (_, 1..=OPEN_TOLD) => {
            parts.extend(rivals.into_iter().map(|said| format!("whether {said}")))
        }
        (some, _) => {
            parts.push(format!("which is fastest under {}", text::counted(some, "workload")))
        }
    }
    parts.join("; ")
}

/// So many loads in which something is open are named.
const OPEN_TOLD: usize = 2;

/// Nobody waits for more blocks than these.
const BLOCKS_TOLD: u32 = 100;

/// What kept a study from deciding, where the machine did.
fn disturbance(analysis: &Analysis) -> Option<String> {
    let contenders = analysis.workloads.iter().flat_map(|workload| &workload.contenders);
    let all = Disturbed::of_all(contenders.filter_map(|one| one.disturbed.as_ref()));
    let is_much = all.runs() > 0 && all.runs() * DISTURBED_TOLD >= all.of;
    // Whose runs were all quiet is not among them, nor whose were mostly disturbed, so there is no share.
    is_much.then(|| {
        let (runs, causes) = (text::counted(all.runs(), "run"), all.causes_text());
        format!("the machine disturbed {runs} ({causes}); on a quiet machine fewer rounds suffice")
    })
}

/// One run in so many that the machine disturbed is told of.
const DISTURBED_TOLD: usize = 20;

fn sentences(clauses: &[String]) -> String {
    let sentence = |clause: &String| text::capitalised(clause) + ".";
    clauses.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// A warning with the workloads that it is about.
struct QualifiedWarning {
    rank: usize,
    text: String,
    workloads: Vec<String>,
}

/// What may change the decision, each once, the gravest first.
fn told(source: &ResultSource) -> Vec<QualifiedWarning> {
    let of = |workload: &WorkloadAnalysis| {
        let grave = workload.warnings.iter().filter(|warning| may_decide(workload, warning));
        let of_lab = grave.map(|warning| (rank(warning), warning_text(source, workload, warning)));
        let notes = notes(workload).into_iter().map(|text| (0, text));
        let all: Vec<(usize, String)> = of_lab.chain(notes).collect();
        let name = workload.workload.clone();
        all.into_iter().map(move |told| (told, name.clone()))
    };
    let mut all = text::grouped(source.analysis.workloads.iter().flat_map(of));
    all.sort_by_key(|((rank, _), _)| *rank);
    all.into_iter()
        .map(|((rank, text), workloads)| QualifiedWarning { rank, text, workloads })
        .collect()
}

fn rank(warning: &Warning) -> usize {
    match warning.kind {
        WarningKind::Failures | WarningKind::UnequalWork => 0,
        _ if widens(warning) => 2,
        _ => 1,
    }
}

/// Whether all that it says is why intervals are wide.
fn widens(warning: &Warning) -> bool {
    use WarningKind::{Drift, FastFirstBlock, SlowFirstBlock, SplitBlock, Spread};
    matches!(warning.kind, SlowFirstBlock | FastFirstBlock | Drift | Spread | SplitBlock)
}

/// Whether it may change a decision: why an interval is wide is asked where nothing is sure, and what was
/// set aside does nothing where the means of all trials lie in the interval.
fn may_decide(workload: &WorkloadAnalysis, warning: &Warning) -> bool {
    let mut comparisons = primary_comparisons(workload);
    let is_open = |one: &Comparison| verdict_mark(&one.verdict) == "?";
    let is_bent = |one: &Comparison| {
        let mean = one.mean_ratio.map(|mean| one.cost_of(mean));
        let ends = one.cost_ends().zip(mean);
        ends.is_none_or(|((low, high), mean)| !(low..=high).contains(&mean))
    };
    warning.is_grave()
        && match warning.kind {
            WarningKind::Trimmed => comparisons
                .any(|one| warning.contender.as_ref() == Some(&one.contender) && is_bent(one)),
            _ => !widens(warning) || comparisons.any(is_open),
        }
}

/// The warnings that stand with the answer: what was compared, which comes before the answer, and the
/// others.
fn warnings(source: &ResultSource) -> (Vec<Block>, Vec<Block>) {
    let several = source.analysis.workloads.len() > 1;
    let all = told(source);
    let more = all.len().saturating_sub(WARNINGS_MAX);
    let grave = all.iter().take_while(|told| told.rank == 0).count();
    let shown = all.into_iter().take(WARNINGS_MAX).map(|told| {
        let every = told.workloads.len() == source.analysis.workloads.len();
        Block::Warning(if several && !every {
            format!("{}: {}", text::list(&told.workloads), told.text)
        } else {
            told.text
        })
    });
    let mut blocks: Vec<Block> = shown.collect();
    let mut others = blocks.split_off(grave.min(blocks.len()));
    if more > 0 {
        let counted = text::counted(more, "more warning");
        others.push(Block::Note(format!("{counted}: see the details of each workload.")));
    }
    (blocks, others)
}

/// What was left out: together where a guest has it, else each with what it lacks.
fn left_out(plan: &Plan) -> Vec<Block> {
    let left_out = &plan.study.left_out;
    let (guests, others): (Vec<&LeftOut>, Vec<_>) =
        left_out.iter().partition(|left| left.in_guests);
    let names: Vec<String> = guests.iter().map(|left| left.name.clone()).collect();
    let of_guests = (!names.is_empty())
        .then(|| format!("left out here: {} (in guests: --on debian)", text::list(&names)));
    let of_others = others
        .into_iter()
        .map(|left| format!("left out: {} {}: {}", left.what, left.name, left.missing.join("; ")));
    of_guests.into_iter().chain(of_others).map(Block::Note).collect()
}

/// The warnings of one load that do not stand with the answer, and the notes.
pub fn other_remarks(source: &ResultSource, workload: &WorkloadAnalysis) -> Vec<Block> {
    let all = told(source);
    let shown = |text: &String| all.iter().take(WARNINGS_MAX).any(|told| told.text == *text);
    let rest =
        all.iter().skip(WARNINGS_MAX).filter(|told| told.workloads.contains(&workload.workload));
    let mut blocks: Vec<Block> = rest.map(|told| Block::Warning(told.text.clone())).collect();
    let notes = workload.warnings.iter().filter(|warning| !may_decide(workload, warning));
    let notes = notes.map(|warning| warning.to_string()).filter(|text| !shown(text));
    blocks.extend(notes.map(Block::Note));
    blocks
}

/// A warning in words; of failures with the reason of the first.
fn warning_text(source: &ResultSource, workload: &WorkloadAnalysis, warning: &Warning) -> String {
    let of = |record: &&Record| {
        warning.kind == WarningKind::Failures
            && record.workload == workload.workload
            && Some(&record.contender.label) == warning.contender.as_ref()
    };
    match source.records.iter().filter(of).find_map(failure_text) {
        Some(reason) => format!("{warning}; the first: {reason}"),
        None => warning.to_string(),
    }
}

/// Why a trial has no figures; None for one that was completed.
pub fn failure_text(record: &Record) -> Option<String> {
    match &record.outcome {
        Outcome::Completed => None,
        Outcome::Failed { phase, message, output, .. } => {
            let failed = format!("{} failed: ", phase.name());
            let message = message.strip_prefix(&failed).unwrap_or(message);
            let reason = trust::complaint::reason(output);
            let reason = reason.map_or(String::new(), |line| format!(": {line}"));
            Some(format!("{failed}{message}{reason}"))
        }
        Outcome::TimedOut { phase, limit_ns } => {
            Some(format!("{} reached --timeout {}", phase.name(), text::time(*limit_ns as f64)))
        }
        Outcome::Interrupted { phase } => Some(format!("interrupted in {}", phase.name())),
    }
}

/// What must be known before contenders are compared by the primary metric, each once, with the
/// contenders whom it concerns where it is not all.
fn notes(workload: &WorkloadAnalysis) -> Vec<String> {
    of_contenders(workload, |contender| &contender.notes)
}

/// What must be told next to the figures, with the workload where there are several.
fn remarks(loads: &[WorkloadAnalysis]) -> Vec<String> {
    let of = |load: &WorkloadAnalysis| {
        let remarks = of_contenders(load, |contender| &contender.remarks);
        let name = load.workload.clone();
        remarks.into_iter().map(move |remark| (remark, name.clone()))
    };
    text::grouped(loads.iter().flat_map(of))
        .into_iter()
        .map(|(remark, names)| {
            if names.len() == loads.len() {
                remark
            } else {
                format!("{}: {remark}", text::list(&names))
            }
        })
        .collect()
}

/// What is told of contenders, each once, with the contenders that it is about where it is not all.
fn of_contenders(
    workload: &WorkloadAnalysis,
    told: fn(&ContenderAnalysis) -> &Vec<String>,
) -> Vec<String> {
    let has_figure = |contender: &&ContenderAnalysis| !contender.metrics.is_empty();
    let all = workload.contenders.iter().filter(has_figure).count();
    let of = |one: &ContenderAnalysis| {
        let label = one.label.clone();
        told(one).clone().into_iter().map(move |note| (note, label.clone()))
    };
    text::grouped(workload.contenders.iter().flat_map(of))
        .into_iter()
        .map(
            |(note, labels)| {
                if labels.len() == all { note } else { format!("{}: {note}", text::list(&labels)) }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests;
