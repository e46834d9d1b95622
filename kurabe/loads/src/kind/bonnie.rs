//! The installed bonnie++: every test's rate is compared; its greatest latencies and its own
//! output are kept.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, FILE_STEP_BYTES, Form, Generator, Key, KeyError, Keys, Kind, Written, directory_of,
    options_without, scale_size,
};
use vocabulary::load::LoadTask;
use vocabulary::quantity::size_text;
use vocabulary::report::{LoadReport, Metric, Unit};

use super::{missing_tools, programs_of};
use crate::bonnie::{Bonnie, BonnieReport, TESTS, Unit as BonnieUnit, bonnie};
use crate::tool::Tool;

pub(super) const KIND: Kind = Kind::of::<BonnieLoad>(
    "bonnie",
    &[
        Key::load("bonnie", Form::Switch, "Run the installed bonnie++."),
        Key::option("size", Form::Text("SIZE"), "Size of the files [default: 1G]."),
    ],
    &[],
)
.enclosed();

const SIZE_DEFAULT: &str = "1G";
/// bonnie++'s own default of files to create, in units of 1024.
const FILES_DEFAULT: u32 = 16;
const MEBIBYTE: u64 = 1 << 20;

/// A bonnie++ run.
#[derive(Serialize, Deserialize)]
struct BonnieLoad {
    /// Size of the files in bytes; bonnie++ wants twice the memory, or to be told otherwise.
    size_bytes: u64,
    /// Files for the creation tests, in units of 1024.
    files: u32,
}

impl Generator for BonnieLoad {
    fn parse(written: &Written<'_>) -> Result<BonnieLoad, KeyError> {
        Ok(BonnieLoad { size_bytes: written.size("size", SIZE_DEFAULT)?, files: FILES_DEFAULT })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        scale_size(keys, "size", SIZE_DEFAULT, factor, FILE_STEP_BYTES)
    }

    fn amounts(&self) -> Vec<Amount> {
        vec![Amount::size("the files' size", self.size_bytes)]
    }

    fn settings(&self) -> Value {
        options_without(self, &["size_bytes"])
    }

    fn amount(&self) -> Option<String> {
        Some(format!("files of {}", size_text(self.size_bytes)))
    }

    fn missing(&self) -> Vec<String> {
        missing_tools(&[Tool::Bonnie])
    }

    fn programs(&self) -> Vec<PathBuf> {
        programs_of(&[Tool::Bonnie])
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        Tool::Bonnie.locate()?;
        let needer = "bonnie++'s files take";
        capacity::check(
            needer,
            self.size_bytes,
            capacity,
            "give another --size, or a larger device",
        )
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let created = u64::from(self.files) * 1024;
        Ok(capacity::lines(&[
            ("sequential and seeks", capacity::bytes_text(self.size_bytes)),
            ("creation", format!("{created} empty files, in order and at random")),
        ]) + &capacity::verdict(self.size_bytes, capacity))
    }

    fn metrics(&self) -> Vec<String> {
        let tests = || TESTS.into_iter().map(|(test, _)| test);
        tests().map(metric_name).chain(tests().map(longest_name)).collect()
    }

    fn lasts_long(&self) -> bool {
        true
    }

    fn run(&self, task: &LoadTask, stop: &AtomicBool) -> Result<LoadReport, String> {
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

fn translate(report: &BonnieReport) -> LoadReport {
    let tests = || report.records.iter().flat_map(|record| &record.tests);
    // bonnie++ gives no rate for a test that ended too soon to be timed.
    let rates = tests().filter_map(|result| {
        let (factor, unit) = match result.unit {
            BonnieUnit::KibibytesPerSecond => (1024.0, Unit::BytesPerSecond),
            BonnieUnit::SeeksPerSecond | BonnieUnit::FilesPerSecond => {
                (1.0, Unit::OperationsPerSecond)
            }
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
    LoadReport {
        metrics,
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    }
}
