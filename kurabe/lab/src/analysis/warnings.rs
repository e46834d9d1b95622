//! Which warnings a workload's records earn, and their words.

use super::primary::Primary;
use super::slices;
use super::spread::spread;
use super::{Comparison, ContenderAnalysis, Samples, median};
use crate::plan::Plan;
use crate::record::{
    CommandUsage, DeviceDelta, GuestFacts, ModelledDisk, Outcome, Phase, Record, TIME_METRIC,
};
use crate::spec::Cache;
use crate::statistics::{self, OrderEffect, Slow};
use crate::warning::{Warning, WarningKind};
use crate::words;
use crate::workload::Unit;

/// Below this median a trial is mostly the start of the command.
const SHORT_TRIAL_NS: f64 = 50e6;
/// What a tool counts by itself is warned of below this.
const SHORT_COUNT_NS: f64 = 200e6;

/// Above this share of its time a command is not I/O-bound.
const CPU_SHARE_MAX: f64 = 0.8;

/// Below this a workload moves so little that the remark would only be noise.
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
        warnings.push(Warning::new(
            WarningKind::Emulated,
            "the guests' processor was an emulated one (TCG): times are its own and say nothing of a real one; compare what was written, flushes and amplification, and take a machine with KVM for times",
        ));
    }
    let model_of = |index| samples.completed(index).find_map(|record| record.disks.first());
    let measured = (0..contenders.len())
        .find(|index| model_of(*index).is_none() && samples.completed(*index).next().is_some());
    for (index, contender) in contenders.iter().enumerate() {
        let records: Vec<&Record> = samples.completed(index).collect();
        failures(contender, samples, &mut warnings);
        if let (Some(disk), Some(other)) = (model_of(index), measured) {
            warnings.push(Warning::of(
                WarningKind::Modelled,
                &contender.label,
                format!(
                    "its times are those of a modelled disk ({}:{}), and those of {} were measured, so between the two only bytes and counts compare; give --device a model, and all lie on it",
                    disk.layer, disk.profile, contenders[other].label
                ),
            ));
        }
        warnings.extend(late_replies(&contender.label, &records));
        warnings.extend(lost_events(&contender.label, &records));
        of_contender(contender, &records, &primary_values(samples, index), &mut warnings);
        if plan.study.cache == Cache::Cold {
            warnings.extend(warm_runs(&contender.label, &records));
        }
        if !plan.study.contenders[index].needs_device() && records.iter().any(|r| on_fuse(r)) {
            warnings.push(Warning::of(
                WarningKind::SyncUnknown,
                &contender.label,
                "it lies on a FUSE file system, to which the kernel hands no sync(2) on, so the sync phase may have made nothing durable; let the command sync its files by itself (fsync)",
            ));
        }
    }
    let labels: Vec<&str> = contenders.iter().map(|entry| entry.label.as_str()).collect();
    warnings.extend(spread(samples, &labels));
    unequal_work(samples, &mut warnings);
    split_blocks(samples, &mut warnings);
    short_trial(contenders, &mut warnings);
    short_count(samples, &labels, &mut warnings);
    device_shared(samples, contenders, &mut warnings);
    if plan.study.cache == Cache::Cold
        && let Some(reason) = caches_kept(samples)
    {
        warnings.push(Warning::new(
            WarningKind::CachesKept,
            format!(
                "caches were not dropped before the runs ({reason}), so reads may come from memory; --cache warm makes that the same for all"
            ),
        ));
    }
    not_io_bound(contenders, &mut warnings);
    small_data(samples, memory_bytes, &mut warnings);
    slices::tell(plan, samples, &mut warnings);
    warnings
}

/// What must be known of how the primary comparisons were made.
pub(super) fn of_comparisons(
    plan: &Plan,
    primary: &Primary,
    comparisons: &[Comparison],
    warnings: &mut Vec<Warning>,
) {
    let label = |place: usize| &plan.study.contenders[place].label;
    let mut baseline_told = false;
    for one in comparisons.iter().filter(|one| one.primary) {
        if let (1.., Some((ratio, mean_ratio))) =
            (one.trimmed_per_side, one.ratio.zip(one.mean_ratio))
        {
            let (per_side, blocks) = (one.trimmed_per_side, one.blocks);
            let cost = |ratio: f64| words::ratio(one.cost_of(ratio));
            let (ratio, mean_ratio) = (cost(ratio), cost(mean_ratio));
            warnings.push(Warning::of(
                WarningKind::Trimmed,
                &one.contender,
                format!(
                    "a few rounds lie far from the others, so the {per_side} highest and the {per_side} lowest of {blocks} were set aside: cost {ratio}; {mean_ratio} with all of them"
                ),
            ));
        }
        for (contender, slow) in [(&one.baseline, one.baseline_slow), (&one.contender, one.slow)] {
            let is_baseline = *contender == one.baseline;
            let Some(slow) = slow.filter(Slow::is_mode).filter(|_| !is_baseline || !baseline_told)
            else {
                continue;
            };
            baseline_told |= is_baseline;
            let (Slow { trials, of, factor, of_turns }, metric) = (slow, &one.metric);
            let factor = words::ratio(factor);
            let _ = of_turns;
            warnings.push(Warning::of(
                WarningKind::Modes,
                contender,
                format!(
                    "{trials} of {of} runs cost {factor} times as much as the others ({metric}), possibly a second mode; {} averages both; records.jsonl may show what sets them apart",
                    if is_baseline { "every cost" } else { "its cost" }
                ),
            ));
        }
    }
    let of_primary = comparisons.iter().filter(|one| one.primary);
    warnings.extend(of_primary.zip(&primary.serial_correlation).filter_map(|(one, found)| {
        found.map(|correlation| Warning::of(
            WarningKind::SerialCorrelation,
            &one.contender,
            format!(
                "its cost drifts from round to round (correlation with the previous round {correlation:.1}), so its interval may be too narrow; look for what builds up over the rounds, and measure more rounds"
            ),
        ))
    }));
    let told = comparisons.iter().filter(|one| one.primary).zip(&primary.compared);
    warnings.extend(told.zip(&primary.serial_correlation).filter_map(|((one, compared), serial_correlation)| {
        let blocks = one.blocks;
        let is_few = compared.rests_on_independence && serial_correlation.is_none();
        is_few.then(|| Warning::of(
            WarningKind::FewBlocks,
            &one.contender,
            format!(
                "{blocks} rounds are too few to show that they do not affect each other, which the difference rests on; {blocks} more would make sure"
            ),
        ))
    }));
    warnings.extend(primary.effects.iter().map(|effect| match *effect {
        OrderEffect::First { ratio } => Warning::new(
            WarningKind::FirstOfBlock,
            format!(
                "the first run of a round costs {} times as much as the others; the costs are corrected for this",
                words::ratio(ratio)
            ),
        ),
        OrderEffect::After { contender, least, ratio } => Warning::new(
            WarningKind::CarriedOver,
            format!(
                "what runs after {} costs {} times as much as what runs after {}; the costs are corrected for this, but look for a device that is still busy or full, and raise --idle-wait",
                label(contender),
                words::ratio(ratio),
                label(least)
            ),
        ),
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
        let text = format!("{failed} of {trials} runs failed");
        warnings.push(Warning::of(WarningKind::Failures, &contender.label, text));
    }
}

fn of_contender(
    contender: &ContenderAnalysis,
    records: &[&Record],
    values: &[(u32, f64)],
    warnings: &mut Vec<Warning>,
) {
    let mut warn = |kind, text: String| warnings.push(Warning::of(kind, &contender.label, text));
    let Some(metric) = contender.metrics.first() else { return };
    let (summary, unit) = (&metric.summary, metric.unit);
    let metric = match metric.name.as_str() {
        TIME_METRIC => TIME_METRIC.to_string(),
        name => format!("'{name}'"),
    };
    let values_only: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    // Where the first block's trial failed, the first that is left is like the others.
    if records.first().is_some_and(|record| record.block == 0)
        && let Some(ratio) = statistics::odd_first_block(&values_only)
    {
        if (ratio > 1.0) == unit.more_is_better() {
            warn(
                WarningKind::FastFirstBlock,
                format!(
                    "the first round was faster than the others ({metric} {ratio:.2} times theirs), as when a flash cache fills; add --warmup 1 to measure what lasts"
                ),
            )
        } else {
            warn(
                WarningKind::SlowFirstBlock,
                format!(
                    "the first round was slower than the others ({metric} {ratio:.2} times theirs); add --warmup 1"
                ),
            )
        }
    }
    if let Some(change) = statistics::drift(&values_only) {
        let verb = if change > 0.0 { "rose" } else { "fell" };
        let (percent, throughput) = (change.abs() * 100.0, throughput(unit, 1.0 + change));
        warn(
            WarningKind::Drift,
            format!(
                "{metric} {verb} by {percent:.0} % over the rounds ({throughput}); costs compare runs of the same round and suffer less, but look for a device that heats, fills or is shared, and repeat"
            ),
        );
    }
    if !summary.outliers.is_empty() && summary.median > 0.0 {
        let place = |index: &usize| {
            let (block, ratio) = (values[*index].0 + 1, values[*index].1 / summary.median);
            let throughput = throughput(unit, ratio);
            format!("round {block} ({ratio:.2} times the median: {throughput})")
        };
        let places: Vec<String> = summary.outliers.iter().map(place).collect();
        warn(
            WarningKind::Outliers,
            format!(
                "outliers of {metric} in {}; they are kept. Look for other work on the machine and raise --min-rounds",
                places.join(", ")
            ),
        );
    }
    let busy: Vec<_> = records
        .iter()
        .filter_map(|record| record.idle_wait.as_ref())
        .filter(|wait| !wait.idle)
        .collect();
    if let Some(first) = busy.first() {
        let trials = busy.len();
        let cause = first.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        warn(
            WarningKind::DeviceBusy,
            format!(
                "the device was still busy{cause} when {trials} of its runs began; raise --idle-wait"
            ),
        );
    }
    if records.iter().any(|record| record.outlived) {
        warn(
            WarningKind::Outlived,
            "processes of the command outlived it and may have written during the sync; let the command wait for its children".into(),
        );
    }
}

/// What a change of a value by this factor is.
fn throughput(unit: Unit, factor: f64) -> &'static str {
    if (factor > 1.0) == unit.more_is_better() { "faster" } else { "slower" }
}

/// Blocks as people count them.
fn numbers(mut blocks: Vec<u32>) -> String {
    blocks.sort();
    blocks.iter().map(|block| (block + 1).to_string()).collect::<Vec<_>>().join(", ")
}

/// Less than this is noise of the file system's own: a few blocks of metadata, a read-ahead.
const WARM_DIFFERENCE_BYTES_MIN: u64 = 64 << 10;

/// Of many runs, fewer than this share read what they did by chance: an inode table's block more.
const WARM_SHARE_MIN: f64 = 0.05;

/// Whether what the cold runs read from the device falls apart in two: some read less than half of
/// the others. The turns of a trial are looked at one by one, since a mean hides them. Where others
/// use the device too, or caches were kept, nothing follows from it; nor of workloads that do as much as
/// they can in a time, or another part of a run in each turn.
fn warm_runs(label: &str, records: &[&Record]) -> Option<Warning> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    let mut moved_bytes_max = 0;
    let mut add = |device: DeviceDelta, block: u32| {
        moved_bytes_max = moved_bytes_max.max(device.read_bytes + device.written_bytes);
        runs.push((device.read_bytes, block));
    };
    for record in records.iter().filter(|one| !one.device_shared && one.caches_kept.is_none()) {
        let is_proved = record.load.as_ref().is_none_or(|load| load.proof.is_some());
        if slices::are_whole_runs(record) {
            let devices = record.slices.iter().filter_map(|slice| slice.device);
            devices.for_each(|device| add(device, record.block));
        } else if let Some(device) = record.phase(Phase::Run).and_then(|run| run.device)
            && record.slices.is_empty()
            && is_proved
        {
            add(device, record.block);
        }
    }
    runs.sort();
    let is_gap = |pair: &[(u64, u32)]| {
        let difference_bytes = pair[1].0 - pair[0].0;
        difference_bytes > pair[0].0
            && difference_bytes > WARM_DIFFERENCE_BYTES_MIN
            // Of a workload that writes, some reads are what its file system happened to look up.
            && difference_bytes > moved_bytes_max / 100
    };
    let few = (WARM_SHARE_MIN * runs.len() as f64) as usize;
    let among = runs.get(few..runs.len() - few)?;
    let last_warm = few + among.windows(2).rposition(is_gap)?;
    let warm = &runs[..=last_warm];
    let blocks = numbers(words::distinct(warm.iter().map(|(_, block)| *block)));
    let (most, least) = (runs[last_warm].0 >> 10, runs[last_warm + 1].0 >> 10);
    let which = if runs.len() > records.len() {
        format!("{} of {} runs, in round {blocks},", warm.len(), runs.len())
    } else {
        format!("the runs of round {blocks}")
    };
    Some(Warning::of(
        WarningKind::WarmRuns,
        label,
        format!(
            "{which} read at most {most} KiB from the device, the others at least {least} KiB, so not all began with equally cold caches or did the same work; see 'notes' and 'phases' in records.jsonl, and repeat"
        ),
    ))
}

/// Whether this machine kept up with the disk that was modelled.
fn late_replies(label: &str, records: &[&Record]) -> Option<Warning> {
    let is_late = |disk: &&ModelledDisk| disk.lateness.is_late();
    let late: Vec<_> = records.iter().filter_map(|one| one.disks.iter().find(is_late)).collect();
    let worst = late.iter().max_by_key(|disk| disk.lateness.p99_ns)?;
    let (p99, limit) = (worst.lateness.p99_ns / 1000, worst.lateness.limit_ns / 1000);
    Some(Warning::of(
        WarningKind::LateReplies,
        label,
        format!(
            "in {} of {} runs the modelled disk ({}:{}) answered late: 1 % of replies by more than {p99} µs, where {limit} µs are allowed; its times are this machine's as much as the disk's, so run it on an idle machine, or with fewer threads",
            late.len(),
            records.len(),
            worst.layer,
            worst.profile
        ),
    ))
}

/// Whether the traces of the device's requests have holes.
fn lost_events(label: &str, records: &[&Record]) -> Option<Warning> {
    let traces: Vec<_> = records.iter().filter_map(|one| one.trace.as_ref()).collect();
    let lost: Vec<u64> =
        traces.iter().map(|one| one.lost_events).filter(|lost| *lost > 0).collect();
    let most = lost.iter().max()?;
    Some(Warning::of(
        WarningKind::LostEvents,
        label,
        format!(
            "{} of {} traces have holes: the kernel did not deliver up to {most} events of the device's requests, of which a request has two; compare that with 'requests' in records.jsonl, and repeat on an idle machine",
            lost.len(),
            traces.len()
        ),
    ))
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
        warnings.push(Warning::new(
            WarningKind::SplitBlock,
            format!(
                "the runs of round {} are more than a minute apart (the machine slept, or an older kurabe resumed the study in the middle of a round); if that could matter, start the study again",
                numbers(blocks)
            ),
        ));
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
    if let [(expected, other), (found, contender), ..] = proofs.as_slice() {
        warnings.push(Warning::new(
            WarningKind::UnequalWork,
            format!(
                "{contender} did other work than {other} ({found} against {expected}); do not compare their metrics, and look for a file system that lost or changed data"
            ),
        ));
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
        let median_ms = median_ns / 1e6;
        warnings.push(Warning::of(
            WarningKind::ShortTrial,
            label,
            format!(
                "run and sync take only {median_ms:.1} ms (median): start-up and timer noise may dominate; give the workload more to do (at least 50 ms)"
            ),
        ));
    }
}

/// The same of what a tool counted by itself, whose process runs much longer.
fn short_count(samples: &Samples<'_>, labels: &[&str], warnings: &mut Vec<Warning>) {
    let counted = |record: &Record| Some(record.load.as_ref()?.counted_ns? as f64);
    let medians = labels.iter().enumerate().filter_map(|(index, label)| {
        let counted: Vec<f64> = samples.completed(index).filter_map(counted).collect();
        Some((statistics::summarize(&counted).ok()?.median, *label))
    });
    if let Some((median_ns, label)) = medians.min_by(|one, other| one.0.total_cmp(&other.0))
        && median_ns < SHORT_COUNT_NS
    {
        let median_ms = median_ns / 1e6;
        warnings.push(Warning::of(
            WarningKind::ShortTrial,
            label,
            format!(
                "the workload counted for only {median_ms:.0} ms (median), so a single pause decides the figure; give it more to do (at least 1 s; fio: a larger size=, or time_based with runtime=)"
            ),
        ));
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
        warnings.push(Warning::of(
            WarningKind::DeviceShared,
            &shared.join(", "),
            "the device also serves others, so the device columns count theirs too; use --device for counts of the workload alone",
        ));
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
        let (busy, unless) = match cpus {
            1 => ("one CPU".to_string(), ", unless it works in parallel,"),
            several => (format!("{several} CPUs"), ""),
        };
        let percent = cpu_share * 100.0;
        warnings.push(Warning::of(
            WarningKind::NotIoBound,
            &contender.label,
            format!(
                "the command keeps {busy} busy for {percent:.0} % of its time, so{unless} a faster file system can save little; use a workload with less computation to see more"
            ),
        ));
    }
}

/// A workload that never reads what it wrote is none the worse for much memory: its writes are on the
/// device by the end of the sync. So this speaks of workloads that read much more than they fetched
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
        let memory = memory_bytes as f64;
        let [data, memory, read, fetched] = [fetched + written, memory, read, fetched].map(size);
        warnings.push(Warning::new(
            WarningKind::SmallData,
            format!(
                "the workload's data ({data}) fits in the machine's memory ({memory}): of {read} that it read, {fetched} came from storage and the rest from caches or pipes; to see the device read, use more data than memory"
            ),
        ));
    }
}

fn size(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        mebibytes if mebibytes < 1024.0 => format!("{mebibytes:.0} MiB"),
        mebibytes => format!("{:.1} GiB", mebibytes / 1024.0),
    }
}

#[cfg(test)]
mod tests;
