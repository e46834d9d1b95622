//! How a guest ended, by what its console and its emulator said: pure.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestEnd {
    /// In order, and its command succeeded.
    Completed,
    /// In order, and its command failed.
    CommandFailed,
    /// The kernel gave up.
    KernelPanic,
    /// The kernel hit a fault of its own.
    Oops,
    /// It gave no sign of life.
    Hang,
    /// The kernel had no memory left.
    OutOfMemory,
    /// It never came so far that a command could run.
    BootFailure,
    /// Its disk was gone or failed.
    DiskVanished,
    /// The emulator was killed, or gave up.
    EmulatorDied,
}

impl fmt::Display for GuestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuestEnd::Completed => "completed",
            GuestEnd::CommandFailed => "command failed",
            GuestEnd::KernelPanic => "kernel panic",
            GuestEnd::Oops => "oops",
            GuestEnd::Hang => "hang",
            GuestEnd::OutOfMemory => "out of memory",
            GuestEnd::BootFailure => "boot failure",
            GuestEnd::DiskVanished => "disk vanished",
            GuestEnd::EmulatorDied => "the emulator died",
        })
    }
}

/// What is known of an end.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndEvidence {
    /// Whether the guest could run a command.
    pub ready: bool,
    /// Whether it was killed for giving no sign of life.
    pub silent: bool,
    /// Whether somebody else killed the emulator.
    pub killed: bool,
    /// The code of its command, when it ended in order.
    pub code: Option<u8>,
    /// Whether the command, which may have ended with code 0, says that it failed.
    pub failed: bool,
}

const OOPS: &[&str] = &["Oops: ", "BUG: ", "general protection fault", "kernel BUG at"];
const OUT_OF_MEMORY: &[&str] =
    &["Out of memory: Killed", "Out of memory and no killable", "System is deadlocked on memory"];
const DISK: &[&str] = &["I/O error, dev vd", "I/O error on dev vd", "Buffer I/O error on dev vd"];

/// Says how a guest ended. The first cause counts: a panic that follows an oops is an oops.
pub fn classify(seen: EndEvidence, console: &str) -> GuestEnd {
    let says = |texts: &[&str]| texts.iter().any(|text| console.contains(text));
    if seen.code == Some(0) && !seen.failed {
        return GuestEnd::Completed;
    }
    if seen.killed {
        return GuestEnd::EmulatorDied;
    }
    if !seen.ready {
        return GuestEnd::BootFailure;
    }
    if says(OUT_OF_MEMORY) {
        return GuestEnd::OutOfMemory;
    }
    if says(OOPS) {
        return GuestEnd::Oops;
    }
    if says(&["Kernel panic"]) {
        return GuestEnd::KernelPanic;
    }
    if seen.silent {
        return GuestEnd::Hang;
    }
    if says(DISK) {
        return GuestEnd::DiskVanished;
    }
    match seen.code {
        Some(_) => GuestEnd::CommandFailed,
        None => GuestEnd::EmulatorDied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_counts() {
        let ready = EndEvidence { ready: true, ..EndEvidence::default() };
        let failed = EndEvidence { code: Some(0), failed: true, ..ready };
        let cases = [
            (
                EndEvidence { code: Some(0), ..ready },
                "Buffer I/O error on dev vda",
                GuestEnd::Completed,
            ),
            (failed, "", GuestEnd::CommandFailed),
            (EndEvidence { code: Some(1), ..ready }, "", GuestEnd::CommandFailed),
            (failed, "blk: I/O error, dev vda, sector 8", GuestEnd::DiskVanished),
            (failed, "Out of memory: Killed process 99 (tail)", GuestEnd::OutOfMemory),
            (ready, "Kernel panic - not syncing: sysrq triggered crash", GuestEnd::KernelPanic),
            (ready, "Oops: 0002 [#1]\nKernel panic - not syncing: Fatal exception", GuestEnd::Oops),
            (
                ready,
                "Kernel panic - not syncing: System is deadlocked on memory",
                GuestEnd::OutOfMemory,
            ),
            (EndEvidence { silent: true, ..ready }, "", GuestEnd::Hang),
            (EndEvidence { silent: true, ..EndEvidence::default() }, "", GuestEnd::BootFailure),
            (
                EndEvidence::default(),
                "Kernel panic - not syncing: no init found",
                GuestEnd::BootFailure,
            ),
            (EndEvidence { killed: true, ..ready }, "", GuestEnd::EmulatorDied),
            (ready, "", GuestEnd::EmulatorDied),
        ];
        for (seen, console, end) in cases {
            assert_eq!(classify(seen, console), end, "{seen:?} {console}");
        }
    }
}
