//! How much of a study ran, and on what: the line that stands above all numbers of a quick profile,
//! and what else differs from a publication by how the study was run.

use lab::analysis::Analysis;
use lab::plan::Plan;
use lab::published::{PublishedTable, Statistic};

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

/// Of how many trials the counts and the latencies of a published table are; None for one without
/// counts.
pub fn pooled(table: &PublishedTable) -> Option<String> {
    let mut cells = table.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.here);
    cells.any(|cell| cell.statistic == Statistic::Count).then(|| {
        "counts here are of one trial (the mean of all), as the published ones are of one run; averages, percentiles and maxima are of all trials together".to_string()
    })
}

/// What differs from the publication: what the study's author says, after what follows from the
/// device that was used.
pub fn differs(plan: &Plan) -> Vec<String> {
    let study = &plan.study;
    let (kind, rest) = study.device.split_once(':').unwrap_or((&study.device, ""));
    let on_directories = study.contenders.iter().all(|contender| contender.directory.is_some());
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
