//! Comparing samples that were not taken side by side: before and after a change of the machine.
//!
//! It takes two samples of logarithms and knows nothing of blocks: there are no pairs, so what
//! changed between the two sessions besides what is asked about is part of the difference, and no
//! interval here can tell. Welch's t (1947) does not assume that both scatter alike, and Student's
//! (1908), which does, guards it where the counts differ: the wider of the two intervals is taken.
//! The correction over a family and the verdicts are those of [`super::compare_family`].

use serde::{Deserialize, Serialize};

use super::compare::{ComparisonOptions, Interval, Test, Verdict, holm, verdict};
use super::location::Location;
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError, check_samples};

/// What the statistics say of a later sample against an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UnpairedComparison {
    /// Values of the earlier sample.
    pub count_before: usize,
    /// Values of the later one.
    pub count_after: usize,
    /// The ratio after / before of the geometric means. None where a sample is empty.
    pub ratio: Option<f64>,
    /// Interval of the ratio, corrected for the size of the family; None where a sample has fewer
    /// than three values.
    pub interval: Option<Interval>,
    /// p value of "the ratio is 1", uncorrected.
    pub p_value: Option<f64>,
    /// p value adjusted by Holm over the family.
    pub p_adjusted: Option<f64>,
    /// What follows; *slower* is a larger value, as everywhere.
    pub verdict: Verdict,
}

/// The difference of two means of logarithms, and how sure it is: by Welch, where each sample has a
/// scatter of its own, and by Student, where both have the same.
#[derive(Debug, Clone, Copy)]
struct Difference {
    separate: Location,
    pooled: Location,
}

/// Compares each later sample with its earlier one, all of them as one family: the chance of *any*
/// false faster or slower is at most 1 - confidence. The comparisons are in the order of `pairs`,
/// each of which is (before, after).
///
/// Errors: samples that are not positive and finite, options out of range.
pub fn compare_unpaired_family<S: AsRef<[f64]>>(
    pairs: &[(S, S)],
    options: &ComparisonOptions,
) -> Result<Vec<UnpairedComparison>, StatisticsError> {
    options.check()?;
    let mut differences = Vec::with_capacity(pairs.len());
    for (before, after) in pairs {
        check_samples(before.as_ref())?;
        check_samples(after.as_ref())?;
        differences.push(difference(before.as_ref(), after.as_ref()));
    }
    let enough = |(before, after): &(S, S)| {
        before.as_ref().len().min(after.as_ref().len()) >= BLOCKS_MIN_FOR_INTERVAL
    };
    let tests: Vec<Option<Test>> = pairs
        .iter()
        .zip(&differences)
        .map(|(pair, found)| {
            let p_value = found.filter(|_| enough(pair))?.p_value();
            Some(Test { p_value, blocks: pair.0.as_ref().len() })
        })
        .collect();
    // What was not measured side by side was not stopped by what it says.
    let options = &ComparisonOptions { looks: Vec::new(), ..*options };
    let corrected = holm(&tests, 1.0 - options.confidence, options);
    let comparisons = pairs.iter().zip(differences).zip(tests).zip(corrected);
    Ok(comparisons
        .map(|((((before, after), found), test), corrected)| {
            let interval = found.zip(corrected).map(|(found, corrected)| {
                corrected.around(found.separate.estimate, found.half_width(corrected.level))
            });
            UnpairedComparison {
                count_before: before.as_ref().len(),
                count_after: after.as_ref().len(),
                ratio: found.map(|found| found.separate.estimate.exp()),
                interval,
                p_value: test.map(|test| test.p_value),
                p_adjusted: corrected.map(|corrected| corrected.p_adjusted),
                verdict: verdict(interval.as_ref(), options),
            }
        })
        .collect())
}

/// Welch: the standard error is √(s₁²/n₁ + s₂²/n₂), its degrees of freedom those of Welch (1947)
/// and Satterthwaite (1946). Student: s √(1/n₁ + 1/n₂) with s² the pooled variance. None where a
/// sample is empty.
///
/// Welch alone is misled where a small sample happens to have missed what disturbs the large one:
/// its own scatter looks small, and the large one's counts little. With 15 % of the trials
/// disturbed threefold, 5 trials against 20 then differ falsely in 13 % of comparisons; pooling the
/// scatter takes that away. Pooling alone is misled where the two really scatter differently.
fn difference(before: &[f64], after: &[f64]) -> Option<Difference> {
    let (first, second) = (moments(before)?, moments(after)?);
    let square = first.error_square() + second.error_square();
    let parts = [&first, &second]
        .map(|sample| sample.error_square().powi(2) / (sample.count - 1.0).max(1.0))
        .iter()
        .sum::<f64>();
    // Two samples without any scatter have no error, whatever its degrees of freedom.
    let separate_freedom = if parts > 0.0 { square.powi(2) / parts } else { 1.0 };
    let pooled_freedom = (first.count + second.count - 2.0).max(1.0);
    let variance = (first.squares + second.squares) / pooled_freedom;
    let with_error = |square: f64, degrees_of_freedom: f64| Location {
        estimate: second.mean - first.mean,
        standard_error: square.sqrt(),
        degrees_of_freedom: degrees_of_freedom.max(1.0),
        trimmed_per_side: 0,
    };
    Some(Difference {
        separate: with_error(square, separate_freedom),
        pooled: with_error(variance * (1.0 / first.count + 1.0 / second.count), pooled_freedom),
    })
}

/// Mean of the logarithms, and the sum of their squared distances from it.
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Square of the mean's standard error.
    fn error_square(&self) -> f64 {
        self.squares / (self.count - 1.0).max(1.0) / self.count
    }
}

fn moments(values: &[f64]) -> Option<Moments> {
    let count = values.len() as f64;
    let first = values.first()?.ln();
    // Equal values must not differ by the rounding of their mean.
    let mean = first + values.iter().map(|value| (value.ln() - first) / count).sum::<f64>();
    let squares = values.iter().map(|value| (value.ln() - mean).powi(2)).sum();
    Some(Moments { count, mean, squares })
}

impl Difference {
    fn half_width(&self, alpha: f64) -> f64 {
        self.separate.half_width(alpha).max(self.pooled.half_width(alpha))
    }

    fn p_value(&self) -> f64 {
        self.separate.p_value().max(self.pooled.p_value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ComparisonOptions =
        ComparisonOptions { confidence: 0.95, same_within: 0.05, looks: Vec::new() };

    fn one(before: &[f64], after: &[f64]) -> UnpairedComparison {
        compare_unpaired_family(&[(before, after)], &OPTIONS).unwrap()[0]
    }

    #[test]
    fn a_case_worked_by_hand() {
        // Logarithms 0, 1, 2 and 3, 5, 7, 9: means 1 and 6; variances 1 and 20/3, so the squared
        // error is 1/3 + 5/3 = 2 on 4 / (1/18 + 25/27) = 216/53 degrees of freedom.
        let found = difference(&[0.0, 1.0, 2.0].map(f64::exp), &[3.0, 5.0, 7.0, 9.0].map(f64::exp))
            .unwrap();
        assert!((found.separate.estimate - 5.0).abs() < 1e-12);
        assert!((found.separate.standard_error - 2f64.sqrt()).abs() < 1e-12);
        assert!((found.separate.degrees_of_freedom - 216.0 / 53.0).abs() < 1e-9);
        // Pooled: (2 + 20) / 5 of variance, times 1/3 + 1/4.
        assert!((found.pooled.standard_error - (4.4 * 7.0 / 12.0f64).sqrt()).abs() < 1e-12);
        assert_eq!(found.pooled.degrees_of_freedom, 5.0);
        // The wider of the two is taken: here Student's, and Welch's where the smaller sample
        // scatters more than the larger.
        assert_eq!(found.half_width(0.05), found.pooled.half_width(0.05));
        assert!(found.half_width(0.05) > found.separate.half_width(0.05));
        let found = difference(&[0.0, 3.0, 9.0].map(f64::exp), &[1.0, 1.1, 1.2, 1.3].map(f64::exp));
        let found = found.unwrap();
        assert!(found.half_width(0.05) > found.pooled.half_width(0.05));
    }

    #[test]
    fn the_two_agree_where_both_scatter_alike() {
        let before = [1.0, 2.0, 3.0, 4.0].map(f64::exp);
        let after = [11.0, 12.0, 13.0, 14.0].map(f64::exp);
        let found = difference(&before, &after).unwrap();
        let (separate, pooled) = (found.separate, found.pooled);
        assert!((separate.degrees_of_freedom - 6.0).abs() < 1e-9, "{found:?}");
        assert!((separate.standard_error - pooled.standard_error).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_verdicts_are_those_of_all_comparisons() {
        let quiet = [1.0, 1.001, 0.999, 1.0];
        let doubled = quiet.map(|value| 2.0 * value);
        assert_eq!(one(&quiet, &doubled).verdict, Verdict::Slower);
        assert_eq!(one(&doubled, &quiet).verdict, Verdict::Faster);
        assert_eq!(one(&quiet, &quiet).verdict, Verdict::Same { within: 0.05 });
        assert_eq!(one(&quiet[..2], &doubled).verdict, Verdict::Inconclusive);
        assert_eq!(one(&[], &quiet).ratio, None);
        assert_eq!(one(&[5.0; 3], &[5.0; 4]).p_value, Some(1.0));
        assert_eq!(one(&[5.0; 3], &[6.0; 4]).verdict, Verdict::Slower);
    }

    #[test]
    fn bad_values_are_refused_with_their_place() {
        let refused = compare_unpaired_family(&[(vec![1.0, 0.0], vec![1.0])], &OPTIONS);
        assert_eq!(refused, Err(StatisticsError::BadSample { index: 1, value: 0.0 }));
        let options = ComparisonOptions { confidence: 2.0, ..OPTIONS };
        assert!(compare_unpaired_family::<Vec<f64>>(&[], &options).is_err());
    }
}
