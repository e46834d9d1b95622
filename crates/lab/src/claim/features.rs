//! What a contender's mkfs turned on, by the file system's own word.

use super::{Claim, Finding, Outcome};
use crate::analysis::WorkloadAnalysis;
use crate::record::{Record, counted_trials};

/// Lines of `dumpe2fs -h` that say what is on.
const LINES: [&str; 2] = ["Filesystem features:", "Default mount options:"];

/// "Which options are on by default?": the command that made the file system of the contender's
/// first trial, and what the file system then said of itself.
pub(super) fn features(
    workloads: &[&WorkloadAnalysis],
    records: &[Record],
    claim: &Claim,
) -> Finding {
    let label = claim.contender.as_deref().unwrap_or_default();
    let mut trials =
        workloads.iter().flat_map(|workload| counted_trials(records, &workload.workload, label));
    let found = trials.find_map(|record| Some((record, said(record.geometry.as_deref()?)?)));
    let Some((record, mut evidence)) = found else {
        return Finding::untested(format!("{label} does not say what is on"));
    };
    if let Some(made) = record.commands.iter().find_map(|command| mkfs(command)) {
        evidence.insert(0, format!("{label} here is of {made}"));
    }
    Finding::new(Outcome::Answered, evidence)
}

/// The lines, each with its words apart by one blank.
fn said(geometry: &str) -> Option<Vec<String>> {
    let lines = geometry.lines().filter(|line| LINES.iter().any(|lead| line.starts_with(lead)));
    let lines: Vec<String> =
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    (!lines.is_empty()).then_some(lines)
}

/// The command without the device, when it is one that makes a file system.
fn mkfs(command: &str) -> Option<&str> {
    let (options, _device) = command.rsplit_once(' ')?;
    command.starts_with("mkfs").then_some(options)
}
