//! What kurabe changes in a job, in words for those who read its figures.
//!
//! A job is not always run as its author wrote it: its files are laid out first, buffered writes are
//! synced, and directories and devices of another machine become the contender. A reader who compares the
//! figures with those of fio alone must know that.

use super::groups::several_sizes;
use super::jobfile::JobFile;
use super::place::{self, FioTarget};
use super::run::{is_laid_out, is_overwritten, synced_at_end};
use vocabulary::capacity;

/// What comes in the place of what the jobs name, or do not say, on this target. `size_bytes` is the size
/// that jobs without one got.
pub fn replaced(job: &JobFile, target: &FioTarget, size_bytes: Option<u64>) -> Vec<String> {
    let moved = place::moved(job, target);
    let place = match target {
        FioTarget::Directory(_) => "the contender's directory",
        FioTarget::Device(_) => "the device",
    };
    let moved = (!moved.is_empty()).then(|| format!("{place} in place of {}", moved.join(", ")));
    let size = size_bytes
        .map(|size| format!("size={} for jobs without a size", capacity::bytes_text(size)));
    moved.into_iter().chain(size).collect()
}

/// What is changed in the jobs so that they find their files and write to the device; nothing of it where
/// they run as they are written. Options that only make fio tell more are left out.
pub fn changes(job: &JobFile) -> Vec<String> {
    let mut changes = Vec::new();
    let laid_out = || job.jobs().map(|(index, _)| index).filter(|index| is_laid_out(job, *index));
    if laid_out().next().is_some() {
        let (overwrite, meaning) = if laid_out().any(|index| is_overwritten(job, index)) {
            ("overwrite=1, ", ", so writes replace blocks that exist")
        } else {
            ("", "")
        };
        changes.push(format!(
            "files laid out and written in full before the run ({overwrite}fallocate=none){meaning}"
        ));
    }
    let synced = synced_at_end(job);
    if !synced.is_empty() {
        changes.push(format!("end_fsync=1 for {}", synced.join(", ")));
    }
    let apart = several_sizes(job);
    if !apart.is_empty() {
        let names = apart.iter().map(|index| job.sections[*index].name.as_str());
        let names: Vec<&str> = names.collect();
        let why = "whose block sizes or operations differ";
        changes.push(format!("group_reporting=0 for {}, {why}", names.join(", ")));
    }
    changes
}
