//! A control group (version 2) for the commands of one trial: whatever they start stays in it,
//! also what calls setsid(2) and clears its environment, and ends with it.
//!
//! It lies below the group of this process, whose limits go on holding. Invariants: it stands in
//! the trial's ledger before it is made; nothing but a directory of a control group file system
//! with a name of kurabe's is killed or removed. Where the machine has none that can be written,
//! there is none, and the namespace and the marks of `leftovers` do what they can.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::record::ControlGroupFacts;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use trust::mounts::{self, Mount};
use trust::tree::{self, WalkStep};

use crate::ledger::{Ledger, NAME_PREFIX, Taken, random_name};
use crate::sys::confine::confine;
use crate::sys::wait_with_usage;

/// Processes and threads that a trial's commands may have at once: far more than any workload needs,
/// and few enough that one which multiplies without end leaves the machine usable.
const PROCESSES_MAX: u64 = 32_768;

/// The magic number of control groups of version 2 in statfs(2).
const MAGIC: i64 = 0x6367_7270;

/// How long killed processes are waited for; one may be in the middle of a long write.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// The control group of a trial.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    ledger: Ledger,
    ledger_id: u64,
    processes_max: Option<u64>,
}

impl ControlGroup {
    /// Makes one, where this machine has a place for it that works.
    pub fn begin(ledger: impl FnOnce() -> io::Result<Ledger>) -> Option<ControlGroup> {
        let above = own_group()?;
        let writable = rustix::fs::Access::WRITE_OK;
        rustix::fs::access(&above, writable).ok()?;
        rustix::fs::access(above.join("cgroup.procs"), writable).ok()?;
        let path = above.join(random_name());
        let ledger = ledger().ok()?;
        let ledger_id = ledger.take(Taken::ControlGroup { path: path.clone() }).ok()?;
        let mut group = ControlGroup { path, ledger, ledger_id, processes_max: None };
        if fs::create_dir(&group.path).is_err() || !group.takes_processes() {
            // What was made is removed, and the ledger told, when the value goes.
            return None;
        }
        let limited = fs::write(group.path.join("pids.max"), PROCESSES_MAX.to_string()).is_ok();
        group.processes_max = limited.then_some(PROCESSES_MAX);
        Some(group)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the record says of it.
    pub fn facts(&self) -> ControlGroupFacts {
        ControlGroupFacts { processes_max: self.processes_max }
    }

    /// The open directory of the group, for [`confine`].
    pub fn directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY.bits() as i32;
        let opened = File::options().read(true).custom_flags(flags).open(&self.path);
        let opened = opened.map_err(|error| {
            let text = format!("the control group {}: {error}", self.path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(opened.into())
    }

    /// Kills what is in it, removes it, and names what was killed.
    /// Errors: something in it does not end; the ledger keeps it.
    pub fn end(&self) -> io::Result<Vec<String>> {
        let ended = end_group(&self.path)?;
        self.ledger.gave_back(self.ledger_id)?;
        Ok(ended)
    }

    /// Whether a process can join and can be ended: some kinds of group hold none, and kernels
    /// before 5.14 cannot kill a group whole.
    fn takes_processes(&self) -> bool {
        let joined = || -> io::Result<bool> {
            let mut probe = trust::program::command("sh").map_err(io::Error::other)?;
            probe.args(["-c", ":"]).stdin(Stdio::null());
            let before_exec = confine(&mut probe, Some(self.directory()?), None, None)?;
            let child = probe.spawn()?;
            drop(probe);
            let (process, _) = before_exec.of(child)?;
            Ok(wait_with_usage(process)?.exit_code == Some(0))
        };
        self.path.join("cgroup.kill").exists() && joined().unwrap_or(false)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`; doing so again does nothing.
        let _ = self.end();
    }
}

/// Ends what a trial that was killed had left in its control group, for the ledger. Says what was
/// done, if anything had to be, and names to `done` what was killed.
pub fn give_back(path: &Path, done: &mut Vec<String>) -> Result<Option<String>, String> {
    let problem = |what: &str| Err(format!("the control group {}: {what}", path.display()));
    let is_ours = path.file_name().is_some_and(|name| {
        path.is_absolute() && name.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes())
    });
    if !is_ours {
        return problem("its name is not one of kurabe's; left alone");
    }
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
    let opened = match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return problem(&error.to_string()),
        Ok(opened) => opened,
    };
    if rustix::fs::fstatfs(&opened).map_or(true, |facts| facts.f_type != MAGIC) {
        return problem("it is no control group; left alone");
    }
    match end_group(path) {
        Ok(ended) => {
            let killed = |process| format!("killed {process}, which a run had started");
            done.extend(ended.into_iter().map(killed));
            Ok(Some(format!("removed the control group {}", path.display())))
        }
        Err(error) => problem(&error.to_string()),
    }
}

/// Removes the empty groups beside which no ledger is left: of trials that were killed and whose state
/// directory is gone. A group counts as one only if the process in its name has ended.
pub fn remove_forgotten() -> Vec<String> {
    own_group().map_or_else(Vec::new, |above| remove_forgotten_in(&above))
}

fn remove_forgotten_in(above: &Path) -> Vec<String> {
    let is_forgotten = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let maker = name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.split_once('-'));
        let maker = maker.and_then(|(maker, _)| maker.parse::<u32>().ok());
        maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists())
            && members(path).is_empty()
    };
    let forgotten = groups_below(above).into_iter().filter(is_forgotten);
    let removed = forgotten.filter(|path| remove_groups(path).is_ok());
    removed.map(|path| format!("removed the empty control group {}", path.display())).collect()
}

/// Kills everything in the group and below, waits for its end and removes them all.
fn end_group(path: &Path) -> io::Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    // Their names are gone with them.
    let ended: Vec<String> = members(path).iter().map(named).collect();
    if !ended.is_empty() {
        fs::write(path.join("cgroup.kill"), "1")?;
    }
    let until = Instant::now() + END_WAIT_MAX;
    loop {
        match remove_groups(path) {
            Ok(()) => return Ok(ended),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
                kill_members(path);
            }
            Err(error) => {
                let left: Vec<String> = members(path).iter().map(named).collect();
                let text = format!("{error}; still in it: {}", left.join(", "));
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
}

/// Kills the processes of the group one by one. What is written to `cgroup.kill` goes to the first thread of each,
/// and is lost where that one has ended before the others.
fn kill_members(path: &Path) {
    for number in members(path) {
        let Some(pid) = Pid::from_raw(number) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // The number may have gone to another before it was opened.
        if members(path).contains(&number) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// A process as messages name it.
fn named(number: &i32) -> String {
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    format!("{} (process {number})", name.trim_end())
}

/// The numbers of the processes in the group and below.
fn members(path: &Path) -> BTreeSet<i32> {
    let mut members = BTreeSet::new();
    // A group that ends meanwhile has no members.
    let _ = walk_groups(path, |step| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let WalkStep::Directory(group) = step
            && let Ok(list) = rustix::fs::openat(group, "cgroup.procs", flags, Mode::empty())
            && let Ok(text) = io::read_to_string(File::from(list))
        {
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        Ok(())
    });
    members
}

fn groups_below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_group).map(|entry| entry.path()).collect()
}

/// Removes a group without processes, after those that its processes made below it.
fn remove_groups(path: &Path) -> io::Result<()> {
    let removed = walk_groups(path, |step| match step {
        WalkStep::Left(above, name) => {
            match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed,
            }
        }
        WalkStep::File(..) | WalkStep::Directory(_) => Ok(()),
    });
    match removed.and_then(|()| fs::remove_dir(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Walks a group and those below it. Its processes may have nested them as deep as they liked.
fn walk_groups(
    path: &Path,
    visit: impl FnMut(WalkStep<'_>) -> Result<(), Errno>,
) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let group = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(tree::walk(group, path, visit)?)
}

/// The directory of the control group that this process is in.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    directory_of_group(own, &mounts::mounts().ok()?)
}

/// Where the group `own` lies in the tree of files.
fn directory_of_group(own: &str, mounts: &[Mount]) -> Option<PathBuf> {
    // A group outside of this process's namespace is shown by dots.
    let is_here = !own.split('/').any(|name| name == "..");
    mounts
        .iter()
        .filter(|mount| mount.file_system == "cgroup2" && is_here)
        .find_map(|mount| Some(mount.point.join(Path::new(own).strip_prefix(&mount.root).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(file_system: &str, root: &str, point: &str) -> Mount {
        Mount {
            device: (0, 38),
            root: root.into(),
            point: point.into(),
            file_system: file_system.into(),
            source: "none".into(),
            options: "rw".into(),
        }
    }

    #[test]
    fn the_own_group_is_found_in_the_tree() {
        let points = [("tmpfs", ""), ("cgroup", "/pids"), ("cgroup2", "/unified")];
        let mounts = points.map(|(kind, name)| mount(kind, "/", &format!("/sys/fs/cgroup{name}")));
        let find = |own| directory_of_group(own, &mounts);
        assert_eq!(find("/"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find("/a.slice/b"), Some("/sys/fs/cgroup/unified/a.slice/b".into()));
        assert_eq!(find("/../other"), None);
        let inner = [mount("cgroup2", "/outer", "/cg")];
        assert_eq!(directory_of_group("/outer/in", &inner), Some("/cg/in".into()));
        assert_eq!(directory_of_group("/else", &inner), None);
        assert_eq!(directory_of_group("/", &[mount("ext4", "/", "/")]), None);
    }

    #[test]
    fn only_groups_of_kurabe_are_given_back() {
        let home = tempfile::tempdir().unwrap();
        let mut done = Vec::new();
        let precious = home.path().join("kurabe-precious");
        fs::create_dir(&precious).unwrap();
        let refused = give_back(&precious, &mut done).unwrap_err();
        assert!(refused.contains("no control group"), "{refused}");
        assert!(precious.exists());
        let refused = give_back(Path::new("/sys/fs/cgroup"), &mut done).unwrap_err();
        assert!(refused.contains("not one of kurabe's"), "{refused}");
        assert_eq!(give_back(&home.path().join("kurabe-gone"), &mut done), Ok(None));
        assert!(done.is_empty());
    }

    #[test]
    fn an_empty_group_whose_maker_has_ended_is_forgotten() {
        let Some(above) = own_group() else {
            eprintln!("SKIPPED: there are no control groups of version 2 here");
            return;
        };
        let mut ended = trust::program::command("true").unwrap().spawn().unwrap();
        ended.wait().unwrap();
        // Below a group of its own, where no other kurabe cleans.
        let own = above.join(random_name());
        let names = [
            (format!("{NAME_PREFIX}{}-1", ended.id()), true),
            (format!("{NAME_PREFIX}{}-1", std::process::id()), false),
            (format!("{NAME_PREFIX}precious"), false),
            (format!("other-{}-1", ended.id()), false),
        ];
        let made = fs::create_dir(&own)
            .and_then(|()| names.iter().try_for_each(|(name, _)| fs::create_dir(own.join(name))));
        if let Err(error) = made {
            eprintln!("SKIPPED: no control group can be made here: {error}");
            return;
        }
        let removed = remove_forgotten_in(&own);
        let left: Vec<bool> = names.iter().map(|(name, _)| !own.join(name).exists()).collect();
        remove_groups(&own).unwrap();
        assert_eq!(left, names.map(|(_, is_forgotten)| is_forgotten));
        assert_eq!(removed.len(), 1);
    }

    #[test]
    fn groups_nested_by_thousands_are_removed() {
        let Some(above) = own_group() else {
            eprintln!("SKIPPED: there are no control groups of version 2 here");
            return;
        };
        let own = above.join(random_name());
        if let Err(error) = fs::create_dir(&own) {
            eprintln!("SKIPPED: no control group can be made here: {error}");
            return;
        }
        // Deeper than a path may be long.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(&own, flags, Mode::empty()).unwrap();
        for _ in 0..1400 {
            rustix::fs::mkdirat(&at, "dd", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "dd", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_groups(&own).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn what_flees_into_a_session_and_a_group_of_its_own_is_ended() {
        let home = tempfile::tempdir().unwrap();
        let own = trust::Directory::open(home.path()).unwrap();
        let Some(group) = ControlGroup::begin(|| Ledger::start(&own)) else {
            eprintln!("SKIPPED: no control group of version 2 can be made here");
            return;
        };
        let path = group.path.clone();
        let held = group.ledger.held();
        assert_eq!(held, [Taken::ControlGroup { path: path.clone() }]);
        let below = path.join("below");
        fs::create_dir(&below).unwrap();
        let script = format!(
            "env -i setsid sleep 600 & sleep 601 & echo $! >{}/cgroup.procs; wait $!",
            below.display()
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]);
        let before_exec =
            confine(&mut command, Some(group.directory().unwrap()), None, None).unwrap();
        let child = command.spawn().unwrap();
        drop(command);
        let (process, _) = before_exec.of(child).unwrap();
        let sleeps = |path| {
            let names = members(path).into_iter().map(|number| named(&number));
            names.filter(|name| name.starts_with("sleep")).count()
        };
        let until = Instant::now() + Duration::from_secs(60);
        while sleeps(&path) < 2 || sleeps(&below) == 0 {
            assert!(Instant::now() < until, "{:?}", members(&path));
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = group.end().unwrap();
        assert_eq!(ended.iter().filter(|name| name.starts_with("sleep")).count(), 2, "{ended:?}");
        assert!(!path.exists() && group.ledger.held().is_empty());
        assert_eq!(wait_with_usage(process).unwrap().signal, Some(9));
        assert_eq!(group.end().unwrap(), [""; 0]);
    }

    /// `cgroup.kill` does not end it.
    #[test]
    fn a_process_whose_first_thread_has_ended_ends_with_the_group() {
        let home = tempfile::tempdir().unwrap();
        let own = trust::Directory::open(home.path()).unwrap();
        let Some(group) = ControlGroup::begin(|| Ledger::start(&own)) else {
            eprintln!("SKIPPED: no control group of version 2 can be made here");
            return;
        };
        let script = "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(ctypes.c_long(EXIT), 0)"
            .replace("EXIT", &libc::SYS_exit.to_string());
        let mut command = std::process::Command::new("python3");
        command.args(["-c", &script]);
        let before_exec =
            confine(&mut command, Some(group.directory().unwrap()), None, None).unwrap();
        let Ok(child) = command.spawn() else {
            eprintln!("SKIPPED: python3 is not installed");
            return;
        };
        drop(command);
        let (process, _) = before_exec.of(child).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let states = || {
            let read =
                |number| fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            members(&group.path).into_iter().map(read).collect::<String>()
        };
        while !states().contains(") Z ") {
            assert!(Instant::now() < until, "{}", states());
            std::thread::sleep(Duration::from_millis(2));
        }
        let goes_on = |number: &i32| crate::leftovers::Process::of(*number).is_some();
        assert!(members(&group.path).iter().all(goes_on));
        group.end().unwrap();
        assert_eq!(wait_with_usage(process).unwrap().signal, Some(9));
    }
}
