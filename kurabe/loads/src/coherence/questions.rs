//! The questions, one entry each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::{Changed, Place, Question, Role, Seen};

/// Bytes of a file: a page.
const FILE_BYTES: usize = 4096;
/// What each node appends where both do: this many records of so many bytes.
const RECORDS: u8 = 4;
const RECORD_BYTES: usize = 64;
const MODES: [u32; 2] = [0o600, 0o640];

/// All of them, in the order of the table.
pub static QUESTIONS: [Question; 12] = [
    Question {
        name: "close-to-open",
        text: "written and closed, then opened: the bytes are the new ones",
        by_nfs: true,
        prepare: make_old,
        look: |place| is(&place.file, OLD).and(Ok(None)),
        change: |place, _| {
            existing(&place.file)?.write_all_at(&bytes(NEW), 0)?;
            Ok(Changed::default())
        },
        both: false,
        answer: |place, _| of_file(&place.file, NEW),
        can_come: true,
    },
    Question {
        name: "fsync-then-read",
        text: "written and synced, then read from a file that was open before",
        by_nfs: false,
        prepare: make_old,
        look: open_and_read,
        change: |place, _| {
            let file = existing(&place.file)?;
            file.write_all_at(&bytes(NEW), 0)?;
            file.sync_all()?;
            Ok(Changed { _held: Some(file), ..Changed::default() })
        },
        both: false,
        answer: |_, seen| of_open(seen),
        can_come: true,
    },
    Question {
        name: "write-then-read",
        text: "written, neither synced nor closed, then read from a file that was open before",
        by_nfs: false,
        prepare: make_old,
        look: open_and_read,
        change: |place, _| {
            let file = existing(&place.file)?;
            file.write_all_at(&bytes(NEW), 0)?;
            Ok(Changed { _held: Some(file), ..Changed::default() })
        },
        both: false,
        answer: |_, seen| of_open(seen),
        can_come: true,
    },
    Question {
        name: "size",
        text: "appended to and closed, then stat: the size is the new one",
        by_nfs: false,
        prepare: make_old,
        look: |place| fs::metadata(&place.file).and(Ok(None)),
        change: |place, _| {
            OpenOptions::new().append(true).open(&place.file)?.write_all(b"more")?;
            Ok(Changed::default())
        },
        both: false,
        answer: |place, _| {
            let (bytes, should) = (fs::metadata(&place.file)?.len(), FILE_BYTES as u64 + 4);
            Ok((bytes != should).then(|| format!("{bytes} bytes in the place of {should}")))
        },
        can_come: true,
    },
    Question {
        name: "mode",
        text: "chmod, then stat: the mode is the new one",
        by_nfs: false,
        prepare: |place| {
            make_old(place)?;
            set_mode(&place.file, MODES[0])
        },
        look: |place| fs::metadata(&place.file).and(Ok(None)),
        change: |place, _| set_mode(&place.file, MODES[1]).and(Ok(Changed::default())),
        both: false,
        answer: |place, _| {
            let mode = fs::metadata(&place.file)?.permissions().mode() & 0o777;
            Ok((mode != MODES[1]).then(|| format!("mode {mode:o} in the place of {:o}", MODES[1])))
        },
        can_come: true,
    },
    Question {
        name: "create",
        text: "created and closed, then opened by a name that was not there before",
        by_nfs: false,
        prepare: |_| Ok(()),
        look: |place| match File::open(&place.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other("the name is there already")),
        },
        change: |place, _| fs::write(&place.file, bytes(NEW)).and(Ok(Changed::default())),
        both: false,
        answer: |place, _| of_file(&place.file, NEW),
        can_come: true,
    },
    Question {
        name: "delete",
        text: "deleted, then opened: it is not there",
        by_nfs: false,
        prepare: make_old,
        look: |place| is(&place.file, OLD).and(Ok(None)),
        change: |place, _| fs::remove_file(&place.file).and(Ok(Changed::default())),
        both: false,
        answer: |place, _| match File::open(&place.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some("the file can still be opened".into())),
        },
        can_come: true,
    },
    Question {
        name: "rename",
        text: "another file renamed over it, then opened: the bytes are the new ones",
        by_nfs: false,
        prepare: |place| {
            make_old(place)?;
            fs::write(&place.other, bytes(NEW))
        },
        look: |place| is(&place.file, OLD).and(Ok(None)),
        change: |place, _| fs::rename(&place.other, &place.file).and(Ok(Changed::default())),
        both: false,
        answer: |place, _| of_file(&place.file, NEW),
        can_come: true,
    },
    Question {
        name: "append",
        text: "both append at the same time (O_APPEND) and close: every record is there once",
        by_nfs: false,
        prepare: |place| fs::write(&place.file, b""),
        look: |_| Ok(None),
        change: |place, role| {
            let mut file = OpenOptions::new().append(true).open(&place.file)?;
            (0..RECORDS).try_for_each(|number| file.write_all(&record(role, number)))?;
            Ok(Changed::default())
        },
        both: true,
        answer: |place, _| Ok(missing_record(&fs::read(&place.file)?)),
        can_come: true,
    },
    Question {
        name: "exclusive-create",
        text: "both create it at the same time (O_EXCL): one of them does",
        by_nfs: true,
        prepare: |_| Ok(()),
        look: |_| Ok(None),
        change: |place, _| {
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).open(&place.file) {
                Ok(file) => Ok(Changed { said: 1, _held: Some(file) }),
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
    },
    Question {
        name: "lock",
        text: "locked (flock) by one: the other one does not get the lock",
        by_nfs: true,
        prepare: make_old,
        look: |place| existing(&place.file).map(Some),
        change: |place, _| {
            let file = existing(&place.file)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Changed { _held: Some(file), ..Changed::default() })
        },
        both: false,
        answer: |_, seen| match flock(held(seen), FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(Some("both have the lock".into())),
        },
        can_come: false,
    },
    Question {
        name: "lock-then-read",
        text: "written under a lock, then read under the lock from a file that was open before",
        by_nfs: true,
        prepare: make_old,
        look: |place| {
            let file = existing(&place.file)?;
            let found = read_from(&file)?;
            is_bytes(&found, OLD).map_or(Ok(Some(file)), |found| Err(io::Error::other(found)))
        },
        change: |place, _| {
            let file = existing(&place.file)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            file.write_all_at(&bytes(NEW), 0)?;
            flock(&file, FlockOperation::Unlock)?;
            Ok(Changed { _held: Some(file), ..Changed::default() })
        },
        both: false,
        answer: |_, seen| {
            flock(held(seen), FlockOperation::NonBlockingLockExclusive)?;
            let found = of_open(seen);
            flock(held(seen), FlockOperation::Unlock)?;
            found
        },
        can_come: true,
    },
];

/// What files are full of, before and after the change.
const OLD: u8 = b'o';
const NEW: u8 = b'n';

fn bytes(of: u8) -> Vec<u8> {
    vec![of; FILE_BYTES]
}

fn make_old(place: &Place) -> io::Result<()> {
    fs::write(&place.file, bytes(OLD))
}

fn existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
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
    Ok(is_bytes(&fs::read(path)?, should))
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

fn open_and_read(place: &Place) -> io::Result<Option<File>> {
    let mut file = File::open(&place.file)?;
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    is_bytes(&found, OLD).map_or(Ok(Some(file)), |found| Err(io::Error::other(found)))
}

fn held(seen: &Seen) -> &File {
    seen.held.as_ref().expect("the reader kept it open")
}

fn of_open(seen: &Seen) -> io::Result<Option<String>> {
    Ok(is_bytes(&read_from(held(seen))?, NEW))
}

fn record(role: Role, number: u8) -> [u8; RECORD_BYTES] {
    [(role as u8) * RECORDS + number + 1; RECORD_BYTES]
}

/// What is wrong with a file to which two nodes appended.
fn missing_record(found: &[u8]) -> Option<String> {
    let all = [Role::Writer, Role::Reader];
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
