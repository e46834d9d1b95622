//! What the process is told that carries a workload out, and what a power cut may take.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

/// The options of a workload, by the kind's own names.
pub type WorkloadOptions = Map<String, Value>;

/// The option of workloads that run on a store: the store's name.
pub const STORE_OPTION: &str = "store";

/// What `kurabe load` is told besides the workload.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTask {
    pub target: WorkloadTarget,
    /// The block device under the target, for its counters.
    pub device: Option<PathBuf>,
    /// Its size in bytes, which is the same for all contenders of a study.
    pub device_bytes: Option<u64>,
    pub stage: WorkloadStage,
    /// Whether a workload of several phases drops the caches before each of them.
    #[serde(default)]
    pub cold: bool,
    /// The command that makes everything on the target durable; absent where syncfs(2) does.
    pub sync_command: Option<Vec<String>>,
    /// The command that makes the target's caches cold, the kernel's included; absent where dropping
    /// the kernel's is enough.
    pub cool_command: Option<Vec<String>>,
    /// Where the power is cut under it: the pipe for what it acknowledges; after a cut the file with what
    /// it had acknowledged.
    pub acknowledgements: Option<PathBuf>,
    /// Which of the parts of a run is to be carried out, from 0; all of them when absent.
    pub part: Option<u32>,
    /// Seed of the order in which a workload of several parts carries them out, where it is random.
    #[serde(default)]
    pub order_seed: u64,
    /// A directory of kurabe's own for the workload's files, which lies outside of the target. In an
    /// enclosure it is memory, which each stage finds empty.
    pub scratch: PathBuf,
    /// What the setup said that the run is to know.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub prepared: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadTarget {
    Directory(PathBuf),
    Device(PathBuf),
    /// A file system on this device, as a library in the workload's process.
    Library(PathBuf),
}

/// Which part of a workload is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadStage {
    /// What must be there before the caches are dropped and the run is measured: laid-out files.
    Setup,
    /// The measured part.
    Run,
    /// What it had acknowledged is looked for after a power cut.
    Recheck,
}

/// What a power cut took of what was acknowledged. Each has its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Something is not there.
    Lost(String),
    /// Something else is there.
    Corrupt(String),
    /// Nothing can be read at all.
    Unusable(String),
}

impl Loss {
    /// The exit code of a check that found it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Loss::Lost(_) => 1,
            Loss::Corrupt(_) => 2,
            Loss::Unusable(_) => 3,
        }
    }

    pub fn words(&self) -> &str {
        match self {
            Loss::Lost(words) | Loss::Corrupt(words) | Loss::Unusable(words) => words,
        }
    }
}
