//! Times the phases of a tree's life on a directory: copy, unpack, walk, stat, rewrite, delete.
//!
//! Knows one directory and one archive. Each phase ends with a sync of the file system, which is
//! timed beside it; where kurabe makes the calls itself every one of them is recorded. All work
//! happens below one directory of its own, `kurabe-tree`, which is gone when the run is over,
//! however it ends. What a phase needs and an earlier one took away is restored first, untimed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::archive::ArchiveFacts;
use super::hash::{TreeHash, hash_tree};
use super::synthetic::SyntheticTree;
use crate::durable::WholeSync;
use crate::latency::{Clock, Recorder, Recording, Summary};
use crate::tool::{Tool, ToolCommand, ToolError, run};

/// The directory that a run makes for itself.
const OWN_DIRECTORY: &str = "kurabe-tree";
/// The size of the pieces in which files are copied and rewritten; what cp uses.
const PIECE_BYTES: usize = 128 << 10;

/// A part of a tree's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Copies the archive to the file system.
    Copy,
    /// Unpacks it there with tar: the copy, when there is one.
    Unpack,
    /// Reads all directories.
    Walk,
    /// Asks for the facts of every entry.
    Stat,
    /// Overwrites every file in place with other contents of the same length.
    Rewrite,
    /// Deletes every entry that is no directory, by one process of rm for each.
    DeleteEach,
    /// Deletes everything with `rm -rf`.
    DeleteAll,
    /// Deletes everything with calls of kurabe's own.
    Unlink,
}

impl Phase {
    /// What the published benchmark did, with walk, stat and rewrite between.
    pub const DEFAULT: [Self; 7] = [
        Self::Copy,
        Self::Unpack,
        Self::Walk,
        Self::Stat,
        Self::Rewrite,
        Self::DeleteEach,
        Self::DeleteAll,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Unpack => "unpack",
            Self::Walk => "walk",
            Self::Stat => "stat",
            Self::Rewrite => "rewrite",
            Self::DeleteEach => "delete_each",
            Self::DeleteAll => "delete_all",
            Self::Unlink => "unlink",
        }
    }

    /// Whether the phase works on the unpacked tree.
    fn needs_tree(self) -> bool {
        !matches!(self, Self::Copy | Self::Unpack)
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    /// Any archive that tar reads. It should lie on another file system than `directory`.
    pub archive: &'a Path,
    /// Where to work.
    pub directory: &'a Path,
    /// The phases, in order.
    pub phases: &'a [Phase],
    /// What is in the archive, to see whether it fits; not checked when absent.
    pub facts: Option<ArchiveFacts>,
    /// The hash that the unpacked tree must have; not checked when absent.
    pub expected_hash: Option<&'a str>,
    /// What makes a phase's work durable.
    pub sync: WholeSync,
}

/// What a phase came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The phase.
    pub phase: Phase,
    /// From its begin to its last operation.
    pub elapsed_ns: u64,
    /// The sync after it.
    pub sync_ns: u64,
    /// Entries that it worked on, or pieces that it copied; 0 where a tool did the work.
    pub operations: u64,
    /// Bytes that it copied or wrote; 0 where a tool did the work.
    pub bytes: u64,
    /// The latencies of its operations; absent where a tool did the work.
    pub latencies: Option<Summary>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeReport {
    /// The phases, in order.
    pub phases: Vec<PhaseReport>,
    /// The hash of the tree after its first unpacking; absent when no phase needed the tree.
    pub hash: Option<TreeHash>,
    /// How often the tree was unpacked again, untimed, because a phase had deleted it.
    pub restored: u32,
}

/// A report and the histograms that it was made from.
#[derive(Clone, Debug)]
pub struct TreeOutcome {
    /// The report.
    pub report: TreeReport,
    /// The latencies of all phases, each kind named after its phase.
    pub latencies: Recording,
}

/// Why a run failed or was refused.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The archive and what is in it do not fit.
    #[error("the archive and its tree need {needed_bytes} bytes, {path} has {available_bytes}")]
    TooBig {
        /// What they need at least.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
        /// The directory.
        path: PathBuf,
    },
    /// Something of an earlier run is in the way.
    #[error("{path} exists already: remove it first")]
    NotClean {
        /// What exists.
        path: PathBuf,
    },
    /// What was unpacked is not what it should be.
    #[error("the unpacked tree differs: its hash is {found}, expected was {expected}")]
    Different {
        /// The hash that was asked for.
        expected: String,
        /// The tree's.
        found: Box<TreeHash>,
    },
    /// tar or rm is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A call failed.
    #[error("{phase}: {path}: {source}")]
    Io {
        /// The phase, or what was done between phases.
        phase: &'static str,
        /// With which path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stop flag was raised.
    #[error("the tree was stopped in the phase {phase}")]
    Stopped {
        /// The phase.
        phase: &'static str,
    },
}

/// Runs the phases. `begin` is told each phase before its clock starts and after everything
/// that it needs is there, so that the caller can drop caches.
///
/// # Errors
/// See [`TreeError`].
pub fn run_tree(
    plan: &Tree<'_>,
    stop: &AtomicBool,
    begin: &mut dyn FnMut(Phase),
) -> Result<TreeOutcome, TreeError> {
    // Before anything is touched: the tools must be there, the archive readable, the space had.
    Tool::Tar.locate()?;
    Tool::Rm.locate()?;
    File::open(plan.archive).map_err(io_error("open", plan.archive))?;
    if let Some(facts) = plan.facts {
        let space = rustix::fs::statvfs(plan.directory)
            .map_err(|error| io_error("look at the space", plan.directory)(error.into()))?;
        let available_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if facts.needed_bytes() > available_bytes {
            return Err(TreeError::TooBig {
                needed_bytes: facts.needed_bytes(),
                available_bytes,
                path: plan.directory.to_owned(),
            });
        }
    }
    let own = plan.directory.join(OWN_DIRECTORY);
    if own.symlink_metadata().is_ok() {
        return Err(TreeError::NotClean { path: own });
    }
    fs::create_dir(&own).map_err(io_error("make", &own))?;
    let mut life = Life {
        plan,
        stop,
        clock: Clock::start(),
        copy: own.join("archive"),
        tree: own.join("unpacked"),
        own,
        has_copy: false,
        has_tree: false,
        latencies: Recorder::new().finish(),
        report: TreeReport { phases: Vec::new(), hash: None, restored: 0 },
    };
    let ended = life.phases(begin);
    let cleaned = fs::remove_dir_all(&life.own).map_err(io_error("remove", &life.own));
    ended.and(cleaned)?;
    Ok(TreeOutcome { report: life.report, latencies: life.latencies })
}

fn io_error<'a>(phase: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> TreeError + 'a {
    move |source| match source.kind() {
        io::ErrorKind::Interrupted => TreeError::Stopped { phase },
        _ => TreeError::Io { phase, path: path.to_owned(), source },
    }
}

/// The run under way.
struct Life<'a> {
    plan: &'a Tree<'a>,
    stop: &'a AtomicBool,
    clock: Clock,
    own: PathBuf,
    copy: PathBuf,
    tree: PathBuf,
    has_copy: bool,
    has_tree: bool,
    latencies: Recording,
    report: TreeReport,
}

/// The operations of a phase as they come.
struct Tally {
    clock: Clock,
    recorder: Recorder,
    operations: u64,
    bytes: u64,
}

impl Tally {
    /// Times one operation of some bytes and takes it down.
    fn time<T>(&mut self, kind: &str, bytes: u64, operation: impl FnOnce() -> T) -> T {
        let start_ns = self.clock.now_ns();
        let result = operation();
        let end_ns = self.clock.now_ns();
        let kind = self.recorder.kind(kind);
        self.recorder.record_at(kind, end_ns, end_ns.saturating_sub(start_ns), bytes);
        self.operations += 1;
        self.bytes += bytes;
        result
    }
}

impl Life<'_> {
    fn phases(&mut self, begin: &mut dyn FnMut(Phase)) -> Result<(), TreeError> {
        for phase in self.plan.phases {
            if phase.needs_tree() && !self.has_tree {
                self.unpack(phase.name())?;
                self.report.restored += 1;
                self.verify()?;
            }
            if *phase == Phase::Unpack && self.has_tree {
                fs::remove_dir_all(&self.tree).map_err(io_error("remove", &self.tree))?;
                self.has_tree = false;
            }
            self.phase(*phase, begin)?;
            if *phase == Phase::Unpack {
                self.verify()?;
            }
        }
        Ok(())
    }

    fn phase(&mut self, phase: Phase, begin: &mut dyn FnMut(Phase)) -> Result<(), TreeError> {
        // What the phase works on is listed before the clock starts.
        let listed = match phase {
            Phase::Stat | Phase::Rewrite | Phase::DeleteEach | Phase::Unlink => list(&self.tree)?,
            Phase::Copy | Phase::Unpack | Phase::Walk | Phase::DeleteAll => Vec::new(),
        };
        let mut tally = Tally {
            clock: self.clock,
            recorder: Recorder::with_intervals(Duration::from_secs(1)),
            operations: 0,
            bytes: 0,
        };
        self.sync("sync before a phase")?;
        begin(phase);
        let start_ns = self.clock.now_ns();
        match phase {
            Phase::Copy => self.copy_archive(&mut tally)?,
            Phase::Unpack => self.unpack(phase.name())?,
            Phase::Walk => self.walk(&mut tally)?,
            Phase::Stat => self.stat(&listed, &mut tally)?,
            Phase::Rewrite => self.rewrite(&listed, &mut tally)?,
            Phase::DeleteEach => self.delete_each(&listed, &mut tally)?,
            Phase::DeleteAll => self.delete_all()?,
            Phase::Unlink => self.unlink(&listed, &mut tally)?,
        }
        let end_ns = self.clock.now_ns();
        self.sync(phase.name())?;
        let sync_end_ns = self.clock.now_ns();
        let recording = tally.recorder.finish();
        let has_operations = tally.operations > 0;
        self.report.phases.push(PhaseReport {
            phase,
            elapsed_ns: end_ns.saturating_sub(start_ns),
            sync_ns: sync_end_ns.saturating_sub(end_ns),
            operations: tally.operations,
            bytes: tally.bytes,
            latencies: has_operations.then(|| recording.summary()),
        });
        if has_operations {
            self.latencies.merge(recording);
        }
        Ok(())
    }

    fn sync(&self, phase: &'static str) -> Result<(), TreeError> {
        self.plan.sync.run(&self.own).map_err(io_error(phase, &self.own))
    }

    fn check_stop(&self, phase: Phase) -> Result<(), TreeError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(TreeError::Stopped { phase: phase.name() });
        }
        Ok(())
    }

    fn copy_archive(&mut self, tally: &mut Tally) -> Result<(), TreeError> {
        let phase = Phase::Copy;
        let mut source =
            File::open(self.plan.archive).map_err(io_error(phase.name(), self.plan.archive))?;
        let mut copy = File::create(&self.copy).map_err(io_error(phase.name(), &self.copy))?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            self.check_stop(phase)?;
            let count =
                source.read(&mut piece).map_err(io_error(phase.name(), self.plan.archive))?;
            if count == 0 {
                break;
            }
            // The source lies elsewhere; its reading is no operation of this file system.
            tally
                .time("copy", count as u64, || copy.write_all(&piece[..count]))
                .map_err(io_error(phase.name(), &self.copy))?;
        }
        self.has_copy = true;
        Ok(())
    }

    fn unpack(&mut self, phase: &'static str) -> Result<(), TreeError> {
        if !self.tree.exists() {
            fs::create_dir(&self.tree).map_err(io_error(phase, &self.tree))?;
        }
        let archive = if self.has_copy { &self.copy } else { self.plan.archive };
        let command = ToolCommand::new(Tool::Tar)?
            .argument("--extract")
            .argument("--file")
            .argument(archive)
            .argument("--directory")
            .argument(&self.tree);
        run(&command, self.stop, &mut |_, _| {})?;
        self.has_tree = true;
        Ok(())
    }

    /// Proves, once, that the tree is the right one.
    fn verify(&mut self) -> Result<(), TreeError> {
        if self.report.hash.is_some() {
            return Ok(());
        }
        let found = hash_tree(&self.tree, self.stop).map_err(io_error("hash", &self.tree))?;
        if let Some(expected) = self.plan.expected_hash
            && expected != found.xxh3_128
        {
            return Err(TreeError::Different {
                expected: expected.to_owned(),
                found: Box::new(found),
            });
        }
        self.report.hash = Some(found);
        Ok(())
    }

    fn walk(&self, tally: &mut Tally) -> Result<(), TreeError> {
        let mut queue = vec![self.tree.clone()];
        while let Some(place) = queue.pop() {
            self.check_stop(Phase::Walk)?;
            let entries = tally
                .time("walk", 0, || fs::read_dir(&place)?.collect::<io::Result<Vec<_>>>())
                .map_err(io_error(Phase::Walk.name(), &place))?;
            for entry in entries {
                // The kind comes with the entry, but for file systems that do not tell it.
                let path = entry.path();
                let kind = entry.file_type().map_err(io_error(Phase::Walk.name(), &path))?;
                if kind.is_dir() {
                    queue.push(path);
                }
            }
        }
        Ok(())
    }

    fn stat(&self, listed: &[Listed], tally: &mut Tally) -> Result<(), TreeError> {
        for entry in listed {
            self.check_stop(Phase::Stat)?;
            tally
                .time("stat", 0, || fs::symlink_metadata(&entry.path))
                .map_err(io_error(Phase::Stat.name(), &entry.path))?;
        }
        Ok(())
    }

    fn rewrite(&self, listed: &[Listed], tally: &mut Tally) -> Result<(), TreeError> {
        // Text like that of source code, so that a file system that compresses has the same
        // work as with the tree itself.
        let text = SyntheticTree::new(0, 1).contents(0, 4 * PIECE_BYTES as u64);
        for (index, entry) in listed.iter().enumerate().filter(|(_, entry)| entry.is_file) {
            self.check_stop(Phase::Rewrite)?;
            // Every file from another place of the text, so that no two begin alike.
            let start = index * 4099 % (3 * PIECE_BYTES);
            let piece = &text[start..start + PIECE_BYTES];
            tally
                .time("rewrite", entry.size_bytes, || {
                    overwrite(&entry.path, entry.size_bytes, piece)
                })
                .map_err(io_error(Phase::Rewrite.name(), &entry.path))?;
        }
        Ok(())
    }

    fn delete_each(&mut self, listed: &[Listed], tally: &mut Tally) -> Result<(), TreeError> {
        let program = Tool::Rm.locate()?;
        self.has_tree = false;
        for entry in listed.iter().filter(|entry| !entry.is_directory) {
            self.check_stop(Phase::DeleteEach)?;
            let mut command = Command::new(&program);
            command
                .arg("--")
                .arg(&entry.path)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let status = tally
                .time("delete_each", 0, || command.status())
                .map_err(io_error(Phase::DeleteEach.name(), &entry.path))?;
            if !status.success() {
                let reason = io::Error::other(format!("rm ended with {status}"));
                return Err(io_error(Phase::DeleteEach.name(), &entry.path)(reason));
            }
        }
        Ok(())
    }

    fn delete_all(&mut self) -> Result<(), TreeError> {
        self.has_tree = false;
        let command = ToolCommand::new(Tool::Rm)?.arguments(["-rf", "--"]).argument(&self.tree);
        run(&command, self.stop, &mut |_, _| {})?;
        Ok(())
    }

    fn unlink(&mut self, listed: &[Listed], tally: &mut Tally) -> Result<(), TreeError> {
        self.has_tree = false;
        // Entries come after the directory that they are in, so backwards every directory is
        // empty when its turn comes.
        for entry in listed.iter().rev() {
            self.check_stop(Phase::Unlink)?;
            let removed = if entry.is_directory {
                tally.time("rmdir", 0, || fs::remove_dir(&entry.path))
            } else {
                tally.time("unlink", 0, || fs::remove_file(&entry.path))
            };
            removed.map_err(io_error(Phase::Unlink.name(), &entry.path))?;
        }
        Ok(())
    }
}

fn overwrite(path: &Path, size_bytes: u64, piece: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let mut remaining = size_bytes;
    while remaining > 0 {
        let length = remaining.min(piece.len() as u64);
        file.write_all(&piece[..length as usize])?;
        remaining -= length;
    }
    Ok(())
}

/// An entry of the tree, as it was found before a phase.
struct Listed {
    path: PathBuf,
    is_file: bool,
    is_directory: bool,
    size_bytes: u64,
}

/// Everything below a directory, in the order in which the file system gives it; a directory
/// comes before its contents.
fn list(directory: &Path) -> Result<Vec<Listed>, TreeError> {
    let mut listed = Vec::new();
    let mut queue = vec![directory.to_owned()];
    while let Some(place) = queue.pop() {
        let entries = fs::read_dir(&place).map_err(io_error("list", &place))?;
        for entry in entries {
            let entry = entry.map_err(io_error("list", &place))?;
            let path = entry.path();
            let facts = entry.metadata().map_err(io_error("list", &path))?;
            if facts.is_dir() {
                queue.push(path.clone());
            }
            listed.push(Listed {
                is_file: facts.is_file(),
                is_directory: facts.is_dir(),
                size_bytes: facts.size(),
                path,
            });
        }
    }
    Ok(listed)
}
