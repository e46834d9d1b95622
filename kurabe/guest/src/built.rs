//! What no package of a kernel and no program of this machine has: modules built for a guest's kernel out
//! of packages, and tools: one recipe each.
//!
//! Must not know: images, and where what was built is kept. Invariants: nothing is installed on this
//! machine; all that is written lies in the site's directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::archive;
use crate::files::{copy_below, files_below, names_in, text_of};
use crate::lock::Built;
use crate::packages::Package;
use crate::packages::{self, Fetched};
use crate::release::Release;
use crate::{Error, program};

/// Where the tools of ZFS lie in a guest: zfs-fuse's have the same names.
pub const ZFS_TOOLS: &str = "/usr/lib/openzfs";
/// Where its libraries lie.
pub(crate) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Where programs lie in a guest with a loader and libraries of their own, which need nothing of this
/// machine.
pub(crate) const CLOSED: &str = "usr/lib/bcachefs";

/// What is built, by the module's name.
struct Recipe {
    module: &'static str,
    build: fn(&mut Site<'_>) -> Result<(), Error>,
}

const RECIPES: [Recipe; 4] = [
    Recipe { module: "bcachefs", build: bcachefs },
    Recipe { module: "zfs", build: zfs },
    Recipe { module: "ufs", build: ufs },
    Recipe { module: MINFS, build: minfs },
];

const MINFS: &str = "minfs";
/// The source of minfs as a kernel module, by file.
const MINFS_SOURCE: [(&str, &str); 12] = [
    ("Kbuild", include_str!("../../../minfs/kernel/Kbuild")),
    ("Makefile", include_str!("../../../minfs/kernel/Makefile")),
    ("minfs.h", include_str!("../../../minfs/kernel/minfs.h")),
    ("minfs_format.h", include_str!("../../../minfs/minfs_format.h")),
    ("data.c", include_str!("../../../minfs/kernel/data.c")),
    ("direct.c", include_str!("../../../minfs/kernel/direct.c")),
    ("file.c", include_str!("../../../minfs/kernel/file.c")),
    ("record.c", include_str!("../../../minfs/kernel/record.c")),
    ("space.c", include_str!("../../../minfs/kernel/space.c")),
    ("super.c", include_str!("../../../minfs/kernel/super.c")),
    ("survey.c", include_str!("../../../minfs/kernel/survey.c")),
    ("volume.c", include_str!("../../../minfs/kernel/volume.c")),
];

/// Whether a module can be built for the kernels of guests, its tools with it.
pub fn can_build(module: &str) -> bool {
    RECIPES.iter().any(|recipe| recipe.module == module)
}

/// Whether this program would build it of the same source; what comes out of packages is kept.
pub(crate) fn is_current(built: &Built) -> bool {
    built.module != MINFS || built.packages.contains(&minfs_source())
}

/// The module's source as if it were a package, with a hash (FNV-1a) in its version.
fn minfs_source() -> Package {
    let bytes = MINFS_SOURCE.iter().flat_map(|(_, text)| text.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let version = format!("{}+{hash:016x}", env!("CARGO_PKG_VERSION"));
    Package { name: MINFS.into(), version, sha256: None }
}

/// Where, and for which kernel, something is built.
pub(crate) struct Site<'a> {
    /// As `uname -r` says it.
    pub release: &'a Release,
    /// The kernel's package.
    pub kernel: &'a Package,
    /// Where packages are taken from when nothing is to be fetched.
    pub packages: Option<&'a Path>,
    /// An empty directory.
    pub work: &'a Path,
    /// Where the modules go.
    pub modules: PathBuf,
    /// Where everything else goes, as it is to lie in the guest.
    pub files: PathBuf,
    /// The packages that were used.
    pub used: Vec<Package>,
}

impl Site<'_> {
    /// Builds a module.
    pub fn build(&mut self, module: &str) -> Result<(), Error> {
        let recipe = RECIPES.iter().find(|recipe| recipe.module == module);
        (recipe.expect("what cannot be built is not asked for").build)(self)
    }

    fn root(&self) -> PathBuf {
        self.work.join("root")
    }

    /// Gets a package and unpacks it below the root.
    fn add(
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
        program::output(&["dpkg-deb", "-x", text_of(&file)?, text_of(&self.root())?], None)?;
        let sha256 = Some(program::sha256(&[&file])?.remove(0));
        self.used.push(Package { name, version, sha256 });
        Ok(file)
    }

    /// The kernel's headers, ready to build modules with: those of its own, and those of all flavours.
    fn headers(&mut self) -> Result<(PathBuf, PathBuf), Error> {
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
    fn take_modules(&self, directory: &Path) -> Result<(), Error> {
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
    fn take(&self, path: &Path, directory: &str) -> Result<(), Error> {
        let directory = Path::new(directory.trim_start_matches('/'));
        let below = directory.join(path.file_name().unwrap_or_default());
        // Several programs have the same library.
        if self.files.join(&below).exists() {
            return Ok(());
        }
        copy_below(path, &self.files, &below)
    }
}

/// Words of make that use all processors.
fn make() -> [String; 2] {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    ["make".into(), format!("-j{jobs}")]
}

fn run(words: &[String], directory: &Path) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    program::output(&words, Some(directory)).map(drop)
}

/// OpenZFS as Debian has it, in its component contrib for the licence's sake: the source of its DKMS
/// package, and its tools.
fn zfs(site: &mut Site<'_>) -> Result<(), Error> {
    let (own, common) = site.headers()?;
    let contrib = match site.packages {
        Some(_) => Vec::new(),
        None => packages::with_component("contrib", site.work)?,
    };
    site.add("zfs-dkms", None, &contrib)?;
    let tools = site.add("zfsutils-linux", None, &contrib)?;
    let libraries = packages::dependencies(&tools)?;
    for one in
        libraries.iter().filter(|one| one.name.starts_with("lib") && one.name.ends_with("linux"))
    {
        site.add(&one.name, one.version.as_deref(), &contrib)?;
    }
    let sources = site.root().join("usr/src");
    let source = names_in(&sources)?.into_iter().find(|name| name.starts_with("zfs-"));
    let source = sources.join(source.unwrap_or_default());
    // As its dkms.conf has it.
    let configure = [
        "sh".into(),
        "./configure".into(),
        "--prefix=/usr".into(),
        "--with-config=kernel".into(),
        format!("--with-linux={}", text_of(&common)?),
        format!("--with-linux-obj={}", text_of(&own)?),
    ];
    run(&configure, &source)?;
    run(&make(), &source)?;
    site.take_modules(&source.join("module"))?;
    for directory in ["sbin", "usr/sbin"] {
        for name in ["zpool", "zfs", "zdb"] {
            let path = site.root().join(directory).join(name);
            if path.exists() {
                site.take(&path, ZFS_TOOLS)?;
            }
        }
    }
    for directory in ["lib/x86_64-linux-gnu", LIBRARIES] {
        let directory = site.root().join(directory);
        // The name by which programs ask for one is a link.
        for name in names_in(&directory).unwrap_or_default() {
            let path = directory.join(name);
            if path.is_symlink() && path.is_file() {
                site.take(&path, LIBRARIES)?;
            }
        }
    }
    Ok(())
}

/// The kernel's own driver of UFS with its write support, which Debian leaves out, from the source of
/// the same package; and makefs.
fn ufs(site: &mut Site<'_>) -> Result<(), Error> {
    let (own, _) = site.headers()?;
    let source = format!("linux-source-{}", series(site.release));
    let version = site.kernel.version.clone();
    site.add(&source, Some(&version), &[])?;
    site.add("makefs", None, &[])?;
    let archive = site.root().join("usr/src").join(format!("{source}.tar.xz"));
    let part = format!("{source}/fs/ufs");
    let (archive, work) = (text_of(&archive)?, text_of(site.work)?);
    program::output(&["tar", "-xJf", archive, "-C", work, "--strip-components=2", &part], None)?;
    let directory = site.work.join("ufs");
    let words = make().into_iter().chain([
        format!("-C{}", text_of(&own)?),
        format!("M={}", text_of(&directory)?),
        "CONFIG_UFS_FS=m".into(),
        "KCFLAGS=-DCONFIG_UFS_FS_WRITE=1".into(),
        "modules".into(),
    ]);
    run(&words.collect::<Vec<_>>(), &directory)?;
    site.take_modules(&directory)?;
    site.take(&site.root().join("usr/sbin/makefs"), "usr/sbin")
}

/// Debian's suites with bcachefs-tools of the age of Linux 6.12, and with the libraries that these need.
const BCACHEFS_SUITES: [&str; 2] = ["experimental", "trixie"];
const BCACHEFS_SCRIPT: &str = "#!/bin/sh
exec /usr/lib/bcachefs/ld-linux-x86-64.so.2 --library-path /usr/lib/bcachefs /usr/lib/bcachefs/bcachefs \"$@\"
";

/// The tools of bcachefs, whose module the kernel has. They need a newer C library than this machine may
/// have, so they come with their own.
fn bcachefs(site: &mut Site<'_>) -> Result<(), Error> {
    let lists = match site.packages {
        Some(_) => Vec::new(),
        None => packages::with_suites(&BCACHEFS_SUITES, site.work)?,
    };
    let mut names = vec!["bcachefs-tools".to_string()];
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let file = site.add(&name, None, &lists)?;
        let more = packages::dependencies(&file)?.into_iter().map(|needed| needed.name);
        for name in more.filter(|name| name.starts_with("lib") || name == "zlib1g") {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        at += 1;
    }
    let libraries = site.root().join(LIBRARIES);
    let program = site.root().join("usr/sbin/bcachefs");
    let needed = archive::libraries(&program, Some(&libraries))?;
    // Its own loader first: this machine's, which has the same name, then stays here.
    let loader = libraries.join("ld-linux-x86-64.so.2");
    for path in [&loader, &program].into_iter().chain(&needed) {
        site.take(path, CLOSED)?;
    }
    let script = site.files.join("usr/sbin/bcachefs");
    fs::create_dir_all(script.parent().expect("it has one")).map_err(Error::at(&script))?;
    fs::write(&script, BCACHEFS_SCRIPT).map_err(Error::at(&script))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(Error::at(&script))
}

/// minfs as a kernel module, of the source in this program; its tools are this program's.
fn minfs(site: &mut Site<'_>) -> Result<(), Error> {
    let (own, _) = site.headers()?;
    let directory = site.work.join(MINFS);
    fs::create_dir(&directory).map_err(Error::at(&directory))?;
    for (name, text) in MINFS_SOURCE {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::at(&path))?;
    }
    let words = make().into_iter().chain([format!("KDIR={}", text_of(&own)?)]);
    run(&words.collect::<Vec<_>>(), &directory)?;
    site.take_modules(&directory)?;
    site.used.push(minfs_source());
    Ok(())
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
        assert!(can_build("zfs") && can_build("ufs") && !can_build("ext4"));
    }

    #[test]
    fn the_module_of_minfs_is_built_anew_of_another_source() {
        let objects =
            MINFS_SOURCE[0].1.split_whitespace().filter_map(|word| word.strip_suffix(".o"));
        let mut objects: Vec<&str> = objects.filter(|name| *name != MINFS).collect();
        objects.sort_unstable();
        let sources = MINFS_SOURCE.iter().filter_map(|(name, _)| name.strip_suffix(".c"));
        assert_eq!(sources.collect::<Vec<_>>(), objects, "what the module is built of");
        let mut built = Built {
            id: String::new(),
            module: MINFS.into(),
            kernel: String::new(),
            packages: vec![minfs_source()],
        };
        assert!(is_current(&built));
        built.packages[0].version.push('0');
        assert!(!is_current(&built));
    }
}
