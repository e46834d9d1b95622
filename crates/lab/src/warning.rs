//! Warnings: what a reader must know before she trusts a number, and what to do about it.
//!
//! Each text names the contender and the value, and ends with the next action.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load::Unit;
use crate::record::TIME_METRIC;
use crate::statistics::Verdict;
use crate::watched::Disturbed;
use crate::words;

/// A doubt about a workload's numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Trials failed.
    Failures {
        /// Label.
        contender: String,
        /// How many.
        failed: usize,
        /// Of how many.
        trials: usize,
    },
    /// The run with its sync is too short to be told from the cost of starting it.
    ShortTrial {
        /// Label of the contender with the shortest trials.
        contender: String,
        /// Median time of run and sync in ns.
        median_ns: f64,
    },
    /// The first block was slower than the others: something was cold.
    SlowFirstBlock {
        /// Label.
        contender: String,
        /// What is compared.
        metric: MetricOf,
        /// The first block's value over the geometric mean of the others.
        ratio: f64,
    },
    /// The first block was faster than the others: something was fresh.
    FastFirstBlock {
        /// Label.
        contender: String,
        /// What is compared.
        metric: MetricOf,
        /// The first block's value over the geometric mean of the others.
        ratio: f64,
    },
    /// The values rise or fall over the blocks.
    Drift {
        /// Label.
        contender: String,
        /// What is compared.
        metric: MetricOf,
        /// Change from the first block to the last, relative to the first.
        change: f64,
    },
    /// Trials far from the others, by their median absolute deviation.
    Outliers {
        /// Label.
        contender: String,
        /// What is compared.
        metric: MetricOf,
        /// Blocks, from 0.
        blocks: Vec<u32>,
        /// Values of these over the median.
        ratios: Vec<f64>,
    },
    /// Trials of one contender differ by large factors.
    Spread {
        /// Those of which they do, the worst first.
        contenders: Vec<Spread>,
    },
    /// Ratios were set aside for the estimate, since single ones lie far out.
    Trimmed {
        /// Label.
        contender: String,
        /// How many on either side.
        per_side: usize,
        /// Of how many.
        blocks: usize,
        /// The ratio that is printed.
        ratio: f64,
        /// The ratio of the means, in which all trials count.
        mean_ratio: f64,
    },
    /// Trials of one contender fall into two kinds.
    Modes {
        /// Label.
        contender: String,
        /// What is compared.
        metric: String,
        /// How many are of the slow kind.
        trials: usize,
        /// Of how many.
        of: usize,
        /// How many times as long they take.
        factor: f64,
    },
    /// The first trial of a block is slower or faster than the others.
    FirstOfBlock {
        /// Its cost over that of the others.
        ratio: f64,
    },
    /// What runs after one contender costs more.
    CarriedOver {
        /// Label of the one after which it costs most.
        contender: String,
        /// Label of the one after which it costs least.
        least: String,
        /// The ratio of both.
        ratio: f64,
    },
    /// The ratios follow the ones before them, so that the blocks are no independent trials.
    Wander {
        /// Label.
        contender: String,
        /// Correlation of a block's ratio with the one before.
        correlation: f64,
    },
    /// A difference that so few blocks show only if they are independent.
    FewBlocks {
        /// Label.
        contender: String,
        /// How many there are.
        blocks: usize,
    },
    /// Others use the device.
    DeviceShared {
        /// Labels of all contenders that stand on such a device.
        contender: String,
    },
    /// The device did not become idle before the run.
    DeviceBusy {
        /// Label.
        contender: String,
        /// In how many trials.
        trials: usize,
        /// What it was busy with, when it can be named.
        cause: Option<String>,
    },
    /// What the load writes and reads fits in memory, and most of what it read did not come from
    /// storage.
    SmallData {
        /// Bytes that the load sent to storage or fetched from it.
        data_bytes: u64,
        /// Bytes that it read by read calls.
        read_bytes: u64,
        /// Of these, bytes that were fetched from storage.
        fetched_bytes: u64,
        /// Memory of the machine in bytes.
        memory_bytes: u64,
    },
    /// The command spends its time on the CPU.
    NotIoBound {
        /// Label of the contender with the smallest share.
        contender: String,
        /// Least number of CPUs on which the command can have spent its CPU time.
        cpus: u32,
        /// CPU time of the command over its time on each of these CPUs.
        cpu_share: f64,
    },
    /// Trials of one block lie far apart in time: the machine slept, or a version of kurabe that did
    /// not repeat half blocks resumed the study.
    SplitBlock {
        /// Blocks, from 0.
        blocks: Vec<u32>,
    },
    /// Two contenders did not do the same work.
    UnequalWork {
        /// Label.
        contender: String,
        /// What its trial proved.
        found: String,
        /// Label of the contender that it differs from.
        other: String,
        /// What that one's trial proved.
        expected: String,
    },
    /// Caches could not be dropped.
    CachesKept {
        /// Why.
        reason: String,
    },
    /// Cold runs of one contender read so differently much from the device that some found in
    /// memory what others had to fetch.
    WarmRuns {
        /// Label.
        contender: String,
        /// Blocks of the trials that read less, from 0.
        blocks: Vec<u32>,
        /// Most bytes that one of these read.
        read_bytes_max: u64,
        /// Fewest bytes that one of the others read.
        others_bytes_min: u64,
    },
    /// A directory on a file system in user space, which no sync can be asked of.
    SyncUnknown {
        /// Label.
        contender: String,
    },
    /// Processes of the command outlived it.
    Outlived {
        /// Label.
        contender: String,
    },
    /// A verdict would be another one without the runs that the machine disturbed.
    Disturbed {
        /// Label.
        contender: String,
        /// Label of the one that it is compared with.
        baseline: String,
        /// Of these two, those of whom some runs were disturbed.
        runs: Vec<(String, Disturbed)>,
        /// The verdict.
        verdict: Verdict,
        /// What it would be.
        without: Verdict,
    },
    /// The contenders lived in guests with an emulated processor.
    Emulated,
}

/// The metric that a warning speaks of. Its unit says whether more of it is better.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricOf {
    /// `time`, or a metric of the load.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
}

impl MetricOf {
    /// What a change of the value by this factor is.
    fn throughput(&self, factor: f64) -> &'static str {
        if (factor > 1.0) == self.unit.more_is_better() { "faster" } else { "slower" }
    }
}

impl fmt::Display for MetricOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            TIME_METRIC => f.write_str(TIME_METRIC),
            metric => write!(f, "'{metric}'"),
        }
    }
}

/// By how much the trials of one contender differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Label.
    pub contender: String,
    /// The metric that differs most.
    pub metric: String,
    /// Its largest value over its smallest.
    pub factor: f64,
    /// Block of the one of these two that lies farther from the median, from 0.
    pub block: u32,
    /// How many metrics differ so much that they are told.
    pub metrics: usize,
    /// Of how many.
    pub metrics_all: usize,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { contender, metric, factor, block, metrics, metrics_all } = self;
        let factor = words::factor(*factor);
        write!(f, "{contender} by a factor of {factor} (block {}", block + 1)?;
        match metrics_all {
            1 => write!(f, ")"),
            all => write!(f, ", '{metric}'; by 3 or more in {metrics} of {all} metrics)"),
        }
    }
}

impl Warning {
    /// Whether the warning casts doubt on the numbers themselves, rather than on what they can be
    /// taken to mean.
    pub fn is_grave(&self) -> bool {
        !matches!(
            self,
            Warning::SmallData { .. }
                | Warning::Outliers { .. }
                | Warning::NotIoBound { .. }
                | Warning::FirstOfBlock { .. }
                | Warning::Wander { .. }
                | Warning::FewBlocks { .. }
        )
    }
}

fn milliseconds(ns: f64) -> String {
    format!("{:.1} ms", ns / 1e6)
}

fn gibibytes(bytes: u64) -> String {
    if bytes < 1 << 30 {
        format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
    } else {
        format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Failures { contender, failed, trials } => write!(
                f,
                "{contender}: {failed} of {trials} trials failed; records.jsonl has the reasons"
            ),
            Warning::ShortTrial { contender, median_ns } => write!(
                f,
                "{contender}: run and sync take only {} (median): start-up and timer noise may dominate; give the load more to do (at least 50 ms)",
                milliseconds(*median_ns)
            ),
            Warning::SlowFirstBlock { contender, metric, ratio } => write!(
                f,
                "{contender}: the first block was slower than the others ({metric} {ratio:.2} times theirs); add --warmup 1"
            ),
            Warning::FastFirstBlock { contender, metric, ratio } => write!(
                f,
                "{contender}: the first block was faster than the others ({metric} {ratio:.2} times theirs), as when a flash cache fills; add --warmup 1 to measure what lasts"
            ),
            Warning::Drift { contender, metric, change } => write!(
                f,
                "{contender}: {metric} {} by {:.0} % over the blocks ({}); the ratios are paired and suffer less, but look for a device that heats, fills or is shared, and repeat",
                if *change > 0.0 { "rose" } else { "fell" },
                change.abs() * 100.0,
                metric.throughput(1.0 + change)
            ),
            Warning::Outliers { contender, metric, blocks, ratios } => {
                let places: Vec<String> = blocks
                    .iter()
                    .zip(ratios)
                    .map(|(block, ratio)| {
                        let throughput = metric.throughput(*ratio);
                        format!("block {} ({ratio:.2} times the median: {throughput})", block + 1)
                    })
                    .collect();
                write!(
                    f,
                    "{contender}: outliers of {metric} in {}; they are kept; look for other load on the machine and raise --min-runs",
                    places.join(", ")
                )
            }
            Warning::Spread { contenders } => {
                let each: Vec<String> = contenders.iter().map(Spread::to_string).collect();
                write!(
                    f,
                    "trials vary widely: {}; look for other load on the machine, then measure longer and raise --min-runs",
                    words::list(&each)
                )
            }
            Warning::Trimmed { contender, per_side, blocks, ratio, mean_ratio } => write!(
                f,
                "{contender}: single ratios lie far out, so the {per_side} largest and the {per_side} smallest of {blocks} were set aside for the ratio of {}; by the means, with all trials, it is {}",
                words::ratio(*ratio),
                words::ratio(*mean_ratio)
            ),
            Warning::Modes { contender, metric, trials, of, factor } => write!(
                f,
                "{contender}: {trials} of {of} trials cost {} times as much as the others ({metric}), so no single ratio describes it and it is not called the same as another; look for what sets them apart in records.jsonl",
                words::ratio(*factor)
            ),
            Warning::FirstOfBlock { ratio } => write!(
                f,
                "the first trial of a block costs {} times as much as the others; this was taken out of the ratios",
                words::ratio(*ratio)
            ),
            Warning::CarriedOver { contender, least, ratio } => write!(
                f,
                "what runs after {contender} costs {} times as much as what runs after {least}; this was taken out of the ratios, but look for a device that is still busy or full, and raise --idle-wait",
                words::ratio(*ratio)
            ),
            Warning::Wander { contender, correlation } => write!(
                f,
                "{contender}: its ratios wander (each follows the one before, correlation {correlation:.1}), so its interval may be too narrow; look for what builds up from block to block, and run more blocks",
            ),
            Warning::FewBlocks { contender, blocks } => write!(
                f,
                "{contender}: {blocks} blocks do not show that their ratios are independent; if each followed the one before, the difference would not be certain; to make sure: kurabe resume RESULT --more {blocks}",
            ),
            Warning::Disturbed { contender, baseline, runs, verdict, without } => {
                let each: Vec<String> =
                    runs.iter().map(|(label, runs)| format!("{label}: {runs}")).collect();
                write!(
                    f,
                    "{contender} against {baseline} is {verdict}; without the disturbed runs: {without} ({}); repeat it on a quiet machine: kurabe resume RESULT --more BLOCKS",
                    words::list(&each)
                )
            }
            Warning::Emulated => f.write_str(
                "the guests' processor was an emulated one (TCG): times are its own and say nothing of a real one; compare what was written, flushes and amplification, and take a machine with KVM for times",
            ),
            Warning::DeviceShared { contender } => write!(
                f,
                "{contender}: the device also serves others, so the device columns count theirs too; use --device for counts of the load alone"
            ),
            Warning::DeviceBusy { contender, trials, cause } => write!(
                f,
                "{contender}: the device was still busy{} when {trials} of its runs began; raise --idle-wait",
                cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default()
            ),
            Warning::SmallData { data_bytes, read_bytes, fetched_bytes, memory_bytes } => write!(
                f,
                "the load's data ({}) fits in the machine's memory ({}): of {} that it read, {} came from storage and the rest from caches or pipes; to see the device read, use more data than memory",
                gibibytes(*data_bytes),
                gibibytes(*memory_bytes),
                gibibytes(*read_bytes),
                gibibytes(*fetched_bytes)
            ),
            Warning::NotIoBound { contender, cpus, cpu_share } => {
                let (busy, unless) = match cpus {
                    1 => ("one CPU".to_string(), ", unless it works in parallel,"),
                    several => (format!("{several} CPUs"), ""),
                };
                write!(
                    f,
                    "{contender}: the command keeps {busy} busy for {:.0} % of its time, so{unless} a faster file system can save little; use a load with less computation to see more",
                    cpu_share * 100.0
                )
            }
            Warning::SplitBlock { blocks } => {
                let blocks: Vec<String> = blocks.iter().map(|b| (b + 1).to_string()).collect();
                write!(
                    f,
                    "the trials of block {} lie more than a minute apart (the machine slept, or an older kurabe resumed the study in the middle of a block); where that could matter, begin the study anew",
                    blocks.join(", ")
                )
            }
            Warning::UnequalWork { contender, found, other, expected } => write!(
                f,
                "{contender} did other work than {other} ({found} against {expected}); do not compare their metrics, and look for a file system that lost or changed data"
            ),
            Warning::CachesKept { reason } => write!(
                f,
                "caches were not dropped before the runs ({reason}), so reads may come from memory; run as root, or say --cache warm"
            ),
            Warning::WarmRuns { contender, blocks, read_bytes_max, others_bytes_min } => {
                let blocks: Vec<String> = blocks.iter().map(|b| (b + 1).to_string()).collect();
                write!(
                    f,
                    "{contender}: the runs of block {} read at most {} KiB from the device, the others at least {} KiB, so not all began with equally cold caches or did the same work; see 'notes' and 'phases' in records.jsonl, and repeat",
                    blocks.join(", "),
                    read_bytes_max >> 10,
                    others_bytes_min >> 10
                )
            }
            Warning::SyncUnknown { contender } => write!(
                f,
                "{contender}: it lies on a FUSE file system, to which the kernel hands no sync(2) on, so the sync phase may have made nothing durable; let the command sync its files by itself (fsync)"
            ),
            Warning::Outlived { contender } => write!(
                f,
                "{contender}: processes of the command outlived it and may have written during the sync; let the command wait for its children"
            ),
        }
    }
}
