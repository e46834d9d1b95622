//! Opens a block device by its number, or by a descriptor, whatever the nodes in `/dev` lead to.
//!
//! Must not know what the device is for. Invariant: no name that another process can see or change
//! takes part.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

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
    /// # Errors
    ///
    /// Those of mknod(2) and open(2): `ENXIO` when there is no such device.
    pub fn open(&self, (major, minor): (u32, u32), how: OFlags) -> io::Result<File> {
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
