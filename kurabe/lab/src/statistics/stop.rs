//! The stop rule: data in the plan. It knows nothing of time or budget, which the runner watches,
//! nor of what is asked: that is `analysis::step`'s.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::location::locate;
use super::{BLOCKS_MIN_FOR_INTERVAL, StatisticsError};

/// Half width at which an interval is tight enough whatever it says: ± 2 %.
pub const TIGHT: f64 = 0.02;

/// When the blocks are enough.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
}

impl StopRule {
    /// A rule that stops when the questions are answered, and looks for that after every block from
    /// the least number of them on. Equal numbers fix the number of blocks.
    pub fn deciding(min_blocks: u32, max_blocks: u32) -> StopRule {
        let first_look = min_blocks.max(BLOCKS_MIN_FOR_INTERVAL as u32);
        let first_look = (first_look < max_blocks).then_some(first_look);
        StopRule { min_blocks, max_blocks, first_look, fixed: first_look.is_none() }
    }

    /// The rule once `max_blocks` may be done. The error that is left is spent, and none anew; a
    /// number of blocks that was fixed counts as the first look.
    pub fn up_to(&self, max_blocks: u32) -> StopRule {
        let fixed = self.fixed || self.first_look.is_none();
        let first_look = self.first_look.unwrap_or(self.max_blocks);
        let first_look = Some(first_look.max(BLOCKS_MIN_FOR_INTERVAL as u32));
        StopRule { max_blocks, min_blocks: self.min_blocks.min(max_blocks), first_look, fixed }
    }

    /// Refuses a rule that cannot be followed.
    pub fn check(&self) -> Result<(), StatisticsError> {
        let bad = |option, value, expected| {
            Err(StatisticsError::BadOption { option, value: f64::from(value), expected })
        };
        if self.min_blocks == 0 || self.min_blocks > self.max_blocks {
            return bad("min_blocks", self.min_blocks, "at least 1 and at most max_blocks");
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
