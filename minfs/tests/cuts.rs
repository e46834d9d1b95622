//! Power is cut twice: what a mount showed after the first cut stays after the second.
//!
//! The first cut leaves bytes on the medium that no record speaks of. The mount after it shows zeros
//! in their place, and no later operation may bring them back.

use std::sync::Arc;

use block::{BlockDevice, Fault, FaultyDevice, MemoryDevice};
use crash::{FlushPolicy, LostWrites, RequestRecorder, States};
use minfs::{File, MkfsOptions, MountOptions, Volume, fsck, mkfs};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const STALE: u8 = 0xee;
const NEVER_SYNCED: u8 = 0x77;
const ADDED: u8 = 0x11;

/// What a power cut leaves of a file into whose preallocated space somebody wrote without a sync:
/// the bytes have arrived, and no record of them.
fn after_the_first_cut(block_size: u32, keep_size: bool, zero: bool) -> Vec<u8> {
    let stale = vec![STALE; 320 << 10];
    let device = Arc::new(MemoryDevice::from_image(&stale, block_size));
    mkfs(&device, &MkfsOptions { files: Some(4), ..Default::default() }).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let file = volume.create(b"a", 0o644).unwrap();
    file.preallocate(0, 40_960, keep_size, zero).unwrap();
    file.write(&[NEVER_SYNCED; 3900], 100).unwrap();
    let image = device.image();
    drop(file);
    drop(volume);
    image
}

type Change = fn(&File) -> minfs::Result<()>;

/// What may move the valid length past bytes that nobody has synced.
const CHANGES: [(&str, Change); 6] = [
    ("a write far behind", |file| file.write(&[ADDED; 100], 30_000)),
    ("a write far behind, whole blocks", |file| file.write(&[ADDED; 4096], 32_768)),
    ("zeros far behind", |file| file.zero_range(20_000, 9000, false)),
    ("zeros all over", |file| file.preallocate(0, 60_000, false, true)),
    ("a greater length", |file| file.truncate(35_000)),
    ("a write and a greater length", |file| {
        file.write(&[ADDED; 100], 30_000)?;
        file.truncate(35_000)
    }),
];

/// The bytes of the file, with zeros behind its end.
fn bytes_of(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    volume.open(b"a").unwrap().read(&mut bytes, 0).unwrap();
    bytes
}

/// Makes the change on what the first cut left, cuts the power at every instant of it, and says what
/// is wrong with what is left.
fn cut_again(image: &[u8], block_size: u32, change: Change, syncs: bool) -> Result<u64, String> {
    let memory = MemoryDevice::from_image(image, block_size);
    let device = Arc::new(RequestRecorder::in_memory(memory).unwrap());
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let shown = bytes_of(&volume);
    let file = volume.open(b"a").unwrap();
    change(&file).unwrap();
    let wanted = bytes_of(&volume);
    if syncs {
        file.sync().unwrap();
    }
    drop(file);
    volume.unmount().unwrap();
    let before = Arc::new(MemoryDevice::from_image(image, 512));
    let states = States::new(Arc::new(device.recording()), before, FlushPolicy::Kept);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut tried = 0;
    for instant in 0..=device.now() {
        for loss in [
            LostWrites::All,
            LostWrites::Nothing,
            LostWrites::One,
            LostWrites::AllButOne,
            LostWrites::Half,
            LostWrites::Half,
        ] {
            let disk = Arc::new(states.disk(&states.state(instant, loss, &mut random)));
            assert!(fsck(&disk, false).unwrap().is_clean());
            let volume = Volume::mount(disk, &MountOptions::default()).unwrap();
            let found = bytes_of(&volume);
            tried += 1;
            if let Some(at) =
                (0..found.len()).find(|at| ![shown[*at], wanted[*at]].contains(&found[*at]))
            {
                return Err(format!(
                    "byte {at} is {:#x} after a cut at {instant} ({loss:?}); a mount showed {:#x}, \
                     and {:#x} was written",
                    found[at], shown[at], wanted[at]
                ));
            }
        }
    }
    Ok(tried)
}

#[test]
fn bytes_that_were_never_synced_do_not_come_back_after_a_second_cut() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for block_size in [512] {
        for (keep_size, zero) in [(false, false), (false, true), (true, false), (true, true)] {
            let image = after_the_first_cut(block_size, keep_size, zero);
            for (title, change) in CHANGES {
                for syncs in [false, true] {
                    match cut_again(&image, block_size, change, syncs) {
                        Ok(states) => tried += states,
                        Err(why) => wrong.push(format!(
                            "blocks of {block_size}, keep size {keep_size}, zero {zero}, {title}, \
                             synced {syncs}: {why}"
                        )),
                    }
                }
            }
        }
    }
    println!("{tried} states");
    assert!(wrong.is_empty(), "{} cases, first: {}", wrong.len(), wrong[0]);
}

/// A killed process leaves records in the device's cache. A mount shows them, so they are made
/// durable first, also by a mount that writes nothing.
#[test]
fn what_a_mount_shows_is_not_lost_to_a_later_cut() {
    for read_only in [true, false] {
        what_a_mount_shows_survives(read_only);
    }
}

fn what_a_mount_shows_survives(read_only: bool) {
    let memory = MemoryDevice::new(1 << 20, 512);
    mkfs(&memory, &MkfsOptions { files: Some(4), ..Default::default() }).unwrap();
    let before = Arc::new(MemoryDevice::from_image(&memory.image(), 512));
    let device =
        Arc::new(FaultyDevice::new(RequestRecorder::in_memory(memory).unwrap(), Vec::new()));
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    // The process dies after the record has reached the device and before it is flushed.
    let (_, _, flushes) = device.request_counts();
    device.set_faults(vec![Fault::FailFlush(flushes)]);
    assert!(volume.create(b"a", 0o644).is_err());
    drop(volume);
    let mount = |device: Arc<dyn BlockDevice>| {
        let options = MountOptions { read_only, ..Default::default() };
        Volume::mount(device, &options).unwrap()
    };
    let names =
        |volume: &Volume| volume.list().into_iter().map(|facts| facts.name).collect::<Vec<_>>();
    // The cut comes while it is mounted: an unmount flushes.
    let mounted = mount(device.clone());
    let shown = names(&mounted);
    assert_eq!(shown, [b"a"]);
    let recorder = device.inner();
    let states = States::new(Arc::new(recorder.recording()), before, FlushPolicy::Kept);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let disk = states.disk(&states.state(recorder.now(), LostWrites::All, &mut random));
    assert_eq!(names(&mount(Arc::new(disk))), shown);
}

/// Sets a time, syncs with `sync`, cuts the power, and returns the time of the file that is left.
fn time_after_a_cut(sync: fn(&File) -> minfs::Result<()>) -> i64 {
    let memory = MemoryDevice::new(1 << 20, 512);
    mkfs(&memory, &MkfsOptions { files: Some(4), ..Default::default() }).unwrap();
    let before = Arc::new(MemoryDevice::from_image(&memory.image(), 512));
    let device = Arc::new(RequestRecorder::in_memory(memory).unwrap());
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let file = volume.create(b"a", 0o644).unwrap();
    file.set_attributes(|attributes| attributes.modified_ns = 1234).unwrap();
    sync(&file).unwrap();
    let states = States::new(Arc::new(device.recording()), before, FlushPolicy::Kept);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let disk = states.disk(&states.state(device.now(), LostWrites::All, &mut random));
    let volume = Volume::mount(Arc::new(disk), &MountOptions::default()).unwrap();
    volume.stat(b"a").unwrap().attributes.modified_ns
}

#[test]
fn a_sync_makes_times_durable_that_were_set() {
    assert_eq!(time_after_a_cut(File::sync), 1234);
    // As fdatasync(2) has it: they cost a record.
    assert_ne!(time_after_a_cut(File::sync_data), 1234);
}
