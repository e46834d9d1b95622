//! What a store holds, read from its device: the newest checkpoint and the journal after it.
//!
//! Writes nothing. The journal counts up to its last block of which everything is there: blocks
//! that a later one (or the root) calls durable count as they are, the few others only if every
//! extent that they name verifies. Invariants: where a block is missing that was durable for sure, the
//! store is damaged; where nothing proves that what is left out was durable, that is told and counted.

use block::AlignedBuffer;

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::extent::{Extent, Placed, Stamp, Value, find_placed};
use crate::geometry::{Geometry, STORE_BLOCKS_MAX, read_block};
use crate::index::{Entry, Index};
use crate::journal::{self, Block, Position, Record};
use crate::layout::{
    BLOCK_BYTES, BlockHeader, JOURNAL_MAGIC, Root, VALUE_BYTES_MAX, WINDOW_BYTES_MAX, read,
};
use crate::medium::Source;
use crate::sabotage::Sabotage;
use crate::space::Space;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock, thread};
use crate::window::Announced;

/// Bits of the number of units of an extent; the others are enough for its first unit.
const EXTENT_BITS: u32 = 22;
// The tail of a value is much less than half of it.
const _: () = assert!(VALUE_BYTES_MAX / 512 * 3 / 2 < 1 << EXTENT_BITS);
const _: () = assert!(STORE_BLOCKS_MAX * (BLOCK_BYTES / 512) < 1 << (u64::BITS - EXTENT_BITS));

/// How many read at the same time what the last blocks name.
const READERS: usize = 8;

/// The state of a store.
pub(crate) struct Recovered {
    pub index: Index,
    pub space: Space,
    pub root: Root,
    /// Where the journal ends.
    pub position: Position,
    /// The block from which on it announces a window.
    pub announced: Option<Position>,
    /// Puts that were found in the window, in order; the journal does not know of them.
    pub found: Vec<Record>,
    /// The greatest epoch that was seen anywhere.
    pub epoch: u64,
    pub left_out: LeftOut,
}

/// What an opening found and left out, since nothing on the medium proves that it was durable. Either
/// power failed before it was, or it decayed since.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// What, where and why.
    pub reasons: Vec<String>,
    /// Puts among it, as far as they can be told.
    pub values: u64,
}

/// The journal as it is on the medium.
struct Journal {
    /// What the root names, and what continues it.
    chain: Vec<Block>,
    /// All blocks up to this one were durable.
    fenced: u64,
    /// The greatest epoch of any block.
    epoch: u64,
    /// What is there of blocks after the chain.
    rest: LeftOut,
}

/// Reads the state; `sabotage` is for the canaries.
pub(crate) fn recover(
    source: &dyn Source,
    geometry: &Geometry,
    sabotage: Sabotage,
) -> Result<Recovered> {
    let roots =
        [checkpoint::read_root(source, geometry, 0)?, checkpoint::read_root(source, geometry, 1)?];
    let root = roots.into_iter().flatten().max_by_key(|root| root.generation.get());
    let root = root.ok_or_else(|| Error::Damaged("both roots, in blocks 1 and 2".into()))?;
    let index = checkpoint::load(source, geometry, &root)?;
    let mut records = checkpoint::load_additions(source, geometry, &root)?;
    if sabotage == Sabotage::ForgetAdditions {
        records.clear();
    }

    let mut position = Position::of(&root);
    let Journal { chain, mut fenced, epoch, rest: mut left_out } =
        read_journal(source, geometry, &root)?;
    // A put in the newest window says that what announces it was durable, and all before.
    let (mut newest, mut at, mut unproven) = (Announced::default(), position, Vec::new());
    for block in &chain {
        unproven.push(newest.follow(at, block));
        at = block.end();
    }
    let mut placed = find(source, geometry, &newest, sabotage)?;
    if !placed.whole.is_empty() {
        fenced = fenced.max(newest.last_block);
    }
    let first = chain.partition_point(|block| block.sequence <= fenced);
    let mut outcomes = match sabotage {
        Sabotage::TrustRecords => Vec::new(),
        _ => verify_all(source, geometry, &chain[first..], &unproven[first..]),
    }
    .into_iter();
    let mut window = Announced::default();
    for (number, block) in chain.iter().enumerate() {
        if block.sequence > fenced {
            match outcomes.next() {
                Some(Err(error @ Error::Corrupt { .. })) => {
                    let rest = &chain[number..];
                    left_out.values += rest.iter().map(put_count).sum::<u64>();
                    let what =
                        format!("journal block {} and what follows: {error}", block.sequence);
                    left_out.reasons.push(what);
                    break;
                }
                outcome => outcome.transpose()?.unwrap_or_default(),
            }
        }
        window.follow(position, block);
        position = block.end();
        records.extend(block.records.iter().filter(|record| record.is_change()));
    }
    if window.position != newest.position {
        placed = find(source, geometry, &window, sabotage)?;
    }
    if sabotage != Sabotage::FindAgain {
        placed.whole.retain(|(_, sequence)| !window.recorded.contains(sequence));
    }
    placed.broken.retain(|(_, sequence)| !window.recorded.contains(sequence));
    left_out.values += placed.broken.len() as u64;
    left_out.reasons.extend(placed.broken.iter().map(|(entry, _)| {
        format!(
            "key {:032x}, {} bytes in the extent at byte {}, which no journal block names: the value \
             is not whole",
            entry.key,
            entry.length,
            geometry.unit_offset(entry.start)
        )
    }));
    let record = |(entry, sequence)| Record::Put { entry, sequence };
    let found: Vec<Record> = placed.whole.into_iter().map(record).collect();
    records.extend(&found);
    apply(geometry, &index, &mut records)?;
    if index.count() > geometry.objects_max + crate::geometry::OBJECTS_SPARE {
        return Err(Error::Damaged(format!("{} objects are too many", index.count())));
    }
    let space = free_space(geometry, &index)?;
    let announced = window.position;
    Ok(Recovered { index, space, root, position, announced, found, epoch, left_out })
}

fn put_count(block: &Block) -> u64 {
    block.records.iter().filter(|record| matches!(record, Record::Put { .. })).count() as u64
}

/// Reads the whole journal.
fn read_journal(source: &dyn Source, geometry: &Geometry, root: &Root) -> Result<Journal> {
    let mut chain: Vec<Block> = Vec::new();
    let mut end = Position::of(root);
    let (mut fenced, mut epoch, mut later) = (root.fenced.get(), root.epoch.get(), Vec::new());
    journal::scan(source, geometry, end.next, geometry.journal_blocks, |block| {
        fenced = fenced.max(block.fenced);
        epoch = epoch.max(block.epoch);
        if block.continues(&end) {
            end = block.end();
            chain.push(block);
        } else if block.sequence >= end.next {
            later.push((block.sequence, block.epoch, put_count(&block)));
        }
    })?;
    let offset = geometry.journal_offset(end.next);
    if fenced >= end.next {
        return Err(Error::Damaged(format!(
            "journal block {}, at byte {offset}: it is not there, and others say that blocks up to \
             {fenced} were durable",
            end.next,
        )));
    }
    // Of an earlier epoch is what an earlier opening left out.
    later.retain(|(sequence, epoch, _)| *sequence > end.next && *epoch >= end.epoch);
    let values = later.iter().map(|(.., puts)| puts).sum();
    let mut rest = LeftOut { values, ..LeftOut::default() };
    let block = read_block(source, offset / BLOCK_BYTES)?;
    let header: BlockHeader = read(&block);
    let is_there = block.starts_with(&JOURNAL_MAGIC)
        && header.sequence.get() == end.next
        && header.epoch.get() >= end.epoch;
    if is_there || !later.is_empty() {
        rest.reasons.push(format!(
            "journal block {}, at byte {offset}, and what follows: it is not whole",
            end.next
        ));
    }
    Ok(Journal { chain, fenced, epoch, rest })
}

/// The puts in a window, in order.
fn find(
    source: &dyn Source,
    geometry: &Geometry,
    window: &Announced,
    sabotage: Sabotage,
) -> Result<Placed> {
    let least = match sabotage {
        Sabotage::FindStale => Stamp { sequence: 0, ..window.least },
        _ => window.least,
    };
    let (mut found, mut memory) = (Placed::default(), AlignedBuffer::zeroed(0));
    let mut left = WINDOW_BYTES_MAX;
    for &(start, units) in &window.ranges {
        let end = start.checked_add(units).filter(|end| *end <= geometry.unit_count());
        let bytes = end.map(|_| units * geometry.unit_bytes).filter(|bytes| *bytes <= left);
        let bytes = bytes.ok_or_else(|| {
            Error::Damaged(format!(
                "the journal announces a window of {units} units from {start} on"
            ))
        })?;
        left -= bytes;
        if memory.len() < bytes as usize {
            memory = AlignedBuffer::zeroed(bytes as usize);
        }
        let memory = &mut memory[..bytes as usize];
        let offset = geometry.unit_offset(start);
        if source.read_into(memory, offset).is_err() {
            // A second try, and the place of what cannot be read: there may be a put that was
            // answered, of which nothing else tells.
            let units = memory.chunks_mut(geometry.unit_bytes as usize);
            for (unit, at) in units.zip((offset..).step_by(geometry.unit_bytes as usize)) {
                source.read_into(unit, at).map_err(Error::device(format!(
                    "read byte {at}, where a put may be that the journal does not name yet; zeros \
                     written there give it up"
                )))?;
            }
        }
        find_placed(geometry, memory, start, least, &mut found);
    }
    found.whole.sort_unstable_by_key(|(_, sequence)| *sequence);
    Ok(found)
}

/// Of each block what [`verify`] says of those of its puts that nothing proves, in order. Small extents
/// are read several at a time.
fn verify_all(
    source: &dyn Source,
    geometry: &Geometry,
    blocks: &[Block],
    unproven: &[Vec<(Entry, u64)>],
) -> Vec<Result<()>> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..blocks.len().min(READERS) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(block) = blocks.get(number) else { return };
                    let outcome = verify(source, geometry, block.epoch, &unproven[number]);
                    lock(&outcomes).push((number, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no thread panics while it holds them");
    outcomes.sort_unstable_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Whether the extents of puts of an epoch are on the medium as they were put.
fn verify(
    source: &dyn Source,
    geometry: &Geometry,
    epoch: u64,
    puts: &[(Entry, u64)],
) -> Result<()> {
    let mut value = Value::zeroed(0);
    for &(entry, sequence) in puts {
        checkpoint::check_bounds(geometry, &entry)?;
        let found = Extent { geometry, entry }.read_all(source, &mut value)?;
        let expected = Stamp { epoch, sequence };
        if found != expected {
            return Err(Error::Corrupt {
                key: entry.key,
                offset: geometry.unit_offset(entry.start),
                length_bytes: u64::from(entry.length),
                what: format!("the put is {found:?}, not {expected:?}; the trailer's sum"),
                expected: entry.checksum,
                found: entry.checksum,
            });
        }
    }
    Ok(())
}

/// Makes the changes of the index that records tell. Between deletes of ranges only the order of
/// those of one key matters, and neighbouring keys one after the other are quicker.
fn apply(geometry: &Geometry, index: &Index, records: &mut [Record]) -> Result<()> {
    let is_range = |record: &Record| matches!(record, Record::DeleteRange { .. });
    for run in records.chunk_by_mut(|one, next| !is_range(one) && !is_range(next)) {
        run.sort_by_key(Record::key);
        for record in run {
            match *record {
                Record::Put { entry, .. } => {
                    checkpoint::check_bounds(geometry, &entry)?;
                    index.shard_mut(entry.key).insert(entry);
                }
                Record::Delete(key) => drop(index.shard_mut(key).remove(key)),
                Record::DeleteRange { first, last } => drop(index.remove_range(&(first..=last))),
                Record::Window { .. } | Record::Range { .. } => {}
            }
        }
    }
    Ok(())
}

/// Everything that no object has; an error where two objects have the same.
fn free_space(geometry: &Geometry, index: &Index) -> Result<Space> {
    // First unit and number of units in one word, which takes half of the memory and of the time.
    let mut used: Vec<u64> = Vec::with_capacity(index.count() as usize + 1);
    for shard in index.shards() {
        shard.entries().for_each(|entry| {
            used.push(entry.start << EXTENT_BITS | entry.units(geometry));
        });
    }
    used.sort_unstable();
    used.push(geometry.unit_count() << EXTENT_BITS);
    let (mut free, mut end) = (Vec::new(), 0);
    for extent in used {
        let (start, units) = (extent >> EXTENT_BITS, extent & ((1 << EXTENT_BITS) - 1));
        if start < end {
            return Err(Error::Damaged(format!(
                "two values have unit {start}, at byte {}",
                geometry.unit_offset(start)
            )));
        }
        if start > end {
            free.push((end, start - end));
        }
        end = start + units;
    }
    Ok(Space::new(free))
}
