//! A trial that is not timed: records every write of a workload below its file system, makes the disks that a
//! power cut could have left, mounts each, and asks the user's check whether what was acknowledged
//! is there.
//!
//! The workload acknowledges by a line on its standard output or by `kurabe ack`. Both end in one pipe,
//! and a line is stamped when it is read from there: late rather than early. The device is memory that the
//! trial's own process serves, so that the recorder stands below everything.

mod bench;
mod cause;
mod explain;
mod judge;
mod places;
pub mod promises;
mod recorded;
mod share;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::BlockDevice;
use crash::{
    CrashState, FlushPolicy, Log, Lost, Recording, SECTOR_BYTES, Stale, StateOptions, States,
    reduce,
};
use lab::event::Event;
use lab::record::{Check, Outcome, Phase, Record, Timeline};
use lab::spec::{PowerCuts, TrialSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::check::DURABILITY;
use vocabulary::workload::WorkloadStage;

use crate::device::is_kurabes_guest;
use crate::device::served::Pages;
use crate::filesystem::{Access, Owner};
use crate::host_proc::HostProc;
use crate::lower;
use crate::scratch::Occupied;
use crate::stop::StopFlag;
use crate::sys::enter_mount_namespace;
use crate::tool::{StepFailure, failed};
use bench::{Bench, Streams, served_failure};
use cause::Files;
pub use cause::{FailureCause, FileTrace};
use judge::Acknowledged;
pub use judge::{DiskCondition, Finding, Spent, Tally};
pub(crate) use judge::{Receiver, finding_of, with_arguments};
use places::FileMap;
use recorded::copy_written;
pub use recorded::recording_bytes_max;
pub use share::{Kept, StateShare};

/// Name of the variable that tells `kurabe ack` where to write.
pub const ACK_VARIABLE: &str = "KURABE_ACK";

/// Failing states that are reduced to the writes that matter.
const CASES_MAX: usize = 3;
/// States that one reduction may try.
const REDUCTION_TRIES_MAX: usize = 60;
/// Both where block layers are opened for each, which takes seconds.
const SLOW_CASES_MAX: usize = 1;
const SLOW_TRIES_MAX: usize = 12;
/// States that are tried without a flush.
const LEFT_OUT_STATES: usize = 4;
/// States that are tried side by side: two for each processor, since mounting and unmounting mostly wait.
const BENCHES_MAX: usize = 8;
/// From this share of the time on in which a check ran, the user is told how to run several at once.
const CHECKS_PERCENT: u64 = 60;
const BENCHES_PER_PROCESSOR: usize = 2;
/// Bound on giving back everything.
const TEARDOWN_MAX: Duration = Duration::from_secs(60);

/// A state of an earlier recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateReplay {
    pub log: Log,
    pub state: CrashState,
}

/// What the states showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrashReport {
    pub acknowledgements: usize,
    /// Writes of the workload that reached the device.
    pub writes: usize,
    /// Flushes of the workload that reached the device.
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
    #[serde(default)]
    pub timeline: Timeline,
    /// What went wrong beside the states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why the workload or the check can prove nothing, so that no state was tried.
    pub refused: Option<String>,
    /// Time that trying took, in ns.
    pub trying_ns: u64,
    /// Where that time went, summed over the states that were tried side by side.
    #[serde(default)]
    pub spent: Spent,
    /// The recording without its bytes.
    pub log: Option<Log>,
    /// What states are made of, where they are tried elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// A failing state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    /// Its place among all states that were chosen.
    #[serde(default)]
    pub place: usize,
    /// The state with as little lost as possible; it was tried.
    pub state: CrashState,
    pub finding: Finding,
    /// The last acknowledgement before the cut.
    pub last_acknowledgement: Option<String>,
    pub lost: Vec<LostWrite>,
    /// Whether each of them is needed for the failure.
    pub is_minimal: bool,
    /// Which member was lost with the power, from 1, and of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_member: Option<String>,
    /// Why it fails, as far as the recording says.
    pub cause: Option<FailureCause>,
    /// What a file on the disk shows.
    pub trace: Option<FileTrace>,
}

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
    /// The workload acknowledged nothing, or the check fails while nothing is lost: no state was tried.
    Refused,
    /// No state was violated, and the control shows that the check can find a loss.
    Held,
    /// At least one was.
    Violated,
    /// The control lost nothing: the run proves nothing.
    Inconclusive,
}

impl CrashReport {
    pub fn verdict(&self) -> CrashVerdict {
        match () {
            () if self.refused.is_some() => CrashVerdict::Refused,
            () if self.states.violated() > 0 => CrashVerdict::Violated,
            () if self.control.violated() == 0 || self.states.tried == 0 => {
                CrashVerdict::Inconclusive
            }
            () => CrashVerdict::Held,
        }
    }

    /// The check of a result that follows.
    pub fn check(&self) -> Check {
        if let Some(why) = &self.refused {
            return Check::not_tried(DURABILITY, why);
        }
        let tried = self.states.tried as u64;
        if self.verdict() == CrashVerdict::Inconclusive {
            let why = format!(
                "0 of {tried} states violated, but a disk that ignores flushes loses nothing either: the check sees no loss"
            );
            return Check::not_tried(DURABILITY, why);
        }
        let case = self.cases.iter().find(|case| case.finding.kind.is_violation());
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
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The contender and its workload.
    pub spec: &'a TrialSpec,
    /// What is asked of it.
    pub cuts: &'a PowerCuts,
    /// The trial's own directory.
    pub scratch: &'a Arc<Occupied>,
    /// Where the processes of the host are looked for.
    pub host: &'a HostProc,
    pub stop: &'a StopFlag,
}

/// Carries a trial of power cuts out; `emit` hears what it is doing. The record has a check and no times.
pub fn carry_out(setting: Setting<'_>, emit: &mut dyn FnMut(&Event)) -> Record {
    let started = Instant::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut record = Record::begun(setting.spec, unix.as_nanos() as u64);
    match report(setting, emit) {
        Ok(report) => {
            record.checks = vec![report.check()];
            record.power_cuts = serde_json::to_value(&report).ok();
            if let Some(message) = report.refused {
                let output = String::new();
                record.outcome = Outcome::Failed { phase: Phase::Check, message, output };
            }
        }
        Err(StepFailure::Failed { message, output }) => {
            record.checks = vec![Check::not_tried(DURABILITY, &message)];
            record.outcome = Outcome::Failed { phase: Phase::Check, message, output };
        }
        Err(_) => record.outcome = Outcome::Interrupted { phase: Phase::Check },
    }
    record.elapsed_ns = started.elapsed().as_nanos() as u64;
    record
}

fn report(setting: Setting<'_>, emit: &mut dyn FnMut(&Event)) -> Result<CrashReport, StepFailure> {
    let data = recording_file(setting).map_err(failed("the file for the recording"))?;
    let recording = data.try_clone();
    let benches = vec![Bench::new(setting, 1, &data)?];
    let share = setting.cuts.share.clone().map(serde_json::from_value).transpose();
    let share = share.map_err(failed("the share cannot be read"))?;
    let mut trial = Trial { setting, emit, benches, share };
    let mut report = trial.whole(data);
    if is_kurabes_guest() {
        // A guest ends with its power cut.
        let synced = recording.and_then(|recording| recording.sync_all());
        let synced = synced.map_err(failed("the recording"));
        report = report.and_then(|report| synced.map(|()| report));
    }
    let cleared = trial.benches.iter().map(Bench::clear).fold(Ok(()), Result::and);
    let report = report?;
    cleared.map(|()| report)
}

/// Where the bytes of the recording go: a file of the runner's, or the disk of a guest.
fn recording_file(setting: Setting<'_>) -> io::Result<File> {
    let path = &setting.cuts.data;
    if is_kurabes_guest() && path == Path::new(guest::inside::DISK) {
        return File::options().read(true).write(true).open(path);
    }
    setting.host.open_writable(path, false)
}

/// Whether a contender has block layers of the kernel.
fn has_lower(spec: &TrialSpec) -> bool {
    lower::of(&spec.contender).next().is_some()
}

/// The layers of a contender that are served below the recorded device's node: kurabe's own.
fn served_layers(spec: &TrialSpec) -> Vec<String> {
    let all = spec.contender.below_texts().into_iter();
    all.filter(|text| !lower::is_one(text)).collect()
}

struct Trial<'a, 'e> {
    setting: Setting<'a>,
    emit: &'e mut dyn FnMut(&Event),
    /// The first, on which the workload runs, and once it has run as many as are used side by side.
    benches: Vec<Bench<'a>>,
    /// Which share of the work this is; absent for all of it.
    share: Option<StateShare>,
}

/// What was recorded, and from when to when the workload ran.
struct Recorded {
    recording: Arc<Recording>,
    from: crash::Instant,
    to: crash::Instant,
    places: FileMap,
    /// The files that the workload left, as it saw them.
    left: Option<Files>,
    /// Why no state needs to be tried.
    refused: Option<String>,
}

impl Trial<'_, '_> {
    fn whole(&mut self, data: File) -> Result<CrashReport, StepFailure> {
        if let Some(replay) = &self.setting.cuts.replay {
            let replay = serde_json::from_value(replay.clone())
                .map_err(failed("the state cannot be read"))?;
            return self.replay(&replay);
        }
        let recorded = match &self.share {
            Some(StateShare::States { kept, .. }) => kept.taken(&self.benches[0], data)?,
            _ => self.record(data)?,
        };
        let log = &recorded.recording.log;
        let within = |request: &&crash::RecordedRequest| {
            (recorded.from..=recorded.to).contains(&request.arrived)
        };
        let count = |operation| {
            let requests = log.requests.iter().filter(within);
            requests.filter(|request| request.operation == operation).count()
        };
        let mut report = CrashReport {
            acknowledgements: log.acknowledgements.len(),
            writes: count(crash::RequestKind::Write),
            flushes: count(crash::RequestKind::Flush),
            states: Tally::default(),
            control: Tally::default(),
            cases: Vec::new(),
            left_out: 0,
            needless: Vec::new(),
            timeline: timeline_of(&recorded),
            notes: Vec::new(),
            refused: recorded.refused.clone(),
            trying_ns: 0,
            spent: Spent::default(),
            log: Some(log.clone()),
            kept: None,
        };
        if log.is_cut_short {
            report.notes.push(format!(
                "the recording was full after {} MiB; the states are those until then. Give it more space, or the workload less to do",
                (log.data_sectors * SECTOR_BYTES) >> 20
            ));
        }
        if log.requests.iter().any(|one| one.destaged.is_some()) {
            report.notes.push(
                "the disk is modelled: only what was still in its cache is lost. The self-test's disk keeps everything there".into(),
            );
        }
        if report.refused.is_some() {
            return Ok(report);
        }
        if let Some(StateShare::Recording) = self.share {
            report.log = None;
            report.kept = Some(Kept::of(&recorded));
            return Ok(report);
        }
        let begun = Instant::now();
        self.benches[0].spent.take();
        self.add_benches(&recorded)?;
        self.try_states(&recorded, &mut report)?;
        report.trying_ns = begun.elapsed().as_nanos() as u64;
        self.benches.iter().for_each(|bench| report.spent += bench.spent.get());
        let checks = report.spent.check_ns * 100 / report.trying_ns.max(1);
        if report.spent.waiting_ns > report.spent.check_ns && checks >= CHECKS_PERCENT {
            report.notes.push(format!(
                "a check was running {checks} % of the time, one at a time; if it uses no fixed port and writes to no fixed file, --parallel-checks runs several at once"
            ));
        }
        // The verdict stands, whatever becomes of these.
        if let Err(failure) = self.leave_out(&recorded, &mut report) {
            report.notes.push(format!("flushes could not be left out: {failure}"));
        }
        if let Err(failure) = self.explain(&recorded, &mut report.cases) {
            report
                .notes
                .push(format!("the failing states could not be explained better: {failure}"));
        }
        Ok(report)
    }

    /// Runs the workload once on a recorded device, and the check on what it left while nothing is lost.
    fn record(&mut self, data: File) -> Result<Recorded, StepFailure> {
        let spec = self.setting.spec;
        let (bench, emit) = (&self.benches[0], &mut *self.emit);
        let mut status = |text: &str| emit(&Event::Status { text: text.into() });
        status("making the file system");
        let bytes_max = recording_bytes_max(&data);
        let sizes_bytes = self.setting.cuts.sizes_bytes();
        let recording = bench.disks().record(sizes_bytes, &served_layers(spec), bytes_max);
        recording.map_err(served_failure)?;
        bench.attach(Pages::None)?;
        let mut tools = bench.tools(None);
        let mut instance = bench.instance()?;
        let mut full = "and the workload had not begun";
        let recorded = (|| {
            bench.make(&mut *instance, &mut tools)?;
            instance.mount(&mut tools)?;
            let directory = instance.directory();
            if let Some(setup) = &spec.workload.setup {
                status("setup");
                bench.run("the setup", setup, &directory, Streams::default())?;
            }
            let mut prepared = Value::Null;
            if spec.workload.load.parsed().description().has_setup {
                status("layout");
                let (command, channel) =
                    bench.channel(WorkloadStage::Setup, &*instance, None, Value::Null)?;
                let streams = Streams { channel: Some(&channel), ..Streams::default() };
                bench.run("the workload's layout", &command, &directory, streams)?;
                let read = channel.report().map_err(StepFailure::of)?;
                prepared = read.prepared;
            }
            instance.sync(&mut tools)?;
            status("running the workload");
            let from = bench.disks().now().map_err(served_failure)?;
            let ran = bench.load(&*instance, prepared);
            let log = bench.disks().log().map_err(served_failure)?;
            match ran {
                // It fails where nothing is written any more.
                Err(StepFailure::Failed { .. }) if log.is_cut_short && log.end >= from => {}
                ran => ran?,
            }
            full = "when what the workload left was checked";
            let recording = Arc::new(Recording { log, data: Arc::new(data) });
            let to = recording.log.end;
            let all = Acknowledged::of(&recording.log, recording.log.acknowledgements.len());
            let mut refused = None;
            if recording.log.acknowledgements.is_empty() {
                refused = Some(
                    "the workload acknowledged nothing, so nothing can be lost; let it print a line, or call 'kurabe ack WORDS' (with kurabe in its PATH), after each step that is durable".into(),
                );
            } else if !recording.log.is_cut_short {
                status("checking what the workload left");
                refused = blamed(&bench.ask(&*instance, &all)?, "on what the workload left");
            }
            let (places, left) = match bench.file_system()?.access {
                // What files know is their place on the layers, not on the device.
                Access::Mounted if has_lower(spec) => (FileMap::default(), Files::read(&directory)),
                Access::Mounted => (FileMap::of(&directory), Files::read(&directory)),
                _ => (FileMap::default(), None),
            };
            Ok(Recorded { recording, from, to, places, left, refused })
        })();
        tools.clean_up_within(TEARDOWN_MAX);
        let ended = instance.end(&mut tools);
        let mut recorded = match recorded {
            Err(StepFailure::Failed { .. })
                if bench.disks().log().is_ok_and(|log| log.is_cut_short) =>
            {
                Err(StepFailure::of(format!(
                    "there is no room for a recording of more than {} MiB, {full}",
                    bytes_max >> 20
                )))
            }
            recorded => recorded,
        }?;
        ended?;
        // The states stand on another, through which fewer requests reach the server.
        bench.clear()?;
        let log = &recorded.recording.log;
        if recorded.refused.is_none() {
            let found = CrashState { instant: recorded.from, lost: Vec::new(), acknowledged: 0 };
            let nothing = Acknowledged::of(log, 0);
            let found = bench.mount_without(None, &found, FlushPolicy::Kept, &nothing)?;
            recorded.refused = blamed(&found, "on what the setup left, with nothing acknowledged");
        }
        Ok(recorded)
    }

    /// Adds the benches on which states are tried side by side, where disks with the same bytes can be used so.
    fn add_benches(&mut self, recorded: &Recorded) -> Result<(), StepFailure> {
        // Names of the kernel's layers are the same for all.
        let is_one = !self.benches[0].file_system()?.has_copies || has_lower(self.setting.spec);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = if is_one { 1 } else { (processors * BENCHES_PER_PROCESSOR).min(BENCHES_MAX) };
        for number in 2..=count.min(self.setting.cuts.states) {
            let bench = Bench::new(self.setting, number, &recorded.recording.data)?;
            bench.take(&recorded.recording.log)?;
            self.benches.push(bench);
        }
        Ok(())
    }

    /// Does something with each, on all benches, and gives what came of it in their order. After a failure no
    /// other is begun, and of several failures it is the first in that order.
    fn each<T: Sync, R: Send>(
        &mut self,
        items: &[T],
        say: impl Fn(usize) -> String,
        act: impl Fn(&Bench<'_>, &T) -> Result<R, StepFailure> + Sync,
    ) -> Result<Vec<R>, StepFailure> {
        let count = self.benches.len();
        let (next, ready) = (AtomicUsize::new(0), Barrier::new(count));
        let mut found: Vec<Option<Result<R, StepFailure>>> = items.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let (tell, hear) = channel();
            for bench in &mut self.benches {
                let (tell, next, ready, act) = (tell.clone(), &next, &ready, &act);
                scope.spawn(move || {
                    let entered = if count > 1 { enter_mount_namespace() } else { Ok(()) };
                    let entered = entered.map_err(failed("a mount namespace"));
                    // A namespace that is made later would keep what another has mounted by then.
                    ready.wait();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(number) else { return };
                        let result = entered.clone().and_then(|()| act(bench, item));
                        if result.is_err() {
                            next.store(items.len(), Ordering::Relaxed);
                        }
                        tell.send((number, result)).expect("it hears until all have ended");
                    }
                });
            }
            drop(tell);
            for (done, (number, result)) in hear.iter().enumerate() {
                found[number] = Some(result);
                (self.emit)(&Event::Status { text: say(done + 1) });
            }
        });
        found.into_iter().flatten().collect()
    }

    fn try_states(
        &mut self,
        recorded: &Recorded,
        report: &mut CrashReport,
    ) -> Result<(), StepFailure> {
        let cuts = self.setting.cuts;
        let Recorded { recording, from, to, .. } = recorded;
        let stale: Arc<dyn BlockDevice> = Arc::new(Stale::new(cuts.size_bytes));
        let ignored = FlushPolicy::IgnoredFrom(*from);
        let choose = |flushes, count| {
            let options = StateOptions { from: *from, to: *to, count, seed: cuts.seed };
            States::new(recording.clone(), stale.clone(), flushes).choose(&options)
        };
        let chosen = self.own(choose(FlushPolicy::Kept, cuts.states));
        let control = self.own(choose(ignored, cuts.control_states));
        let of = chosen.len() + control.len();
        let kept = chosen.iter().map(|(_, state)| (state, FlushPolicy::Kept));
        let tries: Vec<_> = kept.chain(control.iter().map(|(_, state)| (state, ignored))).collect();
        let say = |done| format!("{done} of {of} states");
        let mut found = self.each(&tries, say, |bench, (state, flushes)| {
            let acknowledged = Acknowledged::of(&recording.log, state.acknowledged);
            bench.mount_and_ask(state, *flushes, &acknowledged)
        })?;
        let at = |state: &CrashState| since_begin(recorded, state.instant);
        report.timeline.tried = chosen.len() as u64;
        report.timeline.control_tried = control.len() as u64;
        for ((_, state), finding) in control.iter().zip(found.split_off(chosen.len())) {
            report.control.count(&finding);
            if finding.kind.is_violation() {
                report.timeline.control_violated_ns.push(at(state));
            }
        }
        let mut failing = Vec::new();
        let cases_max = if has_lower(self.setting.spec) { SLOW_CASES_MAX } else { CASES_MAX };
        for ((place, state), finding) in chosen.into_iter().zip(found) {
            report.states.count(&finding);
            if finding.kind.is_violation() {
                report.timeline.violated_ns.push(at(&state));
            }
            let is_first_fsck =
                finding.kind == DiskCondition::NeededFsck && report.states.needed_fsck == 1;
            if is_first_fsck || finding.kind.is_violation() && report.states.violated() <= cases_max
            {
                failing.push((place, state, finding));
            }
        }
        let say = |done| format!("the writes that matter: {done} of {} states", failing.len());
        report.cases = self.each(&failing, say, |bench, (place, state, finding)| {
            let case = reduced(bench, recorded, state.clone(), finding.clone())?;
            Ok(Case { place: *place, ..case })
        })?;
        Ok(())
    }

    /// Leaves flushes out, one by one. Of a contender that loses something anyway that would tell nothing.
    fn leave_out(
        &mut self,
        recorded: &Recorded,
        report: &mut CrashReport,
    ) -> Result<(), StepFailure> {
        let cuts = self.setting.cuts;
        if report.verdict() != CrashVerdict::Held || cuts.flushes == 0 {
            return Ok(());
        }
        let Recorded { recording, from, .. } = recorded;
        let log = &recording.log;
        let is_one = |request: &&crash::RecordedRequest| {
            request.operation == crash::RequestKind::Flush
                && request.arrived >= *from
                && request.replied.is_some()
        };
        let flushes: Vec<&crash::RecordedRequest> = log.requests.iter().filter(is_one).collect();
        // Evenly, in neighbouring pairs: a file system flushes before and after what it commits.
        let count = cuts.flushes.min(flushes.len());
        let chosen = (0..count).map(|one| one / 2 * 2 * flushes.len() / count + one % 2);
        let chosen = chosen.filter_map(|number| Some((number, *flushes.get(number)?)));
        let chosen: Vec<(usize, &crash::RecordedRequest)> = chosen.collect();
        let chosen: Vec<_> = self.own(chosen).into_iter().map(|(_, flush)| flush).collect();
        let count = chosen.len();
        let say = |done| format!("without a flush: {done} of {count}");
        let tried = self.each(&chosen, say, |bench, (number, flush)| {
            let without = FlushPolicy::Without(flush.arrived);
            let stale = Arc::new(Stale::new(cuts.size_bytes));
            let states = States::new(recording.clone(), stale, without);
            let states = states.only_without(flush.arrived, LEFT_OUT_STATES, cuts.seed);
            for state in &states {
                let acknowledged = Acknowledged::of(log, state.acknowledged);
                if bench.mount_and_ask(state, without, &acknowledged)?.kind != DiskCondition::Held {
                    return Ok(None);
                }
            }
            let before = log.acknowledgements.iter();
            let before = before.take_while(|one| one.instant < flush.arrived).last();
            let place = before.map_or("before the first acknowledgement".into(), |one| {
                format!("after the acknowledgement {}", one.text)
            });
            let what = match states.len() {
                0 => "nothing waited for it".into(),
                1 => "1 state".into(),
                some => format!("{some} states"),
            };
            Ok(Some(format!("flush {}, {place} ({what})", number + 1)))
        })?;
        report.left_out = tried.len();
        report.needless = tried.into_iter().flatten().collect();
        Ok(())
    }

    /// Tries one state of an earlier recording.
    fn replay(&mut self, replay: &StateReplay) -> Result<CrashReport, StepFailure> {
        let StateReplay { log, state } = replay;
        if state.acknowledged > log.acknowledgements.len() {
            return Err(StepFailure::of("the state has more acknowledgements than the recording"));
        }
        let bench = &self.benches[0];
        bench.take(log)?;
        let acknowledged = Acknowledged::of(log, state.acknowledged);
        let finding = bench.mount_and_ask(state, FlushPolicy::Kept, &acknowledged)?;
        let mut notes = Vec::new();
        if let Some(image) = &self.setting.cuts.image
            && let Err(failure) = self.image(log, state, image)
        {
            notes.push(failure.to_string());
        }
        let mut tally = Tally::default();
        tally.count(&finding);
        let case = Case {
            place: 0,
            state: replay.state.clone(),
            finding,
            last_acknowledgement: None,
            lost: Vec::new(),
            is_minimal: false,
            lost_member: bench.lost_member_text(state),
            cause: None,
            trace: None,
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
            timeline: Timeline::default(),
            notes,
            refused: None,
            trying_ns: 0,
            spent: Spent::default(),
            log: None,
            kept: None,
        })
    }

    /// Writes a state's disk, as the cut left it, into a file.
    fn image(&self, log: &Log, state: &CrashState, path: &Path) -> Result<(), StepFailure> {
        self.benches[0].cut(state, FlushPolicy::Kept)?;
        let node = self.benches[0].node();
        let image = self.setting.host.open_writable(path, false);
        let copied = image.and_then(|image| copy_written(&File::open(node.path())?, &image, log));
        copied.map_err(failed("the disk of the case could not be written"))
    }

    fn status(&mut self, text: &str) {
        (self.emit)(&Event::Status { text: text.into() });
    }
}

/// Why a check cannot be asked that finds this before any power cut.
fn blamed(found: &Finding, place: &str) -> Option<String> {
    found.kind.is_violation().then(|| {
        format!(
            "the check fails before any power cut, {place} ({found}); this would be blamed on the disk: correct the check or the workload"
        )
    })
}

/// Leaves out of what was lost what is not needed for the failure.
fn reduced(
    bench: &Bench<'_>,
    recorded: &Recorded,
    state: CrashState,
    mut finding: Finding,
) -> Result<Case, StepFailure> {
    let log = &recorded.recording.log;
    let acknowledged = Acknowledged::of(log, state.acknowledged);
    let is_slow = has_lower(bench.setting.spec);
    let tries_max = if is_slow { SLOW_TRIES_MAX } else { REDUCTION_TRIES_MAX };
    let reduction = reduce(&state.lost, tries_max, |lost: &[Lost]| {
        let smaller = CrashState { lost: lost.to_vec(), ..state.clone() };
        let found = bench.mount_and_ask(&smaller, FlushPolicy::Kept, &acknowledged)?;
        // What is lost is not reduced to what fsck mends.
        let fails = found.kind.is_violation()
            || found.kind != DiskCondition::Held && !finding.kind.is_violation();
        if fails {
            finding = found;
        }
        Ok::<_, StepFailure>(fails)
    })?;
    let last = state.acknowledged.checked_sub(1).map(|last| &log.acknowledgements[last]);
    let lost = reduction.lost.iter().map(|lost| {
        let request = &log.requests[lost.request];
        let between = |flush: &&crash::RecordedRequest| {
            flush.operation == crash::RequestKind::Flush
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
        place: 0,
        lost: lost.collect(),
        finding,
        last_acknowledgement: last.map(|last| last.text.to_string()),
        is_minimal: reduction.is_minimal,
        lost_member: bench.lost_member_text(&state),
        cause: None,
        trace: None,
        state: CrashState { lost: reduction.lost, ..state },
    })
}

/// From the workload's begin to an instant, in ns.
fn since_begin(recorded: &Recorded, instant: crash::Instant) -> u64 {
    let log = &recorded.recording.log;
    let at = |instant| {
        let arrived = log.requests.partition_point(|one| one.arrived <= instant);
        let received = log.acknowledgements.partition_point(|one| one.instant <= instant);
        let arrived = log.requests[..arrived].last().map_or(0, |one| one.arrived_ns);
        let received = log.acknowledgements[..received].last().map_or(0, |one| one.received_ns);
        arrived.max(received)
    };
    at(instant).saturating_sub(at(recorded.from))
}

fn timeline_of(recorded: &Recorded) -> Timeline {
    let log = &recorded.recording.log;
    let flushes = log.requests.iter().filter(|one| {
        one.operation == crash::RequestKind::Flush
            && (recorded.from..=recorded.to).contains(&one.arrived)
    });
    let at = |instant| since_begin(recorded, instant);
    Timeline {
        length_ns: at(recorded.to),
        acknowledged_ns: log.acknowledgements.iter().map(|one| at(one.instant)).collect(),
        flushed_ns: flushes.map(|flush| at(flush.arrived)).collect(),
        ..Timeline::default()
    }
}
