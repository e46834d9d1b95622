//! Layers between a device and a contender: file systems live on them, what they promise holds, and
//! nothing of them is left, however the program ends.

mod harness;

use std::fs;

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
    // Each of its five syncs waits for a flush.
    assert!(run_ns(&slow) > 500_000_000, "{slow:#}");
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

#[test]
fn an_image_on_a_file_system_is_a_block_layer_on_this_machine() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("96M");
    let contenders = [
        "cached: ext4 over loop over ext4 -m 1 @ noatime",
        "direct: ext4 over loop direct-io=on over ext4",
    ];
    site.compare(&contenders, &["--device", &device], &["sh", "-c", COMMAND]).expect(0);
    site.expect_nothing_left();
    for (label, dio) in [("cached", "/loop/dio:0"), ("direct", "/loop/dio:1")] {
        let record = site.record_of(label);
        let geometry = record["geometry"].as_str().unwrap();
        assert!(geometry.contains(dio) && geometry.contains("/image\n"), "{geometry}");
        // Of the file system in the image, and of the one on which it lies.
        assert_eq!(geometry.matches("Block count:").count(), 2, "{geometry}");
        assert!(flushes(&record, "run") >= 5, "{record:#}");
        let layer = &record["layers"][0];
        assert!(layer["layer"].as_str().unwrap().starts_with("loop"), "{layer}");
        assert!(layer["device"]["written_bytes"].as_u64().unwrap() >= 4_000_000, "{layer}");
    }
    for (contender, said) in [
        ("luks over ext4", "ext4 over luks over loop over ext4"),
        ("ext4 over loop over xfs", "xfs needs at least 300M"),
        ("ext4 over loop sector-size=/x over ext4", "'sector-size=/x': loop takes direct-io="),
    ] {
        let ran = site.compare(&[contender], &["--device", &device], &["true"]).expect(2);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

/// Whoever is killed, also while requests wait in the layer, nothing hangs and nothing is left.
#[test]
fn whoever_is_killed_nothing_is_left() {
    if !root() {
        return;
    }
    let slow = "delay:write=300ms,flush=300ms";
    let disk = "hdd:7200rpm,write_cache_mib=0";
    for (victim, layer) in [("runner", slow), ("trial", slow), ("server", slow), ("server", disk)] {
        let site = Site::new();
        let device = format!("{layer}+{}", site.image_device("64M"));
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
        assert_ne!(ran.code, Some(0), "{victim} of {layer}");
        if victim == "server" {
            ran.says(&["what serves the layers has ended (signal: 9"]);
        }
        wait_until("its processes are gone", || site.processes().is_empty());
        site.run(&["clean"]).expect(0);
        site.expect_nothing_left();
    }
}

/// Layers over a directory that this machine has, with what `kurabe layers` says.
fn uppers() -> Vec<String> {
    let listed = std::process::Command::new(env!("CARGO_BIN_EXE_kurabe")).arg("layers").output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let above = listed.split("Below a file system").next().unwrap();
    let rows = above.lines().skip(1).filter(|line| !line.starts_with(' '));
    let rows = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    let (ready, missing): (Vec<_>, Vec<_>) = rows.partition(|row| row[1] == "ready");
    for row in missing {
        eprintln!("SKIPPED: {} is missing on this machine", row[0]);
    }
    ready.iter().map(|row| row[0].to_string()).collect()
}

/// What a run writes, so that its text can be looked for.
const KNOWN_TEXT: &str = "kurabe-known-plain-text";

#[test]
fn a_tree_lives_over_every_layer_and_nothing_of_it_is_left() {
    if !root() {
        return;
    }
    for upper in uppers() {
        let site = Site::new();
        let contender = format!("x: {upper} over ext4");
        let study = ["compare", "ext4", &contender, "--device", "mem:256M", "--runs", "1"];
        let tree = ["--tree", "synthetic:40", "--out", "result"];
        let ran = site.run(&[&study[..], &tree].concat());
        ran.expect(0);
        site.expect_nothing_left();
        let (plain, over) = (site.record_of("ext4"), site.record_of("x"));
        assert_eq!(plain["load"]["checks"], over["load"]["checks"], "{upper}");
        assert!(over["mounted_as"] != plain["mounted_as"], "{upper}: {over:#}");
    }
}

#[test]
fn a_file_system_in_user_space_under_a_stack_is_told_its_user_and_its_time() {
    if !root() {
        return;
    }
    if !uppers().contains(&"gocryptfs".to_string()) {
        return;
    }
    let site = Site::new();
    let device = site.image_device("320M");
    let flags = ["--device", &device, "--user", "nobody"];
    let command = ["sh", "-c", "id -un >name; head -c 3000000 /dev/urandom >a; sync"];
    site.compare(&["x: gocryptfs -aessiv over xfs @ noatime"], &flags, &command).expect(0);
    let record = site.record_of("x");
    assert!(record["daemon_cpu_ns"].as_u64().unwrap() > 0, "{record:#}");
    assert_eq!(record["counts_write_bytes"], false, "{record:#}");
    site.expect_nothing_left();
}

#[test]
fn files_of_a_stack_belong_to_the_user_and_unknown_mount_options_are_refused() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = ["sh", "-c", "echo hi >f && chmod 600 f && test -O f && cat f"];
    for upper in uppers() {
        let flags = ["--device", "mem:320M", "--user", "nobody"];
        let stack = format!("x: {upper} over ext4");
        if ["encfs", "mergerfs"].contains(&upper.as_str()) {
            let says = ["does not keep a user's rights and root's apart"];
            site.compare(&[&stack], &flags, &command).expect(2).says(&says);
            continue;
        }
        site.compare(&[&stack], &flags, &command).expect(0);
        fs::remove_dir_all(site.work().join("result")).unwrap();
    }
    // What lies below a layer is not the user's to change: its daemon works there as root.
    let reach = "for at in $(awk '{print $5}' /proc/self/mountinfo); do case $at in $KURABE_DIR) ;; */work/*) \
                 if (cd $at) || (cd $at/bound) || (cd $at/..) && (cd $at/../below); then exit 7; fi;; esac; done 2>/dev/null";
    for stack in ["bindfs over ext4", "bindfs over overlayfs over ext4"] {
        if uppers().contains(&"bindfs".to_string()) {
            let flags = ["--device", "mem:320M", "--user", "nobody"];
            site.compare(&[stack], &flags, &["sh", "-c", reach]).expect(0);
            fs::remove_dir_all(site.work().join("result")).unwrap();
            let words =
                ["compare", stack, "--rounds", "1", "--out", "result", "--tree", "synthetic:20"];
            site.run(&[&words[..], &flags].concat()).expect(0);
            fs::remove_dir_all(site.work().join("result")).unwrap();
        }
    }
    // libfuse would put another directory in the place of the one that is shown.
    let stack = "bindfs @ modules=subdir,subdir=.. over ext4";
    site.compare(&[stack], &[], &command).expect(2).says(&["'modules=subdir'"]);
    site.expect_nothing_left();
}

#[test]
fn what_a_stack_promised_is_looked_for_after_power_failures() {
    if !root() {
        return;
    }
    let uppers = uppers();
    for upper in
        ["overlayfs", "gocryptfs"].into_iter().filter(|one| uppers.contains(&(*one).into()))
    {
        let site = Site::new();
        let check = format!("test ! -s $2 || grep -q {KNOWN_TEXT} $1/a");
        let load = format!("echo {KNOWN_TEXT} >a; sync a .; echo a");
        let contender = format!("{upper} over ext4");
        let mut command = site.kurabe(&["crash", &contender, "--states", "30", "--check", &check]);
        command.args(["--", "sh", "-c", &load]);
        let ran = site.finish(command);
        assert!(ran.stdout.contains("held"), "{}{}", ran.stdout, ran.stderr);
        site.expect_nothing_left();
    }
}

/// What was written to the device is recorded there; overlayfs, which hides nothing, is the canary.
#[test]
fn a_layer_that_encrypts_leaves_no_plain_text_on_the_device() {
    if !root() {
        return;
    }
    let uppers = uppers();
    for upper in ["overlayfs", "gocryptfs", "encfs"] {
        if !uppers.contains(&upper.into()) {
            continue;
        }
        let site = Site::new();
        // What is acknowledged was not synced, so that a state fails and the recording is kept.
        let load = format!("echo {KNOWN_TEXT} >a; sync a .; echo b >b; echo b");
        let contender = format!("{upper} over ext4");
        let check = "test ! -s $2 || test -s $1/b";
        let flags = ["--states", "6", "--out", "cuts", "--check", check];
        let words = [&["crash", &contender], &flags[..], &["--", "sh", "-c", &load]].concat();
        site.run(&words).expect(3);
        let data = site.work().join("cuts/recording-1.data");
        let mut search = std::process::Command::new("grep");
        let found = search.args(["-aqF", KNOWN_TEXT]).arg(data).status().unwrap().code();
        assert_eq!(found, Some(i32::from(upper != "overlayfs")), "{upper}");
    }
}
