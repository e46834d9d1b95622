//! How the files below a directory lie on their device, as FIEMAP says.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use vocabulary::layout::{Layout, WHOLE};

use crate::extents::extents;

/// Files that are looked at, at most.
const FILES_MAX: u64 = 2_000_000;
/// Pieces that a map has at most.
const MAP_PIECES_MAX: usize = 1200;

/// Measures the files below `root`, but for those below `except`, on a device of this size.
///
/// # Errors
/// What the system said; a file system without FIEMAP says `Unsupported`.
pub fn measure(root: &Path, except: Option<&Path>, device_bytes: u64) -> io::Result<Layout> {
    let device = fs::metadata(root)?.dev();
    let mut walk = Walk { device, except, ..Walk::default() };
    walk.below(root)?;
    let Walk { mut layout, mut distances, places, .. } = walk;
    let middle = distances.len() / 2;
    layout.jump_bytes = (!distances.is_empty()).then(|| *distances.select_nth_unstable(middle).1);
    let step = places.len().div_ceil(MAP_PIECES_MAX).max(1);
    let part = |value: u64, whole: u64| {
        (value.saturating_mul(u64::from(WHOLE)) / whole.max(1)).min(u64::from(WHOLE)) as u16
    };
    let sampled = places.iter().step_by(step);
    layout.map =
        sampled.map(|(order, at)| (part(*order, layout.files), part(*at, device_bytes))).collect();
    Ok(layout)
}

#[derive(Default)]
struct Walk<'a> {
    device: u64,
    except: Option<&'a Path>,
    layout: Layout,
    /// Where the block that was read last ends.
    last: Option<u64>,
    distances: Vec<u64>,
    places: Vec<(u64, u64)>,
}

impl Walk<'_> {
    fn below(&mut self, directory: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            if self.except == Some(&path) || self.layout.files >= FILES_MAX {
                continue;
            }
            let found = entry.metadata()?;
            if found.is_dir() && found.dev() == self.device {
                self.below(&path)?;
            } else if found.is_file() && found.blocks() > 0 {
                self.file(&File::open(&path)?)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &File) -> io::Result<()> {
        let order = self.layout.files;
        let mut pieces = 0;
        let mut end = None;
        for extent in extents(file)? {
            // What has no place of its own lies within the metadata.
            if extent.physical == 0 || extent.length == 0 {
                continue;
            }
            self.layout.bytes += extent.length;
            if end != Some(extent.physical) {
                pieces += 1;
                self.places.push((order, extent.physical));
            }
            if let Some(last) = self.last.filter(|last| *last != extent.physical) {
                self.layout.jumps += 1;
                self.distances.push(last.abs_diff(extent.physical));
            }
            end = Some(extent.physical + extent.length);
            self.last = end;
        }
        if pieces > 0 {
            self.layout.files += 1;
            self.layout.pieces += pieces;
            self.layout.split_files += u64::from(pieces > 1);
            self.layout.pieces_max = self.layout.pieces_max.max(pieces);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_are_counted_with_their_pieces() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, bytes) in
            [("a/one", 300_000), ("a/two", 10), ("left out/three", 9000), ("empty", 0)]
        {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = File::create(path).unwrap();
            file.write_all(&vec![7; bytes]).unwrap();
            file.sync_all().unwrap();
        }
        let except = home.path().join("left out");
        let measured = match measure(home.path(), Some(&except), 1 << 40) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("SKIPPED: no FIEMAP on /var/tmp");
                return;
            }
            measured => measured.unwrap(),
        };
        assert!((1..=2).contains(&measured.files), "{measured:?}");
        assert!(measured.bytes >= 300_000 && measured.bytes < 400_000);
        assert!(measured.jumps < measured.pieces);
        assert!(measured.pieces >= measured.files && measured.map.len() as u64 == measured.pieces);
        let all = measure(home.path(), None, 1 << 40).unwrap();
        assert_eq!(all.files, measured.files + 1);
    }
}
