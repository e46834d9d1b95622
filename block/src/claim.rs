//! The claim on a real block device: what must be known and granted before a byte of it is
//! overwritten.
//!
//! [`examine`] looks and changes nothing; [`claim`] refuses unless nothing uses the device, its
//! user named it twice (as a device and as what may be destroyed), and named what it carries. The
//! claim is built here and nowhere else. [`Claim::into_pinned`] keeps the device for a study;
//! whoever uses it again calls [`Pinned::claim_again`]. A process of a trial, which has no
//! [`Pinned`], opens [`Pinned::descriptor_path`] and asks [`DeviceIdentity::verify`].
//!
//! Invariants: a granted claim holds the device open exclusively (`O_EXCL`), so that mount(8),
//! swapon(8), LVM, md and every other careful program are refused while it lives. mkfs and mount
//! need the same, so it is dropped right before they are run; what is pinned stays open, and
//! locked against every other kurabe. What is in use is decided by the kernel's numbers of what is
//! mounted, attached, open and mapped, in every namespace, never by paths.
//!
//! What cannot be seen:
//!
//! - Users inside the kernel that take a device without `O_EXCL`: an NVMe or SCSI target, a DRBD,
//!   a descriptor that was closed after it was registered with io_uring or while it is on its way
//!   through a socket. So is whatever another machine does with a shared disk.
//! - Data without a signature: a database, a virtual machine or an old RAID set right on the disk
//!   that is not running now. The name that the user typed is all that protects it.
//! - The other members of a group that has no superblock on this one (a further device of an F2FS,
//!   an ext4 journal's owner).
//! - Another path to the same disk, where the disk tells no world wide name.
//! - A loop device's image under another inode: a layer below an overlay, another mount of a share.
//! - Without root: other users' processes, and loop devices whose path leads nowhere.
//! - Processes outside of the PID namespace that `/proc` shows. A trial has one of its own, so the
//!   runner claims for it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use trust::LockError;

mod identity;
mod openers;
mod pinned;
mod relatives;
mod signatures;
mod system;

pub use identity::DeviceIdentity;
pub use pinned::Pinned;
pub(crate) use relatives::attached;
pub use signatures::Signature;

/// Something that uses the device now, or that it is part of. Nothing of this kind can be waived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Use {
    /// The file is something else.
    #[error("it is not a block device")]
    NotABlockDevice,
    /// The kernel refuses writes.
    #[error("it is read-only")]
    ReadOnly,
    /// It has no bytes: a drive without a medium.
    #[error("it has no bytes; is a medium in the drive?")]
    Empty,
    /// A part of it is mounted.
    #[error("{device} is mounted on {}; umount it first", .point.display())]
    Mounted {
        /// Kernel name of the device that is mounted.
        device: String,
        /// Where.
        point: PathBuf,
    },
    /// A part of it is swapped on.
    #[error("{device} is used as swap; swapoff it first")]
    Swap {
        /// Kernel name of the device that is swapped on.
        device: String,
    },
    /// A device of the kernel is built on a part of it (LVM, md, a mapping, a loop device).
    #[error("{holder} is built on {device} (see lsblk); take that apart first")]
    Holder {
        /// Kernel name of the part.
        device: String,
        /// Kernel name of the holder.
        holder: String,
    },
    /// It is divided.
    #[error("it has the partition {name}; name that one, or wipe the table first")]
    Partition {
        /// Kernel name of the partition.
        name: String,
    },
    /// A mounted Btrfs of several devices has it.
    #[error("it is part of the mounted Btrfs {uuid}; umount that first")]
    BtrfsMember {
        /// UUID of the file system.
        uuid: String,
    },
    /// The image behind it is attached to another loop device too.
    #[error("{holder} is attached to the same image; losetup --detach it first")]
    SameImage {
        /// Kernel name of the other one.
        holder: String,
    },
    /// It is reached by another device of the kernel too, which is in use.
    #[error(
        "{other} is another path to the same disk (WWID {wwid}) and is in use; end that use first"
    )]
    OtherPath {
        /// Kernel name of the other device.
        other: String,
        /// The world wide name of both.
        wwid: String,
    },
    /// A process has it open or mapped: a virtual machine, a database, another benchmark.
    #[error("process {pid} ({name}) has {device} open; end that first")]
    OpenBy {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// What it has open: `it`, the kernel name of a part or of the disk below, or the image.
        device: String,
    },
    /// Another kurabe has claimed it.
    #[error("another kurabe (pid {pid}) is using it; wait for its end")]
    OtherKurabe {
        /// The process; 0 when it did not say.
        pid: u32,
    },
    /// The kernel says that somebody holds it exclusively.
    #[error("the kernel says that somebody holds it exclusively")]
    Busy,
}

impl Use {
    /// Kernel name of the device that is used, where it may be another than the one in question.
    fn device(&self) -> Option<&str> {
        match self {
            Use::Mounted { device, .. }
            | Use::Swap { device }
            | Use::Holder { device, .. }
            | Use::Partition { name: device }
            | Use::OpenBy { device, .. } => Some(device),
            _ => None,
        }
    }
}

/// What is known of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The path that was given.
    pub path: PathBuf,
    /// Major and minor number.
    pub number: (u32, u32),
    /// The kernel's name, such as `sdb` or `nvme0n1`.
    pub kernel_name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Serial number of a whole disk.
    pub serial: Option<String>,
    /// Its names under `/dev/disk/by-id`.
    pub identities: Vec<String>,
    /// What uses it.
    pub uses: Vec<Use>,
    /// What it carries.
    pub signatures: Vec<Signature>,
}

/// What the user allowed to be destroyed: `NAME`, or `NAME:SIGNATURE+SIGNATURE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Kernel name, serial number, or a name under `/dev/disk/by-id`.
    pub name: String,
    /// Kinds of signatures that may be lost.
    pub signatures: Vec<String>,
}

impl Permission {
    /// Reads `text` as a permission for the device that `findings` describe. A name that contains
    /// a colon is taken whole when it is the device's.
    pub fn read(text: &str, findings: &Findings) -> Permission {
        let whole = Permission { name: text.to_string(), signatures: Vec::new() };
        if findings.is_called(text) {
            return whole;
        }
        match text.rsplit_once(':') {
            Some((name, signatures)) => Permission {
                name: name.to_string(),
                signatures: signatures
                    .split('+')
                    .filter(|kind| !kind.is_empty())
                    .map(ToString::to_string)
                    .collect(),
            },
            None => whole,
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.signatures.is_empty() {
            write!(f, ":{}", self.signatures.join("+"))?;
        }
        Ok(())
    }
}

impl Findings {
    /// Whether `name` is the kernel's name, the serial number or an identity of this device.
    pub fn is_called(&self, name: &str) -> bool {
        let short = name.strip_prefix("/dev/disk/by-id/").unwrap_or(name);
        let short = short.strip_prefix("/dev/").unwrap_or(short);
        short == self.kernel_name
            || self.serial.as_deref() == Some(name)
            || self.identities.iter().any(|identity| identity == short)
    }

    /// Everything that stands against overwriting the device under `permission`, a line each;
    /// empty when nothing does.
    pub fn objections(&self, permission: &Permission) -> Vec<String> {
        let mut objections: Vec<String> = self.uses.iter().map(ToString::to_string).collect();
        for signature in &self.signatures {
            if signature.marks_a_group() {
                objections.push(format!(
                    "it carries {signature}; take it out of that first, or wipefs --all {}",
                    self.path.display()
                ));
            } else if !permission.signatures.contains(&signature.kind) {
                objections.push(format!("it carries {signature}"));
            }
        }
        if !self.is_called(&permission.name) {
            objections.push(format!("it is not called '{}' but {}", permission.name, self.names()));
        }
        objections
    }

    fn names(&self) -> String {
        let mut names = vec![format!("'{}'", self.kernel_name)];
        names.extend(self.serial.iter().map(|serial| format!("'{serial}' (serial number)")));
        names.extend(self.identities.iter().map(|identity| format!("'{identity}'")));
        names.join(" or ")
    }

    /// The permission that would remove every objection that a permission can remove, if the
    /// device is otherwise free.
    fn sufficient_permission(&self, given: &Permission) -> Option<Permission> {
        let groups = self.signatures.iter().any(Signature::marks_a_group);
        if !self.uses.is_empty() || groups {
            return None;
        }
        let name = if self.is_called(&given.name) { &given.name } else { &self.kernel_name };
        let mut signatures: Vec<String> =
            self.signatures.iter().map(|signature| signature.kind.clone()).collect();
        signatures.sort();
        signatures.dedup();
        Some(Permission { name: name.clone(), signatures })
    }
}

/// Why a claim was not granted.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Something stands against it. Nothing was touched.
    #[error("{}", refusal_text(path, objections, sufficient.as_ref()))]
    Refused {
        /// The device.
        path: PathBuf,
        /// Everything that was found, a line each.
        objections: Vec<String>,
        /// What to give to `--destroy` instead, when that would be enough.
        sufficient: Option<Permission>,
    },
    /// The device cannot be looked at or opened.
    #[error("{}: {error}", .path.display())]
    System {
        /// The device.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

fn refusal_text(path: &Path, objections: &[String], sufficient: Option<&Permission>) -> String {
    let mut text = format!("{} will not be overwritten:", path.display());
    for objection in objections {
        text += &format!("\n  - {objection}");
    }
    if let Some(permission) = sufficient {
        text += &format!(
            "\nIf everything on it may be lost, say so with: --device {} --destroy '{permission}'\n\
             Data without a signature, and users inside the kernel (an NVMe or SCSI target, DRBD), cannot be seen.",
            path.display()
        );
    }
    text
}

/// A granted claim. The device is held exclusively, and locked, while it lives.
#[derive(Debug)]
pub struct Claim {
    file: File,
    findings: Findings,
    pinned: Pinned,
}

impl Claim {
    /// The device, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What was known of it when the claim was granted.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Lets go of the exclusive hold, so that mkfs and mount can have it, and keeps the device
    /// open and locked.
    pub fn into_pinned(self) -> Pinned {
        self.pinned
    }
}

/// Looks at a device and changes nothing. What it cannot see, the module's documentation says.
///
/// # Errors
///
/// Those of looking: no such file, no permission, no wipefs(8), a block that cannot be read.
pub fn examine(path: &Path) -> io::Result<Findings> {
    examine_open(path).map(|(_, findings)| findings)
}

/// The same, with the device that was looked at; absent when it is none.
pub(crate) fn examine_open(path: &Path) -> io::Result<(Option<File>, Findings)> {
    match pinned::open(path, OFlags::RDONLY)? {
        Some(device) => {
            let findings = system::examine(&device, path)?;
            Ok((Some(device), findings))
        }
        None => Ok((None, no_block_device(path))),
    }
}

fn no_block_device(path: &Path) -> Findings {
    Findings { uses: vec![Use::NotABlockDevice], ..system::nothing_known(path) }
}

/// How long a device is waited for that only some process has open: udev looks at a device for a
/// moment whenever somebody has closed it. A loop device that is being detached goes with whoever
/// looks at it last.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(3);
const OPEN_INTERVAL: Duration = Duration::from_millis(50);

/// Looks at a device until nobody but looks at it as well.
fn examine_settled(device: &File, path: &Path) -> io::Result<Findings> {
    let until = Instant::now() + OPEN_WAIT_MAX;
    let is_passing = |using: &Use| match using {
        // What uses another path decides there too.
        Use::OpenBy { .. } | Use::Busy | Use::OtherPath { .. } => true,
        Use::Holder { holder, .. } | Use::SameImage { holder } => system::is_going(holder),
        _ => false,
    };
    loop {
        let findings = system::examine(device, path)?;
        let is_settled = findings.uses.is_empty() || !findings.uses.iter().all(is_passing);
        if is_settled || Instant::now() >= until {
            return Ok(findings);
        }
        std::thread::sleep(OPEN_INTERVAL);
    }
}

/// Claims a device for overwriting, under the permission that the user gave to `--destroy`.
///
/// # Errors
///
/// [`ClaimError::Refused`] names everything that was found.
pub fn claim(path: &Path, destroy: &str) -> Result<Claim, ClaimError> {
    let system = |error| ClaimError::System { path: path.to_path_buf(), error };
    let device = pinned::open(path, OFlags::RDONLY).map_err(system)?;
    let Some(device) = device else {
        let findings = no_block_device(path);
        let permission = Permission::read(destroy, &findings);
        let objections = findings.objections(&permission);
        return Err(refusal(findings, objections, &permission));
    };
    let again = device.try_clone().map_err(system)?;
    let (pinned, findings) = match Pinned::take(again, path) {
        Ok(pinned) => (Some(pinned), examine_settled(&device, path).map_err(system)?),
        Err(LockError::Held { pid }) => {
            let mut findings = system::examine(&device, path).map_err(system)?;
            findings.uses.push(Use::OtherKurabe { pid });
            (None, findings)
        }
        Err(LockError::Refused(refused)) => return Err(system(refused.into())),
    };
    let permission = Permission::read(destroy, &findings);
    let objections = findings.objections(&permission);
    let pinned = match pinned {
        Some(pinned) if objections.is_empty() => pinned,
        _ => return Err(refusal(findings, objections, &permission)),
    };
    let file = take_exclusively(&pinned, &findings)?;
    Ok(Claim { file, findings, pinned })
}

/// What the device that `device` has open carries now. Writes nothing.
///
/// # Errors
///
/// No wipefs(8); a block that cannot be read.
pub fn signatures_of(device: &File) -> io::Result<Vec<Signature>> {
    signatures::read(device)
}

impl Pinned {
    /// What the device carries now.
    ///
    /// # Errors
    ///
    /// Those of [`signatures_of`].
    pub fn signatures(&self) -> io::Result<Vec<Signature>> {
        signatures_of(self.device())
    }

    /// Claims the device again before a trial: it is the one that was granted, nothing but this
    /// process uses it, and it carries nothing but what is in `left`.
    ///
    /// The file holds the device exclusively. It is to be dropped before mkfs.
    ///
    /// # Errors
    ///
    /// [`ClaimError::System`] says that the device is another one, and what differs;
    /// [`ClaimError::Refused`] what uses it, or what somebody else made on it.
    pub fn claim_again(&self, left: &[Signature]) -> Result<File, ClaimError> {
        let path = self.path();
        let system = |error| ClaimError::System { path: path.to_path_buf(), error };
        self.check().map_err(system)?;
        let findings = examine_settled(self.device(), path).map_err(system)?;
        let foreign = findings.signatures.iter().filter(|signature| !left.contains(signature));
        let objections: Vec<String> = findings
            .uses
            .iter()
            .map(ToString::to_string)
            .chain(foreign.map(|it| format!("it carries {it}, which the last run did not make")))
            .collect();
        if !objections.is_empty() {
            // The user has granted all that can be granted.
            return Err(ClaimError::Refused { path: path.into(), objections, sufficient: None });
        }
        take_exclusively(self, &findings)
    }
}

/// Exclusive from here on; whoever came between the look and this makes it fail.
fn take_exclusively(pinned: &Pinned, findings: &Findings) -> Result<File, ClaimError> {
    let path = pinned.path();
    let system = |error| ClaimError::System { path: path.to_path_buf(), error };
    let file = match pinned.open(true) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let objections = vec![Use::Busy.to_string()];
            return Err(ClaimError::Refused { path: path.into(), objections, sufficient: None });
        }
        file => file.map_err(system)?,
    };
    // Somebody may have written meanwhile.
    let signatures = signatures::read(&file).map_err(system)?;
    if signatures != findings.signatures {
        return Err(system(io::Error::other("it was written to while it was looked at")));
    }
    Ok(file)
}

fn refusal(findings: Findings, objections: Vec<String>, permission: &Permission) -> ClaimError {
    let sufficient = findings.sufficient_permission(permission);
    ClaimError::Refused { path: findings.path, objections, sufficient }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        Findings {
            path: "/dev/sdx".into(),
            number: (8, 1),
            kernel_name: "sdx".into(),
            size_bytes: 1 << 30,
            serial: Some("WD:77".into()),
            identities: vec!["ata-DISK_WD:77".into()],
            uses: Vec::new(),
            signatures: Vec::new(),
        }
    }

    fn signature(kind: &str) -> Signature {
        Signature {
            kind: kind.into(),
            label: None,
            uuid: None,
            offset: "0x0".into(),
            devices: None,
        }
    }

    fn objections(findings: &Findings, destroy: &str) -> Vec<String> {
        findings.objections(&Permission::read(destroy, findings))
    }

    #[test]
    fn a_free_device_is_granted_under_any_of_its_names() {
        for name in ["sdx", "/dev/sdx", "WD:77", "ata-DISK_WD:77", "/dev/disk/by-id/ata-DISK_WD:77"]
        {
            assert_eq!(objections(&findings(), name), Vec::<String>::new(), "{name}");
        }
        for name in ["sdy", "", "WD", "sd", "sdx1", "77", ":ext4"] {
            let objections = objections(&findings(), name);
            assert_eq!(objections.len(), 1, "{name}");
            assert!(objections[0].contains("'WD:77' (serial number)"), "{objections:?}");
        }
    }

    #[test]
    fn a_signature_must_be_named_and_a_group_cannot_be() {
        let mut found = findings();
        found.signatures = vec![signature("ext4"), signature("xfs")];
        assert_eq!(objections(&found, "sdx").len(), 2);
        assert_eq!(objections(&found, "sdx:ext4").len(), 1);
        assert_eq!(objections(&found, "WD:77:ext4+xfs+btrfs"), Vec::<String>::new());
        found.signatures.push(signature("LVM2_member"));
        found.signatures.push(signature("gpt"));
        assert_eq!(objections(&found, "sdx:ext4+xfs+LVM2_member+gpt").len(), 2);
    }

    #[test]
    fn the_refusal_says_what_would_be_enough() {
        let mut found = findings();
        found.signatures = vec![signature("ext4")];
        let permission = Permission::read("sdx", &found);
        let lines = found.objections(&permission);
        let text = refusal(found.clone(), lines, &permission).to_string();
        assert!(text.contains("it carries ext4"), "{text}");
        assert!(text.contains("--device /dev/sdx --destroy 'sdx:ext4'\nData without"), "{text}");
        found.uses.push(Use::Swap { device: "sdx".into() });
        let lines = found.objections(&permission);
        let text = refusal(found, lines, &permission).to_string();
        assert!(text.contains("swapoff") && !text.contains("--destroy"), "{text}");
    }
}
