//! Whom kurabe believes. It runs as root, so a file, a directory or a text that somebody else made
//! is data until it was looked at.
//!
//! - [`owner`]: who may own what is read or written.
//! - [`way`]: opens a path and refuses every directory and link on it that a stranger can change.
//! - [`file`]: reads files below a size, and nothing but regular ones.
//! - [`Directory`]: a directory that was opened once and is used by descriptor.
//! - [`complaint`]: the part of a tool's output that says why it failed.
//! - [`elf`]: the loader and the shared libraries that a program needs.
//! - [`mounts`]: the kernel's table of mounts.
//! - [`output`]: prints where the reader may leave.
//! - [`program`]: finds programs.
//! - [`quantity`]: reads and writes sizes, durations and percentages.
//! - [`text`]: makes foreign text harmless for the terminal, Markdown, HTML and CSV.
//! - [`tree`]: walks and removes directories that others made as deep as they liked.
//!
//! Must not know: what the files are for.

#![warn(missing_docs)]

pub mod complaint;
mod directory;
pub mod elf;
pub mod file;
pub mod mounts;
pub mod output;
pub mod owner;
pub mod program;
pub mod quantity;
#[allow(unsafe_code)]
mod sys;
pub mod text;
pub mod tree;
pub mod way;
pub mod words;

pub use directory::{Directory, FileLock, LockError, own_path};

/// Rights of a file that holds bytes of a workload's files, or what a check said of them: they may come of
/// a file that nobody else could read.
pub const CONTENTS_MODE: u32 = 0o600;
/// Rights of a directory of such files.
pub const CONTENTS_DIRECTORY_MODE: u32 = 0o700;

use std::io;
use std::path::{Path, PathBuf};

/// Why something is not read, written or used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// What the system said.
    #[error("{}: {error}", .path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Somebody owns it who is not believed.
    #[error(
        "{} belongs to user {owner}, who could make kurabe do anything with your rights; if you trust {owner}, add: --trust {owner}",
        .path.display()
    )]
    Stranger {
        /// Where.
        path: PathBuf,
        /// Name of the owner, or the number of one without a name.
        owner: String,
    },
    /// Its owner is believed, but others can write it.
    #[error("{} can be written by other users; take that right away (chmod go-w), move it, or add --trust-shared if you trust all who can", .path.display())]
    Writable {
        /// Where.
        path: PathBuf,
    },
    /// What is there, or may be by then, is what any user puts there.
    #[error("any user can put files into {}; use a directory of your own, or add --trust-shared if you trust all users", .directory.display())]
    Anybodys {
        /// Where.
        directory: PathBuf,
    },
    /// A FIFO, a device, a socket, or a file where a directory is wanted.
    #[error("{} is {is}, and {wanted} is needed", .path.display())]
    Kind {
        /// Where.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// It is larger than what is read of such a file.
    #[error("{} has more than {bytes_max} bytes; no such file is that large", .path.display())]
    TooLarge {
        /// Where.
        path: PathBuf,
        /// The bound in bytes.
        bytes_max: u64,
    },
}

impl Refused {
    /// An error of the system at `path`.
    pub fn system(path: &Path, error: impl Into<io::Error>) -> Refused {
        Refused::System { path: path.into(), error: error.into() }
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        self.says(io::ErrorKind::NotFound)
    }

    /// Whether the name that was to be made is taken.
    pub fn exists(&self) -> bool {
        self.says(io::ErrorKind::AlreadyExists)
    }

    fn says(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Refused::System { error, .. } if error.kind() == kind)
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        let kind = match &refused {
            Refused::System { error, .. } => error.kind(),
            Refused::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, refused)
    }
}
