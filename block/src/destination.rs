//! Where a tool copies a file or a value out to: one rule for all of them.
//!
//! A device is never written, and neither is the image that the content comes from. A file that
//! exists takes `--force`. A new one has no more rights than the source has.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use trust::file::{self, Named};

use crate::file::of_system;
use crate::tool::{ToolFailure, check_not_attached, opening_failed};

/// What is copied, for [`Destination::open`].
#[derive(Debug)]
pub struct Copied<'a> {
    /// The device or image that it is on.
    pub holder: &'a Path,
    /// How long it is, in bytes.
    pub size_bytes: u64,
    /// Its permissions; a new file gets them, less what the umask takes.
    pub mode: u32,
}

/// A file that the user named to be written, open and empty.
#[derive(Debug)]
pub struct Destination {
    file: File,
    is_made: bool,
}

impl Destination {
    /// Opens `path` to be written, and makes it where it is missing; `force` lets a file be replaced.
    /// A pipe, a terminal or `/dev/null` is written as it is. Nothing is reached by a stranger's link.
    ///
    /// # Errors
    ///
    /// It is a directory, a block device, what holds the content, or a file without `force`; it is a
    /// stranger's; it cannot become as long as the content. Then it has what it had.
    pub fn open(path: &Path, copied: &Copied<'_>, force: bool) -> Result<Destination, ToolFailure> {
        let refuse = |why: &str| Err(ToolFailure::refused(path.display(), why));
        let failed = |error: io::Error| ToolFailure::failed(path.display(), error);
        let facts = path.metadata().ok();
        let is_regular = facts.as_ref().is_none_or(Metadata::is_file);
        match &facts {
            Some(facts) if facts.is_dir() => {
                return refuse("it is a directory; name a file in it");
            }
            Some(facts) if facts.file_type().is_block_device() => {
                return refuse("it is a device; write on it with dd, from standard output");
            }
            Some(facts) if facts.is_file() => {
                let holder = copied.holder;
                let held = holder.metadata().map_err(|error| opening_failed(holder, &error))?;
                if identity(facts) == identity(&held) {
                    return refuse("what is copied lies in it");
                }
                check_not_attached(path)?;
                if !force {
                    return refuse("the file exists; --force replaces it");
                }
            }
            // A pipe, a terminal or /dev/null has nothing to lose.
            Some(_) | None => {}
        }
        let size = copied.size_bytes;
        let cannot = |why: &dyn std::fmt::Display| {
            ToolFailure::failed(path.display(), format!("it cannot have {size} bytes: {why}"))
        };
        // The kernel ends whoever tries.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if is_regular && let Some(limit) = limit.filter(|limit| *limit < size) {
            return Err(cannot(&format!("the limit of this process (ulimit -f) is {limit}")));
        }
        let opened = open(path, facts.is_some(), copied.mode);
        let file = opened.map_err(|error| opening_failed(path, &error))?;
        let output = Destination { file, is_made: facts.is_none() };
        let found = output.file.metadata().map_err(failed)?;
        if facts.as_ref().is_some_and(|facts| identity(facts) != identity(&found)) {
            return refuse("it changed while it was opened");
        }
        if is_regular {
            // What the target cannot hold must not cost it what it holds.
            if let Err(error) = output.file.set_len(size) {
                output.give_up(path);
                return Err(cannot(&error));
            }
            output.file.set_len(0).map_err(failed)?;
        }
        Ok(output)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes it from `path` if it was made here, unless another has come there.
    pub fn give_up(self, path: &Path) {
        let there = path.symlink_metadata().ok().map(|facts| identity(&facts));
        let own = self.file.metadata().ok().map(|facts| identity(&facts));
        if self.is_made && there.is_some() && there == own {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn identity(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

fn open(path: &Path, exists: bool, mode: u32) -> io::Result<File> {
    match (file::named(path).map_err(of_system)?, exists) {
        (Named::There(place), true) => {
            place.believe_owner()?;
            File::options().write(true).open(place.descriptor_path())
        }
        (Named::There(_), false) => Err(io::ErrorKind::AlreadyExists.into()),
        (Named::Missing(..), true) => Err(io::ErrorKind::NotFound.into()),
        (Named::Missing(directory, name), false) => {
            // With these rights from the start, and never with those to run as somebody else.
            directory.create_file(name, mode & 0o777).map_err(of_system)
        }
    }
}
