//! Every workload through the command line, small: what it records, what is refused before anything is
//! touched, what becomes of a tool that dies.

mod harness;

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{KURABE, Ran, Site, phase, root, signal, tool, wait_until, written_bytes};
use serde_json::Value;

/// `kurabe compare` of a workload that is no command.
fn workload_command(site: &Site, contenders: &[&str], flags: &[&str]) -> Command {
    site.compare_command(contenders, flags, &[])
}

fn compare(site: &Site, contenders: &[&str], flags: &[&str]) -> Ran {
    site.finish(workload_command(site, contenders, flags))
}

/// What a completed record says of its workload.
#[track_caller]
fn workload_of(record: &Value) -> &Value {
    assert_eq!(record["outcome"]["kind"], "completed", "{}", record["outcome"]);
    &record["load"]
}

#[track_caller]
fn latency<'a>(load: &'a Value, operation: &str) -> &'a Value {
    let latencies = load["latencies"].as_array().expect("it records latencies");
    let found = latencies.iter().find(|latency| latency["operation"] == operation);
    found.unwrap_or_else(|| panic!("no '{operation}' in {latencies:#?}"))
}

/// How many turns a trial had.
fn slices_of(record: &Value) -> u64 {
    record["slices"].as_array().map_or(0, Vec::len) as u64
}

fn metric_names(load: &Value) -> Vec<&str> {
    let metrics = load["metrics"].as_array().expect("it has figures");
    assert!(metrics.iter().all(|metric| metric["value"].as_f64().unwrap() > 0.0), "{metrics:#?}");
    metrics.iter().map(|metric| metric["name"].as_str().unwrap()).collect()
}

/// Puts, gets, overwrites and deletes a few megabytes.
const PROGRAM: &str =
    "Seed: 3; Command { 40.times { New(64K); Get; }; 10.times { OverWrite(20K); Delete; }; }";

#[test]
fn stores_are_contenders() {
    if !root() {
        return;
    }
    let site = Site::new();
    fs::write(site.work().join("p.obj"), PROGRAM).unwrap();
    let stacks = ["cannyls over ext4", "lump over ext4", "cannyls over raw", "lump over raw"];
    let flags = ["--objects", "p.obj", "--verify", "--rounds", "3"];
    let ran = compare(&site, &stacks, &flags).expect(0);
    assert!(ran.stdout.contains("Relative to cannyls, lump costs "), "{}", ran.stdout);
    site.expect_nothing_left();
    for record in site.records() {
        let store = record["contender"]["store"].as_str().expect("it has a store of its own");
        assert_eq!(workload_of(&record)["details"]["store"], store, "{record}");
        let label = record["contender"]["label"].as_str().unwrap();
        assert!(label.starts_with(store), "{label}");
    }

    let refused = |contenders: &[&str], flags: &[&str], command: &[&str], words: &str| {
        let site = Site::new();
        fs::write(site.work().join("p.obj"), PROGRAM).unwrap();
        let ran = site.finish(site.compare_command(contenders, flags, command)).expect(2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    };
    refused(&["redb over raw", "ext4"], &["--objects", "p.obj"], &[], "as in 'redb over ext4'");
    refused(&["lump over ext4", "ext4"], &[], &["true"], "'true' does not run on a store");
}

#[test]
fn every_store_does_the_same_work_with_and_without_syncs() {
    if !root() {
        return;
    }
    let layers = Site::new().run(&["layers"]).expect(0).stdout;
    let (_, stores) = layers.split_once("\nStores,").expect("the stores are listed");
    let words = stores.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let contenders: Vec<String> = words
        .filter(|words| words.get(1) == Some(&"ready"))
        .map(|words| match words[0] {
            "sequential" => "sequential over raw".into(),
            store => format!("{store} over ext4"),
        })
        .collect();
    let contenders: Vec<&str> = contenders.iter().map(String::as_str).collect();
    assert!(contenders.len() >= 5, "{layers}");
    let program =
        "Seed: 3; Command { 20.times { New(20K); Get; }; 5.times { OverWrite(3K); Delete; }; }";
    for synced in [false, true] {
        let site = Site::new();
        fs::write(site.work().join("p.obj"), program).unwrap();
        let mut flags = vec!["--objects", "p.obj", "--one-at-a-time", "--device", "mem:96M"];
        flags.extend(synced.then_some("--sync-puts"));
        compare(&site, &contenders, &flags).expect(0);
        site.expect_nothing_left();
        let records = site.records();
        assert_eq!(records.len(), contenders.len());
        for record in &records {
            let load = workload_of(record);
            assert_eq!(latency(load, "Put(20480)")["count"], 20);
            assert_eq!(latency(load, "Delete")["count"], 5);
            let store = load["details"]["store"].as_str().unwrap();
            if ["null", "sequential"].contains(&store) {
                continue;
            }
            let check = &record["checks"][0];
            assert_eq!((&check["tried"], &check["violated"]), (&25.into(), &0.into()), "{store}");
            // 25 puts and 5 deletes.
            let flushes = phase(record, "run")["device"]["flushes"].as_u64().unwrap();
            assert_eq!(flushes >= 30, synced, "{store}: {flushes} flushes");
        }
    }
    if contenders.contains(&"rocksdb over ext4") {
        let site = Site::new();
        fs::write(site.work().join("p.obj"), program).unwrap();
        let ran = compare(&site, &["rocksdb over ext4"], &["--objects", "p.obj"]).expect(2);
        ran.says(&["the program and its store take at least 75497472 bytes (72M)"]);
        site.expect_nothing_left();
    }
}

#[test]
fn objects_are_verified_on_every_kind_of_contender() {
    if !root() {
        return;
    }
    let site = Site::new();
    fs::write(site.work().join("p.obj"), PROGRAM).unwrap();
    let flags = ["--objects", "p.obj", "--verify", "--rounds", "2", "--export-csv", "t.csv"];
    // What ext4 writes in the background is no part of the store's cost.
    let mut contenders = vec!["raw", "ext4: ext4 -E lazy_itable_init=0"];
    // Its tools are of the workspace, but of another package.
    if Path::new(KURABE).with_file_name("minfs").exists() {
        contenders.push("minfs");
    }
    compare(&site, &contenders, &flags).expect(0);
    site.expect_nothing_left();
    let records = site.records();
    assert_eq!(records.len(), 2 * contenders.len());
    for record in &records {
        let load = workload_of(record);
        // Contenders took turns, with a store of its own in each; latencies are those of all turns.
        let slices = slices_of(record);
        assert!(slices > 1, "{record}");
        assert_eq!(latency(load, "Put(65536)")["count"], 40 * slices);
        assert_eq!(latency(load, "Get(65536)")["count"], 40 * slices);
        let verified = load["findings"][0].as_str().unwrap();
        assert!(verified.contains("30 in the sweep at the end"), "{verified}");
        let check = &record["checks"][0];
        assert_eq!(
            (&check["name"], &check["tried"]),
            (&"contents".into(), &(80 * slices).into()),
            "{check}"
        );
        assert_eq!(check["violated"], 0);
        // The sweep is no part of the cost: it is a phase of its own, and reads every object.
        let swept_bytes = phase(record, "verify")["device"]["read_bytes"].as_u64().unwrap();
        let label = record["contender"]["label"].as_str().unwrap();
        let on_device = label != "ext4";
        assert!(!on_device || swept_bytes > 20 * 65536, "{swept_bytes}");
        // Nor is the making of the store, which is the same for all.
        let facts = &load["details"]["store_facts"];
        assert_eq!(
            facts["capacity_bytes"],
            workload_of(&records[0])["details"]["store_facts"]["capacity_bytes"]
        );
        let journal_bytes: u64 = facts["journal_bytes"].as_str().unwrap().parse().unwrap();
        assert!(written_bytes(record, "layout") > journal_bytes, "{label}");
        let by_store = load["written_bytes"].as_u64().unwrap();
        let by_device = written_bytes(record, "run") + written_bytes(record, "sync");
        // As it is closed, after its count was read, lump writes a fence into its journal.
        let records_bytes = match label {
            "raw" => 4096..3 * 4096,
            "minfs" => 4096..6 * 4096,
            _ => 0..1 << 20,
        };
        let beyond =
            by_device.checked_sub(by_store).expect("the device writes what the store does");
        assert!(records_bytes.contains(&beyond), "{label}: {by_device} for {by_store}");
        if label == "minfs" {
            // Its slots are read by its mount, and not by the workload.
            assert!(phase(record, "mount")["device"]["read_bytes"].as_u64().unwrap() > 4096);
            assert!(phase(record, "unmount")["elapsed_ns"].as_u64().unwrap() > 0);
        }
        let path = format!("result/histograms/trial-{}.hlog", record["trial"]);
        assert!(fs::read_to_string(site.work().join(path)).unwrap().contains("Tag=Put(65536)"));
    }
    // Merged over both trials, on the terminal and in the CSV.
    let whole = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    assert!(whole.contains("histograms are merged"), "{whole}");
    let csv = fs::read_to_string(site.work().join("t.latencies.csv")).unwrap();
    for contender in contenders {
        let label = contender.split(':').next().unwrap();
        let own = records.iter().filter(|record| record["contender"]["label"] == label);
        let puts = 40 * own.map(slices_of).sum::<u64>();
        let expected = format!(",{label},Put(65536),{puts},{},", puts << 16);
        assert!(csv.contains(&expected), "no '{expected}' in {csv}");
    }
    // A histogram that is gone is named, and the report goes on without it.
    fs::remove_file(site.work().join("result/histograms/trial-0.hlog")).unwrap();
    let again = site.run(&["report", "result", "--verbose"]).expect(0);
    assert!(again.stdout.contains("latencies of run 0: histograms/trial-0.hlog"));
}

#[test]
fn trees_are_proved_equal() {
    if !root() {
        return;
    }
    let site = Site::new();
    compare(&site, &["ext4", "ext2"], &["--rounds", "1", "--tree", "synthetic:60"]).expect(0);
    site.expect_nothing_left();
    let (ext4, ext2) = (site.record_of("ext4"), site.record_of("ext2"));
    let proof = workload_of(&ext4)["proof"].as_str().unwrap();
    assert!(proof.starts_with("tree ") && proof.len() > 30, "{proof}");
    assert_eq!(proof, workload_of(&ext2)["proof"]);
    let phases = ["all phases", "copy", "unpack", "rewrite", "delete each", "delete all"];
    assert_eq!(metric_names(workload_of(&ext4)), phases);
    assert!(slices_of(&ext4) > 1 && slices_of(&ext4) == slices_of(&ext2));
    assert_eq!(latency(workload_of(&ext4), "rewrite")["count"], 60 * slices_of(&ext4));
    let whole = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    assert!(whole.contains("delete each"), "{whole}");
    // Long lines are broken between words.
    let said: Vec<&str> = whole.split_whitespace().collect();
    assert!(said.join(" ").contains(&format!("every contender: {proof}")), "{whole}");
    // Other trees, other proofs.
    let other = Site::new();
    compare(&other, &["ext4"], &["--tree", "synthetic:61"]).expect(0);
    assert_ne!(workload_of(&other.record_of("ext4"))["proof"], proof);
}

#[test]
fn fio_finds_its_files_laid_out_and_the_run_is_billed_alone() {
    if !root() || tool("fio").is_none() {
        return;
    }
    const SIZE_BYTES: u64 = 8 << 20;
    let site = Site::new();
    let job = "rw=randread bs=4k direct=1 number_ios=500 size=8m";
    // Nothing but the workload writes: ext4 would go on making its tables after a short wait.
    let ext4 = "ext4: ext4 -E lazy_itable_init=0,lazy_journal_init=0";
    compare(&site, &["raw", ext4], &["--one-at-a-time", "--fio", job]).expect(0);
    site.expect_nothing_left();
    for label in ["raw", "ext4"] {
        let record = site.record_of(label);
        let load = workload_of(&record);
        assert_eq!(latency(load, "read")["count"], 500, "{label}");
        assert_eq!(metric_names(load), ["read operations", "read bandwidth"]);
        assert_eq!(load["details"]["laid_out_in_run"], 0, "{label}");
        assert_eq!(load["details"]["layout"]["bytes"], SIZE_BYTES, "{label}");
        // The layout wrote the files, and the run only read them.
        assert!(written_bytes(&record, "layout") >= SIZE_BYTES, "{label}");
        assert!(written_bytes(&record, "run") < SIZE_BYTES / 8, "{label}");
        let read_bytes = phase(&record, "run")["device"]["read_bytes"].as_u64().unwrap();
        assert!((2_000_000..SIZE_BYTES).contains(&read_bytes), "{label}: {read_bytes}");
    }
    let other = Site::new();
    let text = "[global]\nbs=256k\nsize=24m\n[one]\nrw=write\n[two]\nstonewall\nrw=read\n";
    fs::write(other.work().join("job.fio"), text).unwrap();
    compare(&other, &["ext2"], &["--fio", "job.fio"]).expect(0);
    let record = other.record_of("ext2");
    assert_eq!(latency(workload_of(&record), "one: write")["count"], 96);
    assert_eq!(latency(workload_of(&record), "two: read")["count"], 96);
    // Buffered writes are on the device by the end of the run that is ranked, not after it.
    assert!(written_bytes(&record, "run") >= 24 << 20, "{}", written_bytes(&record, "run"));
}

#[test]
fn the_matrix_tells_the_overhead_against_raw() {
    if !root() || tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    let mut flags = vec!["--fio-matrix", "--size", "16M", "--block-size", "4K", "--time", "100ms"];
    flags.extend(["--engine", "io_uring", "--export-csv", "t.csv", "--one-at-a-time"]);
    compare(&site, &["ext4", "raw"], &flags).expect(0);
    site.expect_nothing_left();
    let record = site.record_of("ext4");
    let names = metric_names(workload_of(&record));
    assert_eq!(names.len(), 1 + 9);
    assert_eq!(names[..2], ["geometric mean of all cells", "randread-psync-1-4k"]);
    assert!(names.contains(&"randrw-70-30-io_uring-64-4k"), "{names:?}");
    assert_eq!(workload_of(&record)["details"]["matrix"]["size_bytes"], 16 << 20);
    // The cells ran in an order of the trial's own, and are told in the matrix's.
    let order = |label: &str| {
        let order =
            workload_of(&site.record_of(label))["details"]["order"].as_array().unwrap().clone();
        order.iter().map(|name| name.as_str().unwrap().to_string()).collect::<Vec<String>>()
    };
    let (one, mut other) = (order("ext4"), order("raw"));
    assert!(one != other, "{one:?}");
    other.sort();
    let mut told: Vec<&str> = names[1..].to_vec();
    told.sort();
    assert_eq!(other, told);
    assert_eq!(workload_of(&record).get("findings"), None, "nothing was laid out within the run");
    let written = latency(workload_of(&record), "randrw-70-30-io_uring-32-4k-write");
    assert!(
        written["count"].as_u64().unwrap() > 0
            && written["quantiles_ns"][1][1].as_u64().unwrap() > 0
    );
    let csv = fs::read_to_string(site.work().join("t.latencies.csv")).unwrap();
    assert!(csv.contains(",raw,randread-psync-1-4k-read,"), "{csv}");
    assert!(!csv.contains(",overall,"), "cells together are no distribution: {csv}");
    assert!(written_bytes(&record, "layout") >= 16 << 20);
    let whole = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    assert!(whole.contains("Cost relative to raw: blocks of 4K"), "{whole}");
    assert!(whole.contains("randwrite, queue of 32 (io_uring)"), "{whole}");
    let csv = fs::read_to_string(site.work().join("t.overhead.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 9, "{csv}");
    // What was measured in one block says nothing of an overhead, so none is told.
    let line = csv.lines().find(|line| line.contains(",randread,psync,1,4096,1,")).unwrap();
    assert_eq!(line.split(',').nth(8), Some(""), "{line}");
}

#[test]
fn dbench_and_its_replay() {
    if !root() || tool("dbench").is_none() {
        return;
    }
    let site = Site::new();
    compare(&site, &["ext4"], &["--dbench", "1", "--time", "3s"]).expect(0);
    let record = site.record_of("ext4");
    assert_eq!(metric_names(workload_of(&record)), ["throughput", "operations"]);
    let output = workload_of(&record)["details"]["finished"]["stdout"].as_str().unwrap();
    assert!(output.contains("Throughput"), "its own output is kept: {output}");
    // dbench prints two lines of progress in 3 s; the third second is no less of the run.
    assert_eq!(workload_of(&record)["series"][0]["values"].as_array().unwrap().len(), 3);
    // Its own table: counts, means and maxima, and no percentiles.
    let written = latency(workload_of(&record), "WriteX");
    assert!(written["count"].as_u64().unwrap() > 100 && written["max_ns"].as_u64().unwrap() > 0);
    assert_eq!(written["quantiles_ns"], serde_json::json!([]));
    let whole = site.run(&["report", "result", "--verbose"]).expect(0);
    assert!(whole.stdout.contains("WriteX") && whole.stderr.is_empty(), "{}", whole.stderr);
    let other = Site::new();
    compare(&other, &["ext4"], &["--dbench-replay", "1", "--time", "1s"]).expect(0);
    other.expect_nothing_left();
    let record = other.record_of("ext4");
    assert_eq!(metric_names(workload_of(&record)), ["throughput", "operations"]);
    let note = workload_of(&record)["note"].as_str().unwrap();
    assert!(note.starts_with("no client finished the load file's 458,344"), "{note}");
    let written = latency(workload_of(&record), "WriteX");
    assert!(
        written["count"].as_u64().unwrap() > 100
            && written["quantiles_ns"][4][1].as_u64().unwrap() > 0
    );
    assert!(!workload_of(&record)["series"].as_array().unwrap().is_empty());
}

#[test]
fn bonnie() {
    if !root() || tool("bonnie++").is_none() {
        return;
    }
    let site = Site::new();
    compare(&site, &["ext2"], &["--bonnie", "--size", "16M", "--device", "mem:128M"]).expect(0);
    site.expect_nothing_left();
    let record = site.record_of("ext2");
    let names = metric_names(workload_of(&record));
    assert!(names.contains(&"output per character"), "{names:?}");
    assert!(names.contains(&"output block, longest"), "{names:?}");
    let details = &workload_of(&record)["details"];
    assert!(details["records"][0]["tests"].as_array().unwrap().len() > 8, "{details:#}");
    assert!(!details["finished"]["stdout"].as_str().unwrap().is_empty());
}

/// Runs `kurabe compare` of a workload and checks that it is refused before anything is touched.
#[track_caller]
fn refused(files: &[(&str, &str)], contenders: &[&str], flags: &[&str], says: &[&str]) {
    let site = Site::new();
    for (name, text) in files {
        fs::write(site.work().join(name), text).unwrap();
    }
    compare(&site, contenders, flags).expect(2).says(says);
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    site.expect_untouched(&names);
}

#[test]
fn pgbench_runs_on_a_server_of_its_own_and_its_figure_is_ours() {
    if !root() || !harness::postgresql() {
        return;
    }
    let site = Site::new();
    let flags = ["--device", "mem:512M", "--runs", "1", "--time", "2s", "--pgbench", "2 scale=1"];
    compare(&site, &["ext4", "xfs"], &flags).expect(0);
    for record in site.records() {
        let load = workload_of(&record);
        let details = &load["details"];
        let output = details["pgbench_output"].as_str().unwrap();
        let (_, rest) = output.split_once("tps = ").unwrap();
        let own: f64 = rest.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(load["metrics"][0]["name"], "transactions");
        assert_eq!(load["metrics"][0]["value"].as_f64().unwrap(), own);
        // The same out of the log of every transaction: pgbench rounds to a microsecond, and counts the time in which
        // its threads begin and end.
        let by_log = details["log_transactions_per_second"].as_f64().unwrap();
        assert!((by_log / own - 1.0).abs() < 0.05, "{by_log} {own}");
        assert_eq!(latency(load, "commit")["count"], details["commits"]);
        assert_eq!(details["full_page_writes"], "on");
        for name in ["create", "load", "checkpoint", "start", "run", "shutdown"] {
            assert!(phase(&record, name)["elapsed_ns"].as_u64().unwrap() > 0, "{name}");
        }
        assert!(written_bytes(&record, "load") > 16 << 20);
        let ended = record["phases"].as_array().unwrap();
        let names: Vec<&str> = ended.iter().filter_map(|one| one["phase"].as_str()).collect();
        let place = |name: &str| names.iter().position(|one| *one == name).unwrap();
        assert!(
            place("checkpoint") < place("start") && place("shutdown") > place("run"),
            "{names:?}"
        );
    }
    site.expect_nothing_left();
}

/// MariaDB, Redis and RocksDB: a database of each run's own, whose figure is that of the tool, with every latency.
#[test]
fn databases_run_on_their_own_and_their_figures_are_ours() {
    let cases = [
        ("mariadbd", "--sysbench", "2 rows=1000", "transactions", "mem:384M"),
        ("redis-server", "--redis", "2 keys=1000", "sets", "mem:300M"),
        ("db_bench", "--rocksdb", "mixed keys=1000 reads=50", "operations", "mem:300M"),
    ];
    for (program, flag, text, metric, device) in cases {
        if !root() || tool(program).is_none() {
            continue;
        }
        let site = Site::new();
        let flags = ["--device", device, "--runs", "1", "--time", "2s", flag, text];
        compare(&site, &["ext4"], &flags).expect(0);
        let record = &site.records()[0];
        let load = workload_of(record);
        let details = &load["details"];
        assert_eq!(load["metrics"][0]["name"], metric);
        let rate = load["metrics"][0]["value"].as_f64().unwrap();
        let tells = |key: &str, words: &str| {
            let output = details[key].as_str().unwrap();
            assert!(output.contains(words), "{words}: {output}");
        };
        let count = details["commits"].as_u64().unwrap();
        let operation = match program {
            "mariadbd" => {
                tells("sysbench_output", &format!("({rate:.2} per sec.)"));
                assert_eq!(details["innodb_flush_log_at_trx_commit"], "1");
                "commit"
            }
            "redis-server" => {
                let by_time = count as f64 * 1e9 / details["elapsed_ns"].as_f64().unwrap();
                assert!((by_time / rate - 1.0).abs() < 1e-6, "{by_time} {rate}");
                assert_eq!(details["appendfsync"], "always");
                "commit"
            }
            _ => {
                tells("db_bench_output", &format!(" {rate} ops/sec"));
                assert_eq!(details["sync"], "1");
                assert!(latency(load, "read")["count"].as_u64().unwrap() > 0);
                "write"
            }
        };
        assert_eq!(latency(load, operation)["count"].as_u64(), Some(count), "{program}");
        let phases: &[&str] = match program {
            "db_bench" => &["load", "run"],
            _ => &["create", "load", "checkpoint", "start", "run", "shutdown"],
        };
        for name in phases {
            assert!(phase(record, name)["elapsed_ns"].as_u64().unwrap() > 0, "{name}");
        }
        site.expect_nothing_left();
    }
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let check = |wrong: &[&str], says: [&str; 2]| {
        let site = Site::new();
        let flags = ["--device", "mem:512M", "--runs", "1"];
        let ran = compare(&site, &["ext4"], &[&flags, wrong].concat());
        let words = format!("{}{}", ran.stdout, ran.stderr);
        says.iter().for_each(|one| assert!(words.contains(one), "{words}"));
        site.expect_nothing_left();
    };
    if root() && harness::postgresql() {
        let wrong = ["--pgbench", "1 scale=1", "--postgres", "shared_buffers=plenty"];
        let reason = "invalid value for parameter \"shared_buffers\"";
        check(&wrong, ["`postgres` did not start", reason]);
    }
    if root() && tool("redis-server").is_some() {
        let wrong = ["--redis", "1 keys=10 io-threads=plenty"];
        check(&wrong, ["`redis-server` did not start", "argument couldn't be parsed"]);
    }
    if root() && tool("mariadbd").is_some() {
        let wrong = ["--sysbench", "1 rows=10", "--mariadb", "innodb_flush_method=plenty"];
        check(&wrong, ["`mariadbd` did not start", "innodb-flush-method"]);
        // This one holds from the making of the database on.
        let wrong = ["--sysbench", "1 rows=10", "--mariadb", "innodb_page_size=5K"];
        check(&wrong, ["`mariadb-install-db` ended", "InnoDB: Invalid page size=5120"]);
    }
}

#[test]
fn workloads_that_are_too_large_are_refused_with_both_sizes() {
    let room = "the device has 67108864 bytes (64M)";
    let program = [("p.obj", "Command { 9000.times { New(1M); }; }")];
    refused(&program, &["ext4"], &["--objects", "p.obj"], &["its store take at least", "94", room]);
    refused(&[], &["ext4"], &["--tree", "synthetic:9000"], &["archive and its tree need", room]);
    let rows = ["--sqlite", "rows=1000000"];
    refused(&[], &["ext4"], &rows, &["the database and its journal need", room]);
    if tool("fio").is_some() {
        let fio = ["--fio", "rw=write size=100m"];
        refused(&[], &["ext4"], &fio, &["the jobs need 104857600 bytes (100M)", room]);
        refused(&[], &["raw"], &["--fio-matrix"], &["need 1073741824 bytes (1G)", room]);
    }
    if tool("dbench").is_some() {
        refused(&[], &["ext4"], &["--dbench", "9"], &["files of 9 clients take 2156", room]);
        refused(&[], &["ext4"], &["--dbench-replay", "9"], &["files of 9 clients take", room]);
    }
    if harness::postgresql() {
        let postgres = ["--pgbench", "4"];
        refused(&[], &["ext4"], &postgres, &["its log and a checkpoint need", "400M", room]);
        let typo = ["--pgbench", "1", "--postgres", "synchronus_commit=off"];
        refused(&[], &["ext4"], &typo, &["did you mean 'synchronous_commit'?"]);
    }
    if tool("mariadbd").is_some() {
        refused(&[], &["ext4"], &["--sysbench", "4"], &["the database and its log need", room]);
        let typo = ["--sysbench", "1", "--mariadb", "innodb_doublewrit=OFF"];
        refused(&[], &["ext4"], &typo, &["did you mean 'innodb_doublewrite'?"]);
    }
    if tool("redis-server").is_some() {
        refused(&[], &["ext4"], &["--redis", "4"], &["the append-only file", "need", room]);
    }
    if tool("db_bench").is_some() {
        refused(&[], &["ext4"], &["--rocksdb", "overwrite"], &["the keys, their copies", room]);
    }
    if tool("bonnie++").is_some() {
        refused(&[], &["ext4"], &["--bonnie"], &["files take 1073741824 bytes (1G)", room]);
    }
}

#[test]
fn faulty_and_foreign_files_are_named_with_their_place() {
    let foreign = [("load.txt", "GET /index.html HTTP/1.1\nHost: example.org\n")];
    refused(
        &foreign,
        &["ext4"],
        &["--dbench-replay", "1:load.txt"],
        &["load.txt:1:", "`HTTP/1.1`"],
    );
    let whole = "Mkdir \"\\clients\" NT_STATUS_OK\n\
                 NTCreateX \"\\clients\\a\" 0x40 0x2 7 NT_STATUS_OK\nWriteX 7 0 655";
    refused(
        &[("load.txt", whole)],
        &["ext4"],
        &["--dbench-replay", "1:load.txt"],
        &["load.txt:3:"],
    );
    let program = [("p.obj", "Command {\n  3.times { Nwe(1K); };\n}\n")];
    refused(&program, &["ext4"], &["--objects", "p.obj"], &["p.obj:2:13", "Nwe", "New"]);
    if tool("fio").is_some() {
        let outside = [("job.fio", "[a]\nrw=write\nsize=1m\nfilename=../hostname\n")];
        refused(
            &outside,
            &["ext4"],
            &["--fio", "job.fio"],
            &["job.fio:4:", "../hostname", "name it relative"],
        );
        let typo = ["--fio", "rw=randreed size=1m"];
        let says = ["the fio options:1:4: ", "`rw=randreed`", "randread"];
        refused(&[], &["ext4"], &typo, &says);
        let typo = [("job.fio", "[a]\nrw=read\nsize=1m\nbs=4q\n")];
        refused(&typo, &["raw"], &["--fio", "job.fio"], &["job.fio:4:4: ", "`bs=4q`", "4k"]);
    }
    refused(&[], &["ext4"], &["--tree", "no.tar"], &["no.tar: No such file"]);
    refused(&[("no.tar", "no archive")], &["ext4"], &["--tree", "no.tar"], &["tar"]);
    refused(&[], &["ext4"], &["--fio-matrix", "--engine", "sync"], &["--engine", "'sync'"]);
}

#[test]
fn a_missing_tool_names_its_package_before_any_device_is_touched() {
    if !root() || tool("unshare").is_none() {
        return;
    }
    for (name, flags) in [
        ("fio", &["--fio", "rw=read size=1m"][..]),
        ("fio", &["--fio-matrix", "--size", "16M"]),
        ("dbench", &["--dbench", "1"]),
        ("bonnie++", &["--bonnie", "--size", "16M"]),
        ("tar", &["--tree", "synthetic:9"]),
    ] {
        let Some(path) = tool(name) else { continue };
        let site = Site::new();
        let mut command = site.program("unshare");
        // Where the program was, there is nothing that can be run, for this command only.
        let script = "mount --bind /dev/null \"$1\" && shift && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(path).arg(KURABE);
        command.args(["compare", "ext4", "--device", "mem:64M"]).args(flags);
        let package = format!("apt install {name}");
        site.finish(command).expect(2).says(&[name, "is not installed", &package]);
        site.expect_untouched(&[]);
    }
}

/// Two servers of fio, each in a network of its own that a cable joins to the client's.
const NODES: &str = "ip link set lo up && shift
    node() {
        unshare --net sh -c 'echo >cable$0; until ip link set dev far up; do sleep 0.1; done
            ip address add 10.9.$0.2/24 dev far; exec fio --server=10.9.$0.2' $1 >/dev/null 2>&1 &
        until test -e cable$1; do sleep 0.1; done
        ip link add name near$1 type veth peer name far netns $!
        ip address add 10.9.$1.1/24 dev near$1; ip link set dev near$1 up
        until fio --client=10.9.$1.2 --parse-only --name=x >/dev/null 2>&1 || test $((n += 1)) -gt 50; do
            sleep 0.1
        done
    }
    node 1; one=$!
    node 2; other=$!
    \"$@\" --nodes 10.9.1.2,10.9.2.2 --out result; code=$?
    \"$@\" --nodes 10.9.1.2,10.9.2.9 --out failed
    kill $one $other; wait; exit $code";

/// Whether networks can be joined here.
fn has_cables() -> bool {
    let words = ["--net", "ip", "link", "add", "name", "near", "type", "veth"];
    let has = Command::new("unshare").args(words).output().is_ok_and(|ran| ran.status.success());
    if !has {
        eprintln!("SKIPPED: this kernel has no veth, by which two networks are joined");
    }
    has
}

#[test]
fn a_job_runs_on_several_nodes_at_once_and_the_one_that_fails_is_named() {
    if !root() || ["fio", "unshare", "ip"].map(tool).contains(&None) || !has_cables() {
        return;
    }
    let site = Site::new();
    let place = harness::memory_directory();
    let [one, _] = harness::two_contenders(place.path());
    let mut command = site.program("unshare");
    command.args(["--net", "sh", "-c", NODES, "sh", "-", KURABE, "compare", &one]);
    command.args(["--fio", "rw=randrw bs=4k size=2m", "--runs", "1", "--style", "basic"]);
    site.finish(command).expect(0);
    let record = site.record_of("a");
    let load = workload_of(&record);
    let nodes = load["details"]["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().filter_map(|node| node["node"].as_str()).collect();
    assert_eq!(names, ["10.9.1.2", "10.9.2.2"]);
    let bytes = |node: &Value| {
        let job = &node["jobs"][0];
        job["read"]["io_bytes"].as_u64().unwrap() + job["write"]["io_bytes"].as_u64().unwrap()
    };
    assert_eq!(nodes.iter().map(bytes).collect::<Vec<_>>(), [2 << 20, 2 << 20]);
    assert_eq!(latency(load, "overall")["count"], 2 * 512 + syncs(load));
    let findings = load["findings"].to_string();
    assert!(findings.contains("the starts were") && findings.contains("10.9.2.2"), "{findings}");
    let failed = fs::read_to_string(site.work().join("failed/records.jsonl")).unwrap();
    let failed: Value = serde_json::from_str(failed.lines().next().unwrap()).unwrap();
    assert_eq!(failed["outcome"]["kind"], "failed");
    assert!(failed.to_string().contains("node 10.9.2.9"), "{failed}");
    // What a server had begun for a client that was ended goes a moment after the server.
    wait_until("the servers end", || site.processes().is_empty());
    site.expect_nothing_left();
}

/// How many syncs fio counted.
fn syncs(load: &Value) -> u64 {
    let latencies = load["latencies"].as_array().unwrap().iter();
    let syncs = latencies.filter(|latency| latency["operation"] == "sync");
    syncs.filter_map(|latency| latency["count"].as_u64()).sum()
}

#[test]
fn a_tool_that_dies_is_recorded_with_its_words_and_the_others_go_on() {
    if !root() || tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    let job = "rw=randread bs=4k size=4m time_based runtime=2 rate_iops=100";
    let running = site.start(workload_command(&site, &["ext4", "ext2"], &["--fio", job]));
    let arguments = |number: &i32| {
        let bytes = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let measuring = || {
        let numbers = site.processes().into_iter();
        numbers.filter(|number| arguments(number).contains("--output-format=json+")).max()
    };
    wait_until("fio measures", || measuring().is_some());
    for number in site.processes() {
        if arguments(&number).contains("--output-format=json+") {
            signal(number, rustix::process::Signal::KILL);
        }
    }
    let ran = running.finish().expect(1);
    site.expect_nothing_left();
    let records = site.records();
    let (died, other): (Vec<&Value>, Vec<&Value>) =
        records.iter().partition(|record| record["outcome"]["kind"] == "failed");
    assert_eq!((died.len(), other.len()), (1, 1), "{records:#?}");
    let outcome = &died[0]["outcome"];
    assert_eq!(outcome["phase"], "run");
    let output = outcome["output"].as_str().unwrap();
    assert!(output.contains("`fio` was killed by signal 9"), "{output}");
    assert!(ran.stderr.contains("was killed by signal 9"), "{}", ran.stderr);
    assert!(latency(workload_of(other[0]), "read")["count"].as_u64().unwrap() > 50);
}

#[test]
fn a_plan_is_told_for_every_workload_and_nothing_is_touched() {
    let site = Site::new();
    fs::write(site.work().join("p.obj"), PROGRAM).unwrap();
    for (flags, says) in [
        (&["--objects", "p.obj"][..], "peak live bytes"),
        (&["--tree", "synthetic:50"], "directories and links"),
        (&["--fio", "rw=read size=1m"], "laid out first        1048576 bytes (1M)"),
        (&["--fio-matrix", "--size", "16M"], "81, 3 s each: 243 s per run"),
        (&["--dbench", "1", "--time", "10s"], "warm-up               2 s"),
        (&["--bonnie", "--size", "16M"], "16384 empty files"),
    ] {
        let mut arguments = vec!["compare", "ext4", "--device", "mem:64M", "--print-plan"];
        arguments.extend(flags);
        let ran = site.run(&arguments).expect(0);
        assert!(ran.stdout.contains(says), "{flags:?}: {}", ran.stdout);
        let known = ran.stdout.contains("fits: it needs") || ran.stdout.contains("in advance");
        assert!(known, "{flags:?}: {}", ran.stdout);
    }
    let large = ["compare", "ext4", "--device", "mem:64M", "--print-plan", "--bonnie"];
    let ran = site.run(&large).expect(0);
    assert!(ran.stdout.contains("does not fit: it needs 1073741824 bytes (1G)"), "{}", ran.stdout);
    let directory = ["compare", "dir:.", "--print-plan", "--tree", "synthetic:50"];
    let ran = site.run(&directory).expect(0);
    let place = format!("and the file system of {}", site.work().display());
    assert!(ran.stdout.contains(&place), "{}", ran.stdout);
    site.expect_untouched(&["p.obj"]);
}

#[test]
fn a_violated_check_is_a_result_and_the_run_ends_as_after_a_gate_that_fails() {
    if !root() || tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    // The second job writes over a part of what the third looks for.
    let text = "[global]\nbs=64k\nsize=1m\nfilename=f\n[a]\nrw=write\nverify=crc32c\ndo_verify=0\n\
                [b]\nstonewall\nrw=write\nsize=256k\n[c]\nstonewall\nrw=read\nverify=crc32c\n";
    fs::write(site.work().join("job.fio"), text).unwrap();
    let flags = ["--fio", "job.fio", "--runs", "2", "--gate", "ext2: contents held"];
    let ran = compare(&site, &["ext2"], &flags).expect(3);
    let says = [
        "ext2 lost data: 8 of 32 checks violated (contents); it is not ranked.",
        "FAIL 'ext2: contents held' (fio job.fio)",
    ];
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
    ran.says(&[
        "contents violated (4 of 16); the first: verify: bad magic header",
        "at file f offset 0",
    ]);
    site.expect_nothing_left();
    for record in site.records() {
        assert_eq!(record["outcome"]["kind"], "completed");
        let check = &record["checks"][0];
        assert_eq!((&check["tried"], &check["violated"]), (&16.into(), &4.into()));
    }
    let rows = site.json("comparisons.json");
    let row = rows.as_array().unwrap().last().unwrap();
    assert_eq!((&row["metric"], &row["verdict"]), (&"check contents".into(), &"violated".into()));
    // What nobody wrote cannot be verified.
    let other = Site::new();
    let ran = compare(&other, &["ext2"], &["--fio", "rw=read bs=64k size=1m verify=md5"]);
    ran.expect(2).says(&["would verify what nobody wrote"]);
    other.expect_untouched(&[]);
}

#[test]
fn options_that_fio_refuses_are_no_study_to_print() {
    if tool("fio").is_none() {
        return;
    }
    for print in ["--print-study", "--print-plan"] {
        let site = Site::new();
        let flags = ["compare", "ext4", "--fio", "rw=read size=1M direct=2", print];
        let says = ["workload 'fio rw=read", "`direct=2`", "max value out of range: 2 (1 max)"];
        let ran = site.run(&flags).expect(2).says(&says);
        assert_eq!(ran.stdout, "");
        let flags = ["compare", "ext4", "--fio", "rw=read size=1M runtime=abc", print];
        site.run(&flags).expect(2).says(&["`runtime=abc`", "write it like `runtime=10s`"]);
        site.expect_untouched(&[]);
    }
}
