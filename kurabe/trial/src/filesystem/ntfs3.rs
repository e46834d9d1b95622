//! NTFS as the kernel's ntfs3 has it: ntfs-3g for its tools.

use super::fat::owner_options;
use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// NTFS under the driver ntfs3, not under ntfs-3g, which is a FUSE.
pub static NTFS3: FileSystem = FileSystem {
    // ntfsinfo and ntfsfix come with it.
    tools: &[LayerTool::new("mkfs.ntfs", "ntfs-3g", "--version")],
    // Below this the log has less than its ordinary size.
    size_bytes_min: 64 << 20,
    owner_options,
    modules: &["ntfs3"],
    mkfs_flags: "CdfFIlnQqTUvV",
    ..FileSystem::of_kernel(
        "ntfs3",
        "NTFS under the kernel's own driver: a journal of metadata; readable by Windows",
        KernelFileSystem {
            mkfs: &["mkfs.ntfs", "-Q", "-q", "-F"],
            geometry: &["ntfsinfo", "-m"],
            // Linux has no checker: this compares the boot sectors and the copies of the MFT's start.
            check: &["ntfsfix", "-n"],
            check_meaning: |_| "it is inconsistent, or could not be looked at",
            ..KernelFileSystem::PLAIN
        },
    )
};
