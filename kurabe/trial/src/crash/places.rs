//! What lies where on a device: the pieces of the files that are there at the end of a workload, so that a lost write can be
//! named.

use std::fs;
use std::path::Path;

use crash::SECTOR_BYTES;

use serde::{Deserialize, Serialize};
use workloads::extents::extents;

use super::cause::open_file;
use crate::filesystem::Owner;

/// Files that are looked at. What lies in others is named as the file system's own.
const FILES_MAX: usize = 10_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Piece {
    physical: u64,
    length: u64,
    logical: u64,
    /// What it is of: a path, or `the directory PATH`.
    owner: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FileMap {
    pieces: Vec<Piece>,
}

impl FileMap {
    /// Looks at every file below a directory. A file system that does not say where its files lie, or counts in
    /// addresses of its own, has none.
    pub fn of(directory: &Path) -> FileMap {
        let mut pieces = Vec::new();
        let mut add = |path: &Path, prefix: &str| {
            let Some(Ok(found)) = open_file(path).map(|file| extents(&file)) else { return };
            let below = path.strip_prefix(directory).unwrap_or(path);
            let owner = format!("{prefix}{}", below.display());
            pieces.extend(found.into_iter().map(|extent| Piece {
                physical: extent.physical,
                length: extent.length,
                logical: extent.logical,
                owner: owner.clone(),
            }));
        };
        let mut open = vec![directory.to_path_buf()];
        let mut files = 0;
        while let Some(next) = open.pop() {
            add(&next, "the directory /");
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    open.push(entry.path());
                }
                files += 1;
                if !kind.is_file() || files > FILES_MAX {
                    continue;
                }
                add(&entry.path(), "");
            }
        }
        pieces.sort_by_key(|piece| piece.physical);
        FileMap { pieces }
    }

    /// The sector where a byte of a file lies, as far as the file system says.
    pub fn sector_of(&self, file: &Path, at: u64) -> Option<u64> {
        let owner = file.to_str()?;
        let has = |piece: &&Piece| {
            piece.owner == owner && (piece.logical..piece.logical + piece.length).contains(&at)
        };
        let piece = self.pieces.iter().find(has)?;
        Some((piece.physical + at - piece.logical) / SECTOR_BYTES)
    }

    /// What some sectors of the device hold, of which the file system has said whose they are.
    pub fn name(&self, sector: u64, sectors: u64, owner: Owner) -> String {
        let (place, length) = (sector * SECTOR_BYTES, sectors * SECTOR_BYTES);
        let start = match owner {
            Owner::Data(address) => address,
            Owner::Own(what) => return format!("{length} bytes of {what}, at byte {place}"),
        };
        let end = start + length;
        let after = self.pieces.partition_point(|piece| piece.physical <= start);
        let piece = after.checked_sub(1).map(|at| &self.pieces[at]);
        match piece.filter(|piece| start < piece.physical + piece.length) {
            Some(piece) => {
                let from = piece.logical + start - piece.physical;
                format!("bytes {from} to {} of {}", from + end - start, piece.owner)
            }
            None => format!("{length} bytes of the file system's own, at byte {place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_and_directories_have_their_names() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let below = home.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("file"), vec![7; 9000]).unwrap();
        File::open(below.join("file")).unwrap().sync_all().unwrap();
        let places = FileMap::of(home.path());
        let has = |owner: &str| {
            let piece = places.pieces.iter().find(|piece| piece.owner == owner);
            piece.map(|piece| {
                places.name(piece.physical / SECTOR_BYTES, 1, Owner::Data(piece.physical))
            })
        };
        let Some(file) = has("below/file") else {
            return eprintln!("SKIPPED: /var/tmp does not say where files lie");
        };
        assert_eq!(file, "bytes 0 to 512 of below/file");
        // Not every file system tells that of its directories.
        if let Some(directory) = has("the directory /below") {
            assert_eq!(directory, "bytes 0 to 512 of the directory /below");
        }
    }
}
