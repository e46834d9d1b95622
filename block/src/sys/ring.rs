//! Several writes at once with one system call: a submission and a completion queue that are shared
//! with the kernel (`io_uring(7)`).
//!
//! Invariant: while a call of [`Ring::write_each`] runs the kernel may read the buffers, and when it
//! returns the kernel has done with all of them, whatever went wrong.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringSetupFlags, addr_or_splice_off_in_union, io_uring_cqe, io_uring_enter, io_uring_params,
    io_uring_ptr, io_uring_setup, io_uring_sqe, io_uring_user_data, len_union, off_or_addr2_union,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Most writes of one submission.
pub(crate) const RING_ENTRIES: u32 = 64;

/// Memory that is shared with the kernel.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(ring: BorrowedFd<'_>, length: usize, offset: u64) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, access, flags | MapFlags::POPULATE, ring, offset)?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped nothing"))?;
        Ok(Self { start, length })
    }

    /// The place `offset` bytes behind the start, for a `T`.
    fn at<T>(&self, offset: u32) -> *mut T {
        assert!(offset as usize + size_of::<T>() <= self.length);
        // SAFETY: the assertion keeps it within the mapping.
        let place = unsafe { self.start.as_ptr().add(offset as usize) }.cast::<T>();
        assert!(place.is_aligned());
        place
    }

    fn counter(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the place lies in the mapping, which lives as long as `self`; the kernel and we
        // access it atomically only.
        unsafe { AtomicU32::from_ptr(self.at(offset)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this very mapping was made by `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The two queues.
pub(crate) struct Ring {
    ring: OwnedFd,
    queues: Mapping,
    entries: Mapping,
    parameters: io_uring_params,
}

// SAFETY: a ring owns its mappings, and the kernel binds it to no thread (it is made without
// `SINGLE_ISSUER`).
unsafe impl Send for Ring {}

impl Ring {
    /// Makes the queues; an error where the kernel has none or forbids them.
    pub(crate) fn new() -> io::Result<Self> {
        let mut parameters = io_uring_params::default();
        // Completions are taken when we ask for them, without an interrupt of the thread.
        parameters.flags = IoringSetupFlags::COOP_TASKRUN;
        // SAFETY: the parameters are valid for the call.
        let ring = unsafe { io_uring_setup(RING_ENTRIES, &mut parameters) }?;
        if !parameters.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let submissions = parameters.sq_off.array as usize + parameters.sq_entries as usize * 4;
        let completions = parameters.cq_off.cqes as usize
            + parameters.cq_entries as usize * size_of::<io_uring_cqe>();
        let length = submissions.max(completions);
        let entries_length = parameters.sq_entries as usize * size_of::<io_uring_sqe>();
        Ok(Self {
            queues: Mapping::new(ring.as_fd(), length, IORING_OFF_SQ_RING)?,
            entries: Mapping::new(ring.as_fd(), entries_length, IORING_OFF_SQES)?,
            ring,
            parameters,
        })
    }

    /// Writes at most [`RING_ENTRIES`] buffers, each at its offset, at once, and waits for all.
    /// Gives for each how many bytes were written, or an error; or says that the ring is of no use,
    /// and that nothing was written.
    pub(crate) fn write_each(
        &mut self,
        file: BorrowedFd<'_>,
        writes: &[(&[u8], u64)],
    ) -> io::Result<Vec<io::Result<usize>>> {
        assert!(writes.len() <= RING_ENTRIES as usize);
        let tail = self.queues.counter(self.parameters.sq_off.tail);
        let (start, mask) = (tail.load(Ordering::Relaxed), self.parameters.sq_entries - 1);
        for (number, (bytes, offset)) in (0..).zip(writes) {
            let place = start.wrapping_add(number) & mask;
            let entry = io_uring_sqe {
                opcode: IoringOp::Write,
                fd: file.as_raw_fd(),
                off_or_addr2: off_or_addr2_union { off: *offset },
                addr_or_splice_off_in: addr_or_splice_off_in_union {
                    addr: io_uring_ptr::new(bytes.as_ptr().cast_mut().cast()),
                },
                len: len_union { len: u32::try_from(bytes.len()).unwrap_or(u32::MAX) },
                user_data: io_uring_user_data { u64_: u64::from(number) },
                ..Default::default()
            };
            let index = self.parameters.sq_off.array + place * 4;
            // SAFETY: both places lie in their mappings, and the kernel reads them only once the
            // tail says so.
            unsafe {
                let entry_offset = place * size_of::<io_uring_sqe>() as u32;
                self.entries.at::<io_uring_sqe>(entry_offset).write(entry);
                self.queues.at::<u32>(index).write(place);
            }
        }
        tail.store(start.wrapping_add(writes.len() as u32), Ordering::Release);
        self.wait(writes.len() as u32)
    }

    /// Hands over what is in the queue and waits until `count` have completed.
    fn wait(&mut self, count: u32) -> io::Result<Vec<io::Result<usize>>> {
        let mut outcomes: Vec<_> = (0..count).map(|_| Ok(0)).collect();
        let (mut submitted, mut completed) = (0, 0);
        let head = self.queues.counter(self.parameters.cq_off.head);
        let tail = self.queues.counter(self.parameters.cq_off.tail);
        while completed < count {
            let flags = IoringEnterFlags::GETEVENTS;
            // SAFETY: the entries describe buffers that the caller lends until all have completed.
            match unsafe { io_uring_enter(&self.ring, count - submitted, count - completed, flags) }
            {
                Ok(taken) => submitted += taken,
                Err(error) if submitted == 0 && !is_passing(error) => return Err(error.into()),
                // What was handed over must be waited for.
                Err(_) => std::thread::yield_now(),
            }
            let end = tail.load(Ordering::Acquire);
            let mut next = head.load(Ordering::Relaxed);
            while next != end {
                let place = next & (self.parameters.cq_entries - 1);
                let offset = self.parameters.cq_off.cqes + place * size_of::<io_uring_cqe>() as u32;
                // SAFETY: the kernel has filled this completion, and fills it anew only once the
                // head has passed it; `io_uring_cqe` holds its first 16 bytes.
                let (number, result) = unsafe {
                    let entry = self.queues.at::<io_uring_cqe>(offset);
                    ((*entry).user_data.u64_, (*entry).res)
                };
                outcomes[number as usize] = match usize::try_from(result) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(-result)),
                };
                (next, completed) = (next.wrapping_add(1), completed + 1);
            }
            head.store(next, Ordering::Release);
        }
        Ok(outcomes)
    }
}

/// Whether it is worth to ask again: interrupted, or no memory for now.
fn is_passing(error: Errno) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::BUSY].contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_has_its_own_outcome() {
        // A kernel without rings, or one that forbids them, has nothing to test.
        let Ok(mut ring) = Ring::new() else { return };
        let file = tempfile::tempfile().unwrap();
        for round in 0..100_u8 {
            let bytes: Vec<Vec<u8>> = (0..64).map(|number| vec![number + round; 100]).collect();
            let mut writes: Vec<(&[u8], u64)> =
                bytes.iter().zip(0..).map(|(bytes, number)| (&bytes[..], number * 100)).collect();
            writes[7].1 = u64::MAX - 1;
            let outcomes = ring.write_each(file.as_fd(), &writes).unwrap();
            for (number, outcome) in outcomes.iter().enumerate() {
                match number {
                    7 => {
                        assert_eq!(outcome.as_ref().unwrap_err().raw_os_error(), Some(libc::EINVAL))
                    }
                    _ => assert_eq!(*outcome.as_ref().unwrap(), 100),
                }
            }
        }
        let mut found = vec![0; 6400];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        for (number, bytes) in (0..64_u8).zip(found.chunks(100)) {
            let expected = if number == 7 { 0 } else { number + 99 };
            assert!(bytes.iter().all(|byte| *byte == expected), "write {number}");
        }
    }
}
