//! SIGKILL of a real process in the middle of puts, on a real file: whatever it was told to be done
//! is there, whole, and the store opens.
//!
//! `LUMP_KILL_DIRECTORY` names the place (the target directory unless given), `LUMP_KILL_ROUNDS`
//! the number of kills.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use block::{FileDevice, FileDeviceOptions};
use lump::{CreateOptions, Durability, OpenOptions, Store, check};

const CLIENTS: u64 = 4;
const KEYS: u64 = 25;
/// Tells the test's own program that it is the one to be killed.
const CHILD: &str = "LUMP_KILL_CHILD";

fn value(key: u128, step: u64) -> Vec<u8> {
    let length =
        16 + (step * 7919 % 120_000) as usize / if step.is_multiple_of(4) { 1 } else { 30 };
    let mut bytes = vec![(step ^ key as u64) as u8; length];
    bytes[..8].copy_from_slice(&step.to_le_bytes());
    bytes
}

/// Takes the file for itself. What the killed process still has in flight holds its lock, on a busy
/// machine for longer than an opening waits.
fn device(path: &Path) -> Arc<FileDevice> {
    if let Ok(file) = File::open(path) {
        file.lock().unwrap();
    }
    let options =
        FileDeviceOptions { exclusive: true, set_length: Some(64 << 20), ..Default::default() };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

fn open(path: &Path) -> Store {
    Store::open(device(path), &OpenOptions::default()).unwrap()
}

/// Puts until it is killed, and says what was done.
fn child(path: &Path) {
    let store = open(path);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let store = &store;
            scope.spawn(move || {
                for step in 1.. {
                    let key = u128::from((client << 32) | (step % KEYS));
                    let durability = match step % 7 {
                        0 | 1 => Durability::Buffered,
                        2 | 3 => Durability::Written,
                        _ => Durability::Durable,
                    };
                    store.put(key, &value(key, step), durability).unwrap();
                    // What is buffered may be lost.
                    if durability != Durability::Buffered {
                        println!("put {key} {step}");
                    }
                }
            });
        }
        // One more buffers all that it puts, and says what a sync covers.
        for step in 1.. {
            let key = u128::from((CLIENTS << 32) | (step % KEYS));
            store.put(key, &value(key, step), Durability::Buffered).unwrap();
            if step % 30 == 0 {
                store.sync().unwrap();
                println!("synced {step}");
            }
        }
    });
}

/// Of what one client buffered, in order, there is a first part, with all that a sync covered. Returns how
/// many more there are.
fn judge_buffered(store: &Store, synced: u64) -> u64 {
    let keys = (0..KEYS).map(|key| u128::from((CLIENTS << 32) | key));
    let found: Vec<u64> = keys
        .map(|key| {
            let Some(bytes) = store.get(key).unwrap() else { return 0 };
            let step = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes[..] == value(key, step), "{key} is not whole");
            step
        })
        .collect();
    let last = found.iter().copied().max().unwrap();
    assert!(last >= synced, "{last} of {synced}");
    for (key, step) in (0..).zip(found) {
        // The last step up to there that was of this key.
        let expected = last.saturating_sub((last + KEYS - key) % KEYS);
        assert_eq!(step, expected, "key {key}: {last} is there");
    }
    last - synced
}

#[test]
fn what_was_told_to_be_done_survives_sigkill() {
    if let Some(path) = std::env::var_os(CHILD) {
        return child(Path::new(&path));
    }
    let place = std::env::var_os("LUMP_KILL_DIRECTORY")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let rounds = std::env::var("LUMP_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let directory = tempfile::tempdir_in(place).unwrap();
    let path = directory.path().join("store");
    let (mut told, mut synced_steps, mut more) = (0, 0, 0);
    for round in 0..rounds.unwrap_or(3_u64) {
        let options = CreateOptions { journal_bytes: Some(1 << 20), ..Default::default() };
        Store::create(&*device(&path), &options).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "--exact", "what_was_told_to_be_done_survives_sigkill"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        // From when on it works; then a while that differs.
        let first = output.by_ref().map(|line| line.unwrap()).find(|line| line.starts_with("put"));
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 400));
        process.kill().unwrap();
        process.wait().unwrap();
        let mut last: BTreeMap<u128, u64> = BTreeMap::new();
        let mut synced = 0;
        for line in first.into_iter().chain(output.map_while(Result::ok)) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // The last line may be cut.
            if let ["put", key, step] = words[..]
                && let (Ok(key), Ok(step)) = (key.parse(), step.parse())
            {
                let known = last.entry(key).or_insert(step);
                *known = (*known).max(step);
                told += 1;
            }
            if let ["synced", step] = words[..]
                && let Ok(step) = step.parse()
            {
                synced = step;
            }
        }
        let report = check(device(&path)).unwrap();
        assert_eq!(report.findings, [""; 0], "round {round}");
        let store = open(&path);
        for (key, step) in last {
            let found = store.get(key).unwrap().unwrap_or_else(|| panic!("{key} is lost"));
            let found_step = u64::from_le_bytes(found[..8].try_into().unwrap());
            // Up to two were buffered, and one under way.
            let is_right = (0..=3).any(|later| found_step == step + later * KEYS);
            assert!(is_right, "{key}: {found_step}, {step}");
            assert!(found[..] == value(key, found_step), "{key} is not whole");
        }
        more += judge_buffered(&store, synced);
        synced_steps += synced;
    }
    println!(
        "{told} puts were told to be done, {synced_steps} buffered ones synced, {more} more kept"
    );
    assert!(told > 0);
}
