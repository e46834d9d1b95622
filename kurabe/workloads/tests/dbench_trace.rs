//! Proves that the replay makes dbench's own system calls: both run under strace, and the calls
//! that reach the file system are compared one by one.
//!
//! Needs dbench and strace; where one is missing there is nothing to compare, and the test says
//! so.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use workloads::dbench::{DbenchReplay, LoadFile, PACKAGED_LOAD_FILE, replay};

/// The first calls after the start that are compared: both runs are cut off somewhere.
const COMPARED_CALLS: usize = 10_000;
const DIRECTORY_VARIABLE: &str = "KURABE_TEST_TRACED_DIRECTORY";

/// The replay that the test below runs under strace, as a process of its own.
#[test]
#[ignore = "is started under strace by the_replay_makes_the_calls_of_dbench"]
fn replay_to_be_traced() {
    let directory = std::env::var(DIRECTORY_VARIABLE).expect("the tracing test sets it");
    let load = LoadFile::parse(&std::fs::read(PACKAGED_LOAD_FILE).unwrap()).unwrap();
    let plan = DbenchReplay {
        load: &load,
        directory: Path::new(&directory),
        clients: 1,
        warmup: Duration::ZERO,
        execute: Duration::from_secs(4),
        device: None,
        acknowledger: None,
    };
    replay(&plan, &AtomicBool::new(false)).unwrap();
}

#[test]
fn the_replay_makes_the_calls_of_dbench() {
    let installed = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !installed("strace") || !installed("dbench") || !Path::new(PACKAGED_LOAD_FILE).exists() {
        eprintln!("dbench or strace is not installed; nothing to compare");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let real = traced(scratch.path(), "dbench", |directory| {
        let mut command = Command::new("dbench");
        command.arg("-D").arg(directory).args(["-t", "4", "1"]);
        command
    });
    let ours = traced(scratch.path(), "replay", |directory| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["replay_to_be_traced", "--exact", "--ignored"])
            .env(DIRECTORY_VARIABLE, directory);
        command
    });
    for (index, (theirs, ours)) in real.iter().zip(&ours).take(COMPARED_CALLS).enumerate() {
        assert_eq!(theirs, ours, "call {index} differs (dbench's is on the left)");
    }
    let compared = real.len().min(ours.len());
    assert!(compared >= COMPARED_CALLS, "only {compared} calls could be compared");
}

/// The calls of the one client, from its first that names its directory.
fn traced(scratch: &Path, name: &str, command: impl Fn(&Path) -> Command) -> Vec<String> {
    let directory = scratch.join(name);
    std::fs::create_dir(&directory).unwrap();
    let log = scratch.join(format!("{name}.trace"));
    let traced = command(&directory);
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-e", "signal=none", "-e"])
        .arg(
            "trace=open,openat,stat,fstat,newfstatat,getdents64,close,pread64,pwrite64,unlink,unlinkat,\
             rename,renameat,renameat2,mkdir,mkdirat,rmdir,utimensat,statfs,fcntl,fsync",
        )
        .arg("-o")
        .arg(&log)
        .arg(traced.get_program())
        .args(traced.get_args());
    for (key, value) in traced.get_envs() {
        strace.env(key, value.unwrap_or_default());
    }
    let output = strace.output().unwrap();
    assert!(
        output.status.success(),
        "{name}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read_to_string(&log).unwrap();
    let mut of_threads: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut unfinished: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        if let Some(start) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, start.to_owned());
            continue;
        }
        let whole = match call.split_once(" resumed>") {
            Some((_, rest)) => unfinished.remove(thread).unwrap_or_default() + rest,
            None => call.to_owned(),
        };
        of_threads.entry(thread).or_default().push(whole);
    }
    let own = format!("{}/clients", directory.display());
    let client = of_threads
        .into_values()
        .find(|calls| calls.iter().any(|call| call.contains("mkdir") && call.contains(&own)))
        .expect("one thread makes the client's directory");
    let first = client.iter().position(|call| call.contains(&own)).expect("it was found above");
    // A debug build of Rust's library asks whether a descriptor is open before it closes it.
    let calls = client[first..].iter().filter(|call| !call.contains("F_GETFD"));
    calls.map(|call| plain(call, &directory)).collect()
}

/// A call without what may differ: descriptor numbers, buffers, flags that do not reach the
/// file system, and which of several calls for the same thing the C library prefers.
fn plain(call: &str, directory: &Path) -> String {
    let Some((name, rest)) = call.split_once('(') else {
        return call.to_owned();
    };
    let (arguments, result) = rest.rsplit_once(" = ").unwrap_or((rest, ""));
    let failure = result.split_whitespace().nth(1).unwrap_or("");
    let paths: Vec<&str> = arguments
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|path| path.starts_with('/'))
        .map(|path| path.strip_prefix(directory.to_str().unwrap()).unwrap_or(path))
        .collect();
    let moved = match name {
        "pread64" | "pwrite64" => {
            let mut numbers = arguments.rsplit(", ");
            let offset = numbers.next().unwrap_or("");
            format!("{} {}", offset.trim().trim_end_matches(')'), result.trim())
        }
        "open" | "openat" => ["O_RDWR", "O_CREAT", "O_TRUNC", "O_DIRECTORY", "O_NONBLOCK"]
            .into_iter()
            .filter(|flag| arguments.contains(flag))
            .collect::<Vec<_>>()
            .join("|"),
        "fcntl" => {
            let kind = if arguments.contains("F_UNLCK") { "unlock" } else { "lock" };
            let range = arguments.split_once("l_start").map_or("", |(_, range)| range);
            format!("{kind} {range}")
        }
        "getdents64" => (result.trim() == "0").to_string(),
        _ => String::new(),
    };
    let name = match name {
        "stat" | "fstat" | "newfstatat" => "stat",
        "openat" => "open",
        "unlinkat" => "unlink",
        "renameat" | "renameat2" => "rename",
        "mkdirat" => "mkdir",
        other => other,
    };
    format!("{name} {} {moved} {failure}", paths.join(" ")).trim_end().to_owned()
}
