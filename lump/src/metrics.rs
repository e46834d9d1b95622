//! What a store has done since it was opened, as numbers, as text for Prometheus, and for whatever
//! recorder of the facade `metrics` the process has.
//!
//! Each store names itself in the label `store`, by its UUID. Names and descriptions stand here
//! once for all three.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Usage;

/// Label of every metric: the UUID of the store.
const LABEL: &str = "store";

/// Declares the counters of an open store and what is read from them.
macro_rules! counters {
    ($(#[doc = $about:literal] $name:ident,)*) => {
        /// What an open store counts and times.
        pub(crate) struct Counters {
            $(pub $name: Counter,)*
            pub put_seconds: metrics::Histogram,
            pub get_seconds: metrics::Histogram,
            pub flush_seconds: metrics::Histogram,
            pub checkpoint_seconds: metrics::Histogram,
            /// In the order of [`gauges`].
            gauges: Vec<metrics::Gauge>,
            store: uuid::Uuid,
        }

        /// What a store holds, and what it has done since it was opened.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            /// The UUID of the store.
            pub store: uuid::Uuid,
            /// What it holds.
            pub usage: Usage,
            $(#[doc = $about] pub $name: u64,)*
        }

        impl Counters {
            /// Counters that start at nothing, with the recorder of this moment.
            pub fn new(store: uuid::Uuid) -> Self {
                Self {
                    $($name: Counter::new(
                        concat!("lump_", stringify!($name), "_total"),
                        $about.trim(),
                        store,
                    ),)*
                    put_seconds: histogram("lump_put_seconds", "Time of a put.", store),
                    get_seconds: histogram("lump_get_seconds", "Time of a get.", store),
                    flush_seconds: histogram(
                        "lump_flush_seconds",
                        "Time of a flush of the device.",
                        store,
                    ),
                    checkpoint_seconds: histogram(
                        "lump_checkpoint_seconds",
                        "Time of a checkpoint.",
                        store,
                    ),
                    gauges: gauges(None).map(|(name, about, _)| gauge(name, about, store)).into(),
                    store,
                }
            }

            /// Reads the counters, and tells the recorder of the usage.
            pub fn read(&self, usage: Usage) -> Metrics {
                for (gauge, (_, _, value)) in self.gauges.iter().zip(gauges(Some(&usage))) {
                    gauge.set(value as f64);
                }
                let store = self.store;
                Metrics { store, usage, $($name: self.$name.own.load(Ordering::Relaxed),)* }
            }
        }

        impl Metrics {
            fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((
                    concat!("lump_", stringify!($name), "_total"),
                    $about.trim(),
                    self.$name,
                ),)*]
            }
        }
    };
}

counters! {
    /// Values put.
    puts,
    /// Bytes of the values put.
    put_bytes,
    /// Whole values read.
    gets,
    /// Bytes of the whole values read.
    get_bytes,
    /// Values that deletes took away.
    deleted,
    /// Group commits.
    commits,
    /// Batches of buffered changes that were written.
    gathered_batches,
    /// Journal blocks written.
    journal_blocks,
    /// Flushes of the device.
    flushes,
    /// Checkpoints.
    checkpoints,
    /// Bytes that checkpoints wrote.
    checkpoint_bytes,
    /// Values that were not on the medium as they had been put.
    corruptions,
}

/// Names, descriptions and values of what comes and goes; the values are zero without a usage.
fn gauges(usage: Option<&Usage>) -> [(&'static str, &'static str, u64); 12] {
    let of = |value: fn(&Usage) -> u64| usage.map_or(0, value);
    [
        ("lump_objects", "Objects.", of(|usage| usage.objects)),
        ("lump_objects_max", "Most objects.", of(|usage| usage.objects_max)),
        ("lump_data_bytes", "Bytes for values, used or free.", of(|usage| usage.data_bytes)),
        ("lump_free_bytes", "Bytes that can be used now.", of(|usage| usage.free_bytes)),
        (
            "lump_longest_free_bytes",
            "The longest free piece.",
            of(|usage| usage.longest_free_bytes),
        ),
        (
            "lump_retired_bytes",
            "Bytes given up that come back later.",
            of(|usage| usage.retired_bytes),
        ),
        (
            "lump_journal_used_blocks",
            "Journal blocks that an opening would apply.",
            of(|usage| usage.journal_blocks),
        ),
        (
            "lump_journal_max_blocks",
            "Blocks of the whole journal.",
            of(|usage| usage.journal_blocks_max),
        ),
        ("lump_index_bytes", "Memory of the index.", of(|usage| usage.index_bytes)),
        ("lump_gathered_bytes", "Bytes that wait in memory.", of(|usage| usage.gathered_bytes)),
        ("lump_gathered_ms", "Age of the oldest of them.", of(|usage| usage.gathered_ms)),
        ("lump_waiting", "Changes that wait for the next commit.", of(|usage| usage.waiting)),
    ]
}

/// A number that only grows, in the store and with the recorder.
pub(crate) struct Counter {
    own: AtomicU64,
    recorded: metrics::Counter,
}

impl Counter {
    fn new(name: &'static str, about: &'static str, store: uuid::Uuid) -> Self {
        metrics::describe_counter!(name, about);
        let recorded = metrics::counter!(name, LABEL => store.to_string());
        Self { own: AtomicU64::new(0), recorded }
    }
}

fn gauge(name: &'static str, about: &'static str, store: uuid::Uuid) -> metrics::Gauge {
    metrics::describe_gauge!(name, about);
    metrics::gauge!(name, LABEL => store.to_string())
}

fn histogram(name: &'static str, about: &'static str, store: uuid::Uuid) -> metrics::Histogram {
    metrics::describe_histogram!(name, metrics::Unit::Seconds, about);
    metrics::histogram!(name, LABEL => store.to_string())
}

pub(crate) fn count(counter: &Counter, number: u64) {
    counter.own.fetch_add(number, Ordering::Relaxed);
    counter.recorded.increment(number);
}

impl Metrics {
    /// The text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let gauges = gauges(Some(&self.usage));
        for (kind, values) in [("gauge", &gauges[..]), ("counter", &self.counters()[..])] {
            for (name, about, value) in values {
                writeln!(
                    text,
                    "# HELP {name} {about}\n# TYPE {name} {kind}\n{name}{{{LABEL}=\"{}\"}} {value}",
                    self.store
                )
                .expect("a string takes any text");
            }
        }
        text
    }
}
