//! Opening the device of a volume for the tools, and refusing to overwrite what is not ours.
//!
//! A device is always opened exclusively. The daemon of a mount that was just ended may need a
//! moment to let go of it, so a busy device that is mounted nowhere is waited for, with a bound.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::claim::{Permission, Use, examine};
use block::{BlockDevice, FileDevice, FileDeviceOptions, loop_backing};
use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;

/// How long a device that is mounted nowhere may stay busy.
const RELEASE_WAIT: Duration = Duration::from_secs(10);
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// How much of the start of a device is searched for foreign signatures, in bytes.
const SIGNATURE_BYTES: u64 = 128 << 10;

/// What a device says that is switched to reading only.
const DEVICE_PROTECTED: &str = "the device is write-protected: look for a switch on the medium, or \
                                allow writing with `blockdev --setrw`";

/// Opens a device or an image exclusively; the error names it.
pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, Failure> {
    open_with(path, FileDeviceOptions { read_only, ..Default::default() })
}

/// Opens what shall be changed; with a length, makes or resizes the image.
pub fn open_to_write(path: &Path, set_length: Option<u64>) -> Result<FileDevice, Failure> {
    let device = open_with(path, FileDeviceOptions { set_length, ..Default::default() })?;
    if device.is_read_only() {
        return Err(Failure::refused(path.display(), DEVICE_PROTECTED));
    }
    Ok(device)
}

fn open_with(path: &Path, options: FileDeviceOptions) -> Result<FileDevice, Failure> {
    check_not_attached(path)?;
    let options = FileDeviceOptions { exclusive: true, ..options };
    let deadline = Instant::now() + RELEASE_WAIT;
    loop {
        if !is_image_locked(path, options.read_only) {
            match FileDevice::open(path, &options) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                outcome => return outcome.map_err(|error| opening_failed(path, &error)),
            }
        }
        let shown = path.display();
        if let Some(directory) = mounted_at(path) {
            return Err(Failure::refused(shown, format!("it is mounted at {directory}")));
        }
        if Instant::now() >= deadline {
            let why = match mounted_elsewhere(path) {
                Some(holder) => {
                    format!("it is mounted in another mount namespace, that of {holder}")
                }
                None => "it is in use by another program".into(),
            };
            return Err(Failure::refused(shown, why));
        }
        std::thread::sleep(RELEASE_POLL);
    }
}

/// A path that cannot be opened is a wrong one; a device that fails is broken.
pub fn opening_failed(path: &Path, error: &io::Error) -> Failure {
    if let Some(why) = write_protection(path, error) {
        return Failure::refused(path.display(), why);
    }
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::ResourceBusy => Failure::refused(path.display(), error),
        _ => Failure::failed(path.display(), error),
    }
}

/// What forbids to write on `path`, and what lifts that, where this is why it could not be opened.
fn write_protection(path: &Path, error: &io::Error) -> Option<&'static str> {
    let is_device = path.metadata().is_ok_and(|facts| facts.file_type().is_block_device());
    match error.raw_os_error()? {
        libc::EROFS if is_device => Some(DEVICE_PROTECTED),
        libc::EROFS => Some(
            "its file system is mounted read-only: remount that with `mount -o remount,rw`, or \
             take another directory",
        ),
        // Root meets this with files that nobody may change.
        libc::EPERM if path.is_file() => Some(
            "the file is write-protected by an attribute that `lsattr` shows: `chattr -i -a` lifts \
             it",
        ),
        libc::EACCES if path.is_file() && File::open(path).is_ok() => Some(
            "the file is write-protected for you by its mode: `chmod u+w` where it is yours, sudo \
             where it is not",
        ),
        _ => None,
    }
}

/// Whether `path` is there, but its medium or its file system forbids to write on it.
pub fn is_write_protected(path: &Path) -> bool {
    let Ok(facts) = path.metadata() else { return false };
    if facts.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
        let flag = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
        return flag.is_ok_and(|flag| flag.trim() == "1");
    }
    // Opening a FIFO would wait for its other end.
    if !facts.is_file() {
        return false;
    }
    let outcome = std::fs::OpenOptions::new().write(true).open(path);
    outcome.is_err_and(|error| {
        matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES | libc::EPERM))
    })
}

/// The image behind a loop device, by the device's name.
fn backing_file(device: &str) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// What two names of the same bytes have in common, hard links and bind mounts included: the file
/// system and the inode, or a device's number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let facts = path.metadata().ok()?;
    match facts.file_type().is_block_device() {
        true => Some((u64::MAX, facts.rdev())),
        false => Some((facts.dev(), facts.ino())),
    }
}

/// What a loop device stands on: by the path that it was attached under, which tells another loop
/// device, and by what the kernel has open, whatever became of that path.
fn stands_on(device: &str) -> impl Iterator<Item = (u64, u64)> {
    let image = backing_file(device);
    let by_path = image.as_deref().and_then(identity);
    let open = image.and_then(|_| loop_backing(&Path::new("/dev").join(device)).ok());
    by_path.into_iter().chain(open)
}

/// Which bytes of its image a loop device shows; all where the kernel does not say.
fn shown_bytes(device: &str) -> Range<u64> {
    let figure = |name: &str| -> Option<u64> {
        let path = format!("/sys/block/{device}/loop/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let Some(start) = figure("offset") else { return 0..u64::MAX };
    match figure("sizelimit") {
        None | Some(0) => start..u64::MAX,
        Some(limit) => start..start.saturating_add(limit),
    }
}

/// Refuses a second way to bytes that a loop device has: an image that is attached, and a loop
/// device whose image is attached to another one too. What is mounted there would be changed behind
/// its back, and neither `O_EXCL` on the device nor a lock on the image would tell. Parts of one image that
/// lie apart share none.
pub fn check_not_attached(path: &Path) -> Result<(), Failure> {
    let own = path.canonicalize().ok();
    let own = own.as_ref().and_then(|path| path.file_name()?.to_str());
    let behind = own.and_then(backing_file);
    // Its own bytes, and those below it: a loop device may stand on either.
    let below = behind.as_ref().and_then(|_| loop_backing(path).ok());
    let bytes = [identity(path), behind.as_deref().and_then(identity), below];
    let shown = own.map_or(0..u64::MAX, shown_bytes);
    let overlaps = |other: Range<u64>| other.start < shown.end && shown.start < other.end;
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(()) };
    let mut names = devices.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let other = names.find(|name| {
        name.starts_with("loop")
            && Some(name.as_str()) != own
            && overlaps(shown_bytes(name))
            && stands_on(name).any(|found| bytes.contains(&Some(found)))
    });
    let Some(other) = other else { return Ok(()) };
    let is_below = stands_on(&other).any(|found| Some(found) == bytes[0]);
    let why = match behind.filter(|_| !is_below) {
        Some(image) => format!(
            "its image {} is attached to /dev/{other} too; detach one of them (losetup --detach)",
            image.display()
        ),
        None => format!("it is attached to /dev/{other}; use that, or detach it"),
    };
    Err(Failure::refused(path.display(), why))
}

/// The other way round: whether `path` is a loop device whose image someone has locked.
fn is_image_locked(path: &Path, read_only: bool) -> bool {
    let image = path.canonicalize().ok().and_then(|path| backing_file(path.file_name()?.to_str()?));
    // By now the name may lead to something else: a FIFO is not waited for.
    let open = |image| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(image).ok();
    let Some(image) = image.and_then(open) else { return false };
    let wish = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    // The lock ends here with the file; from now on the image is refused because it is attached.
    flock(&image, wish) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Asks the claim that guards every device here whether `path` may be overwritten; with `force`
/// whatever single file system or partition table it carries may be lost. That a process merely
/// has it open is no objection: the exclusive open that follows decides, and a laboratory that
/// calls mkfs keeps its own device open.
pub fn check_claim(path: &Path, force: bool) -> Result<(), Failure> {
    let mut findings = examine(path)
        .map_err(|error| Failure::failed(path.display(), format!("cannot look at it: {error}")))?;
    // A write-protected device is refused by the open too, which says what lifts that.
    findings.uses.retain(|using| !matches!(using, Use::OpenBy { .. } | Use::Busy | Use::ReadOnly));
    let signatures = if force {
        findings.signatures.iter().map(|signature| signature.kind.clone()).collect()
    } else {
        Vec::new()
    };
    let permission = Permission { name: findings.kernel_name.clone(), signatures };
    let objections = findings.objections(&permission);
    if objections.is_empty() {
        return Ok(());
    }
    let hint = if force { "" } else { " (--force overwrites a file system or partition table)" };
    Err(Failure::refused(path.display(), format!("{}{hint}", objections.join("; "))))
}

/// Where `/proc/self/mounts` says that a device is mounted, by whatever file system.
pub fn mounted_at(path: &Path) -> Option<String> {
    let canonical = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (source, directory) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let is_same = source.starts_with('/')
            && (Path::new(&source) == canonical
                || Path::new(&source).canonicalize().is_ok_and(|source| source == canonical));
        is_same.then_some(directory)
    })
}

/// A process whose mount namespace has a device mounted: one that was made while the device was
/// mounted here has a copy of that mount, which an unmount here does not end.
pub fn mounted_elsewhere(path: &Path) -> Option<String> {
    let canonical = path.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let holder = names.find(|name| {
        let is_process = name.bytes().all(|byte| byte.is_ascii_digit());
        // Reading of another process may be forbidden; then it stays unnamed.
        let mounts = if is_process {
            std::fs::read_to_string(format!("/proc/{name}/mounts")).unwrap_or_default()
        } else {
            String::new()
        };
        mounts.lines().any(|line| {
            line.split(' ').next().is_some_and(|source| Path::new(&unescaped(source)) == canonical)
        })
    })?;
    let command = std::fs::read_to_string(format!("/proc/{holder}/comm")).unwrap_or_default();
    Some(format!("process {holder} ({})", command.trim_end()))
}

/// Undoes the octal escapes of `/proc/self/mounts`.
pub fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_string(), |field, (escape, plain)| field.replace(escape, plain))
}

/// What another program has put on the device, as far as well-known magic numbers tell.
pub fn foreign_signature(device: &FileDevice) -> io::Result<Option<&'static str>> {
    const SIGNATURES: [(&str, u64, &[u8]); 14] = [
        ("ext2, ext3 or ext4", 1080, &[0x53, 0xef]),
        ("XFS", 0, b"XFSB"),
        ("Btrfs", 0x10040, b"_BHRfS_M"),
        ("F2FS", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
        ("NILFS2", 1030, &[0x34, 0x34]),
        ("NTFS", 3, b"NTFS    "),
        ("exFAT", 3, b"EXFAT   "),
        ("LUKS", 0, b"LUKS\xba\xbe"),
        ("LVM", 536, b"LVM2 001"),
        ("swap", 4086, b"SWAPSPACE2"),
        ("SquashFS", 0, b"hsqs"),
        ("a GUID partition table", 512, b"EFI PART"),
        ("ISO 9660", 0x8001, b"CD001"),
        ("a boot sector or partition table", 510, &[0x55, 0xaa]),
    ];
    let length = device.len().min(SIGNATURE_BYTES);
    let mut start = block::AlignedBuffer::zeroed(length as usize);
    device.read_at(&mut start, 0)?;
    Ok(SIGNATURES.iter().find_map(|(name, offset, magic)| {
        let offset = *offset as usize;
        (start.get(offset..offset + magic.len()) == Some(*magic)).then_some(*name)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_signatures_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(directory.path().join("image"), 1 << 20).unwrap();
        assert_eq!(foreign_signature(&device).unwrap(), None);
        let mut block = block::AlignedBuffer::zeroed(4096);
        block[1080..1082].copy_from_slice(&[0x53, 0xef]);
        device.write_at(&block, 0).unwrap();
        assert_eq!(foreign_signature(&device).unwrap(), Some("ext2, ext3 or ext4"));
    }

    #[test]
    fn escapes_of_the_mount_table_are_undone() {
        assert_eq!(unescaped("/mnt/a\\040b\\134"), "/mnt/a b\\");
    }
}
