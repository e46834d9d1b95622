//! Prepares the device of a study, once, in the runner's process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::quantity::size_text;
use lab::spec::Device;
use rustix::fs::{FallocateFlags, IFlags, MemfdFlags, OFlags};

use super::fill::{self, Progress};
use super::real::{self, RealDevice};
use super::{BackingFacts, DEFAULT_DIRECTORY, DeviceError, DeviceFacts, DeviceRequest};
use crate::ledger::{Ledger, Taken, random_bits, random_name};
use crate::stop::Stop;

/// A device that is ready for any number of trials. Dropping it gives everything back.
#[derive(Debug)]
pub struct Prepared<'ledger> {
    device: Device,
    size_bytes: u64,
    facts: DeviceFacts,
    /// The memory of a `mem:` device, which lives as long as this descriptor.
    _memory: Option<OwnedFd>,
    image: Option<Image<'ledger>>,
    _real: Option<RealDevice>,
}

impl Prepared<'_> {
    /// What a trial is told.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What the result says.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Gives everything back, and says how that went.
    ///
    /// # Errors
    ///
    /// The image cannot be removed; the ledger still has it.
    pub fn give_back(mut self) -> Result<(), DeviceError> {
        match self.image.take() {
            Some(image) => image.remove().map_err(DeviceError::system(format!(
                "removing the image {}",
                image.path.display()
            ))),
            None => Ok(()),
        }
    }
}

/// An image file, removed when dropped.
#[derive(Debug)]
struct Image<'ledger> {
    path: PathBuf,
    ledger: &'ledger Ledger,
    ledger_id: u64,
}

impl Image<'_> {
    /// Removes it. What could not be removed stays in the ledger, for `kurabe clean`. Removing it
    /// again does nothing.
    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.ledger.gave_back(self.ledger_id)
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        // Whoever wants to know calls `give_back`.
        let _ = self.remove();
    }
}

/// Space that an image leaves free on the host's file system, and memory that a `mem:` device
/// leaves to the machine, in bytes: kurabe's results, logs and processes need some.
pub(crate) const RESERVE_BYTES: u64 = 256 << 20;

/// Prepares what was requested: makes it, fills it with random bytes and gathers its facts.
/// `report` is called from this thread, several times a second.
///
/// # Errors
///
/// [`DeviceError::Refused`] before anything was touched; else nothing is left behind.
pub fn prepare<'ledger>(
    request: &DeviceRequest,
    ledger: &'ledger Ledger,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared<'ledger>, DeviceError> {
    match request {
        DeviceRequest::Loop { size_bytes, directory } => {
            let directory = directory.as_deref().unwrap_or(Path::new(DEFAULT_DIRECTORY));
            prepare_image(request, *size_bytes, directory, ledger, stop, report)
        }
        DeviceRequest::Memory { size_bytes } => prepare_memory(request, *size_bytes, stop, report),
        DeviceRequest::Block { path, destroy } => {
            let (real, size_bytes, facts) = real::prepare(path, destroy, stop, report)?;
            let path = path.clone();
            Ok(Prepared {
                device: Device::Block { path, destroy: real.destroy().to_string() },
                size_bytes,
                facts,
                _memory: None,
                image: None,
                _real: Some(real),
            })
        }
    }
}

fn prepare_image<'ledger>(
    request: &DeviceRequest,
    size_bytes: u64,
    directory: &Path,
    ledger: &'ledger Ledger,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared<'ledger>, DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {}", directory.display()));
    let directory = fs::canonicalize(directory).map_err(|error| {
        DeviceError::Refused(format!(
            "the image directory {}: {error}; make it, or name another as loop:SIZE@DIR",
            directory.display()
        ))
    })?;
    if !directory.is_dir() {
        return Err(DeviceError::Refused(format!(
            "{} is no directory; name one as loop:SIZE@DIR",
            directory.display()
        )));
    }
    let backing = BackingFacts::of_directory(&directory);
    refuse_memory_backed(&directory, size_bytes)?;
    let free_bytes = free_bytes(&directory).map_err(system("asking for the free space of"))?;
    if size_bytes.saturating_add(RESERVE_BYTES) > free_bytes {
        return Err(DeviceError::Refused(format!(
            "an image of {} does not fit: {} has {} free, of which {} stay free; give a smaller size, or another directory as loop:SIZE@DIR",
            about(size_bytes),
            directory.display(),
            about(free_bytes),
            about(RESERVE_BYTES)
        )));
    }
    let path = directory.join(format!("{}.img", random_name()));
    let ledger_id = ledger
        .take(Taken::Image { path: path.clone() })
        .map_err(DeviceError::system(format!("writing the ledger {}", ledger.path().display())))?;
    let image = Image { path: path.clone(), ledger, ledger_id };
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    let file = create_image(&path).map_err(system("creating the image"))?;
    if backing.as_ref().is_some_and(|backing| backing.file_system == "btrfs") {
        // Otherwise every overwrite of the image goes to a new place, and has no direct I/O.
        // Where it is refused (a file system mounted with compression) the image still works.
        let _ = rustix::fs::ioctl_setflags(&file, IFlags::NOCOW);
    }
    allocate(&file, size_bytes).map_err(system("allocating the image"))?;
    let started = Instant::now();
    fill::fill(&file, size_bytes, random_bits(), stop, report)
        .map_err(system("filling the image"))?;
    Ok(Prepared {
        device: Device::Image { path, size_bytes, memory: false },
        facts: DeviceFacts {
            request: request.to_string(),
            size_bytes,
            backing,
            block_device: None,
            fill_ns: started.elapsed().as_nanos() as u64,
        },
        _memory: None,
        size_bytes,
        image: Some(image),
        _real: None,
    })
}

/// Creates the image, which nobody else may read: a load may write secrets. Past the page cache
/// where that is possible, so that the filling measures the disk and evicts nothing.
fn create_image(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
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

fn refuse_memory_backed(directory: &Path, size_bytes: u64) -> Result<(), DeviceError> {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let statfs = rustix::fs::statfs(directory).map_err(|error| {
        DeviceError::system(format!("looking at {}", directory.display()))(error.into())
    })?;
    if [RAMFS_MAGIC, TMPFS_MAGIC].contains(&(statfs.f_type as u64)) {
        return Err(DeviceError::Refused(format!(
            "{} lies in memory, not on a disk; use mem:{} to compare in memory, or name a directory on a disk as loop:{}@DIR",
            directory.display(),
            size_text(size_bytes),
            size_text(size_bytes)
        )));
    }
    Ok(())
}

pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let statvfs = rustix::fs::statvfs(directory)?;
    Ok(statvfs.f_bavail.saturating_mul(statvfs.f_frsize))
}

fn prepare_memory<'ledger>(
    request: &DeviceRequest,
    size_bytes: u64,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<Prepared<'ledger>, DeviceError> {
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
    let memory = OwnedFd::from(file);
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    Ok(Prepared {
        device: Device::Image { path: path.into(), size_bytes, memory: true },
        facts: DeviceFacts {
            request: request.to_string(),
            size_bytes,
            backing: None,
            block_device: None,
            fill_ns: started.elapsed().as_nanos() as u64,
        },
        _memory: Some(memory),
        size_bytes,
        image: None,
        _real: None,
    })
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
    use super::*;

    fn refusal(request: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::start(home.path()).unwrap();
        let request = DeviceRequest::parse(request, None).unwrap();
        let prepared = prepare(&request, &ledger, &Stop::default(), &mut |_| {});
        let refused = match prepared {
            Err(DeviceError::Refused(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(ledger.held(), [], "nothing was taken");
        refused
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
        let ledger = Ledger::start(&home.path().join("ledger")).unwrap();
        let request = format!("loop:256M@{}", home.path().display());
        let request = DeviceRequest::parse(&request, None).unwrap();
        let stop = Stop::default();
        let mut taken = Vec::new();
        let prepared = prepare(&request, &ledger, &stop.clone(), &mut |_| {
            taken = ledger.held();
            stop.raise();
        });
        assert!(matches!(prepared, Err(DeviceError::Stopped)), "{prepared:?}");
        let [Taken::Image { path }] = &taken[..] else { panic!("{taken:?}") };
        assert!(!path.exists());
        assert_eq!(ledger.held(), []);
        let request = DeviceRequest::parse("loop:64M@/no/such/place", None).unwrap();
        let error = prepare(&request, &ledger, &Stop::default(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("/no/such/place"), "{error}");
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
