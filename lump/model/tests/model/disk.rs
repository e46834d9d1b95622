//! A simulated disk: what it holds for sure, what it may lose, and the faults of one run.
//!
//! The faults are those of the assumptions in `lump/docs/format-lump.md`. A write that no flush covers may
//! be lost, sector by sector, and so may a write that failed. A flush covers the writes that completed
//! before it began. A flush that fails makes nothing durable, and from then on no flush makes durable
//! what had been written, not even one that is under way.
//! What was lost so may read as it was before. A power cut comes between any two requests. A bit may
//! flip while the disk is off.
//!
//! Every request is a point where the scheduler may go on with another thread. Does not know what the
//! bytes mean.

use std::io;
use std::sync::{Mutex, MutexGuard};

use block::BlockDevice;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const SECTOR_BYTES: usize = 512;

/// When requests of a kind fail: from one number on, so many of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failing {
    pub from: u64,
    pub count: u64,
}

impl Failing {
    fn hits(self, number: u64) -> bool {
        (self.from..self.from.saturating_add(self.count)).contains(&number)
    }
}

/// What goes wrong with a disk.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub writes: Failing,
    pub flushes: Failing,
    /// The power fails before this write or flush.
    pub power_cut: Option<u64>,
    /// Whether several writes are in flight at once.
    pub at_once: bool,
}

/// What a power cut takes of the writes that no flush covers.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    All,
    Nothing,
    /// Each write or not.
    Writes,
    /// Each sector or not.
    Sectors,
    AllButOne,
}

pub const LOSSES: [Loss; 5] =
    [Loss::All, Loss::Nothing, Loss::Writes, Loss::Sectors, Loss::AllButOne];

#[derive(Clone)]
struct Write {
    number: u64,
    /// Sectors and their bytes, as many as arrive.
    sectors: Vec<(usize, Vec<u8>)>,
    is_complete: bool,
    /// Whether a flush that should have covered it failed.
    is_doomed: bool,
}

/// What a disk holds: for sure, and perhaps.
#[derive(Clone)]
struct Medium {
    durable: Vec<u8>,
    pending: Vec<Write>,
}

impl Medium {
    fn with(&self, mut kept: impl FnMut(&Write) -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        self.pending.iter().filter(|write| kept(write)).for_each(|write| apply(&mut image, write));
        image
    }
}

fn apply(image: &mut [u8], write: &Write) {
    for (sector, bytes) in &write.sectors {
        image[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES].copy_from_slice(bytes);
    }
}

struct State {
    random: ChaCha8Rng,
    plan: Plan,
    medium: Medium,
    /// What reads return.
    image: Vec<u8>,
    requests: u64,
    writes: u64,
    flushes: u64,
    /// Flushes under way: number, and the writes that they cover.
    flushing: Vec<(u64, Vec<u64>)>,
    is_stopped: bool,
    /// What there was when the power failed.
    left: Option<Medium>,
    failed_writes: u64,
    failed_flushes: u64,
}

pub struct Disk {
    state: Mutex<State>,
    at_once: bool,
    length: u64,
}

fn failure() -> io::Error {
    io::Error::other("on purpose")
}

/// Where the scheduler may go on with another thread.
fn pause() {
    shuttle::thread::yield_now();
}

impl Disk {
    pub fn new(image: &[u8], plan: Plan, seed: u64) -> Self {
        let medium = Medium { durable: image.to_vec(), pending: Vec::new() };
        Self {
            at_once: plan.at_once,
            length: image.len() as u64,
            state: Mutex::new(State {
                random: ChaCha8Rng::seed_from_u64(seed),
                plan,
                medium,
                image: image.to_vec(),
                requests: 0,
                writes: 0,
                flushes: 0,
                flushing: Vec::new(),
                is_stopped: false,
                left: None,
                failed_writes: 0,
                failed_flushes: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Switches the power off, if it is on.
    pub fn cut(&self) {
        let state = &mut *self.state();
        state.left.get_or_insert_with(|| state.medium.clone());
    }

    /// Takes no more writes and flushes, as if the process had been killed.
    pub fn stop(&self) {
        self.state().is_stopped = true;
    }

    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    pub fn is_off(&self) -> bool {
        self.state().left.is_some()
    }

    /// Whether anything failed, or the power did.
    pub fn is_troubled(&self) -> bool {
        let state = self.state();
        state.left.is_some() || state.failed_writes + state.failed_flushes > 0
    }

    pub fn has_failed_flushes(&self) -> bool {
        self.state().failed_flushes > 0
    }

    /// What the next process reads if only this one ends.
    pub fn image(&self) -> Vec<u8> {
        self.state().image.clone()
    }

    /// What a power cut left.
    pub fn after(&self, loss: Loss, random: &mut ChaCha8Rng) -> Vec<u8> {
        let mut medium = self.state().left.clone().expect("the power is off");
        if matches!(loss, Loss::Sectors) {
            for write in &mut medium.pending {
                write.sectors.retain(|_| random.random());
            }
        }
        let lost = random.random_range(0..medium.pending.len().max(1));
        let mut place = 0;
        medium.with(|_| {
            place += 1;
            match loss {
                Loss::All => false,
                Loss::Nothing | Loss::Sectors => true,
                Loss::Writes => random.random(),
                Loss::AllButOne => place - 1 == lost,
            }
        })
    }
}

impl State {
    /// Counts a write or flush; an error once the power is off.
    fn arrive(&mut self) -> io::Result<()> {
        self.requests += 1;
        if self.plan.power_cut.is_some_and(|at| self.requests > at) {
            self.left.get_or_insert_with(|| self.medium.clone());
        }
        if self.left.is_some() || self.is_stopped { Err(failure()) } else { Ok(()) }
    }

    /// Takes a write in; returns its number, and whether it will fail.
    fn begin_write(&mut self, bytes: &[u8], offset: u64) -> io::Result<(u64, bool)> {
        self.arrive()?;
        let number = self.writes;
        self.writes += 1;
        let first = offset as usize / SECTOR_BYTES;
        let sectors = bytes.chunks(SECTOR_BYTES).map(<[u8]>::to_vec);
        let mut sectors: Vec<_> = (first..).zip(sectors).collect();
        let fails = self.plan.writes.hits(number);
        if fails {
            self.failed_writes += 1;
            match self.random.random_range(0..4) {
                0 => sectors.clear(),
                1 => sectors.truncate(self.random.random_range(0..=sectors.len())),
                2 => sectors.retain(|_| self.random.random()),
                _ => {}
            }
        }
        let write = Write { number, sectors, is_complete: false, is_doomed: false };
        self.medium.pending.push(write);
        Ok((number, fails))
    }

    fn end_write(&mut self, number: u64, fails: bool) -> io::Result<()> {
        if self.left.is_some() {
            return Err(failure());
        }
        let mut pending = self.medium.pending.iter_mut();
        let write = pending.find(|write| write.number == number).expect("no flush covers it yet");
        write.is_complete = true;
        apply(&mut self.image, write);
        if fails { Err(failure()) } else { Ok(()) }
    }

    fn begin_flush(&mut self) -> io::Result<u64> {
        self.arrive()?;
        let number = self.flushes;
        self.flushes += 1;
        let covered = self.medium.pending.iter().filter(|write| write.is_complete);
        self.flushing.push((number, covered.map(|write| write.number).collect()));
        Ok(number)
    }

    fn end_flush(&mut self, number: u64) -> io::Result<()> {
        let place = self.flushing.iter().position(|flush| flush.0 == number);
        let (_, covered) = self.flushing.remove(place.expect("it is under way"));
        if self.left.is_some() {
            return Err(failure());
        }
        if !self.plan.flushes.hits(number) {
            let (durable, pending) = (&mut self.medium.durable, &mut self.medium.pending);
            pending.retain(|write| {
                let is_durable = covered.contains(&write.number) && !write.is_doomed;
                if is_durable {
                    apply(durable, write);
                }
                !is_durable
            });
            return Ok(());
        }
        self.failed_flushes += 1;
        let doomed = self.medium.pending.iter_mut().filter(|write| write.is_complete);
        doomed.for_each(|write| write.is_doomed = true);
        if self.random.random() {
            let random = &mut self.random;
            self.medium.pending.retain(|write| !write.is_doomed || random.random());
            self.image = self.medium.with(|write| write.is_complete);
        }
        Err(failure())
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.length
    }
    fn block_size(&self) -> u32 {
        SECTOR_BYTES as u32
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        pause();
        let start = offset as usize;
        buffer.copy_from_slice(&self.state().image[start..start + buffer.len()]);
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.write_each(&[(buffer, offset)]).remove(0)
    }
    fn write_each(&self, writes: &[(&[u8], u64)]) -> Vec<io::Result<()>> {
        let mut outcomes = Vec::new();
        for part in writes.chunks(if self.at_once { writes.len().max(1) } else { 1 }) {
            pause();
            let begin = |(bytes, offset): &(&[u8], u64)| self.state().begin_write(bytes, *offset);
            let begun: Vec<_> = part.iter().map(begin).collect();
            for begun in begun {
                pause();
                outcomes
                    .push(begun.and_then(|(number, fails)| self.state().end_write(number, fails)));
            }
        }
        outcomes
    }
    fn writes_at_once(&self) -> bool {
        self.at_once
    }
    fn flush(&self) -> io::Result<()> {
        pause();
        let number = self.state().begin_flush()?;
        pause();
        self.state().end_flush(number)
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        pause();
        Ok(())
    }
}
