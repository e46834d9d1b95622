//! Changes that nobody wants durable yet: gathered in memory, laid out on end as far as there is such
//! space, and written together while their clients go on.
//!
//! One batch is open and takes changes; one more may be on its way to the device, by a thread of its
//! own, which takes the open one as soon as it is worth a write. A large batch is written in steps, and each
//! gives as much room to those who wait for some, one after the other: if all of them went on at
//! once, what writes to a device that is memory would have to share the processors with them, and then
//! they would have to wait for it.
//!
//! The journal hears of several batches at once: of those whose values are on the device ([`Landed`]). A commit
//! for each would have the arm of a hard disk go to the journal and back every few MiB. It comes once the oldest
//! change is so old as may be, when somebody waits for it, and when as many changes or bytes have landed
//! as may share one. All of it is one commit, so the changes become visible to an opening in the order in which
//! they were made.
//!
//! Readers find what is not committed here, before they look into the index. Whoever makes a change that is not
//! gathered waits first until what is here of its keys is committed ([`Engine::settle`]). The lock is taken
//! before those of the space and the pins.
//!
//! Knows nothing of the medium. Invariants: a key is in `fresh` as long as its newest gathered change
//! is not in the index; batches land in the order of their numbers, one at a time.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::AlignedBuffer;

use crate::commit::gathered_max;
use crate::data::{Data, Memory, Piece};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::extent::{Stamp, Value, chunk_checksums, extent_bytes, seal_with};
use crate::index::Entry;
use crate::journal::Record;
use crate::layout::BLOCK_BYTES;
use crate::metrics::count;
use crate::sabotage::Sabotage;
use crate::space::{Pin, Pins};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_at_most};

/// Where the newest gathered change of a key is.
#[derive(Clone, Copy)]
struct Fresh {
    /// The number of its batch.
    batch: u64,
    /// Where the value is; none where it was deleted.
    value: Option<Whereabouts>,
}

/// Where a gathered value is.
#[derive(Clone, Copy)]
enum Whereabouts {
    /// In memory, with its length.
    Memory(Place, usize),
    /// On the device.
    Device(Entry),
}

/// Where a value lies in memory.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In the memory of the batch, from this byte on.
    Copied(usize),
    /// In the memory in which it came, which is the one of this number that the batch has kept.
    Kept(usize),
}

/// What is put.
pub(crate) enum Contents<'a> {
    /// Bytes to copy.
    Copied(&'a [u8]),
    /// A value whose memory is kept, in exchange for other memory.
    Kept(&'a mut Value),
}

impl Deref for Contents<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Contents::Copied(bytes) => bytes,
            Contents::Kept(value) => value,
        }
    }
}

/// Values from this length on are not copied: to wait for the lock while others copy theirs, and to
/// have the bytes in the cache of the processor once more, takes longer than the exchange. The model's
/// disks are small.
pub(crate) const KEPT_BYTES_MIN: usize =
    if cfg!(feature = "shuttle") { 2 << 10 } else { 256 << 10 };

/// The batch that takes changes.
struct Open {
    memory: AlignedBuffer,
    /// Bytes of the memory that are used, and with what was kept.
    copied: usize,
    used: usize,
    kept: Vec<AlignedBuffer>,
    /// Where all of it goes.
    pieces: Vec<Piece<Place>>,
    /// What is left of the free extent in which the last piece lies: first unit and number of units.
    rest: (u64, u64),
    records: Vec<Record>,
    since: Instant,
}

/// A batch on its way.
struct Closed {
    memory: Arc<AlignedBuffer>,
    kept: Vec<Arc<AlignedBuffer>>,
    used: usize,
    /// Bytes that no step has written yet.
    unwritten: usize,
    pieces: Vec<Piece<Place>>,
    records: Vec<Record>,
    since: Instant,
    is_taken: bool,
}

/// Changes of batches whose values are on the device, and of which the journal has not heard.
struct Landed {
    /// In their order.
    records: Vec<Record>,
    /// Bytes of their extents.
    bytes: usize,
    /// When the oldest was made.
    since: Instant,
}

impl Open {
    /// Notes where an extent goes; one behind another in both places goes with it.
    fn add_piece(&mut self, memory: Place, length: usize, offset: u64) {
        let at = match memory {
            Place::Copied(at) => at,
            Place::Kept(_) => 0,
        };
        let is_copied = |place| matches!(place, Place::Copied(_));
        if let Some(last) = self.pieces.last_mut()
            && is_copied(last.memory)
            && is_copied(memory)
            && (last.at + last.length, last.offset + last.length as u64) == (at, offset)
        {
            last.length += length;
        } else {
            self.pieces.push(Piece { memory, at, length, offset });
        }
    }
}

impl Closed {
    /// What is to be written.
    fn data(&mut self) -> Option<Data> {
        let pieces = std::mem::take(&mut self.pieces).into_iter();
        let mut pieces = pieces.map(|Piece { memory, at, length, offset }| {
            let memory = match memory {
                Place::Copied(_) => &self.memory,
                Place::Kept(number) => &self.kept[number],
            };
            Piece { memory: Memory::Shared(memory.clone()), at, length, offset }
        });
        let first = pieces.next()?;
        Some(Data { first, others: pieces.collect() })
    }
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    closed: Option<Closed>,
    landed: Option<Landed>,
    fresh: HashMap<u128, Fresh>,
    /// Number of the batch that is open or will be next, how many have landed, and how many are committed.
    number: u64,
    written: u64,
    committed: u64,
    /// Somebody waits until so many are committed.
    wanted: u64,
    /// Memory of an earlier batch, and of values that it kept.
    spare: Option<AlignedBuffer>,
    spare_values: Vec<AlignedBuffer>,
    ends: bool,
}

impl State {
    /// Bytes on their way to the device, or before it.
    fn unwritten(&self) -> usize {
        let closed = self.closed.as_ref().map_or(0, |closed| closed.unwritten);
        closed + self.open.as_ref().map_or(0, |open| open.used)
    }

    /// When the oldest change was made that is not committed.
    fn oldest(&self) -> Option<Instant> {
        let landed = self.landed.as_ref().map(|landed| landed.since);
        let closed = self.closed.as_ref().map(|closed| closed.since);
        landed.or(closed).or(self.open.as_ref().map(|open| open.since))
    }

    /// The batch in hand has landed: what was read from its memory is read from the device.
    fn land(&mut self, records: Vec<Record>) {
        for record in &records {
            if let Record::Put { entry, .. } = *record
                && let Some(fresh) = self.fresh.get_mut(&entry.key)
                && fresh.batch == self.written
                && fresh.value.is_some()
            {
                fresh.value = Some(Whereabouts::Device(entry));
            }
        }
        let closed = self.closed.as_ref().expect("the batch in hand has landed");
        let (bytes, since) = (closed.used, closed.since);
        let new = || Landed { records: Vec::new(), bytes: 0, since };
        let landed = self.landed.get_or_insert_with(new);
        landed.records.extend(records);
        landed.bytes += bytes;
    }
}

/// Wakes the next of those who wait for room, once the one who had to wait is done.
struct Waiter<'a> {
    room: &'a Condvar,
    has_waited: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.has_waited {
            self.room.notify_one();
        }
    }
}

/// Most bytes of one step of a batch to the device.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Most bytes that land for one commit: an opening after a crash may have to read them again.
const LANDED_BYTES_MAX: u64 = 512 << 20;
/// At most this part of the store, as what they replace is free only after the commit.
const LANDED_SHARE: u64 = 2;

/// What has been gathered.
pub(crate) struct Gather {
    state: Mutex<State>,
    /// There is something to do for the thread that writes.
    asked: Condvar,
    /// A batch has been written.
    ended: Condvar,
    /// There is room for another change.
    room: Condvar,
    /// Size of `fresh`, for those who find nothing there.
    fresh: AtomicUsize,
    /// Bytes of a batch; none are gathered where this is 0.
    batch_bytes: usize,
    step_bytes: usize,
    landed_bytes_max: usize,
    records_max: usize,
    /// A change is committed once it is so old.
    age_max: Duration,
}

/// What a key has here.
pub(crate) enum Found<'a> {
    /// Nothing: the index knows.
    Nothing,
    /// It was deleted.
    Deleted,
    /// A value of so many bytes, in memory.
    Value(usize),
    /// A value on the device, whose place is not used again while the pin is held.
    Landed(Entry, Pin<'a>),
}

impl Gather {
    /// `bytes_max` is for two batches.
    pub fn new(bytes_max: u64, age_max: Duration, geometry: &crate::Geometry) -> Self {
        let batch_bytes = (bytes_max.min(geometry.data_bytes()) / 2) as usize;
        let step_bytes = (batch_bytes / 4).min(STEP_BYTES_MAX);
        Self {
            state: Mutex::default(),
            asked: Condvar::new(),
            ended: Condvar::new(),
            room: Condvar::new(),
            fresh: AtomicUsize::new(0),
            batch_bytes,
            step_bytes: step_bytes.next_multiple_of(BLOCK_BYTES as usize),
            landed_bytes_max: LANDED_BYTES_MAX.min(geometry.data_bytes() / LANDED_SHARE) as usize,
            records_max: gathered_max(geometry),
            age_max,
        }
    }

    /// What a key has here. A value in memory is copied into `value`, if there is one for it.
    pub fn find<'a>(&self, key: u128, pins: &'a Pins, value: Option<&mut Value>) -> Found<'a> {
        if self.fresh.load(Ordering::SeqCst) == 0 {
            return Found::Nothing;
        }
        let state = lock(&self.state);
        let Some(fresh) = state.fresh.get(&key) else { return Found::Nothing };
        let (place, length) = match fresh.value {
            None => return Found::Deleted,
            // Only the commit of a newer change gives the extent up, and that change would be here.
            Some(Whereabouts::Device(entry)) => return Found::Landed(entry, pins.pin(entry.start)),
            Some(Whereabouts::Memory(place, length)) => (place, length),
        };
        if let Some(value) = value {
            let is_open = fresh.batch == state.number;
            let memory: &[u8] = match (&state.open, &state.closed, place) {
                (Some(open), _, Place::Copied(at)) if is_open => &open.memory[at..],
                (Some(open), _, Place::Kept(number)) if is_open => &open.kept[number],
                (_, Some(closed), Place::Copied(at)) => &closed.memory[at..],
                (_, Some(closed), Place::Kept(number)) => &closed.kept[number],
                _ => unreachable!("a key is here as long as its batch"),
            };
            value.resize(length);
            value.copy_from_slice(&memory[..length]);
        }
        Found::Value(length)
    }

    /// Bytes that wait in memory, and the age of the oldest change that is not committed.
    pub fn waiting(&self) -> (u64, Duration) {
        let state = lock(&self.state);
        let (open, closed) = (state.open.as_ref(), state.closed.as_ref());
        let bytes = closed.map_or(0, |closed| closed.used) + open.map_or(0, |open| open.used);
        (bytes as u64, state.oldest().map_or(Duration::ZERO, |oldest| oldest.elapsed()))
    }

    fn waiter(&self) -> Waiter<'_> {
        Waiter { room: &self.room, has_waited: false }
    }

    /// Ends the thread that writes, after the batch in hand.
    pub fn end(&self) {
        lock(&self.state).ends = true;
        self.asked.notify_all();
    }
}

impl Engine {
    /// Whether a value of this length is gathered.
    pub(crate) fn gathers(&self, length: usize) -> bool {
        let batch_bytes = self.gather.batch_bytes;
        batch_bytes > 0 && extent_bytes(&self.geometry, length) <= batch_bytes / 2
    }

    /// Gathers a put; returns whether there was room for it.
    pub(crate) fn gather_put(&self, key: u128, contents: Contents<'_>, epoch: u64) -> Result<bool> {
        let length = contents.len();
        let extent_bytes = extent_bytes(&self.geometry, length);
        let units = extent_bytes as u64 / self.geometry.unit_bytes;
        // Before the lock, since this takes the longest.
        let chunks = chunk_checksums(&contents);
        let mut waiter = self.gather.waiter();
        let mut state = self.room(extent_bytes, &mut waiter)?;
        let open = state.open.as_mut().expect("room has opened one");
        let Some(start) = self.place(open, units) else { return Ok(false) };
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let stamp = Stamp { epoch, sequence };
        let (memory, place, kept) = match contents {
            Contents::Copied(bytes) => {
                let at = open.copied;
                open.copied += extent_bytes;
                let memory = &mut open.memory[at..open.copied];
                memory[..length].copy_from_slice(bytes);
                (memory, Place::Copied(at), None)
            }
            Contents::Kept(value) => {
                let number = open.kept.len();
                open.kept.push(value.lend());
                (&mut open.kept[number][..extent_bytes], Place::Kept(number), Some(value))
            }
        };
        let entry = seal_with(&self.geometry, key, start, stamp, false, length, &chunks, memory);
        open.add_piece(place, extent_bytes, self.geometry.unit_offset(start));
        let is_worth_it = open.used < self.gather.step_bytes
            && open.used + extent_bytes >= self.gather.step_bytes;
        open.used += extent_bytes;
        let spare = kept.as_ref().and_then(|_| state.spare_values.pop());
        let value = Some(Whereabouts::Memory(place, length));
        self.add(state, Record::Put { entry, sequence }, key, value);
        if is_worth_it {
            self.gather.asked.notify_all();
        }
        if let Some(value) = kept {
            value.exchange(spare);
        }
        Ok(true)
    }

    /// Gathers a delete; returns whether the key had a value.
    pub(crate) fn gather_delete(&self, key: u128) -> Result<bool> {
        let mut waiter = self.gather.waiter();
        let state = self.room(0, &mut waiter)?;
        let had_value = match state.fresh.get(&key) {
            Some(fresh) => fresh.value.is_some(),
            None => self.index.shard(key).get(key).is_some(),
        };
        self.add(state, Record::Delete(key), key, None);
        Ok(had_value)
    }

    /// Adds a change to the open batch, whose age counts from the first one.
    fn add(
        &self,
        mut state: MutexGuard<'_, State>,
        record: Record,
        key: u128,
        value: Option<Whereabouts>,
    ) {
        let open = state.open.as_mut().expect("room has opened one");
        open.records.push(record);
        let is_first = open.records.len() == 1;
        let fresh = Fresh { batch: state.number, value };
        state.fresh.insert(key, fresh);
        self.gather.fresh.store(state.fresh.len(), Ordering::SeqCst);
        drop(state);
        if is_first {
            self.gather.asked.notify_all();
        }
    }

    /// The state with an open batch whose memory has room for an extent. No more waits for the device than
    /// a batch and two steps.
    fn room(&self, extent_bytes: usize, waiter: &mut Waiter<'_>) -> Result<MutexGuard<'_, State>> {
        let unwritten_max = self.gather.batch_bytes + 2 * self.gather.step_bytes;
        let mut state = lock(&self.gather.state);
        loop {
            self.medium.permit()?;
            let is_early = state.unwritten() + extent_bytes > unwritten_max;
            let fits = |open: &Open| {
                open.used + extent_bytes <= self.gather.batch_bytes
                    && open.records.len() < self.gather.records_max
            };
            match &state.open {
                Some(open) if fits(open) && !is_early => return Ok(state),
                Some(open) if !fits(open) && state.closed.is_none() => {
                    state = self.hand_over(state)?;
                }
                // A batch is on its way, so somebody wakes us.
                Some(_) => {
                    waiter.has_waited = true;
                    state = wait(&self.gather.room, state);
                }
                None => {
                    let spare = state.spare.take();
                    let new = || AlignedBuffer::zeroed(self.gather.batch_bytes);
                    state.open = Some(Open {
                        memory: spare.unwrap_or_else(new),
                        copied: 0,
                        used: 0,
                        kept: Vec::new(),
                        pieces: Vec::new(),
                        rest: (0, 0),
                        records: Vec::new(),
                        since: Instant::now(),
                    });
                }
            }
        }
    }

    /// Finds units for an extent, behind the last one if there are enough.
    fn place(&self, open: &mut Open, units: u64) -> Option<u64> {
        let start = open.rest.0;
        if open.rest.1 >= units {
            open.rest = (start + units, open.rest.1 - units);
            return Some(start);
        }
        let mut space = lock(&self.space);
        let (rest, units_left) = std::mem::take(&mut open.rest);
        if units_left > 0 {
            space.free(rest, units_left);
        }
        let left = (self.gather.batch_bytes - open.used) as u64 / self.geometry.unit_bytes;
        // Others need some too.
        let most = left.min(space.free_units() / 4).max(units);
        let (start, taken) = space.allocate_some(units, most)?;
        open.rest = (start + units, taken - units);
        Some(start)
    }

    /// Hands the open batch over, once the one before is written.
    fn hand_over<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        let number = state.number;
        while state.closed.is_some() {
            self.medium.permit()?;
            state = wait(&self.gather.ended, state);
        }
        self.medium.permit()?;
        // Another thread may have done it meanwhile.
        if state.number == number
            && let Some(open) = state.open.take()
        {
            let Open { memory, used, kept, pieces, rest, records, since, .. } = open;
            if rest.1 > 0 {
                lock(&self.space).free(rest.0, rest.1);
            }
            state.closed = Some(Closed {
                memory: Arc::new(memory),
                kept: kept.into_iter().map(Arc::new).collect(),
                used,
                unwritten: used,
                pieces,
                records,
                since,
                is_taken: false,
            });
            state.number += 1;
            self.gather.asked.notify_all();
        }
        Ok(state)
    }

    /// Waits until all that has been gathered is committed.
    ///
    /// # Errors
    ///
    /// It could not be: the store refuses writes.
    pub(crate) fn drain(&self) -> Result<()> {
        if self.gather.fresh.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let mut state = lock(&self.gather.state);
        if state.open.is_some() {
            state = self.hand_over(state)?;
        }
        let last = state.number;
        if state.wanted < last {
            state.wanted = last;
            self.gather.asked.notify_all();
        }
        while state.committed < last {
            self.medium.permit()?;
            state = wait(&self.gather.ended, state);
        }
        Ok(())
    }

    /// Waits until what has been gathered of a key is committed, before a change of it goes another way.
    pub(crate) fn settle(&self, key: u128) -> Result<()> {
        match self.gather.find(key, &self.pins, None) {
            Found::Nothing => Ok(()),
            _ if self.sabotage == Sabotage::LeaveGathered => Ok(()),
            _ => self.drain(),
        }
    }

    /// The work of the thread that writes.
    pub(crate) fn write_gathered(&self) {
        let mut state = lock(&self.gather.state);
        loop {
            if state.closed.as_ref().is_some_and(|closed| !closed.is_taken) {
                state = self.write_batch_out(state);
                continue;
            }
            let is_writable = self.medium.refusal().is_none();
            let age = state.oldest().filter(|_| is_writable).map(|oldest| oldest.elapsed());
            let is_old = age.is_some_and(|age| age >= self.gather.age_max);
            let open = state.open.as_ref().filter(|_| is_writable);
            if open.is_some_and(|open| open.used >= self.gather.step_bytes || is_old) {
                // None is on its way, so this waits for nobody.
                let handed_over = self.hand_over(state);
                state = handed_over.unwrap_or_else(|_| lock(&self.gather.state));
                continue;
            }
            // Who waits hears of it where it cannot be done.
            let is_wanted = state.committed < state.wanted;
            if state.landed.is_some() && (is_old || is_wanted) {
                state = self.commit(state, None);
                continue;
            }
            if state.ends {
                return;
            }
            let most = age.map(|age| self.gather.age_max.saturating_sub(age));
            state = wait_at_most(&self.gather.asked, state, most);
        }
    }

    /// Writes the batch that was handed over, and commits what has landed where that is due.
    fn write_batch_out<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let closed = state.closed.as_mut().expect("the caller has seen it");
        closed.is_taken = true;
        let mut data = closed.data();
        let records = std::mem::take(&mut closed.records);
        let landed = state.landed.as_ref().map_or(0, |landed| landed.records.len());
        if landed + records.len() > self.gather.records_max {
            state = self.commit(state, None);
        }
        drop(state);
        count(&self.counters.gathered_batches, 1);
        let large = data.take_if(|data| data.length() > self.gather.step_bytes);
        let has_landed = large.is_some();
        let outcome = large.map_or(Ok(()), |data| self.write_steps(&data));
        let mut state = lock(&self.gather.state);
        if let Err(error) = outcome {
            self.give_up(error);
            return state;
        }
        if has_landed {
            state.land(records);
            self.end_batch(&mut state);
            if self.is_commit_due(&state) {
                state = self.commit(state, None);
            }
            return state;
        }
        // What is less than a step goes together with the journal.
        self.commit(state, Some((records, data)))
    }

    /// Writes the data of a batch step by step.
    fn write_steps(&self, data: &Data) -> Result<()> {
        for step in data.steps(self.gather.step_bytes) {
            self.medium.permit()?.write_values(&step)?;
            let written: usize = step.iter().map(|(bytes, _)| bytes.len()).sum();
            if let Some(closed) = &mut lock(&self.gather.state).closed {
                closed.unwritten -= written;
            }
            self.gather.room.notify_one();
        }
        Ok(())
    }

    /// Whether no more may land before a commit.
    fn is_commit_due(&self, state: &State) -> bool {
        state.landed.as_ref().is_some_and(|landed| {
            state.committed < state.wanted
                || landed.bytes >= self.gather.landed_bytes_max
                || landed.records.len() >= self.gather.records_max
                || landed.since.elapsed() >= self.gather.age_max
        })
    }

    /// Commits what has landed, and with it the records and data of the batch in hand, which ends then.
    fn commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        in_hand: Option<(Vec<Record>, Option<Data>)>,
    ) -> MutexGuard<'a, State> {
        let mut records = state.landed.take().map_or_else(Vec::new, |landed| landed.records);
        let (has_batch, mut data) = (in_hand.is_some(), None);
        if let Some((last, its_data)) = in_hand {
            records.extend(last);
            data = its_data;
        }
        drop(state);
        let outcome = self.submit_gathered(records, data);
        let mut state = lock(&self.gather.state);
        if let Err(error) = outcome {
            self.give_up(error);
            return state;
        }
        if has_batch {
            self.end_batch(&mut state);
        }
        let committed = state.written;
        state.committed = committed;
        state.fresh.retain(|_, fresh| fresh.batch >= committed);
        self.gather.fresh.store(state.fresh.len(), Ordering::SeqCst);
        self.gather.ended.notify_all();
        state
    }

    /// These changes were answered. Nobody may take a failure for success, and readers go on seeing them.
    fn give_up(&self, error: Error) {
        self.medium.refuse(error.refusal());
        self.gather.ended.notify_all();
        self.gather.room.notify_all();
    }

    /// The batch in hand is on the device, and its memory is free.
    fn end_batch(&self, state: &mut State) {
        state.written += 1;
        let closed = state.closed.take().expect("it was written");
        state.spare = Arc::into_inner(closed.memory);
        // Those of another size than what comes now are not kept for ever.
        let mut room = 2 * self.gather.batch_bytes;
        state.spare_values.extend(closed.kept.into_iter().filter_map(Arc::into_inner));
        state.spare_values.retain(|memory| {
            let is_kept = memory.len() <= room;
            room = room.saturating_sub(memory.len());
            is_kept
        });
        self.gather.ended.notify_all();
        self.gather.room.notify_one();
    }
}
