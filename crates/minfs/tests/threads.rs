//! Many threads on one volume: what each was told is durable is so, and waiting syncs share a flush.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use block::crash::{Unflushed, image_at};
use block::{BlockDevice, MemoryDevice, RecordingDevice};
use minfs::{MkfsOptions, MountOptions, Volume, fsck, mkfs};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEVICE_BYTES: u64 = 8 << 20;
const THREADS: usize = 6;

/// A medium that takes its time, so that threads meet in its requests.
struct Slow {
    inner: RecordingDevice<MemoryDevice>,
    flush_time: Duration,
    flushes: AtomicU64,
}

impl Slow {
    fn new(flush_time: Duration) -> Arc<Self> {
        let inner = RecordingDevice::new(MemoryDevice::new(DEVICE_BYTES, 512));
        mkfs(&inner, &MkfsOptions::default()).unwrap();
        Arc::new(Self { inner, flush_time, flushes: AtomicU64::new(0) })
    }
}

impl BlockDevice for Slow {
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
        self.inner.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        // What completes from here on is not covered: the recording notes its start.
        let covered = self.inner.flush();
        std::thread::sleep(self.flush_time);
        covered
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }
}

fn mount(device: Arc<dyn BlockDevice>) -> Volume {
    Volume::mount(device, &MountOptions::default()).unwrap()
}

/// What a thread was told: after so many events, these bytes are in this file.
struct Acknowledged {
    events: usize,
    name: Vec<u8>,
    offset: u64,
    bytes: Vec<u8>,
}

#[test]
fn what_a_sync_acknowledged_survives_a_crash_whichever_thread_flushed() {
    let device = Slow::new(Duration::from_micros(200));
    let volume = mount(device.clone());
    let shared = volume.create(b"shared", 0o644).unwrap();
    let prepared = volume.create(b"prepared", 0o644).unwrap();
    prepared.preallocate(0, 1 << 20, false, true).unwrap();
    let log = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, log, device) = (&volume, &log, &device);
            let (shared, prepared) = (&shared, &prepared);
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread as u64);
                let own_name = format!("own{thread}").into_bytes();
                let own = volume.create(&own_name, 0o644).unwrap();
                for round in 0..12_u64 {
                    let length = random.random_range(1..6000);
                    let bytes: Vec<u8> = (0..length).map(|_| random.random_range(1..255)).collect();
                    let (file, name, offset) = match round % 3 {
                        0 => (shared, b"shared".to_vec(), shared.append(&bytes).unwrap()),
                        1 => (&own, own_name.clone(), own.append(&bytes).unwrap()),
                        _ => {
                            let offset = (thread as u64 * 12 + round) * 8192;
                            prepared.write(&bytes, offset).unwrap();
                            (prepared, b"prepared".to_vec(), offset)
                        }
                    };
                    file.sync().unwrap();
                    let events = device.inner.event_count();
                    log.lock().unwrap().push(Acknowledged { events, name, offset, bytes });
                }
            });
        }
    });
    let events = device.inner.events();
    let log = log.into_inner().unwrap();
    assert_eq!(log.len(), THREADS * 12);
    let base = vec![0; DEVICE_BYTES as usize];
    for point in log.iter().map(|acknowledged| acknowledged.events) {
        for unflushed in [Unflushed::Dropped, Unflushed::OnlyLast, Unflushed::Torn(point as u64)] {
            let image = image_at(&base, &events, point, unflushed);
            let device = Arc::new(MemoryDevice::from_image(&image, 512));
            assert!(fsck(&device, false).unwrap().is_clean());
            let volume = mount(device);
            for told in log.iter().filter(|told| told.events <= point) {
                let file = volume.open(&told.name).unwrap();
                let mut found = vec![0; told.bytes.len()];
                file.read(&mut found, told.offset).unwrap();
                let shown = String::from_utf8_lossy(&told.name);
                assert!(found == told.bytes, "{shown} at {} ({unflushed:?})", told.offset);
            }
        }
    }
}

#[test]
fn syncs_that_wait_for_each_other_share_a_flush() {
    for is_growing in [true, false] {
        let device = Slow::new(Duration::from_millis(50));
        let volume = mount(device.clone());
        let file = volume.create(b"log", 0o644).unwrap();
        let barrier = Barrier::new(THREADS);
        device.flushes.store(0, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    if is_growing {
                        file.append(&[7; 4096]).unwrap();
                    }
                    barrier.wait();
                    file.sync().unwrap();
                });
            }
        });
        // The first flush may have begun before some thread asked; the second covers them all.
        let flushes = device.flushes.load(Ordering::SeqCst);
        assert!((1..=3).contains(&flushes), "{flushes} flushes for {THREADS} threads");
    }
}
