//! The store: what its users call.
//!
//! A put writes its extent, then hands its record to the commit (`commit`), which answers once the
//! change is as durable as was asked. Readers take a lock only to look a key up and to pin its
//! extent; they never wait for the device on behalf of a writer. Knows nothing of how records
//! become bytes.

use std::ops::{Bound, Range, RangeBounds, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{AlignedBuffer, BlockDevice};
use zerocopy::FromZeros;

use crate::checkpoint;
use crate::commit::{Act, Queue, pending_max};
use crate::data::{Data, Memory, Piece};
use crate::engine::{Background, Engine};
use crate::error::{Error, Result};
use crate::extent::{Extent, Stamp, Value, range_of, seal, unit_count};
use crate::gather::{Contents, Found, Gather, KEPT_BYTES_MIN};
use crate::geometry::{CreateOptions, Geometry, OBJECTS_SPARE};
use crate::index::Entry;
use crate::journal::Record;
use crate::layout::{BLOCK_BYTES, ROOT_MAGIC, Root, VALUE_BYTES_MAX};
use crate::medium::Medium;
use crate::metrics::{Counters, Metrics, count};
use crate::recovery::{LeftOut, Recovered, recover};
use crate::sabotage::Sabotage;
use crate::space::{Pin, Pins};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, lock};
use crate::window::Window;

/// Most memory that is kept of unaligned values that were put: each, and how many.
const SPARE_BYTES_MAX: usize = 4 << 20;
const SPARE_VALUES_MAX: usize = 16;
/// Bytes of buffered values in memory, unless said otherwise.
const BUFFER_BYTES_MAX: u64 = 32 << 20;
/// How long they stay there, unless said otherwise.
const BUFFER_AGE_MAX: Duration = Duration::from_secs(5);

/// When a put or delete returns. `lump/docs/durability.md` has the details. The tests that hold the promises:
/// `nothing_that_was_acknowledged_is_lost` ([`Durability::Durable`]), `what_was_told_to_be_done_survives_sigkill`
/// ([`Durability::Written`]), `a_buffered_change_is_seen_at_once_and_survives_after_a_sync`
/// ([`Durability::Buffered`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once the change survives power loss.
    #[default]
    Durable,
    /// Once the device has the change: it survives the end of the process, and power loss after
    /// the next [`Store::sync`] or durable change.
    Written,
    /// At once: the change is in memory, and written with others later. It survives the end of the process
    /// and power loss after the next [`Store::sync`].
    Buffered,
}

/// How to open a store.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Write nothing.
    pub read_only: bool,
    /// Whether a durable put of up to 256 KiB is written without the journal, which records it
    /// later, as long as there is space for such puts. Unless given: as the device says, and if
    /// other changes do not come between them too often.
    pub own_flushes: Option<bool>,
    /// Most bytes of [`Durability::Buffered`] values in memory; 32 MiB unless given. Values of more
    /// than a quarter of it are written at once, and with 0 all are.
    pub buffer_bytes_max: Option<u64>,
    /// Longest time until a [`Durability::Buffered`] change is in the journal; 5 s unless given.
    pub buffer_age_max: Option<Duration>,
    /// For the canaries of the tests only.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// An object, as [`Store::list`] and [`Store::head`] tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The key.
    pub key: u128,
    /// Length of its value in bytes.
    pub length_bytes: u64,
}

impl From<Entry> for Object {
    fn from(entry: Entry) -> Self {
        Self { key: entry.key, length_bytes: u64::from(entry.length) }
    }
}

/// What a store holds and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Objects, without those that are still in memory ([`Durability::Buffered`]).
    pub objects: u64,
    /// Most objects.
    pub objects_max: u64,
    /// Bytes for values and their trailers, used or free.
    pub data_bytes: u64,
    /// Bytes that can be used now.
    pub free_bytes: u64,
    /// The longest free piece in bytes; a value lies in one piece.
    pub longest_free_bytes: u64,
    /// Bytes given up, which come back with later changes, or when a put needs them.
    pub retired_bytes: u64,
    /// Blocks of the journal that a new opening would apply.
    pub journal_blocks: u64,
    /// Blocks of the whole journal.
    pub journal_blocks_max: u64,
    /// Memory of the index in bytes.
    pub index_bytes: u64,
    /// Bytes of buffered changes in memory, with their checksums.
    pub gathered_bytes: u64,
    /// Age of the oldest of them that is not yet on its way to the device, in ms.
    pub gathered_ms: u64,
    /// Changes that wait for the next commit.
    pub waiting: u64,
}

/// An open store. All methods may be called from many threads at once.
///
/// Dropping it makes everything durable, as [`Store::close`] does, but tells no errors.
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
    epoch: u64,
    /// Memory for values that come unaligned.
    spare: Mutex<Vec<Value>>,
    left_out: LeftOut,
}

impl Store {
    /// Makes an empty store; what the device held is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] and [`Error::Unsupported`] before anything was written; or
    /// [`Error::Device`].
    pub fn create(device: &dyn BlockDevice, options: &CreateOptions) -> Result<Geometry> {
        let geometry = Geometry::plan(device.len(), device.block_size(), options)?;
        if device.is_read_only() {
            return Err(Error::ReadOnly("the device is read-only".into()));
        }
        let write = |block: &AlignedBuffer, offset| {
            let action = format!("write the block at byte {offset}");
            device.write_at(block, offset).map_err(Error::device(action))
        };
        let flush = || device.flush().map_err(Error::device("flush the device"));
        // Power may fail: first what was there is no store any more, last there is a new one.
        for offset in [0, geometry.backup_offset()] {
            write(&AlignedBuffer::zeroed(BLOCK_BYTES as usize), offset)?;
        }
        flush()?;
        let mut root = Root::new_zeroed();
        root.magic = ROOT_MAGIC;
        root.journal_next = 1.into();
        for generation in [0, 1] {
            root.generation = generation.into();
            write(&checkpoint::root_block(&geometry, &root), geometry.root_offset(generation))?;
        }
        flush()?;
        for offset in [geometry.backup_offset(), 0] {
            write(&geometry.superblock(), offset)?;
        }
        flush()?;
        Ok(geometry)
    }

    /// Opens the store on `device`.
    ///
    /// # Errors
    ///
    /// Those of [`Geometry::read`]; [`Error::Damaged`] when something that was durable is missing;
    /// [`Error::Device`]. Nothing was changed then.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let geometry = Geometry::read(&*device)?;
        if device.is_read_only() && !options.read_only {
            return Err(Error::ReadOnly("the device is read-only".into()));
        }
        let Recovered { index, space, root, position, announced, found, epoch, left_out } =
            recover(&device, &geometry, options.sabotage)?;
        let epoch = epoch + 1;
        let merges = options.own_flushes.unwrap_or_else(|| device.merges_flushes());
        let counters = Arc::new(Counters::new(geometry.uuid()));
        let engine = Arc::new(Engine {
            objects: AtomicU64::new(index.count()),
            index,
            space: Mutex::new(space),
            pins: Pins::default(),
            queue: Mutex::new(Queue::new(position, announced)),
            window: Window::new(
                pending_max(&geometry),
                options.own_flushes.is_none(),
                options.sabotage,
            ),
            has_window: merges,
            sequence: AtomicU64::new(0),
            applying: Mutex::new(()),
            root: Mutex::new(root),
            journal_start: AtomicU64::new(root.journal_next.get()),
            background: Background::default(),
            trimming: Mutex::new(()),
            gather: Gather::new(
                options.buffer_bytes_max.unwrap_or(BUFFER_BYTES_MAX),
                options.buffer_age_max.unwrap_or(BUFFER_AGE_MAX),
                &geometry,
            ),
            medium: Medium::new(device, counters.clone(), options.sabotage),
            counters,
            geometry,
            sabotage: options.sabotage,
        });
        let mut threads = Vec::new();
        if options.read_only {
            engine.medium.refuse("it was opened for reading".into());
        } else {
            engine.begin_epoch(&found, epoch)?;
            let works: [fn(&Engine); 2] = [Engine::work, Engine::write_gathered];
            for (name, work) in ["lump", "lump-writer"].into_iter().zip(works) {
                let engine = engine.clone();
                let spawned = thread::Builder::new().name(name.into()).spawn(move || work(&engine));
                threads.push(spawned.map_err(Error::device("start a thread"))?);
            }
        }
        Ok(Self { engine, threads, epoch, spare: Mutex::default(), left_out })
    }

    /// Stores `bytes` under `key`, in the place of any value before, and answers as `durability`
    /// says.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::NoSpace`], [`Error::TooManyObjects`], [`Error::ReadOnly`] or
    /// [`Error::Device`]; the value before is intact then. After [`Error::ReadOnly`] from a failing
    /// device only the next opening tells which of the two values there is.
    pub fn put(&self, key: u128, bytes: &[u8], durability: Durability) -> Result<()> {
        check_length(bytes.len())?;
        let is_copied = bytes.len() < KEPT_BYTES_MIN && self.is_gathered(bytes.len(), durability);
        if is_copied && self.put_gathered(key, Contents::Copied(bytes))? {
            return Ok(());
        }
        let spare = lock(&self.spare).pop();
        let mut value = spare.unwrap_or_else(|| Value::zeroed(0));
        value.resize(bytes.len());
        value.copy_from_slice(bytes);
        let outcome = self.put_value(key, &mut value, durability);
        let mut spare = lock(&self.spare);
        if bytes.len() <= SPARE_BYTES_MAX && spare.len() < SPARE_VALUES_MAX {
            spare.push(value);
        }
        outcome
    }

    /// As [`Store::put`], without a copy. A [`Durability::Buffered`] put may keep the memory and give back
    /// other memory of the same length, whose bytes are anything.
    pub fn put_value(&self, key: u128, value: &mut Value, durability: Durability) -> Result<()> {
        check_length(value.len())?;
        if self.is_gathered(value.len(), durability) {
            let is_kept = value.len() >= KEPT_BYTES_MIN && value.fills_its_memory();
            let contents = if is_kept { Contents::Kept(value) } else { Contents::Copied(value) };
            if self.put_gathered(key, contents)? {
                return Ok(());
            }
        }
        self.engine.medium.permit()?;
        match durability {
            // One that is too large to be gathered keeps its place behind those that were.
            Durability::Buffered => self.engine.drain()?,
            _ => self.engine.settle(key)?,
        }
        let start = Instant::now();
        let reserved = self.engine.objects.fetch_add(1, Ordering::Relaxed);
        let outcome = self.put_reserved(key, value, durability, reserved);
        if outcome.is_err() {
            self.engine.objects.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.engine.counters.put_seconds.record(start.elapsed());
        }
        outcome
    }

    /// Gathers a put; returns whether there was room for it.
    fn put_gathered(&self, key: u128, contents: Contents<'_>) -> Result<bool> {
        let start = Instant::now();
        let reserved = self.engine.objects.fetch_add(1, Ordering::Relaxed);
        let outcome = match self.check_objects(key, reserved) {
            Ok(()) => self.engine.gather_put(key, contents, self.epoch),
            // What was gathered may have replaced or deleted some, and they count until it is written.
            Err(_) => Ok(false),
        };
        if let Ok(true) = outcome {
            self.engine.counters.put_seconds.record(start.elapsed());
        } else {
            self.engine.objects.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Whether there may be another object; `reserved` are all others, and those under way.
    fn check_objects(&self, key: u128, reserved: u64) -> Result<()> {
        let limit = self.engine.geometry.objects_max;
        let is_new = || match self.engine.gather.find(key, &self.engine.pins, None) {
            Found::Nothing => self.engine.index.shard(key).get(key).is_none(),
            Found::Deleted => true,
            Found::Value(_) | Found::Landed(..) => false,
        };
        if reserved >= limit && (reserved >= limit + OBJECTS_SPARE || is_new()) {
            return Err(Error::TooManyObjects { limit });
        }
        Ok(())
    }

    fn put_reserved(
        &self,
        key: u128,
        value: &mut Value,
        durability: Durability,
        reserved: u64,
    ) -> Result<()> {
        if self.check_objects(key, reserved).is_err() {
            self.engine.drain()?;
            self.check_objects(key, self.engine.objects.load(Ordering::Relaxed) - 1)?;
        }
        let length = value.len() as u64;
        let units = unit_count(&self.engine.geometry, length);
        let is_fit = durability == Durability::Durable && self.engine.fits_window(units);
        let mut renewal = None;
        let place = is_fit.then(|| self.engine.window.enter(units, &mut renewal)).flatten();
        let start = match place {
            Some(start) => start,
            None => self.allocate(units)?,
        };
        let sequence = self.engine.sequence.fetch_add(1, Ordering::Relaxed);
        let stamp = Stamp { epoch: self.epoch, sequence };
        let (sealed, entry) =
            seal(&self.engine.geometry, key, start, stamp, place.is_some(), value);
        let (memory, offset) =
            (Memory::Lent(value.lend()), self.engine.geometry.unit_offset(start));
        let first = Piece { memory, at: 0, length: sealed, offset };
        let data = Data { first, others: Vec::new() };
        let (outcome, memory) = match place {
            Some(_) => self.engine.put_in_window(entry, sequence, data),
            None => {
                let act = Act::Change(Record::Put { entry, sequence });
                self.engine.submit_with(act, durability, Some(data))
            }
        };
        value.take_back(memory);
        if let Err(Error::Device { .. }) = outcome {
            // No journal speaks of it.
            lock(&self.engine.space).free(start, units);
        }
        outcome.map(drop)
    }

    /// Finds room. What was given up comes back behind a fence, which a full store forces.
    fn allocate(&self, units: u64) -> Result<u64> {
        if let Some(start) = lock(&self.engine.space).allocate(units) {
            return Ok(start);
        }
        // What is away to be trimmed comes back, and so do the window and the rest of a batch.
        self.engine.drain()?;
        drop(lock(&self.engine.trimming));
        self.engine.window.seekers.fetch_add(1, Ordering::SeqCst);
        let fence = self.engine.submit(Act::Fence, Durability::Durable);
        let start = lock(&self.engine.space).allocate(units);
        self.engine.window.seekers.fetch_sub(1, Ordering::SeqCst);
        fence?;
        if let Some(start) = start {
            return Ok(start);
        }
        let usage = self.usage();
        Err(Error::NoSpace {
            wanted_bytes: units * self.engine.geometry.unit_bytes,
            free_bytes: usage.free_bytes,
            longest_free_bytes: usage.longest_free_bytes,
        })
    }

    /// The value of a key, verified; `None` when it has none. One read of the device.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the medium does not hold what was put; [`Error::Device`].
    pub fn get(&self, key: u128) -> Result<Option<Value>> {
        let mut value = Value::zeroed(0);
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// As [`Store::get`], into memory that can be used again; returns whether the key has a value.
    pub fn get_into(&self, key: u128, value: &mut Value) -> Result<bool> {
        match self.find_gathered(key, value) {
            Found::Nothing => self.read(key, |extent| extent.read(&self.engine.medium, value)),
            Found::Landed(entry, _pin) => {
                self.read_entry(entry, |extent| extent.read(&self.engine.medium, value))
            }
            Found::Deleted => Ok(false),
            Found::Value(length) => {
                count(&self.engine.counters.gets, 1);
                count(&self.engine.counters.get_bytes, length as u64);
                Ok(true)
            }
        }
    }

    /// What has been gathered of a key, for a reader.
    fn find_gathered(&self, key: u128, value: &mut Value) -> Found<'_> {
        match self.engine.sabotage {
            Sabotage::MissGathered => Found::Nothing,
            _ => self.engine.gather.find(key, &self.engine.pins, Some(value)),
        }
    }

    /// Whether a change with a value of so many bytes is gathered.
    fn is_gathered(&self, length: usize, durability: Durability) -> bool {
        let is_asked =
            durability == Durability::Buffered || self.engine.sabotage == Sabotage::GatherDurable;
        is_asked && self.engine.gathers(length)
    }

    /// As [`Store::get_into`], and verifies the trailer too.
    pub(crate) fn get_all(&self, key: u128, value: &mut Value) -> Result<bool> {
        self.read(key, |extent| extent.read_all(&self.engine.medium, value).map(drop))
    }

    fn read(&self, key: u128, read: impl FnOnce(Extent<'_>) -> Result<()>) -> Result<bool> {
        let Some((entry, _pin)) = self.find(key) else { return Ok(false) };
        self.read_entry(entry, read)
    }

    /// Reads an extent whose place is not used again meanwhile.
    fn read_entry(
        &self,
        entry: Entry,
        read: impl FnOnce(Extent<'_>) -> Result<()>,
    ) -> Result<bool> {
        let start = Instant::now();
        match read(Extent { geometry: &self.engine.geometry, entry }) {
            Ok(()) => {
                count(&self.engine.counters.gets, 1);
                count(&self.engine.counters.get_bytes, u64::from(entry.length));
                self.engine.counters.get_seconds.record(start.elapsed());
                Ok(true)
            }
            Err(error @ Error::Corrupt { .. }) => {
                count(&self.engine.counters.corruptions, 1);
                match self.engine.sabotage {
                    Sabotage::TrustData => Ok(true),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The bytes `range` of the value of a key, verified; `None` when it has none. One read of the
    /// device where the value is small or most of it is asked for, two otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] when the value does not have these bytes; those of [`Store::get`].
    pub fn get_range(&self, key: u128, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let mut value = Value::zeroed(0);
        let found = match self.find_gathered(key, &mut value) {
            Found::Nothing => self.find(key),
            Found::Landed(entry, pin) => Some((entry, Some(pin))),
            Found::Deleted => None,
            Found::Value(length) => {
                let range = range_of(length as u64, range)?;
                return Ok(Some(value[range].to_vec()));
            }
        };
        let Some((entry, _pin)) = found else { return Ok(None) };
        let extent = Extent { geometry: &self.engine.geometry, entry };
        let outcome = extent.read_range(&self.engine.medium, range);
        if let Err(Error::Corrupt { .. }) = outcome {
            count(&self.engine.counters.corruptions, 1);
        }
        outcome.map(Some)
    }

    /// What is known of a key without the device; `None` when it has no value.
    pub fn head(&self, key: u128) -> Option<Object> {
        match self.engine.gather.find(key, &self.engine.pins, None) {
            Found::Nothing => self.engine.index.shard(key).get(key).map(Object::from),
            Found::Landed(entry, _) => Some(Object::from(entry)),
            Found::Deleted => None,
            Found::Value(length) => Some(Object { key, length_bytes: length as u64 }),
        }
    }

    fn find(&self, key: u128) -> Option<(Entry, Option<Pin<'_>>)> {
        let shard = self.engine.index.shard(key);
        let entry = shard.get(key)?;
        let forgets = self.engine.sabotage == Sabotage::ForgetReaders;
        Some((entry, (!forgets).then(|| self.engine.pins.pin(entry.start))))
    }

    /// Takes the value of a key away; returns whether it had one.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]. A full store is no obstacle.
    pub fn delete(&self, key: u128, durability: Durability) -> Result<bool> {
        if self.is_gathered(0, durability) {
            return self.engine.gather_delete(key);
        }
        self.engine.settle(key)?;
        let count = self.engine.submit(Act::Change(Record::Delete(key)), durability)?;
        Ok(count > 0)
    }

    /// Takes the values of all keys of a range away; returns how many there were. It is one change
    /// for power loss; a reader meanwhile may find some of the keys gone before others. It is never
    /// gathered: [`Durability::Buffered`] is as [`Durability::Written`] here.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when the range ends before it starts; [`Error::ReadOnly`].
    pub fn delete_range(
        &self,
        keys: impl RangeBounds<u128>,
        durability: Durability,
    ) -> Result<u64> {
        let Some(keys) = closed(keys)? else { return Ok(0) };
        self.engine.drain()?;
        let (first, last) = keys.into_inner();
        self.engine.submit(Act::Change(Record::DeleteRange { first, last }), durability)
    }

    /// The objects of a range, by ascending key. The walk goes on while others change the store:
    /// an object that is there all the time comes exactly once. What was gathered
    /// ([`Durability::Buffered`]) is written first; if it cannot be, the walk shows what was written before.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when the range ends before it starts.
    pub fn list(&self, keys: impl RangeBounds<u128>) -> Result<impl Iterator<Item = Object>> {
        let keys = closed(keys)?;
        let _ = self.engine.drain();
        Ok(self.entries(keys).map(Object::from))
    }

    pub(crate) fn entries(
        &self,
        keys: Option<RangeInclusive<u128>>,
    ) -> impl Iterator<Item = Entry> {
        let (mut rest, mut page) = (keys, Vec::new().into_iter());
        std::iter::from_fn(move || {
            if let Some(entry) = page.next() {
                return Some(entry);
            }
            let keys = rest.take()?;
            page = self.engine.index.page(&keys).into_iter();
            let next = page.as_slice().last().and_then(|entry| entry.key.checked_add(1));
            rest = next.filter(|next| next <= keys.end()).map(|next| next..=*keys.end());
            page.next()
        })
    }

    /// What the store holds and what is left.
    pub fn usage(&self) -> Usage {
        let queue = lock(&self.engine.queue);
        let (next, waiting) = (queue.applied.next, queue.waiting());
        drop(queue);
        let (unused, given_up) = self.engine.window.contents();
        let given_up_units: u64 =
            given_up.iter().map(|entry| entry.units(&self.engine.geometry)).sum();
        // Before the lock of the space, which a batch that begins takes too.
        let (gathered_bytes, age) = self.engine.gather.waiting();
        let space = lock(&self.engine.space);
        let unit_bytes = self.engine.geometry.unit_bytes;
        Usage {
            objects: self.engine.index.count(),
            objects_max: self.engine.geometry.objects_max,
            data_bytes: self.engine.geometry.data_bytes(),
            free_bytes: (space.free_units() + unused) * unit_bytes,
            longest_free_bytes: space.longest_free_units() * unit_bytes,
            retired_bytes: (space.retired_units() + given_up_units) * unit_bytes,
            journal_blocks: next.saturating_sub(self.engine.journal_start.load(Ordering::Relaxed)),
            journal_blocks_max: self.engine.geometry.journal_blocks,
            index_bytes: self.engine.index.memory_bytes(),
            gathered_bytes,
            gathered_ms: age.as_millis() as u64,
            waiting: waiting as u64,
        }
    }

    /// What the store holds, and what it has done since it was opened.
    ///
    /// The recorder of the facade `metrics` that was installed when the store was opened hears of
    /// what is done as it is done; the gauges of what the store holds are set by this call, so make
    /// it before each scrape.
    pub fn metrics(&self) -> Metrics {
        self.engine.counters.read(self.usage())
    }

    /// Tells the device of all free space in pieces of at least `bytes_min` (TRIM); returns how
    /// many bytes that were. Others go on meanwhile; a put that finds no room waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] and [`Error::Device`].
    pub fn trim(&self, bytes_min: u64) -> Result<u64> {
        self.engine.medium.permit()?;
        self.engine.drain()?;
        // What was given up is free only behind a fence.
        self.engine.submit(Act::Fence, Durability::Durable)?;
        let unit_bytes = self.engine.geometry.unit_bytes;
        Ok(self.engine.trim(bytes_min.div_ceil(unit_bytes))? * unit_bytes)
    }

    /// Makes every change durable that returned before the call.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] when the device failed, now or before.
    pub fn sync(&self) -> Result<()> {
        self.engine.drain()?;
        self.engine.submit(Act::Sync, Durability::Durable).map(drop)
    }

    /// Writes the index down, so that the next opening reads little of the journal. The store does
    /// this by itself in the background whenever half of the journal is used.
    pub fn checkpoint(&self) -> Result<()> {
        // At once, also while another one is under way.
        self.engine.medium.permit()?;
        self.engine.drain()?;
        self.engine.checkpoint(lock(&self.engine.root))
    }

    /// Makes everything durable and leaves the store so that its next opening has nothing to
    /// verify.
    pub fn close(self) -> Result<()> {
        self.engine.drain()?;
        self.engine.submit(Act::Fence, Durability::Durable).map(drop)
    }

    /// Identity and sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.engine.geometry
    }

    /// Why the store refuses to write, if it does.
    pub fn read_only_reason(&self) -> Option<&str> {
        self.engine.medium.refusal()
    }

    /// What the opening found and left out, in words. Nothing on the medium proves that it was durable:
    /// either power failed before it was, or it decayed since.
    pub fn left_out(&self) -> Option<String> {
        let LeftOut { reasons, values } = &self.left_out;
        (!reasons.is_empty()).then(|| {
            format!(
                "left out, with {values} values: {}; power failed before it was durable, or it \
                 decayed since",
                reasons.join("; ")
            )
        })
    }

    /// How many puts are among that, as far as they can be told.
    pub fn left_out_values(&self) -> u64 {
        self.left_out.values
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.engine.medium.refusal().is_none() {
            // Who wants to know whether this works calls `close`.
            let _ = self.engine.drain();
            let _ = self.engine.submit(Act::Fence, Durability::Durable);
        }
        self.engine.background.end();
        self.engine.gather.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn check_length(length: usize) -> Result<()> {
    if length as u64 <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge { length_bytes: length as u64, limit_bytes: VALUE_BYTES_MAX })
}

/// A range of keys with both ends; `None` when it is empty.
fn closed(keys: impl RangeBounds<u128>) -> Result<Option<RangeInclusive<u128>>> {
    let (start, end) = (keys.start_bound().cloned(), keys.end_bound().cloned());
    let value = |bound| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    if let (Some(first), Some(last)) = (value(start), value(end))
        && first > last
    {
        return Err(Error::Invalid(format!(
            "the range of keys from {first:032x} to {last:032x} ends before it starts"
        )));
    }
    let first = match start {
        Bound::Excluded(key) => key.checked_add(1),
        bound => Some(value(bound).unwrap_or(0)),
    };
    let last = match end {
        Bound::Excluded(key) => key.checked_sub(1),
        bound => Some(value(bound).unwrap_or(u128::MAX)),
    };
    Ok(first.zip(last).filter(|(first, last)| first <= last).map(|(first, last)| first..=last))
}
