//! What counts where more than one thing went wrong: a crash before the damage, two damaged slots,
//! sectors that cannot be read. The states of the slots are made by hand.

#[path = "common/mount.rs"]
mod common;
#[path = "common/damage.rs"]
mod damage;

use std::io;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, FaultyDevice, MemoryDevice};
use common::minfs;
use damage::{change, content, flip, generation, mount, newest_slot, slot_offset};
use minfs::{Error, FsckReport, MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};

fn new_device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(4 << 20, 512));
    mkfs(&device, &MkfsOptions::default()).unwrap();
    device
}

fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(&device.image(), 512))
}

/// A file of `length` bytes of `fill`: its slots have the generations of the first and the third
/// record, and the second.
fn put(volume: &Volume, name: &[u8], fill: u8, length: usize) -> u32 {
    let file = volume.create(name, 0o600).unwrap();
    file.write(&vec![fill; length], 0).unwrap();
    file.sync().unwrap();
    file.set_attributes(|attributes| attributes.mode = 0o644).unwrap();
    file.facts().inode
}

/// Copies some sectors of a slot from another device: what a torn write left.
fn tear(to: &MemoryDevice, from: &MemoryDevice, inode: u32, slot: usize, sectors: &[usize]) {
    let at = slot_offset(&to, inode, slot);
    let mut new = vec![0; 4096];
    from.read_at(&mut new, at).unwrap();
    change(&to, at, |block| {
        for sector in sectors {
            block[sector * 512..][..512].copy_from_slice(&new[sector * 512..][..512]);
        }
    });
}

fn zero(device: &MemoryDevice, inode: u32, slot: usize) {
    change(&device, slot_offset(&device, inode, slot), |block| block.fill(0));
}

fn severities<D: BlockDevice>(device: &Arc<D>) -> Vec<Severity> {
    let findings = fsck(&**device, false).unwrap().findings;
    findings.iter().map(|finding| finding.severity).collect()
}

#[track_caller]
fn repair<D: BlockDevice + 'static>(device: &Arc<D>) -> FsckReport {
    let report = fsck(&**device, true).unwrap();
    assert!(report.is_repaired(), "{:?}", report.remaining);
    assert!(fsck(&**device, false).unwrap().is_clean());
    assert_eq!(mount(device).read_only_reason(), None);
    report
}

fn names(volume: &Volume) -> Vec<String> {
    let names = volume.list().into_iter().map(|facts| facts.name);
    names.map(|name| String::from_utf8(name).unwrap()).collect()
}

fn mount_damaged(device: &Arc<MemoryDevice>) -> Volume {
    let options = MountOptions { read_damaged: true, ..Default::default() };
    Volume::mount(device.clone(), &options).unwrap()
}

/// The older `log` was given up for its name, and `get --damaged` took the younger one out.
#[test]
fn a_rotated_file_whose_newest_name_is_lost_is_kept_beside_the_younger_one() {
    let device = new_device();
    let volume = mount(&device);
    let rotated = volume.create(b"log", 0o600).unwrap();
    rotated.write(&[5; 9000], 0).unwrap();
    rotated.sync().unwrap();
    volume.rename(b"log", b"log.1", false).unwrap();
    drop(rotated);
    put(&volume, b"log", 6, 5000);
    volume.unmount().unwrap();
    flip(&*device, slot_offset(&*device, 0, newest_slot(&*device, 0)) + 100);

    let volume = mount(&device);
    assert_eq!(names(&volume), ["log", "log.inode-0"]);
    let refused = volume.open(b"log.inode-0").unwrap().read(&mut [0; 8], 0);
    assert!(matches!(refused, Err(Error::DamagedFile(_))), "{refused:?}");
    assert_eq!(content(&volume, b"log"), [6; 5000]);
    let volume = mount_damaged(&device);
    assert_eq!(content(&volume, b"log.inode-0"), [5; 9000]);
    drop(volume);
    let report = repair(&device);
    assert!(report.findings.iter().any(|found| found.text.contains("log.inode-0")), "{report:?}");
    assert!(report.repairs[0].contains("has its old one"), "{report:?}");
    let volume = mount(&device);
    assert_eq!(names(&volume), ["log", "log.inode-0"]);
    assert_eq!(content(&volume, b"log.inode-0"), [5; 9000]);
    assert_eq!(content(&volume, b"log"), [6; 5000]);
}

/// The first file came back, and the mount said that nothing was lost: only the record of the second had said that
/// the first was replaced, and that record decayed when the second had been replaced too.
#[test]
fn a_file_stays_replaced_when_the_record_that_replaced_it_decays() {
    let device = new_device();
    let volume = mount(&device);
    let inodes = [b"a", b"b", b"c"].map(|name| put(&volume, name, 5, 9000));
    volume.rename(b"b", b"a", true).unwrap();
    volume.rename(b"c", b"a", true).unwrap();
    volume.unlink(b"a").unwrap();
    volume.unmount().unwrap();
    for inode in inodes {
        for slot in [0, 1] {
            for sector in 0..8 {
                let damaged = copy(&device);
                flip(&*damaged, slot_offset(&*damaged, inode, slot) + sector * 512 + 100);
                let volume = mount(&damaged);
                let told = volume.findings();
                let is_told = told.iter().any(|finding| finding.severity == Severity::Error);
                let found = names(&volume);
                assert!(found.is_empty() || is_told, "{inode} {slot} {sector}: {found:?} {told:?}");
            }
        }
    }
}

/// Passed for a first record that did not arrive, and the volume for clean.
#[test]
fn a_torn_record_beside_a_slot_that_was_zeroed_is_damage() {
    for torn in [0, 1] {
        let device = new_device();
        let volume = mount(&device);
        let file = volume.create(b"a", 0o600).unwrap();
        for mode in 0..=torn as u32 {
            file.set_attributes(|attributes| attributes.mode = mode).unwrap();
        }
        drop(file);
        volume.unmount().unwrap();
        let newer = copy(&device);
        let volume = mount(&newer);
        volume.open(b"a").unwrap().set_attributes(|attributes| attributes.mode = 7).unwrap();
        volume.unmount().unwrap();
        assert_eq!(newest_slot(&*newer, 0), torn);
        tear(&device, &newer, 0, torn, &[0, 1]);
        assert_eq!(severities(&device), [Severity::Note]);
        zero(&device, 0, 1 - torn);
        assert_eq!(severities(&device), [Severity::Error], "slot {torn}");
        assert!(mount(&device).read_only_reason().is_some());
        repair(&device);
    }
    // Power cut two first records of one inode short, and together they left no zeros.
    let device = new_device();
    let before = copy(&device);
    mount(&device).create(b"a", 0o600).unwrap();
    let second = copy(&before);
    let volume = mount(&second);
    volume.create(b"b", 0o600).unwrap();
    volume.unlink(b"b").unwrap();
    volume.create(b"c", 0o600).unwrap();
    drop(volume);
    let torn = copy(&before);
    tear(&torn, &device, 0, 0, &[0, 1, 2, 3]);
    tear(&torn, &second, 0, 0, &[4, 5, 6, 7]);
    assert_eq!(severities(&torn), [Severity::Note]);
    assert_eq!(mount(&torn).read_only_reason(), None);
}

/// A file whose newest record extends it by bytes that did not arrive, and of whose record before
/// an unused sector decayed.
fn with_void_tail(name: &[u8]) -> Arc<MemoryDevice> {
    let device = new_device();
    let volume = mount(&device);
    put(&volume, name, 5, 10_000);
    drop(volume);
    let newer = copy(&device);
    let volume = mount(&newer);
    let file = volume.open(name).unwrap();
    file.append(&[6; 3000]).unwrap();
    file.sync().unwrap();
    // The unmount would settle the tail.
    let newer = copy(&newer);
    let slot = newest_slot(&*newer, 0);
    tear(&device, &newer, 0, slot, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(severities(&device), [Severity::Note]);
    flip(&*device, slot_offset(&*device, 0, 1 - slot) + 5 * 512);
    device
}

/// The bytes that another file may have left were taken for the tail.
#[test]
fn a_void_tail_gives_way_to_a_legible_record_that_its_own_names() {
    let device = with_void_tail(b"a");
    assert!(severities(&device).iter().all(|severity| *severity < Severity::Error));
    let mounted = copy(&device);
    for device in [mounted.clone(), device] {
        if Arc::ptr_eq(&mounted, &device) {
            let volume = mount(&device);
            assert_eq!(volume.read_only_reason(), None);
            assert_eq!(content(&volume, b"a"), [5; 10_000]);
            volume.unmount().unwrap();
        }
        repair(&device);
        assert_eq!(content(&mount(&device), b"a"), [5; 10_000]);
    }
    // Also where the newest record is no more than legible.
    let device = with_void_tail(b"a");
    flip(&*device, slot_offset(&*device, 0, newest_slot(&*device, 0)) + 6 * 512);
    repair(&device);
    assert_eq!(content(&mount(&device), b"a"), [5; 10_000]);
}

/// The slot beside a void tail holds an older record than the one that the tail's own names: what was
/// between them is lost.
#[test]
fn a_void_tail_does_not_give_way_to_a_record_that_its_own_does_not_name() {
    let device = new_device();
    let volume = mount(&device);
    put(&volume, b"a", 5, 8192);
    volume.unmount().unwrap();
    let newer = copy(&device);
    let volume = mount(&newer);
    let file = volume.open(b"a").unwrap();
    // To the second slot; the tail's record goes to the first.
    file.set_attributes(|attributes| attributes.mode = 0o640).unwrap();
    file.append(&[6; 3000]).unwrap();
    file.sync().unwrap();
    let newer = copy(&newer);
    assert_eq!(newest_slot(&*newer, 0), 0);
    tear(&device, &newer, 0, 0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(severities(&device), [Severity::Error]);
    assert!(mount(&device).read_only_reason().is_some());
}

/// Another file may write, into space that is free again, what a void tail wants to see.
#[test]
fn a_mount_replaces_a_void_record() {
    let device = new_device();
    let volume = mount(&device);
    put(&volume, b"a", 5, 8192);
    volume.unmount().unwrap();
    let newer = copy(&device);
    let volume = mount(&newer);
    let file = volume.open(b"a").unwrap();
    file.append(&[6; 3000]).unwrap();
    file.sync().unwrap();
    let newer = copy(&newer);
    tear(&device, &newer, 0, newest_slot(&*newer, 0), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(severities(&device), [Severity::Note]);
    let volume = mount(&device);
    assert_eq!(content(&volume, b"a"), [5; 8192]);
    let free = volume.space().free_bytes as usize;
    put(&volume, b"b", 6, free);
    let left = copy(&device);
    assert_eq!(severities(&left), []);
    let volume = mount(&left);
    assert_eq!(content(&volume, b"a"), [5; 8192]);
    assert_eq!(content(&volume, b"b"), vec![6; free]);
}

#[test]
fn a_note_that_is_not_told_needs_no_word() {
    let device = with_void_tail(b".minfs-put-7");
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, device.image()).unwrap();
    let told = |arguments: &[&str]| String::from_utf8(minfs(arguments).stdout).unwrap();
    let image = image.to_str().unwrap();
    let word = ".minfs-put-N is the name";
    assert!(told(&["fsck", "-v", image]).contains(word));
    assert!(!told(&["fsck", image]).contains(word), "{}", told(&["fsck", image]));
}

/// A device some sectors of which cannot be read until they are written.
struct Failing {
    inner: MemoryDevice,
    bad: Mutex<Vec<u64>>,
}

impl Failing {
    fn new(
        image: &[u8],
        block_size: u32,
        places: impl IntoIterator<Item = (u64, u64)>,
    ) -> Arc<Self> {
        let sectors_of = |(at, length)| (at..at + length).step_by(512);
        let sectors = places.into_iter().flat_map(sectors_of).collect();
        Arc::new(Self {
            inner: MemoryDevice::from_image(image, block_size),
            bad: Mutex::new(sectors),
        })
    }

    fn recover(&self) {
        self.bad.lock().unwrap().clear();
    }
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + buffer.len() as u64;
        if self.bad.lock().unwrap().iter().any(|sector| range.contains(sector)) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + buffer.len() as u64;
        self.bad.lock().unwrap().retain(|sector| !range.contains(sector));
        self.inner.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }
}

fn two_files() -> Arc<MemoryDevice> {
    let device = new_device();
    let volume = mount(&device);
    put(&volume, b"a", 5, 10_000);
    put(&volume, b"b", 6, 9000);
    volume.unmount().unwrap();
    device
}

/// The record that cannot be read may be the newest of all. Were its generation used again, a torn
/// write over it could leave sectors of both that pass as one record.
#[test]
fn a_repair_uses_no_generation_that_an_unreadable_record_may_have() {
    let device = two_files();
    let slot = newest_slot(&*device, 1);
    let at = slot_offset(&*device, 1, slot);
    let hidden = generation(&*device, 1, slot);
    let failing = Failing::new(&device.image(), 512, [(at, 4096)]);
    assert_eq!(severities(&failing), [Severity::Error]);
    let report = repair(&failing);
    assert!(report.findings[0].text.contains("it cannot be read"), "{report:?}");
    assert!(generation(&*failing, 1, slot) > hidden);
    assert_eq!(content(&mount(&failing), b"b"), [6; 9000]);
}

#[test]
fn a_sector_that_cannot_be_read_costs_no_more_than_it_must() {
    let device = two_files();
    let at = slot_offset(&*device, 0, 1 - newest_slot(&*device, 0)) + 1024;
    // The sectors that can be read show that the slot is the older one.
    let failing = Failing::new(&device.image(), 512, [(at, 512)]);
    assert_eq!(severities(&failing), [Severity::Warning]);
    let report = repair(&failing);
    assert!(report.findings[0].text.contains("sectors [2] cannot be read"), "{report:?}");
    assert_eq!(content(&mount(&failing), b"a"), [5; 10_000]);
    // Where the blocks of the device are larger, nothing shows it.
    let failing = Failing::new(&device.image(), 4096, [(at, 512)]);
    assert_eq!(severities(&failing), [Severity::Error]);
    repair(&failing);
    assert_eq!(content(&mount(&failing), b"a"), [5; 10_000]);
}

#[test]
fn what_can_merely_not_be_read_is_not_freed() {
    let device = two_files();
    let slots = [0, 1].map(|slot| slot_offset(&*device, 0, slot)).map(|at| (at, 4096));
    let failing = Failing::new(&device.image(), 512, slots);
    let report = fsck(&*failing, true).unwrap();
    assert!(!report.is_repaired() && report.repairs.is_empty(), "{report:?}");
    assert!(report.remaining[0].text.contains("cannot be read"), "{report:?}");
    assert!(mount(&failing).read_only_reason().is_some());
    failing.recover();
    assert!(fsck(&*failing, false).unwrap().is_clean());
    assert_eq!(content(&mount(&failing), b"a"), [5; 10_000]);
    // An inode that holds an empty file at most must not keep a volume read-only.
    for block_size in [512, 4096] {
        let at = slot_offset(&*device, 7, 0);
        let failing = Failing::new(&device.image(), block_size, [(at, 4096)]);
        assert_eq!(severities(&failing), [Severity::Error]);
        repair(&failing);
    }
}

/// A record of which only an unused sector did not arrive, which decayed after the next mount: it
/// is legible, but what it claims is another's by now.
#[test]
fn a_legible_record_that_was_cut_short_gives_way_to_the_whole_one() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"x", 5, 9000);
    volume.unmount().unwrap();
    let newer = copy(&device);
    mount(&newer).open(b"x").unwrap().preallocate(0, 1 << 20, true, false).unwrap();
    let slot = newest_slot(&*newer, inode);
    tear(&device, &newer, inode, slot, &[0, 1, 2, 3, 4, 6, 7]);
    let volume = mount(&device);
    let free = volume.space().free_bytes as usize;
    put(&volume, b"z", 6, free);
    volume.unmount().unwrap();
    flip(&*device, slot_offset(&*device, inode, slot) + 5 * 512);
    assert_eq!(severities(&device), [Severity::Error]);
    assert_eq!(content(&mount_damaged(&device), b"x"), [5; 9000]);
    repair(&device);
    let volume = mount(&device);
    assert_eq!(content(&volume, b"x"), [5; 9000]);
    assert_eq!(content(&volume, b"z"), vec![6; free]);
}

#[test]
fn a_legible_record_that_may_not_have_been_durable_buries_nobody() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"x", 5, 9000);
    put(&volume, b"y", 6, 5000);
    volume.unmount().unwrap();
    let newer = copy(&device);
    mount(&newer).rename(b"x", b"y", true).unwrap();
    let slot = newest_slot(&*newer, inode);
    tear(&device, &newer, inode, slot, &[0, 1, 2, 3, 4, 6, 7]);
    let volume = mount(&device);
    // Changes no record.
    volume.open(b"y").unwrap().write(&[7; 5000], 0).unwrap();
    let device = copy(&device);
    assert_eq!(severities(&device), [Severity::Note]);
    flip(&*device, slot_offset(&*device, inode, slot) + 5 * 512);
    assert_eq!(severities(&device), [Severity::Error; 2]);
    for is_repaired in [false, true] {
        if is_repaired {
            repair(&device);
        }
        let volume = mount_damaged(&device);
        assert_eq!(names(&volume), ["y", "y.inode-1"]);
        assert_eq!(content(&volume, b"y"), [5; 9000]);
        assert_eq!(content(&volume, b"y.inode-1"), [7; 5000]);
    }
}

/// The zeros were taken for a slot that was never written, and the older record for the newest.
#[test]
fn a_first_slot_that_was_zeroed_proves_nothing() {
    let device = new_device();
    let volume = mount(&device);
    let inode = put(&volume, b"y", 5, 9000);
    volume.open(b"y").unwrap().set_attributes(|attributes| attributes.mode = 0).unwrap();
    put(&volume, b"x", 6, 9000);
    volume.rename(b"x", b"y", true).unwrap();
    assert_eq!(volume.create(b"new", 0o600).unwrap().facts().inode, inode);
    volume.unmount().unwrap();
    assert_eq!(newest_slot(&*device, inode), 0);
    zero(&device, inode, 0);
    flip(&*device, slot_offset(&*device, inode, 1) + 600);
    assert_eq!(severities(&device), [Severity::Error]);
    assert!(mount(&device).read_only_reason().is_some());
    repair(&device);
    assert_eq!(content(&mount(&device), b"y"), [6; 9000]);
}

/// Each file that lost its space once cost a survey of the whole volume.
#[test]
fn a_repair_takes_no_more_rounds_for_more_files() {
    let reads = [1, 6].map(|files| {
        let device = new_device();
        let volume = mount(&device);
        let inodes: Vec<_> =
            (0..files).map(|file| put(&volume, &[b'a' + file], 5, 400_000)).collect();
        for file in 0..files {
            volume.open(&[b'a' + file]).unwrap().truncate(0).unwrap();
        }
        let free = volume.space().free_bytes as usize;
        put(&volume, b"z", 6, free);
        volume.unmount().unwrap();
        for inode in inodes {
            let at = slot_offset(&*device, inode, newest_slot(&*device, inode));
            change(&*device, at, |block| block.fill(0xa7));
        }
        let counted = FaultyDevice::new(copy(&device), Vec::new());
        assert!(fsck(&counted, true).unwrap().is_repaired());
        counted.request_counts().0
    });
    assert_eq!(reads[0], reads[1]);
}
