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

use serde::Serialize;
use vocabulary::cost::DeviceDelta;

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
pub struct IntervalBytes {
    /// Where it begins; the counter samples count from the same zero.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// What the application moved in it.
    pub bytes: u64,
}

impl IntervalBytes {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / (self.duration_ns.max(1) as f64 / 1e9)
    }
}

impl From<&Second> for IntervalBytes {
    fn from(second: &Second) -> Self {
        Self { start_ns: second.start_ns, duration_ns: second.duration_ns, bytes: second.bytes }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Where the series is cut best: the moment of a step, the middle of a slope.
    pub changed_at_ns: u64,
    /// The mean before the cut.
    pub early_bytes_per_second: f64,
    /// The mean after it.
    pub late_bytes_per_second: f64,
    /// `late / early - 1`.
    pub change: f64,
    pub cause: DriftCause,
    /// The figures that the cause was told from, one sentence each.
    pub evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftCause {
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

impl Drift {
    /// When, by how much and why, for a reader.
    pub fn words(&self) -> String {
        let cause = match self.cause {
            DriftCause::CacheFilling => "the filling of the page cache accounts for it",
            DriftCause::Space => "the file system ran short of space",
            DriftCause::Device => "the device did the same work more slowly",
            DriftCause::MoreDeviceWork => {
                "the file system made the device move more for the same work"
            }
            DriftCause::AboveDevice => {
                "the device was busy for less of the time: the cause lies above it"
            }
            DriftCause::Unexplained => "the counters do not account for it",
        };
        format!(
            "throughput {} by {:.0} % after {:.0} s ({:.1} to {:.1} MiB/s): {cause}",
            if self.change < 0.0 { "sank" } else { "rose" },
            self.change.abs() * 100.0,
            self.changed_at_ns as f64 / 1e9,
            self.early_bytes_per_second / MEBIBYTE,
            self.late_bytes_per_second / MEBIBYTE,
        )
    }
}

/// The drift of a series; none where it is too short to tell, or no change is both certain and
/// large enough.
///
/// `intervals` in order of time; `counters` may be empty or lack parts, then fewer causes can
/// be told.
pub fn drift_of(intervals: &[IntervalBytes], counters: &[CounterSample]) -> Option<Drift> {
    let intervals = without_stumps(intervals);
    if intervals.len() < INTERVALS_MIN {
        return None;
    }
    let rates: Vec<f64> = intervals.iter().map(IntervalBytes::rate).collect();
    let cut = best_cut(&rates);
    let change = if cut.early > 0.0 { cut.late / cut.early - 1.0 } else { 0.0 };
    if cut.statistic.max(slope_statistic(&rates)) < SUP_F_CRITICAL || change.abs() < CHANGE_MIN {
        return None;
    }
    let changed_at_ns = intervals[cut.place].start_ns;
    let (cause, evidence) = cause_of(&intervals, counters, changed_at_ns, change);
    Some(Drift {
        changed_at_ns,
        early_bytes_per_second: cut.early,
        late_bytes_per_second: cut.late,
        change,
        cause,
        evidence,
    })
}

/// Drops intervals of less than half the usual length: the last of a phase often is one, and
/// its rate is all noise.
fn without_stumps(intervals: &[IntervalBytes]) -> Vec<IntervalBytes> {
    let mut durations: Vec<u64> = intervals.iter().map(|interval| interval.duration_ns).collect();
    durations.sort_unstable();
    let usual_ns = durations.get(durations.len() / 2).copied().unwrap_or(0);
    intervals.iter().filter(|interval| interval.duration_ns * 2 >= usual_ns).copied().collect()
}

struct Cut {
    /// The first interval of the late part.
    place: usize,
    early: f64,
    late: f64,
    statistic: f64,
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
    let residual = |(index, rate)| rate - if index < place { early } else { late };
    let residuals: Vec<f64> = rates.iter().enumerate().map(residual).collect();
    Cut { place, early, late, statistic: certainty(gain(place), &residuals) }
}

/// The test's statistic for the straight line with the least squares.
fn slope_statistic(rates: &[f64]) -> f64 {
    let count = rates.len() as f64;
    let mean_y = rates.iter().sum::<f64>() / count;
    let from_middle = |x: usize| x as f64 - (count - 1.0) / 2.0;
    let all = || rates.iter().enumerate();
    let xx: f64 = all().map(|(x, _)| from_middle(x).powi(2)).sum();
    let slope = all().map(|(x, y)| from_middle(x) * (y - mean_y)).sum::<f64>() / xx;
    let residuals: Vec<f64> = all().map(|(x, y)| y - mean_y - slope * from_middle(x)).collect();
    certainty(slope * slope * xx, &residuals)
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

/// The sums of one part of the run.
struct Part {
    seconds: f64,
    application_bytes: f64,
    read_bytes: f64,
    written_bytes: f64,
    requests: f64,
    busy_seconds: f64,
    dirty_growth_bytes: f64,
}

/// The cause, and the figures that it was told from.
fn cause_of(
    intervals: &[IntervalBytes],
    counters: &[CounterSample],
    changed_at_ns: u64,
    change: f64,
) -> (DriftCause, Vec<String>) {
    let mut evidence = Vec::new();
    // Neither makes a run faster.
    let dirty_filled = dirty_filled(counters, changed_at_ns, &mut evidence) && change < 0.0;
    let short_of_space = short_of_space(counters, changed_at_ns, &mut evidence) && change < 0.0;
    let part = |from_ns: u64, to_ns: u64| sum_part(intervals, counters, from_ns, to_ns);
    let start_ns = intervals.first().map_or(0, |interval| interval.start_ns);
    let end_ns = intervals.last().map_or(0, |interval| interval.start_ns + interval.duration_ns);
    let parts = part(start_ns, changed_at_ns).zip(part(changed_at_ns, end_ns));
    let mechanism = match parts {
        None => {
            evidence.push("there are no device counters for this run".to_owned());
            if dirty_filled { DriftCause::CacheFilling } else { DriftCause::Unexplained }
        }
        Some((early, late)) if early.busy_seconds == 0.0 && late.busy_seconds == 0.0 => {
            evidence.push("the device was idle before and after the change".to_owned());
            return (DriftCause::AboveDevice, evidence);
        }
        Some((early, late)) => {
            let shares = shares(&early, &late);
            describe(&early, &late, shares, &mut evidence);
            let causes = [
                DriftCause::MoreDeviceWork,
                DriftCause::CacheFilling,
                DriftCause::Device,
                DriftCause::AboveDevice,
            ];
            let largest =
                shares.into_iter().zip(causes).max_by(|one, other| one.0.total_cmp(&other.0));
            largest
                .filter(|(share, _)| *share >= SHARE_MIN)
                .map_or(DriftCause::Unexplained, |(_, cause)| cause)
        }
    };
    let cause = match mechanism {
        // Pages that are deleted or overwritten before they are written cost the device
        // nothing, as long as the cache may keep them; once its dirty part is full they
        // are written, and T/E falls although the file system does nothing else.
        DriftCause::MoreDeviceWork if dirty_filled => DriftCause::CacheFilling,
        // Want of space works through any of the other factors, or through several.
        mechanism if mechanism != DriftCause::CacheFilling && short_of_space => DriftCause::Space,
        mechanism => mechanism,
    };
    (cause, evidence)
}

type LatencySeries = Vec<(u64, f64)>;

/// A counter over time, where it was told.
fn series(
    counters: &[CounterSample],
    field: impl Fn(&CounterSample) -> Option<f64>,
) -> LatencySeries {
    counters.iter().filter_map(|sample| Some((sample.elapsed_ns, field(sample)?))).collect()
}

fn dirty(counters: &[CounterSample]) -> LatencySeries {
    series(counters, |sample| Some(sample.dirty_bytes? as f64))
}

/// A counter at the start, at the change and at the end, with the seconds between.
fn around(series: &LatencySeries, changed_at_ns: u64) -> Option<([f64; 3], [f64; 2])> {
    let (first, last) = (series.first()?, series.last()?);
    let at_change = value_at(series, changed_at_ns)?;
    let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
    let spans = [seconds(first.0, changed_at_ns), seconds(changed_at_ns, last.0)];
    Some(([first.1, at_change, last.1], spans))
}

/// Takes down what a counter was at the start, at the change and at the end, in a unit of so much.
fn tell(evidence: &mut Vec<String>, what: &str, values: [f64; 3], unit: &str, size: f64) {
    let [first, middle, last] = values.map(|value| format!("{:.0} {unit}", value / size));
    evidence
        .push(format!("{what}: {first} at the start, {middle} at the change, {last} at the end"));
}

/// Whether the dirty part of the page cache grew before the change and no longer after it.
fn dirty_filled(
    counters: &[CounterSample],
    changed_at_ns: u64,
    evidence: &mut Vec<String>,
) -> bool {
    let around = around(&dirty(counters), changed_at_ns);
    let Some((values, [early, late])) =
        around.filter(|(_, spans)| spans.iter().all(|one| *one > 0.0))
    else {
        return false;
    };
    tell(evidence, "dirty page cache", values, "MiB", MEBIBYTE);
    let [first, middle, last] = values;
    let (early_growth, late_growth) = ((middle - first) / early, (last - middle) / late);
    middle > 1.5 * first && early_growth > 1e6 && late_growth < early_growth / 4.0
}

fn short_of_space(
    counters: &[CounterSample],
    changed_at_ns: u64,
    evidence: &mut Vec<String>,
) -> bool {
    let free = series(counters, |sample| sample.free_part);
    let Some((values, _)) = around(&free, changed_at_ns) else { return false };
    tell(evidence, "free space", values, "%", 0.01);
    values[2] < FREE_PART_SHORT && values[0] - values[2] > FREE_PART_FALL_MIN
}

fn describe(early: &Part, late: &Part, shares: [f64; 4], evidence: &mut Vec<String>) {
    let pair = |figure: &dyn Fn(&Part) -> f64| (figure(early), figure(late));
    let (written_early, written_late) = pair(&|part| part.written_bytes / part.seconds / MEBIBYTE);
    let (read_early, read_late) = pair(&|part| part.read_bytes / part.seconds / MEBIBYTE);
    let (busy_early, busy_late) = pair(&|part| 100.0 * part.busy_seconds / part.seconds);
    let (size_early, size_late) =
        pair(&|part| (part.read_bytes + part.written_bytes) / part.requests.max(1.0) / 1024.0);
    let [work, cache, device, busy] = shares.map(|share| share * 100.0);
    evidence.extend([
        format!(
            "the device wrote {written_early:.1} MiB/s before and {written_late:.1} MiB/s after, \
             and read {read_early:.1} and {read_late:.1} MiB/s"
        ),
        format!(
            "it was busy {busy_early:.0} % of the time before and {busy_late:.0} % after, in \
             requests of {size_early:.0} and {size_late:.0} KiB"
        ),
        format!(
            "shares in the change: cache {cache:.0} %, file system's work {work:.0} %, device \
             {device:.0} %, device not busy {busy:.0} %"
        ),
    ]);
}

/// The sums over a part of the run; none when a counter of the device is missing.
fn sum_part(
    intervals: &[IntervalBytes],
    counters: &[CounterSample],
    from_ns: u64,
    to_ns: u64,
) -> Option<Part> {
    let within = intervals.iter().filter(|one| (from_ns..to_ns).contains(&one.start_ns));
    let difference =
        |series: LatencySeries| Some(value_at(&series, to_ns)? - value_at(&series, from_ns)?);
    let of_device = |field: fn(&DeviceDelta) -> u64| {
        difference(series(counters, |sample| Some(field(&sample.device?) as f64)))
    };
    Some(Part {
        seconds: to_ns.checked_sub(from_ns).filter(|span| *span > 0)? as f64 / 1e9,
        application_bytes: within.map(|interval| interval.bytes as f64).sum(),
        read_bytes: of_device(|device| device.read_bytes)?,
        written_bytes: of_device(|device| device.written_bytes)?,
        requests: of_device(|device| device.reads + device.writes)?,
        busy_seconds: of_device(|device| device.busy_ms)? / 1e3,
        // Without the page cache's figures all writes count as due when the device does them.
        dirty_growth_bytes: difference(dirty(counters)).unwrap_or(0.0),
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

/// The share of each factor in the change: T/E, E/D, D/B and B. They add up to 1; one below 0 worked
/// against the change.
fn shares(early: &Part, late: &Part) -> [f64; 4] {
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
    let logarithms: [f64; 4] = std::array::from_fn(|factor| (after[factor] / before[factor]).ln());
    let total: f64 = logarithms.iter().sum();
    logarithms.map(|logarithm| if total == 0.0 { 0.0 } else { logarithm / total })
}

#[cfg(test)]
#[path = "drift_tests.rs"]
mod tests;
