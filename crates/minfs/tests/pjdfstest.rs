//! The parts of pjdfstest that a flat file system can pass.
//!
//! The published suite (the crate `pjdfstest`, unmodified) makes a directory for each test, which
//! a flat file system refuses; `pjdfstest/shim.c` mounts the volume over that directory, so each
//! test finds itself in the root of an empty volume. `pjdfstest/excluded.txt` lists what cannot
//! pass and why. The list is exact: a test that fails and does not stand there fails this one, and
//! so does one that stands there and passes.
//!
//! Needs root, /dev/fuse, overlayfs, cc and pjdfstest (in PATH, or where `MINFS_PJDFSTEST` says);
//! says so and passes where one is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pjdfstest");

/// The names of all tests with this outcome: each line is a name, spaces and a word.
fn with_outcome<'a>(output: &'a str, outcome: &str) -> BTreeSet<&'a str> {
    let lines = output.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(_, rest)| rest.trim() == outcome).map(|(name, _)| name).collect()
}

#[test]
fn all_but_the_excluded_tests_pass() {
    let program = std::env::var("MINFS_PJDFSTEST").unwrap_or_else(|_| "pjdfstest".into());
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let overlay = fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("overlay");
    let missing = [
        (!rustix::process::geteuid().is_root(), "root"),
        (!Path::new("/dev/fuse").exists(), "/dev/fuse"),
        (!overlay, "overlayfs"),
        (!has("cc"), "cc"),
        (!has(&program), "pjdfstest (`cargo install pjdfstest` brings it)"),
    ];
    if let Some((_, what)) = missing.into_iter().find(|(is_missing, _)| *is_missing) {
        eprintln!("SKIPPED: this needs {what}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-o"])
        .arg(path("shim.so"))
        .arg(format!("{HERE}/shim.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    fs::copy(MINFS, path("minfs")).unwrap();
    fs::copy(format!("{HERE}/config.toml"), path("config.toml")).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
        .arg(format!("{HERE}/run.sh"))
        .arg(&program)
        .current_dir(&directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");

    let list = fs::read_to_string(format!("{HERE}/excluded.txt")).unwrap();
    let excluded: BTreeSet<_> =
        list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let (passed, failed) = (with_outcome(&text, "ok"), with_outcome(&text, "FAILED"));
    println!("pjdfstest: {} passed, {} excluded", passed.len(), failed.len());
    let unexpected: Vec<_> = failed.difference(&excluded).collect();
    assert!(unexpected.is_empty(), "these fail: {unexpected:?}\n{text}");
    let stale: Vec<_> = excluded.difference(&failed).collect();
    assert!(stale.is_empty(), "these are excluded but did not fail: {stale:?}");
    // As many as with pjdfstest 0.2.2, so that a run which hardly started is no success.
    assert!(passed.len() >= 109, "only {} passed", passed.len());
}
