//! The crate's only unsafe code: system calls that no safe library wraps.

pub mod wait;

pub use wait::wait_with_usage;
