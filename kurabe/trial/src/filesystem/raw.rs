//! The block device itself: the yardstick that says what a file system costs. Only loads that
//! need no files run on it.

use std::fs::File;
use std::path::PathBuf;

use super::kernel::drop_pages_of;
use super::{Access, FileSystem, FileSystemKind, Instance, InstanceContext};
use crate::tool::{StepFailure, Toolbox, failed};

pub static RAW: FileSystem = FileSystem {
    access: Access::RawDevice,
    takes_turns: true,
    has_copies: true,
    ..FileSystem::new(
        "raw",
        "the block device itself, for fio, fio-matrix and objects",
        FileSystemKind::Own(|stage| Box::new(RawInstance { stage })),
    )
};

struct RawInstance {
    stage: InstanceContext,
}

impl Instance for RawInstance {
    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        let words = ["blockdev", "--report", &self.stage.node_text()];
        tools.look(&words, "the device cannot be described")
    }

    fn directory(&self) -> PathBuf {
        self.stage.scratch.work().to_path_buf()
    }

    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.sync(tools)?;
        drop_pages_of(self.stage.node())
    }

    fn sync(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        let node = self.stage.node();
        File::open(node.path())
            .and_then(|device| device.sync_all())
            .map_err(failed(format_args!("flushing {}", node.shown())))
    }
}
