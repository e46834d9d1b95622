//! What the validation of a study takes and refuses.

use super::*;
use crate::contender::Known;
use crate::spec::CommandLine;

const KNOWN: &[Known] = &Known::named(["ext4", "xfs", "btrfs", "dir"]);

fn text(contenders: &[&str], command: &str) -> StudyText {
    StudyText {
        contenders: contenders.iter().map(|text| text.to_string()).collect(),
        workloads: vec![WorkloadText {
            command: Some(CommandText::Line(command.into())),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fails(text: &StudyText) -> String {
    text.resolve(KNOWN).unwrap_err().to_string()
}

#[test]
fn defaults_are_filled_in() {
    let study = text(&["ext4", "xfs"], "tar xf x.tar").resolve(KNOWN).unwrap();
    assert_eq!(study.name, "tar");
    assert_eq!(study.device, "loop:8G");
    assert_eq!((study.blocks_min, study.blocks_max), (5, 20));
    assert_eq!(study.same_within, 0.05);
    assert_eq!(study.baseline, 0);
    assert_eq!(study.workloads[0].name, "tar xf x.tar");
    let command = study.workloads[0].load.command();
    assert!(matches!(command, Some(CommandLine::Shell { shell, .. }) if shell == ["sh"]));
}

/// Whoever runs a study again looks at these.
#[test]
fn all_commands_of_a_study_are_listed() {
    let mut written = text(&["ext4"], "tar xf x.tar");
    let line = |text: &str| Some(CommandText::Line(text.into()));
    let workload = &mut written.workloads[0];
    (workload.setup, workload.prepare) = (line("a"), line("b"));
    (workload.cleanup, workload.check) = (line("c"), line("d"));
    (written.age, written.then) = (Some("e".into()), Some("f".into()));
    let commands = written.resolve(KNOWN).unwrap().commands();
    let lines: Vec<String> = commands.iter().map(|(_, line)| line.words()[2].clone()).collect();
    assert_eq!(lines, ["e", "f", "a", "b", "tar xf x.tar", "c", "d"]);
    assert_eq!(commands[0].0, "the command of --age");
    assert_eq!(commands[2].0, "workload 'tar xf x.tar': its setup");
}

#[test]
fn words_that_a_shell_parted_are_told_from_mistyped_names() {
    for contenders in [["ext4", "@", "noatime"], ["ext4", "32768", "xfs"]] {
        let said = fails(&text(&contenders, "true"));
        assert!(said.contains("in quotes, as in 'ext4 -i 32768 @ noatime'"), "{said}");
    }
    for contenders in [["ext4", "xsf"], ["hammer", "xfs"]] {
        let said = fails(&text(&contenders, "true"));
        assert!(!said.contains("in quotes"), "{said}");
    }
}

#[test]
fn errors_name_field_and_value() {
    let base = || text(&["ext4", "xfs"], "true");
    assert!(
        fails(&StudyText { baseline: Some("ext".into()), ..base() })
            .contains("did you mean 'ext4'")
    );
    assert!(fails(&StudyText { device: Some("loop:8X".into()), ..base() }).contains("'8X'"));
    assert!(
        fails(&StudyText { output: Some("/etc/x".into()), ..base() }).contains("--output FILE")
    );
    assert!(fails(&StudyText { cache: Some("tepid".into()), ..base() }).contains("tepid"));
    assert!(fails(&StudyText { budget: Some("soon".into()), ..base() }).contains("budget: 'soon'"));
    assert!(fails(&StudyText { runs: Some(0), ..base() }).starts_with("runs:"));
    assert!(
        fails(&StudyText { min_runs: Some(9), max_runs: Some(3), ..base() }).contains("max-runs 3")
    );
    assert!(fails(&text(&["ext4", "ext4"], "true")).contains("'ext4' is taken"));
    assert!(fails(&text(&["ext4", "ext5"], "true")).starts_with("contenders[1]:"));
    assert!(fails(&text(&[], "true")).starts_with("contenders:"));
    assert!(fails(&text(&["ext4"], " ")).starts_with("workload[0].command:"));
}

#[test]
fn parameters_make_workloads_or_contenders() {
    let mut study = text(&["ext4 -b {block}", "xfs"], "make -j{jobs}");
    study.parameters = BTreeMap::from([
        ("jobs".into(), vec!["1".into(), "2".into()]),
        ("block".into(), vec!["1024".into(), "4096".into()]),
    ]);
    let study = study.resolve(KNOWN).unwrap();
    let labels: Vec<_> = study.contenders.iter().map(|c| c.label.as_str()).collect();
    assert_eq!(labels, ["ext4 -b 1024", "ext4 -b 4096", "xfs"]);
    let names: Vec<_> = study.workloads.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["make -j1", "make -j2"]);
}

#[test]
fn labels_and_names_stay_unique_under_parameters() {
    let mut study = text(&["e: ext4 -b {block}"], "true {n}");
    study.workloads[0].name = Some("truth".into());
    study.parameters = BTreeMap::from([
        ("n".into(), vec!["1".into(), "2".into()]),
        ("block".into(), vec!["1024".into(), "4096".into()]),
    ]);
    let study = study.resolve(KNOWN).unwrap();
    assert_eq!(study.contenders[1].label, "e block=4096");
    assert_eq!(study.workloads[1].name, "truth n=2");
}

#[test]
fn what_a_parameter_makes_knows_its_values() {
    let mut study = text(&["ext4"], "true {n}");
    study.parameters = BTreeMap::from([("n".into(), vec!["1".into(), "2".into()])]);
    let workloads = study.resolve(KNOWN).unwrap().workloads;
    assert_eq!(workloads[1].parameters, BTreeMap::from([("n".into(), "2".into())]));
}

#[test]
fn a_misspelt_parameter_is_refused_in_a_contender_and_noted_on_in_a_command() {
    let mut study = text(&["ext4 -b {block}"], "make -j{jobs} {target} ${HOME} {} {a,b}");
    study.parameters = BTreeMap::from([("jobs".into(), vec!["1".into()])]);
    let message = fails(&study);
    assert!(message.starts_with("contenders[0]: no parameter is called 'block'"), "{message}");
    study.contenders = vec!["ext4".into()];
    study.resolve(KNOWN).unwrap();
    let notes = study.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("no parameter is called 'target'"), "{notes:?}");
    study.workloads[0].prepare = Some(CommandText::Line("echo {job}".into()));
    assert!(study.notes()[1].contains("did you mean 'jobs'?"), "{:?}", study.notes());
    // Without parameters braces are the command's own.
    assert_eq!(text(&["ext4"], "awk '{print}'").notes(), [""; 0]);
}

#[test]
fn an_unused_parameter_is_refused() {
    let mut study = text(&["ext4"], "true");
    study.parameters = BTreeMap::from([("n".into(), vec!["1".into()])]);
    assert!(fails(&study).contains("{n} occurs in no workload"));
    let mut study = text(&["ext4 -b {blok}"], "true");
    study.parameters = BTreeMap::from([("block".into(), vec!["1024".into()])]);
    assert!(fails(&study).contains("did you mean 'blok'?"), "{}", fails(&study));
}
