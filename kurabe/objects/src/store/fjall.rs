//! fjall (the crate `fjall`): a log-structured tree whose large values lie in files of their own.
//!
//! Without `sync_every_put` every put and delete is in the journal's file when it returns, not yet
//! on the device: it survives a kill. Nothing is compressed, as in no other store.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use ::fjall::config::CompressionPolicy;
use ::fjall::{
    CompressionType, Database, Error, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    PersistMode, UserValue,
};

use super::{
    CACHE_BYTES, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, directory,
};

pub(super) const KIND: StoreKind = StoreKind {
    name: "fjall",
    summary: "a log-structured merge tree",
    takes_device: false,
    keeps_contents: true,
    object_bytes_max: u32::MAX as u64,
    missing: || None,
    space: super::engine_space,
    create: open,
    open,
};

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let path = directory(place, KIND.name)?.join("fjall");
    let database = Database::builder(path)
        .cache_size(CACHE_BYTES)
        .journal_compression(CompressionType::None)
        .open()
        .map_err(failure)?;
    let values = KvSeparationOptions::default().compression(CompressionType::None);
    let options_of_fjall = || {
        KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::disabled())
            .with_kv_separation(Some(values))
    };
    let objects = database.keyspace("objects", options_of_fjall).map_err(failure)?;
    Ok(Box::new(Fjall { database, objects, sync_every_put: options.sync_every_put }))
}

fn failure(error: Error) -> StoreError {
    match error {
        Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
            StoreError::Full(error.to_string())
        }
        error => StoreError::Failed(error.to_string()),
    }
}

struct Fjall {
    database: Database,
    objects: Keyspace,
    sync_every_put: bool,
}

struct FjallSession<'a> {
    store: &'a Fjall,
    prepared: Vec<u8>,
    found: Option<UserValue>,
}

/// In the order of the numbers.
fn bytes_of(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

fn key_of(bytes: &[u8]) -> Result<u64, StoreError> {
    let bytes = bytes.try_into().map_err(|_| {
        StoreError::Failed(format!("a key of {} bytes was not put here", bytes.len()))
    })?;
    Ok(u64::from_be_bytes(bytes))
}

impl Fjall {
    fn keys_of(&self, keys: Range<u64>) -> Result<Vec<u64>, StoreError> {
        let found = self.objects.range(bytes_of(keys.start)..bytes_of(keys.end.max(keys.start)));
        found.map(|entry| key_of(&entry.key().map_err(failure)?)).collect()
    }

    /// Makes what was changed durable, when every put is to be.
    fn end_change(&self) -> Result<(), StoreError> {
        if self.sync_every_put {
            self.database.persist(PersistMode::SyncData).map_err(failure)
        } else {
            Ok(())
        }
    }
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(FjallSession { store: self, prepared: Vec::new(), found: None }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(failure)
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        self.objects.iter().map(|entry| key_of(&entry.key().map_err(failure)?)).collect()
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("sync_every_put".to_owned(), self.sync_every_put.to_string()),
            ("cache_bytes".to_owned(), CACHE_BYTES.to_string()),
        ])
    }
}

impl StoreSession for FjallSession<'_> {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        self.prepared.resize(size_bytes, 0);
        Ok(&mut self.prepared)
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        self.store.objects.insert(bytes_of(key), &self.prepared[..]).map_err(failure)?;
        self.store.end_change()
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        self.found = self.store.objects.get(bytes_of(key)).map_err(failure)?;
        Ok(self.found.as_deref())
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        let is_there = self.store.objects.contains_key(bytes_of(key)).map_err(failure)?;
        if is_there {
            self.store.objects.remove(bytes_of(key)).map_err(failure)?;
            self.store.end_change()?;
        }
        Ok(is_there)
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        let keys = self.store.keys_of(keys)?;
        for key in &keys {
            self.store.objects.remove(bytes_of(*key)).map_err(failure)?;
        }
        self.store.end_change()?;
        Ok(keys.len() as u64)
    }
}
