//! Studies, plans and records made by hand, for the tests of this crate.
//!
//! A record made here is the simplest that says what the test is about: one of a trial that was
//! completed, with a run of the time that is given and a sync of nothing.

use serde_json::json;

use crate::contender::Known;
use crate::plan::Plan;
use crate::record::{CommandUsage, DeviceDelta, IdleWait, Outcome, Phase, PhaseRecord, Record};
use crate::study::{CommandText, StudyText, WorkloadText};
use crate::workload::Metric;

pub const MILLISECOND_NS: u64 = 1_000_000;

/// A study of these contenders under `true`, with exactly `runs` blocks.
pub fn study_text(contenders: &[&str], runs: u32) -> StudyText {
    StudyText {
        contenders: contenders.iter().map(ToString::to_string).collect(),
        runs: Some(runs),
        workloads: vec![WorkloadText {
            command: Some(CommandText::Line("true".into())),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The figure of a cell of the fio matrix, as a result holds it that knows no axes.
pub fn cell(name: &str, value: f64) -> Metric {
    let written = json!({"name": name, "value": value, "unit": "operations-per-second"});
    serde_json::from_value(written).unwrap()
}

pub fn plan_of(text: &StudyText) -> Plan {
    Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs", "dir"])).unwrap(), 7)
}

pub fn plan(contenders: &[&str], runs: u32) -> Plan {
    plan_of(&study_text(contenders, runs))
}

/// The completed record of the contender's trial in `block`, of the first workload.
pub fn record(plan: &Plan, contender: usize, block: u32, time_ns: u64) -> Record {
    record_of(plan, 0, contender, block, time_ns)
}

/// The completed record of a trial under the given workload.
pub fn record_of(
    plan: &Plan,
    workload: usize,
    contender: usize,
    block: u32,
    time_ns: u64,
) -> Record {
    let block = plan.blocks.iter().find(|entry| !entry.warmup && entry.block == block).unwrap();
    let trial = block
        .trials
        .iter()
        .find(|trial| (trial.workload, trial.contender) == (workload, contender))
        .unwrap();
    let spec = plan.spec(block, *trial, None, "/nowhere".into());
    let mut record = Record::begun(&spec, 0);
    record.elapsed_ns = time_ns;
    record.phases = [(Phase::Run, time_ns), (Phase::Sync, 0)]
        .map(|(phase, elapsed_ns)| PhaseRecord {
            phase,
            elapsed_ns,
            device: Some(DeviceDelta::default()),
            machine_cpu_ns: Some(0),
        })
        .into();
    record.command = Some(CommandUsage { exit_code: Some(0), ..Default::default() });
    record.counts_write_bytes = Some(true);
    record.idle_wait = Some(IdleWait { waited_ns: 0, idle: true, cause: None });
    record
}

/// Records of every block: `times_ms[contender][block]`.
pub fn records(plan: &Plan, times_ms: &[&[u64]]) -> Vec<Record> {
    let blocks = times_ms.iter().map(|times| times.len()).max().unwrap_or(0);
    let mut records = Vec::new();
    for block in 0..blocks {
        for (contender, times) in times_ms.iter().enumerate() {
            if let Some(time_ms) = times.get(block) {
                records.push(record(plan, contender, block as u32, time_ms * MILLISECOND_NS));
            }
        }
    }
    records
}

/// Turns a record into one of a trial that failed.
pub fn fail(record: &mut Record) {
    record.outcome =
        Outcome::Failed { phase: Phase::Run, message: "it broke".into(), output: String::new() };
}

/// The run's entry.
pub fn run_of(record: &mut Record) -> &mut PhaseRecord {
    record.phases.iter_mut().find(|entry| entry.phase == Phase::Run).unwrap()
}
