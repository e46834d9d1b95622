//! The kinds of workload: what a study file and the command line write of one, and what can be asked of
//! and done with one load of a kind.
//!
//! A kind is one file that implements [`FromKeys`] and the parts of [`Generator`], and one line in a table of [`WorkloadKind`]s. Flags,
//! keys, completions and the reference come from that table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capacity::{self, Capacity};
use crate::command::CommandLine;
use crate::quantity::{parse_duration, parse_size, size_text};
use crate::report::{ExcludedPhase, TIME_METRIC, WorkloadReport};
use crate::suggestion::unknown;
use crate::workload::{Loss, STORE_OPTION, WorkloadOptions, WorkloadTarget, WorkloadTask};

/// A workload, as a value. It is asked and carried out in four parts; each has what most kinds need already.
pub trait Generator: Describe + Preflight + Run + Send + Sync {}

impl<G: Describe + Preflight + Run + Send + Sync> Generator for G {}

/// What a person writes of a kind.
pub trait FromKeys: Sized {
    fn parse(written: &Written<'_>) -> Result<Self, KeyError>;

    /// Multiplies the amount of work in what a person wrote; a workload without an amount stays as it
    /// is.
    fn scale(_written: &mut Keys, _factor: f64) -> Result<(), KeyError> {
        Ok(())
    }
}

/// What a workload is and reports.
pub trait Describe {
    fn description(&self) -> Description;

    /// What it is going to do, in words, and whether it fits; its files must have been read.
    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String>;
}

/// What a workload is and reports, in values: a kind names those that are not the default.
#[derive(Debug, Default)]
pub struct Description {
    /// The names of the metrics that it can report, the most important first.
    pub metrics: Vec<String>,
    /// The kinds of operation of which it can report latencies.
    pub operations: Vec<String>,
    /// The names of the checks that it makes; its files must have been read.
    pub checks: Vec<String>,
    /// The measures of how much of it is done; the same ones for every workload of the kind, or none.
    pub amounts: Vec<Amount>,
    /// How much is done, in words; `None` where its name or its program says it all.
    pub amount: Option<String>,
    /// What is left of it without its amounts: loads in which this is equal differ in these alone.
    pub settings: Value,
    /// Whether a run lasts long by itself, so that contenders gain nothing by turns.
    pub lasts_long: bool,
    /// Whether it lays something out before it is measured.
    pub has_setup: bool,
    /// The name of a job of it that trims the device on which it works, which no file system takes, and a device only
    /// where the study lets blocks be discarded.
    pub trims: Option<String>,
}

/// Whether a workload can run here.
pub trait Preflight {
    /// Reads the files that it names (programs, jobs) into it. Touches nothing.
    ///
    /// Errors: a file that cannot be read or understood; the text points at the place.
    fn read(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Refuses options that the installed tool does not take. Nothing is refused where the tool is
    /// missing.
    ///
    /// Errors: the option and its value, with the tool's words and the next step.
    fn check_options(&self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses a workload that cannot run here although nothing that it needs is missing: more data than there is
    /// capacity for. Touches nothing; the workload's files must have been read.
    ///
    /// Errors: why, with both sizes.
    fn check(&self, _capacity: Option<&Capacity>) -> Result<(), String> {
        Ok(())
    }

    /// Why it cannot work there, although loads of its kind can.
    fn why_not_on(&self, _ground: BareTarget) -> Option<String> {
        None
    }
}

/// What a workload needs around it.
#[derive(Debug, Default)]
pub struct Needs {
    /// What this machine lacks, a line each with the next step; empty when nothing.
    pub missing: Vec<String>,
    /// The programs that it runs besides kurabe, where they are installed.
    pub programs: Vec<PathBuf>,
    /// Files outside its target that it reads while it runs, as the user as whom it runs.
    pub inputs: Vec<PathBuf>,
    /// Whether it needs the network.
    pub network: bool,
    /// What is going to take a while to look through, when it is read.
    pub slow_to_read: Option<PathBuf>,
}

/// The work itself, in the process that carries it out.
pub trait Run {
    /// Lays out what must be there before the run is measured, where its description says that it does.
    ///
    /// Errors: what failed, in words for a record.
    fn set_up(&self, _task: &WorkloadTask, _stop: &AtomicBool) -> Result<LaidOut, String> {
        Ok(LaidOut::default())
    }

    /// The measured part of a trial, or the part of it that the task names.
    ///
    /// Errors: what failed, in words for a record.
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String>;

    /// In how many parts it can be run, on what was laid out once and in any order, while other
    /// contenders have their turns in between.
    fn parts(&self) -> u32 {
        1
    }

    /// The report of a run in those of all its parts, in the order in which they were run.
    fn whole(&self, mut parts: Vec<WorkloadReport>) -> Result<WorkloadReport, String> {
        match (parts.pop(), parts.is_empty()) {
            (Some(report), true) => Ok(report),
            _ => Err("a run of one part has one report".into()),
        }
    }

    /// How what it has made durable is looked for, where it says so.
    fn durability(&self) -> Option<&dyn Durability> {
        None
    }
}

/// A workload that says what it has made durable ([`WorkloadTask::acknowledgements`]).
pub trait Durability {
    /// Looks for what it had acknowledged, a line each, after a power cut.
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String>;

    /// Why it cannot look for that on a raw device, where it can on a file system.
    fn why_not_on_raw(&self) -> Option<String> {
        None
    }
}

/// What was laid out before a run.
#[derive(Debug, Default)]
pub struct LaidOut {
    /// What the run is to know of it: its [`WorkloadTask::prepared`].
    pub prepared: Value,
    /// The parts of it that are phases of their own, in order.
    pub excluded_phases: Vec<ExcludedPhase>,
}

impl From<Value> for LaidOut {
    fn from(prepared: Value) -> LaidOut {
        LaidOut { prepared, excluded_phases: Vec::new() }
    }
}

/// A measure of how much of a workload is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Amount {
    /// What is meant: `the counted time`.
    pub what: String,
    pub value: f64,
    /// The same in words, `3 s`; empty where a share of it says all.
    pub words: String,
}

impl Amount {
    pub fn new(what: impl Into<String>, value: f64, words: impl Into<String>) -> Amount {
        Amount { what: what.into(), value, words: words.into() }
    }

    pub fn size(what: impl Into<String>, bytes: u64) -> Amount {
        Amount::new(what, bytes as f64, size_text(bytes))
    }
}

/// Where a workload can work besides a mounted directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareTarget {
    /// The block device itself.
    Raw,
    /// A file system as a library in the workload's process.
    Library,
}

/// A key of a study file, and the flag of the same name.
#[derive(Debug)]
pub struct WorkloadKey {
    pub name: &'static str,
    /// What it does, for help and reference.
    pub help: &'static str,
    /// What is written for it.
    pub form: Form,
    /// What it is to the workload.
    pub role: KeyRole,
}

/// What is written for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `true`; a flag without a value.
    Switch,
    /// A text, called so in help: `FILE`.
    Text(&'static str),
    /// A text that may be options of another program, with dashes in front.
    Options(&'static str),
    Whole(&'static str),
    /// A number with or without a fraction.
    Decimal(&'static str),
    /// A list of texts; on the command line with commas between them.
    List(&'static str),
}

/// What a key is to its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// It names the workload.
    Load,
    /// It names the workload, in a study file alone: its value is too long for a flag.
    Program,
    Option,
}

impl WorkloadKey {
    /// A key that names a workload.
    pub const fn load(name: &'static str, form: Form, help: &'static str) -> WorkloadKey {
        WorkloadKey { name, help, form, role: KeyRole::Load }
    }

    pub const fn option(name: &'static str, form: Form, help: &'static str) -> WorkloadKey {
        WorkloadKey { name, help, form, role: KeyRole::Option }
    }

    pub fn names_workload(&self) -> bool {
        self.role != KeyRole::Option
    }
}

impl Form {
    /// What is wrong with a value of this form.
    fn problem(self, value: &Value) -> Option<String> {
        let (fits, expected) = match self {
            Form::Switch => (value.is_boolean(), "true or false"),
            Form::Text(_) | Form::Options(_) => (value.is_string(), "a text"),
            Form::Whole(_) => {
                let fits = value.as_u64().is_some_and(|number| u32::try_from(number).is_ok());
                (fits, "a whole number such as 4")
            }
            Form::Decimal(_) => (value.is_number(), "a number such as 0.5"),
            Form::List(_) => {
                let of_texts = |list: &Vec<Value>| list.iter().all(Value::is_string);
                (value.as_array().is_some_and(of_texts), "a list of texts, such as [\"4K\"]")
            }
        };
        (!fits).then(|| format!("{value} is not {expected}"))
    }
}

/// What is written of a workload, by key.
pub type Keys = BTreeMap<String, Value>;

/// What is wrong with a key of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    pub key: String,
    /// What is wrong, naming the value, and the next step.
    pub problem: String,
}

impl KeyError {
    pub fn new(key: &str, problem: impl fmt::Display) -> KeyError {
        KeyError { key: key.into(), problem: problem.to_string() }
    }
}

/// What is written of one load, every value of its key's form.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    pub keys: &'a Keys,
    /// Name of the workload, where one is written.
    pub name: Option<&'a str>,
}

impl<'a> Written<'a> {
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.keys.get(key)?.as_str()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.keys.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn whole(&self, key: &str) -> Option<u32> {
        self.keys.get(key)?.as_u64()?.try_into().ok()
    }

    pub fn decimal(&self, key: &str) -> Option<f64> {
        self.keys.get(key)?.as_f64()
    }

    /// A list of texts; empty where nothing is written.
    pub fn list(&self, key: &str) -> Vec<String> {
        let values = self.keys.get(key).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(String::from).collect()
    }

    /// A size in bytes.
    pub fn size(&self, key: &str, default: &str) -> Result<u64, KeyError> {
        parse_size(self.text(key).unwrap_or(default)).map_err(|problem| KeyError::new(key, problem))
    }

    pub fn duration(&self, key: &str, default: &str) -> Result<Duration, KeyError> {
        let text = self.text(key).unwrap_or(default);
        parse_duration(text).map_err(|problem| KeyError::new(key, problem))
    }
}

/// Files of scaled workloads are a multiple of this, so that any block size divides them.
pub const FILE_STEP_BYTES: u64 = 1 << 20;

/// A size multiplied, rounded up to a whole [`FILE_STEP_BYTES`].
pub fn scaled_bytes(bytes: u64, factor: f64) -> u64 {
    let scaled = (bytes as f64 * factor).round() as u64;
    (scaled.div_ceil(FILE_STEP_BYTES) * FILE_STEP_BYTES).max(FILE_STEP_BYTES)
}

/// Multiplies the size under a key, to no less than `least_bytes`.
pub fn scale_size(
    keys: &mut Keys,
    key: &str,
    default: &str,
    factor: f64,
    least_bytes: u64,
) -> Result<(), KeyError> {
    let bytes = Written { keys, name: None }.size(key, default)?;
    keys.insert(key.into(), size_text(scaled_bytes(bytes, factor).max(least_bytes)).into());
    Ok(())
}

/// An entry in a table of kinds.
pub struct WorkloadKind {
    /// Its name, in JSON.
    pub name: &'static str,
    /// Its keys, those that name it first.
    pub keys: &'static [WorkloadKey],
    /// Where it can work besides a mounted directory.
    pub grounds: &'static [BareTarget],
    /// Whether it is kept in its contender: it does what a text of another program's says, or what
    /// another program pleases.
    pub is_enclosed: bool,
    /// Whether it is a server and its clients: kept in its contender as a user without rights, with sockets
    /// by which its processes talk.
    pub is_server: bool,
    parse: fn(&Written<'_>) -> Result<(WorkloadOptions, Parsed), KeyError>,
    scale: fn(&mut Keys, f64) -> Result<(), KeyError>,
    read: fn(&WorkloadOptions) -> Result<(WorkloadOptions, Parsed), String>,
    open: fn(&WorkloadOptions) -> Result<Parsed, String>,
}

type Parsed = Arc<dyn Generator>;

impl fmt::Debug for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl WorkloadKind {
    /// The kind of workloads that `G` is.
    pub const fn of<G: FromKeys + Generator + Serialize + DeserializeOwned + 'static>(
        name: &'static str,
        keys: &'static [WorkloadKey],
        grounds: &'static [BareTarget],
    ) -> WorkloadKind {
        WorkloadKind {
            name,
            keys,
            grounds,
            is_enclosed: false,
            is_server: false,
            parse: |written| Ok(with_options(G::parse(written)?)),
            scale: G::scale,
            read: |options| {
                let mut load: G = typed(options)?;
                load.read()?;
                Ok(with_options(load))
            },
            open: |options| Ok(Arc::new(typed::<G>(options)?)),
        }
    }

    /// The same, kept in its contender.
    pub const fn enclosed(mut self) -> WorkloadKind {
        self.is_enclosed = true;
        self
    }

    /// A server, kept in its contender as a user without rights.
    pub const fn server(mut self) -> WorkloadKind {
        self.is_server = true;
        self.enclosed()
    }

    pub fn key(&self, name: &str) -> Option<&'static WorkloadKey> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// What a person wrote of one, understood. Every key must be one of the kind's.
    pub fn parse(&'static self, written: &Written<'_>) -> Result<WorkloadSpec, KeyError> {
        for (name, value) in written.keys {
            let key = self.key(name).expect("the caller chose the kind by its keys");
            if let Some(problem) = key.form.problem(value) {
                return Err(KeyError::new(name, problem));
            }
        }
        let (options, parsed) = (self.parse)(written)?;
        Ok(WorkloadSpec { kind: self.name.into(), options, parsed: Some((self, parsed)) })
    }

    /// Multiplies the amount of work.
    pub fn scale(&self, keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        (self.scale)(keys, factor)
    }
}

/// The options of a workload without those of these names.
pub fn options_without(load: &impl Serialize, names: &[&str]) -> Value {
    let mut options = options_of(load);
    options.retain(|name, _| !names.contains(&name.as_str()));
    options.into()
}

fn with_options<G: Generator + Serialize + 'static>(load: G) -> (WorkloadOptions, Parsed) {
    (options_of(&load), Arc::new(load))
}

fn options_of(load: &impl Serialize) -> WorkloadOptions {
    match serde_json::to_value(load) {
        Ok(Value::Object(options)) => options,
        other => panic!("a workload's options are an object: {other:?}"),
    }
}

fn typed<G: DeserializeOwned>(options: &WorkloadOptions) -> Result<G, String> {
    serde_json::from_value(Value::Object(options.clone())).map_err(|error| error.to_string())
}

#[derive(Debug, Clone, Copy)]
pub struct WorkloadKinds(pub &'static [WorkloadKind]);

impl WorkloadKinds {
    pub fn find(self, name: &str) -> Option<&'static WorkloadKind> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// The kind that a key names.
    pub fn named_by(self, key: &str) -> Option<&'static WorkloadKind> {
        self.0.iter().find(|kind| kind.key(key).is_some_and(WorkloadKey::names_workload))
    }

    /// The keys that name loads, in the table's order.
    pub fn naming(self) -> impl Iterator<Item = &'static WorkloadKey> {
        self.0.iter().flat_map(|kind| kind.keys).filter(|key| key.names_workload())
    }

    /// All keys, each with the kinds that have it, those that name loads first.
    pub fn keys(self) -> Vec<(&'static WorkloadKey, Vec<&'static WorkloadKind>)> {
        let mut found: Vec<(&'static WorkloadKey, Vec<&'static WorkloadKind>)> = Vec::new();
        let options =
            || self.0.iter().flat_map(|kind| kind.keys).filter(|key| !key.names_workload());
        for key in self.naming().chain(options()) {
            if !found.iter().any(|(known, _)| known.name == key.name) {
                let has_it = |kind: &&'static WorkloadKind| kind.key(key.name).is_some();
                found.push((key, self.0.iter().filter(has_it).collect()));
            }
        }
        found
    }

    /// Parses a workload that was stored: in a plan, a trial's spec, a task. From then on it is a value.
    ///
    /// Errors: no kind is called so, or one is and does not have these options.
    pub fn parse(self, stored: &mut WorkloadSpec) -> Result<(), String> {
        let kind = self.find(&stored.kind).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|kind| kind.name).collect();
            unknown("kind of workload is called", &stored.kind, &names)
        })?;
        let parsed = (kind.open)(&stored.options)
            .map_err(|problem| format!("the options of the workload {}: {problem}", stored.kind))?;
        stored.parsed = Some((kind, parsed));
        Ok(())
    }

    /// The keys of the workloads that can work there: `objects, fio and fio-matrix`.
    pub fn named_on(self, ground: BareTarget) -> Vec<&'static str> {
        let kinds = self.0.iter().filter(|kind| kind.grounds.contains(&ground));
        kinds.map(|kind| kind.name).collect()
    }
}

/// A workload: a kind with its options, and what they mean.
///
/// It is parsed once, where it comes from: from what a person wrote by [`WorkloadKind::parse`], from JSON by
/// [`WorkloadKinds::parse`]. A result can be reported whose kinds are unknown here: there nobody asks what the
/// options mean.
#[derive(Clone, Serialize, Deserialize)]
pub struct WorkloadSpec {
    /// The kind, a word such as `fio-matrix`.
    pub kind: String,
    #[serde(flatten)]
    options: WorkloadOptions,
    #[serde(skip)]
    parsed: Option<(&'static WorkloadKind, Parsed)>,
}

impl PartialEq for WorkloadSpec {
    fn eq(&self, other: &WorkloadSpec) -> bool {
        (&self.kind, &self.options) == (&other.kind, &other.options)
    }
}

impl fmt::Debug for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind, self.options)
    }
}

/// The kind of workloads that are commands: a process of the user's own, and none of kurabe's.
const COMMAND_NAME: &str = "command";

/// A command of the user's own. It is the one kind that the trial starts itself, and whose keys are
/// the study's: what comes before and after any workload is a command too.
pub const COMMAND: WorkloadKind = WorkloadKind::of::<CommandWorkload>(COMMAND_NAME, &[], &[]);

#[derive(Serialize, Deserialize)]
struct CommandWorkload {
    command: CommandLine,
}

impl FromKeys for CommandWorkload {
    fn parse(_: &Written<'_>) -> Result<CommandWorkload, KeyError> {
        Err(KeyError::new(COMMAND_NAME, "is read by the study"))
    }
}

impl Describe for CommandWorkload {
    fn description(&self) -> Description {
        Description {
            metrics: vec![TIME_METRIC.into()],
            settings: options_without(self, &[]),
            ..Description::default()
        }
    }

    fn plan(&self, _: Option<&Capacity>) -> Result<String, String> {
        let lines = capacity::lines(&[("command", self.command.to_string())]);
        Ok(lines + "what it writes is not known in advance\n")
    }
}

impl Preflight for CommandWorkload {}

impl Run for CommandWorkload {
    fn run(&self, _: &WorkloadTask, _: &AtomicBool) -> Result<WorkloadReport, String> {
        Err("a command is started without a task".into())
    }
}

impl WorkloadSpec {
    pub fn of_command(command: CommandLine) -> WorkloadSpec {
        let (options, parsed) = with_options(CommandWorkload { command });
        WorkloadSpec { kind: COMMAND_NAME.into(), options, parsed: Some((&COMMAND, parsed)) }
    }

    /// The command, of a workload that is one.
    pub fn command(&self) -> Option<CommandLine> {
        let value = self.options.get("command").filter(|_| self.kind == COMMAND_NAME)?;
        serde_json::from_value(value.clone()).ok()
    }

    pub fn option(&self, name: &str) -> Option<&Value> {
        self.options.get(name)
    }

    /// Seconds over which the workload counts its operations, of kinds that run for a time: they keep
    /// them under this name.
    pub fn counted_seconds(&self) -> Option<f64> {
        self.option("seconds")?.as_f64()
    }

    fn known(&self) -> &(&'static WorkloadKind, Parsed) {
        self.parsed.as_ref().expect("a workload is parsed where it comes from")
    }

    /// What kind of workload it is.
    pub fn of_kind(&self) -> &'static WorkloadKind {
        self.known().0
    }

    /// The workload, to be asked and carried out.
    pub fn parsed(&self) -> &dyn Generator {
        &*self.known().1
    }

    /// What cannot be done here: a tool that is missing, more data than there is capacity for.
    pub fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        match self.parsed().needs().missing.into_iter().next() {
            Some(missing) => Err(missing),
            None => self.parsed().check(capacity),
        }
    }

    /// Whether it runs on a store, of which it can be given another one.
    pub fn runs_on_store(&self) -> bool {
        self.of_kind().key(STORE_OPTION).is_some()
    }

    /// The workload on this store.
    pub fn on_store(mut self, store: &str) -> WorkloadSpec {
        self.options.insert(STORE_OPTION.into(), store.into());
        if let Some((kind, parsed)) = &mut self.parsed {
            *parsed = (kind.open)(&self.options).expect("another store is no other form");
        }
        self
    }

    /// Reads the files that it names (programs, jobs) into it. Touches nothing.
    pub fn read(&mut self) -> Result<(), String> {
        let kind = self.of_kind();
        let (options, parsed) = (kind.read)(&self.options)?;
        (self.options, self.parsed) = (options, Some((kind, parsed)));
        Ok(())
    }
}

/// The directory of a target; workloads that need files are never given a device.
pub fn directory_of(target: &WorkloadTarget) -> Result<&Path, String> {
    match target {
        WorkloadTarget::Directory(directory) => Ok(directory),
        WorkloadTarget::Device(device) | WorkloadTarget::Library(device) => {
            Err(format!("this workload needs files, and {} is a device", device.display()))
        }
    }
}
