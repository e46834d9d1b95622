//! What the benchmark compares: the bare device, the library on it, and mounted file systems, each as
//! a target of the same loads.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use block::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions};
use minfs::{MkfsOptions, MountOptions, Volume, mkfs};

use crate::paired::{Access, Load, Target};

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
pub const IMAGE_BYTES: u64 = 640 << 20;
/// The area that the cells read and write.
pub const AREA_BYTES: u64 = 192 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A loop device over an image that is written in full. The kernel gives both back when the last
/// user of the device is gone, even if that is killed.
pub struct Loop {
    path: String,
    _node: File,
}

impl Loop {
    fn new(name: &str, directory: &Path) -> Self {
        let image = directory.join(format!("{name}.image"));
        let file = File::create(&image).expect("create the image");
        file.set_len(IMAGE_BYTES).expect("set the image's length");
        let text = image.to_str().expect("a plain path");
        let path = run("losetup", &["--find", "--show", "--direct-io=on", text]);
        let node = File::open(&path).expect("open the loop device");
        // Detached while it is open, it clears itself with its last user.
        run("losetup", &["--detach", &path]);
        let facts = path.replace("/dev", "/sys/block") + "/loop/autoclear";
        assert_eq!(fs::read_to_string(facts).expect("it is attached").trim(), "1");
        fs::remove_file(&image).expect("remove the name of the image");
        let noise = vec![0x5a; 4 << 20];
        for offset in (0..IMAGE_BYTES).step_by(noise.len()) {
            file.write_all_at(&noise, offset).expect("fill the image");
        }
        file.sync_all().expect("sync the image");
        Self { path, _node: node }
    }
}

/// The bytes of a device from `start` on.
pub struct Raw<D> {
    device: Arc<D>,
    start: u64,
    end: AtomicU64,
    /// What is written before each sync, if anything.
    record: Option<RawRecord>,
}

/// A block of 4 KiB that takes turns on two places, as the library's record of a file that grew.
struct RawRecord {
    bytes: AlignedBuffer,
    places: [u64; 2],
    count: AtomicUsize,
}

impl<D: BlockDevice> Target for Raw<D> {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        self.device.read_at(buffer, self.start + offset).expect("read");
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        self.device.write_at(buffer, self.start + offset).expect("write");
    }
    fn sync(&self) {
        if let Some(record) = &self.record {
            let place = record.places[record.count.fetch_add(1, Ordering::Relaxed) % 2];
            self.device.write_at(&record.bytes, place).expect("write");
        }
        self.device.flush().expect("flush");
    }
    fn append(&self, _thread: usize, buffer: &[u8]) {
        let offset = self.end.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.write(buffer, offset % AREA_BYTES);
    }
    fn rewind(&self) {
        self.end.store(0, Ordering::Relaxed);
    }
}

/// Files of the library; appending threads take turns on them.
pub struct Library {
    files: Vec<minfs::File>,
    grows: bool,
}

impl Target for Library {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        assert_eq!(self.files[0].read(buffer, offset).expect("read"), buffer.len());
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        self.files[0].write(buffer, offset).expect("write");
    }
    fn sync(&self) {
        self.files[0].sync().expect("sync");
    }
    fn append(&self, thread: usize, buffer: &[u8]) {
        self.files[thread % self.files.len()].append(buffer).expect("append");
    }
    fn sync_end(&self, thread: usize) {
        self.files[thread % self.files.len()].sync().expect("sync");
    }
    fn rewind(&self) {
        for file in self.files.iter().filter(|_| self.grows) {
            file.truncate(0).expect("truncate");
        }
    }
}

/// A file of a mounted file system, opened twice: at offsets, and at its end.
pub struct Mounted {
    file: File,
    end: File,
    grows: bool,
}

impl Target for Mounted {
    fn read(&self, buffer: &mut [u8], offset: u64) {
        self.file.read_exact_at(buffer, offset).expect("read");
    }
    fn write(&self, buffer: &[u8], offset: u64) {
        self.file.write_all_at(buffer, offset).expect("write");
    }
    fn sync(&self) {
        self.file.sync_data().expect("sync");
    }
    fn append(&self, _thread: usize, buffer: &[u8]) {
        (&self.end).write_all(buffer).expect("append");
    }
    fn rewind(&self) {
        if self.grows {
            self.file.set_len(0).expect("truncate");
            self.file.sync_all().expect("sync");
        }
    }
}

fn prepare(target: &dyn Target) {
    let zeros = AlignedBuffer::zeroed(4 << 20);
    for offset in (0..AREA_BYTES).step_by(zeros.len()) {
        target.write(&zeros, offset);
    }
    target.sync();
}

/// The library's volume, and the bare device below it.
pub struct Pair<D> {
    device: Arc<D>,
    volume: Volume,
    /// Both slots of an inode right behind those that growing files use, which stays free.
    free_slots: [u64; 2],
    /// Where the library's prepared file lies on the device.
    area_at: u64,
    /// Where its files grow.
    growing_at: u64,
    pub area: Library,
    _device_held: Option<Loop>,
}

impl Pair<FileDevice> {
    pub fn on_loop(directory: &Path) -> Self {
        let attached = Loop::new("minfs", directory);
        let options = FileDeviceOptions { exclusive: true, ..Default::default() };
        let device = FileDevice::open(&attached.path, &options).expect("open the loop device");
        Self::new(device, Some(attached))
    }
}

impl<D: BlockDevice + 'static> Pair<D> {
    pub fn new(device: D, attached: Option<Loop>) -> Self {
        let device = Arc::new(device);
        mkfs(&device, &MkfsOptions::default()).expect("mkfs");
        let geometry = minfs::identify(&device).expect("it is a volume");
        let free_slots = [0, 1].map(|slot| geometry.slot_offset(2, slot));
        let volume = Volume::mount(device.clone(), &MountOptions::default()).expect("mount");
        let file = volume.create(b"area", 0o644).expect("create");
        file.preallocate(0, AREA_BYTES, false, true).expect("preallocate");
        let pieces = file.pieces();
        assert_eq!(pieces.len(), 1, "a fresh volume gives contiguous space");
        let area_at = pieces[0].device_offset;
        let area = Library { files: vec![file], grows: false };
        let growing = volume.create(b"growing", 0o644).expect("create");
        growing.append(&AlignedBuffer::zeroed(4096)).expect("append");
        let growing_at = growing.pieces()[0].device_offset;
        Self { device, volume, free_slots, area_at, growing_at, area, _device_held: attached }
    }

    /// The bare device where the library works under `load`.
    pub fn raw(&self, load: Load) -> Raw<D> {
        let grows = load.access == Access::SyncedAppend;
        let start = if grows { self.growing_at } else { self.area_at };
        Raw { device: self.device.clone(), start, end: AtomicU64::new(0), record: None }
    }

    /// The bare device where files grow, with the write that a new length takes.
    pub fn raw_with_record(&self, load: Load) -> Raw<D> {
        let (bytes, count) = (AlignedBuffer::zeroed(4096), AtomicUsize::new(0));
        let record = RawRecord { bytes, places: self.free_slots, count };
        Raw { record: Some(record), ..self.raw(load) }
    }

    pub fn growing(&self, names: &[&str]) -> Library {
        let create = |name: &&str| {
            let _ = self.volume.unlink(name.as_bytes());
            self.volume.create(name.as_bytes(), 0o644).expect("create")
        };
        Library { files: names.iter().map(create).collect(), grows: true }
    }

    /// A file that grows where the bare device is written as well.
    pub fn growing_in_place(&self) -> Library {
        let library = self.growing(&["growing"]);
        library.files[0].append(&AlignedBuffer::zeroed(4096)).expect("append");
        assert_eq!(library.files[0].pieces()[0].device_offset, self.growing_at);
        library
    }
}

/// A file system that is mounted.
pub struct FileSystem {
    pub name: &'static str,
    point: PathBuf,
    /// What serves it, where the kernel does not.
    daemon: Option<Child>,
    _device: Loop,
}

/// Serves minfs through FUSE until it is unmounted or the benchmark ends in whatever way.
fn serve(device: &str, point: &Path) -> Child {
    let bare = fs::metadata(point).expect("the mount point").dev();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", MINFS, "mount", "--foreground", device]).arg(point);
    let mut daemon = command.spawn().expect("start setpriv");
    while fs::metadata(point).expect("the mount point").dev() == bare {
        assert_eq!(daemon.try_wait().expect("ask for its end"), None, "the mount failed");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}

impl FileSystem {
    pub fn new(name: &'static str, directory: &Path) -> Self {
        let device = Loop::new(name, directory);
        let point = directory.join(name);
        fs::create_dir(&point).expect("make the mount point");
        let make: &[&str] = match name {
            "ext4" => &["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0"],
            "xfs" => &["mkfs.xfs", "-q", "-f", "-K"],
            "btrfs" => &["mkfs.btrfs", "-q", "-f", "-K"],
            _ => &[MINFS, "mkfs", "-f", "-q"],
        };
        run(make[0], &[&make[1..], &[device.path.as_str()]].concat());
        let daemon = if name == "minfs-fuse" {
            Some(serve(&device.path, &point))
        } else {
            run("mount", &[&device.path, point.to_str().expect("a plain path")]);
            None
        };
        Self { name, point, daemon, _device: device }
    }

    pub fn file(&self, name: &str, grows: bool) -> Mounted {
        let path = self.point.join(name);
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
        let file = options.open(&path).expect("create");
        let end = OpenOptions::new().append(true).custom_flags(libc::O_DIRECT).open(&path);
        let file = Mounted { file, end: end.expect("open"), grows };
        if !grows {
            prepare(&file);
        }
        file
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
        if let Some(daemon) = &mut self.daemon {
            // Where the unmount failed it would not end.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
