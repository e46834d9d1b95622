//! unshare(2) of the mount and process namespaces.

use std::io;

/// Gives this process a mount namespace of its own, and its later children a process namespace of
/// their own, of which the first child is the init. Needs CAP_SYS_ADMIN.
pub fn enter_namespaces() -> io::Result<()> {
    // SAFETY: unshare takes flags only. A private mount namespace changes nothing for other
    // threads' memory, and a process namespace concerns only children.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process, which has no other threads yet, a mount namespace of its own. Needs
/// CAP_SYS_ADMIN.
pub fn enter_mount_namespace() -> io::Result<()> {
    // SAFETY: as above.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
