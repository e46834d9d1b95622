//! The archive that a kernel unpacks into its first file system: cpio in the "newc" format.
//!
//! Invariants: entries are in the order of their paths, and carry no time and no owner but root, so
//! that equal content gives equal bytes; a directory comes before what it holds.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use trust::elf::LibraryDirectories;

use crate::Error;

/// What stands at a path of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory {
        mode: u32,
    },
    Link(PathBuf),
    /// The bytes of this file of the host.
    File {
        source: PathBuf,
        mode: u32,
    },
}

/// Rights of a directory that the host does not have.
const NEW_DIRECTORY: u32 = 0o755;
/// What an entry keeps of the mode that it has on the host: an image lies over the host's files, and must let
/// nobody in whom the host does not.
const RIGHTS: u32 = 0o777;

fn rights(facts: &fs::Metadata) -> u32 {
    facts.permissions().mode() & RIGHTS
}

/// What goes into an archive, by its path without the leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveContents(BTreeMap<PathBuf, Entry>);

/// Links on one path, as the kernel bounds them.
const LINKS_MAX: usize = 40;

impl ArchiveContents {
    pub fn add_directory(&mut self, path: &str) {
        let mut at = PathBuf::new();
        for name in Path::new(path) {
            at.push(name);
            // What the host has there is covered by it.
            let mode = fs::metadata(Path::new("/").join(&at)).map_or(NEW_DIRECTORY, |f| rights(&f));
            self.0.entry(at.clone()).or_insert(Entry::Directory { mode });
        }
    }

    /// Adds a symbolic link where there is nothing yet.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.0.entry(path.into()).or_insert_with(|| Entry::Link(target.into()));
    }

    /// Adds a file of the host at a path of its own.
    pub fn add_file(&mut self, path: &Path, source: &Path) -> io::Result<()> {
        if let Some(above) = path.parent().and_then(Path::to_str) {
            self.add_directory(above);
        }
        let mode = rights(&fs::metadata(source)?);
        self.0.insert(path.into(), Entry::File { source: source.into(), mode });
        Ok(())
    }

    /// Adds a file of the host where it lies, with the links that lead there.
    pub fn add(&mut self, path: &Path) -> io::Result<()> {
        let mut at = PathBuf::new();
        let mut rest: VecDeque<OsString> =
            path.components().map(|name| name.as_os_str().to_owned()).collect();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            match name.as_bytes() {
                b"/" => at = PathBuf::new(),
                b"." => {}
                b".." => drop(at.pop()),
                _ => {
                    let next = at.join(&name);
                    let source = Path::new("/").join(&next);
                    let found = fs::symlink_metadata(&source)?;
                    if found.is_symlink() {
                        links += 1;
                        if links > LINKS_MAX {
                            return Err(io::Error::from_raw_os_error(libc::ELOOP));
                        }
                        let target = fs::read_link(&source)?;
                        for part in target.components().rev() {
                            rest.push_front(part.as_os_str().to_owned());
                        }
                        self.0.insert(next, Entry::Link(target));
                    } else {
                        let mode = rights(&found);
                        let entry = if found.is_dir() {
                            Entry::Directory { mode }
                        } else {
                            Entry::File { source, mode }
                        };
                        self.0.insert(next.clone(), entry);
                        at = next;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a file of the host out again.
    pub fn remove(&mut self, path: &Path) {
        if let Ok(path) = path.strip_prefix("/") {
            self.0.remove(path);
        }
    }

    /// Adds a program of the host with the libraries that it names, or with its interpreter.
    pub fn add_program(&mut self, path: &Path) -> Result<(), Error> {
        self.add(path).map_err(Error::at(path))?;
        let mut head = [0; 128];
        let count = File::open(path)
            .and_then(|mut file| io::Read::read(&mut file, &mut head))
            .map_err(Error::at(path))?;
        if let Some(line) = head[..count].strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            if let Some(interpreter) = line.split_whitespace().next() {
                return self.add_program(Path::new(interpreter));
            }
        }
        if !head.starts_with(b"\x7fELF") {
            return Ok(());
        }
        self.add_libraries(path, None)
    }

    /// Adds this machine's libraries that a program names. Those in `own` are left to the caller.
    pub fn add_libraries(&mut self, program: &Path, own: Option<&Path>) -> Result<(), Error> {
        for library in libraries(program, own)? {
            if own.is_none_or(|own| !library.starts_with(own)) {
                self.add(&library).map_err(Error::at(&library))?;
            }
        }
        Ok(())
    }

    /// The host's files in it, by the path that each has in the archive.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.0.iter().filter_map(|(path, entry)| match entry {
            Entry::File { source, .. } => Some((path.as_path(), source.as_path())),
            _ => None,
        })
    }

    pub fn write(&self, output: &mut impl Write) -> io::Result<()> {
        const DIRECTORY: u32 = 0o040_000;
        const LINK: u32 = 0o120_777;
        const FILE: u32 = 0o100_000;
        for (index, (path, entry)) in self.0.iter().enumerate() {
            let name = path.as_os_str().as_bytes();
            match entry {
                Entry::Directory { mode } => header(output, index, name, DIRECTORY | mode, 0)?,
                Entry::Link(target) => {
                    let target = target.as_os_str().as_bytes();
                    header(output, index, name, LINK, target.len() as u64)?;
                    output.write_all(target)?;
                    pad(output, target.len() as u64)?;
                }
                Entry::File { source, mode } => {
                    let mut file = File::open(source)?;
                    let size_bytes = file.metadata()?.len();
                    header(output, index, name, FILE | mode, size_bytes)?;
                    let copied = io::copy(&mut io::Read::take(&mut file, size_bytes), output)?;
                    if copied != size_bytes {
                        let text = format!("{} became shorter", source.display());
                        return Err(io::Error::other(text));
                    }
                    pad(output, size_bytes)?;
                }
            }
        }
        header(output, 0, b"TRAILER!!!", 0, 0)
    }
}

/// The loader of a program, if it has one, and all its libraries, those in `own` first.
pub fn libraries(program: &Path, own: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let directories = LibraryDirectories::after(own.as_slice());
    let needs = directories.all_needs(program).map_err(Error::at(program))?;
    if !needs.missing.is_empty() {
        return Err(Error::Refused(format!(
            "{} needs libraries that this machine does not have: {}",
            program.display(),
            needs.missing.join(", ")
        )));
    }
    Ok(needs.libraries.into_iter().chain(needs.loader).collect())
}

/// `c_magic` to `c_check`, thirteen numbers of eight hexadecimal digits, and the name.
fn header(
    output: &mut impl Write,
    index: usize,
    name: &[u8],
    mode: u32,
    size_bytes: u64,
) -> io::Result<()> {
    let size = u32::try_from(size_bytes).map_err(|_| {
        io::Error::other("a file of 4 GiB or more does not fit into a cpio archive")
    })?;
    let fields = [index as u32 + 1, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    output.write_all(b"070701")?;
    for field in fields {
        write!(output, "{field:08x}")?;
    }
    output.write_all(name)?;
    output.write_all(b"\0")?;
    pad(output, 110 + name.len() as u64 + 1)
}

fn pad(output: &mut impl Write, length: u64) -> io::Result<()> {
    output.write_all(&[0; 3][..(length.wrapping_neg() % 4) as usize])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::program;

    fn listed(bytes: &[u8]) -> Option<Vec<String>> {
        program::find("cpio").or_else(|| {
            eprintln!("SKIPPED: no cpio here to read the archive with");
            None
        })?;
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("archive"), bytes).unwrap();
        let mut cpio = program::command("cpio").unwrap();
        let output = cpio
            .args(["-itv", "--quiet", "--numeric-uid-gid", "-F"])
            .arg(home.path().join("archive"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        Some(text.lines().map(str::to_string).collect())
    }

    #[test]
    fn an_archive_is_read_by_cpio_and_equal_content_gives_equal_bytes() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().join("real");
        fs::write(&real, b"seven b").unwrap();
        symlink("real", home.path().join("link")).unwrap();
        let write = || {
            let mut contents = ArchiveContents::default();
            contents.add_directory("dev");
            contents.add(&home.path().join("link")).unwrap();
            let mut bytes = Vec::new();
            contents.write(&mut bytes).unwrap();
            bytes
        };
        let bytes = write();
        fs::File::options()
            .write(true)
            .open(&real)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert_eq!(bytes, write());
        assert_eq!(bytes.len() % 4, 0);
        let Some(lines) = listed(&bytes) else { return };
        let has = |text: &str| lines.iter().any(|line| line.ends_with(text));
        assert!(has(" dev") && has("/link -> real") && has("/real"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains(" 7 ")), "{lines:#?}");
    }

    #[test]
    fn nobody_is_let_in_whom_the_host_does_not_let_in() {
        let home = tempfile::tempdir().unwrap();
        let closed = home.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let file = closed.join("file");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4640)).unwrap();
        let mut contents = ArchiveContents::default();
        contents.add(&file).unwrap();
        contents.add_directory(closed.strip_prefix("/").unwrap().join("new").to_str().unwrap());
        let mut bytes = Vec::new();
        contents.write(&mut bytes).unwrap();
        let Some(lines) = listed(&bytes) else { return };
        for (rights, name) in
            [("drwx------ ", "/closed"), ("-rw-r----- ", "/file"), ("drwxr-xr-x ", "/new")]
        {
            let is_it = |line: &&String| line.starts_with(rights) && line.ends_with(name);
            assert!(lines.iter().any(|line| is_it(&line)), "{rights}{name}: {lines:#?}");
        }
    }

    #[test]
    fn a_program_brings_its_libraries_and_a_script_its_interpreter() {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let mut contents = ArchiveContents::default();
        contents.add_program(&script).unwrap();
        let files: Vec<String> =
            contents.files().map(|(path, _)| path.display().to_string()).collect();
        assert!(files.iter().any(|file| file.contains("libc.so")), "{files:?}");
        assert!(files.iter().any(|file| file.contains("ld-linux")), "{files:?}");
    }
}
