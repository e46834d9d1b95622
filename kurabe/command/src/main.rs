//! kurabe: hyperfine for file systems. This file only sends each subcommand on its way.

mod ageing;
mod coherence;
mod disk;
mod environment;
mod exit;
mod history;
mod machine;
mod manual;
mod power_failures;
mod presentation;
mod reporting;
mod request;
mod runner;
mod session;
mod shards;
mod terminal;

use std::path::Path;
use std::process::ExitCode;

use crate::exit::Failure;
use crate::power_failures::{crash, promises};
use crate::request::flags::{Action, Cli};
use crate::session::prepare;

fn main() -> ExitCode {
    // What runs the contender minfs is this program, under that name.
    if std::env::args_os().next().is_some_and(|name| Path::new(&name).ends_with("minfs")) {
        return minfs::program::main();
    }
    trial::keep_ended_children();
    trial::fail_writes_beyond_the_limit();
    trial::tool::carry(&["minfs"]);
    let cli: Cli = terminal::parse();
    let mut trusted = cli.trust;
    if let Action::Report(args) = &cli.action {
        trusted.extend(reporting::owners(args));
    }
    if let Err(problem) = trust::owner::trust(&trusted) {
        return Failure::refused(problem).report().into();
    }
    if cli.trust_shared {
        trust::owner::trust_shared();
    }
    // A tool that asks for a directory that is gone may ask without end.
    if let Err(error) = std::env::current_dir() {
        let words = format!("the current directory: {error}; change to one that is there");
        return Failure::refused(words).report().into();
    }
    // A terminal says how wide it is; what is not one is read by programs, and is always the same.
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
        && size.ws_col > 0
    {
        report::text::fit(usize::from(size.ws_col));
    }
    let result = match cli.action {
        Action::Inside { words } => return guest::inside::main(&words),
        Action::Trial { parent, inside } => return trial::process::main(parent, inside),
        Action::Remote => environment::remote::main(),
        Action::Warm { programs, words } => return trial::warm::main(&programs, &words),
        Action::Load => return trial::workload::main(),
        Action::Serve { point } => return trial::device::served::main(&point),
        Action::Compare(args) => prepare::compare(&args),
        Action::Run(args) if shards::is_one(&args) => shards::run(&args),
        Action::Run(args) => prepare::run_file(&args),
        Action::Studies { name } => machine::studies(name.as_deref()),
        Action::Resume(args) => prepare::resume(&args),
        Action::Shard(args) => shards::shard(&args),
        Action::Merge(args) => shards::merge(&args),
        Action::Report(args) => reporting::report(&args),
        Action::History(args) => history::history(&args),
        Action::Coherence(args) => coherence::coherence(&args),
        Action::Crash(args) => crash::crash(&args),
        Action::Promises(args) => promises::promises(&args),
        Action::Promise(args) => promises::one(&args),
        Action::Ack(args) => crash::acknowledge(&args),
        Action::Age(args) => ageing::age(&args),
        Action::Disk(action) => disk::disk(&action),
        Action::Doctor => machine::doctor(),
        Action::FileSystems => machine::file_systems(),
        Action::Layers => machine::layers(),
        Action::Clean { guests, aged } => machine::clean(guests, aged),
        Action::Guest(action) => machine::guest(&action),
        Action::Man { directory } => manual::man(directory.as_deref()),
        Action::Completions { shell } => manual::completions(shell),
    };
    let code = result.unwrap_or_else(|failure: Failure| failure.report());
    match terminal::lost() {
        None => ExitCode::from(code),
        Some(error) => {
            let words = format!("standard output: {error}; what was printed is incomplete");
            ExitCode::from(Failure::broken(words).report().max(code))
        }
    }
}
