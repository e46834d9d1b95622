//! bcachefs: bcachefs-tools, which guests get with libraries of their own.

use guest::{BuildSite, Error, LIBRARIES, Recipe};

use super::kernel::KernelFileSystem;
use super::{FileSystem, LayerTool};

/// bcachefs, which Linux had from 6.7 to 6.17.
pub static BCACHEFS: FileSystem = FileSystem {
    tools: &[LayerTool::new("bcachefs", "bcachefs-tools", "version")],
    size_bytes_min: 256 << 20,
    modules: &["bcachefs"],
    recipe: Some(&RECIPE),
    mkfs_flags: "fhqv",
    ..FileSystem::of_kernel(
        "bcachefs",
        "copy on write, checksums of data, snapshots; in Linux 6.7 to 6.17: --on linux-6.12",
        KernelFileSystem {
            // Discards are off unless asked for.
            mkfs: &["bcachefs", "format", "--quiet", "--force"],
            geometry: &["bcachefs", "show-super"],
            check: &["bcachefs", "fsck", "-n"],
            ..KernelFileSystem::PLAIN
        },
    )
};

/// Where the tools lie in a guest.
const DIRECTORY: &str = "usr/lib/bcachefs";
/// Debian's suites with bcachefs-tools of the age of Linux 6.12, and with the libraries that these need.
const SUITES: [&str; 2] = ["experimental", "trixie"];
const SCRIPT: &str = "#!/bin/sh
exec /usr/lib/bcachefs/ld-linux-x86-64.so.2 --library-path /usr/lib/bcachefs /usr/lib/bcachefs/bcachefs \"$@\"
";

/// The tools, whose module the kernel has. They need a newer C library than this machine may have, so
/// they come with their own.
static RECIPE: Recipe =
    Recipe { closed: Some(DIRECTORY), ..Recipe::of_packages("bcachefs", build) };

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    let lists = site.suites(&SUITES)?;
    let mut names = vec!["bcachefs-tools".to_string()];
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let file = site.add(&name, None, &lists)?;
        let more = site.dependencies(&file)?.into_iter().map(|needed| needed.name);
        for name in more.filter(|name| name.starts_with("lib") || name == "zlib1g") {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        at += 1;
    }
    let libraries = site.root().join(LIBRARIES);
    let program = site.root().join("usr/sbin/bcachefs");
    let needed = site.libraries(&program, &libraries)?;
    // Its own loader first: this machine's, which has the same name, then stays here.
    let loader = libraries.join("ld-linux-x86-64.so.2");
    for path in [&loader, &program].into_iter().chain(&needed) {
        site.take(path, DIRECTORY)?;
    }
    site.write_script("usr/sbin/bcachefs", SCRIPT)
}
