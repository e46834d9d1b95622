//! Bits that flip while a store is closed. Where something later proves that a value was durable, it is
//! reported as damage, with its key; where nothing does, it is left out, told and counted.

#[path = "common/store.rs"]
mod common;

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use block::{BlockDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::Durability::{Durable, Written};
use lump::layout::{BLOCK_BYTES, CHECKPOINT_MAGIC, JOURNAL_MAGIC};
use lump::{CheckReport, Error, Store, check};

/// What a process that was killed leaves behind.
fn left_by(own_flushes: bool, act: impl FnOnce(&Store)) -> Vec<u8> {
    let device = created(MemoryDevice::new(MEBIBYTE, 512), &small());
    let store = open_so(device.clone(), own_flushes);
    act(&store);
    device.image()
}

fn value(key: u128) -> Vec<u8> {
    pattern(key as u64, 700)
}

/// Flips a bit of the value of a key, in each copy of it.
fn rot(image: &mut [u8], key: u128) {
    let value = value(key);
    let places: Vec<usize> = (0..image.len() - 64)
        .step_by(512)
        .filter(|at| image[*at..*at + 64] == value[..64])
        .collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| image[at + 600] ^= 4);
}

fn reopened(image: &[u8]) -> (Store, CheckReport) {
    let report = check(Arc::new(MemoryDevice::from_image(image, 512))).unwrap();
    (open(Arc::new(MemoryDevice::from_image(image, 512))), report)
}

/// The value is damaged, its key is named, and nothing else is missing.
fn is_told(image: &[u8], key: u128, others: &[u128]) {
    let (store, report) = reopened(image);
    assert!(matches!(store.get(key), Err(Error::Corrupt { key: told, .. }) if told == key));
    for other in others {
        assert_eq!(store.get(*other).unwrap().unwrap()[..], value(*other), "key {other}");
    }
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    assert!(finding.contains(&format!("key {key:032x}")), "{finding}");
    assert_eq!((report.left_out_values, store.left_out()), (0, None));
}

/// The value is gone, and that is told and counted.
fn is_counted(image: &[u8], key: u128, others: &[u128]) {
    let (store, report) = reopened(image);
    assert!(store.get(key).unwrap().is_none());
    for other in others {
        assert_eq!(store.get(*other).unwrap().unwrap()[..], value(*other), "key {other}");
    }
    let text = store.left_out().unwrap();
    assert!(text.contains(&format!("key {key:032x}")), "{text}");
    assert_eq!((report.findings.len(), report.left_out_values), (0, 1));
    assert!(report.notes.contains(&text), "{report:?}");
}

#[test]
fn a_value_that_a_later_commit_proves_is_reported_as_damaged() {
    let mut image = left_by(false, |store| {
        (1..4).for_each(|key| store.put(key, &value(key), Durable).unwrap());
    });
    rot(&mut image, 2);
    is_told(&image, 2, &[1, 3]);
}

#[test]
fn a_value_that_a_checkpoint_proves_is_reported_as_damaged() {
    for own_flushes in [false, true] {
        // The checkpoint begins with the block that announces the window, which names the value.
        let mut image = left_by(own_flushes, |store| {
            store.put(1, &value(1), Durable).unwrap();
            store.checkpoint().unwrap();
        });
        rot(&mut image, 1);
        is_told(&image, 1, &[]);
    }
}

/// The record of a put in a window is written after the flush of that put.
#[test]
fn a_value_in_a_window_that_its_record_proves_is_reported_as_damaged() {
    let mut image = left_by(true, |store| {
        (1..6).for_each(|key| store.put(key, &value(key), Durable).unwrap());
        assert!(store.delete(1, Durable).unwrap());
    });
    rot(&mut image, 3);
    is_told(&image, 3, &[2, 4, 5]);
    assert!(open(Arc::new(MemoryDevice::from_image(&image, 512))).get(1).unwrap().is_none());
}

/// The block that announces a window names the put before it, and is durable before a put in the window is written.
#[test]
fn a_value_beside_an_announcement_that_a_put_in_the_window_proves_is_reported_as_damaged() {
    let mut image = left_by(true, |store| {
        (1..3).for_each(|key| store.put(key, &value(key), Durable).unwrap());
    });
    rot(&mut image, 1);
    is_told(&image, 1, &[2]);
}

#[test]
fn a_value_that_nothing_proves_is_left_out_and_counted() {
    let mut image = left_by(false, |store| {
        (1..4).for_each(|key| store.put(key, &value(key), Durable).unwrap());
    });
    rot(&mut image, 3);
    is_counted(&image, 3, &[1, 2]);
    let mut image = left_by(true, |store| {
        (1..6).for_each(|key| store.put(key, &value(key), Durable).unwrap());
    });
    rot(&mut image, 4);
    is_counted(&image, 4, &[1, 2, 3, 5]);
}

#[test]
fn a_journal_block_that_nothing_proves_is_told() {
    let mut image = left_by(false, |store| {
        (1..4).for_each(|key| store.put(key, &value(key), Durable).unwrap());
        (4..6).for_each(|key| store.put(key, &value(key), Written).unwrap());
    });
    let block = BLOCK_BYTES as usize;
    let blocks: Vec<usize> =
        (0..image.len()).step_by(block).filter(|at| image[*at..*at + 8] == JOURNAL_MAGIC).collect();
    // The last but one: the last one is whole, and names one value.
    image[blocks[blocks.len() - 2] + 100] ^= 1;
    let (store, report) = reopened(&image);
    assert_eq!((report.findings.len(), report.left_out_values), (0, 1), "{report:?}");
    let text = store.left_out().unwrap();
    assert!(text.contains("journal block"), "{text}");
    let found = contents(&store);
    assert!(
        found.keys().copied().eq(1..4) && found.iter().all(|(key, bytes)| *bytes == value(*key))
    );
}

/// The first write of a checkpoint waits until it is let through.
struct Held {
    inner: MemoryDevice,
    /// Whether it has come, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl BlockDevice for Held {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if buffer.starts_with(&CHECKPOINT_MAGIC) {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.1).unwrap());
        }
        self.inner.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The flush before the root covers what was changed while the checkpoint was written, so the root
/// proves that too.
#[test]
fn a_value_that_was_put_during_a_checkpoint_is_reported_as_damaged() {
    let inner = MemoryDevice::new(MEBIBYTE, 512);
    let held = Held { inner, state: Mutex::default(), changed: Condvar::new() };
    let device = created(held, &small());
    let store = open_so(device.clone(), false);
    store.put(1, &value(1), Durable).unwrap();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        let state = device.state.lock().unwrap();
        drop(device.changed.wait_while(state, |state| !state.0).unwrap());
        store.put(2, &value(2), Durable).unwrap();
        device.state.lock().unwrap().1 = true;
        device.changed.notify_all();
        checkpoint.join().unwrap().unwrap();
    });
    let mut image = device.inner.image();
    rot(&mut image, 2);
    is_told(&image, 2, &[1]);
}
