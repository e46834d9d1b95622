//! Lives a tree's life in a directory and prints its phases.
//!
//! ```text
//! cargo run --release -p loads --example tree_life -- DIR ARCHIVE [PHASE...]
//! cargo run --release -p loads --example tree_life -- DIR synthetic:N [PHASE...]
//! ```
//!
//! ARCHIVE is anything that tar reads; `synthetic:N` a tree of N files like the kernel's, whose
//! archive is written to the system's directory for temporary files first.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use loads::durable::WholeSync;
use loads::tree::{Phase, SyntheticTree, Tree, TreeOutcome, inspect, run_tree, write_archive};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, archive, phases @ ..] = &arguments[..] else {
        return Err("usage: tree_life DIR ARCHIVE|synthetic:N [PHASE...]".into());
    };
    let phases: Vec<Phase> = if phases.is_empty() {
        Phase::DEFAULT.to_vec()
    } else {
        phases
            .iter()
            .map(|name| serde_json::from_str(&format!("\"{name}\"")))
            .collect::<Result<_, _>>()?
    };
    let stop = AtomicBool::new(false);
    let outcome = match archive.strip_prefix("synthetic:") {
        Some(files) => {
            let path = std::env::temp_dir().join(format!("kurabe-tree-{}.tar", std::process::id()));
            let tree = SyntheticTree::new(files.parse()?, 1);
            let written = write_archive(&tree, &mut BufWriter::new(File::create(&path)?));
            let outcome = written
                .map_err(Into::into)
                .and_then(|_| live(Path::new(directory), path.clone(), &phases, &stop));
            std::fs::remove_file(&path)?;
            outcome?
        }
        None => live(Path::new(directory), PathBuf::from(archive), &phases, &stop)?,
    };
    println!(
        "{:<12} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "phase", "seconds", "sync s", "count", "MB", "p50 µs", "p95 µs", "p99 µs", "max µs"
    );
    for phase in &outcome.report.phases {
        let latencies = phase.latencies.as_ref().map(|summary| &summary.overall);
        let microseconds = |value: Option<u64>| {
            value.map_or(String::new(), |nanoseconds| format!("{:.1}", nanoseconds as f64 / 1e3))
        };
        println!(
            "{:<12} {:>9.3} {:>9.3} {:>9} {:>10.1} {:>9} {:>9} {:>9} {:>9}",
            phase.phase.name(),
            phase.elapsed_ns as f64 / 1e9,
            phase.sync_ns as f64 / 1e9,
            phase.operations,
            phase.bytes as f64 / 1e6,
            microseconds(latencies.map(|all| all.at(0.5))),
            microseconds(latencies.map(|all| all.at(0.95))),
            microseconds(latencies.map(|all| all.at(0.99))),
            microseconds(latencies.map(|all| all.max_ns)),
        );
    }
    if let Some(hash) = outcome.report.hash {
        println!("{hash}");
    }
    Ok(())
}

fn live(
    directory: &Path,
    archive: PathBuf,
    phases: &[Phase],
    stop: &AtomicBool,
) -> Result<TreeOutcome, Box<dyn Error>> {
    let facts = inspect(&archive, stop)?;
    let plan = Tree {
        archive: &archive,
        directory,
        phases,
        facts: Some(facts),
        expected_hash: None,
        sync: WholeSync::Call,
    };
    Ok(run_tree(&plan, stop, &mut |phase| eprintln!("{}...", phase.name()))?)
}
