//! How long a report takes: makes a result of 1000 records in a temporary directory, reads it, renders
//! its page, and prints the times.
//!
//!     cargo run --release -p report --example render [RECORDS] [histograms]
//!
//! With `histograms`, every record has latencies of 11 kinds of operation over 12 s beside it.

use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use report::page::{page, pictures};
use report::source::ResultSource;

#[path = "../tests/harness/mod.rs"]
mod harness;

use lab::workload::Latency;

use harness::{complete, make, study, time_ns, workload_report};

const LABELS: [&str; 4] = ["ext4", "xfs", "btrfs", "raw"];

const KINDS: u64 = 11;
const INTERVALS: u64 = 12;
const SAMPLES: u64 = 1000;

/// The latencies of a trial: from some µs to some ms, most of them short, recorded in histograms
/// of the bounds that the workloads have.
fn log() -> String {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .with_base_time(SystemTime::UNIX_EPOCH)
        .begin_log_with(&mut bytes, &mut serializer)
        .expect("memory takes everything");
    let mut state = 7_u64;
    for interval in 0..INTERVALS {
        for kind in 0..KINDS {
            let mut histogram = Histogram::<u64>::new_with_max(1 << 52, 3).expect("known bounds");
            for _ in 0..SAMPLES {
                // Knuth's linear congruential generator, its upper bits.
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let share = (state >> 33) as f64 / f64::from(1_u32 << 31);
                histogram.saturating_record((4_000.0 * (share.powi(4) * 6.0).exp()) as u64);
            }
            let tag = format!("kind{kind}");
            let second = Duration::from_secs(1);
            log.write_histogram(&histogram, second * interval as u32, second, Tag::new(&tag))
                .expect("memory takes everything");
        }
    }
    String::from_utf8(bytes).expect("a log is text")
}

fn main() {
    let wanted: u32 = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number"));
    let with_histograms = std::env::args().nth(2).is_some_and(|word| word == "histograms");
    let log = log();
    // Five loads of four contenders.
    let commands = ["one", "two", "three", "four", "five"];
    let blocks = wanted.div_ceil(20).max(1);
    let made = make(&study(&LABELS, &commands, blocks), |record| {
        let time = time_ns(record, &LABELS);
        complete(record, time);
        if record.workload != "one" {
            record.load = Some(workload_report(1e17 / time as f64));
        }
        if with_histograms {
            let mut load = workload_report(1e17 / time as f64);
            let known = load.latencies[0].clone();
            let of = |operation: String, count| Latency { operation, count, ..known.clone() };
            load.latencies =
                (0..KINDS).map(|kind| of(format!("kind{kind}"), INTERVALS * SAMPLES)).collect();
            load.latencies.push(of("overall".into(), KINDS * INTERVALS * SAMPLES));
            load.histogram_log = Some(log.clone());
            record.load = Some(load);
        }
        true
    });
    if with_histograms {
        println!("histograms of {} bytes next to each record", log.len());
    }
    let begun = Instant::now();
    let source = ResultSource::read(&made.directory()).expect("it was just written");
    let read = begun.elapsed();
    let html = page(&source, &[]);
    let rendered = begun.elapsed() - read;
    println!(
        "{} records: read and analysed in {:.0} ms, page of {:.2} MB rendered in {:.0} ms",
        source.records.len(),
        read.as_secs_f64() * 1e3,
        html.len() as f64 / 1e6,
        rendered.as_secs_f64() * 1e3,
    );
    let begun = Instant::now();
    let count = pictures(&source, &[]).len();
    println!("{count} pictures in {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
}
