//! Claims judged on analyses made by hand.

use super::matrix::{self, Loss};
use super::*;
use crate::fixture::{plan_of, record, study_text};
use crate::load::{LoadReport, Series, Unit};
use crate::{analysis, record::Record};

fn loss(name: &str, lost: f64, half_width: f64) -> Loss {
    Loss {
        contender: "ext4".into(),
        cell: name.parse().unwrap(),
        lost,
        low: Some(lost - half_width),
        high: Some(lost + half_width),
    }
}

fn without_interval(name: &str, lost: f64) -> Loss {
    Loss { low: None, high: None, ..loss(name, lost, 0.0) }
}

#[test]
fn half_is_lost_where_the_interval_says_so() {
    let small = || loss("randread-psync-1-4k", 0.1, 0.02);
    let outcome = |losses: &[Loss]| matrix::loses_half(losses).outcome;
    assert_eq!(outcome(&[small(), loss("randwrite-psync-1-4k", 0.6, 0.05)]), Outcome::Holds);
    assert_eq!(outcome(&[small(), loss("randwrite-psync-1-4k", 0.55, 0.1)]), Outcome::Inconclusive);
    assert_eq!(outcome(&[small()]), Outcome::Fails);
    assert_eq!(
        outcome(&[small(), without_interval("randwrite-psync-1-4k", 0.6)]),
        Outcome::Inconclusive
    );
    assert_eq!(outcome(&[]), Outcome::Untested);
    let evidence = matrix::loses_half(&[small(), loss("randwrite-psync-1-4k", 0.6, 0.05)]).evidence;
    assert!(
        evidence[0].contains("random writes of 4K, one by one: 60 % (55 to 65)"),
        "{evidence:?}"
    );
}

#[test]
fn the_loss_shrinks_under_load_in_most_pairs_or_not() {
    let pairs = |alone: f64, queued: f64, half_width: f64| -> Vec<Loss> {
        [4, 64]
            .iter()
            .flat_map(|size| {
                [
                    loss(&format!("randread-psync-1-{size}k"), alone, half_width),
                    loss(&format!("randread-libaio-32-{size}k"), 0.9, half_width),
                    loss(&format!("randread-libaio-64-{size}k"), queued, half_width),
                ]
            })
            .collect()
    };
    let outcome = |losses: &[Loss]| matrix::loses_less_under_load(losses).outcome;
    assert_eq!(outcome(&pairs(0.3, 0.1, 0.05)), Outcome::Holds);
    assert_eq!(outcome(&pairs(0.1, 0.3, 0.05)), Outcome::Fails);
    assert_eq!(outcome(&pairs(0.3, 0.1, 0.2)), Outcome::Inconclusive);
    assert_eq!(outcome(&[loss("randread-psync-1-4k", 0.3, 0.01)]), Outcome::Untested);
    let evidence = matrix::loses_less_under_load(&pairs(0.3, 0.1, 0.05)).evidence;
    assert!(evidence[0].contains("in 2 of 2 pairs of cells, surely in 2; surely more in 0"));
}

#[test]
fn the_spread_one_by_one_is_held_against_that_in_queues() {
    let lines = |alone: [f64; 2], queued: [f64; 2], half_width: f64| {
        vec![
            loss("randread-psync-1-4k", alone[0], half_width),
            loss("randread-psync-1-64k", alone[1], half_width),
            loss("randread-libaio-64-4k", queued[0], half_width),
            loss("randread-libaio-64-64k", queued[1], half_width),
        ]
    };
    let outcome = |losses: &[Loss]| matrix::varies_most_alone(losses).outcome;
    assert_eq!(outcome(&lines([0.5, 0.1], [0.1, 0.05], 0.01)), Outcome::Holds);
    assert_eq!(outcome(&lines([0.1, 0.05], [0.5, 0.1], 0.01)), Outcome::Fails);
    assert_eq!(outcome(&lines([0.5, 0.1], [0.1, 0.05], 0.1)), Outcome::Inconclusive);
    assert_eq!(outcome(&[loss("randread-psync-1-4k", 0.3, 0.01)]), Outcome::Untested);
}

#[test]
fn always_below_means_in_every_cell() {
    let outcome = |losses: &[Loss]| matrix::always_loses(losses).outcome;
    let below = || loss("randread-psync-1-4k", 0.2, 0.1);
    assert_eq!(outcome(&[below()]), Outcome::Holds);
    assert_eq!(outcome(&[below(), loss("randread-psync-1-8k", -0.2, 0.1)]), Outcome::Fails);
    assert_eq!(outcome(&[below(), loss("randread-psync-1-8k", 0.05, 0.1)]), Outcome::Inconclusive);
}

#[test]
fn the_calls_are_named_the_most_suffering_first() {
    let evidence = matrix::which_calls(&[
        loss("randread-libaio-32-4k", 0.05, 0.01),
        loss("randwrite-psync-1-4k", 0.40, 0.05),
        loss("randwrite-psync-1-8k", 0.20, 0.05),
    ])
    .evidence;
    assert!(
        evidence[0].contains("random writes one by one 30 %, random reads 32 at once 5 %"),
        "{evidence:?}"
    );
    assert!(evidence[0].contains("random writes of 4K, one by one at least 35 %"));
}

/// ext4 (the baseline), xfs and btrfs under one command; xfs takes twice as long, btrfs the same.
fn three(claim: &str) -> (Plan, Vec<Record>) {
    let mut text = study_text(&["ext4", "xfs", "btrfs"], 5);
    text.workloads[0].name = Some("load".into());
    let parsed: ClaimText = toml::from_str(claim).unwrap();
    text.claims = vec![parsed];
    let plan = plan_of(&text);
    let mut records = Vec::new();
    for block in 0..5 {
        for (contender, factor) in [(0, 1.0), (1, 2.0), (2, 1.0)] {
            let wobble = 1.0 + 0.01 * f64::from((block * 7 + contender as u32 * 3) % 5);
            let time_ns = (1e8 * factor * wobble) as u64;
            records.push(record(&plan, contender, block, time_ns));
        }
    }
    (plan, records)
}

fn outcome_of(claim: &str) -> (Outcome, Vec<String>) {
    let (plan, records) = three(claim);
    let analysis = analysis::analyse(&plan, &records, None);
    let judged = judge(&plan, &records, &analysis).remove(0);
    (judged.outcome, judged.evidence)
}

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
    assert!(evidence[0].contains("not told apart: btrfs"), "{evidence:?}");
}

#[test]
fn throughput_sinks_where_the_last_third_is_below_the_first() {
    let claim = "text = 'x'\nrule = 'sinks'\nworkload = 'load'";
    let (plan, mut records) = three(claim);
    let mut judged = |level: f64| {
        for (index, record) in records.iter_mut().enumerate() {
            let early = 100.0 + index as f64;
            let mut values = vec![early; 9];
            values[6..].fill(early * (level + 0.005 * (index / 3) as f64));
            let series = Series {
                name: "throughput".into(),
                unit: Unit::BytesPerSecond,
                interval_ns: 1_000_000_000,
                values,
            };
            record.load = Some(LoadReport { series: vec![series], ..Default::default() });
        }
        let analysis = analysis::analyse(&plan, &records, None);
        judge(&plan, &records, &analysis).remove(0).outcome
    };
    assert_eq!(judged(0.6), Outcome::Holds);
    assert_eq!(judged(1.0), Outcome::Fails);
    assert_eq!(judged(0.89), Outcome::Inconclusive);
    for rule in ["sinks", "why-sinks"] {
        let (outcome, evidence) = outcome_of(&claim.replace("'sinks'", &format!("'{rule}'")));
        assert_eq!(outcome, Outcome::Untested, "{evidence:?}");
        assert!(evidence[0].contains("too short"), "{evidence:?}");
    }
}

#[test]
fn drifts_and_percentiles_are_told_with_their_contender() {
    let (mut plan, mut records) = three("text = 'x'\nrule = 'why-sinks'\nworkload = 'load'");
    let latency = crate::load::Latency {
        operation: "overall".into(),
        count: 9,
        bytes: 0,
        total_ns: 9_000,
        p5_ns: 400,
        p50_ns: 1_500,
        p90_ns: 2_000,
        p95_ns: 2_500,
        p99_ns: 3_000_000,
        p99_9_ns: 4_000_000,
        p99_99_ns: 5_000_000,
        max_ns: 6_000_000,
    };
    for record in &mut records {
        let sank = record.contender.label == "xfs";
        let series = Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: vec![100.0; 9],
        };
        record.load = Some(LoadReport {
            series: vec![series],
            latencies: vec![latency.clone()],
            findings: sank.then(|| format!("{} by 31 %", crate::load::SANK)).into_iter().collect(),
            ..Default::default()
        });
    }
    let mut evidence = |rule: Rule| {
        plan.study.claims[0].rule = Some(rule);
        let analysis = analysis::analyse(&plan, &records, None);
        let judged = judge(&plan, &records, &analysis).remove(0);
        assert_eq!(judged.outcome, Outcome::Answered);
        judged.evidence
    };
    let why = evidence(Rule::WhySinks);
    assert_eq!(why[0], "load: xfs: throughput sank by 31 %");
    assert_eq!(why[1], "no drift of a tenth or more: ext4 under load and btrfs under load");
    let percentiles = evidence(Rule::Percentiles);
    assert_eq!(
        percentiles[0],
        "load: ext4: 5 % 0.4 µs, 50 % 1.5 µs, 95 % 2.5 µs, 99 % 3.0 ms, maximum 6.0 ms"
    );
}

#[test]
fn a_claim_that_is_only_told_stays_untested() {
    assert_eq!(outcome_of("text = 'x'"), (Outcome::Untested, Vec::new()));
}

#[test]
fn claims_are_checked_with_the_study() {
    let message = |claim: &str| {
        let mut text = study_text(&["ext4", "xfs"], 1);
        text.workloads[0].name = Some("load".into());
        text.claims = vec![toml::from_str(claim).unwrap()];
        text.resolve(&["ext4", "xfs"]).unwrap_err().to_string()
    };
    assert!(message("rule = 'sinks'").starts_with("claim[0].text"));
    assert!(message("text = 'x'\nrule = 'sings'").contains("did you mean 'sinks'"));
    assert!(message("text = 'x'\nrule = 'sinks'").contains("no workload"));
    assert!(message("text = 'x'\nrule = 'sinks'\nworkload = 'lod'").contains("'load'"));
    let nobody = "text = 'x'\nrule = 'fastest'\nworkload = 'load'";
    assert!(message(nobody).contains("name it"));
    assert!(message(&format!("{nobody}\ncontender = 'xsf'")).contains("'xfs'"));
}
