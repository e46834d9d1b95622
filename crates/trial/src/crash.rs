//! A trial that is not timed: records every write of a load below its file system, makes the disks that a
//! power cut could have left, mounts each, and asks the user's check whether what was acknowledged
//! is there.
//!
//! The load acknowledges by a line on its standard output or by `kurabe ack`. Both end in one pipe,
//! and a line is stamped when it is read from there: late rather than early. The device is memory that the
//! trial's own process serves, so that the recorder stands below everything.

mod judge;
mod places;
pub mod promises;
mod recorded;

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::BlockDevice;
use crash::{
    Flushes, Log, Lost, Recording, SECTOR_BYTES, Stale, State, StateOptions, States, reduce,
};
use lab::contender::Contender;
use lab::event::Event;
use lab::record::{Check, Outcome, Phase, Record};
use lab::spec::{CommandLine, Output, PowerCuts, TrialSpec};
use loads::KINDS;
use serde::{Deserialize, Serialize};
use vocabulary::check::DURABILITY;
use vocabulary::kind::Generator;
use vocabulary::load::{LoadTask, Stage as LoadStage, Target};

use crate::command::{self, Bounds, End};
use crate::device::served::{Pages, Served};
use crate::device::{Attached, attach_served};
use crate::enclosure::Enclosure;
use crate::filesystem::{Access, Instance, Owner, Stage, by_name};
use crate::host_proc::HostProc;
use crate::scratch::Occupied;
use crate::stop::Stop;
use crate::tool::{Failure, Toolbox};
use crate::workload::Talk;
use judge::{Acknowledged, Judge};
pub use judge::{Finding, Tally};
use places::Places;
use recorded::{copy_written, recording_bytes_max};

/// Name of the variable that tells `kurabe ack` where to write.
pub const ACK_VARIABLE: &str = "KURABE_ACK";

/// Failing states that are reduced to the writes that matter.
const CASES_MAX: usize = 3;
/// States that one reduction may try.
const REDUCTION_TRIES_MAX: usize = 60;
/// States that are tried without a flush.
const LEFT_OUT_STATES: usize = 4;
/// Bound on giving back everything.
const TEARDOWN_MAX: Duration = Duration::from_secs(60);

/// A state of an earlier recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replay {
    /// What was recorded.
    pub log: Log,
    /// The state.
    pub state: State,
}

/// What the states showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrashReport {
    /// Acknowledgements of the load.
    pub acknowledgements: usize,
    /// Writes of the load that reached the device.
    pub writes: usize,
    /// Flushes of the load that reached the device.
    pub flushes: usize,
    /// States of a disk that keeps its word.
    pub states: Tally,
    /// States of a disk that ignores flushes.
    pub control: Tally,
    /// The first failing states, reduced.
    pub cases: Vec<Case>,
    /// Flushes that were left out, one by one, where nothing else was lost.
    #[serde(default)]
    pub left_out: usize,
    /// Those without which nothing was lost either, in words.
    #[serde(default)]
    pub needless: Vec<String>,
    /// What went wrong after the states were tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Time that trying took, in ns.
    pub trying_ns: u64,
    /// The recording without its bytes.
    pub log: Option<Log>,
}

/// A failing state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    /// The state with as little lost as possible; it was tried.
    pub state: State,
    /// What was found.
    pub finding: Finding,
    /// The last acknowledgement before the cut.
    pub last_acknowledgement: Option<String>,
    /// The lost writes.
    pub lost: Vec<LostWrite>,
    /// Whether each of them is needed for the failure.
    pub is_minimal: bool,
}

/// A lost write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostWrite {
    /// What it held: `bytes 0 to 4096 of wal`.
    pub what: String,
    /// From its arrival to the last acknowledgement before the cut, in ns; absent when it came later.
    pub before_acknowledgement_ns: Option<u64>,
    /// Flushes that arrived between its reply and the cut, none of which had been replied to.
    pub flushes_under_way: usize,
}

/// How the whole is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrashVerdict {
    /// No state was violated, and the control shows that the check can find a loss.
    Held,
    /// At least one was.
    Violated,
    /// Nothing was acknowledged, or the control lost nothing: the run proves nothing.
    Inconclusive,
}

impl CrashReport {
    /// How it is judged.
    pub fn verdict(&self) -> CrashVerdict {
        match () {
            () if self.states.violated() > 0 => CrashVerdict::Violated,
            () if self.control.violated() == 0 || self.states.tried == 0 => {
                CrashVerdict::Inconclusive
            }
            () => CrashVerdict::Held,
        }
    }

    /// The check of a result that follows.
    pub fn check(&self) -> Check {
        let tried = self.states.tried as u64;
        if self.verdict() == CrashVerdict::Inconclusive {
            let why = format!(
                "0 of {tried} states violated, but a disk that ignores flushes loses nothing either: the check sees no loss"
            );
            return Check::not_tried(DURABILITY, why);
        }
        let case = self.cases.iter().find(|case| case.finding.is_violation());
        let lost = case.and_then(|case| case.lost.first());
        let after_fsck = match self.states.needed_fsck {
            0 => None,
            some => Some(format!("{some} of {tried} states were mounted after fsck only")),
        };
        Check {
            tried,
            violated: self.states.violated() as u64,
            first: case.map(|case| case.finding.to_string()),
            evidence: lost.map(|lost| format!("lost: {}", lost.what)).or(after_fsck),
            ..Check::new(DURABILITY)
        }
    }
}

/// What a trial of power cuts is given.
pub struct Setting<'a> {
    /// The contender and its load.
    pub spec: &'a TrialSpec,
    /// What is asked of it.
    pub cuts: &'a PowerCuts,
    /// The trial's own directory.
    pub scratch: Arc<Occupied>,
    /// Where the processes of the host are looked for.
    pub host: &'a HostProc,
    /// Ends it.
    pub stop: &'a Stop,
    /// Hears what it is doing.
    pub emit: &'a mut dyn FnMut(&Event),
}

/// Carries a trial of power cuts out. The record has a check and no times.
pub fn carry_out(setting: Setting<'_>) -> Record {
    let started = Instant::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut record = Record::begun(setting.spec, unix.as_nanos() as u64);
    match report(setting) {
        Ok(report) => {
            record.checks = vec![report.check()];
            record.power_cuts = serde_json::to_value(&report).ok();
        }
        Err(Failure::Failed { message, output }) => {
            record.checks = vec![Check::not_tried(DURABILITY, &message)];
            record.outcome = Outcome::Failed { phase: Phase::Check, message, output };
        }
        Err(_) => record.outcome = Outcome::Interrupted { phase: Phase::Check },
    }
    record.elapsed_ns = started.elapsed().as_nanos() as u64;
    record
}

fn report(setting: Setting<'_>) -> Result<CrashReport, Failure> {
    let data = setting
        .host
        .open_writable(&setting.cuts.data, false)
        .map_err(|error| Failure::of(format!("the file for the recording: {error}")))?;
    let served = data.try_clone().and_then(|data| Served::start(data, setting.scratch.room()));
    let disks = Mutex::new(served.map_err(served_failure)?);
    let mut trial = Trial { setting, disks, device: RefCell::default() };
    let report = trial.whole(data);
    let attached = trial.device.take();
    let detached = attached.map_or(Ok(None), Attached::detach);
    let report = report?;
    detached.map(|_| report).map_err(Failure::from)
}

fn served_failure(error: io::Error) -> Failure {
    Failure::of(format!("serving the disks: {error}"))
}

struct Trial<'a> {
    setting: Setting<'a>,
    disks: Mutex<Served>,
    /// The device that all disks are, one after the other, once there is one.
    device: RefCell<Option<Attached>>,
}

/// What a program of the trial reads and writes.
#[derive(Default)]
struct Streams<'a> {
    /// Its standard output, where that is not thrown away.
    output: Option<&'a File>,
    /// The talk, with a load of kurabe's own.
    talk: Option<&'a Talk>,
}

/// What was recorded, and from when to when the load ran.
struct Recorded {
    recording: Arc<Recording>,
    from: crash::Instant,
    to: crash::Instant,
    places: Places,
}

impl<'t> Trial<'t> {
    fn whole(&mut self, data: File) -> Result<CrashReport, Failure> {
        if let Some(replay) = &self.setting.cuts.replay {
            let replay = serde_json::from_value(replay.clone())
                .map_err(|error| Failure::of(format!("the state cannot be read: {error}")))?;
            return self.replay(&replay);
        }
        let recorded = self.record(data)?;
        let log = &recorded.recording.log;
        let within =
            |request: &&crash::Request| (recorded.from..=recorded.to).contains(&request.arrived);
        let count = |operation| {
            let requests = log.requests.iter().filter(within);
            requests.filter(|request| request.operation == operation).count()
        };
        let mut report = CrashReport {
            acknowledgements: log.acknowledgements.len(),
            writes: count(crash::Operation::Write),
            flushes: count(crash::Operation::Flush),
            states: Tally::default(),
            control: Tally::default(),
            cases: Vec::new(),
            left_out: 0,
            needless: Vec::new(),
            notes: Vec::new(),
            trying_ns: 0,
            log: Some(log.clone()),
        };
        let begun = Instant::now();
        self.try_states(&recorded, &mut report)?;
        report.trying_ns = begun.elapsed().as_nanos() as u64;
        // The verdict stands, whatever becomes of these.
        if let Err(failure) = self.leave_out(&recorded, &mut report) {
            report.notes.push(format!("not all flushes were left out: {failure}"));
        }
        if let Err(failure) = self.name(&recorded, &mut report.cases) {
            report.notes.push(format!("the lost writes could not be named better: {failure}"));
        }
        Ok(report)
    }

    /// Runs the load once on a recorded device, and the check on what it left while nothing is lost.
    fn record(&mut self, data: File) -> Result<Recorded, Failure> {
        let spec = self.setting.spec;
        self.status("making the file system");
        let kept = data.try_clone().map_err(served_failure)?;
        let bytes_max = recording_bytes_max(&data);
        let disk = self
            .disks()
            .record(self.setting.cuts.size_bytes, &spec.contender.layers, bytes_max)
            .map_err(served_failure)?;
        self.attach(disk)?;
        let mut tools = self.tools(None);
        let mut instance = self.file_system()?.begin(self.stage());
        let recorded = (|| {
            instance.make(&mut tools)?;
            instance.mount(&mut tools)?;
            let directory = instance.directory();
            if let Some(setup) = &spec.workload.setup {
                self.status("setup");
                self.run("the setup", setup, &directory, Streams::default())?;
            }
            if self.own_load()?.is_some_and(|load| load.has_setup()) {
                self.status("layout");
                let (command, talk) = self.talk(LoadStage::Setup, &*instance, None)?;
                let streams = Streams { talk: Some(&talk), ..Streams::default() };
                self.run("the load's layout", &command, &directory, streams)?;
            }
            instance.sync(&mut tools)?;
            self.status("running the load");
            let from = self.disks().now().map_err(served_failure)?;
            self.load(&*instance)?;
            let log = self.disks().log().map_err(served_failure)?;
            let recording = Arc::new(Recording { log, data: Arc::new(data) });
            let to = recording.log.end;
            if recording.log.acknowledgements.is_empty() {
                return Err(Failure::of(
                    "the load acknowledged nothing, so nothing can be lost; let it print a line, or call 'kurabe ack WORDS', after each step that is durable",
                ));
            }
            self.status("checking what the load left");
            let all = Acknowledged::of(&recording.log, recording.log.acknowledgements.len());
            match self.judge().ask(&*instance, &all)? {
                Finding::Held => {}
                found => {
                    return Err(Failure::of(format!(
                        "the check fails before any power cut ({found}); it would blame the disk: mend the check or the load"
                    )));
                }
            }
            let places = match self.file_system()?.access {
                Access::Mounted => Places::of(&directory),
                _ => Places::default(),
            };
            Ok(Recorded { recording, from, to, places })
        })();
        tools.clean_up_within(TEARDOWN_MAX);
        let ended = instance.end(&mut tools);
        if kept.metadata().is_ok_and(|kept| kept.blocks() * 512 >= bytes_max) {
            return Err(Failure::of(format!(
                "the recording has {} MiB, a third of the memory that was free; give the load less to do, or less --time",
                bytes_max >> 20
            )));
        }
        let recorded = recorded?;
        ended?;
        // The states stand on another, through which fewer requests reach the server.
        let attached = self.device.take();
        attached.map_or(Ok(None), Attached::detach)?;
        Ok(recorded)
    }

    /// The load, where it is one of kurabe's own.
    fn own_load(&self) -> Result<Option<Box<dyn Generator>>, Failure> {
        let load = &self.setting.spec.workload.load;
        match load.command() {
            Some(_) => Ok(None),
            None => KINDS.open(load).map(Some).map_err(Failure::of),
        }
    }

    /// The command that carries out one part of kurabe's own load, and the talk with it.
    fn talk(
        &self,
        stage: LoadStage,
        instance: &dyn Instance,
        acknowledgements: Option<PathBuf>,
    ) -> Result<(CommandLine, Talk), Failure> {
        let spec = self.setting.spec;
        let node = self.stage().node;
        let target = match self.file_system()?.access {
            Access::RawDevice => Target::Device(node.clone()),
            Access::MinfsLibrary => Target::Minfs(node.clone()),
            Access::Mounted => Target::Directory(instance.directory()),
        };
        let place = self.load_place();
        let made = std::fs::create_dir_all(&place);
        let task = LoadTask {
            load: spec.workload.load.clone(),
            target,
            device: Some(node),
            stage,
            part: None,
            cold: false,
            sync_command: instance.sync_command(),
            cool_command: None,
            acknowledgements,
            order_seed: spec.order_seed,
            scratch: place,
            enclosed: None,
        };
        let talk = made
            .and_then(|()| Talk::begin(&task))
            .map_err(|error| Failure::of(format!("writing the load's task: {error}")))?;
        let words = ["/proc/self/exe".to_string(), "load".into()].into_iter();
        Ok((CommandLine::Words(words.chain(trust::owner::words()).collect()), talk))
    }

    /// What a load of kurabe's is kept in that does as another program's job says.
    fn enclosure(&self, directory: &Path) -> Option<Enclosure> {
        let Contender { file_system, .. } = &self.setting.spec.contender;
        let is_raw = by_name(file_system).is_some_and(|it| it.access == Access::RawDevice);
        let (place, node) = (self.load_place(), self.stage().node);
        KINDS.is_enclosed(&self.setting.spec.workload.load).then(|| match is_raw {
            true => Enclosure { directories: vec![place], device: Some(node) },
            false => Enclosure { directories: vec![place, directory.into()], device: None },
        })
    }

    /// Where the load's process has its own files.
    fn load_place(&self) -> PathBuf {
        self.setting.scratch.room().join("load")
    }

    /// The load, while its acknowledgements are received.
    fn load(&self, instance: &dyn Instance) -> Result<(), Failure> {
        let pipe = self.pipe();
        let failed =
            |error: io::Error| Failure::of(format!("the pipe for acknowledgements: {error}"));
        let receiver = judge::Receiver::start(&pipe).map_err(failed)?;
        let load = &self.setting.spec.workload.load;
        let (command, talk) = match load.command() {
            Some(command) => (command, None),
            None => {
                let (command, talk) = self.talk(LoadStage::Run, instance, Some(pipe))?;
                (command, Some(talk))
            }
        };
        let streams = match &talk {
            None => Streams { output: Some(receiver.pipe()), talk: None },
            talk => Streams { output: None, talk: talk.as_ref() },
        };
        let disks = &self.disks;
        let acknowledge =
            |text| disks.lock().expect("no thread panics while it asks").acknowledge(text);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receiver.receive(acknowledge));
            let ran = self.run("the load", &command, &instance.directory(), streams);
            receiver.end();
            receiving.join().expect("receiving does not panic").map_err(failed)?;
            ran
        })
    }

    /// The pipe into which the load acknowledges.
    fn pipe(&self) -> PathBuf {
        self.setting.scratch.room().join("acknowledgements")
    }

    fn run(
        &self,
        name: &str,
        command: &CommandLine,
        directory: &Path,
        streams: Streams<'_>,
    ) -> Result<(), Failure> {
        let Setting { spec, stop, .. } = &self.setting;
        let pipe = self.pipe().display().to_string();
        let directory_text = directory.display().to_string();
        let environment = [
            ("KURABE_DIR", directory_text.as_str()),
            ("KURABE_CONTENDER", &spec.contender.label),
            (ACK_VARIABLE, pipe.as_str()),
        ];
        let limit = spec.timeout_ns.map(Duration::from_nanos);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let enclosure = self.enclosure(directory);
        let enclosure = enclosure.as_ref().filter(|_| streams.talk.is_some());
        let standard_output = streams.output;
        let bounds = Bounds { deadline, standard_output, enclosure, ..Bounds::default() };
        let (output, talk) = (Output::Null, streams.talk);
        let ran = command::run(command, directory, &environment, bounds, &output, talk, stop)
            .map_err(|error| Failure::of(error.to_string()))?;
        match (&ran.end, ran.usage.exit_code) {
            (End::Stopped, _) => Err(Failure::Stopped),
            (End::TimedOut, _) => Err(Failure::of(format!(
                "{name} did not end within {} s; give it a bound of its own, or a longer --timeout",
                limit.unwrap_or_default().as_secs()
            ))),
            (End::Exited, Some(0)) => Ok(()),
            (End::Exited, code) => Err(Failure::Failed {
                message: format!("{name} exited with {}", judge::code_text(code)),
                output: ran.tail,
            }),
        }
    }

    fn try_states(&mut self, recorded: &Recorded, report: &mut CrashReport) -> Result<(), Failure> {
        let cuts = self.setting.cuts;
        let Recorded { recording, from, to, .. } = recorded;
        let stale: Arc<dyn BlockDevice> = Arc::new(Stale::new(cuts.size_bytes));
        let ignored = Flushes::IgnoredFrom(*from);
        let choose = |flushes, count| {
            let options = StateOptions { from: *from, to: *to, count, seed: cuts.seed };
            States::new(recording.clone(), stale.clone(), flushes).choose(&options)
        };
        let chosen = choose(Flushes::Kept, cuts.states);
        let control = choose(ignored, cuts.control_states);
        let of = chosen.len() + control.len();
        let mut tried = 0;
        let mut failing = Vec::new();
        for state in &chosen {
            let acknowledged = Acknowledged::of(&recording.log, state.acknowledged);
            let finding = self.judge().mount_and_ask(state, Flushes::Kept, &acknowledged)?;
            report.states.count(&finding);
            let is_first_fsck =
                matches!(finding, Finding::NeededFsck { .. }) && report.states.needed_fsck == 1;
            if is_first_fsck || finding.is_violation() && report.states.violated() <= CASES_MAX {
                failing.push((state.clone(), finding));
            }
            tried += 1;
            self.status(&format!("{tried} of {of} states"));
        }
        for state in &control {
            let acknowledged = Acknowledged::of(&recording.log, state.acknowledged);
            let finding = self.judge().mount_and_ask(state, ignored, &acknowledged)?;
            report.control.count(&finding);
            tried += 1;
            self.status(&format!("{tried} of {of} states"));
        }
        for (state, finding) in failing {
            self.status("looking for the writes that matter");
            report.cases.push(self.reduced(recorded, state, finding)?);
        }
        Ok(())
    }

    /// Leaves flushes out, one by one. Of a contender that loses something anyway that would tell nothing.
    fn leave_out(&mut self, recorded: &Recorded, report: &mut CrashReport) -> Result<(), Failure> {
        let cuts = self.setting.cuts;
        if report.verdict() != CrashVerdict::Held || cuts.flushes == 0 {
            return Ok(());
        }
        let Recorded { recording, from, .. } = recorded;
        let log = &recording.log;
        let is_one = |request: &&crash::Request| {
            request.operation == crash::Operation::Flush
                && request.arrived >= *from
                && request.replied.is_some()
        };
        let flushes: Vec<&crash::Request> = log.requests.iter().filter(is_one).collect();
        // Evenly, in neighbouring pairs: a file system flushes before and after what it commits.
        let count = cuts.flushes.min(flushes.len());
        let chosen = (0..count).map(|one| one / 2 * 2 * flushes.len() / count + one % 2);
        let chosen = chosen.filter_map(|number| Some((number, *flushes.get(number)?)));
        for (number, flush) in chosen {
            self.status(&format!("without flush {} of {}", number + 1, flushes.len()));
            let without = Flushes::Without(flush.arrived);
            let stale = Arc::new(Stale::new(cuts.size_bytes));
            let states = States::new(recording.clone(), stale, without);
            let states = states.only_without(flush.arrived, LEFT_OUT_STATES, cuts.seed);
            let mut is_needless = true;
            for state in &states {
                let acknowledged = Acknowledged::of(log, state.acknowledged);
                let found = self.judge().mount_and_ask(state, without, &acknowledged)?;
                is_needless &= found == Finding::Held;
                if !is_needless {
                    break;
                }
            }
            report.left_out += 1;
            if is_needless {
                let before = log.acknowledgements.iter();
                let before = before.take_while(|one| one.instant < flush.arrived).last();
                let place = before.map_or("before the first acknowledgement".into(), |one| {
                    format!("after the acknowledgement {}", one.text)
                });
                let what = match states.len() {
                    0 => "nothing waited for it".into(),
                    some => format!("{some} states"),
                };
                report.needless.push(format!("flush {}, {place} ({what})", number + 1));
            }
        }
        Ok(())
    }

    /// Says what the lost writes of the cases held, as the file system's own tools have it at the end of the load.
    fn name(&mut self, recorded: &Recorded, cases: &mut [Case]) -> Result<(), Failure> {
        if cases.iter().all(|case| case.lost.is_empty()) {
            return Ok(());
        }
        self.status("asking what the lost writes held");
        let whole = State { instant: recorded.to, lost: Vec::new(), acknowledged: 0 };
        self.cut(&whole, Flushes::Kept)?;
        let mut tools = self.tools(None);
        let mut instance = self.file_system()?.begin(self.stage());
        // Once, so that its journal is played back.
        let mounted = instance.mount_untimed(&mut tools);
        tools.clean_up_within(TEARDOWN_MAX);
        instance.end(&mut tools)?;
        mounted?;
        for case in cases.iter_mut() {
            for (lost, named) in case.state.lost.iter().zip(&mut case.lost) {
                let request = &recorded.recording.log.requests[lost.request];
                let sector = request.sector + lost.first;
                let owner = instance.owner_of(sector * SECTOR_BYTES, &mut tools);
                named.what = recorded.places.name(sector, lost.sectors, owner);
            }
        }
        Ok(())
    }

    /// Leaves out of what was lost what is not needed for the failure.
    fn reduced(
        &mut self,
        recorded: &Recorded,
        state: State,
        mut finding: Finding,
    ) -> Result<Case, Failure> {
        let log = &recorded.recording.log;
        let acknowledged = Acknowledged::of(log, state.acknowledged);
        let reduction = reduce(&state.lost, REDUCTION_TRIES_MAX, |lost: &[Lost]| {
            let smaller = State { lost: lost.to_vec(), ..state.clone() };
            let found = self.judge().mount_and_ask(&smaller, Flushes::Kept, &acknowledged)?;
            // What is lost is not reduced to what fsck mends.
            let fails = found.is_violation() || found != Finding::Held && !finding.is_violation();
            if fails {
                finding = found;
            }
            Ok::<_, Failure>(fails)
        })?;
        let last = state.acknowledged.checked_sub(1).map(|last| &log.acknowledgements[last]);
        let lost = reduction.lost.iter().map(|lost| {
            let request = &log.requests[lost.request];
            let between = |flush: &&crash::Request| {
                flush.operation == crash::Operation::Flush
                    && flush.arrived <= state.instant
                    && request.replied.is_some_and(|replied| flush.arrived > replied)
            };
            let sector = request.sector + lost.first;
            let owner = Owner::Data(sector * SECTOR_BYTES);
            LostWrite {
                what: recorded.places.name(sector, lost.sectors, owner),
                before_acknowledgement_ns: last
                    .and_then(|last| last.received_ns.checked_sub(request.arrived_ns)),
                flushes_under_way: log.requests.iter().filter(between).count(),
            }
        });
        Ok(Case {
            lost: lost.collect(),
            finding,
            last_acknowledgement: last.map(|last| last.text.clone()),
            is_minimal: reduction.is_minimal,
            state: State { lost: reduction.lost, ..state },
        })
    }

    /// Tries one state of an earlier recording.
    fn replay(&mut self, replay: &Replay) -> Result<CrashReport, Failure> {
        let Replay { log, state } = replay;
        if state.acknowledged > log.acknowledgements.len() {
            return Err(Failure::of("the state has more acknowledgements than the recording"));
        }
        self.disks().take(log.clone()).map_err(served_failure)?;
        let acknowledged = Acknowledged::of(log, state.acknowledged);
        let finding = self.judge().mount_and_ask(state, Flushes::Kept, &acknowledged)?;
        let mut notes = Vec::new();
        if let Some(image) = &self.setting.cuts.image
            && let Err(failure) = self.image(log, state, image)
        {
            notes.push(failure.to_string());
        }
        let mut tally = Tally::default();
        tally.count(&finding);
        let case = Case {
            state: replay.state.clone(),
            finding,
            last_acknowledgement: None,
            lost: Vec::new(),
            is_minimal: false,
        };
        Ok(CrashReport {
            acknowledgements: replay.state.acknowledged,
            writes: 0,
            flushes: 0,
            states: tally,
            control: Tally::default(),
            cases: vec![case],
            left_out: 0,
            needless: Vec::new(),
            notes,
            trying_ns: 0,
            log: None,
        })
    }

    /// Writes a state's disk, as the cut left it, into a file.
    fn image(&self, log: &Log, state: &State, path: &Path) -> Result<(), Failure> {
        self.cut(state, Flushes::Kept)?;
        let node = self.stage().node;
        let image = self.setting.host.open_writable(path, false);
        let copied = image.and_then(|image| copy_written(&File::open(node)?, &image, log));
        copied.map_err(|error| {
            Failure::of(format!("the disk of the case could not be written: {error}"))
        })
    }

    fn judge(&self) -> Judge<'_, 't> {
        Judge { trial: self }
    }

    fn file_system(&self) -> Result<&'static crate::filesystem::FileSystem, Failure> {
        let name = &self.setting.spec.contender.file_system;
        let is_command = self.setting.spec.workload.load.command().is_some();
        by_name(name)
            .filter(|known| known.needs_device)
            .filter(|known| known.access == Access::Mounted || !is_command)
            .ok_or_else(|| Failure::of(format!("no recorder can stand under '{name}'")))
    }

    fn tools(&self, deadline: Option<Instant>) -> Toolbox {
        let mut tools = Toolbox::new(deadline, self.setting.stop.clone());
        tools.see_host(self.setting.host);
        tools
    }

    /// Where the file system stands.
    fn stage(&self) -> Stage {
        let device = self.device.borrow();
        let attached = device.as_ref().expect("something is served by now");
        let (node, size_bytes) = (attached.node(), attached.size_bytes());
        Stage::new(&self.setting.spec.contender, node, size_bytes, false, &self.setting.scratch)
    }

    fn disks(&self) -> MutexGuard<'_, Served> {
        self.disks.lock().expect("no thread panics while it asks")
    }

    /// Makes a device of what is served.
    fn attach(&self, disk: File) -> Result<(), Failure> {
        let attached = attach_served(&disk, self.setting.cuts.size_bytes, &self.setting.scratch)?;
        *self.device.borrow_mut() = Some(attached);
        Ok(())
    }

    /// Puts what a power cut leaves on the device.
    fn cut(&self, state: &State, flushes: Flushes) -> Result<(), Failure> {
        let is_attached = self.device.borrow().is_some();
        let change = || self.disks().cut(state, flushes);
        match is_attached {
            true => {
                let device = self.device.borrow();
                let attached = device.as_ref().expect("it is attached");
                attached.change(change).map_err(Failure::from)
            }
            false => {
                change().map_err(served_failure)?;
                let disk = self.disks().open(Pages::Kept).map_err(served_failure)?;
                self.attach(disk)
            }
        }
    }

    fn status(&mut self, text: &str) {
        (self.setting.emit)(&Event::Status { text: text.into() });
    }
}
