//! What an image holds of this machine: programs with their libraries, and files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::archive::ArchiveContents;
use crate::packages::Package;
use crate::{Error, program};

/// Programs that every guest needs besides those that it was asked to have.
const PROGRAMS: &[&str] = &["modprobe", "sh", "mount", "umount"];

/// Where kurabe itself lies in a guest.
pub const OWN: &str = "kurabe";
/// A file of this machine in an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// Where it lies in the guest.
    pub path: PathBuf,
    /// Size in bytes of the host's.
    pub size_bytes: u64,
    /// When the host's was changed last, in ns; with the size it tells whether it still is the same.
    pub changed_ns: i64,
    /// SHA-256 of the host's.
    pub sha256: String,
}

/// What an image is to hold.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Programs by their names or paths; what is not installed is left out.
    pub programs: Vec<String>,
    pub files: Vec<PathBuf>,
    /// Modules that its kernel has to have been asked for.
    pub kernel_modules: Vec<String>,
    /// Modules to be built for its kernel, see [`crate::Supplies::recipes`].
    pub modules: Vec<String>,
}

pub fn own_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::system("this program"))
}

/// The programs that a guest is to hold and that are here, by their paths.
fn programs(needs: &Needs) -> impl Iterator<Item = PathBuf> {
    let all = PROGRAMS.iter().copied().chain(needs.programs.iter().map(String::as_str));
    let path = |name: &str| {
        if name.contains('/') { Some(PathBuf::from(name)) } else { program::find(name) }
    };
    // The kernel itself calls the last one by this name.
    all.filter_map(path).chain(["/sbin/modprobe".into()])
}

/// What the guest holds of this machine.
pub fn contents(needs: &Needs) -> Result<ArchiveContents, Error> {
    let mut contents = ArchiveContents::default();
    for directory in ["dev", "proc", "sys", "run", "tmp"] {
        contents.add_directory(directory);
    }
    for name in PROGRAMS {
        program::command(name)?;
    }
    for path in programs(needs) {
        contents.add_program(&path)?;
    }
    for file in needs.files.iter().filter(|file| file.exists()) {
        contents.add(file).map_err(Error::at(file))?;
    }
    let own = own_program()?;
    // With its libraries; once more where nothing of the host's has its place.
    contents.add_program(&own)?;
    contents.remove(&own);
    contents.add_file(Path::new(OWN), &own).map_err(Error::at(&own))?;
    Ok(contents)
}

fn stat_of(source: &Path) -> Result<(u64, i64), Error> {
    let facts = fs::metadata(source).map_err(Error::at(source))?;
    Ok((facts.len(), facts.mtime().saturating_mul(1_000_000_000) + facts.mtime_nsec()))
}

/// Whether an image has what a guest is to hold, as it is on this machine now.
pub fn is_unchanged(needs: &Needs, packed: &[PackedFile]) -> Result<bool, Error> {
    let own = own_program()?;
    let is_same = |locked: &PackedFile| {
        let host = Path::new("/").join(&locked.path);
        let source = if locked.path == Path::new(OWN) { &own } else { &host };
        stat_of(source).is_ok_and(|stat| stat == (locked.size_bytes, locked.changed_ns))
    };
    // What was installed since then.
    let files = needs.files.iter().filter(|file| file.exists()).cloned();
    let mut wanted = programs(needs).chain(files);
    let is_in = |path: PathBuf| {
        let path = path.canonicalize().unwrap_or(path);
        packed.iter().any(|locked| Path::new("/").join(&locked.path) == path)
    };
    Ok(packed.iter().all(is_same) && wanted.all(is_in))
}

pub fn packed_files(contents: &ArchiveContents) -> Result<Vec<PackedFile>, Error> {
    let files: Vec<(&Path, &Path)> = contents.files().collect();
    let sources: Vec<&Path> = files.iter().map(|(_, source)| *source).collect();
    let sums = program::sha256(&sources)?;
    let packed = files.iter().zip(sums).map(|((path, source), sha256)| {
        let (size_bytes, changed_ns) = stat_of(source)?;
        Ok(PackedFile { path: path.to_path_buf(), size_bytes, changed_ns, sha256 })
    });
    packed.collect()
}

/// The installed packages that files are of; empty where the machine has no dpkg.
pub fn packages_of(files: &[PackedFile]) -> Vec<Package> {
    let Ok(mut search) = program::command("dpkg-query") else { return Vec::new() };
    search.arg("-S");
    for file in files {
        // Packages name their files also by where they lay before /bin and /lib became links.
        let path = Path::new("/").join(&file.path);
        if let Ok(below) = file.path.strip_prefix("usr") {
            search.arg(Path::new("/").join(below));
        }
        search.arg(path);
    }
    let Ok(found) = search.output() else { return Vec::new() };
    let found = String::from_utf8_lossy(&found.stdout);
    let mut names: Vec<&str> =
        found.lines().filter_map(|line| line.split(": ").next()?.split(", ").next()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    let words = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"];
    let words: Vec<&str> = words.into_iter().chain(names).collect();
    let text = program::text(&words).unwrap_or_default();
    let package = |line: &str| {
        let (name, version) = line.split_once(' ')?;
        Some(Package { name: name.into(), version: version.into(), sha256: None })
    };
    text.lines().filter_map(package).collect()
}
