//! What people do with trees: each phase's time, with its sync, is compared.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use vocabulary::capacity::{self, Capacity};
use vocabulary::cost::Phase::Settle;
use vocabulary::kind::{
    Amount, Describe, Description, Durability, Form, FromKeys, KeyError, Keys, LaidOut, Needs,
    Preflight, Run, WorkloadKey, WorkloadKind, Written, directory_of, options_without,
};
use vocabulary::path::UserPath;
use vocabulary::report::{Metric, OVERALL_OPERATION, Unit, WorkloadReport};
use vocabulary::workload::{Loss, WorkloadTask};

use super::{histogram_log, latencies, tools, whole_sync};
use crate::excluded_phase::{self, ExcludedPhaseBegun};
use crate::programs;
use crate::tool::WorkloadTool;
use crate::tree::durable;
use crate::tree::synthetic::FILES_MAX;
use crate::tree::{
    ArchiveFacts, SyntheticTree, Tree, TreePhase, archive_facts, inspect, run_tree, write_archive,
};
use measure::acknowledge::Acknowledger;
use measure::durable::{drop_kernel_caches, run_words};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<TreeWorkload>(
    "tree",
    &[WorkloadKey::load(
        "tree",
        Form::Text("TARBALL"),
        "Copy, unpack, walk, stat, rewrite and delete a tree: a tarball, or synthetic:FILES (docs/reference/tree.md).",
    )],
    &[],
);

#[derive(Serialize, Deserialize)]
struct TreeWorkload {
    source: Source,
    /// What is in it; read before anything is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    facts: Option<ArchiveFacts>,
}

/// Where a tree comes from.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    /// A tarball that tar reads.
    Tarball(UserPath),
    /// A synthetic tree of so many files, from a seed.
    Synthetic {
        #[serde(deserialize_with = "file_count")]
        files: u64,
        seed: u64,
    },
}

/// Reads the number of files of a synthetic tree, which may come from a file of somebody else.
fn file_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let files = u64::deserialize(deserializer)?;
    check_count(files).map_err(serde::de::Error::custom)
}

fn check_count(files: u64) -> Result<u64, String> {
    match files {
        0 => Err("0 is no number of files, as in synthetic:10000".into()),
        1..=FILES_MAX => Ok(files),
        _ => Err(format!("synthetic:{files} has more than {FILES_MAX} files; take fewer")),
    }
}

/// What begins the name of a synthetic tree.
const SYNTHETIC: &str = "synthetic:";

impl FromKeys for TreeWorkload {
    fn parse(written: &Written<'_>) -> Result<TreeWorkload, KeyError> {
        let text = written.text("tree").unwrap_or_default();
        let error = |problem: String| Err(KeyError::new("tree", problem));
        let source = match text.strip_prefix(SYNTHETIC) {
            None if text.is_empty() => {
                return error("is empty; name a tarball, or synthetic:FILES".into());
            }
            None => Source::Tarball(UserPath::typed(text)),
            Some(files) => match files.parse().map(check_count) {
                Ok(Ok(files)) => Source::Synthetic { files, seed: 0 },
                Ok(Err(problem)) => return error(problem),
                Err(_) => {
                    let words = format!("'{files}' is no number of files, as in synthetic:10000");
                    return error(words);
                }
            },
        };
        Ok(TreeWorkload { source, facts: None })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let text = keys.get("tree").and_then(Value::as_str).unwrap_or_default();
        if let Some(Ok(files)) = text.strip_prefix(SYNTHETIC).map(str::parse::<u64>) {
            let files = ((files as f64 * factor).round() as u64).max(1);
            keys.insert("tree".into(), format!("{SYNTHETIC}{files}").into());
        }
        Ok(())
    }
}

impl Describe for TreeWorkload {
    fn description(&self) -> Description {
        let is_metric = |phase: &TreePhase| is_metric(*phase, self.facts.as_ref());
        let phases = TreePhase::ALL.into_iter().filter(is_metric).map(metric_name);
        // The phases of which each operation is timed.
        let timed = [
            TreePhase::Copy,
            TreePhase::Walk,
            TreePhase::Stat,
            TreePhase::Rewrite,
            TreePhase::DeleteEach,
        ];
        let timed = timed.iter().map(|phase| phase.name()).chain([OVERALL_OPERATION]);
        let (amounts, amount, settings) = match &self.source {
            Source::Synthetic { files, seed } => (
                vec![Amount::new("the files", *files as f64, files.to_string())],
                format!("a tree of {files} files"),
                Value::from(*seed),
            ),
            Source::Tarball(path) => {
                (Vec::new(), path.to_string(), options_without(self, &["facts"]))
            }
        };
        Description {
            metrics: std::iter::once(ALL_PHASES.to_string()).chain(phases).collect(),
            operations: timed.map(String::from).collect(),
            amounts,
            amount: Some(amount),
            settings,
            has_setup: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let Some(facts) = self.facts else { return Ok(String::new()) };
        let phases: Vec<String> = TreePhase::ALL.into_iter().map(metric_name).collect();
        let source = match &self.source {
            Source::Tarball(path) => path.display().to_string(),
            Source::Synthetic { files, seed } => format!("synthetic, {files} files, seed {seed}"),
        };
        Ok(capacity::lines(&[
            ("tree", source),
            ("phases", phases.join(", ")),
            ("archive", capacity::bytes_text(facts.archive_bytes)),
            ("files", facts.files.to_string()),
            ("directories and links", facts.others.to_string()),
            ("in the files", capacity::bytes_text(facts.file_bytes)),
        ]) + &capacity::verdict(facts.needed_bytes(), capacity))
    }
}

impl Preflight for TreeWorkload {
    /// Looks through the tarball once, so that what it needs is known before anything is touched.
    fn read(&mut self) -> Result<(), String> {
        self.facts = Some(match &self.source {
            Source::Tarball(path) => {
                let opened = Opened::of(path)?;
                inspect(&opened.path, &AtomicBool::new(false))
                    .map_err(|error| opened.name(error))?
            }
            Source::Synthetic { files, seed } => archive_facts(&SyntheticTree::new(*files, *seed)),
        });
        Ok(())
    }

    fn needs(&self) -> Needs {
        let mut needs = tools(&[WorkloadTool::Tar, WorkloadTool::Rm]);
        if let Source::Tarball(path) = &self.source {
            let is_large = |facts: std::fs::Metadata| facts.len() >= NOTABLE_ARCHIVE_BYTES;
            needs.slow_to_read = path.metadata().is_ok_and(is_large).then(|| path.to_path_buf());
            needs.inputs = vec![path.to_path_buf()];
        }
        needs
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        let needed_bytes = self.facts.map_or(0, |facts| facts.needed_bytes());
        capacity::check(
            "the archive and its tree need",
            needed_bytes,
            capacity,
            "give a larger device",
        )
    }
}

impl Run for TreeWorkload {
    /// Writes the synthetic tree's archive, outside of the contender.
    fn set_up(&self, task: &WorkloadTask, _: &AtomicBool) -> Result<LaidOut, String> {
        if let Source::Synthetic { files, seed } = self.source {
            let path = self.archive(task);
            let failed = |error: io::Error| format!("{}: {error}", path.display());
            let mut writer = BufWriter::new(File::create(&path).map_err(failed)?);
            write_archive(&SyntheticTree::new(files, seed), &mut writer).map_err(failed)?;
            writer.flush().map_err(failed)?;
        }
        Ok(LaidOut::default())
    }

    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let archive = Opened::of(&self.archive(task))?;
        let facts = match self.facts {
            Some(facts) => facts,
            None => inspect(&archive.path, stop).map_err(|error| archive.name(error))?,
        };
        // The first phase is to write from memory, not to wait for the disk that the archive lies on.
        File::open(&archive.path)
            .and_then(|mut archive| io::copy(&mut archive, &mut io::sink()))
            .map_err(|error| format!("{}: {error}", archive.named.display()))?;
        let plan = Tree {
            archive: &archive.path,
            directory: directory_of(&task.target)?,
            facts,
            sync: whole_sync(task),
        };
        // A file system that has to be unmounted to become cold must not be this process's directory.
        if task.cool_command.is_some() {
            std::env::set_current_dir("/")
                .map_err(|error| format!("leaving the mount: {error}"))?;
        }
        let (mut kept, mut cooled) = (None, Vec::new());
        let acknowledger = Acknowledger::of(task)?;
        let mut unheard = None;
        let mut begin = |phase| {
            if let Some(acknowledger) = &acknowledger
                && unheard.is_none()
            {
                unheard = durable::announce(acknowledger, phase, plan.directory).err();
            }
            // The first phase reads the archive, which lies outside of the contender and is to come
            // from memory; the contender's own caches were dropped right before the run.
            if task.cold && phase != TreePhase::ALL[0] {
                let cooling = ExcludedPhaseBegun::now(task);
                let done = match &task.cool_command {
                    Some(words) => run_words(words).map_err(|error| error.to_string()),
                    None => drop_kernel_caches(),
                };
                kept = done.err().or(kept.take());
                programs::warm(&[], &self.needs().programs, "");
                cooled.push(cooling.end(Settle));
            }
        };
        let (report, recording) =
            run_tree(&plan, stop, &mut begin).map_err(|error| archive.name(error))?;
        if let Some(unheard) = unheard {
            return Err(unheard);
        }
        let metric = |name: String, ns: u64| Metric::new(name, ns as f64, Unit::Nanoseconds);
        let phases = || report.phases.iter().map(|phase| (phase, phase.elapsed_ns + phase.sync_ns));
        let total_ns = phases().map(|(_, ns)| ns).sum();
        let metrics = std::iter::once(metric(ALL_PHASES.into(), total_ns))
            .chain(
                phases()
                    .filter(|(phase, _)| is_metric(phase.phase, Some(&facts)))
                    .map(|(phase, ns)| metric(metric_name(phase.phase), ns)),
            )
            .collect();
        let proof = format!("tree {}", report.hash);
        let mut findings = vec![proof.clone()];
        if !is_metric(TreePhase::Walk, Some(&facts)) {
            findings.push(format!(
                "walk and stat are no metrics: below {ENTRIES_MIN} entries they take too few milliseconds to tell contenders apart"
            ));
        }
        findings.extend(kept.map(|error| format!("caches were kept between the phases: {error}")));
        let elapsed_ns = report.phases.iter().map(|phase| phase.elapsed_ns).sum();
        Ok(WorkloadReport {
            metrics,
            latencies: latencies(&recording.summary()),
            findings,
            proof: Some(proof),
            written_bytes: Some(report.written_bytes(&facts)),
            excluded_phases: excluded_phase::sum(cooled).into_iter().collect(),
            histogram_log: Some(histogram_log(&recording, elapsed_ns)?),
            details: serde_json::to_value(&report).expect("a report has a JSON form"),
            ..WorkloadReport::default()
        })
    }

    fn durability(&self) -> Option<&dyn Durability> {
        Some(self)
    }
}

impl Durability for TreeWorkload {
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        Ok(durable::find_loss(directory_of(&task.target)?, acknowledged))
    }
}

impl TreeWorkload {
    fn archive(&self, task: &WorkloadTask) -> PathBuf {
        match &self.source {
            Source::Tarball(path) => path.to_path_buf(),
            Source::Synthetic { .. } => task.scratch.join(ARCHIVE_FILE),
        }
    }
}

/// Name of the synthetic tree's archive in the scratch directory.
const ARCHIVE_FILE: &str = "tree.tar";

/// An archive of this size takes tar seconds to look through when it is compressed, so the user is
/// told what is waited for.
const NOTABLE_ARCHIVE_BYTES: u64 = 16 << 20;

/// The metric of all phases together.
const ALL_PHASES: &str = "all phases";

/// Entries from which on walk and stat, which only read names and facts, are long enough to compare.
const ENTRIES_MIN: u64 = 2_000;

/// Whether the time of a phase is a metric under a tree; of an unknown tree it may be.
fn is_metric(phase: TreePhase, facts: Option<&ArchiveFacts>) -> bool {
    let is_small = facts.is_some_and(|facts| facts.files + facts.others < ENTRIES_MIN);
    !(is_small && matches!(phase, TreePhase::Walk | TreePhase::Stat))
}

fn metric_name(phase: TreePhase) -> String {
    phase.name().replace('_', " ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthetic_tree_has_as_many_files_as_fit_into_memory() {
        let read = |files: u64| {
            let text = format!("{{\"source\":{{\"synthetic\":{{\"files\":{files},\"seed\":1}}}}}}");
            serde_json::from_str::<TreeWorkload>(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!((read(1), read(FILES_MAX)), (Ok(()), Ok(())));
        assert!(read(0).unwrap_err().contains("no number of files"));
        for files in [FILES_MAX + 1, u64::MAX] {
            assert!(read(files).unwrap_err().contains("has more than 10000000 files"));
        }
    }

    #[test]
    fn what_is_over_before_a_clock_can_tell_is_no_metric() {
        let metrics = |files| {
            let facts = Some(ArchiveFacts { files, others: 10, ..ArchiveFacts::default() });
            TreeWorkload { source: Source::Synthetic { files, seed: 1 }, facts }
                .description()
                .metrics
        };
        let small = ["all phases", "copy", "unpack", "rewrite", "delete each", "delete all"];
        assert_eq!(metrics(300), small);
        assert_eq!(metrics(2_000).len(), small.len() + 2);
    }
}
