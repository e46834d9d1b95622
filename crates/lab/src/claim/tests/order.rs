//! Who is the best or the worst, by which intervals, and what is said of them.

use super::super::{Outcome, judge};
use super::{outcome_of, three};
use crate::analysis;
use crate::fixture::{plan_of, study_text};

#[test]
fn the_best_and_the_worst_are_told_by_intervals() {
    let of = |rule: &str, contender: &str| {
        outcome_of(&format!(
            "text = 'x'\nrule = '{rule}'\nworkload = 'load'\ncontender = '{contender}'"
        ))
    };
    assert_eq!(of("slowest", "xfs").0, Outcome::Holds);
    assert_eq!(of("fastest", "xfs").0, Outcome::Fails);
    let (outcome, evidence) = of("fastest", "ext4");
    assert_eq!(outcome, Outcome::Inconclusive, "{evidence:?}");
    assert!(evidence[0].contains("the same within 5 %: btrfs"), "{evidence:?}");
}

/// What the claim's evidence has of a pair, and what the ranking has of it.
fn in_claim_and_ranking(rule: &str, contender: &str, pair: (&str, &str)) -> (String, String) {
    let claim =
        format!("text = 'x'\nrule = '{rule}'\nworkload = 'load'\ncontender = '{contender}'");
    let (plan, records) = three(&claim);
    let analysis = analysis::analyse(&plan, &records, None);
    let ranked = analysis.workloads[0].comparisons.iter().find(|entry| entry.contender == pair.0);
    let ranked = ranked.unwrap();
    assert_eq!(ranked.baseline, pair.1);
    let ends = ranked.low.zip(ranked.high);
    let in_ranking = crate::words::ratio_with_interval(ranked.ratio.unwrap(), ends);
    let judged = judge(&plan, &records, &analysis).remove(0);
    (judged.evidence[0].clone(), format!("{} to {} {in_ranking}", pair.0, pair.1))
}

#[test]
fn a_pair_of_the_ranking_is_quoted_with_its_interval_in_its_direction() {
    // ext4 is the baseline: xfs stands against it, whichever of the two the claim is about.
    for contender in ["xfs", "ext4"] {
        let (evidence, ranked) = in_claim_and_ranking("slowest", contender, ("xfs", "ext4"));
        assert!(evidence.contains(&ranked), "no '{ranked}' in {evidence}");
        assert!(evidence.starts_with("load: ratio of time as in the ranking: "), "{evidence}");
    }
    let (evidence, _) = in_claim_and_ranking("slowest", "xfs", ("xfs", "ext4"));
    assert!(evidence.contains("xfs to btrfs 2.0"), "{evidence}");
    assert!(evidence.contains("(a pair that the ranking has not)"), "{evidence}");
}

#[test]
fn excepted_rivals_are_named_and_decide_nothing() {
    let of = |except: &str| {
        outcome_of(&format!(
            "text = 'x'\nrule = 'fastest'\nworkload = 'load'\ncontender = 'ext4'{except}"
        ))
    };
    assert_eq!(of("").0, Outcome::Inconclusive);
    let (outcome, evidence) = of("\nexcept = ['btrfs']");
    assert_eq!(outcome, Outcome::Holds, "{evidence:?}");
    assert_eq!(evidence[1], "not among the rivals, as the claim has it: btrfs");
}

#[test]
fn several_workloads_decide_together_and_that_is_told() {
    // xfs is behind ext4 by the ranking's interval under each load; of five loads, one of which is
    // enough to contradict, it takes more.
    let claim =
        "text = 'x'\nrule = 'fastest'\nworkload = ['a', 'b', 'c', 'd', 'e']\ncontender = 'xfs'";
    let judged = |slower: f64| {
        let mut text = study_text(&["ext4", "xfs"], 3);
        text.claims = vec![toml::from_str(claim).unwrap()];
        let load = text.workloads.remove(0);
        text.workloads = ["a", "b", "c", "d", "e"]
            .map(|name| crate::study::WorkloadText { name: Some(name.into()), ..load.clone() })
            .into();
        let plan = plan_of(&text);
        let mut records = Vec::new();
        for workload in 0..5 {
            for block in 0..3 {
                let wobble = 1.0 + 0.02 * f64::from(block);
                let xfs = if workload == 0 { 1e8 * slower * wobble } else { 9e7 };
                for (contender, time_ns) in [(0, 1e8), (1, xfs)] {
                    let of = crate::fixture::record_of;
                    records.push(of(&plan, workload, contender, block, time_ns as u64));
                }
            }
        }
        let analysis = analysis::analyse(&plan, &records, None);
        judge(&plan, &records, &analysis).remove(0)
    };
    let doubtful = judged(1.06);
    assert_eq!(doubtful.outcome, Outcome::Inconclusive, "{doubtful:?}");
    let said = "which is wider than in the ranking because 5 comparisons decide together";
    assert!(doubtful.evidence[0].contains(said), "{doubtful:?}");
    assert_eq!(judged(1.5).outcome, Outcome::Fails);
}

/// Of studies of four loads without any difference, the share in which a claim fails: a rival is
/// falsely *better* in half of the false differences, of which the promise is 5 %.
#[test]
fn a_claim_is_contradicted_by_chance_no_more_often_than_promised() {
    use rand::{Rng, SeedableRng};
    let claim = "text = 'x'\nrule = 'fastest'\nworkload = ['a', 'b', 'c', 'd']\ncontender = 'xfs'";
    let mut text = study_text(&["ext4", "xfs", "btrfs"], 5);
    text.claims = vec![toml::from_str(claim).unwrap()];
    text.same_within = Some(0.001);
    let load = text.workloads.remove(0);
    text.workloads = ["a", "b", "c", "d"]
        .map(|name| crate::study::WorkloadText { name: Some(name.into()), ..load.clone() })
        .into();
    let plan = plan_of(&text);
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(20_260_101);
    let mut normal = move || -> f64 {
        let unit = |random: &mut dyn Rng| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (one, other) = (1.0 - unit(&mut random), unit(&mut random));
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    };
    const STUDIES: usize = 600;
    let mut contradicted = 0;
    for _ in 0..STUDIES {
        let mut records = Vec::new();
        for workload in 0..4 {
            for block in 0..5 {
                for contender in 0..3 {
                    let time_ns = 1e8 * (0.05 * normal()).exp();
                    let of = crate::fixture::record_of;
                    records.push(of(&plan, workload, contender, block, time_ns as u64));
                }
            }
        }
        let analysis = analysis::analyse(&plan, &records, None);
        let outcome = judge(&plan, &records, &analysis).remove(0).outcome;
        contradicted += usize::from(outcome == Outcome::Fails);
    }
    // Three standard errors above 2.5 %.
    assert!(contradicted <= STUDIES * 44 / 1000, "{contradicted} of {STUDIES}");
    assert!(contradicted > 0, "the simulation shows no chance at all");
}

#[test]
fn a_margin_asks_for_more_than_a_difference() {
    let of = |rule: &str, contender: &str, than: &str, by: f64| {
        outcome_of(&format!(
            "text = 'x'\nrule = '{rule}'\nworkload = 'load'\ncontender = '{contender}'\nthan = ['{than}']\nby = {by}"
        ))
    };
    // xfs takes twice as long: btrfs is ahead by 100 %, xfs has half the performance.
    assert_eq!(of("fastest", "btrfs", "xfs", 0.5).0, Outcome::Holds);
    let (outcome, evidence) = of("fastest", "btrfs", "xfs", 1.5);
    assert_eq!(outcome, Outcome::Fails);
    assert!(evidence[0].contains("surely not behind by 150 %: xfs"), "{evidence:?}");
    assert_eq!(of("slowest", "xfs", "btrfs", 0.5).0, Outcome::Holds);
    assert_eq!(of("slowest", "xfs", "btrfs", 1.5).0, Outcome::Fails);
    // The same speed, give or take: surely not ahead by a tenth.
    assert_eq!(of("fastest", "btrfs", "ext4", 0.1).0, Outcome::Fails);
}
