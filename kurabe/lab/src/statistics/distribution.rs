//! The distributions that the tests and intervals need: Student's t, the normal, the binomial.
//!
//! It knows nothing of samples. Student's t goes through the regularised incomplete beta function
//! by Lentz's continued fraction (Abramowitz & Stegun 26.5.8, 26.7.1; Lentz 1976), so that small
//! tail probabilities keep their relative accuracy and p values of very clear differences are not 0.
//! The gamma and error functions are libm's. The crate statrs was not taken for Student's t: at one
//! degree of freedom, the tail at the quantile that it gives for 1e-10 is 7e-9.

use libm::{erfc, lgamma};

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const TERMS_MAX: u32 = 10_000;
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for term in 1..=TERMS_MAX {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        let step = d * c;
        fraction *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

/// The regularised incomplete beta function I_x(a, b), of x and 1 - x, with ln B(a, b).
fn incomplete_beta((a, b): (f64, f64), (x, complement): (f64, f64), log_beta: f64) -> f64 {
    if x <= 0.0 || complement <= 0.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (a * x.ln() + b * complement.ln() - log_beta).exp();
    // Each of the two fractions converges fast on its own side only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, complement) / b
    }
}

/// The probability that Fisher's F with these degrees of freedom exceeds `f`: I_x(d / 2, n / 2) at
/// x = d / (d + n f), n of the numerator and d of the denominator.
pub(super) fn fisher_tail(f: f64, numerator: f64, denominator: f64) -> f64 {
    let (a, b) = (denominator / 2.0, numerator / 2.0);
    let x = denominator / (denominator + numerator * f);
    incomplete_beta((a, b), (x, 1.0 - x), lgamma(a) + lgamma(b) - lgamma(a + b))
}

/// Student's t distribution with a number of degrees of freedom.
pub(super) struct Student {
    degrees_of_freedom: f64,
    /// ln B(degrees of freedom / 2, 1 / 2), the costly part of every probability.
    log_beta: f64,
}

impl Student {
    pub(super) fn new(degrees_of_freedom: f64) -> Student {
        assert!(degrees_of_freedom >= 1.0, "programmer's error: {degrees_of_freedom} degrees");
        let half = degrees_of_freedom / 2.0;
        let log_beta = lgamma(half) + lgamma(0.5) - lgamma(half + 0.5);
        Student { degrees_of_freedom, log_beta }
    }

    /// The probability that |T| exceeds `t` >= 0: the regularised incomplete beta function
    /// I_x(f / 2, 1 / 2) at x = f / (f + t^2).
    pub(super) fn two_sided(&self, t: f64) -> f64 {
        assert!(t >= 0.0, "programmer's error: t is {t}");
        let (a, b) = (self.degrees_of_freedom / 2.0, 0.5);
        let square = t * t;
        let x = self.degrees_of_freedom / (self.degrees_of_freedom + square);
        // Where the square has no value, its share is all there is.
        let complement =
            if t.is_infinite() { 1.0 } else { square / (self.degrees_of_freedom + square) };
        incomplete_beta((a, b), (x, complement), self.log_beta)
    }

    /// The density at `t`, of both sides together.
    fn density(&self, t: f64) -> f64 {
        let freedom = self.degrees_of_freedom;
        let log_kernel = -(freedom + 1.0) / 2.0 * (t * t / freedom).ln_1p();
        2.0 * (log_kernel - self.log_beta).exp() / freedom.sqrt()
    }

    /// The `t` with `two_sided(t) == alpha`, for 0 < alpha < 1.
    pub(super) fn quantile(&self, alpha: f64) -> f64 {
        assert!(alpha > 0.0 && alpha < 1.0, "programmer's error: level {alpha}");
        // As a function of ln t, the logarithm of the tail falls ever more steeply, so Newton's
        // steps come down to the root from above and cannot miss it; a step up may overshoot, and
        // is kept short lest the tail there vanish from the range of doubles.
        let mut log_t: f64 = 0.0;
        for _ in 0..100 {
            let t = log_t.exp();
            let tail = self.two_sided(t);
            let step = ((tail / alpha).ln() * tail / (t * self.density(t))).min(1.0);
            log_t += step;
            if step.abs() < 1e-13 {
                break;
            }
        }
        log_t.exp()
    }
}

/// The probability that |Z| exceeds `z` >= 0 under the standard normal distribution.
pub(super) fn normal_two_sided(z: f64) -> f64 {
    erfc(z / std::f64::consts::SQRT_2)
}

/// The probability of at most `successes` of `trials` fair coins.
pub(super) fn fair_coins_at_most(successes: usize, trials: usize) -> f64 {
    // Logarithms, because 2^-trials leaves the range of doubles above a thousand coins.
    let log_half_power = -(trials as f64) * std::f64::consts::LN_2;
    let mut log_choose = 0.0;
    let mut sum = 0.0;
    for count in 0..=successes.min(trials) {
        sum += f64::exp(log_choose + log_half_power);
        log_choose += ((trials - count) as f64).ln() - ((count + 1) as f64).ln();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-sided 5 % and 1 % points from the tables of Fisher & Yates (1963).
    const TABLE: [(f64, f64, f64); 7] = [
        (1.0, 12.706, 63.657),
        (2.0, 4.303, 9.925),
        (3.0, 3.182, 5.841),
        (4.0, 2.776, 4.604),
        (9.0, 2.262, 3.250),
        (29.0, 2.045, 2.756),
        (120.0, 1.980, 2.617),
    ];

    #[test]
    fn the_quantiles_agree_with_the_printed_tables() {
        for (freedom, five, one) in TABLE {
            assert!((Student::new(freedom).quantile(0.05) - five).abs() < 6e-4, "{freedom}");
            assert!((Student::new(freedom).quantile(0.01) - one).abs() < 6e-4, "{freedom}");
        }
    }

    /// Two-sided points at 1e-3, 1e-6 and 1e-10, computed with 40 digits by mpmath's incomplete beta
    /// function and cut to 14.
    const TAILS: [f64; 3] = [1e-3, 1e-6, 1e-10];
    const FAR_TABLE: [(f64, [f64; 3]); 6] = [
        (1.0, [636.619_248_768_71, 636_619.772_367_05, 6_366_197_723.675_8]),
        (2.0, [31.599_054_576_443, 999.999_249_999_84, 99_999.999_992_5]),
        (4.0, [8.610_301_581_379_2, 49.458_636_756_934, 494.919_832_850_11]),
        (9.0, [4.780_912_585_931_1, 11.636_782_027_328, 33.218_654_254_619]),
        (30.0, [3.645_958_635_042_0, 6.119_075_620_384_2, 9.667_351_762_492_5]),
        (1000.0, [3.300_282_648_423_9, 4.922_289_523_429_5, 6.536_820_830_040_5]),
    ];
    const FAR_NORMAL: [f64; 3] = [3.290_526_731_491_8, 4.891_638_475_698_5, 6.466_951_087_240_5];

    #[test]
    fn far_tails_agree_with_values_of_forty_digits() {
        let near = |found: f64, exact: f64| (found / exact - 1.0).abs() < 1e-10;
        for (place, tail) in TAILS.into_iter().enumerate() {
            for (freedom, points) in FAR_TABLE {
                let student = Student::new(freedom);
                let (point, found) = (student.quantile(tail), student.two_sided(points[place]));
                assert!(near(point, points[place]), "{freedom} {tail}: {point}");
                assert!(near(found, tail), "{freedom} {tail}: {found}");
            }
            let found = normal_two_sided(FAR_NORMAL[place]);
            assert!(near(found, tail), "{tail}: {found}");
        }
    }

    #[test]
    fn fisher_s_tail_agrees_with_the_printed_tables() {
        // 5 % and 1 % points: F(2, 10) = 4.103, F(3, 20) = 4.938, and F(1, 9) = 2.262^2.
        for (f, numerator, denominator, expected) in [
            (4.103, 2.0, 10.0, 0.05),
            (4.938, 3.0, 20.0, 0.01),
            (2.262_f64.powi(2), 1.0, 9.0, 0.05),
        ] {
            let found = fisher_tail(f, numerator, denominator);
            assert!((found - expected).abs() < 1e-4, "{found}");
        }
        assert_eq!((fisher_tail(0.0, 2.0, 5.0), fisher_tail(f64::INFINITY, 2.0, 5.0)), (1.0, 0.0));
    }

    #[test]
    fn quantile_and_tail_are_inverse_at_every_level() {
        for freedom in [1.0, 2.0, 3.0, 7.0, 30.0, 1000.0] {
            for alpha in [0.999, 0.9, 0.5, 0.05, 0.0125, 1e-3, 1e-6, 1e-12] {
                let student = Student::new(freedom);
                let t = student.quantile(alpha);
                let back = student.two_sided(t);
                assert!((back / alpha - 1.0).abs() < 1e-9, "{freedom} {alpha}: {t} {back}");
            }
        }
    }

    #[test]
    fn one_degree_of_freedom_is_the_cauchy_distribution() {
        // P(|T| > t) = 1 - 2 atan(t) / pi exactly.
        for t in [0.0, 0.3, 1.0, 5.0, 100.0f64] {
            let exact = 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
            assert!((Student::new(1.0).two_sided(t) - exact).abs() < 1e-13, "{t}");
        }
    }

    #[test]
    fn the_normal_tail_and_the_coins_agree_with_the_tables() {
        assert!((normal_two_sided(1.959964) - 0.05).abs() < 1e-6);
        assert!((normal_two_sided(2.575829) - 0.01).abs() < 1e-6);
        assert!((fair_coins_at_most(0, 5) - 1.0 / 32.0).abs() < 1e-15);
        assert!((fair_coins_at_most(2, 5) - 0.5).abs() < 1e-15);
        assert!((fair_coins_at_most(5, 5) - 1.0).abs() < 1e-15);
        assert!((fair_coins_at_most(1000, 2001) - 0.5).abs() < 1e-10);
    }
}
