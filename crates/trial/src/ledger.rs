//! The journal of what was taken: written and synced before the taking, so that whatever a
//! SIGKILL left behind can be found and given back, and nothing else.
//!
//! A ledger is a file of JSON lines. The first says who owns it; each later one says what is about
//! to be taken, or what was given back. While the owner lives it holds a lock on the file, which
//! is how a living kurabe is told from a dead one. A torn last line is what a kill in the middle
//! of a write leaves, and means that the taking never began.
//!
//! Two kinds of ledger: the runner's, in [`default_directory`], and one that a trial keeps in its
//! scratch directory ([`Ledger::in_scratch`]), which is cleaned with that directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

mod clean;

pub use clean::{CleanReport, clean, give_back_scratch};

/// What every name of a file or directory that kurabe makes begins with. Nothing else is ever
/// removed, whatever a ledger says.
pub const NAME_PREFIX: &str = "kurabe-";

/// What the names of the ledgers begin with that trials keep in their scratch directory.
const SCRATCH_LEDGER_PREFIX: &str = "taken-";

/// Something that must be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Taken {
    /// An image file; it is removed.
    Image {
        /// Absolute path.
        path: PathBuf,
    },
    /// A directory of kurabe's own with everything in it; what is mounted below it is unmounted,
    /// what its ledger names is given back, and it is removed.
    Scratch {
        /// Absolute path.
        path: PathBuf,
    },
    /// A loop device that was added; its file is detached if it is ours, and it is removed.
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

/// One line of a ledger.
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
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    held: BTreeMap<u64, Taken>,
}

/// The place of the runners' ledgers: `/var/lib/kurabe/ledger` for root, below `XDG_STATE_HOME`
/// (or `~/.local/state`) for others. `KURABE_LEDGER` overrides it.
pub fn default_directory() -> PathBuf {
    if let Some(path) = std::env::var_os("KURABE_LEDGER").filter(|path| !path.is_empty()) {
        return path.into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/kurabe/ledger".into();
    }
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    let state = state.map_or_else(|| PathBuf::from(home).join(".local/state"), PathBuf::from);
    state.join("kurabe/ledger")
}

impl Ledger {
    /// Begins the runner's ledger in `directory`, which is made when it is missing.
    pub fn start(directory: &Path) -> io::Result<Ledger> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ledger::create(directory.join(format!("{}.jsonl", random_name())))
    }

    /// Begins the ledger of a trial in its scratch directory.
    pub fn in_scratch(scratch: &Path) -> io::Result<Ledger> {
        Ledger::create(scratch.join(format!("{SCRATCH_LEDGER_PREFIX}{}.jsonl", random_name())))
    }

    fn create(path: PathBuf) -> io::Result<Ledger> {
        let file = create_locked(&path)?;
        let state = State { file, next: 0, held: BTreeMap::new() };
        let ledger = Ledger { path, state: Mutex::new(state) };
        let pid = std::process::id();
        let owner =
            Line::Owner { pid, start_ticks: start_ticks(pid).unwrap_or(0), boot: boot_id() };
        ledger.lock().write(&owner)?;
        // The name must survive too, or the file might as well not be there.
        if let Some(parent) = ledger.path.parent() {
            File::open(parent)?.sync_all()?;
        }
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

    /// What is held now.
    pub fn held(&self) -> Vec<Taken> {
        self.lock().held.values().cloned().collect()
    }

    /// The ledger's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A ledger that still holds something stays, so that `clean` finds it.
        if self.lock().held.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl State {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }
}

/// Occupies a trial's scratch directory for as long as the result lives: what cleans it waits.
///
/// # Errors
///
/// The directory is being cleaned or gone: the runner is dead, and nothing may be taken any more.
pub fn occupy(scratch: &Path) -> io::Result<File> {
    let directory = File::open(scratch)?;
    let gone = || {
        let text = format!("{} is being removed: the runner is gone", scratch.display());
        io::Error::other(text)
    };
    let locked = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared);
    // A file system that knows no locks on directories has none for the cleaner either.
    let is_cleaned = locked == Err(rustix::io::Errno::WOULDBLOCK);
    if is_cleaned || rustix::fs::fstat(&directory)?.st_nlink == 0 {
        return Err(gone());
    }
    Ok(directory)
}

/// Creates a ledger's file and locks it. A cleaner may look at the empty file before the lock is
/// ours and remove it; then it is created again.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        if rustix::fs::fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

/// What a ledger on disk says.
#[derive(Debug, Default)]
struct Contents {
    owner: Option<(u32, u64, String)>,
    held: BTreeMap<u64, Taken>,
    /// Lines in the middle that could not be read.
    unreadable_lines: usize,
}

fn read_contents(file: &mut File) -> io::Result<Contents> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut contents = Contents::default();
    let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
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

/// Time at which a process started, in clock ticks since the boot: field 22 of `/proc/PID/stat`.
/// None for one that has ended, also when its parent has not waited for it yet.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces and parentheses itself.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !ended)
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

/// Whether `path` is absolute and its last name is one that kurabe gives.
fn is_ours_by_name(path: &Path) -> bool {
    path.is_absolute()
        && path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(NAME_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(path: &Path) -> Taken {
        Taken::Image { path: path.to_path_buf() }
    }

    fn lines(ledger: &Ledger) -> Vec<String> {
        fs::read_to_string(ledger.path()).unwrap().lines().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_taken_is_written_first_and_a_ledger_with_nothing_goes_away() {
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::start(&home.path().join("deep/ledger")).unwrap();
        let path = ledger.path().to_path_buf();
        let id = ledger.take(image(Path::new("/x/kurabe-1.img"))).unwrap();
        let scratch = Taken::Scratch { path: "/x/kurabe-2".into() };
        let other = ledger.take(scratch.clone()).unwrap();
        assert_eq!(lines(&ledger).len(), 3);
        ledger.gave_back(id).unwrap();
        assert_eq!(ledger.held(), std::slice::from_ref(&scratch));
        let contents = read_contents(&mut File::open(&path).unwrap()).unwrap();
        assert_eq!(contents.held.into_values().collect::<Vec<_>>(), [scratch]);
        assert_eq!(contents.owner.unwrap().0, std::process::id());
        ledger.gave_back(other).unwrap();
        drop(ledger);
        assert!(!path.exists());
    }

    #[test]
    fn every_prefix_of_a_ledger_is_read_without_a_panic() {
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::start(home.path()).unwrap();
        ledger.take(image(Path::new("/x/kurabe-1.img"))).unwrap();
        let id = ledger.take(Taken::LoopNode { index: 7, file_system: 1, inode: 2 }).unwrap();
        ledger.gave_back(id).unwrap();
        let bytes = fs::read(ledger.path()).unwrap();
        let torn = home.path().join("torn");
        let mut held = Vec::new();
        for length in 0..=bytes.len() {
            fs::write(&torn, &bytes[..length]).unwrap();
            let contents = read_contents(&mut File::open(&torn).unwrap()).unwrap();
            assert_eq!(contents.unreadable_lines, 0, "a torn last line is no damage");
            held.push(contents.held.len());
        }
        held.dedup();
        assert_eq!(held, [0, 1, 2, 1]);
        // Damage in the middle is counted, and the rest is still read.
        let mut damaged = bytes.clone();
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        damaged[second] = b'#';
        fs::write(&torn, &damaged).unwrap();
        let contents = read_contents(&mut File::open(&torn).unwrap()).unwrap();
        assert_eq!((contents.unreadable_lines, contents.held.len()), (1, 0));
    }

    #[test]
    fn a_directory_is_occupied_or_cleaned_and_never_both() {
        let home = tempfile::tempdir().unwrap();
        let scratch = home.path().join("kurabe-scratch");
        fs::create_dir(&scratch).unwrap();
        let occupied = occupy(&scratch).unwrap();
        let cleaner = std::thread::spawn({
            let scratch = scratch.clone();
            move || give_back_scratch(&scratch)
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(scratch.exists(), "the cleaner waits for the trial");
        // What is taken until the trial has ended is given back too.
        let image = home.path().join("kurabe-late.img");
        let ledger = Ledger::in_scratch(&scratch).unwrap();
        ledger.take(self::image(&image)).unwrap();
        fs::write(&image, b"x").unwrap();
        drop((ledger, occupied));
        assert_eq!(cleaner.join().unwrap().left, [""; 0]);
        assert!(!scratch.exists() && !image.exists());
        assert!(occupy(&scratch).is_err());
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
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("ledger");
        assert!(clean(&directory).unwrap().is_empty());
        let names = ["kurabe-a.img", "kurabe-b.img", "precious", "kurabe-scratch"];
        let [dead, living, precious, scratch] = names.map(|name| home.path().join(name));
        for path in [&dead, &living, &precious] {
            fs::write(path, b"x").unwrap();
        }
        fs::create_dir_all(scratch.join("mount/deep")).unwrap();
        let ledger = Ledger::start(&directory).unwrap();
        ledger.take(image(&living)).unwrap();
        let orphaned = orphan(
            &directory,
            &[
                image(&dead),
                Taken::Scratch { path: scratch.clone() },
                image(&home.path().join("kurabe-never-made.img")),
            ],
        );
        let wrong =
            orphan(&directory, &[image(&precious), Taken::Scratch { path: precious.clone() }]);

        let report = clean(&directory).unwrap();
        assert!(!dead.exists() && !scratch.exists() && !orphaned.exists());
        assert!(living.exists() && precious.exists() && ledger.path().exists());
        assert_eq!(report.living, 1);
        assert_eq!(report.done.len(), 2, "{report:?}");
        assert_eq!(report.left.len(), 2, "{report:?}");
        assert!(report.left[0].contains("left alone"), "{report:?}");
        assert!(wrong.exists(), "a ledger with something left stays");

        let again = clean(&directory).unwrap();
        assert!(again.done.is_empty(), "{again:?}");
        ledger.gave_back(0).unwrap();
    }
}
