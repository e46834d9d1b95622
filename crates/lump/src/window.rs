//! The window: free space that the journal has announced, so that an opening finds the puts in it
//! by their extents alone.
//!
//! A put in the window writes its extent, flushes for itself and is done; its record goes into the
//! journal later, with what the next leader writes. Knows nothing of the medium. Invariants: what
//! has been handed out is never handed out again; nobody is inside while the window is closed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::commit::lock;
use crate::extent::Stamp;
use crate::index::Entry;
use crate::journal::{Block, Position, Record};

/// Ranges that a put looks at, at the most.
const PROBES: usize = 8;

/// A put that was made, and of which the journal knows nothing yet.
pub(crate) struct Pending {
    pub entry: Entry,
    pub sequence: u64,
    /// The extent that it gave up: that of the value before, or its own where a later put of the
    /// same key was made before it.
    pub given_up: Option<Entry>,
}

impl Pending {
    pub fn record(&self) -> Record {
        Record::Put { entry: self.entry, sequence: self.sequence }
    }
}

/// What a closed window leaves behind.
#[derive(Default)]
pub(crate) struct Closed {
    /// Whether the journal announces a window.
    pub is_live: bool,
    /// In the order of the journal to be.
    pub pending: Vec<Pending>,
    /// What was not handed out: first unit and number of units.
    pub rest: Vec<(u64, u64)>,
}

#[derive(Default)]
struct State {
    is_live: bool,
    is_open: bool,
    /// Whether it is full, or closed, and a commit is to come or under way that opens the next one.
    is_renewed: bool,
    ranges: VecDeque<(u64, u64)>,
    /// Puts under way.
    inside: usize,
    pending: Vec<Pending>,
    /// The newest put of each key that has one in the window.
    newest: HashMap<u128, u64>,
}

/// The window of a store.
pub(crate) struct Window {
    state: Mutex<State>,
    changed: Condvar,
    /// Most puts of which the journal knows nothing.
    pub pending_max: usize,
    /// How many look for space: none of it goes to a window meanwhile.
    pub seekers: AtomicUsize,
}

impl Window {
    pub fn new(pending_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            pending_max,
            seekers: AtomicUsize::new(0),
        }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        let state = self.changed.wait_while(state, condition);
        state.expect("no thread panics while it holds the window")
    }

    /// Takes units; `None` where the window has none. Whoever got some is inside until it leaves. The
    /// first who finds it full goes to the commit, and holds others up with its `renewal`.
    pub fn enter<'a>(&'a self, units: u64, renewal: &mut Option<Renewal<'a>>) -> Option<u64> {
        let mut state = self.wait(lock(&self.state), |state| state.is_renewed);
        if !state.is_open {
            return None;
        }
        let has_room = state.pending.len() + state.inside < self.pending_max;
        let fits = |(_, length): &(u64, u64)| has_room && *length >= units;
        let Some(place) = state.ranges.iter().take(PROBES).position(fits) else {
            state.is_renewed = true;
            *renewal = Some(Renewal(self));
            return None;
        };
        let (start, length) = state.ranges[place];
        match length - units {
            0 => drop(state.ranges.remove(place)),
            rest => state.ranges[place] = (start + units, rest),
        }
        state.inside += 1;
        Some(start)
    }

    /// Leaves without having put anything.
    pub fn leave(&self) {
        self.end(lock(&self.state));
    }

    /// Leaves after a put. `change` makes it in the index, unless a later put of the same key is
    /// there already, and returns what it gave up. Returns whether anything was given up.
    pub fn finish(
        &self,
        entry: Entry,
        sequence: u64,
        change: impl FnOnce() -> Option<Entry>,
    ) -> bool {
        let mut state = lock(&self.state);
        let newest = state.newest.entry(entry.key).or_insert(sequence);
        let given_up = match *newest > sequence {
            true => Some(entry),
            false => {
                *newest = sequence;
                change()
            }
        };
        state.pending.push(Pending { entry, sequence, given_up });
        self.end(state);
        given_up.is_some()
    }

    fn end(&self, mut state: MutexGuard<'_, State>) {
        state.inside -= 1;
        if state.inside == 0 && !state.is_open {
            self.changed.notify_all();
        }
    }

    /// Closes the window and waits until nobody is inside. If it is `renewed`, others wait for
    /// [`Window::go_on`].
    pub fn close(&self, is_renewed: bool) -> Closed {
        let mut state = lock(&self.state);
        state.is_open = false;
        let is_renewed = is_renewed && state.is_live;
        if std::mem::replace(&mut state.is_renewed, is_renewed) && !is_renewed {
            self.changed.notify_all();
        }
        let mut state = self.wait(state, |state| state.inside > 0);
        state.newest.clear();
        let mut pending = std::mem::take(&mut state.pending);
        pending.sort_unstable_by_key(|put| put.sequence);
        let rest = std::mem::take(&mut state.ranges).into();
        Closed { is_live: std::mem::take(&mut state.is_live), pending, rest }
    }

    /// Opens a window that the journal has announced.
    pub fn open(&self, ranges: Vec<(u64, u64)>) {
        let mut state = lock(&self.state);
        (state.is_live, state.is_open) = (true, true);
        state.ranges = ranges.into();
    }

    /// Those who wait go on, whether the window is open or not.
    pub fn go_on(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.is_renewed) {
            self.changed.notify_all();
        }
    }

    /// Units that are not handed out, and the extents that puts in the window gave up.
    pub fn contents(&self) -> (u64, Vec<Entry>) {
        let state = lock(&self.state);
        let given_up = state.pending.iter().filter_map(|put| put.given_up).collect();
        (state.ranges.iter().map(|(_, units)| units).sum(), given_up)
    }
}

/// Others wait for the next window until this is dropped.
pub(crate) struct Renewal<'a>(&'a Window);

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// The window that a journal announces, as an opening follows it from block to block.
#[derive(Default)]
pub(crate) struct Announced {
    /// The block that tells of it, or that began to.
    pub position: Option<Position>,
    /// Epoch and least sequence of the puts that belong to it.
    pub least: Stamp,
    pub ranges: Vec<(u64, u64)>,
    /// Of the puts in it those that the journal knows of.
    pub recorded: HashSet<u64>,
    /// The next one, and how many of its ranges are still to come: until then this one counts.
    next: Option<(Box<Self>, u64)>,
}

impl Announced {
    /// Takes in the block at `position`.
    pub fn follow(&mut self, position: Position, block: &Block) {
        if block.epoch > self.least.epoch {
            // An opening has taken in what there was.
            *self = Self { least: Stamp { epoch: block.epoch, sequence: 0 }, ..Self::default() };
        }
        for record in &block.records {
            match *record {
                Record::Window { sequence, ranges } => {
                    let least = Stamp { epoch: block.epoch, sequence };
                    let next = Self { position: Some(position), least, ..Self::default() };
                    self.next = Some((Box::new(next), ranges));
                }
                Record::Range { start, units } => {
                    if let Some((next, missing)) = &mut self.next {
                        next.ranges.push((start, units));
                        *missing = missing.saturating_sub(1);
                    }
                }
                Record::Put { sequence, .. } if self.position.is_some() => {
                    self.recorded.insert(sequence);
                }
                Record::Put { .. } | Record::Delete(_) | Record::DeleteRange { .. } => {}
            }
            if let Some((next, _)) = self.next.take_if(|(_, missing)| *missing == 0) {
                *self = *next;
            }
        }
    }
}
