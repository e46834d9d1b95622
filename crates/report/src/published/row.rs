//! Rows of a published table: the published ones as they were published, the measured ones in the
//! same unit.

use std::fmt::Write;

use lab::published::{Measured, PublishedCell, PublishedRow, PublishedUnit, Quantity};
use lab::words::TOO_WIDE;

use crate::quotient::{self, MARK, PAIRED};
use crate::table::{Cell, Tone};
use crate::text;

/// What stands in the place of a published cell.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    /// A measured figure.
    Figure {
        /// The figure.
        measured: Measured,
        /// The unit that it is shown in.
        unit: Option<PublishedUnit>,
        /// Whether the reader must know that it is not the quotient of the medians in the table.
        marked: bool,
    },
    /// A comparison of too few blocks.
    Withheld,
}

/// A quotient of medians that disagrees with the paired ratio.
#[derive(Debug, Clone)]
pub struct Quotient {
    /// Label of the contender.
    pub label: String,
    /// Its median by that of the baseline.
    pub quotient: f64,
}

/// What the mark means, in the table that has one.
pub fn quotients_explained(quotients: &[Quotient]) -> Option<String> {
    let each = quotients.iter();
    let each: Vec<String> =
        each.map(|one| format!("{} {}", one.label, text::ratio(one.quotient))).collect();
    (!each.is_empty()).then(|| {
        format!(
            "{} the medians of the row above divide to another number: {}. {PAIRED}",
            MARK.trim(),
            text::list(&each)
        )
    })
}

/// The unit that all numbered cells share, when they do.
pub fn common_unit<'a>(cells: impl Iterator<Item = &'a PublishedCell>) -> Option<PublishedUnit> {
    let mut units = cells.filter(|c| !(c.text.is_empty() && c.here.is_empty())).map(|c| c.unit);
    let first = units.next()??;
    units.all(|unit| unit == Some(first)).then_some(first)
}

/// How many counterparts a cell of the row has at most.
pub fn layers(row: &PublishedRow) -> usize {
    row.cells.iter().map(|cell| cell.here.len()).max().unwrap_or(0)
}

/// The workload of a layer, where cells have several counterparts.
pub fn layer_name(row: &PublishedRow, layer: usize) -> Option<&str> {
    let several = row.cells.iter().find(|cell| cell.here.len() > 1)?;
    several.here.get(layer).map(|reference| reference.workload.as_str())
}

/// A row as it was published.
///
/// `others_are_measured`: whether anything stands for another row here.
pub fn published_row(
    row: &PublishedRow,
    unit_is_told: bool,
    others_are_measured: bool,
    width: usize,
) -> Vec<Cell> {
    let mut head = row.head.clone();
    if let (false, Some(unit)) = (unit_is_told, common_unit(row.cells.iter())) {
        let _ = write!(head, ", {}", unit.name());
    }
    if others_are_measured && row.cells.iter().all(|cell| cell.here.is_empty()) {
        head.push_str(" (published only)");
    }
    let mut cells: Vec<Cell> = vec![head.into()];
    cells.extend(row.cells.iter().map(|cell| match cell.text.as_str() {
        "" => Cell::from("-"),
        // Text that is no number stays text.
        text => Cell::from(text).valued(text.parse().ok()),
    }));
    cells.resize(width, "-".into());
    cells
}

/// A row of what was measured.
pub fn measured_row(head: String, cells: &[Option<Shown>]) -> Vec<Cell> {
    let mut row = vec![Cell::toned(head, Tone::Strong)];
    row.extend(cells.iter().map(|cell| match cell {
        Some(cell) => shown(cell),
        None => "-".into(),
    }));
    row
}

/// A measured figure in the unit of the published one; in its own where the two do not go
/// together.
fn shown(cell: &Shown) -> Cell {
    let Shown::Figure { measured, unit, marked } = *cell else {
        return Cell::toned(quotient::UNKNOWN, Tone::Doubtful);
    };
    let converted = measured.in_unit(unit);
    let step = converted.unwrap_or(measured).step;
    let in_steps = |value: f64| digits_in_steps(value, step);
    let (figure, words): (Measured, &dyn Fn(f64) -> String) = match (converted, measured.quantity) {
        (Some(converted), _) => (converted, &in_steps),
        (None, Quantity::Ratio) => (measured, &text::ratio),
        (None, Quantity::Percent | Quantity::Plain) => (measured, &in_steps),
        (None, Quantity::Count) => {
            return Cell::from(format!("{:.0}", measured.value)).valued(Some(measured.value));
        }
        (None, Quantity::Of(unit)) => {
            let interval = measured.low.zip(measured.high);
            let words = text::figure_with_interval(measured.value, interval, unit);
            return Cell::from(words).valued(Some(measured.value));
        }
    };
    let text = match figure.low.zip(figure.high) {
        Some((low, high)) if figure.is_telling() => {
            format!("{} [{}, {}]", words(figure.value), words(low), words(high))
        }
        Some(_) => format!("{} [{TOO_WIDE}]", words(figure.value)),
        None => words(figure.value),
    };
    let mark = if marked { MARK } else { "" };
    Cell::from(text + mark).valued(Some(figure.value))
}

/// Four significant digits, at most four behind the point.
pub fn digits(value: f64) -> String {
    digits_in_steps(value, None)
}

/// The same, and no more behind the point than the step has in which the value was printed.
pub fn digits_in_steps(value: f64, step: Option<f64>) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let of_step = step.map_or(4.0, |step| (-step.log10()).round().max(0.0));
    let behind = (3.0 - magnitude).clamp(0.0, 4.0).min(of_step) as usize;
    format!("{value:.behind$}")
}
