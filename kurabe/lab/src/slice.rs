//! Slices: the turns of a trial that stands side by side with the others of its block. Each is one
//! complete run of the workload, or a part of one where a run is carried out in parts; what a record says
//! of the run is the mean of the complete ones.
//!
//! The mean and not the median: a study asks what the work costs, slow turns included, and a
//! median of slices would hide that one in five of them is slow. What is robust comes after it: a
//! block is compared as one ratio, and the ratios of the blocks have intervals of their own.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::record::{CommandUsage, DeviceDelta, Phase, PhaseRecord, Record};
use crate::watched::Watched;
use crate::workload::{Metric, WorkloadReport};

/// One run, while others have their runs in between.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Round of the block, from 0: every contender has one slice in each.
    pub round: u32,
    /// Place within the round, from 0.
    pub position: u32,
    /// Time of the run in ns.
    pub run_ns: u64,
    /// Time in ns until everything was durable.
    pub sync_ns: u64,
    /// What the device did for both.
    pub device: Option<DeviceDelta>,
    /// What the contender's own device did while it waited for this turn.
    pub idle_device: Option<DeviceDelta>,
    /// The workload's figures, when it has any of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// What the machine did beside it; absent in older results.
    pub watched: Option<Watched>,
}

impl RunRecord {
    /// Run and sync together, in ns.
    pub fn time_ns(&self) -> u64 {
        self.run_ns.saturating_add(self.sync_ns)
    }
}

/// All that one slice yields for the record.
#[derive(Debug, Clone, Default)]
pub struct RunYield {
    /// Its phases, from `prepare` to `cleanup`.
    pub phases: Vec<PhaseRecord>,
    pub command: Option<CommandUsage>,
    /// CPU time in ns of a user-space file system's daemon.
    pub daemon_cpu_ns: Option<u64>,
    pub load: Option<WorkloadReport>,
}

impl Record {
    /// Puts the mean of these slices where a trial of one run has that run. Of what has no mean (a
    /// code, words, a proof) it is what the last slice says; figures over time are of none, and
    /// latencies are those of `load`, in which the caller merged the distributions.
    pub fn put_mean(&mut self, carried: &[RunYield], load: Option<WorkloadReport>) {
        if carried.is_empty() {
            return;
        }
        self.phases.extend(phases(mean, carried));
        self.command = usage(mean, carried);
        self.daemon_cpu_ns = folded(mean, carried.iter().map(|slice| slice.daemon_cpu_ns));
        self.load = load.map(|report| {
            let loads: Vec<&WorkloadReport> =
                carried.iter().filter_map(|slice| slice.load.as_ref()).collect();
            WorkloadReport {
                metrics: mean_metrics(&loads),
                written_bytes: folded(mean, loads.iter().map(|load| load.written_bytes)),
                operations: folded(mean, loads.iter().map(|load| load.operations)),
                series: Vec::new(),
                ..report
            }
        });
    }
}

/// How figures of several slices become one.
type Fold = fn(&[u64]) -> u64;

/// The mean, rounded to the nearest.
fn mean(values: &[u64]) -> u64 {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let count = values.len() as u128;
    ((sum + count / 2) / count) as u64
}

pub(crate) fn sum(values: &[u64]) -> u64 {
    values.iter().copied().fold(0, u64::saturating_add)
}

/// Absent unless every slice has the figure.
pub(crate) fn folded(fold: Fold, values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let values: Vec<u64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| fold(&values))
}

impl RunYield {
    /// A whole run of its parts, each of which was a slice; `load` is the report of all of them.
    pub fn of_parts(parts: &[RunYield], load: Option<WorkloadReport>) -> RunYield {
        RunYield {
            phases: phases(sum, parts),
            command: usage(sum, parts),
            daemon_cpu_ns: folded(sum, parts.iter().map(|part| part.daemon_cpu_ns)),
            load,
        }
    }
}

/// Every kind of phase as one, in the order of the first slice; one that a slice does not have
/// cost it nothing.
pub(crate) fn phases(fold: Fold, carried: &[RunYield]) -> Vec<PhaseRecord> {
    let mut kinds: Vec<Phase> = Vec::new();
    for phase in carried.iter().flat_map(|slice| &slice.phases).map(|entry| entry.phase) {
        if !kinds.contains(&phase) {
            kinds.push(phase);
        }
    }
    kinds.sort_unstable();
    let one_of = |phase: Phase| {
        let entries: Vec<Option<&PhaseRecord>> = carried
            .iter()
            .map(|slice| slice.phases.iter().find(|entry| entry.phase == phase))
            .collect();
        let figure = |read: &dyn Fn(&PhaseRecord) -> Option<u64>| {
            folded(fold, entries.iter().map(|entry| entry.map_or(Some(0), read)))
        };
        let device =
            |read: &dyn Fn(&DeviceDelta) -> u64| figure(&|entry| entry.device.as_ref().map(read));
        let has_device = entries.iter().flatten().all(|entry| entry.device.is_some());
        PhaseRecord {
            phase,
            elapsed_ns: figure(&|entry| Some(entry.elapsed_ns)).unwrap_or(0),
            device: has_device.then(|| DeviceDelta {
                reads: device(&|delta| delta.reads).unwrap_or(0),
                read_bytes: device(&|delta| delta.read_bytes).unwrap_or(0),
                writes: device(&|delta| delta.writes).unwrap_or(0),
                written_bytes: device(&|delta| delta.written_bytes).unwrap_or(0),
                discards: device(&|delta| delta.discards).unwrap_or(0),
                discarded_bytes: device(&|delta| delta.discarded_bytes).unwrap_or(0),
                flushes: device(&|delta| delta.flushes).unwrap_or(0),
                busy_ms: device(&|delta| delta.busy_ms).unwrap_or(0),
                queue_ms: device(&|delta| delta.queue_ms).unwrap_or(0),
            }),
            machine_cpu_ns: figure(&|entry| entry.machine_cpu_ns),
        }
    };
    kinds.into_iter().map(one_of).collect()
}

/// The usage of all slices as one; the code is the last one's.
pub(crate) fn usage(fold: Fold, carried: &[RunYield]) -> Option<CommandUsage> {
    let last = carried.last()?.command.as_ref()?;
    let of: Vec<&CommandUsage> =
        carried.iter().filter_map(|slice| slice.command.as_ref()).collect();
    let figure = |read: &dyn Fn(&CommandUsage) -> Option<u64>| {
        folded(fold, of.iter().map(|usage| read(usage)))
    };
    Some(CommandUsage {
        exit_code: last.exit_code,
        signal: last.signal,
        user_ns: figure(&|usage| Some(usage.user_ns)).unwrap_or(0),
        system_ns: figure(&|usage| Some(usage.system_ns)).unwrap_or(0),
        memory_bytes_max: of.iter().map(|usage| usage.memory_bytes_max).max().unwrap_or(0),
        write_call_bytes: figure(&|usage| usage.write_call_bytes),
        read_call_bytes: figure(&|usage| usage.read_call_bytes),
        storage_written_bytes: figure(&|usage| usage.storage_written_bytes),
        storage_read_bytes: figure(&|usage| usage.storage_read_bytes),
    })
}

/// The mean of every figure that all slices have. Of a rate too: slices do equal work or take equal
/// time, and differ little.
fn mean_metrics(loads: &[&WorkloadReport]) -> Vec<Metric> {
    let Some(first) = loads.first() else { return Vec::new() };
    let mean_of = |metric: &Metric| {
        let same = |load: &&WorkloadReport| {
            load.metrics.iter().find(|other| other.name == metric.name).map(|other| other.value)
        };
        let values: Vec<f64> = loads.iter().map(same).collect::<Option<_>>()?;
        let value = values.iter().sum::<f64>() / values.len() as f64;
        Some(Metric { value, ..metric.clone() })
    };
    first.metrics.iter().filter_map(mean_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::workload::Unit;

    fn carried(run_ns: u64, sync_ns: u64, flushes: u64, value: f64) -> RunYield {
        let phase = |phase, elapsed_ns, flushes| PhaseRecord {
            phase,
            elapsed_ns,
            device: Some(DeviceDelta { flushes, ..Default::default() }),
            machine_cpu_ns: None,
        };
        let metric = Metric::new("puts", value, Unit::Nanoseconds);
        RunYield {
            phases: vec![phase(Phase::Run, run_ns, 0), phase(Phase::Sync, sync_ns, flushes)],
            command: Some(CommandUsage {
                user_ns: run_ns / 2,
                memory_bytes_max: run_ns,
                ..Default::default()
            }),
            daemon_cpu_ns: None,
            load: Some(WorkloadReport { metrics: vec![metric], ..Default::default() }),
        }
    }

    #[test]
    fn a_record_has_the_mean_of_its_slices() {
        let plan = fixture::plan(&["ext4", "xfs"], 1);
        let mut record = fixture::record(&plan, 0, 0, 0);
        record.phases = vec![PhaseRecord {
            phase: Phase::Mkfs,
            elapsed_ns: 7,
            device: None,
            machine_cpu_ns: None,
        }];
        let slices = [carried(100, 50, 3, 2.0), carried(300, 150, 4, 6.0)];
        record.put_mean(&slices, slices[1].load.clone());
        assert_eq!(
            record.phases.iter().map(|entry| entry.phase).collect::<Vec<_>>(),
            [Phase::Mkfs, Phase::Run, Phase::Sync]
        );
        assert_eq!(record.time_ns(), Some(300));
        assert_eq!(record.run_device().unwrap().flushes, 4, "3.5, rounded");
        let command = record.command.as_ref().unwrap();
        assert_eq!((command.user_ns, command.memory_bytes_max), (100, 300));
        assert_eq!(command.storage_read_bytes, None, "no slice has it");
        assert_eq!(record.metrics()[0].value, 4.0);
    }

    #[test]
    fn a_run_in_parts_costs_what_they_cost_together() {
        let mut parts = [carried(100, 50, 3, 2.0), carried(300, 150, 4, 6.0)];
        parts[1].phases.pop();
        let load = parts[0].load.clone();
        let whole = RunYield::of_parts(&parts, load.clone());
        let times: Vec<_> = whole.phases.iter().map(|one| (one.phase, one.elapsed_ns)).collect();
        assert_eq!(times, [(Phase::Run, 400), (Phase::Sync, 50)]);
        assert_eq!(whole.phases[1].device.unwrap().flushes, 3);
        let command = whole.command.unwrap();
        assert_eq!((command.user_ns, command.memory_bytes_max), (200, 300));
        assert_eq!((command.storage_read_bytes, whole.load), (None, load));
    }

    #[test]
    fn a_figure_that_one_slice_lacks_has_no_mean() {
        let plan = fixture::plan(&["ext4", "xfs"], 1);
        let mut record = fixture::record(&plan, 0, 0, 0);
        record.phases.clear();
        let mut slices = [carried(100, 50, 3, 2.0), carried(300, 150, 4, 6.0)];
        slices[1].load.as_mut().unwrap().metrics.clear();
        slices[0].phases[1].device = None;
        record.put_mean(&slices, slices[1].load.clone());
        assert_eq!(record.load.as_ref().unwrap().metrics, []);
        assert_eq!(record.phase(Phase::Sync).unwrap().device, None);
        assert!(record.phase(Phase::Run).unwrap().device.is_some());
    }
}
