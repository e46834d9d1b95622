//! The bundled studies from the outside: found, printed, changed, and one of them carried out whole.

mod harness;

use std::fs;
use std::path::Path;

use harness::{Random, Site, root};
use lab::judgement::Measurements;
use lab::plan::Plan;
use lab::record::{Outcome, Phase, PhaseRecord, Record};
use lab::result::{ResultWriter, StoredResult};
use lab::study::{Catalogue, LeftOut};
use lab::study_file;
use lab::workload::{Metric, Unit, WorkloadReport};
use publications::measure;
use workloads::kind::KINDS;

const BUNDLED: [&str; 10] = [
    "cannyls",
    "operating-systems",
    "flash-overhead",
    "dbench",
    "durable-puts",
    "buffered-puts",
    "databases",
    "cluster",
    "etcd",
    "stacks",
];

#[test]
fn a_bundled_study_can_be_printed_saved_and_run_from_its_file() {
    let site = Site::new();
    let list = site.run(&["studies"]).expect(0).stdout;
    for name in BUNDLED {
        assert!(list.contains(&format!("\n{name}\n")) || list.starts_with(name), "{list}");
        let file = site.run(&["studies", name]).expect(0).stdout;
        let path = site.work().join("mine.toml");
        fs::write(&path, &file).unwrap();
        let full = site.run(&["run", "mine.toml", "--print-study"]).expect(0).stdout;
        let same = site.run(&["run", name, "--full", "--print-study"]).expect(0).stdout;
        assert_eq!(full, same, "{name}");
        let quick = site.run(&["run", name, "--print-study"]).expect(0).stdout;
        let same = site.run(&["run", "mine.toml", "--quick", "--print-study"]).expect(0).stdout;
        assert_eq!(quick, same, "{name}");
        assert!(quick != full && !quick.contains("[quick]"), "{quick}");
        fs::remove_file(path).unwrap();
    }
    site.run(&["studies", "canyls"]).expect(2).says(&["'canyls'", "did you mean 'cannyls'"]);
    site.run(&["run", "canyls"]).expect(2).says(&["no study file canyls", "'cannyls'"]);
    site.run(&["run", "cannyls", "--scale", "0"]).expect(2).says(&["--scale", "0.01"]);
    site.run(&["run", "cannyls", "--full", "--quick"]).expect(2).says(&["--full", "--quick"]);
    site.expect_untouched(&[]);
}

#[test]
fn the_studies_among_the_examples_can_be_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let site = Site::new();
    for name in ["lump-aged.toml", "disks/ceiling.toml"] {
        let path = examples.join(name).display().to_string();
        site.run(&["run", &path, "--print-study"]).expect(0);
    }
}

#[test]
fn a_scaled_study_says_so_in_what_it_prints() {
    let site = Site::new();
    let scaled = site.run(&["run", "cannyls", "--scale", "0.01", "--print-study"]).expect(0).stdout;
    assert!(scaled.contains("scale = 0.01") && scaled.contains("device = \"loop:1G\""), "{scaled}");
    let device = ["run", "dbench", "--device", "mem:1G", "--print-study"];
    let given = site.run(&device).expect(0).stdout;
    assert!(given.contains("time = \"600s\"") && given.contains("mem:1G"), "{given}");
}

#[test]
fn a_plan_is_of_what_this_machine_can_carry_out() {
    let site = Site::new();
    let text = "contenders = ['dir:/tmp', 'zfs']\nleave-out-missing = true\n\
                [[workload]]\nname = 'gone'\ncommand = ['/no/such/program']\n\
                [[workload]]\nname = 'there'\ncommand = 'true'\n";
    fs::write(site.work().join("s.toml"), text).unwrap();
    let ran = site.run(&["run", "s.toml", "--print-plan"]).expect(0);
    let ran = ran.says(&["left out here: zfs: ", "left out here: gone: "]);
    assert!(ran.stdout.starts_with("there\n") && !ran.stdout.contains("gone\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("there is one contender"), "{}", ran.stdout);
}

#[test]
fn a_quick_profile_in_guests_has_its_fewest_blocks_and_no_budget_of_this_machine() {
    let site = Site::new();
    let quick = |flags: &[&str]| {
        let words = [&["run", "dbench", "--print-study"], flags].concat();
        let text = site.run(&words).expect(0).stdout;
        text.lines().take_while(|line| *line != "[[workload]]").collect::<Vec<_>>().join("\n")
    };
    let here = quick(&[]);
    assert!(here.contains("\nbudget = ") && here.contains("\nmin-runs = 3\n"), "{here}");
    let guests = quick(&["--on", "debian"]);
    assert!(!guests.contains("budget") && guests.contains("\nrounds = 3\n"), "{guests}");
    let asked = quick(&["--on", "debian", "--budget", "10m"]);
    assert!(asked.contains("\nbudget = \"10m\"\n") && asked.contains("\nmin-runs = 3"), "{asked}");
    let more = quick(&["--on", "debian", "--min-runs", "4"]);
    assert!(!more.contains("budget") && more.contains("\nmin-runs = 4\n"), "{more}");
}

#[test]
fn a_figure_that_no_workload_reports_is_refused_at_its_line() {
    let site = Site::new();
    let text = "contenders = ['dir:/tmp']\n[[workload]]\nname = 'load'\ncommand = 'true'\n\
                [[published]]\ntitle = 't'\nhere = { workload = 'load', metric = 'tine' }\n\
                columns = [{ head = 'a', here = { contender = 'dir:/tmp' } }]\n\
                rows = [\n  { head = 'r', cells = [1] },\n]\n";
    fs::write(site.work().join("s.toml"), text).unwrap();
    site.run(&["run", "s.toml"]).expect(2).says(&["s.toml:10:", "'tine'", "did you mean 'time'"]);
    // Nor is it printed, and a key that a table has not is refused where it stands.
    site.run(&["run", "s.toml", "--print-study"]).expect(2).says(&["s.toml:10:", "'tine'"]);
    fs::write(site.work().join("s.toml"), text.replace("cells =", "sells =")).unwrap();
    site.run(&["run", "s.toml"]).expect(2).says(&["s.toml:10:", "`sells`", "`cells`"]);
    site.expect_untouched(&["s.toml"]);
}

/// One block of the smallest programs, in memory: what is compared is nothing, but every published
/// number must have something measured beside it.
#[test]
fn every_number_of_a_study_gets_its_counterpart() {
    if !root() {
        return;
    }
    let site = Site::new();
    let ran = site.run(&[
        "run",
        "cannyls",
        "--scale",
        "0.0004",
        "--device",
        "mem:512M",
        "--runs",
        "1",
        "--budget",
        "5m",
        "--idle-wait",
        "200ms",
        "--out",
        "result",
        "--export-markdown",
        "tables.md",
    ]);
    let ran = ran.expect(0).says(&["bundled study cannyls", "scaled by 0.0004"]);
    site.expect_nothing_left();
    let stored = StoredResult::read(&site.work().join("result")).unwrap();
    let (plan, records) = (&stored.plan, &stored.records);
    let analysis = lab::judgement::analyse(plan, records, None);
    let result = Measurements { plan, records, analysis: &analysis };
    let tables = publications::read(&plan.study).unwrap().tables;
    let mut measured = 0;
    for cell in tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells) {
        for reference in &cell.here {
            // minfs is built beside kurabe, but not by this test.
            let names = [Some(&reference.contender), reference.baseline.as_ref()];
            let left_out = |left: &LeftOut| names.contains(&Some(&left.name));
            if plan.study.left_out.iter().any(left_out) {
                continue;
            }
            let found = measure(result, reference);
            assert!(found.is_some_and(|found| found.value > 0.0), "{reference:?}: {found:?}");
            measured += 1;
        }
    }
    assert!(measured > 100, "{measured}");
    let markdown = fs::read_to_string(site.work().join("tables.md")).unwrap();
    for part in
        ["194.82", "1.65", "4.213549", "here", "シーケンシャルライト1", "the store's file lies"]
    {
        assert!(markdown.contains(part), "no '{part}' in:\n{markdown}");
    }
    let again = site.run(&["report", "result"]).expect(0).stdout;
    for text in [&ran.stdout, &again] {
        assert!(text.contains("9 published tables next to what was measured"), "{text}");
        assert!(text.contains("Inconclusive here: "), "{text}");
    }
    // A line for each trial goes to standard error where it is no terminal.
    let lines = ran.stdout.lines().count();
    assert!(lines <= LINES_MAX, "{lines} lines:\n{}", ran.stdout);
}

/// What a terminal shows of a study without being asked for more.
const LINES_MAX: usize = 60;

/// Records made by hand, of contenders that vary as much as they differ, so that every kind of verdict
/// is there.
#[test]
fn no_bundled_study_is_longer_than_a_page_or_two_of_a_terminal() {
    let site = Site::new();
    let mut random = Random(1);
    for name in BUNDLED {
        let text = site.run(&["run", name, "--print-study"]).expect(0).stdout;
        let file_systems = trial::filesystem::known();
        let known = Catalogue { file_systems: &file_systems, kinds: KINDS };
        let (_, study) = study_file::load(Path::new("study.toml"), &text, known).unwrap();
        let labels: Vec<String> = study.contenders.iter().map(|one| one.label.clone()).collect();
        let plan = Plan::new(study, 1);
        let mut writer = ResultWriter::create(&site.work().join(name), &plan, &text).unwrap();
        for block in plan.blocks.iter().take(5 * plan.study.workloads.len()) {
            for trial in &block.trials {
                let spec = plan.spec(block, *trial, None, "/nowhere".into());
                let mut record = Record::begun(&spec, 1);
                let place = labels.iter().position(|label| *label == spec.contender.label).unwrap();
                let noise = (random.next() % 1000) as f64 / 1000.0;
                let value = 1e9 * (1.0 + 0.3 * place as f64 + noise * (place % 3) as f64);
                record.outcome = Outcome::Completed;
                record.phases = [Phase::Run, Phase::Sync]
                    .map(|phase| PhaseRecord {
                        phase,
                        elapsed_ns: value as u64,
                        device: None,
                        machine_cpu_ns: None,
                    })
                    .into();
                let metric = |name| Metric::new(name, value, Unit::OperationsPerSecond);
                let metrics = spec.workload.load.parsed().description().metrics;
                let metrics = metrics.into_iter().map(metric).collect();
                record.load = Some(WorkloadReport { metrics, ..WorkloadReport::default() });
                writer.append(record).unwrap();
            }
        }
        drop(writer);
        let shown = site.run(&["report", name]).expect(0);
        let lines = shown.stdout.lines().count() + shown.stderr.lines().count();
        assert!((10..=LINES_MAX).contains(&lines), "{name}: {lines} lines:\n{}", shown.stdout);
    }
}
