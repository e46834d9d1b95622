//! What a part of a trial costs: its phases, the device's counters, a command's usage.
//!
//! Integers for nanoseconds and bytes. What could not be measured is absent, never zero.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// A timed part of a trial, in the order in which they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Setting up the block layers below the file system.
    Layers,
    /// Waiting until the members of a mirror or a parity array are equal.
    Resync,
    /// Making the file system.
    Mkfs,
    /// Putting an aged file system on the device, in the place of making one.
    Restore,
    Mount,
    /// The user's `--setup`.
    Setup,
    /// Laying out what the workload needs: its files, its store.
    Layout,
    /// Making an empty database.
    Create,
    /// Loading the rows of a database.
    Load,
    /// Writing what a database's log holds to its place, and ending its server.
    Checkpoint,
    /// Dropping caches and waiting for the device to be idle.
    Settle,
    /// The user's `--prepare`.
    Prepare,
    /// Starting a database's server.
    Start,
    Run,
    /// Reading everything back to compare it, within the workload but not in the run's cost.
    Verify,
    /// Ending a database's server in good order.
    Shutdown,
    /// Making durable what the workload wrote.
    Sync,
    /// The user's `--cleanup`.
    Cleanup,
    Unmount,
    /// The read-only check of the file system.
    Check,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: &[Phase] = &[
        Phase::Layers,
        Phase::Resync,
        Phase::Mkfs,
        Phase::Restore,
        Phase::Mount,
        Phase::Setup,
        Phase::Layout,
        Phase::Create,
        Phase::Load,
        Phase::Checkpoint,
        Phase::Settle,
        Phase::Prepare,
        Phase::Start,
        Phase::Run,
        Phase::Verify,
        Phase::Shutdown,
        Phase::Sync,
        Phase::Cleanup,
        Phase::Unmount,
        Phase::Check,
    ];

    /// The phase's name, as in JSON.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 20] = [
            "layers",
            "resync",
            "mkfs",
            "restore",
            "mount",
            "setup",
            "layout",
            "create",
            "load",
            "checkpoint",
            "settle",
            "prepare",
            "start",
            "run",
            "verify",
            "shutdown",
            "sync",
            "cleanup",
            "unmount",
            "check",
        ];
        NAMES[self as usize]
    }
}

/// One phase's cost.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRecord {
    pub phase: Phase,
    /// Wall time in ns.
    pub elapsed_ns: u64,
    /// What the block device did meanwhile.
    pub device: Option<DeviceDelta>,
    /// CPU time that the whole machine spent meanwhile, in ns: the command's, the kernel's
    /// threads', a user-space file system's and anybody else's.
    pub machine_cpu_ns: Option<u64>,
}

/// Difference of the device's counters over a phase, from `/sys/block/DEVICE/stat`
/// (Documentation/block/stat.rst in the kernel's source).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceDelta {
    /// Read requests completed.
    pub reads: u64,
    pub read_bytes: u64,
    /// Write requests completed.
    pub writes: u64,
    pub written_bytes: u64,
    /// Discard requests completed.
    pub discards: u64,
    pub discarded_bytes: u64,
    /// Flush requests completed.
    pub flushes: u64,
    /// Time during which the device had requests in flight, in ms.
    pub busy_ms: u64,
    /// Sum of the time that requests waited and were served, in ms.
    pub queue_ms: u64,
}

impl DeviceDelta {
    /// Each counter with the other's.
    fn with(self, other: DeviceDelta, how: fn(u64, u64) -> u64) -> DeviceDelta {
        DeviceDelta {
            reads: how(self.reads, other.reads),
            read_bytes: how(self.read_bytes, other.read_bytes),
            writes: how(self.writes, other.writes),
            written_bytes: how(self.written_bytes, other.written_bytes),
            discards: how(self.discards, other.discards),
            discarded_bytes: how(self.discarded_bytes, other.discarded_bytes),
            flushes: how(self.flushes, other.flushes),
            busy_ms: how(self.busy_ms, other.busy_ms),
            queue_ms: how(self.queue_ms, other.queue_ms),
        }
    }
}

impl std::ops::Add for DeviceDelta {
    type Output = DeviceDelta;

    fn add(self, other: DeviceDelta) -> DeviceDelta {
        self.with(other, u64::saturating_add)
    }
}

impl std::ops::Sub for DeviceDelta {
    type Output = DeviceDelta;

    fn sub(self, other: DeviceDelta) -> DeviceDelta {
        self.with(other, u64::saturating_sub)
    }
}

/// What the command and its children cost, from wait4(2) and `/proc/PID/io`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CommandUsage {
    /// Exit code, when it exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it, when one did.
    pub signal: Option<i32>,
    /// CPU time in user mode, in ns.
    pub user_ns: u64,
    /// CPU time in the kernel, in ns.
    pub system_ns: u64,
    /// Resident set of the largest process, in bytes.
    pub memory_bytes_max: u64,
    /// Bytes passed to write calls, pipes included (`wchar`).
    pub write_call_bytes: Option<u64>,
    /// Bytes passed to read calls, pipes included (`rchar`).
    pub read_call_bytes: Option<u64>,
    /// Bytes that the command sent towards storage: pages made dirty, direct writes
    /// (`write_bytes` less `cancelled_write_bytes`).
    pub storage_written_bytes: Option<u64>,
    /// Bytes that the command caused to be fetched from storage (`read_bytes`).
    pub storage_read_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }
}
