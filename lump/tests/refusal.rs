//! What happens to threads that wait while a flush fails: none of them writes any more, and nothing
//! that was acknowledged is lost. The model test (`lump/model`) looks for such schedules; here
//! are those that were once wrong, with ordinary threads.

#[path = "common/store.rs"]
mod common;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use common::{MEBIBYTE, contents, created, open, open_so, pattern, small};
use lump::Durability::{Durable, Written};
use lump::{CreateOptions, Error};

/// Flushes stop at the device until a test says how each ends.
struct Stepped {
    inner: MemoryDevice,
    state: Mutex<Steps>,
    changed: Condvar,
    writes: AtomicU64,
}

#[derive(Default)]
struct Steps {
    is_stepped: bool,
    /// Flushes that have begun, and their ends, by number.
    begun: usize,
    ends: Vec<Option<bool>>,
}

/// A flush that has not begun by then never does.
const WAIT_MAX: Duration = Duration::from_secs(120);

impl Stepped {
    fn new() -> Self {
        Self {
            inner: MemoryDevice::new(MEBIBYTE, 512),
            state: Mutex::default(),
            changed: Condvar::new(),
            writes: AtomicU64::new(0),
        }
    }

    /// From now on flushes stop; they are numbered from 0 on.
    fn step(&self) {
        *self.state.lock().unwrap() = Steps { is_stepped: true, ..Steps::default() };
    }

    fn wait_for_flush(&self, number: usize) {
        let state = self.state.lock().unwrap();
        let is_missing = |state: &mut Steps| state.begun <= number;
        let (state, _) = self.changed.wait_timeout_while(state, WAIT_MAX, is_missing).unwrap();
        let (begun, ends) = (state.begun, state.ends.clone());
        drop(state);
        if begun <= number {
            // Nobody is left waiting at the device, so that all threads end and the test fails.
            (0..9).for_each(|number| self.end_flush(number, false));
            panic!("no flush {number} in {WAIT_MAX:?}: {begun} have begun, which ended {ends:?}");
        }
    }

    fn end_flush(&self, number: usize, is_good: bool) {
        let mut state = self.state.lock().unwrap();
        if state.ends.len() <= number {
            state.ends.resize(number + 1, None);
        }
        state.ends[number] = Some(is_good);
        self.changed.notify_all();
    }
}

impl BlockDevice for Stepped {
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
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.inner.write_at(buffer, offset)
    }
    fn writes_at_once(&self) -> bool {
        true
    }
    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if !state.is_stepped {
            return Ok(());
        }
        let number = state.begun;
        state.begun += 1;
        self.changed.notify_all();
        let is_pending = |state: &mut Steps| state.ends.get(number).copied().flatten().is_none();
        let state = self.changed.wait_while(state, is_pending).unwrap();
        match state.ends[number] {
            Some(true) => Ok(()),
            _ => Err(io::Error::other("on purpose")),
        }
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn options() -> CreateOptions {
    CreateOptions { objects_max: Some(600), journal_bytes: Some(64 * 4096), ..small() }
}

/// Long enough for a thread that was just started to wait for what another one holds. Where it is not,
/// the test says less, and fails no sooner.
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// The last flush of a checkpoint fails, behind its root, while another checkpoint waits.
#[test]
fn a_checkpoint_that_waited_for_a_failing_one_writes_nothing() {
    let device = created(Stepped::new(), &options());
    let store = open_so(device.clone(), false);
    // The first checkpoint is whole, so the next two add to it.
    (0..300).for_each(|key| store.put(key, &pattern(1, 40), Written).unwrap());
    store.checkpoint().unwrap();
    // Too few for a checkpoint in the background.
    (0..10).for_each(|key| store.put(key, &pattern(2, 50), Durable).unwrap());
    let expected = contents(&store);
    device.step();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| store.checkpoint());
        device.wait_for_flush(0);
        // Changes for the second checkpoint, which are not durable.
        (20..30).for_each(|key| store.put(key, &pattern(3, 60), Written).unwrap());
        let waiting = scope.spawn(|| store.checkpoint());
        pause();
        device.end_flush(0, true);
        device.wait_for_flush(1);
        pause();
        let writes = device.writes.load(Ordering::SeqCst);
        (1..9).for_each(|number| device.end_flush(number, false));
        assert!(matches!(failing.join().unwrap(), Err(Error::Device { .. })));
        assert!(matches!(waiting.join().unwrap(), Err(Error::ReadOnly(_))));
        assert_eq!(device.writes.load(Ordering::SeqCst), writes, "the waiter wrote");
    });
    assert!(matches!(store.put(1, b"more", Written), Err(Error::ReadOnly(_))));
    // The root arrived.
    let image = device.inner.image();
    drop(store);
    let again = open(Arc::new(MemoryDevice::from_image(&image, 512)));
    let found = contents(&again);
    assert!(
        (0..300)
            .filter(|key| !(20..30).contains(key))
            .all(|key| found.get(&key) == expected.get(&key)),
        "a durable put is gone"
    );
}
