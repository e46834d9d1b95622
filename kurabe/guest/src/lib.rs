//! A guest: another kernel under QEMU, in which one command runs and whose input and output are
//! pipes, as those of any child process.
//!
//! - [`Kernel`]: which kernel, and where it can be had.
//! - [`ImageStore`]: the images, built from packages and this machine's own tools, with their lock files.
//! - [`GuestMachine`], [`Guest`]: boots an image, and says how it ended ([`GuestEnd`]).
//! - [`inside`]: the first process of a guest.
//!
//! Must not know: what runs in a guest, or what is measured there. Invariants: nothing of a guest
//! outlives this process (QEMU asks the kernel to be killed with it, and has no socket and no file of
//! its own); a guest has no network but to other guests of the same trial, by a socket without a name; it sees this machine's files only to read them.

mod archive;
mod boot_image;
mod built;
mod console;
mod end;
mod files;
pub mod inside;
mod kernel;
mod lock;
mod machine;
mod packages;
mod packed;
mod program;
mod release;
mod store;
#[allow(unsafe_code)]
mod sys;

pub use built::{BuildSite, LIBRARIES, Recipe, Supplies};
pub use end::GuestEnd;
pub use kernel::{Kernel, available};
pub use lock::{Built, ImageLock, KernelFacts};
pub use machine::{
    Acceleration, Guest, GuestDisk, GuestExit, GuestMachine, Link, emulator_version,
};
pub use packages::{Dependency, Package};
pub use packed::{Needs, PackedFile};
pub use program::sha256;
pub use release::Release;
pub use store::{Image, ImageStore};
pub use sys::die_with_parent;

use std::io;
use std::path::Path;

/// Why there is no guest. Nothing was touched but kurabe's own directory of guests.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is missing or wrong; the text says what, and the next step.
    #[error("{0}")]
    Refused(String),
    #[error("{what}: {error}")]
    System {
        /// What was tried, with the path.
        what: String,
        error: io::Error,
    },
    /// A file that a stranger can change.
    #[error(transparent)]
    Trust(#[from] trust::Refused),
}

impl Error {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System { what, error }
    }

    /// What the system said of a path.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
        Error::system(path.display().to_string())
    }
}
