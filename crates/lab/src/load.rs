//! A load as data, and what it reports: the words that the laboratory shares with those who carry
//! loads out.

pub use vocabulary::cell::MatrixCell;
pub use vocabulary::load::Load;
pub use vocabulary::report::{
    Aside, AverageLatency, Drift, Latency, LoadReport, Metric, OVERALL_OPERATION, QUANTILES,
    Series, Throughput, Unit,
};
