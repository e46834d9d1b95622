//! `minfs mount` and `minfs umount`: options, the daemon, signals, and exit codes of mount(8).
//!
//! The daemon is this program started once more in the foreground: it reports on a pipe once the
//! volume is mounted, so the caller's exit code tells whether it is. On SIGTERM, SIGINT or SIGHUP
//! it unmounts; a busy mount disappears from the tree at once and is served until its last file
//! is closed.
//!
//! The paths of the device and the directory are made real first: links of strangers are refused, and
//! directories that strangers can change, so that nobody can make the kernel mount or unmount elsewhere.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use block::tool::{self, ToolFailure, is_write_protected, mounted_at, mounts, real_path};
use fuser::MountOption;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::MountArguments;
use crate::device::open;
use crate::fuse::FuseOptions;
use crate::{MountOptions, Severity, Volume};

/// How many threads may serve requests.
const THREADS: std::ops::RangeInclusive<u32> = 1..=256;

/// Exit code of mount(8): a wrong command line.
const EXIT_USAGE: u8 = 1;
/// Exit code of mount(8): an error of the system.
const EXIT_SYSTEM: u8 = 2;
/// Exit code of mount(8): the mount failed.
const EXIT_FAILED: u8 = 32;
/// What the daemon writes on its pipe once it serves.
const READY: &[u8] = b"ready\n";
/// The environment variable that tells the daemon that someone waits on its standard output.
const READY_VARIABLE: &str = "MINFS_TELL_WHEN_READY";
/// How long `umount` waits for the daemon to let go of the device.
const UMOUNT_WAIT: Duration = Duration::from_secs(15);

/// Options that are said for mount(8) itself, or are already so: attributes are checked by the kernel
/// in any case, and reads change no time. The last ones are what the kernel shows of a mount, which
/// mount(8) hands back when it is to be changed.
const UNHEEDED: &str = "defaults auto noauto user users nouser owner group nofail _netdev dev exec \
    async atime relatime norelatime strictatime nostrictatime lazytime nolazytime diratime \
    nodiratime iversion noiversion mand nomand nosymfollow silent loud default_permissions \
    user_id group_id max_read blksize comment subtype fsname";

/// What the options of mount(8) ask for.
#[derive(Debug, Default, PartialEq)]
struct Wishes {
    read_only: bool,
    discard: bool,
    direct_io: bool,
    writeback_cache: bool,
    zero_fallocate: bool,
    allow_other: bool,
    foreground: bool,
    remount: bool,
    threads: usize,
    root: (u16, u32, u32),
    kernel_options: Vec<MountOption>,
}

impl Wishes {
    fn parse(lists: &[String], sloppy: bool) -> Result<Self, String> {
        let mut wishes = Self {
            // Only root may let others in without a word in /etc/fuse.conf.
            allow_other: rustix::process::geteuid().is_root(),
            threads: 16,
            root: (0o755, rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
            ..Self::default()
        };
        for option in lists.iter().flat_map(|list| list.split(',')) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let number = |radix| {
                let kind = if radix == 8 { "octal number" } else { "number" };
                u32::from_str_radix(value, radix).map_err(|_| format!("{option}: no {kind}"))
            };
            match key {
                "ro" => wishes.read_only = true,
                "rw" => wishes.read_only = false,
                "discard" => wishes.discard = true,
                "nodiscard" => wishes.discard = false,
                "direct_io" => wishes.direct_io = true,
                "writeback_cache" => wishes.writeback_cache = true,
                "zero_fallocate" => wishes.zero_fallocate = true,
                "allow_other" => wishes.allow_other = true,
                "foreground" => wishes.foreground = true,
                "remount" => wishes.remount = true,
                "threads" => {
                    let threads = number(10)?;
                    if !THREADS.contains(&threads) {
                        return Err(format!("{option}: {} to {}", THREADS.start(), THREADS.end()));
                    }
                    wishes.threads = threads as usize;
                }
                "root_mode" => wishes.root.0 = (number(8)? & 0o7777) as u16,
                "root_user" => wishes.root.1 = number(10)?,
                "root_group" => wishes.root.2 = number(10)?,
                "nodev" => wishes.kernel_options.push(MountOption::NoDev),
                "nosuid" => wishes.kernel_options.push(MountOption::NoSuid),
                "suid" => wishes.kernel_options.push(MountOption::Suid),
                "noexec" => wishes.kernel_options.push(MountOption::NoExec),
                "noatime" => wishes.kernel_options.push(MountOption::NoAtime),
                "sync" => wishes.kernel_options.push(MountOption::Sync),
                "dirsync" => wishes.kernel_options.push(MountOption::DirSync),
                _ if key.is_empty() || UNHEEDED.split_whitespace().any(|known| known == key) => {}
                _ if key.starts_with("x-") || key.starts_with("X-") || sloppy => {}
                _ => return Err(format!("unknown option {option:?}")),
            }
        }
        Ok(wishes)
    }
}

/// Mounts a volume; returns the exit code.
pub fn mount(arguments: &MountArguments) -> ExitCode {
    let failed = |code: u8, error: String| {
        block::complain!("mount.minfs: {error}");
        ExitCode::from(code)
    };
    let wishes = match Wishes::parse(&arguments.options, arguments.sloppy) {
        Ok(wishes) => wishes,
        Err(error) => return failed(EXIT_USAGE, error),
    };
    let directory = match real_path(&arguments.directory) {
        Ok(directory) => directory,
        Err(failure) => return failed(EXIT_FAILED, failure.to_string()),
    };
    if !directory.is_dir() {
        return failed(EXIT_FAILED, format!("{}: no directory", arguments.directory.display()));
    }
    if wishes.remount {
        return match remount(&directory, &wishes) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                failed(EXIT_FAILED, format!("{}: {error}", arguments.directory.display()))
            }
        };
    }
    let outcome = if arguments.foreground || wishes.foreground || arguments.fake {
        serve(arguments, wishes).map_err(|error| (EXIT_FAILED, error))
    } else {
        start_daemon(arguments)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) if error.is_empty() => ExitCode::from(code),
        Err((code, error)) => failed(code, error),
    }
}

/// Changes the flags of a mount that stands; the options of the daemon stay as they are.
fn remount(directory: &Path, wishes: &Wishes) -> Result<(), String> {
    let source = source_of(directory).ok_or("no minfs is mounted there")?;
    if !wishes.read_only && is_write_protected(&source) {
        return Err(format!(
            "{} is write-protected, so the daemon reads only: lift that, unmount it and mount it again",
            source.display()
        ));
    }
    crate::fuse::remount(directory, wishes.read_only, &wishes.kernel_options)
        .map_err(|error| format!("cannot remount: {error}"))
}

/// Starts this program in the foreground and waits until it serves or ends.
fn start_daemon(arguments: &MountArguments) -> Result<(), (u8, String)> {
    let system = |error: std::io::Error| (EXIT_SYSTEM, error.to_string());
    let mut command = tool::program::itself();
    command
        .arg0("minfs")
        .args(["mount", "--foreground"])
        .args(arguments.sloppy.then_some("--sloppy"))
        .args(arguments.verbose.then_some("--verbose"));
    for options in &arguments.options {
        command.args(["-o", options]);
    }
    let mut daemon = command
        .arg("--")
        .arg(&arguments.device)
        .arg(&arguments.directory)
        .env(READY_VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(system)?;
    let mut said = Vec::new();
    let mut output = daemon.stdout.take().expect("the output is piped");
    output.read_to_end(&mut said).map_err(system)?;
    if said == READY {
        return Ok(());
    }
    // It ended without serving and has said why on the standard error output, which is ours.
    let status = daemon.wait().map_err(system)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Err((code.unwrap_or(EXIT_SYSTEM), String::new()))
}

/// Tells root's log as well, since a daemon has no standard error output any more.
fn announce(source: &str, message: &str) {
    block::complain!("minfs: {source}: {message}");
    if let Ok(mut log) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        // Each write is a record of its own there.
        let _ = log.write_all(format!("<3>minfs: {source}: {message}\n").as_bytes());
    }
}

/// Mounts and serves until unmounted.
fn serve(arguments: &MountArguments, mut wishes: Wishes) -> Result<(), String> {
    // Started through /proc/self/exe, it would be `exe` in ps, top and pgrep. Its threads inherit
    // the name, so it comes first.
    rustix::thread::set_name(c"minfs").map_err(|error| error.to_string())?;
    let path = |path: &Path| real_path(path).map_err(|failure| failure.to_string());
    let (device_path, directory) = (path(&arguments.device)?, path(&arguments.directory)?);
    let source = device_path.to_string_lossy().into_owned();
    if !wishes.read_only && is_write_protected(&device_path) {
        block::complain!("mount.minfs: {source}: it is write-protected, mounting read-only");
        wishes.read_only = true;
    }
    let device = open(&device_path, wishes.read_only).map_err(|failure| failure.to_string())?;
    let options =
        MountOptions { read_only: wishes.read_only, discard: wishes.discard, ..Default::default() };
    let volume =
        Volume::mount(Arc::new(device), &options).map_err(|error| format!("{source}: {error}"))?;
    for finding in volume.findings() {
        if arguments.verbose || finding.severity != Severity::Note {
            block::complain!("mount.minfs: {source}: {}", finding.text);
        }
    }
    let reason = volume.read_only_reason();
    if let Some(reason) = &reason
        && !wishes.read_only
    {
        block::complain!("mount.minfs: {source}: mounted read-only: {reason}");
    }
    if arguments.fake {
        return volume.unmount().map_err(|error| error.to_string());
    }
    let fuse_options = FuseOptions {
        read_only: reason.is_some(),
        direct_io: wishes.direct_io,
        writeback_cache: wishes.writeback_cache,
        zero_fallocate: wishes.zero_fallocate,
        allow_other: wishes.allow_other,
        threads: wishes.threads,
        source: source.clone(),
        root: wishes.root,
        kernel_options: wishes.kernel_options,
    };
    let announced = source.clone();
    let on_read_only = Box::new(move |reason: &str| announce(&announced, reason));
    // Signals are caught before the mount exists, so that none can end the program between.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| error.to_string())?;
    let mut mounted = crate::fuse::mount(volume, &directory, fuse_options, on_read_only)
        .map_err(|error| format!("{}: cannot mount: {error}", directory.display()))?;
    let mut unmount = mounted.unmounter();
    std::thread::spawn(move || {
        for _signal in signals.forever() {
            if let Err(error) = unmount() {
                block::complain!("minfs: cannot unmount: {error}");
            }
        }
    });
    if std::env::var_os(READY_VARIABLE).is_some() {
        detach().map_err(|error| format!("cannot become a daemon: {error}"))?;
    }
    mounted.run().map_err(|error| {
        announce(&source, &format!("the mount ended: {error}"));
        error.to_string()
    })
}

/// Leaves the caller's session and directory, tells it that the mount stands, and lets go of its
/// output.
fn detach() -> std::io::Result<()> {
    // A process group leader may not start a session; it is in one of its own then already.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let mut output = std::io::stdout().lock();
    output.write_all(READY)?;
    output.flush()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// The source of the topmost mount at `directory`, if that is a minfs.
fn source_of(directory: &Path) -> Option<PathBuf> {
    let topmost = mounts().ok()?.into_iter().rfind(|mount| mount.point == directory)?;
    (topmost.file_system == "fuse.minfs").then_some(topmost.source)
}

/// Unmounts and waits until the daemon has written everything and let go of the device.
pub fn umount(directory: &Path) -> Result<(), ToolFailure> {
    let shown = directory.display();
    let directory = real_path(directory)?;
    let source = source_of(&directory)
        .ok_or_else(|| ToolFailure::refused(&shown, "no minfs is mounted there"))?;
    let outcome = rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::NOFOLLOW);
    match outcome {
        Ok(()) => {}
        Err(rustix::io::Errno::PERM) => {
            let mut command = tool::program::command("fusermount3")
                .map_err(|not_found| ToolFailure::failed(&shown, not_found))?;
            if !command.arg("-u").arg(&directory).status().is_ok_and(|status| status.success()) {
                return Err(ToolFailure::failed(&shown, "fusermount3 could not unmount it"));
            }
        }
        Err(rustix::io::Errno::BUSY) => {
            let why = "it is in use; `fuser -vm` with the directory tells by whom";
            return Err(ToolFailure::failed(&shown, why));
        }
        Err(error) => return Err(ToolFailure::failed(&shown, error)),
    }
    let opened = tool::open(&source, true, UMOUNT_WAIT);
    // Mounted in a second place, or removed meanwhile: there is nothing to wait for.
    let is_in_no_use = || mounted_at(&source).is_some() || matches!(source.try_exists(), Ok(false));
    match opened {
        Err(failure) if !is_in_no_use() => {
            let why = format!("unmounted, but its daemon may still be writing: {failure}");
            Err(ToolFailure::failed(shown, why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Result<Wishes, String> {
        Wishes::parse(&[options.to_string()], false)
    }

    #[test]
    fn options_of_fstab_are_understood() {
        let wishes =
            parse("noauto,_netdev,user=x,nofail,x-systemd.automount,ro,discard,threads=3").unwrap();
        assert!(wishes.read_only && wishes.discard && !wishes.direct_io);
        assert_eq!(wishes.threads, 3);
        let wishes = parse("ro,rw,root_mode=1777,root_user=5,nodev").unwrap();
        assert!(!wishes.read_only);
        assert_eq!((wishes.root.0, wishes.root.1), (0o1777, 5));
        assert_eq!(wishes.kernel_options, [MountOption::NoDev]);
    }

    #[test]
    fn unknown_options_are_refused_unless_sloppy() {
        assert!(parse("colour=blue").unwrap_err().contains("colour=blue"));
        assert!(parse("threads=many").is_err());
        assert!(parse("threads=0").is_err_and(|said| said.contains("1 to 256")));
        assert!(parse("root_mode=999").is_err_and(|said| said.contains("octal")));
        assert!(Wishes::parse(&["colour=blue".into()], true).is_ok());
    }
}
