//! Looking at a whole store: `scrub` reads every value of an open one, `check` judges all that a
//! device holds. Neither writes anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::BlockDevice;

use crate::checkpoint::read_root;
use crate::error::{Error, Result};
use crate::extent::Value;
use crate::geometry::Geometry;
use crate::layout::BLOCK_BYTES;
use crate::store::{OpenOptions, Store};

/// What a scrub read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Objects that were read and verified.
    pub objects: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Objects that could not be read or are corrupt.
    pub failures: u64,
}

/// What a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// Identity and sizes, where a superblock could be read.
    pub geometry: Option<Geometry>,
    /// All that is wrong, in words.
    pub findings: Vec<String>,
    /// What any power cut may leave, in words.
    pub notes: Vec<String>,
    /// Values that are left out, since nothing proves that they were durable: a power cut before they
    /// were leaves the same as decay after.
    pub left_out_values: u64,
    /// What was read.
    pub scrub: ScrubReport,
}

impl Store {
    /// Reads and verifies every value and its trailer, at most so many bytes a second; tells each
    /// failure to `on_failure` and goes on.
    pub fn scrub(
        &self,
        bytes_per_second_max: Option<u64>,
        mut on_failure: impl FnMut(Error),
    ) -> ScrubReport {
        let mut report = ScrubReport::default();
        let (start, mut value) = (Instant::now(), Value::zeroed(0));
        let mut read_bytes = 0;
        for entry in self.entries(Some(0..=u128::MAX)) {
            match self.get_all(entry.key, &mut value) {
                // Someone has deleted it meanwhile.
                Ok(false) => continue,
                Ok(true) => {
                    report.objects += 1;
                    report.value_bytes += value.len() as u64;
                }
                Err(error) => {
                    report.failures += 1;
                    on_failure(error);
                }
            }
            read_bytes += u64::from(entry.length);
            if let Some(rate) = bytes_per_second_max {
                let due = Duration::from_secs_f64(read_bytes as f64 / rate.max(1) as f64);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
        }
        report
    }
}

/// Judges all that the device holds of a store: both superblocks, the roots, the newest
/// checkpoint, the journal, whether values overlap, and every value.
///
/// # Errors
///
/// When there is no store, or it cannot be judged at all.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<CheckReport> {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let geometry = match Geometry::read(&*device) {
        Ok(geometry) => geometry,
        Err(Error::Damaged(why)) => {
            let scrub = ScrubReport::default();
            return Ok(CheckReport {
                geometry: None,
                findings: vec![why],
                notes,
                left_out_values: 0,
                scrub,
            });
        }
        Err(error) => return Err(error),
    };
    for block in [0, geometry.backup_offset() / BLOCK_BYTES] {
        match Geometry::read_at(&*device, block) {
            Ok(found) if found == geometry => {}
            Ok(_) => findings.push(format!("the superblock in block {block} is another store's")),
            Err(error) => {
                findings.push(format!("the copy of the superblock in block {block}: {error}"));
            }
        }
    }
    for place in 0..2 {
        if read_root(&device, &geometry, place)?.is_none() {
            notes.push(format!("root {place} is not whole; the other one counts"));
        }
    }
    let (mut scrub, mut left_out_values) = (ScrubReport::default(), 0);
    match Store::open(device, &OpenOptions { read_only: true, ..Default::default() }) {
        Ok(store) => {
            notes.extend(store.left_out());
            left_out_values = store.left_out_values();
            scrub = store.scrub(None, |error| findings.push(error.to_string()));
        }
        Err(Error::Damaged(why)) => findings.push(why),
        Err(error) => return Err(error),
    }
    Ok(CheckReport { geometry: Some(geometry), findings, notes, left_out_values, scrub })
}
