//! The fio matrix: how many percent fewer operations a second each cell did than the bare device. As
//! a map and as curves by block size, as the flash study drew it.

use std::collections::BTreeSet;

use lab::analysis::{Comparison, WorkloadAnalysis};
use lab::load::{Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, OPERATION_AXIS};
use lab::quantity::size_text;
use lab::statistics::BOUND_MAX;
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

/// A contender against the bare device in a cell.
struct Lost<'a> {
    compared: &'a Comparison,
    /// What its row is called.
    row: String,
    size_bytes: u64,
    /// How many percent fewer operations, and the ends of the interval.
    percent: Option<[f64; 3]>,
}

impl<'a> Lost<'a> {
    fn of(workload: &WorkloadAnalysis, compared: &'a Comparison) -> Option<Lost<'a>> {
        let axes = workload.axes(&compared.metric)?;
        let size_bytes = axes.get(BLOCK_SIZE_AXIS)?.parse().ok()?;
        Some(Lost { compared, row: row_name(axes), size_bytes, percent: compared.lost_percent() })
    }

    /// Whether the interval leaves no doubt that the cell differs from the bare device's.
    fn is_decided(&self) -> bool {
        self.percent.is_some_and(|[_, low, high]| low > 0.0 || high < 0.0)
    }

    /// How many percent more or fewer operations it has at the most, where that is no more than
    /// [`BOUND_MAX`]: whole percent.
    fn bound(&self) -> Option<f64> {
        let [_, low, high] = self.percent?;
        let most = low.abs().max(high.abs()).ceil();
        (most <= 100.0 * BOUND_MAX).then_some(most)
    }

    /// Whether it says nothing.
    fn is_open(&self) -> bool {
        !self.is_decided() && self.bound().is_none()
    }
}

/// The cells, rows and columns of all contenders together.
struct Matrix<'a> {
    raw: &'a str,
    /// By contender.
    contenders: Vec<(&'a str, Vec<Lost<'a>>)>,
    rows: Vec<String>,
    sizes: Vec<u64>,
}

impl<'a> Matrix<'a> {
    /// None for another load, and where the bare device is no contender.
    fn of(workload: &'a WorkloadAnalysis) -> Option<Matrix<'a>> {
        let raw = workload.overhead.first()?.baseline.as_str();
        let all = || workload.overhead.iter().filter_map(|one| Lost::of(workload, one));
        let sizes: BTreeSet<u64> = all().map(|one| one.size_bytes).collect();
        let contenders = distinct(workload.overhead.iter().map(|one| one.contender.as_str()));
        let of = |label| (label, all().filter(|one| one.compared.contender == label).collect());
        Some(Matrix {
            raw,
            contenders: contenders.into_iter().map(of).collect(),
            rows: distinct(all().map(|one| one.row)),
            sizes: sizes.into_iter().collect(),
        })
    }
}

fn cell_at<'a>(cells: &'a [Lost<'a>], row: &str, size_bytes: u64) -> Option<&'a Lost<'a>> {
    cells.iter().find(|one| one.size_bytes == size_bytes && one.row == row)
}

/// The maps, one a contender, or one with a column for each contender where there is one block size;
/// none for another load.
pub fn maps(view: &View<'_>) -> Vec<HeatMap> {
    let Some(matrix) = Matrix::of(view.analysis) else { return Vec::new() };
    let (raw, contenders) = (matrix.raw, &matrix.contenders);
    if let [size] = matrix.sizes[..] {
        let columns: Vec<Column<'_>> =
            contenders.iter().map(|(label, cells)| (label.to_string(), &cells[..], size)).collect();
        let title = format!("Overhead against {raw}, %: blocks of {}", size_text(size));
        let said =
            contenders.iter().map(|(label, cells)| format!("{label}: {}", summary(cells, raw)));
        let says = said.collect::<Vec<_>>().join(" ");
        return vec![map(view.id("map-0"), [title, says], "contender", &matrix, &columns)];
    }
    let of_contender = |(index, (label, cells)): (usize, &(&str, Vec<Lost<'_>>))| {
        let sizes = matrix.sizes.iter();
        let columns: Vec<Column<'_>> =
            sizes.map(|size| (size_text(*size), &cells[..], *size)).collect();
        let title = format!("Overhead of {label} against {raw}, %");
        let id = view.id(&format!("map-{index}"));
        map(id, [title, summary(cells, raw)], "block size", &matrix, &columns)
    };
    contenders.iter().enumerate().map(of_contender).collect()
}

/// A head, and a contender's cells with blocks of a size.
type Column<'a> = (String, &'a [Lost<'a>], u64);

/// A map of these columns.
fn map(
    id: String,
    [title, says]: [String; 2],
    column_title: &str,
    matrix: &Matrix<'_>,
    columns: &[Column<'_>],
) -> HeatMap {
    let Matrix { raw, rows, .. } = matrix;
    let mut numbers = Table::new(&["cell", column_title, "overhead, %", "from", "to", "blocks"]);
    let mut cells = Vec::new();
    for row in rows {
        let mut line = Vec::new();
        for (head, of_contender, size) in columns {
            let entry = cell_at(of_contender, row, *size);
            if let Some(entry) = entry {
                let mut numbers_row = vec![row.as_str().into(), head.as_str().into()];
                numbers_row.extend(number_cells(entry));
                numbers.rows.push(numbers_row);
            }
            line.push(entry.map(|entry| {
                HeatCell {
                    value: entry.percent.map_or(0.0, |[percent, ..]| percent),
                    // Plus zero, so that a little less than nothing is not a negative zero.
                    text: match (entry.percent.filter(|_| entry.is_decided()), entry.bound()) {
                        (Some([percent, ..]), _) => format!("{:.0}", percent.round() + 0.0),
                        (None, Some(bound)) => format!("±{bound:.0}"),
                        (None, None) => "?".into(),
                    },
                    decided: entry.is_decided(),
                    says: format!("{row}, {head}: {}", in_words(entry, raw)),
                }
            }));
        }
        cells.push(line);
    }
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
fn in_words(entry: &Lost<'_>, raw: &str) -> String {
    let Some([percent, low, high]) = entry.percent else {
        return format!("not told: {}", too_few_explained());
    };
    let interval = loss_interval((low, high));
    let decided = if entry.is_open() { ", inconclusive" } else { "" };
    let blocks = counted(entry.compared.blocks, "block");
    format!("{}, interval {interval}, {blocks}{decided}", less_or_more(percent, raw))
}

fn less_or_more(percent: f64, raw: &str) -> String {
    let word = if percent < 0.0 { "more" } else { "fewer" };
    format!("{:.1} % {word} operations a second than {raw}", percent.abs())
}

/// The cell that lost most, the one that gained most, and how many are decided at all.
fn summary(cells: &[Lost<'_>], raw: &str) -> String {
    let decided: Vec<(f64, &Lost<'_>)> = cells
        .iter()
        .filter(|entry| entry.is_decided())
        .filter_map(|entry| Some((entry.percent?[0], entry)))
        .collect();
    let all = || decided.iter();
    let ends = [
        all().max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(percent, _)| *percent > 0.0),
        all().min_by(|one, other| one.0.total_cmp(&other.0)).filter(|(percent, _)| *percent < 0.0),
    ];
    let mut said = format!("Decided: {} of {} cells", decided.len(), cells.len());
    for (place, (percent, entry)) in ends.into_iter().flatten().enumerate() {
        let size = size_text(entry.size_bytes);
        said.push_str(if place == 0 { "; the outermost: " } else { ", and " });
        said.push_str(&format!("{} ({}, {size})", less_or_more(*percent, raw), entry.row));
    }
    said + "."
}

/// The overhead, its interval and the blocks of a cell.
fn number_cells(entry: &Lost<'_>) -> impl Iterator<Item = Cell> {
    let numbers = [0, 1, 2].map(|place| entry.percent.map(|percent| percent[place]));
    let blocks = Cell::whole(entry.compared.blocks as u64);
    let number = |value| Cell::maybe(value, |value: f64| format!("{value:.1}"));
    numbers.into_iter().map(number).chain([blocks])
}

/// `randread, one by one (psync)`, `randrw 70/30, queue of 32 (libaio)`.
fn row_name(axes: &Axes) -> String {
    let of = |axis: &str| axes.get(axis).map_or("", String::as_str);
    let (operation, engine) = (of(OPERATION_AXIS).replace("-70-30", " 70/30"), of(ENGINE_AXIS));
    match of(DEPTH_AXIS) {
        "1" => format!("{operation}, one by one ({engine})"),
        depth => format!("{operation}, queue of {depth} ({engine})"),
    }
}

/// What the numbers of the maps are.
pub fn explained(workload: &WorkloadAnalysis) -> String {
    let raw = workload.overhead.first().map_or("raw", |one| one.baseline.as_str());
    let cells = || workload.overhead.iter().filter_map(|one| Lost::of(workload, one));
    let open = cells().filter(Lost::is_open).count();
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
    let matrix = Matrix::of(view.analysis).filter(|matrix| matrix.sizes.len() > 1);
    let Some(matrix) = matrix else { return Vec::new() };
    let rows = matrix.rows.iter().enumerate();
    rows.filter_map(|(index, row)| curve(view, &matrix, row, index)).collect()
}

fn curve(view: &View<'_>, matrix: &Matrix<'_>, row: &str, index: usize) -> Option<Chart> {
    let Matrix { raw, sizes, .. } = matrix;
    let (mut series, mut decided, mut all) = (Vec::new(), 0, 0);
    let mut numbers =
        Table::new(&["contender", "block size", "overhead, %", "from", "to", "blocks"]);
    for (label, cells) in &matrix.contenders {
        let contenders = &view.analysis.contenders;
        let key = contenders.iter().position(|contender| contender.label == *label)?;
        let mut points = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(cells, row, *size) else { continue };
            let size = size_text(*size);
            let words = format!("{label}, {size}: {}", in_words(entry, raw));
            let point = |[percent, ..]: [f64; 3]| {
                (Point::at(place as f64, percent, words), entry.is_decided())
            };
            points.extend(entry.percent.map(point));
            let mut row = vec![(*label).into(), size.into()];
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
