//! What is read from a recording: percentiles of a whole run and of its intervals, as they are
//! kept in results.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Sums;

/// The figures of a whole run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Summary {
    /// One entry a kind, in the order of their first use.
    pub kinds: Vec<KindSummary>,
    /// All kinds together, from the merged histogram.
    pub overall: KindSummary,
}

/// Count, bytes and latency distribution of one kind of operation.
///
/// A percentile is the value of the bucket that holds the sample of rank `ceil(p x count / 100)`,
/// at the bucket's upper end (at most 0.1 % above the sample) and never above the maximum.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct KindSummary {
    /// Name of the kind.
    pub kind: String,
    /// Operations.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of the latencies, exact.
    pub total_ns: u64,
    /// Mean latency, exact.
    pub mean_ns: f64,
    /// Least latency, of its bucket's lower end.
    pub min_ns: u64,
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
    /// Greatest latency, exact.
    pub max_ns: u64,
}

impl KindSummary {
    pub(super) fn new(name: &str, histogram: &Histogram<u64>, sums: &Sums) -> KindSummary {
        let count = histogram.len();
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(sums.max_ns);
        KindSummary {
            kind: name.to_owned(),
            count,
            bytes: sums.bytes,
            total_ns: sums.total_ns,
            mean_ns: if count == 0 { 0.0 } else { sums.total_ns as f64 / count as f64 },
            min_ns: if count == 0 { 0 } else { histogram.min() },
            p5_ns: at(0.05),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: sums.max_ns,
        }
    }
}

/// Figures over time.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Series {
    /// Length of every interval but the last: the length asked for, doubled as often as the run's
    /// length made it necessary.
    pub interval_ns: u64,
    /// One point an interval, without gaps.
    pub points: Vec<Point>,
}

/// One interval of a series.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Point {
    /// Where the interval begins on the run's clock.
    pub start_ns: u64,
    /// How long it is: the last interval ends with the last operation.
    pub duration_ns: u64,
    /// All kinds together.
    pub overall: Figures,
    /// Every kind of which an operation ended in this interval.
    pub kinds: BTreeMap<String, Figures>,
}

/// What happened to one kind in one interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Figures {
    /// Operations that ended in the interval.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their latencies.
    pub total_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Greatest latency.
    pub max_ns: u64,
}

impl Figures {
    pub(super) fn new(histogram: &Histogram<u64>, sums: &Sums) -> Figures {
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(sums.max_ns);
        Figures {
            count: histogram.len(),
            bytes: sums.bytes,
            total_ns: sums.total_ns,
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            max_ns: sums.max_ns,
        }
    }
}
