//! The programs of a workload and the libraries that they need, read into the page cache before a cold
//! run: what a workload is made of is warm, what lies on the contender is cold.
//!
//! Nothing is run to find them: the words of a command are looked up in the search path, and what
//! an ELF file needs is read from it. It is all best effort, so nothing here fails; what is not found
//! is read by the run, as it would be without this.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use trust::elf::{self, LibraryDirectories};

/// More files and bytes than these no workload needs.
const FILES_MAX: usize = 512;
const BYTES_MAX: u64 = 2 << 30;
/// Shells whose `-c` takes a line in which further programs are named.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "ash"];

/// Reads the programs that a command names, and all that they need, into the page cache; says how
/// many bytes that is.
pub fn warm(words: &[String], further: &[PathBuf], search_path: &str) -> u64 {
    let mut open: Vec<PathBuf> = named(words, search_path);
    open.extend_from_slice(further);
    let libraries = LibraryDirectories::after(&[]);
    let (mut known, mut bytes) = (BTreeSet::new(), 0);
    while let Some(path) = open.pop() {
        let Ok(path) = fs::canonicalize(&path) else { continue };
        let is_enough = known.len() >= FILES_MAX || bytes >= BYTES_MAX;
        if is_enough || !known.insert(path.clone()) {
            continue;
        }
        // Its pages come into the cache by being read.
        let Ok(content) = elf::content(&path) else { continue };
        bytes += content.len() as u64;
        let needs = match script_words(&content) {
            Some(words) => named(&words, search_path),
            None => needs(&content, &path, &libraries),
        };
        open.extend(needs);
    }
    bytes
}

/// Programs with the loaders, interpreters and libraries that they need, by the names under which they
/// are found.
pub(crate) fn with_needs(programs: &[PathBuf]) -> Vec<PathBuf> {
    let libraries = LibraryDirectories::after(&[]);
    let (mut open, mut known, mut found) = (programs.to_vec(), BTreeSet::new(), Vec::new());
    while let Some(path) = open.pop() {
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let is_new = known.len() < FILES_MAX && known.insert(real.clone());
        found.push(path);
        let Some(Ok(content)) = is_new.then(|| elf::content(&real)) else { continue };
        open.extend(match script_words(&content) {
            Some(words) => named(&words, &std::env::var("PATH").unwrap_or_default()),
            None => needs(&content, &real, &libraries),
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

/// The loader and the libraries that an ELF file names; none of another file.
fn needs(content: &[u8], path: &Path, libraries: &LibraryDirectories) -> Vec<PathBuf> {
    let needs = libraries.needs(content, path).unwrap_or_default();
    needs.loader.into_iter().chain(needs.libraries).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    fn all(words: &[&str]) -> BTreeSet<String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let libraries = LibraryDirectories::after(&[]);
        let of = |path: &PathBuf| {
            let path = fs::canonicalize(path).unwrap();
            let needed = needs(&elf::content(&path).unwrap(), &path, &libraries);
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
