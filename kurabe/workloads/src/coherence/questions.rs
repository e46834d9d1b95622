//! The questions, one entry each.
//!
//! Whoever serves the directory may be hostile: no file is opened through a link, or under a second name, and what is
//! made is made anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};
use rustix::io::Errno;

use super::{
    ChangeSeen, Changed, LOOK_INTERVAL, NodeRole, NodeView, Question, QuestionFiles, Sort, WAIT_MAX,
};
use crate::sys::mapped::Mapped;

/// Bytes of a file: a page.
const FILE_BYTES: usize = 4096;
/// What each node appends where both do: this many records of so many bytes.
const RECORDS: u8 = 4;
const RECORD_BYTES: usize = 64;
const MODES: [u32; 2] = [0o600, 0o640];

/// One about a file that the writer changes: the reader has read it before, and opens it again. What is different is
/// said by each of the others.
const OF_A_FILE: Question = Question {
    name: "",
    text: "",
    not_by: &[Sort::Nfs],
    not_asked_on: None,
    prepare: make_old,
    look: |place| is(&place.file, OLD).and(Ok(None)),
    change: |_, _| Ok(Changed::default()),
    both: false,
    answer: |place, _| of_file(&place.file, NEW),
    can_come: true,
};

/// One about a file that the reader has kept open.
const OF_AN_OPEN_FILE: Question =
    Question { look: open_and_read, answer: |_, seen| of_open(seen), ..OF_A_FILE };

/// All of them, in the order of the table.
pub static QUESTIONS: [Question; 15] = [
    Question {
        name: "close-to-open",
        text: "written and closed, then opened: the bytes are the new ones",
        not_by: &[],
        change: |place, _| existing(&place.file)?.write_all_at(&bytes(NEW), 0).map(nothing_held),
        ..OF_A_FILE
    },
    Question {
        name: "fsync-then-read",
        text: "written and synced, then read from a file that was open before",
        change: |place, _| {
            let file = existing(&place.file)?;
            file.write_all_at(&bytes(NEW), 0)?;
            file.sync_all().and(held_open(file))
        },
        ..OF_AN_OPEN_FILE
    },
    Question {
        name: "write-then-read",
        text: "written, neither synced nor closed, then read from a file that was open before",
        change: |place, _| {
            let file = existing(&place.file)?;
            file.write_all_at(&bytes(NEW), 0).and(held_open(file))
        },
        ..OF_AN_OPEN_FILE
    },
    Question {
        name: "mmap",
        text: "written through a mapping (mmap) and synced (msync), then read through a mapping that was there before",
        not_by: &[Sort::Nfs, Sort::Smb],
        look: |place| {
            let mapped = Mapped::of(&existing(&place.file)?, FILE_BYTES)?;
            is_bytes(&mapped.read(), OLD)
                .map_or(Ok(Some(NodeView::Mapped(mapped))), |found| Err(io::Error::other(found)))
        },
        change: |place, _| {
            let mapped = Mapped::of(&existing(&place.file)?, FILE_BYTES)?;
            mapped.fill(NEW)?;
            Ok(Changed { _held: Some(NodeView::Mapped(mapped)), ..Changed::default() })
        },
        ..OF_AN_OPEN_FILE
    },
    Question {
        name: "size",
        text: "appended to and closed, then stat: the size is the new one",
        not_by: &[Sort::Nfs, Sort::Smb],
        look: |place| fs::symlink_metadata(&place.file).and(Ok(None)),
        change: |place, _| {
            let mut file = opened(&place.file, OpenOptions::new().append(true))?;
            file.write_all(b"more").map(nothing_held)
        },
        answer: |place, _| {
            let (bytes, should) = (fs::symlink_metadata(&place.file)?.len(), FILE_BYTES as u64 + 4);
            Ok((bytes != should).then(|| format!("{bytes} bytes in the place of {should}")))
        },
        ..OF_A_FILE
    },
    Question {
        name: "mode",
        text: "chmod, then stat: the mode is the new one",
        not_by: &[Sort::Nfs, Sort::Smb],
        prepare: |place| make_old(place).and_then(|()| set_mode(&place.file, MODES[0])),
        look: |place| fs::symlink_metadata(&place.file).and(Ok(None)),
        change: |place, _| set_mode(&place.file, MODES[1]).map(nothing_held),
        answer: |place, _| {
            let mode = fs::symlink_metadata(&place.file)?.permissions().mode() & 0o777;
            Ok((mode != MODES[1]).then(|| format!("mode {mode:o} in the place of {:o}", MODES[1])))
        },
        ..OF_A_FILE
    },
    Question {
        name: "create",
        text: "created and closed, then opened by a name that was not there before",
        not_by: &[Sort::Nfs, Sort::Smb],
        prepare: |_| Ok(()),
        look: |place| match to_read(&place.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other("the name is there already")),
        },
        change: |place, _| made(&place.file, &bytes(NEW)).map(nothing_held),
        ..OF_A_FILE
    },
    Question {
        name: "delete",
        text: "deleted, then opened: it is not there",
        not_by: &[Sort::Nfs, Sort::Smb],
        change: |place, _| fs::remove_file(&place.file).map(nothing_held),
        answer: |place, _| match to_read(&place.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some("the file can still be opened".into())),
        },
        ..OF_A_FILE
    },
    Question {
        name: "rename",
        text: "another file renamed over it, then opened: the bytes are the new ones",
        not_by: &[Sort::Nfs, Sort::Smb],
        prepare: |place| make_old(place).and_then(|()| made(&place.other, &bytes(NEW))),
        change: |place, _| fs::rename(&place.other, &place.file).map(nothing_held),
        ..OF_A_FILE
    },
    Question {
        name: "listing",
        text: "one file created and another one deleted, then the directory listed: it has the one and not the other",
        not_by: &[Sort::Nfs, Sort::Smb],
        prepare: |place| made(&place.other, b""),
        look: |place| match listed(place)? {
            [false, true] => Ok(None),
            _ => Err(io::Error::other("the listing is another one than before the change")),
        },
        change: |place, _| {
            made(&place.file, b"")?;
            fs::remove_file(&place.other).map(nothing_held)
        },
        answer: |place, _| {
            Ok(match listed(place)? {
                [true, false] => None,
                [false, true] => Some("the listing is the old one".into()),
                [true, true] => Some("the deleted file is listed".into()),
                [false, false] => Some("the created file is not listed".into()),
            })
        },
        ..OF_A_FILE
    },
    Question {
        name: "append",
        text: "both append at the same time (O_APPEND) and close: every record is there once",
        not_by: &[Sort::Nfs, Sort::Smb],
        prepare: |place| made(&place.file, b""),
        look: |_| Ok(None),
        change: |place, role| {
            let mut file = opened(&place.file, OpenOptions::new().append(true))?;
            let mut records = (0..RECORDS).map(|number| record(role, number));
            records.try_for_each(|record| file.write_all(&record)).map(nothing_held)
        },
        both: true,
        answer: |place, _| Ok(missing_record(&contents(&place.file)?)),
        ..OF_A_FILE
    },
    Question {
        name: "exclusive-create",
        text: "both create it at the same time (O_EXCL): one of them does",
        not_by: &[],
        prepare: |_| Ok(()),
        look: |_| Ok(None),
        change: |place, _| {
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).open(&place.file) {
                Ok(file) => Ok(Changed { said: 1, _held: Some(NodeView::Open(file)) }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Ok(Changed::default())
                }
                Err(error) => Err(error),
            }
        },
        both: true,
        answer: |_, seen| match seen.said {
            [0, 0] => Ok(Some("none of the two created it".into())),
            [1, 1] => Ok(Some("each of the two created it".into())),
            _ => Ok(None),
        },
        can_come: false,
        ..OF_A_FILE
    },
    Question {
        name: "lock",
        text: "locked (flock) by one: the other one does not get the lock",
        not_by: &[],
        change: |place, _| {
            let file = existing(&place.file)?;
            lock(&file)?;
            held_open(file)
        },
        answer: |_, seen| got_lock(flock(open(seen), FlockOperation::NonBlockingLockExclusive)),
        ..OF_A_LOCK
    },
    Question {
        name: "fcntl-lock",
        text: "locked (fcntl) by one: the other one does not get the lock",
        // The stack o2cb has these locks on each node alone.
        not_by: &[Sort::Ocfs2],
        not_asked_on: Some((
            Sort::Gfs2,
            "these locks need dlm_controld, which kurabe's cluster does without; they would wait without end",
        )),
        change: |place, _| {
            let file = existing(&place.file)?;
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
            held_open(file)
        },
        answer: |_, seen| {
            got_lock(fcntl_lock(open(seen), FlockOperation::NonBlockingLockExclusive))
        },
        ..OF_A_LOCK
    },
    Question {
        name: "lock-then-read",
        text: "written under a lock, then read under the lock from a file that was open before",
        not_by: &[],
        look: |place| {
            let file = existing(&place.file)?;
            let found = is_bytes(&read_from(&file)?, OLD);
            found.map_or(Ok(Some(NodeView::Open(file))), |found| Err(io::Error::other(found)))
        },
        change: |place, _| {
            let file = existing(&place.file)?;
            lock(&file)?;
            file.write_all_at(&bytes(NEW), 0)?;
            flock(&file, FlockOperation::Unlock)?;
            held_open(file)
        },
        answer: |_, seen| {
            lock(open(seen))?;
            let found = of_open(seen);
            flock(open(seen), FlockOperation::Unlock)?;
            found
        },
        ..OF_A_FILE
    },
];

/// One about who has a lock.
const OF_A_LOCK: Question = Question {
    look: |place| existing(&place.file).map(|file| Some(NodeView::Open(file))),
    can_come: false,
    ..OF_A_FILE
};

/// Locks what nobody has locked. GFS2 says within milliseconds that somebody has where the node that had the lock last
/// does not answer as quickly.
fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
            locked => return locked.map_err(Into::into),
        }
    }
}

fn nothing_held(_: ()) -> Changed {
    Changed::default()
}

fn held_open(file: File) -> io::Result<Changed> {
    Ok(Changed { _held: Some(NodeView::Open(file)), ..Changed::default() })
}

/// What follows for the reader from its try to get a lock that the writer has.
fn got_lock(outcome: rustix::io::Result<()>) -> io::Result<Option<String>> {
    match outcome {
        // Of POSIX locks either of the two is said.
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Some("both have the lock".into())),
    }
}

/// Whether the directory has the one name, and the other.
fn listed(place: &QuestionFiles) -> io::Result<[bool; 2]> {
    let directory = place.file.parent().expect("it is in a directory");
    let mut found = [false; 2];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        found[0] |= path == place.file;
        found[1] |= path == place.other;
    }
    Ok(found)
}

/// What files are full of, before and after the change.
const OLD: u8 = b'o';
const NEW: u8 = b'n';

fn bytes(of: u8) -> Vec<u8> {
    vec![of; FILE_BYTES]
}

fn make_old(place: &QuestionFiles) -> io::Result<()> {
    made(&place.file, &bytes(OLD))
}

/// Makes a file that is not there.
fn made(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(bytes)
}

/// Opens a file of one name, and not through a link.
fn opened(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    // A deleted one has none any more.
    if found.is_file() && found.nlink() <= 1 {
        Ok(file)
    } else {
        Err(io::Error::other("another file is in the place of the one that kurabe made"))
    }
}

fn existing(path: &Path) -> io::Result<File> {
    opened(path, OpenOptions::new().read(true).write(true))
}

fn to_read(path: &Path) -> io::Result<File> {
    opened(path, OpenOptions::new().read(true))
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    to_read(path)?.read_to_end(&mut found)?;
    Ok(found)
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    to_read(path)?.set_permissions(fs::Permissions::from_mode(mode))
}

/// What is there in the place of a file full of this.
fn is_bytes(found: &[u8], should: u8) -> Option<String> {
    if found == bytes(should) {
        return None;
    }
    Some(match found {
        [] => "nothing is in it".into(),
        found if found == bytes(OLD) => "the bytes are the old ones".into(),
        found => {
            let new = found.iter().filter(|byte| **byte == should).count();
            format!("{new} of {} bytes are the new ones", found.len())
        }
    })
}

fn of_file(path: &Path, should: u8) -> io::Result<Option<String>> {
    Ok(is_bytes(&contents(path)?, should))
}

/// What the writer prepared is there for the reader: a name that nobody looked at before.
fn is(path: &Path, should: u8) -> io::Result<()> {
    of_file(path, should)?.map_or(Ok(()), |found| Err(io::Error::other(found)))
}

fn read_from(file: &File) -> io::Result<Vec<u8>> {
    let mut found = vec![0; FILE_BYTES + 1];
    let length = file.read_at(&mut found, 0)?;
    found.truncate(length);
    Ok(found)
}

fn open_and_read(place: &QuestionFiles) -> io::Result<Option<NodeView>> {
    let mut file = to_read(&place.file)?;
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    let found = is_bytes(&found, OLD);
    found.map_or(Ok(Some(NodeView::Open(file))), |found| Err(io::Error::other(found)))
}

fn open(seen: &ChangeSeen) -> &File {
    match &seen.held {
        Some(NodeView::Open(file)) => file,
        _ => unreachable!("the reader kept it open"),
    }
}

fn of_open(seen: &ChangeSeen) -> io::Result<Option<String>> {
    let found = match &seen.held {
        Some(NodeView::Mapped(mapped)) => mapped.read(),
        _ => read_from(open(seen))?,
    };
    Ok(is_bytes(&found, NEW))
}

fn record(role: NodeRole, number: u8) -> [u8; RECORD_BYTES] {
    [(role as u8) * RECORDS + number + 1; RECORD_BYTES]
}

/// What is wrong with a file to which two nodes appended.
fn missing_record(found: &[u8]) -> Option<String> {
    let all = [NodeRole::Writer, NodeRole::Reader];
    let all = all.iter().flat_map(|role| (0..RECORDS).map(|number| record(*role, number)));
    let times = |record: &[u8; RECORD_BYTES]| {
        found.chunks(RECORD_BYTES).filter(|chunk| chunk == record).count()
    };
    let (records, intact) =
        (2 * usize::from(RECORDS), all.filter(|record| times(record) == 1).count());
    let bytes = found.len();
    (intact != records || bytes != records * RECORD_BYTES)
        .then(|| format!("{intact} of {records} records are there, in {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_machine_puts_there_is_neither_written_nor_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let place = QuestionFiles::of(directory.path(), 0);
        for make in [
            |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).unwrap(),
            |from: &Path, to: &Path| fs::hard_link(from, to).unwrap(),
        ] {
            make(&victim, &place.file);
            make(&victim, &place.other);
            for question in &QUESTIONS {
                let prepared = (question.prepare)(&place);
                let changed = (question.change)(&place, NodeRole::Writer);
                let removes = ["delete", "rename", "listing"].contains(&question.name);
                // It finds that the name is there, and does nothing.
                let is_none = question.name == "exclusive-create";
                assert!(
                    removes || is_none || prepared.is_err() || changed.is_err(),
                    "{}",
                    question.name
                );
                assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{}", question.name);
                assert_ne!(fs::metadata(&victim).unwrap().mode() & 0o777, MODES[1]);
                if removes {
                    place.remove();
                    make(&victim, &place.file);
                    make(&victim, &place.other);
                }
            }
            place.remove();
        }
    }
}
