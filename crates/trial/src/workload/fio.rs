//! The installed fio: any job that stays within its target, and the flash study's matrix.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::load::{
    FioLoad, FioMatrixLoad, LoadReport, LoadTask, MatrixCell, Metric, OVERALL_OPERATION, Series,
    Target as Place, Unit,
};
use lab::quantity::size_text;
use loads::fio::jobfile::System;
use loads::fio::matrix::{Cell, CellResult, FILES, Matrix, Pattern, QueueEngine, Submission};
use loads::fio::size::need;
use loads::fio::{
    Fio, FioOutcome, FioReport, JobFile, Prepared, Target, fio, guard, lay_out, synced_at_end,
    understood, unsynced,
};
use loads::latency::Recording;
use loads::tool::Tool;

use super::room::{self, Room};
use super::{histogram_log, latencies, whole_sync};
use crate::counters::DeviceCounters;
use crate::stop::Stop;

/// Name of fio's job when it is given as options.
const JOB_NAME: &str = "kurabe";

/// Reads the job file into the load, and refuses one that would leave its target.
pub(super) fn read(load: &mut FioLoad) -> Result<(), String> {
    if let Some(path) = &load.path {
        load.text =
            trust::file::read_text(path).map_err(|refused| format!("job file {refused}"))?;
    }
    confined(load).map(drop)
}

/// The job as it may run in some directory. The directory's name is one that no job can give: fio
/// would take its `#` for the begin of a comment.
fn confined(load: &FioLoad) -> Result<JobFile, String> {
    let somewhere = Target::Directory("/#".into());
    guard::confine(&job(load)?, &somewhere).map_err(|error| error.to_string())
}

fn job(load: &FioLoad) -> Result<JobFile, String> {
    match &load.path {
        Some(path) => JobFile::parse(load.text.as_bytes(), path, &System),
        None => JobFile::from_options(&load.text, JOB_NAME, &System),
    }
    .map_err(|error| error.to_string())
}

/// Refuses jobs that the installed fio does not understand, or whose files are larger than their
/// room.
pub(super) fn check(load: &FioLoad, room: Option<&Room>) -> Result<(), String> {
    understood(&confined(load)?).map_err(|error| error.to_string())?;
    check_room(need(&job(load)?).bytes, room)
}

/// Refuses options that the installed fio does not take, where there is one and the job is at hand.
pub(super) fn check_options(load: &FioLoad) -> Result<(), String> {
    if Tool::Fio.locate().is_err() || load.text.is_empty() {
        return Ok(());
    }
    understood(&confined(load)?).map_err(|error| error.to_string())
}

/// The same as [`check`] for the matrix.
pub(super) fn check_matrix(load: &FioMatrixLoad, room: Option<&Room>) -> Result<(), String> {
    Tool::Fio.locate().map_err(|error| error.to_string())?;
    matrix(load)?;
    check_room(load.size_bytes, room)
}

fn check_room(needed_bytes: u64, room: Option<&Room>) -> Result<(), String> {
    room::check("the jobs need", needed_bytes, room, "give smaller sizes, or a larger device")
}

/// What the jobs will do, and whether they fit.
pub(super) fn plan_text(load: &FioLoad, room: Option<&Room>) -> Result<String, String> {
    let job = job(load)?;
    let need = need(&job);
    let names: Vec<&str> = job.jobs().map(|section| section.name.as_str()).collect();
    let mut entries =
        vec![("jobs", names.join(", ")), ("laid out first", room::bytes_text(need.bytes))];
    if need.jobs_without_size > 0 {
        let share = "share a quarter of the free space, each at most 1 GiB; on raw, the device";
        entries.push(("jobs without a size", format!("{}: they {share}", need.jobs_without_size)));
    }
    if need.unknown_jobs > 0 {
        let unknown = "what they need cannot be told in advance";
        entries.push(("jobs of unknown size", format!("{}: {unknown}", need.unknown_jobs)));
    }
    let synced = synced_at_end(&job);
    if !synced.is_empty() {
        let words =
            "they write through the page cache; their figures include an fsync at their end";
        entries.push(("jobs with end_fsync=1 added", format!("{}: {words}", synced.join(", "))));
    }
    entries.extend(caveat(&job).map(|words| ("caution", words)));
    Ok(room::lines(&entries) + &room::verdict(need.bytes, room))
}

/// The same for the matrix.
pub(super) fn plan_text_of_matrix(
    load: &FioMatrixLoad,
    room: Option<&Room>,
) -> Result<String, String> {
    let matrix = matrix(load)?;
    let cells = matrix.cells().len();
    let seconds = f64::from(matrix.runtime_ms) / 1e3;
    let names = |bytes: &u64| size_text(*bytes);
    let sizes: Vec<String> = load.block_sizes_bytes.iter().map(names).collect();
    let engines = load.engines.join(", ");
    Ok(room::lines(&[
        ("patterns", "randread, randwrite, randrw 70/30".into()),
        ("submission", format!("one by one (psync), queues of 32 and 64 ({engines})")),
        ("block sizes", sizes.join(", ")),
        ("cells", format!("{cells}, each {seconds} s: {:.0} s a trial", cells as f64 * seconds)),
        (
            "laid out first",
            format!(
                "{FILES} files, together {}; on raw, as much of the device",
                room::bytes_text(load.size_bytes)
            ),
        ),
    ]) + &room::verdict(load.size_bytes, room))
}

/// What the figures leave out, where the job says so.
fn caveat(job: &JobFile) -> Option<String> {
    let unsynced = unsynced(job);
    (!unsynced.is_empty()).then(|| {
        format!(
            "figures of {} count writes to the page cache, not to the device; take its end_fsync=0 out",
            unsynced.join(", ")
        )
    })
}

fn target(place: &Place) -> Result<Target, String> {
    match place {
        Place::Directory(directory) => Ok(Target::Directory(directory.clone())),
        Place::Device(device) => Ok(Target::Device(device.clone())),
        Place::Minfs(_) => Err("fio cannot use a file system as a library".into()),
    }
}

pub(super) fn run(load: &FioLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let job = job(load)?;
    let outcome = run_job(&job, task, stop)?;
    let report = &outcome.report;
    Ok(LoadReport {
        metrics: metrics(report),
        latencies: latencies(&outcome.latencies.summary()),
        series: throughput(report),
        findings: findings(report),
        caveat: caveat(&job),
        histogram_log: Some(histogram_log(&outcome.latencies, report.finished.elapsed_ns)?),
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    })
}

/// fio's working directory, outside of the contender; both stages of a load have the same.
fn scratch(task: &LoadTask) -> Result<PathBuf, String> {
    let scratch = task.scratch.join("fio");
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(scratch)
}

/// Name of the file in fio's working directory in which the layout tells the run what it made.
const PREPARED_FILE: &str = "prepared.json";

/// Lays the files of a job out and overwrites them, or the device over the same length, so that
/// the run finds written extents and its counters are the load's alone.
pub(super) fn set_up(load: &FioLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    lay_out_job(&job(load)?, task, stop)
}

/// The same for the matrix: its cells share their files.
pub(super) fn set_up_matrix(
    load: &FioMatrixLoad,
    task: &LoadTask,
    stop: &Stop,
) -> Result<LoadReport, String> {
    let matrix = matrix(load)?;
    let cell = *matrix.cells().first().ok_or("the matrix has no cell")?;
    lay_out_job(&matrix.job(cell, &target(&task.target)?), task, stop)
}

fn lay_out_job(job: &JobFile, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let (scratch, target) = (scratch(task)?, target(&task.target)?);
    let plan = Fio { job, target: &target, scratch: &scratch, prepared: None };
    let prepared = lay_out(&plan, stop.flag(), &mut |_| ()).map_err(|error| error.to_string())?;
    let path = scratch.join(PREPARED_FILE);
    let json = serde_json::to_vec(&prepared).expect("it has a JSON form");
    std::fs::write(&path, json).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(LoadReport::default())
}

fn run_job(job: &JobFile, task: &LoadTask, stop: &Stop) -> Result<FioOutcome, String> {
    let (scratch, target) = (scratch(task)?, target(&task.target)?);
    let path = scratch.join(PREPARED_FILE);
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let json = std::fs::read(&path).map_err(|error| failed(&error))?;
    let prepared: Prepared = serde_json::from_slice(&json).map_err(|error| failed(&error))?;
    let plan = Fio { job, target: &target, scratch: &scratch, prepared: Some(&prepared) };
    fio(&plan, stop.flag(), &mut |_| ()).map_err(|error| error.to_string())
}

/// The names of the figures of reading and of writing: operations and bytes a second.
const DIRECTIONS: [[&str; 2]; 2] =
    [["read operations", "read bandwidth"], ["write operations", "write bandwidth"]];

/// The figures that a job can have; one that reads only has no others than those of reading.
pub(super) fn metric_names() -> Vec<String> {
    DIRECTIONS.iter().flatten().map(ToString::to_string).collect()
}

/// The figure of all cells of the matrix together.
const MATRIX_MEAN: &str = "geometric mean of all cells";

/// The kinds of operation of fio.
pub(super) fn operation_names() -> Vec<String> {
    ["read", "write", "trim"].map(str::to_string).into()
}

/// The kinds of operation of the matrix: the reads and writes of each cell.
pub(super) fn matrix_operation_names(load: &FioMatrixLoad) -> Vec<String> {
    let cells = matrix(load).map(|matrix| matrix.cells()).unwrap_or_default();
    let kinds = |cell: &Cell| {
        let kinds: &[&str] = match cell.pattern {
            Pattern::RandomRead => &["read"],
            Pattern::RandomWrite => &["write"],
            Pattern::RandomMixed => &["read", "write"],
        };
        let name = name_of(*cell);
        kinds.iter().map(|kind| kind_of_cell(&name, kind)).collect::<Vec<_>>()
    };
    cells.iter().flat_map(kinds).collect()
}

/// The figures of the matrix.
pub(super) fn matrix_metric_names(load: &FioMatrixLoad) -> Vec<String> {
    let cells = matrix(load).map(|matrix| matrix.cells()).unwrap_or_default();
    let cells = cells.into_iter().map(|cell| name_of(cell).to_string());
    std::iter::once(MATRIX_MEAN.to_string()).chain(cells).collect()
}

/// Operations and bytes a second of all jobs together, by direction.
fn metrics(report: &FioReport) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for ([operations_name, bandwidth_name], side) in DIRECTIONS
        .into_iter()
        .zip([(|job: &loads::fio::FioJob| job.read.clone()) as fn(&_) -> _, |job| {
            job.write.clone()
        }])
    {
        let sides: Vec<_> = report.jobs.iter().filter_map(side).collect();
        let operations: f64 = sides.iter().map(|side| side.operations_per_second).sum();
        let bytes: f64 = sides.iter().map(|side| side.bytes_per_second).sum();
        if operations > 0.0 {
            metrics.push(Metric {
                name: operations_name.into(),
                value: operations,
                unit: Unit::OperationsPerSecond,
            });
            metrics.push(Metric {
                name: bandwidth_name.into(),
                value: bytes,
                unit: Unit::BytesPerSecond,
            });
        }
    }
    metrics
}

fn throughput(report: &FioReport) -> Vec<Series> {
    report
        .series
        .iter()
        .filter(|job| !job.intervals.is_empty())
        .map(|job| Series {
            name: format!("throughput of {}", job.name),
            unit: Unit::BytesPerSecond,
            interval_ns: job.intervals[0].duration_ns,
            values: job
                .intervals
                .iter()
                .map(|interval| {
                    let bytes = interval.read_bytes + interval.written_bytes;
                    bytes as f64 * 1e9 / interval.duration_ns.max(1) as f64
                })
                .collect(),
        })
        .collect()
}

fn findings(report: &FioReport) -> Vec<String> {
    let mut findings = report.notes.clone();
    findings.extend(falsified(report));
    findings
}

/// What is wrong with the figures, should fio have met a file that was not there.
fn falsified(report: &FioReport) -> Option<String> {
    (report.laid_out_in_run > 0).then(|| {
        format!(
            "fio laid out {} files within the measured run, so its figures are falsified",
            report.laid_out_in_run
        )
    })
}

/// The flash study's queues.
const DEPTHS: [u32; 2] = [32, 64];

fn matrix(load: &FioMatrixLoad) -> Result<Matrix, String> {
    let mut submissions = vec![Submission::Synchronous];
    for engine in &load.engines {
        let engine = match engine.as_str() {
            "libaio" => QueueEngine::Libaio,
            "io_uring" => QueueEngine::IoUring,
            other => return Err(format!("fio's engine '{other}' is neither libaio nor io_uring")),
        };
        submissions.extend(DEPTHS.map(|depth| Submission::Queue { depth, engine }));
    }
    let block_sizes_bytes = load
        .block_sizes_bytes
        .iter()
        .map(|bytes| match u32::try_from(*bytes) {
            Ok(bytes) if bytes >= 512 && bytes.is_power_of_two() => Ok(bytes),
            _ => Err(format!("block size {bytes} is no power of two from 512 bytes on")),
        })
        .collect::<Result<_, _>>()?;
    Ok(Matrix {
        submissions,
        block_sizes_bytes,
        size_bytes: load.size_bytes,
        runtime_ms: u32::try_from(load.cell_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1),
        ..Matrix::default()
    })
}

/// A cell in the laboratory's words.
fn name_of(cell: Cell) -> MatrixCell {
    let (engine, depth) = match cell.submission {
        Submission::Synchronous => ("psync", 1),
        Submission::Queue { depth, engine } => (engine.name(), depth),
    };
    MatrixCell {
        pattern: cell.pattern.name().into(),
        engine: engine.into(),
        depth,
        block_size_bytes: cell.block_size_bytes.into(),
    }
}

/// A kind of operation of a cell: `randrw-70-30-psync-1-4k-write`.
fn kind_of_cell(cell: &MatrixCell, kind: &str) -> String {
    format!("{cell}-{kind}")
}

/// Makes what a cell wrote durable and waits until the device is quiet, so that the next cell does
/// not pay for it.
fn settle(task: &LoadTask, counters: Option<&DeviceCounters>, stop: &Stop) -> Result<(), String> {
    match &task.target {
        Place::Directory(directory) => whole_sync(task).run(directory),
        Place::Device(node) | Place::Minfs(node) => File::open(node).and_then(|n| n.sync_all()),
    }
    .map_err(|error| format!("the sync after a cell: {error}"))?;
    let read = || counters.and_then(|counters| counters.read().ok());
    let mut last = read();
    for _ in 0..QUIET_POLLS_MAX {
        if last.is_none() || stop.flag().load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(QUIET_INTERVAL);
        let now = read();
        if now.zip(last).is_none_or(|(now, last)| now.quiet_since(&last)) {
            break;
        }
        last = now;
    }
    Ok(())
}

/// How long the device has to be quiet after a cell, and how often that is looked at: a device
/// that is never quiet costs a second.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);
const QUIET_POLLS_MAX: u32 = 10;

/// Runs every cell, in the order of the task's seed; each cell's operations a second are a figure
/// of their own, told in the matrix's order.
pub(super) fn run_matrix(
    load: &FioMatrixLoad,
    task: &LoadTask,
    stop: &Stop,
) -> Result<LoadReport, String> {
    let matrix = matrix(load)?;
    let target = target(&task.target)?;
    let counters = task.device.as_deref().and_then(|node| DeviceCounters::of_node(node).ok());
    let (mut metrics, mut results, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    let (mut recordings, mut elapsed_ns) = (Vec::new(), 0);
    let order = matrix.cells_shuffled(task.order_seed);
    let mut outcomes = Vec::new();
    for (place, cell) in order.iter().enumerate() {
        if place > 0 {
            settle(task, counters.as_ref(), stop)?;
        }
        let outcome = run_job(&matrix.job(*cell, &target), task, stop)
            .map_err(|error| format!("cell {cell}: {error}"))?;
        outcomes.push((*cell, outcome));
    }
    let cells = matrix.cells();
    outcomes.sort_by_key(|(cell, _)| cells.iter().position(|other| other == cell));
    for (cell, outcome) in outcomes {
        findings.extend(falsified(&outcome.report).map(|words| format!("cell {cell}: {words}")));
        let result = CellResult::new(cell, &outcome.report.jobs);
        metrics.push(Metric {
            name: name_of(cell).to_string(),
            value: result.operations_per_second,
            unit: Unit::OperationsPerSecond,
        });
        results.push(result);
        recordings.push(outcome.latencies.renamed(|kind| kind_of_cell(&name_of(cell), kind)));
        elapsed_ns += outcome.report.finished.elapsed_ns;
    }
    let recording = Recording::merged(recordings);
    let mut latencies = latencies(&recording.summary());
    // All cells together are no distribution of anything.
    latencies.retain(|latency| latency.operation != OVERALL_OPERATION);
    let logarithms: f64 = metrics.iter().map(|metric: &Metric| metric.value.ln()).sum();
    metrics.insert(
        0,
        Metric {
            name: MATRIX_MEAN.into(),
            value: (logarithms / metrics.len() as f64).exp(),
            unit: Unit::OperationsPerSecond,
        },
    );
    Ok(LoadReport {
        metrics,
        latencies,
        histogram_log: Some(histogram_log(&recording, elapsed_ns)?),
        findings,
        details: serde_json::json!({
            "matrix": matrix,
            "order": order.iter().map(Cell::to_string).collect::<Vec<_>>(),
            "cells": results,
        }),
        ..LoadReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laboratory_and_fio_name_the_cells_alike() {
        let load = FioMatrixLoad {
            size_bytes: 1 << 30,
            cell_ns: 1,
            block_sizes_bytes: vec![512, 4096, 1 << 20],
            engines: vec!["libaio".into(), "io_uring".into()],
        };
        let cells = matrix(&load).unwrap().cells();
        assert_eq!(cells.len(), 3 * 5 * 3);
        for cell in cells {
            assert_eq!(name_of(cell).to_string(), cell.to_string());
            assert_eq!(cell.to_string().parse(), Ok(name_of(cell)));
        }
    }
}
