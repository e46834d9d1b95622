//! What a load reports: metrics, latencies, series, and what came with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::cost::{CommandUsage, PhaseRecord};
use crate::name;

/// What a load yields besides its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct LoadReport {
    /// Figures that are compared, the most important first; they may be zero. A load whose time is
    /// the figure that counts has none and is compared by the time of its run; one that has checks
    /// and no figures is checked and not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// What was checked; the record's own when it is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
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
    #[serde(default, alias = "pace", skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<Throughput>,
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
    #[serde(default, alias = "caveat", skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
pub struct Throughput {
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
    /// Its value, not negative.
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
    /// Bytes: less is better.
    Bytes,
    /// A number of anything, such as flushes: less is better.
    Count,
}

impl Unit {
    /// Whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Unit::BytesPerSecond | Unit::OperationsPerSecond)
    }
}

/// Name of the metric of loads without metrics of their own: run and sync together.
pub const TIME_METRIC: &str = "time";

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
