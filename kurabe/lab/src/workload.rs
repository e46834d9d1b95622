//! A workload as data, and what it reports: the words that the laboratory shares with those who carry
//! loads out.

pub use vocabulary::kind::WorkloadSpec;
pub use vocabulary::report::{
    ALL_CELLS, Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, ExcludedPhase, GROUP_AXIS, Latency,
    Metric, OPERATION_AXIS, OVERALL_OPERATION, QUANTILES, STATISTIC_AXIS, Series, SeriesMark, Unit,
    WorkloadReport, differ_by_operation, mean_of_cells, operation_of_tag,
};
