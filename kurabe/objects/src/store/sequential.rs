//! What a device takes at the most: as many bytes as the objects have, 1 MiB at a time, one behind the
//! other and past the page cache, as `fio rw=write bs=1M direct=1` writes. A store's cost relative to it
//! tells how much of the device's sequential rate the store reaches.
//!
//! It keeps nothing, so no contents are made for it. Of several clients each writes what its object
//! completes, all at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{AlignedBuffer, BlockDevice, DirectAccess, FileDevice, FileDeviceOptions};

use super::{
    Demand, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace,
};
use crate::contents::ContentIdentity;

pub(super) const KIND: StoreKind = StoreKind {
    name: "sequential",
    summary: "keeps nothing: writes as many bytes in order, for the rate of a device",
    takes_device: true,
    keeps_contents: false,
    object_bytes_max: u64::MAX,
    missing: || None,
    space: |_: &StoreOptions, _: &Demand| StoreSpace::default(),
    create: open,
    open,
};

const TRANSFER_BYTES: u64 = 1 << 20;
/// Transfers with contents of their own: more than a processor's caches hold, as with the values of a store.
const TRANSFERS_MAX: u64 = 64;

fn open(place: &StoreLocation, _: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let device: Arc<dyn BlockDevice> = match place {
        StoreLocation::Open(device) => Arc::clone(device),
        StoreLocation::Device(path) => {
            let direct = DirectAccess::Require;
            let options = FileDeviceOptions { direct, exclusive: true, ..Default::default() };
            let opened = FileDevice::open(path, &options);
            Arc::new(opened.map_err(|error| StoreError::system("opening", path, error))?)
        }
        StoreLocation::Directory(_) => {
            let why = "the store 'sequential' shows what a device takes; use 'sequential over raw'";
            return Err(StoreError::Refused(why.into()));
        }
    };
    let places = device.len() / TRANSFER_BYTES;
    if places == 0 {
        return Err(StoreError::Refused("the store 'sequential' needs a device of 1 MiB".into()));
    }
    let contents_bytes = places.min(TRANSFERS_MAX) * TRANSFER_BYTES;
    let mut contents = AlignedBuffer::zeroed(contents_bytes as usize);
    ContentIdentity { salt: 0, key: 0, version: 0 }.fill(&mut contents);
    Ok(Box::new(Sequential { device, places, contents, taken_bytes: AtomicU64::new(0) }))
}

struct Sequential {
    device: Arc<dyn BlockDevice>,
    /// Transfers that the device has room for; then it begins anew.
    places: u64,
    /// Of the transfers, which begin anew after the last.
    contents: AlignedBuffer,
    taken_bytes: AtomicU64,
}

struct SequentialSession<'a> {
    store: &'a Sequential,
    prepared_bytes: u64,
}

impl Sequential {
    fn write(&self, number: u64) -> Result<(), StoreError> {
        let offset = number % self.places * TRANSFER_BYTES;
        let at = (number * TRANSFER_BYTES) as usize % self.contents.len();
        let written = self.device.write_at(&self.contents[at..][..TRANSFER_BYTES as usize], offset);
        written.map_err(|error| StoreError::Failed(format!("writing at byte {offset}: {error}")))
    }
}

impl Store for Sequential {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(SequentialSession { store: self, prepared_bytes: 0 }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        let taken_bytes = self.taken_bytes.load(Ordering::Relaxed);
        if !taken_bytes.is_multiple_of(TRANSFER_BYTES) {
            self.write(taken_bytes / TRANSFER_BYTES)?;
        }
        self.device.flush().map_err(|error| StoreError::Failed(format!("flushing: {error}")))
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("transfer_bytes".to_owned(), TRANSFER_BYTES.to_string())])
    }
}

impl StoreSession for SequentialSession<'_> {
    fn prepare(&mut self, size_bytes: usize, _: bool) -> Result<&mut [u8], StoreError> {
        self.prepared_bytes = size_bytes as u64;
        Ok(&mut [])
    }

    fn put(&mut self, _: u64) -> Result<(), StoreError> {
        let before = self.store.taken_bytes.fetch_add(self.prepared_bytes, Ordering::Relaxed);
        let after = before + self.prepared_bytes;
        (before / TRANSFER_BYTES..after / TRANSFER_BYTES).try_for_each(|one| self.store.write(one))
    }

    fn get(&mut self, _: u64) -> Result<Option<&[u8]>, StoreError> {
        Ok(Some(&[]))
    }

    fn delete(&mut self, _: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn delete_range(&mut self, _: Range<u64>) -> Result<u64, StoreError> {
        Ok(0)
    }
}
