//! The result directory: the interface between measuring and reporting.
//!
//! | file | what | written |
//! | --- | --- | --- |
//! | `plan.json` | the resolved study, seed and order | once, before the first trial |
//! | `study.toml` | the study file that equals what was asked | once |
//! | `facts.json` | the machine, the device, the tools | once a sitting; earlier ones become `facts-N.json` |
//! | `records.jsonl` | one record a line, appended and synced as each trial ends | as trials end |
//! | `histograms/trial-N.hlog` | latencies of trial N, in HdrHistogram's log format | before its record |
//! | `comparisons.json` | what the statistics say | after every block |
//!
//! Invariants: `records.jsonl` only grows; a torn last line (the machine died while it was
//! written) is dropped by the next writer and ignored by readers; every other file is replaced as
//! a whole (written beside, synced, renamed).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::record::{FIRST_SITTING, Record, standing};
use crate::spec::SCHEMA_VERSION;

/// The plan's file.
pub const PLAN_FILE: &str = "plan.json";
/// The study file that equals what was asked.
pub const STUDY_FILE: &str = "study.toml";
/// The machine's facts.
pub const FACTS_FILE: &str = "facts.json";
/// The records.
pub const RECORDS_FILE: &str = "records.jsonl";
/// The histograms of loads that record latencies, one file a trial.
pub const HISTOGRAMS_DIRECTORY: &str = "histograms";
/// File of a trial's histograms in a result directory.
pub fn histogram_path(directory: &Path, trial: u32) -> PathBuf {
    directory.join(HISTOGRAMS_DIRECTORY).join(format!("trial-{trial}.hlog"))
}

/// The comparisons.
pub const COMPARISONS_FILE: &str = "comparisons.json";

/// Why a result directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is there but cannot be understood.
    #[error("{path}{place}: {problem}", path = path.display(), place = line.map(|line| format!(":{line}")).unwrap_or_default())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line, from 1, where one is meant.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// The directory holds no result, or one already.
    #[error("{path}: {problem}", path = path.display())]
    Wrong {
        /// The directory.
        path: PathBuf,
        /// What is wrong and the next step.
        problem: String,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ResultError + '_ {
    move |source| ResultError::Io { path: path.into(), source }
}

/// Everything that a result directory says, as far as it can be read.
#[derive(Debug, Clone)]
pub struct StoredResult {
    /// The directory.
    pub directory: PathBuf,
    /// The plan.
    pub plan: Plan,
    /// The records that stand, in the order in which the trials ended.
    pub records: Vec<Record>,
    /// Those that a later sitting superseded ([`standing`]).
    pub superseded: Vec<Record>,
    /// The machine's facts, as they were written; readers show what they know of them.
    pub facts: Option<serde_json::Value>,
    /// Those of the sittings before, the first one's first; null where they could not be read.
    pub earlier_facts: Vec<serde_json::Value>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
}

impl StoredResult {
    /// Reads a result directory. Only a missing or unreadable plan is an error; a damaged record
    /// is left out and named in `damage`.
    pub fn read(directory: &Path) -> Result<StoredResult, ResultError> {
        let plan_path = directory.join(PLAN_FILE);
        if !plan_path.exists() {
            return Err(no_plan(directory));
        }
        // The schema comes first: a newer plan may not have the shape that is known here.
        let Head { schema } = read_json(&plan_path)?;
        let damaged =
            |problem| ResultError::Damaged { path: plan_path.clone(), line: None, problem };
        if schema > SCHEMA_VERSION {
            return Err(damaged(newer(schema)));
        }
        let plan: Plan = read_json(&plan_path)?;
        plan.check().map_err(damaged)?;
        let mut damage = Vec::new();
        let records = read_records(&directory.join(RECORDS_FILE), &plan, &mut damage)?;
        let (records, superseded) = standing(records);
        let facts_path = directory.join(FACTS_FILE);
        let facts = match read_json(&facts_path) {
            Ok(facts) => Some(facts),
            Err(error) => {
                damage.push(error.to_string());
                None
            }
        };
        let earlier_facts = (1..)
            .map(|sitting| directory.join(earlier_facts_file(sitting)))
            .take_while(|path| path.exists())
            .map(|path| {
                read_json(&path).unwrap_or_else(|error| {
                    damage.push(format!("{error}; its filling is missing from the time spent"));
                    serde_json::Value::Null
                })
            })
            .collect();
        let directory = directory.into();
        Ok(StoredResult { directory, plan, records, superseded, facts, earlier_facts, damage })
    }

    /// What the study has taken so far, in ns: the filling of the device and the trials of every
    /// sitting, whether they still count or not. A budget bounds all of it.
    pub fn spent_ns(&self) -> u64 {
        let fill_ns = |facts: &serde_json::Value| facts.pointer("/device/fill_ns")?.as_u64();
        let fillings = self.earlier_facts.iter().chain(&self.facts).filter_map(fill_ns);
        let records = self.records.iter().chain(&self.superseded);
        let trials = records.map(|record| record.elapsed_ns);
        fillings.chain(trials).fold(0, u64::saturating_add)
    }
}

/// The facts of the sitting with this number, from 1, once another one has begun.
fn earlier_facts_file(sitting: u32) -> String {
    format!("facts-{sitting}.json")
}

fn no_plan(directory: &Path) -> ResultError {
    ResultError::Wrong {
        path: directory.into(),
        problem: format!(
            "holds no {PLAN_FILE}, so it is no result of kurabe; name a directory such as kurabe-results/NAME-TIME"
        ),
    }
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

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ResultError> {
    let text = fs::read_to_string(path).map_err(io_error(path))?;
    serde_json::from_str(&text).map_err(|error| ResultError::Damaged {
        path: path.into(),
        line: Some(error.line()),
        problem: error.to_string(),
    })
}

fn read_records(
    path: &Path,
    plan: &Plan,
    damage: &mut Vec<String>,
) -> Result<Vec<Record>, ResultError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(path)(error)),
    };
    let mut records = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match read_record(line, plan) {
            Ok(record) => records.push(record),
            Err(problem) => damage.push(format!("{}:{}: {problem}", path.display(), index + 1)),
        }
    }
    Ok(records)
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
    plan.check_record(&record)?;
    Ok(record)
}

/// The one writer of a result directory.
#[derive(Debug)]
pub struct ResultWriter {
    directory: PathBuf,
    records: File,
    /// Directories that [`ResultWriter::create`] made, the outermost first; absent for a result
    /// that was there before.
    made: Option<Vec<PathBuf>>,
}

impl ResultWriter {
    /// Makes the directory and writes the plan. A directory that holds a result already is
    /// refused, so that nothing is ever overwritten.
    pub fn create(
        directory: &Path,
        plan: &Plan,
        study_file: &str,
    ) -> Result<ResultWriter, ResultError> {
        let absent = directory.ancestors().take_while(|path| !path.as_os_str().is_empty());
        let absent = absent.take_while(|path| !path.exists());
        let mut made: Vec<PathBuf> = absent.map(Path::to_path_buf).collect();
        made.reverse();
        let wrong = |problem: String| ResultError::Wrong { path: directory.into(), problem };
        let not_here = |error: io::Error| {
            wrong(format!(
                "the result cannot be written there: {error}; name another place with --out DIR"
            ))
        };
        fs::create_dir_all(directory).map_err(not_here)?;
        let refuse_what_is_there = || {
            if directory.join(PLAN_FILE).exists() || has_bytes(&directory.join(RECORDS_FILE)) {
                let advice = "go on with it by 'kurabe resume', or name another with --out";
                return Err(wrong(format!("holds a result already; {advice}")));
            }
            if directory.join(STUDY_FILE).exists() {
                let problem = "holds a study.toml already; name another with --out";
                return Err(wrong(problem.into()));
            }
            Ok(())
        };
        refuse_what_is_there()?;
        // Whoever has the lock is the only one who writes, the plan too; another one may have come
        // and gone between the question above and the lock.
        let writer = ResultWriter::open(directory).map_err(|error| match error {
            ResultError::Io { source, .. } => not_here(source),
            error => error,
        })?;
        refuse_what_is_there()?;
        let writer = ResultWriter { made: Some(made), ..writer };
        let written = replace(&directory.join(STUDY_FILE), study_file.as_bytes())
            .and_then(|()| replace_json(&directory.join(PLAN_FILE), plan));
        match written {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.withdraw();
                Err(error)
            }
        }
    }

    /// Opens an existing result to go on with it, and drops a torn last line. What the result
    /// holds is to be read after this, when nobody else can be writing any more.
    pub fn resume(directory: &Path) -> Result<ResultWriter, ResultError> {
        if !directory.join(PLAN_FILE).exists() {
            return Err(no_plan(directory));
        }
        let writer = ResultWriter::open(directory)?;
        let path = directory.join(RECORDS_FILE);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if whole < bytes.len() {
            writer.records.set_len(whole as u64).map_err(io_error(&path))?;
        }
        Ok(writer)
    }

    fn open(directory: &Path) -> Result<ResultWriter, ResultError> {
        let path = directory.join(RECORDS_FILE);
        let records = loop {
            let records = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(io_error(&path))?;
            records.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => ResultError::Wrong {
                    path: directory.into(),
                    problem: "is being written by another kurabe; wait for it to end".into(),
                },
                TryLockError::Error(error) => io_error(&path)(error),
            })?;
            // One that was withdrawn between the two lines above is nobody's any more.
            if records.metadata().map_err(io_error(&path))?.nlink() > 0 {
                break records;
            }
        };
        // The names must survive a crash too, or the records might as well not be there.
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(io_error(directory))?;
        Ok(ResultWriter { directory: directory.into(), records, made: None })
    }

    /// Takes a result back that [`ResultWriter::create`] made and that never began, so that a
    /// refusal leaves nothing behind. Of a result that was there before, nothing is taken.
    pub fn withdraw(self) {
        let Some(made) = self.made else { return };
        for name in [STUDY_FILE, PLAN_FILE, RECORDS_FILE] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        for directory in made.iter().rev() {
            // One that holds something else by now stays.
            let _ = fs::remove_dir(directory);
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends one record and makes it durable. Its histograms go into a file of their own first,
    /// so that a record never names one that is not there; the record comes back without them.
    pub fn append(&mut self, mut record: Record) -> Result<Record, ResultError> {
        if let Some(log) = record.load.as_mut().and_then(|load| load.histogram_log.take()) {
            let directory = self.directory.join(HISTOGRAMS_DIRECTORY);
            fs::create_dir_all(&directory).map_err(io_error(&directory))?;
            replace(&histogram_path(&self.directory, record.trial), log.as_bytes())?;
        }
        let path = self.directory.join(RECORDS_FILE);
        let mut line = serde_json::to_vec(&record).expect("a record has a JSON form");
        line.push(b'\n');
        self.records.write_all(&line).map_err(io_error(&path))?;
        self.records.sync_data().map_err(io_error(&path))?;
        Ok(record)
    }

    /// Begins a sitting and gives its number, from 1: the facts of the one before are kept beside
    /// those that are written now.
    pub fn begin_sitting(&self, facts: &impl Serialize) -> Result<u32, ResultError> {
        let path = self.directory.join(FACTS_FILE);
        let kept = |sitting: u32| self.directory.join(earlier_facts_file(sitting));
        let mut sitting =
            (FIRST_SITTING..).find(|number| !kept(*number).exists()).expect("numbers do not end");
        if path.exists() {
            fs::rename(&path, kept(sitting)).map_err(io_error(&path))?;
            sitting += 1;
        }
        self.write_json(FACTS_FILE, facts)?;
        Ok(sitting)
    }

    /// Replaces a file of the result by the JSON of a value.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), ResultError> {
        replace_json(&self.directory.join(name), value)
    }

    /// Replaces a file of the result.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ResultError> {
        replace(&self.directory.join(name), bytes)
    }
}

fn has_bytes(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

fn replace_json(path: &Path, value: &impl Serialize) -> Result<(), ResultError> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("the value has a JSON form");
    bytes.push(b'\n');
    replace(path, &bytes)
}

/// Replaces a file as a whole: a reader sees the old bytes or the new ones, also after a crash.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ResultError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let beside = path.with_file_name(name);
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_data()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        io_error(path)(error)
    })
}

#[cfg(test)]
mod tests;
