//! What the store promises while the power stays on: contents, costs, limits, faults, damage.

#[path = "common/store.rs"]
mod common;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, CountingDevice, Fault, FaultyDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::layout::{self, BLOCK_BYTES, JOURNAL_BLOCK};
use lump::{CreateOptions, Durability, Error, OpenOptions, Sabotage, Store, Value, check};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use Durability::{Buffered, Durable, Written};

#[path = "store/window.rs"]
mod window;

#[test]
fn a_store_does_what_a_map_does_and_is_the_same_after_every_opening() {
    for (seed, block_size, own) in [(1, 512, false), (2, 4096, false), (3, 512, true)] {
        let device = created(MemoryDevice::new(2 * MEBIBYTE, block_size), &small());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut store, mut model) = (open_so(device.clone(), own), BTreeMap::new());
        for step in 0..1500 {
            let key = random.random_range(0..40_u128) << (random.random_range(0..3) * 60);
            let durability = if random.random() { Durable } else { Written };
            match random.random_range(0..100) {
                0..50 => {
                    let length = random.random_range(0..20_000);
                    let bytes = pattern(step, if length < 2000 { 0 } else { length });
                    store.put(key, &bytes, durability).unwrap();
                    model.insert(key, bytes);
                }
                50..70 => {
                    let existed = store.delete(key, durability).unwrap();
                    assert_eq!(existed, model.remove(&key).is_some());
                }
                70..73 => {
                    let end = key.saturating_add(3);
                    let count = store.delete_range(key..end, durability).unwrap();
                    let before = model.len();
                    model.retain(|found, _| !(key..end).contains(found));
                    assert_eq!(count, (before - model.len()) as u64);
                }
                73..90 => {
                    let expected = model.get(&key).map(Vec::as_slice);
                    assert_eq!(store.get(key).unwrap().as_deref(), expected);
                    let length = store.head(key).map(|object| object.length_bytes);
                    assert_eq!(length, expected.map(|bytes| bytes.len() as u64));
                }
                90..97 => {
                    let keys: Vec<_> =
                        store.list(key..).unwrap().map(|object| object.key).collect();
                    assert_eq!(keys, model.range(key..).map(|(key, _)| *key).collect::<Vec<_>>());
                }
                _ => {
                    drop(store);
                    store = open_so(device.clone(), own);
                    assert_eq!(contents(&store), model, "seed {seed}, step {step}");
                }
            }
        }
        assert_eq!(store.usage().objects, model.len() as u64);
        store.close().unwrap();
        assert_eq!(check(device).unwrap().findings, [""; 0]);
    }
}

#[test]
fn values_of_every_size_come_back_whole_and_in_ranges() {
    for block_size in [512, 4096] {
        let device = created(MemoryDevice::new(80 * MEBIBYTE, block_size), &small());
        let store = open(device);
        let sizes = [0, 1, 463, 464, 465, 4047, 4048, 4049, 65_536, 65_537, 300_001, 64 << 20];
        for (key, length) in (0..).zip(sizes) {
            let bytes = pattern(1, length);
            let mut value = Value::from(&bytes[..]);
            store.put_value(key, &mut value, Durable).unwrap();
            assert_eq!(value[..], bytes, "a put leaves its value as it was");
            assert_eq!(store.get(key).unwrap().unwrap()[..], bytes);
            let end = length as u64;
            for range in [0..0, 0..end, end / 2..end, end / 3..end / 3 + end.min(5), end..end] {
                let expected = &bytes[range.start as usize..range.end as usize];
                assert_eq!(store.get_range(key, range).unwrap().unwrap(), expected);
            }
            assert!(matches!(store.get_range(key, 0..end + 1), Err(Error::BadRange { .. })));
            let (start, end) = (1, 0);
            assert!(matches!(store.get_range(key, start..end), Err(Error::BadRange { .. })));
            store.delete(key, Durable).unwrap();
        }
        assert!(store.get_range(5, 0..1).unwrap().is_none());
        let (first, last) = (5, 4);
        let reversed = store.delete_range(first..=last, Durable).unwrap_err();
        assert!(matches!(reversed, Error::Invalid(_)), "{reversed}");
        assert_eq!(store.delete_range(5..5, Durable).unwrap(), 0);
    }
}

#[test]
fn an_operation_costs_what_the_format_says() {
    // The journal has room for all, so that no checkpoint comes from behind.
    let options = CreateOptions { journal_bytes: Some(128 * BLOCK_BYTES), ..small() };
    let device = created(CountingDevice::new(MemoryDevice::new(8 << 20, 512)), &options);
    let store = open(device.clone());
    let cost = |act: &dyn Fn()| {
        device.take_counts();
        act();
        let counts = device.take_counts();
        (counts.reads, counts.writes, counts.flushes)
    };
    let bytes = pattern(1, 1 << 20);
    assert_eq!(cost(&|| store.put(1, &bytes, Durable).unwrap()), (0, 2, 1));
    assert_eq!(cost(&|| store.put(2, &bytes, Written).unwrap()), (0, 2, 0));
    assert_eq!(cost(&|| store.sync().unwrap()), (0, 0, 1));
    assert_eq!(cost(&|| store.sync().unwrap()), (0, 0, 0));
    assert_eq!(cost(&|| drop(store.get(1).unwrap().unwrap())), (1, 0, 0));
    assert_eq!(cost(&|| drop(store.get(3).unwrap())), (0, 0, 0));
    assert_eq!(cost(&|| assert!(store.head(1).is_some())), (0, 0, 0));
    // A value is read without what follows its last unit.
    for length in [0, 4000, 4096, 4097, 65_536, 1 << 20] {
        store.put(4, &bytes[..length], Durable).unwrap();
        device.take_counts();
        assert_eq!(store.get(4).unwrap().unwrap()[..], bytes[..length]);
        let counts = device.take_counts();
        assert_eq!(counts.read_bytes, length.next_multiple_of(512) as u64);
        assert_eq!((counts.reads, counts.writes), (1, 0), "{length} bytes");
    }
    // A small part of a large value: its tail and its chunk.
    device.take_counts();
    assert_eq!(store.get_range(1, 70_000..70_010).unwrap().unwrap(), bytes[70_000..70_010]);
    let counts = device.take_counts();
    assert_eq!((counts.reads, counts.read_bytes), (2, 65_536 + 512));
    assert_eq!(cost(&|| assert!(store.delete(1, Durable).unwrap())), (0, 1, 1));
    assert_eq!(cost(&|| assert_eq!(store.delete_range(.., Durable).unwrap(), 2)), (0, 1, 1));
    drop(store);
    // A window is there after the first put that could have gone into it.
    let store = open_so(device.clone(), true);
    let bytes = &bytes[..256 << 10];
    assert_eq!(cost(&|| store.put(1, bytes, Durable).unwrap()), (0, 2, 1));
    assert_eq!(cost(&|| store.put(2, bytes, Durable).unwrap()), (0, 1, 1));
    assert_eq!(cost(&|| assert!(store.delete(1, Durable).unwrap())), (0, 1, 1));
    assert_eq!(cost(&|| store.put(3, bytes, Durable).unwrap()), (0, 2, 1));
}

#[test]
fn a_checkpoint_of_few_changes_is_small_and_counts_as_much() {
    let options = CreateOptions { objects_max: Some(20_000), ..small() };
    let device = created(CountingDevice::new(MemoryDevice::new(16 * MEBIBYTE, 512)), &options);
    let mut store = open(device.clone());
    for key in 0..20_000 {
        store.put(key, &[], Written).unwrap();
    }
    store.checkpoint().unwrap();
    let (mut model, mut written) = (contents(&store), Vec::new());
    // The 159 blocks of a checkpoint take 19 of additions.
    for round in 0..60_u64 {
        for key in [round, 20_000 + round] {
            store.delete(u128::from(key) * 3 % 20_000, Written).unwrap();
            model.remove(&(u128::from(key) * 3 % 20_000));
        }
        store.put(7, &pattern(round, 300), Written).unwrap();
        model.insert(7, pattern(round, 300));
        store.delete_range(5000..5000 + u128::from(round), Durable).unwrap();
        model.retain(|key, _| !(5000..5000 + u128::from(round)).contains(key));
        device.take_counts();
        store.checkpoint().unwrap();
        written.push(device.take_counts().written_bytes / BLOCK_BYTES);
        if round % 7 == 0 {
            drop(store);
            store = open(device.clone());
            assert_eq!(store.usage().objects, model.len() as u64);
        }
    }
    assert!(written.iter().all(|blocks| *blocks == 2 || *blocks > 150), "{written:?}");
    let large = written.iter().filter(|blocks| **blocks > 150).count();
    assert!((2..=4).contains(&large), "{written:?}");
    assert_eq!(contents(&store), model);
    if written.last().unwrap() > &150 {
        // What is damaged below shall count.
        store.put(7, &model[&7], Durable).unwrap();
        store.checkpoint().unwrap();
    }
    store.close().unwrap();
    assert_eq!(contents(&open(device.clone())), model);
    // What was added is missed.
    let image = device.inner().image();
    let is_addition = |block: &[u8]| block.starts_with(&layout::ADDITIONS_MAGIC);
    let newest = |block: &[u8]| layout::read::<layout::BlockHeader>(block).epoch.get();
    let blocks = || image.chunks(4096).enumerate().filter(|(_, block)| is_addition(block));
    let number = blocks().map(|(_, block)| newest(block)).max().unwrap();
    let (at, _) = blocks().find(|(_, block)| newest(block) == number).unwrap();
    let mut image = image.clone();
    image[at * 4096 + 70] ^= 1;
    let device = Arc::new(MemoryDevice::from_image(&image, 512));
    let error = Store::open(device, &OpenOptions::default()).err().unwrap().to_string();
    let expected = format!("block 1 of what was added to the checkpoint, at byte {}", at * 4096);
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_full_store_keeps_its_values_deletes_and_takes_as_much_again() {
    for (block_size, own) in [(512, false), (4096, false), (512, true)] {
        let device = created(MemoryDevice::new(2 * MEBIBYTE, block_size), &small());
        let mut counts = Vec::new();
        for round in 0..3 {
            let store = open_so(device.clone(), own);
            let bytes = |key: u128| pattern(key as u64 + round, 16_000);
            let full = |key| match store.put(key, &bytes(key), Durable) {
                Ok(()) => None,
                Err(error) => Some((key, error)),
            };
            let (count, error) = (0..).find_map(full).unwrap();
            assert!(matches!(error, Error::NoSpace { .. }), "{error}");
            let replaced = store.put(0, &pattern(99, 16_000), Durable).unwrap_err();
            assert!(matches!(replaced, Error::NoSpace { .. }), "{replaced}");
            drop(store);
            let store = open(device.clone());
            (0..count).for_each(|key| assert_eq!(store.get(key).unwrap().unwrap()[..], bytes(key)));
            assert!(store.delete(0, Durable).unwrap());
            assert_eq!(store.delete_range(.., Durable).unwrap(), count as u64 - 1);
            counts.push(count);
            assert_eq!(contents(&store).len(), 0);
        }
        assert!(counts[0] > 80 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
}

#[test]
fn the_limit_of_objects_holds_and_values_can_still_be_replaced() {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let store = open(device.clone());
    (0..200).for_each(|key| store.put(key, b"value", Written).unwrap());
    let error = store.put(200, b"value", Durable).unwrap_err();
    assert!(matches!(error, Error::TooManyObjects { limit: 200 }), "{error}");
    for round in 0..2000_u64 {
        store.put(u128::from(round % 200), &round.to_le_bytes(), Written).unwrap();
    }
    assert!(store.delete(7, Durable).unwrap());
    store.put(200, b"value", Durable).unwrap();
    let before = contents(&store);
    drop(store);
    assert_eq!(contents(&open(device)), before);
}

/// Puts, deletes and overwrites; returns what each key may hold: the last value that was answered,
/// then those that were refused, and those that are back if what was buffered is lost.
fn scripted(store: &Store, buffers: bool) -> BTreeMap<u128, Vec<Option<Vec<u8>>>> {
    let mut model: BTreeMap<u128, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    let mut has_failed = false;
    for step in 0..24_u64 {
        let key = u128::from(step % 5);
        let wish = (step % 7 != 3).then(|| pattern(step, 3000));
        let durability = match step % 4 {
            1 => Written,
            3 if buffers => Buffered,
            _ => Durable,
        };
        let outcome = match &wish {
            Some(bytes) => store.put(key, bytes, durability),
            None => store.delete(key, durability).map(drop),
        };
        if step == 12 {
            let _ = store.checkpoint();
        }
        let values = model.entry(key).or_insert_with(|| vec![None]);
        match outcome {
            Ok(()) => {
                assert!(!has_failed || store.read_only_reason().is_none(), "step {step}");
                if durability == Buffered {
                    values.insert(0, wish);
                } else {
                    *values = vec![wish];
                }
            }
            // Its data could not be written: it did not take place.
            Err(Error::Device { .. }) => has_failed = true,
            Err(_) => {
                values.push(wish);
                has_failed = true;
            }
        }
        // Readers find what was answered, whatever the writers met.
        let values = &model[&key];
        assert_eq!(store.get(key).unwrap().as_deref(), values[0].as_deref(), "step {step}");
        if buffers && step == 18 && store.sync().is_ok() {
            model.values_mut().for_each(|values| values.truncate(1));
        }
    }
    model
}

#[test]
fn after_a_failed_write_or_flush_nothing_is_wrong_and_nothing_is_lost() {
    for (own_flushes, buffers) in [(false, false), (true, false), (false, true)] {
        fail_each_write_and_flush(own_flushes, buffers);
    }
}

fn fail_each_write_and_flush(own_flushes: bool, buffers: bool) {
    // So long a journal that no checkpoint is due: the background's would come when it likes.
    let options = CreateOptions { journal_bytes: Some(80 * BLOCK_BYTES), ..small() };
    let base = created(MemoryDevice::new(MEBIBYTE, 512), &options).image();
    let device = |faults| Arc::new(FaultyDevice::new(MemoryDevice::from_image(&base, 512), faults));
    let clean = device(vec![]);
    // What is buffered is written when the script says so.
    let options = OpenOptions {
        own_flushes: Some(own_flushes),
        buffer_age_max: Some(Duration::from_secs(3600)),
        ..Default::default()
    };
    drop(scripted(&Store::open(clean.clone(), &options).unwrap(), buffers));
    let (_, writes, flushes) = clean.request_counts();
    assert!(writes > 40 && flushes > if buffers { 15 } else { 20 });
    let faults = (0..writes)
        .flat_map(|number| {
            let torn = Fault::TearWrite { number, kept_bytes: 512 };
            [Fault::FailWrite(number), torn, Fault::FailWritesFrom(number)]
        })
        .chain((0..flushes).map(Fault::FailFlush));
    let mut refusals = 0;
    for fault in faults {
        let device = device(vec![fault]);
        let Ok(store) = Store::open(device.clone(), &options) else { continue };
        let model = scripted(&store, buffers);
        let refused = store.read_only_reason().is_some();
        refusals += u64::from(refused);
        if refused {
            let (_, writes, flushes) = device.request_counts();
            assert!(matches!(store.put(9, b"new", Durable), Err(Error::ReadOnly(_))), "{fault:?}");
            assert!(matches!(store.delete(9, Written), Err(Error::ReadOnly(_))), "{fault:?}");
            assert!(store.sync().is_err() && store.delete_range(.., Durable).is_err());
            let asked = device.request_counts();
            assert_eq!((asked.1, asked.2), (writes, flushes), "{fault:?}: nothing was tried");
        } else {
            // Only the data of a put failed, or the last words of the store: a fence, and before it
            // what ends a window or was buffered.
            let last = if own_flushes || buffers { 2 } else { 1 };
            let is_early = matches!(fault, Fault::FailFlush(number) if number + last < flushes);
            assert!(!is_early, "{fault:?}");
        }
        drop(store);
        device.set_faults(vec![]);
        let found = contents(&open(device.clone()));
        for (key, values) in model {
            let value = found.get(&key).cloned();
            assert!(values.contains(&value), "{fault:?}: key {key}");
        }
        assert_eq!(check(device).unwrap().findings, [""; 0], "{fault:?}");
    }
    assert!(refusals > 60, "{refusals}");
}

#[test]
fn a_failing_read_is_an_error_of_that_read_only() {
    let device = created(FaultyDevice::new(MemoryDevice::new(MEBIBYTE, 512), vec![]), &small());
    let store = open(device.clone());
    store.put(1, b"value", Durable).unwrap();
    device.set_faults(vec![Fault::FailRead(device.request_counts().0)]);
    assert!(matches!(store.get(1), Err(Error::Device { .. })));
    assert_eq!(store.get(1).unwrap().unwrap()[..], *b"value");
}

/// An image with a checkpoint, a journal after it, and values of several chunks; its contents.
fn sample() -> (Vec<u8>, BTreeMap<u128, Vec<u8>>) {
    let device = created(MemoryDevice::new(MEBIBYTE, 512), &small());
    let store = open(device.clone());
    for step in 0..30_u64 {
        store
            .put(u128::from(step % 13), &pattern(step, 2000 + step as usize * 31), Durable)
            .unwrap();
    }
    // What follows is too little for another one, which would come when it likes.
    store.checkpoint().unwrap();
    store.put(u128::MAX, &pattern(77, 300_000), Written).unwrap();
    store.put(20, b"", Written).unwrap();
    store.delete(3, Written).unwrap();
    store.delete_range(5..=6, Written).unwrap();
    (21..23).for_each(|key| store.put(key, b"last", Durable).unwrap());
    let found = contents(&store);
    store.close().unwrap();
    (device.image(), found)
}

#[test]
fn a_flipped_bit_is_named_and_never_given_out() {
    let (mut image, _) = sample();
    let needle = &pattern(77, 300_000)[100_000..100_064];
    let at = image.windows(64).position(|window| window == needle).unwrap();
    image[at] ^= 4;
    let device = Arc::new(MemoryDevice::from_image(&image, 512));
    let store = open(device.clone());
    let error = store.get(u128::MAX).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Corrupt { key: u128::MAX, length_bytes: 300_000, .. }));
    assert!(text.contains("ffffffffffffffff") && text.contains("the value is"), "{text}");
    let part = store.get_range(u128::MAX, 70_000..70_001).unwrap_err().to_string();
    assert!(part.contains("chunk 1 of 64 KiB"), "{part}");
    assert_eq!(store.metrics().corruptions, 2);
    assert!(store.get_range(u128::MAX, 10..20).is_ok());
    let mut failures = Vec::new();
    let report = store.scrub(Some(1 << 40), |error| failures.push(error.to_string()));
    assert_eq!((report.objects, report.failures), (13, 1));
    assert_eq!(failures, std::slice::from_ref(&part));
    assert!(check(device.clone()).unwrap().findings.contains(&part));
    drop(store);
    let options = OpenOptions { sabotage: Sabotage::TrustData, ..Default::default() };
    let canary = Store::open(device, &options).unwrap().get(u128::MAX).unwrap().unwrap();
    assert!(canary[..] != pattern(77, 300_000), "the canary must give corrupt data out");
}

/// Values of one and of several chunks, all behind a checkpoint; `seed` makes others of the same lengths.
fn values(seed: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
    let device = created(MemoryDevice::new(MEBIBYTE, 512), &small());
    let store = open(device.clone());
    let lengths = [4096, 4096, 1000, 150_000, 150_000];
    let values: Vec<_> =
        (seed..).zip(lengths).map(|(seed, length)| pattern(seed, length)).collect();
    for (key, value) in values.iter().enumerate() {
        store.put(key as u128, value, Durable).unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    (device.image(), values)
}

fn place_of(needle: &[u8], image: &[u8]) -> usize {
    image.windows(needle.len()).position(|window| window == needle).unwrap()
}

#[test]
fn a_get_finds_whatever_is_not_the_value_of_its_key() {
    let ((image, values), (other, _)) = (values(1), values(1001));
    let places: Vec<_> = values.iter().map(|value| place_of(value, &image)).collect();
    let extent = |key: usize| {
        let length = values[key].len();
        let bytes = (length + 4 * length.div_ceil(65_536) + 48).next_multiple_of(512);
        places[key]..places[key] + bytes
    };
    let damaged = |key: usize, bytes: &[u8]| {
        let mut image = image.clone();
        image[extent(key)].copy_from_slice(bytes);
        (key, image)
    };
    let mut images = Vec::new();
    for (key, value) in values.iter().enumerate() {
        for place in [0, value.len() / 2, value.len() - 1] {
            let mut bytes = image[extent(key)].to_vec();
            bytes[place] ^= 0x10;
            images.push(damaged(key, &bytes));
        }
        // Never written; another value of this key in this place, which lost its last write.
        images.push(damaged(key, &vec![0; extent(key).len()]));
        images.push(damaged(key, &other[extent(key)]));
    }
    // Another key's extent of the same length: sent to the wrong place.
    for (key, from) in [(0, 1), (1, 0), (3, 4)] {
        images.push(damaged(key, &image[extent(from)]));
    }
    // The same of a part.
    let mut torn = image[extent(3)].to_vec();
    torn[65_536..131_072].copy_from_slice(&image[extent(4)][65_536..131_072]);
    images.push(damaged(3, &torn));
    // The checkpoint has another key, place or length, all with the right sums.
    let is_checkpoint = |block: &[u8]| block.starts_with(&layout::CHECKPOINT_MAGIC);
    let start = image.chunks(4096).position(is_checkpoint).unwrap() * 4096;
    let entry = |key: usize| {
        let mut entries = image[start + 64..start + 4096].chunks(32);
        start
            + 64
            + 32 * entries.position(|entry| entry[..16] == (key as u128).to_le_bytes()).unwrap()
    };
    let forged = |key: usize, place: usize, wrong: u8| {
        let mut image = image.clone();
        image[entry(key) + place] ^= wrong;
        let uuid = small().uuid.unwrap().into_bytes();
        layout::seal(&uuid, &mut image[start..start + 4096]);
        image
    };
    images.push((5, forged(4, 0, 1)));
    images.push((4, forged(4, 24, 3)));
    for (key, image) in images {
        let device = Arc::new(MemoryDevice::from_image(&image, 512));
        let store = open(device.clone());
        let error = store.get(key as u128).err();
        assert!(matches!(error, Some(Error::Corrupt { .. })), "key {key}: {error:?}");
        let mut failures = Vec::new();
        store.scrub(None, |error| failures.push(error.to_string()));
        assert!(failures.len() == 1 && !failures[0].contains("trailer"), "{failures:?}");
        drop(store);
        let options = OpenOptions { sabotage: Sabotage::TrustData, ..Default::default() };
        let canary = Store::open(device, &options).unwrap().get(key as u128).unwrap().unwrap();
        assert!(values.get(key).is_none_or(|value| canary[..] != value[..]), "key {key}");
    }
}

#[test]
fn a_damaged_trailer_beside_a_good_value_is_named_by_a_scrub_only() {
    let (image, values) = values(1);
    for (key, value) in values.iter().enumerate() {
        let end = place_of(value, &image) + value.len();
        let tail = 4 * value.len().div_ceil(65_536) + 48;
        let last = (end + tail).next_multiple_of(512);
        for place in end..last {
            let mut image = image.clone();
            image[place] ^= 1;
            let store = open(Arc::new(MemoryDevice::from_image(&image, 512)));
            assert_eq!(store.get(key as u128).unwrap().unwrap()[..], value[..]);
            let mut failures = Vec::new();
            store.scrub(None, |error| failures.push(error.to_string()));
            let named =
                failures.iter().any(|text| text.contains("the trailer (the value is whole)"));
            assert_eq!(
                (failures.len(), named),
                if place < last - tail { (0, false) } else { (1, true) }
            );
        }
    }
}

#[test]
fn padding_holds_zeros_only() {
    let device = created(MemoryDevice::from_image(&[0xee; 1 << 20], 4096), &small());
    let store = open(device.clone());
    let mut value = Value::from(&[7_u8; 3000][..]);
    value.resize(5);
    store.put_value(1, &mut value, Durable).unwrap();
    let image = device.image();
    let at = image.windows(6).position(|window| window == [7, 7, 7, 7, 7, 0]).unwrap();
    assert!(at % 4096 == 0 && image[at + 5..at + 4096 - 52].iter().all(|byte| *byte == 0));
}

#[test]
fn a_lost_journal_block_is_damage_and_a_lost_last_one_is_not() {
    let (image, found) = sample();
    let is_journal = |block: &&[u8]| block.starts_with(&layout::JOURNAL_MAGIC);
    let blocks: Vec<(usize, u64)> = image
        .chunks(4096)
        .enumerate()
        .filter(|(_, block)| is_journal(block))
        .map(|(number, block)| (number, layout::read::<layout::BlockHeader>(block).sequence.get()))
        .collect();
    let newest = blocks.iter().map(|(_, sequence)| *sequence).max().unwrap();
    let without = |sequence: u64| {
        let (number, _) = blocks.iter().find(|(_, found)| *found == sequence).unwrap();
        let mut image = image.clone();
        image[number * 4096 + 2000] ^= 1;
        Arc::new(MemoryDevice::from_image(&image, 512))
    };
    // The fence of a clean end says nothing else; the block before it says a lot.
    assert_eq!(contents(&open(without(newest))), found);
    let device = without(newest - 1);
    let before = device.image();
    let error = Store::open(device.clone(), &OpenOptions::default()).err().unwrap();
    let expected = format!("journal block {}", newest - 1);
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(check(device.clone()).unwrap().findings[0].contains(&expected));
    assert!(device.image() == before, "nothing was written");
}

#[test]
fn either_superblock_is_enough_and_strange_devices_are_refused() {
    let (image, found) = sample();
    let last = image.len() - 4096;
    for at in [0, last] {
        let mut image = image.clone();
        image[at..at + 4096].fill(0x55);
        let device = Arc::new(MemoryDevice::from_image(&image, 512));
        assert_eq!(check(device.clone()).unwrap().findings.len(), 1);
        assert_eq!(contents(&open(device)), found);
    }
    let refusal = |image: &[u8], block_size| {
        let device = Arc::new(MemoryDevice::from_image(image, block_size));
        Store::open(device, &OpenOptions::default()).err().unwrap()
    };
    assert!(matches!(refusal(&[0x55; 1 << 20], 512), Error::NotLump));
    assert!(matches!(refusal(&[], 512), Error::NotLump));
    assert!(matches!(refusal(&image, 4096), Error::Unsupported(_)));
    assert!(matches!(refusal(&image[..last], 512), Error::DeviceShrank { .. }));
    // The version before, the next one, and a feature.
    for (place, value) in [(12, 1), (12, 3), (16, 1)] {
        let mut other = image.clone();
        other[place] = value;
        layout::seal(&[0; 16], &mut other[..4096]);
        let error = refusal(&other, 512);
        assert!(matches!(error, Error::Unsupported(_)));
        assert!(error.to_string().contains("get its values with the lump that made it"), "{error}");
    }
    let tiny = MemoryDevice::new(32 << 10, 512);
    assert!(matches!(Store::create(&tiny, &small()), Err(Error::Invalid(_))));
    let huge = CreateOptions { objects_max: Some(u64::MAX), ..small() };
    let device = MemoryDevice::new(MEBIBYTE, 512);
    assert!(matches!(Store::create(&device, &huge), Err(Error::Invalid(_))));
    assert!(device.image().iter().all(|byte| *byte == 0), "a refusal writes nothing");
}

/// `LUMP_WRITE_GOLDEN=1` makes the image anew; that is a change of the format and needs a new
/// version number. Lines: number of a sector that is not zero, its bytes in hexadecimal.
#[test]
fn the_golden_images_read_and_are_written_as_ever() {
    golden("store.txt", false, false);
    golden("additions.txt", true, false);
    golden("window.txt", false, true);
}

/// The image with a window is as a power cut leaves it: the journal does not know of the last puts.
fn golden(name: &str, has_additions: bool, has_window: bool) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    // So long a journal that no checkpoint is due: the background's would come when it likes.
    let options = CreateOptions { journal_bytes: Some(40 * BLOCK_BYTES), ..small() };
    let device = created(MemoryDevice::new(512 << 10, 512), &options);
    let store = open_so(device.clone(), has_window);
    for key in 0..12_u128 {
        store.put(key << 100, &vec![key as u8 + 1; 40 * key as usize], Durable).unwrap();
    }
    store.checkpoint().unwrap();
    store.delete(0, Durable).unwrap();
    store.delete_range(1 << 100..=2 << 100, Written).unwrap();
    store.put(5 << 100, &[0xab; 700], Durable).unwrap();
    if has_additions {
        store.checkpoint().unwrap();
        store.put(6 << 100, &[7; 240], Durable).unwrap();
    }
    if has_window {
        store.put(7 << 100, &[8; 280], Durable).unwrap();
    }
    let found = contents(&store);
    let cut_off = device.image();
    store.close().unwrap();
    let mut lines = String::new();
    let written = if has_window { cut_off } else { device.image() };
    for (number, sector) in written.chunks(512).enumerate() {
        let digits: String = sector.iter().map(|byte| format!("{byte:02x}")).collect();
        match digits.trim_end_matches("00") {
            "" => {}
            digits => lines += &format!("{number} {digits}\n"),
        }
    }
    if std::env::var_os("LUMP_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &lines).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    let mut image = vec![0; 512 << 10];
    for line in golden.lines() {
        let (number, digits) = line.split_once(' ').unwrap();
        let start = number.parse::<usize>().unwrap() * 512;
        for (place, pair) in (start..).zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).unwrap();
            image[place] = u8::from_str_radix(pair, 16).unwrap();
        }
    }
    let device = Arc::new(MemoryDevice::from_image(&image, 512));
    assert_eq!(check(device.clone()).unwrap().findings, [""; 0]);
    assert_eq!(contents(&open(device)), found);
    assert_eq!(found.len(), 9);
    assert_eq!(found[&(5 << 100)], [0xab; 700]);
    assert_eq!(found[&(11 << 100)], [12; 440]);
    // Sums in it, taken with another implementation.
    let block = &image[((JOURNAL_BLOCK + 1) * BLOCK_BYTES) as usize..][..4096];
    let parts = [small().uuid.unwrap().as_bytes(), &block[..8], &block[12..]].concat();
    assert_eq!(block[8..12], crc32c::crc32c(&parts).to_le_bytes());
    let is_addition = |block: &[u8]| block.starts_with(&layout::ADDITIONS_MAGIC);
    assert_eq!(image.chunks(4096).any(is_addition), has_additions);
    let is_placed = |unit: &[u8]| unit[512 - 48..].starts_with(&layout::PLACED_MAGIC);
    assert_eq!(image.chunks(512).any(is_placed), has_window);
    assert!(golden == lines, "the same calls write other bytes than the golden image has");
}

#[test]
fn what_was_trimmed_is_free() {
    let store = open(created(MemoryDevice::new(MEBIBYTE, 512), &small()));
    store.put(1, &pattern(1, 50_000), Durable).unwrap();
    store.delete(1, Durable).unwrap();
    let trimmed = store.trim(512).unwrap();
    assert!(trimmed > 50_000 && trimmed == store.usage().free_bytes);
}
