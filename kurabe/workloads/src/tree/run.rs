//! Times the phases of a tree's life on a directory: copy, unpack, walk, stat, rewrite, delete.
//!
//! Knows one directory and one archive. Each phase ends with a sync of the file system, which is
//! timed beside it; where kurabe makes the calls itself every one of them is recorded. All work
//! happens below one directory of its own, `kurabe-tree`, which is gone when the run is over,
//! however it ends.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::archive::ArchiveFacts;
use super::hash::{TreeHash, below, hash_tree};
use super::synthetic::SyntheticTree;
use crate::tool::{WorkloadTool, run};
use measure::durable::WholeSync;
use measure::latency::{Clock, LatencyRecorder, LatencyRecording};
use measure::space;

/// The directory that a run makes for itself.
pub(super) const OWN_DIRECTORY: &str = "kurabe-tree";
/// The size of the pieces in which files are copied and rewritten; what cp uses.
const PIECE_BYTES: usize = 128 << 10;

/// A part of a tree's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TreePhase {
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
}

impl TreePhase {
    /// What the published benchmark did, with walk, stat and rewrite between.
    pub const ALL: [Self; 7] = [
        Self::Copy,
        Self::Unpack,
        Self::Walk,
        Self::Stat,
        Self::Rewrite,
        Self::DeleteEach,
        Self::DeleteAll,
    ];

    pub fn name(self) -> &'static str {
        ["copy", "unpack", "walk", "stat", "rewrite", "delete_each", "delete_all"][self as usize]
    }
}

#[derive(Clone, Debug)]
pub struct Tree<'a> {
    /// Any archive that tar reads. It should lie on another file system than `directory`.
    pub archive: &'a Path,
    pub directory: &'a Path,
    /// What is in the archive, to see whether it fits.
    pub facts: ArchiveFacts,
    /// What makes a phase's work durable.
    pub sync: WholeSync,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    pub phase: TreePhase,
    /// From its begin to its last operation.
    pub elapsed_ns: u64,
    /// The sync after it.
    pub sync_ns: u64,
    /// Entries that it worked on, or pieces that it copied; 0 where a tool did the work.
    pub operations: u64,
    /// Bytes that it copied or wrote; 0 where a tool did the work.
    pub bytes: u64,
}

/// What a run came to, besides its latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeReport {
    /// The phases, in order.
    pub phases: Vec<PhaseReport>,
    /// The hash of the tree after its unpacking.
    pub hash: TreeHash,
}

impl TreeReport {
    /// Bytes handed to the file system: the copy, what tar unpacked of it, and the rewriting.
    pub fn written_bytes(&self, facts: &ArchiveFacts) -> u64 {
        self.phases.iter().map(|phase| phase.bytes).sum::<u64>() + facts.file_bytes
    }
}

/// Runs the phases; with the report come the latencies of all, each kind named after its phase.
/// `begin` is told each phase before its clock starts, so that the caller can drop caches.
///
/// Errors: a tool that is missing or failed, an archive or a tree that does not fit, a call that failed with
/// its phase and path; the stop flag.
pub fn run_tree(
    plan: &Tree<'_>,
    stop: &AtomicBool,
    begin: &mut dyn FnMut(TreePhase),
) -> Result<(TreeReport, LatencyRecording), String> {
    // Before anything is touched: the tools must be there, the archive readable, the space had.
    for tool in [WorkloadTool::Tar, WorkloadTool::Rm] {
        tool.locate()?;
    }
    File::open(plan.archive).map_err(failed("open", plan.archive))?;
    let needer = "the archive and its tree need";
    space::check(plan.directory, needer, plan.facts.needed_bytes(), "give a larger device")?;
    let own = plan.directory.join(OWN_DIRECTORY);
    if own.symlink_metadata().is_ok() {
        return Err(format!("{} exists already: remove it first", own.display()));
    }
    fs::create_dir(&own).map_err(failed("make", &own))?;
    let mut life = TreeRun {
        plan,
        stop,
        clock: Clock::start(),
        copy: own.join("archive"),
        tree: own.join("unpacked"),
        own,
        recorder: LatencyRecorder::new(),
        operations: 0,
        bytes: 0,
    };
    let mut phases = Vec::new();
    let mut hash = None;
    let ended = TreePhase::ALL.into_iter().try_for_each(|phase| {
        phases.push(life.phase(phase, begin)?);
        if phase == TreePhase::Unpack {
            life.check_size()?;
            // Proves that the tree is the right one.
            hash = Some(hash_tree(&life.tree, stop).map_err(failed("hash", &life.tree))?);
        }
        Ok(())
    });
    let cleaned = trust::tree::remove(&life.own).map_err(|refused| format!("remove: {refused}"));
    ended.and(cleaned)?;
    let hash = hash.expect("one of the phases unpacks the tree");
    Ok((TreeReport { phases, hash }, life.recorder.finish()))
}

/// A call that failed in a phase, or between phases, with its path.
fn failed<'a>(phase: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> String + 'a {
    move |error| match error.kind() {
        io::ErrorKind::Interrupted => stopped(phase),
        _ => format!("{phase}: {}: {error}", path.display()),
    }
}

fn stopped(phase: &str) -> String {
    format!("the tree was stopped in the phase {phase}")
}

/// The run under way.
struct TreeRun<'a> {
    plan: &'a Tree<'a>,
    stop: &'a AtomicBool,
    clock: Clock,
    own: PathBuf,
    copy: PathBuf,
    tree: PathBuf,
    recorder: LatencyRecorder,
    /// Operations of this phase, and what they moved.
    operations: u64,
    bytes: u64,
}

impl TreeRun<'_> {
    fn phase(
        &mut self,
        phase: TreePhase,
        begin: &mut dyn FnMut(TreePhase),
    ) -> Result<PhaseReport, String> {
        // What the phase works on is listed before the clock starts.
        let listed = match phase {
            TreePhase::Stat | TreePhase::Rewrite | TreePhase::DeleteEach => {
                below(&self.tree).map_err(|error| format!("list: {error}"))?
            }
            TreePhase::Copy | TreePhase::Unpack | TreePhase::Walk | TreePhase::DeleteAll => {
                Vec::new()
            }
        };
        (self.operations, self.bytes) = (0, 0);
        self.sync("sync before a phase")?;
        begin(phase);
        let start_ns = self.clock.now_ns();
        match phase {
            TreePhase::Copy => self.copy_archive()?,
            TreePhase::Unpack => self.unpack()?,
            TreePhase::Walk => self.walk()?,
            TreePhase::Stat => self.stat(&listed)?,
            TreePhase::Rewrite => self.rewrite(&listed)?,
            TreePhase::DeleteEach => self.delete_each(&listed)?,
            TreePhase::DeleteAll => {
                let mut command = WorkloadTool::Rm.command()?;
                run(command.args(["-rf", "--"]).arg(&self.tree), self.stop)?;
            }
        }
        let end_ns = self.clock.now_ns();
        self.sync(phase.name())?;
        Ok(PhaseReport {
            phase,
            elapsed_ns: end_ns.saturating_sub(start_ns),
            sync_ns: self.clock.now_ns().saturating_sub(end_ns),
            operations: self.operations,
            bytes: self.bytes,
        })
    }

    fn sync(&self, phase: &'static str) -> Result<(), String> {
        self.plan.sync.run(&self.own).map_err(failed(phase, &self.own))
    }

    /// Times one operation of a phase on a path, which moves some bytes, and takes it down; stops
    /// before it when that was asked for.
    fn time<T>(
        &mut self,
        phase: TreePhase,
        path: &Path,
        bytes: u64,
        operation: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, String> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(stopped(phase.name()));
        }
        let start_ns = self.clock.now_ns();
        let result = operation();
        let end_ns = self.clock.now_ns();
        let kind = self.recorder.kind(phase.name());
        self.recorder.record_at(kind, end_ns, end_ns.saturating_sub(start_ns), bytes);
        self.operations += 1;
        self.bytes += bytes;
        result.map_err(failed(phase.name(), path))
    }

    fn copy_archive(&mut self) -> Result<(), String> {
        let name = TreePhase::Copy.name();
        let (from, to) = (self.plan.archive, self.copy.clone());
        let mut source = File::open(from).map_err(failed(name, from))?;
        let mut copy = File::create(&to).map_err(failed(name, &to))?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            // The source lies elsewhere; its reading is no operation of this file system.
            let count = source.read(&mut piece).map_err(failed(name, from))?;
            if count == 0 {
                return Ok(());
            }
            self.time(TreePhase::Copy, &to, count as u64, || copy.write_all(&piece[..count]))?;
        }
    }

    fn unpack(&mut self) -> Result<(), String> {
        fs::create_dir(&self.tree).map_err(failed(TreePhase::Unpack.name(), &self.tree))?;
        let mut command = WorkloadTool::Tar.command()?;
        command.args(["--extract", "--file"]).arg(&self.copy).arg("--directory").arg(&self.tree);
        run(&mut command, self.stop)?;
        Ok(())
    }

    fn walk(&mut self) -> Result<(), String> {
        let mut queue = vec![self.tree.clone()];
        while let Some(place) = queue.pop() {
            let read = || fs::read_dir(&place)?.collect::<io::Result<Vec<_>>>();
            for entry in self.time(TreePhase::Walk, &place, 0, read)? {
                // The kind comes with the entry, but for file systems that do not tell it.
                let path = entry.path();
                if entry.file_type().map_err(failed(TreePhase::Walk.name(), &path))?.is_dir() {
                    queue.push(path);
                }
            }
        }
        Ok(())
    }

    fn stat(&mut self, listed: &[Listed]) -> Result<(), String> {
        for (path, _) in listed {
            self.time(TreePhase::Stat, path, 0, || fs::symlink_metadata(path))?;
        }
        Ok(())
    }

    /// Refuses files that are longer than the list of the archive says, as sparse ones are: nobody has
    /// looked whether there is space for them.
    fn check_size(&self) -> Result<(), String> {
        let entries = below(&self.tree).map_err(failed("list", &self.tree))?;
        // Each name of a file with several is another entry.
        let files = entries.iter().filter(|(_, facts)| facts.is_file());
        let sizes: HashMap<_, _> =
            files.map(|(_, facts)| ((facts.dev(), facts.ino()), facts.len())).collect();
        let unpacked = sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
        let listed = self.plan.facts.file_bytes;
        if unpacked > listed {
            return Err(format!(
                "the archive lists files of {listed} bytes, and unpacked they have {unpacked}: it has sparse \
                 files of another size than it says"
            ));
        }
        Ok(())
    }

    fn rewrite(&mut self, listed: &[Listed]) -> Result<(), String> {
        // Text like that of source code, so that a file system that compresses has the same
        // work as with the tree itself.
        let text = SyntheticTree::new(0, 1).contents(0, 4 * PIECE_BYTES as u64);
        let files = listed.iter().enumerate().filter(|(_, (_, facts))| facts.is_file());
        for (index, (path, facts)) in files {
            // Every file from another place of the text, so that no two begin alike.
            let start = index * 4099 % (3 * PIECE_BYTES);
            let piece = &text[start..start + PIECE_BYTES];
            let size_bytes = facts.len();
            self.time(TreePhase::Rewrite, path, size_bytes, || overwrite(path, size_bytes, piece))?;
        }
        Ok(())
    }

    fn delete_each(&mut self, listed: &[Listed]) -> Result<(), String> {
        let program = WorkloadTool::Rm.locate()?;
        for (path, _) in listed.iter().filter(|(_, facts)| !facts.is_dir()) {
            let mut command = program.command();
            command.arg("--").arg(path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let status = self.time(TreePhase::DeleteEach, path, 0, || command.status())?;
            if !status.success() {
                let reason = io::Error::other(format!("rm ended with {status}"));
                return Err(failed(TreePhase::DeleteEach.name(), path)(reason));
            }
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
type Listed = (PathBuf, fs::Metadata);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tar_unpacked_is_handed_over_too() {
        let phase =
            |phase, bytes| PhaseReport { phase, elapsed_ns: 1, sync_ns: 1, operations: 1, bytes };
        let phases = vec![
            phase(TreePhase::Copy, 1000),
            phase(TreePhase::Unpack, 0),
            phase(TreePhase::Rewrite, 700),
        ];
        let facts = ArchiveFacts { file_bytes: 700, ..ArchiveFacts::default() };
        let report = TreeReport { phases, hash: TreeHash::default() };
        assert_eq!(report.written_bytes(&facts), 2400);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for phase in TreePhase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }
}
