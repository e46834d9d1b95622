//! A handle on the host's `/proc`, opened before a trial mounts one of its own over it.
//!
//! A trial is init of a PID namespace, so its own `/proc` shows neither the kernel's threads nor
//! the runner. Both are needed: memory that the runner holds is reached as `/proc/PID/fd/N`, and
//! background work shows as a kernel thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The host's `/proc`.
#[derive(Debug)]
pub struct HostProc(OwnedFd);

impl HostProc {
    /// Opens `/proc` as it is mounted now.
    pub fn open() -> io::Result<HostProc> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(HostProc(rustix::fs::open("/proc", flags, Mode::empty())?))
    }

    /// Opens a file for reading and writing; below `/proc`, the host's is meant.
    pub fn open_writable(&self, path: &Path, direct: bool) -> io::Result<File> {
        let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
        match path.strip_prefix("/proc") {
            Ok(below) => {
                let flags = OFlags::RDWR | OFlags::CLOEXEC | direct;
                Ok(rustix::fs::openat(&self.0, below, flags, Mode::empty())?.into())
            }
            Err(_) => {
                use std::os::unix::fs::OpenOptionsExt;
                let flags = direct.bits() as i32;
                OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
            }
        }
    }

    /// Whether a process or a thread of the kernel with this name exists on the host.
    pub fn runs(&self, name: &str) -> bool {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.0) else { return false };
        entries.flatten().any(|entry| {
            let number = entry.file_name().to_bytes();
            number.first().is_some_and(u8::is_ascii_digit)
                && self.name_of(&String::from_utf8_lossy(number)).as_deref() == Some(name)
        })
    }

    fn name_of(&self, number: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("{number}/comm");
        let mut file = File::from(rustix::fs::openat(&self.0, path, flags, Mode::empty()).ok()?);
        let mut name = String::new();
        file.read_to_string(&mut name).ok()?;
        Some(name.trim_end().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn processes_are_found_by_name() {
        let host = HostProc::open().unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        // The name changes at exec, which the child may still be about to do.
        let found = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            host.runs("sleep")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
        assert!(!host.runs("no-process-has-this"));
    }

    #[test]
    fn memory_is_reached_through_the_descriptor_of_its_holder() {
        let memory =
            rustix::fs::memfd_create("kurabe-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(memory.try_clone().unwrap()).write_all(b"held").unwrap();
        use std::os::fd::AsRawFd;
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let mut text = String::new();
        let mut file = HostProc::open().unwrap().open_writable(Path::new(&path), false).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "held");
    }
}
