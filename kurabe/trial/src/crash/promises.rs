//! Small programs, each of which relies on one thing that a file system may promise, and what is to be there after
//! a power cut if it does.
//!
//! A program goes in rounds. After each it acknowledges by a line that the round is done; the check is told how many
//! rounds that were. The round after them may be there in part.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;

use crate::sys::pages;

const ROUNDS: u64 = 24;
/// A small piece of a file.
const PIECE_BYTES: usize = 4096;
/// A piece that no device writes at once.
const LARGE_BYTES: usize = 64 << 10;
/// The bytes of a file of which only its names matter.
const FILE: &[u8] = b"file";
/// Which of its three names such a file has, one step after the other: link, unlink, rename.
const NAMES: [[bool; 3]; 4] =
    [[true, false, false], [true, true, false], [false, true, false], [false, false, true]];

/// A program and what it relies on.
pub struct Promise {
    pub name: &'static str,
    pub text: &'static str,
    /// Whether POSIX promises it (fsync(2) of a file does not concern its name).
    pub posix: bool,
    setup: fn(&Path) -> io::Result<()>,
    round: fn(&Path, u64) -> io::Result<()>,
    /// Given the directory and the rounds that were acknowledged.
    check: fn(&Path, u64) -> Result<(), String>,
}

/// All of them, in the order of the table.
pub static PROMISES: [Promise; 17] = [
    Promise {
        name: "overwrite-sector",
        text: "a sector overwritten, fdatasync: it is there",
        posix: true,
        setup: |directory| write_new(directory, "data", &pattern(0, LARGE_BYTES)),
        round: |directory, round| {
            let file = existing(directory, "data")?;
            file.write_all_at(&pattern(round + 1, 512), 0)?;
            file.sync_data()
        },
        check: |directory, rounds| is_version(directory, "data", 512, rounds),
    },
    Promise {
        name: "overwrite-many",
        text: "64 KiB overwritten, fdatasync: all of it or nothing",
        posix: false,
        setup: |directory| write_new(directory, "data", &pattern(0, LARGE_BYTES)),
        round: |directory, round| {
            let file = existing(directory, "data")?;
            file.write_all_at(&pattern(round + 1, LARGE_BYTES), 0)?;
            file.sync_data()
        },
        check: |directory, rounds| is_version(directory, "data", LARGE_BYTES, rounds),
    },
    Promise {
        name: "append",
        text: "append, fdatasync: bytes and size are there",
        posix: true,
        setup: |directory| write_new(directory, "log", &[]),
        round: |directory, round| {
            let mut file = OpenOptions::new().append(true).open(directory.join("log"))?;
            file.write_all(&pattern(round, 3000))?;
            file.sync_data()
        },
        check: |directory, rounds| is_log(directory, 3000, rounds),
    },
    Promise {
        name: "append-o-dsync",
        text: "append by O_DSYNC: bytes and size are there",
        posix: true,
        setup: |directory| write_new(directory, "log", &[]),
        round: |directory, round| {
            let mut options = OpenOptions::new();
            options.append(true).custom_flags(libc::O_DSYNC);
            options.open(directory.join("log"))?.write_all(&pattern(round, 3000))
        },
        check: |directory, rounds| is_log(directory, 3000, rounds),
    },
    Promise {
        name: "append-unsynced",
        text: "append without sync: what is there is what was written",
        posix: false,
        setup: |directory| write_new(directory, "log", &[]),
        round: |directory, round| {
            let mut file = OpenOptions::new().append(true).open(directory.join("log"))?;
            file.write_all(&pattern(round, PIECE_BYTES))?;
            // Else nothing reaches the device while this runs.
            if round % 4 == 3 { Ok(rustix::fs::syncfs(&file)?) } else { Ok(()) }
        },
        check: |directory, _| is_log(directory, PIECE_BYTES, 0),
    },
    Promise {
        name: "fallocate",
        text: "fallocate, fdatasync: the size is there",
        posix: true,
        setup: |directory| write_new(directory, "log", &[]),
        round: |directory, round| {
            let file = existing(directory, "log")?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), round * 8192, 8192)?;
            file.sync_data()
        },
        check: |directory, rounds| {
            let length = fs::metadata(directory.join("log")).map_err(text)?.len();
            if length >= rounds * 8192 {
                Ok(())
            } else {
                Err(format!("log has {length} bytes of {}", rounds * 8192))
            }
        },
    },
    Promise {
        name: "msync",
        text: "a mapped page written, msync: it is there",
        posix: true,
        setup: |directory| write_new(directory, "data", &pattern(0, LARGE_BYTES)),
        round: |directory, round| {
            pages::write_mapped(&existing(directory, "data")?, &pattern(round + 1, 512))
        },
        check: |directory, rounds| is_version(directory, "data", 512, rounds),
    },
    Promise {
        name: "sync-file-range",
        text: "a sector overwritten, sync_file_range: it is there",
        posix: false,
        setup: |directory| write_new(directory, "data", &pattern(0, LARGE_BYTES)),
        round: |directory, round| {
            let file = existing(directory, "data")?;
            file.write_all_at(&pattern(round + 1, 512), 0)?;
            pages::sync_range(&file, 512)
        },
        check: |directory, rounds| is_version(directory, "data", 512, rounds),
    },
    Promise {
        name: "create",
        text: "a new file, fsync of it: it has its name",
        posix: false,
        setup: |_| Ok(()),
        round: |directory, round| {
            create(directory, &format!("file{round}"), &pattern(round, PIECE_BYTES))?.sync_all()
        },
        check: files_are_there,
    },
    Promise {
        name: "create-directory",
        text: "a new file, fsync of it and of its directory: it has its name",
        posix: true,
        setup: |_| Ok(()),
        round: |directory, round| {
            create(directory, &format!("file{round}"), &pattern(round, PIECE_BYTES))?.sync_all()?;
            File::open(directory)?.sync_all()
        },
        check: files_are_there,
    },
    Promise {
        name: "create-order",
        text: "two new files, fsync of the second: it is not there without the first",
        posix: false,
        setup: |_| Ok(()),
        round: |directory, round| {
            create(directory, &format!("first{round}"), b"first")?;
            create(directory, &format!("second{round}"), b"second")?.sync_all()
        },
        check: |directory, _| {
            let is_there =
                |name: &str, round: &u64| directory.join(format!("{name}{round}")).exists();
            match (0..ROUNDS).find(|round| is_there("second", round) && !is_there("first", round)) {
                None => Ok(()),
                Some(round) => Err(format!("second{round} is there and first{round} is not")),
            }
        },
    },
    Promise {
        name: "rename",
        text: "fsync of a file, rename over another: the name has the old bytes or the new",
        posix: false,
        setup: |directory| write_new(directory, "name", &pattern(0, 4 * PIECE_BYTES)),
        round: |directory, round| {
            create(directory, "new", &pattern(round + 1, 4 * PIECE_BYTES))?.sync_all()?;
            fs::rename(directory.join("new"), directory.join("name"))
        },
        check: |directory, _| is_version(directory, "name", 4 * PIECE_BYTES, 0),
    },
    Promise {
        name: "rename-unsynced",
        text: "rename over another file without fsync: the name has the old bytes or the new",
        posix: false,
        setup: |directory| {
            write_new(directory, "name", &pattern(0, 4 * PIECE_BYTES))?;
            write_new(directory, "other", b"other")
        },
        round: |directory, round| {
            create(directory, "new", &pattern(round + 1, 4 * PIECE_BYTES))?;
            fs::rename(directory.join("new"), directory.join("name"))?;
            // So that the rename reaches the device while this runs.
            let other = existing(directory, "other")?;
            other.write_all_at(&pattern(round, 512), 512 * round)?;
            other.sync_all()
        },
        check: |directory, _| is_version(directory, "name", 4 * PIECE_BYTES, 0),
    },
    Promise {
        name: "rename-directory",
        text: "rename over another file, fsync of it before and of the directory after: it is there",
        posix: true,
        setup: |directory| write_new(directory, "name", &pattern(0, 4 * PIECE_BYTES)),
        round: |directory, round| {
            create(directory, "new", &pattern(round + 1, 4 * PIECE_BYTES))?.sync_all()?;
            fs::rename(directory.join("new"), directory.join("name"))?;
            File::open(directory)?.sync_all()
        },
        check: |directory, rounds| is_version(directory, "name", 4 * PIECE_BYTES, rounds),
    },
    Promise {
        name: "link-directory",
        text: "a second name by link, fsync of the directory: it is there",
        posix: true,
        setup: |directory| write_new(directory, "first", FILE),
        round: |directory, round| {
            fs::hard_link(directory.join("first"), directory.join(format!("file{round}")))?;
            File::open(directory)?.sync_all()
        },
        check: |directory, rounds| {
            let is_missing = |round: &u64| !has_file(directory, &format!("file{round}"));
            match (0..rounds).find(is_missing) {
                None => Ok(()),
                Some(round) => Err(format!("file{round} is not there, or has other bytes")),
            }
        },
    },
    Promise {
        name: "names-order",
        text: "link, unlink, rename, not synced: none is there without those before it",
        posix: false,
        setup: |directory| {
            write_new(directory, "other", b"other")?;
            (0..ROUNDS).try_for_each(|round| write_new(directory, &format!("first{round}"), FILE))
        },
        round: |directory, round| {
            let name = |prefix: &str| directory.join(format!("{prefix}{round}"));
            // So that each reaches the device while this runs, in one transaction or the next.
            let other = existing(directory, "other")?;
            let pass = |step: u64| {
                other.write_all_at(&pattern(round, 512), 512 * (3 * round + step))?;
                other.sync_all()
            };
            fs::hard_link(name("first"), name("second")).and_then(|()| pass(0))?;
            fs::remove_file(name("first")).and_then(|()| pass(1))?;
            fs::rename(name("second"), name("third")).and_then(|()| pass(2))
        },
        check: |directory, _| {
            let mut before = NAMES.len() - 1;
            for round in 0..ROUNDS {
                let has = |prefix: &str| has_file(directory, &format!("{prefix}{round}"));
                let found = [has("first"), has("second"), has("third")];
                let done = NAMES.iter().position(|names| *names == found).ok_or_else(|| {
                    format!("of first{round}, second{round} and third{round} there are {found:?}")
                })?;
                // One that has begun follows those that have ended.
                if done > 0 && before < NAMES.len() - 1 {
                    return Err(format!(
                        "what was done to first{round} is there, and not all before"
                    ));
                }
                before = done;
            }
            Ok(())
        },
    },
    Promise {
        name: "unlink-directory",
        text: "unlink, fsync of the directory: the file is gone",
        posix: true,
        setup: |directory| {
            (0..ROUNDS).try_for_each(|round| write_new(directory, &format!("file{round}"), FILE))
        },
        round: |directory, round| {
            fs::remove_file(directory.join(format!("file{round}")))?;
            File::open(directory)?.sync_all()
        },
        check: |directory, rounds| match (0..rounds)
            .find(|round| directory.join(format!("file{round}")).exists())
        {
            None => Ok(()),
            Some(round) => Err(format!("file{round} is there again")),
        },
    },
];

pub fn by_name(name: &str) -> Option<&'static Promise> {
    PROMISES.iter().find(|promise| promise.name == name)
}

impl Promise {
    /// Makes what has to be there before the first round.
    pub fn set_up(&self, directory: &Path) -> io::Result<()> {
        (self.setup)(directory)?;
        Ok(rustix::fs::syncfs(File::open(directory)?)?)
    }

    /// Goes through the rounds; a line each acknowledges them.
    pub fn run(&self, directory: &Path) -> io::Result<()> {
        (0..ROUNDS).try_for_each(|round| {
            (self.round)(directory, round)?;
            let mut said = io::stdout();
            writeln!(said, "{round}").and_then(|()| said.flush())
        })
    }

    /// Whether what the file with the acknowledgements says is kept.
    pub fn check(&self, directory: &Path, acknowledged: &Path) -> Result<(), String> {
        let lines = fs::read_to_string(acknowledged).map_err(text)?;
        (self.check)(directory, lines.lines().count() as u64)
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

/// The bytes of a version: no two versions have a sector in common.
fn pattern(version: u64, length: usize) -> Vec<u8> {
    let word = |at: usize| (((version + 1) << 32) + at as u64 / 64).to_le_bytes();
    (0..length).map(|at| word(at)[at % 8]).collect()
}

fn create(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::create(directory.join(name))?;
    file.write_all(bytes).map(|()| file)
}

fn write_new(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    create(directory, name, bytes)?.sync_all()
}

fn existing(directory: &Path, name: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(directory.join(name))
}

/// Whether the file begins with the bytes of one version, from `least` on.
fn is_version(directory: &Path, name: &str, length: usize, least: u64) -> Result<(), String> {
    let bytes = fs::read(directory.join(name)).map_err(|error| format!("{name}: {error}"))?;
    let bytes = &bytes[..length.min(bytes.len())];
    match (0..=ROUNDS).find(|version| bytes == pattern(*version, length)) {
        Some(version) if version >= least => Ok(()),
        Some(version) => Err(format!("{name} has version {version} of {least}")),
        None if bytes.len() < length => Err(format!("{name} has {} bytes", bytes.len())),
        None => Err(format!("{name} has the bytes of several versions, or others")),
    }
}

/// Whether a file has the appended pieces, at least so many of them whole, and nothing else.
fn is_log(directory: &Path, piece_bytes: usize, least: u64) -> Result<(), String> {
    let bytes = fs::read(directory.join("log")).map_err(|error| format!("log: {error}"))?;
    if (bytes.len() as u64) < least * piece_bytes as u64 {
        return Err(format!("log has {} bytes of {}", bytes.len(), least * piece_bytes as u64));
    }
    for (number, piece) in bytes.chunks(piece_bytes).enumerate() {
        if *piece != pattern(number as u64, piece_bytes)[..piece.len()] {
            return Err(format!("piece {number} of log has other bytes"));
        }
    }
    Ok(())
}

/// Whether a file of this name has the bytes of [`FILE`].
fn has_file(directory: &Path, name: &str) -> bool {
    fs::read(directory.join(name)).is_ok_and(|bytes| bytes == FILE)
}

fn files_are_there(directory: &Path, rounds: u64) -> Result<(), String> {
    for round in 0..rounds {
        let name = format!("file{round}");
        let bytes = fs::read(directory.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        if bytes != pattern(round, PIECE_BYTES) {
            return Err(format!("{name} has {} bytes, or others", bytes.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_passes_its_check_where_nothing_is_lost_and_fails_it_where_something_is() {
        for promise in &PROMISES {
            let scratch = tempfile::tempdir().unwrap();
            let directory = scratch.path().join("files");
            fs::create_dir(&directory).unwrap();
            promise.set_up(&directory).unwrap();
            for round in 0..6 {
                (promise.round)(&directory, round).unwrap();
                assert_eq!((promise.check)(&directory, round + 1), Ok(()), "{}", promise.name);
            }
            // Every file with a byte less, and one more round than there was; or what was deleted.
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, vec![7; bytes.len().saturating_sub(1)]).unwrap();
            }
            let _ = fs::remove_file(directory.join("first0"));
            assert!((promise.check)(&directory, 7).is_err(), "{}", promise.name);
        }
    }

    #[test]
    fn no_two_versions_have_a_sector_in_common() {
        let mut seen = std::collections::HashSet::new();
        for version in 0..=ROUNDS {
            for sector in pattern(version, LARGE_BYTES).chunks(512) {
                assert!(seen.insert(sector.to_vec()));
            }
        }
    }
}
