//! Btrfs: btrfs-progs.

use super::Tool;
use super::kernel::{KernelFileSystem, words};

/// Btrfs.
pub static BTRFS: KernelFileSystem = KernelFileSystem {
    name: "btrfs",
    summary: "copy on write, checksums of data, snapshots, compression",
    tools: &[tool("mkfs.btrfs"), tool("btrfs")],
    // mkfs.btrfs refuses less than about 109 MiB.
    size_bytes_min: 128 << 20,
    // Below it data is written out early: unpacking 15 MB took 3.2 times as long as on ext4 on
    // 1 GiB, and 1.3 times on 2 GiB (Linux 6.18).
    size_bytes_ordinary: Some(2 << 30),
    make: |stage| {
        let mut command = words(&["mkfs.btrfs", "-q", "-f"]);
        if !stage.discard {
            command.push("-K".into());
        }
        command.extend(stage.mkfs_options.iter().cloned());
        command.push(stage.node_text());
        command
    },
    // Since Linux 6.2 a device that can discard is discarded in the background by default.
    mount_options_without_discard: &["nodiscard"],
    geometry: &["btrfs", "inspect-internal", "dump-super"],
    check: &["btrfs", "check", "--readonly"],
    // btrfs-rescue(8): a torn superblock is taken from its copy; 2 is success.
    repair: &["btrfs", "rescue", "super-recover", "-y"],
    check_meaning: |_| "the check found damage or could not be carried out",
    background_threads: &[],
};

const fn tool(name: &'static str) -> Tool {
    Tool { name, package: "btrfs-progs", version: Some("--version") }
}
