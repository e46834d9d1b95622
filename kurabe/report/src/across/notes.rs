//! What a reader must know of results that stand side by side: what has no counterpart, what has the
//! same name and is not the same, and what casts doubt on one of them by itself.
//!
//! Words only; nothing here decides what is compared.

use lab::spec::Workload;
use lab::warning::WarningKind;
use serde::Serialize;
use serde_json::Value;

use crate::sessions::{sentence, sessions};
use crate::source::ResultSource;
use crate::text;

/// Characters of a value that a sentence shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// What concerns the results together. `workloads`: the names of the workloads that are compared.
pub(super) fn of_all(
    sources: &[ResultSource],
    names: &[String],
    workloads: &[&str],
) -> Vec<String> {
    let mut notes = unmatched(sources, names);
    notes.extend(redefined(sources, names));
    notes.extend(unequal_work(sources, names, workloads));
    notes
}

/// What casts doubt on one result's numbers by itself: that it was measured in several sessions,
/// and of the workloads that are compared the grave warnings and the histograms that were left out.
pub(super) fn of_each(
    sources: &[ResultSource],
    names: &[String],
    workloads: &[&str],
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (source, name) in sources.iter().zip(names) {
        let said = sentence(&sessions(source));
        warnings.extend(said.map(|said| format!("of {name}: {said}")));
        for workload in &source.analysis.workloads {
            if !workloads.contains(&workload.workload.as_str()) {
                continue;
            }
            let place = format!("in {name}, workload '{}'", workload.workload);
            for warning in workload.warnings.iter().filter(|warning| warning.is_grave()) {
                // The reason does not stand above, as it does in the report of one result.
                let next = match warning.kind {
                    WarningKind::Failures => "; the report of that result has the reason",
                    _ => "",
                };
                warnings.push(format!("{place}: {warning}{next}"));
            }
            for contender in &workload.contenders {
                warnings.extend(contender.violation().map(|lost| {
                    format!("{place}: {} {lost}; it is compared with nothing", contender.label)
                }));
                let damage = source.histograms.damage().iter();
                let mut damage = damage.filter(|damage| {
                    damage.workload == workload.workload && damage.contender == contender.label
                });
                if let Some(first) = damage.next() {
                    let more = match damage.count() {
                        0 => String::new(),
                        more => format!(", and so for {more} more"),
                    };
                    warnings.push(format!("{place}: {}: left out: {first}{more}", contender.label));
                }
            }
        }
    }
    warnings
}

/// Contenders whose trials proved other work in one result than in the first.
fn unequal_work(sources: &[ResultSource], names: &[String], workloads: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    for workload in workloads {
        for contender in &sources[0].plan.study.contenders {
            let label = contender.label.as_str();
            let before = proofs(&sources[0], workload, label);
            for (source, name) in sources.iter().zip(names).skip(1) {
                let after = proofs(source, workload, label);
                if before.is_empty() || after.is_empty() || before == after {
                    continue;
                }
                notes.push(format!(
                    "{label} did other work under '{workload}' in {name} than in {} ({} against {}); do not compare these metrics",
                    names[0],
                    after.join(" or "),
                    before.join(" or ")
                ));
            }
        }
    }
    notes
}

/// What the completed trials of a contender proved, each once, sorted.
fn proofs<'a>(source: &'a ResultSource, workload: &str, label: &str) -> Vec<&'a str> {
    let records = source.completed(workload).into_iter().flatten();
    let records = records.filter(|record| record.contender.label == label);
    let mut proofs: Vec<&str> =
        records.filter_map(|record| record.load.as_ref()?.proof.as_deref()).collect();
    proofs.sort_unstable();
    proofs.dedup();
    proofs
}

/// Loads and contenders that not every result has.
fn unmatched(sources: &[ResultSource], names: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut look = |kind: &str, of: &dyn Fn(&ResultSource) -> Vec<String>| {
        for entry in text::distinct(sources.iter().flat_map(of)) {
            let has = |source: &ResultSource| of(source).contains(&entry);
            let without: Vec<String> = sources
                .iter()
                .zip(names)
                .filter(|(source, _)| !has(source))
                .map(|(_, name)| name.clone())
                .collect();
            if !without.is_empty() {
                notes.push(format!("{kind} '{entry}' is not in {}", text::list(&without)));
            }
        }
    };
    look("the workload", &|source| {
        source.plan.study.workloads.iter().map(|workload| workload.name.clone()).collect()
    });
    look("the contender", &|source| {
        source.plan.study.contenders.iter().map(|contender| contender.label.clone()).collect()
    });
    notes
}

/// What has the same name and is not the same.
fn redefined(sources: &[ResultSource], names: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let first = &sources[0].plan.study;
    for (source, name) in sources.iter().zip(names).skip(1) {
        let study = &source.plan.study;
        for contender in &study.contenders {
            let other = first.contenders.iter().find(|other| other.label == contender.label);
            if other.is_some_and(|other| other != contender) {
                notes.push(format!(
                    "the contender '{}' has other options in {name} than in {}; their difference is part of the ratio",
                    contender.label, names[0]
                ));
            }
        }
        for workload in &study.workloads {
            let other = first.workloads.iter().find(|other| other.name == workload.name);
            let differing = other.map_or_else(Vec::new, |other| differing_parts(other, workload));
            if !differing.is_empty() {
                notes.push(format!(
                    "the workload '{}' is not the same in {name} as in {}: {}. Compare its metrics only where that does not matter",
                    workload.name,
                    names[0],
                    differing.join("; ")
                ));
            }
        }
        if study.device != first.device {
            notes.push(format!(
                "{name} was measured on {}, {} on {}",
                study.device, names[0], first.device
            ));
        }
        if study.cache != first.cache {
            notes.push(format!("the caches were not in the same state in {name} and {}", names[0]));
        }
    }
    notes
}

/// The parts in which two definitions of a workload differ, the first one's value first. The reason that the
/// author gives for a workload is not part of its definition.
fn differing_parts(one: &Workload, other: &Workload) -> Vec<String> {
    // Taken apart, so that a part that is added to a workload is not forgotten here.
    let Workload {
        name: _,
        why: _,
        setup,
        prepare,
        cleanup,
        check: _,
        ignore_failure,
        amount: _,
        parameters: _,
        load,
    } = one;
    let parts = [
        ("", difference(load, &other.load)),
        ("setup ", difference(setup, &other.setup)),
        ("prepare ", difference(prepare, &other.prepare)),
        ("cleanup ", difference(cleanup, &other.cleanup)),
        ("ignore-failure ", difference(ignore_failure, &other.ignore_failure)),
    ];
    parts.into_iter().filter_map(|(part, found)| Some(format!("{part}{}", found?))).collect()
}

/// The first place at which two values differ, with both: `bs: 4k against 8k`.
pub(super) fn difference<T: PartialEq + Serialize>(one: &T, other: &T) -> Option<String> {
    if one == other {
        return None;
    }
    let value = |of: &T| serde_json::to_value(of).unwrap_or_default();
    let (path, one, other) = first_difference(&value(one), &value(other), "");
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    Some(format!("{place}{one} against {other}"))
}

/// The keys to the first difference, and both values there.
fn first_difference(one: &Value, other: &Value, path: &str) -> (String, String, String) {
    let below = |key: &str| match path {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    if let (Value::Object(left), Value::Object(right)) = (one, other) {
        let mut keys = left.keys().chain(right.keys());
        if let Some(key) = keys.find(|key| left.get(*key) != right.get(*key)) {
            let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
            let (left, right) = (of(left).unwrap_or_default(), of(right).unwrap_or_default());
            return first_difference(&left, &right, &below(key));
        }
    }
    if let (Value::Array(left), Value::Array(right)) = (one, other)
        && left.len() == right.len()
        && let Some(index) = left.iter().zip(right).position(|(left, right)| left != right)
    {
        return first_difference(&left[index], &right[index], path);
    }
    (path.into(), shown(one), shown(other))
}

/// A value in at most [`SHOWN_CHARACTERS_MAX`] characters.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("'{}...'", &text[..end]),
        None => format!("'{text}'"),
    }
}
