//! Pages of a file in memory: mapped, and written out without a flush.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes bytes at the begin of a file through a mapping of its first page, and waits for msync(2).
pub fn write_mapped(file: &File, bytes: &[u8]) -> io::Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const PAGE_BYTES: usize = 4096;
    assert!(bytes.len() <= PAGE_BYTES && file.metadata()?.len() >= PAGE_BYTES as u64);
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a fresh mapping of a whole page that the file has; nothing else refers to it, and it is gone at the end.
    unsafe {
        let page = mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, file, 0)?;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.cast(), bytes.len());
        let synced = msync(page, PAGE_BYTES, MsyncFlags::SYNC);
        munmap(page, PAGE_BYTES)?;
        Ok(synced?)
    }
}

/// Writes the first bytes of a file out and waits, by sync_file_range(2).
pub fn sync_range(file: &File, length: i64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes a descriptor, which is open, and numbers.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, length, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
