//! Layers between a device and a contender: file systems live on them, what they promise holds, and
//! nothing of them is left, however the program ends.

mod harness;

use std::time::Duration;

use harness::{Site, root, signal, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// Some data, and five acknowledged files.
const COMMAND: &str = "head -c 4000000 /dev/urandom >a; for i in 1 2 3 4 5; do dd if=a of=b$i bs=4k \
                       count=1 conv=fsync 2>/dev/null; done";

fn flushes(record: &Value, phase: &str) -> u64 {
    let phases = record["phases"].as_array().unwrap();
    let phase = phases.iter().find(|entry| entry["phase"] == phase).unwrap();
    phase["device"]["flushes"].as_u64().unwrap()
}

/// What the server said: the flushes that reached the device below.
fn flushes_below(record: &Value) -> u64 {
    let notes = record["notes"].as_array().unwrap();
    let note = notes.iter().filter_map(Value::as_str).find(|note| note.starts_with("below its"));
    let note = note.unwrap_or_else(|| panic!("{record:#}"));
    let (head, _) = note.rsplit_once(" flushes").unwrap();
    head.rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn run_ns(record: &Value) -> u64 {
    let phases = record["phases"].as_array().unwrap();
    phases.iter().find(|phase| phase["phase"] == "run").unwrap()["elapsed_ns"].as_u64().unwrap()
}

#[test]
fn file_systems_live_on_layers_whose_flushes_are_the_devices() {
    if !root() {
        return;
    }
    for (layers, reach) in [("delay:flush=1ms", true), ("delay:flush=1ms+ignore-flush", false)] {
        let site = Site::new();
        let device = format!("{layers}+{}", site.image_device("320M"));
        let contenders = ["ext4", "xfs", "btrfs"];
        site.compare(&contenders, &["--device", &device], &["sh", "-c", COMMAND]).expect(0);
        site.expect_nothing_left();
        for label in contenders {
            let record = site.record_of(label);
            assert!(flushes(&record, "run") >= 5, "{record:#}");
            if reach {
                assert!(flushes_below(&record) > flushes(&record, "run"), "{record:#}")
            } else {
                assert_eq!(flushes_below(&record), 0, "{record:#}")
            }
        }
    }
}

#[test]
fn a_layer_stands_under_one_contender_alone() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = ["fast: ext4", "slow: ext4 over delay:flush=100ms"];
    site.compare(&contenders, &[], &["sh", "-c", COMMAND]).expect(0);
    site.expect_nothing_left();
    let (fast, slow) = (site.record_of("fast"), site.record_of("slow"));
    let more_ns = run_ns(&slow) as i64 - run_ns(&fast) as i64;
    assert!(more_ns > 500_000_000, "{more_ns} ns");
    assert!(!fast["notes"].to_string().contains("below its layers"), "{fast:#}");
    let ran = site.compare(&["ext4 over dely:1ms"], &[], &["true"]).expect(2);
    assert!(ran.stderr.contains("no layer 'dely'"), "{}", ran.stderr);
    for (flags, word) in [
        (["--layers", "slo: delay:1ms"], "did you mean 'slow'"),
        (["--layers", "slow: dely:1ms"], "no layer 'dely'"),
        (["--device", "delay:x+mem:64M"], "'x' is not a duration"),
    ] {
        let ran = site.compare(&["slow: ext4"], &flags, &["true"]).expect(2);
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

/// Whoever is killed, also while requests wait in the layer, nothing hangs and nothing is left.
#[test]
fn whoever_is_killed_nothing_is_left() {
    if !root() {
        return;
    }
    for victim in ["runner", "trial", "server"] {
        let site = Site::new();
        let device = format!("delay:write=300ms,flush=300ms+{}", site.image_device("64M"));
        let ready = site.home().join("ready");
        let command = format!(
            "touch {}; while dd if=/dev/zero of=b bs=64k count=99 conv=fsync; do :; done",
            ready.display()
        );
        let flags = ["--device", device.as_str()];
        let running = site.start(site.compare_command(&["ext4"], &flags, &["sh", "-c", &command]));
        wait_until("the command runs", || ready.exists());
        std::thread::sleep(Duration::from_millis(500));
        let words = |process: i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        };
        let of = |word: &str| {
            let all = site.processes();
            all.into_iter().find(|process| words(*process).contains(word)).expect(word)
        };
        let number = match victim {
            "runner" => running.number(),
            "trial" => of(" trial "),
            _ => of(" serve "),
        };
        signal(number, Signal::KILL);
        let ran = running.finish();
        assert_ne!(ran.code, Some(0), "{victim}");
        wait_until("its processes are gone", || site.processes().is_empty());
        site.run(&["clean"]).expect(0);
        site.expect_nothing_left();
    }
}
