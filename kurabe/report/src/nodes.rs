//! Contenders that several nodes mount: when each node had finished, and what it asked of the shared device.

use lab::analysis::{WorkloadAnalysis, median};
use lab::record::{DeviceDelta, LockCounts, NodeRecord, Record, counted_trials};

use crate::document::Block;
use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::{tables, text};

/// What the table is of, below it.
const EXPLAINED: &str = "Medians of the rounds. The run begins when its first node does, and lasts until the last one has finished. \
     Rates, counts and bytes of a contender are those of all its nodes together; percentiles are of all their operations.";

/// The nodes of a workload's contenders; nothing where each has one.
pub fn blocks(source: &ResultSource, workload: &WorkloadAnalysis) -> Vec<Block> {
    let mut table = Table::new(&[
        "contender",
        "node",
        "began",
        "finished",
        "run",
        "sync",
        "written",
        "flushes",
        "lock requests",
        "lock revocations",
    ]);
    for contender in tables::ranked(workload) {
        let records: Vec<&Record> =
            counted_trials(&source.records, &workload.workload, &contender.label).collect();
        let count = records.iter().map(|record| record.nodes.len()).min().unwrap_or(0);
        for place in 0..count {
            let figure = |read: &dyn Fn(&NodeRecord) -> Option<f64>| {
                median(records.iter().filter_map(|record| read(&record.nodes[place])))
            };
            let ns = |read: fn(&NodeRecord) -> u64| {
                Cell::maybe(figure(&|node| Some(read(node) as f64)), text::time)
            };
            let device = |read: fn(&DeviceDelta) -> u64| {
                figure(&|node| node.device.as_ref().map(|device| read(device) as f64))
            };
            let locks = |read: fn(&LockCounts) -> u64| {
                let count = figure(&|node| node.locks.as_ref().map(|locks| read(locks) as f64));
                Cell::maybe(count, text::count)
            };
            table.rows.push(vec![
                contender.label.as_str().into(),
                Cell::whole(place as u64 + 1),
                ns(|node| node.began_ns),
                ns(NodeRecord::finished_ns),
                ns(|node| node.run_ns),
                ns(|node| node.sync_ns),
                Cell::maybe(device(|device| device.written_bytes), text::bytes),
                Cell::maybe(device(|device| device.flushes), text::count),
                locks(|locks| locks.requests),
                locks(|locks| locks.revocations),
            ]);
        }
        if count > 0 {
            let end = |choose: fn(u64, u64) -> u64| {
                let of = |record: &&Record| {
                    let finished = record.nodes.iter().map(NodeRecord::finished_ns);
                    finished.reduce(choose).map(|ns| ns as f64)
                };
                Cell::maybe(median(records.iter().filter_map(of)), text::time)
            };
            for (name, end) in [("first", end(u64::min)), ("last", end(u64::max))] {
                let mut row: Vec<Cell> = vec![contender.label.as_str().into(), name.into()];
                row.extend(["-".into(), end]);
                row.resize(table.heads.len(), "-".into());
                table.rows.push(row);
            }
        }
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    vec![Block::table("When each node had finished", table), Block::Text(EXPLAINED.into())]
}
