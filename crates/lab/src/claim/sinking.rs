//! Whether throughput sinks within a run, and why.

use super::{Claim, Finding, Outcome, Ratio, all_labels, list, of_all};
use crate::analysis::WorkloadAnalysis;
use crate::load::{ROSE, SANK};
use crate::plan::Plan;
use crate::record::{Outcome as TrialOutcome, Record};

/// A change of less than a tenth does not count: seconds differ by as much.
const LEVEL: f64 = 0.9;
/// Shortest series of which a beginning and an end are told apart.
const INTERVALS_MIN: usize = 6;

/// Mean throughput of the first and of the last third of a trial's series.
fn ends(record: &Record) -> Option<(f64, f64)> {
    let load = record.load.as_ref()?;
    let series = load.series.iter().find(|series| series.name.starts_with("throughput"))?;
    let values = &series.values;
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
            outcomes.push(ratio.below(LEVEL));
            words.push(format!("{label} {}", ratio.words()));
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
        return Finding::untested(TOO_SHORT);
    }
    Finding::new(of_all(&outcomes), evidence).without(&absent)
}

/// Why nothing can be said of short runs, and what to do.
const TOO_SHORT: &str =
    "the runs are too short for a beginning and an end; give more time, by --full or --scale";

/// Of each counted trial the first and the last third's throughput.
fn ends_of_trials(records: &[Record], workload: &str, label: &str) -> (Vec<f64>, Vec<f64>) {
    records
        .iter()
        .filter(|record| !record.warmup && record.outcome == TrialOutcome::Completed)
        .filter(|record| record.workload == workload && record.contender.label == label)
        .filter_map(ends)
        .unzip()
}

/// "What is that?": the drifts that the loads found in their own counters, with their causes.
pub(super) fn why(workloads: &[&WorkloadAnalysis], records: &[Record]) -> Finding {
    if !records.iter().any(|record| ends(record).is_some()) {
        return Finding::untested(TOO_SHORT);
    }
    let mut evidence = Vec::new();
    let mut quiet = Vec::new();
    for workload in workloads {
        for contender in &workload.contenders {
            let drifts = contender
                .findings
                .iter()
                .filter(|finding| finding.starts_with(SANK) || finding.starts_with(ROSE));
            let before = evidence.len();
            evidence.extend(
                drifts.map(|drift| format!("{}: {}: {drift}", workload.workload, contender.label)),
            );
            if evidence.len() == before && !contender.metrics.is_empty() {
                quiet.push(format!("{} under {}", contender.label, workload.workload));
            }
        }
    }
    if !quiet.is_empty() {
        evidence.push(format!("no drift of a tenth or more: {}", list(&quiet)));
    }
    Finding::new(Outcome::Answered, evidence)
}
