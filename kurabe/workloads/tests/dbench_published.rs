//! Proves on Debian's load file what studies/dbench.toml says of the published runs: the rates of
//! their first seconds are those that the load file asks for.
//!
//! Needs the load file; where it is missing there is nothing to compare, and the test says so.

use std::path::Path;

use workloads::dbench::{LoadFile, PACKAGED_LOAD_FILE};

/// Of the five published runs with four clients: the lines that each client was past after so many
/// seconds, and the mean rate in 10^6 bytes a second that dbench printed beside them.
const PUBLISHED: [(u32, f64, f64); 10] = [
    (3291, 1.0, 142.68),
    (7950, 2.0, 120.71),
    (182, 1.0, 29.22),
    (411, 2.0, 29.19),
    (7644, 1.0, 237.07),
    (15036, 2.0, 196.46),
    (435, 1.0, 61.09),
    (664, 2.0, 42.31),
    (664, 1.0, 84.63),
    (2345, 2.0, 55.78),
];

#[test]
fn the_published_first_rates_are_those_of_the_load_files_beginning() {
    if !Path::new(PACKAGED_LOAD_FILE).exists() {
        eprintln!("SKIPPED: {PACKAGED_LOAD_FILE} is not there (package dbench)");
        return;
    }
    let load = LoadFile::parse(&std::fs::read(PACKAGED_LOAD_FILE).unwrap()).unwrap();
    let of_lines = |to: u32| {
        let passed = load.operations.iter().take_while(|operation| operation.line <= to);
        4.0 * passed.map(|operation| operation.bytes()).sum::<u64>() as f64 / 1e6
    };
    for (lines, seconds, published) in PUBLISHED {
        let asked = of_lines(lines) / seconds;
        let off = (asked / published - 1.0).abs();
        assert!(off < 0.012, "{lines} lines: {asked:.2}, published {published}");
    }
    // The file's later lines ask for far less, so that the same speed yields a lower rate.
    let a_line = |to: u32| of_lines(to) / f64::from(to);
    let last = load.operations.last().unwrap().line;
    assert!(a_line(664) > 5.0 * a_line(last), "{} and {}", a_line(664), a_line(last));
}
