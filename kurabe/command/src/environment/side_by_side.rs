//! Under which workloads the contenders of a block stand side by side: where that is possible, and
//! by default where it is fair too. The reason is said wherever they come one at a time unasked.

use std::collections::BTreeSet;

use lab::quantity::size_text;
use lab::spec::Workload;
use lab::study::Study;
use lab::words::grouped;
use trial::device::{DeviceRequest, part_bytes};
use trial::filesystem;
use vocabulary::capacity::Capacity;

use crate::exit::Failure;

/// Why contenders come one at a time.
enum Why {
    /// They cannot stand side by side.
    Impossible(String),
    /// It would not be fair, or gain nothing.
    Unwanted(String),
}

/// The names of the workloads under which contenders take turns. Their files must have been read.
pub fn chosen(study: &Study, request: &DeviceRequest) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for workload in &study.workloads {
        match why_not(study, workload, request) {
            None => {
                names.insert(workload.name.clone());
            }
            Some(Why::Impossible(why)) if study.side_by_side == Some(true) => {
                return Err(Failure::refused(format!(
                    "--side-by-side: workload '{}': {why}; leave it out, and they come one at a time",
                    workload.name
                )));
            }
            Some(_) => {}
        }
    }
    Ok(names)
}

/// One line for the plan: how the contenders of a block come, and why.
pub fn words(study: &Study, workload: &Workload, request: &DeviceRequest) -> String {
    match why_not(study, workload, request) {
        None => {
            let parts = study.contenders.len();
            let part = request.size_bytes().map_or(String::new(), |bytes| {
                format!(", each on {} of its own", size_text(part_bytes(bytes, parts as u32)))
            });
            format!("in alternating runs{part}")
        }
        Some(Why::Impossible(why) | Why::Unwanted(why)) => format!("one at a time: {why}"),
    }
}

/// A warning for each contender that the whole device is too small for.
pub fn small(study: &Study, request: &DeviceRequest) -> Vec<String> {
    let Some(bytes) = request.size_bytes() else { return Vec::new() };
    let warning = |reason| format!("warning: {reason}; give a larger --device");
    too_small(study, bytes).map(warning).collect()
}

/// The contenders that behave differently on so few bytes.
fn too_small(study: &Study, bytes: u64) -> impl Iterator<Item = String> {
    study.contenders.iter().filter_map(move |contender| {
        let small = trial::lower::too_small(contender, bytes, bytes)?;
        Some(format!("'{}': {small}", contender.label))
    })
}

/// How large the part of each contender is where they take turns; None where they do not.
pub fn parts(study: &Study, chosen: &BTreeSet<String>, request: &DeviceRequest) -> Option<String> {
    let bytes = part_bytes(request.size_bytes()?, study.contenders.len() as u32);
    (!chosen.is_empty()).then(|| {
        format!(
            "contenders alternate, each on {} of {}; --one-at-a-time gives each the whole device",
            size_text(bytes),
            study.device
        )
    })
}

/// Why contenders come one at a time though nobody asked for that: a line for each reason.
pub fn notes(study: &Study, request: &DeviceRequest) -> Vec<String> {
    if study.side_by_side.is_some() || study.contenders.len() < 2 {
        return Vec::new();
    }
    let reasons = grouped(study.workloads.iter().filter_map(|workload| {
        let (Why::Impossible(why) | Why::Unwanted(why)) = why_not(study, workload, request)?;
        Some((why, workload.name.as_str()))
    }));
    let all = study.workloads.len();
    let line = |(why, names): &(String, Vec<&str>)| {
        if names.len() == all {
            format!("contenders come one at a time: {why}")
        } else {
            format!("{}: contenders come one at a time: {why}", names.join(", "))
        }
    };
    reasons.iter().map(line).collect()
}

fn why_not(study: &Study, workload: &Workload, request: &DeviceRequest) -> Option<Why> {
    let unwanted = |why: &str| Some(Why::Unwanted(why.into()));
    if study.side_by_side == Some(false) {
        return unwanted("that was asked for");
    }
    if study.contenders.len() < 2 {
        return unwanted("there is one contender");
    }
    if let Some(why) = impossible(study, workload, request) {
        return Some(Why::Impossible(why));
    }
    if study.side_by_side == Some(true) {
        return None;
    }
    if let Some(bytes) = request.size_bytes() {
        let part = part_bytes(bytes, study.contenders.len() as u32);
        if let Some(reason) = too_small(study, part).next() {
            return unwanted(&format!("{reason} as its part of {}", study.device));
        }
    }
    let lasts_long = workload.load.parsed().description().lasts_long;
    let kind = &workload.load.kind;
    lasts_long.then(|| Why::Unwanted(format!("a run of {kind} lasts long by itself")))
}

/// Why contenders cannot stand side by side under a workload, if they cannot.
fn impossible(study: &Study, workload: &Workload, request: &DeviceRequest) -> Option<String> {
    if study.device.starts_with('/') {
        return Some(format!("{} is used whole, by one contender at a time", study.device));
    }
    let parts = study.contenders.len() as u32;
    let bytes = part_bytes(request.size_bytes()?, parts);
    for contender in &study.contenders {
        let label = &contender.label;
        let file_system = filesystem::by_name(contender.file_system())?;
        if contender.environment.guest().is_some() {
            return Some(format!("'{label}' lives in a guest, and one is booted at a time"));
        }
        if !contender.needs_device() {
            return Some(format!("'{label}' is a directory that is there already"));
        }
        if !file_system.takes_turns {
            return Some(format!(
                "'{label}': {} cannot be made cold by itself, or has no directories",
                file_system.name
            ));
        }
        if let Some(user) = &study.user
            && !(file_system.owner_options)(0, 0).is_empty()
        {
            return Some(format!(
                "'{label}': {user} would own the directory above those of its runs, and could exchange them"
            ));
        }
        let hosts = trial::lower::hosts(contender).map(|host| host.size_bytes_min);
        let least = hosts.chain([file_system.size_bytes_min]).max().unwrap_or(0);
        if bytes < least {
            return Some(format!(
                "'{label}' needs {}, and one of {parts} parts of {} has {}",
                size_text(least),
                study.device,
                size_text(bytes)
            ));
        }
    }
    let capacity = Capacity { bytes, holder: format!("one of {parts} parts of the device") };
    study.forms_of(workload).iter().find_map(|form| form.load.check(Some(&capacity)).err())
}
