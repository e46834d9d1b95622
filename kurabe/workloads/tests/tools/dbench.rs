//! Tests of whole dbench runs, with the installed one.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use workloads::dbench::real::{Dbench, dbench};
use workloads::tool::WorkloadTool;

use super::installed;

fn plan(directory: &Path, clients: u32, execute_seconds: u32) -> Dbench<'_> {
    Dbench { directory, clients, execute_seconds }
}

#[test]
fn the_installed_one_is_run_and_read() {
    if !installed(WorkloadTool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let report = dbench(&plan(directory.path(), 2, 2), &AtomicBool::new(false)).unwrap();
    assert_eq!(report.version, "4.00");
    assert_eq!(report.clients, 2);
    assert!(!report.progress.is_empty());
    assert!(report.operations.iter().any(|line| line.operation == "NTCreateX"));
    assert_eq!(report.complaints, Vec::<String>::new());
}

#[test]
fn a_raised_stop_ends_its_clients_too() {
    if !installed(WorkloadTool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), 3, 600);
    let stop = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(2));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        dbench(&plan, &stop).unwrap_err()
    });
    assert!(error.contains("was stopped"), "{error}");
    // Its command line names the directory, so a client that was left would be found by it.
    let wanted = directory.path().to_str().unwrap();
    let left = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        std::fs::read_to_string(entry.path().join("cmdline"))
            .is_ok_and(|line| line.starts_with("/usr/bin/dbench") && line.contains(wanted))
    });
    assert!(left.is_none(), "{left:?} was left behind");
}

#[test]
fn clients_that_do_not_fit_are_refused_with_both_sizes() {
    if !installed(WorkloadTool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), 1 << 30, 1);
    let error = dbench(&plan, &AtomicBool::new(false)).unwrap_err();
    assert!(error.contains("clients take") && error.contains(" has "), "{error}");
}
