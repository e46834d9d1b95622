//! Latencies from the first sample to the report: a cheap clock, a recorder for each thread, and
//! what many recorders merge into.
//!
//! A thread owns one [`Recorder`] and calls [`Recorder::record`] or [`Recorder::record_at`] after
//! each operation, without locks. [`Recorder::finish`] turns it into a [`Recording`]; recordings
//! [merge](Recording::merge), and percentiles are read from the merged histograms, so that no
//! percentile is ever averaged. Histograms are HdrHistograms of nanoseconds with 3 significant
//! digits: a bucket is at most 0.1 % wide.
//!
//! Must not know: what was measured, what it was measured for, and where results are kept.
//!
//! Invariants: every sample is in exactly one interval and in the total of its kind; the intervals
//! of a kind add up to its total; the memory of a recorder does not grow with the number of
//! samples nor, beyond [`INTERVALS_MAX`] intervals, with time.

use std::collections::BTreeMap;
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
use vocabulary::report::OVERALL_OPERATION;

pub use clock::Clock;
pub use summary::{Figures, Point, Series, Summary};

/// Significant decimal digits that a histogram keeps of each value.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Once a recorder holds this many intervals it joins neighbours in pairs and doubles the interval,
/// so that a run of any length has between half this many and this many points.
pub const INTERVALS_MAX: usize = 2048;

/// Latencies above this (about 52 days) are recorded as this: no histogram grows without bound.
const LATENCY_MAX_NS: u64 = (1 << 52) - 1;

// ---------------------------------------------------------------------------------------------
// The recorder
// ---------------------------------------------------------------------------------------------

/// Names a kind of operation to the [`Recorder`] that gave it out; cheap to copy and to index with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindId(u32);

/// What one thread records into.
#[derive(Debug)]
pub struct Recorder {
    kinds: Vec<KindState>,
    /// Length of an interval, `u64::MAX` when no series is kept.
    interval_ns: u64,
    /// Number of the interval that is being recorded: it begins at this times `interval_ns`.
    interval_index: u64,
    /// Where the current interval ends; one comparison a sample decides whether it is over.
    interval_end_ns: u64,
    intervals: Vec<Interval>,
    last_ended_ns: u64,
}

#[derive(Debug)]
struct KindState {
    name: String,
    current: Histogram<u64>,
    current_figures: Sums,
    total: Histogram<u64>,
    total_figures: Sums,
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

/// A closed interval; the histograms are packed (HdrHistogram's V2 encoding, some 2 bytes for each
/// bucket in use), because thousands of them may have to be kept.
#[derive(Clone, Debug)]
struct Interval {
    index: u64,
    kinds: Vec<IntervalKind>,
}

#[derive(Clone, Debug)]
struct IntervalKind {
    /// Place of the kind in the owner's list of kinds.
    kind: usize,
    sums: Sums,
    packed: Vec<u8>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

impl Recorder {
    /// A recorder that keeps one histogram a kind and no series.
    pub fn new() -> Recorder {
        Recorder {
            kinds: Vec::new(),
            interval_ns: u64::MAX,
            interval_index: 0,
            interval_end_ns: u64::MAX,
            intervals: Vec::new(),
            last_ended_ns: 0,
        }
    }

    /// A recorder that also keeps the histograms of every interval of this length. Recorders that
    /// are to be merged must be made with the same length and read the same [`Clock`].
    ///
    /// Panics when the interval is shorter than a millisecond.
    pub fn with_intervals(interval: Duration) -> Recorder {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        assert!(
            interval_ns >= 1_000_000,
            "an interval of {interval_ns} ns is shorter than closing it takes"
        );
        Recorder { interval_ns, interval_end_ns: interval_ns, ..Recorder::new() }
    }

    /// The kind of this name, made when it is new. Spaces, commas and line ends become `_`: the
    /// histogram log format has no way to quote them.
    pub fn kind(&mut self, name: &str) -> KindId {
        let name: String = name
            .chars()
            .map(|character| match character {
                ' ' | ',' | '\r' | '\n' => '_',
                other => other,
            })
            .collect();
        let place = match self.kinds.iter().position(|kind| kind.name == name) {
            Some(place) => place,
            None => {
                self.kinds.push(KindState {
                    name,
                    current: empty_histogram(),
                    current_figures: Sums::default(),
                    total: empty_histogram(),
                    total_figures: Sums::default(),
                });
                self.kinds.len() - 1
            }
        };
        KindId(place as u32)
    }

    /// Records one operation without bytes, in the current interval.
    #[inline]
    pub fn record(&mut self, kind: KindId, latency_ns: u64) {
        self.add(kind, latency_ns, 0);
    }

    /// Records one operation that ended at `ended_ns` on the run's clock and moved `bytes`.
    ///
    /// It is counted in the interval in which it ended. A sample that ended before the current
    /// interval began (a caller that hands samples in late) is counted in the current one.
    #[inline]
    pub fn record_at(&mut self, kind: KindId, ended_ns: u64, latency_ns: u64, bytes: u64) {
        if ended_ns >= self.interval_end_ns {
            self.close_interval(ended_ns);
        }
        self.last_ended_ns = ended_ns;
        self.add(kind, latency_ns, bytes);
    }

    /// Records `count` operations of about one latency, which moved `bytes` together, in the
    /// current interval: the buckets of a histogram that another tool kept.
    pub fn record_many(&mut self, kind: KindId, latency_ns: u64, count: u64, bytes: u64) {
        if count == 0 {
            return;
        }
        let state = &mut self.kinds[kind.0 as usize];
        let latency_ns = latency_ns.min(LATENCY_MAX_NS);
        state
            .current
            .record_n(latency_ns, count)
            .expect("a histogram that grows by itself takes every value up to its limit");
        state.current_figures.add(&Sums {
            bytes,
            total_ns: latency_ns.saturating_mul(count),
            max_ns: latency_ns,
        });
    }

    #[inline]
    fn add(&mut self, kind: KindId, latency_ns: u64, bytes: u64) {
        let state = &mut self.kinds[kind.0 as usize];
        let latency_ns = latency_ns.min(LATENCY_MAX_NS);
        state
            .current
            .record(latency_ns)
            .expect("a histogram that grows by itself takes every value up to its limit");
        let sums = &mut state.current_figures;
        sums.bytes = sums.bytes.saturating_add(bytes);
        sums.total_ns = sums.total_ns.saturating_add(latency_ns);
        sums.max_ns = sums.max_ns.max(latency_ns);
    }

    /// Puts the current interval away and begins the one that contains `ended_ns`.
    #[cold]
    fn close_interval(&mut self, ended_ns: u64) {
        self.put_away();
        if self.intervals.len() >= INTERVALS_MAX {
            // Twice the throughput: neighbours 2n and 2n + 1 become n.
            self.intervals = coarsen(std::mem::take(&mut self.intervals));
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        self.interval_index = ended_ns / self.interval_ns;
        self.interval_end_ns = (self.interval_index + 1).saturating_mul(self.interval_ns);
    }

    /// Moves what was recorded since the last call into the totals and, when a series is kept, into
    /// an interval.
    fn put_away(&mut self) {
        let keeps_series = self.interval_ns != u64::MAX;
        let mut kinds = Vec::new();
        for (place, state) in self.kinds.iter_mut().enumerate() {
            if state.current.is_empty() {
                continue;
            }
            if keeps_series {
                kinds.push(IntervalKind {
                    kind: place,
                    sums: state.current_figures,
                    packed: pack(&state.current),
                });
            }
            add_histogram(&mut state.total, &state.current);
            state.total_figures.add(&state.current_figures);
            state.current.reset();
            state.current_figures = Sums::default();
        }
        if !kinds.is_empty() {
            let index = self.interval_index;
            // After joining pairs the open interval can fall into the last closed one.
            match self.intervals.last_mut() {
                Some(last) if last.index == index => join(last, kinds),
                _ => self.intervals.push(Interval { index, kinds }),
            }
        }
    }

    /// Ends the recording.
    pub fn finish(mut self) -> Recording {
        self.put_away();
        Recording {
            kinds: self
                .kinds
                .into_iter()
                .map(|state| RecordedKind {
                    name: state.name,
                    histogram: state.total,
                    sums: state.total_figures,
                })
                .collect(),
            interval_ns: self.interval_ns,
            intervals: self.intervals,
            last_ended_ns: self.last_ended_ns,
        }
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("three significant digits are within 0 to 5")
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

/// Joins intervals 2n and 2n + 1 into n.
fn coarsen(intervals: Vec<Interval>) -> Vec<Interval> {
    let mut coarse: Vec<Interval> = Vec::with_capacity(intervals.len() / 2 + 1);
    for interval in intervals {
        let index = interval.index / 2;
        match coarse.last_mut() {
            Some(last) if last.index == index => join(last, interval.kinds),
            _ => coarse.push(Interval { index, kinds: interval.kinds }),
        }
    }
    coarse
}

/// Adds the kinds of one interval to another.
fn join(interval: &mut Interval, kinds: Vec<IntervalKind>) {
    for addend in kinds {
        match interval.kinds.iter_mut().find(|kind| kind.kind == addend.kind) {
            Some(kind) => {
                let mut sum = empty_histogram();
                add_histogram(&mut sum, &unpack(&kind.packed));
                add_histogram(&mut sum, &unpack(&addend.packed));
                kind.packed = pack(&sum);
                kind.sums.add(&addend.sums);
            }
            None => interval.kinds.push(addend),
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The recording
// ---------------------------------------------------------------------------------------------

/// What one or more recorders saw, complete and ready to be read.
#[derive(Clone, Debug)]
pub struct Recording {
    kinds: Vec<RecordedKind>,
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

impl Recording {
    /// Adds what another recorder saw. Kinds are matched by name. Both must come from the same
    /// constructor with the same interval, else this panics: their series have no common axis.
    pub fn merge(&mut self, mut other: Recording) {
        if self.kinds.is_empty() {
            *self = other;
            return;
        }
        if other.kinds.is_empty() {
            return;
        }
        assert_eq!(
            self.interval_ns == u64::MAX,
            other.interval_ns == u64::MAX,
            "a recording with a series was merged with one without"
        );
        let places: Vec<usize> = other.kinds.iter().map(|kind| self.place_of(&kind.name)).collect();
        for (kind, &place) in other.kinds.iter().zip(&places) {
            add_histogram(&mut self.kinds[place].histogram, &kind.histogram);
            self.kinds[place].sums.add(&kind.sums);
        }
        // One of the two may have doubled its interval oftener.
        while self.interval_ns < other.interval_ns && !self.intervals.is_empty() {
            self.intervals = coarsen(std::mem::take(&mut self.intervals));
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        while other.interval_ns < self.interval_ns && !other.intervals.is_empty() {
            other.intervals = coarsen(std::mem::take(&mut other.intervals));
            other.interval_ns = other.interval_ns.saturating_mul(2);
        }
        if self.intervals.is_empty() {
            self.interval_ns = other.interval_ns;
        }
        assert!(
            self.interval_ns == other.interval_ns || other.intervals.is_empty(),
            "series of {} ns and {} ns intervals were merged",
            self.interval_ns,
            other.interval_ns
        );
        let mut by_index: BTreeMap<u64, Interval> = std::mem::take(&mut self.intervals)
            .into_iter()
            .map(|interval| (interval.index, interval))
            .collect();
        for mut interval in other.intervals {
            for kind in &mut interval.kinds {
                kind.kind = places[kind.kind];
            }
            match by_index.get_mut(&interval.index) {
                Some(own) => join(own, interval.kinds),
                None => {
                    by_index.insert(interval.index, interval);
                }
            }
        }
        self.intervals = by_index.into_values().collect();
        self.last_ended_ns = self.last_ended_ns.max(other.last_ended_ns);
    }

    /// Merges the recordings of all threads; an empty recording when there are none.
    pub fn merged(recordings: impl IntoIterator<Item = Recording>) -> Recording {
        let mut recordings = recordings.into_iter();
        let mut sum = recordings.next().unwrap_or_else(|| Recorder::new().finish());
        for recording in recordings {
            sum.merge(recording);
        }
        sum
    }

    /// The same recording under other names of its kinds; those of one name become one.
    #[must_use]
    pub fn renamed(self, name: impl Fn(&str) -> String) -> Recording {
        let kinds = self.kinds.iter().map(|kind| kind.name.clone()).collect::<Vec<_>>();
        let mut renamed = Recording { kinds: Vec::new(), ..self.clone() };
        let places: Vec<usize> = kinds.iter().map(|kind| renamed.place_of(&name(kind))).collect();
        for (kind, place) in self.kinds.iter().zip(&places) {
            add_histogram(&mut renamed.kinds[*place].histogram, &kind.histogram);
            renamed.kinds[*place].sums.add(&kind.sums);
        }
        for interval in &mut renamed.intervals {
            for kind in std::mem::take(&mut interval.kinds) {
                let kind = IntervalKind { kind: places[kind.kind], ..kind };
                join(interval, vec![kind]);
            }
        }
        renamed
    }

    fn place_of(&mut self, name: &str) -> usize {
        match self.kinds.iter().position(|kind| kind.name == name) {
            Some(place) => place,
            None => {
                self.kinds.push(RecordedKind {
                    name: name.to_owned(),
                    histogram: empty_histogram(),
                    sums: Sums::default(),
                });
                self.kinds.len() - 1
            }
        }
    }

    /// The kinds of which at least one operation was recorded, in the order of their first use.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.seen().map(|kind| kind.name.as_str())
    }

    fn seen(&self) -> impl Iterator<Item = &RecordedKind> {
        self.kinds.iter().filter(|kind| !kind.histogram.is_empty())
    }

    /// The histogram of one kind, in nanoseconds.
    pub fn histogram(&self, kind: &str) -> Option<&Histogram<u64>> {
        self.seen().find(|recorded| recorded.name == kind).map(|recorded| &recorded.histogram)
    }

    /// The histogram of all kinds together, in nanoseconds.
    pub fn overall(&self) -> Histogram<u64> {
        let mut overall = empty_histogram();
        for kind in self.seen() {
            add_histogram(&mut overall, &kind.histogram);
        }
        overall
    }

    /// The figures of every kind and of all together.
    pub fn summary(&self) -> Summary {
        let mut sums = Sums::default();
        let kinds = self
            .seen()
            .map(|kind| {
                sums.add(&kind.sums);
                latency_of(&kind.name, &kind.histogram, &kind.sums)
            })
            .collect();
        Summary { kinds, overall: latency_of(OVERALL_OPERATION, &self.overall(), &sums) }
    }

    /// The figures of every interval from the first to the last in which an operation ended;
    /// intervals in which none did are there with zeros. `None` when no series was kept.
    pub fn series(&self) -> Option<Series> {
        if self.interval_ns == u64::MAX {
            return None;
        }
        let mut points: Vec<Point> = Vec::with_capacity(self.intervals.len());
        let first = self.intervals.first().map_or(0, |interval| interval.index);
        for interval in &self.intervals {
            while first + (points.len() as u64) < interval.index {
                points.push(self.empty_point(first + points.len() as u64));
            }
            let mut point = self.empty_point(interval.index);
            let mut overall = empty_histogram();
            let mut sums = Sums::default();
            for kind in &interval.kinds {
                let histogram = unpack(&kind.packed);
                add_histogram(&mut overall, &histogram);
                sums.add(&kind.sums);
                point.kinds.insert(
                    self.kinds[kind.kind].name.clone(),
                    Figures::new(&histogram, &kind.sums),
                );
            }
            point.overall = Figures::new(&overall, &sums);
            points.push(point);
        }
        Some(Series { interval_ns: self.interval_ns, points })
    }

    fn empty_point(&self, index: u64) -> Point {
        let start_ns = index.saturating_mul(self.interval_ns);
        Point {
            start_ns,
            duration_ns: self.duration_from(start_ns),
            overall: Figures::default(),
            kinds: BTreeMap::new(),
        }
    }

    /// Length of the interval that begins at `start_ns`: the last one ends with the last operation.
    fn duration_from(&self, start_ns: u64) -> u64 {
        self.interval_ns.min(self.last_ended_ns.saturating_sub(start_ns)).max(1)
    }

    /// Reads what [`Recording::write_log`] wrote, without its series. Of the latencies a histogram
    /// knows no more than the bucket, so sums and maximum are those of the buckets, and bytes of none.
    ///
    /// # Errors
    ///
    /// What is no such log, with the number of the entry.
    pub fn read_log(log: &str) -> Result<Recording, String> {
        let mut recording = Recorder::new().finish();
        let mut deserializer = Deserializer::new();
        for (number, entry) in IntervalLogIterator::new(log.as_bytes()).enumerate() {
            let wrong = |problem: String| format!("entry {}: {problem}", number + 1);
            let LogEntry::Interval(interval) =
                entry.map_err(|error| wrong(format!("{error:?}")))?
            else {
                continue;
            };
            let packed = STANDARD
                .decode(interval.encoded_histogram())
                .map_err(|error| wrong(error.to_string()))?;
            let histogram: Histogram<u64> = deserializer
                .deserialize(&mut packed.as_slice())
                .map_err(|error| wrong(error.to_string()))?;
            let place = recording.place_of(interval.tag().map_or("", |tag| tag.as_str()));
            let kind = &mut recording.kinds[place];
            add_histogram(&mut kind.histogram, &histogram);
            kind.sums.add(&Sums {
                bytes: 0,
                total_ns: (histogram.mean() * histogram.len() as f64) as u64,
                max_ns: histogram.max(),
            });
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
            log.write_histogram(&kind.histogram, Duration::ZERO, whole, Tag::new(&kind.name))
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
