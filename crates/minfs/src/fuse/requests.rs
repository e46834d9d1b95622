//! Requests of the kernel turned into calls of the library.
//!
//! Knows the kernel's protocol through `fuser` and nothing of the format. The kernel is the only
//! one who changes the mounted volume, so names and attributes may be cached for long. There are
//! no directories, links, special files or extended attributes: each such request gets the errno
//! that POSIX or Linux documents for a file system without them.
//!
//! The root directory is not stored: mode and owner are options of the mount, and its times are
//! those of the last change of a name under this mount.
//!
//! More than 600 lines, since it is one trait of the protocol with one method a request, most of
//! them only a signature that `fuser` prescribes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use block::AlignedBuffer;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};

use super::FuseOptions;
use crate::error::Error;
use crate::file::File;
use crate::shared::{NOT_POISONED, now_ns};
use crate::volume::{FileFacts, Volume};

/// How long the kernel may keep names and attributes.
const CACHED_FOR: Duration = Duration::from_secs(3600);
/// The inode numbers that the kernel sees start here, since 1 is the root.
const FIRST_INODE: u64 = 2;
const ROOT: INodeNo = INodeNo(1);

struct Known {
    file: Arc<File>,
    lookups: u64,
}

/// The file system as `fuser` drives it.
pub(super) struct FuseVolume {
    volume: Option<Volume>,
    options: FuseOptions,
    /// Files that the kernel knows by inode number: each holds its file open, so an unlinked one
    /// lives until the kernel forgets it.
    known: Mutex<HashMap<u64, Known>>,
    mounted_ns: i64,
    /// Times of the root directory; the second one moves with every change of a name.
    root_accessed_ns: AtomicI64,
    root_modified_ns: AtomicI64,
    /// Told once when the volume turns read-only.
    told: Mutex<bool>,
    on_read_only: Box<dyn Fn(&str) + Send + Sync>,
}

fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

fn system_time(time_ns: i64) -> SystemTime {
    let since = Duration::from_nanos(time_ns.unsigned_abs());
    if time_ns >= 0 { UNIX_EPOCH + since } else { UNIX_EPOCH - since }
}

fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// The time that the kernel sent. Before 1970, `fuser` subtracts the nanoseconds that belong to be
/// added to the (negative) seconds; a test of the mount notices when it no longer does.
fn meant(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => nanoseconds(time),
        Err(before) => {
            let seconds = i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX);
            let whole = seconds.saturating_mul(-1_000_000_000);
            whole.saturating_add(i64::from(before.duration().subsec_nanos()))
        }
    }
}

fn chosen(time: TimeOrNow) -> i64 {
    match time {
        TimeOrNow::SpecificTime(time) => meant(time),
        TimeOrNow::Now => nanoseconds(SystemTime::now()),
    }
}

impl FuseVolume {
    pub(super) fn new(
        volume: Volume,
        options: FuseOptions,
        on_read_only: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        let mounted_ns = now_ns();
        Self {
            volume: Some(volume),
            options,
            known: Mutex::default(),
            mounted_ns,
            root_accessed_ns: AtomicI64::new(mounted_ns),
            root_modified_ns: AtomicI64::new(mounted_ns),
            told: Mutex::new(false),
            on_read_only,
        }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("requests end before the volume is unmounted")
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().expect(NOT_POISONED)
    }

    /// The file that the kernel means, if it is not the root.
    fn file(&self, inode: INodeNo) -> Result<Arc<File>, Errno> {
        if inode == ROOT {
            return Err(Errno::EISDIR);
        }
        self.known().get(&inode.0).map(|known| known.file.clone()).ok_or(Errno::ENOENT)
    }

    /// Translates an error, and tells the first time that the volume has become read-only.
    fn failed(&self, error: &Error) -> Errno {
        if matches!(error, Error::Device { .. } | Error::ReadOnly(_))
            && let Some(reason) = self.volume().read_only_reason()
        {
            let mut told = self.told.lock().expect(NOT_POISONED);
            if !*told && !self.options.read_only {
                *told = true;
                (self.on_read_only)(&reason);
            }
        }
        errno(error)
    }

    fn attributes(&self, facts: &FileFacts) -> FileAttr {
        FileAttr {
            ino: INodeNo(u64::from(facts.inode) + FIRST_INODE),
            size: facts.size,
            blocks: facts.allocated_bytes / 512,
            atime: system_time(facts.attributes.accessed_ns),
            mtime: system_time(facts.attributes.modified_ns),
            ctime: system_time(facts.attributes.changed_ns),
            crtime: system_time(facts.attributes.created_ns),
            kind: FileType::RegularFile,
            perm: facts.attributes.mode as u16,
            nlink: u32::from(!facts.is_unlinked),
            uid: facts.attributes.user,
            gid: facts.attributes.group,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn root_attributes(&self) -> FileAttr {
        let (perm, uid, gid) = self.options.root;
        let modified = system_time(self.root_modified_ns.load(Ordering::Relaxed));
        FileAttr {
            ino: ROOT,
            size: 4096,
            blocks: 0,
            atime: system_time(self.root_accessed_ns.load(Ordering::Relaxed)),
            mtime: modified,
            ctime: modified,
            crtime: system_time(self.mounted_ns),
            kind: FileType::Directory,
            perm,
            nlink: 2,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Counts one more lookup of a file by the kernel, and describes it.
    fn introduce(&self, file: File) -> (FileAttr, Generation) {
        let facts = file.facts();
        let attributes = self.attributes(&facts);
        let mut known = self.known();
        let entry = known
            .entry(attributes.ino.0)
            .or_insert_with(|| Known { file: Arc::new(file), lookups: 0 });
        entry.lookups += 1;
        (attributes, Generation(facts.birth))
    }

    fn open_flags(&self, flags: i32) -> FopenFlags {
        if self.options.direct_io || flags & libc::O_DIRECT != 0 {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    /// Only the root is a directory.
    fn check_parent(&self, parent: INodeNo) -> Result<(), Errno> {
        if parent == ROOT { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Carries out a change of names, which is a change of the directory as well.
    fn change_names<T>(
        &self,
        change: impl FnOnce(&Volume) -> crate::error::Result<T>,
    ) -> Result<T, Errno> {
        let outcome = change(self.volume()).map_err(|error| self.failed(&error));
        if outcome.is_ok() {
            self.root_modified_ns.store(now_ns(), Ordering::Relaxed);
        }
        outcome
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Result<File, Errno> {
        self.check_parent(parent)?;
        self.change_names(|volume| {
            volume.create_owned(name.as_bytes(), mode & 0o7777, request.uid(), request.gid())
        })
    }

    /// Mode and owner of the root stay what the mount's options say; to set what is so already
    /// changes nothing. Times may be set, and last as long as the mount.
    fn set_root(
        &self,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
    ) -> Result<(), Errno> {
        let (own_mode, own_user, own_group) = self.options.root;
        let is_own = mode.is_none_or(|mode| mode & 0o7777 == u32::from(own_mode))
            && user.is_none_or(|user| user == own_user)
            && group.is_none_or(|group| group == own_group);
        if !is_own {
            return Err(Errno::EPERM);
        }
        if let Some(accessed) = accessed {
            self.root_accessed_ns.store(chosen(accessed), Ordering::Relaxed);
        }
        if let Some(modified) = modified {
            self.root_modified_ns.store(chosen(modified), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Lends the thread's own buffer for a read, so that none is allocated for each request.
fn with_read_buffer<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(0));
    }
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length {
            *buffer = AlignedBuffer::zeroed(length.next_power_of_two());
        }
        work(&mut buffer[..length])
    })
}

impl Filesystem for FuseVolume {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        if self.options.writeback_cache {
            wanted.push(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        for flag in wanted {
            // A kernel that does not know one of these works all the same, only slower.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(128);
        let _ = config.set_congestion_threshold(96);
        Ok(())
    }

    fn destroy(&mut self) {
        self.known().clear();
        if let Some(volume) = self.volume.take()
            && let Err(error) = volume.unmount()
        {
            (self.on_read_only)(&format!("unmounting failed: {error}"));
        }
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Err(error) = self.check_parent(parent) {
            return reply.error(error);
        }
        if name.len() > crate::layout::NAME_BYTES_MAX {
            return reply.error(Errno::ENAMETOOLONG);
        }
        match self.volume().open(name.as_bytes()) {
            Ok(file) => {
                let (attributes, generation) = self.introduce(file);
                reply.entry(&CACHED_FOR, &attributes, generation);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        let mut known = self.known();
        if let Some(entry) = known.get_mut(&inode.0) {
            entry.lookups = entry.lookups.saturating_sub(lookups);
            if entry.lookups == 0 {
                let forgotten = known.remove(&inode.0);
                // Dropping the file may wait for the volume; the table need not.
                drop(known);
                drop(forgotten);
            }
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        if inode == ROOT {
            return reply.attr(&CACHED_FOR, &self.root_attributes());
        }
        match self.file(inode) {
            Ok(file) => reply.attr(&CACHED_FOR, &self.attributes(&file.facts())),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if inode == ROOT {
            return match self.set_root(mode, user, group, accessed, modified) {
                Ok(()) => reply.attr(&CACHED_FOR, &self.root_attributes()),
                Err(error) => reply.error(error),
            };
        }
        let outcome = self.file(inode).and_then(|file| {
            let apply = || {
                if let Some(size) = size {
                    file.truncate(size)?;
                }
                let has_more = mode.is_some() || user.is_some() || group.is_some();
                if has_more || accessed.is_some() || modified.is_some() {
                    file.set_attributes(|attributes| {
                        attributes.mode = mode.unwrap_or(attributes.mode);
                        attributes.user = user.unwrap_or(attributes.user);
                        attributes.group = group.unwrap_or(attributes.group);
                        attributes.accessed_ns = accessed.map_or(attributes.accessed_ns, chosen);
                        attributes.modified_ns = modified.map_or(attributes.modified_ns, chosen);
                    })?;
                }
                Ok(file.facts())
            };
            apply().map_err(|error| self.failed(&error))
        });
        match outcome {
            Ok(facts) => reply.attr(&CACHED_FOR, &self.attributes(&facts)),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        let kind = mode & libc::S_IFMT;
        if kind != libc::S_IFREG && kind != 0 {
            return reply.error(Errno::EPERM);
        }
        match self.create_file(request, parent, name, mode) {
            Ok(file) => {
                let (attributes, generation) = self.introduce(file);
                reply.entry(&CACHED_FOR, &attributes, generation);
            }
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self
            .check_parent(parent)
            .and_then(|()| self.change_names(|volume| volume.unlink(name.as_bytes())));
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.volume().stat(name.as_bytes()) {
            Ok(_) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn symlink(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn link(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _parent: INodeNo,
        _name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let replace = flags.is_empty();
        let outcome =
            self.check_parent(parent).and_then(|()| self.check_parent(new_parent)).and_then(|()| {
                self.change_names(|volume| {
                    volume.rename(name.as_bytes(), new_name.as_bytes(), replace)
                })
            });
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.file(inode) {
            Ok(_) => reply.opened(FileHandle(0), self.open_flags(flags.0)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(request, parent, name, mode) {
            Ok(file) => {
                let (attributes, generation) = self.introduce(file);
                let flags = self.open_flags(flags);
                reply.created(&CACHED_FOR, &attributes, generation, FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(inode) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        with_read_buffer(size as usize, |buffer| match file.read(buffer, offset) {
            Ok(length) => reply.data(&buffer[..length]),
            Err(error) => reply.error(self.failed(&error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let outcome = self
            .file(inode)
            .and_then(|file| file.write(data, offset).map_err(|error| self.failed(&error)));
        match outcome {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let outcome =
            self.file(inode).and_then(|file| file.sync().map_err(|error| self.failed(&error)));
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        // Every change of a name is durable before it is acknowledged.
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        // Offsets are inode numbers plus three, so that entries which come and go between two
        // calls shift nobody else.
        let dots = [(1, "."), (2, "..")];
        for (position, name) in dots.into_iter().filter(|(position, _)| *position > offset) {
            if reply.add(ROOT, position, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let mut files = self.volume().list();
        files.sort_by_key(|facts| facts.inode);
        for facts in files {
            let position = u64::from(facts.inode) + 3;
            let number = INodeNo(u64::from(facts.inode) + FIRST_INODE);
            let name = OsStr::from_bytes(&facts.name);
            if position > offset && reply.add(number, position, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let space = self.volume().space();
        let unit_bytes = self.volume().geometry().unit_bytes();
        let (total, free) = (space.total_bytes / unit_bytes, space.free_bytes / unit_bytes);
        reply.statfs(
            total,
            free,
            free,
            u64::from(space.files_max),
            u64::from(space.files_max - space.files),
            unit_bytes as u32,
            crate::layout::NAME_BYTES_MAX as u32,
            unit_bytes as u32,
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zero_range = mode & libc::FALLOC_FL_ZERO_RANGE != 0;
        if mode & !(libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let outcome = self.file(inode).and_then(|file| {
            if zero_range {
                file.zero_range(offset, length, keep_size)
            } else {
                file.preallocate(offset, length, keep_size, self.options.zero_fallocate)
            }
            .map_err(|error| self.failed(&error))
        });
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let facts = match self.file(inode) {
            Ok(file) => file.facts(),
            Err(error) => return reply.error(error),
        };
        let data_end = facts.valid.min(facts.size) as i64;
        let size = facts.size as i64;
        if offset < 0 || offset >= size {
            return reply.error(Errno::ENXIO);
        }
        match whence {
            libc::SEEK_DATA if offset < data_end => reply.offset(offset),
            libc::SEEK_DATA => reply.error(Errno::ENXIO),
            libc::SEEK_HOLE => reply.offset(offset.max(data_end)),
            _ => reply.error(Errno::EINVAL),
        }
    }
}
