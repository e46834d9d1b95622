//! Finds programs, and is the only place that does: a test compares it with the sources of all
//! crates (`kurabe/command/tests/programs.rs`).
//!
//! A program is searched in `PATH`, then among the tools of administrators; never next to the
//! running program or in the current directory. Where root searches, whoever could put a program
//! there could do anything as root. So a directory of `PATH` is passed over when a stranger owns it,
//! or when others can write it or can change the way to it; and so is such a program. What is started
//! gets a `PATH` of the directories that are left, since tools start tools.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Refused, way};

/// Where the tools of administrators lie when a user's `PATH` leaves them out, as Debian's does.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// A program that was found where nobody could have put it who is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProgram {
    path: PathBuf,
    search_path: OsString,
}

impl TrustedProgram {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that starts it. It finds further programs as this process does.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("PATH", &self.search_path);
        command
    }
}

/// A program was not found.
#[derive(Debug)]
pub struct NotFound {
    /// Its name.
    pub name: String,
    /// Programs of that name that were passed over, and why.
    pub passed_over: Vec<Refused>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not installed", self.name)?;
        self.passed_over.iter().try_for_each(|refused| write!(f, " (not used: {refused})"))
    }
}

impl std::error::Error for NotFound {}

/// Where a program is, if it can be found.
pub fn find(name: &str) -> Option<PathBuf> {
    locate(name).ok().map(|program| program.path)
}

/// Finds a program by its name, or takes one that is named by its path.
///
/// # Errors
///
/// [`NotFound`] names what was passed over, and why.
pub fn locate(name: &str) -> Result<TrustedProgram, NotFound> {
    Search::of_process().locate(name)
}

/// A command for a program that [`locate`] finds.
///
/// # Errors
///
/// Those of [`locate`].
pub fn command(name: &str) -> Result<Command, NotFound> {
    locate(name).map(|program| program.command())
}

/// How to install what is in one of these packages, the preferred one first, as the end of a message: the first
/// package that this machine's sources have.
pub fn how_to_install(packages: &[&str]) -> String {
    how(packages, is_unavailable)
}

fn how(packages: &[&str], is_unavailable: impl Fn(&str) -> bool) -> String {
    match packages.iter().find(|package| !is_unavailable(package)) {
        Some(package) => format!("it is in the package {package}: apt install {package}"),
        None => format!("this machine's package sources have no {}", packages.join(" or ")),
    }
}

/// Whether the package sources of this machine are known, and lack a package.
fn is_unavailable(package: &str) -> bool {
    let Ok(mut policy) = command("apt-cache") else { return false };
    policy.args(["policy", package]).env("LC_ALL", "C").env_remove("LANGUAGE");
    let said = policy.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.ok().filter(|said| said.status.success()).map(|said| said.stdout);
    let said = said.map(|said| String::from_utf8_lossy(&said).into_owned());
    said.is_some_and(|said| !said.contains("Candidate:") || said.contains("Candidate: (none)"))
}

/// A command that starts the running program once more, whatever its path leads to by now.
pub fn itself() -> Command {
    Command::new("/proc/self/exe")
}

/// A command for a program exactly as it is given: what the user typed after `--`, `--setup` and the
/// like, found by the user's own `PATH` as the user's shell would find it; or a path that is known
/// beforehand.
pub fn as_given(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// The parts of `PATH` that are passed over, a line each with the reason; those that do not exist
/// are left out.
pub fn passed_over() -> Vec<String> {
    Search::of_process().passed_over
}

/// Whether a path is a program that this user can start.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The directories in which programs are searched.
struct Search {
    directories: Vec<PathBuf>,
    /// Directories that a stranger can change.
    unsafe_directories: Vec<PathBuf>,
    passed_over: Vec<String>,
    /// Whether what is found is started with the rights of root.
    is_root: bool,
}

impl Search {
    fn of_process() -> Search {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Search::new(&path, rustix::process::geteuid().is_root())
    }

    fn new(path: &OsStr, is_root: bool) -> Search {
        let (directories, unsafe_directories, passed_over) = Default::default();
        let mut search = Search { directories, unsafe_directories, passed_over, is_root };
        for directory in std::env::split_paths(path) {
            search.add(directory, true);
        }
        for directory in SYSTEM_DIRECTORIES {
            search.add(directory.into(), false);
        }
        search
    }

    fn add(&mut self, directory: PathBuf, is_of_user: bool) {
        if self.directories.contains(&directory) || self.unsafe_directories.contains(&directory) {
            return;
        }
        if directory.is_relative() {
            // Whatever directory one happens to be in.
            let shown = directory.display();
            self.passed_over.push(format!("'{shown}' in PATH is not searched: it is relative"));
            return;
        }
        match if self.is_root { check(&directory) } else { Ok(()) } {
            Ok(()) => self.directories.push(directory),
            Err(refused) if refused.is_missing() => {}
            Err(refused) => {
                if is_of_user {
                    let shown = directory.display();
                    self.passed_over.push(format!("{shown} in PATH is not searched: {refused}"));
                }
                self.unsafe_directories.push(directory);
            }
        }
    }

    fn locate(&self, name: &str) -> Result<TrustedProgram, NotFound> {
        let mut passed_over = Vec::new();
        let found = if name.contains('/') {
            self.take(PathBuf::from(name), &mut passed_over)
        } else if name.is_empty() {
            None
        } else {
            let mut places = self.directories.iter().map(|directory| directory.join(name));
            places.find_map(|path| self.take(path, &mut passed_over))
        };
        if let Some(path) = found {
            let search_path = std::env::join_paths(&self.directories).unwrap_or_default();
            return Ok(TrustedProgram { path, search_path });
        }
        for directory in self.unsafe_directories.iter().filter(|_| !name.contains('/')) {
            if is_executable(&directory.join(name)) {
                passed_over.extend(check(directory).err());
            }
        }
        Err(NotFound { name: name.into(), passed_over })
    }

    fn take(&self, path: PathBuf, passed_over: &mut Vec<Refused>) -> Option<PathBuf> {
        if path.is_relative() || !is_executable(&path) {
            return None;
        }
        match if self.is_root { check(&path) } else { Ok(()) } {
            Ok(()) => Some(path),
            Err(refused) => {
                passed_over.push(refused);
                None
            }
        }
    }
}

/// Whether nobody who is not trusted can change what is at a path: a directory into which nobody
/// else can put anything, or a program that nobody else can write.
fn check(path: &Path) -> Result<(), Refused> {
    let (opened, stat) = way::open(path)?;
    // A sticky directory is refused here: anybody can add a program to it.
    way::check(path, &opened, &stat)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NAME: &str = "kurabe-program";

    #[test]
    fn a_package_is_named_that_the_sources_have() {
        let packages = ["librocksdb7.8", "librocksdb9.10"];
        let with = |lacking: &[&str]| how(&packages, |package| lacking.contains(&package));
        assert_eq!(with(&[]), "it is in the package librocksdb7.8: apt install librocksdb7.8");
        assert!(with(&packages[..1]).ends_with(": apt install librocksdb9.10"));
        let lacking = "this machine's package sources have no librocksdb7.8 or librocksdb9.10";
        assert_eq!(with(&packages), lacking);
        // Whatever its sources are, no machine of Debian's has this one.
        if find("apt-cache").is_some() {
            assert!(is_unavailable("kurabe-no-such-package"));
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn program_in(directory: &Path) -> PathBuf {
        let program = directory.join(NAME);
        fs::write(&program, "").unwrap();
        set_mode(&program, 0o755);
        program
    }

    fn find_in(path: &Path, is_root: bool) -> Option<PathBuf> {
        Search::new(path.as_os_str(), is_root).locate(NAME).ok().map(|program| program.path)
    }

    #[test]
    fn only_programs_in_absolute_places_are_found() {
        let home = tempfile::tempdir().unwrap();
        let program = program_in(home.path());
        for is_root in [false, true] {
            set_mode(&program, 0o644);
            assert_eq!(find_in(home.path(), is_root), None, "not executable");
            set_mode(&program, 0o755);
            assert_eq!(find_in(home.path(), is_root), Some(program.clone()));
            // The same directory by a relative name: as many steps up as there are, and down again.
            let here = std::env::current_dir().unwrap();
            let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
            let relative = up.join(home.path().strip_prefix("/").unwrap());
            assert!(relative.join(NAME).exists());
            assert_eq!(find_in(&relative, is_root), None);
            assert_eq!(find_in(Path::new(""), is_root), None);
            let passed_over = Search::new(relative.as_os_str(), is_root).passed_over;
            assert!(passed_over[0].ends_with("is relative"), "{passed_over:?}");
        }
    }

    #[test]
    fn where_others_can_put_a_program_root_finds_none() {
        let home = tempfile::tempdir().unwrap();
        let (open, good) = (home.path().join("open"), home.path().join("good"));
        for directory in [&open, &good] {
            fs::create_dir(directory).unwrap();
            program_in(directory);
        }
        // A sticky directory too: others cannot replace a program there, but add one.
        for mode in [0o777, 0o1777, 0o757] {
            set_mode(&open, mode);
            assert_eq!(find_in(&open, true), None, "{mode:o}");
            assert_eq!(find_in(&open, false), Some(open.join(NAME)), "{mode:o}");
            let both = std::env::join_paths([&open, &good]).unwrap();
            assert_eq!(find_in(Path::new(&both), true), Some(good.join(NAME)));
            let search = Search::new(open.as_os_str(), true);
            let not_found = search.locate(NAME).unwrap_err().to_string();
            let reason = format!("(not used: {} can be written by other users", open.display());
            assert!(not_found.contains(&reason), "{not_found}");
            assert_eq!(search.passed_over.len(), 1);
            // Nor does a program that is started find one there.
            let program = Search::new(&both, true).locate(NAME).unwrap();
            let command = program.command();
            let (_, path) = command.get_envs().find(|(name, _)| *name == "PATH").unwrap();
            let mut searched = std::env::split_paths(path.unwrap());
            assert!(searched.all(|directory| directory != open), "{path:?}");
        }
        set_mode(&open, 0o755);
        set_mode(&open.join(NAME), 0o757);
        assert_eq!(find_in(&open, true), None, "others can write the program");
        symlink(good.join(NAME), home.path().join(NAME)).unwrap();
        assert_eq!(find_in(home.path(), true), Some(home.path().join(NAME)), "a link of root's");
        if rustix::process::geteuid().is_root() {
            set_mode(&open.join(NAME), 0o755);
            std::os::unix::fs::chown(&open, Some(54_321), None).unwrap();
            assert_eq!(find_in(&open, true), None, "a stranger's directory");
            let linked = home.path().join("linked");
            symlink(&open, &linked).unwrap();
            assert_eq!(find_in(&linked, true), None, "a link to a stranger's directory");
        }
    }

    #[test]
    fn a_program_by_its_path_is_held_to_the_same() {
        let home = tempfile::tempdir().unwrap();
        let program = program_in(home.path());
        let locate = || Search::new(OsStr::new(""), true).locate(&program.display().to_string());
        assert_eq!(locate().unwrap().path, program);
        set_mode(home.path(), 0o777);
        assert!(locate().is_err());
    }
}
