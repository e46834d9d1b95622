//! Who is measured: each behind the same few calls, in a directory of its own.
//!
//! A put that is durable survives power loss when it returns, of all but those that say so in
//! their name. Values are checked by their length and first bytes, the same for all.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use block::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions};
use cannyls::lump::LumpId;
use cannyls::nvm::FileNvm;
use cannyls::storage::{Storage, StorageBuilder};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use lump::{CreateOptions, Durability, OpenOptions, Store, Value};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use redb::{ReadableDatabase, TableDefinition};

/// Memory of redb and fjall for what they have read, in bytes: about what RocksDB takes.
const CACHE_BYTES: usize = 8 << 20;
/// What a trailer adds to a value.
const SECTOR: usize = 512;
const TABLE: TableDefinition<u128, &[u8]> = TableDefinition::new("values");

/// One client's memory: the bytes that it puts, and where it gets to.
pub struct Memory {
    /// Bytes of a value; the first eight are the key.
    pub plain: AlignedBuffer,
    /// The same, and a sector more.
    extent: AlignedBuffer,
    value: Value,
}

impl Memory {
    /// For values of `size` bytes that do not compress.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut bytes = vec![0; size];
        ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
        let mut extent = AlignedBuffer::zeroed(size + SECTOR);
        extent[..size].copy_from_slice(&bytes);
        let plain = AlignedBuffer::copied_from(&bytes);
        Self { plain, extent, value: Value::from(&bytes[..]) }
    }

    fn mark(&mut self, key: u64) {
        self.plain[..8].copy_from_slice(&key.to_le_bytes());
        self.extent[..8].copy_from_slice(&key.to_le_bytes());
    }

    fn check(&self, key: u64, found: &[u8]) {
        assert_eq!(found.len(), self.plain.len(), "key {key}");
        assert_eq!(found[..8], key.to_le_bytes(), "key {key}");
    }
}

/// What is measured.
pub trait Contender: Send + Sync {
    /// Puts the client's bytes under a key.
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool);
    /// Gets a value and checks it.
    fn get(&self, key: u64, memory: &mut Memory);
    /// Has what was put written to where gets will find it after the next opening.
    fn settle(&self) {}
}

/// The kinds of contenders, as they are named in the output.
pub const NAMES: [&str; 11] = [
    "raw",
    "group",
    "own",
    "lump",
    "lump-unsynced",
    "cannyls",
    "cannyls-unsynced",
    "redb",
    "fjall",
    "rocksdb",
    "files",
];

/// Whether a contender uses one file of a given length, which others may have used before.
pub fn shares_file(name: &str) -> bool {
    matches!(name, "raw" | "group" | "own" | "lump" | "lump-unsynced") || name.starts_with("fio")
}

/// Makes the contender `name` in an empty directory, or over the file of others, with room for `bytes`.
pub fn create(name: &str, directory: &Path, bytes: u64, objects: u64) {
    let store = directory.join("store");
    if name.starts_with("cannyls") {
        let (nvm, _) = FileNvm::create_if_absent(&store, bytes).expect("make a storage");
        drop(StorageBuilder::new().create(nvm).expect("make a storage"));
    }
    if name.starts_with("cannyls") || shares_file(name) && !store.exists() {
        // Whole files, so that none pays for laying one out; all but the storage's header.
        let device = FileDevice::create(&store, bytes).expect("make a file");
        let header = if name.starts_with("cannyls") { 4096 } else { 0 };
        block::write_zeros(&device, header, bytes - header).expect("fill a file");
        device.flush().expect("flush a file");
    }
    match name {
        "lump" | "lump-unsynced" => {
            let device = device(&store);
            let options = CreateOptions { objects_max: Some(objects), ..Default::default() };
            Store::create(&device, &options).expect("make a store");
        }
        "cannyls" | "cannyls-unsynced" => {
            let (nvm, _) = FileNvm::create_if_absent(&store, bytes).expect("make a storage");
            drop(StorageBuilder::new().create(nvm).expect("make a storage"));
        }
        _ => {}
    }
}

/// Opens what [`create`] made.
pub fn open(name: &str, directory: &Path) -> Box<dyn Contender> {
    let store = directory.join("store");
    match name {
        "raw" => Box::new(Raw(device(&store))),
        "group" => Box::new(Group { raw: Raw(device(&store)), commit: Mutex::default() }),
        "own" => Box::new(Own { raw: Raw(device(&store)), puts: AtomicU64::new(0) }),
        "lump" | "lump-unsynced" => {
            let store = Store::open(Arc::new(device(&store)), &OpenOptions::default());
            Box::new(Lump { store: store.expect("open a store"), syncs: name == "lump" })
        }
        "cannyls" | "cannyls-unsynced" => {
            let storage = Storage::open(FileNvm::open(&store).expect("open a storage"));
            let storage = Mutex::new(storage.expect("open a storage"));
            Box::new(Cannyls { storage, syncs: name == "cannyls" })
        }
        "redb" => {
            let mut builder = redb::Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            Box::new(Redb(builder.create(store).expect("open redb")))
        }
        "fjall" => {
            let database = Database::builder(store).cache_size(CACHE_BYTES as u64).open();
            let database = database.expect("open fjall");
            let blobs = KvSeparationOptions::default().compression(fjall::CompressionType::None);
            let options = || KeyspaceCreateOptions::default().with_kv_separation(Some(blobs));
            let values = database.keyspace("values", options).expect("open fjall");
            Box::new(Fjall { database, values })
        }
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(Rocks(crate::sys::RocksDb::open(&store))),
        "files" => {
            Box::new(Files { directory: directory.into(), opened: File::open(directory).unwrap() })
        }
        _ => panic!("{name}: not known, or not built in"),
    }
}

/// The smallest transfer that a file in this directory takes, in bytes.
pub fn block_size(directory: &Path) -> u64 {
    let path = directory.join("block-size");
    let device = FileDevice::create(&path, 4096).expect("make a file");
    fs::remove_file(path).expect("remove a file");
    device.block_size().into()
}

fn device(path: &Path) -> FileDevice {
    FileDevice::open(path, &FileDeviceOptions::default()).expect("open a file")
}

/// A file, past the page cache: each key has its place, and each durable write its own flush.
struct Raw(FileDevice);

impl Contender for Raw {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        self.0.write_at(&memory.plain, key * memory.plain.len() as u64).expect("write");
        if is_durable {
            self.0.flush().expect("flush");
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let offset = key * memory.plain.len() as u64;
        self.0.read_at(&mut memory.plain, offset).expect("read");
        assert_eq!(memory.plain[..8], key.to_le_bytes());
    }
}

/// A raw file with the accesses of lump and nothing else of it: each client writes its value, then
/// one of them writes a block for all who wait and flushes once; a get looks at every byte.
struct Group {
    raw: Raw,
    commit: Mutex<Commit>,
}

#[derive(Default)]
struct Commit {
    waiting: Vec<(Thread, Arc<AtomicBool>)>,
    is_led: bool,
    blocks: u64,
}

impl Group {
    fn commit(&self) {
        let done = Arc::new(AtomicBool::new(false));
        let lock = || self.commit.lock().expect("no client panicked");
        lock().waiting.push((std::thread::current(), done.clone()));
        while !done.load(Ordering::Acquire) {
            let mut commit = lock();
            if commit.is_led || commit.waiting.is_empty() {
                drop(commit);
                std::thread::park();
                continue;
            }
            commit.is_led = true;
            commit.blocks += 1;
            let (batch, block) = (std::mem::take(&mut commit.waiting), commit.blocks);
            drop(commit);
            let device = &self.raw.0;
            // The last quarter of the file has no values.
            let offset = device.len() / 4 * 3 + block * 4096 % (device.len() / 4);
            device.write_at(&AlignedBuffer::zeroed(4096), offset).expect("write");
            device.flush().expect("flush");
            let mut commit = lock();
            commit.is_led = false;
            let next = commit.waiting.first().map(|(thread, _)| thread.clone());
            drop(commit);
            for (thread, done) in batch {
                done.store(true, Ordering::Release);
                thread.unpark();
            }
            next.into_iter().for_each(|thread| thread.unpark());
        }
    }
}

impl Contender for Group {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        self.raw.put(key, memory, false);
        if is_durable {
            self.commit();
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        self.raw.get(key, memory);
        black_box(sum(&memory.plain));
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes")))
        .fold(0, u64::wrapping_add)
}

/// A raw file with the accesses of a store whose puts find their way back without the journal: each
/// client adds up its value, writes it and a sector more to the next place, and flushes for itself;
/// one in 84 also writes a journal block.
struct Own {
    raw: Raw,
    puts: AtomicU64,
}

impl Contender for Own {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        let extent = &memory.extent;
        black_box(sum(extent));
        let (device, put) = (&self.raw.0, self.puts.fetch_add(1, Ordering::Relaxed));
        // The last quarter of the file has no values.
        let room = device.len() / 4;
        let place = put % (3 * room / extent.len() as u64);
        device.write_at(extent, place * extent.len() as u64).expect("write");
        if put.is_multiple_of(84) {
            let offset = 3 * room + put / 84 * 4096 % room;
            device.write_at(&AlignedBuffer::zeroed(4096), offset).expect("write");
        }
        if is_durable {
            device.flush().expect("flush");
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let offset = key * memory.plain.len() as u64;
        self.raw.0.read_at(&mut memory.plain, offset).expect("read");
        black_box(sum(&memory.plain));
    }
}

struct Lump {
    store: Store,
    syncs: bool,
}

impl Contender for Lump {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        let durability =
            if is_durable && self.syncs { Durability::Durable } else { Durability::Buffered };
        memory.value.resize(memory.plain.len());
        memory.value[..8].copy_from_slice(&key.to_le_bytes());
        self.store.put_value(u128::from(key), &mut memory.value, durability).expect("put");
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        assert!(self.store.get_into(u128::from(key), &mut memory.value).expect("get"));
        memory.check(key, &memory.value);
    }

    fn settle(&self) {
        self.store.sync().expect("sync");
    }
}

/// One thread stands in front of a storage of CannyLS; here it is a lock.
struct Cannyls {
    storage: Mutex<Storage<FileNvm>>,
    syncs: bool,
}

impl Contender for Cannyls {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        let mut storage = self.storage.lock().expect("no client panicked");
        let mut data = storage.allocate_lump_data(memory.plain.len()).expect("put");
        data.as_bytes_mut().copy_from_slice(&memory.plain);
        storage.put(&LumpId::new(u128::from(key)), &data).expect("put");
        if is_durable && self.syncs {
            storage.journal_sync().expect("sync");
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let mut storage = self.storage.lock().expect("no client panicked");
        let found = storage.get(&LumpId::new(u128::from(key))).expect("get");
        drop(storage);
        memory.check(key, found.expect("it was put").as_bytes());
    }

    fn settle(&self) {
        self.storage.lock().expect("no client panicked").journal_sync().expect("sync");
    }
}

struct Redb(redb::Database);

impl Contender for Redb {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        let mut change = self.0.begin_write().expect("put");
        let durability =
            if is_durable { redb::Durability::Immediate } else { redb::Durability::None };
        change.set_durability(durability).expect("put");
        change
            .open_table(TABLE)
            .expect("put")
            .insert(u128::from(key), &memory.plain[..])
            .expect("put");
        change.commit().expect("put");
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let table = self.0.begin_read().expect("get").open_table(TABLE).expect("get");
        let found = table.get(u128::from(key)).expect("get").expect("it was put");
        memory.check(key, found.value());
    }
}

struct Fjall {
    database: Database,
    values: Keyspace,
}

impl Contender for Fjall {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        self.values.insert(u128::from(key).to_be_bytes(), &memory.plain[..]).expect("put");
        if is_durable {
            self.database.persist(PersistMode::SyncData).expect("sync");
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let found = self.values.get(u128::from(key).to_be_bytes()).expect("get");
        memory.check(key, &found.expect("it was put"));
    }

    fn settle(&self) {
        self.values.rotate_memtable_and_wait().expect("write what is in memory");
    }
}

#[cfg(feature = "rocksdb")]
struct Rocks(crate::sys::RocksDb);

#[cfg(feature = "rocksdb")]
impl Contender for Rocks {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        self.0.put(&u128::from(key).to_be_bytes(), &memory.plain, is_durable);
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let is_there = self.0.get(&u128::from(key).to_be_bytes(), |found| memory.check(key, found));
        assert!(is_there, "key {key}");
    }
}

/// A file for each value, replaced by a rename, so that an overwrite is whole or not there.
struct Files {
    directory: PathBuf,
    opened: File,
}

impl Contender for Files {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        memory.mark(key);
        let name = self.directory.join(format!("{key:016x}"));
        let next = self.directory.join(format!("{key:016x}.next"));
        let mut file = File::create(&next).expect("make a file");
        file.write_all(&memory.plain).expect("write a file");
        if is_durable {
            file.sync_data().expect("flush a file");
        }
        fs::rename(next, name).expect("rename a file");
        if is_durable {
            self.opened.sync_all().expect("flush a directory");
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        let found = fs::read(self.directory.join(format!("{key:016x}"))).expect("read a file");
        memory.check(key, &found);
    }
}
