//! Opening the device of a volume for the tools, and refusing to overwrite what is not ours.
//!
//! A device is always opened exclusively. The daemon of a mount that was just ended may need a
//! moment to let go of it, so a busy device that is mounted nowhere is waited for, with a bound.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use block::claim::{Permission, Use, examine};
use block::{BlockDevice, FileDevice, FileDeviceOptions};

/// How long a device that is mounted nowhere may stay busy.
const RELEASE_WAIT: Duration = Duration::from_secs(10);
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// How much of the start of a device is searched for foreign signatures, in bytes.
const SIGNATURE_BYTES: u64 = 128 << 10;

/// Opens a device or an image exclusively; the error names it.
pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, String> {
    let options = FileDeviceOptions { read_only, exclusive: true, ..Default::default() };
    let deadline = Instant::now() + RELEASE_WAIT;
    loop {
        match FileDevice::open(path, &options) {
            Ok(device) => return Ok(device),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if let Some(directory) = mounted_at(path) {
                    return Err(format!("{}: it is mounted at {directory}", path.display()));
                }
                if Instant::now() >= deadline {
                    return Err(format!("{}: it is in use by another program", path.display()));
                }
                std::thread::sleep(RELEASE_POLL);
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
}

/// Asks the claim that guards every device here whether `path` may be overwritten; with `force`
/// whatever single file system or partition table it carries may be lost. That a process merely
/// has it open is no objection: the exclusive open that follows decides, and a laboratory that
/// calls mkfs keeps its own device open.
pub fn check_claim(path: &Path, force: bool) -> Result<(), String> {
    let mut findings =
        examine(path).map_err(|error| format!("{}: cannot look at it: {error}", path.display()))?;
    findings.uses.retain(|using| !matches!(using, Use::OpenBy { .. } | Use::Busy));
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
    Err(format!("{}: {}{hint}", path.display(), objections.join("; ")))
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
