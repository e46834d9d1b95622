//! How a guest ended, by what its console and its emulator said: pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
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

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Completed => "completed",
            End::CommandFailed => "command failed",
            End::KernelPanic => "kernel panic",
            End::Oops => "oops",
            End::Hang => "hang",
            End::OutOfMemory => "out of memory",
            End::BootFailure => "boot failure",
            End::DiskVanished => "disk vanished",
            End::EmulatorDied => "the emulator died",
        })
    }
}

/// What is known of an end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
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
pub fn classify(seen: Seen, console: &str) -> End {
    let says = |texts: &[&str]| texts.iter().any(|text| console.contains(text));
    if seen.code == Some(0) && !seen.failed {
        return End::Completed;
    }
    if seen.killed {
        return End::EmulatorDied;
    }
    if !seen.ready {
        return End::BootFailure;
    }
    if says(OUT_OF_MEMORY) {
        return End::OutOfMemory;
    }
    if says(OOPS) {
        return End::Oops;
    }
    if says(&["Kernel panic"]) {
        return End::KernelPanic;
    }
    if seen.silent {
        return End::Hang;
    }
    if says(DISK) {
        return End::DiskVanished;
    }
    match seen.code {
        Some(_) => End::CommandFailed,
        None => End::EmulatorDied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_counts() {
        let ready = Seen { ready: true, ..Seen::default() };
        let failed = Seen { code: Some(0), failed: true, ..ready };
        let cases = [
            (Seen { code: Some(0), ..ready }, "Buffer I/O error on dev vda", End::Completed),
            (failed, "", End::CommandFailed),
            (Seen { code: Some(1), ..ready }, "", End::CommandFailed),
            (failed, "blk: I/O error, dev vda, sector 8", End::DiskVanished),
            (failed, "Out of memory: Killed process 99 (tail)", End::OutOfMemory),
            (ready, "Kernel panic - not syncing: sysrq triggered crash", End::KernelPanic),
            (ready, "Oops: 0002 [#1]\nKernel panic - not syncing: Fatal exception", End::Oops),
            (ready, "Kernel panic - not syncing: System is deadlocked on memory", End::OutOfMemory),
            (Seen { silent: true, ..ready }, "", End::Hang),
            (Seen { silent: true, ..Seen::default() }, "", End::BootFailure),
            (Seen::default(), "Kernel panic - not syncing: no init found", End::BootFailure),
            (Seen { killed: true, ..ready }, "", End::EmulatorDied),
            (ready, "", End::EmulatorDied),
        ];
        for (seen, console, end) in cases {
            assert_eq!(classify(seen, console), end, "{seen:?} {console}");
        }
    }
}
