//! The session keyring (session-keyring(7)), which a process inherits like its descriptors and keeps when it
//! becomes another user.

use std::io;

/// Goes on with an empty session keyring of its own. Async-signal-safe.
///
/// Errors: the system's. A kernel without keys, or one that refuses the call to this process and so to all that it
/// starts, is none.
pub fn leave() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let no_name = std::ptr::null::<libc::c_char>();
    // SAFETY: without a name the call reads no memory.
    match unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, no_name) } {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
            error => Err(error),
        },
    }
}
