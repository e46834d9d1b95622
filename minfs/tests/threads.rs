//! Many threads on one volume: what each was told is durable is so, waiting syncs share a flush, and
//! a file grows while it is being synced. `MINFS_THREAD_RUNS` sets how many schedules are tried.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use crash::{FlushPolicy, Instant, LostWrites, RequestRecorder, States};
use minfs::{MkfsOptions, MountOptions, Volume, fsck, mkfs};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEVICE_BYTES: u64 = 3 << 20;
const THREADS: usize = 6;

/// A medium that takes its time, so that threads meet in its requests.
struct Slow {
    inner: RequestRecorder<MemoryDevice>,
    flush_time: Duration,
    flushes: AtomicU64,
    /// Called in each flush, after it was recorded.
    in_flush: Box<dyn Fn() + Send + Sync>,
}

impl Slow {
    fn new(flush_time: Duration) -> Self {
        let inner = RequestRecorder::in_memory(MemoryDevice::new(DEVICE_BYTES, 512)).unwrap();
        mkfs(&inner, &MkfsOptions::default()).unwrap();
        Self { inner, flush_time, flushes: AtomicU64::new(0), in_flush: Box::new(|| ()) }
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
        // A write takes a while before it is there, and a while after.
        std::thread::sleep(self.flush_time / 4);
        self.inner.write_at(buffer, offset)?;
        std::thread::sleep(self.flush_time / 8);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        // What completes from here on is not covered: the recording notes its start.
        let covered = self.inner.flush();
        std::thread::sleep(self.flush_time);
        (self.in_flush)();
        covered
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }
}

fn mount(device: Arc<dyn BlockDevice>) -> Volume {
    Volume::mount(device, &MountOptions::default()).unwrap()
}

/// What a thread was told: from this instant on these bytes are in this file.
#[derive(Clone)]
struct Acknowledged {
    instant: Instant,
    /// From here on they may be others: the thread has begun to overwrite them.
    until: Instant,
    name: Vec<u8>,
    offset: u64,
    bytes: Vec<u8>,
}

/// Appends to a common file and to one of its own, overwrites what it has synced there, and writes
/// into prepared space; a sync after each. Returns what it was told.
fn work(volume: &Volume, device: &Slow, thread: usize, seed: u64) -> Vec<Acknowledged> {
    let mut random = ChaCha8Rng::seed_from_u64(seed * 1000 + thread as u64);
    let own_name = format!("own{thread}").into_bytes();
    let own = volume.create(&own_name, 0o644).unwrap();
    let shared = volume.open(b"shared").unwrap();
    let prepared = volume.open(b"prepared").unwrap();
    let mut told: Vec<Acknowledged> = Vec::new();
    for round in 0..12_u64 {
        let length = random.random_range(1..6000);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.random_range(1..255)).collect();
        let earlier = told.iter().rposition(|told| told.until == Instant::MAX);
        let (file, name, offset) = match (random.random_range(0..5), earlier) {
            (0, _) => {
                let offset = (thread as u64 * 12 + round) * 8192;
                prepared.write(&bytes, offset).unwrap();
                (&prepared, b"prepared".to_vec(), offset)
            }
            (1, _) => (&own, own_name.clone(), own.append(&bytes).unwrap()),
            (2, Some(earlier)) => {
                let earlier = &mut told[earlier];
                earlier.until = device.inner.now();
                bytes.resize(earlier.bytes.len(), 7);
                let name = earlier.name.clone();
                let file = if name == own_name { &own } else { &shared };
                let file = if name == b"prepared" { &prepared } else { file };
                file.write(&bytes, earlier.offset).unwrap();
                (file, name, earlier.offset)
            }
            _ => (&shared, b"shared".to_vec(), shared.append(&bytes).unwrap()),
        };
        file.sync().unwrap();
        let instant = device.inner.now();
        told.push(Acknowledged { instant, until: Instant::MAX, name, offset, bytes });
    }
    told
}

#[test]
fn what_a_sync_acknowledged_survives_a_crash_whichever_thread_flushed() {
    let runs = std::env::var("MINFS_THREAD_RUNS").ok().and_then(|text| text.parse().ok());
    for seed in 0..runs.unwrap_or(3) {
        let device = Arc::new(Slow::new(Duration::from_micros(200)));
        let volume = mount(device.clone());
        drop(volume.create(b"shared", 0o644).unwrap());
        let prepared = volume.create(b"prepared", 0o644).unwrap();
        prepared.preallocate(0, 640 << 10, false, true).unwrap();
        let log = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (volume, log, device) = (&volume, &log, &device);
                scope.spawn(move || {
                    let told = work(volume, device, thread, seed);
                    log.lock().unwrap().extend(told);
                });
            }
        });
        let recording = Arc::new(device.inner.recording());
        let log = log.into_inner().unwrap();
        assert_eq!(log.len(), THREADS * 12);
        let before = Arc::new(MemoryDevice::new(DEVICE_BYTES, 512));
        let states = States::new(recording, before, FlushPolicy::Kept);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for instant in log.iter().map(|told| told.instant) {
            for loss in [LostWrites::All, LostWrites::AllButOne, LostWrites::Sectors] {
                let device = Arc::new(states.disk(&states.state(instant, loss, &mut random)));
                assert!(fsck(&device, false).unwrap().is_clean());
                let volume = mount(device);
                let stands =
                    |told: &&Acknowledged| told.instant <= instant && instant <= told.until;
                for told in log.iter().filter(stands) {
                    let file = volume.open(&told.name).unwrap();
                    let mut found = vec![0; told.bytes.len()];
                    file.read(&mut found, told.offset).unwrap();
                    let shown = String::from_utf8_lossy(&told.name);
                    let at = told.offset;
                    assert!(found == told.bytes, "seed {seed}: {shown} at {at} ({loss:?})");
                }
            }
        }
    }
}

#[test]
fn a_file_grows_while_it_is_being_synced() {
    let (said, heard) = mpsc::channel();
    let heard = Mutex::new(heard);
    let is_watched = Arc::new(AtomicBool::new(false));
    let mut device = Slow::new(Duration::ZERO);
    let watched = is_watched.clone();
    device.in_flush = Box::new(move || {
        // The flush lasts until another thread has written, and not for ever.
        if watched.load(Ordering::SeqCst) {
            let limit = Duration::from_secs(20);
            heard.lock().unwrap().recv_timeout(limit).expect("a write during the flush");
        }
    });
    let device = Arc::new(device);
    let volume = mount(device.clone());
    let file = volume.create(b"log", 0o644).unwrap();
    file.append(&[1; 4096]).unwrap();
    is_watched.store(true, Ordering::SeqCst);
    device.flushes.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| file.sync().unwrap());
        while device.flushes.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        file.append(&[2; 4096]).unwrap();
        is_watched.store(false, Ordering::SeqCst);
        said.send(()).unwrap();
    });
    file.sync().unwrap();
    assert_eq!(file.size(), 8192);
    assert_eq!(device.flushes.load(Ordering::SeqCst), 2);
}

#[test]
fn threads_that_grow_one_file_share_records_and_flushes() {
    const ROUNDS: usize = 10;
    let device = Arc::new(Slow::new(Duration::from_millis(20)));
    let volume = mount(device.clone());
    let file = volume.create(b"log", 0o644).unwrap();
    device.flushes.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    file.append(&[7; 4096]).unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    // Each on its own would flush once; the writes of all but one wait for a flush together.
    let flushes = device.flushes.load(Ordering::SeqCst) as usize;
    assert!(flushes <= THREADS * ROUNDS / 2, "{flushes} flushes");
}

#[test]
fn syncs_that_wait_for_each_other_share_a_flush() {
    for is_growing in [true, false] {
        let device = Arc::new(Slow::new(Duration::from_millis(50)));
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

#[test]
fn what_is_written_while_another_thread_unmounts_is_not_acknowledged() {
    // The last flush of the unmount lets another thread write; its sync comes after the end.
    let late: Arc<Mutex<Option<minfs::File>>> = Arc::default();
    let mut device = Slow::new(Duration::ZERO);
    let writer = late.clone();
    device.in_flush = Box::new(move || {
        if let Some(file) = writer.lock().unwrap().as_ref() {
            file.write(&[9; 4096], 0).unwrap();
        }
    });
    let volume = mount(Arc::new(device));
    let file = volume.create(b"log", 0o644).unwrap();
    file.preallocate(0, 64 << 10, false, true).unwrap();
    *late.lock().unwrap() = Some(file.clone());
    volume.unmount().unwrap();
    assert!(file.sync().is_err());
    late.lock().unwrap().take();
}
