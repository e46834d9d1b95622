//! What the kernel knows of a device: sysfs, who uses it, and what it carries.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::identity::directory_of;
use super::relatives::{KernelDevice, OtherPath, Relatives};
use super::{Findings, Use, openers, signatures};
use crate::node::reopen;

/// Major and minor number of a device.
pub type Number = (u32, u32);

/// What is known of a path before it is known to be a block device.
pub fn nothing_known(path: &Path) -> Findings {
    Findings {
        path: path.to_path_buf(),
        number: (0, 0),
        kernel_name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        size_bytes: 0,
        serial: None,
        identities: Vec::new(),
        uses: Vec::new(),
        signatures: Vec::new(),
    }
}

/// Looks at what `device` has open. `path` is where it was found, for messages.
pub fn examine(device: &File, path: &Path) -> io::Result<Findings> {
    let mut findings = nothing_known(path);
    findings.number = numbers(device.metadata()?.rdev());
    let directory = directory_of(findings.number)?;
    findings.kernel_name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sectors = read(&directory.join("size")).and_then(|text| text.parse::<u64>().ok());
    // Sysfs counts in units of 512 bytes whatever the device's block is.
    findings.size_bytes = sectors.unwrap_or(0).saturating_mul(512);
    findings.serial = serial(&directory);
    findings.identities = identities(findings.number);
    if findings.size_bytes == 0 {
        findings.uses.push(Use::Empty);
        return Ok(findings);
    }
    if read(&directory.join("ro")).as_deref() != Some("0") {
        findings.uses.push(Use::ReadOnly);
    }
    let mut relatives = Relatives::of(&directory)?;
    findings.uses.append(&mut relatives.uses);
    findings.uses.extend(openers::mounted(&relatives));
    findings.uses.extend(swapped_on(&relatives.nodes));
    findings.uses.extend(in_btrfs(&relatives.nodes));
    let mut openers = openers::openers(&relatives);
    if findings.uses.is_empty() && openers.is_empty() && is_held(device)? {
        openers.push(Use::Busy);
    }
    findings.uses.append(&mut openers);
    let in_use = relatives.other_paths.iter().filter(|other| is_used(other, &findings.uses));
    let in_use: Vec<Use> = in_use
        .map(|other| Use::OtherPath { other: other.name.clone(), wwid: other.wwid.clone() })
        .collect();
    findings.uses.splice(0..0, in_use);
    match signatures::read(device) {
        Ok(signatures) => findings.signatures = signatures,
        // A device that is in use may not even be opened; its uses say all that is needed.
        Err(_) if !findings.uses.is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(findings)
}

pub fn numbers(device: u64) -> Number {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

pub fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() { None } else { Some(text.to_string()) }
}

/// Entries of a directory that may not exist.
pub fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten()
}

/// The serial number of a whole disk; a partition shares its disk's, which would be too little to
/// name it.
fn serial(directory: &Path) -> Option<String> {
    if directory.join("partition").exists() {
        return None;
    }
    ["serial", "device/serial", "device/wwid", "wwid"]
        .iter()
        .find_map(|name| read(&directory.join(name)))
}

fn identities(number: Number) -> Vec<String> {
    let mut identities: Vec<String> = entries(Path::new("/dev/disk/by-id"))
        .filter(|entry| {
            fs::metadata(entry.path()).is_ok_and(|target| numbers(target.rdev()) == number)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    identities.sort();
    identities
}

/// The table of swaps has paths only. One that leads nowhere by now is still seen by
/// [`is_held`], since the kernel takes swap exclusively.
fn swapped_on(nodes: &[KernelDevice]) -> Vec<Use> {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut uses = Vec::new();
    for line in table.lines().skip(1) {
        let Some(path) = line.split_whitespace().next() else { continue };
        let Ok(metadata) = fs::metadata(path) else { continue };
        if !metadata.file_type().is_block_device() {
            continue;
        }
        let number = numbers(metadata.rdev());
        if let Some(node) = nodes.iter().find(|node| node.number == number) {
            uses.push(Use::Swap { device: node.name.clone() });
        }
    }
    uses
}

/// A mounted Btrfs shows a made-up device number in the table of mounts, and its devices here.
fn in_btrfs(nodes: &[KernelDevice]) -> Vec<Use> {
    let mut uses = Vec::new();
    for file_system in entries(Path::new("/sys/fs/btrfs")) {
        let devices = file_system.path().join("devices");
        if nodes.iter().any(|node| devices.join(&node.name).exists()) {
            let uuid = file_system.file_name().to_string_lossy().into_owned();
            uses.push(Use::BtrfsMember { uuid });
        }
    }
    uses
}

/// Whether a device is a loop device that detaches itself when its last user is gone, or has done
/// so by now.
pub fn is_going(name: &str) -> bool {
    let directory = Path::new("/sys/block").join(name);
    let state = read(&directory.join("loop/autoclear"));
    name.starts_with("loop") && state.is_none_or(|state| state == "1")
}

/// Whether another path to the disk is in use: what is known says so, or somebody holds it
/// exclusively.
fn is_used(other: &OtherPath, uses: &[Use]) -> bool {
    let is_named = |using: &Use| {
        using.device().is_some_and(|device| other.nodes.iter().any(|node| node.name == device))
    };
    let is_held = |number: &Number| {
        let how = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK;
        let opened = crate::node::open(*number, how);
        opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    };
    uses.iter().any(is_named) || other.same_bytes.iter().any(is_held)
}

/// Whether somebody holds the device exclusively: the kernel itself says so.
fn is_held(device: &File) -> io::Result<bool> {
    match reopen(device, OFlags::RDONLY | OFlags::EXCL) {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(true),
        Err(error) => Err(error),
    }
}
