//! The claim on a real block device: what must be known and granted before a byte of it is
//! overwritten.

pub mod mounts;
