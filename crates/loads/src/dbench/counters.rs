//! Samples the counters that can tell why a load's throughput drifts: the page cache, the free
//! space, the device.
//!
//! Reads `/proc` and `/sys` and asks the file system for its size; knows nothing of loads.
//! What a system does not tell is absent from a sample, never zero.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The size of the sectors in which the kernel counts, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;

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
    device_statistics: Option<PathBuf>,
}

impl SystemCounters {
    /// Counters for the file system of `directory`, and for the block device that it lies on,
    /// if it lies on one.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), device_statistics: statistics_of_mount(directory) }
    }

    /// Counters for a directory and for a device that the caller knows better (a FUSE mount
    /// does not say what it lies on).
    #[must_use]
    pub fn with_device(directory: &Path, device: &Path) -> Self {
        let statistics =
            fs::metadata(device).ok().and_then(|facts| statistics_of_number(facts.rdev()));
        Self { directory: directory.to_owned(), device_statistics: statistics }
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
            device: self
                .device_statistics
                .as_ref()
                .and_then(|path| fs::read_to_string(path).ok())
                .and_then(|text| parse_device(&text)),
        }
    }
}

fn statistics_of_number(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    (major != 0 && path.exists()).then_some(path)
}

/// By the directory's device number; Btrfs and others invent one, and then the mount's source
/// tells.
fn statistics_of_mount(directory: &Path) -> Option<PathBuf> {
    let number = fs::metadata(directory).ok()?.dev();
    if let Some(path) = statistics_of_number(number) {
        return Some(path);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let directory = fs::canonicalize(directory).ok()?;
    let source = source_of_mount(&mounts, &directory)?;
    statistics_of_number(fs::metadata(source).ok()?.rdev())
}

/// The source of the innermost mount that holds a directory, from `/proc/self/mountinfo`.
fn source_of_mount(mounts: &str, directory: &Path) -> Option<PathBuf> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = before.split(' ').nth(4) else {
            continue;
        };
        let point = unescape(point);
        let Some(source) = after.split(' ').nth(1) else {
            continue;
        };
        let depth = Path::new(&point).components().count();
        // A later mount on the same point covers the earlier one.
        if directory.starts_with(&point) && best.is_none_or(|(deepest, _)| depth >= deepest) {
            best = Some((depth, source));
        }
    }
    best.map(|(_, source)| PathBuf::from(unescape(source)))
}

/// Undoes the octal escapes (`\040` for a blank) of the mount table.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('\\') {
        plain.push_str(&rest[..place]);
        let digits = rest.get(place + 1..place + 4);
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) => {
                plain.push(char::from(code));
                rest = &rest[place + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[place + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
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

fn parse_device(text: &str) -> Option<DeviceSample> {
    let fields: Vec<u64> =
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let milliseconds = |index: usize| fields.get(index)?.checked_mul(1_000_000);
    let sectors = |index: usize| fields.get(index)?.checked_mul(SECTOR_BYTES);
    Some(DeviceSample {
        reads: *fields.first()?,
        read_bytes: sectors(2)?,
        writes: *fields.get(4)?,
        written_bytes: sectors(6)?,
        busy_ns: milliseconds(9)?,
        queue_ns: milliseconds(10)?,
        flushes: fields.get(15).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_device_line_is_read_by_position() {
        let line = "  10 1 800 7  20 2 1600 9  0 55 66  1 0 8 1  3 12\n";
        let sample = parse_device(line).unwrap();
        assert_eq!(
            sample,
            DeviceSample {
                reads: 10,
                read_bytes: 800 * 512,
                writes: 20,
                written_bytes: 1600 * 512,
                busy_ns: 55_000_000,
                queue_ns: 66_000_000,
                flushes: Some(3),
            }
        );
        let without_flushes = "10 1 800 7 20 2 1600 9 0 55 66";
        assert_eq!(parse_device(without_flushes).unwrap().flushes, None);
        assert_eq!(parse_device("1 2 3"), None);
        assert_eq!(parse_device("one two"), None);
    }

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
    fn the_innermost_mount_names_the_source() {
        let mounts = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:44 /sub /mnt/a\\040b rw,noatime shared:1 - btrfs /dev/loop7 rw
31 21 0:45 / /mnt/ab rw - btrfs /dev/loop8 rw
";
        let source = |path| source_of_mount(mounts, Path::new(path)).unwrap();
        assert_eq!(source("/mnt/a b/c"), Path::new("/dev/loop7"));
        assert_eq!(source("/mnt/abc"), Path::new("/dev/sda1"));
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
