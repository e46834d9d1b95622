//! How sure a comparison has to be at each look, so that looking again and again costs no more
//! error than was promised: the error is spent over the looks (Lan & DeMets 1983).
//!
//! It knows looks and nothing of samples. What is spent by each look is the caller's to say
//! ([`InterimLook`]); it may depend on time and on numbers of blocks, never on what was measured. The level
//! of each look follows by the recursion of Armitage, McPherson & Rowe (1969) on sums of normal
//! increments; the t statistics are held to the same levels (the significance level approach of
//! Jennison & Turnbull, *Group Sequential Methods*).

use std::cell::RefCell;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Share of the error that the last planned look leaves for a study that goes on all the same.
const LEFT_BY_LAST: f64 = 0.1;
/// What is spent by an early look grows with this power of the share of the study that is over (Kim &
/// DeMets 1987): close to O'Brien & Fleming's boundary, whose last look costs a few percent.
const POWER: i32 = 3;
/// What the last planned look costs beside a single test, about.
const LAST_LOOK_COST: f64 = 1.1;
/// Width of the grid's steps, in standard deviations of an increment.
const STEP: f64 = 0.2;
/// Beyond so many standard deviations the density of an increment is nothing.
const REACH: f64 = 8.0;
/// One look at a study.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InterimLook {
    pub blocks: u32,
    /// The share of the error that is spent by this look and those before it.
    pub spent: f64,
}

/// The share of the error that is spent by the look at `blocks` blocks of a study whose last looks were
/// planned at `ends`: the first end, and then those of each time that it went on. `share` is how much
/// of the time until the first end is over. It is never all of it, so that a study can go on and does
/// not begin anew.
pub(super) fn spent_by(ends: &[u32], blocks: u32, share: f64) -> f64 {
    let at_end = |end: u32| 1.0 - LEFT_BY_LAST * f64::from(ends[0].max(1)) / f64::from(end.max(1));
    match ends.partition_point(|end| *end < blocks) {
        0 if blocks < ends[0] => at_end(ends[0]) * share.clamp(0.0, 1.0).powi(POWER),
        0 => at_end(ends[0]),
        later if later == ends.len() => at_end(blocks),
        later => {
            let (before, end) = (ends[later - 1], ends[later]);
            let over = f64::from(blocks - before) / f64::from(end - before);
            at_end(before) + (at_end(end) - at_end(before)) * over.powi(POWER)
        }
    }
}

/// The two-sided level at which a test after `blocks` blocks may err, so that all looks, in
/// ascending order, err together with a probability of `alpha` at most. Before the first look there
/// is nothing to spend: its level stands for all that come earlier. Without looks it is `alpha`.
pub(super) fn level_at(alpha: f64, looks: &[InterimLook], blocks: u32) -> f64 {
    type Key = Vec<(u32, u64)>;
    thread_local! {
        /// What was computed once; a level depends on nothing but its key.
        static LEVELS: RefCell<HashMap<Key, f64>> = RefCell::default();
    }
    let count = looks.partition_point(|look| look.blocks <= blocks).max(1).min(looks.len());
    if count == 0 {
        return alpha;
    }
    let looks = &looks[..count];
    let mut key: Key = looks.iter().map(|look| (look.blocks, look.spent.to_bits())).collect();
    key.push((0, alpha.to_bits()));
    LEVELS.with_borrow_mut(|known| *known.entry(key).or_insert_with(|| level(alpha, looks)))
}

/// What the half width of an interval after `blocks` blocks, which may miss with probability `alpha`
/// over all looks, would be times at the last planned look, for the same scatter: looks before the
/// last one are strict.
pub fn easing(alpha: f64, looks: &[InterimLook], blocks: usize) -> f64 {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let now = quantile_two_sided(level_at(alpha, looks, blocks));
    (LAST_LOOK_COST * quantile_two_sided(alpha) / now).min(1.0)
}

/// The level of the last of these looks, at least one.
fn level(alpha: f64, looks: &[InterimLook]) -> f64 {
    let (first, later) = (looks[0], &looks[1..]);
    let mut level = alpha * first.spent;
    let deviation = f64::from(first.blocks.max(1)).sqrt();
    let end = quantile_two_sided(level) * deviation;
    let mut grid = weighted(end, 1.0, |sum| density(sum / deviation) / deviation);
    let mut last = first;
    for next in later {
        (level, grid) = look(&grid, alpha * (next.spent - last.spent), last.blocks, next.blocks);
        last = *next;
    }
    level
}

/// One look more: where the boundary must lie to spend what falls to it, and the sums on a symmetric
/// grid that have not crossed, each with its density times its share of the integral.
fn look(before: &[(f64, f64)], spend: f64, last: u32, next: u32) -> (f64, Vec<(f64, f64)>) {
    let deviation = f64::from(next.saturating_sub(last).max(1)).sqrt();
    let crossed = |end: f64| -> f64 {
        let beyond = |distance: f64| tail(distance / deviation);
        let near = before.iter().filter(|(sum, _)| end - sum.abs() < REACH * deviation);
        near.map(|(sum, weight)| weight * (beyond(end - sum) + beyond(end + sum))).sum()
    };
    // The farther the boundary, the less crosses.
    let total = f64::from(next).sqrt();
    let high = root(12.0 * total, |end| crossed(end) > spend);
    let grid = weighted(high, deviation, |sum| {
        let near = before.iter().filter(|(from, _)| (sum - from).abs() < REACH * deviation);
        near.map(|(from, weight)| weight * density((sum - from) / deviation) / deviation).sum()
    });
    (2.0 * tail(high / total), grid)
}

/// Points from `-end` to `end` with the density there times Simpson's weight.
fn weighted(end: f64, deviation: f64, at: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let half = (end / (STEP * deviation)).ceil().max(8.0) as i32;
    let step = end / f64::from(half);
    (-half..=half)
        .map(|place| {
            let sum = f64::from(place) * step;
            let share = match (place + half) % 2 {
                _ if place.abs() == half => 1.0,
                1 => 4.0,
                _ => 2.0,
            };
            (sum, at(sum) * share * step / 3.0)
        })
        .collect()
}

/// Where a condition that holds from 0 on ends, below `most`.
fn root(most: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..44 {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    high
}

/// The `z` that |Z| exceeds with probability `alpha` under the standard normal distribution.
fn quantile_two_sided(alpha: f64) -> f64 {
    root(38.0, |z| 2.0 * tail(z) > alpha)
}

/// The probability that a standard normal value exceeds `z`, to seven digits (the Chebyshev fit of
/// erfc in Press et al., *Numerical Recipes*, 6.2).
fn tail(z: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + x / 2.0);
    let exponent = FIT.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let upper = t * (exponent - x * x).exp() / 2.0;
    if z < 0.0 { 1.0 - upper } else { upper }
}

/// The standard normal density.
fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks after every block from the fifth to the last of these ends.
    fn looks(first: u32, ends: &[u32]) -> Vec<InterimLook> {
        let spent =
            |blocks| spent_by(ends, blocks, f64::from(blocks) / f64::from(ends[0])).max(0.01);
        (first..=ends[ends.len() - 1])
            .map(|blocks| InterimLook { blocks, spent: spent(blocks) })
            .collect()
    }

    #[test]
    fn the_normal_tail_agrees_with_the_tables() {
        for (z, expected) in
            [(0.0, 0.5), (1.0, 0.158_655_254), (1.959_964, 0.025), (-1.0, 0.841_344_746)]
        {
            assert!((tail(z) - expected).abs() < 1e-7, "{z}: {}", tail(z));
        }
        assert!((tail(6.0) / 9.865_876_45e-10 - 1.0).abs() < 1e-6);
        assert!((quantile_two_sided(0.05) - 1.959_964).abs() < 1e-5);
    }

    #[test]
    fn what_is_spent_never_exceeds_the_budget_and_never_ends() {
        let all = looks(5, &[20, 40, 60]);
        assert!(all.windows(2).all(|pair| pair[0].spent < pair[1].spent), "{all:?}");
        assert!(all[3].spent < 0.1 && (0.89..0.91).contains(&all[15].spent), "{all:?}");
        assert!(all[55].spent < 1.0 && spent_by(&[20], 100_000, 1.0) < 1.0);
        for alpha in [0.05, 0.003] {
            let levels: Vec<f64> =
                all.iter().map(|look| level_at(alpha, &all, look.blocks)).collect();
            assert!((levels[0] - alpha * all[0].spent).abs() < 1e-12);
            // Each look may spend its own share at least, and all of them less than the whole.
            assert!(levels.iter().all(|level| (0.0..alpha).contains(level)), "{levels:?}");
        }
        assert_eq!(level_at(0.05, &all, 3), level_at(0.05, &all, 5));
        assert_eq!(level_at(0.05, &[], 7), 0.05);
    }

    /// What error spending costs: the last look's quantile beside that of a single test. (Spending a
    /// quarter at once and the rest without an end cost 29 % at eight blocks and 45 % at twenty.)
    #[test]
    fn looking_after_every_block_costs_the_last_look_few_percent() {
        for (first, last) in [(3, 8), (5, 8), (5, 12), (5, 20)] {
            let all = looks(first, &[last]);
            let cost = quantile_two_sided(level_at(0.05, &all, last)) / 1.959_964;
            assert!((1.02..1.12).contains(&cost), "{first} to {last}: {cost}");
        }
    }

    /// The recursion against counting: walks that cross somewhere are as many as was promised.
    #[test]
    fn walks_cross_as_often_as_was_spent() {
        const WALKS: u32 = 40_000;
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut normal = || {
            let radius = (-2.0 * uniform().ln()).sqrt();
            radius * (2.0 * std::f64::consts::PI * uniform()).cos()
        };
        let looks = looks(5, &[20]);
        let bounds: Vec<f64> = (5..=20)
            .map(|n| quantile_two_sided(level_at(0.2, &looks, n)) * f64::from(n).sqrt())
            .collect();
        let mut crossed = 0;
        for _ in 0..WALKS {
            let mut sum: f64 = (0..4).map(|_| normal()).sum();
            let crosses = bounds.iter().any(|bound| {
                sum += normal();
                sum.abs() > *bound
            });
            crossed += u32::from(crosses);
        }
        let expected = 0.2 * spent_by(&[20], 20, 1.0);
        let found = f64::from(crossed) / f64::from(WALKS);
        assert!((found - expected).abs() < 0.006, "{found} instead of {expected}");
    }
}
