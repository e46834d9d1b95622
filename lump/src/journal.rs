//! Journal blocks: records to bytes and back, and the chain that the blocks form.
//!
//! Block `n` lies at `n` modulo the length of the journal, and carries the checksum of block
//! `n - 1`, the epoch of the opening that wrote it, and how far everything was durable when it was
//! written. Invariant: bytes that are no block of this store, whatever they are, give `None`.

use block::AlignedBuffer;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::Result;
use crate::geometry::{Geometry, read_ahead};
use crate::index::Entry;
use crate::layout::{
    BLOCK_BYTES, BlockHeader, EntryOnDisk, JOURNAL_MAGIC, KIND_DELETE, KIND_DELETE_RANGE, KIND_PUT,
    KIND_RANGE, KIND_WINDOW, NUMBER_END, RECORDS_PER_BLOCK, RecordOnDisk, Root, is_sealed, read,
    seal,
};
use crate::medium::Source;

/// A change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Put {
        entry: Entry,
        sequence: u64,
    },
    Delete(u128),
    DeleteRange {
        first: u128,
        last: u128,
    },
    /// The window before is over, and a new one has so many ranges, which follow.
    Window {
        sequence: u64,
        ranges: u64,
    },
    Range {
        start: u64,
        units: u64,
    },
}

impl Record {
    /// The key that it changes, or the first.
    pub fn key(&self) -> u128 {
        match *self {
            Self::Put { entry, .. } => entry.key,
            Self::Delete(key) | Self::DeleteRange { first: key, .. } => key,
            Self::Window { .. } | Self::Range { .. } => 0,
        }
    }

    /// Whether it changes the index.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Window { .. } | Self::Range { .. })
    }

    fn encode(&self) -> RecordOnDisk {
        let (kind, sequence, key, body) = match *self {
            Self::Put { entry, sequence } => {
                let mut body = [0; 16];
                body.copy_from_slice(&encode_entry(&entry).as_bytes()[16..]);
                (KIND_PUT, sequence, entry.key, body)
            }
            Self::Delete(key) => (KIND_DELETE, 0, key, [0; 16]),
            Self::DeleteRange { first, last } => (KIND_DELETE_RANGE, 0, first, last.to_le_bytes()),
            Self::Window { sequence, ranges } => (KIND_WINDOW, sequence, ranges.into(), [0; 16]),
            Self::Range { start, units } => {
                (KIND_RANGE, 0, start.into(), u128::from(units).to_le_bytes())
            }
        };
        RecordOnDisk { kind, reserved: [0; 7], sequence: sequence.into(), key: key.into(), body }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let fields: RecordOnDisk = read(bytes);
        let key = fields.key.get();
        match fields.kind {
            KIND_PUT => {
                let entry = decode_entry(&bytes[16..]);
                Some(Self::Put { entry, sequence: fields.sequence.get() })
            }
            KIND_DELETE => Some(Self::Delete(key)),
            KIND_DELETE_RANGE => {
                Some(Self::DeleteRange { first: key, last: u128::from_le_bytes(fields.body) })
            }
            KIND_WINDOW => {
                let sequence = fields.sequence.get();
                Some(Self::Window { sequence, ranges: u64::try_from(key).ok()? })
            }
            KIND_RANGE => Some(Self::Range {
                start: u64::try_from(key).ok()?,
                units: u64::try_from(u128::from_le_bytes(fields.body)).ok()?,
            }),
            _ => None,
        }
    }
}

pub(crate) fn encode_entry(entry: &Entry) -> EntryOnDisk {
    EntryOnDisk {
        key: entry.key.into(),
        start: entry.start.into(),
        length: entry.length.into(),
        checksum: entry.checksum.into(),
    }
}

pub(crate) fn decode_entry(bytes: &[u8]) -> Entry {
    let fields: EntryOnDisk = read(bytes);
    Entry {
        key: fields.key.get(),
        start: fields.start.get(),
        length: fields.length.get(),
        checksum: fields.checksum.get(),
    }
}

/// Where the chain stands: what the next block continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the next block.
    pub next: u64,
    /// Checksum of the block before it, or zero.
    pub previous: u32,
    /// Epoch of the block before it; of all further ones, once a store is open.
    pub epoch: u64,
}

impl Position {
    /// Where the journal starts that is to be applied to what a root names.
    pub fn of(root: &Root) -> Self {
        Self {
            next: root.journal_next.get(),
            previous: root.journal_previous.get(),
            epoch: root.epoch.get(),
        }
    }
}

/// A block as it was read.
#[derive(Debug)]
pub(crate) struct Block {
    pub sequence: u64,
    pub epoch: u64,
    pub fenced: u64,
    pub previous: u32,
    pub checksum: u32,
    pub records: Vec<Record>,
}

impl Block {
    /// Judges the bytes of a block that begins with `magic`.
    pub fn decode(uuid: &[u8; 16], magic: &[u8; 8], bytes: &[u8]) -> Option<Self> {
        if !is_sealed(uuid, magic, bytes) {
            return None;
        }
        let header: BlockHeader = read(bytes);
        let count = header.count.get() as usize;
        let is_sane = count <= RECORDS_PER_BLOCK
            && header.fenced.get() < header.sequence.get()
            && header.sequence.get().max(header.epoch.get()) < NUMBER_END;
        if !is_sane {
            return None;
        }
        let records = bytes[size_of::<BlockHeader>()..].chunks(size_of::<RecordOnDisk>());
        Some(Self {
            sequence: header.sequence.get(),
            epoch: header.epoch.get(),
            fenced: header.fenced.get(),
            previous: header.previous.get(),
            checksum: header.checksum.get(),
            records: records.take(count).map(Record::decode).collect::<Option<_>>()?,
        })
    }

    /// Where the chain stands behind it.
    pub fn end(&self) -> Position {
        Position { next: self.sequence + 1, previous: self.checksum, epoch: self.epoch }
    }

    /// Whether it is the block that the chain goes on with.
    pub fn continues(&self, position: &Position) -> bool {
        self.sequence == position.next
            && self.previous == position.previous
            && self.epoch >= position.epoch
    }
}

/// Makes the blocks for `records`, at least one, at the start of `memory`, which grows where it
/// is too small, and moves `position` behind them. They begin with `magic`.
pub(crate) fn encode(
    geometry: &Geometry,
    magic: [u8; 8],
    position: &mut Position,
    fenced: u64,
    records: &[Record],
    memory: &mut AlignedBuffer,
) {
    let count = records.len().div_ceil(RECORDS_PER_BLOCK).max(1);
    let length = count * BLOCK_BYTES as usize;
    if memory.len() < length {
        *memory = AlignedBuffer::zeroed(length.next_power_of_two());
    }
    for (index, block) in memory[..length].chunks_mut(BLOCK_BYTES as usize).enumerate() {
        let records = records.iter().skip(index * RECORDS_PER_BLOCK).take(RECORDS_PER_BLOCK);
        let header = BlockHeader {
            magic,
            count: (records.len() as u32).into(),
            sequence: position.next.into(),
            epoch: position.epoch.into(),
            fenced: fenced.into(),
            previous: position.previous.into(),
            ..BlockHeader::new_zeroed()
        };
        let (start, payload) = block.split_at_mut(size_of::<BlockHeader>());
        start.copy_from_slice(header.as_bytes());
        let (used, free) = payload.split_at_mut(records.len() * size_of::<RecordOnDisk>());
        for (place, record) in used.chunks_mut(size_of::<RecordOnDisk>()).zip(records) {
            place.copy_from_slice(record.encode().as_bytes());
        }
        free.fill(0);
        position.previous = seal(&geometry.uuid, block);
        position.next += 1;
    }
}

/// Where whole blocks go, the first of which has the number `first`: one write, unless they cross
/// the end of the journal.
pub(crate) fn writes<'a>(
    geometry: &Geometry,
    first: u64,
    blocks: &'a [u8],
) -> Vec<(&'a [u8], u64)> {
    let until_end = geometry.journal_blocks - first % geometry.journal_blocks;
    let cut = ((until_end * BLOCK_BYTES) as usize).min(blocks.len());
    let (before, after) = blocks.split_at(cut);
    [(before, first), (after, first + until_end)]
        .into_iter()
        .filter(|(part, _)| !part.is_empty())
        .map(|(part, number)| (part, geometry.journal_offset(number)))
        .collect()
}

/// Reads `count` places of the journal, from that of block `first` on and at most once around, and
/// gives each place's block to `visit`.
pub(crate) fn scan(
    source: &dyn Source,
    geometry: &Geometry,
    first: u64,
    count: u64,
    mut visit: impl FnMut(Block),
) -> Result<()> {
    let until_end = count.min(geometry.journal_blocks - first % geometry.journal_blocks);
    let parts = vec![
        (geometry.journal_offset(first), until_end),
        (geometry.journal_offset(0), count - until_end),
    ];
    read_ahead(source, "journal", parts, |bytes| {
        Block::decode(&geometry.uuid, &JOURNAL_MAGIC, bytes).into_iter().for_each(&mut visit);
        Ok(())
    })
}

/// The changes in the blocks from `start` to `end`; `None` where the journal does not lead there,
/// or has more than `most` records.
pub(crate) fn records(
    source: &dyn Source,
    geometry: &Geometry,
    start: Position,
    end: Position,
    most: usize,
) -> Option<Vec<Record>> {
    let (mut records, mut position) = (Vec::new(), start);
    scan(source, geometry, start.next, end.next - start.next, |block| {
        if block.continues(&position) && records.len() <= most {
            position = block.end();
            records.extend(block.records.into_iter().filter(Record::is_change));
        }
    })
    .ok()?;
    let leads_there = (position.next, position.previous) == (end.next, end.previous);
    (leads_there && records.len() <= most).then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CreateOptions;

    /// A block of the right number and epoch that followed another one is no continuation: what it says may build
    /// on records that are not there.
    #[test]
    fn a_block_continues_the_one_block_that_it_was_written_behind() {
        let geometry = Geometry::plan(1 << 20, 512, &CreateOptions::default()).unwrap();
        let start = Position { next: 1, previous: 0, epoch: 3 };
        let chain = |keys: [u128; 2]| {
            let (mut position, mut memory) = (start, AlignedBuffer::zeroed(0));
            keys.map(|key| {
                let records = [Record::Delete(key)];
                encode(&geometry, JOURNAL_MAGIC, &mut position, 0, &records, &mut memory);
                let bytes = &memory[..BLOCK_BYTES as usize];
                Block::decode(&geometry.uuid, &JOURNAL_MAGIC, bytes).unwrap()
            })
        };
        let ([first, second], [other, _]) = (chain([1, 2]), chain([8, 2]));
        assert!(first.continues(&start) && second.continues(&first.end()));
        assert_eq!(first.end().next, other.end().next);
        assert!(!second.continues(&other.end()), "it was written behind another block");
        assert!(!first.continues(&first.end()), "it has another number");
        assert!(!second.continues(&Position { epoch: 4, ..first.end() }), "it is older");
    }
}
