//! RocksDB with blob files, by the shared library of the system, which is opened at run time.
//!
//! Without `sync_every_put` every put and delete is in the log's file when it returns, not yet on
//! the device: it survives a kill. What it reads and compacts goes past the page cache where the
//! file system takes that, as with CannyLS and lump.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{
    Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace, directory,
};
use crate::sys::rocksdb::{Found, RocksDatabase, missing};

pub(super) const KIND: StoreKind = StoreKind {
    name: "rocksdb",
    summary: "a log-structured merge tree (package librocksdb7.8)",
    takes_device: false,
    keeps_contents: true,
    object_bytes_max: u32::MAX as u64,
    missing,
    space: |options, demand| StoreSpace {
        least_bytes: LOG_BYTES,
        ..super::engine_space(options, demand)
    },
    create: open,
    open,
};

/// RocksDB reserves 1.1 times the 64 MiB of its write buffer for the log. Where a file system has less, the log
/// takes all of it, and Debian's library aborts at the next write.
const LOG_BYTES: u64 = 72 << 20;

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let directory = directory(place, KIND.name)?.join("rocksdb");
    if let Some(missing) = missing() {
        return Err(StoreError::Refused(missing));
    }
    // Where the file system takes no direct I/O, RocksDB refuses to open.
    let (database, direct) = match RocksDatabase::open(&directory, true) {
        Err(words) if words.contains("Direct I/O") => {
            (RocksDatabase::open(&directory, false), false)
        }
        opened => (opened, true),
    };
    let database = database.map_err(failure)?;
    Ok(Box::new(Rocks { database, direct, sync_every_put: options.sync_every_put }))
}

fn failure(words: String) -> StoreError {
    if words.contains("No space") { StoreError::Full(words) } else { StoreError::Failed(words) }
}

struct Rocks {
    database: RocksDatabase,
    direct: bool,
    sync_every_put: bool,
}

struct RocksSession<'a> {
    store: &'a Rocks,
    prepared: Vec<u8>,
    found: Option<Found<'a>>,
}

impl Store for Rocks {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(RocksSession { store: self, prepared: Vec::new(), found: None }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.database.sync().map_err(failure)
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        let mut keys = self.database.keys(0..u64::MAX).map_err(failure)?;
        let is_last = self.database.get(u64::MAX).map_err(failure)?.is_some();
        keys.extend(is_last.then_some(u64::MAX));
        Ok(keys)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("direct".to_owned(), self.direct.to_string()),
            ("sync_every_put".to_owned(), self.sync_every_put.to_string()),
        ])
    }
}

impl StoreSession for RocksSession<'_> {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        self.prepared.resize(size_bytes, 0);
        Ok(&mut self.prepared)
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        self.store.database.put(key, &self.prepared, self.store.sync_every_put).map_err(failure)
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        self.found = self.store.database.get(key).map_err(failure)?;
        Ok(self.found.as_ref().map(Found::bytes))
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        let is_there = self.store.database.get(key).map_err(failure)?.is_some();
        if is_there {
            self.store.database.delete(key, self.store.sync_every_put).map_err(failure)?;
        }
        Ok(is_there)
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        let keys = self.store.database.keys(keys).map_err(failure)?;
        for key in &keys {
            self.store.database.delete(*key, false).map_err(failure)?;
        }
        if self.store.sync_every_put {
            self.store.database.sync().map_err(failure)?;
        }
        Ok(keys.len() as u64)
    }
}
