//! Ctrl-C and SIGTERM at any instant: everything is given back, the result is valid, and the study
//! can be gone on with under the same plan.

mod harness;

use std::fs;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use harness::{Random, Running, Site, root, signal, wait_until};
use rustix::process::{Pid, Signal, kill_process_group};

/// Starts kurabe as a shell with job control does: in a process group of its own.
fn start(site: &Site, contenders: &[&str], flags: &[&str], command: &[&str]) -> Running {
    let mut command = site.compare_command(contenders, flags, command);
    command.process_group(0);
    site.start(command)
}

/// What a terminal does on Ctrl-C: the signal goes to the whole group.
fn interrupt(running: &Running) {
    let group = Pid::from_raw(running.number()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
}

fn records_so_far(site: &Site) -> usize {
    let text = fs::read_to_string(site.work().join("result/records.jsonl")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn an_interrupted_study_is_gone_on_with_under_the_same_plan() {
    if !root() {
        return;
    }
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let site = Site::new();
        let device = site.image_device("64M");
        let csv = site.home().join("samples.csv");
        let export = ["--export-csv", csv.to_str().unwrap()];
        let flags =
            [&["--device", &device, "--runs", "3", "--one-at-a-time"], &export[..]].concat();
        let running = start(&site, &["ext4", "ext2"], &flags, &["sleep 0.3"]);
        // In the middle of a trial of the second block.
        wait_until("three trials have ended", || records_so_far(&site) == 3);
        std::thread::sleep(Duration::from_millis(150));
        if name == Signal::INT {
            interrupt(&running)
        } else {
            signal(running.number(), name)
        }
        let ran = running.finish().expect(code);
        site.expect_nothing_left();
        assert!(ran.stderr.contains("kurabe resume result"), "{}", ran.stderr);
        assert!(ran.elapsed < Duration::from_secs(60), "{:?}", ran.elapsed);
        // The tables of what there is are printed, and printed again.
        let report = site.run(&["report", "result"]).expect(0);
        assert!(report.stdout.contains("ext4") && report.stdout == ran.stdout);
        // The exports were written after the first block.
        assert!(fs::read_to_string(&csv).unwrap().lines().count() >= 3);

        let plan = fs::read(site.work().join("result/plan.json")).unwrap();
        let before = records_so_far(&site);
        site.run(&["resume", "result"]).expect(0);
        site.expect_nothing_left();
        assert_eq!(fs::read(site.work().join("result/plan.json")).unwrap(), plan);
        let records = site.records();
        // The second block had been half done, on a device that is gone: all of it was repeated.
        let completed: Vec<(u64, u64)> = records
            .iter()
            .filter(|record| record["outcome"]["kind"] == "completed")
            .map(|record| (record["trial"].as_u64().unwrap(), record["session"].as_u64().unwrap()))
            .collect();
        let expected = [(0, 1), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (5, 2)];
        assert_eq!(completed, expected, "after {before} records");
        // What was superseded does not count: six trials, three pairs.
        assert_eq!(site.json("comparisons.json")[0]["blocks"], 3);
        assert!(site.work().join("result/facts-1.json").exists());
        let interrupted =
            records.iter().filter(|record| record["outcome"]["kind"] == "interrupted").count();
        assert_eq!(records.len(), 7 + interrupted);
        assert!(interrupted <= 1);
        // Nothing is left to do, and doing that is no error; the device is not filled for it.
        let ran = site.run(&["resume", "result"]).expect(0).says(&["nothing is left to do"]);
        assert!(ran.stdout.contains("the study was resumed: "), "{}", ran.stdout);
        assert_eq!(ran.stdout, site.run(&["report", "result"]).expect(0).stdout);
        assert_eq!(site.records().len(), records.len());
        assert!(!site.work().join("result/facts-2.json").exists());
    }
}

#[test]
fn a_stop_while_the_device_is_filled_is_heard_at_once() {
    if !root() {
        return;
    }
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let site = Site::new();
        let device = site.image_device("3G");
        let running = start(&site, &["ext4"], &["--device", &device], &["true"]);
        wait_until("the image is there", || site.image().is_some());
        signal(running.number(), name);
        let asked = std::time::Instant::now();
        running.finish().expect(code);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        site.expect_nothing_left();
        assert_eq!(records_so_far(&site), 0);
    }
}

#[test]
fn a_command_that_ignores_signals_is_stopped_all_the_same() {
    if !root() {
        return;
    }
    let site = Site::new();
    let command = "trap '' INT TERM HUP; setsid sleep 1000 & sleep 1000";
    let running = start(&site, &["ext4"], &[], &[command]);
    wait_until("the command runs", || {
        site.taken().iter().filter(|taken| taken.starts_with("process sleep")).count() == 2
    });
    interrupt(&running);
    // A person who sees nothing happen presses it again.
    std::thread::sleep(Duration::from_millis(20));
    signal(running.number(), Signal::INT);
    let ran = running.finish().expect(130);
    assert!(ran.elapsed < Duration::from_secs(30), "{:?}", ran.elapsed);
    site.expect_nothing_left();
    assert_eq!(site.records()[0]["outcome"]["kind"], "interrupted");
}

/// Twelve instants, from before the ledger is begun to after the last unmount. A study that was
/// stopped says so by its code; one that was not has all its records.
#[test]
fn a_stop_at_any_instant_gives_everything_back() {
    if !root() {
        return;
    }
    let seed = 20_261_121;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let begin = |site: &Site| {
        let device = site.image_device("64M");
        let flags = ["--device", &device, "--runs", "1", "--setup", "head -c 8000000 /dev/zero >a"];
        start(site, &["ext4"], &flags, &["head -c 8000000 a >b; sync"])
    };
    let whole = begin(&Site::new()).finish().expect(0).elapsed;
    let mut stopped = 0;
    for round in 0..12 {
        let site = Site::new();
        let mut running = begin(&site);
        let delay = Duration::from_micros(random.below(whole.as_micros() as u64));
        std::thread::sleep(delay);
        let ended = running.has_ended();
        let (name, code) = if round % 2 == 0 { (Signal::INT, 130) } else { (Signal::TERM, 143) };
        signal(running.number(), name);
        let ran = running.finish();
        let context = format!("round {round}, after {delay:?}: {ran:#?}");
        match ran.code {
            Some(0) => {
                assert_eq!(site.record_of("ext4")["outcome"]["kind"], "completed", "{context}");
                assert!(!ran.stdout.is_empty(), "{context}");
            }
            // In its first milliseconds kurabe has taken nothing and the signal simply ends it.
            None => assert!(!ended && ran.stderr.is_empty(), "{context}"),
            other => {
                assert_eq!(other, Some(code), "{context}");
                assert!(!ended, "{context}");
                let completed =
                    |record: &serde_json::Value| record["outcome"]["kind"] == "completed";
                // A stop after the last trial finds nothing to stop.
                let is_late = site.records().iter().any(completed);
                assert!(is_late || ran.stdout.is_empty() || ran.stderr.contains("stopped"));
                stopped += 1;
            }
        }
        let taken = site.taken();
        assert!(taken.is_empty(), "round {round}, after {delay:?}: {taken:#?}");
        if site.work().join("result/plan.json").exists() {
            site.run(&["report", "result"]).expect(0);
        }
    }
    assert!(stopped >= 6, "only {stopped} of 12 studies were stopped");
}

#[test]
fn a_result_is_written_by_one_kurabe_at_a_time() {
    let site = Site::new();
    let running = start(&site, &["dir:/dev/shm"], &["--runs", "2"], &["sleep 1"]);
    wait_until("the first trial has begun", || site.work().join("result/facts.json").exists());
    site.run(&["resume", "result"]).expect(2).says(&["is writing it; wait for it to end"]);
    running.finish().expect(0);
    assert_eq!(site.records().len(), 2);
}

/// The wall clock of whoever loads it jumps forwards and backwards by 19 years, each time that it is asked.
const JUMPING_CLOCK: &str = r"
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int calls;
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 2 ? -600000000 : 600000000;
    return result;
}
";

#[test]
fn a_clock_that_jumps_changes_nothing_but_the_moments_in_the_records() {
    if !root() {
        return;
    }
    let site = Site::new();
    let (source, library) = (site.home().join("clock.c"), site.home().join("clock.so"));
    fs::write(&source, JUMPING_CLOCK).unwrap();
    let mut compile = std::process::Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    if !compile.output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no C compiler");
        return;
    }
    let jumping = |mut command: std::process::Command| {
        command.env("LD_PRELOAD", &library);
        command
    };
    // Bounds and waits of every kind, and another kurabe that looks for what the dead have left.
    let flags = ["--runs", "2", "--timeout", "10m", "--budget", "20m", "--one-at-a-time"];
    let study = site.compare_command(&["ext4", "ext2"], &flags, &["echo x >x; sleep 0.3"]);
    let running = site.start(jumping(study));
    wait_until("a trial has ended", || records_so_far(&site) > 0);
    site.finish(jumping(site.kurabe(&["clean"]))).expect(0);
    signal(running.number(), Signal::INT);
    running.finish().expect(130);
    site.finish(jumping(site.kurabe(&["resume", "result"]))).expect(0);
    let records = site.records();
    // The round that was interrupted is begun anew.
    let kinds = harness::kinds(&records);
    assert!(kinds.iter().filter(|kind| **kind == "completed").count() >= 4, "{kinds:?}");
    assert!(!kinds.contains(&"failed"), "{kinds:?}");
    const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    for record in &records {
        // The clock did jump, and what was measured is no year long.
        let began = record["started_unix_ns"].as_u64().unwrap();
        assert!(began.abs_diff(now) > 15 * YEAR_NS, "{record}");
        let phases = record["phases"].as_array().unwrap();
        let elapsed = phases.iter().map(|phase| phase["elapsed_ns"].as_u64().unwrap());
        assert!(elapsed.sum::<u64>() < YEAR_NS, "{record}");
    }
    site.expect_nothing_left();
}
