//! What each operation costs, counted by the recording backend: writes, bytes and flushes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{AlignedBuffer, BlockDevice, CountingDevice, MemoryDevice};
use minfs::{MkfsOptions, MountOptions, Volume, mkfs};

type Device = Arc<CountingDevice<MemoryDevice>>;

fn volume() -> (Device, Volume) {
    let device = Arc::new(CountingDevice::new(MemoryDevice::new(64 << 20, 512)));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    device.take_counts();
    (device, volume)
}

/// Asserts data bytes, metadata writes of 4 KiB, and flushes since the last call.
#[track_caller]
fn assert_cost(device: &Device, data_writes: u64, data_bytes: u64, metadata: u64, flushes: u64) {
    let counts = device.take_counts();
    assert_eq!(counts.writes, data_writes + metadata, "writes");
    assert_eq!(counts.written_bytes, data_bytes + 4096 * metadata, "bytes written");
    assert_eq!(counts.flushes, flushes, "flushes");
    assert_eq!(counts.discards, 0);
}

#[test]
fn every_change_of_metadata_is_one_write_and_one_flush() {
    let (device, volume) = volume();
    let file = volume.create(b"a", 0o644).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    file.preallocate(0, 1 << 20, false, false).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    file.preallocate(0, 1 << 20, false, false).unwrap();
    assert_cost(&device, 0, 0, 0, 0);
    file.truncate(100_000).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    file.truncate(200_000).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    volume.rename(b"a", b"b", false).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    volume.create(b"c", 0o644).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    volume.rename(b"b", b"c", true).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    file.set_attributes(|attributes| attributes.mode = 0o600).unwrap();
    assert_cost(&device, 0, 0, 1, 1);
    file.set_attributes(|attributes| attributes.modified_ns = 5).unwrap();
    assert_cost(&device, 0, 0, 0, 0);
    volume.unlink(b"c").unwrap();
    assert_cost(&device, 0, 0, 1, 1);
}

#[test]
fn the_pattern_write_then_rename_over_costs_no_more_each_time() {
    let (device, volume) = volume();
    volume.create(b"config", 0o644).unwrap();
    device.take_counts();
    for _ in 0..20 {
        let file = volume.create(b"config.new", 0o644).unwrap();
        assert_cost(&device, 0, 0, 1, 1);
        file.write(&[7; 4096], 0).unwrap();
        file.sync().unwrap();
        assert_cost(&device, 1, 4096, 1, 1);
        volume.rename(b"config.new", b"config", true).unwrap();
        assert_cost(&device, 0, 0, 1, 1);
    }
}

#[test]
fn an_extending_write_with_its_sync_costs_one_more_write_than_the_bare_device() {
    let (device, volume) = volume();
    let file = volume.create(b"log", 0o644).unwrap();
    device.take_counts();
    let data = AlignedBuffer::zeroed(256 << 10);
    for index in 0..40 {
        let offset = index * data.len() as u64;
        file.write(&data, offset).unwrap();
        assert_cost(&device, 1, data.len() as u64, 0, 0);
        file.sync().unwrap();
        assert_cost(&device, 0, 0, 1, 1);
    }
    // Appends that end within a block write that block again, and nothing else.
    for _ in 0..20 {
        file.append(&[1; 100]).unwrap();
        file.sync().unwrap();
        let counts = device.take_counts();
        assert_eq!((counts.writes, counts.flushes), (2, 1));
        assert!(counts.written_bytes <= 4096 + 1024);
    }
}

#[test]
fn a_sync_of_many_extending_writes_in_order_costs_one_record_and_one_flush() {
    let (device, volume) = volume();
    let file = volume.create(b"log", 0o644).unwrap();
    device.take_counts();
    for index in 0..16 {
        file.write(&[3; 65536], index * 65536).unwrap();
    }
    file.sync().unwrap();
    assert_cost(&device, 16, 1 << 20, 1, 1);
    file.sync().unwrap();
    assert_cost(&device, 0, 0, 0, 1);
}

#[test]
fn new_bytes_out_of_order_cost_one_more_flush() {
    let (device, volume) = volume();
    let file = volume.create(b"log", 0o644).unwrap();
    device.take_counts();
    file.write(&[3; 65536], 0).unwrap();
    file.write(&[4; 4096], 4096).unwrap();
    file.sync().unwrap();
    assert_cost(&device, 2, 65536 + 4096, 1, 2);
}

#[test]
fn writes_inside_zeroed_space_cost_nothing_but_themselves() {
    let (device, volume) = volume();
    let file = volume.create(b"store", 0o644).unwrap();
    file.preallocate(0, 8 << 20, false, true).unwrap();
    let counts = device.take_counts();
    assert_eq!(counts.written_bytes, (8 << 20) + 2 * 4096);
    assert_eq!(counts.flushes, 3);
    for index in [100, 3, 7, 3, 2047] {
        file.write(&[9; 4096], index * 4096).unwrap();
        assert_cost(&device, 1, 4096, 0, 0);
        file.sync().unwrap();
        assert_cost(&device, 0, 0, 0, 1);
    }
    let before = device.counts();
    volume.sync().unwrap();
    assert_eq!(device.counts().writes, before.writes);
}

#[test]
fn overwriting_the_newest_extension_settles_it_once() {
    let (device, volume) = volume();
    let file = volume.create(b"log", 0o644).unwrap();
    file.write(&[1; 8192], 0).unwrap();
    file.sync().unwrap();
    device.take_counts();
    file.write(&[2; 4096], 0).unwrap();
    assert_cost(&device, 1, 4096, 1, 1);
    for _ in 0..3 {
        file.write(&[3; 4096], 4096).unwrap();
        file.sync().unwrap();
        assert_cost(&device, 1, 4096, 0, 1);
    }
}

#[test]
fn mount_and_unmount_write_only_what_is_new() {
    let (device, volume) = volume();
    let file = volume.create(b"a", 0o644).unwrap();
    file.preallocate(0, 4096, false, true).unwrap();
    drop(file);
    volume.unmount().unwrap();
    device.take_counts();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let counts = device.take_counts();
    assert_eq!((counts.writes, counts.flushes), (0, 1));
    volume.unmount().unwrap();
    assert_eq!(device.take_counts().writes, 0);
    let options = MountOptions { read_only: true, ..Default::default() };
    Volume::mount(device.clone(), &options).unwrap().unmount().unwrap();
    let counts = device.take_counts();
    // What it shows may be in the device's cache only: see `cuts.rs`.
    assert_eq!((counts.writes, counts.flushes), (0, 1));
}

/// Counts the writes that came with others.
struct AtOnce(MemoryDevice, AtomicU64);

impl BlockDevice for AtOnce {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buffer, offset)
    }
    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        self.1.fetch_add(writes.len() as u64, Ordering::Relaxed);
        self.0.write_each(writes)
    }
    fn writes_at_once(&self) -> bool {
        true
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.discard(offset, length)
    }
}

#[test]
fn writes_of_a_store_within_its_reserved_file_reach_the_device_at_once() {
    let device = Arc::new(AtOnce(MemoryDevice::new(64 << 20, 512), AtomicU64::new(0)));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let file = volume.create(b"store", 0o644).unwrap();
    let at_once = || device.1.swap(0, Ordering::Relaxed);
    let write = |offsets: [u64; 2]| {
        let bytes = [[7; 4096], [8; 4096]];
        let outcomes = file.write_each(&[(&bytes[0], offsets[0]), (&bytes[1], offsets[1])]);
        let mut found = [0; 4096];
        for (outcome, (offset, bytes)) in outcomes.into_iter().zip(offsets.into_iter().zip(bytes)) {
            if outcome.is_ok() {
                file.read_at(&mut found, offset).unwrap();
                assert_eq!(found, bytes);
            } else {
                assert_eq!(offset, 1 << 20);
            }
        }
    };
    file.truncate(1 << 20).unwrap();
    assert!(!file.writes_at_once(), "the file has no space yet");
    write([8192, 65_536]);
    assert_eq!(at_once(), 0);
    file.preallocate(0, 1 << 20, false, true).unwrap();
    assert!(file.writes_at_once());
    write([0, 524_288]);
    assert_eq!(at_once(), 2);
    // One beyond the end fails, the other goes its way.
    write([4096, 1 << 20]);
    assert_eq!(at_once(), 0);
    // A store need not take the whole file.
    file.truncate(2 << 20).unwrap();
    assert!(file.writes_at_once());
    write([0, 524_288]);
    assert_eq!(at_once(), 2);
    write([4096, 3 << 19]);
    assert_eq!(at_once(), 0, "beyond what is valid they go one after the other");
}

/// What a truncation cut off does not stay in a block that is written anew.
#[test]
fn a_block_that_is_written_anew_holds_zeros_behind_the_end_of_the_file() {
    let device = Arc::new(MemoryDevice::new(4 << 20, 4096));
    mkfs(&*device, &MkfsOptions::default()).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let holds_old_bytes = || device.image().windows(100).any(|bytes| bytes == [7; 100]);
    let file = volume.create(b"a", 0o644).unwrap();
    file.write(&[7; 3000], 0).unwrap();
    file.truncate(90).unwrap();
    assert!(holds_old_bytes());
    file.write(&[1], 50).unwrap();
    assert!(!holds_old_bytes());
}
