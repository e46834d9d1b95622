//! The devices that share bytes with one: what is built on it, what it is built on, other loop
//! devices over the same file, and other paths to the same disk.
//!
//! Must not know who uses them. Invariant: devices are told apart by the kernel's numbers and
//! files by file system and inode, never by a path: a node can be deleted, lie outside of `/dev`
//! or in another mount namespace.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Statx};

use super::Use;
use super::identity::directory_of;
use super::system::{Number, entries, numbers, read};
use crate::node::NodeDirectory;
use crate::sys;

/// How many devices one may be built on top of another. Sysfs has no cycles; a bound costs
/// nothing.
const DEPTH_MAX: usize = 16;

/// Where sysfs has the disks.
const SYS_BLOCK: &str = "/sys/block";

/// A device of the kernel.
#[derive(Clone)]
pub struct KernelDevice {
    /// The kernel's name.
    pub name: String,
    /// Its number.
    pub number: Number,
}

/// A file: its file system's number and its inode.
type Inode = (Number, u64);

/// What stands behind a loop device.
#[derive(PartialEq, Eq)]
enum Behind {
    Device(Number),
    File(Inode),
}

struct Loop {
    name: String,
    number: Number,
    /// The path that it was attached under, whatever became of that.
    image: String,
    behind: Behind,
    /// Which bytes of it: parts of one image that lie apart are no business of each other's.
    bytes: Range<u64>,
}

/// The device in question, first, and all that share bytes with it.
pub struct Relatives {
    /// The devices.
    pub nodes: Vec<KernelDevice>,
    /// The files behind those that are loop devices.
    images: BTreeSet<Inode>,
    /// What the relations alone say against it.
    pub uses: Vec<Use>,
    /// Other paths to the same disk.
    pub other_paths: Vec<OtherPath>,
    loops: Vec<Loop>,
}

/// A further device of the kernel for the same disk, as a storage network without multipath has.
pub struct OtherPath {
    /// The kernel's name of the disk.
    pub name: String,
    /// The world wide name of both.
    pub wwid: String,
    /// It, its partitions and what is built on them, as far as these share bytes with the device in
    /// question.
    pub nodes: Vec<KernelDevice>,
    /// Numbers of those that share bytes by themselves: nobody else may have them exclusively.
    pub same_bytes: Vec<Number>,
}

impl Relatives {
    /// Looks around the device of a directory of sysfs.
    pub fn of(directory: &Path) -> io::Result<Relatives> {
        let mut relatives = Relatives {
            nodes: Vec::new(),
            images: BTreeSet::new(),
            uses: Vec::new(),
            other_paths: Vec::new(),
            loops: loops()?,
        };
        relatives.add_with_above(directory, DEPTH_MAX);
        relatives.add_other_paths(directory);
        relatives.add_below(directory, DEPTH_MAX);
        Ok(relatives)
    }

    /// What an open file has to do with the device, in words; absent when nothing.
    pub fn name_of(&self, stat: &Statx) -> Option<&str> {
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::BlockDevice => {
                let number = (stat.stx_rdev_major, stat.stx_rdev_minor);
                let found = self.nodes.iter().position(|node| node.number == number)?;
                Some(if found == 0 { "it" } else { &self.nodes[found].name })
            }
            FileType::RegularFile => {
                let inode = ((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino);
                self.images.contains(&inode).then_some("the image behind it")
            }
            _ => None,
        }
    }

    /// Adds a device, once.
    fn add(&mut self, directory: &Path) -> Option<KernelDevice> {
        let number = number_of(directory)?;
        if self.knows(number) {
            return None;
        }
        let name = file_name(directory);
        self.nodes.push(KernelDevice { name: name.clone(), number });
        Some(KernelDevice { name, number })
    }

    /// Adds the other paths to the disk. Of a partition, the users of the whole disk and of the
    /// partitions that overlap with it count.
    fn add_other_paths(&mut self, directory: &Path) {
        let part = part_of(directory);
        let disk = part.as_ref().and_then(|_| directory.parent()).unwrap_or(directory);
        for (other, wwid) in other_paths(Path::new(SYS_BLOCK), disk) {
            let first = self.nodes.len();
            let mut same_bytes = Vec::new();
            match &part {
                None => {
                    self.add_with_above(&other, DEPTH_MAX);
                    same_bytes.extend(number_of(&other));
                }
                Some(part) => {
                    self.add_with_loops(&other, DEPTH_MAX);
                    for entry in entries(&other) {
                        let is_ours =
                            |one: Range<u64>| one.start < part.end && part.start < one.end;
                        if part_of(&entry.path()).is_some_and(is_ours) {
                            self.add_with_above(&entry.path(), DEPTH_MAX);
                            same_bytes.extend(number_of(&entry.path()));
                        }
                    }
                }
            }
            let nodes = self.nodes[first..].to_vec();
            let name = file_name(&other);
            self.other_paths.push(OtherPath { name, wwid, nodes, same_bytes });
        }
    }

    fn add_with_loops(&mut self, directory: &Path, depth: usize) {
        if let Some(node) = self.add(directory) {
            self.add_loops_on(&node, depth);
        }
    }

    fn knows(&self, number: Number) -> bool {
        self.nodes.iter().any(|node| node.number == number)
    }

    /// Adds a device, its partitions and everything that is built on these.
    fn add_with_above(&mut self, directory: &Path, depth: usize) {
        if depth == 0 {
            return;
        }
        let Some(node) = self.add(directory) else { return };
        for entry in entries(directory) {
            if entry.path().join("partition").exists() {
                self.uses.push(Use::Partition { name: file_name(&entry.path()) });
                self.add_with_above(&entry.path(), depth - 1);
            }
        }
        for entry in entries(&directory.join("holders")) {
            let holder = file_name(&entry.path());
            self.uses.push(Use::Holder { device: node.name.clone(), holder });
            if let Ok(holder) = fs::canonicalize(entry.path()) {
                self.add_with_above(&holder, depth - 1);
            }
        }
        self.add_loops_on(&node, depth);
    }

    /// Loop devices over a block device, which sysfs does not list as holders.
    fn add_loops_on(&mut self, node: &KernelDevice, depth: usize) {
        for (name, number) in self.loops_over(&Behind::Device(node.number), &(0..u64::MAX)) {
            self.uses.push(Use::Holder { device: node.name.clone(), holder: name });
            self.add_loop(number, depth);
        }
    }

    fn loops_over(&self, behind: &Behind, bytes: &Range<u64>) -> Vec<(String, Number)> {
        let overlap = |one: &Range<u64>| one.start < bytes.end && bytes.start < one.end;
        let over = self.loops.iter().filter(|one| one.behind == *behind && overlap(&one.bytes));
        over.filter(|one| !self.knows(one.number))
            .map(|one| (one.name.clone(), one.number))
            .collect()
    }

    fn add_loop(&mut self, number: Number, depth: usize) {
        // One that is gone by now has no users either.
        if let Ok(directory) = directory_of(number) {
            self.add_with_above(&directory, depth - 1);
        }
    }

    /// Adds what a device is built on. A partition or a volume is a part of what is below it:
    /// there only the users of the whole count. A loop device is the same bytes as what is behind
    /// it, so that all users of that count.
    fn add_below(&mut self, directory: &Path, depth: usize) {
        if depth == 0 {
            return;
        }
        let disk = directory.join("partition").exists().then(|| directory.parent()).flatten();
        let slaves = entries(&directory.join("slaves"));
        let slaves = slaves.filter_map(|entry| fs::canonicalize(entry.path()).ok());
        for below in disk.map(Path::to_path_buf).into_iter().chain(slaves) {
            self.add_with_loops(&below, depth);
            if part_of(&below).is_none() {
                for (other, _) in other_paths(Path::new(SYS_BLOCK), &below) {
                    self.add_with_loops(&other, depth);
                }
            }
            self.add_below(&below, depth - 1);
        }
        let name = file_name(directory);
        let Some(own) = self.loops.iter().find(|one| one.name == name) else { return };
        match own.behind {
            Behind::Device(number) => {
                if let Ok(behind) = directory_of(number) {
                    self.add_with_above(&behind, depth - 1);
                    self.add_below(&behind, depth - 1);
                }
            }
            Behind::File(inode) => {
                self.images.insert(inode);
                let bytes = own.bytes.clone();
                for (name, number) in self.loops_over(&Behind::File(inode), &bytes) {
                    self.uses.push(Use::SameImage { holder: name });
                    self.add_loop(number, depth);
                }
            }
        }
    }
}

/// The loop device, if any, that has bytes of what is at `path` too; with the image of `path`, where that
/// is a loop device itself and shares its image.
pub(crate) fn attached(path: &Path) -> io::Result<Option<(String, Option<String>)>> {
    let Some(found) = behind_path(path) else { return Ok(None) };
    let loops = loops()?;
    let own = loops.iter().find(|one| found == Behind::Device(one.number));
    let bytes = own.map_or(0..u64::MAX, |own| own.bytes.clone());
    let shares = |other: &&Loop| {
        let is_other = own.is_none_or(|own| own.number != other.number);
        let is_same = other.behind == found || own.is_some_and(|own| own.behind == other.behind);
        is_other && is_same && other.bytes.start < bytes.end && bytes.start < other.bytes.end
    };
    let other = loops.iter().find(shares).map(|other| {
        let image = own.filter(|_| other.behind != found).map(|own| own.image.clone());
        (other.name.clone(), image)
    });
    Ok(other)
}

/// Which bytes of its disk a partition is; absent of what is none.
fn part_of(directory: &Path) -> Option<Range<u64>> {
    if !directory.join("partition").exists() {
        return None;
    }
    let sectors = |name: &str| read(&directory.join(name))?.parse::<u64>().ok()?.checked_mul(512);
    let start = sectors("start").unwrap_or(0);
    // Where it ends is not known: then it is taken for all that follows.
    Some(start..sectors("size").map_or(u64::MAX, |bytes| start.saturating_add(bytes)))
}

/// What the kernel tells one disk in the world from another by: of SCSI from its page 83, of NVMe from
/// its namespace.
fn wwid_of(disk: &Path) -> Option<String> {
    read(&disk.join("wwid")).or_else(|| read(&disk.join("device/wwid")))
}

/// Further devices for the same disk, with its world wide name. `all` is the directory of all disks.
///
/// A name that a registered maker gave is enough. Another one (`t10.`, which is made of vendor, model
/// and serial number) may be the same for all cheap adapters of one kind, so that the size must be
/// the same as well.
fn other_paths(all: &Path, disk: &Path) -> Vec<(PathBuf, String)> {
    let Some(wwid) = wwid_of(disk) else { return Vec::new() };
    let is_registered = ["naa.", "eui.", "uuid."].iter().any(|kind| wwid.starts_with(kind));
    let size = |disk: &Path| read(&disk.join("size"));
    let others = entries(all).filter_map(|entry| fs::canonicalize(entry.path()).ok());
    others
        .filter(|other| other != disk && number_of(other).is_some())
        .filter(|other| wwid_of(other).as_ref() == Some(&wwid))
        .filter(|other| is_registered || size(other) == size(disk))
        .map(|other| (other, wwid.clone()))
        .collect()
}

fn number_of(directory: &Path) -> Option<Number> {
    let text = read(&directory.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// All loop devices that something is attached to.
fn loops() -> io::Result<Vec<Loop>> {
    let mut nodes = None;
    let mut loops = Vec::new();
    for entry in entries(Path::new(SYS_BLOCK)) {
        let directory = entry.path();
        let Some(path) = read(&directory.join("loop/backing_file")) else { continue };
        let Some(number) = number_of(&directory) else { continue };
        let name = file_name(&directory);
        let shown = match &mut nodes {
            Some(nodes) => shown(nodes, number),
            none => NodeDirectory::make().and_then(|made| shown(none.insert(made), number)),
        };
        let (behind, bytes) = match shown {
            Ok(shown) => shown,
            Err(error) => match error.raw_os_error() {
                // Detached meanwhile.
                Some(libc::ENXIO | libc::ENODEV) => continue,
                // Not root: then only what has a path can be seen.
                Some(libc::EPERM | libc::EACCES) => {
                    match behind_path(Path::new(&path)).zip(bytes_of(&directory)) {
                        Some(shown) => shown,
                        None => continue,
                    }
                }
                _ => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
            },
        };
        loops.push(Loop { name, number, image: path, behind, bytes });
    }
    Ok(loops)
}

/// Which bytes of what is behind it a loop device shows; none when it was detached meanwhile.
fn bytes_of(directory: &Path) -> Option<Range<u64>> {
    let figure = |name: &str| read(&directory.join("loop").join(name))?.trim().parse().ok();
    Some(range(figure("offset")?, figure("sizelimit")?))
}

fn range(start: u64, size_limit: u64) -> Range<u64> {
    start..if size_limit > 0 { start.saturating_add(size_limit) } else { u64::MAX }
}

/// What is behind a loop device and which bytes of it the device shows: asked at once, since others
/// attach and detach.
fn shown(nodes: &NodeDirectory, number: Number) -> io::Result<(Behind, Range<u64>)> {
    let device = nodes.open(number, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let backing = sys::loop_status(device.as_fd())?;
    let behind = match backing.device {
        0 => Behind::File((numbers(backing.file_system), backing.inode)),
        device => Behind::Device(numbers(device)),
    };
    Ok((behind, range(backing.offset, backing.size_limit)))
}

fn behind_path(path: &Path) -> Option<Behind> {
    let metadata = fs::metadata(path).ok()?;
    Some(if metadata.file_type().is_block_device() {
        Behind::Device(numbers(metadata.rdev()))
    } else {
        Behind::File((numbers(metadata.dev()), metadata.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in a directory that plays sysfs.
    fn disk(all: &Path, name: &str, number: &str, wwid: &str, sectors: u64) -> PathBuf {
        let directory = all.join(name);
        fs::create_dir_all(directory.join("device")).unwrap();
        // Disks that the kernel hides, as the paths of an NVMe of several, have no number.
        if !number.is_empty() {
            fs::write(directory.join("dev"), number).unwrap();
        }
        fs::write(directory.join("size"), sectors.to_string()).unwrap();
        let file = if name.starts_with("nvme") { "wwid" } else { "device/wwid" };
        fs::write(directory.join(file), format!("{wwid}\n")).unwrap();
        directory
    }

    #[test]
    fn other_paths_are_known_by_the_world_wide_name() {
        let all = tempfile::tempdir().unwrap();
        let all = &fs::canonicalize(all.path()).unwrap();
        let sda = disk(all, "sda", "8:0", "naa.600508b1", 100);
        let sdb = disk(all, "sdb", "8:16", "naa.600508b1", 100);
        // After the disk has grown, until this path is scanned again.
        let sdc = disk(all, "sdc", "8:32", "naa.600508b1", 90);
        let stick = disk(all, "sdd", "8:48", "t10.USB     STICK   0123456789", 50);
        let same = disk(all, "sde", "8:64", "t10.USB     STICK   0123456789", 50);
        disk(all, "sdf", "8:80", "t10.USB     STICK   0123456789", 51);
        let nvme = disk(all, "nvme0n1", "259:0", "eui.0025", 70);
        disk(all, "nvme0c0n1", "", "eui.0025", 70);
        let plain = all.join("vda");
        fs::create_dir(&plain).unwrap();
        fs::write(plain.join("dev"), "253:0").unwrap();
        let paths = |disk: &Path| {
            let mut found: Vec<PathBuf> =
                other_paths(all, disk).into_iter().map(|(path, _)| path).collect();
            found.sort();
            found
        };
        assert_eq!(paths(&sda), [&*sdb, &*sdc]);
        assert_eq!(paths(&sdc), [&*sda, &*sdb]);
        assert_eq!(paths(&stick), [same]);
        assert_eq!(paths(&nvme), [""; 0].map(PathBuf::from));
        assert_eq!(paths(&plain), [""; 0].map(PathBuf::from));
    }
}
