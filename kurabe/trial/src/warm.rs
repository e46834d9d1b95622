//! `kurabe warm`: reads the programs of another user's workload into the page cache, as that user.

use std::path::PathBuf;
use std::process::ExitCode;

use lab::spec::CommandLine;
use workloads::programs;

use crate::tool::StepFailure;
use crate::user::User;

/// The command that reads what `words` name, and `further` programs, and prints their bytes.
pub(crate) fn command(
    user: &User,
    words: Vec<String>,
    further: &[PathBuf],
) -> Result<CommandLine, StepFailure> {
    let own = user.own_program().map_err(StepFailure::of)?.display().to_string();
    let further = further.iter().map(|program| format!("--program={}", program.display()));
    let head = [own, "warm".into()].into_iter().chain(further);
    Ok(CommandLine::Words(head.chain(["--".into()]).chain(words).collect()))
}

/// Where programs are looked up.
pub(crate) fn search_path() -> String {
    std::env::var("PATH").unwrap_or_default()
}

/// `kurabe warm`.
pub fn main(further: &[PathBuf], words: &[String]) -> ExitCode {
    println!("{}", programs::warm(words, further, &search_path()));
    ExitCode::SUCCESS
}
