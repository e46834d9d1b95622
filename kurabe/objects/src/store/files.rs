//! One file an object, the way people keep objects without a store.
//!
//! 256 directories made at the start (`00` to `ff`, by a mixture of the key), in each the files of
//! its objects, named by their keys in hexadecimal. Everything goes through the page cache. Without
//! a sync a put writes its file in place (created or truncated); with one it writes a file beside
//! it, makes that durable, renames it over the old one and makes the directory durable, which is
//! what keeps either the old or the new contents whatever happens.
//!
//! A range is deleted key by key, because a directory knows no order of keys.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::random::mix;
use super::{
    Demand, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace,
};
use measure::durable::WholeSync;

pub(super) const KIND: StoreKind = StoreKind {
    name: "files",
    summary: "one file per object, in 256 directories",
    takes_device: false,
    keeps_contents: true,
    object_bytes_max: i64::MAX as u64,
    missing: || None,
    space,
    create,
    open,
};

const DIRECTORIES: u64 = 256;

/// What a file takes beside its bytes, at the most that is usual: the last block in part, an inode
/// and an entry.
const FILE_OVERHEAD_BYTES: u64 = 4096 + 512 + 64;

fn space(_: &StoreOptions, demand: &Demand) -> StoreSpace {
    StoreSpace {
        least_bytes: 0,
        comfortable_bytes: demand
            .bytes
            .saturating_add(demand.objects.saturating_mul(FILE_OVERHEAD_BYTES))
            .saturating_add(DIRECTORIES * 4096),
        journal_bytes: 0,
    }
}

fn create(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let store = Files::at(place, options)?;
    for number in 0..DIRECTORIES {
        let path = store.root.join(format!("{number:02x}"));
        fs::create_dir(&path).map_err(|error| StoreError::system("making", &path, error))?;
    }
    Ok(Box::new(store))
}

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(Files::at(place, options)?))
}

#[derive(Clone)]
struct Files {
    root: PathBuf,
    sync_every_put: bool,
    whole_sync: WholeSync,
}

struct FilesSession {
    store: Files,
    buffer: Vec<u8>,
    /// Bytes of the buffer that the next put writes.
    prepared: usize,
}

impl Files {
    fn at(place: &StoreLocation, options: &StoreOptions) -> Result<Files, StoreError> {
        Ok(Files {
            root: super::directory(place, KIND.name)?.to_owned(),
            sync_every_put: options.sync_every_put,
            whole_sync: options.whole_sync.clone(),
        })
    }

    fn directory(&self, key: u64) -> PathBuf {
        self.root.join(format!("{:02x}", mix(key) % DIRECTORIES))
    }

    fn path(&self, key: u64) -> PathBuf {
        self.directory(key).join(format!("{key:016x}"))
    }

    /// Makes the entries of a directory durable.
    fn sync_directory(directory: &Path) -> Result<(), StoreError> {
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| StoreError::system("syncing", directory, error))
    }
}

impl Store for Files {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(FilesSession { store: self.clone(), buffer: Vec::new(), prepared: 0 }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.whole_sync
            .run(&self.root)
            .map_err(|error| StoreError::system("syncing", &self.root, error))
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        let mut keys = Vec::new();
        for number in 0..DIRECTORIES {
            let directory = self.root.join(format!("{number:02x}"));
            let failed = |error| StoreError::system("listing", &directory, error);
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let key = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
                keys.push(key.ok_or_else(|| {
                    StoreError::Failed(format!(
                        "{} is no file of this store",
                        directory.join(&name).display()
                    ))
                })?);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("directories".to_owned(), DIRECTORIES.to_string()),
            ("sync_every_put".to_owned(), self.sync_every_put.to_string()),
        ])
    }
}

impl FilesSession {
    fn write(&self, path: &Path, durable: bool) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&self.buffer[..self.prepared])?;
        if durable { file.sync_all() } else { Ok(()) }
    }

    fn put_durably(&self, key: u64, path: &Path) -> Result<(), StoreError> {
        let directory = self.store.directory(key);
        let beside = directory.join(format!("{key:016x}.new"));
        self.write(&beside, true).map_err(|error| StoreError::system("writing", &beside, error))?;
        fs::rename(&beside, path).map_err(|error| StoreError::system("renaming", path, error))?;
        Files::sync_directory(&directory)
    }
}

impl StoreSession for FilesSession {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        if self.buffer.len() < size_bytes {
            self.buffer.resize(size_bytes, 0);
        }
        self.prepared = size_bytes;
        Ok(&mut self.buffer[..size_bytes])
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        let path = self.store.path(key);
        if self.store.sync_every_put {
            self.put_durably(key, &path)
        } else {
            self.write(&path, false).map_err(|error| StoreError::system("writing", &path, error))
        }
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        let path = self.store.path(key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::system("opening", &path, error)),
        };
        let read = |buffer: &mut Vec<u8>| -> io::Result<usize> {
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            file.read_exact(&mut buffer[..length])?;
            Ok(length)
        };
        match { read }(&mut self.buffer) {
            Ok(length) => Ok(Some(&self.buffer[..length])),
            Err(error) => Err(StoreError::system("reading", &path, error)),
        }
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        let path = self.store.path(key);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(StoreError::system("deleting", &path, error)),
        }
        if self.store.sync_every_put {
            Files::sync_directory(&self.store.directory(key))?;
        }
        Ok(true)
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for key in keys {
            deleted += u64::from(self.delete(key)?);
        }
        Ok(deleted)
    }
}
