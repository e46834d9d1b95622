//! What the kernel knows of a device: sysfs, the tables of mounts and swaps, and who has it open.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Findings, Use, mounts, signatures};

/// How many devices one may be built on top of another. Sysfs has no cycles; a bound costs
/// nothing.
const DEPTH_MAX: usize = 8;

/// A device of the kernel: the one in question, a partition of it, or what is built on these.
struct Node {
    name: String,
    number: (u32, u32),
}

pub fn examine(path: &Path) -> io::Result<Findings> {
    let metadata = fs::metadata(path)?;
    let mut findings = Findings {
        path: path.to_path_buf(),
        number: numbers(metadata.rdev()),
        kernel_name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        size_bytes: 0,
        serial: None,
        identities: Vec::new(),
        uses: Vec::new(),
        signatures: Vec::new(),
    };
    if !metadata.file_type().is_block_device() {
        findings.number = (0, 0);
        findings.uses.push(Use::NotABlockDevice);
        return Ok(findings);
    }
    let (major, minor) = findings.number;
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
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
    let mut nodes = Vec::new();
    collect(&directory, &mut nodes, &mut findings.uses, DEPTH_MAX);
    let numbers: BTreeSet<(u32, u32)> = nodes.iter().map(|node| node.number).collect();
    findings.uses.extend(loop_devices_on(&numbers, &nodes));
    findings.uses.extend(mounted(&nodes));
    findings.uses.extend(swapped_on(&nodes));
    findings.uses.extend(in_btrfs(&nodes));
    let mut openers = opened_by(&numbers);
    if findings.uses.is_empty() && openers.is_empty() && is_held(path)? {
        openers.push(Use::Busy);
    }
    findings.uses.append(&mut openers);
    match signatures::read(path) {
        Ok(signatures) => findings.signatures = signatures,
        // A device that is in use may not even be opened; its uses say all that is needed.
        Err(_) if !findings.uses.is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(findings)
}

fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() { None } else { Some(text.to_string()) }
}

/// Entries of a directory that may not exist.
fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> {
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

fn identities(number: (u32, u32)) -> Vec<String> {
    let mut identities: Vec<String> = entries(Path::new("/dev/disk/by-id"))
        .filter(|entry| {
            fs::metadata(entry.path()).is_ok_and(|target| numbers(target.rdev()) == number)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    identities.sort();
    identities
}

/// Collects the device, its partitions and everything that is built on these.
fn collect(directory: &Path, nodes: &mut Vec<Node>, uses: &mut Vec<Use>, depth: usize) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = read(&directory.join("dev")).and_then(|text| {
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let Some(number) = number else { return };
    if depth == 0 || nodes.iter().any(|node| node.number == number) {
        return;
    }
    nodes.push(Node { name: name.clone(), number });
    for entry in entries(directory) {
        if entry.path().join("partition").exists() {
            uses.push(Use::Partition { name: entry.file_name().to_string_lossy().into_owned() });
            collect(&entry.path(), nodes, uses, depth - 1);
        }
    }
    for entry in entries(&directory.join("holders")) {
        let holder = entry.file_name().to_string_lossy().into_owned();
        uses.push(Use::Holder { device: name.clone(), holder });
        if let Ok(holder) = fs::canonicalize(entry.path()) {
            collect(&holder, nodes, uses, depth - 1);
        }
    }
}

/// Loop devices that were attached to a block device, which sysfs does not list as holders.
fn loop_devices_on(numbers_of_nodes: &BTreeSet<(u32, u32)>, nodes: &[Node]) -> Vec<Use> {
    let mut uses = Vec::new();
    for entry in entries(Path::new("/sys/block")) {
        let Some(backing) = read(&entry.path().join("loop/backing_file")) else { continue };
        let Ok(metadata) = fs::metadata(&backing) else { continue };
        let number = numbers(metadata.rdev());
        if metadata.file_type().is_block_device() && numbers_of_nodes.contains(&number) {
            let device = nodes.iter().find(|node| node.number == number);
            uses.push(Use::Holder {
                device: device.map(|node| node.name.clone()).unwrap_or_default(),
                holder: entry.file_name().to_string_lossy().into_owned(),
            });
        }
    }
    uses
}

/// Mounts of any of the nodes in any mount namespace that this process may look into.
fn mounted(nodes: &[Node]) -> Vec<Use> {
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    let own = PathBuf::from("/proc/thread-self");
    for process in std::iter::once(own).chain(processes()) {
        let namespace = fs::read_link(process.join("ns/mnt")).unwrap_or_default();
        if !seen.insert(namespace) {
            continue;
        }
        for mount in mounts::mounts_in(&process.join("mountinfo")).unwrap_or_default() {
            if let Some(node) = nodes.iter().find(|node| node.number == mount.device) {
                found.insert((node.name.clone(), mount.point));
            }
        }
    }
    found.into_iter().map(|(device, point)| Use::Mounted { device, point }).collect()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    entries(Path::new("/proc"))
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path())
}

fn swapped_on(nodes: &[Node]) -> Vec<Use> {
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
fn in_btrfs(nodes: &[Node]) -> Vec<Use> {
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

/// Processes other than this one that have any of the nodes open. A virtual machine opens its
/// disks without taking them exclusively.
fn opened_by(numbers_of_nodes: &BTreeSet<(u32, u32)>) -> Vec<Use> {
    let own = std::process::id();
    let is_one = |path: PathBuf| {
        // The link is read first: following one to a device that is gone can wait for long.
        fs::read_link(&path).is_ok_and(|target| target.starts_with("/dev"))
            && fs::metadata(&path).is_ok_and(|metadata| {
                metadata.file_type().is_block_device()
                    && numbers_of_nodes.contains(&numbers(metadata.rdev()))
            })
    };
    let mut uses = Vec::new();
    for process in processes() {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        let Some(pid) = pid.filter(|pid: &u32| *pid != own) else { continue };
        if entries(&process.join("fd")).any(|entry| is_one(entry.path())) {
            let name = read(&process.join("comm")).unwrap_or_default();
            uses.push(Use::OpenBy { pid, name });
        }
    }
    uses
}

/// Whether somebody holds the device exclusively: the kernel itself says so.
fn is_held(path: &Path) -> io::Result<bool> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path);
    match opened {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(true),
        Err(error) => Err(error),
    }
}
