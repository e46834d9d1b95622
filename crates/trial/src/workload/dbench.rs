//! The installed dbench: its throughput is compared, its own table and output are kept.

use std::path::Path;

use lab::load::{DbenchLoad, LoadReport, Metric, Series, Target, Unit};
use loads::dbench::real::{Dbench, DbenchReport, dbench};
use loads::dbench::verdict;
use loads::tool::Tool;

use super::{directory_of, drift_words};
use crate::stop::Stop;

/// Whether dbench is there.
pub(super) fn check(load: &DbenchLoad) -> Result<(), String> {
    Tool::Dbench.locate().map_err(|error| error.to_string())?;
    match &load.load_file {
        Some(path) if !path.is_file() => Err(format!("load file {}: not found", path.display())),
        _ => Ok(()),
    }
}

pub(super) fn run(load: &DbenchLoad, target: &Target, stop: &Stop) -> Result<LoadReport, String> {
    let plan = Dbench {
        directory: directory_of(target)?,
        clients: load.clients,
        execute_seconds: load.seconds,
        load_file: load.load_file.as_deref().map(Path::new),
        options: &[],
    };
    let report = dbench(&plan, stop.flag(), &mut |_| ()).map_err(|error| error.to_string())?;
    if report.throughput_mb_per_second <= 0.0 {
        return Err("dbench counted nothing; give it more time by --time".into());
    }
    Ok(translate(&report))
}

fn translate(report: &DbenchReport) -> LoadReport {
    let series = report.series();
    let rates = series
        .iter()
        .map(|interval| interval.bytes as f64 * 1e9 / interval.duration_ns as f64)
        .collect();
    let mut findings = drift_words(&verdict(&series, &[]));
    findings.extend(report.complaints.first().map(|complaint| {
        format!("{} complaints, the first: {complaint}", report.complaints.len())
    }));
    LoadReport {
        metrics: vec![Metric {
            name: "throughput".into(),
            value: report.throughput_mb_per_second * 1e6,
            unit: Unit::BytesPerSecond,
        }],
        series: vec![Series {
            name: "throughput".into(),
            unit: Unit::BytesPerSecond,
            interval_ns: 1_000_000_000,
            values: rates,
        }],
        findings,
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    }
}
