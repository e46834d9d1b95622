//! What people do with trees: each phase's time, with its sync, is compared.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use lab::load::{LoadReport, LoadTask, Metric, TreeFacts, TreeLoad, TreeSource, Unit};
use loads::durable::run_words;
use loads::tool::Tool;
use loads::tree::{
    ArchiveFacts, Phase, SyntheticTree, Tree, archive_facts, inspect, run_tree, write_archive,
};

use super::room::{self, Room};
use super::{directory_of, histogram_log, latencies, whole_sync};
use crate::filesystem::write_drop_caches;
use crate::stop::Stop;

/// Looks through the tarball once, so that what it needs is known before anything is touched.
pub(super) fn read(load: &mut TreeLoad) -> Result<(), String> {
    let facts = match &load.source {
        TreeSource::Tarball(path) => {
            let opened = Opened::of(path)?;
            inspect(&opened.path, &AtomicBool::new(false)).map_err(|error| opened.name(error))?
        }
        TreeSource::Synthetic { files, seed } => archive_facts(&SyntheticTree::new(*files, *seed)),
    };
    let ArchiveFacts { archive_bytes, files, others, file_bytes, block_bytes } = facts;
    load.facts = Some(TreeFacts { archive_bytes, files, others, file_bytes, block_bytes });
    Ok(())
}

/// A tarball that was opened once. What reads it, tar too, is given this very file.
struct Opened {
    path: PathBuf,
    named: PathBuf,
    _file: File,
}

impl Opened {
    fn of(named: &Path) -> Result<Opened, String> {
        let file = trust::file::open(named).map_err(|refused| format!("tarball {refused}"))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Ok(Opened { path, named: named.into(), _file: file })
    }

    /// An error, with the name that the user knows.
    fn name(&self, error: impl std::fmt::Display) -> String {
        let path = self.path.display().to_string();
        error.to_string().replace(&path, &self.named.display().to_string())
    }
}

fn facts(load: &TreeLoad) -> Option<ArchiveFacts> {
    let TreeFacts { archive_bytes, files, others, file_bytes, block_bytes } = load.facts?;
    Some(ArchiveFacts { archive_bytes, files, others, file_bytes, block_bytes })
}

/// What the phases run.
pub(super) const TOOLS: [Tool; 2] = [Tool::Tar, Tool::Rm];

/// Whether the tools are there, and whether archive and tree fit.
pub(super) fn check(load: &TreeLoad, room: Option<&Room>) -> Result<(), String> {
    for tool in TOOLS {
        tool.locate().map_err(|error| error.to_string())?;
    }
    let needed_bytes = facts(load).map_or(0, |facts| facts.needed_bytes());
    room::check("the archive and its tree need", needed_bytes, room, "give a larger device")
}

/// What it will do, and whether it fits.
pub(super) fn plan_text(load: &TreeLoad, room: Option<&Room>) -> String {
    let Some(facts) = facts(load) else { return String::new() };
    let phases: Vec<String> =
        Phase::DEFAULT.iter().map(|phase| phase.name().replace('_', " ")).collect();
    let source = match &load.source {
        TreeSource::Tarball(path) => path.display().to_string(),
        TreeSource::Synthetic { files, seed } => format!("synthetic, {files} files, seed {seed}"),
    };
    room::lines(&[
        ("tree", source),
        ("phases", phases.join(", ")),
        ("archive", room::bytes_text(facts.archive_bytes)),
        ("files", facts.files.to_string()),
        ("directories and links", facts.others.to_string()),
        ("in the files", room::bytes_text(facts.file_bytes)),
    ]) + &room::verdict(facts.needed_bytes(), room)
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
        TreeSource::Synthetic { .. } => task.scratch.join(ARCHIVE_FILE),
    }
}

/// The figure of all phases together.
const ALL_PHASES: &str = "all phases";

fn metric_name(phase: Phase) -> String {
    phase.name().replace('_', " ")
}

pub(super) fn metric_names() -> Vec<String> {
    let phases = Phase::DEFAULT.into_iter().map(metric_name);
    std::iter::once(ALL_PHASES.to_string()).chain(phases).collect()
}

/// The phases of which each operation is timed.
pub(super) fn operation_names() -> Vec<String> {
    [Phase::Copy, Phase::Walk, Phase::Stat, Phase::Rewrite, Phase::DeleteEach]
        .map(|phase| phase.name().to_string())
        .into()
}

pub(super) fn run(load: &TreeLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let archive = Opened::of(&archive(load, task))?;
    let facts = match facts(load) {
        Some(facts) => facts,
        None => inspect(&archive.path, stop.flag()).map_err(|error| archive.name(error))?,
    };
    // The first phase is to write from memory, not to wait for the disk that the archive lies on.
    File::open(&archive.path)
        .and_then(|mut archive| io::copy(&mut archive, &mut io::sink()))
        .map_err(|error| format!("{}: {error}", archive.named.display()))?;
    let plan = Tree {
        archive: &archive.path,
        directory: directory_of(&task.target)?,
        phases: &Phase::DEFAULT,
        facts: Some(facts),
        expected_hash: None,
        sync: whole_sync(task),
    };
    // A file system that has to be unmounted to become cold must not be this process's directory.
    if task.cool_command.is_some() {
        std::env::set_current_dir("/").map_err(|error| format!("leaving the mount: {error}"))?;
    }
    let mut kept = None;
    let mut begin = |phase| {
        // The first phase reads the archive, which lies outside of the contender and is to come
        // from memory; the contender's own caches were dropped right before the run.
        if task.cold && phase != Phase::DEFAULT[0] {
            let cooled = match &task.cool_command {
                Some(words) => run_words(words).map_err(|error| error.to_string()),
                None => write_drop_caches(),
            };
            kept = cooled.err().or(kept.take());
        }
    };
    let outcome = run_tree(&plan, stop.flag(), &mut begin).map_err(|error| archive.name(error))?;
    let report = &outcome.report;
    let metric = |name: String, ns: u64| Metric { name, value: ns as f64, unit: Unit::Nanoseconds };
    let phases = || report.phases.iter().map(|phase| (phase, phase.elapsed_ns + phase.sync_ns));
    let total_ns = phases().map(|(_, ns)| ns).sum();
    let metrics = std::iter::once(metric(ALL_PHASES.into(), total_ns))
        .chain(phases().map(|(phase, ns)| metric(metric_name(phase.phase), ns)))
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
