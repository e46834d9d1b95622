//! lump and its peers on one file system, interleaved in one run, as `lump/docs/evidence/benchmark.md` tells.
//!
//! Knows nothing of how anybody stores; that is in `contenders`.

mod contenders;
#[cfg(feature = "rocksdb")]
#[allow(unsafe_code)]
mod sys;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use lab::statistics::{ComparisonOptions, compare};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use contenders::{Contender, Memory, NAMES};

/// Bytes of an object when stores are filled to be opened.
const OPENED_BYTES: usize = 100;
/// Threads that fill a store to be opened.
const FILLERS: u64 = 16;
const FIO: &str = "fio";
const FIO_UNSYNCED: &str = "fio-unsynced";
const FIO_HUGE: &str = "fio-huge";
const FIO_VERIFY: &str = "fio-verify";
/// All of fio's.
const FIOS: [&str; 4] = [FIO, FIO_HUGE, FIO_VERIFY, FIO_UNSYNCED];
/// Values from here on lie in huge pages.
const HUGE_BYTES_MIN: u64 = 64 << 10;
/// The directory of the file that several contenders have in turn.
const SHARED: &str = "shared";

/// Measures lump, its peers and the raw device: durable puts, and gets that no cache answers.
#[derive(Parser, Serialize)]
struct Arguments {
    /// A directory on the file system and device to measure; what is made in it is removed.
    #[arg(long)]
    directory: PathBuf,
    /// Who is measured, of: raw, fio, fio-huge, fio-verify, fio-unsynced, group, own, lump, lump-unsynced, cannyls, cannyls-unsynced, redb,
    /// fjall, rocksdb (if built in), files.
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// Sizes of the values in KiB.
    #[arg(long, value_delimiter = ',', default_value = "4,64,256,1024,4096")]
    sizes: Vec<u64>,
    /// Clients at a time; more than 8 only for values of up to 64 KiB.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    depths: Vec<u64>,
    /// Seconds of one turn.
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Turns of each contender in each cell. It is made anew for each.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Bytes of values that are live at once, in MiB; files have four times as much room.
    #[arg(long, default_value_t = 128)]
    live: u64,
    /// Fills each store with so many objects of 100 bytes, and opens it in a process of its own.
    #[arg(long, default_value_t = 0)]
    open: u64,
    /// Seed of the order of turns and keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the results to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only opens this contender: what a run calls itself with.
    #[arg(long, hide = true)]
    #[serde(skip)]
    open_only: Option<String>,
}

/// One turn, or all turns of a contender in a cell together.
#[derive(Clone)]
struct Turn {
    operations_per_second: Vec<f64>,
    /// fio has no latency of a write and its flush together.
    nanoseconds: Option<Histogram<u64>>,
    fio_ns: Option<BTreeMap<String, u64>>,
    operations: f64,
    read_bytes: u64,
    written_bytes: u64,
    flushes: u64,
}

#[derive(Serialize)]
struct Row {
    size_bytes: u64,
    clients: u64,
    action: &'static str,
    contender: String,
    /// One number a turn.
    operations_per_second: Vec<f64>,
    median_operations_per_second: f64,
    /// How many times as many lump does.
    lump_ratio: Option<Ratio>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    device_read_bytes_per_operation: f64,
    device_written_bytes_per_operation: f64,
    device_flushes_per_operation: f64,
}

/// A geometric mean over the rounds, with its interval of 95 %.
#[derive(Clone, Copy, Serialize)]
struct Ratio {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    /// Of rates that were measured in the same rounds.
    fn of(over: &[f64], under: &[f64]) -> Option<Self> {
        let found = compare(under, over, &ComparisonOptions::default()).ok()?;
        let (ratio, interval) = found.ratio.zip(found.interval)?;
        Some(Self { ratio, low: interval.low, high: interval.high })
    }
}

#[derive(Serialize, Deserialize)]
struct Opening {
    contender: String,
    objects: u64,
    seconds: f64,
    /// From the device, by all of it.
    read_bytes: u64,
    /// After the first get, and the most until then.
    memory_bytes: u64,
    memory_bytes_max: u64,
}

/// What the block device under the directory has done: bytes read and written, flushes.
struct DeviceCounts(Option<PathBuf>);

impl DeviceCounts {
    fn of(directory: &Path) -> Self {
        let number = fs::metadata(directory).map_or(0, |metadata| metadata.dev());
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Self(path.exists().then_some(path))
    }

    fn now(&self) -> [u64; 3] {
        let text = self.0.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let text = text.unwrap_or_default();
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let field = |place: usize| fields.get(place).copied().unwrap_or(0);
        [field(2) * 512, field(6) * 512, field(15)]
    }
}

/// Everything below the directory to the device and out of the page cache.
fn drop_cache(directory: &Path) {
    for entry in fs::read_dir(directory).expect("list the directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            drop_cache(&path);
        } else if let Ok(file) = File::open(&path) {
            let _ = file.sync_data();
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A turn of `clients` threads. Gets take each key once at most; puts take any of the client's.
fn turn(
    contender: &dyn Contender,
    size: usize,
    clients: u64,
    keys: u64,
    limit: Duration,
    is_put: bool,
    seed: u64,
) -> (f64, Histogram<u64>) {
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let ready = Barrier::new(clients as usize);
    let mut all = Histogram::new(3).expect("3 digits are a valid precision");
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let client = |client: u64| {
            let (done, stop, ready) = (&done, &stop, &ready);
            move || {
                let mut nanoseconds =
                    Histogram::<u64>::new(3).expect("3 digits are a valid precision");
                let mut random = ChaCha8Rng::seed_from_u64(seed ^ client << 32);
                let mut memory = Memory::new(size, seed ^ client);
                let mut own: Vec<u64> = (client..keys).step_by(clients as usize).collect();
                own.shuffle(&mut random);
                // What a client needs is there before the clock runs: it is much beside a few gets.
                ready.wait();
                let start = Instant::now();
                for step in 0.. {
                    if !is_put && step == own.len() {
                        break;
                    }
                    let place = if is_put { random.random_range(0..own.len()) } else { step };
                    let key = own[place];
                    let began = Instant::now();
                    if is_put {
                        contender.put(key, &mut memory, true);
                    } else {
                        contender.get(key, &mut memory);
                    }
                    let elapsed = began.elapsed().as_nanos() as u64;
                    nanoseconds.record(elapsed).expect("it grows as needed");
                    done.fetch_add(1, Ordering::Relaxed);
                    if start.elapsed() >= limit || stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                // All end together, so that the rate is that of all clients.
                stop.store(true, Ordering::Relaxed);
                (nanoseconds, start, Instant::now())
            }
        };
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(client(number))).collect();
        for thread in threads {
            let (nanoseconds, start, end) = thread.join().expect("no client panicked");
            all.add(nanoseconds).expect("equal histograms");
            times.extend([start, end]);
        }
    });
    let elapsed = times.iter().max().zip(times.iter().min()).map(|(end, start)| *end - *start);
    (done.load(Ordering::Relaxed) as f64 / elapsed.unwrap_or_default().as_secs_f64(), all)
}

/// Who fills the file of a contender: that of fio is like that of `raw`.
fn filler(name: &str) -> &str {
    if name.starts_with(FIO) { "raw" } else { name }
}

/// fio on a file like that of `raw`: with flushes as many writers with a flush after each write,
/// otherwise one queue of that depth.
fn fio(
    name: &str,
    file: &Path,
    size: u64,
    depth: u64,
    bytes: u64,
    limit: Duration,
    is_put: bool,
) -> (f64, f64, Option<BTreeMap<String, u64>>) {
    let mut command = Command::new("fio");
    // Huge pages, as the others have from 64 KiB on; it has memory for the largest of its sizes.
    if [FIO_HUGE, FIO_VERIFY].contains(&name) && size >= HUGE_BYTES_MIN {
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        command
            .args(["--iomem_align=2m", &format!("--bssplit={size}/100:{}/0", size.max(2 << 20))]);
    }
    if name == FIO_VERIFY {
        command.args(["--verify=crc32c", "--verify_fatal=1"]);
    }
    command.args(["--name=raw", "--output-format=json", "--direct=1", "--thread", "--norandommap"]);
    command.args(["--group_reporting", "--time_based", "--percentile_list=50:90:99:99.9"]);
    command.arg(format!("--filename={}", file.display()));
    command.args([format!("--bs={size}"), format!("--size={bytes}")]);
    // As much before its clock runs: it touches its memory first when it reads, and its jobs start apart.
    let milliseconds = limit.as_millis();
    command.args([format!("--runtime={milliseconds}ms"), format!("--ramp_time={milliseconds}ms")]);
    command.arg(if is_put { "--rw=randwrite" } else { "--rw=randread" });
    let flushes = is_put && name != FIO_UNSYNCED;
    if flushes {
        command.args(["--ioengine=psync", "--fdatasync=1"]).arg(format!("--numjobs={depth}"));
    } else {
        command.args(["--ioengine=io_uring".into(), format!("--iodepth={depth}")]);
    }
    let output = command.output().expect("start fio");
    assert!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let text = &text[text.find('{').expect("fio speaks JSON")..];
    let report: serde_json::Value = serde_json::from_str(text).expect("fio speaks JSON");
    let side = &report["jobs"][0][if is_put { "write" } else { "read" }];
    let latencies = serde_json::from_value(side["clat_ns"]["percentile"].clone()).ok();
    let number = |key: &str| side[key].as_f64().expect("fio counts its requests");
    // It gives the time in whole milliseconds, rounded up.
    let seconds = (number("runtime") - 0.5) / 1e3;
    (number("total_ios") / seconds, number("total_ios"), latencies.filter(|_| !flushes))
}

/// Has fio write what it can verify.
fn lay_for_fio(file: &Path, size: u64, bytes: u64) {
    let mut command = Command::new("fio");
    command.args(["--name=lay", "--rw=write", "--direct=1", "--verify=crc32c", "--do_verify=0"]);
    command.args([format!("--bs={size}"), format!("--size={bytes}"), "--end_fsync=1".into()]);
    command.arg(format!("--filename={}", file.display()));
    let output = command.output().expect("start fio");
    assert!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
}

/// Puts every key once, not durably, and then one durably.
fn fill(contender: &dyn Contender, size: usize, keys: u64) {
    let mut memory = Memory::new(size, 7);
    for key in 0..keys {
        contender.put(key, &mut memory, key + 1 == keys);
    }
    contender.settle();
}

/// As [`fill`], with small values and many clients: millions of them take minutes.
fn fill_at_once(contender: &dyn Contender, keys: u64) {
    std::thread::scope(|scope| {
        for client in 0..FILLERS {
            scope.spawn(move || {
                let mut memory = Memory::new(OPENED_BYTES, client);
                for key in (client..keys).step_by(FILLERS as usize) {
                    contender.put(key, &mut memory, false);
                }
            });
        }
    });
    contender.put(0, &mut Memory::new(OPENED_BYTES, 0), true);
    contender.settle();
}

fn measure(arguments: &Arguments, root: &Path, names: &[String]) -> Vec<Row> {
    let mut random = ChaCha8Rng::seed_from_u64(arguments.seed);
    let counts = DeviceCounts::of(root);
    let limit = Duration::from_secs_f64(arguments.seconds);
    let mut rows = Vec::new();
    println!(
        "{:>8} {:>3} {:3} {:16} {:>9} {:>5} {:>13} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7}",
        "bytes",
        "n",
        "",
        "",
        "op/s",
        "lump/",
        "of 95 %",
        "p50 us",
        "p90",
        "p99",
        "p99.9",
        "read/op",
        "written",
        "flushes"
    );
    for &size in &arguments.sizes {
        let size = size << 10;
        let keys = (arguments.live << 20) / size;
        let room = (arguments.live << 22).max(64 << 20);
        let depths = arguments
            .depths
            .iter()
            .filter(|&&clients| clients <= keys && (clients <= 8 || size <= 64 << 10));
        let cells: Vec<_> =
            depths.flat_map(|&clients| [(clients, true), (clients, false)]).collect();
        let mut turns: BTreeMap<_, Turn> = BTreeMap::new();
        let mut order: Vec<&str> = names.iter().map(String::as_str).collect();
        for _ in 0..arguments.rounds {
            order.shuffle(&mut random);
            for &name in &order {
                let directory = directory_of(name, root);
                contenders::create(name, &directory, room, 4 * keys + 1024);
                match name {
                    FIO_VERIFY => lay_for_fio(&directory.join("store"), size, keys * size),
                    _ => fill(&*contenders::open(filler(name), &directory), size as usize, keys),
                }
                for &(clients, is_put) in &cells {
                    let has_none = match name {
                        FIO_UNSYNCED => !is_put,
                        FIO_VERIFY => is_put,
                        FIO_HUGE => size < HUGE_BYTES_MIN,
                        _ => false,
                    };
                    if has_none {
                        continue;
                    }
                    let seed = random.random();
                    let one = one_turn(
                        name, &directory, size, clients, keys, limit, is_put, seed, &counts,
                    );
                    match turns.get_mut(&(clients, is_put, name)) {
                        Some(all) => all.add(one),
                        None => drop(turns.insert((clients, is_put, name), one)),
                    }
                }
                if !contenders::shares_file(name) {
                    fs::remove_dir_all(directory).expect("remove a directory");
                }
            }
        }
        for (clients, is_put) in cells {
            let turn = |name| turns.get(&(clients, is_put, name));
            let lump = turn("lump").map(|turn| &turn.operations_per_second[..]);
            for name in names {
                let Some(turn) = turn(name) else { continue };
                let row = turn.row(name, size, clients, is_put, lump);
                row.print();
                rows.push(row);
            }
        }
        let _ = fs::remove_dir_all(root.join(SHARED));
    }
    rows
}

/// Where a contender has its files, which exists. Those that need one file of a given length have the
/// same one in turn, since a file may be faster than another, by where it lies.
fn directory_of(name: &str, root: &Path) -> PathBuf {
    let directory = root.join(if contenders::shares_file(name) { SHARED } else { name });
    fs::create_dir_all(&directory).expect("make a directory");
    directory
}

#[allow(clippy::too_many_arguments)]
fn one_turn(
    name: &str,
    directory: &Path,
    size: u64,
    clients: u64,
    keys: u64,
    limit: Duration,
    is_put: bool,
    seed: u64,
    counts: &DeviceCounts,
) -> Turn {
    if name.starts_with(FIO) {
        let file = directory.join("store");
        let one = |_| {
            let before = counts.now();
            let (rate, operations, fio_ns) =
                fio(name, &file, size, clients, keys * size, limit, is_put);
            Turn::new(rate, None, fio_ns, operations, before, counts.now())
        };
        // In a short turn it may count nothing.
        let counted = (0..3).map(one).find(|turn| turn.operations > 0.0);
        return counted.expect("fio counts a request in one of three turns");
    }
    if !is_put {
        contenders::open(name, directory).settle();
        drop_cache(directory);
    }
    let contender = contenders::open(name, directory);
    let before = counts.now();
    let (rate, nanoseconds) = turn(&*contender, size as usize, clients, keys, limit, is_put, seed);
    let after = counts.now();
    let operations = nanoseconds.len() as f64;
    Turn::new(rate, Some(nanoseconds), None, operations, before, after)
}

impl Turn {
    fn new(
        rate: f64,
        nanoseconds: Option<Histogram<u64>>,
        fio_ns: Option<BTreeMap<String, u64>>,
        operations: f64,
        before: [u64; 3],
        after: [u64; 3],
    ) -> Self {
        let [read_bytes, written_bytes, flushes] =
            std::array::from_fn(|place| after[place].saturating_sub(before[place]));
        Self {
            operations_per_second: vec![rate],
            nanoseconds,
            fio_ns,
            operations,
            read_bytes,
            written_bytes,
            flushes,
        }
    }

    fn add(&mut self, other: Self) {
        self.operations_per_second.extend(other.operations_per_second);
        if let (Some(all), Some(more)) = (&mut self.nanoseconds, other.nanoseconds) {
            all.add(more).expect("equal histograms");
        }
        // fio gives no more than its percentiles; those of the last turn stand for all.
        self.fio_ns = other.fio_ns.or(self.fio_ns.take());
        self.operations += other.operations;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
    }

    fn row(&self, name: &str, size: u64, clients: u64, is_put: bool, lump: Option<&[f64]>) -> Row {
        let quantile = |percent: f64| {
            let own = self.nanoseconds.as_ref();
            let own = own.map(|nanoseconds| nanoseconds.value_at_quantile(percent / 100.0));
            let of_fio = self.fio_ns.as_ref();
            own.or(of_fio.and_then(|all| all.get(&format!("{percent:.6}")).copied()))
        };
        let rate = median(&self.operations_per_second);
        let each = |bytes: u64| bytes as f64 / self.operations.max(1.0);
        Row {
            size_bytes: size,
            clients,
            action: if is_put { "put" } else { "get" },
            contender: name.into(),
            operations_per_second: self.operations_per_second.clone(),
            median_operations_per_second: rate,
            lump_ratio: lump.and_then(|lump| Ratio::of(lump, &self.operations_per_second)),
            p50_ns: quantile(50.0),
            p90_ns: quantile(90.0),
            p99_ns: quantile(99.0),
            p999_ns: quantile(99.9),
            device_read_bytes_per_operation: each(self.read_bytes),
            device_written_bytes_per_operation: each(self.written_bytes),
            device_flushes_per_operation: each(self.flushes),
        }
    }
}

impl Row {
    fn print(&self) {
        let us = |nanoseconds: Option<u64>| {
            nanoseconds.map_or("-".into(), |value| format!("{:.0}", value as f64 / 1e3))
        };
        println!(
            "{:>8} {:>3} {:3} {:16} {:9.0} {:>5} {:>13} {:>8} {:>8} {:>8} {:>8} {:9.0} {:9.0} {:7.3}",
            self.size_bytes,
            self.clients,
            self.action,
            self.contender,
            self.median_operations_per_second,
            self.lump_ratio.map_or("-".into(), |of| format!("{:.2}", of.ratio)),
            self.lump_ratio.map_or("-".into(), |of| format!("{:.3}-{:.3}", of.low, of.high)),
            us(self.p50_ns),
            us(self.p90_ns),
            us(self.p99_ns),
            us(self.p999_ns),
            self.device_read_bytes_per_operation,
            self.device_written_bytes_per_operation,
            self.device_flushes_per_operation
        );
    }
}

/// A number that the kernel tells of this process in a file of /proc.
fn own_number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// Memory of this process that no file backs, in bytes.
fn memory_bytes() -> u64 {
    own_number("status", "RssAnon") << 10
}

/// Opens a filled store, gets one value, and says what that took.
fn open_only(arguments: &Arguments, name: &str) {
    let mut memory = Memory::new(OPENED_BYTES, 7);
    let most = || own_number("status", "VmHWM") << 10;
    let read = || own_number("io", "read_bytes");
    let before = [memory_bytes(), most(), read()];
    let start = Instant::now();
    let contender = contenders::open(name, &arguments.directory);
    contender.get(arguments.open / 2, &mut memory);
    let opening = Opening {
        contender: name.into(),
        objects: arguments.open,
        seconds: start.elapsed().as_secs_f64(),
        read_bytes: read() - before[2],
        memory_bytes: memory_bytes().saturating_sub(before[0]),
        memory_bytes_max: most() - before[1],
    };
    println!("{}", serde_json::to_string(&opening).expect("plain numbers"));
}

fn measure_opening(arguments: &Arguments, root: &Path, names: &[String]) -> Vec<Opening> {
    let mut openings = Vec::new();
    for name in names {
        if ["raw", "group", "own"].contains(&name.as_str()) || FIOS.contains(&name.as_str()) {
            continue;
        }
        let directory = root.join(name);
        fs::create_dir(&directory).expect("make a directory");
        // A value takes a whole sector or block. Of lump two checkpoints take 65 bytes an object,
        // and the journal of CannyLS a hundredth.
        let each = match name.as_str() {
            "lump" => contenders::block_size(&directory) + 80,
            _ => 5120,
        };
        let room = (arguments.open * each).max(32 << 20).next_multiple_of(4096) + (80 << 20);
        contenders::create(name, &directory, room, arguments.open + 1024);
        fill_at_once(&*contenders::open(name, &directory), arguments.open);
        drop_cache(&directory);
        let own = std::env::current_exe().expect("the path of this program");
        let output = Command::new(own)
            .args(["--open-only", name, "--open", &arguments.open.to_string(), "--directory"])
            .arg(&directory)
            .output()
            .expect("start this program");
        fs::remove_dir_all(&directory).expect("remove a directory");
        match serde_json::from_slice::<Opening>(&output.stdout) {
            Ok(opening) => {
                let each = |bytes: u64| bytes as f64 / opening.objects as f64;
                println!(
                    "{:16} {} objects: open and first get {:.3} s, {:.0} MiB read, {:.1} bytes of \
                     memory an object, at most {:.1}",
                    opening.contender,
                    opening.objects,
                    opening.seconds,
                    opening.read_bytes as f64 / f64::from(1 << 20),
                    each(opening.memory_bytes),
                    each(opening.memory_bytes_max)
                );
                openings.push(opening);
            }
            Err(_) => println!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
    openings
}

/// The versions of the peers, as they were built in.
fn versions() -> BTreeMap<&'static str, &'static str> {
    let lock = include_str!("../Cargo.lock");
    let version = |name: &'static str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some((name, rest.split('"').next()?))
    };
    ["cannyls", "redb", "fjall"].into_iter().filter_map(version).collect()
}

fn main() {
    let mut arguments = Arguments::parse();
    if let Some(name) = &arguments.open_only {
        return open_only(&arguments, name);
    }
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    if arguments.contenders.is_empty() {
        let known = ["raw"].into_iter().chain(FIOS).chain(NAMES.into_iter().skip(1));
        let is_there = |name: &&str| match *name {
            "rocksdb" => cfg!(feature = "rocksdb"),
            name if FIOS.contains(&name) => has_fio,
            _ => true,
        };
        arguments.contenders = known.filter(is_there).map(String::from).collect();
    }
    let names = arguments.contenders.clone();
    let root = arguments.directory.join(format!("lump-bench-{}", std::process::id()));
    fs::create_dir(&root).expect("make a directory");
    let guard = Removed(root.clone());
    let rows = measure(&arguments, &root, &names);
    let openings = match arguments.open {
        0 => Vec::new(),
        _ => measure_opening(&arguments, &root, &names),
    };
    drop(guard);
    if let Some(path) = &arguments.json {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let report = serde_json::json!({
            "arguments": arguments,
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": kernel.trim(),
            "versions": versions(),
            "cells": rows,
            "openings": openings,
        });
        let text = serde_json::to_string_pretty(&report).expect("plain numbers");
        fs::write(path, text + "\n").expect("write the results");
    }
}

/// A directory that goes away, also after a panic.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
