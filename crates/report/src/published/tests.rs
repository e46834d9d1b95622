//! Published tables as they are laid out, from a plan and records made by hand.

use super::row::{digits, digits_in_steps};
use super::write::conclusions;
use super::*;

use lab::analysis::analyse;
use lab::load::{LoadReport, Series, Unit};
use lab::record::{Phase, PhaseRecord};
use lab::study::LeftOut;
use lab::study_file;
use std::path::Path;

const STUDY: &str = concat!(
    r#"
name = "small"
source = "A publication <of 1999>"
differs = ["another disk"]
device = "mem:1G"
"#,
    include_str!("../../tests/harness/one-load.toml"),
    r#"
[[published]]
title = "Times"
here = { workload = "load", metric = "time" }
columns = [
    { head = "one", here = { contender = "ext4" } },
    { head = "two", here = { contender = "xfs" } },
]
rows = [
    { head = "time", unit = "s", cells = ["117.62", "194.82"] },
    { head = "ext4 = 1", here = { statistic = "ratio", baseline = "ext4" }, cells = [1, "1.65"] },
]

[[published]]
title = "By system"
unit = "ms"
note = "of long ago"
columns = [
    { head = "run", here = { workload = "load", phase = "run" } },
]
rows = [
    { head = "UFS", cells = [6330] },
    { head = "ext4", here = { contender = "ext4" }, cells = [231] },
]

[[claim]]
text = "Btrfs is the slowest"
source = "its last line"
rule = "slowest"
contender = "btrfs"
workload = "load"

[[claim]]
text = "UFS is poor"
note = "no Linux makes it"
"#
);

/// xfs takes twice as long as ext4, and btrfs three times.
fn times(contender: u64, block: u64) -> u64 {
    1_000_000_000 * (contender + 1) + block * 1_000
}

fn measured() -> (Plan, Vec<Record>, Analysis) {
    measured_of(STUDY, times)
}

/// A study whose runs take so many ns, by contender and block.
fn measured_of(study: &str, time_ns: fn(u64, u64) -> u64) -> (Plan, Vec<Record>, Analysis) {
    let text = study_file::parse(Path::new("s"), study).unwrap();
    let plan = Plan::new(text.resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let mut records = Vec::new();
    for block in &plan.blocks {
        for trial in &block.trials {
            let spec = plan.spec(block, *trial, None, "/nowhere".into());
            let mut record = Record::begun(&spec, 0);
            let run_ns = time_ns(trial.contender as u64, u64::from(block.block));
            record.phases = [(Phase::Run, run_ns), (Phase::Sync, 1)]
                .map(|(phase, elapsed_ns)| PhaseRecord {
                    phase,
                    elapsed_ns,
                    device: None,
                    machine_cpu_ns: None,
                })
                .into();
            records.push(record);
        }
    }
    let analysis = analyse(&plan, &records, None);
    (plan, records, analysis)
}

fn words(table: &Table) -> Vec<Vec<&str>> {
    table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect()
}

#[test]
fn measured_rows_stand_below_published_ones_in_their_unit() {
    let (plan, records, analysis) = measured();
    let beside = tables(&plan, &records, &analysis);
    assert_eq!(beside[0].table.heads, ["", "one", "two", "btrfs"]);
    let rows = words(&beside[0].table);
    assert_eq!(rows[0], ["time, s", "117.62", "194.82", "-"]);
    assert_eq!(rows[1][0], "  here");
    assert!(rows[1][1].starts_with("1.000 [") && rows[1][2].starts_with("2.000 ["), "{rows:?}");
    assert!(rows[1][3].starts_with("3.000 ["), "{rows:?}");
    assert_eq!(rows[2], ["ext4 = 1", "1", "1.65", "-"]);
    assert_eq!(rows[3][1], "1.000");
    assert!(rows[3][2].starts_with("2.00") && rows[3][3].starts_with("3.00"), "{rows:?}");
    assert_eq!(
        beside[0].notes,
        [
            "here: memory (mem:1G), 5 blocks; what is compared is paired within each block, so that it need not be the quotient of the medians beside it"
        ]
    );
    let value = beside[0].table.rows[0][1].value;
    assert_eq!(value, Some(117.62));
}

#[test]
fn systems_that_are_not_here_stand_alone_and_others_of_here_follow() {
    let (plan, records, analysis) = measured();
    let beside = &tables(&plan, &records, &analysis)[1];
    assert_eq!(beside.table.heads, ["in ms", "run"]);
    assert_eq!(
        words(&beside.table),
        [
            ["UFS (published only)", "6330"],
            ["ext4", "231"],
            ["  here", "1000 [1000, 1000]"],
            ["  here: xfs", "2000 [2000, 2000]"],
            ["  here: btrfs", "3000 [3000, 3000]"],
        ]
    );
    assert_eq!(beside.notes[0], "of long ago");
}

#[test]
fn the_baseline_is_not_compared_with_itself() {
    let (mut plan, records, analysis) = measured();
    let row = &mut plan.study.published[1].rows[1];
    row.cells[0].here[0] = Reference {
        workload: "load".into(),
        contender: "btrfs".into(),
        figure: Figure::Metric("time".into()),
        statistic: Statistic::Loss,
        baseline: Some("ext4".into()),
    };
    let beside = &tables(&plan, &records, &analysis)[1];
    let heads: Vec<&str> = beside.table.rows.iter().map(|row| row[0].text.as_str()).collect();
    assert_eq!(heads, ["UFS (published only)", "ext4", "  here", "  here: xfs"]);
}

#[test]
fn several_counterparts_of_a_cell_have_a_row_each() {
    let (mut plan, records, _) = measured();
    let text = study_file::parse(Path::new("s"), STUDY).unwrap();
    let mut other = text.clone();
    other.workloads.push(other.workloads[0].clone());
    other.workloads[1].name = Some("other".into());
    plan.study.workloads = other.resolve(&["ext4", "xfs", "btrfs"]).unwrap().workloads;
    let table = &mut plan.study.published[0];
    for cell in &mut table.rows[0].cells {
        let again = Reference { workload: "other".into(), ..cell.here[0].clone() };
        cell.here.push(again);
    }
    // Another workload a column is no reason for two rows.
    table.rows[1].cells[1].here[0].workload = "other".into();
    let mut both = records.clone();
    both.extend(records.iter().map(|record| Record { workload: "other".into(), ..record.clone() }));
    let analysis = analyse(&plan, &both, None);
    let heads: Vec<String> = tables(&plan, &both, &analysis)[0]
        .table
        .rows
        .iter()
        .map(|row| row[0].text.clone())
        .collect();
    assert_eq!(
        heads,
        [
            "time, s",
            "  here, load",
            "  here, other",
            "ext4 = 1",
            "  here: ratio, paired within blocks"
        ]
    );
}

#[test]
fn a_row_of_which_nothing_was_published_says_what_was_measured_or_nothing() {
    let text = STUDY
        .replace("cells = [6330]", "cells = [\"-\"]")
        .replace("contender = \"ext4\" }, cells = [231]", "contender = \"ext4\" }");
    let (plan, records, analysis) = measured_of(&text, times);
    let beside = &tables(&plan, &records, &analysis)[1];
    assert_eq!(
        words(&beside.table),
        [
            ["ext4, here", "1000 [1000, 1000]"],
            ["  here: xfs", "2000 [2000, 2000]"],
            ["  here: btrfs", "3000 [3000, 3000]"]
        ]
    );
    // Where nothing was measured either, the page has the title and the reason, and no empty table.
    let nothing = analyse(&plan, &[], None);
    assert!(tables(&plan, &[], &nothing)[1].table.rows.is_empty());
    let page = section(&plan, &[], &nothing, &[]).html;
    assert!(!page.contains("<caption>By system"), "{page}");
    assert!(page.contains(">By system</h3>") && page.contains("not measured here"), "{page}");
}

#[test]
fn a_ratio_that_is_not_the_quotient_of_the_medians_above_it_is_marked() {
    // xfs takes twice as long in every block but that one in the middle of all times, where it takes
    // 2.4 times as long: the medians divide to 2.4.
    fn slow_in_the_middle(contender: u64, block: u64) -> u64 {
        let ext4_ms = [1000, 1001, 1002, 1003, 5000, 9000, 9001, 9002, 9003][block as usize];
        let percent = if block == 4 { 240 } else { 200 + block % 3 };
        1_000_000 * ext4_ms * if contender == 1 { percent } else { 100 } / 100
    }
    let text = STUDY.replace("runs = 5", "runs = 9");
    let (plan, records, analysis) = measured_of(&text, slow_in_the_middle);
    let beside = &tables(&plan, &records, &analysis)[0];
    let rows = words(&beside.table);
    assert_eq!(rows[3][0], "  here: ratio, paired within blocks");
    assert!(rows[3][2].starts_with("2.0") && rows[3][2].ends_with("] †"), "{rows:?}");
    // btrfs took as long as ext4, block for block.
    assert!(!rows[3][1].contains('†') && !rows[3][3].contains('†'), "{rows:?}");
    assert!(
        beside.notes[0].starts_with("† ") && beside.notes[0].contains("xfs 2.40"),
        "{beside:?}"
    );
    // Without its medians in the table there is nothing to misread.
    let alone = text
        .replace("    { head = \"time\", unit = \"s\", cells = [\"117.62\", \"194.82\"] },\n", "");
    assert_ne!(alone, text);
    let (plan, records, analysis) = measured_of(&alone, slow_in_the_middle);
    let beside = &tables(&plan, &records, &analysis)[0];
    assert!(!words(&beside.table)[1][2].contains('†'), "{beside:?}");
}

#[test]
fn only_ratios_with_the_baseline_of_the_plan_are_called_paired() {
    const CONTENDERS: &str = "contenders = [\"ext4\", \"xfs\", \"btrfs\"]";
    let said = |contenders: &str, left_out: &str| {
        let text = STUDY.replace(CONTENDERS, contenders);
        let (plan, mut records, _) = measured_of(&text, times);
        records.retain(|record| record.contender.label != left_out);
        let analysis = analyse(&plan, &records, None);
        let beside = tables(&plan, &records, &analysis).remove(0);
        (beside.table.rows[3][0].text.clone(), beside.notes.last().unwrap().clone())
    };
    // The plan's baseline is the first contender; the table's is ext4.
    let (head, note) = said(CONTENDERS, "");
    assert_eq!(head, "  here: ratio, paired within blocks");
    assert!(note.contains("; what is compared is paired") && !note.contains("; of "), "{note}");
    let (head, note) = said("contenders = [\"xfs\", \"ext4\", \"btrfs\"]", "");
    assert_eq!(head, "  here: ratio, paired within blocks; of btrfs the quotient of the medians");
    assert!(note.contains("paired within each block"), "{note}");
    assert!(
        note.ends_with("; of btrfs it is the quotient of the medians, since only pairs with xfs, the baseline of this run, are paired"),
        "{note}"
    );
    let (head, note) = said("contenders = [\"btrfs\", \"ext4\", \"xfs\"]", "");
    assert_eq!(head, "  here: ratio, paired within blocks; of xfs the quotient of the medians");
    assert!(note.contains("only pairs with btrfs"), "{note}");
    // Where the plan's baseline was not measured, nothing is paired.
    let (head, note) = said("contenders = [\"btrfs\", \"ext4\", \"xfs\"]", "btrfs");
    assert_eq!(head, "  here: ratio, quotient of the medians");
    assert!(note.contains("; what is compared is the quotient of the medians, since"), "{note}");
    assert!(!note.contains("paired within"), "{note}");
}

#[test]
fn a_loss_of_fewer_than_three_blocks_is_not_told() {
    let text = STUDY.replace(
        "statistic = \"ratio\", baseline = \"ext4\" }, cells = [1, \"1.65\"]",
        "statistic = \"loss\", baseline = \"ext4\" }, unit = \"%\", cells = [0, 39]",
    );
    let of_runs = |runs: &str, contenders: &str| {
        let text =
            text.replace("runs = 5", runs).replace("[\"ext4\", \"xfs\", \"btrfs\"]", contenders);
        let (plan, records, analysis) = measured_of(&text, times);
        let beside = tables(&plan, &records, &analysis).remove(0);
        (beside.table.rows[3].clone(), beside.notes.last().unwrap().clone())
    };
    let told = |row: &[Cell]| row.iter().map(|cell| cell.text.clone()).collect::<Vec<_>>();
    let paired = "[\"ext4\", \"xfs\", \"btrfs\"]";
    let (row, note) = of_runs("runs = 2", paired);
    assert_eq!(told(&row)[2..], ["?", "?"], "{row:?}");
    assert!(note.contains("; ?: fewer than 3 blocks have"), "{note}");
    // Quotients of medians no more than what is paired: btrfs is the plan's baseline here.
    let quotients = "[\"btrfs\", \"ext4\", \"xfs\"]";
    assert_eq!(told(&of_runs("runs = 2", quotients).0)[2], "?");
    for (contenders, loss) in [(paired, "50.00"), (quotients, "33.33")] {
        let (row, note) = of_runs("runs = 3", contenders);
        assert!(told(&row)[2].starts_with(loss), "{row:?}");
        assert!(!note.contains("fewer than"), "{note}");
    }
}

#[test]
fn a_note_is_never_folded() {
    let (mut plan, records, analysis) = measured();
    plan.study.claims[0].note = Some("kurabe run it --runs 10".into());
    let mut judged = lab::claim::judge(&plan, &records, &analysis).remove(0);
    let mut of_lines = |count: usize| {
        judged.evidence = (1..=count).map(|line| format!("line {line}.")).collect();
        conclusions(&plan, std::slice::from_ref(&judged))
    };
    let all = of_lines(5);
    assert!(!all.contains("<details>") && all.contains("line 5."), "{all}");
    let many = of_lines(6);
    let (open, folded) = many.split_once("<details>").unwrap();
    assert!(open.contains("line 4.") && open.contains("kurabe run it --runs 10"), "{many}");
    assert!(folded.contains("2 lines more of what was found here</summary>"), "{many}");
    assert!(folded.contains("line 5.") && folded.contains("line 6."), "{many}");
}

#[test]
fn what_has_no_counterpart_points_at_the_chart_over_time() {
    let text = STUDY.replace(
        "note = \"of long ago\"\n",
        "note = \"of long ago\"\nhere = { workload = \"load\" }\nsee = [\"throughput\"]\n",
    );
    let (plan, mut records, analysis) = measured_of(&text, times);
    // As many intervals as a chart has at least.
    let with_intervals = |records: &mut [Record], count: usize| {
        for record in records {
            let series = Series {
                name: "throughput".into(),
                unit: Unit::BytesPerSecond,
                interval_ns: 1_000_000_000,
                values: vec![1.0; count],
            };
            record.load = Some(LoadReport { series: vec![series], ..Default::default() });
        }
    };
    with_intervals(&mut records, 3);
    let over_time = |series: &str| OverTime {
        workload: "load".into(),
        series: series.into(),
        id: "w1-load-series-0".into(),
    };
    let page = section(&plan, &records, &analysis, &[over_time("throughput")]).html;
    assert!(
        page.contains("<a href=\"#w1-load-series-0\">throughput of load over time</a>"),
        "{page}"
    );
    let text = terminal(&plan, &records, &analysis, false).replace("\n    ", " ");
    assert!(text.contains("throughput of load over time"), "{text}");
    with_intervals(&mut records, 2);
    let text = terminal(&plan, &records, &analysis, false).replace("\n    ", " ");
    assert!(!text.contains("over time"), "the page has no chart of two intervals: {text}");
    // A chart that is not there is not pointed at.
    let page = section(&plan, &records, &analysis, &[over_time("p99")]).html;
    assert!(!page.contains("over time"), "{page}");
}

#[test]
fn what_was_left_out_is_named_with_its_cause() {
    let (mut plan, mut records, _) = measured();
    let left = LeftOut {
        what: "contender".into(),
        name: "ext4".into(),
        missing: vec!["'mkfs.ext4' is not installed".into()],
    };
    plan.study.left_out.push(left);
    records.retain(|record| record.contender.label != "ext4");
    plan.study.published.remove(0);
    plan.study.published[0].rows.remove(0);
    let analysis = analyse(&plan, &[], None);
    let beside = &tables(&plan, &[], &analysis)[0];
    assert_eq!(beside.notes[1], "not measured here: ext4 was left out");
    let text = terminal(&plan, &[], &analysis, false);
    assert!(text.contains("Left out: contender ext4: 'mkfs.ext4' is not installed"), "{text}");
}

#[test]
fn terminal_markdown_and_page_say_the_same() {
    let (plan, records, analysis) = measured();
    let terminal = terminal(&plan, &records, &analysis, false).to_string();
    let markdown = markdown(&plan, &records, &analysis);
    let page = section(&plan, &records, &analysis, &[]).html;
    for text in [&terminal, &markdown, &page] {
        for part in [
            "117.62",
            "1.65",
            "another disk",
            "holds here",
            "not tested here",
            "its last line",
            "UFS is poor",
            "no Linux makes it",
            "of long ago",
        ] {
            assert!(text.contains(part), "no '{part}' in:\n{text}");
        }
    }
    assert!(terminal.contains("A publication <of 1999>"), "{terminal}");
    assert!(page.contains("A publication &lt;of 1999&gt;") && !page.contains("<of"), "{page}");
}

#[test]
fn a_study_without_a_publication_says_nothing() {
    let (mut plan, records, analysis) = measured();
    plan.study.published.clear();
    plan.study.claims.clear();
    assert_eq!(&*terminal(&plan, &records, &analysis, false), "");
    assert_eq!(markdown(&plan, &records, &analysis), "");
    let section = section(&plan, &records, &analysis, &[]);
    assert_eq!((section.html.as_str(), section.navigation.as_str()), ("", ""));
    assert!(section.charts.is_empty());
}

#[test]
fn numbers_keep_four_digits() {
    for (value, text) in [
        (0.0, "0.000"),
        (0.0041, "0.0041"),
        (0.12345, "0.1235"),
        (1.23456, "1.235"),
        (117.627, "117.6"),
        (12345.6, "12346"),
        (-3.21, "-3.210"),
    ] {
        assert_eq!(digits(value), text);
    }
    // dbench prints 0.014; the mean of several trials has no further digit.
    assert_eq!(digits_in_steps(0.0136, Some(0.001)), "0.014");
    assert_eq!(digits_in_steps(17.78, Some(0.001)), "17.78");
    assert_eq!(digits_in_steps(0.0005, Some(0.01)), "0.00");
    assert_eq!(digits_in_steps(12.4, Some(100.0)), "12");
}

mod pictures;

#[test]
fn maxima_are_told_from_medians() {
    let of_one = |here: &str| {
        let column = "{ head = \"run\", here = { workload = \"load\", phase = \"run\" } },";
        assert!(STUDY.contains(column));
        let other = format!("{{ head = \"it\", here = {{ workload = \"load\", {here} }} }},");
        let (plan, ..) = measured_of(&STUDY.replacen(column, &(other + column), 1), times);
        crate::profile::pooled(&plan.study.published[1])
    };
    assert_eq!(of_one("metric = \"time\""), None);
    let longest = of_one("operation = \"overall\", statistic = \"max\"").unwrap();
    assert!(longest.contains("the greatest of all trials together"), "{longest}");
    assert!(longest.contains("every other figure is the median of the trials"), "{longest}");
    let line = of_one("detail = \"progress/0/latency_ms\"").unwrap();
    assert!(line.contains("is the median of the trials, latencies too"), "{line}");
}
