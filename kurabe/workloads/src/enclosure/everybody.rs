//! A file that everybody may read: of such a one a job learns nothing that its author could not read himself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};

/// Such a file, open as a place.
#[derive(Debug)]
pub(super) struct Everybodys {
    pub opened: OwnedFd,
    pub facts: Stat,
    /// The path to it without links.
    pub path: PathBuf,
}

/// Opens it once. The path is walked name by name, so that what is asked is what is used.
///
/// Errors: it is not there, is no regular file, or somebody may not read it or not pass a directory on the way.
pub(super) fn open(name: &Path) -> io::Result<Everybodys> {
    let path = name.canonicalize()?;
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut opened = openat(CWD, "/", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut facts = fstat(&opened)?;
    for name in path.components() {
        let Component::Normal(name) = name else { continue };
        if facts.st_mode & 0o001 == 0 {
            return Err(refused("not everybody may pass the directories above it"));
        }
        opened = openat(&opened, name, flags, Mode::empty())?;
        facts = fstat(&opened)?;
    }
    // A link here took a name's place just now.
    let is_file = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
    if is_file && facts.st_mode & 0o004 != 0 {
        Ok(Everybodys { opened, facts, path })
    } else {
        Err(refused("it is no regular file that everybody may read"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn every_directory_on_the_way_counts() {
        let top = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let way = top.path().join("way");
        let file = way.join("file");
        fs::create_dir(&way).unwrap();
        fs::write(&file, "text").unwrap();
        set(top.path(), 0o711);
        set(&way, 0o711);
        set(&file, 0o644);
        let link = top.path().join("link");
        symlink("way/file", &link).unwrap();
        // Where the temporary directory is somebody's own, nothing in it is everybody's.
        let is_public = open(&file).is_ok();
        assert_eq!(is_public, open(&link).is_ok());
        if is_public {
            assert_eq!(open(&link).unwrap().path, file.canonicalize().unwrap());
        }
        set(&way, 0o700);
        assert!(open(&file).is_err() && open(&link).is_err());
        set(&way, 0o711);
        set(&file, 0o640);
        assert!(open(&file).is_err());
        assert!(open(&way).is_err() && open(Path::new("/dev/null")).is_err());
        assert!(open(Path::new("/etc/passwd")).is_ok());
    }
}
