//! Changes that nobody wants durable yet: gathered in memory, laid out on end as far as there is such
//! space, and written together while their clients go on.
//!
//! One batch is open and takes changes; one more may be on its way to the device, by a thread of its
//! own. Each batch is one commit, so the batches, and the changes within one, become visible to an
//! opening in the order in which they were made. Readers find what is in a batch here, before they look
//! into the index. Whoever makes a change that is not gathered waits first until what is here of its
//! keys has been written ([`Engine::settle`]). The lock is taken before that of the space.
//!
//! Knows nothing of the medium. Invariants: a key is in `fresh` as long as its newest gathered change
//! is not in the index; batches are handed over in the order of their numbers, one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::AlignedBuffer;

use crate::commit::gathered_max;
use crate::data::{Data, Memory, Piece};
use crate::engine::Engine;
use crate::error::Result;
use crate::extent::{Stamp, Value, chunk_checksums, extent_bytes, seal_with};
use crate::journal::Record;
use crate::metrics::count;
use crate::sabotage::Sabotage;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_at_most};

/// Where the newest gathered change of a key is.
#[derive(Clone, Copy)]
struct Fresh {
    /// The number of its batch.
    batch: u64,
    /// Where the value lies in the memory of the batch, in bytes, and its length; none where it was deleted.
    value: Option<(usize, usize)>,
}

/// The batch that takes changes.
struct Open {
    memory: AlignedBuffer,
    used: usize,
    /// Where the used part of the memory goes.
    pieces: Vec<Piece>,
    /// What is left of the free extent in which the last piece lies: first unit and number of units.
    rest: (u64, u64),
    records: Vec<Record>,
    since: Instant,
}

/// A batch on its way.
struct Closed {
    memory: Arc<AlignedBuffer>,
    used: usize,
    pieces: Vec<Piece>,
    records: Vec<Record>,
    is_taken: bool,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    closed: Option<Closed>,
    fresh: HashMap<u128, Fresh>,
    /// Number of the batch that is open or will be next, and how many have been written.
    number: u64,
    written: u64,
    /// Memory of an earlier batch.
    spare: Option<AlignedBuffer>,
    ends: bool,
}

/// What has been gathered.
pub(crate) struct Gather {
    state: Mutex<State>,
    /// There is something to do for the thread that writes.
    asked: Condvar,
    /// A batch has been written.
    ended: Condvar,
    /// Size of `fresh`, for those who find nothing there.
    fresh: AtomicUsize,
    /// Bytes of a batch; none are gathered where this is 0.
    batch_bytes: usize,
    records_max: usize,
    /// A batch is handed over once its oldest change is so old.
    age_max: Duration,
}

/// What a key has here.
pub(crate) enum Found {
    /// Nothing: the index knows.
    Nothing,
    /// It was deleted.
    Deleted,
    /// A value of so many bytes.
    Value(usize),
}

impl Gather {
    /// `bytes_max` is for two batches.
    pub fn new(bytes_max: u64, age_max: Duration, geometry: &crate::Geometry) -> Self {
        Self {
            state: Mutex::default(),
            asked: Condvar::new(),
            ended: Condvar::new(),
            fresh: AtomicUsize::new(0),
            batch_bytes: (bytes_max.min(geometry.data_bytes()) / 2) as usize,
            records_max: gathered_max(geometry),
            age_max,
        }
    }

    /// What a key has here. A value is copied into `value`, if there is one for it.
    pub fn find(&self, key: u128, value: Option<&mut Value>) -> Found {
        if self.fresh.load(Ordering::SeqCst) == 0 {
            return Found::Nothing;
        }
        let state = lock(&self.state);
        let Some(fresh) = state.fresh.get(&key) else { return Found::Nothing };
        let Some((at, length)) = fresh.value else { return Found::Deleted };
        if let Some(value) = value {
            let memory: &[u8] = match (&state.open, &state.closed) {
                (Some(open), _) if fresh.batch == state.number => &open.memory,
                (_, Some(closed)) => &closed.memory,
                _ => unreachable!("a key is here as long as its batch"),
            };
            value.resize(length);
            value.copy_from_slice(&memory[at..at + length]);
        }
        Found::Value(length)
    }

    /// Bytes that wait in memory, and the age of the oldest change in the open batch.
    pub fn waiting(&self) -> (u64, Duration) {
        let state = lock(&self.state);
        let closed = state.closed.as_ref().map_or(0, |closed| closed.used);
        let open = state.open.as_ref();
        let bytes = closed + open.map_or(0, |open| open.used);
        (bytes as u64, open.map_or(Duration::ZERO, |open| open.since.elapsed()))
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
    pub(crate) fn gather_put(&self, key: u128, bytes: &[u8], epoch: u64) -> Result<bool> {
        let extent_bytes = extent_bytes(&self.geometry, bytes.len());
        let units = extent_bytes as u64 / self.geometry.unit_bytes;
        // Before the lock, since this takes the longest.
        let chunks = chunk_checksums(bytes);
        let mut state = self.room(extent_bytes)?;
        let open = state.open.as_mut().expect("room has opened one");
        let Some(start) = self.place(open, units) else { return Ok(false) };
        let at = open.used;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let memory = &mut open.memory[at..at + extent_bytes];
        memory[..bytes.len()].copy_from_slice(bytes);
        let stamp = Stamp { epoch, sequence };
        let (geometry, length) = (&self.geometry, bytes.len());
        let entry = seal_with(geometry, key, start, stamp, false, length, &chunks, memory);
        open.used += extent_bytes;
        self.add(state, Record::Put { entry, sequence }, key, Some((at, bytes.len())));
        Ok(true)
    }

    /// Gathers a delete; returns whether the key had a value.
    pub(crate) fn gather_delete(&self, key: u128) -> Result<bool> {
        let state = self.room(0)?;
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
        value: Option<(usize, usize)>,
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

    /// The state with an open batch whose memory has room for an extent.
    fn room(&self, extent_bytes: usize) -> Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.gather.state);
        loop {
            self.medium.permit()?;
            let fits = |open: &Open| {
                open.used + extent_bytes <= open.memory.len()
                    && open.records.len() < self.gather.records_max
            };
            match &state.open {
                Some(open) if fits(open) => return Ok(state),
                Some(_) => state = self.hand_over(state)?,
                None => {
                    let spare = state.spare.take();
                    let new = || AlignedBuffer::zeroed(self.gather.batch_bytes);
                    state.open = Some(Open {
                        memory: spare.unwrap_or_else(new),
                        used: 0,
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
        let unit_bytes = self.geometry.unit_bytes;
        let length = (units * unit_bytes) as usize;
        let (at, start) = (open.used, open.rest.0);
        if let (Some(last), true) = (open.pieces.last_mut(), open.rest.1 >= units) {
            last.length += length;
            open.rest = (start + units, open.rest.1 - units);
            return Some(start);
        }
        let mut space = lock(&self.space);
        let (rest, units_left) = std::mem::take(&mut open.rest);
        if units_left > 0 {
            space.free(rest, units_left);
        }
        let left = (open.memory.len() - open.used) as u64 / unit_bytes;
        // Others need some too.
        let most = left.min(space.free_units() / 4).max(units);
        let (start, taken) = space.allocate_some(units, most)?;
        open.pieces.push(Piece { at, length, offset: self.geometry.unit_offset(start) });
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
            let Open { memory, used, pieces, rest, records, .. } = open;
            if rest.1 > 0 {
                lock(&self.space).free(rest.0, rest.1);
            }
            let memory = Arc::new(memory);
            state.closed = Some(Closed { memory, used, pieces, records, is_taken: false });
            state.number += 1;
            self.gather.asked.notify_all();
        }
        Ok(state)
    }

    /// Waits until all that has been gathered is written.
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
        while state.written < last {
            self.medium.permit()?;
            state = wait(&self.gather.ended, state);
        }
        Ok(())
    }

    /// Waits until what has been gathered of a key is written, before a change of it goes another way.
    pub(crate) fn settle(&self, key: u128) -> Result<()> {
        match self.gather.find(key, None) {
            Found::Nothing => Ok(()),
            _ if self.sabotage == Sabotage::LeaveGathered => Ok(()),
            _ => self.drain(),
        }
    }

    /// The work of the thread that writes.
    pub(crate) fn write_gathered(&self) {
        let mut state = lock(&self.gather.state);
        loop {
            if let Some(closed) = state.closed.as_mut().filter(|closed| !closed.is_taken) {
                closed.is_taken = true;
                let mut pieces = std::mem::take(&mut closed.pieces).into_iter();
                let data = pieces.next().map(|first| Data {
                    memory: Memory::Shared(closed.memory.clone()),
                    first,
                    others: pieces.collect(),
                });
                let records = std::mem::take(&mut closed.records);
                drop(state);
                count(&self.counters.gathered_batches, 1);
                let outcome = self.submit_gathered(records, data);
                state = lock(&self.gather.state);
                self.end_batch(&mut state, outcome);
                continue;
            }
            let is_writable = self.medium.refusal().is_none();
            let open = state.open.as_ref().filter(|_| is_writable);
            let age = open.map(|open| open.since.elapsed());
            if age.is_some_and(|age| age >= self.gather.age_max) {
                // None is on its way, so this waits for nobody.
                let handed_over = self.hand_over(state);
                state = handed_over.unwrap_or_else(|_| lock(&self.gather.state));
                continue;
            }
            if state.ends {
                return;
            }
            let most = age.map(|age| self.gather.age_max.saturating_sub(age));
            state = wait_at_most(&self.gather.asked, state, most);
        }
    }

    fn end_batch(&self, state: &mut State, outcome: Result<()>) {
        // These changes were answered. Nobody may take a failure for success, and readers go on seeing them.
        if let Err(error) = outcome {
            self.medium.refuse(error.refusal());
            self.gather.ended.notify_all();
            return;
        }
        let number = state.written;
        state.written += 1;
        state.fresh.retain(|_, fresh| fresh.batch != number);
        self.gather.fresh.store(state.fresh.len(), Ordering::SeqCst);
        let closed = state.closed.take().expect("it was written");
        state.spare = Arc::into_inner(closed.memory);
        self.gather.ended.notify_all();
    }
}
