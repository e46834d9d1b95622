//! Reads all metadata of a volume and says what holds: the base of both mount and fsck.
//!
//! Reads only, and every loop is bounded by the geometry. Of every inode it picks the record that
//! counts, drops extensions whose data did not arrive, applies burials, and compares names and
//! extents across inodes. What it finds is told apart by [`Severity`]: a note is what any power
//! cut may leave, a warning is harmless damage, an error makes the volume read-only.

use std::collections::HashMap;
use std::fmt::Write as _;

use block::{AlignedBuffer, BlockDevice};

use crate::allocator::overlaps;
use crate::checksum::crc32c_append;
use crate::error::{Error, Result};
use crate::geometry::{VolumeGeometry, find};
use crate::layout::BLOCK_BYTES;
use crate::record::{Extent, FileRecord, Record, Slot, Tail};

/// How many blocks of slots are read at once.
const READ_BLOCKS: u32 = 256;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What any power cut may leave; nothing to repair.
    Note,
    /// Damage without loss; the volume can be used.
    Warning,
    /// Damage with loss or doubt; the volume mounts read-only until it is repaired.
    Error,
}

/// What a finding is about, so that a repair knows what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A copy of the geometry: 0 in the first block, 1 in the last.
    Geometry(usize),
    /// A slot of an inode of which it is known, all the same, what it holds.
    Slot(u32),
    /// An inode of which it is not known whether its newest record is left.
    Inode(u32),
    /// Two inodes that hold the same units; the first has the older record.
    Overlap(u32, u32),
    /// Two inodes of one name; the first has the older record.
    Name(u32, u32),
}

/// One thing worth telling.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// The finding in words, with names and places.
    pub text: String,
}

/// What is known of one inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct SurveyedInode {
    /// The record that counts, or the newest that is left of a corrupt inode, and its slot.
    pub(crate) record: Option<(usize, Record)>,
    /// The highest generation seen in either slot.
    pub(crate) newest_generation: u64,
    /// The other slot holds a record that must not count; a writing mount replaces it first.
    pub(crate) has_void_record: bool,
    /// Records up to this generation were buried by another inode.
    buried_until: u64,
    /// The record is among them.
    pub(crate) is_buried: bool,
    /// It is in doubt what this inode holds, or how a new record of it would read: no file is
    /// written or made here before a repair.
    pub(crate) is_corrupt: bool,
}

impl SurveyedInode {
    /// The file that this inode is, if it is one.
    pub(crate) fn file(&self) -> Option<&FileRecord> {
        if self.is_buried {
            return None;
        }
        self.record.as_ref().and_then(|(_, record)| record.file.as_ref())
    }
}

/// All metadata of a volume, judged.
pub(crate) struct Survey {
    pub(crate) geometry: VolumeGeometry,
    pub(crate) inodes: Vec<SurveyedInode>,
    pub(crate) findings: Vec<Finding>,
    /// Every extent of every file with its inode, sorted by start.
    pub(crate) used: Vec<(Extent, u32)>,
    /// Inodes whose record has a tail, with the whole record before it.
    tails: Vec<(u32, Option<Box<Record>>)>,
    /// Inodes of which a slot is damaged and nothing shows that it was not the newer one.
    doubts: Vec<Doubt>,
}

struct Doubt {
    inode: u32,
    why: String,
    /// The damage hid no record younger than this, if so much is known.
    newest: Option<u64>,
}

impl Survey {
    /// Reads the volume on `device`.
    pub(crate) fn read<D: BlockDevice + ?Sized>(device: &D) -> Result<Self> {
        let found = find(device)?;
        let mut survey = Self {
            geometry: found.geometry,
            inodes: Vec::new(),
            findings: Vec::new(),
            used: Vec::new(),
            tails: Vec::new(),
            doubts: Vec::new(),
        };
        for (index, why) in found.faults {
            let which = ["first block", "backup in the last block"][index];
            survey.tell(
                Severity::Warning,
                Subject::Geometry(index),
                format!("the geometry in the {which} is damaged: {why}"),
            );
        }
        survey.read_slots(device)?;
        survey.bury();
        survey.tell_doubts();
        survey.check_tails(device);
        survey.compare_names();
        survey.compare_extents();
        Ok(survey)
    }

    /// The worst that was found.
    pub(crate) fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// An inode for a message, with the name of its file if it is one.
    pub(crate) fn title(&self, inode: u32) -> String {
        match self.inodes[inode as usize].file() {
            Some(file) => format!("{:?} (inode {inode})", String::from_utf8_lossy(&file.name)),
            None => format!("inode {inode}"),
        }
    }

    fn tell(&mut self, severity: Severity, subject: Subject, text: String) {
        self.findings.push(Finding { severity, subject, text });
    }

    fn read_slots<D: BlockDevice + ?Sized>(&mut self, device: &D) -> Result<()> {
        let block_bytes = BLOCK_BYTES as usize;
        let inode_count = self.geometry.inode_count();
        let buffer_bytes = READ_BLOCKS.min(inode_count) as usize * block_bytes;
        let mut buffers = [0, 1].map(|_| AlignedBuffer::zeroed(buffer_bytes));
        let mut first = 0;
        while first < inode_count {
            let count = READ_BLOCKS.min(inode_count - first);
            let mut unreadable = [0, 1].map(|_| Vec::new());
            for slot in 0..2 {
                let buffer = &mut buffers[slot][..count as usize * block_bytes];
                let offset = self.geometry.slot_offset(first, slot);
                if device.read_at(buffer, offset).is_ok() {
                    continue;
                }
                // Find out which blocks fail, so that one bad place costs one slot.
                for index in 0..count {
                    let range = index as usize * block_bytes..(index as usize + 1) * block_bytes;
                    let at = offset + u64::from(index) * BLOCK_BYTES;
                    if device.read_at(&mut buffer[range], at).is_err() {
                        unreadable[slot].push(index);
                    }
                }
            }
            for index in 0..count {
                let inode = first + index;
                let slots = [0, 1].map(|slot: usize| {
                    if unreadable[slot].contains(&index) {
                        return Slot::unreadable();
                    }
                    let start = index as usize * block_bytes;
                    let bytes = &buffers[slot][start..start + block_bytes];
                    Slot::read(bytes, &self.geometry, inode, slot)
                });
                let surveyed = self.judge(inode, slots);
                self.inodes.push(surveyed);
            }
            first += count;
        }
        Ok(())
    }

    /// Picks the record of one inode that counts.
    fn judge(&mut self, inode: u32, slots: [Slot; 2]) -> SurveyedInode {
        let newest = slots.iter().filter_map(Slot::generations).map(|(_, newest)| newest).max();
        let newest_generation = newest.unwrap_or(0);
        let mut surveyed = SurveyedInode { newest_generation, ..Default::default() };
        let [first, second] = slots;
        // `chosen` is the newest whole record, `other` what the other slot holds.
        let (slot, chosen, other) = match (first, second) {
            (Slot::Whole(a), Slot::Whole(b)) if a.generation == b.generation => {
                let why = format!("both slots claim generation {}", a.generation);
                self.doubts.push(Doubt { inode, why, newest: Some(a.generation) });
                surveyed.is_corrupt = true;
                surveyed.record = Some((0, *a));
                return surveyed;
            }
            (Slot::Whole(a), Slot::Whole(b)) if a.generation > b.generation => {
                (0, a, Slot::Whole(b))
            }
            (a, Slot::Whole(b)) => (1, b, a),
            (Slot::Whole(a), b) => (0, a, b),
            (a, b) => {
                self.judge_without_record(inode, a, b, &mut surveyed);
                return surveyed;
            }
        };
        if let Some(why) = self.doubt(inode, &chosen, &other) {
            let newest = other.generations().map(|_| newest_generation);
            self.doubts.push(Doubt { inode, why, newest });
            surveyed.is_corrupt = true;
            surveyed.record = match other {
                Slot::Decayed { legible: Some(newer), .. }
                    if newer.generation > chosen.generation =>
                {
                    self.note_tail(inode, &newer, Some(chosen));
                    Some((1 - slot, *newer))
                }
                _ => Some((slot, *chosen)),
            };
            return surveyed;
        }
        let previous = if let Slot::Whole(previous) = other { Some(previous) } else { None };
        self.note_tail(inode, &chosen, previous);
        surveyed.record = Some((slot, *chosen));
        surveyed
    }

    /// Remembers to compare the tail of `record`, if it has one.
    fn note_tail(&mut self, inode: u32, record: &Record, other: Option<Box<Record>>) {
        if record.file.as_ref().is_some_and(|file| file.tail.is_some()) {
            let previous = other.filter(|other| other.generation == record.previous_generation);
            self.tails.push((inode, previous));
        }
    }

    /// Judges an inode of which no slot holds a whole record.
    fn judge_without_record(
        &mut self,
        inode: u32,
        first: Slot,
        second: Slot,
        surveyed: &mut SurveyedInode,
    ) {
        match (&first, &second) {
            (Slot::Blank, Slot::Blank) => return,
            (Slot::Blank, Slot::Interrupted { .. }) | (Slot::Interrupted { .. }, Slot::Blank) => {
                let text = format!("inode {inode}: its first record did not arrive; it is free");
                self.tell(Severity::Note, Subject::Slot(inode), text);
                return;
            }
            // The first record of an inode goes to its first slot.
            (Slot::Blank, Slot::Decayed { generations: None, name: None, why, .. }) => {
                let text = format!(
                    "inode {inode}, which holds no file: its second slot is damaged ({why})"
                );
                self.tell(Severity::Warning, Subject::Slot(inode), text);
                // A record in the first slot could not be told from an older one.
                surveyed.is_corrupt = true;
                return;
            }
            _ => {}
        }
        surveyed.is_corrupt = true;
        let why = |slot: &Slot| match slot {
            Slot::Decayed { why, .. } => why.clone(),
            Slot::Interrupted { .. } => "an interrupted write".into(),
            _ => "blank".into(),
        };
        let mut text = format!(
            "no record is whole (first slot: {}; second slot: {})",
            why(&first),
            why(&second)
        );
        let is_bounded = [&first, &second]
            .iter()
            .all(|slot| matches!(slot, Slot::Blank) || slot.generations().is_some());
        let newest = is_bounded.then_some(surveyed.newest_generation);
        let mut name = None;
        for (slot, held) in [first, second].into_iter().enumerate() {
            let Slot::Decayed { name: seen, legible, .. } = held else { continue };
            name = name.or(seen);
            let generation = surveyed.record.as_ref().map_or(0, |(_, record)| record.generation);
            if let Some(legible) = legible.filter(|legible| legible.generation > generation) {
                surveyed.record = Some((slot, *legible));
            }
        }
        if let (None, Some(name)) = (&surveyed.record, name) {
            text = format!("{text}; probably {:?}", String::from_utf8_lossy(&name));
        }
        self.doubts.push(Doubt { inode, why: text, newest });
    }

    /// Why the whole record `chosen` may not be the newest, if so. Tells harmless damage.
    fn doubt(&mut self, inode: u32, chosen: &Record, other: &Slot) -> Option<String> {
        let why = match other {
            // Once a slot was whole, no write leaves zeros in it.
            Slot::Blank | Slot::Interrupted { has_zeros: true, .. }
                if chosen.previous_generation != 0 =>
            {
                "zeros where a record was"
            }
            Slot::Decayed { why, .. } => why,
            Slot::Interrupted { generations: (_, newest), .. } => {
                let text = format!(
                    "inode {inode}: a write of generation {newest} was cut short; generation {} counts",
                    chosen.generation
                );
                self.tell(Severity::Note, Subject::Slot(inode), text);
                return None;
            }
            Slot::Blank | Slot::Whole(_) => return None,
        };
        if other.holds_nothing_after(chosen.generation) {
            let text = format!("inode {inode}: its older slot is damaged ({why}); nothing is lost");
            self.tell(Severity::Warning, Subject::Slot(inode), text);
            return None;
        }
        Some(match other {
            Slot::Decayed { legible: Some(newer), .. } if newer.generation > chosen.generation => {
                format!("its newer slot is damaged ({why}) where it holds nothing")
            }
            Slot::Decayed { name: Some(name), .. } => format!(
                "its other slot is damaged ({why}) and may have been the newer one, of {:?}",
                String::from_utf8_lossy(name)
            ),
            _ => format!("its other slot is damaged ({why}) and may have been the newer one"),
        })
    }

    /// Tells which inodes are in doubt, now that it is known which were buried.
    fn tell_doubts(&mut self) {
        for Doubt { inode, why, newest } in std::mem::take(&mut self.doubts) {
            let buried_until = self.inodes[inode as usize].buried_until;
            if newest.is_some_and(|newest| newest <= buried_until) {
                let text =
                    format!("inode {inode}, whose file was replaced: {why}; nothing is lost");
                self.tell(Severity::Warning, Subject::Slot(inode), text);
                continue;
            }
            let mut text = format!("{}: {why}", self.title(inode));
            match self.inodes[inode as usize].file() {
                Some(file) => {
                    let _ = write!(text, "; what is left of it has {} bytes", file.size);
                }
                None => text += "; a file may have been here",
            }
            self.tell(Severity::Error, Subject::Inode(inode), text);
        }
    }

    /// Falls back to the previous record where the data of an extension did not arrive. Comes
    /// after the burials: the space of a buried file may be another's by now.
    fn check_tails<D: BlockDevice + ?Sized>(&mut self, device: &D) {
        for (inode, previous) in std::mem::take(&mut self.tails) {
            let surveyed = &self.inodes[inode as usize];
            if surveyed.is_buried {
                continue;
            }
            let Some((slot, record)) = &surveyed.record else { continue };
            let Some(file) = &record.file else { continue };
            let Some(tail) = file.tail else { continue };
            let (slot, tail_bytes, name) = (*slot, file.valid - tail.start, self.title(inode));
            let broken = match (tail_matches(device, &self.geometry, file, tail), previous) {
                (Ok(true), _) => continue,
                (Ok(false), Some(mut previous)) => {
                    // The previous record may have a tail of its own, but that was made durable
                    // before this record was written, so it counts as it stands.
                    if let Some(file) = &mut previous.file {
                        file.tail = None;
                    }
                    let surveyed = &mut self.inodes[inode as usize];
                    surveyed.record = Some((1 - slot, *previous));
                    surveyed.has_void_record = true;
                    let text = format!(
                        "{name}: {tail_bytes} bytes that were never synced did not arrive; they \
                         are dropped"
                    );
                    self.tell(Severity::Note, Subject::Slot(inode), text);
                    continue;
                }
                (Ok(false), None) => format!(
                    "{name}: the last {tail_bytes} bytes do not match their checksum and there is \
                     no earlier record"
                ),
                // Unreadable is not the same as never written: dropping could lose synced bytes.
                (Err(error), _) => format!("{name}: its newest bytes: {error}"),
            };
            self.tell(Severity::Error, Subject::Inode(inode), broken);
            self.inodes[inode as usize].is_corrupt = true;
        }
    }

    fn bury(&mut self) {
        let burials: Vec<_> = self
            .inodes
            .iter()
            .filter_map(|inode| inode.record.as_ref().and_then(|(_, record)| record.burial))
            .collect();
        for burial in burials {
            let victim = &mut self.inodes[burial.inode as usize];
            victim.buried_until = victim.buried_until.max(burial.generation);
            if let Some((_, record)) = &victim.record
                && record.generation <= burial.generation
            {
                victim.is_buried = true;
            }
        }
    }

    fn compare_names(&mut self) {
        let mut owners: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut doubles = Vec::new();
        for (inode, surveyed) in (0..).zip(&self.inodes) {
            if let Some(file) = surveyed.file()
                && let Some(other) = owners.insert(file.name.clone(), inode)
            {
                doubles.push((other, inode));
            }
        }
        for (a, b) in doubles {
            let (older, younger) = self.by_age(a, b);
            let text = format!("{} and inode {younger} have one name", self.title(older));
            self.tell(Severity::Error, Subject::Name(older, younger), text);
        }
    }

    fn compare_extents(&mut self) {
        for (inode, surveyed) in (0..).zip(&self.inodes) {
            if let Some(file) = surveyed.file() {
                self.used.extend(file.extents.iter().map(|extent| (*extent, inode)));
            }
        }
        for overlap in overlaps(&mut self.used) {
            let (older, younger) = self.by_age(overlap.owners.0, overlap.owners.1);
            let text =
                format!("{} and {} hold the same space", self.title(older), self.title(younger));
            self.tell(Severity::Error, Subject::Overlap(older, younger), text);
        }
    }

    fn by_age(&self, a: u32, b: u32) -> (u32, u32) {
        let generation = |inode: u32| {
            self.inodes[inode as usize].record.as_ref().map_or(0, |(_, record)| record.generation)
        };
        if generation(a) <= generation(b) { (a, b) } else { (b, a) }
    }
}

/// Calls `visit` with each piece of the file bytes `start..end`: device offset and length.
pub(crate) fn for_each_piece<E>(
    geometry: &VolumeGeometry,
    extents: &[Extent],
    start: u64,
    end: u64,
    mut visit: impl FnMut(u64, u64) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut extent_start = 0;
    for extent in extents {
        let extent_end = extent_start + u64::from(extent.count) * geometry.unit_bytes();
        let (from, to) = (start.max(extent_start), end.min(extent_end));
        if from < to {
            visit(geometry.unit_offset(extent.start) + (from - extent_start), to - from)?;
        }
        extent_start = extent_end;
        if extent_start >= end {
            break;
        }
    }
    Ok(())
}

/// Where the file bytes `start..end` lie on the device, if one extent holds them all.
#[inline]
pub(crate) fn contiguous_place(
    geometry: &VolumeGeometry,
    extents: &[Extent],
    start: u64,
    end: u64,
) -> Option<u64> {
    let mut extent_start = 0;
    for extent in extents {
        let extent_end = extent_start + u64::from(extent.count) * geometry.unit_bytes();
        if start < extent_end {
            let place = geometry.unit_offset(extent.start) + (start - extent_start);
            return (end <= extent_end).then_some(place);
        }
        extent_start = extent_end;
    }
    None
}

/// Whether the bytes on the device are those that the record vouches for.
fn tail_matches<D: BlockDevice + ?Sized>(
    device: &D,
    geometry: &VolumeGeometry,
    file: &FileRecord,
    tail: Tail,
) -> Result<bool> {
    const PIECE_BYTES: u64 = 1 << 20;
    let buffer_bytes = (file.valid - tail.start + 2 * BLOCK_BYTES).min(PIECE_BYTES);
    let mut buffer = AlignedBuffer::zeroed(buffer_bytes.next_multiple_of(BLOCK_BYTES) as usize);
    let mut checksum = 0;
    let mut position = tail.start;
    while position < file.valid {
        // Whole blocks are read, since the tail may begin and end within one.
        let block_start = position - position % BLOCK_BYTES;
        let end = file.valid.min(block_start + PIECE_BYTES);
        let block_end = end.next_multiple_of(BLOCK_BYTES);
        let mut filled = 0;
        for_each_piece(geometry, &file.extents, block_start, block_end, |offset, length| {
            let part = &mut buffer[filled..filled + length as usize];
            filled += length as usize;
            let action = format!("read {length} bytes at offset {offset}");
            device.read_at(part, offset).map_err(Error::device(action))
        })?;
        let range = (position - block_start) as usize..(end - block_start) as usize;
        checksum = crc32c_append(checksum, &buffer[range]);
        position = end;
    }
    Ok(checksum == tail.checksum)
}
