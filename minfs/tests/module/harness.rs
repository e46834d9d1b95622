//! The guest in which the kernel's module is tested, and the disk that the guest is given: shared by the
//! tests of the module.
//!
//! Skips where `MINFS_MODULE_GUEST` names no guest.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use block::{BlockDevice, MemoryDevice, Server};
use crash::RequestRecorder;

use crate::script::Target;

pub const BLOCK_BYTES: u32 = 512;
pub const NEVER: u64 = u64::MAX;

/// A disk whose content is another one for each script.
pub struct Disk {
    pub recorder: RwLock<Arc<RequestRecorder<MemoryDevice>>>,
    pub ignores_flushes: AtomicBool,
    pub fails_reads: AtomicBool,
    /// So many writes and flushes succeed, and the next one fails.
    pub succeeds: AtomicU64,
    /// The same of flushes alone.
    pub flushes: AtomicU64,
    /// From now on nothing may be written; and how many writes there were.
    pub is_stopped: AtomicBool,
    pub late_writes: AtomicU64,
    pub bytes_read: AtomicU64,
    /// What a write and a flush take at least, so that threads meet in them.
    delay: Duration,
}

impl Disk {
    pub fn new(image: &[u8], delay: Duration) -> Self {
        let recorder = RwLock::new(recorder_of(image));
        let (ignores_flushes, fails_reads) = (AtomicBool::new(false), AtomicBool::new(false));
        let (succeeds, flushes) = (AtomicU64::new(NEVER), AtomicU64::new(NEVER));
        Self {
            recorder,
            ignores_flushes,
            fails_reads,
            succeeds,
            flushes,
            is_stopped: AtomicBool::new(false),
            late_writes: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            delay,
        }
    }

    fn fail_in_turn(counter: &AtomicU64) -> io::Result<()> {
        if counter.fetch_sub(1, Ordering::SeqCst) == 0 {
            counter.store(NEVER, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        Ok(())
    }

    pub fn recorder(&self) -> Arc<RequestRecorder<MemoryDevice>> {
        self.recorder.read().unwrap().clone()
    }
}

pub fn recorder_of(base: &[u8]) -> Arc<RequestRecorder<MemoryDevice>> {
    Arc::new(RequestRecorder::in_memory(MemoryDevice::from_image(base, BLOCK_BYTES)).unwrap())
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.recorder().len()
    }

    fn block_size(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.fails_reads.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        self.bytes_read.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        self.recorder().read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        std::thread::sleep(self.delay);
        Self::fail_in_turn(&self.succeeds)?;
        if self.is_stopped.load(Ordering::SeqCst) {
            self.late_writes.fetch_add(1, Ordering::SeqCst);
        }
        self.recorder().write_at(buffer, offset)
    }

    fn flush(&self) -> io::Result<()> {
        if self.ignores_flushes.load(Ordering::SeqCst) {
            return Ok(());
        }
        Self::fail_in_turn(&self.succeeds)?;
        Self::fail_in_turn(&self.flushes)?;
        // What completes from here on is not covered.
        let covered = self.recorder().flush();
        std::thread::sleep(self.delay);
        covered
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.recorder().discard(offset, length)
    }
}

/// The agent in a guest; the guest ends when this is dropped.
pub struct Guest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unmounts when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// How often a guest is booted that ends before the module is loaded.
const BOOTS_MAX: usize = 4;

impl Guest {
    /// Boots a guest, and again if it ends before the module is loaded: under QEMU 7.2 without KVM a booting
    /// kernel was seen to panic (`Oops: int3`) where it patches its own code. Once the module is loaded,
    /// every end of the guest is a failure.
    pub fn boot(program: &str, point: &Path) -> Self {
        for number in 1..=BOOTS_MAX {
            let mut guest = Self::start(program, point);
            if guest.receive() == "booted" {
                return guest;
            }
            let status = guest.child.wait();
            println!("boot {number}: the guest ended before the module was loaded: {status:?}");
        }
        panic!(
            "{BOOTS_MAX} guests of {program} ended before the module was loaded; see their consoles"
        );
    }

    fn start(program: &str, point: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    pub fn receive(&mut self) -> String {
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_string()
    }

    /// Sends a line, and returns the number that is the answer.
    pub fn number(&mut self, line: &str) -> u64 {
        self.send(line);
        let answer = self.receive();
        answer.parse().unwrap_or_else(|_| panic!("{line}: '{answer}'"))
    }

    /// Sends a line, and says whether it was done.
    pub fn ask(&mut self, line: &str) -> bool {
        self.send(line);
        match self.receive().as_str() {
            "done" => true,
            // What a full volume or a name answers; everything else is a fault.
            "ENOENT" | "EEXIST" | "ENOSPC" | "EFBIG" => false,
            other => panic!("{}: '{other}'", &line[..line.len().min(60)]),
        }
    }

    /// That this function of direct.c was called, which the test is for.
    pub fn assert_called(&mut self, name: &str) {
        let count = self.number(&format!("ends {name}"));
        println!("{name}: {count} times");
        assert!(count > 0);
    }
}

pub fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap()
}

impl Target for &mut Guest {
    fn create(&mut self, name: &[u8]) -> bool {
        self.ask(&format!("create {}", text(name)))
    }

    fn unlink(&mut self, name: &[u8]) -> bool {
        self.ask(&format!("unlink {}", text(name)))
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        self.ask(&format!("rename {} {}", text(from), text(to)))
    }

    fn truncate(&mut self, name: &[u8], size: u64) -> bool {
        self.ask(&format!("truncate {} {size}", text(name)))
    }

    fn preallocate(
        &mut self,
        name: &[u8],
        offset: u64,
        length: u64,
        keep: bool,
        zero: bool,
    ) -> bool {
        let (keep, zero) = (u8::from(keep), u8::from(zero));
        self.ask(&format!("preallocate {} {offset} {length} {keep} {zero}", text(name)))
    }

    fn hold(&mut self, name: &[u8]) -> bool {
        self.ask(&format!("hold {}", text(name)))
    }

    fn drop_held(&mut self, index: usize) {
        assert!(self.ask(&format!("drop {index}")));
    }

    fn sync(&mut self, name: &[u8]) {
        assert!(self.ask(&format!("sync {}", text(name))));
    }

    fn write(&mut self, name: &[u8], bytes: &[u8], offset: u64) -> bool {
        let mut line = format!("write {} {offset} ", text(name));
        bytes.iter().for_each(|byte| write!(line, "{byte:02x}").unwrap());
        self.ask(&line)
    }

    fn unmount(&mut self) {
        assert!(self.ask("unmount"));
    }
}

pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn guest_program() -> Option<String> {
    let program = std::env::var("MINFS_MODULE_GUEST").ok();
    if program.is_none() {
        eprintln!("SKIPPED: MINFS_MODULE_GUEST names no guest");
    }
    program
}

/// Boots a guest with this disk and has `test` use it.
pub fn in_guest(disk: &Arc<Disk>, test: impl FnOnce(&mut Guest)) {
    let Some(program) = guest_program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().join("disk");
    File::create(&point).unwrap();
    let server = Arc::new(Server::mount(Box::new(disk.clone()), &point).unwrap());
    let _mounted = Mounted(&point);
    for _ in 0..4 {
        let server = server.clone();
        std::thread::spawn(move || server.serve());
    }
    use_guest(Guest::boot(&program, &point), test);
}

/// Has `test` use the guest, whose kernel must have nothing to complain of at the end.
fn use_guest(mut guest: Guest, test: impl FnOnce(&mut Guest)) {
    test(&mut guest);
    assert_eq!(guest.number("complaints"), 0, "the kernel's log has complaints");
}

/// Boots a guest with this file as its disk and has `test` use it.
pub fn in_guest_with(image: &Path, test: impl FnOnce(&mut Guest)) {
    let Some(program) = guest_program() else { return };
    use_guest(Guest::boot(&program, image), test);
}
