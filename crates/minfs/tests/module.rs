//! The kernel's module under the crash tests of the library: random scripts in a guest, whose disk is
//! recorded here, and what a power cut could leave of it, judged by the library.
//!
//! `MINFS_MODULE_GUEST` names a program (`module/guest.sh`) that boots a guest with the disk that it is
//! given, and lets `module/agent.py` there read its input and write its output. `MINFS_MODULE_SCRIPTS`
//! sets how many scripts are played, `MINFS_MODULE_SEED` the first seed.

#[path = "common/script.rs"]
mod script;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use block::{BlockDevice, MemoryDevice, Server};
use crash::Recorder;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use script::{OPERATIONS, Script, Target, enumerate, new_image, play, states};

const BLOCK_BYTES: u32 = 512;

/// A disk whose content is another one for each script.
struct Disk {
    recorder: RwLock<Arc<Recorder<MemoryDevice>>>,
    ignores_flushes: AtomicBool,
}

impl Disk {
    fn new() -> Self {
        let recorder = RwLock::new(recorder_of(&new_image(BLOCK_BYTES)));
        Self { recorder, ignores_flushes: AtomicBool::new(false) }
    }

    fn recorder(&self) -> Arc<Recorder<MemoryDevice>> {
        self.recorder.read().unwrap().clone()
    }
}

fn recorder_of(base: &[u8]) -> Arc<Recorder<MemoryDevice>> {
    Arc::new(Recorder::in_memory(MemoryDevice::from_image(base, BLOCK_BYTES)).unwrap())
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.recorder().len()
    }

    fn block_size(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.recorder().read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.recorder().write_at(buffer, offset)
    }

    fn flush(&self) -> io::Result<()> {
        if self.ignores_flushes.load(Ordering::SeqCst) { Ok(()) } else { self.recorder().flush() }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.recorder().discard(offset, length)
    }
}

/// The agent in a guest that was booted with the file at `point` as its disk; both end when dropped.
struct Guest {
    child: Child,
    point: PathBuf,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH);
    }
}

impl Guest {
    fn boot(program: &str, point: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, point: point.to_path_buf(), input, output: BufReader::new(output) }
    }

    /// Sends a line, and says whether it was done.
    fn ask(&mut self, line: &str) -> bool {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        match answer.trim() {
            "done" => true,
            // What a full volume or a name answers; everything else is a fault.
            "ENOENT" | "EEXIST" | "ENOSPC" | "EFBIG" => false,
            other => panic!("{}: '{other}'", &line[..line.len().min(60)]),
        }
    }
}

fn text(name: &[u8]) -> &str {
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

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn the_module_keeps_what_it_acknowledged() {
    let Ok(program) = std::env::var("MINFS_MODULE_GUEST") else {
        eprintln!("SKIPPED: MINFS_MODULE_GUEST names no guest");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().join("disk");
    File::create(&point).unwrap();
    let disk = Arc::new(Disk::new());
    let server = Arc::new(Server::mount(Box::new(disk.clone()), &point).unwrap());
    for _ in 0..4 {
        let server = server.clone();
        std::thread::spawn(move || server.serve());
    }
    let mut guest = Guest::boot(&program, &point);
    let first = number("MINFS_MODULE_SEED", 1);
    let scripts = number("MINFS_MODULE_SCRIPTS", 3);
    let mut tried = 0;
    for seed in first..first + scripts {
        tried += play_in(&mut guest, &disk, seed).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{tried} states of {scripts} scripts, the first of seed {first}");
    disk.ignores_flushes.store(true, Ordering::SeqCst);
    let caught = (0..20).find_map(|seed| play_in(&mut guest, &disk, seed).err());
    println!("a disk that ignores flushes: {}", caught.expect("it is caught"));
}

/// Plays a script, and says how many states were tried.
fn play_in(guest: &mut Guest, disk: &Disk, seed: u64) -> Result<u64, String> {
    let base = new_image(BLOCK_BYTES);
    let recorder = recorder_of(&base);
    *disk.recorder.write().unwrap() = recorder.clone();
    assert!(guest.ask("mount"), "seed {seed}: it cannot be mounted");
    let steps = play(guest, ChaCha8Rng::seed_from_u64(seed), OPERATIONS, || recorder.now());
    enumerate(&Script { states: states(&base, &recorder), end: recorder.now(), steps }, seed)
}
