//! What a trial says while it goes on: one JSON object a line on its standard output, the record
//! last; and what one that takes turns with others is told on its standard input.

use serde::{Deserialize, Serialize};

use crate::record::Phase;
use crate::reported::Reported;
use crate::slice::Slice;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A phase begins.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// Something worth showing meanwhile: what is waited for, how far a load has come.
    Status {
        /// A short text.
        text: String,
    },
    /// The trial waits for its first turn: everything that comes before the measured run is done.
    Ready,
    /// What a trial made on a real disk. Only this may be wiped when the trial dies.
    Made {
        /// What tells it from what others make.
        marks: Vec<Mark>,
    },
    /// A turn is over, and everything is ready for another one.
    Slice {
        /// What it cost.
        slice: Box<Slice>,
    },
    /// The trial's process cannot go on and yields no record.
    Error {
        /// Why.
        message: String,
    },
    /// The trial is over.
    Record {
        /// What it yielded.
        record: Reported,
    },
}

/// What tells something on a disk from what somebody else makes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What libblkid calls it: `ext4`, `zfs_member`.
    pub kind: String,
    /// Its UUID, empty of what has none. Absent where the load makes it, whose UUID nobody knows
    /// beforehand: then any.
    #[serde(default)]
    pub uuid: Option<String>,
}

/// What a trial that takes turns is told, one JSON object a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "turn", rename_all = "kebab-case")]
pub enum Turn {
    /// Carry one slice out.
    Slice {
        /// Round of the block, from 0: every contender has one slice in each.
        round: u32,
        /// Place within the round, from 0.
        position: u32,
        /// Which part of the load it is, where a run is carried out in parts, from 0.
        #[serde(default)]
        part: u32,
        /// Whether no other slice follows, so that nothing need be made ready for one.
        last: bool,
    },
    /// There are no more turns.
    End,
}
