//! Runs N clients of a load file side by side: warm-up, execute, clean-up; and takes down what
//! they do, second by second.
//!
//! Knows clients, phases and the clock; what an operation does is the client's affair. Each
//! client is a thread with a file table of its own, so that locks and descriptors behave and
//! cost as in dbench's processes. Invariants: all clients begin together; the bytes of the
//! seconds of a phase add up to the bytes of the phase; when [`replay`] returns, no client runs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{Client, OperationError, Outcome, Semantics, with_client_name};
use super::counters::{CounterSample, CounterSource};
use super::drift::{self, DriftVerdict};
use super::loadfile::{Action, Kind, LoadFile};
use super::monitor::{Monitor, Observed};
use crate::latency::{Clock, KindId, Recorder, Recording, Series, Summary};
use crate::sys;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// How long a sleeping client or monitor may overlook the stop flag.
pub(super) const NAP_NS_MAX: u64 = 100_000_000;
/// How far a client that fell behind its rate may catch up.
const CATCH_UP_NS_MAX: u64 = SECOND_NS;

/// What to replay.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    /// The load.
    pub load: &'a LoadFile,
    /// Where; the load's top directories must not exist there yet.
    pub directory: &'a Path,
    /// How many clients.
    pub clients: u32,
    /// How long at least before counting; dbench takes a fifth of the run.
    pub warmup: Duration,
    /// How long to count.
    pub execute: Duration,
    /// How operations are carried out.
    pub semantics: Semantics,
    /// Bytes a second that each client keeps to; as fast as possible when absent.
    pub rate_bytes_per_second: Option<u64>,
}

/// A part of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Not counted in the result, but in the series.
    Warmup,
    /// Counted.
    Execute,
}

/// What all clients did in about one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// The phase that the whole interval lies in.
    pub phase: Phase,
    /// Where it begins, from the release of the clients.
    pub start_ns: u64,
    /// How long it is: a second, less at the end of a phase.
    pub duration_ns: u64,
    /// Bytes of ReadX and WriteX.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
    /// The slowest operation that ended or was still under way.
    pub slowest_ns: u64,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// How many clients ran.
    pub clients: u32,
    /// Length of the warm-up.
    pub warmup_ns: u64,
    /// Length of the counted phase.
    pub execute_ns: u64,
    /// How long the clean-up took.
    pub cleanup_ns: u64,
    /// Bytes of ReadX and WriteX in the counted phase.
    pub bytes: u64,
    /// [`Self::bytes`] a second: what dbench calls throughput, which it prints in units of
    /// 10^6 bytes.
    pub throughput_bytes_per_second: f64,
    /// Passes over the load file that were completed, all clients together, both phases.
    pub passes: u64,
    /// Opens that were to fail and did not, both phases; dbench prints these and goes on.
    pub opened_unexpectedly: u64,
    /// Reads that returned less than the load file says, both phases; dbench prints these too.
    pub reads_short: u64,
    /// Latencies of the counted phase.
    pub latencies: Summary,
    /// Latencies over time of the counted phase.
    pub latency_series: Option<Series>,
    /// Both phases, second by second.
    pub seconds: Vec<Second>,
    /// The counters at the start and at the end of each second.
    pub counters: Vec<CounterSample>,
    /// Whether the throughput drifted, and why.
    pub drift: DriftVerdict,
    /// What the clock read: `tsc` or `clock_monotonic`.
    pub clock: String,
}

/// A report, and the histograms that it was made from.
#[derive(Clone, Debug)]
pub struct ReplayOutcome {
    /// The report.
    pub report: ReplayReport,
    /// Every latency of the counted phase.
    pub execute: Recording,
    /// Every latency of the warm-up.
    pub warmup: Recording,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The plan makes no sense.
    #[error("{0}")]
    Plan(String),
    /// Something of an earlier run is in the way.
    #[error("{path} exists already; the replay would mix with it: remove it first")]
    NotClean {
        /// What exists.
        path: PathBuf,
    },
    /// What the clients keep does not fit.
    #[error(
        "{clients} clients need {needed_bytes} bytes for their files, {path} has {available_bytes}"
    )]
    TooBig {
        /// How many clients.
        clients: u32,
        /// What their files have at one time.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
        /// The directory.
        path: PathBuf,
    },
    /// The directory could not be looked at.
    #[error("{path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A client could not do what the load file says.
    #[error("client {client} failed at {source}")]
    Client {
        /// Its number, from 0.
        client: u32,
        /// The line and the reason.
        source: OperationError,
    },
    /// A client could not be set up.
    #[error("client {client} could not get a file table of its own: {source}")]
    Setup {
        /// Its number, from 0.
        client: u32,
        /// Why.
        source: io::Error,
    },
    /// What the clients wrote could not be removed.
    #[error("cannot remove {path}: {source}")]
    CleanUp {
        /// What stays behind.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stop flag was raised.
    #[error("the replay was stopped after {:.1} s", *elapsed_ns as f64 / 1e9)]
    Stopped {
        /// From the release of the clients.
        elapsed_ns: u64,
    },
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
    pub(super) plan: &'a Replay<'a>,
    pub(super) clock: Clock,
    pub(super) phase: AtomicU8,
    pub(super) halt: AtomicBool,
    pub(super) visible: Vec<Visible>,
    failure: Mutex<Option<ReplayError>>,
    ready: Barrier,
}

/// What a client hands back.
struct ClientResult {
    warmup: Recording,
    execute: Recording,
    passes: u64,
    opened_unexpectedly: u64,
    reads_short: u64,
}

/// Replays a load.
///
/// `counters` is asked at the start and once a second; `progress` is told each second. Raising
/// `stop` ends the clients at their next operation; what they wrote is removed all the same.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(
    plan: &Replay<'_>,
    counters: &mut dyn CounterSource,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Second),
) -> Result<ReplayOutcome, ReplayError> {
    check_plan(plan)?;
    let roots = roots_of(plan);
    if let Some(path) = roots.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(ReplayError::NotClean { path: path.clone() });
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
    let mut monitor = Monitor::new(&shared, counters, progress);
    let results: Vec<ClientResult> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.clients)
            .map(|id| {
                let shared = &shared;
                scope.spawn(move || client_thread(shared, id))
            })
            .collect();
        shared.ready.wait();
        // The monitor may unwind from the caller's progress function; the clients must end.
        let _halt = RaiseOnDrop(&shared.halt);
        monitor.watch(stop);
        shared.halt.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let observed = monitor.finish();

    let cleanup_start_ns = shared.clock.now_ns();
    let cleaned = remove_all(&roots);
    let cleanup_ns = shared.clock.now_ns().saturating_sub(cleanup_start_ns);
    // The clients' failure is the cause and comes first, a failing removal its consequence.
    let failure = shared.failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(failure) = failure {
        return Err(failure);
    }
    cleaned?;
    if observed.stopped {
        return Err(ReplayError::Stopped { elapsed_ns: observed.elapsed_ns });
    }
    Ok(outcome(plan, &shared.clock, results, observed, cleanup_ns))
}

/// Refuses what makes no sense or does not fit, before anything is touched.
fn check_plan(plan: &Replay<'_>) -> Result<(), ReplayError> {
    if plan.clients == 0 {
        return Err(ReplayError::Plan("a replay needs at least one client".to_owned()));
    }
    if plan.execute.is_zero() {
        return Err(ReplayError::Plan("the counted phase has no length".to_owned()));
    }
    if plan.rate_bytes_per_second == Some(0) {
        return Err(ReplayError::Plan("a rate of 0 bytes a second".to_owned()));
    }
    let path = plan.directory.to_owned();
    let space = rustix::fs::statvfs(plan.directory)
        .map_err(|error| ReplayError::Directory { path: path.clone(), source: error.into() })?;
    let available_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let needed_bytes = plan.load.peak_bytes().saturating_mul(u64::from(plan.clients));
    if needed_bytes > available_bytes {
        let clients = plan.clients;
        return Err(ReplayError::TooBig { clients, needed_bytes, available_bytes, path });
    }
    Ok(())
}

fn outcome(
    plan: &Replay<'_>,
    clock: &Clock,
    results: Vec<ClientResult>,
    observed: Observed,
    cleanup_ns: u64,
) -> ReplayOutcome {
    let mut passes = 0;
    let mut opened_unexpectedly = 0;
    let mut reads_short = 0;
    let mut warmups = Vec::new();
    let mut executes = Vec::new();
    for result in results {
        passes += result.passes;
        opened_unexpectedly += result.opened_unexpectedly;
        reads_short += result.reads_short;
        warmups.push(result.warmup);
        executes.push(result.execute);
    }
    let execute = Recording::merged(executes);
    let in_phase = |phase| observed.seconds.iter().filter(move |second| second.phase == phase);
    let bytes = in_phase(Phase::Execute).map(|second| second.bytes).sum();
    let warmup_ns = in_phase(Phase::Warmup).map(|second| second.duration_ns).sum();
    let execute_ns: u64 = in_phase(Phase::Execute).map(|second| second.duration_ns).sum();
    let series: Vec<drift::Interval> = observed.seconds.iter().map(drift::Interval::from).collect();
    let report = ReplayReport {
        clients: plan.clients,
        warmup_ns,
        execute_ns,
        cleanup_ns,
        bytes,
        throughput_bytes_per_second: bytes as f64 / (execute_ns.max(1) as f64 / 1e9),
        passes,
        opened_unexpectedly,
        reads_short,
        latencies: execute.summary(),
        latency_series: execute.series(),
        drift: drift::verdict(&series, &observed.counters),
        seconds: observed.seconds,
        counters: observed.counters,
        clock: clock.source().to_owned(),
    };
    ReplayOutcome { report, execute, warmup: Recording::merged(warmups) }
}

// ---------------------------------------------------------------------------------------------
// The clients
// ---------------------------------------------------------------------------------------------

struct RaiseOnDrop<'a>(&'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn client_thread(shared: &Shared<'_>, id: u32) -> ClientResult {
    // A client that panics or fails must not leave the others running.
    let halt_all = RaiseOnDrop(&shared.halt);
    let own_table = sys::own_file_table();
    let mut client =
        Client::new(shared.plan.load, &shared.plan.semantics, shared.plan.directory, id);
    shared.ready.wait();
    let mut run = ClientRun::new(shared, id);
    let ended = match own_table {
        Err(source) => Err(ReplayError::Setup { client: id, source }),
        Ok(()) => run
            .passes_over(&mut client)
            .map_err(|source| ReplayError::Client { client: id, source }),
    };
    if let Err(failure) = ended {
        shared
            .failure
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .get_or_insert(failure);
    }
    drop(halt_all);
    run.finish()
}

/// One client's recorders and throughput.
struct ClientRun<'a> {
    shared: &'a Shared<'a>,
    visible: &'a Visible,
    in_execute: bool,
    warmup: Recorder,
    execute: Recorder,
    kinds: [KindId; Kind::ALL.len()],
    due_ns: u64,
    passes: u64,
    opened_unexpectedly: u64,
    reads_short: u64,
}

impl<'a> ClientRun<'a> {
    fn new(shared: &'a Shared<'a>, id: u32) -> Self {
        let mut warmup = Recorder::with_intervals(Duration::from_secs(1));
        let mut execute = Recorder::with_intervals(Duration::from_secs(1));
        // Both recorders give the same numbers to the same names in the same order.
        let kinds = Kind::ALL.map(|kind| warmup.kind(kind.name()));
        assert_eq!(kinds, Kind::ALL.map(|kind| execute.kind(kind.name())));
        Self {
            shared,
            visible: &shared.visible[id as usize],
            in_execute: false,
            warmup,
            execute,
            kinds,
            due_ns: 0,
            passes: 0,
            opened_unexpectedly: 0,
            reads_short: 0,
        }
    }

    /// Goes through the load file again and again until the halt.
    fn passes_over(&mut self, client: &mut Client<'_>) -> Result<(), OperationError> {
        let shared = self.shared;
        let clock = &shared.clock;
        loop {
            let pass_start_ns = clock.now_ns();
            self.due_ns = self.due_ns.max(pass_start_ns);
            for operation in &shared.plan.load.operations {
                if shared.plan.rate_bytes_per_second.is_some() {
                    self.keep_to_rate();
                } else if let Some(due_ns) = operation.due_ns {
                    self.sleep_until(pass_start_ns.saturating_add(due_ns));
                }
                if shared.halt.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let start_ns = clock.now_ns();
                self.visible.under_way_since_ns.store(start_ns + 1, Ordering::Relaxed);
                let outcome = client.perform(operation)?;
                let end_ns = clock.now_ns();
                let bytes = match operation.action {
                    Action::Read { size_bytes, .. } | Action::Write { size_bytes, .. } => {
                        u64::from(size_bytes)
                    }
                    _ => 0,
                };
                self.take_down(operation.action.kind(), start_ns, end_ns, bytes);
                match outcome {
                    Outcome::Expected => {}
                    Outcome::OpenedUnexpectedly => self.opened_unexpectedly += 1,
                    Outcome::ReadShort => self.reads_short += 1,
                }
            }
            self.passes += 1;
        }
    }

    #[inline]
    fn take_down(&mut self, kind: Option<Kind>, start_ns: u64, end_ns: u64, bytes: u64) {
        let elapsed_ns = end_ns.saturating_sub(start_ns);
        let visible = self.visible;
        visible.under_way_since_ns.store(0, Ordering::Relaxed);
        // Only this thread adds, so plain stores of the sum are enough.
        if bytes != 0 {
            let sum = visible.bytes.load(Ordering::Relaxed) + bytes;
            visible.bytes.store(sum, Ordering::Relaxed);
            if let Some(rate) = self.shared.plan.rate_bytes_per_second {
                self.due_ns = self.due_ns.saturating_add(
                    u64::try_from(u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate))
                        .unwrap_or(u64::MAX),
                );
            }
        }
        visible.operations.store(visible.operations.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if elapsed_ns > visible.slowest_ns.load(Ordering::Relaxed) {
            visible.slowest_ns.store(elapsed_ns, Ordering::Relaxed);
        }
        let Some(kind) = kind else {
            return;
        };
        if !self.in_execute {
            self.in_execute = self.shared.phase.load(Ordering::Relaxed) == EXECUTE;
        }
        let recorder = if self.in_execute { &mut self.execute } else { &mut self.warmup };
        recorder.record_at(self.kinds[kind as usize], end_ns, elapsed_ns, bytes);
    }

    /// Waits until the bytes so far are due. dbench waits in whole milliseconds and so lets
    /// most small transfers pass unslowed; this keeps the rate that was asked for.
    fn keep_to_rate(&mut self) {
        let now_ns = self.shared.clock.now_ns();
        self.due_ns = self.due_ns.max(now_ns.saturating_sub(CATCH_UP_NS_MAX));
        self.sleep_until(self.due_ns);
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

    fn finish(self) -> ClientResult {
        ClientResult {
            warmup: self.warmup.finish(),
            execute: self.execute.finish(),
            passes: self.passes,
            opened_unexpectedly: self.opened_unexpectedly,
            reads_short: self.reads_short,
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Cleaning up
// ---------------------------------------------------------------------------------------------

/// The top directories that the load's paths lie in, under the replay's directory.
fn roots_of(plan: &Replay<'_>) -> Vec<PathBuf> {
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

fn remove_all(roots: &[PathBuf]) -> Result<(), ReplayError> {
    for path in roots {
        let removed = match path.symlink_metadata() {
            Err(_) => continue,
            Ok(facts) if facts.is_dir() => std::fs::remove_dir_all(path),
            Ok(_) => std::fs::remove_file(path),
        };
        removed.map_err(|source| ReplayError::CleanUp { path: path.clone(), source })?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
