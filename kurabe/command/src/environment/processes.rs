//! Runs trials in processes of their own: `kurabe trial`, the spec and the turns on its standard
//! input, events and the record on its standard output.
//!
//! Invariants: every trial has a scratch directory of its own, made before it and removed after it;
//! the child is in a process group of its own, so that Ctrl-C reaches only the runner, which then
//! asks the child to stop and waits until it has given everything back; the child dies with the
//! runner.

use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::event::{DiskMark, Event, TrialCommand};
use lab::record::{Outcome, Phase, Record};
use lab::reported::Reported;
use lab::slice::RunRecord;
use lab::spec::{Device, TrialSpec};
use rustix::process::{Pid, Signal, kill_process};
use trial::device::{Left, PreparedDevice};
use trial::ledger::Ledger;
use trial::scratch::Scratch;
use trial::stop::StopFlag;
use trust::Directory;

use super::lines::{self, StreamEvent};
use super::preflight::PinnedDirectory;
use crate::runner::{Executor, Schedule};

/// How long a stopped trial may take to unmount and detach before it is killed; the kernel gives
/// back what it then still holds.
pub const STOP_GRACE: Duration = Duration::from_secs(90);

/// What the trial of a node is told by whoever runs the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCommand {
    /// All have met.
    Go,
    /// Another node failed: stop, and give back what was taken.
    Abandon,
}

/// Runs trials as child processes of this one.
pub struct Processes {
    /// kurabe's own directory.
    pub own: Arc<Directory>,
    ledger: Arc<Ledger>,
    stop: StopFlag,
    /// The device of the study, where one is needed.
    pub device: Option<Box<dyn PreparedDevice>>,
    /// The directories of `dir:` contenders, each with its device and inode.
    pub directories: Vec<PinnedDirectory>,
    /// What the trial of a node is told, where there are several.
    pub orders: Option<Receiver<NodeCommand>>,
    /// The scratch directories of earlier trials that could not be given back.
    left: Vec<Scratch>,
}

impl Executor for Processes {
    /// Each is begun when the one before it has only to settle, so that none makes its file system
    /// beside another; then each waits for the turns that `schedule` gives.
    fn run(
        &mut self,
        specs: &[TrialSpec],
        mut schedule: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let (sender, lines) = lines::channel();
        let mut trials: Vec<TrialConnection> = Vec::new();
        let (mut is_ending, mut is_abandoned) = (false, false);
        // What was said of the trial before is said too late.
        while self.orders.as_ref().is_some_and(|orders| orders.try_recv().is_ok()) {}
        loop {
            let is_over = schedule.as_ref().is_some_and(|schedule| schedule.is_over());
            let is_stopped = self.stop.raised() || is_over || is_abandoned;
            if trials.len() < specs.len()
                && trials.last().is_none_or(|last| last.state != State::Beginning)
            {
                let number = trials.len();
                trials.push(self.begin(&specs[number], number, is_stopped, &sender));
            } else if trials.iter().all(|trial| trial.state == State::Ended) {
                break;
            }
            if let Some(schedule) = &mut schedule
                && trials.len() == specs.len()
            {
                pass_the_turn(&mut trials, schedule, &mut is_ending);
            }
            let meets = trials.iter().position(|trial| trial.meets);
            let order = self.orders.as_ref().and_then(|orders| match meets {
                Some(_) => orders.recv_timeout(LOOK_INTERVAL).ok(),
                None => orders.try_recv().ok(),
            });
            match (order, meets) {
                (Some(NodeCommand::Abandon), _) => is_abandoned = true,
                (Some(NodeCommand::Go), Some(number)) if !is_stopped => {
                    trials[number].give(&TrialCommand::Go)
                }
                _ => {}
            }
            // One that meets the others says nothing but its end.
            let patience = if meets.is_some() { Duration::ZERO } else { LOOK_INTERVAL };
            match lines.recv_timeout(patience) {
                Ok((number, StreamEvent::Line(line))) => {
                    let said = trials[number].hear(&line, on_event);
                    if let (Some(slice), Some(schedule)) = (said, &mut schedule) {
                        schedule.took(&slice);
                    }
                }
                Ok((number, StreamEvent::End(why))) => trials[number].ended(why),
                Err(_) => {}
            }
            if is_stopped {
                trials.iter_mut().for_each(TrialConnection::stop);
            }
        }
        let is_over = schedule.is_some_and(|schedule| schedule.is_over());
        let is_stopped = self.stop.raised() || is_over || is_abandoned;
        trials.into_iter().map(|trial| self.record_of(trial, is_stopped)).collect()
    }
}

impl Processes {
    /// Trials without a device, with their scratch directories in kurabe's own, and in `ledger`.
    pub fn new(own: Arc<Directory>, ledger: Arc<Ledger>, stop: StopFlag) -> Processes {
        let (directories, left) = (Vec::new(), Vec::new());
        Processes { own, ledger, stop, device: None, directories, orders: None, left }
    }

    /// Tries once more to give back what earlier trials left, and says what is still there.
    pub fn give_back(&mut self) -> Vec<String> {
        let mut still_there = Vec::new();
        self.left.retain(|scratch| {
            let left = scratch.give_back().left;
            let keep = !left.is_empty();
            still_there.extend(left);
            keep
        });
        still_there
    }

    /// Claims the device and makes a scratch directory.
    ///
    /// Refuses to begin while something of a trial before is still there. Somebody who holds a file
    /// of its file system open keeps that file system alive on the device, and two on one device
    /// would destroy each other.
    fn make_scratch(&mut self, spec: &TrialSpec) -> Result<Scratch, String> {
        let left = self.give_back();
        if !left.is_empty() {
            return Err(format!("the previous run could not be cleaned up: {}", left.join("; ")));
        }
        if let Some(device) = self.device.as_deref().filter(|_| spec.contender.needs_device()) {
            // mkfs and mount take it exclusively themselves.
            drop(device.claim_again().map_err(|error| error.to_string())?);
        }
        Scratch::make(&self.own, &self.ledger)
            .map_err(|error| format!("making the run's directory: {error}"))
    }

    /// Removes a trial's directory. A trial that died gave nothing back itself, and one whose
    /// unmount stayed busy not everything; the kernel gave back most of it.
    fn clear(&mut self, scratch: Scratch, record: &mut Record) {
        let given_back = scratch.give_back();
        record.notes.extend(given_back.done);
        record.notes.extend(given_back.left.iter().map(|left| format!("still there: {left}")));
        if !given_back.left.is_empty() {
            self.left.push(scratch);
        }
    }

    /// Starts a trial's process and tells it what to do.
    fn begin(
        &mut self,
        spec: &TrialSpec,
        number: usize,
        is_stopped: bool,
        lines: &SyncSender<(usize, StreamEvent)>,
    ) -> TrialConnection {
        let mut spec = spec.clone();
        spec.directory_identity = spec.contender.directory().and_then(|directory| {
            let pinned = self.directories.iter().find(|(path, _)| path == directory);
            pinned.map(|(_, identity)| *identity)
        });
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut connection = TrialConnection {
            started: Instant::now(),
            unix_ns: unix_ns as u64,
            scratch: None,
            running: None,
            state: State::Ended,
            meets: false,
            heard: Heard::new(),
            problem: None,
            stop_asked: None,
            spec,
        };
        connection.problem = if is_stopped {
            Some("the study was stopped".into())
        } else {
            self.start(&mut connection, number, lines).err()
        };
        connection
    }

    fn start(
        &mut self,
        connection: &mut TrialConnection,
        number: usize,
        lines: &SyncSender<(usize, StreamEvent)>,
    ) -> Result<(), String> {
        let spec = &mut connection.spec;
        if let (Some(device), Some(together)) = (&self.device, spec.side_by_side) {
            let layers = spec.device.take().map(|device| device.layers).unwrap_or_default();
            let part = device.part(together.part, together.contenders);
            spec.device = Some(Device { layers, ..part.map_err(|error| error.to_string())? });
        }
        let scratch = self.make_scratch(spec)?;
        spec.scratch = scratch.path();
        connection.scratch = Some(scratch);
        let mut child = spawn().map_err(|error| format!("the run cannot be started: {error}"))?;
        let output = child.stdout.take().expect("the output is a pipe");
        lines::read(output, lines::OWN, number, lines);
        // The pipe stays open until the trial has ended: its end tells the trial that the runner is
        // gone.
        let input = child.stdin.take().expect("the input is a pipe");
        let text = serde_json::to_string(spec).expect("a spec has a JSON form");
        connection.running = Some((child, input));
        connection.state = State::Beginning;
        connection.tell(&text).map_err(|error| format!("the run's process took no spec: {error}"))
    }

    /// The record of a trial that has ended, however it did, with everything given back.
    fn record_of(&mut self, connection: TrialConnection, is_stopped: bool) -> Record {
        let TrialConnection { spec, scratch, running, heard, problem, .. } = connection;
        let Heard { phase, record, reason, made } = heard;
        let (record, problem) = match record.map(|record| record.of(&spec)) {
            Some(Ok(record)) => (Some(record), problem),
            Some(Err(other)) => (None, Some(other)),
            None => (None, problem),
        };
        let status = running.map(|(mut child, input)| {
            let status = child.wait();
            drop(input);
            status.map_or_else(|error| format!("it cannot be waited for: {error}"), describe)
        });
        let mut record = record.unwrap_or_else(|| {
            let message = match (problem, status) {
                (Some(problem), None) => problem,
                (Some(problem), Some(status)) => format!("{problem} ({status})"),
                (None, status) => format!(
                    "the run's process ended without a record ({}){reason}",
                    status.unwrap_or_default()
                ),
            };
            let mut record = Record::begun(&spec, connection.unix_ns);
            record.elapsed_ns = connection.started.elapsed().as_nanos() as u64;
            record.outcome = if is_stopped {
                Outcome::Interrupted { phase }
            } else {
                Outcome::Failed { phase, message, output: String::new() }
            };
            record
        });
        if let Some(scratch) = scratch {
            self.clear(scratch, &mut record);
            if let (Some(device), true) = (&self.device, record.outcome != Outcome::Completed) {
                device.note_left(Left::Marked(&made));
            }
        }
        record
    }
}

/// How often the runner looks whether it is asked to stop.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How far a trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It makes its file system and what the workload needs.
    Beginning,
    Settling,
    /// It waits for its turn.
    Ready,
    Turn,
    /// It was told that there are no more turns.
    Ending,
    /// It checks its file system, which costs the others nothing that is compared.
    Checking,
    /// Its process has closed its output.
    Ended,
}

/// The connection to one trial's process.
struct TrialConnection {
    spec: TrialSpec,
    started: Instant,
    unix_ns: u64,
    scratch: Option<Scratch>,
    running: Option<(Child, ChildStdin)>,
    state: State,
    /// Whether it waits for other nodes.
    meets: bool,
    heard: Heard,
    /// Why it could not even be told what to do.
    problem: Option<String>,
    stop_asked: Option<Instant>,
}

impl TrialConnection {
    fn tell(&mut self, line: &str) -> io::Result<()> {
        let Some((_, input)) = &mut self.running else { return Ok(()) };
        writeln!(input, "{line}")?;
        input.flush()
    }

    /// Gives it a turn, or tells it that there are no more. One that is gone says so by itself.
    fn give(&mut self, turn: &TrialCommand) {
        let _ = self.tell(&serde_json::to_string(turn).expect("a command has a JSON form"));
        match turn {
            TrialCommand::Slice { .. } => self.state = State::Turn,
            TrialCommand::End => self.state = State::Ending,
            TrialCommand::Go => self.meets = false,
            TrialCommand::Died { .. } | TrialCommand::Ask { .. } => {
                unreachable!("a node that is killed is a guest")
            }
        }
    }

    /// Takes in a line; gives the slice when it was of one.
    fn hear(&mut self, line: &str, on_event: &mut dyn FnMut(&Event)) -> Option<RunRecord> {
        let event = self.heard.hear(line)?;
        match &event {
            Event::Phase { phase: Phase::Settle } if self.state == State::Beginning => {
                self.state = State::Settling;
            }
            Event::Phase { phase: Phase::Check } if self.state == State::Ending => {
                self.state = State::Checking;
            }
            Event::Ready | Event::Slice { .. } => self.state = State::Ready,
            Event::Meet { .. } => self.meets = true,
            _ => {}
        }
        on_event(&event);
        match event {
            Event::Slice { slice } => Some(*slice),
            _ => None,
        }
    }

    /// Its output has ended; of one that said too much, `why`, and it is not waited for.
    fn ended(&mut self, why: Option<String>) {
        self.state = State::Ended;
        self.meets = false;
        if let (Some(why), Some((child, _))) = (why, &self.running) {
            self.heard.reason = format!(": {why}");
            signal(child, Signal::KILL);
        }
    }

    /// Asks it to stop, and kills it when it does not.
    fn stop(&mut self) {
        let Some((child, _)) = &self.running else { return };
        if self.state == State::Ended {
            return;
        }
        match self.stop_asked {
            None => {
                signal(child, Signal::TERM);
                self.stop_asked = Some(Instant::now());
            }
            Some(asked) if asked.elapsed() > STOP_GRACE => signal(child, Signal::KILL),
            Some(_) => {}
        }
    }
}

/// Gives the next turn when nobody has one and everybody is ready for it; when there are no more,
/// ends the trials one after the other.
fn pass_the_turn(
    trials: &mut [TrialConnection],
    schedule: &mut Schedule<'_>,
    is_ending: &mut bool,
) {
    let is_busy = |trial: &TrialConnection| {
        matches!(trial.state, State::Beginning | State::Settling | State::Turn | State::Ending)
    };
    if trials.iter().any(is_busy) {
        return;
    }
    let live: Vec<usize> =
        (0..trials.len()).filter(|number| trials[*number].state == State::Ready).collect();
    if !*is_ending {
        match schedule.next(&live) {
            Some((number, turn)) => return trials[number].give(&turn),
            None => *is_ending = true,
        }
    }
    if let Some(number) = live.first() {
        trials[*number].give(&TrialCommand::End);
    }
}

fn spawn() -> io::Result<Child> {
    trust::program::itself()
        .args(["trial", "--parent", &std::process::id().to_string()])
        .args(trust::owner::words())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Characters of a line that are shown when it is not understood.
const SHOWN_MAX: usize = 200;

/// What a trial has said of itself so far, wherever it runs.
pub struct Heard {
    /// The phase that it is in; at first the one that all begin with.
    pub phase: Phase,
    /// What it says to be its record, which is the last that it says.
    pub record: Option<Reported>,
    /// What it said of its own end, after a colon.
    pub reason: String,
    /// What it said that it made on its disk.
    pub made: Vec<DiskMark>,
}

impl Heard {
    /// Nothing yet.
    pub fn new() -> Heard {
        Heard { phase: Phase::Mkfs, record: None, reason: String::new(), made: Vec::new() }
    }

    /// Takes a line in; gives what is left for others to see.
    pub fn hear(&mut self, line: &str) -> Option<Event> {
        match serde_json::from_str(line) {
            Ok(Event::Record { record }) => self.record = Some(record),
            Ok(Event::Error { message }) => self.reason = format!(": {message}"),
            Ok(Event::Made { marks }) => self.made = marks,
            Ok(event) => {
                if let Event::Phase { phase } = &event {
                    self.phase = *phase;
                }
                return Some(event);
            }
            Err(error) => {
                let shown: String = line.chars().take(SHOWN_MAX).collect();
                let text =
                    format!("the run's process said something unexpected ({error}): {shown}");
                return Some(Event::Status { text });
            }
        }
        None
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, signal);
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(9)) => {
            "killed by signal 9: by hand, or by the kernel for want of memory".into()
        }
        (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
    }
}
