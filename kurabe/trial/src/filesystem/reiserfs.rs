//! ReiserFS: reiserfsprogs. Linux 6.13 took it out.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// ReiserFS, version 3.6.
pub static REISERFS: FileSystem = FileSystem {
    // debugreiserfs and reiserfsck come with it.
    tools: &[LayerTool::new("mkreiserfs", "reiserfsprogs", "-V")],
    // The journal alone takes 32 MiB.
    size_bytes_min: 64 << 20,
    modules: &["reiserfs"],
    mkfs_flags: "dfqV",
    mkfs_paths: "jB",
    ..FileSystem::of_kernel(
        "reiserfs",
        "one tree with packed tails, for many small files; kernels before 6.13",
        KernelFileSystem {
            mkfs: &["mkreiserfs", "-q", "-f"],
            geometry: &["debugreiserfs"],
            check: &["reiserfsck", "--check", "-y", "-q"],
            repair: &["reiserfsck", "--fix-fixable", "-y", "-q"],
            check_meaning: |code| match code {
                1 => "errors were found that --fix-fixable can repair",
                2 | 4 => "errors were found that need --rebuild-tree",
                _ => "it could not be checked",
            },
            ..KernelFileSystem::PLAIN
        },
    )
};
