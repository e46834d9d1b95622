//! How long a report takes: makes a result of 1000 records in a temporary directory, reads it, renders
//! its page, and prints the times.
//!
//!     cargo run --release -p kurabe-report --example render [RECORDS]

use std::time::Instant;

use kurabe_report::page::{page, pictures};
use kurabe_report::source::Source;

#[path = "../tests/harness/mod.rs"]
mod harness;

use harness::{complete, load_report, make, study, time_ns};

const LABELS: [&str; 4] = ["ext4", "xfs", "btrfs", "raw"];

fn main() {
    let wanted: u32 = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number"));
    // Five loads of four contenders.
    let commands = ["one", "two", "three", "four", "five"];
    let blocks = wanted.div_ceil(20).max(1);
    let made = make(&study(&LABELS, &commands, blocks), |record| {
        let time = time_ns(record, &LABELS);
        complete(record, time);
        if record.workload != "one" {
            record.load = Some(load_report(1e17 / time as f64));
        }
        true
    });
    let begun = Instant::now();
    let source = Source::read(&made.directory()).expect("it was just written");
    let read = begun.elapsed();
    let html = page(&source);
    let rendered = begun.elapsed() - read;
    println!(
        "{} records: read and analysed in {:.0} ms, page of {:.2} MB rendered in {:.0} ms",
        source.records.len(),
        read.as_secs_f64() * 1e3,
        html.len() as f64 / 1e6,
        rendered.as_secs_f64() * 1e3,
    );
    let begun = Instant::now();
    let count = pictures(&source).len();
    println!("{count} pictures in {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
}
