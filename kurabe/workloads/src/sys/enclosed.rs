//! Puts a child into an enclosure between its fork and its exec.
//!
//! Everything that can be known before is a [`EnclosureSpec`], made by [`crate::enclosure`]; here it is
//! carried out. Invariant: the code between fork and exec makes plain system calls on memory that was
//! allocated before. It allocates nothing and takes no lock, so it is safe in the child of a process with
//! several threads.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, open, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, mount_move, move_mount, open_tree, unmount,
};
use rustix::process::{Signal, chdir, chroot, pivot_root, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::keys;
use super::seccomp::Filter;

/// The flag of clone3(2) by which a child begins in a control group.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// An existing directory over which the new root is mounted before it becomes the root.
const STAGE: &CStr = c"/usr";

/// A part of the host's tree that an enclosure shows.
#[derive(Debug)]
pub struct HostPart {
    /// Where it is, there and here: a canonical path.
    pub path: CString,
    /// Whether it is a directory, so that its place is made as one.
    pub is_directory: bool,
    /// Whether it can be written.
    pub is_writable: bool,
    /// Whether it is a device that can be opened.
    pub is_device: bool,
    /// Device and inode of what was found at the path, and checked. Whatever else lies there by now is not shown.
    pub identity: (u64, u64),
}

/// A step in the empty root.
#[derive(Debug)]
pub enum RootStep {
    /// Makes a directory, unless it is there.
    Directory(CString),
    /// Makes an empty file, unless it is there.
    File(CString),
    /// Makes a symbolic link `.1` to `.0`, unless something is there.
    Link(CString, CString),
    /// Puts the part of this number in its place.
    Attach(usize),
    /// Mounts memory at `.0`, with the options `.1`.
    Memory(CString, CString),
    /// Makes the mount at a path read-only.
    Freeze(CString),
}

/// An enclosure as it will be built.
#[derive(Debug)]
pub struct EnclosureSpec {
    /// What is shown of the host.
    pub parts: Vec<HostPart>,
    /// What is done in the empty root, in order.
    pub steps: Vec<RootStep>,
    /// The options of the root's memory.
    pub root_options: CString,
    /// The directory in which the command begins.
    pub directory: CString,
    /// The lines of `uid_map` and `gid_map` where a user namespace is needed to have the rights.
    pub user_maps: Option<[CString; 2]>,
    /// The lines of `uid_map` and `gid_map` by which root goes on, once all is built, as a user of a namespace that has
    /// no rights over anything.
    pub lowered_maps: Option<[CString; 2]>,
    /// Whether it has the machine's network.
    pub is_online: bool,
    /// Which capabilities are left.
    pub kept: CapabilitySet,
    /// Which system calls are left.
    pub filter: Filter,
    /// Files that were opened to be checked. While they are, no other file gets their number.
    pub checked: Vec<OwnedFd>,
    /// Takes the name of the step that failed.
    pub complaint: File,
}

/// Whose child the process in the enclosure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentProcess {
    /// The caller's, next to the process that the caller forked, which has ended with 0. The caller has
    /// to reap it.
    Sibling,
    /// That of the forked process, which waits for it and ends as it did.
    Child,
}

/// A [`EnclosureSpec`] that is carried out in the child of a fork.
#[derive(Debug)]
pub struct Enclosing {
    enclosure_spec: EnclosureSpec,
    /// Descriptors of the parts; as many as there are parts.
    mounts: Vec<Option<OwnedFd>>,
    /// Tells the process its number outside: its own namespace knows it as 1.
    number: [OwnedFd; 2],
}

impl Enclosing {
    /// Readies an enclosure.
    pub fn new(enclosure_spec: EnclosureSpec) -> io::Result<Enclosing> {
        let mounts = enclosure_spec.parts.iter().map(|_| None).collect();
        let (reader, writer) = io::pipe()?;
        Ok(Enclosing { enclosure_spec, mounts, number: [reader.into(), writer.into()] })
    }

    /// Makes a command begin in it, as a child of the forked process.
    pub fn of_child(mut self, command: &mut Command) {
        // SAFETY: see the module's invariant.
        unsafe {
            command.pre_exec(move || self.enter(ParentProcess::Child, None).map(drop));
        }
    }

    /// Makes a command that never begins fail with `ECANCELED` once it is in the enclosure.
    pub fn of_trial_run(mut self, command: &mut Command) {
        // SAFETY: see the module's invariant.
        unsafe {
            command.pre_exec(move || {
                self.enter(ParentProcess::Child, None)?;
                Err(io::Error::from_raw_os_error(libc::ECANCELED))
            });
        }
    }

    /// Goes on as a process in the enclosure, whose number outside of it is returned.
    ///
    /// Async-signal-safe; only for a process of one thread that is about to exec. `group` is the open directory
    /// of the control group in which the process begins.
    pub fn enter(
        &mut self,
        parent_process: ParentProcess,
        group: Option<&OwnedFd>,
    ) -> io::Result<u64> {
        let number = self.begin(parent_process, group)?;
        // While the host's /proc is there: that of the enclosure is read-only.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = open(c"/proc/self", flags, Mode::empty());
        self.build()?;
        let enclosure_spec = &self.enclosure_spec;
        enclosure_spec.said("entering its directory", chdir(&*enclosure_spec.directory))?;
        if let Some(maps) = &enclosure_spec.lowered_maps {
            let lowered = own.map_err(io::Error::from).and_then(|own| lower(&own, maps));
            enclosure_spec.said_by("becoming a user without rights", lowered)?;
        }
        enclosure_spec.said("giving up capabilities", give_up_capabilities(enclosure_spec.kept))?;
        enclosure_spec.said("no new privileges", rustix::thread::set_no_new_privs(true))?;
        enclosure_spec.said_by("leaving the caller's keys", keys::leave())?;
        enclosure_spec.said_by("refusing system calls", enclosure_spec.filter.install())?;
        enclosure_spec.said_by("closing descriptors", close_on_exec())?;
        Ok(number)
    }

    /// Clones the process into its namespaces.
    fn begin(&self, parent_process: ParentProcess, group: Option<&OwnedFd>) -> io::Result<u64> {
        let enclosure_spec = &self.enclosure_spec;
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
        if !enclosure_spec.is_online {
            flags |= libc::CLONE_NEWNET;
        }
        if enclosure_spec.user_maps.is_some() {
            flags |= libc::CLONE_NEWUSER;
        }
        if parent_process == ParentProcess::Sibling {
            flags |= libc::CLONE_PARENT;
        }
        let flags = flags as u32 as u64;
        let cloned = match group {
            Some(group) => clone(flags, Some(group)).or_else(|_| {
                // The group cannot be begun in: it is joined first, which takes the kernel longer.
                let processes = openat(
                    group,
                    c"cgroup.procs",
                    OFlags::WRONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                rustix::io::write(processes, b"0")?;
                clone(flags, None)
            }),
            None => clone(flags, None),
        };
        let [reader, writer] = &self.number;
        match enclosure_spec.said_by("entering its namespaces", cloned)? {
            0 => {}
            child => {
                let sent = rustix::io::write(writer, &child.to_ne_bytes());
                match (sent, parent_process) {
                    // SAFETY: it ends this process without running anything.
                    (_, ParentProcess::Sibling) => unsafe { libc::_exit(0) },
                    (_, ParentProcess::Child) => end_as(child as libc::pid_t),
                }
            }
        }
        // Before the number is read: if the parent ends later, the kernel ends this process.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let mut number = [0; 8];
        match rustix::io::read(reader, &mut number)? {
            8 => {}
            _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
        if let Some(maps) = &enclosure_spec.user_maps {
            let [users, groups] = maps;
            let mapped = write_to(CWD, c"/proc/self/setgroups", b"deny")
                .and_then(|()| write_to(CWD, c"/proc/self/uid_map", users.as_bytes()))
                .and_then(|()| write_to(CWD, c"/proc/self/gid_map", groups.as_bytes()));
            enclosure_spec.said("naming its user", mapped)?;
        }
        Ok(u64::from_ne_bytes(number))
    }

    /// Makes the tree of files and leaves the host's behind.
    fn build(&mut self) -> io::Result<()> {
        let enclosure_spec = &self.enclosure_spec;
        let is_user = enclosure_spec.user_maps.is_some();
        // Nothing that is mounted on the host later comes in, and nothing here goes out.
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        enclosure_spec.said("parting it from the host's mounts", mount_change(c"/", private))?;
        for (part, place) in enclosure_spec.parts.iter().zip(&mut self.mounts) {
            let taken = take(part, is_user);
            *place = Some(enclosure_spec.said_at(&part.path, taken)?);
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let options = Some(&*enclosure_spec.root_options);
        enclosure_spec
            .said("mounting its root", mount(c"kurabe", STAGE, c"tmpfs", flags, options))?;
        let is_pivoted = enclosure_spec.said("changing the root", change_root())?;
        for step in &enclosure_spec.steps {
            let (at, done) = carry_out(step, enclosure_spec, &self.mounts);
            enclosure_spec.said_at(at, done)?;
        }
        // These two while the host's are still there: the kernel compares.
        let flags = MountFlags::RDONLY | flags | MountFlags::NOEXEC;
        let processes = mount(c"proc", c"/proc", c"proc", flags, None);
        // A container's /proc can be covered in part; then a user is given none at all.
        if !is_user || processes != Err(Errno::PERM) {
            enclosure_spec.said("mounting /proc", processes)?;
        }
        if !is_user {
            // What root may see there is the host's. A user sees no other user's keys.
            enclosure_spec
                .said("covering /proc", COVERED.iter().try_for_each(|path| cover(path)))?;
        }
        let devices = mount(c"sysfs", c"/sys", c"sysfs", flags, None);
        if devices != Err(Errno::PERM) {
            enclosure_spec.said("mounting /sys", devices)?;
        }
        if is_pivoted {
            enclosure_spec.said("leaving the host's tree", unmount(c".", UnmountFlags::DETACH))?;
        }
        enclosure_spec.said("entering its root", chdir(c"/"))?;
        let frozen = set_attributes(CWD, c"/", 0, libc::MOUNT_ATTR_RDONLY);
        enclosure_spec.said_by("making its root read-only", frozen)
    }
}

impl EnclosureSpec {
    fn said<T>(&self, what: &str, result: rustix::io::Result<T>) -> io::Result<T> {
        self.said_by(what, result.map_err(io::Error::from))
    }

    fn said_at<T>(&self, at: &CStr, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            let _ = rustix::io::write(&self.complaint, at.to_bytes());
        }
        result
    }

    fn said_by<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            let _ = rustix::io::write(&self.complaint, what.as_bytes());
        }
        result
    }
}

/// clone3(2) without shared memory: 0 in the child, else the child's number.
fn clone(flags: u64, group: Option<&OwnedFd>) -> io::Result<u64> {
    // SAFETY: clone_args is plain integers, for which all zeros is a value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags;
    if flags & libc::CLONE_PARENT as u64 == 0 {
        arguments.exit_signal = libc::SIGCHLD as u64;
    }
    if let Some(group) = group {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = group.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child has a copy of all memory and returns here as of fork(2); the
    // arguments live until then and have the size that is said.
    match unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of_val(&arguments)) } {
        number @ 0.. => Ok(number as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for a child and ends as it ended.
fn end_as(child: libc::pid_t) -> ! {
    // Nothing that the parent waits for may hang on this process.
    // SAFETY: it closes descriptors that nothing here uses afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0) };
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live, writable integer.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        if ended == child {
            break;
        }
        if ended < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            // SAFETY: it ends this process without running anything.
            unsafe { libc::_exit(127) };
        }
    }
    if libc::WIFSIGNALED(status) {
        // SAFETY: both take integers; the default action of what ended the child ends this process.
        unsafe {
            libc::signal(libc::WTERMSIG(status), libc::SIG_DFL);
            libc::kill(libc::getpid(), libc::WTERMSIG(status));
        }
    }
    // SAFETY: it ends this process without running anything.
    unsafe { libc::_exit(libc::WEXITSTATUS(status)) }
}

/// A detached copy of a part of the host's tree, without what is mounted below it.
fn take(part: &HostPart, is_user: bool) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let all = flags | OpenTreeFlags::AT_RECURSIVE;
    let mount = match open_tree(CWD, &*part.path, flags) {
        // To a user namespace the kernel does not show what a mount covers.
        Err(Errno::INVAL) if is_user => open_tree(CWD, &*part.path, all),
        taken => taken,
    }?;
    let found = rustix::fs::fstat(&mount)?;
    if (found.st_dev, found.st_ino) != part.identity {
        // Another one has the name since it was checked.
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    let device = if part.is_device { 0 } else { libc::MOUNT_ATTR_NODEV };
    let readonly = if part.is_writable { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let below = (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as u32;
    set_attributes(mount.as_fd(), c"", below, libc::MOUNT_ATTR_NOSUID | device | readonly)?;
    Ok(mount)
}

/// Makes the memory at [`STAGE`] the root and says whether the old root lies on top of it, to be taken
/// off. All paths lead into the new one.
fn change_root() -> rustix::io::Result<bool> {
    chdir(STAGE)?;
    match pivot_root(c".", c".") {
        // The root is the kernel's first one, as of a guest that runs in memory.
        Err(Errno::INVAL) => {
            mount_move(c".", c"/")?;
            chroot(c".")?;
            Ok(false)
        }
        pivoted => pivoted.map(|()| true),
    }
}

fn carry_out<'a>(
    step: &'a RootStep,
    enclosure_spec: &'a EnclosureSpec,
    mounts: &[Option<OwnedFd>],
) -> (&'a CStr, io::Result<()>) {
    let there = |made: rustix::io::Result<()>| match made {
        Err(Errno::EXIST) => Ok(()),
        made => made.map_err(io::Error::from),
    };
    match step {
        RootStep::Directory(path) => (path, there(rustix::fs::mkdir(&**path, Mode::from(0o755)))),
        RootStep::File(path) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            (path, there(open(&**path, flags, Mode::from(0o644)).map(drop)))
        }
        RootStep::Link(target, path) => (path, there(symlinkat(&**target, CWD, &**path))),
        RootStep::Attach(number) => {
            let path = &*enclosure_spec.parts[*number].path;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            let attached = match &mounts[*number] {
                Some(mount) => move_mount(mount.as_fd(), c"", CWD, path, flags),
                None => Err(Errno::BADF),
            };
            (path, attached.map_err(io::Error::from))
        }
        RootStep::Memory(path, options) => {
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let mounted = mount(c"kurabe", &**path, c"tmpfs", flags, Some(&**options));
            (path, mounted.map_err(io::Error::from))
        }
        RootStep::Freeze(path) => (path, set_attributes(CWD, path, 0, libc::MOUNT_ATTR_RDONLY)),
    }
}

/// Files of procfs that tell root about the host: names of keys, addresses in the kernel, its memory.
const COVERED: [&CStr; 8] = [
    c"/proc/cmdline",
    c"/proc/keys",
    c"/proc/key-users",
    c"/proc/kallsyms",
    c"/proc/kcore",
    c"/proc/kmsg",
    c"/proc/timer_list",
    c"/proc/vmallocinfo",
];

/// Covers a file with the empty one, where there is such a file.
fn cover(path: &CStr) -> rustix::io::Result<()> {
    match rustix::mount::mount_bind(c"/dev/null", path) {
        Err(Errno::NOENT) => Ok(()),
        covered => covered,
    }
}

/// mount_setattr(2): adds attributes to a mount, and makes it private.
fn set_attributes(at: impl AsFd, path: &CStr, flags: u32, added: u64) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: added,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: the path and the attributes outlive the call, which reads so many bytes of them as it
    // is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the rights of root behind, and keeps root's files: they are those of the only user in a new namespace.
fn lower(own: &OwnedFd, [users, groups]: &[CString; 2]) -> io::Result<()> {
    // SAFETY: it changes the credentials of this process, which has one thread, and no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Err(io::Error::last_os_error());
    }
    write_to(own, c"setgroups", b"deny")?;
    write_to(own, c"uid_map", users.as_bytes())?;
    write_to(own, c"gid_map", groups.as_bytes())?;
    Ok(())
}

fn write_to(at: impl AsFd, path: &CStr, text: &[u8]) -> rustix::io::Result<()> {
    let file = openat(at, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}

/// Leaves this process and the programs that it starts no capability but those that are kept.
fn give_up_capabilities(kept: CapabilitySet) -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let had = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: had.effective & kept,
            permitted: had.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Lets the program have no descriptor but the first three: one of a directory would lead out.
fn close_on_exec() -> io::Result<()> {
    const CLOEXEC: u32 = 1 << 2;
    // SAFETY: it sets a flag of descriptors, and closes none before the exec.
    match unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
