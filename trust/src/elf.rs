//! The loader and the shared libraries that a program needs, read from its ELF file.
//!
//! Nothing is run to find them: a program's loader, which could list them, may be foreign code. Only
//! 64-bit files in this machine's byte order are read (System V ABI). A damaged file needs nothing.
//! Must not know: what the libraries are for.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::file;

/// A larger file is not taken for a program, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// A longer name is damage, in bytes: PATH_MAX.
const NAME_BYTES_MAX: usize = 4096;
/// Entries of a dynamic segment, directories that a file names and libraries that it needs, at most: no program
/// has as many, and who makes one that does must not keep its reader busy.
const ENTRIES_MAX: usize = 4096;
const DIRECTORIES_MAX: usize = 64;
const LIBRARIES_MAX: usize = 512;
/// Where libraries are, besides the directories that `/etc/ld.so.conf.d` names.
const LIBRARY_DIRECTORIES: [&str; 5] =
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"];

const MAGIC: &[u8] = b"\x7fELF\x02";
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
/// Where the header has the machine that a file is for.
const MACHINE: std::ops::Range<usize> = 18..20;

/// What one ELF file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The loader; absent in a library and in a program that is linked statically.
    pub loader: Option<PathBuf>,
    /// The libraries that were found.
    pub libraries: Vec<PathBuf>,
    /// The names of the libraries that were not found.
    pub missing: Vec<String>,
}

/// The directories in which the loader looks for libraries.
pub struct LibraryDirectories(Vec<PathBuf>);

impl LibraryDirectories {
    /// Those of this machine, after those in `first`.
    pub fn after(first: &[&Path]) -> LibraryDirectories {
        let listed = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = listed.map(|entry| entry.path()).collect();
        files.sort();
        files.push("/etc/ld.so.conf".into());
        let texts: Vec<String> =
            files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
        let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
        let named = lines.filter(|line| line.starts_with('/')).chain(LIBRARY_DIRECTORIES);
        LibraryDirectories(
            first.iter().map(PathBuf::from).chain(named.map(PathBuf::from)).collect(),
        )
    }

    /// What the file with this content names; `path` is where it is. None of a file that is not ELF, or
    /// that is damaged.
    pub fn needs(&self, content: &[u8], path: &Path) -> Option<Needs> {
        let file = Elf(content.starts_with(MAGIC).then_some(content)?);
        let segments = file.segments()?;
        let of_kind = |kind: u32| segments.iter().find(|segment| segment.kind == kind);
        let loader = of_kind(INTERPRETER).and_then(|one| file.text(one.place));
        let mut found = Needs { loader: loader.map(PathBuf::from), ..Needs::default() };
        let Some(dynamic) = of_kind(DYNAMIC) else { return Some(found) };
        let entries = file.entries(dynamic);
        let values = |tag: u64| entries.iter().filter(move |entry| entry.0 == tag).map(|e| e.1);
        let strings = values(STRINGS).next()?;
        let loads = segments.iter().filter(|segment| segment.kind == LOAD);
        let strings = loads.into_iter().find_map(|load| load.place_of(strings))?;
        let string = |value: u64| file.text(strings.checked_add(value as usize)?);
        let origin = path.parent()?.display().to_string();
        let own = values(RPATH).chain(values(RUNPATH)).filter_map(string);
        let own = own.flat_map(|text| text.split(':')).take(DIRECTORIES_MAX).map(|place| {
            PathBuf::from(place.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
        });
        let places: Vec<PathBuf> = own.chain(self.0.iter().cloned()).collect();
        let names = values(NEEDED).take(LIBRARIES_MAX).filter_map(string);
        for name in names.filter(|name| !name.contains("..")) {
            let candidates = places.iter().map(|place| place.join(name));
            match candidates.into_iter().find(|path| is_for_same_machine(path, content)) {
                Some(path) => found.libraries.push(path),
                None => found.missing.push(name.into()),
            }
        }
        Some(found)
    }

    /// What a program needs, with all that its libraries need in turn.
    ///
    /// # Errors
    ///
    /// The program or one of its libraries cannot be read.
    pub fn all_needs(&self, program: &Path) -> io::Result<Needs> {
        let (mut open, mut known) = (vec![program.to_path_buf()], BTreeSet::new());
        let mut all = Needs::default();
        while let Some(path) = open.pop() {
            if !known.insert(path.canonicalize()?) {
                continue;
            }
            let content = content(&path)?;
            let Some(needs) = self.needs(&content, &path) else { continue };
            all.loader = all.loader.or(needs.loader);
            all.missing.extend(needs.missing);
            let new = needs.libraries.into_iter().filter(|one| !all.libraries.contains(one));
            let new: Vec<PathBuf> = new.collect();
            open.extend(new.iter().cloned());
            all.libraries.extend(new);
        }
        Ok(all)
    }
}

/// The whole of a regular file.
///
/// # Errors
///
/// It cannot be read, is not a regular file, or is larger than a program may be.
pub fn content(path: &Path) -> io::Result<Vec<u8>> {
    let file = file::open_of_anybody(path).map_err(io::Error::other)?;
    let facts = file.metadata()?;
    if facts.len() > FILE_BYTES_MAX {
        let text = format!("{} is not a program", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut content = Vec::with_capacity(facts.len() as usize);
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Whether a file is ELF of the same width and for the same machine as this one. The loader passes over
/// others, as those of a 32-bit system next to a 64-bit one.
fn is_for_same_machine(path: &Path, content: &[u8]) -> bool {
    let mut head = [0; MACHINE.end];
    let read = file::open_of_anybody(path).map(|mut file| file.read_exact(&mut head));
    matches!(read, Ok(Ok(())))
        && head.starts_with(MAGIC)
        && content.get(MACHINE) == head.get(MACHINE)
}

struct Segment {
    kind: u32,
    /// In the file, in bytes.
    place: usize,
    /// In memory, in bytes.
    address: u64,
    /// In the file, in bytes.
    length: usize,
}

impl Segment {
    /// Where in the file an address is.
    fn place_of(&self, address: u64) -> Option<usize> {
        let within = address.checked_sub(self.address)? as usize;
        self.place.checked_add(within).filter(|_| within < self.length)
    }
}

struct Elf<'a>(&'a [u8]);

impl<'a> Elf<'a> {
    fn bytes<const COUNT: usize>(&self, at: usize) -> Option<[u8; COUNT]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(at)?))
    }

    fn text(&self, at: usize) -> Option<&'a str> {
        let bytes = self.0.get(at..)?;
        let name = bytes[..bytes.len().min(NAME_BYTES_MAX)].split(|byte| *byte == 0).next()?;
        std::str::from_utf8(name).ok()
    }

    fn segments(&self) -> Option<Vec<Segment>> {
        let half = |at: usize| Some(usize::from(u16::from_ne_bytes(self.bytes(at)?)));
        let (table, size, count) = (self.long(32)? as usize, half(54)?, half(56)?);
        let segment = |number: usize| {
            let at = table.checked_add(number * size)?;
            let field = |by: usize| self.long(at.checked_add(by)?);
            Some(Segment {
                kind: u32::from_ne_bytes(self.bytes(at)?),
                place: field(8)? as usize,
                address: field(16)?,
                length: field(32)? as usize,
            })
        };
        (0..count).map(segment).collect()
    }

    /// The entries of the dynamic segment: a tag and a value each.
    fn entries(&self, dynamic: &Segment) -> Vec<(u64, u64)> {
        let entry = |number: usize| {
            let at = dynamic.place.checked_add(number * 16)?;
            self.long(at).zip(self.long(at.checked_add(8)?))
        };
        (0..dynamic.length / 16).take(ENTRIES_MAX).map_while(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that the loader itself lists.
    fn listed(program: &Path, loader: &Path) -> BTreeSet<PathBuf> {
        let output = crate::program::as_given(loader).arg("--list").arg(program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let path = |line: &str| {
            let path = line.split("=>").last()?.trim().split(" (").next()?;
            path.starts_with('/').then(|| PathBuf::from(path).canonicalize().unwrap())
        };
        text.lines().filter_map(path).collect()
    }

    #[test]
    fn the_libraries_are_those_that_the_loader_takes() {
        let here = LibraryDirectories::after(&[]);
        let mut compared = 0;
        for name in ["tar", "ls", "bash", "python3", "ssh", "qemu-system-x86_64", "fio", "perl"] {
            let path = Path::new("/usr/bin").join(name);
            let Ok(path) = path.canonicalize() else { continue };
            let needs = here.all_needs(&path).unwrap();
            let Some(loader) = needs.loader else { continue };
            assert_eq!(needs.missing, [""; 0], "{name}");
            let mut found: BTreeSet<PathBuf> =
                needs.libraries.iter().map(|path| path.canonicalize().unwrap()).collect();
            found.insert(loader.canonicalize().unwrap());
            assert_eq!(found, listed(&path, &loader), "{name}");
            compared += 1;
        }
        assert!(compared > 0, "no program was compared");
    }

    #[test]
    fn a_directory_that_is_given_comes_first() {
        let home = tempfile::tempdir().unwrap();
        let here = LibraryDirectories::after(&[]);
        let needs = here.all_needs(Path::new("/bin/tar")).unwrap();
        let library = needs.libraries.iter().find(|path| path.ends_with("libc.so.6")).unwrap();
        let own = home.path().join("libc.so.6");
        // Not a library: it is passed over.
        fs::write(&own, "text").unwrap();
        let first = LibraryDirectories::after(&[home.path()]);
        assert_eq!(first.all_needs(Path::new("/bin/tar")).unwrap(), needs);
        fs::copy(library, &own).unwrap();
        assert!(first.all_needs(Path::new("/bin/tar")).unwrap().libraries.contains(&own));
    }

    #[test]
    fn a_library_that_is_nowhere_is_named() {
        let mut content = content(Path::new("/bin/tar")).unwrap();
        let name = b"\0libc.so.6\0";
        let at = content.windows(name.len()).position(|window| window == name).unwrap();
        content[at + 1..at + 5].copy_from_slice(b"xxxx");
        let needs = LibraryDirectories::after(&[]).needs(&content, Path::new("/bin/tar")).unwrap();
        assert_eq!(needs.missing, ["xxxx.so.6"]);
    }

    #[test]
    fn no_file_that_the_kernel_makes_up_is_read_or_waited_for() {
        for path in ["/proc/kmsg", "/proc/self/maps", "/dev/zero"].map(Path::new) {
            assert!(content(path).is_err(), "{}", path.display());
            assert!(!is_for_same_machine(path, MAGIC), "{}", path.display());
        }
    }

    #[test]
    fn a_file_that_names_many_directories_is_read_at_once() {
        // A header, one loaded and one dynamic segment, and names without end.
        let mut content = vec![0; 64 + 2 * 56];
        content[..5].copy_from_slice(MAGIC);
        content[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        content[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        content[56..58].copy_from_slice(&2_u16.to_ne_bytes());
        let names = content.len() + 4 * 16;
        let length = 32 << 20;
        for (at, kind, place, bytes) in
            [(64, LOAD, names, length), (120, DYNAMIC, content.len(), 4 * 16)]
        {
            content[at..at + 4].copy_from_slice(&kind.to_ne_bytes());
            content[at + 8..at + 16].copy_from_slice(&(place as u64).to_ne_bytes());
            content[at + 16..at + 24].copy_from_slice(&4096_u64.to_ne_bytes());
            content[at + 32..at + 40].copy_from_slice(&(bytes as u64).to_ne_bytes());
        }
        for (tag, value) in [(STRINGS, 4096_u64), (RPATH, 0), (NEEDED, 2), (NEEDED, 4)] {
            content.extend(tag.to_ne_bytes());
            content.extend(value.to_ne_bytes());
        }
        content.extend(std::iter::repeat_n(*b"/:", length / 2).flatten());
        let needs = LibraryDirectories::after(&[]).needs(&content, Path::new("/bin/x")).unwrap();
        assert!(needs.libraries.is_empty());
        assert!(needs.missing.iter().all(|name| name.len() <= NAME_BYTES_MAX), "names are bounded");
        assert_eq!(needs.missing.len(), 2);
    }

    #[test]
    fn damaged_files_need_nothing_and_no_byte_makes_the_reader_panic() {
        let here = LibraryDirectories::after(&[]);
        let path = Path::new("/bin/tar");
        let whole = content(path).unwrap();
        assert_eq!(here.needs(b"text", path), None);
        assert_eq!(here.needs(&whole[..100], path), None);
        for at in 5..120 {
            let mut damaged = whole.clone();
            damaged[at..][..8].fill(0xff);
            here.needs(&damaged, path);
        }
    }
}
