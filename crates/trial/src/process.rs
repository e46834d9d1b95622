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
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use lab::event::Event;
use lab::spec::{SCHEMA_VERSION, TrialSpec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::host_proc::HostProc;
use crate::scratch::Occupied;
use crate::stop::Stop;
use crate::{carry, sys};

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
    let stop = Stop::on_signals()?;
    let (line, spec) = read_spec()?;
    if spec.device.is_none() {
        return report(&spec, &HostProc::open()?, &stop);
    }
    sys::enter_namespaces()?;
    let mut child = Command::new("/proc/self/exe")
        .args(["trial", "--inside", "--parent", &std::process::id().to_string()])
        .args(trust::owner::words())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    input.write_all(line.as_bytes())?;
    input.flush()?;
    let status = wait_and_forward(&mut child, &stop)?;
    // Held until here: its end would tell the inner process that this one is gone.
    drop(input);
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the trial ended with {status}")))
    }
}

/// Waits for the inner process and hands a stop on to it.
fn wait_and_forward(child: &mut Child, stop: &Stop) -> io::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // Again and again: the inner process is the first of its namespace, to which the kernel
        // delivers no signal before there is a handler for it.
        if stop.raised()
            && let Some(pid) = Pid::from_raw(child.id() as i32)
        {
            // It may have ended just now; the next look says so.
            let _ = kill_process(pid, Signal::TERM);
        }
        std::thread::sleep(STOP_INTERVAL);
    }
}

fn inner() -> io::Result<()> {
    die_with_parent()?;
    // The parent may have died before the line above; then the other end of the pipe is closed.
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().contains(PollFlags::HUP) {
        return Err(io::Error::other("the process that started it is gone"));
    }
    let stop = Stop::on_signals()?;
    let (_, spec) = read_spec()?;
    let host = HostProc::open()?;
    make_private()?;
    report(&spec, &host, &stop)
}

fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
}

fn read_spec() -> io::Result<(String, TrialSpec)> {
    let mut line = String::new();
    // Unbuffered beyond the line: the rest of the pipe is left alone.
    io::stdin().lock().read_line(&mut line)?;
    let spec: TrialSpec = serde_json::from_str(&line)
        .map_err(|error| io::Error::other(format!("the spec cannot be read: {error}")))?;
    if spec.schema != SCHEMA_VERSION {
        return Err(io::Error::other(format!(
            "the spec is of schema {}, and this kurabe carries out schema {SCHEMA_VERSION}",
            spec.schema
        )));
    }
    Ok((line, spec))
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
fn report(spec: &TrialSpec, host: &HostProc, stop: &Stop) -> io::Result<()> {
    let scratch = Occupied::enter(&spec.scratch)?;
    let record = carry::carry_out(spec, scratch, host, stop, &mut say);
    say(&Event::Record { record: Box::new(record) });
    Ok(())
}

/// Says something to the runner.
fn say(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("an event has a JSON form");
    line.push(b'\n');
    let mut output = io::stdout().lock();
    // A runner that is gone reads nothing, and the kernel is about to end this process.
    let _ = output.write_all(&line).and_then(|()| output.flush());
}
