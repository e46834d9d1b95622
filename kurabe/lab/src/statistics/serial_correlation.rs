//! Whether a comparison's ratios are correlated: each follows the one before it, so that the blocks are no
//! independent trials and an interval from their scatter is too narrow.
//!
//! It takes samples by block and changes no estimate. In a study that stops when it knows, the
//! intervals are wider where it finds that.

use super::distribution::normal_two_sided;

/// Fewest ratios of which it can be told.
const PAIRS_MIN: usize = 6;
/// Level of the warning, one-sided. It is lenient: a correlation changes the rate of false
/// differences, and a remark costs little.
const LEVEL: f64 = 0.05;
/// Largest correlation that is believed of so few values.
const CORRELATION_MAX: f64 = 0.8;
/// Standard errors of the correlation, 1 / √n, up to which it is not excluded.
const CORRELATION_ERRORS: f64 = 2.5;

/// The correlation of the ratios with the ones before them, where it is significantly above 0: von
/// Neumann's ratio of successive differences (1941), whose mean is 2 and whose variance is
/// 4 (n - 2) / (n² - 1) where each is independent of the last.
pub fn serial_correlation(baseline: &[f64], contender: &[f64]) -> Option<f64> {
    let ratios = log_ratios(baseline, contender);
    let count = ratios.len() as f64;
    if ratios.len() < PAIRS_MIN {
        return None;
    }
    let neumann = neumann(&ratios)?;
    let deviation = (4.0 * (count - 2.0) / (count * count - 1.0)).sqrt();
    let distance = (2.0 - neumann) / deviation;
    let is_correlated = distance > 0.0 && normal_two_sided(distance) / 2.0 < LEVEL;
    is_correlated.then_some(1.0 - neumann / 2.0)
}

/// By what the standard error of the ratios' mean grows when each follows the one before: √((1 + r) /
/// (1 - r)) with their correlation r where it is significant. What chance shows of one is no reason to
/// widen an interval.
pub(super) fn widening(baseline: &[f64], contender: &[f64]) -> f64 {
    growth(serial_correlation(baseline, contender).unwrap_or_default().clamp(0.0, CORRELATION_MAX))
}

/// By what the standard error may still be too small: the growth by the largest correlation that
/// so many ratios do not exclude, over the growth that was allowed for.
pub(super) fn unseen_growth(baseline: &[f64], contender: &[f64], allowed: f64) -> f64 {
    let ratios = log_ratios(baseline, contender);
    let count = ratios.len() as f64;
    let Some(neumann) = neumann(&ratios) else { return 1.0 };
    let found = 1.0 - neumann / 2.0;
    let most = (found + CORRELATION_ERRORS / count.sqrt()).clamp(0.0, CORRELATION_MAX);
    (growth(most) / allowed).max(1.0)
}

/// By what the standard error of a mean grows when each value follows the one before by so much.
fn growth(correlation: f64) -> f64 {
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

fn log_ratios(baseline: &[f64], contender: &[f64]) -> Vec<f64> {
    baseline.iter().zip(contender).map(|(under, over)| (over / under).ln()).collect()
}

/// Mean square of the steps over that of the distances from the mean.
fn neumann(ratios: &[f64]) -> Option<f64> {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    let steps: f64 = ratios.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    (squares > 0.0).then(|| steps / (count - 1.0) / (squares / count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_that_follow_each_other_are_seen_and_others_are_not() {
        let baseline = [1.0; 10];
        let slow = [1.0, 1.02, 1.05, 1.07, 1.06, 1.04, 1.01, 0.98, 0.96, 0.97];
        assert!(serial_correlation(&baseline, &slow).is_some_and(|found| found > 0.5));
        let quick = [1.0, 1.05, 0.97, 1.04, 0.98, 1.02, 0.96, 1.06, 1.0, 0.99];
        assert_eq!(serial_correlation(&baseline, &quick), None);
        assert!(widening(&baseline, &slow) > 2.0);
        assert_eq!(widening(&baseline, &quick), 1.0);
        assert_eq!(widening(&baseline[..4], &slow[..4]), 1.0);
        assert_eq!(serial_correlation(&baseline, &[1.0; 10]), None);
        assert_eq!(serial_correlation(&baseline[..5], &slow[..5]), None);
        // Five ratios exclude next to nothing; two hundred do.
        assert!(unseen_growth(&baseline[..5], &[1.0, 1.03, 1.02, 0.98, 0.99], 1.0) > 1.5);
        let many: Vec<f64> = quick.iter().cycle().take(200).copied().collect();
        assert_eq!(unseen_growth(&[1.0; 200], &many, 1.0), 1.0);
        assert_eq!(unseen_growth(&baseline, &[1.0; 10], 1.0), 1.0);
    }
}
