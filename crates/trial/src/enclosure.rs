//! What a load of another program's may touch: its contender, a directory of its own, and nothing
//! else.
//!
//! Knows of a load only whether it is kept in, and nothing of its jobs: whatever a job asks for, the kernel keeps
//! it in. Invariants: in an enclosure everything but the contender's directory (or device) and the
//! load's own directory is read-only; `/tmp`, `/run` and `/dev` are its own, and `/dev` has no
//! device but the contender's; there is no network but for a load on other machines; what was started in it by root ends with its
//! first process, sees no other processes, and has no capability by which any of this is undone.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use lab::spec::Load;
use loads::KINDS;

use crate::sys::confine::see_own_processes;
use crate::sys::namespaces;

/// What it keeps in.
#[derive(Debug, Clone)]
pub struct Enclosure {
    /// The directories that can be written.
    pub directories: Vec<PathBuf>,
    /// The block device that can be written.
    pub device: Option<PathBuf>,
    /// Whether it has the machine's network.
    pub is_online: bool,
}

/// What everybody may have of `/dev`.
const NODES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What programs expect to find in `/dev` besides.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Where the servers are named that know other machines' addresses.
const RESOLVER: &str = "/etc/resolv.conf";

/// What is covered by an empty directory in memory, with its rights. Sockets lie in `/run`, which
/// can be written to on a read-only file system.
const COVERED: [(&str, &str); 3] = [("/dev", "755"), ("/run", "755"), ("/tmp", "1777")];

/// What root keeps: rights over files, priorities, limits, other users. fio, dbench and bonnie++ need
/// no more, and none of these undoes an enclosure.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);

impl Enclosure {
    /// What a load is kept in that does as another program's job says: its own directory, and the contender's or the
    /// device that it works on.
    pub fn of_load(
        load: &Load,
        place: PathBuf,
        directory: &Path,
        raw_device: Option<&Path>,
    ) -> Option<Enclosure> {
        let device = raw_device.map(Path::to_path_buf);
        let directory = device.is_none().then(|| directory.to_path_buf());
        KINDS.is_enclosed(load).then(|| Enclosure {
            directories: [place].into_iter().chain(directory).collect(),
            device,
            is_online: KINDS.reaches_out(load),
        })
    }

    /// Readies a command for [`Enclosure::spawn`]; before anything else is asked of it that needs
    /// its rights.
    pub fn prepare(command: &mut Command) {
        see_own_processes(command);
    }

    /// Starts a command in it. Needs root.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Namespaces and capabilities are a thread's: this one has them, and what it starts.
        let started = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                namespaces::enter_enclosure(self.is_online)
                    .map_err(failed("entering its namespaces"))?;
                self.build()?;
                give_up_capabilities().map_err(failed("giving up capabilities"))?;
                command.spawn()
            });
            thread.join()
        });
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Puts this process, which has one thread and is not root's, into it.
    /// Errors: the kernel grants no namespaces to this user, or refuses a part of it.
    pub fn enter(&self) -> io::Result<()> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let directory = std::env::current_dir()?;
        namespaces::enter_enclosure_of_user(self.is_online)
            .map_err(failed("entering its namespaces"))?;
        let map = |name: &str, text: String| {
            fs::write(format!("/proc/self/{name}"), text).map_err(failed("naming its user"))
        };
        map("setgroups", "deny".into())?;
        map("uid_map", format!("{0} {0} 1", user.as_raw()))?;
        map("gid_map", format!("{0} {0} 1", group.as_raw()))?;
        self.build()?;
        // What it had was made read-only with the rest.
        std::env::set_current_dir(directory)
    }

    /// Makes this thread's mount namespace one.
    fn build(&self) -> io::Result<()> {
        // Nothing that is done here reaches anybody else.
        let away = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        mount_change("/", away)
            .map_err(|error| failed("parting it from the host's")(error.into()))?;
        let kept = self.directories.iter().map(|path| Kept::of(&path.canonicalize()?));
        let kept = kept.collect::<io::Result<Vec<Kept>>>()?;
        let nodes = NODES.iter().map(Path::new).filter(|node| node.exists());
        // What finds hosts by name may lie where sockets do.
        let resolver = Path::new(RESOLVER).canonicalize().ok().filter(|_| self.is_online);
        let nodes = nodes.chain(self.device.as_deref());
        let nodes = nodes.chain(resolver.as_deref().filter(|path| path.starts_with("/run")));
        let nodes = nodes.map(Kept::of);
        let nodes = nodes.collect::<io::Result<Vec<Kept>>>()?;
        namespaces::forbid_writes("/", true).map_err(failed("making everything read-only"))?;
        let flags = MountFlags::NOSUID;
        for (path, mode) in COVERED.iter().filter(|(path, _)| Path::new(path).is_dir()) {
            cover(path, mode, flags)?;
        }
        fs::create_dir("/dev/shm")?;
        cover("/dev/shm", "1777", flags | MountFlags::NODEV)?;
        for (path, target) in LINKS {
            symlink(target, path)?;
        }
        for directory in kept {
            fs::create_dir_all(&directory.path)?;
            directory.put_back()?;
        }
        for node in nodes {
            if !node.path.exists() {
                node.path.parent().map(fs::create_dir_all).transpose()?;
                File::create(&node.path)?;
            }
            node.put_back()?;
        }
        for path in ["/dev", "/run"].into_iter().filter(|path| Path::new(path).is_dir()) {
            namespaces::forbid_writes(path, false).map_err(failed(path))?;
        }
        Ok(())
    }
}

/// A part of the tree of files that stays as it was.
struct Kept {
    path: PathBuf,
    mount: OwnedFd,
}

impl Kept {
    fn of(path: &Path) -> io::Result<Kept> {
        // AT_RECURSIVE, which a file bears too.
        let recursive = OpenTreeFlags::AT_RECURSIVE;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive;
        let mount = open_tree(CWD, path, flags)
            .map_err(|error| failed(&path.display().to_string())(error.into()))?;
        Ok(Kept { path: path.to_path_buf(), mount })
    }

    fn put_back(&self) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(self.mount.as_fd(), "", CWD, &self.path, flags)
            .map_err(|error| failed(&self.path.display().to_string())(error.into()))
    }
}

fn cover(path: &str, mode: &str, flags: MountFlags) -> io::Result<()> {
    let options = std::ffi::CString::new(format!("mode={mode}")).expect("it has no zero byte");
    mount("kurabe", path, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|error| failed(path)(error.into()))
}

/// Leaves the programs that this thread starts no capability but those that are kept.
fn give_up_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let sets = CapabilitySets { inheritable: CapabilitySet::empty(), ..capabilities(None)? };
    Ok(set_capabilities(None, sets)?)
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> io::Error {
    let text = format!("keeping the load in its contender: {what}");
    move |error| io::Error::new(error.kind(), format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_on_other_machines_is_kept_in_and_has_the_network() {
        let enclosure = |nodes: &[&str]| {
            let load = serde_json::json!({ "kind": "fio", "text": "rw=read", "nodes": nodes });
            let load: Load = serde_json::from_value(load).unwrap();
            Enclosure::of_load(&load, "/own".into(), Path::new("/mnt"), None).unwrap()
        };
        let (here, there) = (enclosure(&[]), enclosure(&["a", "b"]));
        assert_eq!(there.directories, here.directories);
        assert_eq!((here.is_online, there.is_online), (false, true));
    }
}
