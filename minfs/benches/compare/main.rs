//! The bare device, the minfs library, ext4, XFS, Btrfs and the minfs mount, in one run.
//!
//! Every file system has a loop device (direct I/O) over an image of its own, written once in full.
//! The library and the bare device share one: what the library reads and writes in its file, the
//! bare device reads and writes at the same places, so that nothing but the library lies between
//! the two. `paired` says how times are taken. Four parts: the library against the bare device
//! alone, in as many rounds as fit; files that grow, on the loop device and on a modelled disk; all
//! contenders; files that many threads grow. Needs root,
//! mkfs.ext4, mkfs.xfs and mkfs.btrfs; says so and ends otherwise.
//!
//! Whatever ends it, even SIGKILL, the kernel gives mounts, loop devices and images back: the mounts
//! lie in a namespace of its own, devices clear themselves, images have no names.
//!
//! `MINFS_BENCH_DIRECTORY` says where the images lie (a memory file system shows the software's
//! share, a disk the user's), `MINFS_BENCH_SECONDS` how long each cell lasts at least (6; 15 times
//! that where the interval stays wide, some twenty minutes in all);
//! `MINFS_BENCH_PARTS=library,extending,all,growth` picks parts, `MINFS_BENCH_CELLS` those cells of
//! library and all whose name contains it.
//! `cargo bench -p minfs`.

mod contenders;
mod modelled;
mod paired;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{AlignedBuffer, BlockDevice, FileDevice};
use contenders::{AREA_BYTES, FileSystem, IMAGE_BYTES, Pair};
use minfs::{MkfsOptions, MountOptions, Volume, mkfs};
use paired::{Access, Budget, Load, Ratio, Target, measure};

const SEED: u64 = 2024;
/// The library's time may differ from the bare device's by this share.
const BOUND: f64 = 0.02;
/// Intervals are narrow enough when they are no wider: those of the library to tell 2 %, the others
/// to tell file systems apart.
const LIBRARY_WIDTH: f64 = 0.008;
const OTHERS_WIDTH: f64 = 0.03;
/// The environment variable that tells that the namespace was entered.
const INSIDE_VARIABLE: &str = "MINFS_BENCH_INSIDE";
const PARTS: [&str; 4] = ["library", "extending", "all", "growth"];
const MATRIX: [Access; 2] = [Access::RandomRead, Access::RandomWrite];
const DEPTHS: [usize; 2] = [1, 32];
const BLOCKS: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 4 << 20];
const PUTS: [u64; 2] = [256 << 10, 4 << 20];

fn load(access: Access, block_bytes: u64, depth: usize) -> Load {
    Load { access, block_bytes, depth, area_bytes: AREA_BYTES, seed: SEED }
}

fn title(load: Load) -> String {
    let kib = load.block_bytes >> 10;
    match load.access {
        Access::RandomRead => format!("read {kib} KiB, depth {}", load.depth),
        Access::RandomWrite => format!("write {kib} KiB, depth {}", load.depth),
        Access::SyncedInOrder => format!("put {kib} KiB, prepared space"),
        Access::SyncedAppend => format!("put {kib} KiB, extending"),
    }
}

fn verdict(ratio: &Ratio) -> &'static str {
    if ratio.high <= 1.0 + BOUND && ratio.low >= 1.0 - BOUND {
        "within 2 %"
    } else if ratio.low > 1.0 + BOUND {
        "slower"
    } else if ratio.high < 1.0 - BOUND {
        "faster"
    } else if ratio.high <= 1.0 + BOUND {
        "not 2 % slower"
    } else {
        "open"
    }
}

fn shown(ratio: &Ratio) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.median, ratio.low, ratio.high)
}

/// All cells that are wanted of the parts that have a matrix.
fn cells() -> Vec<Load> {
    let mut cells = Vec::new();
    for access in MATRIX {
        for depth in DEPTHS {
            cells.extend(BLOCKS.map(|block_bytes| load(access, block_bytes, depth)));
        }
    }
    for block_bytes in PUTS {
        cells.push(load(Access::SyncedInOrder, block_bytes, 1));
        cells.push(load(Access::SyncedAppend, block_bytes, 1));
    }
    let wanted = std::env::var("MINFS_BENCH_CELLS").unwrap_or_default();
    cells.retain(|cell| title(*cell).contains(&wanted));
    cells
}

/// The library against the bare device at the same places, and, as a control of the method, the
/// bare device against itself.
fn compare_the_library(pair: &Pair<FileDevice>, budget: Budget) {
    println!(
        "\n| against the bare device [95 %] | raw, us | the bare device itself | library | rounds | |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for cell in cells() {
        if cell.access == Access::SyncedAppend {
            continue;
        }
        let (raw, again) = (pair.raw(cell), pair.raw(cell));
        let times = measure(&[&raw, &pair.area, &again], cell, [1, 0], budget);
        let ratio = times.ratio(1, 0);
        println!(
            "| {} | {:.1} | {} | {} | {} | {} |",
            title(cell),
            times.microseconds(0),
            shown(&times.ratio(2, 0)),
            shown(&ratio),
            times.rounds.len(),
            verdict(&ratio)
        );
    }
}

/// Writes at the end, a sync each: beside the bare device, and beside one that writes 4 KiB more
/// before each flush, which a new length costs a file system without a log.
fn compare_extending<D: BlockDevice + 'static>(pair: &Pair<D>, medium: &str, budget: Budget) {
    println!(
        "\n| extending, a sync each, {medium} | raw, us | raw and 4 KiB | minfs | minfs to raw and 4 KiB | |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for block_bytes in [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let cell = load(Access::SyncedAppend, block_bytes, 1);
        let (raw, with_record) = (pair.raw(cell), pair.raw_with_record(cell));
        let growing = pair.growing_in_place();
        let times = measure(&[&raw, &with_record, &growing], cell, [2, 1], budget);
        let ratio = times.ratio(2, 1);
        println!(
            "| {} KiB | {:.1} | {} | {} | {} | {} |",
            block_bytes >> 10,
            times.microseconds(0),
            shown(&times.ratio(1, 0)),
            shown(&times.ratio(2, 0)),
            shown(&ratio),
            verdict(&ratio)
        );
    }
}

/// All contenders, each on a device of its own but for the bare one and the library.
fn compare_all(pair: &Pair<FileDevice>, others: &[FileSystem], budget: Budget) {
    let names: Vec<_> = others.iter().map(|other| other.name).collect();
    println!("\n| ratio to the bare device [95 %] | raw, us | minfs | {} |", names.join(" | "));
    println!("| --- |{}", " ---: |".repeat(names.len() + 2));
    let prepared: Vec<_> = others.iter().map(|other| other.file("area", false)).collect();
    for cell in cells() {
        let raw = pair.raw(cell);
        let growing = pair.growing_in_place();
        let grown: Vec<_> = others.iter().map(|other| other.file("growing", true)).collect();
        let grows = cell.access == Access::SyncedAppend;
        let mut targets: Vec<&dyn Target> = vec![&raw, if grows { &growing } else { &pair.area }];
        for file in if grows { &grown } else { &prepared } {
            targets.push(file);
        }
        let times = measure(&targets, cell, [1, 0], budget);
        let ratios: Vec<_> =
            (1..targets.len()).map(|target| shown(&times.ratio(target, 0))).collect();
        println!("| {} | {:.1} | {} |", title(cell), times.microseconds(0), ratios.join(" | "));
    }
}

/// Files that many threads grow by 64 KiB, a sync after each.
fn compare_growth(pair: &Pair<FileDevice>, others: &[FileSystem], budget: Budget) {
    let names: Vec<_> = others.iter().map(|other| other.name).collect();
    println!(
        "\n| 64 KiB extending, a sync each | raw, us | minfs, one file | minfs, one each | {} |",
        names.join(" | ")
    );
    println!("| --- |{}", " ---: |".repeat(names.len() + 3));
    let own = ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"];
    for threads in [1, 2, 4, 8] {
        let cell = load(Access::SyncedAppend, 64 << 10, threads);
        let raw = pair.raw(cell);
        let (one, each) = (pair.growing(&["growing"]), pair.growing(&own[..threads]));
        let grown: Vec<_> = others.iter().map(|other| other.file("growing", true)).collect();
        let mut targets: Vec<&dyn Target> = vec![&raw, &one, &each];
        for file in &grown {
            targets.push(file);
        }
        let times = measure(&targets, cell, [1, 0], budget);
        let ratios: Vec<_> =
            (1..targets.len()).map(|target| shown(&times.ratio(target, 0))).collect();
        let raw_us = times.microseconds(0);
        println!("| {threads} threads | {raw_us:.1} | {} |", ratios.join(" | "));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
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
    let write_ns = fastest_ns(&mut |buffer, offset| file.write(buffer, offset).expect("write"));
    let read_ns = fastest_ns(&mut |buffer, offset| {
        file.read(buffer, offset).expect("read");
    });
    let sync_ns = fastest_ns(&mut |_, _| file.sync().expect("sync"));
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
            log.write(&buffer, index * 4096).expect("write");
            log.sync().expect("sync");
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
        fs::remove_file(path).expect("remove the name of the image");
        let start = Instant::now();
        mkfs(&device, &MkfsOptions::default()).expect("mkfs");
        times[0].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let volume = Volume::mount(device, &MountOptions::default()).expect("mount");
        times[1].push(start.elapsed().as_secs_f64() * 1e3);
        drop(volume);
    }
    let [mkfs_ms, mount_ms] = times.map(median);
    println!("\n1 TiB sparse image: mkfs {mkfs_ms:.1} ms, mount {mount_ms:.1} ms (medians of 7)");
}

/// Goes on as the same process, in a mount namespace of its own.
fn enter_namespace() -> std::io::Error {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--"]).arg(program).args(std::env::args_os().skip(1));
    command.env(INSIDE_VARIABLE, "1").exec()
}

fn main() {
    // `cargo test` also starts benchmarks, to see that they run; this one needs minutes and root.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && std::env::var_os(INSIDE_VARIABLE).is_none() {
        panic!("unshare: {}", enter_namespace());
    }
    time_software();
    if !is_root {
        eprintln!("SKIPPED: loop devices and mounts need root");
        return;
    }
    let directory = match std::env::var_os("MINFS_BENCH_DIRECTORY") {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    }
    .expect("a directory for the images");
    let seconds = std::env::var("MINFS_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let least = Duration::from_secs_f64(seconds.unwrap_or(6.0));
    let budget = Budget { least, most: 15 * least, width: OTHERS_WIDTH };
    time_huge_volume(directory.path());
    println!(
        "\nSeed {SEED}, {} s a cell, up to {} s while the interval is wider than {LIBRARY_WIDTH} \
         (library) or {OTHERS_WIDTH}; medians over rounds",
        budget.least.as_secs_f64(),
        budget.most.as_secs_f64()
    );
    let pair = Pair::on_loop(directory.path());
    let parts = std::env::var("MINFS_BENCH_PARTS").unwrap_or_else(|_| PARTS.join(","));
    let is_wanted = |part: &str| parts.split(',').any(|wanted| wanted == part);
    if is_wanted("library") {
        compare_the_library(&pair, Budget { width: LIBRARY_WIDTH, ..budget });
    }
    if is_wanted("extending") {
        compare_extending(&pair, "loop device", budget);
        let modelled = Pair::new(modelled::Disk::new(IMAGE_BYTES), None);
        compare_extending(&modelled, "modelled 7200 rpm", budget);
    }
    if !is_wanted("all") && !is_wanted("growth") {
        return;
    }
    let others: Vec<_> = ["ext4", "xfs", "btrfs", "minfs-fuse"]
        .into_iter()
        .map(|name| FileSystem::new(name, directory.path()))
        .collect();
    if is_wanted("all") {
        compare_all(&pair, &others, budget);
    }
    if is_wanted("growth") {
        compare_growth(&pair, &others[..2], budget);
    }
}
