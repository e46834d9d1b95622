//! Runs jobs with the installed fio: checks them, lays their files out, measures, reads the
//! result.
//!
//! Knows the order of these steps and the options that kurabe adds to a job. A run has a
//! scratch directory that is fio's working directory: the job files as fio got them and its
//! logs stay there. Invariants: nothing is run before the jobs are placed and fit; the
//! measured run lays no file out.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::check::Check;

use super::groups::several_sizes;
use super::jobfile::{JobFile, JobOption, JobSection};
use super::layout::{self, FioLayout};
use super::output::{self, FioJob};
use super::place::{self, FioTarget, join_names, split_names};
use super::size::{self, Need};
use super::verify;
use crate::enclosure::Enclosure;
use crate::tool::{Finished, ToolError, WorkloadTool, run_kept_in};
use measure::space;

/// The interval of the logs, unless the job has one of its own.
const LOG_INTERVAL_MS: u64 = 1000;
/// The most that a job gets which does not say its size.
const DEFAULT_SIZE_BYTES_MAX: u64 = 1 << 30;
/// The part of the device that jobs without a size get together; of the free space, where there is no
/// device. By the free space, file systems on equal devices would get different work.
const DEFAULT_SIZE_PART: u64 = 4;

/// Engines whose jobs work on files of their own making, not on data that was laid out.
const WITHOUT_DATA: [&str; 6] = ["null", "cpuio", "filecreate", "filestat", "filedelete", "falloc"];

#[derive(Clone, Debug)]
pub struct Fio<'a> {
    /// The jobs as their author wrote them.
    pub job: &'a JobFile,
    /// Where they may work.
    pub target: &'a FioTarget,
    /// Size in bytes of the device under the target.
    pub device_bytes: Option<u64>,
    /// A directory outside of the target for the job files and logs; it must exist.
    pub scratch: &'a Path,
    /// Whether the jobs run as their author wrote them: their files are not laid out first, and nothing
    /// is put in that changes what they do.
    pub as_written: bool,
}

/// What was made before a run, for the run to go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FioPreparation {
    pub layout: FioLayout,
    /// The size that was given to jobs which do not say one: the free space that it was taken of
    /// is less once the files are there.
    pub default_size_bytes: Option<u64>,
}

/// What a run came to, besides its latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FioReport {
    /// fio's version.
    pub version: String,
    pub jobs: Vec<FioJob>,
    /// For each section that is a job, in order, what its threads did over time.
    pub series: Vec<JobSeries>,
    /// What was written before the run.
    pub layout: FioLayout,
    /// What the jobs needed, by their text.
    pub needed_bytes: u64,
    /// The size that was given to jobs which do not say one.
    pub default_size_bytes: Option<u64>,
    /// The job file as fio got it.
    pub job_text: String,
    /// fio's hints and warnings.
    pub notes: Vec<String>,
    /// Files that fio laid out within the measured run: 0, or the figures are falsified.
    pub laid_out_in_run: u64,
    /// What the jobs that verify found; absent where none does. It is among the record's checks.
    #[serde(skip)]
    pub check: Option<Check>,
    /// The measured run with everything that was printed.
    pub finished: Finished,
}

/// A job over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobSeries {
    /// The section's name.
    pub name: String,
    pub interval_ms: u64,
    /// Bytes read and written in each interval.
    pub bytes: Vec<u64>,
}

/// Lays the files of jobs out and overwrites them, so that [`fio`] finds them: no extent is
/// preallocated or unwritten. A device is overwritten over the same length.
///
/// Errors: a job that is faulty or would leave its target, files that do not fit, a device in use, fio's own
/// words; the stop flag.
pub fn lay_out(plan: &Fio<'_>, stop: &AtomicBool) -> Result<FioPreparation, String> {
    let (resolved, need, default_size_bytes) = ready(plan, None)?;
    if plan.as_written {
        return Ok(FioPreparation { layout: FioLayout::default(), default_size_bytes });
    }
    let layout = write_files(plan, &resolved, need, stop)?;
    Ok(FioPreparation { layout, default_size_bytes })
}

/// The jobs in their place, which fit there, with the directories that they name.
pub(super) fn ready(
    plan: &Fio<'_>,
    given_size_bytes: Option<u64>,
) -> Result<(JobFile, Need, Option<u64>), String> {
    WorkloadTool::Fio.locate()?;
    place::check_name(plan.target)?;
    let placed = place::placed(plan.job, plan.target)?;
    let ready = resolve(&placed, plan, given_size_bytes)?;
    check_fit(ready.1, plan.target)?;
    make_directories(&ready.0, plan.target)?;
    Ok(ready)
}

/// Runs fio on a job file of this text, in the scratch directory.
fn run_fio(
    plan: &Fio<'_>,
    name: &str,
    text: &str,
    arguments: &[&str],
    stop: &AtomicBool,
) -> Result<Finished, String> {
    let path = plan.scratch.join(name);
    fs::write(&path, text).map_err(failed("write", &path))?;
    let fill = |command: &mut Command| {
        command.current_dir(plan.scratch).arg("--eta=never").args(arguments).arg(&path);
    };
    let ran = run_kept_in(WorkloadTool::Fio, &reach(plan), fill, stop);
    ran.map_err(|error| blamed(plan, failure(plan, error)))
}

/// fio's failure in one line, with its own reason where it gives one.
fn failure(plan: &Fio<'_>, error: ToolError) -> String {
    let ToolError::Failed(finished) = &error else { return error.into() };
    let reasons = output::reasons(finished);
    if reasons.is_empty() {
        error.into()
    } else {
        let said = without_root(plan, &reasons.join("; "));
        let hint = match plan.target {
            FioTarget::Device(_) if trims_any(plan.job) => {
                "; a device is trimmed only where the study allows it: --discard"
            }
            _ => "",
        };
        format!("`fio` {}: {said}{hint}", finished.how_it_ended())
    }
}

/// What fio said, with the names of files as they are in the contender.
fn without_root(plan: &Fio<'_>, said: &str) -> String {
    said.replace(&format!("{}/", plan.target.path().display()), "")
}

/// What fio may touch.
fn reach(plan: &Fio<'_>) -> Enclosure {
    let scratch = plan.scratch.to_path_buf();
    let (directories, device) = match plan.target {
        FioTarget::Directory(directory) => (vec![scratch, directory.clone()], None),
        FioTarget::Device(device) => (vec![scratch], Some(device.clone())),
    };
    Enclosure { directories, device, ..Enclosure::default() }
}

/// Runs jobs whose files, or files of the same names, were laid out.
pub fn fio(
    plan: &Fio<'_>,
    prepared: &FioPreparation,
    stop: &AtomicBool,
) -> Result<FioReport, String> {
    let (resolved, need, default_size_bytes) = ready(plan, prepared.default_size_bytes)?;
    if let FioTarget::Device(device) = plan.target {
        layout::cool_device(device).map_err(failed("drop the cache of", device))?;
    }
    let job_text = measured(&resolved, plan.as_written).to_string();
    let finished = run_fio(plan, "job.fio", &job_text, &["--output-format=json+"], stop)?;
    let output::FioOutput { version, notes, jobs } = output::parse(&finished.stdout)?;
    let said = without_root(plan, &finished.stderr);
    if let Some(job) = jobs.iter().find(|job| job.error != 0 && !verify::is_mismatch(job)) {
        let reason = io::Error::from_raw_os_error(i32::try_from(job.error).unwrap_or(0));
        let name = &job.jobname;
        return Err(blamed(
            plan,
            format!("the job `{name}` ended with error {}: {reason}", job.error),
        ));
    }
    let is_layout = |note: &&String| note.contains("Laying out IO file");
    Ok(FioReport {
        series: read_series(&resolved, plan.scratch),
        layout: prepared.layout,
        needed_bytes: need.bytes,
        default_size_bytes,
        laid_out_in_run: notes.iter().filter(is_layout).count() as u64,
        check: verify::check(&resolved, &jobs, &said),
        version,
        jobs,
        job_text,
        notes,
        finished,
    })
}

/// Lets fio verify what an earlier run of the jobs has written: its words when that is not there.
///
/// Errors: as [`fio`].
pub fn verify_again(
    plan: &Fio<'_>,
    prepared: &FioPreparation,
    stop: &AtomicBool,
) -> Result<Option<String>, String> {
    let job = verify::only_verifying(plan.job);
    let report = fio(&Fio { job: &job, ..plan.clone() }, prepared, stop)?;
    let check = report.check.filter(|check| check.violated > 0);
    Ok(check.map(|check| check.first.unwrap_or_else(|| "what was written is not there".into())))
}

/// How the kernel's refusals end that a job in its enclosure meets, as fio tells them.
const REFUSALS: [&str; 4] =
    ["Read-only file system", "No such file", "Permission denied", "Operation not permitted"];

/// A failure of fio's, with the line of the job that it came from where one leads out.
fn blamed(plan: &Fio<'_>, error: String) -> String {
    let is_refusal = REFUSALS.iter().any(|words| error.contains(words));
    match place::leads_out(plan.job, plan.target, &error).filter(|_| is_refusal) {
        Some(option) => format!(
            "{}: `{option}` leads out of the contender, where a job can change nothing: {error}",
            option.value_place()
        ),
        None => error,
    }
}

pub(super) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> String + 'a {
    move |error| match error.kind() {
        io::ErrorKind::Interrupted => STOPPED.into(),
        _ => format!("cannot {what} {}: {error}", path.display()),
    }
}

const STOPPED: &str = "stopped while the files were laid out";

/// Puts what holds for all jobs in front: the target, and what makes fio tell all it knows. Jobs
/// without a size get the one that is given, or a share of the device.
fn resolve(
    placed: &JobFile,
    plan: &Fio<'_>,
    given_size_bytes: Option<u64>,
) -> Result<(JobFile, Need, Option<u64>), String> {
    let need = size::need(placed);
    let mut common = vec![
        JobOption::added("lat_percentiles", "1"),
        JobOption::added("clat_percentiles", "1"),
        JobOption::added("log_avg_msec", LOG_INTERVAL_MS),
        JobOption::added("per_job_logs", "1"),
    ];
    let mut default_size_bytes = None;
    let path = plan.target.path().display().to_string();
    let place = match plan.target {
        FioTarget::Directory(_) => "directory",
        FioTarget::Device(_) => "filename",
    };
    common.push(JobOption::added(place, join_names(&[path])));
    if need.jobs_without_size > 0 {
        let size = match given_size_bytes {
            Some(size) => size,
            None => {
                let whole = match (plan.device_bytes, plan.target) {
                    (Some(bytes), _) => bytes,
                    (None, FioTarget::Directory(directory)) => free_bytes(directory)?,
                    (None, FioTarget::Device(device)) => {
                        layout::device_bytes(device).map_err(failed("take the size of", device))?
                    }
                };
                let share = whole / DEFAULT_SIZE_PART / u64::from(need.jobs_without_size);
                share.min(DEFAULT_SIZE_BYTES_MAX) >> 20 << 20
            }
        };
        common.push(JobOption::added("size", size));
        default_size_bytes = Some(size);
    }
    let mut sections = vec![JobSection::added("global", common)];
    sections.extend(placed.sections.iter().cloned());
    let resolved = JobFile { sections };
    let need = if default_size_bytes.is_some() { size::need(&resolved) } else { need };
    Ok((resolved, need, default_size_bytes))
}

/// Gives options of each job values of its own, whatever the job says of them.
fn with_overrides(
    job: &JobFile,
    overrides: impl Fn(usize) -> Vec<(&'static str, String)>,
) -> JobFile {
    let mut changed = job.clone();
    for (index, _) in job.jobs() {
        let options = &mut changed.sections[index].options;
        for (name, value) in overrides(index) {
            options.retain(|option| option.name != name);
            options.push(JobOption::added(name, value));
        }
    }
    changed
}

pub(super) fn has_data(job: &JobFile, index: usize) -> bool {
    let engine = job.effective(index, "ioengine").unwrap_or("psync");
    !WITHOUT_DATA.contains(&engine)
}

/// The job file that only creates the files, with plain writes.
fn creating(job: &JobFile) -> JobFile {
    let options = [
        ("create_only", "1"),
        ("fallocate", "none"),
        ("overwrite", "1"),
        ("unlink", "0"),
        ("unlink_each_loop", "0"),
    ];
    some_jobs(job, &options, |index| is_laid_out(job, index))
}

/// Some of the jobs, by their number, each with these options instead of its own.
pub(super) fn some_jobs(
    job: &JobFile,
    options: &[(&'static str, &str)],
    keep: impl Fn(usize) -> bool,
) -> JobFile {
    let given = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
    let changed = with_overrides(job, |_| options.iter().map(given).collect());
    let sections = changed.sections.into_iter().enumerate();
    let kept = sections.filter(|(index, section)| section.is_global() || keep(*index));
    JobFile { sections: kept.map(|(_, section)| section).collect() }
}

/// The job file of the measured run: with what measuring takes, and unless it is to run as it was
/// written with what lets it find its files.
pub(super) fn measured(job: &JobFile, as_written: bool) -> JobFile {
    let apart = if as_written { BTreeSet::new() } else { several_sizes(job) };
    with_overrides(job, |index| {
        let mut options = vec![("write_bw_log", format!("job-{index}"))];
        options.extend(verify::added(job, index));
        if as_written {
            return options;
        }
        if !is_growing(job, index) {
            options.push(("fallocate", "none".to_owned()));
            if is_overwritten(job, index) {
                options.push(("overwrite", "1".to_owned()));
            }
        }
        if ending(job, index) == Ending::SyncAdded {
            options.push((END_SYNC, "1".to_owned()));
        }
        if apart.contains(&index) {
            options.push(("group_reporting", "0".to_owned()));
        }
        options
    })
}

/// Whether the files of a job are written before the run.
pub(super) fn is_laid_out(job: &JobFile, index: usize) -> bool {
    has_data(job, index) && !is_growing(job, index)
}

/// Whether a job overwrites what was laid out.
pub(super) fn is_overwritten(job: &JobFile, index: usize) -> bool {
    let appends = job.effective(index, "file_append").is_some_and(|value| value != "0");
    is_laid_out(job, index) && !appends
}

/// Whether a job measures what it costs to make the growth of a file durable, as a database's log grows: it
/// writes a file once from its beginning on and syncs as it goes. Over a file that is there already, a sync
/// would have less to do.
pub(super) fn is_growing(job: &JobFile, index: usize) -> bool {
    let given = |name: &str| job.effective(index, name);
    let is_on = |name: &str| given(name).is_some_and(|value| !["0", "none"].contains(&value));
    let writes_twice = ["overwrite", "time_based", "filename", "opendir", "read_iolog"];
    pattern(job, index).split(':').next() == Some("write")
        && has_data(job, index)
        && syncs(job, index)
        && !writes_twice.into_iter().any(is_on)
        && given("loops").is_none_or(|loops| loops == "1")
}

/// Whether a job syncs what it writes while it runs.
pub fn syncs(job: &JobFile, index: usize) -> bool {
    ["fsync", "fdatasync", "sync"]
        .into_iter()
        .any(|name| job.effective(index, name).is_some_and(|value| !["0", "none"].contains(&value)))
}

/// fio's option by which a job syncs its files at its end, within its figures.
const END_SYNC: &str = "end_fsync";

/// What becomes of a job's writes that are still in the page cache when the last one returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// There are none, or the job syncs them.
    Own,
    /// They are synced at the job's end, which kurabe asks for: its figures are not the page
    /// cache's.
    SyncAdded,
    /// The job says `end_fsync=0`.
    Refused,
}

/// Some writes after the last `fsync=N` are never synced by it, so that it does not stand for a sync at
/// the end; fio leaves out the latter where the last operation was one.
fn ending(job: &JobFile, index: usize) -> Ending {
    let given = |name: &str| job.effective(index, name);
    let is_on = |name: &str| given(name).is_some_and(|value| !["0", "none"].contains(&value));
    let writes = writes(job, index);
    let engine = given("ioengine").unwrap_or_default();
    // This engine fails on a sync.
    if !writes || !has_data(job, index) || engine == "ftruncate" {
        return Ending::Own;
    }
    let is_direct = is_on("direct") || given("buffered") == Some("0");
    match given(END_SYNC) {
        _ if is_direct || ["sync", "fsync_on_close"].into_iter().any(is_on) => Ending::Own,
        Some("0") => Ending::Refused,
        Some(_) => Ending::Own,
        None => Ending::SyncAdded,
    }
}

/// Whether what a job has written is durable when it ends: of direct writes the device's cache knows no end.
pub(super) fn is_durable_at_end(job: &JobFile, index: usize) -> bool {
    let given = |name: &str| job.effective(index, name);
    let is_on = |name: &str| given(name).is_some_and(|value| !["0", "none"].contains(&value));
    ending(job, index) == Ending::SyncAdded
        || [END_SYNC, "sync", "fsync_on_close"].into_iter().any(is_on)
}

/// Whether one of the jobs trims.
fn trims_any(job: &JobFile) -> bool {
    job.jobs().any(|(index, _)| pattern(job, index).contains("trim"))
}

/// What a job does: `read`, `randrw`, `trimwrite` and so on.
pub(super) fn pattern(job: &JobFile, index: usize) -> &str {
    let given = |name: &str| job.effective(index, name);
    given("rw").or_else(|| given("readwrite")).unwrap_or("read")
}

pub(super) fn writes(job: &JobFile, index: usize) -> bool {
    let pattern = pattern(job, index);
    pattern.contains("rw") || pattern.contains("write")
}

/// Engines that trim a file without the device's help, or nothing at all.
const TRIM_ANYTHING: [&str; 3] = ["falloc", "null", "external"];

/// Whether a section trims by a request that only devices take.
pub fn trims_a_device(job: &JobFile, index: usize) -> bool {
    let engine = job.effective(index, "ioengine").unwrap_or_default();
    pattern(job, index).contains("trim")
        && !TRIM_ANYTHING.iter().any(|known| engine.split(':').next() == Some(known))
}

fn jobs_with(job: &JobFile, wanted: Ending) -> Vec<String> {
    let ending_so = job.jobs().filter(|(index, _)| ending(job, *index) == wanted);
    ending_so.map(|(_, section)| section.name.clone()).collect()
}

/// The jobs that write through the page cache and say nothing of a sync at their end: they get
/// one, which is within their figures.
pub fn synced_at_end(job: &JobFile) -> Vec<String> {
    jobs_with(job, Ending::SyncAdded)
}

/// The jobs that write through the page cache and say `end_fsync=0`: their figures leave out what
/// is still to be written.
pub fn unsynced(job: &JobFile) -> Vec<String> {
    jobs_with(job, Ending::Refused)
}

fn check_fit(need: Need, target: &FioTarget) -> Result<(), String> {
    let bytes = match target {
        FioTarget::Directory(directory) => {
            // Files of an earlier run are used again.
            let files =
                layout::files_below(directory).map_err(failed("look through", directory))?;
            let present: u64 = files.iter().map(|file| file.size_bytes).sum();
            free_bytes(directory)?.saturating_add(present)
        }
        FioTarget::Device(device) => {
            layout::device_bytes(device).map_err(failed("take the size of", device))?
        }
    };
    let capacity = Capacity { bytes, holder: target.path().display().to_string() };
    capacity::check("the jobs need", need.bytes, Some(&capacity), "give smaller sizes")
}

fn free_bytes(directory: &Path) -> Result<u64, String> {
    space::free_bytes(directory).map_err(failed("look at the space of", directory))
}

/// Makes the directories that the jobs name below the target; fio makes files only.
fn make_directories(job: &JobFile, target: &FioTarget) -> Result<(), String> {
    let FioTarget::Directory(root) = target else {
        return Ok(());
    };
    let make = |path: &Path| fs::create_dir_all(path).map_err(failed("make", path));
    let directories = job.sections.iter().flat_map(|section| &section.options);
    for option in directories.filter(|option| option.name == "directory") {
        for place in split_names(option.value.as_deref().unwrap_or_default()) {
            make(Path::new(&place))?;
        }
    }
    for (index, _) in job.jobs() {
        let places = job.effective(index, "directory").unwrap_or_default();
        for name in split_names(job.effective(index, "filename").unwrap_or_default()) {
            if let Some(parent) = Path::new(&name).parent()
                && parent != Path::new("")
            {
                for place in split_names(places) {
                    make(&root.join(place).join(parent))?;
                }
            }
        }
    }
    Ok(())
}

fn write_files(
    plan: &Fio<'_>,
    resolved: &JobFile,
    need: Need,
    stop: &AtomicBool,
) -> Result<FioLayout, String> {
    let started = Instant::now();
    let elapsed_ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match plan.target {
        FioTarget::Device(device) => {
            let mounted = layout::mount_of(device).map_err(failed("look at", device))?;
            if let Some(point) = mounted {
                let (device, point) = (device.display(), point.display());
                return Err(format!("{device} is mounted on {point}; it is not written to"));
            }
            let device_bytes =
                layout::device_bytes(device).map_err(failed("take the size of", device))?;
            let is_known = need.unknown_jobs + need.jobs_without_size == 0;
            let bytes = if is_known { need.bytes } else { device_bytes };
            let written = layout::overwrite_device(device, bytes, stop)
                .map_err(failed("overwrite", device))?;
            Ok(FioLayout { overwrite_ns: elapsed_ns(started), ..written })
        }
        FioTarget::Directory(directory) => {
            let before =
                layout::files_below(directory).map_err(failed("look through", directory))?;
            let creating = creating(resolved);
            if creating.jobs().next().is_none() {
                return Ok(FioLayout::default());
            }
            run_fio(plan, "layout.fio", &creating.to_string(), &[], stop)?;
            let layout_ns = elapsed_ns(started);
            if stop.load(Ordering::Relaxed) {
                return Err(STOPPED.into());
            }
            let started = Instant::now();
            let after =
                layout::files_below(directory).map_err(failed("look through", directory))?;
            let written = layout::overwrite_new(&before, &after, stop)
                .map_err(failed("overwrite files in", directory))?;
            Ok(FioLayout { layout_ns, overwrite_ns: elapsed_ns(started), ..written })
        }
    }
}

/// The series of each job, from the logs in the scratch directory.
fn read_series(job: &JobFile, scratch: &Path) -> Vec<JobSeries> {
    let entries = fs::read_dir(scratch).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let of_job = |(index, section): (usize, &JobSection)| {
        let begin = format!("job-{index}_bw.");
        let is_of_it = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
        };
        let logs =
            paths.iter().filter(is_of_it).filter_map(|path| trust::file::read_text(path).ok());
        let given = job.effective(index, "log_avg_msec").and_then(|text| text.parse().ok());
        let interval_ms = given.filter(|interval_ms| *interval_ms > 0).unwrap_or(LOG_INTERVAL_MS);
        let bytes = output::series(&logs.collect::<Vec<_>>(), interval_ms);
        JobSeries { name: section.name.clone(), interval_ms, bytes }
    };
    job.jobs().map(of_job).collect()
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
