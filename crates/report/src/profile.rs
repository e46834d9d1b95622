//! How much of a study ran, and on what: the line that stands above all numbers of a quick profile,
//! and what else differs from a publication by how the study was run.

use lab::analysis::Analysis;
use lab::plan::Plan;
use lab::published::{Figure, PublishedTable, Statistic};

use crate::tables;

/// The line that says that a part of the study ran, which part, and how all of it runs. None where
/// all of it ran.
pub fn line(plan: &Plan, analysis: &Analysis) -> Option<String> {
    let study = &plan.study;
    let reduced = study.reduced.as_ref()?;
    let kind = if reduced.quick { "Quick profile" } else { "Scaled" };
    let size = if study.source.is_some() { "published size" } else { "study's full size" };
    let device = match &reduced.device {
        Some(whole) => format!(" on {} instead of {whole}", study.device),
        None => String::new(),
    };
    Some(format!(
        "{kind}, not the {size}: {}; {}{device}; {}.",
        reduced.shares(study),
        tables::all_blocks_text(analysis.workloads.iter()),
        reduced.remedy
    ))
}

/// Of how many trials the figures of a published table are, where a reader could take one for the
/// other; None for one of medians alone.
pub fn pooled(table: &PublishedTable) -> Option<String> {
    let cells = || table.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.here);
    let has = |statistic| cells().any(|cell| cell.statistic == statistic);
    let mut words = Vec::new();
    if has(Statistic::Count) {
        words.push("counts here are of one trial (the mean of all), as the published ones are of one run; averages, percentiles and maxima are of all trials together");
    } else if has(Statistic::Max) {
        words.push("a maximum here is the greatest of all trials together, a published one that of its one run");
        if has(Statistic::Value) {
            words.push("every other figure is the median of the trials");
        }
    }
    if cells().any(|cell| matches!(cell.figure, Figure::Detail(_))) {
        words.push("each number here is the median of the trials, latencies too: the greatest of all trials stands where a table has a maximum");
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// What differs from the publication: what the study's author says, after what follows from the
/// device that was used.
pub fn differs(plan: &Plan) -> Vec<String> {
    let study = &plan.study;
    let (kind, rest) = study.device.split_once(':').unwrap_or((&study.device, ""));
    let on_directories = study.contenders.iter().all(|contender| !contender.needs_device());
    let device = match kind {
        _ if on_directories => None,
        "loop" => {
            let (size, place) = rest.split_once('@').unwrap_or((rest, "the default directory"));
            Some(format!(
                "the device was no disk of its own but an image file of {size} on the host's file system (in {place}): that file system, its disk and whatever else uses them are part of every number"
            ))
        }
        "mem" => Some(format!(
            "the device was an image of {rest} in memory: nothing here says anything about a disk"
        )),
        _ => None,
    };
    device.into_iter().chain(study.differs.iter().cloned()).collect()
}
