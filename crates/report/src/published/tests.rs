//! Published tables as they are laid out, from a plan and records made by hand.

use super::*;

use lab::analysis::analyse;
use lab::record::{Phase, PhaseRecord};
use lab::spec::Device;
use lab::study::LeftOut;
use lab::study_file;
use std::path::Path;

const STUDY: &str = r#"
name = "small"
source = "A publication <of 1999>"
differs = ["another disk"]
contenders = ["ext4", "xfs", "btrfs"]
device = "mem:1G"
runs = 5

[[workload]]
name = "load"
command = "true"

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
"#;

/// xfs takes twice as long as ext4, and btrfs three times.
fn measured() -> (Plan, Vec<Record>, Analysis) {
    let text = study_file::parse(Path::new("s"), STUDY).unwrap();
    let plan = Plan::new(text.resolve(&["ext4", "xfs", "btrfs"]).unwrap(), 1);
    let mut records = Vec::new();
    for block in &plan.blocks {
        for trial in &block.trials {
            let spec = plan.spec(block, *trial, &Device::None, "/nowhere".into());
            let mut record = Record::begun(&spec, 0);
            let factor = trial.contender as u64 + 1;
            record.phases = [(Phase::Run, 1_000_000_000 * factor), (Phase::Sync, 1)]
                .map(|(phase, elapsed_ns)| PhaseRecord {
                    phase,
                    elapsed_ns: elapsed_ns + u64::from(block.block) * 1_000,
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
            ["  here", "1000"],
            ["  here: xfs", "2000"],
            ["  here: btrfs", "3000"],
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
    assert_eq!(heads, ["time, s", "  here, load", "  here, other", "ext4 = 1", "  here"]);
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
    let terminal = terminal(&plan, &records, &analysis, false);
    let markdown = markdown(&plan, &records, &analysis);
    let page = section(&plan, &records, &analysis);
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
    assert_eq!(terminal(&plan, &records, &analysis, false), "");
    assert_eq!(markdown(&plan, &records, &analysis), "");
    assert_eq!(section(&plan, &records, &analysis), "");
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
}

#[test]
fn prose_breaks_between_words() {
    let text = prose("  - ", &"word ".repeat(40));
    assert!(text.lines().all(|line| line.chars().count() <= PROSE_COLUMNS), "{text}");
    assert!(text.lines().nth(1).unwrap().starts_with("    word"), "{text}");
    assert_eq!(text.split_whitespace().count(), 41);
}
