//! Gives back what owners that are gone had taken.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;
use trust::Directory;
use trust::mounts;

use super::{
    LEDGERS, LedgerContents, NAME_PREFIX, SCRATCH_LEDGER_PREFIX, Taken, boot_id, is_ours_by_name,
    read_contents, start_ticks,
};
use crate::control_group;
use crate::device::loop_node::{self, Backing, RELEASE_WAIT_MAX, Released};
use crate::leftovers::end_those_of;

/// What a cleaning did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// What was given back, a line each.
    pub done: Vec<String>,
    /// What could not be given back and why, a line each.
    pub left: Vec<String>,
    /// Ledgers whose owner lives and which were left alone.
    pub living: usize,
}

impl CleanReport {
    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.left.is_empty()
    }
}

/// Finds the ledgers in kurabe's own directory whose owner is gone and gives back exactly what they
/// name. Doing so again does nothing. A ledger is removed once everything in it was given back.
pub fn clean(own: &Directory) -> io::Result<CleanReport> {
    let mut report = CleanReport::default();
    let ledgers = match own.open_directory(LEDGERS) {
        Err(refused) if refused.is_missing() => return Ok(report),
        ledgers => ledgers?,
    };
    for name in ledgers.names()? {
        let shown = name.to_string_lossy();
        if shown.starts_with(NAME_PREFIX) && shown.ends_with(".jsonl") {
            clean_ledger(own, &ledgers, &shown, &mut report);
        }
    }
    Ok(report)
}

fn clean_ledger(own: &Directory, ledgers: &Directory, name: &str, report: &mut CleanReport) {
    let path = ledgers.path().join(name);
    let result = (|| -> io::Result<()> {
        let file = ledgers.append_file(name)?;
        let owner = read_contents(&file)?;
        if owner_lives(&owner) || !locked(&file)? {
            report.living += 1;
            return Ok(());
        }
        // Another cleaner gave it all back meanwhile.
        if rustix::fs::fstat(&file)?.st_nlink == 0 {
            return Ok(());
        }
        let contents = read_contents(&file)?;
        if contents.unreadable_lines > 0 {
            report.left.push(format!(
                "{}: {} lines cannot be read; look for files, mounts and loop devices of that name by hand, then remove it",
                path.display(),
                contents.unreadable_lines
            ));
        }
        let all_given = give_back_all(own, &contents, report);
        if all_given && contents.unreadable_lines == 0 {
            ledgers.remove_file(name)?;
        }
        Ok(())
    })();
    match result {
        // Another cleaner was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => report.left.push(format!("{}: {error}", path.display())),
        Ok(()) => {}
    }
}

/// The living process that has a loop device, by the ledgers of scratch directories.
pub fn holder_of_loop(own: &Directory, index: u32) -> io::Result<Option<u32>> {
    for name in own.names()? {
        let Some(name) = name.to_str().filter(|name| is_ours_by_name(name)) else { continue };
        // What is no directory, or is gone by now, has no ledger.
        let Ok(scratch) = own.open_directory(name) else { continue };
        for ledger in scratch.names()? {
            let Some(ledger) = ledger.to_str() else { continue };
            if !ledger.starts_with(SCRATCH_LEDGER_PREFIX) {
                continue;
            }
            let contents = read_contents(&scratch.append_file(ledger)?)?;
            let is_it = |taken: &Taken| matches!(taken, Taken::LoopNode { index: one, .. } if *one == index);
            if owner_lives(&contents) && contents.held.values().any(is_it) {
                return Ok(contents.owner.map(|(pid, ..)| pid));
            }
        }
    }
    Ok(None)
}

/// How long the lock on a dead owner's ledger is waited for: what it had just started has a copy of
/// its descriptors until it runs.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Locks a ledger, unless somebody keeps the lock.
fn locked(ledger: &File) -> io::Result<bool> {
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match rustix::fs::flock(ledger, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => return Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
            result => return Ok(result.map(|()| true)?),
        }
    }
}

/// Whether the process that began the ledger is still the one with its number. The lock is what
/// counts; this keeps a ledger alone whose owner lost it, such as one on a network file system.
fn owner_lives(contents: &LedgerContents) -> bool {
    let Some((pid, ticks, boot)) = &contents.owner else { return false };
    *boot == boot_id() && *ticks != 0 && start_ticks(*pid) == Some(*ticks)
}

/// Gives back everything, the last taken first. Says whether nothing is left.
fn give_back_all(own: &Directory, contents: &LedgerContents, report: &mut CleanReport) -> bool {
    let mut all_given = true;
    for taken in contents.held.values().rev() {
        match give_back(own, taken, report) {
            Ok(Some(done)) => report.done.push(done),
            Ok(None) => {}
            Err(problem) => {
                all_given = false;
                report.left.push(problem);
            }
        }
    }
    all_given
}

/// Gives one thing back and says what was done, if anything had to be.
fn give_back(
    own: &Directory,
    taken: &Taken,
    report: &mut CleanReport,
) -> Result<Option<String>, String> {
    match taken {
        Taken::Scratch { name } | Taken::Subdirectory { name, .. } if !is_ours_by_name(name) => {
            Err(format!(
                "'{}': the ledger names it, but no name of kurabe's is like that; left alone",
                name.escape_debug()
            ))
        }
        Taken::Subdirectory { parent, .. } if !parent.is_absolute() => {
            Err(format!("'{}': no absolute path; left alone", parent.display()))
        }
        Taken::Scratch { name } => {
            let there = own.has(name);
            let inner = give_back_scratch(own, name);
            report.done.extend(inner.done);
            if inner.left.is_empty() {
                Ok(there.then(|| removed(own, name)))
            } else {
                Err(inner.left.join("\n"))
            }
        }
        Taken::Subdirectory { parent, name } => give_back_subdirectory(parent, name, report)
            .map_err(|error| format!("{}: {error}", parent.join(name).display())),
        Taken::LoopNode { index, file_system, inode } => {
            let backing = Backing { file_system: *file_system, inode: *inode };
            match loop_node::release_nameless(*index, backing, RELEASE_WAIT_MAX) {
                Ok(Released::Removed) => Ok(Some(format!("removed the loop device {index}"))),
                Ok(Released::Absent) => Ok(None),
                Ok(Released::TakenOver) => {
                    Ok(Some(format!("left loop device {index} alone: it has another file now")))
                }
                Err(error) => Err(error.to_string()),
            }
        }
        Taken::ControlGroup { path } => control_group::give_back(path, &mut report.done),
    }
}

fn removed(directory: &Directory, name: &str) -> String {
    format!("removed the directory {}", directory.path().join(name).display())
}

fn give_back_subdirectory(
    parent: &Path,
    name: &str,
    report: &mut CleanReport,
) -> io::Result<Option<String>> {
    for process in end_those_of(&parent.join(name)) {
        report.done.push(format!("killed {process}, which a run had started"));
    }
    let parent = match Directory::open_shared(parent) {
        Err(refused) if refused.is_missing() => return Ok(None),
        parent => parent?,
    };
    match parent.remove_tree(name) {
        Err(refused) if refused.is_missing() => Ok(None),
        result => result.map(|()| Some(removed(&parent, name))).map_err(Into::into),
    }
}

/// Gives back what the trial of a scratch directory had taken and still has, as after a kill, and
/// removes the directory: unmounts what is mounted below it, detaches and removes its loop device.
pub fn give_back_scratch(own: &Directory, name: &str) -> CleanReport {
    let mut report = CleanReport::default();
    if let Err(error) = give_back_scratch_into(own, name, &mut report) {
        report.left.push(format!("{}: {error}", own.path().join(name).display()));
    }
    report
}

fn give_back_scratch_into(own: &Directory, name: &str, report: &mut CleanReport) -> io::Result<()> {
    let scratch = match own.open_directory(name) {
        Err(refused) if refused.is_missing() => return Ok(()),
        scratch => scratch?,
    };
    // Locked until the directory is removed: no trial begins in it any more.
    vacate(&scratch)?;
    unmount_below(&fs::canonicalize(scratch.descriptor_path())?, report)?;
    for file in scratch.names()? {
        if file.as_encoded_bytes().starts_with(SCRATCH_LEDGER_PREFIX.as_bytes()) {
            let contents = read_contents(&scratch.open_file(file)?)?;
            if contents.held.values().any(|taken| matches!(taken, Taken::Scratch { .. })) {
                return Err(io::Error::other("a run's ledger names a scratch directory"));
            }
            if !give_back_all(own, &contents, report) {
                return Ok(());
            }
        }
    }
    match own.remove_tree(name) {
        Err(refused) if refused.is_missing() => Ok(()),
        result => result.map_err(Into::into),
    }
}

/// How long a trial that is being killed is waited for. It may be in the middle of a long write.
const VACATE_WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until no trial occupies the directory ([`crate::scratch::Occupied`]), and locks it. A
/// trial outlives its killed runner by some milliseconds, and could take something after its ledger
/// was read. Nobody else can open the directory, so that nobody else can make this wait.
fn vacate(scratch: &Directory) -> io::Result<()> {
    let until = Instant::now() + VACATE_WAIT_MAX;
    while let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(scratch.descriptor(), FlockOperation::NonBlockingLockExclusive)
    {
        if Instant::now() >= until {
            return Err(io::Error::other(
                "a session of kurabe still uses it; end it, then try again",
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// How long a busy mount is waited for.
const UNMOUNT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Unmounts everything below `directory`, the innermost first. Nothing is removed below it unless
/// this succeeds: what is mounted there may not be ours.
fn unmount_below(directory: &Path, report: &mut CleanReport) -> io::Result<()> {
    let until = Instant::now() + UNMOUNT_WAIT_MAX;
    loop {
        let mounts = mounts::mounts()?;
        let Some(mount) = mounts.iter().rev().find(|mount| mount.point.starts_with(directory))
        else {
            return Ok(());
        };
        match rustix::mount::unmount(&mount.point, UnmountFlags::NOFOLLOW) {
            Ok(()) => report.done.push(format!("unmounted {}", mount.point.display())),
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                let point = mount.point.display();
                return Err(io::Error::new(
                    io::Error::from(error).kind(),
                    format!(
                        "{point} cannot be unmounted: {error}; end what uses it, then try again"
                    ),
                ));
            }
        }
    }
}
