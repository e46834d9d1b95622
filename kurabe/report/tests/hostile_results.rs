//! Results that a stranger changed: whatever their bytes are, reading, analysing and drawing them
//! neither panics nor ends the process. `KURABE_MUTATIONS` says how many are tried,
//! `KURABE_MUTATIONS_SEED` from which seed on.

mod harness;

use std::time::Instant;

use harness::hostile::{exercise, files, matrix, mutate, rich, write};

const MUTATIONS: u64 = 60;

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect("a whole number"))
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn changed_results_are_read_or_refused() {
    let first = number("KURABE_MUTATIONS_SEED").unwrap_or(1);
    let bases = [rich(), matrix()].map(|made| (files(&made), made));
    for (_, made) in &bases {
        assert!(exercise(&made.directory()).is_some(), "the result itself is sound");
    }
    let home = tempfile::Builder::new().prefix("test-of-kurabe-report-").tempdir().unwrap();
    let (mut read, mut slowest, mut panicked) = (0, (0.0, 0), Vec::new());
    let mutations = number("KURABE_MUTATIONS").unwrap_or(MUTATIONS);
    for seed in first..first + mutations {
        let mut state = seed;
        let input: Vec<u8> = (0..20).flat_map(|_| random(&mut state).to_le_bytes()).collect();
        let mut changed = bases[seed as usize % 2].0.clone();
        mutate(&mut changed, &input);
        let directory = home.path().join("result");
        write(&directory, &changed);
        let begun = Instant::now();
        let made = std::panic::catch_unwind(|| exercise(&directory));
        match made {
            Ok(made) => read += u64::from(made.is_some()),
            Err(_) => panicked.push(seed),
        }
        let taken = begun.elapsed().as_secs_f64();
        if taken > slowest.0 {
            slowest = (taken, seed);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
    assert!(panicked.is_empty(), "with KURABE_MUTATIONS_SEED of {panicked:?}");
    println!("{read} of {mutations} read, slowest {slowest:?}");
    assert!(read * 4 > mutations, "only {read} of {mutations} were read: that tries nothing");
}
