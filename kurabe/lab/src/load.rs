//! A load as data, and what it reports: the words that the laboratory shares with those who carry
//! loads out.

pub use vocabulary::cell::{ALL_CELLS, MatrixCell};
pub use vocabulary::load::Load;
pub use vocabulary::report::{
    Aside, Axes, GROUP_AXIS, Latency, LoadReport, Mark, Metric, OPERATION_AXIS, OVERALL_OPERATION,
    QUANTILES, Series, Unit, operation_of_tag,
};
