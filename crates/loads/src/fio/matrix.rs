//! The flash study's matrix: random reads, random writes and a 70/30 mix, submitted one by one
//! and in queues of 32 and 64, in blocks of 4 KiB to 1 MiB, over 16 files of equal size or one
//! device.
//!
//! Generates the cells and their job files and holds their results. Runs nothing; no I/O.

use std::fmt;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::jobfile::{JobFile, JobOption, Place, Section};
use super::output::FioJob;
use super::place::Target;
use crate::latency::KindSummary;

/// The files that a matrix works on; the study had 16.
pub const FILES: u32 = 16;

/// What a cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Random reads.
    RandomRead,
    /// Random writes.
    RandomWrite,
    /// Random, 70 % reads and 30 % writes.
    RandomMixed,
}

impl Pattern {
    /// The name in reports: fio's, with the mix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::RandomMixed => "randrw-70-30",
        }
    }
}

/// How a cell submits its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Submission {
    /// One after the other, each waited for (engine psync).
    Synchronous,
    /// A queue of this depth.
    Queue {
        /// Operations under way.
        depth: u32,
        /// The engine that keeps them.
        engine: QueueEngine,
    },
}

/// An engine that keeps a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QueueEngine {
    /// Linux's native asynchronous I/O.
    #[serde(rename = "libaio")]
    Libaio,
    /// io_uring.
    #[serde(rename = "io_uring")]
    IoUring,
}

impl QueueEngine {
    /// All of them.
    pub const ALL: [QueueEngine; 2] = [QueueEngine::Libaio, QueueEngine::IoUring];

    /// fio's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
        }
    }
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// What it does.
    pub pattern: Pattern,
    /// How.
    pub submission: Submission,
    /// In blocks of this size.
    pub block_size_bytes: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = self.pattern.name();
        match self.submission {
            Submission::Synchronous => write!(f, "{pattern}-psync-1")?,
            Submission::Queue { depth, engine } => {
                write!(f, "{pattern}-{}-{depth}", engine.name())?;
            }
        }
        match self.block_size_bytes % 1024 {
            0 => write!(f, "-{}k", self.block_size_bytes / 1024),
            _ => write!(f, "-{}", self.block_size_bytes),
        }
    }
}

/// Which cells, and what is common to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {
    /// What to do.
    pub patterns: Vec<Pattern>,
    /// How to submit.
    pub submissions: Vec<Submission>,
    /// Block sizes.
    pub block_sizes_bytes: Vec<u32>,
    /// Bytes of all files together, or the used part of the device.
    pub size_bytes: u64,
    /// Counted time of a cell, in ms.
    pub runtime_ms: u32,
    /// Seconds before them that are not counted.
    pub ramp_seconds: u32,
    /// Threads, each with a queue of its own.
    pub threads: u32,
}

impl Default for Matrix {
    fn default() -> Self {
        Self {
            patterns: vec![Pattern::RandomRead, Pattern::RandomWrite, Pattern::RandomMixed],
            submissions: vec![
                Submission::Synchronous,
                Submission::Queue { depth: 32, engine: QueueEngine::Libaio },
                Submission::Queue { depth: 32, engine: QueueEngine::IoUring },
                Submission::Queue { depth: 64, engine: QueueEngine::Libaio },
                Submission::Queue { depth: 64, engine: QueueEngine::IoUring },
            ],
            block_sizes_bytes: (12..=20).map(|power| 1 << power).collect(),
            size_bytes: 1 << 30,
            runtime_ms: 10_000,
            ramp_seconds: 0,
            threads: 1,
        }
    }
}

impl Matrix {
    /// The cells in order: by pattern, then by submission, then by block size.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for pattern in &self.patterns {
            for submission in &self.submissions {
                for block_size_bytes in &self.block_sizes_bytes {
                    cells.push(Cell {
                        pattern: *pattern,
                        submission: *submission,
                        block_size_bytes: *block_size_bytes,
                    });
                }
            }
        }
        cells
    }

    /// The same cells in the order in which they are run: drawn from a seed, so that a cell's place
    /// among the others, and with it the age of the files, differs from trial to trial.
    #[must_use]
    pub fn cells_shuffled(&self, seed: u64) -> Vec<Cell> {
        let mut cells = self.cells();
        cells.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        cells
    }

    /// The job file of a cell. All cells of a matrix name the same files, so that they are laid
    /// out once.
    ///
    /// I/O is direct: the matrix asks for the cost of the file system, not of the page cache.
    #[must_use]
    pub fn job(&self, cell: Cell, target: &Target) -> JobFile {
        // A file is a multiple of the largest block, so that every cell covers all of it.
        let largest = u64::from(self.block_sizes_bytes.iter().copied().max().unwrap_or(1).max(1));
        let (pattern, mix) = match cell.pattern {
            Pattern::RandomRead => ("randread", None),
            Pattern::RandomWrite => ("randwrite", None),
            Pattern::RandomMixed => ("randrw", Some("70")),
        };
        let (engine, depth) = match cell.submission {
            Submission::Synchronous => ("psync", 1),
            Submission::Queue { depth, engine } => (engine.name(), depth),
        };
        let mut options = vec![
            option("rw", pattern),
            option("bs", cell.block_size_bytes),
            option("ioengine", engine),
            option("iodepth", depth),
            option("direct", 1),
            option("numjobs", self.threads.max(1)),
            option("time_based", 1),
            option("runtime", format!("{}ms", self.runtime_ms)),
            option("ramp_time", self.ramp_seconds),
            // One entry for all threads.
            option("group_reporting", 1),
            // Random writes may hit a block again, as on a device in use.
            option("norandommap", 1),
            option("refill_buffers", 1),
        ];
        if let Some(mix) = mix {
            options.push(option("rwmixread", mix));
        }
        match target {
            Target::Directory(_) => {
                let each = self.size_bytes / u64::from(FILES) / largest * largest;
                let names: Vec<String> = (0..FILES).map(|file| format!("data.{file}")).collect();
                options.push(option("filename", names.join(":")));
                options.push(option("size", each * u64::from(FILES)));
                options.push(option("file_service_type", "random"));
            }
            Target::Device(_) => {
                options.push(option("size", self.size_bytes / largest * largest));
            }
        }
        let place = Place { source: "the matrix".to_owned(), line: 1, column: 1 };
        JobFile { sections: vec![Section { name: cell.to_string(), place, options }] }
    }
}

fn option(name: &str, value: impl fmt::Display) -> JobOption {
    JobOption {
        name: name.to_owned(),
        value: Some(value.to_string()),
        place: Place { source: "the matrix".to_owned(), line: 1, column: 1 },
        value_column: 1,
    }
}

/// What a cell came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// The cell.
    pub cell: Cell,
    /// Operations a second, reads and writes together.
    pub operations_per_second: f64,
    /// Bytes a second, reads and writes together.
    pub bytes_per_second: f64,
    /// Latencies of the reads.
    pub read: Option<KindSummary>,
    /// Latencies of the writes.
    pub write: Option<KindSummary>,
}

impl CellResult {
    /// The result in what fio reports of a cell's jobs.
    #[must_use]
    pub fn new(cell: Cell, jobs: &[FioJob]) -> Self {
        let directions = || jobs.iter().flat_map(|job| [&job.read, &job.write]).flatten();
        let first = |side: fn(&FioJob) -> &Option<super::Direction>| {
            jobs.iter().find_map(|job| side(job).as_ref()?.latency.clone())
        };
        Self {
            cell,
            operations_per_second: directions().map(|side| side.operations_per_second).sum(),
            bytes_per_second: directions().map(|side| side.bytes_per_second).sum(),
            read: first(|job| &job.read),
            write: first(|job| &job.write),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::fio::size;

    fn directory() -> Target {
        Target::Directory(PathBuf::from("/mnt/target"))
    }

    #[test]
    fn the_studys_matrix_is_complete() {
        let cells = Matrix::default().cells();
        assert_eq!(cells.len(), 3 * 5 * 9);
        let names: BTreeSet<String> = cells.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), cells.len());
        assert!(names.contains("randread-psync-1-4k"));
        assert!(names.contains("randrw-70-30-io_uring-64-1024k"));
        assert_eq!(cells.iter().map(|cell| cell.block_size_bytes).min(), Some(4096));
        assert_eq!(cells.iter().map(|cell| cell.block_size_bytes).max(), Some(1 << 20));
    }

    #[test]
    fn the_seed_alone_decides_the_order_of_the_cells() {
        let matrix = Matrix::default();
        let shuffled = matrix.cells_shuffled(1);
        assert_eq!(shuffled, matrix.cells_shuffled(1));
        assert_ne!(shuffled, matrix.cells_shuffled(2));
        assert_ne!(shuffled, matrix.cells());
        let sorted = |cells: Vec<Cell>| cells.into_iter().collect::<BTreeSet<Cell>>();
        assert_eq!(sorted(shuffled), sorted(matrix.cells()));
    }

    #[test]
    fn all_cells_share_files_of_equal_size() {
        let matrix = Matrix { size_bytes: (100 << 20) + 12345, ..Matrix::default() };
        let mut needs = BTreeSet::new();
        for cell in matrix.cells() {
            let job = matrix.job(cell, &directory());
            let files = job.sections[0].value("filename").unwrap();
            assert_eq!(files.split(':').count(), FILES as usize);
            needs.insert((files.to_owned(), size::need(&job).bytes));
        }
        assert_eq!(needs.len(), 1);
        let (_, bytes) = needs.first().unwrap();
        assert_eq!(bytes % (u64::from(FILES) << 20), 0);
        assert_eq!(*bytes, 96 << 20);
    }

    #[test]
    fn a_device_matrix_names_no_file() {
        let matrix = Matrix::default();
        let device = Target::Device(PathBuf::from("/dev/loop77"));
        let job = matrix.job(matrix.cells()[0], &device);
        assert_eq!(job.sections[0].value("filename"), None);
    }
}
