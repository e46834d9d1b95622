//! Watches the clients of a replay, second by second, and moves them from phase to phase.
//!
//! Knows what the clients show of themselves and the counters; it never touches the workload's
//! files. Invariant: the seconds of a run lie end to end, and their bytes add up to the clients'.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::counters::{CounterSample, SystemCounters};
use super::replay::{EXECUTE, NAP_NS_MAX, ReplayPhase, SECOND_NS, Second, Shared, Visible};

/// Watches the clients and moves them from phase to phase.
pub(super) struct Monitor<'a> {
    shared: &'a Shared<'a>,
    source: SystemCounters,
    /// The clock at the release of the clients; all reported times count from it.
    release_ns: u64,
    bytes_before: u64,
    operations_before: u64,
    pub(super) seconds: Vec<Second>,
    pub(super) counters: Vec<CounterSample>,
    /// When the caller stopped the run, where it did.
    pub(super) stopped_after_ns: Option<u64>,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, source: SystemCounters) -> Self {
        Self {
            shared,
            source,
            release_ns: 0,
            bytes_before: 0,
            operations_before: 0,
            seconds: Vec::new(),
            counters: Vec::new(),
            stopped_after_ns: None,
        }
    }

    pub(super) fn watch(&mut self, stop: &AtomicBool) {
        self.release_ns = self.shared.clock.now_ns();
        self.counters.push(self.source.sample(0));
        let warmup_ns = nanoseconds(self.shared.plan.warmup);
        let execute_ns = nanoseconds(self.shared.plan.execute);

        let mut start_ns = 0;
        // The warm-up lasts until every client has done something, however long that takes. A run
        // without one is counted from the release on, as dbench counts it.
        while warmup_ns > 0 && (start_ns < warmup_ns || !self.all_have_begun()) {
            let due_ns = if start_ns < warmup_ns {
                warmup_ns.min(start_ns + SECOND_NS)
            } else {
                start_ns + NAP_NS_MAX
            };
            if !self.one_second(ReplayPhase::Warmup, &mut start_ns, due_ns, stop) {
                return;
            }
        }
        self.shared.phase.store(EXECUTE, Ordering::Relaxed);
        let end_ns = start_ns + execute_ns;
        while start_ns < end_ns {
            let due_ns = end_ns.min(start_ns + SECOND_NS);
            if !self.one_second(ReplayPhase::Execute, &mut start_ns, due_ns, stop) {
                return;
            }
        }
    }

    /// Waits until `due_ns` and takes down what happened since `start_ns`, which it moves on.
    /// False when the run is over.
    fn one_second(
        &mut self,
        phase: ReplayPhase,
        start_ns: &mut u64,
        due_ns: u64,
        stop: &AtomicBool,
    ) -> bool {
        loop {
            let now_ns = self.shared.clock.now_ns() - self.release_ns;
            if now_ns >= due_ns {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                self.stopped_after_ns = Some(now_ns);
                return false;
            }
            if self.shared.halt.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(Duration::from_nanos((due_ns - now_ns).min(NAP_NS_MAX)));
        }
        // The counters are read after the bytes: reading them takes longer.
        let bytes = self.sum(|visible| &visible.bytes);
        let operations = self.sum(|visible| &visible.operations);
        let slowest_ns = self.slowest();
        let now_ns = self.shared.clock.now_ns() - self.release_ns;
        self.seconds.push(Second {
            phase,
            start_ns: *start_ns,
            duration_ns: now_ns - *start_ns,
            bytes: bytes - self.bytes_before,
            operations: operations - self.operations_before,
            slowest_ns,
        });
        *start_ns = now_ns;
        self.bytes_before = bytes;
        self.operations_before = operations;
        self.counters.push(self.source.sample(now_ns));
        true
    }

    fn sum(&self, field: impl Fn(&Visible) -> &AtomicU64) -> u64 {
        self.shared.visible.iter().map(|visible| field(visible).load(Ordering::Relaxed)).sum()
    }

    fn slowest(&self) -> u64 {
        let now_ns = self.shared.clock.now_ns();
        let of_one = |visible: &Visible| {
            let ended_ns = visible.slowest_ns.swap(0, Ordering::Relaxed);
            match visible.under_way_since_ns.load(Ordering::Relaxed) {
                0 => ended_ns,
                since => ended_ns.max(now_ns.saturating_sub(since - 1)),
            }
        };
        self.shared.visible.iter().map(of_one).max().unwrap_or(0)
    }

    fn all_have_begun(&self) -> bool {
        self.shared.visible.iter().all(|visible| visible.operations.load(Ordering::Relaxed) > 0)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
