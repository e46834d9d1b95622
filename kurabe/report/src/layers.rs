//! Where the bytes of a workload went: what each layer of a stack was asked to write, from the workload down to the
//! device. A table a workload, where a contender has block layers.

use lab::analysis::{WorkloadAnalysis, median};
use lab::record::{DeviceDelta, Record};

use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::{tables, text};

/// More layers than these nobody stacks; a hostile guest can say that it had more.
const LAYERS_MAX: usize = 16;

/// What one step of the way down was asked: medians over the runs.
pub(crate) struct LayerStep {
    pub(crate) to: String,
    reads: Option<f64>,
    writes: Option<f64>,
    pub(crate) written: Option<f64>,
    flushes: Option<f64>,
}

/// The table; absent where no contender has block layers.
pub fn table(source: &ResultSource, workload: &WorkloadAnalysis) -> Option<Table> {
    let records = source.completed(&workload.workload);
    records.iter().flatten().find(|record| !record.layers.is_empty())?;
    let mut table = Table::new(&[
        "contender",
        "to",
        "read",
        "writes",
        "written",
        "of the one above",
        "flushes",
    ]);
    for contender in tables::ranked(workload) {
        let place = workload.contenders.iter().position(|other| other.label == contender.label)?;
        let steps = steps(contender.cost.command_written_bytes, &records[place]);
        let mut above: Option<f64> = None;
        for (number, step) in steps.into_iter().enumerate() {
            let label = if number == 0 { contender.label.as_str() } else { "" };
            let share = step.written.zip(above).filter(|(_, above)| *above > 0.0);
            above = step.written;
            table.rows.push(vec![
                label.into(),
                step.to.into(),
                Cell::maybe(step.reads, text::bytes),
                Cell::maybe(step.writes, text::count),
                Cell::maybe(step.written, text::bytes),
                Cell::maybe(share.map(|(written, above)| written / above), |value| {
                    format!("{value:.2}")
                }),
                Cell::maybe(step.flushes, text::count),
            ]);
        }
    }
    Some(table.without_empty_columns())
}

/// Those from the workload, which has `written` so many bytes, down to the device.
pub(crate) fn steps(written: Option<f64>, records: &[&Record]) -> Vec<LayerStep> {
    let of = |step: &dyn Fn(&Record) -> Option<DeviceDelta>, to: String, counts_flushes: bool| {
        let of = |value: fn(&DeviceDelta) -> u64| {
            median(records.iter().filter_map(|record| Some(value(&step(record)?) as f64)))
        };
        LayerStep {
            to,
            reads: of(|device| device.read_bytes),
            writes: of(|device| device.writes),
            written: of(|device| device.written_bytes),
            flushes: of(|device| device.flushes).filter(|_| counts_flushes),
        }
    };
    let to = "the file system".into();
    let mut steps = vec![LayerStep { to, reads: None, writes: None, written, flushes: None }];
    let layers = records.first().map_or(&[][..], |record| &record.layers);
    for (number, layer) in layers.iter().take(LAYERS_MAX).enumerate() {
        let step = |record: &Record| record.layers.get(number).map(|layer| layer.device);
        // The device-mapper and md keep no count of flushes.
        steps.push(of(&step, layer.layer.clone(), false));
    }
    steps.push(of(&Record::run_device, "the device".into(), true));
    steps
}

#[cfg(test)]
mod tests {
    use lab::record::LayerRecord;

    use super::*;

    #[test]
    fn a_step_is_a_median_over_runs_and_the_device_comes_last() {
        let layer = |written_bytes| LayerRecord {
            layer: "luks".into(),
            device: DeviceDelta { written_bytes, flushes: 9, ..DeviceDelta::default() },
        };
        let record = |written| Record { layers: vec![layer(written)], ..Record::default() };
        let records = [record(10), record(30), record(20)];
        let records: Vec<&Record> = records.iter().collect();
        let steps = steps(Some(10.0), &records);
        let to: Vec<&str> = steps.iter().map(|step| step.to.as_str()).collect();
        assert_eq!(to, ["the file system", "luks", "the device"]);
        assert_eq!((steps[1].written, steps[1].flushes), (Some(20.0), None));
    }
}
