//! An image file or a raw block device as a [`BlockDevice`].
//!
//! Transfers go past the page cache (`O_DIRECT`) where the file allows it. A buffer that direct
//! I/O would refuse for its address is copied through an aligned one; offsets and lengths must be
//! whole blocks, as for every backend. Knows nothing of what is on the device, and does not ask
//! whether it is safe to write there: that is the claim's business.

use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, fcntl_setfl, flock};
use trust::file::{self, Named};
use trust::{Refused, way};

use crate::sys::ring::{RING_ENTRIES, Ring};
use crate::{ALIGNMENT, AlignedBuffer, BlockDevice, check_range, is_aligned, sys};

/// Smallest block size that an image file offers, in bytes: a sector.
const SECTOR_BYTES: u32 = 512;
/// Rights of a new image: what is copied into it may be its user's alone.
const NEW_MODE: u32 = 0o600;
const EXT4_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;
/// Most buffers of one call (`IOV_MAX`).
const VECTOR_MAX: usize = 1024;
/// Largest transfer through an aligned copy, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Whether transfers go past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectAccess {
    /// Past the page cache where the file allows it, through it otherwise.
    #[default]
    Prefer,
    /// Past the page cache, or opening fails.
    Require,
    /// Through the page cache.
    Never,
}

/// How to open a [`FileDevice`].
#[derive(Clone, Debug, Default)]
pub struct FileDeviceOptions {
    /// Refuse writes, and open the file for reading only. A write-protected block device refuses
    /// them in any case.
    pub read_only: bool,
    /// Whether transfers go past the page cache.
    pub direct: DirectAccess,
    /// Take the device for oneself: `O_EXCL` on a block device (refused while it is mounted or
    /// held otherwise), and an advisory lock on it or the image (shared when read-only).
    pub exclusive: bool,
    /// Create the image, or set the length of an existing one, to this many bytes.
    pub set_length: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackingKind {
    Image,
    BlockDevice,
}

/// An image file or a raw block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    rings: Rings,
    path: PathBuf,
    kind: BackingKind,
    length: u64,
    block_size: u32,
    is_direct: bool,
    merges_flushes: bool,
    is_read_only: bool,
    is_new: bool,
}

impl FileDevice {
    /// Opens `path` as `options` say. The length is taken now and never looked up again.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; `EBUSY` when the device was asked for exclusively and is in use; an
    /// error when `path` is neither a regular file nor a block device.
    pub fn open(path: impl AsRef<Path>, options: &FileDeviceOptions) -> io::Result<Self> {
        let path = path.as_ref();
        Self::open_at(path, path, options)
    }

    /// The same of a path that the user typed, to write there: it is resolved once, and neither a
    /// stranger's link nor a directory that a stranger can change leads to another file. A user's own
    /// links are followed. With `makes`, an image that is missing is made, exclusively, with the length
    /// that `options` set. One that exists keeps its length: compare it with what was checked, then
    /// call [`FileDevice::set_length`].
    ///
    /// # Errors
    ///
    /// As of [`FileDevice::open`]; one that holds a [`Refused`] where the way is a stranger's, or an
    /// image that is to get another length.
    pub fn open_named(path: &Path, options: &FileDeviceOptions, makes: bool) -> io::Result<Self> {
        let sets_length = options.set_length.is_some() && !options.read_only;
        match file::named(path).map_err(of_system)? {
            Named::There(place) => {
                if sets_length {
                    place.believe_owner()?;
                }
                let options = FileDeviceOptions { set_length: None, ..options.clone() };
                Self::open_at(&place.descriptor_path(), path, &options)
            }
            Named::Missing(directory, name) if sets_length && makes => {
                let made = directory.create_file(&name, NEW_MODE).map_err(of_system)?;
                let there = way::descriptor_path(made.as_raw_fd());
                let opened = Self::open_at(&there, path, options).inspect_err(|_| {
                    let _ = directory.remove_file(&name);
                })?;
                Ok(Self { is_new: true, ..opened })
            }
            Named::Missing(..) => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    /// Opens the file at `place`, which the user knows as `path`.
    fn open_at(place: &Path, path: &Path, options: &FileDeviceOptions) -> io::Result<Self> {
        let found = place.metadata().ok().map(|metadata| metadata.file_type());
        let wants_block_device = found.is_some_and(|found| found.is_block_device());
        // Looked at before, since the opening of a FIFO waits for its other end.
        if found.is_some_and(|found| !found.is_block_device() && !found.is_file()) {
            return Err(neither_image_nor_device());
        }
        let mut flags = libc::O_CLOEXEC;
        if options.exclusive && wants_block_device {
            flags |= libc::O_EXCL;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.set_length.is_some() && !options.read_only && !wants_block_device)
            .custom_flags(flags)
            .open(place)?;
        let file_type = file.metadata()?.file_type();
        let kind = if file_type.is_block_device() {
            BackingKind::BlockDevice
        } else if file_type.is_file() && !file::is_of_kernel(&file) {
            BackingKind::Image
        } else {
            return Err(neither_image_nor_device());
        };
        // What was looked at and what was opened must be the same kind of thing.
        if wants_block_device != (kind == BackingKind::BlockDevice) {
            return Err(io::Error::other("it changed while it was opened"));
        }
        if options.exclusive {
            lock(&file, options.read_only)?;
        }
        if let (Some(length), BackingKind::Image, false) =
            (options.set_length, kind, options.read_only)
        {
            file.set_len(length).inspect_err(|_| {
                if found.is_none() {
                    let _ = std::fs::remove_file(place);
                }
            })?;
        }
        let is_direct = set_direct(&file, options.direct)?;
        let block_size = logical_block_size(&file, kind, is_direct)?;
        let length_bytes = match kind {
            BackingKind::BlockDevice => sys::block_device_size(file.as_fd())?,
            BackingKind::Image => file.metadata()?.len(),
        };
        let is_write_protected =
            kind == BackingKind::BlockDevice && sys::block_device_is_read_only(file.as_fd())?;
        let merges_flushes = is_direct && joins_flushes(&file, kind);
        Ok(Self {
            file,
            rings: Rings::default(),
            path: path.to_path_buf(),
            kind,
            length: length_bytes - length_bytes % u64::from(block_size),
            block_size,
            is_direct,
            merges_flushes,
            is_read_only: options.read_only || is_write_protected,
            is_new: false,
        })
    }

    /// Cuts or extends an image to `length` bytes; what it holds up to there stays.
    ///
    /// # Errors
    ///
    /// `EROFS` for an image that was opened for reading, `EINVAL` for a block device; those of
    /// `ftruncate(2)`.
    pub fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        if self.kind == BackingKind::BlockDevice {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.file.set_len(length)?;
        self.length = length - length % u64::from(self.block_size);
        Ok(())
    }

    /// Whether [`FileDevice::open_named`] has made this image.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Creates the image `path`, or resizes it, to `length` sparse bytes and opens it.
    pub fn create(path: impl AsRef<Path>, length: u64) -> io::Result<Self> {
        let options = FileDeviceOptions { set_length: Some(length), ..Default::default() };
        Self::open(path, &options)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a block device rather than an image file.
    pub fn is_block_device(&self) -> bool {
        self.kind == BackingKind::BlockDevice
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The open file, for ioctls and facts of the caller's.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        check_range(self.length, self.block_size, offset, length)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_read_only {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        Ok(())
    }

    /// Gives the content of a range up, of a block device by this call; says whether that can be done.
    fn give_up(
        &self,
        offset: u64,
        length: u64,
        on_device: fn(BorrowedFd<'_>, u64, u64) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.check_writable()?;
        self.check(offset, length)?;
        if length == 0 {
            return Ok(true);
        }
        let outcome = match self.kind {
            BackingKind::BlockDevice => on_device(self.file.as_fd(), offset, length),
            // Punching a hole that is one already costs nothing, so a fresh sparse image stays so.
            BackingKind::Image => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, offset, length).map_err(io::Error::from)
            }
        };
        match outcome {
            Err(error) if is_unsupported(&error) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Writes what lies on end on the device with one call; gives how many bytes of each were written.
    fn write_on_end(&self, writes: &[(&[u8], u64)]) -> Option<Vec<io::Result<usize>>> {
        let is_next = |pair: &[(&[u8], u64)]| pair[0].1 + pair[0].0.len() as u64 == pair[1].1;
        if writes.len() > VECTOR_MAX || !writes.windows(2).all(is_next) {
            return None;
        }
        let slices: Vec<IoSlice<'_>> =
            writes.iter().map(|(bytes, _)| IoSlice::new(bytes)).collect();
        // Which of them failed is found out one by one.
        let mut left = rustix::io::pwritev(&self.file, &slices, writes[0].1).ok()?;
        let written = writes.iter().map(|(bytes, _)| {
            let here = bytes.len().min(left);
            left -= here;
            Ok(here)
        });
        Some(written.collect())
    }

    fn needs_copy(&self, buffer: &[u8]) -> bool {
        // The logical block size is what every Linux block driver takes as memory alignment.
        self.is_direct && !is_aligned(buffer, (self.block_size as usize).min(ALIGNMENT))
    }
}

/// The system's own error where there is one, whose number callers look at.
pub(crate) fn of_system(refused: Refused) -> io::Error {
    match refused {
        Refused::System { error, .. } => error,
        other => other.into(),
    }
}

/// Queues for writes at once: one for each thread that writes so now, made when first needed.
#[derive(Default)]
struct Rings {
    idle: Mutex<Vec<Ring>>,
    /// Whether the kernel gives any.
    exist: OnceLock<bool>,
}

impl Rings {
    fn idle(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.idle.lock().expect("no thread panics while it holds the rings")
    }

    fn exist(&self) -> bool {
        *self.exist.get_or_init(|| match Ring::new() {
            Ok(ring) => {
                self.idle().push(ring);
                true
            }
            Err(_) => false,
        })
    }

    /// Writes at once; `None` when there is no ring.
    fn write_each(&self, file: &File, writes: &[(&[u8], u64)]) -> Option<Vec<io::Result<usize>>> {
        let idle = self.idle().pop();
        let mut ring = idle.or_else(|| Ring::new().ok())?;
        let mut outcomes = Vec::with_capacity(writes.len());
        for part in writes.chunks(RING_ENTRIES as usize) {
            outcomes.extend(ring.write_each(file.as_fd(), part).ok()?);
        }
        self.idle().push(ring);
        Some(outcomes)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rings({} idle)", self.idle().len())
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buffer.len() as u64)?;
        if !self.needs_copy(buffer) {
            return self.file.read_exact_at(buffer, offset);
        }
        with_copy_buffer(buffer.len(), |copy| {
            for (index, part) in buffer.chunks_mut(COPY_BYTES).enumerate() {
                let aligned = &mut copy[..part.len()];
                self.file.read_exact_at(aligned, offset + (index * COPY_BYTES) as u64)?;
                part.copy_from_slice(aligned);
            }
            Ok(())
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check(offset, buffer.len() as u64)?;
        if !self.needs_copy(buffer) {
            return self.file.write_all_at(buffer, offset);
        }
        with_copy_buffer(buffer.len(), |copy| {
            for (index, part) in buffer.chunks(COPY_BYTES).enumerate() {
                let aligned = &mut copy[..part.len()];
                aligned.copy_from_slice(part);
                self.file.write_all_at(aligned, offset + (index * COPY_BYTES) as u64)?;
            }
            Ok(())
        })
    }

    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        let is_plain = |(bytes, offset): &(&[u8], u64)| {
            !self.needs_copy(bytes) && self.check(*offset, bytes.len() as u64).is_ok()
        };
        let are_plain = writes.len() > 1 && !self.is_read_only && writes.iter().all(is_plain);
        let in_ring = || {
            let has_ring = self.writes_at_once();
            has_ring.then(|| self.rings.write_each(&self.file, writes)).flatten()
        };
        let written = are_plain.then(|| self.write_on_end(writes).or_else(in_ring)).flatten();
        let written = written.unwrap_or_else(|| writes.iter().map(|_| Ok(0)).collect());
        let rest = |((bytes, offset), written): (&(&[u8], u64), io::Result<usize>)| {
            let written = written?;
            if written == bytes.len() && written > 0 {
                return Ok(());
            }
            self.write_at(&bytes[written..], offset + written as u64)
        };
        writes.iter().zip(written).map(rest).collect()
    }

    fn writes_at_once(&self) -> bool {
        self.is_direct && self.rings.exist()
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn merges_flushes(&self) -> bool {
        self.merges_flushes
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.give_up(offset, length, sys::block_device_discard).map(drop)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.give_up(offset, length, sys::block_device_zero)? {
            Ok(())
        } else {
            crate::write_zeros(self, offset, length)
        }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

fn neither_image_nor_device() -> io::Error {
    let why = "it is neither a regular file nor a block device";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Lends the thread's own aligned buffer of at least `length` bytes, at most [`COPY_BYTES`]: a
/// fresh one for each transfer would cost its page faults each time.
fn with_copy_buffer<T>(length: usize, work: impl FnOnce(&mut AlignedBuffer) -> T) -> T {
    thread_local! {
        static COPY: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(0));
    }
    COPY.with_borrow_mut(|copy| {
        let length = length.min(COPY_BYTES);
        if copy.len() < length {
            *copy = AlignedBuffer::zeroed(length.next_power_of_two());
        }
        work(copy)
    })
}

fn is_unsupported(error: &io::Error) -> bool {
    // ENOTSUP is EOPNOTSUPP on Linux; old loop drivers answer EINVAL, others ENOTTY.
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}

/// The lock on an image, or a device, that is to be had at once or not at all.
pub(crate) fn lock_wish(read_only: bool) -> FlockOperation {
    if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    }
}

fn lock(file: &File, read_only: bool) -> io::Result<()> {
    let operation = lock_wish(read_only);
    // A process that another thread is just starting holds a copy of every open file until its
    // program runs, and with it the lock of one that was closed a moment ago.
    let until = Instant::now() + LOCK_WAIT_MAX;
    let mut locked = flock(file, operation);
    while locked == Err(rustix::io::Errno::WOULDBLOCK) && Instant::now() < until {
        std::thread::sleep(LOCK_INTERVAL);
        locked = flock(file, operation);
    }
    match locked {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        outcome => Ok(outcome?),
    }
}

fn set_direct(file: &File, wanted: DirectAccess) -> io::Result<bool> {
    if wanted == DirectAccess::Never {
        return Ok(false);
    }
    let flags = rustix::fs::fcntl_getfl(file)? | OFlags::DIRECT;
    match fcntl_setfl(file, flags) {
        Ok(()) => Ok(true),
        Err(_) if wanted == DirectAccess::Prefer => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How long somebody else's lock is waited for, and how often it is tried.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(300);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Whether the kernel joins flushes: those of a device, so also those of file systems that only pass
/// them on. Others write their own metadata for each. It tells only one thread of a page of its cache
/// that could not be written, so this holds past the cache only.
fn joins_flushes(file: &File, kind: BackingKind) -> bool {
    let passes_on = || {
        let facts = rustix::fs::fstatfs(file);
        facts.is_ok_and(|facts| [EXT4_MAGIC, XFS_MAGIC].contains(&(facts.f_type as u64)))
    };
    kind == BackingKind::BlockDevice || passes_on()
}

/// The size in bytes that direct transfers must be multiples of; a sector where there is no such
/// demand.
fn logical_block_size(file: &File, kind: BackingKind, is_direct: bool) -> io::Result<u32> {
    if kind == BackingKind::BlockDevice {
        return Ok(rustix::fs::ioctl_blksszget(file)?);
    }
    if !is_direct {
        return Ok(SECTOR_BYTES);
    }
    let facts = rustix::fs::statx(
        file,
        "",
        rustix::fs::AtFlags::EMPTY_PATH,
        rustix::fs::StatxFlags::DIOALIGN,
    );
    match facts {
        Ok(facts) if facts.stx_dio_offset_align != 0 => {
            Ok(facts.stx_dio_offset_align.max(SECTOR_BYTES))
        }
        // A kernel before 6.1 or a file system that does not say: 4 KiB suits every one known.
        _ => Ok(ALIGNMENT as u32),
    }
}
