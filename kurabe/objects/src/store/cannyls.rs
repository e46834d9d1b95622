//! CannyLS (the crate `cannyls`) on one file or device, through its own trait for memory that
//! lasts.
//!
//! The store keeps its own journal and allocates its own blocks; the file or device below is read
//! and written past the page cache. Its storage serves one caller at a time, so threads queue at a
//! lock, as requests queue at the thread that CannyLS itself puts in front of a storage. Contents
//! are prepared in memory that is aligned as the storage wants it, before the lock is taken.
//!
//! A new store's header and journal are written whole, with zeros, before CannyLS makes its store
//! there: the first object lies behind the journal, and where a file system keeps one valid length
//! a file (minfs) it would have to fill that gap within the first put. Every place gets the same
//! bytes, so that none is prepared better than another.
//!
//! Journal sync: the storage writes its journal and issues a flush after every so many records. Its
//! default is 4096; an interval of 0 is what makes every record durable before the put returns (an
//! interval of 1 syncs every second one only); a test counts the flushes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cannyls::ErrorKind;
use ::cannyls::block::BlockSize;
use ::cannyls::lump::{LumpData, LumpId};
use ::cannyls::nvm::NonVolatileMemory;
use ::cannyls::storage::{Storage, StorageBuilder};
use block::{BlockDevice, CountingDevice, DirectAccess, FileDevice, FileDeviceOptions};

use super::{
    Demand, Store, StoreError, StoreKind, StoreLocation, StoreOptions, StoreSession, StoreSpace,
};

pub(super) const KIND: StoreKind = StoreKind {
    name: "cannyls",
    summary: "CannyLS 0.10: one file or device with a journal",
    takes_device: true,
    keeps_contents: true,
    object_bytes_max: LumpData::MAX_SIZE as u64,
    missing: || None,
    space,
    create,
    open,
};

/// Name of the file of a store in a directory.
const FILE_NAME: &str = "objects.lusf";

const MEBIBYTE: u64 = 1 << 20;

/// Bytes of a journal record of one put, at the most (28 in CannyLS 0.10).
const RECORD_BYTES: u64 = 32;

/// Share of a store that is journal when nobody asks for more: CannyLS's own default.
const JOURNAL_SHARE: f64 = 0.01;

/// The data of an object takes whole blocks, 2 bytes of it for a trailer. The journal needs twice
/// the records of the live objects, so that it can be collected while it is written, and some more
/// for those of deleted ones that were not collected yet.
fn space(options: &StoreOptions, demand: &Demand) -> StoreSpace {
    let block_bytes = u64::from(options.block_size_bytes);
    let data_bytes = demand.bytes.saturating_add(demand.objects.saturating_mul(block_bytes + 1));
    let records_bytes = demand
        .objects
        .saturating_mul(RECORD_BYTES)
        .saturating_add(demand.embedded_bytes)
        .saturating_add(4096 * RECORD_BYTES);
    let journal_bytes = records_bytes.saturating_mul(2).saturating_add(2 * MEBIBYTE);
    // Half as much again as the objects is what CannylsBencher gives a store.
    let roomy = demand.bytes.div_ceil(MEBIBYTE).saturating_mul(MEBIBYTE) / 2;
    let sum = data_bytes.saturating_add(roomy).saturating_add(journal_bytes);
    StoreSpace {
        least_bytes: 0,
        comfortable_bytes: sum.saturating_add(MEBIBYTE).div_ceil(MEBIBYTE).saturating_mul(MEBIBYTE),
        journal_bytes,
    }
}

fn create(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let device = Device::open(place, options, options.capacity_bytes)?;
    let mut builder = builder(options)?;
    let memory = Memory::whole(&device, options);
    let capacity = memory.length;
    let share = options.journal_bytes as f64 / capacity as f64;
    if share > 0.9 {
        return Err(StoreError::Full(format!(
            "a journal of {} bytes leaves no room in a store of {capacity} bytes",
            options.journal_bytes
        )));
    }
    let ratio = share.max(JOURNAL_SHARE);
    builder.journal_region_ratio(ratio);
    let head_bytes = head_bytes(capacity, memory.block_size, ratio).min(capacity);
    block::write_zeros(memory.device.as_ref(), 0, head_bytes)
        .map_err(|error| StoreError::Failed(format!("writing the journal's place: {error}")))?;
    let storage = builder.create(memory).map_err(failure)?;
    let header = storage.header();
    assert_eq!(
        head_bytes,
        header.region_size() + header.journal_region_size,
        "the data must begin where the zeros end"
    );
    Ok(Box::new(Cannyls::new(storage, device, options)))
}

/// Bytes before the data, by the sums of CannyLS, which tells them only of a store that is made: a
/// block of header, and the journal.
fn head_bytes(capacity: u64, block_size: BlockSize, journal_ratio: f64) -> u64 {
    let header_bytes = u64::from(block_size.as_u16());
    let body_bytes = capacity.saturating_sub(header_bytes);
    header_bytes + block_size.ceil_align((body_bytes as f64 * journal_ratio) as u64)
}

fn open(place: &StoreLocation, options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let device = Device::open(place, options, None)?;
    let memory = Memory::whole(&device, options);
    let storage = builder(options)?.open(memory).map_err(failure)?;
    Ok(Box::new(Cannyls::new(storage, device, options)))
}

fn builder(options: &StoreOptions) -> Result<StorageBuilder, StoreError> {
    let mut builder = StorageBuilder::new();
    builder.block_size(block_size(options.block_size_bytes)?);
    if options.sync_every_put {
        builder.journal_sync_interval(0);
    }
    Ok(builder)
}

fn block_size(bytes: u32) -> Result<BlockSize, StoreError> {
    u16::try_from(bytes).ok().and_then(|bytes| BlockSize::new(bytes).ok()).ok_or_else(|| {
        StoreError::Refused(format!(
            "CannyLS takes block sizes of multiples of 512 below 65536 bytes, not {bytes}"
        ))
    })
}

fn failure(error: ::cannyls::Error) -> StoreError {
    // What follows the cause is the way through CannyLS's source.
    let text = error.to_string();
    let cause = text.split("\nHISTORY").next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::StorageFull => StoreError::Full(cause),
        _ => StoreError::Failed(cause),
    }
}

/// What the store lies on, with a count of what the store does to it. A file system that works in the
/// store's process (minfs) writes its own records besides, which the kernel cannot tell from the
/// store's.
type Counting = CountingDevice<Arc<dyn BlockDevice>>;

/// The device, with what the store tells of it.
struct Device {
    memory: Arc<Counting>,
    path: Option<PathBuf>,
    direct: Option<bool>,
}

impl Device {
    /// Opens the place; a file in a directory is made with this capacity, or opened as it is.
    fn open(
        place: &StoreLocation,
        options: &StoreOptions,
        capacity_bytes: Option<u64>,
    ) -> Result<Device, StoreError> {
        let mut file_options = FileDeviceOptions {
            direct: DirectAccess::Prefer,
            exclusive: true,
            ..FileDeviceOptions::default()
        };
        let path = match place {
            StoreLocation::Open(device) => {
                return Device::new(Arc::clone(device), None, None).checked(options);
            }
            StoreLocation::Device(path) => path.clone(),
            StoreLocation::Directory(directory) => {
                file_options.set_length = capacity_bytes;
                directory.join(FILE_NAME)
            }
        };
        let failed = |error| StoreError::system("opening", &path, error);
        let file = FileDevice::open(&path, &file_options).map_err(failed)?;
        let direct = Some(file.is_direct());
        if file.is_direct() && !options.block_size_bytes.is_multiple_of(file.block_size()) {
            let finer = FinerFile::over(&file).map_err(failed)?;
            if finer.is_taken() {
                return Ok(Device::new(Arc::new(finer), Some(path), direct));
            }
        }
        Device::new(Arc::new(file), Some(path), direct).checked(options)
    }

    fn new(below: Arc<dyn BlockDevice>, path: Option<PathBuf>, direct: Option<bool>) -> Device {
        let memory = Arc::new(CountingDevice::new(below));
        Device { memory, path, direct }
    }

    fn checked(self, options: &StoreOptions) -> Result<Device, StoreError> {
        let below = self.memory.block_size();
        if options.block_size_bytes.is_multiple_of(below) {
            Ok(self)
        } else {
            Err(StoreError::Refused(format!(
                "a store with blocks of {} bytes cannot lie on a device with blocks of {below} \
                 bytes; ask for a block size of {below}",
                options.block_size_bytes
            )))
        }
    }
}

/// A file past the page cache in steps of 512 bytes, although its file system transfers larger
/// blocks: Btrfs takes such an access all the same, carries it out through the page cache, and
/// waits for the disk. CannyLS by itself asks for nothing else, so neither do we.
struct FinerFile {
    file: File,
    length: u64,
}

impl FinerFile {
    const STEP_BYTES: u32 = 512;

    fn over(device: &FileDevice) -> io::Result<FinerFile> {
        Ok(FinerFile { file: device.file().try_clone()?, length: device.len() })
    }

    /// Whether the file system takes such an access.
    fn is_taken(&self) -> bool {
        let mut sector = block::AlignedBuffer::zeroed(Self::STEP_BYTES as usize);
        self.file.read_exact_at(&mut sector, u64::from(Self::STEP_BYTES)).is_ok()
    }
}

impl BlockDevice for FinerFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> u32 {
        Self::STEP_BYTES
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

struct Cannyls {
    storage: Mutex<Storage<Memory>>,
    memory: Arc<Counting>,
    facts: BTreeMap<String, String>,
}

struct CannylsSession<'a> {
    store: &'a Cannyls,
    prepared: Option<LumpData>,
    found: Option<LumpData>,
}

impl Cannyls {
    fn new(storage: Storage<Memory>, device: Device, options: &StoreOptions) -> Cannyls {
        let header = storage.header();
        let mut facts = BTreeMap::from([
            ("block_size_bytes".to_owned(), header.block_size.as_u16().to_string()),
            ("device_block_size_bytes".to_owned(), device.memory.block_size().to_string()),
            ("capacity_bytes".to_owned(), header.storage_size().to_string()),
            ("journal_bytes".to_owned(), header.journal_region_size.to_string()),
            ("sync_every_put".to_owned(), options.sync_every_put.to_string()),
        ]);
        if let Some(direct) = device.direct {
            facts.insert("direct".to_owned(), direct.to_string());
        }
        if let Some(path) = device.path {
            facts.insert("path".to_owned(), path.display().to_string());
        }
        Cannyls { storage: Mutex::new(storage), memory: device.memory, facts }
    }

    /// The storage. A panic of another thread within it ends the run anyway, so that a poisoned
    /// lock needs no second report.
    fn storage(&self) -> MutexGuard<'_, Storage<Memory>> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cannyls {
    fn drop(&mut self) {
        // The journal is buffered; who wants to know whether this works calls `sync` before.
        let _ = self.storage().journal_sync();
    }
}

impl Store for Cannyls {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(CannylsSession { store: self, prepared: None, found: None }))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.storage().journal_sync().map_err(failure)
    }

    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        self.storage().list().into_iter().map(key).collect()
    }

    fn written_bytes(&self) -> Option<u64> {
        Some(self.memory.counts().written_bytes)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }
}

fn lump(key: u64) -> LumpId {
    LumpId::new(u128::from(key))
}

fn key(lump: LumpId) -> Result<u64, StoreError> {
    u64::try_from(lump.as_u128())
        .map_err(|_| StoreError::Failed(format!("lump {lump} was not put here")))
}

impl StoreSession for CannylsSession<'_> {
    fn prepare(&mut self, size_bytes: usize, embedded: bool) -> Result<&mut [u8], StoreError> {
        let data = if embedded {
            LumpData::new_embedded(vec![0; size_bytes])
        } else {
            self.store.storage().allocate_lump_data(size_bytes)
        };
        Ok(self.prepared.insert(data.map_err(failure)?).as_bytes_mut())
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        let data = self.prepared.as_ref().expect("a put follows its preparation");
        self.store.storage().put(&lump(key), data).map(drop).map_err(failure)
    }

    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        self.found = self.store.storage().get(&lump(key)).map_err(failure)?;
        Ok(self.found.as_ref().map(LumpData::as_bytes))
    }

    fn delete(&mut self, key: u64) -> Result<bool, StoreError> {
        self.store.storage().delete(&lump(key)).map_err(failure)
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError> {
        let lumps = lump(keys.start)..lump(keys.end);
        let deleted = self.store.storage().delete_range(lumps).map_err(failure)?;
        Ok(deleted.len() as u64)
    }
}

/// A range of a device with a cursor, as CannyLS wants its memory.
struct Memory {
    device: Arc<Counting>,
    block_size: BlockSize,
    start: u64,
    length: u64,
    position: u64,
}

impl Memory {
    fn whole(device: &Device, options: &StoreOptions) -> Memory {
        // Blocks as large as the store's, so that CannyLS aligns its own buffers to them.
        let block_size =
            block_size(options.block_size_bytes).expect("a wrong block size was refused before");
        let device = Arc::clone(&device.memory);
        let length = device.len().min(options.capacity_bytes.unwrap_or(u64::MAX));
        let length = block_size.floor_align(length);
        Memory { device, block_size, start: 0, length, position: 0 }
    }

    /// How much of a transfer of this length lies within the range.
    fn within(&self, length: usize) -> usize {
        let left = self.length - self.position;
        usize::try_from(left).map_or(length, |left| left.min(length))
    }
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.within(buffer.len());
        self.device.read_at(&mut buffer[..length], self.start + self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for Memory {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let length = self.within(buffer.len());
        self.device.write_at(&buffer[..length], self.start + self.position)?;
        self.position += length as u64;
        Ok(length)
    }

    /// Nothing is buffered here; what makes writes durable is [`NonVolatileMemory::sync`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Memory {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = self.convert_to_offset(target).map_err(io::Error::from)?;
        if position > self.length || !self.block_size.is_aligned(position) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{position} is no block of a range of {} bytes", self.length),
            ));
        }
        self.position = position;
        Ok(position)
    }
}

impl NonVolatileMemory for Memory {
    fn sync(&mut self) -> ::cannyls::Result<()> {
        self.device.flush().map_err(::cannyls::Error::from)
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn capacity(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn split(self, position: u64) -> ::cannyls::Result<(Self, Self)> {
        if position > self.length || !self.block_size.is_aligned(position) {
            let error = io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{position} does not split a range of {} bytes", self.length),
            );
            return Err(::cannyls::Error::from(error));
        }
        let left = Memory {
            device: Arc::clone(&self.device),
            block_size: self.block_size,
            start: self.start,
            length: position,
            position: 0,
        };
        let right = Memory {
            start: self.start + position,
            length: self.length - position,
            position: 0,
            ..self
        };
        Ok((left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finer_file_transfers_single_sectors() {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(directory.path().join("store"), 1 << 20).unwrap();
        let finer = FinerFile::over(&device).unwrap();
        assert_eq!((finer.len(), finer.block_size()), (1 << 20, 512));
        if !finer.is_taken() {
            // A file system that insists on larger blocks; then nothing is built on it.
            return;
        }
        let mut sector = block::AlignedBuffer::copied_from(&[7; 512]);
        finer.write_at(&sector, 3 * 512).unwrap();
        finer.flush().unwrap();
        sector.fill(0);
        finer.read_at(&mut sector, 3 * 512).unwrap();
        assert_eq!(sector[..], [7; 512]);
        finer.read_at(&mut sector, 2 * 512).unwrap();
        assert_eq!(sector[..], [0; 512]);
    }
}
