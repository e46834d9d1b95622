//! A seeded simulation: a store lives through many openings on a medium that is sick.
//!
//! An honest medium tells what it did not do: writes that arrive in part and fail, flushes that
//! fail, and power cuts that take what no flush covers. On it nothing acknowledged is lost. A lying
//! one rots, loses writes, tears them or sends them elsewhere, and reports success. On it a store
//! may refuse to open and a get may fail, but while it is open a get gives the value of its key or
//! an error, and after an opening never bytes that were not put under that key.
//!
//! `LUMP_SIMULATION_SEEDS` sets how many seeds are run, `LUMP_SIMULATION_SEED` the first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use lump::{CreateOptions, Durability, Error, OpenOptions, Sabotage, Store};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEVICE_BYTES: usize = 1 << 20;
const JOURNAL_BLOCKS: u64 = 24;
const SECTOR_BYTES: usize = 512;
const OPENINGS: usize = 6;
const OPERATIONS: usize = 50;
const KEYS: u128 = 10;
/// Most bytes that stay buffered: fewer than what is written in the background.
const BUFFERED_BYTES_MAX: u64 = 40_000;

/// How likely each fault is, of a read, write or flush.
#[derive(Clone, Copy, Default)]
struct Rates {
    failing_write: f64,
    failing_flush: f64,
    rot: f64,
    lost_write: f64,
    torn_write: f64,
    misdirected_write: f64,
}

const HONEST: Rates = Rates {
    failing_write: 0.01,
    failing_flush: 0.01,
    rot: 0.0,
    lost_write: 0.0,
    torn_write: 0.0,
    misdirected_write: 0.0,
};
const LYING: Rates = Rates {
    failing_write: 0.003,
    failing_flush: 0.003,
    rot: 0.05,
    lost_write: 0.01,
    torn_write: 0.01,
    misdirected_write: 0.01,
};

/// What has gone wrong, and the dice.
struct Dice {
    random: ChaCha8Rng,
    rates: Rates,
    faults: u64,
}

impl Dice {
    fn falls(&mut self, rate: f64) -> bool {
        let falls = self.random.random_bool(rate);
        self.faults += u64::from(falls);
        falls
    }

    fn sector(&mut self, sectors: usize) -> usize {
        self.random.random_range(0..sectors)
    }
}

struct SickDevice {
    memory: MemoryDevice,
    /// What a power cut leaves for sure.
    durable: Mutex<Vec<u8>>,
    dice: Mutex<Dice>,
    at_once: bool,
}

fn failure() -> io::Error {
    io::Error::other("on purpose")
}

impl SickDevice {
    fn new(image: &[u8], rates: Rates, mut random: ChaCha8Rng) -> Self {
        Self {
            memory: MemoryDevice::from_image(image, SECTOR_BYTES as u32),
            durable: Mutex::new(image.to_vec()),
            at_once: random.random(),
            dice: Mutex::new(Dice { random, rates, faults: 0 }),
        }
    }

    /// What is on the medium after a power cut: of what no flush covers each sector or not.
    fn after_power_cut(&self) -> Vec<u8> {
        let random = &mut self.dice.lock().unwrap().random;
        let (mut image, durable) = (self.memory.image(), self.durable.lock().unwrap());
        for (now, before) in image.chunks_mut(SECTOR_BYTES).zip(durable.chunks(SECTOR_BYTES)) {
            if now != before && random.random() {
                now.copy_from_slice(before);
            }
        }
        image
    }
}

impl BlockDevice for SickDevice {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn block_size(&self) -> u32 {
        self.memory.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)?;
        let mut dice = self.dice.lock().unwrap();
        let rate = dice.rates.rot;
        if !buffer.is_empty() && dice.falls(rate) {
            let place = dice.random.random_range(0..buffer.len());
            buffer[place] ^= 1 << dice.random.random_range(0..8);
            let start = place / SECTOR_BYTES * SECTOR_BYTES;
            let sector = buffer[start..start + SECTOR_BYTES].to_vec();
            self.memory.write_at(&sector, offset + start as u64)?;
            let at = offset as usize + start;
            self.durable.lock().unwrap()[at..at + SECTOR_BYTES].copy_from_slice(&sector);
        }
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut dice = self.dice.lock().unwrap();
        let (rates, sectors) = (dice.rates, buffer.len() / SECTOR_BYTES);
        if sectors == 0 || dice.falls(rates.lost_write) {
            return Ok(());
        }
        if dice.falls(rates.failing_write) || dice.falls(rates.torn_write) {
            let arrived = dice.sector(sectors) * SECTOR_BYTES;
            self.memory.write_at(&buffer[..arrived], offset)?;
            return if dice.random.random_bool(rates.told()) { Err(failure()) } else { Ok(()) };
        }
        if dice.falls(rates.misdirected_write) {
            let last = (DEVICE_BYTES - buffer.len()) / SECTOR_BYTES;
            let elsewhere = dice.sector(last + 1) * SECTOR_BYTES;
            return self.memory.write_at(buffer, elsewhere as u64);
        }
        self.memory.write_at(buffer, offset)
    }
    fn writes_at_once(&self) -> bool {
        self.at_once
    }
    fn flush(&self) -> io::Result<()> {
        let mut dice = self.dice.lock().unwrap();
        let rate = dice.rates.failing_flush;
        if dice.falls(rate) {
            return Err(failure());
        }
        drop(dice);
        *self.durable.lock().unwrap() = self.memory.image();
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Rates {
    /// Of the writes that arrive in part, the share that fails.
    fn told(&self) -> f64 {
        self.failing_write / (self.failing_write + self.torn_write)
    }

    fn is_lying(&self) -> bool {
        self.torn_write > 0.0
    }
}

type Content = BTreeMap<u128, Vec<u8>>;

/// What a store may hold.
struct Model {
    /// What is read now; `None` under a key of which only its history is known.
    now: BTreeMap<u128, Option<Vec<u8>>>,
    /// The contents that the next opening may find; the last is what is there now.
    states: Vec<Content>,
    /// All that was ever put under a key.
    history: BTreeSet<(u128, Vec<u8>)>,
}

impl Model {
    fn judge(&self, key: u128, found: lump::Result<Option<Vec<u8>>>) -> Result<bool, String> {
        let found = match found {
            Ok(found) => found,
            Err(Error::Corrupt { .. }) => return Ok(false),
            Err(error) => return Err(format!("key {key}: {error}")),
        };
        let is_right = match (self.now.get(&key), &found) {
            (Some(Some(value)), Some(found)) => value == found,
            (Some(None), Some(found)) => self.history.contains(&(key, found.clone())),
            (expected, found) => expected.is_none() && found.is_none(),
        };
        if is_right { Ok(true) } else { Err(format!("key {key} gave a wrong value")) }
    }

    fn changed(&mut self, content: Content, durability: Durability, keys: &[u128]) {
        for key in keys {
            match content.get(key) {
                Some(value) => self.now.insert(*key, Some(value.clone())),
                None => self.now.remove(key),
            };
        }
        if durability == Durability::Durable {
            self.states.clear();
        }
        self.states.push(content);
    }
}

/// What happened, so that a test can say that something did.
#[derive(Debug, Default)]
struct Tally {
    faults: u64,
    corrupt: u64,
    unopened: u64,
    refusals: u64,
    right: u64,
}

fn bytes(random: &mut ChaCha8Rng) -> Vec<u8> {
    let length = match random.random_range(0..10) {
        0 => 0,
        1 => random.random_range(64_000..140_000),
        _ => random.random_range(1..12_000),
    };
    let word = random.next_u64();
    let words = (0..(length as u64).div_ceil(8)).flat_map(|place| (word ^ place).to_le_bytes());
    words.take(length).collect()
}

/// Makes changes until the store refuses them, and reads.
fn live(
    store: &Store,
    model: &mut Model,
    random: &mut ChaCha8Rng,
    tally: &mut Tally,
) -> Result<(), String> {
    // All changes of this opening, so that what power loss leaves of them is a first part.
    let buffers = random.random_bool(0.4);
    for _ in 0..OPERATIONS {
        if store.usage().gathered_bytes > BUFFERED_BYTES_MAX {
            if store.sync().is_err() {
                tally.refusals += 1;
                return Ok(());
            }
            model.states.drain(..model.states.len() - 1);
        }
        // Never in the background, which would come when it likes.
        if store.usage().journal_blocks > JOURNAL_BLOCKS / 3 && store.checkpoint().is_err() {
            tally.refusals += 1;
            return Ok(());
        }
        let key = random.random_range(0..KEYS);
        let durability = match random.random() {
            _ if buffers => Durability::Buffered,
            true => Durability::Durable,
            false => Durability::Written,
        };
        let mut content = model.states.last().expect("there is one").clone();
        let (mut keys, mut is_vain) = (vec![key], false);
        let outcome = match random.random_range(0..10) {
            0..5 => {
                let value = bytes(random);
                model.history.insert((key, value.clone()));
                content.insert(key, value.clone());
                store.put(key, &value, durability)
            }
            5 => {
                content.remove(&key);
                store.delete(key, durability).map(drop)
            }
            6 if random.random_range(0..4) == 0 => {
                keys = (key..=key + 1).collect();
                content.retain(|key, _| !keys.contains(key));
                store.delete_range(key..=key + 1, durability).map(drop)
            }
            _ => {
                is_vain = true;
                let found = store.get(key).map(|value| value.map(|value| value.to_vec()));
                let is_right = model.judge(key, found)?;
                *(if is_right { &mut tally.right } else { &mut tally.corrupt }) += 1;
                if let (true, Some(Some(value))) = (is_right, model.now.get(&key)) {
                    let start = random.random_range(0..=value.len());
                    let part = store.get_range(key, start as u64..value.len() as u64);
                    if let Ok(Some(part)) = part
                        && part != value[start..]
                    {
                        return Err(format!("key {key} gave a wrong part"));
                    }
                }
                Ok(())
            }
        };
        match outcome {
            Ok(()) if is_vain => {}
            Ok(()) => model.changed(content, durability, &keys),
            // It did not take place.
            Err(Error::Device { .. } | Error::NoSpace { .. }) => {}
            Err(Error::ReadOnly(_)) => {
                // Only the next opening tells whether it did.
                model.states.push(content);
                tally.refusals += 1;
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Reads everything after an opening, and takes what is there for what is there now.
fn look(store: &Store, model: &mut Model, rates: Rates, tally: &mut Tally) -> Result<(), String> {
    let keys: Vec<u128> =
        store.list(..).map_err(|error| error.to_string())?.map(|object| object.key).collect();
    let mut found = Content::new();
    model.now.clear();
    for key in keys {
        model.now.insert(key, None);
        let value = store.get(key).map(|value| value.map(|value| value.to_vec()));
        if let Ok(Some(value)) = &value {
            found.insert(key, value.clone());
        }
        if model.judge(key, value)? {
            tally.right += 1;
            model.now.insert(key, found.get(&key).cloned());
        } else {
            tally.corrupt += 1;
        }
    }
    if !rates.is_lying() && !model.states.contains(&found) {
        return Err("what was acknowledged is not there".into());
    }
    model.states = vec![found];
    Ok(())
}

fn simulate(seed: u64, rates: Rates, sabotage: Sabotage, tally: &mut Tally) -> Result<(), String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let base = MemoryDevice::new(DEVICE_BYTES as u64, SECTOR_BYTES as u32);
    let options = CreateOptions {
        objects_max: Some(100),
        journal_bytes: Some(JOURNAL_BLOCKS * 4096),
        ..Default::default()
    };
    Store::create(&base, &options).map_err(|error| error.to_string())?;
    let mut image = base.image();
    let mut model =
        Model { now: BTreeMap::new(), states: vec![Content::new()], history: BTreeSet::new() };
    for _ in 0..OPENINGS {
        let device = Arc::new(SickDevice::new(&image, rates, random.clone()));
        random.next_u64();
        let own_flushes = Some(random.random());
        let buffer_age_max = Some(Duration::from_secs(3600));
        let options = OpenOptions { sabotage, own_flushes, buffer_age_max, ..Default::default() };
        let store = Store::open(device.clone(), &options);
        let Ok(store) = store else {
            tally.faults += device.dice.lock().unwrap().faults;
            tally.unopened += 1;
            if rates.is_lying() {
                return Ok(());
            }
            // An opening writes, and a failure is told; the next one may do.
            image = device.after_power_cut();
            continue;
        };
        look(&store, &mut model, rates, tally)?;
        live(&store, &mut model, &mut random, tally)?;
        image = device.after_power_cut();
        if random.random() {
            let is_closed = store.close().is_ok();
            image = device.after_power_cut();
            if is_closed {
                model.states.drain(..model.states.len() - 1);
            }
        }
        tally.faults += device.dice.lock().unwrap().faults;
    }
    Ok(())
}

fn run(rates: Rates, sabotage: Sabotage) -> Result<Tally, String> {
    let environment = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = environment("LUMP_SIMULATION_SEED").unwrap_or(1);
    let wanted: u64 = environment("LUMP_SIMULATION_SEEDS").unwrap_or(60);
    let mut tally = Tally::default();
    for seed in first..first + wanted {
        simulate(seed, rates, sabotage, &mut tally).map_err(|why| format!("seed {seed}: {why}"))?;
    }
    println!("{wanted} seeds from {first}: {tally:?}");
    Ok(tally)
}

#[test]
fn an_honest_medium_loses_nothing_that_was_acknowledged() {
    let tally = run(HONEST, Sabotage::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(tally.faults > 0 && tally.refusals > 0 && tally.right > 0, "{tally:?}");
    assert_eq!(tally.corrupt, 0, "{tally:?}");
}

#[test]
fn a_lying_medium_is_never_believed() {
    let tally = run(LYING, Sabotage::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(tally.faults > 0 && tally.corrupt > 0 && tally.right > 0, "{tally:?}");
}

#[test]
fn who_believes_a_lying_medium_is_caught() {
    let why = run(LYING, Sabotage::TrustData).expect_err("wrong data were given out");
    println!("{why}");
}
