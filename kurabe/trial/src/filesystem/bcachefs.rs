//! bcachefs: bcachefs-tools.

use super::kernel::Kernel;
use super::{FileSystem, Tool};

/// bcachefs, which Linux had from 6.7 to 6.17.
pub static BCACHEFS: FileSystem = FileSystem {
    tools: &[Tool::new("bcachefs", "bcachefs-tools", "version")],
    size_bytes_min: 256 << 20,
    mkfs_flags: "fhqv",
    ..FileSystem::of_kernel(
        "bcachefs",
        "copy on write, checksums of data, snapshots; in Linux 6.7 to 6.17: --on linux-6.12",
        Kernel {
            // Discards are off unless asked for.
            mkfs: &["bcachefs", "format", "--quiet", "--force"],
            geometry: &["bcachefs", "show-super"],
            check: &["bcachefs", "fsck", "-n"],
            ..Kernel::PLAIN
        },
    )
};
