//! The stop rule: data in the plan. It knows nothing of time or budget, which the runner watches,
//! nor of what is asked: that is `analysis::step`'s.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::location::locate;
use super::looks::{InterimLook, spent_by};
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError};

/// Half width at which an interval is tight enough whatever it says: ± 2 %.
pub const TIGHT: f64 = 0.02;

/// However soon a look comes, it may err with this share of the error.
const SPENT_MIN: f64 = 0.02;
/// Up to so many blocks every block is a look; later looks are a twentieth of the blocks apart.
const EVERY_BLOCK_MAX: u32 = 20;
/// No study has more blocks than this.
const BLOCKS_MAX: u32 = 1_000_000;

/// When the blocks are enough.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StopRule {
    /// No stop before so many blocks.
    pub min_blocks: u32,
    /// No more than so many blocks.
    pub max_blocks: u32,
    /// Of a study that stops when its questions are answered, the number of blocks of its first
    /// look. None fixes the number of blocks at the greatest.
    pub first_look: Option<u32>,
    /// Whether the first look is that of a number of blocks that was fixed. False in plans of older
    /// versions, whose fixed numbers left nothing for later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// The last looks that were planned: the greatest number of blocks or the one at which the budget
    /// ended, then one for each time that the study went on. Empty until one of these happens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<u32>,
    /// The budget in ns that the looks until then were paced by, once the study goes on without it.
    pub budget_ns: Option<u64>,
}

impl StopRule {
    /// A rule that stops when the questions are answered, and looks for that after every block from
    /// the least number of them on. Equal numbers fix the number of blocks.
    pub fn deciding(min_blocks: u32, max_blocks: u32) -> StopRule {
        let first_look = min_blocks.max(BLOCKS_MIN_FOR_INTERVAL as u32);
        let first_look = (first_look < max_blocks).then_some(first_look);
        StopRule {
            min_blocks,
            max_blocks,
            first_look,
            fixed: first_look.is_none(),
            ends: Vec::new(),
            budget_ns: None,
        }
    }

    /// The rule once `max_blocks` may be done. The error that is left is spent, and none anew; a
    /// number of blocks that was fixed counts as the first look.
    pub fn up_to(&self, max_blocks: u32) -> StopRule {
        let fixed = self.fixed || self.first_look.is_none();
        let first_look = Some(self.first().max(BLOCKS_MIN_FOR_INTERVAL as u32));
        let mut ends = self.ends();
        ends.extend(Some(max_blocks).filter(|end| *end > ends[ends.len() - 1]));
        let min_blocks = self.min_blocks.min(max_blocks);
        StopRule { max_blocks, min_blocks, first_look, fixed, ends, budget_ns: self.budget_ns }
    }

    fn first(&self) -> u32 {
        self.first_look.unwrap_or(self.max_blocks)
    }

    /// The last looks that were planned; at least one.
    fn ends(&self) -> Vec<u32> {
        let planned = if self.fixed { self.first() } else { self.max_blocks };
        if self.ends.is_empty() { vec![planned] } else { self.ends.clone() }
    }

    /// The looks of a study that reached so many blocks. `share` is the share of its budget that was
    /// spent at the end of a block; without a budget it is that of the blocks.
    pub fn looks(&self, reached: u32, share: impl Fn(u32) -> Option<f64>) -> Vec<InterimLook> {
        let ends = self.ends();
        let mut blocks = self.first().min(ends[0]);
        let (mut looks, mut spent): (Vec<InterimLook>, f64) = (Vec::new(), SPENT_MIN);
        let until = reached.max(blocks);
        while blocks <= until {
            let over = share(blocks).unwrap_or(f64::from(blocks) / f64::from(ends[0].max(1)));
            spent = spent_by(&ends, blocks, over).max(spent);
            looks.push(InterimLook { blocks, spent });
            let apart = if blocks < EVERY_BLOCK_MAX { 1 } else { blocks / EVERY_BLOCK_MAX };
            let next_end = ends.iter().copied().find(|end| *end > blocks);
            blocks = (blocks + apart).min(next_end.unwrap_or(u32::MAX));
        }
        looks
    }

    /// Refuses a rule that cannot be followed.
    pub fn check(&self) -> Result<(), StatisticsError> {
        let bad = |option, value, expected| {
            Err(StatisticsError::BadOption { option, value: f64::from(value), expected })
        };
        if self.min_blocks == 0 || self.min_blocks > self.max_blocks {
            return bad("min_blocks", self.min_blocks, "at least 1 and at most max_blocks");
        }
        if !self.ends.is_sorted_by(|one, next| one < next) {
            return bad("ends", self.ends.len() as u32, "in ascending order");
        }
        let all = [self.max_blocks, self.first()].into_iter().chain(self.ends.last().copied());
        if let Some(most) = all.max().filter(|most| *most > BLOCKS_MAX) {
            return bad("max_blocks", most, "at most 1000000");
        }
        match self.first_look {
            Some(0) => bad("first_look", 0, "at least 1"),
            _ => Ok(()),
        }
    }
}

/// Whether positive samples of a contender that stands alone tell their mean to [`TIGHT`], with 95 %
/// confidence, on logarithms.
pub fn is_tight(values: &[f64]) -> bool {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    logs.len() >= BLOCKS_MIN_FOR_INTERVAL && locate(&logs).half_width(0.05) <= TIGHT.ln_1p()
}
