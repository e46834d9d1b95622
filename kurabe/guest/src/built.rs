//! What no package of a kernel and no program of this machine has: modules built for a guest's kernel out
//! of packages, and tools. How each is built is its [`Recipe`], which whoever needs it hands in.
//!
//! Must not know: any file system, images, and where what was built is kept. Invariants: nothing is
//! installed on this machine; all that is written lies in the site's directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::archive;
use crate::files::{copy_below, files_below, names_in, text_of};
use crate::lock::Built;
use crate::packages::{self, Dependency, Fetched, Package};
use crate::release::Release;
use crate::{Error, program};

/// Where libraries lie in a guest, and in packages.
pub const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// How a module, or the tools of one that the kernel has, are built for guests.
#[derive(Debug)]
pub struct Recipe {
    /// The module's name.
    pub module: &'static str,
    /// Gets the packages and builds the module.
    pub build: fn(&mut BuildSite<'_>) -> Result<(), Error>,
    /// The files of a source that this program carries, each with its text; empty where all comes out of
    /// packages. A module is built again when they change.
    pub source: &'static [(&'static str, &'static str)],
    /// Where in a guest its programs lie with a loader and libraries of their own, which need nothing of
    /// this machine.
    pub closed: Option<&'static str>,
}

impl Recipe {
    /// A module that is built out of packages alone.
    pub const fn of_packages(
        module: &'static str,
        build: fn(&mut BuildSite<'_>) -> Result<(), Error>,
    ) -> Recipe {
        Recipe { module, build, source: &[], closed: None }
    }

    /// The source that this program carries as if it were a package, with a hash (FNV-1a) in its version.
    fn source_package(&self) -> Package {
        let bytes = self.source.iter().flat_map(|(_, text)| text.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let version = format!("{}+{hash:016x}", env!("CARGO_PKG_VERSION"));
        Package { name: self.module.into(), version, sha256: None }
    }

    /// Whether something was built by it, of the same source; what comes out of packages is kept.
    fn is_current(&self, built: &Built) -> bool {
        built.module == self.module
            && (self.source.is_empty() || built.packages.contains(&self.source_package()))
    }
}

/// What guests are supplied with, besides what every guest has.
#[derive(Debug, Clone, Default)]
pub struct Supplies {
    /// Modules that are taken where the kernel's package has them.
    pub modules: Vec<&'static str>,
    /// What can be built.
    pub recipes: Vec<&'static Recipe>,
}

impl Supplies {
    pub(crate) fn recipe(&self, module: &str) -> Option<&'static Recipe> {
        self.recipes.iter().copied().find(|recipe| recipe.module == module)
    }

    /// Whether this program would build it in the same way. What it can no longer build is kept.
    pub(crate) fn is_current(&self, built: &Built) -> bool {
        self.recipe(&built.module).is_none_or(|recipe| recipe.is_current(built))
    }

    /// The names of what can be built, for messages.
    pub(crate) fn can_build(&self) -> String {
        self.recipes.iter().map(|recipe| recipe.module).collect::<Vec<_>>().join(", ")
    }
}

/// Where, and for which kernel, something is built.
pub struct BuildSite<'a> {
    /// As `uname -r` says it.
    pub(crate) release: &'a Release,
    pub(crate) kernel: &'a Package,
    /// Where packages are taken from when nothing is to be fetched.
    pub(crate) packages: Option<&'a Path>,
    /// An empty directory.
    pub(crate) work: &'a Path,
    pub(crate) modules: PathBuf,
    /// Where everything else goes, as it is to lie in the guest.
    pub(crate) files: PathBuf,
    /// The packages that were used.
    pub(crate) used: Vec<Package>,
}

impl BuildSite<'_> {
    pub(crate) fn build(&mut self, recipe: &Recipe) -> Result<(), Error> {
        (recipe.build)(self)?;
        if !recipe.source.is_empty() {
            self.used.push(recipe.source_package());
        }
        Ok(())
    }

    /// The directory that packages are unpacked to.
    pub fn root(&self) -> PathBuf {
        self.work.join("root")
    }

    /// A directory for sources, made empty.
    pub fn directory(&self, name: &str) -> Result<PathBuf, Error> {
        let directory = self.work.join(name);
        fs::create_dir(&directory).map_err(Error::at(&directory))?;
        Ok(directory)
    }

    /// The version of the kernel's package.
    pub fn kernel_version(&self) -> String {
        self.kernel.version.clone()
    }

    /// The first two numbers of the kernel's release, after which its source's package is named.
    pub fn series(&self) -> String {
        series(self.release)
    }

    /// apt's options by which it reads a component of the package source, such as `contrib`.
    pub fn component(&self, name: &str) -> Result<Vec<String>, Error> {
        match self.packages {
            Some(_) => Ok(Vec::new()),
            None => packages::with_component(name, self.work),
        }
    }

    /// apt's options by which it reads other suites of Debian.
    pub fn suites(&self, names: &[&str]) -> Result<Vec<String>, Error> {
        match self.packages {
            Some(_) => Ok(Vec::new()),
            None => packages::with_suites(names, self.work),
        }
    }

    /// Gets a package, of this version where one is named, and unpacks it below the root. `options` are
    /// apt's.
    pub fn add(
        &mut self,
        name: &str,
        version: Option<&str>,
        options: &[String],
    ) -> Result<PathBuf, Error> {
        if self.packages.is_none() {
            packages::download(name, version, options, self.work)?;
        }
        let Fetched { name, version, file } =
            packages::in_directory(name, version, self.packages.unwrap_or(self.work))?;
        packages::unpack(&file, &self.root())?;
        let sha256 = Some(program::sha256(&[&file])?.remove(0));
        self.used.push(Package { name, version, sha256 });
        Ok(file)
    }

    /// The kernel's headers, ready to build modules with: those of its own, and those of all flavours.
    pub fn headers(&mut self) -> Result<(PathBuf, PathBuf), Error> {
        // Before anything is fetched for nothing.
        for tool in ["gcc", "make", "strip", "tar", "xz"] {
            program::command(tool)?;
        }
        let (name, version) =
            (format!("linux-headers-{}", self.release), self.kernel.version.clone());
        let file = self.add(&name, Some(&version), &[])?;
        let mut common = None;
        for needed in packages::dependencies(&file)? {
            let is_common = needed.name.starts_with("linux-headers-");
            if is_common || needed.name.starts_with("linux-kbuild-") {
                self.add(&needed.name, needed.version.as_deref(), &[])?;
            }
            if is_common {
                common = Some(needed.name);
            }
        }
        let sources = self.root().join("usr/src");
        let own = sources.join(&name);
        // It names the others by where they would be installed.
        let makefile = own.join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(Error::at(&makefile))?;
        let text = text.replace("/usr/src/", &format!("{}/", text_of(&sources)?));
        fs::write(&makefile, text).map_err(Error::at(&makefile))?;
        let common = common.map_or_else(|| own.clone(), |common| sources.join(common));
        Ok((own, common))
    }

    /// Takes the modules below a directory, without what only a debugger reads.
    pub fn take_modules(&self, directory: &Path) -> Result<(), Error> {
        for path in files_below(directory)? {
            if path.extension().is_some_and(|extension| extension == "ko") {
                let module = self.modules.join(path.file_name().expect("it has an extension"));
                let source = directory.join(&path);
                program::output(
                    &["strip", "-g", "-o", text_of(&module)?, text_of(&source)?],
                    None,
                )?;
            }
        }
        Ok(())
    }

    /// Takes a file of a package to a place in the guest.
    pub fn take(&self, path: &Path, directory: &str) -> Result<(), Error> {
        let directory = Path::new(directory.trim_start_matches('/'));
        let below = directory.join(path.file_name().unwrap_or_default());
        // Several programs have the same library.
        if self.files.join(&below).exists() {
            return Ok(());
        }
        copy_below(path, &self.files, &below)
    }

    /// Gets a package with the libraries that it needs, and takes these programs of it.
    pub fn take_tools(&mut self, package: &str, programs: &[&str]) -> Result<(), Error> {
        let mut names = vec![package.to_string()];
        let mut at = 0;
        while let Some(name) = names.get(at).cloned() {
            let file = self.add(&name, None, &[])?;
            let more = packages::dependencies(&file)?.into_iter().map(|needed| needed.name);
            // The C library is this machine's.
            for name in more.filter(|name| name.starts_with("lib") && !name.starts_with("libc6")) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            at += 1;
        }
        for program in programs {
            let directories =
                ["sbin", "usr/sbin", "bin", "usr/bin"].map(|one| self.root().join(one));
            let mut paths = directories.iter().map(|directory| directory.join(program));
            let Some(path) = paths.find(|path| path.is_file()) else {
                return Err(Error::Refused(format!("the package {package} has no {program}")));
            };
            self.take(&path, "usr/sbin")?;
        }
        for directory in ["lib/x86_64-linux-gnu", LIBRARIES] {
            let directory = self.root().join(directory);
            for name in self.names(&directory) {
                let path = directory.join(name);
                if path.is_symlink() && path.is_file() {
                    self.take(&path, LIBRARIES)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a script of the guest, which can be run.
    pub fn write_script(&self, below: &str, text: &str) -> Result<(), Error> {
        let path = self.files.join(below);
        fs::create_dir_all(path.parent().unwrap_or(&self.files)).map_err(Error::at(&path))?;
        fs::write(&path, text).map_err(Error::at(&path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(Error::at(&path))
    }

    /// Runs a program in a directory.
    pub fn run(&self, words: &[&str], directory: &Path) -> Result<(), Error> {
        program::output(words, Some(directory)).map(drop)
    }

    /// Runs make in a directory, on all processors.
    pub fn make(&self, words: &[&str], directory: &Path) -> Result<(), Error> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        self.run(&[&["make", &format!("-j{jobs}")], words].concat(), directory)
    }

    /// The names in a directory; none where there is no such directory.
    pub fn names(&self, directory: &Path) -> Vec<String> {
        names_in(directory).unwrap_or_default()
    }

    pub fn dependencies(&self, package: &Path) -> Result<Vec<Dependency>, Error> {
        packages::dependencies(package)
    }

    /// The libraries of a program, those in `own` first.
    pub fn libraries(&self, program: &Path, own: &Path) -> Result<Vec<PathBuf>, Error> {
        archive::libraries(program, Some(own))
    }
}

/// The first two numbers of a release.
fn series(release: &Release) -> String {
    release.as_str().split(['.', '-', '+']).take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_after_the_first_two_numbers_of_a_release() {
        for (release, name) in [("6.1.0-56-amd64", "6.1"), ("6.12.117+deb12-amd64", "6.12")] {
            assert_eq!(series(&Release::parse(release).unwrap()), name);
        }
    }

    #[test]
    fn a_module_is_built_anew_of_another_source() {
        static OWN: Recipe =
            Recipe { source: &[("Kbuild", "obj-m")], ..Recipe::of_packages("own", |_| Ok(())) };
        static FETCHED: Recipe = Recipe::of_packages("fetched", |_| Ok(()));
        let supplies = Supplies { modules: Vec::new(), recipes: vec![&OWN, &FETCHED] };
        assert_eq!(supplies.can_build(), "own, fetched");
        let built = |module: &str, packages| Built {
            id: String::new(),
            module: module.into(),
            kernel: String::new(),
            packages,
        };
        let mut own = built("own", vec![OWN.source_package()]);
        assert!(supplies.is_current(&own));
        own.packages[0].version.push('0');
        assert!(!supplies.is_current(&own));
        assert!(supplies.is_current(&built("fetched", Vec::new())));
    }
}
