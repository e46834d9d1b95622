//! Any bytes as a study file: read, resolved, planned, printed and read again.
#![no_main]

use std::path::Path;

use lab::plan::Plan;
use lab::study_file;
use libfuzzer_sys::fuzz_target;

const KNOWN: &[&str] = &["btrfs", "dir", "ext4", "raw", "xfs"];
/// Trials of a plan that is worth the time to make it.
const TRIALS_MAX: usize = 10_000;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let path = Path::new("study.toml");
    let (study, resolved) = match study_file::load(path, text, KNOWN) {
        Ok(read) => read,
        Err(error) => return drop(error.to_string()),
    };
    let printed = study_file::print(&study);
    let again = study_file::parse(path, &printed).expect("what is printed is read");
    assert_eq!(study_file::print(&again), printed);
    let pairs = resolved.contenders.len() * resolved.workloads.len();
    if pairs.saturating_mul(resolved.blocks_max as usize) <= TRIALS_MAX {
        Plan::new(resolved, 1).check().expect("a plan that was made is sound");
    }
});
