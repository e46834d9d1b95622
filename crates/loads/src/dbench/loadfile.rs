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
    /// Bytes that one pass reads and writes, as dbench counts them (by the sizes asked for).
    #[must_use]
    pub fn pass_bytes(&self) -> u64 {
        self.operations
            .iter()
            .map(|operation| match operation.action {
                Action::Read { size_bytes, .. } | Action::Write { size_bytes, .. } => {
                    u64::from(size_bytes)
                }
                _ => 0,
            })
            .sum()
    }

    /// How often each kind occurs in one pass, in the order of [`Kind::ALL`]; kinds that do
    /// not occur are left out.
    #[must_use]
    pub fn counts(&self) -> Vec<(Kind, u64)> {
        let mut counts = HashMap::new();
        for kind in self.operations.iter().filter_map(|o| o.action.kind()) {
            *counts.entry(kind).or_insert(0_u64) += 1;
        }
        Kind::ALL
            .into_iter()
            .filter_map(|kind| counts.get(&kind).map(|count| (kind, *count)))
            .collect()
    }

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

/// The operands of one line, between the operation's name and the status.
struct Operands<'a> {
    name: &'a [u8],
    operands: &'a [Vec<u8>],
}

impl Operands<'_> {
    fn expect(&self, form: &str, count: usize) -> Result<(), String> {
        if self.operands.len() == count {
            return Ok(());
        }
        Err(format!(
            "`{name}` takes {count} operand(s) and a status ({name} {form} STATUS), here are {}",
            self.operands.len(),
            name = excerpt_bare(self.name),
        ))
    }

    fn path(&self, index: usize) -> Result<&[u8], String> {
        let path = &self.operands[index];
        if path.first() == Some(&b'/') {
            Ok(path)
        } else {
            Err(format!(
                "operand {} of `{}` is to be a path that begins with \\, but is {}",
                index + 1,
                excerpt_bare(self.name),
                excerpt(path)
            ))
        }
    }

    fn number(&self, index: usize) -> Result<u32, String> {
        let text = &self.operands[index];
        parse_number(text).and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
            format!(
                "operand {} of `{}` is to be a number of 32 bits, but is {}",
                index + 1,
                excerpt_bare(self.name),
                excerpt(text)
            )
        })
    }

    fn handle(&self, index: usize) -> Result<i64, String> {
        let handle = self.number(index)?;
        // In dbench's table a 0 marks a free place, so no file can have it.
        if handle == 0 {
            return Err(format!("`{}` uses the handle 0", excerpt_bare(self.name)));
        }
        Ok(i64::from(handle))
    }
}

/// Decimal, `0x` hexadecimal or, with a leading 0, octal: what C's `strtol` with base 0 reads.
fn parse_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let parsed = if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        u64::from_str_radix(digits, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    // `parse` takes a leading `+`, which is dbench 5's sign for "relative to the line before".
    parsed.ok().filter(|_| !text.contains('+'))
}

/// A line's leading time, in seconds since the start of the pass. 0 means "at once".
fn due_time(text: &[u8]) -> Result<Option<u64>, String> {
    let seconds = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok())
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .ok_or_else(|| format!("{} is not a time in seconds", excerpt(text)))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked above"
    )]
    let due_ns = (seconds * 1e9) as u64;
    Ok((due_ns > 0).then_some(due_ns))
}

/// Whether a status means success. dbench knows the name `NT_STATUS_OK` and a hexadecimal 0.
fn succeeds(status: &[u8]) -> Result<bool, String> {
    let named = status.strip_prefix(b"NT_STATUS_".as_slice());
    if let Some(name) = named
        && !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
    {
        return Ok(name == b"OK");
    }
    if status.starts_with(b"0x")
        && let Some(code) = parse_number(status)
    {
        return Ok(code == 0);
    }
    Err(format!(
        "the line is to end with a status (NT_STATUS_... or 0x...), but ends with {}",
        excerpt(status)
    ))
}

fn check_name(name: &[u8]) -> Result<(), String> {
    const DBENCH_5: [&[u8]; 7] =
        [b"LOOP", b"ENDLOOP", b"REPEAT", b"RANDOMSTRING", b"WRITEPATTERN", b"SETSP", b"WAITSP"];
    if DBENCH_5.contains(&name) {
        return Err(format!(
            "`{}` belongs to the load files of dbench 5; this replay reads those of dbench 4",
            excerpt_bare(name)
        ));
    }
    Ok(())
}

fn unknown_operation(name: &[u8]) -> String {
    const KNOWN: [&str; 18] = [
        "NTCreateX",
        "Close",
        "Rename",
        "Unlink",
        "Deltree",
        "Rmdir",
        "Mkdir",
        "QUERY_PATH_INFORMATION",
        "QUERY_FILE_INFORMATION",
        "QUERY_FS_INFORMATION",
        "SET_FILE_INFORMATION",
        "FIND_FIRST",
        "WriteX",
        "ReadX",
        "LockX",
        "UnlockX",
        "Flush",
        "Sleep",
    ];
    let text = excerpt_bare(name);
    let nearest = KNOWN
        .iter()
        .map(|known| (strsim::jaro_winkler(known, &text), *known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.8);
    match nearest {
        Some((_, known)) => format!("unknown operation `{text}`; is `{known}` meant?"),
        None => format!("unknown operation `{text}`; this seems not to be a dbench load file"),
    }
}

/// Splits a line at blanks, which double quotes protect, and turns `\` into `/`.
fn tokens(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut tokens = Vec::new();
    let mut token: Option<Vec<u8>> = None;
    let mut quoted = false;
    for byte in line {
        match byte {
            b'"' => {
                quoted = !quoted;
                token.get_or_insert_default();
            }
            b' ' | b'\t' if !quoted => tokens.extend(token.take()),
            b'\\' => token.get_or_insert_default().push(b'/'),
            byte => token.get_or_insert_default().push(*byte),
        }
    }
    if quoted {
        return Err("a quote is opened and not closed".to_owned());
    }
    tokens.extend(token.take());
    if tokens.first().is_some_and(Vec::is_empty) {
        return Err("the line begins with an empty word".to_owned());
    }
    Ok(tokens)
}

/// A piece of the input for a message: short, printable, in quotes.
fn excerpt(text: &[u8]) -> String {
    format!("`{}`", excerpt_bare(text))
}

fn excerpt_bare(text: &[u8]) -> String {
    const LENGTH_MAX: usize = 40;
    let shown = &text[..text.len().min(LENGTH_MAX)];
    let mut printable: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if text.len() > LENGTH_MAX {
        printable.push_str("...");
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "\
# a comment
Mkdir \"\\clients\" NT_STATUS_OK
NTCreateX \"\\clients\\client1\\a b.doc\" 0x40 0x2 9938 NT_STATUS_OK
0.25 WriteX 9938 65534 1 1 NT_STATUS_OK

NTCreateX \"\\clients\\client1\\other\" 0x40 0x1 9939 NT_STATUS_OBJECT_NAME_NOT_FOUND
FIND_FIRST \"\\clients\\client1\\FILLER.*\" 260 1366 0 NT_STATUS_NO_SUCH_FILE
LockX 9938 4294967295 1 0x00000000
Close 9938 NT_STATUS_OK
";

    #[test]
    fn every_part_of_a_line_is_read() {
        let load = LoadFile::parse(SAMPLE.as_bytes()).unwrap();
        assert_eq!(load.operations.len(), 7);
        assert_eq!(load.paths[1], b"/clients/client1/a b.doc");
        assert_eq!(load.open_files_max, 1);
        assert_eq!(load.pass_bytes(), 1);
        let write = load.operations[2];
        assert_eq!(write.line, 4);
        assert_eq!(write.due_ns, Some(250_000_000));
        assert_eq!(
            write.action,
            Action::Write { slot: 0, offset_bytes: 65534, size_bytes: 1, moved_bytes: 1 }
        );
        assert!(!load.operations[3].succeeds);
        assert_eq!(
            load.operations[5].action,
            Action::Lock { slot: 0, offset_bytes: 4_294_967_295, size_bytes: 1 }
        );
        assert!(load.operations[5].succeeds);
    }

    fn fault(text: &str) -> (usize, String) {
        let error = LoadFile::parse(text.as_bytes()).unwrap_err();
        (error.line, error.reason)
    }

    #[test]
    fn faults_name_the_line_and_the_reason() {
        for (text, line, reason) in [
            ("", 1, "no operation"),
            ("# only\n", 1, "no operation"),
            ("Close 7 NT_STATUS_OK\n", 1, "handle 7 is not open"),
            ("Mkdir \"\\a\" NT_STATUS_OK\nMkdir \"\\a\" NT_ST", 2, "truncated"),
            ("Mkdir \"\\a\" NT_ST\n", 1, "ends with `NT_ST`"),
            ("Mkdir \"\\a NT_STATUS_OK\n", 1, "not closed"),
            ("Mkdir \"\\a\\..\\..\\b\" NT_STATUS_OK\n", 1, "leads out"),
            ("Mkdir a NT_STATUS_OK\n", 1, "begins with \\"),
            ("Mkdri \"\\a\" NT_STATUS_OK\n", 1, "is `Mkdir` meant?"),
            ("[global]\n", 1, "no operands and no status"),
            ("bs=4k rw=read NT_STATUS_OK\n", 1, "not to be a dbench"),
            ("SMBopen 1 2\n", 1, "dbench 1"),
            ("LOOP 5\n", 1, "dbench 5"),
            ("Flush 1 2 NT_STATUS_OK\n", 1, "takes 1 operand(s)"),
            ("1.5\n", 1, "time without"),
            ("\u{1f}\u{8b}\n", 1, "control character"),
            (
                "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\n",
                1,
                "1 open handle(s), the first of them 5 from line 1",
            ),
            (
                "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nWriteX 5 0 9999999999 1 NT_STATUS_OK\n",
                2,
                "number of 32 bits",
            ),
            (
                "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nReadX 5 0 10 11 NT_STATUS_OK\n",
                2,
                "11 bytes are returned of 10",
            ),
            (
                "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nReadX 5 +child 10 10 NT_STATUS_OK\n",
                2,
                "`+child`",
            ),
        ] {
            let (found_line, found_reason) = fault(text);
            assert_eq!(found_line, line, "{text}");
            assert!(
                found_reason.contains(reason),
                "{text:?}: {found_reason:?} does not say {reason:?}"
            );
        }
    }

    #[test]
    fn slots_are_taken_again_as_dbench_takes_them() {
        let text = "\
NTCreateX \"\\a\" 0 1 1 NT_STATUS_OK
NTCreateX \"\\b\" 0 1 2 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX \"\\c\" 0 1 3 NT_STATUS_OK
Close 3 NT_STATUS_OK
Close 2 NT_STATUS_OK
";
        let load = LoadFile::parse(text.as_bytes()).unwrap();
        let Action::CreateX { slot, .. } = load.operations[3].action else {
            panic!("line 4 is an NTCreateX");
        };
        assert_eq!(slot, 0);
    }

    /// The real file, where its package is installed: its line counts are facts of the format.
    #[test]
    fn the_packaged_load_file_is_read_whole() {
        let Ok(text) = std::fs::read("/usr/share/dbench/client.txt") else {
            eprintln!("the package dbench is not installed; nothing to read");
            return;
        };
        let load = LoadFile::parse(&text).unwrap();
        let lines = text.split(|byte| *byte == b'\n').count() - 1;
        assert_eq!(load.operations.len(), lines);
        for cut in [text.len() / 3, text.len() / 2, text.len() - 1] {
            assert!(LoadFile::parse(&text[..cut]).is_err(), "cut at byte {cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = LoadFile::parse(&bytes);
        }

        #[test]
        fn no_damage_to_a_good_file_makes_it_panic(
            place in 0..SAMPLE.len(), byte in any::<u8>(), cut in 0..SAMPLE.len(),
        ) {
            let mut damaged = SAMPLE.as_bytes().to_owned();
            damaged[place] = byte;
            let _ = LoadFile::parse(&damaged);
            let _ = LoadFile::parse(&damaged[..cut]);
        }
    }
}
