//! How the files below a directory lie on their device, as FIEMAP says.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use vocabulary::layout::{Layout, WHOLE};

use crate::extents::extents;

/// Files that are looked at, at most.
const FILES_MAX: u64 = 2_000_000;
/// Directories within each other that are looked at: each is a descriptor.
const DEPTH_MAX: usize = 128;
/// Pieces that a map has at most.
const MAP_PIECES_MAX: usize = 1200;

/// Measures the files below `root`, but for those below `except`, on a device of this size.
///
/// Errors: what the system said; a file system without FIEMAP says `Unsupported`.
pub fn measure(root: &Path, except: Option<&Path>, device_bytes: u64) -> io::Result<Layout> {
    let directory = File::open(root)?;
    let device = directory.metadata()?.dev();
    let mut walk = Walk { device, except, ..Walk::default() };
    walk.below(&directory.into(), root, 0)?;
    let Walk { mut layout, distances, inode_steps, places, .. } = walk;
    (layout.jump_bytes, layout.inode_step) = (median(distances), median(inode_steps));
    let step = places.len().div_ceil(MAP_PIECES_MAX).max(1);
    let part = |value: u64, whole: u64| {
        (value.saturating_mul(u64::from(WHOLE)) / whole.max(1)).min(u64::from(WHOLE)) as u16
    };
    let sampled = places.iter().step_by(step);
    layout.map =
        sampled.map(|(order, at)| (part(*order, layout.files), part(*at, device_bytes))).collect();
    Ok(layout)
}

fn median(mut all: Vec<u64>) -> Option<u64> {
    let middle = all.len() / 2;
    (!all.is_empty()).then(|| *all.select_nth_unstable(middle).1)
}

#[derive(Default)]
struct Walk<'a> {
    device: u64,
    except: Option<&'a Path>,
    layout: Layout,
    /// Where the block that was read last ends.
    last: Option<u64>,
    distances: Vec<u64>,
    /// Of the file that was read last.
    last_inode: Option<u64>,
    inode_steps: Vec<u64>,
    places: Vec<(u64, u64)>,
}

impl Walk<'_> {
    /// Looks at what is in a directory, by descriptors: whoever owns the tree may change it meanwhile, and nothing that
    /// they put there (a link, a FIFO) is followed or waited for. `path` is what the directory is called.
    fn below(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        for name in names {
            let path = path.join(&name);
            if self.except == Some(&path) || self.layout.files >= FILES_MAX {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let kind = |opened: OwnedFd| File::from(opened).metadata();
            let found = match openat(directory, &name, look, Mode::empty()) {
                Ok(opened) => kind(opened)?,
                // It is gone meanwhile.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            if found.dev() != self.device || !(found.is_dir() || found.is_file()) {
                continue;
            }
            // A device or a FIFO that has its name by now is opened without waiting, and not looked at.
            let opened = match openat(directory, &name, flags, Mode::empty()) {
                Ok(opened) => opened,
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => continue,
                Err(error) => return Err(error.into()),
            };
            let file = File::from(opened);
            let facts = file.metadata()?;
            if (facts.dev(), facts.ino()) != (found.dev(), found.ino()) {
                continue;
            }
            if facts.is_file() && facts.blocks() > 0 {
                self.file(&file, facts.ino())?;
            } else if facts.is_dir() && depth < DEPTH_MAX {
                self.below(&file.into(), &path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &File, inode: u64) -> io::Result<()> {
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
            self.inode_steps.extend(self.last_inode.map(|last| last.abs_diff(inode)));
            self.last_inode = Some(inode);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_no_file_is_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join("a/link")).unwrap();
        let fifo = home.path().join("a/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        let mut deep = home.path().join("deep");
        (0..DEPTH_MAX + 20).for_each(|_| deep.push("d"));
        fs::create_dir_all(&deep).unwrap();
        match measure(home.path(), None, 1 << 30) {
            Ok(layout) => assert_eq!(layout.files, 0),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
    }

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
        let inode = |name| fs::metadata(home.path().join(name)).unwrap().ino();
        let mut steps = vec![inode("a/one").abs_diff(inode("a/two"))];
        steps.push(inode("a/two").abs_diff(inode("left out/three")));
        // A file within the metadata does not count.
        steps.push(inode("a/one").abs_diff(inode("left out/three")));
        assert!(steps.contains(&all.inode_step.unwrap()), "{all:?} {steps:?}");
    }
}
