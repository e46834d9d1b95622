//! What one trial is told: the interface between the runner and the process that carries a trial
//! out. A spec is complete: the trial reads no configuration besides it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::contender::Contender;
use crate::name;
pub use crate::workload::WorkloadSpec;
pub use vocabulary::command::CommandLine;
use vocabulary::layout::Layout;
use vocabulary::path::UserPath;

/// Version of the spec, plan and record schema; raised whenever a reader could misread.
pub const SCHEMA_VERSION: u32 = 1;

/// One trial: one contender under one workload once.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// Number of the trial in the plan, from 0; `KURABE_TRIAL` in the command's environment.
    pub trial: u32,
    /// Seed of a workload that carries its parts out in random order, drawn from the study's and the
    /// trial's number.
    #[serde(default)]
    pub order_seed: u64,
    /// Statistical block that the trial belongs to, from 0; warm-up blocks count on their own.
    pub block: u32,
    /// Whether the trial is of a warm-up block: carried out and recorded, not compared.
    #[serde(default)]
    pub warmup: bool,
    /// The storage stack.
    pub contender: Contender,
    /// Device and inode of a `dir:` contender's directory when the session began.
    pub directory_identity: Option<(u64, u64)>,
    /// What it stands on; absent for a contender that needs no device.
    pub device: Option<Device>,
    /// The file system that is put on the device in the place of a new one.
    pub aged: Option<Aged>,
    /// Whether it is measured how the files lie on the device.
    #[serde(default)]
    pub measure_layout: bool,
    /// Whether the trial takes turns with the others of its block; absent for one that has the
    /// machine to itself.
    pub side_by_side: Option<SideBySide>,
    /// Which of several nodes carries it out, at the same time as the others; absent where there is one.
    pub node: Option<NodeSpec>,
    pub workload: Workload,
    /// Of a trial that is not timed: the power is cut at many instants of its workload.
    pub power_cuts: Option<PowerCuts>,
    /// Of a trial on several nodes that is not timed: one of them is killed while the workload runs.
    pub node_death: Option<NodeDeath>,
    /// State of the caches when the run begins.
    pub cache: Cache,
    /// Bound on the whole trial in ns; past it the command is killed and the trial is recorded as
    /// timed out.
    pub timeout_ns: Option<u64>,
    /// Bound on the wait for an idle device in ns.
    pub idle_wait_ns_max: u64,
    /// Whether mkfs and mount may discard. False keeps the device fully allocated.
    #[serde(default)]
    pub discard: bool,
    /// Whether, and how, the requests that reach the device are traced.
    pub trace: Option<Tracing>,
    /// The user as whom the workload runs, what comes before and after it included; the user of the
    /// trial's process when absent.
    pub user: Option<String>,
    /// An empty directory of kurabe's own in which the trial makes its mount point and files.
    pub scratch: PathBuf,
    /// Where the command's standard output and error go.
    pub output: OutputTarget,
}

/// A node that is killed, and what is asked of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDeath {
    pub node: u32,
    /// Where the workload's check runs.
    pub check_directory: PathBuf,
    /// Bound on one check in ns.
    pub check_timeout_ns: u64,
    /// Bound on the workload in ns.
    pub timeout_ns: u64,
}

/// A file system that was aged before.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aged {
    /// The image, by what a trial finds it and knows it again; absent where it is on the device already.
    pub image: Option<serde_json::Value>,
    /// Size of the file system's device in bytes.
    pub size_bytes: u64,
    /// How the files lay when it had been aged.
    pub layout: Option<Layout>,
}

/// How a trial cuts the power, and asks what is left.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerCuts {
    /// Size of the device in bytes, of several together.
    pub size_bytes: u64,
    /// Sizes in bytes of the devices, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices_bytes: Vec<u64>,
    /// Where the workload's check runs.
    pub check_directory: PathBuf,
    /// Bound on one check in ns.
    pub check_timeout_ns: u64,
    /// Whether the checks of several states may run at the same time.
    #[serde(default)]
    pub parallel_checks: bool,
    /// Whether a layer of several members loses one of them with the power.
    #[serde(default)]
    pub lose_member: bool,
    pub states: usize,
    /// States to try of a disk that ignores flushes.
    pub control_states: usize,
    /// Flushes to leave out, one by one, to see whether something is lost without them.
    pub flushes: usize,
    /// Seed of the states.
    pub seed: u64,
    /// `/proc/PID/fd/N` of the runner's empty file for the bytes; in a guest its disk.
    pub data: PathBuf,
    /// A state of an earlier recording that is tried again, in the place of all.
    pub replay: Option<serde_json::Value>,
    /// `/proc/PID/fd/N` of the runner's empty file for the disk of that state.
    pub image: Option<PathBuf>,
    /// Which share of the work this is: the recording alone, or some states of one.
    pub share: Option<serde_json::Value>,
}

impl PowerCuts {
    /// The size of each device in bytes.
    pub fn sizes_bytes(&self) -> Vec<u64> {
        match &self.devices_bytes[..] {
            [] => vec![self.size_bytes],
            several => several.to_vec(),
        }
    }
}

/// How the requests that reach the device are traced.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracing {
    /// `/proc/PID/fd/N` of the runner's empty file for them; absent where the trial cannot reach it, so that
    /// only their picture is kept.
    pub file: Option<PathBuf>,
}

/// The trials of one block that live together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideBySide {
    pub contenders: u32,
    /// Which of the device's equal parts this one stands on, from 0.
    pub part: u32,
}

/// One of several nodes that have one file system mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its number, from 1. The first one makes the file system and checks it.
    pub number: u32,
    pub nodes: u32,
    /// The name of their cluster, another one in each trial.
    pub cluster: String,
    /// The addresses by which machines know each other, the first node's first; guests have a network of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// By which machines know each other in a network that is not theirs alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
}

impl NodeSpec {
    /// Its name in the network of the nodes.
    pub fn host_name(&self) -> String {
        NodeSpec::host_name_of(self.number)
    }

    /// The name of the node of this number.
    pub fn host_name_of(number: u32) -> String {
        format!("node{number}")
    }
}

/// What a trial stands on, as the trial's directory prepared it and attaches it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub kind: String,
    /// What stands between it and the contender, the uppermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// The part of it that is the contender's; the whole when absent.
    pub part: Option<DevicePart>,
    /// By what its kind finds it and knows it again.
    pub prepared: serde_json::Value,
    /// Further devices; none of these has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Device>,
}

impl Device {
    /// Each of the devices.
    pub fn all(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(self).chain(&self.others)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePart {
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    pub size_bytes: u64,
}

/// State of the caches when the run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Synced and dropped after the setup.
    #[default]
    Cold,
    /// Left as mkfs, mount and setup left them.
    Warm,
}

/// Where the command's standard output and error go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum OutputTarget {
    /// Thrown away; the last lines are kept for the record of a failure.
    #[default]
    Null,
    /// Read through a pipe and thrown away, so that the command sees no `/dev/null`.
    Pipe,
    /// Shown on the terminal.
    Inherit,
    /// Appended to this file.
    File(UserPath),
}

/// A workload, named, with what comes before and after it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Name in tables; unique in a study.
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// Why this workload is in the study, in the author's words.
    pub why: Option<String>,
    /// Run once a trial in the mounted directory, before caches are dropped.
    pub setup: Option<CommandLine>,
    /// Run right before the measured run, after caches were dropped.
    pub prepare: Option<CommandLine>,
    /// Run after the run and its sync, before the unmount.
    pub cleanup: Option<CommandLine>,
    /// Says, after a power cut, whether what the workload acknowledged is there: it gets the directory and
    /// the file of acknowledgements as its last arguments.
    pub check: Option<CommandLine>,
    /// Whether a command that exits with another code than 0 still counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_failure: bool,
    /// How much is done, in words; absent where the name or the workload's text says it all, and in
    /// older plans.
    pub amount: Option<String>,
    /// The values of the study's parameters that made it one of several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What is measured.
    pub load: WorkloadSpec,
}

impl Workload {
    /// A workload under a name, with nothing before and after it.
    pub fn of(name: impl Into<String>, load: WorkloadSpec) -> Workload {
        Workload {
            name: name.into(),
            why: None,
            setup: None,
            prepare: None,
            cleanup: None,
            check: None,
            ignore_failure: false,
            amount: None,
            parameters: BTreeMap::new(),
            load,
        }
    }

    /// As it runs on a contender: on the contender's own store, where it has one.
    pub fn on(&self, contender: &Contender) -> Workload {
        let mut workload = self.clone();
        if let Some(store) = &contender.store {
            workload.load = workload.load.on_store(store);
        }
        workload
    }

    /// The command lines that it names, in the order in which they run, each by its key.
    pub fn commands(&self) -> Vec<(&'static str, CommandLine)> {
        let all = [
            ("setup", self.setup.clone()),
            ("prepare", self.prepare.clone()),
            ("command", self.load.command()),
            ("cleanup", self.cleanup.clone()),
            ("check", self.check.clone()),
        ];
        all.into_iter().filter_map(|(name, line)| Some((name, line?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::workload::STORE_OPTION;

    use super::*;
    use crate::contender::Known;

    #[test]
    fn a_contenders_store_takes_the_place_of_the_workloads() {
        let known = [Known::store("lump"), Known { name: "ext4", ..Known::default() }];
        let contender = |text| Contender::parse(text, &known).unwrap();
        let load = serde_json::json!({ "kind": "objects", STORE_OPTION: "files" });
        let workload = Workload::of("puts", serde_json::from_value(load).unwrap());
        let over = workload.on(&contender("lump over ext4"));
        assert_eq!(over.load.option(STORE_OPTION), Some(&"lump".into()));
        assert_eq!(workload.on(&contender("ext4")), workload);
    }
}
