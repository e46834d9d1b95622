//! A file in memory: the calls mmap, msync and munmap.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// The first bytes of a file, shared with everybody who has it mapped or writes to it.
pub struct Mapped {
    bytes: *mut AtomicU8,
    length: usize,
}

// SAFETY: the mapping belongs to no thread, and its bytes are atomic.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps a file that is open to be read and written, and has as many bytes.
    pub fn of(file: &File, length: usize) -> io::Result<Mapped> {
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("the file is shorter than what is to be mapped"));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so nothing that is in use is replaced; the mapping is reached
        // through this value alone, which unmaps it. Where the file becomes shorter an access ends the process
        // by SIGBUS, and touches no other memory.
        let address =
            unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, 0)? };
        Ok(Mapped { bytes: address.cast(), length })
    }

    fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: so many bytes are mapped until the drop, and others change them as atomic bytes may be changed.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }

    /// What is there now.
    pub fn read(&self) -> Vec<u8> {
        self.bytes().iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Fills it with a byte, and has it written to the file.
    pub fn fill(&self, with: u8) -> io::Result<()> {
        self.bytes().iter().for_each(|byte| byte.store(with, Ordering::Relaxed));
        // SAFETY: the range is mapped by this value.
        unsafe { msync(self.bytes.cast(), self.length, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value, of which nothing is left after this. That a mapped range
        // cannot be unmapped does not happen.
        let _ = unsafe { munmap(self.bytes.cast(), self.length) };
    }
}
