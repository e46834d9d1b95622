//! Where a file lies on its device: the ioctl FIEMAP of `include/uapi/linux/fiemap.h`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `FS_IOC_FIEMAP`.
const FIEMAP: u32 = 0xC020_660B;
/// `FIEMAP_FLAG_SYNC`: what has no place yet gets one first.
const FLAG_SYNC: u32 = 1;
/// `FIEMAP_EXTENT_LAST`.
const EXTENT_LAST: u32 = 1;
/// Extents asked for at once.
const BATCH: usize = 256;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` with its extents.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56);
const _: () = assert!(size_of::<Request>() == 32 + 56 * BATCH);

/// A piece of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// Place in the file.
    pub logical: u64,
    /// Place on the device, as the file system counts it.
    pub physical: u64,
    pub length: u64,
}

/// The pieces of a file in the order of the file.
///
/// Errors: those of the ioctl; a file system without it says `Unsupported`.
pub fn extents(file: &File) -> io::Result<Vec<FileExtent>> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let none = RawExtent {
            logical: 0,
            physical: 0,
            length: 0,
            reserved: [0; 2],
            flags: 0,
            reserved_too: [0; 3],
        };
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: FLAG_SYNC,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [none; BATCH],
        };
        // SAFETY: the descriptor is open for the whole call, and the kernel writes at most `count`
        // extents behind the head of the structure, which has room for that many.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP.into(), &raw mut request) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = (request.mapped as usize).min(BATCH);
        found.extend(request.extents[..mapped].iter().map(|extent| FileExtent {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
        }));
        match request.extents[..mapped].last() {
            Some(last) if last.flags & EXTENT_LAST == 0 && last.length > 0 => {
                start = last.logical.saturating_add(last.length);
            }
            _ => return Ok(found),
        }
    }
}
