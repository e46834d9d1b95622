//! Where requests went on a device that was traced or modelled: position over time, one picture for each contender on equal axes, with a
//! table of how each used the disk, and a sentence that says whether they used it alike.

use std::collections::BTreeMap;

use lab::record::Record;
use lab::workload::Unit;
use serde::Deserialize;

use super::{WorkloadView, scale_of};
use crate::chart::{Axis, Chart, ChartSeries, LegendEntry, Point, SeriesStyle};
use crate::table::{Cell, Table};
use crate::text;

/// Places that a picture tells apart, in time and in position.
const COLUMNS: u64 = 120;
const ROWS: u64 = 48;
/// Points of a picture, those with the most bytes.
const POINTS_MAX: usize = 1200;

/// Contenders use a disk alike up to these differences: points of the share in order, and factors.
const ORDER_MAX: f64 = 0.1;
const DISTANCE_MAX: f64 = 1.5;
const BYTES_MAX: f64 = 1.2;

/// What a record has of one modelled disk.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Picture {
    device_bytes: u64,
    column_ns: u64,
    columns: u64,
    rows: u64,
    /// Column, row, bytes.
    read: Vec<[u64; 3]>,
    written: Vec<[u64; 3]>,
    /// Neither of both, where that is known.
    metadata: Vec<[u64; 3]>,
    journal: Vec<[u64; 3]>,
    queue_depth: Vec<f64>,
    read_sizes: Vec<[u64; 2]>,
    write_sizes: Vec<[u64; 2]>,
    distances: Vec<[u64; 2]>,
    runs: Vec<[u64; 2]>,
    in_order: u64,
    flushes: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Read and written.
    metadata_bytes: [u64; 2],
    journal_bytes: [u64; 2],
    mean_distance_bytes: u64,
}

impl Picture {
    /// Reads and writes.
    fn accesses(&self) -> u64 {
        self.distances.iter().fold(0, |sum, [_, count]| sum.saturating_add(*count))
    }

    fn order(&self) -> f64 {
        self.in_order as f64 / self.accesses().max(1) as f64
    }

    fn bytes(&self) -> f64 {
        self.read_bytes as f64 + self.written_bytes as f64
    }

    /// What was read and written of a kind, where kinds were told apart.
    fn known_bytes(&self, [read, written]: [u64; 2]) -> Option<u64> {
        let parts = self.metadata_bytes.iter().chain(&self.journal_bytes);
        parts.into_iter().any(|bytes| *bytes > 0).then(|| read.saturating_add(written))
    }

    fn length_ns(&self) -> f64 {
        self.column_ns as f64 * self.columns as f64
    }

    fn depth(&self) -> Option<f64> {
        let busy: Vec<f64> = self
            .queue_depth
            .iter()
            .copied()
            .filter(|depth| *depth > 0.0 && depth.is_finite())
            .collect();
        (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
    }
}

/// The power of two above which half of what was counted lies.
fn median(counts: &[[u64; 2]]) -> Option<u64> {
    let all = counts.iter().fold(0_u64, |sum, [_, count]| sum.saturating_add(*count));
    let mut before = 0_u64;
    let middle = counts.iter().find(|[_, count]| {
        before = before.saturating_add(*count);
        before >= all.div_ceil(2)
    });
    middle.map(|[value, _]| *value)
}

/// What was traced; else what a modelled disk saw, which is not told what is metadata.
fn picture_of(record: &Record) -> Option<&serde_json::Value> {
    let traced = record.trace.as_ref().map(|trace| &trace.picture);
    traced.or_else(|| record.disks.last().map(|disk| &disk.picture))
}

/// The first record of each contender that has a picture: its place, its label, and the picture.
fn pictures<'a>(view: &WorkloadView<'a>) -> Vec<(usize, &'a str, Picture)> {
    let found = view.ranked().into_iter().filter_map(|place| {
        let contender = &view.analysis.contenders[place];
        let mut records = view.source.records.iter().filter(|record| {
            record.workload == view.analysis.workload && record.contender.label == contender.label
        });
        let picture = records.find_map(picture_of)?;
        let picture = Picture::deserialize(picture).ok()?;
        let is_sound = picture.device_bytes > 0 && picture.rows > 0 && picture.length_ns() > 0.0;
        (is_sound && picture.accesses() > 0).then_some((place, contender.label.as_str(), picture))
    });
    found.collect()
}

/// The pictures, on equal axes.
pub fn charts(view: &WorkloadView<'_>) -> Vec<Chart> {
    let pictures = pictures(view);
    let end_ns = pictures.iter().map(|(.., one)| one.length_ns()).fold(0.0, f64::max);
    let end_bytes = pictures.iter().map(|(.., one)| one.device_bytes).max().unwrap_or(0) as f64;
    let charts = pictures.iter().map(|(place, label, one)| {
        picture(view.id(&format!("position-{}", place + 1)), label, one, end_ns, end_bytes)
    });
    charts.collect()
}

fn picture(id: String, label: &str, one: &Picture, end_ns: f64, end_bytes: f64) -> Chart {
    let (time, second) = scale_of(Unit::Nanoseconds, end_ns);
    let (size, unit) = scale_of(Unit::Bytes, end_bytes);
    let kinds = [
        ("read", &one.read),
        ("written", &one.written),
        ("of metadata", &one.metadata),
        ("of the journal", &one.journal),
    ];
    let is_shown = |style: usize| style < 2 || !kinds[style].1.is_empty();
    let series = kinds.into_iter().enumerate().filter(|(style, _)| is_shown(*style));
    let series = series.map(|(key, (what, cells))| {
        let mut sums: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for [column, row, bytes] in cells {
            let x = column.min(&one.columns) * COLUMNS / one.columns.max(COLUMNS);
            let y = row.min(&one.rows) * ROWS / one.rows.max(ROWS);
            let sum = sums.entry((x, y)).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(at, bytes)| (std::cmp::Reverse(*bytes), *at));
        sums.truncate(POINTS_MAX);
        let (wide, high) = (one.columns.min(COLUMNS) as f64, one.rows.min(ROWS) as f64);
        let points = sums.into_iter().map(|((x, y), bytes)| {
            let at = (x as f64 + 0.5) / wide * one.length_ns() / second;
            let position = (y as f64 + 0.5) / high * one.device_bytes as f64 / unit;
            let bytes = text::bytes(bytes as f64);
            Point::at(
                at,
                position,
                format!("{label}: {bytes} {what} at {at:.2} {time}, {position:.2} {size}"),
            )
        });
        ChartSeries { key, mark: SeriesStyle::Dots, points: points.collect() }
    });
    let names = ["read", "written", "metadata", "journal"];
    let keys = names.into_iter().enumerate().filter(|(style, _)| is_shown(*style));
    let share = one.order() * 100.0;
    Chart {
        says: format!(
            "{} read and {} written in {} requests; {share:.0} % of them began where the one before ended, the mean distance was {}, and there were {}.",
            text::bytes(one.read_bytes as f64),
            text::bytes(one.written_bytes as f64),
            text::count(one.accesses() as f64),
            text::bytes(one.mean_distance_bytes as f64),
            text::counted(one.flushes as usize, "flush request"),
        ),
        keys: keys
            .map(|(style, name)| LegendEntry { name: name.into(), style, group: "access" })
            .collect(),
        series: series.collect(),
        numbers: histograms(one),
        ..Chart::new(
            id,
            format!("Where requests went: {label}"),
            Axis::from_zero(format!("time, {time}"), std::iter::once(end_ns / second)),
            Axis::from_zero(format!("position, {size}"), std::iter::once(end_bytes / unit)),
        )
    }
}

/// Sizes, distances and runs by powers of two.
fn histograms(one: &Picture) -> Table {
    let mut table = Table::new(&["from", "reads", "writes", "distances", "runs in order"]);
    let parts = [&one.read_sizes, &one.write_sizes, &one.distances, &one.runs];
    let mut rows: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
    for (place, counts) in parts.into_iter().enumerate() {
        for [from, count] in counts {
            rows.entry(*from).or_default()[place] = *count;
        }
    }
    for (from, counts) in rows {
        let from = Cell::number(from as f64, text::bytes(from as f64));
        table.rows.push(std::iter::once(from).chain(counts.map(Cell::whole)).collect());
    }
    table
}

/// How each contender used the disk. None where none was traced or modelled.
pub fn table(view: &WorkloadView<'_>) -> Option<Table> {
    let pictures = pictures(view);
    let mut table = Table::new(&[
        "contender",
        "requests",
        "read",
        "written",
        "metadata",
        "journal",
        "flushes",
        "in order",
        "mean distance",
        "median run",
        "median read",
        "median write",
        "queue depth",
    ]);
    let bytes = |value: Option<u64>| Cell::maybe(value.map(|value| value as f64), text::bytes);
    for (_, label, one) in &pictures {
        table.rows.push(vec![
            (*label).into(),
            Cell::whole(one.accesses()),
            bytes(Some(one.read_bytes)),
            bytes(Some(one.written_bytes)),
            bytes(one.known_bytes(one.metadata_bytes)),
            bytes(one.known_bytes(one.journal_bytes)),
            Cell::whole(one.flushes),
            Cell::number(one.order(), format!("{:.0} %", one.order() * 100.0)),
            bytes(Some(one.mean_distance_bytes)),
            bytes(median(&one.runs)),
            bytes(median(&one.read_sizes)),
            bytes(median(&one.write_sizes)),
            Cell::maybe(one.depth(), |depth| format!("{depth:.1}")),
        ]);
    }
    (!pictures.is_empty()).then_some(table)
}

/// Whether the contenders used the disk alike. None of fewer than two.
pub fn fairness(view: &WorkloadView<'_>) -> Option<String> {
    let pictures: Vec<Picture> = pictures(view).into_iter().map(|(.., one)| one).collect();
    (pictures.len() > 1).then(|| say_alike(&pictures))
}

fn say_alike(pictures: &[Picture]) -> String {
    let ends = |of: &dyn Fn(&Picture) -> f64| {
        let values = pictures.iter().map(of);
        values.fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let order = ends(&Picture::order);
    let distance = ends(&|one| one.mean_distance_bytes as f64);
    let bytes = ends(&Picture::bytes);
    let factor = |(low, high): (f64, f64)| high / low.max(1.0);
    let mut differ = Vec::new();
    if order.1 - order.0 > ORDER_MAX {
        differ.push("the share of requests in order");
    }
    if factor(distance) > DISTANCE_MAX {
        differ.push("the distance between requests");
    }
    if factor(bytes) > BYTES_MAX {
        differ.push("the bytes");
    }
    let verdict = match differ.as_slice() {
        [] => "The contenders used the disk alike".to_string(),
        differ => format!(
            "The contenders did not use the disk alike; what differs is {}, and part of their costs comes from that",
            differ.join(" and ")
        ),
    };
    format!(
        "{verdict}: {:.0} to {:.0} % of requests in order, a mean distance of {} to {}, and {} to {} moved.",
        order.0 * 100.0,
        order.1 * 100.0,
        text::bytes(distance.0),
        text::bytes(distance.1),
        text::bytes(bytes.0),
        text::bytes(bytes.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(in_order: u64, mean_distance_bytes: u64, written_bytes: u64) -> Picture {
        Picture {
            device_bytes: 1 << 30,
            column_ns: 1_000_000,
            columns: 240,
            rows: 96,
            written: (0..240).map(|at| [at, at % 96, 4096]).collect(),
            distances: vec![[0, in_order], [4096, 100 - in_order]],
            in_order,
            mean_distance_bytes,
            written_bytes,
            ..Picture::default()
        }
    }

    #[test]
    fn what_differs_is_named_and_nothing_else() {
        let said = say_alike(&[of(80, 1 << 20, 1 << 30), of(85, 1 << 20, 1 << 30)]);
        assert!(said.starts_with("The contenders used the disk alike: 80 to 85 %"), "{said}");
        let said = say_alike(&[of(80, 1 << 20, 1 << 30), of(30, 9 << 20, 1 << 30)]);
        assert!(
            said.contains("requests in order and the distance between requests, and"),
            "{said}"
        );
        let said = say_alike(&[of(80, 1 << 20, 1 << 30), of(80, 1 << 20, 2 << 30)]);
        assert!(said.contains("what differs is the bytes, and"), "{said}");
    }

    #[test]
    fn every_byte_is_drawn_within_the_axes() {
        let one = of(50, 4096, 240 * 4096);
        let chart = picture("x".into(), "ext4", &one, one.length_ns() * 2.0, 2e9);
        let points = &chart.series[1].points;
        assert!(points.len() > 100 && points.len() <= POINTS_MAX);
        for point in points {
            assert!(point.x > 0.0 && point.x < 240.0, "{point:?}");
            assert!(point.y > 0.0 && point.y < 1024.0, "{point:?}");
        }
    }

    /// A foreign result may say anything.
    #[test]
    fn figures_that_cannot_be_are_no_reason_to_panic() {
        let most = u64::MAX;
        let one = Picture {
            read: vec![[most, most, most], [0, 0, most]],
            written: vec![[most, 0, most]],
            distances: vec![[most, most], [0, most]],
            runs: vec![[most, most], [1, most]],
            in_order: most,
            columns: 3,
            ..of(1, most, most)
        };
        let chart = picture("x".into(), "a", &one, one.length_ns(), 1e9);
        assert!(chart.series.iter().all(|series| !series.points.is_empty()));
        assert!(median(&one.runs).is_some());
        assert!(!say_alike(&[one.clone(), one]).is_empty());
    }
}
