//! Describing one sample: middle, spread, an interval for the median, and outliers.
//!
//! It describes and never drops: an outlier is an index beside the sample.

use serde::{Deserialize, Serialize};

use super::compare::Interval;
use super::distribution::fair_coins_at_most;
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError, median_sorted, sorted};

/// Modified z score beyond which a value is marked in a large sample (Iglewicz & Hoaglin, *How to
/// Detect and Handle Outliers*, 1993).
const OUTLIER_THRESHOLD: f64 = 3.5;

/// Confidence that the interval of the median aims at.
pub const MEDIAN_CONFIDENCE: f64 = 0.95;
/// The median absolute deviation of a normal sample is this share of its standard deviation.
const MAD_PER_SIGMA: f64 = 0.6745;
/// The same for the mean absolute deviation, sqrt(2 / pi).
const MEAN_DEVIATION_PER_SIGMA: f64 = 0.797_884_560_802_865_4;

/// A sample described, in the unit of its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// Number of values.
    pub count: usize,
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation (divisor n - 1); 0 for a single value.
    pub standard_deviation: f64,
    /// Median absolute deviation from the median, not scaled.
    pub median_absolute_deviation: f64,
    /// Smallest value.
    pub min: f64,
    /// Lower quartile, interpolated (definition 7 of Hyndman & Fan 1996).
    pub quartile_lower: f64,
    pub quartile_upper: f64,
    /// Largest value.
    pub max: f64,
    /// Distribution-free interval of the median from order statistics, with the confidence that it
    /// really has: at least 0.95 from six values on, 0.9375 with five. None below three values.
    pub median_interval: Option<Interval>,
    /// Indices of the values whose modified z score exceeds [`outlier_threshold`].
    pub outliers: Vec<usize>,
}

/// The modified z score beyond which a value is marked in a sample of `count`: 3.5 (1 + 32 / n^2).
///
/// With 3.5 alone, the median absolute deviation of five values is so often small by chance that a
/// normal sample without a fault would be marked one time in five. The factor is fitted to normal
/// samples from 5 to 30 so that it is about one time in twenty.
pub fn outlier_threshold(count: usize) -> f64 {
    OUTLIER_THRESHOLD * (1.0 + 32.0 / (count * count).max(1) as f64)
}

/// Describes a sample of values that are positive or zero.
///
/// Errors: an empty sample; a value that is negative, infinite or not a number.
pub fn summarize(values: &[f64]) -> Result<SampleSummary, StatisticsError> {
    if values.is_empty() {
        return Err(StatisticsError::Empty);
    }
    let is_bad = |value: &f64| !(value.is_finite() && *value >= 0.0);
    if let Some(index) = values.iter().position(is_bad) {
        return Err(StatisticsError::BadSeries { index, value: values[index] });
    }
    let ordered = sorted(values);
    let count = values.len();
    let median = median_sorted(&ordered);
    // Each value is divided first, so that huge values do not overflow the sum.
    let mean = values
        .iter()
        .map(|value| value / count as f64)
        .sum::<f64>()
        .clamp(ordered[0], ordered[count - 1]);
    let deviations = sorted(&values.iter().map(|value| (value - median).abs()).collect::<Vec<_>>());
    Ok(SampleSummary {
        count,
        median,
        mean,
        standard_deviation: standard_deviation(values, mean),
        median_absolute_deviation: median_sorted(&deviations),
        min: ordered[0],
        quartile_lower: quantile(&ordered, 0.25),
        quartile_upper: quantile(&ordered, 0.75),
        max: ordered[count - 1],
        median_interval: median_interval(&ordered),
        outliers: outliers(values, median, &deviations),
    })
}

fn standard_deviation(values: &[f64], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Quantile by linear interpolation between the order statistics at (n - 1) q.
fn quantile(ordered: &[f64], share: f64) -> f64 {
    let position = (ordered.len() - 1) as f64 * share;
    let below = position as usize;
    let above = (below + 1).min(ordered.len() - 1);
    let fraction = position - below as f64;
    ordered[below] * (1.0 - fraction) + ordered[above] * fraction
}

/// The narrowest pair of order statistics, equally far from both ends, that covers the median with
/// the confidence aimed at; the extremes where there are too few values for it. The number of
/// values below the median is binomial, so the coverage of the interval from the r-th smallest to
/// the r-th largest is exactly 1 - 2 P(Bin(n, 1/2) <= r - 1), for any continuous distribution.
fn median_interval(ordered: &[f64]) -> Option<Interval> {
    let count = ordered.len();
    if count < BLOCKS_MIN_FOR_INTERVAL {
        return None;
    }
    let coverage = |rank: usize| 1.0 - 2.0 * fair_coins_at_most(rank, count);
    let mut rank = 0;
    while 2 * (rank + 1) < count - 1 && coverage(rank + 1) >= MEDIAN_CONFIDENCE {
        rank += 1;
    }
    Some(Interval {
        low: ordered[rank],
        high: ordered[count - 1 - rank],
        confidence: coverage(rank),
    })
}

/// Marks values by 0.6745 |x - median| / MAD beyond the threshold. Where more than half of the
/// values are equal, the MAD is 0 and the mean absolute deviation takes its place, with the
/// threshold of a large sample: equal values are no chance.
pub(super) fn outliers(values: &[f64], median: f64, deviations: &[f64]) -> Vec<usize> {
    let mad = median_sorted(deviations);
    let (sigma, threshold) = if mad > 0.0 {
        (mad / MAD_PER_SIGMA, outlier_threshold(values.len()))
    } else {
        let mean = deviations.iter().map(|value| value / deviations.len() as f64).sum::<f64>();
        (mean / MEAN_DEVIATION_PER_SIGMA, OUTLIER_THRESHOLD)
    };
    (0..values.len()).filter(|index| (values[*index] - median).abs() > threshold * sigma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_worked_by_hand() {
        let summary = summarize(&[4.0, 1.0, 3.0, 2.0, 15.0]).unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (5, 1.0, 15.0));
        assert_eq!((summary.median, summary.mean), (3.0, 5.0));
        assert_eq!((summary.quartile_lower, summary.quartile_upper), (2.0, 4.0));
        assert!((summary.standard_deviation - 32.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(summary.median_absolute_deviation, 1.0);
        // The threshold of five values is 3.5 * 57 / 25 = 7.98; 0.6745 * 12 / 1 = 8.09 is beyond.
        assert_eq!(summary.outliers, [4]);
        assert!(summarize(&[4.0, 1.0, 3.0, 2.0, 14.5]).unwrap().outliers.is_empty());
        assert_eq!(
            summary.median_interval,
            Some(Interval { low: 1.0, high: 15.0, confidence: 0.9375 })
        );
    }

    #[test]
    fn the_interval_of_the_median_takes_the_ranks_of_the_sign_test() {
        // Tables of the sign test (Conover): n = 10 uses ranks 2 and 9 with 97.9 %, n = 20 uses
        // 6 and 15 with 95.9 %.
        for (count, low, high, confidence) in
            [(3, 1, 3, 0.75), (6, 1, 6, 0.96875), (10, 2, 9, 0.978515625), (20, 6, 15, 0.958610)]
        {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let interval = summarize(&values).unwrap().median_interval.unwrap();
            assert_eq!((interval.low, interval.high), (f64::from(low), f64::from(high)));
            assert!((interval.confidence - confidence).abs() < 1e-6, "{interval:?}");
        }
    }

    #[test]
    fn equal_values_have_no_outlier_and_one_odd_value_among_equals_is_one() {
        assert!(summarize(&[2.0; 8]).unwrap().outliers.is_empty());
        let mut values = [2.0; 8];
        values[5] = 2.1;
        assert_eq!(summarize(&values).unwrap().outliers, [5]);
    }

    #[test]
    fn one_value_is_described_and_none_is_refused() {
        let summary = summarize(&[7.0]).unwrap();
        assert_eq!((summary.median, summary.mean, summary.standard_deviation), (7.0, 7.0, 0.0));
        assert_eq!(summary.median_interval, None);
        assert_eq!(summarize(&[]), Err(StatisticsError::Empty));
    }
}
