//! A layer that takes its time: each read, write or flush is answered so much later.
//!
//! A delay is a fixed time, or a share of the time that the layers below took. Requests of several
//! threads are delayed side by side, as by a longer way to the disk, not one after the other.

use std::io;
use std::time::{Duration, Instant};

use crate::{BlockDevice, wait_until};

/// How much longer a request takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// So much.
    Fixed(Duration),
    /// So many times what the layers below took: 0.1 is a tenth more.
    Share(f64),
}

/// The delay of each kind of request; none where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delays {
    /// Of reads.
    pub read: Option<Delay>,
    /// Of writes, of zeros too.
    pub write: Option<Delay>,
    /// Of flushes.
    pub flush: Option<Delay>,
}

/// A device that answers later than `inner`.
pub struct DelayingDevice<D> {
    inner: D,
    delays: Delays,
}

impl<D: BlockDevice> DelayingDevice<D> {
    /// Delays what `inner` answers.
    pub fn new(inner: D, delays: Delays) -> Self {
        Self { inner, delays }
    }

    fn delayed<T>(
        &self,
        delay: Option<Delay>,
        request: impl FnOnce(&D) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(delay) = delay else { return request(&self.inner) };
        let begun = Instant::now();
        let result = request(&self.inner);
        let now = Instant::now();
        wait_until(match delay {
            Delay::Fixed(time) => now + time,
            Delay::Share(share) => now + (now - begun).mul_f64(share),
        });
        result
    }
}

impl<D: BlockDevice> BlockDevice for DelayingDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.delayed(self.delays.read, |inner| inner.read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.delayed(self.delays.write, |inner| inner.write_at(buffer, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.delayed(self.delays.flush, D::flush)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.delayed(self.delays.write, |inner| inner.zero_range(offset, length))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn time(request: impl FnOnce() -> io::Result<()>) -> Duration {
        let begun = Instant::now();
        request().unwrap();
        begun.elapsed()
    }

    #[test]
    fn each_kind_of_request_has_its_own_delay() {
        let fixed = |ms| Some(Delay::Fixed(Duration::from_millis(ms)));
        let delays = Delays { read: fixed(20), write: None, flush: fixed(60) };
        let device = DelayingDevice::new(MemoryDevice::new(8192, 512), delays);
        let read = time(|| device.read_at(&mut [0; 512], 0));
        assert!((20..50).contains(&read.as_millis()), "{read:?}");
        let write = time(|| device.write_at(&[1; 512], 0));
        assert!(write.as_millis() < 10, "{write:?}");
        assert!(time(|| device.flush()).as_millis() >= 60);
        let mut back = [0; 512];
        device.read_at(&mut back, 0).unwrap();
        assert_eq!(back, [1; 512]);
    }

    #[test]
    fn a_share_is_of_the_time_below() {
        let fixed = Delay::Fixed(Duration::from_millis(40));
        let below = Delays { write: Some(fixed), ..Delays::default() };
        let below = DelayingDevice::new(MemoryDevice::new(8192, 512), below);
        let half = Delays { write: Some(Delay::Share(0.5)), ..Delays::default() };
        let device = DelayingDevice::new(below, half);
        let write = time(|| device.write_at(&[1; 512], 0));
        assert!((60..90).contains(&write.as_millis()), "{write:?}");
    }

    #[test]
    fn requests_of_several_threads_are_delayed_side_by_side() {
        let delays =
            Delays { write: Some(Delay::Fixed(Duration::from_millis(50))), ..Delays::default() };
        let device = DelayingDevice::new(MemoryDevice::new(8192, 512), delays);
        let all = time(|| {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| device.write_at(&[1; 512], 0).unwrap());
                }
            });
            Ok(())
        });
        assert!((50..200).contains(&all.as_millis()), "{all:?}");
    }
}
