//! The device nodes that programs are given.
//!
//! A name such as `/dev/disk/by-id/X` can lead to another disk at any time. So no program of a trial
//! is ever given the name that the user typed, nor one in `/dev`: it gets a node that was made for
//! the number of an open, checked device, in a directory that only root and only this trial can see.
//! A [`DeviceNode`] cannot be made from a path. The record shows the name that the user typed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

use crate::scratch::Occupied;

/// A node of a device that is open in this process or its runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    path: PathBuf,
    shown: String,
}

impl DeviceNode {
    /// Makes a node of what `device` has open. `shown` is what messages and the record call it.
    ///
    /// The device must stay open as long as the node is used, so that its number cannot pass to
    /// another device.
    ///
    /// Errors: `device` is no block device; mknod(2) failed.
    pub fn of(device: &File, shown: &Path, scratch: &Occupied) -> io::Result<DeviceNode> {
        let stat = rustix::fs::fstat(device)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            let text = format!("{} is not a block device", shown.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        // Programs show the last part of the path; sysfs says what the kernel calls the device.
        let kernel_name = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
        let kernel_name = kernel_name.ok().and_then(|path| Some(path.file_name()?.to_owned()));
        let name = kernel_name.unwrap_or_else(|| format!("{major}-{minor}").into());
        let path = scratch.nodes().join(name);
        let node = DeviceNode { path, shown: shown.display().to_string() };
        match rustix::fs::mknodat(CWD, &node.path, FileType::BlockDevice, MODE, stat.st_rdev) {
            Ok(()) => Ok(node),
            // The same device was attached before in this trial.
            Err(rustix::io::Errno::EXIST) if node.leads_to(stat.st_rdev) => Ok(node),
            Err(error) => {
                let error = io::Error::from(error);
                let text = format!("making the device node {}: {error}", node.path.display());
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// A node of no device, for tests of command lines.
    #[cfg(test)]
    pub(crate) fn of_nothing(path: &str) -> DeviceNode {
        DeviceNode { path: path.into(), shown: path.into() }
    }

    fn leads_to(&self, number: u64) -> bool {
        let found = std::fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| {
            FileType::from_raw_mode(found.mode()) == FileType::BlockDevice && found.rdev() == number
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What messages and the record call it: the path that the user typed, or `/dev/loopN`.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// `text` with what messages call the device in the place of the node's path.
    pub fn show_in(&self, text: &str) -> String {
        text.replace(&*self.path.to_string_lossy(), &self.shown)
    }

    /// Removes the node. Nobody uses it any more.
    pub(super) fn remove(&self) {
        // It goes with the trial's namespace at the latest.
        let _ = std::fs::remove_file(&self.path);
    }
}

const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
