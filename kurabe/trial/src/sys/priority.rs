//! The scheduling class of a thread.

use std::io;

/// Runs this thread before all that share the processors by turns (`SCHED_RR`, sched(7)). Threads and
/// processes that it starts do not inherit that.
///
/// Errors: this process may not, or the kernel gives its control group no such time.
pub fn go_first() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let class = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live sched_param, which the kernel only reads; 0 is this thread.
    match unsafe { libc::sched_setscheduler(0, class, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
