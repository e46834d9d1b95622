//! What an image file and memory have in common: the runner fills a file that has no name and holds
//! it; every trial reaches it through the runner's descriptor.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Instant;

use lab::spec::Device;
use serde::{Deserialize, Serialize};

use super::loop_node::Backing;
use super::{
    AttachSite, AttachedFacts, BackingFacts, DeviceError, DeviceFacts, DeviceKind, Making,
    PreparedDevice, fill,
};
use crate::ledger::random_bits;

/// By what a trial finds the file and knows it again.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// `/proc/PID/fd/N` in the runner.
    path: PathBuf,
    #[serde(flatten)]
    backing: Backing,
    size_bytes: u64,
    /// Whether what was never written stays so: an image that is being made, and is to hold what is written to it
    /// and nothing else. Who makes it makes it durable.
    #[serde(default)]
    keeps_holes: bool,
}

/// A filled file without a name. Dropping it gives everything back, and so does the kernel when the
/// process ends.
pub struct FilledFile {
    device: Device,
    facts: DeviceFacts,
    _file: File,
}

impl FilledFile {
    /// Holds `file`, all of it a hole.
    pub(super) fn sparse(
        kind: &DeviceKind,
        file: File,
        size_bytes: u64,
        keeps_holes: bool,
    ) -> io::Result<Box<dyn PreparedDevice>> {
        file.set_len(size_bytes)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let backing = Backing::of(&file)?;
        let found = Found { path: path.into(), backing, size_bytes, keeps_holes };
        let device = Device {
            kind: kind.name.into(),
            prepared: serde_json::to_value(&found)?,
            ..Device::default()
        };
        let facts = DeviceFacts { request: kind.name.into(), size_bytes, ..DeviceFacts::default() };
        Ok(Box::new(FilledFile { device, facts, _file: file }))
    }

    /// Fills `file` and holds it.
    pub(super) fn fill(
        kind: &DeviceKind,
        file: File,
        size_bytes: u64,
        backing: Option<BackingFacts>,
        order: fill::FillOrder,
        making: &mut Making<'_>,
    ) -> io::Result<Box<dyn PreparedDevice>> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let (path, keeps_holes) = (path.into(), false);
        let found = Found { path, backing: Backing::of(&file)?, size_bytes, keeps_holes };
        let device = making.device(kind, &found);
        (making.made)(&device);
        let started = Instant::now();
        fill::fill(&file, size_bytes, random_bits(), order, making.stop, making.report)?;
        let facts = DeviceFacts {
            request: making.request.clone(),
            size_bytes,
            backing,
            block_device: None,
            devices: Vec::new(),
            fill_ns: started.elapsed().as_nanos() as u64,
        };
        Ok(Box::new(FilledFile { device, facts, _file: file }))
    }
}

impl PreparedDevice for FilledFile {
    fn device(&self) -> &Device {
        &self.device
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }
}

/// The file in a trial.
struct Filled {
    file: File,
    text: String,
    size_bytes: u64,
    on_disk: bool,
    keeps_holes: bool,
}

/// Opens what the runner holds, and nothing else that its place may lead to by now. `on_disk`: past
/// the page cache where that is possible, which also lets the loop device do so.
pub fn ground(
    prepared: &serde_json::Value,
    on_disk: bool,
    site: &AttachSite<'_>,
) -> Result<Box<dyn AttachedFacts>, DeviceError> {
    let found: Found = super::read(prepared)?;
    let text = found.path.display().to_string();
    let system = |what: &str| DeviceError::system(format!("{what} {text}"));
    let file = match site.host.open_writable(&found.path, on_disk) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            site.host.open_writable(&found.path, false)
        }
        result => result,
    };
    let file = file.map_err(system("opening the image"))?;
    if Backing::of(&file).map_err(system("looking at the image"))? != found.backing {
        return Err(DeviceError::Refused(format!(
            "{text} is not the image that was prepared; start the study again"
        )));
    }
    let length_bytes = file.metadata().map_err(system("looking at the image"))?.len();
    let size_bytes = found.size_bytes;
    if length_bytes != size_bytes {
        return Err(DeviceError::Refused(format!(
            "the image {text} has {length_bytes} bytes where {size_bytes} were prepared; start the study again"
        )));
    }
    let keeps_holes = found.keeps_holes;
    Ok(Box::new(Filled { file, text, size_bytes, on_disk, keeps_holes }))
}

impl AttachedFacts for Filled {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn is_cached(&self) -> bool {
        !self.on_disk
    }

    fn is_expendable(&self) -> bool {
        self.keeps_holes
    }

    fn freshen(
        &mut self,
        part: &Range<u64>,
        discard: bool,
        site: &AttachSite<'_>,
    ) -> Result<Option<String>, DeviceError> {
        if self.keeps_holes {
            return Ok(None);
        }
        let system = |what: &str| DeviceError::system(format!("{what} {}", self.text));
        let mut note = None;
        if !discard {
            let refilled_bytes = fill::refill_holes(&self.file, part, random_bits(), site.stop)
                .map_err(system("filling holes of the image"))?;
            note = (refilled_bytes > 0).then(|| format!(
                "{refilled_bytes} bytes of the image had been given back to the host and were filled again"
            ));
        }
        fill::wipe_signatures(&self.file, part)
            .map_err(system("wiping signatures of the image"))?;
        Ok(note)
    }
}

/// Space that an image leaves free on the host's file system, and memory that a `mem:` device
/// leaves to the machine, in bytes: kurabe's results, logs and processes need some.
pub(crate) const RESERVE_BYTES: u64 = 256 << 20;

pub(crate) fn free_bytes(directory: impl AsFd) -> io::Result<u64> {
    let statvfs = rustix::fs::fstatvfs(directory)?;
    Ok(statvfs.f_bavail.saturating_mul(statvfs.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use trust::Directory;

    use super::*;
    use crate::device::DeviceRequest;
    use crate::stop::StopFlag;

    fn refusal(request: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let own = Directory::private(&home.path().join("own")).unwrap();
        let request = DeviceRequest::parse(request, None).unwrap();
        match request.prepare(&own, &StopFlag::default(), &mut |_| {}) {
            Err(DeviceError::Refused(text)) => text,
            other => panic!("{:?}", other.err()),
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
        let stop = StopFlag::default();
        let prepared = request.prepare(&own, &stop.clone(), &mut |_| {
            assert!(own.names().unwrap().is_empty(), "an image has no name");
            stop.raise();
        });
        assert!(matches!(prepared.err(), Some(DeviceError::Stopped)));
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
}
