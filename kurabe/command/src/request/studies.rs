//! The bundled studies: four publications, and questions that they left open, each as one study file
//! of this program.
//!
//! What a study of either kind needs before it is carried out stands here too: which profile is
//! taken, and whether what is said of a publication names what the study has.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lab::contender::Known;
use lab::study::{Catalogue, QuickText, Reduced, Study, StudyError, StudyText};
use publications::ReportedMetrics;
use vocabulary::kind::WorkloadSpec;
use vocabulary::suggestion;
use workloads::KINDS;

use super::flags::{RunArgs, StudyArgs};
use crate::exit::Failure;

/// A study that is part of the program.
pub struct Bundled {
    /// Its name on the command line, and in its file.
    pub name: &'static str,
    /// Its study file.
    pub text: &'static str,
}

/// The bundled studies.
pub const BUNDLED: [Bundled; 10] = [
    Bundled { name: "cannyls", text: include_str!("../../../../studies/cannyls.toml") },
    Bundled {
        name: "operating-systems",
        text: include_str!("../../../../studies/operating-systems.toml"),
    },
    Bundled {
        name: "flash-overhead",
        text: include_str!("../../../../studies/flash-overhead.toml"),
    },
    Bundled { name: "dbench", text: include_str!("../../../../studies/dbench.toml") },
    Bundled { name: "durable-puts", text: include_str!("../../../../studies/durable-puts.toml") },
    Bundled { name: "buffered-puts", text: include_str!("../../../../studies/buffered-puts.toml") },
    Bundled { name: "databases", text: include_str!("../../../../studies/databases.toml") },
    Bundled { name: "cluster", text: include_str!("../../../../studies/cluster.toml") },
    Bundled { name: "etcd", text: include_str!("../../../../studies/etcd.toml") },
    Bundled { name: "stacks", text: include_str!("../../../../studies/stacks.toml") },
];

/// What a study can name.
pub fn catalogue(file_systems: &[Known]) -> Catalogue<'_> {
    Catalogue { file_systems, kinds: KINDS }
}

/// The bundled study of a name.
pub fn bundled(name: &str) -> Option<&'static Bundled> {
    BUNDLED.iter().find(|study| study.name == name)
}

fn names() -> Vec<&'static str> {
    BUNDLED.iter().map(|study| study.name).collect()
}

/// The refusal of a name that no bundled study has.
pub fn unknown(name: &str) -> Failure {
    Failure::refused(suggestion::unknown("bundled study is called", name, &names()))
}

/// Where a study comes from.
#[derive(Debug)]
pub struct StudySource {
    /// The file, or what stands for it in messages.
    pub path: PathBuf,
    /// Its text.
    pub text: Cow<'static, str>,
    bundled: Option<&'static str>,
}

/// Opens a study: a file of this name, or else the bundled study.
pub fn open(name: &Path) -> Result<StudySource, Failure> {
    let bundled = name.to_str().and_then(bundled);
    let read = |path: &Path| {
        trust::file::read_text(path)
            .map_err(|refused| Failure::refused(format!("study file {refused}")))
    };
    match bundled {
        // A directory of the name is none: a clone of this project may have one.
        Some(study) if !name.is_file() => Ok(StudySource {
            path: PathBuf::from(format!("(bundled) {}.toml", study.name)),
            text: Cow::Borrowed(study.text),
            bundled: Some(study.name),
        }),
        _ if name.exists() || name.components().count() > 1 || name.extension().is_some() => {
            Ok(StudySource { path: name.into(), text: Cow::Owned(read(name)?), bundled: None })
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
pub struct StudyProfile {
    /// Which study under which profile it is.
    pub words: String,
    /// Whether it is the quick one.
    pub quick: bool,
    /// What carries all of the study out.
    pub remedy: &'static str,
}

impl StudyProfile {
    /// What of the whole study the one that is carried out is.
    pub fn reduces(&self, whole: &Study, here: &Study) -> Option<Reduced> {
        Reduced::between(whole, here, self.quick, self.remedy)
    }

    /// Fits a quick profile to contenders in guests. What it takes at most holds for this machine, and
    /// each trial there has a boot of its own, mostly of an emulated processor: the fewest blocks are
    /// carried out, however long they take, but for what the flags say.
    pub fn fit_guests(&mut self, asked: &StudyArgs, study: &Study, text: &mut StudyText) {
        let none_there = study.contenders.iter().all(|one| one.environment.guest().is_none());
        if !self.quick || none_there || asked.budget.is_some() {
            return;
        }
        text.budget = None;
        if asked.runs.or(asked.rounds).or(asked.min_runs).or(asked.max_runs).is_none() {
            *text = text.with(&QuickText { rounds: Some(study.blocks_min), ..Default::default() });
        }
        self.words.push_str("; in guests without its time limit");
    }
}

impl StudySource {
    /// Takes the profile that the flags ask for.
    pub fn profile(
        &self,
        args: &RunArgs,
        text: &mut StudyText,
    ) -> Result<StudyProfile, StudyError> {
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
            text.scale_workloads(KINDS, factor)?;
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
        Ok(StudyProfile { words, quick, remedy })
    }
}

/// The names of the metrics and of the operations of a workload. Of some the operations are known once
/// its files were read; a file that cannot be read is an error of its own, told when it is needed.
fn names_of(mut load: WorkloadSpec) -> (Vec<String>, Vec<String>) {
    let mut described = load.parsed().description();
    if described.operations.is_empty() && load.read().is_ok() {
        described = load.parsed().description();
    }
    (described.metrics, described.operations)
}

/// Refuses what the study says of a publication where it cannot be read, or names what the study
/// has not. The places in the errors are those in the study file.
pub fn check_publication(study: &Study) -> Result<(), StudyError> {
    let reported = study.workloads.iter().map(|workload| {
        let (metrics, operations) = names_of(workload.load.clone());
        ReportedMetrics { workload: workload.name.clone(), metrics, operations }
    });
    publications::check(study, &reported.collect::<Vec<_>>()).map(drop)
}

#[cfg(test)]
mod tests;
