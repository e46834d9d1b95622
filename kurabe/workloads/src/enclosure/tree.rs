//! The tree of files of an enclosure: an empty root, and what is put into it.
//!
//! Knows paths and no system call of mounting; the kernel's part is `sys::enclosed`. Invariants: what is shown
//! of the host is in a list, read-only and without what is mounted below it; a path that is shown means the same
//! file inside as outside; every memory has a size.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use trust::mounts::Mount;

use super::{Enclosure, everybody, own_program};
use crate::programs;
use crate::sys::enclosed::{HostPart, RootStep};

/// Where programs put their temporary files in an enclosure.
pub const TEMPORARY: &str = "/tmp";
/// A file by which an enclosure's root is known.
pub(super) const MARK: &str = "/.kurabe-enclosure";
/// The root holds directories and links.
pub(super) const ROOT_OPTIONS: &CStr = c"mode=755,size=1m,nr_inodes=8192";

/// Bytes and files of `/tmp` and `/dev/shm`, each in memory.
const TEMPORARY_OPTIONS: &CStr = c"mode=1777,size=64m,nr_inodes=16384";
/// Bytes and files of a workload's own directory, for its logs.
const OWN_SIZE: &str = "size=256m,nr_inodes=16384";

/// Trees of programs and libraries. A symbolic link among them, such as `/bin`, stays one.
const TREES: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];
/// What programs read of `/etc`: where libraries are, and the names of users, hosts and services.
const SETTINGS: [&str; 12] = [
    "/etc/alternatives",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/services",
];
/// What is read of `/etc` to reach another machine: where libraries are, and the addresses of machines.
const WAYS_OUT: [&str; 7] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
];

/// What everybody may have of `/dev`.
const NODES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What programs expect to find besides.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/var/run", "/run"),
];

/// File systems that are not on a block device of their own number and hold files as disks do. A mount of one
/// of these, or of one on a block device, may lie below a tree of programs, as `/usr/local` does; what else is
/// mounted there (a second /proc, a FUSE, an automount) is not shown.
const FILE_SYSTEMS: [&str; 9] =
    ["9p", "bcachefs", "btrfs", "nfs", "nfs4", "overlay", "squashfs", "virtiofs", "zfs"];

/// What is shown, and what is done to show it.
#[derive(Debug, Default)]
pub(super) struct EnclosurePlan {
    pub parts: Vec<HostPart>,
    pub steps: Vec<RootStep>,
    /// What was opened to be checked, held until it is shown.
    pub checked: Vec<OwnedFd>,
    made: BTreeSet<PathBuf>,
    /// Whether no tree of programs is shown: fio's client gives a server, whoever that is, each file that it
    /// asks for, so nothing is there but what the workload itself needs.
    is_bare: bool,
}

/// The tree of an enclosure.
///
/// Errors: a directory, file or device that it is to contain is not there, or is the root.
pub(super) fn plan(enclosure: &Enclosure) -> io::Result<EnclosurePlan> {
    let mut plan = EnclosurePlan { is_bare: enclosure.is_online, ..EnclosurePlan::default() };
    plan.file(Path::new(MARK))?;
    for directory in ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/var"] {
        plan.directory(Path::new(directory))?;
    }
    let memory = |path: &str, options: &CStr| {
        Ok::<_, io::Error>(RootStep::Memory(text(path.into())?, options.into()))
    };
    plan.steps.push(memory("/dev", c"mode=755,size=64k,nr_inodes=256")?);
    plan.steps.push(memory(TEMPORARY, TEMPORARY_OPTIONS)?);
    plan.directory(Path::new("/dev/shm"))?;
    plan.steps.push(memory("/dev/shm", TEMPORARY_OPTIONS)?);
    for (path, target) in LINKS {
        plan.link(target.into(), Path::new(path))?;
    }
    if plan.is_bare {
        for path in WAYS_OUT.map(Path::new) {
            plan.named_file(path)?;
        }
    } else {
        plan.system()?;
    }
    plan.programs(&enclosure.programs)?;
    for node in NODES.map(Path::new).into_iter().filter(|node| node.exists()) {
        plan.attach(node, Access::Device)?;
    }
    for file in &enclosure.files {
        plan.named(file, Access::Read)?;
    }
    for input in &enclosure.inputs {
        if let Ok(file) = everybody::open(input) {
            let identity = (file.facts.st_dev, file.facts.st_ino);
            let found = Found { identity, is_directory: false, is_device: false };
            plan.attach_found(&file.path, &found, Access::Read)?;
            plan.name(input, &file.path)?;
            plan.checked.push(file.opened);
        }
    }
    for directory in &enclosure.memory {
        let facts = fs::metadata(directory).map_err(missing(directory))?;
        let path = directory.canonicalize()?;
        plan.directory(&path)?;
        plan.name(directory, &path)?;
        let (user, group, mode) = (facts.uid(), facts.gid(), facts.mode() & 0o7777);
        let options = format!("uid={user},gid={group},mode={mode:o},{OWN_SIZE}");
        plan.steps.push(RootStep::Memory(path_text(&path)?, text(options)?));
    }
    for directory in &enclosure.directories {
        let path = directory.canonicalize().map_err(missing(directory))?;
        if path == Path::new("/") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a workload that is kept in its contender cannot have / as its contender's directory",
            ));
        }
        plan.named(directory, Access::Write)?;
    }
    if let Some(device) = &enclosure.device {
        plan.named(device, Access::Device)?;
    }
    plan.steps.push(RootStep::Freeze(text("/dev".into())?));
    Ok(plan)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Device,
}

struct Found {
    /// Device and inode.
    identity: (u64, u64),
    is_directory: bool,
    is_device: bool,
}

impl EnclosurePlan {
    /// The trees of programs and the settings of the system.
    fn system(&mut self) -> io::Result<()> {
        let mounts = trust::mounts::mounts()?;
        for tree in TREES.map(Path::new) {
            let Ok(facts) = fs::symlink_metadata(tree) else { continue };
            if facts.is_symlink() {
                self.link(fs::read_link(tree)?, tree)?;
            } else if facts.is_dir() {
                self.attach(tree, Access::Read)?;
                for point in points_below(&mounts, tree) {
                    self.attach(point, Access::Read)?;
                }
            }
        }
        for path in SETTINGS.map(Path::new) {
            self.named_file(path)?;
        }
        Ok(())
    }

    /// Programs outside of the trees, and this one, with what they need.
    fn programs(&mut self, programs: &[PathBuf]) -> io::Result<()> {
        let own = own_program();
        let own = Some(own).filter(|own| !own.starts_with("/proc"));
        let mut files = if self.is_bare {
            programs::with_needs(&programs.iter().cloned().chain(own).collect::<Vec<_>>())
        } else {
            programs::with_needs(programs).into_iter().chain(own).collect()
        };
        files.extend(own_libraries());
        for file in files {
            self.named_file(&file)?;
        }
        // fio loads its engines from there; its client runs none.
        if self.is_bare {
            return Ok(());
        }
        let beside =
            |program: &PathBuf| Some(program.canonicalize().ok()?.parent()?.join("../lib/fio"));
        for directory in programs.iter().filter_map(beside) {
            if let Ok(directory) = directory.canonicalize() {
                self.named_file(&directory)?;
            }
        }
        Ok(())
    }

    /// Shows a file or directory where it is, unless a tree shows it already, and the name that leads to it.
    fn named_file(&mut self, name: &Path) -> io::Result<()> {
        let Ok(path) = name.canonicalize() else { return Ok(()) };
        if self.is_bare || !is_in_tree(&path) {
            self.attach(&path, Access::Read)?;
        }
        self.name(name, &path)
    }

    /// Shows what the kernel is asked for by a name, where it is and by its name.
    fn named(&mut self, name: &Path, access: Access) -> io::Result<()> {
        let path = name.canonicalize().map_err(missing(name))?;
        self.attach(&path, access)?;
        self.name(name, &path)
    }

    /// Makes a name lead to where it leads outside.
    fn name(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let is_shown = !self.is_bare && is_in_tree(name);
        if name != path && name.is_absolute() && !is_shown {
            self.parents(name)?;
            self.link(path.to_path_buf(), name)?;
        }
        Ok(())
    }

    fn attach(&mut self, path: &Path, access: Access) -> io::Result<()> {
        let facts = fs::metadata(path).map_err(missing(path))?;
        let is_directory = facts.is_dir();
        let is_device = access == Access::Device
            && (facts.file_type().is_block_device() || facts.file_type().is_char_device());
        let found = Found { identity: (facts.dev(), facts.ino()), is_directory, is_device };
        self.attach_found(path, &found, access)
    }

    /// Shows what was found at a path, unless something is shown there.
    fn attach_found(&mut self, path: &Path, found: &Found, access: Access) -> io::Result<()> {
        let Found { identity, is_directory, is_device } = *found;
        if !self.made.insert(path.to_path_buf()) && access == Access::Read {
            return Ok(());
        }
        if is_directory {
            self.directory(path)?
        } else {
            self.file(path)?
        }
        // A device can be written through a read-only mount too; who owns it, which is the host's, cannot be changed.
        let is_writable = access == Access::Write;
        let path = path_text(path)?;
        self.parts.push(HostPart { path, is_directory, is_writable, is_device, identity });
        self.steps.push(RootStep::Attach(self.parts.len() - 1));
        Ok(())
    }

    fn parents(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for directory in above.into_iter().filter(|directory| *directory != Path::new("/")) {
            self.steps.push(RootStep::Directory(path_text(directory)?));
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path) -> io::Result<()> {
        self.parents(path)?;
        self.steps.push(RootStep::Directory(path_text(path)?));
        Ok(())
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        self.parents(path)?;
        self.steps.push(RootStep::File(path_text(path)?));
        Ok(())
    }

    fn link(&mut self, target: PathBuf, path: &Path) -> io::Result<()> {
        self.steps.push(RootStep::Link(path_text(&target)?, path_text(path)?));
        Ok(())
    }
}

fn is_in_tree(path: &Path) -> bool {
    TREES.iter().any(|tree| path.starts_with(tree))
}

/// Where below a tree something is mounted that belongs to the tree, from above to below.
fn points_below<'a>(mounts: &'a [Mount], tree: &Path) -> BTreeSet<&'a Path> {
    let points = mounts.iter().map(|mount| mount.point.as_path());
    points.filter(|point| *point != tree && is_shown(mounts, tree, point)).collect()
}

/// Whether a path below a tree is shown by what is mounted over it: all mounts on the way from the tree
/// belong to the tree. Of several at one point the last covers the others.
fn is_shown(mounts: &[Mount], tree: &Path, path: &Path) -> bool {
    if !path.starts_with(tree) {
        return false;
    }
    let Some(mount) = trust::mounts::mount_of(mounts, path) else { return false };
    if mount.point == tree || !mount.point.starts_with(tree) {
        return true;
    }
    let kind = mount.file_system.as_str();
    let is_on_disk = mount.device.0 != 0 && !kind.starts_with("fuse");
    let above = mount.point.parent().unwrap_or(tree);
    (is_on_disk || FILE_SYSTEMS.contains(&kind)) && is_shown(mounts, tree, above)
}

/// The libraries that this process runs with, as proc_pid_maps(5) has them.
fn own_libraries() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let paths: BTreeSet<&str> = paths.collect();
    let library = |path: &&str| path.contains(".so") && !path.ends_with(" (deleted)");
    paths.into_iter().filter(library).map(PathBuf::from).collect()
}

fn missing(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(super) fn text(text: String) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

pub(super) fn path_text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(device: (u32, u32), point: &str, file_system: &str) -> Mount {
        Mount {
            device,
            root: "/".into(),
            point: point.into(),
            file_system: file_system.into(),
            source: "x".into(),
            options: String::new(),
        }
    }

    #[test]
    fn of_the_mounts_below_a_tree_those_of_disks_are_shown() {
        let disk = |point: &str| mount((8, 1), point, "ext4");
        let mounts = [
            mount((8, 2), "/", "xfs"),
            disk("/usr"),
            disk("/usr/local"),
            mount((0, 40), "/usr/share", "overlay"),
            mount((0, 41), "/usr/chroot/proc", "proc"),
            mount((0, 42), "/usr/memory", "tmpfs"),
            // Its parent is not shown, so it has no place.
            disk("/usr/memory/disk"),
            mount((7, 1), "/usr/stick", "fuseblk"),
            mount((0, 43), "/usr/net", "autofs"),
            // What covers it is not a disk's.
            disk("/usr/covered"),
            mount((0, 44), "/usr/covered", "proc"),
            disk("/usrlocal"),
            disk("/srv"),
        ];
        let points: Vec<&Path> = points_below(&mounts, Path::new("/usr")).into_iter().collect();
        assert_eq!(points, [Path::new("/usr/local"), Path::new("/usr/share")]);
    }

    #[test]
    fn what_reaches_other_machines_sees_files_that_it_needs_and_no_trees() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let enclosure = Enclosure {
            directories: vec![place.path().into()],
            programs: vec!["/bin/cat".into()],
            is_online: true,
            ..Enclosure::default()
        };
        let plan = plan(&enclosure).unwrap();
        let read: Vec<&str> = plan
            .parts
            .iter()
            .filter(|part| !part.is_writable && !part.is_device)
            .map(|part| part.path.to_str().unwrap())
            .collect();
        assert!(read.iter().any(|path| path.ends_with("/bin/cat")), "{read:?}");
        let is_needed = |path: &&str| {
            let own = own_program();
            Path::new(path) == own
                || path.ends_with("/cat")
                || path.contains(".so")
                || WAYS_OUT.iter().any(|way| {
                    Path::new(way).canonicalize().is_ok_and(|way| way == Path::new(path))
                })
        };
        let others: Vec<&&str> = read.iter().filter(|path| !is_needed(path)).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn what_is_shown_is_read_only_but_for_the_contender() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let enclosure =
            Enclosure { directories: vec![place.path().into()], ..Enclosure::default() };
        let plan = plan(&enclosure).unwrap();
        let writable: Vec<&CString> = plan
            .parts
            .iter()
            .filter(|part| part.is_writable && !part.is_device)
            .map(|part| &part.path)
            .collect();
        assert_eq!(writable, [&path_text(&place.path().canonicalize().unwrap()).unwrap()]);
        let root = Enclosure { directories: vec!["/".into()], ..Enclosure::default() };
        assert!(super::plan(&root).unwrap_err().to_string().contains("cannot have /"));
    }
}
