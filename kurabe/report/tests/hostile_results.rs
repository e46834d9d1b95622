//! Results that a stranger changed: whatever their bytes are, reading, analysing and drawing them
//! neither panics nor ends the process. `KURABE_MUTATIONS` says how many are tried,
//! `KURABE_MUTATIONS_SEED` from which seed on.

mod harness;

use std::time::Instant;

use harness::hostile::{exercise, files, fill, matrix, mutate, rich, write};
use harness::{make, study};
use report::source::ResultSource;
use report::{answer, details, document, export, page};
use serde_json::json;

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

/// CPU time that this thread had so far, which other processes do not lengthen.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Four times the rounds take about four times the work to read and to make anything of (but for merging
/// histograms, which other threads do). What grows with the square takes 16 times it, as the CSV did.
#[test]
fn a_report_takes_work_in_proportion_to_its_rounds() {
    type Part = fn(&ResultSource) -> usize;
    let parts: [(&str, Part); 6] = [
        ("page", |source| page::page(source, &[]).len()),
        ("pictures", |source| page::pictures(source, &[]).len()),
        ("answer", |source| document::terminal(&answer::answer(source), true).len()),
        ("details", |source| document::terminal(&details::details(source), true).len()),
        ("CSV", |source| export::csv(&source.records).len()),
        ("JSON", |source| {
            let ResultSource { plan, records, analysis, .. } = source;
            export::json(plan, records, analysis, &json!({})).to_string().len()
        }),
    ];
    let of = |rounds: u32| {
        let made = make(&study(&["ext4", "xfs"], &["true"], rounds), fill);
        let read = || ResultSource::read(&made.directory()).unwrap();
        let once = |work: &dyn Fn() -> usize| {
            let begun = cpu_ns();
            assert!(work() > 0);
            cpu_ns() - begun
        };
        let twice = |work: &dyn Fn() -> usize| once(work).min(once(work));
        let source = read();
        let mut costs = vec![("reading", twice(&|| read().records.len()))];
        costs.extend(parts.map(|(name, part)| (name, twice(&|| part(&source)))));
        costs
    };
    for ((name, few), (_, many)) in of(150).into_iter().zip(of(600)) {
        println!("{name}: {few} and {many} ns of CPU");
        // Some kernels count in steps of milliseconds.
        assert!(
            many < 8 * few.max(10_000_000),
            "{name}: {few} ns, and {many} ns for four times as much"
        );
    }
}

/// Nothing larger is read into memory.
#[test]
fn records_of_more_than_1_gib_are_refused() {
    let made = rich();
    let records = std::fs::File::options().write(true).open(made.path("records.jsonl")).unwrap();
    records.set_len((1 << 30) + 1).unwrap();
    let refused = lab::result::StoredResult::read(&made.directory()).err().unwrap().to_string();
    assert!(refused.contains("records.jsonl") && refused.contains("1073741824 bytes"), "{refused}");
}
