//! Objects: the workload language of CannylsBencher, run on an object store.
//!
//! The data flows one way: text -> [`program`] -> [`stream`] of commands -> [`run()`] on a
//! [`store`] -> [`report`]. `docs/reference/object-language.md` is the language's reference. A caller needs
//! [`Program::parse`], [`ProgramPlan::of`] and [`run()`]; the rest is for those who want the parts.

#[cfg(test)]
#[path = "arbitrary_tests.rs"]
mod arbitrary;
pub mod contents;
pub mod diagnostic;
pub mod durable;
mod feed;
pub mod live;
mod parse;
pub mod plan;
pub mod program;
pub mod random;
pub mod report;
mod run;
pub mod store;
pub mod stream;
mod sys;
mod token;
pub mod volume;

pub use plan::{CapacityFit, ProgramPlan};
pub use program::Program;
pub use report::{ProgramOutcome, Report};
pub use run::{DOES_NOT_FIT, ProgramPhase, RunOptions, check_name, run};
pub use store::{IS_FULL, StoreLocation, StoreOptions};
