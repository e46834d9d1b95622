//! What stands for a published number here: as a study file says it, level by level, and put
//! together.

use serde::{Deserialize, Serialize};

use super::Known;
use crate::record::Phase;
use crate::study::{StudyError, error};

/// What stands for published numbers here, as far as one level of a table says it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ReferenceText {
    /// Name of the workload, or several names: each has a row of its own then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<NamesText>,
    /// Label of the contender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contender: Option<String>,
    /// A figure that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// A phase of the trial, whose time is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// A kind of operation, of whose latencies a statistic is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// A place in the load's own report of each trial: `/` stands between the steps, a number counts
    /// the entries of a list, from its end when negative, `key=value` keeps those entries that have
    /// it, and `2:` those beyond the first two. What an inner level says goes on where the outer one ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// `value`, `ratio`, `loss`, `count`, `rate`, `average`, `p5`, ..., `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// Label of the contender that a ratio is to; the study's baseline by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

/// One name or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NamesText {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl NamesText {
    /// The names.
    pub fn names(&self) -> &[String] {
        match self {
            NamesText::One(name) => std::slice::from_ref(name),
            NamesText::Many(names) => names,
        }
    }
}

impl ReferenceText {
    pub(super) fn is_empty(&self) -> bool {
        *self == ReferenceText::default()
    }

    /// What is said by this level, and by `outer` where this one is silent.
    pub(super) fn within(&self, outer: &ReferenceText) -> ReferenceText {
        let of = |own: &Option<String>, outer: &Option<String>| own.clone().or(outer.clone());
        let names_figure = self.metric.is_some()
            || self.phase.is_some()
            || self.operation.is_some()
            || self.detail.is_some();
        // Of the four kinds of figure the innermost counts alone.
        let figure = |own: &Option<String>, outer: &Option<String>| match names_figure {
            true => own.clone(),
            false => outer.clone(),
        };
        ReferenceText {
            workload: self.workload.clone().or(outer.workload.clone()),
            contender: of(&self.contender, &outer.contender),
            metric: figure(&self.metric, &outer.metric),
            phase: figure(&self.phase, &outer.phase),
            operation: figure(&self.operation, &outer.operation),
            detail: match (&self.detail, &outer.detail) {
                (Some(inner), Some(outer)) => Some(format!("{outer}/{inner}")),
                _ => figure(&self.detail, &outer.detail),
            },
            statistic: of(&self.statistic, &outer.statistic),
            baseline: of(&self.baseline, &outer.baseline),
        }
    }
}

/// What stands for a published number here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Name of the workload.
    pub workload: String,
    /// Label of the contender.
    pub contender: String,
    /// The figure.
    pub figure: Figure,
    /// What of it.
    pub statistic: Statistic,
    /// Label of the contender that a ratio is to; the plan's baseline when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

/// A figure of a contender under a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// A figure that is compared, by its name.
    Metric(String),
    /// The time of a phase.
    Phase(Phase),
    /// The latencies of a kind of operation, by its name.
    Operation(String),
    /// A number in the load's own report, by its place.
    Detail(String),
}

/// What is asked of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The median over the trials.
    Value,
    /// The ratio to the baseline.
    Ratio,
    /// How much less is done than by the baseline, in percent of that.
    Loss,
    /// Operations of one trial.
    Count,
    /// Operations a second of the time that the load counts.
    Rate,
    /// Mean latency.
    Average,
    /// A percentile of the latency.
    P5,
    /// The median latency.
    P50,
    /// A percentile of the latency.
    P90,
    /// A percentile of the latency.
    P95,
    /// A percentile of the latency.
    P99,
    /// The 99.9th percentile of the latency.
    P999,
    /// The 99.99th percentile of the latency.
    P9999,
    /// Greatest latency.
    Max,
}

impl Statistic {
    /// Every statistic with its name in a study file.
    pub const ALL: &[(&str, Statistic)] = &[
        ("value", Statistic::Value),
        ("ratio", Statistic::Ratio),
        ("loss", Statistic::Loss),
        ("count", Statistic::Count),
        ("rate", Statistic::Rate),
        ("average", Statistic::Average),
        ("p5", Statistic::P5),
        ("p50", Statistic::P50),
        ("p90", Statistic::P90),
        ("p95", Statistic::P95),
        ("p99", Statistic::P99),
        ("p99.9", Statistic::P999),
        ("p99.99", Statistic::P9999),
        ("max", Statistic::Max),
    ];

    /// Whether the statistic is one of latencies.
    pub fn is_of_operations(self) -> bool {
        !matches!(self, Statistic::Value | Statistic::Ratio | Statistic::Loss)
    }
}

impl ReferenceText {
    /// Refuses names that this level uses and nothing has.
    pub(super) fn check(&self, field: &str, known: &Known<'_>) -> Result<(), StudyError> {
        for name in self.workload.iter().flat_map(NamesText::names) {
            known.check(&format!("{field}.workload"), "workload", name, &known.workloads)?;
        }
        for (key, label) in [("contender", &self.contender), ("baseline", &self.baseline)] {
            if let Some(label) = label {
                known.check(&format!("{field}.{key}"), "contender", label, &known.labels)?;
            }
        }
        if let Some(name) = &self.phase {
            let names: Vec<&str> = Phase::ALL.iter().map(|phase| phase.name()).collect();
            known.check(&format!("{field}.phase"), "phase", name, &names)?;
        }
        if let Some(name) = &self.statistic {
            let names: Vec<&str> = Statistic::ALL.iter().map(|(name, _)| *name).collect();
            known.check(&format!("{field}.statistic"), "statistic", name, &names)?;
        }
        let figures = [&self.metric, &self.phase, &self.operation, &self.detail];
        if figures.iter().filter(|figure| figure.is_some()).count() > 1 {
            return Err(error(
                field,
                "names two of metric, phase, operation and detail; give one of them",
            ));
        }
        Ok(())
    }

    /// The references of a cell, one a workload; none unless workload, contender and figure are
    /// all said. The names were checked.
    pub(super) fn resolve(&self, place: &str) -> Result<Vec<Reference>, StudyError> {
        let figure = match (&self.metric, &self.phase, &self.operation) {
            (Some(name), ..) => Figure::Metric(name.clone()),
            (_, Some(name), _) => match Phase::ALL.iter().find(|phase| phase.name() == name) {
                Some(phase) => Figure::Phase(*phase),
                None => return Ok(Vec::new()),
            },
            (.., Some(name)) => Figure::Operation(name.clone()),
            _ => match &self.detail {
                Some(place) => Figure::Detail(place.clone()),
                None => return Ok(Vec::new()),
            },
        };
        let (Some(workloads), Some(contender)) = (&self.workload, &self.contender) else {
            return Ok(Vec::new());
        };
        let named = self.statistic.as_deref();
        let statistic = Statistic::ALL
            .iter()
            .find(|(name, _)| named == Some(*name))
            .map_or(Statistic::Value, |(_, statistic)| *statistic);
        let of_operations = matches!(figure, Figure::Operation(_));
        let only_value =
            matches!(figure, Figure::Phase(_) | Figure::Detail(_)) && statistic != Statistic::Value;
        if statistic.is_of_operations() != of_operations || only_value {
            let name = named.unwrap_or("value");
            let what = match figure {
                Figure::Metric(_) => "a metric has value, ratio or loss",
                Figure::Phase(_) => "a phase has a value only",
                Figure::Operation(_) => {
                    "an operation has count, rate, average, p5 to p99.99 or max"
                }
                Figure::Detail(_) => "a detail has a value only",
            };
            return Err(error(place, format!("the statistic '{name}' does not fit: {what}")));
        }
        Ok(workloads
            .names()
            .iter()
            .map(|workload| Reference {
                workload: workload.clone(),
                contender: contender.clone(),
                figure: figure.clone(),
                statistic,
                baseline: self.baseline.clone(),
            })
            .collect())
    }
}
