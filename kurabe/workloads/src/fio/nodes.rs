//! The same jobs on several machines at once, by fio's own client and server.
//!
//! The nodes run `fio --server` and nothing of ours. This machine runs one client for each node, all
//! started together; each node has a directory of its own in the contender's, which all have mounted at the
//! same path. Invariants: no clocks are compared across machines (a node began when its client ended
//! here, less the time that it took by its own clock); the node that failed is named; fio's sums over
//! clients are not used.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::output::{self, FioJob};
use super::place::FioTarget;
use super::run::{Fio, failed, measured, ready};
use crate::enclosure::Enclosure;
use crate::tool::{ToolError, WorkloadTool, run_kept_in};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    pub node: String,
    pub jobs: Vec<FioJob>,
    /// From the start of the first node to its own.
    pub began_ns: u64,
    /// From the start of the first node to its end.
    pub ended_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodesReport {
    /// fio's version here.
    pub version: String,
    pub nodes: Vec<NodeReport>,
    /// The job file as the first node got it.
    pub job_text: String,
}

/// What fio calls its own sum over the jobs of a client.
const SUM: &str = "All clients";

impl NodesReport {
    pub fn jobs(&self) -> Vec<FioJob> {
        self.nodes.iter().flat_map(|node| node.jobs.clone()).collect()
    }

    /// From the start of the first node to that of the last, in ns.
    pub fn skew_ns(&self) -> u64 {
        self.nodes.iter().map(|node| node.began_ns).max().unwrap_or(0)
    }

    /// From the start of the first node to the ends of the first and of the last, in ns.
    pub fn ends_ns(&self) -> (u64, u64) {
        let ends = || self.nodes.iter().map(|node| node.ended_ns);
        (ends().min().unwrap_or(0), ends().max().unwrap_or(0))
    }

    /// The skew as a share of the whole run.
    pub fn skew(&self) -> f64 {
        self.skew_ns() as f64 / self.ends_ns().1.max(1) as f64
    }
}

/// Has each node lay out its files.
///
/// Errors: as [`super::fio`], with the node that failed.
pub fn lay_out_on(plan: &Fio<'_>, nodes: &[String], stop: &AtomicBool) -> Result<(), String> {
    on_all(plan, nodes, "layout.fio", "create_only=1\n", stop).map(drop)
}

/// Runs the jobs on all nodes, whose files were laid out.
///
/// Errors: as [`super::fio`], with the node that failed.
pub fn fio_on(plan: &Fio<'_>, nodes: &[String], stop: &AtomicBool) -> Result<NodesReport, String> {
    let ran = on_all(plan, nodes, "job.fio", "", stop)?;
    let length = |jobs: &[FioJob]| {
        Duration::from_millis(jobs.iter().map(|job| job.job_runtime).max().unwrap_or(0))
    };
    let begin = |one: &Ran| one.ended.checked_sub(length(&one.jobs)).unwrap_or(one.ended);
    let first = ran.iter().map(begin).min().ok_or("a workload on nodes needs a node")?;
    let since = |instant: Instant| instant.duration_since(first).as_nanos() as u64;
    Ok(NodesReport {
        version: ran[0].version.clone(),
        job_text: ran[0].job_text.clone(),
        nodes: nodes
            .iter()
            .zip(&ran)
            .map(|(node, one)| NodeReport {
                node: node.clone(),
                jobs: one.jobs.clone(),
                began_ns: since(begin(one)),
                ended_ns: since(one.ended),
            })
            .collect(),
    })
}

/// A client that ended.
struct Ran {
    version: String,
    job_text: String,
    jobs: Vec<FioJob>,
    ended: Instant,
}

/// Runs the jobs, with these options in front of each, on all nodes at once.
fn on_all(
    plan: &Fio<'_>,
    nodes: &[String],
    name: &str,
    options: &str,
    stop: &AtomicBool,
) -> Result<Vec<Ran>, String> {
    let FioTarget::Directory(directory) = plan.target else {
        return Err("nodes work in a directory that all of them have mounted: dir:/path".into());
    };
    let mut texts = Vec::new();
    for number in 1..=nodes.len() {
        let own = directory.join(format!("node-{number}"));
        fs::create_dir_all(&own).map_err(failed("make", &own))?;
        let scratch = plan.scratch.join(format!("node-{number}"));
        fs::create_dir_all(&scratch).map_err(failed("make", &scratch))?;
        let (mut job, ..) =
            ready(&Fio { target: &FioTarget::Directory(own), ..plan.clone() }, None)?;
        job = measured(&job, plan.as_written);
        for section in &mut job.sections {
            section.options.retain(|option| option.name != "write_bw_log");
        }
        let text = format!("[global]\n{options}\n{job}");
        let path = scratch.join(name);
        fs::write(&path, &text).map_err(failed("write", &path))?;
        texts.push((scratch, path, text));
    }
    // One that fails ends the others, and so does the caller.
    let is_over = AtomicBool::new(false);
    let barrier = Barrier::new(nodes.len());
    let results = thread::scope(|scope| {
        let clients: Vec<_> = nodes
            .iter()
            .zip(texts)
            .map(|(node, (scratch, path, text))| {
                let (barrier, is_over) = (&barrier, &is_over);
                scope.spawn(move || {
                    let ran = client(node, &scratch, &path, text, barrier, is_over);
                    if ran.is_err() {
                        is_over.store(true, Ordering::SeqCst);
                    }
                    ran.map_err(|error| ClientError {
                        message: format!("node {node}: {}", error.message),
                        ..error
                    })
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            if stop.load(Ordering::SeqCst) {
                is_over.store(true, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(10));
        }
        clients.into_iter().map(|client| client.join()).collect::<Vec<_>>()
    });
    let results = results.into_iter().map(|result| match result {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // The first that failed by itself tells more than those that were ended for it.
    let (failed, ran): (Vec<_>, Vec<_>) = results.partition(Result::is_err);
    let failed = failed.into_iter().filter_map(Result::err);
    match failed.min_by_key(|error| error.was_stopped) {
        Some(error) => Err(error.message),
        None => Ok(ran.into_iter().flatten().collect()),
    }
}

/// Why the client of a node failed.
struct ClientError {
    message: String,
    /// Whether it was ended because another failed, or by the caller.
    was_stopped: bool,
}

impl From<String> for ClientError {
    fn from(message: String) -> ClientError {
        ClientError { message, was_stopped: false }
    }
}

impl From<ToolError> for ClientError {
    fn from(error: ToolError) -> ClientError {
        ClientError {
            was_stopped: matches!(error, ToolError::Stopped(_)),
            message: error.to_string(),
        }
    }
}

fn client(
    node: &str,
    scratch: &Path,
    path: &Path,
    job_text: String,
    barrier: &Barrier,
    is_over: &AtomicBool,
) -> Result<Ran, ClientError> {
    let fill = |command: &mut Command| {
        command.current_dir(scratch).args(["--eta=never", "--output-format=json+"]);
        command.arg(format!("--client={node}")).arg(path);
    };
    let directories = vec![scratch.to_path_buf()];
    let reach = Enclosure { directories, is_online: true, ..Enclosure::default() };
    barrier.wait();
    let finished = run_kept_in(WorkloadTool::Fio, &reach, fill, is_over)?;
    let ended = Instant::now();
    let output::FioOutput { version, mut jobs, .. } = output::parse(&finished.stdout)?;
    jobs.retain(|job| job.jobname != SUM);
    if let Some(job) = jobs.iter().find(|job| job.error != 0) {
        return Err(format!("the job `{}` ended with error {}", job.jobname, job.error).into());
    }
    if jobs.is_empty() {
        Err(format!("it reported no job: {}", finished.stdout.trim()).into())
    } else {
        Ok(Ran { version, job_text, jobs, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_is_that_of_the_starts_and_the_ends_are_told() {
        let node = |began_ns, ended_ns| NodeReport {
            node: "a".into(),
            jobs: vec![FioJob::default()],
            began_ns,
            ended_ns,
        };
        let report = NodesReport {
            version: String::new(),
            nodes: vec![node(0, 900), node(20, 1000)],
            job_text: String::new(),
        };
        assert_eq!((report.skew_ns(), report.ends_ns(), report.jobs().len()), (20, (900, 1000), 2));
        assert!((report.skew() - 0.02).abs() < 1e-9);
    }
}
