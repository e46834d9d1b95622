//! XFS: xfsprogs.

use super::kernel::Kernel;
use super::{FileSystem, Tool};

/// XFS.
pub static XFS: FileSystem = FileSystem {
    tools: &[tool("mkfs.xfs"), tool("xfs_info"), tool("xfs_repair")],
    // mkfs.xfs refuses less than 300 MB.
    size_bytes_min: 300 << 20,
    ..FileSystem::of_kernel(
        "xfs",
        "allocation groups that work side by side, B+ trees, a log of metadata",
        Kernel {
            mkfs: &["mkfs.xfs", "-q", "-f"],
            // Of the mount discards are off unless asked for.
            mkfs_without_discard: &["-K"],
            geometry: &["xfs_info"],
            check: &["xfs_repair", "-n"],
            repair: &["xfs_repair"],
            // xfs_repair(8), EXIT STATUS.
            check_meaning: |code| match code {
                1 => "the check found damage",
                2 => "the check found a log that was not replayed",
                _ => "the check could not be carried out",
            },
            ..Kernel::PLAIN
        },
    )
};

const fn tool(name: &'static str) -> Tool {
    Tool::new(name, "xfsprogs", "-V")
}
