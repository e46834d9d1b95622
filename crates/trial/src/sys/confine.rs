//! What a command gives up between fork and exec: its terminal, root, and the sight of processes
//! that are not its own.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::time::{ClockId, clock_gettime};

/// As whom a command runs: the numbers of its user, its group and its further groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: Uid,
    /// The user's own group.
    pub group: Gid,
    /// All groups of the user.
    pub groups: Vec<Gid>,
}

/// The moment right before a confined command's exec, once it was spawned.
#[derive(Debug)]
pub struct Departure(io::PipeReader);

impl Departure {
    /// The moment on the monotonic clock, in ns. Only of a command that was spawned and that is
    /// held by nobody any more: the pipe would be waited for.
    pub fn monotonic_ns(mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The monotonic clock, which [`std::time::Instant`] reads too, in ns.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Lets a command that is the first of a process namespace see the processes of that alone, and
/// change no setting of the kernel's.
pub fn see_own_processes(command: &mut Command) {
    // SAFETY: as below.
    unsafe {
        command.pre_exec(|| {
            let flags =
                MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            Ok(mount(c"proc", c"/proc", c"proc", flags, None)?)
        });
    }
}

/// Makes the command the first process of a session and group of its own, so that it has no
/// terminal. `processes` is the open `cgroup.procs` of the control group that it joins. With an
/// identity it becomes that user for good: no capability, no way back by a setuid program.
pub fn confine(
    command: &mut Command,
    processes: Option<OwnedFd>,
    identity: Option<Identity>,
) -> io::Result<Departure> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: the hook runs between fork and exec and makes plain system calls on memory that was
    // allocated before: no allocation, no lock, nothing that is not async-signal-safe. The child
    // has one thread, so what the kernel keeps for a thread is the process's.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if let Some(processes) = &processes {
                rustix::io::write(processes, b"0")?;
            }
            if let Some(identity) = &identity {
                become_user(identity)?;
            }
            // Last: joining a group can take the kernel milliseconds, which are not the command's.
            rustix::io::write(&writer, &monotonic_ns().to_ne_bytes())?;
            Ok(())
        });
    }
    Ok(Departure(reader))
}

fn become_user(identity: &Identity) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_thread_groups(&identity.groups)?;
    rustix::thread::set_thread_res_gid(identity.group, identity.group, identity.group)?;
    rustix::thread::set_thread_res_uid(identity.user, identity.user, identity.user)?;
    // The line above drops them, unless a caller had set the securebits otherwise.
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}
