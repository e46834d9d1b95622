//! minfs twice: mounted through FUSE, and as a library in the load's own process.
//!
//! Both are made and checked by the program `minfs`, which is built beside kurabe.

use std::fs::{self, File};
use std::path::PathBuf;

use super::kernel::{drop_caches, drop_pages_of, make_mount_point, unmount};
use super::{Access, FileSystem, Instance, Stage, Tool};
use crate::host_proc::HostProc;
use crate::tool::{Failure, Toolbox};

/// `minfs-fuse`.
pub static MINFS_FUSE: Minfs = Minfs {
    name: "minfs-fuse",
    summary: "minfs mounted through FUSE: one flat directory of few large files",
    access: Access::Mounted,
};

/// `minfs`.
pub static MINFS: Minfs = Minfs {
    name: "minfs",
    summary: "minfs as a library in the load's process, not mounted: for the load objects",
    access: Access::MinfsLibrary,
};

/// Either of the two.
pub struct Minfs {
    name: &'static str,
    summary: &'static str,
    access: Access,
}

impl FileSystem for Minfs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn tools(&self) -> &'static [Tool] {
        &[Tool { name: "minfs", package: super::OWN_PACKAGE, version: Some("--version") }]
    }

    fn kernel_name(&self) -> Option<&'static str> {
        (self.access == Access::Mounted).then_some("fuse")
    }

    fn access(&self) -> Access {
        self.access
    }

    /// Through FUSE it has a page cache of its own, and no directories to begin each turn in.
    fn takes_turns(&self) -> bool {
        self.access == Access::MinfsLibrary
    }

    fn size_bytes_min(&self) -> u64 {
        16 << 20
    }

    fn counts_write_bytes(&self) -> bool {
        // The library writes to the device itself; through FUSE the kernel sees no storage.
        self.access == Access::MinfsLibrary
    }

    /// A volume keeps no owners.
    fn owner_options(&self, user: u32, group: u32) -> Vec<String> {
        vec![format!("root_user={user}"), format!("root_group={group}")]
    }

    fn begin(&self, stage: Stage) -> Box<dyn Instance> {
        let mounts = self.access == Access::Mounted;
        Box::new(MinfsInstance { stage, mounts, mounted: false })
    }
}

struct MinfsInstance {
    stage: Stage,
    mounts: bool,
    mounted: bool,
}

impl Instance for MinfsInstance {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let mut words: Vec<String> = ["minfs", "mkfs", "-f", "-q"].map(String::from).into();
        words.extend(self.stage.mkfs_options.iter().cloned());
        words.push(self.stage.node_text());
        tools.expect(&words, "mkfs failed").map(drop)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, Failure> {
        let output = tools.run_unlogged(&["minfs", "stat", &self.stage.node_text()])?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.failure("the geometry cannot be read")),
        }
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        if !self.mounts {
            return Ok(());
        }
        let point = self.stage.mount_point();
        make_mount_point(&point)?;
        let mut words: Vec<String> = ["minfs", "mount"].map(String::from).into();
        if !self.stage.mount_options.is_empty() {
            words.extend(["-o".into(), self.stage.mount_options.join(",")]);
        }
        words.extend([self.stage.node_text(), point.display().to_string()]);
        tools.expect(&words, "mount failed")?;
        self.mounted = true;
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        if self.mounts { self.stage.mount_point() } else { self.stage.scratch.room().to_path_buf() }
    }

    fn background_work(&self, _: &HostProc) -> Option<String> {
        None
    }

    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.sync(tools)?;
        drop_caches(tools)
    }

    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.sync(tools)?;
        drop_pages_of(&self.stage.node)
    }

    /// FUSE hands no syncfs(2) on, so every file is synced by itself; there are few.
    fn sync(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        let failed = |path: &PathBuf, error: std::io::Error| {
            Failure::of(format!("syncing {}: {error}", path.display()))
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
        let node = &self.stage.node;
        File::open(node).and_then(|device| device.sync_all()).map_err(|error| failed(node, error))
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        let point = self.stage.mount_point().display().to_string();
        let words = ["find", &point, "-maxdepth", "1", "-type", "f", "-exec", "sync", "{}", "+"];
        self.mounts.then(|| words.map(String::from).into())
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        if self.mounted {
            unmount(&self.stage.mount_point(), tools)?;
            self.mounted = false;
        }
        Ok(())
    }

    fn check(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let words = ["minfs", "fsck", "-n", &self.stage.node_text()];
        tools.expect(&words, "the check found damage, or could not be made").map(drop)
    }

    fn daemon_cpu_ns(&self) -> Option<u64> {
        self.mounted.then(|| super::cpu_time_of("minfs")).flatten()
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.unmount(tools)
    }
}
