//! Opens a block device by its number, or by a descriptor, whatever the nodes in `/dev` lead to.
//!
//! Must not know what the device is for. Invariant: no name that another process can see or change
//! takes part.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::sys;

/// The major number of loop devices, and where sysfs lists block devices by number.
const LOOP_MAJOR: u32 = 7;
const NUMBERS: &str = "/sys/dev/block";
/// How often a loop device is opened that changes while it is.
const ATTEMPTS_MAX: u32 = 4;

/// A file system in memory that is mounted nowhere. It is gone when this is dropped.
#[derive(Debug)]
pub struct NodeDirectory(OwnedFd);

impl NodeDirectory {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn make() -> io::Result<NodeDirectory> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Ok(NodeDirectory(rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())?))
    }

    /// Opens the block device with this major and minor number.
    ///
    /// The kernel makes a loop device that is opened by a number which none has. One that somebody removes
    /// between a look at the list and the opening is not to come back: what was made so is removed.
    ///
    /// # Errors
    ///
    /// Those of mknod(2) and open(2): `ENXIO` when there is no such device.
    pub fn open(&self, number: (u32, u32), how: OFlags) -> io::Result<File> {
        if number.0 != LOOP_MAJOR || !Path::new(NUMBERS).exists() {
            return self.open_whatever(number, how);
        }
        let directory = format!("{NUMBERS}/{}:{}", number.0, number.1);
        let sequence = || fs::read_to_string(format!("{directory}/diskseq"));
        for _ in 0..ATTEMPTS_MAX {
            let Ok(name) = fs::read_link(&directory) else { break };
            let before = sequence();
            let opened = self.open_whatever(number, how)?;
            let same = match (&before, sys::disk_sequence(opened.as_fd())) {
                (Ok(before), Ok(now)) => before.trim() == now.to_string(),
                // An older kernel numbers none.
                _ => true,
            };
            if same {
                return Ok(opened);
            }
            drop(opened);
            let index = name.file_name().and_then(|name| name.to_str()?.strip_prefix("loop"));
            if let Some(Ok(index)) = index.map(str::parse)
                && !Path::new(&format!("{directory}/loop/backing_file")).exists()
                && let Ok(control) = File::open("/dev/loop-control")
            {
                // Whoever has it open or attaches something to it keeps it.
                let _ = sys::remove_loop(control.as_fd(), index);
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENXIO))
    }

    fn open_whatever(&self, (major, minor): (u32, u32), how: OFlags) -> io::Result<File> {
        let name = format!("{major}:{minor}");
        let number = rustix::fs::makedev(major, minor);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&self.0, &name, FileType::BlockDevice, mode, number)?;
        let opened = rustix::fs::openat(&self.0, &name, how | OFlags::CLOEXEC, Mode::empty());
        rustix::fs::unlinkat(&self.0, &name, AtFlags::empty())?;
        Ok(opened?.into())
    }
}

/// Opens the block device with this major and minor number.
///
/// # Errors
///
/// Those of [`NodeDirectory`].
pub fn open(number: (u32, u32), how: OFlags) -> io::Result<File> {
    NodeDirectory::make()?.open(number, how)
}

/// Opens once more what `opened` has open, whatever its path leads to by now.
///
/// # Errors
///
/// Those of open(2).
pub fn reopen(opened: &impl AsFd, how: OFlags) -> io::Result<File> {
    let path = trust::way::descriptor_path(opened.as_fd().as_raw_fd());
    // Without waiting: a drive without a medium is to be looked at as well.
    let flags = how | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_loop_device_is_made_by_looking_for_one() {
        let Ok(nodes) = NodeDirectory::make() else {
            eprintln!("SKIPPED: nodes of devices are made by root alone");
            return;
        };
        // Far from the numbers that programs use.
        let number = (LOOP_MAJOR, 900_017);
        let directory = format!("{NUMBERS}/{}:{}", number.0, number.1);
        if Path::new(&directory).exists() || !Path::new(NUMBERS).exists() {
            eprintln!("SKIPPED: there is no sysfs, or such a loop device");
            return;
        }
        let error = nodes.open(number, OFlags::RDONLY | OFlags::NONBLOCK).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        assert!(!Path::new(&directory).exists());
        // What the kernel would have done, where it does.
        if let Ok(opened) = nodes.open_whatever(number, OFlags::RDONLY | OFlags::NONBLOCK) {
            drop(opened);
            let name = fs::read_link(&directory).unwrap();
            let name = name.file_name().unwrap().to_str().unwrap();
            let control = File::open("/dev/loop-control").unwrap();
            sys::remove_loop(control.as_fd(), name.strip_prefix("loop").unwrap().parse().unwrap())
                .unwrap();
        }
    }
}
