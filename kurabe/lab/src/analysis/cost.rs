//! What a contender's trials cost, in medians, and what its write amplification divides by.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::median;
use super::samples::Samples;
use crate::record::{DeviceDelta, Phase, Record};

/// Medians over the completed trials; what was not measured is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ResourceUse {
    /// CPU time of the command, its children and a user-space file system's daemon, in ns.
    pub command_cpu_ns: Option<f64>,
    /// CPU time of the whole machine during run and sync, in ns.
    pub machine_cpu_ns: Option<f64>,
    /// CPU time of the threads of the kernel during run and sync, in ns, in a guest.
    pub kernel_threads_cpu_ns: Option<f64>,
    /// Resident set of the largest process, in bytes.
    pub memory_bytes_max: Option<f64>,
    pub device_read_bytes: Option<f64>,
    /// Bytes that the device wrote.
    pub device_written_bytes: Option<f64>,
    /// Write requests of the device.
    pub device_writes: Option<f64>,
    /// Flush requests of the device.
    pub device_flushes: Option<f64>,
    /// Bytes that the command wrote, as `amplification_basis` counts them.
    pub command_written_bytes: Option<f64>,
    /// Bytes that the device wrote for each byte that the command wrote.
    pub write_amplification: Option<f64>,
    /// What `command_written_bytes` counts.
    pub amplification_basis: Option<AmplificationBasis>,
    /// Bytes of space that the run took from the file system.
    pub space_taken_bytes: Option<f64>,
}

/// What counts as written by the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AmplificationBasis {
    /// Bytes that the workload handed to the file system or the device, by its own count. The kernel
    /// cannot tell them from those of a file system that works in the workload's process.
    LoadWrites,
    /// Pages made dirty and direct writes (`write_bytes` of `/proc/PID/io`).
    StorageWrites,
    /// Bytes passed to write calls, pipes included (`wchar`): all that is known of a file system
    /// in user space, and what counts where the storage writes depend on the file system.
    WriteCalls,
}

/// From so many times the bytes of the write calls on those do not see what the workload writes:
/// asynchronous writes and mapped memory pass them by.
const SHARE_UNSEEN_MIN: f64 = 1.5;

/// What counts as written under a workload: what the workload handed over, one thing for all
/// contenders, or their amplifications would divide by different numbers.
///
/// The workload's own count, where every trial has one; else the bytes that it passed to write calls,
/// which depend on the workload alone. What the kernel charges to a process depends on the file system too
/// (a page that is overwritten or deleted before its writeback is charged less where writeback is
/// later), so it counts only where the calls do not see the workload's writes, or are not known.
pub(super) fn amplification_basis(
    samples: &Samples<'_>,
    contenders: usize,
) -> Option<AmplificationBasis> {
    let all = || (0..contenders).flat_map(|contender| samples.completed(contender));
    let has_own = |record: &Record| written_by_load(record).is_some();
    if all().next().is_some() && all().all(has_own) {
        return Some(AmplificationBasis::LoadWrites);
    }
    if !all().any(|record| record.counts_write_bytes.is_some()) {
        return None;
    }
    let calls =
        |record: &Record| record.command.as_ref()?.write_call_bytes.filter(|bytes| *bytes > 0);
    // The smallest share decides: some file systems (F2FS) charge their metadata to the workload.
    let shares = (0..contenders).filter_map(|contender| {
        let of_trials = samples
            .completed(contender)
            .filter_map(|record| Some(storage_written(record)? as f64 / calls(record)? as f64));
        median(of_trials)
    });
    let least_share = shares.min_by(f64::total_cmp);
    let are_unseen = least_share.is_some_and(|share| share >= SHARE_UNSEEN_MIN);
    // Of older results the calls may not be known at all.
    let storage_only =
        !all().any(|one| calls(one).is_some()) && all().any(|one| storage_written(one).is_some());
    Some(if storage_only || are_unseen {
        AmplificationBasis::StorageWrites
    } else {
        AmplificationBasis::WriteCalls
    })
}

/// Storage writes of the command, where the kernel counts them for this file system.
fn storage_written(record: &Record) -> Option<u64> {
    record
        .command
        .as_ref()
        .filter(|_| record.counts_write_bytes == Some(true))?
        .storage_written_bytes
}

/// Bytes that the workload wrote, by its own count.
pub(super) fn written_by_load(record: &Record) -> Option<u64> {
    record.load.as_ref()?.written_bytes
}

pub(super) fn cost(records: &[&Record], basis: Option<AmplificationBasis>) -> ResourceUse {
    let of = |value: &dyn Fn(&Record) -> Option<f64>| {
        median(records.iter().filter_map(|record| value(record)))
    };
    let device = |value: fn(&DeviceDelta) -> u64| {
        of(&|record: &Record| record.run_device().map(|delta| value(&delta) as f64))
    };
    let written = |record: &Record| {
        let usage = || record.command.as_ref();
        let bytes = match basis? {
            AmplificationBasis::LoadWrites => written_by_load(record)?,
            AmplificationBasis::StorageWrites => storage_written(record)?,
            AmplificationBasis::WriteCalls => usage()?.write_call_bytes?,
        };
        Some(bytes as f64)
    };
    ResourceUse {
        command_cpu_ns: of(&command_cpu_ns),
        kernel_threads_cpu_ns: of(&|record| record.kernel_threads_cpu_ns.map(|ns| ns as f64)),
        machine_cpu_ns: of(&|record| {
            let of_phase = |phase| record.phase(phase)?.machine_cpu_ns;
            Some(of_phase(Phase::Run)?.saturating_add(of_phase(Phase::Sync)?) as f64)
        }),
        memory_bytes_max: of(&|record| {
            record.command.as_ref().map(|usage| usage.memory_bytes_max as f64)
        }),
        device_read_bytes: device(|delta| delta.read_bytes),
        device_written_bytes: device(|delta| delta.written_bytes),
        device_writes: device(|delta| delta.writes),
        device_flushes: of(&|record| {
            let device = record.run_device().filter(|_| !record.flushes_uncounted)?;
            Some(device.flushes as f64)
        }),
        command_written_bytes: of(&written),
        // Of a shared device the counters say nothing of this workload, and below a page the ratio
        // says nothing of the file system.
        write_amplification: of(&|record| {
            let command = written(record).filter(|bytes| *bytes >= AMPLIFICATION_BYTES_MIN)?;
            let device = record.run_device().filter(|_| !record.device_shared)?;
            Some(device.written_bytes as f64 / command)
        }),
        amplification_basis: basis,
        space_taken_bytes: of(&|record| {
            let (before, after) = (record.space_before?, record.space_after?);
            Some(before.free_bytes as f64 - after.free_bytes as f64)
        }),
    }
}

/// CPU time of the command, its children and a user-space file system's daemon.
pub(super) fn command_cpu_ns(record: &Record) -> Option<f64> {
    let usage = record.command.as_ref()?;
    let daemon_ns = record.daemon_cpu_ns.unwrap_or(0);
    Some(usage.user_ns.saturating_add(usage.system_ns).saturating_add(daemon_ns) as f64)
}

/// Least number of bytes written by the command for which an amplification is given.
const AMPLIFICATION_BYTES_MIN: f64 = 65536.0;
