//! Samples the counters that can tell why a load's throughput drifts: the page cache, the free
//! space, the device.
//!
//! Reads `/proc` and `/sys` and asks the file system for its size; knows nothing of loads.
//! What a system does not tell is absent from a sample, never zero.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trust::mounts;

use crate::counters::{DeviceCounters, DeviceReading};

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSample {
    /// Since the start of the run.
    pub elapsed_ns: u64,
    /// Page-cache state.
    pub memory: Option<MemorySample>,
    /// The file system's space.
    pub space: Option<SpaceSample>,
    /// The device's totals since it exists.
    pub device: Option<DeviceSample>,
}

/// Page-cache state, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// Waiting to be written.
    pub dirty_bytes: u64,
    /// Being written.
    pub writeback_bytes: u64,
    /// In the page cache.
    pub cached_bytes: u64,
    /// What could be had without swapping.
    pub available_bytes: u64,
}

/// Space of the file system, from `statvfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSample {
    /// Free for an unprivileged user.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
}

/// A block device's totals, from `/sys/dev/block/MAJOR:MINOR/stat` (the kernel's
/// Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Read requests completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time during which at least one request was under way.
    pub busy_ns: u64,
    /// Sum over the requests of the time that each was under way.
    pub queue_ns: u64,
    /// Flush requests completed; absent before Linux 5.5.
    pub flushes: Option<u64>,
}

/// Something that yields counter samples; the replay asks it once a second.
pub trait CounterSource {
    /// The counters now.
    fn sample(&mut self, elapsed_ns: u64) -> CounterSample;
}

/// A source that knows nothing; for loads that bring counters of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCounters;

impl CounterSource for NoCounters {
    fn sample(&mut self, elapsed_ns: u64) -> CounterSample {
        CounterSample { elapsed_ns, ..CounterSample::default() }
    }
}

/// The running system's counters for the file system that holds a directory.
#[derive(Clone, Debug)]
pub struct SystemCounters {
    directory: PathBuf,
    device: Option<DeviceCounters>,
}

impl SystemCounters {
    /// Counters for the file system of `directory`, and for the block device that it lies on,
    /// if it lies on one.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), device: device_of_mount(directory) }
    }

    /// Counters for a directory and for a device that the caller knows better (a FUSE mount
    /// does not say what it lies on).
    #[must_use]
    pub fn with_device(directory: &Path, device: &Path) -> Self {
        Self { directory: directory.to_owned(), device: DeviceCounters::of_node(device).ok() }
    }
}

impl CounterSource for SystemCounters {
    fn sample(&mut self, elapsed_ns: u64) -> CounterSample {
        CounterSample {
            elapsed_ns,
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_memory(&text)),
            space: rustix::fs::statvfs(&self.directory).ok().map(|facts| SpaceSample {
                free_bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
                total_bytes: facts.f_blocks.saturating_mul(facts.f_frsize),
            }),
            device: self.device.as_ref().and_then(sample_of),
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

fn sample_of(device: &DeviceCounters) -> Option<DeviceSample> {
    let totals = device.read().ok()?.since(&DeviceReading::default());
    Some(DeviceSample {
        reads: totals.reads,
        read_bytes: totals.read_bytes,
        writes: totals.writes,
        written_bytes: totals.written_bytes,
        busy_ns: totals.busy_ms.saturating_mul(1_000_000),
        queue_ns: totals.queue_ms.saturating_mul(1_000_000),
        flushes: device.counts_flushes().then_some(totals.flushes),
    })
}

fn parse_memory(text: &str) -> Option<MemorySample> {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?.trim();
            let kibibytes: u64 = value.strip_suffix(" kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        })
    };
    Some(MemorySample {
        dirty_bytes: field("Dirty")?,
        writeback_bytes: field("Writeback")?,
        cached_bytes: field("Cached")?,
        available_bytes: field("MemAvailable")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text = "MemTotal: 9 kB\nMemAvailable:  8 kB\nCached:  4 kB\nSwapCached: 99 kB\n\
                    Dirty:   2 kB\nWriteback:  1 kB\nWritebackTmp: 7 kB\n";
        let sample = parse_memory(text).unwrap();
        assert_eq!(sample.dirty_bytes, 2048);
        assert_eq!(sample.writeback_bytes, 1024);
        assert_eq!(sample.cached_bytes, 4096);
        assert_eq!(sample.available_bytes, 8192);
        assert_eq!(parse_memory("Dirty: 2 MB\n"), None);
    }

    #[test]
    fn this_system_answers() {
        let mut counters = SystemCounters::new(Path::new("/"));
        let sample = counters.sample(5);
        assert_eq!(sample.elapsed_ns, 5);
        assert!(sample.memory.unwrap().cached_bytes > 0);
        assert!(sample.space.unwrap().total_bytes > 0);
    }
}
