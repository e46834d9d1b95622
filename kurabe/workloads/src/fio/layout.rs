//! Writes data files (or a device) full, so that a measured run meets written extents only.
//!
//! A file that was only truncated or preallocated has unwritten extents: the first write to
//! each converts it, and on several file systems runs synchronously. So every byte is written
//! with plain writes, in place, and synced. Knows paths and lengths; nothing of jobs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::tree::hash::below;

/// The size of a write.
const CHUNK_BYTES: usize = 1 << 20;
/// Every sector gets a number of its own, so that nothing below can store it once for many.
const SECTOR_BYTES: usize = 512;

/// What was written before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FioLayout {
    /// Files, or 1 for a device.
    pub files: u64,
    /// Bytes overwritten.
    pub bytes: u64,
    /// Bytes that the file system has allocated for the files; it may be less than `bytes`
    /// only where the file system compresses or the files have shrunk.
    pub allocated_bytes: u64,
    /// How long fio took to lay the files out.
    pub layout_ns: u64,
    /// How long the overwriting took, with its syncs.
    pub overwrite_ns: u64,
}

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExistingFile {
    pub path: PathBuf,
    inode: u64,
    pub size_bytes: u64,
    modified_ns: i128,
}

/// All regular files below a directory on the same file system, links not followed, in order
/// of their paths.
pub(super) fn files_below(directory: &Path) -> io::Result<Vec<ExistingFile>> {
    let files = below(directory)?.into_iter().filter(|(_, facts)| facts.is_file());
    let as_found = |(path, facts): (PathBuf, fs::Metadata)| ExistingFile {
        path,
        inode: facts.ino(),
        size_bytes: facts.len(),
        modified_ns: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
    };
    let mut found: Vec<ExistingFile> = files.map(as_found).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Overwrites each file that is in `after` and was not, or not so, in `before`.
pub(super) fn overwrite_new(
    before: &[ExistingFile],
    after: &[ExistingFile],
    stop: &AtomicBool,
) -> io::Result<FioLayout> {
    let mut layout = FioLayout::default();
    let mut writer = Writer::new();
    for file in after.iter().filter(|file| !before.contains(file)) {
        let handle = OpenOptions::new().write(true).open(&file.path)?;
        writer.overwrite(&handle, file.size_bytes, stop)?;
        layout.files += 1;
        layout.bytes += file.size_bytes;
        layout.allocated_bytes += handle.metadata()?.blocks() * 512;
    }
    Ok(layout)
}

/// Overwrites the first bytes of a device.
pub(super) fn overwrite_device(
    device: &Path,
    size_bytes: u64,
    stop: &AtomicBool,
) -> io::Result<FioLayout> {
    let handle = OpenOptions::new().write(true).open(device)?;
    Writer::new().overwrite(&handle, size_bytes, stop)?;
    Ok(FioLayout {
        files: 1,
        bytes: size_bytes,
        allocated_bytes: size_bytes,
        ..FioLayout::default()
    })
}

/// Drops what the page cache holds of a device. fio does so by a call that needs root, which it has
/// not where it is kept in its contender.
pub(super) fn cool_device(device: &Path) -> io::Result<()> {
    Ok(rustix::fs::fadvise(File::open(device)?, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// The size of a device, or of a file that stands for one.
pub(super) fn device_bytes(device: &Path) -> io::Result<u64> {
    use std::io::Seek as _;
    File::open(device)?.seek(io::SeekFrom::End(0))
}

/// Where a device is mounted, if it is.
pub(super) fn mount_of(device: &Path) -> io::Result<Option<PathBuf>> {
    let facts = fs::metadata(device)?;
    if !facts.file_type().is_block_device() {
        return Ok(None);
    }
    let number = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    let found = trust::mounts::mounts()?.into_iter().find(|mount| mount.device == number);
    Ok(found.map(|mount| mount.point))
}

struct Writer {
    buffer: Vec<u8>,
    sector: u64,
}

impl Writer {
    fn new() -> Self {
        let mut buffer = vec![0; CHUNK_BYTES];
        ChaCha8Rng::seed_from_u64(0x6b75_7261_6265).fill(&mut buffer[..]);
        Self { buffer, sector: 0 }
    }

    fn overwrite(&mut self, file: &File, size_bytes: u64, stop: &AtomicBool) -> io::Result<()> {
        let mut offset = 0;
        while offset < size_bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped"));
            }
            for sector in self.buffer.chunks_mut(SECTOR_BYTES) {
                sector[..8].copy_from_slice(&self.sector.to_le_bytes());
                self.sector += 1;
            }
            let length = (size_bytes - offset).min(CHUNK_BYTES as u64);
            file.write_all_at(&self.buffer[..length as usize], offset)?;
            offset += length;
        }
        file.sync_all()?;
        // The run is to begin with a cold cache.
        let whole = std::num::NonZeroU64::new(size_bytes);
        let _ = rustix::fs::fadvise(file, 0, whole, rustix::fs::Advice::DontNeed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_are_overwritten_and_old_ones_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("old"), b"precious").unwrap();
        let before = files_below(directory.path()).unwrap();
        fs::create_dir(path("sub")).unwrap();
        let sparse = File::create(path("sub/new")).unwrap();
        let size = 3 * CHUNK_BYTES as u64 + 700;
        sparse.set_len(size).unwrap();
        let after = files_below(directory.path()).unwrap();
        let layout = overwrite_new(&before, &after, &AtomicBool::new(false)).unwrap();
        assert_eq!((layout.files, layout.bytes), (1, size));
        assert!(layout.allocated_bytes >= size, "{} allocated", layout.allocated_bytes);
        assert_eq!(fs::read(path("old")).unwrap(), b"precious");
        let written = fs::read(path("sub/new")).unwrap();
        assert_eq!(written.len() as u64, size);
        let mut sectors: Vec<&[u8]> = written.chunks(SECTOR_BYTES).collect();
        let count = sectors.len();
        sectors.sort_unstable();
        sectors.dedup();
        assert_eq!(sectors.len(), count, "two sectors are alike");
    }

    #[test]
    fn a_raised_stop_ends_the_overwriting() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x"), b"data").unwrap();
        let after = files_below(directory.path()).unwrap();
        let error = overwrite_new(&[], &after, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
