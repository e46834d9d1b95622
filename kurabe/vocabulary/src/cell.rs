//! A cell of the fio matrix, whose text is the name of its metric.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::report::Metric;

/// Name of the figure of all cells of a matrix together.
pub const ALL_CELLS: &str = "geometric mean of all cells";

/// The geometric mean of those of the metrics that are cells; `None` where none is.
pub fn mean<'a>(metrics: impl Iterator<Item = &'a Metric>) -> Option<f64> {
    let cells = metrics.filter(|metric| metric.name.parse::<MatrixCell>().is_ok());
    let logarithms: Vec<f64> = cells.map(|metric| metric.value.ln()).collect();
    let count = logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

/// A cell of the matrix. Its text (`randrw-70-30-libaio-32-64k`) is the name of its figure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatrixCell {
    /// `randread`, `randwrite` or `randrw-70-30`.
    pub pattern: String,
    /// fio's engine.
    pub engine: String,
    /// Operations under way.
    pub depth: u32,
    /// Size of an operation in bytes.
    pub block_size_bytes: u64,
}

impl fmt::Display for MatrixCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixCell { pattern, engine, depth, block_size_bytes } = self;
        match block_size_bytes % 1024 {
            0 => write!(f, "{pattern}-{engine}-{depth}-{}k", block_size_bytes / 1024),
            _ => write!(f, "{pattern}-{engine}-{depth}-{block_size_bytes}"),
        }
    }
}

impl FromStr for MatrixCell {
    type Err = String;

    fn from_str(text: &str) -> Result<MatrixCell, String> {
        let parts: Vec<&str> = text.rsplitn(4, '-').collect();
        let cell = || {
            let [size, depth, engine, pattern] = parts[..] else { return None };
            let (number, unit_bytes) = match size.strip_suffix('k') {
                Some(number) => (number, 1024),
                None => (size, 1),
            };
            Some(MatrixCell {
                pattern: pattern.into(),
                engine: engine.into(),
                depth: depth.parse().ok()?,
                block_size_bytes: number.parse::<u64>().ok()?.checked_mul(unit_bytes)?,
            })
        };
        cell().ok_or_else(|| format!("'{text}' is no cell of the matrix"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_and_its_name_are_one() {
        for (name, pattern, depth, block_size_bytes) in [
            ("randread-psync-1-4k", "randread", 1, 4096),
            ("randrw-70-30-io_uring-64-1024k", "randrw-70-30", 64, 1 << 20),
            ("randwrite-libaio-32-512", "randwrite", 32, 512),
        ] {
            let cell: MatrixCell = name.parse().unwrap();
            assert_eq!((cell.pattern.as_str(), cell.depth), (pattern, depth));
            assert_eq!(cell.block_size_bytes, block_size_bytes);
            assert_eq!(cell.to_string(), name);
        }
        for wrong in ["", "throughput", "read operations", "a-b-c", "a-b-c-d", "a-b-1-k"] {
            assert!(wrong.parse::<MatrixCell>().is_err(), "{wrong}");
        }
    }
}
