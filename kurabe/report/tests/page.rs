//! The page as text: what it must hold, what it must not, and what it makes of bad results. What a
//! browser makes of it is the matter of `browser.rs`.

mod harness;

use harness::{Made, complete, damage, make, study, time_ns, workload_report};
use lab::record::{DeviceDelta, LayerRecord, Outcome, Phase};
use lab::study::WorkloadText;
use lab::watched::Watched;
use lab::workload::{Metric, Unit, WorkloadReport};
use report::chart::SeriesStyle;
use report::charts::{WorkloadView, matrix};
use report::document::Block;
use report::page::page;
use report::source::ResultSource;

fn rendered(made: &Made) -> String {
    page(&ResultSource::read(&made.directory()).unwrap(), &[])
}

/// The page without the scripts of others.
fn own(text: &str) -> String {
    let start = text.find("<script>").unwrap_or(text.len());
    text[..start].to_string()
}

/// Position of each text, which must come in this order.
fn in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        match text[from..].find(part) {
            Some(at) => from += at + part.len(),
            None => panic!("no '{part}' after {from} of\n{text}"),
        }
    }
}

const LABELS: [&str; 3] = ["ext4", "xfs", "btrfs"];

#[test]
fn the_answer_comes_first_and_the_way_to_repeat_it_last() {
    let made = make(&study(&LABELS, &["tar xf x.tar"], 6), |record| {
        complete(record, time_ns(record, &LABELS));
        true
    });
    let text = own(&rendered(&made));
    in_order(
        &text,
        &[
            "a study",
            "<p class=\"answer\">ext4",
            "is fastest",
            "btrfs costs ",
            "6 runs of each contender",
            "<caption>Ranking under tar xf x.tar",
            "slower",
            "Every run",
            "Details",
            "What it cost",
            "CPU time of the workload",
            "flushes of the device",
            "write amplification",
            "Cost relative to ext4",
            "Where the time goes",
            "What the device did in each phase",
            ">1.00 MiB written, 1 flush</td>",
            ">4.00 KiB written</td>",
            ">nothing</td>",
            ">3.00 MiB written, 1 flush</td>",
            "All rounds, by contender",
            "Environment",
            "6.1.0-test",
            "mkfs.ext4 /dev/loop1",
            "How to repeat this",
            "--seed 7",
            "kurabe compare ext4 &quot;it&#39;s&quot;",
            "study.toml",
            "runs = 6",
        ],
    );
    // Every chart has its words.
    let figures = text.matches("<figure ").count();
    assert!(figures >= 4, "{figures}");
    for part in ["<figcaption>", "<svg class=\"area\"", "aria-describedby"] {
        assert_eq!(text.matches(part).count(), figures, "{part}");
    }
}

#[test]
fn the_page_asks_nothing_of_anybody() {
    let made = make(&study(&LABELS, &["true"], 3), |record| {
        complete(record, time_ns(record, &LABELS));
        true
    });
    let text = rendered(&made);
    assert!(text.contains("default-src 'none'"));
    let own = own(&text);
    for asking in ["src=", "@import", "url(http", "href=\"http", "<link rel=\"stylesheet"] {
        assert!(!own.contains(asking), "{asking}");
    }
    // Nothing in it is of others, and it is small: 1.3 MB when a library drew its charts.
    assert!(text.len() < 200_000, "{}", text.len());
}

#[test]
fn hostile_names_stay_names() {
    let hostile = "<script>alert(1)</script>";
    let labels = [hostile, "\"&' onload=x", "</style><!--", "xfs"];
    let contenders: Vec<String> = labels.iter().map(|label| format!("{label}: ext4")).collect();
    let contenders: Vec<&str> = contenders.iter().map(String::as_str).collect();
    let command = "echo '</script><script>alert(2)</script>' %{x} <u>";
    let made = make(&study(&contenders, &[command], 4), |record| {
        complete(record, 1_000_000_000 + u64::from(record.trial % 5) * 10_000_000);
        record.notes = vec!["<img src=x onerror=alert(3)>".into()];
        if record.trial == 5 {
            record.outcome = Outcome::Failed {
                phase: Phase::Run,
                message: "<i>broke</i>".into(),
                output: "</pre><script>alert(4)</script>".into(),
            };
        }
        true
    });
    let text = rendered(&made);
    for markup in ["<script>alert", "<img", "<i>", "</style><!--", "\" onload", "<u>"] {
        assert!(!text.contains(markup), "{markup}");
    }
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    // The script of the page's own, and its end.
    let own_ends = text.matches("</script>").count();
    assert_eq!((text.matches("<script").count(), own_ends), (1, 1));
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_shown() {
    let made = make(&study(&LABELS, &["true"], 5), |record| {
        complete(record, time_ns(record, &LABELS));
        true
    });
    damage(&made.path("facts.json"), b"{");
    std::fs::remove_file(made.path("study.toml")).unwrap();
    let records = std::fs::read_to_string(made.path("records.jsonl")).unwrap();
    let mut lines: Vec<&str> = records.lines().collect();
    lines[3] = "{\"schema\":1,\"trial\":";
    damage(&made.path("records.jsonl"), (lines.join("\n") + "\n").as_bytes());
    let text = own(&rendered(&made));
    for said in ["facts.json", "study.toml", "records.jsonl:4", "could not be read", "All rounds"] {
        assert!(text.contains(said), "{said}");
    }
    in_order(&text, &["btrfs costs ", "facts of the machine could not be read"]);
    assert!(ResultSource::read(made.path("nowhere").as_path()).is_err());
}

#[test]
fn a_result_without_a_completed_trial_is_a_page_too() {
    let nothing = make(&study(&LABELS, &["true"], 3), |_| false);
    let text = own(&rendered(&nothing));
    assert!(text.contains("No contender completed a run"), "{text}");
    let failed = make(&study(&LABELS, &["true"], 3), |record| {
        record.outcome = Outcome::Failed {
            phase: Phase::Mkfs,
            message: "no space".into(),
            output: String::new(),
        };
        true
    });
    let text = own(&rendered(&failed));
    in_order(&text, &["3 of 3 runs failed; the first: mkfs failed: no space", "failed 3×"]);
    assert!(!text.contains("<figure"), "there is nothing to draw");
}

#[test]
fn a_workload_with_figures_shows_them_over_time() {
    let made = make(&study(&LABELS, &["true"], 5), |record| {
        let time = time_ns(record, &LABELS);
        complete(record, time);
        let mut load = workload_report(1e17 / time as f64);
        if (record.contender.label.as_str(), record.block) == ("xfs", 2) {
            load.series[0].marks = vec![lab::workload::SeriesMark {
                at_ns: 2_000_000_000,
                words: "throughput sank".into(),
            }];
        }
        record.load = Some(load);
        true
    });
    let text = own(&rendered(&made));
    in_order(
        &text,
        &[
            "cost (95 % confidence)",
            "verified 25000 objects",
            "flushes per operation",
            "1.2e-4",
            "Latencies by kind of operation",
            "Over time: throughput",
            "steady state",
            "steady from here",
            "this run changed here",
            "runs with a change",
            "1 of 5",
        ],
    );
}

#[test]
fn whoever_repeats_it_is_warned_of_a_device_that_exists_under_layers_too() {
    for (device, is_warned) in [("/dev/sdx", true), ("record+/dev/sdx", true), ("mem:4G", false)] {
        let mut text = study(&LABELS, &["true"], 3);
        text.device = Some(device.into());
        let page = own(&rendered(&make(&text, |_| false)));
        assert_eq!(page.contains("it overwrites the device"), is_warned, "{device}");
    }
}

/// A matrix of two cells: in one xfs has a third of the raw device's operations in every block, in the
/// other as often more as less.
fn made_matrix() -> Made {
    make_matrix_of(4, 2000.0)
}

/// The same of so many blocks, with another number of operations in those of the second cell that
/// have more.
fn make_matrix_of(blocks: u32, more: f64) -> Made {
    let mut text = study(&["raw", "xfs"], &[], blocks);
    text.baseline = Some("raw".into());
    text.workloads = vec![WorkloadText {
        name: Some("fio-matrix".into()),
        command: Some(lab::study::CommandText::Line("true".into())),
        ..Default::default()
    }];
    make(&text, |record| {
        complete(record, 1_000_000_000);
        let xfs = record.contender.label == "xfs";
        let wobble = 1.0 + f64::from(record.block) * 0.001;
        let undecided = if record.block.is_multiple_of(2) { more } else { more / 4.0 };
        let cell = |name: &str, value| Metric::new(name, value, Unit::OperationsPerSecond);
        record.load = Some(WorkloadReport {
            metrics: vec![
                cell("randread-psync-1-4k", if xfs { 1000.0 * wobble } else { 3000.0 }),
                cell("randread-psync-1-64k", if xfs { undecided } else { 1000.0 }),
            ],
            ..Default::default()
        });
        true
    })
}

#[test]
fn a_matrix_is_a_map_in_the_page_and_a_picture() {
    let made = made_matrix();
    let text = own(&rendered(&made));
    in_order(
        &text,
        &[
            "<figure id=\"w1-fio-matrix-map-0\"",
            "Decided: 1 of 2 cells",
            "role=\"columnheader\"",
            ">4K<",
            ">64K<",
            "role=\"cell\" aria-label=\"randread, one by one (psync), 4K: cost 3.00 (2.99 to 3.00)",
            "color-mix",
            ">3.00</text>",
            "inconclusive",
            "stroke-dasharray",
            ">?</text>",
            "The numbers",
            "Cost relative to raw, 95 % confidence",
        ],
    );
    let source = ResultSource::read(&made.directory()).unwrap();
    let pictures = report::page::pictures(&source, &[]);
    // As curves: the inconclusive cell is a symbol in outline, to which no line leads.
    let (_, curves) = pictures.iter().find(|(name, _)| name.ends_with("overhead-0.svg")).unwrap();
    assert!(curves.contains("in outline without a line: inconclusive"), "{curves}");
    let chart = &matrix::curves(&WorkloadView::all(&source)[0])[0];
    let drawn: Vec<(SeriesStyle, usize)> =
        chart.series.iter().map(|one| (one.mark, one.points.len())).collect();
    assert_eq!(drawn, [(SeriesStyle::Steps, 1), (SeriesStyle::Hollow, 1)]);
    let (_, map) = pictures.iter().find(|(name, _)| name.ends_with("map-0.svg")).unwrap();
    well_formed(map);
    assert!(map.contains(">3.00</text>") && !map.contains("var(--"), "{map}");
    assert!(map.contains("faster than raw") && map.contains("≥ 2.0"), "{map}");
}

#[test]
fn a_cell_whose_only_pair_stands_beside_another_trial_of_the_device_has_no_ratio() {
    // As it was reported: the medians 8662 and 9391, and a single pair that says x1.262.
    let mut text = study(&["raw", "xfs"], &[], 2);
    text.baseline = Some("raw".into());
    text.workloads = vec![WorkloadText {
        name: Some("fio-matrix".into()),
        command: Some(lab::study::CommandText::Line("true".into())),
        ..Default::default()
    }];
    let made = make(&text, |record| {
        complete(record, 1_000_000_000);
        let per_second = match (record.contender.label.as_str(), record.block) {
            ("raw", 0) => 6864.0,
            ("raw", _) => 11918.0,
            (_, 0) => 8662.0,
            _ => {
                let (message, output) = ("it broke".into(), String::new());
                record.outcome = Outcome::Failed { phase: Phase::Run, message, output };
                return true;
            }
        };
        let metric = |name: &str| Metric::new(name, per_second, Unit::OperationsPerSecond);
        record.load = Some(WorkloadReport {
            metrics: vec![metric("randread-psync-1-4k"), metric("randread-psync-1-64k")],
            ..Default::default()
        });
        true
    });
    let text = own(&rendered(&made));
    assert!(!text.contains("1.262") && !text.contains("-26"), "{text}");
    assert!(!text.contains("<figure id=\"w1-fio-matrix-ratio"), "a chart of nothing: {text}");
    in_order(
        &text,
        &[
            "9391/s",
            "8662/s",
            "too few rounds",
            "inconclusive",
            "aria-label=\"randread, one by one (psync), 4K: not shown: both completed fewer than 3 rounds",
            "An interval needs 3 rounds that both completed",
            "8662/s too few rounds",
        ],
    );
}

#[test]
fn what_a_block_left_that_was_not_finished_stands_among_all_trials_only() {
    // The budget ended in the last block, after a trial of ext4 that took far longer.
    let made = make(&study(&LABELS, &["true"], 4), |record| {
        let is_last = record.block == 3;
        complete(record, if is_last { 77_700_000_000 } else { time_ns(record, &LABELS) });
        !is_last || record.contender.label == "ext4"
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let text = own(&page(&source, &[]));
    let (figures, trials) = text.split_once("All rounds, by contender").unwrap();
    assert!(figures.contains("3 runs of each contender"), "{figures}");
    let end = trials.find("</table>").unwrap();
    assert!(trials[..end].contains("completed; its round was not"), "{trials}");
    assert!(trials[..end].contains("77.70 s") && !figures.contains("77.7"), "{figures}");
    let lines = report::export::csv(&source.records);
    assert_eq!(lines.lines().filter(|line| line.contains(",4,false,false,true,ext4")).count(), 1);
    assert_eq!(lines.matches(",true,false,true,").count(), 9, "{lines}");
}

#[test]
fn a_matrix_of_a_single_block_tells_no_overhead() {
    // As it was reported, of a disk that others used: xfs 19 times as fast as the device below it.
    let made = make_matrix_of(1, 19360.0);
    let text = own(&rendered(&made));
    in_order(&text, &["<figure id=\"w1-fio-matrix-map-0\"", ">?<", "19.4k/s"]);
    let source = ResultSource::read(&made.directory()).unwrap();
    let mut all = vec![
        text,
        report::export::markdown(&source),
        report::export::overhead_csv(&source.analysis).unwrap(),
        report::document::terminal(&report::details::details(&source), false).to_string(),
    ];
    all.extend(report::page::pictures(&source, &[]).into_iter().map(|(_, picture)| picture));
    for text in all {
        assert!(!text.contains("1836") && !text.contains("66.7 %"), "{text}");
    }
}

#[test]
fn a_cell_far_beyond_the_others_does_not_press_the_curves_together() {
    let made = make_matrix_of(4, 16000.0);
    let source = ResultSource::read(&made.directory()).unwrap();
    let pictures = report::page::pictures(&source, &[]);
    let (_, curves) = pictures.iter().find(|(name, _)| name.ends_with("overhead-0.svg")).unwrap();
    well_formed(curves);
    // Three times the cost and an eighth of it, each a part of the axis.
    let chart = &matrix::curves(&WorkloadView::all(&source)[0])[0];
    assert!(chart.y.logarithmic);
    let places: Vec<f64> = chart.series.iter().flat_map(|one| &one.points).map(|p| p.y).collect();
    assert!((places[0] - 2.995).abs() < 0.02 && (places[1] - 0.125).abs() < 0.002, "{places:?}");
    assert!([">0.5</text>", ">2</text>"].iter().all(|tick| curves.contains(tick)), "{curves}");
}

#[test]
fn several_workloads_have_an_overview_and_a_fold_each() {
    let made = make(&study(&LABELS, &["first", "second"], 4), |record| {
        complete(record, time_ns(record, &LABELS));
        true
    });
    let text = own(&rendered(&made));
    // Of both, and of both together.
    assert_eq!(text.matches("<p class=\"answer\">").count(), 2);
    // No sentence twice: a fold does not say again what stands above it.
    assert_eq!(text.matches("corrected for multiple comparisons").count(), 1);
    in_order(
        &text,
        &[
            "<p class=\"answer\">first and second: ",
            "<caption>Overview",
            "<figure id=\"overview\"",
            "<details><summary>first</summary>",
            "<caption>Ranking under first",
            "<details><summary>second</summary>",
        ],
    );
    // No identifier twice: links and labels would point at the wrong place.
    let mut ids: Vec<&str> =
        text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

/// The sentences of at least five words that a reader of the page sees: not those of tables, headings,
/// legends, pictures with their words, and what was typed or printed.
fn sentences(page: &str) -> Vec<String> {
    let (_, text) = page.split_once("<main>").unwrap();
    let mut text = text.split_once("</main>").unwrap().0.to_string();
    for element in
        ["table", "figure", "h1", "h2", "h3", "h4", "pre", "summary", "div class=\"legend\""]
    {
        let name = element.split(' ').next().unwrap();
        let (start, end) = (format!("<{element}"), format!("</{name}>"));
        while let Some(from) = text.find(&start) {
            let to = from + text[from..].find(&end).unwrap() + end.len();
            text.replace_range(from..to, "\n");
        }
    }
    let words = text.split('<').map(|part| part.split_once('>').map_or(part, |(_, words)| words));
    let lines = words.collect::<Vec<_>>().join("\n");
    let all = lines.lines().flat_map(|line| line.split_inclusive(". ")).map(str::trim);
    all.filter(|said| said.split(' ').count() >= 5).map(str::to_string).collect()
}

#[test]
fn no_sentence_stands_twice_on_a_page() {
    let mut text = study(&LABELS, &["first", "second", "third"], 5);
    text.workloads.iter_mut().for_each(|load| load.why = Some("a tenth of what it was".into()));
    let made = make(&text, |record| {
        let time = time_ns(record, &LABELS);
        complete(record, time);
        record.notes = vec!["its journal lies on the same device".into()];
        if record.workload != "third" {
            record.load = Some(workload_report(1e17 / time as f64));
        }
        record.workload != "second" || record.trial % 7 != 0
    });
    let text = own(&rendered(&made));
    let all = sentences(&text);
    assert!(all.len() > 12, "{all:?}");
    for (place, said) in all.iter().enumerate() {
        assert!(!all[..place].contains(said), "twice: {said}\n{text}");
    }
    // What is said of some only is said with their names.
    for said in ["p>a tenth of", "first and second: All runs together:", "p>Medians, ×"] {
        assert_eq!(text.matches(said).count(), 1, "{said}");
    }
}

#[test]
fn what_is_compared_besides_the_metrics_stands_with_the_costs() {
    let made = make(&study(&LABELS, &["first", "second"], 5), |record| {
        complete(record, time_ns(record, &LABELS));
        let flushes = if record.contender.label == "xfs" { 4 } else { 1 };
        let run = record.phases.iter_mut().find(|entry| entry.phase == Phase::Run).unwrap();
        run.device.as_mut().unwrap().flushes = flushes;
        if record.workload == "first" {
            record.load = Some(workload_report(1e17 / record.time_ns().unwrap() as f64));
        }
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let text = report::export::markdown(&source);
    for row in [
        "| flushes of the device | 3 | 6 ×2.00 - | 3 ×1.000 = |",
        "| CPU time of the workload | 3.000 ms | 3.000 ms ×1.000 = | 3.000 ms ×1.000 = |",
        "| time until unmounted | 927.7 ms | 1.175 s ×1.2",
    ] {
        assert!(text.contains(row), "{row}\n{text}");
    }
    assert_eq!(text.matches("carries the 95 % guarantee").count(), 1, "{text}");
    // Percentiles have their values, and a table of their own.
    assert!(!text.contains("p99 of Put"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| Put | xfs |")).unwrap_or(&text);
    assert_eq!(row.matches('×').count(), 2, "the median and the 99th percentile: {row}");
}

#[test]
fn a_few_blocks_that_were_read_are_shown_without_a_verdict() {
    let of = |bytes: u64| {
        let made = make(&study(&LABELS, &["true"], 5), |record| {
            complete(record, time_ns(record, &LABELS));
            let factor = if record.contender.label == "xfs" { 5 } else { 1 };
            let run = record.phases.iter_mut().find(|entry| entry.phase == Phase::Run).unwrap();
            run.device.as_mut().unwrap().read_bytes = bytes * factor;
            true
        });
        let text = report::export::markdown(&ResultSource::read(&made.directory()).unwrap());
        text.lines().find(|line| line.starts_with("| read by the device")).unwrap().to_string()
    };
    assert_eq!(of(16 << 10), "| read by the device | 16.0 KiB | 80.0 KiB | 16.0 KiB |");
    assert!(of(1 << 20).contains("5.00 MiB ×5.00 -"), "{}", of(1 << 20));
}

#[test]
fn slow_trials_stand_beside_the_ratio_that_sets_them_aside() {
    let made = make(&study(&LABELS, &["true"], 15), |record| {
        let slow = if record.contender.label == "xfs" && record.block % 5 == 0 { 3 } else { 1 };
        complete(record, time_ns(record, &LABELS) * slow);
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let table = report::tables::contenders(&source.analysis.workloads[0], &source.plan);
    let text = table.terminal(false).to_string();
    let row = text.lines().find(|line| line.starts_with("  xfs")).unwrap();
    assert!(row.contains("3 of 15 runs slow; cost of the means 1."), "{text}");
    let row = text.lines().find(|line| line.starts_with("  btrfs")).unwrap();
    assert!(row.contains("  -  "), "{text}");
}

#[test]
fn a_trial_that_the_machine_disturbed_is_marked() {
    let made = make(&study(&LABELS, &["true"], 4), |record| {
        complete(record, time_ns(record, &LABELS));
        let of =
            |throttled| Watched { elapsed_ns: 1, throttled: Some(throttled), ..Default::default() };
        record.watched = Some(of(u64::from(record.trial == 5)));
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let table = report::tables::trials(&source, &source.analysis.workloads[0]);
    let column = table.heads.iter().position(|head| head == "disturbed by").unwrap();
    let marked: Vec<(&str, &str)> =
        table.rows.iter().map(|row| (&*row[0].text, &*row[column].text)).collect();
    assert!(
        marked.iter().all(|(trial, by)| (*by == "throttling") == (*trial == "5")),
        "{marked:?}"
    );
}

#[test]
fn what_stands_beside_a_result_comes_right_after_the_answers() {
    let made = make(&study(&LABELS, &["true"], 4), |record| {
        complete(record, time_ns(record, &LABELS));
        true
    });
    let source = ResultSource::read(&made.directory()).unwrap();
    let views = report::charts::WorkloadView::all(&source);
    let chart = report::charts::of_workload(&views[0]).remove(0);
    let chart = report::chart::Chart { id: "published-1-picture-1".into(), ..chart };
    let beside = [
        Block::heading(2, "published", "Beside"),
        Block::heading(3, "published-1", "Times"),
        Block::Chart(chart),
    ];
    let text = own(&report::page::page(&source, &beside));
    in_order(
        &text,
        &[
            "btrfs costs ",
            "<h2 id=\"published\">",
            "<h3 id=\"published-1\">",
            "<figure id=\"published-1-picture-1\"",
            "<h2 id=\"loads-in-detail\">",
            "Environment",
        ],
    );
    let pictures = report::page::pictures(&source, &beside);
    assert_eq!(pictures[0].0, "published-1-picture-1.svg");
    well_formed(&pictures[0].1);
    assert!(!pictures[0].1.contains("var(--"));
}

/// Checks that every element is closed in order and every attribute quoted, as XML has it.
fn well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("<{part} does not end"));
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_chart_is_a_picture_of_its_own() {
    let labels = ["ext4", "<x>&\"", "btrfs"];
    let contenders = ["ext4", "<x>&\": xfs", "btrfs"];
    let made = make(&study(&contenders, &["true"], 5), |record| {
        let time = time_ns(record, &labels);
        complete(record, time);
        record.load = Some(workload_report(1e17 / time as f64));
        true
    });
    let pictures = report::page::pictures(&ResultSource::read(&made.directory()).unwrap(), &[]);
    assert!(pictures.len() >= 6, "{}", pictures.len());
    let mut names: Vec<&String> = pictures.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), pictures.len());
    for (name, picture) in &pictures {
        assert!(name.ends_with(".svg") && !name.contains('/'), "{name}");
        // A file of its own has no style sheet to ask.
        assert!(!picture.contains("var(--"), "{name}");
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{name}");
        well_formed(picture);
    }
    let ratio = pictures.iter().find(|(name, _)| name.ends_with("ratio.svg")).unwrap();
    assert!(ratio.1.contains("&lt;x&gt;&amp;&quot;"));
}

#[test]
fn what_each_layer_was_asked_is_a_chart_and_kernel_threads_are_a_row() {
    let made = make(&study(&["ext4", "xfs"], &["true"], 3), |record| {
        complete(record, time_ns(record, &["ext4", "xfs"]));
        record.kernel_threads_cpu_ns = Some(7_000_000);
        let device = DeviceDelta { written_bytes: 3 << 20, ..DeviceDelta::default() };
        record.layers.push(LayerRecord { layer: "luks".into(), device });
        true
    });
    let page = rendered(&made);
    for words in ["Where the bytes went", "xfs: luks: 3.00 MiB", "CPU time of kernel threads"] {
        assert!(page.contains(words), "{words} is not in the page");
    }
}
