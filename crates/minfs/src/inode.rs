//! A file in memory: what its durable record says and what has changed since.
//!
//! Knows nothing of devices or locks. Invariants: `recorded_valid <= valid`, `valid` fits the
//! extents, and a tail ends at `recorded_valid`.

use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::record::{Attributes, Extent, FileRecord, Tail, unit_sum};
use crate::shared::now_ns;

/// One file; the volume's tables and all handles share it.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: u32,
    /// Held shared while data move, so that no one takes the space away meanwhile.
    pub(crate) state: RwLock<InodeState>,
    /// Outside the lock, so that writers that share it can note their time. Zero: not changed
    /// since the attributes were last set.
    pub(crate) written_ns: AtomicI64,
}

impl Inode {
    /// Notes the time of a write. It seldom differs from the last one, and what is not written
    /// stays in the caches of all processors that write the file.
    pub(crate) fn note_write(&self) {
        let now = now_ns();
        if self.written_ns.load(Ordering::Relaxed) != now {
            self.written_ns.store(now, Ordering::Relaxed);
        }
    }
}

/// What changes about a file.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) name: Vec<u8>,
    pub(crate) size: u64,
    /// Bytes from here on read as zeros.
    pub(crate) valid: u64,
    /// Space of the file; the end may be held in memory only, to grow into.
    pub(crate) extents: Vec<Extent>,
    /// Units from the start that belong to the file even if they are beyond the valid length.
    pub(crate) kept_units: u64,
    pub(crate) attributes: Attributes,
    /// The valid length that the durable record states.
    pub(crate) recorded_valid: u64,
    /// CRC-32C of the bytes from `recorded_valid` to `valid`, if they were written in order.
    pub(crate) pending_checksum: Option<u32>,
    /// Where the tail of the durable record starts, if it has one.
    pub(crate) tail_start: Option<u64>,
    /// Size, valid length or space differ from the durable record.
    pub(crate) is_dirty: bool,
    /// Attributes were set that nothing has recorded yet.
    pub(crate) has_new_times: bool,
    pub(crate) handles: u32,
    /// No name any more; the space is given back when the last handle goes.
    pub(crate) is_unlinked: bool,
    /// The record is damaged: the name shows, the content does not.
    pub(crate) is_damaged: bool,
    /// Generation of the record that created the file in this session or was found at mount.
    pub(crate) birth: u64,
}

impl InodeState {
    pub(crate) fn from_record(file: &FileRecord, birth: u64) -> Self {
        Self {
            name: file.name.clone(),
            size: file.size,
            valid: file.valid,
            kept_units: unit_sum(&file.extents),
            extents: file.extents.clone(),
            attributes: file.attributes.clone(),
            recorded_valid: file.valid,
            pending_checksum: Some(0),
            tail_start: file.tail.map(|tail| tail.start),
            is_dirty: false,
            has_new_times: false,
            handles: 0,
            is_unlinked: false,
            is_damaged: false,
            birth,
        }
    }

    /// Bytes below this hold the file's content on the medium; what follows reads as zeros.
    pub(crate) fn live(&self) -> u64 {
        self.size.min(self.valid)
    }

    /// Units that the record must list.
    pub(crate) fn needed_units(&self, unit_bytes: u64) -> u64 {
        self.kept_units.max(self.valid.div_ceil(unit_bytes))
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

    /// The record of the present state, with or without a tail.
    pub(crate) fn to_record(&self, unit_bytes: u64, tail: Option<Tail>) -> FileRecord {
        FileRecord {
            name: self.name.clone(),
            size: self.size,
            valid: self.valid,
            tail,
            extents: self.first_extents(self.needed_units(unit_bytes)),
            attributes: self.attributes.clone(),
        }
    }

    /// Whether the bytes `start..end` touch the tail of the durable record.
    pub(crate) fn touches_tail(&self, start: u64, end: u64) -> bool {
        self.tail_start.is_some_and(|tail| start < self.recorded_valid && end > tail)
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
