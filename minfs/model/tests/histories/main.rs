//! The model test: random histories of several threads on a volume, on a disk that fails at any moment,
//! with one to three power cuts, and everything that may be visible after each.
//!
//! One seed is one history: it decides the operations, the faults, the cuts, what is lost, and, through
//! the scheduler, which thread goes on at each lock and each request of the disk. After each cut each
//! kind of loss is tried. Every file must be one that [`model`] admits, fsck must find nothing that needs
//! repair, and filling all free space must change no file. One of the disks that are left is mounted
//! again: from then on what it shows is durable, and the history goes on. A process may also be killed and
//! the volume mounted again without a cut; what that mount shows is durable as well.
//!
//! `MINFS_HISTORIES` sets how many histories, `MINFS_HISTORY_SEED` the first seed.

mod disk;
mod model;
mod play;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use block::MemoryDevice;
use minfs_model::{MkfsOptions, MountOptions, Sabotage, Severity, Volume, fsck, mkfs};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use disk::{Disk, Fault, Host, Kind, LOSSES, Plan};
use model::NEVER;
use play::{LOG, Names, Owner, Record, SHARED, THREADS_MAX, Worker, World};

const DEVICE_BYTES: usize = 200 << 10;
const FILES: u32 = 8;
/// What was on the disk before the volume was made.
const STALE: u8 = 0xee;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a history did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    operations: u64,
    cuts: u64,
    /// Mounts of a disk after the process before was killed or has unmounted, without a cut.
    kills: u64,
    states: u64,
    /// Mounts of a disk with a metadata bit that rots or a sector that cannot be read.
    rotten: u64,
    /// Rounds in which the volume stopped writing.
    failed: u64,
    trace: u64,
}

/// A volume with the two files that all threads use.
fn new_image(block_size: u32) -> Vec<u8> {
    let stale = vec![STALE; DEVICE_BYTES];
    let device = Arc::new(MemoryDevice::from_image(&stale, block_size));
    let options = MkfsOptions {
        files: Some(FILES),
        uuid: Some(uuid::Uuid::from_u128(7)),
        created_ns: Some(1),
        ..Default::default()
    };
    mkfs(&*device, &options).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    volume.create(SHARED, 0o600).unwrap();
    volume.create(LOG, 0o600).unwrap();
    volume.unmount().unwrap();
    device.image()
}

/// All files that can be read.
fn contents(volume: &Volume) -> Contents {
    let read = |name: &Vec<u8>| {
        let file = volume.open(name).ok()?;
        let mut content = vec![0; file.size() as usize];
        let length = file.read(&mut content, 0).ok()?;
        assert_eq!(length, content.len());
        Some(content)
    };
    let names = volume.list().into_iter().map(|facts| facts.name);
    names.filter_map(|name| Some((name.clone(), read(&name)?))).collect()
}

struct History {
    random: ChaCha8Rng,
    block_size: u32,
    owners: Vec<Owner>,
    record: Record,
    facts: Facts,
}

impl History {
    /// Which of the names that an owner may have are there, with what they hold.
    fn names_of(&self, owner: &Owner, found: &Contents) -> Result<Names, String> {
        let prefix = b'0' + owner.number as u8;
        let mine: BTreeMap<_, _> = found.iter().filter(|(name, _)| name[0] == prefix).collect();
        let mut reasons = Vec::new();
        for names in std::iter::once(&owner.names).chain(&owner.otherwise) {
            if !names.keys().eq(mine.keys().copied()) {
                let shown = |names: Vec<&Vec<u8>>| -> Vec<String> {
                    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
                };
                let (found, wanted) = (mine.keys().copied().collect(), names.keys().collect());
                reasons.push(format!("names {:?}, expected {:?}", shown(found), shown(wanted)));
                continue;
            }
            let wrong = names.iter().find_map(|(name, file)| {
                let why = self.record.files[*file].admits(mine[name]).err()?;
                Some(format!("{}: {why}", String::from_utf8_lossy(name)))
            });
            match wrong {
                None => return Ok(names.clone()),
                Some(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; or "))
    }

    /// Judges what a mount shows; returns the names of each owner.
    fn judge(&self, found: &Contents) -> Result<Vec<Names>, String> {
        for (name, file) in [(SHARED, self.record.shared), (LOG, self.record.log)] {
            let content = found.get(name).ok_or("a shared file is missing")?;
            let file = &self.record.files[file.expect("it was made first")];
            let shown = String::from_utf8_lossy(name);
            file.admits(content).map_err(|why| format!("{shown}: {why}"))?;
        }
        let names: Result<Vec<_>, _> =
            self.owners.iter().map(|owner| self.names_of(owner, found)).collect();
        let names = names?;
        let known = names.iter().map(|names| names.len()).sum::<usize>() + 2;
        if known == found.len() { Ok(names) } else { Err("a file that nobody made".into()) }
    }

    /// Judges a disk that a cut left; returns what a mount of it shows.
    fn check(&mut self, image: &[u8], fills: bool) -> Result<(Contents, Vec<Names>), String> {
        self.facts.states += 1;
        let device = Arc::new(MemoryDevice::from_image(image, self.block_size));
        let report = fsck(&*device, false).map_err(|error| format!("fsck: {error}"))?;
        if !report.is_clean() {
            return Err(format!("fsck: {:?}", report.findings));
        }
        let volume = Volume::mount(device, &MountOptions::default())
            .map_err(|error| format!("mount: {error}"))?;
        if let Some(reason) = volume.read_only_reason() {
            return Err(format!("mounted read-only: {reason}"));
        }
        let found = contents(&volume);
        let names = self.judge(&found)?;
        if fills && let Ok(file) = volume.create(b"filler", 0o600) {
            let free = vec![0xfb; volume.space().free_bytes as usize];
            file.write(&free, 0).and_then(|()| file.sync()).map_err(|error| error.to_string())?;
            let mut after = contents(&volume);
            after.remove(b"filler".as_slice());
            if after != found {
                return Err("filling the free space changed a file".into());
            }
        }
        Ok((found, names))
    }

    /// A byte of metadata that is not zero, and a bit of it.
    fn rot(&mut self, image: &[u8]) -> (u64, u8) {
        let metadata = 4096 * (1 + 2 * FILES as usize);
        loop {
            let at = self.random.random_range(0..metadata);
            if image[at] != 0 {
                return (at as u64, 1 << self.random.random_range(0..8));
            }
        }
    }

    /// Mounts a disk of which a bit has changed or a sector cannot be read. Either everything is there,
    /// or the mount says that something may be lost, and what it lets read is still right. A record that
    /// is lost may have been the only one to say that its file replaced another.
    fn check_rotten(&mut self, image: &[u8]) -> Result<(), String> {
        self.facts.rotten += 1;
        let (at, bit) = self.rot(image);
        let mut plan = Plan { cut_after: NEVER, cut_at_flush: NEVER, ..Plan::default() };
        if self.random.random() {
            plan.rotten = Some((at, bit))
        } else {
            plan.unreadable = Some(at)
        }
        let what = format!("{plan:?}");
        let device = Arc::new(Disk::new(image.to_vec(), self.block_size, plan));
        let options = MountOptions { read_only: true, ..Default::default() };
        let volume = Volume::mount(device, &options).map_err(|error| format!("{what}: {error}"))?;
        let found = contents(&volume);
        let worst = volume.findings().iter().map(|finding| finding.severity).max();
        if worst != Some(Severity::Error) {
            let told: Vec<_> = volume.findings().iter().map(|finding| &finding.text).collect();
            let words = |why| format!("{what}: {why}; the mount said {told:?}");
            return self.judge(&found).map(drop).map_err(words);
        }
        for owner in &self.owners {
            let maps = || std::iter::once(&owner.names).chain(&owner.otherwise);
            let prefix = b'0' + owner.number as u8;
            for (name, content) in found.iter().filter(|(name, _)| name[0] == prefix) {
                if owner.replaced.contains(name) || name.len() > 2 {
                    continue;
                }
                let files = maps().filter_map(|names| names.get(name));
                let mut outcomes = files.map(|file| self.record.files[*file].admits(content));
                if !outcomes.any(|outcome| outcome.is_ok()) {
                    let shown = String::from_utf8_lossy(name);
                    return Err(format!("{what}: {shown} shows what it never was"));
                }
            }
        }
        Ok(())
    }

    fn plan(&mut self, image: &[u8]) -> Plan {
        let seed = self.random.random();
        let (mut cut_after, mut cut_at_flush) = (NEVER, NEVER);
        match self.random.random_range(0..8) {
            0..3 => cut_after = self.random.random_range(0..120),
            3..7 => cut_at_flush = self.random.random_range(0..40),
            _ => {}
        }
        let mut faults = Vec::new();
        for kind in [Kind::Flush, Kind::Write, Kind::Read] {
            if self.random.random_ratio(1, 6) {
                let from = self.random.random_range(0..60);
                let length = match self.random.random_range(0..3) {
                    0 => 1,
                    1 => self.random.random_range(2..8),
                    _ => NEVER - from,
                };
                faults.push(Fault { kind, from, until: from + length });
            }
        }
        let rotten = self.random.random_ratio(1, 8).then(|| self.rot(image));
        Plan { cut_after, cut_at_flush, faults, rotten, unreadable: None, seed }
    }

    /// Mounts the disk, lets the threads work, and ends the process. Whether another one may mount it.
    fn play(&mut self, disk: &Arc<Disk>, options: &MountOptions) -> Result<bool, String> {
        let host = Arc::new(Host::new(disk.clone()));
        let Ok(volume) = Volume::mount(host.clone(), options) else {
            // Judged by what is left: a fault or the cut came during the mount.
            return Ok(false);
        };
        if volume.read_only_reason().is_some() {
            return Ok(false);
        }
        let found = contents(&volume);
        if found.len() < volume.list().len() {
            // A read has failed.
            return Ok(false);
        }
        let names = self.judge(&found)?;
        self.show(&found, names);
        let threads = self.owners.len() as u64;
        let record = Mutex::new(std::mem::take(&mut self.record));
        let world = Arc::new(World { disk: disk.clone(), host: host.clone(), volume, record });
        let owners = std::mem::take(&mut self.owners);
        let workers: Vec<_> = owners
            .into_iter()
            .map(|owner| {
                let (seed, operations) = (self.random.random(), self.random.random_range(5..40));
                let worker = Worker::new(world.clone(), owner, threads, seed);
                shuttle::thread::spawn(move || worker.run(operations))
            })
            .collect();
        self.owners = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        let world = Arc::into_inner(world).expect("all threads have ended");
        self.record = world.record.into_inner().unwrap();
        let has_failed = world.volume.read_only_reason().is_some();
        self.facts.failed += u64::from(has_failed);
        if self.random.random() {
            if world.volume.unmount().is_err() {
                return Ok(false);
            }
            if !disk.is_cut() {
                let now = self.record.tick();
                self.record.files.iter_mut().for_each(|file| file.settle(now, now));
            }
        } else {
            host.kill();
            drop(world.volume);
        }
        // What a failed flush leaves in doubt a mount may show, and then lose: nothing is promised of it.
        Ok(!has_failed && !disk.is_cut())
    }

    fn run(seed: u64, sabotage: Sabotage) -> Result<Facts, String> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let block_size = if random.random() { 512 } else { 4096 };
        let mut image = new_image(block_size);
        let owners = (0..random.random_range(1..=THREADS_MAX)).map(Owner::new).collect();
        let mut record = Record::default();
        record.shared = Some(record.new_file(true));
        record.log = Some(record.new_file(true));
        let rounds = random.random_range(1..=3);
        let options = MountOptions { discard: random.random(), sabotage, ..Default::default() };
        let facts = Facts::default();
        let mut history = Self { random, block_size, owners, record, facts };
        for round in 0..rounds {
            let plan = history.plan(&image);
            let disk = Arc::new(Disk::new(image, block_size, plan.clone()));
            let told = |why| format!("round {round}, {plan:?}: {why}");
            let goes_on = history.play(&disk, &options).map_err(told)?;
            if goes_on && history.random.random_ratio(1, 3) {
                history.facts.kills += 1;
                history.play(&disk, &options).map_err(told)?;
            }
            disk.cut();
            history.facts.cuts += 1;
            let chosen = history.random.random_range(0..LOSSES.len());
            let mut next = None;
            for (number, loss) in LOSSES.into_iter().enumerate() {
                let left = disk.left(loss, &mut history.random);
                let told = |why| format!("round {round}, {loss:?}, {plan:?}: {why}");
                let shown = history.check(&left, number == chosen).map_err(told)?;
                if number == chosen {
                    next = Some((left, shown));
                }
            }
            let (left, (found, names)) = next.expect("one of them was chosen");
            history.check_rotten(&left).map_err(|why| format!("round {round}: {why}"))?;
            history.show(&found, names);
            image = left;
        }
        let record = &history.record;
        Ok(Facts { operations: record.operations, trace: record.trace, ..history.facts })
    }

    /// What the chosen disk shows stays.
    fn show(&mut self, found: &Contents, names: Vec<Names>) {
        for (name, file) in [(SHARED, self.record.shared), (LOG, self.record.log)] {
            self.record.files[file.expect("it was made first")].show(found[name].clone());
        }
        for (owner, names) in self.owners.iter_mut().zip(names) {
            let contents: BTreeMap<_, _> =
                names.iter().map(|(name, file)| (*file, found[name].clone())).collect();
            for (file, content) in &contents {
                self.record.files[*file].show(content.clone());
            }
            owner.show(names, contents);
        }
    }
}

/// One history in the scheduler. What goes wrong is an error, with the seed.
fn run(seed: u64, sabotage: Sabotage) -> Result<Facts, String> {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let scheduler: Box<dyn Scheduler + Send> = match seed % 3 {
        0 => Box::new(PctScheduler::new_from_seed(seed, 4, 1)),
        _ => Box::new(RandomScheduler::new_from_seed(seed, 1)),
    };
    let outcome: Arc<Mutex<Option<Result<Facts, String>>>> = Arc::default();
    let told = outcome.clone();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(scheduler, config).run(move || {
            let outcome = History::run(seed, sabotage);
            *told.lock().unwrap() = Some(outcome);
        });
    }));
    let outcome = outcome.lock().unwrap().take();
    match (ran, outcome) {
        (Ok(()), Some(outcome)) => outcome.map_err(|why| format!("seed {seed}: {why}")),
        (Ok(()), None) => Err(format!("seed {seed}: it came to no end")),
        (Err(panic), _) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("seed {seed}: {}", text.unwrap_or_default()))
        }
    }
}

fn number_from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_history_shows_only_what_may_be_visible_and_keeps_what_was_shown() {
    let count = number_from_environment("MINFS_HISTORIES", 400);
    let first = number_from_environment("MINFS_HISTORY_SEED", 1);
    let begun = std::time::Instant::now();
    let mut sum = Facts::default();
    for seed in first..first + count {
        let facts = run(seed, Sabotage::None).unwrap_or_else(|why| panic!("{why}"));
        sum.operations += facts.operations;
        sum.cuts += facts.cuts;
        sum.kills += facts.kills;
        sum.states += facts.states;
        sum.rotten += facts.rotten;
        sum.failed += facts.failed;
    }
    println!("seeds {first} to {}: {sum:?} in {:?}", first + count - 1, begun.elapsed());
    // Otherwise the histories would prove little.
    assert!(count < 100 || sum.failed > count / 10 && sum.failed < sum.cuts, "{sum:?}");
}

#[test]
fn one_seed_is_one_history() {
    for seed in 1..12 {
        assert_eq!(run(seed, Sabotage::None), run(seed, Sabotage::None), "seed {seed}");
    }
}

/// Runs histories until one shows the fault; a fault that none shows is one that the test misses.
fn must_be_caught(sabotage: Sabotage) {
    for seed in 1..400 {
        if let Err(why) = run(seed, sabotage) {
            println!("{sabotage:?} was caught: {why}");
            return;
        }
    }
    panic!("{sabotage:?} was not caught");
}

#[test]
fn canary_a_build_that_skips_the_flush() {
    must_be_caught(Sabotage::SkipFlush);
}

#[test]
fn canary_an_extension_that_nothing_vouches_for() {
    must_be_caught(Sabotage::SkipTail);
}

#[test]
fn canary_space_reused_too_early() {
    must_be_caught(Sabotage::ReuseEarly);
}

#[test]
fn canary_a_record_over_the_durable_one() {
    must_be_caught(Sabotage::SameSlot);
}

#[test]
fn canary_a_tail_overwritten_before_it_is_settled() {
    must_be_caught(Sabotage::OverwriteTail);
}

#[test]
fn canary_a_replaced_file_that_is_not_buried() {
    must_be_caught(Sabotage::ForgetBurial);
}

/// The fault of the second cut: bytes of a write that was never synced come back.
#[test]
fn canary_bytes_behind_the_size_that_count_as_zeros() {
    must_be_caught(Sabotage::TrustBehindSize);
}

/// The fault of a failed flush: threads that waited for it go on.
#[test]
fn canary_a_volume_that_goes_on_after_a_failed_flush() {
    must_be_caught(Sabotage::GoOnAfterFailure);
}
