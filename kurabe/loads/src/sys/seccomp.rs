//! A filter of system calls (seccomp(2)) for what has the machine's network and shall not reach its
//! abstract sockets, which belong to the network and to no directory.

use std::io;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, sock_filter,
};

/// Offsets in `struct seccomp_data`. Of the first argument the lower half is read: families are small, and
/// the kernel takes an `int`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

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

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes on `yes` instructions later where the comparison holds, else `no` later.
const fn jump(comparison: u32, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt: yes, jf: no, k }
}

/// Refuses sockets of the family `AF_UNIX` and io_uring, which makes sockets without a system call of their
/// own. A program of another architecture, whose calls have other numbers, is killed.
static FILTER: [sock_filter; 12] = [
    statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE),
    jump(BPF_JEQ, OWN_ARCHITECTURE, 1, 0),
    statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    statement(BPF_LD | BPF_W | BPF_ABS, NUMBER),
    jump(BPF_JGE, X32, 5, 0),
    jump(BPF_JEQ, libc::SYS_io_uring_setup as u32, 4, 0),
    jump(BPF_JEQ, libc::SYS_socket as u32, 0, 4),
    statement(BPF_LD | BPF_W | BPF_ABS, FIRST_ARGUMENT),
    jump(BPF_JEQ, libc::AF_UNIX as u32, 0, 2),
    statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
    statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
];

/// Puts the filter on this process and all that it starts, for good. Needs that no program of it can gain
/// rights. Async-signal-safe.
pub fn refuse_local_sockets() -> io::Result<()> {
    if OWN_ARCHITECTURE == 0 {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let program = libc::sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which reads as many instructions as it is told and writes
    // none.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
