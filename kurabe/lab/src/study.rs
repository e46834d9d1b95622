//! A study: what a person asks for. The same fields whether they come from flags or from a TOML
//! file, but for what only the person may say who starts it: what is destroyed, and which files are
//! written. One validation for both, whose errors name the field so that the caller can point at the
//! flag or at the line.
//!
//! This file knows the notation and the defaults, and nothing of devices or processes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use vocabulary::kind::WorkloadKinds;
use vocabulary::path::UserPath;
use vocabulary::suggestion::{did_you_mean, unknown};

use crate::condition;
use crate::contender::{Contender, Known, Layer, ONLY_DIRECTORIES, QUOTE};
use crate::device::{DEFAULT_DEVICE, DeviceName};
use crate::environment::EnvironmentSpec;
use crate::name;
use crate::quantity::parse_duration;
use crate::spec::{Cache, CommandLine, OutputTarget, Workload};

pub mod profile;
pub mod reduced;
pub mod workload;

pub use profile::QuickText;
pub use reduced::Reduced;
pub use workload::{CommandText, WorkloadText};
use workload::{expand, placeholders};

/// Label of the control of a baseline.
pub fn control_label(baseline: &str) -> String {
    format!("{baseline} (control)")
}

/// A study as written: texts that are not yet validated. The field names are the keys of the
/// study file.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct StudyText {
    /// Name of the study; names the result directory.
    pub name: Option<String>,
    /// Why the study is made, in the author's words.
    pub why: Option<String>,
    /// The publication whose numbers stand beside those that are measured.
    pub source: Option<String>,
    /// What differs here from the publication.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// Contenders in the notation of [`Contender::parse`].
    pub contenders: Vec<String>,
    /// Label of the contender that the others are compared with; the first by default.
    pub baseline: Option<String>,
    /// Whether the baseline is entered once more, as a control: what sets the two apart is the
    /// machine's own doing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// Whether contenders and workloads for which this machine lacks something are left out, and
    /// named, instead of refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leave_out_missing: bool,
    /// The guest, or `ssh:HOST`, of the contenders that name none.
    pub on: Option<String>,
    /// `loop:SIZE[@DIR]`, `mem:SIZE` or `/dev/X`.
    pub device: Option<String>,
    /// Layers that stand under one contender alone, as `LABEL: LAYER+LAYER`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Whether mkfs and mount may discard.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
    /// Whether the requests that reach the device are traced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trace: bool,
    /// How many power cuts are tried of each contender and workload, beside the timed trials.
    pub durability: Option<u32>,
    /// The user's own command that ages the contenders `aged own`, a line for `sh`.
    pub age: Option<String>,
    /// The command that follows on the ageing of contenders with `then`, a line for `sh`.
    pub then: Option<String>,
    /// Name of the user as whom the workloads run.
    pub user: Option<String>,
    /// Seed of the order.
    pub seed: Option<u64>,
    /// Exactly so many runs of every contender.
    pub runs: Option<u32>,
    /// Exactly so many blocks.
    pub rounds: Option<u32>,
    /// At least so many blocks.
    pub min_runs: Option<u32>,
    /// At most so many blocks.
    pub max_runs: Option<u32>,
    /// Blocks that are carried out first and not compared.
    pub warmup: Option<u32>,
    /// Bound on the whole study.
    pub budget: Option<String>,
    /// Bound on one trial.
    pub timeout: Option<String>,
    /// Bound on the wait for an idle device.
    pub idle_wait: Option<String>,
    /// `cold` or `warm`.
    pub cache: Option<String>,
    /// Whether the contenders of a block stand side by side and take turns, or come one at a time.
    pub side_by_side: Option<bool>,
    /// Time for the turns of a block.
    pub block_time: Option<String>,
    /// Margin in percent within which two contenders count as the same.
    pub same_within: Option<f64>,
    /// `null`, `pipe` or `inherit`.
    pub output: Option<String>,
    /// Conditions that decide the exit code, in the notation of [`condition`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<String>,
    /// Style of the terminal output.
    pub style: Option<String>,
    /// Values that `{NAME}` takes in workloads and contenders, one workload or contender each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Vec<String>>,
    /// A profile that takes minutes where the study takes hours.
    pub quick: Option<QuickText>,
    #[serde(rename = "workload")]
    pub workloads: Vec<WorkloadText>,
    /// Tables of the publication, as they are written: the laboratory does not read them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Value>,
    /// Conclusions of the publication, likewise.
    #[serde(rename = "claim", skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Value>,
}

/// A validated study with every default filled in.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Name; names the result directory.
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// Why the study is made.
    pub why: Option<String>,
    /// The publication whose numbers stand beside those that are measured.
    pub source: Option<String>,
    /// What differs here from the publication.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The contenders, labels unique.
    pub contenders: Vec<Contender>,
    /// Index of the baseline in `contenders`.
    pub baseline: usize,
    /// What of the whole study this one carries out; None for all of it.
    pub reduced: Option<Reduced>,
    /// Whether what this machine lacks is left out instead of refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave_out_missing: bool,
    /// What was left out of `contenders` and `workloads` for that reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The device in the notation of `--device`.
    pub device: String,
    /// Whether mkfs and mount may discard.
    pub discard: bool,
    /// Whether the requests that reach the device are traced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trace: bool,
    /// How many power cuts are tried of each contender and workload, in trials that are not timed.
    pub durability: Option<u32>,
    /// The directory in which the study was asked for: checks after a power cut run there. Absent in
    /// older plans.
    pub directory: Option<UserPath>,
    /// The command that ages the contenders `aged own`.
    pub age: Option<CommandLine>,
    /// The command that follows on the ageing of contenders with `then`.
    pub then: Option<CommandLine>,
    /// Name of the user as whom the workloads run; the one who runs kurabe when absent.
    pub user: Option<String>,
    /// Seed, when the person chose one.
    pub seed: Option<u64>,
    /// Least number of blocks.
    pub blocks_min: u32,
    /// Greatest number of blocks.
    pub blocks_max: u32,
    /// Exactly so many runs of every contender, over all blocks. Absent in older plans, where a number of runs was
    /// one of blocks.
    pub runs: Option<u32>,
    /// Warm-up blocks.
    pub warmup_blocks: u32,
    /// Bound on the whole study in ns.
    pub budget_ns: Option<u64>,
    /// Bound on one trial in ns.
    pub timeout_ns: Option<u64>,
    /// Bound on the wait for an idle device in ns.
    pub idle_wait_ns_max: u64,
    /// State of the caches when the run begins.
    pub cache: Cache,
    /// Whether the contenders of a block stand side by side, when the person said so.
    pub side_by_side: Option<bool>,
    /// Time for the turns of a block in ns, when the person named one.
    pub block_time_ns: Option<u64>,
    /// Margin within which two contenders count as the same: 0.05 is 5 %.
    pub same_within: f64,
    /// Where the command's output goes.
    pub output: OutputTarget,
    /// Conditions that decide the exit code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// The workloads, names unique.
    pub workloads: Vec<Workload>,
    /// Tables of the publication, as they are written: the laboratory does not read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Value>,
    /// Conclusions of the publication, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Value>,
}

/// A contender or a workload that a study asks for and this machine cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// `contender` or `workload`.
    pub what: String,
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// What is missing and how to get it, a line each.
    pub missing: Vec<String>,
    /// Whether a guest has it; false in results that do not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_guests: bool,
}

impl Study {
    /// A workload as the contenders run it: each different form of it once.
    pub fn forms_of(&self, workload: &Workload) -> Vec<Workload> {
        let mut forms: Vec<Workload> = Vec::new();
        for contender in &self.contenders {
            let form = workload.on(contender);
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }

    /// Parses the workloads of a study that was stored or sent.
    ///
    /// Errors: the workload that this kurabe does not know, or knows with other options.
    pub fn parse_workloads(&mut self, kinds: WorkloadKinds) -> Result<(), String> {
        self.workloads.iter_mut().try_for_each(|workload| {
            let parsed = kinds.parse(&mut workload.load);
            parsed.map_err(|problem| format!("workload '{}': {problem}", workload.name))
        })
    }

    /// The commands that age file systems, each by its flag.
    pub fn ageing(&self) -> Vec<(&'static str, CommandLine)> {
        let both = [("--age", self.age.clone()), ("--then", self.then.clone())];
        both.into_iter().filter_map(|(flag, line)| Some((flag, line?))).collect()
    }

    /// The command lines that it names, in the order in which they run, each with what it is.
    pub fn commands(&self) -> Vec<(String, CommandLine)> {
        let ageing = self.ageing().into_iter();
        let ageing = ageing.map(|(flag, line)| (format!("the command of {flag}"), line));
        let of_workloads = self.workloads.iter().flat_map(|workload| {
            let commands = workload.commands().into_iter();
            commands.map(|(what, line)| (format!("workload '{}': its {what}", workload.name), line))
        });
        ageing.chain(of_workloads).collect()
    }

    /// The other machines on which it is carried out, all of it; none where that is here.
    pub fn hosts(&self) -> &[String] {
        self.contenders.first().map_or(&[], |first| first.environment.hosts())
    }
}

impl Study {
    /// Spreads a fixed number of runs over few blocks, where contenders take turns under all workloads: what comes
    /// around the runs of a block takes longer than a short run.
    pub fn spread_runs(&mut self) {
        // A budget may end at any block, which should then be short.
        if let Some(runs) = self.runs.filter(|_| self.budget_ns.is_none()) {
            self.blocks_max = runs.min(BLOCKS_OF_RUNS_MAX);
            self.blocks_min = self.blocks_max;
        }
    }

    /// How many runs of each contender a block has, where their number is fixed and they take turns; the first
    /// blocks have the ones that are left over.
    pub fn runs_of_block(&self, block: u32) -> Option<u32> {
        let runs = self.runs?;
        Some((runs / self.blocks_max + u32::from(block < runs % self.blocks_max)).max(1))
    }
}

/// Refuses the name of a study that cannot be a part of the name of a directory.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(format!("'{name}' cannot name a directory; use letters, digits and '-'"));
    }
    Ok(())
}

/// Most blocks of a fixed number of runs: with so many, an interval is hardly narrower for more.
const BLOCKS_OF_RUNS_MAX: u32 = 10;

/// Least number of blocks by default: below it no interval is worth its name.
pub const BLOCKS_MIN_DEFAULT: u32 = 5;
/// Greatest number of blocks by default.
pub const BLOCKS_MAX_DEFAULT: u32 = 20;
/// Default margin within which two contenders count as the same.
pub const SAME_WITHIN_DEFAULT: f64 = 0.05;
/// Default bound on the wait for an idle device.
pub const IDLE_WAIT_DEFAULT: &str = "60s";

/// What is wrong with a study, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct StudyError {
    /// Path of the field: `device`, `contenders[1]`, `workload[0].command`.
    pub field: String,
    /// What is wrong, naming the value, and the next step.
    pub problem: String,
}

pub(crate) fn error(field: impl Into<String>, problem: impl fmt::Display) -> StudyError {
    StudyError { field: field.into(), problem: problem.to_string() }
}

/// What a study can name: the file systems that have descriptors, and the kinds of workload.
#[derive(Debug, Clone, Copy)]
pub struct Catalogue<'a> {
    pub file_systems: &'a [Known],
    /// The kinds of workload besides commands.
    pub kinds: WorkloadKinds,
}

/// File systems alone: every workload is a command.
impl<'a, const N: usize> From<&'a [Known; N]> for Catalogue<'a> {
    fn from(file_systems: &'a [Known; N]) -> Catalogue<'a> {
        Catalogue { file_systems, kinds: WorkloadKinds(&[]) }
    }
}

impl<'a> From<&'a [Known]> for Catalogue<'a> {
    fn from(file_systems: &'a [Known]) -> Catalogue<'a> {
        Catalogue { file_systems, kinds: WorkloadKinds(&[]) }
    }
}

impl StudyText {
    /// Validates the study and fills in the defaults.
    pub fn resolve<'a>(&self, known: impl Into<Catalogue<'a>>) -> Result<Study, StudyError> {
        let known = known.into();
        if self.quick.is_some() {
            self.quickened(known.kinds)?.resolve(known).map_err(|found| {
                error("quick", format!("under this profile, {}: {}", found.field, found.problem))
            })?;
        } else if let Some(index) = self.workloads.iter().position(|w| w.quick.is_some()) {
            return Err(error(
                format!("workload[{index}].quick"),
                "belongs to a quick profile, and the study has no table [quick]; write one",
            ));
        }
        self.check_parameters()?;
        let mut contenders = self.resolve_contenders(known.file_systems)?;
        let baseline = self.resolve_baseline(&contenders)?;
        if self.control {
            let label = control_label(&contenders[baseline].label);
            if contenders.iter().any(|other| other.label == label) {
                let problem = format!("needs the label '{label}', which is taken; change that one");
                return Err(error("control", problem));
            }
            contenders.push(Contender { label, ..contenders[baseline].clone() });
        }
        let (blocks_min, blocks_max) = self.resolve_blocks()?;
        let duration = |field: &str, text: &str| {
            parse_duration(text)
                .map(|duration| duration.as_nanos() as u64)
                .map_err(|problem| error(field, problem))
        };
        let optional = |field: &str, text: &Option<String>| {
            text.as_deref().map(|text| duration(field, text)).transpose()
        };
        let mut workloads = self.resolve_workloads(known.kinds)?;
        for workload in &mut workloads {
            workload.name = name::of(&workload.name);
        }
        if self.trace && !contenders.iter().any(Contender::needs_device) {
            let problem = "no contender has a device whose requests could be traced; leave it out";
            return Err(error("trace", problem));
        }
        let of_shell = |line: &Option<String>| {
            let shell = vec!["sh".into()];
            line.clone().map(|line| CommandLine::Shell { shell, line })
        };
        Ok(Study {
            name: name::of(&self.resolve_name(&workloads)?),
            why: self.why.clone(),
            source: self.source.clone(),
            differs: self.differs.clone(),
            baseline,
            reduced: None,
            leave_out_missing: self.leave_out_missing,
            left_out: Vec::new(),
            device: self.resolve_device()?,
            discard: self.discard,
            trace: self.trace,
            durability: self.durability,
            directory: None,
            age: of_shell(&self.age),
            then: of_shell(&self.then),
            user: self.user.clone(),
            seed: self.seed,
            blocks_min,
            blocks_max,
            runs: self.runs,
            warmup_blocks: self.warmup.unwrap_or(0),
            budget_ns: optional("budget", &self.budget)?,
            timeout_ns: optional("timeout", &self.timeout)?,
            idle_wait_ns_max: duration(
                "idle-wait",
                self.idle_wait.as_deref().unwrap_or(IDLE_WAIT_DEFAULT),
            )?,
            cache: self.resolve_cache()?,
            side_by_side: self.side_by_side,
            block_time_ns: optional("block-time", &self.block_time)?,
            same_within: self.resolve_margin()?,
            output: self.resolve_output()?,
            gates: self.resolve_gates(&contenders, baseline, &workloads)?,
            contenders,
            workloads,
            published: self.published.clone(),
            claims: self.claims.clone(),
        })
    }

    fn resolve_baseline(&self, contenders: &[Contender]) -> Result<usize, StudyError> {
        let Some(label) = &self.baseline else { return Ok(0) };
        let labels: Vec<&str> = contenders.iter().map(|c| c.label.as_str()).collect();
        let place = labels.iter().position(|candidate| candidate == label);
        place.ok_or_else(|| error("baseline", unknown_label(label, &labels)))
    }

    fn resolve_cache(&self) -> Result<Cache, StudyError> {
        match self.cache.as_deref() {
            None | Some("cold") => Ok(Cache::Cold),
            Some("warm") => Ok(Cache::Warm),
            Some(other) => Err(error("cache", format!("'{other}' is neither 'cold' nor 'warm'"))),
        }
    }

    fn resolve_output(&self) -> Result<OutputTarget, StudyError> {
        match self.output.as_deref() {
            None | Some("null") => Ok(OutputTarget::Null),
            Some("pipe") => Ok(OutputTarget::Pipe),
            Some("inherit") => Ok(OutputTarget::Inherit),
            Some("") => Err(error("output", "is empty; name a file or use 'null'")),
            Some(other) => {
                let problem = format!(
                    "'{other}' is not null, pipe or inherit; a file can only be named on the command line: --output FILE"
                );
                Err(error("output", problem))
            }
        }
    }

    fn check_parameters(&self) -> Result<(), StudyError> {
        for (name, values) in &self.parameters {
            let field = format!("parameters.{name}");
            if values.is_empty() {
                return Err(error(field, "has no values; give at least one"));
            }
            let placeholder = format!("{{{name}}}");
            let used_by_contenders = self.contenders.iter().any(|text| text.contains(&placeholder));
            let mut texts = self.workloads.iter().flat_map(WorkloadText::texts);
            let used_by_workloads = texts.any(|text| text.contains(&placeholder));
            match (used_by_contenders, used_by_workloads) {
                (false, false) => {
                    let next = self
                        .misspelt(name)
                        .unwrap_or_else(|| "use it or leave the parameter out".into());
                    return Err(error(
                        field,
                        format!("{placeholder} occurs in no workload and no contender; {next}"),
                    ));
                }
                (true, true) => {
                    return Err(error(
                        field,
                        format!(
                            "{placeholder} occurs in a contender and in a workload, and would cross them; use two parameters"
                        ),
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Asks for the word in braces, in a contender or a workload, that is close to a parameter's name.
    fn misspelt(&self, name: &str) -> Option<String> {
        let of_workloads = self.workloads.iter().flat_map(WorkloadText::texts);
        let texts: Vec<String> = self.contenders.iter().cloned().chain(of_workloads).collect();
        let written: Vec<&str> = texts.iter().flat_map(|text| placeholders(text)).collect();
        did_you_mean(name, &written)
    }

    /// The words in braces that are no parameters, each with the nearest one.
    fn unknown_placeholders(&self, text: &str) -> Vec<String> {
        let known: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let others = placeholders(text).into_iter().filter(|name| !known.contains(name));
        others
            .map(|name| format!("{} (in '{text}')", unknown("parameter is called", name, &known)))
            .collect()
    }

    /// Remarks on what is allowed and yet looks like a mistake, for the user to see.
    ///
    /// A word in braces can be meant as it is (awk has such), so it is only noted on, and only
    /// where the study has parameters.
    pub fn notes(&self) -> Vec<String> {
        if self.parameters.is_empty() {
            return Vec::new();
        }
        let texts = self.workloads.iter().flat_map(WorkloadText::texts);
        let unknown = texts.flat_map(|text| self.unknown_placeholders(&text));
        unknown.map(|words| format!("Note: {words}; it stays as it is")).collect()
    }

    fn resolve_contenders(&self, known: &[Known]) -> Result<Vec<Contender>, StudyError> {
        if self.contenders.is_empty() {
            return Err(error(
                "contenders",
                format!("none is named; name at least one of {}", Known::names(known).join(", ")),
            ));
        }
        let on = self.on.as_deref().map(EnvironmentSpec::parse).transpose();
        let on = on.map_err(|problem| error("on", problem))?;
        let mut contenders: Vec<Contender> = Vec::new();
        for (index, text) in self.contenders.iter().enumerate() {
            let field = format!("contenders[{index}]");
            if let Some(unknown) = self.unknown_placeholders(text).first() {
                return Err(error(&field, format!("{unknown}; give its values with a parameter")));
            }
            for (text, values) in expand(text, &self.parameters) {
                let parsed = Contender::parse(&text, known);
                let mut contender = parsed.map_err(|problem| {
                    // The shell may have parted it from the contender before.
                    let is_part = index > 0
                        && !text.contains([' ', ':', '@'])
                        && !problem.problem.contains("did you mean");
                    let hint = if is_part { format!("; {QUOTE}") } else { String::new() };
                    error(&field, format!("{problem}{hint}"))
                })?;
                // A labelled contender with parameters would otherwise repeat its label.
                if !values.is_empty() && contender.label != contender.notation() {
                    let suffix: Vec<String> =
                        values.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    if contenders.iter().any(|other| other.label == contender.label)
                        || self.parameters.iter().any(|(_, values)| values.len() > 1)
                    {
                        contender.label = format!("{} {}", contender.label, suffix.join(" "));
                    }
                }
                if contenders.iter().any(|other| other.label == contender.label) {
                    return Err(error(
                        &field,
                        format!(
                            "the label '{}' is taken; give this one another, as in 'b: {text}'",
                            contender.label
                        ),
                    ));
                }
                if let Some(on) = &on {
                    if contender.directory().is_some() && !on.has_common_directory() {
                        let problem =
                            format!("'{text}' is a directory of this machine; leave it out");
                        return Err(error("on", problem));
                    }
                    if contender.directory().is_none() && on.has_common_directory() {
                        return Err(error("on", ONLY_DIRECTORIES));
                    }
                    if contender.environment == EnvironmentSpec::ThisMachine {
                        contender.environment = on.clone();
                    }
                }
                contenders.push(contender);
            }
        }
        self.resolve_layers(&mut contenders)?;
        // The processor of a guest may be an emulated one, another machine is another, and the disk of
        // either has another way to go.
        let here = &contenders[0];
        let (first, of_first) = (&here.label, here.environment.words());
        if let Some(other) = contenders.iter().find(|one| one.environment.words() != of_first) {
            return Err(error(
                "contenders",
                format!(
                    "'{first}' lives {of_first} and '{}' {}, and their numbers say nothing of each \
                     other; put all into one place, as by --on debian, or none",
                    other.label,
                    other.environment.words()
                ),
            ));
        }
        Ok(contenders)
    }

    fn resolve_layers(&self, contenders: &mut [Contender]) -> Result<(), StudyError> {
        for (index, text) in self.layers.iter().enumerate() {
            let field = format!("layers[{index}]");
            let Some((label, layers)) = text.rsplit_once(": ") else {
                let problem = format!("'{text}': write LABEL: LAYER, as in 'slow: delay:10%'");
                return Err(error(field, problem));
            };
            let labels: Vec<String> = contenders.iter().map(|c| c.label.clone()).collect();
            let Some(contender) = contenders.iter_mut().find(|c| c.label == label) else {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                return Err(error(field, unknown_label(label, &labels)));
            };
            if !contender.needs_device() {
                let problem =
                    format!("'{label}' is not made on a device of the study; leave it out");
                return Err(error(field, problem));
            }
            let layers = layers.split('+').map(|layer| Layer::named(layer.trim()));
            contender.layers.splice(1.., layers);
        }
        Ok(())
    }

    fn resolve_gates(
        &self,
        contenders: &[Contender],
        baseline: usize,
        workloads: &[Workload],
    ) -> Result<Vec<String>, StudyError> {
        let labels: Vec<&str> = contenders.iter().map(|c| c.label.as_str()).collect();
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        for (index, text) in self.gate.iter().enumerate() {
            let field = format!("gate[{index}]");
            let gate = condition::parse(text).map_err(|problem| error(&field, problem))?;
            gate.check(&labels, labels[baseline], &names)
                .map_err(|problem| error(&field, problem))?;
        }
        Ok(self.gate.clone())
    }

    fn resolve_blocks(&self) -> Result<(u32, u32), StudyError> {
        for (field, value) in [
            ("runs", self.runs),
            ("rounds", self.rounds),
            ("min-runs", self.min_runs),
            ("max-runs", self.max_runs),
        ] {
            if value.is_some_and(|value| value == 0 || value > 10_000) {
                return Err(error(field, "must be from 1 to 10000"));
            }
        }
        for (field, value, what) in [("runs", self.runs, "runs"), ("rounds", self.rounds, "rounds")]
        {
            let Some(value) = value else { continue };
            if self.min_runs.is_some() || self.max_runs.is_some() {
                return Err(error(
                    field,
                    format!("fixes the number of {what}; leave min-runs and max-runs out"),
                ));
            }
            if self.runs.is_some() && self.rounds.is_some() {
                return Err(error("rounds", "is derived from runs; leave one of the two out"));
            }
            return Ok((value, value));
        }
        let blocks_min =
            self.min_runs.unwrap_or(BLOCKS_MIN_DEFAULT.min(self.max_runs.unwrap_or(u32::MAX)));
        let blocks_max = self.max_runs.unwrap_or(BLOCKS_MAX_DEFAULT.max(blocks_min));
        if blocks_min > blocks_max {
            return Err(error(
                "min-runs",
                format!(
                    "{blocks_min} is more than max-runs {blocks_max}; lower one or raise the other"
                ),
            ));
        }
        Ok((blocks_min, blocks_max))
    }

    fn resolve_device(&self) -> Result<String, StudyError> {
        let text = self.device.as_deref().unwrap_or(DEFAULT_DEVICE);
        DeviceName::parse(text).map_err(|problem| error("device", problem))?;
        Ok(text.to_string())
    }

    fn resolve_margin(&self) -> Result<f64, StudyError> {
        let percent = self.same_within.unwrap_or(SAME_WITHIN_DEFAULT * 100.0);
        if !(percent > 0.0 && percent < 100.0) {
            return Err(error(
                "same-within",
                format!("{percent} is no margin in percent; it lies between 0 and 100, such as 5"),
            ));
        }
        Ok(percent / 100.0)
    }

    fn resolve_workloads(&self, kinds: WorkloadKinds) -> Result<Vec<Workload>, StudyError> {
        if self.workloads.is_empty() {
            return Err(error(
                "workload",
                "is missing; give a command after '--', or a [[workload]]",
            ));
        }
        let mut workloads: Vec<Workload> = Vec::new();
        for (index, text) in self.workloads.iter().enumerate() {
            for workload in text.resolve(index, kinds, &self.parameters)? {
                if workloads.iter().any(|other| other.name == workload.name) {
                    return Err(error(
                        format!("workload[{index}].name"),
                        format!(
                            "the name '{}' is taken; give this workload another",
                            workload.name
                        ),
                    ));
                }
                workloads.push(workload);
            }
        }
        Ok(workloads)
    }

    fn resolve_name(&self, workloads: &[Workload]) -> Result<String, StudyError> {
        match &self.name {
            Some(name) => {
                check_name(name).map_err(|problem| error("name", problem))?;
                Ok(name.clone())
            }
            None => {
                let first = workloads.first().map_or("study", |workload| workload.name.as_str());
                let word = first.split_whitespace().next().unwrap_or("study");
                let word = word.rsplit('/').next().unwrap_or(word);
                let name: String = word
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
                    .collect();
                Ok(if name.is_empty() { "study".into() } else { name })
            }
        }
    }
}

/// The message for a label that no contender has.
pub fn unknown_label(label: &str, labels: &[&str]) -> String {
    unknown("contender is labelled", label, labels)
}

#[cfg(test)]
mod tests;
