//! NILFS2: nilfs-tools.

use super::Tool;
use super::kernel::{KernelFileSystem, words};

/// NILFS2.
pub static NILFS2: KernelFileSystem = KernelFileSystem {
    name: "nilfs2",
    summary: "one log, a checkpoint every few seconds; mounted without its cleaner",
    // mount.nilfs2 and nilfs-tune come with it.
    tools: &[Tool { name: "mkfs.nilfs2", package: "nilfs-tools", version: Some("-V") }],
    // mkfs.nilfs2 wants some segments of 8 MiB; this is well above what it refuses.
    size_bytes_min: 128 << 20,
    size_bytes_ordinary: None,
    make: |stage| {
        let mut command = words(&["mkfs.nilfs2", "-q", "-f"]);
        if !stage.discard {
            command.push("-K".into());
        }
        command.extend(stage.mkfs_options.iter().cloned());
        command.push(stage.node_text());
        command
    },
    // Discards are off unless asked for. The cleaner, which the mount would start, keeps the mount
    // busy, and reclaims nothing that is younger than an hour (nilfs_cleanerd.conf(5),
    // protection_period). A study with discards says `@ nogc` itself.
    mount_options_without_discard: &["nogc"],
    geometry: &["nilfs-tune", "-l"],
    // There is no offline checker: this reads the superblock, no more.
    check: &["nilfs-tune", "-l"],
    repair: &[],
    check_meaning: |_| "the superblock cannot be read",
    background_threads: &[],
};
