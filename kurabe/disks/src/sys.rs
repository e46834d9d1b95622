//! Events of the kernel's tracepoints through perf_event_open(2): a ring of memory for each processor, which
//! the kernel writes and gives up with the process, however that ends.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `struct perf_event_attr` up to and without what is not used here, from `linux/perf_event.h`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    config_1: u64,
    config_2: u64,
    branch_sample_type: u64,
    registers_user: u64,
    stack_user: u32,
    clock: i32,
}

const _: () = assert!(size_of::<Attributes>() == 96);

const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_DISABLED: u64 = 1;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_USE_CLOCK: u64 = 1 << 25;
const OPEN_CLOSE_ON_EXEC: libc::c_ulong = 8;
const IOCTL_ENABLE: libc::c_ulong = 0x2400;
const IOCTL_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOCTL_SET_FILTER: libc::c_ulong = 0x4008_2406;
/// Places in the first page of the ring's memory.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const RECORD_SAMPLE: u32 = 9;
/// Kind and length of a record.
const HEADER_BYTES: usize = 8;

/// The events of one processor.
pub struct Ring {
    start: NonNull<u8>,
    length: usize,
    page_bytes: usize,
    /// The tracepoints. The first one owns the ring.
    events: Vec<OwnedFd>,
    record: Vec<u8>,
    taken: u64,
}

// SAFETY: the mapping is the ring's own, and the kernel binds it to no thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Follows tracepoints, by their numbers, on a processor, once [`Ring::begin`] says so: those events that `filter`
    /// lets through. `pages` is a power of two.
    pub fn new(
        processor: u32,
        tracepoints: &[u64],
        filter: &str,
        pages: usize,
    ) -> io::Result<Ring> {
        assert!(pages.is_power_of_two() && !tracepoints.is_empty());
        let filter = CString::new(filter)?;
        let page_bytes = rustix::param::page_size();
        let events = tracepoints.iter().map(|number| open(processor, *number, pages * page_bytes));
        let events = events.collect::<io::Result<Vec<OwnedFd>>>()?;
        let length = (pages + 1) * page_bytes;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, access, flags, events[0].as_fd(), 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped nothing"))?;
        let ring = Ring { start, length, page_bytes, events, record: Vec::new(), taken: 0 };
        for event in &ring.events {
            // SAFETY: the argument is a string that ends with a zero and outlives the call.
            check(unsafe {
                libc::ioctl(event.as_raw_fd(), IOCTL_SET_FILTER as _, filter.as_ptr())
            })?;
        }
        for event in &ring.events[1..] {
            let output = ring.events[0].as_raw_fd();
            // SAFETY: the argument is an open descriptor.
            check(unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_SET_OUTPUT as _, output) })?;
        }
        Ok(ring)
    }

    pub fn begin(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|event| {
            // SAFETY: this request takes no argument.
            check(unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_ENABLE as _, 0) })
        })
    }

    /// Takes out what has come, in its order: when each tracepoint was passed, by the monotonic clock, and its fields
    /// as `format` describes them. Says how many bytes that was.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> usize {
        // The kernel has written everything before the head that it shows.
        let (head, begin) =
            (self.place(HEAD).load(Ordering::Acquire), self.place(TAIL).load(Ordering::Relaxed));
        let mut tail = begin;
        let mut record = std::mem::take(&mut self.record);
        while tail < head {
            let mut header = [0; HEADER_BYTES];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
            let bytes = usize::from(u16::from_ne_bytes(header[6..].try_into().expect("two bytes")));
            // The kernel writes no shorter one, and none that is not whole.
            assert!(bytes >= HEADER_BYTES && tail + bytes as u64 <= head);
            record.resize(bytes - HEADER_BYTES, 0);
            self.copy(tail + HEADER_BYTES as u64, &mut record);
            let number = |at: usize| {
                record.get(at..at + 8).map(|at| u64::from_ne_bytes(at.try_into().expect("eight")))
            };
            if kind == RECORD_SAMPLE
                && let (Some(time_ns), Some(fields)) = (number(0), record.get(12..))
            {
                each(time_ns, fields);
                self.taken += 1;
            }
            tail += bytes as u64;
        }
        self.record = record;
        self.place(TAIL).store(tail, Ordering::Release);
        (tail - begin) as usize
    }

    /// How many events the kernel counted and did not deliver, for want of room or otherwise, once all was taken.
    pub fn lost(&self) -> io::Result<u64> {
        let mut counted = 0;
        for event in &self.events {
            let mut number = [0; 8];
            rustix::io::read(event, &mut number)?;
            counted += u64::from_ne_bytes(number);
        }
        Ok(counted.saturating_sub(self.taken))
    }

    fn place(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both places lie in the first page and are aligned; the kernel and we access them atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Copies bytes from a position that counts on at the ring's end.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let ring_bytes = self.length - self.page_bytes;
        let at = (from % ring_bytes as u64) as usize;
        let first = to.len().min(ring_bytes - at);
        assert!(to.len() - first <= at);
        // SAFETY: both pieces lie in the ring, behind its first page. The kernel writes to this part of it only once the
        // tail has passed.
        unsafe {
            let data = self.start.as_ptr().add(self.page_bytes);
            std::ptr::copy_nonoverlapping(data.add(at), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this very mapping was made by `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn open(processor: u32, tracepoint: u64, ring_bytes: usize) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        size: size_of::<Attributes>() as u32,
        config: tracepoint,
        sample_period: 1,
        sample_type: SAMPLE_TIME | SAMPLE_RAW,
        flags: FLAG_DISABLED | FLAG_WATERMARK | FLAG_USE_CLOCK,
        // Nobody waits for it.
        wakeup: u32::try_from(ring_bytes).unwrap_or(u32::MAX),
        clock: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    // SAFETY: the attributes are valid for the call and as long as they say; the others are numbers. What comes back is
    // a descriptor of our own.
    unsafe {
        let opened = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            processor as libc::c_int,
            -1,
            OPEN_CLOSE_ON_EXEC,
        );
        match opened {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor as i32)),
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
