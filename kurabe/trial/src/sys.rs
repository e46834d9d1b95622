//! The crate's only unsafe code: system calls that no safe library wraps.

pub mod confine;
pub mod descriptors;
pub mod loop_device;
pub mod namespaces;
pub mod network;
pub mod pages;
pub mod priority;
pub mod process_clock;
pub mod wait;

pub use descriptors::keep_descriptors_from_children;
pub use namespaces::{enter_mount_namespace, enter_namespaces};
pub use wait::{fail_writes_beyond_the_limit, keep_ended_children, wait_with_usage};
