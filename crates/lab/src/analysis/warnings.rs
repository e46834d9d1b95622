//! Which warnings a workload's records earn. The thresholds are here, the words in
//! [`crate::warning`].

use super::primary::Primary;
use super::spread::spreads;
use super::{Comparison, ContenderAnalysis, Samples, median};
use crate::plan::Plan;
use crate::record::{CommandUsage, GuestFacts, Outcome, Phase, Record};
use crate::spec::Cache;
use crate::statistics::{self, OrderEffect, Slow};
use crate::warning::{MetricOf, Warning};

/// Below this median a trial is mostly the start of the command.
const SHORT_TRIAL_NS: f64 = 50e6;

/// Above this share of its time a command is not I/O-bound.
const CPU_SHARE_MAX: f64 = 0.8;

/// Below this a load moves so little that the remark would only be noise.
const SMALL_DATA_BYTES_MIN: f64 = (1 << 20) as f64;

/// All warnings of a workload, in the order of the contenders.
pub(super) fn collect(
    plan: &Plan,
    samples: &Samples<'_>,
    contenders: &[ContenderAnalysis],
    memory_bytes: Option<u64>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let is_emulated = |record: &Record| record.guest.as_ref().is_some_and(GuestFacts::is_emulated);
    if (0..contenders.len()).any(|index| samples.completed(index).any(is_emulated)) {
        warnings.push(Warning::Emulated);
    }
    for (index, contender) in contenders.iter().enumerate() {
        let records: Vec<&Record> = samples.completed(index).collect();
        failures(contender, samples, &mut warnings);
        of_contender(contender, &records, &primary_values(samples, index), &mut warnings);
        if plan.study.cache == Cache::Cold {
            warnings.extend(warm_runs(&contender.label, &records));
        }
        if !plan.study.contenders[index].needs_device() && records.iter().any(|r| on_fuse(r)) {
            warnings.push(Warning::SyncUnknown { contender: contender.label.clone() });
        }
    }
    let labels: Vec<&str> = contenders.iter().map(|entry| entry.label.as_str()).collect();
    let spreads = spreads(samples, &labels);
    if !spreads.is_empty() {
        warnings.push(Warning::Spread { contenders: spreads });
    }
    unequal_work(samples, &mut warnings);
    split_blocks(samples, &mut warnings);
    short_trial(contenders, &mut warnings);
    device_shared(samples, contenders, &mut warnings);
    if plan.study.cache == Cache::Cold
        && let Some(reason) = caches_kept(samples)
    {
        warnings.push(Warning::CachesKept { reason });
    }
    not_io_bound(contenders, &mut warnings);
    small_data(samples, memory_bytes, &mut warnings);
    warnings
}

/// What must be known of how the primary comparisons were made.
pub(super) fn of_comparisons(
    plan: &Plan,
    primary: &Primary,
    comparisons: &[Comparison],
    warnings: &mut Vec<Warning>,
) {
    let label = |place: usize| plan.study.contenders[place].label.clone();
    let mut baseline_told = false;
    for one in comparisons.iter().filter(|one| one.primary) {
        if let (1.., Some((ratio, mean_ratio))) =
            (one.trimmed_per_side, one.ratio.zip(one.mean_ratio))
        {
            let (contender, blocks) = (one.contender.clone(), one.blocks);
            let per_side = one.trimmed_per_side;
            warnings.push(Warning::Trimmed { contender, per_side, blocks, ratio, mean_ratio });
        }
        for (contender, slow) in [(&one.baseline, one.baseline_slow), (&one.contender, one.slow)] {
            let is_baseline = *contender == one.baseline;
            let Some(slow) = slow.filter(Slow::is_mode).filter(|_| !is_baseline || !baseline_told)
            else {
                continue;
            };
            baseline_told |= is_baseline;
            warnings.push(Warning::Modes {
                contender: contender.clone(),
                metric: one.metric.clone(),
                trials: slow.trials,
                of: slow.of,
                factor: slow.factor,
            });
        }
    }
    let of_primary = comparisons.iter().filter(|one| one.primary);
    warnings.extend(of_primary.zip(&primary.wander).filter_map(|(one, found)| {
        let contender = one.contender.clone();
        found.map(|correlation| Warning::Wander { contender, correlation })
    }));
    let told = comparisons.iter().filter(|one| one.primary).zip(&primary.compared);
    warnings.extend(told.zip(&primary.wander).filter_map(|((one, compared), wander)| {
        let (contender, blocks) = (one.contender.clone(), one.blocks);
        let is_few = compared.rests_on_independence && wander.is_none();
        is_few.then_some(Warning::FewBlocks { contender, blocks })
    }));
    warnings.extend(primary.effects.iter().map(|effect| match *effect {
        OrderEffect::First { ratio } => Warning::FirstOfBlock { ratio },
        OrderEffect::After { contender, least, ratio } => {
            Warning::CarriedOver { contender: label(contender), least: label(least), ratio }
        }
    }));
}

/// The metric that is compared, with the block of each value.
fn primary_values(samples: &Samples<'_>, contender: usize) -> Vec<(u32, f64)> {
    let Some((metric, _)) = samples.metrics().into_iter().next() else { return Vec::new() };
    let values = samples.values(contender, &metric);
    values.into_iter().enumerate().filter_map(|(block, v)| Some((block as u32, v?))).collect()
}

/// Counts the trials of a block that was not finished too: they are in no metric, but that they
/// failed must be known.
fn failures(contender: &ContenderAnalysis, samples: &Samples<'_>, warnings: &mut Vec<Warning>) {
    let is_own = |record: &&&Record| record.contender.label == contender.label;
    let left_over: Vec<&&Record> = samples.left_over.iter().filter(is_own).collect();
    let failed_there = left_over.iter().filter(|r| r.outcome != Outcome::Completed).count();
    let failed = contender.failed + failed_there;
    if failed > 0 {
        let trials = contender.trials + left_over.len();
        warnings.push(Warning::Failures { contender: contender.label.clone(), failed, trials });
    }
}

fn of_contender(
    contender: &ContenderAnalysis,
    records: &[&Record],
    values: &[(u32, f64)],
    warnings: &mut Vec<Warning>,
) {
    let label = || contender.label.clone();
    let Some(metric) = contender.metrics.first() else { return };
    let summary = &metric.summary;
    let metric = || MetricOf { name: metric.name.clone(), unit: metric.unit };
    let values_only: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    // Where the first block's trial failed, the first that is left is like the others.
    if records.first().is_some_and(|record| record.block == 0)
        && let Some(ratio) = statistics::odd_first_block(&values_only)
    {
        let (contender, metric) = (label(), metric());
        warnings.push(match (ratio > 1.0) == metric.unit.more_is_better() {
            true => Warning::FastFirstBlock { contender, metric, ratio },
            false => Warning::SlowFirstBlock { contender, metric, ratio },
        });
    }
    if let Some(change) = statistics::drift(&values_only) {
        warnings.push(Warning::Drift { contender: label(), metric: metric(), change });
    }
    if !summary.outliers.is_empty() && summary.median > 0.0 {
        warnings.push(Warning::Outliers {
            contender: label(),
            metric: metric(),
            blocks: summary.outliers.iter().map(|index| values[*index].0).collect(),
            ratios: summary.outliers.iter().map(|i| values[*i].1 / summary.median).collect(),
        });
    }
    let busy: Vec<_> = records
        .iter()
        .filter_map(|record| record.idle_wait.as_ref())
        .filter(|wait| !wait.idle)
        .collect();
    if let Some(first) = busy.first() {
        let (trials, cause) = (busy.len(), first.cause.clone());
        warnings.push(Warning::DeviceBusy { contender: label(), trials, cause });
    }
    if records.iter().any(|record| record.outlived) {
        warnings.push(Warning::Outlived { contender: label() });
    }
}

/// Less than this is noise of the file system's own: a few blocks of metadata, a read-ahead.
const WARM_DIFFERENCE_BYTES_MIN: u64 = 64 << 10;

/// Whether what the cold runs read from the device falls apart in two: some read less than half of
/// the others. Where others use the device too, or caches were kept, nothing follows from it; nor of
/// loads that do as much as they can in a time.
fn warm_runs(label: &str, records: &[&Record]) -> Option<Warning> {
    let read_bytes = |record: &&Record| {
        let is_own = !record.device_shared && record.caches_kept.is_none();
        let is_told = is_own && record.load.is_none();
        let device = record.phase(Phase::Run)?.device.as_ref().filter(|_| is_told)?;
        Some((device.read_bytes, record.block))
    };
    let mut runs: Vec<(u64, u32)> = records.iter().filter_map(read_bytes).collect();
    runs.sort();
    let is_gap = |pair: &[(u64, u32)]| {
        let difference_bytes = pair[1].0 - pair[0].0;
        difference_bytes > pair[0].0 && difference_bytes > WARM_DIFFERENCE_BYTES_MIN
    };
    let last_warm = runs.windows(2).rposition(is_gap)?;
    let mut blocks: Vec<u32> = runs[..=last_warm].iter().map(|(_, block)| *block).collect();
    blocks.sort();
    Some(Warning::WarmRuns {
        contender: label.to_string(),
        blocks,
        read_bytes_max: runs[last_warm].0,
        others_bytes_min: runs[last_warm + 1].0,
    })
}

/// Whether the third field of the mount's line, the type, is FUSE's: `fuse`, `fuseblk`, `fuse.x`.
fn on_fuse(record: &Record) -> bool {
    let line = record.mounted_as.as_deref().unwrap_or_default();
    line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("fuse"))
}

/// Two trials of one block and workload follow each other at once; a pause of this length means
/// that kurabe was not running.
const PAUSE_NS_MIN: u64 = 60_000_000_000;

fn split_blocks(samples: &Samples<'_>, warnings: &mut Vec<Warning>) {
    let blocks = samples.records.first().map_or(0, Vec::len);
    let split = |block: usize| {
        let mut records: Vec<&Record> =
            samples.records.iter().filter_map(|contender| contender[block]).collect();
        records.sort_by_key(|record| record.started_unix_ns);
        records.windows(2).any(|pair| {
            let ended = pair[0].started_unix_ns.saturating_add(pair[0].elapsed_ns);
            pair[1].started_unix_ns.saturating_sub(ended) >= PAUSE_NS_MIN
        })
    };
    let blocks: Vec<u32> = (0..blocks).filter(|b| split(*b)).map(|block| block as u32).collect();
    if !blocks.is_empty() {
        warnings.push(Warning::SplitBlock { blocks });
    }
}

/// Loads that prove their work must have done the same work everywhere.
fn unequal_work(samples: &Samples<'_>, warnings: &mut Vec<Warning>) {
    let mut proofs: Vec<(&str, &str)> = Vec::new();
    for record in samples.records.iter().flatten().flatten().chain(&samples.left_over) {
        if let Some(proof) = record.load.as_ref().and_then(|load| load.proof.as_deref())
            && !proofs.iter().any(|(known, _)| *known == proof)
        {
            proofs.push((proof, &record.contender.label));
        }
    }
    if let [one, other, ..] = proofs.as_slice() {
        warnings.push(Warning::UnequalWork {
            contender: other.1.to_string(),
            found: other.0.to_string(),
            other: one.1.to_string(),
            expected: one.0.to_string(),
        });
    }
}

/// Speaks of the contender with the shortest trials only: the remedy is the same for all.
fn short_trial(contenders: &[ContenderAnalysis], warnings: &mut Vec<Warning>) {
    let medians = contenders
        .iter()
        .filter_map(|contender| Some((contender.time.as_ref()?.median, &contender.label)));
    if let Some((median_ns, label)) = medians.min_by(|one, other| one.0.total_cmp(&other.0))
        && median_ns < SHORT_TRIAL_NS
    {
        warnings.push(Warning::ShortTrial { contender: label.clone(), median_ns });
    }
}

fn device_shared(
    samples: &Samples<'_>,
    contenders: &[ContenderAnalysis],
    warnings: &mut Vec<Warning>,
) {
    let shared: Vec<&str> = contenders
        .iter()
        .enumerate()
        .filter(|(index, _)| samples.completed(*index).any(|record| record.device_shared))
        .map(|(_, contender)| contender.label.as_str())
        .collect();
    if !shared.is_empty() {
        warnings.push(Warning::DeviceShared { contender: shared.join(", ") });
    }
}

fn caches_kept(samples: &Samples<'_>) -> Option<String> {
    let records = samples.records.iter().flatten().flatten();
    records.filter_map(|record| record.caches_kept.clone()).next()
}

/// Speaks of the contender with the smallest share only: where even that one waits for the CPU,
/// the others do more so.
///
/// A command that spent more CPU time than time passed had several CPUs; how many it could have
/// had is not known, so the least number is taken, and the share is that of each.
fn not_io_bound(contenders: &[ContenderAnalysis], warnings: &mut Vec<Warning>) {
    let share = |contender: &ContenderAnalysis| {
        let spent = contender.cost.command_cpu_ns? / contender.time.as_ref()?.median;
        // A thousandth above a whole number is the clock's doing.
        let cpus = (spent - 0.001).ceil().max(1.0);
        Some((spent / cpus, cpus as u32))
    };
    let least = contenders
        .iter()
        .filter_map(|contender| Some((share(contender)?, contender)))
        .min_by(|one, other| one.0.0.total_cmp(&other.0.0));
    if let Some(((cpu_share, cpus), contender)) = least
        && cpu_share > CPU_SHARE_MAX
    {
        let contender = contender.label.clone();
        warnings.push(Warning::NotIoBound { contender, cpus, cpu_share });
    }
}

/// A load that never reads what it wrote is none the worse for much memory: its writes are on the
/// device by the end of the sync. So this speaks of loads that read much more than they fetched
/// from storage or passed on to it (from a pipe, from `/dev/zero`): the rest came from a cache. All
/// of it is from the command's own accounts, which nobody else's requests are part of; file systems
/// whose storage the kernel does not count there are left out.
fn small_data(samples: &Samples<'_>, memory_bytes: Option<u64>, warnings: &mut Vec<Warning>) {
    let Some(memory_bytes) = memory_bytes else { return };
    let least_cached = (0..samples.records.len())
        .filter_map(|contender| {
            let usages = || {
                samples
                    .completed(contender)
                    .filter(|record| record.counts_write_bytes == Some(true))
                    .filter_map(|record| record.command.as_ref())
            };
            let of = |bytes: fn(&CommandUsage) -> Option<u64>| {
                median(usages().filter_map(bytes).map(|bytes| bytes as f64))
            };
            let fetched = of(|usage| usage.storage_read_bytes)?;
            Some((of(|usage| usage.read_call_bytes)?, fetched, of(|u| u.storage_written_bytes)?))
        })
        .max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((read, fetched, written)) = least_cached
        && read - fetched - written >= SMALL_DATA_BYTES_MIN.max((fetched + written) / 4.0)
        && (SMALL_DATA_BYTES_MIN..memory_bytes as f64).contains(&(fetched + written))
    {
        warnings.push(Warning::SmallData {
            data_bytes: (fetched + written) as u64,
            read_bytes: read as u64,
            fetched_bytes: fetched as u64,
            memory_bytes,
        });
    }
}
