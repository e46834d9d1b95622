//! Group commit: how changes become durable, in which order, and when space comes back.
//!
//! Whoever finds nobody at work leads: it takes all that waits, writes the data of the small puts
//! and one run of journal blocks at once, flushes once, changes the index and answers. What comes
//! meanwhile waits for the next leader: so a lone change is flushed at once, and many share the
//! flush that follows the outstanding one. The order of the journal is the order of the index. A
//! durable put in the window (`window`) goes past all this while nobody leads, and the next leader
//! tells the journal of it before anything else. A failed write of the journal or a failed flush
//! ends all writing. The argument for correctness is in `lump/docs/format-lump.md`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use block::AlignedBuffer;

use crate::data::{Data, Memory};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::index::Entry;
use crate::journal::{self, Position, Record};
use crate::layout::{
    BLOCK_BYTES, JOURNAL_MAGIC, RANGE_BYTES_MAX, RECORDS_PER_BLOCK, WINDOW_BYTES_MAX,
    WINDOW_EXTENT_BYTES_MAX,
};
use crate::medium::Permit;
use crate::metrics::count;
use crate::sabotage::Sabotage;
use crate::store::Durability;
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::window::{Closed, Pending};

/// What may be written without a flush, in bytes: an opening after a crash reads it again.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;
/// Most journal blocks that share a flush.
const BATCH_BLOCKS_MAX: u64 = 64;
/// Most journal blocks of puts that were made in a window: 7391 of them are told of at once.
const PENDING_BLOCKS_MAX: u64 = 88;
/// Extents up to this many bytes are written by the leader, together with others' and the journal.
/// Larger ones, as that of a value of 64 KiB and its trailer, are on their way already while their
/// writer waits for its turn: to let these join too was not faster.
const JOINED_BYTES_MAX: usize = 64 << 10;
/// Extents up to this many bytes are written together with the journal if nobody leads.
/// A value of 1 MiB and its trailer fit; above, the journal's share of the time is too small to have
/// others wait for the data.
const LEADING_BYTES_MAX: usize = (1 << 20) + 4096;
/// Most bytes of data that a leader writes for others.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// What is asked of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Change the index.
    Change(Record),
    /// Change the index by what was gathered: the request has the records.
    Gathered,
    /// Make all changes before durable.
    Sync,
    /// The same, and tell so in the journal.
    Fence,
}

/// How many objects a change took away, once it has been made; and the memory that it lent.
type Answer = (Result<u64>, Option<Memory>);

/// Where the one who asks waits for its answer.
struct Ticket {
    answer: Mutex<Option<Answer>>,
    thread: Thread,
}

struct Request {
    act: Act,
    durability: Durability,
    /// What is to be written with the journal.
    data: Option<Data>,
    /// The changes of [`Act::Gathered`], in their order.
    gathered: Vec<Record>,
    ticket: Arc<Ticket>,
}

impl Request {
    /// The changes of the index that it asks for.
    fn changes(&self) -> &[Record] {
        match &self.act {
            Act::Change(record) => std::slice::from_ref(record),
            Act::Gathered => &self.gathered,
            Act::Sync | Act::Fence => &[],
        }
    }

    fn answer(self, outcome: Result<u64>) {
        *lock(&self.ticket.answer) = Some((outcome, self.data.map(|data| data.first.memory)));
        self.ticket.thread.unpark();
    }
}

/// The end of the journal, in the hands of the leader.
pub(crate) struct Writer {
    position: Position,
    /// Where the blocks begin that announce the window.
    announced: Option<Position>,
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
    /// Memory for journal blocks.
    blocks: AlignedBuffer,
    /// For a canary.
    owes_flush: bool,
}

/// Who waits, and the writer while nobody leads.
pub(crate) struct Queue {
    /// By their arrival.
    waiting: VecDeque<Request>,
    writer: Option<Writer>,
    /// All blocks before this are in the index.
    pub applied: Position,
    /// Where the blocks begin that announce the window.
    pub announced: Option<Position>,
}

impl Queue {
    /// A queue for a journal that ends at `position`, all of it durable.
    pub fn new(position: Position, announced: Option<Position>) -> Self {
        let durable = position.next - 1;
        let writer = Writer {
            position,
            announced,
            durable,
            stated: durable,
            fence: durable,
            ends_with_fence: false,
            unflushed_bytes: 0,
            blocks: AlignedBuffer::zeroed(0),
            owes_flush: false,
        };
        Self { waiting: VecDeque::new(), writer: Some(writer), applied: position, announced }
    }

    /// How many changes wait for the next leader.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What the next leader takes: as many as share a flush.
    fn take(&mut self, records_max: usize) -> Vec<Request> {
        let (mut bytes, mut records) = (0, 0);
        let fits = |request: &&Request| {
            bytes += request.data.as_ref().map_or(0, Data::length);
            records += request.changes().len().max(1);
            bytes <= BATCH_BYTES_MAX && records <= records_max
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        self.waiting.drain(..count.min(self.waiting.len())).collect()
    }
}

/// Blocks of the journal that a leader fills with what waits.
fn batch_blocks(geometry: &Geometry) -> u64 {
    (geometry.journal_blocks / 4).min(BATCH_BLOCKS_MAX)
}

/// Most changes that are gathered for one commit.
pub(crate) fn gathered_max(geometry: &Geometry) -> usize {
    batch_blocks(geometry) as usize * RECORDS_PER_BLOCK
}

/// Most puts in a window, and most of its ranges, so that two commits on end fit the journal: what
/// announces a window stays in it until the next one. A commit has the blocks of a batch and twice
/// the blocks of this, since a further record says how many ranges there are.
pub(crate) fn pending_max(geometry: &Geometry) -> usize {
    let blocks = (geometry.journal_blocks / 2 - batch_blocks(geometry)) / 2;
    blocks.min(PENDING_BLOCKS_MAX) as usize * RECORDS_PER_BLOCK - 1
}

/// What a commit writes besides what waits.
#[derive(Default)]
struct Others {
    /// Puts that were made in the window.
    pending: Vec<Record>,
    /// What becomes of the window: where there was none and is none, nothing.
    announcement: Vec<Record>,
}

impl Engine {
    /// Whether an extent may go into a window.
    pub(crate) fn fits_window(&self, units: u64) -> bool {
        self.has_window && units * self.geometry.unit_bytes <= WINDOW_EXTENT_BYTES_MAX
    }

    /// Makes a put whose extent has its place in the window, without the journal.
    pub(crate) fn put_in_window(&self, entry: Entry, sequence: u64, data: Data) -> Answer {
        let outcome = self.medium.permit().and_then(|permit| {
            permit.write_data(&data)?;
            permit.flush()
        });
        let outcome = match outcome {
            Ok(()) => {
                let gave_up = self.window.finish(entry, sequence, || {
                    let _applying = lock(&self.applying);
                    let before = self.index.shard_mut(entry.key).insert(entry)?;
                    if self.sabotage == Sabotage::ReuseInWindow {
                        let units = before.units(&self.geometry);
                        lock(&self.space).free(before.start, units);
                        self.objects.fetch_sub(1, Ordering::Relaxed);
                        return None;
                    }
                    Some(before)
                });
                self.objects.fetch_sub(u64::from(gave_up), Ordering::Relaxed);
                self.count_put(&entry);
                Ok(0)
            }
            Err(error) => {
                self.window.leave();
                // An opening could find it: only once the window is over it may be said to be not
                // there.
                match self.sabotage {
                    Sabotage::LeaveFailed => Err(error),
                    _ => self.submit(Act::Fence, Durability::Durable).and(Err(error)),
                }
            }
        };
        (outcome, Some(data.first.memory))
    }

    /// Has `act` done and waits for it; returns how many objects it took away.
    pub(crate) fn submit(&self, act: Act, durability: Durability) -> Result<u64> {
        self.submit_with(act, durability, None).0
    }

    /// As [`Engine::submit`], after the data of a put, or together with them.
    pub(crate) fn submit_with(
        &self,
        act: Act,
        durability: Durability,
        data: Option<Data>,
    ) -> Answer {
        self.ask(act, durability, data, Vec::new())
    }

    /// Commits what was gathered, and waits for it.
    pub(crate) fn submit_gathered(&self, records: Vec<Record>, data: Option<Data>) -> Result<()> {
        self.ask(Act::Gathered, Durability::Written, data, records).0.map(drop)
    }

    fn ask(
        &self,
        act: Act,
        durability: Durability,
        mut data: Option<Data>,
        gathered: Vec<Record>,
    ) -> Answer {
        let mut lent = None;
        let mut queue = lock(&self.queue);
        if let Some(own) = data.take_if(|data| !self.joins(data, &queue)) {
            drop(queue);
            let permit = self.medium.permit();
            let written = permit.and_then(|permit| permit.write_data(&own));
            lent = Some(own.first.memory);
            if let Err(error) = written {
                return (Err(error), lent);
            }
            queue = lock(&self.queue);
        }
        if let Err(error) = self.medium.permit() {
            return (Err(error), lent.or(data.map(|data| data.first.memory)));
        }
        let ticket = Arc::new(Ticket { answer: Mutex::new(None), thread: thread::current() });
        let request = Request { act, durability, data, gathered, ticket: ticket.clone() };
        queue.waiting.push_back(request);
        loop {
            if let Some(writer) = queue.writer.take() {
                self.lead(queue, writer);
            } else {
                drop(queue);
                thread::park();
            }
            let answer = lock(&ticket.answer).take();
            if let Some((outcome, memory)) = answer {
                return (outcome, memory.or(lent));
            }
            queue = lock(&self.queue);
        }
    }

    /// Whether the data of a put go together with the journal.
    fn joins(&self, data: &Data, queue: &Queue) -> bool {
        let limit = match queue.writer {
            Some(_) => LEADING_BYTES_MAX,
            None => JOINED_BYTES_MAX,
        };
        data.length() <= limit && self.medium.writes_at_once()
    }

    /// Does what waits and gives the lead back.
    fn lead(&self, mut queue: MutexGuard<'_, Queue>, mut writer: Writer) {
        let blocks = batch_blocks(&self.geometry);
        let mut batch = queue.take(blocks as usize * RECORDS_PER_BLOCK);
        drop(queue);
        let permit = self.medium.permit();
        let outcome = permit.and_then(|permit| self.carry_out(permit, &mut writer, &mut batch));
        let mut queue = lock(&self.queue);
        let counts = match outcome {
            Ok(counts) => {
                (queue.applied, queue.announced) = (writer.position, writer.announced);
                Ok(counts)
            }
            // The permission to write has ended: who waits leads in turn, and is told the same.
            Err(error) => Err(error.refusal()),
        };
        queue.writer = Some(writer);
        drop(queue);
        self.window.go_on();
        if self.is_checkpoint_due() {
            self.background.wake();
        }
        for (number, request) in batch.into_iter().enumerate() {
            request.answer(match &counts {
                Ok(counts) => Ok(counts[number]),
                Err(why) => Err(Error::ReadOnly(why.clone())),
            });
        }
        // Who has its answer may come again and lead at once; otherwise who waits longest does.
        if let Some(next) = lock(&self.queue).waiting.front() {
            next.ticket.thread.unpark();
        }
    }

    /// Writes, makes durable and applies a batch; returns how many objects each of its changes took
    /// away. A put whose data cannot be written is answered and leaves the batch.
    fn carry_out(
        &self,
        permit: Permit<'_>,
        writer: &mut Writer,
        batch: &mut Vec<Request>,
    ) -> Result<Vec<u64>> {
        if std::mem::take(&mut writer.owes_flush) {
            permit.flush()?;
        }
        let has = |act| batch.iter().any(|request| request.act == act);
        let is_fenced = writer.ends_with_fence && writer.durable + 1 == writer.position.next;
        let is_fence_due = has(Act::Fence) && !is_fenced;
        let has_changes = batch.iter().any(|request| !request.changes().is_empty());
        let (mut given_up, mut ranges) = (Vec::new(), Vec::new());
        if is_fence_due || has_changes {
            ranges = self.next_window(batch);
            let closed = self.window.close(!ranges.is_empty());
            given_up.extend(closed.pending.iter().filter_map(|put| put.given_up));
            let mut space = lock(&self.space);
            closed.rest.iter().for_each(|&(start, units)| space.free(start, units));
            drop(space);
            let mut others = self.others(&closed, &ranges);
            if is_fence_due {
                if closed.is_live {
                    let others = std::mem::take(&mut others);
                    self.write_batch(permit, writer, &mut Vec::new(), &others)?;
                }
                self.flush(permit, writer)?;
                self.retire(writer, &std::mem::take(&mut given_up));
            }
            self.write_batch(permit, writer, batch, &others)?;
        }
        let is_durable = batch.iter().any(|request| request.durability == Durability::Durable);
        if is_durable || writer.unflushed_bytes > UNFLUSHED_BYTES_MAX {
            self.flush(permit, writer)?;
        }
        if self.sabotage == Sabotage::LateData {
            self.write_all(permit, batch, writer.position.next, &[])?;
        }
        count(&self.counters.commits, 1);
        let counts = self.apply(writer, batch, given_up);
        if !ranges.is_empty() {
            self.window.open(ranges);
        }
        Ok(counts)
    }

    /// Takes space for the window that follows a batch of puts only that could have gone into it. Among
    /// other changes a window would be closed as soon as it is open.
    fn next_window(&self, batch: &[Request]) -> Vec<(u64, u64)> {
        let units = |request: &Request| match request.act {
            Act::Change(Record::Put { entry, .. }) if request.durability == Durability::Durable => {
                let units = entry.units(&self.geometry);
                self.fits_window(units).then_some(units)
            }
            _ => None,
        };
        let all: Option<Vec<u64>> = batch.iter().map(units).collect();
        let Some(largest) = all.and_then(|all| all.into_iter().max()) else { return Vec::new() };
        let flush = Duration::from_nanos(self.medium.flush_ns());
        if self.window.seekers.load(Ordering::SeqCst) > 0 || !self.window.is_due(flush) {
            return Vec::new();
        }
        let mut space = lock(&self.space);
        let units = |bytes| bytes / self.geometry.unit_bytes;
        let most = units(WINDOW_BYTES_MAX).min(space.free_units() / 4);
        space.take_some(largest, units(RANGE_BYTES_MAX), most, self.window.pending_max)
    }

    /// What the journal has to be told of a window that was closed and the one that follows.
    fn others(&self, closed: &Closed, ranges: &[(u64, u64)]) -> Others {
        let pending = closed.pending.iter().map(Pending::record).collect();
        let mut announcement = Vec::new();
        if closed.is_live || !ranges.is_empty() {
            // All puts before have drawn their numbers, and none of them is under way in a window.
            let sequence = self.sequence.load(Ordering::Relaxed);
            announcement.push(Record::Window { sequence, ranges: ranges.len() as u64 });
            let ranges = ranges.iter().map(|&(start, units)| Record::Range { start, units });
            announcement.extend(ranges);
        }
        Others { pending, announcement }
    }

    /// Writes the data of a batch and the next blocks of the journal; makes a checkpoint first
    /// where there is no room.
    fn write_batch(
        &self,
        permit: Permit<'_>,
        writer: &mut Writer,
        batch: &mut Vec<Request>,
        others: &Others,
    ) -> Result<()> {
        let start = writer.position;
        let changes: usize = batch.iter().map(|request| request.changes().len()).sum();
        let records = others.pending.len() + changes + others.announcement.len();
        let end = start.next + records.div_ceil(RECORDS_PER_BLOCK).max(1) as u64;
        while end - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks {
            let root = lock(&self.root);
            // The background may just have made one.
            if end - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks {
                self.checkpoint(root)?;
            }
        }
        self.encode(writer, batch, others);
        let data = if self.sabotage == Sabotage::LateData { &[] } else { &batch[..] };
        let failures =
            self.write_all(permit, data, start.next, &self.journal_writes(writer, start.next))?;
        if failures.is_empty() {
            Ok(())
        } else {
            self.write_again(permit, writer, batch, others, (start, end), failures)
        }
    }

    /// Takes the puts out of a batch whose data could not be written. Nothing of the batch has been
    /// answered: its blocks are written anew without these puts, and only when these blocks are
    /// durable the failures are told.
    fn write_again(
        &self,
        permit: Permit<'_>,
        writer: &mut Writer,
        batch: &mut Vec<Request>,
        others: &Others,
        (start, end): (Position, u64),
        failures: Vec<(usize, Error)>,
    ) -> Result<()> {
        let failures = failures.into_iter().rev();
        let failed: Vec<(Request, Error)> =
            failures.map(|(number, error)| (batch.remove(number), error)).collect();
        if self.sabotage != Sabotage::KeepFailed {
            writer.position = start;
            self.encode(writer, batch, others);
        }
        let mut writes = self.journal_writes(writer, start.next);
        let mut behind = AlignedBuffer::zeroed(0);
        let mut position = writer.position;
        if position.next < end {
            // The last of these blocks may be what it was before: the old one behind it would go on.
            let first = position.next;
            let durable = writer.durable;
            journal::encode(
                &self.geometry,
                JOURNAL_MAGIC,
                &mut position,
                durable,
                &[],
                &mut behind,
            );
            writes.extend(journal::writes(&self.geometry, first, &behind));
        }
        let rewritten = self.write_journal(permit, start.next, &writes);
        writer.ends_with_fence &= position == writer.position;
        writer.position = position;
        let outcome = rewritten.and_then(|()| self.flush(permit, writer));
        for (request, failure) in failed {
            request.answer(match &outcome {
                Ok(()) => Err(failure),
                Err(error) => Err(Error::ReadOnly(error.refusal())),
            });
        }
        outcome
    }

    /// Makes the next blocks of the journal, at least one, of the changes of a batch: behind the puts
    /// that were made before them, and before the window that follows.
    fn encode(&self, writer: &mut Writer, batch: &[Request], others: &Others) {
        let start = writer.position;
        let changes: Vec<Record> =
            batch.iter().flat_map(|request| request.changes()).copied().collect();
        let Others { pending, announcement } = others;
        let announcement = match self.sabotage {
            Sabotage::UseUnannounced => &[],
            _ => &announcement[..],
        };
        let records = match self.sabotage {
            Sabotage::RecordLate => [&changes, &pending[..], announcement].concat(),
            _ => [pending, &changes[..], announcement].concat(),
        };
        if !others.announcement.is_empty() {
            writer.announced = (others.announcement.len() > 1).then_some(start);
        }
        let Writer { position, durable, blocks, .. } = writer;
        journal::encode(&self.geometry, JOURNAL_MAGIC, position, *durable, &records, blocks);
        writer.stated = writer.durable;
        writer.ends_with_fence = records.is_empty() && writer.durable + 1 == start.next;
        let data_bytes = changes.iter().map(|record| match record {
            Record::Put { entry, .. } => u64::from(entry.length),
            _ => 0,
        });
        writer.unflushed_bytes += BLOCK_BYTES + data_bytes.sum::<u64>();
    }

    /// Where the blocks from number `first` on go: one write, unless they cross the end.
    fn journal_writes<'a>(&self, writer: &'a Writer, first: u64) -> Vec<(&'a [u8], u64)> {
        let length = ((writer.position.next - first) * BLOCK_BYTES) as usize;
        journal::writes(&self.geometry, first, &writer.blocks[..length])
    }

    /// Writes the data of `requests`, and the journal from block `first` on, all at once. Returns which
    /// requests failed, in order.
    fn write_all(
        &self,
        permit: Permit<'_>,
        requests: &[Request],
        first: u64,
        journal: &[(&[u8], u64)],
    ) -> Result<Vec<(usize, Error)>> {
        let (mut numbers, mut writes) = (Vec::new(), Vec::new());
        for (number, request) in requests.iter().enumerate() {
            if let Some(data) = &request.data {
                let before = writes.len();
                writes.extend(data.writes());
                numbers.resize(numbers.len() + writes.len() - before, number);
            }
        }
        let failures = permit.write_with_journal(&writes, first, journal)?;
        let blocks = journal.iter().map(|(bytes, _)| bytes.len() as u64 / BLOCK_BYTES);
        count(&self.counters.journal_blocks, blocks.sum());
        let mut failures: Vec<_> =
            failures.into_iter().map(|(place, error)| (numbers[place], error)).collect();
        failures.dedup_by_key(|(number, _)| *number);
        Ok(failures)
    }

    fn write_journal(&self, permit: Permit<'_>, first: u64, writes: &[(&[u8], u64)]) -> Result<()> {
        self.write_all(permit, &[], first, writes).map(drop)
    }

    /// Makes all that was written durable.
    fn flush(&self, permit: Permit<'_>, writer: &mut Writer) -> Result<()> {
        let durable = writer.position.next - 1;
        if durable == writer.durable {
            return Ok(());
        }
        if self.sabotage == Sabotage::AcknowledgeEarly {
            writer.owes_flush = true;
        } else {
            permit.flush()?;
        }
        writer.durable = durable;
        writer.fence = writer.stated;
        writer.unflushed_bytes = 0;
        Ok(())
    }

    /// Changes the index as the journal says and gives space back, also what puts in the window
    /// gave up of which the journal tells now.
    fn apply(&self, writer: &Writer, batch: &[Request], mut given_up: Vec<Entry>) -> Vec<u64> {
        let applying = lock(&self.applying);
        let counts: Vec<u64> =
            batch.iter().map(|request| self.apply_all(request.changes(), &mut given_up)).collect();
        drop(applying);
        self.retire(writer, &given_up);
        counts
    }

    /// Gives up extents by the last block of the journal, and frees those behind the fence.
    fn retire(&self, writer: &Writer, given_up: &[Entry]) {
        let mut space = lock(&self.space);
        for entry in given_up {
            space.retire(writer.position.next - 1, entry.start, entry.units(&self.geometry));
        }
        let fence = match self.sabotage {
            Sabotage::ReuseEarly => u64::MAX,
            Sabotage::ReuseUnfenced => writer.durable,
            _ => writer.fence,
        };
        space.release(fence, &self.pins);
    }

    fn apply_all(&self, changes: &[Record], given_up: &mut Vec<Entry>) -> u64 {
        changes.iter().map(|change| self.apply_one(*change, given_up)).sum()
    }

    fn apply_one(&self, change: Record, given_up: &mut Vec<Entry>) -> u64 {
        let before = given_up.len();
        match change {
            Record::Put { entry, .. } => {
                given_up.extend(self.index.shard_mut(entry.key).insert(entry));
            }
            Record::Delete(key) => {
                given_up.extend(self.index.shard_mut(key).remove(key));
            }
            Record::DeleteRange { first, last } => {
                given_up.extend(self.index.remove_range(&(first..=last)));
            }
            Record::Window { .. } | Record::Range { .. } => {}
        }
        let given = (given_up.len() - before) as u64;
        self.objects.fetch_sub(given, Ordering::Relaxed);
        match change {
            Record::Put { entry, .. } => self.count_put(&entry),
            _ => count(&self.counters.deleted, given),
        }
        given
    }

    fn count_put(&self, entry: &Entry) {
        count(&self.counters.puts, 1);
        count(&self.counters.put_bytes, u64::from(entry.length));
    }
}

impl Engine {
    /// Makes an opening durable: what was read from the journal, and that what was left out of it
    /// never counts again. Only then data may be written. `found` are the puts that the journal does
    /// not know of.
    pub(crate) fn begin_epoch(&self, found: &[Record], epoch: u64) -> Result<()> {
        let permit = self.medium.permit()?;
        let mut writer = lock(&self.queue).writer.take().expect("nobody leads yet");
        if self.sabotage != Sabotage::LeaveRest {
            self.erase(permit, &writer, found)?;
        }
        permit.flush()?;
        if !found.is_empty() {
            self.record(permit, &mut writer, found)?;
        }
        writer.position.epoch = epoch;
        writer.announced = None;
        let mut queue = lock(&self.queue);
        (queue.applied, queue.announced) = (writer.position, None);
        queue.writer = Some(writer);
        drop(queue);
        if self.is_checkpoint_due() {
            self.checkpoint(lock(&self.root))?;
        }
        // The block of the fence takes the place of the first that was left out.
        self.submit(Act::Fence, Durability::Durable).map(drop)
    }

    /// Makes no blocks of the places where an opening writes its own. What did not count there would
    /// otherwise count again where blocks of the opening arrive in part, and make it whole, or
    /// where they are the same as those before it were. No sector of a block is like these.
    fn erase(&self, permit: Permit<'_>, writer: &Writer, found: &[Record]) -> Result<()> {
        let first = writer.position.next;
        // Beyond lie blocks that count, with smaller numbers than those looked for.
        let room =
            self.journal_start.load(Ordering::Relaxed) + self.geometry.journal_blocks - first;
        let blocks = (found.len().div_ceil(RECORDS_PER_BLOCK) as u64 + 1).min(room);
        let mut bytes = AlignedBuffer::zeroed((blocks * BLOCK_BYTES) as usize);
        bytes.fill(0xff);
        self.write_journal(permit, first, &journal::writes(&self.geometry, first, &bytes))
    }

    /// Tells the journal of puts that an opening found, in the epoch in which they were made. Until
    /// the blocks are durable, and the fence after them, the next opening finds the rest again.
    fn record(&self, permit: Permit<'_>, writer: &mut Writer, found: &[Record]) -> Result<()> {
        let start = writer.position;
        let end = start.next + found.len().div_ceil(RECORDS_PER_BLOCK) as u64;
        let is_full =
            || end - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks;
        if is_full() {
            self.checkpoint(lock(&self.root))?;
        }
        if is_full() {
            return Err(Error::Damaged("the journal: it announces too long a window".into()));
        }
        let Writer { position, durable, blocks, .. } = writer;
        journal::encode(&self.geometry, JOURNAL_MAGIC, position, *durable, found, blocks);
        self.write_journal(permit, start.next, &self.journal_writes(writer, start.next))?;
        self.flush(permit, writer)
    }
}

#[cfg(test)]
mod tests {
    use block::MemoryDevice;

    use super::*;
    use crate::{CreateOptions, OpenOptions, Store};

    /// Several commits must fit the journal, so one takes no more changes than it has blocks for.
    #[test]
    fn a_commit_takes_so_many_changes_and_not_so_many_requests() {
        let mut queue = Queue::new(Position { next: 1, previous: 0, epoch: 0 }, None);
        for changes in [1, 5, 2, 9, 3] {
            let answer = Mutex::new(None);
            queue.waiting.push_back(Request {
                act: Act::Gathered,
                durability: Durability::Written,
                data: None,
                gathered: vec![Record::Delete(1); changes],
                ticket: Arc::new(Ticket { answer, thread: thread::current() }),
            });
        }
        // One that has more comes alone.
        let taken: [usize; 3] =
            [8, 8, 8].map(|most| queue.take(most).iter().map(|one| one.changes().len()).sum());
        assert_eq!(taken, [8, 9, 3]);
    }

    /// What a commit of several blocks gives up is free only behind a fence that covers the last one.
    #[test]
    fn what_a_commit_gives_up_counts_with_its_last_block() {
        let device = Arc::new(MemoryDevice::new(1 << 20, 512));
        let create = CreateOptions { journal_bytes: Some(32 * BLOCK_BYTES), ..Default::default() };
        Store::create(&*device, &create).unwrap();
        let open = OpenOptions { own_flushes: Some(true), ..Default::default() };
        let store = Store::open(device, &open).unwrap();
        // The first announces a window; of the others the journal hears with the delete.
        let puts = 2 * RECORDS_PER_BLOCK as u64;
        (0..=puts).for_each(|_| store.put(1, b"value", Durability::Durable).unwrap());
        let before = lock(&store.engine.queue).applied.next;
        assert!(store.delete(1, Durability::Durable).unwrap());
        let last = lock(&store.engine.queue).applied.next - 1;
        assert!(last >= before + 2);
        let retired = lock(&store.engine.space).retired_blocks();
        assert_eq!(retired, vec![last; puts as usize + 1]);
    }
}
