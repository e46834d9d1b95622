//! Models of disks: what a request would have cost on another disk.
//!
//! A [`DiskModel`] has no clock. It is told when requests arrive, says when it wants to be woken, and
//! fixes the time of each reply as soon as it is known. The same requests at the same times give the
//! same replies, bit for bit: everything random comes from a seed. [`Emulated`] drives a model by the
//! real clock under any block device, [`replay`] by the times of a [`trace`].
//!
//! Times are nanoseconds since the disk was switched on, offsets and lengths are bytes. The equations
//! and where their parameters come from: `docs/reference/disk-models.md`. Knows nothing of file
//! systems and of the laboratory.

use std::ops::Range;

mod cloud;
mod emulated;
mod extents;
pub mod fit;
mod flash;
mod hard;
mod models;
mod picture;
pub mod profile;
pub mod random;
pub mod replay;
#[allow(unsafe_code)]
mod sys;
pub mod trace;
mod tracer;
pub mod virtual_host;

pub use emulated::{Emulated, LATE_NS, ReplyLateness};
pub use profile::{DiskKind, DiskProfile, DiskSlice, ProfileError};
pub use tracer::{Traced, Tracer};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskOperation {
    Read,
    /// Bytes to keep.
    Write,
    /// Everything that was acknowledged to be durable.
    Flush,
    /// Nothing more than to forget.
    Discard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRequest {
    pub operation: DiskOperation,
    /// Where on the slice it begins, in bytes; 0 for a flush.
    pub offset: u64,
    /// How many bytes; 0 for a flush.
    pub length: u64,
}

impl ModelRequest {
    pub fn read(offset: u64, length: u64) -> ModelRequest {
        ModelRequest { operation: DiskOperation::Read, offset, length }
    }

    pub fn write(offset: u64, length: u64) -> ModelRequest {
        ModelRequest { operation: DiskOperation::Write, offset, length }
    }

    pub fn flush() -> ModelRequest {
        ModelRequest { operation: DiskOperation::Flush, offset: 0, length: 0 }
    }

    pub fn discard(offset: u64, length: u64) -> ModelRequest {
        ModelRequest { operation: DiskOperation::Discard, offset, length }
    }

    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// When a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskReply {
    /// The request's number.
    pub id: u64,
    /// The time, which is final and may lie ahead.
    pub at_ns: u64,
}

/// A part of the cache that was written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destaged {
    /// When the bytes were taken.
    pub began_ns: u64,
    /// When they were durable.
    pub ended_ns: u64,
    /// Which bytes.
    pub range: Range<u64>,
}

/// A disk in virtual time.
pub trait DiskModel: Send {
    /// A request arrives, no earlier than anything that the disk was told before.
    fn arrive(&mut self, at_ns: u64, id: u64, request: ModelRequest);

    /// When something is due that could fix replies or change their order, if nothing else arrives.
    fn next_event(&self) -> Option<u64>;

    /// Carries out everything that is due until then.
    fn advance(&mut self, to_ns: u64);

    /// The next reply whose time is fixed, in the order in which that happened.
    fn reply(&mut self) -> Option<DiskReply>;

    /// What it has taken from its cache to where it is durable, the next of it in the order in which that began. A disk
    /// that does not say so has nothing.
    fn destaged(&mut self) -> Option<Destaged> {
        None
    }

    /// Bytes that were acknowledged and would be lost with the power.
    fn volatile_bytes(&self) -> u64;

    /// Counters of the model, each with its name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Milliseconds in nanoseconds.
fn ms(value: f64) -> u64 {
    (value * 1e6).round() as u64
}

/// How long a number of bytes takes at a rate in MB/s (10^6 bytes), in ns.
fn transfer_ns(bytes: u64, rate_mb_s: f64) -> u64 {
    (bytes as f64 * 1e3 / rate_mb_s).round() as u64
}
