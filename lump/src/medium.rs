//! The device of an open store, and the permission to write to it.
//!
//! An open store reaches its device only through a [`Medium`]: anyone reads, but writes, flushes and
//! discards are methods of a [`Permit`]. A failed flush, or a failed write of metadata, ends the
//! permission for good, inside the call that failed, so before the thread releases any lock. Every
//! use of a permit checks this again. So a thread that slept after it got its permit, or after it
//! looked at any state, cannot write after a failure: after one, the store no longer knows which of
//! two roots the medium holds, and what looks free may be needed.
//!
//! Knows nothing of what the bytes mean. Invariants: no write, flush or discard begins after a
//! failure has been noted; a flush that returned without error was not preceded by one that failed.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use block::BlockDevice;

use crate::error::{Error, Result};
use crate::layout::Root;
use crate::metrics::{Counters, count};
use crate::store::Sabotage;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, RwLock, lock};

/// What can be read. A device is one, and so is the medium of an open store.
pub(crate) trait Source: Sync {
    /// As [`BlockDevice::read_at`].
    fn read_into(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl<D: BlockDevice + ?Sized> Source for D {
    fn read_into(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        BlockDevice::read_at(self, buffer, offset)
    }
}

impl Source for Medium {
    fn read_into(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read_at(buffer, offset)
    }
}

/// Flushes that run at the same time, each with its number, and who waits for one to end.
#[derive(Default)]
struct UnderWay {
    numbers: Vec<u64>,
    waiting: usize,
}

/// The device of an open store.
pub(crate) struct Medium {
    device: Arc<dyn BlockDevice>,
    sabotage: Sabotage,
    /// Why nothing is written any more.
    refusal: OnceLock<String>,
    /// Held by a flush that runs alone; shared by those that run at the same time.
    flushing: RwLock<()>,
    under_way: Mutex<UnderWay>,
    ended: Condvar,
    /// How many of them have begun.
    begun: AtomicU64,
    /// How long the newest flush took.
    flush_ns: AtomicU64,
    counters: Arc<Counters>,
}

const UNBROKEN: &str = "no thread panics while it flushes";

impl Medium {
    pub fn new(device: Arc<dyn BlockDevice>, counters: Arc<Counters>, sabotage: Sabotage) -> Self {
        Self {
            device,
            sabotage,
            refusal: OnceLock::new(),
            flushing: RwLock::new(()),
            under_way: Mutex::default(),
            ended: Condvar::new(),
            begun: AtomicU64::new(0),
            flush_ns: AtomicU64::new(0),
            counters,
        }
    }

    /// Permission to write, unless it has ended.
    pub fn permit(&self) -> Result<Permit<'_>> {
        self.check()?;
        Ok(Permit(self))
    }

    /// The permission of a checkpoint. Only once the root is locked it says anything: before, another
    /// checkpoint may be about to fail.
    pub fn permit_with(&self, _root: &MutexGuard<'_, Root>) -> Result<Permit<'_>> {
        match self.sabotage {
            Sabotage::CarryOn => Ok(Permit(self)),
            _ => self.permit(),
        }
    }

    fn check(&self) -> Result<()> {
        match self.refusal.get() {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Ends the permission to write; the first reason stays.
    pub fn refuse(&self, why: String) {
        let _ = self.refusal.set(why);
    }

    /// Why nothing is written any more.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// Whether several writes at once take less time than one after the other.
    pub fn writes_at_once(&self) -> bool {
        self.device.writes_at_once()
    }

    /// How long the newest flush took, in nanoseconds.
    pub fn flush_ns(&self) -> u64 {
        self.flush_ns.load(Ordering::Relaxed)
    }

    fn flush_now(&self) -> Result<()> {
        self.check()?;
        if self.sabotage == Sabotage::SkipFlush {
            return Ok(());
        }
        count(&self.counters.flushes, 1);
        let start = Instant::now();
        self.device.flush().map_err(Error::device("flush the device")).inspect_err(|error| {
            self.refuse(error.to_string());
        })?;
        let elapsed = start.elapsed();
        self.flush_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
        self.counters.flush_seconds.record(elapsed);
        Ok(())
    }

    /// Takes a flush out of those under way, and waits for those with numbers up to `last`.
    fn end_flush(&self, number: u64, last: u64) {
        let mut under_way = lock(&self.under_way);
        under_way.numbers.retain(|other| *other != number);
        if under_way.waiting > 0 {
            self.ended.notify_all();
        }
        // They are in ascending order.
        let is_preceded =
            |under_way: &mut UnderWay| under_way.numbers.first().is_some_and(|n| *n <= last);
        if is_preceded(&mut under_way) && self.sabotage != Sabotage::BelieveFlush {
            under_way.waiting += 1;
            let ended = self.ended.wait_while(under_way, is_preceded);
            ended.expect(UNBROKEN).waiting -= 1;
        }
    }
}

/// Permission to write to the medium. It ends when a flush or a write of metadata fails, by whatever
/// thread; each use then returns [`Error::ReadOnly`].
#[derive(Clone, Copy)]
pub(crate) struct Permit<'a>(&'a Medium);

impl Permit<'_> {
    /// Writes the extent of a value; a failure is this put's alone.
    pub fn write_data(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.check()?;
        self.0.device.write_at(bytes, offset).map_err(data_failure(offset))
    }

    /// Writes metadata. A failure ends the permission: nobody knows what the medium holds there.
    pub fn write_metadata(&self, bytes: &[u8], offset: u64, action: &str) -> Result<()> {
        if self.0.sabotage != Sabotage::CarryOn {
            self.0.check()?;
        }
        let outcome = self.0.device.write_at(bytes, offset);
        outcome.map_err(Error::device(action)).inspect_err(|error| self.0.refuse(error.to_string()))
    }

    /// Writes extents of values, and the journal from block `first` on, all at once. A failure of the
    /// journal ends the permission; returns which extents failed.
    pub fn write_with_journal(
        &self,
        data: &[(&[u8], u64)],
        first: u64,
        journal: &[(&[u8], u64)],
    ) -> Result<Vec<(usize, Error)>> {
        self.0.check()?;
        let mut outcomes = self.0.device.write_each(&[data, journal].concat());
        let of_journal = outcomes.split_off(data.len());
        if let Some(source) = of_journal.into_iter().find_map(std::result::Result::err) {
            let failure = Error::device(format!("write the journal from block {first} on"))(source);
            self.0.refuse(failure.to_string());
            return Err(failure);
        }
        let outcomes = outcomes.into_iter().zip(data).enumerate();
        let failures = outcomes.filter_map(|(number, (outcome, (_, offset)))| {
            Some((number, data_failure(*offset)(outcome.err()?)))
        });
        Ok(failures.collect())
    }

    /// Makes every write that completed before durable. Nobody else flushes at the same time: a flush
    /// that failed may have lost any write, and a later one may succeed all the same, so its failure
    /// is noted before another one begins.
    pub fn flush(&self) -> Result<()> {
        let _turn = self.0.flushing.write().expect(UNBROKEN);
        self.0.flush_now()
    }

    /// The same, at the same time as others who call this. It counts only once all flushes that began
    /// before it have ended without a failure: one of these may have lost what this one covers.
    pub fn flush_beside(&self) -> Result<()> {
        let _turn = self.0.flushing.read().expect(UNBROKEN);
        let mut under_way = lock(&self.0.under_way);
        let number = self.0.begun.fetch_add(1, Ordering::SeqCst) + 1;
        under_way.numbers.push(number);
        drop(under_way);
        // Read at the last moment: those who took a number meanwhile may be at the device first.
        let last = self.0.begun.load(Ordering::SeqCst);
        let outcome = self.0.flush_now();
        self.0.end_flush(number, last);
        outcome?;
        match self.0.sabotage {
            Sabotage::BelieveFlush => Ok(()),
            _ => self.0.check(),
        }
    }

    /// Tells the device that bytes are no longer needed.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.0.check()?;
        let outcome = self.0.device.discard(offset, length);
        outcome.map_err(Error::device(format!("trim {length} bytes at byte {offset}")))
    }
}

fn data_failure(offset: u64) -> impl FnOnce(io::Error) -> Error {
    Error::device(format!("write a value to the extent at byte {offset}"))
}
