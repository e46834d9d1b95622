//! The pictures of a published table: its numbers hatched, those measured here filled, each with its
//! interval. Times of another machine and another amount of work do not compare, factors do: so bars
//! are multiples of a reference where the study names one, each of its own origin.

use lab::judgement::Measurements;
use lab::words;
use report::chart::{Axis, Chart, ChartSeries, LegendEntry, Point, SeriesStyle, extremes};
use report::table::{Cell, Table};

use crate::beside::{Along, along, of_contender, unnamed};
use crate::measured::{MeasuredFigure, Quantity, digits, measure};
use crate::table::{self, Each, Figure, Published, Reference, Statistic, TablePicture};

/// Bars are on an axis of factors where the largest is more than so many times the smallest.
const LINEAR_SPREAD_MAX: f64 = 20.0;
/// Style of the published numbers, and of those measured here, one a workload.
const PUBLISHED_STYLE: usize = 7;
const HERE_STYLES: [usize; 4] = [0, 3, 6, 1];

struct Bar {
    label: String,
    /// 0 for a published number, from 1 on for the workloads.
    key: usize,
    value: f64,
    ends: Option<(f64, f64)>,
    /// The number, and its multiple where that is drawn.
    words: String,
}

/// A row or a column of a table.
struct Line<'a> {
    /// Heads across and cells.
    cells: Vec<(&'a str, &'a table::PublishedCell)>,
    /// The cell that counts as 1.
    reference: Option<&'a table::PublishedCell>,
}

/// The pictures of a table.
pub fn charts(result: Measurements<'_>, published: &Published, id: &str) -> Vec<Chart> {
    let Some(picture) = &published.picture else { return Vec::new() };
    let heads: Vec<&str> = match picture.each {
        Each::Row => published.rows.iter().map(|row| row.head.as_str()).collect(),
        Each::Column => published.columns.iter().map(String::as_str).collect(),
    };
    let drawn = heads.iter().enumerate().filter(|(_, head)| {
        picture.of.is_empty() || picture.of.iter().any(|wanted| wanted == *head)
    });
    let charts = drawn.filter_map(|(place, head)| {
        let id = format!("{id}-picture-{}", place + 1);
        chart(result, published, picture, place, head, id)
    });
    charts.collect()
}

fn chart(
    result: Measurements<'_>,
    published: &Published,
    picture: &TablePicture,
    place: usize,
    head: &str,
    id: String,
) -> Option<Chart> {
    let (cells, across): (Vec<(&str, &table::PublishedCell)>, Along) = match picture.each {
        Each::Row => {
            let heads = published.columns.iter().map(String::as_str);
            (heads.zip(&published.rows[place].cells).collect(), Along::Columns)
        }
        Each::Column => {
            let rows = published.rows.iter();
            (rows.map(|row| (row.head.as_str(), &row.cells[place])).collect(), Along::Rows)
        }
    };
    let others =
        if along(published) == across { unnamed(published, result.plan) } else { Vec::new() };
    let named = picture.reference.as_deref();
    let reference = cells.iter().find(|(head, _)| Some(*head) == named).map(|(_, cell)| *cell);
    let line = Line { cells, reference };
    let bars = line.bars(result, &others);
    let unit = line.cells.iter().find_map(|(_, cell)| cell.unit).map(|unit| unit.name);
    let is_ratio = line
        .cells
        .iter()
        .flat_map(|(_, cell)| &cell.here)
        .any(|one| one.statistic == Statistic::Ratio);
    let axis = match (named.filter(|_| line.reference.is_some()), unit) {
        (Some(reference), _) => format!("{head}, as a multiple of {reference}"),
        (None, Some(unit)) if !is_ratio && !head.ends_with(unit) => format!("{head}, {unit}"),
        _ => head.to_string(),
    };
    let short = published.title.split_once(": ").map_or(&*published.title, |(short, _)| short);
    (!bars.is_empty()).then(|| draw(id, format!("{short}: {head}"), axis, &bars, &line.workloads()))
}

impl Line<'_> {
    fn workloads(&self) -> Vec<String> {
        let most = self.cells.iter().map(|(_, cell)| &cell.here).max_by_key(|here| here.len());
        most.into_iter().flatten().map(|reference| reference.workload.clone()).collect()
    }

    fn bars(&self, result: Measurements<'_>, others: &[&str]) -> Vec<Bar> {
        let several = self.workloads().len() > 1;
        let mut bars = Vec::new();
        let here = |name: &str, layer: usize, one: &Reference, cell: &table::PublishedCell| {
            let label =
                if several { format!("{name}, {}", one.workload) } else { format!("{name}, here") };
            self.here(result, label, layer, one, cell)
        };
        for (head, cell) in &self.cells {
            bars.extend(self.published(head, cell));
            for (layer, one) in cell.here.iter().enumerate() {
                bars.extend(here(head, layer, one, cell));
            }
        }
        let first = self.cells.iter().find(|(_, cell)| !cell.here.is_empty());
        for (label, (_, cell)) in others.iter().flat_map(|label| first.map(|one| (label, one))) {
            for (layer, one) in cell.here.iter().enumerate() {
                let other = of_contender(result, one, label);
                bars.extend(other.and_then(|other| here(label, layer, &other, cell)));
            }
        }
        bars
    }

    fn published(&self, head: &str, cell: &table::PublishedCell) -> Option<Bar> {
        let (value, ends) = cell.number()?;
        let unit = cell.unit.map(|unit| format!(" {}", unit.name)).unwrap_or_default();
        let (divisor, words) = match self.reference {
            None => (1.0, format!("{}{unit}", cell.text)),
            Some(reference) => {
                let divisor = reference.number()?.0;
                (divisor, format!("{} ({}{unit})", words::ratio(value / divisor), cell.text))
            }
        };
        Some(Bar {
            label: format!("{head}, published"),
            key: 0,
            value: value / divisor,
            ends: ends.map(|(low, high)| (low / divisor, high / divisor)),
            words,
        })
    }

    fn here(
        &self,
        result: Measurements<'_>,
        label: String,
        layer: usize,
        one: &Reference,
        cell: &table::PublishedCell,
    ) -> Option<Bar> {
        let measured = measure(result, one)?;
        let absolute = match measured.quantity {
            Quantity::Of(_) => measured.in_unit(cell.unit)?,
            _ => measured,
        };
        let unit = cell.unit.map(|unit| format!(" {}", unit.name)).unwrap_or_default();
        let (shown, words) = match self.reference {
            None => (absolute, measured.words(cell.unit)),
            Some(reference) => {
                let base = reference.here.get(layer)?;
                let is_compared = matches!(one.figure, Figure::Metric(_) | Figure::Phase(_));
                if !is_compared {
                    return None;
                }
                let ratio = Reference {
                    statistic: Statistic::Ratio,
                    baseline: Some(base.contender.clone()),
                    ..one.clone()
                };
                let ratio = if base.contender == one.contender {
                    MeasuredFigure { value: 1.0, ends: None, ..measured }
                } else {
                    measure(result, &ratio)?
                };
                let number = digits(absolute.value);
                (ratio, format!("{} ({number}{unit})", words::ratio(ratio.value)))
            }
        };
        Some(Bar { label, key: layer + 1, value: shown.value, ends: shown.ends, words })
    }
}

fn draw(id: String, title: String, axis: String, bars: &[Bar], workloads: &[String]) -> Chart {
    let values = || bars.iter().map(|bar| bar.value);
    let (least, most) = extremes(values()).unwrap_or((0.0, 1.0));
    let is_wide = least > 0.0 && most > least * LINEAR_SPREAD_MAX;
    let x = match Axis::logarithmic(&*axis, values(), digits).filter(|_| is_wide) {
        Some(mut x) => {
            x.range.1 *= (x.range.1 / x.range.0).powf(0.4);
            x
        }
        // Room for the words to the right of the bars.
        None => Axis::linear(axis, least.min(0.0), most.max(0.0) * 1.6),
    };
    let (left, right) = x.range;
    let from = if is_wide { left } else { 0.0 };
    let mut series = Vec::new();
    for (row, bar) in bars.iter().enumerate() {
        let row = row as f64;
        let said = format!("{}: {}", bar.label, bar.words);
        let point = Point { low: Some(from), ..Point::at(bar.value, row, said) };
        let mut one =
            |mark, point| series.push(ChartSeries { key: bar.key, mark, points: vec![point] });
        one(if bar.key == 0 { SeriesStyle::Hatched } else { SeriesStyle::Bars }, point.clone());
        if let Some((low, high)) = bar.ends {
            let ends = (low.clamp(left, right), high.clamp(left, right));
            let cut = [low < left, high > right];
            one(
                SeriesStyle::Whisker,
                Point { low: Some(ends.0), high: Some(ends.1), cut, ..point },
            );
        }
        let end = bar.ends.map_or(bar.value, |ends| ends.1.clamp(bar.value, right));
        one(SeriesStyle::Label, Point::at(end.max(from), row, bar.words.clone()));
    }
    let key = |name: &str, style| LegendEntry { name: name.into(), style, group: "publication" };
    let mut keys = vec![key("published", PUBLISHED_STYLE)];
    for (layer, workload) in workloads.iter().enumerate() {
        let name = if workloads.len() > 1 { format!("{workload}, here") } else { "here".into() };
        keys.push(key(&name, HERE_STYLES[layer % HERE_STYLES.len()]));
    }
    let mut numbers = Table::new(&["of", "number", "from", "to"]);
    for bar in bars {
        let end = |end: Option<f64>| Cell::maybe(end, digits);
        let (low, high) = bar.ends.unzip();
        let value = Cell::number(bar.value, bar.words.as_str());
        numbers.rows.push(vec![bar.label.as_str().into(), value, end(low), end(high)]);
    }
    let said: Vec<String> =
        bars.iter().map(|bar| format!("{}: {}", bar.label, bar.words)).collect();
    Chart {
        says: format!("{}.", said.join("; ")),
        height: 70 + 26 * bars.len() as u32,
        keys,
        series,
        numbers: numbers.without_empty_columns(),
        ..Chart::new(id, title, x, Axis::rows(bars.iter().map(|bar| &*bar.label)))
    }
}
