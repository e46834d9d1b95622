//! The crate's only unsafe code: system calls that no safe library wraps.

pub mod confine;
pub mod extents;
pub mod loop_device;
pub mod namespaces;
pub mod process_clock;
pub mod wait;

pub use namespaces::enter_namespaces;
pub use wait::{own_cpu_ns, wait_with_usage};
