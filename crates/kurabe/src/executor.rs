//! Runs a trial in a process of its own: `kurabe trial`, the spec on its standard input, events
//! and the record on its standard output.
//!
//! Invariants: every trial has a scratch directory of its own, made before it and removed after it;
//! the child is in a process group of its own, so that Ctrl-C reaches only the runner, which then
//! asks the child to stop and waits until it has given everything back; the child dies with the
//! runner.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::event::Event;
use lab::record::{Outcome, Phase, Record};
use lab::spec::TrialSpec;
use rustix::process::{Pid, Signal, kill_process};
use trial::device::Prepared;
use trial::ledger::Ledger;
use trial::scratch::Scratch;
use trust::Directory;

use crate::preflight::Pinned;
use crate::runner::Executor;

/// How long a stopped trial may take to unmount and detach before it is killed; the kernel gives
/// back what it then still holds.
const STOP_GRACE: Duration = Duration::from_secs(90);

/// Runs trials as child processes of this one.
pub struct ProcessExecutor<'a> {
    own: &'a Directory,
    ledger: &'a Ledger,
    device: Option<&'a dyn Prepared>,
    stopped: &'a dyn Fn() -> bool,
    /// The directories of `dir:` contenders, each with its device and inode.
    directories: &'a [Pinned],
    /// The scratch directories of earlier trials that could not be given back.
    left: Vec<Scratch<'a>>,
}

impl Executor for ProcessExecutor<'_> {
    fn execute(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        let mut spec = spec.clone();
        spec.directory_identity = spec.contender.directory.as_ref().and_then(|directory| {
            let pinned = self.directories.iter().find(|(path, _)| path == directory);
            pinned.map(|(_, identity)| *identity)
        });
        let started = Instant::now();
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut phase = Phase::Mkfs;
        let begun = self.make_scratch(&spec);
        let said = match &begun {
            Ok(scratch) => {
                spec.scratch = scratch.path();
                self.converse(&spec, &mut phase, on_event)
            }
            Err(message) => Err(message.clone()),
        };
        let mut record = said.unwrap_or_else(|message| {
            let mut record = Record::begun(&spec, unix_ns as u64);
            record.elapsed_ns = started.elapsed().as_nanos() as u64;
            record.outcome = if (self.stopped)() {
                Outcome::Interrupted { phase }
            } else {
                Outcome::Failed { phase, message, output: String::new() }
            };
            record
        });
        if let Ok(scratch) = begun {
            self.clear(scratch, &mut record);
            if let (Some(device), true) = (self.device, record.outcome != Outcome::Completed) {
                device.note_left();
            }
        }
        record
    }
}

impl<'a> ProcessExecutor<'a> {
    /// An executor whose trials have their scratch directories in kurabe's own, and in `ledger`.
    pub fn new(
        own: &'a Directory,
        ledger: &'a Ledger,
        device: Option<&'a dyn Prepared>,
        directories: &'a [Pinned],
        stopped: &'a dyn Fn() -> bool,
    ) -> ProcessExecutor<'a> {
        ProcessExecutor { own, ledger, device, stopped, directories, left: Vec::new() }
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
    fn make_scratch(&mut self, spec: &TrialSpec) -> Result<Scratch<'a>, String> {
        let left = self.give_back();
        if !left.is_empty() {
            return Err(format!("the trial before could not be given back: {}", left.join("; ")));
        }
        if let (Some(device), None) = (self.device, &spec.contender.directory) {
            device.claim_again().map_err(|error| error.to_string())?;
        }
        Scratch::make(self.own, self.ledger)
            .map_err(|error| format!("making the trial's directory: {error}"))
    }

    /// Removes a trial's directory. A trial that died gave nothing back itself, and one whose
    /// unmount stayed busy not everything; the kernel gave back most of it.
    fn clear(&mut self, scratch: Scratch<'a>, record: &mut Record) {
        let given_back = scratch.give_back();
        record.notes.extend(given_back.done);
        record.notes.extend(given_back.left.iter().map(|left| format!("still there: {left}")));
        if !given_back.left.is_empty() {
            self.left.push(scratch);
        }
    }

    fn converse(
        &self,
        spec: &TrialSpec,
        phase: &mut Phase,
        on_event: &mut dyn FnMut(&Event),
    ) -> Result<Record, String> {
        let mut child = spawn().map_err(|error| format!("the trial cannot be started: {error}"))?;
        let lines = read_lines(&mut child);
        // The pipe stays open until the trial has ended: its end tells the trial that the runner
        // is gone.
        let mut input = child.stdin.take().expect("the input is a pipe");
        let mut text = serde_json::to_string(spec).expect("a spec has a JSON form");
        text.push('\n');
        let told = input.write_all(text.as_bytes()).and_then(|()| input.flush());

        let mut record = None;
        let mut reason = String::new();
        let mut stop_asked: Option<Instant> = None;
        loop {
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(Event::Record { record: last }) => record = Some(*last),
                    Ok(Event::Error { message }) => reason = format!(": {message}"),
                    Ok(event) => {
                        if let Event::Phase { phase: begun } = &event {
                            *phase = *begun;
                        }
                        on_event(&event);
                    }
                    Err(error) => on_event(&Event::Status {
                        text: format!("the trial said something unexpected ({error}): {line}"),
                    }),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            match stop_asked {
                None if (self.stopped)() => {
                    signal(&child, Signal::TERM);
                    stop_asked = Some(Instant::now());
                }
                Some(asked) if asked.elapsed() > STOP_GRACE => signal(&child, Signal::KILL),
                _ => {}
            }
        }
        let status =
            child.wait().map_err(|error| format!("the trial cannot be waited for: {error}"))?;
        drop(input);
        record.ok_or_else(|| match told {
            Err(error) => format!("the trial took no spec: {error} ({})", describe(status)),
            Ok(()) => {
                format!("the trial's process ended without a record ({}){reason}", describe(status))
            }
        })
    }
}

fn spawn() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(["trial", "--parent", &std::process::id().to_string()])
        .args(trust::owner::words())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
}

fn read_lines(child: &mut Child) -> Receiver<String> {
    let output = child.stdout.take().expect("the output is a pipe");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
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
