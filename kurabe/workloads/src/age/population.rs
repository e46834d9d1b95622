//! Files that come and go until the capacity has been written several times, at a given fill level.
//!
//! Pure: it says what happens next and touches nothing. The method is Geriatrix's: sizes are drawn from their
//! distribution; which file goes is decided by age, so that the ages of those that stay follow theirs. An age
//! is a part of the history so far, since no machine has years for it. Where the capacity is written so few
//! times that there are not enough young files, the history stands for the last part of the time alone: all
//! ages are longer by one factor, and those beyond the beginning are one.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::distribution::{DistributionFile, Histogram, pick};

/// Bytes of a block: what the last one of a file leaves free is taken all the same.
const BLOCK_BYTES: u64 = 4096;
/// What a file takes besides its blocks: its inode and its name, roughly.
const OVERHEAD_BYTES: u64 = 512;
/// No file is larger than this part of the capacity.
const LARGEST_SHARE: f64 = 1.0 / 16.0;

/// So many of the youngest may be missing.
const YOUNGEST_SHARE: f64 = 0.1;

/// An age beyond this is the whole history's: what is left of it is too short to be an interval.
const OLDEST_AGE: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    Born(File),
    Gone(File),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// How many came before it.
    pub number: u64,
    pub size_bytes: u64,
    /// Its directory: the place of its depth among the depths, and its number among those of that depth.
    pub directory: (usize, u32),
}

/// Files that come and go.
pub struct Population {
    shape: DistributionFile,
    sizes: Histogram,
    ages: Histogram,
    most_bytes: u64,
    goal_bytes: u64,
    random: ChaCha8Rng,
    files: Vec<Option<File>>,
    living: Living,
    live_bytes: u64,
    written_bytes: u64,
    next: Option<File>,
}

impl Population {
    /// One that fills `fill` of a capacity, until that was written `times` times.
    pub fn new(
        shape: DistributionFile,
        capacity_bytes: u64,
        fill: f64,
        times: f64,
        seed: u64,
    ) -> Population {
        let most_bytes = (capacity_bytes as f64 * fill) as u64;
        let sizes = shape.sizes.up_to(capacity_bytes as f64 * LARGEST_SHARE);
        let goal_bytes = (capacity_bytes as f64 * times) as u64;
        Population {
            sizes,
            ages: within_reach(&shape.ages, times / fill),
            shape,
            most_bytes,
            goal_bytes,
            random: ChaCha8Rng::seed_from_u64(seed),
            files: Vec::new(),
            living: Living::default(),
            live_bytes: 0,
            written_bytes: 0,
            next: None,
        }
    }

    fn taken_bytes(file: &File) -> u64 {
        file.size_bytes.next_multiple_of(BLOCK_BYTES) + OVERHEAD_BYTES
    }

    fn draw(&mut self) -> File {
        let size_bytes = self.sizes.draw(&mut self.random);
        let depths = &self.shape.depths;
        let depth = pick(depths.iter().map(|one| one.share), &mut self.random);
        let directory = (depth, self.random.random_range(0..depths[depth].directories));
        File { number: self.files.len() as u64, size_bytes, directory }
    }

    /// The file that goes: a random one of the age of which there are too many.
    fn victim(&mut self) -> File {
        let now = self.files.len() as f64;
        let count = self.living.count() as f64;
        // Born before: of the oldest interval nobody.
        let born = |age: f64| (now * (1.0 - age)).round() as usize;
        let mut young = 0.0;
        let mut worst = (f64::NEG_INFINITY, 0..0);
        for (age, share) in &self.ages.0 {
            let range = born(*age)..born(young);
            let found = self.living.before(range.end) - self.living.before(range.start);
            let surplus = found as f64 - share * count;
            if found > 0 && surplus > worst.0 {
                worst = (surplus, range);
            }
            young = *age;
        }
        let range = worst.1;
        let before = self.living.before(range.start);
        let found = self.living.before(range.end) - before;
        let at = self.living.find(before + self.random.random_range(0..found));
        self.living.set(at, false);
        self.files[at].take().expect("it lives")
    }

    /// The shares of sizes and ages that are there, next to those that were wanted.
    pub fn shares(&self) -> String {
        let live: Vec<&File> = self.files.iter().flatten().collect();
        let (count, now) = (live.len().max(1) as f64, self.files.len() as f64);
        let mut sizes = vec![0_u64; self.sizes.0.len()];
        let mut ages = vec![0_u64; self.ages.0.len()];
        for file in live {
            sizes[self.sizes.place(file.size_bytes as f64)] += 1;
            ages[self.ages.place((now - file.number as f64) / now)] += 1;
        }
        let mut text = String::from("files up to        wanted   found\n");
        for ((bound, share), found) in self.sizes.0.iter().zip(sizes) {
            let (bound, found) = (trust::quantity::about_text(*bound as u64), found as f64 / count);
            text.push_str(&format!(
                "{bound:<16} {:>6.1} % {:>5.1} %\n",
                share * 100.0,
                found * 100.0
            ));
        }
        text.push_str("age, of the whole  wanted   found\n");
        for ((bound, share), found) in self.ages.0.iter().zip(ages) {
            let (bound, found) = (format!("{:.3} %", bound * 100.0), found as f64 / count);
            text.push_str(&format!(
                "{bound:<16} {:>6.1} % {:>5.1} %\n",
                share * 100.0,
                found * 100.0
            ));
        }
        text
    }

    /// The files that are there.
    pub fn living(&self) -> u64 {
        self.living.count() as u64
    }

    /// The bytes of all files that came.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

/// The ages, longer by the factor without which more young files would be wanted than come in a history that writes
/// all files so many times.
fn within_reach(ages: &Histogram, turnover: f64) -> Histogram {
    let ages = &pooled(ages);
    let mut sum = 0.0;
    let mut factor: f64 = 1.0;
    for (age, share) in &ages.0 {
        sum += share;
        // A few that are younger than anything else here decide nothing.
        if sum >= YOUNGEST_SHARE {
            factor = factor.max(sum / (age * turnover));
        }
    }
    // So many more that there is a choice.
    let factor = if factor > 1.0 { factor * 1.1 } else { factor };
    let mut all: Vec<(f64, f64)> = Vec::new();
    for (age, share) in &ages.0 {
        let age = if age * factor > OLDEST_AGE { 1.0 } else { age * factor };
        match all.last_mut() {
            Some(last) if last.0 >= 1.0 => last.1 += share,
            _ => all.push((age, *share)),
        }
    }
    Histogram(all)
}

/// The ages, with intervals joined until none is fuller than one of younger files: who is old was young before, so
/// no history that goes on as it did has more of the old.
fn pooled(ages: &Histogram) -> Histogram {
    let mut all: Vec<(f64, f64)> = Vec::new();
    let start = |all: &[(f64, f64)]| all.last().map_or(0.0, |(age, _)| *age);
    for (age, share) in &ages.0 {
        all.push((*age, *share));
        while let [.., (middle, before), (end, last)] = all[..] {
            let begin = start(&all[..all.len() - 2]);
            if before / (middle - begin) >= last / (end - middle) {
                break;
            }
            all.truncate(all.len() - 2);
            all.push((end, before + last));
        }
    }
    Histogram(all)
}

impl Iterator for Population {
    type Item = FileEvent;

    fn next(&mut self) -> Option<FileEvent> {
        if self.written_bytes >= self.goal_bytes {
            return None;
        }
        let file = match self.next.take() {
            Some(file) => file,
            None => self.draw(),
        };
        if self.live_bytes + Self::taken_bytes(&file) > self.most_bytes && self.living.count() > 0 {
            self.next = Some(file);
            let gone = self.victim();
            self.live_bytes -= Self::taken_bytes(&gone);
            return Some(FileEvent::Gone(gone));
        }
        self.live_bytes += Self::taken_bytes(&file);
        self.written_bytes += file.size_bytes;
        self.living.set(self.files.len(), true);
        self.files.push(Some(file));
        Some(FileEvent::Born(file))
    }
}

/// Who lives, by the order of birth: a binary indexed tree (Fenwick, 1994).
#[derive(Default)]
struct Living {
    alive: Vec<bool>,
    /// Of each place, how many live among as many places before it as its lowest bit says.
    sums: Vec<u32>,
    count: usize,
}

impl Living {
    fn count(&self) -> usize {
        self.count
    }

    fn set(&mut self, at: usize, alive: bool) {
        while self.alive.len() <= at {
            self.alive.push(false);
            let place = self.alive.len();
            // What the places below have so far.
            let low = place & place.wrapping_neg();
            let mut sum = 0;
            let mut step = 1;
            while step < low {
                sum += self.sums[place - step - 1];
                step <<= 1;
            }
            self.sums.push(sum);
        }
        if self.alive[at] == alive {
            return;
        }
        self.alive[at] = alive;
        self.count = if alive { self.count + 1 } else { self.count - 1 };
        let mut place = at + 1;
        while place <= self.sums.len() {
            let sum = &mut self.sums[place - 1];
            *sum = if alive { *sum + 1 } else { *sum - 1 };
            place += place & place.wrapping_neg();
        }
    }

    /// How many live of those before a place.
    fn before(&self, end: usize) -> usize {
        let mut place = end.min(self.sums.len());
        let mut sum = 0;
        while place > 0 {
            sum += self.sums[place - 1] as usize;
            place &= place - 1;
        }
        sum
    }

    /// The place of the one before which so many live.
    fn find(&self, mut rank: usize) -> usize {
        let mut place = 0;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            let next = place + step;
            if next <= self.sums.len() && self.sums[next - 1] as usize <= rank {
                rank -= self.sums[next - 1] as usize;
                place = next;
            }
            step >>= 1;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::distribution::ALL;

    const CAPACITY_BYTES: u64 = 512 << 20;

    fn lived(distribution: usize, seed: u64) -> (Population, u64) {
        let shape = ALL[distribution].shape();
        let mut all = Population::new(shape, CAPACITY_BYTES, 0.8, 6.0, seed);
        let (mut live, mut most) = (0_u64, 0_u64);
        for event in all.by_ref() {
            match event {
                FileEvent::Born(file) => live += file.size_bytes,
                FileEvent::Gone(file) => live -= file.size_bytes,
            }
            most = most.max(live);
        }
        (all, most)
    }

    #[test]
    fn the_ages_and_sizes_of_those_that_stay_are_the_published_ones() {
        for (place, distribution) in ALL.iter().enumerate() {
            let (all, most) = lived(place, 3);
            assert!(most <= CAPACITY_BYTES * 8 / 10, "{most}");
            assert!(all.written_bytes() >= 6 * CAPACITY_BYTES);
            let now = all.files.len() as f64;
            let count = all.living() as f64;
            let mut ages = vec![0.0; all.ages.0.len()];
            let mut sizes = vec![0.0; all.sizes.0.len()];
            for file in all.files.iter().flatten() {
                ages[all.ages.place((now - file.number as f64) / now)] += 1.0 / count;
                sizes[all.sizes.place(file.size_bytes as f64)] += 1.0 / count;
            }
            let apart = |histogram: &Histogram, found: &[f64]| -> f64 {
                let pairs = histogram.0.iter().zip(found);
                pairs.map(|((_, share), found)| (share - found).abs() / 2.0).sum()
            };
            let (ages, sizes) = (apart(&all.ages, &ages), apart(&all.sizes, &sizes));
            assert!(ages < 0.08, "{}: {ages}\n{}", distribution.name, all.shares());
            assert!(sizes < 0.05, "{}: {sizes}\n{}", distribution.name, all.shares());
        }
    }

    #[test]
    fn equal_seeds_give_equal_histories() {
        let history = |seed| -> Vec<FileEvent> {
            Population::new(ALL[0].shape(), 64 << 20, 0.5, 1.0, seed).collect()
        };
        assert_eq!(history(1), history(1));
        assert_ne!(history(1), history(2));
    }

    #[test]
    fn the_tree_counts_and_finds() {
        let mut living = Living::default();
        for at in 0..100 {
            living.set(at, at % 3 == 0);
        }
        assert_eq!((living.count(), living.before(10), living.before(1000)), (34, 4, 34));
        living.set(9, false);
        assert_eq!((living.find(0), living.find(3), living.find(32)), (0, 12, 99));
    }
}
