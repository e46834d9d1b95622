//! Runs N clients of a load file side by side: warm-up, execute, clean-up; and takes down what
//! they do, second by second.
//!
//! Knows clients, phases and the clock; what an operation does is the client's affair. Each
//! client is a thread with a file table of its own, so that locks and descriptors behave and
//! cost as in dbench's processes. Invariants: all clients begin together; the bytes of the
//! seconds of a phase add up to the bytes of the phase; when [`replay`] returns, no client runs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{DbenchClient, OperationOutcome, with_client_name};
use super::counters::{CounterSample, SystemCounters};
use super::drift::{self, Drift};
use super::durable::announce_gone;
use super::loadfile::{DbenchOperation, FORMS, LoadFile, OperationKind};
use super::monitor::Monitor;
use crate::sys;
use measure::acknowledge::Acknowledger;
use measure::latency::{Clock, KindId, LatencyRecorder, LatencyRecording};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// How long a sleeping client or monitor may overlook the stop flag.
pub(super) const NAP_NS_MAX: u64 = 100_000_000;

#[derive(Clone, Debug)]
pub struct DbenchReplay<'a> {
    pub load: &'a LoadFile,
    /// Where; the workload's top directories must not exist there yet.
    pub directory: &'a Path,
    /// The block device under the directory, where that is known better than the directory tells.
    pub device: Option<&'a Path>,
    pub clients: u32,
    /// How long at least before counting; dbench takes a fifth of the run.
    pub warmup: Duration,
    /// How long to count.
    pub execute: Duration,
    /// Hears what is durable, where the power is cut.
    pub acknowledger: Option<Arc<Acknowledger>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPhase {
    /// Not counted in the result, but in the series.
    Warmup,
    Execute,
}

/// What all clients did in about one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Second {
    /// The phase that the whole interval lies in.
    pub phase: ReplayPhase,
    /// Where it begins, from the release of the clients.
    pub start_ns: u64,
    /// How long it is: a second, less at the end of a phase.
    pub duration_ns: u64,
    /// Bytes of ReadX and WriteX.
    pub bytes: u64,
    pub operations: u64,
    /// The slowest operation that ended or was still under way.
    pub slowest_ns: u64,
}

/// What a replay came to, besides its latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    pub clients: u32,
    /// Passes over the load file that were completed, all clients together, both phases.
    pub passes: u64,
    /// Opens that were to fail and did not, both phases; dbench prints these and goes on.
    pub opened_unexpectedly: u64,
    /// Reads that returned less than the load file says, both phases; dbench prints these too.
    pub reads_short: u64,
    /// Bytes of WriteX, both phases.
    pub written_bytes: u64,
    /// Both phases, second by second.
    pub seconds: Vec<Second>,
    /// The counters at the start and at the end of each second.
    pub counters: Vec<CounterSample>,
    /// How the throughput drifted, and why.
    pub drift: Option<Drift>,
    /// What the clock read: `tsc` or `clock_monotonic`.
    pub clock: String,
}

impl ReplayReport {
    pub fn seconds_of(&self, phase: ReplayPhase) -> impl Iterator<Item = &Second> {
        self.seconds.iter().filter(move |second| second.phase == phase)
    }

    pub fn length_ns(&self, phase: ReplayPhase) -> u64 {
        self.seconds_of(phase).map(|second| second.duration_ns).sum()
    }
}

/// What a client shows of itself while it runs. Each has a cache line (two, for the
/// neighbouring-line prefetcher) to itself, so that clients do not slow each other.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Visible {
    pub(super) bytes: AtomicU64,
    pub(super) operations: AtomicU64,
    /// When the operation under way began, plus 1; 0 between operations.
    pub(super) under_way_since_ns: AtomicU64,
    /// The slowest operation since the monitor last looked.
    pub(super) slowest_ns: AtomicU64,
}

const WARMUP: u8 = 0;
pub(super) const EXECUTE: u8 = 1;

/// What clients and monitor share.
pub(super) struct Shared<'a> {
    pub(super) plan: &'a DbenchReplay<'a>,
    pub(super) clock: Clock,
    pub(super) phase: AtomicU8,
    pub(super) halt: AtomicBool,
    pub(super) visible: Vec<Visible>,
    failure: Mutex<Option<String>>,
    ready: Barrier,
}

/// What a client counts, both phases.
#[derive(Clone, Copy, Default)]
struct Tally {
    passes: u64,
    opened_unexpectedly: u64,
    reads_short: u64,
    written_bytes: u64,
}

/// Replays a workload; with its report come the latencies of the counted phase.
///
/// Raising `stop` ends the clients at their next operation; what they wrote is removed all the same.
///
/// Errors: what does not fit or is in the way; the first operation that failed, with its client, line and
/// path.
pub fn replay(
    plan: &DbenchReplay<'_>,
    stop: &AtomicBool,
) -> Result<(ReplayReport, LatencyRecording), String> {
    plan.load.check_space(plan.directory, plan.clients)?;
    let roots = roots_of(plan);
    if let Some(path) = roots.iter().find(|path| path.symlink_metadata().is_ok()) {
        let path = path.display();
        return Err(format!(
            "{path} exists already; the replay would mix with it: remove it first"
        ));
    }

    let shared = Shared {
        plan,
        clock: Clock::start(),
        phase: AtomicU8::new(if plan.warmup.is_zero() { EXECUTE } else { WARMUP }),
        halt: AtomicBool::new(false),
        visible: (0..plan.clients).map(|_| Visible::default()).collect(),
        failure: Mutex::new(None),
        ready: Barrier::new(plan.clients as usize + 1),
    };
    let mut monitor = Monitor::new(&shared, SystemCounters::new(plan.directory, plan.device));
    let results: Vec<(LatencyRecording, Tally)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.clients)
            .map(|id| {
                let shared = &shared;
                scope.spawn(move || client_thread(shared, id))
            })
            .collect();
        shared.ready.wait();
        monitor.watch(stop);
        shared.halt.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let Monitor { seconds, counters, stopped_after_ns, .. } = monitor;
    let announced = plan.acknowledger.as_deref().map(|one| announce_gone(one, Path::new("")));
    let cleaned = announced.unwrap_or(Ok(())).and_then(|()| remove_all(&roots));
    // The clients' failure is the cause and comes first, a failing removal its consequence.
    if let Some(failure) = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(failure);
    }
    cleaned?;
    if let Some(elapsed_ns) = stopped_after_ns {
        return Err(format!("the replay was stopped after {:.1} s", elapsed_ns as f64 / 1e9));
    }
    let intervals: Vec<drift::IntervalBytes> =
        seconds.iter().map(drift::IntervalBytes::from).collect();
    let sum = |figure: fn(&Tally) -> u64| results.iter().map(|(_, tally)| figure(tally)).sum();
    let report = ReplayReport {
        clients: plan.clients,
        passes: sum(|tally| tally.passes),
        opened_unexpectedly: sum(|tally| tally.opened_unexpectedly),
        reads_short: sum(|tally| tally.reads_short),
        written_bytes: sum(|tally| tally.written_bytes),
        drift: drift::drift_of(&intervals, &counters),
        seconds,
        counters,
        clock: shared.clock.source().to_owned(),
    };
    Ok((report, LatencyRecording::merged(results.into_iter().map(|(execute, _)| execute))))
}

struct RaiseOnDrop<'a>(&'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn client_thread(shared: &Shared<'_>, id: u32) -> (LatencyRecording, Tally) {
    // A client that panics or fails must not leave the others running.
    let halt_all = RaiseOnDrop(&shared.halt);
    // It would have no descriptor of the pipe for acknowledgements, with which nothing is timed.
    let own_table = shared.plan.acknowledger.as_ref().map_or_else(sys::own_file_table, |_| Ok(()));
    let mut client = DbenchClient::new(shared.plan.load, shared.plan.directory, id);
    if let Some(acknowledger) = &shared.plan.acknowledger {
        client.say_to(acknowledger.clone(), shared.plan.directory);
    }
    shared.ready.wait();
    let mut run = ClientRun::new(shared, id);
    let ended = match own_table {
        Err(error) => Err(format!("client {id} could not get a file table of its own: {error}")),
        Ok(()) => run
            .passes_over(&mut client)
            .map_err(|problem| format!("client {id} failed at {problem}")),
    };
    if let Err(failure) = ended {
        let first = &mut *shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }
    drop(halt_all);
    (run.execute.finish(), run.tally)
}

/// One client's recorders and throughput.
struct ClientRun<'a> {
    shared: &'a Shared<'a>,
    visible: &'a Visible,
    execute: LatencyRecorder,
    kinds: [KindId; FORMS.len()],
    tally: Tally,
}

impl<'a> ClientRun<'a> {
    fn new(shared: &'a Shared<'a>, id: u32) -> Self {
        let mut execute = LatencyRecorder::new();
        let kinds = FORMS.map(|(_, kind, _)| execute.kind(&kind.to_string()));
        let visible = &shared.visible[id as usize];
        Self { shared, visible, execute, kinds, tally: Tally::default() }
    }

    /// Goes through the load file again and again until the halt.
    fn passes_over(&mut self, client: &mut DbenchClient) -> Result<(), String> {
        let shared = self.shared;
        let clock = &shared.clock;
        loop {
            let pass_start_ns = clock.now_ns();
            for operation in &shared.plan.load.operations {
                if let Some(due_ns) = operation.due_ns {
                    self.sleep_until(pass_start_ns.saturating_add(due_ns));
                }
                if shared.halt.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let start_ns = clock.now_ns();
                self.visible.under_way_since_ns.store(start_ns + 1, Ordering::Relaxed);
                let outcome = client.perform(operation)?;
                let end_ns = clock.now_ns();
                self.take_down(operation, start_ns, end_ns);
                match outcome {
                    OperationOutcome::Expected => {}
                    OperationOutcome::OpenedUnexpectedly => self.tally.opened_unexpectedly += 1,
                    OperationOutcome::ReadShort => self.tally.reads_short += 1,
                }
            }
            self.tally.passes += 1;
        }
    }

    #[inline]
    fn take_down(&mut self, operation: &DbenchOperation, start_ns: u64, end_ns: u64) {
        let elapsed_ns = end_ns.saturating_sub(start_ns);
        let visible = self.visible;
        visible.under_way_since_ns.store(0, Ordering::Relaxed);
        // Only this thread adds, so plain stores of the sum are enough.
        let add =
            |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&visible.bytes, operation.bytes());
        add(&visible.operations, 1);
        if operation.kind == OperationKind::WriteX {
            self.tally.written_bytes += operation.bytes();
        }
        if elapsed_ns > visible.slowest_ns.load(Ordering::Relaxed) {
            visible.slowest_ns.store(elapsed_ns, Ordering::Relaxed);
        }
        if operation.kind != OperationKind::Sleep
            && self.shared.phase.load(Ordering::Relaxed) == EXECUTE
        {
            let kind = self.kinds[operation.kind as usize];
            self.execute.record_at(kind, end_ns, elapsed_ns, operation.bytes());
        }
    }

    fn sleep_until(&self, due_ns: u64) {
        while !self.shared.halt.load(Ordering::Relaxed) {
            let now_ns = self.shared.clock.now_ns();
            if now_ns >= due_ns {
                return;
            }
            thread::sleep(Duration::from_nanos((due_ns - now_ns).min(NAP_NS_MAX)));
        }
    }
}

/// The top directories that the workload's paths lie in, under the replay's directory.
fn roots_of(plan: &DbenchReplay<'_>) -> Vec<PathBuf> {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    for path in &plan.load.paths {
        let Some(name) = path.split(|byte| *byte == b'/').find(|part| !part.is_empty()) else {
            continue;
        };
        if name.windows(7).any(|window| window == b"client1") {
            for id in 0..plan.clients {
                names.insert(with_client_name(name, id));
            }
        } else {
            names.insert(name.to_owned());
        }
    }
    names.iter().map(|name| plan.directory.join(OsStr::from_bytes(name))).collect()
}

fn remove_all(roots: &[PathBuf]) -> Result<(), String> {
    for path in roots {
        match trust::tree::remove(path) {
            Err(refused) if !refused.is_missing() => {
                return Err(format!("cannot remove {refused}"));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
