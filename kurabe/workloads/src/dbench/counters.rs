//! Samples the counters that can tell why a workload's throughput drifts: the page cache, the free
//! space, the device.
//!
//! Reads `/proc` and `/sys` and asks the file system for its size; knows nothing of workloads.
//! What a system does not tell is absent from a sample, never zero.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trust::mounts;
use vocabulary::cost::DeviceDelta;

use crate::counters::{DeviceCounters, DeviceReading};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterSample {
    /// Since the start of the run.
    pub elapsed_ns: u64,
    /// Bytes of the page cache that wait to be written or are being written.
    pub dirty_bytes: Option<u64>,
    /// Free part of the file system for an unprivileged user, from 0 to 1.
    pub free_part: Option<f64>,
    /// The device's totals since it exists.
    pub device: Option<DeviceDelta>,
}

/// The running system's counters for the file system that holds a directory.
#[derive(Clone, Debug)]
pub struct SystemCounters {
    directory: PathBuf,
    device: Option<DeviceCounters>,
}

impl SystemCounters {
    /// Counters for the file system of `directory`, and for its block device: one that the caller
    /// knows (a FUSE mount does not say what it lies on), or that it lies on, if on one.
    pub fn new(directory: &Path, device: Option<&Path>) -> Self {
        let device = match device {
            Some(device) => DeviceCounters::of_node(device).ok(),
            None => device_of_mount(directory),
        };
        Self { directory: directory.to_owned(), device }
    }

    /// The counters now.
    pub fn sample(&self, elapsed_ns: u64) -> CounterSample {
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let space = rustix::fs::statvfs(&self.directory).ok().filter(|space| space.f_blocks > 0);
        let reading = self.device.as_ref().and_then(|device| device.read().ok());
        CounterSample {
            elapsed_ns,
            dirty_bytes: memory.and_then(|text| dirty_bytes(&text)),
            free_part: space.map(|space| space.f_bavail as f64 / space.f_blocks as f64),
            device: reading.map(|reading| reading.since(&DeviceReading::default())),
        }
    }
}

/// By the directory's device number; Btrfs and others invent one, and then the mount's source
/// tells.
fn device_of_mount(directory: &Path) -> Option<DeviceCounters> {
    DeviceCounters::under_directory(directory).ok().or_else(|| {
        let mounts = mounts::mounts().ok()?;
        let mount = mounts::mount_of(&mounts, &fs::canonicalize(directory).ok()?)?;
        DeviceCounters::of_node(&mount.source).ok()
    })
}

/// What `/proc/meminfo` says is waiting to be written or being written.
fn dirty_bytes(text: &str) -> Option<u64> {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?.trim();
            let kibibytes: u64 = value.strip_suffix(" kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        })
    };
    field("Dirty")?.checked_add(field("Writeback")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text = "MemTotal: 9 kB\nDirty:   2 kB\nWriteback:  1 kB\nWritebackTmp: 7 kB\n";
        assert_eq!(dirty_bytes(text), Some(3072));
        assert_eq!(dirty_bytes("Dirty: 2 MB\n"), None);
    }

    #[test]
    fn this_system_answers() {
        let sample = SystemCounters::new(Path::new("/"), None).sample(5);
        assert_eq!(sample.elapsed_ns, 5);
        assert!(sample.dirty_bytes.is_some());
        assert!((0.0..1.0).contains(&sample.free_part.unwrap()));
    }
}
