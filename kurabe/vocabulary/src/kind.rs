//! The kinds of workload: what a study file and the command line write of one, and what can be asked of
//! and done with one load of a kind.
//!
//! A kind is one file that implements [`Generator`], and one line in a table of [`WorkloadKind`]s. Flags,
//! keys, completions and the reference come from that table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::capacity::Capacity;
use crate::quantity::{parse_duration, parse_size, size_text};
use crate::report::{ExcludedPhase, WorkloadReport};
use crate::suggestion::unknown;
use crate::workload::{Loss, WorkloadOptions, WorkloadSpec, WorkloadTarget, WorkloadTask};

/// A workload of one kind: what it needs, what it reports, and its work.
pub trait Generator {
    /// Reads what a person wrote.
    fn parse(written: &Written<'_>) -> Result<Self, KeyError>
    where
        Self: Sized;

    /// Multiplies the amount of work in what a person wrote; a workload without an amount stays as it
    /// is.
    fn scale(_written: &mut Keys, _factor: f64) -> Result<(), KeyError>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// The measures of how much of it is done; the same ones for every workload of the kind, or none.
    fn amounts(&self) -> Vec<Amount> {
        Vec::new()
    }

    /// What is left of it without its amounts: loads in which this is equal differ in these alone.
    fn settings(&self) -> Value;

    /// How much is done, in words; `None` where its name or its program says it all.
    fn amount(&self) -> Option<String> {
        None
    }

    /// Reads the files that it names (programs, jobs) into it. Touches nothing.
    ///
    /// Errors: a file that cannot be read or understood; the text points at the place.
    fn read(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// What is going to take a while to look through, when it is read.
    fn slow_to_read(&self) -> Option<&Path> {
        None
    }

    /// What this machine lacks, a line each with the next step; empty when nothing.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// The programs that it runs besides kurabe, where they are installed.
    fn programs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Refuses options that the installed tool does not take. Nothing is refused where the tool is
    /// missing.
    ///
    /// Errors: the option and its value, with the tool's words and the next step.
    fn check_options(&self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses a workload that cannot run here: a tool that is missing, more data than there is capacity
    /// for. Touches nothing; the workload's files must have been read.
    ///
    /// Errors: what is missing, with the package; or both sizes.
    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String>;

    /// What it is going to do, in words, and whether it fits; its files must have been read.
    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String>;

    /// The names of the metrics that it can report, the most important first.
    fn metrics(&self) -> Vec<String>;

    /// The kinds of operation of which it can report latencies.
    fn operations(&self) -> Vec<String> {
        Vec::new()
    }

    /// The names of the checks that it makes; its files must have been read.
    fn checks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a run lasts long by itself, so that contenders gain nothing by turns.
    fn lasts_long(&self) -> bool {
        false
    }

    /// Whether it lays something out before it is measured.
    fn has_setup(&self) -> bool {
        false
    }

    /// Lays out what must be there before the run is measured.
    ///
    /// Errors: what failed, in words for a record.
    fn set_up(&self, _task: &WorkloadTask, _stop: &AtomicBool) -> Result<LaidOut, String> {
        Ok(LaidOut::default())
    }

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

    /// Files outside its target that it reads while it runs, as the user as whom it runs.
    fn inputs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whether it needs the network.
    fn reaches_out(&self) -> bool {
        false
    }

    /// The measured part of a trial, or the part of it that the task names.
    ///
    /// Errors: what failed, in words for a record.
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String>;

    /// Whether it says what it has made durable ([`WorkloadTask::acknowledgements`]) and can look for that
    /// after a power cut.
    fn acknowledges(&self) -> bool {
        false
    }

    /// Why it cannot look for that on a raw device, where it can on a file system.
    fn why_not_on_raw(&self) -> Option<String> {
        None
    }

    /// Why it cannot work there, although loads of its kind can.
    fn why_not_on(&self, _ground: BareTarget) -> Option<String> {
        None
    }

    /// The name of a job of it that trims the device on which it works, which no file system takes, and a device only
    /// where the study lets blocks be discarded.
    fn trims(&self) -> Option<String> {
        None
    }

    /// Looks for what it had acknowledged, a line each, after a power cut.
    fn find_loss(&self, _task: &WorkloadTask, _acknowledged: &str) -> Result<Option<Loss>, String> {
        Err("this workload does not know what a power failure may lose".into())
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
    parse: fn(&Written<'_>) -> Result<WorkloadOptions, KeyError>,
    scale: fn(&mut Keys, f64) -> Result<(), KeyError>,
    read: fn(&WorkloadOptions) -> Result<WorkloadOptions, String>,
    open: fn(&WorkloadOptions) -> Result<Box<dyn Generator>, String>,
}

impl fmt::Debug for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl WorkloadKind {
    /// The kind of workloads that `G` is.
    pub const fn of<G: Generator + Serialize + DeserializeOwned + 'static>(
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
            parse: |written| G::parse(written).map(|load| options_of(&load)),
            scale: G::scale,
            read: |options| {
                let mut load: G = typed(options)?;
                load.read()?;
                Ok(options_of(&load))
            },
            open: |options| Ok(Box::new(typed::<G>(options)?)),
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
    pub fn parse(&self, written: &Written<'_>) -> Result<WorkloadSpec, KeyError> {
        for (name, value) in written.keys {
            let key = self.key(name).expect("the caller chose the kind by its keys");
            if let Some(problem) = key.form.problem(value) {
                return Err(KeyError::new(name, problem));
            }
        }
        Ok(WorkloadSpec { kind: self.name.into(), options: (self.parse)(written)? })
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

    fn of(self, load: &WorkloadSpec) -> Result<&'static WorkloadKind, String> {
        self.find(&load.kind).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|kind| kind.name).collect();
            unknown("kind of workload is called", &load.kind, &names)
        })
    }

    /// A workload, ready to be asked and carried out.
    pub fn open(self, load: &WorkloadSpec) -> Result<Box<dyn Generator>, String> {
        (self.of(load)?.open)(&load.options)
            .map_err(|problem| format!("the options of the workload {}: {problem}", load.kind))
    }

    /// Reads the files that a workload names (programs, jobs) into it. Touches nothing.
    pub fn read(self, load: &mut WorkloadSpec) -> Result<(), String> {
        load.options = (self.of(load)?.read)(&load.options)?;
        Ok(())
    }

    /// Whether a workload is kept in its contender.
    pub fn is_enclosed(self, load: &WorkloadSpec) -> bool {
        self.find(&load.kind).is_some_and(|kind| kind.is_enclosed)
    }

    /// Whether a workload is a server.
    pub fn is_server(self, load: &WorkloadSpec) -> bool {
        self.find(&load.kind).is_some_and(|kind| kind.is_server)
    }

    /// Whether a workload needs the network.
    pub fn reaches_out(self, load: &WorkloadSpec) -> bool {
        self.open(load).is_ok_and(|load| load.reaches_out())
    }

    /// Whether a workload has an option of this name.
    pub fn takes(self, load: &WorkloadSpec, option: &str) -> bool {
        self.find(&load.kind).is_some_and(|kind| kind.key(option).is_some())
    }

    /// Whether a workload can work there.
    pub fn works_on(self, load: &WorkloadSpec, ground: BareTarget) -> bool {
        self.find(&load.kind).is_some_and(|kind| kind.grounds.contains(&ground))
    }

    /// The keys of the workloads that can work there: `objects, fio and fio-matrix`.
    pub fn named_on(self, ground: BareTarget) -> Vec<&'static str> {
        let kinds = self.0.iter().filter(|kind| kind.grounds.contains(&ground));
        kinds.map(|kind| kind.name).collect()
    }
}

/// The directory of a target; workloads that need files are never given a device.
pub fn directory_of(target: &WorkloadTarget) -> Result<&Path, String> {
    match target {
        WorkloadTarget::Directory(directory) => Ok(directory),
        WorkloadTarget::Device(device) | WorkloadTarget::Minfs(device) => {
            Err(format!("this workload needs files, and {} is a device", device.display()))
        }
    }
}
