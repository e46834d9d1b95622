//! The block device itself: the yardstick that says what a file system costs. Only loads that
//! need no files run on it.

use std::fs::File;
use std::path::PathBuf;

use super::kernel::{drop_caches, drop_pages_of};
use super::{Access, FileSystem, Instance, Stage, Tool};
use crate::host_proc::HostProc;
use crate::tool::{Failure, Toolbox};

/// `raw`.
pub struct Raw;

/// `raw`.
pub static RAW: Raw = Raw;

impl FileSystem for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn summary(&self) -> &'static str {
        "the block device itself, for the loads fio, fio-matrix and objects"
    }

    fn tools(&self) -> &'static [Tool] {
        &[]
    }

    fn kernel_name(&self) -> Option<&'static str> {
        None
    }

    fn access(&self) -> Access {
        Access::RawDevice
    }

    fn takes_turns(&self) -> bool {
        true
    }

    fn size_bytes_min(&self) -> u64 {
        0
    }

    fn begin(&self, stage: Stage) -> Box<dyn Instance> {
        Box::new(RawInstance { stage })
    }
}

struct RawInstance {
    stage: Stage,
}

impl Instance for RawInstance {
    fn make(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, Failure> {
        let output = tools.run_unlogged(&["blockdev", "--report", &self.stage.node_text()])?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.failure("the device cannot be described")),
        }
    }

    fn mount(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        self.stage.scratch.room().to_path_buf()
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

    fn sync(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        let node = &self.stage.node;
        File::open(node)
            .and_then(|device| device.sync_all())
            .map_err(|error| Failure::of(format!("flushing {}: {error}", node.display())))
    }

    fn unmount(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn check(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn end(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }
}
