//! What the tables and the sentence say of records made by hand.

use super::*;
use crate::sentence::sentence;
use lab::analysis::analyse;
use lab::record::{Outcome, PhaseRecord, Record};
use lab::study::{CommandText, StudyText, WorkloadText};

/// A study of ext4, xfs and btrfs.
fn study(blocks: u32) -> StudyText {
    let command = Some(CommandText::Line("true".into()));
    StudyText {
        contenders: ["ext4", "xfs", "btrfs"].map(String::from).into(),
        runs: Some(blocks),
        workloads: vec![WorkloadText { command, ..Default::default() }],
        ..Default::default()
    }
}

/// Completed records of every trial of the plan, whose runs and syncs take `time_ns` each.
fn records(plan: &Plan, time_ns: impl Fn(&Record) -> u64) -> Vec<Record> {
    let mut records = Vec::new();
    for block in &plan.blocks {
        for trial in &block.trials {
            let spec = plan.spec(block, *trial, None, "/nowhere".into());
            let mut record = Record::begun(&spec, 0);
            let elapsed_ns = time_ns(&record);
            record.phases = [Phase::Run, Phase::Sync]
                .map(|phase| PhaseRecord { phase, elapsed_ns, device: None, machine_cpu_ns: None })
                .into();
            records.push(record);
        }
    }
    records
}

/// What the tables say of three blocks of ext4, xfs and btrfs, of which `failing` completed no
/// trial and `untried` was not begun.
fn shown(failing: &[&str], untried: &str) -> (String, String) {
    let plan = Plan::new(study(3).resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let mut records = records(&plan, |record| 1_000_000_000 + u64::from(record.trial));
    records.retain(|record| record.contender.label != untried);
    for record in &mut records {
        if failing.contains(&record.contender.label.as_str()) {
            let (message, output) = ("it broke".into(), String::new());
            record.outcome = Outcome::Failed { phase: Phase::Run, message, output };
        }
    }
    let analysis = analyse(&plan, &records, None);
    let workload = &analysis.workloads[0];
    (contenders(workload, &plan).terminal(false).to_string(), sentence(workload, &plan))
}

fn row<'a>(table: &'a str, label: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.trim_start().starts_with(label)).unwrap();
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn a_contender_that_failed_is_called_failed_and_not_inconclusive() {
    let (table, sentence) = shown(&["xfs"], "");
    assert_eq!(row(&table, "xfs"), ["xfs", "failed 3×", "-", "failed"]);
    assert_eq!(row(&table, "ext4")[2..], ["1", "baseline"]);
    assert!(sentence.contains("btrfs is as fast as ext4"), "{sentence}");
    assert!(sentence.contains("xfs failed whenever it was tried"), "{sentence}");
    assert!(sentence.contains("from 3 interleaved blocks"), "{sentence}");
    // With nothing left to compare, no interval is spoken of.
    let (_, sentence) = shown(&["xfs", "btrfs"], "");
    assert_eq!(
        sentence,
        "xfs failed whenever it was tried and btrfs failed whenever it was tried."
    );
}

#[test]
fn without_a_baseline_there_is_no_ratio() {
    let (table, sentence) = shown(&["ext4"], "");
    // A column in which no row says anything is left out.
    assert_eq!(row(&table, "ext4"), ["ext4", "failed 3×", "baseline failed"]);
    assert_eq!(row(&table, "xfs")[2..], ["no baseline"]);
    assert!(sentence.starts_with("ext4, the baseline, completed no trial"), "{sentence}");
    assert!(sentence.contains("--baseline"), "{sentence}");
}

#[test]
fn the_sentence_has_the_ratio_of_the_table_in_its_direction() {
    // Three blocks; xfs takes about 0.8 times as long.
    let text = study(3);
    let plan = Plan::new(text.resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let records = records(&plan, |record| match record.contender.label.as_str() {
        "xfs" => 800_000_000 + u64::from(record.block) * 1_000_000,
        _ => 1_000_000_000,
    });
    let workload = analyse(&plan, &records, None).workloads.remove(0);
    let said = sentence(&workload, &plan);
    let comparison = &workload.comparisons[0];
    assert_eq!(comparison.verdict, Verdict::Faster);
    let ends = [comparison.ratio, comparison.low, comparison.high];
    let [ratio, low, high] = ends.map(|value| text::ratio(value.unwrap()));
    let expected = format!("xfs takes {ratio} times as long as ext4 ({low} to {high})");
    assert!(said.starts_with(&expected), "no '{expected}' in {said}");
    let table = contenders(&workload, &plan).terminal(false);
    assert!(table.contains(&format!("{ratio} [{low}, {high}]")), "{table}");
}

#[test]
fn an_interval_that_says_nothing_keeps_no_digits() {
    let plan = Plan::new(study(3).resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let records = records(&plan, |record| match record.contender.label.as_str() {
        "xfs" => [1, 900, 30][record.block as usize] * 10_000_000,
        _ => 1_000_000_000,
    });
    let workload = analyse(&plan, &records, None).workloads.remove(0);
    let table = contenders(&workload, &plan).terminal(false);
    assert!(row(&table, "xfs")[2].ends_with("[too wide to tell]"), "{table}");
    let explained = "[too wide to tell]: the interval allows for no difference";
    let analysis =
        Analysis { workloads: vec![workload.clone()], gates: Vec::new(), forecast: None };
    let shown = terminal(&plan, &analysis, false);
    // What is said is no wider than a terminal; tables are as wide as they are.
    let said = shown.lines().filter(|line| !line.trim_start().contains("  "));
    let widest = said.map(|line| line.chars().count()).max().unwrap();
    assert!((60..=text::PROSE_COLUMNS).contains(&widest), "{shown}");
    let markdown = crate::export::markdown(&plan, &analysis).replace('\\', "");
    for text in [shown.to_string(), markdown] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches(explained).count(), 1, "{text}");
    }
    let said = sentence(&workload, &plan);
    assert!(
        said.contains("xfs against ext4 is inconclusive (its interval is too wide to tell)"),
        "{said}"
    );
    assert!(workload.comparisons[0].low.is_some(), "the numbers stay in the analysis");
}

#[test]
fn blocks_are_counted_alike_in_text_and_tables() {
    let plan = Plan::new(study(4).resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let mut records = records(&plan, |_| 1_000_000_000);
    let analysis = analyse(&plan, &records, None);
    assert_eq!(blocks_text(&analysis.workloads[0]), "4 blocks");
    assert!(sentence(&analysis.workloads[0], &plan).contains("from 4 interleaved blocks on"));
    // The budget ended in the last block, after the trial of ext4 alone.
    records.retain(|record| record.block < 3 || record.contender.label == "ext4");
    let analysis = analyse(&plan, &records, None);
    let expected = "3 whole blocks and a part of another";
    assert_eq!(blocks_text(&analysis.workloads[0]), expected);
    assert_eq!(all_blocks_text(analysis.workloads.iter()), expected);
    assert!(analysis.workloads[0].contenders.iter().all(|contender| contender.trials == 3));
    let said = sentence(&analysis.workloads[0], &plan);
    assert!(said.contains("from 3 interleaved blocks (of 4 that were begun) on"), "{said}");
}

#[test]
fn a_part_of_a_study_is_announced_above_its_numbers() {
    let full = study(3).resolve(&["ext4", "xfs", "btrfs"]).unwrap();
    let reduced = serde_json::json!({
        "quick": true,
        "remedy": "--full runs it all",
        "loads": [{
            "workload": full.workloads[0].name,
            "parts": [{ "what": "the counted time", "share": 0.005, "amounts": "3 s of 600 s" }],
        }],
    });
    let mut here = full.clone();
    here.reduced = Some(serde_json::from_value(reduced).unwrap());
    let plan = Plan::new(here, 1);
    let analysis = analyse(&plan, &records(&plan, |_| 1_000_000_000), None);
    let said = terminal(&plan, &analysis, false);
    let line = "  Quick profile, not the study's full size: 0.5 % of the counted time (3 s of 600 s); 3 blocks; --full runs it all.\n";
    assert!(said.starts_with(line), "{said}");
    assert!(crate::export::markdown(&plan, &analysis).contains(line.trim()));
    let whole = Plan::new(full, 1);
    let analysis = analyse(&whole, &records(&whole, |_| 1_000_000_000), None);
    assert!(!terminal(&whole, &analysis, false).contains("profile"));
}

#[test]
fn a_contender_that_was_not_tried_is_not_called_failed() {
    let (table, sentence) = shown(&[], "btrfs");
    assert_eq!(row(&table, "btrfs"), ["btrfs", "-", "-", "-"]);
    assert!(sentence.contains("btrfs was not tried"), "{sentence}");
}

/// Blocks of which the trials of xfs take this, and those of ext4 and btrfs that, in ms. Where xfs has
/// no time its trial failed.
fn of_times(xfs_ms: &[u64], ext4_ms: &[u64]) -> (Plan, WorkloadAnalysis) {
    let plan =
        Plan::new(study(ext4_ms.len() as u32).resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let of = |record: &Record| match record.contender.label.as_str() {
        "xfs" => xfs_ms.get(record.block as usize).copied(),
        _ => Some(ext4_ms[record.block as usize]),
    };
    // Run and sync take half of it each.
    let mut all = records(&plan, |record| of(record).unwrap_or(0) * 500_000);
    for record in all.iter_mut().filter(|record| of(record).is_none()) {
        let (message, output) = ("it broke".into(), String::new());
        record.outcome = Outcome::Failed { phase: Phase::Run, message, output };
    }
    let workload = analyse(&plan, &all, None).workloads.remove(0);
    (plan, workload)
}

#[test]
fn a_ratio_that_points_another_way_than_the_medians_beside_it_is_marked_and_explained() {
    // Both say that xfs is faster, by other numbers within the interval.
    let (plan, workload) = of_times(&[900, 5000, 3300], &[1000, 4000, 3900]);
    let table = contenders(&workload, &plan).terminal(false);
    assert!(!row(&table, "xfs")[2].contains('†'), "{table}");
    assert!(contenders_explained(&workload).is_empty());
    // The medians say 900 against 1000, the pairs that xfs takes longer.
    let (plan, workload) = of_times(&[900, 1500, 800], &[1000, 700, 1100]);
    let table = contenders(&workload, &plan).terminal(false);
    assert!(row(&table, "xfs")[2].ends_with('†'), "{table}");
    assert!(!row(&table, "btrfs")[2].contains('†'), "{table}");
    assert!(contenders_explained(&workload)[0].starts_with("† the medians shown divide"));
    assert!(
        terminal(
            &plan,
            &Analysis { workloads: vec![workload], gates: vec![], forecast: None },
            false
        )
        .contains("  † ")
    );
}

#[test]
fn the_rate_of_one_client_is_not_told_of_a_queue() {
    use lab::load::{Latency, Load, LoadReport};
    let latency = |operation: &str| Latency {
        operation: operation.into(),
        count: 100,
        bytes: 1 << 30,
        total_ns: 1_000_000_000,
        p5_ns: 1,
        p50_ns: 1,
        p90_ns: 1,
        p95_ns: 1,
        p99_ns: 1,
        p99_9_ns: 1,
        p99_99_ns: 1,
        max_ns: 1,
    };
    let kinds = ["randread-psync-1-4k-read", "randread-libaio-32-4k-read", "read"];
    let rates = |load: Load| -> Vec<String> {
        let mut plan = Plan::new(study(3).resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
        plan.study.workloads[0].load = load;
        let mut records = records(&plan, |_| 1_000_000_000);
        for record in &mut records {
            let latencies = kinds.map(latency).into();
            record.load = Some(LoadReport { latencies, ..Default::default() });
        }
        let workload = analyse(&plan, &records, None).workloads.remove(0);
        let table = latencies(&workload, &plan);
        table.rows.iter().step_by(3).map(|row| row.last().unwrap().text.clone()).collect()
    };
    let load = |json| serde_json::from_value(json).unwrap();
    let matrix = load(serde_json::json!({ "kind": "fio-matrix" }));
    assert_eq!(rates(matrix), ["1024.0", "-", "1024.0"]);
    let job = |text: &str| load(serde_json::json!({ "kind": "fio", "text": text }));
    assert_eq!(rates(job("rw=read ioengine=libaio iodepth=16"))[2], "-");
    assert_eq!(rates(job("rw=read"))[2], "1024.0");
}

#[test]
fn what_must_be_known_first_stands_below_the_ranking_once() {
    let (_, mut workload) = of_times(&[900, 5000, 3300], &[1000, 4000, 3900]);
    for contender in &mut workload.contenders {
        contender.caveats = vec!["other work".into()];
    }
    assert_eq!(contenders_explained(&workload), ["other work"]);
    workload.contenders[0].caveats.clear();
    let others: Vec<&str> = workload.contenders[1..].iter().map(|c| c.label.as_str()).collect();
    let said = contenders_explained(&workload);
    assert_eq!(said, [format!("{}: other work", others.join(" and "))]);
}

#[test]
fn one_pair_beside_another_trial_of_the_baseline_has_no_ratio() {
    let (plan, workload) = of_times(&[1000], &[1300, 600]);
    let table = contenders(&workload, &plan).terminal(false);
    assert_eq!(row(&table, "xfs")[2..], ["no ratio", "inconclusive"], "{table}");
    let said = sentence(&workload, &plan);
    assert!(
        said.contains("xfs against ext4 is inconclusive (no interval: 1 block with a completed trial of both, 3 are needed)"),
        "{said}"
    );
    assert!(
        said.ends_with("That is of only 1 to 2 interleaved blocks (of 2 that were begun) on an image file (loop:8G)."),
        "{said}"
    );
    assert!(contenders_explained(&workload)[0].starts_with("no ratio: fewer than 3 blocks"));
    // A pair alone is what stands beside it.
    let (plan, workload) = of_times(&[1000], &[1300]);
    let table = contenders(&workload, &plan).terminal(false);
    assert_eq!(row(&table, "xfs")[2..], ["0.769", "inconclusive"], "{table}");
    assert!(contenders_explained(&workload).is_empty());
}
