//! What can be said of a probability from tries in which nothing happened.

/// The confidence of [`none_of`].
pub const NONE_OF_CONFIDENCE: f64 = 0.95;

/// The greatest probability of an event that is still believable, with 95 % confidence, when none
/// of `tried` independent tries had it: the p of which (1 - p)^n = 0.05, which is
/// 1 - 0.05^(1/n), about 3 / n (the rule of three; J. A. Hanley and A. Lippman-Hand, *If Nothing
/// Goes Wrong, Is Everything All Right?*, JAMA 249, 1983, 1743 to 1745). None without a try.
pub fn none_of(tried: u64) -> Option<f64> {
    // By the logarithm, so that small probabilities keep their digits.
    (tried > 0).then(|| -((1.0 - NONE_OF_CONFIDENCE).ln() / tried as f64).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_n_tries_bounds_the_probability_by_the_rule_of_three() {
        assert_eq!(none_of(0), None);
        for (tried, bound) in [(1, 0.95), (2, 0.776_393), (10, 0.258_866), (100, 0.029_513)] {
            assert!((none_of(tried).unwrap() - bound).abs() < 1e-6, "{tried}");
        }
        for tried in [1_000, 10_000, 1 << 40] {
            let product = none_of(tried).unwrap() * tried as f64;
            assert!((2.99..3.0).contains(&product), "{tried}: {product}");
        }
    }

    /// Of events with exactly the probability of the bound, none is seen in one of twenty samples.
    #[test]
    fn the_bound_has_the_confidence_that_it_claims() {
        use rand::{RngExt as _, SeedableRng as _};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(13);
        let (samples, tried) = (20_000, 50);
        let bound = none_of(tried).unwrap();
        let none = |_: &u32| (0..tried).all(|_| random.random::<f64>() >= bound);
        let missed = (0..samples).filter(none).count() as f64 / f64::from(samples);
        assert!((missed - 0.05).abs() < 0.005, "{missed}");
    }
}
