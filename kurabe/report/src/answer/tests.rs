//! What the answer says of records made by hand.

use super::*;
use crate::choice::sentence;
use crate::document;
use crate::tables::latencies;
use lab::analysis::analyse;
use lab::contender::Known;
use lab::record::{Check, Phase, PhaseRecord};
use lab::statistics::Verdict;
use lab::study::{CommandText, StudyText, WorkloadText};
use lab::watched::Watched;

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
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
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

/// The result of these records.
fn source(plan: &Plan, records: &[Record]) -> ResultSource {
    ResultSource {
        name: "result".into(),
        plan: plan.clone(),
        records: records.to_vec(),
        facts: None,
        earlier_facts: Vec::new(),
        study_file: None,
        analysis: analyse(plan, records, None),
        histograms: Default::default(),
        damage: Vec::new(),
    }
}

/// The answer in the terminal.
fn screen(plan: &Plan, records: &[Record]) -> String {
    document::terminal(&answer(&source(plan, records)), false).to_string()
}

fn row<'a>(table: &'a str, label: &str) -> Vec<&'a str> {
    let is_row = |line: &&str| {
        let line = line.trim();
        line.starts_with(label) && line.contains("  ")
    };
    let row = table.lines().find(is_row).unwrap();
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn a_contender_that_failed_is_called_failed_and_not_inconclusive() {
    let (table, sentence) = shown(&["xfs"], "");
    assert_eq!(row(&table, "xfs"), ["xfs", "failed 3×", "-", "failed"]);
    assert_eq!(row(&table, "ext4")[2..], ["1", "baseline"]);
    assert_eq!(sentence, "ext4 and btrfs are the same within 5 %; xfs failed in every run.");
}

#[test]
fn without_a_baseline_there_is_no_ratio() {
    let (table, sentence) = shown(&["ext4"], "");
    // A column in which no row says anything is left out.
    assert_eq!(row(&table, "ext4"), ["ext4", "failed 3×", "baseline failed"]);
    assert_eq!(row(&table, "xfs")[2..], ["no baseline"]);
    assert!(sentence.starts_with("ext4, the baseline, completed no run"), "{sentence}");
    assert!(sentence.contains("--baseline"), "{sentence}");
}

#[test]
fn the_sentence_has_the_ratio_of_the_table_in_its_direction() {
    // Three blocks; xfs takes about 0.8 times as long.
    let text = study(3);
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let records = records(&plan, |record| match record.contender.label.as_str() {
        "xfs" => 800_000_000 + u64::from(record.block) * 1_000_000,
        _ => 1_000_000_000,
    });
    let workload = analyse(&plan, &records, None).workloads.remove(0);
    let said = sentence(&workload, &plan);
    let comparison = &workload.comparisons[0];
    assert_eq!(comparison.verdict, Verdict::Faster);
    let shown = crate::quotient::cost_text(comparison).unwrap();
    assert_eq!(
        said,
        "xfs is fastest, at 0.797 to 0.805 times the cost of ext4; ext4 and btrfs are the same within 5 %."
    );
    let table = contenders(&workload, &plan).terminal(false);
    assert!(table.contains(&shown), "{table}");
}

#[test]
fn an_interval_that_says_nothing_is_shown_as_it_is() {
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let records = records(&plan, |record| match record.contender.label.as_str() {
        "xfs" => [1, 900, 30][record.block as usize] * 10_000_000,
        _ => 1_000_000_000,
    });
    let workload = analyse(&plan, &records, None).workloads.remove(0);
    let table = contenders(&workload, &plan).terminal(false);
    assert_eq!(row(&table, "xfs")[2], "0.300 (<0.001 to >1000)", "{table}");
    let shown = screen(&plan, &records);
    // What is said is no wider than a terminal; tables are as wide as they are.
    let said = shown.lines().filter(|line| !line.trim_start().contains("  "));
    let widest = said.map(|line| line.chars().count()).max().unwrap();
    assert!((60..=text::PROSE_COLUMNS).contains(&widest), "{shown}");
    let said = sentence(&workload, &plan);
    assert_eq!(said, "ext4 and btrfs are the same within 5 %; inconclusive against ext4: xfs.");
    assert!(workload.comparisons[0].low.is_some(), "the numbers stay in the analysis");
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn only_completed_trials_of_whole_blocks_are_counted() {
    let plan = Plan::new(study(4).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut records = records(&plan, |_| 1_000_000_000);
    assert!(one_line(&screen(&plan, &records)).contains("; 4 runs of each contender."));
    // The budget ended in the last block, after the trial of ext4 alone.
    records.retain(|record| record.block < 3 || record.contender.label == "ext4");
    assert!(one_line(&screen(&plan, &records)).contains("; 3 runs of each contender."));
    let (message, output) = ("it broke".into(), String::new());
    let xfs = records.iter_mut().find(|record| record.contender.label == "xfs");
    xfs.unwrap().outcome = Outcome::Failed { phase: Phase::Run, message, output };
    assert!(one_line(&screen(&plan, &records)).contains("; 2 to 3 runs of each contender."));
}

#[test]
fn a_part_of_a_study_is_announced_above_its_numbers() {
    let full = study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap();
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
    let said = screen(&plan, &records(&plan, |_| 1_000_000_000));
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "Quick profile, not the study's full size: 0.5 % of the counted time (3 s of 600 s); --full runs it all.";
    assert!(said.contains(line), "{said}");
    let whole = Plan::new(full, 1);
    assert!(!screen(&whole, &records(&whole, |_| 1_000_000_000)).contains("profile"));
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
    let plan = Plan::new(
        study(ext4_ms.len() as u32).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(),
        1,
    );
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
fn the_rate_of_one_client_is_not_told_of_a_queue() {
    use lab::workload::{DEPTH_AXIS, Latency, Metric, Unit, WorkloadReport, WorkloadSpec};
    let figure = |name: &str, depth: &str| Metric {
        axes: [(DEPTH_AXIS.to_string(), depth.to_string())].into(),
        ..Metric::new(name, 1.0, Unit::OperationsPerSecond)
    };
    let latency = |operation: &str| Latency {
        operation: operation.into(),
        count: 100,
        bytes: 1 << 30,
        total_ns: 1_000_000_000,
        quantiles_ns: vec![(0.5, 1)],
        max_ns: 1,
    };
    let kinds = ["randread-psync-1-4k-read", "randread-libaio-32-4k-read", "read"];
    let rates = |load: WorkloadSpec| -> Vec<String> {
        let mut plan =
            Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
        plan.study.workloads[0].load = load;
        let mut records = records(&plan, |_| 1_000_000_000);
        for record in &mut records {
            let latencies = kinds.map(latency).into();
            let cells = [("randread-psync-1-4k", "1"), ("randread-libaio-32-4k", "32")];
            let metrics = cells.map(|(name, depth)| figure(name, depth)).into();
            record.load = Some(WorkloadReport { latencies, metrics, ..Default::default() });
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
fn what_must_be_known_first_is_a_warning_once() {
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut source = source(&plan, &records(&plan, |_| 1_000_000_000));
    for contender in &mut source.analysis.workloads[0].contenders {
        contender.notes = vec!["other work".into()];
    }
    let warnings = |source: &ResultSource| -> Vec<String> {
        let said = answer(source).into_iter().filter_map(|block| match block {
            Block::Warning(text) => Some(text),
            _ => None,
        });
        said.collect()
    };
    assert_eq!(warnings(&source), ["other work"]);
    source.analysis.workloads[0].contenders[0].notes.clear();
    assert_eq!(warnings(&source), ["xfs and btrfs: other work"]);
}

#[test]
fn several_workloads_have_one_overview_and_a_line_each() {
    let mut text = study(4);
    let command = |line: &str| Some(CommandText::Line(line.into()));
    text.workloads = ["one", "two", "three"]
        .map(|line| WorkloadText { command: command(line), ..Default::default() })
        .into();
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let records = records(&plan, |record| {
        match (record.workload.as_str(), record.contender.label.as_str()) {
            ("two", "xfs") => 1_600_000_000 + u64::from(record.trial) * 1_000_000,
            ("two", "btrfs") => [3, 9, 1, 40][record.block as usize] * 500_000_000,
            ("three", "btrfs") => [480, 520, 490, 515][record.block as usize] * 2_000_000,
            ("three", "xfs") => [490, 515, 485, 510][record.block as usize] * 2_000_000,
            _ => 1_000_000_000,
        }
    });
    let shown = screen(&plan, &records);
    assert_eq!(
        row(&shown, "one"),
        ["one", "2.000 s", "= 1.000 (1.000 to 1.000)", "= 1.000 (1.000 to 1.000)"]
    );
    let two = row(&shown, "two");
    assert!(
        two[2].starts_with("- 1.6") && two[2].ends_with(')') && two[3].contains(" (0.0"),
        "{shown}"
    );
    for said in [
        "  one: ext4, xfs and btrfs are the same within 5 %.\n",
        "  two: Too few rounds to name a winner among ext4 and btrfs; xfs costs 1.578 to 1.660 times",
        "  Costs relative to ext4, with their intervals",
    ] {
        assert_eq!(shown.matches(said).count(), 1, "{said}: {shown}");
    }
    // Who is not surely different has a mark that says how far.
    let three = row(&shown, "three");
    assert!(
        three[2..].iter().all(|cell| cell.starts_with("~ ") && cell.contains("(0.")),
        "{shown}"
    );
    assert!(
        shown.contains(
            "  three: no clear winner: xfs and btrfs are within 13 % of ext4; xfs and btrfs are the same"
        ),
        "{shown}"
    );
    assert_eq!(shown.matches("95 % confidence").count(), 1, "{shown}");
    // All workloads together, in a sentence and in the table.
    assert!(shown.contains("  Geometric mean of all 3 workloads: xfs costs 1."), "{shown}");
    assert_eq!(row(&shown, "geometric mean")[1], "1", "{shown}");
    assert!(shown.lines().count() < 29, "{shown}");
}

#[test]
fn a_flood_of_warnings_is_counted_and_no_warning_stands_twice() {
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut source = source(&plan, &records(&plan, |_| 1_000_000_000));
    let outlived = |number: usize| Warning::of(WarningKind::Outlived, &format!("c{number}"), "it");
    source.analysis.workloads[0].warnings = (0..9).map(outlived).collect();
    let shown = document::terminal(&answer(&source), false);
    assert_eq!(shown.matches("Warning:").count(), WARNINGS_MAX, "{}", &*shown);
    assert!(shown.contains("Note: 3 more warnings"), "{}", &*shown);
    let rest = other_remarks(&source, &source.analysis.workloads[0]);
    let all = shown.to_string() + &document::terminal(&rest, false);
    for number in 0..9 {
        assert_eq!(all.matches(&format!("c{number}:")).count(), 1, "{all}");
    }
}

#[test]
fn one_pair_beside_another_trial_of_the_baseline_has_no_ratio() {
    let (plan, workload) = of_times(&[1000], &[1300, 600]);
    let table = contenders(&workload, &plan).terminal(false);
    assert_eq!(
        row(&table, "xfs")[2..],
        ["too few rounds", "inconclusive", "1 of 2 runs failed"],
        "{table}"
    );
    let said = sentence(&workload, &plan);
    assert_eq!(said, "inconclusive against ext4: xfs and btrfs.");
    // A pair alone is what stands beside it.
    let (plan, workload) = of_times(&[1000], &[1300]);
    let table = contenders(&workload, &plan).terminal(false);
    assert_eq!(row(&table, "xfs")[2..], ["0.769", "inconclusive"], "{table}");
}

/// Three blocks in which btrfs is the fastest, with the checks that `checks` gives each record.
fn checked(checks: impl Fn(&Record) -> Vec<Check>) -> (Plan, Vec<Record>) {
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut records = records(&plan, |record| match record.contender.label.as_str() {
        "btrfs" => 100_000_000 + u64::from(record.trial),
        _ => 1_000_000_000 + u64::from(record.trial),
    });
    records.iter_mut().for_each(|record| record.checks = checks(record));
    (plan, records)
}

fn contents(tried: u64, violated: u64) -> Check {
    let first = (violated > 0).then(|| "object 7 <is> missing".to_string());
    Check { tried, violated, first, ..Check::new("contents") }
}

#[test]
fn who_lost_data_is_said_first_and_wins_nothing_in_every_rendering() {
    let (plan, records) = checked(|record| {
        vec![contents(2000, u64::from(record.contender.label == "btrfs" && record.block == 2) * 3)]
    });
    let source = source(&plan, &records);
    let said = sentence(&source.analysis.workloads[0], &plan);
    let lost = "btrfs lost data: 3 of 6,000 checks violated (contents); its time is not ranked.";
    assert!(said.starts_with(lost) && said.contains("xfs"), "{said}");
    let table = contenders(&source.analysis.workloads[0], &plan).terminal(false).to_string();
    let last = table.lines().last().unwrap();
    assert_eq!(row(&table, "btrfs")[2..], ["-", "not ranked", "contents violated (3 of 6,000)"]);
    assert!(last.contains("btrfs"), "it is the fastest, and stands last: {table}");
    assert!(
        row(&table, "xfs").last().unwrap().starts_with("contents held (6,000 of 6,000)"),
        "{table}"
    );
    let mut blocks = answer(&source);
    blocks.extend(crate::details::details(&source));
    let terminal = document::terminal(&blocks, false).to_string();
    let renderings = [terminal, document::markdown(&blocks), crate::html::render(&blocks).body];
    for rendering in renderings {
        assert!(rendering.contains("Checks") && rendering.contains("first violation"));
        assert!(rendering.contains("object 7"), "{rendering}");
        assert!(rendering.contains("0.05 %"), "the bound of 0 of 6,000: {rendering}");
        assert!(rendering.contains("check violated"), "the trial itself: {rendering}");
    }
    // Under several workloads the overview says it too.
    let mut text = study(3);
    let load = text.workloads.remove(0);
    let named = |name: &str| WorkloadText { name: Some(name.into()), ..load.clone() };
    text.workloads = vec![named("one"), named("two")];
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut records = self::records(&plan, |record| 1_000_000_000 + u64::from(record.trial));
    let is_bad =
        |record: &&mut Record| record.workload == "two" && record.contender.label == "ext4";
    records.iter_mut().filter(is_bad).for_each(|record| record.checks = vec![contents(5, 1)]);
    let screen = screen(&plan, &records);
    assert!(row(&screen, "two")[1] == "violated", "{screen}");
    let said = "two: ext4 lost data: 3 of 15 checks violated (contents); its time is not ranked. ext4 is the baseline: choose another with --baseline.";
    assert!(screen.replace("\n  ", " ").contains(said), "{screen}");
}

#[test]
fn what_is_checked_and_not_timed_has_its_rows() {
    let (plan, mut records) = checked(|record| match record.contender.label.as_str() {
        "btrfs" => vec![Check::not_tried("durability", "the control lost nothing")],
        _ => vec![Check { name: "durability".into(), ..contents(400, 0) }],
    });
    records.iter_mut().for_each(|record| record.phases.clear());
    let screen = screen(&plan, &records);
    assert_eq!(row(&screen, "ext4"), ["ext4", "durability held (1,200 of 1,200)"]);
    assert_eq!(row(&screen, "btrfs"), ["btrfs", "durability not tried"]);
    assert!(
        screen.contains(
            "ext4 and xfs: durability held (1,200 of 1,200); btrfs: durability not tried."
        ),
        "{screen}"
    );
}

#[test]
fn without_checks_nothing_is_said_of_them() {
    let (plan, records) = checked(|_| Vec::new());
    let source = source(&plan, &records);
    let mut blocks = answer(&source);
    blocks.extend(crate::details::details(&source));
    assert!(!document::markdown(&blocks).contains("heck"), "{}", document::markdown(&blocks));
}

#[test]
fn a_study_that_does_not_decide_says_what_the_machine_did() {
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let shaken = |record: &Record| 1_000_000_000 + u64::from(record.trial) * 300_000_000;
    let told = |stolen_ns: u64| {
        let mut records = records(&plan, shaken);
        for record in records.iter_mut().filter(|record| record.contender.label == "xfs") {
            record.watched = Some(Watched {
                elapsed_ns: 1_000_000_000,
                stolen_ns: Some(stolen_ns),
                ..Watched::default()
            });
        }
        screen(&plan, &records)
    };
    assert!(!told(0).contains("the machine disturbed"), "{}", told(0));
    let text = told(100_000_000).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "The machine disturbed 3 runs (steal); on a quiet machine fewer rounds suffice.";
    assert!(text.contains(expected), "{text}");
}

/// The words of a sentence, each number with a point a `#`.
fn without_digits(said: &str) -> String {
    let is_number =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let words = said.split(' ').map(|word| if is_number(&word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_answer_names_who_is_fastest_and_than_whom_others_are_slower() {
    // Of ext4 = 1000 each block; the rest in ms.
    let said = |xfs: &[u64], btrfs: &[u64]| {
        let plan = Plan::new(
            study(xfs.len() as u32).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(),
            1,
        );
        let all = records(&plan, |record| {
            let block = record.block as usize;
            500_000
                * match record.contender.label.as_str() {
                    "xfs" => xfs[block],
                    "btrfs" => btrfs[block],
                    _ => 1000,
                }
        });
        let source = source(&plan, &all);
        without_digits(&choice::sentences(&source.analysis.workloads, &plan).join(" "))
    };
    let (half, twice) = ([500, 501, 499, 500, 502, 498], [2000, 2002, 1999, 2001, 1998, 2000]);
    assert_eq!(
        said(&twice, &twice.map(|ms| ms * 2)),
        "ext4 is fastest; xfs costs # to # and btrfs costs # to # times as much."
    );
    // Two that beat the baseline are told apart where their intervals do not touch.
    assert_eq!(
        said(&half, &half.map(|ms| ms / 2)),
        "btrfs is fastest, at # to # times the cost of ext4; xfs costs # to # times as much as ext4."
    );
    // What several have in common is said once.
    assert_eq!(
        said(&half, &[495, 520, 480, 510, 470, 505]),
        "btrfs or xfs is fastest (at most 6 % apart); btrfs costs # to # and xfs costs # to # times as much as ext4."
    );
    // Who varies is told apart from neither, and says so.
    let wild = [700, 1500, 900, 1300, 600, 1250];
    assert_eq!(
        said(&half, &wild),
        "xfs is fastest, at # to # times the cost of ext4; inconclusive against ext4: btrfs."
    );
    let wilder = [100, 4500, 900, 2300, 200, 1250];
    assert_eq!(
        said(&twice, &wilder),
        "Too few rounds to name a winner among ext4 and btrfs; xfs costs # to # times as much as ext4."
    );
    assert_eq!(
        said(&half, &wilder),
        "Too few rounds to name a winner among xfs and btrfs; xfs costs # to # times as much as ext4."
    );
    let mild = [900, 1100, 950, 1080, 930, 1060];
    assert_eq!(
        said(&mild, &mild),
        "no clear winner: xfs and btrfs are within 11 % of ext4; xfs and btrfs are the same within 5 %."
    );
    let other = [1060, 950, 930, 1100, 1080, 900];
    assert_eq!(
        said(&mild, &other),
        "no clear winner: xfs and btrfs are within 11 % of ext4; xfs and btrfs are at most 17 % apart."
    );
}

#[test]
fn where_the_bare_device_wins_the_best_of_the_file_systems_is_named() {
    let text = StudyText {
        contenders: ["raw", "ext4", "xfs", "btrfs"].map(String::from).into(),
        ..study(6)
    };
    let plan = Plan::new(text.resolve(&Known::named(["raw", "ext4", "xfs", "btrfs"])).unwrap(), 1);
    let said = |xfs: u64| {
        let all = records(&plan, |record| {
            1_000_000
                * match record.contender.label.as_str() {
                    "raw" => 500,
                    "ext4" => [1000, 1050, 960, 1010, 980, 1030][record.block as usize],
                    "xfs" => xfs + u64::from(record.block),
                    _ => 4000 + u64::from(record.block),
                }
        });
        choice::sentences(&source(&plan, &all).analysis.workloads, &plan).join(" ")
    };
    let one = said(700);
    assert!(one.starts_with("xfs is fastest of the file systems; xfs costs 1.4"), "{one}");
    let two = said(1000);
    assert!(
        two.starts_with("xfs or ext4 is fastest of the file systems (the same within 5 %); "),
        "{two}"
    );
}

#[test]
fn counts_are_told_where_times_decide_nothing() {
    use lab::record::DeviceDelta;
    let plan = Plan::new(study(4).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let shown = |scatter_ns: u64| {
        let mut all = records(&plan, |record| {
            1_000_000_000
                + [0, 3, 1, 2][record.block as usize] * u64::from(record.trial) * scatter_ns
        });
        for record in &mut all {
            let flushes = if record.contender.label == "xfs" { 4 } else { 2 };
            let written_bytes = 4 << 20;
            let delta = DeviceDelta { written_bytes, flushes, ..DeviceDelta::default() };
            record.phases[0].device = Some(delta);
        }
        screen(&plan, &all)
    };
    let said = "written: the same; flushes: xfs more (4) than ext4 (2).";
    let (open, decided) = (shown(400_000_000), shown(0));
    assert!(open.contains(said) && !decided.contains(said), "{open}\n{decided}");
}

#[test]
fn a_part_that_is_told_apart_stands_below_its_workload() {
    use lab::workload::{Metric, Unit, WorkloadReport};
    let plan = Plan::new(study(4).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut all = records(&plan, |_| 1_000_000_000);
    for record in &mut all {
        let part = |(name, value): (&str, f64)| {
            let value = value * 1e6 + f64::from(record.block);
            Metric::new(name, value, Unit::Nanoseconds)
        };
        let is_xfs = record.contender.label == "xfs";
        let [unpack, delete] = if is_xfs { [2.0, 1.0] } else { [1.0, 2.0] };
        let parts = [("all phases", 3.0), ("unpack", unpack), ("delete", delete), ("walk", 1.0)];
        let metrics = parts.map(part).into();
        record.load = Some(WorkloadReport { metrics, ..WorkloadReport::default() });
    }
    let shown = screen(&plan, &all);
    assert!(row(&shown, "unpack")[2].starts_with("- 2.00"), "{shown}");
    assert!(row(&shown, "delete")[2].starts_with("+ 0.50"), "{shown}");
    assert!(row(&shown, "walk")[2].starts_with("= 1.000"), "the parts make the whole: {shown}");
}

#[test]
fn under_an_emulated_processor_the_answer_is_what_it_does_not_change() {
    use lab::record::DeviceDelta;
    let plan = Plan::new(study(3).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let shown = |btrfs_bytes: u64, flushes: fn(&Record) -> u64| {
        let mut all =
            records(&plan, |record| 1_000_000_000 + u64::from(record.trial) * 300_000_000);
        for record in &mut all {
            let is_btrfs = record.contender.label == "btrfs";
            let written_bytes = if is_btrfs { btrfs_bytes } else { 4 << 20 };
            let flushes = flushes(record);
            let delta = DeviceDelta { written_bytes, flushes, ..DeviceDelta::default() };
            record.phases[0].device = Some(delta);
        }
        let mut source = source(&plan, &all);
        source.analysis.workloads[0].warnings.push(Warning::new(WarningKind::Emulated, "TCG"));
        document::terminal(&answer(&source), false).to_string()
    };
    let more = shown(9 << 20, |_| 2);
    let said = "  written: btrfs more (9.00 MiB) than ext4 (4.00 MiB); flushes: the same.";
    assert!(more.contains(said), "{more}");
    assert!(more.contains("Times show no difference.") && !more.contains("times as much"));
    // As equal contenders were seen to differ: two of three medians are another.
    let chance = shown(4 << 20, |record| 2 + 2 * u64::from(record.trial % 2));
    assert!(chance.contains("; flushes: no sure difference."), "{chance}");
}

#[test]
fn contenders_with_different_numbers_of_nodes_are_compared_by_the_same_work() {
    use lab::record::DeviceDelta;
    use lab::workload::WorkloadReport;
    let contenders = ["one: ext4 on debian", "two: gfs2 on 2 debian"].map(String::from).into();
    let text = StudyText { contenders, ..study(3) };
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "gfs2"])).unwrap(), 1);
    let mut all = records(&plan, |record| 1_000_000_000 + u64::from(record.trial));
    for record in &mut all {
        let nodes = u64::from(record.contender.environment.nodes());
        let (written_bytes, flushes) = (nodes * (4 << 20), nodes * 2 + nodes / 2);
        let delta = DeviceDelta { written_bytes, flushes, ..DeviceDelta::default() };
        record.phases[0].device = Some(delta);
        let written_bytes = Some(nodes * (2 << 20));
        record.load = Some(WorkloadReport { written_bytes, ..WorkloadReport::default() });
    }
    let mut source = source(&plan, &all);
    source.analysis.workloads[0].warnings.push(Warning::new(WarningKind::Emulated, "TCG"));
    let shown = document::terminal(&answer(&source), false).to_string();
    let said = "written per byte of the workload: the same; flushes per MiB: two more (1.25) than one (1).";
    assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(said), "{shown}");
}

#[test]
fn workloads_in_which_contenders_stand_alike_have_one_sentence_with_room_for_all() {
    let mut text = study(4);
    let load = text.workloads.remove(0);
    let names = ["one", "two", "three", "four", "five", "six"];
    let named = |name: &&str| WorkloadText { name: Some(name.to_string()), ..load.clone() };
    text.workloads = names.iter().map(named).collect();
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let records = records(&plan, |record| {
        let number = names.iter().position(|name| *name == record.workload).unwrap() as u64;
        1_000_000
            * match record.contender.label.as_str() {
                // Under the last loads it is another story: another winner, or much more of it.
                "xfs" if number == 4 => 500,
                "xfs" if number == 5 => 4000,
                // What varies by 10 % from block to block lies in the others' intervals.
                "xfs" => 2000 + 20 * number + [0, 100, 200, 50][record.block as usize],
                _ => 1000,
            }
            + u64::from(record.block)
    });
    let said = choice::sentences(&analyse(&plan, &records, None).workloads, &plan);
    assert_eq!(
        said,
        [
            "4 of 6 workloads: ext4 or btrfs is fastest (the same within 5 %); xfs costs 1.816 to 2.50 times as much as ext4; btrfs is faster than xfs.",
            "five: xfs is fastest, at 0.500 to 0.500 times the cost of ext4; ext4 and btrfs are the same within 5 %.",
            "six: ext4 or btrfs is fastest (the same within 5 %); xfs costs 4.00 to 4.00 times as much as ext4; btrfs is faster than xfs.",
        ]
    );
}

#[test]
fn what_was_set_aside_is_told_where_the_means_of_all_trials_say_otherwise() {
    let plan = Plan::new(study(12).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let told = |far: [u64; 2]| {
        let all = records(&plan, |record| {
            let block = record.block as usize;
            let wobble = [1000, 1003, 997, 1002, 998, 1001, 999, 1004, 996, 1000];
            1_000_000
                * match record.contender.label.as_str() {
                    "xfs" => wobble.get(block).copied().unwrap_or_else(|| far[block - 10]),
                    _ => 1000,
                }
        });
        one_line(&screen(&plan, &all)).contains("were set aside")
    };
    assert!(!told([1060, 945]), "their mean is that of the others");
    assert!(told([1000, 1500]));
}

#[test]
fn what_guests_have_is_told_in_one_line_and_the_rest_one_by_one() {
    let mut study = study(8).resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap();
    let left = |name: &str, missing: &str, in_guests| LeftOut {
        what: "contender".into(),
        name: name.into(),
        missing: vec![missing.into()],
        in_guests,
    };
    study.left_out = vec![
        left("jfs", "the kernel has no jfs", true),
        left("minfs-fuse", "the guide is in guests.md: --on debian", false),
        left("ufs", "its driver is not trusted", true),
    ];
    let told = left_out(&Plan::new(study, 1));
    let expected = [
        "left out here: jfs and ufs (in guests: --on debian)",
        "left out: contender minfs-fuse: the guide is in guests.md: --on debian",
    ];
    let texts = told.iter().map(|block| match block {
        Block::Note(text) => text.as_str(),
        other => panic!("{other:?} is not a note"),
    });
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}

#[test]
fn whether_the_order_changes_with_age_is_said_whichever_is_first() {
    let contenders = |swapped: bool| {
        let [one, other] = if swapped { ["xfs", "ext4"] } else { ["ext4", "xfs"] };
        let aged = |name: &str| format!("old {name}: {name} aged git:9");
        vec![one.to_string(), other.to_string(), aged(one), aged(other)]
    };
    let said = |swapped: bool, seconds: [u64; 4]| {
        let text = StudyText { contenders: contenders(swapped), ..study(8) };
        let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs"])).unwrap(), 1);
        let all = records(&plan, |record| {
            let names = ["ext4", "xfs", "old ext4", "old xfs"];
            let at = names.iter().position(|name| *name == record.contender.label).unwrap();
            seconds[at] * 1_000_000_000 + u64::from(record.trial) * 100_000
        });
        let analysis = analyse(&plan, &all, None);
        let blocks = age::answer(&analysis.workloads[0], &plan);
        document::markdown(&blocks)
    };
    let turned =
        "The order changes with age: ext4 is faster than xfs when new, and slower when aged.";
    for swapped in [false, true] {
        let text = said(swapped, [10, 20, 40, 30]);
        assert!(text.contains(turned), "{text}");
        let text = said(swapped, [10, 20, 30, 40]);
        assert!(text.contains("The order does not change with age."), "{text}");
        let text = said(swapped, [10, 20, 40, 40]);
        assert!(text.contains("Whether the order changes with age is not decided."), "{text}");
    }
}
