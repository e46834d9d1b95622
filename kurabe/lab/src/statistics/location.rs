//! Where a small sample of logarithms lies, and how sure that is: the mean with Student's error, or
//! the trimmed mean where single disturbed values drown everything else. It is the one procedure
//! behind every interval of a ratio.
//!
//! It knows numbers only. The choice is argued and measured in `docs/reference/statistics.md`: a percentile
//! bootstrap over five blocks calls one comparison in six different when nothing is; Student's t is
//! honest, but one trial that took three times as long blinds it for good. Trimming always would
//! widen the intervals of a quiet study of ten blocks by 30 %.

use super::compare::Correction;
use super::distribution::Student;
use super::runs::Runs;

/// Fewest values from which some may be set aside. With six, four would be kept, whose interval is
/// so erratic that choosing between the two would show in the error rate.
const TRIM_FROM: usize = 7;
/// Share of the values set aside on either side, the usual fifth (Wilcox, *Introduction to Robust
/// Estimation and Hypothesis Testing*).
const TRIM_SHARE: f64 = 0.2;
/// The level at which the two intervals are held against each other.
const TRIM_LEVEL: f64 = 0.05;

/// Fewest blocks whose degrees of freedom those of their runs add to.
const BLOCKS_MIN_TO_GAIN: usize = 5;

/// A mean, trimmed or not, and the scale of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Location {
    /// The mean of the values that were kept.
    pub estimate: f64,
    /// Its standard error; 0 when all values are equal.
    pub standard_error: f64,
    /// Degrees of freedom of the t distribution that belongs to it.
    pub degrees_of_freedom: f64,
    /// How many values were set aside on either side.
    pub trimmed_per_side: usize,
}

/// The trimmed interval is taken where it is less than this share of the plain one: from 0.29 with
/// seven values to one half from twelve on. In a normal sample that happens less than once in a
/// hundred times, so the choice does not bend the error rate; with one value far out it happens
/// nearly always.
fn trimmed_below(count: usize) -> f64 {
    count.min(12) as f64 / 24.0
}

/// How many of `count` values are set aside on either side where some are.
fn trimmed_per_side(count: usize) -> usize {
    if count < TRIM_FROM { 0 } else { (count as f64 * TRIM_SHARE) as usize }
}

/// The location of at least one value. The error needs two.
pub(super) fn locate(values: &[f64]) -> Location {
    assert!(!values.is_empty(), "programmer's error: no values");
    let sorted = super::sorted(values);
    let plain = locate_trimmed(&sorted, 0);
    let side = trimmed_per_side(sorted.len());
    if side == 0 {
        return plain;
    }
    let trimmed = locate_trimmed(&sorted, side);
    // Counters take few values: where all that differs would be set aside, an error of nothing
    // would claim a certainty that the sample does not have. The errors are compared before the
    // quantiles, which are larger for the trimmed mean, because that settles most cases.
    let share = trimmed_below(sorted.len());
    let gross = trimmed.standard_error > 0.0
        && trimmed.standard_error < share * plain.standard_error
        && trimmed.half_width(TRIM_LEVEL) < share * plain.half_width(TRIM_LEVEL);
    if gross { trimmed } else { plain }
}

/// The location of sorted values with `side` of them set aside on either side.
///
/// The trimmed mean's error is the standard deviation of the *winsorised* values s_w (those set
/// aside are moved to the nearest kept one, not forgotten), with h = n - 2g kept values:
/// s_w sqrt(n - 1) / sqrt(h (h - 1)), on h - 1 degrees of freedom (Tukey & McLaughlin 1963; Yuen
/// 1974). With g = 0 that is the mean with Student's error. For small h that t is a little too
/// narrow: 400 000 normal samples a size from 6 to 40 ask for a factor of 1 + 2 g / h^2 to hold any
/// level down to 0.5 %. It is 1 + 3 g / h^2 here, because the narrower interval is chosen after
/// seeing the sample.
fn locate_trimmed(sorted: &[f64], side: usize) -> Location {
    let count = sorted.len();
    let kept = count - 2 * side;
    let (lowest, highest) = (sorted[side], sorted[count - 1 - side]);
    let estimate = mean(&sorted[side..count - side]).clamp(lowest, highest);
    if count < 2 {
        return Location {
            estimate,
            standard_error: f64::INFINITY,
            degrees_of_freedom: 1.0,
            trimmed_per_side: 0,
        };
    }
    let winsorised: Vec<f64> = sorted.iter().map(|value| value.clamp(lowest, highest)).collect();
    // Equal values must not differ by the rounding of their mean.
    let centre = if lowest == highest { lowest } else { mean(&winsorised) };
    let squares: f64 = winsorised.iter().map(|value| (value - centre).powi(2)).sum();
    let factor = 1.0 + 3.0 * side as f64 / (kept * kept) as f64;
    Location {
        estimate,
        standard_error: factor * (squares / (kept * (kept - 1)) as f64).sqrt(),
        degrees_of_freedom: (kept - 1) as f64,
        trimmed_per_side: side,
    }
}

impl Location {
    /// The location where all of its group scatter alike but for chance: `variance` is the square of
    /// the error that their common scatter gives, with its degrees of freedom. Who scatters more than
    /// that keeps its own error, and the less of these the more it does. Not where single values were set aside, nor where none differ.
    pub(super) fn of_group(self, variance: f64, freedom: f64) -> Location {
        if self.trimmed_per_side > 0 || self.standard_error == 0.0 {
            return self;
        }
        let own = self.standard_error.powi(2);
        let likeness = (variance / own).min(1.0);
        Location {
            standard_error: own.max(variance).sqrt(),
            degrees_of_freedom: self.degrees_of_freedom.max(freedom * likeness.powi(2)),
            ..self
        }
    }

    /// The location once effects that were estimated themselves were taken out of its values.
    pub(super) fn less(self, correction: Correction) -> Location {
        if correction == Correction::default() {
            return self;
        }
        let left = (self.degrees_of_freedom - correction.freedom).max(1.0);
        let variance = self.standard_error.powi(2) * self.degrees_of_freedom / left;
        Location {
            standard_error: (variance + correction.variance).sqrt(),
            degrees_of_freedom: left,
            ..self
        }
    }

    /// The location of `blocks` blocks, no surer than the runs within them allow. Where these ask for
    /// more than the blocks show, they tell the scatter too: their degrees of freedom count, up to as
    /// many as the blocks have, which holds the level whatever the blocks add (`docs/reference/statistics.md`).
    pub(super) fn at_least(self, runs: Runs, blocks: usize) -> Location {
        let least = runs.variance / blocks as f64;
        if self.standard_error == 0.0 || self.standard_error.powi(2) >= least {
            return self;
        }
        let own = self.degrees_of_freedom;
        let gained = if blocks < BLOCKS_MIN_TO_GAIN { 0.0 } else { runs.freedom.min(own) };
        Location { standard_error: least.sqrt(), degrees_of_freedom: own + gained, ..self }
    }

    /// The location with a larger error.
    pub(super) fn widened(self, factor: f64) -> Location {
        Location { standard_error: self.standard_error * factor, ..self }
    }

    /// The location of values that were rounded before they were seen, with this variance. Equal ones
    /// stay certain: they were counted.
    pub(super) fn blurred(self, variance: f64) -> Location {
        if self.standard_error == 0.0 {
            return self;
        }
        Location { standard_error: (self.standard_error.powi(2) + variance).sqrt(), ..self }
    }

    /// Half the width of the interval that misses with probability `alpha`.
    pub(super) fn half_width(&self, alpha: f64) -> f64 {
        if self.standard_error == 0.0 {
            return 0.0;
        }
        Student::new(self.degrees_of_freedom).quantile(alpha) * self.standard_error
    }

    /// Two-sided p value of the hypothesis that the location is 0.
    pub(super) fn p_value(&self) -> f64 {
        if self.estimate == 0.0 {
            1.0
        } else if self.standard_error == 0.0 {
            0.0
        } else {
            Student::new(self.degrees_of_freedom)
                .two_sided((self.estimate / self.standard_error).abs())
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_trimming_it_is_the_mean_with_its_standard_error() {
        // 1, 2, 3, 4, 5: mean 3, variance 2.5, error sqrt(2.5 / 5).
        let location = locate(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert!((location.estimate - 3.0).abs() < 1e-15);
        assert!((location.standard_error - 0.5f64.sqrt()).abs() < 1e-15);
        assert_eq!(location.degrees_of_freedom, 4.0);
        assert_eq!(location.trimmed_per_side, 0);
    }

    #[test]
    fn one_value_far_out_is_set_aside_and_still_counts_for_the_error() {
        // 1..=6 and 100 set 1 and 100 aside: the mean of 2..=6 is 4; winsorised 2, 2, 3, 4, 5, 6, 6
        // has the squares 4 + 4 + 1 + 0 + 1 + 4 + 4 = 18; h (h - 1) = 20, the factor 1 + 3 / 25.
        let location = locate(&[1.0, 100.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!((location.estimate - 4.0).abs() < 1e-15);
        assert!((location.standard_error - 1.12 * (18f64 / 20.0).sqrt()).abs() < 1e-14);
        assert_eq!((location.degrees_of_freedom, location.trimmed_per_side), (4.0, 1));
        // How far away the disturbed value lies makes no difference.
        assert_eq!(location, locate(&[1.0, 1e9, 2.0, 3.0, 4.0, 5.0, 6.0]));
    }

    #[test]
    fn a_quiet_sample_keeps_all_its_values() {
        let location = locate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!((location.trimmed_per_side, location.degrees_of_freedom), (0, 9.0));
        // Six values are too few for a choice.
        assert_eq!(locate(&[1.0, 2.0, 3.0, 4.0, 5.0, 1e9]).trimmed_per_side, 0);
    }

    #[test]
    fn values_that_differ_only_where_trimmed_are_not_certain() {
        let location = locate(&[0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]);
        assert_eq!(location.trimmed_per_side, 0);
        assert!((location.standard_error - 0.1 / 7.0).abs() < 1e-15, "{location:?}");
        assert_eq!(locate(&[0.1; 7]).standard_error, 0.0);
    }

    #[test]
    fn the_trimmed_share_grows_with_the_sample() {
        let sides: Vec<usize> =
            [1, 6, 7, 9, 10, 14, 15, 30].iter().map(|count| trimmed_per_side(*count)).collect();
        assert_eq!(sides, [0, 0, 1, 1, 2, 2, 3, 6]);
    }
}
