//! The result directory: the interface between measuring and reporting.
//!
//! | file | what | written |
//! | --- | --- | --- |
//! | `plan.json` | the resolved study, seed and order | once, before the first trial |
//! | `study.toml` | the study file that equals what was asked | once |
//! | `facts.json` | the machine, the device, the tools | once a session; earlier ones become `facts-N.json` |
//! | `records.jsonl` | one record a line, appended and synced as each trial ends | as trials end |
//! | `histograms/trial-N.hlog` | latencies of trial N, in HdrHistogram's log format | before its record |
//! | `traces/trial-N.trace` | requests that reached the device in trial N, where they are traced | before its record |
//! | `comparisons.json` | what the statistics say | after every block |
//! | `.lock` | the number of the process that writes, or wrote last | when it begins |
//!
//! Invariants: the directory is opened once and used by descriptor, and so is every file in it; what
//! somebody else owns or can write is refused before it is read. `records.jsonl` only grows; a torn
//! last line (the machine died while it was written) is ignored by readers and dropped by the next
//! writer when it appends; every other file is replaced as a whole (written beside under a random
//! name, synced, renamed). Whoever has `.lock` locked is the only one who writes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{Directory, FileLock, LockError, Refused};

use crate::plan::Plan;
use crate::record::{FIRST_SESSION, Record, standing};
use crate::spec::SCHEMA_VERSION;

pub const PLAN_FILE: &str = "plan.json";
/// The study file that equals what was asked.
pub const STUDY_FILE: &str = "study.toml";
/// The machine's facts.
pub const FACTS_FILE: &str = "facts.json";
pub const RECORDS_FILE: &str = "records.jsonl";
/// The histograms of workloads that record latencies, one file a trial.
pub const HISTOGRAMS_DIRECTORY: &str = "histograms";
/// The traces of the device's requests, one file a trial.
pub const TRACES_DIRECTORY: &str = "traces";
pub const COMPARISONS_FILE: &str = "comparisons.json";
/// What the one writer has locked.
pub const LOCK_FILE: &str = ".lock";

/// Bytes of all records together.
const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Rights of a result, whatever the umask would allow: what others can write is believed by no
/// later kurabe.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// File of a trial's histograms in [`HISTOGRAMS_DIRECTORY`].
pub fn histogram_file(trial: u32) -> String {
    format!("trial-{trial}.hlog")
}

/// File of a trial's trace in [`TRACES_DIRECTORY`].
pub fn trace_file(trial: u32) -> String {
    format!("trial-{trial}.trace")
}

/// Why a result directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// A file could not be read or written, or is not believed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file is there but cannot be understood.
    #[error("{path}{place}: {problem}", path = path.display(), place = line.map(|line| format!(":{line}")).unwrap_or_default())]
    Damaged {
        path: PathBuf,
        /// Line, from 1, where one is meant.
        line: Option<usize>,
        problem: String,
    },
    /// The directory holds no result, or one already.
    #[error("{path}: {problem}", path = path.display())]
    Wrong {
        path: PathBuf,
        /// What is wrong and the next step.
        problem: String,
    },
}

/// Everything that a result directory says, as far as it can be read.
#[derive(Debug, Clone)]
pub struct StoredResult {
    pub directory: Arc<Directory>,
    pub plan: Plan,
    /// The records that stand, in the order in which the trials ended.
    pub records: Vec<Record>,
    /// Those that a later session superseded ([`standing`]).
    pub superseded: Vec<Record>,
    /// The machine's facts, as they were written; readers show what they know of them.
    pub facts: Option<serde_json::Value>,
    /// Those of the sessions before, the first one's first; null where they could not be read.
    pub earlier_facts: Vec<serde_json::Value>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
}

impl StoredResult {
    /// Reads a result directory. Only a missing or unreadable plan is an error, and a directory that
    /// is not believed; a damaged record is left out and named in `damage`.
    pub fn read(path: &Path) -> Result<StoredResult, ResultError> {
        StoredResult::read_in(open(path)?)
    }

    /// The same of a directory that is open.
    pub fn read_in(directory: Arc<Directory>) -> Result<StoredResult, ResultError> {
        let plan = read_plan(&directory.path().join(PLAN_FILE), &directory.read_text(PLAN_FILE)?)?;
        let mut damage = Vec::new();
        let records = read_records(&directory, &plan, &mut damage)?;
        let (records, superseded) = standing(records);
        let facts = match read_json(&directory, FACTS_FILE) {
            Ok(facts) => Some(facts),
            Err(error) => {
                damage.push(error.to_string());
                None
            }
        };
        let earlier_facts = (1..)
            .map(earlier_facts_file)
            .take_while(|name| directory.has(name))
            .map(|name| {
                read_json(&directory, &name).unwrap_or_else(|error| {
                    damage.push(format!("{error}; its filling is missing from the time spent"));
                    serde_json::Value::Null
                })
            })
            .collect();
        Ok(StoredResult { directory, plan, records, superseded, facts, earlier_facts, damage })
    }

    /// What the study has taken so far, in ns: the filling of the device and the trials of every
    /// session, whether they still count or not. A budget bounds all of it.
    pub fn spent_ns(&self) -> u64 {
        let fill_ns = |facts: &serde_json::Value| facts.pointer("/device/fill_ns")?.as_u64();
        let fillings = self.earlier_facts.iter().chain(&self.facts).filter_map(fill_ns);
        let records = self.records.iter().chain(&self.superseded);
        let trials = records.map(Record::own_elapsed_ns);
        fillings.chain(trials).fold(0, u64::saturating_add)
    }
}

/// The facts of the session with this number, from 1, once another one has begun.
fn earlier_facts_file(session: u32) -> String {
    format!("facts-{session}.json")
}

fn no_plan(directory: &Path) -> ResultError {
    const NEXT: &str = "name a directory such as kurabe-results/NAME-TIME";
    let problem = if directory.exists() {
        format!("holds no {PLAN_FILE}, so it is no result of kurabe; {NEXT}")
    } else {
        format!("does not exist; {NEXT}")
    };
    ResultError::Wrong { path: directory.into(), problem }
}

/// What every version of the plan and of a record begins with.
#[derive(Deserialize)]
struct Head {
    schema: u32,
}

fn newer(schema: u32) -> String {
    format!(
        "is of schema {schema}, and this kurabe knows up to {SCHEMA_VERSION}; use a newer kurabe"
    )
}

/// Opens a directory that holds a plan.
fn open(path: &Path) -> Result<Arc<Directory>, ResultError> {
    match Directory::open(path) {
        Ok(directory) if directory.has(PLAN_FILE) => Ok(directory.into()),
        Ok(_) => Err(no_plan(path)),
        Err(refused) if refused.is_missing() => Err(no_plan(path)),
        Err(refused) => Err(refused.into()),
    }
}

/// Reads the text of a plan; `path` is only named in errors.
pub fn read_plan(path: &Path, text: &str) -> Result<Plan, ResultError> {
    let damaged = |problem| ResultError::Damaged { path: path.into(), line: None, problem };
    // The schema comes first: a newer plan may not have the shape that is known here.
    let Head { schema } = parse_json(path, text)?;
    if schema > SCHEMA_VERSION {
        return Err(damaged(newer(schema)));
    }
    let plan: Plan = parse_json(path, text)?;
    plan.check().map_err(damaged)?;
    Ok(plan)
}

fn read_json<T: DeserializeOwned>(directory: &Directory, name: &str) -> Result<T, ResultError> {
    parse_json(&directory.path().join(name), &directory.read_text(name)?)
}

fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ResultError> {
    serde_json::from_str(text).map_err(|error| ResultError::Damaged {
        path: path.into(),
        line: Some(error.line()),
        problem: trust::text::line(&error.to_string()).into_owned(),
    })
}

/// Damaged lines that are shown one by one.
const DAMAGE_SHOWN_MAX: usize = 20;

fn read_records(
    directory: &Directory,
    plan: &Plan,
    damage: &mut Vec<String>,
) -> Result<Vec<Record>, ResultError> {
    let bytes = match directory.read(RECORDS_FILE, RECORDS_BYTES_MAX) {
        Err(refused) if refused.is_missing() => return Ok(Vec::new()),
        read => read?,
    };
    let path = directory.path().join(RECORDS_FILE);
    let mut records = Vec::new();
    let mut damaged = 0;
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match read_record(line, plan) {
            Ok(record) => records.push(record),
            Err(problem) => {
                damaged += 1;
                if damaged <= DAMAGE_SHOWN_MAX {
                    let problem = trust::text::line(&problem);
                    damage.push(format!("{}:{}: {problem}", path.display(), index + 1));
                }
            }
        }
    }
    if damaged > DAMAGE_SHOWN_MAX {
        let more = damaged - DAMAGE_SHOWN_MAX;
        damage.push(format!("{}: {more} more lines cannot be read", path.display()));
    }
    Ok(records)
}

/// Bytes of a log of histograms: 2048 intervals of a dozen kinds are below this.
const LOG_BYTES_MAX: u64 = 256 << 20;

pub fn read_histograms(directory: &Directory, trial: u32) -> Result<Vec<u8>, Refused> {
    let histograms = directory.open_directory(HISTOGRAMS_DIRECTORY)?;
    histograms.read(histogram_file(trial), LOG_BYTES_MAX)
}

fn read_record(line: &[u8], plan: &Plan) -> Result<Record, String> {
    // Also a line that lacks nothing but its end: the next writer drops it, so a reader must not
    // count it.
    if !line.ends_with(b"\n") {
        return Err("the line was not written to its end".into());
    }
    let problem = |error: serde_json::Error| error.to_string();
    let Head { schema } = serde_json::from_slice(line).map_err(problem)?;
    if schema > SCHEMA_VERSION {
        return Err(newer(schema));
    }
    let record: Record = serde_json::from_slice(line).map_err(problem)?;
    record.check_bounds()?;
    plan.check_record(&record)?;
    Ok(record)
}

/// The one writer of a result directory.
#[derive(Debug)]
pub struct ResultWriter {
    directory: Arc<Directory>,
    records: File,
    /// Bytes of the whole lines, while a torn one stands behind them.
    whole_bytes: Option<u64>,
    /// Directories that [`ResultWriter::create`] made, the outermost first; absent for a result
    /// that was there before.
    made: Option<Vec<PathBuf>>,
    _lock: FileLock,
}

impl ResultWriter {
    /// Makes the directory and writes the plan. A directory that holds a result already is
    /// refused, so that nothing is ever overwritten.
    pub fn create(path: &Path, plan: &Plan, study_file: &str) -> Result<ResultWriter, ResultError> {
        let absent = path.ancestors().take_while(|path| !path.as_os_str().is_empty());
        let absent = absent.take_while(|path| !path.exists());
        let mut made: Vec<PathBuf> = absent.map(Path::to_path_buf).collect();
        made.reverse();
        let not_here = |refused: Refused| ResultError::Wrong {
            path: path.into(),
            problem: format!(
                "the result cannot be written there: {refused}; name another place with --out DIR"
            ),
        };
        let directory = Arc::new(Directory::open_or_make(path, DIRECTORY_MODE).map_err(not_here)?);
        refuse_what_is_there(&directory)?;
        // Whoever has the lock is the only one who writes, the plan too; another one may have come
        // and gone between the question above and the lock.
        let lock = lock(&directory).map_err(|error| match error {
            ResultError::Refused(refused) => not_here(refused),
            error => error,
        })?;
        refuse_what_is_there(&directory)?;
        let records = open_records(&directory).map_err(not_here)?;
        let writer =
            ResultWriter { directory, records, whole_bytes: None, made: Some(made), _lock: lock };
        let written = writer
            .write(STUDY_FILE, study_file.as_bytes())
            .and_then(|()| writer.write_json(PLAN_FILE, plan));
        match written {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.withdraw();
                Err(error)
            }
        }
    }

    /// Opens an existing result to go on with it, and reads it when nobody else can be writing any
    /// more. A torn last line is dropped by the first [`ResultWriter::append`].
    pub fn resume(path: &Path) -> Result<(ResultWriter, StoredResult), ResultError> {
        let directory = open(path)?;
        // What cannot be gone on with is not even locked.
        read_plan(&path.join(PLAN_FILE), &directory.read_text(PLAN_FILE)?)?;
        let lock = lock(&directory)?;
        let stored = StoredResult::read_in(directory.clone())?;
        let records = open_records(&directory)?;
        let bytes = directory.read(RECORDS_FILE, RECORDS_BYTES_MAX)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole_bytes = (whole < bytes.len()).then_some(whole as u64);
        Ok((ResultWriter { directory, records, whole_bytes, made: None, _lock: lock }, stored))
    }

    /// Takes a result back that [`ResultWriter::create`] made, if no session of it began, so that a
    /// refusal leaves nothing behind. Of a result that was there before, nothing is taken.
    pub fn withdraw(self) {
        let Some(made) = self.made.as_ref().filter(|_| !self.directory.has(FACTS_FILE)) else {
            return;
        };
        for name in [STUDY_FILE, PLAN_FILE, RECORDS_FILE, LOCK_FILE] {
            let _ = self.directory.remove_file(name);
        }
        for directory in made.iter().rev() {
            // One that holds something else by now stays.
            let _ = fs::remove_dir(directory);
        }
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Appends one record and makes it durable. Its histograms go into a file of their own first,
    /// so that a record never names one that is not there; the record comes back without them. What could
    /// not be read again is written as a trial that failed.
    pub fn append(&mut self, record: Record) -> Result<Record, ResultError> {
        let mut record = record.within_bounds();
        if let Some(log) = record.load.as_mut().and_then(|load| load.histogram_log.take()) {
            let directory =
                self.directory.open_or_make_directory(HISTOGRAMS_DIRECTORY, DIRECTORY_MODE)?;
            directory.replace(histogram_file(record.trial), log.as_bytes(), FILE_MODE)?;
        }
        let failed = |error| Refused::system(&self.directory.path().join(RECORDS_FILE), error);
        if let Some(bytes) = self.whole_bytes.take() {
            self.records.set_len(bytes).map_err(failed)?;
        }
        let mut line = serde_json::to_vec(&record).expect("a record has a JSON form");
        line.push(b'\n');
        self.records.write_all(&line).and_then(|()| self.records.sync_data()).map_err(failed)?;
        Ok(record)
    }

    /// An empty file for the trace of a trial, in the place of one of an earlier session.
    pub fn begin_trace(&self, trial: u32) -> Result<File, ResultError> {
        let traces = self.directory.open_or_make_directory(TRACES_DIRECTORY, DIRECTORY_MODE)?;
        if traces.has(trace_file(trial)) {
            traces.remove_file(trace_file(trial))?;
        }
        Ok(traces.create_file(trace_file(trial), FILE_MODE)?)
    }

    /// Removes the file for a trace that was not written.
    pub fn drop_trace(&self, trial: u32) -> Result<(), ResultError> {
        let traces = self.directory.open_directory(TRACES_DIRECTORY)?;
        Ok(traces.remove_file(trace_file(trial))?)
    }

    /// Begins a session and gives its number, from 1: the facts of the one before are kept beside
    /// those that are written now.
    pub fn begin_session(&self, facts: &impl Serialize) -> Result<u32, ResultError> {
        let has = |session: &u32| self.directory.has(earlier_facts_file(*session));
        let mut session =
            (FIRST_SESSION..).find(|number| !has(number)).expect("numbers do not end");
        if self.directory.has(FACTS_FILE) {
            self.directory.rename(FACTS_FILE, earlier_facts_file(session))?;
            session += 1;
        }
        self.write_json(FACTS_FILE, facts)?;
        Ok(session)
    }

    /// Replaces a file of the result by the JSON of a value.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), ResultError> {
        let mut bytes = serde_json::to_vec_pretty(value).expect("the value has a JSON form");
        bytes.push(b'\n');
        self.write(name, &bytes)
    }

    /// Replaces a file of the result.
    pub fn write(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<(), ResultError> {
        Ok(self.directory.replace(name, bytes, FILE_MODE)?)
    }
}

fn refuse_what_is_there(directory: &Directory) -> Result<(), ResultError> {
    let wrong = |problem: &str| {
        Err(ResultError::Wrong { path: directory.path().into(), problem: problem.into() })
    };
    let has_records = match directory.open_file(RECORDS_FILE).map(|file| file.metadata()) {
        Ok(metadata) => metadata.is_ok_and(|metadata| metadata.len() > 0),
        Err(refused) => !refused.is_missing(),
    };
    if directory.has(PLAN_FILE) || has_records {
        return wrong(
            "holds a result already; go on with it by 'kurabe resume', or name another with --out",
        );
    }
    if directory.has(STUDY_FILE) {
        wrong("holds a study.toml already; name another with --out")
    } else {
        Ok(())
    }
}

fn lock(directory: &Directory) -> Result<FileLock, ResultError> {
    directory.lock(LOCK_FILE).map_err(|error| match error {
        LockError::Held { pid } => ResultError::Wrong {
            path: directory.path().into(),
            problem: format!("process {pid} is writing it; wait for it to end"),
        },
        LockError::Refused(refused) => refused.into(),
    })
}

fn open_records(directory: &Directory) -> Result<File, Refused> {
    if !directory.has(RECORDS_FILE) {
        directory.create_file(RECORDS_FILE, FILE_MODE)?;
        // The name must survive a crash too, or the records might as well not be there.
        directory.sync()?;
    }
    directory.append_file(RECORDS_FILE)
}

#[cfg(test)]
mod tests;
