//! Tests of whole dbench runs, with the installed one.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use loads::dbench::real::{Dbench, DbenchError, dbench};
use loads::tool::{Tool, ToolError};

use super::{installed, tells_both_sizes};

/// Its own load file, and no options.
fn plan(directory: &Path, clients: u32, execute_seconds: u32) -> Dbench<'_> {
    Dbench { directory, clients, execute_seconds, load_file: None, options: &[] }
}

#[test]
fn the_installed_one_is_run_and_read() {
    if !installed(Tool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = ["-F".to_owned()];
    let plan = Dbench { options: &options, ..plan(directory.path(), 2, 2) };
    let mut seconds = 0;
    let report = dbench(&plan, &AtomicBool::new(false), &mut |_| seconds += 1).unwrap();
    assert_eq!(report.version, "4.00");
    assert_eq!(report.clients, 2);
    assert_eq!(report.progress.len(), seconds);
    assert!(report.operations.iter().any(|line| line.operation == "NTCreateX"));
    assert_eq!(report.complaints, Vec::<String>::new());
    assert!(report.finished.command.contains(&"-F".to_owned()));
}

#[test]
fn its_own_complaint_is_shown() {
    if !installed(Tool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let load_file = Some(Path::new("/nonexistent/load"));
    let plan = Dbench { load_file, ..plan(directory.path(), 1, 1) };
    let error = dbench(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/load"), "{error}");
}

#[test]
fn a_raised_stop_ends_its_clients_too() {
    if !installed(Tool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), 3, 600);
    let stop = AtomicBool::new(false);
    let error = dbench(&plan, &stop, &mut |_| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    })
    .unwrap_err();
    let DbenchError::Tool(ToolError::Stopped(finished)) = error else {
        panic!("{error}");
    };
    assert!(finished.stdout.contains("warmup"));
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
    if !installed(Tool::Dbench) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), 1 << 30, 1);
    let error = dbench(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    let DbenchError::TooBig { needed_bytes, available_bytes, .. } = &error else {
        panic!("{error}");
    };
    tells_both_sizes(&error, *needed_bytes, *available_bytes);
}
