//! Whether the access patterns were the same, and where the store lay.

use super::super::{Outcome, judge};
use super::three;
use crate::analysis;
use crate::fixture::run_of;
use crate::load::{LoadReport, StorePlace};
use crate::plan::Plan;
use crate::record::{DeviceDelta, Record};
use crate::study::LeftOut;

#[test]
fn the_device_s_work_is_the_median_of_the_tables() {
    let (plan, mut records) = three("text = 'x'\nrule = 'same-access'\nworkload = 'load'");
    // An even number of blocks: the median lies between two trials.
    records.retain(|record| record.block < 4);
    for record in &mut records {
        let written_bytes = u64::from(record.block + 1) * 10_240_000;
        let delta = DeviceDelta { writes: 1000, written_bytes, ..Default::default() };
        run_of(record).device = Some(delta);
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let cost = &analysis.workloads[0].contenders[0].cost;
    assert_eq!(cost.device_written_bytes, Some(25_600_000.0));
    let judged = judge(&plan, &records, &analysis).remove(0);
    // The lower median would be 20 KiB.
    assert!(judged.evidence[1].contains("ext4 1000 writes of 25 KiB"), "{judged:?}");
}

/// The answer on the access patterns after xfs wrote `factor` times the bytes and requests of the
/// others, and put the store's file as `place` says.
fn access(factor: f64, place: Option<StorePlace>, claim: &str) -> Vec<String> {
    access_after(factor, place, claim, |_, _| ())
}

/// The same after a change to the plan and the records.
fn access_after(
    factor: f64,
    place: Option<StorePlace>,
    claim: &str,
    change: impl Fn(&mut Plan, &mut Vec<Record>),
) -> Vec<String> {
    let claim = format!("text = 'x'\nrule = 'same-access'\nworkload = 'load'\n{claim}");
    let (mut plan, mut records) = three(&claim);
    let in_order =
        StorePlace { pieces: 4, pieces_back: 0, bytes: 1 << 30, span_bytes: (1 << 30) + 4096 };
    for record in &mut records {
        let is_xfs = record.contender.label == "xfs";
        let times = if is_xfs { factor } else { 1.0 };
        run_of(record).device = Some(DeviceDelta {
            reads: 100,
            read_bytes: 1 << 20,
            writes: (1000.0 * times) as u64,
            written_bytes: (4_096_000.0 * times) as u64,
            ..Default::default()
        });
        let store_place = if is_xfs { place } else { Some(in_order) };
        record.load = Some(LoadReport { store_place, ..Default::default() });
    }
    change(&mut plan, &mut records);
    let analysis = analysis::analyse(&plan, &records, None);
    let judged = judge(&plan, &records, &analysis).remove(0);
    assert_eq!(judged.outcome, Outcome::Answered);
    judged.evidence
}

#[test]
fn whether_the_access_patterns_were_fair_is_a_sentence_by_thresholds() {
    let in_order =
        Some(StorePlace { pieces: 4, pieces_back: 0, bytes: 1 << 30, span_bytes: 1 << 30 });
    let sentence = |factor, place| access(factor, place, "").remove(0);
    let fair =
        "load: the access patterns were fair at this size (a store of 1024 MiB): bytes read, ";
    assert!(sentence(1.05, in_order).starts_with(fair));
    let unfair = sentence(2.2, in_order);
    assert!(unfair.starts_with("load: the access patterns were unfair: xfs had 2.2 times"));
    assert!(unfair.contains("bytes written of"), "{unfair}");
    let between = sentence(1.4, in_order);
    assert!(between.contains("cannot be told: bytes written differ by 40 % (xfs"), "{between}");
    // Where the file lies: unknown, out of order, spread far apart.
    assert!(sentence(1.0, None).contains("where the store's file lies on xfs is not known"));
    let back = in_order.map(|place| StorePlace { pieces: 20, pieces_back: 8, ..place });
    assert!(sentence(1.0, back).contains("unfair: on xfs 8 of 20 pieces"));
    let spread = in_order.map(|place| StorePlace { span_bytes: 3 << 30, ..place });
    assert!(sentence(1.0, spread).contains("cannot be told: on xfs the store's file is spread"));
    // Who is excepted is shown and not judged.
    let excepted = access(2.2, in_order, "except = ['xfs']");
    assert!(excepted[0].starts_with(fair), "{excepted:?}");
    assert!(excepted[1].contains("xfs 100 reads"), "{excepted:?}");
    assert_eq!(excepted.last().unwrap(), "not judged, as the claim has it: xfs");
}

#[test]
fn a_difference_counts_where_trials_lie_apart_and_not_within_their_scatter() {
    let in_order =
        Some(StorePlace { pieces: 4, pieces_back: 0, bytes: 1 << 30, span_bytes: 1 << 30 });
    // xfs makes more requests of the same bytes, and 150 more in each block.
    let said = |writes_least: u64| {
        let scattered = move |_: &mut Plan, records: &mut Vec<Record>| {
            for record in records.iter_mut().filter(|record| record.contender.label == "xfs") {
                let writes = writes_least + 150 * u64::from(record.block);
                run_of(record).device.as_mut().unwrap().writes = writes;
            }
        };
        access_after(1.0, in_order, "", scattered).remove(0)
    };
    // The others make 1100 in every trial; so does xfs in one.
    let within = said(1000);
    assert!(within.starts_with("load: the access patterns were fair at this size"), "{within}");
    assert!(
        within.contains("bytes read and bytes written differ by at most 10 %; requests differ by")
    );
    assert!(within.contains("from trial to trial (xfs 1100 to "), "{within}");
    let apart = said(1001);
    assert!(apart.contains("cannot be told: requests differ by "), "{apart}");
    assert!(apart.contains("(xfs the most, "), "{apart}");
    assert!(said(2500).contains("unfair: xfs had "), "{}", said(2500));
}

#[test]
fn who_was_not_measured_keeps_access_patterns_from_being_called_fair() {
    let in_order =
        Some(StorePlace { pieces: 4, pieces_back: 0, bytes: 1 << 30, span_bytes: 1 << 30 });
    let fair = "load: the access patterns were fair at this size";
    type Change = fn(&mut Plan, &mut Vec<Record>);
    let uncounted: Change = |_, records| {
        let of_btrfs = records.iter_mut().filter(|record| record.contender.label == "btrfs");
        of_btrfs.for_each(|record| run_of(record).device = None);
    };
    let left_out: Change = |plan, _| {
        let (what, name) = ("contender".into(), "zfs".into());
        plan.study.left_out = vec![LeftOut { what, name, missing: vec!["a tool".into()] }];
    };
    for (label, change) in [("btrfs", uncounted), ("zfs", left_out)] {
        let said = access_after(1.0, in_order, "", change).remove(0);
        assert!(said.contains(&format!("cannot be told: {label} was not measured (")), "{said}");
        let but_for_it = |plan: &mut Plan, records: &mut Vec<Record>| {
            change(plan, records);
            plan.study.claims[0].except = vec![label.into()];
        };
        let excepted = access_after(1.0, in_order, "", but_for_it).remove(0);
        assert!(excepted.starts_with(fair), "{excepted}");
    }
}

#[test]
fn a_store_s_place_is_told_by_data_and_by_no_words_that_begin_alike() {
    let (plan, mut records) = three("text = 'x'\nrule = 'same-access'\nworkload = 'load'");
    for record in &mut records {
        run_of(record).device =
            Some(DeviceDelta { writes: 9, written_bytes: 9, ..Default::default() });
        let findings = vec!["the store's file lies, says the tool".to_string()];
        record.load = Some(LoadReport { findings, ..Default::default() });
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let evidence = judge(&plan, &records, &analysis).remove(0).evidence;
    assert!(!evidence.iter().any(|line| line.contains("says the tool")), "{evidence:?}");
}
