//! The records of several nodes that carried one trial out together, as one.
//!
//! A trial is over when the last node is, so its time reaches from the first start to the last end. What the
//! nodes did is added up; distributions of latencies are merged by the caller, never averaged.

use crate::record::{Check, LockCounts, NodeRecord, Phase, Record};
use crate::slice::{RunYield, folded, phases, sum, usage};
use crate::workload::{ALL_CELLS, Metric, WorkloadReport, mean_of_cells};

impl Record {
    /// One record of those of all nodes, the first node's first, each with what the runner heard of it. `load` has
    /// their latencies.
    pub fn of_nodes(records: Vec<(Record, NodeRecord)>, load: Option<WorkloadReport>) -> Record {
        let carried: Vec<RunYield> = records.iter().map(|(record, _)| carried_of(record)).collect();
        let mut nodes = Vec::new();
        let mut all = records.into_iter().map(|(record, heard)| {
            nodes.push(NodeRecord {
                run_ns: record.phase_after(0, Phase::Run),
                sync_ns: record.phase_after(0, Phase::Sync),
                device: record.run_device(),
                locks: record.locks,
                command: record.command.clone(),
                metrics: record.load.as_ref().map_or_else(Vec::new, |load| load.metrics.clone()),
                latencies: record
                    .load
                    .as_ref()
                    .map_or_else(Vec::new, |load| load.latencies.clone()),
                ..heard
            });
            record
        });
        let mut whole = all.next().expect("there are several nodes");
        for (number, other) in (2u32..).zip(all) {
            let of_node = |text: &String| format!("node {number}: {text}");
            whole.notes.extend(other.notes.iter().map(of_node));
            whole.elapsed_ns = whole.elapsed_ns.max(other.elapsed_ns);
            whole.outlived |= other.outlived;
            whole.flushes_uncounted |= other.flushes_uncounted;
            Check::add_all(&mut whole.checks, other.checks);
        }
        let sums = phases(sum, &carried);
        for entry in &mut whole.phases {
            let same = |other: &&crate::record::PhaseRecord| other.phase == entry.phase;
            if let Some(summed) = sums.iter().find(same) {
                (entry.device, entry.machine_cpu_ns) = (summed.device, summed.machine_cpu_ns);
            }
            let of_nodes = carried.iter().flat_map(|one| &one.phases).filter(same);
            entry.elapsed_ns = of_nodes.map(|one| one.elapsed_ns).max().unwrap_or(entry.elapsed_ns);
        }
        if let Some(last) = nodes.iter().max_by_key(|node| node.finished_ns()) {
            for entry in &mut whole.phases {
                match entry.phase {
                    Phase::Run => entry.elapsed_ns = last.began_ns.saturating_add(last.run_ns),
                    Phase::Sync => entry.elapsed_ns = last.sync_ns,
                    _ => {}
                }
            }
        }
        whole.command = usage(sum, &carried);
        whole.daemon_cpu_ns = folded(sum, carried.iter().map(|one| one.daemon_cpu_ns));
        let locks = |of: fn(&LockCounts) -> u64| {
            folded(sum, nodes.iter().map(|node| node.locks.as_ref().map(of)))
        };
        whole.locks = locks(|counts| counts.requests)
            .zip(locks(|counts| counts.revocations))
            .map(|(requests, revocations)| LockCounts { requests, revocations });
        // What one machine did beside its run says nothing of all.
        whole.kernel_threads_cpu_ns = None;
        whole.watched = None;
        let loads: Vec<&WorkloadReport> =
            carried.iter().filter_map(|one| one.load.as_ref()).collect();
        whole.load = load.map(|report| WorkloadReport {
            metrics: metrics_of(&loads),
            written_bytes: folded(sum, loads.iter().map(|load| load.written_bytes)),
            operations: folded(sum, loads.iter().map(|load| load.operations)),
            series: Vec::new(),
            ..report
        });
        whole.nodes = nodes;
        whole
    }
}

fn carried_of(record: &Record) -> RunYield {
    RunYield {
        phases: record.phases.clone(),
        command: record.command.clone(),
        daemon_cpu_ns: record.daemon_cpu_ns,
        load: record.load.clone(),
    }
}

/// The figures that all nodes have: a rate is that of all nodes together, and so is a count; a time is that of the
/// node that took longest.
fn metrics_of(loads: &[&WorkloadReport]) -> Vec<Metric> {
    let Some(first) = loads.first() else { return Vec::new() };
    let of_all = |metric: &Metric| {
        let same = |load: &&WorkloadReport| {
            load.metrics.iter().find(|other| other.name == metric.name).map(|other| other.value)
        };
        let values: Vec<f64> = loads.iter().map(same).collect::<Option<_>>()?;
        let value = match metric.unit {
            crate::workload::Unit::Nanoseconds => values.into_iter().fold(0.0, f64::max),
            _ => values.iter().sum(),
        };
        Some(Metric { value, ..metric.clone() })
    };
    let mut metrics: Vec<Metric> = first.metrics.iter().filter_map(of_all).collect();
    let mean = mean_of_cells(metrics.iter());
    if let (Some(mean), Some(all)) =
        (mean, metrics.iter_mut().find(|metric| metric.name == ALL_CELLS))
    {
        all.value = mean;
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::record::{CommandUsage, DeviceDelta};
    use crate::workload::Unit;

    fn record(run_ns: u64, flushes: u64, rate: f64, slowest_ns: f64) -> Record {
        let plan = fixture::plan(&["ext4"], 1);
        let mut record = fixture::record(&plan, 0, 0, run_ns);
        fixture::run_of(&mut record).device = Some(DeviceDelta { flushes, ..Default::default() });
        record.command = Some(CommandUsage { user_ns: 7, ..Default::default() });
        record.load = Some(WorkloadReport {
            metrics: vec![
                Metric::new("rate", rate, Unit::BytesPerSecond),
                Metric::new("slowest", slowest_ns, Unit::Nanoseconds),
            ],
            operations: Some(5),
            ..WorkloadReport::default()
        });
        record.notes = vec!["said".into()];
        record.locks = Some(LockCounts { requests: flushes, revocations: 1 });
        record
    }

    #[test]
    fn nodes_are_added_up_and_the_last_one_ends_the_run() {
        let heard = |node, began_ns| NodeRecord { node, began_ns, ..NodeRecord::default() };
        let one = (record(1000, 3, 10.0, 4.0), heard(1, 0));
        let other = (record(900, 4, 20.0, 6.0), heard(2, 300));
        let whole = Record::of_nodes(vec![one, other], Some(WorkloadReport::default()));
        let sync_ns = whole.phase(Phase::Sync).map_or(0, |sync| sync.elapsed_ns);
        assert_eq!(whole.time_ns(), Some(1200 + sync_ns), "{:?}", whole.phases);
        assert_eq!(whole.run_device().unwrap().flushes, 7);
        assert_eq!(whole.locks, Some(LockCounts { requests: 7, revocations: 2 }));
        assert_eq!(whole.nodes[1].locks, Some(LockCounts { requests: 4, revocations: 1 }));
        assert_eq!(whole.command.as_ref().unwrap().user_ns, 14);
        assert_eq!((whole.metric("rate"), whole.metric("slowest")), (Some(30.0), Some(6.0)));
        assert_eq!(whole.load.as_ref().unwrap().operations, Some(10));
        assert_eq!(whole.notes, ["said", "node 2: said"]);
        let finished: Vec<u64> = whole.nodes.iter().map(|node| node.finished_ns()).collect();
        assert_eq!(finished, [1000 + sync_ns, 1200 + sync_ns]);
        let json = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), whole);
        assert!(!serde_json::to_string(&record(1, 1, 1.0, 1.0)).unwrap().contains("nodes"));
    }
}
