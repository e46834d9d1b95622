//! What the layers of modelled disks have in common.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use block::BlockDevice;
use disks::{DiskKind, DiskProfile, Emulated};
use serde_json::Value;

use super::{Layered, ModelledLayer, Put};

impl<D: BlockDevice> ModelledLayer for Emulated<D> {
    fn facts(&self) -> Value {
        Emulated::facts(self)
    }

    fn measure(&self, begins: bool) {
        if begins { self.begin() } else { self.end() }
    }

    fn keep_trace(&self) {
        self.with_trace(disks::trace::TraceRecorder::keep);
    }

    fn follow_cache(&self) {
        Emulated::follow_cache(self);
    }

    fn durable(&self, writes: &[(Instant, Range<u64>)]) -> Vec<Option<Instant>> {
        Emulated::durable(self, writes)
    }

    fn write_trace(&self, out: &mut dyn Write) -> io::Result<u64> {
        self.with_trace(|trace| trace.write_to(out).map(|()| trace.requests().1))
    }
}

/// Reads a profile and its words.
pub(super) fn read(kind: DiskKind, words: &str) -> Result<Put, String> {
    let profile = DiskProfile::read(kind, words).map_err(|error| error.to_string())?;
    Ok(Box::new(|mut below: Layered| {
        let disk = Emulated::new(below.stack, profile).map_err(|error| error.to_string())?;
        let disk = Arc::new(disk);
        below.disks.push(disk.clone());
        Ok(Layered { stack: Box::new(disk), disks: below.disks })
    }))
}

/// Whether a device of so many bytes fits on the disk.
pub(super) fn fits(kind: DiskKind, words: &str, size_bytes: u64) -> Result<(), String> {
    let profile = DiskProfile::read(kind, words).map_err(|error| error.to_string())?;
    profile.placed(size_bytes).map(drop).map_err(|error| error.to_string())
}
