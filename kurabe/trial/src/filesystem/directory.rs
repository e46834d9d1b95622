//! An existing directory: never made, mounted or checked. Needs no root.
//!
//! Every trial works in a fresh subdirectory of it, which is removed at the end: so trials do not
//! see each other's files, and a command that overwrites or deletes does not meet the user's.
//!
//! The workload's directory lies in another one, into which only this process's user can look, and the user as whom
//! the workload runs. The workload may change the rights of its own directory, but not of that one. So nobody else gets
//! at what it makes, such as a setuid program.
//!
//! Of several machines that have the directory mounted the first one makes the subdirectory, and removes it.

use std::path::PathBuf;
use std::sync::Arc;

use lab::spec::NodeSpec;
use rustix::fs::{AtFlags, statat};
use trust::{Directory as OpenDirectory, Refused};

use super::kernel::sync_file_system;
use super::{FileSystem, FileSystemKind, Instance, InstanceContext};
use crate::ledger::{Ledger, NAME_PREFIX, Taken, random_name};
use crate::scratch::Occupied;
use crate::tool::{StepFailure, Toolbox};
use crate::user::User;

/// `dir:/some/path`.
pub static DIRECTORY: FileSystem = FileSystem {
    needs_device: false,
    ..FileSystem::new(
        "dir",
        "an existing directory (dir:/path), never formatted; needs no root",
        FileSystemKind::Own(begin),
    )
};

fn begin(stage: InstanceContext) -> Box<dyn Instance> {
    let parent = stage.directory.expect("the notation of a dir: contender names a directory");
    let (identity, scratch, member) = (stage.directory_identity, stage.scratch, stage.member);
    let of_all = |member: &NodeSpec| format!("{NAME_PREFIX}{}", member.cluster);
    let name = member.as_ref().map_or_else(random_name, of_all);
    Box::new(DirectoryInstance { parent, identity, name, member, scratch, taken: None })
}

/// Rights of a trial's subdirectory and of the workload's directory in it.
const DIRECTORY_MODE: u32 = 0o700;

/// Name of the workload's directory in the trial's.
const LOADS: &str = "load";

struct DirectoryInstance {
    parent: PathBuf,
    /// Device and inode that `parent` must have.
    identity: Option<(u64, u64)>,
    /// Name of the trial's subdirectory.
    name: String,
    /// Which of several machines this is.
    member: Option<NodeSpec>,
    scratch: Arc<Occupied>,
    taken: Option<Made>,
}

/// The subdirectory, while it exists.
struct Made {
    parent: OpenDirectory,
    own: OpenDirectory,
    /// The ledger that names it; absent where another machine made it.
    ledger: Option<(Ledger, u64)>,
}

impl Made {
    /// Removes it, unless another directory has its name by now.
    fn remove(&self, name: &str) -> Result<(), Refused> {
        let path = self.parent.path().join(name);
        let found = statat(self.parent.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| Refused::system(&path, error))?;
        if (found.st_dev, found.st_ino) != self.own.identity()? {
            let text = "it is not the directory that this run made";
            return Err(Refused::system(&path, std::io::Error::other(text)));
        }
        self.parent.remove_tree(name)
    }
}

impl DirectoryInstance {
    /// The trial's subdirectory.
    fn own_path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }
}

impl Instance for DirectoryInstance {
    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        let words = ["stat", "--file-system", &self.parent.display().to_string()];
        tools.look(&words, "the file system cannot be looked at")
    }

    fn mount(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        let failed = |what: &str, error: std::io::Error| {
            StepFailure::of(format!("{what} {}: {error}", self.own_path().display()))
        };
        let refused =
            |refused: Refused| StepFailure::of(format!("the contender's directory: {refused}"));
        let parent = OpenDirectory::open_shared(&self.parent).map_err(refused)?;
        let found = parent.identity().map_err(refused)?;
        if self.identity.is_some_and(|begun_with| begun_with != found) {
            let path = self.parent.display();
            return Err(StepFailure::of(format!(
                "{path} is another directory than the one that the study began with"
            )));
        }
        if self.member.as_ref().is_some_and(|member| member.number > 1) {
            let own = parent.open_directory(&self.name).map_err(|refused| {
                StepFailure::of(if refused.is_missing() {
                    let path = self.parent.display();
                    format!("{path} is another directory here than on the first node: what that made is not there")
                } else {
                    format!("the contender's directory: {refused}")
                })
            })?;
            // A link would lead the workload to a directory of the first machine's choice.
            own.open_directory(LOADS).map_err(refused)?;
            self.taken = Some(Made { parent, own, ledger: None });
            return Ok(());
        }
        let ledger = self
            .scratch
            .ledger()
            .map_err(|error| failed("starting the run's ledger for", error))?;
        let (taken, name) = (self.parent.clone(), self.name.clone());
        let id = ledger
            .take(Taken::Subdirectory { parent: taken, name })
            .map_err(|error| failed("writing the run's ledger for", error))?;
        let own = parent.make_directory(&self.name, DIRECTORY_MODE).map_err(refused)?;
        let made = self.taken.insert(Made { parent, own, ledger: Some((ledger, id)) });
        made.own.make_directory(LOADS, DIRECTORY_MODE).map_err(refused)?;
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        self.own_path().join(LOADS)
    }

    fn let_pass(&self, user: &User) -> Result<(), String> {
        let made = self.taken.as_ref().expect("the directory is made before it is handed over");
        user.pass(&made.own)
    }

    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        sync_file_system(&self.directory(), tools)
    }

    fn end(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        let Some(made) = self.taken.take() else { return Ok(()) };
        let Some((ledger, id)) = &made.ledger else { return Ok(()) };
        let removed = made.remove(&self.name).map_err(std::io::Error::from);
        let removed = removed.and_then(|()| ledger.gave_back(*id));
        removed.map_err(|error| {
            StepFailure::of(format!(
                "removing the run's directory: {error}; 'kurabe clean' tries again"
            ))
        })
    }
}
