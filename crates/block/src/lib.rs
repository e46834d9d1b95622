//! Positional, thread-safe access to block devices, and the claim on one.
//!
//! Everything below a file system or a store stands behind [`BlockDevice`]: a real device, an
//! image file, memory, a recording or a faulty backend. This crate knows nothing of file systems,
//! stores or the laboratory.

use std::io;

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

    /// Makes every write that completed before the call durable.
    fn flush(&self) -> io::Result<()>;

    /// Tells the device that `length` bytes at `offset` are no longer needed. What a later read
    /// of them returns is undefined. A device that cannot discard does nothing.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}
