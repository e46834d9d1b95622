//! What the user's commands left running: finds it, and ends it where it stands in the way of
//! giving the file system or the directory back.
//!
//! A process that left the command's group (a daemon, `setsid`) is reached neither by the bound on
//! the trial nor by a stop, and keeps the mount busy. Invariants: where the trial has a process
//! namespace of its own, nothing outside of it is killed, and nothing inside it that was there
//! before the first command. Where it has none, only what was started with the trial's own
//! `KURABE_DIR` in its environment is; no two trials ever have the same.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The processes of the trial's namespace at some moment.
#[derive(Debug)]
pub struct NamespaceProcesses(BTreeSet<i32>);

impl NamespaceProcesses {
    /// Those that run now; none where the trial has no namespace of its own.
    pub fn now() -> Option<NamespaceProcesses> {
        // Whoever is number 1 is the first process of its namespace.
        (std::process::id() == 1)
            .then(|| NamespaceProcesses(running().map(|process| process.number).collect()))
    }

    /// Kills those that came since and names them, but for those with a name of `spared`.
    pub fn end_those_since(&self, spared: &[&str]) -> Vec<String> {
        let came_since = |process: &Process| {
            !self.0.contains(&process.number) && !spared.contains(&process.name.as_str())
        };
        running().filter_map(|process| end_if(&process, came_since)).collect()
    }
}

/// The variable that tells a command its directory.
pub const DIRECTORY_VARIABLE: &str = "KURABE_DIR";

/// How long killed processes are waited for; one may be in the middle of a long write.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// Kills the processes that were started in the environment of the trial in or below `directory`, waits
/// for their end and names them.
pub fn end_those_of(directory: &Path) -> Vec<String> {
    let is_mark = |word: &[u8]| {
        let value = word.strip_prefix(DIRECTORY_VARIABLE.as_bytes());
        let value = value.and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| Path::new(OsStr::from_bytes(value)).starts_with(directory))
    };
    let own = std::process::id() as i32;
    let marked = |process: &Process| {
        process.number != own
            && environments(process.number).any(|bytes| bytes.split(|byte| *byte == 0).any(is_mark))
    };
    let until = Instant::now() + END_WAIT_MAX;
    let mut ended = BTreeSet::new();
    loop {
        // Again and again, because one that is about to be killed may start another.
        let mut is_any_left = false;
        for process in running() {
            if Instant::now() >= until {
                return ended.into_iter().collect();
            }
            if marked(&process) {
                is_any_left = true;
                ended.extend(end_if(&process, marked));
            }
        }
        if !is_any_left {
            return ended.into_iter().collect();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the process if it is still what was looked for, and names it. Its number may have gone to another since: anyone
/// can use numbers up.
fn end_if(process: &Process, is_it: impl Fn(&Process) -> bool) -> Option<String> {
    let handle = pidfd_open(Pid::from_raw(process.number)?, PidfdFlags::empty()).ok()?;
    let now = Process::of(process.number)?;
    if now.start_ticks != process.start_ticks || !is_it(&now) {
        return None;
    }
    pidfd_send_signal(handle, Signal::KILL).ok()?;
    Some(format!("{} (process {})", process.name, process.number))
}

/// The environment of a process, as its first threads show it: the very first may have ended, and shows none then.
fn environments(process: i32) -> impl Iterator<Item = Vec<u8>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.take(2).filter_map(|thread| fs::read(thread.path().join("environ")).ok())
}

/// Whether a process of this group still runs. `kill(2)` cannot tell: for it, one that has ended
/// and that nobody waited for is still there.
pub fn group_runs(group: Pid) -> bool {
    running().any(|process| process.group == group.as_raw_nonzero().get())
}

/// A process that has not ended, as `/proc/PID/stat` shows it (proc(5)).
pub(crate) struct Process {
    number: i32,
    pub(crate) name: String,
    group: i32,
    /// CPU time of its own, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// When it started, in clock ticks since the boot.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// The process with this number; none where it has ended, also when nobody waited for it yet.
    pub(crate) fn of(number: i32) -> Option<Process> {
        parse_stat(number, &fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
    }
}

/// The processes that can be seen.
pub(crate) fn running() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?))
}

/// `NUMBER (NAME) STATE PARENT GROUP ...`. The name may hold parentheses and spaces itself.
fn parse_stat(number: i32, stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    // The third field of proc(5) is the first here.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |place: usize| fields.get(place - 3)?.parse::<u64>().ok();
    // The state is that of its first thread, which may have ended before the others.
    let has_ended = matches!(fields[0], "Z" | "X") && field(20)? <= 1;
    (!has_ended).then_some(())?;
    Some(Process {
        number,
        name: name.into(),
        group: field(5)? as i32,
        cpu_ticks: field(14)? + field(15)?,
        start_ticks: field(22)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_groups_and_states_are_read() {
        let rest = "1 42 42 0 -1 0 0 0 0 0 20 3 0 0 20 0 1 0 777 0";
        let process = parse_stat(7, &format!("7 (a) b) S {rest}")).unwrap();
        assert_eq!((process.name.as_str(), process.group), ("a) b", 42));
        assert_eq!((process.cpu_ticks, process.start_ticks), (23, 777));
        assert!(parse_stat(7, &format!("7 (a) Z {rest}")).is_none());
        let others = rest.replace("20 0 1 0 777", "20 0 2 0 777");
        assert!(parse_stat(7, &format!("7 (a) Z {others}")).is_some(), "another thread goes on");
        assert!(parse_stat(7, "7 (a").is_none());
        assert!(parse_stat(7, "").is_none());
    }

    #[test]
    fn a_group_runs_until_its_last_process_has_ended_waited_for_or_not() {
        use std::os::unix::process::CommandExt;
        let mut child =
            std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id() as i32).unwrap();
        assert!(group_runs(group));
        child.kill().unwrap();
        let ended = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            !group_runs(group)
        });
        assert!(ended, "it has ended, though nobody waited for it");
        assert!(rustix::process::test_kill_process_group(group).is_ok());
        child.wait().unwrap();
    }

    #[test]
    fn only_what_carries_the_mark_of_the_directory_is_ended() {
        let directory = "/nowhere/kurabe-test-of-leftovers";
        let start = |value: &str| {
            let script = "sleep 60 & setsid sleep 60 & wait";
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).env(DIRECTORY_VARIABLE, value).spawn().unwrap()
        };
        let mut own = start(directory);
        let mut other = start("/nowhere/kurabe-test-of-leftovers-2");
        std::thread::sleep(Duration::from_millis(300));
        let ended = end_those_of(Path::new(directory));
        assert_eq!(ended.iter().filter(|name| name.starts_with("sleep")).count(), 2, "{ended:?}");
        assert_eq!(ended.len(), 3, "{ended:?}");
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "somebody else's goes on");
        let ended = end_those_of(Path::new("/nowhere/kurabe-test-of-leftovers-2"));
        assert_eq!(ended.len(), 3, "{ended:?}");
        other.wait().unwrap();
        assert_eq!(end_those_of(Path::new(directory)), [""; 0]);
    }

    #[test]
    fn a_number_that_went_to_another_process_is_left_alone() {
        let start = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut child = start();
        let process = Process::of(child.id() as i32).unwrap();
        let earlier = Process {
            start_ticks: process.start_ticks - 1,
            ..Process::of(process.number).unwrap()
        };
        assert_eq!(end_if(&earlier, |_| true), None);
        assert_eq!(end_if(&process, |_| false), None);
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        assert!(end_if(&process, |_| true).unwrap().starts_with("sleep (process "));
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn outside_of_a_namespace_of_its_own_a_trial_kills_nothing() {
        assert!(NamespaceProcesses::now().is_none());
    }
}
