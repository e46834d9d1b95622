//! JFS: jfsutils.

use super::Tool;
use super::kernel::{KernelFileSystem, words};

/// JFS.
pub static JFS: KernelFileSystem = KernelFileSystem {
    name: "jfs",
    summary: "extents and a journal of metadata, from AIX and OS/2; little CPU",
    // fsck.jfs and jfs_tune come with it.
    tools: &[Tool { name: "mkfs.jfs", package: "jfsutils", version: Some("-V") }],
    // mkfs.jfs refuses less.
    size_bytes_min: 16 << 20,
    size_bytes_ordinary: None,
    make: |stage| {
        let mut command = words(&["mkfs.jfs", "-q"]);
        command.extend(stage.mkfs_options.iter().cloned());
        command.push(stage.node_text());
        command
    },
    // Neither mkfs nor the mount discards unless asked.
    mount_options_without_discard: &[],
    geometry: &["jfs_tune", "-l"],
    check: &["fsck.jfs", "-n", "-f"],
    repair: &["fsck.jfs", "-p"],
    check_meaning: |code| {
        if code & 4 == 4 { "errors were found" } else { "it could not be checked" }
    },
    background_threads: &[],
};
