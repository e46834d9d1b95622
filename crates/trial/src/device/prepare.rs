//! Prepares the device of a study, once, in the runner's process.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Instant;

use lab::quantity::size_text;
use lab::spec::Device;
use rustix::fs::{FallocateFlags, IFlags, MemfdFlags, OFlags};
use trust::Directory;

use super::fill::{self, Progress};
use super::loop_node::Backing;
use super::real::{self, RealDevice};
use super::{BackingFacts, DeviceError, DeviceFacts, DeviceRequest};
use crate::ledger::random_bits;
use crate::stop::Stop;

/// A device that is ready for any number of trials. Dropping it gives everything back, and so does
/// the kernel when the process ends.
#[derive(Debug)]
pub struct Prepared {
    device: Device,
    facts: DeviceFacts,
    /// The file without a name of an image, or its memory, which live as long as this descriptor.
    _held: Option<File>,
    real: Option<RealDevice>,
}

impl Prepared {
    /// What a trial is told.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes sure, before a trial, that a real device is still the one that was granted, that
    /// nothing uses it, and that nobody made anything on it. An image needs none of it.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Refused`] with what is in the way; nothing was touched.
    pub fn claim_again(&self) -> Result<(), DeviceError> {
        self.real.as_ref().map_or(Ok(()), RealDevice::claim_again)
    }

    /// Notes what a trial that did not come to its end left on a real device, which the next one may
    /// destroy.
    pub fn note_left(&self) {
        if let Some(real) = &self.real {
            real.note_left();
        }
    }

    /// What the result says.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// What was filled and is reached through this process's descriptor.
    fn held(file: File, memory: bool, facts: DeviceFacts) -> io::Result<Prepared> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let Backing { file_system, inode } = Backing::of(&file)?;
        let size_bytes = facts.size_bytes;
        Ok(Prepared {
            device: Device::Image { path: path.into(), file_system, inode, size_bytes, memory },
            facts,
            _held: Some(file),
            real: None,
        })
    }
}

/// Space that an image leaves free on the host's file system, and memory that a `mem:` device
/// leaves to the machine, in bytes: kurabe's results, logs and processes need some.
pub(crate) const RESERVE_BYTES: u64 = 256 << 20;

/// Prepares what was requested: makes it, fills it with random bytes and gathers its facts.
/// An image lies in `own`, kurabe's own directory, unless the request names another. `report` is
/// called from this thread, several times a second.
///
/// # Errors
///
/// [`DeviceError::Refused`] before anything was touched; else nothing is left behind.
pub fn prepare(
    request: &DeviceRequest,
    own: &Directory,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared, DeviceError> {
    match request {
        DeviceRequest::Loop { size_bytes, directory } => {
            let named = directory.as_deref().map(open_directory).transpose()?;
            prepare_image(request, *size_bytes, named.as_ref().unwrap_or(own), stop, report)
        }
        DeviceRequest::Memory { size_bytes } => prepare_memory(request, *size_bytes, stop, report),
        DeviceRequest::Block { path, destroy } => {
            let (real, facts) = real::prepare(path, destroy, stop, report)?;
            let device = Device::Block { path: path.clone(), identity: real.identity() };
            Ok(Prepared { device, facts, _held: None, real: Some(real) })
        }
    }
}

/// Opens the directory that the user named for the image.
fn open_directory(path: &Path) -> Result<Directory, DeviceError> {
    Directory::open_shared(path).map_err(|refused| {
        let next = if refused.is_missing() { "make it" } else { "take another" };
        DeviceError::Refused(format!(
            "the directory of the image: {refused}; {next}, or name another as loop:SIZE@DIR"
        ))
    })
}

fn prepare_image(
    request: &DeviceRequest,
    size_bytes: u64,
    directory: &Directory,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared, DeviceError> {
    let path = fs::canonicalize(directory.descriptor_path())
        .map_err(DeviceError::system(format!("looking at {}", directory.path().display())))?;
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    let backing = BackingFacts::of_directory(&path);
    refuse_memory_backed(directory, &path, size_bytes)?;
    let free_bytes =
        free_bytes(directory.descriptor()).map_err(system("asking for the free space of"))?;
    if size_bytes.saturating_add(RESERVE_BYTES) > free_bytes {
        return Err(DeviceError::Refused(format!(
            "an image of {} does not fit: {} has {} free, of which {} stay free; give a smaller size, or another directory as loop:SIZE@DIR",
            about(size_bytes),
            path.display(),
            about(free_bytes),
            about(RESERVE_BYTES)
        )));
    }
    let file = create_image(directory).map_err(system("creating an image in"))?;
    if backing.as_ref().is_some_and(|backing| backing.file_system == "btrfs") {
        // Otherwise every overwrite of the image goes to a new place, and has no direct I/O.
        // Where it is refused (a file system mounted with compression) the image still works.
        let _ = rustix::fs::ioctl_setflags(&file, IFlags::NOCOW);
    }
    allocate(&file, size_bytes).map_err(system("allocating the image in"))?;
    let started = Instant::now();
    fill::fill(&file, size_bytes, random_bits(), stop, report)
        .map_err(system("filling the image in"))?;
    let facts = DeviceFacts {
        request: request.to_string(),
        size_bytes,
        backing,
        block_device: None,
        fill_ns: started.elapsed().as_nanos() as u64,
    };
    Prepared::held(file, false, facts).map_err(system("looking at the image in"))
}

/// Creates the image, which nobody else may read (a load may write secrets) and which has no name
/// that could be left behind or lead to something else one day. Past the page cache where that is
/// possible, so that the filling measures the disk and evicts nothing.
fn create_image(directory: &Directory) -> io::Result<File> {
    let file = directory.nameless_file()?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    match rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(file),
        Err(error) => Err(error.into()),
    }
}

fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => Ok(()),
        // Not every file system can; the filling allocates too, only less evenly.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes),
        Err(error) => Err(error.into()),
    }
}

fn refuse_memory_backed(
    directory: &Directory,
    path: &Path,
    size_bytes: u64,
) -> Result<(), DeviceError> {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let statfs = rustix::fs::fstatfs(directory.descriptor()).map_err(|error| {
        DeviceError::system(format!("looking at {}", path.display()))(error.into())
    })?;
    if [RAMFS_MAGIC, TMPFS_MAGIC].contains(&(statfs.f_type as u64)) {
        return Err(DeviceError::Refused(format!(
            "{} lies in memory, not on a disk; use mem:{} to compare in memory, or name a directory on a disk as loop:{}@DIR",
            path.display(),
            size_text(size_bytes),
            size_text(size_bytes)
        )));
    }
    Ok(())
}

pub(crate) fn free_bytes(directory: impl AsFd) -> io::Result<u64> {
    let statvfs = rustix::fs::fstatvfs(directory)?;
    Ok(statvfs.f_bavail.saturating_mul(statvfs.f_frsize))
}

fn prepare_memory(
    request: &DeviceRequest,
    size_bytes: u64,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared, DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {request}"));
    let available_bytes =
        available_memory_bytes().map_err(system("asking for the free memory for"))?;
    if size_bytes.saturating_add(RESERVE_BYTES) > available_bytes {
        return Err(DeviceError::Refused(format!(
            "{request} does not fit: {} of memory are available, of which {} stay free; give a smaller size, or use loop:SIZE",
            about(available_bytes),
            about(RESERVE_BYTES)
        )));
    }
    let memory = rustix::fs::memfd_create("kurabe", MemfdFlags::CLOEXEC)
        .map_err(|error| system("making the memory of")(error.into()))?;
    let file = File::from(memory);
    file.set_len(size_bytes).map_err(system("sizing the memory of"))?;
    let started = Instant::now();
    fill::fill(&file, size_bytes, random_bits(), stop, report)
        .map_err(system("filling the memory of"))?;
    let facts = DeviceFacts {
        request: request.to_string(),
        size_bytes,
        backing: None,
        block_device: None,
        fill_ns: started.elapsed().as_nanos() as u64,
    };
    Prepared::held(file, true, facts).map_err(system("looking at the memory of"))
}

/// Memory that can be used without swapping, in bytes: `MemAvailable` of `/proc/meminfo`.
pub(crate) fn available_memory_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    text.lines()
        .find_map(|line| {
            let kibibytes = line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?;
            kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
        })
        .ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemAvailable")
        })
}

/// A size for people, to a tenth of the unit below which it is a whole number.
pub(crate) fn about(bytes: u64) -> String {
    for (shift, suffix) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return match tenths % 10 {
                0 => format!("{} {suffix}", tenths / 10),
                tenth => format!("{}.{tenth} {suffix}", tenths / 10),
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refusal(request: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let own = Directory::private(&home.path().join("own")).unwrap();
        let request = DeviceRequest::parse(request, None).unwrap();
        match prepare(&request, &own, &Stop::default(), &mut |_| {}) {
            Err(DeviceError::Refused(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let text = refusal("loop:900T@/var/tmp");
        assert!(text.contains("900 TiB does not fit: /var/tmp has"), "{text}");
        assert!(text.contains("loop:SIZE@DIR"), "{text}");
        let text = refusal("mem:900T");
        assert!(text.contains("mem:900T does not fit") && text.contains("available"), "{text}");
    }

    #[test]
    fn an_image_in_memory_is_refused_with_the_right_notation() {
        if !Path::new("/dev/shm").exists() {
            eprintln!("SKIPPED: no /dev/shm");
            return;
        }
        let text = refusal("loop:64M@/dev/shm");
        assert!(text.contains("lies in memory") && text.contains("mem:64M"), "{text}");
    }

    #[test]
    fn a_stopped_or_failed_preparation_leaves_nothing() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let own = Directory::private(&home.path().join("own")).unwrap();
        let request = DeviceRequest::parse("loop:256M", None).unwrap();
        let stop = Stop::default();
        let prepared = prepare(&request, &own, &stop.clone(), &mut |_| {
            assert!(own.names().unwrap().is_empty(), "an image has no name");
            stop.raise();
        });
        assert!(matches!(prepared, Err(DeviceError::Stopped)), "{prepared:?}");
        assert!(own.names().unwrap().is_empty());
        assert!(refusal("loop:64M@/no/such/place").contains("/no/such/place"));
    }

    #[test]
    fn a_directory_that_a_stranger_can_change_gets_no_image() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let open = home.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let text = refusal(&format!("loop:64M@{}", open.display()));
        assert!(text.contains("can be written by other users"), "{text}");
        assert!(text.contains("loop:SIZE@DIR"), "{text}");
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&open, Some(54_321), None).unwrap();
            let text = refusal(&format!("loop:64M@{}", open.display()));
            assert!(text.contains("belongs to user 54321"), "{text}");
        }
    }

    #[test]
    fn sizes_are_said_in_tenths() {
        for (bytes, text) in
            [(512, "512 bytes"), (8 << 30, "8 GiB"), (3 << 19, "1.5 MiB"), (1 << 50, "1024 TiB")]
        {
            assert_eq!(about(bytes), text);
        }
    }
}
