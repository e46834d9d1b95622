//! Tests of whole bonnie++ runs, with the installed one.

use std::fs;
use std::sync::atomic::AtomicBool;

use loads::bonnie::{Bonnie, BonnieError, bonnie};
use loads::tool::Tool;

use super::{installed, tells_both_sizes};

#[test]
fn the_installed_one_is_run_and_read() {
    if !installed(Tool::Bonnie) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = ["-f".to_owned()];
    let plan =
        Bonnie { directory: directory.path(), size_mib: 16, files_1024: 1, options: &options };
    let report = bonnie(&plan, &AtomicBool::new(false)).unwrap();
    let record = &report.records[0];
    // Without the tests by characters.
    assert_eq!(record.tests.len(), 10, "{}", report.finished.stdout);
    assert!(record.tests.iter().all(|result| result.latency_max_ns.is_some()));
    assert!(report.finished.stderr.contains("Sequential Output"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn its_own_complaint_is_shown() {
    if !installed(Tool::Bonnie) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = ["-c".to_owned(), "nonsense".to_owned(), "-E".to_owned()];
    let plan =
        Bonnie { directory: directory.path(), size_mib: 16, files_1024: 0, options: &options };
    let error = bonnie(&plan, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("invalid option"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_does_not_fit_is_refused_with_both_sizes() {
    if !installed(Tool::Bonnie) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan =
        Bonnie { directory: directory.path(), size_mib: 1 << 30, files_1024: 0, options: &[] };
    let error = bonnie(&plan, &AtomicBool::new(false)).unwrap_err();
    let BonnieError::TooBig { needed_bytes, available_bytes, .. } = &error else {
        panic!("{error}");
    };
    tells_both_sizes(&error, *needed_bytes, *available_bytes);
}
