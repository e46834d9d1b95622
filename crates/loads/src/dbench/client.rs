//! One client of the replay: carries the operations of a load file out as dbench's file
//! backend does, system call for system call.
//!
//! Knows one directory and one table of open files; it knows nothing of other clients, phases
//! or histograms. Which calls each operation makes is written down in docs/dbench-replay.md and
//! proved against dbench's own trace in the tests. Where dbench drops an error of the disk
//! silently (fsync), this client does not.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, Timespec, Timestamps};
use rustix::io::{Errno, pread, pwrite};

use super::loadfile::{Action, LoadFile, Operation, PathIndex, Slot};
use crate::sys;

/// The size of glibc's directory buffer; it decides how many calls a directory takes to read.
const DIRECTORY_BUFFER_BYTES: usize = 32 << 10;
/// The part of a load file's paths that stands for the client's own name.
const CLIENT_PLACEHOLDER: &[u8] = b"client1";

// The request's numbers, as Microsoft's [MS-SMB2] 2.2.13 defines them.
pub(super) const DISPOSITION_CREATE: u32 = 2;
pub(super) const DISPOSITION_OVERWRITE: u32 = 4;
pub(super) const DISPOSITION_OVERWRITE_IF: u32 = 5;
const OPTION_DIRECTORY_FILE: u32 = 0x0001;

/// What an operation came to, where dbench only complains and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the load file says.
    Expected,
    /// An open that was to fail succeeded; the file was closed again.
    OpenedUnexpectedly,
    /// A read returned fewer bytes than the load file says, or failed.
    ReadShort,
}

/// A path of the load file under one client's directory.
struct ClientPath {
    full: CString,
    parent: CString,
    name: Vec<u8>,
    has_wildcard: bool,
}

struct OpenFile {
    file: OwnedFd,
    /// The name at opening; the file may have another one by now.
    path: PathIndex,
}

/// One client.
pub struct Client {
    directory: CString,
    paths: Vec<ClientPath>,
    table: Vec<Option<OpenFile>>,
    write_buffer: Vec<u8>,
    read_buffer: Vec<u8>,
    directory_buffer: Box<[MaybeUninit<u8>]>,
}

impl Client {
    /// A client with this number, counted from 0, that works below `directory`.
    ///
    /// # Panics
    /// When `directory` holds a NUL byte, which no path can.
    #[must_use]
    pub fn new(load: &LoadFile, directory: &Path, id: u32) -> Self {
        let mut transfer_bytes_max = 1;
        let mut slots = 0;
        for operation in &load.operations {
            match operation.action {
                Action::Read { size_bytes, .. } | Action::Write { size_bytes, .. } => {
                    transfer_bytes_max = transfer_bytes_max.max(size_bytes as usize);
                }
                Action::CreateX { slot, .. } => slots = slots.max(usize::from(slot) + 1),
                _ => {}
            }
        }
        Self {
            directory: c_string(directory.as_os_str().as_bytes()),
            paths: load.paths.iter().map(|path| ClientPath::new(directory, path, id)).collect(),
            table: (0..slots).map(|_| None).collect(),
            // Zeroes, as dbench writes them. A file system that compresses hardly writes them at all.
            write_buffer: vec![0; transfer_bytes_max],
            read_buffer: vec![0; transfer_bytes_max],
            directory_buffer: Box::new_uninit_slice(DIRECTORY_BUFFER_BYTES),
        }
    }

    /// Carries one operation out.
    ///
    /// # Errors
    /// What would end a client of dbench, with its line: an operation that was to succeed and did
    /// not. Beyond dbench: an fsync that failed.
    pub fn perform(&mut self, operation: &Operation) -> Result<Outcome, String> {
        self.dispatch(operation).map_err(|reason| {
            format!("line {}: {}: {reason}", operation.line, self.describe(operation))
        })
    }

    /// One arm for each operation: long, but a table in shape.
    fn dispatch(&mut self, operation: &Operation) -> Result<Outcome, String> {
        let succeeds = operation.succeeds;
        match operation.action {
            Action::CreateX { path, options, disposition, slot } => {
                return self.create(path, options, disposition, slot, succeeds);
            }
            Action::Write { slot, offset_bytes, size_bytes, moved_bytes } => {
                self.write(slot, offset_bytes, size_bytes, moved_bytes)?
            }
            Action::Read { slot, offset_bytes, size_bytes, moved_bytes } => {
                let file = file_at(&self.table, slot)?;
                let buffer = &mut self.read_buffer[..size_bytes as usize];
                if pread(&file.file, buffer, offset_bytes) != Ok(moved_bytes as usize) {
                    return Ok(Outcome::ReadShort);
                }
            }
            Action::Close { slot } => self.table[usize::from(slot)] = None,
            Action::Rename { from, to } => {
                self.resolve(from);
                self.resolve(to);
                let done =
                    fs::rename(&*self.paths[from as usize].full, &*self.paths[to as usize].full);
                demand(done, succeeds)?;
            }
            Action::Unlink { path } => {
                self.resolve(path);
                demand(fs::unlink(&*self.paths[path as usize].full), succeeds)?;
            }
            Action::Rmdir { path } => {
                self.resolve(path);
                demand(fs::rmdir(&*self.paths[path as usize].full), succeeds)?;
            }
            Action::Mkdir { path } => {
                self.resolve(path);
                // Several clients make the directory that they share, so whether it was there
                // says nothing.
                let _ = fs::mkdir(&*self.paths[path as usize].full, Mode::from(0o777));
            }
            Action::Deltree { path } => {
                let path = self.paths[path as usize].full.clone();
                remove_files_below(&path, &mut self.directory_buffer);
            }
            Action::QueryPath { path } => self.resolve(path),
            Action::QueryFile { slot } => {
                let _ = fs::fstat(&file_at(&self.table, slot)?.file);
            }
            Action::QueryFileSystem => {
                let _ = fs::statvfs(&*self.directory);
            }
            Action::SetFile { slot } => self.set_times(slot)?,
            Action::Find { path, entries_max } => self.find(path, entries_max),
            Action::Lock { slot, offset_bytes, size_bytes } => {
                let file = file_at(&self.table, slot)?;
                let _ = sys::lock_range(file.file.as_fd(), true, offset_bytes, size_bytes);
            }
            Action::Unlock { slot, offset_bytes, size_bytes } => {
                let file = file_at(&self.table, slot)?;
                let _ = sys::lock_range(file.file.as_fd(), false, offset_bytes, size_bytes);
            }
            Action::Flush { slot } => {
                fs::fsync(&file_at(&self.table, slot)?.file).map_err(|error| error.to_string())?;
            }
            Action::Sleep { microseconds } => {
                std::thread::sleep(std::time::Duration::from_micros(u64::from(microseconds)));
            }
        }
        Ok(Outcome::Expected)
    }

    fn create(
        &mut self,
        path: PathIndex,
        options: u32,
        disposition: u32,
        slot: Slot,
        succeeds: bool,
    ) -> Result<Outcome, String> {
        self.resolve(path);
        let name = &*self.paths[path as usize].full;
        let directory_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        match disposition {
            // Not exclusive: the recorded client knew that the name was free.
            DISPOSITION_CREATE => flags |= OFlags::CREATE,
            DISPOSITION_OVERWRITE | DISPOSITION_OVERWRITE_IF => {
                flags |= OFlags::CREATE | OFlags::TRUNC;
            }
            _ => {}
        }
        if options & OPTION_DIRECTORY_FILE != 0 {
            let _ = fs::mkdir(name, Mode::from(0o700));
            flags = directory_flags;
        }
        let mut opened = fs::open(name, flags, Mode::from(0o600));
        if matches!(opened, Err(Errno::ISDIR)) {
            opened = fs::open(name, directory_flags, Mode::from(0o600));
        }
        match (opened, succeeds) {
            (Err(_), false) => Ok(Outcome::Expected),
            (Ok(_), false) => Ok(Outcome::OpenedUnexpectedly),
            (Err(error), true) => Err(error.to_string()),
            (Ok(file), true) => {
                let _ = fs::fstat(&file);
                self.table[usize::from(slot)] = Some(OpenFile { file, path });
                Ok(Outcome::Expected)
            }
        }
    }

    fn write(
        &mut self,
        slot: Slot,
        offset_bytes: u64,
        size_bytes: u32,
        moved_bytes: u32,
    ) -> Result<(), String> {
        let file = file_at(&self.table, slot)?;
        let buffer = &self.write_buffer[..size_bytes as usize];
        let written =
            pwrite(&file.file, buffer, offset_bytes).map_err(|error| error.to_string())?;
        if written != moved_bytes as usize {
            return Err(format!(
                "{written} of {size_bytes} bytes were written, the load file says {moved_bytes}"
            ));
        }
        Ok(())
    }

    /// Moves a file's times back by a little, by the name that it was opened under.
    fn set_times(&mut self, slot: Slot) -> Result<(), String> {
        let open = file_at(&self.table, slot)?;
        let Ok(facts) = fs::fstat(&open.file) else {
            return Ok(());
        };
        let times = Timestamps {
            last_access: seconds(access_seconds(&facts) - 10),
            last_modification: seconds(modification_seconds(&facts) - 12),
        };
        let name = &*self.paths[open.path as usize].full;
        // The file may have been renamed since; dbench does not look at the result.
        let _ = fs::utimensat(CWD, name, &times, AtFlags::empty());
        Ok(())
    }

    /// Looks a path up as a server for Windows clients does: as it is, then by a search of the
    /// directory that ignores case.
    fn resolve(&mut self, path: PathIndex) {
        let path = &self.paths[path as usize];
        if fs::stat(&*path.full).is_ok() {
            return;
        }
        let wanted = &path.name;
        read_directory(&path.parent, &mut self.directory_buffer, |name| {
            !name.eq_ignore_ascii_case(wanted)
        });
    }

    fn find(&mut self, path: PathIndex, entries_max: u32) {
        self.resolve(path);
        let path = &self.paths[path as usize];
        if !path.has_wildcard {
            return;
        }
        let mut remaining = entries_max;
        if remaining == 0 {
            read_directory(&path.parent, &mut [], |_| false);
            return;
        }
        read_directory(&path.parent, &mut self.directory_buffer, |_| {
            remaining -= 1;
            remaining > 0
        });
    }

    fn describe(&self, operation: &Operation) -> String {
        let name = |path: PathIndex| self.paths[path as usize].full.to_string_lossy();
        let slot_name = |slot: Slot| match &self.table[usize::from(slot)] {
            Some(open) => name(open.path),
            None => "a file that is not open".into(),
        };
        let kind = operation.action.kind().map_or("Sleep", |kind| kind.name());
        match operation.action {
            Action::CreateX { path, .. }
            | Action::Unlink { path }
            | Action::Deltree { path }
            | Action::Rmdir { path }
            | Action::Mkdir { path }
            | Action::QueryPath { path }
            | Action::Find { path, .. } => format!("{kind} {}", name(path)),
            Action::Rename { from, to } => format!("{kind} {} to {}", name(from), name(to)),
            Action::Close { slot }
            | Action::QueryFile { slot }
            | Action::SetFile { slot }
            | Action::Write { slot, .. }
            | Action::Read { slot, .. }
            | Action::Lock { slot, .. }
            | Action::Unlock { slot, .. }
            | Action::Flush { slot } => format!("{kind} {}", slot_name(slot)),
            Action::QueryFileSystem | Action::Sleep { .. } => kind.to_owned(),
        }
    }
}

impl ClientPath {
    fn new(directory: &Path, path: &[u8], id: u32) -> Self {
        let mut full = directory.as_os_str().as_bytes().to_owned();
        full.extend_from_slice(&with_client_name(path, id));
        let slash =
            full.iter().rposition(|byte| *byte == b'/').expect("a load path begins with a slash");
        Self {
            parent: c_string(&full[..slash.max(1)]),
            name: full[slash + 1..].to_owned(),
            has_wildcard: path.iter().any(|byte| b"<>*?\"".contains(byte)),
            full: c_string(&full),
        }
    }
}

/// A piece of a load file's path with the client's own name in it. dbench replaces every
/// `client1`, also within longer names.
pub(super) fn with_client_name(path: &[u8], id: u32) -> Vec<u8> {
    let own_name = format!("client{id}");
    let mut replaced = Vec::with_capacity(path.len() + own_name.len());
    let mut rest = path;
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(CLIENT_PLACEHOLDER) {
            replaced.extend_from_slice(own_name.as_bytes());
            rest = after;
        } else {
            replaced.push(*first);
            rest = &rest[1..];
        }
    }
    replaced
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("a path holds no NUL byte")
}

fn file_at(table: &[Option<OpenFile>], slot: Slot) -> Result<&OpenFile, String> {
    // The parser proved that the line that opened it comes before; that line failed if the
    // slot is empty, and then the client has ended.
    table[usize::from(slot)].as_ref().ok_or_else(|| "the file is not open".to_owned())
}

fn demand(done: Result<(), Errno>, succeeds: bool) -> Result<(), String> {
    match (done, succeeds) {
        (Ok(()), true) | (Err(_), false) => Ok(()),
        (Err(error), true) => Err(error.to_string()),
        (Ok(()), false) => Err("it was to fail, but succeeded".to_owned()),
    }
}

fn seconds(tv_sec: i64) -> Timespec {
    Timespec { tv_sec, tv_nsec: 0 }
}

#[allow(clippy::unnecessary_cast, reason = "the field's type differs by architecture")]
fn access_seconds(facts: &Stat) -> i64 {
    facts.st_atime as i64
}

#[allow(clippy::unnecessary_cast, reason = "the field's type differs by architecture")]
fn modification_seconds(facts: &Stat) -> i64 {
    facts.st_mtime as i64
}

/// Reads a directory with the calls of opendir, readdir and closedir, until `visit` says
/// false. A directory that cannot be opened has no entries. An empty buffer reads nothing.
fn read_directory(
    path: &CStr,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(&[u8]) -> bool,
) {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let Ok(directory) = fs::open(path, flags, Mode::empty()) else {
        return;
    };
    let _ = fs::fstat(&directory);
    if buffer.is_empty() {
        return;
    }
    let mut entries = RawDir::new(&directory, buffer);
    while let Some(Ok(entry)) = entries.next() {
        if !visit(entry.file_name().to_bytes()) {
            break;
        }
    }
}

/// Removes the files below a directory and leaves the directories, as dbench's Deltree does.
fn remove_files_below(path: &CStr, buffer: &mut [MaybeUninit<u8>]) {
    let mut directories = Vec::new();
    let mut names: Vec<CString> = Vec::new();
    read_directory(path, buffer, |name| {
        if name != b"." && name != b".." {
            names.push(c_string(name));
        }
        true
    });
    for name in names {
        let mut full = path.to_bytes().to_owned();
        full.push(b'/');
        full.extend_from_slice(name.to_bytes());
        let full = c_string(&full);
        // Not through symbolic links: what they name may lie outside of the directory.
        let Ok(facts) = fs::lstat(&*full) else {
            continue;
        };
        if FileType::from_raw_mode(facts.st_mode) == FileType::Directory {
            directories.push(full);
        } else {
            let _ = fs::unlink(&*full);
        }
    }
    for directory in directories {
        remove_files_below(&directory, buffer);
    }
}
