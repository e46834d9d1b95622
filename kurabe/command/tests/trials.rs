//! Whole studies through the command line: what a trial records when a tool or the command fails,
//! what the command sees, what the exit code says. Needs root but for the directories.

mod harness;

use std::fs;
use std::time::Duration;

use harness::{
    Site, failure, memory_directory, phase, phase_names, root, two_contenders, wait_until,
    written_bytes,
};
use serde_json::Value;

fn completed(record: &Value) -> bool {
    record["outcome"]["kind"] == "completed"
}

/// Cold or not: what a tmpfs holds is nowhere else. It is as large as the device of the others.
#[test]
fn a_tmpfs_keeps_its_files_and_has_the_size_of_the_device() {
    if !root() {
        return;
    }
    for way in ["--side-by-side", "--one-at-a-time"] {
        let site = Site::new();
        let around = [way, "--device", "mem:128M", "--runs", "1", "--cache", "cold"];
        let flags = [&around[..], &["--setup", "df --output=size -k . | tail -1 > size"]].concat();
        site.compare(&["ext2", "tmpfs"], &flags, &["test -s size && cat size && sleep 0.02"])
            .expect(0);
        let record = site.record_of("tmpfs");
        assert_eq!(record["outcome"]["kind"], "completed", "{record:#}");
        let size = if way == "--side-by-side" { "size=65536k" } else { "size=131072k" };
        let mounted = record["mounted_as"].as_str().unwrap();
        assert!(mounted.contains(" tmpfs ") && mounted.contains(size), "{mounted}");
        assert_eq!(record.get("caches_kept"), None, "{record:#}");
        site.expect_nothing_left();
    }
}

#[test]
fn a_trial_of_every_file_system_of_the_kernel() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("320M");
    let contenders = ["ext2", "ext3", "ext4", "xfs", "btrfs"];
    let command = ["sh", "-c", "head -c 2000000 /dev/urandom >a"];
    let ran = site.compare(&contenders, &["--device", &device], &command).expect(0);
    site.expect_nothing_left();
    for label in contenders {
        assert!(ran.stdout.contains(label), "{}", ran.stdout);
        let record = site.record_of(label);
        assert!(completed(&record), "{record:#}");
        let phases = phase_names(&record);
        let expected = ["mkfs", "mount", "settle", "run", "sync", "unmount", "check"];
        assert_eq!(phases, expected, "{label}");
        // The file reached the device by the end of the sync, and the counters saw it.
        let written_bytes = written_bytes(&record, "run") + written_bytes(&record, "sync");
        assert!(written_bytes >= 2_000_000, "{label}: {written_bytes}");
        assert!(record["command"]["storage_written_bytes"].as_u64().unwrap() >= 2_000_000);
        assert!(record["commands"].as_array().unwrap().len() >= 4, "{label}");
        assert!(!record["geometry"].as_str().unwrap().is_empty(), "{label}");
        assert!(record["mounted_as"].as_str().unwrap().contains(label), "{label}");
    }
    let small = "btrfs behaves differently on less than 2G, and has 320M; give a larger --device";
    assert_eq!(site.record_of("btrfs")["caution"], small);
    assert_eq!(site.record_of("xfs").get("caution"), None);
    // With the answer, and so on every screen.
    let at = |words: &str| ran.stdout.find(words).unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(at("Warning: btrfs: btrfs behaves differently") < at("On an image file"));
    let facts = site.json("facts.json");
    assert!(facts["device"]["request"].as_str().unwrap().starts_with("loop:320M"), "{facts:#}");
    assert!(facts["tools"].as_object().unwrap().contains_key("mkfs.xfs"), "{facts:#}");
    assert_eq!(site.primary_comparisons().len(), 4);
}

#[test]
fn mkfs_and_mount_that_fail_are_recorded_in_their_own_words() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders =
        ["mkfs: ext4 -O no_such_feature", "mount: ext4 @ no_such_option=1", "good: ext2"];
    let ran = site.compare(&contenders, &["--runs", "3"], &["true"]).expect(1);
    site.expect_nothing_left();
    let of = |label: &str| -> Vec<Value> {
        let mut records = site.records();
        records.retain(|record| record["contender"]["label"] == label);
        records
    };
    // Given up after two failures, while the other one goes on.
    assert_eq!((of("mkfs").len(), of("mount").len(), of("good").len()), (2, 2, 3));
    assert!(of("good").iter().all(completed));
    let (phase, message, output) = failure(&of("mkfs")[0]);
    assert_eq!(phase, "mkfs");
    assert!(message.contains("mkfs.ext4") && message.contains("no_such_feature"), "{message}");
    assert!(output.contains("Invalid filesystem option set: no_such_feature"), "{output}");
    let (phase, message, output) = failure(&of("mount")[0]);
    assert_eq!(phase, "mount");
    assert!(message.contains("no_such_option=1"), "{message}");
    assert!(output.contains("wrong fs type, bad option"), "{output}");
    // The user sees the tool's own words too, and the table says what is missing.
    assert!(ran.stderr.contains("Invalid filesystem option set: no_such_feature"));
    assert!(ran.stdout.contains("failed"), "{}", ran.stdout);
}

#[test]
fn a_command_that_fails_is_recorded_and_the_others_go_on() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "[ $KURABE_CONTENDER = ext2 ] || { echo lost the plot >&2; exit 7; }";
    let ran = site.compare(&["ext4", "ext2"], &[], &[command]).expect(1);
    site.expect_nothing_left();
    let (phase, message, output) = failure(&site.record_of("ext4"));
    assert_eq!((phase.as_str(), output.as_str()), ("run", "lost the plot"));
    assert!(message.contains("code 7"), "{message}");
    assert!(completed(&site.record_of("ext2")));
    assert!(ran.stderr.contains("lost the plot"), "{}", ran.stderr);

    let other = Site::new();
    other.compare(&["ext4", "ext2"], &["--ignore-failure"], &[command]).expect(0);
    let record = other.record_of("ext4");
    assert!(completed(&record));
    assert_eq!(record["command"]["exit_code"], 7);
}

#[test]
fn a_command_that_is_killed_or_cannot_be_started_is_recorded() {
    if !root() {
        return;
    }
    let site = Site::new();
    let script = "[ $KURABE_CONTENDER = ext2 ] || kill -KILL $$";
    site.compare(&["ext4", "ext2"], &[], &[script]).expect(1);
    let (phase, message, _) = failure(&site.record_of("ext4"));
    assert_eq!(phase, "run");
    assert!(message.contains("signal 9"), "{message}");

    let other = Site::new();
    let setup = ["--setup", "true"];
    other.compare(&["ext2"], &setup, &["./made-by-no-setup", "argument"]).expect(1);
    let (phase, message, _) = failure(&other.record_of("ext2"));
    assert_eq!(phase, "run");
    assert!(message.contains("'./made-by-no-setup' cannot be started"), "{message}");
    other.expect_nothing_left();
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_children() {
    if !root() {
        return;
    }
    let site = Site::new();
    // One child stays in the command's group, one leaves it.
    let command = "[ $KURABE_CONTENDER = ext2 ] || { sleep 1000 & setsid sleep 1000 & wait; }";
    let flags = ["--timeout", "4s"];
    let ran = site.compare(&["ext4", "ext2"], &flags, &[command]).expect(1);
    site.expect_nothing_left();
    let record = site.record_of("ext4");
    assert_eq!(record["outcome"]["kind"], "timed-out", "{record:#}");
    assert_eq!(record["outcome"]["phase"], "run");
    assert_eq!(record["outcome"]["limit_ns"], 4_000_000_000u64);
    assert!(record["elapsed_ns"].as_u64().unwrap() < 9_000_000_000, "{record:#}");
    assert!(completed(&site.record_of("ext2")));
    assert!(ran.stderr.contains("ext4 took longer than 4"), "{}", ran.stderr);
}

#[test]
fn a_command_that_fills_the_disk_is_recorded_in_its_own_words() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "[ $KURABE_CONTENDER = ext2 ] || dd if=/dev/zero of=big bs=1M";
    let flags = ["--device", "mem:32M", "--one-at-a-time"];
    site.compare(&["ext4", "ext2"], &flags, &[command]).expect(1);
    site.expect_nothing_left();
    let (phase, _, output) = failure(&site.record_of("ext4"));
    assert_eq!(phase, "run");
    assert!(output.contains("No space left on device"), "{output}");
    assert!(completed(&site.record_of("ext2")));
}

#[test]
fn a_process_that_holds_the_mount_is_named_and_ended() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "[ $KURABE_CONTENDER = ext2 ] || setsid sleep 1000 &";
    site.compare(&["ext4", "ext2"], &["--one-at-a-time"], &[command]).expect(1);
    site.expect_nothing_left();
    let record = site.record_of("ext4");
    let (phase, message, _) = failure(&record);
    assert_eq!(phase, "unmount");
    assert!(message.contains("busy") && message.contains("sleep (process "), "{message}");
    let notes = record["notes"].to_string();
    assert!(notes.contains("killed what the command had left running: sleep"), "{notes}");
    assert!(completed(&site.record_of("ext2")), "the next trial is none the worse for it");
}

#[test]
fn a_process_that_outlives_the_command_elsewhere_ends_with_the_trial() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "cd /; sleep 1000 & setsid sleep 1000 &";
    site.compare(&["ext4"], &[], &[command]).expect(0);
    site.expect_nothing_left();
    assert_eq!(site.record_of("ext4")["outlived"], true);
    // One that has ended by the command's end did not outlive it, though nobody waited for it.
    let other = Site::new();
    other.compare(&["ext4"], &[], &["(true &); sleep 0.1"]).expect(0);
    assert_eq!(other.record_of("ext4")["outlived"], Value::Null);
}

#[test]
fn setup_prepare_and_cleanup_run_in_their_order_with_the_environment() {
    if !root() {
        return;
    }
    let site = Site::new();
    let log = site.home().join("log");
    let say = |phase: &str| {
        format!(
            "echo {phase} \"$KURABE_CONTENDER\" $KURABE_TRIAL \"$KURABE_DIR\" \"$PWD\" \"$MINE\" \
             $(ls | grep -v lost+found | tr '\\n' ,) >>{}; touch {phase}",
            log.display()
        )
    };
    let (setup, prepare, cleanup) = (say("setup"), say("prepare"), say("cleanup"));
    let around = ["--setup", &setup, "--prepare", &prepare, "--cleanup", &cleanup];
    let flags = [&around[..], &["--runs", "2", "--one-at-a-time"]].concat();
    let mut command = site.compare_command(&["e: ext4", "ext2"], &flags, &[&say("run")]);
    command.env("MINE", "my own");
    site.finish(command).expect(0);
    let text = fs::read_to_string(log).unwrap();
    let mut lines = text.lines();
    for (number, record) in site.records().iter().enumerate() {
        assert_eq!(record["trial"], number);
        let label = record["contender"]["label"].as_str().unwrap();
        for (phase, there) in [
            // A fresh file system each time, which keeps what the phases before made.
            ("setup", ""),
            ("prepare", "setup,"),
            ("run", "prepare,setup,"),
            ("cleanup", "prepare,run,setup,"),
        ] {
            let line = lines.next().unwrap();
            let start = format!("{phase} {label} {number} ");
            assert!(line.starts_with(&start), "'{line}' is not of '{start}'");
            let rest: Vec<&str> = line[start.len()..].split(' ').collect();
            assert_eq!(rest[0], rest[1], "it runs in KURABE_DIR");
            assert_eq!(rest[2..4].join(" "), "my own");
            assert_eq!(rest.get(4).copied().unwrap_or(""), there);
        }
        let phases = phase_names(record);
        let expected = [
            "mkfs", "mount", "setup", "settle", "prepare", "run", "sync", "cleanup", "unmount",
            "check",
        ];
        assert_eq!(phases, expected);
    }
    assert_eq!(lines.next(), None);
}

/// What the setup wrote is read from the device again, unless warm caches are asked for.
#[test]
fn caches_are_cold_unless_they_are_wanted_warm() {
    if !root() {
        return;
    }
    for (cache, is_cold) in [("cold", true), ("warm", false)] {
        let site = Site::new();
        let flags = ["--setup", "head -c 20000000 /dev/urandom >a", "--cache", cache];
        site.compare(&["ext4"], &flags, &["cat a >/dev/null"]).expect(0);
        let record = site.record_of("ext4");
        // Others drop the caches of this machine too, so that warm ones cannot be told by what was
        // read; what kurabe itself did can.
        let commands = record["commands"].to_string();
        assert_eq!(commands.contains("vm.drop_caches=3"), is_cold, "--cache {cache}: {commands}");
        let read_bytes = phase(&record, "run")["device"]["read_bytes"].as_u64().unwrap();
        assert!(read_bytes >= 20_000_000 || !is_cold, "--cache {cache}: {read_bytes} bytes");
    }
}

#[test]
fn a_setup_that_fails_fails_the_trial() {
    let site = Site::new();
    let place = memory_directory();
    let contender = format!("dir:{}", place.path().display());
    for (flag, phase) in [("--setup", "setup"), ("--prepare", "prepare"), ("--cleanup", "cleanup")]
    {
        let out = format!("of-{phase}");
        let flags = [flag, "echo broken >&2; false", "--out", &out];
        site.compare(&[&contender], &flags, &["true"]).expect(1);
        let text = fs::read_to_string(site.work().join(&out).join("records.jsonl")).unwrap();
        let (failed, message, output) = failure(&serde_json::from_str(&text).unwrap());
        assert_eq!((failed.as_str(), output.as_str()), (phase, "broken"));
        assert!(message.contains(flag), "{message}");
    }
}

#[test]
fn parameters_make_contenders_and_workloads() {
    if !root() {
        return;
    }
    let site = Site::new();
    let flags = ["-L", "block", "1024,4096", "-L", "n", "3,5"];
    site.compare(&["ext4 -b {block}"], &flags, &["echo {n}{n} >file && grep -q {n}{n} file"])
        .expect(0);
    let records = site.records();
    assert_eq!(records.len(), 4);
    for record in records {
        let label = record["contender"]["label"].as_str().unwrap();
        let size = label.strip_prefix("ext4 -b ").unwrap();
        let expected = format!("Block size:               {size}\n");
        assert!(record["geometry"].as_str().unwrap().contains(&expected), "{label}");
    }
    let workloads = site.primary_comparisons();
    let names: Vec<&str> =
        workloads.iter().map(|entry| entry["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo 33 >file && grep -q 33 file", "echo 55 >file && grep -q 55 file"]);
}

/// Two directories under a command that takes thirty times as long in one of them: no noise of the
/// machine makes that inconclusive.
fn gated(flags: &[&str]) -> (Site, Option<i32>) {
    let site = Site::new();
    let place = memory_directory();
    let contenders = two_contenders(place.path());
    let contenders = contenders.each_ref().map(String::as_str);
    let command = "case $KURABE_CONTENDER in a) sleep 0.05;; b) sleep 1.5;; esac";
    let ran = site.compare(&contenders, flags, &[command]);
    (site, ran.code)
}

#[test]
fn gates_decide_the_exit_code() {
    let (site, code) = gated(&["--runs", "4", "--gate", "b <= 3000"]);
    assert_eq!(code, Some(0));
    let comparison = &site.json("comparisons.json")[0];
    assert_eq!(comparison["contender"], "b");
    assert_eq!(comparison["baseline"], "a");
    assert_eq!(comparison["metric"], "time");
    assert_eq!(comparison["verdict"], "slower", "{comparison:#}");
    for name in ["ratio", "low", "high"] {
        assert!(comparison[name].as_f64().unwrap() > 1.0, "{comparison:#}");
    }
    let fails = ["--runs", "4", "--gate", "b <= 3000", "--gate", "b < 1.0"];
    assert_eq!(gated(&fails).1, Some(3));
    // Two blocks have no interval.
    assert_eq!(gated(&["--runs", "2", "--gate", "b <= 3000"]).1, Some(4));
    // A failed trial is said before any gate.
    assert_eq!(gated(&["--timeout", "200ms", "--gate", "b <= 3000"]).1, Some(1));
}

#[test]
fn the_greatest_budget_is_a_bound_on_everything() {
    if !root() {
        return;
    }
    let site = Site::new();
    // Three rounds, which it may be exceeded for, take less.
    let flags = ["--budget", "8s", "--runs", "50"];
    let ran = site.compare(&["ext4", "ext2"], &flags, &["sleep 0.3"]).expect(0);
    site.expect_nothing_left();
    // All 50 runs would take 30 s and more.
    assert!(ran.elapsed < Duration::from_secs(20), "{:?}", ran.elapsed);
    assert!(ran.stderr.contains("the budget of 8s ended the study"), "{}", ran.stderr);
    let records = site.records();
    assert!(records.len() >= 2, "{records:#?}");
    let kinds = records.iter().map(|record| record["outcome"]["kind"].as_str().unwrap());
    for kind in kinds {
        assert!(["completed", "interrupted"].contains(&kind), "{kind}");
    }
    // Another session has the same budget, and does not fill a device for nothing. What passed
    // between the trials is not counted, so that the rest can look long enough for one more.
    let ran = site.run(&["resume", "result"]).expect(0).says(&["the budget of 8s "]);
    assert_eq!(ran.stdout, site.run(&["report", "result"]).expect(0).stdout);
    let has_filled = site.work().join("result/facts-1.json").exists();
    assert_eq!(has_filled, !ran.stderr.contains("; to go on: "), "{}", ran.stderr);

    let other = Site::new();
    let device = other.image_device("2G");
    let flags = ["--budget", "300ms", "--device", &device];
    let ran = other.compare(&["ext4"], &flags, &["true"]).expect(1);
    assert!(ran.elapsed < Duration::from_secs(10), "{:?}", ran.elapsed);
    assert!(ran.stderr.contains("raise --budget"), "{}", ran.stderr);
    other.expect_nothing_left();
}

#[test]
fn where_the_output_of_the_command_goes() {
    let site = Site::new();
    let place = memory_directory();
    let contender = format!("dir:{}", place.path().display());
    let command = "echo to out; echo to err >&2; [ -t 1 ] && echo terminal; true";
    let with = |flags: &[&str]| {
        let _ = fs::remove_dir_all(site.work().join("result"));
        site.compare(&[&contender], flags, &[command]).expect(0)
    };
    let output = |place: &str| with(&["--output", place]);
    for quiet in ["null", "pipe"] {
        let ran = output(quiet);
        let shown = ran.stdout + &ran.stderr;
        assert!(!shown.contains("\nto out") && !shown.contains("\nto err"), "{shown}");
    }
    for shown in [output("inherit").stderr, with(&["--show-output"]).stderr] {
        assert!(shown.contains("\nto out\nto err\n"), "{shown}");
    }
    let file = site.home().join("output");
    output(file.to_str().unwrap());
    assert_eq!(fs::read_to_string(file).unwrap(), "to out\nto err\n");
}

#[test]
fn a_kurabe_that_runs_is_left_alone_by_a_cleaning() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("64M");
    let gate = site.home().join("gate");
    let command = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let running = site.start(site.compare_command(&["ext2"], &["--device", &device], &[&command]));
    wait_until("the command runs", || {
        site.taken().iter().any(|taken| taken.starts_with("process sleep"))
    });
    let before = site.taken();
    let clean = site.run(&["clean"]).expect(0);
    assert!(clean.stdout.contains("left alone: 1 kurabe still running"), "{}", clean.stdout);
    let lasting = |taken: &&String| !taken.starts_with("process");
    let after = site.taken();
    assert_eq!(
        after.iter().filter(lasting).collect::<Vec<_>>(),
        before.iter().filter(lasting).collect::<Vec<_>>()
    );
    // Nor does a second kurabe take anything from the first one.
    let other = ["compare", "dir:/dev/shm", "--runs", "1", "--out", "other", "--", "true"];
    site.run(&other).expect(0);
    fs::write(gate, "").unwrap();
    running.finish().expect(0);
    assert!(completed(&site.record_of("ext2")));
    site.expect_nothing_left();
}

/// Loading the program is no part of a cold run.
#[test]
fn the_workloads_program_is_warm_where_caches_are_cold() {
    if !root() {
        return;
    }
    let site = Site::new();
    let program = site.home().join("program");
    harness::copy_program(harness::KURABE, &program);
    let command = format!("{} --version", program.display());
    for order in ["--one-at-a-time", "--side-by-side"] {
        let flags = [order, "--block-time", "100ms"];
        site.compare(&["a: ext4", "b: ext2"], &flags, &[&command]).expect(0);
        for record in site.records() {
            let size_bytes = fs::metadata(&program).unwrap().len();
            assert!(record["programs_bytes"].as_u64().unwrap() > size_bytes, "{record:#}");
            let read_bytes = record["command"]["storage_read_bytes"].as_u64().unwrap();
            assert!(read_bytes < 1 << 20, "{read_bytes} bytes were read from storage");
        }
        fs::remove_dir_all(site.work().join("result")).unwrap();
    }
}
