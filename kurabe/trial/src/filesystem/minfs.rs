//! minfs three times: mounted through FUSE, as a library in the workload's own process, and mounted by its
//! kernel module.
//!
//! All are made and checked by the program `minfs`, which is built beside kurabe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use guest::{BuildSite, Error, Recipe};

use super::kernel::{KernelFileSystem, drop_pages_of, make_mount_point, unmount, words};
use super::{Access, FileSystem, FileSystemKind, Instance, InstanceContext, LayerTool};
use crate::tool::{StepFailure, Toolbox};

/// `minfs-fuse`. Through FUSE it has a page cache of its own, and no directories to begin each turn
/// in; the kernel sees no storage.
pub static MINFS_FUSE: FileSystem = FileSystem {
    tools: TOOLS,
    kernel_name: Some("fuse"),
    modules: &["fuse"],
    has_copies: true,
    size_bytes_min: SIZE_BYTES_MIN,
    counts_write_bytes: false,
    owner_options,
    ..FileSystem::new(
        "minfs-fuse",
        "minfs mounted through FUSE: one flat directory of few large files",
        FileSystemKind::Own(|stage| {
            Box::new(MinfsInstance { stage, mounts: true, mounted: false })
        }),
    )
};

/// `minfs`. The library writes to the device itself.
pub static MINFS: FileSystem = FileSystem {
    tools: TOOLS,
    access: Access::Library,
    takes_turns: true,
    has_copies: true,
    size_bytes_min: SIZE_BYTES_MIN,
    ..FileSystem::new(
        "minfs",
        "minfs as a library in the workload's process, not mounted: for objects",
        FileSystemKind::Own(|stage| {
            Box::new(MinfsInstance { stage, mounts: false, mounted: false })
        }),
    )
};

/// `minfs-kernel`. A guest gets the module built; this machine's kernel has it after `make module`.
pub static MINFS_KERNEL: FileSystem = FileSystem {
    tools: TOOLS,
    kernel_name: Some("minfs"),
    recipe: Some(&RECIPE),
    // It has no directories to begin each turn in.
    takes_turns: false,
    size_bytes_min: SIZE_BYTES_MIN,
    owner_options,
    ..FileSystem::of_kernel(
        "minfs-kernel",
        "minfs mounted by its kernel module, which guests get built (--on debian)",
        KernelFileSystem {
            mkfs: &["minfs", "mkfs", "-f", "-q"],
            // Not by the helper for FUSE.
            mount: &["mount", "-n", "-i"],
            mount_options_of_copy: Some(&[]),
            geometry: &["minfs", "stat"],
            check: &["minfs", "fsck", "-n"],
            ..KernelFileSystem::PLAIN
        },
    )
};

/// The kernel module, of the source in this program; its tools are this program's.
static RECIPE: Recipe = Recipe { source: SOURCE, ..Recipe::of_packages("minfs", build) };

/// The source of the kernel module, by file.
const SOURCE: &[(&str, &str)] = &[
    ("Kbuild", include_str!("../../../../minfs/kernel/Kbuild")),
    ("Makefile", include_str!("../../../../minfs/kernel/Makefile")),
    ("minfs.h", include_str!("../../../../minfs/kernel/minfs.h")),
    ("minfs_format.h", include_str!("../../../../minfs/minfs_format.h")),
    ("data.c", include_str!("../../../../minfs/kernel/data.c")),
    ("direct.c", include_str!("../../../../minfs/kernel/direct.c")),
    ("file.c", include_str!("../../../../minfs/kernel/file.c")),
    ("record.c", include_str!("../../../../minfs/kernel/record.c")),
    ("space.c", include_str!("../../../../minfs/kernel/space.c")),
    ("super.c", include_str!("../../../../minfs/kernel/super.c")),
    ("survey.c", include_str!("../../../../minfs/kernel/survey.c")),
    ("volume.c", include_str!("../../../../minfs/kernel/volume.c")),
];

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    let (own, _) = site.headers()?;
    let directory = site.directory("minfs")?;
    for (name, text) in SOURCE {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::at(&path))?;
    }
    site.make(&[&format!("KDIR={}", own.display())], &directory)?;
    site.take_modules(&directory)
}

/// A volume keeps no owner of its root directory.
fn owner_options(user: u32, group: u32) -> Vec<String> {
    vec![format!("root_user={user}"), format!("root_group={group}")]
}

const TOOLS: &[LayerTool] = &[LayerTool::new("minfs", super::OWN_PACKAGE, "--version")];
const SIZE_BYTES_MIN: u64 = 16 << 20;

struct MinfsInstance {
    stage: InstanceContext,
    mounts: bool,
    mounted: bool,
}

impl Instance for MinfsInstance {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let mut words = words(&["minfs", "mkfs", "-f", "-q"]);
        words.extend(self.stage.mkfs_options.iter().cloned());
        words.push(self.stage.node_text());
        tools.expect(&words, "mkfs failed").map(drop)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        let words = ["minfs", "stat", &self.stage.node_text()];
        tools.look(&words, "the geometry cannot be read")
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if !self.mounts {
            return Ok(());
        }
        let point = self.stage.mount_point();
        make_mount_point(&point)?;
        let mut words = words(&["minfs", "mount"]);
        words.extend(self.stage.mount_words(&[]));
        words.extend([self.stage.node_text(), point.display().to_string()]);
        tools.expect(&words, "mount failed")?;
        self.mounted = true;
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        if self.mounts { self.stage.mount_point() } else { self.stage.scratch.work().to_path_buf() }
    }

    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.sync(tools)?;
        drop_pages_of(self.stage.node())
    }

    /// FUSE hands no syncfs(2) on, so every file is synced by itself; there are few.
    fn sync(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        let failed = |path: &Path, error: std::io::Error| {
            StepFailure::of(format!("syncing {}: {error}", path.display()))
        };
        if self.mounted {
            let point = self.stage.mount_point();
            for entry in fs::read_dir(&point).map_err(|error| failed(&point, error))? {
                let path = entry.map_err(|error| failed(&point, error))?.path();
                File::open(&path)
                    .and_then(|file| file.sync_all())
                    .map_err(|error| failed(&path, error))?;
            }
            return Ok(());
        }
        let node = self.stage.node();
        File::open(node.path())
            .and_then(|device| device.sync_all())
            .map_err(|error| failed(node.shown().as_ref(), error))
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        let point = self.stage.mount_point().display().to_string();
        let line = ["find", &point, "-maxdepth", "1", "-type", "f", "-exec", "sync", "{}", "+"];
        self.mounts.then(|| words(&line))
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.mounted {
            unmount(&self.stage.mount_point(), tools)?;
            self.mounted = false;
        }
        Ok(())
    }

    fn check(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let words = ["minfs", "fsck", "-n", &self.stage.node_text()];
        tools.expect(&words, "the check found damage, or could not be made").map(drop)
    }

    fn daemon_cpu_ns(&self) -> Option<u64> {
        self.mounted.then(|| super::cpu_time_of("minfs")).flatten()
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.unmount(tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_module_is_built_of_all_its_sources() {
        let objects = SOURCE[0].1.split_whitespace().filter_map(|word| word.strip_suffix(".o"));
        let mut objects: Vec<&str> = objects.filter(|name| *name != "minfs").collect();
        objects.sort_unstable();
        let sources = SOURCE.iter().filter_map(|(name, _)| name.strip_suffix(".c"));
        assert_eq!(sources.collect::<Vec<_>>(), objects, "what the module is built of");
    }
}
