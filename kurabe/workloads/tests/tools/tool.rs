//! Tests of running tools, with the shell as the tool.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use workloads::tool::{ToolError, run};

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script);
    command
}

/// Waits up to a second for a process to be gone (or a zombie that its reaper has not
/// collected yet).
fn is_gone(pid: i32) -> bool {
    for _ in 0..100 {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        match state {
            Err(_) => return true,
            Ok(text) if text.contains(") Z ") => return true,
            Ok(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    false
}

#[test]
fn both_streams_are_kept() {
    let mut command = shell("echo one; echo two >&2; printf three");
    let finished = run(&mut command, &AtomicBool::new(false)).unwrap();
    assert_eq!(finished.stdout, "one\nthree");
    assert_eq!(finished.stderr, "two\n");
}

#[test]
fn a_tool_that_dies_leaves_its_output_in_the_error() {
    let error = run(&mut shell("echo half; kill -9 $$"), &AtomicBool::new(false)).unwrap_err();
    let ToolError::Failed(finished) = &error else { panic!("{error}") };
    assert_eq!(finished.signal, Some(9));
    assert_eq!(finished.stdout, "half\n");
    assert!(error.to_string().contains("killed by signal 9"));
    assert!(error.to_string().contains("half"));
}

#[test]
fn a_raised_stop_ends_descendants_in_other_sessions_too() {
    let stop = AtomicBool::new(false);
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script =
        "sleep 300 & echo $!; setsid sleep 300 & sleep 0.2; echo $!; touch \"$READY\"; wait";
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.exists() {
                thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
        });
        run(shell(script).env("READY", &ready), &stop).unwrap_err()
    });
    let ToolError::Stopped(finished) = error else { panic!("{error}") };
    let pids: Vec<i32> = finished.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(is_gone(pid), "process {pid} was left behind");
    }
}
