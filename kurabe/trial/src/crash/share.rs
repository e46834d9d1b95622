//! Shares of the states of one recording, which several machines try, and what they show together.

use std::fs::File;
use std::sync::Arc;

use crash::{Log, Recording};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::places::FileMap;
use super::{CASES_MAX, Case, CrashReport, CrashVerdict, Recorded, Trial};
use crate::tool::StepFailure;

/// A share of the work, where several machines do it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateShare {
    /// The workload is recorded, and no state is tried.
    Recording,
    /// Each state is tried whose place among all is this one or a multiple of `of` after it.
    States {
        /// From 0.
        first: usize,
        /// How many shares there are; above 0.
        of: usize,
        kept: Kept,
    },
}

/// What states are made of, besides the bytes of the recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    log: Log,
    from: crash::Instant,
    to: crash::Instant,
    places: FileMap,
}

impl Kept {
    /// What is kept of a recording: all but its bytes and the contents of files.
    pub(super) fn of(recorded: &Recorded) -> Kept {
        let Recorded { recording, from, to, places, .. } = recorded;
        Kept { log: recording.log.clone(), from: *from, to: *to, places: places.clone() }
    }

    /// The recording on a bench, with its bytes.
    pub(super) fn taken(&self, bench: &Bench<'_>, data: File) -> Result<Recorded, StepFailure> {
        let Kept { log, from, to, places } = self.clone();
        bench.take(&log)?;
        let recording = Arc::new(Recording { log, data: Arc::new(data) });
        Ok(Recorded { recording, from, to, places, left: None, refused: None })
    }
}

impl Trial<'_, '_> {
    /// Those of some things that are this share's, with their places among all.
    pub(super) fn own<T>(&self, all: Vec<T>) -> Vec<(usize, T)> {
        let (first, of) = match &self.share {
            Some(StateShare::States { first, of, .. }) => (*first, (*of).max(1)),
            _ => (0, 1),
        };
        all.into_iter().enumerate().skip(first).step_by(of).collect()
    }
}

impl CrashReport {
    /// Joins what shares of the states of one recording showed. The first failing states are those that
    /// whoever tries all of them finds first; what was joined with nothing is as it was.
    pub fn joined(reports: Vec<CrashReport>) -> Option<CrashReport> {
        let mut reports = reports.into_iter();
        let mut whole = reports.next()?;
        for part in reports {
            whole.states += part.states;
            whole.control += part.control;
            whole.cases.extend(part.cases);
            whole.left_out += part.left_out;
            whole.needless.extend(part.needless);
            whole.timeline.tried += part.timeline.tried;
            whole.timeline.control_tried += part.timeline.control_tried;
            whole.timeline.violated_ns.extend(part.timeline.violated_ns);
            whole.timeline.control_violated_ns.extend(part.timeline.control_violated_ns);
            whole.notes.extend(part.notes);
            whole.trying_ns += part.trying_ns;
            whole.spent += part.spent;
        }
        whole.cases.sort_by_key(|case| case.place);
        // The first state that is mounted after fsck only is a case of its own.
        let is_fsck = |case: &Case| !case.finding.kind.is_violation();
        let first_fsck = whole.cases.iter().position(is_fsck);
        let (mut place, mut violations) = (0, 0);
        whole.cases.retain(|case| {
            violations += usize::from(!is_fsck(case));
            let keeps =
                if is_fsck(case) { first_fsck == Some(place) } else { violations <= CASES_MAX };
            place += 1;
            keeps
        });
        whole.timeline.violated_ns.sort_unstable();
        whole.timeline.control_violated_ns.sort_unstable();
        whole.notes.sort();
        whole.notes.dedup();
        if whole.verdict() != CrashVerdict::Held {
            // Of a contender that loses something anyway they tell nothing.
            (whole.left_out, whole.needless) = (0, Vec::new());
        }
        Some(whole)
    }
}
