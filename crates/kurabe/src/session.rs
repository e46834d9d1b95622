//! From what the user asked to a sitting: resolves the study, refuses what cannot be done before
//! anything is touched, and opens the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::plan::Plan;
use lab::result::{ResultWriter, STUDY_FILE, StoredResult};
use lab::study::{Study, StudyError, StudyText};
use lab::study_file;
use serde_json::Value;
use trial::filesystem;

use crate::exit::{self, Failure};
use crate::flags::{CompareArgs, ResumeArgs, RunArgs, ShowArgs, Style, flag_of_field, load_flags};
use crate::preflight::{device_request, preflight, read_files, room};
use crate::presentation::Presentation;
use crate::sitting::Sitting;
use crate::studies;
use crate::terminal;

/// `kurabe compare`.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let text = args.study_text();
    if !text.workloads.iter().any(|workload| workload.names_a_load()) {
        return Err(Failure::refused(format!(
            "COMMAND: is missing; give a command after '--', or another load: {}",
            load_flags()
        )));
    }
    let study = text.resolve(&filesystem::names()).map_err(in_flags)?;
    if args.print_study {
        check_options(&study)?;
        terminal::print(&study_file::print(&text));
        return Ok(exit::OK);
    }
    if args.print_plan {
        return print_plan(study);
    }
    begin(&text, study)
}

/// An error of the study, for somebody who typed flags.
fn in_flags(error: StudyError) -> Failure {
    Failure::refused(format!("{}: {}", flag_of_field(&error.field), error.problem))
}

/// Refuses options that a tool would refuse later, so that nothing is printed that cannot run.
fn check_options(study: &Study) -> Result<(), Failure> {
    for workload in &study.workloads {
        trial::workload::check_options(&workload.load).map_err(|problem| {
            Failure::refused(format!("workload '{}': {problem}", workload.name))
        })?;
    }
    Ok(())
}

/// What the loads are going to do, without doing it.
fn print_plan(mut study: Study) -> Result<u8, Failure> {
    read_files(&mut study)?;
    check_options(&study)?;
    let room = room(&study, &device_request(&study)?);
    for workload in &study.workloads {
        let refused =
            |problem| Failure::refused(format!("workload '{}': {problem}", workload.name));
        let text = trial::workload::plan_text(&workload.load, room.as_ref()).map_err(refused)?;
        terminal::print(&format!("{}\n{text}\n", workload.name));
    }
    Ok(exit::OK)
}

/// `kurabe run`.
pub fn run_file(args: &RunArgs) -> Result<u8, Failure> {
    let source = studies::open(&args.study_file)?;
    let path = &source.path;
    let (mut text, whole) =
        study_file::load(path, &source.text, &filesystem::names()).map_err(Failure::refused)?;
    studies::check_figures(&whole)
        .map_err(|error| Failure::refused(study_file::locate(path, &source.text, &error)))?;
    let profile = source.profile(args, &mut text).map_err(in_flags)?;
    args.study.apply(&mut text);
    args.present.apply(&mut text);
    // What was wrong in the file itself was found above; what is wrong now came from a flag.
    let mut study = text.resolve(&filesystem::names()).map_err(in_flags)?;
    study.reduced = profile.reduces(&whole, &study);
    if args.print_study {
        check_options(&study)?;
        terminal::print(&study_file::print(&text));
        return Ok(exit::OK);
    }
    if args.print_plan {
        return print_plan(study);
    }
    if args.present.show.style != Some(Style::None) {
        terminal::note(&profile.words);
    }
    begin(&text, study)
}

/// `kurabe resume`.
pub fn resume(args: &ResumeArgs) -> Result<u8, Failure> {
    // Nobody else may write any more when the records are read.
    let writer = ResultWriter::resume(&args.directory).map_err(Failure::refused)?;
    let stored = StoredResult::read(&args.directory).map_err(Failure::refused)?;
    for damage in &stored.damage {
        terminal::note(&format!("kurabe: {damage}"));
    }
    let mut present = args.present.clone();
    let asked = asked_before(&args.directory).unwrap_or_default();
    present.export_json = present.export_json.or(asked.export_json);
    present.export_csv = present.export_csv.or(asked.export_csv);
    present.export_markdown = present.export_markdown.or(asked.export_markdown);
    let presentation = Presentation::new(&present, asked.style.as_deref())?;
    preflight(&stored.plan.study)?;
    let sitting = Sitting {
        spent_before: Duration::from_nanos(stored.spent_ns()),
        facts: stored.facts.unwrap_or(Value::Null),
        plan: stored.plan,
        records: stored.records,
        writer,
        presentation,
        remarks: Vec::new(),
    };
    sitting.carry_out()
}

/// What the study file in a result asks for besides the plan: the exports and the style.
fn asked_before(directory: &Path) -> Option<StudyText> {
    let path = directory.join(STUDY_FILE);
    let text = fs::read_to_string(&path).ok()?;
    study_file::parse(&path, &text).ok()
}

fn begin(text: &StudyText, mut study: Study) -> Result<u8, Failure> {
    studies::leave_out_missing(&mut study)?;
    read_files(&mut study)?;
    let show = ShowArgs {
        style: None,
        export_json: text.export_json.clone(),
        export_csv: text.export_csv.clone(),
        export_markdown: text.export_markdown.clone(),
    };
    let presentation = Presentation::new(&show, text.style.as_deref())?;
    preflight(&study)?;
    // Short enough to be typed again by hand.
    let seed = study.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let out = text.out.clone().unwrap_or_else(|| default_directory(&study.name));
    let plan = Plan::new(study, seed);
    let writer =
        ResultWriter::create(&out, &plan, &study_file::print(text)).map_err(Failure::refused)?;
    let sitting = Sitting {
        plan,
        records: Vec::new(),
        spent_before: Duration::ZERO,
        facts: Value::Null,
        writer,
        presentation,
        remarks: text.doubts(),
    };
    sitting.carry_out()
}

fn default_directory(name: &str) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let first = PathBuf::from("kurabe-results").join(format!("{name}-{now}"));
    // Two studies may begin in one second.
    let numbered = |number: u32| PathBuf::from(format!("{}-{number}", first.display()));
    let all = std::iter::once(first.clone()).chain((2..).map(numbered));
    { all }.find(|path| !path.exists()).unwrap_or(first)
}
