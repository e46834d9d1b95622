//! What the analysis says of records made by hand.

use super::*;
use crate::fixture::{self, MILLISECOND_NS, fail, plan, records, run_of};
use crate::record::{FileSystemSpace, Outcome, PhaseRecord};
use crate::warning::{Warning, WarningKind};
use crate::workload::{Metric, WorkloadReport};

/// Six blocks of about 100 ms and of about twice as much, without anything to warn of.
pub(super) const STEADY: [&[u64]; 2] =
    [&[1000, 1010, 990, 1004, 1020, 985], &[2010, 2000, 1990, 2015, 2020, 1980]];

pub(super) fn steady() -> (Plan, Vec<Record>) {
    let plan = plan(&["ext4", "xfs"], 6);
    let records = records(&plan, &STEADY);
    (plan, records)
}

pub(super) fn only(analysis: Analysis) -> WorkloadAnalysis {
    assert_eq!(analysis.workloads.len(), 1);
    analysis.workloads.into_iter().next().unwrap()
}

pub(super) fn analysed(plan: &Plan, records: &[Record]) -> WorkloadAnalysis {
    only(analyse(plan, records, None))
}

pub(super) fn is_xfs(record: &Record) -> bool {
    record.contender.label == "xfs"
}

pub(super) fn of<'a>(found: &'a WorkloadAnalysis, label: &str) -> &'a ContenderAnalysis {
    found.contenders.iter().find(|contender| contender.label == label).unwrap()
}

#[test]
fn steady_records_are_summarised_and_earn_no_warning() {
    let (plan, records) = steady();
    let found = analysed(&plan, &records);
    assert_eq!(found.warnings, []);
    assert_eq!(found.blocks, 6);
    let ext4 = of(&found, "ext4");
    assert_eq!((ext4.trials, ext4.failed), (6, 0));
    assert_eq!(ext4.time.as_ref().unwrap().median, 1.002e9);
    assert_eq!(ext4.phases, [(Phase::Run, 1.002e9), (Phase::Sync, 0.0)]);
    let comparison = &found.comparisons[0];
    assert_eq!((comparison.contender.as_str(), comparison.baseline.as_str()), ("xfs", "ext4"));
    assert_eq!((comparison.metric.as_str(), comparison.blocks), ("time", 6));
    assert_eq!(comparison.verdict, Verdict::Slower);
    let (low, high) = (comparison.low.unwrap(), comparison.high.unwrap());
    assert!(1.95 < low && low < 2.0 && 2.0 < high && high < 2.05, "{low} {high}");
}

#[test]
fn no_record_at_all_is_an_analysis_too() {
    let plan = plan(&["ext4", "xfs"], 3);
    let found = analysed(&plan, &[]);
    assert_eq!((found.blocks, found.contenders.len(), found.comparisons.len()), (0, 2, 1));
    assert_eq!(found.comparisons[0].verdict, Verdict::Inconclusive);
    assert_eq!(found.comparisons[0].ratio, None);
    assert_eq!(found.warnings, []);
    assert!(of(&found, "xfs").time.is_none() && of(&found, "xfs").phases.is_empty());
    assert_eq!(of(&found, "xfs").cost, ResourceUse::default());
}

#[test]
fn a_failed_trial_takes_its_pair_out_and_nothing_else() {
    let (plan, mut records) = steady();
    fail(records.iter_mut().find(|record| is_xfs(record) && record.block == 2).unwrap());
    fail(records.iter_mut().find(|record| !is_xfs(record) && record.block == 4).unwrap());
    let found = analysed(&plan, &records);
    assert_eq!(found.comparisons[0].blocks, 4);
    for label in ["ext4", "xfs"] {
        assert_eq!((of(&found, label).trials, of(&found, label).failed), (6, 1));
        assert_eq!(of(&found, label).time.as_ref().unwrap().count, 5);
        let expected = Warning::of(WarningKind::Failures, label, "1 of 6 runs failed");
        assert!(found.warnings.contains(&expected), "{:?}", found.warnings);
    }
    assert_eq!(found.warnings.len(), 2);
}

#[test]
fn too_few_pairs_have_a_ratio_but_no_interval() {
    let (plan, mut records) = steady();
    records.retain(|record| record.block < 2);
    let comparison = &analysed(&plan, &records).comparisons[0];
    assert_eq!(comparison.blocks, 2);
    assert!((comparison.ratio.unwrap() - 2.0).abs() < 0.05);
    assert_eq!((comparison.low, comparison.high, comparison.p_adjusted), (None, None, None));
    assert_eq!(comparison.verdict, Verdict::Inconclusive);
}

#[test]
fn too_few_pairs_have_no_ratio_where_one_side_has_other_trials_too() {
    let (plan, mut records) = steady();
    records.iter_mut().filter(|record| is_xfs(record) && record.block >= 2).for_each(fail);
    let comparison = &analysed(&plan, &records).comparisons[0];
    assert_eq!((comparison.blocks, comparison.ratio), (2, None));
    assert_eq!(comparison.verdict, Verdict::Inconclusive);
    // One pair is enough of a reason.
    records.retain(|record| [0, 2].contains(&record.block));
    let found = analysed(&plan, &records);
    assert_eq!((found.comparisons[0].blocks, found.comparisons[0].ratio), (1, None));
    assert_eq!(of(&found, "ext4").time.as_ref().unwrap().count, 2);
}

#[test]
fn nothing_of_a_block_that_was_not_finished_is_in_a_figure() {
    let (plan, all) = steady();
    let ends_in = |block: u32| -> Vec<Record> {
        let ran = |record: &&Record| record.block < block + u32::from(!is_xfs(record));
        all.iter().filter(ran).cloned().collect()
    };
    let whole: Vec<Record> = all.iter().filter(|record| record.block < 3).cloned().collect();
    let (expected, mut records) = (analysed(&plan, &whole), ends_in(3));
    let found = analysed(&plan, &records);
    assert_eq!((found.blocks, found.blocks_whole), (4, 3));
    assert_eq!(found.contenders, expected.contenders);
    assert_eq!(found.comparisons, expected.comparisons);
    let labels = ["ext4", "xfs"];
    let counted =
        |records| labels.map(|l| crate::record::counted_trials(records, "true", l).count());
    assert_eq!(counted(&records), [3, 3]);
    // That a trial failed there is told all the same.
    fail(records.last_mut().unwrap());
    let failed = Warning::of(WarningKind::Failures, "ext4", "1 of 4 runs failed");
    assert_eq!(analysed(&plan, &records).warnings, [failed]);
    // A trial that failed is no trial that was not run: its block is whole.
    let mut with_failure: Vec<Record> = all.iter().filter(|r| r.block < 4).cloned().collect();
    fail(with_failure.iter_mut().find(|record| is_xfs(record) && record.block == 3).unwrap());
    assert_eq!(of(&analysed(&plan, &with_failure), "ext4").trials, 4);
    // Of a first block that was not finished there is nothing else.
    let first = analysed(&plan, &ends_in(0));
    assert_eq!((of(&first, "ext4").trials, of(&first, "xfs").trials), (1, 0));
}

#[test]
fn warm_up_interrupted_and_foreign_trials_do_not_count() {
    let mut text = fixture::study_text(&["ext4", "xfs"], 3);
    text.warmup = Some(1);
    let plan = fixture::plan_of(&text);
    let mut all = records(&plan, &[&[100, 100, 100], &[100, 100, 100]]);
    let expected = analysed(&plan, &all);
    let mut extra = all[0].clone();
    run_of(&mut extra).elapsed_ns *= 50;
    let change: [fn(&mut Record); 4] = [
        |record| record.warmup = true,
        |record| record.outcome = Outcome::Interrupted { phase: Phase::Run },
        |record| record.contender.label = "zfs".into(),
        |record| record.workload = "false".into(),
    ];
    for change in change {
        let mut extra = extra.clone();
        change(&mut extra);
        all.push(extra);
    }
    assert_eq!(analysed(&plan, &all), expected);
    // The same record without any of these changes does.
    all.push(extra);
    assert_ne!(analysed(&plan, &all), expected);
}

#[test]
fn every_workload_is_compared_on_its_own() {
    let mut text = fixture::study_text(&["ext4", "xfs"], 3);
    text.workloads.push(crate::study::WorkloadText {
        command: Some(crate::study::CommandText::Line("false".into())),
        ..Default::default()
    });
    text.baseline = Some("xfs".into());
    let plan = fixture::plan_of(&text);
    let mut records = Vec::new();
    for block in 0..3 {
        for (workload, contender, time_ms) in [(0, 0, 300), (0, 1, 100), (1, 0, 100), (1, 1, 100)] {
            let time_ns = (time_ms + u64::from(block)) * MILLISECOND_NS;
            records.push(fixture::record_of(&plan, workload, contender, block, time_ns));
        }
    }
    let analysis = analyse(&plan, &records, None);
    let comparisons: Vec<_> =
        analysis.workloads.iter().map(|workload| &workload.comparisons[0]).collect();
    assert_eq!(comparisons[0].workload, "true");
    assert_eq!((&*comparisons[0].contender, &*comparisons[0].baseline), ("ext4", "xfs"));
    assert_eq!(comparisons[0].verdict, Verdict::Slower);
    assert_eq!(comparisons[1].workload, "false");
    assert_eq!(comparisons[1].verdict, Verdict::Same { within: 0.05 });
}

#[test]
fn amplification_divides_by_the_same_writes_for_all_contenders() {
    let (plan, mut all) = steady();
    for record in &mut all {
        record.counts_write_bytes = Some(!is_xfs(record));
        let usage = record.command.as_mut().unwrap();
        usage.storage_written_bytes = Some(1 << 20);
        usage.write_call_bytes = Some(2 << 20);
        run_of(record).device.as_mut().unwrap().written_bytes = 3 << 20;
        let sync = record.phases.last_mut().unwrap();
        sync.device.as_mut().unwrap().written_bytes = 1 << 20;
    }
    let found = analysed(&plan, &all);
    let (kernel, user) = (&of(&found, "ext4").cost, &of(&found, "xfs").cost);
    // Of the second the kernel counts no storage writes, so those of the first do not count either.
    assert_eq!(kernel.amplification_basis, Some(AmplificationBasis::WriteCalls));
    assert_eq!(user.amplification_basis, Some(AmplificationBasis::WriteCalls));
    // Run and sync are one cost: 4 MiB on the device.
    assert_eq!((kernel.write_amplification, user.write_amplification), (Some(2.0), Some(2.0)));
    assert_eq!(kernel.device_written_bytes, Some((4 << 20) as f64));

    // The kernel counts for both: what it charges is the file system's doing, alike or not.
    for of_xfs in [1 << 20, 1_200_000, 6 << 20] {
        let (basis, amplification) = (AmplificationBasis::WriteCalls, 2.0);
        for record in &mut all {
            record.counts_write_bytes = Some(true);
            let bytes = if is_xfs(record) { of_xfs } else { 1 << 20 };
            record.command.as_mut().unwrap().storage_written_bytes = Some(bytes);
        }
        let cost = of(&analysed(&plan, &all), "ext4").cost.clone();
        assert_eq!(cost.amplification_basis, Some(basis), "{of_xfs}");
        assert_eq!(cost.write_amplification, Some(amplification), "{of_xfs}");
    }

    // Writes that pass the calls by, as asynchronous ones, are known to the kernel alone, whatever
    // amount each contender came to in its time.
    for record in &mut all {
        let bytes = if is_xfs(record) { 4 << 20 } else { 16 << 20 };
        record.command.as_mut().unwrap().storage_written_bytes = Some(bytes);
    }
    let found = analysed(&plan, &all);
    assert_eq!(of(&found, "ext4").cost.write_amplification, Some(0.25));
    assert_eq!(of(&found, "xfs").cost.write_amplification, Some(1.0));

    // A workload that counts what it hands on is believed before the kernel, to which the records of a
    // file system in the workload's process are the workload's own.
    let mut counting = all.clone();
    for record in &mut counting {
        let load = WorkloadReport { written_bytes: Some(3 << 20), ..Default::default() };
        record.load = Some(load);
    }
    let cost = of(&analysed(&plan, &counting), "ext4").cost.clone();
    assert_eq!(cost.amplification_basis, Some(AmplificationBasis::LoadWrites));
    assert_eq!(cost.command_written_bytes, Some((3 << 20) as f64));
    assert_eq!(cost.write_amplification, Some(4.0 / 3.0));

    // Below 64 KiB the ratio says nothing, and what was not counted has none.
    for (written_bytes, expected) in
        [(Some(65_536), Some(64.0)), (Some(65_535), None), (None, None)]
    {
        for record in &mut all {
            let usage = record.command.as_mut().unwrap();
            usage.storage_written_bytes = written_bytes;
            usage.write_call_bytes = written_bytes;
        }
        assert_eq!(of(&analysed(&plan, &all), "ext4").cost.write_amplification, expected);
    }
    all.iter_mut().for_each(|record| run_of(record).device = None);
    let found = analysed(&plan, &all);
    let cost = &of(&found, "ext4").cost;
    assert_eq!((cost.write_amplification, cost.device_flushes), (None, None));
}

#[test]
fn every_phase_has_what_the_device_did_in_it() {
    let (plan, mut all) = steady();
    for record in &mut all {
        let written_bytes = 4096 * u64::from(record.block);
        let device =
            DeviceDelta { written_bytes, read_bytes: 512, flushes: 3, ..Default::default() };
        let layout = PhaseRecord { device: Some(device), ..record.phases[0].clone() };
        record.phases.insert(0, PhaseRecord { phase: Phase::Layout, ..layout });
        record.flushes_uncounted = is_xfs(record);
        record.phases.last_mut().unwrap().device = None;
    }
    let found = analysed(&plan, &all);
    let expected = PhaseDevice {
        phase: Phase::Layout,
        read_bytes: 512.0,
        written_bytes: 2.5 * 4096.0,
        flushes: Some(3.0),
    };
    let phases = |label| of(&found, label).phase_devices.clone();
    assert_eq!(phases("ext4")[0], expected);
    assert_eq!(phases("xfs")[0], PhaseDevice { flushes: None, ..expected });
    // Nothing is made up of a phase that was not counted.
    let names: Vec<Phase> = phases("ext4").iter().map(|entry| entry.phase).collect();
    assert_eq!(names, [Phase::Layout, Phase::Run]);
}

#[test]
fn space_may_be_taken_or_given_back() {
    let space = |free_bytes: u64| {
        Some(FileSystemSpace { total_bytes: 1 << 30, free_bytes, free_inodes: 10 })
    };
    let (plan, mut records) = steady();
    for record in &mut records {
        let (before, after) = if is_xfs(record) { (100, 400) } else { (400, 100) };
        (record.space_before, record.space_after) = (space(before), space(after));
    }
    let found = analysed(&plan, &records);
    assert_eq!(of(&found, "ext4").cost.space_taken_bytes, Some(300.0));
    assert_eq!(of(&found, "xfs").cost.space_taken_bytes, Some(-300.0));
}

#[test]
fn figures_that_no_clock_made_are_left_out_rather_than_a_panic() {
    let (plan, mut records) = steady();
    records[0].phases.iter_mut().for_each(|entry| entry.elapsed_ns = 0);
    records[1].phases.iter_mut().for_each(|entry| entry.elapsed_ns = u64::MAX);
    for entry in &mut records[2].phases {
        entry.device.as_mut().unwrap().written_bytes = u64::MAX;
    }
    records[3].phases.clear();
    let found = analysed(&plan, &records);
    assert_eq!(found.comparisons[0].blocks, 4);
    next_step(&plan, &records, 6);
}

/// The order of trials that take turns is another one in each round, and theirs in the plan is only
/// that in which their file systems were made.
#[test]
fn the_order_of_the_plan_says_nothing_of_trials_that_took_turns() {
    let plan = plan(&["ext4", "xfs"], 16);
    let is_first = |record: &Record| {
        let of_block = plan.blocks.iter().find(|block| block.block == record.block).unwrap();
        of_block.trials[0].trial == record.trial
    };
    let times: Vec<u64> = (0..16).map(|block| 1000 + block * 7 % 11).collect();
    let mut records = records(&plan, &[&times, &times]);
    for record in records.iter_mut().filter(|record| is_first(record)) {
        let run = run_of(record);
        run.elapsed_ns = run.elapsed_ns * 13 / 10;
    }
    let named = |records: &[Record]| {
        let warnings = analysed(&plan, records).warnings;
        warnings.iter().any(|warning| warning.kind == WarningKind::FirstOfBlock)
    };
    assert!(named(&records));
    for record in &mut records {
        record.side_by_side = Some(crate::spec::SideBySide { contenders: 2, part: 0 });
    }
    assert!(!named(&records));
}

#[test]
fn a_note_is_left_out_where_the_figure_that_checks_it_decides_the_same() {
    let (plan, steady) = steady();
    let told = |operations: f64| {
        let mut records = steady.clone();
        for record in &mut records {
            let time = record.time_ns().unwrap() as f64;
            let of = |name: &str, value| Metric::new(name, value, Unit::OperationsPerSecond);
            let share = if is_xfs(record) { operations } else { 1.0 };
            record.load = Some(WorkloadReport {
                metrics: vec![of("throughput", 1e12 / time), of("operations", share * 1e12 / time)],
                note: Some("beware".into()),
                note_checked_by: Some("operations".into()),
                ..Default::default()
            });
        }
        of(&analysed(&plan, &records), "xfs").notes.clone()
    };
    // Half as fast by the first figure; so by the other, or as fast.
    assert_eq!(told(1.0), [""; 0]);
    assert_eq!(told(2.0), ["beware"]);
}

#[test]
fn what_must_be_known_of_a_device_is_known_of_its_contender() {
    let (plan, mut records) = steady();
    let small = "btrfs behaves differently on less than 2G, and has 1G";
    for record in records.iter_mut().filter(|record| is_xfs(record)) {
        record.caution = Some(small.into());
    }
    let found = analysed(&plan, &records);
    assert_eq!(of(&found, "xfs").notes, [small]);
    assert_eq!(of(&found, "ext4").notes, [""; 0]);
}

#[test]
fn two_that_are_not_the_baseline_are_told_apart_by_their_own_ratios() {
    let mut plan = plan(&["ext4", "xfs", "btrfs", "b: ext4"], 6);
    plan.study.contenders[3].layers[0].name = "raw".into();
    // What shakes the baseline is in the ratio of neither to the other.
    let base = [1000, 1500, 800, 1300, 900, 1200];
    let times: [&[u64]; 4] = [
        &base,
        &[1000, 1003, 998, 1001, 1002, 999],
        &[1100, 1104, 1097, 1102, 1101, 1099],
        &[500; 6],
    ];
    let found = analysed(&plan, &records(&plan, &times));
    let of = |label: &str| found.comparisons.iter().find(|one| one.contender == label).unwrap();
    assert!(!of("xfs").verdict.is_decided() && !of("btrfs").verdict.is_decided());
    // Nobody can choose the bare device.
    let [direct] = found.direct.as_slice() else { panic!("{:?}", found.direct) };
    assert_eq!((direct.baseline.as_str(), direct.contender.as_str()), ("xfs", "btrfs"));
    assert_eq!((direct.verdict, direct.primary), (Verdict::Slower, false));
}

/// Time of this thread's own instructions, which other processes do not lengthen.
fn cpu_seconds(work: impl Fn()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let once = || {
        let begun = now();
        work();
        now() - begun
    };
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Eight times the blocks, or the metrics, take about eight times the work; they took 64 times it.
#[test]
fn the_work_grows_with_the_result_and_not_with_its_square() {
    let of_blocks = |blocks: u32| {
        let plan = plan(&["ext4", "xfs"], blocks);
        let times: Vec<u64> = (0..u64::from(blocks)).map(|block| 900 + block * 37 % 211).collect();
        let records = records(&plan, &[&times, &times]);
        cpu_seconds(|| drop(analyse(&plan, &records, None)))
    };
    let of_metrics = |count: u32| {
        let (plan, mut records) = steady();
        let metric = |number| Metric {
            name: format!("metric {number}"),
            value: 1.0,
            unit: crate::workload::Unit::Count,
            axes: Default::default(),
        };
        let metrics: Vec<Metric> = (0..count).map(metric).collect();
        for record in &mut records {
            record.load =
                Some(WorkloadReport { metrics: metrics.clone(), ..WorkloadReport::default() });
        }
        cpu_seconds(|| drop(analyse(&plan, &records, None)))
    };
    let of_notes = |count: u32| {
        let (plan, mut records) = steady();
        for record in &mut records {
            let findings = (0..count).map(|number| format!("finding {number}")).collect();
            record.load = Some(WorkloadReport { findings, ..WorkloadReport::default() });
        }
        cpu_seconds(|| drop(analyse(&plan, &records, None)))
    };
    let bound = 24.0;
    for (what, few, many) in [
        ("blocks", of_blocks(500), of_blocks(4000)),
        ("metrics", of_metrics(250), of_metrics(2000)),
        ("findings", of_notes(250), of_notes(2000)),
    ] {
        eprintln!("{what}: {few:.4} s, {many:.4} s of CPU");
        assert!(many < bound * few, "{what}: {few} s, and {many} s for eight times as much");
    }
}

#[test]
fn the_overhead_is_each_cell_against_the_bare_device() {
    let mut plan = plan(&["ext4", "xfs", "btrfs"], 4);
    let mut records = fixture::records(&plan, &[&[1; 4], &[1; 4], &[1; 4]]);
    for record in &mut records {
        // Every block is twice as fast as the one before; the pairs know nothing of that.
        let speed = f64::from(1 << record.block);
        let share = match record.contender.label.as_str() {
            "ext4" => [0.75, 0.74, 0.75, 0.76][record.block as usize],
            "btrfs" => 2.0,
            _ => 1.0,
        };
        let value = 1000.0 * speed * share;
        record.load = Some(WorkloadReport {
            metrics: vec![
                Metric::new("geometric mean of all cells", 1000.0, Unit::OperationsPerSecond),
                fixture::cell("randread-psync-1-4k", value),
                fixture::cell("randread-psync-1-8k", value),
            ],
            ..Default::default()
        });
    }
    // Without a bare device there is no overhead.
    assert_eq!(analyse(&plan, &records, None).workloads[0].overhead, []);
    plan.study.contenders[1].layers[0].name = "raw".into();
    let found = analyse(&plan, &records, None).workloads.remove(0).overhead;
    let said: Vec<[&str; 3]> = found
        .iter()
        .map(|one| [&one.contender, &one.baseline, &one.metric].map(String::as_str))
        .collect();
    let (small, large) = ("randread-psync-1-4k", "randread-psync-1-8k");
    let expected = [("ext4", small), ("ext4", large), ("btrfs", small), ("btrfs", large)];
    assert_eq!(said, expected.map(|(contender, cell)| [contender, "xfs", cell]));
    assert_eq!(found[0].blocks, 4);
    let (cost, (low, high)) = (found[0].cost().unwrap(), found[0].cost_ends().unwrap());
    assert!((cost - 4.0 / 3.0).abs() < 0.001, "{cost}");
    assert!(1.25 < low && low < 1.33 && 1.34 < high && high < 1.43, "{low} {high}");
    // Two cells: wider than the interval of one, and still around the estimate.
    let among = super::overhead_among(&plan, &records, &plan.study.workloads[0].name);
    let (same, (lower, higher)) = (among[0].cost().unwrap(), among[0].cost_ends().unwrap());
    assert!(same == cost && lower < low && high < higher && higher < 1.43, "{lower} {higher}");
    // Below three pairs there is no number, with other trials beside them and without.
    let of_blocks = |ext4: u32, raw: u32| {
        let mut few = records.clone();
        few.retain(|record| {
            record.block < if record.contender.label == "xfs" { raw } else { ext4 }
        });
        analyse(&plan, &few, None).workloads[0].overhead[0].clone()
    };
    for (ext4, raw) in [(1, 1), (1, 2), (2, 2)] {
        let withheld = of_blocks(ext4, raw);
        assert_eq!((withheld.blocks as u32, withheld.cost_ends()), (ext4, None));
    }
    let kept = of_blocks(3, 4).cost().unwrap();
    assert!((kept - 4.0 / 3.0).abs() < 0.02, "{kept}");
    // Twice as many operations.
    assert!((found[2].cost().unwrap() - 0.5).abs() < 1e-6);
}
