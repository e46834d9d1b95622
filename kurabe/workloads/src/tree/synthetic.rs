//! A source tree like that of the Linux kernel, made from a number of files and a seed.
//!
//! Pure: it says which entries there are and what is in them, and writes nothing. The shape
//! (sizes, depths, files in a directory, modes, links, lengths of names) follows figures
//! measured on Debian's package `linux-source-6.1`, version 6.1.192-2: 78,579 files with
//! 1,298,681,992 bytes in 5,096 directories, and 56 symbolic links; docs/reference/tree.md has the tables.
//! Invariants: the same number and seed give the same tree on every machine; every directory
//! comes before what is in it; names in a directory are distinct.

use std::collections::BTreeSet;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Files of the kernel's tree.
const KERNEL_FILES: u64 = 78_579;
const KERNEL_LINKS: u64 = 56;
/// Its files that may be executed.
const KERNEL_EXECUTABLES: u64 = 814;
/// Its directories, by depth; the first is the top.
const DIRECTORIES_BY_DEPTH: [u64; 10] = [1, 24, 608, 1505, 1383, 835, 287, 233, 164, 56];
/// Its files and links in directories of each depth.
const FILES_BY_DEPTH: [u64; 10] = [14, 1102, 13743, 24947, 20830, 11680, 3068, 2510, 510, 231];
/// Sizes in bytes at quantiles in parts of ten thousand.
const SIZE_QUANTILES: [(u32, u32); 34] = [
    (0, 0),
    (10, 14),
    (50, 48),
    (100, 73),
    (200, 125),
    (500, 254),
    (1000, 446),
    (1500, 687),
    (2000, 959),
    (2500, 1280),
    (3000, 1621),
    (3500, 2038),
    (4000, 2525),
    (4500, 3129),
    (5000, 3874),
    (5500, 4787),
    (6000, 5910),
    (6500, 7264),
    (7000, 9044),
    (7500, 11416),
    (8000, 14833),
    (8500, 19906),
    (9000, 28759),
    (9500, 48093),
    (9600, 55875),
    (9700, 66614),
    (9800, 83945),
    (9900, 124_858),
    (9950, 191_202),
    (9980, 402_767),
    (9990, 1_120_270),
    (9995, 2_103_101),
    (9999, 11_394_491),
    (10000, 23_944_620),
];
/// Files in a directory at quantiles in parts of a thousand.
const FILES_IN_DIRECTORY_QUANTILES: [(u32, u32); 19] = [
    (0, 0),
    (50, 0),
    (100, 1),
    (200, 2),
    (250, 3),
    (400, 4),
    (500, 6),
    (600, 8),
    (700, 11),
    (750, 14),
    (800, 18),
    (850, 23),
    (900, 32),
    (950, 52),
    (980, 104),
    (990, 156),
    (995, 210),
    (999, 600),
    (1000, 2545),
];
/// Lengths of files' names at quantiles in parts of a hundred.
const NAME_QUANTILES: [(u32, u32); 7] =
    [(0, 2), (5, 5), (25, 8), (50, 12), (75, 16), (95, 24), (100, 60)];
/// The longest name of a directory, so that the deepest path fits into an archive's header.
const DIRECTORY_NAME_MAX: usize = 14;
/// How uneven the subdirectories are spread over the directories: with this deviation of the
/// logarithm of the weights about three quarters of the directories get none, as in the kernel.
const SUBDIRECTORY_SPREAD: f64 = 2.0;

/// The text from which the contents are cut.
const POOL_BYTES: usize = 1 << 20;
/// The pieces of the pool that a file is made of.
const PIECE_BYTES: std::ops::Range<usize> = 256..4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    File {
        size_bytes: u64,
        /// Its place among the files: names its contents.
        index: u64,
    },
    Link {
        /// Where it points, relative to its directory.
        target: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its path, relative to the place of the tree; the first component is the tree's name.
    pub path: String,
    pub kind: EntryKind,
    pub mode: u32,
}

/// Files of a tree at most: it is kept in memory, with some 150 bytes a file.
pub const FILES_MAX: u64 = 10_000_000;

#[derive(Clone, Debug)]
pub struct SyntheticTree {
    entries: Vec<TreeEntry>,
    seed: u64,
    pool: Vec<u8>,
}

impl SyntheticTree {
    /// The tree of this many files for this seed.
    ///
    /// Panics when there are more than [`FILES_MAX`] files.
    pub fn new(files: u64, seed: u64) -> Self {
        assert!(files <= FILES_MAX, "a tree of {files} files is too large to be kept in memory");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directories = directories(files, &mut random);
        let links = scaled(KERNEL_LINKS, files);
        let mut entries: Vec<TreeEntry> = directories
            .iter()
            .map(|directory| TreeEntry {
                path: directory.path.clone(),
                kind: EntryKind::Directory,
                mode: 0o755,
            })
            .collect();
        let owners = owners(&directories, files + links, &mut random);
        let mut sizes = stratified(files, &mut random, |part| {
            u64::from(at_quantile(&SIZE_QUANTILES, 10_000, part))
        });
        sizes.shuffle(&mut random);
        let executables = scaled(KERNEL_EXECUTABLES, files);
        let mut names = Names::default();
        for (index, owner) in (0..files).zip(&owners) {
            let name = names.next(usize::MAX, &mut random);
            let is_executable = random.random_range(0..files) < executables;
            entries.push(TreeEntry {
                path: format!("{}/{name}", directories[*owner].path),
                kind: EntryKind::File { size_bytes: sizes[index as usize], index },
                mode: if is_executable { 0o755 } else { 0o644 },
            });
        }
        for owner in &owners[files as usize..] {
            let name = names.next(usize::MAX, &mut random);
            let directory = &directories[*owner];
            let target = link_target(&entries[directories.len()..], directory.depth, &mut random);
            entries.push(TreeEntry {
                path: format!("{}/{name}", directory.path),
                kind: EntryKind::Link { target },
                mode: 0o777,
            });
        }
        Self { entries, seed, pool: text_pool(seed) }
    }

    /// The entries: directories first, each after the one that it is in.
    pub fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    /// The contents of the file of this index and length: text that compresses about as source
    /// code does.
    pub fn contents(&self, index: u64, size_bytes: u64) -> Vec<u8> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed ^ index.wrapping_add(1) << 20);
        let size = usize::try_from(size_bytes).expect("a file of the tree fits the memory");
        let mut contents = Vec::with_capacity(size);
        contents.extend_from_slice(format!("/* {index:x} {:x} */\n", self.seed).as_bytes());
        while contents.len() < size {
            let length = random.random_range(PIECE_BYTES);
            let start = random.random_range(0..self.pool.len() - length);
            contents.extend_from_slice(&self.pool[start..start + length]);
        }
        contents.truncate(size);
        contents
    }
}

struct Directory {
    path: String,
    depth: usize,
}

/// A way from a directory over the top to a file: a link that leads somewhere. One that fits
/// into an archive's header; the directory itself when none is found.
fn link_target(files: &[TreeEntry], depth: usize, random: &mut ChaCha8Rng) -> String {
    const TARGET_BYTES_MAX: usize = 100;
    for _ in 0..16 {
        if files.is_empty() {
            break;
        }
        let goal = &files[random.random_range(0..files.len() as u64) as usize];
        let from_top = goal.path.split_once('/').map_or("", |(_, rest)| rest);
        let target = format!("{}{from_top}", "../".repeat(depth));
        if target.len() <= TARGET_BYTES_MAX {
            return target;
        }
    }
    ".".to_owned()
}

/// A count of the kernel's tree for a tree of another size, rounded to the nearest.
fn scaled(count: u64, files: u64) -> u64 {
    let product = u128::from(count) * u128::from(files) + u128::from(KERNEL_FILES) / 2;
    u64::try_from(product / u128::from(KERNEL_FILES)).expect("the tree's size is bounded")
}

/// The directories, level by level. A level that the scale would leave empty above one that it does
/// not has one, so that a small tree is no flat one.
fn directories(files: u64, random: &mut ChaCha8Rng) -> Vec<Directory> {
    let mut all = vec![Directory { path: "tree".to_owned(), depth: 0 }];
    let mut level = 0..1;
    let mut names = Names::default();
    let counts = DIRECTORIES_BY_DEPTH.map(|count| scaled(count, files));
    let deepest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    for (depth, count) in counts.iter().enumerate().take(deepest + 1).skip(1) {
        let count = (*count).max(1);
        let weights: Vec<f64> = level.clone().map(|_| log_normal(random)).collect();
        let parents = picked(&weights, count, random);
        let start = all.len();
        for parent in parents {
            let path = format!(
                "{}/{}",
                all[level.start + parent].path,
                names.next(DIRECTORY_NAME_MAX, random)
            );
            all.push(Directory { path, depth });
        }
        level = start..all.len();
    }
    all
}

/// The directory of each file and link: each depth gets its share, and within a depth the
/// directories are filled as unevenly as the kernel's.
fn owners(directories: &[Directory], count: u64, random: &mut ChaCha8Rng) -> Vec<usize> {
    let deepest = directories.last().map_or(0, |directory| directory.depth);
    let shares = &FILES_BY_DEPTH[..=deepest];
    let sum: u64 = shares.iter().sum();
    let mut owners = Vec::new();
    let mut placed_share = 0;
    for (depth, share) in shares.iter().enumerate() {
        // Rounding the running sum makes the parts add up to the whole.
        placed_share += share;
        let until = u128::from(count) * u128::from(placed_share) / u128::from(sum);
        let here = u64::try_from(until).expect("a part of the count") - owners.len() as u64;
        let start = directories.partition_point(|directory| directory.depth < depth);
        let end = directories.partition_point(|directory| directory.depth <= depth);
        let drawn = stratified((end - start) as u64, random, |part| {
            u64::from(at_quantile(&FILES_IN_DIRECTORY_QUANTILES, 1000, part))
        });
        let mut weights: Vec<f64> = drawn.iter().map(|files| *files as f64).collect();
        weights.shuffle(random);
        if weights.iter().all(|weight| *weight == 0.0) {
            weights.fill(1.0);
        }
        owners.extend(picked(&weights, here, random).into_iter().map(|place| start + place));
    }
    owners
}

/// Picks `count` places by weight, with strata: each place is picked as often as its weight
/// says, but for the rounding.
fn picked(weights: &[f64], count: u64, random: &mut ChaCha8Rng) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let mut picks = Vec::new();
    let mut place = 0;
    let mut reached = weights[0];
    for stratum in 0..count {
        let goal = (stratum as f64 + random.random::<f64>()) / count as f64 * sum;
        while reached < goal && place + 1 < weights.len() {
            place += 1;
            reached += weights[place];
        }
        picks.push(place);
    }
    picks
}

/// One draw from each of `count` equal parts of a distribution, in order. So even a small tree
/// has large files in proportion.
fn stratified(count: u64, random: &mut ChaCha8Rng, value: impl Fn(f64) -> u64) -> Vec<u64> {
    (0..count).map(|part| value((part as f64 + random.random::<f64>()) / count as f64)).collect()
}

/// The value at a part of the whole, by straight lines between the known quantiles: of the
/// logarithms, because sizes spread over seven powers of ten.
fn at_quantile(quantiles: &[(u32, u32)], whole: u32, part: f64) -> u32 {
    let at = part.clamp(0.0, 1.0) * f64::from(whole);
    let after = quantiles.partition_point(|(quantile, _)| f64::from(*quantile) < at);
    let (high_at, high) = quantiles[after.clamp(1, quantiles.len() - 1)];
    let (low_at, low) = quantiles[after.clamp(1, quantiles.len() - 1) - 1];
    let between = (at - f64::from(low_at)) / f64::from(high_at - low_at);
    let (low, high) = (f64::from(low) + 1.0, f64::from(high) + 1.0);
    // libm and not the platform's, so that all machines make the same tree.
    (libm::exp(libm::log(low) + between * (libm::log(high) - libm::log(low))) - 1.0).round() as u32
}

fn log_normal(random: &mut ChaCha8Rng) -> f64 {
    // The sum of twelve uniform draws is normal enough, and exact on every machine.
    let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    libm::exp(SUBDIRECTORY_SPREAD * normal)
}

/// Gives out distinct names with the lengths of the kernel's.
#[derive(Default)]
struct Names {
    given: u64,
}

impl Names {
    /// A name of at most this length, as far as it can be distinct.
    fn next(&mut self, length_max: usize, random: &mut ChaCha8Rng) -> String {
        const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
        let length = at_quantile(&NAME_QUANTILES, 100, random.random::<f64>()) as usize;
        let length = length.min(length_max);
        // A number in base 26 makes the name distinct, letters before it make it long enough.
        let mut suffix = Vec::new();
        let mut number = self.given;
        self.given += 1;
        loop {
            suffix.push(LETTERS[(number % 26) as usize]);
            number /= 26;
            if number == 0 {
                break;
            }
        }
        let mut name = String::new();
        while name.len() + suffix.len() + 1 < length {
            name.push(char::from(LETTERS[random.random_range(0..26)]));
        }
        // Between letters and number, so that no two names can run together to the same.
        name.push('_');
        name.extend(suffix.iter().rev().map(|byte| char::from(*byte)));
        name
    }
}

/// Words, blanks and line ends, with a few words far oftener than the others.
fn text_pool(seed: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(!seed);
    let mut words = BTreeSet::new();
    while words.len() < 2000 {
        let length = random.random_range(2..11);
        let word: String =
            (0..length).map(|_| char::from(b'a' + random.random_range(0..26_u8))).collect();
        words.insert(word);
    }
    let mut words: Vec<String> = words.into_iter().collect();
    words.shuffle(&mut random);
    let mut pool = Vec::with_capacity(POOL_BYTES + 128);
    let mut column = 0;
    while pool.len() < POOL_BYTES {
        // The product of three uniform draws prefers the first words, as language does.
        let draw: f64 = random.random::<f64>() * random.random::<f64>() * random.random::<f64>();
        let word = &words[(draw * words.len() as f64) as usize];
        pool.extend_from_slice(word.as_bytes());
        column += word.len() + 1;
        if column > 60 {
            pool.extend_from_slice(b";\n\t");
            column = 0;
        } else {
            pool.push(b' ');
        }
    }
    pool.truncate(POOL_BYTES);
    pool
}

#[cfg(test)]
#[path = "synthetic_tests.rs"]
mod tests;
