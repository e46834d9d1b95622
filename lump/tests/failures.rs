//! What CannyLS loses, leaks or gets wrong, as one suite over a small adapter, run against both
//! stores. lump must pass each; what CannyLS does is printed (`--nocapture`), not asserted.
//!
//! `LUMP_OVERWRITES` sets how many same-size overwrites of 1000 keys a small store takes (1,000,000
//! in the long run).

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{BlockDevice, Fault, FaultyDevice, MemoryDevice};
use cannyls::block::BlockSize;
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::NonVolatileMemory;
use cannyls::storage::{Storage, StorageBuilder};
use crash::{FlushPolicy, Instant, LostWrites, RequestRecorder, States};
use lump::{CreateOptions, Durability, OpenOptions, Store};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const DISK_BYTES: u64 = 1 << 20;

type Outcome = Result<(), String>;
type Disk = RequestRecorder<FaultyDevice<MemoryDevice>>;
/// The values that a key may have; `None` is no value.
type Permitted = BTreeMap<u128, Vec<Option<Vec<u8>>>>;

/// A store that is open.
trait Subject {
    fn put(&mut self, key: u128, value: &[u8]) -> Outcome;
    fn get(&mut self, key: u128) -> Result<Option<Vec<u8>>, String>;
    fn delete(&mut self, key: u128) -> Outcome;
    fn delete_range(&mut self, first: u128, end: u128) -> Outcome;
    fn sync(&mut self) -> Outcome;
    /// What the store does when nothing else is to do.
    fn idle(&mut self) -> Outcome;
}

/// A kind of store.
trait Kind {
    fn create(&self, disk: Arc<dyn BlockDevice>) -> Outcome;
    fn open(&self, disk: Arc<dyn BlockDevice>) -> Result<Box<dyn Subject>, String>;
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

struct Lump;

impl Kind for Lump {
    fn create(&self, disk: Arc<dyn BlockDevice>) -> Outcome {
        let options = CreateOptions {
            objects_max: Some(1100),
            journal_bytes: Some(64 << 10),
            ..Default::default()
        };
        Store::create(&*disk, &options).map(drop).map_err(text)
    }

    fn open(&self, disk: Arc<dyn BlockDevice>) -> Result<Box<dyn Subject>, String> {
        let store = Store::open(disk, &OpenOptions::default()).map_err(text)?;
        Ok(Box::new(store))
    }
}

impl Subject for Store {
    fn put(&mut self, key: u128, value: &[u8]) -> Outcome {
        Store::put(self, key, value, Durability::Durable).map_err(text)
    }

    fn get(&mut self, key: u128) -> Result<Option<Vec<u8>>, String> {
        Store::get(self, key).map(|value| value.map(|value| value.to_vec())).map_err(text)
    }

    fn delete(&mut self, key: u128) -> Outcome {
        Store::delete(self, key, Durability::Durable).map(drop).map_err(text)
    }

    fn delete_range(&mut self, first: u128, end: u128) -> Outcome {
        match Store::delete_range(self, first..end, Durability::Durable) {
            Err(lump::Error::Invalid(_)) => Ok(()),
            outcome => outcome.map(drop).map_err(text),
        }
    }

    fn sync(&mut self) -> Outcome {
        Store::sync(self).map_err(text)
    }

    fn idle(&mut self) -> Outcome {
        self.checkpoint().map_err(text)
    }
}

struct Cannyls;

/// A part of a disk as CannyLS sees it.
struct Memory {
    disk: Arc<dyn BlockDevice>,
    start: u64,
    end: u64,
    position: u64,
}

impl Memory {
    fn new(disk: Arc<dyn BlockDevice>) -> Self {
        Self { start: 0, end: disk.len(), position: 0, disk }
    }
}

impl Read for Memory {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = (bytes.len() as u64).min(self.end - self.position) as usize;
        self.disk.read_at(&mut bytes[..length], self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = (bytes.len() as u64).min(self.end - self.position) as usize;
        self.disk.write_at(&bytes[..length], self.position)?;
        self.position += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Memory {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let offset = self.convert_to_offset(to).map_err(|error| io::Error::other(text(error)))?;
        self.position = self.start + offset;
        Ok(offset)
    }
}

impl NonVolatileMemory for Memory {
    fn sync(&mut self) -> cannyls::Result<()> {
        Ok(self.disk.flush()?)
    }

    fn position(&self) -> u64 {
        self.position - self.start
    }

    fn capacity(&self) -> u64 {
        self.end - self.start
    }

    fn block_size(&self) -> BlockSize {
        BlockSize::min()
    }

    fn split(self, position: u64) -> cannyls::Result<(Self, Self)> {
        let middle = self.start + position;
        let left = Self { disk: self.disk.clone(), end: middle, position: self.start, ..self };
        Ok((left, Self { disk: self.disk, start: middle, end: self.end, position: middle }))
    }
}

impl Kind for Cannyls {
    fn create(&self, disk: Arc<dyn BlockDevice>) -> Outcome {
        let mut builder = StorageBuilder::new();
        builder.journal_region_ratio(0.06);
        builder.create(Memory::new(disk)).map(drop).map_err(text)
    }

    fn open(&self, disk: Arc<dyn BlockDevice>) -> Result<Box<dyn Subject>, String> {
        let storage = StorageBuilder::new().open(Memory::new(disk)).map_err(text)?;
        Ok(Box::new(storage))
    }
}

impl Subject for Storage<Memory> {
    fn put(&mut self, key: u128, value: &[u8]) -> Outcome {
        // Small ones go into its journal, as its users are told to do.
        let data = match value.len() {
            0..400 => LumpData::new_embedded(value.to_vec()),
            _ => self.allocate_lump_data_with_bytes(value),
        };
        Storage::put(self, &LumpId::new(key), &data.map_err(text)?).map(drop).map_err(text)
    }

    fn get(&mut self, key: u128) -> Result<Option<Vec<u8>>, String> {
        let found = Storage::get(self, &LumpId::new(key)).map_err(text)?;
        Ok(found.map(|data| data.as_bytes().to_vec()))
    }

    fn delete(&mut self, key: u128) -> Outcome {
        Storage::delete(self, &LumpId::new(key)).map(drop).map_err(text)
    }

    fn delete_range(&mut self, first: u128, end: u128) -> Outcome {
        let range = LumpId::new(first)..LumpId::new(end);
        Storage::delete_range(self, range).map(drop).map_err(text)
    }

    fn sync(&mut self) -> Outcome {
        self.journal_sync().map_err(text)
    }

    fn idle(&mut self) -> Outcome {
        self.run_side_job_once().map_err(text)
    }
}

fn value(seed: u64, length: usize) -> Vec<u8> {
    let word = |number: u64| (seed + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7) ^ number;
    let words = (0..length.div_ceil(8) as u64).flat_map(|number| word(number).to_le_bytes());
    words.take(length).collect()
}

fn disk(image: &[u8], block_size: u32) -> Arc<Disk> {
    let memory = MemoryDevice::from_image(image, block_size);
    Arc::new(RequestRecorder::in_memory(FaultyDevice::new(memory, vec![])).unwrap())
}

/// A store on a new disk, and the image that its recording begins with.
fn made(kind: &dyn Kind, block_size: u32) -> Result<(Arc<Disk>, Vec<u8>), String> {
    let blank = disk(&vec![0; DISK_BYTES as usize], block_size);
    kind.create(blank.clone())?;
    let image = blank.inner().inner().image();
    Ok((disk(&image, block_size), image))
}

fn compare(subject: &mut dyn Subject, permitted: &Permitted) -> Outcome {
    for (key, values) in permitted {
        let found = subject.get(*key).map_err(|error| format!("key {key}: {error}"))?;
        if values.contains(&found) {
            continue;
        }
        return Err(match found {
            None => format!("key {key} is lost"),
            Some(bytes) => {
                let other =
                    permitted.iter().find(|(_, values)| values.contains(&Some(bytes.clone())));
                match other {
                    Some((other, _)) => format!("key {key} has the bytes of key {other}"),
                    None => format!("key {key} has {} bytes that nobody put", bytes.len()),
                }
            }
        });
    }
    Ok(())
}

/// What power cuts could leave of a disk that began as `base`.
fn states(base: &[u8], disk: &Disk) -> States {
    let before = Arc::new(MemoryDevice::from_image(base, 512));
    States::new(Arc::new(disk.recording()), before, FlushPolicy::Kept)
}

/// A memory of a state's bytes with the disk's block size.
fn left(states: &States, instant: Instant, loss: LostWrites, disk: &Disk) -> Arc<MemoryDevice> {
    let mut random = ChaCha8Rng::seed_from_u64(instant);
    let image = states.disk(&states.state(instant, loss, &mut random)).image().unwrap();
    Arc::new(MemoryDevice::from_image(&image, disk.block_size()))
}

/// Cuts the power at every instant from `from` on, in several ways each.
fn cut(kind: &dyn Kind, base: &[u8], disk: &Disk, from: Instant, permitted: &Permitted) -> Outcome {
    let (states, end) = (states(base, disk), disk.now());
    for instant in from..=end {
        for loss in [
            LostWrites::All,
            LostWrites::Nothing,
            LostWrites::AllButOne,
            LostWrites::One,
            LostWrites::Half,
            LostWrites::Sectors,
        ] {
            let after = left(&states, instant, loss, disk);
            let opened = kind.open(after).map_err(|error| format!("does not open: {error}"));
            opened
                .and_then(|mut subject| compare(&mut *subject, permitted))
                .map_err(|why| format!("{why} ({loss:?} at {instant} of {end})"))?;
        }
    }
    Ok(())
}

fn synced_lumps_survive_journal_gc(kind: &dyn Kind) -> Outcome {
    let (disk, base) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let mut permitted = Permitted::new();
    for key in 0..40 {
        let bytes = value(key as u64, 600);
        subject.put(key, &bytes)?;
        permitted.insert(key, vec![Some(bytes)]);
    }
    subject.sync()?;
    let from = disk.now();
    (0..12).try_for_each(|_| subject.idle())?;
    (100..110).try_for_each(|key| subject.put(key, &value(1, 600)))?;
    cut(kind, &base, &disk, from, &permitted)
}

/// Overwrites some keys again and again; the cuts come in the last of so many steps.
fn overwrites_until(kind: &dyn Kind, steps: u64, length: usize) -> Outcome {
    let (disk, base) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let mut permitted = Permitted::new();
    let mut from = 0;
    for step in 0..steps {
        let (key, bytes) = (u128::from(step % 7), value(step, length));
        if step + 12 == steps {
            subject.sync()?;
            from = disk.now();
            permitted.values_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
        }
        subject.put(key, &bytes).map_err(|error| format!("step {step}: {error}"))?;
        permitted.entry(key).or_default().push(Some(bytes));
    }
    cut(kind, &base, &disk, from, &permitted)
}

fn a_torn_journal_write_does_no_harm(kind: &dyn Kind) -> Outcome {
    overwrites_until(kind, 30, 300)
}

fn the_journal_wraps_around(kind: &dyn Kind) -> Outcome {
    // The journal of either store has about 60,000 bytes.
    [170, 180, 190, 200, 210].into_iter().try_for_each(|steps| overwrites_until(kind, steps, 300))
}

fn an_extent_is_not_reused_before_its_delete_is_durable(kind: &dyn Kind) -> Outcome {
    let (disk, base) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let mut permitted = Permitted::new();
    for key in 0..6 {
        let bytes = value(key as u64, 100_000);
        subject.put(key, &bytes)?;
        permitted.insert(key, vec![Some(bytes)]);
    }
    subject.sync()?;
    let from = disk.now();
    for key in 0..5 {
        subject.delete(key)?;
        permitted.entry(key).or_default().push(None);
        let bytes = value(key as u64 + 50, 100_000);
        subject.put(key + 50, &bytes)?;
        permitted.insert(key + 50, vec![None, Some(bytes)]);
    }
    cut(kind, &base, &disk, from, &permitted)
}

fn an_overwrite_is_whole_or_not_there(kind: &dyn Kind) -> Outcome {
    overwrites_until(kind, 24, 20_000)
}

fn a_failed_overwrite_keeps_the_old_value(kind: &dyn Kind) -> Outcome {
    let (disk, _) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let old = value(1, 20_000);
    subject.put(1, &old)?;
    subject.sync()?;
    let (_, writes, _) = disk.inner().request_counts();
    disk.inner().set_faults(vec![Fault::FailWrite(writes)]);
    if subject.put(1, &value(2, 20_000)).is_ok() {
        return Err("the failing write went unnoticed".into());
    }
    let permitted = Permitted::from([(1, vec![Some(old)])]);
    compare(&mut *subject, &permitted)?;
    drop(subject);
    compare(&mut *kind.open(disk)?, &permitted)
}

fn a_full_store_keeps_what_it_has_and_deletes(kind: &dyn Kind) -> Outcome {
    let (disk, _) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let mut permitted = Permitted::new();
    for key in 0..3000_u128 {
        let bytes = value(key as u64, if key.is_multiple_of(2) { 300 } else { 6000 });
        if subject.put(key, &bytes).is_err() {
            break;
        }
        permitted.insert(key, vec![Some(bytes)]);
    }
    for key in 0..3000_u128 {
        let key = key % permitted.len() as u128;
        let bytes = value(key as u64 + 7, if key.is_multiple_of(2) { 300 } else { 6000 });
        if subject.put(key, &bytes).is_ok() {
            permitted.insert(key, vec![Some(bytes)]);
        }
    }
    compare(&mut *subject, &permitted)?;
    subject.sync()?;
    drop(subject);
    let mut subject = kind.open(disk)?;
    compare(&mut *subject, &permitted)?;
    for key in permitted.keys() {
        subject.delete(*key).map_err(|error| format!("deleting from a full store: {error}"))?;
    }
    subject.put(1, &value(1, 6000)).map_err(|error| format!("after deleting all: {error}"))
}

fn overwrites_leak_no_journal(kind: &dyn Kind) -> Outcome {
    let wanted = std::env::var("LUMP_OVERWRITES").ok().and_then(|text| text.parse().ok());
    // A recording of them all would not fit the memory.
    let disk = Arc::new(MemoryDevice::new(DISK_BYTES, 512));
    kind.create(disk.clone())?;
    let mut subject = kind.open(disk.clone())?;
    let mut last = BTreeMap::new();
    for step in 0..wanted.unwrap_or(20_000_u64) {
        let key = u128::from(step % 1000);
        subject.put(key, &step.to_le_bytes()).map_err(|error| format!("step {step}: {error}"))?;
        last.insert(key, vec![Some(step.to_le_bytes().to_vec())]);
    }
    compare(&mut *subject, &last)?;
    subject.sync()?;
    drop(subject);
    compare(&mut *kind.open(disk)?, &last)
}

fn what_returned_is_durable(kind: &dyn Kind) -> Outcome {
    let (disk, base) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    for (key, length) in [(1, 300), (2, 6000), (3, 100_000)] {
        let bytes = value(1, length);
        subject.put(key, &bytes)?;
        let after = left(&states(&base, &disk), disk.now(), LostWrites::All, &disk);
        compare(&mut *kind.open(after)?, &Permitted::from([(key, vec![Some(bytes)])]))?;
    }
    Ok(())
}

fn a_flipped_bit_is_not_given_out(kind: &dyn Kind) -> Outcome {
    let (disk, _) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    let bytes = value(1, 6000);
    subject.put(1, &bytes)?;
    subject.sync()?;
    drop(subject);
    let mut image = disk.inner().inner().image();
    let at = image.windows(16).position(|window| window == &bytes[3000..3016]);
    image[at.ok_or("the value is not on the disk")?] ^= 1;
    let mut subject = kind.open(Arc::new(MemoryDevice::from_image(&image, 512)))?;
    match subject.get(1) {
        Err(_) => Ok(()),
        Ok(found) if found.as_ref() == Some(&bytes) => Ok(()),
        Ok(_) => Err("other bytes than were put came back as data".into()),
    }
}

fn no_memory_leaks_into_the_padding(kind: &dyn Kind) -> Outcome {
    let (disk, _) = made(kind, 512)?;
    let mut subject = kind.open(disk.clone())?;
    for round in 0..50 {
        // What other data of the process leave in its memory.
        drop((1..30).map(|size| vec![0xa5_u8; size * 200]).collect::<Vec<_>>());
        subject.put(round, &[1; 420])?;
    }
    subject.sync()?;
    let image = disk.inner().inner().image();
    if image.windows(16).any(|window| window == [0xa5; 16]) {
        Err("memory of the process is on the disk".into())
    } else {
        Ok(())
    }
}

fn sectors_of_4096_bytes_work(kind: &dyn Kind) -> Outcome {
    let (disk, base) = made(kind, 4096)?;
    let mut subject = kind.open(disk.clone())?;
    let bytes = value(1, 5000);
    subject.put(1, &bytes)?;
    subject.sync()?;
    let from = disk.now();
    cut(kind, &base, &disk, from, &Permitted::from([(1, vec![Some(bytes)])]))
}

fn a_reversed_range_takes_nothing(kind: &dyn Kind) -> Outcome {
    let (disk, _) = made(kind, 512)?;
    let mut subject = kind.open(disk)?;
    let bytes = value(1, 600);
    subject.put(4, &bytes)?;
    subject.delete_range(9, 3)?;
    compare(&mut *subject, &Permitted::from([(4, vec![Some(bytes)])]))
}

type Failure = (&'static str, fn(&dyn Kind) -> Outcome);

const FAILURES: [Failure; 13] = [
    ("synced lumps lost by journal GC", synced_lumps_survive_journal_gc),
    ("torn journal write", a_torn_journal_write_does_no_harm),
    ("wrap-around of the journal", the_journal_wraps_around),
    (
        "extent reused before its delete is durable",
        an_extent_is_not_reused_before_its_delete_is_durable,
    ),
    ("torn overwrite", an_overwrite_is_whole_or_not_there),
    ("failed overwrite", a_failed_overwrite_keeps_the_old_value),
    ("full store", a_full_store_keeps_what_it_has_and_deletes),
    ("journal leak of overwrites", overwrites_leak_no_journal),
    ("acknowledged before it is durable", what_returned_is_durable),
    ("bit flip", a_flipped_bit_is_not_given_out),
    ("memory in the padding", no_memory_leaks_into_the_padding),
    ("sectors of 4096 bytes", sectors_of_4096_bytes_work),
    ("reversed range", a_reversed_range_takes_nothing),
];

fn run(kind: &dyn Kind, failure: &Failure) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| failure.1(kind)));
    outcome.unwrap_or_else(|_| Err("it panics".into()))
}

#[test]
fn lump_has_none_of_the_failures() {
    let found: Vec<_> = FAILURES
        .iter()
        .filter_map(|failure| Some((failure.0, run(&Lump, failure).err()?)))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// What CannyLS does is its own affair; but a suite that finds nothing in it would not be worth
/// much.
#[test]
fn the_failures_of_cannyls_are_recorded() {
    let mut count = 0;
    for failure in &FAILURES {
        match run(&Cannyls, failure) {
            Ok(()) => println!("{:45} passes", failure.0),
            Err(why) => {
                println!("{:45} {why}", failure.0);
                count += 1;
            }
        }
    }
    assert!(count >= 3, "the suite has lost its teeth: {count} found");
}
