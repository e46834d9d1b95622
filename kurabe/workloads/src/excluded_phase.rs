//! Counts what a workload does within its run for the laboratory's sake, so that the trial can take it
//! out of the run's cost. Reads the same counters as the trial itself.

use std::time::Instant;

use vocabulary::cost::{CommandUsage, Phase, PhaseRecord};
use vocabulary::report::ExcludedPhase;
use vocabulary::workload::{WorkloadTarget, WorkloadTask};

use crate::counters::{DeviceCounters, DeviceReading, machine_cpu_ns, own_usage};

/// Counters at the beginning of work that is not the workload's.
pub(crate) struct ExcludedPhaseBegun {
    started: Instant,
    device: Option<(DeviceCounters, DeviceReading)>,
    machine_cpu_ns: Option<u64>,
    usage: CommandUsage,
}

impl ExcludedPhaseBegun {
    /// Reads the counters now.
    pub(crate) fn now(task: &WorkloadTask) -> ExcludedPhaseBegun {
        let counters = match (&task.device, &task.target) {
            (Some(device), _) => DeviceCounters::of_node(device).ok(),
            (None, WorkloadTarget::Directory(directory)) => {
                DeviceCounters::under_directory(directory).ok()
            }
            (None, _) => None,
        };
        ExcludedPhaseBegun {
            started: Instant::now(),
            device: counters.and_then(|counters| {
                let reading = counters.read().ok()?;
                Some((counters, reading))
            }),
            machine_cpu_ns: machine_cpu_ns(),
            usage: own_usage(),
        }
    }

    /// What was done since.
    pub(crate) fn end(self, phase: Phase) -> ExcludedPhase {
        let (now, then) = (own_usage(), self.usage);
        let since = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        let device = self.device.and_then(|(counters, reading)| {
            let now = counters.read().ok()?;
            Some(now.since(&reading))
        });
        ExcludedPhase {
            phase: PhaseRecord {
                phase,
                elapsed_ns: self.started.elapsed().as_nanos() as u64,
                device,
                machine_cpu_ns: since(machine_cpu_ns(), self.machine_cpu_ns),
            },
            usage: CommandUsage {
                user_ns: now.user_ns.saturating_sub(then.user_ns),
                system_ns: now.system_ns.saturating_sub(then.system_ns),
                write_call_bytes: since(now.write_call_bytes, then.write_call_bytes),
                read_call_bytes: since(now.read_call_bytes, then.read_call_bytes),
                storage_written_bytes: since(now.storage_written_bytes, then.storage_written_bytes),
                storage_read_bytes: since(now.storage_read_bytes, then.storage_read_bytes),
                ..CommandUsage::default()
            },
        }
    }
}

/// Work of one phase that was done in pieces.
pub(crate) fn sum(excluded_phases: Vec<ExcludedPhase>) -> Option<ExcludedPhase> {
    let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(a, b)| a + b);
    excluded_phases.into_iter().reduce(|sum, one| ExcludedPhase {
        phase: PhaseRecord {
            phase: sum.phase.phase,
            elapsed_ns: sum.phase.elapsed_ns + one.phase.elapsed_ns,
            device: sum.phase.device.zip(one.phase.device).map(|(a, b)| a + b),
            machine_cpu_ns: both(sum.phase.machine_cpu_ns, one.phase.machine_cpu_ns),
        },
        usage: CommandUsage {
            user_ns: sum.usage.user_ns + one.usage.user_ns,
            system_ns: sum.usage.system_ns + one.usage.system_ns,
            write_call_bytes: both(sum.usage.write_call_bytes, one.usage.write_call_bytes),
            read_call_bytes: both(sum.usage.read_call_bytes, one.usage.read_call_bytes),
            storage_written_bytes: both(
                sum.usage.storage_written_bytes,
                one.usage.storage_written_bytes,
            ),
            storage_read_bytes: both(sum.usage.storage_read_bytes, one.usage.storage_read_bytes),
            ..CommandUsage::default()
        },
    })
}
