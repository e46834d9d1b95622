//! How much of a study ran: the line that stands with the answer of a quick profile.

use lab::plan::Plan;

/// The line that says that a part of the study ran, which part, and how all of it runs. None where
/// all of it ran.
pub fn line(plan: &Plan) -> Option<String> {
    let study = &plan.study;
    let reduced = study.reduced.as_ref()?;
    let kind = if reduced.quick { "Quick profile" } else { "Scaled" };
    let size = if study.source.is_some() { "published size" } else { "study's full size" };
    let device = match &reduced.device {
        Some(whole) => format!(" on {} instead of {whole}", study.device),
        None => String::new(),
    };
    Some(format!("{kind}, not the {size}: {}{device}; {}.", reduced.shares(study), reduced.remedy))
}
