//! The claim on a real block device: what must be known and granted before a byte of it is
//! overwritten.
//!
//! [`examine`] looks and changes nothing; [`claim`] refuses unless nothing uses the device, its
//! user named it twice (as a device and as what may be destroyed), and named what it carries. The
//! claim is built here and nowhere else, and whoever uses the device again claims it again.
//!
//! Invariant: a granted claim holds the device open exclusively (`O_EXCL`), so that mount(8),
//! swapon(8), LVM, md and every other careful program are refused while it lives. mkfs and mount
//! need the same, so it is dropped right before they are run.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub mod mounts;
mod signatures;
mod system;

pub use signatures::Signature;

/// Something that uses the device now, or that it is part of. Nothing of this kind can be waived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// The file is something else.
    NotABlockDevice,
    /// The kernel refuses writes.
    ReadOnly,
    /// It has no bytes: a drive without a medium.
    Empty,
    /// A part of it is mounted.
    Mounted {
        /// Kernel name of the device that is mounted.
        device: String,
        /// Where.
        point: PathBuf,
    },
    /// A part of it is swapped on.
    Swap {
        /// Kernel name of the device that is swapped on.
        device: String,
    },
    /// A device of the kernel is built on a part of it (LVM, md, a mapping, a loop device).
    Holder {
        /// Kernel name of the part.
        device: String,
        /// Kernel name of the holder.
        holder: String,
    },
    /// It is divided.
    Partition {
        /// Kernel name of the partition.
        name: String,
    },
    /// A mounted Btrfs of several devices has it.
    BtrfsMember {
        /// UUID of the file system.
        uuid: String,
    },
    /// A process has it open: a virtual machine, a database, another benchmark.
    OpenBy {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The kernel says that somebody holds it exclusively.
    Busy,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::NotABlockDevice => write!(f, "it is not a block device"),
            Use::ReadOnly => write!(f, "it is read-only"),
            Use::Empty => write!(f, "it has no bytes; is a medium in the drive?"),
            Use::Mounted { device, point } => {
                write!(f, "{device} is mounted on {}; umount it first", point.display())
            }
            Use::Swap { device } => write!(f, "{device} is used as swap; swapoff it first"),
            Use::Holder { device, holder } => {
                write!(f, "{holder} is built on {device} (see lsblk); take that apart first")
            }
            Use::Partition { name } => {
                write!(f, "it has the partition {name}; name that one, or wipe the table first")
            }
            Use::BtrfsMember { uuid } => {
                write!(f, "it is part of the mounted Btrfs {uuid}; umount that first")
            }
            Use::OpenBy { pid, name } => {
                write!(f, "process {pid} ({name}) has it open; end that first")
            }
            Use::Busy => write!(f, "the kernel says that somebody holds it exclusively"),
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
#[derive(Debug)]
pub enum ClaimError {
    /// Something stands against it. Nothing was touched.
    Refused {
        /// The device.
        path: PathBuf,
        /// Everything that was found, a line each.
        objections: Vec<String>,
        /// What to give to `--destroy` instead, when that would be enough.
        sufficient: Option<Permission>,
    },
    /// The device cannot be looked at or opened.
    System {
        /// The device.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Refused { path, objections, sufficient } => {
                write!(f, "{} will not be overwritten:", path.display())?;
                for objection in objections {
                    write!(f, "\n  - {objection}")?;
                }
                if let Some(permission) = sufficient {
                    write!(
                        f,
                        "\nIf everything on it may be lost, say so with: --device {} --destroy '{permission}'",
                        path.display()
                    )?;
                }
                Ok(())
            }
            ClaimError::System { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ClaimError {}

/// A granted claim. The device is held exclusively while it lives.
#[derive(Debug)]
pub struct Claim {
    file: File,
    findings: Findings,
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
}

/// Looks at a device and changes nothing.
///
/// # Errors
///
/// Those of looking: no such file, no permission, no wipefs(8).
pub fn examine(path: &Path) -> io::Result<Findings> {
    system::examine(path)
}

/// How long a device is waited for that only some process has open: udev looks at a device for a
/// moment whenever somebody has closed it.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(3);
const OPEN_INTERVAL: Duration = Duration::from_millis(50);

/// Claims a device for overwriting, under the permission that the user gave to `--destroy`.
///
/// # Errors
///
/// [`ClaimError::Refused`] names everything that was found.
pub fn claim(path: &Path, destroy: &str) -> Result<Claim, ClaimError> {
    let system = |error| ClaimError::System { path: path.to_path_buf(), error };
    let until = Instant::now() + OPEN_WAIT_MAX;
    let mut findings = examine(path).map_err(system)?;
    let only_open = |findings: &Findings| {
        !findings.uses.is_empty()
            && findings.uses.iter().all(|using| matches!(using, Use::OpenBy { .. } | Use::Busy))
    };
    while only_open(&findings) && Instant::now() < until {
        std::thread::sleep(OPEN_INTERVAL);
        findings = examine(path).map_err(system)?;
    }
    let permission = Permission::read(destroy, &findings);
    let objections = findings.objections(&permission);
    if !objections.is_empty() {
        return Err(refusal(findings, objections, &permission));
    }
    // Exclusive from here on; whoever came between the look and this makes it fail.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
        .open(path);
    let file = match file {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let objections = vec![Use::Busy.to_string()];
            return Err(refusal(findings, objections, &permission));
        }
        file => file.map_err(system)?,
    };
    // The name may lead elsewhere by now, and somebody may have written meanwhile.
    let stat = rustix::fs::fstat(&file).map_err(|error| system(error.into()))?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if number != findings.number {
        return Err(system(io::Error::other("it was replaced while it was looked at")));
    }
    let signatures = signatures::read(path).map_err(system)?;
    if signatures != findings.signatures {
        return Err(system(io::Error::other("it was written to while it was looked at")));
    }
    Ok(Claim { file, findings })
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

    fn signature(kind: &str, usage: &str) -> Signature {
        Signature {
            kind: kind.into(),
            usage: usage.into(),
            label: None,
            uuid: None,
            offset: "0x0".into(),
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
        found.signatures = vec![signature("ext4", "filesystem"), signature("xfs", "filesystem")];
        assert_eq!(objections(&found, "sdx").len(), 2);
        assert_eq!(objections(&found, "sdx:ext4").len(), 1);
        assert_eq!(objections(&found, "WD:77:ext4+xfs+btrfs"), Vec::<String>::new());
        found.signatures.push(signature("LVM2_member", "raid"));
        found.signatures.push(signature("gpt", "partition-table"));
        assert_eq!(objections(&found, "sdx:ext4+xfs+LVM2_member+gpt").len(), 2);
    }

    #[test]
    fn the_refusal_says_what_would_be_enough() {
        let mut found = findings();
        found.signatures = vec![signature("ext4", "filesystem")];
        let permission = Permission::read("sdx", &found);
        let lines = found.objections(&permission);
        let text = refusal(found.clone(), lines, &permission).to_string();
        assert!(text.contains("it carries ext4"), "{text}");
        assert!(text.contains("--device /dev/sdx --destroy 'sdx:ext4'"), "{text}");
        found.uses.push(Use::Swap { device: "sdx".into() });
        let lines = found.objections(&permission);
        let text = refusal(found, lines, &permission).to_string();
        assert!(text.contains("swapoff") && !text.contains("--destroy"), "{text}");
    }
}
