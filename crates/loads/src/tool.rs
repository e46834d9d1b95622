//! Runs an installed tool: finds it, collects its output line by line, and never leaves it
//! running behind.
//!
//! Knows nothing of what the tools print. Invariants: a child that was started here has ended,
//! with all of its descendants, when [`run`] returns or unwinds; what it printed is in the
//! result or in the error; a tool that is not installed is an error that names its package.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::sys;

/// How long a tool has to end by itself after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// How often the stop flag is looked at while a tool is silent.
const POLL: Duration = Duration::from_millis(50);

/// A tool that a load may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// The dbench benchmark.
    Dbench,
    /// The flexible I/O tester.
    Fio,
    /// The bonnie++ benchmark.
    Bonnie,
    /// GNU tar.
    Tar,
    /// The `rm` of the core utilities.
    Rm,
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 5] = [Self::Dbench, Self::Fio, Self::Bonnie, Self::Tar, Self::Rm];

    /// The program, the Debian package that brings it, and what makes it say its version. Neither
    /// dbench nor bonnie++ does without a complaint and a usage text.
    fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Dbench => ("dbench", "dbench", "--help"),
            Self::Fio => ("fio", "fio", "--version"),
            Self::Bonnie => ("bonnie++", "bonnie++", "--help"),
            Self::Tar => ("tar", "tar", "--version"),
            Self::Rm => ("rm", "coreutils", "--version"),
        }
    }

    /// The program's name, as it is looked up in the search path.
    #[must_use]
    pub fn program(self) -> &'static str {
        self.facts().0
    }

    /// The Debian package that brings the program.
    #[must_use]
    pub fn package(self) -> &'static str {
        self.facts().1
    }

    /// Where the tool is installed: the search path, and the system's `sbin` directories,
    /// which are not in every user's path.
    ///
    /// # Errors
    /// [`ToolError::Missing`], which names the package.
    pub fn locate(self) -> Result<PathBuf, ToolError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        for system in ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"] {
            directories.push(PathBuf::from(system));
        }
        self.locate_in(&directories)
    }

    fn locate_in(self, directories: &[PathBuf]) -> Result<PathBuf, ToolError> {
        directories
            .iter()
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(self.program()))
            .find(|candidate| is_executable(candidate))
            .ok_or(ToolError::Missing { program: self.program(), package: self.package() })
    }

    /// The first line that says which version is installed.
    ///
    /// # Errors
    /// As [`Tool::locate`] and [`run`].
    pub fn version(self) -> Result<String, ToolError> {
        let output = Command::new(self.locate()?)
            .arg(self.facts().2)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| ToolError::Spawn { program: self.program().to_owned(), source })?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let line = text
            .lines()
            .find(|line| line.contains("ersion") || line.starts_with("fio-") || line.contains(") "))
            .or_else(|| text.lines().next())
            .unwrap_or_default();
        Ok(line.trim().to_owned())
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// What went wrong with a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool is not installed.
    #[error(
        "`{program}` is not installed; it is in the package `{package}` (apt install {package})"
    )]
    Missing {
        /// The program.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The program ended with an error, or was killed.
    #[error("{0}")]
    Failed(Box<Finished>),
    /// The caller's stop flag was raised, and the program was ended.
    #[error("`{}` was stopped after {:.1} s", .0.program, .0.elapsed_ns as f64 / 1e9)]
    Stopped(Box<Finished>),
}

impl From<ToolError> for String {
    fn from(error: ToolError) -> String {
        error.to_string()
    }
}

impl ToolError {
    /// What the tool printed before it failed, if it ran at all.
    #[must_use]
    pub fn finished(&self) -> Option<&Finished> {
        match self {
            Self::Failed(finished) | Self::Stopped(finished) => Some(finished),
            Self::Missing { .. } | Self::Spawn { .. } => None,
        }
    }
}

/// A tool's run that is over, with everything that it printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether it ended by itself with exit code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ", self.program)?;
        match (self.exit_code, self.signal) {
            (Some(code), _) => write!(f, "ended with exit code {code}")?,
            (None, Some(signal)) => write!(f, "was killed by signal {signal}")?,
            (None, None) => write!(f, "ended")?,
        }
        // The reason stands on standard error as a rule; dbench says it on standard output, fio
        // on both. The end of a long standard output (a report) tells nothing beside it.
        let shown_of = |text: &str, lines_max: usize| {
            // A usage text after a complaint would push the complaint out of sight.
            let lines: Vec<&str> = text
                .lines()
                .take_while(|line| !line.to_ascii_lowercase().starts_with("usage:"))
                .filter(|line| !line.trim().is_empty())
                .collect();
            lines[lines.len().saturating_sub(lines_max)..].join("\n  ")
        };
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

/// Which stream a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command to run: program, arguments, directory.
#[derive(Clone, Debug)]
pub struct ToolCommand {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
}

impl ToolCommand {
    /// A command of an installed tool.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub fn new(tool: Tool) -> Result<Self, ToolError> {
        Ok(Self::at(tool.program(), tool.locate()?))
    }

    /// A command of a program at a known place.
    #[must_use]
    pub fn at(name: &str, program: PathBuf) -> Self {
        Self { name: name.to_owned(), program, arguments: Vec::new(), directory: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        for argument in arguments {
            self.arguments.push(argument.as_ref().to_owned());
        }
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    fn words(&self) -> Vec<String> {
        std::iter::once(self.program.as_os_str())
            .chain(self.arguments.iter().map(OsString::as_os_str))
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

/// Kills the whole family of a child when it is dropped before the child was waited for.
struct Family {
    child: Child,
    waited: bool,
}

impl Family {
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// SIGTERM first, so that the tool ends its own children and removes its shared memory;
    /// SIGKILL to whatever is left after the grace.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        let Some(pid) = self.pid() else {
            return self.child.wait();
        };
        // fio puts its jobs into sessions of their own, where the group's signal does not
        // reach them, so the descendants are noted while their parent still lives.
        let mut descendants = descendants_of(pid);
        let _ = kill_process_group(pid, Signal::TERM);
        let deadline = Instant::now() + GRACE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.waited = true;
                finish_off(pid, &descendants);
                return Ok(status);
            }
            if Instant::now() >= deadline {
                descendants.extend(descendants_of(pid));
                let _ = kill_process_group(pid, Signal::KILL);
                let status = self.child.wait()?;
                self.waited = true;
                finish_off(pid, &descendants);
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if !self.waited {
            let _ = self.end();
        }
    }
}

/// Kills what is left of a family whose head has ended.
fn finish_off(head: Pid, descendants: &[(Pid, u64)]) {
    let _ = kill_process_group(head, Signal::KILL);
    for (pid, started) in descendants {
        // The number may belong to a stranger by now; its start time tells.
        if start_time_of(*pid) == Some(*started) {
            let _ = kill_process(*pid, Signal::KILL);
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

/// Runs a command to its end, handing each line to `on_line` as it comes.
///
/// The child gets an empty standard input, the C locale and a process group of its own. It is
/// ended, with its descendants, when `stop` is raised or when `on_line` panics; and it gets
/// SIGTERM from the kernel when the calling thread dies.
///
/// # Errors
/// [`ToolError::Spawn`]; [`ToolError::Failed`] with all output when the exit code is not 0;
/// [`ToolError::Stopped`].
pub fn run(
    command: &ToolCommand,
    stop: &AtomicBool,
    on_line: &mut dyn FnMut(Stream, &str),
) -> Result<Finished, ToolError> {
    let spawn_error = |source| ToolError::Spawn { program: command.name.clone(), source };
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(directory) = &command.directory {
        process.current_dir(directory);
    }
    sys::die_with_parent(&mut process);

    let started = Instant::now();
    let child = process.spawn().map_err(spawn_error)?;
    let mut family = Family { child, waited: false };
    let (sender, lines) = mpsc::channel();
    if let Some(pipe) = family.child.stdout.take() {
        read_lines(pipe, Stream::Stdout, sender.clone());
    }
    if let Some(pipe) = family.child.stderr.take() {
        read_lines(pipe, Stream::Stderr, sender.clone());
    }
    drop(sender);

    let mut stdout = String::new();
    let mut stderr = String::new();
    let mut stopped = false;
    let mut ended = None;
    let mut silence = Duration::ZERO;
    loop {
        match lines.recv_timeout(POLL) {
            Ok((stream, line)) => {
                let kept = match stream {
                    Stream::Stdout => &mut stdout,
                    Stream::Stderr => &mut stderr,
                };
                kept.push_str(&line);
                on_line(stream, line.trim_end_matches(['\n', '\r']));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // A grandchild may hold the pipe open after the tool's end; the tool's end is
                // what counts, and the grandchild goes with it. One that fled into a session
                // of its own is not waited for longer than the grace.
                if ended.is_some() {
                    silence += POLL;
                    if silence > GRACE {
                        break;
                    }
                } else {
                    ended = family.child.try_wait().map_err(spawn_error)?;
                    if ended.is_some() {
                        family.waited = true;
                        if let Some(pid) = family.pid() {
                            finish_off(pid, &[]);
                        }
                    }
                }
            }
        }
        if !stopped && stop.load(Ordering::Relaxed) {
            stopped = true;
            if ended.is_none() {
                ended = Some(family.end().map_err(spawn_error)?);
            }
        }
    }
    let status = match ended {
        Some(status) => status,
        None => {
            let status = family.child.wait().map_err(spawn_error)?;
            family.waited = true;
            status
        }
    };
    let finished = Finished {
        program: command.name.clone(),
        command: command.words(),
        exit_code: status.code(),
        signal: status.signal(),
        elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        stdout,
        stderr,
    };
    if stopped {
        Err(ToolError::Stopped(Box::new(finished)))
    } else if finished.succeeded() {
        Ok(finished)
    } else {
        Err(ToolError::Failed(Box::new(finished)))
    }
}

/// Sends each line of a pipe, with its line end, from a thread of its own. Bytes that are not
/// UTF-8 are replaced: the output is for people and for parsers of ASCII.
fn read_lines(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    sender: mpsc::Sender<(Stream, String)>,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    if sender.send((stream, text)).is_err() {
                        break;
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let error = Tool::Bonnie.locate_in(&[PathBuf::from("/nonexistent")]).unwrap_err();
        assert!(matches!(error, ToolError::Missing { program: "bonnie++", package: "bonnie++" }));
        assert!(error.to_string().contains("apt install bonnie++"));
    }
}
