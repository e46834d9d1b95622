//! Tests of whole bonnie++ runs, with the installed one.

use std::fs;
use std::sync::atomic::AtomicBool;

use workloads::bonnie::{Bonnie, bonnie};
use workloads::tool::WorkloadTool;

use super::installed;

#[test]
fn the_installed_one_is_run_and_read() {
    if !installed(WorkloadTool::Bonnie) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = Bonnie { directory: directory.path(), size_mib: 16, files_1024: 1 };
    let report = bonnie(&plan, &AtomicBool::new(false)).unwrap();
    let record = &report.records[0];
    assert_eq!(record.tests.len(), 12, "{}", report.finished.stdout);
    assert!(record.tests.iter().all(|result| result.latency_max_ns.is_some()));
    assert!(report.finished.stderr.contains("Sequential Output"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_does_not_fit_is_refused_with_both_sizes() {
    if !installed(WorkloadTool::Bonnie) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = Bonnie { directory: directory.path(), size_mib: 1 << 30, files_1024: 0 };
    let error = bonnie(&plan, &AtomicBool::new(false)).unwrap_err();
    assert!(error.contains(&format!("take {} bytes", 1_u64 << 50)), "{error}");
    assert!(error.contains(" has "), "{error}");
}
