//! The bundled studies: four publications and a question that one of them left open, each as one
//! study file of this program.
//!
//! What a study of either kind needs before it is carried out stands here too: which profile is
//! taken, what is left out because this machine lacks it, and whether what is said of a publication
//! names what the study has.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lab::condition;
use lab::contender::Contender;
use lab::quantity::parse_duration;
use lab::study::{Catalogue, LeftOut, QuickText, Reduced, Study, StudyError, StudyText};
use lab::study_file;
use loads::KINDS;
use publications::Reported;
use trial::filesystem;
use vocabulary::load::Load;
use vocabulary::suggestion;

use crate::exit::{self, Failure};
use crate::flags::{RunArgs, StudyArgs};
use crate::guests;
use crate::preflight::missing_program;
use crate::progress::rough;
use crate::terminal;

/// A study that is part of the program.
pub struct Bundled {
    /// Its name on the command line, and in its file.
    pub name: &'static str,
    /// Its study file.
    pub text: &'static str,
}

/// The bundled studies.
pub const BUNDLED: [Bundled; 5] = [
    Bundled { name: "cannyls", text: include_str!("../../../studies/cannyls.toml") },
    Bundled {
        name: "operating-systems",
        text: include_str!("../../../studies/operating-systems.toml"),
    },
    Bundled { name: "flash-overhead", text: include_str!("../../../studies/flash-overhead.toml") },
    Bundled { name: "dbench", text: include_str!("../../../studies/dbench.toml") },
    Bundled { name: "durable-puts", text: include_str!("../../../studies/durable-puts.toml") },
];

/// What a study can name.
pub fn catalogue<'a>(file_systems: &'a [&'a str]) -> Catalogue<'a> {
    Catalogue { file_systems, kinds: KINDS }
}

fn bundled(name: &str) -> Option<&'static Bundled> {
    BUNDLED.iter().find(|study| study.name == name)
}

fn names() -> Vec<&'static str> {
    BUNDLED.iter().map(|study| study.name).collect()
}

/// `kurabe studies`.
pub fn studies(name: Option<&str>) -> Result<u8, Failure> {
    match name {
        Some(name) => {
            let study = bundled(name).ok_or_else(|| unknown(name))?;
            terminal::print(study.text);
        }
        None => BUNDLED.iter().for_each(|study| terminal::print(&describe(study))),
    }
    Ok(exit::OK)
}

fn unknown(name: &str) -> Failure {
    Failure::refused(suggestion::unknown("bundled study is called", name, &names()))
}

/// A study's name, what it answers, how long it takes, and what it lacks here.
fn describe(bundled: &Bundled) -> String {
    // The tests read every bundled study.
    let Ok((text, mut study)) =
        study_file::load(Path::new(bundled.name), bundled.text, catalogue(&filesystem::names()))
    else {
        return format!("{}\n", bundled.name);
    };
    let mut lines = study.why.clone().into_iter().collect::<Vec<_>>();
    let list = |names: Vec<&str>| names.join(", ");
    lines.push(format!(
        "{} under {}",
        list(study.contenders.iter().map(|contender| contender.label.as_str()).collect()),
        list(study.workloads.iter().map(|workload| workload.name.as_str()).collect()),
    ));
    if let Some(quick) = &text.quick {
        let time = quick.budget.as_deref().and_then(|budget| parse_duration(budget).ok());
        lines.push(format!(
            "quick profile: {} on {}; --full: on {}",
            time.map_or("unbounded".into(), |time| format!("at most {}", rough(time))),
            quick.device.as_deref().unwrap_or(&study.device),
            study.device
        ));
    }
    if leave_out_missing(&mut study).is_err() {
        lines.push("this machine lacks everything that it needs".into());
    }
    for left in &study.left_out {
        lines.push(format!("missing here: {}: {}", left.name, left.missing.join("; ")));
    }
    let mut shown = format!("{}\n", bundled.name);
    for line in lines {
        shown.push_str(&format!("    {line}\n"));
    }
    shown
}

/// Where a study comes from.
#[derive(Debug)]
pub struct Source {
    /// The file, or what stands for it in messages.
    pub path: PathBuf,
    /// Its text.
    pub text: Cow<'static, str>,
    bundled: Option<&'static str>,
}

/// Opens a study: a file of this name, or else the bundled study.
pub fn open(name: &Path) -> Result<Source, Failure> {
    let bundled = name.to_str().and_then(bundled);
    let read = |path: &Path| {
        trust::file::read_text(path)
            .map_err(|refused| Failure::refused(format!("study file {refused}")))
    };
    match bundled {
        // A directory of the name is none: a clone of this project may have one.
        Some(study) if !name.is_file() => Ok(Source {
            path: PathBuf::from(format!("(bundled) {}.toml", study.name)),
            text: Cow::Borrowed(study.text),
            bundled: Some(study.name),
        }),
        _ if name.exists() || name.components().count() > 1 || name.extension().is_some() => {
            Ok(Source { path: name.into(), text: Cow::Owned(read(name)?), bundled: None })
        }
        _ => {
            let shown = name.display().to_string();
            let mut failure = unknown(&shown);
            failure.message = format!("there is no study file {shown}, and {}", failure.message);
            Err(failure)
        }
    }
}

/// Which profile of a study is taken.
#[derive(Debug)]
pub struct Profile {
    /// Which study under which profile it is.
    pub words: String,
    /// Whether it is the quick one.
    pub quick: bool,
    /// What carries all of the study out.
    pub remedy: &'static str,
}

impl Profile {
    /// What of the whole study the one that is carried out is.
    pub fn reduces(&self, whole: &Study, here: &Study) -> Option<Reduced> {
        Reduced::between(KINDS, whole, here, self.quick, self.remedy)
    }

    /// Fits a quick profile to contenders in guests. What it takes at most holds for this machine, and
    /// each trial there has a boot of its own, mostly of an emulated processor: the fewest blocks are
    /// carried out, however long they take, but for what the flags say.
    pub fn fit_guests(&mut self, asked: &StudyArgs, study: &Study, text: &mut StudyText) {
        let none_there = study.contenders.iter().all(|one| one.place.guest().is_none());
        if !self.quick || none_there || asked.budget.is_some() {
            return;
        }
        text.budget = None;
        if asked.runs.or(asked.min_runs).or(asked.max_runs).is_none() {
            *text = text.with(&QuickText { runs: Some(study.blocks_min), ..Default::default() });
        }
        self.words.push_str("; in guests without its time limit");
    }
}

impl Source {
    /// Takes the profile that the flags ask for.
    pub fn profile(&self, args: &RunArgs, text: &mut StudyText) -> Result<Profile, StudyError> {
        let chosen = args.full || args.scale.is_some() || args.study.device.is_some();
        let quick = args.quick || (self.bundled.is_some() && !chosen && text.quick.is_some());
        let mut words = match self.bundled {
            Some(name) => format!("bundled study {name} (kurabe studies {name} prints its file)"),
            None => format!("study file {}", self.path.display()),
        };
        if quick {
            *text = text.quickened(KINDS)?;
            words.push_str(", quick profile");
            if !args.quick {
                words.push_str("; --full, --scale or --device for more");
            }
        }
        if let Some(factor) = args.scale {
            text.scale_loads(KINDS, factor)?;
            if !quick && args.study.device.is_none() {
                text.scale_device(factor);
            }
            words.push_str(&format!(", scaled by {factor}"));
        }
        let remedy = match (self.bundled, quick) {
            (Some(_), _) => "--full runs it all",
            (None, true) => "without --quick all of it runs",
            (None, false) => "without --scale all of it runs",
        };
        Ok(Profile { words, quick, remedy })
    }
}

/// Takes out of a study what this machine cannot have, when the study says so. Gates of contenders
/// that are left out are refused.
pub fn leave_out_missing(study: &mut Study) -> Result<(), Failure> {
    if study.leave_out_missing { leave_out(study, guests::missing) } else { Ok(()) }
}

/// Takes out of a study the contenders that lack something, and the workloads that this machine cannot
/// have.
pub fn leave_out(
    study: &mut Study,
    missing: impl Fn(&Contender) -> Vec<String>,
) -> Result<(), Failure> {
    let baseline = study.contenders[study.baseline].label.clone();
    let mut left_out = Vec::new();
    study.contenders.retain(|contender| {
        let in_guests = guests::is_in_guests(contender);
        keep(&mut left_out, "contender", &contender.label, missing(contender), in_guests)
    });
    study.workloads.retain(|workload| {
        let mut lacks =
            KINDS.open(&workload.load).map_or_else(|error| vec![error], |l| l.missing());
        if let Some(command) = workload.load.command()
            && let Some(program) = missing_program(&command)
        {
            lacks.push(format!("the program '{program}' is not found"));
        }
        keep(&mut left_out, "workload", &workload.name, lacks, false)
    });
    let lines = left_out
        .iter()
        .map(|left: &LeftOut| format!("{} '{}': {}", left.what, left.name, left.missing.join("; ")))
        .collect::<Vec<_>>();
    if study.contenders.is_empty() || study.workloads.is_empty() {
        return Err(Failure::refused(format!(
            "this machine lacks everything that the study needs\n{}",
            lines.join("\n")
        )));
    }
    for gate in &study.gates {
        let condition = condition::parse(gate).expect("gates were checked with the study");
        let (labels, workloads) = (condition.labels(), condition.workloads());
        // A gate may bound the ratio to the baseline: without it the bound would mean another thing.
        let of_left = |left: &&LeftOut| match left.what.as_str() {
            "workload" => workloads.contains(&left.name.as_str()),
            _ => {
                labels.contains(&left.name.as_str())
                    || (condition.needs_baseline() && left.name == baseline)
            }
        };
        if let Some(left) = left_out.iter().find(of_left) {
            return Err(Failure::refused(format!(
                "gate '{gate}': {} is missing here: {}",
                left.name,
                left.missing.join("; ")
            )));
        }
    }
    // Without its baseline the study is compared with the first that is there.
    let position = study.contenders.iter().position(|contender| contender.label == baseline);
    study.baseline = position.unwrap_or(0);
    let instead = study.contenders[study.baseline].label.clone();
    let of_baseline = |left: &&mut LeftOut| left.what == "contender" && left.name == baseline;
    if let Some(left) = left_out.iter_mut().find(of_baseline) {
        left.missing.push(format!("ratios are to {instead} instead"));
    }
    study.left_out.append(&mut left_out);
    Ok(())
}

fn keep(
    left_out: &mut Vec<LeftOut>,
    what: &str,
    name: &str,
    missing: Vec<String>,
    in_guests: bool,
) -> bool {
    let here = missing.is_empty();
    if !here {
        left_out.push(LeftOut { what: what.into(), name: name.into(), missing, in_guests });
    }
    here
}

/// The names of the metrics and of the operations of a load. Of some the operations are known once
/// its files were read; a file that cannot be read is an error of its own, told when it is needed.
fn names_of(mut load: Load) -> (Vec<String>, Vec<String>) {
    let of = |load: &Load| KINDS.open(load).map(|load| (load.metrics(), load.operations()));
    let names = of(&load).unwrap_or_default();
    if names.1.is_empty() && KINDS.read(&mut load).is_ok() {
        of(&load).unwrap_or_default()
    } else {
        names
    }
}

/// Refuses what the study says of a publication where it cannot be read, or names what the study
/// has not. The places in the errors are those in the study file.
pub fn check_publication(study: &Study) -> Result<(), StudyError> {
    let reported = study.workloads.iter().map(|workload| {
        let (metrics, operations) = names_of(workload.load.clone());
        Reported { workload: workload.name.clone(), metrics, operations }
    });
    publications::check(study, &reported.collect::<Vec<_>>()).map(drop)
}

#[cfg(test)]
mod tests;
