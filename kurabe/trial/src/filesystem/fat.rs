//! FAT and exFAT: dosfstools, exfatprogs.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// FAT32, as the kernel mounts it with long names.
pub static VFAT: FileSystem = FileSystem {
    // mkfs.vfat and fsck.fat come with it, and tell no version.
    tools: &[LayerTool::new("fatlabel", "dosfstools", "--version")],
    // With clusters of one sector FAT32 begins at 33 MB.
    size_bytes_min: 64 << 20,
    owner_options,
    // Names are translated by the last two unless the mount says otherwise.
    modules: &["vfat", "nls_cp437", "nls_ascii"],
    mkfs_flags: "aAcIv",
    mkfs_paths: "lm",
    ..FileSystem::of_kernel(
        "vfat",
        "FAT32: readable everywhere; no journal, no permissions, no links, files below 4 GiB",
        KernelFileSystem {
            mkfs: &["mkfs.vfat", "-F", "32"],
            geometry: &["fsck.fat", "-n", "-v"],
            check: &["fsck.fat", "-n"],
            repair: &["fsck.fat", "-a"],
            ..KernelFileSystem::PLAIN
        },
    )
};

pub static EXFAT: FileSystem = FileSystem {
    // fsck.exfat and dump.exfat come with it.
    tools: &[LayerTool::new("mkfs.exfat", "exfatprogs", "-V")],
    size_bytes_min: 64 << 20,
    owner_options,
    modules: &["exfat"],
    mkfs_flags: "fhqvV",
    ..FileSystem::of_kernel(
        "exfat",
        "FAT with large files and an allocation bitmap, for cards and sticks; no journal, permissions or links",
        KernelFileSystem {
            mkfs: &["mkfs.exfat"],
            geometry: &["dump.exfat"],
            check: &["fsck.exfat", "-n"],
            repair: &["fsck.exfat", "-p"],
            ..KernelFileSystem::PLAIN
        },
    )
};

/// They have no owners, or other ones than Linux: whoever mounts them says whose all files are.
pub(super) fn owner_options(user: u32, group: u32) -> Vec<String> {
    vec![format!("uid={user}"), format!("gid={group}")]
}
