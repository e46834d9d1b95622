//! Making a whole file system durable.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

/// How everything that was written to a file system is made durable.
///
/// syncfs(2) ends in the kernel for a file system in user space: FUSE hands it on to virtiofs
/// only, and it returns 0 with nothing written. Such a file system names a command of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WholeSync {
    /// By syncfs(2).
    #[default]
    Call,
    /// By a program that returns, with success, when all is durable: its name and its arguments.
    Command(Vec<String>),
}

impl WholeSync {
    /// Makes durable all that was written to the file system of `directory`.
    pub fn run(&self, directory: &Path) -> io::Result<()> {
        match self {
            Self::Call => Ok(rustix::fs::syncfs(File::open(directory)?)?),
            Self::Command(words) => run_words(words),
        }
    }
}

/// Runs a command of the file system's own, which has to succeed.
pub fn run_words(words: &[String]) -> io::Result<()> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a command of no words"))?;
    let mut command = trust::program::command(program).map_err(io::Error::other)?;
    let output = command.args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{}: {}: {}", words.join(" "), output.status, said.trim())))
}

/// Drops the page cache, the directory entries and the inodes that memory holds, of every file
/// system; needs root.
///
/// Twice, since once is not enough for a file system with a journal of jbd2 (ext3, ext4). The
/// journal holds on to the blocks of metadata that it wrote until its checkpoint is tidied up; one
/// drop comes to the pages first, which stay because they are held, and to the shrinker that lets go
/// of them last. The second drop finds the pages free.
pub fn drop_kernel_caches() -> Result<(), String> {
    const PATH: &str = "/proc/sys/vm/drop_caches";
    let drop_once = || {
        // Opened for writing only: the file is never truncated or created.
        let mut file = File::options().write(true).open(PATH)?;
        io::Write::write_all(&mut file, b"3")
    };
    drop_once()
        .and_then(|()| drop_once())
        .map_err(|error| format!("dropping caches: {PATH}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> WholeSync {
        WholeSync::Command(words.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_call_needs_the_directory_and_a_command_has_to_succeed() {
        let here = Path::new(".");
        WholeSync::Call.run(here).unwrap();
        assert!(WholeSync::Call.run(&here.join("no such directory")).is_err());
        command(&["true"]).run(here).unwrap();
        let failed = command(&["sh", "-c", "echo no pool >&2; exit 3"]).run(here).unwrap_err();
        assert!(failed.to_string().contains("no pool"), "{failed}");
        assert!(command(&[]).run(here).is_err());
    }
}
