//! What is read from a recording: percentiles of a whole run and of its intervals, as they are
//! kept in results.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use vocabulary::report::{Latency, QUANTILES};

use super::Sums;

/// The figures of a whole run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Summary {
    /// One entry a kind, in the order of their first use.
    pub kinds: Vec<Latency>,
    /// All kinds together, from the merged histogram.
    pub overall: Latency,
}

pub(super) fn latency_of(name: &str, histogram: &Histogram<u64>, sums: &Sums) -> Latency {
    let at = |quantile: f64| histogram.value_at_quantile(quantile).min(sums.max_ns);
    Latency {
        operation: name.to_owned(),
        count: histogram.len(),
        bytes: sums.bytes,
        total_ns: sums.total_ns,
        quantiles_ns: QUANTILES.map(|quantile| (quantile, at(quantile))).into(),
        max_ns: sums.max_ns,
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
