//! An open file: positional reads and writes from many threads, and what changes its length.
//!
//! A write that is whole blocks, below the valid length and outside a tail goes straight to the
//! device under a shared lock; nothing else is touched. Every other change of a file takes its
//! lock alone. No byte is copied unless a write or a read cuts through a block of the device.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLockWriteGuard};

use block::{AlignedBuffer, BlockDevice};

use crate::checksum::crc32c_append;
use crate::error::{Error, Result};
use crate::flushes::FlushMark;
use crate::inode::{Inode, InodeState};
use crate::layout::TAIL_BYTES_MAX;
use crate::pieces::{contiguous_place, for_each_piece};
use crate::record::{Attributes, unit_sum};
use crate::shared::{NOT_POISONED, Shared, display, now_ns};
use crate::volume::{FileFacts, Sabotage};

/// Largest transfer of zeros and of data that must be copied to whole blocks, in bytes.
const PIECE_BYTES: u64 = 1 << 20;
static ZEROS: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];

/// An open file of a volume; cloning it opens the file once more.
pub struct File {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
}

/// A contiguous piece of a file on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file in bytes.
    pub file_offset: u64,
    /// Offset on the device in bytes.
    pub device_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, inode: Arc<Inode>) -> Self {
        inode.state.write().expect(NOT_POISONED).handles += 1;
        Self { shared, inode }
    }

    /// Facts of the file.
    pub fn facts(&self) -> FileFacts {
        self.shared.facts(&self.inode)
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.inode.state.read().expect(NOT_POISONED).size
    }

    /// Reads at `offset` and returns how many bytes there were: fewer than asked only at the end.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.inode.state.read().expect(NOT_POISONED);
        self.check_whole(&state)?;
        if let Some(at) = self.plain_place(&state, offset, buffer.len()) {
            self.load(buffer, at)?;
            return Ok(buffer.len());
        }
        let length = (buffer.len() as u64).min(state.size.saturating_sub(offset));
        let buffer = &mut buffer[..length as usize];
        let on_device = length.min(state.live().saturating_sub(offset)) as usize;
        let (stored, unwritten) = buffer.split_at_mut(on_device);
        self.fetch(&state, stored, offset)?;
        unwritten.fill(0);
        Ok(length as usize)
    }

    /// Writes all of `bytes` at `offset`, or nothing when there is no space. What lies between the
    /// old end and `offset` reads as zeros. Durable after [`File::sync`].
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.shared.writable()?;
        let end = offset
            .checked_add(bytes.len() as u64)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(Error::TooLarge(offset))?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.shared.are_whole_blocks(offset, end) {
            let state = self.inode.state.read().expect(NOT_POISONED);
            self.check_whole(&state)?;
            let is_plain = end <= state.live().min(state.recorded_valid)
                && (!state.touches_tail(offset, end) || state.is_unlinked);
            if is_plain {
                match self.plain_place(&state, offset, bytes.len()) {
                    Some(at) => self.save(bytes, at)?,
                    None => self.transfer(&state, bytes, offset)?,
                }
                self.inode.note_write();
                return Ok(());
            }
        }
        self.write_alone(|_| offset, bytes)?;
        Ok(())
    }

    /// Appends `bytes` at the end, wherever it is by then, and returns their offset.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.shared.writable()?;
        if bytes.is_empty() {
            return Ok(self.size());
        }
        self.write_alone(|state| state.size, bytes)
    }

    /// Makes all writes to this file that completed before the call durable: one flush, and one
    /// metadata write if the file grew; nothing where another thread's sync has done so while this
    /// one waited. The time of the last write alone is no reason for a metadata write.
    pub fn sync(&self) -> Result<()> {
        if self.shared.is_settled() {
            let state = self.inode.state.read().expect(NOT_POISONED);
            // What was written while another thread unmounted came too late for its last sync.
            let is_late = state.is_dirty() || self.inode.written_ns() != 0;
            return if is_late && !state.is_unlinked { self.shared.writable() } else { Ok(()) };
        }
        let mark = self.shared.flush_mark();
        self.inode.written_ns();
        self.shared.bound_tails()?;
        let wanted = {
            let state = self.inode.state.read().expect(NOT_POISONED);
            if !state.is_dirty() || state.is_unlinked {
                drop(state);
                self.shared.writable()?;
                return self.flush_since(mark);
            }
            state.changes
        };
        let (turn, state) = self.inode.lock_to_record();
        // While this thread waited another may have recorded its changes, and others made more.
        if state.recorded_changes < wanted && !state.is_unlinked {
            self.shared.store(&self.inode, turn, state)
        } else {
            drop(state);
            let outcome = self.flush_since(mark);
            drop(turn);
            outcome
        }
    }

    /// A record that another thread has written but not flushed yet, or whose flush failed, may
    /// speak of the bytes that are to be durable: only a flush that begins from here on covers it.
    fn flush_since(&self, mark: FlushMark) -> Result<()> {
        let is_recorded = !self.inode.has_unflushed_record.load(Ordering::SeqCst);
        self.shared.flush_since(if is_recorded { mark } else { self.shared.flush_mark() })
    }

    /// Sets the length: one write and one flush. A shorter file gives its space back, also what
    /// was preallocated; what a longer one gains reads as zeros and holds no space.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let shared = &self.shared;
        shared.writable()?;
        if size > i64::MAX as u64 {
            return Err(Error::TooLarge(size));
        }
        let unit_bytes = shared.geometry.unit_bytes();
        let (turn, mut state) = self.inode.lock_to_record();
        self.check_whole(&state)?;
        if size == state.size {
            return Ok(());
        }
        let live = state.live().min(size);
        let held = unit_sum(&state.extents);
        let units =
            if size < state.size { size.div_ceil(unit_bytes).min(held) } else { state.kept_units };
        if live > state.recorded_valid {
            shared.flush()?;
        }
        let freed = if size < state.size { state.extents_behind(units) } else { Vec::new() };
        if size < state.size {
            state.extents = state.first_extents(units);
        }
        // Between size and valid length there may be bytes of a write that was never synced; a
        // file that grows over them must not show them.
        state.valid = live;
        state.recorded_valid = live;
        state.size = size;
        state.kept_units = units;
        state.attributes.changed_ns = now_ns();
        self.inode.set_written_ns(state.attributes.changed_ns);
        if !state.is_unlinked {
            shared.store_settled(&self.inode, &turn, &mut state)?;
        }
        shared.free_units(&freed);
        Ok(())
    }

    /// Reserves contiguous space for `length` bytes at `offset`, and lets the file end there if
    /// it ended earlier unless `keep_size`. With `zero` the space is filled with zeros now, so
    /// that no later write in it needs metadata; without, it reads as zeros all the same.
    pub fn preallocate(&self, offset: u64, length: u64, keep_size: bool, zero: bool) -> Result<()> {
        let shared = &self.shared;
        shared.writable()?;
        if length == 0 {
            return Err(Error::Invalid("an empty range cannot be preallocated".into()));
        }
        let end = offset.checked_add(length).ok_or(Error::TooLarge(offset))?;
        let unit_bytes = shared.geometry.unit_bytes();
        let (turn, mut state) = self.inode.lock_to_record();
        self.check_whole(&state)?;
        shared.grow(&mut state, end, false)?;
        let units = end.div_ceil(unit_bytes);
        let mut is_changed = units > state.kept_units;
        state.kept_units = state.kept_units.max(units);
        let live = state.live();
        let grows = !keep_size && end > state.size;
        if zero && units * unit_bytes > live {
            self.fill_with_zeros(&state, live, units * unit_bytes)?;
            state.valid = state.valid.max(units * unit_bytes);
            is_changed = true;
        } else if grows && state.valid > live {
            state.recorded_valid = state.recorded_valid.min(live);
            state.valid = live;
        }
        if grows {
            state.size = end;
            is_changed = true;
        }
        if is_changed && !state.is_unlinked {
            state.attributes.changed_ns = now_ns();
            shared.store_settled(&self.inode, &turn, &mut state)?;
        }
        Ok(())
    }

    /// Fills `length` bytes at `offset` with zeros, reserving and zeroing the space up to there as
    /// [`File::preallocate`] does.
    pub fn zero_range(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let before = self.size();
        self.preallocate(offset, length, keep_size, true)?;
        let end = (offset + length).min(before);
        let mut position = offset;
        while position < end {
            let step = (end - position).min(PIECE_BYTES);
            self.write(&ZEROS[..step as usize], position)?;
            position += step;
        }
        Ok(())
    }

    /// Changes mode, owner or times. Times alone are recorded with the next record of the file or
    /// at unmount; anything else at once, by one write and one flush.
    pub fn set_attributes(&self, change: impl FnOnce(&mut Attributes)) -> Result<()> {
        let shared = &self.shared;
        shared.writable()?;
        let (turn, mut state) = self.inode.lock_to_record();
        let written_ns = self.inode.take_written_ns();
        if written_ns != 0 {
            state.attributes.modified_ns = written_ns;
        }
        let before = state.attributes.clone();
        change(&mut state.attributes);
        state.attributes.mode &= 0o7777;
        state.attributes.changed_ns = now_ns();
        state.has_new_times = true;
        let after = &state.attributes;
        let is_only_times =
            (before.mode, before.user, before.group) == (after.mode, after.user, after.group);
        if is_only_times || state.is_unlinked {
            return Ok(());
        }
        shared.store(&self.inode, turn, state)
    }

    /// Takes setuid away, and setgid where the group may execute, as a write by a user who may not
    /// grant them does: a record and a flush where there is something to take.
    #[cfg(feature = "mount")]
    pub(crate) fn clear_privileges(&self) -> Result<()> {
        let mode = self.inode.state.read().expect(NOT_POISONED).attributes.mode;
        if privileges(mode) == 0 {
            return Ok(());
        }
        self.set_attributes(|attributes| attributes.mode &= !privileges(attributes.mode))
    }

    /// Where the file's allocated bytes lie on the device, in order.
    pub fn pieces(&self) -> Vec<Piece> {
        let state = self.inode.state.read().expect(NOT_POISONED);
        let geometry = &self.shared.geometry;
        let extents = state.first_extents(state.needed_units(geometry.unit_bytes()));
        let mut file_offset = 0;
        extents
            .iter()
            .map(|extent| {
                let length = u64::from(extent.count) * geometry.unit_bytes();
                let device_offset = geometry.unit_offset(extent.start);
                let piece = Piece { file_offset, device_offset, length };
                file_offset += length;
                piece
            })
            .collect()
    }

    fn check_whole(&self, state: &InodeState) -> Result<()> {
        if state.is_damaged { Err(Error::DamagedFile(display(&state.name))) } else { Ok(()) }
    }

    /// Writes at the offset that `place` tells of the locked file, and returns it. Not in line, so
    /// that the shortest way keeps a small frame.
    #[inline(never)]
    fn write_alone(&self, place: impl Fn(&InodeState) -> u64, bytes: &[u8]) -> Result<u64> {
        let state = self.inode.state.write().expect(NOT_POISONED);
        let offset = place(&state);
        let touches_tail = |state: &InodeState, offset| {
            state.touches_tail(offset, offset + bytes.len() as u64)
                && !state.is_unlinked
                && self.shared.sabotage() != Sabotage::OverwriteTail
        };
        if !touches_tail(&state, offset) {
            return self.write_locked(state, bytes, offset);
        }
        drop(state);
        // A record vouches for these bytes with a checksum, which they are about to leave.
        let (turn, mut state) = self.inode.lock_to_record();
        let offset = place(&state);
        self.check_whole(&state)?;
        if touches_tail(&state, offset) {
            self.shared.store_settled(&self.inode, &turn, &mut state)?;
        }
        self.write_locked(state, bytes, offset)
    }

    fn write_locked(
        &self,
        mut state: RwLockWriteGuard<'_, InodeState>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<u64> {
        let (shared, state) = (&self.shared, &mut *state);
        self.check_whole(state)?;
        let end = offset + bytes.len() as u64;
        let live = state.live();
        shared.grow(state, end, end > live)?;
        // A write that fails half-way, at a block that it must read first, say, leaves bytes that no
        // checksum knows; the next sync then flushes them before it records them.
        let pending_checksum = Self::pending_checksum(state, bytes, offset, live);
        state.pending_checksum = None;
        if offset > live {
            self.fill_with_zeros(state, live, offset)?;
        }
        self.put(state, bytes, offset)?;
        state.pending_checksum = pending_checksum;
        if end > state.valid.min(state.size) {
            state.valid = state.valid.max(end);
            state.size = state.size.max(end);
            state.changes += 1;
        }
        self.inode.note_write();
        Ok(offset)
    }

    /// The checksum of what is not yet recorded, once `bytes` are written at `offset`.
    fn pending_checksum(state: &InodeState, bytes: &[u8], offset: u64, live: u64) -> Option<u32> {
        let valid = state.valid;
        let end = offset + bytes.len() as u64;
        let is_pending = valid > state.recorded_valid;
        if is_pending && offset.min(live) < valid && end > state.recorded_valid {
            return None;
        }
        if end <= valid {
            return state.pending_checksum;
        }
        let is_short = end - state.recorded_valid <= TAIL_BYTES_MAX;
        let mut checksum = state.pending_checksum.filter(|_| is_short)?;
        let mut gap = offset.saturating_sub(valid);
        while gap > 0 {
            let step = gap.min(PIECE_BYTES);
            checksum = crc32c_append(checksum, &ZEROS[..step as usize]);
            gap -= step;
        }
        let skipped = valid.saturating_sub(offset) as usize;
        Some(crc32c_append(checksum, &bytes[skipped..]))
    }

    /// Writes zeros from `start`, the end of the live bytes, to `end`.
    fn fill_with_zeros(&self, state: &InodeState, start: u64, end: u64) -> Result<()> {
        let mut position = start;
        while position < end {
            let next = ((position / PIECE_BYTES + 1) * PIECE_BYTES).min(end);
            self.put(state, &ZEROS[..(next - position) as usize], position)?;
            position = next;
        }
        Ok(())
    }

    /// Writes bytes that may begin and end within a block of the device. What else is in such a
    /// block is kept below the live length and becomes zeros above it.
    fn put(&self, state: &InodeState, bytes: &[u8], offset: u64) -> Result<()> {
        let granule = self.shared.granule;
        let end = offset + bytes.len() as u64;
        let mut position = offset;
        while position < end {
            let rest = &bytes[(position - offset) as usize..];
            let whole_end = end - end % granule;
            if position.is_multiple_of(granule) && position < whole_end {
                self.transfer(state, &rest[..(whole_end - position) as usize], position)?;
                position = whole_end;
                continue;
            }
            let block_start = position - position % granule;
            // One copy takes the cut block at the start and what follows, up to a limit.
            let block_end = end.next_multiple_of(granule).min(block_start + PIECE_BYTES);
            let piece_end = end.min(block_end);
            let mut blocks = AlignedBuffer::zeroed((block_end - block_start) as usize);
            let length = granule as usize;
            if position > block_start {
                self.load_live(state, &mut blocks[..length], block_start)?;
            }
            let last_start = block_end - granule;
            if piece_end < block_end && (last_start > block_start || position == block_start) {
                let from = (last_start - block_start) as usize;
                self.load_live(state, &mut blocks[from..], last_start)?;
            }
            let inside = (position - block_start) as usize..(piece_end - block_start) as usize;
            let taken = inside.len();
            blocks[inside].copy_from_slice(&rest[..taken]);
            self.transfer(state, &blocks, block_start)?;
            position = piece_end;
        }
        Ok(())
    }

    /// Reads whole blocks and turns what is beyond the live length to zeros.
    fn load_live(&self, state: &InodeState, blocks: &mut [u8], offset: u64) -> Result<()> {
        let live = (state.live().saturating_sub(offset)).min(blocks.len() as u64) as usize;
        if live > 0 {
            self.fetch_blocks(state, blocks, offset)?;
        }
        blocks[live..].fill(0);
        Ok(())
    }

    /// Reads bytes that the file holds on the device, at any offset and length.
    fn fetch(&self, state: &InodeState, buffer: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + buffer.len() as u64;
        if self.shared.are_whole_blocks(offset, end) {
            return self.fetch_blocks(state, buffer, offset);
        }
        let granule = self.shared.granule;
        let mut position = offset;
        while position < end {
            let done = (position - offset) as usize;
            let whole_end = end - end % granule;
            if position.is_multiple_of(granule) && position < whole_end {
                let length = (whole_end - position) as usize;
                self.fetch_blocks(state, &mut buffer[done..done + length], position)?;
                position = whole_end;
                continue;
            }
            let block_start = position - position % granule;
            let block_end = end.next_multiple_of(granule).min(block_start + PIECE_BYTES);
            let mut blocks = AlignedBuffer::zeroed((block_end - block_start) as usize);
            self.fetch_blocks(state, &mut blocks, block_start)?;
            let piece_end = end.min(block_end);
            let inside = (position - block_start) as usize..(piece_end - block_start) as usize;
            buffer[done..done + inside.len()].copy_from_slice(&blocks[inside]);
            position = piece_end;
        }
        Ok(())
    }

    fn fetch_blocks(&self, state: &InodeState, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut filled = 0;
        let end = offset + buffer.len() as u64;
        for_each_piece(&self.shared.geometry, &state.extents, offset, end, |at, length| {
            let part = &mut buffer[filled..filled + length as usize];
            filled += length as usize;
            self.load(part, at)
        })?;
        assert_eq!(filled, buffer.len(), "a read must stay within the file's space");
        Ok(())
    }

    /// Writes whole blocks within the file's space.
    fn transfer(&self, state: &InodeState, bytes: &[u8], offset: u64) -> Result<()> {
        let mut written = 0;
        let end = offset + bytes.len() as u64;
        for_each_piece(&self.shared.geometry, &state.extents, offset, end, |at, length| {
            let part = &bytes[written..written + length as usize];
            written += length as usize;
            self.save(part, at)
        })?;
        assert_eq!(written, bytes.len(), "a write must stay within the file's space");
        Ok(())
    }

    /// Where `length` bytes at `offset` lie on the device, if they are whole blocks below the live
    /// length in one piece: what nearly every request of a storage engine is, and the shortest way.
    #[inline]
    fn plain_place(&self, state: &InodeState, offset: u64, length: usize) -> Option<u64> {
        let end = offset.checked_add(length as u64)?;
        if end > state.live() || !self.shared.are_whole_blocks(offset, end) {
            return None;
        }
        contiguous_place(&self.shared.geometry, &state.extents, offset, end)
    }

    /// Reads from the device. In line, as is `save`: after a system call the processor has forgotten
    /// where functions return to, so each one in between costs a small request of many threads some
    /// tenths of a per cent.
    #[inline(always)]
    fn load(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let length = buffer.len();
        self.shared.device.read_at(buffer, at).map_err(|source| failed("read", length, at, source))
    }

    /// Writes to the device; an error turns the volume read-only.
    #[inline(always)]
    fn save(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.shared
            .device
            .write_at(bytes, at)
            .map_err(|source| self.shared.fail(failed("write", bytes.len(), at, source)))
    }
}

/// The bits of `mode` that let a program run as the file's owner or group.
#[cfg(feature = "mount")]
pub(crate) fn privileges(mode: u32) -> u32 {
    let by_group = libc::S_ISGID | libc::S_IXGRP;
    let group = if mode & by_group == by_group { libc::S_ISGID } else { 0 };
    mode & libc::S_ISUID | group
}

#[cold]
fn failed(verb: &str, length: usize, at: u64, source: io::Error) -> Error {
    Error::Device { action: format!("{verb} {length} bytes at offset {at}"), source }
}

impl Clone for File {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone(), self.inode.clone())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.shared.close(&self.inode);
    }
}

/// A file as a device of its length, rounded down to whole blocks: what a store runs on in
/// process. Reserve zeroed space first and every write is as cheap as on the bare device. The
/// length is the file's; a discard does nothing, since the space stays the file's.
impl BlockDevice for File {
    fn len(&self) -> u64 {
        let size = self.size();
        size - size % self.shared.granule
    }

    fn block_size(&self) -> u32 {
        self.shared.granule as u32
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check_device_range(offset, buffer.len() as u64)?;
        let length = self.read(buffer, offset)?;
        if length == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check_device_range(offset, buffer.len() as u64)?;
        Ok(self.write(buffer, offset)?)
    }

    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        let one = |(bytes, offset): &(&[u8], u64)| self.write_at(bytes, *offset);
        self.write_each_plain(writes).unwrap_or_else(|| writes.iter().map(one).collect())
    }

    /// Where the device does, and some of the file is valid: a store that takes only the first part of
    /// a long file writes there straight to the device.
    fn writes_at_once(&self) -> bool {
        let state = self.inode.state.read().expect(NOT_POISONED);
        state.live().min(state.recorded_valid) > 0 && self.shared.device.writes_at_once()
    }

    fn flush(&self) -> io::Result<()> {
        Ok(self.sync()?)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_device_range(offset, length)
    }

    fn is_read_only(&self) -> bool {
        self.shared.writable().is_err()
    }
}

impl File {
    /// Hands the device several writes at once, each one that [`File::write`] sends straight to it;
    /// `None` where one is not.
    fn write_each_plain(&self, writes: &[(&[u8], u64)]) -> Option<Vec<io::Result<()>>> {
        self.shared.writable().ok()?;
        let state = self.inode.state.read().expect(NOT_POISONED);
        self.check_whole(&state).ok()?;
        let mut placed = Vec::with_capacity(writes.len());
        for &(bytes, offset) in writes {
            let at = self.plain_place(&state, offset, bytes.len())?;
            let end = offset + bytes.len() as u64;
            if end > state.recorded_valid || state.touches_tail(offset, end) && !state.is_unlinked {
                return None;
            }
            placed.push((bytes, at));
        }
        let outcomes = self.shared.device.write_each(&placed);
        self.inode.note_write();
        let told = |(outcome, (bytes, at)): (io::Result<()>, (&[u8], u64))| {
            let fail = |source| self.shared.fail(failed("write", bytes.len(), at, source));
            Ok(outcome.map_err(fail)?)
        };
        Some(outcomes.into_iter().zip(placed).map(told).collect())
    }

    fn check_device_range(&self, offset: u64, length: u64) -> io::Result<()> {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.len());
        let granule = self.shared.granule;
        if is_inside && offset.is_multiple_of(granule) && length.is_multiple_of(granule) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{length} bytes at offset {offset} are not whole blocks within the file"),
        ))
    }
}
