//! UDF, the file system of optical discs, on an ordinary disk: udftools.

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// UDF 2.01, as mkudffs makes it on a hard disk.
pub static UDF: FileSystem = FileSystem {
    // udfinfo comes with it. Neither tells its version and ends well.
    tools: &[LayerTool { name: "mkudffs", package: "udftools", version: None }],
    modules: &["udf"],
    mkfs_flags: "hn",
    size_bytes_min: 16 << 20,
    ..FileSystem::of_kernel(
        "udf",
        "the file system of DVDs and Blu-ray discs, readable everywhere; extents, no journal",
        KernelFileSystem {
            mkfs: &["mkudffs", "--utf8", "--media-type=hd"],
            mount_options_of_copy: Some(&[]),
            // Linux has no checker: this reads the descriptors of the volume, no more.
            geometry: &["udfinfo", "--utf8"],
            check: &["udfinfo", "--utf8"],
            check_meaning: |_| "the descriptors of the volume cannot be read",
            ..KernelFileSystem::PLAIN
        },
    )
};
