//! What a command gives up between fork and exec: its terminal, root, and the host's files where it is kept
//! in its contender.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Gid, Pid, Signal, Uid, getpid, getppid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::time::{ClockId, clock_gettime};

use workloads::{Enclosing, ParentProcess};

use super::wait::process_of;

/// As whom a command runs: the numbers of its user, its group and its further groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserIdentity {
    pub user: Uid,
    /// The user's own group.
    pub group: Gid,
    /// All groups of the user.
    pub groups: Vec<Gid>,
    /// The directory that it enters once it is the user; absent where it stays.
    pub directory: Option<CString>,
}

/// What a confined command says right before its exec.
#[derive(Debug)]
pub struct BeforeExec(io::PipeReader);

impl BeforeExec {
    /// The process of the command that was spawned as `child`, and the moment right before its exec
    /// on the monotonic clock, in ns. The process is this one's to reap. Only when nobody holds the
    /// command any more: the pipe would be waited for.
    pub fn of(mut self, mut child: Child) -> io::Result<(Pid, u64)> {
        let mut said = [[0; 8]; 2];
        self.0.read_exact(said.as_flattened_mut())?;
        let [process, moment] = said.map(u64::from_ne_bytes);
        let Some(process) = Pid::from_raw(process as i32) else {
            return Ok((process_of(&child), moment));
        };
        // The child was only the way into the group.
        child.wait()?;
        Ok((process, moment))
    }
}

/// The monotonic clock, which [`std::time::Instant`] reads too, in ns.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes the command the first process of a session and group of its own, so that it has no
/// terminal. `group` is the open directory of the control group that it joins. With an identity it
/// becomes that user for good: no capability, no way back by a setuid program, none of the caller's keys.
/// It is killed when the thread that starts it ends, so that thread has to wait for it.
pub fn confine(
    command: &mut Command,
    group: Option<OwnedFd>,
    identity: Option<UserIdentity>,
    mut enclosing: Option<Enclosing>,
) -> io::Result<BeforeExec> {
    let (reader, writer) = io::pipe()?;
    let parent = getpid();
    // SAFETY: the hook runs between fork and exec and makes plain system calls on memory that was
    // allocated before: no allocation, no lock, nothing that is not async-signal-safe. The child
    // has one thread, so what the kernel keeps for a thread is the process's.
    unsafe {
        command.pre_exec(move || {
            let process = match &mut enclosing {
                Some(enclosing) => enclosing.enter(ParentProcess::Sibling, group.as_ref())?,
                None => group.as_ref().map_or(Ok(0), enter)?,
            };
            rustix::process::setsid()?;
            if let Some(identity) = &identity {
                become_user(identity)?;
            }
            // After the user was changed, which the kernel answers by forgetting what was asked for before.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above. In a namespace of its own it is not seen.
            if enclosing.is_none() && getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // Last: entering a group can take the kernel milliseconds, which are not the command's.
            let said = [process, monotonic_ns()].map(u64::to_ne_bytes);
            rustix::io::write(&writer, said.as_flattened())?;
            Ok(())
        });
    }
    Ok(BeforeExec(reader))
}

/// The flag of clone3(2) by which a child begins in a control group.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Goes on in the control group, as another child of the same parent, whose number it returns.
/// Moving a process into a group takes the kernel some 10 ms, beginning one there nothing.
/// Where no such child can be had, as of the first process of a namespace, it is moved: 0.
///
/// Async-signal-safe; only for a process of one thread that is about to exec.
fn enter(group: &OwnedFd) -> io::Result<u64> {
    // SAFETY: clone_args is plain integers, for which all zeros is a value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP | libc::CLONE_PARENT as u64;
    arguments.cgroup = group.as_raw_fd() as u64;
    // SAFETY: without CLONE_VM the child has a copy of all memory and returns here as of fork(2); the
    // arguments live until then and have the size that is said.
    match unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of_val(&arguments)) } {
        0 => Ok(getpid().as_raw_nonzero().get() as u64),
        // SAFETY: it ends this process without running anything.
        1.. => unsafe { libc::_exit(0) },
        _ => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let processes = openat(group, c"cgroup.procs", flags, Mode::empty())?;
            rustix::io::write(processes, b"0")?;
            Ok(0)
        }
    }
}

fn become_user(identity: &UserIdentity) -> io::Result<()> {
    workloads::keys::leave()?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_thread_groups(&identity.groups)?;
    rustix::thread::set_thread_res_gid(identity.group, identity.group, identity.group)?;
    rustix::thread::set_thread_res_uid(identity.user, identity.user, identity.user)?;
    // The line above drops them, unless a caller had set the securebits otherwise.
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    if let Some(directory) = &identity.directory {
        rustix::process::chdir(directory)?;
    }
    Ok(())
}
