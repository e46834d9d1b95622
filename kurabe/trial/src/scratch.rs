//! The scratch directory of one trial: made by the runner in kurabe's own directory right before
//! the trial, under a name that nobody else has, and removed after it.
//!
//! In it lie the trial's ledger and the *work*, in which the trial makes its mount point and files.
//! Invariants: a name is used once; nothing is made in the directory by a path that a stranger
//! could change; and where the trial has a mount namespace of its own, its commands find nothing
//! in kurabe's own directory but the working directory.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::mount::{MountFlags, mount, mount_bind};
use trust::{Directory, way};

use crate::ledger::{self, CleanReport, Ledger, Taken};
use crate::sys;

/// Rights of the working directory. Whoever else is to pass it is let in with what is handed over to them.
const WORK_MODE: u32 = 0o700;

/// Rights of what covers kurabe's own directory in a trial's mount namespace: it holds nothing but
/// the working directory.
const COVER_MODE: u32 = 0o711;

/// Name of the working directory in the scratch directory.
const WORK: &str = "work";

/// Name of the directory for device nodes in the working directory.
const NODES: &str = "devices";

/// Name of the directory in the working directory for what lies below a layer over a directory.
const BELOW: &str = "below";

/// A scratch directory that the runner made.
#[derive(Debug)]
pub struct Scratch {
    own: Arc<Directory>,
    ledger: Arc<Ledger>,
    ledger_id: u64,
    name: String,
}

impl Scratch {
    /// Makes one in kurabe's own directory.
    /// Errors: what the system says; then nothing was made.
    pub fn make(own: &Arc<Directory>, ledger: &Arc<Ledger>) -> io::Result<Scratch> {
        let name = ledger::random_name();
        let ledger_id = ledger.take(Taken::Scratch { name: name.clone() })?;
        let scratch = Scratch { own: own.clone(), ledger: ledger.clone(), ledger_id, name };
        match own.make_directory(&scratch.name, 0o700) {
            Ok(_) => Ok(scratch),
            Err(refused) => {
                ledger.gave_back(ledger_id)?;
                Err(refused.into())
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.own.path().join(&self.name)
    }

    /// Gives back what the trial left, and removes the directory. What could not be given back
    /// stays in the ledger; doing this again tries again.
    pub fn give_back(&self) -> CleanReport {
        let mut report = ledger::give_back_scratch(&self.own, &self.name);
        if report.left.is_empty()
            && let Err(error) = self.ledger.gave_back(self.ledger_id)
        {
            report.left.push(format!("{}: {error}", self.ledger.path().display()));
        }
        report
    }
}

/// A scratch directory that a trial works in. What cleans it waits as long as this lives.
#[derive(Debug)]
pub struct Occupied {
    scratch: Directory,
    work: PathBuf,
    nodes: PathBuf,
    below: PathBuf,
}

impl Occupied {
    /// Occupies the scratch directory of the calling process's trial and makes its working directory.
    /// Errors: the directory is being cleaned or gone: the runner is dead, and nothing may be taken
    /// any more. A stranger could change it.
    pub fn enter(path: &Path) -> io::Result<Occupied> {
        let scratch = Directory::open(path)?;
        let locked = rustix::fs::flock(scratch.descriptor(), FlockOperation::NonBlockingLockShared);
        // A file system that knows no locks on directories has none for the cleaner either.
        let is_cleaned = locked == Err(rustix::io::Errno::WOULDBLOCK);
        if is_cleaned || rustix::fs::fstat(scratch.descriptor())?.st_nlink == 0 {
            let text = format!("{} is being removed: the runner is gone", path.display());
            return Err(io::Error::other(text));
        }
        // From here on the trial starts programs, which are given 0, 1 and 2 and nothing else.
        sys::keep_descriptors_from_children()?;
        let work = scratch.make_directory(WORK, WORK_MODE)?;
        let nodes = work.make_directory(NODES, WORK_MODE)?.path().to_path_buf();
        let below = work.path().join(BELOW);
        // Whoever is number 1 is the first process of a namespace of the trial's own.
        if std::process::id() == 1 {
            cover(path, &work)?;
            mount_for_nodes(&nodes)?;
        }
        Ok(Occupied { work: work.path().to_path_buf(), nodes, below, scratch })
    }

    /// Where the trial makes its mount point and files.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Where the trial makes the nodes of its devices. Only root can look into it.
    pub fn nodes(&self) -> &Path {
        &self.nodes
    }

    /// Where the trial mounts what lies below a layer over a directory, once it is made. Only root can look into it: the
    /// layer's daemon works there with root's rights, so a user who could change a directory on its way would have
    /// them too.
    pub fn below(&self) -> &Path {
        &self.below
    }

    /// Makes that place, unless it is there.
    pub fn make_below(&self) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(WORK_MODE).create(&self.below) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Begins a ledger of the trial's.
    /// Errors: it cannot be written; then nothing may be taken.
    pub fn ledger(&self) -> io::Result<Ledger> {
        Ledger::in_scratch(&self.scratch)
    }
}

/// Mounts a file system on the directory for device nodes, in this mount namespace: the one below it
/// may be mounted with `nodev`, as administrators do with `/var`.
fn mount_for_nodes(directory: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = format!("size=64k,nr_inodes=1k,mode={WORK_MODE:o}");
    let options = std::ffi::CString::new(options).expect("it has no zero byte");
    mount("kurabe", directory, "tmpfs", flags, Some(options.as_c_str())).map_err(|error| {
        let error = io::Error::from(error);
        let text = format!("mounting {} for device nodes: {error}", directory.display());
        io::Error::new(error.kind(), text)
    })
}

/// Covers kurabe's own directory, in this mount namespace, with one that holds nothing but the
/// work.
fn cover(scratch: &Path, work: &Directory) -> io::Result<()> {
    let (Some(own), Some(name)) = (scratch.parent(), scratch.file_name()) else {
        return Err(io::Error::other(format!("{} is no scratch directory", scratch.display())));
    };
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("covering {}: {error}", own.display()))
    };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = format!("size=64k,nr_inodes=16,mode={COVER_MODE:o}");
    let options = std::ffi::CString::new(options).expect("it has no zero byte");
    mount("kurabe", own, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|error| failed(error.into()))?;
    let cover = Directory::open(own)?;
    let above = cover.make_directory(name, COVER_MODE)?;
    let point = above.make_directory(WORK, COVER_MODE)?;
    // By descriptor, because its path leads to the cover by now.
    let source = way::descriptor_path(work.descriptor().as_raw_fd());
    mount_bind(source, point.path()).map_err(|error| failed(error.into()))
}
