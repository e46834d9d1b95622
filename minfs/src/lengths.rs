//! How long a file is, and what of it is known to be on the medium.
//!
//! A record that moves the valid length past a byte promises what that byte is after a power cut. So
//! the lengths move only through the functions here, and a record is made of a [`Vouched`], which
//! there is only where nothing was added, where a checksum vouches for what was added, or for a
//! [`Flushed`] that covers it. Knows neither the device nor the space.
//!
//! Invariants: `recorded_valid <= valid`; a tail ends at `recorded_valid`; bytes from `size` to
//! `valid` are zeros and durable, made so by this mount. What an earlier mount left behind the size
//! may be bytes that were never synced, so a mount starts with a valid length of `size` at most.

use crate::checksum::crc32c_append;
use crate::flushes::{FlushMark, Flushed};
use crate::layout::TAIL_BYTES_MAX;
use crate::record::{FileRecord, Tail};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Lengths {
    size: u64,
    /// Bytes from here on read as zeros, whatever the medium holds.
    valid: u64,
    /// The valid length that the newest record states, as far as it is trusted.
    recorded_valid: u64,
    /// CRC-32C of the bytes from `recorded_valid` to `valid`, if they were written in order.
    added_checksum: Option<u32>,
    /// Taken after the last write to those bytes.
    added_mark: Option<FlushMark>,
    /// Where the tail of the newest record starts, if it has one; while that is not yet durable,
    /// where the tail of the one before starts, which lies in front of it.
    tail_start: Option<u64>,
    /// How often size or valid length have changed, and up to which change the newest record knows.
    changes: u64,
    recorded_changes: u64,
}

/// The lengths that a record may state.
#[derive(Debug)]
pub(crate) struct Vouched {
    size: u64,
    valid: u64,
    tail: Option<Tail>,
    changes: u64,
}

impl Vouched {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn valid(&self) -> u64 {
        self.valid
    }

    pub(crate) fn tail(&self) -> Option<Tail> {
        self.tail
    }
}

/// A write that has begun; it counts once [`Lengths::end_write`] takes it.
#[must_use]
pub(crate) struct Writing {
    end: u64,
    valid: u64,
    recorded_valid: u64,
    added_checksum: Option<u32>,
}

impl Lengths {
    /// Those of a file that a mount finds or that was just created.
    pub(crate) fn of(file: &FileRecord) -> Self {
        let valid = file.valid.min(file.size);
        Self::with_valid(file, valid)
    }

    /// For a canary: takes what lies behind the size for zeros because the record says so.
    pub(crate) fn of_what_the_record_says(file: &FileRecord) -> Self {
        Self::with_valid(file, file.valid)
    }

    fn with_valid(file: &FileRecord, valid: u64) -> Self {
        Self {
            size: file.size,
            valid,
            recorded_valid: valid,
            added_checksum: Some(0),
            added_mark: None,
            tail_start: file.tail.map(|tail| tail.start),
            changes: 0,
            recorded_changes: 0,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn valid(&self) -> u64 {
        self.valid
    }

    /// Bytes below this hold the file's content on the medium; what follows reads as zeros.
    pub(crate) fn live(&self) -> u64 {
        self.size.min(self.valid)
    }

    /// A write of whole blocks up to here that touches no tail changes nothing but its bytes.
    pub(crate) fn plain_end(&self) -> u64 {
        self.live().min(self.recorded_valid)
    }

    /// How many bytes were added since the newest record.
    pub(crate) fn added_bytes(&self) -> u64 {
        self.valid - self.recorded_valid
    }

    /// Whether size or valid length differ from the newest record.
    pub(crate) fn is_dirty(&self) -> bool {
        self.changes > self.recorded_changes
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the newest record knows of so many changes.
    pub(crate) fn has_recorded(&self, changes: u64) -> bool {
        self.recorded_changes >= changes
    }

    pub(crate) fn tail_start(&self) -> Option<u64> {
        self.tail_start
    }

    /// Whether a record that may count after a crash vouches for any of the bytes `start..end`.
    pub(crate) fn touches_tail(&self, start: u64, end: u64) -> bool {
        self.tail_start.is_some_and(|tail| start < self.recorded_valid && end > tail)
    }

    /// Begins a write of `bytes` at `offset`, and of zeros from the valid length to there. If it
    /// fails half-way it leaves bytes that no checksum knows, so until it ends there is none, and
    /// nothing behind the size counts as zeros.
    pub(crate) fn begin_write(&mut self, bytes: &[u8], offset: u64) -> Writing {
        let (valid, recorded_valid) = (self.valid, self.recorded_valid);
        let end = offset + bytes.len() as u64;
        let added_checksum = self.checksum_with(bytes, offset);
        self.added_checksum = None;
        if end > self.size {
            self.valid = self.live();
            self.recorded_valid = recorded_valid.min(self.valid);
        }
        Writing { end, valid, recorded_valid, added_checksum }
    }

    /// The write has reached the device; `mark` was taken after.
    pub(crate) fn end_write(&mut self, writing: Writing, mark: FlushMark) {
        let Writing { end, valid, recorded_valid, added_checksum } = writing;
        (self.valid, self.recorded_valid) = (valid, recorded_valid);
        self.added_checksum = added_checksum;
        if end > self.live() {
            self.valid = valid.max(end);
            self.size = self.size.max(end);
            self.changes += 1;
        }
        if self.added_bytes() > 0 {
            self.added_mark = Some(mark);
        }
    }

    /// The checksum of what is not yet recorded, once `bytes` are written at `offset`.
    fn checksum_with(&self, bytes: &[u8], offset: u64) -> Option<u32> {
        let end = offset + bytes.len() as u64;
        if self.added_bytes() > 0 && offset < self.valid && end > self.recorded_valid {
            return None;
        }
        if end <= self.valid {
            return self.added_checksum;
        }
        let is_short = end - self.recorded_valid <= TAIL_BYTES_MAX;
        let mut checksum = self.added_checksum.filter(|_| is_short)?;
        let mut gap = offset.saturating_sub(self.valid);
        while gap > 0 {
            let step = gap.min(ZEROS.len() as u64);
            checksum = crc32c_append(checksum, &ZEROS[..step as usize]);
            gap -= step;
        }
        let skipped = self.valid.saturating_sub(offset) as usize;
        Some(crc32c_append(checksum, &bytes[skipped..]))
    }

    /// Zeros were written from the valid length to `end`; `mark` was taken after.
    pub(crate) fn add_zeros(&mut self, end: u64, mark: FlushMark) {
        if end > self.valid {
            self.valid = end;
            self.added_checksum = None;
            self.added_mark = Some(mark);
            self.changes += 1;
        }
    }

    /// Cuts the file, or makes it longer by zeros that it need not hold.
    pub(crate) fn set_size(&mut self, size: u64) {
        if size < self.size {
            // What is cut off is still on the medium.
            self.valid = self.valid.min(size);
            self.recorded_valid = self.recorded_valid.min(size);
            self.added_checksum = None;
        }
        self.size = size;
        self.changes += 1;
    }

    /// The lengths for a record where nothing was added.
    pub(crate) fn vouch_as_recorded(&self) -> Option<Vouched> {
        (self.added_bytes() == 0).then(|| self.vouched(None))
    }

    /// The same where nothing was added, or little and in order, so that a checksum vouches for it.
    pub(crate) fn vouch_by_checksum(&self) -> Option<Vouched> {
        let added_bytes = self.added_bytes();
        if added_bytes == 0 {
            return self.vouch_as_recorded();
        }
        let checksum = self.added_checksum.filter(|_| added_bytes <= TAIL_BYTES_MAX)?;
        Some(self.vouched(Some(Tail { start: self.recorded_valid, checksum })))
    }

    /// The same once a flush has covered what was added.
    pub(crate) fn vouch_by_flush(&self, flushed: Flushed) -> Vouched {
        let is_covered = self.added_mark.is_none_or(|mark| flushed.covers(mark));
        assert!(is_covered, "a record must not state a length that no flush covers");
        self.vouched(None)
    }

    fn vouched(&self, tail: Option<Tail>) -> Vouched {
        Vouched { size: self.size, valid: self.valid, tail, changes: self.changes }
    }

    /// A record of these lengths was written, and may or may not arrive. The one before may count
    /// as well, and vouches for its own tail.
    pub(crate) fn note_written(&mut self, vouched: &Vouched) {
        self.recorded_valid = vouched.valid;
        self.added_checksum = Some(0);
        self.added_mark = None;
        self.recorded_changes = vouched.changes;
        self.tail_start = self.tail_start.or(vouched.tail.map(|tail| tail.start));
    }

    /// The record is durable, so the one before counts no more.
    pub(crate) fn note_durable(&mut self, vouched: &Vouched) {
        self.tail_start = vouched.tail.map(|tail| tail.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flushes::Flushes;
    use crate::record::Attributes;

    fn lengths(size: u64, valid: u64) -> Lengths {
        let attributes = Attributes::default();
        let name = b"a".to_vec();
        let file = FileRecord { name, size, valid, tail: None, extents: Vec::new(), attributes };
        Lengths::of_what_the_record_says(&file)
    }

    #[test]
    fn while_a_record_is_under_way_the_tail_of_the_one_before_counts_too() {
        let mark = Flushes::default().mark();
        let mut lengths = lengths(0, 0);
        let append = |lengths: &mut Lengths| {
            let writing = lengths.begin_write(&[7; 100], lengths.size());
            lengths.end_write(writing, mark);
            let vouched = lengths.vouch_by_checksum().unwrap();
            lengths.note_written(&vouched);
            vouched
        };
        let first = append(&mut lengths);
        lengths.note_durable(&first);
        let second = append(&mut lengths);
        assert!(lengths.touches_tail(0, 100) && lengths.touches_tail(100, 200));
        lengths.note_durable(&second);
        assert!(!lengths.touches_tail(0, 100) && lengths.touches_tail(100, 200));
    }

    #[test]
    fn nothing_behind_the_size_counts_as_zeros_after_a_write_there_that_failed() {
        let mut lengths = lengths(100, 8192);
        drop(lengths.begin_write(&[7; 200], 100));
        assert_eq!((lengths.size(), lengths.valid(), lengths.added_bytes()), (100, 100, 0));
    }
}
