//! Comparisons across results, on simulated results with known truth: no effect is called one in at
//! most 5 % of families, and a known effect is found. The seeds are fixed.

use lab::statistics::{ComparisonOptions, UnpairedComparison, Verdict, compare_unpaired_family};

mod simulation;

use simulation::{Laboratory, NOISES, Noise, count_max};

const OPTIONS: ComparisonOptions =
    ComparisonOptions { confidence: 0.95, same_within: 0.05, looks: Vec::new() };
/// Under these, every interval that excludes 1 is a difference.
const WITHOUT_MARGIN: ComparisonOptions =
    ComparisonOptions { confidence: 0.95, same_within: 0.0, looks: Vec::new() };

fn different(comparison: &UnpairedComparison) -> bool {
    matches!(comparison.verdict, Verdict::Faster | Verdict::Slower)
}

/// The samples of each contender in a result of so many blocks.
fn result(
    laboratory: &mut Laboratory,
    noise: Noise,
    sigma: f64,
    truth: &[f64],
    blocks: usize,
) -> Vec<Vec<f64>> {
    let samples = laboratory.samples(noise, sigma, truth, blocks);
    samples.into_iter().map(|values| values.into_iter().flatten().collect()).collect()
}

fn compared(
    laboratory: &mut Laboratory,
    (noise, sigma): (Noise, f64),
    (before, after): (&[f64], &[f64]),
    (blocks_before, blocks_after): (usize, usize),
    options: &ComparisonOptions,
) -> Vec<UnpairedComparison> {
    let before = result(laboratory, noise, sigma, before, blocks_before);
    let after = result(laboratory, noise, sigma, after, blocks_after);
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = before.into_iter().zip(after).collect();
    compare_unpaired_family(&pairs, options).unwrap()
}

#[test]
fn no_effect_is_called_one_in_at_most_one_family_of_twenty() {
    const FAMILIES: usize = 1500;
    let mut laboratory = Laboratory::new(11);
    for noise in NOISES {
        // Shared shocks make the contenders of one result alike, and Holm's bound holds for that too.
        for (contenders, blocks) in [(1, (3, 3)), (1, (5, 5)), (1, (5, 20)), (3, (6, 9))] {
            let truth = vec![1.0; contenders];
            let called = (0..FAMILIES)
                .filter(|_| {
                    let found = compared(
                        &mut laboratory,
                        (noise, 0.05),
                        (&truth, &truth),
                        blocks,
                        &WITHOUT_MARGIN,
                    );
                    found.iter().any(different)
                })
                .count();
            assert!(
                called <= count_max(FAMILIES, 0.055),
                "{noise:?}, {contenders} contenders, {blocks:?} blocks: {called} of {FAMILIES}"
            );
        }
    }
}

#[test]
fn a_known_effect_is_found_and_no_effect_is_called_the_same() {
    const FAMILIES: usize = 300;
    let mut laboratory = Laboratory::new(12);
    let normal = (Noise::Normal, 0.02);
    let (mut found_effect, mut found_none, mut covered) = (0, 0, 0);
    for _ in 0..FAMILIES {
        let found = compared(&mut laboratory, normal, (&[1.0, 7.0], &[1.2, 7.0]), (6, 8), &OPTIONS);
        found_effect += usize::from(found[0].verdict == Verdict::Slower);
        found_none += usize::from(found[1].verdict == Verdict::Same { within: 0.05 });
        let interval = found[0].interval.unwrap();
        covered += usize::from((interval.low..=interval.high).contains(&1.2));
    }
    assert!(found_effect >= FAMILIES * 99 / 100, "{found_effect}");
    assert!(found_none >= FAMILIES * 8 / 10, "{found_none}");
    assert!(FAMILIES - covered <= count_max(FAMILIES, 0.05), "{covered}");
}

#[test]
fn a_change_of_the_whole_machine_is_not_told_from_an_effect() {
    // The limit that the report has to say: a drift between two results looks like a difference.
    let mut laboratory = Laboratory::new(13);
    let drifted = [1.3, 1.3];
    let found =
        compared(&mut laboratory, (Noise::Normal, 0.01), (&[1.0, 1.0], &drifted), (5, 5), &OPTIONS);
    assert!(found.iter().all(different), "{found:?}");
}

#[test]
fn exchanging_the_two_gives_the_reciprocal() {
    let mut laboratory = Laboratory::new(14);
    for round in 0..200 {
        let noise = NOISES[round % NOISES.len()];
        let before = result(&mut laboratory, noise, 0.05, &[1.0], 3 + round % 9);
        let after = result(&mut laboratory, noise, 0.05, &[1.1], 3 + round % 7);
        let there = compare_unpaired_family(&[(&before[0], &after[0])], &OPTIONS).unwrap()[0];
        let back = compare_unpaired_family(&[(&after[0], &before[0])], &OPTIONS).unwrap()[0];
        let reciprocal = |left: f64, right: f64| (left * right - 1.0).abs() < 1e-9;
        assert!(reciprocal(there.ratio.unwrap(), back.ratio.unwrap()));
        let (there, back) = (there.interval.unwrap(), back.interval.unwrap());
        assert!(reciprocal(there.low, back.high) && reciprocal(there.high, back.low));
    }
}
