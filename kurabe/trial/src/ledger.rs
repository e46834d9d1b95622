//! The journal of what was taken: written and synced before the taking, so that whatever a
//! SIGKILL left behind can be found and given back, and nothing else.
//!
//! A ledger is a file of JSON lines. The first says who owns it; each later one says what is about
//! to be taken, or what was given back. While the owner lives it holds a lock on the file, which
//! is how a living kurabe is told from a dead one. A torn last line is what a kill in the middle
//! of a write leaves, and means that the taking never began.
//!
//! Two kinds of ledger: the runner's, and one that a trial keeps in its scratch directory
//! ([`Ledger::in_scratch`]), which is cleaned with that directory. Invariants: both lie in kurabe's
//! own directory and are read nowhere else, so that nobody else can write one; and what stands in
//! one is a name in a known directory or the identity of a file, never a path to be followed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use trust::Directory;

use crate::leftovers::Process;

mod clean;

pub use clean::{CleanReport, clean, give_back_scratch, holder_of_loop};

/// The directory of the runners' ledgers in kurabe's own.
const LEDGERS: &str = "ledger";

/// What every name of a directory that kurabe makes begins with. Nothing else is ever removed,
/// whatever a ledger says.
pub const NAME_PREFIX: &str = "kurabe-";

/// What the names of the ledgers begin with that trials keep in their scratch directory.
const SCRATCH_LEDGER_PREFIX: &str = "taken-";

/// Something that must be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Taken {
    /// A trial's directory in kurabe's own, with everything in it; what is mounted below it is
    /// unmounted, what its ledger names is given back, and it is removed.
    Scratch { name: String },
    /// The directory that a trial makes in an existing one of the user's, with everything in it.
    Subdirectory {
        /// Absolute path of the user's directory.
        parent: PathBuf,
        /// Its name in there.
        name: String,
    },
    /// A loop device that was added; its file is detached if it is ours and has no name any more,
    /// and it is removed.
    LoopNode {
        /// Number of the loop device.
        index: u32,
        /// Device number of the file system that the backing file lies on.
        file_system: u64,
        /// Inode of the backing file.
        inode: u64,
    },
    /// A control group; what is in it is killed, and it is removed.
    ControlGroup {
        /// Absolute path of its directory.
        path: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Owner { pid: u32, start_ticks: u64, boot: String },
    Take { id: u64, what: Taken },
    Give { id: u64 },
}

/// The ledger of a living owner.
#[derive(Debug)]
pub struct Ledger {
    directory: Directory,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    held: BTreeMap<u64, Taken>,
}

impl Ledger {
    /// Begins the runner's ledger in kurabe's own directory.
    pub fn start(own: &Directory) -> io::Result<Ledger> {
        let directory = own.open_or_make_directory(LEDGERS, 0o700)?;
        Ledger::create(directory, format!("{}.jsonl", random_name()))
    }

    /// Begins the ledger of a trial in its scratch directory.
    pub fn in_scratch(scratch: &Directory) -> io::Result<Ledger> {
        let name = format!("{SCRATCH_LEDGER_PREFIX}{}.jsonl", random_name());
        Ledger::create(scratch.try_clone()?, name)
    }

    fn create(directory: Directory, name: String) -> io::Result<Ledger> {
        let file = create_locked(&directory, &name)?;
        let state = State { file, next: 0, held: BTreeMap::new() };
        let ledger = Ledger { directory, name, state: Mutex::new(state) };
        let pid = std::process::id();
        let owner =
            Line::Owner { pid, start_ticks: start_ticks(pid).unwrap_or(0), boot: boot_id() };
        ledger.lock().write(&owner)?;
        // The name must survive too, or the file might as well not be there.
        ledger.directory.sync()?;
        Ok(ledger)
    }

    /// Notes that `what` is about to be taken. Only when this has returned may it be taken.
    pub fn take(&self, what: Taken) -> io::Result<u64> {
        let mut state = self.lock();
        let id = state.next;
        state.write(&Line::Take { id, what: what.clone() })?;
        state.next += 1;
        state.held.insert(id, what);
        Ok(id)
    }

    /// Notes that what was taken under `id` was given back.
    pub fn gave_back(&self, id: u64) -> io::Result<()> {
        let mut state = self.lock();
        match state.held.remove(&id) {
            Some(_) => state.write(&Line::Give { id }),
            // It was given back already.
            None => Ok(()),
        }
    }

    pub fn held(&self) -> Vec<Taken> {
        self.lock().held.values().cloned().collect()
    }

    /// The ledger's file, for messages.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A ledger that still holds something stays, so that `clean` finds it.
        if self.lock().held.is_empty() {
            let _ = self.directory.remove_file(&self.name);
        }
    }
}

impl State {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let text = format!("{}\n", serde_json::to_string(line)?);
        let end = self.file.metadata()?.len();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        // What was written of a line, before the disk was full, would make one of it and the next.
        written.inspect_err(|_| {
            let _ = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::End(0)));
        })
    }
}

/// Creates a ledger's file and locks it. A cleaner may look at the empty file before the lock is
/// ours and remove it; then it is created again.
fn create_locked(directory: &Directory, name: &str) -> io::Result<File> {
    loop {
        let file = directory.create_file(name, 0o600)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        if rustix::fs::fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

/// Bytes of a ledger that are read: of a study of some 80,000 trials.
const LEDGER_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a line that are looked at: several times what the longest path needs.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What a ledger on disk says.
#[derive(Debug, Default)]
struct LedgerContents {
    owner: Option<(u32, u64, String)>,
    held: BTreeMap<u64, Taken>,
    /// Lines in the middle that could not be read.
    unreadable_lines: usize,
}

fn read_contents(mut file: &File) -> io::Result<LedgerContents> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LEDGER_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LEDGER_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it has more than {LEDGER_BYTES_MAX} bytes, which no ledger of kurabe's has; look at it, then remove it"
        )));
    }
    let mut contents = LedgerContents::default();
    let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if line.len() > LINE_BYTES_MAX {
            contents.unreadable_lines += 1;
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(Line::Owner { pid, start_ticks, boot }) => {
                contents.owner = Some((pid, start_ticks, boot));
            }
            Ok(Line::Take { id, what }) => {
                contents.held.insert(id, what);
            }
            Ok(Line::Give { id }) => {
                contents.held.remove(&id);
            }
            // What follows the last newline is a line that was torn by a kill.
            Err(_) if line.is_empty() || lines.peek().is_none() => {}
            Err(_) => contents.unreadable_lines += 1,
        }
    }
    Ok(contents)
}

/// Time at which a process started, in clock ticks since the boot; none for one that has ended.
fn start_ticks(pid: u32) -> Option<u64> {
    Some(Process::of(pid as i32)?.start_ticks)
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_string()
}

/// A name that nobody else has: the prefix, the process and 64 random bits.
pub fn random_name() -> String {
    format!("{NAME_PREFIX}{}-{:016x}", std::process::id(), random_bits())
}

/// 64 random bits.
pub(crate) fn random_bits() -> u64 {
    rand::random()
}

/// Whether it is one name, and one that kurabe gives.
fn is_ours_by_name(name: &str) -> bool {
    name.starts_with(NAME_PREFIX) && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::scratch::{Occupied, Scratch};

    struct Home {
        home: tempfile::TempDir,
        own: Arc<Directory>,
    }

    impl Home {
        fn new() -> Home {
            let home = tempfile::tempdir().unwrap();
            let own = Arc::new(Directory::private(&home.path().join("own")).unwrap());
            Home { home, own }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.home.path().join(name)
        }

        fn subdirectory(&self, name: &str) -> Taken {
            Taken::Subdirectory { parent: self.home.path().into(), name: name.into() }
        }
    }

    fn scratch(name: &str) -> Taken {
        Taken::Scratch { name: name.into() }
    }

    fn lines(ledger: &Ledger) -> Vec<String> {
        fs::read_to_string(ledger.path()).unwrap().lines().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_taken_is_written_first_and_a_ledger_with_nothing_goes_away() {
        let home = Home::new();
        let ledger = Ledger::start(&home.own).unwrap();
        let path = ledger.path();
        let id = ledger.take(scratch("kurabe-1")).unwrap();
        let other = ledger.take(scratch("kurabe-2")).unwrap();
        assert_eq!(lines(&ledger).len(), 3);
        ledger.gave_back(id).unwrap();
        assert_eq!(ledger.held(), [scratch("kurabe-2")]);
        let contents = read_contents(&File::open(&path).unwrap()).unwrap();
        assert_eq!(contents.held.into_values().collect::<Vec<_>>(), [scratch("kurabe-2")]);
        assert_eq!(contents.owner.unwrap().0, std::process::id());
        ledger.gave_back(other).unwrap();
        drop(ledger);
        assert!(!path.exists());
    }

    #[test]
    fn a_ledger_of_any_bytes_is_read_and_holds_no_more_than_its_lines() {
        let seed = random_bits();
        println!("seed {seed}");
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let home = Home::new();
        let ledger = Ledger::start(&home.own).unwrap();
        ledger.take(scratch("kurabe-1")).unwrap();
        ledger.take(Taken::LoopNode { index: 7, file_system: 1, inode: 2 }).unwrap();
        let whole = fs::read(ledger.path()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let mut unreadable = 0;
        for _ in 0..5_000 {
            let mut bytes = whole.clone();
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..4) {
                    0 => bytes[at] = random.random(),
                    1 => drop(bytes.drain(at..(at + 9).min(bytes.len()))),
                    2 => bytes.splice(at..at, whole[..20].to_vec()).for_each(drop),
                    _ => bytes[at] = b"\n9-\"{}[],"[random.random_range(0..9)],
                }
                bytes.push(b'\n');
            }
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(&bytes).unwrap();
            let contents = read_contents(&file).unwrap();
            assert!(contents.held.len() <= bytes.split(|byte| *byte == b'\n').count());
            unreadable += contents.unreadable_lines;
        }
        assert!(unreadable > 1_000, "{unreadable}");
    }

    #[test]
    fn every_prefix_of_a_ledger_is_read_without_a_panic() {
        let home = Home::new();
        let ledger = Ledger::start(&home.own).unwrap();
        ledger.take(scratch("kurabe-1")).unwrap();
        let id = ledger.take(Taken::LoopNode { index: 7, file_system: 1, inode: 2 }).unwrap();
        ledger.gave_back(id).unwrap();
        let bytes = fs::read(ledger.path()).unwrap();
        let torn = home.path("torn");
        let read = |bytes: &[u8]| {
            fs::write(&torn, bytes).unwrap();
            read_contents(&File::open(&torn).unwrap()).unwrap()
        };
        let mut held = Vec::new();
        for length in 0..=bytes.len() {
            let contents = read(&bytes[..length]);
            assert_eq!(contents.unreadable_lines, 0, "a torn last line is no damage");
            held.push(contents.held.len());
        }
        held.dedup();
        assert_eq!(held, [0, 1, 2, 1]);
        // Damage in the middle is counted, and the rest is still read.
        let mut damaged = bytes.clone();
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        damaged[second] = b'#';
        let contents = read(&damaged);
        assert_eq!((contents.unreadable_lines, contents.held.len()), (1, 0));
        // A line that no path needs is damage, whatever it says.
        let long = format!("{{\"give\":{{\"id\":{}0}}}}\n", " ".repeat(LINE_BYTES_MAX));
        assert_eq!(read(long.as_bytes()).unreadable_lines, 1);
        // What has no end is not read to its end.
        let endless = read_contents(&File::open("/dev/zero").unwrap()).unwrap_err();
        assert!(endless.to_string().contains("more than 16777216 bytes"), "{endless}");
    }

    #[test]
    fn a_directory_is_occupied_or_cleaned_and_never_both() {
        let home = Home::new();
        let runner = Arc::new(Ledger::start(&home.own).unwrap());
        let made = Scratch::make(&home.own, &runner).unwrap();
        let occupied = Occupied::enter(&made.path()).unwrap();
        let late = home.path("kurabe-late");
        std::thread::scope(|scope| {
            let cleaner = scope.spawn(|| made.give_back());
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(made.path().exists(), "the cleaner waits for the trial");
            // What is taken until the trial has ended is given back too.
            let ledger = occupied.ledger().unwrap();
            ledger.take(home.subdirectory("kurabe-late")).unwrap();
            fs::create_dir_all(late.join("deep")).unwrap();
            drop((ledger, occupied));
            assert_eq!(cleaner.join().unwrap().left, [""; 0]);
        });
        assert!(!made.path().exists() && !late.exists());
        assert_eq!(runner.held(), []);
        assert!(Occupied::enter(&made.path()).is_err());
    }

    #[test]
    fn a_scratch_directory_is_a_new_one_or_none() {
        let home = Home::new();
        let runner = Arc::new(Ledger::start(&home.own).unwrap());
        let [one, other] = [(); 2].map(|()| Scratch::make(&home.own, &runner).unwrap().path());
        assert_ne!(one, other);
        assert!(home.own.make_directory(one.file_name().unwrap(), 0o700).is_err());
        // What somebody else may write is entered by nobody.
        fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let refused = Occupied::enter(&one).unwrap_err().to_string();
        assert!(refused.contains("can be written by other users"), "{refused}");
        fs::remove_dir(&other).unwrap();
        symlink(home.home.path(), &other).unwrap();
        let left = give_back_scratch(&home.own, other.file_name().unwrap().to_str().unwrap()).left;
        assert!(left[0].contains("is a symbolic link"), "{left:?}");
        assert!(home.home.path().exists());
    }

    /// A ledger whose owner is gone: another process's number and start.
    fn orphan(directory: &Path, held: &[Taken]) -> PathBuf {
        let path = directory.join(format!("{}.jsonl", random_name()));
        let owner = Line::Owner { pid: u32::MAX, start_ticks: 1, boot: boot_id() };
        let mut text = serde_json::to_string(&owner).unwrap() + "\n";
        for (id, what) in held.iter().enumerate() {
            let line = Line::Take { id: id as u64, what: what.clone() };
            text.push_str(&(serde_json::to_string(&line).unwrap() + "\n"));
        }
        fs::create_dir_all(directory).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn cleaning_gives_back_what_the_dead_left_and_nothing_else() {
        let home = Home::new();
        assert!(clean(&home.own).unwrap().is_empty());
        let ledger = Arc::new(Ledger::start(&home.own).unwrap());
        let living = Scratch::make(&home.own, &ledger).unwrap();
        let ledgers = home.path("own/ledger");
        fs::create_dir_all(home.path("own/kurabe-dead/work/mount/deep")).unwrap();
        fs::set_permissions(
            home.path("own/kurabe-dead"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
        for name in ["kurabe-dead", "kurabe-other", "precious"] {
            fs::create_dir_all(home.path(name).join("deep")).unwrap();
        }
        symlink(home.path("precious"), home.path("kurabe-link")).unwrap();
        let orphaned = orphan(
            &ledgers,
            &[
                home.subdirectory("kurabe-dead"),
                home.subdirectory("kurabe-link"),
                scratch("kurabe-dead"),
                scratch("kurabe-never-made"),
            ],
        );
        let wrong = orphan(
            &ledgers,
            &[
                home.subdirectory("precious"),
                home.subdirectory("kurabe-other/../precious"),
                Taken::Subdirectory { parent: "here".into(), name: "kurabe-other".into() },
                scratch("kurabe-x/../../precious"),
                scratch("kurabe-\0"),
            ],
        );

        let report = clean(&home.own).unwrap();
        assert!(!home.path("kurabe-dead").exists() && !orphaned.exists());
        assert!(!home.path("own/kurabe-dead").exists());
        assert!(!home.path("kurabe-link").is_symlink(), "the link, and not what it leads to");
        assert!(home.path("precious/deep").exists() && home.path("kurabe-other/deep").exists());
        assert!(living.path().exists() && ledger.path().exists());
        assert_eq!(report.living, 1);
        assert_eq!(report.done.len(), 3, "{report:?}");
        assert_eq!(report.left.len(), 5, "{report:?}");
        assert!(wrong.exists(), "a ledger with something left stays");

        let again = clean(&home.own).unwrap();
        assert!(again.done.is_empty(), "{again:?}");
        assert_eq!(living.give_back().left, [""; 0]);
    }

    #[test]
    fn a_ledger_that_is_a_link_or_a_fifo_is_not_read() {
        let home = Home::new();
        let elsewhere = home.path("elsewhere");
        fs::create_dir_all(home.path("kurabe-precious/deep")).unwrap();
        let forged = orphan(&elsewhere, &[home.subdirectory("kurabe-precious")]);
        let ledgers = home.path("own/ledger");
        fs::create_dir(&ledgers).unwrap();
        symlink(&forged, ledgers.join("kurabe-forged.jsonl")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let fifo = ledgers.join("kurabe-fifo.jsonl");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        let report = clean(&home.own).unwrap();
        assert_eq!(report.left.len(), 2, "{report:?}");
        assert!(report.left[0].contains("FIFO") && report.left[1].contains("symbolic link"));
        // Nor is a whole directory of them.
        fs::remove_dir_all(&ledgers).unwrap();
        symlink(&elsewhere, &ledgers).unwrap();
        assert!(clean(&home.own).is_err());
        assert!(Ledger::start(&home.own).is_err());
        assert!(home.path("kurabe-precious/deep").exists());
    }
}
