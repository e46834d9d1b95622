//! redb (the crate `redb`): a B-tree in one file that grows, through the page cache.
//!
//! Every put and delete is a transaction. Without `sync_every_put` it is one of redb's durability
//! `None`, which the next durable one makes durable; a kill before that loses it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use ::redb::{
    AccessGuard, Database, Durability, Error, ReadableDatabase, ReadableTable, TableDefinition,
};

use super::{
    CACHE_BYTES, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, directory,
};

pub(super) const KIND: StoreKind = StoreKind {
    name: "redb",
    summary: "a copy-on-write B-tree in one file",
    takes_device: false,
    keeps_contents: true,
    // What redb takes for key and value together, less the key.
    object_bytes_max: (3 << 30) - 8,
    missing: || None,
    space: super::engine_space,
    create: open,
    open,
};

const FILE_NAME: &str = "objects.redb";

const OBJECTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("objects");

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let path = directory(place, KIND.name)?.join(FILE_NAME);
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES as usize);
    let database = builder.create(path).map_err(failure)?;
    let durability = if options.sync_every_put { Durability::Immediate } else { Durability::None };
    let store = Redb { database, durability };
    // The table is there from the start, so that a read finds it.
    store.change(Durability::Immediate, |_| Ok(()))?;
    Ok(Box::new(store))
}

fn failure(error: impl Into<Error>) -> StoreError {
    match error.into() {
        Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
            StoreError::Full(error.to_string())
        }
        error => StoreError::Failed(error.to_string()),
    }
}

struct Redb {
    database: Database,
    durability: Durability,
}

struct RedbSession<'a> {
    store: &'a Redb,
    prepared: Vec<u8>,
    found: Option<AccessGuard<'static, &'static [u8]>>,
}

type Table<'a> = ::redb::Table<'a, u64, &'static [u8]>;

impl Redb {
    /// Carries out one transaction.
    fn change<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Table<'_>) -> Result<T, ::redb::StorageError>,
    ) -> Result<T, StoreError> {
        let mut change = self.database.begin_write().map_err(failure)?;
        change.set_durability(durability).map_err(failure)?;
        let mut table = change.open_table(OBJECTS).map_err(failure)?;
        let worked = work(&mut table).map_err(failure)?;
        drop(table);
        change.commit().map_err(failure)?;
        Ok(worked)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(RedbSession { store: self, prepared: Vec::new(), found: None }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.change(Durability::Immediate, |_| Ok(()))
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        let table = self.database.begin_read().map_err(failure)?;
        let table = table.open_table(OBJECTS).map_err(failure)?;
        let keys = table.iter().map_err(failure)?;
        keys.map(|entry| entry.map(|(key, _)| key.value()).map_err(failure)).collect()
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("durability".to_owned(), format!("{:?}", self.durability)),
            ("cache_bytes".to_owned(), CACHE_BYTES.to_string()),
        ])
    }
}

impl StoreSession for RedbSession<'_> {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        self.prepared.resize(size_bytes, 0);
        Ok(&mut self.prepared)
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        self.store
            .change(self.store.durability, |table| table.insert(key, &self.prepared[..]).map(drop))
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        let table = self.store.database.begin_read().map_err(failure)?;
        let table = table.open_table(OBJECTS).map_err(failure)?;
        self.found = table.get(key).map_err(failure)?;
        Ok(self.found.as_ref().map(AccessGuard::value))
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        self.found = None;
        self.store
            .change(self.store.durability, |table| table.remove(key).map(|found| found.is_some()))
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        self.found = None;
        self.store.change(self.store.durability, |table| {
            let found = table.range(keys.start..keys.end.max(keys.start))?;
            let keys: Vec<u64> =
                found.map(|entry| entry.map(|(key, _)| key.value())).collect::<Result<_, _>>()?;
            for key in &keys {
                table.remove(key)?;
            }
            Ok(keys.len() as u64)
        })
    }
}
