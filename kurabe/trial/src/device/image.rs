//! `loop:SIZE[@DIR]`: an image file on a disk of the host.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use lab::device::IMAGE;
use lab::quantity::{about_text, size_text};
use rustix::fs::{FallocateFlags, IFlags, OFlags};
use trust::Directory;

use super::fill::FillOrder;
use super::held::{FilledFile, RESERVE_BYTES, free_bytes};
use super::{BackingFacts, Base, DeviceError, DeviceKind, Making, PreparedDevice, Request};

/// An image file.
pub(super) static LOOP: DeviceKind = DeviceKind {
    name: IMAGE,
    notation: "loop:8G or loop:8G@/DIR (an image file)",
    request: |base, _| match base {
        Base::Made { size_bytes, directory, .. } => {
            Ok(Box::new(Image { size_bytes: *size_bytes, directory: directory.clone() }))
        }
        Base::Existing(_) => Err(LOOP.notation.into()),
    },
    ground: |prepared, site| super::held::ground(prepared, true, site),
};

struct Image {
    size_bytes: u64,
    /// The directory that the user named.
    directory: Option<PathBuf>,
}

impl Request for Image {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn prepare(&self, making: &mut Making<'_>) -> Result<Box<dyn PreparedDevice>, DeviceError> {
        let named = self.directory.as_deref().map(open_directory).transpose()?;
        prepare_in(named.as_ref().unwrap_or(making.own), self.size_bytes, making)
    }
}

/// Opens the directory that the user named for the image.
fn open_directory(path: &Path) -> Result<Directory, DeviceError> {
    Directory::open_shared(path).map_err(|refused| {
        let next = if refused.is_missing() { "make it" } else { "take another" };
        DeviceError::Refused(format!(
            "the directory of the image: {refused}; {next}, or name another as loop:SIZE@DIR"
        ))
    })
}

fn prepare_in(
    directory: &Directory,
    size_bytes: u64,
    making: &mut Making<'_>,
) -> Result<Box<dyn PreparedDevice>, DeviceError> {
    let path = fs::canonicalize(directory.descriptor_path())
        .map_err(DeviceError::system(format!("looking at {}", directory.path().display())))?;
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    let backing = BackingFacts::of_directory(&path);
    refuse_memory_backed(directory, &path, size_bytes)?;
    let free_bytes =
        free_bytes(directory.descriptor()).map_err(system("asking for the free space of"))?;
    if size_bytes.saturating_add(RESERVE_BYTES) > free_bytes {
        return Err(DeviceError::Refused(format!(
            "an image of {} does not fit: {} has {} free, of which {} stay free; give a smaller size, or another directory as loop:SIZE@DIR",
            about_text(size_bytes),
            path.display(),
            about_text(free_bytes),
            about_text(RESERVE_BYTES)
        )));
    }
    let file = create_image(directory).map_err(system("creating an image in"))?;
    if backing.as_ref().is_some_and(|backing| backing.file_system == "btrfs") {
        // Otherwise every overwrite of the image goes to a new place, and has no direct I/O.
        // Where it is refused (a file system mounted with compression) the image still works.
        let _ = rustix::fs::ioctl_setflags(&file, IFlags::NOCOW);
    }
    allocate(&file, size_bytes).map_err(system("allocating the image in"))?;
    FilledFile::fill(&LOOP, file, size_bytes, backing, FillOrder::Ascending, making)
        .map_err(system("filling the image in"))
}

/// Creates the image, which nobody else may read (a workload may write secrets) and which has no name
/// that could be left behind or lead to something else one day. Past the page cache where that is
/// possible, so that the filling measures the disk and evicts nothing.
fn create_image(directory: &Directory) -> io::Result<File> {
    let file = directory.nameless_file()?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    match rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(file),
        Err(error) => Err(error.into()),
    }
}

fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => Ok(()),
        // Not every file system can; the filling allocates too, only less evenly.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes),
        Err(error) => Err(error.into()),
    }
}

/// Whether a file lies in memory rather than on a disk.
pub fn lies_in_memory(file: impl AsFd) -> io::Result<bool> {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let found = rustix::fs::fstatfs(file)?;
    Ok([RAMFS_MAGIC, TMPFS_MAGIC].contains(&(found.f_type as u64)))
}

fn refuse_memory_backed(
    directory: &Directory,
    path: &Path,
    size_bytes: u64,
) -> Result<(), DeviceError> {
    let in_memory = lies_in_memory(directory.descriptor());
    if in_memory.map_err(DeviceError::system(format!("looking at {}", path.display())))? {
        return Err(DeviceError::Refused(format!(
            "{} lies in memory, not on a disk; use mem:{} to compare in memory, or name a directory on a disk as loop:{}@DIR",
            path.display(),
            size_text(size_bytes),
            size_text(size_bytes)
        )));
    }
    Ok(())
}
