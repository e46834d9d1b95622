//! An existing directory, used as it is: never made, mounted or checked. Needs no root.

use std::path::PathBuf;

use super::kernel::{drop_caches, sync_file_system};
use super::{FileSystem, Instance, Stage, Tool};
use crate::host_proc::HostProc;
use crate::tool::{Failure, Toolbox};

/// `dir:/some/path`.
pub struct Directory;

/// `dir:/some/path`.
pub static DIRECTORY: Directory = Directory;

impl FileSystem for Directory {
    fn name(&self) -> &'static str {
        "dir"
    }

    fn summary(&self) -> &'static str {
        "an existing directory (dir:/path), never formatted; needs no root"
    }

    fn tools(&self) -> &'static [Tool] {
        &[]
    }

    fn kernel_name(&self) -> Option<&'static str> {
        None
    }

    fn needs_device(&self) -> bool {
        false
    }

    fn signatures(&self) -> &'static [&'static str] {
        &[]
    }

    fn size_bytes_min(&self) -> u64 {
        0
    }

    fn begin(&self, stage: Stage) -> Box<dyn Instance> {
        let path = stage.directory.expect("the notation of a dir: contender names a directory");
        Box::new(DirectoryInstance { path })
    }
}

struct DirectoryInstance {
    path: PathBuf,
}

impl Instance for DirectoryInstance {
    fn make(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, Failure> {
        let path = self.path.display().to_string();
        let output = tools.run_unlogged(&["stat", "--file-system", &path])?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.failure("the file system cannot be looked at")),
        }
    }

    fn mount(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        match self.path.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(Failure::of(format!("{} is not a directory", self.path.display()))),
            Err(error) => Err(Failure::of(format!("{}: {error}", self.path.display()))),
        }
    }

    fn directory(&self) -> PathBuf {
        self.path.clone()
    }

    fn background_work(&self, _: &HostProc) -> Option<String> {
        None
    }

    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.sync(tools)?;
        drop_caches(tools)
    }

    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        sync_file_system(&self.path, tools)
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
