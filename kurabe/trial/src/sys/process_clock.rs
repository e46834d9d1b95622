//! The CPU clock of another process, to the nanosecond: clock_getcpuclockid(3).

use std::io;

use rustix::process::Pid;

/// CPU time in ns that the process `pid` and its threads have used, without its children.
pub fn cpu_time_ns(pid: Pid) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a live, writable clockid_t.
    let result = unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live, writable timespec.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_process_runs_while_it_works() {
        let own = rustix::process::getpid();
        let before = cpu_time_ns(own).unwrap();
        let mut sum = 0u64;
        while cpu_time_ns(own).unwrap() < before + 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let idle = cpu_time_ns(Pid::from_raw(child.id() as i32).unwrap()).unwrap();
        assert!(idle < 1_000_000_000, "{idle}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cpu_time_ns(Pid::from_raw(child.id() as i32).unwrap()).is_err());
    }
}
