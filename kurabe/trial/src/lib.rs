//! Carries one trial out: device, file system, workload, counters, facts.
//!
//! A trial is a process: it is told everything by a spec and says everything in a record. This
//! crate knows nothing of plans, statistics or reports.

pub mod aged;
pub mod carry;
pub mod command;
pub mod control_group;
pub mod crash;
pub mod device;
pub mod doctor;
pub mod facts;
pub mod filesystem;
pub mod host_proc;
pub mod kernel_log;
pub mod ledger;
mod leftovers;
mod locks;
pub mod lower;
pub mod memory_limit;
pub mod node;
mod nodes;
pub mod process;
pub mod scratch;
pub mod stop;
#[allow(unsafe_code)]
mod sys;
pub use sys::{fail_writes_beyond_the_limit, keep_ended_children};
pub mod tool;
pub mod upper;
pub mod user;
pub mod warm;
pub mod watch;
pub mod workload;
