//! What people do with trees: each phase's time, with its sync, is compared.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lab::load::{LoadReport, LoadTask, Metric, TreeLoad, TreeSource, Unit};
use loads::tool::Tool;
use loads::tree::{Phase, SyntheticTree, Tree, inspect, run_tree, write_archive};

use super::{directory_of, histogram_log, latencies};
use crate::filesystem::write_drop_caches;
use crate::stop::Stop;

/// Whether the tools and the tarball are there.
pub(super) fn check(load: &TreeLoad) -> Result<(), String> {
    for tool in [Tool::Tar, Tool::Rm] {
        tool.locate().map_err(|error| error.to_string())?;
    }
    match &load.source {
        TreeSource::Tarball(path) => File::open(path)
            .map(drop)
            .map_err(|error| format!("tarball {}: {error}", path.display())),
        TreeSource::Synthetic { .. } => Ok(()),
    }
}

/// Name of the synthetic tree's archive in the scratch directory.
const ARCHIVE_FILE: &str = "tree.tar";

/// Writes the synthetic tree's archive, outside of the contender.
pub(super) fn set_up(load: &TreeLoad, task: &LoadTask) -> Result<LoadReport, String> {
    if let TreeSource::Synthetic { files, seed } = load.source {
        let path = archive(load, task);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut writer = BufWriter::new(File::create(&path).map_err(failed)?);
        write_archive(&SyntheticTree::new(files, seed), &mut writer).map_err(failed)?;
        writer.flush().map_err(failed)?;
    }
    Ok(LoadReport::default())
}

fn archive(load: &TreeLoad, task: &LoadTask) -> PathBuf {
    match &load.source {
        TreeSource::Tarball(path) => path.clone(),
        TreeSource::Synthetic { .. } => {
            task.report.parent().unwrap_or(Path::new("/tmp")).join(ARCHIVE_FILE)
        }
    }
}

pub(super) fn run(load: &TreeLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let archive = archive(load, task);
    let facts = inspect(&archive, stop.flag()).map_err(|error| error.to_string())?;
    let plan = Tree {
        archive: &archive,
        directory: directory_of(&task.target)?,
        phases: &Phase::DEFAULT,
        facts: Some(facts),
        expected_hash: None,
    };
    let mut kept = None;
    let mut begin = |phase| {
        // The first phase reads the archive, which lies outside of the contender and is to come
        // from memory; the contender's own caches were dropped right before the run.
        if task.cold && phase != Phase::DEFAULT[0] {
            kept = write_drop_caches().err().or(kept.take());
        }
    };
    let outcome = run_tree(&plan, stop.flag(), &mut begin).map_err(|error| error.to_string())?;
    let report = &outcome.report;
    let metric = |name: String, ns: u64| Metric { name, value: ns as f64, unit: Unit::Nanoseconds };
    let phases = || report.phases.iter().map(|phase| (phase, phase.elapsed_ns + phase.sync_ns));
    let total_ns = phases().map(|(_, ns)| ns).sum();
    let metrics = std::iter::once(metric("all phases".into(), total_ns))
        .chain(phases().map(|(phase, ns)| metric(phase.phase.name().replace('_', " "), ns)))
        .collect();
    let proof = report.hash.as_ref().map(|hash| format!("tree {hash}"));
    let mut findings: Vec<String> = proof.iter().cloned().collect();
    findings.extend(kept.map(|error| format!("caches were kept between the phases: {error}")));
    let elapsed_ns = report.phases.iter().map(|phase| phase.elapsed_ns).sum();
    Ok(LoadReport {
        metrics,
        latencies: latencies(&outcome.latencies.summary()),
        findings,
        proof,
        histogram_log: Some(histogram_log(&outcome.latencies, elapsed_ns)?),
        details: serde_json::to_value(report).expect("a report has a JSON form"),
        ..LoadReport::default()
    })
}
