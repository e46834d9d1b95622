//! What a run yielded: everything that a record keeps.
//!
//! Must not know: how it was measured.

use std::collections::BTreeMap;

use serde::Serialize;
use vocabulary::check::Check;

use super::plan::{CapacityFit, ProgramPlan};
use super::store::StoreOptions;
use measure::latency::LatencyRecording;

/// What a run yielded.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub store: String,
    pub store_options: StoreOptions,
    /// What it said of itself.
    pub store_facts: BTreeMap<String, String>,
    /// What is left in it after the final sync, in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub store_usage: BTreeMap<String, u64>,
    /// What it was going to do.
    pub plan: ProgramPlan,
    /// Whether that was going to fit.
    pub fit: CapacityFit,
    /// Operations under way at once.
    pub threads: u32,
    /// Whether latencies count from the intended start (an open loop) or from the start of the call
    /// (a closed one).
    pub open_loop: bool,
    /// What time was read from: `tsc` or `clock_monotonic`.
    pub clock: String,
    /// How the run ended.
    pub outcome: ProgramOutcome,
    /// Commands that were carried out.
    pub commands: u64,
    /// Statements that were skipped, because no object was live.
    pub skipped: u64,
    /// Making the store, and making it durable.
    pub create_ns: u64,
    /// From the first command's beginning to the last one's end.
    pub elapsed_ns: u64,
    /// The sync after the last command.
    pub sync_ns: u64,
    /// Bytes of the objects that were put.
    pub bytes_written: u64,
    /// Bytes of the objects that were read, without those read to verify.
    pub bytes_read: u64,
    /// Bytes that the store wrote to the file or device that it lies on, during the commands and
    /// the sync: the objects and its own journal. Absent where the store does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_written_bytes: Option<u64>,
    /// Objects that are live at the end.
    pub live_objects: u64,
    /// Latencies of each kind of command, and over time; they are not among the details.
    #[serde(skip)]
    pub recording: LatencyRecording,
    /// What was compared, when that was asked for.
    pub verification: Option<Verification>,
    /// Whether the store answered as the program expects: with what was put, when that was asked for,
    /// or else whether what was put is there. Absent of a store that keeps nothing.
    #[serde(skip)]
    pub check: Option<Check>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramOutcome {
    /// Every command was carried out.
    Completed,
    /// The program's limit in time was reached.
    TimeLimit,
    /// The caller ended it.
    Cancelled,
    Failed(ProgramFailure),
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramFailure {
    pub message: String,
    /// The command, or the sweep, that failed.
    pub during: String,
    /// Whether the store had no room left.
    pub store_is_full: bool,
}

/// What was compared with what was put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Objects read by the program.
    pub gets: u64,
    /// Objects read before they were deleted.
    pub deletes: u64,
    /// Objects read at the end, after the store was closed and opened again; all that were live.
    pub swept_objects: u64,
    /// Bytes compared in all.
    pub bytes: u64,
    /// Whether the sweep at the end took place.
    pub complete: bool,
}
