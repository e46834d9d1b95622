//! How often a node of several asks the cluster for a lock, and how often another node wants one that it holds: calls
//! of functions of its kernel, which the kernel counts (kprobes).
//!
//! In guests only, whose kernel and its tracing are nobody else's. Nothing is kept of a call but its number.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use lab::record::LockCounts;

/// What a file system calls, each as `MODULE:FUNCTION`.
#[derive(Debug, Clone, Copy)]
pub struct LockCalls {
    /// To ask for a lock, or for another kind of one.
    pub requests: &'static [&'static str],
    /// When it hears that another node wants a lock.
    pub revocations: &'static [&'static str],
}

const TRACING: &str = "/sys/kernel/tracing";
const GROUP: &str = "kurabe";
const REQUEST: &str = "request";
const REVOCATION: &str = "revocation";

/// Has the kernel count these calls from now on, until it ends.
pub fn begin(calls: LockCalls) -> io::Result<()> {
    let tracing = Path::new(TRACING);
    let events = tracing.join("kprobe_events");
    if !events.exists() {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tracefs", tracing, "tracefs", flags, None)?;
    }
    let mut events = OpenOptions::new().append(true).open(events)?;
    for (name, functions) in [(REQUEST, calls.requests), (REVOCATION, calls.revocations)] {
        for (number, function) in functions.iter().enumerate() {
            events
                .write_all(format!("p:{GROUP}/{name}{number} {function}\n").as_bytes())
                .map_err(|error| io::Error::new(error.kind(), format!("{function}: {error}")))?;
        }
    }
    // Each call is counted, and none is written into the rings.
    fs::write(tracing.join("tracing_on"), "0")?;
    fs::write(tracing.join("events").join(GROUP).join("enable"), "1")
}

/// The calls since [`begin`].
pub fn read() -> io::Result<LockCounts> {
    let profile = fs::read_to_string(Path::new(TRACING).join("kprobe_profile"))?;
    counted(&profile).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, profile))
}

/// The sums of lines of an event's name, its hits and its misses; none where a call was missed.
fn counted(profile: &str) -> Option<LockCounts> {
    let mut counts = LockCounts::default();
    for line in profile.lines() {
        let [name, hits, "0"] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let hits: u64 = hits.parse().ok()?;
        match name.trim_end_matches(|end: char| end.is_ascii_digit()) {
            REQUEST => counts.requests += hits,
            REVOCATION => counts.revocations += hits,
            _ => return None,
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_several_functions_are_added_up_and_none_may_be_missed() {
        let line =
            |name: &str, hits: u64, missed: u64| format!("  {name:<44} {hits:15} {missed:15}\n");
        let all = line("request0", 5, 0) + &line("request10", 7, 0) + &line("revocation0", 2, 0);
        assert_eq!(counted(&all), Some(LockCounts { requests: 12, revocations: 2 }));
        assert_eq!(counted(&(all.clone() + &line("request1", 1, 1))), None);
        assert_eq!(counted(&(all + &line("another", 1, 0))), None);
    }
}
