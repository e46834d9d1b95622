//! Which kernel a guest has, and where it can be had: the newest of the package source in use, a
//! version of a Debian package, or an image on this machine.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::packages::{self, Fetched};
use crate::{Error, program};

/// The package that depends on the newest kernel.
const NEWEST: &str = "linux-image-amd64";
const PREFIX: &str = "linux-image-";
const SUFFIX: &str = "-amd64";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    /// `debian`: the newest of the package source in use.
    Newest,
    /// `linux-VERSION`: the newest package of this version or whose version begins with it.
    Version(String),
    /// A path: a bzImage, or the tree that one was built in.
    File(PathBuf),
}

impl Kernel {
    /// Reads a notation.
    pub fn parse(text: &str) -> Result<Kernel, Error> {
        let is_version = |version: &str| {
            let mut characters = version.chars();
            characters.next().is_some_and(|first| first.is_ascii_digit())
                && characters.all(|c| c.is_ascii_alphanumeric() || ".+-".contains(c))
        };
        match text.strip_prefix("linux-") {
            _ if text == "debian" => Ok(Kernel::Newest),
            Some(version) if is_version(version) => Ok(Kernel::Version(version.into())),
            _ if text.contains('/') => {
                std::path::absolute(text).map(Kernel::File).map_err(Error::system(text))
            }
            _ => Err(Error::Refused(format!(
                "'{text}' names no guest; debian is the newest kernel of the package source, \
                 linux-6.1 a version of it, /path/to/bzImage a kernel of your own"
            ))),
        }
    }

    /// Gets the kernel's package: by apt into `directory`, or out of a directory of packages.
    pub(crate) fn fetch(
        &self,
        packages: Option<&Path>,
        directory: &Path,
    ) -> Result<Fetched, Error> {
        match packages {
            Some(packages) => self.find_in(packages),
            None => self.download(directory),
        }
    }

    /// The names that fit, the newest first.
    fn fitting<'a>(&self, names: &'a [String]) -> Vec<&'a String> {
        let mut fitting: Vec<&String> = names
            .iter()
            .filter(|name| match (self, version_of(name)) {
                (Kernel::Newest, Some(_)) => true,
                (Kernel::Version(wanted), Some(version)) => {
                    let rest = version.strip_prefix(wanted.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
                }
                _ => false,
            })
            .collect();
        fitting.sort_by(|one, other| by_version(other, one));
        fitting
    }

    fn unknown(&self, names: &[String]) -> Error {
        let mut known: Vec<&str> = names.iter().filter_map(|name| version_of(name)).collect();
        known.sort_by(|one, other| by_version(other, one));
        let known: Vec<String> = known.iter().map(|version| format!("linux-{version}")).collect();
        Error::Refused(if known.is_empty() {
            format!("{self}: the package source has no kernel; 'apt-get update' reads it again")
        } else {
            format!("{self}: there is no such kernel; there are {}", known.join(", "))
        })
    }

    fn download(&self, directory: &Path) -> Result<Fetched, Error> {
        if program::find("apt-get").is_none() {
            return Err(Error::Refused(format!(
                "{self}: this machine has no apt; give a directory of Debian's packages by \
                 --packages DIR, or a kernel by its path"
            )));
        }
        let names = available()?;
        let newest = match self {
            Kernel::Newest => dependency_of(NEWEST).filter(|name| names.contains(name)),
            _ => None,
        };
        let name = match &newest {
            Some(name) => name,
            None => *self.fitting(&names).first().ok_or_else(|| self.unknown(&names))?,
        };
        packages::download(name, None, &[], directory)?;
        packages::in_directory(name, None, directory)
    }

    fn find_in(&self, directory: &Path) -> Result<Fetched, Error> {
        let files = packages::files_in(directory)?;
        let kernels = files.iter().filter(|file| file.starts_with(PREFIX));
        let names: Vec<String> =
            kernels.map(|file| file.split('_').next().unwrap_or(file).to_string()).collect();
        let name = *self.fitting(&names).first().ok_or_else(|| self.unknown(&names))?;
        packages::in_directory(name, None, directory)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Newest => f.write_str("debian"),
            Kernel::Version(version) => write!(f, "linux-{version}"),
            Kernel::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The kernel packages of the package source.
pub fn available() -> Result<Vec<String>, Error> {
    let text = program::text(&["apt-cache", "pkgnames", PREFIX])?;
    Ok(text.lines().filter(|name| version_of(name).is_some()).map(str::to_string).collect())
}

/// The version in the name of a kernel's package, as `uname -r` will say it; absent of packages of
/// another flavour and of those that only depend on one.
fn version_of(package: &str) -> Option<&str> {
    let version = package.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let first = version.chars().next()?;
    let flavoured = ["-cloud", "-rt"].iter().any(|flavour| version.ends_with(flavour));
    let is_real = first.is_ascii_digit() && version.matches('.').count() >= 2 && !flavoured;
    is_real.then_some(version)
}

/// The kernel that a package depends on.
fn dependency_of(package: &str) -> Option<String> {
    let text = program::text(&["apt-cache", "show", "--no-all-versions", package]).ok()?;
    let depends = text.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    let name = depends.split(',').next()?.trim().split(' ').next()?;
    version_of(name).map(|_| name.to_string())
}

/// Orders texts as versions: runs of digits by their value, everything else by its bytes.
fn by_version(one: &str, other: &str) -> Ordering {
    fn parts(text: &str) -> Vec<(u64, &str)> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let word = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            parts.push((number.parse().unwrap_or(0), &after[..word]));
            rest = &after[word..];
        }
        parts
    }
    parts(one).cmp(&parts(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let versions =
            ["6.1.0-9", "6.1.0-56", "6.12.117+deb12", "6.12", "6.1.0-56-cloud", "6.1.0-56-rt"];
        versions.iter().map(|version| format!("linux-image-{version}-amd64")).collect()
    }

    fn newest(notation: &str) -> Option<String> {
        let names = names();
        Kernel::parse(notation).unwrap().fitting(&names).first().map(|name| name.to_string())
    }

    #[test]
    fn the_newest_fitting_kernel_is_taken_and_no_flavour() {
        let is = |notation: &str, version: &str| {
            assert_eq!(
                newest(notation),
                Some(format!("linux-image-{version}-amd64")),
                "{notation}"
            );
        };
        is("debian", "6.12.117+deb12");
        is("linux-6.1", "6.1.0-56");
        is("linux-6", "6.12.117+deb12");
        is("linux-6.1.0-9", "6.1.0-9");
        is("linux-6.12.117", "6.12.117+deb12");
        assert_eq!(newest("linux-6.1.0-5"), None, "a prefix ends where a part of the version does");
    }

    #[test]
    fn an_unknown_kernel_lists_those_that_can_be_had() {
        let kernel = Kernel::parse("linux-5.4").unwrap();
        let text = kernel.unknown(&names()).to_string();
        let known = "there are linux-6.12.117+deb12, linux-6.1.0-56, linux-6.1.0-9";
        assert!(text.starts_with("linux-5.4: ") && text.ends_with(known), "{text}");
    }

    #[test]
    fn what_is_no_notation_is_answered_with_the_notations() {
        for text in ["", "ubuntu", "linux-", "linux-x", "linux-6.1;reboot", "ssh:host"] {
            let answer = Kernel::parse(text).unwrap_err().to_string();
            assert!(answer.contains("linux-6.1 a version"), "{text}: {answer}");
        }
        assert_eq!(Kernel::parse("/boot/vmlinuz").unwrap(), Kernel::File("/boot/vmlinuz".into()));
    }

    #[test]
    fn a_directory_without_packages_says_so() {
        let empty = tempfile::tempdir().unwrap();
        let kernel = Kernel::parse("linux-6.1").unwrap();
        let text = kernel.fetch(Some(empty.path()), empty.path()).unwrap_err().to_string();
        assert!(text.contains("linux-6.1") && text.contains("no kernel"), "{text}");
    }
}
