//! The model with two levels (runs within blocks, blocks) and looks that know the last one, on simulated
//! studies of two equal contenders and of one that costs 10 % more: a study looks after every block
//! from the third on, and its budget ends it. Seeds are fixed.

use lab::statistics::{
    ComparisonOptions, CostEstimate, Group, StopRule, Verdict, compare_families, runs, slow_turns,
};

mod simulation;

use simulation::{Laboratory, count_max};

/// Runs within a block and blocks, as measured on an idle machine (standard deviations of logarithms).
const RUN_SIGMA: f64 = 0.105;
const BLOCK_SIGMA: f64 = 0.036;

/// What makes runs differ besides normal noise.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    Normal,
    /// A run in five takes half as long again, of either.
    TwoModes,
    /// Every run takes 1 % longer than the one before.
    Drift,
    /// Blocks do not differ at all.
    AlikeBlocks,
    /// Blocks differ three times as much.
    UnlikeBlocks,
}

const CASES: [Case; 5] =
    [Case::Normal, Case::TwoModes, Case::Drift, Case::AlikeBlocks, Case::UnlikeBlocks];

/// One block: the logarithms of the costs of two contenders in each round.
fn block(
    laboratory: &mut Laboratory,
    case: Case,
    effect: f64,
    rounds: usize,
    number: usize,
) -> (Vec<f64>, Vec<f64>) {
    let of_block = match case {
        Case::AlikeBlocks => 0.0,
        Case::UnlikeBlocks => 3.0 * BLOCK_SIGMA,
        _ => BLOCK_SIGMA,
    };
    let mut contender = |level: f64, place: usize| -> Vec<f64> {
        let level = level + of_block / 2f64.sqrt() * laboratory.normal();
        let mut run = |round: usize| {
            let slow = case == Case::TwoModes && laboratory.uniform() < 0.2;
            let before = 2 * (number * rounds + round) + place;
            let drift = if case == Case::Drift { 0.01 * before as f64 } else { 0.0 };
            let noise = RUN_SIGMA / 2f64.sqrt() * laboratory.normal();
            level + noise + drift + if slow { 1.5f64.ln() } else { 0.0 }
        };
        (0..rounds).map(&mut run).collect()
    };
    // Who comes first changes from block to block.
    let first = number % 2;
    (contender(0.0, first), contender(effect, 1 - first))
}

fn mean(logs: &[f64]) -> f64 {
    logs.iter().map(|log| log.exp()).sum::<f64>() / logs.len() as f64
}

/// Compares at one look.
fn compared(blocks: &[(Vec<f64>, Vec<f64>)], rule: &StopRule, with_runs: bool) -> CostEstimate {
    let group = Group {
        baseline: blocks.iter().map(|(own, _)| Some(mean(own))).collect(),
        contenders: vec![blocks.iter().map(|(_, own)| Some(mean(own))).collect()],
        slow_turns: vec![slow_turns(blocks)],
        runs: vec![runs(blocks).filter(|_| with_runs)],
        ..Group::default()
    };
    let looks = rule.looks(blocks.len() as u32, |_| None);
    let options = ComparisonOptions { looks, same_within: 0.0, ..ComparisonOptions::default() };
    compare_families(&[group], &options).unwrap().remove(0)[0]
}

/// A study that looks after each block, until it is decided or so many blocks are done.
fn study(
    laboratory: &mut Laboratory,
    case: Case,
    effect: f64,
    (blocks, rounds): (usize, usize),
) -> CostEstimate {
    let rule = StopRule::deciding(3, blocks as u32);
    let mut all = Vec::new();
    for number in 0..blocks {
        all.push(block(laboratory, case, effect, rounds, number));
        if number < 2 {
            continue;
        }
        let found = compared(&all, &rule, true);
        if found.verdict.is_different() || number + 1 == blocks {
            return found;
        }
    }
    unreachable!("the last block ends a study")
}

#[test]
fn at_most_one_study_in_twenty_shows_a_difference_that_is_not_there() {
    const STUDIES: usize = 1000;
    let mut laboratory = Laboratory::new(21);
    for case in CASES {
        for shape in [(3, 2), (3, 6), (5, 4), (8, 4), (12, 3)] {
            let wrong = (0..STUDIES)
                .filter(|_| study(&mut laboratory, case, 0.0, shape).verdict.is_different());
            let wrong = wrong.count();
            assert!(wrong <= count_max(STUDIES, 0.05), "{case:?} {shape:?}: {wrong} of {STUDIES}");
        }
    }
}

#[test]
fn intervals_cover_the_truth_whenever_a_study_stops() {
    const STUDIES: usize = 1000;
    let mut laboratory = Laboratory::new(22);
    let truth = 1.1f64;
    for case in CASES {
        for shape in [(3, 4), (5, 4), (8, 4)] {
            let misses = (0..STUDIES).filter(|_| {
                let ends = study(&mut laboratory, case, truth.ln(), shape).interval.unwrap();
                !(ends.low..=ends.high).contains(&truth)
            });
            let misses = misses.count();
            assert!(misses <= count_max(STUDIES, 0.05), "{case:?} {shape:?}: {misses}");
        }
    }
}

/// The reported case: three blocks of two runs each happened to agree.
#[test]
fn blocks_that_agree_by_chance_are_no_surer_than_their_runs() {
    let ratios = [-0.0437, -0.0441, -0.0444];
    let apart = [0.05, -0.07, 0.06];
    let of = |ratio: f64, apart: f64| (vec![0.0, 0.0], vec![ratio + apart, ratio - apart]);
    let blocks: Vec<_> = ratios.iter().zip(apart).map(|(ratio, apart)| of(*ratio, apart)).collect();
    let rule = StopRule::deciding(3, 3);
    let half_width = |found: &CostEstimate| {
        found.interval.map(|ends| (ends.high / ends.low).ln() / 2.0).unwrap()
    };
    let blind = compared(&blocks, &rule, false);
    assert!(blind.verdict == Verdict::Faster && half_width(&blind) < 0.02, "{blind:?}");
    let found = compared(&blocks, &rule, true);
    assert!(!found.verdict.is_different() && half_width(&found) > 0.05, "{found:?}");
}

/// Half widths of a study of 60 s as it should be: eight blocks of four runs.
#[test]
fn the_last_look_is_little_wider_than_a_plain_interval() {
    const STUDIES: usize = 400;
    let mut laboratory = Laboratory::new(23);
    let (mut own, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..STUDIES {
        let blocks: Vec<_> =
            (0..8).map(|number| block(&mut laboratory, Case::Normal, 0.0, 4, number)).collect();
        let width = |rule: &StopRule, with_runs: bool| {
            let ends = compared(&blocks, rule, with_runs).interval.unwrap();
            (ends.high / ends.low).ln() / 2.0
        };
        own.push(width(&StopRule::deciding(3, 8), true));
        let single = ComparisonOptions { same_within: 0.0, ..ComparisonOptions::default() };
        let pairs: Vec<(f64, f64)> =
            blocks.iter().map(|(under, over)| (mean(under), mean(over))).collect();
        let (under, over): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let ends = lab::statistics::compare(&under, &over, &single).unwrap().interval.unwrap();
        plain.push((ends.high / ends.low).ln() / 2.0);
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (own, plain) = (median(&mut own), median(&mut plain));
    println!("half widths: {own:.4}, a plain t-interval {plain:.4}");
    assert!(own < 1.25 * plain, "{own} beside {plain}");
}
