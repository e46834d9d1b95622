//! Which of a server's threads take requests: so few that a thread which has answered finds the next request there,
//! instead of one being woken for each. A thread that waits gives its turn to another.
//!
//! Invariant: where a turn is free and nobody reads, a thread without a turn is on its way to take it, if there is one.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

thread_local! {
    /// The turn of this thread.
    static TURN: RefCell<Option<Arc<Turns>>> = const { RefCell::new(None) };
}

/// The turns of a server.
pub(crate) struct Turns {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    free: usize,
    /// Threads that read, or wait for a request to read.
    reading: usize,
}

impl Turns {
    /// So many threads may have a turn.
    pub(crate) fn new(count: usize) -> Arc<Turns> {
        assert!(count > 0);
        let state = Mutex::new(State { free: count, reading: 0 });
        Arc::new(Turns { state, freed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }

    /// Reads a request, when it is this thread's turn, which it keeps until it waits.
    pub(crate) fn read<T>(self: &Arc<Self>, read: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        if TURN.with_borrow(Option::is_none) {
            while state.free == 0 {
                state = self.freed.wait(state).expect("nothing panics with it");
            }
            state.free -= 1;
            TURN.set(Some(self.clone()));
        }
        state.reading += 1;
        drop(state);
        let read = read();
        let mut state = self.lock();
        state.reading -= 1;
        self.hand_on(&state);
        read
    }

    fn hand_on(&self, state: &State) {
        if state.reading == 0 && state.free > 0 {
            self.freed.notify_one();
        }
    }

    fn give_back(&self) {
        let mut state = self.lock();
        state.free += 1;
        self.hand_on(&state);
    }

    /// A thread that will read no more. The next one finds out for itself.
    pub(crate) fn leave(&self) {
        let had_a_turn = TURN.take().is_some();
        self.lock().free += usize::from(had_a_turn);
        self.freed.notify_one();
    }
}

/// Waits for something other than the processor, by `wait`. A thread that serves lets another take requests meanwhile.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    if let Some(turns) = TURN.take() {
        turns.give_back();
    }
    wait()
}

/// Waits until then, to a microsecond or so: it sleeps all but the last part, which it spends spinning.
pub fn wait_until(end: Instant) {
    /// Below this a sleep lasts longer than it should.
    const SPIN_MAX: Duration = Duration::from_micros(25);
    let sleep = end.saturating_duration_since(Instant::now()).saturating_sub(SPIN_MAX);
    if !sleep.is_zero() {
        waiting(|| std::thread::sleep(sleep));
    }
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
