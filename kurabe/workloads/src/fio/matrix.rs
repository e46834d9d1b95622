//! The flash study's matrix: random reads, random writes and a 70/30 mix, submitted one by one
//! and in queues, in blocks of several sizes, over 16 files of equal size or one device.
//!
//! Generates the cells and their job files. Runs nothing; no I/O.

use std::fmt;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use vocabulary::report::{Axes, BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, OPERATION_AXIS};

use super::jobfile::{JobFile, JobOption, JobSection};
use super::place::FioTarget;

/// The files that a matrix works on; the study had 16.
pub const FILES: u32 = 16;

/// What a cell does, with fio's name for it, its share of reads where it mixes them with writes, and
/// its kinds of operation.
pub type Pattern = (&'static str, &'static str, Option<u32>, &'static [&'static str]);

const PATTERNS: [Pattern; 3] = [
    ("randread", "randread", None, &["read"]),
    ("randwrite", "randwrite", None, &["write"]),
    ("randrw-70-30", "randrw", Some(70), &["read", "write"]),
];

/// fio's engines that keep a queue.
pub const QUEUE_ENGINES: [&str; 2] = ["libaio", "io_uring"];

const DEPTHS: [u32; 2] = [32, 64];

/// A cell of the matrix. Its text (`randrw-70-30-libaio-32-64k`) is the name of its figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixCell {
    pub pattern: Pattern,
    /// fio's engine.
    pub engine: String,
    /// Operations under way.
    pub depth: u32,
    /// Size of an operation in bytes.
    pub block_size_bytes: u32,
}

impl MatrixCell {
    /// Where its figure lies among those of the matrix.
    pub fn axes(&self) -> Axes {
        Axes::from([
            (OPERATION_AXIS.into(), self.pattern.0.into()),
            (ENGINE_AXIS.into(), self.engine.clone()),
            (DEPTH_AXIS.into(), self.depth.to_string()),
            (BLOCK_SIZE_AXIS.into(), self.block_size_bytes.to_string()),
        ])
    }
}

impl fmt::Display for MatrixCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixCell { pattern: (pattern, ..), engine, depth, block_size_bytes } = self;
        match block_size_bytes % 1024 {
            0 => write!(f, "{pattern}-{engine}-{depth}-{}k", block_size_bytes / 1024),
            _ => write!(f, "{pattern}-{engine}-{depth}-{block_size_bytes}"),
        }
    }
}

/// Which cells, and what is common to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// Engines of the cells with a queue; the others have psync.
    pub engines: Vec<String>,
    pub block_sizes_bytes: Vec<u32>,
    /// Bytes of all files together, or the used part of the device.
    pub size_bytes: u64,
    /// Time of a cell, in ms.
    pub runtime_ms: u32,
}

impl Matrix {
    /// The cells in order: by pattern, then by engine and depth, then by block size.
    pub fn cells(&self) -> Vec<MatrixCell> {
        let queues = self.engines.iter().flat_map(|engine| DEPTHS.map(|depth| (&**engine, depth)));
        let submissions: Vec<(&str, u32)> = std::iter::once(("psync", 1)).chain(queues).collect();
        let mut cells = Vec::new();
        for pattern in PATTERNS {
            for (engine, depth) in &submissions {
                cells.extend(self.block_sizes_bytes.iter().map(|bytes| MatrixCell {
                    pattern,
                    engine: engine.to_string(),
                    depth: *depth,
                    block_size_bytes: *bytes,
                }));
            }
        }
        cells
    }

    /// The same cells in the order in which they are run: drawn from a seed, so that a cell's place
    /// among the others, and with it the age of the files, differs from trial to trial.
    pub fn cells_shuffled(&self, seed: u64) -> Vec<MatrixCell> {
        let mut cells = self.cells();
        cells.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        cells
    }

    /// The job file of a cell. All cells of a matrix name the same files, so that they are laid
    /// out once.
    ///
    /// I/O is direct: the matrix asks for the cost of the file system, not of the page cache.
    pub fn job(&self, cell: &MatrixCell, target: &FioTarget) -> JobFile {
        // A file is a multiple of the largest block, so that every cell covers all of it.
        let largest = u64::from(self.block_sizes_bytes.iter().copied().max().unwrap_or(1).max(1));
        let (_, pattern, mix, _) = cell.pattern;
        let mut options = vec![
            JobOption::added("rw", pattern),
            JobOption::added("bs", cell.block_size_bytes),
            JobOption::added("ioengine", &cell.engine),
            JobOption::added("iodepth", cell.depth),
            JobOption::added("direct", 1),
            JobOption::added("time_based", 1),
            JobOption::added("runtime", format!("{}ms", self.runtime_ms)),
            // Random writes may hit a block again, as on a device in use.
            JobOption::added("norandommap", 1),
            JobOption::added("refill_buffers", 1),
        ];
        options.extend(mix.map(|reads| JobOption::added("rwmixread", reads)));
        match target {
            FioTarget::Directory(_) => {
                let each = self.size_bytes / u64::from(FILES) / largest * largest;
                let names: Vec<String> = (0..FILES).map(|file| format!("data.{file}")).collect();
                options.push(JobOption::added("filename", names.join(":")));
                options.push(JobOption::added("size", each * u64::from(FILES)));
                options.push(JobOption::added("file_service_type", "random"));
            }
            FioTarget::Device(_) => {
                options.push(JobOption::added("size", self.size_bytes / largest * largest));
            }
        }
        JobFile { sections: vec![JobSection::added(&cell.to_string(), options)] }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::fio::size;

    fn matrix() -> Matrix {
        Matrix {
            engines: QUEUE_ENGINES.map(String::from).into(),
            block_sizes_bytes: (12..=20).map(|power| 1 << power).collect(),
            size_bytes: (100 << 20) + 12345,
            runtime_ms: 100,
        }
    }

    fn names(cells: &[MatrixCell]) -> BTreeSet<String> {
        cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_studys_matrix_is_complete() {
        let cells = matrix().cells();
        assert_eq!((cells.len(), names(&cells).len()), (3 * 5 * 9, 3 * 5 * 9));
        assert!(names(&cells).contains("randread-psync-1-4k"));
        assert!(names(&cells).contains("randrw-70-30-io_uring-64-1024k"));
    }

    #[test]
    fn the_seed_alone_decides_the_order_of_the_cells() {
        let matrix = matrix();
        let shuffled = matrix.cells_shuffled(1);
        assert_eq!(shuffled, matrix.cells_shuffled(1));
        assert_ne!(shuffled, matrix.cells_shuffled(2));
        assert_ne!(shuffled, matrix.cells());
        assert_eq!(names(&shuffled), names(&matrix.cells()));
    }

    #[test]
    fn all_cells_share_files_of_equal_size() {
        let matrix = matrix();
        let directory = FioTarget::Directory(PathBuf::from("/mnt/target"));
        let mut needs = BTreeSet::new();
        for cell in matrix.cells() {
            let job = matrix.job(&cell, &directory);
            let files = job.effective(0, "filename").unwrap();
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
        let matrix = matrix();
        let device = FioTarget::Device(PathBuf::from("/dev/loop77"));
        let job = matrix.job(&matrix.cells()[0], &device);
        assert_eq!(job.effective(0, "filename"), None);
    }
}
