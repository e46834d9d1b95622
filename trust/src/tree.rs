//! Trees of directories whose depth others chose: a load can nest directories until the stack or
//! the descriptors of whoever walks them are used up.
//!
//! Invariants: a walk is a loop and holds three descriptors at most, however deep the tree is. It
//! goes back up by `..` and checks that it came to the directory that it had left. It stays on one
//! mount, so it does not enter what is bound below either.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::Refused;

/// Names below the top that a message shows. Of more it shows the last.
const SHOWN_MAX: usize = 4;

const AS_DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a file, or a directory with everything below, on its own mount only. The way to `path`
/// is the caller's to trust; its last name is not followed if it is a link.
///
/// # Errors
///
/// What the system said; where something is mounted below, that it is busy.
pub fn remove(path: &Path) -> Result<(), Refused> {
    let system = |error: Errno| Refused::system(path, error);
    let name = path.file_name().ok_or_else(|| system(Errno::INVAL))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::openat(CWD, above.unwrap_or(Path::new(".")), flags, Mode::empty());
    remove_at(above.map_err(system)?.as_fd(), name, path)
}

/// Removes `name` in the directory `above`; `path` is what messages call it.
pub(crate) fn remove_at(above: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), Refused> {
    let system = |error: Errno| Refused::system(path, error);
    let unlink = |flags| rustix::fs::unlinkat(above, name, flags).map_err(system);
    let top = match rustix::fs::openat(above, name, AS_DIRECTORY, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOTDIR | Errno::LOOP) => return unlink(AtFlags::empty()),
        Err(error) => return Err(system(error)),
    };
    let place = Identity::of(above).map_err(system)?;
    if !Identity::of(top.as_fd()).map_err(system)?.is_on_the_mount_of(&place) {
        return Err(system(Errno::BUSY));
    }
    walk(top, path, |step| {
        let removed = match step {
            WalkStep::File(directory, name) => {
                rustix::fs::unlinkat(directory, name, AtFlags::empty())
            }
            WalkStep::Directory(_) => Ok(()),
            WalkStep::Left(above, name) => rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR),
        };
        // What somebody else removed meanwhile is gone all the same.
        if removed == Err(Errno::NOENT) { Ok(()) } else { removed }
    })?;
    unlink(AtFlags::REMOVEDIR)
}

/// A step of a [`walk`].
#[derive(Debug)]
pub enum WalkStep<'a> {
    /// Something that is no directory, in its directory.
    File(BorrowedFd<'a>, &'a OsStr),
    /// A directory, the top among them, after its files.
    Directory(BorrowedFd<'a>),
    /// A directory by its name in the one above it, after everything below it. Not the top.
    Left(BorrowedFd<'a>, &'a OsStr),
}

/// Walks the tree below the directory `top`, which messages call `path`.
///
/// # Errors
///
/// What `visit` or the system said, with a short path. Something mounted below is busy. A directory
/// that was moved during the walk ends it.
pub fn walk(
    top: OwnedFd,
    path: &Path,
    mut visit: impl FnMut(WalkStep<'_>) -> Result<(), Errno>,
) -> Result<(), Refused> {
    let mut walk = Walk { at: top, levels: Vec::new() };
    let walked = walk.enter(OsString::new(), &mut visit).and_then(|()| {
        while walk.step(&mut visit)? {}
        Ok(())
    });
    walked.map_err(|stop| Refused::system(&walk.shown(path, &stop.name), stop.error))
}

/// Where a walk is: the directory that it has open, and what it has to remember of those above.
struct Walk {
    at: OwnedFd,
    levels: Vec<Level>,
}

/// A directory between the top and where the walk is.
struct Level {
    own: Identity,
    name: OsString,
    /// Directories in it that the walk has yet to enter.
    pending: Vec<OsString>,
}

/// Why a walk ended, and at which name in its directory; empty for the directory itself.
struct Stop {
    name: OsString,
    error: std::io::Error,
}

impl Stop {
    fn at(name: &OsStr) -> impl Fn(Errno) -> Stop + use<> {
        let name = name.to_os_string();
        move |error| Stop { name: name.clone(), error: error.into() }
    }
}

impl Walk {
    /// Visits the directory `at`, which is called `name`, and adds its level.
    fn enter(
        &mut self,
        name: OsString,
        visit: &mut impl FnMut(WalkStep<'_>) -> Result<(), Errno>,
    ) -> Result<(), Stop> {
        let own = Identity::of(self.at.as_fd()).map_err(Stop::at("".as_ref()))?;
        self.levels.push(Level { own, name, pending: Vec::new() });
        let (files, pending) = names(self.at.as_fd()).map_err(Stop::at("".as_ref()))?;
        for file in files {
            visit(WalkStep::File(self.at.as_fd(), &file)).map_err(Stop::at(&file))?;
        }
        visit(WalkStep::Directory(self.at.as_fd())).map_err(Stop::at("".as_ref()))?;
        self.levels.last_mut().expect("it was pushed above").pending = pending;
        Ok(())
    }

    /// Goes one directory down or up; says whether there is more to do.
    fn step(
        &mut self,
        visit: &mut impl FnMut(WalkStep<'_>) -> Result<(), Errno>,
    ) -> Result<bool, Stop> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        let Some(name) = level.pending.pop() else { return self.leave(visit) };
        let failed = Stop::at(&name);
        match rustix::fs::openat(&self.at, &name, AS_DIRECTORY, Mode::empty()) {
            Ok(directory) => {
                let own = Identity::of(directory.as_fd()).map_err(&failed)?;
                if !own.is_on_the_mount_of(&level.own) {
                    return Err(failed(Errno::BUSY));
                }
                self.at = directory;
                self.enter(name, visit)?;
            }
            // It was a directory a moment ago.
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                visit(WalkStep::File(self.at.as_fd(), &name)).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(true)
    }

    /// Goes back to the directory above.
    fn leave(
        &mut self,
        visit: &mut impl FnMut(WalkStep<'_>) -> Result<(), Errno>,
    ) -> Result<bool, Stop> {
        let Some(left) = self.levels.pop() else { return Ok(false) };
        let Some(above) = self.levels.last() else { return Ok(false) };
        let failed = Stop::at(&left.name);
        let up =
            rustix::fs::openat(&self.at, "..", AS_DIRECTORY, Mode::empty()).map_err(&failed)?;
        if Identity::of(up.as_fd()).map_err(&failed)? != above.own {
            let error = std::io::Error::other("it was moved away meanwhile; end what did that");
            return Err(Stop { name: left.name, error });
        }
        self.at = up;
        visit(WalkStep::Left(self.at.as_fd(), &left.name)).map_err(failed)?;
        Ok(true)
    }

    /// The path to `name` where the walk is, without most of its directories if there are many.
    fn shown(&self, top: &Path, name: &OsStr) -> PathBuf {
        let names = self.levels.iter().skip(1).map(|level| level.name.as_os_str());
        let names: Vec<&OsStr> = names.chain(Some(name).filter(|name| !name.is_empty())).collect();
        match names.as_slice() {
            [.., last] if names.len() > SHOWN_MAX => {
                top.join(format!("({} directories)", names.len() - 1)).join(last)
            }
            names => {
                top.components().map(|part| part.as_os_str()).chain(names.iter().copied()).collect()
            }
        }
    }
}

/// Which directory it is, and by which mount it was reached.
#[derive(PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

impl Identity {
    fn of(directory: BorrowedFd<'_>) -> Result<Identity, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let facts = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)?;
        Ok(Identity {
            device: (facts.stx_dev_major, facts.stx_dev_minor),
            inode: facts.stx_ino,
            // Linux before 5.8 leaves it 0.
            mount: facts.stx_mnt_id,
        })
    }

    fn is_on_the_mount_of(&self, other: &Identity) -> bool {
        (self.device, self.mount) == (other.device, other.mount)
    }
}

/// The names in a directory: of files of any kind, and of directories. The place alone cannot be
/// read from.
fn names(directory: BorrowedFd<'_>) -> Result<(Vec<OsString>, Vec<OsString>), Errno> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    for entry in rustix::fs::Dir::new(readable)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match entry.file_type() {
            // Where the file system does not say it with the name, opening it as a directory tells.
            FileType::Directory | FileType::Unknown => directories.push(name.to_os_string()),
            _ => files.push(name.to_os_string()),
        }
    }
    Ok((files, directories))
}
