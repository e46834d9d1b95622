//! The latencies of a result: the histograms that the trials left beside their records, merged
//! over the trials by workload, contender and operation. A percentile is read from the merged
//! histogram and never averaged.
//!
//! Reads `histograms/trial-N.hlog` of a result directory: HdrHistogram's interval log (V2,
//! compressed, base64), latencies in nanoseconds, the kind of operation as the tag, one line a
//! kind and interval. Knows nothing of what was measured.
//!
//! Invariants: the trials that count are those that the analysis compares; a trial's histograms
//! are merged all or none, and those of a file that is missing, damaged, or of other counts than
//! its record are none and are named; whatever the bytes of a file are, reading them neither
//! panics nor takes more memory than a histogram has.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use lab::analysis::{Analysis, ContenderAnalysis, completed_trials};
use lab::load::{Latency, OVERALL_OPERATION};
use lab::plan::Plan;
use lab::record::Record;
use lab::result::histogram_path;

/// The merged histograms of a result.
#[derive(Debug, Clone, Default)]
pub struct Histograms {
    merged: Vec<MergedHistogram>,
    damage: Vec<HistogramDamage>,
}

/// The latencies of one kind of operation over the counted, completed trials of one contender
/// under one workload.
#[derive(Debug, Clone)]
pub struct MergedHistogram {
    /// Name of the workload.
    pub workload: String,
    /// Label of the contender.
    pub contender: String,
    /// Kind of operation; [`OVERALL_OPERATION`] stands for all kinds together.
    pub operation: String,
    /// Trials that it was merged from.
    pub trials: usize,
    /// Greatest latency, exact: the records keep it beside the histograms.
    pub max_ns: u64,
    histogram: Histogram<u64>,
}

/// Histograms of a trial that are left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramDamage {
    /// Name of the workload.
    pub workload: String,
    /// Label of the contender.
    pub contender: String,
    /// Number of the trial.
    pub trial: u32,
    /// The file and what is wrong with it.
    pub problem: String,
}

impl fmt::Display for HistogramDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latencies of trial {}: {}", self.trial, self.problem)
    }
}

/// A point of the curve of percentiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantilePoint {
    /// Share of the operations that took at most `value_ns`, from 0 to 1.
    pub quantile: f64,
    /// Latency.
    pub value_ns: u64,
}

/// A bucket of a histogram in which something was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Least latency that falls into it.
    pub low_ns: u64,
    /// Greatest latency that falls into it.
    pub high_ns: u64,
    /// Operations in it.
    pub count: u64,
}

impl MergedHistogram {
    /// Operations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that so great a share of the operations (from 0 to 1) did not exceed: the upper
    /// end of the bucket that holds the operation of rank `ceil(quantile x count)`, at most 0.1 %
    /// above it, and never above the maximum.
    pub fn value_at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// The curve from the least latency to the greatest, ever finer towards quantile 1:
    /// `points_per_halving` points for each halving of the distance to it. Empty without
    /// operations.
    pub fn curve(&self, points_per_halving: u32) -> Vec<QuantilePoint> {
        if self.histogram.is_empty() {
            return Vec::new();
        }
        self.histogram
            .iter_quantiles(points_per_halving.clamp(1, 1000))
            .map(|point| QuantilePoint {
                quantile: point.quantile_iterated_to(),
                value_ns: point.value_iterated_to().min(self.max_ns),
            })
            .collect()
    }

    /// The buckets in which something was counted, in rising order: from these a density is drawn.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|entry| Bucket {
            low_ns: self.histogram.lowest_equivalent(entry.value_iterated_to()),
            high_ns: self.histogram.highest_equivalent(entry.value_iterated_to()),
            count: entry.count_at_value(),
        })
    }
}

impl Histograms {
    /// Reads and merges the histograms of the trials that the analysis compares.
    pub fn read(directory: &Path, plan: &Plan, records: &[Record]) -> Histograms {
        let mut found = Histograms::default();
        for workload in 0..plan.study.workloads.len() {
            for record in completed_trials(plan, records, workload).into_iter().flatten() {
                found.add_trial(directory, record);
            }
        }
        found
    }

    fn add_trial(&mut self, directory: &Path, record: &Record) {
        let latencies = record.load.as_ref().map_or(&[][..], |load| &load.latencies);
        if latencies.is_empty() {
            return;
        }
        match read_trial(directory, record.trial, latencies) {
            Ok(kinds) => {
                for (operation, histogram) in &kinds {
                    self.merge(record, operation, histogram, latencies);
                    self.merge(record, OVERALL_OPERATION, histogram, latencies);
                }
                for merged in self.merged.iter_mut().filter(|merged| merged.is_of(record)) {
                    let in_trial = |(operation, _): &(String, _)| *operation == merged.operation;
                    if merged.operation == OVERALL_OPERATION || kinds.iter().any(in_trial) {
                        merged.trials += 1;
                    }
                }
            }
            Err(problem) => self.damage.push(HistogramDamage {
                workload: record.workload.clone(),
                contender: record.contender.label.clone(),
                trial: record.trial,
                problem,
            }),
        }
    }

    fn merge(
        &mut self,
        record: &Record,
        operation: &str,
        addend: &Histogram<u64>,
        latencies: &[Latency],
    ) {
        let known =
            |merged: &MergedHistogram| merged.is_of(record) && merged.operation == operation;
        let place = self.merged.iter().position(known).unwrap_or_else(|| {
            self.merged.push(MergedHistogram {
                workload: record.workload.clone(),
                contender: record.contender.label.clone(),
                operation: operation.to_string(),
                trials: 0,
                max_ns: 0,
                histogram: empty(),
            });
            self.merged.len() - 1
        });
        let merged = &mut self.merged[place];
        add(&mut merged.histogram, addend);
        let own_max = latencies.iter().find(|latency| latency.operation == operation);
        merged.max_ns = merged.max_ns.max(own_max.map_or(addend.max(), |latency| latency.max_ns));
    }

    /// All of them: by workload and contender in the study's order, then by operation in the order
    /// of their first use.
    pub fn iter(&self) -> impl Iterator<Item = &MergedHistogram> {
        self.merged.iter()
    }

    /// The one of an operation, when the trials have one.
    pub fn get(
        &self,
        workload: &str,
        contender: &str,
        operation: &str,
    ) -> Option<&MergedHistogram> {
        self.merged.iter().find(|merged| {
            merged.workload == workload
                && merged.contender == contender
                && merged.operation == operation
        })
    }

    /// What had to be left out.
    pub fn damage(&self) -> &[HistogramDamage] {
        &self.damage
    }

    /// Puts the merged percentiles in the place of the trials' medians, and what was left out among
    /// the findings. Where a contender has no histogram at all, the medians stay and a finding says
    /// so.
    pub fn put_into(&self, analysis: &mut Analysis) {
        for workload in &mut analysis.workloads {
            for contender in &mut workload.contenders {
                self.put_into_contender(&workload.workload, contender);
            }
        }
    }

    fn put_into_contender(&self, workload: &str, contender: &mut ContenderAnalysis) {
        let mut merged_any = false;
        for latency in &mut contender.latencies {
            let Some(merged) = self.get(workload, &contender.label, &latency.operation) else {
                continue;
            };
            merged_any = true;
            for (place, quantile) in [
                (&mut latency.p5_ns, 0.05),
                (&mut latency.p50_ns, 0.5),
                (&mut latency.p90_ns, 0.9),
                (&mut latency.p95_ns, 0.95),
                (&mut latency.p99_ns, 0.99),
                (&mut latency.p99_9_ns, 0.999),
                (&mut latency.p99_99_ns, 0.9999),
            ] {
                *place = merged.value_at(quantile);
            }
        }
        let left_out: Vec<String> = self
            .damage
            .iter()
            .filter(|damage| damage.workload == workload && damage.contender == contender.label)
            .map(HistogramDamage::to_string)
            .collect();
        if left_out.is_empty() {
            return;
        }
        let consequence = match merged_any {
            true => "the percentiles leave it out",
            false => "no histogram is left, so each percentile is the median of the trials' own",
        };
        contender.findings.push(format!("{} ({consequence})", left_out.join("; ")));
    }
}

impl MergedHistogram {
    fn is_of(&self, record: &Record) -> bool {
        self.workload == record.workload && self.contender == record.contender.label
    }
}

// ---------------------------------------------------------------------------------------------
// One file
// ---------------------------------------------------------------------------------------------

/// Significant digits of the merged histograms: those that the loads record with.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies are recorded up to 2^52 ns; more is no latency of ours.
const VALUE_MAX_NS: u64 = 1 << 53;

/// Bytes of a histogram of such values with 5 digits, each count in 9 bytes, are below this.
const PLAIN_BYTES_MAX: u64 = 64 << 20;

fn empty() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("three significant digits are within 0 to 5")
}

fn add(sum: &mut Histogram<u64>, addend: &Histogram<u64>) {
    sum.add(addend).expect("a histogram that grows by itself takes every value up to 2^53");
}

/// The histograms of a trial by kind, its intervals added up.
fn read_trial(
    directory: &Path,
    trial: u32,
    latencies: &[Latency],
) -> Result<Vec<(String, Histogram<u64>)>, String> {
    let path = histogram_path(directory, trial);
    let shown = path.strip_prefix(directory).unwrap_or(&path).display();
    let problem = |problem: &dyn fmt::Display| format!("{shown}: {problem}");
    let bytes = fs::read(&path).map_err(|error| problem(&error))?;
    let kinds = parse(&bytes).map_err(|error| problem(&error))?;
    // A file that was cut off at the end of a line is whole lines still; the counts tell.
    for latency in latencies.iter().filter(|latency| latency.operation != OVERALL_OPERATION) {
        let found = kinds.iter().find(|(kind, _)| *kind == latency.operation);
        let count = found.map_or(0, |(_, histogram)| histogram.len());
        if count != latency.count {
            return Err(problem(&format!(
                "it holds {count} operations of '{}', and the record {}",
                latency.operation, latency.count
            )));
        }
    }
    Ok(kinds)
}

/// The histograms of a log by tag, in the order of their first line.
fn parse(log: &[u8]) -> Result<Vec<(String, Histogram<u64>)>, String> {
    let mut kinds: Vec<(String, Histogram<u64>)> = Vec::new();
    for (number, entry) in IntervalLogIterator::new(log).enumerate() {
        let interval = match entry {
            Ok(LogEntry::Interval(interval)) => interval,
            Ok(_) => continue,
            Err(_) => return Err(format!("entry {} is no line of such a log", number + 1)),
        };
        let histogram = decode(interval.encoded_histogram())
            .map_err(|problem| format!("the histogram of entry {}: {problem}", number + 1))?;
        let kind = interval.tag().map_or("", |tag| tag.as_str());
        match kinds.iter_mut().find(|(known, _)| known == kind) {
            Some((_, sum)) => add(sum, &histogram),
            None => {
                let mut sum = empty();
                add(&mut sum, &histogram);
                kinds.push((kind.to_string(), sum));
            }
        }
    }
    Ok(kinds)
}

/// First bytes of a histogram that is compressed, and of one that is not, both with their counts
/// in variable length (HdrHistogram's V2 encoding).
const COMPRESSED_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
const PLAIN_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];
/// Bytes before the counts: cookie, their length, the normalizing offset, the digits (4 each), the
/// bounds and the ratio (8 each).
const HEAD_BYTES: usize = 40;

/// Decodes one histogram. The library takes the lengths in the bytes at their word, so they are
/// checked here first.
fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let packed = STANDARD.decode(text).map_err(|error| format!("no base64: {error}"))?;
    let plain = match packed.split_at_checked(8) {
        Some((head, deflated)) if head[..4] == COMPRESSED_COOKIE => {
            let mut plain = Vec::new();
            ZlibDecoder::new(deflated)
                .take(PLAIN_BYTES_MAX)
                .read_to_end(&mut plain)
                .map_err(|error| format!("cannot be unpacked: {error}"))?;
            plain
        }
        _ => packed,
    };
    let Some((head, counts)) = plain.split_at_checked(HEAD_BYTES) else {
        return Err(format!("{} bytes are no histogram", plain.len()));
    };
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let bound = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    if head[..4] != PLAIN_COOKIE || number(4) as usize != counts.len() {
        return Err("its head does not go with its bytes".into());
    }
    if bound(16) != 1 || bound(24) > VALUE_MAX_NS {
        return Err(format!("latencies of {} to {} ns are none", bound(16), bound(24)));
    }
    check_counts(counts)?;
    Deserializer::new().deserialize(&mut &plain[..]).map_err(|error| error.to_string())
}

/// Refuses counts of 2^55 and more, which take 9 bytes: nobody counts so far, and the library
/// negates them.
fn check_counts(counts: &[u8]) -> Result<(), String> {
    let mut length = 0;
    for byte in counts {
        length += 1;
        if length == 9 {
            return Err("a count is beyond all measure".into());
        }
        if byte & 0x80 == 0 {
            length = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
