//! Private loop devices: added, attached, detached and removed again.
//!
//! A node of one's own from `/dev/loop-control` rather than the next free one, because the
//! settings of a queue outlive a detach, and because two programs may find the same free one.
//! Invariant: nothing is detached or removed unless its backing file is the one that was named.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::{LoopStatus, loop_status, remove_loop};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::sys::loop_device;

/// The file behind a loop device: its file system's device number and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    /// Device number, as `stat` has it.
    pub file_system: u64,
    pub inode: u64,
}

impl Backing {
    /// The identity of an open file.
    pub fn of(file: &File) -> io::Result<Backing> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Backing { file_system: stat.st_dev, inode: stat.st_ino })
    }
}

/// First number of a private loop device; far from those that other programs are given.
const INDEX_FIRST: u32 = 1000;
/// How many numbers there are to choose from. A kernel that reserves 63 partitions for each loop
/// device ends at 16383.
const INDEX_COUNT: u32 = 15_000;

/// A number for a private loop device. Random, so that two programs rarely try the same.
pub fn random_index() -> u32 {
    INDEX_FIRST + (crate::ledger::random_bits() % u64::from(INDEX_COUNT)) as u32
}

/// Opens `/dev/loop-control`.
pub fn open_control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(|error| {
        io::Error::new(
            error.kind(),
            format!(
                "/dev/loop-control: {error}; loop devices need root and the kernel's loop driver (modprobe loop)"
            ),
        )
    })
}

/// Opens a loop device by its number, so that no name in `/dev` takes part.
pub fn open(index: u32, how: OFlags) -> io::Result<File> {
    block::node::open(device_number(index)?, how)
}

/// What a loop device is called.
pub fn name(index: u32) -> PathBuf {
    format!("/dev/loop{index}").into()
}

fn device_number(index: u32) -> io::Result<(u32, u32)> {
    let path = format!("/sys/block/loop{index}/dev");
    let text = fs::read_to_string(&path)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{path} says '{text}'"));
    let (major, minor) = text.trim().split_once(':').ok_or_else(invalid)?;
    Ok((major.parse().map_err(|_| invalid())?, minor.parse().map_err(|_| invalid())?))
}

/// How long a loop device that is still busy is waited for.
pub const RELEASE_WAIT_MAX: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// What became of a loop device that was to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// It was detached, where it was attached, and removed.
    Removed,
    /// There was none.
    Absent,
    /// Somebody else attached a file of theirs to it; it was left alone.
    TakenOver,
}

/// Detaches `backing` from loop device `index` and removes the device, waiting for its users to
/// go.
/// Errors: `EBUSY` when it is still in use after `wait_max`.
pub fn release(index: u32, backing: Backing, wait_max: Duration) -> io::Result<Released> {
    let control = open_control()?;
    let until = Instant::now() + wait_max;
    loop {
        if !Path::new(&format!("/sys/block/loop{index}")).exists() {
            return Ok(Released::Absent);
        }
        if let Some(attached) = attached_file(index)? {
            if attached.backing() != backing {
                return Ok(Released::TakenOver);
            }
            match loop_device::clear(&attached.node) {
                // The kernel detaches once this was the last user; ENXIO says it already did.
                Ok(()) => {}
                Err(error) if is_one_of(&error, &[libc::ENXIO, libc::EBUSY]) => {}
                Err(error) => return Err(error),
            }
        }
        match remove_loop(control.as_fd(), index) {
            Ok(()) => return Ok(Released::Removed),
            Err(error) if is_one_of(&error, &[libc::ENODEV]) => return Ok(Released::Absent),
            Err(error) if is_one_of(&error, &[libc::EBUSY]) => {
                if Instant::now() >= until {
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "loop device {index} is still in use after {} s{}",
                            wait_max.as_secs_f32(),
                            users_text(index)
                        ),
                    ));
                }
                std::thread::sleep(RETRY_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The same for what a dead process had attached: only a file that has no name any more. Nothing
/// but its number tells such a file from others, and a number is given again.
pub fn release_nameless(index: u32, backing: Backing, wait_max: Duration) -> io::Result<Released> {
    // The node is closed again before anything is released: an open one is a user of the device.
    let has_named = attached_file(index)?.is_some_and(|attached| attached.backing() == backing)
        && has_name(index, backing);
    if has_named { Ok(Released::TakenOver) } else { release(index, backing, wait_max) }
}

/// Whether the file behind a loop device can still be found by a name. The kernel says
/// `/the/name (deleted)` of one that cannot; a file can be called so too. Of a file of a server that has
/// died (FUSE) it says nothing, but its file system is mounted nowhere any more.
fn has_name(index: u32, backing: Backing) -> bool {
    let path = format!("/sys/block/loop{index}/loop/backing_file");
    let Ok(shown) = fs::read(path) else { return false };
    let name = shown.strip_suffix(b"\n").unwrap_or(&shown);
    let found = fs::metadata(std::ffi::OsStr::from_bytes(name));
    let is_it =
        |found: fs::Metadata| (found.dev(), found.ino()) == (backing.file_system, backing.inode);
    let number = (rustix::fs::major(backing.file_system), rustix::fs::minor(backing.file_system));
    let mounts = trust::mounts::mounts();
    let is_mounted = mounts.is_ok_and(|all| all.iter().any(|mount| mount.device == number));
    is_mounted && !name.ends_with(b" (deleted)") || found.is_ok_and(is_it)
}

fn is_one_of(error: &io::Error, codes: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Names the mounts that hold a loop device, when this process sees them.
fn users_text(index: u32) -> String {
    let Ok(number) = device_number(index) else { return String::new() };
    let mounts = trust::mounts::mounts().unwrap_or_default();
    let points: Vec<String> = mounts
        .iter()
        .filter(|mount| mount.device == number)
        .map(|mount| mount.point.display().to_string())
        .collect();
    if points.is_empty() { String::new() } else { format!(" (mounted on {})", points.join(", ")) }
}

struct Attached {
    node: File,
    status: LoopStatus,
}

impl Attached {
    fn backing(&self) -> Backing {
        Backing { file_system: self.status.file_system, inode: self.status.inode }
    }
}

/// Opens a loop device that has a file attached.
fn attached_file(index: u32) -> io::Result<Option<Attached>> {
    // Looked at first because an open is itself a use that would keep the device busy.
    if !Path::new(&format!("/sys/block/loop{index}/loop/backing_file")).exists() {
        return Ok(None);
    }
    let node = match open(index, OFlags::RDONLY) {
        Ok(node) => node,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if is_one_of(&error, &[libc::ENXIO]) => return Ok(None),
        Err(error) => return Err(error),
    };
    match loop_status(node.as_fd()) {
        Ok(status) => Ok(Some(Attached { node, status })),
        Err(error) if is_one_of(&error, &[libc::ENXIO]) => Ok(None),
        Err(error) => Err(error),
    }
}
