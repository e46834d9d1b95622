//! A load as data, and what it reports: the words that the laboratory shares with those who carry
//! loads out.

pub use vocabulary::load::Load;
pub use vocabulary::report::{
    ALL_CELLS, Aside, Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, GROUP_AXIS, Latency,
    LoadReport, Mark, Metric, OPERATION_AXIS, OVERALL_OPERATION, QUANTILES, STATISTIC_AXIS, Series,
    Unit, differ_by_operation, mean_of_cells, operation_of_tag,
};
