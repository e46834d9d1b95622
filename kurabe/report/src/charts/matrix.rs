//! The fio matrix: how many percent fewer operations a second each cell did than the bare device. As
//! a map and as curves by block size, as the flash study drew it.

use std::collections::BTreeSet;

use lab::analysis::{CellOverhead, Overhead, WorkloadAnalysis};
use lab::load::MatrixCell;
use lab::quantity::size_text;
use lab::words::loss_interval;

use super::View;
use crate::chart::{self, Axis, Chart, Guide, Point, Tick, extremes};
use crate::edge;
use crate::heat::{HeatCell, HeatMap};
use crate::quotient::too_few_explained;
use crate::svg::Place;
use crate::table::{Cell, Table};
use crate::text::{counted, distinct};

/// Loss in percent that gets the full colour: half of the bare device's operations.
const FULL_COLOUR_PERCENT: f64 = 50.0;

/// Rows and columns of all contenders together.
fn rows_and_sizes(overheads: &[Overhead]) -> (Vec<String>, Vec<u64>) {
    let cells = || overheads.iter().flat_map(|overhead| &overhead.cells);
    let sizes: BTreeSet<u64> = cells().map(|entry| entry.cell.block_size_bytes).collect();
    (distinct(cells().map(|entry| row_name(&entry.cell))), sizes.into_iter().collect())
}

fn cell_at<'a>(overhead: &'a Overhead, row: &str, block_bytes: u64) -> Option<&'a CellOverhead> {
    overhead
        .cells
        .iter()
        .find(|entry| entry.cell.block_size_bytes == block_bytes && row_name(&entry.cell) == row)
}

/// The maps, one a contender, or one with a column for each contender where there is one block size;
/// none for another load.
pub fn maps(view: &View<'_>) -> Vec<HeatMap> {
    let overheads = &view.analysis.overhead;
    let (rows, sizes) = rows_and_sizes(overheads);
    let Some(first) = overheads.first() else { return Vec::new() };
    let raw = &first.raw;
    if let [size] = sizes[..] {
        let columns: Vec<_> =
            overheads.iter().map(|one| (one.contender.clone(), one, size)).collect();
        let title = format!("Overhead against {raw}, %: blocks of {}", size_text(size));
        let said = overheads.iter().map(|one| format!("{}: {}", one.contender, summary(one)));
        let says = said.collect::<Vec<_>>().join(" ");
        return vec![map(view.id("map-0"), [title, says], "contender", &rows, &columns)];
    }
    let of_contender = |(index, one): (usize, &Overhead)| {
        let columns: Vec<_> = sizes.iter().map(|size| (size_text(*size), one, *size)).collect();
        let title = format!("Overhead of {} against {raw}, %", one.contender);
        let id = view.id(&format!("map-{index}"));
        map(id, [title, summary(one)], "block size", &rows, &columns)
    };
    overheads.iter().enumerate().map(of_contender).collect()
}

/// A map whose columns have a head each, and a contender's overhead with blocks of a size.
fn map(
    id: String,
    [title, says]: [String; 2],
    column_title: &str,
    rows: &[String],
    columns: &[(String, &Overhead, u64)],
) -> HeatMap {
    let mut numbers = Table::new(&["cell", column_title, "overhead, %", "from", "to", "blocks"]);
    let mut cells = Vec::new();
    for row in rows {
        let mut line = Vec::new();
        for (head, overhead, size) in columns {
            let entry = cell_at(overhead, row, *size);
            if let Some(entry) = entry {
                let mut numbers_row = vec![row.as_str().into(), head.as_str().into()];
                numbers_row.extend(number_cells(entry));
                numbers.rows.push(numbers_row);
            }
            line.push(entry.map(|entry| {
                HeatCell {
                    value: entry.percent.unwrap_or(0.0),
                    // Plus zero, so that a little less than nothing is not a negative zero.
                    text: match (entry.percent.filter(|_| entry.is_decided()), entry.bound()) {
                        (Some(percent), _) => format!("{:.0}", percent.round() + 0.0),
                        (None, Some(bound)) => format!("±{bound:.0}"),
                        (None, None) => "?".into(),
                    },
                    decided: entry.is_decided(),
                    says: format!("{row}, {head}: {}", in_words(entry, &overhead.raw)),
                }
            }));
        }
        cells.push(line);
    }
    let raw = columns.first().map_or("raw", |(_, overhead, _)| overhead.raw.as_str());
    HeatMap {
        id,
        title,
        says,
        column_title: column_title.into(),
        columns: columns.iter().map(|(head, ..)| head.clone()).collect(),
        rows: rows.to_vec(),
        cells,
        full: FULL_COLOUR_PERCENT,
        signs: (format!("fewer than {raw}"), format!("more operations than {raw}")),
        numbers,
    }
}

/// `12.3 % fewer operations a second than raw, between 10.1 % and 14.5 %, 5 blocks`.
fn in_words(entry: &CellOverhead, raw: &str) -> String {
    let Some(percent) = entry.percent else {
        return format!("not told: {}", too_few_explained());
    };
    let interval = match entry.low_percent.zip(entry.high_percent) {
        Some(ends) => format!("interval {}", loss_interval(ends)),
        None => "no interval".into(),
    };
    let decided = if entry.is_open() { ", inconclusive" } else { "" };
    let blocks = counted(entry.blocks, "block");
    format!("{}, {interval}, {blocks}{decided}", less_or_more(percent, raw))
}

fn less_or_more(percent: f64, raw: &str) -> String {
    let word = if percent < 0.0 { "more" } else { "fewer" };
    format!("{:.1} % {word} operations a second than {raw}", percent.abs())
}

/// The cell that lost most, the one that gained most, and how many are decided at all.
fn summary(overhead: &Overhead) -> String {
    let decided: Vec<(f64, &CellOverhead)> = overhead
        .cells
        .iter()
        .filter(|entry| entry.is_decided())
        .filter_map(|entry| Some((entry.percent?, entry)))
        .collect();
    let all = || decided.iter();
    let ends = [
        all().max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(percent, _)| *percent > 0.0),
        all().min_by(|one, other| one.0.total_cmp(&other.0)).filter(|(percent, _)| *percent < 0.0),
    ];
    let mut said = format!("Decided: {} of {} cells", decided.len(), overhead.cells.len());
    for (place, (percent, entry)) in ends.into_iter().flatten().enumerate() {
        let size = size_text(entry.cell.block_size_bytes);
        said.push_str(if place == 0 { "; the outermost: " } else { ", and " });
        said.push_str(&format!(
            "{} ({}, {size})",
            less_or_more(*percent, &overhead.raw),
            row_name(&entry.cell)
        ));
    }
    said + "."
}

/// The overhead, its interval and the blocks of a cell.
fn number_cells(entry: &CellOverhead) -> [Cell; 4] {
    let number = |value: Option<f64>| Cell::maybe(value, |value| format!("{value:.1}"));
    [
        number(entry.percent),
        number(entry.low_percent),
        number(entry.high_percent),
        Cell::whole(entry.blocks as u64),
    ]
}

/// `randread, one by one (psync)`, `randrw 70/30, queue of 32 (libaio)`.
fn row_name(cell: &MatrixCell) -> String {
    let pattern = cell.pattern.replace("-70-30", " 70/30");
    match cell.depth {
        1 => format!("{pattern}, one by one ({})", cell.engine),
        depth => format!("{pattern}, queue of {depth} ({})", cell.engine),
    }
}

/// What the numbers of the maps are.
pub fn explained(workload: &WorkloadAnalysis) -> String {
    let raw = workload.overhead.first().map_or("raw", |overhead| overhead.raw.as_str());
    let cells = || workload.overhead.iter().flat_map(|overhead| &overhead.cells);
    let open = cells().filter(|cell| cell.is_open()).count();
    format!(
        "Operations a second lost against {raw}, in %; below 0: faster than {raw}; ±9: within 9 % of it; ?: inconclusive ({open} of {} cells), 95 % confidence for each cell.",
        cells().count()
    )
}

/// The maps as pictures of their own: names of files, and SVG.
pub fn pictures(view: &View<'_>) -> Vec<(String, String)> {
    let maps = maps(view).into_iter();
    maps.map(|map| (format!("{}.svg", map.id), map.draw(Place::File))).collect()
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
    let (mut series, mut decided, mut all) = (Vec::new(), 0, 0);
    let mut numbers =
        Table::new(&["contender", "block size", "overhead, %", "from", "to", "blocks"]);
    for overhead in overheads {
        let label = overhead.contender.as_str();
        let contenders = &view.analysis.contenders;
        let key = contenders.iter().position(|contender| contender.label == label)?;
        let mut points = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(overhead, row, *size) else { continue };
            let size = size_text(*size);
            let words = format!("{label}, {size}: {}", in_words(entry, raw));
            let point = |percent| (Point::at(place as f64, percent, words), entry.is_decided());
            points.extend(entry.percent.map(point));
            let mut row = vec![label.into(), size.into()];
            row.extend(number_cells(entry));
            numbers.rows.push(row);
        }
        decided += points.iter().filter(|one| one.1).count();
        all += points.len();
        series.extend(chart::curve(key, points));
    }
    let keys = view.keys();
    let beyond = edge::bound(&mut series, &keys);
    let (low, high) = extremes(series.iter().flat_map(|s| &s.points).map(|point| point.y))?;
    let room = ((high.max(0.0) - low.min(0.0)) * 0.08).max(1.0);
    let ticks = sizes.iter().enumerate();
    let ticks = ticks.map(|(at, size)| Tick { at: at as f64, text: size_text(*size) }).collect();
    let x = Axis::named("block size", (-0.3, edge::end_of_places(sizes.len(), &series)), ticks);
    Some(Chart {
        says: format!(
            "Percent fewer operations a second than {raw}; at 0 as many, below it more. Decided: {decided} of {all}.{beyond}"
        ),
        height: 280,
        keys,
        signs: chart::undecided_sign(&series),
        series,
        guides: vec![Guide::Level { y: 0.0 }],
        numbers,
        ..Chart::new(
            view.id(&format!("overhead-{index}")),
            format!("Overhead by block size: {row}"),
            x,
            Axis::linear(
                format!("overhead against {raw}, %"),
                low.min(0.0) - room,
                high.max(0.0) + room,
            ),
        )
    })
}
