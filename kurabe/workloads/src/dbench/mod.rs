//! dbench twice: the installed tool, and a replay of its load files that has percentiles.
//!
//! [`real`] runs the tool and reads what it prints. [`replay()`] carries the same load file out
//! with the same system calls ([`client`]), because dbench itself reports only the average and
//! the maximum of a latency. [`drift`] says from the series of either whether the throughput
//! drifted and which counter accounts for it. Knows a directory; nothing of contenders.
//!
//! What an operation does, call by call, and where the two differ: docs/reference/dbench-replay.md.

pub mod client;
pub mod counters;
pub mod drift;
pub mod durable;
mod line;
pub mod loadfile;
mod monitor;
pub mod real;
pub mod replay;
mod space;

pub use loadfile::{LoadFile, OperationKind};
pub use replay::{DbenchReplay, ReplayPhase, ReplayReport, replay};

/// Where Debian's package `dbench` puts the load file.
pub const PACKAGED_LOAD_FILE: &str = "/usr/share/dbench/client.txt";

/// How long dbench 4.0 warms up before it counts for so many seconds: a fifth of them, in whole
/// seconds, so that less than five have no warm-up.
pub fn warmup_seconds(counted_seconds: u32) -> u32 {
    counted_seconds / 5
}
