//! What the table of kinds makes of flags and keys, and what adding a kind takes.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use lab::contender::Known;
use lab::study::{Catalogue, Reduced, Study, StudyText, WorkloadText};
use lab::study_file;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, Describe, Description, FromKeys, KeyError, Preflight, Run, Written, options_without,
};
use vocabulary::report::{TIME_METRIC, WorkloadReport};
use vocabulary::workload::WorkloadTask;

use super::*;

const KNOWN: Catalogue<'_> =
    Catalogue { file_systems: &Known::named(["ext4", "xfs"]), kinds: KINDS };

/// A whole kind of workload: it sleeps. This, and the line of a table below, is all that one takes.
#[derive(Serialize, Deserialize)]
struct Nap {
    seconds: u32,
}

const NAP: WorkloadKind = WorkloadKind::of::<Nap>(
    "nap",
    &[WorkloadKey::load("nap", Form::Whole("SECONDS"), "Sleep for so many seconds.")],
    &[],
);

impl FromKeys for Nap {
    fn parse(written: &Written<'_>) -> Result<Nap, KeyError> {
        match written.whole("nap").unwrap_or_default() {
            0 => Err(KeyError::new("nap", "0 is no nap; give 1 or more")),
            seconds => Ok(Nap { seconds }),
        }
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let seconds = Written { keys, name: None }.whole("nap").unwrap_or_default();
        keys.insert("nap".into(), ((f64::from(seconds) * factor).ceil() as u32).into());
        Ok(())
    }
}

impl Describe for Nap {
    fn description(&self) -> Description {
        let (seconds, words) = (self.seconds.into(), format!("{} s", self.seconds));
        Description {
            metrics: vec![TIME_METRIC.into()],
            amounts: vec![Amount::new("the sleep", seconds, words)],
            settings: options_without(self, &["seconds"]),
            ..Description::default()
        }
    }

    fn plan(&self, _: Option<&Capacity>) -> Result<String, String> {
        Ok(capacity::lines(&[("sleeps", format!("{} s", self.seconds))]))
    }
}

impl Preflight for Nap {}

impl Run for Nap {
    fn run(&self, _: &WorkloadTask, _: &AtomicBool) -> Result<WorkloadReport, String> {
        std::thread::sleep(std::time::Duration::from_secs(self.seconds.into()));
        Ok(WorkloadReport::default())
    }
}

const NAPS: WorkloadKinds = WorkloadKinds(&[NAP]);

#[test]
fn a_kind_is_one_implementation_and_one_line_of_a_table() {
    let catalogue = Catalogue { file_systems: &Known::named(["ext4"]), kinds: NAPS };
    // A flag with its help, and the key that it stands for.
    let mut command = augment(Command::new("compare"), NAPS);
    let help = command.render_long_help().to_string();
    assert!(help.contains("--nap <SECONDS>") && help.contains("so many seconds"), "{help}");
    assert_eq!(names(NAPS), "--nap");
    let given = given(&command.get_matches_from(["compare", "--nap", "200"]), NAPS);
    // --print-study.
    let workloads = vec![WorkloadText { load: given, ..Default::default() }];
    let text = StudyText { contenders: vec!["ext4".into()], workloads, ..Default::default() };
    let file = study_file::print(&text);
    assert!(file.contains("[[workload]]\nnap = 200\n"), "{file}");
    let (again, whole) = study_file::load(Path::new("s"), &file, catalogue).unwrap();
    assert_eq!(again, text);
    assert_eq!(whole.workloads[0].name, "nap 200");
    assert_eq!(
        whole.workloads[0].load.parsed().plan(None).unwrap().trim_end(),
        "sleeps                200 s"
    );
    // Scaling, and what of the whole study was carried out.
    let mut scaled = text.clone();
    scaled.scale_workloads(NAPS, 0.05).unwrap();
    let here = scaled.resolve(catalogue).unwrap();
    let reduced = Reduced::between(&Study { ..whole }, &rename(&here), true, "").unwrap();
    assert_eq!(reduced.shares(&rename(&here)), "5 % of the sleep (10 s of 200 s)");
    // Errors have their place.
    let wrong = |from: &str, to: &str| {
        study_file::load(Path::new("s"), &file.replace(from, to), catalogue)
            .unwrap_err()
            .to_string()
    };
    assert!(
        wrong("200", "0").starts_with("s:4:7: workload[0].nap: 0 is no nap"),
        "{}",
        wrong("200", "0")
    );
    assert!(wrong("200", "'x'").contains("\"x\" is not a whole number"), "{}", wrong("200", "'x'"));
    assert!(wrong("nap =", "nup =").contains("did you mean 'nap'"), "{}", wrong("nap =", "nup ="));
}

/// A scaled study, its workload under the name that the whole one has.
fn rename(here: &Study) -> Study {
    let mut here = here.clone();
    here.workloads[0].name = "nap 200".into();
    here
}

#[test]
fn the_reference_in_the_documentation_is_that_of_the_table() {
    let mut reference = String::from("| key | value | what |\n| --- | --- | --- |\n");
    for (key, takers) in KINDS.keys() {
        let value = match key.form {
            Form::Switch => "`true`".into(),
            Form::Text(value) | Form::Options(value) => format!("text: {value}"),
            Form::Whole(value) => format!("number: {value}"),
            Form::Decimal(value) => format!("number: {value}"),
            Form::List(value) => format!("list of texts: {value}"),
        };
        let what = help(key, &takers).replace("--", "").replace('|', "\\|");
        reference.push_str(&format!("| `{}` | {value} | {what} |\n", key.name));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/study-file.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.contains(&reference),
        "docs/reference/study-file.md lacks this table:\n{reference}"
    );
}

const STUDY: &str = r#"
    contenders = ["ext4", "xfs"]
    device = "loop:40G@/images"
    min-runs = 5
    budget = "2h"
    [quick]
    device = "loop:2G"
    runs = 3
    budget = "2m"
    scale = 0.01
    [[workload]]
    name = "objects"
    program = "Command { 100000.times { New(256K); }; }"
    [[workload]]
    tree = "synthetic:60000"
    quick = { tree = "synthetic:30000" }
    [[workload]]
    fio = "rw=randrw bs=4k size=100m runtime=300 direct=1 filesize=50%"
    [[workload]]
    fio-matrix = true
    size = "8G"
    quick = { block-size = ["4K"], time = "50s" }
    [[workload]]
    dbench = 4
    time = "600s"
    [[workload]]
    dbench-replay = "4"
    [[workload]]
    command = "tar xf x.tar"
"#;

fn study() -> StudyText {
    study_file::parse(Path::new("s"), STUDY).unwrap()
}

#[test]
fn the_quick_profile_replaces_and_scales() {
    let text = study();
    assert_eq!(text.resolve(KNOWN).unwrap().blocks_min, 5);
    let quick = text.quickened(KINDS).unwrap();
    assert_eq!(quick.quick, None);
    assert_eq!(quick.device.as_deref(), Some("loop:2G"));
    assert_eq!((quick.runs, quick.min_runs), (Some(3), None));
    assert_eq!(quick.budget.as_deref(), Some("2m"));
    let loads = &quick.workloads;
    let expected = [
        (0, "scale", json!(0.01)),
        (1, "tree", json!("synthetic:300")),
        (2, "fio", json!("rw=randrw bs=4k size=1M runtime=3 direct=1 filesize=50%")),
        (3, "size", json!("82M")),
        (3, "block-size", json!(["4K"])),
        (3, "time", json!("500ms")),
        (4, "time", json!("6s")),
        (5, "time", json!("1s")),
    ];
    for (index, key, value) in expected {
        assert_eq!(loads[index].load[key], value, "{key} of {index}");
    }
    assert_eq!(loads[6], text.workloads[6]);
    let study = quick.resolve(KNOWN).unwrap();
    assert_eq!((study.blocks_min, study.blocks_max), (3, 3));
}

const REDUCED: &str = r#"
    contenders = ["ext4", "xfs"]
    device = "loop:40G"
    [quick]
    device = "loop:2G"
    runs = 3
    scale = 0.004
    [[workload]]
    name = "objects"
    program = "Command { 100000.times { New(256K); }; }"
    [[workload]]
    name = "more objects"
    program = "Command { 5000.times { New(4M); }; }"
    [[workload]]
    name = "tree"
    tree = "synthetic:60000"
    [[workload]]
    name = "fio"
    fio = "rw=randrw -size=1000M runtime=500"
    [[workload]]
    name = "matrix"
    fio-matrix = true
    size = "8G"
    quick = { block-size = ["4K", "64K"], time = "75s" }
    [[workload]]
    name = "dbench"
    dbench = 4
    time = "600s"
    quick = { time = "750s" }
    [[workload]]
    name = "tar"
    command = "tar xf x.tar"
"#;

fn studies() -> (Study, Study) {
    let text = study_file::parse(Path::new("s"), REDUCED).unwrap();
    let quick = text.quickened(KINDS).unwrap().resolve(KNOWN).unwrap();
    (text.resolve(KNOWN).unwrap(), quick)
}

#[test]
fn every_workload_says_what_of_it_ran() {
    let (whole, here) = studies();
    let reduced = Reduced::between(&whole, &here, true, "--full runs it all").unwrap();
    assert_eq!(reduced.device.as_deref(), Some("loop:40G"));
    assert_eq!(
        reduced.shares(&here),
        "objects and more objects: 0.4 % of the program's counts; \
         tree: 0.4 % of the files (240 of 60000); \
         fio: 0.4 % of fio's size (4M of 1000M) and 0.4 % of fio's runtime (2 s of 500 s); \
         matrix: 10 % of the time of a cell (0.3 s of 3 s), 22 % of the block sizes (2 of 9) \
         and 0.4 % of the files' size (33M of 8G); \
         dbench: 0.5 % of the counted time (3 s of 600 s); tar: all of it"
    );
    // What was left out on a machine is not spoken of; of one load no name is needed.
    let only = Study { workloads: here.workloads[5..6].to_vec(), ..here.clone() };
    assert_eq!(reduced.shares(&only), "0.5 % of the counted time (3 s of 600 s)");
    // What the profile itself leaves out is.
    let fewer = Reduced::between(&whole, &only, true, "").unwrap();
    let words = "1 of the 7 workloads, 0.5 % of the counted time (3 s of 600 s)";
    assert_eq!(fewer.shares(&only), words);
    // The whole study is reduced by nothing.
    assert_eq!(Reduced::between(&whole, &whole, false, ""), None);
}

#[test]
fn another_workload_is_not_called_all_of_it() {
    let said = |whole: &str, here: &str| {
        let study = |load: &str| {
            let text = format!("contenders = ['ext4']\n[[workload]]\nname = 'x'\n{load}");
            let text = study_file::parse(Path::new("s"), &text).unwrap();
            text.resolve(KNOWN).unwrap()
        };
        let here = study(here);
        Reduced::between(&study(whole), &here, true, "").unwrap().shares(&here)
    };
    let synthetic = "tree = 'synthetic:500'";
    assert_eq!(said("tree = '/path/linux-4.10.1.tar.xz'", synthetic), "another workload");
    assert_eq!(said("fio = 'rw=read size=1G'", "fio = 'rw=write size=1G'"), "another workload");
    assert_eq!(said("command = 'true'", "command = 'false'"), "another workload");
    // Less of it, and another pattern.
    assert_eq!(
        said("fio = 'rw=read size=1G'", "fio = 'rw=write size=256M'"),
        "25 % of fio's size (256M of 1G) and other settings besides"
    );
    assert_eq!(
        said("dbench = 4\ntime = '600s'", "dbench = 2\ntime = '60s'"),
        "10 % of the counted time (60 s of 600 s) and other settings besides"
    );
    // The same amount in other words is the same workload.
    let fio = "fio = 'rw=read size=1024M runtime=60s'";
    assert_eq!(said(fio, "fio = 'rw=read  size=1G runtime=60'"), "all of it");
    assert_eq!(said(synthetic, synthetic), "all of it");
}

#[test]
fn a_workload_is_named_by_its_file_or_by_all_its_options() {
    let name = |load: &str| {
        let text = format!("contenders = ['ext4']\n[[workload]]\n{load}");
        let text = study_file::parse(Path::new("s"), &text).unwrap();
        text.resolve(KNOWN).unwrap().workloads[0].name.clone()
    };
    let options = "--filename=/dev/vda --rw=randread";
    assert_eq!(name(&format!("fio = '{options}'")), format!("fio {options}"));
    assert_eq!(name("fio = 'filename=/dev/vda'"), "fio filename=/dev/vda");
    assert_eq!(name("tree = '/path/linux-4.10.1.tar.xz'"), "tree linux-4.10.1.tar.xz");
}

#[test]
fn the_amount_is_that_of_the_study_that_runs() {
    let (whole, here) = studies();
    let of = |study: &Study, index: usize| study.workloads[index].amount.clone();
    assert_eq!(of(&whole, 0), None);
    assert_eq!(of(&here, 0).as_deref(), Some("0.4 % of the program's counts"));
    assert_eq!(of(&here, 4).as_deref(), Some("cells of 0.3 s over 33M, 2 block sizes"));
    assert_eq!(of(&here, 5).as_deref(), Some("4 clients, 3 s counted"));
    assert_eq!(of(&here, 6), None);
}
