//! The fio matrix: what each cell costs relative to the bare device. As a map and as curves by block size, as the
//! flash study drew it.

use std::collections::BTreeSet;

use lab::analysis::{Comparison, WorkloadAnalysis};
use lab::quantity::size_text;
use lab::statistics::BOUND_MAX;
use lab::words::{ratio, ratio_with_interval};
use lab::workload::{Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, OPERATION_AXIS};

use super::WorkloadView;
use crate::chart::{self, Axis, Chart, Guide, Point, Tick};
use crate::heat::{HeatCell, HeatMap};
use crate::quotient::too_few_explained;
use crate::svg::SvgDestination;
use crate::table::{Cell, Table};
use crate::text::{counted, distinct, plain};

/// A contender against the bare device in a cell.
struct Against<'a> {
    compared: &'a Comparison,
    /// What its row is called.
    row: String,
    size_bytes: u64,
    /// The cost, and the ends of its interval. None of single rounds: one busy moment would make it anything.
    cost: Option<(f64, (f64, f64))>,
}

impl Against<'_> {
    /// Whether the interval leaves no doubt that the cell differs from the bare device's.
    fn is_decided(&self) -> bool {
        self.cost.is_some_and(|(_, (low, high))| low > 1.0 || high < 1.0)
    }

    /// How far from 1 the cost is at most, in whole percent, where that is no more than [`BOUND_MAX`].
    fn bound(&self) -> Option<f64> {
        let (_, (low, high)) = self.cost?;
        let most = (100.0 * (high - 1.0).max(low.recip() - 1.0)).ceil();
        (most <= 100.0 * BOUND_MAX).then_some(most)
    }

    /// Whether it says nothing.
    fn is_open(&self) -> bool {
        !self.is_decided() && self.bound().is_none()
    }
}

/// The cells of all contenders; none for another workload, and where the bare device is no contender.
fn matrix(workload: &WorkloadAnalysis) -> Vec<Against<'_>> {
    let cells = workload.overhead.iter().filter_map(|compared| {
        let axes = workload.axes(&compared.metric)?;
        let size_bytes = axes.get(BLOCK_SIZE_AXIS)?.parse().ok()?;
        let cost = compared.cost().zip(compared.cost_ends());
        Some(Against { compared, row: row_name(axes), size_bytes, cost })
    });
    cells.collect()
}

/// The block sizes, from the smallest.
fn sizes(cells: &[Against<'_>]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = cells.iter().map(|one| one.size_bytes).collect();
    sizes.into_iter().collect()
}

fn of_contender<'a>(
    cells: &'a [Against<'a>],
    label: &str,
) -> impl Iterator<Item = &'a Against<'a>> {
    cells.iter().filter(move |one| one.compared.contender == label)
}

fn cell_at<'a>(
    cells: &'a [Against<'a>],
    label: &str,
    row: &str,
    size: u64,
) -> Option<&'a Against<'a>> {
    of_contender(cells, label).find(|one| one.size_bytes == size && one.row == row)
}

/// The maps, one a contender, or one with a column for each contender where there is one block size;
/// none for another workload.
pub fn maps(view: &WorkloadView<'_>) -> Vec<HeatMap> {
    let cells = matrix(view.analysis);
    let Some(raw) = cells.first().map(|one| &one.compared.baseline) else { return Vec::new() };
    let labels = distinct(cells.iter().map(|one| one.compared.contender.as_str()));
    let sizes = sizes(&cells);
    if let [size] = sizes[..] {
        let columns: Vec<Column<'_>> =
            labels.iter().map(|label| (label.to_string(), *label, size)).collect();
        let title = format!("Cost relative to {raw}: blocks of {}", size_text(size));
        let said = labels.iter().map(|label| format!("{label}: {}", summary(&cells, label)));
        let says = said.collect::<Vec<_>>().join(" ");
        return vec![map(view.id("map-0"), [title, says], "contender", &cells, columns)];
    }
    let of_label = |(index, label): (usize, &&str)| {
        let columns = sizes.iter().map(|size| (size_text(*size), *label, *size)).collect();
        let title = format!("Cost of {label} relative to {raw}");
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
    all: &[Against<'_>],
    columns: Vec<Column<'_>>,
) -> HeatMap {
    let raw = &all[0].compared.baseline;
    let rows = distinct(all.iter().map(|one| one.row.clone()));
    let mut numbers = Table::new(&["cell", column_title, "cost", "from", "to", "rounds"]);
    let mut cells = Vec::new();
    for row in &rows {
        let mut line = Vec::new();
        for (head, label, size) in &columns {
            line.push(cell_at(all, label, row, *size).map(|entry| {
                numbers.rows.push(numbers_of(entry, [row, head]));
                HeatCell {
                    cost: entry.cost.map_or(1.0, |(cost, _)| cost),
                    text: match (entry.cost.filter(|_| entry.is_decided()), entry.bound()) {
                        (Some((cost, _)), _) => ratio(cost),
                        (None, Some(bound)) => format!("±{bound:.0} %"),
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
        signs: (format!("slower than {raw}"), format!("faster than {raw}")),
        numbers,
    }
}

/// `cost 1.140 (1.112 to 1.170) relative to raw, 5 rounds`.
fn in_words(entry: &Against<'_>) -> String {
    let Some((cost, ends)) = entry.cost else {
        return format!("not shown: {}", too_few_explained());
    };
    let decided = if entry.is_open() { ", inconclusive" } else { "" };
    let rounds = counted(entry.compared.blocks, "round");
    let cost = ratio_with_interval(cost, Some(ends));
    format!("cost {cost} relative to {}, {rounds}{decided}", entry.compared.baseline)
}

/// The highest and the lowest cost of a contender that is certain, and how many cells are decided at all.
fn summary(all: &[Against<'_>], label: &str) -> String {
    let decided = || of_contender(all, label).filter(|one| one.is_decided());
    let known = || decided().filter_map(|one| Some((one.cost?.0, one)));
    let by_cost = |one: &(f64, _), other: &(f64, _)| one.0.total_cmp(&other.0);
    let ends = [
        ("highest cost", known().max_by(by_cost).filter(|(cost, _)| *cost > 1.0)),
        ("lowest cost", known().min_by(by_cost).filter(|(cost, _)| *cost < 1.0)),
    ];
    let (some, all) = (decided().count(), of_contender(all, label).count());
    let mut said = format!("Decided: {some} of {all} cells");
    for (name, (cost, entry)) in ends.into_iter().filter_map(|(name, end)| Some((name, end?))) {
        let size = size_text(entry.size_bytes);
        said.push_str(&format!("; {name}: {} ({}, {size})", ratio(cost), entry.row));
    }
    said + "."
}

/// A row of a table: where a cell lies, its cost with the interval, and its rounds.
fn numbers_of(entry: &Against<'_>, heads: [&str; 2]) -> Vec<Cell> {
    let numbers = entry.cost.map(|(cost, (low, high))| [cost, low, high]);
    let numbers = [0, 1, 2].map(|place| Cell::maybe(numbers.map(|all| all[place]), ratio));
    let rounds = Cell::whole(entry.compared.blocks as u64);
    heads.map(Cell::from).into_iter().chain(numbers).chain([rounds]).collect()
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
        "Cost relative to {raw}, 95 % confidence for each cell; ±9 %: not more than 9 % apart; ?: inconclusive ({open} of {} cells).",
        cells.len()
    )
}

/// The maps as pictures of their own: names of files, and SVG.
pub fn pictures(view: &WorkloadView<'_>) -> Vec<(String, String)> {
    let maps = maps(view).into_iter();
    maps.map(|map| (format!("{}.svg", map.id), map.draw(SvgDestination::File))).collect()
}

/// The curves: one chart for each pattern and queue, how fast by block size.
pub fn curves(view: &WorkloadView<'_>) -> Vec<Chart> {
    let cells = matrix(view.analysis);
    let (rows, sizes) = (distinct(cells.iter().map(|one| one.row.as_str())), sizes(&cells));
    if sizes.len() < 2 {
        return Vec::new();
    }
    let rows = rows.iter().enumerate();
    rows.filter_map(|(index, row)| curve(view, &cells, &sizes, row, index)).collect()
}

fn curve(
    view: &WorkloadView<'_>,
    cells: &[Against<'_>],
    sizes: &[u64],
    row: &str,
    index: usize,
) -> Option<Chart> {
    let raw = &cells.first()?.compared.baseline;
    let (mut series, mut decided, mut all) = (Vec::new(), 0, 0);
    let mut numbers = Table::new(&["contender", "block size", "cost", "from", "to", "rounds"]);
    for (key, contender) in view.analysis.contenders.iter().enumerate() {
        let label = contender.label.as_str();
        let mut points = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let Some(entry) = cell_at(cells, label, row, *size) else { continue };
            let size = size_text(*size);
            numbers.rows.push(numbers_of(entry, [label, &size]));
            let words = format!("{label}, {size}: {}", in_words(entry));
            let point = |(cost, _)| (Point::at(place as f64, cost, words), entry.is_decided());
            points.extend(entry.cost.map(point));
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
