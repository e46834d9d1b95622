//! Simulated trials with known truth: the ground on which the statistics are tested and the tables
//! of `docs/evidence/statistics.md` are measured. It draws from a seed and judges nothing.

// Each of the binaries that include this module uses a part of it.
#![allow(dead_code)]

pub mod sequential;

use lab::statistics::{Group, slow_turns};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How the logarithm of a trial's time scatters. `sigma` is the scale of the undisturbed part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Normal on logarithms: times are lognormal.
    Normal,
    /// Student's t with three degrees of freedom: heavy tails on both sides.
    HeavyTails,
    /// Exponential: a sharp best case and a long slow side.
    Skewed,
    /// Normal, but one trial in twenty takes three times as long.
    Disturbed,
    /// Normal, but three trials in twenty take three times as long.
    MuchDisturbed,
    /// Two modes, half of the trials 30 % slower than the other half.
    TwoModes,
    /// Normal, plus a shock of 50 % that all trials of a block share.
    SharedShock,
}

pub const NOISES: [Noise; 7] = [
    Noise::Normal,
    Noise::HeavyTails,
    Noise::Skewed,
    Noise::Disturbed,
    Noise::MuchDisturbed,
    Noise::TwoModes,
    Noise::SharedShock,
];

/// A seeded source of trials.
pub struct Laboratory {
    random: ChaCha8Rng,
}

impl Laboratory {
    pub fn new(seed: u64) -> Laboratory {
        Laboratory { random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.random.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64 + 0.5 / (1u64 << 53) as f64
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        (self.uniform() * count as f64) as usize
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    fn disturbance(&mut self, share: f64) -> f64 {
        if self.uniform() < share { 3f64.ln() } else { 0.0 }
    }

    /// The logarithm of one trial's noise.
    fn noise(&mut self, noise: Noise, sigma: f64) -> f64 {
        match noise {
            Noise::Normal | Noise::SharedShock => sigma * self.normal(),
            Noise::HeavyTails => {
                let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                sigma * self.normal() / (squares / 3.0).sqrt()
            }
            Noise::Skewed => -sigma * self.uniform().ln(),
            Noise::Disturbed => sigma * self.normal() + self.disturbance(0.05),
            Noise::MuchDisturbed => sigma * self.normal() + self.disturbance(0.15),
            Noise::TwoModes => {
                let mode = if self.uniform() < 0.5 { 1.3f64.ln() } else { 0.0 };
                0.2 * sigma * self.normal() + mode
            }
        }
    }

    /// One block: a time for each contender, in proportion to `truth`.
    pub fn block(&mut self, noise: Noise, sigma: f64, truth: &[f64]) -> Vec<f64> {
        let shared = if noise == Noise::SharedShock { 0.5 * self.normal() } else { 0.0 };
        truth.iter().map(|level| level * (shared + self.noise(noise, sigma)).exp()).collect()
    }

    /// The samples of `blocks` blocks by contender, the baseline first.
    pub fn samples(
        &mut self,
        noise: Noise,
        sigma: f64,
        truth: &[f64],
        blocks: usize,
    ) -> Vec<Vec<Option<f64>>> {
        let mut samples = vec![Vec::with_capacity(blocks); truth.len()];
        for _ in 0..blocks {
            for (kept, time) in samples.iter_mut().zip(self.block(noise, sigma, truth)) {
                kept.push(Some(time));
            }
        }
        samples
    }
}

/// Two contenders that take turns, with the same mean, in so many blocks and rounds: turns scatter by
/// 5 %, fresh file systems by 1 %. Of each contender a share of its turns is twice as slow.
pub fn side_by_side(
    laboratory: &mut Laboratory,
    slow_shares: [f64; 2],
    blocks: usize,
    rounds: usize,
) -> Group {
    let mut group = Group { contenders: vec![Vec::new()], ..Group::default() };
    let mut turns = Vec::new();
    for _ in 0..blocks {
        let [under, over] = slow_shares.map(|share| -> Vec<f64> {
            let level = 0.01 * laboratory.normal() - (1.0 + share).ln();
            let mut turn = || {
                let slow = if laboratory.uniform() < share { 2f64.ln() } else { 0.0 };
                level + slow + 0.05 * laboratory.normal()
            };
            (0..rounds).map(|_| turn()).collect()
        });
        let mean =
            |logs: &[f64]| Some(logs.iter().map(|log| log.exp()).sum::<f64>() / logs.len() as f64);
        group.baseline.push(mean(&under));
        group.contenders[0].push(mean(&over));
        turns.push((under, over));
    }
    group.slow_turns = vec![slow_turns(&turns)];
    group
}

/// The largest count that a binomial with probability `rate` exceeds with a probability of about
/// 0.1 % only: the slack of a seeded simulation.
pub fn count_max(trials: usize, rate: f64) -> usize {
    let mean = trials as f64 * rate;
    (mean + 3.1 * (mean * (1.0 - rate)).sqrt()) as usize
}
