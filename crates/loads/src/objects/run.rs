//! Carries a program out on a store, and measures it.
//!
//! Each thread takes commands from the one stream ([`super::feed`]), makes the contents, and only
//! then starts the clock around the call into the store. In a closed loop the latency is that of
//! the call; in an open loop it counts from the moment at which the command should have begun, so
//! that a store which falls behind is seen to do so. What is compared (verify mode) is compared
//! outside of that time. The run ends with a sync that is timed by itself.
//!
//! Must not know: file systems, mkfs, statistics.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use super::contents::{Difference, Identity};
use super::feed::{Feed, SharedFeed, Stop, Task};
use super::plan::{Fit, Plan};
use super::program::Program;
use super::report::{Failure, Outcome, Report, Verification};
use super::store::{self, Place, Session, Store, StoreError, StoreKind, StoreOptions};
use super::stream::{Command, Stream, Verb};
use crate::latency::{Clock, KindId, Recorder, Recording};

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the store is made.
    pub store: StoreOptions,
    /// Compare everything that is read with what was put, read before deleting, and read all
    /// objects again at the end.
    pub verify: bool,
    /// Length of an interval of the series.
    pub interval: Duration,
    /// Goes into the contents of every object: give each run on a device another one, and nothing
    /// that an earlier run left there can be taken for this one's.
    pub salt: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            store: StoreOptions::default(),
            verify: false,
            interval: Duration::from_secs(1),
            salt: 0,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Commands carried out so far.
    pub commands: u64,
    /// All commands, where that is known.
    pub expected: Option<u64>,
    /// Time since the first command.
    pub elapsed_ns: u64,
    /// Whether the commands are over and the objects are being compared.
    pub sweeping: bool,
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program and the store do not go together.
    #[error("{0}")]
    Refused(String),
    /// The objects do not fit.
    #[error(
        "the program does not fit: it keeps {needed_bytes} bytes of objects at once, and the store \
         `{store}` has {available_bytes} bytes; scale the program down or use a larger device"
    )]
    TooLarge {
        /// Name of the store.
        store: &'static str,
        /// Bytes of the objects that are live at once.
        needed_bytes: u64,
        /// Bytes that there are.
        available_bytes: u64,
    },
    /// The store could not be made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The place could not be looked at.
    #[error("looking at {path}: {source}")]
    Place {
        /// What was looked at.
        path: String,
        /// What came of it.
        source: std::io::Error,
    },
}

/// How often the caller hears of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A sleep is left this long before the intended start and the rest spent looking at the clock,
/// because a thread is woken some tens of microseconds late.
const SPIN_NS: u64 = 60_000;

/// More live objects than this do not fit into the memory of the stream.
const LIVE_OBJECTS_MAX: u64 = 1 << 30;

/// A journal takes at most this part of a store when the program's greatest live set is not known.
const LOOSE_JOURNAL_SHARE: u64 = 16;

/// Of the space that a file system says is free, what a store on one file may take: the rest is
/// for the file system's own needs.
const USABLE_SHARE: f64 = 0.95;

/// Runs a program on a fresh store of this name, made at `place`.
///
/// `progress` is called about ten times a second and ends the run by breaking.
///
/// # Errors
///
/// Only before the first command. What goes wrong later is the [`Outcome`] of the report, with all
/// that was measured until then.
pub fn run(
    program: &Program,
    options: &Options,
    place: &Place,
    store_name: &str,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, RunError> {
    let kind = store::kind(store_name)?;
    let plan = Plan::of(program);
    check(&plan, options, kind)?;
    let (fit, store_options) = fitted(&plan, threads(program), options, place, kind)?;

    let setup = Clock::start();
    let opened = (kind.create)(place, &store_options)?;
    let create_ns = setup.now_ns();
    let store_facts = opened.facts();

    let run = Run {
        store: opened.as_ref(),
        options,
        keeps_contents: kind.keeps_contents,
        classes: Stream::new(program).classes().iter().map(|size| size.label()).collect(),
        clock: Clock::start(),
        progress_commands: (0..threads(program)).map(|_| AtomicU64::new(0)).collect(),
    };
    let started = SystemTime::now();
    let measured = run.carry_out(program, &plan, progress);
    let sync_start_ns = run.clock.now_ns();
    let synced = run.store.sync();
    let sync_ns = run.clock.now_ns().saturating_sub(sync_start_ns);
    let clock = run.clock;

    let mut outcome = measured.outcome;
    if let (Err(error), false) = (synced, matches!(outcome, Outcome::Failed(_))) {
        outcome = Outcome::Failed(failure("the final sync", error));
    }
    let mut verification = options.verify.then_some(measured.verification);
    drop(opened);
    if let (Some(verification), false) = (&mut verification, matches!(outcome, Outcome::Failed(_)))
    {
        let objects = Sweep { stream: &measured.stream, salt: options.salt };
        let tick = &mut |commands| {
            progress(&Progress {
                commands,
                expected: Some(measured.stream.live().len() as u64),
                elapsed_ns: clock.now_ns(),
                sweeping: true,
            })
        };
        match objects.carry_out(kind, place, &store_options, verification, tick) {
            Ok(ControlFlow::Continue(())) => verification.complete = true,
            Ok(ControlFlow::Break(())) => outcome = Outcome::Cancelled,
            Err(failure) => outcome = Outcome::Failed(*failure),
        }
    }

    let mut histogram_log = Vec::new();
    measured
        .recording
        .write_log(&mut histogram_log, started, measured.elapsed_ns)
        .expect("writing into memory does not fail");
    Ok(Report {
        store: kind.name.to_owned(),
        store_options,
        store_facts,
        program: program.to_string(),
        plan,
        fit,
        threads: threads(program),
        open_loop: program.settings.rate.is_some(),
        clock: clock.source().to_owned(),
        outcome,
        commands: measured.commands,
        skipped: measured.stream.skipped(),
        create_ns,
        elapsed_ns: measured.elapsed_ns,
        sync_ns,
        bytes_written: measured.bytes_written,
        bytes_read: measured.bytes_read,
        live_objects: measured.stream.live().len() as u64,
        latencies: measured.recording.summary(),
        series: measured.recording.series(),
        histogram_log: String::from_utf8(histogram_log).expect("the log is plain text"),
        verification,
    })
}

fn threads(program: &Program) -> u32 {
    program.settings.threads.unwrap_or(1)
}

// ---------------------------------------------------------------------------------------------
// Before the run
// ---------------------------------------------------------------------------------------------

/// Bytes that there are at a place.
fn available_bytes(place: &Place) -> Result<u64, RunError> {
    let failed = |path: &std::path::Path, source| RunError::Place {
        path: path.display().to_string(),
        source,
    };
    match place {
        Place::Open(device) => Ok(device.len()),
        Place::Device(path) => {
            use block::BlockDevice;
            let options =
                block::FileDeviceOptions { read_only: true, ..block::FileDeviceOptions::default() };
            let device =
                block::FileDevice::open(path, &options).map_err(|error| failed(path, error))?;
            Ok(device.len())
        }
        Place::Directory(path) => {
            let facts = rustix::fs::statvfs(path).map_err(|error| failed(path, error.into()))?;
            Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
        }
    }
}

/// Whether the program fits, and the options of the store with what was left to the runner.
fn fitted(
    plan: &Plan,
    threads: u32,
    options: &Options,
    place: &Place,
    kind: &'static StoreKind,
) -> Result<(Fit, StoreOptions), RunError> {
    let mut store_options = options.store.clone();
    let space = plan.demand(threads).map(|demand| (kind.space)(&store_options, &demand));
    if !kind.keeps_contents {
        return Ok((Fit::Fits { needed_bytes: 0, available_bytes: 0 }, store_options));
    }
    let mut available = available_bytes(place)?;
    if matches!(place, Place::Directory(_)) && kind.takes_device {
        // The store is one file, of the size asked for or of one that suits the program.
        let usable = (available as f64 * USABLE_SHARE) as u64;
        let comfortable = space.map_or(u64::MAX, |space| space.comfortable_bytes);
        let block = u64::from(store_options.block_size_bytes).max(1);
        let capacity = store_options.capacity_bytes.unwrap_or(comfortable.min(usable));
        let capacity = capacity / block * block;
        store_options.capacity_bytes = Some(capacity);
        available = available.min(capacity);
    }
    if let Some(space) = space {
        // A plan that is only bounded may ask for a journal larger than everything.
        let most = if plan.exact { u64::MAX } else { available / LOOSE_JOURNAL_SHARE };
        let journal = space.journal_bytes.min(most);
        store_options.journal_bytes = store_options.journal_bytes.max(journal);
    }
    match plan.fit(space, available) {
        Fit::TooLarge { needed_bytes, available_bytes } => {
            Err(RunError::TooLarge { store: kind.name, needed_bytes, available_bytes })
        }
        fit => Ok((fit, store_options)),
    }
}

/// Refuses what cannot work, before anything is touched.
fn check(plan: &Plan, options: &Options, kind: &'static StoreKind) -> Result<(), RunError> {
    let refuse = |message: String| Err(RunError::Refused(message));
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
    if plan.peak_live_objects.low > LIVE_OBJECTS_MAX {
        return refuse(format!(
            "the program keeps {} objects at once; at most 2^30 can be remembered",
            plan.peak_live_objects.low
        ));
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// The run
// ---------------------------------------------------------------------------------------------

/// What all threads share.
struct Run<'a> {
    store: &'a dyn Store,
    options: &'a Options,
    keeps_contents: bool,
    /// Names of the sizes, for the kinds of commands.
    classes: Vec<String>,
    clock: Clock,
    /// Commands that each thread has carried out.
    progress_commands: Vec<AtomicU64>,
}

/// What came of a run.
struct Measured {
    recording: Recording,
    outcome: Outcome,
    stream: Stream,
    commands: u64,
    elapsed_ns: u64,
    bytes_written: u64,
    bytes_read: u64,
    verification: Verification,
}

/// Where a thread's commands come from.
enum Source<'feed, 'run> {
    /// The only thread has the feed to itself.
    Alone(Box<Feed<'run>>),
    /// All threads take from one.
    Together(&'feed SharedFeed<'run>),
}

impl Source<'_, '_> {
    #[inline]
    fn take(&mut self, done: Option<&Task>, now_ns: u64) -> Option<Task> {
        match self {
            Source::Alone(feed) => feed.take(now_ns),
            Source::Together(shared) => shared.take(done, now_ns),
        }
    }

    #[inline]
    fn wait_for_earlier(&self, task: &Task) -> bool {
        match self {
            Source::Alone(_) => true,
            Source::Together(shared) => shared.wait_for_earlier(task),
        }
    }

    fn abandon(&self) {
        if let Source::Together(shared) = self {
            shared.abandon();
        }
    }
}

impl Run<'_> {
    fn carry_out(
        &self,
        program: &Program,
        plan: &Plan,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Measured {
        let cancelled = AtomicBool::new(false);
        let settings = &program.settings;
        let (rate, limit_ns) = (settings.rate, settings.duration_ns);
        let feed = Feed::new(Stream::new(program), rate, settings.seed, limit_ns, &cancelled);
        let threads = self.progress_commands.len();
        let tick = &mut |commands| {
            let now = Progress {
                commands,
                expected: plan.commands.exact(),
                elapsed_ns: self.clock.now_ns(),
                sweeping: false,
            };
            if progress(&now).is_break() {
                cancelled.store(true, Ordering::Relaxed);
            }
        };
        let (worked, feed) = if threads == 1 {
            let mut results = self.work(vec![Source::Alone(Box::new(feed))], tick);
            match results.pop() {
                Some((worked, Source::Alone(feed))) => (vec![worked], *feed),
                _ => unreachable!("the only thread gives its feed back"),
            }
        } else {
            let shared = SharedFeed::new(feed);
            let sources = (0..threads).map(|_| Source::Together(&shared)).collect();
            let worked = self.work(sources, tick).into_iter().map(|(worked, _)| worked).collect();
            (worked, shared.into_feed())
        };
        merged(worked, feed)
    }

    /// Has one thread carry out what comes from each source, while the caller hears how many
    /// commands they have done. Gives the sources back.
    fn work<'feed, 'run>(
        &self,
        sources: Vec<Source<'feed, 'run>>,
        tick: &mut dyn FnMut(u64),
    ) -> Vec<(Worked, Source<'feed, 'run>)> {
        let (finished, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for (mut source, done) in sources.into_iter().zip(&self.progress_commands) {
                let finished = finished.clone();
                scope.spawn(move || {
                    let worked = match self.store.session() {
                        Ok(session) => Worker::new(self, session, done).work(&mut source),
                        Err(error) => {
                            Worked::nothing(failure("opening a session of the store", error))
                        }
                    };
                    if worked.failure.is_some() {
                        source.abandon();
                    }
                    // Nobody listens only if the main thread panicked; its panic is reported.
                    let _ = finished.send((worked, source));
                });
            }
            drop(finished);
            let mut worked = Vec::new();
            loop {
                match results.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(result) => worked.push(result),
                    Err(RecvTimeoutError::Disconnected) => return worked,
                    Err(RecvTimeoutError::Timeout) => {
                        let counts = self.progress_commands.iter();
                        tick(counts.map(|count| count.load(Ordering::Relaxed)).sum());
                    }
                }
            }
        })
    }
}

/// Adds up what the threads did.
fn merged(worked: Vec<Worked>, feed: Feed<'_>) -> Measured {
    let mut outcome = match feed.stop() {
        Some(Stop::TimeLimit) => Outcome::TimeLimit,
        Some(Stop::Cancelled) => Outcome::Cancelled,
        Some(Stop::End) | None => Outcome::Completed,
    };
    let mut sum = Worked::default();
    let mut recordings = Vec::new();
    for thread in worked {
        if let (Some(failure), false) = (thread.failure, matches!(outcome, Outcome::Failed(_))) {
            outcome = Outcome::Failed(*failure);
        }
        recordings.extend(thread.recording);
        sum.commands += thread.commands;
        sum.bytes_written += thread.bytes_written;
        sum.bytes_read += thread.bytes_read;
        sum.ended_ns = sum.ended_ns.max(thread.ended_ns);
        sum.verification.gets += thread.verification.gets;
        sum.verification.deletes += thread.verification.deletes;
        sum.verification.bytes += thread.verification.bytes;
    }
    Measured {
        recording: Recording::merged(recordings),
        outcome,
        stream: feed.into_stream(),
        commands: sum.commands,
        elapsed_ns: sum.ended_ns,
        bytes_written: sum.bytes_written,
        bytes_read: sum.bytes_read,
        verification: sum.verification,
    }
}

/// What came of one thread.
#[derive(Default)]
struct Worked {
    recording: Option<Recording>,
    failure: Option<Box<Failure>>,
    commands: u64,
    ended_ns: u64,
    bytes_written: u64,
    bytes_read: u64,
    verification: Verification,
}

impl Worked {
    fn nothing(failure: Failure) -> Worked {
        Worked { failure: Some(Box::new(failure)), ..Worked::default() }
    }
}

/// One thread at work.
struct Worker<'a> {
    run: &'a Run<'a>,
    session: Box<dyn Session + 'a>,
    done: &'a AtomicU64,
    recorder: Recorder,
    /// For each size, the kind of each verb, once it was recorded.
    kinds: Vec<[Option<KindId>; VERBS]>,
    sum: Worked,
}

/// Verbs that there are.
const VERBS: usize = Verb::Sync as usize + 1;

impl<'a> Worker<'a> {
    fn new(run: &'a Run<'a>, session: Box<dyn Session + 'a>, done: &'a AtomicU64) -> Worker<'a> {
        Worker {
            run,
            session,
            done,
            recorder: Recorder::with_intervals(run.options.interval),
            kinds: vec![[None; VERBS]; run.classes.len().max(1)],
            sum: Worked::default(),
        }
    }

    fn work(mut self, source: &mut Source<'_, '_>) -> Worked {
        let mut now_ns = self.run.clock.now_ns();
        let mut before: Option<Task> = None;
        while let Some(task) = source.take(before.as_ref(), now_ns) {
            if let Some(intended_ns) = task.intended_ns {
                wait_until(&self.run.clock, intended_ns);
            }
            if !source.wait_for_earlier(&task) {
                break;
            }
            match self.carry_out(&task) {
                Ok(ended_ns) => now_ns = ended_ns,
                Err(failure) => {
                    self.sum.failure = Some(failure);
                    break;
                }
            }
            self.sum.commands += 1;
            self.done.store(self.sum.commands, Ordering::Relaxed);
            before = Some(task);
        }
        self.sum.ended_ns = now_ns;
        self.sum.recording = Some(self.recorder.finish());
        self.sum
    }

    fn identity(&self, command: &Command) -> Identity {
        Identity { salt: self.run.options.salt, key: command.key, version: command.version }
    }

    /// Carries one command out and records it; returns when it ended.
    fn carry_out(&mut self, task: &Task) -> Result<u64, Box<Failure>> {
        let command = &task.command;
        let clock = self.run.clock;
        let failed = |error| Box::new(failure(&described(command), error));
        let mut bytes = 0;
        let started_ns;
        let ended_ns;
        match command.verb {
            Verb::Put | Verb::Embed | Verb::OverWrite => {
                bytes = command.size;
                self.sum.bytes_written += bytes;
                let identity = self.identity(command);
                let embedded = command.verb == Verb::Embed;
                let size = usize::try_from(command.size).expect("the plan was checked");
                identity.fill(self.session.prepare(size, embedded).map_err(failed)?);
                started_ns = clock.now_ns();
                self.session.put(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
            }
            Verb::Get => {
                bytes = command.size;
                self.sum.bytes_read += bytes;
                let identity = self.identity(command);
                started_ns = clock.now_ns();
                let found = self.session.get(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents {
                    let whole = self.run.options.verify;
                    compare(&identity, command.size, found, whole, || described(command))?;
                }
                if self.run.options.verify {
                    self.sum.verification.gets += 1;
                    self.sum.verification.bytes += command.size;
                }
            }
            Verb::Delete => {
                if self.run.options.verify {
                    let identity = self.identity(command);
                    let found = self.session.get(command.key).map_err(failed)?;
                    compare(&identity, command.size, found, true, || described(command))?;
                    self.sum.verification.deletes += 1;
                    self.sum.verification.bytes += command.size;
                }
                started_ns = clock.now_ns();
                let existed = self.session.delete(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
                if !existed {
                    return Err(wrong(command, "there was no such object".to_owned()));
                }
            }
            Verb::DeleteRange => {
                started_ns = clock.now_ns();
                let keys = command.key..command.end_key;
                let deleted = self.session.delete_range(keys).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents && deleted != command.before {
                    let message =
                        format!("{deleted} objects were deleted instead of {}", command.before);
                    return Err(wrong(command, message));
                }
            }
            Verb::Sync => {
                started_ns = clock.now_ns();
                self.run.store.sync().map_err(failed)?;
                ended_ns = clock.now_ns();
            }
        }
        let from_ns = task.intended_ns.unwrap_or(started_ns);
        let kind = self.kind(command);
        self.recorder.record_at(kind, ended_ns, ended_ns.saturating_sub(from_ns), bytes);
        Ok(ended_ns)
    }

    /// The kind of a command, as CannylsBencher names it: overwriting is a put.
    #[inline]
    fn kind(&mut self, command: &Command) -> KindId {
        let (name, sized) = match command.verb {
            Verb::Put | Verb::OverWrite => ("Put", true),
            Verb::Embed => ("Embed", true),
            Verb::Get => ("Get", true),
            Verb::Delete => ("Delete", false),
            Verb::DeleteRange => ("DeleteRange", false),
            Verb::Sync => ("Sync", false),
        };
        let class = if sized { usize::from(command.class) } else { 0 };
        let known = &mut self.kinds[class][command.verb as usize];
        *known.get_or_insert_with(|| {
            if sized {
                self.recorder.kind(&format!("{name}({})", self.run.classes[class]))
            } else {
                self.recorder.kind(name)
            }
        })
    }
}

/// Sleeps until shortly before the moment, and looks at the clock from then on.
fn wait_until(clock: &Clock, moment_ns: u64) {
    loop {
        let left_ns = moment_ns.saturating_sub(clock.now_ns());
        if left_ns == 0 {
            return;
        }
        if left_ns > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left_ns - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Compares what was read with what was put; only its length unless `whole`.
fn compare(
    identity: &Identity,
    size_bytes: u64,
    found: Option<&[u8]>,
    whole: bool,
    during: impl Fn() -> String,
) -> Result<(), Box<Failure>> {
    let Some(found) = found else {
        return Err(Box::new(Failure {
            message: format!("object {} is missing", identity.key),
            during: during(),
            store_is_full: false,
            difference: None,
        }));
    };
    if !whole && found.len() as u64 == size_bytes {
        return Ok(());
    }
    identity.check(size_bytes, found).map_err(|difference: Box<Difference>| {
        Box::new(Failure {
            message: difference.to_string(),
            during: during(),
            store_is_full: false,
            difference: Some(*difference),
        })
    })
}

/// A command, for a message.
fn described(command: &Command) -> String {
    match command.verb {
        Verb::DeleteRange => {
            format!("DeleteRange of keys {} to {}", command.key, command.end_key)
        }
        Verb::Sync => "Sync".to_owned(),
        verb => format!("{verb:?} of object {} ({} bytes)", command.key, command.size),
    }
}

fn failure(during: &str, error: StoreError) -> Failure {
    Failure {
        message: error.to_string(),
        during: during.to_owned(),
        store_is_full: matches!(error, StoreError::Full(_)),
        difference: None,
    }
}

fn wrong(command: &Command, message: String) -> Box<Failure> {
    Box::new(Failure {
        message,
        during: described(command),
        store_is_full: false,
        difference: None,
    })
}

// ---------------------------------------------------------------------------------------------
// The sweep
// ---------------------------------------------------------------------------------------------

/// Reads every object that should be there from a store that was closed and opened again.
struct Sweep<'a> {
    stream: &'a Stream,
    salt: u64,
}

impl Sweep<'_> {
    fn carry_out(
        &self,
        kind: &StoreKind,
        place: &Place,
        options: &StoreOptions,
        verification: &mut Verification,
        tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Box<Failure>> {
        let failed = |during: &str, error| Box::new(failure(during, error));
        let store = (kind.open)(place, options).map_err(|error| failed("opening again", error))?;
        self.compare_keys(store.as_ref())?;
        let mut session = store.session().map_err(|error| failed("opening a session", error))?;
        let mut told = std::time::Instant::now();
        for object in self.stream.live().iter() {
            let during = "the sweep at the end";
            let identity = Identity { salt: self.salt, key: object.key, version: object.version };
            let size = self.stream.size_of(object);
            let found = session.get(object.key).map_err(|error| failed(during, error))?;
            compare(&identity, size, found, true, || during.to_owned())?;
            verification.swept_objects += 1;
            verification.bytes += size;
            if told.elapsed() > PROGRESS_INTERVAL {
                told = std::time::Instant::now();
                if tick(verification.swept_objects).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The store must have the keys of the live objects and no others.
    fn compare_keys(&self, store: &dyn Store) -> Result<(), Box<Failure>> {
        let during = "listing the keys after opening again";
        let found = store.keys().map_err(|error| Box::new(failure(during, error)))?;
        let mut found = found.into_iter();
        let mut expected = self.stream.live().iter().map(|object| object.key);
        loop {
            let message = match (expected.next(), found.next()) {
                (None, None) => return Ok(()),
                (Some(expected), Some(found)) if expected == found => continue,
                (Some(expected), Some(found)) if expected > found => {
                    format!("object {found} is there again, though it was deleted")
                }
                (Some(expected), _) => format!("object {expected} is missing"),
                (None, Some(found)) => {
                    format!("object {found} is there, though it was deleted or never put")
                }
            };
            return Err(Box::new(Failure {
                message,
                during: during.to_owned(),
                store_is_full: false,
                difference: None,
            }));
        }
    }
}

#[cfg(test)]
mod tests;
