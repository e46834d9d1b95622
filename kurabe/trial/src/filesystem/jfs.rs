//! JFS: jfsutils.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// JFS. Neither mkfs nor the mount discards unless asked.
pub static JFS: FileSystem = FileSystem {
    // fsck.jfs and jfs_tune come with it.
    tools: &[LayerTool::new("mkfs.jfs", "jfsutils", "-V")],
    // mkfs.jfs refuses less.
    size_bytes_min: 16 << 20,
    modules: &["jfs"],
    mkfs_flags: "cOqV",
    mkfs_paths: "j",
    ..FileSystem::of_kernel(
        "jfs",
        "extents and a journal of metadata, from AIX and OS/2; little CPU",
        KernelFileSystem {
            mkfs: &["mkfs.jfs", "-q"],
            geometry: &["jfs_tune", "-l"],
            check: &["fsck.jfs", "-n", "-f"],
            repair: &["fsck.jfs", "-p"],
            check_meaning: |code| match code & 4 {
                4 => "errors were found",
                _ => "it could not be checked",
            },
            ..KernelFileSystem::PLAIN
        },
    )
};
