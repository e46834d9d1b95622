//! Files that somebody else may have made, read as data: regular, of a believed owner, below a
//! size. Opening never waits (a FIFO), never follows a stranger's link, never touches a device.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::{Refused, way};

/// Bytes of a text file of ours, or of one that a person writes: a study, a job, a plan.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Opens a file for reading.
///
/// # Errors
///
/// [`Refused`], with the next step.
pub fn open(path: &Path) -> Result<File, Refused> {
    let (place, stat) = way::open(path)?;
    reopen(path, &place, &stat, OFlags::RDONLY)
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// [`Refused`], with the next step.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refused> {
    read_all(path, open(path)?, bytes_max)
}

/// Reads a text file.
///
/// # Errors
///
/// [`Refused`], with the next step; also of one that is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, Refused> {
    into_text(path, read(path, TEXT_BYTES_MAX)?)
}

/// Opens what `place` stands for, once it is known to be a regular file of a believed owner.
pub(crate) fn reopen(
    path: &Path,
    place: &OwnedFd,
    stat: &Stat,
    how: OFlags,
) -> Result<File, Refused> {
    if way::kind(stat) != FileType::RegularFile {
        let is = way::kind_text(stat);
        return Err(Refused::Kind { path: path.into(), is, wanted: "a regular file" });
    }
    way::check(path, place, stat)?;
    // The descriptor leads to the very file that was looked at, whatever its name leads to by now.
    let flags = how | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let again = way::descriptor_path(place.as_raw_fd());
    let opened = rustix::fs::open(again, flags, Mode::empty());
    Ok(opened.map_err(|error| Refused::system(path, error))?.into())
}

pub(crate) fn read_all(path: &Path, file: File, bytes_max: u64) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Refused::system(path, error))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(Refused::TooLarge { path: path.into(), bytes_max }),
        false => Ok(bytes),
    }
}

pub(crate) fn into_text(path: &Path, bytes: Vec<u8>) -> Result<String, Refused> {
    String::from_utf8(bytes).map_err(|_| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8 text");
        Refused::system(path, error)
    })
}
