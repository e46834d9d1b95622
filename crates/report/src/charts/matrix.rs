//! The fio matrix: how many percent fewer operations a second each cell did than the bare device. As
//! a map and as curves by block size, as the flash study drew it.

use std::collections::BTreeSet;
use std::fmt::Write;

use lab::analysis::{CellOverhead, Overhead};
use lab::quantity::size_text;

use super::View;
use crate::chart::{Axis, Chart, Guide, Mark, Point, Series, Tick, extremes};
use crate::html::escape;
use crate::overhead::{explained, row_name};
use crate::svg;
use crate::table::{Cell, Table};

/// Loss in percent that gets the full colour: half of the bare device's operations.
const FULL_COLOUR_PERCENT: f64 = 50.0;

/// Rows and columns of all contenders together.
fn rows_and_sizes(overheads: &[Overhead]) -> (Vec<String>, Vec<u64>) {
    let cells = || overheads.iter().flat_map(|overhead| &overhead.cells);
    let sizes: BTreeSet<u64> = cells().map(|entry| entry.cell.block_size_bytes).collect();
    let mut rows: Vec<String> = Vec::new();
    for entry in cells() {
        let name = row_name(&entry.cell);
        if !rows.contains(&name) {
            rows.push(name);
        }
    }
    (rows, sizes.into_iter().collect())
}

fn cell_at<'a>(overhead: &'a Overhead, row: &str, block_bytes: u64) -> Option<&'a CellOverhead> {
    overhead
        .cells
        .iter()
        .find(|entry| entry.cell.block_size_bytes == block_bytes && row_name(&entry.cell) == row)
}

/// The maps, one a contender, as tables whose cells are coloured; empty for another load.
pub fn maps(view: &View<'_>) -> String {
    let overheads = &view.analysis.overhead;
    let (rows, sizes) = rows_and_sizes(overheads);
    let Some(first) = overheads.first() else { return String::new() };
    let mut out = format!(
        "<h3>Overhead against {}</h3>\n<p class=\"small\">{}. A pale cell is one that its interval does not decide.</p>\n",
        escape(&first.raw),
        escape(&explained(view.analysis))
    );
    for overhead in overheads {
        let label = escape(&overhead.contender);
        let _ = write!(
            out,
            "<h4>{label}</h4>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Overhead of {label}\"><table class=\"heat\"><caption>Overhead of {label} in percent, by block size</caption><thead><tr><th scope=\"col\">%</th>"
        );
        for size in &sizes {
            let _ = write!(out, "<th scope=\"col\">{}</th>", size_text(*size));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &rows {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(row));
            for size in &sizes {
                out.push_str(&map_cell(cell_at(overhead, row, *size)));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
    out
}

fn map_cell(entry: Option<&CellOverhead>) -> String {
    let Some(entry) = entry else { return "<td>-</td>".into() };
    let percent = entry.percent;
    let strength = if entry.is_decided() { 62.0 } else { 18.0 };
    let depth = (percent.abs() / FULL_COLOUR_PERCENT).min(1.0) * strength;
    let colour = if percent > 0.0 { "--k1" } else { "--k0" };
    let interval = match entry.low_percent.zip(entry.high_percent) {
        Some((low, high)) => format!("between {low:.1} % and {high:.1} %"),
        None => "no interval".into(),
    };
    let mark = if entry.is_decided() { "" } else { "?" };
    format!(
        "<td style=\"background:color-mix(in srgb, var({colour}) {depth:.0}%, var(--paper))\" title=\"{interval}, {} blocks\"><data value=\"{percent}\">{percent:.0}{mark}</data></td>",
        entry.blocks
    )
}

/// The maps as pictures of their own: names of files, and SVG.
pub fn pictures(view: &View<'_>) -> Vec<(String, String)> {
    let overheads = &view.analysis.overhead;
    let (rows, sizes) = rows_and_sizes(overheads);
    let maps = overheads.iter().enumerate();
    maps.map(|(index, overhead)| {
        let name = format!("{}.svg", view.id(&format!("map-{index}")));
        (name, picture(overhead, &rows, &sizes))
    })
    .collect()
}

fn picture(overhead: &Overhead, rows: &[String], sizes: &[u64]) -> String {
    const CELL_WIDTH: usize = 58;
    const CELL_HEIGHT: usize = 28;
    let beside = 24 + rows.iter().map(|row| row.chars().count()).max().unwrap_or(0) * 7;
    let (width, height) = (beside + sizes.len() * CELL_WIDTH + 16, 70 + rows.len() * CELL_HEIGHT);
    let title = format!("Overhead of {} against {}, %", overhead.contender, overhead.raw);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"system-ui, 'Liberation Sans', Arial, sans-serif\" font-size=\"12\"><title>{0}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"14\" y=\"21\" font-weight=\"600\" font-size=\"14\">{0}</text>\n",
        escape(&title)
    );
    for (column, size) in sizes.iter().enumerate() {
        let x = beside + column * CELL_WIDTH + CELL_WIDTH / 2;
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"50\" text-anchor=\"middle\" fill=\"#6a6a70\">{}</text>",
            size_text(*size)
        );
    }
    for (line, row) in rows.iter().enumerate() {
        let y = 58 + line * CELL_HEIGHT;
        let _ = writeln!(out, "<text x=\"14\" y=\"{}\">{}</text>", y + 18, escape(row));
        for (column, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(overhead, row, *size) else { continue };
            let x = beside + column * CELL_WIDTH;
            let strength = if entry.is_decided() { 0.62 } else { 0.18 };
            let opacity = (entry.percent.abs() / FULL_COLOUR_PERCENT).min(1.0) * strength;
            let colour = svg::COLOURS[usize::from(entry.percent > 0.0)];
            let mark = if entry.is_decided() { "" } else { "?" };
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{colour}\" fill-opacity=\"{opacity:.2}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{:.0}{mark}</text>",
                CELL_WIDTH - 2,
                CELL_HEIGHT - 2,
                x + CELL_WIDTH / 2 - 1,
                y + 18,
                entry.percent
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The curves: one chart for each pattern and queue, overhead by block size.
pub fn curves(view: &View<'_>) -> Vec<Chart> {
    let (rows, sizes) = rows_and_sizes(&view.analysis.overhead);
    if sizes.len() < 2 {
        return Vec::new();
    }
    let rows = rows.iter().enumerate();
    rows.filter_map(|(index, row)| curve(view, &sizes, row, index)).collect()
}

fn curve(view: &View<'_>, sizes: &[u64], row: &str, index: usize) -> Option<Chart> {
    let overheads = &view.analysis.overhead;
    let raw = &overheads.first()?.raw;
    let mut series = Vec::new();
    let mut numbers =
        Table::new(&["contender", "block size", "overhead, %", "from", "to", "blocks"]);
    for overhead in overheads {
        let label = overhead.contender.as_str();
        let contenders = &view.analysis.contenders;
        let key = contenders.iter().position(|contender| contender.label == label)?;
        let mut points = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(overhead, row, *size) else { continue };
            let percent = entry.percent;
            let size = size_text(*size);
            let words = format!("{label}, {size}: {percent:.1} % fewer than {raw}");
            points.push(Point::at(place as f64, percent, words));
            let number = |value: Option<f64>| {
                value.map_or("-".into(), |value| Cell::number(value, format!("{value:.1}")))
            };
            numbers.rows.push(vec![
                label.into(),
                size.into(),
                number(Some(percent)),
                number(entry.low_percent),
                number(entry.high_percent),
                Cell::number(entry.blocks as f64, entry.blocks.to_string()),
            ]);
        }
        series.push(Series { key, mark: Mark::Steps, points });
    }
    let (low, high) = extremes(series.iter().flat_map(|s| &s.points).map(|point| point.y))?;
    let room = ((high.max(0.0) - low.min(0.0)) * 0.08).max(1.0);
    let ticks = sizes.iter().enumerate();
    Some(Chart {
        id: view.id(&format!("overhead-{index}")),
        title: format!("Overhead by block size: {row}"),
        says: format!("Percent fewer operations a second than {raw}; at 0 as many, below it more."),
        x: Axis {
            title: "block size".into(),
            logarithmic: false,
            range: (-0.3, sizes.len() as f64 - 0.7),
            ticks: ticks.map(|(at, size)| Tick { at: at as f64, text: size_text(*size) }).collect(),
            fixed: true,
        },
        y: Axis::linear(
            format!("overhead against {raw}, %"),
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
