//! The device of a mounted volume: the only way in which it is written, flushed and discarded.
//!
//! A thread that waits for a lock, a flush or space may have checked before that the volume can be
//! written, and another thread's flush may fail meanwhile. So such a check is worth nothing here:
//! each write checks again, right at the device, and what may only follow a flush needs a
//! [`Flushed`], which only a flush that succeeded returns. Knows nothing of records or files.

use std::io;
use std::sync::Arc;

use block::BlockDevice;

use crate::error::{Error, Result};
use crate::flushes::{FlushMark, Flushed, Flushes};
use crate::shared::NOT_POISONED;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::volume::Sabotage;

pub(crate) struct Medium {
    device: Arc<dyn BlockDevice>,
    flushes: Flushes,
    is_read_only: AtomicBool,
    /// An error of the device made it so.
    has_failed: AtomicBool,
    reason: Mutex<String>,
    sabotage: Sabotage,
}

impl Medium {
    /// With a reason, nothing is written.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        read_only_reason: &str,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            device,
            flushes: Flushes::default(),
            is_read_only: AtomicBool::new(!read_only_reason.is_empty()),
            has_failed: AtomicBool::new(false),
            reason: Mutex::new(read_only_reason.to_string()),
            sabotage,
        }
    }

    /// Why nothing may be written; empty if something may.
    pub(crate) fn reason(&self) -> String {
        self.reason.lock().expect(NOT_POISONED).clone()
    }

    /// Refuses if nothing may be written. A courtesy to the caller, who then need not begin: the
    /// check that counts is that of the write itself.
    #[inline]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Acquire) { Err(self.refused()) } else { Ok(()) }
    }

    #[cold]
    fn refused(&self) -> Error {
        Error::ReadOnly(self.reason())
    }

    /// Whether there is nothing to sync and never was: mounted read-only, or unmounted.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire) && !self.has_failed.load(Ordering::Acquire)
    }

    /// Refuses every later write, for a reason that is no failure.
    pub(crate) fn close(&self, why: &str) {
        let mut reason = self.reason.lock().expect(NOT_POISONED);
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            *reason = why.into();
        }
    }

    /// Refuses every later write because of `error`, and returns it.
    #[cold]
    fn fail(&self, error: Error) -> Error {
        if self.sabotage == Sabotage::GoOnAfterFailure {
            return error;
        }
        let mut reason = self.reason.lock().expect(NOT_POISONED);
        self.has_failed.store(true, Ordering::Release);
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            *reason = format!("it stopped writing because: {error}");
        }
        error
    }

    /// Reads whole blocks. In line, as is `write`: after a system call the processor has forgotten
    /// where functions return to, so each one in between costs a small request of many threads some
    /// tenths of a per cent.
    #[inline(always)]
    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let length = buffer.len();
        self.device.read_at(buffer, at).map_err(|source| failed("read", length, at, source))
    }

    /// Writes whole blocks; an error of the device ends all writing.
    #[inline(always)]
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.writable()?;
        self.device
            .write_at(bytes, at)
            .map_err(|source| self.fail(failed("write", bytes.len(), at, source)))
    }

    /// [`Medium::write`] of several, which the device may carry out at once.
    pub(crate) fn write_each(&self, writes: &[(&[u8], u64)]) -> Result<Vec<Result<()>>> {
        self.writable()?;
        let outcomes = self.device.write_each(writes);
        let told = |(outcome, (bytes, at)): (io::Result<()>, &(&[u8], u64))| {
            outcome.map_err(|source| self.fail(failed("write", bytes.len(), *at, source)))
        };
        Ok(outcomes.into_iter().zip(writes).map(told).collect())
    }

    /// Whether the device carries several writes out at once.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.device.writes_at_once()
    }

    /// Tells the device that a range is free. A hint: a device that fails it has lost nothing.
    pub(crate) fn discard(&self, offset: u64, length: u64) {
        if self.writable().is_ok() {
            let _ = self.device.discard(offset, length);
        }
    }

    /// Taken after a write: a later flush that covers the mark covers the write.
    pub(crate) fn mark(&self) -> FlushMark {
        self.flushes.mark()
    }

    /// Makes all completed writes durable; after a failure nothing is known of them.
    pub(crate) fn flush(&self) -> Result<Flushed> {
        self.flush_since(self.mark())
    }

    /// Flushes, unless a flush that began after `mark` has succeeded meanwhile.
    pub(crate) fn flush_since(&self, mark: FlushMark) -> Result<Flushed> {
        if self.sabotage == Sabotage::SkipFlush {
            return Ok(Flushed::only_claimed());
        }
        self.flushes.since(mark, || {
            // After a flush that failed the next one would succeed and mean nothing.
            self.writable()?;
            self.device.flush().map_err(|source| {
                self.fail(Error::Device { action: "flush the device".into(), source })
            })
        })
    }

    /// For a mount that writes nothing: what it shows must not be lost to a later power cut only
    /// because a killed process had left it in the device's cache. A device that fails it may be one
    /// that is being rescued, and is read all the same.
    pub(crate) fn flush_what_was_read(&self) {
        let _ = self.device.flush();
    }
}

#[cold]
fn failed(verb: &str, length: usize, at: u64, source: io::Error) -> Error {
    Error::Device { action: format!("{verb} {length} bytes at offset {at}"), source }
}
