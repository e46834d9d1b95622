//! A check that nobody has heard of goes from a record to everything that is made of a result.

mod harness;

use harness::{complete, make, study, time_ns};
use lab::condition::GateOutcome;
use lab::record::Check;
use report::source::ResultSource;
use report::{export, page};

/// To add a check is to count it and to put it into the record: nothing else knows its name.
#[test]
fn a_check_is_added_in_a_few_lines() {
    let mut text = study(&["ext4", "xfs"], &["true"], 3);
    text.gate = vec!["ext4: link counts held".into(), "xfs: link counts held".into()];
    let made = make(&text, |record| {
        complete(record, time_ns(record, &["ext4", "xfs"]));
        let mut check = Check::new("link counts");
        for file in 0..100 {
            let is_wrong = record.contender.label == "xfs" && file == 42;
            check.count(is_wrong.then(|| format!("file {file} has 3 links")));
        }
        record.checks.push(check);
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let outcomes: Vec<GateOutcome> =
        source.analysis.gates.iter().map(|gate| gate.outcome).collect();
    assert_eq!(outcomes, [GateOutcome::Holds, GateOutcome::Fails]);
    let said = export::markdown(&source);
    for words in [
        "**xfs lost data: 3 of 300 checks violated (link counts); its time is not ranked.",
        "| link counts held (300 of 300) |",
        "| link counts | xfs | 300 | 3 | violated | - | file 42 has 3 links |",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    assert!(export::csv(&source.records).contains(",check link counts_tried,"));
    let rows = serde_json::to_value(source.analysis.rows()).unwrap();
    assert_eq!(rows.as_array().unwrap().last().unwrap()["metric"], "check link counts");
    assert!(page::page(&source, &[]).contains("file 42 has 3 links"));
}
