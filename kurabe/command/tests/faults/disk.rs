//! A disk that can be told to fail: a FUSE file system in the test's own process, which holds its
//! files in memory and serves one directory. An image in it stands on a disk that gives errors,
//! fills up, or goes away.
//!
//! Whether requests fail is read from a marker file at every request, so that the command of a trial
//! can begin and end a fault at an instant of its own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

/// What the marker says when only the middle of an image is to fail: neither the places where
/// signatures lie nor the end.
pub const MIDDLE: &str = "middle";

/// Bytes of an image that fail under [`MIDDLE`].
const MIDDLE_BYTES: std::ops::Range<u64> = 4 << 20..40 << 20;

const ROOT: INodeNo = INodeNo(1);
const CACHED_FOR: Duration = Duration::from_secs(1);

/// The disk, mounted. Unmounted when dropped.
pub struct FaultyDisk {
    home: TempDir,
    files: Arc<Mutex<Files>>,
    session: Option<BackgroundSession>,
}

/// The files by inode number; one without a name is unlinked and still open.
#[derive(Default)]
struct Files {
    by_inode: BTreeMap<u64, (Option<OsString>, Vec<u8>)>,
    last_inode: u64,
}

struct Served {
    files: Arc<Mutex<Files>>,
    marker: PathBuf,
    /// Writes beyond it find no space.
    end_bytes: u64,
}

impl FaultyDisk {
    /// A disk on which a file may be `end_bytes` long, whatever it says of its free space.
    pub fn new(end_bytes: u64) -> FaultyDisk {
        let home =
            tempfile::Builder::new().prefix("test-of-kurabe-disk-").tempdir_in("/var/tmp").unwrap();
        fs::create_dir(home.path().join("images")).unwrap();
        let files: Arc<Mutex<Files>> = Arc::default();
        let served = Served { files: files.clone(), marker: marker_in(home.path()), end_bytes };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faulty".into()), MountOption::RW];
        let session = fuser::spawn_mount(served, home.path().join("images"), &config).unwrap();
        FaultyDisk { home, files, session: Some(session) }
    }

    /// Where images lie.
    pub fn images(&self) -> PathBuf {
        self.home.path().join("images")
    }

    /// An image of this size on it.
    pub fn device(&self, size: &str) -> String {
        format!("loop:{size}@{}", self.images().display())
    }

    /// While this file exists, requests fail.
    pub fn marker(&self) -> PathBuf {
        marker_in(self.home.path())
    }

    /// A file beside the disk.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Every request fails from now on, and the kernel knows that nobody answers any more.
    pub fn vanish(&self) {
        // Held open, so that the mount itself stays where it is.
        let _held = fs::File::open(self.images()).unwrap();
        let forced = unmount(self.images(), UnmountFlags::FORCE);
        assert_eq!(forced, Err(rustix::io::Errno::BUSY));
    }

    /// What is still there of it that kurabe made: files, and loop devices on them.
    pub fn taken(&self) -> Vec<String> {
        let files = lock(&self.files);
        let names = files.by_inode.values().filter_map(|(name, _)| name.clone());
        let mut taken: Vec<String> =
            names.map(|name| format!("image {}", name.display())).collect();
        let home = self.home.path().display().to_string();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            if backing.is_ok_and(|backing| backing.contains(&home)) {
                taken.push(format!("loop device {}", entry.file_name().display()));
            }
        }
        taken
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        let _ = unmount(self.images(), UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

fn marker_in(home: &Path) -> PathBuf {
    home.join("fault")
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Served {
    /// Whether a request for these bytes fails now.
    fn check(&self, offset: u64, length: usize) -> Result<(), Errno> {
        match fs::read_to_string(&self.marker) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(text) if text.trim() == MIDDLE => {
                let end = offset + length as u64;
                if end <= MIDDLE_BYTES.start || offset >= MIDDLE_BYTES.end {
                    Ok(())
                } else {
                    Err(Errno::EIO)
                }
            }
            _ => Err(Errno::EIO),
        }
    }

    fn attributes(&self, inode: INodeNo, size: u64, kind: FileType, perm: u16) -> FileAttr {
        let time = UNIX_EPOCH;
        FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn of_file(&self, files: &Files, inode: INodeNo) -> Result<FileAttr, Errno> {
        if inode == ROOT {
            return Ok(self.attributes(ROOT, 4096, FileType::Directory, 0o700));
        }
        let (_, bytes) = files.by_inode.get(&inode.0).ok_or(Errno::ENOENT)?;
        Ok(self.attributes(inode, bytes.len() as u64, FileType::RegularFile, 0o600))
    }

    fn find(&self, files: &Files, wanted: &OsStr) -> Option<INodeNo> {
        let found = files.by_inode.iter().find(|(_, (name, _))| name.as_deref() == Some(wanted));
        found.map(|(inode, _)| INodeNo(*inode))
    }

    fn write_at(&self, inode: INodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.check(offset, data.len())?;
        let end = offset + data.len() as u64;
        if end > self.end_bytes {
            return Err(Errno::ENOSPC);
        }
        let mut files = lock(&self.files);
        let (_, bytes) = files.by_inode.get_mut(&inode.0).ok_or(Errno::ENOENT)?;
        if bytes.len() < end as usize {
            bytes.resize(end as usize, 0);
        }
        bytes[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = lock(&self.files);
        let found = self.find(&files, name).ok_or(Errno::ENOENT);
        match found.and_then(|inode| self.of_file(&files, inode)) {
            Ok(attributes) => reply.entry(&CACHED_FOR, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.of_file(&lock(&self.files), inode) {
            Ok(attributes) => reply.attr(&CACHED_FOR, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _user: Option<u32>,
        _group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = lock(&self.files);
        if let (Some(size), Some((_, bytes))) = (size, files.by_inode.get_mut(&inode.0)) {
            bytes.resize(size as usize, 0);
        }
        match self.of_file(&files, inode) {
            Ok(attributes) => reply.attr(&CACHED_FOR, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut files = lock(&self.files);
        files.last_inode = files.last_inode.max(ROOT.0) + 1;
        let inode = files.last_inode;
        files.by_inode.insert(inode, (Some(name.to_owned()), Vec::new()));
        let attributes = self.of_file(&files, INodeNo(inode)).expect("it was just made");
        let (handle, flags) = (FileHandle(0), FopenFlags::empty());
        reply.created(&CACHED_FOR, &attributes, Generation(0), handle, flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Err(error) = self.check(offset, size as usize) {
            return reply.error(error);
        }
        let files = lock(&self.files);
        let Some((_, bytes)) = files.by_inode.get(&inode.0) else {
            return reply.error(Errno::ENOENT);
        };
        let begin = (offset as usize).min(bytes.len());
        let end = (begin + size as usize).min(bytes.len());
        reply.data(&bytes[begin..end]);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(inode, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // What was acknowledged is there; a sync fails with the disk.
        match self.check(0, 1) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut files = lock(&self.files);
        let found = self.find(&files, name);
        match found.and_then(|inode| files.by_inode.get_mut(&inode.0)) {
            Some((name, _)) => {
                *name = None;
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 20;
        reply.statfs(blocks, blocks, blocks, 1000, 1000, 4096, 255, 4096);
    }
}
