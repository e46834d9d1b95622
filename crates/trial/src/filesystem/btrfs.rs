//! Btrfs: btrfs-progs.

use super::kernel::Kernel;
use super::{FileSystem, Tool};

/// Btrfs.
pub static BTRFS: FileSystem = FileSystem {
    tools: &[
        Tool::new("mkfs.btrfs", "btrfs-progs", "--version"),
        Tool::new("btrfs", "btrfs-progs", "--version"),
    ],
    // mkfs.btrfs refuses less than about 109 MiB.
    size_bytes_min: 128 << 20,
    // Below it data is written out early: unpacking 15 MB took 3.2 times as long as on ext4 on
    // 1 GiB, and 1.3 times on 2 GiB (Linux 6.18).
    size_bytes_ordinary: 2 << 30,
    ..FileSystem::of_kernel(
        "btrfs",
        "copy on write, checksums of data, snapshots, compression",
        Kernel {
            mkfs: &["mkfs.btrfs", "-q", "-f"],
            mkfs_without_discard: &["-K"],
            // Since Linux 6.2 a device that can discard is discarded in the background by default.
            mount_options_without_discard: &["nodiscard"],
            geometry: &["btrfs", "inspect-internal", "dump-super"],
            check: &["btrfs", "check", "--readonly"],
            // btrfs-rescue(8): a torn superblock is taken from its copy; 2 is success.
            repair: &["btrfs", "rescue", "super-recover", "-y"],
            ..Kernel::PLAIN
        },
    )
};
