//! From what the user asked to a session: resolves the study, refuses what cannot be done before
//! anything is touched, and opens the result.

use std::path::Path;
use std::time::Duration;

use lab::condition::{self, Condition};
use lab::device::DeviceName;
use lab::plan::Plan;
use lab::result::{PLAN_FILE, ResultError, ResultWriter, STUDY_FILE, StoredResult, read_plan};
use lab::spec::{CommandLine, OutputTarget, Workload};
use lab::study::{Study, StudyError, StudyText};
use lab::study_file;
use serde_json::Value;
use trial::filesystem;
use trust::Refused;
use trust::text::line;
use vocabulary::check::DURABILITY;
use vocabulary::path::UserPath;
use vocabulary::suggestion::unknown;
use workloads::KINDS;

use super::Session;
use crate::environment::{self, Examined, capacity, device_request, read_files, side_by_side};
use crate::exit::{self, Failure, refused};
use crate::power_failures::durability;
use crate::presentation::{OwnAnswer, Presentation};
use crate::request::flags::{
    CompareArgs, PresentArgs, PrintArgs, ResumeArgs, RunArgs, StudyArgs, Style, flag_of_field,
};
use crate::request::{default_directory, studies, workload_flags};
use crate::terminal;

pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    compare_with(args, None)
}

/// The same, with an answer of its own.
pub fn compare_with(args: &CompareArgs, own: Option<OwnAnswer>) -> Result<u8, Failure> {
    let text = args.study_text();
    if !text.workloads.iter().any(|workload| workload.names_a_workload(KINDS)) {
        return Err(Failure::refused(format!(
            "COMMAND: is missing; give a command after '--', or another workload: {}",
            workload_flags::names(KINDS)
        )));
    }
    let study = text.resolve(studies::catalogue(&filesystem::known())).map_err(in_flags)?;
    begin(&text, study, &args.study, &args.print, &args.present, own)
}

/// An error of the study, for somebody who typed flags.
fn in_flags(error: StudyError) -> Failure {
    Failure::refused(format!("{}: {}", flag_of_field(&error.field), error.problem))
}

/// Refuses options that a tool would refuse later, so that nothing is printed that cannot run.
fn check_options(study: &Study) -> Result<(), Failure> {
    for workload in &study.workloads {
        let checked = workload.load.parsed().check_options();
        checked.map_err(refused(format_args!("workload '{}'", workload.name)))?;
    }
    Ok(())
}

/// Refuses gates on checks that nothing in the study makes.
fn check_gates(study: &Study) -> Result<(), Failure> {
    let described = study.workloads.iter().map(|workload| workload.load.parsed().description());
    let mut known: Vec<String> = described.flat_map(|described| described.checks).collect();
    known.extend(study.durability.map(|_| DURABILITY.into()));
    for gate in &study.gates {
        let Ok(Condition::Check { check, .. }) = condition::parse(gate) else { continue };
        if known.contains(&check) {
            continue;
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let problem = match check.as_str() {
            DURABILITY => "needs power cuts; ask for them by --durability".into(),
            _ if known.is_empty() => format!("nothing here checks '{check}'"),
            _ => unknown("check is called", &check, &known),
        };
        return Err(Failure::refused(format!("gate '{gate}': {problem}")));
    }
    Ok(())
}

/// What the workloads are going to do, without doing it.
fn print_plan(mut study: Study, destroy: Option<&str>) -> Result<u8, Failure> {
    environment::leave_out_missing(&mut study)?;
    for left in &study.left_out {
        terminal::note(&format!("left out here: {}: {}", left.name, left.missing.join("; ")));
    }
    read_files(&mut study)?;
    check_gates(&study)?;
    durability::check_workloads(&study)?;
    check_options(&study)?;
    let request = device_request(&study, destroy)?;
    // What is called so here is another device there.
    let exists = DeviceName::parse(&study.device).is_ok_and(|name| name.exists());
    let is_there = !study.hosts().is_empty() && exists;
    let capacity = if is_there { None } else { capacity(&study, &request) };
    for workload in &study.workloads {
        let refused =
            |problem| Failure::refused(format!("workload '{}': {problem}", workload.name));
        let plan_of = |form: &Workload| form.load.parsed().plan(capacity.as_ref());
        let plans = study.forms_of(workload).iter().map(plan_of).collect::<Result<Vec<_>, _>>();
        let mut plans = plans.map_err(refused)?;
        plans.dedup();
        let text = plans.join("\n");
        let order = side_by_side::words(&study, workload, &request);
        terminal::print(&format!("{}\ncontenders            {order}\n{text}\n", workload.name));
    }
    Ok(exit::OK)
}

/// `kurabe run` of a study.
pub fn run_file(args: &RunArgs) -> Result<u8, Failure> {
    let (text, study, words) = study_of(args)?;
    if !args.print.asked() && args.present.show.style != Some(Style::None) {
        terminal::note(&words);
    }
    begin(&text, study, &args.study, &args.print, &args.present, None)
}

/// The study of a file, with what the flags change, and which one it is, in words.
pub fn study_of(args: &RunArgs) -> Result<(StudyText, Study, String), Failure> {
    let source = studies::open(&args.study_file)?;
    let path = &source.path;
    let (mut text, whole) =
        study_file::load(path, &source.text, studies::catalogue(&filesystem::known()))
            .map_err(Failure::refused)?;
    studies::check_publication(&whole)
        .map_err(|error| Failure::refused(study_file::locate(path, &source.text, &error)))?;
    let mut profile = source.profile(args, &mut text).map_err(in_flags)?;
    args.study.apply(&mut text);
    args.present.show.apply(&mut text);
    // What was wrong in the file itself was found above; what is wrong now came from a flag.
    let resolved =
        |text: &StudyText| text.resolve(studies::catalogue(&filesystem::known())).map_err(in_flags);
    profile.fit_guests(&args.study, &resolved(&text)?, &mut text);
    let mut study = resolved(&text)?;
    study.reduced = profile.reduces(&whole, &study);
    Ok((text, study, profile.words))
}

/// The study file that equals what was asked, but for what is said on the command line alone.
pub fn file_of(text: &StudyText) -> String {
    let file = study_file::print(text);
    let exists = |device: &&str| DeviceName::parse(device).is_ok_and(|name| name.exists());
    match text.device.as_deref().filter(exists) {
        None => file,
        Some(device) => format!(
            "# Everything on {} is lost: whoever starts this study confirms it by --destroy NAME,\n\
             # on the command line and each time.\n{file}",
            line(device)
        ),
    }
}

pub fn resume(args: &ResumeArgs) -> Result<u8, Failure> {
    let (writer, mut stored) =
        ResultWriter::resume(&args.directory).map_err(|error| foreign(&args.directory, error))?;
    for damage in &stored.damage {
        terminal::note(&format!("kurabe: {damage}"));
    }
    let style = style_before(&stored).and_then(|text| text.style);
    let presentation = Presentation::new(&args.present, style.as_deref())?;
    for contender in &stored.plan.study.contenders {
        filesystem::of(contender)
            .map_err(refused(format_args!("contender '{}'", contender.label)))?;
    }
    stored.plan.study.parse_workloads(KINDS).map_err(Failure::refused)?;
    durability::believe_checks(&stored.plan.study)?;
    // What was planned is carried out, or refused.
    let study = Study { leave_out_missing: false, ..stored.plan.study.clone() };
    let mut environment = environment::of(&study)?;
    environment.believe_commands(&study)?;
    let examined = environment.examine(&study, args.destroy.as_deref())?;
    let spent_before = Duration::from_nanos(stored.spent_ns());
    let mut plan = stored.plan;
    if plan.shard.is_some() && stored.facts.is_none() {
        // It was divided where nobody knew this machine.
        plan.side_by_side = examined.side_by_side;
        writer.write_json(PLAN_FILE, &plan).map_err(Failure::broken)?;
    }
    if let Some(more) = args.more {
        plan.go_on(&stored.records, more);
        writer.write_json(PLAN_FILE, &plan).map_err(Failure::broken)?;
    }
    let session = Session {
        spent_before,
        facts: stored.facts.unwrap_or(Value::Null),
        plan,
        environment,
        records: stored.records,
        writer,
        presentation,
        notes: Vec::new(),
        dry_run: !args.no_dry_run,
        closing: None,
    };
    session.carry_out()
}

/// What the study file in a result says besides the plan: the style.
fn style_before(stored: &StoredResult) -> Option<StudyText> {
    let text = stored.directory.read_text(STUDY_FILE).ok()?;
    study_file::parse(Path::new(STUDY_FILE), &text).ok()
}

/// The refusal of a result that somebody else can have made: with all that going on with it would
/// run with the rights of this process.
fn foreign(directory: &Path, error: ResultError) -> Failure {
    let mut lines = vec![error.to_string()];
    let is_foreign =
        matches!(error, ResultError::Refused(Refused::Stranger { .. } | Refused::Writable { .. }));
    let path = directory.join(PLAN_FILE);
    let text = is_foreign.then(|| trust::file::read_text_of_anybody(&path).ok()).flatten();
    if let Some(plan) = text.and_then(|text| read_plan(&path, &text).ok()) {
        lines.push(format!("with your rights it would run, on {}:", line(&plan.study.device)));
        lines.extend(commands(&plan.study));
    }
    Failure::refused(lines.join("\n"))
}

/// The commands of a study, one a line, and its workloads that are none.
fn commands(study: &Study) -> Vec<String> {
    let shown = |(what, line): (&str, CommandLine)| {
        let words = line.words();
        let joined = shlex::try_join(words.iter().map(String::as_str));
        let shown = joined.unwrap_or_else(|_| words.join(" "));
        format!("  {what}: {}", trust::text::line(&shown))
    };
    let of_workload = |workload: &Workload| {
        let without = workload.load.command().is_none();
        let without = without.then(|| format!("  workload: {}", workload.load.kind));
        workload.commands().into_iter().map(shown).chain(without).collect::<Vec<_>>()
    };
    let ageing = study.ageing().into_iter().map(shown);
    ageing.chain(study.workloads.iter().flat_map(of_workload)).collect()
}

/// Leaves out what is missing here, reads the files that the study names, and refuses what cannot be
/// carried out anywhere.
pub fn settle(study: &mut Study) -> Result<(), Failure> {
    if study.hosts().is_empty() {
        environment::leave_out_missing(study)?;
    }
    read_files(study)?;
    check_gates(study)?;
    durability::check_workloads(study)
}

fn begin(
    text: &StudyText,
    mut study: Study,
    args: &StudyArgs,
    print: &PrintArgs,
    present: &PresentArgs,
    own: Option<OwnAnswer>,
) -> Result<u8, Failure> {
    study.directory = Some(UserPath::typed("."));
    if print.print_study {
        check_options(&study)?;
        terminal::print(&file_of(text));
        return Ok(exit::OK);
    }
    if print.print_plan {
        return print_plan(study, args.destroy.as_deref());
    }
    if let Some(file) = args.output_file() {
        study.output = OutputTarget::File(UserPath::typed(file));
    }
    settle(&mut study)?;
    let mut presentation = Presentation::new(&present.show, text.style.as_deref())?;
    presentation.own = own;
    let destroy = args.destroy.as_deref();
    device_request(&study, destroy)?;
    let mut environment = environment::of(&study)?;
    let Examined { mut study, side_by_side, notes: examined_notes } =
        environment.examine(&study, destroy)?;
    let mut notes = text.notes();
    notes.extend(examined_notes);
    // Short enough to be typed again by hand.
    let seed = study.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let out = present.out.clone().unwrap_or_else(|| default_directory(&study.name));
    if study.workloads.iter().all(|workload| side_by_side.contains(&workload.name)) {
        study.spread_runs();
    }
    let mut plan = Plan::new(study, seed);
    plan.side_by_side = side_by_side;
    let writer = ResultWriter::create(&out, &plan, &file_of(text)).map_err(Failure::refused)?;
    let session = Session {
        plan,
        environment,
        records: Vec::new(),
        spent_before: Duration::ZERO,
        facts: Value::Null,
        writer,
        presentation,
        notes,
        dry_run: !args.no_dry_run,
        closing: None,
    };
    session.carry_out()
}
