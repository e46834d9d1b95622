//! wait4(2), which reaps a child and gives its accounts in one call.

use std::io;
use std::process::Child;

use rustix::process::Pid;

pub fn process_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a child's number is positive")
}

/// What a reaped child cost, its own waited-for children included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Exit code, when it exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it, when one did.
    pub signal: Option<i32>,
    /// CPU time in user mode, in ns.
    pub user_ns: u64,
    /// CPU time in the kernel, in ns.
    pub system_ns: u64,
    /// Resident set of the largest process, in bytes.
    pub memory_bytes_max: u64,
}

fn nanoseconds(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000
}

/// Has children that end wait for this process, whatever it inherited: where SIGCHLD is ignored the kernel reaps
/// them, and their numbers may be another's when they are waited for or killed.
pub fn keep_ended_children() {
    // SAFETY: the default action is no function, so no code of ours runs in a signal handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has a write beyond `ulimit -f` fail with EFBIG, which has words and is cleaned up after, instead of ending the
/// process. A handler and not SIG_IGN, because a workload would inherit that.
pub fn fail_writes_beyond_the_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, so it may interrupt anything.
    unsafe {
        libc::signal(libc::SIGXFSZ, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t)
    };
}

/// Waits for the end of `pid` and reaps it.
pub fn wait_with_usage(pid: Pid) -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live, writable values of the types that wait4 asks for.
        let result = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, &mut usage) };
        if result >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(Reaped {
        exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_ns: nanoseconds(usage.ru_utime),
        system_ns: nanoseconds(usage.ru_stime),
        // Linux gives ru_maxrss in units of 1024 bytes.
        memory_bytes_max: usage.ru_maxrss as u64 * 1024,
    })
}
