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
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use hdrhistogram::serialization::{
    Deserializer, Serializer, V2DeflateSerializeError, V2DeflateSerializer, V2Serializer,
};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Significant decimal digits that a histogram keeps of each value.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Once a recorder holds this many intervals it joins neighbours in pairs and doubles the interval,
/// so that a run of any length has between half this many and this many points.
pub const INTERVALS_MAX: usize = 2048;

/// Latencies above this (about 52 days) are recorded as this: no histogram grows without bound.
const LATENCY_MAX_NS: u64 = (1 << 52) - 1;

// ---------------------------------------------------------------------------------------------
// The clock
// ---------------------------------------------------------------------------------------------

/// Nanoseconds since the clock was started, read from any thread.
///
/// Where the kernel itself keeps time by the processor's counter (it has then proved the counter
/// constant in rate and equal on all processors), the clock reads that counter and scales it by a
/// rate measured once a process against `CLOCK_MONOTONIC`, to about 2 parts in a million. Elsewhere
/// it reads `CLOCK_MONOTONIC`. The difference is the cost of a read: see
/// `docs/object-language.md`, "What the laboratory itself costs".
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds a tick, times 2^32; zero when the clock is `CLOCK_MONOTONIC`.
    nanoseconds_per_tick: u64,
    /// Ticks, or nanoseconds of `CLOCK_MONOTONIC`, at the start.
    origin: u64,
}

impl Clock {
    /// Starts a clock at zero. The first call of a process takes about 20 ms to calibrate.
    pub fn start() -> Clock {
        let nanoseconds_per_tick = *tick_rate();
        let origin =
            if nanoseconds_per_tick == 0 { monotonic_ns() } else { sys::time_stamp_ticks() };
        Clock { nanoseconds_per_tick, origin }
    }

    /// Starts a clock at zero that reads `CLOCK_MONOTONIC` whatever the processor offers.
    pub fn start_monotonic() -> Clock {
        Clock { nanoseconds_per_tick: 0, origin: monotonic_ns() }
    }

    /// Nanoseconds since the start. Never decreases on one thread by more than the counter's own
    /// reordering (some nanoseconds); subtract with saturation.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        if self.nanoseconds_per_tick != 0 {
            let ticks = sys::time_stamp_ticks().saturating_sub(self.origin);
            ((u128::from(ticks) * u128::from(self.nanoseconds_per_tick)) >> 32) as u64
        } else {
            monotonic_ns().saturating_sub(self.origin)
        }
    }

    /// What the clock reads, for the facts of a result: `tsc` or `clock_monotonic`.
    pub fn source(&self) -> &'static str {
        if self.nanoseconds_per_tick == 0 { "clock_monotonic" } else { "tsc" }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds a tick times 2^32, or zero when the counter cannot be trusted.
fn tick_rate() -> &'static u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    RATE.get_or_init(|| {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let kernel_uses_counter =
            std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc");
        if cfg!(target_arch = "x86_64") && kernel_uses_counter { measure_tick_rate() } else { 0 }
    })
}

/// Measures the counter against `CLOCK_MONOTONIC` over 20 ms.
fn measure_tick_rate() -> u64 {
    let (first_ns, first_ticks) = tightest_pair();
    std::thread::sleep(Duration::from_millis(20));
    let (last_ns, last_ticks) = tightest_pair();
    let ticks = last_ticks.saturating_sub(first_ticks);
    let elapsed_ns = last_ns.saturating_sub(first_ns);
    if ticks == 0 || elapsed_ns == 0 {
        return 0;
    }
    u64::try_from((u128::from(elapsed_ns) << 32) / u128::from(ticks)).unwrap_or(0)
}

/// One reading of both clocks at nearly the same moment: of several tries the one in which the
/// counter moved least around the reading of `CLOCK_MONOTONIC`, so that an interruption between
/// the reads does not end up in the rate.
fn tightest_pair() -> (u64, u64) {
    (0..32)
        .map(|_| {
            let before = sys::time_stamp_ticks();
            let now_ns = monotonic_ns();
            let after = sys::time_stamp_ticks();
            let width = after.saturating_sub(before);
            (width, now_ns, before.wrapping_add(width / 2))
        })
        .min()
        .map(|(_, now_ns, ticks)| (now_ns, ticks))
        .expect("thirty-two tries were made")
}

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
            // Twice the pace: neighbours 2n and 2n + 1 become n.
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
                KindSummary::new(&kind.name, &kind.histogram, &kind.sums)
            })
            .collect();
        Summary { kinds, overall: KindSummary::new("overall", &self.overall(), &sums) }
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

    /// Writes the histograms in the standard interval log of HdrHistogram (V2, compressed), one
    /// line for each interval and kind with the kind as its tag; without a series, one line a kind
    /// over `elapsed_ns`. `started` is the wall-clock time of the run clock's zero.
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
        if self.interval_ns == u64::MAX {
            for kind in self.seen() {
                log.write_histogram(
                    &kind.histogram,
                    Duration::ZERO,
                    Duration::from_nanos(elapsed_ns),
                    Tag::new(&kind.name),
                )
                .map_err(log_error)?;
            }
            return Ok(());
        }
        for interval in &self.intervals {
            let start_ns = interval.index.saturating_mul(self.interval_ns);
            for kind in &interval.kinds {
                log.write_histogram(
                    &unpack(&kind.packed),
                    Duration::from_nanos(start_ns),
                    Duration::from_nanos(self.duration_from(start_ns)),
                    Tag::new(&self.kinds[kind.kind].name),
                )
                .map_err(log_error)?;
            }
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

/// The figures of a whole run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Summary {
    /// One entry a kind, in the order of their first use.
    pub kinds: Vec<KindSummary>,
    /// All kinds together, from the merged histogram.
    pub overall: KindSummary,
}

/// Count, bytes and latency distribution of one kind of operation.
///
/// A percentile is the value of the bucket that holds the sample of rank `ceil(p x count / 100)`,
/// at the bucket's upper end (at most 0.1 % above the sample) and never above the maximum.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct KindSummary {
    /// Name of the kind.
    pub kind: String,
    /// Operations.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of the latencies, exact.
    pub total_ns: u64,
    /// Mean latency, exact.
    pub mean_ns: f64,
    /// Least latency, of its bucket's lower end.
    pub min_ns: u64,
    /// 5th percentile.
    pub p5_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// 99.99th percentile.
    pub p99_99_ns: u64,
    /// Greatest latency, exact.
    pub max_ns: u64,
}

impl KindSummary {
    fn new(name: &str, histogram: &Histogram<u64>, sums: &Sums) -> KindSummary {
        let count = histogram.len();
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(sums.max_ns);
        KindSummary {
            kind: name.to_owned(),
            count,
            bytes: sums.bytes,
            total_ns: sums.total_ns,
            mean_ns: if count == 0 { 0.0 } else { sums.total_ns as f64 / count as f64 },
            min_ns: if count == 0 { 0 } else { histogram.min() },
            p5_ns: at(0.05),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: sums.max_ns,
        }
    }
}

/// Figures over time.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Series {
    /// Length of every interval but the last: the length asked for, doubled as often as the run's
    /// length made it necessary.
    pub interval_ns: u64,
    /// One point an interval, without gaps.
    pub points: Vec<Point>,
}

/// One interval of a series.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Point {
    /// Where the interval begins on the run's clock.
    pub start_ns: u64,
    /// How long it is: the last interval ends with the last operation.
    pub duration_ns: u64,
    /// All kinds together.
    pub overall: Figures,
    /// Every kind of which an operation ended in this interval.
    pub kinds: BTreeMap<String, Figures>,
}

/// What happened to one kind in one interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Figures {
    /// Operations that ended in the interval.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their latencies.
    pub total_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Greatest latency.
    pub max_ns: u64,
}

impl Figures {
    fn new(histogram: &Histogram<u64>, sums: &Sums) -> Figures {
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(sums.max_ns);
        Figures {
            count: histogram.len(),
            bytes: sums.bytes,
            total_ns: sums.total_ns,
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            max_ns: sums.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    const SECOND_NS: u64 = 1_000_000_000;

    /// The values 1, 2, ... as a multiplicative shuffle, so that no test depends on order.
    fn shuffled(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |place| (place * 7919) % count + 1)
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_sorted_samples() {
        let mut recorder = Recorder::new();
        let kind = recorder.kind("Get");
        for value in shuffled(100_000) {
            recorder.record(kind, value * 10);
        }
        let summary = recorder.finish().summary();
        let get = &summary.kinds[0];
        let near = |found: u64, exact: u64| {
            assert!(
                found >= exact && found - exact <= exact / 1000 + 1,
                "found {found}, exactly {exact}"
            );
        };
        near(get.p5_ns, 50_000);
        near(get.p50_ns, 500_000);
        near(get.p90_ns, 900_000);
        near(get.p95_ns, 950_000);
        near(get.p99_ns, 990_000);
        near(get.p99_9_ns, 999_000);
        near(get.p99_99_ns, 999_900);
        assert_eq!(get.max_ns, 1_000_000);
        assert_eq!(get.count, 100_000);
        assert_eq!(get.total_ns, 10 * 100_000 * 100_001 / 2);
        assert_eq!(summary.overall.count, 100_000);
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let mut at_once = Recorder::new();
        let mut one_by_one = Recorder::new();
        let (once, single) = (at_once.kind("read"), one_by_one.kind("read"));
        at_once.record_many(once, 1_500, 7, 7 * 512);
        at_once.record_many(once, 9_000, 0, 0);
        for _ in 0..7 {
            one_by_one.record_at(single, 0, 1_500, 512);
        }
        assert_eq!(at_once.finish().summary(), one_by_one.finish().summary());
    }

    #[test]
    fn merging_threads_gives_what_one_recorder_would_have_seen() {
        let mut whole = Recorder::with_intervals(Duration::from_secs(1));
        let mut parts: Vec<Recorder> =
            (0..3).map(|_| Recorder::with_intervals(Duration::from_secs(1))).collect();
        // The threads meet the kinds in different orders: the merge goes by name.
        parts[1].kind("Delete");
        for (place, value) in shuffled(9_000).enumerate() {
            let name = ["Put(1)", "Get(1)", "Delete"][place % 3];
            let ended_ns = place as u64 * SECOND_NS / 700;
            let part = &mut parts[(value % 3) as usize];
            for recorder in [&mut whole, part] {
                let kind = recorder.kind(name);
                recorder.record_at(kind, ended_ns, value * 1000, 512);
            }
        }
        let whole = whole.finish();
        let merged = Recording::merged(parts.into_iter().map(Recorder::finish));
        let by_name = |recording: &Recording| {
            let mut kinds = recording.summary().kinds;
            kinds.sort_by(|one, other| one.kind.cmp(&other.kind));
            kinds
        };
        assert_eq!(by_name(&whole), by_name(&merged));
        assert_eq!(whole.summary().overall, merged.summary().overall);
        assert_eq!(whole.series(), merged.series());
    }

    #[test]
    fn intervals_hold_every_sample_once_and_gaps_are_points_of_zero() {
        let mut recorder = Recorder::with_intervals(Duration::from_secs(1));
        let kind = recorder.kind("Put(4096)");
        for tenth in (0..10).chain(35..47) {
            recorder.record_at(kind, tenth * SECOND_NS / 10, 1_000 + tenth, 4096);
        }
        let series = recorder.finish().series().unwrap();
        let counts: Vec<u64> = series.points.iter().map(|point| point.overall.count).collect();
        assert_eq!(counts, [10, 0, 0, 5, 7]);
        assert_eq!(series.points[3].kinds["Put(4096)"].bytes, 5 * 4096);
        assert_eq!(series.points[4].start_ns, 4 * SECOND_NS);
        assert_eq!(series.points[4].duration_ns, 6 * SECOND_NS / 10);
        assert!(Recorder::new().finish().series().is_none());
    }

    #[test]
    fn a_long_run_doubles_its_interval_and_loses_no_sample() {
        let mut long = Recorder::with_intervals(Duration::from_millis(1));
        let kind = long.kind("Get");
        let samples = 5 * INTERVALS_MAX as u64;
        for place in 0..samples {
            long.record_at(kind, place * 1_000_000, 100 + place, 1);
        }
        let mut short = Recorder::with_intervals(Duration::from_millis(1));
        let kind = short.kind("Get");
        short.record_at(kind, 3_000_000, 77, 1);

        let mut merged = short.finish();
        merged.merge(long.finish());
        let series = merged.series().unwrap();
        assert_eq!(series.interval_ns, 8_000_000);
        assert!(series.points.len() <= INTERVALS_MAX);
        let in_points: u64 = series.points.iter().map(|point| point.overall.count).sum();
        assert_eq!(in_points, samples + 1);
        assert_eq!(merged.summary().overall.count, samples + 1);
        assert_eq!(series.points[0].overall.count, 9);
    }

    #[test]
    fn the_log_reads_back_as_the_recording() {
        for interval in [None, Some(Duration::from_secs(1))] {
            let mut recorder = interval.map_or_else(Recorder::new, Recorder::with_intervals);
            let put = recorder.kind("Put(262144)");
            let odd = recorder.kind("name, with spaces");
            for value in shuffled(5_000) {
                recorder.record_at(put, value * 1_000_000, value * 1_000, 1);
                recorder.record_at(odd, value * 1_000_000, value * 3, 1);
            }
            let recording = recorder.finish();
            let mut log = Vec::new();
            recording.write_log(&mut log, SystemTime::now(), 5 * SECOND_NS).unwrap();
            let mut read: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
            for entry in IntervalLogIterator::new(&log) {
                if let LogEntry::Interval(line) = entry.expect("the line is of the log format") {
                    let packed = base64_decode(line.encoded_histogram());
                    let histogram: Histogram<u64> =
                        Deserializer::new().deserialize(&mut &packed[..]).unwrap();
                    read.entry(line.tag().unwrap().as_str().to_owned())
                        .or_insert_with(empty_histogram)
                        .add(&histogram)
                        .unwrap();
                }
            }
            assert_eq!(read.len(), 2);
            for kind in ["Put(262144)", "name__with_spaces"] {
                assert_eq!(&read[kind], recording.histogram(kind).unwrap());
            }
        }
    }

    /// Base64 with padding (RFC 4648, section 4), for the test alone.
    fn base64_decode(text: &str) -> Vec<u8> {
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            _ => 63,
        };
        let digits = text.trim_end_matches('=').as_bytes();
        digits
            .chunks(4)
            .flat_map(|chunk| {
                let bits = chunk.iter().fold(0, |bits, &byte| bits << 6 | digit(byte))
                    << (6 * (4 - chunk.len()));
                bits.to_be_bytes()[1..chunk.len()].to_vec()
            })
            .collect()
    }

    #[test]
    fn the_clock_agrees_with_the_kernel() {
        let clock = Clock::start();
        let reference = Clock::start_monotonic();
        std::thread::sleep(Duration::from_millis(100));
        let elapsed_ns = clock.now_ns();
        let reference_ns = reference.now_ns();
        assert!(reference_ns >= 100_000_000);
        // A thousandth is what a histogram can show; a busy machine may stop us between the reads.
        let apart_ns = elapsed_ns.abs_diff(reference_ns);
        assert!(apart_ns < 5_000_000, "{apart_ns} ns apart ({})", clock.source());
    }

    #[test]
    fn extreme_latencies_are_kept_within_the_limit() {
        let mut recorder = Recorder::new();
        let kind = recorder.kind("Get");
        recorder.record(kind, 0);
        recorder.record(kind, u64::MAX);
        let summary = recorder.finish().summary();
        assert_eq!(summary.overall.count, 2);
        assert_eq!(summary.overall.min_ns, 0);
        assert_eq!(summary.overall.max_ns, LATENCY_MAX_NS);
    }

    #[test]
    fn a_summary_survives_json() {
        let mut recorder = Recorder::with_intervals(Duration::from_secs(1));
        let kind = recorder.kind("Sync");
        recorder.record_at(kind, 10, 10, 0);
        let recording = recorder.finish();
        let text = serde_json::to_string(&(recording.summary(), recording.series())).unwrap();
        let (summary, series): (Summary, Option<Series>) = serde_json::from_str(&text).unwrap();
        assert_eq!(summary, recording.summary());
        assert_eq!(series, recording.series());
    }
}
