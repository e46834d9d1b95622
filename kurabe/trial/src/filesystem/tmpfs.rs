//! tmpfs: files in memory alone. What another file system costs over it is the cost of storing anything.

use std::path::PathBuf;

use rustix::mount::UnmountFlags;

use super::kernel::{make_mount_point, sync_file_system, unmount, words};
use super::{FileSystem, FileSystemKind, Instance, InstanceContext};
use crate::tool::{StepFailure, Toolbox};

/// `tmpfs`, as large as the device that another contender has. The device stays unused.
pub static TMPFS: FileSystem = FileSystem {
    kernel_name: Some("tmpfs"),
    is_volatile: true,
    takes_turns: true,
    // Pages that are never written back are not counted.
    counts_write_bytes: false,
    ..FileSystem::new(
        "tmpfs",
        "files in memory alone, as many bytes as the device has; lost with the machine",
        FileSystemKind::Own(|stage| Box::new(TmpfsInstance { stage, mounted: false })),
    )
};

struct TmpfsInstance {
    stage: InstanceContext,
    mounted: bool,
}

impl Instance for TmpfsInstance {
    fn geometry(&mut self, _: &mut Toolbox) -> Result<String, StepFailure> {
        Ok(format!("tmpfs of at most {} bytes", self.stage.size_bytes))
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let point = self.stage.mount_point();
        make_mount_point(&point)?;
        // Of two sizes the kernel takes the last, so the contender's own.
        let size = format!("size={}", self.stage.size_bytes);
        let own = self.stage.mount_options.iter().map(String::as_str);
        let options: Vec<&str> = std::iter::once(size.as_str()).chain(own).collect();
        let mut command = words(&["mount", "-n", "-t", "tmpfs", "-o", &options.join(","), "tmpfs"]);
        command.push(point.display().to_string());
        tools.expect(&command, "mount failed")?;
        self.mounted = true;
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        self.stage.mount_point()
    }

    /// Its caches are its files; those of everything else stay as they are.
    fn cool_alone(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        sync_file_system(&self.stage.mount_point(), tools)
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        unmount(&self.stage.mount_point(), tools)?;
        self.mounted = false;
        Ok(())
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.mounted { self.unmount(tools) } else { Ok(()) }
    }
}

impl Drop for TmpfsInstance {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`. What is still mounted would keep its memory.
        if self.mounted {
            let _ = rustix::mount::unmount(self.stage.mount_point(), UnmountFlags::DETACH);
        }
    }
}
