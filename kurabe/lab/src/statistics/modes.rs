//! Whether the trials of one side fall into two kinds, of which an average tells neither: a share
//! of them slow, or two modes.
//!
//! It takes the logarithms of a comparison and changes no estimate; two modes are never called *the
//! same*, and one slow trial only where the means are the same too.

use serde::{Deserialize, Serialize};

use super::summary::outliers;
use super::{median_sorted, sorted};

/// Smallest distance, as a ratio, at which a trial or a mode is worth a word.
const FACTOR_MIN: f64 = 1.1;
/// From this share of slow trials on they are a mode, and not a disturbance; one alone never is.
const SLOW_SHARE_MIN: f64 = 0.1;
/// Fewest turns of a block from which the middle of its ratios is known.
const TURNS_MIN: usize = 3;
/// Fewest values of which two modes can be told from a gap that chance left.
const VALUES_MIN_FOR_MODES: usize = 8;

/// What was found of one side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// How many of its trials are far slower than the others, or in the slower of two modes.
    pub trials: usize,
    pub of: usize,
    /// How many times as long they take as the others; 1 where there are none.
    pub factor: f64,
    /// Whether they are turns within the blocks, and not trials.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_turns: bool,
}

impl Slow {
    /// Whether there are enough of them to be more than a disturbance.
    pub fn is_mode(&self) -> bool {
        self.trials as f64 >= SLOW_SHARE_MIN * self.of as f64 && self.trials > 1
    }

    fn none(of: usize) -> Slow {
        Slow { trials: 0, of, factor: 1.0, of_turns: false }
    }
}

/// The slow turns of the baseline and of the contender, from the logarithms of their costs in the
/// same rounds, by block; each block by itself, since fresh file systems differ.
///
/// A block's mean hides them: one turn in five may be slow in every block. Turns are many, so here the
/// two sides can be told apart: slow turns of which both have about as many are how the workload is, and
/// none are told.
pub fn slow_turns(blocks: &[(Vec<f64>, Vec<f64>)]) -> [Slow; 2] {
    let (mut under, mut over) = (Vec::new(), Vec::new());
    for (baseline, contender) in blocks.iter().filter(|(own, _)| own.len() >= TURNS_MIN) {
        let ratios: Vec<f64> =
            contender.iter().zip(baseline).map(|(over, under)| over - under).collect();
        let middle = median_sorted(&sorted(&ratios));
        under.extend_from_slice(baseline);
        over.extend(contender.iter().map(|value| value - middle));
    }
    let found = slow(&under, &over);
    let [of_under, of_over] = found.map(|slow| slow.trials as f64);
    let (apart, all) = ((of_over - of_under).abs(), of_over + of_under);
    // By more than two standard deviations of what chance does to their number.
    let is_told = apart >= SLOW_SHARE_MIN * under.len() as f64 && apart.powi(2) >= 4.0 * all;
    if is_told && all > 0.0 {
        found.map(|slow| Slow { of_turns: true, ..slow })
    } else {
        [Slow::none(under.len()); 2]
    }
}

/// The slow trials of the baseline and of the contender, from the logarithms of their costs in the
/// blocks that both have.
pub(super) fn slow(baseline: &[f64], contender: &[f64]) -> [Slow; 2] {
    let of = baseline.len();
    let ratios: Vec<f64> =
        contender.iter().zip(baseline).map(|(over, under)| over - under).collect();
    if ratios.is_empty() {
        return [Slow::none(of); 2];
    }
    let sides = two_modes(&ratios).unwrap_or_else(|| outlying(&ratios));
    sides.map(|(trials, distance)| Slow { trials, factor: distance.exp(), ..Slow::none(of) })
}

/// How many values lie far below and far above the others, and how far on average.
fn outlying(values: &[f64]) -> [(usize, f64); 2] {
    let middle = median_sorted(&sorted(values));
    let deviations = sorted(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>());
    let far: Vec<f64> = outliers(values, middle, &deviations)
        .into_iter()
        .map(|index| values[index] - middle)
        .filter(|distance| distance.abs() >= FACTOR_MIN.ln())
        .collect();
    [-1.0, 1.0].map(|sign| {
        let own: Vec<f64> = far.iter().map(|one| one * sign).filter(|one| *one > 0.0).collect();
        (own.len(), own.iter().sum::<f64>() / own.len().max(1) as f64)
    })
}

/// The smaller of two groups of ratios that lie farther apart than either is wide, and the distance
/// of their middles; first where it is the lower one, which the baseline's slow trials make. Each
/// has two values and a tenth of all at least. What both sides share in a block is not in a ratio.
fn two_modes(values: &[f64]) -> Option<[(usize, f64); 2]> {
    let ordered = sorted(values);
    let count = ordered.len();
    if count < VALUES_MIN_FOR_MODES {
        return None;
    }
    let least = count.div_ceil(10).max(2);
    let parted = (least..=count - least).find(|place| {
        let (lower, upper) = ordered.split_at(*place);
        let gap = upper[0] - lower[lower.len() - 1];
        let width = |group: &[f64]| group[group.len() - 1] - group[0];
        gap >= FACTOR_MIN.ln() && gap > width(lower) && gap > width(upper)
    })?;
    let (lower, upper) = ordered.split_at(parted);
    let distance = median_sorted(upper) - median_sorted(lower);
    Some(if lower.len() < upper.len() {
        [(lower.len(), distance), (0, 0.0)]
    } else {
        [(0, 0.0), (upper.len(), distance)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| value.ln()).collect()
    }

    #[test]
    fn a_fifth_of_slow_trials_is_seen_on_the_side_that_has_it() {
        let steady = logs(&[1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 1.0, 0.99]);
        let fifth = logs(&[1.0, 2.0, 0.99, 1.01, 1.0, 1.0, 2.02, 0.99, 1.01, 1.0]);
        let [baseline, contender] = slow(&steady, &fifth);
        assert_eq!((baseline.trials, contender.trials, contender.of), (0, 2, 10));
        assert!(contender.is_mode() && !baseline.is_mode());
        assert!((contender.factor - 2.0).abs() < 0.05, "{contender:?}");
        assert_eq!(slow(&fifth, &steady)[0].trials, 2);
    }

    #[test]
    fn slow_turns_are_told_where_one_side_has_more_of_them() {
        let turns = |slow: &[(usize, f64)], level: f64| -> Vec<f64> {
            let of = |turn: usize| {
                let slow = slow.iter().find(|(place, _)| turn % 5 == *place);
                level + 0.01 * ((turn * 7 % 11) as f64 - 5.0) + slow.map_or(0.0, |(_, by)| by.ln())
            };
            (0..20).map(of).collect()
        };
        let found = |under: &[(usize, f64)], over: &[(usize, f64)]| {
            // Fresh file systems of the second block are half as fast, and that is no mode.
            let block = |level: f64| (turns(under, level), turns(over, 2.0 * level));
            slow_turns(&[block(0.0), block(0.7)]).map(|slow| (slow.trials, slow.is_mode()))
        };
        assert_eq!(found(&[], &[]), [(0, false), (0, false)]);
        assert_eq!(found(&[], &[(2, 2.0)]), [(0, false), (8, true)]);
        assert_eq!(found(&[(1, 2.0)], &[]), [(8, true), (0, false)]);
        // Both have a fifth that is as slow.
        assert_eq!(found(&[(1, 2.0)], &[(2, 2.0)]), [(0, false), (0, false)]);
        // Two of ten turns may be slow by chance.
        let few = [(turns(&[], 0.0)[..10].to_vec(), turns(&[(2, 2.0)], 0.0)[..10].to_vec())];
        assert_eq!(slow_turns(&few)[1].trials, 0);
        let short = [(vec![0.0; 2], vec![0.0, 0.7])];
        assert_eq!(slow_turns(&short)[1].of, 0);
    }

    #[test]
    fn one_slow_trial_of_twenty_is_a_disturbance() {
        let mut values = vec![1.0; 20];
        for (place, value) in values.iter_mut().enumerate() {
            *value += 0.003 * (place % 5) as f64;
        }
        let steady = logs(&values);
        values[7] = 3.0;
        let found = slow(&steady, &logs(&values))[1];
        assert_eq!((found.trials, found.is_mode()), (1, false));
    }

    #[test]
    fn two_modes_of_equal_size_are_seen_and_a_wide_sample_is_not() {
        let modes = logs(&[1.0, 1.3, 1.01, 1.31, 1.0, 1.29, 1.02, 1.3]);
        let of = |values: &[f64]| two_modes(values).map(|sides| sides.map(|(trials, _)| trials));
        assert_eq!(of(&modes), Some([0, 4]));
        // A shock that both sides share is no mode.
        assert_eq!(slow(&modes, &modes)[1].trials, 0);
        let wide = logs(&[1.0, 1.1, 1.2, 1.35, 1.5, 1.7, 1.9, 2.2]);
        assert_eq!(of(&wide), None);
        assert_eq!(of(&modes[..6]), None);
    }
}
