//! The words that loads and the laboratory share: what a workload reports, what it costs, sizes and
//! durations, and the trait of a kind of workload.
//!
//! It knows neither how a workload is carried out nor how a study is planned and judged.

pub mod capacity;
pub mod check;
pub mod command;
pub mod cost;
pub mod kind;
pub mod layout;
pub mod name;
pub mod path;
pub mod report;
pub mod suggestion;
pub mod words;
pub mod workload;

pub use trust::quantity;
