//! One inode's record, and what the bytes of a slot turn out to be.
//!
//! A [`Record`] exists only for values that keep the rules of the format, so a mount may trust
//! every number in it but the claims that concern other inodes (names, extents), which the
//! survey compares. The reader distinguishes a write that power cut short ([`Slot::Interrupted`]:
//! each sector whole, but of different generations) from bytes that changed ([`Slot::Decayed`]).

use block::AlignedBuffer;

use crate::checksum::{crc32c, crc32c_append};
use crate::geometry::VolumeGeometry;
use crate::layout::{
    BLOCK_BYTES, EXTENTS_MAX, EXTENTS_PER_SECTOR, ExtentOnDisk, FLAG_TAIL, GENERATION_END,
    KIND_FILE, KIND_FREE, NAME_BYTES_MAX, NO_INODE, PAYLOAD_BYTES, SECTOR_BYTES, SECTORS_PER_BLOCK,
    SLOT_MAGIC, SectorTrailer, SlotHeader, TAIL_BYTES_MAX,
};

/// Consecutive allocation units that hold consecutive bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First unit.
    pub start: u32,
    /// Number of units, at least 1.
    pub count: u32,
}

impl Extent {
    /// The unit after the last.
    pub fn end(self) -> u32 {
        self.start + self.count
    }
}

/// Sum of the units of `extents`.
pub(crate) fn unit_sum(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.count)).sum()
}

/// Permissions, owner and times (nanoseconds since 1970 UTC) of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, at most `0o7777`.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Last access; changes only when set.
    pub accessed_ns: i64,
    /// Last change of the content.
    pub modified_ns: i64,
    /// Last change of name, size or attributes.
    pub changed_ns: i64,
    /// Creation.
    pub created_ns: i64,
}

/// The newest bytes of a file, for which the record vouches with a checksum instead of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// First byte; the tail ends where the valid length does.
    pub(crate) start: u64,
    /// CRC-32C of the bytes.
    pub(crate) checksum: u32,
}

/// Records of `inode` up to `generation` count as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burial {
    pub(crate) inode: u32,
    pub(crate) generation: u64,
}

/// What a record says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) name: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) valid: u64,
    pub(crate) tail: Option<Tail>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) attributes: Attributes,
}

/// One record of one inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) inode: u32,
    pub(crate) generation: u64,
    pub(crate) previous_generation: u64,
    pub(crate) burial: Option<Burial>,
    /// `None` when the inode is free.
    pub(crate) file: Option<FileRecord>,
}

/// What the bytes of a slot turned out to be.
#[derive(Debug)]
pub(crate) enum Slot {
    /// All zeros: never written.
    Blank,
    Whole(Box<Record>),
    /// Every sector is zeros or bears its checksum, but they are not of one write.
    Interrupted {
        /// The lowest and the highest generation of its sectors.
        generations: (u64, u64),
        has_zeros: bool,
        /// The durable record that the header names; 0 where it names none or did not arrive.
        previous_generation: u64,
    },
    /// Something that no sequence of writes leaves.
    Decayed {
        /// The lowest and the highest generation of its good sectors, if there is one.
        generations: Option<(u64, u64)>,
        /// The name that it seems to have held; it may be damaged too.
        name: Option<Vec<u8>>,
        /// The record, where the damage hit only sectors that hold nothing of it. Whether all of
        /// it had been written before is not known.
        legible: Option<Box<Record>>,
        /// Some of it could not be read, and may be good; the rest could be that of a record.
        is_unread: bool,
        why: String,
    },
}

/// Whether `name` can name a file: 1 to 255 bytes, no slash, no zero byte, not `.` or `..`.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

fn sector_checksum(uuid: &[u8; 16], inode: u32, slot: usize, index: usize, sector: &[u8]) -> u32 {
    let mut place = [0; 24];
    place[..16].copy_from_slice(uuid);
    place[16..20].copy_from_slice(&inode.to_le_bytes());
    place[20..22].copy_from_slice(&(slot as u16).to_le_bytes());
    place[22..].copy_from_slice(&(index as u16).to_le_bytes());
    crc32c_append(crc32c(&place), &sector[..SECTOR_BYTES - 4])
}

impl Record {
    /// The block for slot `slot` of a volume.
    pub(crate) fn encode(&self, geometry: &VolumeGeometry, slot: usize) -> AlignedBuffer {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
        self.header().encode(&mut bytes);
        let extents = self.file.as_ref().map_or(&[][..], |file| &file.extents);
        for (index, extent) in extents.iter().enumerate() {
            let on_disk = ExtentOnDisk { start: extent.start, count: extent.count };
            on_disk.encode(&mut bytes[extent_offset(index)..]);
        }
        for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
            let mut trailer = SectorTrailer { generation: self.generation, checksum: 0 };
            trailer.encode(&mut sector[PAYLOAD_BYTES..]);
            trailer.checksum =
                sector_checksum(&geometry.fields.uuid, self.inode, slot, index, sector);
            trailer.encode(&mut sector[PAYLOAD_BYTES..]);
        }
        // The writer proves the content with the reader's own eyes: a record that a mount would
        // refuse must never reach the medium. The checksums just taken are not taken again.
        match Self::checked(&bytes, geometry, self.inode, self.generation) {
            Ok(back) => assert_eq!(back, *self, "a record changed on its way to disk"),
            Err(why) => panic!("a record would not be readable: {why}"),
        }
        bytes
    }

    fn header(&self) -> SlotHeader {
        let mut header = SlotHeader {
            magic: SLOT_MAGIC,
            kind: KIND_FREE,
            inode: self.inode,
            previous_generation: self.previous_generation,
            buried_generation: self.burial.map_or(0, |burial| burial.generation),
            buried_inode: self.burial.map_or(NO_INODE, |burial| burial.inode),
            ..SlotHeader::zeroed()
        };
        if let Some(file) = &self.file {
            header.kind = KIND_FILE;
            header.extent_count = file.extents.len() as u32;
            if let Some(tail) = file.tail {
                header.flags = FLAG_TAIL;
                header.tail_checksum = tail.checksum;
                header.tail_start = tail.start;
            }
            header.size_bytes = file.size;
            header.valid_bytes = file.valid;
            header.mode = file.attributes.mode;
            header.user = file.attributes.user;
            header.group = file.attributes.group;
            header.accessed_ns = file.attributes.accessed_ns;
            header.modified_ns = file.attributes.modified_ns;
            header.changed_ns = file.attributes.changed_ns;
            header.created_ns = file.attributes.created_ns;
            header.name_length = file.name.len() as u32;
            header.name[..file.name.len()].copy_from_slice(&file.name);
        }
        header
    }

    /// Judges the content of a slot whose sectors are whole and of one generation.
    fn checked(
        bytes: &[u8],
        geometry: &VolumeGeometry,
        inode: u32,
        generation: u64,
    ) -> Result<Self, String> {
        let header = SlotHeader::decode(bytes);
        let count = header.extent_count as usize;
        let is_file = header.kind == KIND_FILE;
        let has_tail = header.flags == FLAG_TAIL;
        let name_length = header.name_length as usize;
        let rules = [
            (header.magic == SLOT_MAGIC, "the slot has no magic"),
            (is_file || header.kind == KIND_FREE, "the kind is unknown"),
            (has_tail || header.flags == 0, "a flag is unknown"),
            (header.inode == inode, "the record is another inode's"),
            (count <= EXTENTS_MAX, "too many extents"),
            (is_zero(&header.reserved), "reserved bytes are not zero"),
            (name_length <= NAME_BYTES_MAX, "the name is too long"),
            ((1..GENERATION_END).contains(&generation), "the generation is out of range"),
            (generation > header.previous_generation, "the generations do not grow"),
            (generation > header.buried_generation, "a younger record is buried"),
            (
                header.buried_inode == NO_INODE || header.buried_inode < geometry.inode_count(),
                "the buried inode does not exist",
            ),
            (header.buried_inode != inode, "the record buries itself"),
            (
                header.buried_inode != NO_INODE || header.buried_generation == 0,
                "a burial names no inode",
            ),
        ];
        if let Some((_, broken)) = rules.iter().find(|(holds, _)| !holds) {
            return Err((*broken).to_string());
        }
        let burial = (header.buried_inode != NO_INODE)
            .then_some(Burial { inode: header.buried_inode, generation: header.buried_generation });
        let extents = checked_extents(bytes, count, geometry.unit_count())?;
        let file = if is_file {
            Some(Self::checked_file(&header, extents, has_tail, geometry)?)
        } else {
            let canonical = Record {
                inode,
                generation,
                previous_generation: header.previous_generation,
                burial,
                file: None,
            };
            if canonical.header() != header {
                return Err("a free inode's record has content".into());
            }
            None
        };
        let previous_generation = header.previous_generation;
        Ok(Record { inode, generation, previous_generation, burial, file })
    }

    /// The record of a slot whose `broken` sectors hold nothing of it.
    fn legible(
        bytes: &[u8],
        broken: &[usize],
        geometry: &VolumeGeometry,
        inode: u32,
        generation: u64,
    ) -> Option<Self> {
        // Zeros are refused where something of a record was: there is no such magic, and no extent of
        // so many units.
        let mut mended = bytes.to_vec();
        for index in broken {
            mended[index * SECTOR_BYTES..(index + 1) * SECTOR_BYTES].fill(0);
        }
        Self::checked(&mended, geometry, inode, generation).ok()
    }

    fn checked_file(
        header: &SlotHeader,
        extents: Vec<Extent>,
        has_tail: bool,
        geometry: &VolumeGeometry,
    ) -> Result<FileRecord, String> {
        let (name, padding) = header.name.split_at(header.name_length as usize);
        let allocated = unit_sum(&extents) * geometry.unit_bytes();
        let (size, valid) = (header.size_bytes, header.valid_bytes);
        let tail_fits = if has_tail {
            header.tail_start < valid
                && valid <= size
                && valid - header.tail_start <= TAIL_BYTES_MAX
        } else {
            header.tail_start == 0 && header.tail_checksum == 0
        };
        let rules = [
            (is_valid_name(name), "the name is not valid"),
            (is_zero(padding), "the name's padding is not zero"),
            (valid <= allocated, "the valid length is beyond the allocated space"),
            (size <= i64::MAX as u64, "the size is out of range"),
            (header.mode <= 0o7777, "the mode is out of range"),
            (tail_fits, "the tail is out of range"),
        ];
        if let Some((_, broken)) = rules.iter().find(|(holds, _)| !holds) {
            return Err((*broken).to_string());
        }
        Ok(FileRecord {
            name: name.to_vec(),
            size,
            valid,
            tail: has_tail
                .then_some(Tail { start: header.tail_start, checksum: header.tail_checksum }),
            extents,
            attributes: Attributes {
                mode: header.mode,
                user: header.user,
                group: header.group,
                accessed_ns: header.accessed_ns,
                modified_ns: header.modified_ns,
                changed_ns: header.changed_ns,
                created_ns: header.created_ns,
            },
        })
    }
}

/// Where extent `index` lies in a slot, in bytes.
fn extent_offset(index: usize) -> usize {
    let sector = 1 + index / EXTENTS_PER_SECTOR;
    sector * SECTOR_BYTES + index % EXTENTS_PER_SECTOR * ExtentOnDisk::SIZE
}

/// Whether two of `extents` hold the same unit. Most files have few extents, in order.
fn overlap(extents: &[Extent]) -> bool {
    let is_apart = |pair: &[Extent]| pair[0].end() <= pair[1].start;
    if extents.windows(2).all(is_apart) {
        return false;
    }
    let mut sorted = extents.to_vec();
    sorted.sort_unstable_by_key(|extent| extent.start);
    !sorted.windows(2).all(is_apart)
}

fn checked_extents(bytes: &[u8], count: usize, unit_count: u32) -> Result<Vec<Extent>, String> {
    let mut extents = Vec::with_capacity(count);
    let mut units_in_all = 0_u64;
    for index in 0..count {
        let ExtentOnDisk { start, count: units } =
            ExtentOnDisk::decode(&bytes[extent_offset(index)..]);
        match start.checked_add(units) {
            Some(end) if units > 0 && end <= unit_count => {
                units_in_all += u64::from(units);
                extents.push(Extent { start, count: units });
            }
            _ => return Err(format!("extent {index} lies outside the volume")),
        }
    }
    // This also bounds every product of units and bytes by the size of the volume.
    if units_in_all > u64::from(unit_count) || overlap(&extents) {
        return Err("the extents overlap".into());
    }
    for (sector, bytes) in bytes.chunks(SECTOR_BYTES).skip(1).enumerate() {
        let used = count.saturating_sub(sector * EXTENTS_PER_SECTOR).min(EXTENTS_PER_SECTOR);
        if !is_zero(&bytes[used * ExtentOnDisk::SIZE..PAYLOAD_BYTES]) {
            return Err("unused extents or reserved bytes are not zero".into());
        }
    }
    Ok(extents)
}

impl Slot {
    /// Judges the block of slot `slot` of inode `inode`; any bytes will do. The sectors `unread`
    /// could not be read, and count as broken.
    pub(crate) fn read(
        bytes: &[u8],
        unread: &[usize],
        geometry: &VolumeGeometry,
        inode: u32,
        slot: usize,
    ) -> Self {
        if unread.is_empty() && is_zero(bytes) {
            return Self::Blank;
        }
        let mut generations: Option<(u64, u64)> = None;
        let mut has_zeros = false;
        let mut broken = Vec::new();
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if unread.contains(&index) {
                broken.push(index);
                continue;
            }
            if is_zero(sector) {
                has_zeros = true;
                continue;
            }
            let trailer = SectorTrailer::decode(&sector[PAYLOAD_BYTES..]);
            let checksum = sector_checksum(&geometry.fields.uuid, inode, slot, index, sector);
            if checksum == trailer.checksum && (1..GENERATION_END).contains(&trailer.generation) {
                let one = trailer.generation;
                generations = generations
                    .map(|(oldest, newest)| (oldest.min(one), newest.max(one)))
                    .or(Some((one, one)));
            } else {
                broken.push(index);
            }
        }
        let decayed = |why| {
            let header = SlotHeader::decode(bytes);
            let length = (header.name_length as usize).min(NAME_BYTES_MAX);
            let name = &header.name[..length];
            let has_name = header.magic == SLOT_MAGIC && is_valid_name(name);
            let legible = match generations {
                Some((oldest, newest)) if !broken.is_empty() && !has_zeros && oldest == newest => {
                    Record::legible(bytes, &broken, geometry, inode, newest)
                }
                _ => None,
            };
            let name = has_name.then(|| name.to_vec());
            let is_unread = !unread.is_empty() && !has_zeros;
            Self::Decayed { generations, name, legible: legible.map(Box::new), is_unread, why }
        };
        if unread.len() == SECTORS_PER_BLOCK {
            return decayed("it cannot be read".into());
        }
        if !broken.is_empty() {
            let (what, fault) = if unread.is_empty() {
                (&broken[..], "have wrong checksums")
            } else {
                (unread, "cannot be read")
            };
            return decayed(format!("sectors {what:?} {fault}"));
        }
        let (oldest, newest) = generations.expect("a sector that is not zero is good or broken");
        if has_zeros || oldest != newest {
            let previous_generation = SlotHeader::decode(bytes).previous_generation;
            let generations = (oldest, newest);
            return Self::Interrupted { generations, has_zeros, previous_generation };
        }
        match Record::checked(bytes, geometry, inode, newest) {
            Ok(record) => Self::Whole(Box::new(record)),
            Err(why) => decayed(why),
        }
    }

    /// The lowest and the highest generation that its sectors show.
    pub(crate) fn generations(&self) -> Option<(u64, u64)> {
        match self {
            Self::Blank => None,
            Self::Whole(record) => Some((record.generation, record.generation)),
            Self::Interrupted { generations, .. } => Some(*generations),
            Self::Decayed { generations, .. } => *generations,
        }
    }

    /// Whether damage cannot have hidden a record younger than `generation`: a write replaces all
    /// sectors, so what was whole last is no younger than the oldest good one.
    pub(crate) fn holds_nothing_after(&self, generation: u64) -> bool {
        self.generations().is_some_and(|(oldest, _)| oldest < generation)
    }
}

/// Compares with a block of zeros, since that is many times faster than a loop over bytes, and a
/// mount looks at every slot.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    bytes == &ZEROS[..bytes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{MkfsOptions, plan};

    fn geometry() -> VolumeGeometry {
        plan(64 << 20, &MkfsOptions::default()).unwrap()
    }

    fn record(generation: u64, extents: usize) -> Record {
        Record {
            inode: 3,
            generation,
            previous_generation: generation - 1,
            burial: Some(Burial { inode: 1, generation: generation - 1 }),
            file: Some(FileRecord {
                name: vec![b'n'; 255],
                size: 5000,
                valid: if extents == 0 { 0 } else { 4000 },
                tail: (extents > 0).then_some(Tail { start: 100, checksum: 0xfeed }),
                extents: (0..extents)
                    .map(|index| Extent { start: 2 * index as u32, count: 1 })
                    .collect(),
                attributes: Attributes { mode: 0o644, modified_ns: -5, ..Default::default() },
            }),
        }
    }

    #[test]
    fn records_come_back() {
        let geometry = geometry();
        for extents in [0, 1, 62, 63, EXTENTS_MAX] {
            // `encode` reads back what it wrote and compares.
            record(9, extents).encode(&geometry, 1);
        }
        let free =
            Record { inode: 3, generation: 1, previous_generation: 0, burial: None, file: None };
        free.encode(&geometry, 0);
    }

    #[test]
    fn a_generation_that_no_reader_would_take_is_never_written() {
        let geometry = geometry();
        record(GENERATION_END - 1, 1).encode(&geometry, 0);
        let written = std::panic::catch_unwind(|| record(GENERATION_END, 1).encode(&geometry, 0));
        assert!(written.is_err());
    }

    #[test]
    fn a_tear_is_told_from_decay_and_both_from_a_whole_record() {
        let geometry = geometry();
        let (old, new) = (record(7, 100).encode(&geometry, 1), record(9, 63).encode(&geometry, 1));
        let blank = AlignedBuffer::zeroed(4096);
        for before in [&old, &blank] {
            for mask in 1..255_u32 {
                let mut torn = before.to_vec();
                for sector in (0..8).filter(|sector| mask >> sector & 1 == 1) {
                    let range = sector * 512..(sector + 1) * 512;
                    torn[range.clone()].copy_from_slice(&new[range]);
                }
                let slot = Slot::read(&torn, &[], &geometry, 3, 1);
                let is_cut = matches!(slot, Slot::Interrupted { generations: (_, 9), .. });
                assert!(is_cut, "{mask:b}: {slot:?}");
            }
        }
        for bit in 0..4096 * 8 {
            let mut rotten = new.to_vec();
            rotten[bit / 8] ^= 1 << (bit % 8);
            let slot = Slot::read(&rotten, &[], &geometry, 3, 1);
            let Slot::Decayed { generations: Some((9, 9)), legible, .. } = &slot else {
                panic!("{bit}: {slot:?}")
            };
            // 63 extents lie in the sectors 1 and 2.
            assert_eq!(legible.is_some(), bit / 8 / SECTOR_BYTES > 2, "{bit}");
            assert!(legible.as_ref().is_none_or(|legible| **legible == record(9, 63)));
        }
    }

    /// Two slots of one generation contradict each other, so neither proves the other one older.
    #[test]
    fn a_damaged_slot_is_older_than_younger_generations_only() {
        let geometry = geometry();
        let mut rotten = record(9, 1).encode(&geometry, 1).to_vec();
        rotten[4000] ^= 1;
        let slot = Slot::read(&rotten, &[], &geometry, 3, 1);
        assert!(matches!(slot, Slot::Decayed { generations: Some((9, 9)), .. }), "{slot:?}");
        assert!(slot.holds_nothing_after(10) && !slot.holds_nothing_after(9));
    }

    #[test]
    fn extents_that_overlap_in_one_file_are_damage() {
        let geometry = geometry();
        let mut bytes = record(9, 3).encode(&geometry, 1);
        // The extents are 0, 2 and 4; the last becomes the first.
        let twice = ExtentOnDisk { start: 0, count: 1 };
        twice.encode(&mut bytes[extent_offset(2)..]);
        let uuid = &geometry.fields.uuid;
        let checksum = sector_checksum(uuid, 3, 1, 1, &bytes[SECTOR_BYTES..2 * SECTOR_BYTES]);
        bytes[2 * SECTOR_BYTES - 4..2 * SECTOR_BYTES].copy_from_slice(&checksum.to_le_bytes());
        let slot = Slot::read(&bytes, &[], &geometry, 3, 1);
        assert!(
            matches!(&slot, Slot::Decayed { why, .. } if why == "the extents overlap"),
            "{slot:?}"
        );
    }

    #[test]
    fn a_record_at_another_place_or_of_another_volume_does_not_count() {
        let geometry = geometry();
        let bytes = record(9, 1).encode(&geometry, 1);
        assert!(matches!(Slot::read(&bytes, &[], &geometry, 3, 1), Slot::Whole(_)));
        assert!(matches!(
            Slot::read(&bytes, &[], &geometry, 3, 0),
            Slot::Decayed { generations: None, .. }
        ));
        assert!(matches!(
            Slot::read(&bytes, &[], &geometry, 4, 1),
            Slot::Decayed { generations: None, .. }
        ));
        let other = plan(64 << 20, &MkfsOptions::default()).unwrap();
        assert_ne!(other.uuid(), geometry.uuid());
        assert!(matches!(
            Slot::read(&bytes, &[], &other, 3, 1),
            Slot::Decayed { generations: None, .. }
        ));
    }
}
