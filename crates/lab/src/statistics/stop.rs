//! The stop rule: data in the plan, a pure function of the samples so far.
//!
//! It knows nothing of time or budget, which the runner watches. Invariant: the rule looks at the
//! width of the intervals and never at whether they exclude 1, and it never stops wider than
//! [`WIDTH_PER_MARGIN_MAX`] of the margin; so looking after every block does not make false
//! differences more frequent than 1 - confidence (measured in `docs/statistics.md`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::compare::{ComparisonOptions, log_ratio_location, pairs};
use super::location::{Location, locate};
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError, check_samples};

/// Largest half width, as a share of the margin (both as logarithms), at which a comparison may
/// stop early. Whoever looks after every block stops when the noise happens to look small, and the
/// interval of that moment is too narrow: at worst it misses one truth in ten instead of one in
/// twenty. At two fifths of the margin such a miss mostly lies inside the margin, where the verdict
/// is "the same"; at one half the rate of false differences reaches 7 %.
pub const WIDTH_PER_MARGIN_MAX: f64 = 0.4;

/// When the blocks are enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopRule {
    /// No stop before so many blocks.
    pub min_blocks: u32,
    /// No more than so many blocks.
    pub max_blocks: u32,
    /// Half width of a ratio's interval that is tight enough: 0.02 is "± 2 %". With a narrow
    /// margin, two fifths of the margin take its place.
    pub relative_half_width: f64,
    /// A large effect need not be known as closely: a half width of this share of the effect is
    /// enough too (both as logarithms). 0.1 lets a ratio of 2 stop at 2 ± 7 %.
    pub relative_to_effect: f64,
    /// Of a study that stops when its questions are answered, the number of blocks of its first
    /// look. None fixes the number of blocks, or, in the plans of older versions, looks at widths
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_look: Option<u32>,
}

impl StopRule {
    /// Half width that is tight enough by default: two fifths of the default margin of 5 %.
    pub const RELATIVE_HALF_WIDTH_DEFAULT: f64 = 0.02;
    /// Share of the effect that is tight enough by default.
    pub const RELATIVE_TO_EFFECT_DEFAULT: f64 = 0.1;

    /// A rule between two numbers of blocks, with the default widths. Equal numbers fix the number
    /// of blocks.
    pub fn between(min_blocks: u32, max_blocks: u32) -> StopRule {
        StopRule {
            min_blocks,
            max_blocks,
            relative_half_width: Self::RELATIVE_HALF_WIDTH_DEFAULT,
            relative_to_effect: Self::RELATIVE_TO_EFFECT_DEFAULT,
            first_look: None,
        }
    }

    /// A rule that stops when the questions are answered, and looks for that after every block from
    /// the least number of them on.
    pub fn deciding(min_blocks: u32, max_blocks: u32) -> StopRule {
        let first_look = min_blocks.max(BLOCKS_MIN_FOR_INTERVAL as u32);
        StopRule {
            first_look: (first_look < max_blocks).then_some(first_look),
            ..StopRule::between(min_blocks, max_blocks)
        }
    }

    /// The rule once `max_blocks` may be done. The error that is left is spent, and none anew; a
    /// number of blocks that was fixed counts as the first look.
    pub fn up_to(&self, max_blocks: u32) -> StopRule {
        let first_look = self.first_look.unwrap_or(self.max_blocks);
        let first_look = Some(first_look.max(BLOCKS_MIN_FOR_INTERVAL as u32));
        StopRule { max_blocks, min_blocks: self.min_blocks.min(max_blocks), first_look, ..*self }
    }

    /// Refuses a rule that cannot be followed.
    pub fn check(&self) -> Result<(), StatisticsError> {
        if self.min_blocks == 0 || self.min_blocks > self.max_blocks {
            return Err(StatisticsError::BadOption {
                option: "min_blocks",
                value: f64::from(self.min_blocks),
                expected: "at least 1 and at most max_blocks",
            });
        }
        if !(self.relative_half_width.is_finite() && self.relative_half_width > 0.0) {
            return Err(StatisticsError::BadOption {
                option: "relative_half_width",
                value: self.relative_half_width,
                expected: "positive and finite, such as 0.02",
            });
        }
        if !(self.relative_to_effect >= 0.0 && self.relative_to_effect <= 0.25) {
            return Err(StatisticsError::BadOption {
                option: "relative_to_effect",
                value: self.relative_to_effect,
                expected: "from 0 to 0.25; beyond that, stopping would hang on significance",
            });
        }
        if self.first_look == Some(0) {
            return Err(StatisticsError::BadOption {
                option: "first_look",
                value: 0.0,
                expected: "at least 1",
            });
        }
        Ok(())
    }
}

/// The samples of one workload so far, indexed by block.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples<'a> {
    /// The baseline's samples; None for a failed trial.
    pub baseline: &'a [Option<f64>],
    /// Those of each other contender.
    pub contenders: Vec<&'a [Option<f64>]>,
}

/// Whether to run another block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "decision")]
pub enum Decision {
    /// Run another block.
    Continue {
        /// Why.
        reason: ContinueReason,
    },
    /// The blocks are enough.
    Stop {
        /// Why.
        reason: StopReason,
    },
}

/// Why another block is needed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContinueReason {
    /// Fewer blocks than the rule asks for.
    BelowMinimum {
        /// Blocks done.
        blocks: u32,
        /// Blocks that the rule asks for.
        min_blocks: u32,
    },
    /// A comparison has fewer than three pairs, because trials failed.
    TooFewPairs {
        /// Index of the workload.
        workload: usize,
        /// Index of the contender; None for the baseline alone.
        contender: Option<usize>,
    },
    /// An interval is too wide; the one that is farthest from its target.
    TooWide {
        /// The interval.
        width: Width,
        /// Blocks that would be needed in all if the noise stays as it is; at most `max_blocks`.
        blocks_expected: u32,
    },
}

/// Why the blocks are enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// Every interval is tight enough; this is the one nearest to its target.
    Tight {
        /// The interval.
        width: Width,
    },
    /// The greatest number of blocks is done.
    Maximum {
        /// Blocks done.
        blocks: u32,
    },
    /// After the least number of blocks no workload has a sample to judge: every trial of the
    /// baseline, or of all others, failed.
    NothingToCompare,
}

/// How wide an interval is, and how wide it may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Width {
    /// Index of the workload.
    pub workload: usize,
    /// Index of the contender; None where the baseline stands alone.
    pub contender: Option<usize>,
    /// Half width of the interval: 0.03 is "± 3 %". Bonferroni's level over the contenders, which
    /// does not depend on which of them differ.
    pub half_width: f64,
    /// Half width that would be tight enough.
    pub target: f64,
}

/// Decides whether the blocks so far are enough for every workload given. Call it after every
/// block; call it with one workload to decide for that one alone.
///
/// A comparison without a single pair after `min_blocks` (a contender that never succeeds) is left
/// out: more blocks would not help it. A baseline without contenders is judged by the interval of
/// its own mean (on logarithms), to `relative_half_width`.
///
/// Errors: a rule or options out of range; samples that are not positive and finite.
pub fn enough(
    rule: &StopRule,
    options: &ComparisonOptions,
    workloads: &[Samples<'_>],
) -> Result<Decision, StatisticsError> {
    rule.check()?;
    options.check()?;
    let blocks = workloads.iter().map(Samples::blocks).min().unwrap_or(0);
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    if blocks < rule.min_blocks {
        return Ok(Decision::Continue {
            reason: ContinueReason::BelowMinimum { blocks, min_blocks: rule.min_blocks },
        });
    }
    if blocks >= rule.max_blocks {
        return Ok(Decision::Stop { reason: StopReason::Maximum { blocks } });
    }
    let mut widest: Option<(f64, Width)> = None;
    for (workload, samples) in workloads.iter().enumerate() {
        for (contender, location, pairs) in samples.locations()? {
            if pairs < BLOCKS_MIN_FOR_INTERVAL {
                let reason = ContinueReason::TooFewPairs { workload, contender };
                return Ok(Decision::Continue { reason });
            }
            let alpha = (1.0 - options.confidence) / samples.contenders.len().max(1) as f64;
            let half_width = location.half_width(alpha);
            let target = target(rule, options, contender.map(|_| location.estimate));
            let excess = half_width / target;
            if widest.is_none_or(|(largest, _)| excess > largest) {
                let width = Width {
                    workload,
                    contender,
                    half_width: half_width.exp_m1(),
                    target: target.exp_m1(),
                };
                widest = Some((excess, width));
            }
        }
    }
    Ok(match widest {
        None => Decision::Stop { reason: StopReason::NothingToCompare },
        Some((excess, width)) if excess <= 1.0 => {
            Decision::Stop { reason: StopReason::Tight { width } }
        }
        Some((excess, width)) => {
            // The width shrinks with the square root of the number of blocks.
            let wanted = (f64::from(blocks) * excess * excess).ceil();
            let blocks_expected = wanted.clamp(f64::from(blocks) + 1.0, f64::from(rule.max_blocks));
            let blocks_expected = blocks_expected as u32;
            Decision::Continue { reason: ContinueReason::TooWide { width, blocks_expected } }
        }
    })
}

/// The half width that is tight enough, as a logarithm. `effect` is the logarithm of the ratio, or
/// None where there is no comparison and so no false difference to guard against.
fn target(rule: &StopRule, options: &ComparisonOptions, effect: Option<f64>) -> f64 {
    let asked = rule.relative_half_width.ln_1p();
    match effect {
        None => asked,
        Some(effect) => asked
            .min(WIDTH_PER_MARGIN_MAX * options.same_within.ln_1p())
            .max(rule.relative_to_effect * effect.abs()),
    }
}

impl Samples<'_> {
    /// Number of blocks done: an interrupted block counts for nobody.
    fn blocks(&self) -> usize {
        self.contenders
            .iter()
            .map(|samples| samples.len())
            .chain([self.baseline.len()])
            .min()
            .unwrap_or(0)
    }

    /// The location of every comparison that has a pair, with its number of pairs; that of the
    /// baseline alone where there is no contender.
    fn locations(&self) -> Result<Vec<(Option<usize>, Location, usize)>, StatisticsError> {
        let mut found = Vec::with_capacity(self.contenders.len().max(1));
        if self.contenders.is_empty() {
            let values: Vec<f64> = self.baseline.iter().copied().flatten().collect();
            check_samples(&values)?;
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            if !logs.is_empty() {
                found.push((None, locate(&logs), logs.len()));
            }
        }
        for (index, contender) in self.contenders.iter().enumerate() {
            let (baseline, contender) = pairs(self.baseline, contender);
            if let Some(location) = log_ratio_location(&baseline, &contender)? {
                found.push((Some(index), location, baseline.len()));
            }
        }
        Ok(found)
    }
}

impl fmt::Display for ContinueReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContinueReason::BelowMinimum { blocks, min_blocks } => {
                write!(f, "{blocks} of at least {min_blocks} blocks are done")
            }
            ContinueReason::TooFewPairs { .. } => {
                write!(f, "failed trials left fewer than {BLOCKS_MIN_FOR_INTERVAL} pairs")
            }
            ContinueReason::TooWide { width, blocks_expected } => write!(
                f,
                "an interval is ± {:.1} %, wanted ± {:.1} %; about {blocks_expected} blocks in all",
                width.half_width * 100.0,
                width.target * 100.0
            ),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Tight { width } => write!(
                f,
                "every interval is tight enough; the widest for its target is ± {:.1} % of ± {:.1} %",
                width.half_width * 100.0,
                width.target * 100.0
            ),
            StopReason::Maximum { blocks } => {
                write!(f, "the greatest number of blocks, {blocks}, is done")
            }
            StopReason::NothingToCompare => {
                write!(f, "no pair of trials succeeded, and more blocks would not help")
            }
        }
    }
}
