//! The first process of a guest: finds the disk and the port, lays the image over this machine's
//! files, runs one command with the port as its input and output, and ends the guest with its code.
//!
//! Whatever goes wrong is said on the console, since nobody else is there to be told. What it writes
//! lies in memory and is gone with the guest.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_bind_recursive, mount_move};
use rustix::process::{WaitOptions, wait};

use trust::program;

use crate::console::{ALIVE, MARK, READY};

/// The emulator ends with twice the number written here and one.
pub(crate) const EXIT_PORT: u64 = 0x501;
/// What is written there for code 0: the emulator's own failures end it with 1.
pub(crate) const IN_ORDER: u8 = 32;
/// Greatest code that is told; as an end of the emulator it still fits.
const CODE_MAX: u8 = 90;
/// Name of the port that the command reads and writes.
pub(crate) const PORT: &str = "kurabe";
/// Name under which the host's files are shared.
pub(crate) const SHARE: &str = "host";
/// What the kernel's command line says where the command is to have the console.
pub(crate) const ON_CONSOLE: &str = "kurabe.console";

/// What stands before the names of further modules there. Loaded before the command runs, they are no
/// part of what it measures.
pub(crate) const MORE_MODULES: &str = "kurabe.modules=";

/// The directory in the guest that the command can use as its own; everything else there is
/// somebody's. Not below /run, which zfs-fuse has one of its own of.
pub const SCRATCH: &str = "/guest/scratch";
/// The disk under test, of several the first.
pub const DISK: &str = "/dev/vda";

/// The disk of this number, from 0: the kernel names them in the order in which the emulator gets them.
pub fn disk(number: u8) -> PathBuf {
    format!("/dev/vd{}", char::from(b'a' + number)).into()
}

/// Modules without which no command can run.
pub(crate) const MODULES: &[&str] =
    &["virtio_pci", "virtio_blk", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// How often it says that it lives, and how long devices are waited for.
const SIGN_INTERVAL: Duration = Duration::from_secs(2);
const DEVICE_WAIT_MAX: Duration = Duration::from_secs(20);

/// Where the guest's files come together.
const ROOT: &str = "/root-of-guest";

/// Runs `words` by this program; without any the guest only shows that it boots. Never returns in a
/// guest.
pub fn main(words: &[String]) -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("this is the first process of a guest, and nothing else");
        return ExitCode::from(2);
    }
    let code = begin(words).unwrap_or_else(|error| {
        say(&format!("cannot run a command: {error}"));
        255
    });
    leave(code);
    // Only where the emulator has no such port; the kernel panics, and the emulator ends.
    ExitCode::from(code)
}

fn begin(words: &[String]) -> io::Result<u8> {
    let none = MountFlags::empty();
    attach("devtmpfs", Path::new("/dev"), "devtmpfs", none, "")?;
    attach("proc", Path::new("/proc"), "proc", none, "")?;
    attach("sysfs", Path::new("/sys"), "sysfs", none, "")?;
    say("inside");
    if words.is_empty() {
        return Ok(0);
    }
    let command_line = fs::read_to_string("/proc/cmdline")?;
    let more = command_line.split_whitespace().find_map(|word| word.strip_prefix(MORE_MODULES));
    let modules = MODULES.iter().copied().chain(more.into_iter().flat_map(|more| more.split(',')));
    let status = program::as_given("/sbin/modprobe").arg("-a").args(modules).status()?;
    if !status.success() {
        say(&format!("modprobe ended with {status}"));
    }
    // Clusters are formed there; without their modules the kernel has none.
    let _ =
        attach("configfs", Path::new("/sys/kernel/config"), "configfs", MountFlags::empty(), "");
    lay_over()?;
    // It becomes the root of the namespace of mounts: in a mere chroot, nothing may become the user of a namespace.
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")?;
    let on_console = command_line.split_whitespace().any(|word| word == ON_CONSOLE);
    let port = if on_console { PathBuf::from("/dev/ttyS0") } else { wait_for_port()? };
    let port = File::options().read(true).write(true).open(port)?;
    say(READY);
    if !on_console {
        std::thread::spawn(|| {
            loop {
                say(ALIVE);
                std::thread::sleep(SIGN_INTERVAL);
            }
        });
    }
    run(words, port, on_console)
}

/// Puts the image over the host's files, and memory over both.
fn lay_over() -> io::Result<()> {
    let none = MountFlags::empty();
    for directory in ["/host", "/memory", ROOT] {
        fs::create_dir_all(directory)?;
    }
    attach("memory", Path::new("/memory"), "tmpfs", none, "mode=755")?;
    fs::create_dir("/memory/upper")?;
    fs::create_dir("/memory/work")?;
    let options = "trans=virtio,version=9p2000.L,msize=524288,cache=loose";
    attach(SHARE, Path::new("/host"), "9p", MountFlags::RDONLY, options)?;
    let layers = "lowerdir=/:/host,upperdir=/memory/upper,workdir=/memory/work";
    let root = Path::new(ROOT);
    attach("guest", root, "overlay", none, layers)?;
    for directory in ["dev", "proc", "sys"] {
        mount_bind_recursive(Path::new("/").join(directory), root.join(directory))?;
    }
    for (directory, mode) in [("run", "755"), ("guest", "700"), ("dev/shm", "1777")] {
        attach("memory", &root.join(directory), "tmpfs", none, &format!("mode={mode}"))?;
    }
    attach("devpts", &root.join("dev/pts"), "devpts", none, "")?;
    fs::DirBuilder::new().mode(0o700).create(root.join("guest/scratch"))?;
    // Its commands do without where the kernel has none.
    let _ = attach("groups", &root.join("sys/fs/cgroup"), "cgroup2", none, "");
    Ok(())
}

fn attach(source: &str, at: &Path, kind: &str, flags: MountFlags, data: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let data = CString::new(data)?;
    match mount(source, at, kind, flags, Some(data.as_c_str())) {
        // The kernel has it mounted already.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => {
            Err(io::Error::other(format!("mounting {kind} at {}: {error}", at.display())))
        }
    }
}

fn wait_for_port() -> io::Result<PathBuf> {
    let until = Instant::now() + DEVICE_WAIT_MAX;
    while Instant::now() < until {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            let node = Path::new("/dev").join(entry.file_name());
            if name.trim() == PORT && node.exists() {
                return Ok(node);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(io::Error::other("the port of the command did not come up"))
}

/// Runs the command, and waits for whatever else loses its parent.
fn run(words: &[String], port: File, on_console: bool) -> io::Result<u8> {
    let mut command = if on_console {
        // As root's shell would find it.
        program::as_given(&words[0])
    } else {
        program::itself()
    };
    command.args(&words[usize::from(on_console)..]);
    command
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .stdin(port.try_clone()?)
        .stdout(port.try_clone()?);
    let console = File::options().write(true).open("/dev/ttyS0")?;
    let child = command.stderr(Stdio::from(console)).spawn()?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() as u32 == child.id() => {
                let code = status.exit_status().unwrap_or(-1);
                return Ok(u8::try_from(code).unwrap_or(CODE_MAX));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends the guest, and tells the code.
fn leave(code: u8) {
    let port = File::options().write(true).open("/dev/port");
    let _ = port.and_then(|port| port.write_all_at(&[IN_ORDER + code.min(CODE_MAX)], EXIT_PORT));
}

fn say(text: &str) {
    let console = File::options().write(true).open("/dev/ttyS0");
    let _ = console.and_then(|mut console| console.write_all(format!("{MARK}{text}\n").as_bytes()));
}
