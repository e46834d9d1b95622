//! What a trial says while it goes on: one JSON object a line on its standard output, the record
//! last.

use serde::{Deserialize, Serialize};

use crate::record::{Phase, Record};

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
    /// The trial's process cannot go on and yields no record.
    Error {
        /// Why.
        message: String,
    },
    /// The trial is over.
    Record {
        /// What it yielded.
        record: Box<Record>,
    },
}
