//! Says whether a run's throughput drifted, when, and which counter accounts for it.
//!
//! Pure functions of a series and of counter samples; knows nothing of how either came about.
//!
//! *Whether*: the series is cut where two levels fit it best. It drifted when the levels differ
//! by [`CHANGE_MIN`] at least and either the cut or a straight slope through the series is
//! certain: Andrews's sup-F test at the 1 % level, with a variance that allows for neighbouring
//! seconds that resemble each other. (The slope has a test of its own because two levels fit it
//! badly; held to the same bound, which is above its own, it costs few false alarms.)
//!
//! *Why*: the throughput T (application bytes a second) is an exact product of four factors,
//!
//! ```text
//! T = T/E  x  E/D  x  D/B  x  B
//!
//! E  bytes that the application's writes made due on the device: device writes plus the growth
//!    of the page cache's dirty part
//! D  bytes that the device moved, reads and writes
//! B  the part of the time that the device was busy
//! ```
//!
//! so the logarithm of the change of T is the sum of the logarithms of the changes of the
//! factors, and each has a share in it. T/E falls when the file system writes more for the same
//! work; E/D falls when the cache stops taking work over (or starts to miss reads); D/B falls
//! when the device gets slower for its work; B falls when the time goes elsewhere.

use serde::{Deserialize, Serialize};

use super::counters::CounterSample;
use super::replay::Second;

/// A change of the level that is smaller than this is no drift, however certain it is.
pub const CHANGE_MIN: f64 = 0.1;
/// Bytes in a MiB, the unit in which evidence is told.
const MEBIBYTE: f64 = 1_048_576.0;
/// The least number of intervals from which a drift can be told.
pub const INTERVALS_MIN: usize = 20;
/// The part at either end in which no cut is looked for.
const TRIM: f64 = 0.15;
/// Andrews, "Tests for Parameter Instability and Structural Change With Unknown Change Point",
/// Econometrica 61 (1993), table I: one parameter, trimming 0.15, 1 % level.
const SUP_F_CRITICAL: f64 = 12.35;
/// A factor accounts for a drift when it has at least this share in it.
const SHARE_MIN: f64 = 0.5;
/// A file system with less than this part free is short of space.
const FREE_PART_SHORT: f64 = 0.2;
/// The part of a file system by which its free space must have fallen to matter.
const FREE_PART_FALL_MIN: f64 = 0.05;

/// The bytes of one interval of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins; the counter samples count from the same zero.
    pub start_ns: u64,
    /// How long it is.
    pub duration_ns: u64,
    /// What the application moved in it.
    pub bytes: u64,
}

impl From<&Second> for Interval {
    fn from(second: &Second) -> Self {
        Self { start_ns: second.start_ns, duration_ns: second.duration_ns, bytes: second.bytes }
    }
}

/// Whether a series drifted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum DriftVerdict {
    /// The series has too few intervals to tell.
    TooShort {
        /// How many it has.
        intervals: usize,
    },
    /// No change of level that is both certain and large enough.
    Steady {
        /// The largest change that was looked at, as a part of the early level.
        change: f64,
        /// The greater of the two tests' statistics.
        statistic: f64,
    },
    /// The level changed.
    Drifted(Box<Drift>),
}

/// A drift and its account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Where the series is cut best: the moment of a step, the middle of a slope.
    pub changed_at_ns: u64,
    /// Whether two levels or one slope fit the series better.
    pub shape: Shape,
    /// The mean before the cut.
    pub early_bytes_per_second: f64,
    /// The mean after it.
    pub late_bytes_per_second: f64,
    /// `late / early - 1`.
    pub change: f64,
    /// The greater of the two tests' statistics.
    pub statistic: f64,
    /// What accounts for it.
    pub cause: Cause,
    /// The factors' shares, where the counters allow to tell them.
    pub shares: Option<Shares>,
    /// The figures that the cause was told from, one sentence each.
    pub evidence: Vec<String>,
}

/// The shape of a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One level, then another.
    Step,
    /// A slope through the whole series.
    Slope,
}

/// What accounts for a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The page cache first took work over from the device, and then was full (or, when the
    /// throughput rose, the other way round).
    CacheFilling,
    /// The file system ran short of space.
    Space,
    /// The device did the same work more slowly.
    Device,
    /// The file system made the device move more for the same work of the application.
    MoreDeviceWork,
    /// The device was busy for less of the time: the time went to processors, locks or waits
    /// above it.
    AboveDevice,
    /// The counters at hand do not account for it.
    Unexplained,
}

/// The share of each factor in the change of the throughput; they add up to 1. A share below 0
/// worked against the change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// T/E: application bytes for each byte made due on the device.
    pub work: f64,
    /// E/D: bytes made due for each byte that the device moved at the time.
    pub cache: f64,
    /// D/B: bytes that the device moved in each busy second.
    pub device: f64,
    /// B: the busy part of the time.
    pub busy: f64,
}

/// Judges a series.
///
/// `intervals` in order of time; `counters` may be empty or lack parts, then fewer causes can
/// be told.
#[must_use]
pub fn verdict(intervals: &[Interval], counters: &[CounterSample]) -> DriftVerdict {
    let intervals = without_stumps(intervals);
    if intervals.len() < INTERVALS_MIN {
        return DriftVerdict::TooShort { intervals: intervals.len() };
    }
    let rates: Vec<f64> = intervals.iter().map(Interval::rate).collect();
    let cut = best_cut(&rates);
    let slope = best_slope(&rates);
    let statistic = cut.statistic.max(slope.statistic);
    let change = if cut.early > 0.0 { cut.late / cut.early - 1.0 } else { 0.0 };
    if statistic < SUP_F_CRITICAL || change.abs() < CHANGE_MIN {
        return DriftVerdict::Steady { change, statistic };
    }
    let changed_at_ns = intervals[cut.place].start_ns;
    let mut account = Account::new(&intervals, counters, changed_at_ns);
    let (cause, shares) = account.cause(change);
    DriftVerdict::Drifted(Box::new(Drift {
        changed_at_ns,
        shape: if slope.squares < cut.squares { Shape::Slope } else { Shape::Step },
        early_bytes_per_second: cut.early,
        late_bytes_per_second: cut.late,
        change,
        statistic,
        cause,
        shares,
        evidence: account.evidence,
    }))
}

impl Interval {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / (self.duration_ns.max(1) as f64 / 1e9)
    }
}

/// Drops intervals of less than half the usual length: the last of a phase often is one, and
/// its rate is all noise.
fn without_stumps(intervals: &[Interval]) -> Vec<Interval> {
    let mut durations: Vec<u64> = intervals.iter().map(|interval| interval.duration_ns).collect();
    durations.sort_unstable();
    let usual_ns = durations.get(durations.len() / 2).copied().unwrap_or(0);
    intervals.iter().filter(|interval| interval.duration_ns * 2 >= usual_ns).copied().collect()
}

// ---------------------------------------------------------------------------------------------
// Whether and when
// ---------------------------------------------------------------------------------------------

struct Cut {
    /// The first interval of the late part.
    place: usize,
    early: f64,
    late: f64,
    statistic: f64,
    /// The sum of the squares of what it leaves unexplained.
    squares: f64,
}

struct Slope {
    statistic: f64,
    squares: f64,
}

/// The cut into two levels with the least squares, and the test's statistic for it.
fn best_cut(rates: &[f64]) -> Cut {
    let count = rates.len();
    let margin = ((count as f64 * TRIM).ceil() as usize).max(2);
    let mut sums = vec![0.0];
    for rate in rates {
        sums.push(sums[sums.len() - 1] + rate);
    }
    let level = |from: usize, to: usize| (sums[to] - sums[from]) / (to - from) as f64;
    let gain = |place: usize| {
        let difference = level(0, place) - level(place, count);
        let weight = place as f64 * (count - place) as f64 / count as f64;
        weight * difference * difference
    };
    let place = (margin..=count - margin)
        .max_by(|one, other| gain(*one).total_cmp(&gain(*other)))
        .unwrap_or(count / 2);
    let (early, late) = (level(0, place), level(place, count));
    let residuals: Vec<f64> = rates
        .iter()
        .enumerate()
        .map(|(index, rate)| rate - if index < place { early } else { late })
        .collect();
    Cut {
        place,
        early,
        late,
        statistic: certainty(gain(place), &residuals),
        squares: sum_of_squares(&residuals),
    }
}

/// The straight line with the least squares.
fn best_slope(rates: &[f64]) -> Slope {
    let count = rates.len() as f64;
    let mean_x = (count - 1.0) / 2.0;
    let mean_y = rates.iter().sum::<f64>() / count;
    let mut xx = 0.0;
    let mut xy = 0.0;
    for (x, y) in rates.iter().enumerate() {
        xx += (x as f64 - mean_x).powi(2);
        xy += (x as f64 - mean_x) * (y - mean_y);
    }
    let slope = xy / xx;
    let residuals: Vec<f64> =
        rates.iter().enumerate().map(|(x, y)| y - mean_y - slope * (x as f64 - mean_x)).collect();
    Slope {
        statistic: certainty(slope * slope * xx, &residuals),
        squares: sum_of_squares(&residuals),
    }
}

fn sum_of_squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// How much of the squares a model explains, in units of what chance explains.
fn certainty(explained: f64, residuals: &[f64]) -> f64 {
    let variance = long_run_variance(residuals);
    if variance > 0.0 {
        explained / variance
    } else if explained > 0.0 {
        // The model fits exactly.
        f64::MAX
    } else {
        0.0
    }
}

/// The variance of the residuals' mean over a long run, times the count: the greater of two
/// estimates, since each misses some kind of dependence between neighbours.
///
/// One is Newey and West's (Econometrica 55, 1987) with Bartlett weights over a bandwidth of
/// the square root of the count: dbench's own passes over its load file make rates rise and
/// fall over many seconds, so a short bandwidth would take them for drifts. The other is that
/// of a first-order autoregression, s^2 / (1 - rho)^2, with rho corrected for the bias that
/// estimating two levels from the same data brings (Marriott and Pope, Biometrika 41, 1954,
/// give (1 + 3 rho) / n for one level).
fn long_run_variance(residuals: &[f64]) -> f64 {
    let count = residuals.len();
    let bandwidth = (count as f64).sqrt().ceil() as usize;
    let covariance = |lag: usize| {
        residuals.iter().zip(&residuals[lag..]).map(|(one, other)| one * other).sum::<f64>()
            / count as f64
    };
    let own = covariance(0);
    let crossed: f64 = (1..=bandwidth.min(count - 1))
        .map(|lag| 2.0 * (1.0 - lag as f64 / (bandwidth + 1) as f64) * covariance(lag))
        .sum();
    let found = if own > 0.0 { (covariance(1) / own).clamp(0.0, 0.99) } else { 0.0 };
    let rho = (found + 2.0 * (1.0 + 3.0 * found) / count as f64).min(0.97);
    let autoregressive = own * (1.0 - rho * rho) / ((1.0 - rho) * (1.0 - rho));
    // Residuals that swing back look less variable in the long run than they are in a run of
    // this length, so the estimate never goes below their own variance.
    (own + crossed).max(own).max(autoregressive)
}

// ---------------------------------------------------------------------------------------------
// Why
// ---------------------------------------------------------------------------------------------

/// The sums of one part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    seconds: f64,
    application_bytes: f64,
    read_bytes: f64,
    written_bytes: f64,
    requests: f64,
    busy_seconds: f64,
    dirty_growth_bytes: f64,
}

struct Account<'a> {
    counters: &'a [CounterSample],
    changed_at_ns: u64,
    parts: Option<(Part, Part)>,
    evidence: Vec<String>,
}

impl<'a> Account<'a> {
    fn new(intervals: &[Interval], counters: &'a [CounterSample], changed_at_ns: u64) -> Self {
        let start_ns = intervals.first().map_or(0, |interval| interval.start_ns);
        let end_ns =
            intervals.last().map_or(0, |interval| interval.start_ns + interval.duration_ns);
        let part = |from_ns: u64, to_ns: u64| {
            let application_bytes: u64 = intervals
                .iter()
                .filter(|interval| (from_ns..to_ns).contains(&interval.start_ns))
                .map(|interval| interval.bytes)
                .sum();
            sum_part(counters, from_ns, to_ns, application_bytes as f64)
        };
        let parts = part(start_ns, changed_at_ns).zip(part(changed_at_ns, end_ns));
        Self { counters, changed_at_ns, parts, evidence: Vec::new() }
    }

    fn cause(&mut self, change: f64) -> (Cause, Option<Shares>) {
        let dirty_filled = self.dirty_filled();
        let short_of_space = self.short_of_space();
        let Some((early, late)) = self.parts else {
            self.evidence.push("there are no device counters for this run".to_owned());
            let cause = if change < 0.0 && dirty_filled {
                Cause::CacheFilling
            } else if change < 0.0 && short_of_space {
                Cause::Space
            } else {
                Cause::Unexplained
            };
            return (cause, None);
        };
        if early.busy_seconds == 0.0 && late.busy_seconds == 0.0 {
            self.evidence.push("the device was idle before and after the change".to_owned());
            return (Cause::AboveDevice, None);
        }
        let shares = shares(&early, &late);
        self.describe(&early, &late, &shares);
        let largest = [
            (shares.work, Cause::MoreDeviceWork),
            (shares.cache, Cause::CacheFilling),
            (shares.device, Cause::Device),
            (shares.busy, Cause::AboveDevice),
        ]
        .into_iter()
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(share, _)| *share >= SHARE_MIN);
        let mechanism = largest.map_or(Cause::Unexplained, |(_, cause)| cause);
        let cause = match mechanism {
            Cause::CacheFilling => Cause::CacheFilling,
            // Pages that are deleted or overwritten before they are written cost the device
            // nothing, as long as the cache may keep them; once its dirty part is full they
            // are written, and T/E falls although the file system does nothing else.
            Cause::MoreDeviceWork if change < 0.0 && dirty_filled => Cause::CacheFilling,
            // Want of space works through any of the other factors, or through several.
            _ if change < 0.0 && short_of_space => Cause::Space,
            other => other,
        };
        (cause, Some(shares))
    }

    /// Whether the dirty part of the page cache grew before the change and no longer after it.
    fn dirty_filled(&mut self) -> bool {
        let dirty: Vec<(u64, f64)> = self
            .counters
            .iter()
            .filter_map(|sample| {
                let memory = sample.memory?;
                let bytes = memory.dirty_bytes + memory.writeback_bytes;
                Some((sample.elapsed_ns, bytes as f64))
            })
            .collect();
        let (Some(first), Some(last)) = (dirty.first(), dirty.last()) else {
            return false;
        };
        let Some(at_change) = value_at(&dirty, self.changed_at_ns) else {
            return false;
        };
        let early_seconds = (self.changed_at_ns - first.0.min(self.changed_at_ns)) as f64 / 1e9;
        let late_seconds = last.0.saturating_sub(self.changed_at_ns) as f64 / 1e9;
        if early_seconds <= 0.0 || late_seconds <= 0.0 {
            return false;
        }
        let early_growth = (at_change - first.1) / early_seconds;
        let late_growth = (last.1 - at_change) / late_seconds;
        self.evidence.push(format!(
            "dirty page cache: {:.0} MiB at the start, {:.0} MiB at the change, {:.0} MiB at the end",
            first.1 / MEBIBYTE,
            at_change / MEBIBYTE,
            last.1 / MEBIBYTE
        ));
        at_change > 1.5 * first.1 && early_growth > 1e6 && late_growth < early_growth / 4.0
    }

    fn short_of_space(&mut self) -> bool {
        let free: Vec<(u64, f64)> = self
            .counters
            .iter()
            .filter_map(|sample| {
                let space = sample.space?;
                (space.total_bytes > 0).then(|| {
                    (sample.elapsed_ns, space.free_bytes as f64 / space.total_bytes as f64)
                })
            })
            .collect();
        let (Some(first), Some(last)) = (free.first(), free.last()) else {
            return false;
        };
        let Some(at_change) = value_at(&free, self.changed_at_ns) else {
            return false;
        };
        self.evidence.push(format!(
            "free space: {:.0} % at the start, {:.0} % at the change, {:.0} % at the end",
            first.1 * 100.0,
            at_change * 100.0,
            last.1 * 100.0
        ));
        last.1 < FREE_PART_SHORT && first.1 - last.1 > FREE_PART_FALL_MIN
    }

    fn describe(&mut self, early: &Part, late: &Part, shares: &Shares) {
        let pair = |figure: &dyn Fn(&Part) -> f64| (figure(early), figure(late));
        let (written_early, written_late) =
            pair(&|part| part.written_bytes / part.seconds / MEBIBYTE);
        let (read_early, read_late) = pair(&|part| part.read_bytes / part.seconds / MEBIBYTE);
        self.evidence.push(format!(
            "the device wrote {written_early:.1} MiB/s before and {written_late:.1} MiB/s after, \
             and read {read_early:.1} and {read_late:.1} MiB/s"
        ));
        let (busy_early, busy_late) = pair(&|part| 100.0 * part.busy_seconds / part.seconds);
        let (size_early, size_late) =
            pair(&|part| (part.read_bytes + part.written_bytes) / part.requests.max(1.0) / 1024.0);
        self.evidence.push(format!(
            "it was busy {busy_early:.0} % of the time before and {busy_late:.0} % after, in \
             requests of {size_early:.0} and {size_late:.0} KiB"
        ));
        self.evidence.push(format!(
            "shares in the change: cache {:.0} %, file system's work {:.0} %, device {:.0} %, \
             device not busy {:.0} %",
            shares.cache * 100.0,
            shares.work * 100.0,
            shares.device * 100.0,
            shares.busy * 100.0
        ));
    }
}

/// The counters' differences over a part of the run; none when a counter is missing.
fn sum_part(
    counters: &[CounterSample],
    from_ns: u64,
    to_ns: u64,
    application_bytes: f64,
) -> Option<Part> {
    let difference = |field: &dyn Fn(&CounterSample) -> Option<f64>| {
        let series: Vec<(u64, f64)> = counters
            .iter()
            .filter_map(|sample| Some((sample.elapsed_ns, field(sample)?)))
            .collect();
        Some(value_at(&series, to_ns)? - value_at(&series, from_ns)?)
    };
    Some(Part {
        seconds: (to_ns.checked_sub(from_ns).filter(|span| *span > 0)?) as f64 / 1e9,
        application_bytes,
        read_bytes: difference(&|sample| Some(sample.device?.read_bytes as f64))?,
        written_bytes: difference(&|sample| Some(sample.device?.written_bytes as f64))?,
        requests: difference(&|sample| {
            let device = sample.device?;
            Some((device.reads + device.writes) as f64)
        })?,
        busy_seconds: difference(&|sample| Some(sample.device?.busy_ns as f64 / 1e9))?,
        // Without the page cache's figures all writes count as due when the device does them.
        dirty_growth_bytes: difference(&|sample| {
            let memory = sample.memory?;
            Some((memory.dirty_bytes + memory.writeback_bytes) as f64)
        })
        .unwrap_or(0.0),
    })
}

/// A series' value at a moment, by straight lines between its points and level beyond them.
fn value_at(series: &[(u64, f64)], at_ns: u64) -> Option<f64> {
    let after = series.partition_point(|(elapsed_ns, _)| *elapsed_ns < at_ns);
    match (after.checked_sub(1).and_then(|before| series.get(before)), series.get(after)) {
        (Some(before), Some(next)) => {
            let span = (next.0 - before.0) as f64;
            let part = if span > 0.0 { (at_ns - before.0) as f64 / span } else { 1.0 };
            Some(before.1 + part * (next.1 - before.1))
        }
        (None, Some(only)) | (Some(only), None) => Some(only.1),
        (None, None) => None,
    }
}

fn shares(early: &Part, late: &Part) -> Shares {
    // Floors far below anything that matters keep the logarithms finite where nothing moved.
    let factors = |part: &Part| {
        let floor_bytes = part.seconds * 1024.0;
        let due = (part.written_bytes + part.dirty_growth_bytes).max(floor_bytes);
        let moved = (part.written_bytes + part.read_bytes).max(floor_bytes);
        let busy = part.busy_seconds.max(part.seconds * 1e-4);
        let application = part.application_bytes.max(floor_bytes);
        [application / due, due / moved, moved / busy, busy / part.seconds]
    };
    let (before, after) = (factors(early), factors(late));
    let logarithms: Vec<f64> =
        before.iter().zip(&after).map(|(before, after)| (after / before).ln()).collect();
    let total: f64 = logarithms.iter().sum();
    let share = |index: usize| if total == 0.0 { 0.0 } else { logarithms[index] / total };
    Shares { work: share(0), cache: share(1), device: share(2), busy: share(3) }
}

#[cfg(test)]
#[path = "drift_tests.rs"]
mod tests;
