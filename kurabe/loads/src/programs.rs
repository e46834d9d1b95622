//! The programs of a load and the libraries that they need, read into the page cache before a cold
//! run: what a load is made of is warm, what lies on the contender is cold.
//!
//! Nothing is run to find them: the words of a command are looked up in the search path, and what
//! an ELF file needs is read from it. It is all best effort, so nothing here fails; what is not found
//! is read by the run, as it would be without this.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is larger than this is no program.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// More files than these no load needs.
const FILES_MAX: usize = 512;
/// Shells whose `-c` takes a line in which further programs are named.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "ash"];
/// Where libraries lie besides the directories that `/etc/ld.so.conf.d` names.
const LIBRARY_DIRECTORIES: [&str; 5] =
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"];

/// Reads the programs that a command names, and all that they need, into the page cache; says how
/// many bytes that is.
pub fn warm(words: &[String], further: &[PathBuf], search_path: &str) -> u64 {
    let mut open: Vec<PathBuf> = named(words, search_path);
    open.extend_from_slice(further);
    let libraries = library_directories();
    let (mut known, mut bytes) = (BTreeSet::new(), 0);
    while let Some(path) = open.pop() {
        let Ok(path) = fs::canonicalize(&path) else { continue };
        if known.len() >= FILES_MAX || !known.insert(path.clone()) {
            continue;
        }
        let Some(content) = content(&path) else { continue };
        bytes += content.len() as u64;
        let needs = match script_words(&content) {
            Some(words) => named(&words, search_path),
            None => needs(&content, &path, &libraries).unwrap_or_default(),
        };
        open.extend(needs);
    }
    bytes
}

/// Programs with the loaders, interpreters and libraries that they need, by the names under which they
/// are found.
pub(crate) fn with_needs(programs: &[PathBuf]) -> Vec<PathBuf> {
    let libraries = library_directories();
    let (mut open, mut known, mut found) = (programs.to_vec(), BTreeSet::new(), Vec::new());
    while let Some(path) = open.pop() {
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let is_new = known.len() < FILES_MAX && known.insert(real.clone());
        found.push(path);
        let Some(content) = is_new.then(|| content(&real)).flatten() else { continue };
        open.extend(match script_words(&content) {
            Some(words) => named(&words, &std::env::var("PATH").unwrap_or_default()),
            None => needs(&content, &real, &libraries).unwrap_or_default(),
        });
    }
    found
}

/// The programs that a command's words name: the first one, and where that is a shell with a line,
/// whatever in the line is the name of a program.
fn named(words: &[String], search_path: &str) -> Vec<PathBuf> {
    let Some(first) = words.first() else { return Vec::new() };
    let name = Path::new(first).file_name().unwrap_or_default();
    let mut names: Vec<&str> = vec![first];
    if let (true, [_, option, line, ..]) = (SHELLS.iter().any(|shell| name == *shell), words)
        && option.starts_with('-')
    {
        let is_part = |letter: char| letter.is_alphanumeric() || "/._+-".contains(letter);
        names.extend(line.split(|letter| !is_part(letter)));
        if option != "-c" {
            names.extend(words[3..].iter().map(String::as_str));
        }
    }
    names.into_iter().filter_map(|name| in_path(name, search_path)).collect()
}

fn in_path(name: &str, search_path: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| trust::program::is_executable(path);
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    let places = search_path.split(':').filter(|place| place.starts_with('/'));
    let mut candidates = places.map(|place| Path::new(place).join(name));
    candidates.find(is_program).filter(|_| !name.is_empty())
}

/// The whole of a regular file, by which its pages come into the cache.
fn content(path: &Path) -> Option<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let facts = file.metadata().ok().filter(|facts| facts.is_file())?;
    if facts.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut content = Vec::with_capacity(facts.len() as usize);
    file.take(FILE_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

/// The words of a script's first line.
fn script_words(content: &[u8]) -> Option<Vec<String>> {
    let line = content.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    // `#!/usr/bin/env python3` names the program in its second word.
    let is_env = words.first().is_some_and(|word| word.ends_with("/env"));
    Some(match words.get(1) {
        Some(second) if is_env => vec!["sh".into(), "-c".into(), format!("{} {second}", words[0])],
        _ => words,
    })
}

/// Directories in which the loader looks for libraries.
fn library_directories() -> Vec<PathBuf> {
    let listed = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten();
    let texts = listed.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let texts = texts.chain(fs::read_to_string("/etc/ld.so.conf").ok()).collect::<Vec<_>>();
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    let named = lines.filter(|line| line.starts_with('/'));
    named.chain(LIBRARY_DIRECTORIES).map(PathBuf::from).collect()
}

/// Bits of the ELF format (System V ABI) that are read here, of 64-bit files in this machine's byte
/// order.
mod elf {
    pub const MAGIC: &[u8] = b"\x7fELF\x02";
    pub const LOAD: u32 = 1;
    pub const DYNAMIC: u32 = 2;
    pub const INTERPRETER: u32 = 3;
    pub const NEEDED: u64 = 1;
    pub const STRINGS: u64 = 5;
    pub const RPATH: u64 = 15;
    pub const RUNPATH: u64 = 29;
}

/// The loader and the libraries that an ELF file names; None of a file that is none, or is damaged.
fn needs(content: &[u8], path: &Path, libraries: &[PathBuf]) -> Option<Vec<PathBuf>> {
    if !content.starts_with(elf::MAGIC) {
        return None;
    }
    let half = |at: usize| Some(u16::from_ne_bytes(content.get(at..)?.get(..2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(content.get(at..)?.get(..4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(content.get(at..)?.get(..8)?.try_into().ok()?));
    let text = |at: usize| {
        let bytes = content.get(at..)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(bytes).ok()
    };
    let (table, size, count) = (long(32)? as usize, half(54)? as usize, half(56)? as usize);
    // Kind, place in the file, address and length of each segment.
    let mut segments: Vec<(u32, usize, u64, usize)> = Vec::new();
    for number in 0..count {
        let at = table.checked_add(number * size)?;
        let field = |by: usize| long(at.checked_add(by)?);
        let [place, address, length] = [field(8)?, field(16)?, field(32)?];
        segments.push((word(at)?, place as usize, address, length as usize));
    }
    let of_kind = |kind: u32| segments.iter().find(|segment| segment.0 == kind);
    let mut found: Vec<PathBuf> = Vec::new();
    found.extend(of_kind(elf::INTERPRETER).and_then(|one| text(one.1)).map(PathBuf::from));
    let Some((_, dynamic, _, length)) = of_kind(elf::DYNAMIC) else { return Some(found) };
    let entries: Vec<(u64, u64)> = (0..length / 16)
        .map_while(|number| {
            let at = dynamic.checked_add(number * 16)?;
            long(at).zip(long(at.checked_add(8)?))
        })
        .collect();
    let values = |tag: u64| entries.iter().filter(move |entry| entry.0 == tag).map(|e| e.1);
    let strings = values(elf::STRINGS).next()?;
    let place_of = |(_, place, address, length): &(u32, usize, u64, usize)| {
        let within = strings.checked_sub(*address)? as usize;
        place.checked_add(within).filter(|_| within < *length)
    };
    let loads = segments.iter().filter(|segment| segment.0 == elf::LOAD);
    let strings = loads.into_iter().find_map(place_of)?;
    let string = |value: u64| text(strings.checked_add(value as usize)?);
    let origin = path.parent()?.display().to_string();
    let own = values(elf::RPATH).chain(values(elf::RUNPATH)).filter_map(string);
    let own = own.flat_map(|text| text.split(':')).map(|place| {
        PathBuf::from(place.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
    });
    let places: Vec<PathBuf> = own.chain(libraries.iter().cloned()).collect();
    for name in values(elf::NEEDED).filter_map(string).filter(|name| !name.contains("..")) {
        found.extend(places.iter().map(|place| place.join(name)).find(|path| path.is_file()));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    fn all(words: &[&str]) -> BTreeSet<String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let libraries = library_directories();
        let of = |path: &PathBuf| {
            let path = fs::canonicalize(path).unwrap();
            let needed = needs(&content(&path).unwrap(), &path, &libraries).unwrap_or_default();
            std::iter::once(path).chain(needed).map(|path| path.display().to_string())
        };
        named(&words, SEARCH_PATH).iter().flat_map(of).collect()
    }

    #[test]
    fn a_program_is_found_with_its_loader_and_its_libraries() {
        let found = all(&["tar", "xf", "ls"]);
        let has = |part: &str| found.iter().any(|path| path.contains(part));
        assert!(has("/tar") && has("libc.") && has("/ld-"), "{found:?}");
        assert!(!has("/ls"), "an argument is no program: {found:?}");
        assert_eq!(all(&["no-such-program"]), BTreeSet::new());
    }

    #[test]
    fn a_shells_line_names_programs_wherever_they_stand() {
        let found = all(&["/bin/sh", "-c", "cd x && (tar cf - .|gzip>y); /bin/cat z"]);
        for part in ["/tar", "/gzip", "/cat", "sh", "libc."] {
            assert!(found.iter().any(|path| path.contains(part)), "{part}: {found:?}");
        }
    }

    #[test]
    fn a_script_leads_to_its_interpreter_and_nonsense_to_nothing() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.display().to_string()
        };
        let script = write("script", b"#!/usr/bin/env tar\n");
        let tar_bytes = fs::metadata("/bin/tar").unwrap().len();
        assert!(warm(&[script], &[], SEARCH_PATH) > tar_bytes);
        // A file that says that it goes on beyond its end.
        let mut damaged = fs::read("/bin/tar").unwrap();
        damaged.truncate(100);
        let length = damaged.len() as u64;
        assert_eq!(warm(&[write("damaged", &damaged)], &[], SEARCH_PATH), length);
        damaged[32..40].fill(0xff);
        assert_eq!(warm(&[write("wild", &damaged)], &[], SEARCH_PATH), length);
    }
}
