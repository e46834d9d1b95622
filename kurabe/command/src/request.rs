//! What the user asks for: flags, study files, bundled studies, and the programs they name.
//!
//! Knows nothing of how a study is carried out.

use std::path::PathBuf;

#[cfg(test)]
mod documented;
pub mod flags;
pub mod from_here;
pub mod programs;
pub mod scan;
pub mod studies;
pub mod workload_flags;

/// The directory of a result for which none was named.
pub fn default_directory(name: &str) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let first = PathBuf::from("kurabe-results").join(format!("{name}-{now}"));
    // Two studies may begin in one second.
    let numbered = |number: u32| PathBuf::from(format!("{}-{number}", first.display()));
    let mut all = std::iter::once(first.clone()).chain((2..).map(numbered));
    all.find(|path| !path.exists()).unwrap_or(first)
}
