//! The installed bonnie++: every test's rate is compared; its greatest latencies and its own
//! output are kept.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, Describe, Description, FILE_STEP_BYTES, Form, FromKeys, KeyError, Keys, Needs,
    Preflight, Run, WorkloadKey, WorkloadKind, Written, directory_of, options_without, scale_size,
};
use vocabulary::quantity::size_text;
use vocabulary::report::{Metric, Unit, WorkloadReport};
use vocabulary::workload::WorkloadTask;

use super::tools;
use crate::bonnie::{Bonnie, BonnieReport, RateUnit, TESTS, bonnie};
use crate::tool::WorkloadTool;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<BonnieWorkload>(
    "bonnie",
    &[
        WorkloadKey::load("bonnie", Form::Switch, "Run the installed bonnie++."),
        WorkloadKey::option("size", Form::Text("SIZE"), "Size of the files [default: 1G]."),
    ],
    &[],
)
.enclosed();

const SIZE_DEFAULT: &str = "1G";
/// bonnie++'s own default of files to create, in units of 1024.
const FILES_DEFAULT: u32 = 16;
const MEBIBYTE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct BonnieWorkload {
    /// Size of the files in bytes; bonnie++ wants twice the memory, or to be told otherwise.
    size_bytes: u64,
    /// Files for the creation tests, in units of 1024.
    files: u32,
}

impl FromKeys for BonnieWorkload {
    fn parse(written: &Written<'_>) -> Result<BonnieWorkload, KeyError> {
        Ok(BonnieWorkload { size_bytes: written.size("size", SIZE_DEFAULT)?, files: FILES_DEFAULT })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        scale_size(keys, "size", SIZE_DEFAULT, factor, FILE_STEP_BYTES)
    }
}

impl Describe for BonnieWorkload {
    fn description(&self) -> Description {
        let tests = || TESTS.into_iter().map(|(test, _)| test);
        Description {
            metrics: tests().map(metric_name).chain(tests().map(longest_name)).collect(),
            amounts: vec![Amount::size("the files' size", self.size_bytes)],
            amount: Some(format!("files of {}", size_text(self.size_bytes))),
            settings: options_without(self, &["size_bytes"]),
            lasts_long: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let created = u64::from(self.files) * 1024;
        Ok(capacity::lines(&[
            ("sequential and seeks", capacity::bytes_text(self.size_bytes)),
            ("creation", format!("{created} empty files, in order and at random")),
        ]) + &capacity::verdict(self.size_bytes, capacity))
    }
}

impl Preflight for BonnieWorkload {
    fn needs(&self) -> Needs {
        tools(&[WorkloadTool::Bonnie])
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        let remedy = "give another --size, or a larger device";
        capacity::check("bonnie++'s files take", self.size_bytes, capacity, remedy)
    }
}

impl Run for BonnieWorkload {
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let plan = Bonnie {
            directory: directory_of(&task.target)?,
            size_mib: self.size_bytes.div_ceil(MEBIBYTE),
            files_1024: self.files.into(),
        };
        bonnie(&plan, stop).map(|report| translate(&report))
    }
}

fn metric_name(test: &str) -> String {
    test.replace('_', " ")
}

/// The name of a test's longest operation, all that bonnie++ tells of latencies.
fn longest_name(test: &str) -> String {
    format!("{}, longest", metric_name(test))
}

fn translate(report: &BonnieReport) -> WorkloadReport {
    let tests = || report.records.iter().flat_map(|record| &record.tests);
    // bonnie++ gives no rate for a test that ended too soon to be timed.
    let rates = tests().filter_map(|result| {
        let (factor, unit) = match result.unit {
            RateUnit::KibibytesPerSecond => (1024.0, Unit::BytesPerSecond),
            RateUnit::SeeksPerSecond | RateUnit::FilesPerSecond => (1.0, Unit::OperationsPerSecond),
        };
        let value = result.rate? * factor;
        Some(Metric::new(metric_name(result.test), value, unit))
    });
    let longest = tests().filter_map(|result| {
        let (name, value) = (longest_name(result.test), result.latency_max_ns? as f64);
        Some(Metric::new(name, value, Unit::Nanoseconds))
    });
    let metrics = rates.chain(longest).collect();
    let findings = if tests().any(|result| result.rate.is_none()) {
        vec![
        "some tests ended too soon for bonnie++ to time them, and are missing above; give a larger --size".into(),
    ]
    } else {
        Vec::new()
    };
    WorkloadReport {
        metrics,
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..WorkloadReport::default()
    }
}
