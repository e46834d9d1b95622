//! Tests of the replay on small workloads in a temporary directory.

use std::fs;
use std::time::Instant;

use super::*;
use crate::dbench::loadfile::DbenchOperation;

/// Each kind of operation, each outcome that a load file can expect.
const LOAD: &str = r#"
Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 16385 NT_STATUS_OK
Close 16385 NT_STATUS_OK
NTCreateX "\clients\client1\missing" 0x40 0x1 7 NT_STATUS_OBJECT_NAME_NOT_FOUND
QUERY_PATH_INFORMATION "\clients\client1\missing" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
FIND_FIRST "\clients\client1\*.TMP" 260 1366 0 NT_STATUS_NO_SUCH_FILE
NTCreateX "\clients\client1\one" 0x40 0x2 8 NT_STATUS_OK
QUERY_FS_INFORMATION 1 NT_STATUS_OK
WriteX 8 0 65536 65536 NT_STATUS_OK
WriteX 8 100000 10 10 NT_STATUS_OK
ReadX 8 0 4096 4096 NT_STATUS_OK
QUERY_FILE_INFORMATION 8 258 NT_STATUS_OK
SET_FILE_INFORMATION 8 1004 NT_STATUS_OK
LockX 8 0 1 NT_STATUS_OK
UnlockX 8 0 1 NT_STATUS_OK
Flush 8 NT_STATUS_OK
Close 8 NT_STATUS_OK
Rename "\clients\client1\one" "\clients\client1\two" NT_STATUS_OK
NTCreateX "\clients\client1\sub" 0x1 0x2 9 NT_STATUS_OK
Close 9 NT_STATUS_OK
NTCreateX "\clients\client1\sub\three" 0x40 0x5 9 NT_STATUS_OK
Close 9 NT_STATUS_OK
Unlink "\clients\client1\two" 0x6 NT_STATUS_OK
Deltree "\clients\client1" NT_STATUS_OK
Rmdir "\clients\client1\sub" NT_STATUS_OK
"#;

fn load(text: &str) -> LoadFile {
    LoadFile::parse(text.as_bytes()).unwrap()
}

fn plan<'a>(load: &'a LoadFile, directory: &'a Path) -> DbenchReplay<'a> {
    DbenchReplay {
        load,
        directory,
        device: None,
        clients: 2,
        warmup: Duration::from_millis(100),
        execute: Duration::from_millis(300),
        acknowledger: None,
    }
}

fn run(plan: &DbenchReplay<'_>) -> Result<(ReplayReport, LatencyRecording), String> {
    replay(plan, &AtomicBool::new(false))
}

fn bytes(report: &ReplayReport) -> u64 {
    report.seconds_of(ReplayPhase::Execute).map(|second| second.bytes).sum()
}

#[test]
fn all_operations_run_and_are_counted_in_proportion() {
    let load = load(LOAD);
    let directory = tempfile::tempdir().unwrap();
    let (report, latencies) = run(&plan(&load, directory.path())).unwrap();
    let latencies = latencies.summary();

    assert_eq!(report.reads_short, 0);
    assert_eq!(report.opened_unexpectedly, 0);
    assert!(report.passes > 4, "{} passes", report.passes);
    let count = |kind: OperationKind| {
        latencies
            .kinds
            .iter()
            .find(|entry| entry.operation == kind.to_string())
            .map_or(0, |entry| entry.count)
    };
    let passes = count(OperationKind::Flush);
    for kind in OperationKind::counted() {
        let of_kind = |operation: &&DbenchOperation| operation.kind == kind;
        let times = load.operations.iter().filter(of_kind).count() as u64;
        assert!(times > 0, "{} is not in the load", kind);
        // Each client may be in the middle of a pass at either end of the phase.
        assert!(count(kind).abs_diff(passes * times) <= 4 * times, "{}", kind.to_string());
    }
    // The bytes of the latencies are counted as an operation ends, those of the seconds by the
    // monitor at the end of the phase: the clients may be one operation on.
    let apart = latencies.overall.bytes.abs_diff(bytes(&report));
    assert!(apart <= 20 * 65_536, "{apart} bytes apart");
    // What both phases wrote is more than what the counted one did.
    let writes =
        latencies.kinds.iter().find(|entry| entry.operation == OperationKind::WriteX.to_string());
    let counted = writes.unwrap().bytes;
    assert!(counted > 0 && report.written_bytes > counted, "{} {counted}", report.written_bytes);
    assert_eq!(report.counters.len(), report.seconds.len() + 1);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "the replay left {left:?}");
}

#[test]
fn clients_work_in_directories_of_their_own() {
    let load = load(
        "Mkdir \"\\clients\" NT_STATUS_OK\nMkdir \"\\clients\\client1\" NT_STATUS_OK\nNTCreateX \
         \"\\clients\\client1\\client1.doc\" 0x40 0x2 5 NT_STATUS_OK\nWriteX 5 0 10 10 \
         NT_STATUS_OK\nClose 5 NT_STATUS_OK\n",
    );
    let directory = tempfile::tempdir().unwrap();
    for id in 0..12 {
        let mut client = DbenchClient::new(&load, directory.path(), id);
        for operation in &load.operations {
            client.perform(operation).unwrap();
        }
    }
    for id in 0..12 {
        let file = directory.path().join(format!("clients/client{id}/client{id}.doc"));
        assert_eq!(fs::metadata(file).unwrap().len(), 10);
    }
}

#[test]
fn a_failing_operation_names_client_line_path_and_reason() {
    let load = load(
        "Mkdir \"\\clients\" NT_STATUS_OK\n# nothing\nUnlink \"\\clients\\client1\" 0x6 \
         NT_STATUS_OK\n",
    );
    let directory = tempfile::tempdir().unwrap();
    let error = run(&DbenchReplay { clients: 1, ..plan(&load, directory.path()) }).unwrap_err();
    let text = error;
    assert!(text.starts_with("client 0 failed at line 3: Unlink "), "{text}");
    assert!(text.contains("/clients/client0: No such file"), "{text}");
    assert!(!directory.path().join("clients").exists());
}

#[test]
fn an_operation_that_was_to_fail_and_did_not_is_an_error() {
    let load = load("Mkdir \"\\a\" NT_STATUS_OK\nRmdir \"\\a\" NT_STATUS_ACCESS_DENIED\n");
    let directory = tempfile::tempdir().unwrap();
    let error = run(&DbenchReplay { clients: 1, ..plan(&load, directory.path()) }).unwrap_err();
    assert!(error.to_string().contains("was to fail"), "{error}");
}

#[test]
fn complaints_of_dbench_are_counted() {
    let load = load(
        "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nReadX 5 0 100 100 NT_STATUS_OK\nClose 5 \
         NT_STATUS_OK\nNTCreateX \"\\a\" 0x40 0x1 5 NT_STATUS_NO_SUCH_FILE\nUnlink \"\\a\" 0x6 \
         NT_STATUS_OK\n",
    );
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = run(&DbenchReplay { clients: 1, ..plan(&load, directory.path()) }).unwrap();
    assert!(report.reads_short > 0);
    assert!(report.reads_short.abs_diff(report.opened_unexpectedly) <= 1);
    // dbench counts the bytes that were asked for.
    assert!(bytes(&report) > 0);
}

#[test]
fn what_is_in_the_way_is_refused_and_kept() {
    let load = load(LOAD);
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("clients")).unwrap();
    fs::write(directory.path().join("clients/precious"), "x").unwrap();
    let error = run(&plan(&load, directory.path())).unwrap_err();
    assert!(error.contains("exists already"), "{error}");
    assert!(directory.path().join("clients/precious").exists());
}

#[test]
fn a_workload_that_does_not_fit_is_refused_with_both_sizes() {
    let load = load(
        "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nWriteX 5 4000000000 1 1 NT_STATUS_OK\nClose 5 \
         NT_STATUS_OK\n",
    );
    let directory = tempfile::tempdir().unwrap();
    let error =
        run(&DbenchReplay { clients: 1 << 30, ..plan(&load, directory.path()) }).unwrap_err();
    let needed_bytes = 4_000_000_001_u64 << 30;
    assert!(error.contains(&format!("take {needed_bytes} bytes")), "{error}");
    assert!(error.contains(" has "), "{error}");
    let missing = directory.path().join("missing");
    let error = run(&plan(&load, &missing)).unwrap_err();
    assert!(error.contains("missing: No such file"), "{error}");
}

#[test]
fn a_raised_stop_ends_the_run_early_and_cleans_up() {
    let load = load(LOAD);
    let directory = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let long = DbenchReplay { execute: Duration::from_secs(600), ..plan(&load, directory.path()) };
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        replay(&long, &stop).unwrap_err()
    });
    assert!(error.contains("was stopped"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!directory.path().join("clients").exists());
}

#[test]
fn a_timed_line_waits_for_its_time() {
    let load = load("Mkdir \"\\a\" NT_STATUS_OK\n0.1 QUERY_FS_INFORMATION 1 NT_STATUS_OK\n");
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = run(&DbenchReplay {
        clients: 1,
        warmup: Duration::ZERO,
        execute: Duration::from_millis(950),
        ..plan(&load, directory.path())
    })
    .unwrap();
    // A pass may begin and end between the end of the phase and the clients' halt.
    let passes_max = report.length_ns(ReplayPhase::Execute) / 100_000_000 + 1;
    assert!((1..=passes_max).contains(&report.passes), "{} of {passes_max}", report.passes);
}

/// Locks belong to a file table: two clients of one process must exclude each other as two
/// processes would.
#[test]
fn clients_on_threads_lock_like_processes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    fs::write(&path, "0").unwrap();
    let held = std::sync::Barrier::new(2);
    let released = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            sys::own_file_table().unwrap();
            let file = fs::File::options().read(true).write(true).open(&path).unwrap();
            sys::lock_range(std::os::fd::AsFd::as_fd(&file), true, 0, 1).unwrap();
            held.wait();
            thread::sleep(Duration::from_millis(100));
            released.store(true, Ordering::SeqCst);
            sys::lock_range(std::os::fd::AsFd::as_fd(&file), false, 0, 1).unwrap();
        });
        scope.spawn(|| {
            sys::own_file_table().unwrap();
            let file = fs::File::options().read(true).write(true).open(&path).unwrap();
            held.wait();
            sys::lock_range(std::os::fd::AsFd::as_fd(&file), true, 0, 1).unwrap();
            assert!(released.load(Ordering::SeqCst), "the lock was had while it was held");
        });
    });
}

#[test]
fn a_run_without_a_warm_up_counts_from_the_first_operation_on() {
    let load = load(LOAD);
    let directory = tempfile::tempdir().unwrap();
    let plan = DbenchReplay { warmup: Duration::ZERO, ..plan(&load, directory.path()) };
    let (report, _) = run(&plan).unwrap();
    assert_eq!((report.seconds[0].phase, report.seconds[0].start_ns), (ReplayPhase::Execute, 0));
    assert_eq!(report.length_ns(ReplayPhase::Warmup), 0);
}
