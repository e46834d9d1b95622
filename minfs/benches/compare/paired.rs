//! Times one load on several targets so that a small difference shows on a noisy machine.
//!
//! A round visits every target twice, in a random order and back again (A B B A), in slices of a
//! fraction of a millisecond to some milliseconds, so that whatever drifts over a round meets all
//! of them alike. What a target leaves in the processor's caches helps or hinders the next one, the
//! more so one which shares its places: so orders are drawn anew each round, every slice goes to
//! places of its own, and its target works for a while untimed before. A round yields one ratio for
//! each target. The figure is the median of the ratios; its interval is that of the order
//! statistics, which assumes nothing of their distribution but that the rounds are alike. Rounds
//! go on until the interval of the ratio that matters is narrow, whatever it says. What grows is
//! timed in its steady state: the first append after a truncation is untimed. Knows nothing of file
//! systems.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use block::AlignedBuffer;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How long a slice of one thread should last on the first target: so short that most rounds are
/// over before the machine turns to something else.
const SLICE: Duration = Duration::from_micros(400);
/// How long one of many threads should, which have to be woken first.
const CREW_SLICE: Duration = Duration::from_millis(5);
/// The share of a slice's operations that its target does untimed before it.
const WARM_SHARE: u64 = 4;
/// Rounds below which no interval is worth printing.
const ROUNDS_MIN: u64 = 12;

/// What a load runs on: positional, past the page cache, from many threads.
pub trait Target: Send + Sync {
    fn read(&self, buffer: &mut [u8], offset: u64);
    fn write(&self, buffer: &[u8], offset: u64);
    fn sync(&self);
    /// Writes at the end, wherever that is by then; `thread` may choose among several ends.
    fn append(&self, thread: usize, buffer: &[u8]);
    /// Syncs what `thread` has appended.
    fn sync_end(&self, _thread: usize) {
        self.sync();
    }
    /// Makes the end the beginning again; not timed.
    fn rewind(&self) {}
}

/// Where the accesses of a load go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    RandomRead,
    RandomWrite,
    /// From somewhere in the area on, one after the other, a sync after each.
    SyncedInOrder,
    /// At the end, a sync after each.
    SyncedAppend,
}

/// One cell of a table.
#[derive(Clone, Copy)]
pub struct Load {
    pub access: Access,
    pub block_bytes: u64,
    pub depth: usize,
    /// Bytes that random accesses spread over.
    pub area_bytes: u64,
    pub seed: u64,
}

impl Load {
    /// What one thread does in one slice.
    fn work(&self, target: &dyn Target, thread: usize, slice: Slice, buffer: &mut [u8]) {
        let Slice { operations, seed, .. } = slice;
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000) + thread as u64);
        let blocks = self.area_bytes / self.block_bytes;
        let first = random.random_range(0..blocks);
        for index in 0..operations {
            let mut place = || random.random_range(0..blocks) * self.block_bytes;
            match self.access {
                Access::RandomRead => target.read(buffer, place()),
                Access::RandomWrite => target.write(buffer, place()),
                Access::SyncedInOrder => {
                    target.write(buffer, (first + index) % blocks * self.block_bytes);
                    target.sync();
                }
                Access::SyncedAppend => {
                    target.append(thread, buffer);
                    target.sync_end(thread);
                }
            }
        }
    }

    /// The buffer of one thread. It is kept, since fresh memory costs as much as the request.
    fn buffer(&self) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(self.block_bytes as usize);
        buffer.fill(0x5a);
        buffer
    }
}

/// How long the rounds of one cell go on.
#[derive(Clone, Copy)]
pub struct Budget {
    pub least: Duration,
    pub most: Duration,
    /// Between the two, until the interval of the ratio that matters is no wider.
    pub width: f64,
}

/// The seconds that each target took in each round.
pub struct Times {
    pub rounds: Vec<Vec<f64>>,
    /// Operations that one target did in one round.
    pub operations: u64,
}

/// A ratio with the bounds of its interval of at least 95 %.
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Times {
    /// Microseconds for one operation on `target`: the median over the rounds.
    pub fn microseconds(&self, target: usize) -> f64 {
        let mut seconds: Vec<f64> = self.rounds.iter().map(|round| round[target]).collect();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2] * 1e6 / self.operations as f64
    }

    /// How many times as long `target` took as `base`.
    pub fn ratio(&self, target: usize, base: usize) -> Ratio {
        let mut ratios: Vec<f64> =
            self.rounds.iter().map(|round| round[target] / round[base]).collect();
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len() as f64;
        // Of n independent rounds the number below the median is binomial; 1.96 of its standard
        // deviations (half the square root of n) to either side hold at least 95 % of it.
        let half_width = 0.98 * count.sqrt();
        let low = (count / 2.0 - half_width).floor().max(0.0) as usize;
        let high = ((count / 2.0 + half_width).ceil() as usize).min(ratios.len() - 1);
        Ratio { median: ratios[ratios.len() / 2], low: ratios[low], high: ratios[high] }
    }
}

/// What all threads do at once.
#[derive(Clone, Copy, Default)]
struct Slice {
    target: usize,
    operations: u64,
    seed: u64,
}

/// Threads that do a slice together when the main thread lets them.
struct Crew<'a> {
    start: Barrier,
    end: Barrier,
    /// `None`: nothing more to do.
    slice: Mutex<Option<Slice>>,
    /// Of the only thread, if there is but one.
    buffer: Mutex<AlignedBuffer>,
    targets: &'a [&'a dyn Target],
    load: Load,
}

impl Crew<'_> {
    fn serve(&self, thread: usize) {
        let mut buffer = self.load.buffer();
        loop {
            self.start.wait();
            let Some(slice) = *self.slice.lock().expect("no thread panics") else { return };
            self.load.work(self.targets[slice.target], thread, slice, &mut buffer);
            self.end.wait();
        }
    }

    /// The seconds of `slice`.
    fn run(&self, slice: Slice) -> f64 {
        if self.load.depth == 1 {
            let mut buffer = self.buffer.lock().expect("no thread panics");
            let start = Instant::now();
            self.load.work(self.targets[slice.target], 0, slice, &mut buffer);
            return start.elapsed().as_secs_f64();
        }
        *self.slice.lock().expect("no thread panics") = Some(slice);
        let start = Instant::now();
        self.start.wait();
        self.end.wait();
        start.elapsed().as_secs_f64()
    }

    /// The seconds of `slice` on a target that is warm.
    fn run_warm(&self, slice: Slice) -> f64 {
        self.targets[slice.target].rewind();
        let operations = slice.operations.div_ceil(WARM_SHARE);
        // Other places than those that are timed.
        self.run(Slice { operations, seed: !slice.seed, ..slice });
        self.run(slice)
    }

    /// How many operations make a slice long enough.
    fn operations(&self) -> u64 {
        // What is appended has to fit into the area.
        let most = (self.load.area_bytes / self.load.block_bytes / self.load.depth as u64) / 2;
        let enough = if self.load.depth == 1 { SLICE } else { CREW_SLICE };
        let mut slice = Slice { operations: 1, ..Default::default() };
        while self.run_warm(slice) < enough.as_secs_f64() && slice.operations * 2 <= most {
            slice.operations *= 2;
        }
        slice.operations
    }

    fn round(&self, number: u64, operations: u64) -> Vec<f64> {
        let mut order: Vec<usize> = (0..self.targets.len()).collect();
        let mut random = ChaCha8Rng::seed_from_u64(self.load.seed.wrapping_add(number));
        order.shuffle(&mut random);
        let mut seconds = vec![0.0; order.len()];
        for &target in order.iter().chain(order.iter().rev()) {
            seconds[target] += self.run_warm(Slice { target, operations, seed: random.random() });
        }
        seconds
    }

    fn rounds(&self, [target, base]: [usize; 2], budget: Budget) -> Times {
        let operations = self.operations();
        let work = 2 * operations * self.load.depth as u64;
        let mut times = Times { rounds: Vec::new(), operations: work };
        // The first round warms everything up.
        self.round(0, operations);
        let begun = Instant::now();
        let mut looked = Duration::ZERO;
        for number in 1.. {
            times.rounds.push(self.round(number, operations));
            let spent = begun.elapsed();
            if number < ROUNDS_MIN || spent < budget.least || spent < looked + budget.least / 4 {
                continue;
            }
            looked = spent;
            let ratio = times.ratio(target, base);
            if ratio.high - ratio.low <= budget.width || spent >= budget.most {
                break;
            }
        }
        times
    }
}

/// Runs rounds of `load` on all targets; `matters` are the two whose ratio has to be narrow.
pub fn measure(targets: &[&dyn Target], load: Load, matters: [usize; 2], budget: Budget) -> Times {
    let crew = Crew {
        start: Barrier::new(load.depth + 1),
        end: Barrier::new(load.depth + 1),
        slice: Mutex::default(),
        buffer: Mutex::new(load.buffer()),
        targets,
        load,
    };
    if load.depth == 1 {
        return crew.rounds(matters, budget);
    }
    std::thread::scope(|scope| {
        for thread in 0..load.depth {
            let crew = &crew;
            scope.spawn(move || crew.serve(thread));
        }
        let times = crew.rounds(matters, budget);
        *crew.slice.lock().expect("no thread panics") = None;
        crew.start.wait();
        times
    })
}
