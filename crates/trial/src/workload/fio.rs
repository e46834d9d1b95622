//! The installed fio: any job that stays within its target, and the flash study's matrix.

use std::path::Path;

use lab::load::{
    FioLoad, FioMatrixLoad, LoadReport, LoadTask, Metric, Series, Target as Place, Unit,
};
use loads::fio::jobfile::System;
use loads::fio::matrix::{CellResult, Matrix, QueueEngine, Submission};
use loads::fio::size::need;
use loads::fio::{Fio, FioOutcome, FioReport, JobFile, Target, fio, guard};
use loads::tool::Tool;

use super::{histogram_log, latencies};
use crate::stop::Stop;

/// Name of fio's job when it is given as options.
const JOB_NAME: &str = "kurabe";

/// Reads the job file into the load, and refuses one that would leave its target.
pub(super) fn read(load: &mut FioLoad) -> Result<(), String> {
    if let Some(path) = &load.path {
        load.text = std::fs::read_to_string(path)
            .map_err(|error| format!("job file {}: {error}", path.display()))?;
    }
    let job = job(load)?;
    // Any directory will do to see whether the job stays within it.
    guard::confine(&job, &Target::Directory("/target".into()))
        .map_err(|error| error.to_string())?;
    Ok(())
}

fn job(load: &FioLoad) -> Result<JobFile, String> {
    match &load.path {
        Some(path) => JobFile::parse(load.text.as_bytes(), path, &System),
        None => JobFile::from_options(&load.text, JOB_NAME, &System),
    }
    .map_err(|error| error.to_string())
}

/// Refuses jobs whose files are larger than the device.
pub(super) fn check(load: &FioLoad, device_bytes: Option<u64>) -> Result<(), String> {
    Tool::Fio.locate().map_err(|error| error.to_string())?;
    too_large(need(&job(load)?).bytes, device_bytes)
}

/// The same for the matrix.
pub(super) fn check_matrix(load: &FioMatrixLoad, device_bytes: Option<u64>) -> Result<(), String> {
    Tool::Fio.locate().map_err(|error| error.to_string())?;
    matrix(load)?;
    too_large(load.size_bytes, device_bytes)
}

fn too_large(needed_bytes: u64, device_bytes: Option<u64>) -> Result<(), String> {
    match device_bytes {
        Some(bytes) if needed_bytes > bytes => Err(format!(
            "the jobs need {needed_bytes} bytes, and the device has {bytes}; give smaller sizes, or a larger device"
        )),
        _ => Ok(()),
    }
}

fn target(place: &Place) -> Result<Target, String> {
    match place {
        Place::Directory(directory) => Ok(Target::Directory(directory.clone())),
        Place::Device(device) => Ok(Target::Device(device.clone())),
        Place::Minfs(_) => Err("fio cannot use a file system as a library".into()),
    }
}

pub(super) fn run(load: &FioLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let outcome = run_job(&job(load)?, task, stop)?;
    let report = &outcome.report;
    Ok(LoadReport {
        metrics: metrics(report),
        latencies: latencies(&outcome.latencies.summary()),
        series: throughput(report),
        findings: findings(report),
        histogram_log: Some(histogram_log(&outcome.latencies, report.finished.elapsed_ns)?),
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    })
}

fn run_job(job: &JobFile, task: &LoadTask, stop: &Stop) -> Result<FioOutcome, String> {
    let scratch = task.report.parent().unwrap_or(Path::new("/tmp")).join("fio");
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let target = target(&task.target)?;
    let plan = Fio { job, target: &target, scratch: &scratch, lay_out: true };
    fio(&plan, stop.flag(), &mut |_| ()).map_err(|error| error.to_string())
}

/// Operations and bytes a second of all jobs together, by direction.
fn metrics(report: &FioReport) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (name, side) in [
        ("read", (|job: &loads::fio::FioJob| job.read.clone()) as fn(&_) -> _),
        ("write", |job| job.write.clone()),
    ] {
        let sides: Vec<_> = report.jobs.iter().filter_map(side).collect();
        let operations: f64 = sides.iter().map(|side| side.operations_per_second).sum();
        let bytes: f64 = sides.iter().map(|side| side.bytes_per_second).sum();
        if operations > 0.0 {
            metrics.push(Metric {
                name: format!("{name} operations"),
                value: operations,
                unit: Unit::OperationsPerSecond,
            });
            metrics.push(Metric {
                name: format!("{name} bandwidth"),
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
    if report.layout.is_some() {
        findings.push("the phase 'run' and its device columns include laying the files out; the figures above are fio's own".into());
    }
    if report.laid_out_in_run > 0 {
        findings.push(format!(
            "fio laid out {} files within the measured run, so its figures are falsified",
            report.laid_out_in_run
        ));
    }
    findings
}

fn matrix(load: &FioMatrixLoad) -> Result<Matrix, String> {
    let engine = match load.engine.as_str() {
        "libaio" => QueueEngine::Libaio,
        "io_uring" => QueueEngine::IoUring,
        other => return Err(format!("fio's engine '{other}' is neither libaio nor io_uring")),
    };
    let block_sizes_bytes = load
        .block_sizes_bytes
        .iter()
        .map(|bytes| match u32::try_from(*bytes) {
            Ok(bytes) if bytes >= 512 && bytes.is_power_of_two() => Ok(bytes),
            _ => Err(format!("block size {bytes} is no power of two from 512 bytes on")),
        })
        .collect::<Result<_, _>>()?;
    Ok(Matrix {
        submissions: vec![
            Submission::Synchronous,
            Submission::Queue { depth: 32, engine },
            Submission::Queue { depth: 64, engine },
        ],
        block_sizes_bytes,
        size_bytes: load.size_bytes,
        runtime_seconds: load.cell_ns.div_ceil(1_000_000_000).max(1) as u32,
        ..Matrix::default()
    })
}

/// Runs every cell; each cell's operations a second are a figure of their own.
pub(super) fn run_matrix(
    load: &FioMatrixLoad,
    task: &LoadTask,
    stop: &Stop,
) -> Result<LoadReport, String> {
    let matrix = matrix(load)?;
    let target = target(&task.target)?;
    let (mut metrics, mut results) = (Vec::new(), Vec::new());
    for cell in matrix.cells() {
        let outcome = run_job(&matrix.job(cell, &target), task, stop)
            .map_err(|error| format!("cell {cell}: {error}"))?;
        let result = CellResult::new(cell, &outcome.report.jobs);
        metrics.push(Metric {
            name: cell.to_string(),
            value: result.operations_per_second,
            unit: Unit::OperationsPerSecond,
        });
        results.push(result);
    }
    Ok(LoadReport {
        metrics,
        findings: vec!["the phase 'run' and its device columns include laying the files out; the figures above are fio's own".into()],
        details: serde_json::json!({ "matrix": matrix, "cells": results }),
        ..LoadReport::default()
    })
}
