//! The user as whom a workload runs: who that is, what is handed over to it, and what it gets to see.
//!
//! Knows neither phases nor file systems. Invariants: what cannot be handed over is refused, never
//! run as root instead; the mount's root directory is all that the user is given.

use std::ffi::{CString, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, MemfdFlags, OFlags, XattrFlags, memfd_create};
use rustix::process::{Gid, Uid};
use trust::{Directory, program};

use crate::sys::confine::{UserIdentity, confine};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    identity: UserIdentity,
    home: PathBuf,
    shell: PathBuf,
}

/// Of this process's environment what concerns language, terminal and kurabe, and is no secret.
pub(crate) fn kept_environment() -> impl Iterator<Item = (OsString, OsString)> {
    let is_kept = |name: &str| {
        ["PATH", "LANG", "TERM"].contains(&name)
            || ["LC_", "KURABE_"].iter().any(|prefix| name.starts_with(prefix))
    };
    std::env::vars_os().filter(move |(name, _)| name.to_str().is_some_and(is_kept))
}

/// This program, for whoever may execute it.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// A copy of this program in memory, which everybody may execute.
fn copy_of_own_program() -> io::Result<File> {
    let made = |flags| memfd_create("kurabe", MemfdFlags::CLOEXEC | flags).map(File::from);
    // Kernels before 6.3 do not know the flag, and execute without.
    let mut copy = made(MemfdFlags::EXEC).or_else(|_| made(MemfdFlags::empty()))?;
    io::copy(&mut File::open(OWN_PROGRAM)?, &mut copy)?;
    // Executed through a descriptor that can write, it would be busy.
    File::open(format!("/proc/self/fd/{}", copy.as_raw_fd()))
}

/// Rights of what leads to the mount point: it can be passed and not looked into.
const PASSABLE: u32 = 0o711;

/// The access control list of a directory that its owner may use, and that one user may pass: in the form of the
/// kernel's `include/uapi/linux/posix_acl_xattr.h`, a version and entries of tag, rights and number.
fn passing(user: u32) -> Vec<u8> {
    const VERSION: u32 = 2;
    const ALL: u16 = 7;
    const PASS: u16 = 1;
    const NOBODY: u32 = u32::MAX;
    let (owner, named, group, mask, other) = (0x01_u16, 0x02, 0x04, 0x10, 0x20);
    let entries = [
        (owner, ALL, NOBODY),
        (named, PASS, user),
        (group, 0, NOBODY),
        (mask, PASS, NOBODY),
        (other, 0, NOBODY),
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    list
}

impl User {
    /// The user as whom a workload is to run, where it is another than the one of this process: then
    /// nothing changes.
    /// Errors: there is no user of that name, or this process may not become it.
    pub fn to_become(name: &str) -> Result<Option<User>, String> {
        let unknown = |why: String| format!("--user {name}: {why}");
        let known = nix::unistd::User::from_name(name)
            .map_err(|error| unknown(error.to_string()))?
            .ok_or_else(|| {
                unknown("there is no such user; 'getent passwd' lists those there are".into())
            })?;
        let own = rustix::process::geteuid();
        if known.uid.as_raw() == own.as_raw() {
            return Ok(None);
        }
        if !own.is_root() {
            return Err(unknown(
                "only root can run the workload as another user; run kurabe with sudo, or leave --user out".into(),
            ));
        }
        let text = CString::new(name).map_err(|error| unknown(error.to_string()))?;
        let groups = nix::unistd::getgrouplist(&text, known.gid)
            .map_err(|error| unknown(format!("its groups cannot be read: {error}")))?;
        let identity = UserIdentity {
            user: Uid::from_raw(known.uid.as_raw()),
            group: Gid::from_raw(known.gid.as_raw()),
            groups: groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect(),
            directory: None,
        };
        Ok(Some(User { name: known.name, identity, home: known.dir, shell: known.shell }))
    }

    pub(crate) fn identity(&self) -> UserIdentity {
        self.identity.clone()
    }

    /// The numbers of the user and of its own group.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        (self.identity.user.as_raw(), self.identity.group.as_raw())
    }

    /// All that its commands are told besides what the trial says: who they are, and of this
    /// process's environment what concerns language, terminal and kurabe.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let own = [
            ("HOME", self.home.clone().into_os_string()),
            ("USER", self.name.clone().into()),
            ("LOGNAME", self.name.clone().into()),
            ("SHELL", self.shell.clone().into_os_string()),
        ];
        kept_environment().chain(own.map(|(name, value)| (name.into(), value))).collect()
    }

    /// Gives it a fresh directory, in which the workload works, and opens the way there through
    /// kurabe's own directory, in which `scratch` lies: to pass, not to look.
    pub(crate) fn receive(&self, directory: &Path, scratch: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| {
            format!("giving {} to user {}: {error}", directory.display(), self.name)
        };
        let own = scratch.parent().unwrap_or(scratch);
        for above in directory.ancestors().skip(1).take_while(|above| above.starts_with(own)) {
            fs::set_permissions(above, Permissions::from_mode(PASSABLE)).map_err(failed)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(directory)
            .map_err(failed)?;
        let id = &self.identity;
        let owner = || opened.metadata().map(|facts| (facts.uid(), facts.gid())).map_err(failed);
        if owner()? != self.numbers() {
            rustix::fs::fchown(&opened, Some(id.user), Some(id.group))
                .map_err(|error| failed(error.into()))?;
        }
        // What mkfs left (`lost+found`), or the user could not look through its own directory.
        for entry in rustix::fs::Dir::read_from(&opened).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&opened, name, Some(id.user), Some(id.group), flags)
                    .map_err(|error| failed(error.into()))?;
            }
        }
        if owner()? != self.numbers() {
            return Err(failed(std::io::Error::other("its owner did not change")));
        }
        if self.enters(directory) {
            Ok(())
        } else {
            Err(format!(
                "user {} cannot get to {}; let everybody pass the directories above it (chmod o+x)",
                self.name,
                directory.display()
            ))
        }
    }

    /// Lets it pass a directory that only this process's user can look into, and nobody else: by an access control
    /// list, as acl(5) describes it.
    pub(crate) fn pass(&self, directory: &Directory) -> Result<(), String> {
        const NAME: &str = "system.posix_acl_access";
        let list = passing(self.identity.user.as_raw());
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(directory.descriptor_path(), NAME, &list, flags).map_err(|error| {
            format!(
                "user {} alone cannot be let into {}: setting an access control list: {error}; take a directory on a file system that has these lists, or leave --user out",
                self.name,
                directory.path().display()
            )
        })
    }

    /// The path by which the user's processes can execute this very program, wherever it lies and
    /// whoever may pass the directories above it: the kernel executes it by descriptor.
    ///
    /// A program that the user may not execute by its own mode, as one that was built under umask 077,
    /// is copied into memory once.
    ///
    /// Errors: there is no memory for it, or this kernel executes nothing from memory (`vm.memfd_noexec`).
    pub(crate) fn own_program(&self) -> Result<PathBuf, String> {
        static COPY: OnceLock<File> = OnceLock::new();
        if self.succeeds(program::itself().arg("--version")) {
            return Ok(OWN_PROGRAM.into());
        }
        let refused = |why: &dyn std::fmt::Display| {
            let program = std::env::current_exe().unwrap_or_default();
            format!(
                "user {} cannot execute {}: {why}; let everybody execute it (chmod o+x)",
                self.name,
                program.display()
            )
        };
        let copy = match COPY.get() {
            Some(copy) => copy,
            None => {
                let made = copy_of_own_program().map_err(|error| refused(&error))?;
                COPY.get_or_init(|| made)
            }
        };
        let path = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
        if self.succeeds(program::as_given(&path).arg("--version")) {
            Ok(path)
        } else {
            Err(refused(&"nor from memory"))
        }
    }

    /// Whether it can make a directory its working directory.
    pub fn enters(&self, directory: &Path) -> bool {
        self.finds("cd -- \"$1\"", directory)
    }

    /// Whether it can read a file.
    pub fn reads(&self, file: &Path) -> bool {
        self.finds("test -r \"$1\"", file)
    }

    /// Whether it can execute a program; a script has to be read as well, by its interpreter.
    pub fn executes(&self, program: &Path) -> bool {
        let is_script = || {
            let mut start = [0; 2];
            let read =
                trust::file::open_of_anybody(program).map(|mut file| file.read_exact(&mut start));
            matches!(read, Ok(Ok(()))) && start == *b"#!"
        };
        self.finds("test -x \"$1\"", program) && (!is_script() || self.reads(program))
    }

    /// Whether a line of sh succeeds with a path as its `$1`.
    fn finds(&self, line: &str, path: &Path) -> bool {
        let Ok(mut shell) = program::command("sh") else { return false };
        self.succeeds(shell.args(["-c", line, "sh"]).arg(path))
    }

    /// Whether a command succeeds as this user. The kernel is asked, since rights are more than what
    /// modes say.
    fn succeeds(&self, command: &mut Command) -> bool {
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Held until the end: the child writes to it.
        let before_exec = confine(command, None, Some(self.identity()), None);
        before_exec.is_ok() && command.status().is_ok_and(|status| status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oneself_is_no_change_and_nobody_else_is_invented() {
        let own = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        assert_eq!(User::to_become(&own.name), Ok(None));
        let refused = User::to_become("no-such-user-of-kurabe").unwrap_err();
        assert!(refused.contains("there is no such user"), "{refused}");
        if !rustix::process::geteuid().is_root() {
            let refused = User::to_become("root").unwrap_err();
            assert!(refused.contains("only root"), "{refused}");
        }
    }
}
