//! A real block device: claimed and filled once for a study, claimed again for every trial.
//!
//! mkfs and mount take the device exclusively themselves, so it cannot stay claimed while they
//! run. It stays open and locked in the runner instead: so no other disk can come under its number,
//! no other kurabe can take it, and the claim before each trial sees whatever else came in between.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use block::claim::{Claim, ClaimError, Identity, Permission, Pinned, claim, open_identical};
use rustix::fs::OFlags;

use super::fill::{self, Progress};
use super::{BlockDeviceFacts, DeviceError, DeviceFacts, DeviceRequest};
use crate::filesystem;
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

/// A device that was filled for a study, held open and locked. Dropping it wipes what the last
/// trial left, so that the same command line works again.
#[derive(Debug)]
pub struct RealDevice {
    pinned: Pinned,
    /// The permission under which it is claimed for a trial.
    destroy: String,
}

impl RealDevice {
    /// By what a trial knows the device again.
    pub fn identity(&self) -> serde_json::Value {
        serde_json::to_value(self.pinned.identity()).expect("an identity has a JSON form")
    }

    /// Claims the device for one trial, wipes what the trial before left, and lets it go for mkfs,
    /// which takes it itself.
    pub fn claim_again(&self) -> Result<(), DeviceError> {
        let device = self.pinned.claim_again(&self.destroy)?;
        let path = self.pinned.path().display();
        bypass_page_cache(&device)
            .and_then(|()| fill::wipe_signatures(&device, self.pinned.identity().size_bytes))
            .map_err(DeviceError::system(format!("wiping signatures of {path}")))
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
) -> Result<(RealDevice, u64, DeviceFacts), DeviceError> {
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
    let destroy = permission_of_trials(destroy, &granted);
    Ok((RealDevice { pinned: granted.into_pinned(), destroy }, size_bytes, facts))
}

/// The name that the user gave, and the signatures that a trial can leave. The device was filled,
/// so that none of them is anybody else's.
fn permission_of_trials(destroy: &str, granted: &Claim) -> String {
    let name = Permission::read(destroy, granted.findings()).name;
    let signatures =
        filesystem::all().iter().flat_map(|file_system| file_system.signatures()).copied();
    let mut signatures: Vec<String> = signatures.map(ToString::to_string).collect();
    signatures.sort();
    signatures.dedup();
    Permission { name, signatures }.to_string()
}

/// How long a device is waited for that somebody else has exclusively: a program that the runner
/// starts has a copy of its descriptors until it runs.
const EXCLUSIVE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Makes sure, in the trial, that the device is the one that the runner claimed and that nobody has
/// it exclusively, and lets it go for mkfs, which takes it itself. Gives its size in bytes.
pub fn attach(path: &Path, identity: &serde_json::Value) -> Result<u64, DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
    let identity: Identity = serde_json::from_value(identity.clone())
        .map_err(|error| system("the identity of")(error.into()))?;
    let until = Instant::now() + EXCLUSIVE_WAIT_MAX;
    loop {
        match open_identical(path, &identity, true) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => {
                return opened.map(|_| identity.size_bytes).map_err(system("taking"));
            }
        }
    }
}

fn bypass_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}
