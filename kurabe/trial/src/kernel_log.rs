//! What the kernel says while something is tried, such as its own words about a mount option that it does not know.
//! Nothing where the log cannot be read.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

use rustix::fs::{Mode, OFlags};

/// The kernel's log from some moment on.
pub struct KernelLog(Option<File>);

/// Bytes of one entry at most: the kernel's own limit for a reader.
const ENTRY_BYTES_MAX: usize = 8192;
const LINES_MAX: usize = 5;

impl KernelLog {
    pub fn from_now() -> KernelLog {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/dev/kmsg", flags, Mode::empty());
        let mut file = opened.ok().map(File::from);
        if file.as_mut().is_some_and(|file| file.seek(SeekFrom::End(0)).is_err()) {
            file = None;
        }
        KernelLog(file)
    }

    /// What was said since then, or since it was asked last, that names one of `words`, such as a device or a
    /// file system.
    pub fn about(&mut self, words: &[&str]) -> Vec<String> {
        let Some(file) = &mut self.0 else { return Vec::new() };
        let mut found: Vec<String> = Vec::new();
        let mut entry = [0; ENTRY_BYTES_MAX];
        while found.len() < LINES_MAX {
            match file.read(&mut entry) {
                Ok(0) => break,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&entry[..length]);
                    let said = message(&text).unwrap_or_default();
                    let is_named =
                        |word: &str| said.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
                    if words.iter().any(|word| is_named(word)) && !found.iter().any(|s| s == said) {
                        found.push(said.to_string());
                    }
                }
                // Entries were overwritten before they were read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        found
    }
}

/// The message of an entry: `PRIORITY,NUMBER,TIME,FLAGS;MESSAGE`, and lines of facts that begin with a space.
fn message(entry: &str) -> Option<&str> {
    entry.split_once(';')?.1.lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_an_entry_is_found() {
        let entry =
            "3,1067,5140900,-;BTRFS error: unrecognized mount option 'x'\n SUBSYSTEM=block\n";
        assert_eq!(message(entry), Some("BTRFS error: unrecognized mount option 'x'"));
        assert_eq!(message("no entry"), None);
    }
}
