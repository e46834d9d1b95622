//! Whether throughput sinks within a run, and why.

use super::{Claim, Finding, Outcome, Ratio, all_labels, of_all};
use crate::analysis::WorkloadAnalysis;
use crate::load::{Drift, LoadReport, Series};
use crate::plan::Plan;
use crate::record::{Record, counted_trials};
use crate::words::{interval, list, ratio_with_interval};

/// A change of less than a tenth does not count: seconds differ by as much.
const LEVEL: f64 = 0.9;
/// Shortest series of which a beginning and an end are told apart.
const INTERVALS_MIN: usize = 6;

fn throughput(load: &LoadReport) -> Option<&Series> {
    load.series.iter().find(|series| series.name.starts_with("throughput"))
}

/// Mean throughput of the first and of the last third of a trial's series.
fn ends(record: &Record) -> Option<(f64, f64)> {
    let values = &throughput(record.load.as_ref()?)?.values;
    if values.len() < INTERVALS_MIN {
        return None;
    }
    let third = values.len() / 3;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (early, late) = (mean(&values[..third]), mean(&values[values.len() - third..]));
    (early > 0.0 && late > 0.0).then_some((early, late))
}

/// "Throughput sinks by tenths towards the end": the last third of a run against its first, paired
/// over the trials. Holds when that is so beyond doubt of every contender (or of the one that the
/// claim names, and but for its exceptions) in every workload; fails when beyond doubt it is not so of one.
pub(super) fn sinks(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
    claim: &Claim,
) -> Finding {
    let is_meant = |label: &str| {
        claim.contender.as_ref().is_none_or(|named| named == label)
            && !claim.except.iter().any(|named| named == label)
    };
    let (mut places, mut samples) = (Vec::new(), Vec::new());
    for workload in workloads {
        for label in all_labels(plan).into_iter().filter(|label| is_meant(label)) {
            places.push((workload.workload.as_str(), label));
            samples.push(ends_of_trials(records, &workload.workload, label));
        }
    }
    let ratios = Ratio::of_each(&samples);
    let count = ratios.iter().flatten().count();
    let (mut outcomes, mut evidence, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads {
        let mut words = Vec::new();
        for ((name, label), ratio) in places.iter().zip(&ratios) {
            if *name != workload.workload {
                continue;
            }
            let Some(ratio) = ratio else {
                absent.push(format!("{label} under {name}"));
                continue;
            };
            let outcome = ratio.below(LEVEL);
            outcomes.push(outcome);
            let mut said = format!("{label} {}", ratio_with_interval(ratio.ratio, ratio.alone));
            // By itself it contradicts; of as many it does not.
            if let Some(wider) = ratio.among_all.filter(|_| ratio.contradicts_below(LEVEL))
                && outcome == Outcome::Inconclusive
            {
                said.push_str(&format!(
                    " (wider, {}, because {count} such ratios decide together)",
                    interval(wider)
                ));
            }
            words.push(said);
        }
        if !words.is_empty() {
            evidence.push(format!(
                "{}: throughput of the last third of the run over that of the first: {}",
                workload.workload,
                words.join(", ")
            ));
        }
    }
    if outcomes.is_empty() {
        let longest = workloads.iter().map(|workload| longest(records, &workload.workload)).max();
        return Finding::untested(format!(
            "the runs are too short for a beginning and an end, which take {INTERVALS_MIN} intervals: the longest here has {}; give more time, by --full or --scale",
            longest.unwrap_or(0)
        ));
    }
    Finding::new(of_all(&outcomes), evidence).without(&absent)
}

/// Intervals of the longest throughput series under a workload.
fn longest(records: &[Record], workload: &str) -> usize {
    let loads = records.iter().filter(|record| record.workload == workload);
    let series = loads.filter_map(|record| throughput(record.load.as_ref()?));
    series.map(|series| series.values.len()).max().unwrap_or(0)
}

/// Of each counted trial the first and the last third's throughput.
fn ends_of_trials(records: &[Record], workload: &str, label: &str) -> (Vec<f64>, Vec<f64>) {
    counted_trials(records, workload, label).filter_map(ends).unzip()
}

/// "What is that?": the drifts that the loads found in their own counters, with their causes. A
/// trial that is too short to tell is no trial without a drift.
pub(super) fn why(workloads: &[&WorkloadAnalysis], plan: &Plan, records: &[Record]) -> Finding {
    let (mut evidence, mut quiet, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads {
        for entry in &plan.study.contenders {
            let drifts: Vec<&Drift> = counted_trials(records, &workload.workload, &entry.label)
                .filter_map(|record| record.load.as_ref()?.drift.as_ref())
                .collect();
            let place = || format!("{} under {}", entry.label, workload.workload);
            let changes = changes_words(&drifts);
            let is_quiet = changes.is_empty() && !drifts.is_empty();
            let lead = format!("{}: {}", workload.workload, entry.label);
            evidence.extend(changes.into_iter().map(|words| format!("{lead}: {words}")));
            if drifts.contains(&&Drift::TooShort) {
                short.push(place());
            } else if is_quiet {
                quiet.push(place());
            }
        }
    }
    let outcome = match evidence.is_empty() && quiet.is_empty() {
        true => Outcome::Untested,
        false => Outcome::Answered,
    };
    if !quiet.is_empty() {
        evidence.push(format!("no certain drift of a tenth or more: {}", list(&quiet)));
    }
    if !short.is_empty() {
        evidence.push(format!(
            "too short to tell a drift: {}; give more time, by --full or --scale",
            list(&short)
        ));
    }
    if evidence.is_empty() {
        return Finding::untested("the loads looked for no drift");
    }
    Finding::new(outcome, evidence)
}

/// The changes in words, each once; in how many trials, when not in all.
fn changes_words(drifts: &[&Drift]) -> Vec<String> {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for drift in drifts {
        let Drift::Changed { words, .. } = drift else { continue };
        match counted.iter_mut().find(|(known, _)| known == words) {
            Some((_, count)) => *count += 1,
            None => counted.push((words, 1)),
        }
    }
    let told = counted.into_iter().map(|(words, count)| match count == drifts.len() {
        true => words.to_string(),
        false => format!("{words} (in {count} of {} trials)", drifts.len()),
    });
    told.collect()
}
