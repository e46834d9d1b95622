//! Opening the device of a store for the tool, and refusing to overwrite what is not ours.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;

use block::claim::{Permission, Use, examine};
use block::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions, loop_backing};

/// How much of the start of an image must be zeros for it to count as empty, in bytes.
const LOOK_BYTES: u64 = 1 << 20;

/// Why a command ended without success; the text says what to do next where there is something.
#[derive(Debug)]
pub enum Failure {
    /// Wrong use, or something that forbids the wish: nothing was touched.
    Refused(String),
    /// It was tried and went wrong.
    Failed(String),
}

impl Failure {
    /// The exit code of the program.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Failed(text) => formatter.write_str(text),
        }
    }
}

/// What the library says about the store on `path`.
pub fn about(path: &Path) -> impl Fn(lump::Error) -> Failure {
    move |error| {
        use lump::Error::{BadRange, DeviceShrank, Invalid, NotLump, TooLarge, Unsupported};
        let text = format!("{}: {error}", path.display());
        match error {
            BadRange { .. }
            | DeviceShrank { .. }
            | Invalid(_)
            | NotLump
            | TooLarge { .. }
            | Unsupported(_) => Failure::Refused(text),
            _ => Failure::Failed(text),
        }
    }
}

/// A refusal about `path`.
pub fn refused(path: &Path, why: impl fmt::Display) -> Failure {
    Failure::Refused(format!("{}: {why}", path.display()))
}

/// Opens a device or image for oneself; with a length, makes or resizes the image.
pub fn open(path: &Path, read_only: bool, set_length: Option<u64>) -> Result<FileDevice, Failure> {
    check_not_attached(path)?;
    let options =
        FileDeviceOptions { read_only, exclusive: true, set_length, ..Default::default() };
    match FileDevice::open(path, &options) {
        Ok(device) if device.is_read_only() && !read_only => {
            Err(refused(path, "the device is write-protected; see `blockdev --setrw`"))
        }
        Ok(device) => Ok(device),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::ResourceBusy => refused(path, "it is in use by another program"),
            io::ErrorKind::Other | io::ErrorKind::UnexpectedEof => {
                Failure::Failed(format!("{}: {error}", path.display()))
            }
            _ => refused(path, error),
        }),
    }
}

/// An image that a loop device has could be written behind the back of what is mounted there.
fn check_not_attached(path: &Path) -> Result<(), Failure> {
    let (Ok(facts), Ok(devices)) = (path.metadata(), std::fs::read_dir("/sys/block")) else {
        return Ok(());
    };
    let names = devices.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_behind = |name: &String| {
        let device = Path::new("/dev").join(name);
        name.starts_with("loop") && loop_backing(&device).ok() == Some((facts.dev(), facts.ino()))
    };
    match names.into_iter().find(is_behind) {
        Some(name) => {
            Err(refused(path, format!("it is attached to /dev/{name}; use that, or detach it")))
        }
        None => Ok(()),
    }
}

/// Refuses to make a store where that would destroy something which was not given up by `force`.
pub fn check_free(path: &Path, makes_image: bool, force: bool) -> Result<(), Failure> {
    let Ok(facts) = path.metadata() else {
        return match makes_image {
            true => Ok(()),
            false => Err(refused(path, "there is no such device or image; --size makes an image")),
        };
    };
    if facts.file_type().is_block_device() {
        if makes_image {
            return Err(refused(path, "--size is for image files; a device has the size it has"));
        }
        return check_claim(path, force);
    }
    if force || facts.len() == 0 {
        return Ok(());
    }
    if makes_image {
        return Err(refused(path, "it exists; --force makes an empty store of it"));
    }
    let device = open(path, true, None)?;
    let mut start = AlignedBuffer::zeroed(device.len().min(LOOK_BYTES) as usize);
    device.read_at(&mut start, 0).map_err(|error| Failure::Failed(error.to_string()))?;
    if start.iter().any(|byte| *byte != 0) {
        return Err(refused(path, "it holds something; --force overwrites it"));
    }
    Ok(())
}

/// Asks the claim that guards every device here whether `path` may be overwritten. That a process
/// merely has it open is no objection: the exclusive open that follows decides.
fn check_claim(path: &Path, force: bool) -> Result<(), Failure> {
    let mut findings =
        examine(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    findings.uses.retain(|using| !matches!(using, Use::OpenBy { .. } | Use::Busy));
    let kinds = findings.signatures.iter().map(|signature| signature.kind.clone());
    let signatures = if force { kinds.collect() } else { Vec::new() };
    let permission = Permission { name: findings.kernel_name.clone(), signatures };
    let objections = findings.objections(&permission);
    if objections.is_empty() {
        return Ok(());
    }
    let hint = if force { "" } else { " (--force overwrites a store or file system)" };
    Err(refused(path, format!("{}{hint}", objections.join("; "))))
}
