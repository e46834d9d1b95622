//! Small stores, for several tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::BlockDevice;
use lump::layout::BLOCK_BYTES;
use lump::{CreateOptions, OpenOptions, Store};

pub const MEBIBYTE: u64 = 1 << 20;

pub fn small() -> CreateOptions {
    CreateOptions {
        objects_max: Some(200),
        journal_bytes: Some(16 * BLOCK_BYTES),
        uuid: Some(uuid::Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        unit_bytes: None,
        ..CreateOptions::default()
    }
}

pub fn created<D: BlockDevice>(device: D, options: &CreateOptions) -> Arc<D> {
    Store::create(&device, options).unwrap();
    Arc::new(device)
}

pub fn open(device: Arc<dyn BlockDevice>) -> Store {
    Store::open(device, &OpenOptions::default()).unwrap()
}

/// As [`open`], but puts flush for themselves, or not.
pub fn open_so(device: Arc<dyn BlockDevice>, own_flushes: bool) -> Store {
    let options = OpenOptions { own_flushes: Some(own_flushes), ..Default::default() };
    Store::open(device, &options).unwrap()
}

/// Bytes that differ by seed and place, and are quickly made without optimization.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let word = |number: u64| (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(9) ^ number;
    let words = (0..length.div_ceil(8) as u64).map(|number| word(number).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(length);
    bytes
}

pub fn contents(store: &Store) -> BTreeMap<u128, Vec<u8>> {
    let keys = store.list(..).unwrap().map(|object| object.key);
    keys.map(|key| (key, store.get(key).unwrap().unwrap().to_vec())).collect()
}
