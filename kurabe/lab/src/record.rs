//! What one trial yielded. One record is one line of `records.jsonl`.
//!
//! Integers for nanoseconds and bytes. A field that could not be measured is absent, never zero.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::contender::Contender;
pub use vocabulary::check::{CONTENTS, Check, CheckVerdict, DURABILITY};
pub use vocabulary::cost::{CommandUsage, DeviceDelta, Phase, PhaseRecord};
pub use vocabulary::layout::{Layout, WHOLE as LAYOUT_WHOLE};
pub use vocabulary::report::TIME_METRIC;

use crate::name;
use crate::slice::RunRecord;
use crate::spec::{SCHEMA_VERSION, SideBySide, TrialSpec};
use crate::watched::{Processors, Watched};
use crate::workload::{ExcludedPhase, Latency, Metric, Unit, WorkloadReport};

/// What reached one block layer of a stack, from the start of the run to the end of its sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// The layer, as it is written.
    pub layer: String,
    /// What it was asked. Of flushes most layers keep no count.
    pub device: DeviceDelta,
}

/// What one trial yielded.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`crate::spec::SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// Number of the trial in the plan.
    pub trial: u32,
    pub block: u32,
    /// Whether it belongs to a warm-up block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup: bool,
    /// The session that carried the trial out, from 1; every `kurabe resume` is another one. Of a
    /// block and workload only the records of the last session stand ([`standing`]).
    #[serde(default = "first_session", alias = "sitting")]
    pub session: u32,
    /// How many trials its block was to have under its workload: contenders of whom enough is known
    /// are not tried again. None in older records, whose blocks were to have all.
    pub block_trials: Option<u32>,
    #[serde(deserialize_with = "name::read")]
    pub workload: String,
    pub contender: Contender,
    /// Start of the trial, in ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// From the start of the trial to its end, teardown included, in ns.
    pub elapsed_ns: u64,
    pub outcome: Outcome,
    /// The user as whom the workload was to run, when one was named.
    pub user: Option<String>,
    /// The control group that held the workload's processes; absent where the machine has none that
    /// can be made.
    pub control_group: Option<ControlGroupFacts>,
    /// The phases that were reached, in order.
    pub phases: Vec<PhaseRecord>,
    /// The measured command's cost.
    pub command: Option<CommandUsage>,
    /// CPU time in ns that a user-space file system's daemon spent on the run and its sync.
    pub daemon_cpu_ns: Option<u64>,
    /// CPU time in ns of the threads of the kernel during the run and its sync, where nothing else ran: in a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_threads_cpu_ns: Option<u64>,
    /// The wait for an idle device.
    pub idle_wait: Option<IdleWait>,
    /// How the files of an aged file system lay before the trial.
    pub layout_before: Option<Layout>,
    /// How the files that came in the trial lie after it, where that was measured.
    pub layout_after: Option<Layout>,
    /// Free space right before the run.
    pub space_before: Option<FileSystemSpace>,
    /// Free space after the run's sync.
    pub space_after: Option<FileSystemSpace>,
    /// The exact commands that made, mounted, unmounted and checked the file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// What reached each block layer of the kernel, from the uppermost one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerRecord>,
    /// What the file system reports of itself (`dumpe2fs -h`, `xfs_info`, ...).
    pub geometry: Option<String>,
    /// Line of `/proc/self/mounts` of the mounted file system: the options in force.
    pub mounted_as: Option<String>,
    /// Whether `/proc/PID/io` `write_bytes` sees what is written to this file system. False for
    /// file systems in user space, whose page cache does not count it.
    pub counts_write_bytes: Option<bool>,
    /// Whether the device's counters also count other people's requests, as they do under a
    /// `dir:` contender.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device_shared: bool,
    /// Whether the kernel counts no flushes of this device, so that their number says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flushes_uncounted: bool,
    /// Why caches were not dropped, where they should have been.
    pub caches_kept: Option<String>,
    /// Bytes of the workload's programs and libraries that were read into the page cache before a cold
    /// run, where that was done.
    pub programs_bytes: Option<u64>,
    /// Whether processes of the measured command were still running at its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outlived: bool,
    /// Remarks of the trial itself: processes that outlived the command, retries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What must be known of its device before it is compared with others.
    pub caution: Option<String>,
    /// What the workload says of itself, when it is more than a command.
    pub load: Option<WorkloadReport>,
    /// What was checked in it, by its workload or besides; a check that was violated fails no trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What power cuts showed, in the words of the trial that tried them.
    pub power_cuts: Option<serde_json::Value>,
    /// The disks that were modelled below the contender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<ModelledDisk>,
    /// The requests that reached the contender's device, where they were traced.
    pub trace: Option<TracedRequests>,
    /// With whom it took turns; absent for a trial that had the machine to itself.
    pub side_by_side: Option<SideBySide>,
    /// Whether it failed because its part of the device was full; the whole device may suffice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part_full: bool,
    /// Its slices, of which everything from `prepare` to `sync` and to `cleanup` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<RunRecord>,
    /// What the machine did beside its run; each slice has its own.
    pub watched: Option<Watched>,
    /// Governors and frequencies of the processors over the trial; absent where the machine tells none.
    pub processors: Option<Processors>,
    /// The guest that the trial ran in; absent of this machine. Of several nodes, that of the first one.
    pub guest: Option<GuestFacts>,
    /// Locks of several nodes, where their kernels count them.
    pub locks: Option<LockCounts>,
    /// Each of several nodes; everything else is of all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRecord>,
}

/// Locks of a file system of several nodes in run and sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockCounts {
    /// How often a node asked for one that it did not hold, or held in another mode.
    pub requests: u64,
    /// How often a node was told that another one wants what it holds.
    pub revocations: u64,
}

impl LockCounts {
    pub fn since(self, before: LockCounts) -> LockCounts {
        LockCounts {
            requests: self.requests.saturating_sub(before.requests),
            revocations: self.revocations.saturating_sub(before.revocations),
        }
    }
}

/// What one of several nodes did in its run and sync.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its number, from 1.
    pub node: u32,
    /// When its run began, in ns since that of the first to begin, as the runner heard it.
    pub began_ns: u64,
    /// Time of its run in ns.
    pub run_ns: u64,
    /// Time in ns until what it had written was durable.
    pub sync_ns: u64,
    /// What it asked of the shared device for both.
    pub device: Option<DeviceDelta>,
    pub locks: Option<LockCounts>,
    pub command: Option<CommandUsage>,
    /// The figures of its workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// The latencies of its workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
    /// From its start until it could begin, in ns.
    pub boot_ns: Option<u64>,
}

impl Record {
    /// Whether a check did not hold that its contender promises.
    pub fn is_violated(&self) -> bool {
        self.checks.iter().any(|check| check.verdict() == CheckVerdict::Violated)
    }
}

impl NodeRecord {
    /// When it had finished, in ns since the run began on the first node to begin.
    pub fn finished_ns(&self) -> u64 {
        self.began_ns.saturating_add(self.run_ns).saturating_add(self.sync_ns)
    }
}

/// When something happened in a trial of power cuts, in ns since its workload began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The workload's end.
    pub length_ns: u64,
    /// An acknowledgement was received.
    pub acknowledged_ns: Vec<u64>,
    /// A flush arrived at the device.
    pub flushed_ns: Vec<u64>,
    #[serde(default)]
    pub tried: u64,
    /// The same on a disk that ignores flushes.
    #[serde(default)]
    pub control_tried: u64,
    /// The power was cut in a state that was violated.
    pub violated_ns: Vec<u64>,
    /// The same on a disk that ignores flushes.
    pub control_violated_ns: Vec<u64>,
}

/// A disk that was modelled: what it was, how late it answered, what it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelledDisk {
    /// Its layer, such as `hdd`.
    pub layer: String,
    /// The profile, with what was changed of it.
    pub profile: String,
    /// What it is a profile of.
    pub title: String,
    /// Of everything random.
    pub seed: u64,
    /// How late it answered.
    pub lateness: Lateness,
    /// What the model itself needs for a request, in ns.
    pub model_ns_per_request: u64,
    /// What the model counted.
    pub counters: BTreeMap<String, u64>,
    /// Where requests went over time, their sizes, distances and runs.
    pub picture: serde_json::Value,
}

/// The requests of the run and its sync, as the kernel handed them to the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedRequests {
    pub requests: u64,
    /// Events that the kernel counted and did not deliver: half of what is known of a request.
    pub lost_events: u64,
    /// Requests in the trial's file in [`crate::result::TRACES_DIRECTORY`]; 0 where it has none.
    pub kept: u64,
    /// Where requests went over time, their sizes, distances and runs.
    pub picture: serde_json::Value,
}

/// How much later than the model said replies came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    pub replies: u64,
    /// The median, in ns.
    pub p50_ns: u64,
    /// Of one in a hundred, in ns.
    pub p99_ns: u64,
    /// The worst, in ns.
    pub max_ns: u64,
    /// What p99 may be, in ns.
    pub limit_ns: u64,
}

impl Lateness {
    /// Whether the machine could not keep up with the disk.
    pub fn is_late(&self) -> bool {
        self.p99_ns > self.limit_ns
    }
}

/// The guest of one trial: booted for it, and ended with it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// Its kernel, as `uname -r` says it there.
    pub kernel: String,
    /// Name of its image, after the image's content.
    pub image: String,
    /// What carried out its instructions: `KVM`, or `TCG`, an emulated processor.
    pub acceleration: String,
    /// From its start until the trial could begin, in ns; absent when it never could.
    pub boot_ns: Option<u64>,
    /// Processes of this machine that were running or about to, on average over the minute before
    /// the guest was started.
    pub host_load: Option<f64>,
    /// How it ended: `completed`, `kernel panic`, ...
    pub end: String,
    /// The last lines of its console; empty of one that completed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub console: String,
}

impl GuestFacts {
    /// Whether its times are those of an emulated processor.
    pub fn is_emulated(&self) -> bool {
        self.acceleration != "KVM"
    }
}

/// Metrics, kinds of operations, series, findings, checks, phases or notes of a record at most.
pub const LISTED_MAX: usize = 2000;

/// Number of the first session of a study.
pub const FIRST_SESSION: u32 = 1;

/// The session of a record that names none: it was written before sessions were counted.
fn first_session() -> u32 {
    FIRST_SESSION
}

/// Tells the records that stand from those that a later session superseded, each in their order.
///
/// A block is compared within itself, so its trials under one workload must stand on one filling
/// of the device. A session that finds some of them done and some not carries all of them out
/// again; from then on the earlier ones count no more.
pub fn standing(records: Vec<Record>) -> (Vec<Record>, Vec<Record>) {
    let mut last: HashMap<(&str, bool, u32), u32> = HashMap::new();
    for record in &records {
        let session = last.entry(record.unit()).or_default();
        *session = record.session.max(*session);
    }
    let stands: Vec<bool> =
        records.iter().map(|record| last[&record.unit()] == record.session).collect();
    let mut stands = stands.into_iter();
    records.into_iter().partition(|_| stands.next() == Some(true))
}

/// How a trial ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every phase was carried out.
    #[default]
    Completed,
    Failed {
        phase: Phase,
        /// What happened, in one line.
        message: String,
        /// The last lines that the tool printed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// The bound on the trial was reached.
    TimedOut {
        /// The phase in which it was reached.
        phase: Phase,
        /// The bound in ns.
        limit_ns: u64,
    },
    /// The study was stopped by its user or by a signal.
    Interrupted {
        /// The phase in which it was stopped.
        phase: Phase,
    },
}

impl Outcome {
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed { .. } => "failed",
            Outcome::TimedOut { .. } => "timed-out",
            Outcome::Interrupted { .. } => "interrupted",
        }
    }
}

/// The control group of a trial's commands: what they leave running ends with it.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroupFacts {
    /// Processes that it may hold at once (`pids.max`), where that can be bounded.
    pub processes_max: Option<u64>,
}

/// The wait for an idle device before the run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleWait {
    /// How long it took, in ns.
    pub waited_ns: u64,
    /// Whether the device was idle at the end; false when the bound came first.
    pub idle: bool,
    /// What it waited for, when it can be named (`ext4lazyinit`).
    pub cause: Option<String>,
}

/// Space of the mounted file system, from statvfs(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemSpace {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free bytes, the reserve of the superuser included.
    pub free_bytes: u64,
    /// Free inodes, where the file system has a number of them.
    pub free_inodes: u64,
}

/// The values that metrics and series may have besides 0, so that quotients of two are numbers, too.
pub(crate) const VALUES: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// The largest figure of a record: bytes, nanoseconds and counts up to this are exact as floating point too.
const FIGURE_MAX: u64 = 1 << 53;

/// The largest integer in a JSON value.
fn largest(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::Number(number) => number.as_u64().unwrap_or(0),
        serde_json::Value::Array(list) => list.iter().map(largest).max().unwrap_or(0),
        serde_json::Value::Object(object) => object.values().map(largest).max().unwrap_or(0),
        _ => 0,
    }
}

impl Record {
    /// When something happened in a trial of power cuts; absent of every other.
    pub fn timeline(&self) -> Option<Timeline> {
        let timeline = self.power_cuts.as_ref()?.get("timeline")?;
        Timeline::deserialize(timeline).ok()
    }

    /// A record of a trial that has only begun.
    pub fn begun(spec: &TrialSpec, started_unix_ns: u64) -> Record {
        Record {
            schema: SCHEMA_VERSION,
            trial: spec.trial,
            block: spec.block,
            warmup: spec.warmup,
            session: FIRST_SESSION,
            workload: spec.workload.name.clone(),
            contender: spec.contender.clone(),
            started_unix_ns,
            user: spec.user.clone(),
            side_by_side: spec.side_by_side,
            ..Record::default()
        }
    }

    /// The record itself, or that its trial failed where it has what none may have: several nodes may together have
    /// more than each is allowed.
    pub fn within_bounds(self) -> Record {
        let Err(message) = self.check_bounds() else { return self };
        Record {
            schema: self.schema,
            trial: self.trial,
            block: self.block,
            block_trials: self.block_trials,
            warmup: self.warmup,
            session: self.session,
            workload: self.workload,
            contender: self.contender,
            started_unix_ns: self.started_unix_ns,
            user: self.user,
            side_by_side: self.side_by_side,
            outcome: Outcome::Failed { phase: Phase::Run, message, output: String::new() },
            ..Record::default()
        }
    }

    /// Takes what the workload's process did besides the workload out of the run's cost and makes a phase of
    /// its own of it, before or after the run as it belongs.
    pub fn exclude(&mut self, excluded: ExcludedPhase) {
        let ExcludedPhase { phase, usage } = excluded;
        let Some(place) = self.take_out(Phase::Run, &phase) else { return };
        // Excluded phases come in the order in which they happened, and all within the run.
        let behind = self.phases[place + 1..].iter().position(|entry| entry.phase == Phase::Sync);
        let place = if phase.phase < Phase::Run {
            place
        } else {
            behind.map_or(self.phases.len(), |behind| place + 1 + behind)
        };
        self.phases.insert(place, phase);
        if let Some(command) = &mut self.command {
            command.user_ns = command.user_ns.saturating_sub(usage.user_ns);
            command.system_ns = command.system_ns.saturating_sub(usage.system_ns);
            for (of_run, of_excluded) in [
                (&mut command.write_call_bytes, usage.write_call_bytes),
                (&mut command.read_call_bytes, usage.read_call_bytes),
                (&mut command.storage_written_bytes, usage.storage_written_bytes),
                (&mut command.storage_read_bytes, usage.storage_read_bytes),
            ] {
                *of_run = less(*of_run, of_excluded);
            }
        }
    }

    /// Takes what was done within the layout out of it and makes it a phase of its own, behind it.
    pub fn exclude_from_layout(&mut self, excluded: ExcludedPhase) {
        if self.take_out(Phase::Layout, &excluded.phase).is_some() {
            self.phases.push(excluded.phase);
        }
    }

    /// Takes a part out of a phase, and says where that is.
    fn take_out(&mut self, whole: Phase, part: &PhaseRecord) -> Option<usize> {
        let place = self.phases.iter().position(|entry| entry.phase == whole)?;
        let whole = &mut self.phases[place];
        whole.elapsed_ns = whole.elapsed_ns.saturating_sub(part.elapsed_ns);
        whole.device = match (whole.device, part.device) {
            (Some(whole), Some(part)) => Some(whole - part),
            (whole, _) => whole,
        };
        whole.machine_cpu_ns = less(whole.machine_cpu_ns, part.machine_cpu_ns);
        Some(place)
    }

    /// Workload and block: what is carried out in one session or not at all.
    fn unit(&self) -> (&str, bool, u32) {
        (&self.workload, self.warmup, self.block)
    }

    /// The trial's share of the time in which it lived, in ns: those that take turns live at the
    /// same time.
    pub fn own_elapsed_ns(&self) -> u64 {
        let together = |of: SideBySide| self.block_trials.unwrap_or(of.contenders).max(1);
        self.elapsed_ns / u64::from(self.side_by_side.map_or(1, together))
    }

    /// Whether the trial ended by itself. One that was interrupted is carried out again by the next
    /// session; one that failed is not.
    pub fn has_ended(&self) -> bool {
        !matches!(self.outcome, Outcome::Interrupted { .. })
    }

    /// The phase's entry, when it was reached.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseRecord> {
        self.phases.iter().find(|entry| entry.phase == phase)
    }

    /// The time of a phase among those from `place` on; 0 where there is none.
    pub fn phase_after(&self, place: usize, phase: Phase) -> u64 {
        let later = self.phases.get(place..).unwrap_or_default();
        later.iter().find(|entry| entry.phase == phase).map_or(0, |entry| entry.elapsed_ns)
    }

    /// Run and sync together, in ns: the time that is compared, since a write is not over when
    /// `write` returns. Only a completed, counted trial has one.
    pub fn time_ns(&self) -> Option<u64> {
        if self.outcome != Outcome::Completed {
            return None;
        }
        let (run, sync) = (self.phase(Phase::Run)?, self.phase(Phase::Sync)?);
        // No clock measures nothing; a record that says so was not made by one.
        Some(run.elapsed_ns.saturating_add(sync.elapsed_ns)).filter(|time_ns| *time_ns > 0)
    }

    /// The figures that are compared, the most important first; none unless the trial was
    /// completed. A workload without figures of its own is compared by [`Record::time_ns`], unless it has
    /// checks: then it is checked and not timed.
    pub fn metrics(&self) -> Vec<Metric> {
        let Some(time_ns) = self.time_ns() else { return Vec::new() };
        match &self.load {
            Some(load) if !load.metrics.is_empty() || !self.checks.is_empty() => {
                load.metrics.clone()
            }
            _ => vec![Metric::new(TIME_METRIC, time_ns as f64, Unit::Nanoseconds)],
        }
    }

    /// The value of one of [`Record::metrics`].
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metric_near(name, 0)
    }

    /// The same, looked for first at its place in the list, which is that of other records of the workload.
    pub fn metric_near(&self, name: &str, place: usize) -> Option<f64> {
        let time_ns = self.time_ns()?;
        match &self.load {
            Some(load) if !load.metrics.is_empty() || !self.checks.is_empty() => {
                let is_it = |metric: &&Metric| metric.name == name;
                let near = load.metrics.get(place).filter(is_it);
                Some(near.or_else(|| load.metrics.iter().find(is_it))?.value)
            }
            _ => (name == TIME_METRIC).then_some(time_ns as f64),
        }
    }

    /// Refuses a record that lists more than any workload has, since reports compare what is listed name by name,
    /// and one with a figure so large that a sum of them could overflow.
    ///
    /// Errors: what it has too many of, and how many it may have; or a figure that nothing measured can have.
    pub fn check_bounds(&self) -> Result<(), String> {
        let load = self.load.as_ref();
        let of_workload = |count: fn(&WorkloadReport) -> usize| load.map_or(0, count);
        let of_slice = self.slices.iter().map(|slice| slice.metrics.len()).max();
        let lists = [
            ("metrics", of_workload(|load| load.metrics.len()).max(of_slice.unwrap_or(0))),
            ("kinds of operations", of_workload(|load| load.latencies.len())),
            ("series", of_workload(|load| load.series.len())),
            ("findings", of_workload(|load| load.findings.len())),
            ("checks", self.checks.len().max(of_workload(|load| load.checks.len()))),
            ("phases", self.phases.len()),
            ("notes", self.notes.len()),
            ("disks", self.disks.len()),
            ("nodes", self.nodes.len()),
        ];
        if let Some((what, count)) = lists.into_iter().find(|(_, count)| *count > LISTED_MAX) {
            return Err(format!(
                "run {} has {count} {what}, and a record has at most {LISTED_MAX}",
                self.trial
            ));
        }
        let of_slices = self.slices.iter().flat_map(|slice| &slice.metrics);
        let metrics = load.into_iter().flat_map(|load| &load.metrics).chain(of_slices);
        let series = load.into_iter().flat_map(|load| &load.series).flat_map(|one| &one.values);
        let mut values = metrics.map(|metric| metric.value).chain(series.copied());
        if let Some(value) = values.find(|value| *value != 0.0 && !VALUES.contains(&value.abs())) {
            return Err(format!(
                "run {} has the value {value:e}, and none but 0 is below {:e} or above {:e}",
                self.trial,
                VALUES.start(),
                VALUES.end()
            ));
        }
        let latencies = load.map(|load| &load.latencies);
        let figures = serde_json::json!([
            self.phases,
            self.slices,
            self.command,
            self.elapsed_ns,
            self.daemon_cpu_ns,
            self.kernel_threads_cpu_ns,
            self.locks,
            self.nodes.iter().map(|node| node.locks).collect::<Vec<_>>(),
            self.space_before,
            self.space_after,
            self.layout_before,
            self.layout_after,
            self.checks,
            self.disks.iter().map(|disk| (&disk.lateness, &disk.counters)).collect::<Vec<_>>(),
            latencies
        ]);
        match largest(&figures) {
            largest if largest <= FIGURE_MAX => Ok(()),
            largest => Err(format!(
                "run {} has the figure {largest}, and none of a record is above {FIGURE_MAX}",
                self.trial
            )),
        }
    }

    /// Whether it has checks and no run: a trial that is not timed, beside one that is.
    pub fn is_checked_only(&self) -> bool {
        !self.checks.is_empty() && self.phase(Phase::Run).is_none()
    }

    /// What the device did for the run and its sync.
    pub fn run_device(&self) -> Option<DeviceDelta> {
        self.run_device_after(0)
    }

    /// The same of the phases from `place` on.
    pub fn run_device_after(&self, place: usize) -> Option<DeviceDelta> {
        let later = self.phases.get(place..)?;
        let phase = |phase| later.iter().find(|entry: &&PhaseRecord| entry.phase == phase);
        let run = phase(Phase::Run)?.device?;
        Some(match phase(Phase::Sync).and_then(|sync| sync.device) {
            Some(sync) => run + sync,
            None => run,
        })
    }
}

/// The last block of a workload, where the run ended before all of its contenders had their trial.
///
/// What such a block left counts in no figure: it would stand in the medians of some contenders and
/// not of others, beside ratios that know nothing of it. A first block that was not finished is all
/// that there is, and counts.
pub fn unfinished_block(records: &[Record], workload: &str) -> Option<u32> {
    let counted = || {
        let ended = records.iter().filter(|record| !record.warmup && record.has_ended());
        ended.filter(|record| record.workload == workload)
    };
    let contenders = |block: u32| {
        let labels = counted().filter(|record| record.block == block);
        labels.map(|record| record.contender.label.as_str()).collect::<BTreeSet<_>>().len()
    };
    let last = counted().map(|record| record.block).max()?;
    let before = counted().map(|record| record.block).filter(|block| *block < last).max()?;
    let of_last = counted().filter(|record| record.block == last);
    let expected = of_last.filter_map(|record| record.block_trials).min();
    let expected = expected.map_or_else(|| contenders(before), |expected| expected as usize);
    (contenders(last) < expected).then_some(last)
}

/// The counted, completed trials of a contender under a workload, without those of a block that was
/// not finished.
pub fn counted_trials<'a>(
    records: &'a [Record],
    workload: &'a str,
    label: &'a str,
) -> impl Iterator<Item = &'a Record> {
    let unfinished = unfinished_block(records, workload);
    records
        .iter()
        .filter(|record| !record.warmup && record.outcome == Outcome::Completed)
        .filter(move |record| record.workload == workload && record.contender.label == label)
        .filter(move |record| Some(record.block) != unfinished)
}

/// What is left of a number when a part that was counted in it is taken out.
fn less(whole: Option<u64>, part: Option<u64>) -> Option<u64> {
    match (whole, part) {
        (Some(whole), Some(part)) => Some(whole.saturating_sub(part)),
        (whole, _) => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_figure_whose_sums_could_overflow_is_refused() {
        let plan = fixture::plan(&["ext4"], 1);
        let mut record = fixture::record(&plan, 0, 0, 1000);
        record.check_bounds().unwrap();
        let written_bytes = FIGURE_MAX + 1;
        fixture::run_of(&mut record).device =
            Some(DeviceDelta { written_bytes, ..Default::default() });
        assert!(record.check_bounds().unwrap_err().contains("9007199254740993"));
        let failed = record.within_bounds();
        assert!(matches!(failed.outcome, Outcome::Failed { .. }) && failed.check_bounds().is_ok());
    }

    #[test]
    fn a_value_whose_quotients_are_no_numbers_is_refused() {
        let plan = fixture::plan(&["ext4"], 1);
        let bounds = |value: f64| {
            let mut record = fixture::record(&plan, 0, 0, 1000);
            let metrics = vec![Metric::new("rate", value, crate::workload::Unit::BytesPerSecond)];
            record.load = Some(WorkloadReport { metrics, ..WorkloadReport::default() });
            record.check_bounds()
        };
        assert!(bounds(0.0).is_ok() && bounds(1e9).is_ok());
        assert!([1e-310, 1e300, -1e300, f64::NAN].iter().all(|value| bounds(*value).is_err()));
    }

    #[test]
    fn what_is_excluded_leaves_the_cost_and_becomes_a_phase() {
        let plan = fixture::plan(&["ext4"], 1);
        let mut record = fixture::record(&plan, 0, 0, 1000);
        let device = |read_bytes| Some(DeviceDelta { read_bytes, ..Default::default() });
        fixture::run_of(&mut record).device = device(100);
        record.command =
            Some(CommandUsage { user_ns: 50, storage_read_bytes: Some(90), ..Default::default() });
        let work = [
            (Phase::Mount, 100, 20, 5),
            (Phase::Layout, 50, 1, 5),
            (Phase::Verify, 300, 60, 20),
            (Phase::Unmount, 50, 1, 0),
        ];
        for (phase, elapsed_ns, read_bytes, user_ns) in work {
            let device = device(read_bytes);
            let phase = PhaseRecord { phase, elapsed_ns, device, machine_cpu_ns: None };
            let storage_read_bytes = Some(read_bytes);
            let usage = CommandUsage { user_ns, storage_read_bytes, ..Default::default() };
            record.exclude(ExcludedPhase { phase, usage });
        }
        let phases: Vec<_> = record.phases.iter().map(|entry| entry.phase).collect();
        let before = [Phase::Mount, Phase::Layout];
        let after = [Phase::Run, Phase::Verify, Phase::Unmount, Phase::Sync];
        assert_eq!(phases, [&before[..], &after[..]].concat());
        assert_eq!(record.time_ns(), Some(500));
        assert_eq!(record.run_device().unwrap().read_bytes, 18);
        let command = record.command.unwrap();
        assert_eq!((command.user_ns, command.storage_read_bytes), (20, Some(8)));
    }
    #[test]
    fn a_record_of_before_there_were_checks_opens_and_one_with_checks_keeps_them() {
        let plan = fixture::plan(&["ext4"], 1);
        let mut record = fixture::record(&plan, 0, 0, 1000);
        let old = serde_json::to_string(&record).unwrap();
        assert!(!old.contains("checks"), "{old}");
        assert_eq!(serde_json::from_str::<Record>(&old).unwrap().checks, []);
        record.checks = vec![Check { tried: 10_000, ..Check::new("contents") }];
        let new = serde_json::to_string(&record).unwrap();
        assert!(new.contains(r#"{"name":"contents","tried":10000,"violated":0}"#), "{new}");
        assert_eq!(serde_json::from_str::<Record>(&new).unwrap(), record);
    }
}
