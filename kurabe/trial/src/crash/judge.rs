//! Asks the user's check about one disk, and receives the acknowledgements of the workload.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crash::{CrashState, FlushPolicy, Line, Log};
use lab::spec::{CommandLine, OutputTarget};
use measure::acknowledge::received_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::workload::WorkloadStage;

use super::Setting;
use super::bench::Bench;
use crate::command::{self, CommandBounds, CommandEnd, CommandResult};
use crate::filesystem::Instance;
use crate::tool::{StepFailure, Toolbox, failed};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskCondition {
    /// Everything that was acknowledged is there.
    Held,
    /// The check says that something is lost (1).
    Lost,
    /// The check says that something is corrupt (2).
    Corrupt,
    /// The check says that the data cannot be used at all (3), or did not end.
    Unusable,
    /// The file system cannot be mounted until it was mended; then all is there.
    NeededFsck,
    /// The file system cannot be mounted.
    Unmountable,
}

impl DiskCondition {
    pub fn word(self) -> &'static str {
        match self {
            DiskCondition::Held => "held",
            DiskCondition::Lost => "lost",
            DiskCondition::Corrupt => "corrupt",
            DiskCondition::Unusable => "unusable",
            DiskCondition::NeededFsck => "is mounted after fsck only",
            DiskCondition::Unmountable => "cannot be mounted",
        }
    }

    /// Whether something is lost that was promised.
    pub fn is_violation(self) -> bool {
        !matches!(self, DiskCondition::Held | DiskCondition::NeededFsck)
    }

    /// Whether the file system was mounted as the cut left it, and the check saw a violation.
    pub fn is_checked(self) -> bool {
        matches!(self, DiskCondition::Lost | DiskCondition::Corrupt | DiskCondition::Unusable)
    }
}

/// What was found on one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: DiskCondition,
    /// The last lines of the check, or what mount said; absent where everything is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl Finding {
    /// Everything is there.
    pub const HELD: Finding = Finding { kind: DiskCondition::Held, words: None };

    fn of(kind: DiskCondition, words: impl Into<String>) -> Finding {
        Finding { kind, words: Some(words.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.words.as_deref().unwrap_or_default().lines();
        // A check says most in its last line, mount(8) in its first.
        let line = match self.kind {
            DiskCondition::NeededFsck | DiskCondition::Unmountable => lines.next(),
            _ => lines.last(),
        };
        match line {
            Some(words) => write!(f, "{}: {words}", self.kind.word()),
            None => f.write_str(self.kind.word()),
        }
    }
}

/// How many states had each finding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub tried: usize,
    pub lost: usize,
    pub corrupt: usize,
    pub unusable: usize,
    /// Cannot be mounted.
    pub unmountable: usize,
    /// Mounted after fsck only, and then all was there; no violation.
    #[serde(default)]
    pub needed_fsck: usize,
}

impl Tally {
    pub fn count(&mut self, finding: &Finding) {
        self.tried += 1;
        match finding.kind {
            DiskCondition::Held => {}
            DiskCondition::Lost => self.lost += 1,
            DiskCondition::Corrupt => self.corrupt += 1,
            DiskCondition::Unusable => self.unusable += 1,
            DiskCondition::NeededFsck => self.needed_fsck += 1,
            DiskCondition::Unmountable => self.unmountable += 1,
        }
    }

    /// States in which what was promised does not hold.
    pub fn violated(&self) -> usize {
        // A result that somebody changed may say anything.
        let kinds = [self.lost, self.corrupt, self.unusable, self.unmountable];
        kinds.into_iter().fold(0, usize::saturating_add)
    }
}

/// An exit code in words.
pub fn code_text(code: Option<i32>) -> String {
    code.map_or("a signal".into(), |code| format!("code {code}"))
}

/// The acknowledgements that had been received by a cut.
pub struct Acknowledged(Vec<u8>);

impl Acknowledged {
    /// The first `count`, a line each.
    pub fn of(log: &Log, count: usize) -> Acknowledged {
        let lines = log.acknowledgements[..count].iter();
        Acknowledged(lines.flat_map(|one| [&one.text.0[..], b"\n"]).flatten().copied().collect())
    }
}

/// A user's check runs alone unless told otherwise: it may use a fixed port, or write to a fixed file.
static ALONE: Mutex<()> = Mutex::new(());

/// Where the time of the states went, in ns, summed over the benches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Putting the disk in place.
    pub cut_ns: u64,
    /// Mounting it, with the replay of its journal, and mending it where that was needed.
    pub mount_ns: u64,
    pub check_ns: u64,
    /// Waiting for the checks of other states, unless they run at the same time.
    pub waiting_ns: u64,
    pub unmount_ns: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.tried = self.tried.saturating_add(other.tried);
        self.lost = self.lost.saturating_add(other.lost);
        self.corrupt = self.corrupt.saturating_add(other.corrupt);
        self.unusable = self.unusable.saturating_add(other.unusable);
        self.needed_fsck = self.needed_fsck.saturating_add(other.needed_fsck);
        self.unmountable = self.unmountable.saturating_add(other.unmountable);
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.cut_ns = self.cut_ns.saturating_add(other.cut_ns);
        self.mount_ns = self.mount_ns.saturating_add(other.mount_ns);
        self.check_ns = self.check_ns.saturating_add(other.check_ns);
        self.waiting_ns = self.waiting_ns.saturating_add(other.waiting_ns);
        self.unmount_ns = self.unmount_ns.saturating_add(other.unmount_ns);
    }
}

fn ns_since(begun: Instant) -> u64 {
    begun.elapsed().as_nanos() as u64
}

impl Bench<'_> {
    /// Mounts the disk, without the member that is lost with the power, asks, and gives everything back.
    pub fn mount_and_ask(
        &self,
        state: &CrashState,
        flushes: FlushPolicy,
        acknowledged: &Acknowledged,
    ) -> Result<Finding, StepFailure> {
        self.mount_without(self.lost_member(state), state, flushes, acknowledged)
    }

    /// The same without another member, or with all.
    pub fn mount_without(
        &self,
        lost: Option<u32>,
        state: &CrashState,
        flushes: FlushPolicy,
        acknowledged: &Acknowledged,
    ) -> Result<Finding, StepFailure> {
        let before = self.spent.get();
        let begun = Instant::now();
        let (mut cut_ns, mut asked_ns) = (0, 0);
        let found = self.after_cut(state, lost, flushes, |instance, tools| {
            cut_ns = ns_since(begun);
            let found = match instance.mount_untimed(tools) {
                Ok(()) => self.ask(instance, acknowledged),
                Err(StepFailure::Failed { message, output }) => {
                    let words = if output.is_empty() { message } else { output };
                    self.mended(instance, tools, acknowledged, words)
                }
                Err(failure) => Err(failure),
            };
            asked_ns = ns_since(begun);
            found
        });
        // The check has added its own part.
        let mut spent = self.spent.get();
        let checks_ns = spent.check_ns + spent.waiting_ns - before.check_ns - before.waiting_ns;
        spent += Spent {
            cut_ns,
            mount_ns: asked_ns.saturating_sub(cut_ns + checks_ns),
            unmount_ns: ns_since(begun) - asked_ns,
            ..Spent::default()
        };
        self.spent.set(spent);
        found
    }

    /// What is there once a file system that could not be mounted was mended, if it can be.
    fn mended(
        &self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
        acknowledged: &Acknowledged,
        words: String,
    ) -> Result<Finding, StepFailure> {
        let mounted = if instance.repair(tools)? {
            instance.mount_untimed(tools)
        } else {
            Err(StepFailure::of("nothing repairs it"))
        };
        match mounted {
            Ok(()) => match self.ask(instance, acknowledged)? {
                Finding { kind: DiskCondition::Held, .. } => {
                    Ok(Finding::of(DiskCondition::NeededFsck, words))
                }
                found => Ok(found),
            },
            Err(StepFailure::Failed { .. }) => Ok(Finding::of(DiskCondition::Unmountable, words)),
            Err(failure) => Err(failure),
        }
    }

    /// Runs the check on what is mounted.
    pub fn ask(
        &self,
        instance: &dyn Instance,
        acknowledged: &Acknowledged,
    ) -> Result<Finding, StepFailure> {
        let Setting { spec, cuts, stop, .. } = &self.setting;
        let file = self.place.join("acknowledged");
        std::fs::write(&file, &acknowledged.0)
            .map_err(failed(format_args!("writing {}", file.display())))?;
        let workload = &spec.workload;
        let (line, channel) = match (&workload.check, workload.load.parsed().durability()) {
            (Some(check), _) => (with_arguments(check, &instance.directory(), &file), None),
            (None, Some(_)) => {
                let (line, channel) =
                    self.channel(WorkloadStage::Recheck, instance, Some(file), Value::Null)?;
                (line, Some(channel))
            }
            (None, None) => {
                return Err(StepFailure::of(format!(
                    "nothing says what '{}' may lose; give --check",
                    workload.name
                )));
            }
        };
        let begun = Instant::now();
        let alone = || ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = (channel.is_none() && !cuts.parallel_checks).then(alone);
        let waiting_ns = ns_since(begun);
        let deadline = Instant::now() + Duration::from_nanos(cuts.check_timeout_ns);
        let bounds = CommandBounds { deadline: Some(deadline), ..CommandBounds::default() };
        // In an enclosure the directory of the check may not be there.
        let place = match channel {
            Some(_) => instance.directory(),
            None => cuts.check_directory.clone(),
        };
        let ran =
            command::run(&line, &place, &[], bounds, &OutputTarget::Pipe, channel.as_ref(), stop)
                .map_err(|error| StepFailure::of(error.to_string()))?;
        let mut spent = self.spent.get();
        spent += Spent { waiting_ns, check_ns: ns_since(begun) - waiting_ns, ..Spent::default() };
        self.spent.set(spent);
        finding_of(ran)
    }
}

/// What a check that has run says.
pub fn finding_of(ran: CommandResult) -> Result<Finding, StepFailure> {
    let words = ran.said;
    match (ran.end, ran.usage.exit_code) {
        (CommandEnd::Stopped, _) => Err(StepFailure::Stopped),
        (CommandEnd::TimedOut, _) => {
            Ok(Finding::of(DiskCondition::Unusable, "the check did not end"))
        }
        (CommandEnd::Exited, Some(0)) => Ok(Finding::HELD),
        (CommandEnd::Exited, Some(1)) => Ok(Finding::of(DiskCondition::Lost, words)),
        (CommandEnd::Exited, Some(2)) => Ok(Finding::of(DiskCondition::Corrupt, words)),
        (CommandEnd::Exited, Some(3)) => Ok(Finding::of(DiskCondition::Unusable, words)),
        (CommandEnd::Exited, code) => Err(StepFailure::Failed {
            message: format!(
                "the check exited with {}; it says 0 for ok, 1 for lost, 2 for corrupt, 3 for unusable",
                code_text(code)
            ),
            output: words,
        }),
    }
}

/// A check with its two arguments.
pub fn with_arguments(check: &CommandLine, directory: &Path, acknowledged: &Path) -> CommandLine {
    let mut words = match check {
        CommandLine::Shell { shell, line } => {
            // The two arguments are where the line names them, else at its end.
            let names = ["$1", "${1", "$2", "${2", "$@", "$*"];
            let names_them = names.iter().any(|name| line.contains(name));
            let line = if names_them { line.clone() } else { format!("{line} \"$@\"") };
            let mut words = CommandLine::Shell { shell: shell.clone(), line }.words();
            words.push("check".into());
            words
        }
        other => other.words(),
    };
    words.extend([directory, acknowledged].map(|path| path.display().to_string()));
    CommandLine::Words(words)
}

/// Bytes of an acknowledgement, and how many there can be: they are kept in memory, also those of a workload that does as
/// a stranger's job says.
const LINE_BYTES_MAX: usize = 64 << 10;
const LINES_MAX: u64 = 4_000_000;

/// Receives acknowledgements, a line each.
pub struct Receiver {
    pipe: File,
    path: PathBuf,
    /// How many lines were handed on, for a workload that waits for that.
    received: File,
    is_ended: AtomicBool,
}

impl Receiver {
    /// Makes the pipe.
    pub fn start(path: &Path) -> io::Result<Receiver> {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?;
        // Open for writing too, so that the last writer's leaving is no end.
        let pipe = OpenOptions::new().read(true).write(true).open(path)?;
        let received = File::create(received_file(path))?;
        received.write_all_at(&[0; 8], 0)?;
        let path = path.to_path_buf();
        Ok(Receiver { pipe, path, received, is_ended: AtomicBool::new(false) })
    }

    /// The pipe, for whoever acknowledges.
    pub fn pipe(&self) -> &File {
        &self.pipe
    }

    /// The workload has ended: what is in the pipe by now is all.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    /// Hands on each line until the workload has ended and the pipe is empty. What the workload wrote last counts
    /// as a line without a line break too.
    pub fn receive(&self, mut each: impl FnMut(Line) -> io::Result<()>) -> io::Result<()> {
        let (mut begun, mut received) = (Vec::new(), 0_u64);
        let mut hand_on = |line: Vec<u8>| {
            if received == LINES_MAX {
                return Err(io::Error::other(format!(
                    "there are more than {LINES_MAX} acknowledgements"
                )));
            }
            each(Line(line))?;
            received += 1;
            self.received.write_all_at(&received.to_le_bytes(), 0)
        };
        loop {
            let is_last = self.is_ended.load(Ordering::Acquire);
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            if poll(&mut fds, Some(&wait))? == 0 {
                if !is_last {
                    continue;
                }
                return if begun.is_empty() { Ok(()) } else { hand_on(begun) };
            }
            let mut bytes = [0; 4096];
            let read = (&self.pipe).read(&mut bytes)?;
            let mut pieces = bytes[..read].split(|byte| *byte == b'\n');
            // The last one is the beginning of a line, mostly an empty one.
            let last = pieces.next_back().unwrap_or_default();
            for piece in pieces {
                begun.extend_from_slice(piece);
                hand_on(std::mem::take(&mut begun))?;
            }
            begun.extend_from_slice(last);
            if begun.len() > LINE_BYTES_MAX {
                return Err(io::Error::other(format!(
                    "an acknowledgement has more than {LINE_BYTES_MAX} bytes"
                )));
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_written_as_results_have_it() {
        let lost = Finding::of(DiskCondition::NeededFsck, "first\nlast");
        for (finding, text, shown) in [
            (Finding::HELD, r#"{"kind":"held"}"#, "held"),
            (
                lost,
                r#"{"kind":"needed-fsck","words":"first\nlast"}"#,
                "is mounted after fsck only: first",
            ),
            (Finding::of(DiskCondition::Lost, ""), r#"{"kind":"lost","words":""}"#, "lost"),
        ] {
            assert_eq!(serde_json::to_string(&finding).unwrap(), text);
            assert_eq!(serde_json::from_str::<Finding>(text).unwrap(), finding);
            assert_eq!(finding.to_string(), shown);
        }
    }
}
