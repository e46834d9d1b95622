//! A backend that counts what passes through it: how many writes and flushes an operation costs. Failed requests
//! are not counted.

use std::io;
use std::sync::{Mutex, MutexGuard};

use crate::BlockDevice;

/// How often, and for how many bytes, each request succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, zeroed ranges among them.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
}

/// A device that passes every request to `inner` and counts it.
pub struct CountingDevice<D> {
    inner: D,
    counts: Mutex<Counts>,
}

impl<D: BlockDevice> CountingDevice<D> {
    /// Counts what reaches `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner, counts: Mutex::default() }
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// What was counted since the start or the last [`Self::take_counts`].
    pub fn counts(&self) -> Counts {
        *self.lock()
    }

    /// Returns the counts and starts them anew.
    pub fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no thread panics while it counts")
    }

    fn count_write(&self, bytes: u64) {
        let mut counts = self.lock();
        counts.writes += 1;
        counts.written_bytes += bytes;
    }
}

impl<D: BlockDevice> BlockDevice for CountingDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)?;
        let mut counts = self.lock();
        counts.reads += 1;
        counts.read_bytes += buffer.len() as u64;
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)?;
        self.count_write(buffer.len() as u64);
        Ok(())
    }

    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        let outcomes = self.inner.write_each(writes);
        for ((bytes, _), _) in writes.iter().zip(&outcomes).filter(|(_, done)| done.is_ok()) {
            self.count_write(bytes.len() as u64);
        }
        outcomes
    }

    fn writes_at_once(&self) -> bool {
        self.inner.writes_at_once()
    }

    fn merges_flushes(&self) -> bool {
        self.inner.merges_flushes()
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.lock().flushes += 1;
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)?;
        let mut counts = self.lock();
        counts.discards += 1;
        counts.discarded_bytes += length;
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.zero_range(offset, length)?;
        self.count_write(length);
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn requests_that_succeed_are_counted() {
        let device = CountingDevice::new(MemoryDevice::new(8192, 512));
        device.write_at(&[1; 1024], 512).unwrap();
        device.flush().unwrap();
        device.discard(0, 512).unwrap();
        device.read_at(&mut [0; 512], 0).unwrap();
        assert!(device.write_at(&[1; 512], 8192).is_err());
        let counts = device.take_counts();
        let expected = Counts {
            reads: 1,
            read_bytes: 512,
            writes: 1,
            written_bytes: 1024,
            flushes: 1,
            discards: 1,
            discarded_bytes: 512,
        };
        assert_eq!(counts, expected);
        assert_eq!(device.counts(), Counts::default());
    }
}
