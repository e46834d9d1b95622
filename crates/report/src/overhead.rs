//! The overhead of the fio matrix as the flash study shows it: one table a contender, a row for
//! each pattern and queue, a column for each block size, in percent of the bare device.

use std::collections::BTreeSet;

use lab::analysis::{CellOverhead, Overhead, WorkloadAnalysis};
use lab::load::MatrixCell;
use lab::quantity::size_text;

use crate::quotient;
use crate::table::{Cell, Table, Tone};
use crate::text::counted;

/// The tables of a workload, one a contender; none where there is no overhead to be told.
pub fn tables(workload: &WorkloadAnalysis) -> Vec<Table> {
    workload.overhead.iter().map(table).collect()
}

fn table(overhead: &Overhead) -> Table {
    let mut sizes = BTreeSet::new();
    let mut rows: Vec<String> = Vec::new();
    for entry in &overhead.cells {
        sizes.insert(entry.cell.block_size_bytes);
        let name = row_name(&entry.cell);
        if !rows.contains(&name) {
            rows.push(name);
        }
    }
    let mut heads = vec![format!("overhead of {}, %", overhead.contender)];
    heads.extend(sizes.iter().map(|bytes| size_text(*bytes)));
    let mut table = Table { heads, rows: Vec::new() };
    for name in rows {
        let mut row: Vec<Cell> = vec![name.as_str().into()];
        for bytes in &sizes {
            let found = overhead.cells.iter().find(|entry| {
                entry.cell.block_size_bytes == *bytes && row_name(&entry.cell) == name
            });
            row.push(found.map_or("-".into(), cell));
        }
        table.rows.push(row);
    }
    table
}

/// `randread, 1 at a time`, `randrw 70/30, queue of 32 (libaio)`.
pub(crate) fn row_name(cell: &MatrixCell) -> String {
    let pattern = cell.pattern.replace("-70-30", " 70/30");
    match cell.depth {
        1 => format!("{pattern}, one by one ({})", cell.engine),
        depth => format!("{pattern}, queue of {depth} ({})", cell.engine),
    }
}

fn cell(entry: &CellOverhead) -> Cell {
    let Some(percent) = entry.percent else {
        return Cell::toned(quotient::UNKNOWN, Tone::Doubtful);
    };
    let text = if percent.abs() < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") };
    match (entry.is_decided(), percent > 0.0) {
        (false, _) => Cell::toned(format!("{text}?"), Tone::Doubtful),
        (true, true) => Cell::toned(text, Tone::Bad),
        (true, false) => Cell::toned(text, Tone::Good),
    }
}

/// What the figures of [`tables`] are.
pub fn explained(workload: &WorkloadAnalysis) -> String {
    let first = workload.overhead.first();
    let raw = first.map_or("raw", |overhead| overhead.raw.as_str());
    let cells = || workload.overhead.iter().flat_map(|overhead| &overhead.cells);
    let blocks = || cells().map(|entry| entry.blocks);
    let (least, most) = (blocks().min().unwrap_or(0), blocks().max().unwrap_or(0));
    let over = match least == most {
        true => counted(most, "block"),
        false => format!("{least} to {most} blocks"),
    };
    let withheld = match cells().any(|entry| entry.percent.is_none()) {
        true => format!("; ? without a number: {}", quotient::too_few_explained()),
        false => String::new(),
    };
    format!(
        "operations a second lost against {raw}, in percent of {raw}'s, paired over {over}; below 0: faster than {raw}; ?: 0 lies within the cell's interval (95 %, corrected for the contenders, in the CSV){withheld}; each cell is taken by itself here, and conclusions that pick one of all cells use wider intervals and say so"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, percent: Option<f64>, interval: Option<(f64, f64)>) -> CellOverhead {
        CellOverhead {
            cell: name.parse().unwrap(),
            blocks: 5,
            percent,
            low_percent: interval.map(|(low, _)| low),
            high_percent: interval.map(|(_, high)| high),
            low_percent_among_all: None,
            high_percent_among_all: None,
        }
    }

    #[test]
    fn patterns_and_queues_are_rows_and_sizes_columns() {
        let overhead = Overhead {
            contender: "ext4".into(),
            raw: "raw".into(),
            cells: vec![
                entry("randread-psync-1-64k", Some(12.34), Some((10.0, 14.0))),
                entry("randread-psync-1-4k", Some(3.21), Some((-1.0, 7.0))),
                entry("randread-psync-1-128k", None, None),
                entry("randrw-70-30-io_uring-32-4k", Some(-20.5), Some((-30.0, -10.0))),
            ],
        };
        assert_eq!(
            &*table(&overhead).terminal(false),
            "  overhead of ext4, %                     4K  64K  128K\n\
             \x20 randread, one by one (psync)          3.2?   12     ?\n\
             \x20 randrw 70/30, queue of 32 (io_uring)   -20    -     -\n"
        );
    }
}
