//! The pictures of a published table: its numbers in outline and hatched, those measured here filled,
//! each with its interval.
//!
//! Times of another machine and another amount of work do not compare; factors do. So bars are drawn
//! as multiples of a reference where the study names one, the published numbers by the published
//! reference and the measured ones by the measured. Where numbers lie so far apart that bars say
//! nothing, equal distances are equal factors.

use lab::published::{
    Draw, Each, Figure, Measured, Picture, PublishedCell, PublishedTable, PublishedUnit, Quantity,
    Reference, Statistic,
};
use lab::words::TOO_WIDE;

use super::{Along, Measurements, along, of_contender, row, unnamed};
use crate::chart::{Chart, LABEL_CHARACTERS_MAX};

pub(super) mod draw;

use draw::{Bar, Curve, PUBLISHED_STYLE, Place, Scale, draw_bars, draw_curves};

impl Measurements<'_> {
    /// The pictures of a table. `id` is the table's own.
    pub(super) fn charts(self, table: &PublishedTable, id: &str) -> Vec<Chart> {
        let Some(picture) = &table.picture else { return Vec::new() };
        match picture.draw {
            Draw::Curves => self.curves(table, picture, id).into_iter().collect(),
            Draw::Bars => {
                let lines = picture.of.iter().enumerate();
                lines
                    .filter_map(|(place, line)| {
                        let id = format!("{id}-picture-{}", place + 1);
                        self.bars_chart(table, picture, *line, id)
                    })
                    .collect()
            }
        }
    }

    /// The cells of one row or column, each with the head across.
    fn line(table: &PublishedTable, each: Each, line: usize) -> Vec<(&str, &PublishedCell)> {
        match each {
            Each::Row => {
                let heads = table.columns.iter().map(String::as_str);
                heads.zip(&table.rows[line].cells).collect()
            }
            Each::Column => {
                table.rows.iter().map(|row| (row.head.as_str(), &row.cells[line])).collect()
            }
        }
    }

    fn bars_chart(
        self,
        table: &PublishedTable,
        picture: &Picture,
        line: usize,
        id: String,
    ) -> Option<Chart> {
        let cells = Self::line(table, picture.each, line);
        let across = match picture.each {
            Each::Row => Along::Columns,
            Each::Column => Along::Rows,
        };
        let by_contender = along(table) == across;
        let others = if by_contender { unnamed(table, self.plan) } else { Vec::new() };
        let reference = picture.reference.map(|place| cells[place]);
        let with_reference = reference.filter(|(_, cell)| self.divides(&cells, cell));
        let bars = self.bars(&cells, &others, by_contender, with_reference.map(|(_, cell)| cell));
        let is_ratio = |cell: &PublishedCell| {
            cell.here.iter().any(|reference| reference.statistic == Statistic::Ratio)
        };
        let head = match picture.each {
            Each::Row => table.rows[line].head.as_str(),
            Each::Column => table.columns[line].as_str(),
        };
        let unit = cells.iter().find_map(|(_, cell)| cell.unit);
        let (scale, axis) = if let Some((name, _)) = with_reference {
            (Scale::Multiple(unit), format!("{head}, as a multiple of {name}"))
        } else if cells.iter().any(|(_, cell)| is_ratio(cell)) {
            (Scale::Multiple(None), head.to_string())
        } else {
            let named = unit.filter(|unit| !head.ends_with(unit.name()));
            let name = named.map(|unit| format!(", {}", unit.name()));
            (Scale::Absolute(unit), format!("{head}{}", name.unwrap_or_default()))
        };
        let title = format!("{}: {head}", short(&table.title));
        Some(draw_bars(id, title, axis, scale, layer_names(&cells), bars?))
    }

    /// Whether every number of the line can be divided by the reference of its origin.
    fn divides(self, cells: &[(&str, &PublishedCell)], reference: &PublishedCell) -> bool {
        let published = cells.iter().all(|(_, cell)| cell.range().is_none())
            || reference.range().is_some_and(|(low, high)| low == high && low > 0.0);
        let layers = cells.iter().map(|(_, cell)| cell.here.len()).max().unwrap_or(0);
        let measured = (0..layers).all(|layer| {
            let mut all = cells.iter().filter_map(|(_, cell)| cell.here.get(layer));
            all.all(|one| self.measure(one).is_none())
                || reference.here.get(layer).is_some_and(|one| self.measure(one).is_some())
        });
        published && measured
    }

    /// The bars of a line: those of each cell, published and measured, then those of contenders that
    /// the publication has not. None when there is no number.
    fn bars(
        self,
        cells: &[(&str, &PublishedCell)],
        others: &[&str],
        by_contender: bool,
        reference: Option<&PublishedCell>,
    ) -> Option<Vec<Bar>> {
        let layers = layer_names(cells);
        let label = |name: &str, one: &Reference| match layers.len() > 1 {
            true => format!("{name}, {}", one.workload),
            false => format!("{name}, here"),
        };
        let mut bars = Vec::new();
        for (head, cell) in cells {
            bars.extend(published_bar(head, cell, reference, !layers.is_empty()));
            for (layer, one) in cell.here.iter().enumerate() {
                let name = if by_contender { &one.contender } else { *head };
                let base = reference.and_then(|cell| cell.here.get(layer));
                bars.extend(self.measured_bar(label(name, one), layer, one, cell.unit, base));
            }
        }
        let first = cells.iter().find(|(_, cell)| !cell.here.is_empty());
        for other in others {
            for (layer, one) in first.iter().flat_map(|(_, cell)| &cell.here).enumerate() {
                let unit = first.and_then(|(_, cell)| cell.unit);
                let one = of_contender(one, other);
                if self.is_to_itself(&one) {
                    continue;
                }
                let base = reference.and_then(|cell| cell.here.get(layer));
                bars.extend(self.measured_bar(label(other, &one), layer, &one, unit, base));
            }
        }
        (!bars.is_empty()).then_some(bars)
    }

    fn measured_bar(
        self,
        label: String,
        layer: usize,
        one: &Reference,
        unit: Option<PublishedUnit>,
        base: Option<&Reference>,
    ) -> Option<Bar> {
        let measured = self.measure(one)?;
        let shown = match (measured.in_unit(unit), measured.quantity) {
            (Some(converted), _) => converted,
            (None, Quantity::Ratio | Quantity::Count | Quantity::Plain) => measured,
            // Of another kind than what was published: no place on its axis.
            (None, Quantity::Of(_) | Quantity::Percent) => return None,
        };
        let Some(base) = base else {
            return Some(drawn(label, layer, &shown, None));
        };
        let is_compared = matches!(one.figure, Figure::Metric(_) | Figure::Phase(_))
            && one.statistic == Statistic::Value;
        let ratio = match is_compared {
            true => self.measure(&Reference {
                statistic: Statistic::Ratio,
                baseline: Some(base.contender.clone()),
                ..one.clone()
            })?,
            // No statistics compare it: the quotient of the medians.
            false => {
                let quotient = measured.value / self.measure(base)?.value;
                Measured { value: quotient, low: None, high: None, ..measured }
            }
        };
        ratio.value.is_finite().then(|| drawn(label, layer, &ratio, Some(shown.value)))
    }

    /// The rows as curves over those columns of which anything is known.
    fn curves(self, table: &PublishedTable, picture: &Picture, id: &str) -> Option<Chart> {
        let contenders = &self.plan.study.contenders;
        let style = |label: &str| contenders.iter().position(|c| c.label == label);
        let mut curves = Vec::new();
        for line in &picture.of {
            let row = &table.rows[*line];
            let own = row.cells.iter().flat_map(|cell| &cell.here).next();
            let own = own.and_then(|reference| style(&reference.contender));
            let number =
                |cell: &PublishedCell| Some(Place { value: cell.range()?.0, decided: true });
            let published = row.cells.iter().map(number).collect();
            curves.push(Curve {
                name: format!("{}, published", row.head),
                style: own.unwrap_or(PUBLISHED_STYLE),
                published: true,
                values: published,
            });
            curves.extend(self.measured_curve(row.cells.iter(), None).map(|values| Curve {
                name: format!("{}, here", row.head),
                style: own.unwrap_or(0),
                published: false,
                values,
            }));
        }
        let first = table.rows.iter().find(|row| row.cells.iter().any(|c| !c.here.is_empty()));
        if along(table) == Along::Rows {
            for label in unnamed(table, self.plan) {
                let cells = first.iter().flat_map(|row| &row.cells);
                curves.extend(self.measured_curve(cells, Some(label)).map(|values| Curve {
                    name: format!("{label}, here"),
                    style: style(label).unwrap_or(0),
                    published: false,
                    values,
                }));
            }
        }
        let unit = row::common_unit(table.rows.iter().flat_map(|row| &row.cells));
        draw_curves(format!("{id}-picture"), table, picture, unit, &curves)
    }

    /// The values of a row, of its own contender or of another; None when there is none at all.
    fn measured_curve<'a>(
        self,
        cells: impl Iterator<Item = &'a PublishedCell>,
        other: Option<&str>,
    ) -> Option<Vec<Option<Place>>> {
        let value = |cell: &PublishedCell| {
            let one = cell.here.first()?;
            let one = other.map_or(one.clone(), |label| of_contender(one, label));
            if self.is_to_itself(&one) {
                return None;
            }
            let measured = self.measure(&one)?;
            let (value, decided) = (measured.in_unit(cell.unit)?.value, measured.is_decided());
            Some(Place { value, decided })
        };
        let values: Vec<Option<Place>> = cells.map(value).collect();
        values.iter().any(Option::is_some).then_some(values)
    }
}

/// What a table's title says before it goes into details.
fn short(title: &str) -> &str {
    title.split_once(": ").map_or(title, |(short, _)| short)
}

/// The name of a picture among those of its table.
pub(super) fn name<'a>(chart: &'a Chart, title: &str) -> Option<&'a str> {
    chart.title.strip_prefix(short(title))?.strip_prefix(": ")
}

/// The workloads of the counterparts.
fn layer_names(cells: &[(&str, &PublishedCell)]) -> Vec<String> {
    let most = cells.iter().map(|(_, cell)| &cell.here).max_by_key(|here| here.len());
    most.into_iter().flatten().map(|reference| reference.workload.clone()).collect()
}

/// A measured figure as a bar; like in the table, without an interval that says nothing.
fn drawn(label: String, layer: usize, measured: &Measured, absolute: Option<f64>) -> Bar {
    let telling = measured.is_telling();
    Bar {
        label,
        key: layer + 1,
        value: measured.value,
        interval: measured.low.zip(measured.high).filter(|_| telling),
        ends: measured.low.zip(measured.high),
        absolute,
        published: None,
        instead: (!telling).then_some(TOO_WIDE),
    }
}

fn published_bar(
    head: &str,
    cell: &PublishedCell,
    reference: Option<&PublishedCell>,
    is_one_of_two: bool,
) -> Option<Bar> {
    let (low, high) = cell.range()?;
    let base = match reference {
        Some(reference) => Some(reference.range()?.0),
        None => None,
    };
    let (first, last) = cell.text.split_once(" to ").unwrap_or((&cell.text, &cell.text));
    let middle = (low + high) / 2.0;
    // The hatching tells where it is from, and where there is room its label too.
    let long = format!("{head}, published");
    let fits = is_one_of_two && long.chars().count() <= LABEL_CHARACTERS_MAX;
    let divisor = base.unwrap_or(1.0);
    let interval = (low < high).then_some((low / divisor, high / divisor));
    Some(Bar {
        label: if fits { long } else { head.to_string() },
        key: 0,
        value: middle / divisor,
        interval,
        ends: interval,
        absolute: base.map(|_| middle),
        published: Some((first.trim().into(), last.trim().into())),
        instead: None,
    })
}
