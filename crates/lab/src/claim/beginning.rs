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
use crate::words::{ratio, ratio_with_interval};

/// A first second that is faster by less than this is no beginning of its own.
const LEVEL: f64 = 1.1;

/// The factors of a rate: the rate itself, bytes an operation, operations a second.
type Factors = [f64; 3];

fn factors(pace: &[Pace]) -> Option<Factors> {
    let sum =
        |figure: fn(&Pace) -> u64| pace.iter().map(figure).fold(0, u64::saturating_add) as f64;
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
/// over the trials, with its factors. Answered when of some contender it is sure whether the first
/// second is faster; what is not sure says so.
pub(super) fn beginning(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
) -> Finding {
    let (mut evidence, mut is_answered) = (Vec::new(), false);
    for workload in workloads {
        let mut words = Vec::new();
        for entry in &plan.study.contenders {
            let (rest, first): (Vec<Factors>, Vec<Factors>) =
                counted_trials(records, &workload.workload, &entry.label).filter_map(ends).unzip();
            let of = |factor: usize| {
                let column = |all: &[Factors]| all.iter().map(|one| one[factor]).collect();
                (column(&rest), column(&first))
            };
            if let [Some(rate), Some(size), Some(count)] =
                Ratio::of_each(&[of(0), of(1), of(2)]).as_slice()
            {
                words.push(format!("{} {}", entry.label, product(rate, size, count)));
                is_answered |= is_decided(rate);
            }
        }
        if !words.is_empty() {
            evidence.push(format!(
                "{}: bytes a second of the first second over those of the rest = bytes an operation, which the load asks for, x operations a second: {}",
                workload.workload,
                words.join("; ")
            ));
        }
    }
    match (evidence.is_empty(), is_answered) {
        (true, _) => Finding::untested("no run has a first second and a later one"),
        (_, true) => Finding::new(Outcome::Answered, evidence),
        (_, false) => Finding::new(Outcome::Inconclusive, evidence),
    }
}

/// Whether the interval says that the first second is faster, or that it is not.
fn is_decided(rate: &Ratio) -> bool {
    rate.alone.is_some_and(|(low, high)| low > 1.0 || high < LEVEL)
}

/// `1.854 [1.495, 2.30] = 1.924 x 0.963, all of it the load's own`.
fn product(rate: &Ratio, size: &Ratio, count: &Ratio) -> String {
    let told = ratio_with_interval(rate.ratio, rate.alone);
    let mut text = format!("{told} = {} x {}", ratio(size.ratio), ratio(count.ratio));
    if !is_decided(rate) {
        text.push_str(match rate.alone {
            Some(_) => ", undecided, as the interval has 1 in it",
            None => ", undecided, as there are too few trials for an interval",
        });
    } else if rate.ratio > LEVEL {
        let share = size.ratio.ln() / rate.ratio.ln();
        text.push_str(match share {
            share if share >= 1.0 => ", all of it the load's own",
            share if share >= 0.5 => ", most of it the load's own",
            share if share > 0.0 => ", the lesser part of it the load's own",
            _ => ", none of it the load's own",
        });
    }
    text
}
