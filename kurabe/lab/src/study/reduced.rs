//! How much of a study was carried out: what a quick profile, or a factor, made of its workloads.
//!
//! Computed from the two validated studies, the whole one and the one that is carried out, and
//! never written by hand, so that it cannot say something else than what ran.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use vocabulary::words::share_text;

use super::Study;
use crate::name;
use crate::words::{grouped, list};
use crate::workload::WorkloadSpec;

/// What was carried out in the place of the whole study.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// Whether the study's quick profile was taken; else a factor was.
    pub quick: bool,
    /// What carries all of it out: `--full runs it all`.
    pub remedy: String,
    /// The whole study's device, where it is another.
    pub device: Option<String>,
    /// The workloads of which another amount was done, or in whose place another was.
    pub loads: Vec<ReducedWorkload>,
    /// How many loads the whole study has, where not all of them were carried out.
    pub of_workload: Option<usize>,
}

/// A workload of which another amount was done, or in whose place another was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReducedWorkload {
    #[serde(deserialize_with = "name::read")]
    pub workload: String,
    /// What of it is another.
    pub parts: Vec<ReducedPart>,
}

/// One measure of a workload, or that it is another one.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReducedPart {
    /// What is meant: `the counted time`.
    pub what: String,
    /// Here over that of the whole study; absent where the two cannot be compared.
    pub share: Option<f64>,
    /// Both amounts, `3 s of 600 s`, where they are more than the share.
    pub amounts: Option<String>,
}

impl Reduced {
    /// What `here` carries out of `whole`; None where it is all of it.
    pub fn between(whole: &Study, here: &Study, quick: bool, remedy: &str) -> Option<Reduced> {
        let loads: Vec<ReducedWorkload> = here
            .workloads
            .iter()
            .filter_map(|workload| {
                let other = whole.workloads.iter().find(|other| other.name == workload.name)?;
                let parts = parts(&other.load, &workload.load);
                let workload = workload.name.clone();
                (!parts.is_empty()).then_some(ReducedWorkload { workload, parts })
            })
            .collect();
        let device = (whole.device != here.device).then(|| whole.device.clone());
        let of_workload =
            (whole.workloads.len() > here.workloads.len()).then_some(whole.workloads.len());
        (quick || !loads.is_empty()).then(|| Reduced {
            quick,
            remedy: remedy.into(),
            device,
            loads,
            of_workload,
        })
    }

    /// The workloads of `study` with their shares, those with equal ones together:
    /// `dbench and replay: 0.5 % of the counted time (3 s of 600 s)`.
    pub fn shares(&self, study: &Study) -> String {
        let alike = grouped(study.workloads.iter().map(|workload| {
            let load = self.loads.iter().find(|load| load.workload == workload.name);
            let words = load.map_or("all of it".to_string(), |load| {
                list(&load.parts.iter().map(ReducedPart::words).collect::<Vec<_>>())
            });
            (words, workload.name.clone())
        }));
        let shares = match alike.as_slice() {
            [(words, _)] => words.clone(),
            _ => alike
                .iter()
                .map(|(words, names)| format!("{}: {words}", list(names)))
                .collect::<Vec<_>>()
                .join("; "),
        };
        match self.of_workload {
            Some(all) => format!("{} of the {all} workloads, {shares}", study.workloads.len()),
            None => shares,
        }
    }
}

impl ReducedPart {
    fn words(&self) -> String {
        let amounts = self.amounts.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        let share =
            self.share.map(|share| format!("{} of ", share_text(share))).unwrap_or_default();
        format!("{share}{}{amounts}", self.what)
    }
}

/// The measures in which a workload differs from the whole one, and whether it is another one besides.
fn parts(whole: &WorkloadSpec, here: &WorkloadSpec) -> Vec<ReducedPart> {
    let another = |what: &str| ReducedPart { what: what.into(), share: None, amounts: None };
    if whole.kind != here.kind {
        return vec![another("another workload")];
    }
    let (whole, here) = (whole.parsed().description(), here.parsed().description());
    let mut parts = Vec::new();
    for amount in here.amounts {
        let Some(all) = whole.amounts.iter().find(|all| all.what == amount.what) else { continue };
        if all.value != amount.value && all.value > 0.0 {
            let amounts = format!("{} of {}", amount.words, all.words);
            parts.push(ReducedPart {
                share: Some(amount.value / all.value),
                amounts: (!amount.words.is_empty()).then_some(amounts),
                what: amount.what,
            });
        }
    }
    if whole.settings != here.settings {
        let is_first = parts.is_empty();
        parts.push(another(if is_first { "another workload" } else { "other settings besides" }));
    }
    parts
}
