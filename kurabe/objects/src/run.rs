//! Carries a program out on a store, and measures it.
//!
//! Each thread takes commands from the one stream ([`super::feed`]), makes the contents, and only
//! then starts the clock around the call into the store. In a closed loop the latency is that of
//! the call; in an open loop it counts from the moment at which the command should have begun, so
//! that a store which falls behind is seen to do so. What is compared (verify mode) is compared
//! outside of that time. The run ends with a sync that is timed by itself.
//!
//! Must not know: file systems, mkfs, statistics.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use vocabulary::check::CONTENTS;

use super::durable::ObjectAcknowledger;
use super::feed::{Feed, FeedStop, SharedFeed};
use super::plan::{CapacityFit, CapacityNeed, ProgramPlan};
use super::program::Program;
use super::report::{ProgramFailure, ProgramOutcome, Report, Verification};
use super::store::{self, Store, StoreError, StoreKind, StoreLocation, StoreOptions};
use super::stream::Stream;
use measure::durable::WholeSync;
use measure::latency::{Clock, LatencyRecording};

mod sweep;
mod worker;

use sweep::{Reopen, sweep};
use worker::{Worker, WorkerReport};

/// How the message begins where a store has no room for all that a program keeps.
pub const DOES_NOT_FIT: &str = "the program does not fit";

#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How the store is made.
    pub store: StoreOptions,
    /// Compare everything that is read with what was put, read before deleting, and read all
    /// objects again at the end.
    pub verify: bool,
    /// Goes into the contents of every object: give each run on a device another one, and nothing
    /// that an earlier run left there can be taken for this one's.
    pub salt: u64,
    /// Says what is durable, where the power is cut.
    pub acknowledgements: Option<Arc<ObjectAcknowledger>>,
}

/// Length of an interval of the series.
const INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a run that has begun, in this order. The caller hears of the beginning of each, so
/// that it can read its own counters there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramPhase {
    /// The commands are carried out.
    Running,
    /// What they left is made durable.
    Syncing,
    /// The store is durable; it is opened again and compared, when that was asked for.
    Sweeping,
}

/// The name of the check that a run makes: one that does not verify looks whether what was put is
/// there, with its length.
pub fn check_name(verifies: bool) -> &'static str {
    if verifies { CONTENTS } else { "presence" }
}

/// How often the caller hears of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A journal takes at most this part of a store when a limit in time makes the program's greatest
/// live set uncertain.
const LOOSE_JOURNAL_SHARE: u64 = 16;

/// Of the space that a file system says is free, what a store on one file may take: the rest is
/// for the file system's own needs.
const USABLE_SHARE: f64 = 0.95;

/// What hears of the progress, and ends the run by breaking.
type Listener<'a> = &'a mut dyn FnMut(ProgramPhase) -> ControlFlow<()>;

/// Runs a program on a fresh store of this name, made at `place`.
///
/// `progress` is called with the [`ProgramPhase`] at the beginning of each and about ten times a second, and
/// ends the run by breaking.
///
/// Errors: only before the first command. What goes wrong later is the [`ProgramOutcome`] of the report, with all
/// that was measured until then.
pub fn run(
    program: &Program,
    options: &RunOptions,
    place: &StoreLocation,
    store_name: &str,
    progress: Listener<'_>,
) -> Result<Report, String> {
    let kind = store::kind(store_name)?;
    let plan = ProgramPlan::of(program);
    check(&plan, options, kind)?;
    let (fit, store_options) = fitted(&plan, threads(program), options, place, kind)?;

    let setup = Clock::start();
    let store = (kind.create)(place, &store_options)?;
    make_durable(store.as_ref(), kind, place, &options.store.whole_sync)?;
    let create_ns = setup.now_ns();
    let store_facts = store.facts();
    let made_of_bytes = store.written_bytes();

    let begun = progress(ProgramPhase::Running);
    let clock = Clock::start();
    let mut measured = Run {
        store: store.as_ref(),
        options,
        keeps_contents: kind.keeps_contents,
        classes: Stream::new(program).classes().iter().map(|size| size.label()).collect(),
        clock,
        is_cancelled: AtomicBool::new(begun.is_break()),
    }
    .carry_out(program, progress);
    let promised = options
        .acknowledgements
        .as_deref()
        .map(|acknowledgements| (acknowledgements, acknowledgements.begin_sync()));
    let sync_ns = measured.sync(store.as_ref(), clock, progress);
    if let (Some((acknowledgements, promised)), false) = (promised, measured.has_failed()) {
        // Whoever hears nothing any more has ended the trial.
        let _ = acknowledgements.end_sync(promised);
    }
    let store_usage = store.usage();
    let store_written_bytes =
        store.written_bytes().zip(made_of_bytes).map(|(all, made_of)| all - made_of);
    drop(store);
    let reopen = || (kind.open)(place, &store_options);
    let verification = measured.sweep(&reopen, options, progress);
    // Without verifying a program may have nothing to look at.
    let check = Some(measured.sum.check)
        .filter(|check| kind.keeps_contents && (options.verify || check.tried > 0));
    Ok(Report {
        store: kind.name.to_owned(),
        store_options,
        store_facts,
        store_usage,
        plan,
        fit,
        threads: threads(program),
        open_loop: program.settings.rate.is_some(),
        clock: clock.source().to_owned(),
        outcome: measured.outcome,
        commands: measured.sum.commands,
        skipped: measured.stream.skipped(),
        create_ns,
        elapsed_ns: measured.sum.ended_ns,
        sync_ns,
        bytes_written: measured.sum.bytes_written,
        bytes_read: measured.sum.bytes_read,
        store_written_bytes,
        live_objects: measured.stream.live().len() as u64,
        recording: measured.recording,
        verification,
        check,
    })
}

impl Measured {
    fn has_failed(&self) -> bool {
        matches!(self.outcome, ProgramOutcome::Failed(_))
    }

    /// Tells that a phase begins; a caller that has enough ends the run.
    fn enter(&mut self, phase: ProgramPhase, progress: Listener<'_>) {
        if progress(phase).is_break() && !self.has_failed() {
            self.outcome = ProgramOutcome::Cancelled;
        }
    }

    /// Makes everything durable; returns how long that took.
    fn sync(&mut self, store: &dyn Store, clock: Clock, progress: Listener<'_>) -> u64 {
        self.enter(ProgramPhase::Syncing, progress);
        let start_ns = clock.now_ns();
        let synced = store.sync();
        let sync_ns = clock.now_ns().saturating_sub(start_ns);
        if let (Err(error), false) = (synced, self.has_failed()) {
            self.outcome = ProgramOutcome::Failed(failure("the final sync", error));
        }
        sync_ns
    }

    /// Compares everything that should be there, when that was asked for and nothing failed yet.
    fn sweep(
        &mut self,
        reopen: Reopen<'_>,
        options: &RunOptions,
        progress: Listener<'_>,
    ) -> Option<Verification> {
        self.enter(ProgramPhase::Sweeping, progress);
        let mut verification = options.verify.then(|| self.sum.verification.clone())?;
        if self.has_failed() || self.outcome == ProgramOutcome::Cancelled {
            return Some(verification);
        }
        let tick = &mut || progress(ProgramPhase::Sweeping);
        let salt = options.salt;
        match sweep(&self.stream, salt, reopen, &mut verification, &mut self.sum.check, tick) {
            Ok(ControlFlow::Continue(())) => verification.complete = true,
            Ok(ControlFlow::Break(())) => self.outcome = ProgramOutcome::Cancelled,
            Err(failure) => self.outcome = ProgramOutcome::Failed(*failure),
        }
        Some(verification)
    }
}

fn threads(program: &Program) -> u32 {
    program.settings.threads.unwrap_or(1)
}

/// Bytes that there are at a place.
fn available_bytes(place: &StoreLocation) -> Result<u64, String> {
    let failed = |path: &Path, error: io::Error| format!("looking at {}: {error}", path.display());
    match place {
        StoreLocation::Open(device) => Ok(device.len()),
        StoreLocation::Device(path) => {
            use block::{BlockDevice, FileDevice, FileDeviceOptions};
            let options = FileDeviceOptions { read_only: true, ..FileDeviceOptions::default() };
            let device = FileDevice::open(path, &options).map_err(|error| failed(path, error))?;
            Ok(device.len())
        }
        StoreLocation::Directory(path) => {
            measure::space::free_bytes(path).map_err(|error| failed(path, error))
        }
    }
}

/// Whether the program fits, and the options of the store with what was left to the runner.
fn fitted(
    plan: &ProgramPlan,
    threads: u32,
    options: &RunOptions,
    place: &StoreLocation,
    kind: &'static StoreKind,
) -> Result<(CapacityFit, StoreOptions), String> {
    let mut store_options = options.store.clone();
    let demand = plan.demand(threads);
    store_options.objects = demand.map(|demand| demand.objects);
    let space = demand.map(|demand| (kind.space)(&store_options, &demand));
    if !kind.keeps_contents {
        return Ok((
            CapacityFit::Fits(CapacityNeed { needed_bytes: 0, available_bytes: 0 }),
            store_options,
        ));
    }
    let mut available = available_bytes(place)?;
    if kind.takes_device {
        // The store has the size asked for or one that suits the program, on a file and on a device
        // alike: its journal is a share of it.
        let usable = match place {
            StoreLocation::Directory(_) => (available as f64 * USABLE_SHARE) as u64,
            StoreLocation::Device(_) | StoreLocation::Open(_) => available,
        };
        let comfortable = space.map_or(u64::MAX, |space| space.comfortable_bytes);
        let block = u64::from(store_options.block_size_bytes).max(1);
        let capacity = store_options.capacity_bytes.unwrap_or(comfortable.min(usable));
        let capacity = capacity / block * block;
        store_options.capacity_bytes = Some(capacity);
        available = available.min(capacity);
    }
    if let Some(space) = space {
        // A run that may end sooner may ask for a journal larger than everything.
        let most = if plan.may_end_sooner { available / LOOSE_JOURNAL_SHARE } else { u64::MAX };
        let journal = space.journal_bytes.min(most);
        store_options.journal_bytes = store_options.journal_bytes.max(journal);
    }
    match plan.fit(space, available) {
        CapacityFit::TooLarge(CapacityNeed { needed_bytes, available_bytes }) => Err(format!(
            "{DOES_NOT_FIT}: with its store it takes at least {needed_bytes} bytes, and \
                 the store `{}` has {available_bytes} bytes; scale the program down or use a \
                 larger device",
            kind.name
        )),
        fit => Ok((fit, store_options)),
    }
}

/// Makes a new store durable, with all that the file system below did for it, so that the commands
/// pay for nothing that was owed before them.
fn make_durable(
    store: &dyn Store,
    kind: &StoreKind,
    place: &StoreLocation,
    whole_sync: &WholeSync,
) -> Result<(), String> {
    store.sync()?;
    match place {
        StoreLocation::Directory(directory) if kind.keeps_contents => whole_sync
            .run(directory)
            .map_err(|error| format!("syncing {}: {error}", directory.display())),
        _ => Ok(()),
    }
}

/// Refuses what cannot work, before anything is touched.
fn check(plan: &ProgramPlan, options: &RunOptions, kind: &'static StoreKind) -> Result<(), String> {
    let refuse = Err::<(), String>;
    if plan.largest_object_bytes > kind.object_bytes_max {
        return refuse(format!(
            "the store `{}` takes objects of at most {} bytes; the program has some of up to {}",
            kind.name, kind.object_bytes_max, plan.largest_object_bytes
        ));
    }
    if usize::try_from(plan.largest_object_bytes).is_err() {
        return refuse("an object of the program does not fit into memory".to_owned());
    }
    if options.verify && !kind.keeps_contents {
        return refuse(format!(
            "the store `{}` keeps nothing, so nothing can be verified on it",
            kind.name
        ));
    }
    Ok(())
}

/// What all threads share.
struct Run<'a> {
    store: &'a dyn Store,
    options: &'a RunOptions,
    keeps_contents: bool,
    /// Names of the sizes, for the kinds of commands.
    classes: Vec<String>,
    clock: Clock,
    /// Whether the caller has ended the run.
    is_cancelled: AtomicBool,
}

/// What came of a run.
struct Measured {
    sum: WorkerReport,
    recording: LatencyRecording,
    outcome: ProgramOutcome,
    stream: Stream,
}

impl Run<'_> {
    fn carry_out(&self, program: &Program, progress: Listener<'_>) -> Measured {
        let settings = &program.settings;
        let (rate, limit_ns) = (settings.rate, settings.duration_ns);
        let feed =
            Feed::new(Stream::new(program), rate, settings.seed, limit_ns, &self.is_cancelled);
        let shared = SharedFeed::new(feed);
        let worked = self.work(&shared, threads(program), &mut || {
            if progress(ProgramPhase::Running).is_break() {
                self.is_cancelled.store(true, Ordering::Relaxed);
            }
        });
        let sum = WorkerReport::nothing(check_name(self.options.verify));
        merged(sum, worked, shared.into_feed())
    }

    /// Has the threads carry out what comes from the feed, while `tick` is called.
    fn work(
        &self,
        feed: &SharedFeed<'_>,
        threads: u32,
        tick: &mut dyn FnMut(),
    ) -> Vec<WorkerReport> {
        let (finished, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let finished = finished.clone();
                scope.spawn(move || {
                    let worked = match self.store.session() {
                        Ok(session) => Worker::new(self, session).work(feed),
                        Err(error) => WorkerReport {
                            failure: Some(Box::new(failure(
                                "opening a session of the store",
                                error,
                            ))),
                            ..WorkerReport::nothing(check_name(self.options.verify))
                        },
                    };
                    if worked.failure.is_some() {
                        feed.abandon();
                    }
                    // Nobody listens only if the main thread panicked; its panic is reported.
                    let _ = finished.send(worked);
                });
            }
            drop(finished);
            let mut worked = Vec::new();
            loop {
                match results.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(result) => worked.push(result),
                    Err(RecvTimeoutError::Disconnected) => return worked,
                    Err(RecvTimeoutError::Timeout) => tick(),
                }
            }
        })
    }
}

/// Adds up what the threads did.
fn merged(mut sum: WorkerReport, worked: Vec<WorkerReport>, feed: Feed<'_>) -> Measured {
    let mut outcome = match feed.stop() {
        Some(FeedStop::TimeLimit) => ProgramOutcome::TimeLimit,
        Some(FeedStop::Cancelled) => ProgramOutcome::Cancelled,
        Some(FeedStop::End) | None => ProgramOutcome::Completed,
    };
    let mut recordings = Vec::new();
    for thread in worked {
        if let (Some(failure), false) =
            (thread.failure, matches!(outcome, ProgramOutcome::Failed(_)))
        {
            outcome = ProgramOutcome::Failed(*failure);
        }
        recordings.extend(thread.recording);
        sum.commands += thread.commands;
        sum.bytes_written += thread.bytes_written;
        sum.bytes_read += thread.bytes_read;
        sum.ended_ns = sum.ended_ns.max(thread.ended_ns);
        sum.verification.gets += thread.verification.gets;
        sum.verification.deletes += thread.verification.deletes;
        sum.verification.bytes += thread.verification.bytes;
        sum.check.add(thread.check);
    }
    let recording = LatencyRecording::merged(recordings);
    Measured { sum, recording, outcome, stream: feed.into_stream() }
}

fn failure(during: &str, error: StoreError) -> ProgramFailure {
    ProgramFailure {
        message: error.to_string(),
        during: during.to_owned(),
        store_is_full: matches!(error, StoreError::Full(_)),
    }
}

#[cfg(all(test, feature = "cannyls"))]
mod tests;
