//! The statistics of the laboratory, over plain numbers: samples in, structs for the result out.
//!
//! Nothing here knows of records, plans or files, and nothing here draws random numbers: the same
//! samples give the same answer. `docs/reference/statistics.md` has the formulas, their sources, and the
//! measured error rates; `cargo run --release -p lab --example calibrate` measures them
//! again.
//!
//! A *block* here is always a statistical block: one trial of every contender, in random order.
//! Samples are indexed by block, so that `baseline[3]` and `contender[3]` come from one block; a
//! trial that failed is `None` and takes its pair out of the comparison, nothing else.
//!
//! Invariants: an estimate lies inside its interval; exchanging baseline and contender gives the
//! reciprocal; multiplying every sample by one factor changes no ratio; below
//! [`BLOCKS_MIN_FOR_INTERVAL`] pairs there is neither interval nor verdict, and no ratio either
//! where a side has samples outside of the pairs.

mod compare;
mod distribution;
mod drift;
mod events;
mod instances;
mod location;
mod looks;
mod machines;
mod modes;
mod order;
mod runs;
mod serial_correlation;
mod steady_state;
mod stop;
mod summary;
mod unpaired;

pub use compare::{
    BOUND_MAX, ComparisonOptions, Correction, CostEstimate, Group, Interval, Verdict, compare,
    compare_families, compare_family, pairs,
};
pub use drift::{drift, odd_first_block};
pub use events::{NONE_OF_CONFIDENCE, none_of};
pub use instances::instances;
pub use looks::{InterimLook, easing};
pub use machines::{AcrossMachines, MACHINES_MIN, across_machines};
pub use modes::{Slow, slow_turns};
pub use order::{OrderEffect, OrderEffects, OrderedRun, order};
pub use runs::{Runs, runs};
pub use serial_correlation::serial_correlation;
pub use steady_state::{STEADY_ROUNDS, steady_from};
pub use stop::{StopRule, TIGHT, is_tight};
pub use summary::{MEDIAN_CONFIDENCE, SampleSummary, outlier_threshold, summarize};
pub use unpaired::{UnpairedComparison, compare_unpaired_family};

/// Fewest pairs of trials from which an interval or a verdict is given. Two pairs leave one degree
/// of freedom: the interval of such a pair is so wide that it only pretends to be one.
pub const BLOCKS_MIN_FOR_INTERVAL: usize = 3;

/// Samples or options that the statistics refuse. They never come from noise: each names a value
/// that a caller must not have let through.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// A sample is zero, negative, infinite or not a number; ratios and logarithms need positive
    /// finite numbers.
    #[error(
        "sample {index} is {value}, but only positive finite numbers can be compared; leave the run out"
    )]
    BadSample {
        /// Position of the value in its slice.
        index: usize,
        value: f64,
    },
    /// A value of a series is negative, infinite or not a number.
    #[error("value {index} of the series is {value}, but it must be finite and not negative")]
    BadSeries {
        /// Position of the value in its slice.
        index: usize,
        value: f64,
    },
    /// A sample without a single value.
    #[error("there is no sample to describe")]
    Empty,
    /// Paired samples of unequal length.
    #[error(
        "{baseline} samples of the baseline cannot be paired with {contender} of the contender; pass None for a failed run"
    )]
    LengthMismatch {
        /// Number of samples of the baseline.
        baseline: usize,
        /// Number of samples of the contender.
        contender: usize,
    },
    /// An option outside its range.
    #[error("{option} is {value}, but it must be {expected}")]
    BadOption {
        /// Name of the field.
        option: &'static str,
        value: f64,
        /// The range in words.
        expected: &'static str,
    },
}

/// Refuses whatever has no logarithm.
fn check_samples(values: &[f64]) -> Result<(), StatisticsError> {
    match values.iter().position(|value| !(value.is_finite() && *value > 0.0)) {
        Some(index) => Err(StatisticsError::BadSample { index, value: values[index] }),
        None => Ok(()),
    }
}

/// The median of sorted values, at least one.
fn median_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        // Halves first: the sum of two huge values would overflow.
        sorted[middle - 1] / 2.0 + sorted[middle] / 2.0
    }
}

/// The values in ascending order.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
