//! An open file: positional reads and writes from many threads, and what changes its length.
//!
//! A write that is whole blocks, below the valid length and outside a tail goes straight to the
//! device under a shared lock; nothing else is touched. Every other change of a file takes its
//! lock alone. No byte is copied unless a write or a read cuts through a block of the device.

use std::io;
use std::sync::Arc;

use block::{AlignedBuffer, BlockDevice};

use crate::error::{Error, Result};
use crate::flushes::FlushMark;
use crate::inode::{Inode, InodeState};
use crate::pieces::{contiguous_place, for_each_piece};
use crate::record::{Attributes, unit_sum};
use crate::shared::{NOT_POISONED, Shared, display, now_ns};
use crate::sync::RwLockWriteGuard;
use crate::sync::atomic::Ordering;
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
        self.inode.state.read().expect(NOT_POISONED).lengths.size()
    }

    /// Reads at `offset` and returns how many bytes there were: fewer than asked only at the end.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.inode.state.read().expect(NOT_POISONED);
        self.check_whole(&state)?;
        if let Some(at) = self.plain_place(&state, offset, buffer.len()) {
            self.shared.medium.read(buffer, at)?;
            return Ok(buffer.len());
        }
        let length = (buffer.len() as u64).min(state.lengths.size().saturating_sub(offset));
        let buffer = &mut buffer[..length as usize];
        let on_device = length.min(state.lengths.live().saturating_sub(offset)) as usize;
        let (stored, unwritten) = buffer.split_at_mut(on_device);
        self.fetch(&state, stored, offset)?;
        unwritten.fill(0);
        Ok(length as usize)
    }

    /// Writes all of `bytes` at `offset`, or nothing when there is no space. What lies between the
    /// old end and `offset` reads as zeros. Durable after [`File::sync`].
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.shared.medium.writable()?;
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
            let is_plain = end <= state.lengths.plain_end()
                && (!state.lengths.touches_tail(offset, end) || state.is_unlinked());
            if is_plain {
                match self.plain_place(&state, offset, bytes.len()) {
                    Some(at) => self.shared.medium.write(bytes, at)?,
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
        self.shared.medium.writable()?;
        if bytes.is_empty() {
            return Ok(self.size());
        }
        self.write_alone(|state| state.lengths.size(), bytes)
    }

    /// Makes all writes to this file that completed before the call durable, and times that were set:
    /// one flush, and one metadata write if the file grew or times were set; nothing where another
    /// thread's sync has done so while this one waited. The time of the last write alone is no reason
    /// for a metadata write.
    pub fn sync(&self) -> Result<()> {
        self.sync_what(true)
    }

    /// [`File::sync`] without the times, as fdatasync(2) has it.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_what(false)
    }

    fn sync_what(&self, with_times: bool) -> Result<()> {
        let medium = &self.shared.medium;
        if medium.is_settled() {
            let state = self.inode.state.read().expect(NOT_POISONED);
            // What was written while another thread unmounted came too late for its last sync.
            let is_late = state.lengths.is_dirty() || self.inode.written_ns() != 0;
            return if is_late && !state.is_unlinked() { medium.writable() } else { Ok(()) };
        }
        let mark = medium.mark();
        self.inode.written_ns();
        self.shared.bound_tails()?;
        let wants_times = |state: &InodeState| with_times && state.has_new_times;
        let wanted = {
            let state = self.inode.state.read().expect(NOT_POISONED);
            if state.is_unlinked() || !state.lengths.is_dirty() && !wants_times(&state) {
                drop(state);
                medium.writable()?;
                return self.flush_since(mark);
            }
            state.lengths.changes()
        };
        let (turn, state) = self.inode.lock_to_record();
        // While this thread waited another may have recorded its changes, and others made more.
        let is_recorded = state.lengths.has_recorded(wanted) && !wants_times(&state);
        if is_recorded || state.is_unlinked() {
            drop(state);
            let outcome = self.flush_since(mark);
            drop(turn);
            outcome
        } else {
            self.shared.store(&self.inode, turn, state)
        }
    }

    /// A record that another thread has written but not flushed yet, or whose flush failed, may
    /// speak of the bytes that are to be durable: only a flush that begins from here on covers it.
    fn flush_since(&self, mark: FlushMark) -> Result<()> {
        let is_recorded = !self.inode.has_unflushed_record.load(Ordering::SeqCst);
        let medium = &self.shared.medium;
        medium.flush_since(if is_recorded { mark } else { medium.mark() }).map(drop)
    }

    /// Sets the length: one write and one flush. A shorter file gives its space back, also what
    /// was preallocated; what a longer one gains reads as zeros and holds no space.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let shared = &self.shared;
        shared.medium.writable()?;
        if size > i64::MAX as u64 {
            return Err(Error::TooLarge(size));
        }
        let (turn, mut state) = self.inode.lock_to_record();
        self.check_whole(&state)?;
        let before = state.lengths.size();
        if size == before {
            return Ok(());
        }
        let mut freed = Vec::new();
        if size < before {
            let units = size.div_ceil(shared.geometry.unit_bytes()).min(unit_sum(&state.extents));
            freed = state.extents_behind(units);
            state.extents = state.first_extents(units);
            state.kept_units = units;
        }
        state.lengths.set_size(size);
        state.attributes.changed_ns = now_ns();
        self.inode.set_written_ns(state.attributes.changed_ns);
        let durable = match state.unlinked {
            Some(durable) => durable,
            None => shared.store_settled(&self.inode, &turn, &mut state)?,
        };
        shared.free_units(&freed, durable);
        Ok(())
    }

    /// Reserves contiguous space for `length` bytes at `offset`, and lets the file end there if
    /// it ended earlier unless `keep_size`. With `zero` the space is filled with zeros now, so
    /// that no later write in it needs metadata; without, it reads as zeros all the same.
    pub fn preallocate(&self, offset: u64, length: u64, keep_size: bool, zero: bool) -> Result<()> {
        let shared = &self.shared;
        shared.medium.writable()?;
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
        let valid = state.lengths.valid();
        if zero && units * unit_bytes > valid {
            self.fill_with_zeros(&state, valid, units * unit_bytes)?;
            state.lengths.add_zeros(units * unit_bytes, shared.medium.mark());
            is_changed = true;
        }
        if !keep_size && end > state.lengths.size() {
            state.lengths.set_size(end);
            is_changed = true;
        }
        if is_changed && !state.is_unlinked() {
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
        shared.medium.writable()?;
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
        if is_only_times || state.is_unlinked() {
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
            state.lengths.touches_tail(offset, offset + bytes.len() as u64)
                && !state.is_unlinked()
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
        let valid = state.lengths.valid();
        shared.grow(state, end, end > state.lengths.live())?;
        let writing = state.lengths.begin_write(bytes, offset);
        if offset > valid {
            self.fill_with_zeros(state, valid, offset)?;
        }
        self.put(state, bytes, offset)?;
        state.lengths.end_write(writing, shared.medium.mark());
        self.inode.note_write();
        Ok(offset)
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
        let live = (state.lengths.live().saturating_sub(offset)).min(blocks.len() as u64) as usize;
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
            self.shared.medium.read(part, at)
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
            self.shared.medium.write(part, at)
        })?;
        assert_eq!(written, bytes.len(), "a write must stay within the file's space");
        Ok(())
    }

    /// Where `length` bytes at `offset` lie on the device, if they are whole blocks below the live
    /// length in one piece: what nearly every request of a storage engine is, and the shortest way.
    #[inline]
    fn plain_place(&self, state: &InodeState, offset: u64, length: usize) -> Option<u64> {
        let end = offset.checked_add(length as u64)?;
        if end > state.lengths.live() || !self.shared.are_whole_blocks(offset, end) {
            return None;
        }
        contiguous_place(&self.shared.geometry, &state.extents, offset, end)
    }
}

/// The bits of `mode` that let a program run as the file's owner or group.
#[cfg(feature = "mount")]
pub(crate) fn privileges(mode: u32) -> u32 {
    let by_group = libc::S_ISGID | libc::S_IXGRP;
    let group = if mode & by_group == by_group { libc::S_ISGID } else { 0 };
    mode & libc::S_ISUID | group
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
        state.lengths.plain_end() > 0 && self.shared.medium.writes_at_once()
    }

    fn flush(&self) -> io::Result<()> {
        Ok(self.sync_data()?)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_device_range(offset, length)
    }

    fn is_read_only(&self) -> bool {
        self.shared.medium.writable().is_err()
    }
}

impl File {
    /// Hands the device several writes at once, each one that [`File::write`] sends straight to it;
    /// `None` where one is not.
    fn write_each_plain(&self, writes: &[(&[u8], u64)]) -> Option<Vec<io::Result<()>>> {
        let state = self.inode.state.read().expect(NOT_POISONED);
        self.check_whole(&state).ok()?;
        let mut placed = Vec::with_capacity(writes.len());
        for &(bytes, offset) in writes {
            let at = self.plain_place(&state, offset, bytes.len())?;
            let end = offset + bytes.len() as u64;
            let lengths = &state.lengths;
            if end > lengths.plain_end()
                || lengths.touches_tail(offset, end) && !state.is_unlinked()
            {
                return None;
            }
            placed.push((bytes, at));
        }
        let outcomes = self.shared.medium.write_each(&placed).ok()?;
        self.inode.note_write();
        Some(outcomes.into_iter().map(|outcome| Ok(outcome?)).collect())
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
