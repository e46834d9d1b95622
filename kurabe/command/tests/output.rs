//! What the user sees and what is written for other programs: study files, exports, man pages,
//! completions, colour.

mod harness;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use harness::{Ran, Site, memory_directory, phase, two_contenders};
use serde_json::Value;

/// A small study of two directories in memory; needs no root.
struct Two {
    site: Site,
    _place: tempfile::TempDir,
    contenders: [String; 2],
}

impl Two {
    fn new() -> Two {
        let place = memory_directory();
        let contenders = two_contenders(place.path());
        Two { site: Site::new(), _place: place, contenders }
    }

    fn compare(&self, flags: &[&str], command: &[&str]) -> Ran {
        self.site.compare(&self.contenders.each_ref().map(String::as_str), flags, command)
    }
}

const ESCAPE: char = '\u{1b}';

#[test]
fn a_printed_study_equals_its_flags() {
    let two = Two::new();
    let flags = [
        "--warmup",
        "1",
        "--runs",
        "2",
        "--same-within",
        "7.5",
        "--gate",
        "b <= 40",
        "--name",
        "round trip",
        "--setup",
        "echo 'a b' > \"f {n}\"",
        "--prepare",
        "true",
        "--cleanup",
        "rm -f *",
        "-L",
        "n",
        "1,2",
        "--timeout",
        "1m",
        "--budget",
        "10m",
        "--cache",
        "warm",
        "--baseline",
        "a",
        "--idle-wait",
        "150ms",
        "--output",
        "pipe",
        "--ignore-failure",
        "--shell",
        "sh -e",
        "--command-name",
        "load {n}",
        "--export-markdown",
        "tables.md",
    ];
    let with_print: Vec<&str> = flags.iter().copied().chain(["--print-study"]).collect();
    let command = ["cat 'f {n}' >/dev/null; sleep 0.06"];
    let printed = two.compare(&with_print, &command).expect(0);
    two.site.expect_untouched(&[]);
    fs::write(two.site.work().join("study.toml"), &printed.stdout).unwrap();
    let again = two.site.run(&["run", "study.toml", "--print-study"]).expect(0);
    assert_eq!(again.stdout, printed.stdout);

    // Two blocks have no interval, so the gate is open.
    two.compare(&flags, &command).expect(4);
    let by_flags = two.site.json("plan.json");
    two.site.run(&["run", "study.toml", "--out", "by-file"]).expect(4);
    let text = fs::read_to_string(two.site.work().join("by-file/plan.json")).unwrap();
    let by_file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(by_file, by_flags);
    // The result keeps the study in the same words.
    let kept = fs::read_to_string(two.site.work().join("result/study.toml")).unwrap();
    assert_eq!(kept, printed.stdout);
    assert_eq!(two.site.records().len(), 2 * 2 * 3, "two loads, one warm-up and two blocks");
}

#[test]
fn a_study_file_holds_several_workloads_and_the_flags_override_it() {
    let two = Two::new();
    let study = format!(
        "name = 'several'\n\
         why = 'to see that two loads are kept apart'\n\
         contenders = ['{}', '{}']\n\
         runs = 9\n\
         [[workload]]\n\
         name = 'short'\n\
         why = 'many of them'\n\
         command = 'sleep 0.06'\n\
         [[workload]]\n\
         name = 'long'\n\
         command = ['sleep', '0.12']\n\
         setup = 'touch there'\n",
        two.contenders[0], two.contenders[1]
    );
    fs::write(two.site.work().join("study.toml"), study).unwrap();
    let arguments = ["run", "study.toml", "--runs", "3", "--out", "result"];
    let ran = two.site.run(&arguments).expect(0);
    assert_eq!(two.site.records().len(), 2 * 2 * 3);
    for name in ["short", "long"] {
        assert!(ran.stdout.contains(name), "{}", ran.stdout);
    }
    let comparisons = two.site.primary_comparisons();
    let workloads: Vec<&Value> = comparisons.iter().map(|entry| &entry["workload"]).collect();
    assert_eq!(workloads, ["short", "long"]);
    assert_eq!(two.site.json("plan.json")["study"]["workloads"][0]["why"], "many of them");
    // The default place is named after the study.
    let arguments = ["run", "study.toml", "--runs", "1"];
    let ran = two.site.run(&arguments).expect(0);
    assert!(ran.stderr.contains("result: kurabe-results/several-"), "{}", ran.stderr);
}

#[test]
fn exports_hold_every_trial() {
    let two = Two::new();
    let flags = [
        "--runs",
        "3",
        "--warmup",
        "1",
        "--export-json",
        "all.json",
        "--export-csv",
        "all.csv",
        "--export-markdown",
        "all.md",
    ];
    two.compare(&flags, &["sleep 0.06"]).expect(0);
    let read = |name: &str| fs::read_to_string(two.site.work().join(name)).unwrap();
    let check = || {
        let json: Value = serde_json::from_str(&read("all.json")).unwrap();
        assert!(json["schema"].is_number(), "{json:#}");
        let text = json.to_string();
        assert!(text.contains("\"verdict\"") && text.contains("\"seed\""), "{json:#}");
        let csv = read("all.csv");
        assert_eq!(csv.lines().count(), 1 + 8, "{csv}");
        // The workload's name has no comma, so that the fields can be split here.
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
        let column = |name: &str| rows[0].iter().position(|head| *head == name).unwrap();
        for (row, record) in rows[1..].iter().zip(two.site.records()) {
            let run_ns = phase(&record, "run")["elapsed_ns"].to_string();
            assert_eq!(row[column("run_ns")], run_ns, "{csv}");
            assert_eq!(row[column("run")], record["trial"].to_string());
            assert_eq!(row[column("contender")], record["contender"]["label"]);
            assert_eq!(row[column("warmup")], (record["warmup"] == true).to_string());
        }
        let markdown = read("all.md");
        for label in ["a", "b"] {
            let row = markdown.lines().find(|line| line.starts_with(&format!("| {label} | ")));
            let cells = row.unwrap_or_else(|| panic!("no row of {label}: {markdown}"));
            assert!(cells.contains(" ms (") && cells.ends_with('|'), "{cells}");
        }
        assert!(markdown.contains("| baseline |"), "{markdown}");
    };
    check();
    for name in ["all.json", "all.csv", "all.md"] {
        fs::remove_file(two.site.work().join(name)).unwrap();
    }
    let mut report = vec!["report", "result"];
    report.extend(&flags[4..]);
    two.site.run(&report).expect(0);
    check();
}

#[test]
fn where_there_is_no_live_line_each_block_begins_with_what_is_left() {
    let two = Two::new();
    let told = |flags: &[&str]| {
        let ran = two.compare(flags, &["sleep 0.06"]).expect(0);
        let is_outlook = |line: &&str| line.contains("round") && line.contains(" left");
        let lines = ran.stderr.lines().filter(is_outlook);
        lines.map(str::to_string).collect::<Vec<String>>()
    };
    let lines = told(&["--runs", "3"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "round 1 of 3; the time left is known after the first round");
    assert!(lines[1].starts_with("round 2 of 3, about "), "{lines:?}");
    assert!(lines[2].starts_with("round 3 of 3, about "), "{lines:?}");
    assert!(lines[2].ends_with("s left"), "{lines:?}");
    let flags = ["--runs", "1", "--warmup", "1", "--budget", "10m", "--out", "other"];
    let lines = told(&flags);
    assert!(lines[0].starts_with("warm-up round, at most "), "{lines:?}");
    assert!(lines[1].starts_with("round 1 of 1, about "), "{lines:?}");
}

/// Of a workload with figures of its own the lines show the one that is compared, not the wall time.
#[test]
fn lines_show_the_figure_that_is_compared() {
    let two = Two::new();
    let arguments =
        ["compare", &two.contenders[0], "--tree", "synthetic:40", "--runs", "1", "--out", "result"];
    let ran = two.site.run(&arguments).expect(0);
    let record = &two.site.records()[0];
    let figure = &record["load"]["metrics"][0];
    let line = ran.stderr.lines().find(|line| line.starts_with("round 1: a ")).unwrap();
    let name = figure["name"].as_str().unwrap();
    assert!(name != "time" && line.contains(name), "no '{name}' in '{line}'");
    // A command has none but its time.
    let other = Two::new();
    let ran = other.compare(&[], &["sleep 0.06"]).expect(0);
    assert!(
        ran.stderr.lines().any(|line| line.starts_with("round 1: a ") && line.ends_with(" ms"))
    );
}

#[test]
fn a_misspelt_parameter_of_a_command_is_remarked_on() {
    let two = Two::new();
    let flags = ["-L", "jobs", "1,2"];
    let ran = two.compare(&flags, &["sleep 0.0{jobs}; echo {job} '{print}' ${HOME}"]).expect(0);
    let notes: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("Note: ")).collect();
    assert_eq!(notes.len(), 2, "{}", ran.stderr);
    assert!(notes[0].contains("'job'") && notes[0].contains("did you mean 'jobs'?"), "{notes:?}");
    assert!(notes[1].contains("'print'"), "{notes:?}");
}

#[test]
fn a_report_is_the_same_however_often_it_is_printed() {
    let two = Two::new();
    let first = two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0).stdout;
    for _ in 0..2 {
        assert_eq!(two.site.run(&["report", "result"]).expect(0).stdout, first);
    }
    // Read only: the directory may be anybody's.
    let before = fs::read(two.site.work().join("result/comparisons.json")).unwrap();
    two.site.run(&["report", "result"]).expect(0);
    assert_eq!(fs::read(two.site.work().join("result/comparisons.json")).unwrap(), before);
}

#[test]
fn every_run_ends_with_a_page_and_names_it_last() {
    let two = Two::new();
    let ran = two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0);
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert_eq!(last, "report: result/report.html", "{}", ran.stderr);
    let path = two.site.work().join("result/report.html");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.contains("sleep 0.06") && page.ends_with("</html>\n"));
    // The same page can be made again, and of nothing but the result.
    two.site.run(&["report", "result", "--html", "again.html"]).expect(0);
    assert_eq!(fs::read_to_string(two.site.work().join("again.html")).unwrap(), page);
    two.site.run(&["report", "result", "--html", "no/such.html"]).expect(2).says(&["no/such.html"]);
}

#[test]
fn two_results_stand_side_by_side() {
    let two = Two::new();
    two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0);
    two.compare(&["--runs", "3", "--out", "later"], &["sleep 0.06"]).expect(0);
    let ran = two
        .site
        .run(&["report", "result", "later", "--html", "both.html", "--svg", "pictures"])
        .expect(0);
    for said in ["A: result", "B: later", "cost relative to A", "not interleaved", "sleep 0.06"] {
        assert!(ran.stdout.contains(said), "no '{said}' in {}", ran.stdout);
    }
    assert!(fs::read_to_string(two.site.work().join("both.html")).unwrap().contains("B against A"));
    assert!(fs::read_dir(two.site.work().join("pictures")).unwrap().count() >= 2);
    let files = ["--export-csv", "x.csv", "--export-markdown", "x.md", "--export-json", "x.json"];
    two.site.run(&[&["report", "result", "later"][..], &files].concat()).expect(0);
    let read = |name: &str| fs::read_to_string(two.site.work().join(name)).unwrap();
    let csv = read("x.csv");
    assert!(csv.starts_with("workload,metric,unit,contender,result,rounds,median,cost,"), "{csv}");
    assert!(csv.contains(",A,3,") && csv.contains(",B,3,"), "{csv}");
    assert!(read("x.md").contains("| B |"), "{}", read("x.md"));
    let json: Value = serde_json::from_str(&read("x.json")).unwrap();
    assert!(json["comparisons"][1]["cost_low"].is_number(), "{json:#}");
    // The same two over time.
    let files = ["--export-bencher", "bmf.json", "--export-otava", "otava.csv"];
    let ran = two.site.run(&[&["history", "."][..], &files].concat()).expect(0);
    assert!(ran.stdout.contains("2 results") && ran.stdout.contains("No change"), "{}", ran.stdout);
    let bmf: Value = serde_json::from_str(&read("bmf.json")).unwrap();
    let measures = bmf.as_object().unwrap().values().next().unwrap();
    assert!(measures["time"]["value"].as_f64().unwrap() > 0.0, "{bmf}");
    let otava = read("otava.csv");
    assert!(otava.starts_with("time,result,kernel,") && otava.lines().count() == 3, "{otava}");
}

#[test]
fn there_is_no_escape_code_where_there_is_no_terminal() {
    let two = Two::new();
    let ran = two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0);
    assert!(!(ran.stdout + &ran.stderr).contains(ESCAPE));
    // Asked for by name it is there; a style of no colour has none.
    for (style, coloured) in
        [("color", true), ("full", true), ("nocolor", false), ("basic", false), ("none", false)]
    {
        let shown = two.site.run(&["report", "result", "--style", style]).expect(0).stdout;
        assert_eq!(shown.contains(ESCAPE), coloured, "--style {style}");
    }
    // NO_COLOR is for programs that were not asked.
    let mut command = two.site.kurabe(&["report", "result", "--style", "color"]);
    command.env("NO_COLOR", "1");
    assert!(two.site.finish(command).expect(0).stdout.contains(ESCAPE));
    // Silence is silence, and the table is there all the same.
    let _ = fs::remove_dir_all(two.site.work().join("result"));
    let ran = two.compare(&["--style", "none"], &["sleep 0.06"]).expect(0);
    assert_eq!(ran.stderr, "");
    let row = ran.stdout.lines().find(|line| line.trim_start().starts_with("a  "));
    assert!(row.is_some_and(|row| row.contains("baseline")), "{}", ran.stdout);
}

/// script(1) gives the command a terminal and copies what it shows.
fn on_a_terminal(two: &Two, line: &str, no_color: Option<&str>) -> String {
    let mut command = two.site.program("script");
    command.args(["-qec", line, "/dev/null"]).env("TERM", "xterm-256color");
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    two.site.finish(command).expect(0).stdout
}

#[test]
fn a_terminal_has_colour_unless_it_is_not_wanted() {
    if std::process::Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: script(1), of the package bsdutils, is not installed");
        return;
    }
    let two = Two::new();
    two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0);
    let line = format!("{} report result", harness::KURABE);
    assert!(on_a_terminal(&two, &line, None).contains(ESCAPE));
    assert!(!on_a_terminal(&two, &line, Some("1")).contains(ESCAPE));
    // no-color.org: an empty value is none.
    assert!(on_a_terminal(&two, &line, Some("")).contains(ESCAPE));
    assert!(!on_a_terminal(&two, &format!("{line} | cat"), None).contains(ESCAPE));
    // The live line goes to the terminal, and what stays says what came out.
    let line = format!(
        "{} compare '{}' '{}' --runs 2 --out live --idle-wait 200ms -- 'sleep 0.3'",
        harness::KURABE,
        two.contenders[0],
        two.contenders[1]
    );
    let shown = on_a_terminal(&two, &line, None);
    for text in ["round 1, 1/4", "round 2, 4/4", ": run", "left"] {
        assert!(shown.contains(text), "no '{text}' in {shown}");
    }
}

#[test]
fn a_reader_that_has_left_is_no_failure_and_a_full_disk_is() {
    let two = Two::new();
    two.compare(&[], &["sleep 0.06"]).expect(0);
    for arguments in [
        &["report", "result"][..],
        &["completions", "bash"],
        &["man"],
        &["file-systems"],
        &["doctor"],
        &["--help"],
    ] {
        let mut command = two.site.kurabe(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(Stdio::from(writer));
        let ran = two.site.finish(command);
        // doctor may have found something to say.
        let code = if arguments == ["doctor"] { ran.code } else { Some(0) };
        assert!(ran.code == code && ran.code < Some(2), "{arguments:?}: {ran:#?}");
        assert!(!ran.stderr.contains("panicked"), "{arguments:?}: {ran:#?}");
        assert!(!ran.stderr.contains("Broken pipe"), "{arguments:?}: {ran:#?}");
        if arguments == ["--help"] {
            continue;
        }
        let mut command = two.site.kurabe(arguments);
        command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        two.site.finish(command).expect(1).says(&["standard output: No space left on device"]);
    }
}

#[test]
fn gates_are_judged_of_a_result_and_of_one_against_another() {
    let two = Two::new();
    two.compare(&["--runs", "3"], &["sleep 0.06"]).expect(0);
    two.site.copy_result("copy");
    for results in [&["result"][..], &["result", "copy"]] {
        let judge =
            |gate: &str| two.site.run(&[&["report"], results, &["--gate", gate][..]].concat());
        let held = judge("b <= 1000").expect(0);
        assert!(held.stdout.contains("PASS b: cost "), "{}", held.stdout);
        assert!(judge("b >= 1000").expect(3).stdout.contains("FAIL"));
        let untried = judge("b: durable").expect(4);
        assert!(untried.stdout.contains("'b: durable'"), "{}", untried.stdout);
        judge("c <= 1").expect(2).says(&["--gate: ", "no contender is labelled 'c'"]);
        judge("b <== 1").expect(2).says(&["--gate: "]);
    }
}

#[test]
fn man_pages_and_completions_are_generated() {
    let site = Site::new();
    let page = site.run(&["man"]).expect(0).stdout;
    assert!(page.contains(".TH kurabe 1") && page.contains("compare"), "{page}");
    site.run(&["man", "pages"]).expect(0);
    for (name, text) in [
        ("kurabe.1", "compare"),
        ("kurabe-compare.1", "parameter\\-list"),
        ("kurabe-run.1", "study"),
        ("kurabe-resume.1", "directory"),
        ("kurabe-report.1", "export"),
        ("kurabe-clean.1", "killed"),
        ("kurabe-doctor.1", "machine"),
    ] {
        let page = fs::read_to_string(site.work().join("pages").join(name)).unwrap();
        assert!(page.to_lowercase().contains(text), "no '{text}' in {name}: {page}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = site.run(&["completions", shell]).expect(0).stdout;
        assert!(text.contains("parameter-list") && text.contains("file-systems"), "{shell}");
    }
    site.run(&["completions", "tcsh"]).expect(2).says(&["tcsh", "bash"]);
    // What the shell itself makes of it.
    let mut bash = site.program("bash");
    let line = format!("source <({} completions bash); complete -p kurabe", harness::KURABE);
    bash.args(["-c", &line]);
    assert!(site.finish(bash).expect(0).stdout.contains("_kurabe"));
}

#[test]
fn help_names_every_exit_code_and_the_version_is_that_of_the_package() {
    let site = Site::new();
    let version = site.run(&["--version"]).expect(0).stdout;
    assert_eq!(version, format!("kurabe {}\n", env!("CARGO_PKG_VERSION")));
    let help = site.run(&["--help"]).expect(0).stdout;
    let codes = help.split("Exit codes:\n").nth(1).unwrap_or_else(|| panic!("{help}"));
    let codes: Vec<&str> =
        codes.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "129,"], "{help}");
    for action in ["compare", "run", "resume", "report", "doctor", "file-systems", "clean"] {
        let help = site.run(&[action, "--help"]).expect(0).stdout;
        assert!(help.contains(&format!("Usage: kurabe {action}")), "{help}");
        // A result that is there has its place.
        let has_out = help.contains("--out");
        assert_eq!(has_out, ["compare", "run"].contains(&action), "{help}");
    }
    site.run(&[]).expect(2).says(&["Usage: kurabe"]);
    let systems = site.run(&["file-systems"]).expect(0).stdout;
    for name in ["ext2", "ext3", "ext4", "xfs", "btrfs", "dir"] {
        assert!(systems.lines().any(|line| line.starts_with(name)), "{systems}");
    }
    let doctor = site.run(&["doctor"]).expect(0).stdout;
    for name in ["Linux ", "loop devices", "ext4 ", "zfs-fuse"] {
        assert!(doctor.contains(name), "no '{name}' in {doctor}");
    }
    let clean = site.run(&["clean"]).expect(0).stdout;
    assert!(clean.contains("nothing was left behind"), "{clean}");
    site.expect_untouched(&[]);
}

/// Results of November 2026 with two trials each, whose words and forms have changed since; only
/// names of directories were taken out of them.
#[test]
fn results_of_an_older_kurabe_open() {
    let site = Site::new();
    let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/older");
    for (name, expected) in [
        (
            "dbench",
            [
                "xfs 180 MiB/s 2.94 inconclusive",
                "throughput 530 MiB/s 180 MiB/s ×2.94 ?",
                "NTCreateX ext4 35.1k 4.487 µs 6.199 µs 19.95 µs 23.14 µs",
            ],
        ),
        (
            "matrix",
            [
                "xfs 61.2k/s 0.975 inconclusive",
                "randrw-70-30-psync-1-4k 10.7k/s ×6.16 ? 66.1k/s",
                "randread-psync-1-4k-read xfs 30.3k 12.36 µs 14.79 µs",
            ],
        ),
    ] {
        let page = site.work().join(format!("{name}.html"));
        let (result, page) = (older.join(name), page.to_str().unwrap());
        let arguments = ["report", result.to_str().unwrap(), "--verbose", "--html", page];
        let ran = site.run(&arguments).expect(0);
        let shown = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in expected {
            assert!(shown.contains(part), "no '{part}' in {}", ran.stdout);
        }
    }
}
