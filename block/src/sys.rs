//! The only unsafe code of this crate: aligned memory, the ioctls that no safe
//! wrapper covers, the queues of `io_uring`, and instructions that not every processor has.
//!
//! Everything here is a thin, total function; policy (what to do with a refusal) lies with the
//! callers. Invariant: an [`AlignedMemory`] owns its allocation and never changes its layout.

mod pieces;
pub(crate) mod ring;
mod words;

pub use words::{fill_words, mix, word_at};

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use pieces::HUGE_PAGE_BYTES;

/// `BLKGETSIZE64` of `linux/fs.h`: the size of a block device in bytes.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
/// `BLKDISCARD` of `linux/fs.h`: discard the byte range `[start, length]`.
const BLKDISCARD: libc::Ioctl = 0x1277;
/// `BLKROGET` of `linux/fs.h`: whether a block device is read-only, as an `int`.
const BLKROGET: libc::Ioctl = 0x125e;
/// `BLKZEROOUT` of `linux/fs.h`: make the byte range `[start, length]` read as zeros.
const BLKZEROOUT: libc::Ioctl = 0x127f;

/// `LOOP_GET_STATUS64` of `linux/loop.h`: a `struct loop_info64` of a loop device.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// `LOOP_CTL_REMOVE` of `linux/loop.h`: remove a loop device that nothing is attached to.
const LOOP_CTL_REMOVE: libc::Ioctl = 0x4C81;

/// `BLKGETDISKSEQ` of `linux/fs.h`: the running number of a disk or its medium.
const BLKGETDISKSEQ: libc::Ioctl = 0x8008_1280_u32 as libc::Ioctl;
/// `KCMP_FILES` of `linux/kcmp.h`: compare the tables of open files.
const KCMP_FILES: libc::c_int = 2;

/// Memory from this size on has huge pages; of up to 5 MiB and down to a size, many share one or some
/// (`pieces`). The kernel need not look each page of 4 KiB up, and the device takes a transfer in few
/// parts.
const LARGE_BYTES: usize = 512 << 10;

/// Zeroed memory that direct transfers accept.
pub(crate) struct AlignedMemory {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation is owned by this value alone, and plain bytes may move between threads.
unsafe impl Send for AlignedMemory {}
// SAFETY: shared access yields only `&[u8]`; writing needs `&mut self`.
unsafe impl Sync for AlignedMemory {}

impl AlignedMemory {
    /// Allocates `length` zero bytes at a multiple of `alignment`, a power of two of at most 4096.
    pub(crate) fn zeroed(length: usize, alignment: usize) -> Self {
        let layout = |length, alignment| {
            Layout::from_size_align(length, alignment)
                .expect("the alignment is a power of two and the length fits the address space")
        };
        if let Some(pointer) = pieces::take(length) {
            // SAFETY: the piece has so many bytes, and nobody else has it.
            unsafe { pointer.write_bytes(0, length) };
            return Self { pointer, layout: layout(length, alignment) };
        }
        let is_large = length >= LARGE_BYTES;
        let layout = if is_large {
            layout(length.next_multiple_of(HUGE_PAGE_BYTES), HUGE_PAGE_BYTES)
        } else {
            layout(length.max(1), alignment)
        };
        // SAFETY: the layout's size is at least one byte.
        let pointer = unsafe { if is_large { alloc(layout) } else { alloc_zeroed(layout) } };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        if is_large {
            // SAFETY: the allocation covers the whole range and is new.
            unsafe {
                // Zeroing what the kernel gives as zeros would touch all of it now.
                if !pieces::ask_for_huge_pages(pointer, layout.size()) {
                    pointer.write_bytes(0, layout.size());
                }
            }
        }
        Self { pointer, layout }
    }

    /// The first `length` bytes, at most the allocation.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        assert!(length <= self.layout.size());
        // SAFETY: the allocation holds at least `length` initialised bytes (it was zeroed) and
        // lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), length) }
    }

    /// The first `length` bytes, at most the allocation, for writing.
    pub(crate) fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.layout.size());
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), length) }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        if !pieces::give_back(self.pointer, self.layout.size()) {
            // SAFETY: the pointer came from an allocation with this very layout.
            unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
        }
    }
}

/// Size of the block device behind `device` in bytes.
pub(crate) fn block_device_size(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut size_bytes: u64 = 0;
    // SAFETY: BLKGETSIZE64 writes one u64 at the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut size_bytes) };
    if outcome == 0 { Ok(size_bytes) } else { Err(io::Error::last_os_error()) }
}

/// The running number of the disk behind `device`; `ENOTTY` before Linux 5.15.
pub(crate) fn disk_sequence(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut number: u64 = 0;
    // SAFETY: BLKGETDISKSEQ writes one u64 at the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETDISKSEQ, &raw mut number) };
    if outcome == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}

/// What a loop device is attached to, as `stat(2)` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopStatus {
    /// File system of the file, or of the node of a block device.
    pub file_system: u64,
    /// Inode there.
    pub inode: u64,
    /// The block device, when it is attached to one; otherwise 0.
    pub device: u64,
    /// Where in it the loop device begins, in bytes.
    pub offset: u64,
    /// How much of it the loop device shows at most, in bytes; 0 without a limit.
    pub size_limit: u64,
    /// The flags in force, `LO_FLAGS_*` of `linux/loop.h`.
    pub flags: u32,
}

/// What stands behind a loop device: the first five of the 29 words of `struct loop_info64`, and the
/// flags in the upper half of the seventh.
///
/// # Errors
///
/// `ENXIO` when nothing is attached.
pub fn loop_status(device: BorrowedFd<'_>) -> io::Result<LoopStatus> {
    let mut info = [0_u64; 29];
    // SAFETY: LOOP_GET_STATUS64 writes 232 bytes at the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    match outcome {
        0 => {
            let halves = info[6].to_ne_bytes();
            let flags = u32::from_ne_bytes(halves[4..].try_into().expect("4 bytes"));
            let [file_system, inode, device, offset, size_limit, ..] = info;
            Ok(LoopStatus { file_system, inode, device, offset, size_limit, flags })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes the loop device `index`, by a descriptor of `/dev/loop-control`; `EBUSY` while anybody has it
/// open or it is attached, `ENODEV` when there is none.
pub fn remove_loop(control: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: LOOP_CTL_REMOVE takes an integer and touches no memory of ours.
    match unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_REMOVE, libc::c_long::from(index)) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether two threads, by the numbers of this PID namespace, have one table of open files.
pub(crate) fn shares_files(one: u32, other: u32) -> bool {
    // SAFETY: kcmp takes integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0 }
}

/// Whether the kernel holds the block device behind `device` to be read-only. Opening such a device
/// for writing succeeds nevertheless; only the writes fail.
pub(crate) fn block_device_is_read_only(device: BorrowedFd<'_>) -> io::Result<bool> {
    let mut flag: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int at the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET, &raw mut flag) };
    if outcome == 0 { Ok(flag != 0) } else { Err(io::Error::last_os_error()) }
}

/// Discards `length` bytes at `offset` of a block device.
pub(crate) fn block_device_discard(
    device: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    range_ioctl(device, BLKDISCARD, offset, length)
}

/// Makes `length` bytes at `offset` of a block device read as zeros.
pub(crate) fn block_device_zero(
    device: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    range_ioctl(device, BLKZEROOUT, offset, length)
}

fn range_ioctl(
    device: BorrowedFd<'_>,
    request: libc::Ioctl,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: both requests read two u64 at the pointer, which is valid for the call.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), request, range.as_ptr()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Maps the first page of a device for as long as the process lives. For tests.
#[cfg(test)]
pub(crate) fn map_for_good(device: BorrowedFd<'_>) -> io::Result<()> {
    let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ);
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing ever reads.
    let mapped =
        unsafe { libc::mmap(none, 4096, protection, libc::MAP_SHARED, device.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives this thread a table of open files of its own. For tests.
#[cfg(test)]
pub(crate) fn unshare_files() -> io::Result<()> {
    // SAFETY: the thread keeps all its descriptors; only what it opens from now on is its own.
    let outcome = unsafe { libc::unshare(libc::CLONE_FILES) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
