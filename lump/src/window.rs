//! The window: free space that the journal has announced, so that an opening finds the puts in it
//! by their extents alone.
//!
//! A put in the window writes its extent, is flushed and done; its record goes into the
//! journal later, with what the next leader writes. Knows nothing of the medium. Invariants: what
//! has been handed out is never handed out again; nobody is inside while the window is closed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::extent::Stamp;
use crate::index::Entry;
use crate::journal::{Block, Position, Record};
use crate::sabotage::Sabotage;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// Ranges that a put looks at, at the most.
const PROBES: usize = 8;
/// A window of which each client that was in it at once had fewer puts was not worth its end.
const PUTS_MIN: usize = 8;
/// Most commits after which there is no window, when there could be one.
const WAIT_MAX: u32 = 63;

/// A longer flush is worth more if all changes share it: on a disk behind one queue, where writes wait
/// for flushes, 8 clients took 1.2 to 2 times as long with windows from flushes of 0.3 ms on.
const FLUSH_MAX: Duration = Duration::from_micros(250);

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
    /// Puts under way, and the most that were at once.
    inside: usize,
    inside_most: usize,
    pending: Vec<Pending>,
    /// The newest put of each key that has one in the window.
    newest: HashMap<u128, u64>,
    /// Commits until the next window, and how many they were after the one before.
    wait: u32,
    waited: u32,
}

/// The window of a store.
pub(crate) struct Window {
    state: Mutex<State>,
    changed: Condvar,
    /// Most puts of which the journal knows nothing.
    pub pending_max: usize,
    /// How many look for space: none of it goes to a window meanwhile.
    pub seekers: AtomicUsize,
    /// Whether windows become rare where other changes end them early, and none follows a long flush.
    is_patient: bool,
    sabotage: Sabotage,
}

impl Window {
    pub fn new(pending_max: usize, is_patient: bool, sabotage: Sabotage) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            pending_max,
            seekers: AtomicUsize::new(0),
            is_patient,
            sabotage,
        }
    }

    /// Whether there shall be a window behind a commit after which there could be one, the flush before
    /// having taken so long.
    pub fn is_due(&self, flush: Duration) -> bool {
        if self.is_patient && flush > FLUSH_MAX {
            return false;
        }
        let wait = &mut lock(&self.state).wait;
        std::mem::replace(wait, wait.saturating_sub(1)) == 0
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
        state.inside_most = state.inside_most.max(state.inside);
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
        let given_up = if *newest > sequence && self.sabotage != Sabotage::LastWins {
            Some(entry)
        } else {
            *newest = sequence;
            change()
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
        let waits = self.sabotage != Sabotage::LeaveInside;
        let mut state = self.wait(state, |state| state.inside > 0 && waits);
        state.newest.clear();
        let most = std::mem::take(&mut state.inside_most);
        if self.is_patient && state.is_live && !is_renewed {
            let was_worth_it = state.pending.len() >= PUTS_MIN * most;
            state.waited = if was_worth_it { 0 } else { (2 * state.waited + 1).min(WAIT_MAX) };
            state.wait = state.waited;
        }
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
    /// The block with the last of its ranges.
    pub last_block: u64,
    /// Epoch and least sequence of the puts that belong to it.
    pub least: Stamp,
    pub ranges: Vec<(u64, u64)>,
    /// Of the puts in it those that the journal knows of.
    pub recorded: HashSet<u64>,
    /// The next one, and how many of its ranges are still to come: until then this one counts.
    next: Option<(Box<Self>, u64)>,
}

impl Announced {
    /// Takes in the block at `position`. Returns its puts of which it does not prove that their extents
    /// were durable: a put in the window is recorded only after its flush.
    pub fn follow(&mut self, position: Position, block: &Block) -> Vec<(Entry, u64)> {
        let mut unproven = Vec::new();
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
                Record::Put { entry, sequence } => {
                    if self.position.is_some() {
                        self.recorded.insert(sequence);
                    }
                    if !self.holds(&entry) {
                        unproven.push((entry, sequence));
                    }
                }
                Record::Delete(_) | Record::DeleteRange { .. } => {}
            }
            if let Some((next, _)) = self.next.take_if(|(_, missing)| *missing == 0) {
                *self = Self { last_block: block.sequence, ..*next };
            }
        }
        unproven
    }

    /// Whether an extent begins in the window. While there is one, no other puts get units of it.
    fn holds(&self, entry: &Entry) -> bool {
        let has = |(start, units): &(u64, u64)| {
            entry.start.checked_sub(*start).is_some_and(|at| at < *units)
        };
        self.ranges.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients who are in a window at once, each with so many puts, until another change ends it.
    fn live(window: &Window, clients: usize, puts: usize) -> usize {
        let most = clients * puts;
        window.open(vec![(0, most as u64)]);
        for put in 0..puts {
            for _ in 0..clients {
                assert!(window.enter(1, &mut None).is_some());
            }
            for client in 0..clients {
                let entry = Entry { key: client as u128, start: 0, length: 0, checksum: 0 };
                window.finish(entry, put as u64, || None);
            }
        }
        assert_eq!(window.close(false).pending.len(), most);
        (0..).find(|_| window.is_due(Duration::ZERO)).unwrap()
    }

    #[test]
    fn windows_that_end_early_become_rare() {
        let window = Window::new(1000, true, Sabotage::None);
        let waits: Vec<usize> = (0..8).map(|_| live(&window, 3, 7)).collect();
        assert_eq!(waits, [1, 3, 7, 15, 31, 63, 63, 63]);
        assert_eq!((live(&window, 3, 8), live(&window, 3, 7)), (0, 1));
        assert_eq!(live(&Window::new(1000, false, Sabotage::None), 3, 7), 0);
    }

    #[test]
    fn no_window_follows_a_flush_that_is_worth_sharing() {
        let window = Window::new(1000, true, Sabotage::None);
        let flushes = [FLUSH_MAX * 2, FLUSH_MAX, FLUSH_MAX * 2];
        assert_eq!(flushes.map(|flush| window.is_due(flush)), [false, true, false]);
        assert!(Window::new(1000, false, Sabotage::None).is_due(FLUSH_MAX * 2));
    }

    #[test]
    fn the_first_who_finds_the_window_full_holds_the_others_up() {
        let window = Window::new(1000, true, Sabotage::None);
        window.open(vec![(5, 3)]);
        let (mut first, mut second) = (None, None);
        assert_eq!(window.enter(3, &mut first), Some(5));
        window.leave();
        assert!(first.is_none() && window.enter(1, &mut first).is_none() && first.is_some());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| window.enter(2, &mut second));
            // Full, and for the other one too, if it did not wait.
            window.close(true);
            window.open(vec![(9, 2)]);
            drop(first);
            assert_eq!(other.join().unwrap(), Some(9));
        });
        assert!(second.is_none());
    }
}
