//! Threads that work on one volume, and what each of them was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use minfs_model::{Error, File, Result, Volume};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::disk::{Disk, Host};
use crate::model::{Bytes, Event, FileModel, NEVER};

/// A file that every thread writes, each its own stripes; and one that every thread appends to.
pub const SHARED: &[u8] = b"shared";
pub const LOG: &[u8] = b"log";
const STRIPE: u64 = 700;
pub const THREADS_MAX: u64 = 4;

/// What all threads know.
pub struct World {
    pub disk: Arc<Disk>,
    pub host: Arc<Host>,
    pub volume: Volume,
    pub record: Mutex<Record>,
}

/// What was asked and answered.
#[derive(Clone, Default)]
pub struct Record {
    pub now: u64,
    pub files: Vec<FileModel>,
    /// Numbers of the two files that threads share, once they are there.
    pub shared: Option<usize>,
    pub log: Option<usize>,
    fills: u64,
    /// Of everything that happened, to compare two runs of one seed.
    pub trace: u64,
    pub operations: u64,
}

impl Record {
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub fn new_file(&mut self, is_shared: bool) -> usize {
        self.files.push(FileModel::new(is_shared));
        self.files.len() - 1
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
        self.operations += 1;
    }
}

pub type Names = BTreeMap<Vec<u8>, usize>;

/// What one thread owns and knows; it lives on over the cuts.
#[derive(Clone, Default)]
pub struct Owner {
    pub number: u64,
    pub names: Names,
    /// The names as they are if the operation that got no answer was done.
    pub otherwise: Option<Names>,
    /// What the files hold now; absent where an operation failed half-way.
    current: BTreeMap<usize, Option<Vec<u8>>>,
    /// Names of files that another one replaced: they may be back where a record is lost.
    pub replaced: BTreeSet<Vec<u8>>,
    /// The volume refused to go on.
    is_refused: bool,
}

impl Owner {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// A mount shows these files.
    pub fn show(&mut self, names: Names, contents: BTreeMap<usize, Vec<u8>>) {
        self.names = names;
        self.otherwise = None;
        self.is_refused = false;
        self.current = contents.into_iter().map(|(file, bytes)| (file, Some(bytes))).collect();
    }
}

/// Whether an error says that nothing was done.
fn is_refusal(error: &Error) -> bool {
    !matches!(error, Error::Device { .. } | Error::ReadOnly(_))
}

pub struct Worker {
    pub world: Arc<World>,
    pub owner: Owner,
    pub threads: u64,
    random: ChaCha8Rng,
    held: Vec<File>,
}

impl Worker {
    pub fn new(world: Arc<World>, owner: Owner, threads: u64, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { world, owner, threads, random, held: Vec::new() }
    }

    /// Carries out so many operations, unless the power fails.
    pub fn run(mut self, operations: u32) -> Owner {
        for _ in 0..operations {
            if self.world.disk.is_cut() {
                break;
            }
            self.step();
        }
        self.held.clear();
        self.owner
    }

    fn with<T>(&self, work: impl FnOnce(&mut Record) -> T) -> T {
        work(&mut self.world.record.lock().expect("no thread panics while it holds the record"))
    }

    fn volume(&self) -> &Volume {
        &self.world.volume
    }

    fn is_cut(&self) -> bool {
        self.world.disk.is_cut()
    }

    /// Judges an answer: a volume that has refused once goes on refusing.
    fn judge<T>(&mut self, what: &str, changes: bool, outcome: &Result<T>) {
        let code = match outcome {
            Ok(_) => 0,
            Err(error) => error.errno() as u64,
        };
        let hash = what.bytes().fold(self.owner.number, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        self.with(|record| record.note(hash ^ code << 32));
        if self.is_cut() {
            return;
        }
        if self.owner.is_refused && changes && outcome.is_ok() {
            panic!("{what} was done by a volume that had stopped writing");
        }
        if outcome.is_err() && self.volume().read_only_reason().is_some() {
            self.owner.is_refused = true;
            self.world.host.stop();
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let letter = self.random.random_range(0..3_u8);
        vec![b'0' + self.owner.number as u8, b'a' + letter]
    }

    /// Bytes that nobody else writes; an append has one value, so that it is known wherever it is.
    fn bytes(&mut self, length: u64, is_uniform: bool) -> Vec<u8> {
        let fill = self.with(|record| {
            record.fills += 1;
            record.fills
        });
        if is_uniform {
            return vec![1 + (fill % 200) as u8; length as usize];
        }
        let mut random = ChaCha8Rng::seed_from_u64(fill);
        (0..length).map(|_| random.random_range(1..0xd0)).collect()
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..10 => self.create(),
            10..16 => self.unlink(),
            16..24 => self.rename(),
            24..42 => self.write(),
            42..47 => self.truncate(),
            47..54 => self.preallocate(),
            54..57 => self.zero_range(),
            57..73 => self.sync(),
            73..76 => self.read(),
            76..79 => self.hold(),
            79..82 => self.attributes(),
            82..89 => self.write_shared(),
            89..94 => self.append(),
            94..99 => self.sync_shared(),
            _ => self.sync_all(),
        }
    }

    /// Does something about names, after which they are `after`.
    fn change_names(
        &mut self,
        what: &str,
        after: Names,
        call: impl FnOnce(&Volume) -> Result<()>,
    ) -> bool {
        if self.is_cut() || self.owner.otherwise.is_some() {
            return false;
        }
        self.owner.otherwise = Some(after.clone());
        let outcome = call(&self.world.volume);
        self.judge(what, true, &outcome);
        if self.is_cut() {
            return false;
        }
        match outcome {
            Ok(()) => {
                self.owner.names = after;
                self.owner.otherwise = None;
                return true;
            }
            Err(error) if is_refusal(&error) => self.owner.otherwise = None,
            Err(_) => {}
        }
        false
    }

    fn create(&mut self) {
        let name = self.name();
        if self.owner.names.contains_key(&name) {
            let outcome = self.volume().create(&name, 0o600).map(drop);
            self.judge("create anew", true, &outcome);
            return;
        }
        let file = self.with(|record| record.new_file(false));
        let mut after = self.owner.names.clone();
        after.insert(name.clone(), file);
        self.owner.current.insert(file, Some(Vec::new()));
        self.change_names("create", after, |volume| volume.create(&name, 0o600).map(drop));
    }

    fn unlink(&mut self) {
        let name = self.name();
        let mut after = self.owner.names.clone();
        if after.remove(&name).is_some() {
            self.change_names("unlink", after, |volume| volume.unlink(&name));
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.name(), self.name());
        let mut after = self.owner.names.clone();
        let Some(file) = after.remove(&from).filter(|_| from != to) else { return };
        if after.insert(to.clone(), file).is_some() {
            self.owner.replaced.insert(to.clone());
        }
        let begun = self.with(Record::tick);
        if self.change_names("rename", after, |volume| volume.rename(&from, &to, true)) {
            self.settle(file, begun);
        }
    }

    fn settle(&mut self, file: usize, begun: u64) {
        if !self.is_cut() {
            self.with(|record| {
                let now = record.tick();
                record.files[file].settle(begun, now);
            });
        }
    }

    /// A file of this thread of which it knows what it holds.
    fn own(&mut self) -> Option<(File, usize, Vec<u8>)> {
        let count = self.owner.names.len().max(1);
        let chosen = self.random.random_range(0..count);
        let (name, number) = self.owner.names.iter().nth(chosen).map(|(n, f)| (n.clone(), *f))?;
        let current = self.owner.current.get(&number)?.clone()?;
        if self.owner.otherwise.is_some() {
            return None;
        }
        Some((self.volume().open(&name).expect("it is there"), number, current))
    }

    /// Changes a file that only this thread changes, after which it holds `after`.
    fn change(
        &mut self,
        what: &str,
        file: usize,
        bytes: Bytes,
        after: Vec<u8>,
        is_durable: bool,
        call: impl FnOnce() -> Result<()>,
    ) {
        let Some(begun) = self.begin(file, bytes, after.len() as u64, false) else { return };
        let outcome = call();
        self.judge(what, true, &outcome);
        let is_ok = outcome.is_ok();
        self.end(file, begun, is_durable, outcome);
        if is_ok {
            self.owner.current.insert(file, Some(after));
        } else if self.with(|record| record.files[file].events.iter().any(|e| e.begun == begun)) {
            self.owner.current.insert(file, None);
        }
    }

    fn begin(&mut self, file: usize, bytes: Bytes, size: u64, is_anywhere: bool) -> Option<u64> {
        if self.is_cut() {
            return None;
        }
        Some(self.with(|record| {
            let begun = record.tick();
            let (ended, durable) = (NEVER, NEVER);
            let event = Event { begun, ended, durable, bytes, size, is_anywhere };
            record.files[file].events.push(event);
            begun
        }))
    }

    fn end(&mut self, file: usize, begun: u64, is_durable: bool, outcome: Result<()>) {
        if self.is_cut() {
            return;
        }
        self.with(|record| {
            let now = record.tick();
            let events = &mut record.files[file].events;
            let at = events.iter().position(|event| event.begun == begun).expect("it has begun");
            match outcome {
                Ok(()) => {
                    events[at].ended = now;
                    if is_durable {
                        events[at].durable = now;
                    }
                }
                Err(error) if is_refusal(&error) => drop(events.remove(at)),
                Err(_) => {}
            }
        });
    }

    fn write(&mut self) {
        let Some((handle, file, mut content)) = self.own() else { return };
        let size = content.len() as u64;
        let random = &mut self.random;
        let (offset, length) = match random.random_range(0..5) {
            0 | 1 => (size, random.random_range(1..6000)),
            2 => (random.random_range(0..size + 3000), random.random_range(1..6000)),
            3 => (random.random_range(0..=size / 4096) * 4096, 4096 * random.random_range(1..3)),
            // Far behind, over what may be preallocated.
            _ => (size + random.random_range(0..16_000), random.random_range(1..2000)),
        };
        let bytes = self.bytes(length, false);
        let end = (offset + length) as usize;
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(&bytes);
        let data = Bytes::Data { at: offset, bytes: bytes.clone() };
        self.change("write", file, data, content, false, || handle.write(&bytes, offset));
    }

    fn truncate(&mut self) {
        let Some((handle, file, mut content)) = self.own() else { return };
        let size = self.random.random_range(0..24_000);
        if size == content.len() {
            return;
        }
        content.resize(size, 0);
        let zeros = Bytes::Zeros { from: size as u64, to: NEVER };
        self.change("truncate", file, zeros, content, true, || handle.truncate(size as u64));
    }

    fn preallocate(&mut self) {
        let Some((handle, file, mut content)) = self.own() else { return };
        let random = &mut self.random;
        let (offset, length) = (random.random_range(0..12_000), random.random_range(1..20_000));
        let (keep, zero): (bool, bool) = (random.random(), random.random());
        let call = || handle.preallocate(offset, length, keep, zero);
        if keep || content.len() as u64 >= offset + length {
            // It changes nothing that shows, and promises nothing of what was written before.
            let outcome = call();
            self.judge("preallocate", true, &outcome);
            return;
        }
        content.resize((offset + length) as usize, 0);
        self.change("preallocate and grow", file, Bytes::None, content, true, call);
    }

    fn zero_range(&mut self) {
        let Some((handle, file, mut content)) = self.own() else { return };
        let random = &mut self.random;
        let (offset, length) = (random.random_range(0..9000), random.random_range(1..9000));
        let end = (offset + length) as usize;
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].fill(0);
        let zeros = Bytes::Zeros { from: offset, to: end as u64 };
        self.change("zero range", file, zeros, content, false, || {
            handle.zero_range(offset, length, false)
        });
    }

    fn sync(&mut self) {
        let Some((handle, file, _)) = self.own() else { return };
        self.sync_file("sync", &handle, file);
    }

    fn sync_file(&mut self, what: &str, handle: &File, file: usize) {
        let begun = self.with(Record::tick);
        let outcome = if self.random.random() { handle.sync() } else { handle.sync_data() };
        self.judge(what, true, &outcome);
        if outcome.is_ok() {
            self.settle(file, begun);
        }
    }

    fn sync_all(&mut self) {
        let begun = self.with(Record::tick);
        let outcome = self.volume().sync();
        self.judge("sync all", true, &outcome);
        if outcome.is_ok() && !self.is_cut() {
            self.with(|record| {
                let now = record.tick();
                record.files.iter_mut().for_each(|file| file.settle(begun, now));
            });
        }
    }

    fn read(&mut self) {
        let Some((handle, _, content)) = self.own() else { return };
        let mut found = vec![0xaa; content.len() + 10];
        let outcome = handle.read(&mut found, 0);
        self.judge("read", false, &outcome);
        if let Ok(length) = outcome {
            assert!(found[..length] == content[..], "a read differs from what was written");
        }
    }

    /// Files without a name keep their space while they are open.
    fn hold(&mut self) {
        if self.held.len() > 1 {
            let file = self.held.swap_remove(0);
            if file.facts().is_unlinked {
                let bytes = self.bytes(3000, false);
                let offset = self.random.random_range(0..9000);
                let outcome = file.write(&bytes, offset);
                self.judge("write to a file without name", true, &outcome);
            }
        } else if let Some((handle, ..)) = self.own() {
            self.held.push(handle);
        }
    }

    fn attributes(&mut self) {
        let Some((handle, ..)) = self.own() else { return };
        let is_mode: bool = self.random.random();
        let outcome = handle.set_attributes(|attributes| {
            if is_mode { attributes.mode ^= 0o40 } else { attributes.modified_ns += 1 }
        });
        self.judge("attributes", true, &outcome);
    }

    fn shared(&mut self, name: &[u8]) -> Option<(File, usize)> {
        let number = self.with(|record| if name == LOG { record.log } else { record.shared })?;
        Some((self.volume().open(name).ok()?, number))
    }

    fn write_shared(&mut self) {
        let Some((handle, file)) = self.shared(SHARED) else { return };
        let stripe = self.random.random_range(0..8) * self.threads + self.owner.number;
        let within = self.random.random_range(0..STRIPE / 2);
        let length = self.random.random_range(1..=STRIPE - within);
        let (offset, bytes) = (stripe * STRIPE + within, self.bytes(length, false));
        let data = Bytes::Data { at: offset, bytes: bytes.clone() };
        let Some(begun) = self.begin(file, data, offset + length, false) else { return };
        let outcome = handle.write(&bytes, offset);
        self.judge("write shared", true, &outcome);
        self.end(file, begun, false, outcome);
    }

    fn append(&mut self) {
        let Some((handle, file)) = self.shared(LOG) else { return };
        let length = self.random.random_range(1..3000);
        let bytes = self.bytes(length, true);
        let data = Bytes::Data { at: 0, bytes: bytes.clone() };
        let Some(begun) = self.begin(file, data, length, true) else { return };
        let outcome = handle.append(&bytes);
        self.judge("append", true, &outcome);
        if let Ok(offset) = outcome
            && !self.is_cut()
        {
            self.with(|record| {
                let events = &mut record.files[file].events;
                let event = events.iter_mut().find(|event| event.begun == begun);
                let event = event.expect("it has begun");
                event.bytes = Bytes::Data { at: offset, bytes };
                event.size = offset + length;
                event.is_anywhere = false;
            });
        }
        self.end(file, begun, false, outcome.map(drop));
    }

    fn sync_shared(&mut self) {
        let name = if self.random.random() { SHARED } else { LOG };
        let Some((handle, file)) = self.shared(name) else { return };
        self.sync_file("sync shared", &handle, file);
    }
}
