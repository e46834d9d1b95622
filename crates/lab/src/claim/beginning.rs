//! How the first second of a run differs from the rest of it, and whether that is the load's doing.
//!
//! A recorded load does not ask for the same bytes all along. The rate of a second is an exact
//! product, bytes a second = bytes an operation x operations a second: the first factor is the
//! load's own, the second what the contender makes of it.

use super::{Finding, Outcome, Ratio};
use crate::analysis::WorkloadAnalysis;
use crate::load::Pace;
use crate::plan::Plan;
use crate::record::{Record, counted_trials};
use crate::words::ratio_with_interval;

/// A first second that is faster by less than this is no beginning of its own.
const LEVEL: f64 = 1.1;

/// The factors of a rate: the rate itself, bytes an operation, operations a second.
type Factors = [f64; 3];

fn factors(pace: &[Pace]) -> Option<Factors> {
    let sum = |figure: fn(&Pace) -> u64| pace.iter().map(figure).sum::<u64>() as f64;
    let (bytes, operations) = (sum(|second| second.bytes), sum(|second| second.operations));
    let seconds = sum(|second| second.duration_ns) / 1e9;
    let is_whole = bytes > 0.0 && operations > 0.0 && seconds > 0.0;
    is_whole.then(|| [bytes / seconds, bytes / operations, operations / seconds])
}

/// The factors of the rest of a trial, and those of its first second.
fn ends(record: &Record) -> Option<(Factors, Factors)> {
    let (first, rest) = record.load.as_ref()?.pace.split_first()?;
    Some((factors(rest)?, factors(std::slice::from_ref(first))?))
}

/// "What are the rates of the first seconds?": the first second over the rest of the run, paired
/// over the trials, with its factors.
pub(super) fn beginning(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
) -> Finding {
    let mut evidence = Vec::new();
    for workload in workloads {
        for entry in &plan.study.contenders {
            let (rest, first): (Vec<Factors>, Vec<Factors>) =
                counted_trials(records, &workload.workload, &entry.label).filter_map(ends).unzip();
            let of = |factor: usize| {
                let column = |all: &[Factors]| all.iter().map(|one| one[factor]).collect();
                (column(&rest), column(&first))
            };
            let found: Option<Vec<Ratio>> =
                Ratio::of_each(&[of(0), of(1), of(2)]).into_iter().collect();
            let Some(found) = found else { continue };
            evidence.push(format!("{}: {}: {}", workload.workload, entry.label, words(&found)));
        }
    }
    match evidence.is_empty() {
        true => Finding::untested("no run has a first second and a later one"),
        false => Finding::new(Outcome::Answered, evidence),
    }
}

fn words(found: &[Ratio]) -> String {
    let told = |ratio: &Ratio| ratio_with_interval(ratio.ratio, ratio.alone);
    let [rate, size, count] = found else { unreachable!("a rate has two factors") };
    let mut text = format!(
        "the first second has {} times the bytes a second of the rest: {} times the bytes an operation, as the load asks for, and {} times the operations a second",
        told(rate),
        told(size),
        told(count)
    );
    if rate.ratio > LEVEL {
        let share = size.ratio.ln() / rate.ratio.ln();
        text.push_str(match share {
            share if share >= 1.0 => "; the load's own beginning accounts for all of it",
            share if share >= 0.5 => "; the load's own beginning accounts for most of it",
            share if share > 0.0 => "; the load's own beginning accounts for the lesser part of it",
            _ => "; the load's own beginning does not account for it",
        });
    }
    text
}
