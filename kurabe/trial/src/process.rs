//! The trial as a process: `kurabe trial` reads one spec, carries it out and writes events and
//! one record, as lines of JSON.
//!
//! A trial on a device runs in a mount namespace and a process namespace of its own, of which it
//! is the first process. So whatever ends it, even SIGKILL, the kernel ends everything that the
//! trial started, unmounts what it mounted and, since the loop device clears itself with its last
//! user, detaches the image. Two processes make that up:
//!
//! - the outer one enters the namespaces, starts the inner one and waits for it;
//! - the inner one carries the trial out.
//!
//! Each asks the kernel to be killed when its parent dies. A trial on a directory needs no root
//! and no namespaces; the outer process carries it out itself.

use std::io::{self, BufRead, Write};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lab::event::{Event, TrialCommand};
use lab::spec::{SCHEMA_VERSION, TrialSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    PidfdFlags, Signal, getppid, kill_process, pidfd_open, set_parent_process_death_signal,
};
use serde::Serialize;
use workloads::KINDS;

use crate::host_proc::HostProc;
use crate::scratch::Occupied;
use crate::stop::StopFlag;
use crate::{carry, command, crash, sys};

/// How often the outer process looks whether it is asked to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Exit code when the trial could not even begin.
const FAILURE: u8 = 1;

/// Runs the trial process; `parent` is the process that must outlive it.
pub fn main(parent: u32, inside: bool) -> ExitCode {
    let result = if inside { inner() } else { outer(parent) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&Event::Error { message: error.to_string() });
            ExitCode::from(FAILURE)
        }
    }
}

fn outer(parent: u32) -> io::Result<()> {
    die_with_parent()?;
    if getppid().map(|pid| pid.as_raw_nonzero().get() as u32) != Some(parent) {
        return Err(io::Error::other(format!("process {parent}, which started it, is gone")));
    }
    let stop = StopFlag::on_signals()?;
    let line = read_line()?;
    let spec = trial_spec(&line)?;
    if spec.device.is_none() && spec.power_cuts.is_none() {
        return report(&spec, &HostProc::open()?, &stop, &hear_turns());
    }
    // Before the namespaces are entered: after that the kernel makes no thread of this process.
    let (give_input, take_input) = channel();
    std::thread::spawn(move || take_input.recv().map(hand_on));
    sys::enter_namespaces()?;
    let mut child = trust::program::itself()
        .args(["trial", "--inside", "--parent", &std::process::id().to_string()])
        .args(trust::owner::words())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    input.write_all(line.as_bytes())?;
    input.flush()?;
    // The pipe is held open by the thread: its end would tell the inner process that this one is gone.
    // The thread is there until this process ends.
    let _ = give_input.send(input);
    let status = wait_and_forward(&mut child, &stop)?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the run's process ended with {status}")))
    }
}

/// Hands the lines that follow the spec on to the inner process, until the runner is gone.
fn hand_on(mut input: ChildStdin) {
    for line in io::stdin().lines() {
        let Ok(line) = line else { break };
        // An inner process that is gone hears no turn; its record, or its end, has been said.
        if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
            break;
        }
    }
    // Until this process ends, which it does at once when the runner is gone.
    loop {
        std::thread::park();
    }
}

/// Waits for the inner process and hands a stop on to it.
fn wait_and_forward(child: &mut Child, stop: &StopFlag) -> io::Result<std::process::ExitStatus> {
    let process = sys::wait::process_of(child);
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    while !command::poll_exit(&pidfd, Some(STOP_INTERVAL))? {
        // Again and again: the inner process is the first of its namespace, to which the kernel
        // delivers no signal before there is a handler for it.
        if stop.raised() {
            // It may have ended just now; the next look says so.
            let _ = kill_process(process, Signal::TERM);
        }
    }
    child.wait()
}

fn inner() -> io::Result<()> {
    die_with_parent()?;
    // The parent may have died before the line above; then the other end of the pipe is closed.
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().contains(PollFlags::HUP) {
        return Err(io::Error::other("the process that started it is gone"));
    }
    let stop = StopFlag::on_signals()?;
    let line = read_line()?;
    let host = HostProc::open()?;
    let spec = trial_spec(&line)?;
    make_private()?;
    report(&spec, &host, &stop, &hear_turns())
}

fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    // Unbuffered beyond the line: the rest of the pipe is left alone.
    io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

fn trial_spec(line: &str) -> io::Result<TrialSpec> {
    let mut spec: TrialSpec = serde_json::from_str(line)
        .map_err(|error| io::Error::other(format!("the spec cannot be read: {error}")))?;
    if spec.schema != SCHEMA_VERSION {
        return Err(io::Error::other(format!(
            "the spec is of schema {}, and this kurabe carries out schema {SCHEMA_VERSION}",
            spec.schema
        )));
    }
    KINDS.parse(&mut spec.workload.load).map_err(io::Error::other)?;
    Ok(spec)
}

/// The turns that the runner gives, as they come in. The channel closes when nobody gives any more.
fn hear_turns() -> Receiver<TrialCommand> {
    let (sender, turns) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let Ok(turn) = serde_json::from_str(&line) else { break };
            if sender.send(turn).is_err() {
                break;
            }
        }
    });
    turns
}

/// Makes the mount namespace private: what is mounted here is seen nowhere else, while what the
/// host unmounts goes away here too. The process namespace gets its own `/proc`.
fn make_private() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}

/// Carries the trial out and writes what it says.
fn report(
    spec: &TrialSpec,
    host: &HostProc,
    stop: &StopFlag,
    turns: &Receiver<TrialCommand>,
) -> io::Result<()> {
    let scratch = Occupied::enter(&spec.scratch)?;
    let record = match &spec.power_cuts {
        Some(cuts) => {
            let scratch = &Arc::new(scratch);
            let setting = crash::Setting { spec, cuts, scratch, host, stop };
            crash::carry_out(setting, &mut |event| say(event))
        }
        None => carry::carry_out(spec, scratch, host, stop, turns, &mut |event| say(event)),
    };
    say(&Event::Record { record: record.into() });
    Ok(())
}

/// Says something to the runner.
fn say(event: &impl Serialize) {
    let mut line = serde_json::to_vec(event).expect("an event has a JSON form");
    line.push(b'\n');
    let mut output = io::stdout().lock();
    // A runner that is gone reads nothing, and the kernel is about to end this process.
    let _ = output.write_all(&line).and_then(|()| output.flush());
}
