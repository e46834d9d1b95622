//! lump (the crate `lump`) on one file or device.
//!
//! Contents are prepared in memory from which lump writes without a copy. With `sync_every_put`
//! every put and delete is durable when it returns; otherwise all are buffered until the sync.
//!
//! The place of the journal and the checkpoints is written with zeros first, as for CannyLS: every
//! file system has the same to do before the first put and the same within it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ::lump::{CreateOptions, Durability, Error, Geometry, OpenOptions, Value};
use block::{BlockDevice, CountingDevice, DirectAccess, FileDevice, FileDeviceOptions};

use super::{
    Demand, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace,
};

pub(super) const KIND: StoreKind = StoreKind {
    name: "lump",
    summary: "this project's object store: one file or device with a journal",
    takes_device: true,
    keeps_contents: true,
    object_bytes_max: ::lump::layout::VALUE_BYTES_MAX,
    missing: || None,
    space,
    create,
    open,
};

/// Name of the file of a store in a directory.
const FILE_NAME: &str = "objects.lump";

const MEBIBYTE: u64 = 1 << 20;

/// A block of the journal, one for each put that shares it with no other.
const JOURNAL_BLOCK_BYTES: u64 = 4096;
/// The largest journal of a store, what a large one has.
const JOURNAL_BYTES_MAX: u64 = 64 * MEBIBYTE;

/// A value takes whole units, a trailer among them; half as much again keeps the free space from
/// scattering; a 16th is journal and checkpoints, at the most. A store of a small program gets a
/// longer journal, for twice as many records as there are live objects, as CannyLS's has: a 64th of
/// it, the default, would have it write a checkpoint every few puts, which no store of an ordinary
/// size does.
fn space(_: &StoreOptions, demand: &Demand) -> StoreSpace {
    let data_bytes = demand.bytes.saturating_add(demand.objects.saturating_mul(2 * 4096));
    let sum = data_bytes.saturating_add(data_bytes / 2);
    let records_bytes = demand.objects.saturating_mul(2 * JOURNAL_BLOCK_BYTES);
    let journal_bytes = records_bytes.saturating_add(2 * MEBIBYTE).min(JOURNAL_BYTES_MAX);
    let sum = sum.saturating_add(sum / 16).saturating_add(MEBIBYTE).saturating_add(journal_bytes);
    StoreSpace {
        least_bytes: 0,
        comfortable_bytes: sum.div_ceil(MEBIBYTE).saturating_mul(MEBIBYTE),
        journal_bytes,
    }
}

/// The journal that was asked for, unless the store is so small that it would take a quarter of it;
/// lump's own share where that is more.
fn journal_bytes(store_bytes: u64, asked_bytes: u64) -> Option<u64> {
    let bytes = asked_bytes.min(store_bytes / 4).min(JOURNAL_BYTES_MAX) / JOURNAL_BLOCK_BYTES
        * JOURNAL_BLOCK_BYTES;
    (bytes > store_bytes / 64).then_some(bytes)
}

fn create(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let below = device(place, options.capacity_bytes)?;
    let unit_bytes = (options.block_size_bytes == 4096).then_some(4096);
    let store_bytes = options.capacity_bytes.unwrap_or(u64::MAX).min(below.len());
    let options_of_lump = CreateOptions {
        unit_bytes,
        store_bytes: options.capacity_bytes,
        journal_bytes: journal_bytes(store_bytes, options.journal_bytes),
        objects_max: options.objects.filter(|objects| *objects > store_bytes / 4096),
        ..CreateOptions::default()
    };
    let geometry =
        Geometry::plan(below.len(), below.block_size(), &options_of_lump).map_err(failure)?;
    let head_bytes = geometry.store_bytes() - geometry.data_bytes();
    block::write_zeros(&*below, 0, head_bytes)
        .map_err(|error| StoreError::Failed(format!("writing the journal's place: {error}")))?;
    ::lump::Store::create(&*below, &options_of_lump).map_err(failure)?;
    opened(below, options)
}

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    opened(device(place, None)?, options)
}

/// Opens the place; a file in a directory is made with this capacity, or opened as it is.
fn device(
    place: &StoreLocation,
    set_length: Option<u64>,
) -> Result<Arc<dyn BlockDevice>, StoreError> {
    let (path, set_length) = match place {
        StoreLocation::Open(device) => return Ok(Arc::clone(device)),
        StoreLocation::Device(path) => (path.clone(), None),
        StoreLocation::Directory(directory) => (directory.join(FILE_NAME), set_length),
    };
    let direct = DirectAccess::Prefer;
    let file_options =
        FileDeviceOptions { direct, exclusive: true, set_length, ..FileDeviceOptions::default() };
    match FileDevice::open(&path, &file_options) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(StoreError::system("opening", &path, error)),
    }
}

fn opened(
    below: Arc<dyn BlockDevice>,
    options: &StoreOptions,
) -> Result<Box<dyn Store>, StoreError> {
    let device = Arc::new(CountingDevice::new(below));
    let store = ::lump::Store::open(device.clone(), &OpenOptions::default()).map_err(failure)?;
    let durability =
        if options.sync_every_put { Durability::Durable } else { Durability::Buffered };
    Ok(Box::new(Lump { store, device, durability }))
}

fn failure(error: Error) -> StoreError {
    match error {
        Error::NoSpace { .. } | Error::TooManyObjects { .. } => StoreError::Full(error.to_string()),
        Error::Unsupported(_) | Error::Invalid(_) => StoreError::Refused(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

struct Lump {
    store: ::lump::Store,
    device: Arc<CountingDevice<Arc<dyn BlockDevice>>>,
    durability: Durability,
}

struct LumpSession<'a> {
    lump: &'a Lump,
    prepared: Value,
    found: Value,
}

impl Store for Lump {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        let (prepared, found) = (Value::zeroed(0), Value::zeroed(0));
        Ok(Box::new(LumpSession { lump: self, prepared, found }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync().map_err(failure)
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        let objects = self.store.list(..).map_err(failure)?;
        objects
            .map(|object| {
                let unknown = |_| format!("key {:032x} was not put here", object.key);
                u64::try_from(object.key).map_err(unknown).map_err(StoreError::Failed)
            })
            .collect()
    }

    fn written_bytes(&self) -> Option<u64> {
        Some(self.device.counts().written_bytes)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let geometry = self.store.geometry();
        BTreeMap::from([
            ("unit_bytes".to_owned(), geometry.unit_bytes().to_string()),
            ("capacity_bytes".to_owned(), geometry.store_bytes().to_string()),
            ("journal_bytes".to_owned(), geometry.journal_bytes().to_string()),
            ("durability".to_owned(), format!("{:?}", self.durability)),
        ])
    }

    fn usage(&self) -> BTreeMap<String, u64> {
        let usage = self.store.usage();
        BTreeMap::from([
            ("data_bytes".to_owned(), usage.data_bytes),
            ("free_bytes".to_owned(), usage.free_bytes),
            ("longest_free_bytes".to_owned(), usage.longest_free_bytes),
        ])
    }
}

impl StoreSession for LumpSession<'_> {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        self.prepared.resize(size_bytes);
        Ok(&mut self.prepared)
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        let Lump { store, durability, .. } = self.lump;
        store.put_value(u128::from(key), &mut self.prepared, *durability).map_err(failure)
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        let is_there =
            self.lump.store.get_into(u128::from(key), &mut self.found).map_err(failure)?;
        Ok(is_there.then_some(&self.found[..]))
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        self.lump.store.delete(u128::from(key), self.lump.durability).map_err(failure)
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        let keys = u128::from(keys.start)..u128::from(keys.end.max(keys.start));
        self.lump.store.delete_range(keys, self.lump.durability).map_err(failure)
    }
}
