//! A directory that was opened once and is used by descriptor: what it holds cannot be exchanged
//! for something else by renaming a directory above it.
//!
//! Invariants: a [`Directory`] is of a believed owner and nobody else can write it, and so is
//! every directory on the way to it. A file in it is opened without following links. What is
//! written goes into a new file of a random name first, created exclusively.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::{Refused, file, tree, way};

/// The directory of root's kurabe.
const OWN: &str = "/var/lib/kurabe";

/// Rights of what kurabe makes for itself.
const PRIVATE: u32 = 0o700;

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    opened: OwnedFd,
    path: PathBuf,
}

/// A lock on a file of a [`Directory`], held while it lives. The kernel gives it back with the
/// process. The file stays.
#[derive(Debug)]
pub struct FileLock(File);

impl Drop for FileLock {
    /// Closing is not enough: a child between fork(2) and execve(2) has a copy of the descriptor.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Why a lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("process {pid} has it")]
    Held {
        /// What the holder wrote: its process number; 0 where it could not.
        pid: u32,
    },
    /// What the system said.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the next step: a stranger owns or can change it, or the way to it.
    pub fn open(path: &Path) -> Result<Directory, Refused> {
        let (place, stat) = way::open(path)?;
        Directory::checked(path, place, &stat)
    }

    /// Opens a directory to make something in it: as [`Directory::open`], but it may be sticky and
    /// everybody's, as `/tmp` is, since nobody else can touch what is made there.
    pub fn open_shared(path: &Path) -> Result<Directory, Refused> {
        let (place, stat) = way::open(path)?;
        if way::kind(&stat) != FileType::Directory {
            return Directory::checked(path, place, &stat);
        }
        way::check_directory(path, &place, &stat)?;
        Directory::reopened(path, &place)
    }

    /// Opens a directory and makes it, and the ones above it, when they are missing.
    pub fn open_or_make(path: &Path, mode: u32) -> Result<Directory, Refused> {
        match Directory::open(path) {
            Err(refused) if refused.is_missing() => {}
            other => return other,
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Directory::open(path);
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        // A name that was not there and is made now is nobody else's, in a sticky directory too.
        let above = match Directory::open_shared(above) {
            Err(refused) if refused.is_missing() => Directory::open_or_make(above, mode)?,
            above => above?,
        };
        Ok(Directory { path: path.into(), ..above.open_or_make_directory(name, mode)? })
    }

    /// kurabe's own directory, made when it is missing: `/var/lib/kurabe` of root, below
    /// `XDG_STATE_HOME` or `~/.local/state` of others; `KURABE_HOME` overrides it. Nobody but its
    /// user can look into it.
    ///
    /// # Errors
    ///
    /// It cannot be made, belongs to somebody else or is open to others; no home is known.
    pub fn own() -> Result<Directory, Refused> {
        Directory::private(&own_path()?)
    }

    /// Opens a directory that only its user can look into, made when it is missing.
    pub fn private(path: &Path) -> Result<Directory, Refused> {
        let private = Directory::open_or_make(path, PRIVATE)?;
        private.check_private()?;
        Ok(private)
    }

    fn check_private(&self) -> Result<(), Refused> {
        let stat = rustix::fs::fstat(&self.opened).map_err(|error| self.system(error))?;
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != own {
            let owner = crate::owner::name(stat.st_uid);
            let text = format!("it belongs to user {owner}; it must be your own");
            return Err(Refused::system(&self.path, std::io::Error::other(text)));
        }
        // To pass through without looking, as a load's user may have to, is no harm.
        if stat.st_mode & 0o066 != 0 {
            let text = format!("others can look into it; chmod 700 {}", self.path.display());
            return Err(Refused::system(&self.path, std::io::Error::other(text)));
        }
        Ok(())
    }

    fn checked(path: &Path, place: OwnedFd, stat: &Stat) -> Result<Directory, Refused> {
        if way::kind(stat) != FileType::Directory {
            let is = way::kind_text(stat);
            return Err(Refused::Kind { path: path.into(), is, wanted: "a directory" });
        }
        way::check(path, &place, stat)?;
        Directory::reopened(path, &place)
    }

    fn reopened(path: &Path, place: &OwnedFd) -> Result<Directory, Refused> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(place, ".", flags, Mode::empty())
            .map_err(|error| Refused::system(path, error))?;
        Ok(Directory { opened, path: path.into() })
    }

    /// Another handle on the same directory.
    pub fn try_clone(&self) -> Result<Directory, Refused> {
        let opened = self.opened.try_clone().map_err(|error| Refused::system(&self.path, error))?;
        Ok(Directory { opened, path: self.path.clone() })
    }

    /// Where it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }

    /// A path that leads to this very directory in this process, for programs that want paths.
    pub fn descriptor_path(&self) -> PathBuf {
        way::descriptor_path(self.opened.as_raw_fd())
    }

    /// Which directory it is, wherever it is renamed to: its device and its inode.
    pub fn identity(&self) -> Result<(u64, u64), Refused> {
        let stat = rustix::fs::fstat(&self.opened).map_err(|error| self.system(error))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Makes a directory in it. The name must be free, and is so again when this fails.
    pub fn make_directory(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<Directory, Refused> {
        let name = one_name(name.as_ref());
        let made = rustix::fs::mkdirat(&self.opened, name, Mode::from_raw_mode(mode));
        made.map_err(|error| Refused::system(&self.path.join(name), error))?;
        // A process without a free descriptor can make it, and not open it.
        self.open_directory(name).inspect_err(|_| {
            let _ = self.remove_directory(name);
        })
    }

    /// Opens a directory in it.
    pub fn open_directory(&self, name: impl AsRef<OsStr>) -> Result<Directory, Refused> {
        let (place, stat) = self.place(name.as_ref())?;
        Directory::checked(&self.path.join(name.as_ref()), place, &stat)
    }

    /// Opens a directory in it and makes it when it is missing.
    pub fn open_or_make_directory(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
    ) -> Result<Directory, Refused> {
        match self.make_directory(&name, mode) {
            Err(refused) if refused.exists() => self.open_directory(name),
            made => made,
        }
    }

    /// Opens a file in it for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File, Refused> {
        let (place, stat) = self.place(name.as_ref())?;
        file::reopen(&self.path.join(name.as_ref()), &place, &stat, OFlags::RDONLY)
    }

    /// Opens a file in it for reading and appending.
    pub fn append_file(&self, name: impl AsRef<OsStr>) -> Result<File, Refused> {
        let (place, stat) = self.place(name.as_ref())?;
        let how = OFlags::RDWR | OFlags::APPEND;
        file::reopen(&self.path.join(name.as_ref()), &place, &stat, how)
    }

    /// Creates a file in it for reading and writing. The name must be free.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, Refused> {
        let name = one_name(name.as_ref());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        let opened = rustix::fs::openat(&self.opened, name, flags | OFlags::CLOEXEC, mode);
        Ok(opened.map_err(|error| Refused::system(&self.path.join(name), error))?.into())
    }

    /// A file without a name, for reading and writing: nothing of it is left, however the process
    /// ends, and nobody can put another in its place, or give it a name where the file system
    /// knows such files.
    pub fn nameless_file(&self) -> Result<File, Refused> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::openat(&self.opened, ".", flags, mode) {
            Ok(opened) => Ok(opened.into()),
            // A file system that knows no files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let name = random_name();
                let file = self.create_file(&name, 0o600)?;
                self.remove_file(&name)?;
                Ok(file)
            }
            Err(error) => Err(self.system(error)),
        }
    }

    /// Reads a file in it of at most `bytes_max` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, bytes_max: u64) -> Result<Vec<u8>, Refused> {
        let path = self.path.join(name.as_ref());
        file::read_all(&path, self.open_file(name)?, bytes_max)
    }

    /// Reads a text file in it.
    pub fn read_text(&self, name: impl AsRef<OsStr>) -> Result<String, Refused> {
        let path = self.path.join(name.as_ref());
        file::into_text(&path, self.read(name, file::TEXT_BYTES_MAX)?)
    }

    /// Writes a file as a whole: a reader sees the old bytes or the new ones, also after a crash.
    /// Whatever had the name before is replaced, never written through.
    ///
    /// # Errors
    ///
    /// What the system says; the file is as it was.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<(), Refused> {
        let name = one_name(name.as_ref());
        let beside = random_name();
        // The user knows the file by its own name.
        let mut file = self.create_file(&beside, mode).map_err(|refused| match refused {
            Refused::System { error, .. } => Refused::system(&self.path.join(name), error),
            other => other,
        })?;
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        let replaced = written
            .and_then(|()| Ok(rustix::fs::renameat(&self.opened, &beside, &self.opened, name)?));
        replaced.map_err(|error| {
            let _ = self.remove_file(&beside);
            Refused::system(&self.path.join(name), error)
        })
    }

    /// Renames within it. Whatever had the new name is replaced.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<(), Refused> {
        let (from, to) = (one_name(from.as_ref()), one_name(to.as_ref()));
        let renamed = rustix::fs::renameat(&self.opened, from, &self.opened, to);
        renamed.map_err(|error| Refused::system(&self.path.join(from), error))
    }

    /// Whether it has this name, whatever stands behind it.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        self.place(name.as_ref()).is_ok()
    }

    /// The names in it, sorted.
    pub fn names(&self) -> Result<Vec<OsString>, Refused> {
        let read = || -> Result<Vec<OsString>, Errno> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.opened)? {
                let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_os_string();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        read().map_err(|error| self.system(error))
    }

    /// Removes a file in it.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<(), Refused> {
        self.unlink(name.as_ref(), AtFlags::empty())
    }

    /// Removes an empty directory in it.
    pub fn remove_directory(&self, name: impl AsRef<OsStr>) -> Result<(), Refused> {
        self.unlink(name.as_ref(), AtFlags::REMOVEDIR)
    }

    /// Removes a file in it, or a directory with everything below, on its own mount only: a mount
    /// below makes it fail with what was found. However deep the tree is, this needs no more stack
    /// and no more descriptors.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> Result<(), Refused> {
        let name = one_name(name.as_ref());
        tree::remove_at(self.opened.as_fd(), name, &self.path.join(name))
    }

    /// Locks a file in it, which is made when it is missing, without waiting.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] when another process has the lock.
    pub fn lock(&self, name: impl AsRef<OsStr>) -> Result<FileLock, LockError> {
        let name = one_name(name.as_ref());
        let mut file = match self.create_file(name, 0o600) {
            Err(refused) if refused.exists() => {
                let (place, stat) = self.place(name)?;
                file::reopen(&self.path.join(name), &place, &stat, OFlags::RDWR)?
            }
            created => created?,
        };
        let system = |error| Refused::system(&self.path.join(name), error);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = (&file).take(32).read_to_string(&mut text);
                return Err(LockError::Held { pid: text.trim().parse().unwrap_or(0) });
            }
            Err(error) => return Err(system(error.into()).into()),
        }
        // The holder before may have removed it meanwhile; then it keeps nobody out.
        let stat = rustix::fs::fstat(&file).map_err(|error| system(error.into()))?;
        if stat.st_nlink == 0 {
            return self.lock(name);
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(system)?;
        Ok(FileLock(file))
    }

    /// Makes what was named in it durable.
    pub fn sync(&self) -> Result<(), Refused> {
        rustix::fs::fsync(&self.opened).map_err(|error| self.system(error))
    }

    fn place(&self, name: &OsStr) -> Result<(OwnedFd, Stat), Refused> {
        let name = one_name(name);
        let system = |error| Refused::system(&self.path.join(name), error);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(&self.opened, name, flags, Mode::empty()).map_err(system)?;
        let stat = rustix::fs::fstat(&place).map_err(system)?;
        Ok((place, stat))
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), Refused> {
        let removed = rustix::fs::unlinkat(&self.opened, one_name(name), flags);
        removed.map_err(|error| Refused::system(&self.path.join(name), error))
    }

    fn system(&self, error: Errno) -> Refused {
        Refused::system(&self.path, error)
    }
}

/// A name that nobody else has, for a file on its way to its own: hidden, with 64 random bits.
fn random_name() -> String {
    format!(".kurabe-{:016x}", rand::random::<u64>())
}

/// A name leads to nothing outside its directory.
fn one_name(name: &OsStr) -> &OsStr {
    let is_one =
        !name.as_bytes().contains(&b'/') && name != ".." && name != "." && !name.is_empty();
    assert!(is_one, "{} is a name of a file, not a path", Path::new(name).display());
    name
}

/// Where [`Directory::own`] lies, which may not have been made yet: an absolute path.
pub fn own_path() -> Result<PathBuf, Refused> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("KURABE_HOME") {
        return std::path::absolute(&path).map_err(|error| Refused::system(&path, error));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(OWN.into());
    }
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let unknown =
        "neither KURABE_HOME nor HOME is set; name a directory of your own by KURABE_HOME";
    let state = state.ok_or_else(|| {
        Refused::system(Path::new("~"), std::io::Error::new(std::io::ErrorKind::NotFound, unknown))
    })?;
    Ok(state.join("kurabe"))
}
