//! Changed images of a store, for the tests and for the fuzzer: nothing may panic, leave the device
//! or give out bytes that were not put.

use std::sync::Arc;

use block::MemoryDevice;
use lump::layout::{self, BLOCK_BYTES};
use lump::{CreateOptions, Durability, OpenOptions, Store, check};

const UUID: [u8; 16] = *b"0123456789abcdef";
const IMAGE_BYTES: u64 = 512 << 10;
/// A change: three bytes of its place, what is written there, and whether sums are made right.
const CHANGE_BYTES: usize = 5;

/// The value that the base image has under `key`.
fn value(key: u128) -> Vec<u8> {
    vec![key as u8 + 1; 700 * (key as usize % 9)]
}

/// A store with a checkpoint, additions to it, a journal after it, and values in one and several chunks.
pub fn base_image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES, 512));
    let options = CreateOptions {
        objects_max: Some(100),
        journal_bytes: Some(24 * BLOCK_BYTES),
        uuid: Some(uuid::Uuid::from_bytes(UUID)),
        ..Default::default()
    };
    Store::create(&*device, &options).unwrap();
    let store = Store::open(device.clone(), &OpenOptions::default()).unwrap();
    (0..8).for_each(|key| store.put(key, &value(key), Durability::Durable).unwrap());
    store.checkpoint().unwrap();
    (8..12).for_each(|key| store.put(key, &value(key), Durability::Durable).unwrap());
    store.checkpoint().unwrap();
    store.delete(3, Durability::Durable).unwrap();
    store.put(200, &vec![201; 100_000], Durability::Written).unwrap();
    store.close().unwrap();
    device.image()
}

/// A store that was cut off, with puts that the journal does not name.
pub fn window_image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_image(&base_image(), 512));
    let options = OpenOptions { own_flushes: Some(true), ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    (5..15).for_each(|key| store.put(key, &value(key), Durability::Durable).unwrap());
    device.image()
}

/// Applies the changes that `input` describes. Returns whether any sum was made right.
pub fn mutate(image: &mut [u8], input: &[u8]) -> bool {
    let mut is_sealed = false;
    for change in input.chunks_exact(CHANGE_BYTES) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let place = place % image.len();
        image[place] = change[3];
        let start = place / BLOCK_BYTES as usize * BLOCK_BYTES as usize;
        let block = &mut image[start..start + BLOCK_BYTES as usize];
        if change[4] % 2 == 1 {
            is_sealed = true;
            let uuid = if start == 0 { [0; 16] } else { UUID };
            layout::seal(&uuid, block);
        }
    }
    is_sealed
}

/// Judges, opens, reads and uses an image; `is_honest` says that no sum was forged, so that every
/// value that comes back must be the one that was put.
pub fn exercise(image: &[u8], is_honest: bool) {
    let device = Arc::new(MemoryDevice::from_image(image, 512));
    let is_clean = check(device.clone()).is_ok_and(|report| report.findings.is_empty());
    let Ok(store) = Store::open(device, &OpenOptions::default()) else {
        assert!(!is_clean, "the check calls clean what does not open");
        return;
    };
    let objects: Vec<_> = store.list(..).unwrap().collect();
    for object in objects {
        let Ok(found) = store.get(object.key) else { continue };
        let found = found.expect("what is listed is there");
        assert_eq!(found.len() as u64, object.length_bytes);
        if is_honest {
            let expected = if object.key == 200 { vec![201; 100_000] } else { value(object.key) };
            assert!(found[..] == expected, "key {} has other bytes", object.key);
        }
        let _ = store.get_range(object.key, 0..found.len() as u64 / 2);
    }
    for key in 0..20 {
        let _ = store.put(key, &[7; 9000], Durability::Written);
    }
    let _ = store.delete_range(.., Durability::Durable);
    let _ = store.checkpoint();
}
