//! A load as data, and what it reports: the words that the laboratory shares with those who carry
//! loads out.

pub use vocabulary::cell::{ALL_CELLS, MatrixCell};
pub use vocabulary::load::Load;
pub use vocabulary::report::{
    Aside, Latency, LoadReport, Mark, Metric, OVERALL_OPERATION, QUANTILES, Series, Unit,
};
