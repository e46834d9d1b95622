//! What a reader came for: which contender is faster under which load, by how much and how sure, and
//! what could change the decision. The same blocks for the terminal, Markdown and the page.

use lab::analysis::{Analysis, Comparison, ContenderAnalysis, WorkloadAnalysis};
use lab::plan::Plan;
use lab::record::{Outcome, Record};
use lab::statistics::{BLOCKS_MIN_FOR_INTERVAL, Verdict};
use lab::warning::{Kind, Warning};
use lab::watched::Disturbed;
use lab::words::{TOO_WIDE, is_telling, percent_up};

use crate::charts::{View, matrix, ratio};
use crate::document::Block;
use crate::quotient::{speed_of, speeds};
use crate::sessions;
use crate::source::Source;
use crate::table::{Cell, Table, Tone};
use crate::tables::{
    all_blocks_text, contenders, device_text, gate_text, has_no_figure, primary_comparisons,
    tone_of, unchanged, verdict_mark, verdict_text,
};
use crate::{checks, profile, text};

/// Most warnings that are shown unasked.
const WARNINGS_MAX: usize = 6;

/// The answer of a result.
pub fn answer(source: &Source) -> Vec<Block> {
    let (plan, analysis) = (&source.plan, &source.analysis);
    // What the numbers are of comes before them.
    let mut blocks: Vec<Block> = profile::line(plan).map(Block::Warning).into_iter().collect();
    for workload in &analysis.workloads {
        if let Some(table) = unchanged(workload) {
            let caption =
                format!("Under {}: what an emulated processor does not change", workload.workload);
            blocks.push(Block::table(caption, table));
        }
    }
    match analysis.workloads.as_slice() {
        [workload] => {
            let caption = format!("Ranking under {}", workload.workload);
            blocks.push(Block::table(caption, contenders(workload, plan)));
            blocks.push(Block::Answer(sentence(workload, plan)));
        }
        several => {
            blocks.push(Block::table("Overview", overview(several, plan)));
            blocks.push(Block::Text(legend(plan)));
            blocks.extend(short_sentences(several, plan).into_iter().map(Block::Answer));
        }
    }
    blocks.extend(pictures(source));
    blocks.push(Block::Text(certainty(source)));
    blocks.extend(analysis.gates.iter().map(|gate| Block::Text(gate_text(gate))));
    blocks.extend(warnings(source));
    blocks.extend(sessions::sentence(&sessions::sessions(source)).map(Block::Note));
    blocks
}

/// The pictures that belong to the answer.
fn pictures(source: &Source) -> Vec<Block> {
    match View::all(source).as_slice() {
        [view] => {
            let ratios = ratio::against_baseline(view).map(Block::Chart);
            ratios.into_iter().chain(maps(view)).collect()
        }
        _ => ratio::overview(source).map(Block::Chart).into_iter().collect(),
    }
}

/// The maps of a fio matrix, with what they are.
pub fn maps(view: &View<'_>) -> Vec<Block> {
    let maps: Vec<Block> = matrix::maps(view).into_iter().map(Block::Map).collect();
    match maps.is_empty() {
        true => maps,
        false => maps.into_iter().chain([Block::Text(matrix::explained(view.analysis))]).collect(),
    }
}

/// The loads down, the contenders across: the baseline's value and the ratios of the others to it.
fn overview(workloads: &[WorkloadAnalysis], plan: &Plan) -> Table {
    let baseline = plan.baseline_label();
    let mut labels = vec![baseline];
    let others = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    labels.extend(others.filter(|label| *label != baseline));
    let mut table = Table::new(&["load"]);
    table.heads.extend(labels.iter().map(|label| label.to_string()));
    for workload in workloads {
        let cells = labels.iter().map(|label| overview_cell(workload, label, baseline));
        table.rows.push(std::iter::once(workload.workload.as_str().into()).chain(cells).collect());
    }
    table
}

/// What the cells of the overview are.
fn legend(plan: &Plan) -> String {
    format!(
        "Times as fast as {} (the ends of its interval): + surely faster, - surely slower, = the same within {} %, ? not sure.",
        plan.baseline_label(),
        text::plain(plan.study.same_within * 100.0)
    )
}

/// `+ 1.19 (1.06 to 1.34)`: the sign of who is faster, how many times as fast, and the ends of the interval;
/// the ends alone where nothing is sure.
fn overview_cell(workload: &WorkloadAnalysis, label: &str, baseline: &str) -> Cell {
    let Some(contender) = workload.contender(label).filter(|contender| contender.trials > 0) else {
        return "-".into();
    };
    if contender.violation().is_some() {
        return checks::mark(contender).unwrap_or_default();
    }
    let Some(metric) = contender.metrics.first() else {
        if contender.failed == 0 {
            return checks::mark(contender).unwrap_or_else(|| "-".into());
        }
        return Cell::toned(format!("failed {}×", contender.failed), Tone::Bad);
    };
    if label == baseline {
        return Cell::number(
            metric.summary.median,
            text::figure(metric.summary.median, metric.unit),
        );
    }
    let compared = primary_comparisons(workload).find(|one| one.contender == label);
    let Some(comparison) = compared else { return "-".into() };
    let mark = verdict_mark(&comparison.verdict);
    let ratio = comparison.ratio.map(|ratio| text::ratio(speed_of(comparison, ratio)));
    let words = match (ratio, speeds(comparison)) {
        (Some(ratio), Some((low, high))) if is_telling(low, high) => {
            let ends = ends_text(low, high);
            match comparison.verdict {
                Verdict::AtMost { .. } | Verdict::Inconclusive => format!("{mark} {ends}"),
                _ => format!("{mark} {ratio} ({ends})"),
            }
        }
        (Some(ratio), None) => format!("{mark} {ratio}"),
        _ => mark.into(),
    };
    let valued = comparison.ratio.map(|ratio| speed_of(comparison, ratio));
    Cell::toned(words, tone_of(&comparison.verdict)).valued(valued)
}

/// The ends of an interval, with as many digits as it deserves.
fn ends_text(low: f64, high: f64) -> String {
    match high / low < 1.1 {
        true => format!("{low:.3} to {high:.3}"),
        false => format!("{low:.2} to {high:.2}"),
    }
}

/// The verdicts on each of several loads, without the numbers, which stand above; loads of which the
/// same is said stand together.
fn short_sentences(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    let said = workloads.iter().map(|one| (short_sentence(one, plan), one.workload.clone()));
    let said = text::grouped(said).into_iter();
    said.map(|(said, names)| format!("{}: {said}", text::list(&names))).collect()
}

fn short_sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    let baseline = plan.baseline_label();
    // Those whose gain and loss are bounded are told together: the table has each one's interval.
    let bounded = by_verdict(workload).into_iter().filter(|one| one.verdict.bound().is_some());
    let ends = bounded.filter_map(speeds).map(|(low, high)| (high - 1.0).max(1.0 - low));
    let at_most = ends.fold(0.0, f64::max);
    let verdict = |comparison: &Comparison| match &comparison.verdict {
        verdict if verdict.bound().is_some() => {
            format!("not surely different from {baseline} ({} at most)", percent_up(at_most))
        }
        Verdict::AtMost { .. } | Verdict::Inconclusive => "not decided".into(),
        verdict => verdict_text(verdict),
    };
    let part = |labels: &[String], words: &str| {
        let verb = if labels.len() == 1 { "is" } else { "are" };
        let article = if words.starts_with("same") { "the " } else { "" };
        format!("{} {verb} {article}{words}", text::list(labels))
    };
    sentence_of(workload, plan, verdict, part, ", ")
}

/// Who wins, by how much, how sure, of a result of one load.
pub fn sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    let part = |labels: &[String], said: &str| format!("{} {said}", text::list(labels));
    sentence_of(workload, plan, said, part, "; ")
}

/// A sentence of parts: what is said of comparisons, those of which the same is said together. Who
/// lost data is said first: whoever is fast without keeping what was written has won nothing.
fn sentence_of(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    said: impl Fn(&Comparison) -> String,
    part: impl Fn(&[String], &str) -> String,
    between: &str,
) -> String {
    let mut sentences = checks::lost(workload);
    if let Some(why) = nothing_to_compare(workload, plan) {
        sentences.extend(why);
        return sentences.join(" ");
    }
    let all = by_verdict(workload).into_iter().map(|one| (said(one), one.contender.clone()));
    let parts = text::grouped(all).into_iter().map(|(said, labels)| part(&labels, &said));
    let parts: Vec<String> = parts.chain(without_figure(workload)).collect();
    sentences.extend((!parts.is_empty()).then(|| format!("{}.", parts.join(between))));
    sentences.join(" ")
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

/// The comparisons of those that completed a trial: the decided ones first.
fn by_verdict(workload: &WorkloadAnalysis) -> Vec<&Comparison> {
    let mut found: Vec<&Comparison> = primary_comparisons(workload)
        .filter(|comparison| !has_no_figure(workload, &comparison.contender))
        .collect();
    found.sort_by_key(|comparison| match comparison.verdict {
        Verdict::Faster => 0,
        Verdict::Slower => 1,
        Verdict::Inconclusive => 3,
        _ => 2,
    });
    found
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

/// What is said of a contender: its ratio and interval as in the table.
fn said(comparison: &Comparison) -> String {
    let Comparison { baseline, ratio, low, high, blocks, .. } = comparison;
    let verdict = verdict_text(&comparison.verdict);
    let interval = low.zip(*high);
    match (&comparison.verdict, ratio, interval) {
        (Verdict::Faster | Verdict::Slower, Some(ratio), Some((low, high))) => {
            let (verb, words) = match comparison.unit.more_is_better() {
                true => ("has", format!("times the {} of", comparison.metric)),
                false => ("takes", "times as long as".to_string()),
            };
            format!(
                "{verb} {} {words} {baseline} ({} to {})",
                text::ratio(*ratio),
                text::ratio(low),
                text::ratio(high)
            )
        }
        (Verdict::Inconclusive, _, Some((low, high))) if is_telling(low, high) => {
            format!("against {baseline}: {verdict} ({} to {})", text::ratio(low), text::ratio(high))
        }
        (Verdict::Inconclusive, _, Some(_)) => {
            format!("against {baseline}: {verdict} (interval {TOO_WIDE})")
        }
        (Verdict::Inconclusive, ..) => format!(
            "against {baseline}: {verdict} (both completed {}, {BLOCKS_MIN_FOR_INTERVAL} are needed)",
            text::counted(*blocks, "block")
        ),
        (Verdict::AtMost { .. }, ..) => format!("is {verdict} than {baseline}"),
        _ => format!("against {baseline}: {verdict}"),
    }
}

/// What the numbers are, from how many blocks on what, and the promise about errors: once for all
/// loads.
fn certainty(source: &Source) -> String {
    let (plan, analysis) = (&source.plan, &source.analysis);
    let blocks = all_blocks_text(analysis.workloads.iter());
    let mut said = vec![format!("{blocks} on {}", device_text(plan))];
    if analysis.workloads.iter().any(|workload| !workload.comparisons.is_empty()) {
        said.push(match analysis.workloads.len() {
            // Beside each ratio stands the value of its contender.
            1 => "ratios are taken within each block, so they are not quotients of the values above",
            _ => "ratios are taken within each block",
        }.into());
        said.push(confidence(plan).into());
    }
    let open = analysis.forecast.filter(|forecast| forecast.open > 0);
    said.extend(open.map(|forecast| match forecast.blocks {
        Some(_) => format!("to decide what is open: {forecast}"),
        None => forecast.to_string(),
    }));
    said.extend(open.and_then(|_| disturbance(analysis)));
    let pairs = analysis.workloads.iter().flat_map(|workload| &workload.comparisons);
    // Who is not ranked has no interval, however many blocks there are.
    if pairs.clone().any(|one| (1..BLOCKS_MIN_FOR_INTERVAL).contains(&one.blocks)) {
        said.push(format!(
            "an interval needs {BLOCKS_MIN_FOR_INTERVAL} blocks in which both completed a trial"
        ));
    }
    sentences(&said)
}

/// What kept a study from deciding, where the machine did.
fn disturbance(analysis: &Analysis) -> Option<String> {
    let contenders = analysis.workloads.iter().flat_map(|workload| &workload.contenders);
    let all = Disturbed::of_all(contenders.filter_map(|one| one.disturbed.as_ref()));
    let is_much = all.runs() > 0 && all.runs() * DISTURBED_TOLD >= all.of;
    is_much.then(|| format!("the machine disturbed {all}; a quiet one decides sooner"))
}

/// One run in so many that the machine disturbed is told of.
const DISTURBED_TOLD: usize = 20;

/// Clauses as sentences.
fn sentences(clauses: &[String]) -> String {
    let sentence = |clause: &String| {
        let mut letters = clause.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        format!("{}{}.", first.unwrap_or_default(), letters.as_str())
    };
    clauses.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// How sure the intervals of the study are, together.
fn confidence(plan: &Plan) -> &'static str {
    let study = &plan.study;
    match study.workloads.len() * study.contenders.len().saturating_sub(1) {
        ..=1 => "95 % confidence",
        _ => "95 % confidence for all comparisons of the study together",
    }
}

/// A warning with the loads that it is about.
struct Told {
    text: String,
    workloads: Vec<String>,
}

/// What may change the decision, each once, the gravest first.
fn told(source: &Source) -> Vec<Told> {
    let of = |workload: &WorkloadAnalysis| {
        let grave = workload.warnings.iter().filter(|warning| warning.is_grave());
        let of_lab = grave.map(|warning| (rank(warning), warning_text(source, workload, warning)));
        let notes = notes(workload).into_iter().map(|text| (1, text));
        let all: Vec<(usize, String)> = of_lab.chain(notes).collect();
        let name = workload.workload.clone();
        all.into_iter().map(move |told| (told, name.clone()))
    };
    let mut all = text::grouped(source.analysis.workloads.iter().flat_map(of));
    all.sort_by_key(|((rank, _), _)| *rank);
    all.into_iter().map(|((_, text), workloads)| Told { text, workloads }).collect()
}

fn rank(warning: &Warning) -> usize {
    match warning.kind {
        Kind::Failures | Kind::UnequalWork => 0,
        // These make intervals wide, which says what they do to the decision.
        Kind::SlowFirstBlock
        | Kind::FastFirstBlock
        | Kind::Drift
        | Kind::Spread
        | Kind::SplitBlock => 2,
        _ => 1,
    }
}

/// The warnings that stand with the answer.
fn warnings(source: &Source) -> Vec<Block> {
    let several = source.analysis.workloads.len() > 1;
    let all = told(source);
    let more = all.len().saturating_sub(WARNINGS_MAX);
    let shown = all.into_iter().take(WARNINGS_MAX).map(|told| {
        let every = told.workloads.len() == source.analysis.workloads.len();
        Block::Warning(match several && !every {
            true => format!("{}: {}", text::list(&told.workloads), told.text),
            false => told.text,
        })
    });
    let mut blocks: Vec<Block> = shown.collect();
    if more > 0 {
        let counted = text::counted(more, "more warning");
        blocks.push(Block::Note(format!("{counted}: see the details of each load.")));
    }
    let left = source.plan.study.left_out.iter();
    blocks.extend(left.map(|left| {
        let missing = left.missing.join("; ");
        Block::Note(format!("left out: {} {}: {missing}", left.what, left.name))
    }));
    blocks
}

/// The warnings of one load that do not stand with the answer, and the notes.
pub fn other_remarks(source: &Source, workload: &WorkloadAnalysis) -> Vec<Block> {
    let all = told(source);
    let shown = |text: &String| all.iter().take(WARNINGS_MAX).any(|told| told.text == *text);
    let rest =
        all.iter().skip(WARNINGS_MAX).filter(|told| told.workloads.contains(&workload.workload));
    let mut blocks: Vec<Block> = rest.map(|told| Block::Warning(told.text.clone())).collect();
    let notes = workload.warnings.iter().filter(|warning| !warning.is_grave());
    let notes = notes.map(|warning| warning.to_string()).filter(|text| !shown(text));
    blocks.extend(notes.map(Block::Note));
    blocks
}

/// A warning in words; of failures with the reason of the first.
fn warning_text(source: &Source, workload: &WorkloadAnalysis, warning: &Warning) -> String {
    let of = |record: &&Record| {
        warning.kind == Kind::Failures
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
            let last = output.lines().rfind(|line| !line.trim().is_empty());
            let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
            Some(format!("{failed}{message}{last}"))
        }
        Outcome::TimedOut { phase, limit_ns } => Some(format!(
            "{} reached the time limit of {} for a trial",
            phase.name(),
            text::time(*limit_ns as f64)
        )),
        Outcome::Interrupted { phase } => Some(format!("interrupted in {}", phase.name())),
    }
}

/// What must be known before contenders are compared by the primary metric, each once, with the
/// contenders whom it concerns where it is not all.
fn notes(workload: &WorkloadAnalysis) -> Vec<String> {
    let has_figure = |contender: &&ContenderAnalysis| !contender.metrics.is_empty();
    let all = workload.contenders.iter().filter(has_figure).count();
    let of = |one: &ContenderAnalysis| {
        let label = one.label.clone();
        one.notes.clone().into_iter().map(move |note| (note, label.clone()))
    };
    text::grouped(workload.contenders.iter().flat_map(of))
        .into_iter()
        .map(|(note, labels)| match labels.len() == all {
            true => note,
            false => format!("{}: {note}", text::list(&labels)),
        })
        .collect()
}

#[cfg(test)]
mod tests;
