//! A device that was granted, held from the grant to the end of the study.
//!
//! Invariants: a [`Pinned`] has the device open (not exclusively: mkfs and mount need that
//! themselves) and the lock on its number, which every kurabe of this machine respects. The path
//! that the user gave is resolved once; from then on the device is opened through the descriptor.
//! What is opened is compared with what was granted before a byte of it can be written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use trust::{Directory, FileLock, LockError};

use super::DeviceIdentity;
use crate::node::reopen;

/// Where the locks are: one file for each device number. Only root can look into it.
const LOCKS: &str = "/run/kurabe/devices";

/// A granted device, held open and locked while this lives.
#[derive(Debug)]
pub struct Pinned {
    device: File,
    path: PathBuf,
    identity: DeviceIdentity,
    _lock: FileLock,
}

impl Pinned {
    /// Locks and holds what `device` has open.
    pub(super) fn take(device: File, path: &Path) -> Result<Pinned, LockError> {
        let system = |error| LockError::Refused(trust::Refused::system(path, error));
        let identity = DeviceIdentity::of(&device).map_err(system)?;
        let lock = Directory::private(Path::new(LOCKS))?
            .lock(format!("{}:{}", identity.major, identity.minor))?;
        Ok(Pinned { device, path: path.to_path_buf(), identity, _lock: lock })
    }

    /// The identity of the device that was granted, by which another process knows it again.
    pub fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// The path that the user gave, for messages. It is never opened again: by now it may lead to
    /// another device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where another process of this user's opens the granted device: this process's descriptor
    /// (`/proc/PID/fd/N`). Valid while this lives.
    pub fn descriptor_path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.device.as_raw_fd()).into()
    }

    pub(super) fn device(&self) -> &File {
        &self.device
    }

    /// Whether the device is still as it was when it was granted.
    pub fn check(&self) -> io::Result<()> {
        self.identity.verify(&self.device, &self.path)
    }

    /// Opens the device for reading and writing. `exclusive` keeps it from everybody who takes it
    /// exclusively (mount, mkfs, LVM), and fails with `EBUSY` when one of them has it.
    ///
    /// # Errors
    ///
    /// What differs, as text; those of `open(2)`. Nothing was written.
    pub fn open(&self, exclusive: bool) -> io::Result<File> {
        let exclusively = if exclusive { OFlags::EXCL } else { OFlags::empty() };
        let device = reopen(&self.device, OFlags::RDWR | exclusively)?;
        self.identity.verify(&device, &self.path)?;
        Ok(device)
    }
}

/// Opens a block device by the path that the user gave: the only time that this is done. Whatever
/// else is there (a FIFO, a tape, a terminal) is not opened, since that alone can do something.
pub(super) fn open(path: &Path, how: OFlags) -> io::Result<Option<File>> {
    // A link that another user made could lead to another disk next time.
    let (place, stat) = trust::way::open(path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => reopen(&place, how).map(Some),
        _ => Ok(None),
    }
}
