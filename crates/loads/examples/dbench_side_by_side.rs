//! Runs dbench and its replay in turn on one directory and prints how their throughputs and
//! operation counts compare.
//!
//! ```text
//! cargo run --release -p loads --example dbench_side_by_side -- DIR [CLIENTS [SECONDS [ROUNDS]]]
//! ```
//!
//! Each round runs both once, in random order, each in a fresh directory after a sync; dbench
//! and the replay both warm up for a fifth of SECONDS. The figure that counts is the ratio of a
//! round, because the file system and the device drift from round to round.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use loads::dbench::real::{Dbench, dbench};
use loads::dbench::{LoadFile, PACKAGED_LOAD_FILE, Replay, Semantics, SystemCounters};
use loads::dbench::{replay, warmup_seconds};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What either run of a round came to.
struct Run {
    megabytes_per_second: f64,
    counts: BTreeMap<String, u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first().map(PathBuf::from) else {
        return Err("usage: dbench_side_by_side DIR [CLIENTS [SECONDS [ROUNDS]]]".into());
    };
    let number = |index: usize, default: u32| -> Result<u32, Box<dyn Error>> {
        Ok(arguments.get(index).map(|text| text.parse()).transpose()?.unwrap_or(default))
    };
    let (clients, seconds, rounds) = (number(1, 4)?, number(2, 20)?, number(3, 5)?);
    let load = LoadFile::parse(&fs::read(PACKAGED_LOAD_FILE)?)?;

    println!("{clients} clients, {seconds} s after a warm-up of {} s", warmup_seconds(seconds));
    println!("{:>5} {:>12} {:>12} {:>7}", "round", "dbench MB/s", "replay MB/s", "ratio");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut logarithms = Vec::new();
    let mut totals: [BTreeMap<String, u64>; 2] = Default::default();
    for round in 1..=rounds {
        let replay_first: bool = random.random();
        let mut runs: [Option<Run>; 2] = [None, None];
        for turn in [replay_first, !replay_first] {
            // Both names have the same length, so both walk paths of the same length.
            let scratch = directory.join(if turn { "replay" } else { "dbench" });
            fs::create_dir(&scratch)?;
            rustix::fs::sync();
            let run = if turn {
                run_replay(&scratch, &load, clients, seconds)?
            } else {
                run_dbench(&scratch, clients, seconds)?
            };
            fs::remove_dir_all(&scratch)?;
            rustix::fs::sync();
            for (name, count) in &run.counts {
                *totals[usize::from(turn)].entry(name.clone()).or_default() += count;
            }
            runs[usize::from(turn)] = Some(run);
        }
        let [Some(real), Some(ours)] = &runs else {
            unreachable!("each round runs both");
        };
        let ratio = ours.megabytes_per_second / real.megabytes_per_second;
        logarithms.push(ratio.ln());
        println!(
            "{round:>5} {:>12.2} {:>12.2} {ratio:>7.3}",
            real.megabytes_per_second, ours.megabytes_per_second
        );
    }
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let variance = logarithms.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
    println!(
        "geometric mean of the ratios {:.3}, standard error {:.1} %",
        mean.exp(),
        100.0 * (variance / count).sqrt()
    );
    print_counts(&load, &totals);
    Ok(())
}

fn run_dbench(directory: &Path, clients: u32, seconds: u32) -> Result<Run, Box<dyn Error>> {
    let plan =
        Dbench { directory, clients, execute_seconds: seconds, load_file: None, options: &[] };
    let report = dbench(&plan, &AtomicBool::new(false), &mut |_| {})?;
    for complaint in &report.complaints {
        println!("dbench: {complaint}");
    }
    Ok(Run {
        megabytes_per_second: report.counted_bytes_per_second() / 1e6,
        counts: report.operations.into_iter().map(|line| (line.operation, line.count)).collect(),
    })
}

fn run_replay(
    directory: &Path,
    load: &LoadFile,
    clients: u32,
    seconds: u32,
) -> Result<Run, Box<dyn Error>> {
    let plan = Replay {
        load,
        directory,
        clients,
        warmup: Duration::from_secs(warmup_seconds(seconds).into()),
        execute: Duration::from_secs(u64::from(seconds)),
        semantics: Semantics::default(),
        rate_bytes_per_second: None,
    };
    let mut counters = SystemCounters::new(directory);
    let report = replay(&plan, &mut counters, &AtomicBool::new(false), &mut |_| {})?.report;
    if report.reads_short + report.opened_unexpectedly > 0 {
        println!(
            "replay: {} reads were short, {} opens succeeded unexpectedly",
            report.reads_short, report.opened_unexpectedly
        );
    }
    Ok(Run {
        megabytes_per_second: report.throughput_bytes_per_second / 1e6,
        counts: report
            .latencies
            .kinds
            .into_iter()
            .map(|kind| (kind.operation, kind.count))
            .collect(),
    })
}

/// The share of each kind in all operations: of the load file, of dbench, of the replay.
fn print_counts(load: &LoadFile, totals: &[BTreeMap<String, u64>; 2]) {
    let of_load: BTreeMap<String, u64> =
        load.counts().into_iter().map(|(kind, count)| (kind.name().to_owned(), count)).collect();
    let share = |counts: &BTreeMap<String, u64>, name: &str| {
        let all: u64 = counts.values().sum();
        100.0 * counts.get(name).copied().unwrap_or(0) as f64 / all as f64
    };
    println!(
        "\n{:<10} {:>8} {:>8} {:>8}  per cent of all operations",
        "", "file", "dbench", "replay"
    );
    for name in of_load.keys() {
        println!(
            "{name:<10} {:>8.3} {:>8.3} {:>8.3}",
            share(&of_load, name),
            share(&totals[0], name),
            share(&totals[1], name)
        );
    }
}
