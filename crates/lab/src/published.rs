//! Published numbers: the tables of the publication that a study repeats, as data, and what was
//! measured here in the place of each cell.
//!
//! A cell's counterpart is a [`Reference`]: a workload, a contender, one of its figures and a
//! statistic of that. It is put together from what the table, the row and the column say, in this
//! order. A cell without one stands alone: its system was measured by the publication only.
//!
//! Which figures a load reports is the trial room's business; names of figures are not checked
//! here.

use serde::{Deserialize, Serialize};

use crate::contender::nearest;
use crate::record::Phase;
use crate::study::{StudyError, error};

mod measured;

pub use measured::{Measured, Quantity, measure};

/// A published table as written in a study file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PublishedText {
    /// What the publication calls it, or what it shows.
    pub title: String,
    /// Where it was published; the study's source by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What a reader must know to compare it with what was measured here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Unit of the numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What stands for every cell here.
    #[serde(skip_serializing_if = "ReferenceText::is_empty")]
    pub here: ReferenceText,
    /// The columns after that of the rows' heads.
    pub columns: Vec<ColumnText>,
    /// The rows.
    pub rows: Vec<RowText>,
}

/// A column as written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ColumnText {
    /// Its head.
    pub head: String,
    /// Unit of its numbers, where the row says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What stands for its cells here.
    #[serde(skip_serializing_if = "ReferenceText::is_empty")]
    pub here: ReferenceText,
}

/// A row as written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct RowText {
    /// Its head.
    pub head: String,
    /// Unit of its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What stands for its cells here.
    #[serde(skip_serializing_if = "ReferenceText::is_empty")]
    pub here: ReferenceText,
    /// Its numbers, one a column; those that are left out at the end were not published.
    pub cells: Vec<CellText>,
}

/// A cell as written: a number, or a text that is shown as it is (and is a number too when it
/// reads as one, such as `"1.30"`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellText {
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// A text.
    Text(String),
}

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
    /// `value`, `ratio`, `loss`, `count`, `average`, `p5`, ..., `max`.
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
    fn is_empty(&self) -> bool {
        *self == ReferenceText::default()
    }

    /// What is said by this level, and by `outer` where this one is silent.
    fn within(&self, outer: &ReferenceText) -> ReferenceText {
        let of = |own: &Option<String>, outer: &Option<String>| own.clone().or(outer.clone());
        let names_figure =
            self.metric.is_some() || self.phase.is_some() || self.operation.is_some();
        // Of the three kinds of figure the innermost counts alone.
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
            statistic: of(&self.statistic, &outer.statistic),
            baseline: of(&self.baseline, &outer.baseline),
        }
    }
}

/// A published table, validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedTable {
    /// What the publication calls it, or what it shows.
    pub title: String,
    /// Where it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What a reader must know to compare it with what was measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Heads of the columns after that of the rows' heads.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<PublishedRow>,
}

/// A row of a published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// Its head.
    pub head: String,
    /// Its cells.
    pub cells: Vec<PublishedCell>,
}

/// A cell of a published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedCell {
    /// The number as published, without its unit; empty where none was published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<PublishedUnit>,
    /// What stands for it here, one entry a workload; none when nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<Reference>,
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

/// Units of published numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishedUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// 10^6 bytes a second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// 2^20 bytes a second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Operations a second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
}

impl PublishedUnit {
    /// Every unit with its name in a study file.
    pub const ALL: &[(&str, PublishedUnit)] = &[
        ("s", PublishedUnit::Seconds),
        ("ms", PublishedUnit::Milliseconds),
        ("us", PublishedUnit::Microseconds),
        ("MB/s", PublishedUnit::MegabytesPerSecond),
        ("MiB/s", PublishedUnit::MebibytesPerSecond),
        ("/s", PublishedUnit::PerSecond),
        ("%", PublishedUnit::Percent),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = PublishedUnit::ALL.iter().find(|(_, unit)| *unit == self);
        found.map_or("", |(name, _)| name)
    }
}

/// What the names in a table may refer to.
pub(crate) struct Known<'a> {
    /// Labels of the contenders.
    pub labels: Vec<&'a str>,
    /// Names of the workloads.
    pub workloads: Vec<&'a str>,
}

impl Known<'_> {
    /// Refuses a name that is none of the candidates.
    pub fn check(
        &self,
        field: &str,
        what: &str,
        name: &str,
        candidates: &[&str],
    ) -> Result<(), StudyError> {
        if candidates.contains(&name) {
            return Ok(());
        }
        Err(error(
            field,
            match nearest(name, candidates) {
                Some(near) => format!("no {what} is called '{name}'; did you mean '{near}'?"),
                None => {
                    format!("no {what} is called '{name}'; known are {}", candidates.join(", "))
                }
            },
        ))
    }
}

impl PublishedText {
    /// Validates the table. `field` is its place in the study file, `source` the study's own.
    pub(crate) fn resolve(
        &self,
        field: &str,
        source: Option<&str>,
        known: &Known<'_>,
    ) -> Result<PublishedTable, StudyError> {
        if self.title.trim().is_empty() {
            return Err(error(format!("{field}.title"), "is missing; say what the table shows"));
        }
        if self.columns.is_empty() || self.rows.is_empty() {
            return Err(error(field, "has no columns or no rows; give both"));
        }
        self.here.check(&format!("{field}.here"), known)?;
        let table_unit = unit(&self.unit, &format!("{field}.unit"))?;
        for (index, column) in self.columns.iter().enumerate() {
            column.here.check(&format!("{field}.columns[{index}].here"), known)?;
        }
        let rows = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                self.resolve_row(row, &format!("{field}.rows[{index}]"), table_unit, known)
            })
            .collect::<Result<_, _>>()?;
        Ok(PublishedTable {
            title: self.title.clone(),
            source: self.source.clone().or(source.map(str::to_string)),
            note: self.note.clone(),
            columns: self.columns.iter().map(|column| column.head.clone()).collect(),
            rows,
        })
    }

    fn resolve_row(
        &self,
        row: &RowText,
        field: &str,
        table_unit: Option<PublishedUnit>,
        known: &Known<'_>,
    ) -> Result<PublishedRow, StudyError> {
        row.here.check(&format!("{field}.here"), known)?;
        let row_unit = unit(&row.unit, &format!("{field}.unit"))?;
        if row.cells.len() > self.columns.len() {
            return Err(error(
                format!("{field}.cells"),
                format!(
                    "has {} cells, and the table has {} columns",
                    row.cells.len(),
                    self.columns.len()
                ),
            ));
        }
        let outer = row.here.within(&self.here);
        let mut cells = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let place = format!("{field}.cells[{index}]");
            let column_unit = unit(&column.unit, &place)?;
            cells.push(PublishedCell {
                text: row.cells.get(index).map(CellText::text).unwrap_or_default(),
                unit: row_unit.or(column_unit).or(table_unit),
                here: column.here.within(&outer).resolve(&place)?,
            });
        }
        Ok(PublishedRow { head: row.head.clone(), cells })
    }
}

fn unit(text: &Option<String>, field: &str) -> Result<Option<PublishedUnit>, StudyError> {
    let Some(text) = text else { return Ok(None) };
    let found = PublishedUnit::ALL.iter().find(|(name, _)| name == text);
    found.map(|(_, unit)| Some(*unit)).ok_or_else(|| {
        let names: Vec<&str> = PublishedUnit::ALL.iter().map(|(name, _)| *name).collect();
        error(field, format!("'{text}' is no unit; known are {}", names.join(", ")))
    })
}

impl CellText {
    fn text(&self) -> String {
        match self {
            CellText::Whole(number) => number.to_string(),
            CellText::Number(number) => number.to_string(),
            CellText::Text(text) if text == "-" => String::new(),
            CellText::Text(text) => text.clone(),
        }
    }
}

impl ReferenceText {
    /// Refuses names that this level uses and nothing has.
    fn check(&self, field: &str, known: &Known<'_>) -> Result<(), StudyError> {
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
        let figures = [&self.metric, &self.phase, &self.operation];
        if figures.iter().filter(|figure| figure.is_some()).count() > 1 {
            return Err(error(field, "names two of metric, phase and operation; give one of them"));
        }
        Ok(())
    }

    /// The references of a cell, one a workload; none unless workload, contender and figure are
    /// all said. The names were checked.
    fn resolve(&self, place: &str) -> Result<Vec<Reference>, StudyError> {
        let figure = match (&self.metric, &self.phase, &self.operation) {
            (Some(name), ..) => Figure::Metric(name.clone()),
            (_, Some(name), _) => match Phase::ALL.iter().find(|phase| phase.name() == name) {
                Some(phase) => Figure::Phase(*phase),
                None => return Ok(Vec::new()),
            },
            (.., Some(name)) => Figure::Operation(name.clone()),
            _ => return Ok(Vec::new()),
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
        let only_value = matches!(figure, Figure::Phase(_)) && statistic != Statistic::Value;
        if statistic.is_of_operations() != of_operations || only_value {
            let name = named.unwrap_or("value");
            let what = match figure {
                Figure::Metric(_) => "a metric has value, ratio or loss",
                Figure::Phase(_) => "a phase has a value only",
                Figure::Operation(_) => "an operation has count, average, p5 to p99.99 or max",
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

#[cfg(test)]
mod tests;
