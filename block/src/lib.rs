//! Positional, thread-safe access to block devices, and the claim on one.
//!
//! Everything below a file system or a store stands behind [`BlockDevice`]: a real device or an
//! image file ([`FileDevice`]), memory ([`MemoryDevice`]), a backend that counts what was asked
//! of it ([`CountingDevice`]), one that fails on purpose ([`FaultyDevice`]) or one that takes its
//! time ([`DelayingDevice`]). A [`Server`] gives a stack of them to the kernel; [`tool`]
//! is what command-line tools share. This crate knows nothing of
//! file systems, stores or the laboratory.

#![warn(missing_docs)]

use std::io;
use std::sync::Arc;

// The tests inside and outside of the crate share their helpers.
#[cfg(test)]
extern crate self as block;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod aligned;
pub mod claim;
mod counting;
mod delaying;
pub mod destination;
mod faulty;
mod file;
mod memory;
pub mod node;
mod server;
#[allow(unsafe_code)]
mod sys;
pub mod tool;
mod turns;

pub use aligned::{ALIGNMENT, AlignedBuffer, is_aligned};
pub use counting::{CountingDevice, Counts};
pub use delaying::{Delay, DelayingDevice, Delays};
pub use faulty::{Fault, FaultyDevice};
pub use file::{DirectAccess, FileDevice, FileDeviceOptions};
pub use memory::MemoryDevice;
pub use server::Server;
pub use sys::{LoopStatus, fill_words, loop_status, mix, remove_loop, word_at};
pub use turns::{wait_until, waiting};

/// A device of `len` bytes, read and written at offsets from many threads at once.
///
/// Offsets and lengths are bytes and multiples of [`BlockDevice::block_size`]; an access beyond
/// the end is an error, never a short transfer. A completed write is durable only once a
/// [`BlockDevice::flush`] that began after it has returned.
pub trait BlockDevice: Send + Sync {
    /// Size of the device in bytes, a multiple of the block size.
    fn len(&self) -> u64;

    /// Whether the device holds no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical block size in bytes, a power of two: what offsets and lengths are multiples of.
    fn block_size(&self) -> u32;

    /// Fills `buffer` from the bytes at `offset`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes the whole of `buffer` at `offset`; not durable before the next flush.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Writes several buffers, each at its offset, and gives each one's outcome. They may be in
    /// flight at once, arrive in any order, and must not overlap.
    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        writes.iter().map(|(bytes, offset)| self.write_at(bytes, *offset)).collect()
    }

    /// Whether [`BlockDevice::write_each`] takes less time than one write after the other.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// Makes every write that completed before the call durable.
    fn flush(&self) -> io::Result<()>;

    /// Whether several flushes at once take about as long as one.
    fn merges_flushes(&self) -> bool {
        false
    }

    /// Tells the device that `length` bytes at `offset` are no longer needed. What a later read
    /// of them returns is undefined. A device that cannot discard does nothing.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes `length` bytes at `offset` read as zeros; not durable before the next flush.
    ///
    /// A device may do this without a transfer and may unmap the space, so a later write there
    /// can pay for it. Where that matters, write zeros instead.
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        write_zeros(self, offset, length)
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// Writes `length` zero bytes at `offset` in transfers of at most 1 MiB, as any other data.
pub fn write_zeros<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    const TRANSFER_BYTES: u64 = 1 << 20;
    check_range(device.len(), device.block_size(), offset, length)?;
    let zeros = AlignedBuffer::zeroed(length.min(TRANSFER_BYTES) as usize);
    let mut done = 0;
    while done < length {
        let step = (length - done).min(TRANSFER_BYTES);
        device.write_at(&zeros[..step as usize], offset + done)?;
        done += step;
    }
    Ok(())
}

/// Refuses an access that is not whole blocks or that leaves the device; every backend calls it.
pub(crate) fn check_range(
    device_length: u64,
    block_size: u32,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let block_size = u64::from(block_size);
    if !offset.is_multiple_of(block_size) || !length.is_multiple_of(block_size) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "an access of {length} bytes at offset {offset} is not whole blocks of {block_size} bytes"
            ),
        ));
    }
    match offset.checked_add(length) {
        Some(end) if end <= device_length => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "an access of {length} bytes at offset {offset} leaves the device of {device_length} bytes"
            ),
        )),
    }
}

macro_rules! forward_to_the_pointee {
    ($pointer:ty) => {
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn len(&self) -> u64 {
                (**self).len()
            }
            fn block_size(&self) -> u32 {
                (**self).block_size()
            }
            fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_at(buffer, offset)
            }
            fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
                (**self).write_at(buffer, offset)
            }
            fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
                (**self).write_each(writes)
            }
            fn writes_at_once(&self) -> bool {
                (**self).writes_at_once()
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn merges_flushes(&self) -> bool {
                (**self).merges_flushes()
            }
            fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
                (**self).discard(offset, length)
            }
            fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
                (**self).zero_range(offset, length)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
        }
    };
}

forward_to_the_pointee!(Arc<D>);
forward_to_the_pointee!(Box<D>);
forward_to_the_pointee!(&D);
