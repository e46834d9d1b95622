//! What lies where on a device: the pieces of the files that are there at the end of a load, so that a lost write can be
//! named.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crash::SECTOR_BYTES;

use loads::extents::extents;

/// Files that are looked at. What lies in others is named as the file system's own.
const FILES_MAX: usize = 10_000;

struct Piece {
    physical: u64,
    length: u64,
    logical: u64,
    file: PathBuf,
}

/// The pieces of all files.
#[derive(Default)]
pub struct Places {
    pieces: Vec<Piece>,
}

impl Places {
    /// Looks at every file below a directory. A file system that does not say where its files lie, or counts in
    /// addresses of its own, has none.
    pub fn of(directory: &Path) -> Places {
        let mut pieces = Vec::new();
        let mut open = vec![directory.to_path_buf()];
        let mut files = 0;
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    open.push(entry.path());
                }
                files += 1;
                if !kind.is_file() || files > FILES_MAX {
                    continue;
                }
                let Ok(found) = File::open(entry.path()).and_then(|file| extents(&file)) else {
                    continue;
                };
                let path = entry.path();
                let file = path.strip_prefix(directory).unwrap_or(&path).to_path_buf();
                pieces.extend(found.into_iter().map(|extent| Piece {
                    physical: extent.physical,
                    length: extent.length,
                    logical: extent.logical,
                    file: file.clone(),
                }));
            }
        }
        pieces.sort_by_key(|piece| piece.physical);
        Places { pieces }
    }

    /// What some sectors of the device hold.
    pub fn name(&self, sector: u64, sectors: u64) -> String {
        let (start, end) = (sector * SECTOR_BYTES, (sector + sectors) * SECTOR_BYTES);
        let after = self.pieces.partition_point(|piece| piece.physical <= start);
        let piece = after.checked_sub(1).map(|at| &self.pieces[at]);
        match piece.filter(|piece| start < piece.physical + piece.length) {
            Some(piece) => {
                let from = piece.logical + start - piece.physical;
                format!("bytes {from} to {} of {}", from + end - start, piece.file.display())
            }
            None => format!(
                "{} bytes of the file system's own, at byte {start} of the device",
                end - start
            ),
        }
    }
}
