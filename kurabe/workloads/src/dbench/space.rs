//! How many bytes a load file keeps on the file system at most, told from the file alone.
//!
//! Pure: follows opens, writes, renames and deletions of one client, as sizes only. An upper
//! bound: holes count as if they were written, and nothing is known of a file system's own
//! needs.

use std::collections::HashMap;
use std::path::Path;

use super::client::{DISPOSITION_CREATE, DISPOSITION_OVERWRITE, DISPOSITION_OVERWRITE_IF};
use super::loadfile::{LoadFile, OperationKind, PathIndex};

/// A file's number; it keeps it when it is renamed.
type FileIndex = usize;

#[derive(Default)]
struct Files {
    sizes: Vec<u64>,
    by_path: HashMap<PathIndex, FileIndex>,
    by_slot: HashMap<u8, FileIndex>,
    live_bytes: u64,
    peak_bytes: u64,
}

impl LoadFile {
    /// Refuses more clients than the free space of the directory has room for.
    pub fn check_space(&self, directory: &Path, clients: u32) -> Result<(), String> {
        let needer = format!("the files of {clients} clients take");
        let needed_bytes = self.peak_bytes().saturating_mul(clients.into());
        measure::space::check(directory, &needer, needed_bytes, "take fewer clients")
    }

    /// The most bytes that one client's files have at one time in a pass.
    pub fn peak_bytes(&self) -> u64 {
        let mut files = Files::default();
        for operation in self.operations.iter().filter(|operation| operation.succeeds) {
            let path = operation.path;
            match operation.kind {
                OperationKind::NTCreateX => files.open(path, operation.disposition, operation.slot),
                OperationKind::WriteX => {
                    let end_bytes = u64::from(operation.offset_bytes) + operation.bytes();
                    files.grow(operation.slot, end_bytes);
                }
                OperationKind::Rename => {
                    files.remove(operation.to);
                    if let Some(file) = files.by_path.remove(&path) {
                        files.by_path.insert(operation.to, file);
                    }
                }
                OperationKind::Unlink => files.remove(path),
                OperationKind::Deltree => {
                    let mut below = self.paths[path as usize].clone();
                    below.push(b'/');
                    for (index, other) in self.paths.iter().enumerate() {
                        if other.starts_with(&below) {
                            files.remove(index as PathIndex);
                        }
                    }
                }
                _ => {}
            }
        }
        files.peak_bytes
    }
}

impl Files {
    fn open(&mut self, path: PathIndex, disposition: u32, slot: u8) {
        let truncates = matches!(disposition, DISPOSITION_OVERWRITE | DISPOSITION_OVERWRITE_IF);
        let creates = truncates || disposition == DISPOSITION_CREATE;
        if !self.by_path.contains_key(&path) && creates {
            self.by_path.insert(path, self.sizes.len());
            self.sizes.push(0);
        }
        match self.by_path.get(&path) {
            Some(file) => {
                if truncates {
                    self.live_bytes -= self.sizes[*file];
                    self.sizes[*file] = 0;
                }
                self.by_slot.insert(slot, *file);
            }
            // A directory, or a file of which nothing was written here.
            None => {
                self.by_slot.remove(&slot);
            }
        }
    }

    fn grow(&mut self, slot: u8, end_bytes: u64) {
        let Some(file) = self.by_slot.get(&slot) else {
            return;
        };
        let size = &mut self.sizes[*file];
        let growth = end_bytes.saturating_sub(*size);
        *size += growth;
        self.live_bytes += growth;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    /// A file that is still open keeps its space in truth; load files close before they delete.
    fn remove(&mut self, path: PathIndex) {
        if let Some(file) = self.by_path.remove(&path) {
            self.live_bytes -= self.sizes[file];
            self.sizes[file] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(text: &str) -> u64 {
        LoadFile::parse(text.as_bytes()).unwrap().peak_bytes()
    }

    #[test]
    fn the_most_that_lives_at_one_time_is_found() {
        let text = r#"
NTCreateX "\c\a" 0x40 0x2 1 NT_STATUS_OK
WriteX 1 900 100 100 NT_STATUS_OK
WriteX 1 0 500 500 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\c\b" 0x40 0x2 2 NT_STATUS_OK
WriteX 2 0 50 50 NT_STATUS_OK
Close 2 NT_STATUS_OK
Rename "\c\b" "\c\a" NT_STATUS_OK
NTCreateX "\c\a" 0x40 0x1 3 NT_STATUS_OK
WriteX 3 50 200 200 NT_STATUS_OK
Close 3 NT_STATUS_OK
NTCreateX "\c\a" 0x40 0x5 3 NT_STATUS_OK
WriteX 3 0 1010 1010 NT_STATUS_OK
Close 3 NT_STATUS_OK
Deltree "\c" NT_STATUS_OK
NTCreateX "\c\d" 0x40 0x2 4 NT_STATUS_OK
WriteX 4 0 1049 1049 NT_STATUS_OK
Close 4 NT_STATUS_OK
Unlink "\c\d" 0x6 NT_STATUS_OK
"#;
        assert_eq!(peak(text), 1050);
        assert_eq!(peak("Mkdir \"\\a\" NT_STATUS_OK\n"), 0);
    }

    #[test]
    fn what_the_packaged_file_keeps_is_told() {
        let Ok(text) = std::fs::read(crate::dbench::PACKAGED_LOAD_FILE) else {
            eprintln!("the package dbench is not installed; nothing to read");
            return;
        };
        let load = LoadFile::parse(&text).unwrap();
        let peak = load.peak_bytes();
        let pass: u64 = load.operations.iter().map(|operation| operation.bytes()).sum();
        assert!(peak > 1 << 20 && peak < pass, "{peak} bytes");
    }
}
