//! A device that was granted, held from the grant to the end of the study, and the doors to it.
//!
//! Invariants: a [`Pinned`] has the device open (not exclusively: mkfs and mount need that
//! themselves) and the lock on its number, which every kurabe of this machine respects. What is
//! opened through it was compared with what was granted before a byte of it could be written.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use trust::{Directory, Lock, LockError};

use super::Identity;

/// Where the locks are: one file for each device number. Only root can look into it.
const LOCKS: &str = "/run/kurabe/devices";

/// A granted device, held open and locked while this lives.
#[derive(Debug)]
pub struct Pinned {
    device: File,
    path: PathBuf,
    identity: Identity,
    _lock: Lock,
}

impl Pinned {
    /// Locks and holds what `device` has open.
    pub(super) fn take(device: File, path: &Path) -> Result<Pinned, LockError> {
        let system = |error| LockError::Refused(trust::Refused::system(path, error));
        let identity = Identity::of(&device).map_err(system)?;
        let lock = Directory::private(Path::new(LOCKS))?
            .lock(format!("{}:{}", identity.major, identity.minor))?;
        Ok(Pinned { device, path: path.to_path_buf(), identity, _lock: lock })
    }

    /// The device that was granted, for [`open_identical`] in another process.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The path under which it was granted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn device(&self) -> &File {
        &self.device
    }

    /// Whether the device is still the one that was granted, and its path still leads to it.
    pub fn check(&self) -> io::Result<()> {
        Identity::of(&self.device)?.check(&self.identity, &self.path)?;
        open_checked(&self.path, OFlags::RDONLY, &self.identity).map(drop)
    }
}

/// Opens the device at `path` for reading and writing, if it is the one that was granted.
/// `exclusive` keeps it from everybody who takes it exclusively (mount, mkfs, LVM), and fails with
/// `EBUSY` when one of them has it.
///
/// # Errors
///
/// What differs, as text; those of `open(2)`. Nothing was written.
pub fn open_identical(path: &Path, granted: &Identity, exclusive: bool) -> io::Result<File> {
    let exclusively = if exclusive { OFlags::EXCL } else { OFlags::empty() };
    open_checked(path, OFlags::RDWR | exclusively, granted)
}

/// Opens a block device. Whatever else stands there (a FIFO, a tape, a terminal) is not opened,
/// since that alone can do something.
pub(super) fn open(path: &Path, how: OFlags) -> io::Result<Option<File>> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&place)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => again(&place, how).map(Some),
        _ => Ok(None),
    }
}

fn open_checked(path: &Path, how: OFlags, granted: &Identity) -> io::Result<File> {
    let device = open(path, how)?.ok_or_else(|| {
        let text = format!("{} is no block device any more; nothing was written", path.display());
        io::Error::other(text)
    })?;
    Identity::of(&device)?.check(granted, path)?;
    Ok(device)
}

/// Opens once more what `opened` has open, whatever its path leads to by now.
pub(super) fn again(opened: &impl AsFd, how: OFlags) -> io::Result<File> {
    let path = trust::way::descriptor_path(opened.as_fd().as_raw_fd());
    // Without waiting: a drive without a medium is to be looked at as well.
    let flags = how | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
