//! The bytes of a recording: how many there may be, and a disk of them as an image.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};

use crash::{Log, RecordedRequest, SECTOR_BYTES};

use crate::device::lies_in_memory;
use crate::facts::memory_bytes;

/// Bytes that a recording may have: an eighth of what is free where it lies is left for the result. One in memory
/// stands beside the disk that the workload has written, so that both have two thirds of what is free.
pub fn recording_bytes_max(data: &File) -> u64 {
    if let Some(bytes) = device_bytes(data) {
        return bytes;
    }
    let memory = match (lies_in_memory(data), memory_bytes("MemAvailable:")) {
        (Ok(true), Some(bytes)) => bytes / 3,
        _ => u64::MAX,
    };
    // A file in memory without a name lies where nothing is counted.
    let space = rustix::fs::fstatvfs(data).ok().filter(|space| space.f_blocks > 0);
    let free = space.map_or(u64::MAX, |space| space.f_bavail.saturating_mul(space.f_frsize));
    memory.min(free - free / 8)
}

/// The size of a recording's file that is a device: the disk of a guest.
fn device_bytes(mut data: &File) -> Option<u64> {
    let is_device = data.metadata().ok()?.file_type().is_block_device();
    is_device.then(|| data.seek(SeekFrom::End(0)).ok()).flatten()
}

/// Copies what was written at any time. The rest, and zeros, stay holes.
pub fn copy_written(disk: &File, image: &File, log: &Log) -> io::Result<()> {
    let bytes_of = |one: &RecordedRequest| {
        (one.sector * SECTOR_BYTES, (one.sector + one.sectors) * SECTOR_BYTES)
    };
    let mut written: Vec<(u64, u64)> = log.requests.iter().map(bytes_of).collect();
    written.sort_unstable();
    let mut buffer = vec![0; 1 << 20];
    let mut place = 0;
    for (from, to) in written {
        place = place.max(from);
        while place < to {
            let length = (to - place).min(buffer.len() as u64) as usize;
            let bytes = &mut buffer[..length];
            disk.read_exact_at(bytes, place)?;
            if bytes.iter().any(|byte| *byte != 0) {
                image.write_all_at(bytes, place)?;
            }
            place += length as u64;
        }
    }
    image.set_len(log.sectors * SECTOR_BYTES)
}
