//! F2FS: f2fs-tools.

use super::Tool;
use super::kernel::{KernelFileSystem, words};

/// F2FS.
pub static F2FS: KernelFileSystem = KernelFileSystem {
    name: "f2fs",
    summary: "several logs for data of different age, made for flash; discards unless told not to",
    // fsck.f2fs comes with it.
    tools: &[Tool { name: "mkfs.f2fs", package: "f2fs-tools", version: Some("-V") }],
    // mkfs.f2fs refuses less than about 50 MiB.
    size_bytes_min: 128 << 20,
    size_bytes_ordinary: None,
    make: |stage| {
        let mut command = words(&["mkfs.f2fs", "-q", "-f"]);
        if !stage.discard {
            command.extend(words(&["-t", "0"]));
        }
        command.extend(stage.mkfs_options.iter().cloned());
        command.push(stage.node_text());
        command
    },
    mount_options_without_discard: &["nodiscard"],
    geometry: &["fsck.f2fs", "-l"],
    check: &["fsck.f2fs", "--dry-run", "-f"],
    repair: &["fsck.f2fs", "-f"],
    check_meaning: |_| "errors were found",
    background_threads: &[],
};
