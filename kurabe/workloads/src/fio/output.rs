//! Reads what fio prints: its JSON+ output with the histograms, and its log files.
//!
//! Knows fio 3.33's field names and units; runs nothing. Latencies are taken from the buckets
//! of the histograms, not from the printed percentiles, so that jobs can be merged. A bucket of
//! fio's is at most 1/64 wide (stat.h, FIO_IO_U_PLAT_BITS) and is named by its middle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::tool::Finished;
use measure::latency::{LatencyRecorder, LatencyRecording};

/// What fio reported of one job (or of one group, with `group_reporting`), under fio's own names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FioJob {
    /// The section's name.
    pub jobname: String,
    /// fio's group number; jobs after a `stonewall` have another one.
    pub groupid: u64,
    /// fio's error number for the job, 0 when there was none.
    pub error: i64,
    /// Errors after which it went on.
    pub total_err: u64,
    /// Length of the job in ms.
    pub job_runtime: u64,
    /// Processor time in user mode, in percent of the runtime.
    pub usr_cpu: f64,
    /// Processor time in the kernel, in percent of the runtime.
    pub sys_cpu: f64,
    pub read: Direction,
    pub write: Direction,
    pub trim: Direction,
    /// All of these as one, where the job says `unified_rw_reporting`; then the others are zero.
    #[serde(skip_serializing_if = "Direction::is_empty")]
    pub mixed: Direction,
    /// The job's syncs.
    pub sync: Direction,
}

/// One direction of a job; all zero where nothing was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Direction {
    pub total_ios: u64,
    pub io_bytes: u64,
    /// Bytes a second.
    pub bw_bytes: f64,
    /// Operations a second.
    pub iops: f64,
    /// Length of the direction in ms.
    pub runtime: u64,
    /// Operations that moved less than was asked for.
    pub short_ios: u64,
    /// The distribution of the whole latency.
    #[serde(skip_serializing_if = "LatencyCounts::is_empty")]
    pub lat_ns: LatencyCounts,
    /// That of the time in the device and its queue.
    #[serde(skip_serializing_if = "LatencyCounts::is_empty")]
    pub clat_ns: LatencyCounts,
    /// The time until the kernel had taken an operation; only engines that do not wait for it have one.
    #[serde(skip_serializing_if = "SubmissionTimes::is_empty")]
    pub slat_ns: SubmissionTimes,
}

/// How long submissions took: fio counts no buckets of them unless a job asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubmissionTimes {
    #[serde(rename = "N")]
    pub count: u64,
    pub mean: f64,
}

impl SubmissionTimes {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn together(all: impl Iterator<Item = SubmissionTimes>) -> SubmissionTimes {
        let (mut count, mut total_ns) = (0, 0.0);
        for times in all {
            count += times.count;
            total_ns += times.mean * times.count as f64;
        }
        SubmissionTimes { count, mean: total_ns / count.max(1) as f64 }
    }
}

/// A distribution: counts by latency in ns, and what fio says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyCounts {
    /// Counts. They are kept as histograms, and not among what fio says.
    #[serde(skip_serializing)]
    pub bins: BTreeMap<u64, u64>,
    /// fio's own percentiles, for whoever compares; no figure is made of them.
    pub percentile: BTreeMap<String, u64>,
    /// Greatest, exact.
    pub max: u64,
    /// Mean, exact.
    pub mean: f64,
}

impl LatencyCounts {
    fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    fn count(&self) -> u64 {
        self.bins.values().sum()
    }

    fn total_ns(&self) -> u64 {
        (self.mean * self.count() as f64) as u64
    }

    fn together<'a>(all: impl Iterator<Item = &'a LatencyCounts>) -> LatencyCounts {
        let (mut sum, mut total_ns) = (LatencyCounts::default(), 0.0);
        for times in all {
            for (latency_ns, count) in &times.bins {
                *sum.bins.entry(*latency_ns).or_default() += count;
            }
            sum.max = sum.max.max(times.max);
            total_ns += times.mean * times.count() as f64;
        }
        sum.mean = total_ns / sum.count().max(1) as f64;
        sum
    }
}

impl Direction {
    fn is_empty(&self) -> bool {
        self.total_ios == 0
    }

    /// Several that ran at the same time as one: over the length of the longest, as fio sums up a group.
    pub fn together(all: &[&Direction]) -> Direction {
        if let [one] = all {
            return Direction::clone(one);
        }
        let sum = |figure: fn(&Direction) -> u64| all.iter().map(|one| figure(one)).sum::<u64>();
        let runtime = all.iter().map(|one| one.runtime).max().unwrap_or(0);
        let (total_ios, io_bytes) = (sum(|one| one.total_ios), sum(|one| one.io_bytes));
        let a_second = |amount: u64| match runtime {
            0 => 0.0,
            ms => amount as f64 * 1000.0 / ms as f64,
        };
        Direction {
            total_ios,
            io_bytes,
            runtime,
            iops: a_second(total_ios),
            bw_bytes: a_second(io_bytes),
            short_ios: sum(|one| one.short_ios),
            lat_ns: LatencyCounts::together(all.iter().map(|one| &one.lat_ns)),
            clat_ns: LatencyCounts::together(all.iter().map(|one| &one.clat_ns)),
            slat_ns: SubmissionTimes::together(all.iter().map(|one| one.slat_ns)),
        }
    }

    /// Records its latencies under this name. The whole latency, from the submission to the completion, is
    /// what the application waits for; a job can switch it off, and then the time in the device and its
    /// queue is left. Of a job that measures neither (`gtod_reduce`) nothing is recorded.
    pub fn record(&self, recorder: &mut LatencyRecorder, name: &str) {
        let times = if self.lat_ns.bins.is_empty() { &self.clat_ns } else { &self.lat_ns };
        if times.count() == 0 {
            return;
        }
        let kind = recorder.kind(name);
        for (latency_ns, count) in &times.bins {
            recorder.record_many(kind, *latency_ns, *count, 0);
        }
        recorder.told(kind, self.io_bytes, times.total_ns(), times.max);
    }
}

impl FioJob {
    /// Several jobs as one. Errors and processor times are left out.
    pub fn together(jobs: &[&FioJob]) -> FioJob {
        let side = |side: fn(&FioJob) -> &Direction| {
            Direction::together(&jobs.iter().map(|job| side(job)).collect::<Vec<_>>())
        };
        FioJob {
            jobname: jobs.first().map(|job| job.jobname.clone()).unwrap_or_default(),
            groupid: jobs.first().map_or(0, |job| job.groupid),
            job_runtime: jobs.iter().map(|job| job.job_runtime).max().unwrap_or(0),
            read: side(|job| &job.read),
            write: side(|job| &job.write),
            trim: side(|job| &job.trim),
            mixed: side(|job| &job.mixed),
            sync: side(|job| &job.sync),
            ..FioJob::default()
        }
    }

    /// Whether fio counted any operation of it.
    pub fn has_done_any(&self) -> bool {
        [&self.read, &self.write, &self.trim, &self.mixed].iter().any(|side| side.total_ios > 0)
    }
}

/// All of fio's JSON output that is read.
#[derive(Clone, Debug, Deserialize)]
pub struct FioOutput {
    /// The version that it names.
    #[serde(default, rename = "fio version")]
    pub version: String,
    /// What it printed before the JSON: hints and warnings.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The jobs; those of a node, where fio is its client.
    #[serde(alias = "client_stats")]
    pub jobs: Vec<FioJob>,
}

/// Reads fio's standard output.
pub fn parse(stdout: &str) -> Result<FioOutput, String> {
    let before = |line: &&str| line.trim_end() != "{";
    let notes: Vec<&str> = stdout.split_inclusive('\n').take_while(before).collect();
    let json = &stdout[notes.iter().map(|line| line.len()).sum()..];
    let mut output: FioOutput = serde_json::Deserializer::from_str(json)
        .into_iter()
        .next()
        .ok_or("fio printed no JSON")?
        .map_err(|error| format!("fio's JSON breaks off or is damaged: {error}"))?;
    let notes = notes.into_iter().map(str::trim_end).filter(|line| !line.is_empty());
    output.notes = notes.map(str::to_owned).collect();
    Ok(output)
}

/// Most reasons of a failure that are told.
const REASONS_MAX: usize = 4;

/// Why fio failed, in its own words and without repetition: what it printed on standard error, then what
/// it printed before its JSON of jobs that ended with an error. Nothing where it gave no reason.
pub fn reasons(finished: &Finished) -> Vec<String> {
    // Each process of a job says the same with another number.
    let without_pid = |line: &str| match line.split_once("pid=") {
        Some((before, after)) => {
            before.to_owned()
                + after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',').trim_start()
        }
        None => line.to_owned(),
    };
    let before_json = finished.stdout.lines().take_while(|line| line.trim_end() != "{");
    let of_jobs = before_json.filter(|line| line.starts_with("fio: "));
    let mut reasons: Vec<String> = Vec::new();
    for line in finished.stderr.lines().chain(of_jobs) {
        let line = without_pid(line.trim());
        let line = line.strip_prefix("fio: ").unwrap_or(&line).to_owned();
        // fio goes on without, and kurabe drops the caches itself.
        let is_remark = line.starts_with("cache invalidation of ");
        if !line.is_empty() && !is_remark && !reasons.contains(&line) && reasons.len() < REASONS_MAX
        {
            reasons.push(line);
        }
    }
    reasons
}

/// The latencies of all jobs, by direction (`read`, `write`, `trim`, `sync`): of jobs of one kind.
pub fn latencies(jobs: &[FioJob]) -> LatencyRecording {
    let mut recorder = LatencyRecorder::new();
    let all = FioJob::together(&jobs.iter().collect::<Vec<_>>());
    for (name, side) in
        [("read", &all.read), ("write", &all.write), ("trim", &all.trim), ("sync", &all.sync)]
    {
        side.record(&mut recorder, name);
    }
    recorder.finish()
}

/// fio's number of the direction whose bytes are no data.
const TRIM: u32 = 2;

/// Adds the bandwidth logs of a job's threads up: the bytes that were read and written in each
/// interval from the job's start.
///
/// Each log is of one thread; each of its lines gives a direction's mean since the line before
/// of that direction. A line counts in the interval in which most of its time lies.
pub fn series(logs: &[String], interval_ms: u64) -> Vec<u64> {
    assert!(interval_ms > 0, "a series needs intervals of some length");
    let mut intervals = Vec::new();
    for text in logs {
        let mut last_ms = BTreeMap::new();
        for (end_ms, rate_kib, direction) in text.lines().filter_map(parse_log_line) {
            let start_ms = last_ms.insert(direction, end_ms).unwrap_or(0).min(end_ms);
            let index = ((start_ms + (end_ms - start_ms) / 2) / interval_ms) as usize;
            if direction == TRIM || index >= INTERVALS_MAX {
                continue;
            }
            if intervals.len() <= index {
                intervals.resize(index + 1, 0);
            }
            let bytes = u128::from(rate_kib) * 1024 * u128::from(end_ms - start_ms) / 1000;
            let sum = u128::from(intervals[index]) + bytes;
            intervals[index] = u64::try_from(sum).unwrap_or(u64::MAX);
        }
    }
    intervals
}

/// A year of seconds: what lies beyond is a damaged line.
const INTERVALS_MAX: usize = 366 * 24 * 3600;

/// `time in ms, KiB a second, direction, block size, offset[, priority]`
fn parse_log_line(line: &str) -> Option<(u64, u64, u32)> {
    let mut fields = line.split(',').map(str::trim);
    let end_ms = fields.next()?.parse().ok()?;
    let rate_kib = fields.next()?.parse().ok()?;
    Some((end_ms, rate_kib, fields.next()?.parse().ok()?))
}

/// Bytes that the jobs wrote.
pub fn written_bytes(jobs: &[FioJob]) -> u64 {
    jobs.iter().map(|job| job.write.io_bytes).sum()
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
        "slat_ns" : { "min" : 900, "max" : 8000, "mean" : 1500.0, "stddev" : 3.0, "N" : 1000 },
        "clat_ns" : { "mean" : 5.0, "max" : 9, "bins" : { "7" : 1000 } },
        "lat_ns" : { "mean" : 14800.5, "max" : 20111, "N" : 1000,
                     "bins" : { "14784" : 990, "19328" : 10 } }
      },
      "trim" : { "total_ios" : 0 },
      "sync" : { "total_ios" : 4, "lat_ns" : { "bins" : { "130560" : 4 } } }
    },
    {
      "jobname" : "two", "groupid" : 3, "error" : 5, "job_runtime" : 1,
      "read" : { "total_ios" : 2, "io_bytes" : 8192, "clat_ns" : { "mean" : 499.0, "max" : 501, "bins" : { "500" : 2 } },
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
        assert_eq!((one.jobname.as_str(), one.groupid, one.job_runtime), ("one", 2, 3001));
        assert_eq!((one.read.total_ios, one.write.total_ios), (0, 1000));
        assert_eq!(output.jobs[1].error, 5);
        let other = SubmissionTimes { count: 3000, mean: 500.0 };
        let both = SubmissionTimes::together([one.write.slat_ns, other].into_iter());
        assert_eq!(both, SubmissionTimes { count: 4000, mean: 750.0 });
        let summary = latencies(&output.jobs).summary();
        let of = |name: &str| summary.kinds.iter().find(|kind| kind.operation == name).unwrap();
        let write = of("write");
        assert_eq!((write.count, write.bytes), (1001, 4_096_512));
        // The greatest is fio's own, and not that of a bucket.
        assert_eq!(write.max_ns, 20_111);
        assert!((14_784..=14_800).contains(&write.at(0.5)), "{}", write.at(0.5));
        assert!((19_300..=19_360).contains(&write.at(0.999)), "{}", write.at(0.999));
        assert_eq!(of("sync").count, 4);
        assert_eq!(written_bytes(&output.jobs), 4_096_512);
        // Without buckets of the whole latency those of the completion are taken.
        assert_eq!(of("read").count, 2);
        assert!((495..=505).contains(&of("read").at(0.5)));
    }

    #[test]
    fn a_failure_has_the_reason_that_fio_gives() {
        let failed = |stdout: &str, stderr: &str| {
            let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
            let finished = Finished { exit_code: Some(1), ..Finished::default() };
            reasons(&Finished { stdout, stderr, ..finished })
        };
        let of_job = "err=95/file:ioengines.c:399, func=td_io_queue, error=Not supported";
        let two = format!("fio: pid=18, {of_job}\nfio: pid=19, {of_job}\n\n{STDOUT}");
        assert_eq!(failed(&two, ""), [of_job]);
        let remark = "fio: cache invalidation of dev/loop7 failed: Permission denied\n";
        assert_eq!(failed(&two, remark), [of_job]);
        let on_stderr = "fio: failed parsing directory=x\n\nfio: file:options.c:1457, func=lstat\n";
        let expected = ["failed parsing directory=x", "file:options.c:1457, func=lstat"];
        assert_eq!(failed("", on_stderr), expected);
        assert_eq!(failed(STDOUT, ""), [""; 0]);
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
        let trims = "3999, 500, 2, 0, 0\n3999, 8, 0, 0, 0\n99999999999999, 1, 0, 0, 0\n";
        let series = series(&[bandwidth, other, trims].map(str::to_owned), 1000);
        // The rate is whole KiB over a second that is a millisecond off.
        let kib = |rate: u64, ms: u64| rate * 1024 * ms / 1000;
        assert_eq!(series[..1], [kib(100, 999) + kib(50, 999) + kib(200, 1005)]);
        assert_eq!(series[1..], [kib(300, 1000) + kib(400, 1000) + kib(8, 3999)]);
    }
}
