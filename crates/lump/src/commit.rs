//! Group commit: how changes become durable, in which order, and when space comes back.
//!
//! Whoever finds nobody at work leads: it takes all that waits, writes one run of journal blocks,
//! flushes once, changes the index and answers. What comes meanwhile waits for the next leader: so
//! a lone change is flushed at once, and many share the flush that follows the outstanding one.
//! The order of the journal is the order of the index. A failed write of the journal or a failed
//! flush ends all writing. The argument for correctness is in `docs/format-lump.md`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::extent::unit_count;
use crate::index::Entry;
use crate::journal::{self, Position, Record};
use crate::layout::{RECORDS_PER_BLOCK, Root};
use crate::store::{Durability, Sabotage, Store};

/// What may be written without a flush, in bytes: an opening after a crash reads it again.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;
/// Most journal blocks that share a flush.
const BATCH_BLOCKS_MAX: u64 = 64;

/// What is asked of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Change the index.
    Change(Record),
    /// Make all changes before durable.
    Sync,
    /// The same, and tell so in the journal.
    Fence,
}

pub(crate) struct Request {
    act: Act,
    durability: Durability,
    /// How many objects the change took away, once it has been made.
    outcome: Arc<OnceLock<u64>>,
}

/// The end of the journal, in the hands of the leader.
pub(crate) struct Writer {
    position: Position,
    /// The last block that a flush covers.
    durable: u64,
    /// How far the last block that was written says that all is durable.
    stated: u64,
    /// The same of the last block that a flush covers: what blocks up to this one gave up may be
    /// used again.
    fence: u64,
    /// Whether the last block is there only to say so.
    ends_with_fence: bool,
    /// Bytes of data and journal since the last flush.
    unflushed_bytes: u64,
    /// For a canary.
    owes_flush: bool,
}

/// Who waits, and the writer while nobody leads.
pub(crate) struct Queue {
    waiting: VecDeque<Request>,
    writer: Option<Writer>,
    /// All blocks before this are in the index.
    pub applied: Position,
}

impl Queue {
    /// A queue for a journal that ends at `position`, all of it durable.
    pub fn new(position: Position) -> Self {
        let durable = position.next - 1;
        let writer = Writer {
            position,
            durable,
            stated: durable,
            fence: durable,
            ends_with_fence: false,
            unflushed_bytes: 0,
            owes_flush: false,
        };
        Self { waiting: VecDeque::new(), writer: Some(writer), applied: position }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds a lock of the store")
}

impl Store {
    /// Makes an opening durable: what was read from the journal, and that what was left out of it
    /// never counts again. Only then data may be written.
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        self.flush_device()?;
        let next = lock(&self.queue).applied.next;
        if next - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks / 2 {
            self.checkpoint(lock(&self.root))?;
        }
        // The block of the fence takes the place of the first that was left out.
        self.submit(Act::Fence, Durability::Durable).map(drop)
    }

    /// Has `act` done and waits for it; returns how many objects it took away.
    pub(crate) fn submit(&self, act: Act, durability: Durability) -> Result<u64> {
        self.writable()?;
        let outcome = Arc::new(OnceLock::new());
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(Request { act, durability, outcome: outcome.clone() });
        let count = loop {
            if let Some(count) = outcome.get() {
                break *count;
            }
            self.writable()?;
            let Some(mut writer) = queue.writer.take() else {
                queue = self.parked.wait(queue).expect("no thread panics while it holds the queue");
                continue;
            };
            let blocks = (self.geometry.journal_blocks / 4).min(BATCH_BLOCKS_MAX);
            let most = queue.waiting.len().min(blocks as usize * RECORDS_PER_BLOCK);
            let batch: Vec<Request> = queue.waiting.drain(..most).collect();
            drop(queue);
            let done = self.carry_out(&mut writer, &batch);
            queue = lock(&self.queue);
            match done {
                Ok(()) => queue.applied = writer.position,
                Err(error) => self.refuse(error.to_string()),
            }
            queue.writer = Some(writer);
            self.parked.notify_all();
        };
        drop(queue);
        self.checkpoint_when_due();
        Ok(count)
    }

    fn carry_out(&self, writer: &mut Writer, batch: &[Request]) -> Result<()> {
        if std::mem::take(&mut writer.owes_flush) {
            self.flush_device()?;
        }
        let has = |act| batch.iter().any(|request| request.act == act);
        let is_fenced = writer.ends_with_fence && writer.durable + 1 == writer.position.next;
        let is_fence_due = has(Act::Fence) && !is_fenced;
        if is_fence_due {
            self.flush(writer)?;
        }
        let records: Vec<Record> = batch
            .iter()
            .filter_map(|request| match request.act {
                Act::Change(record) => Some(record),
                Act::Sync | Act::Fence => None,
            })
            .collect();
        if !records.is_empty() || is_fence_due {
            self.write_blocks(writer, &records)?;
        }
        let is_durable = batch.iter().any(|request| request.durability == Durability::Durable);
        if is_durable || writer.unflushed_bytes > UNFLUSHED_BYTES_MAX {
            self.flush(writer)?;
        }
        self.apply(writer, batch);
        Ok(())
    }

    /// Writes the next blocks of the journal; makes a checkpoint first where there is no room.
    fn write_blocks(&self, writer: &mut Writer, records: &[Record]) -> Result<()> {
        let first = writer.position.next;
        let end = first + records.len().div_ceil(RECORDS_PER_BLOCK).max(1) as u64;
        while end - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks {
            self.checkpoint(lock(&self.root))?;
        }
        let blocks = journal::encode(&self.geometry, &mut writer.position, writer.durable, records);
        journal::write(&*self.device, &self.geometry, first, &blocks)?;
        writer.stated = writer.durable;
        writer.ends_with_fence = records.is_empty() && writer.durable + 1 == first;
        let data_bytes = records.iter().map(|record| match record {
            Record::Put { entry, .. } => u64::from(entry.length),
            _ => 0,
        });
        writer.unflushed_bytes += blocks.len() as u64 + data_bytes.sum::<u64>();
        Ok(())
    }

    /// Makes all that was written durable.
    fn flush(&self, writer: &mut Writer) -> Result<()> {
        let durable = writer.position.next - 1;
        if durable == writer.durable {
            return Ok(());
        }
        if self.sabotage == Sabotage::AcknowledgeEarly {
            writer.owes_flush = true;
        } else {
            self.flush_device()?;
        }
        writer.durable = durable;
        writer.fence = writer.stated;
        writer.unflushed_bytes = 0;
        Ok(())
    }

    /// A flush that failed may have lost any write, and a later one may succeed all the same: so
    /// nobody flushes before the refusal stands.
    fn flush_device(&self) -> Result<()> {
        let _turn = lock(&self.flushing);
        self.writable()?;
        if self.sabotage == Sabotage::SkipFlush {
            return Ok(());
        }
        self.device.flush().map_err(Error::device("flush the device")).inspect_err(|error| {
            self.refuse(error.to_string());
        })
    }

    /// Changes the index as the journal says, gives space back and answers.
    fn apply(&self, writer: &Writer, batch: &[Request]) {
        let mut given_up = Vec::new();
        let applying = lock(&self.applying);
        let counts: Vec<u64> =
            batch.iter().map(|request| self.apply_one(request.act, &mut given_up)).collect();
        drop(applying);
        let mut space = lock(&self.space);
        for entry in &given_up {
            let units = unit_count(&self.geometry, u64::from(entry.length));
            space.retire(writer.position.next - 1, entry.start, units);
        }
        let fence = match self.sabotage {
            Sabotage::ReuseEarly => u64::MAX,
            Sabotage::ReuseUnfenced => writer.durable,
            _ => writer.fence,
        };
        space.release(fence, &self.pins);
        drop(space);
        for (request, count) in batch.iter().zip(counts) {
            // Nobody else answers this request.
            let _ = request.outcome.set(count);
        }
    }

    fn apply_one(&self, act: Act, given_up: &mut Vec<Entry>) -> u64 {
        let before = given_up.len();
        match act {
            Act::Change(Record::Put { entry, .. }) => {
                given_up.extend(self.index.shard_mut(entry.key).insert(entry));
            }
            Act::Change(Record::Delete(key)) => {
                given_up.extend(self.index.shard_mut(key).remove(key));
            }
            Act::Change(Record::DeleteRange { first, last }) => {
                given_up.extend(self.index.remove_range(&(first..=last)));
            }
            Act::Sync | Act::Fence => {}
        }
        let count = (given_up.len() - before) as u64;
        self.objects.fetch_sub(count, Ordering::Relaxed);
        count
    }

    /// Makes a checkpoint where half of the journal is used and nobody else makes one. The one
    /// whose change was the last does it, after its answer is certain.
    fn checkpoint_when_due(&self) {
        let next = lock(&self.queue).applied.next;
        // Another's checkpoint may have come in between, with a later start.
        let used = next.saturating_sub(self.journal_start.load(Ordering::Relaxed));
        if used <= self.geometry.journal_blocks / 2 {
            return;
        }
        if let Ok(root) = self.root.try_lock()
            && let Err(error) = self.checkpoint(root)
        {
            self.refuse(error.to_string());
        }
    }

    /// Writes the index as it is, while it changes, and a root behind it. Every change that is
    /// made meanwhile is in the journal after the place that the root names, and applied again
    /// gives the same: so it does not matter which of them the checkpoint shows.
    fn checkpoint(&self, mut root: MutexGuard<'_, Root>) -> Result<()> {
        let from = lock(&self.queue).applied;
        if from.next == root.journal_next.get() {
            return Ok(());
        }
        let generation = root.generation.get() + 1;
        let write = || checkpoint::write(&*self.device, &self.geometry, generation, &self.index);
        let (blocks, objects) = match write()? {
            Some(written) => written,
            None => {
                let _standing_still = lock(&self.applying);
                write()?.expect("as many objects as the store may hold fit an area")
            }
        };
        // What the checkpoint shows was written before; the flush makes all of it durable.
        let through = lock(&self.queue).applied.next - 1;
        if self.sabotage != Sabotage::RootEarly {
            self.flush_device()?;
        }
        let new = Root {
            generation: generation.into(),
            checkpoint_blocks: blocks.into(),
            objects: objects.into(),
            journal_next: from.next.into(),
            journal_previous: from.previous.into(),
            epoch: from.epoch.into(),
            fenced: through.into(),
            ..*root
        };
        checkpoint::write_root(&*self.device, &self.geometry, &new)?;
        if self.sabotage != Sabotage::JournalEarly {
            self.flush_device()?;
        }
        self.journal_start.store(from.next, Ordering::Relaxed);
        *root = new;
        Ok(())
    }
}
