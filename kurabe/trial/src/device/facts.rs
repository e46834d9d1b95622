//! What is known of a device, from sysfs: kept beside every result, since a number means nothing
//! without it. A fact that the system does not give is absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use trust::mounts;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The notation that was asked for: `loop:8G`, `mem:4G`, `/dev/sdb`.
    pub request: String,
    /// Size in bytes, of several devices together.
    pub size_bytes: u64,
    /// What an image lies on; absent for memory and for a real device.
    pub backing: Option<BackingFacts>,
    /// A real device; absent for an image and for memory.
    pub block_device: Option<BlockDeviceFacts>,
    /// Where there are several devices, those of each; above are then the sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceFacts>,
    /// How long the filling took, in ns.
    pub fill_ns: u64,
}

/// What an image file lies on.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingFacts {
    pub directory: PathBuf,
    pub file_system: String,
    pub mount_options: String,
    /// The block device below it, when it has one.
    pub block_device: Option<BlockDeviceFacts>,
}

/// A block device of the kernel.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDeviceFacts {
    /// Kernel name, such as `sda` or `nvme0n1p2`.
    pub name: String,
    pub size_bytes: Option<u64>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// Whether the kernel takes it for a disk with a spindle.
    pub rotational: Option<bool>,
    /// The I/O scheduler in force.
    pub scheduler: Option<String>,
    /// Settings of the queue by their name in sysfs, as the kernel writes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue: BTreeMap<String, String>,
    /// Devices that it is made of (a RAID, a mapping).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<BlockDeviceFacts>,
}

/// Settings of a queue that change what a benchmark measures.
const QUEUE_SETTINGS: [&str; 18] = [
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "optimal_io_size",
    "max_sectors_kb",
    "max_segments",
    "nr_requests",
    "read_ahead_kb",
    "nomerges",
    "rq_affinity",
    "wbt_lat_usec",
    "write_cache",
    "fua",
    "io_poll",
    "discard_granularity",
    "discard_max_bytes",
    "write_zeroes_max_bytes",
    "zoned",
];

/// How many devices one may be built on top of another. Sysfs has no cycles; a bound costs
/// nothing.
const DEPTH_MAX: usize = 8;

impl BlockDeviceFacts {
    /// The facts of the device with these numbers; absent when sysfs does not know it.
    pub fn of_number(major: u32, minor: u32) -> Option<BlockDeviceFacts> {
        let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        BlockDeviceFacts::of_directory(&directory, DEPTH_MAX)
    }

    /// The facts of the device behind a node.
    pub fn of_node(node: &Path) -> Option<BlockDeviceFacts> {
        let number = rustix::fs::stat(node).ok()?.st_rdev;
        BlockDeviceFacts::of_number(rustix::fs::major(number), rustix::fs::minor(number))
    }

    fn of_directory(directory: &Path, depth: usize) -> Option<BlockDeviceFacts> {
        let name = directory.file_name()?.to_str()?.to_string();
        // A partition has no queue of its own; the disk does, one directory up.
        let disk = if directory.join("partition").exists() {
            directory.parent()?.to_path_buf()
        } else {
            directory.to_path_buf()
        };
        let queue: BTreeMap<String, String> = QUEUE_SETTINGS
            .iter()
            .filter_map(|name| Some((name.to_string(), read(&disk.join("queue").join(name))?)))
            .collect();
        let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let parts = slaves
            .filter(|_| depth > 0)
            .filter_map(|entry| fs::canonicalize(entry.path()).ok())
            .filter_map(|slave| BlockDeviceFacts::of_directory(&slave, depth - 1))
            .collect();
        let vendor = read(&disk.join("device/vendor")).filter(|vendor| !vendor.starts_with("0x"));
        let model = read(&disk.join("device/model"));
        let model = match (vendor, model) {
            (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
            (vendor, model) => model.or(vendor),
        };
        Some(BlockDeviceFacts {
            name,
            // Sysfs counts in units of 512 bytes whatever the device's block is.
            size_bytes: read(&directory.join("size"))
                .and_then(|sectors| sectors.parse::<u64>().ok()?.checked_mul(512)),
            model,
            serial: read(&disk.join("serial"))
                .or_else(|| read(&disk.join("device/serial")))
                .or_else(|| read(&disk.join("device/wwid")))
                .or_else(|| read(&disk.join("wwid"))),
            firmware: read(&disk.join("device/rev"))
                .or_else(|| read(&disk.join("device/firmware_rev"))),
            rotational: read(&disk.join("queue/rotational")).map(|text| text == "1"),
            scheduler: read(&disk.join("queue/scheduler")).map(|text| chosen(&text)),
            queue,
            parts,
        })
    }
}

impl BackingFacts {
    /// The facts of the directory in which an image lies.
    pub fn of_directory(directory: &Path) -> Option<BackingFacts> {
        let directory = fs::canonicalize(directory).ok()?;
        let mounts = mounts::mounts().ok()?;
        let mount = mounts::mount_of(&mounts, &directory)?;
        let (major, minor) = mount.device;
        let block_device = BlockDeviceFacts::of_number(major, minor)
            // Btrfs makes its device numbers up; the source names one of its devices.
            .or_else(|| BlockDeviceFacts::of_node(&mount.source));
        Some(BackingFacts {
            file_system: mount.file_system.clone(),
            mount_options: mount.options.clone(),
            directory,
            block_device,
        })
    }
}

/// The chosen one of `none [mq-deadline] kyber`.
fn chosen(text: &str) -> String {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text)
        .to_string()
}

fn read(path: &Path) -> Option<String> {
    // Serial numbers of some devices are padded with NUL.
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() { None } else { Some(text.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_scheduler_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("[none]"), "none");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn a_partition_takes_queue_and_model_from_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sdx");
        let partition = disk.join("sdx1");
        for directory in ["queue", "device", "sdx1", "slaves"] {
            fs::create_dir_all(disk.join(directory)).unwrap();
        }
        for (name, text) in [
            ("queue/scheduler", "[none] bfq\n"),
            ("queue/rotational", "0\n"),
            ("queue/nr_requests", "64\n"),
            ("device/vendor", "ATA     \n"),
            ("device/model", "Disk 9000   \n"),
            ("serial", "S1\0\0\n"),
            ("size", "2048\n"),
            ("sdx1/partition", "1\n"),
            ("sdx1/size", "8\n"),
        ] {
            fs::write(disk.join(name), text).unwrap();
        }
        let facts = BlockDeviceFacts::of_directory(&partition, 1).unwrap();
        assert_eq!(facts.name, "sdx1");
        assert_eq!(facts.size_bytes, Some(4096));
        assert_eq!(facts.model.as_deref(), Some("ATA Disk 9000"));
        assert_eq!(facts.serial.as_deref(), Some("S1"));
        assert_eq!(facts.rotational, Some(false));
        assert_eq!(facts.scheduler.as_deref(), Some("none"));
        assert_eq!(facts.queue["nr_requests"], "64");
    }
}
