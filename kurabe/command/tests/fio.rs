//! fio through the command line: what a job asks for is what is ranked, and what was changed in it is
//! told next to its figures.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::{Ran, Site, phase, root, tool};
use serde_json::Value;

/// Runs a job file once on each of these contenders, one after the other.
fn ran(contenders: &[&str], job: &str, flags: &[&str]) -> Option<(Site, Ran)> {
    if !root() || tool("fio").is_none() {
        return None;
    }
    let site = Site::new();
    fs::write(site.work().join("job.fio"), job).unwrap();
    let more = ["--one-at-a-time", "--runs", "1", "--fio", "job.fio"];
    let flags = [&more[..], flags].concat();
    let ran = site.compare(contenders, &flags, &[]);
    site.expect_nothing_left();
    Some((site, ran))
}

/// What a completed record says of its workload.
#[track_caller]
fn workload_of(record: &Value) -> &Value {
    assert_eq!(record["outcome"]["kind"], "completed", "{}", record["outcome"]);
    &record["load"]
}

fn names<'a>(load: &'a Value, list: &str, name: &str) -> Vec<&'a str> {
    let entries = load[list].as_array().into_iter().flatten();
    entries.map(|entry| entry[name].as_str().unwrap()).collect()
}

fn metrics(load: &Value) -> Vec<&str> {
    names(load, "metrics", "name")
}

fn operations(load: &Value) -> Vec<&str> {
    names(load, "latencies", "operation")
}

/// A text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const STAGES: &str = "[global]\nsize=2m\ndirect=1\n[big_reads]\nrw=read\nbs=256k\n\
                      [writes]\nstonewall\nrw=write\nbs=256k\n\
                      [small_reads]\nstonewall\nrw=randread\nbs=4k\nnumjobs=2\nfilename=f\n";

#[test]
fn stages_are_ranked_and_reported_one_by_one() {
    let gates = ["--gate", "ext4 <= 1000", "--export-markdown", "t.md"];
    let Some((site, ran)) = ran(&["ext2", "ext4"], STAGES, &gates) else { return };
    // One block decides nothing.
    let ran = ran.expect(4);
    let load = &workload_of(&site.record_of("ext2")).clone();
    let parts = ["big_reads: read", "writes: write", "small_reads: read"];
    // 256 KiB are compared by bytes, 4 KiB by operations.
    let orders =
        [["bandwidth", "operations"], ["bandwidth", "operations"], ["operations", "bandwidth"]];
    let both = parts.iter().zip(orders);
    let both = both.flat_map(|(part, order)| order.map(|figure| format!("{part} {figure}")));
    assert_eq!(metrics(load), both.collect::<Vec<_>>());
    assert_eq!(operations(load), parts);
    let counts = load["latencies"].as_array().unwrap().iter().map(|one| one["count"].as_u64());
    assert_eq!(counts.collect::<Vec<_>>(), [Some(8), Some(8), Some(1024)]);
    assert_eq!(load["metrics"][0]["axes"]["group"], "big_reads");
    let said = words(&ran.stdout);
    for part in ["big_reads: read bandwidth", "writes: write bandwidth", "small_reads"] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    let ranked = "Ranked by 'big_reads'; the 3 groups of the job run one after another";
    assert!(said.contains(ranked), "{said}");
    let page = fs::read_to_string(site.work().join("result/report.html")).unwrap();
    let markdown = fs::read_to_string(site.work().join("t.md")).unwrap();
    for text in [page, markdown] {
        assert!(words(&text).contains("the 3 groups of the job run one after another"), "{text}");
    }
    // The histograms of a group have its name, as it is written.
    let whole = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    assert!(whole.contains("small_reads: read") && !whole.contains("no histogram"), "{whole}");
    let refused = site.run(&["compare", "ext2", "--fio", "job.fio", "--fio-rank", "reads"]);
    refused.expect(2).says(&["'reads'", "big_reads, writes, small_reads"]);
}

/// Also where the latencies of several turns are put together and the flushes are the mean of the turns.
#[test]
fn flushes_are_counted_for_each_write_and_not_for_each_sync() {
    if !root() || tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    let job = "[commits]\nrw=write\nbs=4k\nsize=1m\nfdatasync=1\nioengine=sync\noverwrite=1\n";
    fs::write(site.work().join("job.fio"), job).unwrap();
    let flags = ["--side-by-side", "--device", "mem:128M", "--rounds", "1", "--fio", "job.fio"];
    site.compare(&["a: ext4", "b: ext4"], &flags, &[]).expect(0);
    for record in site.records() {
        assert_eq!(workload_of(&record)["operations"], 256, "{record:#}");
        assert!(record["slices"].as_array().unwrap().len() > 1, "one turn shows nothing");
    }
    let whole = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    let row = whole.lines().find(|line| line.contains("flushes per operation")).expect("a row");
    let figures: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(figures.len(), 2, "{row}");
    assert!(figures.iter().all(|figure| (1.0..1.1).contains(figure)), "{row}");
    site.expect_nothing_left();
}

/// A quarter of the device, not of what each file system leaves free.
#[test]
fn a_job_without_a_size_does_the_same_work_everywhere() {
    let job = "[a]\nrw=write\nbs=1m\n";
    let Some((site, ran)) = ran(&["raw", "ext2", "xfs"], job, &["--device", "mem:320M"]) else {
        return;
    };
    let said = words(&ran.expect(0).stdout);
    assert!(said.contains("size=83886080 bytes (80M) for jobs without a size"), "{said}");
    for record in site.records() {
        assert_eq!(workload_of(&record)["written_bytes"], 80 << 20, "{record:#}");
    }
}

#[test]
fn the_group_that_is_named_ranks() {
    let flags = ["--fio-rank", "small_reads"];
    let Some((site, ran)) = ran(&["ext2"], STAGES, &flags) else { return };
    ran.expect(0);
    assert_eq!(metrics(workload_of(&site.record_of("ext2")))[0], "small_reads: read operations");
}

#[test]
fn a_job_that_verifies_is_ranked_by_its_writes() {
    for backlog in ["", "verify_backlog=64\n"] {
        let job = format!("[a]\nrw=randwrite\nbs=4k\nsize=1m\nverify=crc32c\n{backlog}");
        let Some((site, ran)) = ran(&["ext2"], &job, &[]) else { return };
        let ran = ran.expect(0);
        assert!(words(&ran.stdout).contains("write operations"), "{}", ran.stdout);
        let record = site.record_of("ext2");
        let load = workload_of(&record);
        let writes = ["write operations", "write bandwidth"];
        assert_eq!(metrics(load), [writes, ["verify operations", "verify bandwidth"]].concat());
        let operations = operations(load);
        assert!(operations.contains(&"write") && operations.contains(&"verify"), "{operations:?}");
        assert!(
            !operations.contains(&"overall") && !operations.contains(&"read"),
            "{operations:?}"
        );
    }
}

#[test]
fn trims_are_a_metric_and_a_run_without_operations_is_not_ranked_by_its_length() {
    let trims = "[a]\nrw=randtrim\nbs=64k\nsize=8m\nruntime=1\ntime_based\n";
    let Some((site, ran_trims)) = ran(&["raw"], trims, &["--discard"]) else { return };
    ran_trims.expect(0);
    let record = site.record_of("raw");
    assert_eq!(metrics(workload_of(&record)), ["trim operations", "trim bandwidth"]);
    let idle = "[a]\nioengine=cpuio\ncpuload=1\nruntime=1\ntime_based\n";
    let Some((_, ran)) = ran(&["ext2"], idle, &[]) else { return };
    ran.expect(1).says(&["nothing to compare"]);
}

/// fio ends such a job without a word, and with 0.
#[test]
fn a_job_whose_first_command_fails_is_no_fast_one() {
    let job = "[a]\nrw=write\nsize=64k\nexec_prerun=false\n";
    let Some((_, alone)) = ran(&["ext2"], job, &[]) else { return };
    let alone = alone.expect(1);
    assert!(words(&alone.stdout).contains("fio counted no operation"), "{}", alone.stdout);
    let both = format!("{job}[b]\nstonewall\nrw=write\nsize=64k\n");
    let Some((_, both)) = ran(&["ext2"], &both, &[]) else { return };
    let both = both.expect(0);
    assert!(words(&both.stdout).contains("fio counted no operation of a: "), "{}", both.stdout);
}

#[test]
fn what_fio_does_not_measure_has_no_latency() {
    let job = "[a]\nrw=randread\nbs=4k\nsize=1m\ngtod_reduce=1\n";
    let Some((site, ran)) = ran(&["ext2"], job, &[]) else { return };
    ran.expect(0);
    let record = site.record_of("ext2");
    assert_eq!(metrics(workload_of(&record)), ["read operations", "read bandwidth"]);
    assert_eq!(workload_of(&record)["latencies"], Value::Null);
}

#[test]
fn a_failure_has_the_reason_that_fio_gives() {
    let unaligned = "[a]\nrw=randwrite\nbs=1000\ndirect=1\nsize=1m\n";
    let Some((_, ran)) = ran(&["ext2"], unaligned, &[]) else { return };
    let ran = ran.expect(1);
    let said = words(&ran.stdout);
    assert!(said.contains("error=Invalid argument"), "{said}");
}

/// What can be known of the job, of fio and of the machine is told at once, and nothing is made.
#[test]
fn a_job_that_cannot_run_is_refused_before_anything_is_made() {
    let Some((site, ran_well)) = ran(&["ext2"], "[a]\nrw=read\nsize=64k\n", &[]) else { return };
    ran_well.expect(0);
    let secret = site.home().join("secret");
    fs::write(&secret, "fio version 2 iolog\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let secret = format!("[a]\nread_iolog={}\n", secret.display());
    for (job, says) in [
        ("[a]\nsize=1m\n[b]\nrw=randtrim\nsize=1m\n", "'b' trims, and fio trims devices only"),
        (
            "[a]\nsize=1m\nioengine=libaoi\n",
            "job.fio:3:10: `ioengine=libaoi`: this fio has no such engine",
        ),
        ("[a]\nread_iolog=/no/such/log\n", "'read_iolog=/no/such/log': No such file"),
        (&secret, "regular file that everybody may read; chmod o+r"),
    ] {
        fs::write(site.work().join("job.fio"), job).unwrap();
        let _ = fs::remove_dir_all(site.work().join("result"));
        let ran = site.compare(&["ext2", "ext4"], &["--fio", "job.fio"], &[]).expect(2);
        let said = words(&ran.stderr);
        assert_eq!(said.matches(says).count(), 1, "{job}: {said}");
        assert!(ran.stdout.is_empty() && !site.work().join("result").exists(), "{job}: {ran:?}");
    }
    fs::write(site.work().join("job.fio"), "[b]\nrw=randtrim\nsize=1m\n").unwrap();
    let on_raw = site.compare(&["raw"], &["--fio", "job.fio"], &[]).expect(2);
    let on_raw = on_raw.says(&["'b' trims, and a device is trimmed only where", "add --discard"]);
    assert!(on_raw.stdout.is_empty() && !site.work().join("result").exists(), "{on_raw:?}");
    // Another engine frees blocks of files, and a device takes trims.
    fs::write(site.work().join("job.fio"), "[a]\nrw=trim\nsize=64k\nioengine=falloc\n").unwrap();
    site.compare(&["ext2"], &["--fio", "job.fio"], &[]).expect(0);
}

#[test]
fn places_of_another_machine_become_the_contender() {
    let job = "[global]\nsize=1m\nbs=64k\ndirectory=/mnt/published\n[a]\nrw=write\n\
               [b]\nstonewall\nrw=read\nfilename=/dev/sdz:mark.dat\n";
    let Some((site, ran)) = ran(&["raw", "ext2"], job, &[]) else { return };
    let ran = ran.expect(0);
    let said = words(&ran.stdout);
    let names = "in place of directory=/mnt/published, filename=/dev/sdz:mark.dat";
    for place in ["ext2: Changed in the job:", "raw: Changed in the job:"] {
        assert!(said.contains(place), "no '{place}' in {said}");
    }
    assert!(said.contains(&format!("the device {names}")), "{said}");
    assert!(said.contains(&format!("the contender's directory {names}")), "{said}");
    for label in ["raw", "ext2"] {
        let expected = ["a: write operations", "a: write bandwidth"];
        assert_eq!(metrics(workload_of(&site.record_of(label)))[..2], expected, "{label}");
    }
}

/// etcd's check of a disk: its log grows by each write, and each write is made durable.
const ETCD: &str = "[etcd]\nrw=write\nioengine=sync\nbs=2300\nsize=460k\nfdatasync=1\n";

/// Unless it is to write a file that is there already.
#[test]
fn a_job_that_syncs_what_it_appends_has_the_flushes_of_a_growing_file() {
    let flushes = |job: &str, flags: &[&str]| {
        let (site, ran) = ran(&["ext4: ext4 -b 1024"], job, flags)?;
        let said = words(&ran.expect(0).stdout);
        let record = site.record_of("ext4");
        workload_of(&record);
        let flushes = phase(&record, "run")["device"]["flushes"].as_u64().unwrap();
        Some((flushes, said, record["flushes_uncounted"] == true))
    };
    let overwriting = format!("{ETCD}overwrite=1\n");
    let Some((laid_out, said, is_uncounted)) = flushes(&overwriting, &[]) else { return };
    let changed = "files laid out and written in full before the run (overwrite=1, fallocate=none)";
    assert!(said.contains(changed) && said.contains("--fio-as-written"), "{said}");
    let (growing, said, _) = flushes(ETCD, &[]).unwrap();
    assert!(said.contains("Changed in the job: end_fsync=1 for etcd."), "{said}");
    let (as_written, said, _) = flushes(ETCD, &["--fio-as-written"]).unwrap();
    assert!(!said.contains("Changed in the job") && !said.contains("page cache"), "{said}");
    if is_uncounted {
        eprintln!("SKIPPED: the kernel counts no flushes of this device");
        return;
    }
    // 204 writes. ext4 commits its journal for each that makes the file longer.
    assert!((200..300).contains(&laid_out), "{laid_out}");
    assert!(
        growing >= 400 && as_written >= 400,
        "{growing} and {as_written} flushes of a growing file, {laid_out} of one that was laid out"
    );
}

#[test]
fn a_command_line_of_fio_is_taken_as_it_was_published() {
    let options = "--name=a --rw=read --bs=64k --size=8m --name=b --rw=randwrite --bs=4k --size=8m";
    if tool("fio").is_none() {
        return;
    }
    let site = Site::new();
    for flag in [vec!["--fio", options], vec![&*format!("--fio={options}")]] {
        let plan = [&["compare", "ext4", "--print-plan"], &flag[..]].concat();
        let said = words(&site.run(&plan).expect(0).stdout);
        assert!(said.contains("jobs a, b") && said.contains("16777216 bytes"), "{said}");
    }
    site.expect_untouched(&[]);
}
