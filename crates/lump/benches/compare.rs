//! `cargo bench -p lump`: lump against the bare device and CannyLS, interleaved in one run.
//!
//! The device is a file beside the target directory, or `LUMP_BENCH_PATH`. Each cell is the median
//! over rounds of operations a second, with its ratio to the bare device: the same transfers at
//! places of their own and, where durable, a flush by each client. Puts go round in a set of
//! keys, so all but the first are overwrites; each round puts, then gets what was put. The second
//! ratio is that of the median latencies, which a busy machine disturbs less.
//! `LUMP_BENCH_SECONDS` is the time of one cell of one round, `LUMP_BENCH_ROUNDS` their number.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions};
use cannyls::lump::LumpId;
use cannyls::nvm::FileNvm;
use cannyls::storage::{Storage, StorageBuilder};
use lump::{CreateOptions, Durability, OpenOptions, Store, Value};

const STORE_BYTES: u64 = 512 << 20;
/// Values that are live at once, in bytes, and most of them.
const LIVE_BYTES: u64 = 128 << 20;
const LIVE_MAX: u64 = 256;

/// What is measured.
trait Contender: Sync {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool);
    fn get(&self, key: u64, memory: &mut Memory);
}

/// One client's memory for each contender.
struct Memory {
    size: usize,
    plain: AlignedBuffer,
    value: Value,
}

struct Bare(FileDevice);

impl Contender for Bare {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        self.0.write_at(&memory.plain, key * memory.size as u64).unwrap();
        if is_durable {
            self.0.flush().unwrap();
        }
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        self.0.read_at(&mut memory.plain, key * memory.size as u64).unwrap();
    }
}

impl Contender for Store {
    fn put(&self, key: u64, memory: &mut Memory, is_durable: bool) {
        let durability = if is_durable { Durability::Durable } else { Durability::Buffered };
        memory.value.resize(memory.size);
        self.put_value(u128::from(key), &mut memory.value, durability).unwrap();
    }

    fn get(&self, key: u64, memory: &mut Memory) {
        assert!(self.get_into(u128::from(key), &mut memory.value).unwrap());
    }
}

/// CannyLS has one thread in front of a storage; here a lock stands for it. Durable, it syncs each
/// record; otherwise every 4096, as is its default.
struct Canny(Mutex<Storage<FileNvm>>);

impl Contender for Canny {
    fn put(&self, key: u64, memory: &mut Memory, _: bool) {
        let mut storage = self.0.lock().unwrap();
        let mut data = storage.allocate_lump_data(memory.size).unwrap();
        data.as_bytes_mut().copy_from_slice(&memory.plain);
        storage.put(&LumpId::new(u128::from(key)), &data).unwrap();
    }

    fn get(&self, key: u64, _: &mut Memory) {
        assert!(self.0.lock().unwrap().get(&LumpId::new(u128::from(key))).unwrap().is_some());
    }
}

/// Operations a second of `clients` threads, and the median of their latencies in nanoseconds. Each
/// has keys of its own.
fn measure(
    contender: &dyn Contender,
    size: usize,
    clients: u64,
    limit: Duration,
    is_put: bool,
    is_durable: bool,
) -> (f64, f64) {
    let latencies = Mutex::new(Vec::new());
    let keys = (LIVE_BYTES / size as u64).min(LIVE_MAX) / clients;
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (done, stop, latencies) = (&done, &stop, &latencies);
            scope.spawn(move || {
                let mut memory = Memory {
                    size,
                    plain: AlignedBuffer::copied_from(&vec![client as u8 + 1; size]),
                    value: Value::zeroed(size),
                };
                let mut own = Vec::new();
                for step in 0_u64.. {
                    let key = client * keys + step % keys;
                    let began = Instant::now();
                    match is_put {
                        true => contender.put(key, &mut memory, is_durable),
                        false => contender.get(key, &mut memory),
                    }
                    own.push(began.elapsed().as_nanos() as f64);
                    done.fetch_add(1, Ordering::Relaxed);
                    // A first round through the keys, so that every get finds its value.
                    if start.elapsed() >= limit && (!is_put || step >= keys) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if stop.load(Ordering::Relaxed) && (!is_put || step >= keys) {
                        break;
                    }
                }
                latencies.lock().unwrap().extend(own);
            });
        }
    });
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    (rate, median(latencies.into_inner().unwrap()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let limit = Duration::from_secs_f64(environment("LUMP_BENCH_SECONDS", 0.5));
    let rounds = environment("LUMP_BENCH_ROUNDS", 3.0) as usize;
    let path = std::env::var_os("LUMP_BENCH_PATH")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let directory = tempfile::tempdir_in(path).unwrap();
    println!(
        "operations a second, median of {rounds} rounds; ratios of these and of latencies to bare"
    );
    println!(
        "{:>7} {:>7} {:14} {:>20} {:>20} {:>20}",
        "size", "clients", "", "bare", "lump", "cannyls"
    );
    // What is laid out must not differ: each has a file that was written whole.
    for name in ["bare", "lump", "cannyls"] {
        let path = directory.path().join(name);
        if name == "cannyls" {
            // It opens no file without its header.
            let (nvm, _) = FileNvm::create_if_absent(&path, STORE_BYTES).unwrap();
            drop(StorageBuilder::new().create(nvm).unwrap());
        }
        let device = FileDevice::create(path, STORE_BYTES).unwrap();
        block::write_zeros(&device, 4096, STORE_BYTES - 4096).unwrap();
    }
    let file = |name: &str| {
        FileDevice::open(directory.path().join(name), &FileDeviceOptions::default()).unwrap()
    };
    for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        for clients in [1, 8, 32] {
            if clients == 32 && size > 4 << 10 {
                continue;
            }
            for is_durable in [true, false] {
                let bare = Bare(file("bare"));
                let device = Arc::new(file("lump"));
                Store::create(&*device, &CreateOptions::default()).unwrap();
                let store = Store::open(device, &OpenOptions::default()).unwrap();
                let mut builder = StorageBuilder::new();
                if is_durable {
                    builder.journal_sync_interval(0);
                }
                let (nvm, _) =
                    FileNvm::create_if_absent(directory.path().join("cannyls"), STORE_BYTES)
                        .unwrap();
                let canny = Canny(Mutex::new(builder.create(nvm).unwrap()));
                let contenders: [&dyn Contender; 3] = [&bare, &store, &canny];
                for is_put in [true, false] {
                    if !is_put && !is_durable {
                        continue;
                    }
                    let mut results = [const { Vec::new() }; 3];
                    for round in 0..rounds {
                        for turn in 0..3 {
                            // Who comes first changes.
                            let turn = (turn + round) % 3;
                            let measured =
                                measure(contenders[turn], size, clients, limit, is_put, is_durable);
                            results[turn].push(measured);
                        }
                    }
                    let [bare, lump, canny] = results.map(|results: Vec<(f64, f64)>| {
                        let (rates, latencies) = results.into_iter().unzip();
                        (median(rates), median(latencies))
                    });
                    let cell = |(rate, latency): (f64, f64)| {
                        format!("{rate:8.0} {:5.2} {:5.2}", rate / bare.0, bare.1 / latency)
                    };
                    let what = match (is_put, is_durable) {
                        (true, true) => "put durable",
                        (true, false) => "put buffered",
                        (false, _) => "get",
                    };
                    println!(
                        "{size:>7} {clients:>7} {what:14} {} {} {}",
                        cell(bare),
                        cell(lump),
                        cell(canny)
                    );
                }
            }
        }
    }
}
