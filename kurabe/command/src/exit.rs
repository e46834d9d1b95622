//! Exit codes, and the errors that carry one.

use std::fmt;

use lab::analysis::Analysis;
use lab::condition::{self, Gate};
use lab::record::{Outcome, Record};

use crate::terminal;

/// Everything was carried out, and every gate holds.
pub const OK: u8 = 0;
pub const TRIAL_FAILED: u8 = 1;
/// Wrong use, or refused; nothing was touched.
pub const REFUSED: u8 = 2;
/// A gate fails, or a check was violated.
pub const GATE_FAILS: u8 = 3;
/// A gate is inconclusive, and none fails.
pub const GATE_INCONCLUSIVE: u8 = 4;
/// A signal stopped the study: this and the signal's number, as shells have it.
pub const SIGNAL_BASE: u8 = 128;

/// The exit codes, for the help.
pub const HELP: &str = "\
Exit codes:
  0    everything was carried out, and every gate holds
  1    a run failed (also in the dry run), none was completed, or something could not be cleaned up
  2    wrong usage, or refused before any run; nothing was touched
  3    a gate fails, or a check was violated
  4    a gate is inconclusive, and none fails
  129, 130, 143    stopped by SIGHUP, SIGINT (Ctrl-C), SIGTERM; everything was cleaned up";

/// What a study's records, and gates over them, come to: a failed trial, or nothing measured, goes
/// before gates.
pub fn of_study(records: &[Record], analysis: &Analysis, gates: &[Gate]) -> u8 {
    let failed = |record: &Record| {
        matches!(record.outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. })
    };
    // A study that measured nothing is no success, whatever ended it.
    let measured = records.iter().any(|record| record.outcome == Outcome::Completed);
    if records.iter().any(failed) || !measured {
        return TRIAL_FAILED;
    }
    let any = |outcome| gates.iter().any(|gate| gate.outcome == outcome);
    let mut contenders = analysis.workloads.iter().flat_map(|workload| &workload.contenders);
    if any(condition::GateOutcome::Fails) || contenders.any(|one| one.violation().is_some()) {
        GATE_FAILS
    } else if any(condition::GateOutcome::Inconclusive) || any(condition::GateOutcome::NotTested) {
        GATE_INCONCLUSIVE
    } else {
        OK
    }
}

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    /// What is wrong, naming the place, the value and the next step.
    pub message: String,
}

impl Failure {
    /// Wrong use or refusal.
    pub fn refused(message: impl fmt::Display) -> Failure {
        Failure { code: REFUSED, message: message.to_string() }
    }

    /// Something that was begun could not be carried out.
    pub fn broken(message: impl fmt::Display) -> Failure {
        Failure { code: TRIAL_FAILED, message: message.to_string() }
    }

    /// Prints the error and gives its code.
    pub fn report(&self) -> u8 {
        terminal::note(&format!("kurabe: {}", self.message));
        self.code
    }
}

/// A refusal of something, with its error.
pub fn refused<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure::refused(format!("{what}: {error}"))
}

/// Something that could not be carried out, with its error.
pub fn broken<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure::broken(format!("{what}: {error}"))
}
