//! A volume that is served: what the daemon keeps beside it, and how its facts look to the kernel.
//!
//! The root directory is not stored: mode and owner are options of the mount, and its times are
//! those of the last change of a name under this mount. Which request needs what is known to
//! `requests` alone.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, FopenFlags, Generation, INodeNo, Request, TimeOrNow};

use super::FuseOptions;
use crate::error::Error;
use crate::file::File;
use crate::shared::{NOT_POISONED, now_ns};
use crate::volume::{FileFacts, Volume};

/// The inode numbers that the kernel sees start here, since 1 is the root.
const FIRST_INODE: u64 = 2;
pub(super) const ROOT: INodeNo = INodeNo(1);

/// A file that the kernel knows.
struct Known {
    file: Arc<File>,
    lookups: u64,
}

/// The file system as `fuser` drives it.
pub(super) struct FuseVolume {
    volume: Option<Volume>,
    pub(super) options: FuseOptions,
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

/// The number by which the kernel knows inode `inode` of the volume.
pub(super) fn number(inode: u32) -> INodeNo {
    INodeNo(u64::from(inode) + FIRST_INODE)
}

pub(super) fn errno(error: &Error) -> Errno {
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

pub(super) fn chosen(time: TimeOrNow) -> i64 {
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

    pub(super) fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("requests end before the volume is unmounted")
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().expect(NOT_POISONED)
    }

    /// The file that the kernel means, if it is not the root.
    pub(super) fn file(&self, inode: INodeNo) -> Result<Arc<File>, Errno> {
        if inode == ROOT {
            return Err(Errno::EISDIR);
        }
        self.known().get(&inode.0).map(|known| known.file.clone()).ok_or(Errno::ENOENT)
    }

    /// Translates an error, and tells the first time that the volume has become read-only.
    pub(super) fn failed(&self, error: &Error) -> Errno {
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

    pub(super) fn attributes(&self, facts: &FileFacts) -> FileAttr {
        FileAttr {
            ino: number(facts.inode),
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

    pub(super) fn root_attributes(&self) -> FileAttr {
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
    pub(super) fn introduce(&self, file: File) -> (FileAttr, Generation) {
        let facts = file.facts();
        let attributes = self.attributes(&facts);
        let mut known = self.known();
        let entry = known
            .entry(attributes.ino.0)
            .or_insert_with(|| Known { file: Arc::new(file), lookups: 0 });
        entry.lookups += 1;
        (attributes, Generation(facts.birth))
    }

    /// Takes lookups back; the last one closes the file.
    pub(super) fn forget_lookups(&self, inode: INodeNo, lookups: u64) {
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

    /// Unmounts the volume after the last request.
    pub(super) fn end(&mut self) {
        self.known().clear();
        if let Some(volume) = self.volume.take()
            && let Err(error) = volume.unmount()
        {
            (self.on_read_only)(&format!("unmounting failed: {error}"));
        }
    }

    fn is_direct(&self, flags: i32) -> bool {
        self.options.direct_io || flags & libc::O_DIRECT != 0
    }

    /// Whether a write by a file that was opened with `flags` has to be durable when it returns.
    /// The kernel asks for the sync itself, but not for writes past its page cache.
    pub(super) fn must_sync(&self, flags: i32) -> bool {
        // O_SYNC contains the bit of O_DSYNC.
        self.is_direct(flags) && flags & libc::O_DSYNC != 0
    }

    pub(super) fn open_flags(&self, flags: i32) -> FopenFlags {
        if self.is_direct(flags) {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    /// Only the root is a directory.
    pub(super) fn check_parent(&self, parent: INodeNo) -> Result<(), Errno> {
        if parent == ROOT { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Carries out a change of names, which is a change of the directory as well.
    pub(super) fn change_names<T>(
        &self,
        change: impl FnOnce(&Volume) -> crate::error::Result<T>,
    ) -> Result<T, Errno> {
        let outcome = change(self.volume()).map_err(|error| self.failed(&error));
        if outcome.is_ok() {
            self.root_modified_ns.store(now_ns(), Ordering::Relaxed);
        }
        outcome
    }

    pub(super) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Result<File, Errno> {
        self.check_parent(parent)?;
        let (root_mode, _, root_group) = self.options.root;
        let passes_on = u32::from(root_mode) & libc::S_ISGID != 0;
        let group = if passes_on { root_group } else { request.gid() };
        self.change_names(|volume| {
            volume.create_owned(name.as_bytes(), mode & 0o7777, request.uid(), group)
        })
    }

    /// Mode and owner of the root stay what the mount's options say; to set what is so already
    /// changes nothing. Times may be set, and last as long as the mount.
    pub(super) fn set_root(
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
