//! What the first second of a run has, and of it what the load asks for.

use super::super::{Outcome, judge};
use super::three;
use crate::analysis;
use crate::load::{LoadReport, Pace};

/// What is said of runs with this first second, of bytes and operations, and later ones of 1000
/// bytes in 100 operations.
fn judged(first: Option<(u64, u64)>) -> (Outcome, String) {
    judged_of(|_| first)
}

/// The same, with a first second for each block.
fn judged_of(first_of: impl Fn(u32) -> Option<(u64, u64)>) -> (Outcome, String) {
    let (plan, mut records) = three("text = 'x'\nrule = 'beginning'\nworkload = 'load'");
    for record in &mut records {
        let first = first_of(record.block);
        let second = |(bytes, operations)| Pace { duration_ns: 1_000_000_000, bytes, operations };
        let rest = [(1000, 100); 2];
        let pace = first.into_iter().chain(rest.into_iter().filter(|_| first.is_some()));
        record.load = Some(LoadReport { pace: pace.map(second).collect(), ..Default::default() });
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let judgement = judge(&plan, &records, &analysis).remove(0);
    (judgement.outcome, judgement.evidence[0].clone())
}

#[test]
fn the_first_seconds_rate_is_told_apart_into_what_the_load_asks_for_and_what_is_done() {
    // Six times the bytes an operation, half the operations.
    let (outcome, said) = judged(Some((3000, 50)));
    assert_eq!(outcome, Outcome::Answered);
    let product = "ext4 3.00 [3.00, 3.00] = 6.00 x 0.500, all of it the load's own; xfs ";
    assert!(
        said.starts_with("load: bytes a second of the first second over") && said.contains(product),
        "{said}"
    );
    assert!(judged(Some((3000, 300))).1.ends_with(" = 1.000 x 3.00, none of it the load's own"));
    assert!(judged(Some((2000, 120))).1.ends_with(", most of it the load's own"));
    assert!(judged(Some((2000, 180))).1.ends_with(", the lesser part of it the load's own"));
    // Where the first second is no faster there is nothing to account for.
    assert!(judged(Some((1050, 100))).1.ends_with(" = 1.050 x 1.000"));
}

#[test]
fn what_differs_from_trial_to_trial_as_much_is_no_answer() {
    let first = |block: u32| Some(if block.is_multiple_of(2) { (3000, 50) } else { (700, 50) });
    let (outcome, said) = judged_of(first);
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(said.contains(", undecided, as the interval has 1 in it"), "{said}");
    assert!(!said.contains("the load's own"), "{said}");
    // One trial has no interval.
    let (outcome, said) = judged_of(|block| (block == 0).then_some((3000, 50)));
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(said.ends_with(", undecided, as there are too few trials for an interval"), "{said}");
}

#[test]
fn a_run_of_one_second_or_none_has_no_beginning() {
    assert_eq!(judged(None).0, Outcome::Untested);
    assert_eq!(judged(Some((0, 0))).0, Outcome::Untested);
}
