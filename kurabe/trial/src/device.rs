//! What a trial stands on: its kinds, one file each, in one table.
//!
//! The runner prepares a device once for a study ([`DeviceRequest::prepare`]); every trial attaches
//! it, or a part of it, afresh ([`attach`]) and gives it back. To add a kind, write its file and add
//! a line to [`KINDS`]. Knows nothing of file systems.

pub mod attach;
mod disk;
pub mod facts;
pub mod fill;
pub(crate) mod held;
mod image;
pub mod layer;
pub mod loop_node;
mod memory;
pub mod served;
mod several;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use block::claim::Claim;
use lab::device::{Base, DeviceName};
use lab::event::DiskMark;
use lab::spec::{Device, DevicePart};
use rustix::fs::FileType;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trust::Directory;
use vocabulary::words::counted;

pub use crate::node::DeviceNode;
pub use attach::{Attached, attach, attach_served};
pub use disk::{in_guest, is_kurabes_guest};
pub use facts::{BackingFacts, BlockDeviceFacts, DeviceFacts};
pub use fill::FillProgress;
pub(crate) use held::free_bytes;
pub use image::lies_in_memory;
pub use lab::device::DEFAULT_DEVICE;

use crate::host_proc::HostProc;
use crate::scratch::Occupied;
use crate::stop::StopFlag;

/// All kinds, in the order in which messages name them.
static KINDS: [&DeviceKind; 3] = [&image::LOOP, &memory::MEM, &disk::DISK];

struct DeviceKind {
    /// The word before the colon.
    name: &'static str,
    /// How it is written, with an example, for messages.
    notation: &'static str,
    /// Reads what the user wants of it, and what may be destroyed, or says what is wrong. Touches
    /// nothing.
    request: fn(&Base, Option<&str>) -> Result<Requested, String>,
    /// Finds, in a trial, what the runner prepared, and nothing else; an error has touched nothing.
    ground: fn(&Value, &AttachSite<'_>) -> Result<Found, DeviceError>,
}

type Requested = Box<dyn Request>;
type Found = Box<dyn AttachedFacts>;

/// A device that the user asks for.
pub trait Request {
    /// Size in bytes; absent when there is no such device.
    fn size_bytes(&self) -> Option<u64>;

    /// The number of a device that exists.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Whether it may be used. Nothing is touched, and what exists is kept from everybody else until what this
    /// gives is dropped.
    fn examine(&self) -> Result<Option<Claim>, DeviceError> {
        Ok(None)
    }

    /// Makes or claims it and fills it with random bytes.
    /// Errors: [`DeviceError::Refused`] before anything was touched; else nothing is left behind.
    fn prepare(&self, making: &mut Making<'_>) -> Result<Box<dyn PreparedDevice>, DeviceError>;
}

/// A device that is ready for any number of trials, in the runner. Dropping it gives everything
/// back.
pub trait PreparedDevice: Send {
    /// What a trial is told.
    fn device(&self) -> &Device;

    /// What the result says.
    fn facts(&self) -> &DeviceFacts;

    /// Makes sure, before a trial, that a real device is still the one that was granted, that
    /// nothing uses it, and that nobody made anything on it.
    /// Errors: [`DeviceError::Refused`] with what is in the way; nothing was touched.
    fn claim_again(&self) -> Result<Claimed, DeviceError> {
        Ok(Claimed(Vec::new()))
    }

    /// Notes what a trial that did not come to its end left, which the next one may destroy.
    fn note_left(&self, _: Left<'_>) {}

    /// What a trial is told that gets one of `of` equal parts, side by side with the others; `index`
    /// is from 0.
    fn part(&self, index: u32, of: u32) -> Result<Device, DeviceError> {
        assert!(index < of, "part {index} of {of}");
        let whole_bytes = self.facts().size_bytes;
        let size_bytes = part_bytes(whole_bytes, of);
        if size_bytes < lab::device::SIZE_BYTES_MIN {
            return Err(DeviceError::Refused(format!(
                "{} bytes are too few for {of} contenders at a time; give --device a larger size",
                whole_bytes
            )));
        }
        let part = DevicePart { offset_bytes: u64::from(index) * size_bytes, size_bytes };
        Ok(Device { part: Some(part), ..self.device().clone() })
    }
}

/// Keeps a real device from everybody who takes devices exclusively (mkfs, mount, LVM), until it is
/// dropped. A trial of this machine, whose tools do so, needs it dropped; a guest does not.
#[must_use]
pub struct Claimed(Vec<File>);

/// What on a device is a trial's that did not come to its end.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// Everything: the device was [`Claimed`] from before the trial until now.
    Everything,
    /// What the trial said that it made, and nothing else.
    Marked(&'a [DiskMark]),
}

/// Parts begin at a multiple of this many bytes, so that all are aligned alike.
const PART_BYTES_STEP: u64 = 1 << 20;

/// The size of each of so many equal parts.
pub fn part_bytes(whole_bytes: u64, of: u32) -> u64 {
    whole_bytes / u64::from(of) / PART_BYTES_STEP * PART_BYTES_STEP
}

/// What a trial found of its device.
pub trait AttachedFacts: Send {
    fn size_bytes(&self) -> u64;

    /// What messages call it.
    fn text(&self) -> &str;

    /// The node that mkfs and mount can be given as it is.
    fn node(&self) -> Option<&DeviceNode> {
        None
    }

    /// Opens it for what stands on top of it.
    fn file(&self) -> io::Result<File>;

    /// Whether its bytes are in the page cache by their nature.
    fn is_cached(&self) -> bool {
        false
    }

    /// Whether nobody needs what is on it after a power failure, so that flushes are for nothing.
    fn is_expendable(&self) -> bool {
        false
    }

    /// Makes a part of it as good as new, and says what had to be done.
    fn freshen(
        &mut self,
        part: &Range<u64>,
        discard: bool,
        site: &AttachSite<'_>,
    ) -> Result<Option<String>, DeviceError>;

    /// From now on, what is found on it is the trial's: mkfs runs, or a workload that works on the bare
    /// device.
    fn begin_making(&mut self) {}

    /// What the trial has made on it, and nobody else; what is found later beside that is somebody's.
    /// `kind` is what a workload makes on the bare device; without one, the device itself is asked.
    fn note_made(&mut self, _kind: Option<&str>) -> io::Result<Vec<DiskMark>> {
        Ok(Vec::new())
    }

    /// Wipes what must not be left.
    /// Errors: somebody made something on it that is not the trial's, and it was left alone.
    fn release(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the making of a device needs.
pub struct Making<'a> {
    /// The notation that was asked for.
    pub request: String,
    /// Kurabe's own directory, for an image whose place nobody named.
    pub own: &'a Directory,
    pub stop: &'a StopFlag,
    /// Hears how far the filling has come, several times a second.
    pub report: &'a mut dyn FnMut(FillProgress),
    /// Hears what trials will be told of what was made for them, before it is filled.
    pub made: &'a mut dyn FnMut(&Device),
    layers: Vec<String>,
}

impl Making<'_> {
    fn device(&self, kind: &DeviceKind, prepared: &impl Serialize) -> Device {
        Device {
            kind: kind.name.into(),
            layers: self.layers.clone(),
            prepared: serde_json::to_value(prepared).expect("it has a JSON form"),
            ..Device::default()
        }
    }
}

/// Where a trial attaches its device.
pub struct AttachSite<'a> {
    /// The trial's own directory, which its runner has in its ledger.
    pub scratch: &'a Occupied,
    /// The host's processes.
    pub host: &'a HostProc,
    pub stop: &'a StopFlag,
}

/// Reads what a kind told its trials.
fn read<T: DeserializeOwned>(prepared: &Value) -> Result<T, DeviceError> {
    T::deserialize(prepared)
        .map_err(|error| DeviceError::system("reading the device")(error.into()))
}

/// What a person asked the trials to stand on.
pub struct DeviceRequest {
    name: DeviceName,
    /// One for each device.
    requests: Vec<Box<dyn Request>>,
}

/// Why a device is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct RequestError {
    /// Whether it is `--destroy` that is wrong, or missing.
    pub about_destroy: bool,
    /// The text that was given, what is wrong with it and the next step.
    pub problem: String,
}

impl DeviceRequest {
    /// Reads devices and the value of `--destroy`, which names each one that exists, in their order. Touches nothing.
    pub fn parse(text: &str, destroy: Option<&str>) -> Result<DeviceRequest, RequestError> {
        DeviceRequest::parse_as_one_of(&KINDS, text, destroy)
    }

    fn parse_as_one_of(
        kinds: &[&DeviceKind],
        text: &str,
        destroy: Option<&str>,
    ) -> Result<DeviceRequest, RequestError> {
        let error = |about_destroy: bool, problem: &dyn fmt::Display| RequestError {
            about_destroy,
            problem: format!("'{text}': {problem}"),
        };
        let name = DeviceName::parse(text).map_err(|found| error(false, &found.problem))?;
        if destroy.is_some() && !name.exists() {
            let problem =
                "--destroy goes with a real device such as --device /dev/sdb; leave it out here";
            return Err(error(true, &problem));
        }
        let mut confirmed: Vec<&str> = destroy.into_iter().collect();
        if !name.others.is_empty() {
            confirmed = confirmed.iter().flat_map(|names| names.split(',')).collect();
            let existing = name.all().filter(|one| matches!(one.base, Base::Existing(_))).count();
            if destroy.is_some() && confirmed.len() != existing {
                let problem = format!(
                    "--destroy has {}, and --device {existing} real devices; give one for each, in their order, as in sdb,sdc",
                    counted(confirmed.len(), "name")
                );
                return Err(error(true, &problem));
            }
        }
        let mut confirmed = confirmed.into_iter();
        let mut requests = Vec::new();
        for one in name.all() {
            let exists = matches!(one.base, Base::Existing(_));
            let destroy = if exists { confirmed.next() } else { None };
            requests.push(DeviceRequest::one(kinds, one, destroy, &error)?);
        }
        Ok(DeviceRequest { name, requests })
    }

    fn one(
        kinds: &[&DeviceKind],
        name: &DeviceName,
        destroy: Option<&str>,
        error: &dyn Fn(bool, &dyn fmt::Display) -> RequestError,
    ) -> Result<Box<dyn Request>, RequestError> {
        check_layers(&name.layers).map_err(|problem| error(false, &problem))?;
        let (wanted, exists) = match &name.base {
            Base::Made { kind, .. } => (kind.as_str(), false),
            Base::Existing(_) => (disk::DISK.name, true),
        };
        let is_meant =
            |kind: &DeviceKind| kind.name == wanted && (exists || kind.name != disk::DISK.name);
        let Some(kind) = kinds.iter().find(|kind| is_meant(kind)) else {
            let known: Vec<&str> = kinds.iter().map(|kind| kind.notation).collect();
            let problem = format!("not a device; write {}", known.join(", or "));
            return Err(error(false, &problem));
        };
        let request =
            (kind.request)(&name.base, destroy).map_err(|problem| error(exists, &problem))?;
        if let Some(size_bytes) = request.size_bytes() {
            let fit = |layer: &String| layer::check_size(layer, size_bytes);
            name.layers.iter().try_for_each(fit).map_err(|problem| error(false, &problem))?;
        }
        Ok(request)
    }

    /// How many devices there are.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// Size in bytes, of several together; a real device is only looked at. Absent when there is none.
    pub fn size_bytes(&self) -> Option<u64> {
        self.requests.iter().map(|request| request.size_bytes()).sum()
    }

    /// Whether all may be used, at the same time. Nothing is touched.
    pub fn examine(&self) -> Result<(), DeviceError> {
        let mut seen = HashMap::new();
        for (name, request) in self.name.all().zip(&self.requests) {
            if let Some(number) = request.number()
                && let Some(other) = seen.insert(number, name)
            {
                return Err(DeviceError::Refused(format!(
                    "{} and {} are the same device; name each device once",
                    other.alone(),
                    name.alone()
                )));
            }
        }
        // Each is claimed while the others are: two of them may be paths to one disk.
        let examined = self.requests.iter().map(|request| request.examine());
        examined.collect::<Result<Vec<_>, _>>().map(drop)
    }

    /// Makes it, fills it with random bytes and gathers its facts. An image lies in `own`, kurabe's
    /// own directory, unless the request names another. `report` is called from this thread,
    /// several times a second.
    /// Errors: [`DeviceError::Refused`] before anything was touched; else nothing is left behind.
    pub fn prepare(
        &self,
        own: &Directory,
        stop: &StopFlag,
        report: &mut dyn FnMut(FillProgress),
    ) -> Result<Box<dyn PreparedDevice>, DeviceError> {
        self.prepare_telling(own, stop, report, &mut |_| {})
    }

    /// The same; `made` is called with what trials will be told of an image or memory, once it is there and
    /// before it is filled.
    pub fn prepare_telling(
        &self,
        own: &Directory,
        stop: &StopFlag,
        report: &mut dyn FnMut(FillProgress),
        made: &mut dyn FnMut(&Device),
    ) -> Result<Box<dyn PreparedDevice>, DeviceError> {
        if let [one] = &self.requests[..] {
            let (request, layers) = (self.name.to_string(), self.name.layers.clone());
            return one.prepare(&mut Making { request, own, stop, report, made, layers });
        }
        // Before a byte of any of them is touched.
        self.examine()?;
        let total_bytes = self.size_bytes().unwrap_or(0);
        let mut devices: Vec<Box<dyn PreparedDevice>> = Vec::new();
        let mut before_bytes = 0;
        for (name, one) in self.name.all().zip(&self.requests) {
            let mut report = |progress: FillProgress| {
                let done_bytes = before_bytes + progress.done_bytes;
                report(FillProgress { done_bytes, total_bytes });
            };
            let (request, layers) = (name.alone(), name.layers.clone());
            let (report, made) = (&mut report, &mut |_: &Device| {});
            devices.push(one.prepare(&mut Making { request, own, stop, report, made, layers })?);
            before_bytes += devices.last().map_or(0, |device| device.facts().size_bytes);
        }
        Ok(several::together(self.name.to_string(), devices))
    }
}

/// How each layer is written, and what it does.
pub fn layer_notations() -> impl Iterator<Item = &'static str> {
    layer::notations()
}

/// What at first sight keeps a path from being a device to destroy: it does not exist, is none, or is mounted.
pub fn obstacle(path: &Path) -> Option<String> {
    let shown = path.display();
    let found = match rustix::fs::stat(path) {
        Ok(found) => found,
        Err(rustix::io::Errno::NOENT) => {
            return Some(format!("{shown} does not exist; lsblk lists the devices"));
        }
        Err(error) => return Some(format!("{shown}: {error}")),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::BlockDevice {
        return Some(format!(
            "{shown} is not a block device; lsblk lists them, and loop:4G makes an image file"
        ));
    }
    let number = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    let mounts = trust::mounts::mounts().ok()?;
    let mount = mounts.iter().find(|mount| mount.device == number)?;
    let point = mount.point.display();
    Some(if mount.point == Path::new("/") {
        format!("{shown} is mounted at {point}, so this system lies on it; lsblk lists the others")
    } else {
        format!("{shown} is mounted at {point}; unmount it first")
    })
}

/// An image that takes no space but what is written to it, to try something on.
pub fn sparse(own: &Directory, size_bytes: u64) -> io::Result<Box<dyn PreparedDevice>> {
    let file = own.nameless_file().map_err(io::Error::other)?;
    held::FilledFile::sparse(&image::LOOP, file, size_bytes, false)
}

/// The same in a file of the caller's, which holds what is written to it and nothing else.
pub fn kept(file: File, size_bytes: u64) -> io::Result<Box<dyn PreparedDevice>> {
    held::FilledFile::sparse(&image::LOOP, file, size_bytes, true)
}

/// Refuses what is no layer, with the next step.
fn check_layers(layers: &[String]) -> Result<(), String> {
    layers.iter().try_for_each(|text| layer::read(text).map(drop))
}

fn kind(name: &str) -> Option<&'static DeviceKind> {
    KINDS.into_iter().find(|kind| kind.name == name)
}

/// Why a device could not be prepared or attached.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It was refused: nothing was touched. The text names what was found and the next step.
    #[error("{0}")]
    Refused(String),
    /// The system said no.
    #[error("{what}: {error}{}", next_step(error))]
    System {
        /// What was tried, with the path.
        what: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A stop was asked for.
    #[error("the study was stopped")]
    Stopped,
}

impl DeviceError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> DeviceError {
        let what = what.into();
        move |error| match error.kind() {
            io::ErrorKind::Interrupted => DeviceError::Stopped,
            _ => DeviceError::System { what, error },
        }
    }
}

fn next_step(error: &io::Error) -> &'static str {
    match os_code(error) {
        Some(libc::ENXIO | libc::ENODEV) => {
            "; the device is gone: see 'dmesg' for what became of it"
        }
        Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ESTALE) => {
            "; what the image lies on is gone: mount it again"
        }
        Some(libc::EIO) => {
            "; the disk below reports an error: see 'dmesg', and do not trust its numbers"
        }
        Some(libc::ENOSPC) => "; free some space or give --device a smaller size",
        _ => "",
    }
}

/// The number of an error of the system, also of one to which a place was added.
fn os_code(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let cause = error.get_ref()?.source()?;
        os_code(cause.downcast_ref()?)
    })
}

impl From<DeviceError> for crate::tool::StepFailure {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Stopped => crate::tool::StepFailure::Stopped,
            error => crate::tool::StepFailure::of(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_value_and_the_next_step() {
        let message = |text: &str, destroy: Option<&str>| {
            DeviceRequest::parse(text, destroy).err().unwrap().to_string()
        };
        assert!(message("loop:8Q", None).contains("'8Q' is not a size"));
        assert!(message("mem:1G@/x", None).contains("leave '@'"));
        assert!(message("loop:8G", Some("sdb")).contains("leave it out"));
        assert!(message("/dev/sdb", None).contains("--destroy NAME, its kernel name (sdb)"));
        assert!(message("/dev/sdb", Some(" ")).contains("--destroy"));
        assert!(message("ram:1G", None).starts_with("'ram:1G': not a device; write loop:8G or"));
        assert!(message("disk:1G", None).contains("not a device"));
        let two = message("/dev/sdb,mem:1G,/dev/sdc", Some("sdb"));
        assert!(two.contains("--destroy has 1 name, and --device 2 real devices"), "{two}");
        assert!(message("/dev/sdb,/dev/sdc", None).contains("--destroy NAME"));
        assert!(DeviceRequest::parse("mem:1G,/dev/sdb,/dev/sdc", Some("sdb:ext4,WD-12")).is_ok());
        assert!(DeviceRequest::parse("/dev/sdb", Some(" WD-1234 ")).is_ok());
        assert_eq!(DeviceRequest::parse("mem:1G", None).ok().unwrap().size_bytes(), Some(1 << 30));
        let two = DeviceRequest::parse("mem:1G,loop:1G", None).ok().unwrap();
        assert_eq!((two.count(), two.size_bytes()), (2, Some(2 << 30)));
    }

    #[test]
    fn several_devices_are_prepared_as_one() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let own = Directory::private(&home.path().join("own")).unwrap();
        let request = DeviceRequest::parse("mem:16M,delay:1ms+loop:32M", None).unwrap();
        let mut last = None;
        let prepared = request.prepare(&own, &StopFlag::default(), &mut |now| last = Some(now));
        let prepared = prepared.unwrap();
        let last = last.unwrap();
        assert_eq!((last.done_bytes, last.total_bytes), (48 << 20, 48 << 20));
        let kinds: Vec<&str> = prepared.device().all().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["mem", "loop"]);
        assert_eq!(prepared.device().others[0].layers, ["delay:1ms"]);
        let facts = prepared.facts();
        assert_eq!((facts.size_bytes, facts.devices[1].size_bytes), (48 << 20, 32 << 20));
        assert_eq!(facts.devices[1].request, "delay:1ms+loop:32M");
        assert!(prepared.part(0, 2).is_err());
        let refused = DeviceRequest::parse("mem:16M,loop:900T", None).unwrap();
        assert!(refused.prepare(&own, &StopFlag::default(), &mut |_| {}).is_err());
    }

    /// A kind of device that no other file knows: its description, and its place in a table.
    #[test]
    fn a_device_is_added_by_its_description() {
        struct Tape(u64);
        impl Request for Tape {
            fn size_bytes(&self) -> Option<u64> {
                Some(self.0)
            }
            fn prepare(&self, _: &mut Making<'_>) -> Result<Box<dyn PreparedDevice>, DeviceError> {
                Err(DeviceError::Refused("no tape is in the drive".into()))
            }
        }
        static TAPE: DeviceKind = DeviceKind {
            name: "tape",
            notation: "tape:8G (a tape)",
            request: |base, _| match base {
                Base::Made { size_bytes, directory: None, .. } => Ok(Box::new(Tape(*size_bytes))),
                _ => Err("a tape lies in no directory; leave '@' out".into()),
            },
            ground: |_, _| Err(DeviceError::Refused("no tape is in the drive".into())),
        };
        let kinds = [&KINDS[..], &[&TAPE]].concat();
        let parse = |text: &str| DeviceRequest::parse_as_one_of(&kinds, text, None);
        let tape = parse("delay:1ms+tape:1G").ok().unwrap();
        assert_eq!(tape.size_bytes(), Some(1 << 30));
        let home = tempfile::tempdir().unwrap();
        let own = Directory::private(&home.path().join("own")).unwrap();
        let refused = tape.prepare(&own, &StopFlag::default(), &mut |_| {}).err().unwrap();
        assert_eq!(refused.to_string(), "no tape is in the drive");
        let said = |text: &str| parse(text).err().unwrap().to_string();
        assert!(said("tape:1G@/x").ends_with("leave '@' out"), "{}", said("tape:1G@/x"));
        assert!(said("tap:1G").ends_with("or tape:8G (a tape)"), "{}", said("tap:1G"));
        assert!(DeviceRequest::parse("tape:1G", None).is_err(), "the program has no tapes");
    }
}
