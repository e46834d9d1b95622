//! Runs one command of the user's in the mounted directory and says what it cost.
//!
//! Invariants: the time is taken from right before the exec to the exit of the command itself; the
//! command is in a session and process group of its own, which has no terminal and which a stop or
//! a bound kills whole; what it cost is read before it is reaped, so that it covers its waited-for
//! children.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::record::CommandUsage;
use lab::spec::{CommandLine, OutputTarget};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use trust::complaint::Excerpt;
use workloads::counters::bytes_moved;
use workloads::enclosure::{TEMPORARY, own_program};

use crate::control_group::ControlGroup;
use crate::leftovers::group_runs;
use crate::stop::StopFlag;
use crate::sys;
use crate::sys::confine::{confine, monotonic_ns};
use crate::user::{OWN_PROGRAM, User, kept_environment};
use crate::workload::WorkloadChannel;

#[derive(Debug)]
pub enum CommandEnd {
    /// It exited or a signal ended it.
    Exited,
    /// The bound was reached and it was killed.
    TimedOut,
    /// The trial was stopped and it was killed.
    Stopped,
}

/// What running a command yielded.
#[derive(Debug)]
pub struct CommandResult {
    /// From right before the exec to the exit, in ns.
    pub elapsed_ns: u64,
    pub usage: CommandUsage,
    pub end: CommandEnd,
    /// Whether processes of its group are still running.
    pub outlived: bool,
    /// The first and last bytes of its standard error (and of its output, where that was read).
    pub said: String,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct CommandBounds<'a> {
    /// The user as whom it runs, where that is another than this process's.
    pub user: Option<&'a User>,
    /// The control group that it joins.
    pub group: Option<&'a ControlGroup>,
    pub deadline: Option<Instant>,
    /// What its standard output is, in the place of what is shown or thrown away.
    pub standard_output: Option<&'a File>,
}

/// Bytes of output that are kept for the record of a failure.
const SAID_BYTES_MAX: usize = 4096;

/// How long a stop or a bound can go unnoticed. The end of the command itself is noticed at once.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `line` in `directory` until it ends, `deadline` comes or `stop` is raised. With a `channel`,
/// it is `kurabe load`.
pub fn run(
    line: &CommandLine,
    directory: &Path,
    environment: &[(&str, &str)],
    bounds: CommandBounds<'_>,
    output: &OutputTarget,
    channel: Option<&WorkloadChannel>,
    stop: &StopFlag,
) -> io::Result<CommandResult> {
    let words = line.words();
    let (program, arguments) = words.split_first().expect("a command has at least one word");
    let enclosure = channel.and_then(WorkloadChannel::enclosure);
    let mut command = match (line, enclosure) {
        // kurabe itself, by a name that an enclosure shows.
        (_, Some(_)) if program == OWN_PROGRAM => trust::program::as_given(own_program()),
        // The shell of a line is kurabe's choice. What it runs is found by the user's own PATH.
        (CommandLine::Shell { .. }, _) if !program.contains('/') => {
            let shell = trust::program::locate(program).map_err(io::Error::other)?;
            let mut command = trust::program::as_given(shell.path());
            command.arg0(program);
            command
        }
        _ => trust::program::as_given(program),
    };
    if let Some(user) = bounds.user {
        command.env_clear().envs(user.environment());
    } else if enclosure.is_some() {
        // What a job runs can print it.
        command.env_clear().envs(kept_environment());
    }
    command
        .args(arguments)
        .current_dir(directory)
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    let mut identity = bounds.user.map(User::identity);
    if let (Some(identity), None) = (&mut identity, enclosure) {
        // The user enters it by its own rights: what is at that path may be its own work by now.
        command.current_dir("/");
        identity.directory = Some(CString::new(directory.as_os_str().as_bytes())?);
    }
    let mut capture = Capture::default();
    let is_others = bounds.user.is_some() || enclosure.is_some();
    let (stdout, stderr) = capture.streams(output, is_others)?;
    command.stdout(stdout).stderr(stderr);
    if let Some(file) = bounds.standard_output {
        command.stdout(file.try_clone()?);
    }
    if let Some(channel) = channel {
        let (task, report) = channel.streams()?;
        command.stdin(task).stdout(report);
    }
    let mut complaint = None;
    let enclosing = match enclosure {
        Some(enclosure) => {
            // A hook enters the directory once it is in the enclosure.
            command.current_dir("/").env("TMPDIR", TEMPORARY);
            let is_there = enclosure.directories.iter().any(|there| directory.starts_with(there));
            let begin = if is_there { directory } else { Path::new(TEMPORARY) };
            let (enclosing, said) = enclosure.prepare(begin, bounds.user.is_some())?;
            complaint = Some(said);
            Some(enclosing)
        }
        None => None,
    };
    let group = bounds.group.map(ControlGroup::directory).transpose()?;
    let before_exec = confine(&mut command, group, identity, enclosing)?;

    let (started, started_ns) = (Instant::now(), monotonic_ns());
    let child = command.spawn().map_err(|error| {
        let error = match complaint {
            Some(said) => said.about(error),
            None => error,
        };
        io::Error::new(error.kind(), format!("'{program}' cannot be started: {error}"))
    })?;
    // The command object holds the write ends of the pipes; the readers end when it is gone.
    drop(command);
    let (process, exec_ns) = before_exec.of(child)?;
    let before_exec_ns = exec_ns.saturating_sub(started_ns);
    let (end, ended) = wait(process, bounds.deadline, stop)?;
    let elapsed_ns = ended.duration_since(started).as_nanos() as u64;
    let elapsed_ns = elapsed_ns.saturating_sub(before_exec_ns);
    let usage = reap(process)?;
    // The cheap question first: mostly nothing of the group is left.
    let outlived = rustix::process::test_kill_process_group(process).is_ok() && group_runs(process);
    Ok(CommandResult { elapsed_ns, usage, end, outlived, said: capture.finish() })
}

/// Waits for the exit without reaping, so that the accounts can still be read.
pub(crate) fn wait(
    pid: Pid,
    deadline: Option<Instant>,
    stop: &StopFlag,
) -> io::Result<(CommandEnd, Instant)> {
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let now = Instant::now();
        let left =
            deadline.map_or(STOP_INTERVAL, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() || stop.raised() {
            let end = if stop.raised() { CommandEnd::Stopped } else { CommandEnd::TimedOut };
            kill_group(pid);
            poll_exit(&pidfd, None)?;
            return Ok((end, Instant::now()));
        }
        if poll_exit(&pidfd, Some(left.min(STOP_INTERVAL)))? {
            return Ok((CommandEnd::Exited, Instant::now()));
        }
    }
}

/// Whether a process has ended by `timeout`; without one, it is waited for. A signal ends the wait early.
pub(crate) fn poll_exit(pidfd: &OwnedFd, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn kill_group(pid: Pid) {
    // The group may be gone already, which is what is wanted.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
}

/// Reads the accounts of the ended command and reaps it.
fn reap(pid: Pid) -> io::Result<CommandUsage> {
    rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let moved = bytes_moved(&format!("/proc/{pid}/io"));
    let reaped = sys::wait_with_usage(pid)?;
    Ok(CommandUsage {
        exit_code: reaped.exit_code,
        signal: reaped.signal,
        user_ns: reaped.user_ns,
        system_ns: reaped.system_ns,
        memory_bytes_max: reaped.memory_bytes_max,
        ..moved
    })
}

/// Where what is read goes on to.
type Further = Box<dyn Write + Send>;

/// A stream that is read to its end in a thread of its own, so that nobody who writes to it waits. Its
/// first and last bytes are kept.
pub(crate) struct Reader {
    kept: Arc<Mutex<Excerpt>>,
    /// Closed when the stream has ended.
    ended: Receiver<()>,
}

impl Reader {
    /// Begins to read; all of it goes to `further` too.
    pub(crate) fn begin(
        stream: impl Read + Send + 'static,
        kept_bytes_max: usize,
        further: Option<Further>,
    ) -> Reader {
        let kept = Arc::new(Mutex::new(Excerpt::new(kept_bytes_max)));
        let (at_the_end, ended) = channel();
        let shared = kept.clone();
        std::thread::spawn(move || {
            let _at_the_end: Sender<()> = at_the_end;
            keep_ends(stream, &shared, further);
        });
        Reader { kept, ended }
    }

    /// What was kept, at the stream's end or at `until`: a process that outlived the command can hold
    /// the other end open for ever.
    pub(crate) fn text(self, until: Instant) -> String {
        let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        let kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.text()
    }
}

/// The readers of a command's output.
#[derive(Default)]
struct Capture(Vec<Reader>);

/// How long the readers may need after the command's end.
const DRAIN_MAX: Duration = Duration::from_millis(200);

impl Capture {
    /// The two streams for the command. Standard error is always read when it is not shown, since
    /// it holds the reason of a failure; it costs nothing while the command is silent.
    ///
    /// What is another user's, or does as a job says, is given neither a terminal nor a file, not even to
    /// write on: who has it open can open it again through /proc, to read, and to cut it off.
    fn streams(&mut self, output: &OutputTarget, is_others: bool) -> io::Result<(Stdio, Stdio)> {
        Ok(match output {
            OutputTarget::Null => (Stdio::null(), self.pipe(None)?.into()),
            OutputTarget::Pipe => (self.pipe(None)?.into(), self.pipe(None)?.into()),
            OutputTarget::Inherit if is_others => self.one_pipe(Box::new(io::stderr()))?,
            // Standard output is the channel to the runner; what is shown goes to standard error.
            OutputTarget::Inherit => {
                let shown = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
                (shown()?, shown()?)
            }
            OutputTarget::File(path) => {
                let file = trust::file::append(path)
                    .map_err(|refused| io::Error::other(format!("output file {refused}")))?;
                if is_others {
                    self.one_pipe(Box::new(file))?
                } else {
                    (file.try_clone()?.into(), file.into())
                }
            }
        })
    }

    fn pipe(&mut self, further: Option<Further>) -> io::Result<io::PipeWriter> {
        let (reader, writer) = io::pipe()?;
        self.0.push(Reader::begin(reader, SAID_BYTES_MAX, further));
        Ok(writer)
    }

    /// One for both streams: what comes on them stays in its order.
    fn one_pipe(&mut self, further: Further) -> io::Result<(Stdio, Stdio)> {
        let writer = self.pipe(Some(further))?;
        Ok((writer.try_clone()?.into(), writer.into()))
    }

    fn finish(self) -> String {
        let until = Instant::now() + DRAIN_MAX;
        // Standard error comes first, since it is the likelier reason.
        let texts = self.0.into_iter().rev().map(|reader| reader.text(until));
        texts.collect::<String>().trim().to_string()
    }
}

/// Reads a stream to its end, keeps its first and last bytes, and passes all on.
fn keep_ends(mut stream: impl Read, kept: &Mutex<Excerpt>, mut further: Option<Further>) {
    let mut buffer = [0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if let Some(further) = &mut further {
                    // A terminal that is gone shows nothing, a full disk takes nothing; the command goes on.
                    let _ = further.write_all(&buffer[..count]);
                }
                let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                kept.push(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> CommandLine {
        CommandLine::Words(words.iter().map(|word| word.to_string()).collect())
    }

    fn run_here(line: &CommandLine, deadline: Option<Instant>, stop: &StopFlag) -> CommandResult {
        let environment = [("KURABE_DIR", "/")];
        let bounds = CommandBounds { deadline, ..CommandBounds::default() };
        run(line, Path::new("/"), &environment, bounds, &OutputTarget::Null, None, stop).unwrap()
    }

    #[test]
    fn exit_code_environment_and_accounts() {
        let line = words(&[
            "sh",
            "-c",
            "cd \"$KURABE_DIR\" && head -c 100000 /dev/zero | cat >/dev/null; exit 3",
        ]);
        let ran = run_here(&line, None, &StopFlag::default());
        assert_eq!(ran.usage.exit_code, Some(3));
        assert!(matches!(ran.end, CommandEnd::Exited));
        assert!(ran.usage.memory_bytes_max > 100_000);
        // Both ends of the pipe wrote the bytes once, and both are children of the command.
        assert!(ran.usage.write_call_bytes.unwrap() >= 200_000, "{:?}", ran.usage);
    }

    #[test]
    fn the_reason_of_a_failure_is_kept() {
        let ran =
            run_here(&words(&["sh", "-c", "echo lost >&2; exit 1"]), None, &StopFlag::default());
        assert_eq!(ran.said, "lost");
    }

    #[test]
    fn a_bound_kills_the_whole_group() {
        let deadline = Instant::now() + Duration::from_millis(100);
        let ran = run_here(
            &words(&["sh", "-c", "sleep 77.7 & sleep 77.7"]),
            Some(deadline),
            &StopFlag::default(),
        );
        assert!(matches!(ran.end, CommandEnd::TimedOut));
        assert_eq!(ran.usage.signal, Some(9));
        assert!(ran.elapsed_ns < 10_000_000_000);
    }

    #[test]
    fn what_outlives_the_command_is_not_waited_for() {
        let line = words(&["sh", "-c", "setsid sleep 3 & sleep 0.2; echo said >&2"]);
        let started = Instant::now();
        let ran = run_here(&line, None, &StopFlag::default());
        assert_eq!(ran.said, "said");
        assert!(!ran.outlived, "it left the group");
        let ran = run_here(&words(&["sh", "-c", "sleep 3 &"]), None, &StopFlag::default());
        assert!(ran.outlived, "it stayed in the group");
        assert!(started.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_stop_is_noticed() {
        let stop = StopFlag::default();
        stop.raise();
        let ran = run_here(&words(&["sleep", "77.7"]), None, &stop);
        assert!(matches!(ran.end, CommandEnd::Stopped));
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let line = words(&["/no/such/program"]);
        let (bounds, stop) = (CommandBounds::default(), StopFlag::default());
        let error =
            run(&line, Path::new("/"), &[], bounds, &OutputTarget::Null, None, &stop).unwrap_err();
        assert!(error.to_string().contains("'/no/such/program' cannot be started"), "{error}");
    }
}
