//! Reads all metadata of a volume and says what holds: the base of both mount and fsck.
//!
//! Reads only, and every loop is bounded by the geometry. Of every inode it picks the record that
//! counts, drops extensions whose data did not arrive, applies burials, and has names and extents
//! compared across inodes. What it finds is told apart by [`Severity`]: a note is what any power
//! cut may leave, a warning is harmless damage, an error makes the volume read-only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use block::{AlignedBuffer, BlockDevice};

use crate::conflicts::{Claim, over_names, over_space, spare_name};
use crate::error::Result;
use crate::geometry::{VolumeGeometry, find};
use crate::layout::{BLOCK_BYTES, GENERATION_END, SECTOR_BYTES};
use crate::pieces::{for_each_piece, tail_matches};
use crate::record::{Burial, Extent, FileRecord, Record, Slot, Tail};

/// How many blocks of slots are read at once.
const READ_BLOCKS: u32 = 256;

/// How many generations a repair leaves out: a record that cannot be read may be younger than all
/// that can, and a new one of its generation could not be told from it in a torn slot.
pub(crate) const GENERATIONS_LEAPT: u64 = 1 << 48;
/// The newest generation of a volume that is written. One repair more, and more records than any
/// mount can write, fit between it and the end, so nobody who writes meets the end.
const GENERATION_WRITABLE_MAX: u64 = GENERATION_END - 2 * GENERATIONS_LEAPT;
/// What becomes of a volume beyond it.
pub(crate) const USED_UP: &str =
    "the volume has used up its generations; copy its files to a new one";

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
    /// An inode whose generation is so near to the end of its range that nothing is written any
    /// more.
    Generations(u32),
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
    /// The record that counts, or the newest that is left of an inode in doubt, and its slot. A
    /// file whose name a younger one has bears another name here.
    pub(crate) record: Option<(usize, Record)>,
    /// The record before a legible one, of which it is not known whether it ever was durable.
    fallback: Option<Box<Record>>,
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
    pub(crate) is_barred: bool,
    /// A record may be where the device merely failed to read; only of interest where no other is
    /// left.
    pub(crate) is_unread: bool,
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
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Self> {
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
        survey.bury_all();
        survey.check_tails(device);
        survey.compare();
        survey.tell_doubts();
        if let Some(inode) = survey.used_up_by() {
            let generation = survey.inodes[inode as usize].newest_generation;
            let text =
                format!("{}: its generation is {generation}: {USED_UP}", survey.title(inode));
            survey.tell(Severity::Error, Subject::Generations(inode), text);
        }
        Ok(survey)
    }

    /// The highest generation of all slots.
    pub(crate) fn newest_generation(&self) -> u64 {
        self.inodes.iter().map(|inode| inode.newest_generation).max().unwrap_or(0)
    }

    /// The inode whose generation is too high for any new record, if there is one.
    pub(crate) fn used_up_by(&self) -> Option<u32> {
        let is_beyond = |inode: &SurveyedInode| inode.newest_generation > GENERATION_WRITABLE_MAX;
        self.inodes.iter().position(is_beyond).map(|inode| inode as u32)
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

    fn read_slots(&mut self, device: &dyn BlockDevice) -> Result<()> {
        let block_bytes = BLOCK_BYTES as usize;
        let inode_count = self.geometry.inode_count();
        let buffer_bytes = READ_BLOCKS.min(inode_count) as usize * block_bytes;
        let mut buffers = [0, 1].map(|_| AlignedBuffer::zeroed(buffer_bytes));
        let mut first = 0;
        while first < inode_count {
            let count = READ_BLOCKS.min(inode_count - first);
            // The sectors of each block that could not be read.
            let mut unread = [0, 1].map(|_| HashMap::new());
            for slot in 0..2 {
                let buffer = &mut buffers[slot][..count as usize * block_bytes];
                let offset = self.geometry.slot_offset(first, slot);
                if device.read_at(buffer, offset).is_ok() {
                    continue;
                }
                for (index, block) in buffer.chunks_mut(block_bytes).enumerate() {
                    let at = offset + index as u64 * BLOCK_BYTES;
                    unread[slot].insert(index, read_sectors(device, block, at));
                }
            }
            for index in 0..count as usize {
                let inode = first + index as u32;
                let slots = [0, 1].map(|slot: usize| {
                    let unread = unread[slot].get(&index).map_or(&[][..], Vec::as_slice);
                    let bytes = &buffers[slot][index * block_bytes..][..block_bytes];
                    Slot::read(bytes, unread, &self.geometry, inode, slot)
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
                surveyed.is_barred = true;
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
            surveyed.is_barred = true;
            surveyed.record = match other {
                Slot::Decayed { legible: Some(newer), .. }
                    if newer.generation > chosen.generation =>
                {
                    self.note_tail(inode, &newer, Some(&chosen));
                    surveyed.fallback = Some(chosen);
                    Some((1 - slot, *newer))
                }
                _ => Some((slot, *chosen)),
            };
            return surveyed;
        }
        // A legible record that a younger one names is known to have been durable.
        let previous = match &other {
            Slot::Whole(previous) | Slot::Decayed { legible: Some(previous), .. } => Some(previous),
            _ => None,
        };
        self.note_tail(inode, &chosen, previous.map(|previous| &**previous));
        surveyed.record = Some((slot, *chosen));
        surveyed
    }

    /// Remembers to compare the tail of `record`, if it has one.
    fn note_tail(&mut self, inode: u32, record: &Record, other: Option<&Record>) {
        if record.file.as_ref().is_some_and(|file| file.tail.is_some()) {
            let previous = other.filter(|other| other.generation == record.previous_generation);
            self.tails.push((inode, previous.cloned().map(Box::new)));
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
            // The first record of an inode goes to its first slot, and names none before it.
            (Slot::Interrupted { previous_generation: 0, .. }, Slot::Blank) => {
                let text = format!("inode {inode}: its first record did not arrive; it is free");
                self.tell(Severity::Note, Subject::Slot(inode), text);
                return;
            }
            (Slot::Blank, Slot::Decayed { generations: None, name: None, why, .. }) => {
                let text = format!(
                    "inode {inode}, which holds no file: its second slot is damaged ({why})"
                );
                self.tell(Severity::Warning, Subject::Slot(inode), text);
                // A record in the first slot could not be told from an older one.
                surveyed.is_barred = true;
                return;
            }
            _ => {}
        }
        surveyed.is_barred = true;
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
        // Beside a second slot that was never written there is an empty file at most.
        let is_unread = |slot: &Slot| matches!(slot, Slot::Decayed { is_unread: true, .. });
        surveyed.is_unread =
            (is_unread(&first) || is_unread(&second)) && !matches!(second, Slot::Blank);
        // Only the second slot may never have been written.
        let is_bounded = first.generations().is_some()
            && (matches!(second, Slot::Blank) || second.generations().is_some());
        let newest = is_bounded.then_some(surveyed.newest_generation);
        let mut name = None;
        let mut legibles = Vec::new();
        for (slot, held) in [first, second].into_iter().enumerate() {
            let Slot::Decayed { name: seen, legible, .. } = held else { continue };
            name = name.or(seen);
            legibles.extend(legible.map(|legible| (slot, legible)));
        }
        legibles.sort_by_key(|(_, legible)| std::cmp::Reverse(legible.generation));
        let mut legibles = legibles.into_iter();
        if let Some((slot, newest)) = legibles.next() {
            let before = legibles.next().map(|(_, before)| before);
            self.note_tail(inode, &newest, before.as_deref());
            surveyed.record = Some((slot, *newest));
            surveyed.fallback = before;
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
                // With it the only word that it replaced another file may be lost.
                None => {
                    text += "; a file may have been here, and one that it replaced may be shown \
                             again, with bytes of others";
                }
            }
            self.tell(Severity::Error, Subject::Inode(inode), text);
        }
    }

    /// Falls back to the previous record where the data of an extension did not arrive. Comes
    /// after the burials: the space of a buried file may be another's by now.
    ///
    /// No two tails are read from one place, so that an image cannot ask for more than its size:
    /// the youngest file has the space, and the others are in doubt.
    fn check_tails(&mut self, device: &dyn BlockDevice) {
        let mut tails = std::mem::take(&mut self.tails);
        tails.sort_by_key(|(inode, _)| {
            let record = self.inodes[*inode as usize].record.as_ref();
            std::cmp::Reverse((record.map(|(_, record)| record.generation), *inode))
        });
        let mut places = TailPlaces::default();
        for (inode, previous) in tails {
            let surveyed = &self.inodes[inode as usize];
            if surveyed.is_buried {
                continue;
            }
            let Some((slot, record)) = &surveyed.record else { continue };
            let Some(file) = &record.file else { continue };
            let Some(tail) = file.tail else { continue };
            let (slot, tail_bytes, name) = (*slot, file.valid - tail.start, self.title(inode));
            if let Some(younger) = places.claim(&self.geometry, inode, file, tail) {
                let text = format!(
                    "{name}: its last {tail_bytes} bytes lie where those of the younger {} do",
                    self.title(younger)
                );
                self.tell(Severity::Error, Subject::Inode(inode), text);
                self.inodes[inode as usize].is_barred = true;
                continue;
            }
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
                    surveyed.fallback = None;
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
            self.inodes[inode as usize].is_barred = true;
        }
    }

    fn bury_all(&mut self) {
        let burial_of = |inode: &SurveyedInode| {
            let burial = inode.record.as_ref()?.1.burial?;
            // A legible record may not have been durable. If it buries what the one before did not,
            // the two files clash in their name, and both are kept.
            let is_certain =
                inode.fallback.as_ref().is_none_or(|before| before.burial == Some(burial));
            is_certain.then_some(burial)
        };
        let burials: Vec<_> = self.inodes.iter().filter_map(burial_of).collect();
        burials.into_iter().for_each(|burial| self.bury(burial));
    }

    fn bury(&mut self, burial: Burial) {
        let victim = &mut self.inodes[burial.inode as usize];
        victim.buried_until = victim.buried_until.max(burial.generation);
        if let Some((_, record)) = &victim.record
            && record.generation <= burial.generation
        {
            victim.is_buried = true;
        }
    }

    /// What each file claims.
    fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        (0..).zip(&self.inodes).filter_map(|(inode, surveyed)| {
            let file = surveyed.file()?;
            let generation = surveyed.record.as_ref()?.1.generation;
            Some(Claim { inode, generation, name: &file.name, extents: &file.extents })
        })
    }

    /// Finds files that claim one name or the same space.
    fn compare(&mut self) {
        let (names, space) = loop {
            let (names, space) = (over_names(self.claims()), self.conflicts_over_space());
            let mut is_settled = true;
            for (older, younger) in names.iter().chain(&space) {
                is_settled &= !self.fall_back(*older, *younger);
            }
            if is_settled {
                break (names, space);
            }
        };
        for (older, younger) in space {
            let text = format!(
                "{} and the younger {} hold the same space",
                self.title(older),
                self.title(younger)
            );
            self.inodes[older as usize].is_barred = true;
            self.tell(Severity::Error, Subject::Overlap(older, younger), text);
        }
        if names.is_empty() {
            return;
        }
        let mut taken: HashSet<_> = self.claims().map(|claim| claim.name.to_vec()).collect();
        for (older, younger) in names {
            let title = self.title(older);
            let surveyed = &mut self.inodes[older as usize];
            surveyed.is_barred = true;
            let record = surveyed.record.as_mut().map(|(_, record)| record);
            let file = record.and_then(|record| record.file.as_mut()).expect("it has a name");
            file.name = spare_name(&file.name, older, &taken);
            taken.insert(file.name.clone());
            let shown = String::from_utf8_lossy(&file.name);
            let text = format!(
                "{title} and the younger inode {younger} have one name; the older is shown as \
                 {shown:?}"
            );
            self.tell(Severity::Error, Subject::Name(older, younger), text);
        }
    }

    fn conflicts_over_space(&mut self) -> Vec<(u32, u32)> {
        let mut used: Vec<_> = self.claims().flat_map(Claim::owned_extents).collect();
        used.sort_by_key(|(extent, _)| (extent.start, extent.count));
        self.used = used;
        // Nearly always there is none, and that is seen at once.
        if self.used.windows(2).all(|pair| pair[0].0.end() <= pair[1].0.start) {
            return Vec::new();
        }
        over_space(self.claims())
    }

    /// Steps back to the record before a legible one that a younger file contradicts: had the
    /// legible one been durable, that file could not have taken what it claims.
    fn fall_back(&mut self, older: u32, younger: u32) -> bool {
        let winner = self.title(younger);
        let surveyed = &mut self.inodes[older as usize];
        let Some(record) = surveyed.fallback.take() else { return false };
        surveyed.is_buried = record.generation <= surveyed.buried_until;
        let slot = surveyed.record.as_ref().map_or(0, |(slot, _)| 1 - slot);
        let burial = record.burial;
        surveyed.record = Some((slot, *record));
        if let Some(burial) = burial {
            self.bury(burial);
        }
        for doubt in self.doubts.iter_mut().filter(|doubt| doubt.inode == older) {
            let _ = write!(doubt.why, "; {winner} has what it claims, so the record before counts");
        }
        true
    }
}

/// Where tails lie on the device: by start, with the end and the inode.
#[derive(Default)]
struct TailPlaces(BTreeMap<u64, (u64, u32)>);

impl TailPlaces {
    /// Takes the place of a tail, or names the inode whose tail lies there.
    fn claim(
        &mut self,
        geometry: &VolumeGeometry,
        inode: u32,
        file: &FileRecord,
        tail: Tail,
    ) -> Option<u32> {
        let mut pieces = Vec::new();
        let (start, end) = (tail.start, file.valid);
        let outcome = for_each_piece(geometry, &file.extents, start, end, |at, length| {
            let before = self.0.range(..at + length).next_back();
            if let Some((_, (end, other))) = before
                && *end > at
            {
                return Err(*other);
            }
            pieces.push((at, (at + length, inode)));
            Ok(())
        });
        if outcome.is_ok() {
            self.0.extend(pieces);
        }
        outcome.err()
    }
}

/// Reads a block for which a larger read failed, sector by sector where the device can, so that
/// one bad place costs no more than it must. Returns the sectors that fail, which read as zeros.
fn read_sectors(device: &dyn BlockDevice, block: &mut [u8], at: u64) -> Vec<usize> {
    if device.read_at(block, at).is_ok() {
        return Vec::new();
    }
    let piece_bytes = (device.block_size() as usize).clamp(SECTOR_BYTES, block.len());
    let mut unread = Vec::new();
    for (index, piece) in block.chunks_mut(piece_bytes).enumerate() {
        let start = index * piece_bytes;
        if device.read_at(piece, at + start as u64).is_err() {
            piece.fill(0);
            unread.extend(start / SECTOR_BYTES..(start + piece_bytes) / SECTOR_BYTES);
        }
    }
    unread
}
