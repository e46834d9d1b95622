//! What a buffered change promises: it is seen at once, written in order with others, and lost with the
//! process if nothing made it durable before.

#[path = "common/store.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use block::{Fault, FaultyDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::Durability::{Buffered, Durable, Written};
use lump::layout::BLOCK_BYTES;
use lump::{CreateOptions, Error, OpenOptions, Store, Value};

/// A store that writes nothing of its own accord.
fn patient() -> (Arc<MemoryDevice>, Store) {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let store = Store::open(device.clone(), &writes_nothing()).unwrap();
    (device, store)
}

fn writes_nothing() -> OpenOptions {
    OpenOptions { buffer_age_max: Some(Duration::from_secs(3600)), ..Default::default() }
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
    // The values are on the device and the journal has not heard of them, until half the store was written.
    assert!(killed(&device).get(10).unwrap().is_none());
    assert_eq!(store.get(10).unwrap().as_deref(), Some(&pattern(1, 10_000)[..]));
    let puts = (0..500).take_while(|round| {
        store.put(10 + round % 30, &pattern(1, 10_000), Buffered).unwrap();
        killed(&device).get(10).unwrap().is_none()
    });
    let put_bytes = 10_000 * (30 + puts.count());
    assert!((MEBIBYTE as usize..3 * MEBIBYTE as usize).contains(&put_bytes), "{put_bytes}");
    drop(store);
    // What is old is written, whether it waits in memory or has landed.
    let age = Duration::from_millis(50);
    let store = opened(64 << 10, age);
    store.put(50, b"soon", Buffered).unwrap();
    while killed(&device).get(50).unwrap().is_none() {
        std::thread::yield_now();
    }
    (60..64).for_each(|key| store.put(key, &pattern(1, 10_000), Buffered).unwrap());
    while killed(&device).get(63).unwrap().is_none() {
        std::thread::yield_now();
    }
    assert_eq!((store.usage().gathered_bytes, store.usage().gathered_ms), (0, 0));
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

/// The next write is that of the values, then that of the journal; the flush is that of the sync.
#[test]
fn a_failed_write_or_flush_of_buffered_changes_is_never_taken_for_success() {
    let faults: [fn(u64, u64) -> Fault; 3] = [
        |writes, _| Fault::FailWrite(writes),
        |writes, _| Fault::FailWrite(writes + 1),
        |_, flushes| Fault::FailFlush(flushes),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let memory = MemoryDevice::new(4 * MEBIBYTE, 512);
        let device = created(FaultyDevice::new(memory, vec![]), &small());
        let store = Store::open(device.clone(), &writes_nothing()).unwrap();
        store.put(1, b"old", Durable).unwrap();
        store.put(2, b"deleted", Durable).unwrap();
        let before = contents(&store);
        store.put(1, b"new", Buffered).unwrap();
        store.put(3, b"third", Buffered).unwrap();
        assert!(store.delete(2, Buffered).unwrap());
        let (_, writes, flushes) = device.request_counts();
        device.set_faults(vec![fault(writes, flushes)]);
        assert!(matches!(store.sync(), Err(Error::ReadOnly(_))), "fault {number}");
        device.set_faults(vec![]);
        for durability in [Buffered, Written, Durable] {
            let refused = store.put(4, b"more", durability);
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            assert!(matches!(store.delete(1, durability), Err(Error::ReadOnly(_))));
        }
        assert!(matches!(store.sync(), Err(Error::ReadOnly(_))));
        // Gets find what they found before; the list has what was written.
        let get = |key| store.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(get(1).as_deref(), Some(&b"new"[..]));
        assert_eq!((get(2), store.head(2)), (None, None));
        assert_eq!(get(3).as_deref(), Some(&b"third"[..]));
        let listed: Vec<u128> = store.list(..).unwrap().map(|object| object.key).collect();
        let is_written = number == 2;
        assert_eq!(listed, if is_written { [1, 3] } else { [1, 2] });
        assert!(matches!(store.close(), Err(Error::ReadOnly(_))));
        let found = contents(&open(device));
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), listed);
        assert_eq!(found[&1], if is_written { b"new" } else { b"old" });
        assert!(is_written || found == before);
    }
}

#[test]
fn the_limit_of_objects_holds_for_buffered_puts() {
    // A batch may have more changes than there may be objects above the limit for a while.
    let options = CreateOptions { journal_bytes: Some(64 * BLOCK_BYTES), ..small() };
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &options);
    let store = Store::open(device.clone(), &writes_nothing()).unwrap();
    let put = |key: u128, seed: u64| store.put(key, &seed.to_le_bytes(), Buffered);
    (0..200).for_each(|key| put(key, 0).unwrap());
    for durability in [Buffered, Written, Durable] {
        let refused = store.put(200, b"value", durability);
        assert!(matches!(refused, Err(Error::TooManyObjects { limit: 200 })), "{refused:?}");
    }
    (0..2000).for_each(|round| put(u128::from(round % 200), round).unwrap());
    // One that is deleted makes room at once, whoever comes.
    for (key, durability) in (200..).zip([Buffered, Written, Durable]) {
        assert!(store.delete(key - 200, Buffered).unwrap());
        store.put(key, b"value", durability).unwrap();
        assert!(matches!(put(300, 0), Err(Error::TooManyObjects { .. })));
    }
    let before = contents(&store);
    assert_eq!(before.len(), 200);
    store.close().unwrap();
    assert_eq!(contents(&open(device)), before);
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
