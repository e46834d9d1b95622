//! Steady state of a series of rounds, by the rule of SNIA's Solid State Storage Performance Test
//! Specification.
//!
//! The series is whatever a round yields (operations a second, mean latency), one value a round of
//! equal length. It is reported, never assumed: nothing is cut off here.

/// Rounds in a window.
pub const STEADY_ROUNDS: usize = 5;
/// Largest range within a window, as a share of the average.
const RANGE_MAX: f64 = 0.2;
/// Largest excursion of the fitted line within a window, as a share of the average.
const SLOPE_MAX: f64 = 0.1;

/// The round (from 0) at whose end a window was steady, and from which on every window to the last
/// was. None where the last is not, and of fewer than [`STEADY_ROUNDS`] rounds.
pub fn steady_from(series: &[f64]) -> Option<usize> {
    let unsteady = |window: &[f64]| !is_steady(window);
    let windows = series.windows(STEADY_ROUNDS);
    let count = windows.len();
    let first = windows.clone().rposition(unsteady).map_or(0, |last| last + 1);
    (first < count).then(|| first + STEADY_ROUNDS - 1)
}

/// Whether a window's values lie within 20 % of their average, and their line of least squares rises
/// or falls by at most 10 % of it. A window of zeros (a stall) is not steady.
fn is_steady(window: &[f64]) -> bool {
    let rounds = window.len() as f64;
    let average = window.iter().map(|value| value / rounds).sum::<f64>();
    let largest = window.iter().copied().fold(f64::MIN, f64::max);
    let smallest = window.iter().copied().fold(f64::MAX, f64::min);
    let middle = (rounds - 1.0) / 2.0;
    let distances = || (0..window.len()).map(|round| round as f64 - middle);
    let moment: f64 = distances().zip(window).map(|(x, value)| x * (value / average)).sum();
    let slope = moment / distances().map(|x| x * x).sum::<f64>() * (rounds - 1.0);
    average > 0.0 && (largest - smallest) / average <= RANGE_MAX && slope.abs() <= SLOPE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settling_series_is_steady_from_its_first_flat_window() {
        // Rounds 3..=7 (60, 58, 57, 57, 56): the line falls 3.6 of 57.6; rounds 2..=6 fall 6.8 of
        // 59.4, which is 11 %.
        let series = [100.0, 80.0, 65.0, 60.0, 58.0, 57.0, 57.0, 56.0, 57.0];
        assert_eq!(steady_from(&series), Some(7));
    }

    #[test]
    fn the_limits_themselves_are_steady_and_just_beyond_is_not() {
        assert!(is_steady(&[90.0, 110.0, 100.0, 110.0, 90.0]));
        assert!(!is_steady(&[89.0, 111.0, 100.0, 111.0, 89.0]));
        // A line: its range is its slope, so 10 % is the limit.
        let line = |rise: f64| -> Vec<f64> {
            (0..5).map(|round| 100.0 + rise * (f64::from(round) - 2.0) / 4.0).collect()
        };
        assert!(is_steady(&line(9.99)));
        assert!(!is_steady(&line(10.01)) && !is_steady(&line(-10.01)));
    }

    #[test]
    fn reached_once_and_lost_again_is_not_steady() {
        assert_eq!(steady_from(&[5.0, 5.0, 5.0, 5.0, 5.0, 9.0]), None);
        // Steady, lost, steady again: kept only from the second time on.
        let series = [5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0];
        assert_eq!(steady_from(&series), Some(9));
    }

    #[test]
    fn short_series_stalls_and_what_is_no_number_are_not_steady() {
        for series in [&[1.0; 4][..], &[0.0; 7], &[1.0, 1.0, f64::NAN, 1.0, 1.0], &[]] {
            assert_eq!(steady_from(series), None, "{series:?}");
        }
    }
}
