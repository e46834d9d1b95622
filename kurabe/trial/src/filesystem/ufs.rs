//! UFS, the file system of the BSDs: makefs, and the kernel's own driver.

use guest::{BuildSite, Error, Recipe};

use super::kernel::KernelFileSystem;
use super::{FileSystem, InstanceContext, LayerTool};

/// UFS1: images of UFS2 as makefs makes them have their superblock where the driver does not look.
pub static UFS: FileSystem = FileSystem {
    tools: &[LayerTool { name: "makefs", package: "makefs", version: None }],
    // Whether a kernel's driver can write, only a mount tells.
    guests_only: Some(
        "distributions build the kernel's driver of UFS without writing; a guest gets one that writes",
    ),
    size_bytes_min: 16 << 20,
    recipe: Some(&RECIPE),
    mkfs_flags: "x",
    mkfs_paths: "FN",
    ..FileSystem::of_kernel(
        "ufs",
        "UFS1 of the BSDs by Linux's driver, whose writing is not trusted; in guests only",
        KernelFileSystem {
            mkfs: &["makefs", "-t", "ffs"],
            mkfs_from_directory: true,
            complete,
            mount_options: &["ufstype=44bsd"],
            // Linux has no checker: this reads the superblock, no more.
            geometry: &["blkid", "-p"],
            check: &["blkid", "-p"],
            check_meaning: |_| "the superblock cannot be read",
            ..KernelFileSystem::PLAIN
        },
    )
};

/// Bytes of a block, of which a device has a whole number; as newfs of the BSDs had it for UFS1.
const BLOCK_BYTES: u64 = 8192;

/// makefs has to be told the size of a device, and makes few inodes for an empty directory.
fn complete(options: &mut Vec<String>, stage: &InstanceContext) {
    let size = stage.size_bytes / BLOCK_BYTES * BLOCK_BYTES;
    let own = ["-s", &size.to_string(), "-o", "version=1,bsize=8192,fsize=1024,density=8192"];
    options.splice(0..0, own.map(str::to_string));
}

/// The kernel's own driver with its write support, which Debian leaves out, from the source of the same
/// package; and makefs.
static RECIPE: Recipe = Recipe::of_packages("ufs", build);

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    let (own, _) = site.headers()?;
    let source = format!("linux-source-{}", site.series());
    let version = site.kernel_version();
    site.add(&source, Some(&version), &[])?;
    site.add("makefs", None, &[])?;
    let archive = site.root().join("usr/src").join(format!("{source}.tar.xz"));
    let (archive, part) = (archive.display().to_string(), format!("{source}/fs/ufs"));
    let directory = site.directory("ufs")?;
    site.run(&["tar", "-xJf", &archive, "--strip-components=3", &part], &directory)?;
    let words = [
        format!("-C{}", own.display()),
        format!("M={}", directory.display()),
        "CONFIG_UFS_FS=m".into(),
        "KCFLAGS=-DCONFIG_UFS_FS_WRITE=1".into(),
        "modules".into(),
    ];
    site.make(&words.each_ref().map(String::as_str), &directory)?;
    site.take_modules(&directory)?;
    site.take(&site.root().join("usr/sbin/makefs"), "usr/sbin")
}
