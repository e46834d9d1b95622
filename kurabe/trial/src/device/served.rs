//! A stack of layers between a device and a contender, served by a process of its own.
//!
//! That process has a mount namespace of its own, in which alone the stack is a file; the trial opens
//! that file through it, for its loop device, and nothing else. So no unmount of the trial waits for
//! a process that is itself about to unmount. It dies with the trial, and with it every request that
//! is not answered yet fails.
//!
//! They talk over a socket in lines of JSON: a request, a reply. What is served can be another stack
//! after a request than before it: first the recorder of a trial of power cuts, then what each cut leaves.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use block::{BlockDevice, CountingDevice, DirectAccess, FileDevice, FileDeviceOptions, Server};
use crash::{CrashState, CrashedDisk, FlushPolicy, Log, Recording, RequestRecorder, Stale, States};
use rustix::fs::OFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::layer::{self, BlockStack, Layered, ModelledLayer};
use crate::sys;

/// Requests of the kernel that are carried at a time.
const THREADS: usize = 32;

/// How many of them take requests at a time where no request waits for a device below. Who asks needs processors too:
/// a thread that is woken for a request takes one from it.
fn turns() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).clamp(1, THREADS))
}

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the server is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// Serve the device that came in as the standard input, below these layers.
    Layers { layers: Vec<String> },
    /// What modelled disks will say begins, or ends.
    Measure { begins: bool },
    /// Keep every request of the uppermost modelled disk from now on.
    KeepTrace,
    /// Write what was kept next to the served file; answered with how many requests found no room.
    WriteTrace,
    /// Serve fresh disks of so many bytes below these layers, and record them into the file that came in as
    /// the standard input, which may have so many bytes.
    Record { sizes_bytes: Vec<u64>, layers: Vec<String>, data_bytes_max: u64 },
    /// Take the recording that was kept in that file.
    Open { log: Log },
    /// The workload has said that something is durable.
    Acknowledge { text: crash::Line },
    /// The instant that was reached.
    Now,
    /// What was recorded so far, from now on to be cut.
    Log,
    /// Serve what a power cut leaves.
    Cut { state: CrashState, flushes: FlushPolicy },
}

/// What the server answers, of another type for each request; an error in words.
type Reply = Result<Value, String>;

/// Whether the kernel keeps pages of a served file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Every request reaches the server.
    None,
    /// What was read once, or ahead, is read from memory until something else is served. A mount reads its
    /// journal in hundreds of small pieces.
    Kept,
}

/// What a server says at its end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Said {
    /// Of the requests that reached the device below the layers.
    pub reached: Vec<String>,
    /// Of each disk that was modelled.
    pub disks: Vec<Value>,
}

/// The trial's side. The server is killed when this is dropped.
pub struct ServedDevice {
    server: Child,
    connection: BufReader<UnixStream>,
    point: PathBuf,
}

impl ServedDevice {
    /// Starts a server that has its file below `room`. `input` is the device below the layers, or the
    /// file of a recording.
    pub fn start(input: File, directory: &Path) -> io::Result<ServedDevice> {
        let point = directory.join("served");
        File::create(&point)?;
        let (connection, theirs) = UnixStream::pair()?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let server = trust::program::itself()
            .arg("serve")
            .args(trust::owner::words())
            .arg(&point)
            .stdin(input)
            .stdout(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()?;
        Ok(ServedDevice { server, connection: BufReader::new(connection), point })
    }

    /// Serves `layers` on top of the device, and opens that. Gives its block size in bytes too.
    pub fn layers(&mut self, layers: &[String]) -> io::Result<(File, u32)> {
        let block_size_bytes = self.ask(&Ask::Layers { layers: layers.to_vec() })?;
        Ok((self.open(0, Pages::None)?, block_size_bytes))
    }

    /// Serves fresh disks below `layers` and records them. Writes fail once the recording has `data_bytes_max`.
    pub fn record(
        &mut self,
        sizes_bytes: Vec<u64>,
        layers: &[String],
        data_bytes_max: u64,
    ) -> io::Result<()> {
        let layers = layers.to_vec();
        self.ask::<u32>(&Ask::Record { sizes_bytes, layers, data_bytes_max }).map(drop)
    }

    /// Begins, or ends, what modelled disks will say.
    pub fn measure(&mut self, begins: bool) -> io::Result<()> {
        self.ask(&Ask::Measure { begins })
    }

    /// Keeps every request of the uppermost modelled disk from now on.
    pub fn keep_trace(&mut self) -> io::Result<()> {
        self.ask(&Ask::KeepTrace)
    }

    /// What was kept, and how many requests found no room.
    pub fn trace(&mut self) -> io::Result<(File, u64)> {
        let lost = self.ask(&Ask::WriteTrace)?;
        Ok((File::open(trace_of(&self.point))?, lost))
    }

    /// Whether it has ended, and how.
    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.server.try_wait()
    }

    /// Takes a recording that was kept.
    pub fn take(&mut self, log: Log) -> io::Result<()> {
        self.ask(&Ask::Open { log })
    }

    /// Notes an acknowledgement.
    pub fn acknowledge(&mut self, text: crash::Line) -> io::Result<()> {
        self.ask(&Ask::Acknowledge { text })
    }

    pub fn now(&mut self) -> io::Result<crash::Instant> {
        self.ask(&Ask::Now)
    }

    /// What was recorded so far. What comes later is not cut.
    pub fn log(&mut self) -> io::Result<Log> {
        self.ask(&Ask::Log)
    }

    /// Serves from now on what a power cut leaves. Nothing may use what was served before.
    pub fn cut(&mut self, state: &CrashState, flushes: FlushPolicy) -> io::Result<()> {
        self.ask::<u32>(&Ask::Cut { state: state.clone(), flushes }).map(drop)
    }

    /// Opens the served file, of several disks that of this number.
    pub fn open(&self, number: usize, pages: Pages) -> io::Result<File> {
        let point = point_of(&self.point, number);
        let path = Path::new("/proc")
            .join(self.server.id().to_string())
            .join("root")
            .join(point.strip_prefix("/").unwrap_or(&point));
        let flags = if pages == Pages::None { libc::O_DIRECT } else { 0 };
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
    }

    /// Ends the server and gives what it says of the requests that reached the device, and what its
    /// layers say. Nothing uses the served file any more.
    pub fn end(mut self) -> io::Result<Said> {
        // A server that is gone says nothing, and its status says why.
        let _ = self.connection.get_ref().shutdown(std::net::Shutdown::Write);
        let said = self.hear();
        match self.server.wait()? {
            status if status.success() => said,
            status => Err(io::Error::other(format!("it had ended before ({status})"))),
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, ask: &Ask) -> io::Result<T> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.connection.get_mut().write_all(&line)?;
        self.hear()
    }

    fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut reply = String::new();
        if self.connection.read_line(&mut reply)? == 0 {
            // It has said why on the standard error output, if it could.
            return Err(io::Error::other("the server is gone"));
        }
        serde_json::from_str::<Result<T, String>>(&reply)?.map_err(io::Error::other)
    }
}

impl Drop for ServedDevice {
    fn drop(&mut self) {
        // It has ended by itself where all went well.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// `kurabe serve`: the device, or the file of a recording, comes in as the standard input.
pub fn main(point: &Path) -> ExitCode {
    match serve(point) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kurabe serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(point: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    sys::enter_mount_namespace()?;
    // What it serves may be what the kernel waits for to have memory again.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let connection = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut replies = connection.try_clone()?;
    let mut say = move |reply: &Reply| {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        replies.write_all(&line)
    };
    let mut serving = Serving { point: point.into(), ..Serving::default() };
    for line in BufReader::new(connection).lines() {
        let ask = serde_json::from_str(&line?).map_err(io::Error::other);
        say(&ask.and_then(|ask| serving.answer(ask)).map_err(|error| error.to_string()))?;
    }
    let said = Said {
        reached: serving.counted.iter().map(|device| counts_text(device)).collect(),
        disks: serving.disks.iter().map(|disk| disk.facts()).collect(),
    };
    say(&Ok(serde_json::to_value(said)?))
}

/// Where the disk of this number, from 0, is served.
fn point_of(point: &Path, number: usize) -> PathBuf {
    match number {
        0 => point.into(),
        _ => point.with_file_name(format!("served-{number}")),
    }
}

/// Where a trace is written.
fn trace_of(point: &Path) -> PathBuf {
    point.with_file_name("trace")
}

fn counts_text(device: &CountingDevice<FileDevice>) -> String {
    let counts = device.counts();
    format!(
        "below its layers the device had {} reads ({} bytes), {} writes ({} bytes), {} flushes",
        counts.reads, counts.read_bytes, counts.writes, counts.written_bytes, counts.flushes
    )
}

/// The server's side.
#[derive(Default)]
struct Serving {
    point: PathBuf,
    /// What is served, of each disk, once something is, and the server.
    tops: Vec<(Arc<Changeable>, Arc<Server>)>,
    counted: Option<Arc<CountingDevice<FileDevice>>>,
    /// Whether requests wait for a device below.
    is_direct: bool,
    disks: Vec<Arc<dyn ModelledLayer>>,
    recorder: Option<Arc<RequestRecorder<BlockStack>>>,
    recording: Option<Arc<Recording>>,
    /// The states of the recording on a disk that keeps its word, and on one that does not.
    states: Vec<(FlushPolicy, States)>,
    /// What the last cut left, where that is served.
    left: Option<Arc<CrashedDisk>>,
}

impl Serving {
    fn answer(&mut self, ask: Ask) -> io::Result<Value> {
        match ask {
            Ask::Layers { layers } => {
                // Memory is opened through the page cache, which it is.
                let flags = rustix::fs::fcntl_getfl(io::stdin())?;
                let is_direct = flags.contains(OFlags::DIRECT);
                let direct = if is_direct { DirectAccess::Require } else { DirectAccess::Never };
                let options = FileDeviceOptions { direct, ..Default::default() };
                let device = FileDevice::open("/proc/self/fd/0", &options)?;
                let counted = Arc::new(CountingDevice::new(device));
                self.counted = Some(counted.clone());
                self.is_direct = is_direct;
                let layered = below(&layers, Box::new(counted))?;
                self.disks = layered.disks;
                self.serve(vec![layered.stack], None)
            }
            Ask::Measure { begins } => {
                self.disks.iter().for_each(|disk| disk.measure(begins));
                Ok(Value::Null)
            }
            Ask::KeepTrace => {
                self.disk()?.keep_trace();
                Ok(Value::Null)
            }
            Ask::WriteTrace => {
                let mut file = BufWriter::new(File::create(trace_of(&self.point))?);
                let lost = self.disk()?.write_trace(&mut file)?;
                file.flush()?;
                Ok(lost.into())
            }
            Ask::Record { sizes_bytes, layers, data_bytes_max } => {
                let disk = CrashedDisk::over(Arc::new(Stale::new(sizes_bytes.iter().sum())));
                // A modelled disk is recorded as the host sees it, and has a cache of its own.
                let first = layers.iter().position(|layer| layer::is_modelled(layer));
                let (above, of_disk) = layers.split_at(first.unwrap_or(layers.len()));
                let below_it = below(of_disk, Box::new(disk))?;
                below_it.disks.iter().for_each(|disk| disk.follow_cache());
                self.disks = below_it.disks;
                let recorder =
                    RequestRecorder::new(below_it.stack, input()?).of_devices(&sizes_bytes);
                let recorder = Arc::new(recorder.with_bytes_max(data_bytes_max));
                self.recorder = Some(recorder.clone());
                let devices = recorder.recording().log.devices();
                let stacks = (0..).zip(devices).map(|(number, range)| {
                    let whole = recorder.clone();
                    let flush = Box::new(move || whole.flush_device(number));
                    let device = Window { below: recorder.clone(), range, flush };
                    below(above, Box::new(device)).map(|layered| layered.stack)
                });
                let stacks = stacks.collect::<io::Result<Vec<BlockStack>>>()?;
                self.serve(stacks, None)
            }
            Ask::Open { log } => {
                let recording = Recording::open(log, input()?).map_err(io::Error::other)?;
                self.recording = Some(Arc::new(recording));
                Ok(Value::Null)
            }
            Ask::Acknowledge { text } => {
                self.recorder()?.acknowledge(text);
                Ok(Value::Null)
            }
            Ask::Now => Ok(serde_json::to_value(self.recorder()?.now())?),
            Ask::Log => {
                let mut recording = self.recorder()?.recording();
                if let Some(disk) = self.disks.last() {
                    self.recorder()?.let_destage(&mut recording, |writes| disk.durable(writes));
                }
                let recording = Arc::new(recording);
                let log = serde_json::to_value(&recording.log)?;
                self.recording = Some(recording);
                Ok(log)
            }
            Ask::Cut { state, flushes } => {
                let disk = Arc::new(self.states(flushes)?.disk(&state));
                let devices = self.recording.as_ref().ok_or_else(nothing)?.log.devices();
                // What the kernel has read of the disk before is good where the two do not differ.
                let before = self.left.replace(disk.clone());
                let stale = before.map(|before| disk.differs_from(&before));
                let window = |range| -> BlockStack {
                    let (below, flush) = (disk.clone(), Box::new(|| Ok(())));
                    Box::new(Window { below, range, flush })
                };
                self.serve(devices.into_iter().map(window).collect(), stale)
            }
        }
    }

    fn disk(&self) -> io::Result<&dyn ModelledLayer> {
        let none = || io::Error::other("no disk is modelled");
        self.disks.last().map(|disk| &**disk).ok_or_else(none)
    }

    fn recorder(&self) -> io::Result<&RequestRecorder<BlockStack>> {
        self.recorder.as_deref().ok_or_else(nothing)
    }

    fn states(&mut self, flushes: FlushPolicy) -> io::Result<&States> {
        let recording = self.recording.as_ref().ok_or_else(nothing)?;
        let known = self.states.iter().position(|(of, _)| *of == flushes);
        let at = known.unwrap_or_else(|| {
            let before = Arc::new(Stale::new(recording.log.sectors * crash::SECTOR_BYTES));
            self.states.push((flushes, States::new(recording.clone(), before, flushes)));
            self.states.len() - 1
        });
        Ok(&self.states[at].1)
    }

    /// Serves stacks in the place of those before, each a disk, which lie one behind the other. They differ from
    /// those in the byte ranges `stale` alone; anywhere when these are absent.
    fn serve(
        &mut self,
        stacks: Vec<BlockStack>,
        stale: Option<Vec<Range<u64>>>,
    ) -> io::Result<Value> {
        let block_size_bytes = stacks[0].block_size();
        let threads = (THREADS / stacks.len()).max(2);
        let stale = stale.unwrap_or_else(|| std::iter::once(0..u64::MAX).collect());
        let mut begins = 0;
        for (number, stack) in stacks.into_iter().enumerate() {
            let ends = begins + stack.len();
            if let Some((top, server)) = self.tops.get(number) {
                *top.0.write().expect("no layer panics") = stack;
                let inside = |range: &Range<u64>| {
                    let range = range.start.max(begins)..range.end.min(ends);
                    (range.start < range.end).then(|| range.start - begins..range.end - begins)
                };
                stale.iter().filter_map(inside).try_for_each(|range| server.forget(range))?;
            } else {
                let top = Arc::new(Changeable(RwLock::new(stack)));
                let turns = if self.is_direct { threads } else { turns() };
                let point = point_of(&self.point, number);
                if number > 0 {
                    File::create_new(&point)?;
                }
                let server = Server::mount(Box::new(top.clone()), &point)?;
                let server = Arc::new(server.with_turns(turns));
                self.tops.push((top, server.clone()));
                let is_modelled = !self.disks.is_empty();
                for _ in 0..threads {
                    let server = server.clone();
                    std::thread::Builder::new().name("serve".into()).spawn(move || {
                        // A delay is to be as long as it was asked for.
                        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
                        if is_modelled {
                            // As a disk has a processor of its own. Without it replies are late, and say so.
                            let _ = sys::priority::go_first();
                        }
                        if let Err(error) = server.serve() {
                            eprintln!("kurabe serve: {error}");
                        }
                    })?;
                }
            }
            begins = ends;
        }
        Ok(block_size_bytes.into())
    }
}

/// Puts layers, the uppermost first, on top of a device.
fn below(layers: &[String], device: BlockStack) -> io::Result<Layered> {
    let put = |below, layer: &String| {
        layer::read(layer).and_then(|put| put(below)).map_err(io::Error::other)
    };
    layers.iter().rev().try_fold(Layered { stack: device, disks: Vec::new() }, put)
}

fn nothing() -> io::Error {
    io::Error::other("nothing was recorded")
}

fn input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// One of several disks that lie one behind the other.
struct Window<D> {
    below: Arc<D>,
    range: Range<u64>,
    flush: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl<D> Window<D> {
    /// Where on what is below.
    fn at(&self, offset: u64, length: u64) -> io::Result<u64> {
        let begins = self.range.start.checked_add(offset);
        let ends = begins.and_then(|begins| begins.checked_add(length));
        let is_inside = ends.is_some_and(|ends| ends <= self.range.end);
        begins.filter(|_| is_inside).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
    fn block_size(&self) -> u32 {
        self.below.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buffer, self.at(offset, buffer.len() as u64)?)
    }
    fn writes_at_once(&self) -> bool {
        self.below.writes_at_once()
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buffer, self.at(offset, buffer.len() as u64)?)
    }
    fn flush(&self) -> io::Result<()> {
        (self.flush)()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below.discard(self.at(offset, length)?, length)
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below.zero_range(self.at(offset, length)?, length)
    }
}

/// A stack in the place of which another can be put while nobody uses it. Their sizes are equal.
struct Changeable(RwLock<BlockStack>);

impl Changeable {
    fn with<T>(&self, act: impl FnOnce(&BlockStack) -> T) -> T {
        act(&self.0.read().expect("no layer panics"))
    }
}

impl BlockDevice for Changeable {
    fn len(&self) -> u64 {
        self.with(|stack| stack.len())
    }
    fn block_size(&self) -> u32 {
        self.with(|stack| stack.block_size())
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|stack| stack.read_at(buffer, offset))
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.with(|stack| stack.write_at(buffer, offset))
    }
    fn flush(&self) -> io::Result<()> {
        self.with(|stack| stack.flush())
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|stack| stack.discard(offset, length))
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|stack| stack.zero_range(offset, length))
    }
}
