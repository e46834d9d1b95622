//! The kernel's module and a volume as a whole: what stops one, what one user cannot stop, times, sizes up
//! to the format's limits, hostile images, freezing. In a guest, as in `module.rs`.

#[path = "module/harness.rs"]
mod harness;
#[path = "common/script.rs"]
mod script;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::{BlockDevice, FileDevice, FileDeviceOptions, MemoryDevice};
use crash::LostWrites;
use harness::{BLOCK_BYTES, Disk, Guest, NEVER, in_guest, in_guest_with, number, recorder_of};
use minfs::layout::{
    ExtentOnDisk, FLAG_TAIL, KIND_FILE, NO_INODE, SECTOR_BYTES, SLOT_MAGIC, SectorTrailer,
    SlotHeader,
};
use minfs::{Extent, MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use script::{contents, states};

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");

fn image_of(bytes: usize, options: &MkfsOptions) -> Vec<u8> {
    let device = MemoryDevice::from_image(&vec![0xee; bytes], BLOCK_BYTES);
    mkfs(&device, options).unwrap();
    device.image()
}

fn new_disk(bytes: usize) -> (Vec<u8>, Arc<Disk>) {
    let image = image_of(bytes, &MkfsOptions::default());
    let disk = Arc::new(Disk::new(&image, Duration::ZERO));
    (image, disk)
}

/// What is left when the power is cut now and all that no flush covers is lost.
fn after_a_cut(image: &[u8], disk: &Disk) -> Volume {
    let (recorder, mut random) = (disk.recorder(), ChaCha8Rng::seed_from_u64(1));
    let states = states(image, &recorder);
    let state = states.state(recorder.now(), LostWrites::All, &mut random);
    let device = Arc::new(states.disk(&state));
    assert!(fsck(&*device, false).unwrap().is_clean());
    Volume::mount(device, &MountOptions::default()).unwrap()
}

fn modified_ns(volume: &Volume, name: &[u8]) -> i64 {
    volume.open(name).unwrap().facts().attributes.modified_ns
}

/// A direct write that meets a store by a mapping made the sync fail, as on ext4 and XFS, and then the
/// whole volume read-only.
#[test]
fn a_user_whose_own_writes_collide_stops_no_volume() {
    let (image, disk) = new_disk(8 << 20);
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount -o root_mode=1777"));
        let failed = guest.number("collide 1000");
        println!("{failed} syncs failed");
        assert!(failed > 0, "nothing collided");
        assert!(guest.ask("create other"));
        assert!(guest.ask("write other 0 070707"));
        assert!(guest.ask("sync other"));
        assert_eq!(contents(&after_a_cut(&image, &disk)).unwrap()[b"other".as_slice()], [7; 3]);
        assert!(guest.ask("unmount"));
        assert_eq!(guest.number("log read-only, since"), 0);
        assert_eq!(guest.number("log unmounted after"), 0);
    });
}

#[test]
fn an_unmount_that_loses_data_says_so_in_the_log() {
    let (_, disk) = new_disk(8 << 20);
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount"));
        for name in ["a", "b"] {
            assert!(guest.ask(&format!("create {name}")));
            assert!(guest.ask(&format!("write {name} 0 0303030303")));
        }
        disk.flushes.store(0, Ordering::SeqCst);
        guest.send("sync a");
        assert_eq!(guest.receive(), "EIO");
        assert_eq!(guest.number("log read-only, since a flush failed"), 1);
        assert!(guest.ask("unmount"));
        let lost = "log not synced before it are lost, in at least 2 files";
        assert_eq!(guest.number(lost), 1);
        assert!(guest.ask("mount"));
        assert!(guest.ask("unmount"));
        assert_eq!(guest.number("log unmounted after the error"), 1);
    });
}

/// Threads that waited for a record whose flush failed, or for its tail, were to give up. One of them
/// settled that tail for ever.
#[test]
fn threads_that_waited_for_a_flush_that_failed_write_no_record() {
    let image = image_of(3 << 20, &MkfsOptions::default());
    let disk = Arc::new(Disk::new(&image, Duration::from_micros(500)));
    in_guest(&disk, |guest| {
        let first = number("MINFS_MODULE_SEED", 25);
        for seed in first..first + 6 * number("MINFS_MODULE_SCHEDULES", 2) {
            *disk.recorder.write().unwrap() = recorder_of(&image);
            assert!(guest.ask("mount"));
            disk.flushes.store(4 + seed % 11, Ordering::SeqCst);
            let told = told_until_all_fail(guest, &disk, seed);
            assert!(disk.flushes.swap(NEVER, Ordering::SeqCst) > NEVER / 2, "none failed");
            assert!(guest.ask("unmount"));
            disk.is_stopped.store(false, Ordering::SeqCst);
            assert_eq!(disk.late_writes.swap(0, Ordering::SeqCst), 0, "seed {seed}");
            let found = contents(&after_a_cut(&image, &disk)).unwrap();
            let file = &found[b"shared".as_slice()];
            for (_, offset, bytes) in &told {
                assert_eq!(file.get(*offset..offset + bytes.len()), Some(&bytes[..]), "{seed}");
            }
            println!("seed {seed}: {} told before the failure, all there", told.len());
        }
    });
}

/// What threads were told that nobody began to overwrite: number, offset, bytes.
fn told_until_all_fail(guest: &mut Guest, disk: &Disk, seed: u64) -> Vec<(u64, usize, Vec<u8>)> {
    let mut told: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    guest.send(&format!("threads {seed} 4 12"));
    loop {
        let line = guest.receive();
        let words: Vec<_> = line.split(' ').collect();
        let field = |index: usize| words[index].parse::<u64>().unwrap();
        match words[0] {
            "begin" => told.retain(|(number, ..)| *number != field(1)),
            "told" => {
                told.push((field(1), field(2) as usize, vec![field(4) as u8; field(3) as usize]))
            }
            "failed" => {
                // What was under way when the flush failed.
                std::thread::sleep(Duration::from_millis(20));
                disk.is_stopped.store(true, Ordering::SeqCst);
            }
            "done" => return told,
            _ => panic!("seed {seed}: '{line}'"),
        }
        guest.send("");
    }
}

const OLD_SECONDS: i64 = 981_173_106;

#[test]
fn times_that_were_set_survive_a_sync_and_a_remount() {
    let (image, disk) = new_disk(8 << 20);
    in_guest(&disk, |guest| {
        let old_ns = OLD_SECONDS * 1_000_000_000;
        assert!(guest.ask("mount"));
        for name in ["a", "b"] {
            assert!(guest.ask(&format!("create {name}")));
            assert!(guest.ask(&format!("write {name} 0 0303030303")));
            assert!(guest.ask(&format!("sync {name}")));
        }
        assert!(guest.ask(&format!("set time a {OLD_SECONDS}")));
        assert!(guest.ask("sync a"));
        assert_eq!(modified_ns(&after_a_cut(&image, &disk), b"a"), old_ns);
        // Of a write within the valid length, which has no record.
        assert!(guest.ask("write b 0 06"));
        let written_ns = guest.number("time b") as i64;
        assert!(guest.ask("sync b"));
        assert!(guest.ask("remount ro"));
        assert!(guest.ask("unmount"));
        let volume = after_a_cut(&image, &disk);
        assert_eq!(modified_ns(&volume, b"a"), old_ns);
        assert_eq!(modified_ns(&volume, b"b"), written_ns);
    });
}

#[test]
fn a_frozen_volume_is_clean_and_is_not_written() {
    let (image, disk) = new_disk(16 << 20);
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount"));
        assert!(guest.ask("prepare changes"));
        let written_ns = guest.number("time file") as i64;
        assert!(guest.ask("freeze"));
        let frozen = disk.recorder().now();
        assert!(guest.ask("change all"));
        assert_eq!(disk.recorder().now(), frozen, "it was written");
        let volume = after_a_cut(&image, &disk);
        let found = contents(&volume).unwrap();
        assert_eq!(found.len(), 8);
        assert_eq!(found[b"file".as_slice()][..101], [[6; 100].as_slice(), &[1]].concat());
        assert_eq!(found[b"file".as_slice()][8192..], [6; 100]);
        assert_eq!(modified_ns(&volume, b"file"), written_ns);
        assert!(guest.ask("thaw"));
        assert!(guest.ask("end changes"));
        assert!(guest.ask("unmount"));
        let found = contents(&after_a_cut(&image, &disk)).unwrap();
        assert_eq!(found[b"file".as_slice()].len(), (1 << 20) + 100);
        for name in ["file", "place", "pages"] {
            assert_eq!(found[name.as_bytes()][0], 7, "{name}");
        }
        assert_eq!(found[b"cut".as_slice()].len(), 5);
        let names: Vec<_> = found.keys().map(|name| str::from_utf8(name).unwrap()).collect();
        assert_eq!(names, ["cut", "file", "mode", "new", "pages", "place", "renamed", "time"]);
    });
}

/// A sparse volume, in memory: a file of 16 TiB is too long for ext4.
fn with_sparse_volume(size: u64, unit_bytes: u32, test: impl FnOnce(&Path)) {
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let image = directory.path().join("image");
    let words = ["mkfs", "-q", "-N", "16", "-u", &unit_bytes.to_string()];
    let size = size.to_string();
    let made = Command::new(MINFS).args(words).args(["--size", &size]).arg(&image).status();
    assert!(made.unwrap().success());
    test(&image);
}

fn assert_clean(image: &Path) -> Volume {
    let device = FileDevice::open(image, &FileDeviceOptions::default()).unwrap();
    let report = fsck(&device, false).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    Volume::mount(Arc::new(device), &MountOptions::default()).unwrap()
}

/// Lengths of 2^31 units and more: the second file was given units of the first.
#[test]
fn space_is_given_out_once_up_to_the_limits_of_the_format() {
    let most_units = u64::from(u32::MAX - 1);
    let (mib, gib) = (1 << 20, 1 << 30);
    for (size, unit_bytes, first) in [
        (10_240 * gib, 4096, 9216 * gib),
        (most_units * 4096 + mib, 4096, (most_units - 1024) * 4096),
        (most_units * gib + 2 * gib, 1 << 30, (most_units - 8) * gib),
    ] {
        with_sparse_volume(size, unit_bytes, |image| {
            in_guest_with(image, |guest| {
                assert!(guest.ask("mount"));
                let free = guest.number("free");
                assert!(guest.ask("create a"));
                assert!(guest.ask(&format!("preallocate a 0 {first} 1 0")));
                assert_eq!(guest.number("free"), free - first);
                for (name, byte) in [("a", "03"), ("b", "06")] {
                    let _ = guest.ask(&format!("create {name}"));
                    assert!(guest.ask(&format!("write {name} 0 {}", byte.repeat(5000))));
                    assert!(guest.ask(&format!("sync {name}")));
                }
                assert!(guest.ask("unmount"));
                let found = contents(&assert_clean(image)).unwrap();
                assert_eq!(found[b"a".as_slice()], [3; 5000]);
                assert_eq!(found[b"b".as_slice()], [6; 5000]);
                // After a mount, which finds what is used, and of what is free again.
                assert!(guest.ask("mount"));
                for (name, byte) in [("c", "09"), ("d", "0c")] {
                    assert!(guest.ask(&format!("create {name}")));
                    assert!(guest.ask(&format!("write {name} 0 {}", byte.repeat(5000))));
                    assert!(guest.ask(&format!("sync {name}")));
                    if name == "c" {
                        assert!(guest.ask("unlink a"));
                    }
                }
                assert!(guest.ask(&format!("preallocate d 0 {first} 1 0")));
                assert!(guest.ask("unmount"));
                let found = contents(&assert_clean(image)).unwrap();
                for (name, byte) in [("b", 6), ("c", 9), ("d", 12)] {
                    assert_eq!(found[name.as_bytes()], [byte; 5000], "{name}");
                }
            });
        });
    }
}

/// Puts a record of a file of one extent with a tail into slot 0 of an inode.
fn forge(device: &MemoryDevice, inode: u32, extent: Extent, generation: u64, tail: (u64, u32)) {
    let geometry = minfs::identify(device).unwrap();
    let (valid, tail_checksum) = tail;
    let mut header = SlotHeader::zeroed();
    (header.magic, header.kind, header.flags) = (SLOT_MAGIC, KIND_FILE, FLAG_TAIL);
    (header.inode, header.buried_inode, header.extent_count) = (inode, NO_INODE, 1);
    (header.size_bytes, header.valid_bytes, header.tail_checksum) = (valid, valid, tail_checksum);
    let name = format!("file-{inode}");
    header.name[..name.len()].copy_from_slice(name.as_bytes());
    header.name_length = name.len() as u32;
    let mut block = vec![0; 4096];
    header.encode(&mut block[..SlotHeader::SIZE]);
    let extent = ExtentOnDisk { start: extent.start, count: extent.count };
    extent.encode(&mut block[SECTOR_BYTES..][..ExtentOnDisk::SIZE]);
    for (index, sector) in block.chunks_mut(SECTOR_BYTES).enumerate() {
        let mut place = geometry.uuid().as_bytes().to_vec();
        place.extend(inode.to_le_bytes());
        place.extend(0_u16.to_le_bytes());
        place.extend((index as u16).to_le_bytes());
        let at = SECTOR_BYTES - SectorTrailer::SIZE;
        sector[at..at + 8].copy_from_slice(&generation.to_le_bytes());
        let seed = crc32c::crc32c(&place);
        let checksum = crc32c::crc32c_append(seed, &sector[..SECTOR_BYTES - 4]);
        sector[SECTOR_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    device.write_at(&block, geometry.slot_offset(inode, 0)).unwrap();
}

/// Each of the tails was read, four KiB at a time, before anyone saw that they cannot all be.
#[test]
fn a_mount_reads_no_more_than_the_volume_holds() {
    const FILES: u32 = 64;
    let options = MkfsOptions { files: Some(FILES), unit_bytes: Some(4096), ..Default::default() };
    let device = MemoryDevice::from_image(&image_of(20 << 20, &options), BLOCK_BYTES);
    let (valid, units) = (16 << 20, 4096);
    let zeros = vec![0; valid as usize];
    device.write_at(&zeros, minfs::identify(&device).unwrap().unit_offset(0)).unwrap();
    let tail = (valid, crc32c::crc32c(&zeros));
    for inode in 0..FILES {
        forge(&device, inode, Extent { start: 0, count: units }, u64::from(inode) + 1, tail);
    }
    let report = fsck(&device, false).unwrap();
    let errors = report.findings.iter().filter(|one| one.severity == Severity::Error).count();
    assert!(errors >= FILES as usize - 1);
    let disk = Arc::new(Disk::new(&device.image(), Duration::ZERO));
    in_guest(&disk, |guest| {
        let before = disk.bytes_read.load(Ordering::SeqCst);
        assert!(guest.ask("mount"));
        let read = disk.bytes_read.load(Ordering::SeqCst) - before;
        println!("{read} bytes were read of {}", disk.len());
        assert!(read <= 2 * disk.len(), "{read}");
        // The youngest has the space.
        assert!(guest.ask(&format!("read file-{} 16384 0", FILES - 1)));
        guest.send("read file-0 16384 0");
        assert_eq!(guest.receive(), "EUCLEAN");
        guest.send("create new");
        assert_eq!(guest.receive(), "EROFS");
        assert!(guest.ask("unmount"));
    });
}

#[test]
fn ideas_of_xfstests_hold() {
    let (_, disk) = new_disk(64 << 20);
    in_guest(&disk, |guest| {
        guest.send("ideas");
        let names = guest.receive();
        for name in names.split(' ') {
            assert!(guest.ask("mount"));
            assert!(guest.ask(&format!("idea {name}")), "{name}");
            assert!(guest.ask("unmount"));
            let report = fsck(&disk, false).unwrap();
            assert!(report.is_clean(), "{name}: {:?}", report.findings);
        }
        println!("{names}");
    });
}

#[test]
fn asynchronous_writes_survive_a_lack_of_memory() {
    let (_, disk) = new_disk(64 << 20);
    in_guest(&disk, |guest| {
        let first = number("MINFS_MODULE_SEED", 1);
        for seed in first..first + number("MINFS_MODULE_SCHEDULES", 2) {
            assert!(guest.ask("mount"));
            assert!(guest.ask(&format!("press {seed} 10")), "seed {seed}");
            assert!(guest.ask("unmount"));
            assert!(fsck(&disk, false).unwrap().is_clean(), "seed {seed}");
        }
        guest.assert_called("end_write");
    });
}
