//! The ioctls of loop devices, from the kernel's `include/uapi/linux/loop.h`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// The kernel detaches the file when the last user of the device is gone.
pub const FLAG_AUTOCLEAR: u32 = 4;
/// Transfers between the loop device and its file go past the page cache.
pub const FLAG_DIRECT_IO: u32 = 16;

const LOOP_CLR_FD: u32 = 0x4C01;
const LOOP_SET_DIRECT_IO: u32 = 0x4C08;
const LOOP_CONFIGURE: u32 = 0x4C0A;
const LOOP_CTL_ADD: u32 = 0x4C80;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    device_of_node: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    descriptor: u32,
    block_size_bytes: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 304);

const NO_INFO: LoopInfo = LoopInfo {
    device: 0,
    inode: 0,
    device_of_node: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

fn check(result: libc::c_int) -> io::Result<u32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as u32) }
}

/// Adds the loop device `index`; `EEXIST` when there is one.
pub fn add(control: &File, index: u32) -> io::Result<()> {
    // SAFETY: LOOP_CTL_ADD takes an integer and touches no memory of ours.
    check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_ADD as _, index as libc::c_long) })
        .map(drop)
}

/// Attaches `part` of `file` to the loop device in one step; `EBUSY` when it is attached already.
pub fn configure(
    node: &File,
    file: &impl AsFd,
    part: &Range<u64>,
    block_size_bytes: u32,
    flags: u32,
) -> io::Result<()> {
    let config = LoopConfig {
        descriptor: file.as_fd().as_raw_fd() as u32,
        block_size_bytes,
        info: LoopInfo { offset: part.start, size_limit: part.end - part.start, flags, ..NO_INFO },
        reserved: [0; 8],
    };
    // SAFETY: the pointer is to a live loop_config, which the kernel only reads.
    check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CONFIGURE as _, &config) }).map(drop)
}

/// Lets transfers between the loop device and its file go through the page cache.
pub fn go_through_pages(node: &File) -> io::Result<()> {
    // SAFETY: LOOP_SET_DIRECT_IO takes an integer and touches no memory of ours.
    check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_SET_DIRECT_IO as _, 0) }).map(drop)
}

/// Drops what the page cache holds of a block device, as far as nobody uses it: `BLKFLSBUF` of
/// `include/uapi/linux/fs.h`.
pub fn drop_buffers(node: &File) -> io::Result<()> {
    const BLKFLSBUF: u32 = 0x1261;
    // SAFETY: BLKFLSBUF takes no argument.
    check(unsafe { libc::ioctl(node.as_raw_fd(), BLKFLSBUF as _, 0) }).map(drop)
}

/// Detaches the backing file, at once or when the last user is gone.
pub fn clear(node: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CLR_FD as _, 0) }).map(drop)
}
