//! Runs the tools that make, mount, check and describe a file system: one helper for all of them.
//!
//! Every tool runs without a shell, in the C locale, with no standard input, in a process group of
//! its own that a bound or a stop kills whole. Its exact command line and its output are kept for
//! the record. What the command of the *user* costs is measured elsewhere; this file knows nothing
//! of phases.

use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lab::quantity::about_text;
use trust::complaint::explanation;
use trust::program;
use vocabulary::words::counted;

use crate::command::{self, CommandEnd, Reader};
use crate::host_proc::HostProc;
use crate::node::DeviceNode;
use crate::stop::StopFlag;
use crate::sys;

/// Why a step of a trial did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepFailure {
    #[error("{}", format!("{message}\n{output}").trim_end())]
    Failed {
        /// What happened, in one line.
        message: String,
        /// The lines of the tool's output that explain it; empty when no tool was involved.
        output: String,
    },
    /// The bound on the trial came first.
    #[error("the time limit of a run was reached")]
    TimedOut,
    #[error("the study was stopped")]
    Stopped,
}

/// Whether a text tells of a file system without space, as the C library does, which kurabe's tools and generators
/// speak in English (`LC_ALL=C`), and Rust programs do.
pub fn says_full(text: &str) -> bool {
    ["No space left on device", "os error 28"].iter().any(|words| text.contains(words))
}

impl StepFailure {
    /// A failure that no tool explains.
    pub fn of(message: impl Into<String>) -> StepFailure {
        StepFailure::Failed { message: message.into(), output: String::new() }
    }

    /// The same, where no space was left: with the size of the device and the next step, and without the many lines
    /// that a program prints then.
    pub fn with_size(self, device_bytes: Option<u64>) -> StepFailure {
        let (StepFailure::Failed { message, output }, Some(bytes)) = (&self, device_bytes) else {
            return self;
        };
        let mut full = output.lines().filter(|line| says_full(line));
        let Some(first) = full.next() else { return self };
        let more = match full.count() {
            0 => String::new(),
            count => format!("\n[and {}]", counted(count, "such line")),
        };
        StepFailure::Failed {
            message: format!(
                "{message}: no space is left; the device has {}: give a larger --device",
                about_text(bytes)
            ),
            output: format!("{first}{more}"),
        }
    }

    /// The same, with more lines that explain it.
    pub fn with_lines(self, lines: &[String]) -> StepFailure {
        match self {
            StepFailure::Failed { message, output } if !lines.is_empty() => {
                let output = format!("{}\n{output}", lines.join("\n"));
                StepFailure::Failed { message, output: output.trim_end().into() }
            }
            failure => failure,
        }
    }

    /// A failure that is explained by some of what a program printed.
    pub fn explained(message: impl Into<String>, printed: &str) -> StepFailure {
        StepFailure::Failed { message: message.into(), output: explanation(printed, LINES_MAX) }
    }
}

/// The failure of something, with its error.
pub(crate) fn failed<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> StepFailure {
    move |error| StepFailure::of(format!("{what}: {error}"))
}

/// Bytes of each stream that are kept. `dumpe2fs -h` and `zfs get all` need a few thousand.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The same of a tool that lists what is on a device.
const LONG_BYTES_MAX: usize = 128 << 20;

/// How long a stop can go unnoticed.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// How long a tool's output is waited for that its children hold open.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// What a tool that ran to its end yielded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The command line, quoted for a shell.
    pub command: String,
    /// Exit code; a tool that a signal ended has 128 and the signal's number, as in a shell.
    pub code: i32,
    /// Standard output, its first and last bytes where it has more than 256 KiB.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

impl ToolOutput {
    /// The failure that this output explains.
    pub fn failure(&self, what: &str) -> StepFailure {
        // Standard error comes first, since it is the likelier reason.
        let text = format!("{}\n{}", self.stderr, self.stdout);
        let message = format!("{what}: '{}' ended with code {}", self.command, self.code);
        StepFailure::explained(message, &text)
    }
}

/// Lines of a tool's output that go into the record of a failure, at most.
const LINES_MAX: usize = 20;

/// The means by which a trial runs tools: its bounds and its log.
#[derive(Debug)]
pub struct Toolbox {
    deadline: Option<Instant>,
    stop: StopFlag,
    commands: Vec<String>,
    notes: Vec<String>,
    host: Option<HostProc>,
    nodes: Vec<DeviceNode>,
}

impl Toolbox {
    /// A toolbox whose tools are killed at `deadline` or when `stop` is raised.
    pub fn new(deadline: Option<Instant>, stop: StopFlag) -> Toolbox {
        // Where the trial has no namespace of its own, this is the host's already.
        let host = HostProc::open().ok();
        Toolbox { deadline, stop, commands: Vec::new(), notes: Vec::new(), host, nodes: Vec::new() }
    }

    /// The processes of the host are looked for here from now on.
    pub fn see_host(&mut self, host: &HostProc) {
        self.host = host.try_clone().ok();
    }

    /// From now on, command lines and output show what the user calls the device of `node`, so that
    /// a command can be repeated by hand.
    pub fn show(&mut self, node: &DeviceNode) {
        self.nodes.push(node.clone());
    }

    fn shown(&self, text: String) -> String {
        self.nodes.iter().fold(text, |text, node| node.show_in(&text))
    }

    /// Where processes are looked for.
    pub fn host(&self) -> Option<&HostProc> {
        self.host.as_ref()
    }

    /// From now on, stops are ignored and the bound is `grace` from now: what was taken must be
    /// given back whatever happened.
    pub fn clean_up_within(&mut self, grace: Duration) {
        self.deadline = Some(Instant::now() + grace);
        self.stop = StopFlag::default();
    }

    /// Moves the bound on the trial: so long it waited for others.
    pub fn put_off(&mut self, waited: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline + waited);
    }

    /// Keeps no more than so many command lines: what is done again and again is told once.
    pub fn keep_commands(&mut self, count: usize) {
        self.commands.truncate(count);
    }

    /// The command lines that were run so far, for [`lab::record::Record::commands`].
    pub fn commands(&self) -> &[String] {
        &self.commands
    }

    /// Remarks for [`lab::record::Record::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds the command line of something that was done by a system call, so that the record can
    /// be repeated by hand.
    pub fn log_command<W: AsRef<str>>(&mut self, words: &[W]) {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        self.commands.push(self.command_text(&words));
    }

    fn command_text(&self, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| self.shown((*word).into())).collect();
        command_text(words.iter().map(String::as_str))
    }

    /// Whether the time is up or a stop was asked for.
    pub fn interruption(&self) -> Option<StepFailure> {
        if self.stop.raised() {
            return Some(StepFailure::Stopped);
        }
        self.deadline.filter(|deadline| Instant::now() >= *deadline).map(|_| StepFailure::TimedOut)
    }

    /// Sleeps for `pause`, or less when the time is up or a stop is asked for.
    pub fn pause(&self, pause: Duration) -> Result<(), StepFailure> {
        let until = Instant::now() + pause;
        loop {
            if let Some(failure) = self.interruption() {
                return Err(failure);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STOP_INTERVAL));
        }
    }

    /// Runs a tool, logs its command line and returns what it yielded, whatever its exit code.
    /// Errors: the tool is missing or cannot be started, the time is up, or a stop was asked for.
    pub fn run<W: AsRef<str>>(&mut self, words: &[W]) -> Result<ToolOutput, StepFailure> {
        self.log_command(words);
        self.run_unlogged(words)
    }

    /// Runs a tool and fails unless it exits with 0. `what` says what it was to do.
    pub fn expect<W: AsRef<str>>(
        &mut self,
        words: &[W],
        what: &str,
    ) -> Result<ToolOutput, StepFailure> {
        let output = self.run(words)?;
        if output.code == 0 { Ok(output) } else { Err(output.failure(what)) }
    }

    /// What a tool prints that only looks; `what` says what it means when that fails.
    pub fn look<W: AsRef<str>>(&self, words: &[W], what: &str) -> Result<String, StepFailure> {
        match self.run_unlogged(words)? {
            ToolOutput { code: 0, stdout, .. } => Ok(stdout),
            output => Err(output.failure(what)),
        }
    }

    /// What a tool prints that only looks, also where that is long.
    pub fn read_long(&self, words: &[&str]) -> Result<String, StepFailure> {
        match self.run_keeping(words, LONG_BYTES_MAX)? {
            ToolOutput { code: 0, stdout, .. } => Ok(stdout),
            output => Err(output.failure("a tool that looks failed")),
        }
    }

    /// Runs a tool that only looks, and so needs no place in the record.
    pub fn run_unlogged<W: AsRef<str>>(&self, words: &[W]) -> Result<ToolOutput, StepFailure> {
        self.run_keeping(words, KEPT_BYTES_MAX)
    }

    fn run_keeping<W: AsRef<str>>(
        &self,
        words: &[W],
        kept_bytes_max: usize,
    ) -> Result<ToolOutput, StepFailure> {
        if let Some(failure) = self.interruption() {
            return Err(failure);
        }
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let mut command = command_for(&words)?;
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed(format_args!("'{}' cannot be started", words[0])))?;
        let stdout = child.stdout.take().expect("it was piped");
        let stdout = Reader::begin(stdout, kept_bytes_max, None);
        let stderr = child.stderr.take().expect("it was piped");
        let stderr = Reader::begin(stderr, kept_bytes_max, None);
        let command = self.command_text(&words);
        let broken =
            |error: io::Error| StepFailure::of(format!("waiting for '{command}': {error}"));
        let (end, _) = command::wait(sys::wait::process_of(&child), self.deadline, &self.stop)
            .map_err(broken)?;
        let status = child.wait().map_err(broken)?;
        match end {
            CommandEnd::TimedOut => return Err(StepFailure::TimedOut),
            CommandEnd::Stopped => return Err(StepFailure::Stopped),
            CommandEnd::Exited => {}
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let until = Instant::now() + DRAIN_MAX;
        let (stdout, stderr) = (self.shown(stdout.text(until)), self.shown(stderr.text(until)));
        Ok(ToolOutput { command, code, stdout, stderr })
    }
}

/// A command for `words`, found as root's shell would find it, in the C locale.
pub(crate) fn command_for(words: &[&str]) -> Result<Command, StepFailure> {
    let (name, arguments) = words.split_first().expect("a tool has a name");
    let mut command = if is_carried(name) {
        program::itself()
    } else {
        program::command(name).map_err(|not_found| {
            StepFailure::of(format!("{not_found}; 'kurabe doctor' names the package that has it"))
        })?
    };
    command
        .arg0(name)
        .args(arguments)
        .env("LC_ALL", "C")
        .env_remove("LANGUAGE")
        .stdin(Stdio::null())
        .process_group(0);
    Ok(command)
}

/// Words joined as a shell would read them back.
pub(crate) fn command_text<'a>(words: impl Iterator<Item = &'a str> + Clone) -> String {
    shlex::try_join(words.clone()).unwrap_or_else(|_| words.collect::<Vec<_>>().join(" "))
}

/// Programs that this one is when it is called by their name.
static CARRIED: OnceLock<&[&str]> = OnceLock::new();

/// Says once, at the start, which programs this one is when it is called by their name.
pub fn carry(names: &'static [&'static str]) {
    CARRIED.set(names).expect("it is said once");
}

fn is_carried(name: &str) -> bool {
    CARRIED.get().is_some_and(|names| names.contains(&name))
}

/// Why a tool cannot be found; absent when it can.
pub fn not_found(name: &str) -> Option<program::NotFound> {
    if is_carried(name) { None } else { program::locate(name).err() }
}

/// Finds a tool: this program itself where it is one, otherwise as [`program::find`] does. Programs
/// next to this one are not used, because others may be able to put one there.
pub fn find(name: &str) -> Option<PathBuf> {
    if is_carried(name) { Some("/proc/self/exe".into()) } else { program::find(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolbox() -> Toolbox {
        Toolbox::new(None, StopFlag::default())
    }

    #[test]
    fn output_code_and_command_line_are_kept() {
        let mut tools = toolbox();
        let output =
            tools.run(&["sh", "-c", "echo out; echo 'to err' >&2; echo $LC_ALL; exit 3"]).unwrap();
        assert_eq!(output.code, 3);
        assert_eq!(output.stdout, "out\nC\n");
        assert_eq!(output.stderr, "to err\n");
        assert_eq!(tools.commands(), std::slice::from_ref(&output.command));
        assert_eq!(shlex::split(&output.command).unwrap()[0], "sh");
        let failure = output.failure("making").to_string();
        assert!(failure.contains("code 3") && failure.contains("to err"), "{failure}");
    }

    #[test]
    fn no_space_is_told_in_one_line_with_the_size() {
        let lines = "tar: a: Cannot write: No space left on device\n".repeat(9);
        let failure = StepFailure::explained("the command exited with code 2", &lines);
        let said = failure.clone().with_size(Some(512 << 20)).to_string();
        assert_eq!(
            said,
            "the command exited with code 2: no space is left; the device has 512 MiB: give a larger --device\n\
             tar: a: Cannot write: No space left on device\n[and 8 such lines]"
        );
        assert_eq!(failure.clone().with_size(None), failure);
        let other = StepFailure::explained("x", "tar: a: Cannot open");
        assert_eq!(other.clone().with_size(Some(1)), other);
    }

    #[test]
    fn a_long_output_is_read_and_its_end_kept() {
        let script = "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done";
        let output = toolbox().run(&["sh", "-c", script]).unwrap();
        assert!(output.stdout.ends_with("line 39999\n"));
        assert!(output.stdout.len() <= KEPT_BYTES_MAX);
    }

    #[test]
    fn the_bound_and_a_stop_kill_the_whole_group() {
        let started = Instant::now();
        let mut tools =
            Toolbox::new(Some(started + Duration::from_millis(200)), StopFlag::default());
        assert_eq!(tools.run(&["sh", "-c", "sleep 60; true"]), Err(StepFailure::TimedOut));
        let stop = StopFlag::default();
        let mut tools = Toolbox::new(None, stop.clone());
        let raiser = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            stop.raise();
        });
        assert_eq!(tools.run(&["sh", "-c", "sleep 60; true"]), Err(StepFailure::Stopped));
        assert_eq!(tools.run(&["true"]), Err(StepFailure::Stopped));
        raiser.join().unwrap();
        tools.clean_up_within(Duration::from_secs(10));
        assert_eq!(tools.run(&["true"]).unwrap().code, 0);
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_process_left_behind_does_not_hold_the_tool() {
        let started = Instant::now();
        let output = toolbox().run(&["sh", "-c", "sleep 5 & echo done"]).unwrap();
        assert_eq!(output.stdout, "done\n");
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }

    #[test]
    fn a_missing_tool_is_named() {
        let failure = toolbox().run(&["no-such-tool-of-kurabe"]).unwrap_err().to_string();
        assert!(failure.contains("no-such-tool-of-kurabe") && failure.contains("doctor"));
    }
}
