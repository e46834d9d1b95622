//! Power cuts: a file system that keeps its word holds, one without barriers does not, a run that can prove nothing
//! says so, and nothing is left.

mod harness;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{Site, root, signal, tool, wait_until};
use rustix::process::Signal;

/// Twenty entries, each acknowledged once fdatasync has returned. The first is there before, so that
/// no entry waits for a directory.
const LOAD: &str = "for i in $(seq 20); do echo $i >>log; sync -d log; echo $i; done";
/// Every acknowledged entry is in the file, in order.
const CHECK: &str = "n=$(wc -l <$2); [ \"$(head -n $n $1/log 2>/dev/null)\" = \"$(cat $2)\" ] || \
                     { echo \"not all of $n\"; exit 1; }";
/// A number that is written over in one file, made durable and acknowledged. Nothing else is written: what is lost is
/// bytes of that file.
const BYTES_LOAD: &str = "for i in $(seq 20); do printf %04096d $i | \
                          dd of=log conv=notrunc,fdatasync status=none; echo $i; done";
/// The number is the last acknowledged one, or a later one.
const BYTES_CHECK: &str =
    "n=$(tail -n 1 $2); [ \"$(sed 's/^0*//;s/^$/0/' $1/log)\" -ge \"${n:-0}\" ]";
const BYTES_SETUP: &str = "printf %04096d 0 >log; sync; sync $(findmnt -no SOURCE -T .)";
/// The device is flushed as well, since a mount without barriers does not do it: what is lost is of the workload.
const SETUP: &str = "touch log; sync; sync $(findmnt -no SOURCE -T .)";

/// A directory holds these files, which only their user can read.
#[track_caller]
fn expect_private(directory: &Path, names: &[&str]) {
    let mut found: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            format!("{} {mode:o}", entry.file_name().display())
        })
        .collect();
    found.sort();
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name} 600")).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn barriers_hold_and_without_them_what_was_acknowledged_is_lost() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = ["ext4", "nb: ext4 @ nobarrier"];
    let flags = ["--size", "64M", "--states", "40", "--seed", "1", "--out", "cuts"];
    let load = ["--setup", SETUP, "--check", CHECK, "--", LOAD];
    let ran = site.run(&[&["crash"], &contenders[..], &flags, &load].concat()).expect(3);
    let line = |label: &str| {
        let found = ran.stdout.lines().find(|line| line.starts_with(label));
        found.unwrap_or_else(|| panic!("{}", ran.stdout)).to_string()
    };
    assert!(line("ext4: ").starts_with("ext4: held: 0 of "), "{}", ran.stdout);
    assert!(ran.stdout.contains("  20 acknowledgements, "), "{}", ran.stdout);
    assert!(line("nb: ").starts_with("nb: violated: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("no flush followed it"), "{}", ran.stdout);
    // ext4 flushes before and after it commits; the first may be left out, the second not.
    assert!(
        ran.stdout.contains(" of them nothing was lost, in a few states each"),
        "{}",
        ran.stdout
    );
    // A case fails again, each time. What mount says of it names places of one trial.
    let placeless = |text: &str| -> String {
        let words =
            text.split_whitespace().map(|word| if word.contains('/') { "PLACE" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let again = || placeless(&site.run(&["crash", "--replay", "cuts:1"]).expect(3).stdout);
    let found = again();
    let (_, case) = ran.stdout.split_once("  case 1: ").unwrap();
    assert_eq!(found, placeless(&format!("nb: case 1: {}", case.lines().next().unwrap())));
    assert_eq!(again(), found);
    // What lay in a file that nobody else could read may be in each of them.
    let names = ["crash.json", "recording-1.data", "recording-2.data", "case-1.img"];
    expect_private(&site.work().join("cuts"), &names);
    let many = site.run(&["crash", "--replay", "cuts:99"]).expect(2);
    assert!(many.stderr.contains("cases"), "{}", many.stderr);
    expect_report(&site, &ran.stdout);
    site.expect_nothing_left();
}

/// The result in `cuts` has a report, with every word that was printed when it was made.
#[track_caller]
fn expect_report(site: &Site, printed: &str) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let report = site.run(&["report", "cuts", "--html", "cuts.html"]).expect(0);
    for line in printed.lines() {
        assert!(words(&report.stdout).contains(&words(line)), "no '{line}' in {}", report.stdout);
    }
    assert!(report.stdout.contains("A disk of 64M in memory, checked by"));
    let page = std::fs::read_to_string(site.work().join("cuts.html")).unwrap();
    assert!(page.contains("nb: violated: ") && page.contains("--replay cuts:1"), "{page}");
    let refused = |words: &[&str], part: &str| {
        let ran = site.run(&[&["report"], words].concat()).expect(2);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    };
    refused(&["cuts", "--gate", "nb <= 1"], "leave out the exports, --gate and --svg");
    refused(&["cuts", "elsewhere"], "is reported alone");
    std::fs::write(site.work().join("cuts/crash.json"), "{\"size_bytes\":").unwrap();
    refused(&["cuts"], "crash.json: EOF while parsing");
}

/// Without a flush, what was acknowledged is there where the disk keeps it without power, and nowhere else.
#[test]
fn what_a_modelled_disk_keeps_without_power_is_kept() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = [
        "plain: ext4 over hdd:7200rpm,write_cache_mib=0",
        "cloud: ext4 over cloud:gp3",
        "cached: ext4 over hdd:7200rpm,destage_idle_ms=60000",
        "flash: ext4 over ssd:nvme",
    ];
    let load = BYTES_LOAD.replace("conv=notrunc,fdatasync", "bs=4096 conv=notrunc oflag=direct");
    let flags = ["--size", "64M", "--states", "16", "--setup", BYTES_SETUP, "--check", BYTES_CHECK];
    let ran = site.run(&[&["crash"], &contenders[..], &flags, &["--", &load]].concat()).expect(3);
    for said in ["plain: held", "cloud: held", "cached: violated", "flash: violated"] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(said)), "{said}: {}", ran.stdout);
    }
    site.expect_nothing_left();
}

#[test]
fn a_failing_state_has_its_cause() {
    if !root() {
        return;
    }
    let site = Site::new();
    let crash = |contenders: &[&str], setup: &str, check: &str, load: &str| {
        let flags = ["--device", "loop:320M", "--states", "48", "--seed", "1", "--setup", setup];
        let load = ["--check", check, "--", load];
        site.run(&[&["crash"], contenders, &flags[..], &load].concat()).expect(3).stdout
    };
    // A rename that nobody synced. Where something else is written, it may be on the disk or not.
    let load = "for i in $(seq 12); do echo $i >new; mv new cfg; echo $i; done; sync -f cfg";
    let check = "[ -z \"$(cat $2)\" ] || [ \"$(cat $1/cfg)\" -ge $(tail -n 1 $2) ]";
    let stdout = crash(&["ext4", "xfs", "btrfs"], "sync", check, load);
    let causes =
        stdout.matches("cause: no flush completed before the last acknowledgement: ").count();
    assert!(causes >= 3, "{stdout}");
    // The first is synced, and every second one after it.
    let load =
        "for i in $(seq 12); do echo $i >>log; [ $((i % 2)) = 0 ] || sync log; echo $i; done";
    let check = "[ $(wc -l <$1/log) -ge $(wc -l <$2) ]";
    let stdout = crash(&["xfs"], "touch log; sync", check, load);
    assert!(stdout.contains("cause: no flush completed between acknowledgement '"), "{stdout}");
    // Another file is synced, and with it the new name, but not the bytes behind it.
    let load = "for i in $(seq 12); do echo $i >f$i; echo $i >>other; sync other; echo $i; done";
    let check = "for i in $(cat $2); do [ \"$(cat $1/f$i)\" = $i ] || exit 1; done";
    let stdout = crash(&["ext4", "xfs"], "touch other; sync", check, load);
    assert!(stdout.contains(" became durable before its data: the file is empty"), "{stdout}");
    site.expect_nothing_left();
}

/// With delayed allocation ext4 records the size in one transaction and marks the blocks as written
/// in a later one.
#[test]
fn an_append_on_ext4_shows_its_size_before_its_bytes() {
    if !root() {
        return;
    }
    let site = Site::new();
    let load = "for i in $(seq 24); do head -c 4096 /dev/zero | tr '\\0' x >>log; [ $((i % 4)) != 0 ] || sync -f log; echo $i; done";
    let check = "[ -z \"$(tr -d x <$1/log | head -c 1 | od -An -c)\" ] || exit 2";
    let flags = ["--device", "mem:128M", "--states", "96", "--setup", "touch log; sync"];
    let load = ["--check", check, "--", load];
    let crash = |seed: &str| {
        site.run(&[&["crash", "ext4", "--seed", seed], &flags[..], &load].concat()).stdout
    };
    // When the kernel commits is not up to the seed.
    let found = ["1", "2", "3", "4", "5"].map(|seed| move || crash(seed));
    let found = found.into_iter().find_map(|one| {
        one()
            .lines()
            .find(|line| line.contains(" became durable before its data: from byte "))
            .map(str::to_string)
    });
    assert!(found.expect("a size before its bytes").contains("on the disk: the size of log ("));
    site.expect_nothing_left();
}

#[test]
fn a_lost_write_has_the_name_of_what_it_held() {
    if !root() {
        return;
    }
    // Nothing but names is written, or nothing but the bytes of one file.
    let names = "for i in $(seq 20); do mkdir d$i; sync .; echo $i; done";
    let are_there = "[ $(ls $1 | grep -c ^d) -ge $(wc -l <$2) ]";
    let site = Site::new();
    for (load, check, name) in [
        (names, are_there, " bytes of the journal, at byte "),
        (BYTES_LOAD, BYTES_CHECK, " of log"),
    ] {
        let flags = ["--size", "64M", "--states", "24", "--seed", "1", "--setup", BYTES_SETUP];
        let load = ["--check", check, "--", load];
        let ran = site.run(&[&["crash", "ext4 @ nobarrier"], &flags[..], &load].concat()).expect(3);
        let lost = ran.stdout.lines().filter(|line| line.starts_with("    lost: "));
        let lost: Vec<&str> = lost.collect();
        assert!(!lost.is_empty() && lost.iter().all(|line| line.contains(name)), "{}", ran.stdout);
    }
    site.expect_nothing_left();
}

#[test]
fn a_recording_for_which_there_is_no_more_room_is_judged_until_then() {
    if !root() {
        return;
    }
    let site = Site::new();
    // More is written than a file may have here, and each line acknowledged.
    let load = "for i in $(seq 60); do echo $i >>log; head -c 1M /dev/urandom >data$i; \
                sync log data$i || exit 1; echo $i; done";
    let flags = ["--size", "128M", "--states", "24", "--seed", "1", "--out", "cuts"];
    let load = ["--setup", SETUP, "--check", CHECK, "--", load];
    let kurabe = site.kurabe(&[&["crash", "ext4: ext4 -b 1024"], &flags[..], &load].concat());
    let mut bounded = site.program("sh");
    bounded.args(["-c", "ulimit -f 49152; exec \"$@\"", "sh"]);
    bounded.arg(kurabe.get_program()).args(kurabe.get_args());
    let ran = site.finish(bounded).expect(0);
    assert!(ran.stdout.starts_with("ext4: held: 0 of 24 "), "{}", ran.stdout);
    assert!(ran.stdout.contains("note: the recording was full after "), "{}", ran.stdout);
    site.expect_nothing_left();
}

#[test]
fn a_study_has_the_verdict_beside_its_times() {
    if !root() {
        return;
    }
    let site = Site::new();
    let compare =
        |durability: &str, check: &str, out: &str, contenders: &[&str], gates: &[&str]| {
            let flags = ["--device", "mem:64M", "--runs", "1", "--idle-wait", "1s", "--out", out];
            let load = ["--setup", BYTES_SETUP, "--check", check, durability, "--", BYTES_LOAD];
            site.run(&[&["compare"], contenders, &flags, gates, &load].concat())
        };
    let contenders = ["ext4", "nb: ext4 @ nobarrier"];
    let gates = ["--gate", "ext4: durable", "--gate", "nb: durable"];
    let ran = compare("--durability=24", BYTES_CHECK, "judged", &contenders, &gates).expect(3);
    assert!(ran.stdout.contains("durability held (24 of 24)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("durability violated ("), "{}", ran.stdout);
    assert!(ran.stdout.contains("'nb: durable'"), "{}", ran.stdout);
    // The timed trials stand as before, and nothing is left to do.
    let lines = std::fs::read_to_string(site.work().join("judged/records.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    // The recording of the violated one is kept, with the disk of a case that is tried again.
    let kept = std::fs::read_dir(site.work().join("judged")).unwrap().flatten();
    let kept = kept.map(|entry| entry.file_name().into_string().unwrap());
    let kept: Vec<String> = kept.filter(|name| name.starts_with("power-cuts-")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let case = format!("judged/{}:1", kept[0]);
    let replayed = site.run(&["crash", "--replay", &case]).expect(3);
    assert!(replayed.stdout.starts_with("nb: case 1: lost"), "{}", replayed.stdout);
    assert!(replayed.stderr.contains("mount -t ext4 -o loop,nobarrier"), "{}", replayed.stderr);
    let image = site.work().join("judged").join(&kept[0]).join("case-1.img");
    assert_eq!(image.metadata().unwrap().len(), 64 << 20);
    let kept = image.parent().unwrap();
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    expect_private(kept, &["crash.json", "recording-1.data", "case-1.img"]);
    let again = site.run(&["resume", "judged"]);
    assert!(again.stderr.contains("nothing is left to do"), "{}", again.stderr);
    // A session that was ended while it cut leaves the rest to the next, and so does a budget.
    let records = site.work().join("judged/records.jsonl");
    let timed: Vec<&str> = lines.lines().filter(|line| !line.contains("power_cuts\":{")).collect();
    assert_eq!(timed.len(), 2, "{lines}");
    std::fs::write(&records, timed.join("\n") + "\n").unwrap();
    let resumed = site.run(&["resume", "judged"]);
    assert!(resumed.stdout.contains("durability violated ("), "{}", resumed.stdout);
    site.run(&["crash", "--replay", &case]).expect(3);
    let budget = ["--budget", "15s", "--runs", "200", "--device", "mem:64M", "--idle-wait", "1s"];
    let load =
        ["--check", BYTES_CHECK, "--setup", BYTES_SETUP, "--durability=24", "--", BYTES_LOAD];
    let words = [&["compare", "ext4", "--out", "bounded"], &budget[..], &load].concat();
    let bounded = site.run(&words).expect(0);
    assert!(bounded.stdout.contains("durability held ("), "{}", bounded.stdout);
    assert!(bounded.stderr.contains("the budget of 15s ended the study"), "{}", bounded.stderr);
    // A check that sees no loss proves nothing, and says why.
    let gates = ["--gate", "ext4: durable"];
    let blind = compare("--durability=8", "true", "blind", &["ext4"], &gates).expect(4);
    assert!(blind.stdout.contains("durability not tried"), "{}", blind.stdout);
    site.expect_nothing_left();
}

#[test]
fn a_workload_of_kurabes_own_knows_what_it_made_durable() {
    if !root() {
        return;
    }
    let site = Site::new();
    let program = "Command { 12.times { New(20K); }; 3.times { Delete; }; 4.times { New(3K); }; }";
    std::fs::write(site.work().join("put.obj"), program).unwrap();
    let contenders = ["ext4", "nb: ext4 @ nobarrier", "minfs", "raw"];
    for store in ["lump", "cannyls", "files"] {
        // Files need a file system.
        let contenders = &contenders[..if store == "files" { 2 } else { 4 }];
        let flags = ["--device", "mem:64M", "--runs", "1", "--idle-wait", "1s", "--out", store];
        // In one state of thousands CannyLS cannot be opened (docs/durability.md).
        let flags = [&flags[..], &["--seed", "1"]].concat();
        let mut load = vec!["--durability=16", "--objects", "put.obj", "--sync-puts"];
        // lump as a layer, the others by the shorthand.
        let stacks: Vec<&str> = if store == "lump" {
            vec![
                "lump over ext4",
                "nb: lump over ext4 @ nobarrier",
                "lump over minfs",
                "lump over raw",
            ]
        } else {
            load.extend(["--store", store]);
            contenders.to_vec()
        };
        let gates: Vec<String> = stacks
            .iter()
            .map(|one| format!("{}: durable", one.split(':').next().unwrap()))
            .collect();
        let gates: Vec<&str> = gates.iter().flat_map(|gate| ["--gate", gate]).collect();
        let ran = site.run(&[&["compare"], &stacks[..], &flags, &gates, &load].concat()).expect(3);
        let held = ran.stdout.matches("PASS '").count();
        assert_eq!(held, contenders.len() - 1, "{store}: {}", ran.stdout);
        assert!(ran.stdout.contains("durability violated ("), "{store}: {}", ran.stdout);
    }
    let flags = ["--device", "mem:64M", "--runs", "1", "--idle-wait", "1s", "--out", "tree"];
    let gates = ["--gate", "ext4: durable", "--gate", "nb: durable"];
    let load = ["--durability=24", "--tree", "synthetic:60"];
    let ran = site.run(&[&["compare"], &contenders[..2], &flags, &gates, &load].concat()).expect(3);
    assert!(ran.stdout.contains("PASS 'ext4: durable' (tree synthetic:60)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("durability violated ("), "{}", ran.stdout);
    // Nobody is told which of dbench's flushes has returned.
    for load in ["--dbench=1", "--fio=rw=write bs=4k size=1m"] {
        let refused = site.run(&["compare", "ext4", "--durability", load]).expect(2);
        assert!(refused.stderr.contains("does not say what it has made"), "{}", refused.stderr);
    }
    let shared = "rw=write bs=4k size=1m verify=crc32c end_fsync=1 numjobs=2";
    let refused = site.run(&["compare", "raw", "--durability", "--fio", shared]).expect(2);
    assert!(refused.stderr.contains("the one raw device"), "{}", refused.stderr);
    site.expect_nothing_left();
}

/// The recording of a result may be somebody else's, who put a link or a device node where the workload's file lies.
#[test]
fn a_stored_state_is_looked_at_without_leaving_it() {
    if !root() {
        return;
    }
    let site = Site::new();
    let ran = ["crash", "nb: ext4 @ nobarrier", "--size", "64M", "--states", "40", "--seed", "1"];
    let load = ["--out", "cuts", "--setup", SETUP, "--check", CHECK, "--", LOAD];
    site.run(&[&ran[..], &load].concat()).expect(3);
    let path = site.work().join("cuts/crash.json");
    let mut result: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    result["asked"] = serde_json::json!({ "own-load": { "order_seed": 1, "load": {
        "kind": "objects", "path": "/x", "program": "", "store": "redb", "scale": 1.0,
        "verify": false, "block_size_bytes": 512, "sync_puts": true,
    } } });
    let sectors = (64 << 20) / 512;
    let judged = &mut result["contenders"][0];
    judged["seal"] = serde_json::Value::Null;
    let report = &mut judged["outcome"]["Ok"];
    report["log"] = serde_json::json!({
        "sectors": sectors, "data_sectors": sectors, "end": 3,
        "requests": [{
            "operation": "write", "sector": 0, "sectors": sectors, "data_sector": 0,
            "arrived": 1, "replied": 2, "arrived_ns": 1, "replied_ns": 2,
        }],
        "acknowledgements": [{ "instant": 3, "received_ns": 3, "text": "made" }],
    });
    report["cases"][0]["state"] =
        serde_json::json!({ "instant": 3, "lost": [], "acknowledged": 1 });
    let elsewhere = site.work().join("elsewhere");
    // What lies where, for which layer.
    let mut cases = vec![
        ("ext4", "objects.redb", "file", "case 1: unusable: "),
        ("overlayfs", "upper", "", "case 1: cannot be mounted: "),
    ];
    let more = [("bindfs", "bound"), ("gocryptfs", "encrypted"), ("mergerfs", "branch-1")];
    let is_there = |(name, _): &(&str, &str)| tool(name).is_some();
    let more = more.into_iter().filter(is_there);
    cases.extend(more.map(|(name, link)| (name, link, "", "case 1: cannot be mounted: ")));
    for (layer, link, target, finding) in cases {
        let (tree, image) = (site.work().join(layer), site.work().join("image"));
        for directory in [&tree, &elsewhere, &tree.join("lower"), &tree.join("work")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.join(target), tree.join(link)).unwrap();
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let mut mkfs = std::process::Command::new("mkfs.ext4");
        assert!(mkfs.args(["-q", "-F", "-d"]).args([&tree, &image]).status().unwrap().success());
        let layers = if layer == "ext4" { vec!["ext4"] } else { vec![layer, "ext4"] };
        result["contenders"][0]["contender"] = serde_json::json!({
            "label": "it", "above": layers.len() - 1,
            "layers": layers.iter().map(|name| serde_json::json!({ "name": name })).collect::<Vec<_>>(),
        });
        std::fs::write(&path, result.to_string()).unwrap();
        std::fs::copy(&image, site.work().join("cuts/recording-1.data")).unwrap();
        let replayed = site.run(&["crash", "--replay", "cuts:1"]).expect(3);
        assert!(replayed.stdout.contains(finding), "{layer}: {}", replayed.stdout);
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{layer}");
    }
    site.expect_nothing_left();
}

#[test]
fn a_commit_of_sqlite_is_there_after_a_power_cut_if_its_settings_say_so() {
    if !root() {
        return;
    }
    let settings = [
        ("journal=wal synchronous=full", true),
        // Only then the removal of the journal, which is the commit, is made durable.
        ("journal=delete synchronous=extra batch=3", true),
        ("journal=delete synchronous=full batch=3", false),
        ("journal=wal synchronous=normal", false),
        ("journal=delete synchronous=off", false),
    ];
    for (text, is_kept) in settings {
        let site = Site::new();
        let load = format!("{text} rows=100 transactions=40 mix=1:1:1");
        let flags = ["--device", "mem:64M", "--runs", "1", "--idle-wait", "1s", "--seed", "1"];
        // A loss has to be found, and on a busy machine fewer states have one.
        let states = if is_kept { "--durability=24" } else { "--durability=72" };
        let load = [states, "--gate", "ext4: durable", "--sqlite", &load];
        let ran = site.run(&[&["compare", "ext4"], &flags[..], &load].concat());
        let (code, verdict) = if is_kept { (0, "held (24 of 24)") } else { (3, "violated (") };
        let ran = ran.expect(code);
        assert!(ran.stdout.contains(&format!("durability {verdict}")), "{text}: {}", ran.stdout);
        site.expect_nothing_left();
    }
}

#[test]
fn a_commit_of_a_database_is_there_after_a_power_cut_if_its_settings_say_so() {
    let postgres = ["--pgbench", "2 scale=1", "--postgres"];
    let mariadb = ["--sysbench", "2 rows=1000", "--mariadb"];
    let cases = [
        (harness::postgresql(), &postgres[..], "fsync=on", true),
        (harness::postgresql(), &postgres, "synchronous_commit=off", false),
        (tool("mariadbd").is_some(), &mariadb, "innodb_flush_log_at_trx_commit=1", true),
        (tool("mariadbd").is_some(), &mariadb, "innodb_flush_log_at_trx_commit=0", false),
        (tool("redis-server").is_some(), &["--redis"], "2 keys=1000 appendfsync=always", true),
        (tool("redis-server").is_some(), &["--redis"], "2 keys=1000 appendfsync=everysec", false),
        (tool("db_bench").is_some(), &["--rocksdb"], "overwrite keys=1000 sync=1", true),
        (tool("db_bench").is_some(), &["--rocksdb"], "overwrite keys=1000 sync=0", false),
    ];
    for (is_there, flags, text, is_kept) in cases {
        if !root() || !is_there {
            continue;
        }
        let site = Site::new();
        let device = ["--device", "mem:512M", "--runs", "1", "--idle-wait", "1s", "--seed", "1"];
        // Each state takes the start of a server; a loss has to be found.
        let states = if is_kept { "--durability=8" } else { "--durability=12" };
        let load = [flags, &[text, "--time", "2s", states, "--gate", "ext4: durable"]].concat();
        let ran = site.run(&[&["compare", "ext4"], &device[..], &load].concat());
        let (code, verdict) = if is_kept { (0, "held (8 of 8)") } else { (3, "violated (") };
        let ran = ran.expect(code);
        assert!(ran.stdout.contains(&format!("durability {verdict}")), "{text}: {}", ran.stdout);
        site.expect_nothing_left();
    }
}

#[test]
fn the_installed_fio_and_the_replay_of_dbench_know_what_they_made_durable() {
    if !root() {
        return;
    }
    let fio = ["--fio", "rw=randwrite bs=4k size=1m verify=crc32c fsync=32"];
    let dbench = ["--dbench-replay", "1", "--time", "1s"];
    for load in [&fio[..], &dbench] {
        let site = Site::new();
        let contenders = ["ext4", "nb: ext4 @ nobarrier"];
        let gates = ["--gate", "ext4: durable", "--gate", "nb: durable"];
        let device = if load == fio { "mem:64M" } else { "mem:256M" };
        let flags = [
            "--device",
            device,
            "--runs",
            "1",
            "--idle-wait",
            "1s",
            "--durability=24",
            "--seed",
            "1",
        ];
        let words = [&["compare"], &contenders[..], &flags, &gates, load].concat();
        let ran = site.run(&words).expect(3);
        assert!(ran.stdout.contains("durability held ("), "{}", ran.stdout);
        assert!(ran.stdout.contains("durability violated ("), "{}", ran.stdout);
        site.expect_nothing_left();
    }
}

#[test]
fn a_file_system_that_fsck_mends_has_lost_nothing() {
    if !root() {
        return;
    }
    // The checksum of the superblock, once it is on the disk; the copies of it stay. With blocks of 4 KiB, ext4 has none
    // on 64 MiB.
    let contenders = [("ext4: ext4 -b 1024", "64M", "511"), ("btrfs: btrfs", "256M", "16384")];
    for (file_system, size, place) in contenders {
        let site = Site::new();
        let load = format!(
            "echo 1 >log; sync; node=$(findmnt -no SOURCE -T .); sleep 0.2; \
             head -c 4 /dev/zero | dd of=$node bs=4 seek={place} conv=notrunc,fsync status=none; echo 1"
        );
        let check = "[ ! -s $2 ] || [ \"$(cat $1/log)\" = 1 ]";
        let flags = ["--size", size, "--states", "8", "--seed", "1", "--out", "cuts"];
        let load = ["--check", check, "--", &load];
        let ran = site.run(&[&["crash", file_system], &flags[..], &load].concat()).expect(0);
        let held = format!("{}: held: 0 of ", file_system.split(':').next().unwrap());
        assert!(ran.stdout.starts_with(&held), "{}", ran.stdout);
        assert!(ran.stdout.contains("mounted after fsck only"), "{}", ran.stdout);
        assert!(ran.stdout.contains("case 1: is mounted after fsck only"), "{}", ran.stdout);
        site.expect_nothing_left();
    }
}

#[test]
fn promises_are_kept_or_broken_as_the_device_lets_them() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = ["ext4", "nb: ext4 @ nobarrier"];
    let flags = ["--size", "64M", "--states", "24", "--seed", "1"];
    let only = ["--only", "overwrite-sector", "--only", "sync-file-range"];
    let ran = site.run(&[&["promises"], &contenders[..], &flags, &only].concat()).expect(3);
    let row = |name: &str| {
        let found = ran.stdout.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{}", ran.stdout)).to_string()
    };
    let (fdatasync, range) = (row("overwrite-sector "), row("sync-file-range "));
    assert!(fdatasync.contains("yes    kept (24 of 24)"), "{fdatasync}");
    assert_eq!(fdatasync.matches("broken").count(), 1, "{fdatasync}");
    // Which writes and flushes nothing, as its manual says.
    assert_eq!(range.matches("broken").count(), 2, "{range}");
    // What POSIX does not promise fails nothing.
    let range = ["--only", "sync-file-range", "--states", "12", "--size", "64M"];
    site.run(&[&["promises", "ext4"], &range[..]].concat()).expect(0);
    site.run(&["promises", "ext4", "--only", "create-fsync"]).expect(2);
    site.expect_nothing_left();
}

/// Whatever bytes they are; what the workload wrote last counts without a line break too.
#[test]
fn acknowledgements_are_bytes() {
    if !root() {
        return;
    }
    let site = Site::new();
    let seen = site.home().join("seen");
    let load = "echo x >f; sync; printf 'a\\377b \\n'; printf '\\303\\251\\n'; printf last";
    let check = format!("cat $2 >>{}; echo ... >>{0}", seen.display());
    let flags = ["--size", "64M", "--states", "12", "--seed", "1", "--out", "cuts"];
    let load = ["--check", &check, "--", load];
    let ran = site.run(&[&["crash", "ext4"], &flags[..], &load].concat()).expect(4);
    assert!(ran.stdout.contains("  3 acknowledgements"), "{}", ran.stdout);
    let seen = std::fs::read(seen).unwrap();
    let all = b"a\xffb \n\xc3\xa9\nlast\n...\n";
    assert!(seen.windows(all.len()).any(|bytes| bytes == all), "{}", seen.escape_ascii());
    // By the command, words that are no text either.
    let mut ack = site.kurabe(&["ack", "a"]);
    ack.arg(std::ffi::OsStr::from_bytes(b"\xfe")).env("KURABE_ACK", site.home().join("ack"));
    std::fs::write(site.home().join("ack"), "").unwrap();
    site.finish(ack).expect(0);
    assert_eq!(std::fs::read(site.home().join("ack")).unwrap(), b"a \xfe\n");
    let mut ack = site.kurabe(&["ack", "a\nb"]);
    ack.env("KURABE_ACK", site.home().join("ack"));
    site.finish(ack).expect(2).says(&["line break"]);
    site.expect_nothing_left();
}

#[test]
fn what_proves_nothing_is_said() {
    if !root() {
        return;
    }
    let site = Site::new();
    let crash = |check: &str, load: &str, out: &str| {
        let flags = ["--size", "64M", "--states", "6", "--out", out, "--check", check, "--", load];
        site.run(&[&["crash", "ext4"], &flags[..]].concat())
    };
    let blind = crash("true", LOAD, "blind").expect(4);
    assert!(blind.stdout.starts_with("ext4: inconclusive: "), "{}", blind.stdout);
    let silent = crash("true", "echo a >b", "silent").expect(2);
    assert!(silent.stdout.contains("acknowledged nothing"), "{}", silent.stdout);
    let wrong = crash("exit 1", "echo a", "wrong").expect(2);
    assert!(wrong.stdout.contains("fails before any power cut"), "{}", wrong.stdout);
    // It holds of what the workload leaves, and would blame every cut before the file was there.
    let early = crash("test -e $1/b", "echo a >b; sync b; echo a", "early").expect(2);
    assert!(early.stdout.contains("on what the setup left"), "{}", early.stdout);
    let unknown = crash("exit 9", "echo a", "unknown").expect(1);
    assert!(unknown.stdout.contains("exited with code 9"), "{}", unknown.stdout);
    for refused in ["silent", "wrong", "early", "unknown"] {
        assert!(!site.work().join(refused).exists(), "{refused} has nothing to try again");
    }
    // A loss is told before what could not be tried.
    let contenders = ["nb: ext4 @ nobarrier", "b: ext4 @ bogus"];
    let flags = ["--size", "64M", "--states", "20", "--seed", "1", "--out", "both"];
    let load = ["--setup", SETUP, "--check", CHECK, "--", LOAD];
    let both = site.run(&[&["crash"], &contenders[..], &flags, &load].concat()).expect(3);
    assert!(both.stdout.contains("b: could not be checked"), "{}", both.stdout);
    site.expect_nothing_left();
}

#[test]
fn states_are_tried_side_by_side_and_checks_one_by_one_in_one_place() {
    if !root() {
        return;
    }
    let site = Site::new();
    let (lock, places) = (site.home().join("lock"), site.home().join("places"));
    let check = format!(
        "mkdir {0} || exit 9; sleep 0.01; echo $1 >>{1}; rmdir {0}; {CHECK}",
        lock.display(),
        places.display()
    );
    // The copies of an XFS have the same UUID.
    let flags = ["--size", "320M", "--states", "40", "--seed", "1", "--out", "cuts"];
    let load = ["--setup", SETUP, "--check", &check, "--", LOAD];
    let ran = site.run(&[&["crash", "xfs"], &flags[..], &load].concat()).expect(0);
    assert!(ran.stdout.starts_with("xfs: held: 0 of 40 "), "{}", ran.stdout);
    let places = std::fs::read_to_string(places).unwrap();
    assert!(places.lines().count() > 50, "{places}");
    let place = places.lines().next().unwrap();
    assert!(places.lines().all(|other| other == place), "{places}");
    site.expect_nothing_left();
}

#[test]
fn a_killed_one_leaves_nothing() {
    if !root() {
        return;
    }
    let site = Site::new();
    let begun = site.home().join("begun");
    let load = format!("touch {}; echo a; sleep 60", begun.display());
    let words = ["crash", "ext4", "--size", "64M", "--out", "cuts", "--check", "true", "--", &load];
    let kurabe = site.start(site.kurabe(&words));
    wait_until("the load runs", || begun.exists());
    signal(kurabe.number(), Signal::KILL);
    kurabe.reap();
    wait_until("its processes are gone", || site.processes().is_empty());
    site.run(&["clean"]).expect(0);
    site.expect_nothing_left();
}

#[test]
fn bad_input_is_refused_and_names_the_place() {
    let site = Site::new();
    let refused = |words: &[&str], part: &str| {
        let ran = site.run(&[&["crash"], words].concat()).expect(2);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    };
    refused(&["ext4", "--", "true"], "--check: is missing");
    refused(&["ext4", "--check", "true"], "COMMAND: is missing");
    refused(&["dir:/tmp", "--check", "true", "--", "true"], "cannot be recorded");
    refused(&["tmpfs", "--check", "true", "--", "true"], "in memory alone");
    refused(&["raw", "--check", "true", "--", "true"], "runs its workload in a directory");
    let of_store = ["lump over ext4", "--check", "true", "--", "true"];
    refused(&of_store, "does not run on the store 'lump'");
    refused(&["ext4", "ext4", "--check", "true", "--", "true"], "label is there twice");
    refused(&["ext4", "--size", "3M", "--check", "true", "--", "true"], "--size");
    refused(&["--replay", "nowhere"], "RESULT:CASE");
    let ack = site.run(&["ack", "a"]).expect(2);
    assert!(ack.stderr.contains("KURABE_ACK: is not set"), "{}", ack.stderr);
    site.expect_nothing_left();
}

/// Shards try the states that one run tries, between them, and find what it finds.
#[test]
fn shards_try_exactly_the_states_of_the_whole_and_their_cases_are_the_same() {
    if !root() {
        return;
    }
    let site = Site::new();
    let flags =
        ["--size", "64M", "--states", "40", "--seed", "1", "--shards", "3", "--out", "parts"];
    let load = ["--setup", SETUP, "--check", CHECK, "--", LOAD];
    let contenders = ["ext4", "nb: ext4 @ nobarrier"];
    let ran = site.run(&[&["crash"], &contenders[..], &flags, &load].concat()).expect(0);
    assert!(ran.stdout.contains("3 shards of 40 states"), "{}", ran.stdout);
    // The same recording, whose states are all in one shard.
    let parts = site.work().join("parts");
    let whole = site.work().join("whole");
    let whole_path = whole.clone();
    std::fs::create_dir(&whole).unwrap();
    for name in ["recording-1.data", "recording-2.data"] {
        std::fs::copy(parts.join("1").join(name), whole.join(name)).unwrap();
    }
    let text = std::fs::read_to_string(parts.join("1/crash.json")).unwrap();
    let mut one: serde_json::Value = serde_json::from_str(&text).unwrap();
    one["shard"]["of"] = 1.into();
    std::fs::write(whole.join("crash.json"), one.to_string()).unwrap();
    site.run(&["run", "whole"]).expect(0);

    site.run(&["merge", "parts/1", "parts/2", "--out", "none"])
        .expect(2)
        .says(&["none of the shards has been tried"]);
    // One is killed, and tried from the beginning.
    let running = site.start(site.kurabe(&["run", "parts/2"]));
    std::thread::sleep(std::time::Duration::from_millis(400));
    signal(running.number(), Signal::KILL);
    running.finish();
    for shard in ["parts/1", "parts/2"] {
        site.run(&["run", shard]).expect(0);
    }
    let part = site.run(&["merge", "parts/1", "parts/2", "parts/3", "--out", "part"]).expect(1);
    assert!(part.stderr.contains("shard 3 has not been tried: kurabe run parts/3"));
    site.run(&["run", "parts/3"]).expect(0);
    site.run(&["run", "parts/3"]).expect(0).says(&["every state has been tried"]);
    let merged = ["merge", "parts/2", "parts/3", "parts/1", "--out", "merged"];
    let merged = site.run(&merged).expect(3);
    assert!(merged.stdout.contains("nb: violated"), "{}", merged.stdout);
    site.expect_nothing_left();

    let of = |name: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(site.work().join(name).join("crash.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (merged, whole) = (of("merged"), of("whole"));
    for contender in 0..2 {
        let report =
            |result: &serde_json::Value| result["contenders"][contender]["outcome"]["Ok"].clone();
        let (merged, whole) = (report(&merged), report(&whole));
        for same in ["states", "control", "timeline"] {
            assert_eq!(merged[same], whole[same], "{same} of contender {contender}");
        }
        let cases = |report: &serde_json::Value| -> Vec<(u64, serde_json::Value)> {
            let cases = report["cases"].as_array().unwrap().iter();
            cases.map(|case| (case["place"].as_u64().unwrap(), case["state"].clone())).collect()
        };
        assert_eq!(cases(&merged), cases(&whole));
        assert_eq!(cases(&merged).is_empty(), contender == 0);
    }
    // A merged result is one like any other.
    site.run(&["crash", "--replay", "merged:1"]).expect(3);
    let report = site.run(&["report", "merged"]).expect(0);
    assert!(report.stdout.contains("nb after a power failure"), "{}", report.stdout);
    site.run(&["merge", "merged", "--out", "again"]).expect(2).says(&["is no shard"]);
    site.run(&["merge", "parts/1", "parts/1", "--out", "again"])
        .expect(2)
        .says(&["is shard 1, as"]);
    site.run(&["run", "merged"]).expect(2).says(&["is a result and no shard"]);
    // A recording that was cut off on its way is not the file system's loss.
    let cut = site.work().join("cut");
    std::fs::create_dir(&cut).unwrap();
    for name in ["recording-1.data", "recording-2.data", "crash.json"] {
        std::fs::copy(parts.join("2").join(name), cut.join(name)).unwrap();
    }
    let data = std::fs::File::options().write(true).open(cut.join("recording-1.data")).unwrap();
    data.set_len(100_000).unwrap();
    let says = ["the recording of ext4 is not the one that was made"];
    site.run(&["merge", "parts/1", "cut", "--out", "again"]).expect(2).says(&says);
    // Numbers that no division makes.
    let changed = |change: &dyn Fn(&mut serde_json::Value), says: &str| {
        let mut shard = of("parts/1");
        change(&mut shard);
        std::fs::write(whole_path.join("crash.json"), shard.to_string()).unwrap();
        site.run(&["merge", "whole", "--out", "again"]).expect(2).says(&[says]);
        assert!(!site.work().join("again").exists());
    };
    changed(&|shard| shard["shard"]["of"] = u32::MAX.into(), "at most 10000");
    changed(&|shard| shard["shard"]["number"] = 0.into(), "is shard 0 of 3");
    changed(
        &|shard| shard["shard"]["states"] = (1_u64 << 63).into(),
        "states, and there are at most",
    );
    let unread = serde_json::json!({ "Err": "x" });
    changed(
        &|shard| shard["contenders"][0]["outcome"] = unread.clone(),
        "has a contender that was not",
    );
}
