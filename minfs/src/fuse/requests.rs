//! Requests of the kernel turned into calls of the library.
//!
//! Knows the kernel's protocol through `fuser` and nothing of the format. The kernel is the only
//! one who changes the mounted volume, so names and attributes may be cached for long. There are
//! no directories, links, special files or extended attributes: each such request gets the errno
//! that POSIX or Linux documents for a file system without them.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use block::AlignedBuffer;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::served::{FuseVolume, ROOT, chosen, errno, number};
use crate::file::{File, privileges};

/// How long the kernel may keep names and attributes.
const CACHED_FOR: Duration = Duration::from_secs(3600);

/// How long the kernel may keep what it is told of a file. It starts a program with the mode that
/// it remembers, and is not told of what a write past its page cache takes from it.
fn cached_for(attributes: &FileAttr) -> Duration {
    if privileges(u32::from(attributes.perm)) == 0 { CACHED_FOR } else { Duration::ZERO }
}

/// Answers with the attributes of a file.
fn reply_facts(reply: ReplyAttr, attributes: &FileAttr) {
    reply.attr(&cached_for(attributes), attributes);
}

fn end(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl FuseVolume {
    /// Answers with a file that the kernel knows from now on.
    fn reply_entry(&self, reply: ReplyEntry, outcome: Result<File, Errno>) {
        match outcome {
            Ok(file) => {
                let (attributes, generation) = self.introduce(file);
                reply.entry(&cached_for(&attributes), &attributes, generation);
            }
            Err(error) => reply.error(error),
        }
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

/// What is not here `fuser` answers: links with `EPERM`, and the sync of a directory so that the kernel
/// asks no more, since every change of a name is durable before it is acknowledged.
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
        // Not FUSE_HANDLE_KILLPRIV_V2: the kernel would leave setuid to the daemon at truncations
        // too, and `fuser` does not pass on which of them are to take it.
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
        self.end();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Err(error) = self.check_parent(parent) {
            return reply.error(error);
        }
        if name.len() > crate::layout::NAME_BYTES_MAX {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let outcome = self.volume().open(name.as_bytes());
        self.reply_entry(reply, outcome.map_err(|error| errno(&error)));
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.forget_lookups(inode, lookups);
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
            Ok(file) => reply_facts(reply, &self.attributes(&file.facts())),
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
            Ok(facts) => reply_facts(reply, &self.attributes(&facts)),
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
        self.reply_entry(reply, self.create_file(request, parent, name, mode));
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
        end(reply, outcome);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.volume().stat(name.as_bytes()) {
            Ok(_) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(errno(&error)),
        }
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
        end(reply, outcome);
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
                let kept = cached_for(&attributes);
                reply.created(&kept, &attributes, generation, FileHandle(0), flags);
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
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let outcome = self.file(inode).and_then(|file| {
            let write = || {
                if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                    file.clear_privileges()?;
                }
                file.write(data, offset)?;
                if self.must_sync(flags.0) { file.sync() } else { Ok(()) }
            };
            write().map_err(|error| self.failed(&error))
        });
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
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let outcome = self.file(inode).and_then(|file| {
            let outcome = if data_only { file.sync_data() } else { file.sync() };
            outcome.map_err(|error| self.failed(&error))
        });
        end(reply, outcome);
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
            let name = OsStr::from_bytes(&facts.name);
            if position > offset
                && reply.add(number(facts.inode), position, FileType::RegularFile, name)
            {
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
        request: &Request,
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
            // Older kernels leave it to the file system, and do not say who may keep the bits.
            if request.uid() != 0 {
                file.clear_privileges().map_err(|error| self.failed(&error))?;
            }
            if zero_range {
                file.zero_range(offset, length, keep_size)
            } else {
                file.preallocate(offset, length, keep_size, self.options.zero_fallocate)
            }
            .map_err(|error| self.failed(&error))
        });
        end(reply, outcome);
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
        if self.options.writeback_cache {
            // The kernel has bytes, and a size, of which the volume does not know yet. Without an
            // answer from here it takes the whole file for data.
            return reply.error(Errno::ENOSYS);
        }
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
