//! Several results side by side: what is found, what is named, and what is said of it.

mod harness;

use harness::{Made, complete, make, study, workload_report};
use lab::condition;
use lab::record::{Outcome, Phase};
use lab::statistics::Verdict;
use lab::study::CommandText;
use lab::watched::Watched;
use report::across::{Across, csv, document, gates, json, page, pictures};
use report::document::Block;
use report::source::ResultSource;

/// What the terminal shows, without the ends of its lines.
fn terminal(across: &Across<'_>) -> String {
    let screen = report::document::terminal(&document(across), false);
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(made: &[&Made]) -> Vec<ResultSource> {
    made.iter().map(|made| ResultSource::read(&made.directory()).unwrap()).collect()
}

/// A result in which each contender takes so many ms, give or take half a percent.
fn result(contenders: &[&str], command: &str, times_ms: &[u64], blocks: u32) -> Made {
    let labels: Vec<String> =
        contenders.iter().map(|text| text.split(':').next().unwrap().to_string()).collect();
    make(&study(contenders, &[command], blocks), |record| {
        let place = labels.iter().position(|label| *label == record.contender.label).unwrap();
        let wobble = u64::from(record.trial * 7919 % 11) * 1_000_000;
        complete(record, times_ms[place] * 1_000_000 + wobble);
        true
    })
}

#[test]
fn a_known_effect_is_found_in_the_right_contender() {
    let before = result(&["ext4", "xfs"], "true", &[1000, 1500], 5);
    let after = result(&["xfs", "ext4"], "true", &[1800, 1000], 7);
    let sources = read(&[&before, &after]);
    let across = Across::new(&sources);
    let metric = &across.workloads[0].metrics[0];
    let of =
        |label: &str| metric.contenders.iter().find(|contender| contender.label == label).unwrap();
    let (ext4, xfs) = (&of("ext4").comparisons[0], &of("xfs").comparisons[0]);
    assert_eq!(ext4.verdict, Verdict::Same { within: 0.05 });
    assert_eq!(xfs.verdict, Verdict::Slower);
    assert!((xfs.ratio.unwrap() - 1.2).abs() < 0.01, "{xfs:?}");
    assert_eq!((xfs.count_before, xfs.count_after), (5, 7));
    let text = terminal(&across);
    for said in [
        "xfs in B took 1.200 (",
        ") times as long as in A (slower).",
        "times as long as in A (same within 5 %).",
        "not interleaved",
    ] {
        assert!(text.contains(said), "no '{said}' in\n{text}");
    }
    let json = json(&across);
    let rows = json["comparisons"].as_array().unwrap();
    let row = rows.iter().find(|row| row["contender"] == "xfs" && row["result"] == "B").unwrap();
    assert_eq!(row["cost"].as_f64(), xfs.ratio);
    assert_eq!(row["cost_high"].as_f64(), xfs.interval.map(|ends| ends.high));
    let lines = csv(&across);
    let line = lines.lines().find(|line| line.contains(",xfs,B,")).unwrap();
    assert!(line.contains(&format!(",{},", xfs.ratio.unwrap())), "{line}");
    assert!(line.ends_with(&format!(",{}", xfs.interval.unwrap().confidence)), "{line}");
    let html = page(&across);
    assert!(html.contains("not interleaved") && html.contains("<figure "));
    assert!(!pictures(&across).is_empty());
}

/// Of a ratio, the contender against itself in the first result; of the rest, each later result.
#[test]
fn gates_bound_what_became_of_a_contender() {
    use condition::GateOutcome::{Fails, Holds, Inconclusive, NotTested};
    let before = result(&["ext4", "xfs", "jfs: ext4"], "true", &[1000, 1500, 1000], 5);
    let after = result(&["xfs", "ext4"], "true", &[1800, 1000], 5);
    let scarce = result(&["xfs", "ext4"], "true", &[1500, 1000], 2);
    let sources = read(&[&before, &after, &scarce]);
    let mut across = Across::new(&sources);
    let judged = |text: &str| {
        let gates = gates::judge(&across, &[text.to_string()]).unwrap();
        gates.into_iter().map(|gate| (gate.workload, gate.outcome)).collect::<Vec<_>>()
    };
    let both = |b, c| vec![("true in B".to_string(), b), ("true in C".to_string(), c)];
    assert_eq!(judged("xfs <= 1.25"), both(Holds, Inconclusive));
    assert_eq!(judged("xfs <= 1.1"), both(Fails, Inconclusive));
    assert_eq!(judged("xfs > 1.1"), both(Holds, Inconclusive));
    assert_eq!(judged("xfs <= 1.2"), both(Inconclusive, Inconclusive));
    // The first one's baseline too, which is no baseline here.
    assert_eq!(judged("ext4 <= 1.1")[0].1, Holds);
    assert_eq!(judged("jfs <= 1.1"), both(NotTested, NotTested));
    assert_eq!(judged("ext4 fastest")[0].1, Holds);
    let refused = |text: &str| gates::judge(&across, &[text.to_string()]).unwrap_err();
    assert!(refused("zfs <= 1").contains("no contender is labelled 'zfs'"));
    assert!(refused("xfs is fine").contains("column"));
    across.gates = gates::judge(&across, &["xfs <= 1.1".into()]).unwrap();
    let text = terminal(&across);
    for said in ["FAIL xfs: cost 1.199 (1.195 to 1.204)", "limit 1.1 (true in B)"] {
        assert!(text.contains(said), "no '{said}' in\n{text}");
    }

    // Of a throughput, the cost is the reciprocal.
    let made = |value: f64| {
        make(&study(&["ext4", "xfs"], &["true"], 5), |record| {
            complete(record, 1_000_000_000);
            let wobble = 1.0 + f64::from(record.trial % 7) * 0.001;
            record.load = Some(workload_report(value * wobble));
            true
        })
    };
    let sources = read(&[&made(1e8), &made(2e8)]);
    let across = Across::new(&sources);
    let judged = gates::judge(&across, &["xfs <= 0.6".into(), "xfs <= 0.4".into()]).unwrap();
    assert_eq!([judged[0].outcome, judged[1].outcome], [Holds, Fails], "{judged:?}");
}

#[test]
fn disturbed_runs_are_marked_in_each_result() {
    let quiet = result(&["ext4", "xfs"], "true", &[1000, 1500], 5);
    let disturbed = make(&study(&["ext4", "xfs"], &["true"], 5), |record| {
        complete(record, 1_000_000_000 + u64::from(record.trial) * 1000);
        let throttled = u64::from(record.block == 1 && record.contender.label == "xfs");
        record.watched =
            Some(Watched { elapsed_ns: 1, throttled: Some(throttled), ..Default::default() });
        true
    });
    let sources = read(&[&quiet, &disturbed]);
    let text = terminal(&Across::new(&sources));
    assert!(text.contains("disturbed: 1 of 5 runs, throttling"), "{text}");
    let within = text.split("Cost relative to ext4 within each result: xfs 1.4").nth(1).unwrap();
    assert!(within.contains(" in A and 1.000 (") && within.contains(" in B."), "{text}");
    assert!(!terminal(&Across::new(&read(&[&quiet, &quiet]))).contains("disturbed"));
}

/// A gate never passes because there was nothing to judge.
#[test]
fn a_gate_on_a_workload_that_is_not_the_same_was_not_tested() {
    let made = |commands: &[&str], first: &str| {
        let mut text = study(&["ext4", "xfs"], commands, 5);
        text.workloads[0].name = Some("first".into());
        text.workloads[0].command = Some(CommandText::Line(first.into()));
        make(&text, |record| {
            complete(record, 1_000_000_000 + u64::from(record.trial) * 1000);
            true
        })
    };
    let before = made(&["first", "second"], "cat a");
    let other = made(&["first", "third"], "cat b");
    let sources = read(&[&before, &other]);
    let across = Across::new(&sources);
    let judged = gates::judge(&across, &["xfs <= 2".into()]).unwrap();
    let judged: Vec<_> =
        judged.iter().map(|gate| (gate.workload.as_str(), gate.outcome, &gate.evidence)).collect();
    let not_tested = condition::GateOutcome::NotTested;
    let difference =
        "B measured something else than A (command.line: 'cat a' against 'cat b')".to_string();
    let missing = "B does not have the workload 'second'".to_string();
    assert_eq!(
        judged,
        [
            ("first in B", not_tested, &vec![difference]),
            ("second in B", not_tested, &vec![missing])
        ]
    );
    let text = terminal(&across);
    assert!(
        text.contains("is not the same in B as in A: command.line: 'cat a' against 'cat b'"),
        "{text}"
    );
}

#[test]
fn more_is_better_where_it_is() {
    let made = |value: f64| {
        make(&study(&["ext4", "xfs"], &["true"], 5), |record| {
            complete(record, 1_000_000_000);
            let wobble = 1.0 + f64::from(record.trial % 7) * 0.001;
            record.load = Some(workload_report(value * wobble));
            true
        })
    };
    let sources = read(&[&made(1e8), &made(2e8)]);
    let across = Across::new(&sources);
    let comparison = &across.workloads[0].metrics[0].contenders[0].comparisons[0];
    assert_eq!(comparison.verdict, Verdict::Faster);
    let (ratio, interval) = (comparison.ratio.unwrap(), comparison.interval.unwrap());
    assert!((ratio - 0.5).abs() < 0.02, "{comparison:?}");
    assert!(interval.low <= ratio && ratio <= interval.high, "{comparison:?}");
}

#[test]
fn results_with_nothing_in_common_are_told_in_a_sentence() {
    let why = |one: &Made, other: &Made| Across::new(&read(&[one, other])).nothing_in_common();
    let first = result(&["ext4", "xfs"], "true", &[1000, 1000], 3);
    assert_eq!(why(&first, &first), None);
    let load = why(&first, &result(&["ext4"], "false", &[1000], 3)).unwrap();
    assert!(load.contains("no workload of A is in another (A has true; B has false)"), "{load}");
    let contender = why(&first, &result(&["btrfs"], "true", &[1000], 3)).unwrap();
    assert!(contender.contains("(A has ext4 and xfs; B has btrfs)"), "{contender}");
    let failed = make(&study(&["ext4"], &["true"], 3), |_| false);
    let none = why(&first, &failed).unwrap();
    assert!(none.contains("no contender completed a run of the same workload in two"), "{none}");
    assert_eq!(none.lines().count(), 1);
}

#[test]
fn what_does_not_match_is_named() {
    let before = result(&["ext4", "xfs", "btrfs"], "true", &[1000, 1000, 1000], 3);
    let after = result(&["ext4", "xfs: xfs -m crc=0"], "true", &[1000, 1000], 3);
    let other = result(&["ext4"], "false", &[1000], 3);
    let sources = read(&[&before, &after, &other]);
    let across = Across::new(&sources);
    let said = across.notes.join("\n");
    for text in [
        "the workload 'true' is not in",
        "the workload 'false' is not in",
        "the contender 'btrfs' is not in",
        "the contender 'xfs' has other options",
    ] {
        assert!(said.contains(text), "no '{text}' in\n{said}");
    }
    assert_eq!(across.names, ["A", "B", "C"]);
    assert!(across.origins.iter().all(|origin| origin.contains("6.1.0-test")));
    assert_eq!(across.workloads.len(), 1);
    assert!(page(&across).contains("btrfs"));
    let nothing = read(&[&after, &other]);
    assert!(terminal(&Across::new(&nothing)).contains("no workload of A is in another"));
}

/// A doubt about one result is one about the comparison; only the workload's author's words are none.
#[test]
fn what_casts_doubt_on_one_result_is_said_of_both() {
    let made = |proof: &str, prepare: Option<&str>, why: &str, sound: bool| {
        let mut text = study(&["ext4", "xfs"], &["true"], 4);
        text.workloads[0].prepare = prepare.map(|line| CommandText::Line(line.into()));
        text.workloads[0].why = Some(why.into());
        make(&text, |record| {
            complete(record, 1_000_000_000 + u64::from(record.trial) * 1000);
            let mut load = workload_report(1e8);
            load.proof = Some(proof.into());
            record.load = Some(load);
            if sound {
                std::mem::take(&mut record.load.as_mut().unwrap().latencies);
            } else {
                record.caches_kept = Some("not root".into());
            }
            if !sound && record.trial == 1 {
                record.outcome = Outcome::TimedOut { phase: Phase::Run, limit_ns: 1 };
            }
            true
        })
    };
    let before = made("1 file", None, "because", true);
    let sources = read(&[&before, &made("1 file", None, "for fun", true)]);
    let across = Across::new(&sources);
    assert_eq!((&across.notes, &across.warnings), (&Vec::new(), &Vec::new()));
    let sources = read(&[&before, &made("2 files", Some("true"), "because", false)]);
    let across = Across::new(&sources);
    let (text, html) = (terminal(&across), page(&across));
    let html = html.replace("&#39;", "'");
    for said in [
        "the workload 'true' is not the same in B as in A: prepare nothing against ",
        "ext4 did other work under 'true' in B than in A (2 files against 1 file)",
        "in B, workload 'true': caches were not dropped before the runs (not root)",
        "1 of 4 runs failed; the report of that result has the reason",
        "in B, workload 'true': xfs: left out: latencies of run",
    ] {
        assert!(text.contains(said), "no '{said}' in\n{text}");
        assert!(html.contains(said), "no '{said}' in the page");
    }
    assert!(!text.contains("in A, load"), "{text}");
}

#[test]
fn the_facts_that_differ_are_shown() {
    let before = result(&["ext4"], "true", &[1000], 3);
    let after = result(&["ext4"], "true", &[1000], 3);
    let mut facts = harness::facts();
    facts["machine"]["kernel"] = "6.18.1-new".into();
    harness::damage(&after.path("facts.json"), facts.to_string().as_bytes());
    let sources = read(&[&before, &after]);
    let across = Across::new(&sources);
    assert_eq!(across.differences.rows.len(), 1, "{:?}", across.differences);
    let row: Vec<&str> = across.differences.rows[0].iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(row, ["machine · kernel", "6.1.0-test #1", "6.18.1-new"]);
}

/// A study that went on under another kernel is of both.
#[test]
fn the_facts_of_every_session_are_told() {
    let mut new = harness::facts();
    new["machine"]["kernel"] = "6.18.1-new #3".into();
    new["command_line"] = serde_json::json!(["kurabe", "resume", "here"]);
    let resumed = make(&study(&["ext4", "xfs"], &["true"], 4), |record| {
        record.session = 1 + u32::from(record.block >= 3);
        complete(record, 1_000_000_000 + u64::from(record.trial) * 1000);
        true
    });
    std::fs::rename(resumed.path("facts.json"), resumed.path("facts-1.json")).unwrap();
    harness::damage(&resumed.path("facts.json"), new.to_string().as_bytes());
    let other = result(&["ext4", "xfs"], "true", &[1000, 1000], 4);
    let sources = read(&[&resumed, &other]);
    let across = Across::new(&sources);
    assert!(across.origins[0].contains("Linux 6.1.0-test and Linux 6.18.1-new"));
    let row: Vec<&str> = across.differences.rows[0].iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(row, ["machine · kernel", "6.1.0-test #1, later 6.18.1-new #3", "6.1.0-test #1"]);
    let said = "the study was resumed: 6 runs in session 1 and 2 runs in session 2; these facts differ: machine · kernel";
    assert_eq!(across.warnings[0], format!("of A: {said}"));
    let html = report::page::page(&sources[0], &[]);
    assert!(html.contains(said) && html.contains("What differs between the sessions"));
    let notes = |source: &ResultSource| {
        let blocks = report::answer::answer(source);
        blocks.iter().filter(|block| matches!(block, Block::Note(note) if note == said)).count()
    };
    assert_eq!((notes(&sources[0]), notes(&sources[1])), (1, 0));
    assert!(html.contains("kurabe compare ext4") && html.contains("\nkurabe resume here</pre>"));
    assert!(!report::page::page(&sources[1], &[]).contains("session 1"));

    // A session of which no trial stands any more says nothing of the numbers.
    let done = result(&["ext4"], "true", &[1000], 3);
    std::fs::rename(done.path("facts.json"), done.path("facts-2.json")).unwrap();
    harness::damage(&done.path("facts-1.json"), harness::facts().to_string().as_bytes());
    harness::damage(&done.path("facts.json"), new.to_string().as_bytes());
    let source = ResultSource::read(&done.directory()).unwrap();
    assert!(!report::page::page(&source, &[]).contains("6.18.1-new"));
}

#[test]
fn names_are_escaped_here_too() {
    let made = || result(&["<script>x</script>: ext4", "xfs"], "echo '<i>'", &[1000, 1000], 4);
    let sources = read(&[&made(), &made()]);
    let html = page(&Across::new(&sources));
    // The page's own script is the last thing in it.
    let own = &html[..html.rfind("<script>").unwrap()];
    assert!(own.contains("&lt;script&gt;x"), "the label is there");
    assert!(!own.contains("<script>x") && !own.contains("<i>"));
}
