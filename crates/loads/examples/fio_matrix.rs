//! Runs the flash study's matrix on a directory and on a raw device and prints the overhead of
//! the first against the second, cell by cell.
//!
//! ```text
//! cargo run --release -p kurabe-loads --example fio_matrix -- DIR DEVICE MIB SECONDS
//! ```
//!
//! MIB is the size of all files together, and of the part of DEVICE that is used and
//! OVERWRITTEN: it must not be mounted. SECONDS is the length of a cell; the whole matrix has
//! 135 cells. This is the two sides one after the other, to see the tool work; a comparison
//! needs interleaved repetitions.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use kurabe_loads::fio::matrix::{CellResult, Matrix, overhead};
use kurabe_loads::fio::{Fio, Prepared, Target, fio};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, device, mib, seconds] = &arguments[..] else {
        return Err("usage: fio_matrix DIR DEVICE MIB SECONDS".into());
    };
    let matrix = Matrix {
        size_bytes: mib.parse::<u64>()? << 20,
        runtime_ms: seconds.parse::<u32>()? * 1000,
        ..Matrix::default()
    };
    let raw = cells(&matrix, &Target::Device(PathBuf::from(device)))?;
    let own = cells(&matrix, &Target::Directory(PathBuf::from(directory)))?;
    println!("{:<36} {:>10} {:>10} {:>9}", "cell", "IOPS", "raw IOPS", "overhead");
    for line in overhead(&own, &raw) {
        println!(
            "{:<36} {:>10.0} {:>10.0} {:>7.1} %",
            line.cell.to_string(),
            line.operations_per_second,
            line.baseline_operations_per_second,
            line.percent
        );
    }
    Ok(())
}

/// Runs all cells; the files are laid out before the first.
fn cells(matrix: &Matrix, target: &Target) -> Result<Vec<CellResult>, Box<dyn Error>> {
    let scratch = std::env::temp_dir().join(format!("kurabe-matrix-{}", std::process::id()));
    let mut results = Vec::new();
    let mut prepared = None;
    for cell in matrix.cells() {
        fs::create_dir(&scratch)?;
        let job = matrix.job(cell, target);
        let plan = Fio { job: &job, target, scratch: &scratch, prepared: prepared.as_ref() };
        let outcome = fio(&plan, &AtomicBool::new(false), &mut |_| {});
        fs::remove_dir_all(&scratch)?;
        let report = outcome?.report;
        let default_size_bytes = report.default_size_bytes;
        prepared = Some(Prepared { layout: report.layout, default_size_bytes });
        if report.laid_out_in_run > 0 {
            return Err(format!("{cell}: fio laid files out within the run").into());
        }
        let result = CellResult::new(cell, &report.jobs);
        eprintln!("{cell}: {:.0} IOPS", result.operations_per_second);
        results.push(result);
    }
    Ok(results)
}
