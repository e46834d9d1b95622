//! The installed bonnie++: every test's rate is compared; its greatest latencies and its own
//! output are kept.

use lab::load::{BonnieLoad, LoadReport, Metric, Target, Unit};
use loads::bonnie::{Bonnie, BonnieReport, Test, Unit as BonnieUnit, bonnie};
use loads::tool::Tool;

use super::directory_of;
use super::room::{self, Room};
use crate::stop::Stop;

const MEBIBYTE: u64 = 1 << 20;

/// Whether bonnie++ is there, and whether its files fit.
pub(super) fn check(load: &BonnieLoad, room: Option<&Room>) -> Result<(), String> {
    Tool::Bonnie.locate().map_err(|error| error.to_string())?;
    let needer = "bonnie++'s files take";
    room::check(needer, load.size_bytes, room, "give another --size, or a larger device")
}

/// What it will do, and whether it fits.
pub(super) fn plan_text(load: &BonnieLoad, room: Option<&Room>) -> String {
    let created = u64::from(load.files) * 1024;
    room::lines(&[
        ("sequential and seeks", room::bytes_text(load.size_bytes)),
        ("creation", format!("{created} empty files, in order and at random")),
    ]) + &room::verdict(load.size_bytes, room)
}

pub(super) fn run(load: &BonnieLoad, target: &Target, stop: &Stop) -> Result<LoadReport, String> {
    let plan = Bonnie {
        directory: directory_of(target)?,
        size_mib: load.size_bytes.div_ceil(MEBIBYTE),
        files_1024: load.files.into(),
        options: &[],
    };
    let report = bonnie(&plan, stop.flag()).map_err(|error| error.to_string())?;
    Ok(translate(&report))
}

/// The name of a test in its JSON, with blanks.
fn metric_name(test: Test) -> Option<String> {
    Some(serde_json::to_value(test).ok()?.as_str()?.replace('_', " "))
}

/// The name of a test's longest operation, all that bonnie++ tells of latencies.
fn longest_name(test: Test) -> Option<String> {
    Some(format!("{}, longest", metric_name(test)?))
}

pub(super) fn metric_names() -> Vec<String> {
    let rates = Test::ALL.into_iter().filter_map(metric_name);
    rates.chain(Test::ALL.into_iter().filter_map(longest_name)).collect()
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
        Some(Metric { name: metric_name(result.test)?, value, unit })
    });
    let longest = tests().filter_map(|result| {
        let (name, value) = (longest_name(result.test)?, result.latency_max_ns? as f64);
        Some(Metric { name, value, unit: Unit::Nanoseconds })
    });
    let metrics = rates.chain(longest).collect();
    let findings = match tests().any(|result| result.rate.is_none()) {
        true => vec![
            "some tests ended too soon for bonnie++ to time them, and are missing above; give a larger --size".into(),
        ],
        false => Vec::new(),
    };
    LoadReport {
        metrics,
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    }
}
