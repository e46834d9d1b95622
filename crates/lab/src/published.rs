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
use crate::quantity::parse_duration;
use crate::study::{StudyError, error};

mod measured;
mod picture;
mod reference;

pub use measured::{Measured, Quantity, is_withheld, measure};
pub use picture::{Draw, Each, Level, LevelText, Picture, PictureText};
pub use reference::{Figure, NamesText, Reference, ReferenceText, Statistic};

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
    /// How long the published run counted: each column of counts is followed by their rate then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<String>,
    /// Names of series of the table's workloads whose charts over time show what cells without a
    /// counterpart have no number for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub see: Vec<String>,
    /// How it is drawn; not at all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<PictureText>,
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
    /// Its numbers, one a column; those that are left out at the end were not published. A number
    /// in a study file comes here as it is written there.
    pub cells: Vec<String>,
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
    /// Series whose charts over time show what cells without a counterpart have no number for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub see: Vec<See>,
    /// How it is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// Heads of the columns after that of the rows' heads.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<PublishedRow>,
}

/// A series over time that a published table points at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct See {
    /// Name of the workload.
    pub workload: String,
    /// Name of the series.
    pub series: String,
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

impl PublishedCell {
    /// The published number, or the ends of a range such as `10 to 20`; none where the cell holds
    /// words or nothing.
    pub fn range(&self) -> Option<(f64, f64)> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        match self.text.split_once(" to ") {
            Some((low, high)) => Some((number(low)?, number(high)?)),
            None => number(&self.text).map(|number| (number, number)),
        }
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
        let counted_seconds = match &self.counted {
            None => None,
            Some(text) => Some(
                parse_duration(text)
                    .map_err(|problem| error(format!("{field}.counted"), problem.to_string()))?
                    .as_secs_f64(),
            ),
        };
        let rows = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let place = format!("{field}.rows[{index}]");
                self.resolve_row(row, &place, table_unit, counted_seconds, known)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let columns = self.columns.iter().flat_map(|column| {
            let rate = counted_seconds.filter(|_| column.counts());
            [Some(column.head.clone()), rate.map(|_| format!("{}/s", column.head))]
        });
        let columns: Vec<String> = columns.flatten().collect();
        let rows_heads: Vec<&str> = self.rows.iter().map(|row| row.head.as_str()).collect();
        let column_heads: Vec<&str> = columns.iter().map(String::as_str).collect();
        let picture = self.picture.as_ref().map(|picture| {
            picture.resolve(&format!("{field}.picture"), &rows_heads, &column_heads)
        });
        let workloads = self.here.workload.iter().flat_map(NamesText::names);
        let see = workloads.flat_map(|workload| {
            let see = |series: &String| See { workload: workload.clone(), series: series.clone() };
            self.see.iter().map(see)
        });
        Ok(PublishedTable {
            title: self.title.clone(),
            source: self.source.clone().or(source.map(str::to_string)),
            note: self.note.clone(),
            see: see.collect(),
            picture: picture.transpose()?,
            columns,
            rows,
        })
    }

    fn resolve_row(
        &self,
        row: &RowText,
        field: &str,
        table_unit: Option<PublishedUnit>,
        counted_seconds: Option<f64>,
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
            let cell = PublishedCell {
                text: row.cells.get(index).filter(|text| *text != "-").cloned().unwrap_or_default(),
                unit: row_unit.or(column_unit).or(table_unit),
                here: column.here.within(&outer).resolve(&place)?,
            };
            let rate =
                counted_seconds.filter(|_| column.counts()).map(|seconds| cell.rate(seconds));
            cells.push(cell);
            cells.extend(rate);
        }
        Ok(PublishedRow { head: row.head.clone(), cells })
    }
}

impl ColumnText {
    /// Whether its cells are counts of operations.
    fn counts(&self) -> bool {
        self.here.statistic.as_deref() == Some("count")
    }
}

impl PublishedCell {
    /// The rate that belongs to a count over so many seconds.
    fn rate(&self, seconds: f64) -> PublishedCell {
        let text = self.text.parse::<f64>().map(|count| rate_text(count / seconds));
        let here = self.here.iter().cloned();
        PublishedCell {
            text: text.unwrap_or_default(),
            unit: self.unit,
            here: here.map(|cell| Reference { statistic: Statistic::Rate, ..cell }).collect(),
        }
    }
}

/// Four significant digits, at most four behind the point.
fn rate_text(rate: f64) -> String {
    let magnitude = if rate > 0.0 { rate.log10().floor() } else { 0.0 };
    let behind = (3.0 - magnitude).clamp(0.0, 4.0) as usize;
    format!("{rate:.behind$}")
}

fn unit(text: &Option<String>, field: &str) -> Result<Option<PublishedUnit>, StudyError> {
    let Some(text) = text else { return Ok(None) };
    let found = PublishedUnit::ALL.iter().find(|(name, _)| name == text);
    found.map(|(_, unit)| Some(*unit)).ok_or_else(|| {
        let names: Vec<&str> = PublishedUnit::ALL.iter().map(|(name, _)| *name).collect();
        error(field, format!("'{text}' is no unit; known are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests;
