//! The one place of this crate with unsafe code: what the standard library offers no safe call for.
//!
//! It knows nothing of workloads or latencies.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub mod enclosed;
pub mod extents;
pub mod keys;
pub mod mapped;
pub mod seccomp;

/// Makes the child receive SIGTERM when the thread that spawned it ends.
///
/// A tool must not outlive the program that measures it, not even when that program is killed
/// with SIGKILL and cannot clean up. SIGTERM and not SIGKILL, because fio and bonnie++ end
/// their own children on it. The signal follows the spawning *thread*, so that thread has to
/// wait for the child.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: the hook runs between fork and exec and makes two plain system calls (prctl,
    // getppid): no allocation, no lock, nothing that is not async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
            // The parent may have died before the line above took effect.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Gives the calling thread a file table and a working directory of its own, as a process has.
///
/// Two things hang on the file table and not on the thread: the owner of POSIX locks, and the
/// fast path of every call that takes a descriptor (a shared table makes the kernel count a
/// reference). A client on a thread with a table of its own costs and locks like a process.
/// The descriptors above standard error that it inherited are closed, so that it pins nothing
/// of its neighbours.
///
/// The thread must not use descriptors that were opened before the call, nor hand descriptors
/// to other threads afterwards.
///
/// Errors: what `unshare` reports (a seccomp filter may refuse it).
pub fn own_file_table() -> io::Result<()> {
    // One call that leaves everything above standard error behind: a full copy, even for a
    // moment, would hold locks of the program's other threads. Kernels before 5.9 have no such
    // call; there the copy is taken and lives as long as the thread.
    // SAFETY: close_range with CLOSE_RANGE_UNSHARE gives the thread a table of its own before
    // it closes anything, so descriptors that other threads own stay open in theirs, and by
    // contract this thread uses none of them.
    let outcome =
        unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    let rest = if outcome == 0 { libc::CLONE_FS } else { libc::CLONE_FS | libc::CLONE_FILES };
    // SAFETY: unshare changes which tables the calling thread uses and no memory.
    let outcome = unsafe { libc::unshare(rest) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes (`exclusive`) or gives back a POSIX write lock on a byte range, waiting if need be.
pub fn lock_range(
    file: BorrowedFd<'_>,
    exclusive: bool,
    start_bytes: u64,
    length_bytes: u64,
) -> io::Result<()> {
    // SAFETY: flock is a plain C structure for which all zeroes is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type =
        if exclusive { libc::F_WRLCK as libc::c_short } else { libc::F_UNLCK as libc::c_short };
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::try_from(start_bytes)
        .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    lock.l_len = libc::off_t::try_from(length_bytes)
        .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: the descriptor is borrowed, so it is open; the structure outlives the call.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) };
    if outcome == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// CPU time in ns that this process and its children that have ended have used, in user mode and in the
/// kernel: getrusage(2).
pub fn own_cpu_ns() -> (u64, u64) {
    let used = |who| {
        // SAFETY: rusage is plain integers, for which all zeros is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live, writable rusage. The call fails for no other reason than
        // bad arguments.
        unsafe { libc::getrusage(who, &mut usage) };
        (usage.ru_utime, usage.ru_stime)
    };
    let (own, children) = (used(libc::RUSAGE_SELF), used(libc::RUSAGE_CHILDREN));
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (ns(own.0) + ns(children.0), ns(own.1) + ns(children.1))
}
