//! unshare(2), and mount_setattr(2).

use std::ffi::CString;
use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};

/// Gives this process a mount namespace of its own, and its later children a process namespace of
/// their own, of which the first child is the init. Needs CAP_SYS_ADMIN.
pub fn enter_namespaces() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID)
}

/// Gives this thread a mount namespace of its own: what is mounted in it is seen nowhere else, while
/// what is unmounted outside goes away in it too. Needs CAP_SYS_ADMIN.
pub fn enter_mount_namespace() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes flags only. None of the namespaces changes anything for other threads'
    // memory, and a process namespace concerns only children.
    let result = unsafe { libc::unshare(flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What an enclosure parts from the machine.
fn enclosed(is_online: bool) -> libc::c_int {
    let network = if is_online { 0 } else { libc::CLONE_NEWNET };
    libc::CLONE_NEWNS | libc::CLONE_NEWIPC | network
}

/// Gives this thread mount and System V namespaces of its own, and one of the network unless it
/// `is_online`; the next process that it starts has a process namespace, of which it is the init.
/// Needs CAP_SYS_ADMIN.
pub fn enter_enclosure(is_online: bool) -> io::Result<()> {
    unshare(enclosed(is_online) | libc::CLONE_NEWPID)
}

/// The same for this process, which has one thread and no rights: with a user namespace, and
/// without one of processes.
pub fn enter_enclosure_of_user(is_online: bool) -> io::Result<()> {
    unshare(enclosed(is_online) | libc::CLONE_NEWUSER)
}

/// Makes the mount at a path, or all at and below it, read-only and without devices.
pub fn forbid_writes(path: &str, recursive: bool) -> io::Result<()> {
    let path = CString::new(path)?;
    let nodev = if recursive { libc::MOUNT_ATTR_NODEV } else { 0 };
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | nodev,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path and the attributes outlive the call, which reads so many bytes of them as it
    // is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
