//! Checkpoints: the whole index in one of two areas, what was added to it since, and the root that
//! makes both count.
//!
//! Additions are records of the journal, close together: so that a checkpoint of many objects need
//! not be written anew for each journal of few changes.
//!
//! Knows nothing of the order in which things must become durable; that is the caller's.
//! Invariant: what is read back is complete and of one generation, or an error.

use block::AlignedBuffer;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::geometry::{Geometry, TRANSFER_BLOCKS, read_ahead, read_block};
use crate::index::{Entry, Index, Walk};
use crate::journal::{self, Block, Position, Record, decode_entry, encode_entry};
use crate::layout::{
    ADDITIONS_MAGIC, BLOCK_BYTES, BlockHeader, CHECKPOINT_MAGIC, ENTRIES_PER_BLOCK, EntryOnDisk,
    NUMBER_END, RECORDS_PER_BLOCK, ROOT_MAGIC, ROOTS_BLOCK, Root, VALUE_BYTES_MAX, is_sealed, read,
    seal,
};
use crate::medium::{Permit, Source};

/// Additions are at most this part of their checkpoint: what an opening reads and applies.
const ADDITIONS_SHARE: u64 = 8;
/// So many blocks of additions are few beside any checkpoint.
const ADDITIONS_BLOCKS_MIN: u64 = 4;

/// The number of the checkpoint that a root names.
pub(crate) fn number(root: &Root) -> u64 {
    root.generation.get() - root.additions.get()
}

/// Where the chain of the additions stands.
fn additions_end(root: &Root) -> Position {
    Position {
        next: root.added_blocks.get() + 1,
        previous: root.added_checksum.get(),
        epoch: number(root),
    }
}

/// Writes the records of the journal up to `until` behind what a root names. Returns the number of
/// blocks of all additions and the checksum of the last; or `None` where they would become too many
/// or the journal does not say what it should.
pub(crate) fn add(
    permit: Permit<'_>,
    source: &dyn Source,
    geometry: &Geometry,
    root: &Root,
    until: Position,
) -> Result<Option<(u64, u32)>> {
    let blocks = root.checkpoint_blocks.get();
    let most =
        (blocks / ADDITIONS_SHARE).max(ADDITIONS_BLOCKS_MIN).min(geometry.area_blocks - blocks);
    let room = most.saturating_sub(root.added_blocks.get()) as usize * RECORDS_PER_BLOCK;
    // A first checkpoint is small.
    if blocks == 0 || room == 0 {
        return Ok(None);
    }
    let Some(records) = journal::records(source, geometry, Position::of(root), until, room) else {
        return Ok(None);
    };
    let (mut end, mut memory) = (additions_end(root), AlignedBuffer::zeroed(0));
    for part in records.chunks(TRANSFER_BLOCKS * RECORDS_PER_BLOCK) {
        let first = end.next;
        journal::encode(geometry, ADDITIONS_MAGIC, &mut end, 0, part, &mut memory);
        let bytes = &memory[..((end.next - first) * BLOCK_BYTES) as usize];
        let offset = additions_offset(geometry, root, first);
        permit.write_metadata(bytes, offset, "write to a checkpoint")?;
    }
    Ok(Some((end.next - 1, end.previous)))
}

/// Where a block of additions lies, in bytes.
fn additions_offset(geometry: &Geometry, root: &Root, sequence: u64) -> u64 {
    let block = root.checkpoint_blocks.get() + sequence - 1;
    geometry.area_offset(number(root)) + block * BLOCK_BYTES
}

/// Reads the additions that a root names: their records, in order.
pub(crate) fn load_additions(
    source: &dyn Source,
    geometry: &Geometry,
    root: &Root,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut end = Position { next: 1, previous: 0, epoch: number(root) };
    let damaged = |sequence: u64| {
        let offset = additions_offset(geometry, root, sequence);
        Error::Damaged(format!(
            "block {sequence} of what was added to the checkpoint, at byte {offset}"
        ))
    };
    let parts = vec![(additions_offset(geometry, root, 1), root.added_blocks.get())];
    read_ahead(source, "checkpoint", parts, |bytes| {
        let block = Block::decode(&geometry.uuid, &ADDITIONS_MAGIC, bytes);
        let block = block.filter(|block| block.continues(&end) && block.epoch == end.epoch);
        let block = block.ok_or_else(|| damaged(end.next))?;
        end = block.end();
        records.extend(block.records);
        Ok(())
    })?;
    if end == additions_end(root) { Ok(records) } else { Err(damaged(root.added_blocks.get())) }
}

/// Writes the checkpoint of a number. Returns its blocks and objects, or `None` where the
/// objects changed so much meanwhile that what was seen of them does not fit the area.
pub(crate) fn write(
    permit: Permit<'_>,
    geometry: &Geometry,
    generation: u64,
    index: &Index,
) -> Result<Option<(u64, u64)>> {
    let (mut blocks, mut objects) = (0, 0);
    let mut buffer = AlignedBuffer::zeroed(TRANSFER_BLOCKS * BLOCK_BYTES as usize);
    let (mut walk, mut entries) = (Walk::default(), Vec::new());
    loop {
        // Entries are copied before they are written, so that nobody waits for the device.
        entries.clear();
        index.fill(&mut walk, &mut entries, TRANSFER_BLOCKS * ENTRIES_PER_BLOCK);
        if entries.is_empty() {
            return Ok(Some((blocks, objects)));
        }
        let count = entries.len().div_ceil(ENTRIES_PER_BLOCK) as u64;
        if blocks + count > geometry.area_blocks {
            return Ok(None);
        }
        let bytes = &mut buffer[..(count * BLOCK_BYTES) as usize];
        encode(geometry, generation, blocks, &entries, bytes);
        let offset = geometry.area_offset(generation) + blocks * BLOCK_BYTES;
        permit.write_metadata(bytes, offset, "write a checkpoint")?;
        blocks += count;
        objects += entries.len() as u64;
    }
}

fn encode(geometry: &Geometry, generation: u64, first: u64, entries: &[Entry], bytes: &mut [u8]) {
    bytes.fill(0);
    let blocks = bytes.chunks_mut(BLOCK_BYTES as usize).zip(entries.chunks(ENTRIES_PER_BLOCK));
    for (number, (block, entries)) in (first..).zip(blocks) {
        let header = BlockHeader {
            magic: CHECKPOINT_MAGIC,
            count: (entries.len() as u32).into(),
            sequence: number.into(),
            epoch: generation.into(),
            ..BlockHeader::new_zeroed()
        };
        let (start, payload) = block.split_at_mut(size_of::<BlockHeader>());
        start.copy_from_slice(header.as_bytes());
        for (place, entry) in payload.chunks_mut(size_of::<EntryOnDisk>()).zip(entries) {
            place.copy_from_slice(encode_entry(entry).as_bytes());
        }
        seal(&geometry.uuid, block);
    }
}

/// The block of a root.
pub(crate) fn root_block(geometry: &Geometry, root: &Root) -> AlignedBuffer {
    let mut block = AlignedBuffer::copied_from(root.as_bytes());
    seal(&geometry.uuid, &mut block);
    block
}

/// Writes a root to the place of its generation.
pub(crate) fn write_root(permit: Permit<'_>, geometry: &Geometry, root: &Root) -> Result<()> {
    let action = format!("write root {}", root.generation);
    let offset = geometry.root_offset(root.generation.get());
    permit.write_metadata(&root_block(geometry, root), offset, &action)
}

/// Reads one of the two roots; `None` when it is not whole.
pub(crate) fn read_root(
    source: &dyn Source,
    geometry: &Geometry,
    place: u64,
) -> Result<Option<Root>> {
    let block = read_block(source, ROOTS_BLOCK + place)?;
    let root: Root = read(&block);
    let is_whole = is_sealed(&geometry.uuid, &ROOT_MAGIC, &block)
        && root.generation.get() % 2 == place
        && root.checkpoint_blocks.get() <= geometry.area_blocks
        && root.added_blocks.get() <= geometry.area_blocks - root.checkpoint_blocks.get()
        && root.additions.get() <= root.generation.get()
        && [root.generation, root.journal_next, root.epoch, root.fenced]
            .iter()
            .all(|number| number.get() < NUMBER_END);
    Ok(is_whole.then_some(root))
}

/// Reads the checkpoint that a root speaks of.
pub(crate) fn load(source: &dyn Source, geometry: &Geometry, root: &Root) -> Result<Index> {
    let mut index = Index::default();
    let generation = number(root);
    let mut number = 0;
    let (start, blocks) = (geometry.area_offset(generation), root.checkpoint_blocks.get());
    read_ahead(source, "checkpoint", vec![(start, blocks)], |block| {
        load_block(geometry, generation, number, block, &mut index)?;
        number += 1;
        Ok(())
    })?;
    if index.count() != root.objects.get() {
        return Err(Error::Damaged(format!(
            "checkpoint {generation} has {} objects, and its root states {}",
            index.count(),
            root.objects
        )));
    }
    Ok(index)
}

fn load_block(
    geometry: &Geometry,
    generation: u64,
    number: u64,
    block: &[u8],
    index: &mut Index,
) -> Result<()> {
    let damaged = |why: &str| {
        let offset = geometry.area_offset(generation) + number * BLOCK_BYTES;
        Error::Damaged(format!("block {number} of the checkpoint, at byte {offset}: {why}"))
    };
    let header: BlockHeader = read(block);
    let count = header.count.get() as usize;
    if !is_sealed(&geometry.uuid, &CHECKPOINT_MAGIC, block) {
        return Err(damaged("its checksum does not match"));
    }
    let is_own = header.sequence.get() == number && header.epoch.get() == generation;
    if !is_own || count > ENTRIES_PER_BLOCK {
        return Err(damaged("it is another block"));
    }
    let entries = block[size_of::<BlockHeader>()..].chunks(size_of::<EntryOnDisk>()).take(count);
    for entry in entries.map(decode_entry) {
        check_bounds(geometry, &entry)?;
        if !index.add(entry) {
            return Err(damaged(&format!("it has key {:032x} a second time", entry.key)));
        }
    }
    Ok(())
}

/// Refuses an entry that speaks of bytes which the store does not have.
pub(crate) fn check_bounds(geometry: &Geometry, entry: &Entry) -> Result<()> {
    let end = entry.start.checked_add(entry.units(geometry));
    let is_inside = end.is_some_and(|end| end <= geometry.unit_count());
    if is_inside && u64::from(entry.length) <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Damaged(format!(
        "key {:032x} has {} bytes from unit {} on, and the store has {} units",
        entry.key,
        entry.length,
        entry.start,
        geometry.unit_count()
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use block::{BlockDevice, MemoryDevice};
    use zerocopy::FromZeros;

    use super::*;
    use crate::medium::Medium;
    use crate::metrics::Counters;
    use crate::sabotage::Sabotage;
    use crate::{CreateOptions, OpenOptions, Store};

    /// `LUMP_OPEN_OBJECTS` sets how many; the time and memory of an opening are printed.
    #[test]
    fn a_store_opens_with_all_objects_of_its_checkpoint() {
        let wanted = std::env::var("LUMP_OPEN_OBJECTS").ok().and_then(|text| text.parse().ok());
        // Enough for several transfers.
        let count: u64 = wanted.unwrap_or(150_000);
        let device = Arc::new(MemoryDevice::new((count + 4096) * 1024 / 4096 * 4096, 512));
        let options = CreateOptions { objects_max: Some(count), ..Default::default() };
        let geometry = Store::create(&*device, &options).unwrap();
        let counters = Arc::new(Counters::new(geometry.uuid()));
        let medium = Medium::new(device.clone(), counters, Sabotage::None);
        let permit = medium.permit().unwrap();
        let index = Index::default();
        for number in 0..count {
            // An odd factor makes every key different, and its neighbours far away.
            let key = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 60;
            let entry = Entry { key, start: number, length: 400, checksum: 0 };
            index.shard_mut(key).insert(entry);
        }
        let (blocks, objects) = write(permit, &geometry, 1, &index).unwrap().unwrap();
        drop(index);
        let mut root = Root::new_zeroed();
        root.magic = ROOT_MAGIC;
        root.generation = 1.into();
        root.checkpoint_blocks = blocks.into();
        root.objects = objects.into();
        root.journal_next = 1.into();
        write_root(permit, &geometry, &root).unwrap();
        let start = Instant::now();
        let store = Store::open(device.clone(), &OpenOptions::default()).unwrap();
        let elapsed = start.elapsed();
        let usage = store.usage();
        assert_eq!(usage.objects, count);
        let free_units = usage.free_bytes / geometry.unit_bytes();
        assert_eq!(free_units, geometry.unit_count() - count);
        println!(
            "{count} objects: {:.2} s, {:.1} bytes of memory an object",
            elapsed.as_secs_f64(),
            usage.index_bytes as f64 / count as f64
        );
        drop(store);
        for damaged in [TRANSFER_BLOCKS as u64 + 5, blocks - 1] {
            let offset = geometry.area_offset(1) + damaged * BLOCK_BYTES;
            let mut block = read_block(&device, offset / BLOCK_BYTES).unwrap();
            block[100] ^= 1;
            device.write_at(&block, offset).unwrap();
            let error = Store::open(device.clone(), &OpenOptions::default()).err().unwrap();
            assert!(error.to_string().contains(&format!("block {damaged} of the ch")), "{error}");
            block[100] ^= 1;
            device.write_at(&block, offset).unwrap();
        }
    }
}
