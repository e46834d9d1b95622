//! The replay across a power cut: which files an fsync has made durable, and whether they are there.
//!
//! `flushed BYTES PATH`: so many bytes of the file, all zeros as dbench writes them, are durable under this name;
//! `gone PATH`: it and what lies below it may be there or not from now on. Paths are below the replay's directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fstat, stat};
use vocabulary::workload::Loss;

use measure::acknowledge::Acknowledger;

/// Says what one client has made durable.
pub struct DbenchAcknowledger {
    acknowledger: Arc<Acknowledger>,
    directory: PathBuf,
    promised: BTreeSet<PathBuf>,
}

impl DbenchAcknowledger {
    /// A durable for a client of a replay in `directory`.
    pub fn new(acknowledger: Arc<Acknowledger>, directory: &Path) -> DbenchAcknowledger {
        DbenchAcknowledger { acknowledger, directory: directory.into(), promised: BTreeSet::new() }
    }

    /// An fsync of a file has returned; it was opened under this name, and may have another by now.
    pub fn flushed(&mut self, file: impl AsFd, name: &CStr) -> Result<(), String> {
        let (Ok(open), Ok(named)) = (fstat(file), stat(name)) else { return Ok(()) };
        if (open.st_dev, open.st_ino) != (named.st_dev, named.st_ino) {
            return Ok(());
        }
        let path = self.below(name);
        // A line says it, whose end is trimmed.
        let text = path.to_str().filter(|text| text.trim_end() == *text);
        let text = text.ok_or_else(|| {
            format!(
                "{path:?}: a name that a power cut may take is UTF-8 and has no space at its end"
            )
        })?;
        let line = format!("flushed {} {text}", open.st_size);
        self.promised.insert(path);
        self.acknowledger.say(&line).map(drop).map_err(unheard)
    }

    /// A name, and what lies below it, is about to be given to another file, or to none.
    pub fn changes(&mut self, name: &CStr) -> Result<(), String> {
        let path = self.below(name);
        let promised = self.promised.len();
        self.promised.retain(|one| !one.starts_with(&path));
        if self.promised.len() == promised {
            Ok(())
        } else {
            announce_gone(&self.acknowledger, &path)
        }
    }

    fn below(&self, name: &CStr) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        path.strip_prefix(&self.directory).unwrap_or(path).into()
    }
}

fn unheard(error: std::io::Error) -> String {
    format!("acknowledging: {error}")
}

/// Says that a path is about to go; the empty one is the whole.
pub fn announce_gone(acknowledger: &Acknowledger, path: &Path) -> Result<(), String> {
    acknowledger.announce(&format!("gone {}", path.display())).map_err(unheard)
}

/// Looks for what was said to be durable.
pub fn find_loss(directory: &Path, acknowledged: &str) -> Option<Loss> {
    let mut promised: BTreeMap<&Path, usize> = BTreeMap::new();
    for line in acknowledged.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("flushed", rest) => {
                let (bytes, path) = rest.split_once(' ')?;
                promised.insert(Path::new(path), bytes.parse().ok()?);
            }
            ("gone", path) => promised.retain(|one, _| !one.starts_with(path)),
            _ => {}
        }
    }
    promised.iter().find_map(|(path, size)| {
        let shown = path.display();
        match std::fs::read(directory.join(path)) {
            Err(error) => Some(Loss::Lost(format!("{shown}: {error}"))),
            Ok(bytes) if bytes.len() < *size => {
                Some(Loss::Lost(format!("{shown} has {} bytes of {size}", bytes.len())))
            }
            Ok(bytes) => bytes[..*size]
                .iter()
                .position(|byte| *byte != 0)
                .map(|at| Loss::Corrupt(format!("byte {at} of {shown} was never written"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_short_or_changed_is_found() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("a")).unwrap();
        std::fs::write(home.path().join("a/file"), [0, 0, 0, 7]).unwrap();
        let found = |lines: &str| find_loss(home.path(), lines).map(|loss| loss.exit_code());
        assert_eq!(found(""), None);
        assert_eq!(found("flushed 3 a/file\n"), None);
        assert_eq!(found("flushed 4 a/file\n"), Some(2));
        assert_eq!(found("flushed 5 a/file\n"), Some(1));
        assert_eq!(found("flushed 1 a/other\n"), Some(1));
        for gone in ["gone a/other", "gone a", "gone "] {
            assert_eq!(found(&format!("flushed 1 a/other\n{gone}\n")), None, "{gone}");
        }
        assert_eq!(found("gone a\nflushed 1 a/other\n"), Some(1));
    }
}
