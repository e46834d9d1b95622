//! A device in memory, for tests and models.
//!
//! The bytes lie in chunks that are allocated when first written, so that a huge, mostly empty
//! device costs little, and locked one by one, so that threads meet only in one chunk. An access
//! across chunks is atomic in each chunk only, as on a real device in each sector only. Flush
//! does nothing: to learn what a crash leaves, the crate `crash` has a recorder to put around this one.

use std::io;
use std::sync::RwLock;

use crate::{BlockDevice, check_range};

const CHUNK_BYTES: u64 = 256 << 10;

/// A device whose bytes are in memory; unwritten bytes are zero.
pub struct MemoryDevice {
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
    length: u64,
    block_size: u32,
}

impl MemoryDevice {
    /// A device of `length` zero bytes with blocks of `block_size` bytes.
    ///
    /// # Panics
    ///
    /// When the block size is no power of two of at most 256 KiB or does not divide the length.
    pub fn new(length: u64, block_size: u32) -> Self {
        assert!(block_size.is_power_of_two() && u64::from(block_size) <= CHUNK_BYTES);
        assert!(length.is_multiple_of(u64::from(block_size)));
        let chunks = (0..length.div_ceil(CHUNK_BYTES)).map(|_| RwLock::new(None)).collect();
        Self { chunks, length, block_size }
    }

    /// A device that holds a copy of `image`, whose length the block size must divide.
    pub fn from_image(image: &[u8], block_size: u32) -> Self {
        let device = Self::new(image.len() as u64, block_size);
        for (chunk, bytes) in device.chunks.iter().zip(image.chunks(CHUNK_BYTES as usize)) {
            if bytes.iter().any(|byte| *byte != 0) {
                let mut whole = vec![0; CHUNK_BYTES as usize].into_boxed_slice();
                whole[..bytes.len()].copy_from_slice(bytes);
                *chunk.write().expect("no thread panics while it holds a chunk") = Some(whole);
            }
        }
        device
    }

    /// A copy of all bytes.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; usize::try_from(self.length).expect("the device fits in memory")];
        self.read_at(&mut image, 0).expect("the whole device is a valid range");
        image
    }

    /// Calls `visit` with each chunk that the range touches, the range in the chunk, and the
    /// range in the caller's buffer.
    fn for_each_part(
        &self,
        offset: u64,
        length: usize,
        mut visit: impl FnMut(
            &RwLock<Option<Box<[u8]>>>,
            std::ops::Range<usize>,
            std::ops::Range<usize>,
        ),
    ) {
        let mut done = 0;
        while done < length {
            let position = offset + done as u64;
            let start = (position % CHUNK_BYTES) as usize;
            let step = (CHUNK_BYTES as usize - start).min(length - done);
            let chunk = &self.chunks[(position / CHUNK_BYTES) as usize];
            visit(chunk, start..start + step, done..done + step);
            done += step;
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        check_range(self.length, self.block_size, offset, buffer.len() as u64)?;
        self.for_each_part(offset, buffer.len(), |chunk, inside, outside| {
            match &*chunk.read().expect("no thread panics while it holds a chunk") {
                Some(bytes) => buffer[outside].copy_from_slice(&bytes[inside]),
                None => buffer[outside].fill(0),
            }
        });
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        check_range(self.length, self.block_size, offset, buffer.len() as u64)?;
        self.for_each_part(offset, buffer.len(), |chunk, inside, outside| {
            chunk
                .write()
                .expect("no thread panics while it holds a chunk")
                .get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into_boxed_slice())[inside]
                .copy_from_slice(&buffer[outside]);
        });
        Ok(())
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Leaves the bytes as they are: a reader who relies on zeros after a discard shall fail.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        check_range(self.length, self.block_size, offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        check_range(self.length, self.block_size, offset, length)?;
        self.for_each_part(offset, length as usize, |chunk, inside, _| {
            if let Some(bytes) =
                &mut *chunk.write().expect("no thread panics while it holds a chunk")
            {
                bytes[inside].fill(0);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_chunks() {
        let device = MemoryDevice::new(4 * CHUNK_BYTES, 512);
        let data: Vec<u8> = (0..CHUNK_BYTES as usize + 1024).map(|index| index as u8).collect();
        device.write_at(&data, CHUNK_BYTES - 512).unwrap();
        let mut back = vec![1; data.len() + 1024];
        device.read_at(&mut back, CHUNK_BYTES - 1024).unwrap();
        assert_eq!(back[..512], [0; 512]);
        assert_eq!(back[512..512 + data.len()], data);
        assert_eq!(MemoryDevice::from_image(&device.image(), 512).image(), device.image());
        device.zero_range(CHUNK_BYTES, CHUNK_BYTES).unwrap();
        device.read_at(&mut back[..512], CHUNK_BYTES).unwrap();
        assert_eq!(back[..512], [0; 512]);
    }

    #[test]
    fn an_access_outside_or_across_blocks_is_an_error() {
        let device = MemoryDevice::new(8192, 512);
        for (offset, length) in
            [(8192, 512), (7680, 1024), (1, 512), (0, 100), (u64::MAX - 511, 512)]
        {
            assert!(device.read_at(&mut vec![0; length], offset).is_err(), "{offset} {length}");
            assert!(device.write_at(&vec![0; length], offset).is_err(), "{offset} {length}");
        }
    }

    #[test]
    fn a_huge_device_costs_only_what_was_written() {
        let device = MemoryDevice::new(1 << 40, 4096);
        device.write_at(&[9; 4096], (1 << 40) - 4096).unwrap();
        let mut back = [0; 4096];
        device.read_at(&mut back, (1 << 40) - 4096).unwrap();
        assert_eq!(back, [9; 4096]);
    }
}
