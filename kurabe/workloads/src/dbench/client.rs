//! One client of the replay: carries the operations of a load file out as dbench's file
//! backend does, system call for system call.
//!
//! Knows one directory and one table of open files; it knows nothing of other clients, phases
//! or histograms. Which calls each operation makes is written down in docs/reference/dbench-replay.md and
//! proved against dbench's own trace in the tests. Where dbench drops an error of the disk
//! silently (fsync), this client does not.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Timespec, Timestamps};
use rustix::io::{Errno, pread, pwrite};

use super::durable::DbenchAcknowledger;
use super::loadfile::{DbenchOperation, LoadFile, Operand, OperationKind, PathIndex, Slot};
use crate::sys;
use measure::acknowledge::Acknowledger;

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
pub enum OperationOutcome {
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

pub struct DbenchClient {
    directory: CString,
    paths: Vec<ClientPath>,
    table: Vec<Option<OpenFile>>,
    write_buffer: Vec<u8>,
    read_buffer: Vec<u8>,
    /// Says what is durable, where the power is cut.
    durable: Option<DbenchAcknowledger>,
}

impl DbenchClient {
    /// A client with this number, counted from 0, that works below `directory`.
    ///
    /// Panics when `directory` holds a NUL byte, which no path can.
    pub fn new(load: &LoadFile, directory: &Path, id: u32) -> Self {
        let transfers = load.operations.iter().map(|operation| operation.bytes() as usize);
        let transfer_bytes_max = transfers.max().unwrap_or_default();
        Self {
            directory: c_string(directory.as_os_str().as_bytes()),
            paths: load.paths.iter().map(|path| ClientPath::new(directory, path, id)).collect(),
            table: (0..load.open_files_max).map(|_| None).collect(),
            // Zeroes, as dbench writes them. A file system that compresses hardly writes them at all.
            write_buffer: vec![0; transfer_bytes_max],
            read_buffer: vec![0; transfer_bytes_max],
            durable: None,
        }
    }

    /// Makes it say what it has made durable.
    pub fn say_to(&mut self, acknowledger: Arc<Acknowledger>, directory: &Path) {
        self.durable = Some(DbenchAcknowledger::new(acknowledger, directory));
    }

    /// Carries one operation out.
    ///
    /// Errors: what would end a client of dbench, with its line: an operation that was to succeed and did
    /// not. Beyond dbench: an fsync that failed.
    pub fn perform(&mut self, operation: &DbenchOperation) -> Result<OperationOutcome, String> {
        let done = self.before(operation).and_then(|()| self.dispatch(operation));
        let done = done.and_then(|outcome| self.after(operation).map(|()| outcome));
        done.map_err(|reason| {
            format!("line {}: {}: {reason}", operation.line, self.describe(operation))
        })
    }

    /// Where the power is cut: names of which what was said holds no longer.
    fn before(&mut self, operation: &DbenchOperation) -> Result<(), String> {
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let mut changes = |path: PathIndex| durable.changes(&self.paths[path as usize].full);
        match (operation.kind, operation.disposition) {
            (OperationKind::Rename, _) => {
                changes(operation.path).and_then(|()| changes(operation.to))
            }
            (OperationKind::Unlink | OperationKind::Deltree, _)
            | (OperationKind::NTCreateX, DISPOSITION_OVERWRITE | DISPOSITION_OVERWRITE_IF) => {
                changes(operation.path)
            }
            _ => Ok(()),
        }
    }

    /// Where the power is cut: what is durable from now on.
    fn after(&mut self, operation: &DbenchOperation) -> Result<(), String> {
        match &mut self.durable {
            Some(durable) if operation.kind == OperationKind::Flush => {
                let OpenFile { file, path } = file_at(&self.table, operation.slot)?;
                durable.flushed(file, &self.paths[*path as usize].full)
            }
            _ => Ok(()),
        }
    }

    /// One arm for each operation: long, but a table in shape.
    fn dispatch(&mut self, operation: &DbenchOperation) -> Result<OperationOutcome, String> {
        let DbenchOperation { path, slot, succeeds, .. } = *operation;
        let (offset_bytes, size_bytes) = (operation.offset_bytes.into(), operation.size_bytes);
        match operation.kind {
            OperationKind::NTCreateX => return self.create(operation),
            OperationKind::WriteX => self.write(operation)?,
            OperationKind::ReadX => {
                let file = file_at(&self.table, slot)?;
                let buffer = &mut self.read_buffer[..size_bytes as usize];
                let read = pread(&file.file, buffer, offset_bytes);
                if read != Ok(operation.moved_bytes as usize) {
                    return Ok(OperationOutcome::ReadShort);
                }
            }
            OperationKind::Close => self.table[usize::from(slot)] = None,
            OperationKind::Rename => {
                let (from, to) = (self.resolved(path), self.resolved(operation.to));
                demand(fs::rename(from, to), succeeds)?;
            }
            OperationKind::Unlink => demand(fs::unlink(self.resolved(path)), succeeds)?,
            OperationKind::Rmdir => demand(fs::rmdir(self.resolved(path)), succeeds)?,
            OperationKind::Mkdir => {
                // Several clients make the directory that they share, so whether it was there
                // says nothing.
                let _ = fs::mkdir(self.resolved(path), Mode::from(0o777));
            }
            OperationKind::Deltree => {
                remove_files_below(&self.paths[path as usize].full);
            }
            OperationKind::Qpathinfo => {
                self.resolved(path);
            }
            OperationKind::Qfileinfo => {
                let _ = fs::fstat(&file_at(&self.table, slot)?.file);
            }
            OperationKind::Qfsinfo => {
                let _ = fs::statvfs(&*self.directory);
            }
            OperationKind::Sfileinfo => self.set_times(slot)?,
            OperationKind::Find => self.find(path, operation.entries_max),
            OperationKind::LockX | OperationKind::UnlockX => {
                let file = file_at(&self.table, slot)?;
                let exclusive = operation.kind == OperationKind::LockX;
                let size_bytes = size_bytes.into();
                let _ = sys::lock_range(file.file.as_fd(), exclusive, offset_bytes, size_bytes);
            }
            OperationKind::Flush => {
                fs::fsync(&file_at(&self.table, slot)?.file).map_err(|error| error.to_string())?;
            }
            OperationKind::Sleep => {
                std::thread::sleep(Duration::from_micros(operation.microseconds.into()));
            }
        }
        Ok(OperationOutcome::Expected)
    }

    fn create(&mut self, operation: &DbenchOperation) -> Result<OperationOutcome, String> {
        let DbenchOperation { path, slot, succeeds, .. } = *operation;
        let name = self.resolved(path);
        let directory_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        match operation.disposition {
            // Not exclusive: the recorded client knew that the name was free.
            DISPOSITION_CREATE => flags |= OFlags::CREATE,
            DISPOSITION_OVERWRITE | DISPOSITION_OVERWRITE_IF => {
                flags |= OFlags::CREATE | OFlags::TRUNC;
            }
            _ => {}
        }
        if operation.options & OPTION_DIRECTORY_FILE != 0 {
            let _ = fs::mkdir(name, Mode::from(0o700));
            flags = directory_flags;
        }
        let mut opened = fs::open(name, flags, Mode::from(0o600));
        if matches!(opened, Err(Errno::ISDIR)) {
            opened = fs::open(name, directory_flags, Mode::from(0o600));
        }
        match (opened, succeeds) {
            (Err(_), false) => Ok(OperationOutcome::Expected),
            (Ok(_), false) => Ok(OperationOutcome::OpenedUnexpectedly),
            (Err(error), true) => Err(error.to_string()),
            (Ok(file), true) => {
                let _ = fs::fstat(&file);
                self.table[usize::from(slot)] = Some(OpenFile { file, path });
                Ok(OperationOutcome::Expected)
            }
        }
    }

    fn write(&mut self, operation: &DbenchOperation) -> Result<(), String> {
        let DbenchOperation { size_bytes, moved_bytes, .. } = *operation;
        let file = file_at(&self.table, operation.slot)?;
        let buffer = &self.write_buffer[..size_bytes as usize];
        let written = pwrite(&file.file, buffer, operation.offset_bytes.into())
            .map_err(|error| error.to_string())?;
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
        #[allow(clippy::unnecessary_cast, reason = "the fields' type differs by architecture")]
        let (accessed, modified) = (facts.st_atime as i64, facts.st_mtime as i64);
        let times = Timestamps {
            last_access: Timespec { tv_sec: accessed - 10, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: modified - 12, tv_nsec: 0 },
        };
        let name = &*self.paths[open.path as usize].full;
        // The file may have been renamed since; dbench does not look at the result.
        let _ = fs::utimensat(CWD, name, &times, AtFlags::empty());
        Ok(())
    }

    /// Looks a path up as a server for Windows clients does: as it is, then by a search of the
    /// directory that ignores case.
    fn resolved(&self, path: PathIndex) -> &CStr {
        let path = &self.paths[path as usize];
        if fs::stat(&*path.full).is_err() {
            read_directory(&path.parent, |name| !name.eq_ignore_ascii_case(&path.name));
        }
        &path.full
    }

    fn find(&self, path: PathIndex, entries_max: u32) {
        self.resolved(path);
        let path = &self.paths[path as usize];
        if !path.has_wildcard {
            return;
        }
        let mut remaining = entries_max;
        if remaining == 0 {
            open_directory(&path.parent);
            return;
        }
        read_directory(&path.parent, |_| {
            remaining -= 1;
            remaining > 0
        });
    }

    fn describe(&self, operation: &DbenchOperation) -> String {
        let name = |path: PathIndex| self.paths[path as usize].full.to_string_lossy();
        let mut text = operation.kind.to_string();
        for operand in operation.kind.operands() {
            match operand {
                Operand::Path => text.extend([" ", &name(operation.path)]),
                Operand::To => text.extend([" to ", &name(operation.to)]),
                Operand::Handle if operation.kind != OperationKind::NTCreateX => {
                    let open = &self.table[usize::from(operation.slot)];
                    let file = open.as_ref().map(|open| name(open.path));
                    text.extend([" ", &file.unwrap_or("a file that is not open".into())]);
                }
                _ => {}
            }
        }
        text
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
    let mut replaced = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(CLIENT_PLACEHOLDER) {
            replaced.extend_from_slice(format!("client{id}").as_bytes());
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

/// Opens a directory with the calls of opendir; one that cannot be opened has no entries.
fn open_directory(path: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let directory = fs::open(path, flags, Mode::empty()).ok()?;
    let _ = fs::fstat(&directory);
    Some(directory)
}

/// Reads a directory with the calls of opendir, readdir and closedir, until `visit` says false.
fn read_directory(path: &CStr, mut visit: impl FnMut(&[u8]) -> bool) {
    let Some(directory) = open_directory(path) else { return };
    let mut buffer = Box::new_uninit_slice(DIRECTORY_BUFFER_BYTES);
    let mut entries = RawDir::new(&directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if !visit(entry.file_name().to_bytes()) {
            break;
        }
    }
}

/// Removes the files below a directory and leaves the directories, as dbench's Deltree does.
fn remove_files_below(path: &CStr) {
    let mut names: Vec<CString> = Vec::new();
    read_directory(path, |name| {
        if name != b"." && name != b".." {
            names.push(c_string(&[path.to_bytes(), b"/", name].concat()));
        }
        true
    });
    let mut directories = Vec::new();
    for name in names {
        // Not through symbolic links: what they name may lie outside of the directory.
        match fs::lstat(&*name).map(|facts| FileType::from_raw_mode(facts.st_mode)) {
            Ok(FileType::Directory) => directories.push(name),
            Ok(_) => drop(fs::unlink(&*name)),
            Err(_) => {}
        }
    }
    directories.iter().for_each(|directory| remove_files_below(directory));
}
