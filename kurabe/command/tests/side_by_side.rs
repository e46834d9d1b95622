//! Contenders that take turns: the kill of a runner in the middle of a round, a command that fails
//! in one of them, a setup that each turn needs anew, and a study that goes on.

mod harness;

use harness::{Site, failure, kinds, root, signal, tool, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const DEVICE: [&str; 4] = ["--side-by-side", "--device", "mem:128M", "--idle-wait"];

/// Flags of a short study on two parts of 64 MiB.
fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let common = ["1s", "--block-time", "300ms", "--seed", "3"];
    DEVICE.iter().chain(&common).chain(more).copied().collect()
}

/// The same with rounds of several runs on a busy machine too: a run that takes half of a round is its only one.
fn with_long_rounds<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    flags.iter().map(|flag| if *flag == "300ms" { "4s" } else { flag }).collect()
}

const CONTENDERS: [&str; 2] = ["a: ext4", "b: ext2"];

fn slices(record: &Value) -> &Vec<Value> {
    record["slices"].as_array().expect("it took turns")
}

#[test]
fn a_block_has_equal_turns_and_its_records_their_mean() {
    if !root() {
        return;
    }
    let site = Site::new();
    // What the setup makes is there in every turn, though every run takes it away.
    let setup = ["--setup", "echo there > file", "--cleanup", "test ! -e file"];
    let flags = flags(&[&["--rounds", "2"], &setup[..]].concat());
    let flags = with_long_rounds(&flags);
    site.compare(&CONTENDERS, &flags, &["test -s file && rm file && head -c 1M /dev/zero > new"])
        .expect(0);
    let records = site.records();
    assert_eq!(kinds(&records), ["completed"; 4]);
    for block in records.chunks(2) {
        let (one, other) = (slices(&block[0]), slices(&block[1]));
        assert!(one.len() > 1 && one.len() == other.len(), "{} and {}", one.len(), other.len());
        for (one, other) in one.iter().zip(other) {
            let mut places = [one["position"].as_u64(), other["position"].as_u64()];
            places.sort_unstable();
            assert_eq!(places, [Some(0), Some(1)]);
            assert_eq!(one["round"], other["round"]);
        }
        let mut parts: Vec<_> = block.iter().map(|r| r["side_by_side"]["part"].as_u64()).collect();
        parts.sort_unstable();
        assert_eq!(parts, [Some(0), Some(1)]);
    }
    for record in &records {
        let run: u64 = slices(record).iter().map(|slice| slice["run_ns"].as_u64().unwrap()).sum();
        let mean = run / slices(record).len() as u64;
        let told = harness::phase(record, "run")["elapsed_ns"].as_u64().unwrap();
        assert!(told.abs_diff(mean) <= 1, "{told} for {mean}");
        let written = slices(record)[0]["device"]["written_bytes"].as_u64().unwrap();
        assert!(written >= 1 << 20, "its sync is in the cost: {written} bytes");
    }
    site.expect_nothing_left();
}

/// What the setup wrote comes from the device, in every turn, unless the setup changed the mount.
#[test]
fn a_cold_turn_reads_from_the_device() {
    if !root() {
        return;
    }
    let site = Site::new();
    let around = ["--rounds", "2", "--cache", "cold", "--setup"];
    let write = "head -c 4M /dev/urandom > file";
    let command = "cat file > /dev/null; sleep 0.01";
    site.compare(&CONTENDERS, &flags(&[&around[..], &[write]].concat()), &[command]).expect(0);
    for record in site.records() {
        assert_eq!(record.get("caches_kept"), None, "{record:#}");
        for slice in slices(&record) {
            let read = slice["device"]["read_bytes"].as_u64().unwrap();
            assert!(read >= 4 << 20, "{read} bytes in {slice:#}");
        }
    }
    let remount = format!("{write}; mount -o remount,nodiratime \"$PWD/..\"");
    let site = Site::new();
    site.compare(&CONTENDERS, &flags(&[&around[..], &[&remount]].concat()), &[command]).expect(0);
    for record in site.records() {
        assert_eq!(record["caches_kept"], "the setup changed the mount");
    }
    site.expect_nothing_left();
}

/// The bare device too, and without being asked.
#[test]
fn a_matrix_takes_turns_cell_by_cell() {
    if !root() || tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    let flags = ["--fio-matrix", "--size", "16M", "--block-size", "4K", "--time", "100ms"];
    let around = ["--device", "mem:128M", "--idle-wait", "1s", "--rounds", "2", "--seed", "3"];
    site.compare(&["raw", "ext4"], &[&flags[..], &around[..]].concat(), &[]).expect(0);
    let records = site.records();
    assert_eq!(kinds(&records), ["completed"; 4]);
    let name_of = |slice: &Value| {
        let metrics = slice["metrics"].as_array().expect("a cell has its figure");
        assert_eq!(metrics.len(), 1, "{metrics:?}");
        metrics[0]["name"].as_str().unwrap().to_string()
    };
    let mut orders = Vec::new();
    for block in records.chunks(2) {
        let [one, other] =
            [0, 1].map(|n| slices(&block[n]).iter().map(name_of).collect::<Vec<_>>());
        assert_eq!(one, other, "all have the same cell in a round");
        assert_eq!(one.len() % 9, 0, "a run is not broken off: {}", one.len());
        orders.push(one[..9].to_vec());
    }
    assert_ne!(orders[0], orders[1]);
    for record in &records {
        let metrics = record["load"]["metrics"].as_array().unwrap();
        let names: Vec<&str> = metrics.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names[0]), (10, "geometric mean of all cells"));
        let slices = slices(record);
        for metric in &metrics[1..] {
            let same = slices.iter().filter(|slice| slice["metrics"][0]["name"] == metric["name"]);
            let values: Vec<f64> =
                same.map(|slice| slice["metrics"][0]["value"].as_f64().unwrap()).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let told = metric["value"].as_f64().unwrap();
            assert!((told / mean - 1.0).abs() < 1e-9, "{told} for {values:?}");
        }
        // The cost of a run is that of its cells together.
        let runs = slices.len() as u64 / 9;
        let run: u64 = slices.iter().map(|slice| slice["run_ns"].as_u64().unwrap()).sum();
        let told = harness::phase(record, "run")["elapsed_ns"].as_u64().unwrap();
        assert!(told.abs_diff(run / runs) <= 1, "{told} for {run} in {runs}");
        assert_eq!(record["load"].get("findings"), None, "nothing was laid out within a run");
    }
    site.expect_nothing_left();
}

#[test]
fn a_command_that_fails_in_one_contender_leaves_the_other_its_turns() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "case $KURABE_CONTENDER in b) exit 7;; esac";
    let flags = flags(&["--rounds", "1"]);
    site.compare(&CONTENDERS, &with_long_rounds(&flags), &[command]).expect(1);
    let (phase, message, _) = failure(&site.record_of("b"));
    assert_eq!((phase.as_str(), message.as_str()), ("run", "the command exited with code 7"));
    assert!(slices(&site.record_of("a")).len() > 1);
    site.expect_nothing_left();
}

/// Nobody's help is needed: the trials end with their runner, and everything with the trials.
#[test]
fn trials_end_with_a_runner_that_is_killed_in_the_middle_of_a_round() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "trap '' INT TERM HUP; setsid sleep 1000 & sleep 1000";
    let device = site.image_device("128M");
    let flags = ["--rounds", "1", "--side-by-side", "--device", &device];
    let running = site.start(site.compare_command(&CONTENDERS, &flags, &[command]));
    wait_until("one has its turn and both are mounted", || {
        let taken = site.taken();
        let count = |kind: &str| taken.iter().filter(|line| line.starts_with(kind)).count();
        count("process sleep") == 2 && count("loop device") == 2
    });
    signal(running.number(), Signal::KILL);
    running.reap();
    wait_until("the trials have ended", || site.processes().is_empty());
    wait_until("nothing is mounted or attached", || {
        !site.taken().iter().any(|taken| taken.starts_with("mount") || taken.starts_with("loop"))
    });
    site.run(&["clean"]).expect(0);
    site.expect_nothing_left();
}

#[test]
fn an_interrupted_block_is_carried_out_again_whole() {
    if !root() {
        return;
    }
    let site = Site::new();
    let second = site.home().join("second");
    let command = format!("test -e {0} || {{ touch {0}.begun; sleep 1000; }}", second.display());
    let flags = flags(&["--rounds", "1"]);
    let running = site.start(site.compare_command(&CONTENDERS, &flags, &[&command]));
    let begun = second.with_extension("begun");
    wait_until("a turn has begun", || begun.exists());
    signal(running.number(), Signal::INT);
    running.finish().expect(130);
    assert_eq!(kinds(&site.records()), ["interrupted"; 2]);
    site.expect_nothing_left();
    std::fs::write(&second, "").unwrap();
    site.run(&["resume", "result"]).expect(0);
    let records = site.records();
    assert_eq!(kinds(&records)[2..], ["completed"; 2]);
    site.expect_nothing_left();
}

/// By default, too: whole devices suffice where their halves do not.
#[test]
fn what_only_a_whole_device_holds_is_carried_out_one_at_a_time() {
    if !root() {
        return;
    }
    let site = Site::new();
    let flags = ["--device", "mem:64M", "--rounds", "2"];
    let ran = site.compare(&CONTENDERS, &flags, &["head -c 40M /dev/zero > file"]).expect(0);
    assert!(ran.stderr.contains("one at a time from here on"), "{}", ran.stderr);
    let records = site.records();
    let completed = |record: &&Value| record["outcome"]["kind"] == "completed";
    assert_eq!(records.iter().filter(completed).count(), 4, "{:?}", kinds(&records));
    assert!(records.iter().filter(completed).all(|record| record["slices"].is_null()));
    assert!(!ran.stdout.contains("failed"), "{}", ran.stdout);
    site.expect_nothing_left();
    // So with a store that has less room than a half of the device.
    let site = Site::new();
    std::fs::write(site.work().join("keeps.obj"), "Command { 29.times { New(1M); }; }").unwrap();
    let flags = [&flags[..], &["--objects", "keeps.obj"]].concat();
    let ran = site.compare(&["a: lump over ext4", "b: lump over ext2"], &flags, &[]).expect(0);
    assert!(ran.stderr.contains("one at a time from here on"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("failed"), "{}", ran.stdout);
    // Without being asked for it, contenders take turns where that is possible.
    let other = Site::new();
    other
        .compare(
            &CONTENDERS,
            &["--rounds", "1", "--device", "mem:128M"],
            &["head -c 1M /dev/zero > new"],
        )
        .expect(0);
    assert!(other.records().iter().all(|record| slices(record).len() > 1));
}
