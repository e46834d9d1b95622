//! Steady state of a series of rounds, by the rule of SNIA's Solid State Storage Performance Test
//! Specification.
//!
//! The series is whatever a round yields (operations a second, mean latency), one value a round of
//! equal length. It is reported, never assumed: nothing is cut off here.

use serde::{Deserialize, Serialize};

use super::StatisticsError;

/// Rounds in the measurement window.
const WINDOW_ROUNDS: usize = 5;
/// Largest range within the window, as a share of the average.
const RANGE_MAX: f64 = 0.2;
/// Largest excursion of the fitted line within the window, as a share of the average.
const SLOPE_MAX: f64 = 0.1;

/// One measurement window of five rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// Index of the window's first round, from 0.
    pub first_round: usize,
    /// The values of its rounds.
    pub values: [f64; WINDOW_ROUNDS],
    /// Their average.
    pub average: f64,
    /// Largest minus smallest, as a share of the average; at most 0.20 when steady.
    pub range: f64,
    /// Rise (or fall, negative) of the least-squares line from the first round to the last, as a
    /// share of the average; between -0.10 and 0.10 when steady.
    pub slope: f64,
    /// Whether both conditions hold.
    pub steady: bool,
}

/// What the rule says of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Number of rounds in the series.
    pub rounds: usize,
    /// The last window; its verdict is the series' verdict. None with fewer than five rounds.
    pub window: Option<SteadyWindow>,
    /// The round (from 0) at whose end a window was steady for the first time, whatever came
    /// later.
    pub first_reached: Option<usize>,
    /// The round (from 0) at whose end a window was steady, and from which on every window to the
    /// last was. None when the last is not.
    pub kept_from: Option<usize>,
}

impl SteadyState {
    /// Whether the series ended in steady state.
    pub fn is_steady(&self) -> bool {
        self.window.is_some_and(|window| window.steady)
    }
}

/// Applies the rule to every window of the series.
///
/// Errors: a value that is negative, infinite or not a number. Zeros are allowed (a stalled round);
/// a window of zeros only is not steady.
pub fn steady_state(series: &[f64]) -> Result<SteadyState, StatisticsError> {
    if let Some(index) = series.iter().position(|value| !(value.is_finite() && *value >= 0.0)) {
        return Err(StatisticsError::BadSeries { index, value: series[index] });
    }
    let windows: Vec<SteadyWindow> = series
        .windows(WINDOW_ROUNDS)
        .enumerate()
        .map(|(first, values)| judge(first, values))
        .collect();
    Ok(SteadyState {
        rounds: series.len(),
        window: windows.last().copied(),
        first_reached: windows
            .iter()
            .find(|window| window.steady)
            .map(|window| window.first_round + WINDOW_ROUNDS - 1),
        kept_from: windows
            .iter()
            .rev()
            .take_while(|window| window.steady)
            .last()
            .map(|window| window.first_round + WINDOW_ROUNDS - 1),
    })
}

fn judge(first_round: usize, window: &[f64]) -> SteadyWindow {
    let mut values = [0.0; WINDOW_ROUNDS];
    values.copy_from_slice(window);
    let rounds = WINDOW_ROUNDS as f64;
    let average = values.iter().map(|value| value / rounds).sum::<f64>();
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    // The least-squares slope over x = -2..=2, whose squares sum to 10, times the span of 4.
    let middle = (rounds - 1.0) / 2.0;
    let moment: f64 = values
        .iter()
        .enumerate()
        .map(|(round, value)| (round as f64 - middle) * (value / average))
        .sum();
    let squares: f64 = (0..WINDOW_ROUNDS).map(|round| (round as f64 - middle).powi(2)).sum();
    let (range, slope) = if average > 0.0 {
        ((largest - smallest) / average, moment / squares * (rounds - 1.0))
    } else {
        (0.0, 0.0)
    };
    SteadyWindow {
        first_round,
        values,
        average,
        range,
        slope,
        steady: average > 0.0 && range <= RANGE_MAX && slope.abs() <= SLOPE_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settling_series_is_steady_from_its_first_flat_window() {
        let series = [100.0, 80.0, 65.0, 60.0, 58.0, 57.0, 57.0, 56.0, 57.0];
        let found = steady_state(&series).unwrap();
        // Rounds 3..=7 (60, 58, 57, 57, 56): the line falls 3.6 of 57.6; rounds 2..=6 fall 6.8 of
        // 59.4, which is 11 %.
        assert_eq!(found.first_reached, Some(7));
        assert!(found.is_steady());
        let window = found.window.unwrap();
        assert_eq!((window.first_round, window.values), (4, [58.0, 57.0, 57.0, 56.0, 57.0]));
        assert!((window.average - 57.0).abs() < 1e-12);
        assert!((window.range - 2.0 / 57.0).abs() < 1e-12);
        // Sum of x y: -2*58 - 57 + 56 + 2*57 = -3; slope -0.3 a round, -1.2 over the window.
        assert!((window.slope + 1.2 / 57.0).abs() < 1e-12);
    }

    #[test]
    fn the_limits_themselves_are_steady_and_just_beyond_is_not() {
        // Range exactly 20 % of the average 100, no slope.
        assert!(steady_state(&[100.0, 90.0, 110.0, 90.0, 110.0]).is_ok_and(|f| {
            let window = f.window.unwrap();
            (window.range - 0.2).abs() < 1e-12 && (window.slope - 0.08).abs() < 1e-12
        }));
        assert!(steady_state(&[90.0, 110.0, 100.0, 110.0, 90.0]).unwrap().is_steady());
        assert!(!steady_state(&[89.0, 111.0, 100.0, 111.0, 89.0]).unwrap().is_steady());
        // A line: its range is its slope, so 10 % is the limit.
        let line = |rise: f64| -> Vec<f64> {
            (0..5).map(|round| 100.0 + rise * (f64::from(round) - 2.0) / 4.0).collect()
        };
        assert!(steady_state(&line(9.99)).unwrap().is_steady());
        assert!(!steady_state(&line(10.01)).unwrap().is_steady());
        assert!(!steady_state(&line(-10.01)).unwrap().is_steady());
    }

    #[test]
    fn reached_once_and_lost_again_is_not_steady() {
        let found = steady_state(&[5.0, 5.0, 5.0, 5.0, 5.0, 9.0]).unwrap();
        assert_eq!((found.first_reached, found.is_steady()), (Some(4), false));
        assert_eq!(found.kept_from, None);
        // Steady, lost, steady again: kept only from the second time on.
        let series = [5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0];
        let found = steady_state(&series).unwrap();
        assert_eq!((found.first_reached, found.kept_from), (Some(4), Some(9)));
    }

    #[test]
    fn short_series_and_stalls_are_not_steady_and_bad_values_are_refused() {
        assert_eq!(steady_state(&[1.0; 4]).unwrap().window, None);
        assert!(!steady_state(&[0.0; 7]).unwrap().is_steady());
        assert!(matches!(
            steady_state(&[1.0, f64::NAN]),
            Err(StatisticsError::BadSeries { index: 1, .. })
        ));
        assert!(steady_state(&[1.0, -1.0]).is_err());
        assert!(steady_state(&[f64::INFINITY]).is_err());
    }
}
