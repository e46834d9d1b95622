//! What clients at once see of each other: readers and shared flushes.

#[path = "common/store.rs"]
mod common;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::Durability::{self, Buffered, Durable, Written};
use lump::{Error, OpenOptions, Sabotage, Store};

/// A device on which reads of one place, or flushes, wait until they are let through.
struct Gate {
    inner: MemoryDevice,
    closed: Mutex<Option<u64>>,
    changed: Condvar,
    arrived: AtomicU64,
    flushes: AtomicU64,
    /// Flushes wait while this is set.
    hold_flushes: AtomicBool,
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

impl Gate {
    fn new(inner: MemoryDevice) -> Self {
        Self {
            inner,
            closed: Mutex::new(None),
            changed: Condvar::new(),
            arrived: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            hold_flushes: AtomicBool::new(false),
        }
    }

    fn open_all(&self) {
        *self.closed.lock().unwrap() = None;
        self.changed.notify_all();
    }
}

impl BlockDevice for Gate {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut closed = self.closed.lock().unwrap();
        while *closed == Some(buffer.len() as u64) {
            self.arrived.fetch_add(1, Ordering::SeqCst);
            closed = self.changed.wait(closed).unwrap();
        }
        drop(closed);
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        wait_until(|| !self.hold_flushes.load(Ordering::SeqCst));
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.inner.flush()
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a value while others overwrite it and everything around it; what the reader got.
fn read_during_reuse(sabotage: Sabotage, durability: Durability) -> lump::Result<bool> {
    let device = created(Gate::new(MemoryDevice::new(MEBIBYTE, 512)), &small());
    let options = OpenOptions {
        sabotage,
        buffer_bytes_max: Some(500_000),
        buffer_age_max: Some(Duration::from_secs(3600)),
        ..Default::default()
    };
    let store = Store::open(device.clone(), &options).unwrap();
    let bytes = pattern(1, 100_000);
    store.put(1, &bytes, durability).unwrap();
    wait_until(|| store.usage().gathered_bytes == 0);
    *device.closed.lock().unwrap() = Some(100_352);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| Ok(store.get(1)?.unwrap()[..] == bytes));
        while device.arrived.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // A reader holds nobody up, and 40 values are several times the store.
        for step in 0..40 {
            store.put(1, &pattern(step, 99_000), durability).unwrap();
            assert_eq!(store.get(1).unwrap().unwrap().len(), 99_000);
        }
        device.open_all();
        reader.join().unwrap()
    })
}

#[test]
fn an_extent_is_reused_only_after_its_readers() {
    for durability in [Durable, Buffered] {
        assert!(read_during_reuse(Sabotage::None, durability).unwrap());
    }
    let canary = read_during_reuse(Sabotage::ForgetReaders, Durable);
    assert!(matches!(canary, Err(Error::Corrupt { key: 1, .. })), "{canary:?}");
}

#[test]
fn puts_that_wait_for_a_flush_share_the_next_one() {
    const CLIENTS: u64 = 8;
    let device = created(Gate::new(MemoryDevice::new(8 << 20, 512)), &small());
    let store = open(device.clone());
    let flushes = device.flushes.load(Ordering::SeqCst);
    device.hold_flushes.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let store = &store;
            scope.spawn(move || store.put(u128::from(client), b"value", Durable).unwrap());
        }
        // The first is at the device.
        wait_until(|| store.usage().waiting == CLIENTS - 1);
        device.hold_flushes.store(false, Ordering::SeqCst);
    });
    assert_eq!(device.flushes.load(Ordering::SeqCst) - flushes, 2);
}

#[test]
fn clients_at_once_each_find_what_they_put() {
    find_what_they_put(false);
    find_what_they_put(true);
}

fn find_what_they_put(own_flushes: bool) {
    let device = created(MemoryDevice::new(4 * MEBIBYTE, 512), &small());
    let store = open_so(device.clone(), own_flushes);
    let shared: Vec<Vec<u8>> = (0..150).map(|step| pattern(step, 5000)).collect();
    std::thread::scope(|scope| {
        for client in 0..4_u128 {
            let (store, shared) = (&store, &shared);
            scope.spawn(move || {
                for step in 0..150_u64 {
                    let key = client * 1000 + u128::from(step % 7);
                    let bytes = pattern(step, (step as usize * 397) % 30_000);
                    let durability = if step % 3 == 0 && !own_flushes { Written } else { Durable };
                    store.put(key, &bytes, durability).unwrap();
                    assert_eq!(store.get(key).unwrap().unwrap()[..], bytes);
                    // The same keys for all: any client's value is right, whole.
                    store.put(9999, &shared[step as usize], durability).unwrap();
                    let found = store.get(9999).unwrap().unwrap();
                    assert!(shared.iter().any(|bytes| bytes[..] == found[..]));
                }
            });
        }
    });
    let before = contents(&store);
    store.close().unwrap();
    assert_eq!(contents(&open(device)), before);
}
