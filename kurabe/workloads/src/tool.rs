//! Runs an installed tool: finds it, collects its output, and never leaves it running behind.
//!
//! Knows nothing of what the tools print. Invariants: a child that was started here has ended,
//! with all of its descendants, when [`run`] returns; what it printed is in the
//! result or in the error; a tool that is not installed is an error that names its package.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use trust::complaint::explanation;
use trust::program::{NotFound, TrustedProgram};

use crate::enclosure::{self, Enclosure};
use crate::sys;

/// How long a tool has to end by itself after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that a tool may print on one stream. fio prints a few MiB for a large job.
const OUTPUT_BYTES_MAX: usize = 256 << 20;
/// How long a tool may take to answer a question.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Pieces of output that may wait to be taken.
const PIECES_MAX: usize = 64;
/// How often the stop flag is looked at while a tool is silent.
const POLL: Duration = Duration::from_millis(50);

/// Declares the tools: of each the program, the Debian package that brings it, and what makes it say its version.
macro_rules! tools {
    ($($(#[$about:meta])* $name:ident: $facts:expr;)*) => {
        /// A tool that a workload may need.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WorkloadTool {
            $($(#[$about])* $name,)*
        }

        impl WorkloadTool {
            pub const ALL: &[WorkloadTool] = &[$(Self::$name),*];

            fn facts(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Self::$name => $facts,)*
                }
            }
        }
    };
}

// Neither dbench nor bonnie++ says its version without a complaint and a usage text.
tools! {
    Dbench: ("dbench", "dbench", "--help");
    /// The flexible I/O tester.
    Fio: ("fio", "fio", "--version");
    Bonnie: ("bonnie++", "bonnie++", "--help");
    Tar: ("tar", "tar", "--version");
    /// The `rm` of the core utilities.
    Rm: ("rm", "coreutils", "--version");
    Git: ("git", "git", "--version");
    /// The server of PostgreSQL.
    Postgres: ("postgres", "postgresql", "--version");
    /// What makes an empty database of PostgreSQL.
    Initdb: ("initdb", "postgresql", "--version");
    /// The benchmark of PostgreSQL.
    Pgbench: ("pgbench", "postgresql", "--version");
    Redis: ("redis-server", "redis-server", "--version");
    Mariadb: ("mariadbd", "mariadb-server", "--version");
    /// What makes an empty database of MariaDB.
    MariadbInstall: ("mariadb-install-db", "mariadb-server", "--help");
    /// The benchmark of SQL databases.
    Sysbench: ("sysbench", "sysbench", "--version");
    /// The benchmark of RocksDB.
    DbBench: ("db_bench", "rocksdb-tools", "--version");
    /// What reads a database of RocksDB.
    Ldb: ("ldb", "rocksdb-tools", "--version");
}

impl WorkloadTool {
    /// The program's name, as it is looked up in the search path.
    pub fn program(self) -> &'static str {
        self.facts().0
    }

    /// The Debian package that brings the program.
    pub fn package(self) -> &'static str {
        self.facts().1
    }

    pub fn locate(self) -> Result<TrustedProgram, ToolError> {
        let missing = |not_found| ToolError::Missing { not_found, package: self.package() };
        let name = match self {
            Self::Postgres | Self::Initdb | Self::Pgbench => {
                crate::postgres::path_of(self.program())
            }
            _ => self.program().into(),
        };
        trust::program::locate(&name).map_err(missing)
    }

    /// Whether it does as somebody's job says, so that it is started in an enclosure only.
    fn is_kept_in(self) -> bool {
        !matches!(self, Self::Tar | Self::Rm | Self::Git)
    }

    /// A command of a tool that does as kurabe says alone, for [`run`].
    pub fn command(self) -> Result<Command, ToolError> {
        assert!(!self.is_kept_in(), "{} is started by run_kept_in", self.program());
        self.locate().map(|program| program.command())
    }

    /// The first line that says which version is installed.
    pub fn version(self) -> Result<String, ToolError> {
        let argument = [self.facts().2];
        // Without an enclosure it is asked all the same: no job is read.
        let asked = if self.is_kept_in() && enclosure::refusal().is_none() {
            ask(self, &argument, Stdio::null())
        } else {
            let mut command = self.locate()?.command();
            run(command.args(argument), &AtomicBool::new(false))
        };
        let output = match asked {
            Ok(output) => output,
            // dbench and bonnie++ complain.
            Err(ToolError::Failed(output)) => *output,
            Err(error) => return Err(error),
        };
        let text = output.stdout + &output.stderr;
        let line = text
            .lines()
            .find(|line| line.contains("ersion") || line.starts_with("fio-") || line.contains(") "))
            .or_else(|| text.lines().next())
            .unwrap_or_default();
        Ok(line.trim().to_owned())
    }
}

/// What went wrong with a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool is not installed.
    #[error("{not_found}; {}", trust::program::how_to_install(&[package]))]
    Missing {
        /// The program, and what of its name was not used.
        not_found: NotFound,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Spawn { program: String, source: std::io::Error },
    /// The program runs only where the kernel keeps it in, which it does not here.
    #[error(
        "`{program}` is not started, because the kernel does not keep it in its contender ({reason}); \
         run kurabe as root, or allow user namespaces"
    )]
    NotKeptIn {
        program: &'static str,
        /// The kernel's reason.
        reason: &'static str,
    },
    /// The program ended with an error, or was killed.
    #[error("{0}")]
    Failed(Box<Finished>),
    /// The program printed more, or took longer, than it may, and was ended.
    #[error("`{program}` was ended: it {excess}")]
    Excessive {
        program: String,
        /// What was too much, with the limit.
        excess: String,
    },
    /// The caller's stop flag was raised, and the program was ended.
    #[error("`{}` was stopped after {:.1} s", .0.program, .0.elapsed_ns as f64 / 1e9)]
    Stopped(Box<Finished>),
}

impl From<ToolError> for String {
    fn from(error: ToolError) -> String {
        error.to_string()
    }
}

/// A tool's run that is over, with everything that it printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The program's name.
    pub program: String,
    /// The command, argument by argument.
    pub command: Vec<String>,
    /// Exit code; absent when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Wall time from the start to the end.
    pub elapsed_ns: u64,
    /// Everything it printed on standard output.
    pub stdout: String,
    /// Everything it printed on standard error.
    pub stderr: String,
}

impl Finished {
    /// How it ended, in words that follow the program's name.
    pub(crate) fn how_it_ended(&self) -> String {
        match (self.exit_code, self.signal) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".into(),
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.program, self.how_it_ended())?;
        // The reason stands on standard error as a rule; dbench says it on standard output, fio
        // on both. The end of a long standard output (a report) tells nothing beside it.
        let shown_of =
            |text: &str, lines_max: usize| explanation(text, lines_max).replace('\n', "\n  ");
        let errors = shown_of(&self.stderr, 8);
        if !errors.is_empty() {
            write!(f, "\n  {errors}")?;
        }
        if errors.is_empty() || self.stdout.lines().count() <= 20 {
            let rest = shown_of(&self.stdout, 12);
            if !rest.is_empty() {
                write!(f, "\n  {rest}")?;
            }
        }
        Ok(())
    }
}

/// Ends a child with its whole family. SIGTERM first, so that the tool ends its own children and
/// removes its shared memory; SIGKILL to whatever is left after the grace.
fn end_family(child: &mut Child) -> io::Result<ExitStatus> {
    let head = Pid::from_child(child);
    // fio puts its jobs into sessions of their own, where the group's signal does not
    // reach them, so the descendants are noted while their parent still lives.
    let mut descendants = descendants_of(head);
    let _ = kill_process_group(head, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            descendants.extend(descendants_of(head));
            let _ = kill_process_group(head, Signal::KILL);
            break child.wait()?;
        }
        thread::sleep(Duration::from_millis(10));
    };
    finish_off(head, &descendants);
    Ok(status)
}

/// Kills what is left of a family whose head has ended.
fn finish_off(head: Pid, descendants: &[(Pid, u64)]) {
    let _ = kill_process_group(head, Signal::KILL);
    for (pid, started) in descendants {
        // The number may belong to a stranger by now; its start time tells, and what is held cannot change.
        if let Ok(held) = pidfd_open(*pid, PidfdFlags::empty())
            && start_time_of(*pid) == Some(*started)
        {
            let _ = pidfd_send_signal(held, Signal::KILL);
        }
    }
}

/// All descendants of a process, each with its start time in clock ticks since boot.
fn descendants_of(head: Pid) -> Vec<(Pid, u64)> {
    let mut found = Vec::new();
    let mut queue = vec![head];
    while let Some(pid) = queue.pop() {
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        let Ok(entries) = std::fs::read_dir(tasks) else {
            continue;
        };
        for entry in entries.flatten() {
            let children = std::fs::read_to_string(entry.path().join("children"));
            for word in children.unwrap_or_default().split_whitespace() {
                let child = word.parse().ok().and_then(Pid::from_raw);
                if let Some(child) = child
                    && let Some(started) = start_time_of(child)
                {
                    found.push((child, started));
                    queue.push(child);
                }
            }
        }
    }
    found
}

/// Field 22 of `/proc/PID/stat`; the command's name before it may hold blanks and brackets.
fn start_time_of(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// Runs a tool that does as somebody's job says: the one way in which fio, dbench and bonnie++ are started
/// with a job. In the process of a workload, which is in its enclosure already, it is started as it is; anywhere
/// else in an enclosure with `reach`. `fill` adds its arguments.
///
/// A user who is granted no namespaces runs it with the user's own rights; the workload's report says so.
///
/// Errors: as [`run`]; [`ToolError::NotKeptIn`] where root is granted no namespaces.
pub fn run_kept_in(
    tool: WorkloadTool,
    reach: &Enclosure,
    fill: impl FnOnce(&mut Command),
    stop: &AtomicBool,
) -> Result<Finished, ToolError> {
    let located = tool.locate()?;
    let (program, mut command) = (located.path().to_path_buf(), located.command());
    fill(&mut command);
    let enclosure = if enclosure::is_inside() {
        None
    } else {
        match enclosure::refusal() {
            None => Some(Enclosure { programs: vec![program], ..reach.clone() }),
            Some(_) if !enclosure::is_root() => None,
            Some(reason) => return Err(ToolError::NotKeptIn { program: tool.program(), reason }),
        }
    };
    start(&mut command, enclosure.as_ref(), Stdio::null(), None, stop)
}

/// Asks a tool about a job, or about itself, in an enclosure that has no contender.
///
/// Errors: as [`run`]; [`ToolError::NotKeptIn`] where no namespaces are granted; [`ToolError::Excessive`] when it takes
/// longer than 30 s.
pub fn ask(tool: WorkloadTool, arguments: &[&str], job: Stdio) -> Result<Finished, ToolError> {
    let located = tool.locate()?;
    let (program, mut command) = (located.path().to_path_buf(), located.command());
    command.args(arguments);
    let enclosure = match (enclosure::is_inside(), enclosure::refusal()) {
        (true, _) => None,
        (false, None) => Some(Enclosure { programs: vec![program], ..Enclosure::default() }),
        (false, Some(reason)) => {
            return Err(ToolError::NotKeptIn { program: tool.program(), reason });
        }
    };
    let time_max = Some(ANSWER_TIME_MAX);
    start(&mut command, enclosure.as_ref(), job, time_max, &AtomicBool::new(false))
}

/// Runs a command to its end.
///
/// The child gets an empty standard input, the C locale and a process group of its own. It is
/// ended, with its descendants, when `stop` is raised; and it gets SIGTERM from the kernel when the
/// calling thread dies.
///
/// Errors: [`ToolError::Spawn`]; [`ToolError::Failed`] with all output when the exit code is not 0;
/// [`ToolError::Excessive`] when it prints more than 256 MiB on one stream; [`ToolError::Stopped`].
pub fn run(command: &mut Command, stop: &AtomicBool) -> Result<Finished, ToolError> {
    start(command, None, Stdio::null(), None, stop)
}

/// The same with a standard input.
///
/// Errors: as [`run`].
pub fn run_with_input(
    command: &mut Command,
    input: Stdio,
    stop: &AtomicBool,
) -> Result<Finished, ToolError> {
    start(command, None, input, None, stop)
}

fn start(
    command: &mut Command,
    enclosure: Option<&Enclosure>,
    input: Stdio,
    time_max: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Finished, ToolError> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let program = name.to_string_lossy().into_owned();
    let spawn_error = |source| ToolError::Spawn { program: program.clone(), source };
    command
        .env("LC_ALL", "C")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    sys::die_with_parent(command);
    let started = Instant::now();
    let child = match enclosure {
        Some(enclosure) => enclosure.spawn(command),
        None => command.spawn(),
    };
    let mut child = child.map_err(spawn_error)?;
    let followed = follow(&mut child, started, time_max, stop);
    let FollowedTool { status, printed, excess, stopped } = followed.map_err(spawn_error)?;
    if let (Some(excess), false) = (excess, stopped) {
        return Err(ToolError::Excessive { program, excess });
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = |stream: usize| String::from_utf8_lossy(&printed[stream]).into_owned();
    let finished = Finished {
        program,
        command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
        exit_code: status.code(),
        signal: status.signal(),
        elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        stdout: text(STDOUT),
        stderr: text(STDERR),
    };
    match (stopped, status.success()) {
        (true, _) => Err(ToolError::Stopped(Box::new(finished))),
        (false, true) => Ok(finished),
        (false, false) => Err(ToolError::Failed(Box::new(finished))),
    }
}

/// How a tool ended, and what it printed until then.
struct FollowedTool {
    status: ExitStatus,
    printed: [Vec<u8>; 2],
    /// What it did too much of, so that it was ended.
    excess: Option<String>,
    stopped: bool,
}

/// Takes what a tool prints until it has ended, and ends it where it does too much or is to stop.
fn follow(
    child: &mut Child,
    started: Instant,
    time_max: Option<Duration>,
    stop: &AtomicBool,
) -> io::Result<FollowedTool> {
    let (sender, pieces) = mpsc::sync_channel(PIECES_MAX);
    read_pieces(child.stdout.take(), STDOUT, sender.clone());
    read_pieces(child.stderr.take(), STDERR, sender);
    let mut printed = [Vec::new(), Vec::new()];
    let mut stopped = false;
    let mut excess = None;
    let mut ended = None;
    let mut silence = Duration::ZERO;
    loop {
        match pieces.recv_timeout(POLL) {
            Ok((stream, piece)) if printed[stream].len() < OUTPUT_BYTES_MAX => {
                printed[stream].extend(piece);
            }
            // What comes after that is taken, so that the tool can end, and not kept.
            Ok(_) => {
                let limit = OUTPUT_BYTES_MAX >> 20;
                excess.get_or_insert_with(|| format!("printed more than {limit} MiB"));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A grandchild may hold the pipe open after the tool's end; the tool's end is
            // what counts, and the grandchild goes with it. One that fled into a session
            // of its own is not waited for longer than the grace.
            Err(RecvTimeoutError::Timeout) if ended.is_some() => {
                silence += POLL;
                if silence > GRACE {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                ended = child.try_wait()?;
                if ended.is_some() {
                    finish_off(Pid::from_child(child), &[]);
                }
            }
        }
        if let Some(limit) = time_max.filter(|limit| started.elapsed() > *limit) {
            excess.get_or_insert_with(|| format!("took longer than {} s", limit.as_secs()));
        }
        stopped |= stop.load(Ordering::Relaxed);
        if (stopped || excess.is_some()) && ended.is_none() {
            ended = Some(end_family(child)?);
        }
    }
    let status = ended.map_or_else(|| child.wait(), Ok)?;
    Ok(FollowedTool { status, printed, excess, stopped })
}

const STDOUT: usize = 0;
const STDERR: usize = 1;

/// Sends what comes from a pipe, from a thread of its own.
fn read_pieces(
    pipe: Option<impl Read + Send + 'static>,
    stream: usize,
    sender: mpsc::SyncSender<(usize, Vec<u8>)>,
) {
    let mut pipe = pipe.expect("the stream is piped");
    thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            if sender.send((stream, piece[..count].to_vec())).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_does_not_end_or_prints_without_end_is_ended() {
        let end = |words: &str, time_max| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", words]);
            let ended = start(&mut command, None, Stdio::null(), time_max, &AtomicBool::new(false));
            ended.unwrap_err().to_string()
        };
        let time_max = Some(Duration::from_millis(100));
        assert_eq!(end("sleep 300", time_max), "`sh` was ended: it took longer than 0 s");
        assert_eq!(end("exec yes", None), "`sh` was ended: it printed more than 256 MiB");
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let not_found = NotFound { name: "bonnie++".into(), passed_over: Vec::new() };
        let error = ToolError::Missing { not_found, package: "bonnie++" };
        let said = error.to_string();
        assert!(said.starts_with("'bonnie++' is not installed; "), "{said}");
        assert!(
            said.ends_with("apt install bonnie++") || said.ends_with("have no bonnie++"),
            "{said}"
        );
    }
}
