//! The crate's only unsafe code: what is done between fork and exec, and the processor's counter.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Has the kernel kill the command's process when the thread that starts it ends, however it ends.
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: both are plain system calls without memory, safe between fork and exec.
        let (asked, above) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        // It may have ended before it was asked for.
        if asked == 0 && above as u32 == parent {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure allocates nothing, takes no lock and touches no memory but its copy of
    // a number.
    unsafe { command.pre_exec(ask) };
}

/// Leaves a descriptor of this process open in the command's.
pub fn keep_open(command: &mut Command, descriptor: RawFd) {
    let keep = move || {
        // SAFETY: a plain system call without memory, safe between fork and exec; of a descriptor that is
        // not open it is an error and nothing else.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure allocates nothing, takes no lock and touches no memory but its copy of a number.
    unsafe { command.pre_exec(keep) };
}

/// Frequency of the time stamp counter in kHz, measured for 20 ms; absent where there is none.
///
/// An emulated guest reads the host's counter and has nothing to measure it by.
pub fn counter_khz() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the instruction reads a counter that every such processor has.
        let read = || unsafe { core::arch::x86_64::_rdtsc() };
        let (started, before) = (Instant::now(), read());
        std::thread::sleep(Duration::from_millis(20));
        let (after, elapsed) = (read(), started.elapsed());
        let khz = u128::from(after.checked_sub(before)?) * 1_000_000 / elapsed.as_nanos();
        u64::try_from(khz).ok().filter(|khz| *khz > 0)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
