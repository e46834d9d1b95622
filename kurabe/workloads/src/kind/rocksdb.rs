//! RocksDB under its own benchmark, db_bench: operations per second are compared, and latencies are those of
//! db_bench's histograms.
//!
//! Where the power is cut, one thread puts keys in order into a database of its own, and db_bench says of each that it
//! has returned; what is left must have all of these.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use measure::acknowledge::Acknowledger;
use measure::latency::LatencyRecorder;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vocabulary::kind::{Form, KeyError, WorkloadKey, WorkloadKind, Written};
use vocabulary::suggestion::unknown;
use vocabulary::words::counted;
use vocabulary::workload::{Loss, WorkloadTask};

use super::database::{
    ACKNOWLEDGED_MAX, CommitFigures, Database, DatabaseWorkload, SEED, ServerPurpose, TIME,
    missing_commit, words_from,
};
use crate::enclosure::Enclosure;
use crate::server::DatabaseServer;
use crate::tool::{WorkloadTool, run_kept_in};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<DatabaseWorkload<RocksdbWorkload>>(
    "rocksdb",
    &[
        WorkloadKey::load(
            "rocksdb",
            Form::Text("BENCHMARK"),
            "Run the installed RocksDB under db_bench: 'overwrite sync=1 threads=1 keys=100000 value-size=400' is a benchmark and the defaults (docs/reference/databases.md).",
        ),
        TIME,
    ],
    &[],
)
.server();

const WORDS: [&str; 6] = ["sync", "threads", "keys", "value-size", "reads", "compression"];
const COMPRESSIONS: [&str; 4] = ["snappy", "none", "lz4", "zstd"];
/// db_bench's benchmarks: by kurabe's name, by db_bench's, whether it begins with an empty database, and whether it
/// writes.
const BENCHMARKS: [(&str, &str, bool, bool); 5] = [
    ("fillsync", "fillsync", true, true),
    ("fillrandom", "fillrandom", true, true),
    ("overwrite", "overwrite", false, true),
    ("readrandom", "readrandom", false, false),
    ("mixed", "readrandomwriterandom", false, true),
];
const THREADS_MAX: u32 = 1000;
const KEYS_MAX: u32 = 1_000_000_000;
/// Bytes of a key, db_bench's default.
const KEY_BYTES: u64 = 16;
/// Bytes that are written before they are in a table: the log and two of RocksDB's buffers.
const BUFFERS_BYTES: u64 = 3 * (64 << 20);
/// Where the keys are put in order.
const ACKNOWLEDGED: &str = "acknowledged";
/// Into how many steps a bucket of db_bench's is divided.
const STEPS: u64 = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RocksdbWorkload {
    benchmark: String,
    /// Whether each write waits for the device.
    sync: bool,
    threads: u32,
    keys: u32,
    value_bytes: u32,
    /// Percent of the operations that read, where they are mixed.
    reads: u32,
    compression: String,
    seconds: u32,
}

impl RocksdbWorkload {
    fn of_text(text: &str, seconds: u32) -> Result<RocksdbWorkload, String> {
        let benchmark = text.split_whitespace().next().unwrap_or_default();
        if !BENCHMARKS.iter().any(|(name, ..)| *name == benchmark) {
            let names = BENCHMARKS.map(|(name, ..)| name);
            return Err(unknown("benchmark is called", benchmark, &names));
        }
        let mut load = RocksdbWorkload {
            benchmark: benchmark.into(),
            sync: true,
            threads: 1,
            keys: 100_000,
            value_bytes: 400,
            reads: 90,
            compression: COMPRESSIONS[0].into(),
            seconds,
        };
        for word in words_from(text, 1)? {
            match (word.name, word.value) {
                ("sync", "1") => load.sync = true,
                ("sync", "0") if benchmark != "fillsync" => load.sync = false,
                ("sync", "0") => return Err("fillsync has sync=1; take fillrandom".into()),
                ("sync", value) => return Err(format!("sync={value}: write sync=1 or sync=0")),
                ("threads", _) => load.threads = word.whole(THREADS_MAX)?,
                ("keys", _) => load.keys = word.whole(KEYS_MAX)?,
                ("reads", _) => load.reads = word.whole(99)?,
                ("value-size", _) => load.value_bytes = word.value_bytes()?,
                ("compression", _) => {
                    load.compression = word.one_of("compression", &COMPRESSIONS)?;
                }
                (name, _) => return Err(unknown("setting of db_bench is called", name, &WORDS)),
            }
        }
        Ok(load)
    }

    fn facts_of_benchmark(&self) -> (&'static str, &'static str, bool, bool) {
        let found = BENCHMARKS.into_iter().find(|(name, ..)| *name == self.benchmark);
        found.unwrap_or(BENCHMARKS[0])
    }

    /// The arguments that all of db_bench's runs share.
    fn fill(&self, command: &mut Command, database: &Path, benchmarks: &str, sync: bool) {
        command
            .arg(format!("--db={}", database.display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--value_size={}", self.value_bytes))
            .arg(format!("--compression_type={}", self.compression))
            .arg(format!("--seed={SEED}"))
            .arg(format!("--sync={}", u8::from(sync)));
    }
}

/// What db_bench says of a benchmark.
#[derive(Debug, Default, PartialEq)]
struct Said {
    per_second: f64,
    seconds: f64,
    operations: u64,
    histograms: Vec<Told>,
}

/// A histogram of db_bench's, in µs.
#[derive(Debug, Default, PartialEq)]
struct Told {
    operation: String,
    count: u64,
    average: f64,
    min: f64,
    max: f64,
    buckets: Vec<(f64, f64, u64)>,
}

/// The number that follows a word in a line.
fn after(line: &str, word: &str) -> Option<f64> {
    line.split_once(word)?.1.split_whitespace().next()?.parse().ok()
}

/// `overwrite : 212.642 micros/op 4702 ops/sec 0.425 seconds 2000 operations;`, and then the histograms.
fn said(text: &str, benchmark: &str) -> Option<Said> {
    let mut lines = text
        .lines()
        .skip_while(|line| !(line.starts_with(benchmark) && line.contains(" ops/sec ")));
    let words: Vec<&str> = lines.next()?.split_whitespace().collect();
    let before = |unit: &str| {
        let place = words.iter().position(|word| *word == unit)?;
        words.get(place.checked_sub(1)?).copied()
    };
    let mut found = Said {
        per_second: before("ops/sec")?.parse().ok()?,
        seconds: before("seconds")?.parse().ok()?,
        operations: before("operations;")?.parse().ok()?,
        histograms: Vec::new(),
    };
    for line in lines {
        if let Some(operation) = line.strip_prefix("Microseconds per ") {
            let operation = operation.trim_end_matches(':').into();
            found.histograms.push(Told { operation, ..Told::default() });
        }
        let Some(told) = found.histograms.last_mut() else { continue };
        if line.starts_with("Count: ") {
            told.count = after(line, "Count:")? as u64;
            told.average = after(line, "Average:")?;
        } else if line.starts_with("Min: ") {
            (told.min, told.max) = (after(line, "Min:")?, after(line, "Max:")?);
        } else if line.starts_with(['[', '(']) {
            let (range, rest) = line[1..].split_once([']', ')'])?;
            let (from, to) = range.split_once(',')?;
            let count = rest.split_whitespace().next()?.parse().ok()?;
            told.buckets.push((from.trim().parse().ok()?, to.trim().parse().ok()?, count));
        }
    }
    Some(found)
}

impl Told {
    /// Puts it into a recorder. Within a bucket, operations are taken as evenly spread, as db_bench does for its own
    /// percentiles.
    fn record(&self, recorder: &mut LatencyRecorder, bytes_each: u64) {
        let kind = recorder.kind(&self.operation);
        for (from, to, count) in &self.buckets {
            let (from, to) = (from.max(self.min), to.min(self.max).max(*from));
            let steps = STEPS.min(*count).max(1);
            for step in 0..steps {
                let count = count * (step + 1) / steps - count * step / steps;
                let us = from + (to - from) * (step as f64 + 0.5) / steps as f64;
                recorder.record_many(kind, (us * 1000.0) as u64, count, 0);
            }
        }
        let total_ns = self.average * self.count as f64 * 1000.0;
        recorder.told(kind, self.count * bytes_each, total_ns as u64, (self.max * 1000.0) as u64);
    }
}

/// How many operations the only thread has done, and how long the last one took in ns, in the line that db_bench
/// prints after each: `... thread 0: (1,3) ops and (1615.5,455.0) ops/second in (0.000619,0.006594) seconds`.
fn done(line: &str) -> Option<(u64, u64)> {
    let pair = |text: &str| {
        let (first, second) = text.split_once(')')?.0.split_once(',')?;
        Some((first.parse::<f64>().ok()?, second.parse::<f64>().ok()?))
    };
    let (_, number) = pair(line.split_once(" thread 0: (")?.1)?;
    let (latency, _) = pair(line.split_once(" in (")?.1)?;
    Some((number as u64, (latency * 1e9) as u64))
}

impl Database for RocksdbWorkload {
    const TOOLS: &'static [WorkloadTool] = &[WorkloadTool::DbBench, WorkloadTool::Ldb];
    const DIRECTORY: &'static str = "rocksdb";
    const METRIC: &'static str = "operations";
    const STALL: &'static str = "longest operation";
    const OPERATIONS: &'static [&'static str] = &["read", "write"];
    const NEEDS: (&'static str, &'static str) = (
        "the keys, their copies while they are compacted and the log need",
        "take fewer keys= or a smaller value-size=, or give a larger device",
    );
    const HAS_SERVER: bool = false;
    /// Nothing is started: the place of the database.
    type Server = PathBuf;

    fn parse(written: &Written<'_>, seconds: u32) -> Result<RocksdbWorkload, KeyError> {
        RocksdbWorkload::of_text(written.text("rocksdb").unwrap_or_default(), seconds)
            .map_err(|problem| KeyError::new("rocksdb", problem))
    }

    fn seconds(&self) -> u32 {
        self.seconds
    }

    fn amount(&self) -> String {
        let threads = counted(self.threads as usize, "thread");
        format!("{threads}, {} keys of {} bytes", self.keys, self.value_bytes)
    }

    fn needed_bytes(&self) -> u64 {
        // Twice over: what is compacted is there until its successor is.
        2 * u64::from(self.keys) * (KEY_BYTES + u64::from(self.value_bytes)) + BUFFERS_BYTES
    }

    fn plan(&self) -> Vec<(&'static str, String)> {
        let (_, benchmark, ..) = self.facts_of_benchmark();
        vec![
            ("benchmark", benchmark.into()),
            ("sync", u8::from(self.sync).to_string()),
            ("threads", self.threads.to_string()),
            ("keys", format!("{} of {} bytes", self.keys, self.value_bytes)),
        ]
    }

    fn create(&self, data: &Path, _stop: &AtomicBool) -> Result<(), String> {
        let make = || {
            for directory in [data, &data.join(ACKNOWLEDGED), &data.join("database")] {
                fs::create_dir(directory)?;
            }
            // The database is made durable by RocksDB, and its directory is not.
            [Some(data), data.parent()].into_iter().flatten().try_for_each(sync_directory)
        };
        make().map_err(|error| format!("making {}: {error}", data.display()))
    }

    fn start(
        &self,
        _task: &WorkloadTask,
        data: &Path,
        purpose: ServerPurpose,
        _stop: &AtomicBool,
    ) -> Result<PathBuf, String> {
        let place =
            data.join(if purpose == ServerPurpose::Check { ACKNOWLEDGED } else { "database" });
        Ok(place)
    }

    fn load(&self, database: &mut PathBuf, stop: &AtomicBool) -> Result<(), String> {
        let (_, _, is_fresh, _) = self.facts_of_benchmark();
        if is_fresh {
            return Ok(());
        }
        let fill = |command: &mut Command| {
            self.fill(command, database, "fillrandom,compact", false);
            command.arg(format!("--num={}", self.keys));
        };
        run_kept_in(WorkloadTool::DbBench, &Enclosure::default(), fill, stop)?;
        // It wrote without waiting for the device.
        let sync = || {
            for entry in fs::read_dir(&*database)? {
                File::open(entry?.path())?.sync_all()?;
            }
            sync_directory(database)
        };
        sync().map_err(|error| format!("syncing {}: {error}", database.display()))
    }

    fn end(&self, _database: PathBuf) -> Result<(), String> {
        Ok(())
    }

    fn facts(&self, _database: &mut PathBuf) -> Result<Vec<(&'static str, String)>, String> {
        let (_, benchmark, ..) = self.facts_of_benchmark();
        Ok(vec![
            ("server_version", WorkloadTool::DbBench.version()?),
            ("benchmark", benchmark.into()),
            ("sync", u8::from(self.sync).to_string()),
            ("compression", self.compression.clone()),
        ])
    }

    fn measure(
        &self,
        _task: &WorkloadTask,
        database: &mut PathBuf,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        let (_, benchmark, is_fresh, is_writing) = self.facts_of_benchmark();
        // fillsync divides its keys by 1000.
        let keys =
            if benchmark == "fillsync" { u64::from(self.keys) * 1000 } else { self.keys.into() };
        let fill = |command: &mut Command| {
            self.fill(command, database, benchmark, self.sync);
            command
                .arg(format!("--num={keys}"))
                .arg(format!("--threads={}", self.threads))
                .arg(format!("--duration={}", self.seconds))
                .arg("--ops_between_duration_checks=1")
                .arg(format!("--readwritepercent={}", self.reads))
                .arg(format!("--use_existing_db={}", u8::from(!is_fresh)))
                .arg("--histogram=1");
        };
        let finished = run_kept_in(WorkloadTool::DbBench, &Enclosure::default(), fill, stop)?;
        let said = said(&finished.stdout, benchmark)
            .filter(|said| !said.histograms.is_empty())
            .ok_or_else(|| format!("db_bench's report cannot be read:\n  {}", finished.stdout))?;
        let mut recorder = LatencyRecorder::new();
        let value_bytes = KEY_BYTES + u64::from(self.value_bytes);
        said.histograms.iter().for_each(|told| told.record(&mut recorder, value_bytes));
        let writes: u64 = said
            .histograms
            .iter()
            .filter(|told| told.operation != "read")
            .map(|told| told.count)
            .sum();
        let longest = said.histograms.iter().map(|told| told.max).fold(0.0, f64::max);
        Ok(CommitFigures {
            recorder,
            per_second: said.per_second,
            commits: if is_writing { writes } else { said.operations },
            elapsed_ns: (said.seconds * 1e9) as u64,
            stall_ns: (longest * 1e3) as u64,
            details: json!({
                "operations": said.operations,
                "db_bench_output": finished.stdout,
                "db_bench_command": finished.command,
            }),
            findings: Vec::new(),
        })
    }

    fn bytes_of_commit(&self) -> Option<u64> {
        let (.., is_writing) = self.facts_of_benchmark();
        Some(if is_writing { KEY_BYTES + u64::from(self.value_bytes) } else { 0 })
    }

    fn acknowledge(
        &self,
        database: &mut PathBuf,
        acknowledger: &Arc<Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        let place = database.with_file_name(ACKNOWLEDGED);
        let begun = Instant::now();
        let commits = Arc::new(Mutex::new(Ok::<_, String>(Vec::new())));
        let (shared, acknowledger) = (commits.clone(), acknowledger.clone());
        let told = move |line: &str| {
            let Some((number, latency_ns)) = done(line) else { return };
            let mut commits = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(list) = &mut *commits else { return };
            list.push((begun.elapsed().as_nanos() as u64, latency_ns));
            if let Err(error) = acknowledger.say(&format!("committed 1 {number}")) {
                *commits = Err(format!("acknowledging: {error}"));
            }
        };
        let fill = |command: &mut Command| {
            self.fill(command, &place, "fillseq", self.sync);
            command.arg(format!("--num={ACKNOWLEDGED_MAX}")).arg("--stats_interval=1");
        };
        let mut running = DatabaseServer::start_told(WorkloadTool::DbBench, fill, told)?;
        running.wait(stop, begun + Duration::from_secs(self.seconds.into()))?;
        // All that it printed has been read then.
        drop(running);
        let commits = std::mem::replace(
            &mut *commits.lock().unwrap_or_else(PoisonError::into_inner),
            Ok(Vec::new()),
        );
        Ok(CommitFigures::of(commits?.into_iter()))
    }

    fn loss_in(&self, database: &mut PathBuf, last: &[(u32, u64)]) -> Result<Option<Loss>, Loss> {
        if !database.join("CURRENT").exists() && last.is_empty() {
            return Ok(None);
        }
        let fill = |command: &mut Command| {
            command.arg(format!("--db={}", database.display())).args([
                "scan",
                "--key_hex",
                "--no_value",
            ]);
        };
        let stop = AtomicBool::new(false);
        let scanned = run_kept_in(WorkloadTool::Ldb, &Enclosure::default(), fill, &stop)
            .map_err(|error| Loss::Unusable(error.to_string()))?;
        let found: Vec<(u32, u64)> = scanned.stdout.lines().filter_map(key_of).collect();
        Ok(missing_commit(&found, last))
    }
}

/// The commit that put a key which ldb shows: `0x` and the sixteen bytes of the key, of which the first eight are its
/// number, from 0 on.
fn key_of(line: &str) -> Option<(u32, u64)> {
    let digits = line.trim().strip_prefix("0x")?.get(..16)?;
    Some((1, u64::from_str_radix(digits, 16).ok()? + 1))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let load = |text| RocksdbWorkload::of_text(text, 60);
        let plain = load("overwrite").unwrap();
        let defaults = "overwrite sync=1 threads=1 keys=100000 value-size=400 reads=90";
        assert_eq!(load(defaults).unwrap(), plain);
        assert!(!load("overwrite sync=0").unwrap().sync);
        assert_eq!(load("readrandom").unwrap().bytes_of_commit(), Some(0));
        for (text, word) in [
            ("", "there are fillsync, fillrandom, overwrite"),
            ("overwrit", "did you mean 'overwrite'?"),
            ("overwrite sync=2", "write sync=1 or sync=0"),
            ("fillsync sync=0", "take fillrandom"),
            ("mixed reads=100", "from 1 to 99"),
            ("overwrite value-size=0", "is not from 1 to 16M"),
            ("overwrite compression=gzip", "there are snappy, none"),
            ("overwrite key=1", "did you mean 'keys'?"),
        ] {
            let problem = load(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    #[test]
    fn what_db_bench_says_is_read_and_its_percentiles_are_ours() {
        let text = "DB path: [/x]\n\
            readrandom   :  1.000 micros/op 1000000 ops/sec 1.000 seconds 1000000 operations;\n\
            overwrite    :     212.642 micros/op 4702 ops/sec 0.425 seconds 2000 operations;    0.5 MB/s\n\
            Microseconds per write:\nCount: 2000 Average: 212.6920  StdDev: 97.65\n\
            Min: 124  Median: 205.9386  Max: 4094\n\
            Percentiles: P50: 205.94 P75: 235.16 P99: 371.91 P99.9: 870.00 P99.99: 4094.00\n\
            ------------------------------------------------------\n\
            (     110,     170 ]      385  19.250%  19.250% ####\n\
            (     170,     250 ]     1369  68.450%  87.700% ##############\n\
            (     250,     380 ]      241  12.050%  99.750% ##\n\
            (     380,     580 ]        2   0.100%  99.850% \n\
            (     580,     870 ]        1   0.050%  99.900% \n\
            (     870,    1300 ]        1   0.050%  99.950% \n\
            (    2900,    4400 ]        1   0.050% 100.000% \n";
        let said = said(text, "overwrite").unwrap();
        assert_eq!((said.per_second, said.seconds, said.operations), (4702.0, 0.425, 2000));
        let told = &said.histograms[0];
        assert_eq!((told.operation.as_str(), told.count, told.buckets.len()), ("write", 2000, 7));
        let mut recorder = LatencyRecorder::new();
        told.record(&mut recorder, 416);
        let summary = recorder.finish().summary();
        let latency = &summary.kinds[0];
        assert_eq!((latency.count, latency.max_ns, latency.bytes), (2000, 4_094_000, 832_000));
        for (quantile, us) in [(0.5, 205.94), (0.99, 371.91)] {
            let ours = latency.at(quantile) as f64 / 1000.0;
            assert!((ours / us - 1.0).abs() < 0.01, "{quantile}: {ours} {us}");
        }
        assert_eq!(super::said(text, "fillsync"), None);
        let zero = "fillsync : 1 micros/op 1 ops/sec 1 seconds 1 operations;\nMicroseconds per write:\n\
            Count: 1 Average: 0.5  StdDev: 0\nMin: 0  Median: 0.5  Max: 1\n[       0,       1 ]  1 100% 100% #\n";
        assert_eq!(super::said(zero, "fillsync").unwrap().histograms[0].buckets, [(0.0, 1.0, 1)]);
    }

    #[test]
    fn an_operation_that_has_returned_is_told_and_its_key_found() {
        let line = "2026/11/28-02:17:44  ... thread 0: (1,3) ops and (1615.5,455.0) ops/second in (0.000619,0.006594) seconds";
        assert_eq!(done(line), Some((3, 619_000)));
        assert_eq!(done("... finished 3 ops"), None);
        assert_eq!(key_of("0x00000000000000023030303030303030"), Some((1, 3)));
        assert_eq!(key_of("==>"), None);
    }
}
