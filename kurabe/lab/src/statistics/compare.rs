//! Comparing contenders with their baseline: paired ratios, intervals, Holm's correction, verdicts.
//!
//! It takes samples by block and knows nothing of what was measured. Everything happens on
//! logarithms of the ratio contender / baseline, so that "twice as slow" and "twice as fast" are
//! equally far from 1. Invariant: the verdict can be read off the interval that stands beside it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words::{percent, percent_up};

use super::location::{Location, locate};
use super::looks::{InterimLook, level_at};
use super::modes::{Slow, slow};
use super::runs::Runs;
use super::serial_correlation::{unseen_growth, widening};
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError, check_samples};

/// How sure a comparison has to be, and what counts as the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonOptions {
    /// Confidence of the family of comparisons: 0.95 allows one family in twenty a false
    /// difference.
    pub confidence: f64,
    /// The margin m: ratios from 1 / (1 + m) to 1 + m count as the same. 0.05 is 5 %.
    pub same_within: f64,
    /// The looks at a study so far, in ascending order. Empty for a single test.
    #[serde(default)]
    pub looks: Vec<InterimLook>,
}

impl Default for ComparisonOptions {
    fn default() -> Self {
        ComparisonOptions { confidence: 0.95, same_within: 0.05, looks: Vec::new() }
    }
}

impl ComparisonOptions {
    /// Refuses options that no interval can be computed from.
    pub fn check(&self) -> Result<(), StatisticsError> {
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Err(StatisticsError::BadOption {
                option: "confidence",
                value: self.confidence,
                expected: "between 0 and 1, such as 0.95",
            });
        }
        if !(self.same_within.is_finite() && self.same_within >= 0.0) {
            return Err(StatisticsError::BadOption {
                option: "same_within",
                value: self.same_within,
                expected: "finite and not negative, such as 0.05",
            });
        }
        Ok(())
    }

    /// The level of a test after `blocks` blocks that may err with probability `alpha` at all looks
    /// together.
    pub(super) fn level(&self, alpha: f64, blocks: usize) -> f64 {
        level_at(alpha, &self.looks, u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Whether contenders may have left the study because they were decided at an earlier look.
    fn some_may_have_left(&self) -> bool {
        self.looks.len() > 1
    }

    /// Whether the whole interval lies inside the margin.
    fn same(&self, interval: &Interval) -> bool {
        interval.low >= 1.0 / (1.0 + self.same_within) && interval.high <= 1.0 + self.same_within
    }
}

/// An interval, with the confidence that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability with which such an interval covers the truth; for one of several contenders it
    /// is higher than what was asked for, by Holm's correction.
    pub confidence: f64,
}

/// What a comparison says of a contender whose smaller values are better (times).
///
/// A larger value is "slower" whatever was measured; for a throughput the caller exchanges
/// baseline and contender.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies below 1, and not inside the margin.
    Faster,
    /// The interval lies above 1, and not inside the margin.
    Slower,
    /// The whole interval lies inside the margin. A real but tiny difference (the interval excludes
    /// 1) is the same too: the ratio beside it shows it.
    Same {
        /// The margin: 0.05 is "within 5 %".
        within: f64,
    },
    /// Nothing is decided, but a loss or a gain beyond a bound is excluded, or both.
    AtMost {
        /// The bound of the loss, where it is near enough: 0.04 is "at most 4 % slower".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slower: Option<f64>,
        /// The bound of the gain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        faster: Option<f64>,
    },
    /// Too few pairs, or an interval that excludes nothing worth saying.
    Inconclusive,
}

/// The largest bound that is worth saying: beyond it, "at most 60 % slower" would pass for an
/// answer.
pub const BOUND_MAX: f64 = 0.25;

impl Verdict {
    /// Whether the question is answered: which is faster, or that both are the same.
    pub fn is_decided(&self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower | Verdict::Same { .. })
    }

    /// How far apart the two are at most, where nothing is decided but both a loss and a gain are
    /// bounded: 0.18 is "within 18 %".
    pub fn bound(&self) -> Option<f64> {
        match self {
            Verdict::AtMost { slower, faster } => slower.zip(*faster).map(|(s, f)| s.max(f)),
            _ => None,
        }
    }

    /// Whether one of the two is beyond doubt faster.
    pub fn is_different(&self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower)
    }
}

impl fmt::Display for Verdict {
    /// `faster`, `same within 5 %`, `at most 4 % slower, at most 9 % faster`, `inconclusive`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Faster => f.write_str("faster"),
            Verdict::Slower => f.write_str("slower"),
            Verdict::Same { within } => write!(f, "same within {}", percent(*within)),
            // One end alone names the side on which the other does not lie.
            Verdict::AtMost { .. } if self.bound().is_none() => f.write_str("inconclusive"),
            Verdict::AtMost { slower, faster } => {
                // Both as shares of the baseline's time, as the cost next to them.
                let less = faster.map(|faster| faster / (1.0 + faster));
                let bounds = [(*slower, "slower"), (less, "faster")].into_iter();
                let bounds = bounds
                    .filter_map(|(by, word)| Some(format!("at most {} {word}", percent_up(by?))));
                f.write_str(&bounds.collect::<Vec<_>>().join(", "))
            }
            Verdict::Inconclusive => f.write_str("inconclusive"),
        }
    }
}

/// What the statistics say of one contender against its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CostEstimate {
    /// Number of blocks in which both have a sample.
    pub pairs: usize,
    /// The ratio contender / baseline: the geometric mean over the pairs, trimmed where
    /// `trimmed_per_side` says so. None without a pair, and below three pairs that leave out other
    /// samples of either side: the medians of all samples may then point the other way, and
    /// nothing tells which is right.
    pub ratio: Option<f64>,
    /// Interval of the ratio, corrected for the number of contenders; None below three pairs.
    pub interval: Option<Interval>,
    /// p value of "the ratio is 1", uncorrected; None below three pairs.
    pub p_value: Option<f64>,
    /// p value adjusted by Holm over the family; equal to `p_value` for a single contender.
    pub p_adjusted: Option<f64>,
    /// How many of the smallest and of the largest ratios were set aside for the estimate, because
    /// single ones lie far out; 0 otherwise, and always below seven pairs.
    pub trimmed_per_side: usize,
    /// The contender's arithmetic mean over the baseline's, of the pairs: what a slow trial costs is
    /// in it, whatever was set aside. None without a pair.
    pub mean_ratio: Option<f64>,
    /// Trials, or turns within the blocks, of the baseline and of the contender that are far slower
    /// than the others of their side. Where they are a mode of their own, nothing is called the same.
    pub slow: [Slow; 2],
    /// Whether a difference rests on the blocks being independent: if each ratio followed the one
    /// before as closely as so few blocks do not exclude, it would not be certain.
    pub rests_on_independence: bool,
    pub verdict: Verdict,
}

/// Compares one contender with its baseline; `baseline[i]` and `contender[i]` are of one block.
///
/// Errors: unequal lengths, samples that are not positive and finite, options out of range.
pub fn compare(
    baseline: &[f64],
    contender: &[f64],
    options: &ComparisonOptions,
) -> Result<CostEstimate, StatisticsError> {
    if baseline.len() != contender.len() {
        return Err(StatisticsError::LengthMismatch {
            baseline: baseline.len(),
            contender: contender.len(),
        });
    }
    let all = |samples: &[f64]| -> Vec<Option<f64>> { samples.iter().copied().map(Some).collect() };
    Ok(compare_family(&all(baseline), &[all(contender)], options)?[0])
}

/// The samples of one workload, by block; None for a failed trial.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// The baseline's samples.
    pub baseline: Vec<Option<f64>>,
    /// Those of each other contender.
    pub contenders: Vec<Vec<Option<f64>>>,
    /// Of each other contender, what it costs in certainty that effects of the order were taken out;
    /// empty where none were.
    pub corrections: Vec<Correction>,
    /// Of each other contender, the slow turns within the blocks, the baseline's first
    /// ([`super::slow_turns`]); empty where there were no turns.
    pub slow_turns: Vec<[Slow; 2]>,
    /// Of each other contender, how its ratios to the baseline scatter within the blocks; empty where
    /// there were no turns.
    pub runs: Vec<Option<Runs>>,
}

/// What a comparison's error gains where estimated effects were taken out of its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Correction {
    /// Degrees of freedom that the effects took.
    pub freedom: f64,
    /// Variance of the comparison's estimate that comes from the effects' own uncertainty.
    pub variance: f64,
}

/// Compares every contender of a workload with the baseline, as one family: see
/// [`compare_families`].
pub fn compare_family<S: AsRef<[Option<f64>]>>(
    baseline: &[Option<f64>],
    contenders: &[S],
    options: &ComparisonOptions,
) -> Result<Vec<CostEstimate>, StatisticsError> {
    let group = Group {
        baseline: baseline.to_vec(),
        contenders: contenders.iter().map(|samples| samples.as_ref().to_vec()).collect(),
        ..Group::default()
    };
    Ok(compare_families(&[group], options)?.remove(0))
}

/// Compares the contenders of all workloads with their baselines, as one family: the comparisons are
/// in the order of the groups and their contenders, their intervals and p values corrected by Holm's
/// step-down procedure (Holm 1979), so that the chance of *any* false faster or slower is at most
/// 1 - confidence, over all looks together.
///
/// A sample that is missing (`None`, or a shorter slice) takes its block out for that contender
/// only. Contenders with fewer than three pairs take no part in the correction, and have no ratio
/// either where that leaves samples without a partner.
pub fn compare_families(
    groups: &[Group],
    options: &ComparisonOptions,
) -> Result<Vec<Vec<CostEstimate>>, StatisticsError> {
    options.check()?;
    let mut located = Vec::new();
    for group in groups {
        let count = |samples: &[Option<f64>]| samples.iter().flatten().count();
        for (index, contender) in group.contenders.iter().enumerate() {
            let (under, over) = pairs(&group.baseline, contender);
            let pooled = Pooled::of(group, blocks_of(&group.baseline, contender));
            let correction = group.corrections.get(index).copied().unwrap_or_default();
            // Whoever looks again and again looks where the ratios are farthest from 1.
            let may_stop = options.some_may_have_left();
            let widening = if may_stop { widening(&under, &over) } else { 1.0 };
            // Rounding has the variance of a uniform distribution as wide as the step, on each side.
            let rounding = step(&under).max(step(&over)).powi(2) / 6.0 / under.len() as f64;
            let runs = group.runs.get(index).copied().flatten();
            let finished = |found: Location| {
                let found = found.less(correction).widened(widening).blurred(rounding);
                runs.map_or(found, |runs| found.at_least(runs, under.len()))
            };
            let own = log_ratio_location(&under, &over)?;
            let grouped = own.zip(pooled).map(|(own, pooled)| {
                own.of_group(pooled.variance / under.len() as f64, pooled.freedom)
            });
            // A contender that left because it was decided has all its trials in pairs.
            let all_paired = count(contender) == under.len()
                && (count(&group.baseline) == under.len() || may_stop);
            let tells = all_paired || under.len() >= BLOCKS_MIN_FOR_INTERVAL;
            let slow = slow(&logs(&under), &logs(&over));
            let costs = own.filter(|_| slow.iter().any(|slow| slow.trials > 0)).map(|own| {
                let ratios = log_ratios(&under, &over);
                [-1.0, 1.0].map(|sign| {
                    let above = ratios.iter().map(|ratio| (sign * (ratio - own.estimate)).exp());
                    above.sum::<f64>() / ratios.len() as f64
                })
            });
            // What the means of the blocks do not show, the turns within them may.
            let of_turns = group
                .slow_turns
                .get(index)
                .filter(|turns| !slow.iter().any(Slow::is_mode) && turns.iter().any(Slow::is_mode));
            located.push(Located {
                pairs: under.len(),
                location: own.map(finished).filter(|_| tells),
                grouped: grouped.map(finished),
                mean_ratio: mean_ratio(&under, &over),
                slow: of_turns.copied().unwrap_or(slow),
                costs,
                unseen_growth: unseen_growth(&under, &over, widening),
            });
        }
    }
    let mut judged = judge(&located, options).into_iter();
    Ok(groups.iter().map(|group| judged.by_ref().take(group.contenders.len()).collect()).collect())
}

/// The scatter of the ratios of all contenders of a group.
///
/// A handful of blocks says little of one contender's scatter, and Student's quantile pays for that
/// dearly. That of all its contenders is known much better.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pooled {
    /// Mean variance of the logarithm of one ratio.
    variance: f64,
    /// Degrees of freedom of that mean, for contenders that scatter alike. Their ratios share the
    /// baseline, so the variances of two correlate by 1/4, and m of d degrees each are worth
    /// 4 m d / (m + 3) together (Satterthwaite 1946).
    freedom: f64,
}

impl Pooled {
    /// Of the first `blocks` blocks: what closed a comparison then is not changed by what came later.
    /// None for a contender alone, whose own scatter is all there is.
    fn of(group: &Group, blocks: usize) -> Option<Pooled> {
        let until = |samples: &[Option<f64>]| samples[..samples.len().min(blocks)].to_vec();
        let baseline = until(&group.baseline);
        let scatters: Vec<(f64, f64)> = group
            .contenders
            .iter()
            .map(|contender| pairs(&baseline, &until(contender)))
            .filter(|(under, _)| under.len() >= BLOCKS_MIN_FOR_INTERVAL)
            .map(|(under, over)| {
                let freedom = (under.len() - 1) as f64;
                (squares(&log_ratios(&under, &over)), freedom)
            })
            .collect();
        let (squares, freedom) =
            scatters.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let count = scatters.len() as f64;
        (scatters.len() > 1)
            .then(|| Pooled { variance: squares / freedom, freedom: 4.0 * freedom / (count + 3.0) })
    }
}

/// Sum of the squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// The number of blocks up to the last one in which both have a sample.
fn blocks_of(baseline: &[Option<f64>], contender: &[Option<f64>]) -> usize {
    let is_pair = |(left, right): (&Option<f64>, &Option<f64>)| left.is_some() && right.is_some();
    baseline.iter().zip(contender).rposition(is_pair).map_or(0, |last| last + 1)
}

/// The step in which samples were read, as a share of their median: the least difference between
/// two of them where values repeat; 0 where none does, and where all are equal.
fn step(values: &[f64]) -> f64 {
    let sorted = super::sorted(values);
    let gaps = || sorted.windows(2).map(|pair| pair[1] - pair[0]);
    let least = gaps().filter(|gap| *gap > 0.0).fold(f64::INFINITY, f64::min);
    if gaps().any(|gap| gap == 0.0) && least.is_finite() {
        least / sorted[sorted.len() / 2]
    } else {
        0.0
    }
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.ln()).collect()
}

/// The second sample's mean over the first's. The values are scaled by their largest, so that huge
/// ones do not overflow the sum.
fn mean_ratio(under: &[f64], over: &[f64]) -> Option<f64> {
    let largest = under.iter().chain(over).copied().fold(0.0, f64::max);
    let sum = |values: &[f64]| values.iter().map(|value| value / largest).sum::<f64>();
    let ratio = sum(over) / sum(under);
    (!under.is_empty() && ratio.is_finite()).then_some(ratio)
}

/// The samples of the blocks in which both have one, in the order of the blocks.
pub fn pairs(baseline: &[Option<f64>], contender: &[Option<f64>]) -> (Vec<f64>, Vec<f64>) {
    baseline.iter().zip(contender).filter_map(|(left, right)| left.zip(*right)).unzip()
}

/// The location of the logarithms of the ratios; None without a pair.
pub(super) fn log_ratio_location(
    baseline: &[f64],
    contender: &[f64],
) -> Result<Option<Location>, StatisticsError> {
    check_samples(baseline)?;
    check_samples(contender)?;
    let ratios = log_ratios(baseline, contender);
    Ok((!ratios.is_empty()).then(|| locate(&ratios)))
}

fn log_ratios(baseline: &[f64], contender: &[f64]) -> Vec<f64> {
    baseline.iter().zip(contender).map(|(left, right)| right.ln() - left.ln()).collect()
}

/// A member of a family: its pairs, and the location of their logarithms where it tells anything.
struct Located {
    pairs: usize,
    location: Option<Location>,
    /// The same with the scatter of its group.
    grouped: Option<Location>,
    mean_ratio: Option<f64>,
    slow: [Slow; 2],
    /// Where trials are slow: by what factors the means of the inverse ratios and of the ratios are
    /// above their location.
    costs: Option<[f64; 2]>,
    /// By what its error may be too small.
    unseen_growth: f64,
}

impl Located {
    /// Its location, where there are pairs enough for an interval.
    fn told(&self) -> Option<Location> {
        self.location.filter(|_| self.pairs >= BLOCKS_MIN_FOR_INTERVAL)
    }

    /// The smaller of the p values by its own scatter and by that of its group.
    fn p_value(&self) -> Option<f64> {
        let own = self.told()?.p_value();
        Some(self.grouped.map_or(own, |grouped| own.min(grouped.p_value())))
    }

    /// The interval, wide enough for the mean ratio where single trials were slow: a trimmed ratio
    /// leaves out what these cost. Either way round, since slow trials of the baseline count in the
    /// mean of the inverse ratios.
    fn with_slow_trials(&self, interval: Interval) -> Interval {
        let Some([gain, loss]) = self.costs else { return interval };
        Interval {
            low: interval.low / gain.max(1.0),
            high: interval.high * loss.max(1.0),
            ..interval
        }
    }

    /// Half the width of the narrower interval that misses with probability `alpha`.
    fn half_width(&self, alpha: f64) -> Option<f64> {
        let own = self.told()?.half_width(alpha);
        Some(self.grouped.map_or(own, |grouped| own.min(grouped.half_width(alpha))))
    }
}

/// Turns the locations of a family into comparisons.
fn judge(family: &[Located], options: &ComparisonOptions) -> Vec<CostEstimate> {
    let alpha = 1.0 - options.confidence;
    let tests: Vec<Option<Test>> = family
        .iter()
        .map(|member| Some(Test { p_value: member.p_value()?, blocks: member.pairs }))
        .collect();
    let corrected = holm(&tests, alpha, options);
    family
        .iter()
        .zip(tests)
        .zip(corrected)
        .map(|((member, test), corrected)| {
            let half_width = corrected.and_then(|corrected| member.half_width(corrected.level));
            let sure = member.location.zip(corrected).zip(half_width);
            let interval = sure.map(|((found, corrected), half_width)| {
                corrected.around(found.estimate, half_width)
            });
            let verdict = match verdict(interval.as_ref(), options) {
                verdict if verdict.is_different() => verdict,
                // What two modes have in common is no finding about either.
                _ if member.slow.iter().any(Slow::is_mode) => Verdict::Inconclusive,
                _ => verdict(interval.map(|one| member.with_slow_trials(one)).as_ref(), options),
            };
            let is_held = sure.is_some_and(|((found, _), half_width)| {
                // Ratios that do not differ at all were counted in steps, and tell no scatter.
                half_width > 0.0 && found.estimate.abs() > half_width * member.unseen_growth
            });
            CostEstimate {
                pairs: member.pairs,
                ratio: member.location.map(|found| found.estimate.exp()),
                interval,
                p_value: test.map(|test| test.p_value),
                p_adjusted: corrected.map(|corrected| corrected.p_adjusted),
                trimmed_per_side: member.location.map_or(0, |found| found.trimmed_per_side),
                mean_ratio: member.mean_ratio,
                slow: member.slow,
                rests_on_independence: verdict.is_different() && !is_held,
                verdict,
            }
        })
        .collect()
}

/// What the whole interval says: the margin first, then a direction, then what its ends exclude
/// where that is worth saying.
pub(super) fn verdict(interval: Option<&Interval>, options: &ComparisonOptions) -> Verdict {
    let Some(interval) = interval else { return Verdict::Inconclusive };
    let bound = |by: f64| Some(by).filter(|by| *by <= BOUND_MAX);
    let (slower, faster) = (bound(interval.high - 1.0), bound(interval.low.recip() - 1.0));
    match interval {
        interval if options.same(interval) => Verdict::Same { within: options.same_within },
        interval if interval.high < 1.0 => Verdict::Faster,
        interval if interval.low > 1.0 => Verdict::Slower,
        _ if slower.or(faster).is_some() => Verdict::AtMost { slower, faster },
        _ => Verdict::Inconclusive,
    }
}

/// The p value of one member of a family, and of how many blocks it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub p_value: f64,
    pub blocks: usize,
}

/// One member of a family after the correction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Corrected {
    /// Probability with which its interval may miss, over all looks.
    pub alpha: f64,
    /// Level of the interval at this look.
    pub level: f64,
    pub p_adjusted: f64,
}

impl Corrected {
    /// The interval of a ratio with this half width, both as logarithms.
    pub fn around(&self, estimate: f64, half_width: f64) -> Interval {
        Interval {
            low: (estimate - half_width).exp(),
            high: (estimate + half_width).exp(),
            confidence: 1.0 - self.alpha,
        }
    }
}

/// Holm's step-down procedure: of m hypotheses that stand, each is tested at alpha / m; those that
/// fall leave their share of the error to the others, which are tested anew, until none falls. The
/// interval at the level of each test excludes 1 exactly when the procedure rejects. What fell at an
/// earlier look stays fallen, since its p value no longer changes and its share only grows.
pub(super) fn holm(
    tests: &[Option<Test>],
    alpha: f64,
    options: &ComparisonOptions,
) -> Vec<Option<Corrected>> {
    let at = |test: &Test, alpha_own: f64| {
        let level = options.level(alpha_own, test.blocks);
        let p_adjusted = (test.p_value * alpha / level).min(1.0);
        Corrected { alpha: alpha_own, level, p_adjusted }
    };
    let mut corrected: Vec<Option<Corrected>> = vec![None; tests.len()];
    loop {
        let standing: Vec<usize> = (0..tests.len())
            .filter(|index| tests[*index].is_some() && corrected[*index].is_none())
            .collect();
        let share = alpha / standing.len().max(1) as f64;
        let tested = standing.iter().filter_map(|index| {
            let test = tests[*index].as_ref()?;
            Some((*index, test.p_value, at(test, share)))
        });
        let tested: Vec<(usize, f64, Corrected)> = tested.collect();
        // Of those that fall together, the surest is first, and the others are tested at what it leaves.
        let surest = |one: &&(usize, f64, Corrected), other: &&(usize, f64, Corrected)| {
            (one.1 / one.2.level).total_cmp(&(other.1 / other.2.level))
        };
        match tested.iter().min_by(surest) {
            Some((index, p_value, found)) if *p_value <= found.level => {
                corrected[*index] = Some(*found);
            }
            _ => {
                for (index, _, found) in tested {
                    corrected[index] = Some(found);
                }
                return corrected;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::StopRule;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn both_ends_are_told_where_both_exclude_something_worth_saying() {
        let said = |low: f64, high: f64| {
            let interval = Interval { low, high, confidence: 0.95 };
            verdict(Some(&interval), &ComparisonOptions::default()).to_string()
        };
        assert_eq!(said(0.879, 1.168), "at most 17 % slower, at most 13 % faster");
        assert_eq!(said(0.7, 1.168), "inconclusive");
        assert_eq!(said(0.879, 1.3), "inconclusive");
        assert_eq!(said(0.7, 1.3), "inconclusive");
    }

    #[test]
    fn a_difference_of_few_blocks_rests_on_their_independence_unless_it_is_large() {
        let baseline = [10.0, 10.1, 9.9, 10.0, 10.05];
        let noise = [1.0, 1.03, 1.02, 0.98, 0.99];
        let rests = |effect: f64| {
            let contender: Vec<f64> =
                baseline.iter().zip(noise).map(|(b, n)| b * n * effect).collect();
            let found = compare(&baseline, &contender, &ComparisonOptions::default()).unwrap();
            (found.verdict, found.rests_on_independence)
        };
        assert_eq!(rests(1.06), (Verdict::Slower, true));
        assert_eq!(rests(2.0), (Verdict::Slower, false));
        assert!(!rests(1.0).1, "nothing was found");
    }

    #[test]
    fn holm_agrees_with_a_case_worked_by_hand() {
        // Sorted 0.01, 0.013, 0.03, 0.5 at 0.05 / 4, 3, 2, 1: two fall, the third stands at 0.025
        // and holds the fourth.
        let test = |p_value: f64| Some(Test { p_value, blocks: 9 });
        let tests = [test(0.03), test(0.01), None, test(0.5), test(0.013)];
        let found = holm(&tests, 0.05, &ComparisonOptions::default());
        let expected = [
            Some((0.025, 0.06)),
            Some((0.0125, 0.04)),
            None,
            Some((0.025, 1.0)),
            Some((0.05 / 3.0, 0.039)),
        ];
        for (found, expected) in found.iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some((alpha, p))) => {
                    assert!(close(found.alpha, alpha), "{found:?}");
                    assert!(close(found.p_adjusted, p), "{found:?}");
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_interval_is_student_s_on_the_logarithms() {
        // Log ratios ln 2 + {-0.1, 0, 0.1, ...}: mean ln 2, t with 2 degrees of freedom 4.302653.
        let baseline = [1.0, 10.0, 100.0];
        let contender = [2.0 * (-0.1f64).exp(), 20.0, 200.0 * 0.1f64.exp()];
        let comparison = compare(&baseline, &contender, &ComparisonOptions::default()).unwrap();
        let half_width: f64 = 4.302652729749464 * 0.1 / 3f64.sqrt();
        let interval = comparison.interval.unwrap();
        assert!(close(comparison.ratio.unwrap(), 2.0));
        assert!((interval.low - 2.0 * (-half_width).exp()).abs() < 1e-9, "{interval:?}");
        assert!((interval.high - 2.0 * half_width.exp()).abs() < 1e-9, "{interval:?}");
        assert_eq!(comparison.verdict, Verdict::Slower);
    }

    #[test]
    fn ratios_that_agree_because_times_were_read_in_steps_are_less_certain() {
        let by = |step: f64| {
            let read = |time: f64| Some((time / step).round() * step);
            let baseline = [20.0, 20.2, 20.9, 20.1, 19.9].map(read);
            let contender = [[20.8, 21.2, 21.7, 21.1, 20.9].map(read)];
            compare_family(&baseline, &contender, &ComparisonOptions::default()).unwrap()[0]
                .interval
        };
        let width = |step| by(step).map(|one| one.high / one.low - 1.0).unwrap();
        // All five ratios are 21/20 or 22/21.
        assert!(width(1.0) > 0.05 && width(1.0) > 2.0 * width(0.1), "{:?}", by(1.0));
        // What always counts the same is certain.
        let counts = [[Some(2.0); 5]];
        let certain = compare_family(&[Some(1.0); 5], &counts, &ComparisonOptions::default());
        let interval = certain.unwrap()[0].interval.unwrap();
        assert_eq!(interval.low, interval.high);
    }

    /// Contenders whose ratios to a baseline of 1 scatter by so much, for so many blocks each.
    fn family(contenders: &[(f64, usize)]) -> Vec<f64> {
        let noise = [0.8, -1.3, 0.2, 1.1, -0.8, 2.0, -2.0, 2.0, -2.0, 0.0];
        let samples = |(scatter, blocks): &(f64, usize)| -> Vec<Option<f64>> {
            noise[..*blocks].iter().map(|one| Some((0.1 + scatter * one).exp())).collect()
        };
        let contenders: Vec<Vec<Option<f64>>> = contenders.iter().map(samples).collect();
        let looks = StopRule::deciding(5, 20).looks(10, |_| None);
        let options = ComparisonOptions { looks, ..ComparisonOptions::default() };
        let found = compare_family(&[Some(1.0); 10], &contenders, &options).unwrap();
        found.iter().map(|one| one.p_value.unwrap()).collect()
    }

    #[test]
    fn contenders_that_scatter_alike_know_their_scatter_together() {
        let (alone, together) = (family(&[(0.05, 5)])[0], family(&[(0.05, 5); 4])[0]);
        assert!(together < alone / 2.0, "{together} {alone}");
        // Who scatters more keeps its own scatter, and the others are less sure for it.
        let unequal = family(&[(0.05, 5), (0.05, 5), (0.05, 5), (0.2, 5)]);
        assert!(unequal[3] > 0.2 && unequal[0] > together, "{unequal:?}");
    }

    #[test]
    fn what_left_is_not_changed_by_later_blocks_of_the_others() {
        let early = family(&[(0.01, 5), (0.05, 5), (0.05, 5)]);
        let later = family(&[(0.01, 5), (0.05, 10), (0.05, 10)]);
        assert_eq!(early[0], later[0]);
        assert_ne!(early[1], later[1]);
    }

    #[test]
    fn a_ratio_of_one_or_two_pairs_is_withheld_beside_samples_of_other_blocks() {
        // The reported case: alone in the second block the baseline is faster, so that the medians
        // say "slower" and the one pair says "faster".
        let baseline = [Some(1.0 / 6864.0), Some(1.0 / 11918.0), None, None];
        let contenders = [
            vec![Some(1.0 / 8662.0)],
            vec![Some(1.0 / 8662.0), Some(1.0 / 8662.0)],
            vec![Some(1.0 / 8662.0), Some(1.0 / 8662.0), Some(1.0 / 8662.0)],
            vec![None, None, Some(1.0 / 8662.0)],
        ];
        let found = compare_family(&baseline, &contenders, &ComparisonOptions::default()).unwrap();
        let said: Vec<_> = found.iter().map(|one| (one.pairs, one.ratio.is_some())).collect();
        assert_eq!(said, [(1, false), (2, true), (2, false), (0, false)]);
        assert!(found.iter().all(|one| one.verdict == Verdict::Inconclusive));
        // Three pairs have an interval, which says how sure they are, whatever is without partner.
        let four = [Some(1.0), Some(1.0), Some(1.0), Some(9.0)];
        let three = [[Some(2.0), Some(2.1), Some(1.9), None]];
        let found = &compare_family(&four, &three, &ComparisonOptions::default()).unwrap()[0];
        assert!(found.ratio.is_some() && found.interval.is_some(), "{found:?}");
    }

    #[test]
    fn what_one_slow_trial_cost_is_in_the_bounds() {
        let verdict = |slow: f64| {
            let baseline = [10.0, 10.04, 9.96, 10.0, 10.02, 9.98, 10.01, 9.99];
            let mut contender = baseline;
            contender.reverse();
            contender[3] *= slow;
            compare(&baseline, &contender, &ComparisonOptions::default()).unwrap().verdict
        };
        assert_eq!(verdict(1.0), Verdict::Same { within: 0.05 });
        // The means differ by 1.5 and by 8 %.
        assert_eq!(verdict(1.12), Verdict::Same { within: 0.05 });
        let Verdict::AtMost { slower: Some(slower), .. } = verdict(1.6) else {
            panic!("{:?}", verdict(1.6));
        };
        assert!((0.075..0.1).contains(&slower), "{slower}");
        assert_eq!(verdict(4.0).to_string(), "inconclusive");
    }

    #[test]
    fn a_tiny_real_difference_inside_the_margin_is_the_same() {
        let baseline = [10.0, 10.1, 9.9, 10.0, 10.05];
        let contender: Vec<f64> = baseline
            .iter()
            .zip([1.011, 1.009, 1.010, 1.0105, 1.0095])
            .map(|(b, f)| b * f)
            .collect();
        let options = ComparisonOptions::default();
        let comparison = compare(&baseline, &contender, &options).unwrap();
        assert!(comparison.interval.unwrap().low > 1.0 && comparison.p_value.unwrap() < 0.001);
        assert_eq!(comparison.verdict, Verdict::Same { within: 0.05 });
        let strict = ComparisonOptions { same_within: 0.0, ..options };
        assert_eq!(compare(&baseline, &contender, &strict).unwrap().verdict, Verdict::Slower);
    }
}
