//! Whether two ways to do the same work have the same ratios.

use super::super::{ClaimText, Judgement, Outcome, judge};
use crate::analysis;
use crate::fixture::{fail, plan_of, record_of, study_text};
use crate::plan::Plan;
use crate::record::Record;

/// xfs against ext4, the baseline, under two workloads, in blocks whose own speed differs: in the
/// first it takes `one` times as long, in the second `other` times, each block with its own factor.
fn two(one: &[f64], other: &[f64]) -> (Plan, Vec<Record>) {
    let mut text = study_text(&["ext4", "xfs"], one.len() as u32);
    text.workloads.push(text.workloads[0].clone());
    text.workloads[0].name = Some("tool".into());
    text.workloads[1].name = Some("replay".into());
    let claim = "text = 'x'\nrule = 'agree'\nworkload = ['tool', 'replay']\nby = 0.25";
    text.claims = vec![toml::from_str::<ClaimText>(claim).unwrap()];
    let plan = plan_of(&text);
    let mut records = Vec::new();
    for block in 0..one.len() {
        for (workload, factor) in [(0, one[block]), (1, other[block])] {
            let time_ns = 1e8 * (1.0 + 0.3 * block as f64);
            let own = [(0, time_ns), (1, time_ns * factor)];
            records.extend(own.map(|(contender, time_ns)| {
                record_of(&plan, workload, contender, block as u32, time_ns as u64)
            }));
        }
    }
    (plan, records)
}

fn judged(plan: &Plan, records: &[Record]) -> Judgement {
    let analysis = analysis::analyse(plan, records, None);
    judge(plan, records, &analysis).remove(0)
}

fn of(one: &[f64], other: &[f64]) -> (Outcome, String) {
    let (plan, records) = two(one, other);
    let judgement = judged(&plan, &records);
    (judgement.outcome, judgement.evidence.join("; "))
}

#[test]
fn ratios_that_are_near_each_other_agree_and_those_that_are_surely_apart_contradict() {
    let (outcome, evidence) = of(&[2.0, 2.02, 1.98, 2.01], &[2.0, 1.99, 2.03, 2.0]);
    assert_eq!(outcome, Outcome::Holds, "{evidence}");
    assert!(evidence.ends_with("the same within 25 %"), "{evidence}");
    let (outcome, evidence) = of(&[2.0, 2.02, 1.98, 2.01], &[0.5, 0.51, 0.49, 0.5]);
    assert_eq!(outcome, Outcome::Fails, "{evidence}");
    assert!(evidence.contains("they point in opposite directions; surely apart by more than 25 %: the two contradict each other"), "{evidence}");
}

#[test]
fn ratios_that_point_apart_by_noise_are_inconclusive_and_the_noise_is_named() {
    // The medians point apart as far as 2.2 and 0.5 do, and each block tells another story.
    let (outcome, evidence) = of(&[2.2, 0.6, 2.4, 1.9], &[0.5, 1.6, 0.4, 0.7]);
    assert_eq!(outcome, Outcome::Inconclusive, "{evidence}");
    assert!(
        evidence.contains("they point in opposite directions; not told from noise"),
        "{evidence}"
    );
    assert!(evidence.contains("differ by a factor of up to"), "{evidence}");
    // Two blocks have no interval, however far apart they are.
    let (outcome, evidence) = of(&[2.15, 2.15], &[0.51, 0.51]);
    assert_eq!(outcome, Outcome::Inconclusive, "{evidence}");
    assert!(
        evidence.contains("they point in opposite directions; too few common blocks"),
        "{evidence}"
    );
}

#[test]
fn a_ratio_that_the_ranking_withholds_is_not_called_absent() {
    // Two common blocks, and a third in which the tool has xfs without its baseline.
    let (plan, mut records) = two(&[2.0; 3], &[2.0; 3]);
    let of_ext4 = |record: &&mut Record| {
        let last = record.block == 2 && record.workload == "tool";
        last && record.contender.label == "ext4"
    };
    records.iter_mut().filter(of_ext4).for_each(fail);
    let judgement = judged(&plan, &records);
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
    let said = &judgement.evidence[0];
    assert!(
        said.starts_with("xfs to ext4: time withheld in the ranking under tool, 2.000 ["),
        "{said}"
    );
    assert!(said.contains("too few common blocks"), "{said}");
}

#[test]
fn what_yielded_nothing_under_one_of_the_two_is_named() {
    let (plan, mut records) = two(&[2.0; 4], &[2.0; 4]);
    let of_xfs =
        |record: &&mut Record| record.contender.label == "xfs" && record.workload == "tool";
    records.iter_mut().filter(of_xfs).for_each(fail);
    let judgement = judged(&plan, &records);
    assert_eq!(judgement.outcome, Outcome::Inconclusive);
    assert!(judgement.evidence.last().unwrap().ends_with("nothing to judge: xfs"), "{judgement:?}");
}
