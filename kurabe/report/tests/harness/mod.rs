//! Results made by hand: a plan, records of known numbers, and the directory that holds them.
#![allow(dead_code, reason = "every test program uses another part of it")]

pub mod hostile;

use std::path::{Path, PathBuf};

use lab::contender::Known;
use lab::plan::Plan;
use lab::record::{
    CommandUsage, DeviceDelta, FileSystemSpace, IdleWait, Outcome, Phase, PhaseRecord, Record,
};
use lab::result::{FACTS_FILE, ResultWriter};
use lab::study::{CommandText, StudyText, WorkloadText};
use lab::study_file;
use lab::workload::{Latency, Metric, QUANTILES, Series, Unit, WorkloadReport};
use serde_json::json;
use tempfile::TempDir;

pub const KNOWN: &[Known] = &Known::named(["ext4", "xfs", "btrfs", "raw"]);

/// A result directory that is gone with its owner.
pub struct Made {
    home: TempDir,
    pub plan: Plan,
    pub records: Vec<Record>,
}

impl Made {
    pub fn directory(&self) -> PathBuf {
        self.home.path().join("result")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}

/// A study of these contenders under these commands, with exactly so many blocks.
pub fn study(contenders: &[&str], commands: &[&str], blocks: u32) -> StudyText {
    StudyText {
        name: Some("a study".into()),
        contenders: contenders.iter().map(ToString::to_string).collect(),
        runs: Some(blocks),
        workloads: commands
            .iter()
            .map(|line| WorkloadText {
                command: Some(CommandText::Line(line.to_string())),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

/// Makes a result: `fill` completes the record of each trial, or refuses it.
pub fn make(text: &StudyText, mut fill: impl FnMut(&mut Record) -> bool) -> Made {
    let home = tempfile::Builder::new().prefix("test-of-kurabe-report-").tempdir().unwrap();
    let plan = Plan::new(text.resolve(KNOWN).unwrap(), 7);
    let directory = home.path().join("result");
    let mut writer = ResultWriter::create(&directory, &plan, &study_file::print(text)).unwrap();
    writer.write_json(FACTS_FILE, &facts()).unwrap();
    let mut records = Vec::new();
    for block in &plan.blocks {
        for trial in &block.trials {
            let spec = plan.spec(block, *trial, None, "/nowhere".into());
            let started = 1_795_216_674_000_000_000 + u64::from(trial.trial) * 3_000_000_000;
            let mut record = Record::begun(&spec, started);
            if fill(&mut record) {
                records.push(writer.append(record).unwrap());
            }
        }
    }
    Made { home, plan, records }
}

pub fn facts() -> serde_json::Value {
    json!({
        "schema": 1,
        "command_line": ["kurabe", "compare", "ext4", "it's"],
        "machine": {"kernel": "6.1.0-test #1", "memory_bytes": 1_u64 << 34, "cpus": 2},
        "device": {"request": "loop:8G"},
        "tools": {"mkfs.ext4": "mke2fs 1.47.0"},
    })
}

/// Completes a record: run and sync of so many ns in all, with device counters and costs.
pub fn complete(record: &mut Record, time_ns: u64) {
    let device = |written_bytes, flushes| {
        Some(DeviceDelta { writes: 10, written_bytes, flushes, ..Default::default() })
    };
    let phase = |phase, elapsed_ns, device| PhaseRecord {
        phase,
        elapsed_ns,
        device,
        machine_cpu_ns: Some(elapsed_ns),
    };
    record.elapsed_ns = time_ns + 500_000_000;
    record.outcome = Outcome::Completed;
    record.phases = vec![
        phase(Phase::Mkfs, 50_000_000, device(1 << 20, 1)),
        phase(Phase::Mount, 10_000_000, device(4096, 0)),
        phase(Phase::Settle, 300_000_000, device(0, 0)),
        phase(Phase::Run, time_ns / 4 * 3, device(3 << 20, 1)),
        phase(Phase::Sync, time_ns - time_ns / 4 * 3, device(1 << 20, 2)),
        phase(Phase::Unmount, 20_000_000, device(4096, 1)),
        phase(Phase::Check, 30_000_000, device(0, 0)),
    ];
    record.command = Some(CommandUsage {
        exit_code: Some(0),
        user_ns: 1_000_000,
        system_ns: 2_000_000,
        memory_bytes_max: 1 << 20,
        write_call_bytes: Some(3 << 20),
        storage_written_bytes: Some(2 << 20),
        ..Default::default()
    });
    record.idle_wait = Some(IdleWait { waited_ns: 1, idle: true, cause: None });
    let space =
        |free_bytes| Some(FileSystemSpace { total_bytes: 1 << 30, free_bytes, free_inodes: 9 });
    (record.space_before, record.space_after) = (space(1 << 29), space((1 << 29) - (2 << 20)));
    record.commands = vec![format!("mkfs.{} /dev/loop1", record.contender.file_system())];
    record.geometry = Some("Block size: 4096".into());
    record.mounted_as = Some("/dev/loop1 /mnt ext4 rw 0 0".into());
    record.counts_write_bytes = Some(true);
}

/// Times that differ by contender and, a little, by block: known to the caller, no two alike.
pub fn time_ns(record: &Record, plan_labels: &[&str]) -> u64 {
    let place = plan_labels.iter().position(|label| *label == record.contender.label).unwrap();
    let wobble = u64::from(record.trial * 7919 % 97);
    900_000_000 + place as u64 * 250_000_000 + wobble * 123_457
}

/// A workload report with a figure, latencies, a series and words.
pub fn workload_report(value: f64) -> WorkloadReport {
    let latency = |operation: &str, count| Latency {
        operation: operation.into(),
        count,
        bytes: count * 4096,
        total_ns: count * 40_000,
        quantiles_ns: QUANTILES
            .into_iter()
            .zip([5_000, 30_000, 90_000, 120_000, 900_000, 4_000_000, 7_000_000])
            .collect(),
        max_ns: 9_000_000,
    };
    WorkloadReport {
        metrics: vec![Metric::new("throughput", value, Unit::BytesPerSecond)],
        operations: Some(25_000),
        latencies: vec![latency("Put", 20_000), latency("Get", 5_000), latency("overall", 25_000)],
        series: vec![Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: (0..12).map(|second| value * (1.0 + 0.5 / f64::from(second + 1))).collect(),
            marks: Vec::new(),
        }],
        findings: vec!["verified 25000 objects".into()],
        ..Default::default()
    }
}

/// Replaces a file of a result by these bytes.
pub fn damage(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}
