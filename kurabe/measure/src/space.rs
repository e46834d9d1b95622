//! The free space of a directory, looked at right before a workload begins.

use std::io;
use std::path::Path;

use vocabulary::capacity::{self, Capacity};

/// Bytes that an unprivileged user can still write.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Refuses what is larger than the free space; see [`capacity::check`].
pub fn check(
    directory: &Path,
    needer: &str,
    needed_bytes: u64,
    remedy: &str,
) -> Result<(), String> {
    let holder = directory.display().to_string();
    let bytes = free_bytes(directory).map_err(|error| format!("{holder}: {error}"))?;
    capacity::check(needer, needed_bytes, Some(&Capacity { bytes, holder }), remedy)
}
