//! The kinds of load, as data: what a study asks of each, and what each reports.
//!
//! How a load is carried out is the trial room's business. All but the command are run by
//! `kurabe load`, a process of its own like any command, which is told a [`LoadTask`] and yields a
//! [`LoadReport`].

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name;
use crate::record::{CommandUsage, PhaseRecord};
use crate::spec::CommandLine;

/// The kinds of load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Load {
    /// A command, run in the mounted directory.
    Command {
        /// The command.
        command: CommandLine,
    },
    /// A program of the object language on a store.
    Objects(ObjectsLoad),
    /// What people do with trees: copy, unpack, walk, stat, rewrite, delete.
    Tree(TreeLoad),
    /// The installed fio.
    Fio(FioLoad),
    /// The flash study's matrix of fio runs.
    FioMatrix(FioMatrixLoad),
    /// The installed dbench.
    Dbench(DbenchLoad),
    /// kurabe's own replay of a dbench load file, which has percentiles.
    DbenchReplay(DbenchReplayLoad),
    /// The installed bonnie++.
    Bonnie(BonnieLoad),
}

/// A program of the object language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectsLoad {
    /// Where the program was read from, for messages.
    pub path: PathBuf,
    /// The program's text.
    pub program: String,
    /// The store: `cannyls`, `files`, `null`, ...
    pub store: String,
    /// Factor on the counts.
    pub scale: f64,
    /// Whether contents are checked on every Get and Delete and by a sweep at the end.
    pub verify: bool,
    /// Size of a block of the `cannyls` store in bytes, 512 or 4096.
    pub block_size_bytes: u32,
    /// Whether every put is made durable before it counts as done.
    pub sync_puts: bool,
}

/// The tree load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeLoad {
    /// The source.
    pub source: TreeSource,
    /// What is in it; read before anything is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<TreeFacts>,
}

/// What is in a tree's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFacts {
    /// The archive itself, in bytes.
    pub archive_bytes: u64,
    /// Files.
    pub files: u64,
    /// Everything that is no file.
    pub others: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// What the files take in blocks of 4 KiB, and one such block for every other entry.
    pub block_bytes: u64,
}

/// Where a tree comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeSource {
    /// A tarball that tar reads.
    Tarball(PathBuf),
    /// A synthetic tree of so many files, from a seed.
    Synthetic {
        /// Files.
        files: u64,
        /// Seed of names, sizes and contents.
        seed: u64,
    },
}

/// A fio job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioLoad {
    /// Where the job was read from; absent for options on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The job file's text, or the one-line options.
    pub text: String,
}

/// The flash study's matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioMatrixLoad {
    /// Size of all files together, or of the part of the raw device, in bytes.
    pub size_bytes: u64,
    /// Length of each cell in ns.
    pub cell_ns: u64,
    /// Block sizes in bytes.
    pub block_sizes_bytes: Vec<u64>,
    /// fio's engines for the cells with a queue, each of them for every cell: `libaio`,
    /// `io_uring`. The cells without a queue have `psync`. Absent in the first plans, which had one engine.
    #[serde(default)]
    pub engines: Vec<String>,
}

/// Engines of fio that keep a queue and that the matrix knows.
pub const QUEUE_ENGINES: &[&str] = &["libaio", "io_uring"];

/// A cell of the matrix. Its text (`randrw-70-30-libaio-32-64k`) is the name of its figure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatrixCell {
    /// `randread`, `randwrite` or `randrw-70-30`.
    pub pattern: String,
    /// fio's engine.
    pub engine: String,
    /// Operations under way.
    pub depth: u32,
    /// Size of an operation in bytes.
    pub block_size_bytes: u64,
}

impl fmt::Display for MatrixCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixCell { pattern, engine, depth, block_size_bytes } = self;
        match block_size_bytes % 1024 {
            0 => write!(f, "{pattern}-{engine}-{depth}-{}k", block_size_bytes / 1024),
            _ => write!(f, "{pattern}-{engine}-{depth}-{block_size_bytes}"),
        }
    }
}

impl FromStr for MatrixCell {
    type Err = String;

    fn from_str(text: &str) -> Result<MatrixCell, String> {
        let parts: Vec<&str> = text.rsplitn(4, '-').collect();
        let cell = || {
            let [size, depth, engine, pattern] = parts[..] else { return None };
            let (number, unit_bytes) = match size.strip_suffix('k') {
                Some(number) => (number, 1024),
                None => (size, 1),
            };
            Some(MatrixCell {
                pattern: pattern.into(),
                engine: engine.into(),
                depth: depth.parse().ok()?,
                block_size_bytes: number.parse::<u64>().ok()?.checked_mul(unit_bytes)?,
            })
        };
        cell().ok_or_else(|| format!("'{text}' is no cell of the matrix"))
    }
}

/// A dbench run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DbenchLoad {
    /// Clients.
    pub clients: u32,
    /// Seconds that are counted, after dbench's own warm-up.
    pub seconds: u32,
}

/// A replay of a dbench load file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DbenchReplayLoad {
    /// Clients.
    pub clients: u32,
    /// Seconds that are counted, after a warm-up as long as dbench's own.
    pub seconds: u32,
    /// The load file.
    pub load_file: PathBuf,
}

/// A bonnie++ run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BonnieLoad {
    /// Size of the files in bytes; bonnie++ wants twice the memory, or to be told otherwise.
    pub size_bytes: u64,
    /// Files for the creation tests, in units of 1024.
    pub files: u32,
}

impl Load {
    /// The word for the kind, as in JSON and in a study file.
    pub fn kind(&self) -> &'static str {
        match self {
            Load::Command { .. } => "command",
            Load::Objects(_) => "objects",
            Load::Tree(_) => "tree",
            Load::Fio(_) => "fio",
            Load::FioMatrix(_) => "fio-matrix",
            Load::Dbench(_) => "dbench",
            Load::DbenchReplay(_) => "dbench-replay",
            Load::Bonnie(_) => "bonnie",
        }
    }

    /// Whether the load makes sense on the block device itself.
    pub fn runs_on_raw(&self) -> bool {
        matches!(self, Load::Objects(_) | Load::Fio(_) | Load::FioMatrix(_))
    }

    /// Whether the load can use a file system as a library.
    pub fn runs_on_library(&self) -> bool {
        matches!(self, Load::Objects(_))
    }
}

/// What `kurabe load` is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadTask {
    /// The load; never a command.
    pub load: Load,
    /// Where.
    pub target: Target,
    /// The block device under the target, for its counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Which part of it.
    pub stage: Stage,
    /// Whether a load of several phases drops the caches before each of them.
    #[serde(default)]
    pub cold: bool,
    /// The command that makes everything on the target durable; absent where syncfs(2) does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_command: Option<Vec<String>>,
    /// The command that makes the target's caches cold, the kernel's included; absent where dropping
    /// the kernel's is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_command: Option<Vec<String>>,
    /// Seed of the order in which a load of several parts carries them out, where it is random.
    #[serde(default)]
    pub order_seed: u64,
    /// A directory of kurabe's own for the load's files, which lies outside of the target.
    pub scratch: PathBuf,
}

/// Where a load works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The mounted directory.
    Directory(PathBuf),
    /// The device itself.
    Device(PathBuf),
    /// A volume of minfs on this device, through the library.
    Minfs(PathBuf),
}

/// Which part of a load is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// What must be there before the caches are dropped and the run is measured: laid-out files.
    Setup,
    /// The measured part.
    Run,
}

/// What a load yields besides its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct LoadReport {
    /// Figures that are compared, the most important first. A load whose time is the figure that
    /// counts has none and is compared by the time of its run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// Latencies by kind of operation, the overall ones last under the name
    /// [`OVERALL_OPERATION`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
    /// Latencies of which the tool that did the work tells no more than average and maximum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub averages: Vec<AverageLatency>,
    /// Figures over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// What was done second by second from the first on, that of a warm-up too; of loads that play
    /// a recorded mix, whose operations are not alike all along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pace: Vec<Pace>,
    /// Whether throughput changed within the run; absent where the load does not look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Where the store's one file lies; absent for other loads, and where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_place: Option<StorePlace>,
    /// Words about the run that a reader should see: a drift and its cause, a verification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// What a reader must know who compares contenders by the first figure, in the same words for
    /// all whom it concerns; shown at the ranking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// What the work came to, such as the hash of a tree: the same for every contender, or they
    /// did not do the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Bytes that the load handed to the file system or the device, counted where it did so. Absent
    /// for a load that does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// What the load's process did that is not the load, in order; moved into phases of their own
    /// when the record is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asides: Vec<Aside>,
    /// The load's own report, in its own form.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
    /// The histograms in the standard log format of HdrHistogram; moved into a file of its own
    /// when the record is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram_log: Option<String>,
}

/// What a load did in an interval of about a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Length of the interval.
    pub duration_ns: u64,
    /// Bytes that the load moved.
    pub bytes: u64,
    /// Its operations.
    pub operations: u64,
}

/// Work within the run that is not the load: making the store, unmounting its volume, reading
/// everything back. It is taken out of the run's bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The phase that it makes.
    pub phase: PhaseRecord,
    /// What it cost the load's process; the greatest resident set stays the run's.
    pub usage: CommandUsage,
}

/// Whether a load's throughput changed within its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Drift {
    /// The run has too few intervals to tell.
    TooShort,
    /// No change of a tenth or more is certain. A smaller or less certain one may be there.
    NoneCertain,
    /// It sank or rose.
    Changed {
        /// When, by how much and why, in words for a reader; among the findings too.
        words: String,
        /// The instant in the load's series, where the change lies within it; older records and
        /// changes in a warm-up have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ns: Option<u64>,
    },
}

/// Where a store's one file lies on the device: whether an order in the file is an order on the
/// disk. In words it is one of the findings too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePlace {
    /// Pieces of the file that lie apart on the device.
    pub pieces: u64,
    /// Of these, the ones that lie before the one that they follow in the file.
    pub pieces_back: u64,
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Bytes of the device from the first piece to the last.
    pub span_bytes: u64,
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store's file lies ")?;
        match (self.pieces, self.pieces_back) {
            (1, _) => f.write_str("in one piece")?,
            (pieces, 0) => write!(f, "in {pieces} pieces, in the order of the file")?,
            (pieces, back) => {
                write!(f, "in {pieces} pieces, {back} of them before the one that they follow")?;
            }
        }
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (bytes, span) = (mebibytes(self.bytes), mebibytes(self.span_bytes));
        write!(f, ": {bytes:.0} MiB over {span:.0} MiB of the device")
    }
}

/// A figure that is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name; the same for every contender of a workload.
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// Its value, positive.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// Units of metrics, which say what is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Time in ns: less is better.
    Nanoseconds,
    /// Throughput: more is better.
    BytesPerSecond,
    /// Operations: more is better.
    OperationsPerSecond,
}

impl Unit {
    /// Whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        !matches!(self, Unit::Nanoseconds)
    }
}

/// The name under which the latencies of all kinds of operations together stand.
pub const OVERALL_OPERATION: &str = "overall";

/// Latencies of one kind of operation, from an HdrHistogram of 3 significant digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The kind.
    #[serde(deserialize_with = "name::read")]
    pub operation: String,
    /// Operations.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of the latencies.
    pub total_ns: u64,
    /// 5th percentile.
    pub p5_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// 99.99th percentile.
    pub p99_99_ns: u64,
    /// Greatest.
    pub max_ns: u64,
}

/// What a tool tells of the latencies of one kind of operation when it keeps no distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AverageLatency {
    /// The kind.
    #[serde(deserialize_with = "name::read")]
    pub operation: String,
    /// Operations.
    pub count: u64,
    /// Mean, in ns as far as the tool's own unit is that fine.
    pub average_ns: f64,
    /// Greatest, likewise.
    pub max_ns: f64,
    /// The step in which the tool prints both; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<f64>,
}

/// A figure over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is: `throughput`, `p99`.
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Length of every interval in ns.
    pub interval_ns: u64,
    /// One value an interval.
    pub values: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_and_its_name_are_one() {
        for (name, pattern, depth, block_size_bytes) in [
            ("randread-psync-1-4k", "randread", 1, 4096),
            ("randrw-70-30-io_uring-64-1024k", "randrw-70-30", 64, 1 << 20),
            ("randwrite-libaio-32-512", "randwrite", 32, 512),
        ] {
            let cell: MatrixCell = name.parse().unwrap();
            assert_eq!((cell.pattern.as_str(), cell.depth), (pattern, depth));
            assert_eq!(cell.block_size_bytes, block_size_bytes);
            assert_eq!(cell.to_string(), name);
        }
        for wrong in ["", "throughput", "read operations", "a-b-c", "a-b-c-d", "a-b-1-k"] {
            assert!(wrong.parse::<MatrixCell>().is_err(), "{wrong}");
        }
    }
}
