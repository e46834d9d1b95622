//! A file in memory: what its newest record says and what has changed since.
//!
//! Knows nothing of devices. Invariant: the valid length fits the extents.

use crate::lengths::{Lengths, Vouched};
use crate::record::{Attributes, Extent, FileRecord, unit_sum};
use crate::shared::{Durable, NOT_POISONED, now_ns};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};

/// One file; the volume's tables and all handles share it.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: u32,
    turn: Mutex<()>,
    /// A record of the file was written and no flush has made it durable yet, though the state
    /// says already what it says.
    pub(crate) has_unflushed_record: AtomicBool,
    /// Held shared while data move, so that no one takes the space away meanwhile.
    pub(crate) state: RwLock<InodeState>,
    /// Outside the lock, so that writers that share it can note that they wrote: since the time
    /// below was taken, and when, or zero.
    was_written: AtomicBool,
    written_ns: AtomicI64,
}

/// The right to write a record of one file. Held until the record is durable: the next one goes to
/// the other slot, which holds the durable one until then. Taken before the state is locked.
pub(crate) struct RecordPermit<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Inode {
    pub(crate) fn new(number: u32, state: InodeState) -> Self {
        Self {
            number,
            turn: Mutex::new(()),
            has_unflushed_record: AtomicBool::new(false),
            state: RwLock::new(state),
            was_written: AtomicBool::new(false),
            written_ns: AtomicI64::new(0),
        }
    }

    /// Waits until no record of the file is under way, and locks it to write one.
    pub(crate) fn lock_to_record(&self) -> (RecordPermit<'_>, RwLockWriteGuard<'_, InodeState>) {
        let turn = RecordPermit { _held: self.turn.lock().expect(NOT_POISONED) };
        (turn, self.state.write().expect(NOT_POISONED))
    }

    /// The same, unless somebody is busy with the file.
    pub(crate) fn try_lock_to_record(
        &self,
    ) -> Option<(RecordPermit<'_>, RwLockWriteGuard<'_, InodeState>)> {
        let turn = RecordPermit { _held: self.turn.try_lock().ok()? };
        Some((turn, self.state.try_write().ok()?))
    }

    /// Notes that the file was written. Its time is taken when somebody next asks for it, at the
    /// next sync or close, as POSIX has it for the times of files: a write is spared the clock.
    pub(crate) fn note_write(&self) {
        // What is not written stays in the caches of all processors that write the file.
        if !self.was_written.load(Ordering::Relaxed) {
            self.was_written.store(true, Ordering::Relaxed);
        }
    }

    /// When the file was last written, in nanoseconds since 1970 UTC; zero if it was not since the
    /// attributes were last set.
    pub(crate) fn written_ns(&self) -> i64 {
        if self.was_written.load(Ordering::Relaxed) {
            self.was_written.store(false, Ordering::Relaxed);
            self.written_ns.store(now_ns(), Ordering::Relaxed);
        }
        self.written_ns.load(Ordering::Relaxed)
    }

    /// The same, and forgets it.
    pub(crate) fn take_written_ns(&self) -> i64 {
        let written_ns = self.written_ns();
        self.written_ns.store(0, Ordering::Relaxed);
        written_ns
    }

    /// Takes another change of the content as a write at that time.
    pub(crate) fn set_written_ns(&self, written_ns: i64) {
        self.was_written.store(false, Ordering::Relaxed);
        self.written_ns.store(written_ns, Ordering::Relaxed);
    }
}

/// What changes about a file.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) name: Vec<u8>,
    pub(crate) lengths: Lengths,
    /// Space of the file; the end may be held in memory only, to grow into.
    pub(crate) extents: Vec<Extent>,
    /// Units from the start that belong to the file even if they are beyond the valid length.
    pub(crate) kept_units: u64,
    pub(crate) attributes: Attributes,
    /// Attributes were set that nothing has recorded yet.
    pub(crate) has_new_times: bool,
    pub(crate) handles: u32,
    /// The record that took the name away; the space is given back when the last handle goes.
    pub(crate) unlinked: Option<Durable>,
    /// The record is damaged: the name shows, the content does not.
    pub(crate) is_damaged: bool,
    /// Generation of the record that created the file in this session or was found at mount.
    pub(crate) birth: u64,
}

impl InodeState {
    pub(crate) fn from_record(file: &FileRecord, birth: u64) -> Self {
        Self {
            name: file.name.clone(),
            lengths: Lengths::of(file),
            kept_units: unit_sum(&file.extents),
            extents: file.extents.clone(),
            attributes: file.attributes.clone(),
            has_new_times: false,
            handles: 0,
            unlinked: None,
            is_damaged: false,
            birth,
        }
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.unlinked.is_some()
    }

    /// Units that the record must list.
    pub(crate) fn needed_units(&self, unit_bytes: u64) -> u64 {
        self.kept_units.max(self.lengths.valid().div_ceil(unit_bytes))
    }

    /// The first `units` units of the extents.
    pub(crate) fn first_extents(&self, units: u64) -> Vec<Extent> {
        let mut rest = units;
        let mut kept = Vec::new();
        for extent in &self.extents {
            let count = rest.min(u64::from(extent.count)) as u32;
            if count == 0 {
                break;
            }
            kept.push(Extent { start: extent.start, count });
            rest -= u64::from(count);
        }
        kept
    }

    /// The extents behind the first `units` units.
    pub(crate) fn extents_behind(&self, units: u64) -> Vec<Extent> {
        let mut skip = units;
        let mut rest = Vec::new();
        for extent in &self.extents {
            let skipped = skip.min(u64::from(extent.count)) as u32;
            skip -= u64::from(skipped);
            if skipped < extent.count {
                rest.push(Extent { start: extent.start + skipped, count: extent.count - skipped });
            }
        }
        rest
    }

    /// The record of the present state.
    pub(crate) fn to_record(&self, unit_bytes: u64, vouched: &Vouched) -> FileRecord {
        FileRecord {
            name: self.name.clone(),
            size: vouched.size(),
            valid: vouched.valid(),
            tail: vouched.tail(),
            extents: self.first_extents(self.needed_units(unit_bytes)),
            attributes: self.attributes.clone(),
        }
    }

    /// Adds space at the end, as part of the last extent where it follows it.
    pub(crate) fn append_extents(&mut self, added: &[Extent]) {
        for extent in added {
            match self.extents.last_mut() {
                Some(last) if last.end() == extent.start => last.count += extent.count,
                _ => self.extents.push(*extent),
            }
        }
    }
}
