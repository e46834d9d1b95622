//! A disk that keeps exactly the promises of minfs/docs/format-minfs.md, and on purpose no other.
//!
//! A write is there at once for every read, and durable once a flush that began after its reply has
//! succeeded. A failed write may have arrived in part. A failed flush makes some of what it was to
//! cover durable, and no later flush makes up for the rest. After the cut every request fails, and
//! [`Disk::left`] says what could be on the medium: of each write that is not durable any of its
//! sectors. The scheduler may switch threads before, within and after each request.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use block::BlockDevice;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shuttle::thread::yield_now;

const SECTOR: usize = 512;
/// What a discard leaves.
const DISCARDED: u8 = 0xdd;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
}

/// Requests that fail: those of the kind with these numbers, counted from 0 for each kind.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub from: u64,
    pub until: u64,
}

/// What goes wrong with a disk.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How many writes and flushes are begun before the cut.
    pub cut_after: u64,
    /// The flush that the cut prevents, at the latest.
    pub cut_at_flush: u64,
    pub faults: Vec<Fault>,
    /// A bit that reads as the other one: its byte on the disk, and which.
    pub rotten: Option<(u64, u8)>,
    /// A sector that cannot be read.
    pub unreadable: Option<u64>,
    pub seed: u64,
}

/// Which of the writes that are not durable are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    All,
    Nothing,
    One,
    AllButOne,
    Half,
    Sectors,
}

pub const LOSSES: [Loss; 6] =
    [Loss::All, Loss::Nothing, Loss::One, Loss::AllButOne, Loss::Half, Loss::Sectors];

struct Write {
    offset: usize,
    bytes: Vec<u8>,
    /// Of each of its sectors, whether it left the host. A short or torn write lacks some.
    sectors: Vec<bool>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Replied,
    /// It failed, or a flush that was to cover it: no later flush covers it.
    Orphan,
    Durable,
}

struct Inner {
    base: Vec<u8>,
    writes: Vec<Write>,
    visible: Vec<u8>,
    /// Of reads, writes and flushes.
    counts: [u64; 3],
    begun: u64,
    is_cut: bool,
    random: ChaCha8Rng,
}

pub struct Disk {
    block_size: u32,
    length: u64,
    plan: Plan,
    inner: Mutex<Inner>,
}

fn failed() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Disk {
    pub fn new(image: Vec<u8>, block_size: u32, plan: Plan) -> Self {
        let inner = Inner {
            visible: image.clone(),
            writes: Vec::new(),
            counts: [0; 3],
            begun: 0,
            is_cut: false,
            random: ChaCha8Rng::seed_from_u64(plan.seed),
            base: image,
        };
        Self { block_size, length: inner.base.len() as u64, plan, inner: Mutex::new(inner) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().expect("no thread panics while it holds the disk"))
    }

    pub fn is_cut(&self) -> bool {
        self.with(|inner| inner.is_cut)
    }

    /// Cuts the power if nothing has done so.
    pub fn cut(&self) {
        self.with(|inner| inner.is_cut = true);
    }

    /// Counts a request; whether it fails, or `Err` when there is no power.
    fn begin(&self, kind: Kind) -> io::Result<bool> {
        yield_now();
        self.with(|inner| {
            let is_flush = kind == Kind::Flush;
            if kind != Kind::Read && inner.begun >= self.plan.cut_after
                || is_flush && inner.counts[kind as usize] >= self.plan.cut_at_flush
            {
                inner.is_cut = true;
            }
            if inner.is_cut {
                return Err(failed());
            }
            inner.begun += u64::from(kind != Kind::Read);
            let count = &mut inner.counts[kind as usize];
            let number = *count;
            *count += 1;
            let fails =
                |fault: &Fault| fault.kind == kind && (fault.from..fault.until).contains(&number);
            Ok(self.plan.faults.iter().any(fails))
        })
    }

    fn change(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fails = self.begin(Kind::Write)?;
        let offset = offset as usize;
        let index = self.with(|inner| {
            let mut sectors = vec![true; bytes.len() / SECTOR];
            if fails {
                // None of it, a part from the start, or any sectors.
                let kind = inner.random.random_range(0..3);
                let short = inner.random.random_range(0..=sectors.len());
                for (index, sector) in sectors.iter_mut().enumerate() {
                    *sector = match kind {
                        0 => false,
                        1 => index < short,
                        _ => inner.random.random(),
                    };
                }
            }
            let write = Write { offset, bytes: bytes.to_vec(), sectors, state: State::InFlight };
            write.put(&mut inner.visible, |_| true);
            inner.writes.push(write);
            inner.writes.len() - 1
        });
        yield_now();
        self.with(|inner| {
            if inner.is_cut {
                return Err(failed());
            }
            inner.writes[index].state = if fails { State::Orphan } else { State::Replied };
            if fails { Err(failed()) } else { Ok(()) }
        })
    }

    /// What a power cut leaves on the medium.
    pub fn left(&self, loss: Loss, random: &mut ChaCha8Rng) -> Vec<u8> {
        self.with(|inner| {
            let volatile = inner.writes.iter().filter(|write| write.state != State::Durable);
            let one = random.random_range(0..volatile.count().max(1));
            let mut image = inner.base.clone();
            let mut number = 0;
            for write in &inner.writes {
                if write.state == State::Durable {
                    write.put(&mut image, |_| true);
                    continue;
                }
                let half: bool = random.random();
                write.put(&mut image, |_| match loss {
                    Loss::All => false,
                    Loss::Nothing => true,
                    Loss::One => number != one,
                    Loss::AllButOne => number == one,
                    Loss::Half => half,
                    Loss::Sectors => random.random(),
                });
                number += 1;
            }
            image
        })
    }
}

impl Write {
    fn put(&self, image: &mut [u8], mut has_arrived: impl FnMut(usize) -> bool) {
        for (index, sector) in self.bytes.chunks(SECTOR).enumerate() {
            if self.sectors[index] && has_arrived(index) {
                let at = self.offset + index * SECTOR;
                image[at..at + sector.len()].copy_from_slice(sector);
            }
        }
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.begin(Kind::Read)? {
            return Err(failed());
        }
        let end = offset + buffer.len() as u64;
        if self.plan.unreadable.is_some_and(|at| (offset..end).contains(&at)) {
            return Err(failed());
        }
        self.with(|inner| buffer.copy_from_slice(&inner.visible[offset as usize..end as usize]));
        if let Some((at, bit)) = self.plan.rotten
            && (offset..end).contains(&at)
        {
            buffer[(at - offset) as usize] ^= bit;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        let fails = self.begin(Kind::Flush)?;
        let covered: Vec<usize> = self.with(|inner| {
            let is_covered = |index: &usize| inner.writes[*index].state == State::Replied;
            (0..inner.writes.len()).filter(is_covered).collect()
        });
        yield_now();
        yield_now();
        self.with(|inner| {
            // A flush that the cut interrupts may have done all of its work.
            if inner.is_cut && inner.random.random() {
                return Err(failed());
            }
            for index in covered {
                let is_lost = fails && inner.random.random();
                inner.writes[index].state = if is_lost { State::Orphan } else { State::Durable };
            }
            if fails || inner.is_cut { Err(failed()) } else { Ok(()) }
        })
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(&vec![DISCARDED; length as usize], offset)
    }
}

/// A process's hold on the disk, which lives longer.
pub struct Host {
    disk: Arc<Disk>,
    /// The process was killed: its requests reach the disk no more.
    is_killed: AtomicBool,
    /// Somebody knows that the volume has stopped writing.
    has_stopped: AtomicBool,
}

impl Host {
    pub fn new(disk: Arc<Disk>) -> Self {
        Self { disk, is_killed: AtomicBool::new(false), has_stopped: AtomicBool::new(false) }
    }

    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
    }

    /// From here on a request that changes the disk is a fault of the volume.
    pub fn stop(&self) {
        self.has_stopped.store(true, Ordering::SeqCst);
    }

    fn power(&self) -> io::Result<()> {
        if self.is_killed.load(Ordering::SeqCst) { Err(failed()) } else { Ok(()) }
    }

    fn change(&self) -> io::Result<()> {
        self.power()?;
        let is_late = self.has_stopped.load(Ordering::SeqCst) && !self.disk.is_cut();
        assert!(!is_late, "a volume that had stopped writing changed the disk");
        Ok(())
    }
}

impl BlockDevice for Host {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn block_size(&self) -> u32 {
        self.disk.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.power()?;
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change()?;
        self.disk.write_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.change()?;
        self.disk.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change()?;
        self.disk.discard(offset, length)
    }
}
