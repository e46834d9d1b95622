//! A disk of 7200 rpm with a write cache, as a model over memory: what a flush takes.
//!
//! Writes go to the cache at no cost. A flush sends them to the platter in the order of their
//! places; each run of consecutive bytes costs a seek, half a turn (the mean of where the platter
//! may stand) and its transfer. A run at the head needs no seek, yet half a turn, since the platter
//! has turned on meanwhile. Reads cost nothing: nobody times them here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use block::{BlockDevice, MemoryDevice};

const HALF_TURN_S: f64 = 60.0 / 7200.0 / 2.0;
/// A seek to the next track, and the mean one, which crosses a third of the disk; in between it
/// grows with the root of the distance. Data sheets of desktop disks give figures like these.
const SEEK_MIN_S: f64 = 0.8e-3;
const SEEK_MEAN_S: f64 = 8.5e-3;
const DISK_BYTES: f64 = 500e9;
const BYTES_PER_SECOND: f64 = 150e6;
/// What a sleep may overshoot; the rest is spent waiting awake.
const SLEEP_SLACK: Duration = Duration::from_micros(200);

/// A modelled disk.
pub struct Disk {
    memory: MemoryDevice,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// Writes that no flush has covered: start to end.
    writes: BTreeMap<u64, u64>,
    /// Where the last run ended.
    head: u64,
}

impl Cache {
    /// Seconds that it takes to write everything out.
    fn write_out(&mut self) -> f64 {
        let mut seconds = 0.0;
        let mut is_first = true;
        for (start, end) in std::mem::take(&mut self.writes) {
            let distance = start.abs_diff(self.head) as f64;
            if distance > 0.0 {
                let share = (3.0 * distance / DISK_BYTES).sqrt();
                seconds += SEEK_MIN_S + (SEEK_MEAN_S - SEEK_MIN_S) * share;
            }
            if distance > 0.0 || is_first {
                seconds += HALF_TURN_S;
            }
            seconds += (end - start) as f64 / BYTES_PER_SECOND;
            self.head = end;
            is_first = false;
        }
        seconds
    }
}

impl Disk {
    /// An empty disk; only its first `length` bytes can be used.
    pub fn new(length: u64) -> Self {
        Self { memory: MemoryDevice::new(length, 512), cache: Mutex::default() }
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn block_size(&self) -> u32 {
        self.memory.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        self.cache.lock().expect("no thread panics").writes.insert(offset, end);
        self.memory.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        let start = Instant::now();
        let seconds = self.cache.lock().expect("no thread panics").write_out();
        let until = start + Duration::from_secs_f64(seconds);
        if let Some(sleep) = until.checked_duration_since(Instant::now() + SLEEP_SLACK) {
            std::thread::sleep(sleep);
        }
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok(())
    }
    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}
