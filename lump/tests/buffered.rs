//! What a buffered change promises: it is seen at once, written in order with others, and lost with the
//! process if nothing made it durable before.

#[path = "common/store.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, Fault, FaultyDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::Durability::{Buffered, Durable, Written};
use lump::{Error, OpenOptions, Store, Value};

/// A store that writes nothing of its own accord.
fn patient() -> (Arc<MemoryDevice>, Store) {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let options =
        OpenOptions { buffer_age_max: Some(Duration::from_secs(3600)), ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    (device, store)
}

/// What is found if the process is killed now.
fn killed(device: &MemoryDevice) -> Store {
    open(Arc::new(MemoryDevice::from_image(&device.image(), 512)))
}

#[test]
fn a_buffered_change_is_seen_at_once_and_survives_after_a_sync() {
    let (device, store) = patient();
    store.put(1, b"old", Durable).unwrap();
    store.put(1, b"new", Buffered).unwrap();
    store.put(2, b"another", Buffered).unwrap();
    assert_eq!(&store.get(1).unwrap().unwrap()[..], b"new");
    assert_eq!(store.head(2).unwrap().length_bytes, 7);
    assert_eq!(store.get_range(2, 2..5).unwrap().unwrap(), b"oth");
    assert!(matches!(store.get_range(2, 2..8), Err(Error::BadRange { .. })));
    assert!(store.usage().gathered_bytes > 0);
    assert!(store.delete(2, Buffered).unwrap() && !store.delete(2, Buffered).unwrap());
    assert!(store.get(2).unwrap().is_none() && store.head(2).is_none());
    let before = contents(&killed(&device));
    assert_eq!(&before[&1][..], b"old");
    store.sync().unwrap();
    assert_eq!(store.usage().gathered_bytes, 0);
    assert_eq!(contents(&killed(&device)), contents(&store));
    assert_eq!(&store.get(1).unwrap().unwrap()[..], b"new");
}

#[test]
fn a_large_buffered_value_is_kept_and_its_client_has_other_memory() {
    let (device, store) = patient();
    let large = |seed| pattern(seed, 300_000);
    let mut value = Value::from(&large(0)[..]);
    for key in 0..4 {
        value.copy_from_slice(&large(key as u64));
        store.put_value(key, &mut value, Buffered).unwrap();
        assert_eq!(value.len(), 300_000);
        value.fill(7);
        store.put(key + 10, &pattern(key as u64, 1000), Buffered).unwrap();
    }
    store.put(1, &large(9), Buffered).unwrap();
    // A value that has much more memory than it needs is copied.
    let mut roomy = Value::zeroed(800_000);
    roomy.resize(300_000);
    roomy.copy_from_slice(&large(8));
    store.put_value(2, &mut roomy, Buffered).unwrap();
    let expected = [large(0), large(9), large(8), large(3)];
    for round in 0..2 {
        for (key, bytes) in (0..).zip(&expected) {
            assert!(store.get(key).unwrap().unwrap()[..] == bytes[..], "key {key}, round {round}");
            assert!(
                store.get_range(key, 99_000..99_900).unwrap().unwrap() == bytes[99_000..99_900]
            );
            assert_eq!(store.get(key + 10).unwrap().unwrap()[..], pattern(key as u64, 1000));
        }
        store.sync().unwrap();
    }
    assert!(contents(&killed(&device)) == contents(&store));
    assert_eq!(store.left_out(), None);
}

#[test]
fn a_change_of_another_kind_comes_after_the_buffered_ones_of_its_keys() {
    let (device, store) = patient();
    store.put(1, b"buffered", Buffered).unwrap();
    store.put(1, b"durable", Durable).unwrap();
    store.put(2, b"buffered", Buffered).unwrap();
    assert!(store.delete(2, Written).unwrap());
    (3..9).for_each(|key| store.put(key, b"buffered", Buffered).unwrap());
    assert_eq!(store.delete_range(5..7, Durable).unwrap(), 2);
    assert_eq!(store.list(..).unwrap().map(|one| one.key).collect::<Vec<_>>(), [1, 3, 4, 7, 8]);
    let expected = contents(&store);
    assert_eq!(&expected[&1][..], b"durable");
    assert_eq!(contents(&killed(&device)), expected);
    store.close().unwrap();
    assert_eq!(contents(&open(device)), expected);
}

#[test]
fn the_limits_of_the_buffer_hold() {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let opened = |bytes: u64, age: Duration| {
        let options = OpenOptions {
            buffer_bytes_max: Some(bytes),
            buffer_age_max: Some(age),
            ..Default::default()
        };
        Store::open(device.clone(), &options).unwrap()
    };
    let hour = Duration::from_secs(3600);
    // None at all; and a value of more than a quarter.
    for (key, bytes) in [(1, 0), (2, 64 << 10)] {
        let store = opened(bytes, hour);
        store.put(key, &pattern(1, 40_000), Buffered).unwrap();
        assert!(killed(&device).get(key).unwrap().is_some());
    }
    // What is full is written, and so is what is old.
    let store = opened(64 << 10, hour);
    for key in 10..40 {
        store.put(key, &pattern(1, 10_000), Buffered).unwrap();
        assert!(store.usage().gathered_bytes <= 64 << 10);
    }
    assert!(killed(&device).get(10).unwrap().is_some());
    drop(store);
    let store = opened(1 << 20, Duration::ZERO);
    store.put(50, b"soon", Buffered).unwrap();
    while killed(&device).get(50).unwrap().is_none() {
        std::thread::yield_now();
    }
    drop(store);
    // A full store says so, and has what it took.
    let store = opened(1 << 20, hour);
    let put = |key: u128| store.put(key, &pattern(key as u64, 50_000), Buffered);
    let first_refused = (100..).find(|key| put(*key).is_err()).unwrap();
    assert!(matches!(put(first_refused), Err(Error::NoSpace { .. })));
    let expected = contents(&store);
    assert_eq!(expected.range(100..).count() as u128, first_refused - 100);
    store.close().unwrap();
    assert!(contents(&open(device.clone())) == expected);
}

#[test]
fn a_failed_write_of_buffered_changes_is_never_taken_for_success() {
    let memory = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    // Those of the opening are fewer.
    let device = Arc::new(FaultyDevice::new(memory, vec![Fault::FailWrite(40)]));
    let store = open(device.clone());
    let mut key = 0;
    let error = loop {
        // It may also be a checkpoint in the background that fails.
        let put = store.put(key, &pattern(1, 5000), Buffered);
        key += u128::from(put.is_ok());
        if let Err(error) = put.and_then(|()| store.sync()) {
            break error;
        }
    };
    assert!(matches!(error, Error::ReadOnly(_)), "{error}");
    for durability in [Buffered, Written, Durable] {
        let refused = store.put(key, b"more", durability);
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    }
    assert!(matches!(store.sync(), Err(Error::ReadOnly(_))));
    // Readers see what they saw before.
    assert_eq!(store.get(key - 1).unwrap().unwrap()[..], pattern(1, 5000));
    assert_eq!(device.len(), 4 * MEBIBYTE);
    assert!(matches!(store.close(), Err(Error::ReadOnly(_))));
}

#[test]
fn clients_at_once_find_what_they_buffered() {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let options = OpenOptions { buffer_bytes_max: Some(64 << 10), ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    std::thread::scope(|scope| {
        for client in 0..4_u128 {
            let store = &store;
            scope.spawn(move || {
                for step in 0..300_u64 {
                    let key = client * 1000 + u128::from(step % 7);
                    let bytes = pattern(step, (step as usize * 397) % 12_000);
                    let durability = [Buffered, Buffered, Written, Durable][step as usize % 4];
                    store.put(key, &bytes, durability).unwrap();
                    assert_eq!(store.get(key).unwrap().unwrap()[..], bytes);
                    if step % 11 == 0 {
                        assert!(store.delete(key, durability).unwrap());
                        assert!(store.get(key).unwrap().is_none());
                    }
                }
            });
        }
    });
    let before = contents(&store);
    store.close().unwrap();
    assert_eq!(contents(&open_so(device, true)), before);
}
