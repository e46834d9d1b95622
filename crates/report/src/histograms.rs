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
use std::thread;

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
        let workloads = 0..plan.study.workloads.len();
        let trials: Vec<&Record> = workloads
            .flat_map(|workload| completed_trials(plan, records, workload).into_iter().flatten())
            .filter(|record| !latencies_of(record).is_empty())
            .collect();
        let mut found = Histograms::default();
        // A part at a time, so that no more of the files than that is in memory at once.
        for part in trials.chunks(TRIALS_AT_ONCE) {
            for (record, kinds) in part.iter().zip(read_trials(directory, part)) {
                found.add_trial(record, kinds);
            }
        }
        found
    }

    fn add_trial(&mut self, record: &Record, kinds: Result<Vec<Kind>, String>) {
        let latencies = latencies_of(record);
        match kinds {
            Ok(kinds) => {
                for (operation, counts) in &kinds {
                    self.merge(record, operation, counts, latencies);
                    self.merge(record, OVERALL_OPERATION, counts, latencies);
                }
                for merged in self.merged.iter_mut().filter(|merged| merged.is_of(record)) {
                    let in_trial = |(operation, _): &Kind| *operation == merged.operation;
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

    fn merge(&mut self, record: &Record, operation: &str, counts: &[Count], latencies: &[Latency]) {
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
        for count in counts {
            add(&mut merged.histogram, *count);
        }
        let own_max = latencies.iter().find(|latency| latency.operation == operation);
        let highest = || {
            let highest_ns = counts.iter().map(|count| count.value_ns).max();
            highest_ns.map_or(0, |value_ns| merged.histogram.highest_equivalent(value_ns))
        };
        merged.max_ns = merged.max_ns.max(own_max.map_or_else(highest, |latency| latency.max_ns));
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

/// Trials that are read before they are merged.
const TRIALS_AT_ONCE: usize = 64;

/// Operations in one bucket of a file's histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    /// Least latency of the bucket.
    value_ns: u64,
    count: u64,
}

/// A kind of operation, and its counts of all intervals, one interval after the other. A histogram
/// has tens of thousands of buckets and an interval fills a hundred of them, so only these are kept.
type Kind = (String, Vec<Count>);

fn add(sum: &mut Histogram<u64>, count: Count) {
    sum.record_n(count.value_ns, count.count)
        .expect("a histogram that grows by itself takes every value up to 2^53");
}

fn latencies_of(record: &Record) -> &[Latency] {
    record.load.as_ref().map_or(&[], |load| &load.latencies)
}

/// The histograms of these trials, in their order, read by as many threads as there are CPUs.
fn read_trials(directory: &Path, trials: &[&Record]) -> Vec<Result<Vec<Kind>, String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = trials.len().div_ceil(threads).max(1);
    let read = |record: &&Record| read_trial(directory, record.trial, latencies_of(record));
    thread::scope(|scope| {
        let parts: Vec<_> = trials
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(read).collect::<Vec<_>>()))
            .collect();
        let joined = parts.into_iter().flat_map(|part| part.join().expect("reading never panics"));
        joined.collect()
    })
}

/// The histograms of a trial by kind, its intervals added up.
fn read_trial(directory: &Path, trial: u32, latencies: &[Latency]) -> Result<Vec<Kind>, String> {
    let path = histogram_path(directory, trial);
    let shown = path.strip_prefix(directory).unwrap_or(&path).display();
    let problem = |problem: &dyn fmt::Display| format!("{shown}: {problem}");
    let bytes = fs::read(&path).map_err(|error| problem(&error))?;
    let kinds = parse(&bytes).map_err(|error| problem(&error))?;
    // A file that was cut off at the end of a line is whole lines still; the counts tell.
    for latency in latencies.iter().filter(|latency| latency.operation != OVERALL_OPERATION) {
        let found = kinds.iter().find(|(kind, _)| *kind == latency.operation);
        let counts = found.map_or(&[][..], |(_, counts)| counts);
        let count = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(count.count));
        if count != latency.count {
            return Err(problem(&format!(
                "it holds {count} operations of '{}', and the record {}",
                latency.operation, latency.count
            )));
        }
    }
    Ok(kinds)
}

/// The counts of a log by tag, in the order of their first line.
fn parse(log: &[u8]) -> Result<Vec<Kind>, String> {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut plain = Vec::new();
    for (number, entry) in IntervalLogIterator::new(log).enumerate() {
        let interval = match entry {
            Ok(LogEntry::Interval(interval)) => interval,
            Ok(_) => continue,
            Err(_) => return Err(format!("entry {} is no line of such a log", number + 1)),
        };
        let kind = interval.tag().map_or("", |tag| tag.as_str());
        let place = kinds.iter().position(|(known, _)| known == kind).unwrap_or_else(|| {
            kinds.push((kind.to_string(), Vec::new()));
            kinds.len() - 1
        });
        decode(interval.encoded_histogram(), &mut plain, &mut kinds[place].1)
            .map_err(|problem| format!("the histogram of entry {}: {problem}", number + 1))?;
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

/// Decodes one histogram and appends its counts; `plain` is room to unpack it in. The library takes
/// the lengths in the bytes at their word, so they are checked here first.
fn decode(text: &str, plain: &mut Vec<u8>, counts: &mut Vec<Count>) -> Result<(), String> {
    let packed = STANDARD.decode(text).map_err(|error| format!("no base64: {error}"))?;
    plain.clear();
    match packed.split_at_checked(8) {
        Some((head, deflated)) if head[..4] == COMPRESSED_COOKIE => {
            ZlibDecoder::new(deflated)
                .take(PLAIN_BYTES_MAX)
                .read_to_end(plain)
                .map_err(|error| format!("cannot be unpacked: {error}"))?;
        }
        _ => plain.extend_from_slice(&packed),
    }
    let Some((head, payload)) = plain.split_at_checked(HEAD_BYTES) else {
        return Err(format!("{} bytes are no histogram", plain.len()));
    };
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let bound = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    if head[..4] != PLAIN_COOKIE || number(4) as usize != payload.len() {
        return Err("its head does not go with its bytes".into());
    }
    if bound(16) != 1 || bound(24) > VALUE_MAX_NS {
        return Err(format!("latencies of {} to {} ns are none", bound(16), bound(24)));
    }
    check_counts(payload)?;
    let known = counts.len();
    // No offset, our digits, the ratio 1: what the loads write is read as it stands.
    let ours = number(8) == 0
        && number(12) == u32::from(SIGNIFICANT_DIGITS)
        && bound(32) == 1.0_f64.to_bits();
    if ours && sparse(payload, bound(24), counts).is_some() {
        return Ok(());
    }
    // Anything else is the library's to read or to refuse.
    counts.truncate(known);
    let histogram: Histogram<u64> =
        Deserializer::new().deserialize(&mut &plain[..]).map_err(|error| error.to_string())?;
    counts.extend(histogram.iter_recorded().map(|entry| Count {
        value_ns: histogram.lowest_equivalent(entry.value_iterated_to()),
        count: entry.count_at_value(),
    }));
    Ok(())
}

/// Buckets of one ns at the beginning of a histogram of three digits: the least power of two that is
/// twice as many as 10^3.
const FINE_BUCKETS: u64 = 2048;

/// Appends the counts of a histogram of three digits whose least bound is 1; None where a count lies
/// beyond its greatest bound or the bytes end within a number. The bytes are numbers of 7 bits a
/// byte, the lowest first, in zigzag: a count, or the negative length of a run of empty buckets
/// (HdrHistogram's V2 encoding). Beyond the fine buckets every power of two has half as many, each
/// twice as wide as before. The numbers are below 2^56, as [`check_counts`] made sure.
fn sparse(payload: &[u8], high: u64, counts: &mut Vec<Count>) -> Option<()> {
    let mut covered = FINE_BUCKETS;
    while covered <= high {
        covered <<= 1;
    }
    let half = FINE_BUCKETS / 2;
    let (mut bucket, mut number, mut shift) = (0_u64, 0_u64, 0);
    for byte in payload {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 != 0 {
            continue;
        }
        if number & 1 == 1 {
            bucket = bucket.checked_add((number >> 1) + 1)?;
        } else {
            if number > 0 {
                let value_ns = match bucket < FINE_BUCKETS {
                    true => bucket,
                    false => (bucket % half + half)
                        .checked_shl(u32::try_from(bucket / half - 1).ok()?)
                        .filter(|_| bucket / half <= 54)?,
                };
                if value_ns >= covered {
                    return None;
                }
                counts.push(Count { value_ns, count: number >> 1 });
            }
            bucket = bucket.checked_add(1)?;
        }
        (number, shift) = (0, 0);
    }
    (shift == 0).then_some(())
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
