//! Which device this is: what tells one disk from another that came to stand under the same name.
//!
//! Must not know what may be destroyed. Invariant: everything is asked through an open descriptor,
//! never by the path that was given, so that the answer is of the very device that is written.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::system::{numbers, read};
use crate::sys;

/// What a block device is known by. Two are equal only when no other device can have come between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// The kernel's running number of disks and media; no two since the start of the machine share
    /// one. Absent before Linux 5.15.
    pub diskseq: Option<u64>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// World wide name of the disk, or the UUID of a mapping or an array; of a partition that of
    /// its disk.
    pub wwid: Option<String>,
    /// Serial number of the disk, of a partition that of its disk.
    pub serial: Option<String>,
    /// Where a partition begins on its disk, in bytes; absent of a whole disk.
    pub partition_start_bytes: Option<u64>,
}

impl DeviceIdentity {
    /// The identity of the block device that `device` has open.
    pub fn of(device: &File) -> io::Result<DeviceIdentity> {
        let stat = rustix::fs::fstat(device)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a block device"));
        }
        let (major, minor) = numbers(stat.st_rdev);
        // The number cannot pass to another device while this one is open.
        let directory = directory_of((major, minor))?;
        let (disk, partition_start_bytes) = match read(&directory.join("start")) {
            Some(sectors) if directory.join("partition").exists() => {
                let start_bytes = sectors.parse::<u64>().ok().and_then(|n| n.checked_mul(512));
                (directory.parent().unwrap_or(&directory), start_bytes)
            }
            _ => (directory.as_path(), None),
        };
        let first = |names: &[&str]| names.iter().find_map(|name| read(&disk.join(name)));
        Ok(DeviceIdentity {
            major,
            minor,
            diskseq: sys::disk_sequence(device.as_fd()).ok(),
            size_bytes: sys::block_device_size(device.as_fd())?,
            wwid: first(&["wwid", "device/wwid", "dm/uuid", "md/uuid"]),
            serial: first(&["serial", "device/serial"]),
            partition_start_bytes,
        })
    }

    /// What differs from `granted`, in words; absent when nothing does.
    fn difference(&self, granted: &DeviceIdentity) -> Option<String> {
        let mut parts = Vec::new();
        let mut compare = |name: &str, now: Option<String>, was: Option<String>| {
            if now != was {
                let text = |value: Option<String>| value.unwrap_or_else(|| "none".into());
                parts.push(format!("{name} {}, was {}", text(now), text(was)));
            }
        };
        let number = |one: &DeviceIdentity| Some(format!("{}:{}", one.major, one.minor));
        let start =
            |one: &DeviceIdentity| one.partition_start_bytes.map(|bytes| Size(bytes).to_string());
        let size = |one: &DeviceIdentity| Some(Size(one.size_bytes).to_string());
        let sequence = |one: &DeviceIdentity| one.diskseq.map(|number| number.to_string());
        compare("number", number(self), number(granted));
        compare("size", size(self), size(granted));
        compare("diskseq", sequence(self), sequence(granted));
        compare("WWID", self.wwid.clone(), granted.wwid.clone());
        compare("serial number", self.serial.clone(), granted.serial.clone());
        compare("start of the partition", start(self), start(granted));
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Whether `device` is the granted device that this identity is of. `shown` is the path that
    /// the user gave, for messages.
    ///
    /// # Errors
    ///
    /// What differs, as text; those of asking the kernel.
    pub fn verify(&self, device: &File, shown: &Path) -> io::Result<()> {
        DeviceIdentity::of(device)?.check(self, shown)
    }

    /// Refuses what is not the device that was granted. `path` is what the user called it.
    fn check(&self, granted: &DeviceIdentity, path: &Path) -> io::Result<()> {
        match self.difference(granted) {
            None => Ok(()),
            Some(difference) => Err(io::Error::other(format!(
                "the device behind {} is another one than the one that was granted: {difference}; \
                 nothing was written to it; look with lsblk, and start the study again",
                path.display()
            ))),
        }
    }
}

/// What sysfs has of a device number; of a partition, a directory within that of its disk.
pub(super) fn directory_of((major, minor): (u32, u32)) -> io::Result<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).map_err(|error| {
        io::Error::new(error.kind(), format!("the device {major}:{minor} is gone: {error}"))
    })
}

/// Bytes, in the largest unit that divides them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let divides = |shift: u32| self.0 != 0 && self.0.is_multiple_of(1 << shift);
        match units.iter().find(|(shift, _)| divides(*shift)) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_names_everything_that_differs_and_nothing_else() {
        let granted = DeviceIdentity {
            major: 8,
            minor: 16,
            diskseq: Some(9),
            size_bytes: 64 << 20,
            wwid: Some("naa.5".into()),
            serial: None,
            partition_start_bytes: None,
        };
        assert_eq!(granted.difference(&granted), None);
        granted.check(&granted, Path::new("/dev/sdb")).unwrap();
        let now = DeviceIdentity { diskseq: Some(12), size_bytes: 32 << 20, ..granted.clone() };
        let text = now.check(&granted, Path::new("/dev/sdb")).unwrap_err().to_string();
        let expected = "the device behind /dev/sdb is another one than the one that was granted: \
                        size 32 MiB, was 64 MiB; diskseq 12, was 9; ";
        assert!(text.starts_with(expected), "{text}");
        let now = DeviceIdentity {
            major: 9,
            wwid: None,
            serial: Some("77".into()),
            partition_start_bytes: Some(513),
            ..granted.clone()
        };
        let expected = "number 9:16, was 8:16; WWID none, was naa.5; serial number 77, was none; \
                        start of the partition 513 bytes, was none";
        assert_eq!(now.difference(&granted).unwrap(), expected);
    }

    #[test]
    fn it_survives_a_file_and_is_of_block_devices_only() {
        let file = tempfile::tempfile().unwrap();
        let error = DeviceIdentity::of(&file).unwrap_err().to_string();
        assert!(error.contains("not a block device"), "{error}");
        let null = File::open("/dev/null").unwrap();
        assert!(DeviceIdentity::of(&null).is_err());
    }
}
