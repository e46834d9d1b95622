//! One flush at a time for many threads that want theirs.
//!
//! A flush covers what was written before it began. Threads that come while one is under way share
//! the next one: the first of them begins it, and none waits for more than that. Knows nothing of
//! devices.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::error::Result;
use crate::shared::NOT_POISONED;

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
}

/// Where the time stood when a sync was asked for, counted in flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushMark(u64);

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
    pub(crate) fn since(&self, mark: FlushMark, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut counts = self.lock();
        while counts.is_under_way && counts.done <= mark.0 {
            counts.waiting += 1;
            counts = self.ended.wait(counts).expect(NOT_POISONED);
            counts.waiting -= 1;
        }
        if counts.done > mark.0 {
            return Ok(());
        }
        counts.begun += 1;
        counts.is_under_way = true;
        let number = counts.begun;
        drop(counts);
        let outcome = flush();
        let mut counts = self.lock();
        counts.is_under_way = false;
        if outcome.is_ok() {
            counts.done = number;
        }
        let has_waiting = counts.waiting > 0;
        drop(counts);
        // Waking nobody is a system call all the same.
        if has_waiting {
            self.ended.notify_all();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_is_covered_does_not_wait_for_a_later_flush() {
        let flushes = Flushes::default();
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let flushes = &flushes;
            let mark = flushes.mark();
            scope.spawn(move || {
                flushes
                    .since(flushes.mark(), || {
                        begin.send(()).unwrap();
                        ended.recv().unwrap();
                        Ok(())
                    })
                    .unwrap();
            });
            begun.recv().unwrap();
            // It came before the flush began, so that flush will do.
            let covered = scope.spawn(move || flushes.since(mark, || panic!("a flush too many")));
            // It came after, so it needs one of its own.
            let late = flushes.mark();
            end.send(()).unwrap();
            covered.join().unwrap().unwrap();
            let mut count = 0;
            flushes
                .since(late, || {
                    count += 1;
                    // While this one is under way the older mark is covered at once.
                    flushes.since(mark, || panic!("a flush too many"))
                })
                .unwrap();
            assert_eq!(count, 1);
        });
    }

    #[test]
    fn a_flush_that_failed_covers_nobody() {
        let flushes = Flushes::default();
        let mark = flushes.mark();
        let failed = || Err(crate::error::Error::ReadOnly("of a test".into()));
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
