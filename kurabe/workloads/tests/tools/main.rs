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

use workloads::tool::WorkloadTool;

/// Whether a tool is installed; says that nothing is run when it is not.
fn installed(tool: WorkloadTool) -> bool {
    let found = tool.locate().is_ok();
    if !found {
        eprintln!("SKIPPED: {} is not installed", tool.program());
    }
    found
}
