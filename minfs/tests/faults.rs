//! Bad devices, bad bytes and bad input: what each leads to.

#[path = "common/damage.rs"]
mod damage;

use std::sync::Arc;

use block::{AlignedBuffer, BlockDevice, Fault, FaultyDevice, MemoryDevice};
use damage::{content, flip, mount, slot_offset};
use minfs::{Error, MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};

const DEVICE_BYTES: u64 = 4 << 20;

fn new_device() -> Arc<FaultyDevice<MemoryDevice>> {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(DEVICE_BYTES, 512), Vec::new()));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    device
}

#[test]
fn no_space_leaves_everything_as_it_was() {
    let device = new_device();
    let volume = mount(&device);
    let file = volume.create(b"a", 0o644).unwrap();
    file.write(&[1; 10_000], 0).unwrap();
    file.sync().unwrap();
    let before = volume.space();
    let too_much = vec![2; before.free_bytes as usize + 8192];
    let error = file.write(&too_much, 5000).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }) && error.errno() == libc::ENOSPC);
    let error = file.preallocate(0, before.total_bytes + 1, false, true).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }));
    assert_eq!(content(&volume, b"a"), [1; 10_000]);
    assert_eq!(volume.space(), before);
    // What another file holds only to grow into is taken back before a write fails.
    let other = volume.create(b"b", 0o644).unwrap();
    other.write(&[3; 4096], 0).unwrap();
    let all = vec![4; volume.space().total_bytes as usize - 12_288 - 4096];
    let last = volume.create(b"c", 0o644).unwrap();
    last.write(&all, 0).unwrap();
    assert_eq!(volume.space().free_bytes, 0);
    assert!(other.write(&[3; 4096], 4096).is_err());
}

#[test]
fn too_many_files_are_refused_before_any_write() {
    let device = new_device();
    let volume = mount(&device);
    let limit = volume.space().files_max;
    for index in 0..limit {
        volume.create(format!("{index}").as_bytes(), 0o644).unwrap();
    }
    let (_, writes, _) = device.request_counts();
    let error = volume.create(b"one more", 0o644).map(drop).unwrap_err();
    assert!(matches!(error, Error::TooManyFiles { .. }) && error.errno() == libc::ENOSPC);
    assert_eq!(device.request_counts().1, writes);
    volume.unlink(b"0").unwrap();
    volume.create(b"one more", 0o644).unwrap();
}

#[test]
fn too_many_extents_are_refused_before_any_write() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(8 << 20, 512), Vec::new()));
    mkfs(&device, &MkfsOptions { files: Some(4), ..Default::default() }).unwrap();
    let volume = mount(&device);
    let (a, b) = (volume.create(b"a", 0o644).unwrap(), volume.create(b"b", 0o644).unwrap());
    // Two files that take turns are as scattered as can be.
    for unit in 1..=460 {
        let _ = a.preallocate(0, unit * 4096, false, false);
        let _ = b.preallocate(0, unit * 4096, false, false);
    }
    assert_eq!(a.facts().extent_count, 434);
    volume.create(b"fill", 0o644).unwrap();
    let (_, writes, _) = device.request_counts();
    let size = a.size();
    let error = a.write(&[1; 4096], size + 4096 * 3).unwrap_err();
    assert!(matches!(error, Error::TooManyExtents { .. }) && error.errno() == libc::EFBIG);
    assert_eq!(device.request_counts().1, writes);
    drop((a, b));
    volume.unmount().unwrap();
    assert!(fsck(&device, false).unwrap().is_clean());
}

#[test]
fn bad_names_are_refused() {
    let volume = mount(&new_device());
    for (name, errno) in [
        (&b""[..], libc::EINVAL),
        (b".", libc::EINVAL),
        (b"..", libc::EINVAL),
        (b"a/b", libc::EINVAL),
        (b"a\0b", libc::EINVAL),
        (&[b'x'; 256], libc::ENAMETOOLONG),
    ] {
        assert_eq!(volume.create(name, 0o644).map(drop).unwrap_err().errno(), errno);
    }
    volume.create(&[b'x'; 255], 0o644).unwrap();
    volume.rename(&[b'x'; 255], b"\xff not UTF-8", false).unwrap();
    assert_eq!(volume.rename(b"no", b"x", false).unwrap_err().errno(), libc::ENOENT);
    let file = volume.open(b"\xff not UTF-8").unwrap();
    assert_eq!(file.write(b"x", u64::MAX - 3).unwrap_err().errno(), libc::EFBIG);
    assert_eq!(file.truncate(u64::MAX).unwrap_err().errno(), libc::EFBIG);
    assert!(file.preallocate(0, 0, false, false).is_err());
}

#[test]
fn a_failed_write_or_flush_turns_the_volume_read_only_and_loses_nothing_acknowledged() {
    // First a run without faults, to learn how many requests there are; then each fails in turn.
    let run = |faults: Vec<Fault>| {
        let device = new_device();
        let volume = mount(&device);
        let file = volume.create(b"kept", 0o644).unwrap();
        file.write(&[7; 5000], 0).unwrap();
        file.sync().unwrap();
        let (_, writes, flushes) = device.request_counts();
        device.set_faults(faults);
        let work = || -> minfs::Result<()> {
            let other = volume.create(b"other", 0o644)?;
            other.write(&[8; 9000], 0)?;
            other.sync()?;
            other.write(&[9; 4096], 4096)?;
            other.sync()?;
            volume.rename(b"other", b"another", false)?;
            other.truncate(3)?;
            volume.unlink(b"another")
        };
        let outcome = work();
        let is_read_only = volume.read_only_reason().is_some();
        assert_eq!(outcome.is_err(), is_read_only, "{outcome:?}");
        if is_read_only {
            assert_eq!(volume.create(b"more", 0o644).map(drop).unwrap_err().errno(), libc::EROFS);
            assert_eq!(file.write(b"x", 0).unwrap_err().errno(), libc::EROFS);
            let reason = volume.read_only_reason().unwrap();
            assert!(reason.contains("stopped writing because"), "{reason}");
        }
        assert_eq!(content(&volume, b"kept"), [7; 5000]);
        let (_, all_writes, all_flushes) = device.request_counts();
        drop(file);
        drop(volume);
        device.set_faults(Vec::new());
        assert!(fsck(&device, false).unwrap().is_clean());
        assert_eq!(content(&mount(&device), b"kept"), [7; 5000]);
        (writes..all_writes, flushes..all_flushes, is_read_only)
    };
    let (writes, flushes, is_read_only) = run(Vec::new());
    assert!(!is_read_only && writes.end - writes.start >= 8 && flushes.end - flushes.start >= 6);
    for number in writes {
        assert!(run(vec![Fault::FailWrite(number)]).2, "write {number}");
        assert!(run(vec![Fault::TearWrite { number, kept_bytes: 512 }]).2, "write {number}");
        assert!(run(vec![Fault::FailWritesFrom(number)]).2, "write {number}");
    }
    for number in flushes {
        assert!(run(vec![Fault::FailFlush(number)]).2, "flush {number}");
    }
}

#[test]
fn a_write_that_fails_at_a_read_spoils_no_later_sync() {
    let memory = Arc::new(MemoryDevice::new(8 << 20, 4096));
    mkfs(&memory, &MkfsOptions::default()).unwrap();
    let path_to_failure = |fault: Vec<Fault>| {
        let device = Arc::new(FaultyDevice::new(memory.clone(), fault));
        let volume = mount(&device);
        let _ = volume.unlink(b"log");
        let file = volume.create(b"log", 0o644).unwrap();
        file.write(&[1; 65536], 0).unwrap();
        let (reads, _, _) = device.request_counts();
        // Whole blocks, then one that is cut and must be read first.
        let outcome = file.write(&[2; 6000], 4096);
        if outcome.is_err() {
            file.sync().unwrap();
            // What a crash would leave: the volume is not unmounted.
            let after = mount(&memory);
            assert_eq!(after.open(b"log").unwrap().size(), 65536);
            std::mem::forget(after);
        }
        (reads, outcome.is_err())
    };
    let (reads, _) = path_to_failure(Vec::new());
    let failed =
        (reads..reads + 4).filter(|read| path_to_failure(vec![Fault::FailRead(*read)]).1).count();
    assert!(failed > 0, "no read of the overwriting failed");
}

#[test]
fn a_corrupt_slot_pair_names_the_file_and_leaves_the_rest_readable() {
    let device = new_device();
    let volume = mount(&device);
    for name in [b"good", b"lost"] {
        let file = volume.create(name, 0o644).unwrap();
        file.preallocate(0, 4096, false, true).unwrap();
        file.write(&[5; 4096], 0).unwrap();
    }
    let inode = volume.stat(b"lost").unwrap().inode;
    volume.unmount().unwrap();
    for slot in 0..2 {
        // Beyond the header, so that the name can still be guessed.
        flip(&device, slot_offset(&device, inode, slot) + 1000);
    }
    let volume = mount(&device);
    assert!(volume.read_only_reason().unwrap().contains("fsck.minfs"));
    let errors: Vec<_> = volume.findings().iter().map(|finding| finding.text.clone()).collect();
    assert!(errors.iter().any(|text| text.contains("\"lost\"")), "{errors:?}");
    assert_eq!(content(&volume, b"good"), [5; 4096]);
    assert!(volume.open(b"good").unwrap().write(b"x", 0).is_err());
    drop(volume);
    let report = fsck(&device, false).unwrap();
    assert!(!report.is_clean() && report.repairs.is_empty());
    let report = fsck(&device, true).unwrap();
    assert!(report.is_repaired() && report.repairs.len() == 1, "{report:?}");
    assert!(fsck(&device, false).unwrap().is_clean());
    let volume = mount(&device);
    assert_eq!(volume.read_only_reason(), None);
    assert_eq!(content(&volume, b"good"), [5; 4096]);
    assert!(volume.stat(b"lost").is_err());
}

#[test]
fn decay_of_the_newest_record_is_no_silent_step_back() {
    let device = new_device();
    let volume = mount(&device);
    let file = volume.create(b"a", 0o644).unwrap();
    file.truncate(100).unwrap();
    file.truncate(200).unwrap();
    drop(file);
    volume.unmount().unwrap();
    // Three records went to the slots 0, 1, 0: the newest is in the first.
    flip(&device, slot_offset(&device, 0, 0) + 600);
    let volume = mount(&device);
    assert!(volume.read_only_reason().is_some());
    assert_eq!(volume.open(b"a").unwrap().read(&mut [0; 8], 0).unwrap_err().errno(), libc::EUCLEAN);
    drop(volume);
    flip(&device, slot_offset(&device, 0, 0) + 600);
    // The older one may decay: the other is provably newer.
    flip(&device, slot_offset(&device, 0, 1) + 600);
    let volume = mount(&device);
    assert_eq!(volume.read_only_reason(), None);
    assert_eq!(volume.findings()[0].severity, Severity::Warning);
    assert_eq!(volume.stat(b"a").unwrap().size, 200);
    drop(volume);
    assert!(fsck(&device, true).unwrap().is_repaired());
    assert!(fsck(&device, false).unwrap().findings.is_empty());
    assert_eq!(mount(&device).stat(b"a").unwrap().size, 200);
}

#[test]
fn damaged_geometry_is_read_from_its_copy_and_repaired() {
    for broken in [0, DEVICE_BYTES - 4096] {
        let device = new_device();
        mount(&device).create(b"a", 0o644).unwrap();
        device.write_at(&AlignedBuffer::zeroed(4096), broken).unwrap();
        let volume = mount(&device);
        assert_eq!(volume.read_only_reason(), None);
        assert!(volume.findings()[0].text.contains("geometry"));
        volume.stat(b"a").unwrap();
        drop(volume);
        let report = fsck(&device, true).unwrap();
        assert!(report.is_repaired() && report.repairs.len() == 1);
        assert!(fsck(&device, false).unwrap().findings.is_empty());
    }
    let device = new_device();
    for copy in [0, DEVICE_BYTES - 4096] {
        flip(&device, copy + 100);
    }
    assert!(matches!(fsck(&device, true), Err(Error::Damaged(_))));
    let empty = Arc::new(MemoryDevice::new(DEVICE_BYTES, 512));
    let refused = Volume::mount(empty, &MountOptions::default()).map(drop);
    assert!(matches!(refused, Err(Error::NotMinfs)));
}

#[test]
fn a_device_that_shrank_is_refused() {
    let device = new_device();
    let image = device.inner().image();
    let shrunk = Arc::new(MemoryDevice::from_image(&image[..image.len() - 65536], 512));
    let refused = Volume::mount(shrunk, &MountOptions::default()).map(drop);
    assert!(matches!(refused, Err(Error::DeviceShrank { .. })), "{refused:?}");
    // One that grew is fine: the volume keeps its size.
    let mut grown = image;
    grown.resize(grown.len() + 65536, 0);
    let volume = mount(&Arc::new(MemoryDevice::from_image(&grown, 512)));
    assert!(volume.findings().is_empty());
}

#[test]
fn a_read_only_mount_writes_nothing_and_says_why() {
    let device = new_device();
    mount(&device).create(b"a", 0o644).unwrap();
    let (_, writes, flushes) = device.request_counts();
    let options = MountOptions { read_only: true, ..Default::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap();
    assert_eq!(volume.unlink(b"a").unwrap_err().errno(), libc::EROFS);
    assert_eq!(volume.create(b"b", 0o644).map(drop).unwrap_err().errno(), libc::EROFS);
    assert_eq!(volume.rename(b"a", b"b", true).unwrap_err().errno(), libc::EROFS);
    let file = volume.open(b"a").unwrap();
    assert_eq!(file.truncate(5).unwrap_err().errno(), libc::EROFS);
    assert_eq!(file.preallocate(0, 5, false, true).unwrap_err().errno(), libc::EROFS);
    drop(file);
    volume.unmount().unwrap();
    assert_eq!(device.request_counts(), (device.request_counts().0, writes, flushes + 1));
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    let device = new_device();
    let volume = mount(&device);
    let file = volume.create(b"a", 0o644).unwrap();
    file.write(&[3; 100_000], 0).unwrap();
    volume.unlink(b"a").unwrap();
    let taken = volume.space().total_bytes - volume.space().free_bytes;
    assert!(taken >= 100_000);
    volume.create(b"a", 0o644).unwrap();
    file.write(&[4; 8192], 4096).unwrap();
    file.sync().unwrap();
    let mut back = [0; 4];
    file.read(&mut back, 12_286).unwrap();
    assert_eq!(back, [4, 4, 3, 3]);
    drop(file);
    assert_eq!(volume.space().free_bytes, volume.space().total_bytes);
}

#[test]
fn freed_space_is_discarded_when_asked_and_only_after_its_record_is_durable() {
    use crash::{RecordedRequest, RequestKind, RequestRecorder};
    let memory = MemoryDevice::new(DEVICE_BYTES, 512);
    let device = Arc::new(RequestRecorder::in_memory(memory).unwrap());
    mkfs(&device, &MkfsOptions::default()).unwrap();
    let options = MountOptions { discard: true, ..Default::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap();
    let file = volume.create(b"a", 0o644).unwrap();
    file.preallocate(0, 40_960, false, false).unwrap();
    drop(file);
    volume.unlink(b"a").unwrap();
    let requests = device.recording().log.requests;
    let at = |wanted: fn(&RecordedRequest) -> bool| requests.iter().rposition(wanted).unwrap();
    let discard = at(|one| one.operation == RequestKind::Discard && one.sectors == 80);
    let flush = at(|one| one.operation == RequestKind::Flush);
    let write = at(|one| one.operation == RequestKind::Write);
    assert!(write < flush && flush < discard);
}

#[test]
fn many_threads_write_one_preallocated_file_and_several_growing_ones() {
    let device = Arc::new(MemoryDevice::new(64 << 20, 512));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    let volume = mount(&device);
    let shared = volume.create(b"shared", 0o644).unwrap();
    shared.preallocate(0, 8 << 20, false, true).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (volume, shared) = (&volume, &shared);
            scope.spawn(move || {
                let own = volume.create(&[b'0' + thread], 0o644).unwrap();
                for round in 0..50_u64 {
                    let offset = (round * 8 + u64::from(thread)) * 4096;
                    shared.write(&[thread + 1; 4096], offset).unwrap();
                    own.append(&[thread + 1; 3000]).unwrap();
                    if round % 10 == 0 {
                        own.sync().unwrap();
                        shared.sync().unwrap();
                    }
                }
            });
        }
    });
    drop(shared);
    volume.unmount().unwrap();
    assert!(fsck(&device, false).unwrap().findings.is_empty());
    let volume = mount(&device);
    let shared = content(&volume, b"shared");
    for (index, block) in shared.chunks(4096).take(400).enumerate() {
        assert!(block.iter().all(|byte| usize::from(*byte) == index % 8 + 1));
    }
    for thread in 0..8_u8 {
        assert_eq!(content(&volume, &[b'0' + thread]), vec![thread + 1; 150_000]);
    }
}

#[test]
fn a_file_is_a_device() {
    let volume = mount(&new_device());
    let file = volume.create(b"store", 0o644).unwrap();
    file.preallocate(0, 1 << 20, false, true).unwrap();
    let device: &dyn BlockDevice = &file;
    assert_eq!((device.len(), device.block_size()), (1 << 20, 512));
    device.write_at(&[6; 1024], 512).unwrap();
    device.flush().unwrap();
    let mut back = [0; 1024];
    device.read_at(&mut back, 512).unwrap();
    assert_eq!(back, [6; 1024]);
    assert!(device.write_at(&[6; 512], 1 << 20).is_err());
    assert!(device.write_at(&[6; 100], 0).is_err());
    assert!(device.read_at(&mut back, (1 << 20) - 512).is_err());
}
