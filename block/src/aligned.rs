//! Memory that a direct transfer accepts.
//!
//! Direct I/O wants buffers at the alignment of the device; [`ALIGNMENT`] suits every device that
//! Linux drives with pages of 4 KiB. Knows nothing of devices.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::sys::AlignedMemory;

/// Alignment of every [`AlignedBuffer`] in bytes: a page.
pub const ALIGNMENT: usize = 4096;

/// A fixed number of bytes that start at a multiple of [`ALIGNMENT`]; zero when made.
pub struct AlignedBuffer {
    memory: AlignedMemory,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self { memory: AlignedMemory::zeroed(length, ALIGNMENT), length }
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copied_from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.bytes(self.length)
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut(self.length)
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        Self::copied_from(self)
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.length)
    }
}

/// Whether direct I/O takes `bytes` as they lie, for a device that wants `alignment`.
pub fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(alignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_at_the_alignment_and_start_as_zeros() {
        for length in [0, 1, 511, 4096, 40_000, 70_001, 600_000, (1 << 20) + 4096, 8 << 20] {
            let mut buffer = AlignedBuffer::zeroed(length);
            assert_eq!(buffer.len(), length);
            assert!(is_aligned(&buffer, ALIGNMENT));
            assert!(length < 8 << 20 || is_aligned(&buffer, 2 << 20), "huge pages hold it");
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert_eq!(*buffer.clone(), *vec![7; length]);
        }
    }
}
