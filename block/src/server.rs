//! A stack of layers as a file that the kernel reads and writes: a FUSE file system that is one
//! file, mounted on a file. A loop device with direct I/O on it is a block device under which any
//! [`BlockDevice`] can stand.
//!
//! The kernel's side is `include/uapi/linux/fuse.h`; only what such a file needs is spoken, by hand,
//! so that nothing lies between a request and the stack. A flush of the loop device arrives as an
//! fsync and is a flush of the stack. Each thread that calls [`Server::serve`] carries one request
//! at a time; [`Server::with_turns`] limits how many of those that do not wait take requests.
//!
//! Deadlocks to stay clear of: a process that serves must not use what stands on the served file,
//! and must not share the mount namespace in which that is mounted, since the last process of a
//! namespace unmounts before its descriptors are closed.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use rustix::mount::MountFlags;

use crate::turns::Turns;
use crate::{AlignedBuffer, BlockDevice};

/// Largest transfer of one request, in bytes.
const TRANSFER_BYTES: usize = 1 << 20;
/// A transfer of this many bytes takes longer than waking another thread.
const LONG_BYTES: usize = 64 << 10;
/// Pages of the largest transfer.
const TRANSFER_PAGES: u16 = 256;
/// Requests that the kernel hands out at a time.
const REQUESTS_MAX: u16 = 256;
/// What precedes the data of a write: `fuse_in_header` and `fuse_write_in`.
const HEADER_BYTES: usize = 80;

/// Version 7.31 of the protocol, of Linux 5.2.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_ASYNC_DIO`, `FUSE_MAX_PAGES`.
const CAPABILITIES: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const FALLOCATE: u32 = 43;
/// Requests that are never answered: forget, interrupt, forget many.
const UNANSWERED: [u32; 3] = [2, 36, 42];

/// `FUSE_NOTIFY_INVAL_INODE`: what the kernel has of a file's bytes counts no more.
const NOTIFY_FORGET: i32 = 2;
/// The served file, which is the file system's root.
const FILE: u64 = 1;

/// How long the kernel may believe what it was told of the file, in seconds: for good.
const VALID_S: u64 = 1 << 30;
/// A regular file that only its owner uses.
const MODE: u32 = 0o100_600;

/// A mounted stack.
pub struct Server {
    stack: Box<dyn BlockDevice>,
    connection: File,
    turns: Arc<Turns>,
}

/// One request of the kernel.
struct Request<'a> {
    header: &'a [u8; HEADER_BYTES],
}

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.header[at..at + 8].try_into().expect("eight bytes"))
    }

    fn operation(&self) -> u32 {
        self.u32(4)
    }

    fn number(&self) -> u64 {
        self.u64(8)
    }

    /// Of a read, a write and a fallocate.
    fn offset(&self) -> u64 {
        self.u64(48)
    }

    /// Of a read and a write.
    fn length(&self) -> usize {
        self.u32(56) as usize
    }
}

/// What is answered.
enum Answer {
    /// A structure of the protocol.
    Structure(Vec<u8>),
    /// So many bytes of the buffer.
    Data(usize),
}

impl Server {
    /// Mounts `stack` on `point`, a regular file, in this process's mount namespace. It is answered
    /// for from [`Server::serve`].
    pub fn mount(stack: Box<dyn BlockDevice>, point: &Path) -> io::Result<Server> {
        let connection =
            OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|error| {
                io::Error::new(error.kind(), format!("/dev/fuse: {error}; modprobe fuse"))
            })?;
        let options = format!(
            "fd={},rootmode={MODE:o},user_id=0,group_id=0,max_read={TRANSFER_BYTES}",
            connection.as_raw_fd()
        );
        let options = std::ffi::CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("kurabe", point, "fuse", flags, options.as_c_str())?;
        // A limit that no number of threads reaches.
        Ok(Server { stack, connection, turns: Turns::new(usize::MAX) })
    }

    /// Lets so many threads take requests at a time, besides those that wait by [`crate::waiting`]. For a stack that
    /// waits in no other way, half the number of processors is best: each thread more is woken for requests that another
    /// one would have found.
    #[must_use]
    pub fn with_turns(self, count: usize) -> Server {
        Server { turns: Turns::new(count), ..self }
    }

    /// The stack.
    pub fn stack(&self) -> &dyn BlockDevice {
        &*self.stack
    }

    /// Makes the kernel forget what it has read of a byte range of the served file, so that other bytes can be
    /// served there than before. Matters where the file was not opened for direct I/O. Nobody uses it meanwhile.
    pub fn forget(&self, range: Range<u64>) -> io::Result<()> {
        let length = range.end - range.start;
        let Answer::Structure(range) = structure(&[(FILE, 8), (range.start, 8), (length, 8)])?
        else {
            unreachable!("a structure is one")
        };
        match self.send(NOTIFY_FORGET, 0, &range) {
            // It has no such file in memory, and so nothing of its bytes.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            sent => sent,
        }
    }

    /// Answers requests until the file system is unmounted.
    pub fn serve(&self) -> io::Result<()> {
        let served = self.take_requests();
        self.turns.leave();
        served
    }

    fn take_requests(&self) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        let mut data = AlignedBuffer::zeroed(TRANSFER_BYTES);
        loop {
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut data)];
            match self.turns.read(|| rustix::io::readv(&self.connection, &mut parts)) {
                Ok(_) => {}
                // A request that was taken back, or a signal.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::NODEV) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let request = Request { header: &header };
            if UNANSWERED.contains(&request.operation()) {
                continue;
            }
            if [READ, WRITE].contains(&request.operation()) && request.length() >= LONG_BYTES {
                // Another thread looks for requests while this one copies.
                crate::waiting(|| ());
            }
            let answer = self.answer(&request, &mut data);
            self.reply(request.number(), answer, &data)?;
        }
    }

    fn answer(&self, request: &Request<'_>, data: &mut [u8]) -> io::Result<Answer> {
        let nothing = || Ok(Answer::Structure(Vec::new()));
        match request.operation() {
            READ => {
                let length = request.length().min(data.len());
                self.stack.read_at(&mut data[..length], request.offset())?;
                Ok(Answer::Data(length))
            }
            WRITE => {
                let length = request.length();
                let bytes = data.get(..length).ok_or(io::ErrorKind::InvalidInput)?;
                self.stack.write_at(bytes, request.offset())?;
                structure(&[(length as u64, 4), (0, 4)])
            }
            FSYNC => self.stack.flush().and_then(|()| nothing()),
            FALLOCATE => {
                // Punched and zeroed ranges: a loop device asks for both where it must read zeros.
                let (length, mode) = (request.u64(56), request.u32(64));
                if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) as u32 == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
                }
                self.stack.zero_range(request.offset(), length).and_then(|()| nothing())
            }
            INIT => {
                let (major, read_ahead_bytes) = (request.u32(40), request.u32(48));
                if major != MAJOR {
                    return Err(io::Error::from_raw_os_error(libc::EPROTO));
                }
                let capabilities = u64::from(request.u32(52) & CAPABILITIES);
                structure(&[
                    (MAJOR.into(), 4),
                    (MINOR.into(), 4),
                    (read_ahead_bytes.into(), 4),
                    (capabilities, 4),
                    (REQUESTS_MAX.into(), 2),
                    ((REQUESTS_MAX / 4 * 3).into(), 2),
                    (TRANSFER_BYTES as u64, 4),
                    // Times to the nanosecond.
                    (1, 4),
                    (TRANSFER_PAGES.into(), 2),
                    (0, 2),
                    (0, 32),
                ])
            }
            GETATTR => structure(&[
                (VALID_S, 8),
                (0, 8),
                (1, 8),
                (self.stack.len(), 8),
                (self.stack.len() / 512, 8),
                (0, 36),
                (MODE.into(), 4),
                (1, 4),
                (0, 12),
                (4096, 4),
                (0, 4),
            ]),
            OPEN => structure(&[(0, 16)]),
            STATFS => structure(&[(0, 40), (4096, 4), (255, 4), (4096, 4), (0, 28)]),
            RELEASE | FLUSH | DESTROY => nothing(),
            _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
    }

    fn reply(&self, number: u64, answer: io::Result<Answer>, data: &[u8]) -> io::Result<()> {
        let (error, body): (i32, &[u8]) = match &answer {
            Ok(Answer::Structure(bytes)) => (0, bytes),
            Ok(Answer::Data(length)) => (0, &data[..*length]),
            Err(error) => (-error.raw_os_error().unwrap_or(libc::EIO), &[]),
        };
        match self.send(error, number, body) {
            // Whoever asked is gone.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                Ok(())
            }
            sent => sent,
        }
    }

    fn send(&self, error: i32, number: u64, body: &[u8]) -> io::Result<()> {
        let mut header = [0; 16];
        let length = (header.len() + body.len()) as u32;
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&number.to_ne_bytes());
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        Ok(rustix::io::writev(&self.connection, &parts).map(drop)?)
    }
}

/// Numbers of so many bytes each, as the kernel lays them out; more than eight bytes are zeros.
fn structure(fields: &[(u64, usize)]) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    for (value, length) in fields {
        match length {
            2 => bytes.extend((*value as u16).to_ne_bytes()),
            4 => bytes.extend((*value as u32).to_ne_bytes()),
            8 => bytes.extend(value.to_ne_bytes()),
            _ => bytes.resize(bytes.len() + length, 0),
        }
    }
    Ok(Answer::Structure(bytes))
}
