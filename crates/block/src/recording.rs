//! A backend that counts and, when asked, logs everything that passes through it.
//!
//! The counts answer "how many writes and flushes did this operation cost"; the log, with
//! [`crate::crash`], answers "which images could a power cut leave". Failed requests are neither
//! counted nor logged. Invariant: a flush in the log covers exactly the events that had completed
//! when it began.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::BlockDevice;

/// One thing that was asked of the device, in order of completion.
#[derive(Clone, Debug)]
pub enum Event {
    /// `bytes` were written at `offset`.
    Write {
        /// Where on the device, in bytes.
        offset: u64,
        /// What was written.
        bytes: Arc<[u8]>,
    },
    /// The `length` bytes at `offset` were discarded.
    Discard {
        /// Where on the device, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// A flush returned; it covers the first `covered` events of the log.
    Flush {
        /// How many events had completed when the flush began.
        covered: usize,
    },
    /// The user of the device noted a point of its own (see [`RecordingDevice::mark`]).
    Mark(u64),
}

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

#[derive(Default)]
struct Recording {
    counts: Counts,
    events: Vec<Event>,
}

/// A device that passes every request to `inner` and remembers it.
pub struct RecordingDevice<D> {
    inner: D,
    keeps_events: bool,
    recording: Mutex<Recording>,
}

impl<D: BlockDevice> RecordingDevice<D> {
    /// Records counts and events, with a copy of all data written.
    pub fn new(inner: D) -> Self {
        Self { inner, keeps_events: true, recording: Mutex::default() }
    }

    /// Records counts only, at no cost in memory.
    pub fn counting(inner: D) -> Self {
        Self { inner, keeps_events: false, recording: Mutex::default() }
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// What was counted since the start or the last [`Self::take_counts`].
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Returns the counts and starts them anew.
    pub fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.lock().counts)
    }

    /// A copy of the log; the data in it is shared, not copied.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// How many events the log holds.
    pub fn event_count(&self) -> usize {
        self.lock().events.len()
    }

    /// Notes `label` in the log, to tell later which operations had been acknowledged by then.
    pub fn mark(&self, label: u64) {
        self.note(|_| {}, || Event::Mark(label));
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().expect("no thread panics while it holds the recording")
    }

    fn note_write(&self, bytes: &[u8], offset: u64) {
        self.note(
            |counts| {
                counts.writes += 1;
                counts.written_bytes += bytes.len() as u64;
            },
            || Event::Write { offset, bytes: bytes.into() },
        );
    }

    fn note(&self, count: impl FnOnce(&mut Counts), event: impl FnOnce() -> Event) {
        let event = self.keeps_events.then(event);
        let mut recording = self.lock();
        count(&mut recording.counts);
        recording.events.extend(event);
    }
}

impl<D: BlockDevice> BlockDevice for RecordingDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)?;
        let mut recording = self.lock();
        recording.counts.reads += 1;
        recording.counts.read_bytes += buffer.len() as u64;
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)?;
        self.note_write(buffer, offset);
        Ok(())
    }

    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        let outcomes = self.inner.write_each(writes);
        for ((bytes, offset), _) in writes.iter().zip(&outcomes).filter(|(_, done)| done.is_ok()) {
            self.note_write(bytes, *offset);
        }
        outcomes
    }

    fn writes_at_once(&self) -> bool {
        self.inner.writes_at_once()
    }

    fn flush(&self) -> io::Result<()> {
        let covered = self.event_count();
        self.inner.flush()?;
        self.note(|counts| counts.flushes += 1, || Event::Flush { covered });
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)?;
        self.note(
            |counts| {
                counts.discards += 1;
                counts.discarded_bytes += length;
            },
            || Event::Discard { offset, length },
        );
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.zero_range(offset, length)?;
        self.note(
            |counts| {
                counts.writes += 1;
                counts.written_bytes += length;
            },
            || Event::Write { offset, bytes: vec![0; length as usize].into() },
        );
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
    fn requests_are_counted_and_logged_in_order() {
        let device = RecordingDevice::new(MemoryDevice::new(8192, 512));
        device.write_at(&[1; 1024], 512).unwrap();
        device.flush().unwrap();
        device.mark(7);
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
        let events = device.events();
        assert!(matches!(&events[0], Event::Write { offset: 512, bytes } if bytes.len() == 1024));
        assert!(matches!(events[1], Event::Flush { covered: 1 }));
        assert!(matches!(events[2], Event::Mark(7)));
        assert!(matches!(events[3], Event::Discard { offset: 0, length: 512 }));
        assert_eq!(events.len(), 4);
    }
}
