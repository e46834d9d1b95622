//! What a result cost: CPU, memory, device bytes, flushes, amplification, as one table a workload.

use lab::analysis::WorkloadAnalysis;
use lab::record::Record;

use crate::source::Source;
use crate::table::{Cell, Table};
use crate::{tables, text};

/// The costs of a workload, one row a contender, the best first; medians over the trials.
pub fn table(source: &Source, workload: &WorkloadAnalysis) -> Table {
    let mut table = Table::new(&[
        "contender",
        "CPU of the load",
        "CPU of the machine",
        "memory",
        "device read",
        "device written",
        "writes",
        "flushes",
        "flushes per operation",
        "written by the load",
        "amplification",
        "space taken",
    ]);
    let records = source.completed(&workload.workload);
    for contender in tables::ranked(workload) {
        let cost = &contender.cost;
        let place = workload.contenders.iter().position(|other| other.label == contender.label);
        let per_operation = place.and_then(|place| flushes_per_operation(&records[place]));
        let cell = |value: Option<f64>, text: fn(f64) -> String| match value {
            Some(value) => Cell::number(value, text(value)),
            None => "-".into(),
        };
        table.rows.push(vec![
            contender.label.as_str().into(),
            cell(cost.command_cpu_ns, text::time),
            cell(cost.machine_cpu_ns, text::time),
            cell(cost.memory_bytes_max, text::bytes),
            cell(cost.device_read_bytes, text::bytes),
            cell(cost.device_written_bytes, text::bytes),
            cell(cost.device_writes, text::count),
            cell(cost.device_flushes, text::count),
            cell(per_operation, text::small),
            cell(cost.command_written_bytes, text::bytes),
            cell(cost.write_amplification, |value| format!("{value:.2}")),
            cell(cost.space_taken_bytes, text::bytes),
        ]);
    }
    table.without_empty_columns()
}

/// Median over the trials of the device's flushes over the load's operations. None where the load
/// counts no operations, or the kernel no flushes.
pub fn flushes_per_operation(records: &[&Record]) -> Option<f64> {
    let of = |record: &&Record| {
        let latencies = &record.load.as_ref()?.latencies;
        let operations = latencies.iter().find(|latency| latency.operation == "overall")?.count;
        let device = record.run_device().filter(|_| !record.flushes_uncounted)?;
        (operations > 0).then(|| device.flushes as f64 / operations as f64)
    };
    let mut values: Vec<f64> = records.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}
