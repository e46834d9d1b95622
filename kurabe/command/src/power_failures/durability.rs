//! The power cuts of a study: beside the timed trials of a contender and workload one that is not timed, whose
//! record has the check `durability`.
//!
//! Its record stands in the first block, beside the timed one, under the same number and session.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lab::contender::Contender;
use lab::event::Event;
use lab::plan::{Plan, PlannedBlock, PlannedTrial};
use lab::record::{Check, Outcome, Record};
use lab::result::ResultWriter;
use lab::spec::{PowerCuts, TrialSpec, Workload};
use lab::study::Study;
use trial::crash::CrashReport;
use trial::filesystem::{self, Access};
use trust::words::pasted;
use trust::{CONTENTS_DIRECTORY_MODE, Directory};
use vocabulary::check::DURABILITY;

use super::crash::{believe_check, control_states, keep, path_of};
use crate::exit::Failure;
use crate::presentation::progress::Progress;
use crate::runner::Executor;

/// Bound on one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// The trials beside which the power is still to be cut: timed, ended, in the first block.
pub fn open<'p>(plan: &'p Plan, records: &[Record]) -> Vec<(&'p PlannedBlock, PlannedTrial)> {
    let Some(block) = plan.blocks.iter().find(|block| !block.warmup) else { return Vec::new() };
    let of = |trial: &PlannedTrial| {
        let trial = trial.trial;
        records.iter().filter(move |one| one.trial == trial)
    };
    let is_open = |trial: &&PlannedTrial| {
        plan.study.durability.is_some()
            && of(trial).any(|one| one.has_ended() && !is_of_power_cuts(one))
            && !of(trial).any(|one| one.has_ended() && is_of_power_cuts(one))
    };
    block.trials.iter().filter(is_open).map(|trial| (block, *trial)).collect()
}

fn is_of_power_cuts(record: &Record) -> bool {
    record.is_checked_only() && record.checks.iter().any(|check| check.name == DURABILITY)
}

/// Cuts the power beside every timed trial beside which that is open, and keeps the records.
///
/// Errors: there is no room for a recording, or a record cannot be written.
pub fn cut_all(
    plan: &Plan,
    records: &mut Vec<Record>,
    size_bytes: u64,
    executor: &mut dyn Executor,
    writer: &mut ResultWriter,
    progress: &Progress,
    stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    for planned in open(plan, records) {
        if stopped() {
            break;
        }
        let timed = records.iter().find(|record| record.trial == planned.1.trial);
        let timed = timed.expect("it is open because it was timed").clone();
        let label = &timed.contender.label;
        let mut show = |event: &Event| {
            if let Event::Status { text } = event {
                progress.step(&format!("power cuts, {}, {label}: {text}", timed.workload));
            }
        };
        // Nobody else finds it, and memory need not hold it.
        let data = writer.directory().nameless_file().map_err(Failure::broken)?;
        let cut = cut(plan, planned, &timed, size_bytes, data, executor, &mut show);
        let (record, found) = cut.map_err(Failure::broken)?;
        if let Outcome::Failed { message, .. } = &record.outcome {
            progress.say(&format!("{label}: the power could not be cut: {message}"));
        }
        // The verdict first: what may go wrong from here on costs no more than a recording.
        records.push(writer.append(record).map_err(Failure::broken)?);
        let Some(found) = found else { continue };
        for note in &found.report.notes {
            progress.say(&format!("{label}: {note}"));
        }
        if !found.report.cases.is_empty() {
            let words = found.keep(writer.directory(), planned.1.trial);
            progress.say(&format!("{label}: {words}"));
        }
    }
    Ok(())
}

/// What the states of a contender showed, with what is needed to try them again.
struct Found {
    spec: TrialSpec,
    cuts: PowerCuts,
    report: CrashReport,
    data: File,
}

impl Found {
    /// Keeps it in the result, and says how to try a failing state again.
    fn keep(self, result: &Directory, trial: u32) -> String {
        let Found { spec, cuts, report, data } = self;
        let violation = report.cases.iter().position(|case| case.finding.kind.is_violation());
        let (case, what) = match violation {
            Some(first) => (first + 1, "its first failing state"),
            None => (1, "its first state that was mounted after fsck only"),
        };
        let name = format!("power-cuts-{trial}");
        // Whatever a session left that was ended while it kept one.
        let _ = result.remove_tree(&name);
        let kept = result.make_directory(&name, CONTENTS_DIRECTORY_MODE).map_err(io::Error::other);
        match kept.and_then(|kept| keep(&kept, &spec, &cuts, report, &data)) {
            Ok(()) => {
                let place = format!("{}:{case}", result.path().join(name).display());
                format!("to try {what} again: kurabe crash --replay {}", pasted(&place))
            }
            Err(error) => {
                let _ = result.remove_tree(&name);
                format!("its recording could not be kept: {error}")
            }
        }
    }
}

fn cut(
    plan: &Plan,
    (block, trial): (&PlannedBlock, PlannedTrial),
    timed: &Record,
    size_bytes: u64,
    data: File,
    executor: &mut dyn Executor,
    on_event: &mut dyn FnMut(&Event),
) -> io::Result<(Record, Option<Found>)> {
    let states = plan.study.durability.unwrap_or_default() as usize;
    let mut spec = plan.spec(block, trial, None, PathBuf::new());
    spec.side_by_side = None;
    let cuts = PowerCuts {
        size_bytes,
        devices_bytes: Vec::new(),
        check_directory: match &plan.study.directory {
            Some(directory) => directory.to_path_buf(),
            None => std::env::current_dir()?,
        },
        check_timeout_ns: CHECK_TIMEOUT.as_nanos() as u64,
        states,
        control_states: control_states(states),
        seed: spec.order_seed,
        data: path_of(&data),
        ..PowerCuts::default()
    };
    spec.power_cuts = Some(cuts.clone());
    let mut record = match why_not(&spec) {
        None => executor.execute(&spec, on_event),
        Some(why) => {
            let mut record = Record::begun(&spec, timed.started_unix_ns);
            record.checks = vec![Check::not_tried(DURABILITY, why)];
            record
        }
    };
    let mut found = None;
    if record.outcome == Outcome::Completed
        && let Some(json) = &mut record.power_cuts
    {
        let report: CrashReport = serde_json::from_value(json.clone())?;
        found = Some(Found { spec, cuts, report, data });
        // Which is of use beside its bytes only.
        json.as_object_mut().expect("a report is an object").remove("log");
    }
    (record.session, record.block_trials) = (timed.session, timed.block_trials);
    Ok((record, found))
}

/// Why the power cannot be cut.
fn why_not(spec: &TrialSpec) -> Option<String> {
    let TrialSpec { contender, workload, .. } = spec;
    let known = filesystem::by_name(contender.file_system())?;
    if let Some(why) = known.why_not_cut() {
        return Some(format!("'{}': {why}", contender.file_system()));
    }
    if contender.environment.guest().is_some() {
        return Some("the power of a guest is not cut".into());
    }
    if !contender.environment.hosts().is_empty() {
        return Some("on another machine the power is not cut".into());
    }
    unjudged(workload, known.access == Access::RawDevice)
}

/// Why nobody can say what a power cut may take of a workload.
fn unjudged(workload: &Workload, on_raw: bool) -> Option<String> {
    let kind = &workload.load.kind;
    if workload.load.command().is_some() {
        let is_told = workload.check.is_some();
        return (!is_told).then(|| "nothing says what may be lost; give --check".into());
    }
    match workload.load.parsed().durability() {
        Some(durability) => on_raw.then(|| durability.why_not_on_raw()).flatten(),
        None => Some(format!(
            "the workload {kind} does not say what it has made durable (docs/durability.md says which do)"
        )),
    }
}

/// Refuses checks of a study that goes on which somebody else can have exchanged since it began.
pub fn believe_checks(study: &Study) -> Result<(), Failure> {
    let Some(directory) = study.directory.as_deref().filter(|_| study.durability.is_some()) else {
        return Ok(());
    };
    let mut checks = study.workloads.iter().filter_map(|workload| workload.check.as_ref());
    checks.try_for_each(|check| believe_check(directory, check)).map_err(Failure::refused)
}

/// Refuses a study that asks for power cuts and has no workload of which somebody can say what they may take.
pub fn check_workloads(study: &Study) -> Result<(), Failure> {
    if let (Some(_), Some(user)) = (study.durability, &study.user) {
        return Err(Failure::refused(format!(
            "--durability: where the power is cut, the workload does not run as another user; leave --durability or --user {user} out"
        )));
    }
    let is_raw = |contender: &Contender| {
        let known = filesystem::by_name(contender.file_system());
        known.is_some_and(|known| known.access == Access::RawDevice)
    };
    let on_raw = study.contenders.iter().any(is_raw);
    let forms = study.workloads.iter().flat_map(|workload| study.forms_of(workload));
    let why: Option<Vec<String>> = forms.map(|form| unjudged(&form, on_raw)).collect();
    match (study.durability, why.and_then(|why| why.into_iter().next())) {
        (Some(_), Some(why)) => Err(Failure::refused(format!("--durability: {why}"))),
        _ => Ok(()),
    }
}
