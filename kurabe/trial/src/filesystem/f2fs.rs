//! F2FS: f2fs-tools.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

pub static F2FS: FileSystem = FileSystem {
    // fsck.f2fs comes with it.
    tools: &[LayerTool::new("mkfs.f2fs", "f2fs-tools", "-V")],
    // mkfs.f2fs refuses less than about 50 MiB.
    size_bytes_min: 128 << 20,
    modules: &["f2fs"],
    mkfs_flags: "fimqrSV",
    mkfs_paths: "c",
    ..FileSystem::of_kernel(
        "f2fs",
        "several logs for data of different age, made for flash; discards unless told not to",
        KernelFileSystem {
            mkfs: &["mkfs.f2fs", "-q", "-f"],
            mkfs_without_discard: &["-t", "0"],
            mount_options_without_discard: &["nodiscard"],
            geometry: &["fsck.f2fs", "-l"],
            check: &["fsck.f2fs", "--dry-run", "-f"],
            repair: &["fsck.f2fs", "-f"],
            check_meaning: |_| "errors were found",
            ..KernelFileSystem::PLAIN
        },
    )
};
