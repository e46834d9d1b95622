//! A store that keeps nothing: what is left of a run on it is the laboratory itself.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{
    Demand, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace,
};

pub(super) const KIND: StoreKind = StoreKind {
    name: "null",
    summary: "keeps nothing: the cost of the language itself",
    takes_device: true,
    keeps_contents: false,
    object_bytes_max: u64::MAX,
    missing: || None,
    space: |_: &StoreOptions, _: &Demand| StoreSpace::default(),
    create: open,
    open,
};

fn open(_: &StoreLocation, _: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(Null))
}

struct Null;

struct NullSession;

impl Store for Null {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(NullSession))
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

impl StoreSession for NullSession {
    fn prepare(&mut self, _: usize, _: bool) -> Result<&mut [u8], StoreError> {
        // Contents that nobody will see are not made either.
        Ok(&mut [])
    }

    fn put(&mut self, _: u64) -> Result<(), StoreError> {
        Ok(())
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
