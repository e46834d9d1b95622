//! The tables of a result, and the words that they share.

use lab::analysis::{
    Comparison, ContenderAnalysis, MetricAnalysis, WorkloadAnalysis, completed_trials,
};
use lab::condition::{Gate, GateOutcome};
use lab::device::{Base, DeviceName, IMAGE, MEMORY};
use lab::plan::Plan;
use lab::record::{Outcome, Phase, Record, TIME_METRIC, unfinished_block};
use lab::statistics::{Interval, MEDIAN_CONFIDENCE, SampleSummary, Slow, Verdict};
use lab::warning::WarningKind;
use lab::watched::{DisturbanceCause, Watched, causes};
use lab::workload::{DEPTH_AXIS, OVERALL_OPERATION, QUANTILES, WorkloadSpec, differ_by_operation};

use crate::source::ResultSource;
use crate::table::{Cell, Table, Tone};
use crate::{checks, quotient, text};

/// The ranking under a workload: one row a contender, the best first. Where reads rank, writes are next to them.
pub fn contenders(workload: &WorkloadAnalysis, plan: &Plan) -> Table {
    let baseline = plan.baseline_label();
    let (primary, others) = (primary_metric(workload), other_operations(workload));
    let head = |metric: &str| {
        let all = workload.contenders.iter().flat_map(|one| &one.metrics);
        let mut summaries = all.filter(|one| one.name == metric).map(|one| &one.summary);
        if summaries.any(|one| one.count > 1) {
            format!("{metric} ({})", brackets_of(workload, metric))
        } else {
            metric.to_string()
        }
    };
    let mut heads = vec![
        "contender".to_string(),
        head(primary),
        "cost (95 % confidence)".into(),
        "verdict".into(),
    ];
    heads.extend(others.iter().flat_map(|metric| [head(metric), format!("cost by {metric}")]));
    heads.push("notes".into());
    let kinds = p99_kinds(workload);
    heads.extend(kinds.iter().map(|kind| match kinds.len() {
        1 => "p99".to_string(),
        _ => format!("p99 {}", operation_text(kind)),
    }));
    heads.extend(["written", "space", "CPU", "checks"].map(str::to_string));
    let mut table = Table { heads, rows: Vec::new() };
    for contender in ranked(workload) {
        let cells = answer_cells(workload, contender, baseline).into_iter();
        let cells = cells.chain(others.iter().flat_map(|metric| {
            let found = contender.metrics.iter().find(|one| one.name == *metric);
            let compared = workload
                .comparisons
                .iter()
                .find(|one| one.metric == *metric && one.contender == contender.label);
            let cost = match compared {
                None if contender.label == baseline && found.is_some() => Cell::from("1"),
                None => Cell::from("-"),
                Some(one) => cost_cell(one),
            };
            [found.map_or_else(|| "-".into(), |found| metric_cell(workload, found)), cost]
        }));
        let cost = &contender.cost;
        let cells = cells.chain([notes_cell(workload, contender)]);
        let cells = cells.chain(kinds.iter().map(|kind| p99_cell(workload, contender, kind)));
        let cells = cells.chain([
            Cell::maybe(cost.device_written_bytes, text::bytes),
            Cell::maybe(cost.space_taken_bytes, text::bytes),
            Cell::maybe(cost.command_cpu_ns, text::time),
            checks::cell(contender),
        ]);
        table.rows.push(std::iter::once(contender.label.as_str().into()).chain(cells).collect());
    }
    table.without_empty_columns()
}

/// The figures of other operations that are measured together with the most important one, such as `write operations`
/// of a job that reads and writes.
pub(crate) fn other_operations(workload: &WorkloadAnalysis) -> Vec<&str> {
    let metrics = || workload.contenders.iter().flat_map(|contender| &contender.metrics);
    let Some(first) = metrics().find(|one| one.name == primary_metric(workload)) else {
        return Vec::new();
    };
    let is_other = |one: &&MetricAnalysis| {
        one.unit == first.unit && differ_by_operation(&first.axes, &one.axes)
    };
    text::distinct(metrics().filter(is_other).map(|one| one.name.as_str()))
}

/// What the brackets around all of these values hold: an interval of 95 % confidence, or, where some have too few
/// values for one, the least and the greatest.
pub fn brackets<'a>(mut summaries: impl Iterator<Item = &'a SampleSummary>) -> &'static str {
    let is_range = |summary: &SampleSummary| {
        let is_sure = |interval: Interval| interval.confidence >= MEDIAN_CONFIDENCE;
        summary.count > 1 && !summary.median_interval.is_some_and(is_sure)
    };
    if summaries.any(is_range) { MIN_MAX } else { "95 % confidence" }
}

/// The same of a metric of a workload.
fn brackets_of(workload: &WorkloadAnalysis, metric: &str) -> &'static str {
    let all = workload.contenders.iter().flat_map(|one| &one.metrics);
    brackets(all.filter(|one| one.name == metric).map(|one| &one.summary))
}

/// What the brackets around one of them hold, by what they hold around all; none around a single value.
pub fn bracketed(summary: &SampleSummary, brackets: &str) -> Option<(f64, f64)> {
    if brackets == MIN_MAX {
        return (summary.count > 1).then_some((summary.min, summary.max));
    }
    summary.median_interval.map(|interval| (interval.low, interval.high))
}

/// What stands for the least and the greatest value.
pub const MIN_MAX: &str = "min-max";

/// What an emulated processor does not change, of each workload and contender; none where the processor
/// was a real one.
pub fn unchanged(workloads: &[WorkloadAnalysis]) -> Option<Table> {
    let is_emulated = |one: &&WorkloadAnalysis| {
        one.warnings.iter().any(|warning| warning.kind == WarningKind::Emulated)
    };
    let of = || workloads.iter().filter(is_emulated);
    of().next()?;
    let mut table = Table::new(&["workload", "contender", "written", "flushes", "amplification"]);
    for (workload, contender) in of().flat_map(|one| one.contenders.iter().map(move |c| (one, c))) {
        let cost = &contender.cost;
        table.rows.push(vec![
            // The name of the only load is needed nowhere.
            if workloads.len() > 1 { workload.workload.as_str() } else { "-" }.into(),
            contender.label.as_str().into(),
            Cell::maybe(cost.device_written_bytes, text::bytes),
            Cell::maybe(cost.device_flushes, text::count),
            Cell::maybe(cost.write_amplification, |value| format!("{value:.2}")),
        ]);
    }
    Some(table.without_empty_columns())
}

/// Figure, ratio and verdict of one contender.
fn answer_cells(
    workload: &WorkloadAnalysis,
    contender: &ContenderAnalysis,
    baseline: &str,
) -> [Cell; 3] {
    let figure = match contender.metrics.first() {
        Some(metric) => metric_cell(workload, metric),
        None if contender.failed == 0 => "-".into(),
        None => Cell::toned(format!("failed {}×", contender.failed), Tone::Bad),
    };
    let [ratio, verdict] = comparison_cells(workload, contender, baseline);
    [figure, ratio, verdict]
}

/// `3 of 15 runs slow; cost of the means 1.24`: what could overturn the cost of this contender.
pub(crate) fn notes_cell(workload: &WorkloadAnalysis, contender: &ContenderAnalysis) -> Cell {
    let of = |slow: Slow| format!("{} of {} runs slow", slow.trials, slow.of);
    let own = primary_comparisons(workload).find(|one| one.contender == contender.label);
    let mut words: Vec<String> = match own {
        None => primary_comparisons(workload)
            .filter(|one| one.baseline == contender.label)
            .find_map(|one| one.baseline_slow.map(of))
            .into_iter()
            .collect(),
        Some(one) => {
            let mean = one.mean_ratio.filter(|_| one.slow.or(one.baseline_slow).is_some());
            let mean =
                mean.map(|mean| format!("cost of the means {}", text::ratio(one.cost_of(mean))));
            one.slow.map(of).into_iter().chain(mean).collect()
        }
    };
    let all = contender.trials.max(contender.failed);
    if contender.failed > 0 && contender.failed < all {
        words.insert(0, format!("{} of {all} runs failed", contender.failed));
    }
    words.extend(contender.disturbed.as_ref().map(|some| format!("disturbed: {some}")));
    if words.is_empty() { "-".into() } else { Cell::toned(words.join("; "), Tone::Uncertain) }
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

fn metric_cell(workload: &WorkloadAnalysis, metric: &MetricAnalysis) -> Cell {
    let ends = bracketed(&metric.summary, brackets_of(workload, &metric.name));
    let median = metric.summary.median;
    Cell::number(median, text::figure_with_interval(median, ends, metric.unit))
}

/// The metrics of a workload that has several: one row a metric, one column a contender, with the
/// ratio to the baseline and a mark for the verdict.
pub fn metrics(workload: &WorkloadAnalysis) -> Table {
    let mut heads = vec!["metric".to_string()];
    let ranked = ranked(workload);
    heads.extend(ranked.iter().map(|contender| contender.label.clone()));
    let mut table = Table { heads, rows: Vec::new() };
    let all = workload.contenders.iter().flat_map(|contender| &contender.metrics);
    let names = text::distinct(all.map(|metric| metric.name.as_str()));
    if names.len() < 2 {
        return table;
    }
    for name in names {
        let mut row: Vec<Cell> = vec![name.into()];
        for contender in &ranked {
            let metric = contender.metrics.iter().find(|metric| metric.name == name);
            let mut comparisons = workload.comparisons.iter().filter(|_| !is_said(workload, name));
            let comparison = comparisons.find(|comparison| {
                comparison.metric == name && comparison.contender == contender.label
            });
            row.push(match (metric, comparison) {
                (None, _) => "-".into(),
                (Some(metric), None) => text::figure(metric.summary.median, metric.unit).into(),
                (Some(metric), Some(comparison)) => {
                    against(text::figure(metric.summary.median, metric.unit), comparison)
                }
            });
        }
        table.rows.push(row);
    }
    table
}

/// Whether the costs of a bandwidth are those of the operations before it: of blocks of one size they are the same
/// measurement.
pub(crate) fn is_said(workload: &WorkloadAnalysis, bandwidth: &str) -> bool {
    let of = |metric: String| {
        let all = workload.comparisons.iter().filter(move |one| one.metric == metric);
        all.filter_map(Comparison::cost).collect::<Vec<f64>>()
    };
    let Some(what) = bandwidth.strip_suffix("bandwidth") else { return false };
    let (own, other) = (of(bandwidth.into()), of(format!("{what}operations")));
    let is_near = |(one, other): (&f64, &f64)| (one / other - 1.0).abs() < SAME_MEASUREMENT;
    !own.is_empty() && own.len() == other.len() && own.iter().zip(&other).all(is_near)
}

/// Costs of one measurement in two units differ by no more than this share.
const SAME_MEASUREMENT: f64 = 0.002;

/// Mean, standard deviation and extremes of the most important figure: one row a contender, over its rounds.
pub fn spread(workload: &WorkloadAnalysis) -> Table {
    let heads =
        ["contender", "rounds", "mean", "standard deviation", "minimum", "median", "maximum"];
    let mut table = Table::new(&heads);
    for contender in ranked(workload) {
        let Some(metric) = contender.metrics.first() else { continue };
        let SampleSummary { count, mean, standard_deviation, min, median, max, .. } =
            metric.summary;
        let figures = [mean, standard_deviation, min, median, max]
            .map(|value| Cell::number(value, text::figure(value, metric.unit)));
        let begin = [contender.label.as_str().into(), Cell::whole(count as u64)];
        table.rows.push(begin.into_iter().chain(figures).collect());
    }
    table
}

/// A figure with its cost relative to the baseline's and the mark of the verdict.
pub(crate) fn against(figure: String, comparison: &Comparison) -> Cell {
    let mark = verdict_mark(&comparison.verdict);
    let ratio = match comparison.cost() {
        Some(cost) => format!("×{} {mark}", text::ratio(cost)),
        // Against nothing at all.
        None if comparison.verdict.is_decided() => mark.into(),
        None => quotient::WITHHELD.into(),
    };
    Cell::toned(format!("{figure} {ratio}").trim_start(), tone_of(&comparison.verdict))
}

/// Bytes in a MiB, the unit of every rate here; published numbers keep their own.
const MEBIBYTE: f64 = 1_048_576.0;

/// More kinds of operation than these (those of a fio matrix) are not shown as a table.
pub(crate) const LATENCY_KINDS_MAX: usize = 40;

/// Latencies by kind of operation and contender; empty for loads that record none, and for those
/// of too many kinds, of which [`latencies_left_out`] tells.
pub fn latencies(workload: &WorkloadAnalysis, plan: &Plan) -> Table {
    let load = plan.study.workloads.iter().find(|entry| entry.name == workload.workload);
    let mut table = Table::new(&[
        "latency",
        "contender",
        "count, all runs",
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
    let all = workload.contenders.iter().flat_map(|contender| &contender.latencies);
    let kinds = text::distinct(all.map(|latency| latency.operation.as_str()));
    if kinds.len() > LATENCY_KINDS_MAX {
        return table;
    }
    for kind in kinds {
        for contender in ranked(workload) {
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
                    || load.is_some_and(|entry| has_queue(&entry.load, kind, contender)) =>
                {
                    "-".to_string()
                }
                (bytes, total_ns) => {
                    format!("{:.1}", bytes as f64 / MEBIBYTE * 1e9 / total_ns as f64)
                }
            };
            let mut row: Vec<_> = vec![
                operation_text(kind).into(),
                contender.label.as_str().into(),
                text::count(latency.count as f64).into(),
            ];
            row.extend(QUANTILES.map(|quantile| {
                if latency.quantiles_ns.is_empty() {
                    return "-".into();
                }
                let value = text::time(latency.at(quantile) as f64);
                match percentile_compared(workload, contender, kind, quantile) {
                    Some(one) => against(value, one),
                    None => value.into(),
                }
            }));
            row.extend([time(latency.max_ns), rate.into()]);
            table.rows.push(row);
        }
    }
    table
}

/// What was compared of a percentile; None for those that are not compared.
fn percentile_compared<'a>(
    workload: &'a WorkloadAnalysis,
    contender: &ContenderAnalysis,
    kind: &str,
    quantile: f64,
) -> Option<&'a Comparison> {
    let metric = format!("p{} of {kind}", quantile * 100.0);
    let mut all = workload.exploratory.iter();
    all.find(|one| one.metric == metric && one.contender == contender.label)
}

/// A kind of operation, for a reader: kurabe's own have `_` for a blank, and the name before a colon is the
/// user's.
fn operation_text(kind: &str) -> String {
    if kind.contains(": ") { kind.to_owned() } else { kind.replace('_', " ") }
}

/// Whether operations of this kind wait side by side: the sum of their latencies is then no time
/// that passed.
fn has_queue(load: &WorkloadSpec, kind: &str, contender: &ContenderAnalysis) -> bool {
    let is_its = |metric: &&MetricAnalysis| {
        kind.strip_prefix(&metric.name).is_some_and(|rest| rest.starts_with('-'))
    };
    let figure = contender.metrics.iter().find(is_its);
    match figure.and_then(|metric| metric.axes.get(DEPTH_AXIS)) {
        Some(depth) => depth != "1",
        // Of fio's own options: an engine without a queue takes no notice of it, and which engines
        // have one is fio's matter.
        None => load
            .option("text")
            .and_then(|text| text.as_str())
            .is_some_and(|text| text.contains("iodepth")),
    }
}

/// How the trials are put together in [`latencies`].
pub const LATENCIES_EXPLAINED: &str = "All runs together: histograms are merged, percentiles are not averaged. MiB/s: bytes over the sum of latencies, as one client sees it; none for a queue. -: the tool does not report it.";

/// A verdict in one character, for narrow cells; explained by [`METRICS_EXPLAINED`].
pub fn verdict_mark(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "+",
        Verdict::Slower => "-",
        Verdict::Same { .. } => "=",
        verdict if verdict.bound().is_some() => "~",
        Verdict::AtMost { .. } | Verdict::Inconclusive => "?",
    }
}

/// What the marks of [`metrics`] and of the costs mean.
pub const METRICS_EXPLAINED: &str = "Medians, × cost relative to the baseline: + better, - worse, = same within the margin, ~ at most 25 % apart, ? inconclusive. Only the first metric carries the 95 % guarantee. Treat the others as hints.";

/// The contenders, the fastest by their ratios first (by their medians where one has no ratio), those
/// without a figure last, and those that lost data behind all others.
pub(crate) fn ranked(workload: &WorkloadAnalysis) -> Vec<&ContenderAnalysis> {
    let mut contenders: Vec<_> = workload.contenders.iter().collect();
    let key = |contender: &ContenderAnalysis| {
        contender.metrics.first().map_or(f64::INFINITY, |metric| {
            let median = metric.summary.median;
            if metric.unit.more_is_better() { -median } else { median }
        })
    };
    contenders.sort_by(|one, other| key(one).total_cmp(&key(other)));
    // The ratios of the blocks may have another order than the medians.
    let cost = |contender: &ContenderAnalysis| {
        let one = primary_comparisons(workload).find(|one| one.contender == contender.label);
        one.map_or(Some(1.0), Comparison::cost)
    };
    let with_figure = contenders.iter().take_while(|one| !one.metrics.is_empty()).count();
    let with_figure = &mut contenders[..with_figure];
    if with_figure.iter().all(|one| cost(one).is_some()) {
        with_figure.sort_by(|one, other| cost(one).partial_cmp(&cost(other)).expect("numbers"));
    }
    contenders.sort_by_key(|contender| contender.violation().is_some());
    contenders
}

/// The kinds of operation whose 99th percentile is in the ranking: a few, else all operations together.
fn p99_kinds(workload: &WorkloadAnalysis) -> Vec<&str> {
    let all = workload.contenders.iter().flat_map(|contender| &contender.latencies);
    let all = all.filter(|one| !one.quantiles_ns.is_empty());
    let (overall, mut kinds): (Vec<_>, Vec<_>) =
        text::distinct(all.map(|one| one.operation.as_str()))
            .into_iter()
            .partition(|kind| *kind == OVERALL_OPERATION);
    if kinds.is_empty() || kinds.len() > P99_KINDS_MAX {
        kinds = overall;
    }
    kinds
}

/// `1.200 ms ×1.310 (1.100 to 1.500)`: the percentile of all runs, and its cost with the interval over the rounds.
fn p99_cell(workload: &WorkloadAnalysis, contender: &ContenderAnalysis, kind: &str) -> Cell {
    let mut own = contender.latencies.iter().filter(|one| !one.quantiles_ns.is_empty());
    let Some(own) = own.find(|one| one.operation == kind) else { return "-".into() };
    let value = own.at(0.99) as f64;
    let cost = percentile_compared(workload, contender, kind, 0.99).and_then(quotient::cost_text);
    let cost = cost.map_or(String::new(), |cost| format!(" ×{cost}"));
    Cell::number(value, format!("{}{cost}", text::time(value)))
}

/// So many kinds of operation have their percentile in the ranking.
const P99_KINDS_MAX: usize = 3;

/// Ratio and verdict. Where one of the two completed no trial there is nothing to compare, and the
/// verdict says which.
fn comparison_cells(
    workload: &WorkloadAnalysis,
    contender: &ContenderAnalysis,
    baseline: &str,
) -> [Cell; 2] {
    let none = |verdict: &str, tone: Tone| ["-".into(), Cell::toned(verdict, tone)];
    let is_baseline = contender.label == baseline;
    if contender.violation().is_some() {
        return none("not ranked", Tone::Bad);
    }
    match (contender.metrics.is_empty(), is_baseline) {
        (true, _) if contender.failed == 0 => return none("-", Tone::Plain),
        (true, true) => return none("baseline failed", Tone::Bad),
        (true, false) => return none("failed", Tone::Bad),
        (false, true) => return ["1".into(), Cell::toned("baseline", Tone::Faint)],
        (false, false) if has_no_figure(workload, baseline) => {
            return none("no baseline", Tone::Uncertain);
        }
        (false, false) => {}
    }
    let comparison =
        primary_comparisons(workload).find(|comparison| comparison.contender == contender.label);
    let Some(comparison) = comparison else { return none("-", Tone::Plain) };
    let verdict = &comparison.verdict;
    [cost_cell(comparison), Cell::toned(verdict_text(verdict), tone_of(verdict))]
}

fn cost_cell(comparison: &Comparison) -> Cell {
    let cost = quotient::cost_text(comparison).unwrap_or_else(|| quotient::WITHHELD.into());
    Cell::from(cost).valued(comparison.cost())
}

/// Whether the contender with this label has no metric that can be compared: it completed no trial,
/// or lost data.
pub(crate) fn has_no_figure(workload: &WorkloadAnalysis, label: &str) -> bool {
    workload
        .contender(label)
        .is_none_or(|contender| contender.metrics.is_empty() || contender.violation().is_some())
}

pub fn verdict_text(verdict: &Verdict) -> String {
    verdict.to_string()
}

pub fn tone_of(verdict: &Verdict) -> Tone {
    match verdict {
        Verdict::Faster => Tone::Good,
        Verdict::Slower => Tone::Bad,
        Verdict::Same { .. } => Tone::Plain,
        verdict if verdict.bound().is_some() => Tone::Plain,
        Verdict::AtMost { .. } | Verdict::Inconclusive => Tone::Uncertain,
    }
}

/// The table of phases: medians, one row a contender.
pub fn phases(workload: &WorkloadAnalysis) -> Table {
    let mut heads = vec!["phases"];
    heads.extend(Phase::ALL.iter().map(|phase| phase.name()));
    let mut table = Table::new(&heads);
    for contender in ranked(workload) {
        let mut row: Vec<Cell> = vec![contender.label.as_str().into()];
        for phase in Phase::ALL {
            let entry = contender.phases.iter().find(|(entry, _)| entry == phase);
            row.push(entry.map_or("-".into(), |(_, ns)| Cell::from(text::time(*ns))));
        }
        table.rows.push(row);
    }
    table.without_empty_columns()
}

/// How often was measured: `3 to 7 runs of each contender`, or, where a round has several, `8 rounds of each
/// contender, 224 runs in all`. Failed ones do not count, nor those of a
/// block that was not finished.
pub fn trials_text(workloads: &[WorkloadAnalysis], plan: &Plan, records: &[Record]) -> String {
    let contenders = workloads.iter().flat_map(|workload| &workload.contenders);
    let counts =
        || contenders.clone().map(|one| one.trials - one.failed).filter(|count| *count > 0);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let completed = (0..workloads.len()).flat_map(|place| completed_trials(plan, records, place));
    let runs: Vec<usize> = completed.flatten().map(|record| record.slices.len()).collect();
    let has_several = runs.iter().any(|count| *count > 1);
    let what = if has_several { "round" } else { "run" };
    let count = if least == most {
        text::counted(most, what)
    } else {
        format!("{least} to {most} {what}s")
    };
    let all = runs.iter().map(|count| count.max(&1)).sum::<usize>();
    let all =
        if has_several { format!(", {} in all", text::counted(all, "run")) } else { String::new() };
    format!("{count} of each contender{all}")
}

/// What the trials stood on, in words.
pub fn device_text(plan: &Plan) -> String {
    if plan.study.contenders.iter().all(|contender| !contender.needs_device()) {
        return "existing directories".into();
    }
    let device = &plan.study.device;
    let name = DeviceName::parse(device);
    let is_bare = |name: &DeviceName| name.all().all(|one| one.layers.is_empty());
    let text = match name.as_ref().map(|name| (name.kind(), is_bare(name))) {
        Ok((Some(IMAGE), _)) if name.as_ref().is_ok_and(|name| !name.others.is_empty()) => {
            format!("image files ({device})")
        }
        Ok((Some(IMAGE), _)) => format!("an image file ({device})"),
        Ok((Some(MEMORY), true)) => format!("memory, not a disk ({device})"),
        Ok((Some(MEMORY), false)) => format!("layers over memory ({device})"),
        _ => device.clone(),
    };
    let text = plan.study.hosts().first().map_or(text.clone(), |host| format!("{text} of {host}"));
    match name.map(|name| name.base) {
        Ok(Base::Made { size_bytes, .. }) if !plan.side_by_side.is_empty() => {
            let part = text::bytes(size_bytes as f64 / plan.study.contenders.len() as f64);
            format!("{text}, of which each contender has {part} while they alternate")
        }
        _ => text,
    }
}

/// What became of a gate, with its numbers where no table has them.
pub fn gate_text(gate: &Gate) -> String {
    let Gate { gate, workload, outcome, evidence } = gate;
    let word = match outcome {
        GateOutcome::Holds => "PASS",
        GateOutcome::Fails => "FAIL",
        GateOutcome::Inconclusive => "INCONCLUSIVE",
        GateOutcome::NotTested => "NOT TESTED",
    };
    // `FAIL dj: cost 7.50 (6.40 to 8.80), limit 1.10`.
    if let (Some((asked, rest)), [line]) = (gate.split_once(['<', '>']), evidence.as_slice())
        && let (label, metric) = asked.rsplit_once(": ").unwrap_or((asked, ""))
        && let Some((_, cost)) = line.split_once(&format!("{}: cost ", label.trim()))
    {
        let named = cost.split_once(" by ").filter(|_| metric.is_empty());
        let cost = named.map_or(cost, |(cost, _)| cost);
        let limit = rest.trim_start_matches(['=', ' ']);
        return format!("{word} {}: cost {cost}, limit {limit} ({workload})", label.trim());
    }
    let said: Vec<&str> = evidence.iter().map(String::as_str).collect();
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) };
    format!("{word} '{gate}' ({workload}){said}")
}

/// Every trial of a workload, in the order in which they ended.
pub fn trials(source: &ResultSource, workload: &WorkloadAnalysis) -> Table {
    let metrics = workload.contenders.iter().flat_map(|contender| &contender.metrics);
    let primary = metrics.map(|metric| (metric.name.as_str(), metric.unit)).next();
    let unfinished = unfinished_block(&source.records, &workload.workload);
    let mut table = Table::new(&[
        "number",
        "round",
        "contender",
        "outcome",
        "disturbed by",
        primary.map_or("metric", |(name, _)| name),
        "run",
        "sync",
        "CPU",
        "written",
        "flushes",
        "began",
    ]);
    for record in source.records.iter().filter(|record| record.workload == workload.workload) {
        let phase = |phase| record.phase(phase).map(|entry| entry.elapsed_ns as f64);
        let device = record.run_device();
        let (outcome, tone) = match &record.outcome {
            Outcome::Completed if record.warmup => ("warm-up", Tone::Faint),
            Outcome::Completed if unfinished == Some(record.block) => {
                ("completed; its round was not", Tone::Faint)
            }
            Outcome::Completed if record.is_violated() => ("check violated", Tone::Bad),
            Outcome::Completed => ("completed", Tone::Plain),
            Outcome::Failed { .. } => ("failed", Tone::Bad),
            Outcome::TimedOut { .. } => ("timed out", Tone::Bad),
            Outcome::Interrupted { .. } => ("interrupted", Tone::Faint),
        };
        let figure = primary.and_then(|(name, unit)| {
            let value = crate::source::value_of(record, name)?;
            Some(Cell::number(value, text::figure(value, unit)))
        });
        let usage = record.command.as_ref();
        let cpu_ns = usage.map(|usage| usage.user_ns.saturating_add(usage.system_ns) as f64);
        let flushes = device.filter(|_| !record.flushes_uncounted);
        table.rows.push(vec![
            Cell::whole(record.trial.into()),
            Cell::whole((record.block + 1).into()),
            record.contender.label.as_str().into(),
            Cell::toned(outcome, tone),
            disturbance(record),
            figure.unwrap_or_else(|| "-".into()),
            Cell::maybe(phase(Phase::Run), text::time),
            Cell::maybe(phase(Phase::Sync), text::time),
            Cell::maybe(cpu_ns, text::time),
            Cell::maybe(device.map(|device| device.written_bytes as f64), text::bytes),
            Cell::maybe(flushes.map(|device| device.flushes as f64), text::count),
            text::clock(record.started_unix_ns).into(),
        ]);
    }
    table.without_empty_columns()
}

/// What disturbed a trial: `steal`, or of its turns `3 of 40 turns: steal`.
fn disturbance(record: &Record) -> Cell {
    let runs: Vec<Option<Watched>> = if record.slices.is_empty() {
        vec![record.watched]
    } else {
        record.slices.iter().map(|slice| slice.watched).collect()
    };
    let marks: Vec<DisturbanceCause> = causes(&runs).into_iter().flatten().collect();
    let words = text::list(&text::distinct(marks.iter().map(|cause| cause.words().to_string())));
    match (marks.len(), runs.len()) {
        (0, _) => "-".into(),
        (_, 1) => Cell::toned(words, Tone::Uncertain),
        (some, all) => Cell::toned(format!("{some} of {all} runs: {words}"), Tone::Uncertain),
    }
}
