//! NILFS2: nilfs-tools.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

pub static NILFS2: FileSystem = FileSystem {
    // mount.nilfs2 and nilfs-tune come with it.
    tools: &[LayerTool::new("mkfs.nilfs2", "nilfs-tools", "-V")],
    // mkfs.nilfs2 wants some segments of 8 MiB; this is well above what it refuses.
    size_bytes_min: 128 << 20,
    modules: &["nilfs2"],
    mkfs_flags: "cfhKnqvV",
    ..FileSystem::of_kernel(
        "nilfs2",
        "one log, a checkpoint every few seconds; mounted without its cleaner",
        KernelFileSystem {
            mkfs: &["mkfs.nilfs2", "-q", "-f"],
            mkfs_without_discard: &["-K"],
            // Discards are off unless asked for. The cleaner, which the mount would start, keeps the
            // mount busy, and reclaims nothing that is younger than an hour (nilfs_cleanerd.conf(5),
            // protection_period). A study with discards says `@ nogc` itself.
            mount_options_without_discard: &["nogc"],
            geometry: &["nilfs-tune", "-l"],
            // There is no offline checker: this reads the superblock, no more.
            check: &["nilfs-tune", "-l"],
            check_meaning: |_| "the superblock cannot be read",
            ..KernelFileSystem::PLAIN
        },
    )
};
