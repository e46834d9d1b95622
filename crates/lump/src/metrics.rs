//! What a store has done since it was opened, as numbers and as text for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Usage;

/// Counters of an open store.
#[derive(Default)]
pub(crate) struct Counters {
    pub puts: AtomicU64,
    pub put_bytes: AtomicU64,
    pub gets: AtomicU64,
    pub get_bytes: AtomicU64,
    pub deleted: AtomicU64,
    pub commits: AtomicU64,
    pub journal_blocks: AtomicU64,
    pub flushes: AtomicU64,
    pub checkpoints: AtomicU64,
    pub corruptions: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// What a store holds, and what it has done since it was opened.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// What it holds.
    pub usage: Usage,
    /// Values put.
    pub puts: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Whole values read.
    pub gets: u64,
    /// Their bytes.
    pub get_bytes: u64,
    /// Values that deletes took away.
    pub deleted: u64,
    /// Group commits.
    pub commits: u64,
    /// Journal blocks written.
    pub journal_blocks: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Values that were not on the medium as they had been put.
    pub corruptions: u64,
}

impl Counters {
    pub fn read(&self, usage: Usage) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            usage,
            puts: read(&self.puts),
            put_bytes: read(&self.put_bytes),
            gets: read(&self.gets),
            get_bytes: read(&self.get_bytes),
            deleted: read(&self.deleted),
            commits: read(&self.commits),
            journal_blocks: read(&self.journal_blocks),
            flushes: read(&self.flushes),
            checkpoints: read(&self.checkpoints),
            corruptions: read(&self.corruptions),
        }
    }
}

impl Metrics {
    /// The text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let usage = &self.usage;
        let gauges = [
            ("objects", usage.objects),
            ("objects_max", usage.objects_max),
            ("data_bytes", usage.data_bytes),
            ("free_bytes", usage.free_bytes),
            ("longest_free_bytes", usage.longest_free_bytes),
            ("retired_bytes", usage.retired_bytes),
            ("journal_used_blocks", usage.journal_blocks),
            ("journal_max_blocks", usage.journal_blocks_max),
            ("index_bytes", usage.index_bytes),
        ];
        let counters = [
            ("puts_total", self.puts),
            ("put_bytes_total", self.put_bytes),
            ("gets_total", self.gets),
            ("get_bytes_total", self.get_bytes),
            ("deleted_total", self.deleted),
            ("commits_total", self.commits),
            ("journal_blocks_total", self.journal_blocks),
            ("flushes_total", self.flushes),
            ("checkpoints_total", self.checkpoints),
            ("corruptions_total", self.corruptions),
        ];
        let mut text = String::new();
        for (kind, values) in [("gauge", &gauges[..]), ("counter", &counters[..])] {
            for (name, value) in values {
                writeln!(text, "# TYPE lump_{name} {kind}\nlump_{name} {value}")
                    .expect("a string takes any text");
            }
        }
        text
    }
}
