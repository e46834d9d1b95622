//! One number for a tree: equal when paths, types, permissions, sizes and contents are.
//!
//! Reads a directory and nothing else. Owners and times are left out: they depend on who
//! unpacks and when.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// What is in a tree, in one number and some figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeHash {
    /// XXH3 with 128 bits, in hexadecimal.
    pub xxh3_128: String,
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    /// Everything else: devices, pipes, sockets.
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl fmt::Display for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} files, {} directories, {} links, {} bytes)",
            self.xxh3_128, self.files, self.directories, self.links, self.bytes
        )
    }
}

/// Everything below a directory on its file system, links not followed, in the order in which the file
/// system gives it; a directory comes before its contents. An error has the path.
pub(crate) fn below(directory: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let device = fs::metadata(directory).map_err(|error| with_path(error, directory))?.dev();
    let mut found = Vec::new();
    let mut queue = vec![directory.to_owned()];
    while let Some(place) = queue.pop() {
        let of_place = |error| with_path(error, &place);
        for entry in fs::read_dir(&place).map_err(of_place)? {
            let entry = entry.map_err(of_place)?;
            let path = entry.path();
            let facts = entry.metadata().map_err(|error| with_path(error, &path))?;
            if facts.is_dir() && facts.dev() == device {
                queue.push(path.clone());
            }
            found.push((path, facts));
        }
    }
    Ok(found)
}

/// Hashes everything below a directory, in the byte order of the paths; other file systems that are
/// mounted there are left out.
///
/// Every variable part is preceded by its length, so that no two trees read the same.
///
/// Errors: what reading reports, with the path; `Interrupted` when `stop` is raised.
pub fn hash_tree(directory: &Path, stop: &AtomicBool) -> io::Result<TreeHash> {
    let mut entries = below(directory)?;
    entries.sort_by(|(one, _), (other, _)| {
        one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes())
    });
    let mut hasher =
        Hasher { state: Xxh3::new(), buffer: vec![0; 1 << 17], hash: TreeHash::default() };
    for (path, facts) in &entries {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        hasher.entry(directory, path, facts).map_err(|error| with_path(error, path))?;
    }
    hasher.hash.xxh3_128 = format!("{:032x}", hasher.state.digest128());
    Ok(hasher.hash)
}

fn with_path(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

struct Hasher {
    state: Xxh3,
    buffer: Vec<u8>,
    hash: TreeHash,
}

impl Hasher {
    fn entry(&mut self, root: &Path, path: &Path, facts: &Metadata) -> io::Result<()> {
        let name = path.strip_prefix(root).unwrap_or(path).as_os_str().as_bytes();
        let kind = facts.file_type();
        self.field(name);
        if kind.is_dir() {
            self.hash.directories += 1;
            self.field(b"directory");
            self.number(u64::from(facts.mode() & 0o7777));
        } else if kind.is_symlink() {
            self.hash.links += 1;
            self.field(b"link");
            // Linux gives every link the same permissions; others need not.
            self.field(fs::read_link(path)?.as_os_str().as_bytes());
        } else if kind.is_file() {
            self.hash.files += 1;
            self.hash.bytes += facts.len();
            self.field(b"file");
            self.number(u64::from(facts.mode() & 0o7777));
            self.number(facts.len());
            self.contents(path, facts.len())?;
        } else {
            self.hash.others += 1;
            self.field(b"other");
            self.number(u64::from(facts.mode()));
            self.number(facts.rdev());
        }
        Ok(())
    }

    fn contents(&mut self, path: &Path, size_bytes: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        let mut read_bytes = 0;
        loop {
            let count = file.read(&mut self.buffer)?;
            if count == 0 {
                break;
            }
            self.state.update(&self.buffer[..count]);
            read_bytes += count as u64;
        }
        if read_bytes == size_bytes {
            return Ok(());
        }
        Err(io::Error::other(format!("{read_bytes} bytes were read of {size_bytes}")))
    }

    fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.state.update(bytes);
    }

    fn number(&mut self, number: u64) {
        self.state.update(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("sub")).unwrap();
        fs::write(tree.path().join("sub/file"), b"contents").unwrap();
        fs::write(tree.path().join("top"), b"").unwrap();
        symlink("sub/file", tree.path().join("link")).unwrap();
        tree
    }

    fn hash(tree: &tempfile::TempDir) -> TreeHash {
        hash_tree(tree.path(), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn equal_trees_in_different_places_have_equal_hashes() {
        let (one, other) = (tree(), tree());
        // Owners and times may differ.
        fs::File::open(one.path().join("top"))
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        assert_eq!(hash(&one), hash(&other));
        let found = hash(&one);
        assert_eq!((found.files, found.directories, found.links, found.bytes), (2, 1, 1, 8));
    }

    #[test]
    fn every_difference_shows() {
        let base = hash(&tree());
        type Change = fn(&Path);
        let changes: [(&str, Change); 8] = [
            ("contents", |root| fs::write(root.join("sub/file"), b"Contents").unwrap()),
            ("size", |root| fs::write(root.join("sub/file"), b"contents!").unwrap()),
            ("name", |root| fs::rename(root.join("top"), root.join("tip")).unwrap()),
            ("place", |root| fs::rename(root.join("top"), root.join("sub/top")).unwrap()),
            ("missing", |root| fs::remove_file(root.join("top")).unwrap()),
            ("mode", |root| {
                fs::set_permissions(root.join("top"), fs::Permissions::from_mode(0o600)).unwrap();
            }),
            ("kind", |root| {
                fs::remove_file(root.join("top")).unwrap();
                fs::create_dir(root.join("top")).unwrap();
            }),
            ("link", |root| {
                fs::remove_file(root.join("link")).unwrap();
                symlink("sub/other", root.join("link")).unwrap();
            }),
        ];
        for (what, change) in changes {
            let changed = tree();
            change(changed.path());
            assert_ne!(hash(&changed).xxh3_128, base.xxh3_128, "{what}");
        }
    }

    /// Without the size before the contents, a file could hold what reads like the next entry.
    #[test]
    fn contents_cannot_pass_for_an_entry() {
        let with_files = |files: &[(&str, &[u8])]| {
            let tree = tempfile::tempdir().unwrap();
            for (name, contents) in files {
                let path = tree.path().join(name);
                fs::write(&path, contents).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            }
            hash(&tree).xxh3_128
        };
        let mut entry = Vec::new();
        for field in [&b"b"[..], b"file"] {
            entry.extend_from_slice(&(field.len() as u64).to_le_bytes());
            entry.extend_from_slice(field);
        }
        entry.extend_from_slice(&0o644_u64.to_le_bytes());
        entry.push(b'x');
        assert_ne!(with_files(&[("a", b""), ("b", b"x")]), with_files(&[("a", &entry)]));
    }

    #[test]
    fn a_raised_stop_ends_it() {
        let error = hash_tree(tree().path(), &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
