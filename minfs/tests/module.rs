//! The kernel's module under the crash tests of the library: random scripts in a guest, whose disk is
//! recorded here, and what a power cut could leave of it, judged by the library.
//!
//! `MINFS_MODULE_GUEST` names a program (`module/guest.sh`) that boots a guest with the disk that it is
//! given, and lets `module/agent.py` there read its input and write its output. `MINFS_MODULE_SCRIPTS`
//! sets how many scripts are played, `MINFS_MODULE_SEED` the first seed, `MINFS_MODULE_SCHEDULES` how
//! often threads share a file.

#[path = "module/harness.rs"]
mod harness;
#[path = "common/script.rs"]
mod script;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::MemoryDevice;
use crash::{Instant, LostWrites};
use harness::{BLOCK_BYTES, Disk, Guest, NEVER, in_guest, number, recorder_of, text};
use minfs::{MkfsOptions, MountOptions, Volume, fsck, mkfs};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use script::{OPERATIONS, Script, contents, enumerate, new_image, play, states};

/// Of the disk on which threads share a file.
const SHARED_DISK_BYTES: usize = 3 << 20;
const THREADS: usize = 4;
const ROUNDS: usize = 12;
/// In which asynchronous writes overlap.
const OVERLAPS: usize = 24;

/// In place of a guest: a program that ends at once on its first two starts.
#[test]
fn a_guest_that_ends_before_the_module_is_loaded_is_booted_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("guest.sh");
    let text = "#!/bin/sh\necho >>\"$1\"\n[ $(wc -l <\"$1\") -gt 2 ] || exit 0\necho booted\nread line\necho 7\n";
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let starts = directory.path().join("starts");
    let mut guest = Guest::boot(program.to_str().unwrap(), &starts);
    assert_eq!(guest.number("complaints"), 7);
    assert_eq!(std::fs::read(&starts).unwrap().len(), 3);
}

#[test]
fn the_module_keeps_what_it_acknowledged() {
    let disk = Arc::new(Disk::new(&new_image(BLOCK_BYTES), Duration::ZERO));
    in_guest(&disk, |guest| {
        let first = number("MINFS_MODULE_SEED", 1);
        let scripts = number("MINFS_MODULE_SCRIPTS", 3);
        let mut tried = 0;
        for seed in first..first + scripts {
            tried += play_in(guest, &disk, seed).unwrap_or_else(|why| panic!("{why}"));
        }
        println!("{tried} states of {scripts} scripts, the first of seed {first}");
        disk.ignores_flushes.store(true, Ordering::SeqCst);
        let caught = (0..20).find_map(|seed| play_in(guest, &disk, seed).err());
        println!("a disk that ignores flushes: {}", caught.expect("it is caught"));
    });
}

#[test]
fn what_threads_that_share_a_file_were_told_survives() {
    let image = shared_image();
    let disk = Arc::new(Disk::new(&image, Duration::from_micros(500)));
    in_guest(&disk, |guest| {
        share_often(guest, &disk, &image, |seed| format!("threads {seed} {THREADS} {ROUNDS}"));
    });
}

#[test]
fn what_overlapping_asynchronous_writes_were_told_survives() {
    let image = shared_image();
    let disk = Arc::new(Disk::new(&image, Duration::from_micros(500)));
    in_guest(&disk, |guest| {
        share_often(guest, &disk, &image, |seed| format!("overlap {seed} {OVERLAPS}"));
        guest.assert_called("end_write");
    });
}

#[test]
fn a_file_is_cut_off_when_what_is_under_way_there_has_ended() {
    let image = shared_image();
    let disk = Arc::new(Disk::new(&image, Duration::ZERO));
    in_guest(&disk, |guest| {
        for (what, end) in [("writes", "end_write"), ("reads", "end_read")] {
            *disk.recorder.write().unwrap() = recorder_of(&image);
            assert!(guest.ask("mount"));
            assert!(guest.ask(&format!("cut off {what}")), "{what}");
            guest.assert_called(end);
            assert!(guest.ask("unmount"));
        }
    });
}

#[test]
fn what_was_read_into_pages_of_a_file_is_written() {
    let disk = Arc::new(Disk::new(&shared_image(), Duration::ZERO));
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount"));
        assert!(guest.ask("read to file"));
        guest.assert_called("tell_read");
        assert!(guest.ask("read to file waits"), "waits");
        assert!(guest.ask("unmount"));
    });
}

#[test]
fn a_read_that_fails_is_told() {
    let disk = Arc::new(Disk::new(&new_image(BLOCK_BYTES), Duration::ZERO));
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount"));
        assert!(guest.ask("create c"));
        assert!(guest.ask(&format!("write c 0 {}", "02".repeat(16384))));
        assert!(guest.ask("sync c"));
        for line in ["read c 16384 2", "read c 16384 2 waits"] {
            disk.fails_reads.store(true, Ordering::SeqCst);
            guest.send(line);
            assert_eq!(guest.receive(), "EIO", "{line}");
            disk.fails_reads.store(false, Ordering::SeqCst);
            assert!(guest.ask(line));
        }
        guest.assert_called("end_read");
        assert!(guest.ask("unmount"));
    });
}

#[test]
fn a_volume_mounted_to_sync_keeps_asynchronous_writes() {
    let base = new_image(BLOCK_BYTES);
    let disk = Arc::new(Disk::new(&base, Duration::ZERO));
    in_guest(&disk, |guest| {
        assert!(guest.ask("mount -o sync"));
        assert!(guest.ask("create c"));
        assert!(guest.ask(&format!("write c 0 {}", "02".repeat(PIECES * 8192))));
        // The first one settles the tail.
        assert!(guest.ask("overwrite c 4096 1 7"));
        assert!(guest.ask(&format!("overwrite c 0 {PIECES} 8")));
        let (recorder, mut random) = (disk.recorder(), ChaCha8Rng::seed_from_u64(1));
        let states = states(&base, &recorder);
        let state = states.state(recorder.now(), LostWrites::All, &mut random);
        let volume =
            Volume::mount(Arc::new(states.disk(&state)), &MountOptions::default()).unwrap();
        let found = &contents(&volume).unwrap()[b"c".as_slice()];
        let firsts: Vec<_> = found.chunks(4096).map(|block| block[0]).collect();
        assert_eq!(firsts, [8, 7, 8, 2, 8, 2, 8, 2]);
        assert!(guest.ask("unmount"));
    });
}

#[test]
fn an_error_of_the_device_is_told_and_ends_the_writing() {
    let disk = Arc::new(Disk::new(&new_image(BLOCK_BYTES), Duration::ZERO));
    in_guest(&disk, |guest| {
        let faults = (0..).take_while(|nth| fail_in(guest, &disk, *nth)).count();
        println!("{faults} writes and flushes failed, each in a mount of its own");
        assert!(faults > 40, "only {faults} writes and flushes");
        guest.assert_called("end_write");
    });
}

/// As the agent takes the last byte.
const CACHED: u8 = 3;
const CACHED_AGAIN: u8 = 6;
const DIRECT: u8 = 2;
/// Blocks that are overwritten at once, asynchronously, every second one.
const PIECES: usize = 4;

/// A line for the agent, what it makes of the files, and whether it is durable then.
type Act = (String, fn(&mut Files), bool);
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

fn acts() -> Vec<Act> {
    fn name(files: &mut Files, name: &str) -> Vec<u8> {
        files.remove(name.as_bytes()).unwrap_or_default()
    }
    let write = |name: &str, offset: usize, byte: u8, length: usize| {
        format!("write {name} {offset} {}", format!("{byte:02x}").repeat(length))
    };
    let overwrite = |byte: u8| format!("overwrite c 0 {PIECES} {byte}");
    fn put(files: &mut Files, name: &[u8], offset: usize, byte: u8, length: usize) {
        let file = files.get_mut(name).unwrap();
        file.resize(file.len().max(offset + length), 0);
        file[offset..offset + length].fill(byte);
    }
    fn put_pieces(files: &mut Files, byte: u8) {
        (0..PIECES).for_each(|piece| put(files, b"c", piece * 8192, byte, 4096));
    }
    vec![
        ("create a".into(), |files| drop(files.insert(b"a".to_vec(), Vec::new())), true),
        (write("a", 0, CACHED, 5000), |files| put(files, b"a", 0, CACHED, 5000), false),
        ("sync a".into(), |_| (), true),
        (write("a", 5000, CACHED, 3192), |files| put(files, b"a", 5000, CACHED, 3192), false),
        ("sync a".into(), |_| (), true),
        (write("a", 8192, DIRECT, 8192), |files| put(files, b"a", 8192, DIRECT, 8192), false),
        ("sync a".into(), |_| (), true),
        (
            write("a", 8192, CACHED_AGAIN, 4096),
            |files| put(files, b"a", 8192, CACHED_AGAIN, 4096),
            false,
        ),
        ("sync a".into(), |_| (), true),
        (write("a", 12288, DIRECT, 4096), |files| put(files, b"a", 12288, DIRECT, 4096), false),
        ("sync a".into(), |_| (), true),
        (
            "rename a b".into(),
            |files| {
                let file = name(files, "a");
                files.insert(b"b".to_vec(), file);
            },
            true,
        ),
        (
            "truncate b 3000".into(),
            |files| files.get_mut(b"b".as_slice()).unwrap().truncate(3000),
            true,
        ),
        ("create c".into(), |files| drop(files.insert(b"c".to_vec(), Vec::new())), true),
        (write("c", 0, DIRECT, 4096), |files| put(files, b"c", 0, DIRECT, 4096), false),
        ("sync c".into(), |_| (), true),
        (
            write("c", 0, DIRECT, PIECES * 8192),
            |files| put(files, b"c", 0, DIRECT, PIECES * 8192),
            false,
        ),
        ("sync c".into(), |_| (), true),
        // The first one settles the tail.
        ("overwrite c 4096 1 7".into(), |files| put(files, b"c", 4096, 7, 4096), false),
        ("sync c".into(), |_| (), true),
        (overwrite(8), |files| put_pieces(files, 8), false),
        ("sync c".into(), |_| (), true),
        (overwrite(9), |files| put_pieces(files, 9), false),
        ("sync c".into(), |_| (), true),
        ("unlink b".into(), |files| drop(name(files, "b")), true),
    ]
}

/// Lets the request that comes after so many fail. False: there were fewer.
fn fail_in(guest: &mut Guest, disk: &Disk, nth: u64) -> bool {
    let base = new_image(BLOCK_BYTES);
    let recorder = recorder_of(&base);
    *disk.recorder.write().unwrap() = recorder.clone();
    assert!(guest.ask("mount"));
    disk.succeeds.store(nth, Ordering::SeqCst);
    // What a power cut may leave: all that was made durable, and with or without what came after.
    let mut admitted = vec![Files::new()];
    let (mut has_failed, mut failing) = (false, String::new());
    for (line, act, is_durable) in acts() {
        let mut files = admitted.last().unwrap().clone();
        act(&mut files);
        let shown = &line[..line.len().min(20)];
        guest.send(&line);
        let answer = guest.receive();
        match answer.as_str() {
            "done" => {
                assert!(!has_failed, "fault {nth}: done after an error: {shown}");
                if is_durable {
                    admitted.clear();
                }
            }
            "EIO" | "EROFS" => {
                if !has_failed {
                    failing = shown.to_string();
                }
                has_failed = true;
            }
            // Of a file that could not be made or renamed.
            "ENOENT" if has_failed => {}
            other => panic!("fault {nth}: {shown}: {other}"),
        }
        // Of writes at once all are done but the one that failed.
        if answer == "EIO" && line.starts_with("overwrite") {
            let before = &admitted.last().unwrap()[b"c".as_slice()];
            let partly = |piece: usize| {
                let (mut partly, range) = (files.clone(), piece * 8192..piece * 8192 + 4096);
                let file = partly.get_mut(b"c".as_slice()).unwrap();
                file[range.clone()].copy_from_slice(&before[range]);
                partly
            };
            let partly: Vec<_> = (0..PIECES).map(partly).collect();
            admitted.extend(partly);
        }
        admitted.push(files);
        // A direct write that fails has told its program, and the volume goes on without it.
        if answer == "EIO" && (line.starts_with("write") || line.starts_with("overwrite")) {
            break;
        }
    }
    let was_hit = disk.succeeds.swap(NEVER, Ordering::SeqCst) > NEVER / 2;
    assert!(guest.ask("unmount"));
    let states = states(&base, &recorder);
    for loss in [LostWrites::All, LostWrites::Nothing] {
        let mut random = ChaCha8Rng::seed_from_u64(nth);
        let device = Arc::new(states.disk(&states.state(recorder.now(), loss, &mut random)));
        assert!(fsck(&device, false).unwrap().is_clean());
        let volume = Volume::mount(device, &MountOptions::default()).unwrap();
        let found = contents(&volume).unwrap();
        let shown = |(name, file): (&Vec<u8>, &Vec<u8>)| {
            let firsts: Vec<_> = file.chunks(4096).map(|block| block[0]).collect();
            format!("{}: {} bytes, blocks {firsts:?}", text(name), file.len())
        };
        let shown: Vec<_> = found.iter().map(shown).collect();
        assert!(admitted.contains(&found), "fault {nth} in {failing}, {loss:?}: {shown:?}");
    }
    assert_eq!(was_hit, has_failed, "fault {nth} was not told");
    was_hit
}

fn shared_image() -> Vec<u8> {
    let device = MemoryDevice::from_image(&vec![0xee; SHARED_DISK_BYTES], BLOCK_BYTES);
    mkfs(&device, &MkfsOptions::default()).unwrap();
    device.image()
}

/// What a thread was told: from this instant on these bytes are in the file.
struct Told {
    number: u64,
    instant: Instant,
    /// From here on they may be others: the thread has begun to overwrite them.
    until: Instant,
    offset: u64,
    bytes: Vec<u8>,
}

/// Shares a file in so many schedules, and then on a disk that ignores flushes.
fn share_often(guest: &mut Guest, disk: &Disk, image: &[u8], command: fn(u64) -> String) {
    let first = number("MINFS_MODULE_SEED", 1);
    let schedules = number("MINFS_MODULE_SCHEDULES", 2);
    let mut tried = 0;
    let mut share = |seed| share_in(guest, disk, image, seed, &command(seed));
    for seed in first..first + schedules {
        tried += share(seed).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{tried} states of {schedules} schedules, the first of seed {first}");
    disk.ignores_flushes.store(true, Ordering::SeqCst);
    let caught = (0..20).find_map(|seed| share(seed).err());
    println!("a disk that ignores flushes: {}", caught.expect("it is caught"));
}

/// Bytes that the guest is about to write, all the same.
struct Announced {
    instant: Instant,
    offset: usize,
    length: usize,
    byte: u8,
}

/// Whether each byte of the file is one that was to be written there before the instant.
fn knows_all(file: &[u8], announced: &[Announced], instant: Instant) -> Result<(), String> {
    let mut is_known = vec![announced.is_empty(); file.len()];
    for one in announced.iter().filter(|one| one.instant <= instant) {
        let range = one.offset..one.offset + one.length;
        let found = file[range.clone()].iter().zip(&mut is_known[range]);
        found.for_each(|(byte, is_known)| *is_known |= *byte == one.byte);
    }
    match is_known.iter().position(|is_known| !is_known) {
        Some(at) => Err(format!("byte {at} is {:#x}, which it never was", file[at])),
        None => Ok(()),
    }
}

/// Lets the guest write to one file and sync, and says how many states of what a power cut could leave
/// were tried.
fn share_in(
    guest: &mut Guest,
    disk: &Disk,
    image: &[u8],
    seed: u64,
    command: &str,
) -> Result<u64, String> {
    let recorder = recorder_of(image);
    *disk.recorder.write().unwrap() = recorder.clone();
    assert!(guest.ask("mount"), "seed {seed}: it cannot be mounted");
    let mut log: Vec<Told> = Vec::new();
    let mut announced: Vec<Announced> = Vec::new();
    guest.send(command);
    loop {
        let line = guest.receive();
        let now = recorder.now();
        let words: Vec<_> = line.split(' ').collect();
        let field = |index: usize| words[index].parse::<u64>().unwrap();
        match words[0] {
            "begin" => log.iter_mut().find(|told| told.number == field(1)).unwrap().until = now,
            "writes" => announced.push(Announced {
                instant: now,
                offset: field(1) as usize,
                length: field(2) as usize,
                byte: field(3) as u8,
            }),
            "told" => log.push(Told {
                number: field(1),
                instant: now,
                until: Instant::MAX,
                offset: field(2),
                bytes: vec![field(4) as u8; field(3) as usize],
            }),
            "done" => break,
            _ => panic!("seed {seed}: '{line}'"),
        }
        guest.send("");
    }
    assert!(guest.ask("unmount"));
    assert!(log.len() >= THREADS * ROUNDS, "only {} were told", log.len());
    let states = states(image, &recorder);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut tried = 0;
    let first = log[0].instant;
    let mut instants: Vec<_> = log.iter().map(|told| told.instant).collect();
    instants.extend(announced.iter().map(|one| one.instant).filter(|instant| *instant > first));
    for instant in instants {
        for loss in [LostWrites::All, LostWrites::AllButOne, LostWrites::Half, LostWrites::Sectors]
        {
            let device = Arc::new(states.disk(&states.state(instant, loss, &mut random)));
            let wrong = |what: &str| format!("seed {seed}, instant {instant}, {loss:?}: {what}");
            let report = fsck(&device, false).map_err(|error| wrong(&error.to_string()))?;
            if !report.is_clean() {
                return Err(wrong(&format!("{:?}", report.findings)));
            }
            let volume = Volume::mount(device, &MountOptions::default())
                .map_err(|error| wrong(&error.to_string()))?;
            let file = volume.open(b"shared").map_err(|error| wrong(&error.to_string()))?;
            let mut whole = vec![0; file.facts().size as usize];
            file.read(&mut whole, 0).map_err(|error| wrong(&error.to_string()))?;
            knows_all(&whole, &announced, instant).map_err(|what| wrong(&what))?;
            let stands = |told: &&Told| told.instant <= instant && instant <= told.until;
            for told in log.iter().filter(stands) {
                let place = told.offset as usize;
                if whole.get(place..place + told.bytes.len()) != Some(&told.bytes) {
                    return Err(wrong(&format!("lost: {} at {}", told.number, told.offset)));
                }
            }
            tried += 1;
        }
    }
    Ok(tried)
}

/// Plays a script, and says how many states were tried.
fn play_in(guest: &mut Guest, disk: &Disk, seed: u64) -> Result<u64, String> {
    let base = new_image(BLOCK_BYTES);
    let recorder = recorder_of(&base);
    *disk.recorder.write().unwrap() = recorder.clone();
    assert!(guest.ask("mount"), "seed {seed}: it cannot be mounted");
    let steps = play(guest, ChaCha8Rng::seed_from_u64(seed), OPERATIONS, || recorder.now());
    enumerate(&Script { states: states(&base, &recorder), end: recorder.now(), steps }, seed)
}
