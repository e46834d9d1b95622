//! One flush at a time for many threads that want theirs.
//!
//! A flush covers what was written before it began. Threads that come while one is under way share
//! the next one: the first of them begins it, and none waits for more than that. Knows nothing of
//! devices.

use crate::error::{Error, Result};
use crate::shared::NOT_POISONED;
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Flushes {
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    /// The number of the youngest flush that succeeded.
    done: u64,
    is_under_way: bool,
    waiting: usize,
    /// A flush panicked: nobody knows what it covered, and none may follow that seems to cover it.
    is_broken: bool,
}

/// Where the time stood when a sync was asked for, counted in flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushMark(u64);

/// That a flush succeeded. There is none without: see `medium`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed(u64);

impl Flushed {
    /// Whether it made durable what was written before the mark was taken.
    pub(crate) fn covers(self, mark: FlushMark) -> bool {
        self.0 > mark.0
    }

    /// For the canaries that leave a flush out.
    pub(crate) fn only_claimed() -> Self {
        Self(u64::MAX)
    }
}

impl Flushes {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect(NOT_POISONED)
    }

    /// Taken before a sync waits for anything.
    pub(crate) fn mark(&self) -> FlushMark {
        FlushMark(self.lock().begun)
    }

    /// Calls `flush`, unless a flush that began after `mark` has succeeded meanwhile: it covers all
    /// that had been written when the mark was taken. `flush` must fail once one has failed.
    pub(crate) fn since(
        &self,
        mark: FlushMark,
        flush: impl FnOnce() -> Result<()>,
    ) -> Result<Flushed> {
        let mut counts = self.lock();
        while counts.is_under_way && counts.done <= mark.0 {
            counts.waiting += 1;
            counts = self.ended.wait(counts).expect(NOT_POISONED);
            counts.waiting -= 1;
        }
        if counts.done > mark.0 {
            return Ok(Flushed(counts.done));
        }
        if counts.is_broken {
            return Err(Error::ReadOnly("a flush panicked".into()));
        }
        counts.begun += 1;
        counts.is_under_way = true;
        let number = counts.begun;
        let mut under_way = UnderWay { flushes: self, number, is_ok: None };
        drop(counts);
        let outcome = flush();
        under_way.is_ok = Some(outcome.is_ok());
        outcome.map(|()| Flushed(number))
    }
}

/// A flush that has begun; its end, even by a panic, lets the others go on.
struct UnderWay<'a> {
    flushes: &'a Flushes,
    number: u64,
    /// `None` while it has not returned.
    is_ok: Option<bool>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut counts = self.flushes.lock();
        counts.is_under_way = false;
        match self.is_ok {
            Some(true) => counts.done = self.number,
            Some(false) => {}
            None => counts.is_broken = true,
        }
        let has_waiting = counts.waiting > 0;
        drop(counts);
        // Waking nobody is a system call all the same.
        if has_waiting {
            self.flushes.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{Scope, ScopedJoinHandle};

    use super::*;

    /// Begins a flush in a thread of its own. It ends with `outcome` once something is sent.
    fn begin<'scope>(
        scope: &'scope Scope<'scope, '_>,
        flushes: &'scope Flushes,
        outcome: impl FnOnce() -> Result<()> + Send + 'scope,
    ) -> (ScopedJoinHandle<'scope, Result<Flushed>>, Sender<()>) {
        let (begin, begun) = channel();
        let (end, ended) = channel();
        let thread = scope.spawn(move || {
            flushes.since(flushes.mark(), || {
                begin.send(()).unwrap();
                ended.recv().unwrap();
                outcome()
            })
        });
        begun.recv().unwrap();
        (thread, end)
    }

    fn wait_for_waiting(flushes: &Flushes) {
        while flushes.lock().waiting == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_is_covered_does_not_wait_for_a_later_flush() {
        let flushes = &Flushes::default();
        std::thread::scope(|scope| {
            let mark = flushes.mark();
            let (flushing, end) = begin(scope, flushes, || Ok(()));
            // It came before the flush began, so that flush will do.
            let covered = scope.spawn(move || flushes.since(mark, || panic!("a flush too many")));
            // It came after, so it needs one of its own.
            let late = flushes.mark();
            wait_for_waiting(flushes);
            end.send(()).unwrap();
            flushing.join().unwrap().unwrap();
            covered.join().unwrap().unwrap();
            let mut count = 0;
            flushes
                .since(late, || {
                    count += 1;
                    // While this one is under way the older mark is covered at once.
                    flushes.since(mark, || panic!("a flush too many")).map(drop)
                })
                .unwrap();
            assert_eq!(count, 1);
        });
    }

    #[test]
    fn a_flush_that_panics_lets_nobody_wait_and_nobody_flush() {
        let flushes = &Flushes::default();
        std::thread::scope(|scope| {
            let mark = flushes.mark();
            let (panicking, end) = begin(scope, flushes, || panic!("of a test"));
            let waiting = scope.spawn(move || flushes.since(mark, || Ok(())));
            wait_for_waiting(flushes);
            end.send(()).unwrap();
            panicking.join().unwrap_err();
            waiting.join().unwrap().unwrap_err();
        });
        flushes.since(flushes.mark(), || Ok(())).unwrap_err();
    }

    #[test]
    fn a_flush_that_failed_covers_nobody() {
        let flushes = Flushes::default();
        let mark = flushes.mark();
        let failed = || Err(Error::ReadOnly("of a test".into()));
        flushes.since(mark, failed).unwrap_err();
        let mut count = 0;
        flushes
            .since(mark, || {
                count += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(count, 1);
    }
}
