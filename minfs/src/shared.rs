//! What a volume and its open files share: the records, the space, and the order in which they
//! reach the medium.
//!
//! The rules that make it safe without a log:
//! - a record is written to the slot that does not hold the durable record of its inode, so one
//!   whole record survives any write;
//! - an operation returns only after a flush that covers its record;
//! - space and inodes that a record gave up are handed out again only after that flush;
//! - a record that moves the valid length names the checksum of the bytes it adds, or is written
//!   only after a flush that covers them.
//!
//! Locks are taken in the order names, the turn to record a file, its state, then slot, allocator,
//! tails or the flushes; two turns only under the names, or by trying. After an error of the device
//! on a write or a flush nothing more is written: what is on the medium is then unknown. Knows
//! nothing of what the names mean to a caller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use block::BlockDevice;

use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::flushes::{FlushMark, Flushed};
use crate::geometry::VolumeGeometry;
use crate::inode::{Inode, InodeState, RecordPermit};
use crate::layout::EXTENTS_MAX;
use crate::lengths::Vouched;
use crate::medium::Medium;
use crate::record::{Burial, Extent, FileRecord, Record, unit_sum};
use crate::survey::{Finding, Survey};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLockWriteGuard};
use crate::volume::{FileFacts, MountOptions, Sabotage, Tables};

/// The volumes of the model test are small, and its histories short.
const IS_MODEL: bool = cfg!(feature = "shuttle");

/// When the tails of all files together exceed this many bytes they are settled, which bounds
/// what a mount after a crash has to read.
const TAILS_BYTES_MAX: u64 = if IS_MODEL { 8 << 10 } else { 64 << 20 };
/// A growing file holds at least and at most this much space ahead of its end, in bytes.
const AHEAD_BYTES_MIN: u64 = if IS_MODEL { 8 << 10 } else { 1 << 20 };
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// Space is held ahead only while the volume has this many times as much free.
const AHEAD_FREE_FACTOR: u64 = if IS_MODEL { 4 } else { 16 };
pub(crate) const NOT_POISONED: &str = "no thread panics while it holds a lock";

/// Which slot of an inode holds the durable record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotState {
    pub(crate) durable_slot: Option<usize>,
    pub(crate) durable_generation: u64,
    pub(crate) burial: Option<Burial>,
}

/// A record that was written and that the next flush makes durable.
#[must_use]
pub(crate) struct Unflushed {
    inode: u32,
    slot: usize,
    generation: u64,
    burial: Option<Burial>,
    /// Taken once it was written.
    mark: FlushMark,
}

/// That a record is durable, without which nothing that it gave up is handed out again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable {
    pub(crate) generation: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) by_name: BTreeMap<Vec<u8>, Arc<Inode>>,
    pub(crate) free: BTreeSet<u32>,
    /// Inodes that count as free only because another record buries them: reused first, since
    /// their next record ends the burial at no cost.
    pub(crate) buried: BTreeSet<u32>,
}

pub(crate) struct Shared {
    pub(crate) medium: Medium,
    pub(crate) geometry: VolumeGeometry,
    /// Transfers are multiples of this many bytes.
    pub(crate) granule: u64,
    options: MountOptions,
    names: Mutex<Names>,
    slots: Vec<Mutex<SlotState>>,
    allocator: Mutex<Allocator>,
    next_generation: AtomicU64,
    /// Files with a tail, oldest first, with its length.
    tails: Mutex<VecDeque<(Arc<Inode>, u64)>>,
    pub(crate) findings: Vec<Finding>,
    is_unmounted: AtomicBool,
}

/// The time in nanoseconds since 1970 UTC, as fine as the kernel's file systems take it: that of
/// the last tick of the clock, which costs a write a few nanoseconds instead of some twenty.
pub(crate) fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// A name for people: what a terminal would obey is escaped.
pub fn display(name: &[u8]) -> String {
    let escaped = |letter: char| {
        if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
    };
    String::from_utf8_lossy(name).chars().map(escaped).collect()
}

/// Notes that a durable record states what the memory does.
pub(crate) fn note_durable(state: &mut InodeState, vouched: &Vouched) {
    state.lengths.note_written(vouched);
    state.lengths.note_durable(vouched);
    state.has_new_times = false;
}

impl Shared {
    /// What a mount starts with.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        survey: Survey,
        tables: Tables,
        options: &MountOptions,
        read_only_reason: &str,
    ) -> Self {
        let newest = survey.newest_generation();
        let allocator = Allocator::new(survey.geometry.unit_count(), &survey.used);
        Self {
            granule: u64::from(device.block_size()),
            medium: Medium::new(device, read_only_reason, options.sabotage),
            options: options.clone(),
            names: Mutex::new(tables.names),
            slots: tables.slots,
            allocator: Mutex::new(allocator),
            next_generation: AtomicU64::new(newest + 1),
            tails: Mutex::new(tables.tails),
            findings: survey.findings,
            geometry: survey.geometry,
            is_unmounted: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock_names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().expect(NOT_POISONED)
    }

    pub(crate) fn lock_allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().expect(NOT_POISONED)
    }

    fn lock_slot(&self, inode: u32) -> MutexGuard<'_, SlotState> {
        self.slots[inode as usize].lock().expect(NOT_POISONED)
    }

    pub(crate) fn sabotage(&self) -> Sabotage {
        self.options.sabotage
    }

    /// Whether a range begins and ends between blocks of the device. Every request asks, so it is
    /// not left to a division: the size of a block is a power of two.
    #[inline]
    pub(crate) fn are_whole_blocks(&self, start: u64, end: u64) -> bool {
        (start | end) & (self.granule - 1) == 0
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Arc<Inode>> {
        self.lock_names().by_name.get(name).cloned().ok_or_else(|| Error::NotFound(display(name)))
    }

    pub(crate) fn facts(&self, inode: &Inode) -> FileFacts {
        let state = inode.state.read().expect(NOT_POISONED);
        let unit_bytes = self.geometry.unit_bytes();
        let extents = state.first_extents(state.needed_units(unit_bytes));
        let mut attributes = state.attributes.clone();
        let written_ns = inode.written_ns();
        if written_ns != 0 {
            attributes.modified_ns = written_ns;
            attributes.changed_ns = attributes.changed_ns.max(written_ns);
        }
        FileFacts {
            name: state.name.clone(),
            inode: inode.number,
            birth: state.birth,
            size: state.lengths.size(),
            valid: state.lengths.valid(),
            allocated_bytes: unit_sum(&extents) * unit_bytes,
            extent_count: extents.len(),
            attributes,
            is_unlinked: state.is_unlinked(),
        }
    }

    /// At a writing mount: what was read becomes durable, and records whose data did not arrive
    /// are replaced, before any space is handed out. Without the flush a killed process could
    /// leave a record in the device's cache that frees space which the next mount reuses.
    pub(crate) fn make_durable(&self, voids: Vec<(u32, Option<FileRecord>)>) -> Result<()> {
        self.medium.flush()?;
        if voids.is_empty() {
            return Ok(());
        }
        let mut unflushed = Vec::new();
        for (number, file) in voids {
            unflushed.push(self.write_record(number, file, None)?);
        }
        let flushed = self.medium.flush()?;
        for record in unflushed {
            self.commit(record, flushed);
        }
        Ok(())
    }

    /// Writes a record of `inode` to the slot that does not hold its durable record. The next
    /// flush makes it durable; then it must be committed.
    pub(crate) fn write_record(
        &self,
        inode: u32,
        file: Option<FileRecord>,
        buries: Option<u32>,
    ) -> Result<Unflushed> {
        self.medium.writable()?;
        if let Some(file) = &file
            && file.extents.len() > EXTENTS_MAX
        {
            return Err(Error::TooManyExtents { name: display(&file.name), limit: EXTENTS_MAX });
        }
        let state = *self.lock_slot(inode);
        let generation = self.next_generation.fetch_add(1, Ordering::SeqCst);
        let burial = match buries {
            Some(victim) => Some(Burial { inode: victim, generation: generation - 1 }),
            // An older burial is carried on until the buried inode has a record of its own.
            None => state.burial.filter(|burial| {
                self.lock_slot(burial.inode).durable_generation <= burial.generation
            }),
        };
        let slot = match state.durable_slot {
            Some(durable) if self.options.sabotage == Sabotage::SameSlot => durable,
            Some(durable) => 1 - durable,
            None => 0,
        };
        let record = Record {
            inode,
            generation,
            previous_generation: state.durable_generation,
            burial,
            file,
        };
        let offset = self.geometry.slot_offset(inode, slot);
        self.medium.write(&record.encode(&self.geometry, slot), offset)?;
        Ok(Unflushed { inode, slot, generation, burial, mark: self.medium.mark() })
    }

    /// Writes a record of `inode` and makes it durable.
    pub(crate) fn record(
        &self,
        inode: u32,
        file: Option<FileRecord>,
        buries: Option<u32>,
    ) -> Result<Durable> {
        let unflushed = self.write_record(inode, file, buries)?;
        self.commit_after_flush(unflushed)
    }

    /// Makes a record durable.
    pub(crate) fn commit_after_flush(&self, unflushed: Unflushed) -> Result<Durable> {
        let flushed = self.medium.flush_since(unflushed.mark)?;
        Ok(self.commit(unflushed, flushed))
    }

    /// Notes that a flush has made a record durable.
    pub(crate) fn commit(&self, unflushed: Unflushed, flushed: Flushed) -> Durable {
        assert!(flushed.covers(unflushed.mark), "no flush has covered this record");
        let mut state = self.lock_slot(unflushed.inode);
        state.durable_slot = Some(unflushed.slot);
        state.durable_generation = unflushed.generation;
        state.burial = unflushed.burial;
        Durable { generation: unflushed.generation }
    }

    /// Gives the inode that `burier` buries a record of its own that says so, unless it has one or is `next`. A
    /// record buries one inode at most, and a buried record is not to be the only word on another.
    pub(crate) fn end_older_burial(&self, burier: u32, next: u32) -> Result<()> {
        let Some(burial) = self.lock_slot(burier).burial else { return Ok(()) };
        let is_over = self.lock_slot(burial.inode).durable_generation > burial.generation;
        if is_over || burial.inode == next {
            return Ok(());
        }
        self.record(burial.inode, None, None).map(drop)
    }

    /// Gives the space and the number of a file without name and handles back.
    pub(crate) fn release(&self, names: &mut Names, number: u32, state: &mut InodeState) {
        let durable = state.unlinked.expect("only a file without name is released");
        let extents = std::mem::take(&mut state.extents);
        self.free_units(&extents, durable);
        names.free.insert(number);
    }

    /// Gives space back that a durable record gave up.
    pub(crate) fn free_units(&self, extents: &[Extent], _given_up: Durable) {
        for extent in extents {
            if self.options.discard {
                let length = u64::from(extent.count) * self.geometry.unit_bytes();
                self.medium.discard(self.geometry.unit_offset(extent.start), length);
            }
            self.lock_allocator().free(*extent);
        }
    }

    /// Called by the last owner of each handle.
    pub(crate) fn close(&self, inode: &Arc<Inode>) {
        let mut names = self.lock_names();
        let mut state = inode.state.write().expect(NOT_POISONED);
        inode.written_ns();
        state.handles -= 1;
        if state.handles > 0 {
            return;
        }
        if state.is_unlinked() {
            self.release(&mut names, inode.number, &mut state);
        } else {
            self.give_back_ahead(&mut state);
        }
    }

    /// Gives back the space that a file holds only to grow into, and that no record has claimed.
    pub(crate) fn give_back_ahead(&self, state: &mut InodeState) {
        let needed = state.needed_units(self.geometry.unit_bytes());
        let surplus = state.extents_behind(needed);
        if surplus.is_empty() {
            return;
        }
        state.extents = state.first_extents(needed);
        for extent in surplus {
            self.lock_allocator().free(extent);
        }
    }

    /// Lets the file hold space for `end` bytes, or changes nothing.
    pub(crate) fn grow(&self, state: &mut InodeState, end: u64, ahead: bool) -> Result<()> {
        if end > i64::MAX as u64 {
            return Err(Error::TooLarge(end));
        }
        let unit_bytes = self.geometry.unit_bytes();
        let held = unit_sum(&state.extents);
        let wanted = end.div_ceil(unit_bytes);
        if wanted <= held {
            return Ok(());
        }
        let missing = wanted - held;
        let behind = state.extents.last().map(|extent| extent.end());
        let mut allocated = None;
        if ahead {
            let ahead_units =
                (held * unit_bytes).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX) / unit_bytes;
            let generous = missing.max(ahead_units);
            let mut allocator = self.lock_allocator();
            if generous.saturating_mul(AHEAD_FREE_FACTOR) <= allocator.free_units() {
                allocated = allocator.allocate(generous, behind);
            }
        }
        if allocated.is_none() {
            allocated = self.lock_allocator().allocate(missing, behind);
        }
        if allocated.is_none() {
            self.reclaim_ahead();
            allocated = self.lock_allocator().allocate(missing, behind);
        }
        let Some(added) = allocated else {
            return Err(Error::NoSpace {
                wanted_bytes: missing * unit_bytes,
                free_bytes: self.lock_allocator().free_units() * unit_bytes,
            });
        };
        let before = state.extents.clone();
        state.append_extents(&added);
        if state.extents.len() > EXTENTS_MAX {
            state.extents = before;
            for extent in added {
                self.lock_allocator().free(extent);
            }
            return Err(Error::TooManyExtents { name: display(&state.name), limit: EXTENTS_MAX });
        }
        Ok(())
    }

    /// Takes back what other files hold to grow into, where they are not busy.
    fn reclaim_ahead(&self) {
        // The names may be locked by an operation that waits for the caller's inode.
        let Ok(names) = self.names.try_lock() else { return };
        for inode in names.by_name.values() {
            if let Ok(mut state) = inode.state.try_write() {
                self.give_back_ahead(&mut state);
            }
        }
    }

    /// Makes the state of a file durable: one record, and one flush unless new bytes were written
    /// out of order or are too many for a checksum, when a flush goes before. While the last flush
    /// lasts the file is not locked: other threads may make it longer, and the next of them to get
    /// the turn records what all of them have written.
    pub(crate) fn store(
        &self,
        inode: &Arc<Inode>,
        turn: RecordPermit<'_>,
        mut state: RwLockWriteGuard<'_, InodeState>,
    ) -> Result<()> {
        let added_bytes = state.lengths.added_bytes();
        let vouched = match state.lengths.vouch_by_checksum() {
            _ if self.options.sabotage == Sabotage::SkipTail => {
                state.lengths.vouch_by_flush(Flushed::only_claimed())
            }
            Some(vouched) => vouched,
            None => state.lengths.vouch_by_flush(self.medium.flush()?),
        };
        self.take_times(inode, &mut state);
        let record = state.to_record(self.geometry.unit_bytes(), &vouched);
        let unflushed = self.write_record(inode.number, Some(record), None)?;
        state.lengths.note_written(&vouched);
        state.has_new_times = false;
        inode.has_unflushed_record.store(true, Ordering::SeqCst);
        drop(state);
        self.commit_after_flush(unflushed)?;
        inode.has_unflushed_record.store(false, Ordering::SeqCst);
        inode.state.write().expect(NOT_POISONED).lengths.note_durable(&vouched);
        if vouched.tail().is_some() {
            let mut tails = self.tails.lock().expect(NOT_POISONED);
            tails.retain(|(other, _)| other.number != inode.number);
            tails.push_back((inode.clone(), added_bytes));
        }
        drop(turn);
        Ok(())
    }

    /// Makes the state of a file durable and leaves no tail; the file stays locked.
    pub(crate) fn store_settled(
        &self,
        inode: &Arc<Inode>,
        _turn: &RecordPermit<'_>,
        state: &mut InodeState,
    ) -> Result<Durable> {
        let vouched = self.vouch(state)?;
        self.take_times(inode, state);
        let record = state.to_record(self.geometry.unit_bytes(), &vouched);
        let durable = self.record(inode.number, Some(record), None)?;
        note_durable(state, &vouched);
        Ok(durable)
    }

    /// The lengths for a record without tail: a flush goes before where bytes were added.
    pub(crate) fn vouch(&self, state: &InodeState) -> Result<Vouched> {
        match state.lengths.vouch_as_recorded() {
            Some(vouched) => Ok(vouched),
            None => Ok(state.lengths.vouch_by_flush(self.medium.flush()?)),
        }
    }

    fn take_times(&self, inode: &Inode, state: &mut InodeState) {
        let written_ns = inode.take_written_ns();
        if written_ns != 0 {
            state.attributes.modified_ns = written_ns;
            state.attributes.changed_ns = state.attributes.changed_ns.max(written_ns);
        }
    }

    /// Settles all tails with one flush when they have become too many.
    pub(crate) fn bound_tails(&self) -> Result<()> {
        let total: u64 = {
            let tails = self.tails.lock().expect(NOT_POISONED);
            tails.iter().map(|(_, bytes)| bytes).sum()
        };
        if total > TAILS_BYTES_MAX { self.settle_tails() } else { Ok(()) }
    }

    /// Writes a record without tail for every file that has one and is not busy; one flush.
    fn settle_tails(&self) -> Result<()> {
        let candidates: Vec<_> = {
            let mut tails = self.tails.lock().expect(NOT_POISONED);
            tails.drain(..).collect()
        };
        let mut settled = Vec::new();
        let mut busy = Vec::new();
        for (inode, bytes) in &candidates {
            let Some((turn, state)) = inode.try_lock_to_record() else {
                busy.push((inode.clone(), *bytes));
                continue;
            };
            if state.lengths.tail_start().is_none() || state.is_unlinked() {
                continue;
            }
            let Some(vouched) = state.lengths.vouch_as_recorded() else {
                // Its next sync writes a record anyway.
                busy.push((inode.clone(), *bytes));
                continue;
            };
            let record = state.to_record(self.geometry.unit_bytes(), &vouched);
            let unflushed = self.write_record(inode.number, Some(record), None)?;
            settled.push((unflushed, vouched, turn, state));
        }
        self.tails.lock().expect(NOT_POISONED).extend(busy);
        if settled.is_empty() {
            return Ok(());
        }
        let flushed = self.medium.flush()?;
        for (unflushed, vouched, _turn, mut state) in settled {
            self.commit(unflushed, flushed);
            note_durable(&mut state, &vouched);
        }
        Ok(())
    }

    /// Stores every file that changed, then flushes.
    pub(crate) fn sync_all(&self, with_times: bool) -> Result<()> {
        let inodes: Vec<_> = self.lock_names().by_name.values().cloned().collect();
        for inode in &inodes {
            let (turn, state) = inode.lock_to_record();
            let has_times = state.has_new_times || inode.written_ns() != 0;
            if state.is_unlinked() || state.is_damaged {
                continue;
            }
            if state.lengths.is_dirty() || (with_times && has_times) {
                self.medium.writable()?;
                self.store(inode, turn, state)?;
            }
        }
        if self.medium.is_settled() {
            return Ok(());
        }
        self.medium.flush().map(drop)
    }

    /// The end of a mount.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.is_unmounted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if self.medium.is_settled() {
            return Ok(());
        }
        // After a failure what was written may be lost, and the end of the mount must say so.
        self.medium.writable()?;
        let outcome = self.sync_all(true).and_then(|()| self.settle_tails());
        self.medium.close("it was unmounted");
        outcome
    }
}
