//! How often the intervals over several machines cover the truth: machines differ by a random effect, and
//! each measures with a scatter of its own.

use lab::statistics::{ComparisonOptions, across_machines};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

const STUDIES: usize = 2000;
/// Four standard errors of a share of 0.95 in so many studies.
const TOLERANCE: f64 = 0.02;

/// One value of the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, turn): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

/// Shares of studies whose interval covers the mean cost, and whose second one covers what a further
/// machine measures.
fn covered(machines: usize, between: f64, errors: &[f64], seed: u64) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let truth = 0.2f64;
    let (mut mean, mut next) = (0, 0);
    for _ in 0..STUDIES {
        let mut measured = |machine: usize| {
            let error = errors[machine % errors.len()];
            let deviation = (between * between + error * error).sqrt();
            (truth + deviation * normal(&mut random)).exp()
        };
        let costs: Vec<f64> = (0..machines).map(&mut measured).collect();
        let found = across_machines(&[costs], &ComparisonOptions::default()).unwrap()[0];
        let (interval, expected) = (found.interval.unwrap(), found.next.unwrap());
        let within = |value: f64, low: f64, high: f64| usize::from(low <= value && value <= high);
        mean += within(truth.exp(), interval.low, interval.high);
        // The one that comes next is as the first ones are.
        next += within(measured(machines), expected.low, expected.high);
    }
    (mean as f64 / STUDIES as f64, next as f64 / STUDIES as f64)
}

#[test]
fn both_intervals_cover_what_they_claim_for_2_to_20_machines() {
    for machines in [2, 3, 5, 10, 20] {
        for between in [0.0, 0.02, 0.2] {
            let (mean, next) = covered(machines, between, &[0.05], 7);
            for (what, share) in [("mean", mean), ("next machine", next)] {
                assert!(
                    (share - 0.95).abs() <= TOLERANCE,
                    "{what}: {share} with {machines} machines that differ by {between}, seed 7"
                );
            }
        }
    }
}

#[test]
fn machines_that_scatter_differently_make_the_interval_err_less_often() {
    for machines in [2, 3, 5, 10, 20] {
        for between in [0.0, 0.02, 0.2] {
            let (mean, _) = covered(machines, between, &[0.01, 0.2], 11);
            assert!(mean >= 0.95 - TOLERANCE, "{mean}: {machines} machines, {between}, seed 11");
        }
    }
}

#[test]
fn a_family_has_a_false_difference_no_more_often_than_it_claims() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut wrong = 0;
    for _ in 0..STUDIES {
        let family: Vec<Vec<f64>> =
            (0..6).map(|_| (0..4).map(|_| f64::exp(0.1 * normal(&mut random))).collect()).collect();
        let found = across_machines(&family, &ComparisonOptions::default()).unwrap();
        wrong += usize::from(found.iter().any(|one| one.verdict.is_different()));
    }
    let share = wrong as f64 / STUDIES as f64;
    assert!(share <= 0.05 + TOLERANCE, "{share}");
}
