//! The tables of a result, the same for the terminal and for Markdown.

use lab::analysis::{
    AmplificationBasis, Analysis, Comparison, ContenderAnalysis, MetricAnalysis, WorkloadAnalysis,
};
use lab::load::{Load, MatrixCell, OVERALL_OPERATION};
use lab::plan::Plan;
use lab::record::{Phase, TIME_METRIC};
use lab::statistics::Verdict;
use lab::words::{TOO_WIDE, ratio_with_interval, too_wide_explained};

use crate::table::{Cell, Screen, Table, Tone};
use crate::text;
use crate::{overhead, profile, quotient, sentence};

/// The table of a workload: one row a contender, the fastest first.
pub fn contenders(workload: &WorkloadAnalysis, plan: &Plan) -> Table {
    let baseline = plan.baseline_label();
    let ratio_head = format!("ratio to {baseline}");
    let primary = primary_metric(workload);
    let metric_head = format!("{primary} [interval]");
    let mut table = Table::new(&[
        "contender",
        &metric_head,
        &ratio_head,
        "verdict",
        "CPU",
        "written",
        "flushes",
        "amplif.",
    ]);
    for contender in ranked(workload) {
        let cost = &contender.cost;
        let optional = |value: Option<f64>, text: fn(f64) -> String| {
            Cell::from(value.map_or("-".to_string(), text)).valued(value)
        };
        let [time, ratio, verdict] = answer_cells(workload, contender, baseline);
        table.rows.push(vec![
            contender.label.as_str().into(),
            time,
            ratio,
            verdict,
            optional(cost.command_cpu_ns, text::time),
            optional(cost.device_written_bytes, text::bytes),
            optional(cost.device_flushes, text::count),
            optional(cost.write_amplification, |value| format!("{value:.2}")),
        ]);
    }
    table.without_empty_columns()
}

/// Figure, ratio and verdict of one contender.
pub(crate) fn answer_cells(
    workload: &WorkloadAnalysis,
    contender: &ContenderAnalysis,
    baseline: &str,
) -> [Cell; 3] {
    let figure = match contender.metrics.first() {
        Some(metric) => metric_cell(metric),
        None if contender.trials == 0 => "-".into(),
        None => Cell::toned(format!("failed {}×", contender.failed), Tone::Bad),
    };
    let [ratio, verdict] = comparison_cells(workload, contender, baseline);
    [figure, ratio, verdict]
}

/// Name of the most important figure of a workload.
pub(crate) fn primary_metric(workload: &WorkloadAnalysis) -> &str {
    workload.comparisons.first().map_or_else(
        || {
            let metrics = workload.contenders.iter().flat_map(|contender| &contender.metrics);
            metrics.map(|metric| metric.name.as_str()).next().unwrap_or(TIME_METRIC)
        },
        |comparison| comparison.metric.as_str(),
    )
}

/// The comparisons of the most important figure.
pub(crate) fn primary_comparisons(
    workload: &WorkloadAnalysis,
) -> impl Iterator<Item = &Comparison> {
    let primary = primary_metric(workload);
    workload.comparisons.iter().filter(move |comparison| comparison.metric == primary)
}

fn metric_cell(metric: &MetricAnalysis) -> Cell {
    let interval = metric.summary.median_interval.map(|interval| (interval.low, interval.high));
    Cell::number(
        metric.summary.median,
        text::figure_with_interval(metric.summary.median, interval, metric.unit),
    )
}

/// The medians of a contender and of the baseline divided, where both have the figure.
fn quotient_of_medians(workload: &WorkloadAnalysis, comparison: &Comparison) -> Option<f64> {
    let median = |label: &str| {
        let contender = workload.contenders.iter().find(|contender| contender.label == label)?;
        let metric = contender.metrics.iter().find(|metric| metric.name == comparison.metric)?;
        Some(metric.summary.median)
    };
    Some(median(&comparison.contender)? / median(&comparison.baseline)?)
}

/// The mark of a ratio with which the medians beside it disagree; empty where they agree.
fn aside_mark(workload: &WorkloadAnalysis, comparison: &Comparison) -> &'static str {
    let ends = comparison.low.zip(comparison.high);
    let both = comparison.ratio.zip(quotient_of_medians(workload, comparison));
    match both.is_some_and(|(ratio, medians)| quotient::is_aside(medians, ratio, ends)) {
        true => quotient::MARK,
        false => "",
    }
}

/// What must be said below a table of medians and ratios: of the ratios that the medians do not
/// divide to, and of those that are withheld.
fn ratio_notes<'a>(
    workload: &WorkloadAnalysis,
    mut shown: impl Iterator<Item = &'a Comparison> + Clone,
) -> Vec<String> {
    let mut notes = Vec::new();
    if shown.clone().any(|comparison| !aside_mark(workload, comparison).is_empty()) {
        notes.push(quotient::mark_explained());
    }
    let is_withheld = |comparison: &Comparison| {
        comparison.ratio.is_none() && quotient_of_medians(workload, comparison).is_some()
    };
    if shown.any(is_withheld) {
        notes.push(quotient::withheld_explained());
    }
    notes
}

/// What must be said below [`contenders`], a line each.
pub fn contenders_explained(workload: &WorkloadAnalysis) -> Vec<String> {
    let primary = primary_metric(workload);
    let all = workload.comparisons.iter();
    let mut notes = sentence::caveats(workload);
    notes.extend(ratio_notes(workload, all.filter(|comparison| comparison.metric == primary)));
    notes
}

/// The figures of a workload that has several: one row a figure, one column a contender, with the
/// ratio to the baseline and a mark for the verdict.
pub fn metrics(workload: &WorkloadAnalysis, plan: &Plan) -> Table {
    let mut heads = vec!["figure".to_string()];
    heads.extend(plan.study.contenders.iter().map(|contender| contender.label.clone()));
    let mut table = Table { heads, rows: Vec::new() };
    let mut names: Vec<&str> = Vec::new();
    for metric in workload.contenders.iter().flat_map(|contender| &contender.metrics) {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    if names.len() < 2 {
        return table;
    }
    for name in names {
        let mut row: Vec<Cell> = vec![name.into()];
        for contender in &workload.contenders {
            let metric = contender.metrics.iter().find(|metric| metric.name == name);
            let comparison = workload.comparisons.iter().find(|comparison| {
                comparison.metric == name && comparison.contender == contender.label
            });
            row.push(match (metric, comparison) {
                (None, _) => "-".into(),
                (Some(metric), None) => text::figure(metric.summary.median, metric.unit).into(),
                (Some(metric), Some(comparison)) => {
                    let ratio = match comparison.ratio {
                        Some(ratio) => format!(
                            "×{}{} {}",
                            text::ratio(ratio),
                            aside_mark(workload, comparison),
                            verdict_mark(&comparison.verdict)
                        ),
                        None => quotient::WITHHELD.into(),
                    };
                    let figure = text::figure(metric.summary.median, metric.unit);
                    Cell::toned(format!("{figure} {ratio}"), tone_of(&comparison.verdict))
                }
            });
        }
        table.rows.push(row);
    }
    table
}

/// Bytes in a MiB, the unit of every rate here; published numbers keep their own.
const MEBIBYTE: f64 = 1_048_576.0;

/// More kinds of operation than these (those of a fio matrix) are not shown as a table.
const LATENCY_KINDS_MAX: usize = 40;

/// Latencies by kind of operation and contender; empty for loads that record none, and for those
/// of too many kinds, of which [`latencies_left_out`] tells.
pub fn latencies(workload: &WorkloadAnalysis, plan: &Plan) -> Table {
    let load = plan.study.workloads.iter().find(|entry| entry.name == workload.workload);
    let mut table = Table::new(&[
        "latency",
        "contender",
        "count, all trials",
        "5 %",
        "50 %",
        "90 %",
        "95 %",
        "99 %",
        "99.9 %",
        "99.99 %",
        "max",
        "MiB/s",
    ]);
    let kinds = latency_kinds(workload);
    if kinds.len() > LATENCY_KINDS_MAX {
        return table;
    }
    for kind in kinds {
        for contender in &workload.contenders {
            let Some(latency) = contender.latencies.iter().find(|entry| entry.operation == kind)
            else {
                continue;
            };
            let time = |ns: u64| Cell::from(text::time(ns as f64));
            // What one client saw: bytes over the sum of the latencies. Of all kinds together it would mean nothing: a reader and a
            // writer side by side move more than either, and their latencies add up all the same.
            let rate = match (latency.bytes, latency.total_ns) {
                (0, _) | (_, 0) => "-".to_string(),
                _ if kind == OVERALL_OPERATION
                    || load.is_some_and(|entry| has_queue(&entry.load, kind)) =>
                {
                    "-".to_string()
                }
                (bytes, total_ns) => {
                    format!("{:.1}", bytes as f64 / MEBIBYTE * 1e9 / total_ns as f64)
                }
            };
            table.rows.push(vec![
                kind.replace('_', " ").into(),
                contender.label.as_str().into(),
                text::count(latency.count as f64).into(),
                time(latency.p5_ns),
                time(latency.p50_ns),
                time(latency.p90_ns),
                time(latency.p95_ns),
                time(latency.p99_ns),
                time(latency.p99_9_ns),
                time(latency.p99_99_ns),
                time(latency.max_ns),
                rate.into(),
            ]);
        }
    }
    table
}

/// Whether operations of this kind wait side by side: the sum of their latencies is then no time
/// that passed.
fn has_queue(load: &Load, kind: &str) -> bool {
    let cell = kind.strip_suffix("-read").or(kind.strip_suffix("-write")).unwrap_or(kind);
    match cell.parse::<MatrixCell>() {
        Ok(cell) => cell.depth > 1,
        // Of fio's own options: an engine without a queue takes no notice of it, and which engines
        // have one is fio's matter.
        Err(_) => load
            .options
            .get("text")
            .and_then(|text| text.as_str())
            .is_some_and(|text| text.contains("iodepth")),
    }
}

fn latency_kinds(workload: &WorkloadAnalysis) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::new();
    for latency in workload.contenders.iter().flat_map(|contender| &contender.latencies) {
        if !kinds.contains(&latency.operation.as_str()) {
            kinds.push(&latency.operation);
        }
    }
    kinds
}

/// Where the latencies are that are too many for a table.
pub fn latencies_left_out(workload: &WorkloadAnalysis) -> Option<String> {
    let kinds = latency_kinds(workload).len();
    (kinds > LATENCY_KINDS_MAX).then(|| {
        format!(
            "latencies of {kinds} kinds of operation: too many for a table; they stand in report.html, and in FILE.latencies.csv of --export-csv FILE.csv"
        )
    })
}

/// How the trials are put together in [`latencies`].
pub const LATENCIES_EXPLAINED: &str = "of all trials together: their histograms are merged, no percentile is averaged, and the count is of all of them too; MiB/s of a kind: its bytes over the sum of its latencies, what one client saw that waits for each operation (none of a queue)";

/// What the loads found, a line each with the contender's label; what all found alike, such as the
/// proof that they did the same work, stands once.
pub fn findings(workload: &WorkloadAnalysis) -> Vec<String> {
    let contenders = &workload.contenders;
    let is_common = |finding: &String| {
        contenders.len() > 1
            && contenders.iter().all(|contender| contender.findings.contains(finding))
    };
    let mut lines = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        for finding in &contender.findings {
            match is_common(finding) {
                true if index == 0 => lines.push(format!("every contender: {finding}")),
                true => {}
                false => lines.push(format!("{}: {finding}", contender.label)),
            }
        }
    }
    lines
}

/// A verdict in one character, for narrow cells; explained by [`metrics_explained`].
fn verdict_mark(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "+",
        Verdict::Slower => "-",
        Verdict::Same { .. } => "=",
        Verdict::AtMostSlower { .. } | Verdict::AtMostFaster { .. } => "~",
        Verdict::Inconclusive => "?",
    }
}

/// What the marks of [`metrics`] mean.
pub fn metrics_explained(workload: &WorkloadAnalysis) -> String {
    let marks = "×ratio to the baseline: + better, - worse, = the same within the margin, ~ bounded on one side, ? inconclusive";
    let mut said = vec![marks.to_string()];
    said.extend(ratio_notes(workload, workload.comparisons.iter()));
    said.join("; ")
}

/// The contenders, the best median first, those without one last.
pub(crate) fn ranked(workload: &WorkloadAnalysis) -> Vec<&ContenderAnalysis> {
    let mut contenders: Vec<_> = workload.contenders.iter().collect();
    let key = |contender: &ContenderAnalysis| {
        contender.metrics.first().map_or(f64::INFINITY, |metric| {
            let median = metric.summary.median;
            if metric.unit.more_is_better() { -median } else { median }
        })
    };
    contenders.sort_by(|one, other| key(one).total_cmp(&key(other)));
    contenders
}

/// `1.025 [0.993, 1.059]`.
fn ratio_text(comparison: &Comparison) -> String {
    let ends = comparison.low.zip(comparison.high);
    comparison.ratio.map_or("-".into(), |ratio| ratio_with_interval(ratio, ends))
}

/// Ratio and verdict. Where one of the two completed no trial there is nothing to compare, and the
/// verdict says which.
fn comparison_cells(
    workload: &WorkloadAnalysis,
    contender: &ContenderAnalysis,
    baseline: &str,
) -> [Cell; 2] {
    let none = |verdict: &str, tone: Tone| ["-".into(), Cell::toned(verdict, tone)];
    let is_baseline = contender.label == baseline;
    match (contender.metrics.is_empty(), is_baseline) {
        (true, _) if contender.trials == 0 => return none("-", Tone::Plain),
        (true, true) => return none("baseline failed", Tone::Bad),
        (true, false) => return none("failed", Tone::Bad),
        (false, true) => return ["1".into(), Cell::toned("baseline", Tone::Faint)],
        (false, false) if has_no_figure(workload, baseline) => {
            return none("no baseline", Tone::Doubtful);
        }
        (false, false) => {}
    }
    let comparison =
        primary_comparisons(workload).find(|comparison| comparison.contender == contender.label);
    let Some(comparison) = comparison else { return none("-", Tone::Plain) };
    let verdict = &comparison.verdict;
    let ratio = match comparison.ratio {
        Some(_) => ratio_text(comparison) + aside_mark(workload, comparison),
        None => quotient::WITHHELD.into(),
    };
    [
        Cell::from(ratio).valued(comparison.ratio),
        Cell::toned(verdict_text(verdict), tone_of(verdict)),
    ]
}

/// Whether the contender with this label completed no trial.
pub(crate) fn has_no_figure(workload: &WorkloadAnalysis, label: &str) -> bool {
    let of = |contender: &&ContenderAnalysis| contender.label == label;
    workload.contenders.iter().find(of).is_none_or(|contender| contender.metrics.is_empty())
}

/// A verdict in words.
pub fn verdict_text(verdict: &Verdict) -> String {
    verdict.to_string()
}

/// The tone of a verdict.
pub fn tone_of(verdict: &Verdict) -> Tone {
    match verdict {
        Verdict::Faster => Tone::Good,
        Verdict::Slower => Tone::Bad,
        Verdict::Same { .. } | Verdict::AtMostSlower { .. } | Verdict::AtMostFaster { .. } => {
            Tone::Plain
        }
        Verdict::Inconclusive => Tone::Doubtful,
    }
}

/// The table of phases: medians, one row a contender.
pub fn phases(workload: &WorkloadAnalysis) -> Table {
    const SHOWN: &[Phase] = &[
        Phase::Mkfs,
        Phase::Mount,
        Phase::Setup,
        Phase::Layout,
        Phase::Settle,
        Phase::Run,
        Phase::Verify,
        Phase::Sync,
        Phase::Unmount,
        Phase::Check,
    ];
    let mut heads = vec!["phases"];
    heads.extend(SHOWN.iter().map(|phase| phase.name()));
    let mut table = Table::new(&heads);
    for contender in ranked(workload) {
        let mut row: Vec<Cell> = vec![contender.label.as_str().into()];
        for phase in SHOWN {
            let entry = contender.phases.iter().find(|(entry, _)| entry == phase);
            row.push(entry.map_or("-".into(), |(_, ns)| Cell::from(text::time(*ns))));
        }
        table.rows.push(row);
    }
    table.without_empty_columns()
}

/// The blocks of a workload: `3 blocks`, or, where a block was begun and not finished, `3 whole
/// blocks and a part of another`.
pub fn blocks_text(workload: &WorkloadAnalysis) -> String {
    all_blocks_text(std::iter::once(workload))
}

/// The blocks of all workloads: `3 to 4 blocks` where they have not the same number.
pub fn all_blocks_text<'a>(
    workloads: impl Iterator<Item = &'a WorkloadAnalysis> + Clone,
) -> String {
    let whole = || workloads.clone().map(|workload| workload.blocks_whole);
    let range = (whole().min().unwrap_or(0), whole().max().unwrap_or(0));
    let mut parted = workloads.clone().filter(|one| one.blocks > one.blocks_whole);
    let begun = parted.next().map_or(range.1, |_| range.1 + 1);
    blocks_words(range, begun)
}

fn blocks_words((least, most): (u32, u32), begun: u32) -> String {
    let whole = if begun > most { "whole block" } else { "block" };
    let count = match least == most {
        true => text::counted(most as usize, whole),
        false => format!("{least} to {most} {whole}s"),
    };
    match begun > most {
        true => format!("{count} and a part of another"),
        false => count,
    }
}

/// What the trials stood on, in words.
pub(crate) fn device_text(plan: &Plan) -> String {
    match plan.study.device.split_once(':') {
        _ if plan.study.contenders.iter().all(|contender| contender.directory.is_some()) => {
            "existing directories".into()
        }
        Some(("loop", _)) => format!("an image file ({})", plan.study.device),
        Some(("mem", _)) => format!("memory ({})", plan.study.device),
        _ => plan.study.device.clone(),
    }
}

/// Remarks below the table that explain its columns.
pub fn footnotes(workload: &WorkloadAnalysis) -> Vec<String> {
    let mut notes = Vec::new();
    let by_calls = |contender: &ContenderAnalysis| {
        contender.cost.amplification_basis == Some(AmplificationBasis::WriteCalls)
            && contender.cost.write_amplification.is_some()
    };
    if workload.contenders.iter().any(by_calls) {
        notes.push(
            "amplification: device bytes over bytes passed to write calls, pipes included; what the kernel counts as storage writes differs between these contenders, or is not known of all".into(),
        );
    }
    notes
}

/// All that is said of every workload.
pub fn terminal(plan: &Plan, analysis: &Analysis, colour: bool) -> Screen {
    use std::fmt::Write;
    let mut out = Screen::new(colour);
    if let Some(line) = profile::line(plan, analysis) {
        let _ = write!(out, "  ");
        out.paint(&trust::text::line(&line), Tone::Strong);
        let _ = writeln!(out, "\n");
    }
    for workload in &analysis.workloads {
        if analysis.workloads.len() > 1 {
            out.paint(&trust::text::line(&workload.workload), Tone::Strong);
            let _ = writeln!(out);
        }
        out.append(&contenders(workload, plan).terminal(colour));
        let _ = writeln!(out);
        for note in contenders_explained(workload) {
            let _ = writeln!(out, "{}", text::prose("  ", &note));
        }
        terminal_figures(&mut out, workload, plan);
        out.append(&phases(workload).terminal(colour));
        let _ = writeln!(out);
        terminal_remarks(&mut out, workload);
        let sentence = text::prose("  ", &sentence::sentence(workload, plan));
        let _ = writeln!(out);
        out.paint(sentence.trim_end(), Tone::Strong);
        let _ = writeln!(out, "\n");
    }
    for gate in &analysis.gates {
        let outcome = gate_text(&gate.outcome);
        let said = format!("  gate '{}' ({}): {outcome}", gate.gate, gate.workload);
        let _ = writeln!(out, "{}", trust::text::line(&said));
    }
    if out.contains(TOO_WIDE) {
        let _ = writeln!(out, "{}", text::prose("  ", &too_wide_explained()));
    }
    out
}

/// The tables of the load's own figures, of what is lost, and of the latencies.
fn terminal_figures(out: &mut Screen, workload: &WorkloadAnalysis, plan: &Plan) {
    use std::fmt::Write;
    let figures = metrics(workload, plan);
    if !figures.rows.is_empty() {
        out.append(&figures.terminal(out.colour()));
        let _ = writeln!(out, "{}", text::prose("  ", &metrics_explained(workload)));
    }
    for lost in overhead::tables(workload) {
        out.append(&lost.terminal(out.colour()));
        let _ = writeln!(out);
    }
    if !workload.overhead.is_empty() {
        let _ = writeln!(out, "{}", text::prose("  ", &overhead::explained(workload)));
    }
    let figures = latencies(workload, plan);
    if !figures.rows.is_empty() {
        out.append(&figures.terminal(out.colour()));
        let _ = writeln!(out, "{}", text::prose("  ", LATENCIES_EXPLAINED));
    }
}

/// Findings, notes and warnings.
fn terminal_remarks(out: &mut Screen, workload: &WorkloadAnalysis) {
    use std::fmt::Write;
    let notes = footnotes(workload).into_iter().chain(latencies_left_out(workload));
    for remark in findings(workload).into_iter().chain(notes) {
        let _ = write!(out, "{}", text::prose("  ", &remark));
    }
    for warning in &workload.warnings {
        let (word, tone) = match warning.is_grave() {
            true => ("Warning:", Tone::Doubtful),
            false => ("Note:", Tone::Faint),
        };
        let said = text::prose("  ", &format!("{word} {warning}"));
        let _ = write!(out, "  ");
        out.paint(word, tone);
        let _ = write!(out, "{}", &said[2 + word.len()..]);
    }
}

/// The outcome of a gate in words.
pub fn gate_text(outcome: &lab::statistics::GateOutcome) -> &'static str {
    use lab::statistics::GateOutcome;
    match outcome {
        GateOutcome::Holds => "holds",
        GateOutcome::Fails => "fails",
        GateOutcome::Inconclusive => "inconclusive",
    }
}

#[cfg(test)]
mod tests;
