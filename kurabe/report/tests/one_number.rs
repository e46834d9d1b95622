//! One comparison has the same number in the terminal, Markdown, the page, CSV, JSON and a gate, of a time and of
//! a throughput.

mod harness;

use harness::{complete, make, study, workload_report};
use lab::words::ratio_with_interval;
use lab::workload::{Metric, OPERATION_AXIS, Unit, WorkloadReport};
use report::source::ResultSource;
use report::{answer, document, export, page, tables};
use serde_json::Value;

#[test]
fn a_cost_is_the_same_number_everywhere() {
    for with_throughput in [false, true] {
        let mut text = study(&["ext4", "xfs"], &["true"], 6);
        text.gate = vec!["xfs <= 1.10".into()];
        let made = make(&text, |record| {
            let is_xfs = record.contender.label == "xfs";
            let wobble = 1.0 + f64::from(record.trial * 7919 % 97) * 0.0004;
            let cost = wobble * if is_xfs { 1.3 } else { 1.0 };
            complete(record, (1e9 * cost) as u64);
            record.load = with_throughput.then(|| workload_report(1e8 / cost));
            true
        });
        let source = ResultSource::read(&made.directory()).unwrap();
        let ResultSource { plan, records, analysis, .. } = &source;
        let one = &analysis.workloads[0].comparisons[0];
        let (cost, ends) = (one.cost().unwrap(), one.cost_ends().unwrap());
        assert!((1.25..1.35).contains(&cost) && ends.0 < cost && cost < ends.1, "{one:?}");
        let shown = ratio_with_interval(cost, Some(ends));

        let terminal = document::terminal(&answer::answer(&source), false).to_string();
        let markdown = export::markdown(&source);
        for (name, said) in
            [("terminal", &terminal), ("Markdown", &markdown), ("page", &page::page(&source, &[]))]
        {
            assert!(
                said.contains(&shown),
                "{name} lacks {shown}:\n{}",
                &said[..said.len().min(3000)]
            );
        }
        let gate = tables::gate_text(&analysis.gates[0]);
        assert!(gate.starts_with(&format!("FAIL xfs: cost {shown}, limit 1.10")), "{gate}");
        assert!(terminal.contains(&gate.split(" (true").next().unwrap()[..20]), "{terminal}");

        let csv = export::costs_csv(analysis).unwrap();
        let row = csv.lines().nth(1).unwrap();
        assert!(row.contains(&format!(",{cost},{},{},", ends.0, ends.1)), "{csv}");
        assert!(row.ends_with(&format!(",{}", one.confidence)), "{csv}");
        let json = export::json(plan, records, analysis, &Value::Null);
        let exported = &json["analysis"]["workloads"][0]["comparisons"][0];
        let rows = serde_json::to_value(analysis.rows()).unwrap();
        for stored in [exported, &rows[0]] {
            let numbers = ["cost", "cost_low", "cost_high"].map(|name| stored[name].as_f64());
            assert_eq!(numbers, [cost, ends.0, ends.1].map(Some), "{stored}");
        }
    }
}

#[test]
fn a_job_that_reads_and_writes_is_ranked_by_one_and_shows_the_other() {
    let made = make(&study(&["ext4", "xfs", "btrfs"], &["true"], 6), |record| {
        let is_xfs = record.contender.label == "xfs";
        let wobble = 1.0 + f64::from(record.trial * 7919 % 97) * 0.00004;
        complete(record, 1_000_000_000);
        let metric = |operation: &str, value| Metric {
            axes: [(OPERATION_AXIS.into(), operation.into())].into(),
            ..Metric::new(format!("{operation} operations"), value, Unit::OperationsPerSecond)
        };
        let written = if is_xfs { 200.0 } else { 300.0 };
        record.load = Some(WorkloadReport {
            metrics: vec![metric("read", 700.0 * wobble), metric("write", written * wobble)],
            ..workload_report(1.0)
        });
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let comparisons = &source.analysis.workloads[0].comparisons;
    let of_writes =
        comparisons.iter().find(|one| one.metric == "write operations" && one.contender == "xfs");
    let ends = lab::words::interval(of_writes.unwrap().cost_ends().unwrap());
    assert!(ends.starts_with("(1.4") && ends.contains(" to 1.5"), "{ends}");
    for said in [
        document::terminal(&answer::answer(&source), false).to_string(),
        export::markdown(&source),
        // An interval does not break in the page.
        page::page(&source, &[]).replace('\u{a0}', " "),
    ] {
        for part in
            ["are the same within 5 %, by read operations", "cost by write operations", &ends]
        {
            assert!(said.contains(part), "no '{part}' in {}", &said[..said.len().min(3000)]);
        }
        for part in ["p99 Put", "p99 Get", "900.0 µs ×1.000 (1.000 to 1.000)"] {
            assert!(said.contains(part), "no '{part}' in {}", &said[..said.len().min(3000)]);
        }
    }
}

#[test]
fn a_number_that_was_scanned_is_drawn() {
    let mut text = study(&["ext4", "xfs"], &["make -j{jobs}"], 4);
    let jobs = ["1", "2", "4", "16"].map(String::from);
    text.parameters = [("jobs".into(), jobs.to_vec())].into();
    let made = make(&text, |record| {
        let jobs: u64 = record.workload.trim_start_matches("make -j").parse().unwrap();
        complete(record, 1_000_000_000 / jobs + u64::from(record.trial) * 1000);
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let charts = report::charts::scan::charts(&source);
    let [chart] = charts.as_slice() else { panic!("{charts:?}") };
    assert_eq!((chart.title.as_str(), chart.series.len()), ("time over jobs", 2));
    let places: Vec<f64> = chart.series[0].points.iter().map(|point| point.x).collect();
    assert_eq!(places, [0.0, 1.0, 2.0, 4.0], "equal factors, equal distances");
    assert!(
        chart.says.contains("ext4, jobs 1: 1.00") && chart.says.contains("jobs 16: 62.5"),
        "{}",
        chart.says
    );
    assert_eq!(chart.numbers.rows.len(), 8);
    assert!(page::page(&source, &[]).contains("time over jobs"));
}
