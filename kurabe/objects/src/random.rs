//! Random numbers that are the same for the same seed, on every machine and in every release.
//!
//! The generators are written out here and in `block`, and the logarithm and exponential come from a portable
//! library, because a command stream must be a pure function of text and seed: neither a new
//! release of a random-number crate nor another C library may change it.
//!
//! Must not know: what the numbers are used for.

pub use block::{mix, word_at};

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018),
/// seeded through SplitMix64 as its authors advise.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: [0, 1, 2, 3].map(|place| word_at(seed, place)) }
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let mixed_c = c ^ a;
        let mixed_d = d ^ b;
        self.state = [a ^ mixed_d, b ^ mixed_c, mixed_c ^ (b << 17), mixed_d.rotate_left(45)];
        result
    }

    /// An integer of `0..bound`, each equally likely (Lemire, "Fast random integer generation in an
    /// interval", 2019). `bound` must not be zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let rejected = bound.wrapping_neg() % bound;
            while (product as u64) < rejected {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number of the half-open interval (0, 1]: never zero, so its logarithm is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number of the standard normal distribution (Box and Muller, 1958; the second number of
    /// each pair is not used, so that every call draws equally much).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// A number of the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }
}

/// Ranks 1 to n with probability proportional to `rank ^ -exponent`, in constant time for any n
/// (rejection-inversion: Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996). What depends on n is kept until n changes.
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    count: u64,
    integral_at_first: f64,
    integral_at_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// The distribution with this exponent, which must be finite and greater than zero.
    pub fn new(exponent: f64) -> Zipf {
        assert!(exponent.is_finite() && exponent > 0.0, "exponent {exponent}");
        let mut zipf = Zipf {
            exponent,
            count: 0,
            integral_at_first: 0.0,
            integral_at_last: 0.0,
            shortcut: 0.0,
        };
        zipf.integral_at_first = zipf.integral(1.5) - 1.0;
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    /// Makes the ranks `1..=count`; `count` must not be zero.
    #[inline]
    pub fn set_count(&mut self, count: u64) {
        debug_assert!(count > 0);
        if count != self.count {
            self.count = count;
            self.integral_at_last = self.integral(count as f64 + 0.5);
        }
    }

    /// A rank of `1..=count`, of the count that was set last.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let count = self.count;
        assert!(count > 0, "the number of ranks was never set");
        loop {
            let area = self.integral_at_last
                + random.unit() * (self.integral_at_first - self.integral_at_last);
            let place = self.inverse(area);
            let rank = (place + 0.5).clamp(1.0, count as f64) as u64;
            let near = rank as f64;
            if near - place <= self.shortcut
                || area >= self.integral(near + 0.5) - self.height(near)
            {
                return rank;
            }
        }
    }

    /// `x ^ -exponent`.
    fn height(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// The integral of the height from 1 to x: `(x ^ (1 - e) - 1) / (1 - e)`, `ln x` at e = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        expm1_over((1.0 - self.exponent) * log) * log
    }

    /// The x at which the integral has this value.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may carry the argument of the logarithm just below zero's image.
        let argument = (area * (1.0 - self.exponent)).max(-1.0);
        libm::exp(log1p_over(argument) * area)
    }
}

/// `(e^x - 1) / x`, continued to 1 at zero.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`, continued to 1 at zero.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // State 1, 2, 3, 4: the first outputs of the authors' reference implementation.
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
        ];
        for value in expected {
            assert_eq!(random.next_u64(), value);
        }
    }

    #[test]
    fn bounded_integers_are_evenly_spread() {
        let mut random = Random::new(1);
        let mut counts = [0u64; 7];
        for _ in 0..700_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Six degrees of freedom: chi-square above 22.5 has probability 0.001.
        let chi_square: f64 =
            counts.iter().map(|&count| (count as f64 - 100_000.0).powi(2) / 100_000.0).sum();
        assert!(chi_square < 22.5, "{chi_square} of {counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn zipf_has_its_probabilities() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let mut random = Random::new(2);
            let mut zipf = Zipf::new(exponent);
            const COUNT: usize = 10;
            const DRAWS: f64 = 400_000.0;
            zipf.set_count(COUNT as u64);
            let mut counts = [0u64; COUNT];
            for _ in 0..DRAWS as u64 {
                counts[zipf.rank(&mut random) as usize - 1] += 1;
            }
            let weights: Vec<f64> = (1..=COUNT).map(|rank| (rank as f64).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            let chi_square: f64 = weights
                .iter()
                .zip(counts)
                .map(|(weight, count)| {
                    let expected = DRAWS * weight / sum;
                    (count as f64 - expected).powi(2) / expected
                })
                .sum();
            // Nine degrees of freedom: chi-square above 27.9 has probability 0.001.
            assert!(chi_square < 27.9, "exponent {exponent}: {chi_square}");
        }
    }

    #[test]
    fn zipf_stays_within_its_ranks_when_they_change() {
        let mut random = Random::new(3);
        let mut zipf = Zipf::new(0.99);
        for count in [1, 2, 1_000_000_000_000, 3, 1] {
            zipf.set_count(count);
            for _ in 0..1000 {
                let rank = zipf.rank(&mut random);
                assert!((1..=count).contains(&rank));
            }
        }
    }

    #[test]
    fn normal_and_exponential_have_their_moments() {
        let mut random = Random::new(4);
        let draws = 200_000;
        let (mut sum, mut squares, mut waits) = (0.0, 0.0, 0.0);
        for _ in 0..draws {
            let value = random.normal();
            sum += value;
            squares += value * value;
            waits += random.exponential();
        }
        let draws = f64::from(draws);
        // Standard errors are 0.0022, 0.0032 and 0.0022.
        assert!((sum / draws).abs() < 0.01);
        assert!((squares / draws - 1.0).abs() < 0.015);
        assert!((waits / draws - 1.0).abs() < 0.01);
    }
}
