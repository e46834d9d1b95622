//! Comparing contenders with their baseline: paired ratios, intervals, Holm's correction, verdicts.
//!
//! It takes samples by block and knows nothing of what was measured. Everything happens on
//! logarithms of the ratio contender / baseline, so that "twice as slow" and "twice as fast" are
//! equally far from 1. Invariant: the verdict can be read off the interval that stands beside it.

use serde::{Deserialize, Serialize};

use super::location::{Location, locate};
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError, check_samples};

/// How sure a comparison has to be, and what counts as the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ComparisonOptions {
    /// Confidence of the family of comparisons: 0.95 allows one family in twenty a false
    /// difference.
    pub confidence: f64,
    /// The margin m: ratios from 1 / (1 + m) to 1 + m count as the same. 0.05 is 5 %.
    pub same_within: f64,
}

impl Default for ComparisonOptions {
    fn default() -> Self {
        ComparisonOptions { confidence: 0.95, same_within: 0.05 }
    }
}

impl ComparisonOptions {
    /// Refuses options that no interval can be computed from.
    pub fn check(&self) -> Result<(), StatisticsError> {
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Err(StatisticsError::BadOption {
                option: "confidence",
                value: self.confidence,
                expected: "between 0 and 1, such as 0.95",
            });
        }
        if !(self.same_within.is_finite() && self.same_within >= 0.0) {
            return Err(StatisticsError::BadOption {
                option: "same_within",
                value: self.same_within,
                expected: "finite and not negative, such as 0.05",
            });
        }
        Ok(())
    }

    /// Whether the whole interval lies inside the margin.
    fn same(&self, interval: &Interval) -> bool {
        interval.low >= 1.0 / (1.0 + self.same_within) && interval.high <= 1.0 + self.same_within
    }
}

/// An interval, with the confidence that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability with which such an interval covers the truth; for one of several contenders it
    /// is higher than what was asked for, by Holm's correction.
    pub confidence: f64,
}

/// What a comparison says of a contender whose smaller values are better (times).
///
/// A larger value is "slower" whatever was measured; for a throughput the caller exchanges
/// baseline and contender.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies below 1, and not inside the margin.
    Faster,
    /// The interval lies above 1, and not inside the margin.
    Slower,
    /// The whole interval lies inside the margin. A real but tiny difference (the interval excludes
    /// 1) is the same too: the ratio beside it shows it.
    Same {
        /// The margin: 0.05 is "within 5 %".
        within: f64,
    },
    /// Too few pairs, or an interval that reaches from 1 to beyond the margin.
    Inconclusive,
}

/// What the statistics say of one contender against its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of blocks in which both have a sample.
    pub pairs: usize,
    /// The ratio contender / baseline: the geometric mean over the pairs, trimmed where
    /// `trimmed_per_side` says so. None without a pair, and below three pairs that leave out other
    /// samples of either side: the medians of all samples may then point the other way, and
    /// nothing tells which is right.
    pub ratio: Option<f64>,
    /// Interval of the ratio, corrected for the number of contenders; None below three pairs.
    pub interval: Option<Interval>,
    /// p value of "the ratio is 1", uncorrected; None below three pairs.
    pub p_value: Option<f64>,
    /// p value adjusted by Holm over the family; equal to `p_value` for a single contender.
    pub p_adjusted: Option<f64>,
    /// How many of the smallest and of the largest ratios were set aside for the estimate, because
    /// single ones lie far out; 0 otherwise, and always below seven pairs.
    pub trimmed_per_side: usize,
    /// What follows.
    pub verdict: Verdict,
}

/// Compares one contender with its baseline; `baseline[i]` and `contender[i]` are of one block.
///
/// Errors: unequal lengths, samples that are not positive and finite, options out of range.
pub fn compare(
    baseline: &[f64],
    contender: &[f64],
    options: &ComparisonOptions,
) -> Result<Comparison, StatisticsError> {
    if baseline.len() != contender.len() {
        return Err(StatisticsError::LengthMismatch {
            baseline: baseline.len(),
            contender: contender.len(),
        });
    }
    options.check()?;
    let location = log_ratio_location(baseline, contender)?;
    Ok(judge(&[Located { pairs: baseline.len(), location }], options)[0])
}

/// Compares every contender of a workload with the baseline, as one family: the comparisons are in
/// the order of `contenders`, their intervals and p values corrected by Holm's step-down procedure
/// (Holm 1979), so that the chance of *any* false faster or slower is at most 1 - confidence.
///
/// A sample that is missing (`None`, or a shorter slice) takes its block out for that contender
/// only. Contenders with fewer than three pairs take no part in the correction, and have no ratio
/// either where that leaves samples without a partner.
pub fn compare_family<S: AsRef<[Option<f64>]>>(
    baseline: &[Option<f64>],
    contenders: &[S],
    options: &ComparisonOptions,
) -> Result<Vec<Comparison>, StatisticsError> {
    options.check()?;
    let mut located = Vec::with_capacity(contenders.len());
    for contender in contenders {
        let (under, over) = pairs(baseline, contender.as_ref());
        let location = log_ratio_location(&under, &over)?;
        let count = |samples: &[Option<f64>]| samples.iter().flatten().count();
        let all_paired = count(baseline).max(count(contender.as_ref())) == under.len();
        let tells = all_paired || under.len() >= BLOCKS_MIN_FOR_INTERVAL;
        located.push(Located { pairs: under.len(), location: location.filter(|_| tells) });
    }
    Ok(judge(&located, options))
}

/// The samples of the blocks in which both have one, in the order of the blocks.
pub fn pairs(baseline: &[Option<f64>], contender: &[Option<f64>]) -> (Vec<f64>, Vec<f64>) {
    baseline.iter().zip(contender).filter_map(|(left, right)| left.zip(*right)).unzip()
}

/// The location of the logarithms of the ratios; None without a pair.
pub(super) fn log_ratio_location(
    baseline: &[f64],
    contender: &[f64],
) -> Result<Option<Location>, StatisticsError> {
    check_samples(baseline)?;
    check_samples(contender)?;
    let logs: Vec<f64> =
        baseline.iter().zip(contender).map(|(left, right)| right.ln() - left.ln()).collect();
    Ok((!logs.is_empty()).then(|| locate(&logs)))
}

/// A member of a family: its pairs, and the location of their logarithms where it tells anything.
struct Located {
    pairs: usize,
    location: Option<Location>,
}

/// Turns the locations of a family into comparisons.
fn judge(family: &[Located], options: &ComparisonOptions) -> Vec<Comparison> {
    let p_values: Vec<Option<f64>> = family
        .iter()
        .map(|Located { pairs, location }| {
            location.filter(|_| *pairs >= BLOCKS_MIN_FOR_INTERVAL).map(|found| found.p_value())
        })
        .collect();
    let corrected = holm(&p_values, 1.0 - options.confidence);
    family
        .iter()
        .zip(p_values)
        .zip(corrected)
        .map(|((Located { pairs, location }, p_value), corrected)| {
            let ratio = location.map(|found| found.estimate.exp());
            let interval = location.zip(corrected).map(|(found, corrected)| {
                let half_width = found.half_width(corrected.alpha);
                Interval {
                    low: (found.estimate - half_width).exp(),
                    high: (found.estimate + half_width).exp(),
                    confidence: 1.0 - corrected.alpha,
                }
            });
            Comparison {
                pairs: *pairs,
                ratio,
                interval,
                p_value,
                p_adjusted: corrected.map(|corrected| corrected.p_adjusted),
                trimmed_per_side: location.map_or(0, |found| found.trimmed_per_side),
                verdict: verdict(interval.as_ref(), options),
            }
        })
        .collect()
}

pub(super) fn verdict(interval: Option<&Interval>, options: &ComparisonOptions) -> Verdict {
    match interval {
        None => Verdict::Inconclusive,
        Some(interval) if options.same(interval) => Verdict::Same { within: options.same_within },
        Some(interval) if interval.high < 1.0 => Verdict::Faster,
        Some(interval) if interval.low > 1.0 => Verdict::Slower,
        Some(_) => Verdict::Inconclusive,
    }
}

/// One member of a family after the correction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Corrected {
    /// Probability with which its interval may miss.
    pub alpha: f64,
    /// Adjusted p value.
    pub p_adjusted: f64,
}

/// Holm's step-down procedure. The hypothesis of rank j (from 0) of m is tested at
/// alpha / (m - j); from the first one that stands, all later ones stand and keep its level. The
/// interval at the level of each test excludes 1 exactly when the procedure rejects.
pub(super) fn holm(p_values: &[Option<f64>], alpha: f64) -> Vec<Option<Corrected>> {
    let mut order: Vec<usize> =
        (0..p_values.len()).filter(|index| p_values[*index].is_some()).collect();
    order.sort_by(|left, right| {
        let key = |index: usize| p_values[index].unwrap_or(1.0);
        key(*left).total_cmp(&key(*right))
    });
    let size = order.len();
    let mut corrected = vec![None; p_values.len()];
    let mut standing_level = None;
    let mut p_largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let p_value = p_values[index].unwrap_or(1.0);
        let remaining = (size - rank) as f64;
        p_largest = p_largest.max((p_value * remaining).min(1.0));
        let level = standing_level.unwrap_or(alpha / remaining);
        if p_value > level {
            standing_level = Some(level);
        }
        corrected[index] = Some(Corrected { alpha: level, p_adjusted: p_largest });
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn holm_agrees_with_a_case_worked_by_hand() {
        // Sorted 0.01, 0.013, 0.03, 0.5 at 0.05 / 4, 3, 2, 1: two fall, the third stands at 0.025
        // and holds the fourth.
        let found = holm(&[Some(0.03), Some(0.01), None, Some(0.5), Some(0.013)], 0.05);
        let expected = [
            Some((0.025, 0.06)),
            Some((0.0125, 0.04)),
            None,
            Some((0.025, 0.5)),
            Some((0.05 / 3.0, 0.04)),
        ];
        for (found, expected) in found.iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some((alpha, p))) => {
                    assert!(close(found.alpha, alpha), "{found:?}");
                    assert!(close(found.p_adjusted, p), "{found:?}");
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_interval_is_student_s_on_the_logarithms() {
        // Log ratios ln 2 + {-0.1, 0, 0.1, ...}: mean ln 2, t with 2 degrees of freedom 4.302653.
        let baseline = [1.0, 10.0, 100.0];
        let contender = [2.0 * (-0.1f64).exp(), 20.0, 200.0 * 0.1f64.exp()];
        let comparison = compare(&baseline, &contender, &ComparisonOptions::default()).unwrap();
        let half_width: f64 = 4.302652729749464 * 0.1 / 3f64.sqrt();
        let interval = comparison.interval.unwrap();
        assert!(close(comparison.ratio.unwrap(), 2.0));
        assert!((interval.low - 2.0 * (-half_width).exp()).abs() < 1e-9, "{interval:?}");
        assert!((interval.high - 2.0 * half_width.exp()).abs() < 1e-9, "{interval:?}");
        assert_eq!(comparison.verdict, Verdict::Slower);
    }

    #[test]
    fn a_ratio_of_one_or_two_pairs_is_withheld_beside_samples_of_other_blocks() {
        // The reported case: alone in the second block the baseline is faster, so that the medians
        // say "slower" and the one pair says "faster".
        let baseline = [Some(1.0 / 6864.0), Some(1.0 / 11918.0), None, None];
        let contenders = [
            vec![Some(1.0 / 8662.0)],
            vec![Some(1.0 / 8662.0), Some(1.0 / 8662.0)],
            vec![Some(1.0 / 8662.0), Some(1.0 / 8662.0), Some(1.0 / 8662.0)],
            vec![None, None, Some(1.0 / 8662.0)],
        ];
        let found = compare_family(&baseline, &contenders, &ComparisonOptions::default()).unwrap();
        let said: Vec<_> = found.iter().map(|one| (one.pairs, one.ratio.is_some())).collect();
        assert_eq!(said, [(1, false), (2, true), (2, false), (0, false)]);
        assert!(found.iter().all(|one| one.verdict == Verdict::Inconclusive));
        // Three pairs have an interval, which says how sure they are, whatever is without partner.
        let four = [Some(1.0), Some(1.0), Some(1.0), Some(9.0)];
        let three = [[Some(2.0), Some(2.1), Some(1.9), None]];
        let found = &compare_family(&four, &three, &ComparisonOptions::default()).unwrap()[0];
        assert!(found.ratio.is_some() && found.interval.is_some(), "{found:?}");
    }

    #[test]
    fn a_tiny_real_difference_inside_the_margin_is_the_same() {
        let baseline = [10.0, 10.1, 9.9, 10.0, 10.05];
        let contender: Vec<f64> = baseline
            .iter()
            .zip([1.011, 1.009, 1.010, 1.0105, 1.0095])
            .map(|(b, f)| b * f)
            .collect();
        let options = ComparisonOptions::default();
        let comparison = compare(&baseline, &contender, &options).unwrap();
        assert!(comparison.interval.unwrap().low > 1.0 && comparison.p_value.unwrap() < 0.001);
        assert_eq!(comparison.verdict, Verdict::Same { within: 0.05 });
        let strict = ComparisonOptions { same_within: 0.0, ..options };
        assert_eq!(compare(&baseline, &contender, &strict).unwrap().verdict, Verdict::Slower);
    }
}
