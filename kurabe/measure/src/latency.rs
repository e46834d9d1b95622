//! Latencies from the first sample to the report: a cheap clock, a recorder for each thread, and
//! what many recorders merge into.
//!
//! A thread owns one [`LatencyRecorder`] and calls [`LatencyRecorder::record_at`] after each operation, without
//! locks. [`LatencyRecorder::finish`] turns it into a [`LatencyRecording`]; recordings
//! [merge](Recording::merge), and percentiles are read from the merged histograms, so that no
//! percentile is ever averaged. Histograms are HdrHistograms of nanoseconds with 3 significant
//! digits: a bucket is at most 0.1 % wide.
//!
//! Must not know: what was measured, what it was measured for, and where results are kept.
//!
//! Invariants: every sample is in the total of its kind and, where a series is kept, in exactly one
//! interval; the memory of a recorder does not grow with the number of samples nor, beyond
//! [`INTERVALS_MAX`] intervals, with time.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, IntervalLogWriterError, LogEntry, Tag,
};
use hdrhistogram::serialization::{
    Deserializer, Serializer, V2DeflateSerializeError, V2DeflateSerializer, V2Serializer,
};

mod clock;
mod summary;

use summary::latency_of;
use vocabulary::report::{OVERALL_OPERATION, operation_of_tag, tag_of_operation};

pub use clock::Clock;
pub use summary::{LatencySeries, LatencySummary, SeriesPoint};

/// Significant decimal digits that a histogram keeps of each value.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Once a recorder holds this many intervals it joins neighbours in pairs and doubles the interval,
/// so that a run of any length has between half this many and this many points.
pub const INTERVALS_MAX: usize = 2048;

/// Latencies above this (about 52 days) are recorded as this: no histogram grows without bound.
const LATENCY_MAX_NS: u64 = (1 << 52) - 1;

/// Names a kind of operation to the [`LatencyRecorder`] that gave it out; cheap to copy and to index with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindId(u32);

/// What one thread records into.
#[derive(Debug)]
pub struct LatencyRecorder {
    recording: LatencyRecording,
    open: Option<OpenInterval>,
}

/// The interval that is being recorded, of all kinds together.
#[derive(Debug)]
struct OpenInterval {
    /// It begins at this times the interval's length.
    index: u64,
    /// Where it ends; one comparison a sample decides whether it is over.
    end_ns: u64,
    histogram: Histogram<u64>,
    bytes: u64,
}

/// What is summed exactly beside a histogram.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// A closed interval; the histogram is packed (HdrHistogram's V2 encoding, some 2 bytes for each
/// bucket in use), because thousands of them may have to be kept.
#[derive(Clone, Debug)]
struct Interval {
    index: u64,
    bytes: u64,
    packed: Vec<u8>,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        LatencyRecorder::new()
    }
}

impl LatencyRecorder {
    /// A recorder that keeps one histogram a kind and no series.
    pub fn new() -> LatencyRecorder {
        let (kinds, intervals) = (Vec::new(), Vec::new());
        let recording =
            LatencyRecording { kinds, interval_ns: u64::MAX, intervals, last_ended_ns: 0 };
        LatencyRecorder { recording, open: None }
    }

    /// A recorder that also keeps a histogram of every interval of this length, of all kinds
    /// together. Recorders that are to be merged must be made with the same length and read the
    /// same [`Clock`].
    ///
    /// Panics when the interval is shorter than a millisecond.
    pub fn with_intervals(interval: Duration) -> LatencyRecorder {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        assert!(
            interval_ns >= 1_000_000,
            "an interval of {interval_ns} ns is shorter than closing it takes"
        );
        let mut recorder = LatencyRecorder::new();
        recorder.recording.interval_ns = interval_ns;
        let histogram = empty_histogram();
        recorder.open = Some(OpenInterval { index: 0, end_ns: interval_ns, histogram, bytes: 0 });
        recorder
    }

    /// The kind of this name, made when it is new.
    pub fn kind(&mut self, name: &str) -> KindId {
        KindId(self.recording.place_of(name) as u32)
    }

    /// Records one operation that ended at `ended_ns` on the run's clock and moved `bytes`.
    ///
    /// It is counted in the interval in which it ended. A sample that ended before the current
    /// interval began (a caller that hands samples in late) is counted in the current one.
    #[inline]
    pub fn record_at(&mut self, kind: KindId, ended_ns: u64, latency_ns: u64, bytes: u64) {
        if self.open.as_ref().is_some_and(|open| ended_ns >= open.end_ns) {
            self.close_interval(ended_ns);
        }
        self.recording.last_ended_ns = ended_ns;
        let latency_ns = latency_ns.min(LATENCY_MAX_NS);
        if let Some(open) = &mut self.open {
            record(&mut open.histogram, latency_ns, 1);
            open.bytes = open.bytes.saturating_add(bytes);
        }
        self.record_many(kind, latency_ns, 1, bytes);
    }

    /// Records `count` operations of about one latency, which moved `bytes` together, in no interval:
    /// the buckets of a histogram that another tool kept.
    #[inline]
    pub fn record_many(&mut self, kind: KindId, latency_ns: u64, count: u64, bytes: u64) {
        let kind = &mut self.recording.kinds[kind.0 as usize];
        let max_ns = latency_ns.min(LATENCY_MAX_NS);
        if count > 0 {
            record(&mut kind.histogram, max_ns, count);
            kind.sums.add(&Sums { bytes, total_ns: max_ns.saturating_mul(count), max_ns });
        }
    }

    /// Puts in what another tool tells exactly of a kind whose buckets were recorded, in place of what the
    /// buckets say.
    pub fn told(&mut self, kind: KindId, bytes: u64, total_ns: u64, max_ns: u64) {
        self.recording.kinds[kind.0 as usize].sums = Sums { bytes, total_ns, max_ns };
    }

    /// Puts the open interval away and begins the one that contains `ended_ns`.
    #[cold]
    fn close_interval(&mut self, ended_ns: u64) {
        self.put_away();
        let recording = &mut self.recording;
        if recording.intervals.len() >= INTERVALS_MAX {
            recording.coarsen();
        }
        if let Some(open) = &mut self.open {
            open.index = ended_ns / recording.interval_ns;
            open.end_ns = (open.index + 1).saturating_mul(recording.interval_ns);
        }
    }

    fn put_away(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.histogram.is_empty()) else {
            return;
        };
        let bytes = std::mem::take(&mut open.bytes);
        let interval = Interval { index: open.index, bytes, packed: pack(&open.histogram) };
        open.histogram.reset();
        // After joining pairs the open interval can fall into the last closed one.
        push(&mut self.recording.intervals, interval);
    }

    pub fn finish(mut self) -> LatencyRecording {
        self.put_away();
        self.recording
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("three significant digits are within 0 to 5")
}

#[inline]
fn record(histogram: &mut Histogram<u64>, latency_ns: u64, count: u64) {
    histogram
        .record_n(latency_ns, count)
        .expect("a histogram that grows by itself takes every value up to its limit");
}

fn add_histogram(sum: &mut Histogram<u64>, addend: &Histogram<u64>) {
    sum.add(addend).expect("a histogram that grows by itself takes another of its kind");
}

fn pack(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut packed = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut packed)
        .expect("a histogram is always serialised into memory");
    packed.shrink_to_fit();
    packed
}

fn unpack(packed: &[u8]) -> Histogram<u64> {
    Deserializer::new().deserialize(&mut &packed[..]).expect("what this process packed is unpacked")
}

/// Appends an interval, or adds it to the last one where that is the same.
fn push(intervals: &mut Vec<Interval>, interval: Interval) {
    match intervals.last_mut() {
        Some(last) if last.index == interval.index => {
            let mut sum = empty_histogram();
            add_histogram(&mut sum, &unpack(&last.packed));
            add_histogram(&mut sum, &unpack(&interval.packed));
            last.packed = pack(&sum);
            last.bytes = last.bytes.saturating_add(interval.bytes);
        }
        _ => intervals.push(interval),
    }
}

/// What one or more recorders saw, complete and ready to be read.
#[derive(Clone, Debug)]
pub struct LatencyRecording {
    kinds: Vec<RecordedKind>,
    /// Length of an interval, `u64::MAX` when no series is kept.
    interval_ns: u64,
    intervals: Vec<Interval>,
    last_ended_ns: u64,
}

#[derive(Clone, Debug)]
struct RecordedKind {
    name: String,
    histogram: Histogram<u64>,
    sums: Sums,
}

/// Histograms in a log, and the bytes of each as it is written: no workload has as many kinds of operations. The log may
/// come from what a stranger's job got hold of.
const LOG_ENTRIES_MAX: usize = 1024;
const LOG_ENTRY_BYTES_MAX: usize = 64 << 10;

impl LatencyRecording {
    /// Adds what another recorder saw. Kinds are matched by name. Both must come from the same
    /// constructor with the same interval, else this panics: their series have no common axis.
    pub fn merge(&mut self, mut other: LatencyRecording) {
        if self.kinds.is_empty() {
            *self = other;
            return;
        }
        let keeps_series = |one: &LatencyRecording| one.interval_ns != u64::MAX;
        assert_eq!(keeps_series(self), keeps_series(&other), "only one of two has a series");
        for kind in &other.kinds {
            self.add(&kind.name, &kind.histogram, &kind.sums);
        }
        if other.intervals.is_empty() {
            return;
        }
        // One of the two may have doubled its interval oftener.
        while self.interval_ns < other.interval_ns {
            self.coarsen();
        }
        while other.interval_ns < self.interval_ns {
            other.coarsen();
        }
        assert_eq!(self.interval_ns, other.interval_ns, "the intervals have no common length");
        self.intervals.append(&mut other.intervals);
        self.intervals.sort_by_key(|interval| interval.index);
        for interval in std::mem::take(&mut self.intervals) {
            push(&mut self.intervals, interval);
        }
        self.last_ended_ns = self.last_ended_ns.max(other.last_ended_ns);
    }

    /// Merges the recordings of all threads; an empty recording when there are none.
    pub fn merged(recordings: impl IntoIterator<Item = LatencyRecording>) -> LatencyRecording {
        let mut recordings = recordings.into_iter();
        let mut sum = recordings.next().unwrap_or_else(|| LatencyRecorder::new().finish());
        for recording in recordings {
            sum.merge(recording);
        }
        sum
    }

    /// Joins intervals 2n and 2n + 1 into n.
    fn coarsen(&mut self) {
        self.interval_ns = self.interval_ns.saturating_mul(2);
        for interval in std::mem::take(&mut self.intervals) {
            push(&mut self.intervals, Interval { index: interval.index / 2, ..interval });
        }
    }

    /// The same recording under other names of its kinds; those of one name become one.
    pub fn renamed(mut self, name: impl Fn(&str) -> String) -> LatencyRecording {
        for kind in std::mem::take(&mut self.kinds) {
            self.add(&name(&kind.name), &kind.histogram, &kind.sums);
        }
        self
    }

    fn add(&mut self, name: &str, histogram: &Histogram<u64>, sums: &Sums) {
        let place = self.place_of(name);
        add_histogram(&mut self.kinds[place].histogram, histogram);
        self.kinds[place].sums.add(sums);
    }

    fn place_of(&mut self, name: &str) -> usize {
        let known = self.kinds.iter().position(|kind| kind.name == name);
        known.unwrap_or_else(|| {
            let (histogram, sums) = (empty_histogram(), Sums::default());
            self.kinds.push(RecordedKind { name: name.to_owned(), histogram, sums });
            self.kinds.len() - 1
        })
    }

    /// The kinds of which at least one operation was recorded, in the order of their first use.
    fn seen(&self) -> impl Iterator<Item = &RecordedKind> {
        self.kinds.iter().filter(|kind| !kind.histogram.is_empty())
    }

    /// The histogram of one kind, in nanoseconds.
    pub fn histogram(&self, kind: &str) -> Option<&Histogram<u64>> {
        self.seen().find(|recorded| recorded.name == kind).map(|recorded| &recorded.histogram)
    }

    /// The figures of every kind and of all together.
    pub fn summary(&self) -> LatencySummary {
        let (mut all, mut sums) = (empty_histogram(), Sums::default());
        let mut kinds = Vec::new();
        for kind in self.seen() {
            add_histogram(&mut all, &kind.histogram);
            sums.add(&kind.sums);
            kinds.push(latency_of(&kind.name, &kind.histogram, &kind.sums));
        }
        LatencySummary { kinds, overall: latency_of(OVERALL_OPERATION, &all, &sums) }
    }

    /// The figures of every interval from the first to the last in which an operation ended;
    /// intervals in which none did are there with zeros. `None` when no series was kept.
    pub fn series(&self) -> Option<LatencySeries> {
        if self.interval_ns == u64::MAX {
            return None;
        }
        let first = self.intervals.first().map_or(0, |interval| interval.index);
        let mut points: Vec<SeriesPoint> = Vec::with_capacity(self.intervals.len());
        for interval in &self.intervals {
            while first + (points.len() as u64) < interval.index {
                points
                    .push(SeriesPoint { duration_ns: self.interval_ns, ..SeriesPoint::default() });
            }
            let histogram = unpack(&interval.packed);
            // The last interval ends with the last operation.
            let start_ns = interval.index.saturating_mul(self.interval_ns);
            let duration_ns = self.last_ended_ns.saturating_sub(start_ns).max(1);
            points.push(SeriesPoint {
                duration_ns: self.interval_ns.min(duration_ns),
                count: histogram.len(),
                bytes: interval.bytes,
                p99_ns: histogram.value_at_quantile(0.99),
            });
        }
        Some(LatencySeries { interval_ns: self.interval_ns, points })
    }

    /// Reads what [`LatencyRecording::write_log`] wrote, without its series. Of the latencies a histogram
    /// knows no more than the bucket, so sums and maximum are those of the buckets, and bytes of none.
    pub fn read_log(log: &str) -> Result<LatencyRecording, String> {
        let mut recording = LatencyRecorder::new().finish();
        let mut deserializer = Deserializer::new();
        for (number, entry) in IntervalLogIterator::new(log.as_bytes()).enumerate() {
            let wrong = |problem: String| format!("entry {}: {problem}", number + 1);
            let LogEntry::Interval(interval) =
                entry.map_err(|error| wrong(format!("{error:?}")))?
            else {
                continue;
            };
            let encoded = interval.encoded_histogram();
            if number >= LOG_ENTRIES_MAX || encoded.len() > LOG_ENTRY_BYTES_MAX {
                return Err(wrong("there are too many, or this one is too large".into()));
            }
            let packed = STANDARD.decode(encoded).map_err(|error| wrong(error.to_string()))?;
            let histogram: Histogram<u64> = deserializer
                .deserialize(&mut packed.as_slice())
                .map_err(|error| wrong(error.to_string()))?;
            let total_ns = (histogram.mean() * histogram.len() as f64) as u64;
            let sums = Sums { bytes: 0, total_ns, max_ns: histogram.max() };
            let tag = interval.tag().map_or("", |tag| tag.as_str());
            recording.add(&operation_of_tag(tag), &histogram, &sums);
        }
        Ok(recording)
    }

    /// Writes the histograms in the standard interval log of HdrHistogram (V2, compressed): one line a
    /// kind over `elapsed_ns`, with the kind as its tag. `started` is the wall-clock time of the run
    /// clock's zero.
    pub fn write_log(
        &self,
        writer: &mut impl Write,
        started: SystemTime,
        elapsed_ns: u64,
    ) -> io::Result<()> {
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("latencies in nanoseconds; the interval maximum in milliseconds")
            .with_start_time(started)
            .with_base_time(started)
            .with_max_value_divisor(1e6)
            .begin_log_with(writer, &mut serializer)?;
        for kind in self.seen() {
            let whole = Duration::from_nanos(elapsed_ns);
            let tag = tag_of_operation(&kind.name);
            log.write_histogram(&kind.histogram, Duration::ZERO, whole, Tag::new(&tag))
                .map_err(log_error)?;
        }
        Ok(())
    }
}

fn log_error(error: IntervalLogWriterError<V2DeflateSerializeError>) -> io::Error {
    match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
