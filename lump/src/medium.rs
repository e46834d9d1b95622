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

use crate::data::Data;
use crate::error::{Error, Result};
use crate::layout::Root;
use crate::metrics::{Counters, count};
use crate::sabotage::Sabotage;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard, lock};

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

/// Flushes are issued one after the other, each for all who waited when it began.
#[derive(Default)]
struct Flushes {
    is_under_way: bool,
    /// Those who came since the newest flush began, in that order: it may not cover their writes.
    waiting: Vec<Arc<Waiter>>,
}

/// A thread that waits for the next flush.
struct Waiter {
    thread: Thread,
    call: Mutex<Option<Call>>,
}

/// What a waiting thread is told.
enum Call {
    /// To issue the next flush, for all who wait then.
    Flush,
    /// Whether the flush that was issued for it succeeded.
    Ended(bool),
}

impl Waiter {
    fn wait(&self) -> Call {
        loop {
            if let Some(call) = lock(&self.call).take() {
                return call;
            }
            thread::park();
        }
    }

    fn tell(&self, call: Call) {
        *lock(&self.call) = Some(call);
        self.thread.unpark();
    }
}

/// The device of an open store.
pub(crate) struct Medium {
    device: Arc<dyn BlockDevice>,
    sabotage: Sabotage,
    /// Why nothing is written any more.
    refusal: OnceLock<String>,
    flushes: Mutex<Flushes>,
    /// How long the newest flush took.
    flush_ns: AtomicU64,
    counters: Arc<Counters>,
}

impl Medium {
    pub fn new(device: Arc<dyn BlockDevice>, counters: Arc<Counters>, sabotage: Sabotage) -> Self {
        Self {
            device,
            sabotage,
            refusal: OnceLock::new(),
            flushes: Mutex::default(),
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
}

/// Permission to write to the medium. It ends when a flush or a write of metadata fails, by whatever
/// thread; each use then returns [`Error::ReadOnly`].
#[derive(Clone, Copy)]
pub(crate) struct Permit<'a>(&'a Medium);

impl Permit<'_> {
    /// Writes extents of values, all at once; a failure is that of their puts alone.
    pub fn write_data(&self, data: &Data) -> Result<()> {
        self.write_values(&data.writes().collect::<Vec<_>>())
    }

    /// As [`Permit::write_data`], of parts of them.
    pub fn write_values(&self, writes: &[(&[u8], u64)]) -> Result<()> {
        self.0.check()?;
        if let [(bytes, offset)] = *writes {
            return self.0.device.write_at(bytes, offset).map_err(data_failure(offset));
        }
        let mut outcomes = self.0.device.write_each(writes).into_iter().zip(writes);
        outcomes.try_for_each(|(outcome, (_, offset))| outcome.map_err(data_failure(*offset)))
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

    /// Makes every write that completed before durable, by one flush for all who wait for one. No two
    /// flushes run at the same time: one that fails may have lost any write, and a later one may
    /// succeed all the same, so the failure is noted before another one begins.
    pub fn flush(&self) -> Result<()> {
        let mut flushes = lock(&self.0.flushes);
        if flushes.is_under_way {
            let waiter = Arc::new(Waiter { thread: thread::current(), call: Mutex::new(None) });
            flushes.waiting.push(waiter.clone());
            drop(flushes);
            if let Call::Ended(is_good) = waiter.wait() {
                // A failed one has ended the permission.
                return if is_good { Ok(()) } else { self.0.check() };
            }
            flushes = lock(&self.0.flushes);
        }
        flushes.is_under_way = true;
        let sharers = std::mem::take(&mut flushes.waiting);
        drop(flushes);
        let outcome = self.0.flush_now();
        let mut flushes = lock(&self.0.flushes);
        flushes.is_under_way = !flushes.waiting.is_empty();
        // The next flush begins before those who shared this one go on.
        if flushes.is_under_way {
            flushes.waiting.remove(0).tell(Call::Flush);
        }
        drop(flushes);
        let is_good = outcome.is_ok() || self.0.sabotage == Sabotage::BelieveFlush;
        sharers.iter().for_each(|sharer| sharer.tell(Call::Ended(is_good)));
        outcome
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use block::MemoryDevice;

    use super::*;

    /// A device whose flushes announce themselves and end as a test says.
    struct Held {
        inner: MemoryDevice,
        begun: Sender<()>,
        ends: Mutex<Receiver<bool>>,
    }

    impl BlockDevice for Held {
        fn len(&self) -> u64 {
            self.inner.len()
        }
        fn block_size(&self) -> u32 {
            self.inner.block_size()
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.inner.read_at(buffer, offset)
        }
        fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
            self.inner.write_at(buffer, offset)
        }
        fn flush(&self) -> io::Result<()> {
            self.begun.send(()).unwrap();
            match lock(&self.ends).recv() {
                Ok(true) => Ok(()),
                _ => Err(io::Error::other("on purpose")),
            }
        }
        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the flush of one thread returned, and those of two that asked while it was at the device.
    /// `ends` says how the first flush at the device ends, and the second if there is one.
    fn flush_thrice(sabotage: Sabotage, ends: &[bool]) -> (Result<()>, [Result<()>; 2]) {
        let (begun, begins) = channel();
        let (end, ended) = channel();
        let device = Held { inner: MemoryDevice::new(4096, 512), begun, ends: Mutex::new(ended) };
        let counters = Arc::new(Counters::new(uuid::Uuid::nil()));
        let medium = Medium::new(Arc::new(device), counters, sabotage);
        let permit = medium.permit().unwrap();
        std::thread::scope(|scope| {
            let flush = || scope.spawn(|| permit.flush());
            let first = flush();
            begins.recv().unwrap();
            let others = [flush(), flush()];
            while lock(&medium.flushes).waiting.len() < 2 {
                if begins.try_recv().is_ok() {
                    drop(end);
                    panic!("two flushes at the same time");
                }
                std::thread::yield_now();
            }
            ends.iter().for_each(|is_good| end.send(*is_good).unwrap());
            let outcomes = (first.join().unwrap(), others.map(|thread| thread.join().unwrap()));
            assert_eq!(begins.try_iter().count(), ends.len() - 1);
            outcomes
        })
    }

    /// A failed flush may have lost what a later one calls durable.
    #[test]
    fn a_flush_is_believed_only_if_none_failed_before() {
        let is_refused = |outcome: &Result<()>| matches!(outcome, Err(Error::ReadOnly(_)));
        let (first, others) = flush_thrice(Sabotage::None, &[true, true]);
        assert!(first.is_ok() && others.iter().all(Result::is_ok));
        // The first was answered before anything failed. One of the others issued the flush.
        let (first, others) = flush_thrice(Sabotage::None, &[true, false]);
        assert!(first.is_ok() && others.iter().all(Result::is_err));
        assert_eq!(others.iter().filter(|outcome| is_refused(outcome)).count(), 1);
        // Nothing more is issued.
        let (first, others) = flush_thrice(Sabotage::None, &[false]);
        assert!(first.is_err() && others.iter().all(is_refused));
        let (_, others) = flush_thrice(Sabotage::BelieveFlush, &[true, false]);
        assert!(others.iter().any(Result::is_ok), "the canary was not caught");
    }
}
