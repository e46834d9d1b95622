//! A filter of system calls (seccomp(2)) for what runs in an enclosure.
//!
//! An enclosure is made of namespaces and mounts. Some interfaces of the kernel belong to neither: keys belong
//! to a user or a session, ioctls reach what lies below a device, a socket's family can lead out of its network
//! namespace. The filter refuses these, and the system calls that make further namespaces. Sockets and ioctls
//! are allowed by list.

use std::io;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_RSH, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, sock_filter,
};

/// Offsets in `struct seccomp_data`. Of an argument the lower half is read: those that are compared are an
/// `int` or flags of 32 bits to the kernel.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
const SECOND_ARGUMENT: u32 = FIRST_ARGUMENT + 8;

/// The name that the kernel has for this processor: `AUDIT_ARCH_*` of linux/audit.h.
const OWN_ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else if cfg!(target_arch = "riscv64") {
    0xc000_00f3
} else {
    0
};

/// Numbers from here on are calls of x32, another set on x86-64.
const X32: u32 = 0x4000_0000;

/// Calls that are refused whatever their arguments are, with what they reach:
/// keys of the user and the session, programs and counters in the kernel, other namespaces, other processes.
const REFUSED: [libc::c_long; 11] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
];

/// The flags of clone(2) by which a process gets a namespace of its own.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u32;

/// The families of sockets that belong to a network namespace and are bound to no file.
const FAMILIES: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// Kinds of ioctls, the second byte of their number, which concern the open device or terminal alone: block
/// layer, terminals, random numbers, SCSI.
const IOCTL_KINDS: [u32; 4] = [0x12, 0x54, 0x52, 0x22];

/// Single ioctls of kinds among which others reach further: resizing the file system that a directory lies on,
/// taking a snapshot of it, setting up a loop device anew.
const IOCTLS: [u32; 11] = [
    0x0000_0002, // FIGETBSZ
    0x8008_6601, // FS_IOC_GETFLAGS
    0x4008_6602, // FS_IOC_SETFLAGS
    0xc020_660b, // FS_IOC_FIEMAP
    0xc028_660f, // EXT4_IOC_MOVE_EXT
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc018_9436, // FIDEDUPERANGE
    0x4e40,      // NVME_IOCTL_ID
];

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes on with the next instruction where the comparison holds, else `no` instructions later.
fn unless(comparison: u32, k: u32, no: usize) -> sock_filter {
    let no = u8::try_from(no).expect("a block has fewer than 256 instructions");
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt: 0, jf: no, k }
}

const fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

const fn answer(with: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, with)
}

const fn refuse(error: libc::c_int) -> sock_filter {
    answer(SECCOMP_RET_ERRNO | error as u32)
}

/// `then` where the value equals `k`.
fn equal(k: u32, then: sock_filter) -> [sock_filter; 2] {
    [unless(BPF_JEQ, k, 1), then]
}

/// The filter's instructions.
#[derive(Debug)]
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// The filter of an enclosure. One with the machine's network has no io_uring, which makes sockets without a
    /// system call of their own: there the machine's abstract sockets would be in reach.
    ///
    /// One of a server has sockets of files too, by which its processes and clients talk: there is no file and no
    /// name of the machine's in its reach.
    ///
    /// Errors: it is not written for this processor.
    pub fn new(is_online: bool, is_server: bool) -> io::Result<Filter> {
        if OWN_ARCHITECTURE == 0 {
            let text = "no filter of system calls is known for this processor";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let mut filter = vec![
            load(ARCHITECTURE),
            sock_filter { jt: 1, jf: 0, ..unless(BPF_JEQ, OWN_ARCHITECTURE, 0) },
            // A program of another architecture, whose calls have other numbers.
            answer(SECCOMP_RET_KILL_PROCESS),
            load(NUMBER),
            unless(BPF_JGE, X32, 1),
            refuse(libc::ENOSYS),
        ];
        for call in REFUSED {
            filter.extend(equal(call as u32, refuse(libc::EPERM)));
        }
        // Its flags lie in memory, where a filter cannot read. Who is told that it is not there takes clone(2).
        filter.extend(equal(libc::SYS_clone3 as u32, refuse(libc::ENOSYS)));
        if is_online {
            filter.extend(equal(libc::SYS_io_uring_setup as u32, refuse(libc::ENOSYS)));
        }
        let clone = vec![
            load(FIRST_ARGUMENT),
            unless(BPF_JSET, NEW_NAMESPACES, 1),
            refuse(libc::EPERM),
            answer(SECCOMP_RET_ALLOW),
        ];
        let mut socket = vec![load(FIRST_ARGUMENT)];
        let of_files = (is_server && !is_online).then_some(libc::AF_UNIX);
        for family in FAMILIES.into_iter().chain(of_files) {
            socket.extend(equal(family as u32, answer(SECCOMP_RET_ALLOW)));
        }
        socket.push(refuse(libc::EAFNOSUPPORT));
        let mut ioctl = vec![load(SECOND_ARGUMENT)];
        for number in IOCTLS {
            ioctl.extend(equal(number, answer(SECCOMP_RET_ALLOW)));
        }
        ioctl.push(statement(BPF_ALU | BPF_RSH | BPF_K, 8));
        ioctl.push(statement(BPF_ALU | BPF_AND | BPF_K, 0xff));
        for kind in IOCTL_KINDS {
            ioctl.extend(equal(kind, answer(SECCOMP_RET_ALLOW)));
        }
        ioctl.push(refuse(libc::ENOTTY));
        let blocks =
            [(libc::SYS_clone, clone), (libc::SYS_socket, socket), (libc::SYS_ioctl, ioctl)];
        for (call, block) in blocks {
            filter.push(unless(BPF_JEQ, call as u32, block.len()));
            filter.extend(block);
        }
        filter.push(answer(SECCOMP_RET_ALLOW));
        Ok(Filter(filter))
    }

    /// Puts the filter on this process and all that it starts, for good. Needs that no program of it can gain
    /// rights. Async-signal-safe.
    pub fn install(&self) -> io::Result<()> {
        let instructions = &self.0;
        let program = libc::sock_fprog {
            len: instructions.len() as u16,
            filter: instructions.as_ptr().cast_mut(),
        };
        // SAFETY: the program outlives the call, which reads as many instructions as it is told and writes
        // none.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;

    use super::*;

    /// What a process under the filter was told: 0 or the error's number, call by call.
    fn told(is_online: bool, is_server: bool, calls: &'static [[libc::c_long; 4]]) -> Vec<i32> {
        let filter = Filter::new(is_online, is_server).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = std::process::Command::new("true");
        // SAFETY: the hook makes plain system calls on memory that was allocated before.
        unsafe {
            command.pre_exec(move || {
                rustix::thread::set_no_new_privs(true)?;
                filter.install()?;
                for call in calls {
                    let result = libc::syscall(call[0], call[1], call[2], call[3], 0, 0);
                    let error = if result < 0 { *libc::__errno_location() } else { 0 };
                    libc::write(writer.as_raw_fd(), (&raw const error).cast(), 4);
                }
                Ok(())
            });
        }
        let status = command.status().unwrap();
        drop(command);
        assert!(status.success());
        let mut said = Vec::new();
        io::Read::read_to_end(&mut reader, &mut said).unwrap();
        said.chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect()
    }

    #[test]
    fn what_reaches_out_of_an_enclosure_is_refused() {
        const SOCKET: libc::c_long = libc::SYS_socket;
        const STREAM: libc::c_long = libc::SOCK_STREAM as libc::c_long;
        const OWN_KEYS: libc::c_long = -4;
        const CALLS: [[libc::c_long; 4]; 17] = [
            [libc::SYS_keyctl, 0, OWN_KEYS, 0],
            [libc::SYS_add_key, 0, 0, 0],
            [libc::SYS_request_key, 0, 0, 0],
            [libc::SYS_bpf, 0, 0, 0],
            [libc::SYS_perf_event_open, 0, 0, 0],
            [libc::SYS_unshare, libc::CLONE_NEWUSER as libc::c_long, 0, 0],
            [libc::SYS_setns, 0, 0, 0],
            [libc::SYS_ptrace, libc::PTRACE_ATTACH as libc::c_long, 1, 0],
            [libc::SYS_process_vm_readv, 1, 0, 0],
            [libc::SYS_process_vm_writev, 1, 0, 0],
            [libc::SYS_pidfd_getfd, -1, 0, 0],
            [libc::SYS_clone, libc::CLONE_NEWUSER as libc::c_long, 0, 0],
            [libc::SYS_clone3, 0, 0, 0],
            [SOCKET, libc::AF_UNIX as libc::c_long, STREAM, 0],
            [SOCKET, libc::AF_VSOCK as libc::c_long, STREAM, 0],
            [SOCKET, libc::AF_NETLINK as libc::c_long, libc::SOCK_RAW as libc::c_long, 0],
            [SOCKET, libc::AF_INET as libc::c_long, STREAM, 0],
        ];
        let (no, missing, family) = (libc::EPERM, libc::ENOSYS, libc::EAFNOSUPPORT);
        let expected =
            [no, no, no, no, no, no, no, no, no, no, no, no, missing, family, family, family, 0];
        assert_eq!(told(false, false, &CALLS), expected);
        assert_eq!(told(true, false, &CALLS), expected);
        // A server's processes talk by files, and by nothing else.
        let mut of_server = expected;
        of_server[13] = 0;
        assert_eq!(told(false, true, &CALLS), of_server);
        assert_eq!(told(true, true, &CALLS), expected, "with the network, no abstract names");
    }

    #[test]
    fn only_without_a_network_there_is_io_uring() {
        const CALLS: [[libc::c_long; 4]; 1] = [[libc::SYS_io_uring_setup, 1, 0, 0]];
        assert_eq!(told(true, false, &CALLS), [libc::ENOSYS]);
        // A bad address: it was asked.
        let asked = told(false, false, &CALLS)[0];
        assert!([libc::EFAULT, libc::ENOSYS, libc::EPERM].contains(&asked), "{asked}");
    }

    #[test]
    fn ioctls_are_allowed_by_list() {
        const NOT_OPEN: libc::c_long = 100_000;
        const REACHING: [[libc::c_long; 4]; 5] = [
            [libc::SYS_ioctl, NOT_OPEN, 0x4c04, 0], // LOOP_SET_STATUS64
            [libc::SYS_ioctl, NOT_OPEN, 0x4c0a, 0], // LOOP_CONFIGURE
            [libc::SYS_ioctl, NOT_OPEN, 0x4008_6610, 0], // EXT4_IOC_RESIZE_FS
            [libc::SYS_ioctl, NOT_OPEN, 0x5000_9417, 0], // BTRFS_IOC_SNAP_CREATE_V2
            [libc::SYS_ioctl, NOT_OPEN, 0xc008_5879, 0], // FITRIM
        ];
        const LISTED: [[libc::c_long; 4]; 4] = [
            [libc::SYS_ioctl, NOT_OPEN, 0x1277, 0],      // BLKDISCARD
            [libc::SYS_ioctl, NOT_OPEN, 0x8008_1272, 0], // BLKGETSIZE64
            [libc::SYS_ioctl, NOT_OPEN, 0x5401, 0],      // TCGETS
            [libc::SYS_ioctl, NOT_OPEN, 0x4004_9409, 0], // FICLONE
        ];
        // The filter answers before the kernel finds that the descriptor is not open.
        assert_eq!(told(false, true, &REACHING), [libc::ENOTTY; 5]);
        assert_eq!(told(false, true, &LISTED), [libc::EBADF; 4]);
    }
}
