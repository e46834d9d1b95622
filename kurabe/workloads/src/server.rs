//! A server of a workload's own: started, waited for, asked for its log, and ended.
//!
//! Knows no server in particular. Invariants: a server that was started here has ended, with all of its
//! processes, when its [`DatabaseServer`] is gone; what it printed last is in every error about it; none is started as
//! root outside of an enclosure.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use vocabulary::workload::WorkloadTask;

use crate::enclosure::{self, TEMPORARY};
use crate::sys;
use crate::tool::{ToolError, WorkloadTool};

/// Lines of its log that are kept, from its beginning and from its end; bytes of each.
const FIRST_LINES: usize = 200;
const LAST_LINES: usize = 400;
const LINE_BYTES_MAX: u64 = 2000;
/// Lines of its log that an error shows.
const SHOWN_LINES: usize = 8;
/// How often is looked whether it has begun or ended.
const POLL: Duration = Duration::from_millis(10);
/// How long it may take until it answers, which includes the recovery of what a power failure left.
const BEGIN_MAX: Duration = Duration::from_secs(300);
/// How long it may take to end in good order, which includes writing all that it holds in memory.
const END_MAX: Duration = Duration::from_secs(300);

/// A directory for the socket of a server: its path has to be short, and an enclosure has one for that.
pub(crate) fn socket_place(task: &WorkloadTask) -> PathBuf {
    if enclosure::is_inside() { PathBuf::from(TEMPORARY) } else { task.scratch.clone() }
}

/// What a server printed: the beginning and the end.
#[derive(Debug, Default)]
struct Log {
    first: Vec<String>,
    last: VecDeque<String>,
}

impl Log {
    fn push(&mut self, line: String) {
        if self.first.len() < FIRST_LINES {
            self.first.push(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > LAST_LINES {
            self.last.pop_front();
        }
    }
}

#[derive(Debug)]
pub struct DatabaseServer {
    name: &'static str,
    child: Child,
    log: Arc<Mutex<Log>>,
    reader: Option<JoinHandle<()>>,
    has_ended: bool,
}

impl DatabaseServer {
    /// Starts one; `fill` adds its arguments. It is another user than root, since its workload is.
    ///
    /// Errors: it is not installed, cannot be started, or nothing keeps it in its contender.
    pub fn start(
        tool: WorkloadTool,
        fill: impl FnOnce(&mut Command),
    ) -> Result<DatabaseServer, ToolError> {
        DatabaseServer::start_told(tool, fill, |_| ())
    }

    /// The same; `told` is given each line that it prints.
    ///
    /// Errors: as [`DatabaseServer::start`].
    pub fn start_told(
        tool: WorkloadTool,
        fill: impl FnOnce(&mut Command),
        told: impl FnMut(&str) + Send + 'static,
    ) -> Result<DatabaseServer, ToolError> {
        if enclosure::is_root() && !enclosure::is_inside() {
            let reason = "the workload was not started in an enclosure";
            return Err(ToolError::NotKeptIn { program: tool.program(), reason });
        }
        let mut command = tool.locate()?.command();
        fill(&mut command);
        let spawn_error = |source| ToolError::Spawn { program: tool.program().into(), source };
        let (reader, writer) = std::io::pipe().map_err(spawn_error)?;
        let second = writer.try_clone().map_err(spawn_error)?;
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(second)
            .process_group(0);
        sys::die_with_parent(&mut command);
        let child = command.spawn().map_err(spawn_error)?;
        // It holds the writing ends, and the reader ends with the last of them.
        drop(command);
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = log.clone();
        let reader = thread::spawn(move || keep(reader, &shared, told));
        Ok(DatabaseServer {
            name: tool.program(),
            child,
            log,
            reader: Some(reader),
            has_ended: false,
        })
    }

    /// Waits until `answers` gives something.
    ///
    /// Errors: it ended before, with the end of its log; or the stop flag was raised.
    pub fn wait_until<T>(
        &mut self,
        stop: &AtomicBool,
        mut answers: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = answers() {
                return Ok(answer);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                self.has_ended = true;
                return Err(self.blamed(&format!("did not start: it {}", ending(status))));
            }
            if stop.load(Ordering::SeqCst) {
                return Err("stopped".into());
            }
            if begun.elapsed() > BEGIN_MAX {
                let limit = BEGIN_MAX.as_secs();
                return Err(self.blamed(&format!("did not answer within {limit} s")));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it has ended by itself, as a benchmark does, or until `until`.
    ///
    /// Errors: it failed, with the end of its log; or the stop flag was raised.
    pub fn wait(&mut self, stop: &AtomicBool, until: Instant) -> Result<(), String> {
        while Instant::now() < until {
            if let Some(ended) = self.ended() {
                return ended;
            }
            if stop.load(Ordering::SeqCst) {
                return Err("stopped".into());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends it by the signal that makes it end in good order.
    ///
    /// Errors: it does not, with the end of its log.
    pub fn end(mut self, signal: Signal) -> Result<(), String> {
        // It may have ended by itself, which its status tells.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let begun = Instant::now();
        while begun.elapsed() <= END_MAX {
            if let Some(ended) = self.ended() {
                return ended;
            }
            thread::sleep(POLL);
        }
        Err(self.blamed(&format!("did not end within {} s", END_MAX.as_secs())))
    }

    /// How it has ended, if it has.
    fn ended(&mut self) -> Option<Result<(), String>> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(error) => return Some(Err(format!("{}: {error}", self.name))),
        };
        self.has_ended = true;
        Some(if status.success() { Ok(()) } else { Err(self.blamed(&ending(status))) })
    }

    /// The lines of its log that it has printed by now: the first and the last ones.
    pub fn log(&self) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.first.iter().chain(&log.last).cloned().collect()
    }

    /// What happened to it, with the end of its log.
    pub fn blamed(&mut self, what: &str) -> String {
        if self.has_ended {
            // Nothing writes any more, so all of it is read in a moment.
            self.finish_off();
        }
        let lines = self.log();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let shown: String = shown.iter().map(|line| format!("\n  {line}")).collect();
        format!("`{}` {what}{shown}", self.name)
    }

    /// Ends whatever is left of it, and reads its log to the end.
    fn finish_off(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        // A process of it that fled into a session of its own can hold the pipe; it ends with the enclosure.
        let until = Instant::now() + Duration::from_secs(1);
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < until
        {
            thread::sleep(POLL);
        }
        if let Some(reader) = self.reader.take().filter(JoinHandle::is_finished) {
            let _ = reader.join();
        }
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.finish_off();
    }
}

fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => format!("was ended: {status}"),
    }
}

fn keep(log: impl Read, shared: &Mutex<Log>, mut told: impl FnMut(&str)) {
    let mut reader = BufReader::new(log);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                told(&line);
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            _ => return,
        }
    }
}

/// Something that a server answered with an error.
#[derive(Debug)]
pub(crate) enum AskError {
    Connection(io::Error),
    /// The server refused a statement: its code and its words, and whether they say that what is stored is
    /// damaged.
    Refused {
        code: String,
        words: String,
        is_corruption: bool,
    },
}

impl AskError {
    /// Whether the server says that what is stored is damaged.
    pub(crate) fn is_corruption(&self) -> bool {
        matches!(self, AskError::Refused { is_corruption: true, .. })
    }
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::Connection(error) => write!(f, "the connection to the server: {error}"),
            AskError::Refused { code, words, .. } => write!(f, "the server: {words} ({code})"),
        }
    }
}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> AskError {
        AskError::Connection(error)
    }
}

impl From<AskError> for String {
    fn from(error: AskError) -> String {
        error.to_string()
    }
}
