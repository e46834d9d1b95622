//! The process that serves the disks of a trial of power cuts: first the one that is recorded,
//! then those that the cuts leave.
//!
//! It has a mount namespace of its own, as every server of a trial's devices, and dies with the
//! trial. They talk over a socket in lines of JSON: a request, a reply.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice, Server};
use crash::{Flushes, Instant, Log, Recorder, Recording, Stale, State, States};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Requests of the recorded disk that are carried at a time.
const RECORDING_THREADS: usize = 16;
/// Requests of a disk that a cut left that are carried at a time.
const STATE_THREADS: usize = 4;

/// What the server is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// Serve a fresh disk of so many bytes, and record it.
    Record { size_bytes: u64 },
    /// Serve the recording that was kept.
    Open { log: Log },
    /// The load has said that something is durable.
    Acknowledge { text: String },
    /// The instant that was reached.
    Now,
    /// What was recorded so far, from now on to be cut.
    Log,
    /// Serve what a power cut leaves.
    Cut { state: State, flushes: Flushes },
    /// Take away what is served.
    Remove,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Done,
    Served { name: String },
    Now { instant: Instant },
    Log { log: Log },
    Failed { message: String },
}

/// The trial's side.
pub struct Disks {
    server: Child,
    talk: BufReader<UnixStream>,
    room: PathBuf,
}

impl Disks {
    /// Starts the server, which has its files in `room` and keeps the recording in `data`.
    pub fn start(room: &Path, data: File) -> io::Result<Disks> {
        let room = room.join("disks");
        std::fs::create_dir(&room)?;
        let (talk, theirs) = UnixStream::pair()?;
        let server = Command::new("/proc/self/exe")
            .arg("serve-cuts")
            .args(trust::owner::words())
            .arg(&room)
            .stdin(data)
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        Ok(Disks { server, talk: BufReader::new(talk), room })
    }

    /// Serves a fresh disk, and records it.
    pub fn record(&mut self, size_bytes: u64) -> io::Result<File> {
        self.serve(&Ask::Record { size_bytes })
    }

    /// Takes a recording that was kept.
    pub fn open(&mut self, log: Log) -> io::Result<()> {
        self.ask(&Ask::Open { log }).map(drop)
    }

    /// Notes an acknowledgement.
    pub fn acknowledge(&mut self, text: String) -> io::Result<()> {
        self.ask(&Ask::Acknowledge { text }).map(drop)
    }

    /// The instant that was reached.
    pub fn now(&mut self) -> io::Result<Instant> {
        match self.ask(&Ask::Now)? {
            Reply::Now { instant } => Ok(instant),
            other => Err(unexpected(&other)),
        }
    }

    /// What was recorded so far. What comes later is not kept.
    pub fn log(&mut self) -> io::Result<Log> {
        match self.ask(&Ask::Log)? {
            Reply::Log { log } => Ok(log),
            other => Err(unexpected(&other)),
        }
    }

    /// Serves what a power cut leaves.
    pub fn cut(&mut self, state: &State, flushes: Flushes) -> io::Result<File> {
        self.serve(&Ask::Cut { state: state.clone(), flushes })
    }

    /// Takes away what is served; nothing uses it any more.
    pub fn remove(&mut self) -> io::Result<()> {
        self.ask(&Ask::Remove).map(drop)
    }

    fn serve(&mut self, ask: &Ask) -> io::Result<File> {
        let name = match self.ask(ask)? {
            Reply::Served { name } => name,
            other => return Err(unexpected(&other)),
        };
        let path = Path::new("/proc")
            .join(self.server.id().to_string())
            .join("root")
            .join(self.room.strip_prefix("/").unwrap_or(&self.room))
            .join(name);
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
    }

    fn ask(&mut self, ask: &Ask) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.talk.get_mut().write_all(&line)?;
        let mut reply = String::new();
        if self.talk.read_line(&mut reply)? == 0 {
            return Err(io::Error::other("the process that serves the disks is gone"));
        }
        match serde_json::from_str(&reply)? {
            Reply::Failed { message } => Err(io::Error::other(message)),
            reply => Ok(reply),
        }
    }
}

fn unexpected(reply: &Reply) -> io::Error {
    io::Error::other(format!("the process that serves the disks said {reply:?}"))
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// `kurabe serve-cuts`: the file for the recording comes in as the standard input.
pub fn main(room: &Path) -> ExitCode {
    match run(room) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kurabe serve-cuts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(room: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    sys::enter_mount_namespace()?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
    // What it serves may be what the kernel waits for to have memory again.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let data = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let talk = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut replies = talk.try_clone()?;
    let mut serving =
        Serving { room, data, recorder: None, recording: None, count: 0, point: None };
    for line in BufReader::new(talk).lines() {
        let reply = serde_json::from_str(&line?)
            .map_err(io::Error::other)
            .and_then(|ask| serving.answer(ask))
            .unwrap_or_else(|error| Reply::Failed { message: error.to_string() });
        let mut line = serde_json::to_vec(&reply)?;
        line.push(b'\n');
        replies.write_all(&line)?;
    }
    Ok(())
}

/// The server's side.
struct Serving<'a> {
    room: &'a Path,
    data: File,
    recorder: Option<Arc<Recorder<MemoryDevice>>>,
    recording: Option<Recording>,
    count: usize,
    point: Option<PathBuf>,
}

impl Serving<'_> {
    fn answer(&mut self, ask: Ask) -> io::Result<Reply> {
        match ask {
            Ask::Record { size_bytes } => {
                let memory = MemoryDevice::new(size_bytes, 512);
                fill(&memory)?;
                let recorder = Arc::new(Recorder::new(memory, self.data.try_clone()?));
                self.recorder = Some(recorder.clone());
                self.serve(Box::new(recorder), RECORDING_THREADS)
            }
            Ask::Open { log } => {
                let recording = Recording::open(log, self.data.try_clone()?);
                self.recording = Some(recording.map_err(io::Error::other)?);
                Ok(Reply::Done)
            }
            Ask::Acknowledge { text } => {
                self.recorder()?.acknowledge(&text);
                Ok(Reply::Done)
            }
            Ask::Now => Ok(Reply::Now { instant: self.recorder()?.now() }),
            Ask::Log => {
                let recording = self.recorder()?.recording();
                let log = recording.log.clone();
                self.recording = Some(recording);
                Ok(Reply::Log { log })
            }
            Ask::Cut { state, flushes } => {
                let recording = self.recording.as_ref().ok_or_else(nothing)?;
                let before: Arc<dyn BlockDevice> =
                    Arc::new(Stale::new(recording.log.sectors * crash::SECTOR_BYTES));
                let disk = States::new(recording, before, flushes).disk(&state);
                self.serve(Box::new(disk), STATE_THREADS)
            }
            Ask::Remove => {
                if let Some(point) = self.point.take() {
                    unmount(&point, UnmountFlags::DETACH)?;
                    std::fs::remove_file(&point)?;
                }
                Ok(Reply::Done)
            }
        }
    }

    fn recorder(&self) -> io::Result<&Arc<Recorder<MemoryDevice>>> {
        self.recorder.as_ref().ok_or_else(nothing)
    }

    fn serve(&mut self, disk: Box<dyn BlockDevice>, threads: usize) -> io::Result<Reply> {
        self.count += 1;
        let name = self.count.to_string();
        let point = self.room.join(&name);
        File::create(&point)?;
        let server = Arc::new(Server::mount(disk, &point)?);
        for _ in 0..threads {
            let server = server.clone();
            std::thread::Builder::new().name("serve".into()).spawn(move || {
                if let Err(error) = server.serve() {
                    eprintln!("kurabe serve-cuts: {error}");
                }
            })?;
        }
        self.point = Some(point);
        Ok(Reply::Served { name })
    }
}

fn nothing() -> io::Error {
    io::Error::other("nothing was recorded")
}

/// Fills the device as it is before every state: with bytes that look like nothing.
fn fill(device: &MemoryDevice) -> io::Result<()> {
    let stale = Stale::new(device.len());
    let mut bytes = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < device.len() {
        let step = bytes.len().min((device.len() - offset) as usize);
        stale.read_at(&mut bytes[..step], offset)?;
        device.write_at(&bytes[..step], offset)?;
        offset += step as u64;
    }
    Ok(())
}
