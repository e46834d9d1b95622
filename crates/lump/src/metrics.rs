//! What a store has done since it was opened, as numbers and as text for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Usage;

/// Declares the counters of an open store and what is read from them.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Counters of an open store.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        /// What a store holds, and what it has done since it was opened.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            /// What it holds.
            pub usage: Usage,
            $($(#[$about])* pub $name: u64,)*
        }

        impl Counters {
            pub fn read(&self, usage: Usage) -> Metrics {
                Metrics { usage, $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Metrics {
            fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!(stringify!($name), "_total"), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Values put.
    puts,
    /// Their bytes.
    put_bytes,
    /// Whole values read.
    gets,
    /// Their bytes.
    get_bytes,
    /// Values that deletes took away.
    deleted,
    /// Group commits.
    commits,
    /// Journal blocks written.
    journal_blocks,
    /// Flushes of the device.
    flushes,
    /// Checkpoints.
    checkpoints,
    /// Values that were not on the medium as they had been put.
    corruptions,
}

pub(crate) fn count(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
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
        let mut text = String::new();
        for (kind, values) in [("gauge", &gauges[..]), ("counter", &self.counters()[..])] {
            for (name, value) in values {
                writeln!(text, "# TYPE lump_{name} {kind}\nlump_{name} {value}")
                    .expect("a string takes any text");
            }
        }
        text
    }
}
