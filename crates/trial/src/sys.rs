//! The crate's only unsafe code: system calls that no safe library wraps.

pub mod loop_device;
pub mod wait;

pub use wait::wait_with_usage;
