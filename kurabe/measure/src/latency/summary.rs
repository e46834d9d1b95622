//! What is read from a recording: percentiles of a whole run and of its intervals, as they are
//! kept in results.

use hdrhistogram::Histogram;
use vocabulary::report::{Latency, QUANTILES};

use super::Sums;

/// The figures of a whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySummary {
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

/// Figures over time, of all kinds together.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySeries {
    /// Length of every interval but the last: the length asked for, doubled as often as the run's
    /// length made it necessary.
    pub interval_ns: u64,
    /// One point an interval, without gaps.
    pub points: Vec<SeriesPoint>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeriesPoint {
    /// How long it is: the last interval ends with the last operation.
    pub duration_ns: u64,
    /// Operations that ended in it.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// 99th percentile of their latencies.
    pub p99_ns: u64,
}
