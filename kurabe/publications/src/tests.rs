//! Publications beside records made by hand.

use std::path::Path;

use lab::contender::Known;
use lab::record::{Phase, PhaseRecord};
use lab::study_file;
use lab::workload::{Metric, Unit, WorkloadReport};
use report::chart::{Chart, SeriesStyle};
use report::document::{markdown, terminal};
use report::html;
use report::table::Table;

use super::*;

const STUDY: &str = r#"
name = "small"
source = "A publication of 1999"
differs = ["another disk"]
device = "mem:1G"
contenders = ["ext4", "xfs", "btrfs"]
runs = 5
[[workload]]
name = "load"
command = "true"

[[published]]
title = "Times: of one run"
note = "of long ago"
here = { workload = "load", metric = "time" }
picture = { each = "row", of = ["time"], reference = "one" }
columns = [
    { head = "one", here = { contender = "ext4" } },
    { head = "two", here = { contender = "xfs" } },
]
rows = [
    { head = "time", unit = "s", cells = ["117.62", "194.82"] },
    { head = "ext4 = 1", here = { statistic = "ratio", baseline = "ext4" }, cells = [1, 1.65] },
    { head = "xfs = 1", here = { statistic = "ratio", baseline = "xfs" } },
    { head = "cost", here = { statistic = "cost" } },
]

[[published]]
title = "By system"
unit = "ms"
picture = { each = "column" }
columns = [{ head = "run", here = { workload = "load", phase = "run" } }]
rows = [
    { head = "UFS", cells = ["6000 to 7000"] },
    { head = "ext4", here = { contender = "ext4" }, cells = [231] },
]

[[claim]]
text = "Btrfs is the slowest"
source = "its last line"
note = "as it was"
condition = "btrfs slowest"
workload = "load"

[[claim]]
text = "XFS is the fastest"
condition = "xfs fastest"
workload = "load"

[[claim]]
text = "UFS is poor"
note = "no Linux makes it"
"#;

/// xfs takes twice as long as ext4, and btrfs three times.
fn measured_of(study: &str) -> (Plan, Vec<Record>, Analysis) {
    let text = study_file::parse(Path::new("s"), study).unwrap();
    let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), 1);
    let mut records = Vec::new();
    for block in &plan.blocks {
        for trial in &block.trials {
            let spec = plan.spec(block, *trial, None, "/nowhere".into());
            let mut record = Record::begun(&spec, 0);
            let (factor, block) = (trial.contender as u64 + 1, u64::from(block.block));
            let of = |(phase, elapsed_ns)| PhaseRecord {
                phase,
                elapsed_ns,
                device: None,
                machine_cpu_ns: None,
            };
            record.phases =
                [(Phase::Run, 1_000_000_000 * factor + block * 1_000), (Phase::Sync, 1)]
                    .map(of)
                    .into();
            records.push(record);
        }
    }
    let analysis = lab::judgement::analyse(&plan, &records, None);
    (plan, records, analysis)
}

fn measured() -> (Plan, Vec<Record>, Analysis) {
    measured_of(STUDY)
}

fn tables_of(blocks: &[Block]) -> Vec<&Table> {
    let tables = blocks.iter().filter_map(|block| match block {
        Block::Table { table, .. } => Some(table),
        _ => None,
    });
    tables.collect()
}

fn charts_of(blocks: &[Block]) -> Vec<&Chart> {
    let charts = blocks.iter().filter_map(|block| match block {
        Block::Chart(chart) => Some(chart),
        _ => None,
    });
    charts.collect()
}

fn words(table: &Table) -> Vec<Vec<&str>> {
    table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect()
}

#[test]
fn measured_rows_stand_below_published_ones_in_their_unit() {
    let (plan, records, analysis) = measured();
    let blocks = section(&plan, &records, &analysis);
    let table = tables_of(&blocks)[1];
    assert_eq!(table.heads, ["", "one", "two", "btrfs"]);
    let rows = words(table);
    assert_eq!(rows[0], ["time, s", "117.62", "194.82", "-"]);
    assert_eq!(table.rows[0][1].value, Some(117.62));
    assert_eq!(rows[1][0], "  here");
    assert!(rows[1][1].starts_with("1.000 (") && rows[1][2].starts_with("2.000 ("), "{rows:?}");
    assert!(rows[1][3].starts_with("3.000 ("), "{rows:?}");
    assert_eq!(rows[2], ["ext4 = 1", "1", "1.65", "-"]);
    assert_eq!(rows[3][1], "1.000");
    assert!(rows[3][2].starts_with("2.0") && rows[3][3].starts_with("3.00 ("), "{rows:?}");
    // Not the plan's baseline: one side of a pair is, or neither.
    assert_eq!((rows[4][0], rows[4][2]), ("xfs = 1, here", "1.000"));
    assert!(rows[4][1].starts_with("0.500 (") && rows[4][3].starts_with("1.500 ("), "{rows:?}");
    assert!(rows[5][2].starts_with("2.0"), "{rows:?}");
}

#[test]
fn systems_that_are_not_here_stand_alone_and_others_of_here_follow() {
    let (plan, records, analysis) = measured();
    let blocks = section(&plan, &records, &analysis);
    let table = tables_of(&blocks)[2];
    assert_eq!(table.heads, ["in ms", "run"]);
    let expected = [
        ["UFS (published only)", "6000 to 7000"],
        ["ext4", "231"],
        ["  here", "1000 (1000 to 1000)"],
        ["  here: xfs", "2000 (2000 to 2000)"],
        ["  here: btrfs", "3000 (3000 to 3000)"],
    ];
    assert_eq!(words(table), expected);
}

#[test]
fn a_comparison_of_too_few_blocks_is_a_question_mark() {
    let (plan, mut records, _) = measured();
    // xfs has the first two blocks alone, ext4 all: the medians could point elsewhere.
    records.retain(|record| record.contender.label != "xfs" || record.block < 2);
    let analysis = lab::judgement::analyse(&plan, &records, None);
    let blocks = section(&plan, &records, &analysis);
    assert_eq!(words(tables_of(&blocks)[1])[3][2], "?");
}

#[test]
fn conclusions_are_judged_and_told_with_their_numbers() {
    let (plan, records, analysis) = measured();
    let blocks = section(&plan, &records, &analysis);
    let expected = [
        ["holds", "“Btrfs is the slowest” (its last line)"],
        ["fails", "“XFS is the fastest”"],
        ["not tested", "“UFS is poor”"],
    ];
    assert_eq!(words(tables_of(&blocks)[0]), expected);
    let text = markdown(&blocks);
    for part in [
        "## Next to the published figures",
        "A publication of 1999",
        "cost of btrfs by time: 3.00",
        "- Note: as it was",
        "- Note: no Linux makes it",
        "- Note: another disk",
        "Here: memory, not a disk (mem:1G), 5 runs of each contender",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let screen = terminal(&summary(&plan, &records, &analysis), false);
    assert!(screen.lines().count() <= 6, "{}", &*screen);
    for part in ["2 published tables", "Holds here: “Btrfs", "Fails here: “XFS is the fastest”."]
    {
        assert!(screen.contains(part), "no '{part}' in {}", &*screen);
    }
}

#[test]
fn a_study_without_a_publication_says_nothing_of_one() {
    let (mut plan, records, analysis) = measured();
    (plan.study.published, plan.study.claims) = (Vec::new(), Vec::new());
    assert!(section(&plan, &records, &analysis).is_empty());
    assert!(summary(&plan, &records, &analysis).is_empty());
}

#[test]
fn bars_are_multiples_of_the_reference_of_their_own_origin() {
    let (plan, records, analysis) = measured();
    let blocks = section(&plan, &records, &analysis);
    let charts = charts_of(&blocks);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(titles, ["Times: time", "By system: run"]);
    assert_eq!(charts[0].id, "published-1-picture-1");
    assert_eq!(charts[0].x.title, "time, as a multiple of one");
    let bars = |chart: &Chart, mark: SeriesStyle| -> Vec<f64> {
        let all = chart.series.iter().filter(|series| series.mark == mark);
        all.map(|series| (series.points[0].x * 1000.0).round() / 1000.0).collect()
    };
    assert_eq!(bars(charts[0], SeriesStyle::Hatched), [1.0, 1.656]);
    assert_eq!(bars(charts[0], SeriesStyle::Bars), [1.0, 2.0, 3.0]);
    assert_eq!(bars(charts[1], SeriesStyle::Hatched), [6500.0, 231.0]);
    assert!(charts[1].x.logarithmic, "{:?}", charts[1].x);
    assert!(charts[0].says.contains("two, published: 1.656 (194.82 s)"), "{}", charts[0].says);
}

#[test]
fn operations_and_details_of_a_workload_have_their_numbers() {
    let study = STUDY.replace("title = \"Times: of one run\"", "title = 'Counts'").replace(
        "{ head = \"time\", unit = \"s\", cells = [\"117.62\", \"194.82\"] },",
        "{ head = \"time\", here = { detail = 'progress/2:/phase=end/-1/lines' }, cells = [7, 8] },",
    );
    let (plan, mut records, _) = measured_of(&study);
    for record in &mut records {
        let entry = |phase: &str, lines: u64| serde_json::json!({ "phase": phase, "lines": lines });
        let all =
            [entry("end", 1), entry("end", 2), entry("warm", 3), entry("end", 4), entry("x", 5)];
        let details = serde_json::json!({ "progress": all });
        let metrics = vec![Metric::new("time", 1e9, Unit::Nanoseconds)];
        record.load = Some(WorkloadReport { details, metrics, ..Default::default() });
    }
    let analysis = lab::judgement::analyse(&plan, &records, None);
    let blocks = section(&plan, &records, &analysis);
    let rows = words(tables_of(&blocks)[1]);
    assert!(rows[1][1].starts_with("4.000"), "{rows:?}");
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let refused = |from: &str, to: &str| {
        assert!(STUDY.contains(from), "{from}");
        let text = study_file::parse(Path::new("s"), &STUDY.replacen(from, to, 1)).unwrap();
        let study = text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap();
        let reported = [ReportedMetrics {
            workload: "load".into(),
            metrics: vec!["time".into()],
            operations: vec!["Put".into()],
        }];
        check(&study, &reported).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(refused("UFS", "UFS"), Ok(()));
    for (from, to, place, said) in [
        ("title = \"Times: of one run\"", "title = ' '", "published[0].title", "is missing"),
        ("note = \"of", "nite = \"of", "published[0]", "unknown field `nite`"),
        ("[1, 1.65]", "[1, 2, 3]", "published[0].rows[1].cells", "3 cells"),
        ("unit = \"s\"", "unit = \"h\"", "published[0].rows[0]", "no unit is called 'h'"),
        ("\"xfs\" } }", "\"xsf\" } }", "published[0].columns[1].here.contender", "'xfs'"),
        ("metric = \"time\"", "metric = \"tine\"", "published[0].rows[0].cells[0]", "'time'"),
        ("workload = \"load\"", "workload = \"laod\"", "published[0].here.workload", "'load'"),
        ("\"ratio\"", "\"p99\"", "published[0].rows[1].cells[0]", "a metric has value"),
        ("\"ratio\"", "\"rato\"", "published[0].rows[1]", "no statistic is called 'rato'"),
        ("of = [\"time\"]", "of = [\"tame\"]", "published[0].picture.of", "'time'"),
        ("phase = \"run\"", "phase = \"ran\"", "published[1].columns[0]", "unknown variant `ran`"),
        ("text = \"Btrfs is the slowest\"", "text = ''", "claim[0].text", "is missing"),
        ("condition = \"btrfs slowest\"", "rule = 'x'", "claim[0]", "unknown field `rule`"),
        ("btrfs slowest", "btrfs worst", "claim[0].condition", "column 12"),
        ("btrfs slowest", "jfs slowest", "claim[0].condition", "'jfs'"),
        (
            "condition = \"xfs fastest\"\nworkload = \"load\"",
            "condition = \"xfs fastest\"",
            "claim[1]",
            "no workload",
        ),
    ] {
        let error = refused(from, to).unwrap_err();
        assert!(error.starts_with(&format!("{place}: ")) && error.contains(said), "{error}");
    }
}

#[test]
fn a_result_of_an_earlier_version_shows_its_tables_and_names_its_conclusions() {
    let (mut plan, records, analysis) = measured();
    let here = |label: &str| {
        serde_json::json!([{ "workload": "load", "contender": label,
            "figure": { "metric": "time" }, "statistic": "value" }])
    };
    plan.study.published = vec![serde_json::json!({
        "title": "Times", "source": "A publication of 1999", "columns": ["one", "two"],
        "see": [{ "workload": "load", "series": "throughput" }],
        "picture": { "draw": "bars", "each": "row", "of": [0] },
        "rows": [{ "head": "time", "cells": [
            { "text": "117.62", "unit": "s", "here": here("ext4") },
            { "text": "194.82", "unit": "s", "here": here("xfs") } ] }]
    })];
    plan.study.claims = vec![serde_json::json!({
        "text": "xfs is the slowest", "rule": "slowest", "workloads": ["load"], "contender": "xfs"
    })];
    let blocks = section(&plan, &records, &analysis);
    let rows = words(tables_of(&blocks)[1]);
    assert_eq!(rows[0], ["time", "117.62", "194.82", "-"]);
    assert!(rows[1][2].starts_with("2.000 ("), "{rows:?}");
    assert_eq!(words(tables_of(&blocks)[0]), [["not tested", "“xfs is the slowest”"]]);
    assert!(markdown(&blocks).contains("used a rule of its own, 'slowest'"));
    // What is damaged is said, and nothing panics.
    plan.study.published[0]["rows"] = serde_json::json!([3]);
    let damaged = markdown(&section(&plan, &records, &analysis));
    assert!(damaged.contains("cannot be read: published[0].rows[0"), "{damaged}");
}

#[test]
fn a_strangers_text_is_text_wherever_it_stands() {
    let payload = "<img src=x onerror=y>\u{1b}[2J`|";
    let hostile = format!("{payload} of ");
    let toml = toml::Value::String(hostile).to_string();
    let mut study = STUDY.to_string();
    for text in [
        "A publication of 1999",
        "another disk",
        "Times: of one run",
        "of long ago",
        "By system",
        "UFS",
        "Btrfs is the slowest",
        "its last line",
        "as it was",
        "6000 to 7000",
        "one",
    ] {
        study = study.replace(&format!("\"{text}\""), &toml);
    }
    let (plan, records, analysis) = measured_of(&study);
    let blocks = section(&plan, &records, &analysis);
    assert!(charts_of(&blocks).len() == 2 && tables_of(&blocks).len() == 3);
    let page = html::render(&blocks).body;
    assert!(page.contains("&lt;img") && !page.contains("<img") && !page.contains('\u{1b}'));
    let text = markdown(&blocks);
    assert!(!text.contains('<') && !text.contains('\u{1b}'), "{text}");
    for screen in [terminal(&blocks, false), terminal(&summary(&plan, &records, &analysis), false)]
    {
        assert!(!screen.contains('\u{1b}'));
    }
}
