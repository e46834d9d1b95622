//! Warnings: what a reader must know before she trusts a number, and what to do about it.
//!
//! Each text names the contender and the value, and ends with the next action. It is written where
//! the doubt is found.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// A doubt about a workload's numbers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub kind: WarningKind,
    /// Label of the contender whose numbers are in doubt; absent where it is not one alone.
    pub contender: Option<String>,
    /// What is to be known, and what to do.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// Trials failed.
    Failures,
    /// The run with its sync is too short to be told from the cost of starting it.
    ShortTrial,
    /// The first block was slower than the others: something was cold.
    SlowFirstBlock,
    /// The first block was faster than the others: something was fresh.
    FastFirstBlock,
    /// The values rise or fall over the blocks.
    Drift,
    /// Trials far from the others, by their median absolute deviation.
    Outliers,
    /// Trials of one contender differ by large factors.
    Spread,
    /// Ratios were set aside for the estimate, since single ones lie far out.
    Trimmed,
    /// Trials of one contender fall into two kinds.
    Modes,
    /// The first trial of a block is slower or faster than the others.
    FirstOfBlock,
    /// What runs after one contender costs more.
    CarriedOver,
    /// A turn costs more for its place in a round or for what came before it, and orders fell so
    /// evenly that no ratio is bent by it.
    TurnOrder,
    /// Fresh file systems of a contender differ by more than its turns do.
    Instances,
    /// A contender's device worked while others had their turn.
    IdleWork,
    /// The ratios follow the ones before them, so that the blocks are no independent trials.
    #[serde(rename = "wander")]
    SerialCorrelation,
    /// A difference that so few blocks show only if they are independent.
    FewBlocks,
    /// Others use the device.
    DeviceShared,
    /// The device did not become idle before the run.
    DeviceBusy,
    /// What the workload writes and reads fits in memory, and most of what it read did not come from
    /// storage.
    SmallData,
    /// The command spends its time on the CPU.
    NotIoBound,
    /// Trials of one block lie far apart in time: the machine slept, or a version of kurabe that did
    /// not repeat half blocks resumed the study.
    SplitBlock,
    /// Two contenders did not do the same work.
    UnequalWork,
    /// Caches could not be dropped.
    CachesKept,
    /// Cold runs of one contender read so differently much from the device that some found in
    /// memory what others had to fetch.
    WarmRuns,
    /// A directory on a file system in user space, which no sync can be asked of.
    SyncUnknown,
    /// Processes of the command outlived it.
    Outlived,
    /// A verdict would be another one without the runs that the machine disturbed.
    Disturbed,
    /// The contenders lived in guests with an emulated processor.
    Emulated,
    /// Times of a modelled disk are next to measured ones.
    Modelled,
    /// A modelled disk answered later than its model said.
    LateReplies,
    /// Events of the device's requests were lost.
    LostEvents,
}

impl Warning {
    /// One that is about no contender alone.
    pub fn new(kind: WarningKind, text: impl Into<String>) -> Warning {
        Warning { kind, contender: None, text: text.into() }
    }

    /// One about a contender, whose label comes first.
    pub fn of(kind: WarningKind, label: &str, text: impl fmt::Display) -> Warning {
        Warning { kind, contender: Some(label.into()), text: format!("{label}: {text}") }
    }

    /// Whether the warning casts doubt on the numbers themselves, rather than on what they can be
    /// taken to mean.
    pub fn is_grave(&self) -> bool {
        use WarningKind::{FewBlocks, FirstOfBlock, Instances, NotIoBound, Outliers};
        use WarningKind::{SerialCorrelation, SmallData, TurnOrder};
        !matches!(
            self.kind,
            SmallData
                | Outliers
                | NotIoBound
                | FirstOfBlock
                | SerialCorrelation
                | FewBlocks
                | TurnOrder
                | Instances
        )
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
