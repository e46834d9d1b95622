//! Who may use the device next when it is the bottleneck: the one with the earliest deadline.
//!
//! As long as few transfers are under way nobody waits. Knows nothing of what is transferred.
//! Invariant: at most so many turns are out at a time, and nobody waits while there are fewer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, lock};

/// What requests are ordered by: the earlier deadline first, none last.
pub(crate) fn urgency(deadline: Option<Instant>) -> (bool, Option<Instant>) {
    (deadline.is_none(), deadline)
}

type Place = ((bool, Option<Instant>), u64);

struct Waiting {
    thread: Thread,
    has_turn: Arc<AtomicBool>,
}

#[derive(Default)]
struct Room {
    out: usize,
    arrivals: u64,
    waiting: BTreeMap<Place, Waiting>,
}

/// A number of turns.
pub(crate) struct Turns {
    most: usize,
    room: Mutex<Room>,
}

/// One turn; it ends when this is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub fn new(most: usize) -> Self {
        Self { most, room: Mutex::default() }
    }

    /// Waits for a turn.
    pub fn take(&self, deadline: Option<Instant>) -> Turn<'_> {
        let mut room = lock(&self.room);
        if room.out < self.most {
            room.out += 1;
            return Turn(self);
        }
        room.arrivals += 1;
        let has_turn = Arc::new(AtomicBool::new(false));
        let waiting = Waiting { thread: thread::current(), has_turn: has_turn.clone() };
        let place = (urgency(deadline), room.arrivals);
        room.waiting.insert(place, waiting);
        drop(room);
        while !has_turn.load(Ordering::Acquire) {
            thread::park();
        }
        Turn(self)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        lock(&self.room).waiting.len()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut room = lock(&self.0.room);
        match room.waiting.pop_first() {
            Some((_, next)) => {
                next.has_turn.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => room.out -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_deadline_goes_first_and_nobody_is_forgotten() {
        let (turns, served, start) = (Turns::new(1), Mutex::new(Vec::new()), Instant::now());
        let deadlines = [None, Some(30), Some(10), None, Some(20)];
        std::thread::scope(|scope| {
            let first = turns.take(None);
            for (number, deadline) in deadlines.into_iter().enumerate() {
                let (turns, served) = (&turns, &served);
                scope.spawn(move || {
                    let deadline = deadline.map(|seconds| start + Duration::from_secs(seconds));
                    let _turn = turns.take(deadline);
                    served.lock().unwrap().push(number);
                });
                // One after the other, since those without a deadline go by their arrival.
                while turns.waiting() <= number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*served.lock().unwrap(), [2, 4, 1, 0, 3]);
        drop((turns.take(None), Turns::new(2).take(None)));
    }
}
