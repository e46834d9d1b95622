//! Crash enumeration: random scripts of one or several clients, every write and flush point, many
//! images at each.
//!
//! A recording of each script yields the images that a power cut could leave (see the crate
//! `crash` for the model of the medium). Each image must open; every client's keys must be as after one of
//! its changes, none that was answered as durable missing; every value must be one that was put,
//! whole. What was recovered must stay, also when all free space is filled and power fails again.
//! The canaries break one rule each and must be caught.
//!
//! `LUMP_CRASH_STATES` sets how many states the main test visits, `LUMP_CRASH_SEED` its seed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, MemoryDevice};
use crash::{FlushPolicy, Instant, Log, LostWrites, Recording, RequestRecorder, States};
use lump::{CreateOptions, Durability, Error, OpenOptions, Sabotage, Store, check};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const OPERATIONS: usize = 36;
const STALE: u8 = 0xee;
/// First bytes of values whose writing fails; no other value has them, and no metadata.
const FAILS_IN_PART: u8 = 0xd1;
const FAILS_WHOLE: u8 = 0xd2;
/// Distance between the keys of two clients.
const CLIENT_KEYS: u128 = 1 << 100;
/// What fills the free space of a recovered store.
const FILLER_KEY: u128 = u128::MAX;

type Content = BTreeMap<u128, Vec<u8>>;

/// A recording on which data and journal are written at once, or one after the other, and on which
/// the writing of some values fails although it arrives, in part or as a whole.
struct Scripted {
    recorder: RequestRecorder<MemoryDevice>,
    at_once: bool,
    /// Share of the puts whose writing fails.
    failing: f64,
    /// Flushes wait while a test has this.
    held: Mutex<()>,
}

impl Scripted {
    fn new(image: &[u8], block_size: u32, at_once: bool) -> Self {
        let memory = MemoryDevice::from_image(image, block_size);
        let recorder = RequestRecorder::in_memory(memory).unwrap();
        Self { recorder, at_once, failing: 0.0, held: Mutex::new(()) }
    }
}

impl BlockDevice for Scripted {
    fn len(&self) -> u64 {
        self.recorder.len()
    }
    fn block_size(&self) -> u32 {
        self.recorder.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.recorder.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        match buffer[0] {
            FAILS_IN_PART => {
                self.recorder.write_at(&buffer[..self.block_size() as usize], offset)?;
            }
            _ => self.recorder.write_at(buffer, offset)?,
        }
        match buffer[0] {
            FAILS_IN_PART | FAILS_WHOLE => Err(io::Error::other("on purpose")),
            _ => Ok(()),
        }
    }
    fn writes_at_once(&self) -> bool {
        self.at_once
    }
    fn merges_flushes(&self) -> bool {
        true
    }
    fn flush(&self) -> io::Result<()> {
        // Long enough for others to come meanwhile: their data are written under this flush.
        (0..3).for_each(|_| std::thread::yield_now());
        drop(self.held.lock().unwrap());
        self.recorder.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.recorder.discard(offset, length)
    }
}

/// What a client did: the content of its keys after each change, and which changes are durable for
/// sure once they were answered.
struct Client {
    states: Vec<Content>,
    /// What a change that failed would have made of the content: until it is answered.
    failures: BTreeMap<usize, Content>,
    is_durable: Vec<bool>,
}

struct Script {
    base: Vec<u8>,
    block_size: u32,
    recording: Arc<Recording>,
    clients: Vec<Client>,
}

fn label(client: usize, operation: usize, is_answer: bool) -> u64 {
    (client as u64) << 32 | (operation as u64) << 1 | u64::from(is_answer)
}

fn bytes(random: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let seed = random.next_u64();
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    (0..length).map(|_| source.random_range(1..0xd0)).collect()
}

/// Plays a client's changes, one after the other, and notes in the log when each begins and ends.
fn play(store: &Store, device: &Scripted, number: usize, seed: u64, written: f64) -> Client {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut client =
        Client { states: vec![Content::new()], failures: BTreeMap::new(), is_durable: vec![true] };
    let first_key = number as u128 * CLIENT_KEYS;
    // Among changes of both kinds a buffered one may be missing without those behind it: the model test
    // (`lump/model`) has that. A client that buffers all has them in order.
    let buffers = number == 1;
    for operation in 1..=OPERATIONS {
        let mut content = client.states.last().unwrap().clone();
        let key = first_key + random.random_range(0..6_u128);
        let mut durability = match random.random_bool(written) {
            _ if buffers => Durability::Buffered,
            true => Durability::Written,
            false => Durability::Durable,
        };
        device.recorder.acknowledge(&label(number, operation, false).to_string());
        let action = match random.random_range(0..100) {
            // Without a sync nothing of it has to be there.
            64..74 if buffers => 90,
            action => action,
        };
        match action {
            0..64 => {
                let length = match random.random_range(0..8) {
                    0 => 0,
                    // Around the size up to which data go with the journal.
                    1 => random.random_range(20_000..80_000),
                    _ => random.random_range(1..9000),
                };
                let mut value = bytes(&mut random, length);
                let fails = length > 0 && !buffers && random.random_bool(device.failing);
                if fails {
                    value[0] = [FAILS_IN_PART, FAILS_WHOLE][random.random_range(0..2)];
                }
                match store.put(key, &value, durability) {
                    Ok(()) => {
                        assert!(!fails);
                        content.insert(key, value);
                    }
                    Err(Error::Device { .. }) if fails => {
                        let mut failed = content.clone();
                        failed.insert(key, value);
                        client.failures.insert(operation, failed);
                        durability = Durability::Written;
                    }
                    Err(Error::NoSpace { .. }) => durability = Durability::Written,
                    Err(error) => panic!("{error}"),
                }
            }
            64..82 => {
                let existed = store.delete(key, durability).unwrap();
                assert_eq!(existed, content.remove(&key).is_some());
            }
            82..88 => {
                let keys = key..=key + 2;
                let count = store.delete_range(keys.clone(), durability).unwrap();
                let before = content.len();
                content.retain(|key, _| !keys.contains(key));
                assert_eq!(count, (before - content.len()) as u64);
            }
            88..90 => {
                store.trim(512).unwrap();
                durability = Durability::Durable;
            }
            90..92 => {
                store.sync().unwrap();
                durability = Durability::Durable;
            }
            92..95 => {
                // Also while a window is open.
                store.checkpoint().unwrap();
                durability = Durability::Written;
            }
            _ => {
                let found = store.get(key).unwrap();
                assert_eq!(found.as_deref(), content.get(&key).map(Vec::as_slice));
                durability = Durability::Written;
            }
        }
        device.recorder.acknowledge(&label(number, operation, true).to_string());
        client.states.push(content);
        client.is_durable.push(durability == Durability::Durable);
    }
    client
}

fn record(seed: u64, sabotage: Sabotage) -> Script {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let block_size = if random.random() { 512 } else { 4096 };
    let device_bytes = random.random_range(70..110) * 4096;
    let base = MemoryDevice::from_image(&vec![STALE; device_bytes as usize], block_size);
    let options = CreateOptions {
        objects_max: Some(100),
        journal_bytes: Some(4096 * random.random_range(8..20)),
        ..Default::default()
    };
    Store::create(&base, &options).unwrap();
    let base = base.image();
    let at_once = random.random_bool(0.7);
    let mut device = Scripted::new(&base, block_size, at_once);
    device.failing = 0.06;
    let device = Arc::new(device);
    let own_flushes = [None, Some(false), Some(true), Some(true)][random.random_range(0..4)];
    let options = OpenOptions { sabotage, own_flushes, ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    let clients: usize = if seed.is_multiple_of(2) { 1 } else { 3 };
    let written = [0.0, 0.4, 0.9][random.random_range(0..3)];
    let seeds: Vec<u64> = (0..clients).map(|_| random.random()).collect();
    let clients = std::thread::scope(|scope| {
        let play_one = |(number, seed)| {
            let (store, device) = (&store, &device);
            scope.spawn(move || play(store, device, number, seed, written))
        };
        let threads: Vec<_> = seeds.into_iter().enumerate().map(play_one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(store);
    Script { base, block_size, recording: Arc::new(device.recorder.recording()), clients }
}

impl Client {
    /// The contents of this client's keys that are right after an instant.
    fn candidates(&self, number: usize, log: &Log, instant: Instant) -> Vec<&Content> {
        let (mut begun, mut answered, mut durable) = (0, 0, 0);
        for said in log.acknowledgements.iter().filter(|said| said.instant <= instant) {
            let mark: u64 = said.text.to_string().parse().unwrap();
            if mark >> 32 != number as u64 {
                continue;
            }
            let operation = (mark as u32 >> 1) as usize;
            begun = begun.max(operation);
            if mark & 1 == 1 {
                answered = operation;
            }
            if mark & 1 == 1 && self.is_durable[operation] {
                durable = operation;
            }
        }
        let failing = self.failures.get(&begun).filter(|_| begun > answered);
        self.states[durable..=begun].iter().chain(failing).collect()
    }
}

fn contents(store: &Store) -> Result<Content, String> {
    let keys: Vec<u128> = store.list(..).unwrap().map(|object| object.key).collect();
    let mut found = Content::new();
    for key in keys.into_iter().filter(|key| *key != FILLER_KEY) {
        let value = store.get(key).map_err(|error| error.to_string())?;
        found.insert(key, value.ok_or("a listed key has no value")?.to_vec());
    }
    Ok(found)
}

fn open(device: Arc<dyn BlockDevice>, sabotage: Sabotage) -> Result<Store, String> {
    let options = OpenOptions { sabotage, own_flushes: Some(true), ..Default::default() };
    Store::open(device, &options).map_err(|error| format!("open: {error}"))
}

/// Whether a content is right after a power cut.
fn judge(found: &Content, script: &Script, instant: Instant) -> Result<(), String> {
    for (number, client) in script.clients.iter().enumerate() {
        let first = number as u128 * CLIENT_KEYS;
        let own: Content = found
            .range(first..first + CLIENT_KEYS)
            .map(|(key, value)| (*key, value.clone()))
            .collect();
        let candidates = client.candidates(number, &script.recording.log, instant);
        if !candidates.contains(&&own) {
            let shown = |content: &Content| -> Vec<String> {
                content.iter().map(|(key, value)| format!("{key:x}:{}", value.len())).collect()
            };
            let expected: Vec<_> = candidates.into_iter().map(shown).collect();
            return Err(format!("client {number} has {:?}, expected {expected:?}", shown(&own)));
        }
    }
    Ok(())
}

/// Opens and judges one image, which a cut after `instant` left.
fn check_image(
    image: &[u8],
    script: &Script,
    instant: Instant,
    sabotage: Sabotage,
    goes_on: bool,
) -> Result<(), String> {
    let device = Arc::new(Scripted::new(image, script.block_size, true));
    if goes_on {
        let report = check(device.clone()).map_err(|error| format!("check: {error}"))?;
        if !report.findings.is_empty() {
            return Err(format!("check: {:?}", report.findings));
        }
    }
    let store = open(device.clone(), sabotage)?;
    let found = contents(&store)?;
    judge(&found, script, instant)?;
    if !goes_on {
        return Ok(());
    }
    for length in [100, 3000, 5000] {
        // The first of them announces a window, and others go into it.
        let _ = store.put(FILLER_KEY, &vec![0xfa; length], Durability::Durable);
    }
    let free = store.usage().longest_free_bytes as usize;
    let _ = store.put(FILLER_KEY, &vec![0xfb; free.saturating_sub(4096)], Durability::Durable);
    if contents(&store)? != found {
        return Err("filling the free space changed another value".into());
    }
    drop(store);
    let again = states(image, Arc::new(device.recorder.recording()));
    let mut random = ChaCha8Rng::seed_from_u64(instant);
    for instant in (0..=device.recorder.now()).step_by(3) {
        for loss in [LostWrites::All, LostWrites::AllButOne, LostWrites::Sectors] {
            let image = again.disk(&again.state(instant, loss, &mut random)).image().unwrap();
            let again = Arc::new(MemoryDevice::from_image(&image, script.block_size));
            let again = contents(&open(again, sabotage)?)?;
            if again != found {
                return Err(format!("{loss:?} at {instant} after the recovery changed a value"));
            }
        }
    }
    Ok(())
}

/// What power cuts could leave of a recording that began with `base`.
fn states(base: &[u8], recording: Arc<Recording>) -> States {
    States::new(recording, Arc::new(MemoryDevice::from_image(base, 512)), FlushPolicy::Kept)
}

/// Visits about `wanted` states of scripts from `seed` on; stops at the first that is wrong.
fn enumerate(seed: u64, wanted: usize, sabotage: Sabotage) -> Result<usize, String> {
    let mut visited = 0;
    for seed in seed.. {
        let script = record(seed, sabotage);
        // Some canaries sit in the opening; the others must be seen in what they recorded.
        let sabotage = match sabotage {
            Sabotage::TrustRecords | Sabotage::ForgetAdditions => sabotage,
            _ => Sabotage::None,
        };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let states = states(&script.base, script.recording.clone());
        let end = script.recording.log.end;
        // Every instant comes up in the long run; a short one takes some of each script.
        let share = if wanted >= 50_000 { 1.0 } else { 0.25 };
        for instant in 0..=end {
            let all = [
                LostWrites::All,
                LostWrites::Nothing,
                LostWrites::One,
                LostWrites::AllButOne,
                LostWrites::Half,
                LostWrites::Half,
                LostWrites::Sectors,
            ];
            let kinds = if states.volatile(instant).is_empty() { &all[..1] } else { &all[..] };
            for &loss in kinds {
                if !random.random_bool(share) {
                    continue;
                }
                let state = states.state(instant, loss, &mut random);
                let image = states.disk(&state).image().unwrap();
                let goes_on = visited % 16 == 0;
                check_image(&image, &script, instant, sabotage, goes_on)
                    .map_err(|why| format!("seed {seed}, {loss:?} at {instant} of {end}: {why}"))?;
                visited += 1;
            }
        }
        if visited >= wanted {
            return Ok(visited);
        }
    }
    unreachable!("seeds do not end")
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_power_cut_loses_or_forges_anything() {
    let seed = environment("LUMP_CRASH_SEED", 1);
    let wanted = environment("LUMP_CRASH_STATES", 600) as usize;
    let visited = enumerate(seed, wanted, Sabotage::None).unwrap_or_else(|why| panic!("{why}"));
    println!("{visited} states from seed {seed}");
}

/// Clients who put the same keys at once agree with what an opening finds after a power cut.
#[test]
fn the_order_of_puts_of_one_key_survives() {
    for seed in 1..=environment("LUMP_CRASH_ORDERS", 40) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let base = MemoryDevice::new(1 << 20, 512);
        Store::create(&base, &CreateOptions::default()).unwrap();
        let base = base.image();
        let device = Arc::new(Scripted::new(&base, 512, true));
        let store = open(device.clone(), Sabotage::None).unwrap();
        for round in 0..12 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let (store, seed) = (&store, random.next_u64());
                    scope.spawn(move || {
                        let mut random = ChaCha8Rng::seed_from_u64(seed);
                        for _ in 0..5 {
                            let (key, length) =
                                (random.random_range(0..2), 1 + seed as usize % 900);
                            let value = bytes(&mut random, length);
                            store.put(key, &value, Durability::Durable).unwrap();
                        }
                    });
                }
            });
            let states = states(&base, Arc::new(device.recorder.recording()));
            let state = states.state(device.recorder.now(), LostWrites::All, &mut random);
            let image = states.disk(&state).image().unwrap();
            let again = Arc::new(MemoryDevice::from_image(&image, 512));
            let found = contents(&open(again, Sabotage::None).unwrap()).unwrap();
            assert!(found == contents(&store).unwrap(), "seed {seed}, round {round}");
        }
    }
}

/// The commit that ends a window of many puts takes several blocks of the journal, of which some may
/// arrive; and so do the blocks that an opening writes of what it found.
fn end_a_window_of_many_puts(sabotage: Sabotage) -> Result<(), String> {
    // One is made before there is a window. The delete fills the fourth block, and the end of the
    // window is in a fifth.
    const PUTS: u128 = 4 * 84;
    let base = MemoryDevice::new(2 << 20, 512);
    let options = CreateOptions { journal_bytes: Some(64 * 4096), ..Default::default() };
    Store::create(&base, &options).unwrap();
    let base = base.image();
    let device = Arc::new(Scripted::new(&base, 512, true));
    let store = open(device.clone(), Sabotage::None).unwrap();
    let put = |key: u128| store.put(key, &[1; 9], Durability::Durable).unwrap();
    (0..PUTS).for_each(put);
    let (before, began) = (contents(&store).unwrap(), device.recorder.now());
    assert_eq!(store.delete_range(..PUTS / 2, Durability::Durable).unwrap(), 168);
    let (after, ended) = (contents(&store).unwrap(), device.recorder.now());
    put(PUTS);
    let log = states(&base, Arc::new(device.recorder.recording()));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut parts, mut outcomes) = (0, [0; 2]);
    let mut at = |instant, loss| log.disk(&log.state(instant, loss, &mut random)).image().unwrap();
    let mut images = Vec::new();
    for instant in began..=ended {
        let some = [LostWrites::Half, LostWrites::Sectors].into_iter().cycle().take(20);
        let losses =
            [LostWrites::All, LostWrites::Nothing, LostWrites::AllButOne].into_iter().chain(some);
        images.extend(losses.map(|loss| (instant, at(instant, loss))));
    }
    // The first blocks of the commit, and more and more of them.
    let (mut image, whole) = (at(began, LostWrites::All), at(ended, LostWrites::All));
    for start in (0..image.len()).step_by(4096) {
        if image[start..start + 4096] != whole[start..start + 4096] {
            image[start..start + 4096].copy_from_slice(&whole[start..start + 4096]);
            images.push((ended - 1, image.clone()));
        }
    }
    // All of them, but for one sector of a block.
    let earlier = at(began, LostWrites::All);
    for start in (0..whole.len()).step_by(4096) {
        if earlier[start..start + 4096] != whole[start..start + 4096] {
            let mut image = whole.clone();
            image[start + 512..start + 1024].copy_from_slice(&earlier[start + 512..start + 1024]);
            images.extend(std::iter::repeat_n((ended - 1, image), 6));
        }
    }
    for (instant, image) in images {
        let device = Arc::new(Scripted::new(&image, 512, true));
        let store = open(device.clone(), sabotage)?;
        let found = contents(&store).unwrap();
        drop(store);
        let is_right = |found: &Content| *found == after || *found == before && instant < ended;
        if !is_right(&found) {
            return Err(format!("a part of the changes, at {instant}"));
        }
        outcomes[usize::from(found == after)] += 1;
        // What the opening wrote arrives in part, too.
        let again = states(&image, Arc::new(device.recorder.recording()));
        let loss = [LostWrites::Half, LostWrites::Sectors, LostWrites::AllButOne, LostWrites::Torn]
            [parts % 4];
        parts += 1;
        for instant in 0..=device.recorder.now() {
            let image = again.disk(&again.state(instant, loss, &mut random)).image().unwrap();
            let again = Arc::new(MemoryDevice::from_image(&image, 512));
            let again = contents(&open(again, Sabotage::None).unwrap()).unwrap();
            if again != found {
                return Err(format!("{loss:?} at {instant} after the recovery"));
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
    Ok(())
}

/// Of the last commit all arrived but one sector of zeros; and of what the opening writes in its place,
/// that one alone.
fn cut_off_an_opening(sabotage: Sabotage) -> Result<(), String> {
    let base = MemoryDevice::from_image(&vec![STALE; 1 << 20], 512);
    Store::create(&base, &CreateOptions::default()).unwrap();
    let device = Arc::new(Scripted::new(&base.image(), 512, true));
    let options = OpenOptions { own_flushes: Some(false), ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    store.put(1, b"before", Durability::Durable).unwrap();
    let before = device.recorder.inner().image();
    store.put(1, b"after", Durability::Durable).unwrap();
    let mut image = device.recorder.inner().image();
    let is_new = |at: &usize| {
        image[*at..at + 8] == lump::layout::JOURNAL_MAGIC
            && image[*at..at + 4096] != before[*at..at + 4096]
    };
    let block = (0..image.len()).step_by(4096).find(is_new).unwrap();
    image[block + 7 * 512..block + 8 * 512].fill(STALE);
    let device = Arc::new(Scripted::new(&image, 512, true));
    let store = open(device.clone(), sabotage)?;
    let found = contents(&store).unwrap();
    assert_eq!(found[&1], *b"before");
    let again = states(&image, Arc::new(device.recorder.recording()));
    for seed in 0..100 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for instant in 0..=device.recorder.now() {
            let state = again.state(instant, LostWrites::Sectors, &mut random);
            let image = again.disk(&state).image().unwrap();
            let again = Arc::new(MemoryDevice::from_image(&image, 512));
            let again = contents(&open(again, Sabotage::None).unwrap()).unwrap();
            if again != found {
                return Err(format!("seed {seed}, at {instant}"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_an_opening_left_out_does_not_come_back_while_it_writes() {
    cut_off_an_opening(Sabotage::None).unwrap();
    end_a_window_of_many_puts(Sabotage::None).unwrap();
    println!("{}", cut_off_an_opening(Sabotage::LeaveRest).unwrap_err());
    for sabotage in [Sabotage::LeaveRest, Sabotage::FindAgain] {
        println!("{sabotage:?}: {}", end_a_window_of_many_puts(sabotage).unwrap_err());
    }
}

/// A put fails although its data arrive, and its record was alone in the last block of its commit:
/// the others are written anew as they were.
#[test]
fn a_failed_put_stays_away_where_its_commit_becomes_shorter() {
    const RECORDS_PER_BLOCK: u128 = 84;
    const FAILING_KEY: u128 = 500;
    let base = MemoryDevice::new(2 << 20, 512);
    let options = CreateOptions { journal_bytes: Some(64 * 4096), ..Default::default() };
    Store::create(&base, &options).unwrap();
    let base = base.image();
    let device = Arc::new(Scripted::new(&base, 512, true));
    let options = OpenOptions { own_flushes: Some(false), ..Default::default() };
    let store = Store::open(device.clone(), &options).unwrap();
    let (commits, held) = (store.metrics().commits, device.held.lock().unwrap());
    let put = |key: u128, byte: u8| store.put(key, &[byte; 9], Durability::Durable);
    let wait_until_waiting = |count| wait_until(|| store.usage().waiting == count);
    std::thread::scope(|scope| {
        let written = device.recorder.now();
        scope.spawn(|| put(RECORDS_PER_BLOCK, 1).unwrap());
        wait_until(|| device.recorder.now() > written);
        for key in 0..RECORDS_PER_BLOCK {
            let put = &put;
            scope.spawn(move || put(key, 1).unwrap());
        }
        wait_until_waiting(RECORDS_PER_BLOCK as u64);
        scope.spawn(|| assert!(put(FAILING_KEY, FAILS_WHOLE).is_err()));
        wait_until_waiting(RECORDS_PER_BLOCK as u64 + 1);
        drop(held);
    });
    assert_eq!(store.metrics().commits - commits, 2);
    let recording = states(&base, Arc::new(device.recorder.recording()));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let state = recording.state(device.recorder.now(), LostWrites::Nothing, &mut random);
    let image = recording.disk(&state).image().unwrap();
    let again = Arc::new(MemoryDevice::from_image(&image, 512));
    let found = contents(&open(again, Sabotage::None).unwrap()).unwrap();
    assert!(found == contents(&store).unwrap(), "a put that failed is there");
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// Rules that are broken where one client suffices to see it; the model test (`lump/model`) has all.
#[test]
fn canaries_are_caught() {
    for sabotage in [Sabotage::SkipFlush, Sabotage::TrustRecords, Sabotage::ForgetAdditions] {
        match enumerate(1, 20_000, sabotage) {
            Ok(visited) => panic!("{sabotage:?} was not caught in {visited} states"),
            Err(why) => println!("{sabotage:?}: {why}"),
        }
    }
}
