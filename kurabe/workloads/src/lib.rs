//! The workload generators that kurabe writes itself, and the recorder of latencies that they share.
//!
//! A workload works on a directory, a file or a [`block::BlockDevice`] that it is given. It knows
//! nothing of contenders, of how the file system under it was made, of statistics or of the
//! laboratory that runs it.

pub mod age;
pub mod bonnie;
pub mod coherence;
pub mod counters;
pub mod dbench;
pub mod enclosure;
mod excluded_phase;
pub mod fio;
pub mod kind;
mod mariadb;
mod postgres;
pub mod programs;
mod server;
#[allow(unsafe_code)]
mod sys;
pub mod tool;
pub mod tree;

pub use kind::KINDS;
pub use objects::store::{self, StoreKind};
pub use objects::{DOES_NOT_FIT, IS_FULL};

pub use sys::enclosed::{Enclosing, ParentProcess};
pub use sys::{extents, keys};
