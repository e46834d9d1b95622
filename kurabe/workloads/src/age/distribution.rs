//! How large files are, how old, and how deep they lie: published histograms, one data file each.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

pub struct Distribution {
    /// Its name: the file's.
    pub name: &'static str,
    text: &'static str,
}

/// All of them; the first one is taken unless another is named.
pub const ALL: [Distribution; 3] = [
    Distribution { name: "agrawal", text: include_str!("distributions/agrawal.txt") },
    Distribution { name: "douceur", text: include_str!("distributions/douceur.txt") },
    Distribution { name: "meyer", text: include_str!("distributions/meyer.txt") },
];

pub const VARMAIL: Distribution =
    Distribution { name: "varmail", text: include_str!("distributions/varmail.txt") };

/// Shares of what lies up to each of some bounds, in their order; they add up to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(pub Vec<(f64, f64)>);

/// Directories of one depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Names in their path.
    pub depth: u32,
    /// The share of the files in them.
    pub share: f64,
    pub directories: u32,
}

/// What a data file says.
#[derive(Clone, Debug, PartialEq)]
pub struct DistributionFile {
    /// Sizes in bytes.
    pub sizes: Histogram,
    /// Ages, as parts of the history.
    pub ages: Histogram,
    /// Where files lie.
    pub depths: Vec<Depth>,
}

impl Distribution {
    /// Reads the data file.
    ///
    /// Panics when a line of it is of no known form, which a test of all files excludes.
    pub fn shape(&self) -> DistributionFile {
        let (mut sizes, mut ages, mut depths) = (Vec::new(), Vec::new(), Vec::new());
        let lines = self.text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| -> f64 { words[at].parse().expect("a number") };
            match words[0] {
                "size" => sizes.push((number(1), number(2))),
                "age" => ages.push((number(1), number(2))),
                "depth" => depths.push(Depth {
                    depth: number(1) as u32,
                    share: number(2),
                    directories: (number(3) as u32).max(1),
                }),
                other => panic!("{}: no line begins with '{other}'", self.name),
            }
        }
        let oldest = ages.last().map_or(1.0, |(age, _)| *age);
        ages.iter_mut().for_each(|(age, _)| *age /= oldest);
        // A directory has a name at least.
        let mut depths: Vec<Depth> = depths.into_iter().filter(|one| one.share > 0.0).collect();
        let sum: f64 = depths.iter().map(|one| one.share).sum();
        depths.iter_mut().for_each(|one| one.share /= sum);
        DistributionFile { sizes: Histogram::of(sizes), ages: Histogram::of(ages), depths }
    }
}

impl Histogram {
    fn of(mut weights: Vec<(f64, f64)>) -> Histogram {
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        weights.iter_mut().for_each(|(_, weight)| *weight /= sum);
        Histogram(weights)
    }

    /// The same without what lies above a bound.
    pub fn up_to(&self, most: f64) -> Histogram {
        Histogram::of(self.0.iter().copied().filter(|(bound, _)| *bound <= most).collect())
    }

    /// The number of the interval in which a value lies.
    pub fn place(&self, value: f64) -> usize {
        self.0.partition_point(|(bound, _)| *bound < value).min(self.0.len() - 1)
    }

    /// A value: an interval by its share, and in it by straight lines of the logarithm.
    pub fn draw(&self, random: &mut ChaCha8Rng) -> u64 {
        let at = pick(self.0.iter().map(|(_, share)| *share), random);
        let high = self.0[at].0;
        let low = if at == 0 { 0.0 } else { self.0[at - 1].0 };
        let part: f64 = random.random();
        // libm and not the platform's, so that all machines draw the same.
        let (low, high) = (libm::log(low + 1.0), libm::log(high + 1.0));
        // Above the bound of the interval before.
        (libm::exp(low + part * (high - low)) - 1.0).ceil() as u64
    }
}

/// The place of one of some shares that add up to 1.
pub fn pick(shares: impl Iterator<Item = f64>, random: &mut ChaCha8Rng) -> usize {
    let mut left: f64 = random.random();
    let mut last = 0;
    for (at, share) in shares.enumerate() {
        last = at;
        left -= share;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn what_is_drawn_has_the_shares_and_the_mean_of_the_data() {
        for distribution in ALL.iter().chain([&VARMAIL]) {
            let DistributionFile { sizes, ages, depths } = distribution.shape();
            for (bounds, name) in [(&sizes.0, "sizes"), (&ages.0, "ages")] {
                assert!(bounds.windows(2).all(|two| two[0].0 < two[1].0), "{name}");
                let sum: f64 = bounds.iter().map(|(_, share)| share).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{name}: {sum}");
            }
            assert!(depths.windows(2).all(|two| two[0].depth < two[1].depth));
            let mut random = ChaCha8Rng::seed_from_u64(5);
            let mut counts = vec![0_u32; sizes.0.len()];
            let sizes = sizes.up_to(1e6);
            const DRAWS: u32 = 100_000;
            for _ in 0..DRAWS {
                let size = sizes.draw(&mut random) as f64;
                counts[sizes.place(size)] += 1;
            }
            for ((bound, share), count) in sizes.0.iter().zip(&counts) {
                let found = f64::from(*count) / f64::from(DRAWS);
                assert!(
                    (found - share).abs() < 0.01,
                    "{}: {bound}: {found} {share}",
                    distribution.name
                );
            }
        }
    }
}
