//! A published table: what a study file says of it, read and checked.
//!
//! What stands here for a cell is a [`Reference`]: a workload, a contender, one of its figures and a
//! statistic of that. It is put together from what the table, the row and the column say, the inner
//! one first. A cell without one stands alone: it was measured by the publication only.

use lab::quantity::parse_duration;
use lab::record::Phase;
use lab::suggestion::unknown;
use lab::workload::Unit;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::measured::Quantity;
use crate::{Error, Known, Names, error};

#[derive(Debug, Clone, Default)]
pub struct Published {
    /// What the publication calls it, or what it shows.
    pub title: String,
    /// Where it was published, if not where the others were.
    pub source: Option<String>,
    /// What a reader must know to compare it with what was measured here.
    pub note: Option<String>,
    /// How it is drawn, if at all.
    pub picture: Option<TablePicture>,
    /// Heads of the columns after that of the rows' heads.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<PublishedRow>,
}

/// A row of a published table.
#[derive(Debug, Clone)]
pub struct PublishedRow {
    pub head: String,
    pub cells: Vec<PublishedCell>,
}

/// A cell of a published table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PublishedCell {
    /// The number as published, without its unit; empty where none was published.
    pub text: String,
    pub unit: Option<PublishedUnit>,
    /// What stands for it here, one entry a workload.
    pub here: Vec<Reference>,
}

impl PublishedCell {
    /// The published number, or the middle and the ends of a range such as `10 to 20`.
    pub fn number(&self) -> Option<(f64, Option<(f64, f64)>)> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        match self.text.split_once(" to ") {
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                Some(((low + high) / 2.0, Some((low, high))))
            }
            None => Some((number(&self.text)?, None)),
        }
    }
}

/// How a table is drawn: bars, the published ones beside those measured here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablePicture {
    /// What has a picture of its own.
    pub each: Each,
    /// Heads of the rows or columns that are drawn; all by default.
    #[serde(default)]
    pub of: Vec<String>,
    /// Head of the bar that counts as 1, the published number and the measured one each.
    pub reference: Option<String>,
}

/// What has a picture of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Each {
    Row,
    Column,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedUnit {
    /// Its name in a study file.
    pub name: &'static str,
    /// What is measured in it.
    pub of: Quantity,
    /// Its size in the unit of the measured figures.
    pub size: f64,
}

const UNITS: [PublishedUnit; 6] = [
    PublishedUnit { name: "s", of: Quantity::Of(Unit::Nanoseconds), size: 1e9 },
    PublishedUnit { name: "ms", of: Quantity::Of(Unit::Nanoseconds), size: 1e6 },
    PublishedUnit { name: "us", of: Quantity::Of(Unit::Nanoseconds), size: 1e3 },
    PublishedUnit { name: "MB/s", of: Quantity::Of(Unit::BytesPerSecond), size: 1e6 },
    PublishedUnit { name: "MiB/s", of: Quantity::Of(Unit::BytesPerSecond), size: 1_048_576.0 },
    PublishedUnit { name: "/s", of: Quantity::Of(Unit::OperationsPerSecond), size: 1.0 },
];

impl<'de> Deserialize<'de> for PublishedUnit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PublishedUnit, D::Error> {
        let name = String::deserialize(from)?;
        let names = UNITS.map(|unit| unit.name);
        let error = || D::Error::custom(unknown("unit is called", &name, &names));
        UNITS.into_iter().find(|unit| unit.name == name).ok_or_else(error)
    }
}

/// What stands for a published number here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Reference {
    pub workload: String,
    pub contender: String,
    pub figure: Figure,
    pub statistic: Statistic,
    /// Label of the contender that a ratio is to; the plan's baseline when absent.
    pub baseline: Option<String>,
}

/// A figure of a contender under a workload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    Metric(String),
    Phase(Phase),
    /// The latencies of a kind of operation, by its name.
    Operation(String),
    /// A number in the workload's own report, by its place: `/` stands between the steps, a number
    /// counts the entries of a list, from its end when negative, `key=value` keeps those entries
    /// that have it, and `2:` those beyond the first two.
    Detail(String),
}

/// What is asked of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Statistic {
    /// The median over the trials.
    Value,
    Ratio,
    /// The cost relative to the baseline: of a throughput the ratio the other way round.
    Cost,
    /// Operations of one trial.
    Count,
    /// Operations a second of the time that the workload counts.
    Rate,
    /// Mean latency.
    Average,
    /// A percentile of the latency, by its quantile.
    Percentile(f64),
    /// Greatest latency.
    Max,
}

impl TryFrom<String> for Statistic {
    type Error = String;

    fn try_from(name: String) -> Result<Statistic, String> {
        Ok(match name.as_str() {
            "value" => Statistic::Value,
            "ratio" => Statistic::Ratio,
            "cost" => Statistic::Cost,
            "count" => Statistic::Count,
            "rate" => Statistic::Rate,
            "average" => Statistic::Average,
            "p5" => Statistic::Percentile(0.05),
            "p50" => Statistic::Percentile(0.5),
            "p90" => Statistic::Percentile(0.9),
            "p95" => Statistic::Percentile(0.95),
            "p99" => Statistic::Percentile(0.99),
            // Without the point as earlier results have it.
            "p99.9" | "p999" => Statistic::Percentile(0.999),
            "p99.99" | "p9999" => Statistic::Percentile(0.9999),
            "max" => Statistic::Max,
            _ => {
                return Err(format!(
                    "no statistic is called '{name}'; there are value, ratio, cost, count, rate, average, p5, p50, p90, p95, p99, p99.9, p99.99 and max"
                ));
            }
        })
    }
}

/// What stands for published numbers here, as far as one level of a table says it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Here {
    workload: Option<Names>,
    contender: Option<String>,
    metric: Option<String>,
    phase: Option<Phase>,
    operation: Option<String>,
    detail: Option<String>,
    statistic: Option<Statistic>,
    baseline: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    #[serde(default)]
    title: String,
    source: Option<String>,
    note: Option<String>,
    unit: Option<PublishedUnit>,
    #[serde(default)]
    here: Here,
    /// How long the published run counted: each column of counts is followed by their rate then.
    counted: Option<String>,
    picture: Option<Value>,
    #[serde(default)]
    columns: Vec<Value>,
    #[serde(default)]
    rows: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnText {
    #[serde(default)]
    head: String,
    unit: Option<PublishedUnit>,
    #[serde(default)]
    here: Here,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    #[serde(default)]
    head: String,
    unit: Option<PublishedUnit>,
    #[serde(default)]
    here: Here,
    #[serde(default)]
    cells: Vec<Value>,
}

/// Reads a value whose place in the study file is `field`.
pub fn read<T: DeserializeOwned>(value: &Value, field: &str) -> Result<T, Error> {
    serde_json::from_value(value.clone()).map_err(|problem| error(field, problem))
}

/// Reads a table. `known` are the names of the study; without them none is checked.
pub fn read_table(
    value: &Value,
    field: &str,
    known: Option<&Known<'_>>,
) -> Result<Published, Error> {
    let mut value = value.clone();
    if value.pointer("/columns/0").is_some_and(Value::is_string)
        && let Some(table) = value.as_object_mut()
    {
        // An earlier kurabe kept its tables put together; its pictures were of another kind.
        table.retain(|key, _| !matches!(key.as_str(), "see" | "picture"));
    }
    let text: TableText = read(&value, field)?;
    if text.title.trim().is_empty() {
        return Err(error(format!("{field}.title"), "is missing; say what the table shows"));
    }
    if text.columns.is_empty() || text.rows.is_empty() {
        return Err(error(field, "has no columns or no rows; give both"));
    }
    text.here.check(&format!("{field}.here"), known)?;
    let mut columns = Vec::new();
    for (index, column) in text.columns.iter().enumerate() {
        let place = format!("{field}.columns[{index}]");
        let column = match column {
            Value::String(head) => ColumnText { head: head.clone(), ..ColumnText::default() },
            other => read(other, &place)?,
        };
        column.here.check(&format!("{place}.here"), known)?;
        columns.push(column);
    }
    let counted_seconds = match &text.counted {
        None => None,
        Some(counted) => Some(
            parse_duration(counted)
                .map_err(|problem| error(format!("{field}.counted"), problem))?
                .as_secs_f64(),
        ),
    };
    let mut rows = Vec::new();
    for (index, row) in text.rows.iter().enumerate() {
        let place = format!("{field}.rows[{index}]");
        rows.push(text.read_row(row, &place, &columns, counted_seconds, known)?);
    }
    let heads: Vec<String> = columns
        .iter()
        .flat_map(|column| {
            let rate = counted_seconds.filter(|_| column.counts());
            [Some(column.head.clone()), rate.map(|_| format!("{}/s", column.head))]
        })
        .flatten()
        .collect();
    let picture = match &text.picture {
        None => None,
        Some(picture) => {
            let place = format!("{field}.picture");
            let picture: TablePicture = read(picture, &place)?;
            picture.check(&place, &rows, &heads)?;
            Some(picture)
        }
    };
    let TableText { title, source, note, .. } = text;
    Ok(Published { title, source, note, picture, columns: heads, rows })
}

impl TableText {
    fn read_row(
        &self,
        row: &Value,
        place: &str,
        columns: &[ColumnText],
        counted_seconds: Option<f64>,
        known: Option<&Known<'_>>,
    ) -> Result<PublishedRow, Error> {
        let row: RowText = read(row, place)?;
        row.here.check(&format!("{place}.here"), known)?;
        if row.cells.len() > columns.len() {
            let (cells, columns) = (row.cells.len(), columns.len());
            let problem = format!("has {cells} cells, and the table has {columns} columns");
            return Err(error(format!("{place}.cells"), problem));
        }
        let outer = row.here.within(&self.here);
        let mut cells = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            let place = format!("{place}.cells[{index}]");
            let text = match row.cells.get(index) {
                None => String::new(),
                Some(Value::String(text)) if text == "-" => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                // As an earlier kurabe kept it.
                Some(other) => {
                    cells.push(read::<PublishedCell>(other, &place)?);
                    continue;
                }
            };
            let unit = row.unit.or(column.unit).or(self.unit);
            let here = column.here.within(&outer).references(&place)?;
            if let Some(known) = known {
                here.iter().try_for_each(|one| known.check_figure(one, &place))?;
            }
            let cell = PublishedCell { text, unit, here };
            let rate = counted_seconds.filter(|_| column.counts());
            let rate = rate.map(|seconds| cell.rate(seconds));
            cells.push(cell);
            cells.extend(rate);
        }
        Ok(PublishedRow { head: row.head, cells })
    }
}

impl ColumnText {
    fn counts(&self) -> bool {
        self.here.statistic == Some(Statistic::Count)
    }
}

impl PublishedCell {
    /// The rate that belongs to a count over so many seconds.
    fn rate(&self, seconds: f64) -> PublishedCell {
        let text = self.text.parse::<f64>().map(|count| crate::measured::digits(count / seconds));
        let of = |one: &Reference| Reference { statistic: Statistic::Rate, ..one.clone() };
        PublishedCell {
            text: text.unwrap_or_default(),
            unit: self.unit,
            here: self.here.iter().map(of).collect(),
        }
    }
}

impl TablePicture {
    fn check(&self, field: &str, rows: &[PublishedRow], columns: &[String]) -> Result<(), Error> {
        let rows: Vec<&str> = rows.iter().map(|row| row.head.as_str()).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let (lines, across) = match self.each {
            Each::Row => (rows, columns),
            Each::Column => (columns, rows),
        };
        let missing = |key: &str, head: &str, heads: &[&str]| {
            error(format!("{field}.{key}"), unknown("head is", head, heads))
        };
        if let Some(head) = self.of.iter().find(|head| !lines.contains(&head.as_str())) {
            return Err(missing("of", head, &lines));
        }
        match self.reference.as_deref().filter(|head| !across.contains(head)) {
            Some(head) => Err(missing("reference", head, &across)),
            None => Ok(()),
        }
    }
}

impl Here {
    /// What is said by this level, and by `outer` where this one is silent. Of the kinds of figure
    /// the innermost counts alone, but a detail goes on where the outer one ends.
    fn within(&self, outer: &Here) -> Here {
        let names_figure = self.metric.is_some()
            || self.phase.is_some()
            || self.operation.is_some()
            || self.detail.is_some();
        let of = |own: &Option<String>, outer: &Option<String>| own.clone().or(outer.clone());
        let figure = |own: &Option<String>, outer: &Option<String>| {
            if names_figure { own.clone() } else { outer.clone() }
        };
        Here {
            workload: self.workload.clone().or(outer.workload.clone()),
            contender: of(&self.contender, &outer.contender),
            metric: figure(&self.metric, &outer.metric),
            phase: if names_figure { self.phase } else { outer.phase },
            operation: figure(&self.operation, &outer.operation),
            detail: match (&self.detail, &outer.detail) {
                (Some(inner), Some(outer)) => Some(format!("{outer}/{inner}")),
                _ => figure(&self.detail, &outer.detail),
            },
            statistic: self.statistic.or(outer.statistic),
            baseline: of(&self.baseline, &outer.baseline),
        }
    }

    /// Refuses names that this level uses and nothing has, and two figures at once.
    fn check(&self, field: &str, known: Option<&Known<'_>>) -> Result<(), Error> {
        let texts = [&self.metric, &self.operation, &self.detail];
        let figures = texts.iter().filter(|figure| figure.is_some()).count();
        if figures + usize::from(self.phase.is_some()) > 1 {
            let problem = "names two of metric, phase, operation and detail; give one of them";
            return Err(error(field, problem));
        }
        let Some(known) = known else { return Ok(()) };
        for name in self.workload.iter().flat_map(Names::all) {
            known.check_workload(name, &format!("{field}.workload"))?;
        }
        for (key, label) in [("contender", &self.contender), ("baseline", &self.baseline)] {
            if let Some(label) = label {
                known.check_label(label, &format!("{field}.{key}"))?;
            }
        }
        Ok(())
    }

    /// The references of a cell, one a workload; none unless workload, contender and figure are
    /// all said.
    fn references(&self, place: &str) -> Result<Vec<Reference>, Error> {
        let figure = self
            .metric
            .clone()
            .map(Figure::Metric)
            .or(self.phase.map(Figure::Phase))
            .or(self.operation.clone().map(Figure::Operation))
            .or(self.detail.clone().map(Figure::Detail));
        let (Some(figure), Some(workloads), Some(contender)) =
            (figure, &self.workload, &self.contender)
        else {
            return Ok(Vec::new());
        };
        let statistic = self.statistic.unwrap_or(Statistic::Value);
        use Statistic::{Cost, Ratio, Value};
        let (fits, has) = match figure {
            Figure::Metric(_) => {
                (matches!(statistic, Value | Ratio | Cost), "a metric has value, ratio or cost")
            }
            Figure::Phase(_) => (matches!(statistic, Value | Ratio), "a phase has value or ratio"),
            Figure::Operation(_) => (
                !matches!(statistic, Value | Ratio | Cost),
                "an operation has count, rate, average, p5 to p99.99 or max",
            ),
            Figure::Detail(_) => (statistic == Value, "a detail has a value only"),
        };
        if !fits {
            return Err(error(place, format!("the statistic does not fit: {has}")));
        }
        let of = |workload: &String| Reference {
            workload: workload.clone(),
            contender: contender.clone(),
            figure: figure.clone(),
            statistic,
            baseline: self.baseline.clone(),
        };
        Ok(workloads.all().iter().map(of).collect())
    }
}
