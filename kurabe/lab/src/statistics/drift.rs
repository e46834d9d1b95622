//! Did the samples change over the blocks? Two questions, two tests, both for warnings only.
//!
//! It takes one contender's samples in the order of the blocks and changes nothing in the
//! comparison: pairing takes a shared drift out of the ratio anyway.

use super::distribution::{Student, normal_two_sided};
use super::{check_samples, median_sorted, sorted};

/// Level below which a drift is worth a warning: five blocks in perfect order reach 1.7 %.
const DRIFT_LEVEL: f64 = 0.02;
/// Level below which an odd first block is worth a warning.
const FIRST_BLOCK_LEVEL: f64 = 0.01;
/// Smallest change, relative, that is worth a warning: below it nobody would act.
const CHANGE_MIN: f64 = 0.02;
/// Fewest samples for either test. Four blocks in perfect order reach only 8 %.
const SAMPLES_MIN: usize = 5;
/// Largest sample of which the slopes of all pairs are taken.
const ALL_PAIRS_SAMPLES_MAX: usize = 1000;
/// Largest sample for the exact distribution of Kendall's statistic.
const EXACT_SAMPLES_MAX: usize = 50;

/// The relative change from the first block to the last, where the samples of one contender have a
/// trend that is worth a warning: by Mann (1945) and Kendall at 2 %, of 2 % or more by the slope of
/// Theil and Sen (1968). None with fewer than five samples, and with one that has no logarithm.
pub fn drift(samples: &[f64]) -> Option<f64> {
    check_samples(samples).ok().filter(|()| samples.len() >= SAMPLES_MIN)?;
    let (score, slope) = trend(samples);
    let change = (slope * (samples.len() - 1) as f64).exp_m1();
    let is_certain = kendall_two_sided(score, samples) < DRIFT_LEVEL;
    (is_certain && change.abs() >= CHANGE_MIN).then_some(change)
}

/// Kendall's score (how many pairs rise less how many fall), and the median slope of the logarithms
/// a block: of all pairs, or, of a large sample, of those that lie half of it apart, which is Theil's
/// incomplete method (1950). So time and memory grow with the sample and not with its square.
fn trend(samples: &[f64]) -> (i64, f64) {
    let count = samples.len();
    let logarithms: Vec<f64> = samples.iter().map(|value| value.ln()).collect();
    let slope = |earlier: usize, later: usize| {
        (logarithms[later] - logarithms[earlier]) / (later - earlier) as f64
    };
    let slopes: Vec<f64> = if count <= ALL_PAIRS_SAMPLES_MAX {
        (1..count).flat_map(|later| (0..later).map(move |earlier| slope(earlier, later))).collect()
    } else {
        (count / 2..count).map(|later| slope(later - count / 2, later)).collect()
    };
    let pairs = |count: usize| (count * count.saturating_sub(1) / 2) as i64;
    let tied: i64 = tie_sizes(samples).into_iter().map(pairs).sum();
    let score = pairs(count) - tied - 2 * falling_pairs(&mut samples.to_vec());
    (score, median_sorted(&sorted(&slopes)))
}

/// The pairs of which the later value is smaller. Sorts the values by merging, which passes each pair by.
fn falling_pairs(values: &mut [f64]) -> i64 {
    if values.len() < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut falling = falling_pairs(left) + falling_pairs(right);
    let (mut merged, mut place) = (Vec::with_capacity(left.len() + right.len()), 0);
    for value in right.iter() {
        while place < left.len() && left[place] <= *value {
            merged.push(left[place]);
            place += 1;
        }
        falling += (left.len() - place) as i64;
        merged.push(*value);
    }
    merged.extend_from_slice(&left[place..]);
    values.copy_from_slice(&merged);
    falling
}

/// The first sample over the geometric mean of the others, where it is odd enough for a warning: at
/// 1 % and by 2 % or more, on logarithms, by the t distribution of a future value:
/// (x_1 - mean) / (s sqrt(1 + 1 / (n - 1))) on n - 2 degrees of freedom. None as of [`drift`].
pub fn odd_first_block(samples: &[f64]) -> Option<f64> {
    check_samples(samples).ok().filter(|()| samples.len() >= SAMPLES_MIN)?;
    let rest: Vec<f64> = samples[1..].iter().map(|value| value.ln()).collect();
    let size = rest.len() as f64;
    let mean = rest.iter().sum::<f64>() / size;
    let variance = rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (size - 1.0);
    let difference = samples[0].ln() - mean;
    let error = (variance * (1.0 + 1.0 / size)).sqrt();
    let is_certain = error == 0.0
        || Student::new(size - 1.0).two_sided((difference / error).abs()) < FIRST_BLOCK_LEVEL;
    (is_certain && difference.abs() >= CHANGE_MIN.ln_1p()).then(|| difference.exp())
}

/// Two-sided p value of Kendall's score: exact without ties up to fifty samples, otherwise the
/// normal approximation with the variance for ties and a continuity correction.
fn kendall_two_sided(score: i64, samples: &[f64]) -> f64 {
    let ties = tie_sizes(samples);
    let count = samples.len();
    if ties.is_empty() && count <= EXACT_SAMPLES_MAX {
        // Discordant pairs d give the score n (n - 1) / 2 - 2 d; the tail is on the smaller side.
        let pairs = (count * (count - 1) / 2) as i64;
        let inversions = ((pairs - score.abs()) / 2) as usize;
        let tail: f64 = inversion_probabilities(count)[..=inversions].iter().sum();
        return (2.0 * tail).min(1.0);
    }
    let spread = |size: f64| size * (size - 1.0) * (2.0 * size + 5.0);
    let tied: f64 = ties.iter().map(|size| spread(*size as f64)).sum();
    let variance = (spread(count as f64) - tied) / 18.0;
    if variance <= 0.0 {
        return 1.0;
    }
    normal_two_sided((score.abs() as f64 - 1.0).max(0.0) / variance.sqrt())
}

/// Sizes of the groups of equal values, those of one value left out.
fn tie_sizes(samples: &[f64]) -> Vec<usize> {
    sorted(samples)
        .chunk_by(|left, right| left == right)
        .map(<[f64]>::len)
        .filter(|size| *size > 1)
        .collect()
}

/// The probability of each number of inversions in a random order of `count` values: adding the
/// k-th value to an order adds 0 to k - 1 inversions, each equally likely.
fn inversion_probabilities(count: usize) -> Vec<f64> {
    let mut probabilities = vec![1.0];
    for size in 2..=count {
        let mut next = vec![0.0; probabilities.len() + size - 1];
        for (inversions, probability) in probabilities.iter().enumerate() {
            for added in 0..size {
                next[inversions + added] += probability / size as f64;
            }
        }
        probabilities = next;
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_distribution_agrees_with_kendall_s_table() {
        // Kendall's table: for n = 4 the counts of 0..=6 inversions are 1, 3, 5, 6, 5, 3, 1.
        let found: Vec<f64> =
            inversion_probabilities(4).iter().map(|probability| probability * 24.0).collect();
        for (found, expected) in found.iter().zip([1.0, 3.0, 5.0, 6.0, 5.0, 3.0, 1.0]) {
            assert!((found - expected).abs() < 1e-12);
        }
        // A strictly rising sample of five: 2 / 5! two-sided.
        let rising = [1.0, 1.1, 1.2, 1.3, 1.4];
        assert_eq!(trend(&rising).0, 10);
        assert!((kendall_two_sided(10, &rising) - 2.0 / 120.0).abs() < 1e-12);
    }

    #[test]
    fn the_score_counts_every_pair_and_large_samples_have_the_slope_of_small_ones() {
        let samples: Vec<f64> = (0..200_u32).map(|step| f64::from(1 + step * 37 % 61)).collect();
        let mut score = 0;
        for later in 1..samples.len() {
            for earlier in 0..later {
                score += i64::from(samples[later] > samples[earlier])
                    - i64::from(samples[later] < samples[earlier]);
            }
        }
        assert_eq!(trend(&samples).0, score);
        // 0.1 % a block, under noise without a trend.
        let noisy =
            |step: u32| (0.001 * f64::from(step) + f64::from(step * 7919 % 101) / 1e3).exp();
        for count in [1000, 1001, 10_000] {
            let samples: Vec<f64> = (0..count).map(noisy).collect();
            let (score, slope) = trend(&samples);
            assert!((slope - 0.001).abs() < 1e-5 && score > 0, "{count}: {slope}");
        }
    }

    #[test]
    fn the_normal_approximation_is_near_the_exact_value() {
        let samples: Vec<f64> = (0..40).map(|step| 100.0 + f64::from(step * 17 % 40)).collect();
        let score = trend(&samples).0;
        let exact = kendall_two_sided(score, &samples);
        let score = score.abs() as f64;
        let approximate = normal_two_sided((score - 1.0) / (40.0f64 * 39.0 * 85.0 / 18.0).sqrt());
        assert!((exact - approximate).abs() < 0.01, "{exact} {approximate}");
    }

    #[test]
    fn ties_take_their_share_out_of_the_variance() {
        // Nine pairs rise and six are tied; the variance is (6 5 17 - 2 * 3 2 11) / 18 = 21, so
        // z = 8 / sqrt(21) = 1.7457, two-sided 8.09 %.
        let samples = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
        assert_eq!(trend(&samples).0, 9);
        assert!((kendall_two_sided(9, &samples) - 0.0809).abs() < 1e-4);
    }

    #[test]
    fn a_steady_rise_is_measured_and_warned_of() {
        let rising: Vec<f64> = (0..10).map(|block| 5.0 * 1.02f64.powi(block)).collect();
        assert!((drift(&rising).unwrap() - (1.02f64.powi(9) - 1.0)).abs() < 1e-12);
        // As certain, but too small to act on.
        let slight: Vec<f64> = (0..10).map(|block| 5.0 * 1.001f64.powi(block)).collect();
        for none in [&slight[..], &[3.0; 10], &[1.0, 2.0, 3.0, 4.0], &[0.0, 1.0, 2.0, 3.0, 4.0]] {
            assert_eq!(drift(none), None, "{none:?}");
        }
    }

    #[test]
    fn an_odd_first_block_is_seen_and_a_usual_one_is_not() {
        let mut samples = [1.5, 1.0, 1.01, 0.99, 1.0, 1.02];
        assert!((odd_first_block(&samples).unwrap() - 1.5).abs() < 0.02);
        samples[0] = 0.7;
        assert!(odd_first_block(&samples).unwrap() < 1.0);
        samples[0] = 1.015;
        assert_eq!(odd_first_block(&samples), None);
        // Equal values: a difference of 1 % is certain and still not worth a word.
        assert_eq!(odd_first_block(&[1.01, 1.0, 1.0, 1.0, 1.0]), None);
        assert_eq!(odd_first_block(&[0.0, 1.0, 1.0, 1.0, 1.0]), None);
    }
}
