//! The flash study's matrix of fio runs: patterns by queue depth by block size.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, BareTarget, Describe, Description, FILE_STEP_BYTES, Form, FromKeys, KeyError, Keys,
    LaidOut, Needs, Preflight, Run, WorkloadKey, WorkloadKind, Written, options_without,
    scale_size,
};
use vocabulary::quantity::{parse_size, size_text};
use vocabulary::report::{
    ALL_CELLS, Metric, OVERALL_OPERATION, Unit, WorkloadReport, mean_of_cells,
};
use vocabulary::words::counted;
use vocabulary::workload::{WorkloadTarget, WorkloadTask};

use super::fio::{check_capacity, falsified, lay_out_job, run_job, target};
use super::merged::distributions;
use super::{histogram_log, latencies, tools, whole_sync};
use crate::counters::{DeviceCounters, DeviceReading};
use crate::fio::matrix::{FILES, Matrix, MatrixCell, QUEUE_ENGINES};
use crate::fio::output;
use crate::tool::WorkloadTool;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<FioMatrixWorkload>(
    "fio-matrix",
    &[
        WorkloadKey::load(
            "fio-matrix",
            Form::Switch,
            "Run a matrix of fio: random reads, writes and both, by queue depth and block size.",
        ),
        WorkloadKey::option(
            "size",
            Form::Text("SIZE"),
            "Size of all files together [default: 1G].",
        ),
        WorkloadKey::option("time", Form::Text("TIME"), "Time of a cell [default: 3s]."),
        WorkloadKey::option("block-size", Form::List("SIZE"), "Block sizes [default: 4K to 1M]."),
        WorkloadKey::option(
            "engine",
            Form::List("ENGINE"),
            "fio's engines for the cells that have a queue: libaio, io_uring or both; cells without one have psync [default: libaio].",
        ),
    ],
    &[BareTarget::Raw],
);

const SIZE_DEFAULT: &str = "1G";
const TIME_DEFAULT: &str = "3s";
/// Block sizes by default: the publication's axis.
const BLOCK_SIZES: [&str; 9] = ["4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"];

/// The flash study's matrix.
#[derive(Serialize, Deserialize)]
struct FioMatrixWorkload {
    /// Size of all files together, or of the part of the raw device, in bytes.
    size_bytes: u64,
    /// Length of each cell in ns.
    cell_ns: u64,
    block_sizes_bytes: Vec<u64>,
    /// fio's engines for the cells with a queue, each of them for every cell. Absent in the first
    /// plans, which had one engine.
    #[serde(default)]
    engines: Vec<String>,
}

impl FromKeys for FioMatrixWorkload {
    fn parse(written: &Written<'_>) -> Result<FioMatrixWorkload, KeyError> {
        let mut sizes = written.list("block-size");
        if sizes.is_empty() {
            sizes = BLOCK_SIZES.map(String::from).into();
        }
        let size = |text: &String| {
            parse_size(text).map_err(|problem| KeyError::new("block-size", problem))
        };
        let mut engines = written.list("engine");
        if let Some(name) = engines.iter().find(|name| !QUEUE_ENGINES.contains(&name.as_str())) {
            let known = QUEUE_ENGINES.join(" or ");
            let problem = format!(
                "'{name}' keeps no queue; the cells without one have psync anyway, those with one {known}"
            );
            return Err(KeyError::new("engine", problem));
        }
        engines.dedup();
        if engines.is_empty() {
            engines.push(QUEUE_ENGINES[0].into());
        }
        Ok(FioMatrixWorkload {
            size_bytes: written.size("size", SIZE_DEFAULT)?,
            cell_ns: written.duration("time", TIME_DEFAULT)?.as_nanos() as u64,
            block_sizes_bytes: sizes.iter().map(size).collect::<Result<_, _>>()?,
            engines,
        })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        // Of the files each keeps a mebibyte at least.
        let least_bytes = u64::from(FILES) * FILE_STEP_BYTES;
        scale_size(keys, "size", SIZE_DEFAULT, factor, least_bytes)?;
        let time = Written { keys, name: None }.duration("time", TIME_DEFAULT)?;
        let ms = ((time.as_secs_f64() * 1e3 * factor).round() as u64).max(100);
        keys.insert("time".into(), format!("{ms}ms").into());
        Ok(())
    }
}

impl Describe for FioMatrixWorkload {
    fn description(&self) -> Description {
        let sizes = self.block_sizes_bytes.len();
        let seconds = format!("{} s", self.cell_ns as f64 / 1e9);
        let cells = self.cells();
        let names = cells.iter().map(ToString::to_string);
        // The reads and writes of each cell.
        let kinds = |cell: &MatrixCell| {
            let (.., kinds) = cell.pattern;
            kinds.iter().map(|kind| kind_of_cell(cell, kind)).collect::<Vec<_>>()
        };
        Description {
            metrics: std::iter::once(ALL_CELLS.to_string()).chain(names).collect(),
            operations: cells.iter().flat_map(kinds).collect(),
            amount: Some(format!(
                "cells of {seconds} over {}, {}",
                size_text(self.size_bytes),
                counted(sizes, "block size")
            )),
            amounts: vec![
                Amount::new("the time of a cell", self.cell_ns as f64, seconds),
                Amount::new("the block sizes", sizes as f64, sizes.to_string()),
                Amount::size("the files' size", self.size_bytes),
            ],
            settings: options_without(self, &["cell_ns", "block_sizes_bytes", "size_bytes"]),
            has_setup: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let matrix = self.matrix()?;
        let cells = matrix.cells().len();
        let seconds = f64::from(matrix.runtime_ms) / 1e3;
        let sizes: Vec<String> = self.block_sizes_bytes.iter().copied().map(size_text).collect();
        let engines = self.engines.join(", ");
        Ok(capacity::lines(&[
            ("patterns", "randread, randwrite, randrw 70/30".into()),
            ("submission", format!("one by one (psync), queues of 32 and 64 ({engines})")),
            ("block sizes", sizes.join(", ")),
            (
                "cells",
                format!("{cells}, {seconds} s each: {:.0} s per run", cells as f64 * seconds),
            ),
            (
                "laid out first",
                format!(
                    "{FILES} files, together {}; on raw, as much of the device",
                    capacity::bytes_text(self.size_bytes)
                ),
            ),
        ]) + &capacity::verdict(self.size_bytes, capacity))
    }
}

impl Preflight for FioMatrixWorkload {
    fn needs(&self) -> Needs {
        tools(&[WorkloadTool::Fio])
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        self.matrix()?;
        check_capacity(self.size_bytes, capacity)
    }
}

impl Run for FioMatrixWorkload {
    /// The cells share their files.
    fn set_up(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<LaidOut, String> {
        let matrix = self.matrix()?;
        let cells = matrix.cells();
        let cell = cells.first().ok_or("the matrix has no cell")?;
        lay_out_job(&matrix.job(cell, &target(&task.target)?), false, task, stop).map(LaidOut::from)
    }

    fn parts(&self) -> u32 {
        self.cells().len() as u32
    }

    /// Runs one cell, or every one in the order of the task's seed.
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let matrix = self.matrix()?;
        if let Some(part) = task.part {
            let cells = matrix.cells();
            let cell = cells.get(part as usize).ok_or("the matrix has no such cell")?;
            return run_cell(&matrix, cell, task, stop);
        }
        let counters = task.device.as_deref().and_then(|node| DeviceCounters::of_node(node).ok());
        let settle = || settle(task, counters.as_ref(), stop);
        let cells = matrix.cells_shuffled(task.order_seed);
        self.whole(apart(&cells, settle, |cell| run_cell(&matrix, cell, task, stop))?)
    }

    /// Each cell's operations a second are a metric of their own, told in the matrix's order after
    /// the mean of all.
    fn whole(&self, parts: Vec<WorkloadReport>) -> Result<WorkloadReport, String> {
        let matrix = self.matrix()?;
        let of_cell = |cell: &MatrixCell| {
            let name = cell.to_string();
            let is_its =
                |report: &&WorkloadReport| report.metrics.iter().any(|one| one.name == name);
            parts.iter().find(is_its).ok_or(format!("cell {name} was not run"))
        };
        let cells: Vec<&WorkloadReport> =
            matrix.cells().iter().map(of_cell).collect::<Result<_, _>>()?;
        let elapsed_ns = u64::from(matrix.runtime_ms) * 1_000_000 * cells.len() as u64;
        let (mut latencies, histogram_log) = distributions(&cells, elapsed_ns)?;
        // All cells together are no distribution of anything.
        latencies.retain(|latency| latency.operation != OVERALL_OPERATION);
        let mut metrics: Vec<Metric> =
            cells.iter().flat_map(|report| report.metrics.clone()).collect();
        let value = mean_of_cells(metrics.iter()).ok_or("the matrix has no cell")?;
        metrics.insert(0, Metric::new(ALL_CELLS, value, Unit::OperationsPerSecond));
        let order = parts.iter().flat_map(|part| &part.metrics).map(|metric| &metric.name);
        Ok(WorkloadReport {
            metrics,
            latencies,
            histogram_log,
            findings: cells.iter().flat_map(|report| report.findings.clone()).collect(),
            written_bytes: cells.iter().map(|report| report.written_bytes).sum(),
            operations: cells.iter().map(|report| report.operations).sum(),
            details: serde_json::json!({
                "matrix": matrix,
                "order": order.collect::<Vec<_>>(),
            }),
            ..WorkloadReport::default()
        })
    }
}

/// Runs one cell after the other, each after the first one only when what came before has settled.
fn apart<C, R>(
    cells: &[C],
    settle: impl Fn() -> Result<(), String>,
    run: impl Fn(&C) -> Result<R, String>,
) -> Result<Vec<R>, String> {
    let mut reports = Vec::with_capacity(cells.len());
    for cell in cells {
        if !reports.is_empty() {
            settle()?;
        }
        reports.push(run(cell)?);
    }
    Ok(reports)
}

fn run_cell(
    matrix: &Matrix,
    cell: &MatrixCell,
    task: &WorkloadTask,
    stop: &AtomicBool,
) -> Result<WorkloadReport, String> {
    let report = run_job(&matrix.job(cell, &target(&task.target)?), false, task, stop)
        .map_err(|error| format!("cell {cell}: {error}"))?;
    let sides = report.jobs.iter().flat_map(|job| [&job.read, &job.write]);
    let value = sides.map(|side| side.iops).sum();
    let recording = output::latencies(&report.jobs).renamed(|kind| kind_of_cell(cell, kind));
    let findings = falsified(&report).map(|words| format!("cell {cell}: {words}"));
    Ok(WorkloadReport {
        metrics: vec![operations_of(cell, value)],
        latencies: latencies(&recording.summary()),
        histogram_log: Some(histogram_log(&recording, report.finished.elapsed_ns)?),
        findings: findings.into_iter().collect(),
        written_bytes: Some(output::written_bytes(&report.jobs)),
        operations: Some(
            report.jobs.iter().map(|job| job.read.total_ios + job.write.total_ios).sum(),
        ),
        ..WorkloadReport::default()
    })
}

fn operations_of(cell: &MatrixCell, value: f64) -> Metric {
    let axes = cell.axes();
    Metric { axes, ..Metric::new(cell.to_string(), value, Unit::OperationsPerSecond) }
}

impl FioMatrixWorkload {
    fn matrix(&self) -> Result<Matrix, String> {
        let block_sizes_bytes = self
            .block_sizes_bytes
            .iter()
            .map(|bytes| match u32::try_from(*bytes) {
                Ok(bytes) if bytes >= 512 && bytes.is_power_of_two() => Ok(bytes),
                _ => Err(format!("block size {bytes} is not a power of two of at least 512 bytes")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Matrix {
            engines: self.engines.clone(),
            block_sizes_bytes,
            size_bytes: self.size_bytes,
            runtime_ms: u32::try_from(self.cell_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1),
        })
    }

    fn cells(&self) -> Vec<MatrixCell> {
        self.matrix().map(|matrix| matrix.cells()).unwrap_or_default()
    }
}

/// A kind of operation of a cell: `randrw-70-30-psync-1-4k-write`.
fn kind_of_cell(cell: &MatrixCell, kind: &str) -> String {
    format!("{cell}-{kind}")
}

/// Makes what a cell wrote durable and waits until the device is quiet, so that the next cell does
/// not pay for it.
fn settle(
    task: &WorkloadTask,
    counters: Option<&DeviceCounters>,
    stop: &AtomicBool,
) -> Result<(), String> {
    match &task.target {
        WorkloadTarget::Directory(directory) => whole_sync(task).run(directory),
        WorkloadTarget::Device(node) | WorkloadTarget::Library(node) => {
            File::open(node).and_then(|n| n.sync_all())
        }
    }
    .map_err(|error| format!("the sync after a cell: {error}"))?;
    let stopped = || stop.load(Ordering::Relaxed);
    wait_until_quiet(QUIET_INTERVAL, stopped, || {
        counters.and_then(|counters| counters.read().ok())
    });
    Ok(())
}

/// Waits until two readings of the device, this far apart, show that nothing went on between them.
fn wait_until_quiet(
    interval: Duration,
    stopped: impl Fn() -> bool,
    read: impl Fn() -> Option<DeviceReading>,
) {
    let mut last = read();
    for _ in 0..QUIET_POLLS_MAX {
        if last.is_none() || stopped() {
            break;
        }
        std::thread::sleep(interval);
        let now = read();
        if now.zip(last).is_none_or(|(now, last)| now.quiet_since(&last)) {
            break;
        }
        last = now;
    }
}

/// How long the device has to be quiet after a cell, and how often that is looked at: a device
/// that is never quiet costs a second.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);
const QUIET_POLLS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_cell_begins_only_when_the_device_is_quiet_after_the_one_before() {
        // The device goes on writing for three looks after each cell.
        let left = Cell::new(0_u64);
        let read = || {
            left.set(left.get().saturating_sub(1));
            let mut reading = DeviceReading::default();
            reading.in_flight = left.get();
            Some(reading)
        };
        let settle = || {
            wait_until_quiet(Duration::ZERO, || false, read);
            Ok(())
        };
        let run = |cell: &u32| {
            assert_eq!(left.get(), 0, "cell {cell} begins before the device is quiet");
            left.set(3);
            Ok(*cell)
        };
        assert_eq!(apart(&[1, 2, 3], settle, run).unwrap(), [1, 2, 3]);
        // A device that is never quiet holds nothing up for ever.
        let looks = Cell::new(0);
        wait_until_quiet(
            Duration::ZERO,
            || false,
            || {
                looks.set(looks.get() + 1);
                let mut busy = DeviceReading::default();
                busy.in_flight = 1;
                Some(busy)
            },
        );
        assert_eq!(looks.get(), u64::from(QUIET_POLLS_MAX) + 1);
    }

    #[test]
    fn all_cells_together_wrote_what_each_wrote() {
        let load = FioMatrixWorkload {
            size_bytes: 1 << 20,
            cell_ns: 1_000_000,
            block_sizes_bytes: vec![4096],
            engines: vec![QUEUE_ENGINES[0].into()],
        };
        let mut parts: Vec<WorkloadReport> = load
            .cells()
            .iter()
            .map(|cell| WorkloadReport {
                metrics: vec![operations_of(cell, 1.0)],
                written_bytes: Some(4096),
                ..WorkloadReport::default()
            })
            .collect();
        let all = parts.len() as u64;
        assert_eq!(load.whole(parts.clone()).unwrap().written_bytes, Some(all * 4096));
        parts[0].written_bytes = None;
        assert_eq!(load.whole(parts).unwrap().written_bytes, None);
    }
}
