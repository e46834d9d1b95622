//! How sure a comparison has to be at each look, so that looking again and again costs no more
//! error than was promised: the error is spent over the blocks (Lan & DeMets 1983).
//!
//! It knows numbers of blocks and nothing of samples. By the look at block n the share
//! 1 - 0.75 n0 / n of the error is spent, n0 being the first look: a quarter at once, half by one
//! and a half times n0, and never all of it, so that a study that goes on (`--more`) spends what is
//! left and does not begin anew. The level of each look follows by the recursion of Armitage,
//! McPherson & Rowe (1969) on sums of normal increments; the t statistics are held to the same
//! levels (the significance level approach of Jennison & Turnbull, *Group Sequential Methods*).

use std::cell::RefCell;
use std::collections::HashMap;

/// Share of the error that the first look leaves.
const LEFT_AT_FIRST_LOOK: f64 = 0.75;
/// The same of a fixed number of blocks, after which few studies go on.
const LEFT_BY_FIXED: f64 = 0.2;
/// Width of the grid's steps, in standard deviations of an increment.
const STEP: f64 = 0.2;
/// Beyond so many standard deviations the density of an increment is nothing.
const REACH: f64 = 8.0;
/// Up to so many blocks every block is a look; later looks are a twentieth of the blocks apart.
const EVERY_BLOCK_MAX: u32 = 20;

/// How the error is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Spending {
    /// Number of blocks at the first look.
    pub first: u32,
    /// Whether that number was fixed, and the look was to be the only one.
    pub fixed: bool,
}

impl Spending {
    /// The share of the error that is spent by the look at `blocks`.
    fn until(&self, blocks: u32) -> f64 {
        let left = if self.fixed { LEFT_BY_FIXED } else { LEFT_AT_FIRST_LOOK };
        1.0 - left * f64::from(self.first) / f64::from(blocks)
    }
}

/// The two-sided level at which a test after `blocks` blocks may err, so that all looks from
/// the first one on together err with probability `alpha` at most. Before the first look there is
/// nothing to spend: its level stands for all that come earlier.
pub(super) fn level_at(alpha: f64, spending: Spending, blocks: u32) -> f64 {
    thread_local! {
        /// What was computed once; the levels depend on nothing but their key.
        static BOUNDARIES: RefCell<HashMap<(u64, Spending), Boundary>> = RefCell::default();
    }
    let spending = Spending { first: spending.first.max(1), ..spending };
    BOUNDARIES.with_borrow_mut(|known| {
        let boundary = known
            .entry((alpha.to_bits(), spending))
            .or_insert_with(|| Boundary::new(alpha, spending));
        boundary.level(blocks.max(spending.first))
    })
}

/// The levels of the looks so far, and where the sums lie that have not crossed.
struct Boundary {
    alpha: f64,
    spending: Spending,
    /// Number of blocks and level of each look.
    levels: Vec<(u32, f64)>,
    /// Sums on a symmetric grid, each with its density times its share of the integral.
    grid: Vec<(f64, f64)>,
}

impl Boundary {
    fn new(alpha: f64, spending: Spending) -> Boundary {
        let first_look = spending.first;
        let level = alpha * spending.until(first_look);
        let deviation = f64::from(first_look).sqrt();
        let end = quantile_two_sided(level) * deviation;
        let grid = weighted(end, 1.0, |sum| density(sum / deviation) / deviation);
        Boundary { alpha, spending, levels: vec![(first_look, level)], grid }
    }

    /// The level of the last look that is not after `blocks`.
    fn level(&mut self, blocks: u32) -> f64 {
        while self.next_look() <= blocks {
            self.look();
        }
        let after = self.levels.partition_point(|(look, _)| *look <= blocks);
        self.levels[after - 1].1
    }

    fn last(&self) -> u32 {
        self.levels[self.levels.len() - 1].0
    }

    fn next_look(&self) -> u32 {
        let last = self.last();
        last + if last < EVERY_BLOCK_MAX { 1 } else { last / EVERY_BLOCK_MAX }
    }

    /// One look more: where the boundary must lie to spend what falls to it.
    fn look(&mut self) {
        let (last, next) = (self.last(), self.next_look());
        let deviation = f64::from(next - last).sqrt();
        let spend = self.alpha * (self.spending.until(next) - self.spending.until(last));
        let crossed = |end: f64| -> f64 {
            let beyond = |distance: f64| tail(distance / deviation);
            let near = self.grid.iter().filter(|(sum, _)| end - sum.abs() < REACH * deviation);
            near.map(|(sum, weight)| weight * (beyond(end - sum) + beyond(end + sum))).sum()
        };
        // The farther the boundary, the less crosses.
        let total = f64::from(next).sqrt();
        let high = root(12.0 * total, |end| crossed(end) > spend);
        let grid = weighted(high, deviation, |sum| {
            let near = self.grid.iter().filter(|(from, _)| (sum - from).abs() < REACH * deviation);
            near.map(|(from, weight)| weight * density((sum - from) / deviation) / deviation).sum()
        });
        self.grid = grid;
        self.levels.push((next, 2.0 * tail(high / total)));
    }
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

    const FROM_5: Spending = Spending { first: 5, fixed: false };

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
        assert_eq!(FROM_5.until(5), 0.25);
        assert_eq!(FROM_5.until(10), 0.625);
        assert!(FROM_5.until(100_000) < 1.0);
        for alpha in [0.05, 0.003] {
            let levels: Vec<f64> =
                (5..=200).map(|blocks| level_at(alpha, FROM_5, blocks)).collect();
            assert!((levels[0] - alpha / 4.0).abs() < 1e-12);
            // Each look may spend its own share at least, and all of them less than the whole.
            assert!(levels.iter().all(|level| (0.0..alpha).contains(level)), "{levels:?}");
        }
        assert_eq!(level_at(0.05, FROM_5, 3), level_at(0.05, FROM_5, 5));
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
        let bounds: Vec<f64> = (5..=20)
            .map(|n| quantile_two_sided(level_at(0.2, FROM_5, n)) * f64::from(n).sqrt())
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
        let expected = 0.2 * FROM_5.until(20);
        let found = f64::from(crossed) / f64::from(WALKS);
        assert!((found - expected).abs() < 0.006, "{found} instead of {expected}");
    }
}
