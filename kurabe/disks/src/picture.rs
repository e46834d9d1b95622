//! A trace as a picture: where the head would have been asked to go over time, how large requests were,
//! how far apart, how long in order. Of a size that does not grow with the trace.

use std::ops::Range;

use serde_json::{Value, json};

use crate::DiskOperation;
use crate::trace::TraceEntry;

/// Columns of time. When they are full, two become one.
const COLUMNS: usize = 240;
const ROWS: usize = 96;
/// The width of a column at first.
const COLUMN_NS: u64 = 1_000_000;
/// Powers of two that are told apart.
const POWERS: usize = 48;

/// What bytes are for; data is also what nothing is known of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Data,
    Metadata,
    Journal,
}

/// Bytes of each purpose: read, written.
type Bytes = [[u64; 2]; 3];

#[derive(Clone)]
struct Column {
    rows: Vec<Bytes>,
    flushes: u64,
    requests: u64,
    /// Of all requests, in ns: over the width it is the queue depth.
    outstanding_ns: u64,
}

impl Column {
    fn new() -> Column {
        Column { rows: vec![[[0; 2]; 3]; ROWS], flushes: 0, requests: 0, outstanding_ns: 0 }
    }

    fn add(&mut self, other: &Column) {
        for (row, more) in self.rows.iter_mut().zip(&other.rows) {
            for (sum, more) in row.as_flattened_mut().iter_mut().zip(more.as_flattened()) {
                *sum += more;
            }
        }
        self.flushes += other.flushes;
        self.requests += other.requests;
        self.outstanding_ns += other.outstanding_ns;
    }
}

pub struct TracePicture {
    device_bytes: u64,
    column_ns: u64,
    columns: Vec<Column>,
    /// By the power of two of their bytes: reads, writes.
    sizes: [[u64; 2]; POWERS],
    /// Distance from the end of the request before to the next one's start; 0 is in order.
    distances: [u64; POWERS],
    /// Lengths of what went on in order, in bytes.
    runs: [u64; POWERS],
    run_bytes: u64,
    last_end: Option<u64>,
    in_order: u64,
    moved: u64,
    distance_bytes: u64,
    flushes: u64,
    discards: u64,
    bytes: Bytes,
    journal: Vec<Range<u64>>,
}

fn power(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).min(POWERS - 1)
}

impl TracePicture {
    /// Of a device of so many bytes, on which the journal lies in these ranges.
    pub fn new(device_bytes: u64, journal: Vec<Range<u64>>) -> TracePicture {
        TracePicture {
            device_bytes,
            column_ns: COLUMN_NS,
            columns: Vec::new(),
            sizes: [[0; 2]; POWERS],
            distances: [0; POWERS],
            runs: [0; POWERS],
            run_bytes: 0,
            last_end: None,
            in_order: 0,
            moved: 0,
            distance_bytes: 0,
            flushes: 0,
            discards: 0,
            bytes: [[0; 2]; 3],
            journal,
        }
    }

    pub fn journal(&self) -> &[Range<u64>] {
        &self.journal
    }

    fn purpose(&self, entry: &TraceEntry) -> Purpose {
        if self.journal.iter().any(|range| range.contains(&entry.request.offset)) {
            Purpose::Journal
        } else if entry.metadata {
            Purpose::Metadata
        } else {
            Purpose::Data
        }
    }

    fn column(&mut self, at_ns: u64) -> &mut Column {
        while (at_ns / self.column_ns) as usize >= COLUMNS {
            self.column_ns *= 2;
            let pairs: Vec<Column> = self
                .columns
                .chunks(2)
                .map(|pair| {
                    let mut sum = pair[0].clone();
                    pair.get(1).inspect(|other| sum.add(other));
                    sum
                })
                .collect();
            self.columns = pairs;
        }
        let at = (at_ns / self.column_ns) as usize;
        if self.columns.len() <= at {
            self.columns.resize_with(at + 1, Column::new);
        }
        &mut self.columns[at]
    }

    pub fn add(&mut self, entry: &TraceEntry) {
        let TraceEntry { arrived_ns, replied_ns, ref request, .. } = *entry;
        let row = (u128::from(request.offset) * ROWS as u128 / u128::from(self.device_bytes.max(1)))
            .min(ROWS as u128 - 1) as usize;
        let purpose = self.purpose(entry) as usize;
        let column = self.column(arrived_ns);
        column.requests += 1;
        column.outstanding_ns += replied_ns.saturating_sub(arrived_ns);
        let which = match request.operation {
            DiskOperation::Read => 0,
            DiskOperation::Write => 1,
            DiskOperation::Flush => {
                column.flushes += 1;
                self.flushes += 1;
                return;
            }
            DiskOperation::Discard => {
                self.discards += 1;
                return;
            }
        };
        column.rows[row][purpose][which] += request.length;
        self.bytes[purpose][which] += request.length;
        self.sizes[power(request.length)][which] += 1;
        let distance = self.last_end.map_or(0, |end| end.abs_diff(request.offset));
        self.distances[power(distance)] += 1;
        self.distance_bytes += distance;
        if distance == 0 {
            self.in_order += 1;
            self.run_bytes += request.length;
        } else {
            self.moved += 1;
            self.runs[power(self.run_bytes)] += 1;
            self.run_bytes = request.length;
        }
        self.last_end = Some(request.end());
    }

    /// As a record keeps it: columns of cells that are not empty.
    pub fn to_json(&self) -> Value {
        let mut runs = self.runs;
        if self.run_bytes > 0 {
            runs[power(self.run_bytes)] += 1;
        }
        let cells = |of: fn(&Bytes) -> u64| -> Vec<[u64; 3]> {
            let columns = self.columns.iter().enumerate();
            columns
                .flat_map(|(x, column)| {
                    let rows = column.rows.iter().map(of).enumerate();
                    rows.filter(|(_, bytes)| *bytes > 0)
                        .map(move |(y, bytes)| [x as u64, y as u64, bytes])
                })
                .collect()
        };
        let sum = |which: usize| self.bytes.iter().map(|bytes| bytes[which]).sum::<u64>();
        let histogram = |counts: &mut dyn Iterator<Item = u64>| -> Vec<[u64; 2]> {
            counts
                .enumerate()
                .filter(|(_, count)| *count > 0)
                .map(|(power, count)| [if power == 0 { 0 } else { 1 << (power - 1) }, count])
                .collect()
        };
        let depth = |column: &Column| column.outstanding_ns as f64 / self.column_ns as f64;
        let accesses = self.in_order + self.moved;
        json!({
            "device_bytes": self.device_bytes,
            "column_ns": self.column_ns,
            "columns": self.columns.len(),
            "rows": ROWS,
            "read": cells(|bytes| bytes[Purpose::Data as usize][0]),
            "written": cells(|bytes| bytes[Purpose::Data as usize][1]),
            "metadata": cells(|bytes| bytes[Purpose::Metadata as usize].iter().sum()),
            "journal": cells(|bytes| bytes[Purpose::Journal as usize].iter().sum()),
            "queue_depth": self.columns.iter().map(|one| (depth(one) * 100.0).round() / 100.0).collect::<Vec<_>>(),
            "flushes_over_time": self.columns.iter().map(|one| one.flushes).collect::<Vec<_>>(),
            "read_sizes": histogram(&mut self.sizes.iter().map(|size| size[0])),
            "write_sizes": histogram(&mut self.sizes.iter().map(|size| size[1])),
            "distances": histogram(&mut self.distances.iter().copied()),
            "runs": histogram(&mut runs.iter().copied()),
            "requests": accesses + self.flushes + self.discards,
            "in_order": self.in_order,
            "flushes": self.flushes,
            "discards": self.discards,
            "read_bytes": sum(0),
            "written_bytes": sum(1),
            "metadata_bytes": self.bytes[Purpose::Metadata as usize],
            "journal_bytes": self.bytes[Purpose::Journal as usize],
            "mean_distance_bytes": self.distance_bytes / accesses.max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelRequest;

    fn entry(arrived_ns: u64, replied_ns: u64, request: ModelRequest) -> TraceEntry {
        TraceEntry { arrived_ns, replied_ns, request, metadata: false }
    }

    #[test]
    fn what_bytes_are_for_is_told_apart() {
        let journal = 1 << 20..2 << 20;
        let mut picture = TracePicture::new(1 << 30, Vec::from([journal]));
        picture.add(&entry(0, 1, ModelRequest::write(0, 4096)));
        picture.add(&TraceEntry { metadata: true, ..entry(1, 2, ModelRequest::read(8192, 512)) });
        // The journal is metadata too, where the kernel says anything.
        picture
            .add(&TraceEntry { metadata: true, ..entry(2, 3, ModelRequest::write(1 << 20, 1024)) });
        let json = picture.to_json();
        assert_eq!((&json["read_bytes"], &json["written_bytes"]), (&json!(512), &json!(5120)));
        assert_eq!(json["written"], json!([[0, 0, 4096]]));
        assert_eq!(
            (&json["metadata_bytes"], &json["metadata"]),
            (&json!([512, 0]), &json!([[0, 0, 512]]))
        );
        assert_eq!(
            (&json["journal_bytes"], &json["journal"]),
            (&json!([0, 1024]), &json!([[0, 0, 1024]]))
        );
    }

    #[test]
    fn nothing_is_lost_when_columns_are_joined() {
        let mut picture = TracePicture::new(1 << 30, Vec::new());
        for step in 0..10_000_u64 {
            let at = step * 1_000_000;
            picture.add(&entry(at, at + 500_000, ModelRequest::write(step * 4096, 4096)));
            if step % 10 == 0 {
                picture.add(&entry(at, at, ModelRequest::flush()));
            }
        }
        let json = picture.to_json();
        let cells = json["written"].as_array().unwrap();
        let sum: u64 = cells.iter().map(|cell| cell[2].as_u64().unwrap()).sum();
        assert_eq!(sum, 10_000 * 4096);
        assert!(json["columns"].as_u64().unwrap() <= COLUMNS as u64);
        let flushes = json["flushes_over_time"].as_array().unwrap();
        assert_eq!(flushes.iter().map(|one| one.as_u64().unwrap()).sum::<u64>(), 1000);
        assert_eq!(json["in_order"], 10_000);
        assert_eq!(json["runs"], json!([[1 << 25, 1]]));
        let depth = json["queue_depth"][0].as_f64().unwrap();
        assert!((depth - 0.5).abs() < 0.01, "{depth}");
    }
}
