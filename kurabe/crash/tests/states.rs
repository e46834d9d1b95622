//! Recordings of small stores, right and wrong ones, and what their states show.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use crash::{
    CrashState, CrashedDisk, FlushPolicy, Lost, LostWrites, Recording, RequestRecorder, Stale,
    StateOptions, States, reduce,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const BYTES: u64 = 1 << 20;

fn recorder() -> RequestRecorder<MemoryDevice> {
    RequestRecorder::in_memory(MemoryDevice::new(BYTES, 512)).unwrap()
}

fn before() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::new(BYTES, 512))
}

fn options(count: usize, seed: u64) -> StateOptions {
    StateOptions { from: 0, to: u64::MAX, count, seed }
}

#[test]
fn a_flush_is_needed_where_something_is_lost_without_it() {
    // Each is acknowledged after two flushes, of which the second has nothing to do.
    let device = recorder();
    for number in 0..4 {
        device.write_at(&[number + 1; 512], 512 * u64::from(number)).unwrap();
        device.flush().unwrap();
        device.acknowledge("written");
        device.flush().unwrap();
    }
    let recording = Arc::new(device.recording());
    let requests = recording.log.requests.iter();
    let flushes = requests.filter(|one| one.operation == crash::RequestKind::Flush);
    for (number, flush) in flushes.enumerate() {
        let without = FlushPolicy::Without(flush.arrived);
        let states = States::new(recording.clone(), before(), without);
        let found = states.only_without(flush.arrived, 4, 1);
        assert_eq!(found.is_empty(), number % 2 == 1, "flush {number}");
        for state in found {
            let at = 512 * (number as u64 / 2);
            let mut bytes = [0; 512];
            states.disk(&state).read_at(&mut bytes, at).unwrap();
            assert_eq!(bytes, [0; 512], "what it alone had made durable is lost");
        }
    }
}

/// How a store of numbered entries makes an entry durable.
#[derive(Clone, Copy)]
enum Protocol {
    /// The entry, a flush, the count of entries, a flush.
    Right,
    /// The count is not flushed before the acknowledgement.
    LastFlushMissing,
    /// The entry is not flushed before the count.
    FirstFlushMissing,
}

fn entry(number: u64) -> [u8; 1024] {
    [number as u8 + 1; 1024]
}

/// Appends entries of two sectors each; sector 0 counts them.
fn record(protocol: Protocol, entries: u64) -> Arc<Recording> {
    let device = recorder();
    for number in 0..entries {
        device.write_at(&entry(number), 4096 + number * 1024).unwrap();
        if !matches!(protocol, Protocol::FirstFlushMissing) {
            device.flush().unwrap();
        }
        let mut head = [0; 512];
        head[..8].copy_from_slice(&(number + 1).to_le_bytes());
        device.write_at(&head, 0).unwrap();
        if !matches!(protocol, Protocol::LastFlushMissing) {
            device.flush().unwrap();
        }
        device.acknowledge(&number.to_string());
    }
    Arc::new(device.recording())
}

/// Whether all that was acknowledged is there, and nothing that the head names is torn.
fn holds(disk: &CrashedDisk, acknowledged: usize) -> bool {
    let mut head = [0; 512];
    disk.read_at(&mut head, 0).unwrap();
    let count = u64::from_le_bytes(head[..8].try_into().unwrap());
    let whole = (0..count).all(|number| {
        let mut bytes = [0; 1024];
        disk.read_at(&mut bytes, 4096 + number * 1024).unwrap();
        bytes == entry(number)
    });
    whole && count >= acknowledged as u64
}

fn violated(states: &States, chosen: &[CrashState]) -> Vec<CrashState> {
    let fails = |state: &&CrashState| !holds(&states.disk(state), state.acknowledged);
    chosen.iter().filter(fails).cloned().collect()
}

#[test]
fn a_right_store_loses_nothing_and_on_a_lying_disk_it_does() {
    let recording = record(Protocol::Right, 40);
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    let chosen = states.choose(&options(400, 1));
    assert!(chosen.len() > 100, "{}", chosen.len());
    assert_eq!(violated(&states, &chosen), []);
    let lying = FlushPolicy::IgnoredFrom(0);
    let control = States::new(recording.clone(), before(), lying);
    let chosen = control.choose(&options(100, 1));
    assert!(violated(&control, &chosen).len() > 50);
}

#[test]
fn a_missing_flush_is_found_and_reduced_to_the_one_write() {
    for protocol in [Protocol::LastFlushMissing, Protocol::FirstFlushMissing] {
        let recording = record(protocol, 40);
        let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
        let chosen = states.choose(&options(300, 1));
        let violated = violated(&states, &chosen);
        assert!(violated.len() > 10, "{}", violated.len());
        for state in &violated {
            let reduction = reduce(&state.lost, 100, |lost| {
                let state = CrashState { lost: lost.to_vec(), ..state.clone() };
                Ok::<_, Infallible>(!holds(&states.disk(&state), state.acknowledged))
            });
            let reduction = reduction.unwrap();
            assert_eq!(reduction.lost.len(), 1, "{reduction:?}");
            assert!(reduction.is_minimal);
        }
    }
}

#[test]
fn a_flush_covers_what_was_replied_to_before_it_arrived_and_nothing_else() {
    // Two writes of which one is in flight while a flush comes and goes.
    struct Slow(MemoryDevice, std::sync::Barrier);
    impl BlockDevice for Slow {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn block_size(&self) -> u32 {
            512
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.0.read_at(buffer, offset)
        }
        fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
            if offset == 512 {
                self.1.wait();
                self.1.wait();
            }
            self.0.write_at(buffer, offset)
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
            Ok(())
        }
    }
    let slow = Slow(MemoryDevice::new(BYTES, 512), std::sync::Barrier::new(2));
    let device = RequestRecorder::in_memory(slow).unwrap();
    device.write_at(&[1; 512], 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| device.write_at(&[2; 512], 512).unwrap());
        device.inner().1.wait();
        device.flush().unwrap();
        device.inner().1.wait();
    });
    let flushed = device.now();
    let recording = Arc::new(device.recording());
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    assert_eq!(states.volatile(flushed), [1]);
    // Before the flush was replied to, neither was safe.
    assert_eq!(states.volatile(3), [0, 1]);
    let all: Vec<Lost> = (0..2).map(|request| Lost { request, first: 0, sectors: 1 }).collect();
    let disk = states.disk(&CrashState { instant: flushed, lost: all, acknowledged: 0 });
    let mut bytes = [9; 1024];
    disk.read_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[0], bytes[512]), (1, 0));
}

/// Two devices, one behind the other: a flush of one says nothing of the other.
#[test]
fn a_flush_covers_its_own_device_and_no_other() {
    let half = BYTES / 2;
    let recorder = recorder().of_devices(&[half, half]);
    recorder.write_at(&[1; 512], 0).unwrap();
    recorder.write_at(&[2; 512], half).unwrap();
    recorder.flush_device(1).unwrap();
    let recording = Arc::new(recorder.recording());
    assert_eq!(recording.log.devices(), [0..half, half..BYTES]);
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    assert_eq!(states.volatile(recorder.now()), [0]);
    recorder.flush_device(0).unwrap();
    let states = States::new(Arc::new(recorder.recording()), before(), FlushPolicy::Kept);
    assert_eq!(states.volatile(recorder.now()), [0; 0]);

    let mut log = recording.log.clone();
    log.further = vec![0];
    let data = recording.data.try_clone().unwrap();
    assert!(Recording::open(log, data).unwrap_err().contains("the devices"));
}

#[test]
fn the_last_write_that_is_there_counts_whatever_became_durable_first() {
    let device = recorder();
    device.write_at(&[1; 512], 0).unwrap();
    device.flush().unwrap();
    device.write_at(&[2; 512], 0).unwrap();
    device.write_at(&[3; 512], 0).unwrap();
    device.zero_range(512, 512).unwrap();
    let recording = Arc::new(device.recording());
    let states = States::new(recording.clone(), Arc::new(Stale::new(BYTES)), FlushPolicy::Kept);
    let left = |lost: &[usize]| {
        let lost = lost.iter().map(|one| Lost { request: *one, first: 0, sectors: 1 }).collect();
        let state = CrashState { instant: recording.log.end, lost, acknowledged: 0 };
        let mut bytes = [0; 1024];
        states.disk(&state).read_at(&mut bytes, 0).unwrap();
        (bytes[0], bytes[512..].iter().all(|byte| *byte == 0))
    };
    assert_eq!(left(&[]), (3, true));
    assert_eq!(left(&[3]), (2, true));
    assert_eq!(left(&[2, 3, 4]), (1, false));
}

#[test]
fn every_combination_of_sectors_comes_up_and_what_was_flushed_stays() {
    let device = recorder();
    device.write_at(&[1; 1024], 0).unwrap();
    device.flush().unwrap();
    device.write_at(&[2; 1024], 0).unwrap();
    device.write_at(&[3; 512], 2048).unwrap();
    let recording = Arc::new(device.recording());
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut seen = |loss| {
        let of = |_| {
            let state = states.state(recording.log.end, loss, &mut random);
            let image = states.disk(&state).image().unwrap();
            (image[0], image[512], image[2048])
        };
        (0..200).map(of).collect::<BTreeSet<_>>()
    };
    assert_eq!(seen(LostWrites::Sectors).len(), 8);
    assert_eq!(seen(LostWrites::Half).len(), 4);
    assert_eq!(seen(LostWrites::All), BTreeSet::from([(1, 1, 0)]));
    assert_eq!(seen(LostWrites::Nothing), BTreeSet::from([(2, 2, 3)]));
    assert_eq!(seen(LostWrites::One), BTreeSet::from([(1, 1, 3), (2, 2, 0)]));
    assert_eq!(seen(LostWrites::AllButOne), BTreeSet::from([(1, 1, 3), (2, 2, 0)]));
    let torn = seen(LostWrites::Torn);
    assert!(torn.contains(&(2, 1, 3)) && torn.contains(&(1, 2, 0)), "{torn:?}");
    // Cuts may come in any order.
    let first = states.state(2, LostWrites::Nothing, &mut ChaCha8Rng::seed_from_u64(1));
    assert_eq!(states.disk(&first).image().unwrap()[..513], [[1; 512].as_slice(), &[1]].concat());
}

#[test]
fn a_disk_is_fresh_and_writes_stay_its_own() {
    let recording = record(Protocol::Right, 3);
    let states = States::new(recording.clone(), Arc::new(Stale::new(BYTES)), FlushPolicy::Kept);
    let state = CrashState { instant: recording.log.end, lost: Vec::new(), acknowledged: 3 };
    let disk = states.disk(&state);
    let stale = Stale::new(BYTES);
    for (offset, length) in [(0, 4096), (512, 512), (4096 + 512, 8192), (BYTES - 4096, 4096)] {
        let (mut mine, mut unchanged) = (vec![0; length], vec![0; length]);
        disk.write_at(&vec![7; length], offset).unwrap();
        disk.read_at(&mut mine, offset).unwrap();
        assert_eq!(mine, vec![7; length]);
        states.disk(&state).read_at(&mut unchanged, offset).unwrap();
        assert_ne!(unchanged, mine);
    }
    let (mut beside, mut expected) = ([0; 512], [0; 512]);
    disk.read_at(&mut beside, BYTES - 8192).unwrap();
    stale.read_at(&mut expected, BYTES - 8192).unwrap();
    assert_eq!(beside, expected);
}

#[test]
fn two_disks_have_the_same_bytes_outside_of_the_ranges_in_which_they_differ() {
    let device = recorder();
    // One page of the map holds 256 KiB: some pages change, others do not.
    for number in 0..40_u64 {
        let place = (number % 5) * 200_000 / 512 * 512;
        device.write_at(&[number as u8 + 1; 1024], place).unwrap();
        if number % 3 == 0 {
            device.flush().unwrap();
        }
    }
    let states = States::new(Arc::new(device.recording()), before(), FlushPolicy::Kept);
    let mut last: Option<CrashedDisk> = None;
    let (mut differed, mut shared) = (0, 0);
    for (number, state) in states.choose(&options(60, 7)).iter().enumerate() {
        let disk = states.disk(state);
        if let Some(last) = last {
            let (old, mut new) = (last.image().unwrap(), disk.image().unwrap());
            differed += u32::from(old != new);
            let ranges = disk.differs_from(&last);
            assert!(ranges.is_sorted_by(|one, next| one.end < next.start), "{ranges:?}");
            let length: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            shared += u32::from(length < BYTES);
            for range in ranges {
                let range = range.start as usize..range.end as usize;
                new[range.clone()].copy_from_slice(&old[range]);
            }
            assert!(old == new, "state {number} differs elsewhere from the one before");
        }
        // What is written to one is no part of the next.
        disk.write_at(&[0xee; 512], (number as u64 * 77_777) % BYTES / 512 * 512).unwrap();
        last = Some(disk);
    }
    assert!(differed > 20 && shared > 20, "{differed} differed, {shared} shared something");
}

#[test]
fn the_same_seed_gives_the_same_states_and_no_disk_twice() {
    let recording = record(Protocol::LastFlushMissing, 20);
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    let chosen = states.choose(&options(200, 7));
    assert_eq!(chosen, states.choose(&options(200, 7)));
    assert_ne!(chosen, states.choose(&options(200, 8)));
    let mut images = BTreeSet::new();
    for state in &chosen {
        let image = states.disk(state).image().unwrap();
        assert!(images.insert((image, state.acknowledged)), "{state:?}");
    }
    let kinds = |whole: fn(&CrashState) -> bool| chosen.iter().filter(|state| whole(state)).count();
    assert!(kinds(|state| state.lost.is_empty()) > 5);
    assert!(kinds(|state| state.lost.len() == 2) > 5);
    assert!(kinds(|state| state.lost.iter().any(|lost| lost.first > 0)) > 2);
}

#[test]
fn a_recording_that_is_full_fails_writes() {
    let data = tempfile::tempfile().unwrap();
    let device = RequestRecorder::new(MemoryDevice::new(BYTES, 512), data).with_bytes_max(1024);
    device.zero_range(0, BYTES).unwrap();
    device.write_at(&[1; 1024], 0).unwrap();
    device.acknowledge("kept");
    assert!(!device.recording().log.is_cut_short);
    let refused = device.write_at(&[1; 512], 0).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    // What comes after it is not judged.
    device.flush().unwrap();
    device.acknowledge("lost");
    let Recording { log, data } = device.recording();
    assert!(log.is_cut_short);
    assert_eq!((log.requests.len(), log.acknowledgements.len()), (2, 1));
    assert_eq!(log.acknowledgements[0].instant, log.end);
    Recording::open(log, data.try_clone().unwrap()).unwrap();
}

/// A recording's file may be one on a disk.
#[test]
fn nothing_lost_means_the_device_as_it_was() {
    let data = tempfile::tempfile().unwrap();
    let device = RequestRecorder::new(MemoryDevice::new(BYTES, 512), data);
    for number in 0..50_u64 {
        device.write_at(&vec![number as u8; 2048], (number * 37 % 100) * 1024).unwrap();
        if number % 5 == 0 {
            device.discard((number * 11 % 90) * 4096, 4096).unwrap();
        }
        if number % 7 == 0 {
            device.flush().unwrap();
        }
    }
    let recording = Arc::new(device.recording());
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    let state = CrashState { instant: recording.log.end, lost: Vec::new(), acknowledged: 0 };
    assert_eq!(states.disk(&state).image().unwrap(), device.inner().image());
}

#[test]
fn a_kept_recording_is_believed_only_when_it_can_be() {
    let recording = record(Protocol::Right, 3);
    let data = || recording.data.try_clone().unwrap();
    assert!(Recording::open(recording.log.clone(), data()).is_ok());
    let spoilt: [fn(&mut crash::Log); 5] = [
        |log| log.requests[0].sector = u64::MAX,
        |log| log.requests[1].arrived = 1,
        |log| log.requests[2].data_sector += 1,
        |log| log.data_sectors -= 1,
        |log| log.acknowledgements.swap(0, 2),
    ];
    for spoil in spoilt {
        let mut log = recording.log.clone();
        spoil(&mut log);
        assert!(Recording::open(log, data()).is_err());
    }
}

/// What a disk has written out by itself is lost in no state from then on, and nothing else changes.
#[test]
fn what_the_disk_wrote_out_by_itself_is_not_lost() {
    let device = recorder();
    device.write_at(&[1; 1024], 0).unwrap();
    device.write_at(&[2; 512], 512).unwrap();
    device.acknowledge("both are written");
    device.write_at(&[3; 512], 4096).unwrap();
    let mut recording = device.recording();
    // The second has left the cache when the acknowledgement comes; the first has not, as a whole.
    device.let_destage(&mut recording, |writes| {
        let ranges: Vec<_> = writes.iter().map(|(_, range)| range.clone()).collect();
        assert_eq!(ranges, [0..1024, 512..1024, 4096..4608]);
        vec![None, Some(writes[1].0), None]
    });
    let recording = Arc::new(recording);
    let acknowledged = recording.log.acknowledgements[0].instant;
    assert_eq!(recording.log.requests[1].destaged, Some(acknowledged));
    let states = States::new(recording.clone(), before(), FlushPolicy::Kept);
    assert_eq!(states.volatile(acknowledged - 1), [0, 1]);
    assert_eq!(states.volatile(acknowledged), [0]);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut left = |loss| {
        let mut bytes = [0; 1024];
        let state = states.state(acknowledged, loss, &mut random);
        states.disk(&state).read_at(&mut bytes, 0).unwrap();
        (bytes[0], bytes[512])
    };
    assert_eq!((left(LostWrites::All), left(LostWrites::Nothing)), ((0, 2), (1, 2)));
    let control = States::new(recording, before(), FlushPolicy::IgnoredFrom(0));
    assert_eq!(control.volatile(acknowledged), [0, 1]);
}
