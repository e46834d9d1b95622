//! One comparison has the same number in the terminal, Markdown, the page, CSV, JSON and a gate, of a time and of
//! a throughput.

mod harness;

use harness::{complete, load_report, make, study};
use lab::words::ratio_with_interval;
use report::source::Source;
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
            record.load = with_throughput.then(|| load_report(1e8 / cost));
            true
        });
        let source = Source::read(&made.directory()).unwrap();
        let Source { plan, records, analysis, .. } = &source;
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
        let json = export::json(plan, records, analysis, &Value::Null);
        let stored = &json["analysis"]["workloads"][0]["comparisons"][0];
        let numbers = ["cost", "cost_low", "cost_high"].map(|name| stored[name].as_f64().unwrap());
        assert_eq!(numbers, [cost, ends.0, ends.1]);
    }
}
