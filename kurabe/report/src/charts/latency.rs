//! How long single operations took: percentiles on a scale of nines, and the density.
//!
//! The curves come from merged histograms, never from averaged percentiles. Where the histograms
//! cannot be read, the percentiles in the records are shown, each the median of the runs'.

use std::collections::BTreeMap;

use lab::workload::{Latency, OVERALL_OPERATION};

use super::WorkloadView;
use crate::chart::{Axis, Chart, ChartSeries, Point, SeriesStyle, Tick};
use crate::histograms::{Bucket, MergedHistogram};
use crate::table::{Cell, Table};
use crate::text;

/// Points of a curve for each further nine.
const POINTS_PER_NINE: usize = 16;
/// Bins of the density for each power of ten.
const BINS_PER_DECADE: f64 = 16.0;

/// The kinds of operation of a workload of which there are distributions, the overall one first.
fn operations(view: &WorkloadView<'_>) -> Vec<String> {
    let all = view.analysis.contenders.iter().flat_map(|contender| &contender.latencies);
    let all = all.filter(|latency| !latency.quantiles_ns.is_empty());
    let mut operations = text::distinct(all.map(|latency| latency.operation.clone()));
    // With one kind, the overall figures are its figures.
    if operations.len() == 2 {
        operations.retain(|operation| operation == OVERALL_OPERATION);
    }
    operations.sort_by_key(|operation| operation != OVERALL_OPERATION);
    operations
}

/// Percentiles of every kind of operation, and the density of all together.
pub fn charts(view: &WorkloadView<'_>) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (place, operation) in operations(view).iter().enumerate() {
        charts.extend(percentiles(view, operation, place));
        if place == 0 {
            charts.extend(density(view, operation));
        }
    }
    charts
}

/// The words for a kind of operation in a heading.
fn heading(operation: &str) -> String {
    match operation {
        OVERALL_OPERATION => "all operations".into(),
        kind => kind.to_string(),
    }
}

/// How many nines a share has: 0 for none, 1 for 90 %, 2 for 99 %.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn share_text(share: f64) -> String {
    let percent = format!("{:.6}", share * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

fn percentiles(view: &WorkloadView<'_>, operation: &str, place: usize) -> Option<Chart> {
    let mut series = Vec::new();
    let mut merged = true;
    for (key, contender) in view.analysis.contenders.iter().enumerate() {
        let found = contender.latencies.iter().find(|latency| latency.operation == operation);
        let histogram =
            view.source.histograms.get(&view.analysis.workload, &contender.label, operation);
        let curve = match (histogram, found) {
            (Some(histogram), _) if histogram.count() > 0 => curve_of(histogram),
            (_, Some(latency)) => {
                merged = false;
                curve_of_record(latency)
            }
            (_, None) => continue,
        };
        let words = |share: f64, ns: f64| {
            format!("{}: {} within {}", contender.label, share_text(share), text::time(ns))
        };
        let points = curve
            .iter()
            .map(|(share, ns)| Point::at(nines(*share), *ns, words(*share, *ns)))
            .collect();
        series.push(ChartSeries { key, mark: SeriesStyle::Line, points });
    }
    let last = series.iter().flat_map(|s| s.points.last()).map(|p| p.x).fold(0.5, f64::max);
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.y);
    let y = Axis::of_times("latency", values)?;
    let shares = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999];
    let ticks = shares.into_iter().map(|share| Tick { at: nines(share), text: share_text(share) });
    let ticks = ticks.filter(|tick| tick.at <= last * 1.02).collect();
    let x =
        Axis::named("share of the operations that take at most so long", (0.0, last * 1.02), ticks);
    let id = view.id(&format!("percentiles-{place}"));
    let title = format!("Latency percentiles: {}", heading(operation));
    Some(Chart {
        says: if merged {
            "From the merged histograms of all runs; every step to the right leaves a tenth of the operations.".into()
        } else {
            "From the percentiles in the records, each the median of the runs, since not every histogram could be read.".into()
        },
        height: 360,
        keys: view.keys(),
        series,
        ..Chart::new(id, title, x, y)
    })
}

/// Shares and latencies in ns, up to the greatest that was recorded.
fn curve_of(histogram: &MergedHistogram) -> Vec<(f64, f64)> {
    let last = (histogram.count() as f64).log10();
    let steps = (last * POINTS_PER_NINE as f64).ceil() as usize;
    let mut curve: Vec<(f64, f64)> = Vec::with_capacity(steps + 1);
    for step in 0..=steps {
        let at = (step as f64 / POINTS_PER_NINE as f64).min(last);
        let share = 1.0 - 10f64.powf(-at);
        let ns = histogram.value_at(share) as f64;
        if ns > 0.0 {
            curve.push((share, ns));
        }
    }
    curve
}

/// The percentiles that a record keeps.
fn curve_of_record(latency: &Latency) -> Vec<(f64, f64)> {
    // A percentile beyond the number of operations says nothing.
    let known = 1.0 - 1.0 / latency.count.max(1) as f64;
    let points = latency.quantiles_ns.iter();
    let points = points.filter(|(share, ns)| *ns > 0 && *share <= known.max(0.5));
    points.map(|(share, ns)| (*share, *ns as f64)).collect()
}

/// How the latencies are spread, on a logarithmic axis.
fn density(view: &WorkloadView<'_>, operation: &str) -> Option<Chart> {
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "most often", "share of the operations there"]);
    for (key, contender) in view.analysis.contenders.iter().enumerate() {
        let workload = &view.analysis.workload;
        let Some(histogram) = view
            .source
            .histograms
            .get(workload, &contender.label, operation)
            .filter(|histogram| histogram.count() > 0)
        else {
            continue;
        };
        let bins = bins_of(histogram.buckets());
        let label = &contender.label;
        let points = bins.iter().map(|(ns, percent)| {
            let words = format!("{label}: {percent:.2} % around {}", text::time(*ns));
            Point::at(*ns, *percent, words)
        });
        series.push(ChartSeries { key, mark: SeriesStyle::Line, points: points.collect() });
        let highest = bins.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        numbers.rows.push(vec![
            label.as_str().into(),
            Cell::number(highest.0, text::time(highest.0)),
            Cell::number(highest.1, format!("{:.2} %", highest.1)),
        ]);
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let x = Axis::of_times("latency", points().map(|point| point.x))?;
    let y = Axis::from_zero("operations, %", points().map(|point| point.y));
    Some(Chart {
        says: format!(
            "Share of the operations in each of {BINS_PER_DECADE} steps of a power of ten. Two hills are two ways in which an operation goes, such as from the cache and from the device."
        ),
        keys: view.keys(),
        series,
        numbers,
        ..Chart::new(
            view.id("density"),
            format!("How latencies are spread: {}", heading(operation)),
            x,
            y,
        )
    })
}

/// Middle of each bin in ns, and the share of the operations in it in percent; one empty bin on
/// either side, so that the curve begins and ends on the axis.
fn bins_of(buckets: impl Iterator<Item = Bucket>) -> Vec<(f64, f64)> {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for bucket in buckets {
        let middle_ns = (bucket.low_ns as f64 + bucket.high_ns as f64) / 2.0;
        let bin = (middle_ns.max(1.0).log10() * BINS_PER_DECADE).floor() as i64;
        let sum = counts.entry(bin).or_insert(0_u64);
        *sum = sum.saturating_add(bucket.count);
    }
    let (Some(first), Some(last)) =
        (counts.keys().next().copied(), counts.keys().next_back().copied())
    else {
        return Vec::new();
    };
    let all = counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count)) as f64;
    (first - 1..=last + 1)
        .map(|bin| {
            let middle = 10f64.powf((bin as f64 + 0.5) / BINS_PER_DECADE);
            (middle, counts.get(&bin).copied().unwrap_or(0) as f64 * 100.0 / all)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use lab::workload::QUANTILES;

    use super::*;

    #[test]
    fn the_bins_hold_every_operation() {
        let bucket = |ns: u64, count| Bucket { low_ns: ns, high_ns: ns + ns / 1000, count };
        let bins = bins_of(
            [(1_000, 2), (50_000, 1), (9_000_000, 1)].map(|(ns, c)| bucket(ns, c)).into_iter(),
        );
        let all: f64 = bins.iter().map(|(_, percent)| percent).sum();
        assert!((all - 100.0).abs() < 1e-9, "{all}");
        assert_eq!((bins[0].1, bins[1].1, bins.last().unwrap().1), (0.0, 50.0, 0.0));
        assert!(bins_of(std::iter::empty()).is_empty());
    }

    #[test]
    fn shares_in_words() {
        assert_eq!(
            [0.0, 0.5, 0.999, 0.99999].map(share_text),
            ["0 %", "50 %", "99.9 %", "99.999 %"]
        );
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_record_shows_no_percentile_that_it_cannot_know() {
        let latency = Latency {
            operation: "Put".into(),
            count: 50,
            bytes: 0,
            total_ns: 0,
            quantiles_ns: QUANTILES.into_iter().zip(1..).collect(),
            max_ns: 7,
        };
        assert_eq!(curve_of_record(&latency).last(), Some(&(0.95, 4.0)));
    }
}
