//! The parts of pjdfstest that a flat file system can pass.
//!
//! The published suite (the crate `pjdfstest`, unmodified) makes a directory for each test, which
//! a flat file system refuses; `pjdfstest/shim.c` mounts the volume over that directory, so each
//! test finds itself in the root of an empty volume. `pjdfstest/excluded.txt` lists what cannot
//! pass and why. The list is exact: a test that fails and does not stand there fails this one, and
//! so does one that stands there and passes.
//!
//! Needs root, /dev/fuse, overlayfs, cc and pjdfstest (in PATH, or where `MINFS_PJDFSTEST` says);
//! says so and passes where one is missing. The kernel's module passes the same tests, in the guest that
//! `MINFS_MODULE_GUEST` names (`module/guest.sh`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pjdfstest");
/// How `run.sh` is started.
const ALONE: &[&str] =
    &["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"];

/// The names of all tests with this outcome: each line is a name, spaces and a word.
fn with_outcome<'a>(output: &'a str, outcome: &str) -> BTreeSet<&'a str> {
    let lines = output.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(_, rest)| rest.trim() == outcome).map(|(name, _)| name).collect()
}

fn pjdfstest() -> String {
    std::env::var("MINFS_PJDFSTEST").unwrap_or_else(|_| "pjdfstest".into())
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Says so where something is missing.
fn has_all(needed: &[(bool, &str)]) -> bool {
    let missing = needed.iter().find(|(is_there, _)| !is_there);
    if let Some((_, what)) = missing {
        eprintln!("SKIPPED: this needs {what}");
    }
    missing.is_none()
}

/// Puts what `run.sh` needs into the directory.
fn prepare(directory: &Path) {
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-o"])
        .arg(directory.join("shim.so"))
        .arg(format!("{HERE}/shim.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    fs::copy(MINFS, directory.join("minfs")).unwrap();
    fs::copy(format!("{HERE}/config.toml"), directory.join("config.toml")).unwrap();
}

fn judge(text: &str) {
    let list = fs::read_to_string(format!("{HERE}/excluded.txt")).unwrap();
    let excluded: BTreeSet<_> =
        list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let (passed, failed) = (with_outcome(text, "ok"), with_outcome(text, "FAILED"));
    println!("pjdfstest: {} passed, {} excluded", passed.len(), failed.len());
    let unexpected: Vec<_> = failed.difference(&excluded).collect();
    assert!(unexpected.is_empty(), "these fail: {unexpected:?}\n{text}");
    let stale: Vec<_> = excluded.difference(&failed).collect();
    assert!(stale.is_empty(), "these are excluded but did not fail: {stale:?}");
    // As many as with pjdfstest 0.2.2, so that a run which hardly started is no success.
    assert!(passed.len() >= 109, "only {} passed", passed.len());
}

#[test]
fn all_but_the_excluded_tests_pass() {
    let program = pjdfstest();
    let overlay = fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("overlay");
    if !has_all(&[
        (rustix::process::geteuid().is_root(), "root"),
        (Path::new("/dev/fuse").exists(), "/dev/fuse"),
        (overlay, "overlayfs"),
        (has("cc"), "cc"),
        (has(&program), "pjdfstest (`cargo install pjdfstest` brings it)"),
    ]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let output = Command::new(ALONE[0])
        .args(&ALONE[1..])
        .arg(format!("{HERE}/run.sh"))
        .arg(&program)
        .current_dir(&directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    judge(&text);
}

#[test]
fn the_module_passes_the_same_tests() {
    let guest = std::env::var("MINFS_MODULE_GUEST").unwrap_or_default();
    let program = pjdfstest();
    if !has_all(&[
        (!guest.is_empty(), "a guest, which MINFS_MODULE_GUEST names"),
        (has("cc"), "cc"),
        (has(&program), "pjdfstest (`cargo install pjdfstest` brings it)"),
    ]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let image = directory.path().join("image");
    let minfs = |words: &[&str]| {
        assert!(Command::new(MINFS).args(words).arg(&image).status().unwrap().success());
    };
    minfs(&["mkfs", "-q", "--size", "5G"]);
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/kernel/minfs.ko");
    let mut running = Command::new(guest)
        .arg(&image)
        .args(["sh", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/module/inside.sh")])
        .arg(std::env::var("MINFS_MODULE").unwrap_or_else(|_| module.into()))
        .args(["env", "-C"])
        .arg(directory.path())
        .arg("MINFS_DISK=/dev/vda")
        .args(ALONE)
        .arg(format!("{HERE}/run.sh"))
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The guest's output ends with its input.
    let input = running.stdin.take();
    let output = running.wait_with_output().unwrap();
    drop(input);
    judge(&String::from_utf8_lossy(&output.stdout));
    minfs(&["fsck", "-n"]);
}
