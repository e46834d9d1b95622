//! Finds programs as root's shell would find them.

use std::path::{Path, PathBuf};

/// Where the tools of administrators lie when a user's `PATH` leaves them out, as Debian's does.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Finds a program in `PATH`, then among the tools of administrators. A relative place in `PATH` is
/// whatever directory one happens to be in, and is passed over.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

/// Whether a path is a program that this user can start.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
