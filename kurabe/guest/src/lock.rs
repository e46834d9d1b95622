//! What an image and its parts were made of, as their lock files say it.

use serde::{Deserialize, Serialize};

use crate::packages::Package;
use crate::packed::PackedFile;
use crate::release::Release;

/// What the kernel's part was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// Name of the part.
    pub id: String,
    /// As `uname -r` will say it.
    pub release: Release,
    /// Its package; absent of a kernel by its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Package>,
    /// SHA-256 of the file that was given; absent of a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_sha256: Option<String>,
    /// Modules that it has, of those that a guest can use; what they depend on is there too.
    pub modules: Vec<String>,
    /// Modules that it does not have, as files or built in.
    pub missing_modules: Vec<String>,
}

impl KernelFacts {
    /// Whether it is known to have this module, or not to have it.
    pub fn knows(&self, module: &str) -> bool {
        self.modules.iter().any(|has| has == module) || self.lacks(module)
    }

    /// Whether it is known not to have this module, neither as a file nor built in.
    pub fn lacks(&self, module: &str) -> bool {
        self.missing_modules.iter().any(|missing| missing == module)
    }
}

/// A module that was built for a kernel, with its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Name of the part, after its content.
    pub id: String,
    pub module: String,
    /// Name of the kernel's part.
    pub kernel: String,
    /// The packages that it was built of.
    pub packages: Vec<Package>,
}

/// How images are built; one that was built in another way is built anew. 1: files and directories have the rights
/// that they have on the host.
pub const FORMAT: u32 = 1;

/// What an image was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLock {
    /// [`FORMAT`] when it was built.
    #[serde(default)]
    pub format: u32,
    /// Name of the image, after its content.
    pub id: String,
    /// The notation that it was built for.
    pub place: String,
    /// The kernel's part.
    pub kernel: KernelFacts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub built: Vec<Built>,
    /// The packages of this machine whose files are in it.
    pub packages: Vec<Package>,
    /// The files of this machine in it.
    pub files: Vec<PackedFile>,
}
