//! A real block device: claimed and filled once for a study, claimed again for every trial.
//!
//! mkfs and mount take the device exclusively themselves, so it cannot stay claimed while they
//! run. Between two trials it is free for a moment; the claim of the next one would see whatever
//! came in between.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use block::claim::{Claim, ClaimError, Permission, claim};
use block::{ALIGNMENT, AlignedBuffer};
use rustix::fs::OFlags;

use super::fill::{self, Progress};
use super::{BlockDeviceFacts, DeviceError, DeviceFacts};
use crate::filesystem;
use crate::ledger::random_bits;
use crate::stop::Stop;

impl From<ClaimError> for DeviceError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::System { path, error } => {
                DeviceError::System { what: format!("claiming {}", path.display()), error }
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
            let _ = wipe_signatures(granted.file(), granted.findings().size_bytes);
        }
    }
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

/// Claims the device for one trial and lets it go for mkfs, which takes it itself.
pub fn attach(path: &Path, destroy: &str) -> Result<u64, DeviceError> {
    Ok(claim(path, destroy)?.findings().size_bytes)
}

fn bypass_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

/// Bytes at either end of the device, and around every place in between, that are overwritten so
/// that nothing is recognised any more.
const WIPED_BYTES: u64 = 1 << 20;

/// Where Btrfs keeps copies of its superblock, in bytes: btrfs_sb_offset in the kernel's
/// fs/btrfs/disk-io.h. The copies alone would be recognised by a repair.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

fn wipe_signatures(file: &File, size_bytes: u64) -> io::Result<()> {
    let mut buffer = AlignedBuffer::zeroed(WIPED_BYTES as usize);
    let seed = random_bits();
    let last = size_bytes.saturating_sub(WIPED_BYTES) / ALIGNMENT as u64 * ALIGNMENT as u64;
    for start in [0, last].into_iter().chain(BTRFS_COPIES) {
        let length = WIPED_BYTES.min(size_bytes.saturating_sub(start));
        let bytes = &mut buffer[..length as usize];
        let whole = bytes.len() / 8 * 8;
        fill::random_bytes(seed, start, &mut bytes[..whole]);
        file.write_all_at(bytes, start)?;
    }
    // What lies between the last whole MiB and the end was covered by `last`.
    file.sync_all()
}
