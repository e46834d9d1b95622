//! unshare(2).

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
