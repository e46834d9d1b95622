//! The states that a power cut could leave of a recording: which instants, which writes lost.
//!
//! Deterministic from a seed. Equal disks with equal acknowledgements are given once.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::BlockDevice;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::SECTOR_BYTES;
use crate::disk::{CrashedDisk, Map};
use crate::recording::{Instant, Log, RecordedRequest, Recording, RequestKind};

/// Whether the disk keeps its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushPolicy {
    /// A flush makes durable what was replied to before it arrived, on its own device.
    Kept,
    /// A flush is replied to and does nothing, but for those that arrived before this instant: the control, in
    /// which something must be lost.
    IgnoredFrom(Instant),
    /// As they are kept, but for the one that arrived at this instant: is it needed?
    Without(Instant),
}

#[derive(Debug, Clone, Copy)]
pub struct StateOptions {
    /// Earliest cut: from here on the workload ran.
    pub from: Instant,
    /// Last cut.
    pub to: Instant,
    /// States at most.
    pub count: usize,
    /// Seed of every choice.
    pub seed: u64,
}

/// A part of a write that was lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lost {
    /// The request's number.
    pub request: usize,
    /// First lost sector within it.
    pub first: u64,
    pub sectors: u64,
}

/// A power cut and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashState {
    /// The cut comes right after this instant.
    pub instant: Instant,
    /// What was lost of the writes that were not durable.
    pub lost: Vec<Lost>,
    /// How many of the acknowledgements had been received.
    pub acknowledged: usize,
}

/// What is lost of the writes that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWrites {
    All,
    Nothing,
    /// Each by a coin.
    Half,
    One,
    AllButOne,
    /// The beginning or the end of one, and each other by a coin.
    Torn,
    /// Each sector of each by a coin.
    Sectors,
}

/// The kinds of loss that [`States::choose`] goes through.
const CHOSEN: [LostWrites; 8] = [
    LostWrites::All,
    LostWrites::Nothing,
    LostWrites::Half,
    LostWrites::One,
    LostWrites::Torn,
    LostWrites::AllButOne,
    LostWrites::Half,
    LostWrites::Half,
];

/// Makes the states of one recording and their disks.
pub struct States {
    recording: Arc<Recording>,
    before: Arc<dyn BlockDevice>,
    /// Of each request that changes sectors, when it became durable: the reply of the first flush that
    /// arrived after its own reply, or the disk's own doing.
    durable_from: Vec<Option<Instant>>,
    hashes: RefCell<BTreeMap<u32, u64>>,
    /// What is durable at the cut whose disk was made last: the next costs only what came since.
    durable: RefCell<Durable>,
}

impl States {
    /// `before` is the disk as it was before the first request. What a disk has written out by itself counts only where
    /// flushes are kept: one of them may have caused it.
    pub fn new(
        recording: Arc<Recording>,
        before: Arc<dyn BlockDevice>,
        flushes: FlushPolicy,
    ) -> Self {
        States::with(recording, before, flushes, flushes == FlushPolicy::Kept)
    }

    fn with(
        recording: Arc<Recording>,
        before: Arc<dyn BlockDevice>,
        flushes: FlushPolicy,
        destages: bool,
    ) -> Self {
        let obeyed = |request: &&RecordedRequest| match flushes {
            FlushPolicy::Kept => true,
            FlushPolicy::IgnoredFrom(instant) => request.arrived < instant,
            FlushPolicy::Without(instant) => request.arrived != instant,
        };
        let log = &recording.log;
        let mut flushed: Vec<Vec<(Instant, Instant)>> = vec![Vec::new(); log.further.len() + 1];
        let flushes = log.requests.iter().filter(|one| one.operation == RequestKind::Flush);
        for flush in flushes.filter(obeyed) {
            let replied = flush.replied.map(|replied| (flush.arrived, replied));
            flushed[log.device_of(flush.sector)].extend(replied);
        }
        for of_device in &mut flushed {
            // Of the flushes that arrive from here on, the first reply.
            let mut earliest = Instant::MAX;
            for (_, replied) in of_device.iter_mut().rev() {
                earliest = earliest.min(*replied);
                *replied = earliest;
            }
        }
        let durable_from: Vec<Option<Instant>> = recording
            .log
            .requests
            .iter()
            .map(|request| {
                let replied = request.replied?;
                let flushed = &flushed[log.device_of(request.sector)];
                let at = flushed.partition_point(|(arrived, _)| *arrived <= replied);
                let by_flush = flushed.get(at).map(|(_, durable)| *durable);
                let destaged = request.destaged.filter(|_| destages);
                [by_flush, destaged].into_iter().flatten().min()
            })
            .collect();
        let durable = RefCell::new(Durable::new(&recording.log, &durable_from));
        States { recording, before, durable_from, hashes: RefCell::default(), durable }
    }

    /// A cut right after an instant, and what it takes.
    pub fn state(&self, instant: Instant, loss: LostWrites, random: &mut impl Rng) -> CrashState {
        let lost = self.lost(loss, &self.volatile(instant), random);
        CrashState { instant, lost, acknowledged: self.acknowledged(instant) }
    }

    /// The writes that were under way or not flushed at an instant, by their numbers.
    pub fn volatile(&self, instant: Instant) -> Vec<usize> {
        let arrived = self.recording.log.requests.partition_point(|one| one.arrived <= instant);
        (0..arrived)
            .filter(|index| self.recording.log.requests[*index].operation != RequestKind::Flush)
            .filter(|index| self.durable_from[*index].is_none_or(|durable| durable > instant))
            .collect()
    }

    /// The states to try, each with a disk that no earlier one had, in the order of their cuts.
    pub fn choose(&self, options: &StateOptions) -> Vec<CrashState> {
        let mut random = ChaCha8Rng::seed_from_u64(options.seed);
        let cuts = self.cuts(options, &mut random);
        if cuts.is_empty() {
            return Vec::new();
        }
        // Each cut comes with each kind of loss, at first with one; equal disks are left out below.
        let wanted = (options.count * 2).min(cuts.len() * CHOSEN.len());
        let mut tries: Vec<(usize, Instant)> =
            (0..wanted).map(|number| (number, cuts[number % cuts.len()])).collect();
        tries.sort_by_key(|(_, instant)| *instant);
        // What all of them have is not hashed: there can be much more of it than of what they differ in.
        let mut durable = Durable::new(&self.recording.log, &self.durable_from);
        durable.advance(self, options.from);
        durable.hash = Some(0);
        let mut found: Vec<(usize, u64, CrashState)> = tries
            .into_iter()
            .map(|(number, instant)| {
                let volatile = self.volatile(instant);
                let kind = CHOSEN[(number + number / cuts.len()) % CHOSEN.len()];
                let lost = self.lost(kind, &volatile, &mut random);
                durable.advance(self, instant);
                let hash = durable.left(self, &volatile, &lost).1.expect("it was asked for");
                let acknowledged = self.acknowledged(instant);
                (number, hash, CrashState { instant, lost, acknowledged })
            })
            .collect();
        found.sort_by_key(|(number, ..)| *number);
        let mut seen = HashSet::new();
        found.retain(|(_, hash, state)| seen.insert((*hash, state.acknowledged)));
        let mut states: Vec<CrashState> = found.into_iter().map(|(.., state)| state).collect();
        states.truncate(options.count);
        states.sort_by_key(|state| state.instant);
        states
    }

    /// The disk that a state leaves. Cheapest in the order of the cuts.
    pub fn disk(&self, state: &CrashState) -> CrashedDisk {
        let mut durable = self.durable.borrow_mut();
        durable.advance(self, state.instant);
        let (map, _) = durable.left(self, &self.volatile(state.instant), &state.lost);
        CrashedDisk::new(self.before.clone(), map, self.recording.data.clone())
    }

    /// States that would be none if the flush that arrived at this instant were kept: after its reply, with
    /// something lost that it alone had made durable. These are the states of [`FlushPolicy::Without`] it.
    pub fn only_without(&self, flush: Instant, count: usize, seed: u64) -> Vec<CrashState> {
        let log = &self.recording.log;
        let is_later =
            |one: &&RecordedRequest| one.operation == RequestKind::Flush && one.arrived >= flush;
        let mut later = log.requests.iter().filter(is_later).peekable();
        let device = later.peek().map(|one| log.device_of(one.sector));
        let mut later = later
            .filter(|one| Some(log.device_of(one.sector)) == device)
            .filter_map(|one| one.replied);
        let Some(from) = later.next() else { return Vec::new() };
        let to = later.min().map_or(self.recording.log.end, |next| next - 1).max(from);
        let states = self.choose(&StateOptions { from, to, count, seed });
        let (recording, before) = (self.recording.clone(), self.before.clone());
        let kept = States::with(recording, before, FlushPolicy::Kept, false);
        let is_new = |state: &CrashState| {
            let is_durable = |lost: &Lost| kept.durable_from[lost.request];
            state.lost.iter().filter_map(is_durable).any(|durable| durable <= state.instant)
        };
        states.into_iter().filter(is_new).collect()
    }

    /// How many acknowledgements had been received by an instant.
    pub fn acknowledged(&self, instant: Instant) -> usize {
        self.recording.log.acknowledgements.partition_point(|one| one.instant <= instant)
    }

    /// The instants at which the power is cut: right after acknowledgements, right before and
    /// after flushes, and any; a third each while there are so many.
    fn cuts(&self, options: &StateOptions, random: &mut impl Rng) -> Vec<Instant> {
        let to = options.to.min(self.recording.log.end).max(options.from);
        let within = |instant: &Instant| (options.from..=to).contains(instant);
        let mut acknowledged: Vec<Instant> = self
            .recording
            .log
            .acknowledgements
            .iter()
            .map(|one| one.instant)
            .filter(within)
            .collect();
        let flushes =
            self.recording.log.requests.iter().filter(|one| one.operation == RequestKind::Flush);
        let mut flushed: Vec<Instant> = flushes
            .flat_map(|flush| [flush.arrived, flush.replied.unwrap_or(flush.arrived)])
            .flat_map(|instant| [instant.saturating_sub(1), instant])
            .filter(within)
            .collect();
        acknowledged.shuffle(random);
        flushed.shuffle(random);
        let mut any = (0..options.count)
            .map(|_| random.random_range(options.from..=to))
            .collect::<Vec<_>>()
            .into_iter();
        let (mut acknowledged, mut flushed) = (acknowledged.into_iter(), flushed.into_iter());
        let mut cuts = Vec::new();
        let mut known = HashSet::new();
        loop {
            let third = [acknowledged.next(), flushed.next(), any.next()];
            if third.iter().all(Option::is_none) {
                return cuts;
            }
            cuts.extend(third.into_iter().flatten().filter(|instant| known.insert(*instant)));
        }
    }

    fn lost(&self, loss: LostWrites, volatile: &[usize], random: &mut impl Rng) -> Vec<Lost> {
        let sectors_of = |index: usize| self.recording.log.requests[index].sectors;
        let whole = |index: &usize| Lost { request: *index, first: 0, sectors: sectors_of(*index) };
        if volatile.is_empty() {
            return Vec::new();
        }
        let one = volatile[random.random_range(0..volatile.len())];
        match loss {
            LostWrites::All => volatile.iter().map(whole).collect(),
            LostWrites::Nothing => Vec::new(),
            LostWrites::One => vec![whole(&one)],
            LostWrites::AllButOne => {
                volatile.iter().filter(|index| **index != one).map(whole).collect()
            }
            LostWrites::Half => {
                volatile.iter().filter(|_| random.random::<bool>()).map(whole).collect()
            }
            LostWrites::Torn => {
                let sectors = sectors_of(one);
                let (first, count) = match sectors {
                    0 | 1 => (0, sectors),
                    _ => {
                        let cut = random.random_range(1..sectors);
                        if random.random() { (cut, sectors - cut) } else { (0, cut) }
                    }
                };
                let mut lost: Vec<Lost> = volatile
                    .iter()
                    .filter(|index| **index != one && random.random::<bool>())
                    .map(whole)
                    .collect();
                lost.push(Lost { request: one, first, sectors: count });
                lost
            }
            LostWrites::Sectors => volatile
                .iter()
                .flat_map(|index| (0..sectors_of(*index)).map(move |first| (*index, first)))
                .filter(|_| random.random::<bool>())
                .map(|(request, first)| Lost { request, first, sectors: 1 })
                .collect(),
        }
    }

    /// Hash of a recorded sector's bytes; equal bytes are equal disks.
    fn hash_of(&self, value: u32) -> u64 {
        if value == 0 {
            return 0;
        }
        *self.hashes.borrow_mut().entry(value).or_insert_with(|| {
            let mut bytes = [0; SECTOR_BYTES as usize];
            // What cannot be read differs from everything: the state is tried.
            match read(&self.recording.data, &mut bytes, u64::from(value - 1) * SECTOR_BYTES) {
                Ok(()) => xxh3_64(&bytes),
                Err(_) => u64::from(value),
            }
        })
    }
}

fn read(data: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    // A hole at the end of the file is not there: the buffer is zero already.
    data.read_at(bytes, offset).map(drop)
}

/// The number that a [`Map`] has for a sector of a request.
fn value_of(request: &RecordedRequest, sector: u64) -> u32 {
    u32::try_from(request.data_sector + sector + 1).expect("a recording is below 2 TiB")
}

/// What is durable at an instant.
struct Durable {
    /// Requests that become durable, in that order.
    order: Vec<(Instant, usize)>,
    next: usize,
    instant: Instant,
    map: Map,
    /// Of what has changed since hashing began; absent where nobody asks, since it takes a look at all of it.
    hash: Option<u64>,
}

impl Durable {
    fn new(log: &Log, durable_from: &[Option<Instant>]) -> Self {
        let mut order: Vec<(Instant, usize)> = log
            .requests
            .iter()
            .enumerate()
            .filter(|(_, request)| request.operation != RequestKind::Flush)
            .filter_map(|(index, _)| Some((durable_from[index]?, index)))
            .collect();
        order.sort();
        Durable { order, next: 0, instant: 0, map: Map::new(log.sectors), hash: None }
    }

    fn advance(&mut self, states: &States, instant: Instant) {
        if instant < self.instant {
            self.map = Map::new(states.recording.log.sectors);
            (self.next, self.hash) = (0, self.hash.map(|_| 0));
        }
        self.instant = instant;
        while let Some((durable, index)) = self.order.get(self.next)
            && *durable <= instant
        {
            let request = &states.recording.log.requests[*index];
            self.hash = states.put(&mut self.map, self.hash, request, 0..request.sectors);
            self.next += 1;
        }
    }

    fn left(&self, states: &States, volatile: &[usize], lost: &[Lost]) -> (Map, Option<u64>) {
        let (mut map, mut hash) = (self.map.clone(), self.hash);
        let mut lost: Vec<&Lost> = lost.iter().collect();
        lost.sort_by_key(|lost| (lost.request, lost.first));
        let mut lost = lost.into_iter().peekable();
        for index in volatile {
            let request = &states.recording.log.requests[*index];
            let mut from = 0;
            while let Some(part) = lost.next_if(|lost| lost.request <= *index) {
                if part.request == *index {
                    let until = part.first.clamp(from, request.sectors);
                    hash = states.put(&mut map, hash, request, from..until);
                    from = part.first.saturating_add(part.sectors).min(request.sectors).max(from);
                }
            }
            hash = states.put(&mut map, hash, request, from..request.sectors);
        }
        (map, hash)
    }
}

impl States {
    /// Puts sectors of a request into a map; returns the hash of the disk's contents, where there was one, a sum
    /// over its sectors, so that the order does not matter.
    fn put(
        &self,
        map: &mut Map,
        mut hash: Option<u64>,
        request: &RecordedRequest,
        part: std::ops::Range<u64>,
    ) -> Option<u64> {
        for sector in part {
            let place = request.sector + sector;
            let value = value_of(request, sector);
            if let (Some(before), Some(sum)) = (map.put(place, value), hash) {
                let of = |value: u32| match value {
                    0 => 0,
                    value => (self.hash_of(value) ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                };
                hash = Some(sum.wrapping_add(of(value)).wrapping_sub(of(before)));
            }
        }
        hash
    }
}
