//! The installed fio: any job; its enclosure keeps it in its contender.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trust::Refused;
use vocabulary::capacity::{self, Capacity};
use vocabulary::check::CONTENTS;
use vocabulary::kind::{
    Amount, BareTarget, Describe, Description, Durability, Form, FromKeys, KeyError, Keys, LaidOut,
    Needs, Preflight, Run, WorkloadKey, WorkloadKind, Written, scaled_bytes,
};
use vocabulary::path::UserPath;
use vocabulary::quantity::{parse_duration, parse_size, size_text};
use vocabulary::report::{Latency, OVERALL_OPERATION, Series, Unit, WorkloadReport};
use vocabulary::workload::{Loss, WorkloadTarget, WorkloadTask};

use super::{histogram_log, latencies, tools};
use crate::enclosure;
use crate::fio::jobfile::{Variables, read_include};
use crate::fio::run::JobSeries;
use crate::fio::size::{Need, need};
use crate::fio::{
    Fio, FioFigures, FioJob, FioPreparation, FioReport, FioTarget, Groups, JobFile, changes, fio,
    fio_on, lay_out, lay_out_on, left_out, output, place, replaced, several_write, synced_at_end,
    syncs, trims_a_device, unasked, understood, unsynced, unwritten, verifies_any, verifies_later,
    verify_again,
};
use crate::tool::WorkloadTool;
use measure::acknowledge::Acknowledger;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<FioWorkload>(
    "fio",
    &[
        WorkloadKey::load(
            "fio",
            Form::Options("JOB"),
            "Run the installed fio: a job file, or options such as 'rw=randrw bs=4k size=64m' or '--name=a --rw=read --size=64m' (docs/reference/fio.md).",
        ),
        WorkloadKey::option(
            "fio-rank",
            Form::Text("NAME"),
            "The group, section, metric or latency ('sync p99') to rank by [default: the first group].",
        ),
        WorkloadKey::option(
            "fio-as-written",
            Form::Switch,
            "Run the job as it is written: files are not laid out first, and no option is added that changes what it does.",
        ),
        WorkloadKey::option(
            "fio-variables",
            Form::List("NAMES"),
            "Environment variables that the job may read as ${NAME}; their values are kept in the result.",
        ),
        WorkloadKey::option(
            "nodes",
            Form::List("HOSTS"),
            "Machines that run fio's server and have the contender's directory mounted at the same path: the job runs on all of them at once.",
        ),
    ],
    &[BareTarget::Raw],
)
.enclosed();

#[derive(Default, Serialize, Deserialize)]
struct FioWorkload {
    /// Where the job was read from; absent for options on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<UserPath>,
    /// The job file's text, or the one-line options.
    text: String,
    /// The group, section, metric or latency that ranks; the first group where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<String>,
    /// Whether the job runs as it is written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    as_written: bool,
    /// The texts of the files that the job file includes, by the path at which each was found. They are
    /// read with the job file: the workload's process has another working directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    includes: BTreeMap<PathBuf, String>,
    /// The environment variables that the job may read. Their values are read with the job file too, so
    /// that the job is the same in a guest and when it is resumed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    variables: Variables,
    /// The machines that it runs on; empty for this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
}

/// Name of fio's job when it is given as options.
const JOB_NAME: &str = "kurabe";

/// fio's options that say how much is done: sizes, and a time.
const SIZES: [&str; 3] = ["size", "filesize", "io_size"];
const RUNTIME: &str = "runtime";

/// Files of a job that takes turns: they are laid out anew for each.
const TURN_BYTES_MAX: u64 = 256 << 20;

impl FioWorkload {
    /// Bytes of all nodes' files: each has its own.
    fn bytes(&self, need: &Need) -> u64 {
        need.bytes.saturating_mul(self.nodes.len().max(1) as u64)
    }
}

impl FromKeys for FioWorkload {
    fn parse(written: &Written<'_>) -> Result<FioWorkload, KeyError> {
        let text = written.text("fio").unwrap_or_default().to_string();
        if text.trim().is_empty() {
            let problem = "is empty; name a job file, or options such as 'rw=randrw bs=4k'";
            return Err(KeyError::new("fio", problem));
        }
        let nodes = written.list("nodes");
        let is_name = |node: &&String| !node.is_empty() && !node.contains(['/', ' ']);
        if let Some(node) = nodes.iter().find(|node| !is_name(node)) {
            return Err(KeyError::new("nodes", format!("'{node}' is no name of a machine")));
        }
        // The name of a job file has no '=' in it and no dash in front.
        let (path, text) = if text.contains('=') || text.starts_with('-') {
            (None, text)
        } else {
            (Some(UserPath::typed(text)), String::new())
        };
        let as_written = written.is_on("fio-as-written");
        if as_written && !nodes.is_empty() {
            let problem =
                "is not for nodes, which lay the files out themselves; leave one of both out";
            return Err(KeyError::new("fio-as-written", problem));
        }
        let rank = written.text("fio-rank").map(str::to_owned);
        let variables = written.list("fio-variables").into_iter().map(|name| (name, None));
        let variables = variables.collect();
        Ok(FioWorkload { path, text, rank, as_written, variables, nodes, ..FioWorkload::default() })
    }

    /// A job file stays as it is, as does a value that is no plain size or time (a percentage, a
    /// range).
    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let text = keys.get("fio").and_then(Value::as_str).unwrap_or_default();
        let scaled = text.split_whitespace().map(|word| match amount_of(word) {
            Some((key, Measure::Bytes(bytes))) => {
                format!("{key}={}", size_text(scaled_bytes(bytes, factor)))
            }
            Some((key, Measure::Seconds(seconds))) => {
                format!("{key}={}", ((seconds * factor).round() as u64).max(1))
            }
            None => word.to_string(),
        });
        let scaled = scaled.collect::<Vec<_>>().join(" ");
        keys.insert("fio".into(), scaled.into());
        Ok(())
    }
}

impl Describe for FioWorkload {
    /// Of a job file most is known once it was read.
    fn description(&self) -> Description {
        let words = || self.text.split_whitespace();
        let amounts = words().filter_map(amount_of).map(|(key, measure)| {
            let what = format!("fio's {}", key.trim_start_matches('-'));
            match measure {
                Measure::Bytes(bytes) => Amount::size(what, bytes),
                Measure::Seconds(seconds) => Amount::new(what, seconds, format!("{seconds} s")),
            }
        });
        let settings = words().map(|word| amount_of(word).map_or(word, |(key, _)| key));
        let settings = settings.collect::<Vec<_>>();
        let described = Description {
            amounts: amounts.collect(),
            amount: self.path.is_none().then(|| self.text.clone()),
            settings: serde_json::json!([
                self.path,
                settings,
                self.rank,
                self.as_written,
                self.nodes
            ]),
            lasts_long: true,
            has_setup: true,
            ..Description::default()
        };
        let Ok(job) = job(self) else { return described };
        let (groups, need) = (Groups::of(&job), need(&job));
        let added = self.rank.as_deref().and_then(|rank| groups.added_metric(rank));
        let mut operations = groups.operations();
        if !operations.is_empty() {
            operations.push(OVERALL_OPERATION.into());
        }
        let mut trimming = job.jobs().filter(|(index, _)| trims_a_device(&job, *index));
        let is_known = need.unknown_jobs == 0 && need.jobs_without_size == 0;
        Description {
            metrics: added.into_iter().chain(groups.metrics()).collect(),
            operations,
            checks: verifies_any(&job).then(|| CONTENTS.into()).into_iter().collect(),
            trims: trimming.next().map(|(_, section)| section.name.clone()),
            // A job of a known amount, that is done soon, is a turn by itself.
            lasts_long: is_timed(&job) || !is_known || self.bytes(&need) > TURN_BYTES_MAX,
            ..described
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let job = job(self)?;
        let need = need(&job);
        let groups = Groups::of(&job);
        let names: Vec<&str> = job.jobs().map(|(_, section)| section.name.as_str()).collect();
        let bytes = capacity::bytes_text(self.bytes(&need));
        let mut entries = vec![
            ("jobs", names.join(", ")),
            if self.as_written {
                ("as written", format!("{bytes}, which fio lays out as it pleases"))
            } else {
                ("laid out first", bytes)
            },
        ];
        if need.jobs_without_size > 0 {
            let share = "share a quarter of the device, each at most 1 GiB";
            let words = format!("{}: they {share}", need.jobs_without_size);
            entries.push(("jobs without a size", words));
        }
        if need.unknown_jobs > 0 {
            let unknown = "what they need is not known in advance";
            entries.push(("jobs of unknown size", format!("{}: {unknown}", need.unknown_jobs)));
        }
        let somewhere = FioTarget::Directory("/#".into());
        if let Some(words) = replaced(&job, &somewhere, None).first() {
            entries.push(("places", format!("{words}; on raw, the device")));
        }
        let labels = groups.labels();
        if !labels.is_empty() {
            let ranked = self.rank.as_deref().unwrap_or("the first of which something is counted");
            entries.push(("figures of", format!("{}; ranked: {ranked}", labels.join(", "))));
        }
        let synced = if self.as_written { Vec::new() } else { synced_at_end(&job) };
        if !synced.is_empty() {
            let words =
                "they write through the page cache; their figures include an fsync at their end";
            entries.push(("end_fsync=1 added", format!("{}: {words}", synced.join(", "))));
        }
        if !self.nodes.is_empty() {
            entries.push((
                "on the nodes",
                format!("{}, each with its own files", self.nodes.join(", ")),
            ));
        }
        entries.extend(note(&job, self.as_written).map(|words| ("caution", words)));
        if let Some(reason) = unasked() {
            let words = format!("fio was not asked whether it takes the job: {reason}");
            entries.push(("not checked", words));
        }
        Ok(capacity::lines(&entries) + &capacity::verdict(self.bytes(&need), capacity))
    }
}

impl Preflight for FioWorkload {
    /// Reads the job file and what it includes into the workload, and refuses one that names another place.
    fn read(&mut self) -> Result<(), String> {
        for (name, value) in &mut self.variables {
            *value = std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        }
        if let Some(path) = &self.path {
            self.text =
                trust::file::read_text(path).map_err(|refused| format!("job file {refused}"))?;
            self.includes = includes(&self.text, path, &self.variables)?;
        }
        let groups = Groups::of(&somewhere(self)?);
        match &self.rank {
            Some(rank) => {
                groups.check_rank(rank).map_err(|problem| format!("--fio-rank: {problem}"))
            }
            None => Ok(()),
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            inputs: self.replayed(),
            network: !self.nodes.is_empty(),
            ..tools(&[WorkloadTool::Fio])
        }
    }

    /// Refuses options that the installed fio does not take, where there is one and the job is at
    /// hand.
    fn check_options(&self) -> Result<(), String> {
        if WorkloadTool::Fio.locate().is_err() || self.text.is_empty() {
            return Ok(());
        }
        understood(&somewhere(self)?)
    }

    /// Refuses jobs that the installed fio does not understand, or whose files are larger than their
    /// capacity.
    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        understood(&somewhere(self)?)?;
        for file in self.replayed() {
            enclosure::check_shown(&file)
                .map_err(|why| format!("'read_iolog={}': {why}", file.display()))?;
        }
        let job = job(self)?;
        let unwritten = unwritten(&job);
        if !unwritten.is_empty() {
            return Err(format!(
                "{} would verify what nobody wrote, since the files are laid out with random data; write them in a job before it, with the same 'verify'",
                unwritten.join(", ")
            ));
        }
        if !self.nodes.is_empty() && verifies_any(&job) {
            return Err(
                "a job that verifies runs on this machine; leave its verify or the nodes out"
                    .into(),
            );
        }
        let need = need(&job);
        if !self.nodes.is_empty() && need.jobs_without_size > 0 {
            return Err(
                "on nodes each job says its size, since the nodes share the space; add 'size='"
                    .into(),
            );
        }
        check_capacity(self.bytes(&need), capacity)
    }
}

impl Run for FioWorkload {
    fn set_up(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<LaidOut, String> {
        let job = job(self)?;
        if self.nodes.is_empty() {
            return lay_out_job(&job, self.as_written, task, stop).map(LaidOut::from);
        }
        let (scratch, target) = (scratch(task)?, target(&task.target)?);
        let plan = Fio {
            job: &job,
            target: &target,
            device_bytes: task.device_bytes,
            scratch: &scratch,
            as_written: false,
        };
        lay_out_on(&plan, &self.nodes, stop)?;
        Ok(LaidOut::default())
    }

    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let job = job(self)?;
        if !self.nodes.is_empty() {
            return run_on_nodes(self, &job, task, stop);
        }
        let mut report = run_job(&job, self.as_written, task, stop)?;
        if let Some(acknowledger) = Acknowledger::of(task)? {
            acknowledger.say("written").map_err(|error| format!("acknowledging: {error}"))?;
        }
        // All of it was read, and its histograms alone are a hundred kilobytes.
        report.finished.stdout.clear();
        let figures = self.figures(&job, &report.jobs)?;
        let fio_lays_out = if self.as_written { None } else { falsified(&report) };
        Ok(WorkloadReport {
            latencies: figures.latencies(),
            remarks: self
                .changed(&job, &target(&task.target)?, report.default_size_bytes)
                .into_iter()
                .chain(figures.remarks)
                .collect(),
            metrics: figures.metrics,
            checks: report.check.clone().into_iter().collect(),
            series: throughput(&report),
            findings: report.notes.iter().cloned().chain(fio_lays_out).collect(),
            note: note(&job, self.as_written),
            written_bytes: Some(output::written_bytes(&report.jobs)),
            operations: Some(figures.operations),
            counted_ns: figures.counted_ns,
            histogram_log: Some(histogram_log(&figures.recording, report.finished.elapsed_ns)?),
            details: serde_json::to_value(&report).expect("a report has a JSON form"),
            ..WorkloadReport::default()
        })
    }

    /// fio does not tell which of its syncs has returned: what it wrote counts from its end.
    fn durability(&self) -> Option<&dyn Durability> {
        let is_told = !self.as_written && job(self).is_ok_and(|job| verifies_later(&job));
        is_told.then_some(self as &dyn Durability)
    }
}

impl Durability for FioWorkload {
    fn why_not_on_raw(&self) -> Option<String> {
        let is_shared = job(self).is_ok_and(|job| several_write(&job));
        is_shared.then(|| {
            "several jobs of fio write to the one raw device, and none would find what it wrote; keep one, or leave raw out".into()
        })
    }

    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        if acknowledged.is_empty() {
            return Ok(None);
        }
        let (job, scratch, target) = (job(self)?, scratch(task)?, target(&task.target)?);
        let as_written = self.as_written;
        let plan = Fio {
            job: &job,
            target: &target,
            device_bytes: task.device_bytes,
            scratch: &scratch,
            as_written,
        };
        let found = verify_again(&plan, &FioPreparation::default(), &AtomicBool::new(false));
        Ok(match found {
            Ok(found) => found.map(Loss::Corrupt),
            Err(words) => Some(Loss::Unusable(words)),
        })
    }
}

impl FioWorkload {
    /// The logs that it replays.
    fn replayed(&self) -> Vec<PathBuf> {
        let Ok(job) = job(self) else { return Vec::new() };
        let options = job.sections.iter().flat_map(|section| &section.options);
        let replayed = options.filter(|option| option.name == "read_iolog");
        let names = replayed
            .flat_map(|option| place::split_names(option.value.as_deref().unwrap_or_default()));
        names.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
    }

    /// What fio counted, put together by groups.
    ///
    /// Errors: a rank that has no figures; a job of a fixed length of which fio counted nothing, since it is not
    /// ranked by that length.
    fn figures(&self, job: &JobFile, jobs: &[FioJob]) -> Result<FioFigures, String> {
        let figures = Groups::of(job).figures(jobs, self.rank.as_deref())?;
        if figures.metrics.is_empty() && is_timed(job) {
            return Err(
                "fio counted no operation in a run of fixed length, so there is nothing to compare; give the job something to read or write"
                    .into(),
            );
        }
        Ok(figures)
    }

    /// What was changed in the job, in a sentence.
    fn changed(
        &self,
        job: &JobFile,
        target: &FioTarget,
        size_bytes: Option<u64>,
    ) -> Option<String> {
        let changes = if self.as_written { Vec::new() } else { changes(job) };
        let hint = if changes.is_empty() {
            ""
        } else {
            " --fio-as-written leaves the job's options as they are."
        };
        let output = if self.path.is_none() { left_out(&self.text) } else { Vec::new() };
        let output = (!output.is_empty())
            .then(|| format!("without {}, since kurabe reads fio's output", output.join(", ")));
        let all: Vec<String> =
            changes.into_iter().chain(replaced(job, target, size_bytes)).chain(output).collect();
        (!all.is_empty()).then(|| format!("Changed in the job: {}.{hint}", all.join("; ")))
    }
}

impl FioFigures {
    /// The latencies by part and operation; those of all together where they mean something.
    fn latencies(&self) -> Vec<Latency> {
        let mut all = latencies(&self.recording.summary());
        all.retain(|one| self.has_overall || one.operation != OVERALL_OPERATION);
        all
    }
}

/// Whether a job ends after a time and not after an amount of work.
fn is_timed(job: &JobFile) -> bool {
    job.jobs().any(|(index, _)| job.effective(index, RUNTIME).is_some())
}

/// How much an option of fio asks for.
enum Measure {
    Bytes(u64),
    Seconds(f64),
}

/// A word of fio's options that says how much is done: its key, as written, and its value.
fn amount_of(word: &str) -> Option<(&str, Measure)> {
    let (key, value) = word.split_once('=')?;
    let measure = match key.trim_start_matches('-') {
        name if SIZES.contains(&name) => Measure::Bytes(parse_size(value).ok()?),
        RUNTIME => Measure::Seconds(parse_duration(value).ok()?.as_secs_f64()),
        _ => return None,
    };
    Some((key, measure))
}

/// The job as it may run in some directory, whose name no job can give: fio would take its `#` for the
/// begin of a comment.
fn somewhere(load: &FioWorkload) -> Result<JobFile, String> {
    let somewhere = FioTarget::Directory("/#".into());
    Ok(place::placed(&job(load)?, &somewhere)?)
}

/// The texts of the files that a job file includes, by the path at which each was found.
fn includes(
    text: &str,
    path: &Path,
    variables: &Variables,
) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut includes = BTreeMap::new();
    JobFile::parse_with(text.as_bytes(), path, variables, &mut |path| {
        let bytes = read_include(path)?;
        // One that is no text is refused by the parser, with its place.
        if let Ok(text) = std::str::from_utf8(&bytes) {
            includes.insert(path.to_path_buf(), text.to_string());
        }
        Ok(bytes)
    })?;
    Ok(includes)
}

fn job(load: &FioWorkload) -> Result<JobFile, String> {
    Ok(match &load.path {
        // A plan of an older version has no texts of included files.
        Some(path) if load.includes.is_empty() => {
            JobFile::parse_with(load.text.as_bytes(), path, &load.variables, &mut read_include)
        }
        Some(path) => {
            JobFile::parse_with(load.text.as_bytes(), path, &load.variables, &mut |path| {
                let missing = || Refused::system(path, io::ErrorKind::NotFound);
                let text = load.includes.get(path).ok_or_else(missing)?;
                Ok(text.clone().into_bytes())
            })
        }
        None => JobFile::from_options(&load.text, JOB_NAME, &load.variables),
    }?)
}

pub(super) fn check_capacity(needed_bytes: u64, capacity: Option<&Capacity>) -> Result<(), String> {
    capacity::check(
        "the jobs need",
        needed_bytes,
        capacity,
        "give smaller sizes, or a larger device",
    )
}

/// What the figures leave out, where the job says so, or where it runs as it is written and says nothing.
fn note(job: &JobFile, as_written: bool) -> Option<String> {
    let mut unsaid = if as_written { synced_at_end(job) } else { Vec::new() };
    // The writes after the last sync are few.
    let syncing = job.jobs().filter(|(index, _)| syncs(job, *index));
    let syncing: Vec<&str> = syncing.map(|(_, section)| section.name.as_str()).collect();
    unsaid.retain(|name| !syncing.contains(&name.as_str()));
    let unsynced = unsynced(job);
    let words = |names: &[String], advice: &str| {
        format!(
            "figures of {} count writes to the page cache, not to the device; {advice}",
            names.join(", ")
        )
    };
    let figures = match (unsynced.is_empty(), unsaid.is_empty()) {
        (false, _) => Some(words(&unsynced, "take its end_fsync=0 out")),
        (true, false) => Some(words(&unsaid, "add end_fsync=1 to the job")),
        (true, true) => None,
    };
    let said: Vec<String> = capped(job).into_iter().chain(figures).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The jobs whose depth has no effect: these engines do one request after the other (fio(1), `ioengine`).
fn capped(job: &JobFile) -> Option<String> {
    const ONE_AT_A_TIME: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];
    let is_capped = |index: usize| {
        let depth = job.effective(index, "iodepth").and_then(|depth| depth.parse::<u64>().ok());
        let engine = job.effective(index, "ioengine").unwrap_or("psync");
        depth.is_some_and(|depth| depth > 1) && ONE_AT_A_TIME.contains(&engine)
    };
    let capped: Vec<&str> = job
        .jobs()
        .filter(|(index, _)| is_capped(*index))
        .map(|(_, section)| section.name.as_str())
        .collect();
    (!capped.is_empty()).then(|| {
        format!(
            "iodepth of {} has no effect: its ioengine has one request in flight; add ioengine=libaio or ioengine=io_uring",
            capped.join(", ")
        )
    })
}

pub(super) fn target(place: &WorkloadTarget) -> Result<FioTarget, String> {
    match place {
        WorkloadTarget::Directory(directory) => Ok(FioTarget::Directory(directory.clone())),
        WorkloadTarget::Device(device) => Ok(FioTarget::Device(device.clone())),
        WorkloadTarget::Library(_) => Err("fio cannot use a file system as a library".into()),
    }
}

/// fio's working directory, outside of the contender.
fn scratch(task: &WorkloadTask) -> Result<PathBuf, String> {
    let scratch = task.scratch.join("fio");
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(scratch)
}

/// Lays the files of a job out and overwrites them, or the device over the same length, so that
/// the run finds written extents and its counters are the workload's alone. Says what was made.
pub(super) fn lay_out_job(
    job: &JobFile,
    as_written: bool,
    task: &WorkloadTask,
    stop: &AtomicBool,
) -> Result<Value, String> {
    let (scratch, target) = (scratch(task)?, target(&task.target)?);
    let prepared = lay_out(
        &Fio {
            job,
            target: &target,
            device_bytes: task.device_bytes,
            scratch: &scratch,
            as_written,
        },
        stop,
    )?;
    Ok(serde_json::to_value(prepared).expect("it has a JSON form"))
}

pub(super) fn run_job(
    job: &JobFile,
    as_written: bool,
    task: &WorkloadTask,
    stop: &AtomicBool,
) -> Result<FioReport, String> {
    let (scratch, target) = (scratch(task)?, target(&task.target)?);
    let prepared: FioPreparation = serde_json::from_value(task.prepared.clone())
        .map_err(|error| format!("what the layout said of its files: {error}"))?;
    fio(
        &Fio {
            job,
            target: &target,
            device_bytes: task.device_bytes,
            scratch: &scratch,
            as_written,
        },
        &prepared,
        stop,
    )
}

/// Skew of the starts from which on a run is marked, as a share of the run.
const SKEW_MAX: f64 = 0.01;

/// The measured run on several machines.
fn run_on_nodes(
    load: &FioWorkload,
    job: &JobFile,
    task: &WorkloadTask,
    stop: &AtomicBool,
) -> Result<WorkloadReport, String> {
    let (scratch, target) = (scratch(task)?, target(&task.target)?);
    let plan = Fio {
        job,
        target: &target,
        device_bytes: task.device_bytes,
        scratch: &scratch,
        as_written: false,
    };
    let report = fio_on(&plan, &load.nodes, stop)?;
    let jobs = report.jobs();
    let figures = load.figures(job, &jobs)?;
    let (first_ns, last_ns) = report.ends_ns();
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let mut findings = Vec::new();
    for node in &report.nodes {
        let figures = load.figures(job, &node.jobs)?.metrics.into_iter();
        let figures = figures.filter(|metric| metric.unit == Unit::OperationsPerSecond);
        let figures = figures.map(|metric| format!("{} {:.0}/s", metric.name, metric.value));
        let figures = figures.collect::<Vec<_>>().join(", ");
        findings.push(format!(
            "node {}: {figures}; done after {}",
            node.node,
            seconds(node.ended_ns)
        ));
    }
    findings.push(format!(
        "the first node was done after {}, the last after {}; the starts were {} apart",
        seconds(first_ns),
        seconds(last_ns),
        seconds(report.skew_ns())
    ));
    let skewed = report.skew() > SKEW_MAX;
    Ok(WorkloadReport {
        latencies: figures.latencies(),
        remarks: load.changed(job, &target, None).into_iter().chain(figures.remarks).collect(),
        metrics: figures.metrics,
        findings,
        note: skewed.then(|| {
            format!(
                "the nodes started {} apart, {:.1} % of the run: run longer",
                seconds(report.skew_ns()),
                report.skew() * 100.0
            )
        }),
        written_bytes: Some(output::written_bytes(&jobs)),
        operations: Some(figures.operations),
        counted_ns: figures.counted_ns,
        histogram_log: Some(histogram_log(&figures.recording, last_ns)?),
        details: serde_json::to_value(&report).expect("a report has a JSON form"),
        ..WorkloadReport::default()
    })
}

fn throughput(report: &FioReport) -> Vec<Series> {
    let with_data = report.series.iter().filter(|job| !job.bytes.is_empty());
    let of_job = |job: &JobSeries| Series {
        name: format!("throughput of {}", job.name),
        unit: Unit::BytesPerSecond,
        interval_ns: job.interval_ms * 1_000_000,
        values: job
            .bytes
            .iter()
            .map(|bytes| *bytes as f64 * 1e3 / job.interval_ms as f64)
            .collect(),
        marks: Vec::new(),
    };
    with_data.map(of_job).collect()
}

/// What is wrong with the figures, should fio have met a file that was not there.
pub(super) fn falsified(report: &FioReport) -> Option<String> {
    (report.laid_out_in_run > 0).then(|| {
        format!(
            "fio laid out {} files within the measured run, so its figures are falsified",
            report.laid_out_in_run
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_job_of_a_known_amount_is_a_turn() {
        let lasts = |text: &str| {
            FioWorkload { text: text.into(), ..FioWorkload::default() }.description().lasts_long
        };
        assert!(!lasts("rw=randrw size=100M"));
        assert!(lasts("rw=randrw size=8G"), "its file is laid out anew for each turn");
        assert!(lasts("rw=read size=100M runtime=60 time_based=1"));
        assert!(lasts("rw=read"), "it gets a share of the free space");
    }

    #[test]
    fn a_depth_without_effect_is_said() {
        let said = |text: &str| capped(&JobFile::parse(text.as_bytes(), Path::new("job")).unwrap());
        assert!(said("[a]\nrw=read\niodepth=8").unwrap().starts_with("iodepth of a has no effect"));
        assert!(said("[a]\nrw=read\niodepth=8\nioengine=sync").is_some());
        assert_eq!(said("[a]\nrw=read\niodepth=8\nioengine=libaio"), None);
        assert_eq!(said("[a]\nrw=read\niodepth=1"), None);
    }
}
