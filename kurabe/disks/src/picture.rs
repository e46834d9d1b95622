//! A trace as a picture: where the head would have been asked to go over time, how large requests were,
//! how far apart, how long in order. Of a size that does not grow with the trace.

use serde_json::{Value, json};

use crate::{Operation, Request};

/// Columns of time. When they are full, two become one.
const COLUMNS: usize = 240;
/// Rows of position.
const ROWS: usize = 96;
/// The width of a column at first.
const COLUMN_NS: u64 = 1_000_000;
/// Powers of two that are told apart.
const POWERS: usize = 48;

/// What happened in one column.
#[derive(Clone)]
struct Column {
    /// Bytes in each row: read, written.
    rows: Vec<[u64; 2]>,
    flushes: u64,
    requests: u64,
    /// Of all requests, in ns: over the width it is the queue depth.
    outstanding_ns: u64,
}

impl Column {
    fn new() -> Column {
        Column { rows: vec![[0; 2]; ROWS], flushes: 0, requests: 0, outstanding_ns: 0 }
    }

    fn add(&mut self, other: &Column) {
        for (row, more) in self.rows.iter_mut().zip(&other.rows) {
            row[0] += more[0];
            row[1] += more[1];
        }
        self.flushes += other.flushes;
        self.requests += other.requests;
        self.outstanding_ns += other.outstanding_ns;
    }
}

/// The picture.
pub struct Picture {
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
    read_bytes: u64,
    written_bytes: u64,
}

fn power(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).min(POWERS - 1)
}

impl Picture {
    pub fn new(device_bytes: u64) -> Picture {
        Picture {
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
            read_bytes: 0,
            written_bytes: 0,
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

    /// Adds a request.
    pub fn add(&mut self, arrived_ns: u64, replied_ns: u64, request: &Request) {
        let row = (u128::from(request.offset) * ROWS as u128 / u128::from(self.device_bytes.max(1)))
            .min(ROWS as u128 - 1) as usize;
        let column = self.column(arrived_ns);
        column.requests += 1;
        column.outstanding_ns += replied_ns.saturating_sub(arrived_ns);
        let which = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => {
                column.flushes += 1;
                self.flushes += 1;
                return;
            }
            Operation::Discard => {
                self.discards += 1;
                return;
            }
        };
        column.rows[row][which] += request.length;
        if which == 0 {
            self.read_bytes += request.length;
        } else {
            self.written_bytes += request.length;
        }
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
        let cells = |which: usize| -> Vec<[u64; 3]> {
            let columns = self.columns.iter().enumerate();
            columns
                .flat_map(|(x, column)| {
                    let rows = column.rows.iter().enumerate();
                    rows.filter(move |(_, row)| row[which] > 0)
                        .map(move |(y, row)| [x as u64, y as u64, row[which]])
                })
                .collect()
        };
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
            "read": cells(0),
            "written": cells(1),
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
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "mean_distance_bytes": self.distance_bytes / accesses.max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_columns_are_joined() {
        let mut picture = Picture::new(1 << 30);
        for step in 0..10_000_u64 {
            let at = step * 1_000_000;
            picture.add(at, at + 500_000, &Request::write(step * 4096, 4096));
            if step % 10 == 0 {
                picture.add(at, at, &Request::flush());
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
