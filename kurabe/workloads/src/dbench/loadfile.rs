//! Reads dbench load files: a recorded sequence of SMB requests, one a line.
//!
//! A pure parser: text in, operations or a line and a reason out. It knows what makes a line
//! well formed and which handles are open where; it touches no file system. Invariants of a
//! [`LoadFile`]: at least one operation; no path leads out of the client's directory; every
//! handle that an operation uses is open there, and none is open at the end.
//!
//! The format is dbench 4.0's (Debian's `client.txt`). dbench itself skips what it cannot read
//! and goes on; here a line that cannot be read is an error, because a workload of which a part was
//! skipped is a different load.

use std::collections::HashMap;
use std::fmt;

use super::line::{
    check_name, due_time, excerpt, other_backend, parse_number, succeeds, tokens, unknown_operation,
};

/// How many files dbench's client can hold open.
pub const OPEN_FILES_MAX: Slot = 200;
/// The largest single transfer that is believed; a larger one is a damaged number.
const TRANSFER_BYTES_MAX: u64 = 64 << 20;

/// A line that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LoadFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// The kinds of operation; each is printed as dbench's own report names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationKind {
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
    /// Waits; dbench does not count it as an operation.
    #[default]
    Sleep,
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What an operand of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Path,
    /// The second path of a line.
    To,
    Handle,
    Options,
    Disposition,
    Entries,
    Offset,
    Size,
    Returned,
    Microseconds,
    /// Numbers that no call depends on.
    Attributes,
    Level,
    Count,
}

use Operand::{
    Attributes, Count, Disposition, Entries, Handle, Level, Microseconds, Offset, Options, Path,
    Returned, Size, To,
};

/// What can stand on a line, in the order of dbench's report: the name, the kind, the operands.
pub(super) const FORMS: [(&str, OperationKind, &[Operand]); 18] = [
    ("NTCreateX", OperationKind::NTCreateX, &[Path, Options, Disposition, Handle]),
    ("Close", OperationKind::Close, &[Handle]),
    ("Rename", OperationKind::Rename, &[Path, To]),
    ("Unlink", OperationKind::Unlink, &[Path, Attributes]),
    ("Deltree", OperationKind::Deltree, &[Path]),
    ("Rmdir", OperationKind::Rmdir, &[Path]),
    ("Mkdir", OperationKind::Mkdir, &[Path]),
    ("QUERY_PATH_INFORMATION", OperationKind::Qpathinfo, &[Path, Level]),
    ("QUERY_FILE_INFORMATION", OperationKind::Qfileinfo, &[Handle, Level]),
    ("QUERY_FS_INFORMATION", OperationKind::Qfsinfo, &[Level]),
    ("SET_FILE_INFORMATION", OperationKind::Sfileinfo, &[Handle, Level]),
    ("FIND_FIRST", OperationKind::Find, &[Path, Level, Entries, Count]),
    ("WriteX", OperationKind::WriteX, &[Handle, Offset, Size, Returned]),
    ("ReadX", OperationKind::ReadX, &[Handle, Offset, Size, Returned]),
    ("LockX", OperationKind::LockX, &[Handle, Offset, Size]),
    ("UnlockX", OperationKind::UnlockX, &[Handle, Offset, Size]),
    ("Flush", OperationKind::Flush, &[Handle]),
    ("Sleep", OperationKind::Sleep, &[Microseconds]),
];

impl OperationKind {
    /// The kinds that dbench counts, in the order of its report.
    pub fn counted() -> impl Iterator<Item = OperationKind> {
        FORMS.into_iter().map(|(_, kind, _)| kind).filter(|kind| *kind != OperationKind::Sleep)
    }

    pub(super) fn operands(self) -> &'static [Operand] {
        FORMS[self as usize].2
    }
}

/// An index into [`LoadFile::paths`].
pub type PathIndex = u32;
/// A place in the client's table of open files. dbench searches its table for a handle's
/// number at every use; which place that is follows from the file alone, so it is found here.
pub type Slot = u8;

/// One line of a load file. Operands that its kind has not are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbenchOperation {
    /// The line, counted from 1.
    pub line: u32,
    /// When the line is due, from the start of a pass; absent when it follows at once.
    pub due_ns: Option<u64>,
    /// Whether the status says success.
    pub succeeds: bool,
    pub kind: OperationKind,
    pub path: PathIndex,
    pub to: PathIndex,
    /// Where the file is kept; of an open that is to fail nowhere.
    pub slot: Slot,
    pub options: u32,
    pub disposition: u32,
    pub entries_max: u32,
    pub offset_bytes: u32,
    pub size_bytes: u32,
    pub moved_bytes: u32,
    pub microseconds: u32,
}

impl DbenchOperation {
    /// Bytes that it reads or writes, as dbench counts them (by the size asked for).
    pub fn bytes(&self) -> u64 {
        match self.kind {
            OperationKind::ReadX | OperationKind::WriteX => self.size_bytes.into(),
            _ => 0,
        }
    }
}

/// A workload that can be replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadFile {
    /// The operations in order.
    pub operations: Vec<DbenchOperation>,
    /// The distinct paths, with `/` between components and a `/` at the front. The client's
    /// name stands in them as `client1`.
    pub paths: Vec<Vec<u8>>,
    /// The most files open at one time.
    pub open_files_max: usize,
}

impl LoadFile {
    pub fn parse(text: &[u8]) -> Result<Self, LoadFileError> {
        let mut parser = Parser::default();
        let mut line_number = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            line_number += 1;
            let read = match line.strip_suffix(b"\n") {
                Some(line) => parser.line(line, line_number),
                None => Err(format!(
                    "the file ends in the middle of this line ({}); it seems to be truncated",
                    excerpt(line)
                )),
            };
            // What is wrong with a file for something else is that, and not its first line.
            read.map_err(|reason| {
                let (line, reason) = other_backend(text).unwrap_or((line_number, reason));
                LoadFileError { line, reason }
            })?;
        }
        parser.finish().map_err(|reason| LoadFileError { line: line_number.max(1), reason })
    }
}

/// What is known while reading.
#[derive(Default)]
struct Parser {
    load: LoadFile,
    path_indexes: HashMap<Vec<u8>, PathIndex>,
    /// By handle number: its slot and the line that opened it.
    open: HashMap<u32, (Slot, usize)>,
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
        let mut operation = self.operation(name, operands, succeeds, line_number)?;
        operation.due_ns = due_ns;
        self.load.operations.push(operation);
        Ok(())
    }

    fn operation(
        &mut self,
        name: &[u8],
        operands: &[Vec<u8>],
        succeeds: bool,
        line_number: usize,
    ) -> Result<DbenchOperation, String> {
        let form = FORMS.into_iter().find(|(known, ..)| known.as_bytes() == name);
        let (name, kind, form) =
            form.ok_or_else(|| unknown_operation(name, &FORMS.map(|(known, ..)| known)))?;
        if operands.len() != form.len() {
            let words: String = form.iter().map(|operand| format!("{operand:?} ")).collect();
            return Err(format!(
                "`{name}` takes {} operand(s) and a status ({name} {}STATUS), here are {}",
                form.len(),
                words.to_uppercase(),
                operands.len(),
            ));
        }
        let mut operation = DbenchOperation {
            line: u32::try_from(line_number).map_err(|_| "too many lines".to_owned())?,
            succeeds,
            kind,
            ..DbenchOperation::default()
        };
        for (place, (operand, text)) in form.iter().zip(operands).enumerate() {
            let wrong = |wanted: &str| {
                let (place, text) = (place + 1, excerpt(text));
                format!("operand {place} of `{name}` is to be {wanted}, but is {text}")
            };
            if matches!(operand, Path | To) {
                if !text.starts_with(b"/") {
                    return Err(wrong("a path that begins with \\"));
                }
                let index = self.path(text)?;
                *(if *operand == Path { &mut operation.path } else { &mut operation.to }) = index;
                continue;
            }
            let number = parse_number(text).and_then(|number| u32::try_from(number).ok());
            let number = number.ok_or_else(|| wrong("a number of 32 bits"))?;
            match operand {
                // A request that fails leaves no handle (the recorder writes 0).
                Handle if kind == OperationKind::NTCreateX && !succeeds => {}
                // In dbench's table a 0 marks a free place, so no file can have it.
                Handle if number == 0 => return Err(format!("`{name}` uses the handle 0")),
                Handle if kind == OperationKind::NTCreateX => {
                    operation.slot = self.open_handle(number, line_number)?;
                }
                Handle => operation.slot = self.slot(number)?,
                Options => operation.options = number,
                Disposition => operation.disposition = number,
                Entries => operation.entries_max = number,
                Offset => operation.offset_bytes = number,
                Size => operation.size_bytes = number,
                Returned => operation.moved_bytes = number,
                Microseconds => operation.microseconds = number,
                Path | To | Attributes | Level | Count => {}
            }
            if kind == OperationKind::Close {
                self.open.remove(&number);
            }
        }
        check_transfer(&operation)?;
        Ok(operation)
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
            PathIndex::try_from(self.load.paths.len()).map_err(|_| "too many paths".to_owned())?;
        self.load.paths.push(path.to_owned());
        self.path_indexes.insert(path.to_owned(), index);
        Ok(index)
    }

    fn open_handle(&mut self, handle: u32, line_number: usize) -> Result<Slot, String> {
        if let Some((_, opened)) = self.open.get(&handle) {
            return Err(format!("the handle {handle} is open already, since line {opened}"));
        }
        let is_free = |slot: &Slot| self.open.values().all(|(taken, _)| taken != slot);
        let slot = (0..OPEN_FILES_MAX)
            .find(is_free)
            .ok_or_else(|| format!("more than {OPEN_FILES_MAX} files are open"))?;
        self.open.insert(handle, (slot, line_number));
        self.load.open_files_max = self.load.open_files_max.max(self.open.len());
        Ok(slot)
    }

    fn slot(&self, handle: u32) -> Result<Slot, String> {
        let open = self.open.get(&handle);
        open.map(|(slot, _)| *slot).ok_or_else(|| format!("the handle {handle} is not open here"))
    }

    fn finish(self) -> Result<LoadFile, String> {
        if self.load.operations.is_empty() {
            return Err("the file holds no operation".to_owned());
        }
        match self.open.iter().min_by_key(|(_, (_, line))| *line) {
            Some((handle, (_, opened))) => Err(format!(
                "the file ends with {} open handle(s), the first of them {handle} from line \
                 {opened}; it seems to be truncated",
                self.open.len()
            )),
            None => Ok(self.load),
        }
    }
}

fn check_transfer(operation: &DbenchOperation) -> Result<(), String> {
    let DbenchOperation { size_bytes, moved_bytes, .. } = operation;
    if operation.bytes() > TRANSFER_BYTES_MAX {
        return Err(format!(
            "a transfer of {size_bytes} bytes; more than {TRANSFER_BYTES_MAX} are not believed"
        ));
    }
    if moved_bytes > size_bytes {
        Err(format!("{moved_bytes} bytes are returned of {size_bytes} that are asked for"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[path = "loadfile_tests.rs"]
mod tests;
