//! Takes out of a study what cannot be had where it is carried out, when the study says so.

use guest::ImageStore;
use lab::condition;
use lab::contender::Contender;
use lab::study::{LeftOut, Study};
use trial::filesystem;
use trial::lower;
use trial::upper;
use trust::Directory;
use vocabulary::kind::WorkloadSpec;

use super::images::{built_for, image, lacks};
use crate::exit::Failure;
use crate::request::programs::missing_program;

/// Takes out of a study what this machine cannot have, when the study says so. Gates of contenders
/// that are left out are refused.
pub fn leave_out_missing(study: &mut Study) -> Result<(), Failure> {
    if study.leave_out_missing { leave_out(study, missing) } else { Ok(()) }
}

/// Takes out of a study the contenders that lack something, and the workloads that this machine cannot
/// have.
fn leave_out(
    study: &mut Study,
    missing: impl Fn(&Contender) -> Vec<String>,
) -> Result<(), Failure> {
    let baseline = study.contenders[study.baseline].label.clone();
    let mut left_out = Vec::new();
    let lacks_of = |load: &WorkloadSpec| load.parsed().needs().missing;
    let workloads = &study.workloads;
    study.contenders.retain(|contender| {
        let in_guests = is_in_guests(contender);
        let mut lacks = missing(contender);
        if contender.store.is_some() {
            lacks.extend(workloads.iter().flat_map(|one| lacks_of(&one.on(contender).load)));
            lacks.sort_unstable();
            lacks.dedup();
        }
        keep(&mut left_out, "contender", &contender.label, lacks, in_guests)
    });
    let every_one_has_a_store = study.contenders.iter().all(|one| one.store.is_some());
    study.workloads.retain(|workload| {
        let runs_as_written = !(every_one_has_a_store && workload.load.runs_on_store());
        let mut lacks = if runs_as_written { lacks_of(&workload.load) } else { Vec::new() };
        if let Some(command) = workload.load.command()
            && let Some(program) = missing_program(&command)
        {
            lacks.push(format!("the program '{program}' is not found"));
        }
        keep(&mut left_out, "workload", &workload.name, lacks, false)
    });
    let lines = left_out
        .iter()
        .map(|left: &LeftOut| format!("{} '{}': {}", left.what, left.name, left.missing.join("; ")))
        .collect::<Vec<_>>();
    if study.contenders.is_empty() || study.workloads.is_empty() {
        return Err(Failure::refused(format!(
            "this machine lacks everything that the study needs\n{}",
            lines.join("\n")
        )));
    }
    for gate in &study.gates {
        let condition = condition::parse(gate).expect("gates were checked with the study");
        let (labels, workloads) = (condition.labels(), condition.workloads());
        // A gate may bound the ratio to the baseline: without it the bound would mean another thing.
        let of_left = |left: &&LeftOut| match left.what.as_str() {
            "workload" => workloads.contains(&left.name.as_str()),
            _ => {
                labels.contains(&left.name.as_str())
                    || (condition.needs_baseline() && left.name == baseline)
            }
        };
        if let Some(left) = left_out.iter().find(of_left) {
            return Err(Failure::refused(format!(
                "gate '{gate}': {} is missing here: {}",
                left.name,
                left.missing.join("; ")
            )));
        }
    }
    // Without its baseline the study is compared with the first that is there.
    let position = study.contenders.iter().position(|contender| contender.label == baseline);
    study.baseline = position.unwrap_or(0);
    let instead = study.contenders[study.baseline].label.clone();
    let of_baseline = |left: &&mut LeftOut| left.what == "contender" && left.name == baseline;
    if let Some(left) = left_out.iter_mut().find(of_baseline) {
        left.missing.push(format!("ratios are to {instead} instead"));
    }
    study.left_out.append(&mut left_out);
    Ok(())
}

fn keep(
    left_out: &mut Vec<LeftOut>,
    what: &str,
    name: &str,
    missing: Vec<String>,
    in_guests: bool,
) -> bool {
    let here = missing.is_empty();
    if !here {
        left_out.push(LeftOut { what: what.into(), name: name.into(), missing, in_guests });
    }
    here
}

/// What this machine lacks for a contender, a line each. What the kernel of a guest has is known when
/// its image is there.
pub fn missing(contender: &Contender) -> Vec<String> {
    let mut missing =
        match (filesystem::by_name(contender.file_system()), contender.environment.guest()) {
            // Its tools come with it.
            (Some(_), Some(_)) if built_for(contender).is_some() => Vec::new(),
            (Some(file_system), Some(_)) => filesystem::missing_tools(file_system),
            (Some(file_system), None) => filesystem::missing(file_system),
            (None, _) => Vec::new(),
        };
    missing.extend(upper::missing(contender));
    missing.extend(lower::missing(contender));
    missing
}

/// Whether a contender is missing on this machine and a guest has it.
fn is_in_guests(contender: &Contender) -> bool {
    let file_system = filesystem::by_name(contender.file_system());
    contender.environment.guest().is_none()
        && (file_system.is_some_and(filesystem::is_in_guests)
            || lower::of(contender).any(|one| one.only_in_guests().is_some())
            || upper::is_in_guests(contender))
}

/// Builds the guests of a study, and takes out of it what they cannot have, when the study says so.
pub fn leave_out_missing_in_guests(study: &mut Study) -> Result<(), Failure> {
    if !study.leave_out_missing
        || study.contenders.iter().all(|one| one.environment.guest().is_none())
    {
        return Ok(());
    }
    let own = Directory::own().map_err(Failure::refused)?;
    let store = ImageStore::open(&own, lower::supplies())?;
    // Without a guest at all nothing is left of the study.
    for contender in &study.contenders {
        if let Some(place) = contender.environment.guest() {
            image(&store, place, &[])?;
        }
    }
    let missing = |contender: &Contender| {
        let place = contender.environment.guest()?;
        match image(&store, place, &[contender]) {
            Ok(image) => lacks(contender, image.lock()),
            Err(failure) => Some(failure.message),
        }
    };
    leave_out(study, |contender| missing(contender).into_iter().collect())
}
