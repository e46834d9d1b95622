//! The bare device, the minfs library, ext4, XFS, Btrfs and the minfs mount, side by side.
//!
//! Every contender has a loop device (direct I/O) over an image of its own, written once in full.
//! All run in one process, in rounds: each round visits every contender once, in an order shuffled
//! from the seed, and a figure is the median over the rounds of the ratio to the bare device in
//! the same round. Needs root, mkfs.ext4, mkfs.xfs and mkfs.btrfs; says so and ends otherwise.
//!
//! `MINFS_BENCH_DIRECTORY` says where the images lie (a memory file system shows the software's
//! share, a disk the user's), `MINFS_BENCH_ROUNDS` how many rounds (7). `cargo bench -p minfs`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions};
use minfs::{MkfsOptions, MountOptions, Volume, mkfs};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
const IMAGE_BYTES: u64 = 640 << 20;
/// The area that the cells of the matrix read and write.
const AREA_BYTES: u64 = 256 << 20;
/// Where the bare device is used, so that no contender has a better place than it.
const RAW_OFFSET: u64 = 64 << 20;
const CELL_BYTES_MAX: u64 = 96 << 20;
const CELL_OPERATIONS_MAX: u64 = 1500;
const SEED: u64 = 2024;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A file that one contender works on: positional, past the page cache, with a sync.
trait Target: Send + Sync {
    fn read(&self, buffer: &mut [u8], offset: u64);
    fn write(&self, buffer: &[u8], offset: u64);
    fn sync(&self);
}

impl Target for File {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        self.read_exact_at(buffer, offset).expect("read");
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        self.write_all_at(buffer, offset).expect("write");
    }
    fn sync(&self) {
        self.sync_data().expect("sync");
    }
}

impl Target for minfs::File {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        assert_eq!(minfs::File::read(self, buffer, offset).expect("read"), buffer.len());
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        minfs::File::write(self, buffer, offset).expect("write");
    }
    fn sync(&self) {
        minfs::File::sync(self).expect("sync");
    }
}

struct Raw(Arc<FileDevice>);

impl Target for Raw {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        self.0.read_at(buffer, RAW_OFFSET + offset).expect("read");
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        self.0.write_at(buffer, RAW_OFFSET + offset).expect("write");
    }
    fn sync(&self) {
        self.0.flush().expect("flush");
    }
}

/// One contender: how it makes a fresh file, with or without space of its own.
enum Kind {
    Raw(Arc<FileDevice>),
    Library(Volume),
    Mounted(PathBuf),
}

struct Contender {
    name: &'static str,
    kind: Kind,
    loop_device: String,
}

impl Contender {
    fn new(name: &'static str, directory: &Path) -> Self {
        let image = directory.join(format!("{name}.image"));
        let file = File::create(&image).expect("create the image");
        let noise = vec![0x5a; 4 << 20];
        for offset in (0..IMAGE_BYTES).step_by(noise.len()) {
            file.write_all_at(&noise, offset).expect("fill the image");
        }
        file.sync_all().expect("sync the image");
        let image = image.to_str().expect("a plain path");
        let loop_device = run("losetup", &["--find", "--show", "--direct-io=on", image]);
        let open = || {
            let options = FileDeviceOptions { exclusive: true, ..Default::default() };
            Arc::new(FileDevice::open(&loop_device, &options).expect("open the loop device"))
        };
        let point = directory.join(name);
        let point_text = point.to_str().expect("a plain path");
        let make: &[&str] = match name {
            "ext4" => &["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0"],
            "xfs" => &["mkfs.xfs", "-q", "-f", "-K"],
            "btrfs" => &["mkfs.btrfs", "-q", "-f", "-K"],
            _ => &[],
        };
        let kind = match name {
            "raw" => Kind::Raw(open()),
            "minfs" => {
                let device = open();
                mkfs(&device, &MkfsOptions::default()).expect("mkfs");
                Kind::Library(Volume::mount(device, &MountOptions::default()).expect("mount"))
            }
            "minfs-fuse" => {
                fs::create_dir(&point).expect("make the mount point");
                run(MINFS, &["mkfs", "-f", "-q", &loop_device]);
                run(MINFS, &["mount", &loop_device, point_text]);
                Kind::Mounted(point)
            }
            _ => {
                fs::create_dir(&point).expect("make the mount point");
                run(make[0], &[&make[1..], &[loop_device.as_str()]].concat());
                run("mount", &[&loop_device, point_text]);
                Kind::Mounted(point)
            }
        };
        Self { name, kind, loop_device }
    }

    /// A fresh file; written and zeroed up to `prepared` bytes where that is not zero.
    fn file(&self, name: &str, prepared: u64) -> Box<dyn Target> {
        let target: Box<dyn Target> = match &self.kind {
            Kind::Raw(device) => return Box::new(Raw(device.clone())),
            Kind::Library(volume) => {
                let _ = volume.unlink(name.as_bytes());
                let file = volume.create(name.as_bytes(), 0o644).expect("create");
                if prepared > 0 {
                    file.preallocate(0, prepared, false, true).expect("preallocate");
                }
                return Box::new(file);
            }
            Kind::Mounted(point) => {
                let path = point.join(name);
                let _ = fs::remove_file(&path);
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
                Box::new(options.open(path).expect("create"))
            }
        };
        let zeros = AlignedBuffer::zeroed(4 << 20);
        for offset in (0..prepared).step_by(zeros.len()) {
            let length = (prepared - offset).min(zeros.len() as u64) as usize;
            target.write(&zeros[..length], offset);
        }
        target.sync();
        target
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if let Kind::Mounted(point) = &self.kind {
            let _ = Command::new("umount").arg(point).status();
        }
        // The device is let go of with the fields, after this; detaching waits for that.
        let _ = Command::new("losetup").args(["--detach", &self.loop_device]).status();
    }
}

/// One cell of the matrix.
#[derive(Clone, Copy)]
struct Cell {
    writes: bool,
    block_bytes: u64,
    depth: u64,
}

/// Random accesses from `depth` threads; writes end with one sync.
fn time_cell(target: &dyn Target, cell: Cell, seed: u64) -> Duration {
    let operations = (CELL_BYTES_MAX / cell.block_bytes).min(CELL_OPERATIONS_MAX);
    let per_thread = operations.div_ceil(cell.depth);
    let blocks = AREA_BYTES / cell.block_bytes;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..cell.depth {
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed + thread);
                let mut buffer = AlignedBuffer::zeroed(cell.block_bytes as usize);
                for _ in 0..per_thread {
                    let offset = random.random_range(0..blocks) * cell.block_bytes;
                    if cell.writes {
                        target.write(&buffer, offset);
                    } else {
                        target.read(&mut buffer, offset);
                    }
                }
            });
        }
    });
    if cell.writes {
        target.sync();
    }
    start.elapsed()
}

/// Writes one after the other from the start of the file, a sync after each.
fn time_puts(target: &dyn Target, block_bytes: u64) -> Duration {
    let buffer = AlignedBuffer::zeroed(block_bytes as usize);
    let operations = (CELL_BYTES_MAX / block_bytes).min(100);
    let start = Instant::now();
    for index in 0..operations {
        target.write(&buffer, index * block_bytes);
        target.sync();
    }
    start.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Times every contender once a round and prints a row: the median of the bare device in
/// milliseconds, of the others the median ratio to it and, in parentheses, the ratio of the
/// fastest rounds, which other work on the machine disturbs least.
fn row(
    title: &str,
    contenders: &[Contender],
    rounds: u64,
    mut time: impl FnMut(usize, u64) -> Duration,
) {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut ratios = vec![Vec::new(); contenders.len()];
    let mut raw_ms = Vec::new();
    let mut fastest = vec![f64::INFINITY; contenders.len()];
    for round in 0..rounds {
        let mut order: Vec<_> = (0..contenders.len()).collect();
        order.shuffle(&mut random);
        let mut elapsed = vec![0.0; contenders.len()];
        for index in order {
            elapsed[index] = time(index, SEED + 1000 * round).as_secs_f64();
        }
        raw_ms.push(elapsed[0] * 1e3);
        for (index, seconds) in elapsed.iter().enumerate() {
            ratios[index].push(seconds / elapsed[0]);
            fastest[index] = seconds.min(fastest[index]);
        }
    }
    let figures: Vec<_> = ratios
        .into_iter()
        .zip(&fastest)
        .skip(1)
        .map(|(ratios, least)| format!("{:.3} ({:.3})", median(ratios), least / fastest[0]))
        .collect();
    println!("| {title} | {:.1} | {} |", median(raw_ms), figures.join(" | "));
}

fn head(title: &str, contenders: &[Contender]) {
    let names: Vec<_> = contenders.iter().skip(1).map(|contender| contender.name).collect();
    println!("\n| {title} | raw, ms | {} |", names.join(" | "));
    println!("| --- |{}", " ---: |".repeat(names.len() + 1));
}

/// A device that does nothing at once, so that what is left is the library's own time. Metadata
/// goes to memory, since the volume must find it again.
struct Nothing {
    memory: block::MemoryDevice,
    data_from: u64,
}

impl BlockDevice for Nothing {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        if offset < self.data_from { self.memory.read_at(buffer, offset) } else { Ok(()) }
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        if offset < self.data_from { self.memory.write_at(buffer, offset) } else { Ok(()) }
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _length: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the library adds to each request, whatever the device: fastest of many short runs.
fn time_software() {
    const OPERATIONS: u32 = 20_000;
    let memory = block::MemoryDevice::new(1 << 30, 512);
    mkfs(&memory, &MkfsOptions::default()).expect("mkfs");
    let data_from = minfs::identify(&memory).expect("it is a volume").unit_offset(0);
    let device = Arc::new(Nothing { memory, data_from });
    let volume = Volume::mount(device, &MountOptions::default()).expect("mount");
    let file = volume.create(b"area", 0o644).expect("create");
    file.preallocate(0, AREA_BYTES, false, true).expect("preallocate");
    let mut buffer = AlignedBuffer::zeroed(4096);
    let mut fastest_ns = |work: &mut dyn FnMut(&mut [u8], u64)| {
        let runs = (0..50).map(|_| {
            let start = Instant::now();
            for index in 0..OPERATIONS {
                work(&mut buffer, u64::from(index) * 4096);
            }
            start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
        });
        runs.fold(f64::INFINITY, f64::min)
    };
    let write_ns = fastest_ns(&mut |buffer, offset| Target::write(&file, buffer, offset));
    let read_ns = fastest_ns(&mut |buffer, offset| Target::read(&file, buffer, offset));
    let sync_ns = fastest_ns(&mut |_, _| Target::sync(&file));
    println!(
        "\nThe library's own time for a 4 KiB request: write {write_ns:.0} ns, read {read_ns:.0} \
         ns, sync {sync_ns:.0} ns (fastest of 50 runs)"
    );
    let log = volume.create(b"log", 0o644).expect("create");
    let mut append_ns = f64::INFINITY;
    for _ in 0..20 {
        log.truncate(0).expect("truncate");
        let start = Instant::now();
        for index in 0..500_u64 {
            Target::write(&log, &buffer, index * 4096);
            Target::sync(&log);
        }
        append_ns = append_ns.min(start.elapsed().as_nanos() as f64 / 500.0);
    }
    println!("An extending 4 KiB write with its sync: {append_ns:.0} ns (fastest of 20 runs)");
}

fn time_huge_volume(directory: &Path) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..7 {
        let path = directory.join("huge.image");
        let device = Arc::new(FileDevice::create(&path, 1 << 40).expect("a sparse image"));
        let start = Instant::now();
        mkfs(&device, &MkfsOptions::default()).expect("mkfs");
        times[0].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let volume = Volume::mount(device, &MountOptions::default()).expect("mount");
        times[1].push(start.elapsed().as_secs_f64() * 1e3);
        drop(volume);
        fs::remove_file(path).expect("remove the image");
    }
    let [mkfs_ms, mount_ms] = times.map(median);
    println!("\n1 TiB sparse image: mkfs {mkfs_ms:.1} ms, mount {mount_ms:.1} ms (medians of 7)");
}

fn main() {
    // `cargo test` also starts benchmarks, to see that they run; this one needs minutes and root.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    time_software();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: loop devices and mounts need root");
        return;
    }
    let directory = match std::env::var_os("MINFS_BENCH_DIRECTORY") {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    }
    .expect("a directory for the images");
    let directory_path = directory.path();
    let rounds = std::env::var("MINFS_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(7);
    time_huge_volume(directory_path);
    let names = ["raw", "minfs", "ext4", "xfs", "btrfs", "minfs-fuse"];
    let contenders: Vec<_> =
        names.into_iter().map(|name| Contender::new(name, directory_path)).collect();
    println!(
        "\n{rounds} rounds, seed {SEED}; ratios of elapsed time to raw: median (of the fastest)"
    );
    let files: Vec<_> =
        contenders.iter().map(|contender| contender.file("area", AREA_BYTES)).collect();
    head("random, past the page cache", &contenders);
    for writes in [false, true] {
        for depth in [1, 32] {
            for block_bytes in [4 << 10, 64 << 10, 1 << 20, 4 << 20] {
                let cell = Cell { writes, block_bytes, depth };
                let kind = if writes { "write" } else { "read" };
                let title = format!("{kind} {} KiB, depth {depth}", block_bytes >> 10);
                row(&title, &contenders, rounds, |index, seed| {
                    time_cell(&*files[index], cell, seed)
                });
            }
        }
    }
    head("put: write in order, fdatasync each", &contenders);
    for block_bytes in [256 << 10, 4 << 20] {
        let title = format!("{} KiB, extending", block_bytes >> 10);
        row(&title, &contenders, rounds, |index, _| {
            time_puts(&*contenders[index].file("put", 0), block_bytes)
        });
        let title = format!("{} KiB, prepared space", block_bytes >> 10);
        let prepared: Vec<_> =
            contenders.iter().map(|contender| contender.file("prepared", CELL_BYTES_MAX)).collect();
        row(&title, &contenders, rounds, |index, _| time_puts(&*prepared[index], block_bytes));
    }
}
