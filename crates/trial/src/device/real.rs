//! A real block device: claimed and filled once for a study, claimed again for every trial.
//!
//! mkfs and mount take the device exclusively themselves, so it cannot stay claimed while they
//! run. It stays open and locked in the runner instead: so no other disk can come under its number,
//! no other kurabe can take it, and the claim before each trial sees whatever else came in between.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use block::claim::{ClaimError, Identity, Pinned, Signature, claim, open_identical};
use rustix::fs::OFlags;

use super::fill::{self, Progress};
use super::{BlockDeviceFacts, DeviceError, DeviceFacts, DeviceRequest};
use crate::ledger::random_bits;
use crate::stop::Stop;

impl From<ClaimError> for DeviceError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::System { path, error } => {
                // Nothing was touched, and nothing will be.
                DeviceError::Refused(format!(
                    "{} cannot be claimed: {error}; `lsblk` lists the devices, and loop:4G makes one \
                     of an image file",
                    path.display()
                ))
            }
            refused => DeviceError::Refused(refused.to_string()),
        }
    }
}

/// A device that was filled for a study, held open and locked. Dropping it wipes what a trial that
/// died left, so that the same command line works again.
#[derive(Debug)]
pub struct RealDevice {
    pinned: Pinned,
    /// What the last trial left, if it did not wipe it itself.
    left: RefCell<Vec<Signature>>,
}

impl RealDevice {
    /// By what a trial knows the device again.
    pub fn identity(&self) -> serde_json::Value {
        serde_json::to_value(self.pinned.identity()).expect("an identity has a JSON form")
    }

    /// Claims the device for one trial and lets it go for mkfs, which takes it itself. What a trial
    /// that died left is wiped.
    pub fn claim_again(&self) -> Result<(), DeviceError> {
        let device = self.pinned.claim_again(&self.left.borrow())?;
        if self.left.take().is_empty() {
            return Ok(());
        }
        let path = self.pinned.path().display();
        bypass_page_cache(&device)
            .and_then(|()| fill::wipe_signatures(&device, self.pinned.identity().size_bytes))
            .map_err(DeviceError::system(format!("wiping signatures of {path}")))
    }

    /// Notes what a trial left that did not come to its end, which the next one may destroy. What
    /// comes later is somebody's.
    pub fn note_left(&self) {
        // What cannot be read is in the way of the next claim.
        *self.left.borrow_mut() = self.pinned.signatures().unwrap_or_default();
    }
}

impl Drop for RealDevice {
    fn drop(&mut self) {
        // Somebody else's claim comes first; then what is there stays.
        let _ = self.claim_again();
    }
}

/// Size in bytes of what is asked for; a real device is only looked at. Absent when there is none.
pub fn size_bytes(request: &DeviceRequest) -> Option<u64> {
    match request {
        DeviceRequest::Loop { size_bytes, .. } | DeviceRequest::Memory { size_bytes } => {
            Some(*size_bytes)
        }
        DeviceRequest::Block { path, .. } => {
            let node = path.canonicalize().ok()?;
            let size = Path::new("/sys/class/block").join(node.file_name()?).join("size");
            // In sectors of 512 bytes, whatever the device's own are.
            let sectors: u64 = std::fs::read_to_string(size).ok()?.trim().parse().ok()?;
            sectors.checked_mul(512)
        }
    }
}

/// Size in bytes of a device that may be claimed. Nothing is touched, and the claim is let go.
///
/// # Errors
///
/// [`DeviceError::Refused`] with what is in the way.
pub fn examine(path: &Path, destroy: &str) -> Result<u64, DeviceError> {
    Ok(claim(path, destroy)?.findings().size_bytes)
}

/// Claims the device under the user's permission and fills it with random bytes.
pub fn prepare(
    path: &Path,
    destroy: &str,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<(RealDevice, DeviceFacts), DeviceError> {
    let granted = claim(path, destroy)?;
    let size_bytes = granted.findings().size_bytes;
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    bypass_page_cache(granted.file()).map_err(system("opening for direct I/O"))?;
    let started = Instant::now();
    fill::fill(granted.file(), size_bytes, random_bits(), stop, report)
        .map_err(system("filling"))?;
    let facts = DeviceFacts {
        request: path.display().to_string(),
        size_bytes,
        backing: None,
        block_device: BlockDeviceFacts::of_node(path),
        fill_ns: started.elapsed().as_nanos() as u64,
    };
    let real = RealDevice { pinned: granted.into_pinned(), left: RefCell::default() };
    Ok((real, facts))
}

/// How long a device is waited for that somebody else has exclusively: a program that the runner
/// starts has a copy of its descriptors until it runs.
const EXCLUSIVE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Makes sure, in the trial, that the device is the one that the runner claimed and that nobody has
/// it exclusively, and lets it go for mkfs, which takes it itself.
pub fn attach(path: &Path, identity: &serde_json::Value) -> Result<Identity, DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    let identity: Identity = serde_json::from_value(identity.clone())
        .map_err(|error| system("the identity of")(error.into()))?;
    take(path, &identity).map_err(system("taking"))?;
    Ok(identity)
}

/// Wipes what the trial made, at its end: what the device carries later is somebody else's.
pub fn wipe(path: &Path, identity: &Identity) -> io::Result<()> {
    let device = take(path, identity)?;
    bypass_page_cache(&device)?;
    fill::wipe_signatures(&device, identity.size_bytes)
}

fn take(path: &Path, identity: &Identity) -> io::Result<File> {
    let until = Instant::now() + EXCLUSIVE_WAIT_MAX;
    loop {
        match open_identical(path, identity, true) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let text = "somebody has it exclusively; see lsblk";
                return Err(io::Error::new(error.kind(), text));
            }
            opened => return opened,
        }
    }
}

fn bypass_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}
