//! Conditions judged on results made by hand.

use super::*;
use crate::fixture::{self, fail, plan_of, record_of, study_text};
use crate::record::{Check, FileSystemSpace};
use crate::study::{LeftOut, WorkloadText};
use crate::workload::{Series, Unit, WorkloadReport};

/// A plan of contenders and workloads, and records of which `time` says how long each trial took
/// relative to the others: of workload, contender and block.
fn result(
    contenders: &[&str],
    workloads: &[&str],
    blocks: u32,
    mut time: impl FnMut(usize, usize, u32) -> f64,
) -> (Plan, Vec<Record>) {
    let mut text = study_text(contenders, blocks);
    let load = text.workloads.remove(0);
    let named = |name: &&str| WorkloadText { name: Some(name.to_string()), ..load.clone() };
    text.workloads = workloads.iter().map(named).collect();
    let plan = plan_of(&text);
    let mut records = Vec::new();
    for workload in 0..workloads.len() {
        for block in 0..blocks {
            for contender in 0..contenders.len() {
                let time_ns = (1e8 * time(workload, contender, block)) as u64;
                records.push(record_of(&plan, workload, contender, block, time_ns));
            }
        }
    }
    (plan, records)
}

/// ext4 (the baseline), xfs and btrfs under one load; xfs takes twice as long, btrfs the same.
fn three() -> (Plan, Vec<Record>) {
    result(&["ext4", "xfs", "btrfs"], &["load"], 5, |_, contender, block| {
        let wobble = 1.0 + 0.01 * f64::from((block * 7 + contender as u32 * 3) % 5);
        [1.0, 2.0, 1.0][contender] * wobble
    })
}

fn judged(plan: &Plan, records: &[Record], text: &str) -> Judgement {
    let analysis = analysis::analyse(plan, records, None);
    let names: Vec<&str> = plan.study.workloads.iter().map(|load| load.name.as_str()).collect();
    let condition = condition::parse(text).unwrap();
    Measurements { plan, records, analysis: &analysis }.judge(&condition, &names, None)
}

use GateOutcome::{Fails, Holds, Inconclusive, NotTested};

#[test]
fn gates_are_judged_by_the_whole_interval_under_every_workload() {
    let wobble =
        |contender: usize, block: u32| 1.0 + 0.01 * f64::from((block + contender as u32) % 3);
    let (mut plan, records) = result(&["ext4", "xfs"], &["a", "b"], 5, |load, contender, block| {
        let factor = if load == 0 && contender == 1 { 2.0 } else { 1.0 };
        factor * wobble(contender, block)
    });
    plan.study.gates =
        ["xfs <= 3", "xfs <= 1.10", "xfs >= 1.5", "xfs slowest", "a agrees with b within 10%"]
            .map(String::from)
            .into();
    let gates = |records: &[Record]| analyse(&plan, records, None).gates;
    let outcomes: Vec<GateOutcome> = gates(&records).iter().map(|gate| gate.outcome).collect();
    let same = Inconclusive;
    assert_eq!(outcomes, [Holds, Holds, Fails, Holds, Holds, Fails, Holds, same, Fails]);
    assert_eq!((&*gates(&records)[1].gate, &*gates(&records)[1].workload), ("xfs <= 3", "b"));
    // Two blocks have no interval: nothing holds and nothing fails.
    let two: Vec<Record> = records.iter().filter(|record| record.block < 2).cloned().collect();
    assert!(gates(&two).iter().all(|gate| gate.outcome == Inconclusive));
    assert!(gates(&[]).iter().all(|gate| gate.outcome == NotTested));
}

#[test]
fn a_bound_is_met_by_the_interval_as_the_analysis_has_it() {
    let (plan, records) = three();
    let analysis = analysis::analyse(&plan, &records, None);
    let xfs = &analysis.workloads[0].comparisons[0];
    let (low, high) = (xfs.low.unwrap(), xfs.high.unwrap());
    for (text, expected) in [
        (format!("xfs <= {high}"), Holds),
        (format!("xfs < {high}"), Inconclusive),
        (format!("xfs <= {low}"), Inconclusive),
        (format!("xfs < {low}"), Fails),
        (format!("xfs >= {low}"), Holds),
        (format!("xfs > {high}"), Fails),
    ] {
        assert_eq!(judged(&plan, &records, &text).outcome, expected, "{text}");
    }
}

/// As the tables have it: with compression a quarter of the space.
#[test]
fn a_bound_can_be_on_another_metric_than_the_first() {
    let (mut plan, mut records) = three();
    for record in &mut records {
        let taken: u64 = if record.contender.label == "xfs" { 250 } else { 1000 };
        let space = |free_mib: u64| {
            let (total_bytes, free_bytes, free_inodes) = (1 << 40, free_mib << 20, 0);
            Some(FileSystemSpace { total_bytes, free_bytes, free_inodes })
        };
        (record.space_before, record.space_after) = (space(4000), space(4000 - taken));
        record.command.as_mut().unwrap().user_ns = 1000 + u64::from(record.block % 3);
    }
    for (text, expected, said) in [
        ("xfs: space <= 0.5", Holds, "load: xfs: cost 0.250 (0.250 to 0.250) by space"),
        ("xfs: space <= 0.2", Fails, "0.250"),
        ("xfs: CPU time <= 1.1", Holds, "by CPU time"),
        ("xfs: CPU time <= 0.9", Fails, "by CPU time"),
        ("xfs: time <= 1.1", Fails, "by time"),
        ("xfs: spcae <= 0.5", NotTested, "did you mean 'space'"),
    ] {
        let found = judged(&plan, &records, text);
        assert_eq!(found.outcome, expected, "{text}: {found:?}");
        assert!(found.evidence.join("; ").contains(said), "{text}: {found:?}");
    }
    plan.study.gates = vec!["xfs: space <= 0.5".into()];
    assert_eq!(analyse(&plan, &records, None).gates[0].outcome, Holds);
}

#[test]
fn the_best_and_the_worst_are_told_by_intervals() {
    let (plan, records) = three();
    for (text, expected, said) in [
        ("xfs slowest", Holds, "load: cost of xfs by time: 2.00"),
        ("xfs fastest", Fails, "against ext4"),
        ("ext4 fastest", Inconclusive, "against btrfs (the same within 5 %)"),
        ("ext4 fastest of xfs", Holds, "against xfs"),
        // xfs takes twice as long: btrfs is ahead by 100 %.
        ("btrfs fastest of xfs by 50%", Holds, "0.500"),
        ("btrfs fastest of xfs by 150%", Fails, "against xfs"),
        ("xfs slowest of btrfs by 150%", Fails, "against btrfs"),
        ("btrfs fastest of ext4 by 10%", Fails, "against ext4"),
    ] {
        let found = judged(&plan, &records, text);
        assert_eq!(found.outcome, expected, "{text}: {found:?}");
        assert!(found.evidence[0].contains(said), "{text}: {found:?}");
    }
}

#[test]
fn a_pair_of_the_analysis_has_its_interval() {
    let (plan, records) = three();
    let analysis = analysis::analyse(&plan, &records, None);
    let xfs = &analysis.workloads[0].comparisons[0];
    let expected = ratio_with_interval(xfs.cost().unwrap(), xfs.cost_ends());
    let evidence = judged(&plan, &records, "xfs slowest").evidence.remove(0);
    assert!(evidence.contains(&format!("{expected} against ext4")), "{expected}: {evidence}");
}

#[test]
fn what_was_not_measured_keeps_a_condition_from_holding_and_is_named() {
    let (plan, records) = three();
    assert_eq!(judged(&plan, &records, "xfs slowest").outcome, Holds);
    let mut failed = records.clone();
    let of_btrfs = failed.iter_mut().filter(|record| record.contender.label == "btrfs");
    of_btrfs.for_each(fail);
    let found = judged(&plan, &failed, "xfs slowest");
    assert_eq!(found.outcome, Inconclusive);
    assert_eq!(found.evidence[1], "not measured here: xfs against btrfs under load");
    // What was measured can contradict all the same, and an exception is not missed.
    assert_eq!(judged(&plan, &failed, "xfs fastest").outcome, Fails);
    assert_eq!(judged(&plan, &failed, "xfs slowest of ext4").outcome, Holds);
    let mut without = plan.clone();
    let left_out = LeftOut {
        what: "contender".into(),
        name: "jfs".into(),
        missing: Vec::new(),
        in_guests: false,
    };
    without.study.left_out.push(left_out);
    assert_eq!(judged(&without, &records, "xfs slowest").outcome, Inconclusive);
    assert_eq!(judged(&plan, &records, "jfs slowest").outcome, NotTested);
    assert_eq!(judged(&plan, &[], "xfs slowest").outcome, NotTested);
}

#[test]
fn one_of_many_contradicts_only_by_a_corrected_interval() {
    let pair = |factor: f64| -> Pairs {
        let wobbles = [0.95, 1.0, 1.05, 0.97, 1.03];
        (vec![100.0; 5], wobbles.iter().map(|wobble| 100.0 * factor * wobble).collect())
    };
    let outcome = |count: usize, factor: f64| {
        let ratios = Ratio::of_each(&vec![pair(factor); count], ComparisonOptions::default());
        let below = |ratio: f64| ratio < 0.9;
        of_all(&ratios.into_iter().map(|ratio| ratio.unwrap().judge(&below)).collect::<Vec<_>>())
    };
    // 0.97 is surely above 0.9 by its own interval; of twenty, chance brings one like it. That all
    // twenty are below takes no correction.
    assert_eq!(outcome(1, 0.97), Fails);
    assert_eq!(outcome(20, 0.97), Inconclusive);
    assert_eq!(outcome(20, 0.84), Holds);
}

/// Of studies of four loads without any difference, the share in which a condition fails: a rival
/// is falsely ahead in half of the false differences, of which the promise is 5 %.
#[test]
fn a_condition_is_contradicted_by_chance_no_more_often_than_promised() {
    use rand::{Rng, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(20_260_101);
    let mut normal = move || -> f64 {
        let unit = |random: &mut dyn Rng| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (one, other) = (1.0 - unit(&mut random), unit(&mut random));
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    };
    const STUDIES: usize = 600;
    let mut contradicted = 0;
    for _ in 0..STUDIES {
        let (mut plan, records) =
            result(&["ext4", "xfs", "btrfs"], &["a", "b", "c", "d"], 5, |_, _, _| {
                (0.05 * normal()).exp()
            });
        plan.study.same_within = 0.001;
        contradicted += usize::from(judged(&plan, &records, "xfs fastest").outcome == Fails);
    }
    // Three standard errors above 2.5 %.
    assert!(contradicted <= STUDIES * 44 / 1000, "{contradicted} of {STUDIES}");
    assert!(contradicted > 0, "the simulation shows no chance at all");
}

#[test]
fn two_workloads_agree_where_their_ratios_are_surely_alike() {
    let of = |one: [f64; 4], other: [f64; 4]| {
        let (plan, records) =
            result(&["ext4", "xfs"], &["tool", "replay"], 4, |load, fs, block| {
                let factor = [one, other][load][block as usize];
                (1.0 + 0.3 * f64::from(block)) * if fs == 1 { factor } else { 1.0 }
            });
        judged(&plan, &records, "tool agrees with replay within 25%")
    };
    let alike = of([2.0, 2.02, 1.98, 2.01], [2.0, 1.99, 2.03, 2.0]);
    assert_eq!(alike.outcome, Holds, "{alike:?}");
    assert!(alike.evidence[0].starts_with("cost of xfs to ext4: 2.00"), "{alike:?}");
    let apart = of([2.0, 2.02, 1.98, 2.01], [0.5, 0.51, 0.49, 0.5]);
    assert_eq!(apart.outcome, Fails, "{apart:?}");
    // The medians point apart as far, and each block tells another story.
    assert_eq!(of([2.2, 0.6, 2.4, 1.9], [0.5, 1.6, 0.4, 0.7]).outcome, Inconclusive);
}

#[test]
fn throughput_sinks_where_the_last_third_is_below_the_first() {
    let of = |level: f64, intervals: usize, condition: &str| {
        let (plan, mut records) = three();
        for (index, record) in records.iter_mut().enumerate() {
            let mut values = vec![100.0 + index as f64; 9];
            values[6..].fill((100.0 + index as f64) * (level + 0.005 * (index / 3) as f64));
            values.truncate(intervals);
            let name = "throughput".into();
            let series = Series {
                name,
                unit: Unit::BytesPerSecond,
                interval_ns: 1_000_000_000,
                values,
                marks: Vec::new(),
            };
            record.load = Some(WorkloadReport { series: vec![series], ..Default::default() });
        }
        judged(&plan, &records, condition)
    };
    let both = "ext4, xfs slow down by 10%";
    assert_eq!(of(0.7, 9, both).outcome, Holds);
    assert_eq!(of(1.0, 9, both).outcome, Fails);
    assert_eq!(of(0.89, 9, both).outcome, Inconclusive);
    let short = of(0.7, 5, both);
    assert_eq!(short.outcome, NotTested);
    assert!(short.evidence[0].contains("6 intervals"), "{short:?}");
    let without = of(0.7, 9, "ext4, jfs slow down by 10%");
    assert_eq!(without.outcome, Inconclusive);
    assert_eq!(without.evidence[1], "not measured here: jfs under load");
}

#[test]
fn the_device_was_asked_for_the_same_or_for_something_else() {
    let of = |xfs: &dyn Fn(u64) -> u64| {
        let (plan, mut records) = three();
        for record in &mut records {
            let block = u64::from(record.block);
            let reads = if record.contender.label == "xfs" { xfs(block) } else { 1000 + block };
            let device = DeviceDelta { reads, read_bytes: reads * 4096, ..Default::default() };
            record.phases[0].device = Some(device);
        }
        judged(&plan, &records, "ext4, xfs, btrfs load the device alike within 10%")
    };
    let alike = of(&|block| 1050 + block);
    assert_eq!(alike.outcome, Holds, "{alike:?}");
    assert!(alike.evidence[0].contains("xfs 1052 reads of 4 KiB"), "{alike:?}");
    assert_eq!(of(&|block| 2000 + block).outcome, Fails);
    // The medians differ, the trials overlap.
    assert_eq!(of(&|block| 900 + 300 * block).outcome, Inconclusive);
    let (plan, mut records) = three();
    records.iter_mut().for_each(|record| record.phases[0].device = None);
    let untold = judged(&plan, &records, "ext4, xfs load the device alike within 10%");
    assert_eq!(untold.outcome, NotTested);
}

/// What the condition is judged to be where xfs loses these percent of the raw device's operations in
/// the cells of a matrix, more or less by this much from block to block.
fn of_matrix(text: &str, cells: &[(f64, f64)]) -> Judgement {
    let (mut plan, mut records) = three();
    plan.study.contenders[2].layers[0].name = "raw".into();
    for record in &mut records {
        let wobble = [0.0, 1.0, -1.0, 0.5, -0.5][record.block as usize];
        let is_xfs = record.contender.label == "xfs";
        let value = |&(percent, width): &(f64, f64)| {
            if is_xfs { 1000.0 * (1.0 - (percent + width * wobble) / 100.0) } else { 1000.0 }
        };
        let named = |(place, cell)| {
            fixture::cell(&format!("randread-psync-1-{}k", 4 * (place + 1)), value(cell))
        };
        let metrics = cells.iter().enumerate().map(named).collect();
        record.load = Some(WorkloadReport { metrics, ..Default::default() });
    }
    judged(&plan, &records, text)
}

#[test]
fn costs_in_the_matrix_are_judged_in_some_cell_and_in_every_cell() {
    let half = "xfs > 2 in some cell";
    let found = of_matrix(half, &[(10.0, 2.0), (60.0, 2.0)]);
    assert_eq!(found.outcome, Holds);
    let said = "slower than the raw device in 2 of 2 cells, faster in 0; the highest cost is 2.50 (2.35 to 2.67) in randread-psync-1-8k";
    assert!(found.evidence[0].ends_with(said), "{found:?}");
    assert_eq!(of_matrix("xfs loses 50% in some cell", &[(10.0, 2.0), (60.0, 2.0)]), found);
    assert_eq!(of_matrix(half, &[(10.0, 2.0), (55.0, 10.0)]).outcome, Inconclusive);
    assert_eq!(of_matrix(half, &[(10.0, 2.0)]).outcome, Fails);
    assert_eq!(of_matrix("xfs <= 2 in every cell", &[(10.0, 2.0), (60.0, 2.0)]).outcome, Fails);
    assert_eq!(of_matrix("xfs <= 1.2 in every cell", &[(10.0, 1.0)]).outcome, Holds);
    // The one cell of many is sure only by the interval that is corrected for their number.
    let alone = (58.0, 4.0);
    assert_eq!(of_matrix(half, &[alone]).outcome, Holds);
    assert_eq!(
        of_matrix(half, &[[alone].as_slice(), &[(10.0, 2.0); 40]].concat()).outcome,
        Inconclusive
    );
    assert_eq!(of_matrix(half, &[]).outcome, NotTested);
    assert_eq!(of_matrix("btrfs > 2 in some cell", &[(10.0, 2.0)]).outcome, NotTested);
    let every = "xfs > 1 in every cell";
    assert_eq!(of_matrix(every, &[(10.0, 2.0), (20.0, 2.0)]).outcome, Holds);
    assert_eq!(of_matrix(every, &[(10.0, 2.0), (-20.0, 2.0)]).outcome, Fails);
    let faster = (-8.0, 4.0);
    assert_eq!(of_matrix(every, &[faster]).outcome, Fails);
    let many = [[faster].as_slice(), &[(10.0, 2.0); 40]].concat();
    assert_eq!(of_matrix(every, &many).outcome, Inconclusive);
    let undecided = of_matrix(every, &[(5.0, 9.0)]);
    assert_eq!(undecided.outcome, Inconclusive);
    assert!(undecided.evidence[0].contains("no cell differs significantly"), "{undecided:?}");
}

#[test]
fn a_check_is_a_gate_and_who_lost_data_wins_nothing() {
    // btrfs takes a tenth of ext4's time, and loses data.
    let (mut plan, mut records) =
        result(&["ext4", "xfs", "btrfs"], &["load", "other"], 5, |_, contender, block| {
            [1.0, 0.5, 0.1][contender] * (1.0 + 0.01 * f64::from((block + contender as u32) % 3))
        });
    for record in records.iter_mut().filter(|record| record.workload == "load") {
        let violated = u64::from(record.contender.label == "btrfs" && record.block == 1);
        let first = (violated > 0).then(|| "ack 7 is gone".to_string());
        let durable = Check { tried: 100, violated, first, ..Check::new("durability") };
        record.checks = vec![durable, Check::not_tried("order", "the control lost nothing")];
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let judge = |text: &str| {
        let condition = condition::parse(text).unwrap();
        Measurements { plan: &plan, records: &records, analysis: &analysis }.judge(
            &condition,
            &["load"],
            None,
        )
    };
    for (text, outcome, said) in [
        ("ext4: durable", Holds, "load: ext4: durability held (500 of 500), so at most 0.6 % are"),
        ("ext4, xfs: durability held", Holds, "xfs: durability held"),
        ("btrfs: durable", Fails, "violated (1 of 500); the first: ack 7 is gone"),
        ("ext4, btrfs: durable", Fails, "btrfs"),
        ("ext4: order held", Inconclusive, "order not tried; see: the control lost nothing"),
        ("ext4: durabilty held", Inconclusive, "did you mean 'durability'?"),
        ("ext4: contents held", Inconclusive, "'contents'; there are durability, order"),
        ("btrfs <= 1.10", Fails, "btrfs lost data: 1 of 500 checks violated (durability)"),
        ("btrfs fastest", Fails, "btrfs lost data"),
        ("btrfs >= 2", NotTested, "not measured here"),
        ("xfs fastest", Holds, "btrfs lost data"),
        ("xfs fastest of ext4", Holds, "cost of xfs"),
    ] {
        let judged = judge(text);
        assert_eq!(judged.outcome, outcome, "{text}: {judged:?}");
        assert!(judged.evidence.join("; ").contains(said), "{text}: {judged:?}");
    }
    // A gate on a check is one of the workload that has it; a check that nobody has is asked of all.
    plan.study.gates = ["xfs: durable", "xfs: contents held"].map(String::from).into();
    let gates = analyse(&plan, &records, None).gates;
    let judged: Vec<_> = gates.iter().map(|gate| (&*gate.workload, gate.outcome)).collect();
    assert_eq!(judged, [("load", Holds), ("load", Inconclusive), ("other", Inconclusive)]);
}
