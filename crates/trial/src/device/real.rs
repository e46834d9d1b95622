//! A real block device: claimed and filled once for a study, claimed again for every trial.
//!
//! mkfs and mount take the device exclusively themselves, so it cannot stay claimed while they
//! run. Between two trials it is free for a moment; the claim of the next one would see whatever
//! came in between.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use block::claim::{Claim, ClaimError, Permission, claim};
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

/// A device that was filled for a study. Dropping it wipes what the last trial left, so that the
/// same command line works again.
#[derive(Debug)]
pub struct RealDevice {
    path: PathBuf,
    destroy: String,
}

impl RealDevice {
    /// The permission under which the trials claim the device.
    pub fn destroy(&self) -> &str {
        &self.destroy
    }
}

impl Drop for RealDevice {
    fn drop(&mut self) {
        // Somebody else's claim comes first; then what is there stays.
        if let Ok(granted) = claim(&self.path, &self.destroy) {
            let _ = fill::wipe_signatures(granted.file(), granted.findings().size_bytes);
        }
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
    Ok((RealDevice { path: path.to_path_buf(), destroy }, size_bytes, facts))
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

/// Claims the device for one trial, wipes what the trial before left, and lets it go for mkfs,
/// which takes it itself.
pub fn attach(path: &Path, destroy: &str) -> Result<u64, DeviceError> {
    let granted = claim(path, destroy)?;
    let size_bytes = granted.findings().size_bytes;
    bypass_page_cache(granted.file())
        .and_then(|()| fill::wipe_signatures(granted.file(), size_bytes))
        .map_err(DeviceError::system(format!("wiping signatures of {}", path.display())))?;
    Ok(size_bytes)
}

fn bypass_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}
