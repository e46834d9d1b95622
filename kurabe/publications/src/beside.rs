//! A published table with, below each of its rows, what was measured here. Contenders that the
//! publication has not follow as further columns or rows.

use lab::judgement::Measurements;
use lab::plan::Plan;
use lab::study::Study;
use lab::words;
use report::document::Block;
use report::table::{Cell, Table, Tone};

use crate::measured::{baseline_of, measure};
use crate::picture;
use crate::table::{self, Figure, Published, PublishedRow, PublishedUnit, Reference, Statistic};

/// A table with its heading, notes and pictures.
pub fn blocks(
    result: Measurements<'_>,
    published: &Published,
    index: usize,
    study: &Study,
) -> Vec<Block> {
    let id = format!("published-{}", index + 1);
    let mut blocks = vec![Block::heading(3, id.as_str(), published.title.as_str())];
    let own = published.source.clone().filter(|source| study.source.as_ref() != Some(source));
    blocks.extend(own.map(Block::Text));
    let table = beside(result, published);
    if !table.rows.is_empty() {
        blocks.push(Block::table(published.title.as_str(), table));
    }
    blocks.extend(published.note.clone().map(Block::Note));
    blocks.extend(picture::charts(result, published, &id).into_iter().map(Block::Chart));
    blocks
}

/// Along what the contenders of a table lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Each column has one of its own.
    Columns,
    /// Each row has one of its own.
    Rows,
    /// The whole table is of one contender, or they are mixed.
    Neither,
}

/// Along what the contenders of a table lie: where every line has one contender of its own, and
/// the lines have several, or some line has none.
pub fn along(table: &Published) -> Along {
    let contenders = |cells: &mut dyn Iterator<Item = &table::PublishedCell>| {
        words::distinct(cells.flat_map(|cell| &cell.here).map(|one| one.contender.clone()))
    };
    let told_apart = |lines: Vec<Vec<String>>| {
        let named: Vec<&Vec<String>> = lines.iter().filter(|line| !line.is_empty()).collect();
        let single = named.iter().all(|line| line.len() == 1);
        let several = named.iter().any(|line| *line != named[0]) || named.len() < lines.len();
        !named.is_empty() && single && several
    };
    let column = |column: usize| contenders(&mut table.rows.iter().map(|row| &row.cells[column]));
    let rows = table.rows.iter().map(|row| contenders(&mut row.cells.iter())).collect();
    match (told_apart((0..table.columns.len()).map(column).collect()), told_apart(rows)) {
        (true, _) => Along::Columns,
        (_, true) => Along::Rows,
        _ => Along::Neither,
    }
}

/// Labels of the contenders that no cell of the table names.
pub fn unnamed<'a>(table: &Published, plan: &'a Plan) -> Vec<&'a str> {
    let cells = || table.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.here);
    let labels = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    labels.filter(|label| !cells().any(|reference| reference.contender == *label)).collect()
}

/// The same figure of another contender; none for what the baseline is to itself.
pub fn of_contender(
    result: Measurements<'_>,
    reference: &Reference,
    label: &str,
) -> Option<Reference> {
    let other = Reference { contender: label.to_string(), ..reference.clone() };
    let is_comparison = matches!(other.statistic, Statistic::Ratio | Statistic::Cost);
    (!is_comparison || baseline_of(result, &other) != label).then_some(other)
}

/// The unit that all cells share, when they do.
fn common_unit<'a>(cells: impl Iterator<Item = &'a table::PublishedCell>) -> Option<PublishedUnit> {
    let mut units = cells.filter(|c| !(c.text.is_empty() && c.here.is_empty())).map(|c| c.unit);
    let first = units.next()??;
    units.all(|unit| unit == Some(first)).then_some(first)
}

/// What is asked for a cell: a figure, and the unit of what was published.
type Wanted = Option<(Reference, Option<PublishedUnit>)>;

fn beside(result: Measurements<'_>, published: &Published) -> Table {
    let along = along(published);
    let others = if along == Along::Neither { Vec::new() } else { unnamed(published, result.plan) };
    let in_columns = if along == Along::Columns { others.as_slice() } else { &[] };
    let shared = common_unit(published.rows.iter().flat_map(|row| &row.cells));
    let mut heads = vec![shared.map_or(String::new(), |unit| format!("in {}", unit.name))];
    heads.extend(published.columns.iter().cloned());
    heads.extend(in_columns.iter().map(|label| label.to_string()));
    let width = heads.len();
    let mut table = Table { heads, rows: Vec::new() };
    let has_counterparts =
        published.rows.iter().flat_map(|row| &row.cells).any(|cell| !cell.here.is_empty());
    for row in &published.rows {
        // A row of which nothing was published has a head, and nothing to say.
        let is_published = row.cells.iter().any(|cell| !cell.text.is_empty());
        if is_published {
            table.rows.push(published_row(row, shared.is_none(), has_counterparts, width));
        }
        let head = if is_published { "  here".into() } else { format!("{}, here", row.head) };
        for layer in 0..layers(row) {
            let of_cell =
                |cell: &table::PublishedCell| Some((cell.here.get(layer)?.clone(), cell.unit));
            let mut wanted: Vec<Wanted> = row.cells.iter().map(of_cell).collect();
            let first = wanted.iter().flatten().next().cloned();
            for label in in_columns {
                let first = first.as_ref();
                wanted.push(
                    first.and_then(|(one, unit)| Some((of_contender(result, one, label)?, *unit))),
                );
            }
            let head = format!("{head}{}", layer_name(row, layer));
            table.rows.extend(measured_row(result, head, &wanted));
        }
    }
    if along == Along::Rows {
        table.rows.extend(rows_of_others(result, published, &others));
    }
    table.without_empty_columns()
}

/// How many counterparts a cell of the row has at most: one a workload.
fn layers(row: &PublishedRow) -> usize {
    row.cells.iter().map(|cell| cell.here.len()).max().unwrap_or(0)
}

/// The workload of a layer, where cells have several counterparts.
fn layer_name(row: &PublishedRow, layer: usize) -> String {
    let several = row.cells.iter().find(|cell| cell.here.len() > 1);
    let here = several.and_then(|cell| cell.here.get(layer));
    here.map(|reference| format!(", {}", reference.workload)).unwrap_or_default()
}

fn published_row(
    row: &PublishedRow,
    with_unit: bool,
    has_counterparts: bool,
    width: usize,
) -> Vec<Cell> {
    let mut head = row.head.clone();
    if let (true, Some(unit)) = (with_unit, common_unit(row.cells.iter())) {
        head.push_str(&format!(", {}", unit.name));
    }
    if has_counterparts && row.cells.iter().all(|cell| cell.here.is_empty()) {
        head.push_str(" (published only)");
    }
    let mut cells: Vec<Cell> = vec![head.into()];
    cells.extend(row.cells.iter().map(|cell| match cell.text.as_str() {
        "" => Cell::from("-"),
        text => Cell::from(text).valued(text.parse().ok()),
    }));
    cells.resize(width, "-".into());
    cells
}

/// A row of what was measured; none where nothing was.
fn measured_row(result: Measurements<'_>, head: String, wanted: &[Wanted]) -> Option<Vec<Cell>> {
    let cell = |wanted: &Wanted| {
        let (reference, unit) = wanted.as_ref()?;
        match measure(result, reference) {
            Some(measured) => {
                // It breaks before its interval and not in it.
                let text = measured.words(*unit).replace(", ", ",\u{a0}");
                let value = measured.in_unit(*unit).unwrap_or(measured).value;
                Some(Cell::number(value, text))
            }
            None => is_withheld(result, reference).then(|| Cell::toned("?", Tone::Uncertain)),
        }
    };
    let cells: Vec<Option<Cell>> = wanted.iter().map(cell).collect();
    cells.iter().any(Option::is_some).then(|| {
        let cells = cells.into_iter().map(|cell| cell.unwrap_or("-".into()));
        std::iter::once(Cell::toned(head, Tone::Strong)).chain(cells).collect()
    })
}

/// Whether there are the figures of both sides of a comparison, and fewer blocks than it takes.
fn is_withheld(result: Measurements<'_>, reference: &Reference) -> bool {
    let has = |label: &str| {
        let statistic = Statistic::Value;
        let contender = label.to_string();
        measure(result, &Reference { statistic, contender, ..reference.clone() }).is_some()
    };
    matches!(reference.statistic, Statistic::Ratio | Statistic::Cost)
        && has(&reference.contender)
        && has(baseline_of(result, reference))
}

/// Rows of the contenders that the publication has not: as many for each as the first contender
/// with a counterpart has.
fn rows_of_others(
    result: Measurements<'_>,
    published: &Published,
    others: &[&str],
) -> Vec<Vec<Cell>> {
    let contender = |row: &PublishedRow| {
        row.cells.iter().flat_map(|cell| &cell.here).map(|r| r.contender.clone()).next()
    };
    let Some(first) = published.rows.iter().find_map(contender) else { return Vec::new() };
    let pattern = published.rows.iter().filter(|row| contender(row).as_ref() == Some(&first));
    let pattern: Vec<&PublishedRow> = pattern.collect();
    let mut rows = Vec::new();
    for label in others {
        for row in &pattern {
            // What tells the rows of one contender apart stands in their heads.
            let figures = row.cells.iter().flat_map(|cell| &cell.here);
            let what = figures.map(|reference| &reference.figure).find_map(|figure| match figure {
                Figure::Operation(name) => Some(format!(" {name}")),
                Figure::Detail(_) => Some(format!(",{}", row.head.split_once(',')?.1)),
                _ => None,
            });
            for layer in 0..layers(row) {
                let of_cell = |cell: &table::PublishedCell| {
                    Some((of_contender(result, cell.here.get(layer)?, label)?, cell.unit))
                };
                let wanted: Vec<Wanted> = row.cells.iter().map(of_cell).collect();
                let what = what.as_deref().unwrap_or_default();
                let head = format!("  here: {label}{what}{}", layer_name(row, layer));
                rows.extend(measured_row(result, head, &wanted));
            }
        }
    }
    rows
}
