//! Claims judged on analyses made by hand.

mod access;
mod agreement;
mod beginning;
mod features;
mod order;

use super::matrix::{self, Loss};
use super::*;
use crate::fixture::{plan_of, record, study_text};
use crate::load::{Drift, LoadReport, Metric, Series, Unit};
use crate::study::LeftOut;
use crate::{analysis, record::Record};

fn loss(name: &str, lost: f64, half_width: f64) -> Loss {
    Loss {
        contender: "ext4".into(),
        cell: name.parse().unwrap(),
        lost,
        low: Some(lost - half_width),
        high: Some(lost + half_width),
        low_among_all: Some(lost - half_width),
        high_among_all: Some(lost + half_width),
    }
}

fn without_interval(name: &str, lost: f64) -> Loss {
    Loss { low: None, high: None, ..decided_only_alone(name, lost, 0.0) }
}

/// A loss that its own interval tells from anything, and that corrected for all cells does not.
fn decided_only_alone(name: &str, lost: f64, half_width: f64) -> Loss {
    Loss { low_among_all: None, high_among_all: None, ..loss(name, lost, half_width) }
}

#[test]
fn half_is_lost_where_the_interval_says_so() {
    let small = || loss("randread-psync-1-4k", 0.1, 0.02);
    let outcome = |losses: &[Loss]| matrix::loses_half(losses).outcome;
    assert_eq!(outcome(&[small(), loss("randwrite-psync-1-4k", 0.6, 0.05)]), Outcome::Holds);
    assert_eq!(outcome(&[small(), loss("randwrite-psync-1-4k", 0.55, 0.1)]), Outcome::Inconclusive);
    assert_eq!(outcome(&[small()]), Outcome::Fails);
    for undecided in [
        without_interval("randwrite-psync-1-4k", 0.6),
        decided_only_alone("randwrite-psync-1-4k", 0.6, 0.05),
    ] {
        assert_eq!(outcome(&[small(), undecided]), Outcome::Inconclusive);
    }
    assert_eq!(outcome(&[]), Outcome::Untested);
    let evidence = matrix::loses_half(&[small(), loss("randwrite-psync-1-4k", 0.6, 0.05)]).evidence;
    assert!(
        evidence[0].contains("random writes of 4K, one by one: loses 60 % [55 %, 65 %]"),
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
    // One cell of many that is above by its own interval alone is what chance brings.
    let by_chance = decided_only_alone("randread-psync-1-8k", -0.2, 0.1);
    assert_eq!(outcome(&[below(), by_chance]), Outcome::Inconclusive);
    // That all are below needs no correction.
    assert_eq!(
        outcome(&[below(), decided_only_alone("randread-psync-1-8k", 0.2, 0.1)]),
        Outcome::Holds
    );
}

#[test]
fn a_matrix_is_judged_against_the_device_and_of_the_contender_that_is_named() {
    let claim = "text = 'x'\nrule = 'loses-half'\nworkload = 'load'\ncontender = 'xfs'";
    let (mut plan, mut records) = three(claim);
    // The baseline is ext4; btrfs is made the device. ext4 has a tenth of its speed, xfs nine.
    plan.study.contenders[2].file_system = "raw".into();
    for record in &mut records {
        let value = match record.contender.label.as_str() {
            "ext4" => 100.0,
            "xfs" => 900.0,
            _ => 1000.0,
        } * (1.0
            + 0.001 * f64::from(record.block * record.contender.label.len() as u32 % 3));
        let unit = Unit::OperationsPerSecond;
        let metrics = vec![Metric { name: "randread-psync-1-4k".into(), value, unit }];
        record.load = Some(LoadReport { metrics, ..Default::default() });
    }
    let judged = |plan: &Plan| {
        let analysis = analysis::analyse(plan, &records, None);
        judge(plan, &records, &analysis).remove(0)
    };
    let of_xfs = judged(&plan);
    assert_eq!(of_xfs.outcome, Outcome::Fails, "{of_xfs:?}");
    assert!(of_xfs.evidence.len() == 1 && of_xfs.evidence[0].starts_with("xfs: "), "{of_xfs:?}");
    plan.study.claims[0].contender = Some("ext4".into());
    assert_eq!(judged(&plan).outcome, Outcome::Holds);
    plan.study.claims[0].contender = None;
    assert_eq!(judged(&plan).outcome, Outcome::Holds);
    // Without the device there is nothing to lose.
    plan.study.contenders[2].file_system = "btrfs".into();
    assert_eq!(judged(&plan).outcome, Outcome::Untested);
}

#[test]
fn the_calls_are_named_the_most_suffering_first() {
    let Finding { outcome, evidence } = matrix::which_calls(&[
        loss("randread-libaio-32-4k", -0.05, 0.01),
        loss("randwrite-psync-1-4k", 0.40, 0.05),
        loss("randwrite-psync-1-8k", 0.20, 0.05),
    ]);
    assert_eq!(outcome, Outcome::Answered);
    assert!(
        evidence[0]
            .contains("random writes one by one loses 30 %, random reads 32 at once gains 5 %"),
        "{evidence:?}"
    );
    assert!(evidence[0].contains("random writes of 4K, one by one loses at least 35 %"));
}

#[test]
fn what_the_wider_intervals_say_stands_beside_what_the_table_says() {
    let wide = |name: &str, lost: f64| Loss {
        low_among_all: Some(lost - 0.5),
        high_among_all: Some(lost + 0.5),
        ..loss(name, lost, 0.05)
    };
    let losses = [wide("randread-psync-1-4k", 0.2), wide("randwrite-psync-1-4k", -0.3)];
    for found in
        [matrix::which_calls(&losses), matrix::loses_half(&losses), matrix::always_loses(&losses)]
    {
        let said = "surely slower than the device in 1 of 2 cells, surely faster in 1, undecided (? in the table) in 0; of so many cells some look sure by chance: allowing for that, slower in 0 and faster in 0";
        assert!(found.evidence[0].contains(said), "{found:?}");
    }
    // A question of which is not answered by cells that only look sure.
    assert_eq!(matrix::which_calls(&losses).outcome, Outcome::Inconclusive);
    let picked = matrix::loses_half(&losses).evidence.remove(0);
    let both = "loses 20 % [15 %, 25 %], and [-30 %, 70 %] by the interval that is wider than in the table, because 2 cells decide together";
    assert!(picked.contains(both), "{picked}");
}

#[test]
fn where_no_cell_is_decided_no_call_is_named_as_the_answer() {
    let found = matrix::which_calls(&[
        loss("randread-psync-1-4k", 0.2, 0.3),
        loss("randwrite-psync-1-4k", -0.3, 0.4),
    ]);
    assert_eq!(found.outcome, Outcome::Inconclusive);
    let said = "of none of the 2 cells is it sure that it is slower or faster than the device";
    assert!(found.evidence[0].contains(said), "{found:?}");
    assert!(!found.evidence[0].contains("gains") && !found.evidence[0].contains("first"));
    // Of several calls those are in order of which something is sure.
    let found = matrix::which_calls(&[
        loss("randread-psync-1-4k", 0.2, 0.05),
        loss("randwrite-psync-1-4k", -1.7, 2.0),
    ]);
    assert!(found.evidence[0].contains("first: random reads one by one loses 20 %; surely"));
    // Nor where ratios have no interval at all.
    let bare = without_interval("randread-psync-1-4k", 0.2);
    assert_eq!(matrix::which_calls(&[bare]).outcome, Outcome::Inconclusive);
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
fn what_is_absent_keeps_a_claim_from_holding_and_is_named() {
    let claim = "text = 'x'\nrule = 'slowest'\nworkload = 'load'\ncontender = 'xfs'";
    let judged = |change: &dyn Fn(&mut Plan, &mut Vec<Record>)| {
        let (mut plan, mut records) = three(claim);
        change(&mut plan, &mut records);
        let analysis = analysis::analyse(&plan, &records, None);
        let judged = judge(&plan, &records, &analysis).remove(0);
        (judged.outcome, judged.evidence.last().unwrap().clone())
    };
    assert_eq!(judged(&|_, _| ()).0, Outcome::Holds);
    let left_out = |name: &str| LeftOut {
        what: "contender".into(),
        name: name.into(),
        missing: vec!["a tool".into()],
    };
    let nothing_of_btrfs = |records: &mut Vec<Record>| {
        let of_btrfs = records.iter_mut().filter(|record| record.contender.label == "btrfs");
        of_btrfs.for_each(crate::fixture::fail);
    };
    // A rival that failed, one that was left out, one by name, and a workload.
    let (outcome, last) = judged(&|_, records| nothing_of_btrfs(records));
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(last.ends_with("btrfs beside xfs under load"), "{last}");
    let (outcome, last) = judged(&|plan, _| plan.study.left_out.push(left_out("nilfs2")));
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(last.contains("nilfs2"), "{last}");
    let (outcome, last) = judged(&|plan, _| {
        plan.study.claims[0].than = vec!["ext4".into(), "nilfs2".into()];
    });
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(last.contains("nilfs2"), "{last}");
    let (outcome, last) = judged(&|plan, _| plan.study.claims[0].workloads.push("other".into()));
    assert_eq!(outcome, Outcome::Inconclusive);
    assert!(last.contains("the workload other"), "{last}");
    // An exception is not missed, and what was measured can contradict all the same.
    let excepted = judged(&|plan, records| {
        nothing_of_btrfs(records);
        plan.study.claims[0].except = vec!["btrfs".into()];
    });
    assert_eq!(excepted.0, Outcome::Holds);
    let contradicted = judged(&|plan, records| {
        nothing_of_btrfs(records);
        plan.study.claims[0].rule = Some(Rule::Fastest);
    });
    assert_eq!(contradicted.0, Outcome::Fails);
}

#[test]
fn one_of_many_contradicts_only_by_a_corrected_interval() {
    // 0.97 is surely above 0.9 by its own interval: enough to contradict where it is the only one;
    // of twenty, chance brings one like it. That all twenty are below takes no correction.
    let pair = |factor: f64| -> (Vec<f64>, Vec<f64>) {
        let wobbles = [0.95, 1.0, 1.05, 0.97, 1.03];
        (vec![100.0; 5], wobbles.iter().map(|wobble| 100.0 * factor * wobble).collect())
    };
    let outcomes = |count: usize, factor: f64| -> Vec<Outcome> {
        let ratios = Ratio::of_each(&vec![pair(factor); count]);
        ratios.into_iter().map(|ratio| ratio.unwrap().below(0.9)).collect()
    };
    assert_eq!(of_all(&outcomes(1, 0.97)), Outcome::Fails);
    assert_eq!(of_all(&outcomes(20, 0.97)), Outcome::Inconclusive);
    assert_eq!(of_all(&outcomes(20, 0.84)), Outcome::Holds);
    // Ratios without a block are no part of the family.
    let mut samples = vec![(Vec::new(), Vec::new()); 20];
    samples.push(pair(0.97));
    let found = Ratio::of_each(&samples);
    assert!(found[0].is_none());
    assert_eq!(found[20].as_ref().unwrap().below(0.9), Outcome::Fails);
}

/// The claim after runs that sink to `level`; those of the contender `short` are too short to tell.
fn judge_after(
    plan: &Plan,
    records: &[Record],
    level: f64,
    short: Option<&str>,
) -> (Outcome, Vec<String>) {
    let mut records = records.to_vec();
    for (index, record) in records.iter_mut().enumerate() {
        let early = 100.0 + index as f64;
        let mut values = vec![early; 9];
        values[6..].fill(early * (level + 0.005 * (index / 3) as f64));
        if short == Some(record.contender.label.as_str()) {
            values.truncate(5);
        }
        let series = Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values,
        };
        record.load = Some(LoadReport { series: vec![series], ..Default::default() });
    }
    let analysis = analysis::analyse(plan, &records, None);
    let judged = judge(plan, &records, &analysis).remove(0);
    (judged.outcome, judged.evidence)
}

#[test]
fn throughput_sinks_where_the_last_third_is_below_the_first() {
    let claim = "text = 'x'\nrule = 'sinks'\nworkload = 'load'";
    let (plan, mut records) = three(claim);
    let judged = |level: f64| judge_after(&plan, &records, level, None).0;
    assert_eq!(judged(0.6), Outcome::Holds);
    assert_eq!(judged(1.0), Outcome::Fails);
    assert_eq!(judged(0.89), Outcome::Inconclusive);
    // Of a contender whose runs are too short it is not known, and two that sank are not all.
    let named = judge_after(&plan, &records, 0.6, Some("btrfs"));
    assert_eq!(named.0, Outcome::Inconclusive);
    assert!(named.1.last().unwrap().ends_with("btrfs under load"), "{named:?}");
    // How long a run must be is told, and how long the longest is.
    for record in &mut records {
        let series = Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: vec![1.0; 3],
        };
        record.load = Some(LoadReport { series: vec![series], ..Default::default() });
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let judged = judge(&plan, &records, &analysis).remove(0);
    assert_eq!(judged.outcome, Outcome::Untested);
    assert!(judged.evidence[0].contains("take 6 intervals: the longest here has 3"), "{judged:?}");
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
        let series = Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: vec![100.0; 9],
        };
        record.load = Some(LoadReport {
            series: vec![series],
            latencies: vec![latency.clone()],
            drift: Some(match record.contender.label.as_str() {
                "ext4" => Drift::NoneCertain,
                "xfs" => Drift::Changed { words: "throughput sank by 31 %".into(), at_ns: None },
                _ => Drift::TooShort,
            }),
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
    assert_eq!(why[1], "no certain drift of a tenth or more: ext4 under load");
    assert!(why[2].starts_with("too short to tell a drift: btrfs under load"), "{why:?}");
    let percentiles = evidence(Rule::Percentiles);
    assert_eq!(
        percentiles[0],
        "load: ext4: 5 % 0.4 µs, 50 % 1.5 µs, 95 % 2.5 µs, 99 % 3.0 ms, maximum 6.0 ms (45 operations of 5 trials together)"
    );
}

#[test]
fn runs_that_are_too_short_answer_no_question_of_drift() {
    let (plan, mut records) = three("text = 'x'\nrule = 'why-sinks'\nworkload = 'load'");
    let judged = |records: &[Record]| {
        let analysis = analysis::analyse(&plan, records, None);
        let judged = judge(&plan, records, &analysis).remove(0);
        assert_eq!(judged.outcome, Outcome::Untested);
        judged.evidence
    };
    assert_eq!(judged(&records), ["the loads looked for no drift"]);
    for record in &mut records {
        record.load = Some(LoadReport { drift: Some(Drift::TooShort), ..Default::default() });
    }
    let evidence = judged(&records);
    assert!(evidence[0].starts_with("too short to tell a drift: ext4 under load"), "{evidence:?}");
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
    let margin = format!("{nobody}\ncontender = 'xfs'\nby = -0.1");
    assert!(message(&margin).starts_with("claim[0].by"));
    assert!(message("text = 'x'\nrule = 'sinks'\nworkload = 'load'\nby = 0.1").contains("fastest"));
    // Rivals that are none, and a key that the rule would not heed.
    let rivals = |key: &str| message(&format!("{nobody}\ncontender = 'xfs'\n{key}"));
    assert!(rivals("except = ['exf4']").starts_with("claim[0].except[0]: "));
    assert!(rivals("than = ['exf4']").contains("did you mean 'ext4'"));
    let one_of_two = "text = 'x'\nrule = 'agree'\nworkload = 'load'";
    assert!(message(one_of_two).ends_with("compares two workloads; name two"));
    let of_sinks = "text = 'x'\nrule = 'sinks'\nworkload = 'load'\nthan = ['ext4']";
    assert!(message(of_sinks).starts_with("claim[0].than: belongs to"));
    let of_matrix = "text = 'x'\nrule = 'loses-half'\nworkload = 'load'\nexcept = ['ext4']";
    assert!(message(of_matrix).starts_with("claim[0].except: belongs to"));
}
