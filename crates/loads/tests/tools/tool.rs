//! Tests of running tools, with the shell as the tool.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use loads::tool::{Stream, ToolCommand, ToolError, run};

fn shell(script: &str) -> ToolCommand {
    ToolCommand::at("sh", PathBuf::from("/bin/sh")).argument("-c").argument(script)
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
fn both_streams_are_kept_and_handed_on() {
    let mut seen = Vec::new();
    let finished = run(
        &shell("echo one; echo two >&2; printf three"),
        &AtomicBool::new(false),
        &mut |stream, line| seen.push((stream, line.to_owned())),
    )
    .unwrap();
    assert_eq!(finished.stdout, "one\nthree");
    assert_eq!(finished.stderr, "two\n");
    assert!(seen.contains(&(Stream::Stdout, "three".to_owned())));
    assert!(seen.contains(&(Stream::Stderr, "two".to_owned())));
}

#[test]
fn a_tool_that_dies_leaves_its_output_in_the_error() {
    let error =
        run(&shell("echo half; kill -9 $$"), &AtomicBool::new(false), &mut |_, _| {}).unwrap_err();
    let finished = error.finished().unwrap();
    assert_eq!(finished.signal, Some(9));
    assert_eq!(finished.stdout, "half\n");
    assert!(error.to_string().contains("killed by signal 9"));
    assert!(error.to_string().contains("half"));
}

#[test]
fn a_raised_stop_ends_descendants_in_other_sessions_too() {
    let stop = AtomicBool::new(false);
    let mut pids: Vec<i32> = Vec::new();
    let script = "sleep 300 & echo $!; setsid sleep 300 & sleep 0.2; echo $!; echo ready; wait";
    let error = run(&shell(script), &stop, &mut |_, line| {
        if let Ok(pid) = line.parse() {
            pids.push(pid);
        }
        if line == "ready" {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap_err();
    assert!(matches!(error, ToolError::Stopped(_)), "{error}");
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(is_gone(pid), "process {pid} was left behind");
    }
}

#[test]
fn a_panicking_listener_leaves_no_child() {
    let pid = std::sync::Mutex::new(0);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = run(&shell("echo $$; sleep 300"), &AtomicBool::new(false), &mut |_, line| {
            *pid.lock().unwrap() = line.parse().unwrap();
            panic!("the listener fails");
        });
    }));
    assert!(outcome.is_err());
    let pid = *pid.lock().unwrap_or_else(|poisoned| {
        panic!("the number was not stored: {poisoned}");
    });
    assert!(is_gone(pid));
}
