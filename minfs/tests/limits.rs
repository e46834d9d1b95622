//! Volumes up to the limits of the format, and images that ask for more work than their size allows.
//!
//! The mounts need root and /dev/fuse; elsewhere those tests say that they were skipped.

#[path = "common/mount.rs"]
mod common;
#[allow(dead_code, reason = "only the checksums are made right here")]
#[path = "common/mutation.rs"]
mod mutation;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, CountingDevice, MemoryDevice};
use common::{Mount, minfs, pattern, succeed};
use minfs::{MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};
use rustix::fs::FallocateFlags;

const BLOCK: u64 = 4096;

/// A device of any length that keeps the blocks that were written.
struct Sparse {
    length: u64,
    blocks: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Sparse {
    fn new(length: u64) -> Arc<Self> {
        Arc::new(Self { length, blocks: Mutex::default() })
    }
}

impl BlockDevice for Sparse {
    fn len(&self) -> u64 {
        self.length
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(offset + buffer.len() as u64 <= self.length, "a read outside of the device");
        let blocks = self.blocks.lock().unwrap();
        for (at, piece) in (offset..).step_by(BLOCK as usize).zip(buffer.chunks_mut(BLOCK as usize))
        {
            match blocks.get(&at) {
                Some(bytes) => piece.copy_from_slice(bytes),
                None => piece.fill(0),
            }
        }
        Ok(())
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.length, "a write outside of the device");
        let mut blocks = self.blocks.lock().unwrap();
        for (at, piece) in (offset..).step_by(BLOCK as usize).zip(bytes.chunks(BLOCK as usize)) {
            blocks.insert(at, piece.to_vec());
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}

/// All pieces of all files, sorted; none may overlap another one.
fn assert_that_no_space_is_given_out_twice(volume: &Volume) {
    let mut places = Vec::new();
    for facts in volume.list() {
        let file = volume.open(&facts.name).unwrap();
        places.extend(file.pieces().iter().map(|piece| (piece.device_offset, piece.length)));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
}

/// Extents of more than 2^31 units: space was given out twice by an implementation that counted
/// units in 31 bits.
#[test]
fn extents_of_more_than_2_to_the_31_units_are_given_out_once() {
    for (device_bytes, unit_bytes) in [
        (10 << 40, 4096),
        // The most units that there are, and the largest.
        ((1_u64 << 44) + (1 << 20), 4096),
        (1 << 62, 1 << 30),
    ] {
        let device = Sparse::new(device_bytes);
        let options =
            MkfsOptions { unit_bytes: Some(unit_bytes), files: Some(8), ..Default::default() };
        let geometry = mkfs(&*device, &options).unwrap();
        assert!(geometry.unit_count() > 1 << 31);
        let mount = || Volume::mount(device.clone(), &MountOptions::default()).unwrap();
        let volume = mount();
        let total = volume.space().total_bytes;
        let (large, unit) = (total / 10 * 9 / BLOCK * BLOCK, u64::from(unit_bytes));
        let put = |name: &[u8], space: u64, fill: usize| {
            let file = volume.create(name, 0o644).unwrap();
            file.preallocate(0, space, true, false).unwrap();
            file.write(&pattern(9000, fill), 0).unwrap();
            file.sync().unwrap();
            file
        };
        let a = put(b"a", large, 1);
        put(b"b", total - large.next_multiple_of(unit), 2);
        assert_eq!(volume.space().free_bytes, 0);
        assert_that_no_space_is_given_out_twice(&volume);
        // What the large one gives up becomes that of two others.
        a.truncate(8192).unwrap();
        put(b"c", large / 3 * 2, 3);
        put(b"d", large / 4, 4);
        assert_that_no_space_is_given_out_twice(&volume);
        let free = volume.space().free_bytes;
        drop(a);
        volume.unmount().unwrap();
        let report = fsck(&*device, false).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(total - report.used_bytes, free);
        let volume = mount();
        assert_eq!(volume.space().free_bytes, free);
        assert_that_no_space_is_given_out_twice(&volume);
        for (name, fill) in [(b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4)] {
            let mut bytes = vec![0; 8192];
            volume.open(name).unwrap().read(&mut bytes, 0).unwrap();
            assert!(bytes == pattern(8192, fill), "{}", name[0]);
        }
    }
}

/// Needs root, /dev/fuse and a file system that holds a file of 10 TiB.
#[test]
fn a_mount_of_10_tib_gives_its_space_out_once() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    mount.umount();
    let image = mount.image();
    let made = minfs(&["mkfs", "-f", "-q", "-u", "4096", "--size", "10T", &image]);
    if String::from_utf8_lossy(&made.stderr).contains("File too large") {
        eprintln!("SKIPPED: no file of 10 TiB is possible in {}", mount.directory.path().display());
        return;
    }
    succeed(made);
    mount.mount();
    let put = |name: &str, space: u64, fill: usize| {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(mount.path(name)).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, space).unwrap();
        file.write_all_at(&pattern(9000, fill), 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    let a = put("a", 9 << 40, 1);
    put("b", 900 << 30, 2);
    a.set_len(8192).unwrap();
    put("c", 6 << 40, 3);
    put("d", 2 << 40, 4);
    drop(a);
    for _ in 0..2 {
        for (name, fill) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
            let mut bytes = vec![0; 8192];
            File::open(mount.path(name)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes == pattern(8192, fill), "{name}");
        }
        mount.umount();
        assert_eq!(mount.fsck(), 0);
        mount.mount();
    }
    mount.umount();
}

/// An image of six files whose newest record has one and the same tail of 6 MiB.
fn with_overlapping_tails() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(8 << 20, 512));
    mkfs(&device, &MkfsOptions { files: Some(6), ..Default::default() }).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let file = volume.create(b"0", 0o644).unwrap();
    file.write(&pattern(6 << 20, 1), 0).unwrap();
    file.sync().unwrap();
    // The unmount would settle the tail.
    let mut image = device.image();
    for inode in 1..6_usize {
        for first in [1, 7] {
            let block = first + inode;
            image.copy_within(first * 4096..(first + 1) * 4096, block * 4096);
            image[block * 4096 + 8] = inode as u8;
            image[block * 4096 + 112] = b'0' + inode as u8;
            mutation::seal(&mut image, block);
        }
    }
    image
}

#[test]
fn tails_that_overlap_cost_no_more_reads_than_the_image_has_bytes() {
    let image = with_overlapping_tails();
    let device = Arc::new(CountingDevice::new(MemoryDevice::from_image(&image, 512)));
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let read_bytes = device.counts().read_bytes;
    assert!(read_bytes <= image.len() as u64, "{read_bytes} bytes were read");
    assert!(volume.read_only_reason().is_some());
    // The youngest can be read, the others are in doubt.
    let readable = |name: &[u8]| volume.open(name).unwrap().read(&mut [0; 100], 0).is_ok();
    let found: Vec<_> = volume.list().iter().map(|facts| readable(&facts.name)).collect();
    assert_eq!(found, [false, false, false, false, false, true]);
    drop(volume);
    let report = fsck(&device, true).unwrap();
    assert!(report.findings.iter().any(|found| found.severity == Severity::Error
        && found.text.contains("lie where those of the younger \"5\"")));
    assert!(report.is_repaired() && report.files == 1, "{:?}", report.remaining);
}
