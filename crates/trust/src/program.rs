//! Finds programs as root's shell would find them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where the tools of administrators lie when a user's `PATH` leaves them out, as Debian's does.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Finds a program in `PATH`, then among the tools of administrators. A relative place in `PATH` is
/// whatever directory one happens to be in, and is passed over.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

/// Whether a path is a program that this user can start.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_programs_in_absolute_places_are_found() {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("kurabe-program");
        fs::write(&program, "").unwrap();
        let find = |path: &Path| find_in("kurabe-program", path.as_os_str());
        fs::set_permissions(&program, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find(home.path()), None, "not executable");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(home.path()), Some(program.clone()));
        // The same directory by a relative name: as many steps up as there are, and down again.
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(home.path().strip_prefix("/").unwrap());
        assert!(relative.join("kurabe-program").exists());
        assert_eq!(find(&relative), None);
        assert_eq!(find(Path::new("")), None);
    }
}
