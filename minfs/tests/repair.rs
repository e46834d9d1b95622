//! What a repair keeps, what it gives up and why, and that power may fail in the middle of it.
//!
//! `MINFS_REPAIR_STATES` sets how many states of interrupted repairs are visited.

#[path = "common/mount.rs"]
mod common;
#[path = "common/damage.rs"]
mod damage;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{BlockDevice, Fault, FaultyDevice, FileDevice, FileDeviceOptions, MemoryDevice};
use common::{MINFS, minfs, succeed};
use crash::{FlushPolicy, LostWrites, RequestRecorder, States};
use damage::{change, content, flip, mount, newest_slot, slot_offset};
use minfs::{Error, FsckReport, MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn new_device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(4 << 20, 512));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    device
}

fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(&device.image(), 512))
}

/// A file of `length` bytes of `fill`, whose two slots say the same but for the mode.
fn put(volume: &Volume, name: &[u8], fill: u8, length: usize) -> u32 {
    let file = volume.create(name, 0o600).unwrap();
    file.write(&vec![fill; length], 0).unwrap();
    file.sync().unwrap();
    file.set_attributes(|attributes| attributes.mode = 0o644).unwrap();
    file.facts().inode
}

fn spoil(device: &MemoryDevice, inode: u32, slot: usize) {
    change(device, slot_offset(device, inode, slot), |block| block.fill(0xa7));
}

fn severities(report: &FsckReport) -> Vec<Severity> {
    report.findings.iter().map(|finding| finding.severity).collect()
}

/// Repairs, and checks that the volume is whole after.
#[track_caller]
fn repair(device: &Arc<MemoryDevice>) -> String {
    let report = fsck(device, true).unwrap();
    assert!(report.is_repaired(), "{:?}", report.remaining);
    assert!(fsck(device, false).unwrap().is_clean());
    assert_eq!(mount(device).read_only_reason(), None);
    report.repairs.join("\n")
}

#[test]
fn a_file_in_doubt_can_be_taken_out_and_is_kept() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"a", 5, 10_000);
    put(&volume, b"b", 6, 9000);
    volume.unmount().unwrap();
    spoil(&device, inode, newest_slot(&device, inode));
    assert_eq!(severities(&fsck(&device, false).unwrap()), [Severity::Error]);
    let volume = mount(&device);
    assert!(volume.read_only_reason().is_some());
    let refused = volume.open(b"a").unwrap().read(&mut [0; 8], 0);
    assert!(matches!(refused, Err(Error::DamagedFile(_))), "{refused:?}");
    let options = MountOptions { read_damaged: true, ..Default::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap();
    assert_eq!(content(&volume, b"a"), [5; 10_000]);
    assert_eq!(volume.open(b"a").unwrap().write(b"x", 0).unwrap_err().errno(), libc::EROFS);
    drop(volume);
    let repairs = repair(&device);
    assert!(repairs.starts_with("\"a\" (inode 0): kept"), "{repairs}");
    assert!(repairs.contains("10000 bytes") && repairs.contains("older state"), "{repairs}");
    let volume = mount(&device);
    assert_eq!(content(&volume, b"a"), [5; 10_000]);
    assert_eq!(content(&volume, b"b"), [6; 9000]);
    assert_eq!(volume.stat(b"a").unwrap().attributes.mode, 0o600);
}

#[test]
fn a_file_in_doubt_is_given_up_where_another_has_its_space_and_only_there() {
    let device = new_device();
    let volume = mount(&device);
    let renamed = put(&volume, b"a", 5, 9000);
    volume.rename(b"a", b"b", false).unwrap();
    let shrunk = put(&volume, b"c", 6, 2 << 20);
    volume.open(b"c").unwrap().truncate(100).unwrap();
    volume.unmount().unwrap();
    spoil(&device, renamed, newest_slot(&device, renamed));
    spoil(&device, shrunk, newest_slot(&device, shrunk));
    let alone = copy(&device);
    let repairs = repair(&alone);
    assert_eq!(repairs.matches("kept").count(), 2, "{repairs}");
    let volume = mount(&alone);
    assert_eq!(content(&volume, b"a"), [5; 9000]);
    assert_eq!(content(&volume, b"c")[..100], [6; 100]);

    let device = new_device();
    let volume = mount(&device);
    let renamed = put(&volume, b"a", 5, 9000);
    volume.rename(b"a", b"b", false).unwrap();
    put(&volume, b"a", 7, 5000);
    let shrunk = put(&volume, b"c", 6, 2 << 20);
    volume.open(b"c").unwrap().truncate(100).unwrap();
    put(&volume, b"d", 8, 3 << 20);
    volume.unmount().unwrap();
    spoil(&device, renamed, newest_slot(&device, renamed));
    spoil(&device, shrunk, newest_slot(&device, shrunk));
    let repairs = repair(&device);
    assert!(repairs.contains("\"a\" (inode 1) has its old one"), "{repairs}");
    assert!(repairs.contains("\"d\" (inode 3) has its space"), "{repairs}");
    let volume = mount(&device);
    assert_eq!(volume.list().len(), 3);
    assert_eq!(content(&volume, b"a"), [7; 5000]);
    assert_eq!(content(&volume, b"a.inode-0"), [5; 9000]);
    assert_eq!(content(&volume, b"d"), vec![8; 3 << 20]);
}

#[test]
fn damage_to_sectors_that_hold_nothing_loses_nothing() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"old", 5, 9000);
    volume.rename(b"old", b"new", false).unwrap();
    volume.unmount().unwrap();
    flip(&*device, slot_offset(&*device, inode, newest_slot(&*device, inode)) + 5 * 512);
    assert_eq!(severities(&fsck(&device, false).unwrap()), [Severity::Error]);
    // Also if nothing is left of the older slot.
    for spoils_older in [false, true] {
        let device = copy(&device);
        if spoils_older {
            spoil(&device, inode, 1 - newest_slot(&device, inode));
        }
        let repairs = repair(&device);
        assert!(repairs.starts_with("\"new\" (inode 0): kept"), "{repairs}");
        assert_eq!(content(&mount(&device), b"new"), [5; 9000]);
    }
}

#[test]
fn a_sector_of_an_older_write_proves_that_the_younger_one_was_cut_short() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"a", 5, 9000);
    let before = device.image();
    volume.open(b"a").unwrap().truncate(100).unwrap();
    let slot = newest_slot(&*device, inode);
    let at = slot_offset(&*device, inode, slot);
    let torn = Arc::new(MemoryDevice::from_image(&before, 512));
    let mut new = vec![0; 4096];
    device.read_at(&mut new, at).unwrap();
    // Of the new record the first two sectors arrived; later a sector of each write decayed.
    change(&*torn, at, |block| {
        block[..1024].copy_from_slice(&new[..1024]);
        block[600] ^= 1;
        block[3000] ^= 1;
    });
    assert_eq!(severities(&fsck(&torn, false).unwrap()), [Severity::Warning]);
    assert_eq!(mount(&torn).read_only_reason(), None);
    repair(&torn);
    assert_eq!(content(&mount(&torn), b"a"), [5; 9000]);
}

#[test]
fn zeros_in_a_slot_that_was_whole_once_are_damage() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"a", 5, 9000);
    volume.unmount().unwrap();
    for (slot, found) in [
        (newest_slot(&*device, inode), Severity::Error),
        (1 - newest_slot(&*device, inode), Severity::Warning),
    ] {
        let device = copy(&device);
        let at = slot_offset(&*device, inode, slot);
        change(&*device, at, |block| block[512..1024].fill(0));
        assert_eq!(severities(&fsck(&device, false).unwrap()), [found]);
        repair(&device);
        assert_eq!(content(&mount(&device), b"a"), [5; 9000]);
    }
}

#[test]
fn of_an_inode_without_file_no_content_is_called_lost() {
    let device = new_device();
    let volume = mount(&device);
    put(&volume, b"a", 5, 9000);
    let removed = put(&volume, b"b", 6, 9000);
    volume.unlink(b"b").unwrap();
    volume.unmount().unwrap();
    let newest = newest_slot(&*device, removed);
    for (inode, slot, severity) in [
        // A file begins in the first slot, so an empty one proves that there was none.
        (7, 1, Severity::Warning),
        (7, 0, Severity::Error),
        (removed, newest, Severity::Error),
    ] {
        let device = copy(&device);
        spoil(&device, inode, slot);
        let report = fsck(&device, false).unwrap();
        assert_eq!(severities(&report), [severity], "inode {inode}, slot {slot}");
        let text = &report.findings[0].text;
        let is_unknown = text.contains("may have been here");
        let is_kept = text.contains("\"b\"");
        match (severity, inode == removed) {
            (Severity::Warning, _) => assert!(text.contains("holds no file"), "{text}"),
            (_, false) => assert!(is_unknown, "{text}"),
            (_, true) => assert!(is_kept, "{text}"),
        }
        let volume = mount(&device);
        assert_eq!(volume.read_only_reason().is_none(), severity == Severity::Warning);
        // Until the repair the inode is left alone.
        for index in 0..volume.space().files_max {
            let _ = volume.create(format!("{index}").as_bytes(), 0o600);
        }
        volume.unmount().unwrap();
        assert_eq!(severities(&fsck(&device, false).unwrap()), [severity]);
        let repairs = repair(&device);
        assert!(!repairs.contains("lost"), "{repairs}");
        assert_eq!(content(&mount(&device), b"a"), [5; 9000]);
    }
    // Sectors that are left of the older record show that the file is gone for good.
    flip(&*device, slot_offset(&*device, removed, 1 - newest) + 600);
    assert_eq!(severities(&fsck(&device, false).unwrap()), [Severity::Warning]);
    repair(&device);
    assert!(mount(&device).stat(b"b").is_err());
}

/// A repair once wrote the old record of a replaced file anew, which brought it back, and then
/// removed the file that had replaced it.
#[test]
fn a_damaged_slot_of_a_replaced_file_costs_nothing() {
    let device = new_device();
    let volume = mount(&device);
    let old = volume.create(b"db", 0o644).unwrap();
    old.truncate(100).unwrap();
    let inode = old.facts().inode;
    drop(old);
    volume.create(b"new", 0o644).unwrap().truncate(200).unwrap();
    volume.rename(b"new", b"db", true).unwrap();
    volume.unmount().unwrap();
    for slot in 0..2 {
        let damaged = Arc::new(MemoryDevice::from_image(&device.image(), 512));
        flip(&damaged, slot_offset(&damaged, inode, slot) + 600);
        let report = fsck(&damaged, false).unwrap();
        assert!(
            report.findings.iter().all(|found| found.severity == Severity::Warning),
            "{report:?}"
        );
        assert_eq!(mount(&damaged).read_only_reason(), None);
        let report = fsck(&damaged, true).unwrap();
        assert!(report.is_repaired(), "{report:?}");
        assert!(fsck(&damaged, false).unwrap().findings.is_empty());
        let volume = mount(&damaged);
        assert_eq!(
            (volume.list().len(), volume.stat(b"db").unwrap().size),
            (1, 200),
            "slot {slot}"
        );
    }
}

/// A volume after a few random operations, whole; some files have other names than before, some
/// inodes are buried, some space and names have changed hands.
fn random_volume(random: &mut ChaCha8Rng) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(200 << 10, 512));
    mkfs(&device, &MkfsOptions { files: Some(6), ..Default::default() }).unwrap();
    let volume = mount(&device);
    for step in 0..20_u8 {
        let name = [b'a' + random.random_range(0..4_u8)];
        let to = [b'a' + random.random_range(0..4_u8)];
        let length = random.random_range(1..20_000);
        match random.random_range(0..10) {
            0..3 => drop(volume.create(&name, 0o600)),
            3 => drop(volume.unlink(&name)),
            4 | 5 => drop(volume.rename(&name, &to, true)),
            6 => drop(volume.open(&name).and_then(|file| file.truncate(length / 4))),
            _ => {
                if let Ok(file) = volume.open(&name) {
                    let _ = file.append(&vec![step + 1; length as usize]);
                    let _ = file.sync();
                }
            }
        }
    }
    if random.random() {
        volume.unmount().unwrap();
    } else {
        // Tails are left as a crash leaves them.
        return copy(&device);
    }
    device
}

/// Damages a slot of `inode`: some sectors or all, with zeros or other bytes.
fn damage_slot(device: &MemoryDevice, inode: u32, random: &mut ChaCha8Rng) {
    let at = slot_offset(device, inode, random.random_range(0..2));
    let sectors = if random.random() { 0xff } else { random.random_range(1..0xff_u32) };
    let byte = if random.random_range(0..3) == 0 { 0 } else { random.random() };
    change(device, at, |block| {
        for sector in (0..8).filter(|sector| sectors >> sector & 1 == 1) {
            block[sector * 512..(sector + 1) * 512].fill(byte);
        }
    });
}

fn contents(device: &Arc<MemoryDevice>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let volume = mount(device);
    let names = volume.list().into_iter().map(|facts| facts.name);
    names.map(|name| (name.clone(), content(&volume, &name))).collect()
}

#[test]
fn damage_to_one_slot_costs_no_other_file() {
    let mut kept = 0;
    for seed in 0..1500 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let device = random_volume(&mut random);
        let files = |device: &Arc<MemoryDevice>| -> BTreeMap<u32, _> {
            let volume = mount(device);
            let facts = volume.list().into_iter();
            facts.map(|facts| (facts.inode, (content(&volume, &facts.name), facts.name))).collect()
        };
        let mut before = files(&device);
        let inode = random.random_range(0..6);
        damage_slot(&device, inode, &mut random);
        repair(&device);
        let mut after = files(&device);
        kept += u64::from(before.remove(&inode).is_some() && after.remove(&inode).is_some());
        for (inode, file) in before {
            assert!(after.get(&inode) == Some(&file), "seed {seed}, inode {inode}");
        }
    }
    println!("{kept} files that were hit were kept");
    assert!(kept > 100);
}

/// Visits every point of the repair of a random volume; returns how many states.
fn interrupt(seed: u64, faults: Vec<Fault>) -> Result<u64, String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let damaged = random_volume(&mut random);
    for _ in 0..random.random_range(1..5) {
        let inode = random.random_range(0..6);
        damage_slot(&damaged, inode, &mut random);
    }
    interrupt_repair(damaged, seed, &mut random, faults)
}

/// Visits every point of a repair of `damaged`; returns how many states.
fn interrupt_repair(
    damaged: Arc<MemoryDevice>,
    seed: u64,
    random: &mut ChaCha8Rng,
    faults: Vec<Fault>,
) -> Result<u64, String> {
    let base = damaged.image();
    let recorded =
        Arc::new(FaultyDevice::new(RequestRecorder::in_memory(damaged).unwrap(), faults));
    let report = fsck(&recorded, true).unwrap();
    if !report.is_repaired() {
        return Err(format!("not repaired: {:?}", report.remaining));
    }
    let wanted = contents(recorded.inner().inner());
    let before = Arc::new(MemoryDevice::from_image(&base, 512));
    let left = States::new(Arc::new(recorded.inner().recording()), before, FlushPolicy::Kept);
    let mut states = 0;
    for instant in 0..=recorded.inner().now() {
        for loss in [
            LostWrites::All,
            LostWrites::Nothing,
            LostWrites::One,
            LostWrites::AllButOne,
            LostWrites::Half,
            LostWrites::Sectors,
            LostWrites::Sectors,
        ] {
            let image = left.disk(&left.state(instant, loss, random)).image().unwrap();
            let device = Arc::new(MemoryDevice::from_image(&image, 512));
            let told = |why: String| format!("seed {seed}, instant {instant}, {loss:?}: {why}");
            let second = fsck(&device, true).unwrap();
            if !second.is_repaired() {
                return Err(told(format!("not repaired: {:?}", second.remaining)));
            }
            let third = fsck(&device, true).unwrap();
            if !third.is_clean() || !third.repairs.is_empty() {
                return Err(told(format!("repaired again: {:?}", third.repairs)));
            }
            let found = contents(&device);
            if found != wanted {
                let [found, wanted] = [&found, &wanted].map(|files| {
                    let sizes = files.iter().map(|(name, bytes)| {
                        format!("{}: {}", String::from_utf8_lossy(name), bytes.len())
                    });
                    sizes.collect::<Vec<_>>().join(", ")
                });
                return Err(told(format!(
                    "{found} instead of {wanted}; first {:?}, then {:?}",
                    report.repairs, second.repairs
                )));
            }
            states += 1;
        }
    }
    Ok(states)
}

#[test]
fn a_repair_that_power_cut_short_ends_as_it_would_have() {
    let wanted = std::env::var("MINFS_REPAIR_STATES").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(20_000);
    let (mut states, mut seed) = (0, 0);
    while states < wanted {
        states += interrupt(seed, Vec::new()).unwrap_or_else(|why| panic!("{why}"));
        seed += 1;
    }
    println!("{states} states of {seed} repairs");
}

/// Where a burial was in doubt, and the buried file too, the order of their new records mattered.
#[test]
fn seeds_that_found_a_fault_find_none() {
    for seed in [422, 14_242] {
        interrupt(seed, Vec::new()).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// A file whose newest record is no more than legible replaced another one, of which an older record is
/// left, under another name. Both are kept, at whatever point of the repair power fails.
#[test]
fn a_burial_in_doubt_waits_until_the_buried_file_is_kept() {
    let device = new_device();
    let volume = mount(&device);
    let younger = put(&volume, b"x", 5, 9000);
    let buried = put(&volume, b"z", 6, 5000);
    volume.rename(b"z", b"y", false).unwrap();
    volume.rename(b"x", b"y", true).unwrap();
    volume.unmount().unwrap();
    assert!(younger < buried, "a round writes in this order");
    spoil(&device, buried, newest_slot(&*device, buried));
    flip(&*device, slot_offset(&*device, younger, newest_slot(&*device, younger)) + 5 * 512);
    let repaired = copy(&device);
    repair(&repaired);
    let kept = BTreeMap::from([(b"y".to_vec(), vec![5; 9000]), (b"z".to_vec(), vec![6; 5000])]);
    assert_eq!(contents(&repaired), kept);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    interrupt_repair(device, 1, &mut random, Vec::new()).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn canary_a_repair_on_a_device_that_ignores_flushes() {
    let caught = (0..2000).find_map(|seed| interrupt(seed, vec![Fault::IgnoreFlushes]).err());
    println!("{}", caught.expect("it was not caught"));
}

#[test]
fn the_tools_say_what_to_do_before_a_repair() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, source, copy) = (path("image"), path("source"), path("copy"));
    std::fs::write(&source, [5; 10_000]).unwrap();
    succeed(minfs(&["mkfs", "--size", "4M", &image]));
    succeed(minfs(&["put", &image, &source, "a"]));
    let device = FileDevice::open(&image, &FileDeviceOptions::default()).unwrap();
    let at = slot_offset(&device, 0, newest_slot(&device, 0));
    change(&device, at, |block| block.fill(0xa7));
    drop(device);
    let code_and_text = |arguments: &[&str]| {
        let output = minfs(arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = code_and_text(&["fsck", &image]);
    assert!(code == Some(4) && text.contains("\"a\"") && text.contains("get --damaged"), "{text}");
    assert!(!text.contains("minfs-put"), "{text}");
    let (code, text) = code_and_text(&["get", &image, "a", &copy]);
    assert!(code == Some(1) && text.contains("fsck.minfs"), "{text}");
    succeed(minfs(&["get", "--damaged", &image, "a", &copy]));
    assert_eq!(std::fs::read(&copy).unwrap(), [5; 10_000]);
    let (code, text) = code_and_text(&["fsck", "--repair", &image]);
    assert!(code == Some(1) && text.contains("10000 bytes"), "{text}");
    assert_eq!(code_and_text(&["fsck", &image]).0, Some(0));
    let after = path("after");
    succeed(minfs(&["get", &image, "a", &after]));
    assert_eq!(std::fs::read(&after).unwrap(), [5; 10_000]);
}

#[test]
fn what_a_killed_put_leaves_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image").to_str().unwrap().to_string();
    succeed(minfs(&["mkfs", "--size", "4M", &image]));
    let mut put = std::process::Command::new(MINFS)
        .args(["put", &image, "-", "a"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let name = format!(".minfs-put-{}", put.id());
    let is_there = || {
        let bytes = std::fs::read(&image).unwrap();
        bytes.windows(name.len()).any(|window| window == name.as_bytes())
    };
    while !is_there() {
        assert!(put.try_wait().unwrap().is_none(), "put ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    put.kill().unwrap();
    put.wait().unwrap();
    let output = minfs(&["ls", &image]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("did not finish this copy"), "{errors}");
    assert_eq!(succeed(output), format!("{name}\n"));
    succeed(minfs(&["rm", &image, &name]));
    assert_eq!(succeed(minfs(&["ls", &image])), "");
}
