//! Gives back what owners that are gone had taken.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use block::claim::mounts;
use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;

use super::{
    Contents, NAME_PREFIX, SCRATCH_LEDGER_PREFIX, Taken, boot_id, is_ours_by_name, read_contents,
    start_ticks,
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

/// Finds the ledgers in `directory` whose owner is gone and gives back exactly what they name.
/// Doing so again does nothing. A ledger is removed once everything in it was given back.
pub fn clean(directory: &Path) -> io::Result<CleanReport> {
    let mut report = CleanReport::default();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(report),
        entries => entries?,
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(NAME_PREFIX) && name.ends_with(".jsonl") {
            clean_ledger(&path, &mut report);
        }
    }
    Ok(report)
}

fn clean_ledger(path: &Path, report: &mut CleanReport) {
    let result = (|| -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                report.living += 1;
                return Ok(());
            }
            result => result?,
        }
        let contents = read_contents(&mut file)?;
        if owner_lives(&contents) {
            report.living += 1;
            return Ok(());
        }
        if contents.unreadable_lines > 0 {
            report.left.push(format!(
                "{}: {} lines cannot be read; look for files, mounts and loop devices of that name by hand, then remove it",
                path.display(),
                contents.unreadable_lines
            ));
        }
        let all_given = give_back_all(&contents, report);
        if all_given && contents.unreadable_lines == 0 {
            fs::remove_file(path)?;
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

/// Whether the process that began the ledger is still the one with its number. The lock is what
/// counts; this keeps a ledger alone whose owner lost it, such as one on a network file system.
fn owner_lives(contents: &Contents) -> bool {
    let Some((pid, ticks, boot)) = &contents.owner else { return false };
    *boot == boot_id() && *ticks != 0 && start_ticks(*pid) == Some(*ticks)
}

/// Gives back everything, the last taken first. Says whether nothing is left.
fn give_back_all(contents: &Contents, report: &mut CleanReport) -> bool {
    let mut all_given = true;
    for taken in contents.held.values().rev() {
        match give_back(taken, report) {
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
fn give_back(taken: &Taken, report: &mut CleanReport) -> Result<Option<String>, String> {
    match taken {
        Taken::Image { path } | Taken::Scratch { path } if !is_ours_by_name(path) => Err(format!(
            "{}: the ledger names it, but its name does not begin with '{NAME_PREFIX}'; left alone",
            path.display()
        )),
        Taken::Image { path } => give_back_image(path),
        Taken::Scratch { path } => {
            let there = path.symlink_metadata().is_ok();
            for process in end_those_of(path) {
                report.done.push(format!("killed {process}, which a trial had started"));
            }
            let inner = give_back_scratch(path);
            report.done.extend(inner.done);
            if inner.left.is_empty() {
                Ok(there.then(|| format!("removed the directory {}", path.display())))
            } else {
                Err(inner.left.join("\n"))
            }
        }
        Taken::LoopNode { index, file_system, inode } => {
            let backing = Backing { file_system: *file_system, inode: *inode };
            match loop_node::release(*index, backing, RELEASE_WAIT_MAX) {
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

fn give_back_image(path: &Path) -> Result<Option<String>, String> {
    let problem = |error: io::Error| format!("{}: {error}", path.display());
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(problem)?,
    };
    if !metadata.is_file() {
        return Err(format!("{}: not a file any more; left alone", path.display()));
    }
    // The trial's own ledger is lost when its directory is; the image still tells.
    let backing = Backing::of(&File::open(path).map_err(problem)?).map_err(problem)?;
    for index in loop_node::attached_to(backing) {
        loop_node::release(index, backing, RELEASE_WAIT_MAX).map_err(problem)?;
    }
    fs::remove_file(path).map_err(problem)?;
    Ok(Some(format!("removed the image {}", path.display())))
}

/// Gives back what a trial that was killed had taken, and removes its scratch directory: unmounts
/// what is mounted below it, detaches and removes its loop device.
pub fn give_back_scratch(scratch: &Path) -> CleanReport {
    let mut report = CleanReport::default();
    if let Err(error) = give_back_scratch_into(scratch, &mut report) {
        report.left.push(format!("{}: {error}", scratch.display()));
    }
    report
}

fn give_back_scratch_into(scratch: &Path, report: &mut CleanReport) -> io::Result<()> {
    match scratch.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata if !metadata.as_ref().is_ok_and(|metadata| metadata.is_dir()) => {
            metadata?;
            return Err(io::Error::other("not a directory any more; left alone"));
        }
        _ => {}
    }
    // Held until the directory is removed: no trial begins in it any more.
    let _vacated = vacate(scratch)?;
    unmount_below(scratch, report)?;
    for entry in fs::read_dir(scratch)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(SCRATCH_LEDGER_PREFIX.as_bytes()) {
            let contents = read_contents(&mut File::open(entry.path())?)?;
            if !give_back_all(&contents, report) {
                return Ok(());
            }
        }
    }
    match fs::remove_dir_all(scratch) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// How long a trial that is being killed is waited for. It may be in the middle of a long write.
const VACATE_WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until no trial occupies the directory ([`super::occupy`]). A trial outlives its killed
/// runner by some milliseconds, and could take something after its ledger was read.
fn vacate(scratch: &Path) -> io::Result<File> {
    let directory = File::open(scratch)?;
    let until = Instant::now() + VACATE_WAIT_MAX;
    while let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
    {
        if Instant::now() >= until {
            return Err(io::Error::other("a trial still runs in it; end it, then try again"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(directory)
}

/// How long a busy mount is waited for before it is detached from the tree.
const UNMOUNT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Unmounts everything below `directory`, the innermost first. Nothing is removed below it unless
/// this succeeds: what is mounted there may not be ours.
fn unmount_below(directory: &Path, report: &mut CleanReport) -> io::Result<()> {
    let directory = fs::canonicalize(directory)?;
    let until = Instant::now() + UNMOUNT_WAIT_MAX;
    loop {
        let mounts = mounts::mounts()?;
        let Some(mount) = mounts.iter().rev().find(|mount| mount.point.starts_with(&directory))
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
