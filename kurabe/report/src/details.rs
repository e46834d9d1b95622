//! Everything that a result says besides the answer, load by load: costs, metrics, pictures,
//! latencies, phases, trials. The same blocks for the terminal, Markdown and the page.

use std::collections::HashSet;

use lab::analysis::{AmplificationBasis, ContenderAnalysis, WorkloadAnalysis};
use lab::record::{Outcome, Record};

use crate::charts::{self, WorkloadView, ratio};
use crate::document::{self, Block};
use crate::source::ResultSource;
use crate::{age, answer, checks, costs, layers, nodes, tables, text};

/// The details of a result: of several workloads a fold for each.
pub fn details(source: &ResultSource) -> Vec<Block> {
    let views = WorkloadView::all(source);
    match views.as_slice() {
        [view] => workload(view, false),
        _ => {
            let load =
                |view: &WorkloadView<'_>| (view.analysis.workload.clone(), workload(view, true));
            let mut loads: Vec<_> = views.iter().map(load).collect();
            let mut blocks = document::said_once(&mut loads);
            blocks.extend(loads.into_iter().map(|(name, blocks)| Block::fold(name, blocks)));
            blocks
        }
    }
}

/// One load, its parts folded. `several`: whether its ranking and pictures do not stand with the answer.
fn workload(view: &WorkloadView<'_>, several: bool) -> Vec<Block> {
    let (source, workload) = (view.source, view.analysis);
    let plan = &source.plan;
    let study = &plan.study.workloads[view.index];
    let mut blocks: Vec<Block> = study.why.clone().map(Block::Text).into_iter().collect();
    if let Some(amount) = &study.amount {
        blocks.push(Block::Text(format!("What ran: {amount}.")));
    }
    if several {
        let caption = format!("Ranking under {}", workload.workload);
        blocks.push(Block::table(caption, tables::contenders(workload, plan)));
        blocks.extend(age::answer(workload, plan));
        blocks.extend(answer::pictures_of(view));
    }
    let mut fold = |summary: &str, parts: Vec<Block>| {
        blocks.extend((!parts.is_empty()).then(|| Block::fold(summary, parts)));
    };
    let mut notes = answer::other_remarks(source, workload);
    notes.extend(failures(source, workload));
    notes.extend(findings(workload).into_iter().map(Block::Note));
    fold("Notes", notes);
    fold("Checks", checks::blocks(workload));
    fold("How files lie on the device", age::layouts(view));
    fold("Where requests went on the device", disk(view));
    fold("Nodes", nodes::blocks(source, workload));
    fold("Power cuts, over time", Block::charts(charts::power_cuts::timelines(view)));
    fold("What it cost, in the run and its sync", cost(view));
    let ratios = ratio::against_baseline(view).into_iter().chain(ratio::every_metric(view));
    let summary = format!("Compared with {}", plan.baseline_label());
    fold(&summary, Block::charts(ratios));
    let mut rounds = Block::charts(ratio::over_blocks(view));
    let caption = format!("Mean and extremes: {}", tables::primary_metric(workload));
    let spread = tables::spread(workload);
    rounds.extend((!spread.rows.is_empty()).then(|| Block::table(caption, spread)));
    fold("Round by round", rounds);
    let metrics = tables::metrics(workload);
    if !metrics.rows.is_empty() {
        let summary = format!("All {} metrics", metrics.rows.len());
        fold(&summary, vec![Block::table("All metrics", metrics)]);
    }
    fold("Latencies by kind of operation", latencies(view));
    fold("Over time", Block::charts(charts::series::charts(view)));
    fold("Overhead by block size", Block::charts(charts::matrix::curves(view)));
    let device = costs::phases(workload);
    let mut phases = Block::charts(charts::phases::stacked(view));
    phases.push(Block::table("Time of each phase", tables::phases(workload)));
    if device.heads.len() > 1 {
        phases.push(Block::table("What the device did in each phase", device));
    }
    fold("Medians of each phase", phases);
    let trials = tables::trials(source, workload);
    fold("All rounds, by contender", vec![Block::table("All rounds", trials)]);
    blocks
}

/// How the contenders used their device, where that was traced or modelled.
fn disk(view: &WorkloadView<'_>) -> Vec<Block> {
    let Some(table) = charts::position::table(view) else { return Vec::new() };
    let alike = charts::position::fairness(view).map(Block::Text);
    let mut blocks: Vec<Block> = alike.into_iter().collect();
    blocks
        .push(Block::table("How the disk was used in the first round, from the workload's start to the end of its sync", table));
    blocks.extend(Block::charts(charts::position::charts(view)));
    blocks
}

/// What a workload cost besides time, and the pictures of it.
fn cost(view: &WorkloadView<'_>) -> Vec<Block> {
    let (source, workload) = (view.source, view.analysis);
    let mut blocks = vec![Block::table("What it cost", costs::table(source, workload))];
    if let Some(table) = layers::table(source, workload) {
        blocks.push(Block::table(
            "Where the bytes went: what each layer was asked, medians of the runs",
            table,
        ));
    }
    if !workload.exploratory.is_empty() || workload.comparisons.iter().any(|one| !one.primary) {
        blocks.push(Block::Text(tables::METRICS_EXPLAINED.into()));
    }
    if workload.contenders.iter().any(is_by_calls) {
        blocks.push(Block::Note("write amplification here: device bytes over bytes passed to write calls, pipes included.".into()));
    }
    let pictures = charts::layers::bytes(view)
        .into_iter()
        .chain(charts::cost::amplification(view))
        .chain(charts::cost::flushes(view));
    blocks.extend(Block::charts(pictures));
    blocks
}

/// The percentiles in one table, and their curves.
fn latencies(view: &WorkloadView<'_>) -> Vec<Block> {
    let table = tables::latencies(view.analysis, &view.source.plan);
    let mut blocks = Vec::new();
    if !table.rows.is_empty() {
        blocks.push(Block::table("Latencies by kind of operation", table));
        blocks.push(Block::Text(tables::LATENCIES_EXPLAINED.into()));
    }
    blocks.extend(Block::charts(charts::latency::charts(view)));
    blocks
}

fn is_by_calls(contender: &ContenderAnalysis) -> bool {
    contender.cost.amplification_basis == Some(AmplificationBasis::WriteCalls)
        && contender.cost.write_amplification.is_some()
}

/// The trials that failed with what their tools said, those that failed alike together.
fn failures(source: &ResultSource, workload: &WorkloadAnalysis) -> Vec<Block> {
    let mut alike: Vec<(&Record, String, Vec<String>)> = Vec::new();
    for record in source.records.iter().filter(|record| record.workload == workload.workload) {
        let Some(words) = answer::failure_text(record) else { continue };
        let label = &record.contender.label;
        let trial = format!("{} (round {})", record.trial, record.block + 1);
        let is_alike =
            |known: &Record| known.contender.label == *label && known.outcome == record.outcome;
        match alike.iter_mut().find(|(known, ..)| is_alike(known)) {
            Some((.., trials)) => trials.push(trial),
            None => alike.push((record, words, vec![trial])),
        }
    }
    let mut blocks = Vec::new();
    for (record, words, trials) in alike {
        let noun = if trials.len() == 1 { "run" } else { "runs" };
        let label = &record.contender.label;
        blocks.push(Block::Note(format!("{label}, {noun} {}: {words}", text::list(&trials))));
        if let Outcome::Failed { output, .. } = &record.outcome
            && !output.trim().is_empty()
        {
            blocks.push(Block::Code(output.trim().into()));
        }
    }
    blocks
}

/// What the workloads found, with the contender's label; what all found alike, such as the proof that
/// they did the same work, stands once.
fn findings(workload: &WorkloadAnalysis) -> Vec<String> {
    let contenders = &workload.contenders;
    let sets: Vec<HashSet<&String>> =
        contenders.iter().map(|contender| contender.findings.iter().collect()).collect();
    let is_common =
        |finding: &String| sets.len() > 1 && sets.iter().all(|found| found.contains(finding));
    let mut lines = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        for finding in &contender.findings {
            if !is_common(finding) {
                lines.push(format!("{}: {finding}", contender.label));
            } else if index == 0 {
                lines.push(format!("every contender: {finding}"));
            }
        }
    }
    lines
}
