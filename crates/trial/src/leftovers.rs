//! What the user's commands left running: finds it, and ends it where it stands in the way of
//! giving the file system back.
//!
//! A process that left the command's group (a daemon, `setsid`) is reached neither by the bound on
//! the trial nor by a stop, and keeps the mount busy. Invariant: nothing is killed outside of the
//! trial's own process namespace, and nothing inside it that was there before the first command.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The processes of the trial's namespace at some moment.
#[derive(Debug)]
pub struct Processes(BTreeSet<i32>);

impl Processes {
    /// Those that run now; none where the trial has no namespace of its own.
    pub fn now() -> Option<Processes> {
        // Whoever is number 1 is the first process of its namespace.
        (std::process::id() == 1)
            .then(|| Processes(running().map(|process| process.number).collect()))
    }

    /// Kills those that came since and names them.
    pub fn end_those_since(&self) -> Vec<String> {
        running()
            .filter(|process| !self.0.contains(&process.number))
            .filter_map(|process| {
                kill_process(Pid::from_raw(process.number)?, Signal::KILL).ok()?;
                Some(format!("{} (process {})", process.name, process.number))
            })
            .collect()
    }
}

/// Whether a process of this group still runs. `kill(2)` cannot tell: for it, one that has ended
/// and that nobody waited for is still there.
pub fn group_runs(group: Pid) -> bool {
    running().any(|process| process.group == group.as_raw_nonzero().get())
}

struct Process {
    number: i32,
    name: String,
    group: i32,
}

/// The processes that can be seen and have not ended.
fn running() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        parse_stat(number, &stat)
    })
}

/// `NUMBER (NAME) STATE PARENT GROUP ...`, proc(5); none for one that has ended. The name may hold
/// parentheses and spaces itself.
fn parse_stat(number: i32, stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then(|| Process { number, name: name.into(), group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_groups_and_states_are_read() {
        let process = parse_stat(7, "7 (a) b) S 1 42 42 0 -1").unwrap();
        assert_eq!((process.name.as_str(), process.group), ("a) b", 42));
        assert!(parse_stat(7, "7 (a) Z 1 42 42 0 -1").is_none());
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
    fn outside_of_a_namespace_of_its_own_a_trial_kills_nothing() {
        assert!(Processes::now().is_none());
    }
}
