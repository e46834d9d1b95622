//! The workloads of a study: their keys, their notation and their defaults.
//!
//! A load that stands in a file (a program, a job) keeps its path here; reading the file is the
//! caller's business, since nothing in this room does I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::profile::WorkloadQuickText;
use super::{StudyError, error};
use crate::load::{
    BonnieLoad, DbenchLoad, DbenchReplayLoad, FioLoad, FioMatrixLoad, Load, ObjectsLoad,
    QUEUE_ENGINES, TreeLoad, TreeSource,
};
use crate::quantity::{parse_duration, parse_size};
use crate::spec::{CommandLine, Workload};

/// A workload as written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct WorkloadText {
    /// Name in tables; the command's text by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why this load is in the study.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A line for the shell, or a list of words that is executed as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandText>,
    /// File with a program of the object language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<PathBuf>,
    /// The text of such a program, in the place of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// A tarball, or `synthetic:FILES`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// A fio job file, or options such as `rw=randrw bs=4k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<String>,
    /// The flash study's matrix of fio runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fio_matrix: bool,
    /// Clients of the installed dbench.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dbench: Option<u32>,
    /// `CLIENTS[:LOADFILE]` of kurabe's replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dbench_replay: Option<String>,
    /// The installed bonnie++.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bonnie: bool,
    /// Store of an object program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Factor on the counts of an object program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Whether an object program's contents are checked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// Whether every put of an object program is made durable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sync_puts: bool,
    /// Size of the cannyls store's blocks, or the block sizes of the fio matrix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_size: Vec<String>,
    /// Size of the files of `fio-matrix` and `bonnie`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Length of a dbench run, or of each cell of the fio matrix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// fio's engines for the cells of the matrix that have a queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engine: Vec<String>,
    /// Shell for the lines of this workload (`sh` by default); `none` splits them into words and
    /// starts them without a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Run once a trial in the mounted directory, before caches are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandText>,
    /// Run right before the measured run, after caches were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<CommandText>,
    /// Run after the run and its sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<CommandText>,
    /// Whether another exit code than 0 still counts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_failure: bool,
    /// What the study's quick profile changes of this load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<WorkloadQuickText>,
}

/// A command as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandText {
    /// A line.
    Line(String),
    /// Words.
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
    /// Whether a command or another load is named.
    pub fn names_a_load(&self) -> bool {
        self.command.is_some() || !self.load_keys().is_empty()
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = &CommandText> {
        [&self.command, &self.setup, &self.prepare, &self.cleanup].into_iter().flatten()
    }

    pub(super) fn resolve(
        &self,
        index: usize,
        parameters: &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<Workload>, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        let Some(command) = &self.command else {
            return Ok(vec![self.resolve_load(index)?]);
        };
        self.refuse_load_keys(index)?;
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
        // The placeholders of all commands of the workload are expanded together.
        let joined: Vec<String> = self.commands().map(CommandText::to_string).collect();
        let mut workloads = Vec::new();
        for (_, values) in expand(&joined.join("\n"), parameters) {
            let line = |name: &str, text: &CommandText| {
                resolve_command(text, shell.as_deref(), &values)
                    .map_err(|problem| error(field(name), problem))
            };
            let optional = |name: &str, text: &Option<CommandText>| {
                text.as_ref().map(|text| line(name, text)).transpose()
            };
            let command = line("command", command)?;
            let mut name = match &self.name {
                Some(name) => substitute(name, &values),
                None => command.to_string(),
            };
            if self.name.as_ref().is_some_and(|text| *text == name) && !values.is_empty() {
                let values: Vec<String> =
                    values.iter().map(|(name, value)| format!("{name}={value}")).collect();
                name = format!("{name} {}", values.join(" "));
            }
            if name.trim().is_empty() {
                return Err(error(field("name"), "is empty; name the workload"));
            }
            workloads.push(Workload {
                name,
                why: self.why.clone(),
                setup: optional("setup", &self.setup)?,
                prepare: optional("prepare", &self.prepare)?,
                cleanup: optional("cleanup", &self.cleanup)?,
                ignore_failure: self.ignore_failure,
                load: Load::Command { command },
            });
        }
        Ok(workloads)
    }
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

/// Seconds that a dbench run counts by default; the publication's were 600.
pub(super) const DBENCH_SECONDS_DEFAULT: u32 = 60;
/// Load file of Debian's dbench package.
const DBENCH_LOAD_FILE: &str = "/usr/share/dbench/client.txt";
/// Size of the matrix's files by default.
pub(super) const MATRIX_SIZE_DEFAULT: &str = "1G";
/// Length of a cell of the matrix by default.
pub(super) const MATRIX_CELL_DEFAULT: &str = "3s";
/// Block sizes of the matrix by default: the publication's axis.
const MATRIX_BLOCK_SIZES: &[&str] =
    &["4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"];
/// Size of bonnie++'s files by default.
pub(super) const BONNIE_SIZE_DEFAULT: &str = "1G";
/// bonnie++'s own default of files to create, in units of 1024.
const BONNIE_FILES_DEFAULT: u32 = 16;

impl WorkloadText {
    /// The keys of loads that are written, in the order of the documentation.
    fn load_keys(&self) -> Vec<&'static str> {
        [
            ("objects", self.objects.is_some()),
            ("program", self.program.is_some()),
            ("tree", self.tree.is_some()),
            ("fio", self.fio.is_some()),
            ("fio-matrix", self.fio_matrix),
            ("dbench", self.dbench.is_some()),
            ("dbench-replay", self.dbench_replay.is_some()),
            ("bonnie", self.bonnie),
        ]
        .into_iter()
        .filter_map(|(key, written)| written.then_some(key))
        .collect()
    }

    /// Options that are written, each with the loads that take it.
    fn option_keys(&self) -> Vec<(&'static str, &'static [&'static str])> {
        [
            ("store", self.store.is_some(), &["objects", "program"][..]),
            ("scale", self.scale.is_some(), &["objects", "program"]),
            ("verify", self.verify, &["objects", "program"]),
            ("sync-puts", self.sync_puts, &["objects", "program"]),
            ("block-size", !self.block_size.is_empty(), &["objects", "program", "fio-matrix"]),
            ("size", self.size.is_some(), &["fio-matrix", "bonnie"]),
            ("engine", !self.engine.is_empty(), &["fio-matrix"]),
            ("time", self.time.is_some(), &["fio-matrix", "dbench", "dbench-replay"]),
        ]
        .into_iter()
        .filter_map(|(key, written, loads)| written.then_some((key, loads)))
        .collect()
    }

    fn refuse_load_keys(&self, index: usize) -> Result<(), StudyError> {
        let mut keys = self.load_keys();
        keys.extend(self.option_keys().into_iter().map(|(key, _)| key));
        match keys.first() {
            Some(key) => Err(error(
                format!("workload[{index}].{key}"),
                "does not go with a command; leave one of them out",
            )),
            None => Ok(()),
        }
    }

    /// A workload that is more than a command.
    fn resolve_load(&self, index: usize) -> Result<Workload, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        let key = match self.load_keys().as_slice() {
            [key] => *key,
            [] => {
                return Err(error(
                    field("command"),
                    "is missing; say what to run, or name another load: objects, tree, fio, fio-matrix, dbench, dbench-replay or bonnie",
                ));
            }
            [one, other, ..] => {
                return Err(error(
                    field(other),
                    format!("does not go with {one}; make it a workload of its own"),
                ));
            }
        };
        for (option, loads) in self.option_keys() {
            if !loads.contains(&key) {
                let problem =
                    format!("is an option of {}, not of {key}; leave it out", loads.join(" and "));
                return Err(error(field(option), problem));
            }
        }
        if self.shell.is_some() {
            return Err(error(
                field("shell"),
                "is for commands only; setup, prepare and cleanup of another load run under sh",
            ));
        }
        if self.ignore_failure {
            return Err(error(
                field("ignore-failure"),
                "is for commands only; another load that fails has no figures",
            ));
        }
        let load = match key {
            "objects" | "program" => Load::Objects(self.resolve_objects(index)?),
            "tree" => Load::Tree(self.resolve_tree(index)?),
            "fio" => Load::Fio(self.resolve_fio(index)?),
            "fio-matrix" => Load::FioMatrix(self.resolve_matrix(index)?),
            "dbench" => Load::Dbench(DbenchLoad {
                clients: clients(self.dbench.unwrap_or_default(), &field(key))?,
                seconds: self.seconds(index)?,
            }),
            "dbench-replay" => Load::DbenchReplay(self.resolve_replay(index)?),
            _ => Load::Bonnie(BonnieLoad {
                size_bytes: self.size_bytes(index, BONNIE_SIZE_DEFAULT)?,
                files: BONNIE_FILES_DEFAULT,
            }),
        };
        let shell = vec!["sh".to_string()];
        let line = |name: &str, text: &Option<CommandText>| {
            text.as_ref()
                .map(|text| {
                    resolve_command(text, Some(&shell), &[])
                        .map_err(|problem| error(field(name), problem))
                })
                .transpose()
        };
        Ok(Workload {
            name: self.name.clone().unwrap_or_else(|| self.load_name(key)),
            why: self.why.clone(),
            setup: line("setup", &self.setup)?,
            prepare: line("prepare", &self.prepare)?,
            cleanup: line("cleanup", &self.cleanup)?,
            ignore_failure: self.ignore_failure,
            load,
        })
    }

    fn load_name(&self, key: &str) -> String {
        let text = match key {
            "objects" => self.objects.as_ref().map(|path| path.display().to_string()),
            "tree" => self.tree.clone(),
            "fio" => self.fio.clone(),
            "dbench" => self.dbench.map(|clients| clients.to_string()),
            "dbench-replay" => self.dbench_replay.clone(),
            _ => None,
        };
        match text {
            Some(text) => format!("{key} {}", text.rsplit('/').next().unwrap_or(&text)),
            None => key.to_string(),
        }
    }

    fn resolve_objects(&self, index: usize) -> Result<ObjectsLoad, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        let scale = self.scale.unwrap_or(1.0);
        if !(scale > 0.0 && scale <= 1e6) {
            return Err(error(
                field("scale"),
                format!("{scale} is no factor; it must be above 0, such as 0.02"),
            ));
        }
        let block_size_bytes = match self.block_size.as_slice() {
            // Btrfs takes direct I/O in units of 4096 bytes only, and all contenders must run alike.
            [] => 4096,
            [text] => match parse_size(text) {
                Ok(bytes @ (512 | 4096)) => bytes as u32,
                _ => {
                    return Err(error(
                        field("block-size"),
                        format!("'{text}' is neither 512 nor 4096"),
                    ));
                }
            },
            _ => return Err(error(field("block-size"), "must be one size, 512 or 4096")),
        };
        if self.program.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(error(field("program"), "is empty; say what to do"));
        }
        Ok(ObjectsLoad {
            // A program without a file is known by its workload's name in messages.
            path: self.objects.clone().unwrap_or_else(|| {
                self.name.clone().unwrap_or_else(|| "program".to_string()).into()
            }),
            program: self.program.clone().unwrap_or_default(),
            store: self.store.clone().unwrap_or_else(|| "cannyls".into()),
            scale,
            verify: self.verify,
            block_size_bytes,
            sync_puts: self.sync_puts,
        })
    }

    fn resolve_tree(&self, index: usize) -> Result<TreeLoad, StudyError> {
        let text = self.tree.as_deref().unwrap_or_default();
        let source = match text.strip_prefix("synthetic:") {
            None if text.is_empty() => {
                return Err(error(
                    format!("workload[{index}].tree"),
                    "is empty; name a tarball, or synthetic:FILES",
                ));
            }
            None => TreeSource::Tarball(text.into()),
            Some(files) => match files.parse() {
                Ok(files) if files > 0 => TreeSource::Synthetic { files, seed: 0 },
                _ => {
                    return Err(error(
                        format!("workload[{index}].tree"),
                        format!("'{files}' is no number of files, as in synthetic:10000"),
                    ));
                }
            },
        };
        Ok(TreeLoad { source, facts: None })
    }

    fn resolve_fio(&self, index: usize) -> Result<FioLoad, StudyError> {
        let text = self.fio.clone().unwrap_or_default();
        if text.trim().is_empty() {
            return Err(error(
                format!("workload[{index}].fio"),
                "is empty; name a job file, or options such as 'rw=randrw bs=4k'",
            ));
        }
        // A job file has no '=' in its name, and options have one each.
        Ok(match text.contains('=') {
            true => FioLoad { path: None, text },
            false => FioLoad { path: Some(text.into()), text: String::new() },
        })
    }

    fn resolve_matrix(&self, index: usize) -> Result<FioMatrixLoad, StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        let cell = self.time.as_deref().unwrap_or(MATRIX_CELL_DEFAULT);
        let sizes: Vec<String> = match self.block_size.is_empty() {
            true => MATRIX_BLOCK_SIZES.iter().map(ToString::to_string).collect(),
            false => self.block_size.clone(),
        };
        let block_sizes_bytes = sizes
            .iter()
            .map(|text| parse_size(text).map_err(|problem| error(field("block-size"), problem)))
            .collect::<Result<_, _>>()?;
        Ok(FioMatrixLoad {
            size_bytes: self.size_bytes(index, MATRIX_SIZE_DEFAULT)?,
            cell_ns: parse_duration(cell)
                .map_err(|problem| error(field("time"), problem))?
                .as_nanos() as u64,
            block_sizes_bytes,
            engines: self.engines(&field("engine"))?,
        })
    }

    fn engines(&self, field: &str) -> Result<Vec<String>, StudyError> {
        if self.engine.is_empty() {
            return Ok(vec![QUEUE_ENGINES[0].into()]);
        }
        for engine in &self.engine {
            if !QUEUE_ENGINES.contains(&engine.as_str()) {
                let known = QUEUE_ENGINES.join(" or ");
                return Err(error(
                    field,
                    format!(
                        "'{engine}' keeps no queue; the cells without one have psync anyway, those with one {known}"
                    ),
                ));
            }
        }
        let mut engines = self.engine.clone();
        engines.dedup();
        Ok(engines)
    }

    fn resolve_replay(&self, index: usize) -> Result<DbenchReplayLoad, StudyError> {
        let field = format!("workload[{index}].dbench-replay");
        let text = self.dbench_replay.as_deref().unwrap_or_default();
        let (count, load_file) = match text.split_once(':') {
            Some((count, file)) if !file.is_empty() => (count, file),
            Some(_) => {
                return Err(error(
                    field,
                    "names no load file after ':'; leave ':' out for dbench's own",
                ));
            }
            None => (text, DBENCH_LOAD_FILE),
        };
        let count = count.parse().map_err(|_| {
            error(&field, format!("'{count}' is no number of clients; write CLIENTS[:LOADFILE]"))
        })?;
        Ok(DbenchReplayLoad {
            clients: clients(count, &field)?,
            seconds: self.seconds(index)?,
            load_file: load_file.into(),
        })
    }

    fn seconds(&self, index: usize) -> Result<u32, StudyError> {
        let Some(text) = &self.time else { return Ok(DBENCH_SECONDS_DEFAULT) };
        let field = format!("workload[{index}].time");
        let duration = parse_duration(text).map_err(|problem| error(&field, problem))?;
        match duration.as_secs() {
            seconds @ 1..=1_000_000 if duration.subsec_nanos() == 0 => Ok(seconds as u32),
            _ => {
                Err(error(field, format!("'{text}' must be whole seconds, as dbench counts them")))
            }
        }
    }

    fn size_bytes(&self, index: usize, default: &str) -> Result<u64, StudyError> {
        parse_size(self.size.as_deref().unwrap_or(default))
            .map_err(|problem| error(format!("workload[{index}].size"), problem))
    }
}

fn clients(count: u32, field: &str) -> Result<u32, StudyError> {
    match count {
        1..=10_000 => Ok(count),
        _ => Err(error(field, format!("{count} clients cannot be run; give 1 to 10000"))),
    }
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
