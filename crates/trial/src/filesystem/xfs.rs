//! XFS: xfsprogs.

use super::Tool;
use super::kernel::{KernelFileSystem, words};

/// XFS.
pub static XFS: KernelFileSystem = KernelFileSystem {
    name: "xfs",
    summary: "allocation groups that work side by side, B+ trees, a log of metadata",
    tools: &[tool("mkfs.xfs"), tool("xfs_info"), tool("xfs_repair")],
    // mkfs.xfs refuses less than 300 MB.
    size_bytes_min: 300 << 20,
    size_bytes_ordinary: None,
    make: |stage| {
        let mut command = words(&["mkfs.xfs", "-q", "-f"]);
        if !stage.discard {
            command.push("-K".into());
        }
        command.extend(stage.mkfs_options.iter().cloned());
        command.push(stage.node_text());
        command
    },
    // Discards are off unless asked for.
    mount_options_without_discard: &[],
    geometry: &["xfs_info"],
    check: &["xfs_repair", "-n"],
    // xfs_repair(8), EXIT STATUS.
    repair: &["xfs_repair"],
    check_meaning: |code| match code {
        1 => "the check found damage",
        2 => "the check found a log that was not replayed",
        _ => "the check could not be carried out",
    },
    background_threads: &[],
};

const fn tool(name: &'static str) -> Tool {
    Tool { name, package: "xfsprogs", version: Some("-V") }
}
