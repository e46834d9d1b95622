//! Times one load on several targets so that a small difference shows on a noisy machine.
//!
//! A round visits every target twice, in an order and back again (A B B A), in slices of a
//! fraction of a millisecond to some milliseconds, so that whatever drifts over a round meets all of them alike; every other round
//! begins at the other end. A round yields one ratio for each target. The figure is the median
//! of the ratios; its interval is that of the order statistics, which assumes nothing of their
//! distribution but that the rounds are alike. Knows nothing of file systems.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use block::AlignedBuffer;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How long a slice of one thread should last on the first target: so short that most rounds are
/// over before the machine turns to something else.
const SLICE: Duration = Duration::from_micros(400);
/// How long one of many threads should, which have to be woken first.
const CREW_SLICE: Duration = Duration::from_millis(5);
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
    /// From the start of the area, one after the other, a sync after each.
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
    fn work(&self, target: &dyn Target, thread: usize, operations: u64, seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000) + thread as u64);
        let mut buffer = AlignedBuffer::zeroed(self.block_bytes as usize);
        let blocks = self.area_bytes / self.block_bytes;
        for index in 0..operations {
            let mut place = || random.random_range(0..blocks) * self.block_bytes;
            match self.access {
                Access::RandomRead => target.read(&mut buffer, place()),
                Access::RandomWrite => target.write(&buffer, place()),
                Access::SyncedInOrder => {
                    target.write(&buffer, index % blocks * self.block_bytes);
                    target.sync();
                }
                Access::SyncedAppend => {
                    target.append(thread, &buffer);
                    target.sync_end(thread);
                }
            }
        }
    }
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

/// Threads that do a slice together when the main thread lets them.
struct Crew<'a> {
    start: Barrier,
    end: Barrier,
    target: AtomicUsize,
    operations: AtomicU64,
    seed: AtomicU64,
    targets: &'a [&'a dyn Target],
    load: Load,
}

/// For `Crew::target`: nothing more to do.
const DISMISSED: usize = usize::MAX;

impl Crew<'_> {
    fn serve(&self, thread: usize) {
        loop {
            self.start.wait();
            let target = self.target.load(Ordering::Acquire);
            if target == DISMISSED {
                return;
            }
            let operations = self.operations.load(Ordering::Acquire);
            let seed = self.seed.load(Ordering::Acquire);
            self.load.work(self.targets[target], thread, operations, seed);
            self.end.wait();
        }
    }

    fn slice(&self, target: usize, operations: u64, seed: u64) -> f64 {
        self.targets[target].rewind();
        if self.load.depth == 1 {
            let start = Instant::now();
            self.load.work(self.targets[target], 0, operations, seed);
            return start.elapsed().as_secs_f64();
        }
        self.target.store(target, Ordering::Release);
        self.operations.store(operations, Ordering::Release);
        self.seed.store(seed, Ordering::Release);
        let start = Instant::now();
        self.start.wait();
        self.end.wait();
        start.elapsed().as_secs_f64()
    }

    fn rounds(&self, budget: Duration) -> Times {
        let mut operations = 1;
        // Twice as many until a slice is long enough, or the appended bytes fill the area.
        let most = (self.load.area_bytes / self.load.block_bytes / self.load.depth as u64).max(1);
        let slice = if self.load.depth == 1 { SLICE } else { CREW_SLICE };
        while self.slice(0, operations, 0) < slice.as_secs_f64() && operations * 2 <= most {
            operations *= 2;
        }
        let order: Vec<usize> = (0..self.targets.len()).collect();
        let mut rounds = Vec::new();
        let begun = Instant::now();
        let mut number = 0;
        while begun.elapsed() < budget || number <= ROUNDS_MIN {
            let mut seconds = vec![0.0; order.len()];
            let seed = self.load.seed + 2 * number;
            let (there, back): (Vec<_>, Vec<_>) = if number % 2 == 0 {
                (order.clone(), order.iter().rev().copied().collect())
            } else {
                (order.iter().rev().copied().collect(), order.clone())
            };
            for (seed, targets) in [(seed, there), (seed + 1, back)] {
                for target in targets {
                    seconds[target] += self.slice(target, operations, seed);
                }
            }
            // The first round warms everything up.
            if number > 0 {
                rounds.push(seconds);
            }
            number += 1;
        }
        Times { rounds, operations: 2 * operations * self.load.depth as u64 }
    }
}

/// Runs rounds of `load` on all targets for about `budget`.
pub fn measure(targets: &[&dyn Target], load: Load, budget: Duration) -> Times {
    let crew = Crew {
        start: Barrier::new(load.depth + 1),
        end: Barrier::new(load.depth + 1),
        target: AtomicUsize::new(0),
        operations: AtomicU64::new(0),
        seed: AtomicU64::new(0),
        targets,
        load,
    };
    if load.depth == 1 {
        return crew.rounds(budget);
    }
    std::thread::scope(|scope| {
        for thread in 0..load.depth {
            let crew = &crew;
            scope.spawn(move || crew.serve(thread));
        }
        let times = crew.rounds(budget);
        crew.target.store(DISMISSED, Ordering::Release);
        crew.start.wait();
        times
    })
}
