//! A backend that fails on purpose: the n-th request, a flush that does nothing, a torn write.
//!
//! The faults are stated when the device is made or armed later; requests are counted from 0 over
//! the life of the device, refused ones included, so a test can count a clean run first and then
//! fail each request in turn.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::BlockDevice;

/// One thing that goes wrong. Requests of each kind are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The read with this number fails with `EIO`.
    FailRead(u64),
    /// The write with this number fails with `EIO` and changes nothing.
    FailWrite(u64),
    /// This write and all that follow fail with `EIO`: the device is gone.
    FailWritesFrom(u64),
    /// The flush with this number fails with `EIO` and makes nothing durable.
    FailFlush(u64),
    /// Every flush returns success and does nothing, as a lying disk does.
    IgnoreFlushes,
    /// Of the write with this number only the first `kept_bytes` arrive; then `EIO`.
    TearWrite {
        /// Number of the write.
        number: u64,
        /// How many bytes arrive, a multiple of the block size.
        kept_bytes: usize,
    },
}

/// A device that passes requests to `inner` unless a [`Fault`] says otherwise.
pub struct FaultyDevice<D> {
    inner: D,
    faults: Mutex<Vec<Fault>>,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

fn input_output_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl<D: BlockDevice> FaultyDevice<D> {
    /// A device with `faults`.
    pub fn new(inner: D, faults: Vec<Fault>) -> Self {
        Self {
            inner,
            faults: Mutex::new(faults),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Replaces the faults; the numbers of requests go on.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        *self.faults.lock().expect("no thread panics while it holds the faults") = faults;
    }

    /// How many reads, writes and flushes were asked so far.
    pub fn request_counts(&self) -> (u64, u64, u64) {
        (
            self.reads.load(Ordering::SeqCst),
            self.writes.load(Ordering::SeqCst),
            self.flushes.load(Ordering::SeqCst),
        )
    }

    fn any(&self, applies: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let faults = self.faults.lock().expect("no thread panics while it holds the faults");
        faults.iter().copied().find(|fault| applies(fault))
    }
}

impl<D: BlockDevice> BlockDevice for FaultyDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let number = self.reads.fetch_add(1, Ordering::SeqCst);
        if self.any(|fault| *fault == Fault::FailRead(number)).is_some() {
            return Err(input_output_error());
        }
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let fault = self.any(|fault| match *fault {
            Fault::FailWrite(at) | Fault::TearWrite { number: at, .. } => at == number,
            Fault::FailWritesFrom(at) => at <= number,
            _ => false,
        });
        match fault {
            None => self.inner.write_at(buffer, offset),
            Some(Fault::TearWrite { kept_bytes, .. }) => {
                self.inner.write_at(&buffer[..kept_bytes.min(buffer.len())], offset)?;
                Err(input_output_error())
            }
            Some(_) => Err(input_output_error()),
        }
    }

    fn writes_at_once(&self) -> bool {
        self.inner.writes_at_once()
    }

    fn flush(&self) -> io::Result<()> {
        let number = self.flushes.fetch_add(1, Ordering::SeqCst);
        match self.any(|fault| {
            matches!(fault, Fault::IgnoreFlushes) || *fault == Fault::FailFlush(number)
        }) {
            None => self.inner.flush(),
            Some(Fault::IgnoreFlushes) => Ok(()),
            Some(_) => Err(input_output_error()),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CountingDevice, MemoryDevice};

    #[test]
    fn the_stated_request_fails_and_no_other() {
        let device = FaultyDevice::new(
            MemoryDevice::new(4096, 512),
            vec![
                Fault::FailWrite(1),
                Fault::TearWrite { number: 2, kept_bytes: 512 },
                Fault::FailRead(1),
                Fault::FailFlush(0),
            ],
        );
        device.write_at(&[1; 1024], 0).unwrap();
        assert_eq!(device.write_at(&[2; 1024], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
        let mut back = [0; 1024];
        device.read_at(&mut back, 0).unwrap();
        assert_eq!(back, [1; 1024]);
        assert!(device.write_at(&[3; 1024], 0).is_err());
        assert!(device.read_at(&mut back, 0).is_err());
        device.read_at(&mut back, 0).unwrap();
        assert_eq!((back[0], back[511], back[512]), (3, 3, 1));
        assert!(device.flush().is_err());
        device.flush().unwrap();
        device.set_faults(vec![Fault::FailWritesFrom(4)]);
        device.write_at(&[4; 512], 0).unwrap();
        assert!(device.write_at(&[4; 512], 0).is_err());
        assert!(device.write_at(&[4; 512], 0).is_err());
        assert_eq!(device.request_counts(), (3, 6, 2));
    }

    #[test]
    fn an_ignored_flush_never_reaches_the_device_beneath() {
        let device = FaultyDevice::new(
            CountingDevice::new(MemoryDevice::new(4096, 512)),
            vec![Fault::IgnoreFlushes],
        );
        device.flush().unwrap();
        assert_eq!(device.inner().counts().flushes, 0);
    }
}
