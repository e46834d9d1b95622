//! Reads dbench load files: a recorded sequence of SMB requests, one a line.
//!
//! A pure parser: text in, operations or a line and a reason out. It knows what makes a line
//! well formed and which handles are open where; it touches no file system. Invariants of a
//! [`LoadFile`]: at least one operation; no path leads out of the client's directory; every
//! handle that an operation uses is open there, and none is open at the end.
//!
//! The format is dbench 4.0's (Debian's `client.txt`). dbench itself skips what it cannot read
//! and goes on; here a line that cannot be read is an error, because a load of which a part was
//! skipped is a different load.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::line::{Operands, check_name, due_time, excerpt, succeeds, tokens, unknown_operation};

/// How many files dbench's client can hold open.
pub const OPEN_FILES_MAX: usize = 200;
/// The largest single transfer that is believed; a larger one is a damaged number.
const TRANSFER_BYTES_MAX: u32 = 64 << 20;

/// A line that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LoadFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// The kinds of operation, named as dbench's own report names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are dbench's own; docs/dbench-replay.md says what each does.
pub enum Kind {
    NTCreateX,
    Close,
    Rename,
    Unlink,
    Deltree,
    Rmdir,
    Mkdir,
    Qpathinfo,
    Qfileinfo,
    Qfsinfo,
    Sfileinfo,
    Find,
    WriteX,
    ReadX,
    LockX,
    UnlockX,
    Flush,
}

impl Kind {
    /// All kinds, in the order of dbench's report.
    pub const ALL: [Self; 17] = [
        Self::NTCreateX,
        Self::Close,
        Self::Rename,
        Self::Unlink,
        Self::Deltree,
        Self::Rmdir,
        Self::Mkdir,
        Self::Qpathinfo,
        Self::Qfileinfo,
        Self::Qfsinfo,
        Self::Sfileinfo,
        Self::Find,
        Self::WriteX,
        Self::ReadX,
        Self::LockX,
        Self::UnlockX,
        Self::Flush,
    ];

    /// The name in dbench's report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NTCreateX => "NTCreateX",
            Self::Close => "Close",
            Self::Rename => "Rename",
            Self::Unlink => "Unlink",
            Self::Deltree => "Deltree",
            Self::Rmdir => "Rmdir",
            Self::Mkdir => "Mkdir",
            Self::Qpathinfo => "Qpathinfo",
            Self::Qfileinfo => "Qfileinfo",
            Self::Qfsinfo => "Qfsinfo",
            Self::Sfileinfo => "Sfileinfo",
            Self::Find => "Find",
            Self::WriteX => "WriteX",
            Self::ReadX => "ReadX",
            Self::LockX => "LockX",
            Self::UnlockX => "UnlockX",
            Self::Flush => "Flush",
        }
    }
}

/// An index into [`LoadFile::paths`].
pub type PathIndex = u32;
/// A place in the client's table of open files. dbench searches its table for a handle's
/// number at every use; which place that is follows from the file alone, so it is found here.
pub type Slot = u8;

/// What an operation does, with the numbers that matter to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the operands of the line.
pub enum Action {
    /// Opens or creates; `slot` is where the file is kept when it is expected to succeed.
    CreateX {
        path: PathIndex,
        options: u32,
        disposition: u32,
        slot: Slot,
    },
    Close {
        slot: Slot,
    },
    Rename {
        from: PathIndex,
        to: PathIndex,
    },
    Unlink {
        path: PathIndex,
    },
    Deltree {
        path: PathIndex,
    },
    Rmdir {
        path: PathIndex,
    },
    Mkdir {
        path: PathIndex,
    },
    QueryPath {
        path: PathIndex,
    },
    QueryFile {
        slot: Slot,
    },
    QueryFileSystem,
    SetFile {
        slot: Slot,
    },
    Find {
        path: PathIndex,
        entries_max: u32,
    },
    Write {
        slot: Slot,
        offset_bytes: u64,
        size_bytes: u32,
        moved_bytes: u32,
    },
    Read {
        slot: Slot,
        offset_bytes: u64,
        size_bytes: u32,
        moved_bytes: u32,
    },
    Lock {
        slot: Slot,
        offset_bytes: u64,
        size_bytes: u64,
    },
    Unlock {
        slot: Slot,
        offset_bytes: u64,
        size_bytes: u64,
    },
    Flush {
        slot: Slot,
    },
    /// Waits; dbench does not count it as an operation.
    Sleep {
        microseconds: u32,
    },
}

impl Action {
    /// Bytes that it reads or writes, as dbench counts them (by the size asked for).
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Read { size_bytes, .. } | Self::Write { size_bytes, .. } => size_bytes.into(),
            _ => 0,
        }
    }

    /// The kind under which it is reported; none for a sleep.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::CreateX { .. } => Kind::NTCreateX,
            Self::Close { .. } => Kind::Close,
            Self::Rename { .. } => Kind::Rename,
            Self::Unlink { .. } => Kind::Unlink,
            Self::Deltree { .. } => Kind::Deltree,
            Self::Rmdir { .. } => Kind::Rmdir,
            Self::Mkdir { .. } => Kind::Mkdir,
            Self::QueryPath { .. } => Kind::Qpathinfo,
            Self::QueryFile { .. } => Kind::Qfileinfo,
            Self::QueryFileSystem => Kind::Qfsinfo,
            Self::SetFile { .. } => Kind::Sfileinfo,
            Self::Find { .. } => Kind::Find,
            Self::Write { .. } => Kind::WriteX,
            Self::Read { .. } => Kind::ReadX,
            Self::Lock { .. } => Kind::LockX,
            Self::Unlock { .. } => Kind::UnlockX,
            Self::Flush { .. } => Kind::Flush,
            Self::Sleep { .. } => return None,
        })
    }
}

/// One line of a load file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The line, counted from 1.
    pub line: u32,
    /// When the line is due, from the start of a pass; absent when it follows at once.
    pub due_ns: Option<u64>,
    /// Whether the status says success.
    pub succeeds: bool,
    /// What to do.
    pub action: Action,
}

/// A load that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFile {
    /// The operations in order.
    pub operations: Vec<Operation>,
    /// The distinct paths, with `/` between components and a `/` at the front. The client's
    /// name stands in them as `client1`.
    pub paths: Vec<Vec<u8>>,
    /// The most files open at one time.
    pub open_files_max: usize,
}

impl LoadFile {
    /// Reads a load file.
    ///
    /// # Errors
    /// The first line that cannot be replayed, and why.
    pub fn parse(text: &[u8]) -> Result<Self, LoadFileError> {
        let mut parser = Parser::default();
        let mut line_number = 0;
        let mut rest = text;
        while !rest.is_empty() {
            line_number += 1;
            let error = |reason| LoadFileError { line: line_number, reason };
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Err(error(format!(
                    "the file ends in the middle of this line ({}); it seems to be truncated",
                    excerpt(rest)
                )));
            };
            let line = &rest[..end];
            rest = &rest[end + 1..];
            parser.line(line, line_number).map_err(error)?;
        }
        parser.finish(line_number)
    }
}

/// What is known while reading.
#[derive(Default)]
struct Parser {
    operations: Vec<Operation>,
    paths: Vec<Vec<u8>>,
    path_indexes: HashMap<Vec<u8>, PathIndex>,
    /// By handle number: its slot and the line that opened it.
    open: HashMap<i64, (Slot, usize)>,
    slots: Vec<bool>,
    open_files_max: usize,
}

impl Parser {
    fn line(&mut self, line: &[u8], line_number: usize) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(byte) =
            line.iter().find(|byte| **byte < b' ' && **byte != b'\t' || **byte == 0x7f)
        {
            return Err(format!(
                "a control character (0x{byte:02x}); this is not a dbench load file"
            ));
        }
        let tokens = tokens(line)?;
        let Some(first) = tokens.first() else {
            return Ok(());
        };
        if first.starts_with(b"#") {
            return Ok(());
        }
        let mut words: &[Vec<u8>] = &tokens;
        let mut due_ns = None;
        if first[0].is_ascii_digit() {
            due_ns = due_time(first)?;
            words = &words[1..];
        }
        let Some((name, operands)) = words.split_first() else {
            return Err("a time without an operation".to_owned());
        };
        if name.starts_with(b"SMB") {
            return Err("this is a load file of dbench 1, which is not supported".to_owned());
        }
        check_name(name)?;
        let Some((status, operands)) = operands.split_last() else {
            return Err(format!("`{}` has no operands and no status", excerpt(name)));
        };
        let succeeds = succeeds(status)?;
        let action = self.action(name, operands, succeeds, line_number)?;
        self.operations.push(Operation {
            line: u32::try_from(line_number).map_err(|_| "too many lines".to_owned())?,
            due_ns,
            succeeds,
            action,
        });
        Ok(())
    }

    /// One arm for each operation: long, but a table in shape.
    fn action(
        &mut self,
        name: &[u8],
        operands: &[Vec<u8>],
        succeeds: bool,
        line_number: usize,
    ) -> Result<Action, String> {
        let operands = Operands { name, operands };
        Ok(match name {
            b"NTCreateX" => {
                operands.expect("PATH OPTIONS DISPOSITION HANDLE", 4)?;
                let path = self.path(operands.path(0)?)?;
                let options = operands.number(1)?;
                let disposition = operands.number(2)?;
                // A request that fails leaves no handle (the recorder writes 0); its slot is
                // never looked at.
                let slot = if succeeds {
                    self.open_handle(operands.handle(3)?, line_number)?
                } else {
                    operands.number(3)?;
                    0
                };
                Action::CreateX { path, options, disposition, slot }
            }
            b"Close" => {
                operands.expect("HANDLE", 1)?;
                let handle = operands.handle(0)?;
                let slot = self.slot(handle)?;
                self.open.remove(&handle);
                self.slots[usize::from(slot)] = false;
                Action::Close { slot }
            }
            b"Rename" => {
                operands.expect("PATH PATH", 2)?;
                Action::Rename {
                    from: self.path(operands.path(0)?)?,
                    to: self.path(operands.path(1)?)?,
                }
            }
            b"Unlink" => {
                operands.expect("PATH ATTRIBUTES", 2)?;
                let _attributes: u32 = operands.number(1)?;
                Action::Unlink { path: self.path(operands.path(0)?)? }
            }
            b"Deltree" => {
                operands.expect("PATH", 1)?;
                Action::Deltree { path: self.path(operands.path(0)?)? }
            }
            b"Rmdir" => {
                operands.expect("PATH", 1)?;
                Action::Rmdir { path: self.path(operands.path(0)?)? }
            }
            b"Mkdir" => {
                operands.expect("PATH", 1)?;
                Action::Mkdir { path: self.path(operands.path(0)?)? }
            }
            b"QUERY_PATH_INFORMATION" => {
                operands.expect("PATH LEVEL", 2)?;
                let _level: u32 = operands.number(1)?;
                Action::QueryPath { path: self.path(operands.path(0)?)? }
            }
            b"QUERY_FILE_INFORMATION" => {
                operands.expect("HANDLE LEVEL", 2)?;
                let _level: u32 = operands.number(1)?;
                Action::QueryFile { slot: self.slot(operands.handle(0)?)? }
            }
            b"QUERY_FS_INFORMATION" => {
                operands.expect("LEVEL", 1)?;
                let _level: u32 = operands.number(0)?;
                Action::QueryFileSystem
            }
            b"SET_FILE_INFORMATION" => {
                operands.expect("HANDLE LEVEL", 2)?;
                let _level: u32 = operands.number(1)?;
                Action::SetFile { slot: self.slot(operands.handle(0)?)? }
            }
            b"FIND_FIRST" => {
                operands.expect("PATH LEVEL ENTRIES COUNT", 4)?;
                let _level: u32 = operands.number(1)?;
                let entries_max = operands.number(2)?;
                let _count: u32 = operands.number(3)?;
                Action::Find { path: self.path(operands.path(0)?)?, entries_max }
            }
            b"WriteX" | b"ReadX" => self.transfer(&operands)?,
            b"LockX" | b"UnlockX" => {
                operands.expect("HANDLE OFFSET SIZE", 3)?;
                let slot = self.slot(operands.handle(0)?)?;
                let offset_bytes = u64::from(operands.number(1)?);
                let size_bytes = u64::from(operands.number(2)?);
                if name == b"LockX" {
                    Action::Lock { slot, offset_bytes, size_bytes }
                } else {
                    Action::Unlock { slot, offset_bytes, size_bytes }
                }
            }
            b"Flush" => {
                operands.expect("HANDLE", 1)?;
                Action::Flush { slot: self.slot(operands.handle(0)?)? }
            }
            b"Sleep" => {
                operands.expect("MICROSECONDS", 1)?;
                Action::Sleep { microseconds: operands.number(0)? }
            }
            _ => return Err(unknown_operation(name)),
        })
    }

    fn transfer(&mut self, operands: &Operands<'_>) -> Result<Action, String> {
        operands.expect("HANDLE OFFSET SIZE RETURNED", 4)?;
        let slot = self.slot(operands.handle(0)?)?;
        let offset_bytes = u64::from(operands.number(1)?);
        let size_bytes = operands.number(2)?;
        let moved_bytes = operands.number(3)?;
        if size_bytes > TRANSFER_BYTES_MAX {
            return Err(format!(
                "a transfer of {size_bytes} bytes; more than {TRANSFER_BYTES_MAX} are not believed"
            ));
        }
        if moved_bytes > size_bytes {
            return Err(format!(
                "{moved_bytes} bytes are returned of {size_bytes} that are asked for"
            ));
        }
        Ok(if operands.name == b"WriteX" {
            Action::Write { slot, offset_bytes, size_bytes, moved_bytes }
        } else {
            Action::Read { slot, offset_bytes, size_bytes, moved_bytes }
        })
    }

    fn path(&mut self, path: &[u8]) -> Result<PathIndex, String> {
        if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return Err(format!("the path {} leads out of the client's directory", excerpt(path)));
        }
        if path.len() > 1000 {
            return Err(format!("a path of {} bytes", path.len()));
        }
        if let Some(index) = self.path_indexes.get(path) {
            return Ok(*index);
        }
        let index =
            PathIndex::try_from(self.paths.len()).map_err(|_| "too many paths".to_owned())?;
        self.paths.push(path.to_owned());
        self.path_indexes.insert(path.to_owned(), index);
        Ok(index)
    }

    fn open_handle(&mut self, handle: i64, line_number: usize) -> Result<Slot, String> {
        if let Some((_, opened)) = self.open.get(&handle) {
            return Err(format!("the handle {handle} is open already, since line {opened}"));
        }
        let free = self.slots.iter().position(|taken| !taken);
        let slot = free.unwrap_or(self.slots.len());
        if slot >= OPEN_FILES_MAX {
            return Err(format!("more than {OPEN_FILES_MAX} files are open"));
        }
        if free.is_none() {
            self.slots.push(false);
        }
        self.slots[slot] = true;
        let slot = Slot::try_from(slot).expect("OPEN_FILES_MAX fits a slot number");
        self.open.insert(handle, (slot, line_number));
        self.open_files_max = self.open_files_max.max(self.open.len());
        Ok(slot)
    }

    fn slot(&self, handle: i64) -> Result<Slot, String> {
        self.open
            .get(&handle)
            .map(|(slot, _)| *slot)
            .ok_or_else(|| format!("the handle {handle} is not open here"))
    }

    fn finish(self, line_number: usize) -> Result<LoadFile, LoadFileError> {
        if self.operations.is_empty() {
            return Err(LoadFileError {
                line: line_number.max(1),
                reason: "the file holds no operation".to_owned(),
            });
        }
        if let Some((handle, (_, opened))) = self.open.iter().min_by_key(|(_, (_, line))| *line) {
            return Err(LoadFileError {
                line: line_number,
                reason: format!(
                    "the file ends with {} open handle(s), the first of them {handle} from line \
                     {opened}; it seems to be truncated",
                    self.open.len()
                ),
            });
        }
        Ok(LoadFile {
            operations: self.operations,
            paths: self.paths,
            open_files_max: self.open_files_max,
        })
    }
}

#[cfg(test)]
#[path = "loadfile_tests.rs"]
mod tests;
