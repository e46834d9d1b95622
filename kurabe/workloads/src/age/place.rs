//! The directory in which a history happens, and how what is written there gets to the device.
//!
//! Between two things that happen on a machine in use there are minutes: what was written first is on the
//! device before the next comes. So it is made durable every few MiB, and the caches are dropped every now and
//! then, as under memory pressure. Without that a file system would place months of work at once.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use measure::durable::drop_kernel_caches;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trust::quantity::about_text;

use crate::tool::{Finished, WorkloadTool, run_with_input};

/// Bytes that are written before they are made durable.
const SYNC_BYTES: u64 = 32 << 20;
/// Of the capacity, what is written between two times at which the caches are dropped.
const DROP_SHARE: u64 = 4;
/// The bytes from which contents are cut: so many that no file system finds equal blocks often.
const POOL_BYTES: usize = 8 << 20;

/// A directory in which a history happens.
pub struct AgeingDirectory<'a> {
    root: PathBuf,
    /// Size of the device, from which the history follows.
    pub capacity_bytes: u64,
    /// From which all that is drawn follows.
    pub seed: u64,
    stop: &'a AtomicBool,
    /// Whether it matters how what is written gets to the device.
    pub(super) is_to_age: bool,
    pool: Vec<u8>,
    made: BTreeSet<PathBuf>,
    unsynced_bytes: u64,
    undropped_bytes: u64,
    lived: AgeingReport,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgeingReport {
    /// Files that were written.
    pub created: u64,
    pub deleted: u64,
    /// Bytes that were written, as far as this program wrote them.
    pub written_bytes: u64,
    /// Times that all was made durable.
    pub syncs: u64,
    /// What else there is to say.
    pub said: String,
}

impl fmt::Display for AgeingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgeingReport { created, deleted, written_bytes, syncs, said } = self;
        let written = about_text(*written_bytes);
        writeln!(
            f,
            "{created} files written, {deleted} deleted, {written} written, {syncs} syncs"
        )?;
        f.write_str(said)
    }
}

impl<'a> AgeingDirectory<'a> {
    /// Makes the directory, which must not be there.
    pub(super) fn make(
        root: &Path,
        capacity_bytes: u64,
        seed: u64,
        stop: &'a AtomicBool,
    ) -> Result<AgeingDirectory<'a>, String> {
        // Whatever the umask says, nobody else writes there.
        DirBuilder::new().mode(0o755).create(root).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!(
                    "{} is there already; age a file system that has no such directory",
                    root.display()
                )
            }
            _ => format!("making {}: {error}", root.display()),
        })?;
        let mut pool = vec![0; POOL_BYTES];
        ChaCha8Rng::seed_from_u64(!seed).fill(&mut pool[..]);
        Ok(AgeingDirectory {
            root: root.to_path_buf(),
            capacity_bytes,
            seed,
            stop,
            is_to_age: true,
            pool,
            made: BTreeSet::new(),
            unsynced_bytes: 0,
            undropped_bytes: 0,
            lived: AgeingReport::default(),
        })
    }

    /// Makes all durable and says what happened.
    pub(super) fn end(mut self) -> Result<AgeingReport, String> {
        self.sync()?;
        Ok(self.lived)
    }

    /// Adds to what is said of the history.
    pub(super) fn say(&mut self, text: String) {
        self.lived.said.push_str(&text);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn failed<'b>(
        &'b self,
        what: &'b str,
        path: &'b Path,
    ) -> impl Fn(io::Error) -> String + use<'b> {
        move |error| {
            let path = path.display();
            if error.kind() != io::ErrorKind::StorageFull {
                return format!("{what} {path}: {error}");
            }
            let written = about_text(self.lived.written_bytes);
            format!(
                "{what} {path}: the file system is full after {written} were written; lower fill=, or take a larger device"
            )
        }
    }

    /// Where contents are cut from.
    fn cut(&self, number: u64, bytes: usize) -> &[u8] {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let at = mixed as usize % (self.pool.len() - bytes + 1);
        &self.pool[at..at + bytes]
    }

    /// The directories above a file, made where they are missing.
    fn make_above(&mut self, path: &Path) -> Result<(), String> {
        let Some(above) = path.parent() else { return Ok(()) };
        if self.made.contains(above) {
            return Ok(());
        }
        fs::create_dir_all(above).map_err(self.failed("making", above))?;
        self.made.insert(above.to_path_buf());
        Ok(())
    }

    fn write_out(&self, file: &File, number: u64, mut at: u64, bytes: u64) -> io::Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let end = at + bytes;
        while at < end {
            let length = PIECE_BYTES.min(end - at);
            file.write_all_at(self.cut(number ^ at << 8, length as usize), at)?;
            at += length;
        }
        Ok(())
    }

    fn open(&mut self, path: &str, how: &mut OpenOptions) -> Result<(File, PathBuf), String> {
        let path = self.path(path);
        self.make_above(&path)?;
        let file = how.open(&path).map_err(self.failed("opening", &path))?;
        Ok((file, path))
    }

    /// Writes a new file.
    pub(super) fn write(&mut self, path: &str, number: u64, bytes: u64) -> Result<(), String> {
        let (file, path) = self.open(path, OpenOptions::new().write(true).create_new(true))?;
        self.write_out(&file, number, 0, bytes).map_err(self.failed("writing", &path))?;
        self.lived.created += 1;
        self.wrote(bytes)
    }

    /// Appends to a file, which is made where it is missing.
    pub(super) fn append(&mut self, path: &str, number: u64, bytes: u64) -> Result<(), String> {
        let (mut file, path) = self.open(path, OpenOptions::new().append(true).create(true))?;
        let contents = self.cut(number, bytes as usize);
        file.write_all(contents).map_err(self.failed("writing", &path))?;
        self.wrote(bytes)
    }

    /// Makes a file of this length that has nothing in it.
    pub(super) fn sparse(&mut self, path: &str, bytes: u64) -> Result<File, String> {
        let (file, path) = self.open(path, OpenOptions::new().write(true).create_new(true))?;
        file.set_len(bytes).map_err(self.failed("making", &path))?;
        self.lived.created += 1;
        Ok(file)
    }

    /// Writes into a file that is there.
    pub(super) fn overwrite(
        &mut self,
        file: &File,
        path: &str,
        number: u64,
        at: u64,
        bytes: u64,
    ) -> Result<(), String> {
        let path = self.path(path);
        self.write_out(file, number, at, bytes).map_err(self.failed("writing", &path))?;
        self.wrote(bytes)
    }

    pub(super) fn sync_file(&self, path: &str) -> Result<(), String> {
        if !self.is_to_age {
            return Ok(());
        }
        let path = self.path(path);
        let opened = OpenOptions::new().write(true).open(&path);
        opened.and_then(|file| file.sync_all()).map_err(self.failed("syncing", &path))
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let (from, to) = (self.path(from), self.path(to));
        self.make_above(&to)?;
        fs::rename(&from, &to).map_err(self.failed("renaming", &from))
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<(), String> {
        let path = self.path(path);
        fs::remove_file(&path).map_err(self.failed("deleting", &path))?;
        self.lived.deleted += 1;
        Ok(())
    }

    /// Runs a tool in a directory, with these bytes as its standard input.
    pub(super) fn run(
        &mut self,
        tool: WorkloadTool,
        directory: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Finished, String> {
        let stdin =
            memory(input).map_err(|error| format!("memory for {}: {error}", tool.program()))?;
        let mut command: Command = tool.command()?;
        let directory = self.path(directory);
        fs::create_dir_all(&directory).map_err(self.failed("making", &directory))?;
        // Nothing of the machine's own configuration changes what happens. The path is the tool's, without
        // the directories that are passed over.
        let is_path = |(name, value): (&OsStr, Option<&OsStr>)| {
            (name == "PATH").then(|| value.map(OsStr::to_os_string)).flatten()
        };
        let path = command.get_envs().find_map(is_path).or_else(|| std::env::var_os("PATH"));
        command
            .current_dir(&directory)
            .args(arguments)
            .env_clear()
            .envs([("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1")])
            .env("PATH", path.unwrap_or_default());
        Ok(run_with_input(&mut command, stdin, self.stop)?)
    }

    /// Counts what was written, also by a tool, and makes it durable when it is enough.
    pub(super) fn wrote(&mut self, bytes: u64) -> Result<(), String> {
        self.lived.written_bytes += bytes;
        self.unsynced_bytes += bytes;
        if self.unsynced_bytes >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    /// Makes all durable.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) {
            return Err("the ageing was stopped".into());
        }
        if !self.is_to_age {
            return Ok(());
        }
        let directory = File::open(&self.root).map_err(self.failed("opening", &self.root))?;
        rustix::fs::syncfs(&directory)
            .map_err(|error| self.failed("syncing", &self.root)(error.into()))?;
        self.undropped_bytes += self.unsynced_bytes;
        self.unsynced_bytes = 0;
        self.lived.syncs += 1;
        if self.undropped_bytes > self.capacity_bytes / DROP_SHARE {
            self.undropped_bytes = 0;
            self.drop_caches();
        }
        Ok(())
    }

    /// As memory pressure does. Without root nothing happens, and the history is the same.
    pub(super) fn drop_caches(&self) {
        if self.is_to_age && rustix::process::geteuid().is_root() {
            let _ = drop_kernel_caches();
        }
    }

    /// Copies a directory into this one, one file after the other in the order of their names.
    pub(super) fn copy(&mut self, from: &Path) -> Result<(), String> {
        self.copy_below(from, "")
    }

    fn copy_below(&mut self, from: &Path, below: &str) -> Result<(), String> {
        let here = from.join(below);
        let entries = fs::read_dir(&here).map_err(self.failed("reading", &here))?;
        let mut entries =
            entries.collect::<Result<Vec<_>, _>>().map_err(self.failed("reading", &here))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = if below.is_empty() { name.to_string() } else { format!("{below}/{name}") };
            let (source, target) = (from.join(&path), self.path(&path));
            let kind = entry.file_type().map_err(self.failed("reading", &source))?;
            if kind.is_dir() {
                fs::create_dir_all(&target).map_err(self.failed("making", &target))?;
                self.copy_below(from, &path)?;
            } else if kind.is_symlink() {
                let link = fs::read_link(&source).map_err(self.failed("reading", &source))?;
                std::os::unix::fs::symlink(link, &target)
                    .map_err(self.failed("making", &target))?;
            } else {
                let bytes = fs::copy(&source, &target).map_err(self.failed("copying", &target))?;
                self.lived.created += 1;
                self.wrote(bytes)?;
            }
        }
        Ok(())
    }
}

/// A file in memory, from its beginning.
fn memory(bytes: &[u8]) -> io::Result<Stdio> {
    use std::io::Seek as _;
    if bytes.is_empty() {
        return Ok(Stdio::null());
    }
    let memory = rustix::fs::memfd_create("kurabe-age", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}
