//! The way to a file: every directory and every link between `/` and it.
//!
//! A path is walked one name at a time, each opened without following links, below the descriptor
//! of the directory before it. Whoever could put something else under one of the names would
//! choose what is opened, so each directory must be of a believed owner and writable by nobody
//! else, or sticky (as `/tmp` is); each link must be of a believed owner. What was opened is then
//! used by descriptor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::mounts;
use crate::{Refused, owner};

/// Links on one path, as the kernel bounds them.
const LINKS_MAX: usize = 40;

/// The magic number of FUSE in statfs(2).
const FUSE_MAGIC: i64 = 0x6573_5546;
/// The magic number of procfs in statfs(2), and the inode of its root.
const PROC_MAGIC: i64 = 0x9fa0;
const PROC_ROOT_INODE: u64 = 1;

/// Opens `path` as a place (`O_PATH`), with what the kernel says of it. The last name may be
/// anything but a link; who owns it was not asked yet (see [`check`]).
///
/// # Errors
///
/// [`Refused::Stranger`] and [`Refused::Writable`] name the directory or link that a stranger can
/// change.
pub fn open(path: &Path) -> Result<(OwnedFd, Stat), Refused> {
    match walk(path)? {
        Walked::There(opened, stat) => Ok((opened, stat)),
        Walked::Missing(..) => Err(Refused::system(path, Errno::NOENT)),
        Walked::Blocked(..) => Err(Refused::system(path, Errno::NOTDIR)),
    }
}

/// Refuses a name where others than those who are believed decide what a program finds there, now or
/// later: it is theirs, they can write it, or it is in a directory in which anybody can make it. That such
/// a directory itself is named is refused too, since a program may look for names of its own in it.
///
/// # Errors
///
/// As of [`check`], and [`Refused::Anybodys`].
pub fn believe_name(path: &Path) -> Result<(), Refused> {
    // What an own process has open, and where its output goes; nothing below that.
    let is_number =
        || path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()).is_some();
    let is_open =
        ["/dev/fd", "/proc/self/fd"].iter().any(|own| path.parent() == Some(Path::new(own)));
    let is_standard =
        ["/dev/stdin", "/dev/stdout", "/dev/stderr"].iter().any(|own| path == Path::new(own));
    if is_standard || is_open && is_number() {
        return Ok(());
    }
    match walk(path) {
        Ok(Walked::There(opened, stat)) => match kind(&stat) {
            FileType::Directory if stat.st_mode & 0o1000 != 0 => keeps_to_itself(path, &stat),
            FileType::CharacterDevice | FileType::BlockDevice => believe(path, stat.st_uid),
            _ => check(path, &opened, &stat),
        },
        Ok(Walked::Missing(directory, stat)) => keeps_to_itself(&directory, &stat),
        // Whoever owns it can make a directory in its place.
        Ok(Walked::Blocked(file, opened, stat)) => check(&file, &opened, &stat),
        // No program finds anything there, nor will it.
        Err(Refused::System { error, .. })
            if matches!(Errno::from_io_error(&error), Some(Errno::NAMETOOLONG | Errno::INVAL))
                || error.kind() == std::io::ErrorKind::InvalidInput =>
        {
            Ok(())
        }
        Err(refused) => Err(refused),
    }
}

/// Whether nobody but its owner makes files in a directory.
fn keeps_to_itself(path: &Path, stat: &Stat) -> Result<(), Refused> {
    believe(path, stat.st_uid)?;
    if stat.st_mode & 0o022 != 0 && !owner::is_shared_believed() {
        return Err(Refused::Anybodys { directory: path.into() });
    }
    Ok(())
}

/// Where a path leads.
enum Walked {
    There(OwnedFd, Stat),
    /// The next name is not in this directory.
    Missing(PathBuf, Stat),
    /// This is no directory, and names follow.
    Blocked(PathBuf, OwnedFd, Stat),
}

fn walk(path: &Path) -> Result<Walked, Refused> {
    let (mut at, mut stat, mut walked) = start(path)?;
    let mut names = names_of(path);
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if kind(&stat) != FileType::Directory {
            return Ok(Walked::Blocked(shown(&walked), at, stat));
        }
        check_directory(&shown(&walked), &at, &stat)?;
        let next = walked.join(&name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let system = |error| Refused::system(path, error);
        let opened = match rustix::fs::openat(&at, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Walked::Missing(shown(&walked), stat)),
            opened => opened.map_err(system)?,
        };
        let found = rustix::fs::fstat(&opened).map_err(system)?;
        if kind(&found) != FileType::Symlink {
            (at, stat, walked) = (opened, found, next);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(system(rustix::io::Errno::LOOP));
        }
        believe(&next, found.st_uid)?;
        // What /proc shows as the text of such a link is not where the kernel would lead.
        let of_process = stat.st_ino != PROC_ROOT_INODE
            && rustix::fs::fstatfs(&at).is_ok_and(|facts| facts.f_type == PROC_MAGIC);
        if of_process {
            let is = "a link into what a process has open";
            return Err(Refused::Kind { path: path.into(), is, wanted: "the real path" });
        }
        let target = rustix::fs::readlinkat(&opened, "", Vec::new()).map_err(system)?;
        let target = PathBuf::from(OsString::from(std::ffi::OsStr::from_bytes(target.to_bytes())));
        if target.is_absolute() {
            (at, stat, walked) = start(&target)?;
        }
        let mut longer = names_of(&target);
        longer.append(&mut names);
        names = longer;
    }
    Ok(Walked::There(at, stat))
}

/// The path without links to what `path` leads to, for the kernel to resolve once more: to mount there, or to end a
/// mount. Nobody who is not believed can make it lead elsewhere. What is mounted at the last name is not asked
/// anything, so its server may be dead.
///
/// # Errors
///
/// As of [`open`]; and in a sticky directory the last name belongs to a stranger, who could exchange it.
pub fn real(path: &Path) -> Result<PathBuf, Refused> {
    let system = |error: Errno| Refused::system(path, error);
    let path_of = |opened: &OwnedFd| {
        let text = rustix::fs::readlinkat(CWD, descriptor_path(opened.as_raw_fd()), Vec::new());
        Ok::<_, Refused>(PathBuf::from(OsString::from_vec(text.map_err(system)?.into_bytes())))
    };
    let mut path = path.to_path_buf();
    for _ in 0..=LINKS_MAX {
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else {
            return path_of(&open(&path)?.0);
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let (directory, stat) = open(above)?;
        check_directory(above, &directory, &stat)?;
        let target = match rustix::fs::readlinkat(&directory, name, Vec::new()) {
            Err(Errno::INVAL) => None,
            read => Some(PathBuf::from(OsString::from_vec(read.map_err(system)?.into_bytes()))),
        };
        let is_anybodys = stat.st_mode & 0o022 != 0;
        if is_anybodys || target.is_some() {
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            believe(&path, found.map_err(system)?.st_uid)?;
        }
        let place = path_of(&directory)?;
        match target {
            None => return Ok(place.join(name)),
            // An absolute one takes the place of all.
            Some(target) => path = place.join(target),
        }
    }
    Err(system(Errno::LOOP))
}

/// Whether the owner of what was opened is believed and nobody else can write it.
pub fn check(path: &Path, opened: &OwnedFd, stat: &Stat) -> Result<(), Refused> {
    believe(path, stat.st_uid)?;
    believe_server(path, opened, stat)?;
    let by_group =
        stat.st_mode & 0o020 != 0 && (!owner::is_believed_group(stat.st_gid) || has_list(opened));
    let is_shared = kind(stat) == FileType::Directory && owner::is_shared_believed();
    if (stat.st_mode & 0o002 != 0 || by_group) && !is_shared {
        Err(Refused::Writable { path: path.into() })
    } else {
        Ok(())
    }
}

/// The same of a directory to make something in, or on the way: in a sticky one nobody can touch
/// what is another's.
pub(crate) fn check_directory(path: &Path, opened: &OwnedFd, stat: &Stat) -> Result<(), Refused> {
    if kind(stat) == FileType::Directory && stat.st_mode & 0o1000 != 0 {
        believe(path, stat.st_uid)?;
        return believe_server(path, opened, stat);
    }
    match kind(stat) {
        FileType::Directory => check(path, opened, stat),
        // The next step says it in the kernel's words: it is not a directory.
        _ => Ok(()),
    }
}

pub(crate) fn believe(path: &Path, user: u32) -> Result<(), Refused> {
    if owner::is_believed(user) {
        Ok(())
    } else {
        Err(Refused::Stranger { path: path.into(), owner: owner::name(user) })
    }
}

/// The server of a FUSE file system says of its files what it likes.
fn believe_server(path: &Path, opened: &OwnedFd, stat: &Stat) -> Result<(), Refused> {
    let is_fuse = rustix::fs::fstatfs(opened).is_ok_and(|facts| facts.f_type == FUSE_MAGIC);
    if !is_fuse {
        return Ok(());
    }
    let number = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let mounts = mounts::mounts().unwrap_or_default();
    let server = mounts.iter().find(|mount| mount.device == number).and_then(|mount| {
        // The file system's own options, which it cannot put in twice, come last.
        let mut options = mount.options.rsplit(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    });
    // A server that cannot be found is nobody's whom we know.
    believe(path, server.unwrap_or(u32::MAX))
}

/// Whether an access control list stands behind the bits of the group.
fn has_list(opened: &OwnedFd) -> bool {
    let path = descriptor_path(opened.as_raw_fd());
    let mut list = [0_u8; 64];
    let read = rustix::fs::getxattr(path, "system.posix_acl_access", &mut list[..]);
    // A longer one does not fit; whatever else goes wrong hides nothing either.
    !matches!(read, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// A path that leads to what an own descriptor has open.
pub fn descriptor_path(descriptor: std::os::fd::RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

/// What a file is, in words.
pub(crate) fn kind_text(stat: &Stat) -> &'static str {
    match kind(stat) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn start(path: &Path) -> Result<(OwnedFd, Stat, PathBuf), Refused> {
    let first = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let system = |error| Refused::system(path, error);
    let at = rustix::fs::openat(CWD, first, flags, Mode::empty()).map_err(system)?;
    let stat = rustix::fs::fstat(&at).map_err(system)?;
    let walked = if path.is_absolute() { PathBuf::from("/") } else { PathBuf::new() };
    Ok((at, stat, walked))
}

/// What was walked so far, in words: of a relative path at first nothing.
fn shown(walked: &Path) -> PathBuf {
    if walked.as_os_str().is_empty() {
        std::env::current_dir().unwrap_or_else(|_| ".".into())
    } else {
        walked.into()
    }
}

fn names_of(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_real_path_is_had_only_where_no_stranger_can_change_it() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        for name in ["one", "one/two", "sticky", "sticky/own", "open"] {
            fs::create_dir(at(name)).unwrap();
        }
        let set = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("sticky", 0o1777);
        set("open", 0o777);
        symlink("one", at("link")).unwrap();
        symlink(at("link/two"), at("sticky/second")).unwrap();
        symlink("itself", at("itself")).unwrap();
        for (path, leads) in [
            ("one/two", "one/two"),
            ("link/two", "one/two"),
            ("link/two/..", "one"),
            ("sticky/own/", "sticky/own"),
            ("sticky/second", "one/two"),
        ] {
            assert_eq!(real(&at(path)).unwrap(), at(leads), "{path}");
        }
        assert_eq!(real(Path::new("/")).unwrap(), Path::new("/"));
        assert!(real(&at("open/any")).is_err() && real(&at("itself")).is_err());
        assert!(real(&at("missing")).is_err_and(|refused| refused.is_missing()));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let give = |name: &str| std::os::unix::fs::lchown(at(name), Some(54_321), None).unwrap();
        give("link");
        give("sticky/own");
        for path in ["link", "link/two", "sticky/own", "sticky/second"] {
            let refused = real(&at(path)).unwrap_err();
            assert!(matches!(refused, Refused::Stranger { .. }), "{path}: {refused}");
        }
    }
}
