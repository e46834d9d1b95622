//! A handle on the host's `/proc`, opened before a trial mounts one of its own over it.
//!
//! A trial is init of a PID namespace, so its own `/proc` shows neither the kernel's threads nor
//! the runner nor anybody else. All are needed: memory that the runner holds is reached as
//! `/proc/PID/fd/N`, background work shows as a kernel thread, and whoever keeps a mount busy may
//! be a process from outside.

use std::fs::File;
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

    /// Another handle on it.
    pub fn try_clone(&self) -> io::Result<HostProc> {
        Ok(HostProc(self.0.try_clone()?))
    }

    /// Opens what a process of the host has open, `/proc/PID/fd/N`, for reading and writing.
    pub fn open_writable(&self, path: &Path, direct: bool) -> io::Result<File> {
        let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
        self.open_descriptor(path, OFlags::RDWR | direct)
    }

    /// Opens what a process of the host has open, `/proc/PID/fd/N`.
    pub fn open_descriptor(&self, path: &Path, how: OFlags) -> io::Result<File> {
        let below = path.strip_prefix("/proc").map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "no descriptor of a process")
        })?;
        Ok(rustix::fs::openat(&self.0, below, how | OFlags::CLOEXEC, Mode::empty())?.into())
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

    /// CPU time in ns of all threads of the kernel so far; absent where the kernel does not keep it to the
    /// nanosecond.
    pub fn kernel_threads_cpu_ns(&self) -> Option<u64> {
        let entries = rustix::fs::Dir::read_from(&self.0).ok()?;
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_kernel = names.filter(|name| self.is_of_kernel(name).unwrap_or(false));
        let times = of_kernel.filter_map(|name| {
            self.text_of(&name, "schedstat")?.split(' ').next()?.parse::<u64>().ok()
        });
        times.reduce(|sum, more| sum.saturating_add(more))
    }

    /// Whether a number is a thread's of the kernel (`PF_KTHREAD` of `include/linux/sched.h`).
    fn is_of_kernel(&self, number: &str) -> Option<bool> {
        const PF_KTHREAD: u64 = 0x0020_0000;
        if !number.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let text = self.text_of(number, "stat")?;
        let flags: u64 = text.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()?;
        Some(flags & PF_KTHREAD != 0)
    }

    /// The processes of the host that use something below `directory`, as far as they can be seen:
    /// `NAME (process NUMBER)`, with the number that it has on the host.
    pub fn users_below(&self, directory: &Path) -> Vec<String> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.0) else { return Vec::new() };
        let numbers =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        numbers
            .filter(|number| number.starts_with(|first: char| first.is_ascii_digit()))
            .filter(|number| self.uses(number, directory))
            .map(|number| {
                format!("{} (process {number})", self.name_of(&number).unwrap_or_default())
            })
            .collect()
    }

    fn uses(&self, number: &str, directory: &Path) -> bool {
        let below = |link: String| {
            rustix::fs::readlinkat(&self.0, link, Vec::new())
                .is_ok_and(|target| Path::new(&*target.to_string_lossy()).starts_with(directory))
        };
        let open_files = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let path = format!("{number}/fd");
            let files = rustix::fs::openat(&self.0, path, flags, Mode::empty()).ok();
            files.and_then(|files| rustix::fs::Dir::read_from(files).ok()).into_iter().flatten()
        };
        ["cwd", "root", "exe"].iter().any(|name| below(format!("{number}/{name}")))
            || open_files()
                .flatten()
                .any(|file| below(format!("{number}/fd/{}", file.file_name().to_string_lossy())))
            || self.text_of(number, "maps").is_some_and(|maps| {
                maps.lines().any(|line| {
                    line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(directory))
                })
            })
    }

    fn name_of(&self, number: &str) -> Option<String> {
        Some(self.text_of(number, "comm")?.trim_end().to_string())
    }

    fn text_of(&self, number: &str, file: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("{number}/{file}");
        let mut file = File::from(rustix::fs::openat(&self.0, path, flags, Mode::empty()).ok()?);
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        Some(text)
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
    fn a_process_is_no_thread_of_the_kernel() {
        let host = HostProc::open().unwrap();
        assert_eq!(host.is_of_kernel(&std::process::id().to_string()), Some(false));
        assert_eq!(host.is_of_kernel("self"), None);
        // In a container there may be none.
        if let (Some(true), Some(before)) = (host.is_of_kernel("2"), host.kernel_threads_cpu_ns()) {
            assert!(host.kernel_threads_cpu_ns() >= Some(before));
        }
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
