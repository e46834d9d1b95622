//! Writes a synthetic tree as a tar archive, and tells what is in an archive of any kind.
//!
//! Writes the ustar format (POSIX.1-1988), which every tar reads; inspecting is left to the
//! installed tar, which knows all formats and compressions.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::synthetic::{EntryKind, SyntheticTree, TreeEntry};
use crate::tool::{ToolError, WorkloadTool, run};

const RECORD_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveFacts {
    pub archive_bytes: u64,
    pub files: u64,
    /// Everything that is no file.
    pub others: u64,
    pub file_bytes: u64,
    /// What the files take in blocks of 4 KiB, and one such block for every other entry.
    pub block_bytes: u64,
}

impl ArchiveFacts {
    /// What a file system needs at least to hold the archive and its contents.
    pub fn needed_bytes(&self) -> u64 {
        self.archive_bytes.saturating_add(self.block_bytes)
    }

    fn add(&mut self, is_file: bool, size_bytes: u64) {
        const BLOCK_BYTES: u64 = 4096;
        if is_file {
            self.files += 1;
            self.file_bytes = self.file_bytes.saturating_add(size_bytes);
            let blocks = size_bytes.div_ceil(BLOCK_BYTES);
            self.block_bytes = self.block_bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
        } else {
            self.others += 1;
            self.block_bytes = self.block_bytes.saturating_add(BLOCK_BYTES);
        }
    }
}

/// Writes the tree as an archive. The same tree gives the same bytes.
pub fn write_archive(tree: &SyntheticTree, writer: &mut impl Write) -> io::Result<()> {
    for entry in tree.entries() {
        let (kind, size_bytes, target) = match &entry.kind {
            EntryKind::Directory => (b'5', 0, ""),
            EntryKind::File { size_bytes, .. } => (b'0', *size_bytes, ""),
            EntryKind::Link { target } => (b'2', 0, target.as_str()),
        };
        writer.write_all(&header(entry, kind, size_bytes, target)?)?;
        if let EntryKind::File { size_bytes, index } = entry.kind {
            let mut contents = tree.contents(index, size_bytes);
            contents.resize(contents.len().next_multiple_of(RECORD_BYTES), 0);
            writer.write_all(&contents)?;
        }
    }
    writer.write_all(&[0; 2 * RECORD_BYTES])
}

/// What is in the archive of a tree.
pub fn archive_facts(tree: &SyntheticTree) -> ArchiveFacts {
    let mut facts =
        ArchiveFacts { archive_bytes: 2 * RECORD_BYTES as u64, ..ArchiveFacts::default() };
    for entry in tree.entries() {
        let (is_file, size_bytes) = match entry.kind {
            EntryKind::File { size_bytes, .. } => (true, size_bytes),
            EntryKind::Directory | EntryKind::Link { .. } => (false, 0),
        };
        facts.add(is_file, size_bytes);
        facts.archive_bytes +=
            RECORD_BYTES as u64 + size_bytes.next_multiple_of(RECORD_BYTES as u64);
    }
    facts
}

/// A header of the ustar format.
fn header(
    entry: &TreeEntry,
    kind: u8,
    size_bytes: u64,
    target: &str,
) -> io::Result<[u8; RECORD_BYTES]> {
    let mut record = [0; RECORD_BYTES];
    let (prefix, name) = split_path(&entry.path).ok_or_else(|| too_long(&entry.path))?;
    if target.len() > 100 {
        return Err(too_long(target));
    }
    let mut put = |offset: usize, bytes: &[u8]| {
        record[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(0, name.as_bytes());
    put(100, format!("{:07o}\0", entry.mode).as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size_bytes:011o}\0").as_bytes());
    // 2000-01-01: a fixed time, so that the archive depends on the seed alone.
    put(136, format!("{:011o}\0", 946_684_800).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    put(345, prefix.as_bytes());
    let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
    record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(record)
}

fn too_long(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is too long for the ustar format"))
}

/// Splits a path at a slash into at most 155 and at most 100 bytes.
fn split_path(path: &str) -> Option<(&str, &str)> {
    if path.len() <= 100 {
        return Some(("", path));
    }
    let (at, _) = path.match_indices('/').find(|(at, _)| path.len() - at - 1 <= 100)?;
    (at <= 155).then(|| (&path[..at], &path[at + 1..]))
}

/// Lists an archive with the installed tar and adds up what is in it.
pub fn inspect(archive: &Path, stop: &AtomicBool) -> Result<ArchiveFacts, ToolError> {
    let mut command = WorkloadTool::Tar.command()?;
    command
        .args(["--list", "--verbose", "--numeric-owner", "--quoting-style=escape", "--file"])
        .arg(archive);
    let mut facts = ArchiveFacts {
        archive_bytes: std::fs::metadata(archive).map_or(0, |facts| facts.len()),
        ..ArchiveFacts::default()
    };
    for (is_file, size_bytes) in run(&mut command, stop)?.stdout.lines().filter_map(parse_line) {
        facts.add(is_file, size_bytes);
    }
    Ok(facts)
}

/// `-rw-r--r-- 0/0    1234 2000-01-01 00:00 name`; a hard link is listed with `h` and takes no
/// space.
fn parse_line(line: &str) -> Option<(bool, u64)> {
    let mut words = line.split_whitespace();
    let mode = words.next().filter(|mode| mode.len() >= 10)?;
    let size_bytes = words.nth(1)?;
    // 'C' is a contiguous file, which is unpacked as any other.
    let is_file = mode.starts_with(['-', 'C']);
    // Devices have their numbers in the place of the size.
    let size_bytes = if is_file { size_bytes.parse().ok()? } else { 0 };
    Some((is_file, size_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_tree_of_the_kernels_size_fits_the_format() {
        let tree = SyntheticTree::new(78_579, 11);
        for entry in tree.entries() {
            let target = match &entry.kind {
                EntryKind::Link { target } => target.as_str(),
                EntryKind::Directory | EntryKind::File { .. } => "",
            };
            header(entry, b'0', 0, target).unwrap();
        }
    }

    #[test]
    fn facts_are_told_before_the_archive_is_written() {
        let tree = SyntheticTree::new(300, 5);
        let mut written = Vec::new();
        write_archive(&tree, &mut written).unwrap();
        assert_eq!(archive_facts(&tree).archive_bytes, written.len() as u64);
    }

    #[test]
    fn long_paths_are_split_at_a_slash() {
        let directory = "d".repeat(60);
        let path = format!("{directory}/{directory}/{}", "f".repeat(60));
        let (prefix, name) = split_path(&path).unwrap();
        assert_eq!(format!("{prefix}/{name}"), path);
        assert!(prefix.len() <= 155 && name.len() <= 100);
        assert_eq!(split_path(&"x".repeat(101)), None);
        assert_eq!(split_path(&format!("{}/{}", "x".repeat(156), "y".repeat(90))), None);
    }

    #[test]
    fn lines_of_all_kinds_are_read() {
        assert_eq!(parse_line("-rw-r--r-- 0/0  1234 2000-01-01 00:00 a b"), Some((true, 1234)));
        assert_eq!(parse_line("Crw-r--r-- 0/0  1234 2000-01-01 00:00 a b"), Some((true, 1234)));
        assert_eq!(parse_line("drwxr-xr-x 0/0     0 2000-01-01 00:00 d/"), Some((false, 0)));
        assert_eq!(parse_line("crw-r--r-- 0/0   1,3 2000-01-01 00:00 null"), Some((false, 0)));
        assert_eq!(parse_line("hrw-r--r-- 0/0   9 2000-01-01 00:00 x link to y"), Some((false, 0)));
        assert_eq!(parse_line("tar: a warning"), None);
    }
}
