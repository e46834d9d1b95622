//! The fio matrix: how many percent fewer operations a second each cell did than the baseline's,
//! the raw device as a rule. As a map and as curves by block size, as the flash study drew it.

use lab::analysis::Comparison;

use super::View;
use crate::chart::{Axis, Chart, Guide, Mark, Point, Series, Tick};
use crate::html::escape;
use crate::table::{Cell, Table};
use crate::tables;

/// A cell of the matrix, by the name of its figure: `randread-libaio-32-4k`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// Kind of operations, engine and depth.
    row: String,
    /// Size of a block in bytes.
    block_bytes: u64,
}

fn place_of(metric: &str) -> Option<Place> {
    let mut parts = metric.rsplitn(4, '-');
    let (size, depth, engine) = (parts.next()?, parts.next()?, parts.next()?);
    let operations = parts.next()?;
    let (digits, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit())?);
    let factor = match unit {
        "k" => 1024,
        "m" => 1024 * 1024,
        _ => return None,
    };
    depth.parse::<u32>().ok()?;
    let block_bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    Some(Place { row: format!("{operations}, {engine}, depth {depth}"), block_bytes })
}

/// The matrix of one contender against the baseline.
struct Matrix<'a> {
    rows: Vec<String>,
    sizes: Vec<u64>,
    /// The contenders but the baseline.
    contenders: Vec<Column<'a>>,
}

/// What the matrix says of one contender.
struct Column<'a> {
    /// Its place in the study.
    index: usize,
    label: &'a str,
    cells: Vec<(Place, &'a Comparison)>,
}

impl<'a> Column<'a> {
    fn at(&self, row: &str, block_bytes: u64) -> Option<&'a Comparison> {
        let wanted = |place: &Place| place.row == row && place.block_bytes == block_bytes;
        self.cells.iter().find(|(place, _)| wanted(place)).map(|(_, comparison)| *comparison)
    }
}

impl<'a> Matrix<'a> {
    /// The matrix of a workload; None for a load that is none.
    fn of(view: &View<'a>) -> Option<Matrix<'a>> {
        let mut matrix = Matrix { rows: Vec::new(), sizes: Vec::new(), contenders: Vec::new() };
        for (index, contender) in view.analysis.contenders.iter().enumerate() {
            let compared = view.analysis.comparisons.iter();
            let cells: Vec<(Place, &Comparison)> = compared
                .filter(|comparison| comparison.contender == contender.label)
                .filter_map(|comparison| Some((place_of(&comparison.metric)?, comparison)))
                .collect();
            for (place, _) in &cells {
                if !matrix.rows.contains(&place.row) {
                    matrix.rows.push(place.row.clone());
                }
                if !matrix.sizes.contains(&place.block_bytes) {
                    matrix.sizes.push(place.block_bytes);
                }
            }
            if !cells.is_empty() {
                matrix.contenders.push(Column { index, label: &contender.label, cells });
            }
        }
        matrix.sizes.sort_unstable();
        // Some other load may have a figure of such a name; a matrix has rows and columns.
        (matrix.rows.len() * matrix.sizes.len() > 1).then_some(matrix)
    }
}

/// Percent fewer operations than the baseline; negative where it does more.
fn overhead(comparison: &Comparison) -> Option<f64> {
    Some((1.0 - comparison.ratio?) * 100.0)
}

fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    }
}

/// The maps, one a contender, as tables whose cells are coloured; empty for another load.
pub fn maps(view: &View<'_>) -> String {
    use std::fmt::Write;
    let Some(matrix) = Matrix::of(view) else { return String::new() };
    let baseline = view.source.plan.baseline_label();
    let mut out = format!(
        "<h3>Overhead against {0}</h3>\n<p class=\"small\">Percent fewer operations a second than {0} did in the same cell; negative where more. A pale cell is one whose interval includes no difference.</p>\n",
        escape(baseline)
    );
    for column in &matrix.contenders {
        let label = escape(column.label);
        let _ = write!(
            out,
            "<h4>{label}</h4>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Overhead of {label}\"><table class=\"heat\"><caption>Overhead of {label} in percent, by block size</caption><thead><tr><th scope=\"col\">operations</th>"
        );
        for size in &matrix.sizes {
            let _ = write!(out, "<th scope=\"col\">{}</th>", size_text(*size));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &matrix.rows {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(row));
            for size in &matrix.sizes {
                out.push_str(&map_cell(column.at(row, *size)));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
    out
}

fn map_cell(comparison: Option<&Comparison>) -> String {
    let Some((comparison, percent)) = comparison.and_then(|c| Some((c, overhead(c)?))) else {
        return "<td>-</td>".into();
    };
    let decided = match comparison.low.zip(comparison.high) {
        Some((low, high)) => low > 1.0 || high < 1.0,
        None => false,
    };
    // Half of the operations lost, or half more done, is the full colour.
    let depth = (percent.abs() / 50.0).min(1.0) * if decided { 62.0 } else { 18.0 };
    let colour = if percent > 0.0 { "--k1" } else { "--k0" };
    let interval = match comparison.low.zip(comparison.high) {
        Some((low, high)) => {
            format!("{:.0} % to {:.0} %", (1.0 - high) * 100.0, (1.0 - low) * 100.0)
        }
        None => "no interval".into(),
    };
    format!(
        "<td style=\"background:color-mix(in srgb, var({colour}) {depth:.0}%, var(--paper))\" title=\"{interval}: {}\"><data value=\"{percent}\">{percent:.0}</data></td>",
        tables::verdict_text(&comparison.verdict)
    )
}

/// The curves: one chart for each kind of operations, overhead by block size.
pub fn curves(view: &View<'_>) -> Vec<Chart> {
    let Some(matrix) = Matrix::of(view) else { return Vec::new() };
    if matrix.sizes.len() < 2 {
        return Vec::new();
    }
    let rows = matrix.rows.iter().enumerate();
    rows.filter_map(|(index, row)| curve(view, &matrix, row, index)).collect()
}

fn curve(view: &View<'_>, matrix: &Matrix<'_>, row: &str, index: usize) -> Option<Chart> {
    let baseline = view.source.plan.baseline_label();
    let mut series = Vec::new();
    let mut numbers =
        Table::new(&["contender", "block size", "overhead, %", "from", "to", "verdict"]);
    for column in &matrix.contenders {
        let label = column.label;
        let mut points = Vec::new();
        for (place, size) in matrix.sizes.iter().enumerate() {
            let Some(comparison) = column.at(row, *size) else { continue };
            let Some(percent) = overhead(comparison) else { continue };
            let words =
                format!("{label}, {}: {percent:.1} % fewer than {baseline}", size_text(*size));
            points.push(Point::at(place as f64, percent, words));
            let number = |value: Option<f64>| {
                value.map_or("-".into(), |value| Cell::number(value, format!("{value:.1}")))
            };
            numbers.rows.push(vec![
                label.into(),
                size_text(*size).into(),
                number(Some(percent)),
                number(comparison.high.map(|high| (1.0 - high) * 100.0)),
                number(comparison.low.map(|low| (1.0 - low) * 100.0)),
                Cell::toned(
                    tables::verdict_text(&comparison.verdict),
                    tables::tone_of(&comparison.verdict),
                ),
            ]);
        }
        series.push(Series { key: column.index, mark: Mark::Steps, points });
    }
    let (low, high) =
        crate::chart::extremes(series.iter().flat_map(|s| &s.points).map(|point| point.y))?;
    let room = ((high.max(0.0) - low.min(0.0)) * 0.08).max(1.0);
    let ticks = matrix.sizes.iter().enumerate();
    Some(Chart {
        id: view.id(&format!("overhead-{index}")),
        title: format!("Overhead by block size: {row}"),
        says: format!(
            "Percent fewer operations a second than {baseline}, by block size; 0 is as many as {baseline}."
        ),
        x: Axis {
            title: "block size".into(),
            logarithmic: false,
            range: (-0.3, matrix.sizes.len() as f64 - 0.7),
            ticks: ticks.map(|(at, size)| Tick { at: at as f64, text: size_text(*size) }).collect(),
            fixed: true,
        },
        y: Axis::linear(
            format!("overhead against {baseline}, %"),
            low.min(0.0) - room,
            high.max(0.0) + room,
        ),
        height: 280,
        keys: view.keys(),
        legend: true,
        folded: index > 0,
        series,
        guides: vec![Guide::Level { y: 0.0 }],
        numbers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cells() {
        assert_eq!(
            place_of("randrw-70-30-libaio-32-64k"),
            Some(Place { row: "randrw-70-30, libaio, depth 32".into(), block_bytes: 65536 })
        );
        assert_eq!(place_of("randread-psync-1-1m").unwrap().block_bytes, 1 << 20);
        for other in ["throughput", "a-b-c-d", "a-b-1-4", "a-b-1-99999999999999999999k", "time"] {
            assert_eq!(place_of(other), None, "{other}");
        }
    }
}
