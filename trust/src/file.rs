//! Files that somebody else may have made, read as data: regular, of a believed owner, below a
//! size. Opening never waits (a FIFO), never follows a stranger's link, never touches a device.
//! Files that the user names to be written: replaced and never written through, but for the
//! streams that the user has open; [`named`] finds those that are written in place.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use crate::{Directory, Refused, way};

/// Bytes of a text file of ours, or of one that a person writes: a study, a job, a plan.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Opens a file for reading.
pub fn open(path: &Path) -> Result<File, Refused> {
    let (place, stat) = way::open(path)?;
    reopen(path, &place, &stat, OFlags::RDONLY)
}

/// Reads a file of at most `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refused> {
    read_all(path, open(path)?, bytes_max)
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String, Refused> {
    into_text(path, read(path, TEXT_BYTES_MAX)?)
}

/// Opens a regular file to read, whoever owns it: for what is looked at and not believed. Nothing is waited
/// for, as a FIFO or a file that the kernel makes up would have it.
///
/// # Errors
///
/// [`Refused`]: it is no regular file, or cannot be read.
pub fn open_of_anybody(path: &Path) -> Result<File, Refused> {
    let system = |error| Refused::system(path, error);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(system)?;
    let stat = rustix::fs::fstat(&place).map_err(system)?;
    reopen_unchecked(path, &place, &stat, OFlags::RDONLY)
}

/// Opens what a user names to be read and copied: a regular file or a block device, whoever owns it, or what
/// the user has open already (`/dev/stdin`, `/dev/fd/63` of a shell's `<(...)`), of any kind.
///
/// # Errors
///
/// [`Refused`]: it is anything else, such as a FIFO that somebody may never write to, or cannot be read.
pub fn open_to_copy(path: &Path) -> Result<File, Refused> {
    let system = |error| Refused::system(path, error);
    if is_own_descriptor(path) || path == Path::new("/dev/null") {
        return File::open(path).map_err(|error| Refused::system(path, error));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(system)?;
    let stat = rustix::fs::fstat(&place).map_err(system)?;
    if way::kind(&stat) == FileType::BlockDevice {
        let again = way::descriptor_path(place.as_raw_fd());
        return File::open(again).map_err(|error| Refused::system(path, error));
    }
    reopen_unchecked(path, &place, &stat, OFlags::RDONLY)
}

/// Reads a text file whoever owns it, to show it to somebody and for nothing else.
///
/// # Errors
///
/// [`Refused`]: it is a link, no regular file, too large or no text.
pub fn read_text_of_anybody(path: &Path) -> Result<String, Refused> {
    let system = |error| Refused::system(path, error);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(system)?;
    let stat = rustix::fs::fstat(&place).map_err(system)?;
    let file = reopen_unchecked(path, &place, &stat, OFlags::RDONLY)?;
    into_text(path, read_all(path, file, TEXT_BYTES_MAX)?)
}

/// Writes a file that the user named, as a whole; `/dev/null`, `/dev/stdout` and `/dev/stderr` are
/// written as they are.
///
/// # Errors
///
/// As of [`check_target`], and what the system says; what had the name is as it was.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Refused> {
    if let Some(stream) = stream(path) {
        let mut stream = stream.map_err(|error| Refused::system(path, error))?;
        return stream.write_all(bytes).map_err(|error| Refused::system(path, error));
    }
    let (directory, name) = target(path)?;
    directory.replace(name, bytes, PUBLIC)
}

/// Opens a file that the user named to append to it, and makes it when it is missing.
pub fn append(path: &Path) -> Result<File, Refused> {
    if let Some(stream) = stream(path) {
        return stream.map_err(|error| Refused::system(path, error));
    }
    let (directory, name) = target(path)?;
    if directory.has(name) {
        directory.append_file(name)
    } else {
        directory.create_file(name, PUBLIC)
    }
}

/// Whether [`write`] can write a file of this name. Touches nothing.
///
/// # Errors
///
/// [`Refused`]: its directory is missing or a stranger's, or the name is that of something else
/// than a file of a believed owner.
pub fn check_target(path: &Path) -> Result<(), Refused> {
    if is_stream(path) {
        return Ok(());
    }
    let (directory, _) = target(path)?;
    // A new file takes the place of the one that is there; who may do all cannot on what is read-only.
    let rights = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(directory.descriptor_path(), rights)
        .map_err(|error| Refused::system(directory.path(), error))
}

/// Whether a path stands for a stream that is open already, and no file will be there.
pub fn is_stream(path: &Path) -> bool {
    ["/dev/null", "/dev/stdout", "/dev/stderr"].iter().any(|stream| path == Path::new(stream))
}

/// What a path leads to that the user named to be written in place: a device, an image, a pipe.
#[derive(Debug)]
pub enum Named {
    /// Something is there.
    There(FoundFile),
    /// Nothing is: the directory where it can be made, and the name there.
    Missing(Directory, OsString),
}

/// A file of any kind that was found and not opened yet. Its owner was not asked.
#[derive(Debug)]
pub struct FoundFile {
    opened: OwnedFd,
    stat: Stat,
    path: PathBuf,
}

/// Finds what a path leads to. Links of trusted owners are followed, so a user's own ones work; a
/// stranger's are refused, and directories that strangers can change. `/dev/stdout`, `/dev/fd/N` and the
/// like lead to what this process has open.
///
/// # Errors
///
/// [`Refused`]; a link that leads nowhere is refused too, not made into a file elsewhere.
pub fn named(path: &Path) -> Result<Named, Refused> {
    let system = |error: rustix::io::Errno| Refused::system(path, error);
    if is_own_descriptor(path) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(system)?;
        let stat = rustix::fs::fstat(&opened).map_err(system)?;
        return Ok(Named::There(FoundFile { opened, stat, path: path.into() }));
    }
    match way::open(path) {
        Ok((opened, stat)) => Ok(Named::There(FoundFile { opened, stat, path: path.into() })),
        Err(refused) if refused.is_missing() => {
            let (directory, name) = target(path)?;
            if directory.has(name) {
                Err(refused)
            } else {
                Ok(Named::Missing(directory, name.into()))
            }
        }
        Err(refused) => Err(refused),
    }
}

impl FoundFile {
    /// Refuses what belongs to a stranger.
    pub fn believe_owner(&self) -> Result<(), Refused> {
        way::believe(&self.path, self.stat.st_uid)
    }

    /// A path that leads to the very file that was found, while this lives.
    pub fn descriptor_path(&self) -> PathBuf {
        way::descriptor_path(self.opened.as_raw_fd())
    }
}

/// Whether a path leads to what this process has open, and to nothing else.
fn is_own_descriptor(path: &Path) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(text) = path.to_str() else { return false };
    ["/dev/stdin", "/dev/stdout", "/dev/stderr"].contains(&text)
        || ["/dev/fd/", "/proc/self/fd/"]
            .iter()
            .any(|prefix| text.strip_prefix(prefix).is_some_and(number))
}

/// Rights of a file that the user asked for.
const PUBLIC: u32 = 0o644;

fn stream(path: &Path) -> Option<io::Result<File>> {
    let opened = match path.to_str()? {
        "/dev/null" => File::options().write(true).open(path),
        "/dev/stdout" => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        "/dev/stderr" => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => return None,
    };
    Some(opened)
}

fn target(path: &Path) -> Result<(Directory, &OsStr), Refused> {
    let no_file = || Refused::Kind { path: path.into(), is: "a directory", wanted: "a file" };
    let name = path.file_name().ok_or_else(no_file)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let directory = Directory::open_shared(above.unwrap_or(Path::new(".")))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory.descriptor(), name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(Refused::system(path, error)),
        Ok(place) => {
            let stat = rustix::fs::fstat(&place).map_err(|error| Refused::system(path, error))?;
            way::believe(path, stat.st_uid)?;
            if !matches!(way::kind(&stat), FileType::RegularFile | FileType::Symlink) {
                let is = way::kind_text(&stat);
                return Err(Refused::Kind { path: path.into(), is, wanted: "a regular file" });
            }
        }
    }
    Ok((directory, name))
}

/// Opens what `place` stands for, once it is known to be a regular file of a believed owner.
pub(crate) fn reopen(
    path: &Path,
    place: &OwnedFd,
    stat: &Stat,
    how: OFlags,
) -> Result<File, Refused> {
    if way::kind(stat) == FileType::RegularFile {
        way::check(path, place, stat)?;
    }
    reopen_unchecked(path, place, stat, how)
}

fn reopen_unchecked(
    path: &Path,
    place: &OwnedFd,
    stat: &Stat,
    how: OFlags,
) -> Result<File, Refused> {
    let is = match way::kind(stat) {
        FileType::RegularFile if !is_of_kernel(place) => None,
        FileType::RegularFile => Some("a file that the kernel makes up"),
        _ => Some(way::kind_text(stat)),
    };
    if let Some(is) = is {
        return Err(Refused::Kind { path: path.into(), is, wanted: "a regular file" });
    }
    // The descriptor leads to the very file that was looked at, whatever its name leads to by now.
    let flags = how | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let again = way::descriptor_path(place.as_raw_fd());
    let opened = rustix::fs::open(again, flags, Mode::empty());
    Ok(opened.map_err(|error| Refused::system(path, error))?.into())
}

/// File systems whose files the kernel makes up as they are read, which may wait for ever
/// (`/proc/kmsg`, `trace_pipe`) and tell no size: procfs, sysfs, debugfs, tracefs, securityfs, both versions of
/// cgroup, configfs and bpf, by their magic numbers in statfs(2).
const OF_KERNEL: [i64; 9] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0xcafe_4a11,
];

/// Whether what is open is a file of a file system that holds no data.
pub fn is_of_kernel(opened: impl AsFd) -> bool {
    rustix::fs::fstatfs(opened).is_ok_and(|facts| OF_KERNEL.contains(&facts.f_type))
}

pub(crate) fn read_all(path: &Path, file: File, bytes_max: u64) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Refused::system(path, error))?;
    if bytes.len() as u64 > bytes_max {
        Err(Refused::TooLarge { path: path.into(), bytes_max })
    } else {
        Ok(bytes)
    }
}

pub(crate) fn into_text(path: &Path, bytes: Vec<u8>) -> Result<String, Refused> {
    String::from_utf8(bytes).map_err(|_| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8 text");
        Refused::system(path, error)
    })
}
