//! A real block device: claimed and filled once for a study, claimed again for every trial.
//!
//! mkfs and mount take the device exclusively themselves, so it cannot stay claimed while they
//! run. It stays open and locked in the runner instead: so no other disk can come under its number,
//! no other kurabe can take it, and the claim before each trial sees whatever else came in between.
//!
//! The path that the user typed is resolved once, by the claim. A trial opens the runner's
//! descriptor, and gives its programs a node that was made for that device.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::claim::{Claim, ClaimError, DeviceIdentity, Pinned, Signature, claim, signatures_of};
use lab::event::DiskMark;
use lab::spec::Device;
use rustix::fs::{FileType, OFlags};
use serde::{Deserialize, Serialize};

use super::{
    AttachedFacts, Base, BlockDeviceFacts, Claimed, DeviceError, DeviceFacts, DeviceKind,
    DeviceNode, Left, Making, PreparedDevice, Request, fill,
};
use crate::ledger::random_bits;

/// A real block device.
pub(super) static DISK: DeviceKind = DeviceKind {
    name: "disk",
    notation: "the path of a block device",
    request: |base, destroy| {
        let Base::Existing(path) = base else { return Err(DISK.notation.into()) };
        match destroy.map(str::trim).filter(|destroy| !destroy.is_empty()) {
            Some(destroy) => {
                Ok(Box::new(DiskRequest { path: path.clone(), destroy: destroy.into() }))
            }
            None => Err(format!(
                "everything on a real device is destroyed; confirm with --destroy NAME, its kernel name ({}) or its serial number",
                path.file_name().unwrap_or_default().display()
            )),
        }
    },
    ground: |prepared, site| {
        let Granted { path, shown, identity } = super::read(prepared)?;
        let text = shown.display().to_string();
        let taking = || DeviceError::system(format!("taking {text}"));
        let is_guests = identity.is_none();
        let opened = match identity {
            Some(identity) => {
                let how = OFlags::RDONLY | OFlags::NONBLOCK;
                site.host.open_descriptor(&path, how).map(|device| (device, identity))
            }
            None => fresh(&path),
        };
        let (device, identity) = opened.map_err(taking())?;
        // It is let go again for mkfs, which takes it itself.
        take(&device, &identity, &shown).map_err(taking())?;
        let node = DeviceNode::of(&device, &shown, site.scratch).map_err(taking())?;
        Ok(Box::new(DiskGround { device, identity, node, is_guests, made: Made::Nothing }))
    },
};

struct DiskRequest {
    path: PathBuf,
    /// What the user gave to `--destroy`.
    destroy: String,
}

impl Request for DiskRequest {
    fn number(&self) -> Option<u64> {
        let found = rustix::fs::stat(&self.path).ok()?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
        is_device.then_some(found.st_rdev)
    }

    fn size_bytes(&self) -> Option<u64> {
        // For a first look only: what is overwritten is decided by the claim.
        let number = self.number()?;
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let size = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size"));
        // In sectors of 512 bytes, whatever the device's own are.
        size.ok()?.trim().parse::<u64>().ok()?.checked_mul(512)
    }

    fn examine(&self) -> Result<Option<Claim>, DeviceError> {
        Ok(Some(claim(&self.path, &self.destroy)?))
    }

    fn prepare(&self, making: &mut Making<'_>) -> Result<Box<dyn PreparedDevice>, DeviceError> {
        let path = &self.path;
        let granted = claim(path, &self.destroy)?;
        let size_bytes = granted.findings().size_bytes;
        let system = |what: &str| DeviceError::system(format!("{what} {}", path.display()));
        bypass_page_cache(granted.file()).map_err(system("opening for direct I/O"))?;
        let started = Instant::now();
        fill::fill(
            granted.file(),
            size_bytes,
            random_bits(),
            fill::FillOrder::Ascending,
            making.stop,
            making.report,
        )
        .map_err(system("filling"))?;
        let pinned = granted.into_pinned();
        let identity = pinned.identity().clone();
        let facts = DeviceFacts {
            request: making.request.clone(),
            size_bytes,
            backing: None,
            block_device: BlockDeviceFacts::of_number(identity.major, identity.minor),
            devices: Vec::new(),
            fill_ns: started.elapsed().as_nanos() as u64,
        };
        let granted = Granted {
            path: pinned.descriptor_path(),
            shown: path.clone(),
            identity: Some(identity),
        };
        let device = making.device(&DISK, &granted);
        Ok(Box::new(PreparedDisk { device, facts, pinned, left: RefCell::default() }))
    }
}

/// By what a trial finds the device and knows it again.
#[derive(Serialize, Deserialize)]
struct Granted {
    /// `/proc/PID/fd/N` in the runner; in a guest the node of a disk.
    path: PathBuf,
    /// What the user typed.
    shown: PathBuf,
    /// Absent of the disk of a guest, which the runner never saw and which nobody else has.
    identity: Option<DeviceIdentity>,
}

/// What a trial in a guest is told of a disk, and of the layers on it.
pub fn in_guest(path: &Path, layers: &[String]) -> Device {
    let granted = Granted { path: path.into(), shown: path.into(), identity: None };
    Device {
        kind: DISK.name.into(),
        layers: layers.to_vec(),
        prepared: serde_json::to_value(granted).expect("it has a JSON form"),
        ..Device::default()
    }
}

/// Whether this is a guest, whose disks are all the trial's.
pub fn is_kurabes_guest() -> bool {
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    command_line.split_whitespace().any(|word| word == "rdinit=/kurabe")
}

/// A guest's disk, as good as new. The runner claimed what the host has of it.
fn fresh(path: &Path) -> io::Result<(File, DeviceIdentity)> {
    if !is_kurabes_guest() {
        let text = "it was not granted, and this is no guest of kurabe's";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let device = File::open(path)?;
    let identity = DeviceIdentity::of(&device)?;
    let writable = block::node::reopen(&device, OFlags::RDWR)?;
    bypass_page_cache(&writable)?;
    fill::wipe_signatures(&writable, &(0..identity.size_bytes))?;
    Ok((device, identity))
}

impl From<ClaimError> for DeviceError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::System { path, error } => {
                // Nothing was touched, and nothing will be.
                DeviceError::Refused(format!(
                    "{} cannot be claimed: {error}; `lsblk` lists the devices, and loop:4G makes one \
                     of an image file",
                    path.display()
                ))
            }
            refused => DeviceError::Refused(refused.to_string()),
        }
    }
}

/// Whether a signature is one of those that a trial said it made. Its label and place may have changed.
fn is_marked(signature: &Signature, marks: &[DiskMark]) -> bool {
    let uuid = signature.uuid.as_deref().unwrap_or_default();
    let is_of = |mark: &DiskMark| mark.uuid.as_deref().is_none_or(|marked| marked == uuid);
    marks.iter().any(|mark| mark.kind == signature.kind && is_of(mark))
}

/// A device that was filled for a study, held open and locked. Dropping it wipes what a trial that
/// died left, so that the same command line works again.
struct PreparedDisk {
    device: Device,
    facts: DeviceFacts,
    pinned: Pinned,
    /// What the last trial left, if it did not wipe it itself.
    left: RefCell<Vec<Signature>>,
}

impl PreparedDevice for PreparedDisk {
    fn device(&self) -> &Device {
        &self.device
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Claims the device for one trial and lets it go for mkfs, which takes it itself. What a trial
    /// that died left is wiped.
    fn claim_again(&self) -> Result<Claimed, DeviceError> {
        let device = self.pinned.claim_again(&self.left.borrow())?;
        if !self.left.take().is_empty() {
            let path = self.pinned.path().display();
            bypass_page_cache(&device)
                .and_then(|()| fill::wipe_signatures(&device, &(0..self.facts.size_bytes)))
                .map_err(DeviceError::system(format!("wiping signatures of {path}")))?;
        }
        Ok(Claimed(vec![device]))
    }

    /// Whatever is not the trial's is somebody's, and in the way of the next claim.
    fn note_left(&self, left: Left<'_>) {
        // What cannot be read is in the way of the next claim too.
        let mut found = self.pinned.signatures().unwrap_or_default();
        if let Left::Marked(marks) = left {
            found.retain(|signature| is_marked(signature, marks));
        }
        *self.left.borrow_mut() = found;
    }

    /// Each trial takes the device exclusively, so that nobody else can.
    fn part(&self, _: u32, _: u32) -> Result<Device, DeviceError> {
        Err(DeviceError::Refused(
            "a real device is taken by one contender at a time; run them one after the other"
                .into(),
        ))
    }
}

impl Drop for PreparedDisk {
    fn drop(&mut self) {
        // Somebody else's claim comes first; then what is there stays.
        let _ = self.claim_again();
    }
}

/// The device in a trial.
struct DiskGround {
    /// Held so that the number of the node stays this device's.
    device: File,
    identity: DeviceIdentity,
    node: DeviceNode,
    /// Whether nobody else can have the device: it is a guest's.
    is_guests: bool,
    made: Made,
}

/// What of a device's content is the trial's.
enum Made {
    /// Nothing yet.
    Nothing,
    /// Whatever is found: mkfs or the workload is at it.
    Anything,
    /// What bears these marks.
    Marked(Vec<DiskMark>),
}

impl AttachedFacts for DiskGround {
    fn size_bytes(&self) -> u64 {
        self.identity.size_bytes
    }

    fn text(&self) -> &str {
        self.node.shown()
    }

    fn node(&self) -> Option<&DeviceNode> {
        Some(&self.node)
    }

    fn file(&self) -> io::Result<File> {
        let device = take(&self.device, &self.identity, self.node.shown().as_ref())?;
        bypass_page_cache(&device)?;
        Ok(device)
    }

    /// The runner's claim saw that nothing stands on it.
    fn freshen(
        &mut self,
        _: &Range<u64>,
        _: bool,
        _: &super::AttachSite<'_>,
    ) -> Result<Option<String>, DeviceError> {
        Ok(None)
    }

    fn begin_making(&mut self) {
        self.made = Made::Anything;
    }

    fn note_made(&mut self, kind: Option<&str>) -> io::Result<Vec<DiskMark>> {
        // The runner keeps the disk of a guest from everybody else.
        if self.is_guests {
            return Ok(Vec::new());
        }
        if let Some(kind) = kind {
            return Ok(vec![DiskMark { kind: kind.into(), uuid: None }]);
        }
        let found = signatures_of(&self.device)?;
        let mut marks: Vec<DiskMark> = Vec::new();
        for Signature { kind, uuid, .. } in found {
            let mark = DiskMark { kind, uuid: Some(uuid.unwrap_or_default()) };
            if !marks.contains(&mark) {
                marks.push(mark);
            }
        }
        self.made = Made::Marked(marks.clone());
        Ok(marks)
    }

    fn release(&mut self) -> io::Result<()> {
        let device = self.file()?;
        if !matches!(self.made, Made::Anything) && !self.is_guests {
            let marks = match &self.made {
                Made::Marked(marks) => marks.as_slice(),
                _ => &[],
            };
            // Through the page cache, which takes reads of any size; nobody else can write now.
            let found = signatures_of(&self.device)?;
            if let Some(foreign) = found.iter().find(|signature| !is_marked(signature, marks)) {
                let text =
                    format!("it carries {foreign}, which this study did not make; it was left");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
        }
        fill::wipe_signatures(&device, &(0..self.identity.size_bytes))
    }
}

/// How long a device is waited for that somebody else has exclusively: a program that the runner
/// starts has a copy of its descriptors until it runs.
const EXCLUSIVE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Opens the granted device once more, for writing and exclusively.
fn take(device: &File, identity: &DeviceIdentity, shown: &Path) -> io::Result<File> {
    let until = Instant::now() + EXCLUSIVE_WAIT_MAX;
    loop {
        match block::node::reopen(device, OFlags::RDWR | OFlags::EXCL) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let text = "somebody has it exclusively; see lsblk";
                return Err(io::Error::new(error.kind(), text));
            }
            opened => {
                let opened = opened?;
                identity.verify(&opened, shown)?;
                return Ok(opened);
            }
        }
    }
}

fn bypass_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}
