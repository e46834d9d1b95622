//! Reads what fio prints: its JSON+ output with the histograms, and its log files.
//!
//! Knows fio 3.33's field names and units; runs nothing. Latencies are taken from the buckets
//! of the histograms, not from the printed percentiles, so that jobs can be merged. A bucket of
//! fio's is at most 1/64 wide (stat.h, FIO_IO_U_PLAT_BITS) and is named by its middle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::latency::{Recorder, Recording};
use vocabulary::report::Latency;

/// The directions of data, with fio's number in the logs.
const DIRECTIONS: [(&str, u32); 3] = [("read", 0), ("write", 1), ("trim", 2)];

/// What fio reported of one job (or of one group, with `group_reporting`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FioJob {
    /// The section's name.
    pub name: String,
    /// fio's group number; jobs after a `stonewall` have another one.
    pub group: u64,
    /// fio's error number for the job, 0 when there was none.
    pub error: i64,
    /// Errors after which it went on.
    #[serde(default)]
    pub errors_passed: u64,
    /// Length of the job.
    pub runtime_ns: u64,
    /// Processor time in user mode, in percent of the runtime.
    pub user_percent: f64,
    /// Processor time in the kernel, in percent of the runtime.
    pub system_percent: f64,
    /// What was read; absent when nothing was.
    pub read: Option<Direction>,
    /// What was written.
    pub write: Option<Direction>,
    /// What was trimmed.
    pub trim: Option<Direction>,
    /// Latencies of the job's syncs.
    pub sync: Option<Latency>,
}

/// One direction of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Operations a second.
    pub operations_per_second: f64,
    /// Length of the direction.
    pub runtime_ns: u64,
    /// Operations that moved less than was asked for.
    pub short_operations: u64,
    /// Exact mean latency, as fio reports it.
    pub latency_mean_ns: f64,
    /// Exact greatest latency, as fio reports it.
    pub latency_max_ns: u64,
    /// The distribution, from fio's buckets; absent when the job turned its latencies off.
    pub latency: Option<Latency>,
}

/// All of fio's JSON output that is read.
#[derive(Clone, Debug)]
pub struct Output {
    /// The version that it names.
    pub version: String,
    /// What it printed before the JSON: hints and warnings.
    pub notes: Vec<String>,
    /// The jobs.
    pub jobs: Vec<FioJob>,
    /// The latencies of all jobs, by direction (`read`, `write`, `trim`, `sync`).
    pub latencies: Recording,
}

/// Reads fio's standard output.
///
/// # Errors
/// What is missing.
pub fn parse(stdout: &str) -> Result<Output, String> {
    let mut notes = Vec::new();
    let mut start = None;
    let mut offset = 0;
    for line in stdout.split_inclusive('\n') {
        if line.trim_end() == "{" {
            start = Some(offset);
            break;
        }
        if !line.trim().is_empty() {
            notes.push(line.trim_end().to_owned());
        }
        offset += line.len();
    }
    let json = &stdout[start.ok_or("fio printed no JSON")?..];
    let root: Value = serde_json::Deserializer::from_str(json)
        .into_iter()
        .next()
        .ok_or("fio printed no JSON")?
        .map_err(|error| format!("fio's JSON breaks off or is damaged: {error}"))?;
    let jobs = root["jobs"].as_array().ok_or("fio's JSON has no jobs")?;
    let mut all = Recorder::new();
    let jobs = jobs.iter().map(|job| parse_job(job, &mut all)).collect::<Result<_, _>>()?;
    Ok(Output {
        version: root["fio version"].as_str().unwrap_or_default().to_owned(),
        notes,
        jobs,
        latencies: all.finish(),
    })
}

fn parse_job(job: &Value, all: &mut Recorder) -> Result<FioJob, String> {
    let name = job["jobname"].as_str().ok_or("a job of fio's JSON has no name")?;
    let mut direction = |name: &str| parse_direction(&job[name], name, all);
    let (read, write, trim) = (direction("read"), direction("write"), direction("trim"));
    let sync = histogram(&job["sync"]["lat_ns"], 0, "sync", all);
    Ok(FioJob {
        name: name.to_owned(),
        group: job["groupid"].as_u64().unwrap_or(0),
        error: job["error"].as_i64().unwrap_or(0),
        errors_passed: job["total_err"].as_u64().unwrap_or(0),
        runtime_ns: job["job_runtime"].as_u64().unwrap_or(0).saturating_mul(1_000_000),
        user_percent: job["usr_cpu"].as_f64().unwrap_or(0.0),
        system_percent: job["sys_cpu"].as_f64().unwrap_or(0.0),
        read,
        write,
        trim,
        sync,
    })
}

fn parse_direction(data: &Value, name: &str, all: &mut Recorder) -> Option<Direction> {
    let operations = data["total_ios"].as_u64().filter(|operations| *operations > 0)?;
    let bytes = data["io_bytes"].as_u64().unwrap_or(0);
    // The whole latency (from the submission to the completion) is what the application waits
    // for; a job can switch it off, and then the time in the device and its queue is left.
    let whole = &data["lat_ns"];
    let chosen = if whole["bins"].is_object() { whole } else { &data["clat_ns"] };
    Some(Direction {
        operations,
        bytes,
        bytes_per_second: data["bw_bytes"].as_f64().unwrap_or(0.0),
        operations_per_second: data["iops"].as_f64().unwrap_or(0.0),
        runtime_ns: data["runtime"].as_u64().unwrap_or(0).saturating_mul(1_000_000),
        short_operations: data["short_ios"].as_u64().unwrap_or(0),
        latency_mean_ns: chosen["mean"].as_f64().unwrap_or(0.0),
        latency_max_ns: chosen["max"].as_u64().unwrap_or(0),
        latency: histogram(chosen, bytes, name, all),
    })
}

/// The distribution in a latency object, which is also added to that of all jobs.
fn histogram(latency: &Value, bytes: u64, name: &str, all: &mut Recorder) -> Option<Latency> {
    let bins = latency["bins"].as_object().filter(|bins| !bins.is_empty())?;
    let mut own = Recorder::new();
    let (own_kind, all_kind) = (own.kind(name), all.kind(name));
    let mut bytes_left = bytes;
    for (nanoseconds, count) in bins {
        let (Ok(nanoseconds), Some(count)) = (nanoseconds.parse(), count.as_u64()) else {
            continue;
        };
        own.record_many(own_kind, nanoseconds, count, bytes_left);
        all.record_many(all_kind, nanoseconds, count, bytes_left);
        // fio tells the bytes of all buckets together only.
        bytes_left = 0;
    }
    own.finish().summary().kinds.into_iter().next()
}

// ---------------------------------------------------------------------------------------------
// Logs
// ---------------------------------------------------------------------------------------------

/// What the threads of one job did in one interval of its logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FioInterval {
    /// Where it begins, from the start of the job.
    pub start_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes trimmed.
    pub trimmed_bytes: u64,
    /// Trim operations.
    pub trims: u64,
}

/// The kinds of log that make a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// `_bw.N.log`: KiB a second.
    Bandwidth,
    /// `_iops.N.log`: operations a second.
    Operations,
}

/// Adds the logs of a job's threads up to a series.
///
/// Each log is of one thread; each of its lines gives a direction's mean since the line before
/// of that direction. Intervals are `interval_ns` long; a line counts in the interval in which
/// most of its time lies.
#[must_use]
pub fn series(logs: &[(LogKind, String)], interval_ns: u64) -> Vec<FioInterval> {
    assert!(interval_ns > 0, "a series needs intervals of some length");
    let mut intervals: BTreeMap<u64, FioInterval> = BTreeMap::new();
    for (kind, text) in logs {
        let mut last_ms = [0_u64; DIRECTIONS.len()];
        for line in text.lines() {
            let Some((end_ms, rate, direction)) = parse_log_line(line) else {
                continue;
            };
            let start_ms = last_ms[direction].min(end_ms);
            last_ms[direction] = end_ms;
            let middle_ns = (start_ms + (end_ms - start_ms) / 2).saturating_mul(1_000_000);
            let index = middle_ns / interval_ns;
            let amount = u128::from(rate) * u128::from(end_ms - start_ms) / 1000;
            let amount = u64::try_from(amount).unwrap_or(u64::MAX);
            let interval = intervals.entry(index).or_insert(FioInterval {
                start_ns: index * interval_ns,
                duration_ns: interval_ns,
                ..FioInterval::default()
            });
            let field = match (kind, direction) {
                (LogKind::Bandwidth, 0) => &mut interval.read_bytes,
                (LogKind::Bandwidth, 1) => &mut interval.written_bytes,
                (LogKind::Bandwidth, _) => &mut interval.trimmed_bytes,
                (LogKind::Operations, 0) => &mut interval.reads,
                (LogKind::Operations, 1) => &mut interval.writes,
                (LogKind::Operations, _) => &mut interval.trims,
            };
            let unit = if *kind == LogKind::Bandwidth { 1024 } else { 1 };
            *field = field.saturating_add(amount.saturating_mul(unit));
        }
    }
    intervals.into_values().collect()
}

/// `time in ms, value, direction, block size, offset[, priority]`
fn parse_log_line(line: &str) -> Option<(u64, u64, usize)> {
    let mut fields = line.split(',').map(str::trim);
    let end_ms = fields.next()?.parse().ok()?;
    let rate = fields.next()?.parse().ok()?;
    let number: u32 = fields.next()?.parse().ok()?;
    let direction = DIRECTIONS.iter().position(|(_, known)| *known == number)?;
    Some((end_ms, rate, direction))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cut of what fio 3.33 printed, with the fields that are read.
    const STDOUT: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected

{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "one", "groupid" : 2, "error" : 0, "job_runtime" : 3001,
      "usr_cpu" : 1.5, "sys_cpu" : 7.25,
      "read" : { "total_ios" : 0, "lat_ns" : { "min" : 0 } },
      "write" : {
        "io_bytes" : 4096000, "bw_bytes" : 1365333, "iops" : 333.3, "runtime" : 3000,
        "total_ios" : 1000, "short_ios" : 0,
        "clat_ns" : { "mean" : 5.0, "max" : 9, "bins" : { "7" : 1000 } },
        "lat_ns" : { "mean" : 14800.5, "max" : 20111, "N" : 1000,
                     "bins" : { "14784" : 990, "19328" : 10 } }
      },
      "trim" : { "total_ios" : 0 },
      "sync" : { "total_ios" : 4, "lat_ns" : { "bins" : { "130560" : 4 } } }
    },
    {
      "jobname" : "two", "groupid" : 3, "error" : 5, "job_runtime" : 1,
      "read" : { "total_ios" : 2, "io_bytes" : 8192, "clat_ns" : { "bins" : { "500" : 2 } },
                 "lat_ns" : { "mean" : 1.0 } },
      "write" : { "io_bytes" : 512, "total_ios" : 1, "lat_ns" : { "bins" : { "19328" : 1 } } },
      "trim" : { "total_ios" : 0 }
    }
  ]
}
Trailing words
"#;

    #[test]
    fn jobs_are_read_and_their_buckets_merged() {
        let output = parse(STDOUT).unwrap();
        assert_eq!(output.version, "fio-3.33");
        assert_eq!(output.notes.len(), 1);
        let one = &output.jobs[0];
        assert_eq!((one.name.as_str(), one.group, one.runtime_ns), ("one", 2, 3_001_000_000));
        assert_eq!(one.read, None);
        let write = one.write.as_ref().unwrap();
        assert_eq!(write.operations, 1000);
        assert_eq!(write.latency_mean_ns, 14_800.5);
        let latency = write.latency.as_ref().unwrap();
        assert_eq!((latency.count, latency.bytes), (1000, 4_096_000));
        assert!((14_784..=14_800).contains(&latency.at(0.5)), "{}", latency.at(0.5));
        assert!((19_300..=19_360).contains(&latency.at(0.999)), "{}", latency.at(0.999));
        assert_eq!(one.sync.as_ref().unwrap().count, 4);
        let two = &output.jobs[1];
        assert_eq!(two.error, 5);
        // Without buckets of the whole latency those of the completion are taken.
        assert!(
            (495..=505).contains(&two.read.as_ref().unwrap().latency.as_ref().unwrap().at(0.5))
        );
        assert_eq!(output.latencies.histogram("write").unwrap().len(), 1001);
        assert_eq!(output.latencies.histogram("read").unwrap().len(), 2);
    }

    #[test]
    fn output_that_breaks_off_is_an_error() {
        for cut in [0, 10, 100, STDOUT.find("Trailing").unwrap() - 3] {
            assert!(parse(&STDOUT[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse("{\n}\n").is_err());
    }

    #[test]
    fn threads_add_up_second_by_second() {
        let bandwidth = "999, 100, 0, 0, 0\n999, 50, 1, 0, 0\n1999, 300, 0, 0, 0\n";
        let other = "1005, 200, 0, 0, 0, 0x0000\n2005, 400, 0, 0, 0, 0x0000\nbroken\n";
        let operations = "999, 25, 0, 0, 0\n1999, 75, 0, 0, 0\n";
        let series = series(
            &[
                (LogKind::Bandwidth, bandwidth.to_owned()),
                (LogKind::Bandwidth, other.to_owned()),
                (LogKind::Operations, operations.to_owned()),
            ],
            1_000_000_000,
        );
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].read_bytes, (99 + 201) * 1024);
        assert_eq!(series[0].written_bytes, 49 * 1024);
        assert_eq!(series[1].read_bytes, (300 + 400) * 1024);
        assert_eq!((series[0].reads, series[1].reads), (24, 75));
        assert_eq!(series[1].start_ns, 1_000_000_000);
    }
}
