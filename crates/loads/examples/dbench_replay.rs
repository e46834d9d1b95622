//! Replays a dbench load file in a directory and prints the latencies of each operation.
//!
//! ```text
//! cargo run --release -p loads --example dbench_replay -- DIR [CLIENTS [SECONDS [LOADFILE]]]
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use loads::dbench::{
    LoadFile, PACKAGED_LOAD_FILE, Phase, Replay, Semantics, SystemCounters, replay,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first().map(PathBuf::from) else {
        return Err("usage: dbench_replay DIR [CLIENTS [SECONDS [LOADFILE]]]".into());
    };
    let clients = arguments.get(1).map_or(Ok(4), |text| text.parse())?;
    let seconds: u64 = arguments.get(2).map_or(Ok(20), |text| text.parse())?;
    let load_file = arguments.get(3).map_or(PACKAGED_LOAD_FILE, String::as_str);
    let load =
        LoadFile::parse(&fs::read(load_file)?).map_err(|error| format!("{load_file}: {error}"))?;
    let plan = Replay {
        load: &load,
        directory: &directory,
        clients,
        warmup: Duration::from_secs(seconds / 5),
        execute: Duration::from_secs(seconds),
        semantics: Semantics::default(),
        rate_bytes_per_second: None,
    };
    let mut counters = SystemCounters::new(&directory);
    let outcome = replay(&plan, &mut counters, &AtomicBool::new(false), &mut |second| {
        println!(
            "{:>5.0} s {:>9} operations {:>9.2} MB/s  slowest {:>9.3} ms  {}",
            (second.start_ns + second.duration_ns) as f64 / 1e9,
            second.operations,
            second.bytes as f64 / second.duration_ns as f64 * 1e3,
            second.slowest_ns as f64 / 1e6,
            if second.phase == Phase::Warmup { "warm-up" } else { "" },
        );
    })?;
    let report = outcome.report;
    println!(
        "\n{:<10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "µs", "count", "mean", "5 %", "50 %", "90 %", "95 %", "99 %", "99.9 %"
    );
    for kind in &report.latencies.kinds {
        println!(
            "{:<10} {:>9} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1}",
            kind.operation,
            kind.count,
            kind.total_ns as f64 / kind.count.max(1) as f64 / 1e3,
            kind.at(0.05) as f64 / 1e3,
            kind.at(0.5) as f64 / 1e3,
            kind.at(0.9) as f64 / 1e3,
            kind.at(0.95) as f64 / 1e3,
            kind.at(0.99) as f64 / 1e3,
            kind.at(0.999) as f64 / 1e3,
        );
    }
    println!("\nThroughput {:.2} MB/s", report.throughput_bytes_per_second / 1e6);
    println!("{:#?}", report.drift);
    Ok(())
}
