//! An existing directory: never made, mounted or checked. Needs no root.
//!
//! Every trial works in a fresh subdirectory of it, which is removed at the end: so trials do not
//! see each other's files, and a command that overwrites or deletes does not meet the user's.

use std::fs;
use std::path::PathBuf;

use super::kernel::{drop_caches, sync_file_system};
use super::{FileSystem, Instance, Stage, Tool};
use crate::host_proc::HostProc;
use crate::ledger::{Ledger, Taken, random_name};
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
        let parent = stage.directory.expect("the notation of a dir: contender names a directory");
        let path = parent.join(random_name());
        Box::new(DirectoryInstance { parent, path, scratch: stage.scratch, taken: None })
    }
}

struct DirectoryInstance {
    parent: PathBuf,
    /// The trial's subdirectory.
    path: PathBuf,
    scratch: PathBuf,
    /// The ledger that names the subdirectory, while it exists.
    taken: Option<(Ledger, u64)>,
}

impl Instance for DirectoryInstance {
    fn make(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        Ok(())
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, Failure> {
        let path = self.parent.display().to_string();
        let output = tools.run_unlogged(&["stat", "--file-system", &path])?;
        match output.code {
            0 => Ok(output.stdout),
            _ => Err(output.failure("the file system cannot be looked at")),
        }
    }

    fn mount(&mut self, _: &mut Toolbox) -> Result<(), Failure> {
        let failed = |what: &str, error: std::io::Error| {
            Failure::of(format!("{what} {}: {error}", self.path.display()))
        };
        let ledger = Ledger::in_scratch(&self.scratch)
            .map_err(|error| failed("starting the trial's ledger for", error))?;
        let id = ledger
            .take(Taken::Scratch { path: self.path.clone() })
            .map_err(|error| failed("writing the trial's ledger for", error))?;
        fs::create_dir(&self.path).map_err(|error| failed("making the directory", error))?;
        self.taken = Some((ledger, id));
        Ok(())
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
        let Some((ledger, id)) = self.taken.take() else { return Ok(()) };
        let removed = fs::remove_dir_all(&self.path).and_then(|()| ledger.gave_back(id));
        removed.map_err(|error| {
            Failure::of(format!(
                "removing the trial's directory {}: {error}; 'kurabe clean' tries again",
                self.path.display()
            ))
        })
    }
}
