//! Where the level of a series changes: E-divisive, by energy statistics (Matteson & James: A
//! Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data, JASA 2014), as MongoDB and Apache
//! Otava use it for the history of benchmarks.
//!
//! Pure: the permutations come from a fixed seed, so the same series has the same change points everywhere.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// The first value of the new level.
    pub index: usize,
    /// The median after it, up to the next change, over the median before it.
    pub ratio: f64,
    /// How often so large a change would be found in the same values in any order.
    pub probability: f64,
}

/// Fewer values are no level.
const SEGMENT_MIN: usize = 3;
/// Orders that are drawn to see what chance does.
const PERMUTATIONS: usize = 499;
/// Changes that chance makes more often are none.
const SIGNIFICANCE: f64 = 0.01;

/// The changes of level in a series of positive values, in their order. Their logarithms are compared, so that a
/// change is a factor.
pub fn change_points(values: &[f64]) -> Vec<ChangePoint> {
    if values.len() < 2 * SEGMENT_MIN {
        return Vec::new();
    }
    if values.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
        return Vec::new();
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut open: Vec<std::ops::Range<usize>> = std::iter::once(0..values.len()).collect();
    while let Some(range) = open.pop() {
        let part = &logs[range.clone()];
        let Some((at, statistic)) = best_split(part) else { continue };
        let mut shuffled = part.to_vec();
        let as_large = (0..PERMUTATIONS).filter(|_| {
            shuffled.shuffle(&mut random);
            best_split(&shuffled).is_some_and(|(_, other)| other >= statistic)
        });
        let probability = (as_large.count() + 1) as f64 / (PERMUTATIONS + 1) as f64;
        if probability <= SIGNIFICANCE {
            found.push((range.start + at, probability));
            open.push(range.start..range.start + at);
            open.push(range.start + at..range.end);
        }
    }
    found.sort_by_key(|(index, _)| *index);
    let ends: Vec<usize> = std::iter::once(0)
        .chain(found.iter().map(|(index, _)| *index))
        .chain([values.len()])
        .collect();
    let levels: Vec<f64> = ends.windows(2).map(|ends| median(&values[ends[0]..ends[1]])).collect();
    let ratios = levels.windows(2).map(|pair| pair[1] / pair[0]);
    let points = found.into_iter().zip(ratios);
    points.map(|((index, probability), ratio)| ChangePoint { index, ratio, probability }).collect()
}

/// The place at which the values before and after differ most, with the energy statistic of the difference.
fn best_split(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    // Sums of distances within the first `at` values, within the others, and between the two, kept up to date.
    let distance = |one: usize, other: usize| (values[one] - values[other]).abs();
    let mut within_after: f64 = (0..count)
        .flat_map(|one| (0..one).map(move |other| (one, other)))
        .map(|(a, b)| distance(a, b))
        .sum();
    let (mut within_before, mut between) = (0.0, 0.0);
    let mut best: Option<(usize, f64)> = None;
    for at in 1..count {
        let moved = at - 1;
        let to_before: f64 = (0..moved).map(|other| distance(moved, other)).sum();
        let to_after: f64 = (at..count).map(|other| distance(moved, other)).sum();
        within_before += to_before;
        within_after -= to_after;
        between += to_after - to_before;
        if at < SEGMENT_MIN || count - at < SEGMENT_MIN {
            continue;
        }
        let (n, m) = (at as f64, (count - at) as f64);
        let pairs = |count: f64| count * (count - 1.0) / 2.0;
        let energy = 2.0 * between / (n * m) - within_before / pairs(n) - within_after / pairs(m);
        let statistic = n * m / (n + m) * energy;
        if best.is_none_or(|(_, other)| statistic > other) {
            best = Some((at, statistic));
        }
    }
    best
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;

    /// Values around 1 with a spread of 5 %, times the level of their place.
    fn series(seed: u64, levels: &[(usize, f64)]) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut value = |level: f64| {
            let noise: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            level * (0.05 * noise).exp()
        };
        levels
            .iter()
            .flat_map(|(count, level)| (0..*count).map(|_| *level).collect::<Vec<_>>())
            .map(&mut value)
            .collect()
    }

    #[test]
    fn levels_are_found_where_they_change() {
        let (mut exact, mut found) = (0, 0);
        for seed in 0..40 {
            let points = change_points(&series(seed, &[(12, 1.0), (10, 1.25), (10, 0.9)]));
            found += usize::from(points.len() == 2);
            exact += usize::from(points.iter().map(|point| point.index).eq([12, 22]));
            if let [first, second] = points.as_slice() {
                assert!((first.ratio - 1.25).abs() < 0.15 && second.ratio < 0.85, "{points:?}");
            }
        }
        assert!(found >= 36 && exact >= 30, "{found} found, {exact} at their places");
    }

    #[test]
    fn a_series_without_a_change_has_none() {
        let with =
            (0..200).filter(|seed| !change_points(&series(1000 + seed, &[(20, 1.0)])).is_empty());
        let with = with.count();
        assert!(with <= 7, "{with} of 200 series of one level");
    }

    #[test]
    fn few_values_and_values_without_a_logarithm_have_none() {
        assert!(change_points(&[1.0, 1.0, 9.0, 9.0, 9.0]).is_empty());
        assert!(change_points(&[]).is_empty());
        assert!(change_points(&[0.0; 20]).is_empty());
    }
}
