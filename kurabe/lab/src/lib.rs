//! The pure part of the laboratory: study -> plan -> trial specs -> records -> comparisons.
//!
//! Nothing here opens a device, starts a process or reads a clock. The only I/O is reading and
//! writing the files of a result directory ([`result`]). The words of the types are the words of
//! the help, the JSON and the report.

pub mod analysis;
pub mod change_points;
pub mod condition;
pub mod contender;
pub mod device;
pub mod environment;
pub mod event;
#[cfg(test)]
mod fixture;
pub mod judgement;
mod nodes;
pub mod plan;
pub mod record;
pub mod reported;
pub mod result;
pub mod slice;
pub mod spec;
pub mod statistics;
pub mod study;
pub mod study_file;
pub mod warning;
pub mod watched;
pub mod words;
pub mod workload;

pub(crate) use vocabulary::name;
pub use vocabulary::quantity;
pub use vocabulary::suggestion;
