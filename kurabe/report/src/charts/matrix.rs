//! The fio matrix: how many percent fewer operations a second each cell did than the bare device. As
//! a map and as curves by block size, as the flash study drew it.

use std::collections::BTreeSet;

use lab::analysis::{Comparison, WorkloadAnalysis};
use lab::load::{Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, OPERATION_AXIS};
use lab::quantity::size_text;
use lab::statistics::BOUND_MAX;
use lab::words::loss_interval;

use super::View;
use crate::chart::{self, Axis, Chart, Guide, Point, Tick};
use crate::heat::{HeatCell, HeatMap};
use crate::quotient::too_few_explained;
use crate::svg::Place;
use crate::table::{Cell, Table};
use crate::text::{counted, distinct, plain};

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

impl Lost<'_> {
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

/// The cells of all contenders; none for another load, and where the bare device is no contender.
fn matrix(workload: &WorkloadAnalysis) -> Vec<Lost<'_>> {
    let cells = workload.overhead.iter().filter_map(|compared| {
        let axes = workload.axes(&compared.metric)?;
        let size_bytes = axes.get(BLOCK_SIZE_AXIS)?.parse().ok()?;
        Some(Lost { compared, row: row_name(axes), size_bytes, percent: compared.lost_percent() })
    });
    cells.collect()
}

/// The block sizes, from the smallest.
fn sizes(cells: &[Lost<'_>]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = cells.iter().map(|one| one.size_bytes).collect();
    sizes.into_iter().collect()
}

fn of_contender<'a>(cells: &'a [Lost<'a>], label: &str) -> impl Iterator<Item = &'a Lost<'a>> {
    cells.iter().filter(move |one| one.compared.contender == label)
}

fn cell_at<'a>(cells: &'a [Lost<'a>], label: &str, row: &str, size: u64) -> Option<&'a Lost<'a>> {
    of_contender(cells, label).find(|one| one.size_bytes == size && one.row == row)
}

/// The maps, one a contender, or one with a column for each contender where there is one block size;
/// none for another load.
pub fn maps(view: &View<'_>) -> Vec<HeatMap> {
    let cells = matrix(view.analysis);
    let Some(raw) = cells.first().map(|one| &one.compared.baseline) else { return Vec::new() };
    let labels = distinct(cells.iter().map(|one| one.compared.contender.as_str()));
    let sizes = sizes(&cells);
    if let [size] = sizes[..] {
        let columns: Vec<Column<'_>> =
            labels.iter().map(|label| (label.to_string(), *label, size)).collect();
        let title = format!("Overhead against {raw}, %: blocks of {}", size_text(size));
        let said = labels.iter().map(|label| format!("{label}: {}", summary(&cells, label)));
        let says = said.collect::<Vec<_>>().join(" ");
        return vec![map(view.id("map-0"), [title, says], "contender", &cells, columns)];
    }
    let of_label = |(index, label): (usize, &&str)| {
        let columns = sizes.iter().map(|size| (size_text(*size), *label, *size)).collect();
        let title = format!("Overhead of {label} against {raw}, %");
        let id = view.id(&format!("map-{index}"));
        map(id, [title, summary(&cells, label)], "block size", &cells, columns)
    };
    labels.iter().enumerate().map(of_label).collect()
}

/// A head, the label of a contender, and a block size.
type Column<'a> = (String, &'a str, u64);

/// A map of these columns.
fn map(
    id: String,
    [title, says]: [String; 2],
    column_title: &str,
    all: &[Lost<'_>],
    columns: Vec<Column<'_>>,
) -> HeatMap {
    let raw = &all[0].compared.baseline;
    let rows = distinct(all.iter().map(|one| one.row.clone()));
    let mut numbers = Table::new(&["cell", column_title, "overhead, %", "from", "to", "rounds"]);
    let mut cells = Vec::new();
    for row in &rows {
        let mut line = Vec::new();
        for (head, label, size) in &columns {
            line.push(cell_at(all, label, row, *size).map(|entry| {
                numbers.rows.push(numbers_of(entry, [row, head]));
                HeatCell {
                    value: entry.percent.map_or(0.0, |[percent, ..]| percent),
                    // Plus zero, so that a little less than nothing is not a negative zero.
                    text: match (entry.percent.filter(|_| entry.is_decided()), entry.bound()) {
                        (Some([percent, ..]), _) => format!("{:.0}", percent.round() + 0.0),
                        (None, Some(bound)) => format!("±{bound:.0}"),
                        (None, None) => "?".into(),
                    },
                    decided: entry.is_decided(),
                    says: format!("{row}, {head}: {}", in_words(entry)),
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
        columns: columns.into_iter().map(|(head, ..)| head).collect(),
        rows,
        cells,
        full: FULL_COLOUR_PERCENT,
        signs: (format!("fewer than {raw}"), format!("more operations than {raw}")),
        numbers,
    }
}

/// `12.3 % fewer operations a second than raw, between 10.1 % and 14.5 %, 5 blocks`.
fn in_words(entry: &Lost<'_>) -> String {
    let Some([percent, low, high]) = entry.percent else {
        return format!("not shown: {}", too_few_explained());
    };
    let interval = loss_interval((low, high));
    let decided = if entry.is_open() { ", inconclusive" } else { "" };
    let blocks = counted(entry.compared.blocks, "block");
    format!("{}, interval {interval}, {blocks}{decided}", less_or_more(entry, percent))
}

fn less_or_more(entry: &Lost<'_>, percent: f64) -> String {
    let word = if percent < 0.0 { "more" } else { "fewer" };
    format!("{:.1} % {word} operations a second than {}", percent.abs(), entry.compared.baseline)
}

/// The cell in which a contender lost most, the one in which it gained most, and how many are decided
/// at all.
fn summary(all: &[Lost<'_>], label: &str) -> String {
    let decided = || of_contender(all, label).filter(|one| one.is_decided());
    let known = || decided().filter_map(|one| Some((one.percent?[0], one)));
    let ends = [
        known().max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(lost, _)| *lost > 0.0),
        known().min_by(|one, other| one.0.total_cmp(&other.0)).filter(|(lost, _)| *lost < 0.0),
    ];
    let (some, all) = (decided().count(), of_contender(all, label).count());
    let mut said = format!("Decided: {some} of {all} cells");
    for (place, (percent, entry)) in ends.into_iter().flatten().enumerate() {
        let size = size_text(entry.size_bytes);
        said.push_str(if place == 0 { "; the outermost: " } else { ", and " });
        said.push_str(&format!("{} ({}, {size})", less_or_more(entry, percent), entry.row));
    }
    said + "."
}

/// A row of a table: where a cell lies, its overhead with the interval, and its blocks.
fn numbers_of(entry: &Lost<'_>, heads: [&str; 2]) -> Vec<Cell> {
    let numbers = [0, 1, 2].map(|place| entry.percent.map(|percent| percent[place]));
    let numbers = numbers.map(|value| Cell::maybe(value, |value| format!("{value:.1}")));
    let blocks = Cell::whole(entry.compared.blocks as u64);
    heads.map(Cell::from).into_iter().chain(numbers).chain([blocks]).collect()
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
    let cells = matrix(workload);
    let open = cells.iter().filter(|one| one.is_open()).count();
    format!(
        "Operations a second lost against {raw}, in %; below 0: faster than {raw}; ±9: within 9 % of it; ?: inconclusive ({open} of {} cells), 95 % confidence for each cell.",
        cells.len()
    )
}

/// The maps as pictures of their own: names of files, and SVG.
pub fn pictures(view: &View<'_>) -> Vec<(String, String)> {
    let maps = maps(view).into_iter();
    maps.map(|map| (format!("{}.svg", map.id), map.draw(Place::File))).collect()
}

/// The curves: one chart for each pattern and queue, how fast by block size.
pub fn curves(view: &View<'_>) -> Vec<Chart> {
    let cells = matrix(view.analysis);
    let (rows, sizes) = (distinct(cells.iter().map(|one| one.row.as_str())), sizes(&cells));
    if sizes.len() < 2 {
        return Vec::new();
    }
    let rows = rows.iter().enumerate();
    rows.filter_map(|(index, row)| curve(view, &cells, &sizes, row, index)).collect()
}

fn curve(
    view: &View<'_>,
    cells: &[Lost<'_>],
    sizes: &[u64],
    row: &str,
    index: usize,
) -> Option<Chart> {
    let raw = &cells.first()?.compared.baseline;
    let (mut series, mut decided, mut all) = (Vec::new(), 0, 0);
    let mut numbers =
        Table::new(&["contender", "block size", "overhead, %", "from", "to", "rounds"]);
    for (key, contender) in view.analysis.contenders.iter().enumerate() {
        let label = contender.label.as_str();
        let mut points = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(cells, label, row, *size) else { continue };
            let size = size_text(*size);
            numbers.rows.push(numbers_of(entry, [label, &size]));
            let words = format!("{label}, {size}: {}", in_words(entry));
            let point = |ratio| {
                let cost = entry.compared.cost_of(ratio);
                (Point::at(place as f64, cost, words), entry.is_decided())
            };
            points.extend(entry.compared.ratio.filter(|_| entry.percent.is_some()).map(point));
        }
        decided += points.iter().filter(|one| one.1).count();
        all += points.len();
        series.extend(chart::curve(key, points));
    }
    let costs = series.iter().flat_map(|s| &s.points).map(|point| point.y);
    let y = Axis::logarithmic(format!("cost relative to {raw}"), costs.chain([1.0]), plain)
        .filter(|_| all > 0)?;
    let ticks = sizes.iter().enumerate();
    let ticks = ticks.map(|(at, size)| Tick { at: at as f64, text: size_text(*size) }).collect();
    let x = Axis::named("block size", (-0.3, sizes.len() as f64 - 0.7), ticks);
    Some(Chart {
        says: format!("Cost relative to {raw}: above 1 is slower. Decided: {decided} of {all}."),
        height: 280,
        keys: view.keys(),
        signs: chart::undecided_sign(&series),
        series,
        guides: vec![Guide::Level { y: 1.0 }],
        numbers,
        ..Chart::new(
            view.id(&format!("overhead-{index}")),
            format!("Overhead by block size: {row}"),
            x,
            y,
        )
    })
}
