//! Tests that start processes.
//!
//! They are a program of their own because a process that is being started holds, until it has
//! become the tool, a copy of every descriptor of the program that starts it: a test beside it
//! that locks a file would find its lock held after it gave it back.

mod bonnie;
mod dbench;
mod fio;
mod tool;
mod tree;

use loads::tool::Tool;

/// Whether a tool is installed; says that nothing is run when it is not.
fn installed(tool: Tool) -> bool {
    let found = tool.locate().is_ok();
    if !found {
        eprintln!("skipped: {} is not installed", tool.program());
    }
    found
}

/// Checks that a refusal tells what is needed and what there is.
#[track_caller]
fn tells_both_sizes(error: &dyn std::error::Error, needed_bytes: u64, available_bytes: u64) {
    let text = error.to_string();
    for bytes in [needed_bytes, available_bytes] {
        assert!(text.contains(&bytes.to_string()), "no {bytes} in: {text}");
    }
}
