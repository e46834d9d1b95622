//! What a result cost: CPU, memory, device bytes, flushes, amplification, and what the device did in each phase; a
//! table of each a workload.

use lab::analysis::{COUNTED_PER_WORK, ContenderAnalysis, PhaseDevice, WorkloadAnalysis, median};
use lab::record::{LockCounts, Phase, Record};
use lab::workload::Unit;

use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::{tables, text};

/// Fewer bytes than these are a matter of a few blocks of metadata: they are shown, and no verdict on them.
pub(crate) const FEW_BYTES: f64 = 1_048_576.0;
/// Names of what is compared of a run together with its unmount.
const TIME_UNMOUNTED: &str = "time until unmounted";
const BYTES_UNMOUNTED: &str = "bytes until unmounted";

/// The costs of a workload: one row a cost, one column a contender, the best first; medians over the trials, and the
/// ratio to the baseline's. A cost that nobody has is left out. Percentiles of latencies are in [`tables::latencies`].
pub fn table(source: &ResultSource, workload: &WorkloadAnalysis) -> Table {
    let ranked = tables::ranked(workload);
    let records = source.completed(&workload.workload);
    let records_of = |contender: &ContenderAnalysis| {
        let place = workload.contenders.iter().position(|other| other.label == contender.label);
        place.map_or(&[][..], |place| &records[place][..])
    };
    let locks = |contender: &ContenderAnalysis, of: fn(LockCounts) -> u64| {
        let all = records_of(contender).iter();
        median(all.filter_map(|record| Some(of(record.locks?) as f64)))
    };
    let all = &workload.exploratory;
    let is_compared = |metric: &str| all.iter().any(|one| one.metric == metric);
    // Run, sync and unmount, where an unmount is of one run.
    let until_unmounted = |metric: &str,
                           contender: &ContenderAnalysis,
                           of: fn(&Record) -> Option<f64>| {
        let same = |other: &ContenderAnalysis| other.label == contender.label;
        let place = workload.contenders.iter().position(same).filter(|_| is_compared(metric))?;
        median(records[place].iter().filter_map(|record| of(record)))
    };
    let amplification = |value: f64| format!("{value:.2}");
    type Words = fn(f64) -> String;
    type Value<'a> = &'a dyn Fn(&ContenderAnalysis) -> Option<f64>;
    let rows: [(&str, &str, Words, Value<'_>); 17] = [
        ("CPU time of the workload", "CPU time", text::time, &|c| c.cost.command_cpu_ns),
        ("CPU time of the whole machine", "", text::time, &|c| c.cost.machine_cpu_ns),
        ("CPU time of kernel threads", "", text::time, &|c| c.cost.kernel_threads_cpu_ns),
        ("memory of its largest process", "", text::bytes, &|c| c.cost.memory_bytes_max),
        ("read by the device", "bytes read", text::bytes, &|c| c.cost.device_read_bytes),
        ("written by the device", "bytes written", text::bytes, &|c| c.cost.device_written_bytes),
        ("writes of the device", "", text::count, &|c| c.cost.device_writes),
        ("flushes of the device", "flushes", text::count, &|c| c.cost.device_flushes),
        ("flushes per operation", "", text::small, &|c| flushes_per_operation(records_of(c))),
        ("lock requests", "lock requests", text::count, &|c| locks(c, |locks| locks.requests)),
        ("lock requests per operation", "", text::small, &|c| {
            per_operation(records_of(c), |record| Some(record.locks?.requests))
        }),
        ("lock revocations", "lock revocations", text::count, &|c| {
            locks(c, |locks| locks.revocations)
        }),
        ("written by the workload", "", text::bytes, &|c| c.cost.command_written_bytes),
        ("write amplification", COUNTED_PER_WORK[0], amplification, &|c| {
            c.cost.write_amplification
        }),
        ("space taken", "space", text::bytes, &|c| c.cost.space_taken_bytes),
        (TIME_UNMOUNTED, TIME_UNMOUNTED, text::time, &|c| {
            until_unmounted(TIME_UNMOUNTED, c, |record| {
                Some((record.time_ns()? + record.phase(Phase::Unmount)?.elapsed_ns) as f64)
            })
        }),
        (BYTES_UNMOUNTED, BYTES_UNMOUNTED, text::bytes, &|c| {
            until_unmounted(BYTES_UNMOUNTED, c, |record| {
                let unmount = record.phase(Phase::Unmount)?.device.as_ref()?.written_bytes;
                Some((record.run_device()?.written_bytes + unmount) as f64)
            })
        }),
    ];
    let mut heads = vec!["median of the runs".to_string()];
    heads.extend(ranked.iter().map(|contender| contender.label.clone()));
    let mut table = Table { heads, rows: Vec::new() };
    let compared = |metric: &str, contender: &ContenderAnalysis| {
        all.iter().find(|one| one.metric == metric && one.contender == contender.label)
    };
    for (name, metric, words, value) in rows {
        let is_bytes = all.iter().any(|one| one.metric == metric && one.unit == Unit::Bytes);
        let least = if is_bytes { FEW_BYTES } else { 0.0 };
        let is_few = ranked.iter().filter_map(|one| value(one)).all(|value| value < least);
        let cells: Vec<Cell> = ranked
            .iter()
            .map(|contender| match (value(contender), compared(metric, contender)) {
                (Some(value), Some(one)) if !is_few => {
                    tables::against(words(value), one).valued(Some(value))
                }
                (value, _) => Cell::maybe(value, words),
            })
            .collect();
        // An amplification of 1.00 for everybody tells nothing.
        let is_told = |cell: &Cell| cell.value.is_some() && cell.text != "1.00";
        if cells.iter().any(is_told) {
            table.rows.push(std::iter::once(Cell::from(name)).chain(cells).collect());
        }
    }
    table
}

/// What the device did in each phase: one row a contender, one column a phase, the best first;
/// medians over the trials.
pub fn phases(workload: &WorkloadAnalysis) -> Table {
    let ranked = tables::ranked(workload);
    let of = |contender: &'_ ContenderAnalysis, phase: Phase| {
        contender.phase_devices.iter().find(|entry| entry.phase == phase).map(phase_words)
    };
    let mut table = Table::new(&["the device, by phase"]);
    table.heads.extend(Phase::ALL.iter().map(|phase| phase.name().to_string()));
    for contender in ranked {
        let cells = Phase::ALL.iter().map(|phase| of(contender, *phase).unwrap_or("-".into()));
        let label = Cell::from(contender.label.as_str());
        table.rows.push(std::iter::once(label).chain(cells.map(Cell::from)).collect());
    }
    table.without_empty_columns()
}

/// What is nothing is not named: "10 MiB written, 3 flushes".
fn phase_words(device: &PhaseDevice) -> String {
    let bytes =
        |count: f64, what: &str| (count > 0.0).then(|| format!("{} {what}", text::bytes(count)));
    let flushes = device.flushes.filter(|count| *count > 0.0);
    let words: Vec<String> = [
        bytes(device.read_bytes, "read"),
        bytes(device.written_bytes, "written"),
        flushes.map(|count| {
            format!("{} {}", text::count(count), if count == 1.0 { "flush" } else { "flushes" })
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// Median over the trials of the device's flushes over the workload's operations, which syncs are not. None
/// where the workload counts no operations, or the kernel no flushes.
pub fn flushes_per_operation(records: &[&Record]) -> Option<f64> {
    per_operation(records, |record| {
        Some(record.run_device().filter(|_| !record.flushes_uncounted)?.flushes)
    })
}

fn per_operation(records: &[&Record], of: fn(&Record) -> Option<u64>) -> Option<f64> {
    let share = |record: &&Record| {
        let operations = record.load.as_ref()?.operations.filter(|count| *count > 0)?;
        Some(of(record)? as f64 / operations as f64)
    };
    median(records.iter().filter_map(share))
}
