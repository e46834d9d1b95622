//! What a workload reports: metrics, latencies, series, and what came with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::check::Check;
use crate::cost::{CommandUsage, PhaseRecord};
use crate::name;

/// What a workload yields besides its time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct WorkloadReport {
    /// Figures that are compared, the most important first; they may be zero. A workload whose time is
    /// the figure that counts has none and is compared by the time of its run; one that has checks
    /// and no figures is checked and not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// What was checked; the record's own when it is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Latencies by kind of operation, the overall ones last under the name
    /// [`OVERALL_OPERATION`].
    #[serde(default, alias = "averages", skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
    /// Figures over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Words about the run that a reader should see: a drift and its cause, a verification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// What a reader must know who compares contenders by the first figure, in the same words for
    /// all whom it concerns; shown at the ranking.
    #[serde(alias = "caveat")]
    pub note: Option<String>,
    /// Name of the figure that shows whether the note matters: where all that the first figure decides is
    /// so by this one, the note is left out.
    pub note_checked_by: Option<String>,
    /// What a reader must be told next to the figures: what was changed in the workload, and which part
    /// of it is ranked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What the work came to, such as the hash of a tree: the same for every contender, or they
    /// did not do the same work.
    pub proof: Option<String>,
    /// Bytes that the workload handed to the file system or the device, counted where it did so. Absent
    /// for a workload that does not count them.
    pub written_bytes: Option<u64>,
    /// Operations of the run, each once; syncs are not among them ([`operations_without_syncs`]). Absent
    /// for a workload that does not count them.
    pub operations: Option<u64>,
    /// How long the workload's tool counted for its most important figure, in ns, where it tells; its process ran
    /// longer.
    pub counted_ns: Option<u64>,
    /// What the workload's process did that is not the workload, in order; moved into phases of their own
    /// when the record is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_phases: Vec<ExcludedPhase>,
    /// The workload's own report, in its own form.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
    /// What the setup has to tell the run, and nobody else.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub prepared: serde_json::Value,
    /// The histograms in the standard log format of HdrHistogram; moved into a file of its own
    /// when the record is stored.
    pub histogram_log: Option<String>,
}

/// Work within the run that is not the workload: making the store, unmounting its volume, reading
/// everything back. It is taken out of the run's cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedPhase {
    /// The phase that it makes.
    pub phase: PhaseRecord,
    /// What it cost the workload's process; the greatest resident set stays the run's.
    pub usage: CommandUsage,
}

/// A figure that is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenMetric")]
pub struct Metric {
    /// Its name; the same for every contender of a workload.
    pub name: String,
    pub value: f64,
    pub unit: Unit,
    /// What it is a figure of, where a workload has several parts: the value by the name of the axis, such
    /// as `group` and `operation`. The name says the same in words.
    #[serde(default, skip_serializing_if = "Axes::is_empty")]
    pub axes: Axes,
}

/// Where a metric lies among those of its workload: by the name of an axis the place on it.
pub type Axes = BTreeMap<String, String>;

/// The axis of the parts of a workload that are measured apart: fio's groups and sections.
pub const GROUP_AXIS: &str = "group";

/// The axis of kinds of operation: `read`, `write`, `trim`, `verify`; of the fio matrix `randread`,
/// `randwrite`, `randrw-70-30`.
pub const OPERATION_AXIS: &str = "operation";

/// The axis of fio's engines.
pub const ENGINE_AXIS: &str = "engine";

/// The axis of the number of operations under way. A figure on it is a cell of the fio matrix.
pub const DEPTH_AXIS: &str = "depth";

/// The axis of the sizes of an operation, in bytes.
pub const BLOCK_SIZE_AXIS: &str = "block_size_bytes";

/// The axis of what a figure is of the run's operations, where it is an extreme: a single operation decides it.
pub const STATISTIC_AXIS: &str = "statistic";

/// Name of the figure of all cells of a matrix together.
pub const ALL_CELLS: &str = "geometric mean of all cells";

/// The geometric mean of those of the metrics that are cells; `None` where none is.
pub fn mean_of_cells<'a>(metrics: impl Iterator<Item = &'a Metric>) -> Option<f64> {
    let cells = metrics.filter(|metric| metric.axes.contains_key(DEPTH_AXIS));
    let logarithms: Vec<f64> = cells.map(|metric| metric.value.ln()).collect();
    let count = logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

impl Metric {
    /// A metric of a whole workload.
    pub fn new(name: impl Into<String>, value: f64, unit: Unit) -> Metric {
        Metric { name: name.into(), value, unit, axes: Axes::new() }
    }

    /// The largest value of a run, such as the longest pause.
    pub fn maximum(name: impl Into<String>, value: f64, unit: Unit) -> Metric {
        let axes = Axes::from([(STATISTIC_AXIS.into(), "max".into())]);
        Metric { axes, ..Metric::new(name, value, unit) }
    }
}

/// Whether two places differ by their operation alone, as reads and writes of one job do. Cells of the fio matrix are
/// no such pair, nor is what a job reads to verify.
pub fn differ_by_operation(one: &Axes, other: &Axes) -> bool {
    let operation = |axes: &Axes| axes.get(OPERATION_AXIS).cloned();
    let is_rest = |(axis, _): &(&String, &String)| axis.as_str() != OPERATION_AXIS;
    let both = operation(one).zip(operation(other));
    both.is_some_and(|(one, other)| one != other && one != "verify" && other != "verify")
        && !one.contains_key(DEPTH_AXIS)
        && one.iter().filter(is_rest).eq(other.iter().filter(is_rest))
}

/// A metric as results hold it: in older ones the name alone says where a cell of the fio matrix lies.
#[derive(Deserialize)]
struct WrittenMetric {
    #[serde(deserialize_with = "name::read")]
    name: String,
    value: f64,
    unit: Unit,
    #[serde(default)]
    axes: Axes,
}

impl From<WrittenMetric> for Metric {
    fn from(WrittenMetric { name, value, unit, mut axes }: WrittenMetric) -> Metric {
        if axes.is_empty() {
            axes = axes_of_cell(&name).unwrap_or_default();
        }
        Metric { name, value, unit, axes }
    }
}

/// The axes of a cell of this name, such as `randrw-70-30-libaio-32-64k`.
fn axes_of_cell(name: &str) -> Option<Axes> {
    let mut parts = name.rsplitn(4, '-');
    let (size, depth, engine) = (parts.next()?, parts.next()?, parts.next()?);
    let operation = parts.next().filter(|operation| operation.starts_with("rand"))?;
    let (number, unit_bytes) = size.strip_suffix('k').map_or((size, 1), |number| (number, 1024));
    let size_bytes = number.parse::<u64>().ok()?.checked_mul(unit_bytes)?;
    depth.parse::<u32>().ok()?;
    Some(Axes::from([
        (OPERATION_AXIS.into(), operation.into()),
        (ENGINE_AXIS.into(), engine.into()),
        (DEPTH_AXIS.into(), depth.into()),
        (BLOCK_SIZE_AXIS.into(), size_bytes.to_string()),
    ]))
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

/// Name of the metric of workloads without metrics of their own: run and sync together.
pub const TIME_METRIC: &str = "time";

/// The name under which the latencies of all kinds of operations together stand.
pub const OVERALL_OPERATION: &str = "overall";

/// Kinds of operation that only make others durable.
const SYNC_OPERATIONS: [&str; 2] = ["Sync", "Flush"];

/// The operations that latencies count, without syncs and without the sum of all.
pub fn operations_without_syncs(latencies: &[Latency]) -> u64 {
    let counted = latencies.iter().filter(|latency| {
        let kind = latency.operation.as_str();
        kind != OVERALL_OPERATION && !SYNC_OPERATIONS.contains(&kind)
    });
    counted.map(|latency| latency.count).sum()
}

/// The letters that the log of histograms cannot hold in a tag, and how they are written there.
const IN_TAGS: [(&str, &str); 3] = [("%", "%25"), (" ", "%20"), (",", "%2C")];

/// The tag of a kind of operation in the log of histograms.
pub fn tag_of_operation(operation: &str) -> String {
    let operation = operation.replace(['\r', '\n'], " ");
    IN_TAGS.iter().fold(operation, |tag, (letter, written)| tag.replace(letter, written))
}

/// The kind of operation that a tag in the log of histograms names. Older logs have `_` for a blank; of
/// these the tag is the name.
pub fn operation_of_tag(tag: &str) -> String {
    let back = IN_TAGS.iter().rev();
    back.fold(tag.to_owned(), |name, (letter, written)| name.replace(written, letter))
}

/// The quantiles that are kept of every distribution.
pub const QUANTILES: [f64; 7] = [0.05, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// Latencies of one kind of operation, from an HdrHistogram of 3 significant digits, or what a tool
/// tells that keeps no distribution: then there are no quantiles.
///
/// The value of a quantile is that of the bucket that holds the sample of rank
/// `ceil(quantile x count)`, at the bucket's upper end (at most 0.1 % above the sample) and never above
/// the maximum.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "WrittenLatency")]
pub struct Latency {
    pub operation: String,
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of the latencies.
    pub total_ns: u64,
    /// The [`QUANTILES`], each with its value; none where there is no distribution.
    pub quantiles_ns: Vec<(f64, u64)>,
    pub max_ns: u64,
}

impl Latency {
    /// The value of a quantile; of one that is not kept, that of the next higher one.
    pub fn at(&self, quantile: f64) -> u64 {
        let found = self.quantiles_ns.iter().find(|(kept, _)| *kept >= quantile);
        found.map_or(self.max_ns, |(_, value)| *value)
    }
}

/// A latency as results hold it: older ones have a field for each quantile, or, of a tool that keeps
/// no distribution, its mean and its maximum with a fraction.
#[derive(Deserialize)]
struct WrittenLatency {
    #[serde(alias = "kind", deserialize_with = "name::read")]
    operation: String,
    count: u64,
    #[serde(default)]
    bytes: u64,
    total_ns: Option<u64>,
    average_ns: Option<f64>,
    #[serde(default)]
    quantiles_ns: Vec<(f64, u64)>,
    p5_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
    p99_9_ns: Option<u64>,
    p99_99_ns: Option<u64>,
    max_ns: f64,
}

impl From<WrittenLatency> for Latency {
    fn from(written: WrittenLatency) -> Latency {
        let fields = [
            written.p5_ns,
            written.p50_ns,
            written.p90_ns,
            written.p95_ns,
            written.p99_ns,
            written.p99_9_ns,
            written.p99_99_ns,
        ];
        let older = QUANTILES.into_iter().zip(fields);
        let older = older.filter_map(|(quantile, value)| Some((quantile, value?)));
        let mut quantiles_ns = written.quantiles_ns;
        quantiles_ns.extend(older);
        quantiles_ns.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mean_ns = written.average_ns.unwrap_or_default();
        let total_ns = (mean_ns * written.count as f64).round() as u64;
        Latency {
            operation: written.operation,
            count: written.count,
            bytes: written.bytes,
            total_ns: written.total_ns.unwrap_or(total_ns),
            quantiles_ns,
            // Exact: no latency that is recorded is above 2^52 ns.
            max_ns: written.max_ns as u64,
        }
    }
}

/// A figure over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is: `throughput`, `p99`.
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    pub unit: Unit,
    /// Length of every interval in ns.
    pub interval_ns: u64,
    pub values: Vec<f64>,
    /// Moments in it of which the workload has something to say, such as a change for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<SeriesMark>,
}

/// A moment in a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesMark {
    /// When, from the series' beginning.
    pub at_ns: u64,
    /// What happened, in words for a reader.
    pub words: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_no_blank_and_names_its_operation() {
        for operation in ["read", "job_1: read", "a, b: read and verify", "100 %20: write", "%25"] {
            let tag = tag_of_operation(operation);
            assert!(!tag.contains([' ', ',', '\n']), "{tag}");
            assert_eq!(operation_of_tag(&tag), operation);
        }
        assert_eq!(operation_of_tag(&tag_of_operation("two\nlines")), "two lines");
        assert_eq!(operation_of_tag("delete_each"), "delete_each");
    }

    #[test]
    fn cells_of_older_results_get_their_axes_from_their_names() {
        let read = |name: &str| {
            let text = format!(r#"{{"name": "{name}", "value": 2.0, "unit": "count"}}"#);
            serde_json::from_str::<Metric>(&text).unwrap().axes
        };
        for (name, operation, engine, depth, size) in [
            ("randread-psync-1-4k", "randread", "psync", "1", "4096"),
            ("randrw-70-30-io_uring-64-1024k", "randrw-70-30", "io_uring", "64", "1048576"),
            ("randwrite-libaio-32-512", "randwrite", "libaio", "32", "512"),
        ] {
            let axes = read(name);
            let found = [OPERATION_AXIS, ENGINE_AXIS, DEPTH_AXIS, BLOCK_SIZE_AXIS];
            assert_eq!(found.map(|axis| axes[axis].as_str()), [operation, engine, depth, size]);
        }
        for other in ["", "throughput", "rand-c-d", "rand-b-c-d", "rand-b-1-k", "a-b-1-4k"] {
            assert_eq!(read(other), Axes::new(), "{other}");
        }
        // What is written with axes keeps them.
        let axes = Axes::from([(GROUP_AXIS.to_string(), "randread-psync-1-4k".to_string())]);
        let written = Metric { axes, ..Metric::new("randread-psync-1-4k", 1.0, Unit::Count) };
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<Metric>(&text).unwrap(), written);
    }

    #[test]
    fn latencies_of_older_results_are_read_as_those_of_new_ones() {
        let older = r#"{"operation": "Put", "count": 9, "bytes": 1, "total_ns": 90, "p5_ns": 1,
            "p50_ns": 2, "p90_ns": 3, "p95_ns": 4, "p99_ns": 5, "p99_9_ns": 6, "p99_99_ns": 7,
            "max_ns": 8}"#;
        let read: Latency = serde_json::from_str(older).unwrap();
        assert_eq!([0.05, 0.5, 0.95, 0.9999, 1.0].map(|q| read.at(q)), [1, 2, 4, 7, 8]);
        let written = serde_json::to_string(&read).unwrap();
        assert!(!written.contains("p50_ns"), "{written}");
        assert_eq!(serde_json::from_str::<Latency>(&written).unwrap(), read);
        let of_a_tool = r#"{"averages": [{"operation": "Flush", "count": 40, "average_ns": 14000.0,
            "max_ns": 957300000.0, "step_ns": 1000.0}]}"#;
        let read: WorkloadReport = serde_json::from_str(of_a_tool).unwrap();
        let flush = &read.latencies[0];
        assert_eq!((flush.total_ns, flush.max_ns), (560_000, 957_300_000));
        assert!(flush.quantiles_ns.is_empty());
    }
}
