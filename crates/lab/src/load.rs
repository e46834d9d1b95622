//! The kinds of load, as data: what a study asks of each, and what each reports.
//!
//! How a load is carried out is the trial room's business. All but the command are run by
//! `kurabe load`, a process of its own like any command, which is told a [`LoadTask`] and yields a
//! [`LoadReport`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::CommandLine;

pub use vocabulary::cell::MatrixCell;
pub use vocabulary::report::{
    Aside, AverageLatency, Drift, Latency, LoadReport, Metric, OVERALL_OPERATION, Pace, Series,
    StorePlace, Unit,
};

/// The kinds of load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Load {
    /// A command, run in the mounted directory.
    Command {
        /// The command.
        command: CommandLine,
    },
    /// A program of the object language on a store.
    Objects(ObjectsLoad),
    /// What people do with trees: copy, unpack, walk, stat, rewrite, delete.
    Tree(TreeLoad),
    /// The installed fio.
    Fio(FioLoad),
    /// The flash study's matrix of fio runs.
    FioMatrix(FioMatrixLoad),
    /// The installed dbench.
    Dbench(DbenchLoad),
    /// kurabe's own replay of a dbench load file, which has percentiles.
    DbenchReplay(DbenchReplayLoad),
    /// The installed bonnie++.
    Bonnie(BonnieLoad),
}

/// A program of the object language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectsLoad {
    /// Where the program was read from, for messages.
    pub path: PathBuf,
    /// The program's text.
    pub program: String,
    /// The store: `cannyls`, `files`, `null`, ...
    pub store: String,
    /// Factor on the counts.
    pub scale: f64,
    /// Whether contents are checked on every Get and Delete and by a sweep at the end.
    pub verify: bool,
    /// Size of a block of the `cannyls` store in bytes, 512 or 4096.
    pub block_size_bytes: u32,
    /// Whether every put is made durable before it counts as done.
    pub sync_puts: bool,
}

/// The tree load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeLoad {
    /// The source.
    pub source: TreeSource,
    /// What is in it; read before anything is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<TreeFacts>,
}

/// What is in a tree's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFacts {
    /// The archive itself, in bytes.
    pub archive_bytes: u64,
    /// Files.
    pub files: u64,
    /// Everything that is no file.
    pub others: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// What the files take in blocks of 4 KiB, and one such block for every other entry.
    pub block_bytes: u64,
}

/// Where a tree comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeSource {
    /// A tarball that tar reads.
    Tarball(PathBuf),
    /// A synthetic tree of so many files, from a seed.
    Synthetic {
        /// Files.
        files: u64,
        /// Seed of names, sizes and contents.
        seed: u64,
    },
}

/// A fio job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioLoad {
    /// Where the job was read from; absent for options on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The job file's text, or the one-line options.
    pub text: String,
}

/// The flash study's matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioMatrixLoad {
    /// Size of all files together, or of the part of the raw device, in bytes.
    pub size_bytes: u64,
    /// Length of each cell in ns.
    pub cell_ns: u64,
    /// Block sizes in bytes.
    pub block_sizes_bytes: Vec<u64>,
    /// fio's engines for the cells with a queue, each of them for every cell: `libaio`,
    /// `io_uring`. The cells without a queue have `psync`. Absent in the first plans, which had one engine.
    #[serde(default)]
    pub engines: Vec<String>,
}

/// Engines of fio that keep a queue and that the matrix knows.
pub const QUEUE_ENGINES: &[&str] = &["libaio", "io_uring"];

/// A dbench run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DbenchLoad {
    /// Clients.
    pub clients: u32,
    /// Seconds that are counted, after dbench's own warm-up.
    pub seconds: u32,
}

/// A replay of a dbench load file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DbenchReplayLoad {
    /// Clients.
    pub clients: u32,
    /// Seconds that are counted, after a warm-up as long as dbench's own.
    pub seconds: u32,
    /// The load file.
    pub load_file: PathBuf,
}

/// A bonnie++ run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BonnieLoad {
    /// Size of the files in bytes; bonnie++ wants twice the memory, or to be told otherwise.
    pub size_bytes: u64,
    /// Files for the creation tests, in units of 1024.
    pub files: u32,
}

impl Load {
    /// The word for the kind, as in JSON and in a study file.
    pub fn kind(&self) -> &'static str {
        match self {
            Load::Command { .. } => "command",
            Load::Objects(_) => "objects",
            Load::Tree(_) => "tree",
            Load::Fio(_) => "fio",
            Load::FioMatrix(_) => "fio-matrix",
            Load::Dbench(_) => "dbench",
            Load::DbenchReplay(_) => "dbench-replay",
            Load::Bonnie(_) => "bonnie",
        }
    }

    /// Whether the load makes sense on the block device itself.
    pub fn runs_on_raw(&self) -> bool {
        matches!(self, Load::Objects(_) | Load::Fio(_) | Load::FioMatrix(_))
    }

    /// Whether the load can use a file system as a library.
    pub fn runs_on_library(&self) -> bool {
        matches!(self, Load::Objects(_))
    }
}

/// What `kurabe load` is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadTask {
    /// The load; never a command.
    pub load: Load,
    /// Where.
    pub target: Target,
    /// The block device under the target, for its counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Which part of it.
    pub stage: Stage,
    /// Whether a load of several phases drops the caches before each of them.
    #[serde(default)]
    pub cold: bool,
    /// The command that makes everything on the target durable; absent where syncfs(2) does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_command: Option<Vec<String>>,
    /// The command that makes the target's caches cold, the kernel's included; absent where dropping
    /// the kernel's is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_command: Option<Vec<String>>,
    /// Seed of the order in which a load of several parts carries them out, where it is random.
    #[serde(default)]
    pub order_seed: u64,
    /// A directory of kurabe's own for the load's files, which lies outside of the target.
    pub scratch: PathBuf,
}

/// Where a load works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The mounted directory.
    Directory(PathBuf),
    /// The device itself.
    Device(PathBuf),
    /// A volume of minfs on this device, through the library.
    Minfs(PathBuf),
}

/// Which part of a load is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// What must be there before the caches are dropped and the run is measured: laid-out files.
    Setup,
    /// The measured part.
    Run,
}
