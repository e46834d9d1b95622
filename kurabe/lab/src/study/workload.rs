//! The workloads of a study: what comes before and after a workload is read here, the workload's own keys
//! by its kind.
//!
//! Nothing here knows the kinds of workload, nor does I/O: their table is given, and reading the files
//! that a workload names is the caller's business.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use vocabulary::kind::{KeyRole, Keys, WorkloadKey, WorkloadKind, WorkloadKinds, Written};

use super::{StudyError, error};
use crate::spec::{CommandLine, Workload, WorkloadSpec};
use crate::study_file::unknown_key;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct WorkloadText {
    /// Name in tables; the command's text by default.
    pub name: Option<String>,
    /// Why this workload is in the study.
    pub why: Option<String>,
    /// A line for the shell, or a list of words that is executed as it is.
    pub command: Option<CommandText>,
    /// The keys of another workload.
    #[serde(flatten)]
    pub load: Keys,
    /// Shell for the lines of this workload (`sh` by default); `none` splits them into words and
    /// starts them without a shell.
    pub shell: Option<String>,
    /// Run once a trial in the mounted directory, before caches are dropped.
    pub setup: Option<CommandText>,
    /// Run right before the measured run, after caches were dropped.
    pub prepare: Option<CommandText>,
    /// Run after the run and its sync.
    pub cleanup: Option<CommandText>,
    /// Says, after a power cut, whether what the workload acknowledged is there.
    pub check: Option<CommandText>,
    /// Whether another exit code than 0 still counts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_failure: bool,
    /// The workload's keys that the study's quick profile changes.
    pub quick: Option<Keys>,
}

/// The keys of a workload that are none of its workload's.
const KEYS: &[&str] = &[
    "name",
    "why",
    "command",
    "shell",
    "setup",
    "prepare",
    "cleanup",
    "check",
    "ignore-failure",
    "quick",
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandText {
    Line(String),
    Words(Vec<String>),
}

impl fmt::Display for CommandText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandText::Line(line) => f.write_str(line),
            CommandText::Words(words) => {
                let joined = shlex::try_join(words.iter().map(String::as_str));
                f.write_str(&joined.unwrap_or_else(|_| words.join(" ")))
            }
        }
    }
}

impl WorkloadText {
    /// Whether a command or another workload is named.
    pub fn names_a_workload(&self, kinds: WorkloadKinds) -> bool {
        self.command.is_some() || self.naming_keys(kinds).next().is_some()
    }

    /// The keys that name loads, but for those that are switched off.
    fn naming_keys(&self, kinds: WorkloadKinds) -> impl Iterator<Item = &'static WorkloadKey> {
        kinds.naming().filter(|key| self.load.get(key.name).is_some_and(is_written))
    }

    /// The workload's kind; none for a command, and for what is refused elsewhere.
    pub(super) fn kind(&self, kinds: WorkloadKinds) -> Option<&'static WorkloadKind> {
        kinds.named_by(self.naming_keys(kinds).next()?.name)
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = &CommandText> {
        [&self.command, &self.setup, &self.prepare, &self.cleanup, &self.check]
            .into_iter()
            .flatten()
    }

    /// What may have placeholders: commands, and texts of the workload such as fio's options.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let of_workload = self.load.values().filter_map(Value::as_str).map(str::to_string);
        self.commands().map(CommandText::to_string).chain(of_workload)
    }

    pub(super) fn resolve(
        &self,
        index: usize,
        kinds: WorkloadKinds,
        parameters: &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<Workload>, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        self.refuse_unknown_keys(index, kinds)?;
        // The placeholders of all texts of the workload are expanded together.
        let joined: Vec<String> = self.texts().collect();
        let expanded = expand(&joined.join("\n"), parameters).into_iter().map(|(_, values)| values);
        let Some(command) = &self.command else {
            return expanded.map(|values| self.resolve_workload(index, kinds, &values)).collect();
        };
        let mut keys = self.load.iter().filter(|(_, value)| is_written(value));
        if let Some((key, _)) = keys.next() {
            return Err(error(field(key), "does not go with a command; leave one of them out"));
        }
        let shell = match self.shell.as_deref() {
            Some("none") => None,
            text => {
                let text = text.unwrap_or("sh");
                let words =
                    shlex::split(text).filter(|words| !words.is_empty()).ok_or_else(|| {
                        error(
                            field("shell"),
                            format!("'{text}' is no shell; try 'sh', or 'none' for no shell"),
                        )
                    })?;
                Some(words)
            }
        };
        let mut workloads = Vec::new();
        for values in expanded {
            let line = |name: &str, text: &CommandText| {
                resolve_command(text, shell.as_deref(), &values)
                    .map_err(|problem| error(field(name), problem))
            };
            let command = line("command", command)?;
            let mut name = match &self.name {
                Some(name) => substitute(name, &values),
                None => command.to_string(),
            };
            if self.name.as_ref().is_some_and(|text| *text == name) {
                name = with_values(&name, &values);
            }
            if name.trim().is_empty() {
                return Err(error(field("name"), "is empty; name the workload"));
            }
            let parameters = values.iter().cloned().collect();
            let workload = self.workload(name, WorkloadSpec::of_command(command), &line)?;
            workloads.push(Workload { parameters, ..workload });
        }
        Ok(workloads)
    }

    fn refuse_unknown_keys(&self, index: usize, kinds: WorkloadKinds) -> Result<(), StudyError> {
        let known: Vec<&str> = kinds.keys().iter().map(|(key, _)| key.name).collect();
        let all = || [KEYS, &known].concat();
        if let Some(key) = self.load.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(error(format!("workload[{index}].{key}"), unknown_key(key, &all())));
        }
        let own = self.kind(kinds).map_or(&[][..], |kind| kind.keys);
        let own: Vec<&str> = own.iter().map(|key| key.name).collect();
        let mut quick = self.quick.iter().flatten().map(|(key, _)| key);
        match quick.find(|key| !own.contains(&key.as_str())) {
            Some(key) => {
                Err(error(format!("workload[{index}].quick.{key}"), unknown_key(key, &own)))
            }
            None => Ok(()),
        }
    }

    /// A workload that is more than a command, with these values of the parameters.
    fn resolve_workload(
        &self,
        index: usize,
        kinds: WorkloadKinds,
        values: &[(String, String)],
    ) -> Result<Workload, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        let mut naming = self.naming_keys(kinds);
        let Some(key) = naming.next() else {
            let flags: Vec<&str> = kinds
                .naming()
                .filter(|key| key.role == KeyRole::Load)
                .map(|key| key.name)
                .collect();
            return Err(error(
                field("command"),
                format!(
                    "is missing; say what to run, or name another workload: {}",
                    flags.join(", ")
                ),
            ));
        };
        if let Some(other) = naming.next() {
            let problem = format!("does not go with {}; make it a workload of its own", key.name);
            return Err(error(field(other.name), problem));
        }
        let kind = kinds.named_by(key.name).expect("it is a key of one");
        let mut keys = self.load.clone();
        keys.retain(|_, value| is_written(value));
        for value in keys.values_mut() {
            if let Value::String(text) = value {
                *text = substitute(text, values);
            }
        }
        if let Some(option) = keys.keys().find(|option| kind.key(option).is_none()) {
            return Err(error(field(option), foreign_option(option, key, kinds)));
        }
        if self.shell.is_some() {
            return Err(error(
                field("shell"),
                "is for commands only; setup, prepare and cleanup of other workloads run under sh",
            ));
        }
        if self.ignore_failure {
            return Err(error(
                field("ignore-failure"),
                "is for commands only; other workloads that fail have no figures",
            ));
        }
        let written = Written { keys: &keys, name: self.name.as_deref() };
        let load = kind.parse(&written).map_err(|found| error(field(&found.key), found.problem))?;
        let amount = load.parsed().description().amount;
        let shell = vec!["sh".to_string()];
        let line = |name: &str, text: &CommandText| {
            resolve_command(text, Some(&shell), values)
                .map_err(|problem| error(field(name), problem))
        };
        let name = match &self.name {
            Some(name) if substitute(name, values) != *name => substitute(name, values),
            Some(name) => with_values(name, values),
            // What all of them have in common would only push their values out of sight.
            None if !values.is_empty() => with_values(key.name, values),
            None => name_of(key, &keys[key.name]),
        };
        let parameters = values.iter().cloned().collect();
        Ok(Workload { amount, parameters, ..self.workload(name, load, &line)? })
    }

    /// A workload of this workload, with what comes before and after it.
    fn workload(
        &self,
        name: String,
        load: WorkloadSpec,
        line: &dyn Fn(&str, &CommandText) -> Result<CommandLine, StudyError>,
    ) -> Result<Workload, StudyError> {
        let optional = |name: &str, text: &Option<CommandText>| {
            text.as_ref().map(|text| line(name, text)).transpose()
        };
        Ok(Workload {
            why: self.why.clone(),
            setup: optional("setup", &self.setup)?,
            prepare: optional("prepare", &self.prepare)?,
            cleanup: optional("cleanup", &self.cleanup)?,
            check: optional("check", &self.check)?,
            ignore_failure: self.ignore_failure,
            ..Workload::of(name, load)
        })
    }
}

/// What is wrong with an option of other workloads than the one that `key` names.
fn foreign_option(option: &str, key: &WorkloadKey, kinds: WorkloadKinds) -> String {
    let takers = kinds.0.iter().filter(|kind| kind.key(option).is_some());
    let takers = takers.flat_map(|kind| kind.keys.iter().filter(|key| key.names_workload()));
    let takers: Vec<String> = takers.map(|key| key.name.to_string()).collect();
    let takers = crate::words::list(&takers);
    format!("is an option of {takers}, not of {}; leave it out", key.name)
}

/// `make jobs=4`: a name with the values that tell it from others of this name.
fn with_values(name: &str, values: &[(String, String)]) -> String {
    let values = values.iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(name.to_string()).chain(values).collect()
}

/// Whether a value says anything: a switch that is off and a list of nothing do not.
fn is_written(value: &Value) -> bool {
    *value != Value::Bool(false) && value.as_array().is_none_or(|list| !list.is_empty())
}

/// The name of a workload that is given none: `dbench 4`, `fio-matrix`, `fio job.fio`, and of options all
/// of them: `fio --filename=/dev/sdx --rw=read`.
fn name_of(key: &WorkloadKey, value: &Value) -> String {
    let text = match (key.role, value) {
        (KeyRole::Load, Value::String(text)) if text.contains([' ', '=']) => text.clone(),
        (KeyRole::Load, Value::String(text)) => text.rsplit('/').next().unwrap_or(text).to_string(),
        (KeyRole::Load, Value::Number(number)) => number.to_string(),
        _ => return key.name.into(),
    };
    format!("{} {text}", key.name)
}

fn resolve_command(
    text: &CommandText,
    shell: Option<&[String]>,
    values: &[(String, String)],
) -> Result<CommandLine, String> {
    let words = match (text, shell) {
        (CommandText::Words(words), _) => {
            words.iter().map(|word| substitute(word, values)).collect::<Vec<_>>()
        }
        (CommandText::Line(line), Some(shell)) => {
            if line.trim().is_empty() {
                return Err("is empty; say what to run".into());
            }
            return Ok(CommandLine::Shell {
                shell: shell.to_vec(),
                line: substitute(line, values),
            });
        }
        (CommandText::Line(line), None) => shlex::split(&substitute(line, values))
            .ok_or_else(|| format!("'{line}' has a quote that is not closed"))?,
    };
    if words.first().is_none_or(|word| word.is_empty()) {
        return Err("is empty; say what to run".into());
    }
    Ok(CommandLine::Words(words))
}

fn substitute(text: &str, values: &[(String, String)]) -> String {
    values
        .iter()
        .fold(text.to_string(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// The words in braces that look like parameters: `{jobs}`, but neither `${jobs}`, which is the
/// shell's, nor `{}`.
pub(super) fn placeholders(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (begin, _) in text.match_indices('{') {
        let inner = &text[begin + 1..];
        let Some((name, _)) = inner.split_once('}') else { break };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if is_name && !text[..begin].ends_with('$') {
            found.push(name);
        }
    }
    found
}

/// Every combination of the parameters that occur in `text`, with the text it makes.
pub(super) fn expand(
    text: &str,
    parameters: &BTreeMap<String, Vec<String>>,
) -> Vec<(String, Vec<(String, String)>)> {
    let mut combinations = vec![Vec::new()];
    for (name, values) in parameters {
        if !text.contains(&format!("{{{name}}}")) {
            continue;
        }
        combinations = combinations
            .iter()
            .flat_map(|combination: &Vec<(String, String)>| {
                values.iter().map(move |value| {
                    let mut combination = combination.clone();
                    combination.push((name.clone(), value.clone()));
                    combination
                })
            })
            .collect();
    }
    combinations.into_iter().map(|values| (substitute(text, &values), values)).collect()
}
