//! What the tools of a file system or a store share: why a command failed, sizes on the command line,
//! and opening what they work on without harm to anybody.
//!
//! A device is always opened exclusively, and never by a second way to bytes that somebody else has.
//! Knows nothing of what is on it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::fs::flock;
use trust::mounts::mounts_of;
pub use trust::mounts::{Mount, mounts};
pub use trust::output;
pub use trust::program;
use trust::{Directory, Refused, way};

use crate::claim::{self, Permission, Use, examine_open};
use crate::file::of_system;
use crate::{AlignedBuffer, BlockDevice, FileDevice, FileDeviceOptions};

const RELEASE_POLL: Duration = Duration::from_millis(20);
/// How much of the start of an image must be zeros for it to count as empty, in bytes.
const LOOK_BYTES: u64 = 1 << 20;
/// What a device says that is switched to reading only.
const DEVICE_PROTECTED: &str = "the device is write-protected: look for a switch on the medium, or \
                                allow writing with `blockdev --setrw`";

/// Why a command ended without success; the text says what to do next where there is something.
#[derive(Debug, thiserror::Error)]
pub enum ToolFailure {
    /// Wrong use, or something that forbids the wish: nothing was touched.
    #[error("{0}")]
    Refused(String),
    /// It was tried and went wrong.
    #[error("{0}")]
    Failed(String),
}

/// A name may hold what a terminal would obey: it is shown by its number.
fn shown(subject: impl fmt::Display, why: impl fmt::Display) -> String {
    trust::text::line(&format!("{subject}: {why}")).into_owned()
}

impl ToolFailure {
    /// A refusal about `subject`, a path or a name.
    pub fn refused(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Refused(shown(subject, why))
    }

    /// A failure about `subject`, a path or a name.
    pub fn failed(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Failed(shown(subject, why))
    }

    /// What was printed could not be written.
    pub fn of_output(error: io::Error) -> Self {
        Self::failed("standard output", error)
    }

    /// The same about `subject`.
    pub fn about(self, subject: impl fmt::Display) -> Self {
        match self {
            Self::Refused(why) => Self::refused(subject, why),
            Self::Failed(why) => Self::failed(subject, why),
        }
    }

    /// 2 of a refusal, 1 of a failure.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

/// Writes a line to standard error, and does nothing where that fails: `eprintln!` would panic.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => { $crate::tool::output::complain(format_args!($($words)*)) };
}

/// Reads a size in bytes, as [`trust::quantity::parse_size`] does, for a flag.
pub fn size(text: &str) -> Result<u64, String> {
    trust::quantity::parse_size(text).map_err(|error| error.to_string())
}

/// Opens a device or an image exclusively; to write, only where a stranger cannot lead the path to
/// another file ([`FileDevice::open_named`]). One that is busy and mounted nowhere is waited for so
/// long: the daemon of a mount that was just ended may need a moment to let go of it.
///
/// # Errors
///
/// Names the path, and who has it where that is known.
pub fn open(path: &Path, read_only: bool, wait: Duration) -> Result<FileDevice, ToolFailure> {
    let options = FileDeviceOptions { read_only, ..Default::default() };
    open_waiting(path, options, false, wait)
}

/// Opens what [`check_free`] looked at, to write; with `length`, in bytes, an image is made or cut or
/// extended to it. Nothing is changed unless the path still leads to what was looked at.
///
/// # Errors
///
/// As of [`open`]; the path leads to something else by now.
pub fn open_checked(
    path: &Path,
    checked: &Checked,
    length: Option<u64>,
    wait: Duration,
) -> Result<FileDevice, ToolFailure> {
    let options = FileDeviceOptions { set_length: length, ..Default::default() };
    let makes = matches!(checked, Checked::Nothing);
    let mut device = open_waiting(path, options, makes, wait)?;
    checked.verify(&device)?;
    if let Some(length) = length.filter(|_| !device.is_new()) {
        device.set_length(length).map_err(|error| opening_failed(path, &error))?;
    }
    Ok(device)
}

fn open_waiting(
    path: &Path,
    options: FileDeviceOptions,
    makes: bool,
    wait: Duration,
) -> Result<FileDevice, ToolFailure> {
    check_not_attached(path)?;
    let options = FileDeviceOptions { exclusive: true, ..options };
    let deadline = Instant::now() + wait;
    loop {
        if !is_image_locked(path, options.read_only) {
            let opened = if options.read_only {
                FileDevice::open(path, &options)
            } else {
                FileDevice::open_named(path, &options, makes)
            };
            match opened {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Ok(device) if device.is_read_only() && !options.read_only => {
                    return Err(ToolFailure::refused(path.display(), DEVICE_PROTECTED));
                }
                outcome => return outcome.map_err(|error| opening_failed(path, &error)),
            }
        }
        let shown = path.display();
        if let Some(directory) = mounted_at(path) {
            let why = format!("it is mounted at {}", directory.display());
            return Err(ToolFailure::refused(shown, why));
        }
        if Instant::now() >= deadline {
            let why = match mounted_elsewhere(path) {
                Some(holder) => {
                    format!("it is mounted in another mount namespace, that of {holder}")
                }
                None => "it is in use by another program".into(),
            };
            return Err(ToolFailure::refused(shown, why));
        }
        std::thread::sleep(RELEASE_POLL);
    }
}

/// Writes files into a directory that the user named, which is made where it is missing. What has
/// their names is replaced and never written through.
pub fn write_files(
    directory: &Path,
    files: impl IntoIterator<Item = (String, Vec<u8>)>,
) -> Result<(), ToolFailure> {
    let failed = |refused| opening_failed(directory, &of_system(refused));
    let directory = Directory::open_or_make(directory, 0o755).map_err(failed)?;
    for (name, bytes) in files {
        directory.replace(name, &bytes, 0o644).map_err(failed)?;
    }
    Ok(())
}

/// The path without links, which nobody who is not believed can make lead elsewhere.
///
/// # Errors
///
/// Says what was refused, or what the system said, with the path.
pub fn real_path(path: &Path) -> Result<PathBuf, ToolFailure> {
    way::real(path).map_err(|refused| opening_failed(path, &of_system(refused)))
}

/// What a tool without `--trust` says of a way that strangers can change.
fn untrusted(refused: &Refused) -> String {
    match refused {
        Refused::Stranger { path, owner } => format!(
            "{} belongs to user {owner}, who could lead this command to another file; run it as \
             {owner}, or take a place of your own",
            path.display()
        ),
        Refused::Writable { path } => format!(
            "{path} can be written by other users, who could lead this command to another file; \
             chmod go-w {path}, or take another place",
            path = path.display()
        ),
        other => other.to_string(),
    }
}

/// Opens what is to be copied in: see [`trust::file::open_to_copy`].
///
/// # Errors
/// [`ToolFailure::Refused`] for a directory, a FIFO and the like, or a path that cannot be opened.
pub fn open_to_copy(path: &Path) -> Result<File, ToolFailure> {
    trust::file::open_to_copy(path).map_err(|error| match error {
        Refused::System { path, error } => opening_failed(&path, &error),
        Refused::Kind { path, is, .. } => {
            let why = format!("it is {is}; to copy a stream, name - and redirect standard input");
            ToolFailure::refused(path.display(), why)
        }
        other => ToolFailure::Refused(other.to_string()),
    })
}

/// A path that cannot be opened is a wrong one; a device that fails is broken.
pub fn opening_failed(path: &Path, error: &io::Error) -> ToolFailure {
    if let Some(refused) = error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
        return ToolFailure::Refused(untrusted(refused));
    }
    if let Some(why) = write_protection(path, error) {
        return ToolFailure::refused(path.display(), why);
    }
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::ResourceBusy => ToolFailure::refused(path.display(), error),
        _ => ToolFailure::failed(path.display(), error),
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

/// The image behind a loop device, by the device's number.
fn backing_file(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let text = std::fs::read_to_string(path).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Refuses a second way to bytes that a loop device has: an image that is attached, and a loop
/// device whose image is attached to another one too. What is mounted there would be changed behind
/// its back, and neither `O_EXCL` on the device nor a lock on the image would tell. Parts of one image that
/// lie apart share none.
pub fn check_not_attached(path: &Path) -> Result<(), ToolFailure> {
    let attached =
        claim::attached(path).map_err(|error| ToolFailure::failed(path.display(), error))?;
    let Some((other, image)) = attached else { return Ok(()) };
    let why = match image {
        Some(image) => format!(
            "its image {image} is attached to /dev/{other} too; detach one of them (losetup --detach)"
        ),
        None => format!("it is attached to /dev/{other}; use that, or detach it"),
    };
    Err(ToolFailure::refused(path.display(), why))
}

/// The other way round: whether `path` is a loop device whose image someone has locked.
fn is_image_locked(path: &Path, read_only: bool) -> bool {
    let facts = path.metadata().ok().filter(|facts| facts.file_type().is_block_device());
    let image = facts.and_then(|facts| backing_file(facts.rdev()));
    // By now the name may lead to something else: a FIFO is not waited for.
    let open = |image| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(image).ok();
    let Some(image) = image.and_then(open) else { return false };
    // The lock ends here with the file; from now on the image is refused because it is attached.
    flock(&image, crate::file::lock_wish(read_only)) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Refuses to make something on `path` where that would destroy what was not given up by `force`: on
/// a device what the claim that guards every device here finds, in an image anything at all. A path
/// where nothing is takes a size, `makes_image`. [`open_checked`] opens what was looked at.
pub fn check_free(path: &Path, makes_image: bool, force: bool) -> Result<Checked, ToolFailure> {
    let refuse = |why: &str| Err(ToolFailure::refused(path.display(), why));
    let Ok(facts) = path.metadata() else {
        return if makes_image {
            Ok(Checked::Nothing)
        } else {
            refuse("there is no such device or image; --size makes an image")
        };
    };
    if facts.file_type().is_block_device() {
        return if makes_image {
            refuse("--size is for image files; a device has the size it has")
        } else {
            check_claim(path, force)
        };
    }
    // What is neither an image nor a device is refused when it is opened.
    let checked = Checked::File(facts.dev(), facts.ino());
    if force || facts.len() == 0 || !facts.is_file() {
        return Ok(checked);
    }
    if makes_image {
        return refuse(
            "it exists; --force makes an empty one of that size of it, and what it holds is lost",
        );
    }
    let image = open(path, true, Duration::ZERO)?;
    let mut start = AlignedBuffer::zeroed(image.len().min(LOOK_BYTES) as usize);
    image.read_at(&mut start, 0).map_err(|error| ToolFailure::failed(path.display(), error))?;
    if start.iter().any(|byte| *byte != 0) {
        refuse("it holds something; --force overwrites it")
    } else {
        Ok(checked)
    }
}

/// What [`check_free`] looked at. A path may lead to something else by the time that it is opened.
#[must_use]
pub enum Checked {
    /// There was no such file.
    Nothing,
    /// A file: the number of its file system, and its inode.
    File(u64, u64),
    /// A block device, held open so that its number cannot pass to another one.
    Device(File),
}

impl Checked {
    /// Refuses to write on `opened` unless it is what was looked at.
    ///
    /// # Errors
    ///
    /// It is something else; nothing was written.
    fn verify(&self, opened: &FileDevice) -> Result<(), ToolFailure> {
        let failed = |error| ToolFailure::failed(opened.path().display(), error);
        let facts = opened.file().metadata().map_err(failed)?;
        let is_same = match self {
            Checked::Nothing => opened.is_new(),
            Checked::File(file_system, inode) => {
                (facts.dev(), facts.ino()) == (*file_system, *inode)
            }
            Checked::Device(device) => {
                opened.is_block_device()
                    && device.metadata().map_err(failed)?.rdev() == facts.rdev()
            }
        };
        let why = "the path has come to lead to something else than what was checked; nothing was \
                   written; look with ls -l, and try again";
        if is_same { Ok(()) } else { Err(ToolFailure::refused(opened.path().display(), why)) }
    }
}

/// Asks the claim whether a device may be overwritten; with `force` whatever single file system,
/// store or partition table it carries may be lost. That a process merely has it open is no
/// objection: the exclusive open that follows decides, and a laboratory that calls mkfs keeps its own
/// device open.
fn check_claim(path: &Path, force: bool) -> Result<Checked, ToolFailure> {
    let (device, mut findings) = examine_open(path).map_err(|error| {
        ToolFailure::failed(path.display(), format!("cannot look at it: {error}"))
    })?;
    // A write-protected device is refused by the open too, which says what lifts that.
    findings.uses.retain(|using| !matches!(using, Use::OpenBy { .. } | Use::Busy | Use::ReadOnly));
    let kinds = findings.signatures.iter().map(|signature| signature.kind.clone());
    let signatures = if force { kinds.collect() } else { Vec::new() };
    let permission = Permission { name: findings.kernel_name.clone(), signatures };
    let objections = findings.objections(&permission);
    if let (Some(device), true) = (device, objections.is_empty()) {
        return Ok(Checked::Device(device));
    }
    let hint = if force { "" } else { " (--force overwrites a file system or partition table)" };
    Err(ToolFailure::refused(path.display(), format!("{}{hint}", objections.join("; "))))
}

/// Where this process sees a device mounted, by whatever file system.
pub fn mounted_at(path: &Path) -> Option<PathBuf> {
    let canonical = path.canonicalize().ok()?;
    let is_it = |mount: &Mount| {
        let source = &mount.source;
        source.is_absolute()
            && (*source == canonical || source.canonicalize().is_ok_and(|one| one == canonical))
    };
    mounts().ok()?.into_iter().find(is_it).map(|mount| mount.point)
}

/// A process whose mount namespace has a device mounted: one that was made while the device was
/// mounted here has a copy of that mount, which an unmount here does not end.
fn mounted_elsewhere(path: &Path) -> Option<String> {
    let canonical = path.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let holder = names.find(|name| {
        // Reading of another process may be forbidden; then it stays unnamed.
        name.bytes().all(|byte| byte.is_ascii_digit())
            && mounts_of(&Path::new("/proc").join(name).join("mountinfo"), |_| true)
                .is_ok_and(|mounts| mounts.iter().any(|mount| mount.source == canonical))
    })?;
    let command = std::fs::read_to_string(format!("/proc/{holder}/comm")).unwrap_or_default();
    Some(format!("process {holder} ({})", command.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::common::Loop;

    #[test]
    fn what_is_opened_after_the_check_is_what_was_checked() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| home.path().join(name);
        let path = at("path");
        let lead_to = |target: &Path| {
            let _ = std::fs::remove_file(&path);
            symlink(target, &path).unwrap();
        };
        let opened = || FileDevice::open(&path, &FileDeviceOptions::default()).unwrap();
        for name in ["one", "other"] {
            FileDevice::create(at(name), 1 << 20).unwrap();
        }
        lead_to(&at("one"));
        let checked = check_free(&path, false, false).unwrap();
        checked.verify(&opened()).unwrap();
        lead_to(&at("other"));
        let refused = checked.verify(&opened()).unwrap_err().to_string();
        assert!(refused.contains("something else than what was checked"), "{refused}");

        let (Some(disk), Some(foreign)) = (Loop::of_megabytes(16), Loop::of_megabytes(16)) else {
            return;
        };
        lead_to(&disk.node);
        let checked = check_free(&path, false, false).unwrap();
        checked.verify(&opened()).unwrap();
        lead_to(&foreign.node);
        assert!(checked.verify(&opened()).is_err(), "another disk");
        lead_to(&at("one"));
        assert!(checked.verify(&opened()).is_err(), "an image where a disk was");
        std::fs::remove_file(&path).unwrap();
        let checked = check_free(&path, true, false).unwrap();
        lead_to(&foreign.node);
        assert!(checked.verify(&opened()).is_err(), "a disk where nothing was");
    }

    #[test]
    fn an_image_that_was_not_checked_keeps_its_length_and_none_is_left_behind() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("image");
        let make = || FileDevice::create(&path, 1 << 20).unwrap();
        let open = |checked: &Checked| {
            open_checked(&path, checked, Some(8192), Duration::ZERO).map(|device| device.len())
        };
        let checked = check_free(&path, true, false).unwrap();
        drop(make());
        assert!(
            matches!(open(&checked), Err(ToolFailure::Refused(_))),
            "an image where nothing was"
        );
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        let checked = check_free(&path, true, true).unwrap();
        std::fs::rename(&path, home.path().join("checked")).unwrap();
        assert!(
            matches!(open(&checked), Err(ToolFailure::Refused(_))),
            "nothing where an image was"
        );
        assert!(!path.exists());
        drop(make());
        assert!(matches!(open(&checked), Err(ToolFailure::Refused(_))), "another image");
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        std::fs::rename(home.path().join("checked"), &path).unwrap();
        assert_eq!((open(&checked).unwrap(), path.metadata().unwrap().len()), (8192, 8192));
    }

    #[test]
    fn words_become_sizes_or_a_refusal() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert!(size("9x").is_err() && size("").is_err() && size("99999999T").is_err());
    }
}
