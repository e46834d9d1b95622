//! A stack of layers between a device and a contender, served by a process of its own.
//!
//! That process has a mount namespace of its own, in which alone the stack is a file; the trial opens
//! that file through it, for its loop device, and nothing else. So no unmount of the trial waits for
//! a process that is itself about to unmount. It dies with the trial, and with it every request that
//! is not answered yet fails.
//!
//! They talk over a socket: the server says its block size when it is ready, and, once the trial has ended its side,
//! what the device below was asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use block::{DirectAccess, FileDevice, FileDeviceOptions, RecordingDevice, Server};
use rustix::fs::OFlags;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::layer::{self, Stack};
use crate::sys;

/// Requests that are carried at a time.
const THREADS: usize = 32;

/// How long the server may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stack that is served for one trial. The server is killed when this is dropped.
pub struct Served {
    server: Child,
    talk: UnixStream,
}

impl Served {
    /// Serves `layers` on top of `device` in a file below `room`, and opens that. Gives its block size
    /// in bytes too.
    pub fn start(device: File, layers: &[String], room: &Path) -> io::Result<(Served, File, u32)> {
        let point = room.join("served");
        File::create(&point)?;
        let (talk, theirs) = UnixStream::pair()?;
        talk.set_read_timeout(Some(PATIENCE))?;
        let server = Command::new("/proc/self/exe")
            .arg("serve")
            .args(trust::owner::words())
            .arg(&point)
            .args(layers)
            .stdin(device)
            .stdout(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()?;
        let mut served = Served { server, talk };
        let mut said = [0; size_of::<u32>()];
        // It has said why on the standard error output, if it could.
        served.talk.read_exact(&mut said).map_err(|error| {
            io::Error::new(error.kind(), format!("the server did not begin: {error}"))
        })?;
        let path = Path::new("/proc")
            .join(served.server.id().to_string())
            .join("root")
            .join(point.strip_prefix("/").unwrap_or(&point));
        let direct = libc::O_DIRECT;
        let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
        Ok((served, file, u32::from_ne_bytes(said)))
    }

    /// Ends the server and gives what it says of the requests that reached the device. Nothing uses
    /// the served file any more.
    pub fn end(mut self) -> io::Result<String> {
        // A server that is gone says nothing, and its status says why.
        let _ = self.talk.shutdown(std::net::Shutdown::Write);
        let mut said = String::new();
        self.talk.read_to_string(&mut said)?;
        let status = self.server.wait()?;
        match status.success() {
            true => Ok(said),
            false => Err(io::Error::other(format!("it had ended before ({status})"))),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended by itself where all went well.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// `kurabe serve`: the device comes in as the standard input.
pub fn main(point: &Path, layers: &[String]) -> ExitCode {
    match serve(point, layers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kurabe serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(point: &Path, layers: &[String]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    sys::enter_mount_namespace()?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
    // What it serves may be what the kernel waits for to have memory again.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    // Memory is opened through the page cache, which it is.
    let is_direct = rustix::fs::fcntl_getfl(io::stdin())?.contains(OFlags::DIRECT);
    let direct = if is_direct { DirectAccess::Require } else { DirectAccess::Never };
    let options = FileDeviceOptions { direct, ..Default::default() };
    let device = FileDevice::open("/proc/self/fd/0", &options)?;
    let counted = Arc::new(RecordingDevice::counting(device));
    let mut stack: Stack = Box::new(counted.clone());
    for layer in layers.iter().rev() {
        stack = layer::read(layer).map_err(io::Error::other)?(stack);
    }
    let server = Arc::new(Server::mount(stack, point)?);
    for _ in 0..THREADS {
        let server = server.clone();
        std::thread::Builder::new().name("serve".into()).spawn(move || {
            // A delay is to be as long as it was asked for.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            if let Err(error) = server.serve() {
                eprintln!("kurabe serve: {error}");
            }
        })?;
    }
    let mut talk = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    talk.write_all(&server.stack().block_size().to_ne_bytes())?;
    talk.read_to_end(&mut Vec::new())?;
    let counts = counted.counts();
    write!(
        talk,
        "below its layers the device had {} reads ({} bytes), {} writes ({} bytes), {} flushes",
        counts.reads, counts.read_bytes, counts.writes, counts.written_bytes, counts.flushes
    )
}
