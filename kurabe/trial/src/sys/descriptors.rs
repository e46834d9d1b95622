//! The descriptors that this process was born with.

use std::fs;
use std::io;

/// Lets no program that is started from now on inherit what whoever started this process had open
/// and did not close. What Rust and rustix open themselves is close-on-exec already.
pub fn keep_descriptors_from_children() -> io::Result<()> {
    let numbers: Vec<libc::c_int> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // SAFETY: F_SETFD takes an integer and touches no memory. A number that was closed since
        // it was listed, as that of the listing itself, gives EBADF.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}
