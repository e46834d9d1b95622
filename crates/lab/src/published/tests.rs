//! Published tables: what a cell refers to, what is refused, and what is measured in its place.

use std::path::Path;

use super::*;
use crate::analysis::analyse;
use crate::fixture::{plan_of, record_of, records, study_text};
use crate::load::{AverageLatency, Latency, LoadReport, Unit};
use crate::record::{Phase, PhaseRecord};
use crate::study::{StudyText, WorkloadText};
use crate::study_file;

const TABLE: &str = r#"
title = "Times"
unit = "s"
here = { workload = "load", metric = "time" }
columns = [
    { head = "one", here = { contender = "ext4" } },
    { head = "two", here = { contender = "xfs" } },
    { head = "other system" },
]
rows = [
    { head = "time", cells = [1.5, "3.10", 7] },
    { head = "ratio", here = { statistic = "ratio", baseline = "ext4" }, cells = [1, "2.07"] },
    { head = "mkfs", unit = "ms", here = { phase = "run" }, cells = ["-", 12] },
]
"#;

fn study(table: &str) -> StudyText {
    let mut text = study_text(&["ext4", "xfs"], 5);
    text.source = Some("A publication".into());
    text.workloads[0].name = Some("load".into());
    let file = format!("contenders = []\n[[published]]\n{table}");
    text.published = study_file::parse(Path::new("study.toml"), &file).unwrap().published;
    text
}

#[test]
fn cells_inherit_from_table_row_and_column() {
    let study = study(TABLE).resolve(&["ext4", "xfs"]).unwrap();
    let table = &study.published[0];
    assert_eq!(table.source.as_deref(), Some("A publication"));
    assert_eq!(table.columns, ["one", "two", "other system"]);
    let cell = &table.rows[0].cells[1];
    assert_eq!((cell.text.as_str(), cell.unit), ("3.10", Some(PublishedUnit::Seconds)));
    assert_eq!(
        cell.here,
        [Reference {
            workload: "load".into(),
            contender: "xfs".into(),
            figure: Figure::Metric("time".into()),
            statistic: Statistic::Value,
            baseline: None,
        }]
    );
    // No contender, no counterpart; a cell that was not published may have one all the same.
    assert_eq!(table.rows[0].cells[2].here, []);
    assert_eq!(table.rows[1].cells[2].text, "");
    let phase = &table.rows[2].cells[0];
    assert_eq!(phase.text, "");
    assert_eq!(phase.here[0].figure, Figure::Phase(Phase::Run));
    assert_eq!(table.rows[2].cells[1].unit, Some(PublishedUnit::Milliseconds));
}

#[test]
fn errors_name_their_place() {
    let message = |from: &str, to: &str| {
        assert!(TABLE.contains(from), "{from}");
        study(&TABLE.replace(from, to)).resolve(&["ext4", "xfs"]).unwrap_err().to_string()
    };
    let found = message("contender = \"xfs\"", "contender = \"xsf\"");
    assert!(found.starts_with("published[0].columns[1].here.contender:"), "{found}");
    assert!(found.contains("did you mean 'xfs'"), "{found}");
    let found = message("workload = \"load\"", "workload = \"lod\"");
    assert!(found.starts_with("published[0].here.workload:"), "{found}");
    let found = message("phase = \"run\"", "phase = \"ran\"");
    assert!(found.starts_with("published[0].rows[2].here.phase:"), "{found}");
    let found = message("statistic = \"ratio\"", "statistic = \"p50\"");
    assert!(found.starts_with("published[0].rows[1].cells[0]: the statistic 'p50'"), "{found}");
    let found = message("unit = \"ms\"", "unit = \"parsec\"");
    assert!(found.starts_with("published[0].rows[2].unit: 'parsec'"), "{found}");
    let found = message("[1.5, \"3.10\", 7]", "[1, 2, 3, 4]");
    assert!(found.contains("has 4 cells, and the table has 3 columns"), "{found}");
    let found = message("phase = \"run\"", "phase = \"run\", metric = \"time\"");
    assert!(found.contains("names two of"), "{found}");
    let found = message("title = \"Times\"", "");
    assert!(found.starts_with("published[0].title:"), "{found}");
}

fn reference(contender: &str, figure: Figure, statistic: Statistic) -> Reference {
    Reference {
        workload: "load".into(),
        contender: contender.into(),
        figure,
        statistic,
        baseline: Some("ext4".into()),
    }
}

#[test]
fn metrics_ratios_and_phases_are_found() {
    let plan = plan_of(&study(TABLE));
    let records = records(&plan, &[&[100, 102, 101, 99, 100], &[200, 201, 205, 199, 200]]);
    let analysis = analyse(&plan, &records, None);
    let measured = |contender, figure, statistic| {
        measure(&plan, &records, &analysis, &reference(contender, figure, statistic)).unwrap()
    };
    let time = || Figure::Metric("time".into());
    let value = measured("xfs", time(), Statistic::Value);
    assert_eq!((value.value, value.quantity), (2e8, Quantity::Of(Unit::Nanoseconds)));
    assert_eq!(value.in_unit(Some(PublishedUnit::Milliseconds)).unwrap().value, 200.0);
    assert_eq!(value.in_unit(Some(PublishedUnit::Percent)), None);
    let ratio = measured("xfs", time(), Statistic::Ratio);
    assert!(ratio.value > 1.9 && ratio.value < 2.1, "{ratio:?}");
    assert!(ratio.low.unwrap() < ratio.value && ratio.value < ratio.high.unwrap(), "{ratio:?}");
    assert_eq!(measured("ext4", time(), Statistic::Ratio).value, 1.0);
    let loss = measured("xfs", time(), Statistic::Loss);
    assert!((loss.value - 50.0).abs() < 2.0 && loss.low.unwrap() < loss.high.unwrap(), "{loss:?}");
    // A phase is done afresh in each trial, so it has an interval as any other time.
    let run = measured("ext4", Figure::Phase(Phase::Run), Statistic::Value);
    assert_eq!((run.value, run.low, run.high), (1e8, Some(9.9e7), Some(1.02e8)));
    let none = reference("ext4", Figure::Metric("none".into()), Statistic::Value);
    assert_eq!(measure(&plan, &records, &analysis, &none), None);
}

#[test]
fn mkfs_is_of_every_trial_whatever_its_workload() {
    let mut text = study(TABLE);
    let other = WorkloadText { name: Some("other".into()), ..text.workloads[0].clone() };
    text.workloads.push(other);
    let plan = plan_of(&text);
    let mut records = Vec::new();
    for (workload, base_ns) in [(0, 1_000), (1, 100)] {
        for block in 0..3 {
            for (contender, factor) in [(0, 1), (1, 2)] {
                let mut record = record_of(&plan, workload, contender, block, 1_000_000);
                let mkfs = PhaseRecord {
                    phase: Phase::Mkfs,
                    elapsed_ns: (base_ns + u64::from(block)) * factor,
                    device: None,
                    machine_cpu_ns: None,
                };
                record.phases.insert(0, mkfs);
                records.push(record);
            }
        }
    }
    let analysis = analyse(&plan, &records, None);
    let measured = |contender, figure, statistic| {
        measure(&plan, &records, &analysis, &reference(contender, figure, statistic)).unwrap()
    };
    let median = measured("ext4", Figure::Phase(Phase::Mkfs), Statistic::Value);
    assert_eq!(median.value, (102.0 + 1000.0) / 2.0, "of both workloads");
    // Six pairs, one a trial; the quotient of the two workloads' times plays no part.
    let ratio = measured("xfs", Figure::Phase(Phase::Mkfs), Statistic::Ratio);
    assert!((ratio.value - 2.0).abs() < 1e-9, "{ratio:?}");
    assert!(ratio.high.unwrap() - ratio.low.unwrap() < 1e-6, "{ratio:?}");
    // Another phase is its workload's own.
    let run = measured("ext4", Figure::Phase(Phase::Run), Statistic::Value);
    assert_eq!((run.value, run.low), (1e6, Some(1e6)));
}

#[test]
fn a_ratio_turns_round_with_the_studys_baseline() {
    let mut text = study(TABLE);
    text.baseline = Some("xfs".into());
    let plan = plan_of(&text);
    let records = records(&plan, &[&[100, 102, 101, 99, 100], &[200, 201, 205, 199, 200]]);
    let analysis = analyse(&plan, &records, None);
    let figure = Figure::Metric("time".into());
    let ratio =
        measure(&plan, &records, &analysis, &reference("xfs", figure, Statistic::Ratio)).unwrap();
    assert!(ratio.value > 1.9 && ratio.value < 2.1, "{ratio:?}");
    assert!(ratio.low.unwrap() < ratio.value && ratio.value < ratio.high.unwrap(), "{ratio:?}");
}

#[test]
fn latencies_come_from_distributions_or_from_averages() {
    let plan = plan_of(&study(TABLE));
    let mut records = records(&plan, &[&[100, 100], &[200, 200]]);
    let latency = Latency {
        operation: "Flush".into(),
        count: 10,
        bytes: 0,
        total_ns: 5_000,
        p5_ns: 100,
        p50_ns: 400,
        p90_ns: 800,
        p95_ns: 900,
        p99_ns: 950,
        p99_9_ns: 990,
        p99_99_ns: 999,
        max_ns: 1_000,
    };
    for record in &mut records {
        record.load = Some(match record.contender.label.as_str() {
            "ext4" => LoadReport { latencies: vec![latency.clone()], ..Default::default() },
            _ => LoadReport {
                averages: vec![AverageLatency {
                    operation: "Flush".into(),
                    count: 5,
                    average_ns: 300.0,
                    max_ns: 700.0 + f64::from(record.block),
                    step_ns: Some(10.0),
                }],
                ..Default::default()
            },
        });
    }
    let analysis = analyse(&plan, &records, None);
    let value = |contender, statistic| {
        let figure = Figure::Operation("Flush".into());
        measure(&plan, &records, &analysis, &reference(contender, figure, statistic))
            .map(|measured| measured.value)
    };
    assert_eq!(value("ext4", Statistic::Count), Some(10.0));
    assert_eq!(value("ext4", Statistic::Average), Some(500.0));
    assert_eq!(value("ext4", Statistic::P95), Some(900.0));
    assert_eq!(value("ext4", Statistic::Max), Some(1_000.0));
    // What a tool prints in steps is no finer for being averaged over trials.
    let figure = Figure::Operation("Flush".into());
    let average = reference("xfs", figure, Statistic::Average);
    let average = measure(&plan, &records, &analysis, &average).unwrap();
    assert_eq!(average.step, Some(10.0));
    let in_microseconds = average.in_unit(Some(PublishedUnit::Microseconds)).unwrap();
    assert_eq!(in_microseconds.step, Some(0.01));
    assert_eq!(value("xfs", Statistic::Count), Some(5.0));
    assert_eq!(value("xfs", Statistic::Average), Some(300.0));
    assert_eq!(value("xfs", Statistic::Max), Some(701.0));
    assert_eq!(value("xfs", Statistic::P95), None);
}

#[test]
fn counts_get_their_rate_where_the_run_is_bounded_by_time() {
    let text = study(
        r#"
title = "Operations"
unit = "ms"
counted = "600s"
here = { workload = "load", contender = "ext4", operation = "Flush" }
columns = [
    { head = "Count", here = { statistic = "count" } },
    { head = "AvgLat", here = { statistic = "average" } },
]
rows = [{ head = "Flush", cells = [53235, "38.303"] }, { head = "Mkdir", cells = [12] }]
"#,
    );
    let mut plan = plan_of(&text);
    plan.study.workloads[0].load.options.insert("seconds".into(), 4.into());
    let table = &plan.study.published[0];
    assert_eq!(table.columns, ["Count", "Count/s", "AvgLat"]);
    let texts = |row: usize| -> Vec<&str> {
        table.rows[row].cells.iter().map(|cell| cell.text.as_str()).collect()
    };
    assert_eq!(texts(0), ["53235", "88.72", "38.303"]);
    assert_eq!(texts(1), ["12", "0.0200", ""]);
    let mut records = records(&plan, &[&[100, 100], &[200, 200]]);
    for record in &mut records {
        record.load = Some(LoadReport {
            averages: vec![AverageLatency {
                operation: "Flush".into(),
                count: 10,
                average_ns: 1.0,
                max_ns: 1.0,
                step_ns: None,
            }],
            ..Default::default()
        });
    }
    let analysis = analyse(&plan, &records, None);
    let rate = measure(&plan, &records, &analysis, &table.rows[0].cells[1].here[0]).unwrap();
    // 10 operations a trial, in the 4 s that it counts.
    assert_eq!((rate.value, rate.quantity), (2.5, Quantity::Plain));
    // Of a command nothing says how long it counted.
    let plan = plan_of(&study(TABLE));
    let found = measure(&plan, &records, &analysis, &table.rows[0].cells[1].here[0]);
    assert_eq!(found, None);
}

#[test]
fn details_are_found_in_the_loads_own_report() {
    let plan = plan_of(&study(TABLE));
    let mut records = records(&plan, &[&[100, 100, 100], &[200, 200, 200]]);
    for record in &mut records {
        let line = |phase: &str, ms| serde_json::json!({ "phase": phase, "latency_ms": ms });
        let last = 7 + record.block;
        record.load = Some(LoadReport {
            details: serde_json::json!({
                "progress": [line("warmup", 1), line("execute", 2), line("execute", last)],
                "version": "4.00",
            }),
            ..Default::default()
        });
    }
    let analysis = analyse(&plan, &records, None);
    let value = |place: &str| {
        let figure = Figure::Detail(place.into());
        measure(&plan, &records, &analysis, &reference("ext4", figure, Statistic::Value))
            .map(|measured| measured.value)
    };
    assert_eq!(value("progress/phase=warmup/0/latency_ms"), Some(1.0));
    assert_eq!(value("progress/phase=execute/-2/latency_ms"), Some(2.0));
    assert_eq!(value("progress/phase=execute/-1/latency_ms"), Some(8.0), "the median of three");
    assert_eq!(value("progress/2/latency_ms"), Some(8.0));
    // The last line, in a list that has a third.
    assert_eq!(value("progress/2:/phase=execute/-1/latency_ms"), Some(8.0));
    assert_eq!(value("progress/1:/0/latency_ms"), Some(2.0));
    for nowhere in [
        "progress/phase=warmup/1/latency_ms",
        "progress/-4/latency_ms",
        "progress/2:/phase=execute/-2/latency_ms",
        "progress/3:/-1/latency_ms",
        "progress/phase=execute",
        "progress",
        "version",
        "nothing/0",
        "",
    ] {
        assert_eq!(value(nowhere), None, "{nowhere}");
    }
}

#[test]
fn a_detail_goes_on_where_the_level_outside_of_it_ends() {
    let table = TABLE
        .replace("metric = \"time\" }", "detail = \"progress/-1\" }")
        .replace("{ contender = \"ext4\" } },", "{ contender = \"ext4\", detail = \"lines\" } },")
        .replace("here = { statistic = \"ratio\", baseline = \"ext4\" }, ", "");
    let study = study(&table).resolve(&["ext4", "xfs"]).unwrap();
    let figure = |column: usize| study.published[0].rows[0].cells[column].here[0].figure.clone();
    assert_eq!(figure(0), Figure::Detail("progress/-1/lines".into()));
    assert_eq!(figure(1), Figure::Detail("progress/-1".into()));
    // Another kind of figure inside takes its place.
    let cell = &study.published[0].rows[2].cells[1].here[0];
    assert_eq!(cell.figure, Figure::Phase(Phase::Run));
}

#[test]
fn a_picture_names_rows_and_columns_that_are_there() {
    let resolved =
        |picture: &str| study(&format!("picture = {picture}\n{TABLE}")).resolve(&["ext4", "xfs"]);
    let picture = |text: &str| resolved(text).unwrap().published[0].picture.clone().unwrap();
    let found = picture("{ draw = \"bars\", each = \"row\", reference = \"two\" }");
    assert_eq!((found.of, found.reference, found.each), (vec![0, 1, 2], Some(1), Each::Row));
    let found =
        picture("{ draw = \"bars\", each = \"column\", of = [\"two\"], reference = \"mkfs\" }");
    assert_eq!((found.of, found.reference), (vec![1], Some(2)));
    let found = picture("{ draw = \"curves\", level = { at = 50, text = \"half\" } }");
    assert_eq!((found.draw, found.level.unwrap().at), (Draw::Curves, 50.0));
    for (text, said) in [
        ("{ draw = \"bars\" }", "published[0].picture.each: is missing"),
        ("{ draw = \"bars\", each = \"row\", of = [\"tim\"] }", "did you mean 'time'"),
        ("{ draw = \"bars\", each = \"row\", reference = \"time\" }", "the head 'time'"),
        ("{ draw = \"curves\", each = \"row\" }", "for bars only"),
        ("{ draw = \"curves\", level = { at = nan, text = \"\" } }", "picture.level.at"),
    ] {
        let error = resolved(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn cells_hold_numbers_ranges_or_words() {
    let range = |text: &str| PublishedCell { text: text.into(), unit: None, here: vec![] }.range();
    assert_eq!(range("1.30"), Some((1.3, 1.3)));
    assert_eq!(range("10 to 20"), Some((10.0, 20.0)));
    for words in ["", "about 3", "2 to many", "inf", "about equal"] {
        assert_eq!(range(words), None, "{words}");
    }
}
